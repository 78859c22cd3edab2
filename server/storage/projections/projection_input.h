#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/dtype.h"
#include "gpu/math/raw.h"

// Projections of a tomography scan in files: their description, their order in time, and reads of
// any part into host memory.
namespace octavo::storage {

/// As NXtomo's image_key.
enum class FrameKind : uint8_t { kProjection = 0, kFlat = 1, kDark = 2 };
const char* Name(FrameKind kind);  // "projection", "flat", "dark"

enum class AngleUnit : uint8_t {
  kDeclared,  // the file's own unit (attribute `units`); degrees if it gives none
  kDegrees,
  kRadians,
};

/// How to read a file. A member may be left out if the file itself gives it.
struct ProjectionOptions {
  /// "" = derived from the path: a folder is "tiff" if it has files *.tif or *.tiff and no metadata
  /// of Zarr, else "zarr"; a name that ends in .npy is "npy", in .tif, .tiff or .btf "tiff"; else
  /// it is HDF5 and "nxtomo" if it has an NXtomo entry, else "data_exchange".
  std::string format;
  /// Names of the arrays, replacing the format's own names. HDF5: paths within the file
  /// ("/exchange/data"); Zarr: arrays below the path; npy: paths of further files, checked against
  /// the configured roots by the caller as `path` was; tiff: the same of files and folders of TIFF,
  /// and of an .npy for the angles. "-" = none (flats, darks). nxtomo: `projections` may name the
  /// entry; the others must be empty.
  std::string projections, flats, darks, angles;
  /// Replaces the angles of the file, one per projection, in the unit below (kDeclared: degrees).
  std::vector<double> angle_values;
  AngleUnit angle_unit = AngleUnit::kDeclared;
  /// Folders to which links may lead: for HDF5 links and virtual datasets, compared by canonical
  /// paths before a file is opened; for Zarr folders, symbolic links. Empty = no other file is
  /// read, and nothing outside of the Zarr folder.
  std::vector<std::string> roots;
  /// Positions of flats and darks, replacing those of the file, as in ProjectionInfo; empty = as
  /// the file says.
  std::vector<double> flat_positions, dark_positions;
};

/// The description of an input. Frames are [row, column]: rows along the axis of rotation, columns
/// across it.
struct ProjectionInfo {
  std::string path;    // the path that was opened
  std::string format;  // "data_exchange", "nxtomo", "npy", "tiff", "zarr"
  // type of the read values: u8, u16, i16 unchanged if all kinds have the same; all other real
  // numbers as f32
  DType dtype = DType::kF32;
  // of rows of all kinds, as PixelForm::kStored gives them; not kNone: dtype is kU16
  math::Packing packing = math::Packing::kNone;
  std::string stored_type;  // of the projections in the file: "u16", "u32, big-endian"
  int64_t projections = 0, rows = 0, columns = 0;  // all at least 1
  int64_t flats = 0, darks = 0;
  std::vector<double>
      angles_rad;  // [projections], finite, in the order of the projections, not reduced to a turn
  /// [flats], [darks]: projections that were taken before the frame (0 = before the first,
  /// `projections` = after the last). Empty if unknown.
  std::vector<double> flat_positions, dark_positions;
  bool angle_unit_assumed = false;  // neither caller nor file gave the unit: degrees
  // what Octavo's own metadata say that the values are, by the name of model::Quantity
  // ("line_integral"); "" = the file has none
  std::string quantity;
  double pixel_size_um = 0;  // of a column of the detector, in the sample; 0 = not known
  // axis of rotation as a pixel index (column 0's middle = 0), if the file has it; some programs
  // count from 1
  std::optional<double> axis_column;
  std::vector<std::string> notes;  // omissions and assumptions, in words, for a job's log
  std::vector<std::string>
      doubts;  // those notes that may show a mistake in the file, for the job's warnings

  int64_t frames(FrameKind kind) const {
    return kind == FrameKind::kProjection ? projections : kind == FrameKind::kFlat ? flats : darks;
  }
};

/// How pixels are given: as numbers of ProjectionInfo::dtype, or in rows as ProjectionInfo::packing
/// says, which are smaller. Both are the same if it is kNone.
enum class PixelForm : uint8_t { kNumbers, kStored };

/// A part of the frames of one kind; every count is at least 1.
struct ProjectionBox {
  FrameKind kind = FrameKind::kProjection;
  int64_t first_frame = 0, frames = 0;
  int64_t first_row = 0, rows = 0;
  int64_t first_column = 0, columns = 0;

  int64_t elements() const { return frames * rows * columns; }
};

/// An opened input. Thread-safe. Reads run in parallel; those that the HDF5 library must do take
/// turns (virtual datasets, filters other than deflate, shuffle, LZ4 and bitshuffle, unusual
/// numbers).
class ProjectionInput {
 public:
  virtual ~ProjectionInput() = default;
  const ProjectionInfo& info() const { return info_; }
  /// Reads the box as [frame, row, column] without gaps to `out`, which holds BytesOf(box, form).
  /// Blocks. InvalidArgument for a box that is not inside, and for parts of packed rows; DataLoss
  /// (names the dataset) for unreadable or damaged data; Unimplemented for a compression that this
  /// build does not know.
  absl::Status Read(const ProjectionBox& box, void* out, PixelForm form = PixelForm::kNumbers);
  int64_t BytesOf(const ProjectionBox& box, PixelForm form) const {
    const math::Packing packing = form == PixelForm::kStored ? info_.packing : math::Packing::kNone;
    return box.frames * box.rows * math::PackedBytes(packing, box.columns, SizeOf(info_.dtype));
  }
  /// Rows that are best read together (the file's chunks); 1 = any number.
  virtual int64_t row_granularity() const { return 1; }

 protected:
  explicit ProjectionInput(ProjectionInfo info) : info_(std::move(info)) {}
  /// The box is inside and not empty.
  virtual absl::Status ReadInside(const ProjectionBox& box, void* out) = 0;
  /// The same in rows as info().packing says, of an input that has one. The box has whole rows.
  virtual absl::Status ReadPacked(const ProjectionBox& box, void* out);
  const ProjectionInfo info_;
};

/// Opens the file or folder `path` (which the caller has checked against the configured roots) and
/// checks that its contents are consistent; reads angles and keys, no frames. Errors of content
/// name dataset, value and what is allowed, and carry ErrorInfo with reason BAD_PROJECTIONS (a
/// dataset is missing, of wrong rank, shape, count or type, or leads to another file that may not
/// be read), DAMAGED_FILE (truncated, cannot be read, crashes the HDF5 library) or
/// UNKNOWN_COMPRESSION, and the numbers "dataset", "value", "allowed"; of the contents of TIFF
/// files UNSUPPORTED_FILE instead of BAD_PROJECTIONS, and "place" instead of "dataset":
///   InvalidArgument   the file can never be used so
///   NotFound          there is no such file
///   PermissionDenied  it may not be read
///   DataLoss          it is damaged
///   Unimplemented     files of its kind are not supported
///   Aborted           it was replaced (REPLACED) again and again while it was opened
absl::StatusOr<std::shared_ptr<ProjectionInput>> OpenProjections(const std::string& path,
                                                                 const ProjectionOptions& options);

/// The format that OpenProjections takes `path` for: the one of the options, or as it says there.
/// "" = one of HDF5. Errors of a path that cannot be opened, as OpenProjections.
absl::StatusOr<std::string> ProjectionFormatOf(const std::string& path,
                                               const ProjectionOptions& options);
/// Whether flats, darks and angles of this format are paths of further files.
bool NamesFurtherFiles(const std::string& format);

}  // namespace octavo::storage

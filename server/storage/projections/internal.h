#pragma once

// Private to the formats of projection_input.h.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "gpu/base/unique_fd.h"
#include "server/storage/hdf5/dataset_errors.h"
#include "server/storage/projections/projection_input.h"

namespace octavo::storage {

/// A real number as stored in a file.
struct StoredType {
  enum class Kind : uint8_t { kUnsigned, kSigned, kFloat } kind = Kind::kFloat;
  int64_t bytes = 4;  // 1, 2, 4, 8; floats 2, 4, 8
  bool big_endian = false;

  std::string Name() const;  // "u32, big-endian"
  /// u8, u16, i16 as they are; f32 for all others.
  DType Loaded() const;
  /// Whether loading as `dtype` changes nothing.
  bool IsAs(DType dtype) const;
  /// From "u2", "i1", "f4" (NumPy without byte order) or "uint16", "float32" (Zarr v3). Nothing for
  /// other types.
  static std::optional<StoredType> FromNumpy(absl::string_view code);
  static std::optional<StoredType> FromZarr(absl::string_view name);
};

/// Converts `count` numbers to `dtype` (the type's Loaded, or f32).
void LoadNumbers(const char* in, const StoredType& type, int64_t count, DType dtype, char* out);
/// The same to f64.
std::vector<double> LoadDoubles(const char* in, const StoredType& type, int64_t count);

/// Frames [frame, row, column] in a file. Thread-safe.
class FrameArray {
 public:
  virtual ~FrameArray() = default;
  std::string dataset;  // "/exchange/data"
  StoredType type;
  int64_t shape[3] = {0, 0, 0};
  int64_t frame_granularity = 1, row_granularity = 1;  // those that are best read together
  /// Reads a box within the array, packed, as `dtype` (the type's Loaded, or f32).
  virtual absl::Status Read(const int64_t start[3], const int64_t count[3], DType dtype,
                            char* out) = 0;
};

/// The findings of a format, before their consistency is checked.
struct ProjectionParts {
  std::string path, format;
  std::shared_ptr<FrameArray> array[3];  // by FrameKind; null = none
  std::vector<int64_t> index[3];         // the frames of the array, ascending; empty = all
  bool indexed = false;                  // `index` is valid, even if it is empty
  std::vector<double> angles;            // one per projection
  std::string angles_dataset;            // their origin
  std::string angle_unit;                // as declared; "" = not
  std::vector<double> flat_positions, dark_positions;
  std::string quantity;  // ProjectionInfo::quantity
  double pixel_size_um = 0;
  std::optional<double> axis_column;
  std::vector<std::string> notes, doubts;
};
absl::StatusOr<std::shared_ptr<ProjectionInput>> AssembleProjections(
    ProjectionParts parts, const ProjectionOptions& options);

/// Tells that the axes of the projections are taken in the usual order, where nothing says what
/// they are (`unsaid`), and another axis is as long as that of the angles: nothing else would show
/// a mistake. A doubt where that is the axis of rows, because sinograms lie so. Whether it told.
bool TellAxes(const std::string& unsaid, ProjectionParts* parts);

/// Radians of one of the unit of a file's angles, "" = degrees; nothing for a unit of something
/// else.
std::optional<double> RadiansOf(absl::string_view unit);

/// Whether a file of this name counts as a projection in a folder of TIFF files.
bool IsTiffName(absl::string_view name);
/// The pages of an open file of TIFF, or the files of an open folder. Notes and doubts of the files
/// go to `parts`.
absl::StatusOr<std::shared_ptr<FrameArray>> OpenTiffFrames(UniqueFd opened, const std::string& path,
                                                           ProjectionParts* parts);

/// Sets the angles of a format that has none: those of the .npy file `options.angles`, unless the
/// options have their values.
absl::Status ReadNpyAngles(const ProjectionOptions& options, ProjectionParts* parts);

/// Checks that a shape of frames is possible: each extent and their product.
absl::Status CheckFrameShape(const std::string& path, const FrameArray& array);

/// `file` is open, for as long as this takes, and had the name `path`.
absl::StatusOr<std::shared_ptr<ProjectionInput>> OpenHdf5Projections(
    const UniqueFd& file, const std::string& path, const ProjectionOptions& options);
absl::StatusOr<std::shared_ptr<ProjectionInput>> OpenNpyProjections(
    const std::string& path, const ProjectionOptions& options);
/// `opened` is a file, or a folder of files, and had the name `path`.
absl::StatusOr<std::shared_ptr<ProjectionInput>> OpenTiffProjections(
    UniqueFd opened, const std::string& path, const ProjectionOptions& options);
absl::StatusOr<std::shared_ptr<ProjectionInput>> OpenZarrProjections(
    const std::string& path, const ProjectionOptions& options);

}  // namespace octavo::storage

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "gpu/base/unique_fd.h"
#include "server/base/array_box.h"
#include "server/storage/direct/stored_pieces.h"
#include "server/storage/formats/volume_meta.h"
#include "server/storage/io/element_type.h"

// Volumes in files of any origin. Opening reads the description alone; the voxels are read box by
// box. Nothing is guessed: what a file does not say is absent in the description, and the caller
// has to give it (input_volume.h).
//
// Errors that tell about a file (server/storage/io/file_errors.h): UNSUPPORTED_FILE for sound files
// that are not read, DAMAGED_FILE, UNKNOWN_COMPRESSION. Errors that tell about the caller's wishes
// are InvalidArgument and name a field of VolumeInputOptions, with `field_prefix` before it.
namespace octavo::storage {

/// The kinds of files that are read. More than those that are written (writer.h).
enum class InputFormat : uint8_t {
  kNpy = 1,
  kRaw,        // numbers without a header; VolumeInputOptions::raw describes them
  kTiff,       // TIFF, BigTIFF, OME-TIFF, ImageJ; one file
  kTiffStack,  // a folder of TIFF files, or of those that a commit wrote
  kNifti,      // .nii, .nii.gz, .hdr with .img
  kNrrd,       // .nrrd, .nhdr
  kHdf5,       // a dataset; also MATLAB 7.3
  kMatlab,     // a variable of MATLAB v5
  kLinumpy,    // a folder with info.txt and image_*.bin
  kZarr,       // an OME-Zarr image, or an array of Zarr v2 or v3
};
/// "npy", "raw", "tiff", "tiff-stack", "nifti", "nrrd", "hdf5", "mat", "linumpy", "zarr".
const char* Name(InputFormat format);
std::optional<InputFormat> InputFormatNamed(const std::string& name);
/// All names, for messages.
inline constexpr char kInputFormatNames[] =
    "npy, raw, tiff, tiff-stack, nifti, nrrd, hdf5, mat, linumpy, zarr";

/// An axis of a stored array.
struct InputAxis {
  /// As the file says: "x", "y", "z", "t" (time), "c" (channels), or another word; "" if the file
  /// does not say.
  std::string name;
  int64_t extent = 0;
  /// Distance of two samples in micrometres, converted from the file's unit. Absent if the file
  /// gives no distance, or one without a unit of length.
  std::optional<double> spacing_um;
  /// The file's own number and unit ("0.004", "mm"), and the place where it says so
  /// ("pixdim[1]"). A number may be there without a unit: then it is not in spacing_um. Empty:
  /// the file gives none.
  std::string spacing_as_stored, spacing_place;
};

/// What a file says about its array.
struct VolumeInputInfo {
  InputFormat format = InputFormat::kNpy;
  std::string kind;  // for people: "BigTIFF, OME-XML"
  ElementType type;
  std::vector<InputAxis> axes;  // slowest first in what Read returns
  /// The axes from the slowest to the fastest in the file. Reading along the first is cheapest.
  std::vector<int> file_order;
  /// Extents, one for each axis, of the pieces that are decoded as a whole; 1 where none are.
  std::vector<int64_t> chunk;
  /// Whether the file has to be read from its beginning for every step back.
  bool sequential = false;
  /// Most bytes that a Read takes beside the caller's memory.
  int64_t read_memory_bytes = 0;
  /// value = slope * stored + intercept, where the file says so and it is not the identity. Read
  /// returns stored elements; InputVolumeOptions::values decides what becomes of them.
  std::optional<std::pair<double, double>> slope_intercept;
  std::string value_unit;                     // "" = the file does not say
  std::map<std::string, std::string> labels;  // texts of the file, by its own names
  std::vector<std::string> notes;             // sentences: what was left out or needs a look
  std::string numbering;  // of the notes, the one that doubts the names of the files; "" = none
  /// All metadata, of files that a commit of Octavo wrote. `axes` above are then named by it.
  std::optional<VolumeMeta> octavo;

  std::vector<int64_t> shape() const;
};

/// Where the numbers of a file of kRaw are: it has no description.
struct RawLayout {
  std::vector<int64_t> shape;  // slowest first, or with `fortran` fastest first
  ElementType type;
  bool big_endian = false;
  int64_t offset_bytes = 0;
  bool fortran = false;         // the first axis is the fastest in the file
  bool allow_trailing = false;  // bytes after the last element are left out; else refused
};

/// What a caller says about a file, for what the file does not say itself.
struct VolumeInputOptions {
  std::string field_prefix;           // "import." in errors about these options
  std::optional<InputFormat> format;  // absent: recognised by the content
  /// Files that this file refers to must lie below one of these folders. Only for files that are
  /// opened by their path; with an empty list they may lie anywhere that the process can read.
  std::vector<std::string> roots;
  /// HDF5: "/a/b". MATLAB: the variable's name. Zarr: an array or a group below the folder, "a/b";
  /// empty = the folder itself. Else empty.
  std::string dataset;
  std::optional<int> image;  // OME-TIFF and OME-Zarr with several images: its index
  /// OME-Zarr: the level of the image's pyramid, 0 = the full resolution, which is the default.
  std::optional<int> level;
  /// Most bytes that one compressed piece of a file (strip, tile, chunk) may decode to.
  int64_t most_chunk_bytes = int64_t{1} << 30;
  std::optional<RawLayout> raw;  // of kRaw
  /// Looks at an open HDF5 file in another process first (server/storage/projections/hdf5_probe.h);
  /// `path` is its name. Empty: this process opens it at once.
  std::function<absl::Status(const UniqueFd& file, const std::string& path,
                             const VolumeInputOptions& options)>
      probe_hdf5;
  /// Told of the file or folder, and of each further file that it names, when they are open and not
  /// yet read; `name` is for messages. An error ends the opening. Not of files that the HDF5
  /// library opens. May be empty.
  std::function<absl::Status(const UniqueFd& opened, const std::string& name)> on_opened;
};

/// An array in a file. Any thread may read; inputs that are sequential let callers take turns.
class VolumeInput {
 public:
  virtual ~VolumeInput() = default;
  VolumeInput(const VolumeInput&) = delete;

  const VolumeInputInfo& info() const { return info_; }
  /// Reads a box into `out`, elements as stored in host byte order, in C order of the axes. `out`
  /// has exactly the box's bytes, aligned for the type. Runs in the caller's oneTBB arena.
  /// InvalidArgument if the box leaves the array or `out` has another size; else errors of the
  /// file. What `out` holds after an error is undefined.
  absl::Status Read(const base::ArrayBox& box, absl::Span<char> out);
  /// The parts of a box, which must not be empty, for a reader that brings them into a device by
  /// itself (server/storage/direct/device_reader.h): the same elements as Read. Null where only
  /// Read can put them together. InvalidArgument if the box leaves the array. The parts are valid
  /// as long as this input.
  absl::StatusOr<std::unique_ptr<PieceSource>> Pieces(const base::ArrayBox& box) const;
  /// Checks the files against the sizes and CRCs that a commit recorded; OK where there are none.
  /// DataLoss. SetVerify says how, before other threads know the input.
  absl::Status Verify() { return verify_ ? verify_() : absl::OkStatus(); }
  void SetVerify(std::function<absl::Status()> verify) { verify_ = std::move(verify); }
  /// What was noticed while it was read, a sentence each: parts that no file has, for example.
  virtual std::vector<std::string> Noticed() const { return {}; }
  /// Reads end soon after `stop` is requested, with Cancelled: between two chunks, blocks or
  /// pieces. Before other threads read.
  void SetStop(std::stop_token stop) { stop_ = std::move(stop); }

 protected:
  explicit VolumeInput(VolumeInputInfo info) : info_(std::move(info)) {}
  /// `box` lies within the array and is not empty.
  virtual absl::Status ReadInside(const base::ArrayBox& box, char* out) = 0;
  virtual absl::StatusOr<std::unique_ptr<PieceSource>> PiecesInside(
      const base::ArrayBox& box) const {
    (void)box;
    return std::unique_ptr<PieceSource>();
  }

  const VolumeInputInfo info_;
  std::stop_token stop_;

 private:
  absl::Status CheckBox(const base::ArrayBox& box) const;
  std::function<absl::Status()> verify_;
};

/// Opens the file or folder at `path`; links in it are resolved, and the result has to lie below
/// one of `options.roots`, if there are any. Errors as OpenBeneath, and those at the head of this
/// file.
absl::StatusOr<std::unique_ptr<VolumeInput>> OpenVolumeInput(const std::string& path,
                                                             const VolumeInputOptions& options);

/// The same for a file or folder that the caller has opened; `name` is for messages and is never
/// opened. A file that refers to other files is refused.
absl::StatusOr<std::unique_ptr<VolumeInput>> OpenVolumeInput(UniqueFd opened,
                                                             const std::string& name,
                                                             const VolumeInputOptions& options);

/// The format of a file by its first bytes (4096, or all that it has), or nothing: raw numbers have
/// no signature.
std::optional<InputFormat> RecogniseInput(absl::string_view head);

/// Cancelled once `stop` is requested.
absl::Status CheckStop(const std::stop_token& stop);

}  // namespace octavo::storage

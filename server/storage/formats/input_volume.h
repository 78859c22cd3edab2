#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/array/scatter.h"
#include "server/storage/direct/stored_pieces.h"
#include "server/storage/formats/stored_volume.h"
#include "server/storage/formats/volume_input.h"

namespace octavo::storage {

/// How an array of a file becomes a volume with the axes x, y and z. What the file says need not be
/// given; what it does not say has to be: nothing is guessed.
struct InputVolumeOptions {
  std::string field_prefix;  // "import." in errors about these options
  /// Names of the file's axes in the order of VolumeInputInfo::axes; empty, or "" for an axis: the
  /// file's own name.
  std::vector<std::string> axes;
  /// The index along each axis that is not x, y or z and has more than one sample, by its name.
  std::map<std::string, int64_t> select;
  /// Micrometres along "x", "y", "z", instead of the file's.
  std::map<std::string, double> spacing_um;
  /// Take a spacing that neither says as unknown (VolumeMeta::spacing_assumed). Else it is an
  /// error.
  bool allow_unknown_spacing = false;
  /// The order of the volume's axes, "yxz"; empty: that of the commit, or of the file.
  std::string order;
  /// Absent: the stored type, or f64 for 32-bit integers; other types have to be asked for.
  std::optional<DType> dtype;
  /// An array of numbers alone is wanted, no volume: of the stored type, or of this one. Every type
  /// but c128; `dtype` and `value_kind` are not used, and an unknown spacing is no error.
  struct Array {
    std::optional<ElementType> type;
  };
  std::optional<Array> array;
  /// Values of files with a slope and an intercept (VolumeInputInfo::slope_intercept).
  enum class Values : uint8_t {
    kStored,  // as stored; u8, i8 and u16 get the levels that say the same
    kScaled   // slope * stored + intercept, as f32, or f64 from types of 4 bytes and more
  } values = Values::kStored;
  /// A box of the volume, in its own axes; empty: all of it.
  std::vector<int64_t> start, count;
  std::string value_kind;  // "db", ...; for files that are no commits
};

/// A volume in a file, with metadata as a commit writes them.
class InputVolume final : public StoredVolume {
 public:
  /// InvalidArgument names the option that is missing or wrong.
  static absl::StatusOr<std::unique_ptr<InputVolume>> Make(std::unique_ptr<VolumeInput> input,
                                                           const InputVolumeOptions& options);

  const VolumeInputInfo& info() const { return input_->info(); }
  /// Of the elements that Read gives: that of meta().dtype, but for InputVolumeOptions::array,
  /// where meta().dtype is only a type of as many bytes.
  const ElementType& type() const { return plan_.type; }
  /// Possible mistakes of the options, a sentence each: what they change of what the file says.
  const std::vector<std::string>& doubts() const { return plan_.doubts; }
  /// Elements that Read has clipped to type() so far. Of a volume that was read once, front to
  /// back.
  const ClippedElements& clipped() const { return clipped_; }
  /// What was lost or noticed while it was read, a sentence each: numbers that were clipped, parts
  /// that no file has.
  std::vector<std::string> Losses() const;
  /// From now on a Read that is under way ends, with Cancelled, soon after `stop` is requested.
  void SetStop(std::stop_token stop) { input_->SetStop(std::move(stop)); }
  /// Most bytes that Read takes beside the caller's memory.
  int64_t read_memory_bytes() const { return read_memory_bytes_; }
  /// One caller at a time.
  absl::Status Read(int64_t y_begin, int64_t bscans, void* out) override;
  absl::Status Verify() const override { return input_->Verify(); }

  /// What a reader needs that brings the volume into a device by itself
  /// (server/storage/direct/device_reader.h).
  struct Direct {
    std::unique_ptr<PieceSource> source;
    int box_axis[3] = {-1, -1, -1};  // of the volume's axes among those of the file's box
    ScatterSpec spec;
  };
  /// Nothing where only Read can put the voxels together, or where numbers may be clipped, which
  /// Read counts. Valid as long as this volume.
  absl::StatusOr<std::optional<Direct>> OpenDirect() const;

 private:
  /// What Make works out.
  struct Plan {
    std::vector<int64_t> start;       // in the file, for each of its axes
    int file_axis[3] = {-1, -1, -1};  // of each axis of the volume; -1 = it has none
    bool reordered = false;
    double scale = 1, shift = 0;
    ElementType type;
    std::vector<std::string> doubts;
  };
  class Planner;
  InputVolume(std::unique_ptr<VolumeInput> input, VolumeMeta meta, Plan plan);
  absl::Status Load(int64_t first, int64_t count, char* out);

  const std::unique_ptr<VolumeInput> input_;
  const Plan plan_;
  const int64_t plane_;  // elements
  int64_t granule_ = 1;  // planes that are read together
  int64_t phase_ = 0;    // planes by which the first granule is shorter, so that chunks stay whole
  int64_t read_memory_bytes_ = 0;
  int64_t kept_ = -1;  // the granule in slab_
  std::vector<char> slab_, stored_, ordered_;
  ClippedElements clipped_;
};

}  // namespace octavo::storage

#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/dtype.h"
#include "server/storage/projections/projection_input.h"

// Projections of a scan in files that another program is still writing.
namespace octavo::storage {

class GrowingArray;

/// What is there of the frames of one kind.
struct GrowingFrames {
  bool there = false;              // the array or folder is there; else the rest says nothing
  std::string dataset;             // its name, for messages
  DType dtype = DType::kF32;       // as ProjectionInfo::dtype, of this array alone
  int64_t rows = 0, columns = 0;   // of a frame
  int64_t whole = 0;               // frames from the first on that are written
  int64_t extent = 0;              // that the array has now, written or not
  std::optional<int64_t> planned;  // the number that the array has for ever; nothing: it may grow
  std::string lacks;               // why frame `whole` does not count as written
  bool settles = false;            // frame `whole` is written once its values stay the same
};

/// Reads frames of a scan while it is written, each as soon as it is there as a whole, and never
/// what only stands for a frame that is still to come. Frames count in their order, without gaps. A
/// frame counts as written when two looks, one after the other, find the same evidence of it, and a
/// later frame has begun. While none has, its values must stay the same for a second, and it
/// counts as half written while some of its rows hold nothing but the fill value, and at least half
/// of the values of those rows are others in the frame before: a program may write a frame in
/// parts. If it goes on after that, Look says so. Evidence is:
///
///   HDF5   all its chunks are in the file, and end before the file does. Where a chunk holds
///   several frames, or space was taken
///          beforehand (contiguous data, early allocation), that tells nothing: then the frame is
///          written once a chunk behind its own is, or it does not consist of fill values alone.
///          The file is opened anew for each look: in SWMR mode if its writer has it so, else
///          without a lock.
///   Zarr   the files of all its chunks (shards) are there; of chunks of several frames as HDF5.
///   TIFF   the file of that name in a folder is there, has not changed between two looks, and can
///          be read to its end. Numbers in the names go on in the steps of the first two.
///
/// An angle counts as written if a later one is not the fill value. The last angle counts, too, if
/// it is not the fill value, or if it continues the step of the two before it.
///
/// Frames that were read must stay: the first one and the one that was read last of each kind are
/// read again every second, and Look says if they have changed, as in a file that is written anew
/// in its place. Not thread-safe. The class follows links wherever they lead: the caller may read
/// the files.
class GrowingProjections {
 public:
  virtual ~GrowingProjections();
  GrowingProjections(const GrowingProjections&) = delete;

  /// A scan at `path`, by the names of `options` as in OpenProjections; `roots` and positions are
  /// not used. Unavailable, with the reason, while the path is not there or does not tell what it
  /// will be. InvalidArgument for what cannot be followed: .npy, a single file of TIFF.
  static absl::StatusOr<std::unique_ptr<GrowingProjections>> Open(const std::string& path,
                                                                  const ProjectionOptions& options);

  /// Looks at the files anew. Unavailable, with the reason: they cannot be read now, which may
  /// change; what was found before stays. Other errors stay: InvalidArgument (BAD_PROJECTIONS) if
  /// the contents are not projections, or another scan has taken the place of this one; DataLoss;
  /// Unimplemented.
  absl::Status Look();

  const GrowingFrames& frames(FrameKind kind) const { return frames_[static_cast<size_t>(kind)]; }
  /// The angles that are written, from the first on, in radians.
  const std::vector<double>& angles_rad() const { return angles_; }
  /// The number of angles that there are for ever: given ones, or those of a dataset that cannot
  /// grow.
  std::optional<int64_t> planned_angles() const { return planned_angles_; }
  /// Where the angles come from, for messages; "" = nothing has them.
  const std::string& angles_dataset() const { return angles_dataset_; }
  /// Where the frames of a kind, and the angles, are looked for, for messages; "" = they can be
  /// nowhere.
  virtual std::string PlaceOf(FrameKind kind) const = 0;
  virtual std::string PlaceOfAngles() const = 0;

  /// Reads a frame that is whole, [row, column] of `dtype`: that of its array, or f32. Errors as
  /// ProjectionInput::Read.
  absl::Status Read(FrameKind kind, int64_t frame, DType dtype, char* out);

 protected:
  /// The angles as a look finds them.
  struct Angles {
    std::string dataset, unit;
    std::vector<double> values;  // as they stand there, written or not
    double fill = 0;
    bool fixed = false;  // their number does not change
  };

  GrowingProjections(std::string path, ProjectionOptions options);
  /// Opens the files anew and sets arrays_ (null = not there) and found_ (none: not there).
  virtual absl::Status Open() = 0;
  /// Whether frames or angles of the files count as written.
  bool HasTaken() const;
  /// Whether frames of a kind were read.
  bool HasRead(FrameKind kind) const { return read_[static_cast<size_t>(kind)][0].frame >= 0; }
  /// Forgets what the looks before found, of files that others have replaced.
  void Forget();
  /// Whether the fields are wanted, and the angles of the files.
  bool Wants(FrameKind kind) const;
  bool WantsAngles() const { return options_.angle_values.empty(); }

  const std::string path_;
  const ProjectionOptions options_;
  std::array<std::unique_ptr<GrowingArray>, 3> arrays_;  // by FrameKind
  std::optional<Angles> found_;

 private:
  using Clock = std::chrono::steady_clock;
  /// The last frame that has begun: it may be written in parts.
  struct Last {
    int64_t frame = -1;
    uint64_t sum = 0;
    Clock::time_point since;  // when its values were found first
  };

  /// A frame that was read.
  struct Kept {
    int64_t frame = -1;
    DType dtype = DType::kF32;
    uint64_t sum = 0;
  };

  absl::Status Follow(FrameKind kind);
  /// An error if a frame that was read has other values now.
  absl::Status CheckKept(FrameKind kind, const Kept& kept);
  /// Whether the last frame that has begun stays the same for long enough.
  bool Settled(FrameKind kind, int64_t frame);
  /// An error if a frame that was taken as the last one has been written further.
  absl::Status CheckTaken(FrameKind kind);
  absl::Status FollowAngles();

  std::array<GrowingFrames, 3> frames_;
  std::array<std::map<int64_t, uint64_t>, 3> evidence_;  // of frames that are not whole yet
  std::array<Last, 3> last_, taken_last_;                // by FrameKind
  std::array<std::array<Kept, 2>, 3> read_;              // the first one, and the last one
  Clock::time_point checked_;                            // when those were read again
  std::vector<double> before_;                           // values of the last look
  std::vector<double> angles_;
  std::optional<int64_t> planned_angles_;
  std::string angles_dataset_;
};

}  // namespace octavo::storage

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "server/source/attachable_ring.h"
#include "server/source/ring_memory.h"
#include "server/storage/projections/projection_input.h"

namespace octavo::source {

class ProjectionMemory;
class ProjectionPort;
struct ProjectionPushProgress;

/// A ring in memory that a program on this host and the server share, for the frames of a job whose
/// input is pushed projections: the program writes a frame into a slot and publishes it with its
/// sequence number, kind and angle; a thread of the ring gives it to the job's port, as a stream of
/// PushProjections does, and releases the slot. Each producer is a connection of the port. Trust is
/// that of RingPort: the ring reads each word of the producer once, checks it and uses the copy,
/// and disconnects a producer whose words cannot be; the frames that it took before count. The
/// pixels may be anything at any time. Thread-safe.
class ProjectionRing final : public AttachableRing {
 public:
  static constexpr int64_t kDefaultSlots = 8, kMostSlots = 1024;

  /// `slots`: 0 = kDefaultSlots. `port` must outlive End. `payer`: as of the port.
  /// InvalidArgument (slots; job: a frame is too large), ResourceExhausted (HOST_MEMORY).
  static absl::StatusOr<std::shared_ptr<ProjectionRing>> Open(ProjectionPort* port, int64_t slots,
                                                              ProjectionMemory* budget,
                                                              const std::string& payer);
  ~ProjectionRing() override;
  /// FailedPrecondition (JOB_STATE): what a producer is told that comes too late.
  static absl::Status WantsNoMore();

  // -- producers' side
  /// FailedPrecondition (RING_TAKEN, JOB_STATE), ResourceExhausted (HOST_MEMORY).
  absl::StatusOr<Attachment> Attach(Producer producer) override;
  /// The status that Attach would return now.
  absl::Status CanAttach();
  void Detach(int64_t connection) override;
  int64_t total_bytes() const override { return total_bytes_; }
  int64_t slots() const { return slots_; }

  // -- the port's side
  /// The job wants no more frames: a producer that waits is woken and told so. Frames that were
  /// published and not taken are left out. Waits for the frame that is being taken; afterwards the
  /// port is not used any more, and the memory is given back.
  void End();

 private:
  /// What the thread has to do, in the order in which the producers said it.
  struct Step {
    enum class What : uint8_t { kFrame, kEnd, kFail, kGone };
    What what = What::kFrame;
    int64_t client = 0;  // connection of the port
    // of a frame
    uint64_t block = 0, sequence = 0;
    storage::FrameKind kind = storage::FrameKind::kProjection;
    double angle_rad = 0;
    std::string why;  // of kFail
  };

  ProjectionRing(ProjectionPort* port, int64_t slots, std::shared_ptr<RingMemory> memory,
                 std::shared_ptr<void> reserved);
  /// Makes the memory of the next producer. Frames that wait are copied into it.
  absl::Status Renew() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Detaches a producer that has gone.
  void DetachGone();
  absl::Status CanAttachLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// The reason why the slot cannot be taken, or "".
  std::string Accept(uint64_t block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Break(const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run();
  /// `memory`: in which the frame lies.
  void Do(const Step& step, const RingMemory& memory);
  void TellProducer();
  /// Writes the server's page.
  void Tell(const ProjectionPushProgress& totals) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CutIfBroken();

  ProjectionPort& port_;  // until End
  const int64_t slots_, total_bytes_;
  Mutex mutex_;  // taken before those of the port
  // Of the last producer, or of the next; as long as the thread lives.
  std::shared_ptr<RingMemory> memory_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<RingMemory> taking_ ABSL_GUARDED_BY(mutex_);  // has the frame that is being taken
  std::shared_ptr<void> reserved_;
  bool open_ ABSL_GUARDED_BY(mutex_) = true, connected_ ABSL_GUARDED_BY(mutex_) = false;
  bool feeding_ ABSL_GUARDED_BY(mutex_) = false;  // a producer is attached, trusted, and goes on
  int64_t attachment_ ABSL_GUARDED_BY(mutex_) = 0, client_ ABSL_GUARDED_BY(mutex_) = 0;
  // Slots, counted from the beginning: examined; released to the producer.
  uint64_t seen_ ABSL_GUARDED_BY(mutex_) = 0, released_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t broken_ ABSL_GUARDED_BY(mutex_) = 0;  // producers that were cut off
  std::deque<Step> steps_ ABSL_GUARDED_BY(mutex_);
  Producer producer_ ABSL_GUARDED_BY(mutex_);  // without `cut`: none, or told already
  std::function<void()> cut_now_ ABSL_GUARDED_BY(mutex_);
  std::string news_ ABSL_GUARDED_BY(mutex_);  // for the log
  // What the producer was told last; of the thread.
  uint64_t told_released_ = 0;
  bool told_done_ = false;
  std::jthread thread_;  // the last member: it uses the rest
};

}  // namespace octavo::source

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "gpu/device/dtype.h"
#include "server/model/tomography_spec.h"
#include "server/source/projection_memory.h"
#include "server/storage/projections/projection_input.h"

// Projections that clients push while a tomography scan is running, and the job that reconstructs
// them.
namespace octavo::source {

class ProjectionRing;  // projection_ring.h

/// Rows of a frame from a client, in pieces of memory that must live only during the call.
struct PushedFrame {
  uint64_t sequence = 0;  // of the frame, counted over all kinds in the order of the scan
  storage::FrameKind kind = storage::FrameKind::kProjection;
  double angle_rad = 0;  // of a projection
  int64_t first_row = 0, rows = 0;
  absl::InlinedVector<std::pair<const char*, size_t>, 4>
      parts;  // together `rows` of PushedProjectionsSpec::row_bytes
};

/// All fields as in octavo.v1.ProjectionPushStatus.
struct ProjectionPushCounts {
  int64_t frames = 0, projections = 0, flats = 0, darks = 0;  // complete ones that arrived
  int64_t missing_frames = 0;  // that have not arrived, before the last one that did
  int64_t gaps = 0;            // runs of missing frames
  int64_t duplicate_frames = 0, out_of_range_frames = 0;
  // complete frames that the job does not take: numbered beyond its frames, or received after the
  // end
  int64_t surplus_frames = 0;
  int64_t connections = 0;  // since the start
  bool connected = false;   // at least one is open
};

struct ProjectionPushProgress {
  int64_t credit = 0;         // messages that the connection may have offered in all
  int64_t received = 0;       // messages that it has offered
  int64_t next_sequence = 0;  // the first frame that has not arrived
  std::vector<std::pair<int64_t, int64_t>>
      missing;        // first and count of the first 256 runs of frames that have not arrived
  bool done = false;  // the job wants no more frames, from any connection or from this one
  ProjectionPushCounts counts;
};

/// The state of a push, for its job.
struct ProjectionsSoFar {
  ProjectionPushCounts counts;
  int64_t in_order = 0;   // projections among the frames before the first one that has not arrived
  bool complete = false;  // no more frames will arrive: all are here, or the clients sent `end`
};

/// A part of a push: the frames up to one of its projections.
struct PushedPart {
  std::shared_ptr<storage::ProjectionInput> input;  // all fields and projections up to its last one
  // Of the projections from the first one asked for to the last one: the earliest and the latest
  // arrival, and the runs of frames between them that have not arrived: first, count.
  TimePoint begun, ended;
  std::vector<std::pair<int64_t, int64_t>> missing;
};

/// A complete frame in the memory of its port, where it stays unchanged as long as the port lives.
struct ArrivedFrame {
  storage::FrameKind kind = storage::FrameKind::kProjection;
  double angle_rad = 0;        // of a projection
  const char* data = nullptr;  // [rows, columns] of the push's dtype, or packed rows
};

/// Connects clients that push projections to the job that reconstructs them. The port places each
/// frame by its sequence number in host memory reserved for all frames, so frames may come in any
/// order, before the job runs, over any number of connections, and more than once. Packed rows stay
/// packed there. A frame that has arrived never changes. Thread-safe.
///
/// A job makes its port with Create when it is submitted, hands it out by JobWork::projection_port,
/// and when it runs:
///
///   for (int64_t seen = 0;;) {
///     OCTAVO_ASSIGN_OR_RETURN(const ProjectionsSoFar so_far, port->Wait(seen, 0.1, stop));
///     run.Step(so_far.counts.frames, NaN);
///     if (so_far.complete) break;
///     const auto news = port->Arrivals(seen, 1000);  // for previews
///     seen = so_far.counts.frames;
///   }
///   // From here on as from a file: the same storage::ProjectionInput.
///   OCTAVO_ASSIGN_OR_RETURN(auto input, port->Snapshot());
class ProjectionPort {
 public:
  /// Takes the memory. `payer`: whose share it and the ring take (ProjectionMemory::Claim).
  /// InvalidArgument names the field ("push.rows"), ResourceExhausted (HOST_MEMORY).
  static absl::StatusOr<std::shared_ptr<ProjectionPort>> Create(
      const model::PushedProjectionsSpec& spec, ProjectionMemory* memory, const Clock* clock,
      std::string payer = {});
  /// Only the checks of Create.
  static absl::Status Check(const model::PushedProjectionsSpec& spec);
  ~ProjectionPort();

  // -- clients' side. Any number of connections at once, each with its own credit; a frame may come
  // by any of them.
  /// `by_ring`: the slots of a ring are its credit, so that Offer asks for none.
  int64_t Connect(bool by_ring = false);
  /// `notify` is called (from any thread; must not block nor call anything here but Progress) when
  /// Progress of the connection has news.
  void OnProgress(int64_t connection, std::function<void()> notify);
  /// Copies the rows to their place, in the time of a memory copy. InvalidArgument (nothing is
  /// taken), ResourceExhausted (CREDIT_EXCEEDED). Rows with unusable numbers are counted, and the
  /// call returns OK.
  absl::Status Offer(int64_t connection, const PushedFrame& frame);
  /// This connection sends no more frames. The push ends with frames missing once at least one
  /// connection has declared its end, all open ones have, and for some seconds no connection has
  /// declared its end, broken off or connected (another client may be about to connect).
  absl::Status EndOfFrames(int64_t connection);
  /// Once this returns, `notify` of the connection is not called any more.
  void Disconnect(int64_t connection);
  /// Internal if it was disconnected.
  absl::StatusOr<ProjectionPushProgress> Progress(int64_t connection);
  /// The same of all connections together: without credit, received and missing.
  ProjectionPushProgress Totals();
  /// A client cannot go on, and says so: the job fails with `why`, unless it wants no more frames.
  void Fail(absl::Status why);
  /// The ring by which a program on this host may push, made by the first call and there until
  /// Close. `slots`: 0 = as it is, or the default. FailedPrecondition (JOB_STATE: the job takes no
  /// more frames), InvalidArgument (slots; job: a frame is too large for a ring),
  /// ResourceExhausted (HOST_MEMORY).
  absl::StatusOr<std::shared_ptr<ProjectionRing>> OpenRing(int64_t slots);
  const model::PushedProjectionsSpec& spec() const { return spec_; }  // defaults filled in

  // -- the job's side
  /// Waits until more than `seen_frames` frames are in, nothing more will come, or `at_most_s` have
  /// passed. Cancelled once `stop` is asked for; DeadlineExceeded (SOURCE_STALLED) when nothing
  /// came for idle_timeout_s while the job was waiting.
  absl::StatusOr<ProjectionsSoFar> Wait(int64_t seen_frames, double at_most_s,
                                        std::stop_token stop);
  /// The frames that have arrived, as an input: projections, flats and darks in the order of their
  /// sequence numbers, with their positions. The input does not change while more frames arrive,
  /// and keeps the memory alive. FailedPrecondition (NO_PROJECTIONS) while there is none.
  absl::StatusOr<std::shared_ptr<storage::ProjectionInput>> Snapshot();
  /// The same up to projection `end` - 1 of those that have arrived, in the order of their sequence
  /// numbers: the flats and darks that follow it are left out. Among ProjectionsSoFar::in_order
  /// projections the answer is always the same. `first`: of the projections that the caller uses.
  /// FailedPrecondition (NO_PROJECTIONS) if fewer have arrived.
  absl::StatusOr<PushedPart> SnapshotOf(int64_t first, int64_t end);
  /// The job waits again after some work: its time does not count as one without news.
  void WaitsAgain();
  /// At most `most` complete frames, in the order in which they became complete, without the first
  /// `seen` ones.
  std::vector<ArrivedFrame> Arrivals(int64_t seen, int64_t most);
  /// Runs of frames that have not arrived: first, count.
  std::vector<std::pair<int64_t, int64_t>> Missing();
  /// The port takes no more frames and sends `done` to the clients. The job's work calls this when
  /// it is destroyed.
  void Close();

 private:
  struct Frame {
    storage::FrameKind kind = storage::FrameKind::kProjection;
    bool in = false, busy = false;  // busy: rows are being copied
    int64_t next_row = 0;
    double angle_rad = 0;
    TimePoint arrived;
  };
  ProjectionPort(const model::PushedProjectionsSpec& spec, std::shared_ptr<char> memory,
                 ProjectionMemory* budget, const Clock* clock, std::string payer);
  struct Connection {
    int64_t received = 0, told_credit = 0;
    bool by_ring = false;
    bool ended = false;  // the client sent `end`
  };
  absl::StatusOr<Connection*> Find(int64_t connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Ends the push if it may end now. Else returns the remaining seconds of grace, or -1 if the end
  /// does not depend on time.
  double EndIfAllSaidSo() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckFrame(const PushedFrame& frame) const;
  bool Done() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return closed_ || ended_ || counts_.frames == spec_.frames;
  }
  void Arrived(int64_t sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ProjectionPushProgress TotalsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  storage::ProjectionInfo InfoOfNone() const;
  void Notify();
  void EndRing();

  const model::PushedProjectionsSpec spec_;
  const std::shared_ptr<char> memory_;  // frames of spec_.frame_bytes(), one after the other
  ProjectionMemory* const budget_;
  const std::string payer_;
  const Clock* const clock_;
  Mutex mutex_;
  CondVar cv_;
  std::vector<Frame> frames_ ABSL_GUARDED_BY(mutex_);
  std::vector<int64_t> arrivals_ ABSL_GUARDED_BY(mutex_);  // sequences of complete frames
  /// Runs of incomplete frames: first → count.
  std::map<int64_t, int64_t> missing_ ABSL_GUARDED_BY(mutex_);
  int64_t last_ ABSL_GUARDED_BY(mutex_) = -1;     // highest sequence that has arrived
  int64_t whole_ ABSL_GUARDED_BY(mutex_) = 0;     // frames before the first that has not arrived
  int64_t in_order_ ABSL_GUARDED_BY(mutex_) = 0;  // projections among them
  std::map<int64_t, Connection> connections_ ABSL_GUARDED_BY(mutex_);  // open ones
  bool anyone_ended_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t moved_ns_ ABSL_GUARDED_BY(mutex_) =
      0;  // when a connection last began, sent `end`, or closed
  bool ended_ ABSL_GUARDED_BY(mutex_) = false, closed_ ABSL_GUARDED_BY(mutex_) = false,
              waited_ ABSL_GUARDED_BY(mutex_) = false;
  bool connect_is_news_ ABSL_GUARDED_BY(mutex_) = true;  // called once for each frame that arrived
  int64_t news_ns_ ABSL_GUARDED_BY(mutex_) =
      0;  // when a frame, a client or an end last arrived, or when the job began to wait
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);  // a client's own error
  ProjectionPushCounts counts_ ABSL_GUARDED_BY(mutex_);
  Mutex notify_mutex_;  // held while notify runs, so that Disconnect can promise silence
  std::map<int64_t, std::function<void()>> notify_ ABSL_GUARDED_BY(notify_mutex_);  // by connection
  Mutex ring_mutex_;  // held while a ring is made; taken before the others
  std::shared_ptr<ProjectionRing> ring_ ABSL_GUARDED_BY(ring_mutex_);  // uses the rest
};

}  // namespace octavo::source

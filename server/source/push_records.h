#pragma once

#include <cstdint>
#include <deque>
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
#include "server/source/source.h"
#include "server/storage/formats/record_doubts.h"

namespace octavo::source {

/// Records from a client, in pieces of memory that `owner` keeps alive.
struct PushBlock {
  uint64_t first_record = 0;  // counted from the start of the scan
  int64_t records = 0;
  absl::InlinedVector<std::pair<const char*, size_t>, 4>
      parts;  // together [records, S] of raw_type
  std::shared_ptr<const void> owner;
  std::vector<SourceMark> marks;
};

struct PushProgress {
  int64_t credit = 0;       // blocks that the connection may have offered in all
  int64_t received = 0;     // blocks that it has offered
  int64_t next_record = 0;  // records before it were accepted or are given up
  bool done = false;        // the scan wants no more records
  model::SourceCounts counts;
};

/// The scan's requirements for pushed records.
struct PushLimits {
  int64_t record_bytes = 0;
  int64_t block_records = 0;   // most records of a block
  int64_t credit_blocks = 4;   // blocks that may wait in the port
  double idle_timeout_s = 60;  // longest wait for records; <= 0 = for ever
  // The declared form for checking the first records; without samples they are not checked.
  storage::RecordForm form;
};

/// Connects clients that push records to the scan's acquisition thread: a queue of at most
/// credit_blocks blocks. The port never waits for a client, and its credit never exceeds the room.
/// It counts gaps and drops unusable records, so that a record is placed by its number or not at
/// all. Thread-safe.
class PushPort {
 public:
  PushPort(const PushLimits& limits, const Clock* clock) : limits_(limits), clock_(clock) {}

  // -- clients' side
  /// Opens a new connection, which replaces the earlier one.
  int64_t Connect();
  /// `notify` is called (from any thread; must not block nor call anything here but Progress) when
  /// Progress of the connection has news.
  void OnProgress(int64_t connection, std::function<void()> notify);
  /// InvalidArgument (the block is not taken), ResourceExhausted (CREDIT_EXCEEDED), Aborted
  /// (REPLACED). Blocks with unusable numbers are counted, and the call returns OK.
  absl::Status Offer(int64_t connection, PushBlock block);
  /// Markers that come without records; they need no credit. Errors as of Offer.
  absl::Status Mark(int64_t connection, std::vector<SourceMark> marks);
  /// No more records will arrive.
  absl::Status EndOfRecords(int64_t connection);
  /// Once this returns, `notify` of the connection is not called any more.
  void Disconnect(int64_t connection);
  /// Aborted (REPLACED) if a newer connection took over.
  absl::StatusOr<PushProgress> Progress(int64_t connection);
  const PushLimits& limits() const { return limits_; }
  int64_t total_records();

  // -- the source's side
  void Want(int64_t total_records);
  void OnNews(std::function<void(const std::string&)> tell);
  /// The port calls `tell` with possible mistakes, on the thread that finds them, also after Close:
  /// the form of the first records, records beyond the end of the scan or outside of it, records
  /// that come after later ones. Null: no calls from here on.
  void OnDoubt(std::function<void(const std::string&)> tell);
  /// As Source::Next. DeadlineExceeded (SOURCE_STALLED) if no records came for too long.
  absl::StatusOr<SourceBlock> Next(char* slot, int64_t max_records, std::stop_token stop);
  std::vector<SourceMark> TakeMarks(int64_t before_record);
  model::SourceCounts Counts();
  /// The port takes no more records. Do not call while Next runs.
  void Close();

 private:
  struct Waiting {
    PushBlock block;     // without the part that was already used
    int64_t offset = 0;  // records used
    TimePoint arrived;
  };
  absl::Status CheckConnection(int64_t connection) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckMarks(const PushBlock& block) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t RecordLimit() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Whether it contains records beyond the end of the scan.
  bool HasSurplus(const PushBlock& block) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string DoubtNumbers(const PushBlock& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountLate(int64_t first, int64_t end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Look(const PushBlock* block);
  void Doubt(const std::string& text);
  void Accept(PushBlock block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WaitForRecords(MutexLock& lock, const std::stop_token& stop)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t Copy(Waiting& waiting, char* slot, int64_t records) const;
  void Notify();
  void Tell(const std::string& news);

  const PushLimits limits_;
  const Clock* const clock_;
  Mutex mutex_;
  CondVar cv_;
  Waiting current_;  // the block that the source copies at present
  std::deque<Waiting> queue_ ABSL_GUARDED_BY(mutex_);
  std::multimap<int64_t, SourceMark> marks_
      ABSL_GUARDED_BY(mutex_);  // markers that wait for their record, by record
  int64_t total_records_ ABSL_GUARDED_BY(mutex_) = 0, next_record_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t connection_ ABSL_GUARDED_BY(mutex_) = 0, received_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false, closed_ ABSL_GUARDED_BY(mutex_) = false;
  model::SourceCounts counts_ ABSL_GUARDED_BY(mutex_);
  Mutex notify_mutex_;  // held while notify runs, so that Disconnect can promise silence
  int64_t notify_connection_ ABSL_GUARDED_BY(notify_mutex_) = 0;
  std::function<void()> notify_ ABSL_GUARDED_BY(notify_mutex_);
  Mutex news_mutex_;  // held while news_ runs, so that Close can promise silence
  std::function<void(const std::string&)> news_ ABSL_GUARDED_BY(news_mutex_);
  std::vector<std::pair<int64_t, int64_t>> given_up_
      ABSL_GUARDED_BY(mutex_);  // the first kMostGaps gaps as [first, end)
  bool outside_told_ ABSL_GUARDED_BY(mutex_) = false, late_told_ ABSL_GUARDED_BY(mutex_) = false;
  Mutex doubt_mutex_;  // held while doubt_ runs
  std::function<void(const std::string&)> doubt_ ABSL_GUARDED_BY(doubt_mutex_);
  Mutex look_mutex_;
  std::string look_ ABSL_GUARDED_BY(look_mutex_);  // examines the first records
  bool looked_ ABSL_GUARDED_BY(look_mutex_) = false;
};

}  // namespace octavo::source

#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "server/model/frame.h"
#include "server/processing/record_choice.h"
#include "server/processing/single_ascan.h"
#include "server/publish/publisher.h"

namespace octavo::scan {

/// Copied records, and the topics whose frames RecordFrames makes of them.
struct RecordCopy {
  std::shared_ptr<const processing::RecordChoice> choice;
  processing::RecordUnit unit;
  std::vector<publish::TopicKey> keys;  // of SPECTRUM and ASCAN
  std::unique_ptr<uint8_t[]> data;      // records unit.need_first to unit.need_end
  int64_t capacity = 0, size = 0;       // bytes
  // The volume of unit.record. Empty until that record has come, or if the scan drops the volume.
  std::string volume;
  model::ValueScale scale;
  double display_lo = 0, display_hi = 255;
  TimePoint acquired;
};

/// Makes frames of spectra and A-scans from copied records, on the host, in a thread of low
/// priority. If the thread falls behind, the newest copy for the same topics replaces the older
/// one, whose frames count as lost.
class RecordFrames {
 public:
  /// The most bytes of all copies: of those that RecordTap fills, those that wait for the thread,
  /// and those that are free for later records.
  static constexpr int64_t kMostBytes = int64_t{64} << 20;

  RecordFrames(std::string scan, publish::Publisher* publisher)
      : scan_(std::move(scan)), publisher_(publisher) {}

  // -- compute thread
  /// A copy with room for `bytes`; null if kMostBytes are in use.
  std::unique_ptr<RecordCopy> NewCopy(int64_t bytes);
  /// Takes a copy that is complete, and makes its frames later.
  void Offer(std::unique_ptr<RecordCopy> copy);
  /// Takes a copy that stays incomplete; its frames count as lost, for the reason `why`.
  void Drop(std::unique_ptr<RecordCopy> copy, publish::Loss why);
  /// Takes a copy that no subscriber wants any more.
  void TakeBack(std::unique_ptr<RecordCopy> copy);

  /// The thread's body: makes frames until Close was called and nothing waits.
  void Run();
  void Close();

 private:
  std::unique_ptr<RecordCopy> Take();
  void Make(const RecordCopy& copy);
  absl::StatusOr<model::Frame> MakeFrame(const RecordCopy& copy, const publish::TopicKey& key);
  void Lose(const RecordCopy& copy, publish::Loss why);

  const std::string scan_;
  publish::Publisher* const publisher_;
  // Used by the thread alone.
  std::shared_ptr<const processing::RecordChoice> choice_;
  std::unique_ptr<processing::SingleAscan> single_;
  Mutex mutex_;  // released before the publisher's is taken
  CondVar cv_;
  std::deque<std::unique_ptr<RecordCopy>> waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<RecordCopy>> free_ ABSL_GUARDED_BY(mutex_);
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of all copies
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace octavo::scan

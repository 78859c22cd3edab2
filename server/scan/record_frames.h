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

/// Records that were copied for subscribers, and what they are for.
struct RecordCopy {
  std::shared_ptr<const processing::RecordChoice> choice;
  processing::RecordUnit unit;
  std::vector<publish::TopicKey> keys;  // of SPECTRUM and ASCAN
  std::unique_ptr<uint8_t[]> data;      // records unit.need_first to unit.need_end
  int64_t capacity = 0, size = 0;       // bytes
  // The volume of unit.record. Empty until that record has come, or if the volume is dropped.
  std::string volume;
  model::ValueScale scale;
  double display_lo = 0, display_hi = 255;
  TimePoint acquired;
};

/// Makes frames of spectra and A-scans of copied records on a thread of low priority, on the host
/// alone. If it falls behind, the newest copy for the same topics takes the place of the older one,
/// which counts as lost.
class RecordFrames {
 public:
  /// Most bytes of copies: those that are filled, that wait and that are kept for later ones.
  static constexpr int64_t kMostBytes = int64_t{64} << 20;

  RecordFrames(std::string scan, publish::Publisher* publisher)
      : scan_(std::move(scan)), publisher_(publisher) {}

  // -- compute thread
  /// A copy with room for `bytes`; null if kMostBytes are in use.
  std::unique_ptr<RecordCopy> NewCopy(int64_t bytes);
  /// The copy is complete.
  void Offer(std::unique_ptr<RecordCopy> copy);
  /// The copy will not be completed: its frames are lost.
  void Drop(std::unique_ptr<RecordCopy> copy, publish::Loss why);
  /// The copy is not wanted any more.
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

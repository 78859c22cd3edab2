#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

#include "gpu/base/mutex.h"
#include "gpu/device/device.h"
#include "server/scan/completion.h"
#include "server/scan/stage_clock.h"

namespace octavo::scan {

/// What is enqueued on the device, in order: a circle of completions, each behind an event. The
/// compute thread takes an event, enqueues what is to be written for it, and pushes; the retire
/// thread takes the completions in the same order, waits for the event and recycles it. There are
/// enough events for all blocks and slots, so the compute thread hardly ever waits for one. Nothing
/// is allocated after Allocate.
class CompletionQueue {
 public:
  /// For so many completions at once, on a device that `lanes` devices work for; with
  /// `non_finite` there are words for the counts of records that are not finite.
  absl::Status Allocate(Device& device, int64_t events, size_t lanes, bool non_finite);

  // -- compute thread
  /// Waits for a free event.
  int TakeEvent();
  /// Page-locked words that travel with an event: what a volume is sealed with, memory::kSealWords
  /// of each lane, and the digest of its raw records.
  uint64_t* SealWords(int event) const;
  uint64_t* RawDigestWord(int event) const { return SealWords(event) + seal_words_ - 1; }
  /// Records that are not finite so far, a word of each lane; null where nobody counts them.
  uint64_t* NonFiniteWords(int event) const;
  /// Stamps of blocks and volumes: each kind has one more than there are events.
  StageClock& stages() { return stages_; }
  /// Marks the present end of `stream` with the completion's event, and hands it over.
  absl::Status Push(Completion item, StreamRef stream);
  /// Nothing more will be pushed.
  void Close();

  // -- retire thread
  /// Waits for the next completion. False: closed, and all are taken.
  bool Next(Completion* item);
  /// Waits until the device has passed the completion's event; the first error of the work before.
  absl::Status Wait(const Completion& item);
  /// The event of a completion that is done with may be taken again.
  void Recycle(const Completion& item);

  // -- any thread
  /// Complete volumes that were pushed and not recycled.
  int Volumes();

  /// When all are through.
  void Free();

 private:
  size_t lanes_ = 1, seal_words_ = 0;  // seal_words_ of an event
  std::vector<Event> events_;
  StageClock stages_;
  PinnedBuffer digests_;     // u64 [event, seal_words_]
  PinnedBuffer non_finite_;  // u64 [event, lane]; empty: not counted

  Mutex mutex_;
  CondVar cv_;
  std::vector<Completion> circle_ ABSL_GUARDED_BY(mutex_);  // one for each event
  size_t first_ ABSL_GUARDED_BY(mutex_) = 0, count_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<int> free_events_ ABSL_GUARDED_BY(mutex_);
  int volumes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace octavo::scan

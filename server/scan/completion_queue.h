#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "gpu/device/device.h"
#include "server/scan/completion.h"
#include "server/scan/stage_clock.h"

namespace octavo::scan {

/// The work enqueued on the device, in order: a circular buffer of completions, each with an event.
/// The compute thread takes an event, enqueues the work that it covers, and pushes the completion.
/// The retire thread takes the completions in the same order, waits for each event and recycles it.
/// There are enough events for all blocks and slots, so the compute thread hardly ever waits for
/// one. Only Allocate allocates memory.
class CompletionQueue {
 public:
  /// Makes room for `events` completions in flight, on a home device that `lanes` devices feed.
  /// With `non_finite`, also allocates words for the counts of non-finite records.
  absl::Status Allocate(Device& device, int64_t events, size_t lanes, bool non_finite);

  // -- compute thread
  /// Waits for a free event.
  int TakeEvent();
  /// Page-locked words of an event: memory::kSealWords seal words for each lane, then the digest of
  /// the volume's raw records.
  uint64_t* SealWords(int event) const;
  uint64_t* RawDigestWord(int event) const { return SealWords(event) + seal_words_ - 1; }
  /// Running counts of non-finite records, one word for each lane; null if they are not counted.
  uint64_t* NonFiniteWords(int event) const;
  /// Stamps of blocks and volumes; each kind has one more than there are events.
  StageClock& stages() { return stages_; }
  /// Marks that the device has all records of a volume, here on `stream`. Returns the mark, for
  /// Completion::last_block.
  absl::StatusOr<int> MarkLastBlock(StreamRef stream);
  /// Records the completion's event at the current end of `stream` and queues the completion.
  absl::Status Push(Completion item, StreamRef stream);
  /// Nothing more will be pushed.
  void Close();

  // -- retire thread
  /// Waits for the next completion. False once the queue is closed and empty.
  bool Next(Completion* item);
  /// Waits until the device has passed the completion's event. Returns the first error of the work
  /// before it. A thread needs longer to wake up than a device to finish a volume. So for a volume
  /// the thread is woken by the mark of its last block, and then looks for a while without
  /// sleeping: unless the device is behind, so that another volume waits or the last looks were in
  /// vain.
  absl::Status Wait(const Completion& item);
  /// Returns the event of a finished completion for reuse.
  void Recycle(const Completion& item);

  // -- any thread
  /// Complete volumes that were pushed and are not recycled yet.
  int Volumes();

  /// Frees what was allocated. Call after all completions are recycled.
  void Free();

 private:
  size_t lanes_ = 1, seal_words_ = 0;  // seal_words_: per event
  std::vector<Event> events_;
  std::vector<Event> last_blocks_;  // one more than events_, used in turn; empty: the host's device
  size_t next_last_block_ = 0;      // compute thread
  int looks_left_out_ = 0;          // retire thread: for so many waits more
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

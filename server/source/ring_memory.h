#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "gpu/base/unique_fd.h"
#include "gpu/device/dtype.h"
#include "gpu/math/raw.h"
#include "server/memory/shared_pages.h"
#include "server/source/ring_layout.h"

namespace octavo::source {

/// The memory of a ring and its words, whatever the slots hold. The server writes its own pages and
/// never reads them back; it reads each of the producer's words once. Its user guards it by a lock;
/// the bells may be rung, and waited for, by any thread while the memory is there.
class RingMemory {
 public:
  RingMemory() = default;
  /// `facts` without magic, version and what the layout says: total_bytes, both offsets,
  /// slot_bytes. ResourceExhausted.
  static absl::StatusOr<RingMemory> Create(RingFacts facts);
  /// For Create: memory like this one.
  const RingFacts& facts() const { return facts_; }
  static int64_t DataOffset(int64_t slots);
  static int64_t TotalBytes(int64_t slots, int64_t slot_bytes) {
    return DataOffset(slots) + slots * slot_bytes;
  }

  char* data() const { return pages_.data(); }
  int64_t bytes() const { return pages_.bytes(); }
  /// For a producer. ResourceExhausted.
  absl::StatusOr<UniqueFd> NewDescriptor() const;

  void SetTotalRecords(int64_t total_records);
  RingServerPage* server() const {
    return reinterpret_cast<RingServerPage*>(data() + kRingServerOffset);
  }
  RingProducerPage* producer() const {
    return reinterpret_cast<RingProducerPage*>(data() + kRingProducerOffset);
  }
  const RingDescriptor& descriptor(int64_t slot) const {
    return reinterpret_cast<const RingDescriptor*>(data() + kRingDescriptorOffset)[slot];
  }

  /// A producer begins where the one before stopped, and finds the facts as they are, whatever that
  /// one has written.
  void BeginProducer(int64_t attachment, uint64_t published, int64_t next_record) const;
  /// A producer that still maps this memory learns that it has been replaced.
  void Supersede(int64_t attachment) const;
  /// Gives the slots back to the system, although a producer may still map them. Nobody here may
  /// read them any more.
  void DropSlots() const { pages_.DropPages(DataOffset(facts_.slots)); }
  /// Copies slot `slot` of another memory of these facts.
  void CopySlot(const RingMemory& from, int64_t slot) const;
  /// Tells the producer why it is cut off.
  void Refuse(const std::string& why) const;
  /// The producer's own error, as far as it can be printed.
  std::string ProducersError() const;

  /// Wakes the producer: the condition that it may wait for has changed.
  void WakeProducer() const;
  /// Wakes the server's own wait, because other threads cause events, too.
  void WakeServer() const;
  /// Sleeps until the server's bell is no longer `bell`, at most `longest`; not at all if the
  /// producer has published another number of slots than `seen` (nothing = that does not matter).
  /// `alarms` counts the waits in a row that were short: a producer that rings without need makes
  /// the server sleep a little.
  void Sleep(uint32_t bell, std::optional<uint64_t> seen, std::chrono::nanoseconds longest,
             int* alarms) const;

 private:
  memory::SharedPages pages_;
  RingFacts facts_{};
};

/// octavo.v1.RawType of the samples as they lie in a slot: RingFacts::raw_type.
uint32_t RawTypeNumber(DType dtype, math::Packing packing);

/// No wait for a bell is longer than this, because a producer may forget to ring, or be killed
/// between publishing and ringing.
inline constexpr std::chrono::milliseconds kLongestRingWait(50);

}  // namespace octavo::source

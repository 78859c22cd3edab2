#include "server/source/ring_memory.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/source/ring_words.h"

namespace octavo::source {
namespace {

// After this many false rings in a row, the server ignores the bell for a while.
constexpr int kFalseAlarms = 16;

}  // namespace

int64_t RingMemory::DataOffset(int64_t slots) {
  const int64_t end = kRingDescriptorOffset + slots * static_cast<int64_t>(sizeof(RingDescriptor));
  return (end + kRingPage - 1) / kRingPage * kRingPage;
}

absl::StatusOr<RingMemory> RingMemory::Create(RingFacts facts) {
  facts.magic = kRingMagic;
  facts.version = kRingVersion;
  facts.slot_bytes = uint64_t{facts.block_records} * facts.record_bytes;
  facts.descriptor_offset = kRingDescriptorOffset;
  facts.data_offset = static_cast<uint64_t>(DataOffset(facts.slots));
  const int64_t bytes = TotalBytes(facts.slots, static_cast<int64_t>(facts.slot_bytes));
  facts.total_bytes = static_cast<uint64_t>(bytes);
  RingMemory memory;
  OCTAVO_ASSIGN_OR_RETURN(memory.pages_, memory::SharedPages::Create("octavo-ring", bytes));
  memory.facts_ = facts;
  std::memcpy(memory.data(), &facts, sizeof facts);
  return memory;
}

void RingMemory::SetTotalRecords(int64_t total_records) {
  facts_.total_records = static_cast<uint64_t>(total_records);
  Store(reinterpret_cast<RingFacts*>(data())->total_records, facts_.total_records);
}

absl::StatusOr<UniqueFd> RingMemory::NewDescriptor() const {
  UniqueFd fd(::fcntl(pages_.fd(), F_DUPFD_CLOEXEC, 3));
  if (!fd)
    return absl::ResourceExhaustedError(
        absl::StrCat("no descriptor for the ring: ", std::strerror(errno)));
  return fd;
}

void RingMemory::BeginProducer(int64_t attachment, uint64_t published, int64_t next_record) const {
  std::memcpy(data(), &facts_, sizeof facts_);
  RingProducerPage& page = *producer();
  Store(page.published, published);
  StoreInt(page.state, static_cast<int64_t>(RingProducerState::kFeeding));
  Store(page.waits, uint32_t{0});
  StoreInt(page.next_record, next_record);
  Store(page.overruns, uint64_t{0});
  Store(page.overrun_records, uint64_t{0});
  Store(page.error[0], '\0');
  Store(server()->error_code, uint32_t{0});
  Store(server()->error[0], '\0');
  StoreInt(server()->attachment, attachment);
}

void RingMemory::Supersede(int64_t attachment) const {
  StoreInt(server()->attachment, attachment);
  WakeProducer();
}

void RingMemory::CopySlot(const RingMemory& from, int64_t slot) const {
  const auto bytes = static_cast<int64_t>(facts_.slot_bytes),
             at = DataOffset(facts_.slots) + slot * bytes;
  std::memcpy(data() + at, from.data() + at, static_cast<size_t>(bytes));
}

void RingMemory::Refuse(const std::string& why) const {
  for (size_t i = 0; i < kRingText; ++i)
    Store(server()->error[i], i < why.size() && i + 1 < kRingText ? why[i] : '\0');
  StoreInt(server()->error_code, static_cast<int64_t>(absl::StatusCode::kInvalidArgument));
}

std::string RingMemory::ProducersError() const {
  std::string out;
  for (size_t i = 0; i + 1 < kRingText; ++i) {
    const char c = Load(producer()->error[i]);
    if (c == '\0') break;
    out += c >= 32 && c < 127 ? c : '?';
  }
  return out;
}

void RingMemory::WakeProducer() const {
  RingServerPage& page = *server();
  std::atomic_ref<uint32_t>(page.bell).fetch_add(1);
  if (std::atomic_ref<uint32_t>(producer()->waits).load() != 0) FutexWake(page.bell);
}

void RingMemory::WakeServer() const {
  uint32_t& bell = producer()->bell;
  std::atomic_ref<uint32_t>(bell).fetch_add(1);
  FutexWake(bell);
}

void RingMemory::Sleep(uint32_t bell, std::optional<uint64_t> seen,
                       std::chrono::nanoseconds longest, int* alarms) const {
  RingProducerPage& page = *producer();
  std::atomic_ref<uint32_t>(server()->waits).store(1);
  // Either the producer sees that the server waits, or the server sees the published slot.
  if (seen.has_value() && std::atomic_ref<uint64_t>(page.published).load() != *seen) {
    std::atomic_ref<uint32_t>(server()->waits).store(0);
    return;
  }
  const auto before = std::chrono::steady_clock::now();
  FutexWait(page.bell, bell, longest);
  std::atomic_ref<uint32_t>(server()->waits).store(0);
  const bool at_once = std::chrono::steady_clock::now() - before < std::chrono::microseconds(50);
  *alarms = at_once ? *alarms + 1 : 0;
  if (*alarms > kFalseAlarms) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

uint32_t RawTypeNumber(DType dtype, math::Packing packing) {
  switch (packing) {
    case math::Packing::kLowFirst12: return 5;
    case math::Packing::kHighFirst12: return 6;
    case math::Packing::kNone: break;
  }
  switch (dtype) {
    case DType::kU8: return 1;
    case DType::kI16: return 3;
    case DType::kF32: return 4;
    default: return 2;
  }
}

}  // namespace octavo::source

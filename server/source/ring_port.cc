#include "server/source/ring_port.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "gpu/device/pinned_registration.h"
#include "server/source/ring_words.h"

namespace octavo::source {
namespace {

using Steady = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
// Memory of former producers is kept only while a device reads blocks of it.
constexpr size_t kMostFormer = 4;

}  // namespace

RingPort::RingPort(const RingLimits& limits, const Clock* clock)
    : limits_(limits),
      clock_(clock),
      queue_(static_cast<size_t>(std::max<int64_t>(limits.slots, 1))) {
  MutexLock lock(mutex_);
  counts_.ring = true;
}

absl::Status RingPort::OpenMemory(Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(
      std::shared_ptr<Memory> memory,
      NewMemory({.flags = limits_.producer_waits ? kRingMayWait : 0,
                 .slots = static_cast<uint32_t>(limits_.slots),
                 .block_records = static_cast<uint32_t>(limits_.block_records),
                 .record_bytes = static_cast<uint32_t>(limits_.record_bytes),
                 .samples_per_record = static_cast<uint32_t>(limits_.samples_per_record),
                 .raw_type = limits_.raw_type,
                 .channels = static_cast<uint32_t>(limits_.channels),
                 .total_records = 0},
                device));
  MutexLock lock(mutex_);
  memory_ = std::move(memory);
  memory_->ring.SetTotalRecords(total_records_);
  device_ = &device;
  open_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<RingPort::Memory>> RingPort::NewMemory(const RingFacts& facts,
                                                                      Device& device) {
  auto memory = std::make_shared<Memory>();
  OCTAVO_ASSIGN_OR_RETURN(memory->ring, RingMemory::Create(facts));
  OCTAVO_ASSIGN_OR_RETURN(memory->locked,
                          RegisterPinned(device, memory->ring.data(), memory->ring.bytes()));
  return memory;
}

void RingPort::FreeSlots(const std::shared_ptr<Memory>& former) {
  former->locked = PinnedBuffer();
  former->ring.DropSlots();
}

absl::StatusOr<std::shared_ptr<RingPort::Memory>> RingPort::Renew(
    const std::shared_ptr<Memory>& former, bool idle, const RingFacts& facts, Device& device) {
  // First, so that the host need not have room for two.
  if (idle) FreeSlots(former);
  auto fresh = NewMemory(facts, device);
  if (fresh.ok()) return fresh;
  return WithInfo(Annotate(fresh.status(), "memory for another producer of this ring"),
                  {.reason = Reason::kHostMemory,
                   .field = "scan",
                   .numbers = {{"wanted", absl::StrCat(limits_.total_bytes())}}});
}

void RingPort::Swap(std::shared_ptr<Memory> fresh) {
  for (size_t i = 0; i < count_; ++i) {
    const Waiting& waiting = queue_[(first_ + i) % queue_.size()];
    fresh->ring.CopySlot(memory_->ring, waiting.slot);
  }
  fresh->ring.SetTotalRecords(total_records_);
  memory_.swap(fresh);
  fresh->ring.Supersede(connection_ + 1);
  fresh->ring.WakeServer();  // Lend may sleep by its bell
  former_.emplace_back(lent_, std::move(fresh));
}

std::vector<std::shared_ptr<RingPort::Memory>> RingPort::Unread() {
  std::vector<std::shared_ptr<Memory>> unread;
  std::erase_if(former_, [&](auto& former) {
    if (former.first > returned_) return false;
    unread.push_back(std::move(former.second));
    return true;
  });
  return unread;
}

void RingPort::Want(int64_t total_records) {
  MutexLock lock(mutex_);
  total_records_ = total_records;
  if (open_) memory_->ring.SetTotalRecords(total_records);
}

int64_t RingPort::total_records() {
  MutexLock lock(mutex_);
  return total_records_;
}

absl::Status RingPort::TakesMore() const {
  if (open_ && !closed_ && !ended_ && failed_.ok()) return absl::OkStatus();
  return WithInfo(absl::FailedPreconditionError("the scan takes no more records"),
                  {.reason = Reason::kScanState, .field = "scan", .numbers = {}});
}

absl::Status RingPort::CanAttachLocked() const {
  OCTAVO_RETURN_IF_ERROR(TakesMore());
  if (counts_.connected || renewing_) {
    return WithInfo(absl::FailedPreconditionError(
                        "a producer is attached to this ring; another one may be when it has gone"),
                    {.reason = Reason::kRingTaken,
                     .field = "scan",
                     .numbers = {{"connection", absl::StrCat(connection_)}}});
  }
  return absl::OkStatus();
}

absl::Status RingPort::CanAttach() {
  DetachGone();
  MutexLock lock(mutex_);
  return CanAttachLocked();
}

absl::StatusOr<RingPort::Attachment> RingPort::Attach(Producer producer) {
  DetachGone();
  OCTAVO_ASSIGN_OR_RETURN(Attachment attached, AttachInside(std::move(producer)));
  RingServer();
  Tell(absl::StrCat("producer ", attached.connection, " attached"));
  return attached;
}

absl::StatusOr<RingPort::Attachment> RingPort::AttachInside(Producer producer) {
  Attachment attached;
  std::shared_ptr<Memory> former;
  std::vector<std::shared_ptr<Memory>> unread;
  bool idle = false;
  RingFacts facts{};
  Device* device = nullptr;
  {
    MutexLock lock(mutex_);
    OCTAVO_RETURN_IF_ERROR(CanAttachLocked());
    unread = Unread();
    if (connection_ > 0 && former_.size() < kMostFormer) former = memory_;
    idle = count_ == 0 && returned_ == lent_;
    facts = memory_->ring.facts();
    device = device_;
    renewing_ = true;
  }
  const absl::Cleanup over = [&] {
    former = nullptr;
    unread.clear();
    MutexLock lock(mutex_);
    renewing_ = false;
    renewed_.NotifyAll();
  };
  for (const auto& one : unread) FreeSlots(one);
  absl::StatusOr<std::shared_ptr<Memory>> fresh = nullptr;
  if (former != nullptr) fresh = Renew(former, idle, facts, *device);
  OCTAVO_RETURN_IF_ERROR(fresh.status());
  {
    MutexLock lock(mutex_);
    OCTAVO_RETURN_IF_ERROR(TakesMore());
    if (*fresh != nullptr) {
      Swap(*std::move(fresh));
    } else if (connection_ > 0) {
      return WithInfo(absl::FailedPreconditionError(
                          "the device still reads what producers before have published; another "
                          "one may be attached when it has"),
                      {.reason = Reason::kRingTaken, .field = "scan", .numbers = {}});
    }
    OCTAVO_ASSIGN_OR_RETURN(attached.fd, memory_->ring.NewDescriptor());
    ++connection_;
    ++counts_.connections;
    counts_.connected = feeding_ = true;
    producer_ = std::move(producer);
    overruns_before_ = counts_.overrun_records;
    memory_->ring.BeginProducer(connection_, seen_, next_record_);
    TellProducer();
    memory_->ring.WakeProducer();
    attached.connection = connection_;
    unread = Unread();
  }
  for (const auto& one : unread) FreeSlots(one);
  return attached;
}

void RingPort::DetachGone() {
  std::function<bool()> has_gone;
  int64_t connection = 0;
  {
    MutexLock lock(mutex_);
    if (!counts_.connected) return;
    has_gone = producer_.has_gone;
    connection = connection_;
  }
  if (has_gone()) Detach(connection);
}

void RingPort::Detach(int64_t connection) {
  {
    MutexLock lock(mutex_);
    if (connection != connection_ || !counts_.connected) return;
    if (open_) Look();
    counts_.connected = feeding_ = false;
    producer_ = {};
    gone_ = Steady::now();
  }
  RingServer();
  CutIfBroken();
  Tell(absl::StrCat("producer ", connection, " gone"));
}

// Wakes the server's own wait for the ring's bell, because other threads cause events, too.
void RingPort::RingServer() {
  MutexLock lock(mutex_);
  if (open_) memory_->ring.WakeServer();
}

void RingPort::TellProducer() {
  RingServerPage& page = *server();
  StoreInt(page.next_record, next_record_);
  StoreInt(page.records, counts_.records);
  StoreInt(page.lost_records, counts_.lost_records);
  StoreInt(page.duplicate_records, counts_.duplicate_records);
  StoreInt(page.out_of_range_records, counts_.out_of_range_records);
  StoreInt(page.broken_blocks, counts_.broken_blocks);
  StoreInt(page.state, static_cast<int64_t>(closed_    ? RingState::kClosed
                                            : running_ ? RingState::kRunning
                                                       : RingState::kQueued));
  Store(page.released, released_);
}

void RingPort::CutIfBroken() {
  std::function<void()> cut;
  std::string news;
  {
    MutexLock lock(mutex_);
    cut = std::exchange(cut_now_, nullptr);
    news = std::exchange(broken_, "");
  }
  if (!news.empty()) Tell(news);
  if (cut) cut();
}

void RingPort::GiveBack(uint64_t until) {
  if (until > released_) released_ = until;
}

// The time that the source may still wait, or the error once a limit has passed.
absl::StatusOr<std::chrono::nanoseconds> RingPort::MayWait(Steady::time_point began) {
  const auto now = Steady::now();
  Seconds left(3600);
  if (!counts_.connected && counts_.connections > 0) {
    left = std::min(left, Seconds(std::max(limits_.restart_grace_s, 0.0)) - Seconds(now - gone_));
    if (left.count() <= 0) {
      const ErrorInfo info{.reason = Reason::kSourceLost,
                           .field = "ring.restart_grace",
                           .numbers = {{"next_record", absl::StrCat(next_record_)}}};
      return WithInfo(
          absl::UnavailableError(absl::StrCat("the producer is gone and no other came within ",
                                              std::max(limits_.restart_grace_s, 0.0),
                                              " s; the next would be record ", next_record_)),
          info);
    }
  }
  if (limits_.idle_timeout_s > 0) {
    left = std::min(left, Seconds(limits_.idle_timeout_s) - Seconds(now - began));
    if (left.count() <= 0) {
      const char* who = counts_.connections == 0 ? "no producer ever attached"
                        : !counts_.connected     ? "no producer is attached"
                        : feeding_               ? "a producer is attached, but silent"
                                                 : "the producer broke the ring";
      const ErrorInfo info{.reason = Reason::kSourceStalled,
                           .field = "ring.idle_timeout",
                           .numbers = {{"next_record", absl::StrCat(next_record_)}}};
      return WithInfo(absl::DeadlineExceededError(
                          absl::StrCat("no records came for ", limits_.idle_timeout_s, " s (", who,
                                       "); the next would be record ", next_record_)),
                      info);
    }
  }
  return std::min<std::chrono::nanoseconds>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(left), kLongestRingWait);
}

absl::StatusOr<BorrowedBlock> RingPort::Lend(std::stop_token stop) {
  std::stop_callback wake(stop, [this] { RingServer(); });
  const auto began = Steady::now();
  for (int alarms = 0; !stop.stop_requested();) {
    std::shared_ptr<Memory> memory;
    {
      MutexLock lock(mutex_);
      memory = memory_;
    }
    const uint32_t bell = Load(memory->ring.producer()->bell);
    std::chrono::nanoseconds longest(0);
    uint64_t seen = 0;
    bool feeding = false;
    std::vector<std::shared_ptr<Memory>> unread;
    {
      MutexLock lock(mutex_);
      if (memory != memory_) continue;  // another producer has come
      if (!running_) {
        running_ = true;
        TellProducer();
        memory_->ring.WakeProducer();
      }
      if (count_ == 0) Look();
      if (count_ > 0) {
        const Waiting& next = queue_[first_];
        if (next.overrun && limits_.fail_on_overrun) {
          return WithInfo(
              absl::DataLossError(
                  absl::StrCat("the producer overran the ring of ", limits_.slots,
                               " slots: ", counts_.overrun_records,
                               " records were dropped; the device was too slow for it")),
              {.reason = Reason::kSourceOverrun,
               .field = "",
               .numbers = {{"overrun_records", absl::StrCat(counts_.overrun_records)}}});
        }
        BorrowedBlock loan{.block = next.block,
                           .data = reinterpret_cast<const uint8_t*>(memory_->ring.data()) +
                                   limits_.data_offset() + next.slot * limits_.slot_bytes() +
                                   next.offset * limits_.record_bytes,
                           .loan = static_cast<int64_t>(next.end)};
        lent_ = next.end;
        counts_.records += loan.block.records;
        first_ = (first_ + 1) % queue_.size();
        --count_;
        return loan;
      }
      if (ended_ || closed_) {
        if (!failed_.ok()) return failed_;
        if (counts_.overruns > 0 && limits_.fail_on_overrun) {
          return WithInfo(
              absl::DataLossError(absl::StrCat("the producer overran the ring: its last ",
                                               counts_.overrun_records, " records were dropped")),
              {.reason = Reason::kSourceOverrun,
               .field = "",
               .numbers = {{"overrun_records", absl::StrCat(counts_.overrun_records)}}});
        }
        return BorrowedBlock{};
      }
      seen = seen_;
      feeding = feeding_;
      OCTAVO_ASSIGN_OR_RETURN(longest, MayWait(began));
      unread = Unread();
    }
    CutIfBroken();
    for (const auto& former : unread) FreeSlots(former);  // takes long, but nothing waits here
    memory->ring.Sleep(bell, feeding ? std::optional(seen) : std::nullopt, longest, &alarms);
  }
  return BorrowedBlock{};
}

void RingPort::Return(int64_t loan) {
  std::shared_ptr<Memory> memory;
  {
    MutexLock lock(mutex_);
    returned_ = std::max(returned_, static_cast<uint64_t>(loan));
    if (!open_) return;
    // Unusable slots after the last loan are released with it.
    GiveBack(returned_ == lent_ && count_ == 0 ? seen_ : returned_);
    TellProducer();
    memory = memory_;
  }
  memory->ring.WakeProducer();  // makes a system call, so Lend does not wait for it
}

double RingPort::Occupancy() {
  MutexLock lock(mutex_);
  if (!open_) return 0;
  const uint64_t slots = static_cast<uint64_t>(limits_.slots),
                 used = feeding_ ? Load(producer()->published) - released_ : seen_ - released_;
  return static_cast<double>(std::min(used, slots)) / static_cast<double>(slots);
}

model::SourceCounts RingPort::Counts() {
  MutexLock lock(mutex_);
  return counts_;
}

void RingPort::OnNews(std::function<void(const std::string&)> tell) {
  MutexLock lock(news_mutex_);
  news_ = std::move(tell);
}

void RingPort::Tell(const std::string& news) {
  MutexLock lock(news_mutex_);
  if (news_) news_(news);
}

void RingPort::Close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
    count_ = 0;
    if (open_) TellProducer();
    if (open_) memory_->ring.WakeProducer();
  }
  OnNews(nullptr);
  CutIfBroken();
}

void RingPort::CloseMemory() {
  std::shared_ptr<Memory> memory;
  std::vector<std::pair<uint64_t, std::shared_ptr<Memory>>> former;
  {
    MutexLock lock(mutex_);
    open_ = feeding_ = false;
    closed_ = true;
    while (renewing_) renewed_.Wait(lock);
    memory = std::move(memory_);
    former = std::move(former_);
    former_.clear();
    device_ = nullptr;
  }
  for (const auto& [until, one] : former) FreeSlots(one);
}

}  // namespace octavo::source

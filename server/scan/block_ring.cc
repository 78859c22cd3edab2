#include "server/scan/block_ring.h"

#include <algorithm>
#include <utility>

namespace octavo::scan {

BlockRing::BlockRing(int slots, GatherRule gather)
    : gather_(gather), slots_(static_cast<size_t>(slots)), full_(2 * static_cast<size_t>(slots)) {
  free_.reserve(slots_.size());
  for (int i = slots; i-- > 0;) free_.push_back(i);
}

int BlockRing::TryAcquire() {
  MutexLock lock(mutex_);
  if (free_.empty()) return -1;
  const int slot = free_.back();
  free_.pop_back();
  return slot;
}

int BlockRing::Acquire(std::stop_token stop) {
  std::stop_callback wake(stop, [this] {
    MutexLock lock(mutex_);
    cv_.NotifyAll();
  });
  MutexLock lock(mutex_);
  while (free_.empty() && !stop.stop_requested()) cv_.Wait(lock);
  if (stop.stop_requested()) return -1;
  const int slot = free_.back();
  free_.pop_back();
  return slot;
}

void BlockRing::Publish(int slot, const source::SourceBlock& block) {
  MutexLock lock(mutex_);
  PublishLocked(slot, 0, block);
  slots_[static_cast<size_t>(slot)].sealed = true;
}

void BlockRing::PublishPart(int slot, int64_t offset, const source::SourceBlock& block) {
  MutexLock lock(mutex_);
  PublishLocked(slot, offset, block);
}

void BlockRing::PublishLocked(int slot, int64_t offset, const source::SourceBlock& block) {
  cv_.NotifyAll();
  if (full_count_ > 0) {
    Part& last = full_[(first_full_ + full_count_ - 1) % full_.size()].part;
    if (last.slot == slot && last.offset + last.block.records == offset &&
        last.block.first_record + last.block.records == block.first_record) {
      last.block.records += block.records;
      last.block.acquired = block.acquired;
      return;
    }
  }
  Append({.slot = slot, .offset = offset, .block = block}, /*last=*/false);
  ++slots_[static_cast<size_t>(slot)].parts;
}

void BlockRing::PublishLent(const uint8_t* data, int64_t bytes, int64_t loan,
                            const source::SourceBlock& block, bool last) {
  MutexLock lock(mutex_);
  cv_.NotifyAll();
  if (full_count_ > 0) {
    Full& before = full_[(first_full_ + full_count_ - 1) % full_.size()];
    Part& part = before.part;
    if (part.slot < 0 && !before.last && part.lent + part.lent_bytes == data &&
        part.block.first_record + part.block.records == block.first_record &&
        part.block.records + block.records <= gather_.enough_records) {
      part.block.records += block.records;
      part.block.acquired = block.acquired;
      part.lent_bytes += bytes;
      part.loan = loan;
      before.last = last;
      return;
    }
  }
  Append({.block = block, .lent = data, .lent_bytes = bytes, .loan = loan}, last);
}

void BlockRing::Append(const Part& part, bool last) {
  if (full_count_ == full_.size()) {
    std::vector<Full> larger(2 * full_.size());
    for (size_t i = 0; i < full_count_; ++i) larger[i] = full_[(first_full_ + i) % full_.size()];
    full_ = std::move(larger);
    first_full_ = 0;
  }
  full_[(first_full_ + full_count_++) % full_.size()] = {
      .part = part, .since = Clock::now(), .last = last};
}

void BlockRing::Seal(int slot) {
  MutexLock lock(mutex_);
  slots_[static_cast<size_t>(slot)].sealed = true;
  FreeIfDone(slot);
  cv_.NotifyAll();
}

void BlockRing::FreeIfDone(int slot) {
  Slot& of = slots_[static_cast<size_t>(slot)];
  if (of.parts > 0 || !of.sealed) return;
  of.sealed = false;
  free_.push_back(slot);
}

void BlockRing::Close(absl::Status status) {
  MutexLock lock(mutex_);
  closed_ = true;
  status_ = std::move(status);
  cv_.NotifyAll();
}

std::chrono::nanoseconds BlockRing::StillToWait() const {
  const Full& first = full_[first_full_];
  const bool no_more =
      closed_ || full_count_ > 1 ||
      (first.part.slot < 0 ? first.last : slots_[static_cast<size_t>(first.part.slot)].sealed);
  // Behind two uploads a part waits for the device in any case, so it may as well grow.
  if (no_more || taken_ < 2 || first.part.block.records >= gather_.enough_records) return {};
  return std::max(std::chrono::nanoseconds(0),
                  std::chrono::nanoseconds(first.since + gather_.patience - Clock::now()));
}

bool BlockRing::Pop(Part* part, std::stop_token stop) {
  std::stop_callback wake(stop, [this] {
    MutexLock lock(mutex_);
    cv_.NotifyAll();
  });
  MutexLock lock(mutex_);
  while (!stop.stop_requested()) {
    if (full_count_ == 0) {
      if (closed_) return false;
      cv_.Wait(lock);
      continue;
    }
    const auto wait = StillToWait();
    if (wait.count() == 0) break;
    cv_.WaitFor(lock, wait);
  }
  if (stop.stop_requested()) return false;
  *part = full_[first_full_].part;
  first_full_ = (first_full_ + 1) % full_.size();
  --full_count_;
  ++taken_;
  return true;
}

void BlockRing::Release(int slot) {
  MutexLock lock(mutex_);
  Slot& of = slots_[static_cast<size_t>(slot)];
  if (of.parts > 0) {
    --of.parts;
    --taken_;
  } else {
    of.sealed = true;  // acquired and never filled
  }
  FreeIfDone(slot);
  cv_.NotifyAll();
}

void BlockRing::ReleaseLent() {
  MutexLock lock(mutex_);
  --taken_;
  cv_.NotifyAll();
}

absl::Status BlockRing::close_status() {
  MutexLock lock(mutex_);
  return status_;
}

double BlockRing::Occupancy() {
  MutexLock lock(mutex_);
  return 1.0 - static_cast<double>(free_.size()) / static_cast<double>(slots_.size());
}

}  // namespace octavo::scan

#include "server/engine/block_ring.h"

#include <utility>

namespace octavo::engine {

BlockRing::BlockRing(int slots) : slots_(slots), full_(static_cast<size_t>(slots)) {
  free_.reserve(full_.size());
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

void BlockRing::Publish(int slot, const SourceBlock& block) {
  MutexLock lock(mutex_);
  full_[(first_full_ + full_count_++) % full_.size()] = {slot, block};
  cv_.NotifyAll();
}

void BlockRing::Close(absl::Status status) {
  MutexLock lock(mutex_);
  closed_ = true;
  status_ = std::move(status);
  cv_.NotifyAll();
}

bool BlockRing::Pop(int* slot, SourceBlock* block, std::stop_token stop) {
  std::stop_callback wake(stop, [this] {
    MutexLock lock(mutex_);
    cv_.NotifyAll();
  });
  MutexLock lock(mutex_);
  while (full_count_ == 0 && !closed_ && !stop.stop_requested()) cv_.Wait(lock);
  if (stop.stop_requested() || full_count_ == 0) return false;
  *slot = full_[first_full_].slot;
  *block = full_[first_full_].block;
  first_full_ = (first_full_ + 1) % full_.size();
  --full_count_;
  return true;
}

void BlockRing::Release(int slot) {
  MutexLock lock(mutex_);
  free_.push_back(slot);
  cv_.NotifyAll();
}

absl::Status BlockRing::close_status() {
  MutexLock lock(mutex_);
  return status_;
}

double BlockRing::Occupancy() {
  MutexLock lock(mutex_);
  return 1.0 - static_cast<double>(free_.size()) / slots_;
}

}  // namespace octavo::engine

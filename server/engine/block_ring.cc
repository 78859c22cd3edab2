#include "server/engine/block_ring.h"

#include <utility>

namespace octavo::engine {

BlockRing::BlockRing(int slots) : slots_(slots) {
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
  full_.push_back({slot, block});
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
  while (full_.empty() && !closed_ && !stop.stop_requested()) cv_.Wait(lock);
  if (stop.stop_requested() || full_.empty()) return false;
  *slot = full_.front().slot;
  *block = full_.front().block;
  full_.pop_front();
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

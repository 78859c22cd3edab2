#include "server/engine/volume_slot.h"

#include <chrono>
#include <utility>

namespace octavo::engine {

void SlotPool::Add(std::unique_ptr<VolumeSlot> slot) {
  MutexLock lock(mutex_);
  free_.push_back(std::move(slot));
}

std::shared_ptr<VolumeSlot> SlotPool::TryTake() {
  MutexLock lock(mutex_);
  if (free_.empty()) return nullptr;
  VolumeSlot* slot = free_.front().release();
  free_.pop_front();
  return std::shared_ptr<VolumeSlot>(slot, [self = shared_from_this()](VolumeSlot* s) { self->Return(s); });
}

void SlotPool::WaitForReturn() {
  MutexLock lock(mutex_);
  if (free_.empty()) returned_.WaitFor(lock, std::chrono::milliseconds(20));
}

void SlotPool::Return(VolumeSlot* slot) {
  std::unique_ptr<VolumeSlot> owned(slot);
  {
    MutexLock lock(mutex_);
    if (!closed_) {
      ledger_->Unhold(owned->charge);
      free_.push_back(std::move(owned));
      returned_.NotifyAll();
      return;
    }
  }
  // The memory goes first: a charge must never end before its bytes are free.
  const Ledger::ChargeId charge = owned->charge;
  owned.reset();
  ledger_->Release(charge);
}

void SlotPool::Close() {
  std::deque<std::unique_ptr<VolumeSlot>> free;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    free.swap(free_);
  }
  for (auto& slot : free) {
    const Ledger::ChargeId charge = slot->charge;
    slot.reset();
    ledger_->Release(charge);
  }
}

}  // namespace octavo::engine

#include "server/memory/volume_slot.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace octavo::memory {

std::vector<Ledger::ChargeId> VolumeSlot::charges() const {
  std::vector<Ledger::ChargeId> all = {charge};
  for (const VolumeStripe& stripe : stripes) {
    if (stripe.charge != 0) all.push_back(stripe.charge);
  }
  return all;
}

SlotCache::SlotCache(Ledger* ledger, int64_t most_bytes)
    : ledger_(ledger), most_bytes_(most_bytes) {
  ledger_->SetReclaim([this](const std::vector<Ledger::ChargeId>& charges) { Drop(charges); });
}

SlotCache::~SlotCache() {
  Clear();
  ledger_->SetReclaim(nullptr);
}

std::vector<Ledger::ChargeId> SlotCache::Find(const SlotLayout& layout) {
  MutexLock lock(mutex_);
  std::vector<Ledger::ChargeId> charges;
  for (const Entry& entry : entries_) {
    if (entry.layout == layout) charges.push_back(entry.slot->charge);
  }
  return charges;
}

std::unique_ptr<VolumeSlot> SlotCache::Take(Ledger::ChargeId charge) {
  MutexLock lock(mutex_);
  const auto it = std::find_if(entries_.begin(), entries_.end(),
                               [&](const Entry& entry) { return entry.slot->charge == charge; });
  if (it == entries_.end()) return nullptr;
  std::unique_ptr<VolumeSlot> slot = std::move(it->slot);
  entries_.erase(it);
  return slot;
}

void SlotCache::Put(const SlotLayout& layout, std::unique_ptr<VolumeSlot> slot) {
  const Ledger::ChargeId charge = slot->charge;
  {
    MutexLock lock(mutex_);
    entries_.push_back({.layout = layout, .slot = std::move(slot)});
  }
  // The ledger may promise its room to others only now, when Drop would find it.
  ledger_->Move(charge, ChargeKind::kCached, "");
  Shrink(layout.device, most_bytes_);
}

void SlotCache::Drop(const std::vector<Ledger::ChargeId>& charges) {
  for (const auto charge : charges) (void)Take(charge);
}

void SlotCache::Shrink(int device, int64_t bytes) {
  std::vector<Ledger::ChargeId> longest_cached;
  {
    MutexLock lock(mutex_);
    int64_t kept = 0;
    for (auto it = entries_.rbegin(); it != entries_.rend(); ++it) {
      if (it->layout.device != device) continue;
      if ((kept += it->layout.sum()) > bytes) longest_cached.push_back(it->slot->charge);
    }
  }
  for (const auto charge : longest_cached) {
    if (!ledger_->Claim(charge)) continue;  // it is being reused or freed at this moment
    (void)Take(charge);
    ledger_->Release(charge);
  }
}

void SlotCache::Clear() {
  for (int device = 0; device < ledger_->devices(); ++device) Shrink(device, 0);
}

void SlotPool::Add(std::unique_ptr<VolumeSlot> slot) {
  MutexLock lock(mutex_);
  free_.push_back(std::move(slot));
}

std::shared_ptr<VolumeSlot> SlotPool::TryTake() {
  std::unique_ptr<VolumeSlot> slot;
  {
    MutexLock lock(mutex_);
    if (free_.empty()) return nullptr;
    slot = std::move(free_.front());
    free_.pop_front();
  }
  // Without the lock: if this cannot allocate, it returns the slot, which takes the lock.
  return std::shared_ptr<VolumeSlot>(
      slot.release(), [self = shared_from_this()](VolumeSlot* s) { self->Return(s); });
}

int64_t SlotPool::Free() {
  MutexLock lock(mutex_);
  return std::ssize(free_);
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
      for (const auto id : owned->charges()) ledger_->Unhold(id);
      free_.push_back(std::move(owned));
      returned_.NotifyAll();
      return;
    }
  }
  LetGo(std::move(owned));
}

void SlotPool::LetGo(std::unique_ptr<VolumeSlot> slot) {
  if (cache_ != nullptr) {
    cache_->Put(layout_, std::move(slot));
    return;
  }
  // Free the memory first: a charge must never end before its bytes are free.
  const std::vector<Ledger::ChargeId> charges = slot->charges();
  slot.reset();
  for (const auto id : charges) ledger_->Release(id);
}

void SlotPool::Close() {
  std::deque<std::unique_ptr<VolumeSlot>> free;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    free.swap(free_);
  }
  for (auto& slot : free) LetGo(std::move(slot));
}

}  // namespace octavo::memory

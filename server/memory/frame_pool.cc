#include "server/memory/frame_pool.h"

#include <bit>
#include <utility>

namespace octavo::memory {

// Powers of two up to 16 MiB, which waste little; above, multiples of 4 MiB.
int64_t FramePool::BlockBytes(int64_t bytes) {
  constexpr int64_t kStep = 4 << 20;
  if (bytes <= 16 << 20)
    return std::max<int64_t>(64 << 10,
                             static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes))));
  return (bytes + kStep - 1) / kStep * kStep;
}

int64_t FramePool::ClassOf(int64_t bytes) const {
  return sizes_ == Sizes::kExact ? bytes : BlockBytes(bytes);
}

bool FramePool::MayTake(int64_t bytes, Use use) const {
  if (use == Use::kStaging) return true;
  if (use == Use::kClient && client_ + bytes > cap_bytes_ / 2) return false;
  return frames_ + client_ + bytes <= cap_bytes_ / 4 * 3;
}

void FramePool::Count(int64_t bytes, Use use) {
  if (use == Use::kFrame) frames_ += bytes;
  if (use == Use::kClient) client_ += bytes;
}

std::shared_ptr<void> FramePool::Get(int64_t bytes, Use use) {
  const int64_t size = ClassOf(bytes);
  std::unique_ptr<PinnedBuffer> block;
  std::vector<std::unique_ptr<PinnedBuffer>> evicted;  // freed outside the lock
  {
    MutexLock lock(mutex_);
    if (!MayTake(size, use)) return nullptr;
    if (auto& free = free_[size]; !free.empty()) {
      block = std::move(free.back());
      free.pop_back();
    } else {
      // Free idle blocks of other classes before the cap refuses.
      for (auto it = free_.rbegin(); it != free_.rend() && allocated_ + size > cap_bytes_; ++it) {
        while (!it->second.empty() && allocated_ + size > cap_bytes_) {
          allocated_ -= it->second.back()->bytes();
          evicted.push_back(std::move(it->second.back()));
          it->second.pop_back();
        }
      }
      if (allocated_ + size > cap_bytes_) return nullptr;
      allocated_ += size;
    }
    Count(size, use);
  }
  if (block == nullptr) {
    auto made = device_->AllocatePinned(size);
    if (!made.ok()) {
      MutexLock lock(mutex_);
      allocated_ -= size;
      Count(-size, use);
      return nullptr;
    }
    block = std::make_unique<PinnedBuffer>(*std::move(made));
  }
  void* data = block->data();
  // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks): the deleter owns it, also where the
  // control block cannot be made.
  return std::shared_ptr<void>(data, [self = shared_from_this(), raw = block.release(),
                                      use](void*) { self->Return(raw, use); });
}

void FramePool::Return(PinnedBuffer* block, Use use) {
  std::unique_ptr<PinnedBuffer> owned(block);
  MutexLock lock(mutex_);
  Count(-owned->bytes(), use);
  free_[owned->bytes()].push_back(std::move(owned));
}

void FramePool::Prepare(int64_t bytes, int count) {
  std::vector<std::shared_ptr<void>> taken;
  for (int i = 0; i < count; ++i) {
    auto block = Get(bytes, Use::kFrame);
    if (block == nullptr) break;
    taken.push_back(std::move(block));
  }
}

}  // namespace octavo::memory

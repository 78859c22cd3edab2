#include "server/memory/frame_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"

namespace octavo::memory {
namespace {

// A short use takes a free block that is at most so many times as large as it needs.
constexpr int64_t kMostSpare = 4;
// The largest slab of most commits (storage::ZarrArray), and pieces of reads: of the usual size and
// of the largest, as many as a client with several channels has in flight.
constexpr int64_t kPreparedSlab = 64 << 20, kPreparedPieces[] = {2 << 20, 4 << 20},
                  kPreparedPieceBytes = 32 << 20;

const char* Name(FramePool::Use use) {
  switch (use) {
    case FramePool::Use::kStaging: return "the server's own copies";
    case FramePool::Use::kFrame: return "frames";
    case FramePool::Use::kClient: return "reads and writes of clients";
  }
  return "";
}

}  // namespace

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

int64_t FramePool::ShareOf(Use use) const {
  return use == Use::kStaging  ? cap_bytes_
         : use == Use::kClient ? cap_bytes_ / 2
                               : cap_bytes_ / 4 * 3;
}

bool FramePool::MayTake(int64_t bytes, Use use) const {
  if (use == Use::kStaging) return true;
  if (use == Use::kClient && client_ + bytes > ShareOf(Use::kClient)) return false;
  return frames_ + client_ + bytes <= ShareOf(Use::kFrame);
}

absl::Status FramePool::NoRoom(int64_t bytes, Use use) const {
  const bool ever = ClassOf(bytes) <= ShareOf(use);
  ErrorInfo info{
      .reason = Reason::kNoStaging,
      .field = "",
      .numbers = {{"wanted", absl::StrCat(bytes)}, {"allowed", absl::StrCat(ShareOf(use))}}};
  if (ever) info.numbers.emplace_back("retryable", "true");
  return WithInfo(absl::ResourceExhaustedError(absl::StrCat(
                      "no page-locked memory for ", bytes, " bytes: ", Name(use), " may have ",
                      ShareOf(use), " bytes at once, ",
                      ever ? "and others have them now; try again" : "which is never enough")),
                  info);
}

void FramePool::Count(int64_t bytes, Use use) {
  if (use == Use::kFrame) frames_ += bytes;
  if (use == Use::kClient) client_ += bytes;
}

std::unique_ptr<PinnedBuffer> FramePool::TakeFree(int64_t size, Use use) {
  // Clients keep blocks, so they get none that are larger than they need.
  const int64_t most = use == Use::kStaging && sizes_ == Sizes::kClasses ? kMostSpare * size : size;
  for (auto it = free_.lower_bound(size); it != free_.end() && it->first <= most; ++it) {
    if (it->second.empty()) continue;
    std::unique_ptr<PinnedBuffer> block = std::move(it->second.back());
    it->second.pop_back();
    return block;
  }
  return nullptr;
}

absl::StatusOr<std::shared_ptr<void>> FramePool::Get(int64_t bytes, Use use) {
  const int64_t size = ClassOf(bytes);
  std::unique_ptr<PinnedBuffer> block;
  std::vector<std::unique_ptr<PinnedBuffer>> evicted;  // freed outside the lock
  {
    MutexLock lock(mutex_);
    if (!MayTake(size, use)) return NoRoom(bytes, use);
    block = TakeFree(size, use);
    if (block == nullptr) {
      // Free idle blocks of other classes before the cap refuses.
      for (auto it = free_.rbegin(); it != free_.rend() && allocated_ + size > cap_bytes_; ++it) {
        while (!it->second.empty() && allocated_ + size > cap_bytes_) {
          allocated_ -= it->second.back()->bytes();
          evicted.push_back(std::move(it->second.back()));
          it->second.pop_back();
        }
      }
      if (allocated_ + size > cap_bytes_) return NoRoom(bytes, use);
      allocated_ += size;
    }
    Count(size, use);
  }
  if (block == nullptr) {
    auto made = base::ExceptionToStatus([&] { return Allocate(size); });
    if (!made.ok()) {
      MutexLock lock(mutex_);
      allocated_ -= size;
      Count(-size, use);
      return std::move(made).status();
    }
    block = *std::move(made);
  }
  void* data = block->data();
  // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks): the deleter owns it, also where the
  // control block cannot be made.
  return std::shared_ptr<void>(data, [self = shared_from_this(), raw = block.release(),
                                      use](void*) { self->Return(raw, use); });
}

absl::StatusOr<std::unique_ptr<PinnedBuffer>> FramePool::Allocate(int64_t bytes) {
  absl::StatusOr<PinnedBuffer> made = device_->AllocatePinned(bytes);
  if (made.ok()) return std::make_unique<PinnedBuffer>(*std::move(made));
  const absl::Status& why = made.status();
  if (!absl::IsResourceExhausted(why)) return why;
  return WithInfo(
      absl::ResourceExhaustedError(absl::StrCat("no page-locked memory of ", bytes,
                                                " bytes: ", why.message(), "; try again")),
      {.reason = Reason::kOutOfMemory,
       .field = "",
       .numbers = {{"wanted", absl::StrCat(bytes)}, {"retryable", "true"}}});
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
    if (!block.ok()) break;
    taken.push_back(*std::move(block));
  }
}

void FramePool::AddFree(int64_t size, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    {
      MutexLock lock(mutex_);
      if (std::ssize(free_[size]) >= count || allocated_ + size > cap_bytes_) return;
      allocated_ += size;
    }
    auto made = base::ExceptionToStatus([&] { return Allocate(size); });
    MutexLock lock(mutex_);
    if (!made.ok()) {
      allocated_ -= size;
      return;
    }
    free_[size].push_back(*std::move(made));
  }
}

void FramePool::PrepareForVolumes(int64_t volume_bytes) {
  if (volume_bytes <= 0) return;
  const int64_t part = cap_bytes_ / 8;
  // One slab is copied while the other is written.
  AddFree(BlockBytes(std::min({volume_bytes, kPreparedSlab, part})), 2);
  for (const int64_t piece : kPreparedPieces)
    AddFree(piece, std::min({volume_bytes, kPreparedPieceBytes, part}) / piece);
}

struct PartOfPool::Lent {
  Mutex mutex;
  int64_t bytes ABSL_GUARDED_BY(mutex) = 0;
  int blocks ABSL_GUARDED_BY(mutex) = 0;

  void Give(int64_t block) {
    const MutexLock lock(mutex);
    bytes -= block;
    --blocks;
  }
};

PartOfPool::PartOfPool(std::shared_ptr<FramePool> pool, FramePool::Use use)
    : pool_(std::move(pool)), use_(use), lent_(std::make_shared<Lent>()) {}

absl::StatusOr<std::shared_ptr<void>> PartOfPool::Lend(int64_t bytes) const {
  constexpr int kAlways = 3;
  const int64_t block = FramePool::BlockBytes(bytes), most = this->most();
  {
    const MutexLock lock(lent_->mutex);
    if (lent_->blocks >= kAlways && lent_->bytes + block > most) {
      return WithInfo(
          absl::ResourceExhaustedError(absl::StrCat("no page-locked memory for ", bytes,
                                                    " more bytes: one reader may have ", most,
                                                    " bytes at once, and has ", lent_->bytes)),
          {.reason = Reason::kNoStaging,
           .field = "",
           .numbers = {{"wanted", absl::StrCat(bytes)}, {"allowed", absl::StrCat(most)}}});
    }
    lent_->bytes += block;
    ++lent_->blocks;
  }
  absl::Cleanup give = [&] { lent_->Give(block); };
  OCTAVO_ASSIGN_OR_RETURN(std::shared_ptr<void> memory, pool_->Get(bytes, use_));
  void* const data = memory.get();
  std::shared_ptr<void> lent(
      data, [memory = std::move(memory), count = lent_, block](void*) { count->Give(block); });
  std::move(give).Cancel();
  return lent;
}

}  // namespace octavo::memory

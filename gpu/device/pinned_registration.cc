#include "gpu/device/pinned_registration.h"

namespace octavo::inline gpu {
namespace {

class NothingToLock final : public MemorySource {
 public:
  void Release(void*, int64_t) override {}
};

}  // namespace

absl::StatusOr<PinnedBuffer> RegisterPinned(Device& device, void* data, int64_t bytes) {
  if (auto* locker = dynamic_cast<PageLocker*>(&device)) return locker->LockPages(data, bytes);
  return PinnedBuffer(std::make_shared<NothingToLock>(), data, bytes);
}

}  // namespace octavo::inline gpu

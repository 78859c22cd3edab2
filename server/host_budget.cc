#include "server/host_budget.h"

#include <algorithm>

namespace octavo {
namespace {

constexpr int64_t kLeastFramePool = 16 << 20, kLeastListen = 64 << 20, kLeastPictures = 32 << 20,
                  kLeastShared = 16 << 20, kMostPictures = int64_t{1} << 30,
                  kMostShared = int64_t{1} << 30;

}  // namespace

HostBudget FitHostMemory(const Config& config, const MemoryLimit& memory, int64_t devices_bytes,
                         int devices) {
  const Config defaults;
  HostBudget budget{.devices_bytes = devices_bytes,
                    .frame_pool_bytes = config.frame_pool_bytes,
                    .listen_bytes = config.listen_memory_bytes,
                    .spill_host_bytes = config.spill_host_bytes,
                    .projection_bytes = config.projection_bytes > 0 ? config.projection_bytes
                                                                    : memory.total_bytes / 2};
  const bool frames = config.frame_pool_bytes == defaults.frame_pool_bytes,
             listen = config.listen_memory_bytes == defaults.listen_memory_bytes,
             spill = config.spill_host_bytes == defaults.spill_host_bytes,
             projections = config.projection_bytes == 0;
  // The memory that the uses with a configured size leave to the others.
  int64_t rest = memory.available_bytes / 10 * 9 - devices_bytes;
  if (!frames) rest -= devices * budget.frame_pool_bytes;
  if (!listen) rest -= budget.listen_bytes;
  if (!spill) rest -= budget.spill_host_bytes;
  if (!projections) rest -= budget.projection_bytes;
  rest = std::max<int64_t>(rest, 0);
  budget.picture_bytes = std::clamp(rest / 8, kLeastPictures, kMostPictures);
  budget.shared_frame_bytes = std::clamp(rest / 16, kLeastShared, kMostShared);
  rest = std::max<int64_t>(rest - budget.picture_bytes - budget.shared_frame_bytes, 0);
  int64_t uses = frames + listen + spill + projections;
  // The smallest first: memory that one use does not need goes to the others. Projections get the
  // remainder.
  if (frames) {
    budget.frame_pool_bytes =
        std::min(budget.frame_pool_bytes, std::max(kLeastFramePool, rest / uses-- / devices));
    rest = std::max<int64_t>(0, rest - devices * budget.frame_pool_bytes);
  }
  if (listen) {
    budget.listen_bytes = std::min(budget.listen_bytes, std::max(kLeastListen, rest / uses--));
    rest = std::max<int64_t>(0, rest - budget.listen_bytes);
  }
  if (spill) {
    budget.spill_host_bytes = std::min(budget.spill_host_bytes, rest / uses--);
    rest -= budget.spill_host_bytes;
  }
  if (projections)
    budget.projection_bytes = std::max<int64_t>(1, std::min(budget.projection_bytes, rest));
  return budget;
}

}  // namespace octavo

#include "gpu/base/descriptors.h"

#include <algorithm>
#include <sys/resource.h>

namespace octavo::inline gpu {
namespace {

// Enough for the files of some commits, spills and logs at once; of a small limit an eighth.
constexpr rlim_t kKept = 256;

}  // namespace

bool LeavesDescriptors(int fd) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return true;
  return static_cast<rlim_t>(fd) < limit.rlim_cur - std::min(limit.rlim_cur / 8, kKept);
}

void RaiseDescriptorLimit(int most) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, static_cast<rlim_t>(most));
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);  // as many as before will do
}

}  // namespace octavo::inline gpu

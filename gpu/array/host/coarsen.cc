#include "gpu/array/coarsen.h"

#include <algorithm>

#include "tbb/blocked_range.h"
#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "gpu/device/host/host_stream.h"

namespace octavo::inline gpu::host {
namespace {

constexpr int64_t kGrain = 1 << 14;  // the least voxels that are worth a task

class HostCoarsenOps final : public CoarsenOps {
 public:
  absl::Status Coarsen(StreamRef stream, const math::CoarsenSpec& s, const void* in,
                       void* out) override {
    return Enqueue(stream, [s, in, out] {
      const int64_t cube = s.factor * s.factor * s.factor;
      tbb::parallel_for(
          tbb::blocked_range<int64_t>(0, s.all(), std::max<int64_t>(1, kGrain / cube)),
          [&](const auto& range) {
            for (int64_t at = range.begin(); at < range.end(); ++at) {
              math::Accumulator sum;
              math::IncludeCube(s, in, at, /*lane=*/0, /*lanes=*/1, &sum);
              math::StoreCoarse(s, sum, at, out);
            }
          });
    });
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<CoarsenOps>> MakeCoarsenOps(Device& device) {
  OCTAVO_RETURN_IF_ERROR(CheckBackend(device, "host", CoarsenOps::kFamily));
  return std::make_unique<HostCoarsenOps>();
}

}  // namespace octavo::inline gpu::host

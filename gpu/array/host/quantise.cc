#include "gpu/array/quantise.h"

#include <atomic>

#include "tbb/blocked_range.h"
#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "gpu/device/host/host_stream.h"

namespace octavo::inline gpu::host {
namespace {

constexpr int64_t kGrain = 1 << 14;  // the least elements that are worth a task

class HostQuantiseOps final : public QuantiseOps {
 public:
  absl::Status Quantise(StreamRef stream, const math::QuantiseSpec& s, const float* in, void* out,
                        uint64_t* clipped) override {
    return Enqueue(stream, [s, in, out, clipped] {
      tbb::parallel_for(tbb::blocked_range<int64_t>(0, s.count, kGrain), [&](const auto& range) {
        uint32_t counts[2] = {0, 0};
        for (int64_t i = range.begin(); i < range.end(); ++i) {
          math::Quantise(s, in[i], i, out, &counts[0], &counts[1]);
          if ((i & 0xFFFFF) == 0) Add(clipped, counts);  // long before they overflow
        }
        Add(clipped, counts);
      });
    });
  }

 private:
  static void Add(uint64_t* clipped, uint32_t (&counts)[2]) {
    for (int end = 0; end < 2; ++end) {
      if (counts[end] != 0)
        std::atomic_ref(clipped[end]).fetch_add(counts[end], std::memory_order_relaxed);
      counts[end] = 0;
    }
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<QuantiseOps>> MakeQuantiseOps(Device& device) {
  OCTAVO_RETURN_IF_ERROR(CheckBackend(device, "host", QuantiseOps::kFamily));
  return std::make_unique<HostQuantiseOps>();
}

}  // namespace octavo::inline gpu::host

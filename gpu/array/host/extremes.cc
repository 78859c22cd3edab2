#include "gpu/array/extremes.h"

#include <algorithm>
#include <type_traits>

#include "tbb/blocked_range.h"
#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "gpu/device/host/host_stream.h"
#include "gpu/device/scalar_dispatch.h"
#include "gpu/math/array_ops.h"
#include "gpu/math/element_value.h"

namespace octavo::inline gpu::host {
namespace {

constexpr int64_t kGrain = 1 << 14;  // the least numbers that are worth a task
constexpr int64_t kTile = 64;        // results that a task finds together

template <typename T>
void FindPlaces(const ArgExtremeSpec& s, const T* in, const uint8_t* mask, void* out) {
  // The numbers that are compared: halves as f32, every other type itself.
  using V = std::conditional_t<std::is_same_v<T, math::Half>, float, T>;
  const int64_t results = s.axes.results(), length = s.axes.length();
  const int64_t tiles = (results + kTile - 1) / kTile;
  tbb::parallel_for(
      tbb::blocked_range<int64_t>(0, tiles, std::max<int64_t>(1, kGrain / (kTile * length))),
      [&](const auto& range) {
        for (int64_t tile = range.begin(); tile < range.end(); ++tile) {
          const int64_t first = tile * kTile, count = std::min(kTile, results - first);
          math::ExtremePlace<V> best[kTile];
          int64_t starts[kTile];
          for (int64_t k = 0; k < count; ++k) starts[k] = s.axes.First(first + k);
          const auto visit = [&](int64_t k, int64_t r) {
            const int64_t at = starts[k] + r * s.axes.run_stride[1];
            if (mask != nullptr && mask[at / s.lanes] == 0) return;
            math::IncludePlace(s.extreme, s.skip_nan, math::ValueOf<V>(in[at]), r, &best[k]);
          };
          // The contiguous axis is the inner loop.
          if (s.axes.run_stride[1] == 1) {
            for (int64_t k = 0; k < count; ++k) {
              for (int64_t r = 0; r < length; ++r) visit(k, r);
            }
          } else {
            for (int64_t r = 0; r < length; ++r) {
              for (int64_t k = 0; k < count; ++k) visit(k, r);
            }
          }
          for (int64_t k = 0; k < count; ++k)
            math::Store(s.out, out, first + k, {static_cast<double>(best[k].index)});
        }
      });
}

class HostExtremeOps final : public ExtremeOps {
 public:
  absl::Status ArgExtreme(StreamRef stream, const ArgExtremeSpec& s, const void* in,
                          const uint8_t* mask, void* out) override {
    return Enqueue(stream, [s, in, mask, out] {
      DispatchReal(s.in, [&](auto element) {
        FindPlaces(s, static_cast<const decltype(element)*>(in), mask, out);
      });
    });
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<ExtremeOps>> MakeExtremeOps(Device& device) {
  OCTAVO_RETURN_IF_ERROR(CheckBackend(device, "host", ExtremeOps::kFamily));
  return std::make_unique<HostExtremeOps>();
}

}  // namespace octavo::inline gpu::host

#include "gpu/array/gather_ascans.h"

#include <memory>
#include <type_traits>

#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "gpu/device/dtype_dispatch.h"
#include "gpu/device/host/host_stream.h"
#include "gpu/math/gather_ascans.h"

namespace octavo::inline gpu::host {
namespace {

template <typename T>
T Store(float v) {
  if constexpr (std::is_same_v<T, float>) return v;
  return static_cast<T>(math::Quantise(v, sizeof(T) == 1 ? 255.0f : 65535.0f));
}

class HostResampleOps final : public ResampleOps {
 public:
  absl::Status Gather(StreamRef stream, const AscanView& in, const GatherTable& table,
                      void* out) override {
    return Enqueue(stream, [=] {
      DispatchIntensityType(in.dtype, [&](auto type) {
        using T = decltype(type);
        tbb::parallel_for(int64_t{0}, table.ascans, [&](int64_t ascan) {
          const int32_t* index = table.index + ascan * table.taps;
          const float* weight = table.weight + ascan * table.taps;
          T* to = static_cast<T*>(out) + ascan * in.depth;
          for (int64_t z = 0; z < in.depth; ++z)
            to[z] = Store<T>(math::Gather(static_cast<const T*>(in.data), in.depth, z, index,
                                          weight, table.taps));
        });
      });
    });
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<ResampleOps>> MakeResampleOps(Device& device) {
  OCTAVO_RETURN_IF_ERROR(CheckBackend(device, "host", ResampleOps::kFamily));
  return std::make_unique<HostResampleOps>();
}

}  // namespace octavo::inline gpu::host

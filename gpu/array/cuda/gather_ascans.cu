#include <algorithm>
#include <type_traits>

#include "gpu/array/gather_ascans.h"
#include "gpu/base/status.h"
#include "gpu/device/cuda/cuda_context.h"
#include "gpu/device/cuda/cuda_stream.h"
#include "gpu/device/dtype_dispatch.h"
#include "gpu/math/gather_ascans.h"

namespace octavo::inline gpu::cuda {
namespace {

template <typename T>
__device__ inline T Store(float v) {
  if constexpr (std::is_same_v<T, float>) {
    return v;
  } else {
    return static_cast<T>(math::Quantise(v, sizeof(T) == 1 ? 255.0f : 65535.0f));
  }
}

// One block per A-scan. It reads the taps once; neighbouring threads read neighbouring depth
// samples.
template <typename T>
__global__ void GatherKernel(const T* in, int64_t depth, GatherTable table, T* out) {
  extern __shared__ int32_t shared[];
  int32_t* index = shared;
  float* weight = reinterpret_cast<float*>(shared + table.taps);
  const int64_t ascan = blockIdx.x;
  for (int64_t t = threadIdx.x; t < table.taps; t += blockDim.x) {
    index[t] = table.index[ascan * table.taps + t];
    weight[t] = table.weight[ascan * table.taps + t];
  }
  __syncthreads();
  for (int64_t z = threadIdx.x; z < depth; z += blockDim.x)
    out[ascan * depth + z] = Store<T>(math::Gather(in, depth, z, index, weight, table.taps));
}

// Index and weight of each tap, in whole groups of four, so that the compiler joins the loads of
// neighbouring taps.
size_t SharedBytes(int64_t taps) { return static_cast<size_t>((taps + 3) / 4 * 4) * 8 + 16; }

class CudaResampleOps final : public ResampleOps {
 public:
  CudaResampleOps(int ordinal, std::shared_ptr<DeviceHealth> health)
      : ordinal_(ordinal), health_(std::move(health)) {}

  absl::Status Gather(StreamRef stream, const AscanView& in, const GatherTable& table,
                      void* out) override {
    const DeviceGuard guard(ordinal_);
    DispatchIntensityType(in.dtype, [&](auto type) {
      using T = decltype(type);
      GatherKernel<T>
          <<<static_cast<unsigned>(table.ascans), 128, SharedBytes(table.taps), AsCuda(stream)>>>(
              static_cast<const T*>(in.data), in.depth, table, static_cast<T*>(out));
    });
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }

 private:
  const int ordinal_;
  const std::shared_ptr<DeviceHealth> health_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ResampleOps>> MakeResampleOps(Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(CudaContext context, FindCudaContext(device, ResampleOps::kFamily));
  return std::make_unique<CudaResampleOps>(context.ordinal, std::move(context.health));
}

}  // namespace octavo::inline gpu::cuda

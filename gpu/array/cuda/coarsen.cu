#include <algorithm>

#include "gpu/array/coarsen.h"
#include "gpu/base/status.h"
#include "gpu/device/cuda/cuda_context.h"
#include "gpu/device/cuda/cuda_stream.h"

namespace octavo::inline gpu::cuda {
namespace {

constexpr int kThreads = 256;
// A thread reads a small cube alone: its neighbours read the voxels beside it. A warp shares a cube
// whose rows are long enough for that.
constexpr int64_t kFactorOfWarps = 8;

// Runs to the end with the same number of turns in each thread of a warp, so that all can shuffle.
template <int kLanes>
__global__ void CoarsenKernel(math::CoarsenSpec s, const void* in, void* out) {
  const int64_t all = s.all(), step = static_cast<int64_t>(gridDim.x) * blockDim.x / kLanes;
  const int lane = threadIdx.x % kLanes;
  int64_t at = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kLanes;
  for (; at < all; at += step) {
    math::Accumulator sum;
    math::IncludeCube(s, in, at, lane, kLanes, &sum);
    for (int offset = kLanes / 2; offset > 0; offset /= 2) {
      math::Accumulator other;
      other.re = __shfl_down_sync(0xFFFFFFFFu, sum.re, offset);
      other.extreme = __shfl_down_sync(0xFFFFFFFFu, sum.extreme, offset);
      other.count = __shfl_down_sync(0xFFFFFFFFu, sum.count, offset);
      math::Join(s.kind, other, &sum);
    }
    if (lane == 0) math::StoreCoarse(s, sum, at, out);
  }
}

class CudaCoarsenOps final : public CoarsenOps {
 public:
  explicit CudaCoarsenOps(CudaContext context) : context_(std::move(context)) {}

  absl::Status Coarsen(StreamRef stream, const math::CoarsenSpec& s, const void* in,
                       void* out) override {
    const DeviceGuard guard(context_.ordinal);
    const cudaStream_t on = AsCuda(stream);
    if (s.factor < kFactorOfWarps) {
      CoarsenKernel<1><<<Blocks(s.all()), kThreads, 0, on>>>(s, in, out);
    } else {
      CoarsenKernel<32><<<Blocks(s.all() * 32), kThreads, 0, on>>>(s, in, out);
    }
    OCTAVO_CUDA(context_.health.get(), cudaGetLastError());
    return absl::OkStatus();
  }

 private:
  static unsigned Blocks(int64_t threads) {
    return static_cast<unsigned>(
        std::clamp<int64_t>((threads + kThreads - 1) / kThreads, 1, 1 << 20));
  }
  const CudaContext context_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CoarsenOps>> MakeCoarsenOps(Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(CudaContext context, FindCudaContext(device, CoarsenOps::kFamily));
  return std::make_unique<CudaCoarsenOps>(std::move(context));
}

}  // namespace octavo::inline gpu::cuda

#include <algorithm>

#include "gpu/array/quantise.h"
#include "gpu/base/status.h"
#include "gpu/device/cuda/cuda_context.h"
#include "gpu/device/cuda/cuda_stream.h"

namespace octavo::inline gpu::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1 << 13;  // each ends with at most two additions to the counts

// A thread sees fewer than 2^32 elements.
__global__ void QuantiseKernel(math::QuantiseSpec s, const float* in, void* out,
                               unsigned long long* clipped) {  // NOLINT
  __shared__ unsigned long long sums[2];                       // NOLINT
  if (threadIdx.x < 2) sums[threadIdx.x] = 0;
  __syncthreads();
  uint32_t counts[2] = {0, 0};
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < s.count;
       i += step)
    math::Quantise(s, in[i], i, out, &counts[0], &counts[1]);
  for (int end = 0; end < 2; ++end) {
    if (counts[end] != 0)
      atomicAdd(&sums[end], static_cast<unsigned long long>(counts[end]));  // NOLINT
  }
  __syncthreads();
  if (threadIdx.x < 2 && sums[threadIdx.x] != 0)
    atomicAdd(&clipped[threadIdx.x], sums[threadIdx.x]);
}

class CudaQuantiseOps final : public QuantiseOps {
 public:
  explicit CudaQuantiseOps(CudaContext context) : context_(std::move(context)) {}

  absl::Status Quantise(StreamRef stream, const math::QuantiseSpec& s, const float* in, void* out,
                        uint64_t* clipped) override {
    static_assert(sizeof(unsigned long long) == sizeof(uint64_t));  // NOLINT
    const DeviceGuard guard(context_.ordinal);
    const auto blocks = static_cast<unsigned>(
        std::clamp<int64_t>((s.count + kThreads - 1) / kThreads, 1, kMostBlocks));
    QuantiseKernel<<<blocks, kThreads, 0, AsCuda(stream)>>>(
        s, in, out, reinterpret_cast<unsigned long long*>(clipped));  // NOLINT
    OCTAVO_CUDA(context_.health.get(), cudaGetLastError());
    return absl::OkStatus();
  }

 private:
  const CudaContext context_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<QuantiseOps>> MakeQuantiseOps(Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(CudaContext context, FindCudaContext(device, QuantiseOps::kFamily));
  return std::make_unique<CudaQuantiseOps>(std::move(context));
}

}  // namespace octavo::inline gpu::cuda

#include <algorithm>

#include "gpu/array/extremes.h"
#include "gpu/base/status.h"
#include "gpu/device/cuda/cuda_context.h"
#include "gpu/device/cuda/cuda_stream.h"
#include "gpu/device/scalar_dispatch.h"
#include "gpu/math/array_ops.h"
#include "gpu/math/element_value.h"

namespace octavo::inline gpu::cuda {
namespace {

constexpr int kThreads = 256;

unsigned Blocks(int64_t items) {
  return static_cast<unsigned>(std::clamp<int64_t>((items + kThreads - 1) / kThreads, 1, 1 << 20));
}
__device__ inline int64_t FirstItem() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t ItemStep() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

// The numbers that are compared: halves as f32, every other type itself.
template <typename T>
struct ComparedAs {
  using type = T;
};
template <>
struct ComparedAs<math::Half> {
  using type = float;
};

template <typename T, typename V>
__device__ inline void Visit(const ArgExtremeSpec& s, const T* in, const uint8_t* mask,
                             int64_t start, int64_t r, math::ExtremePlace<V>* best) {
  const int64_t at = start + r * s.axes.run_stride[1];
  if (mask != nullptr && mask[s.lanes == 1 ? at : at / s.lanes] == 0) return;
  math::IncludePlace(s.extreme, s.skip_nan, math::ValueOf<V>(in[at]), r, best);
}

// One thread per result; neighbouring threads have neighbouring results.
template <typename T>
__global__ void ByThread(ArgExtremeSpec s, const T* in, const uint8_t* mask, void* out) {
  using V = typename ComparedAs<T>::type;
  for (int64_t k = FirstItem(); k < s.axes.results(); k += ItemStep()) {
    const int64_t start = s.axes.First(k);
    math::ExtremePlace<V> best;
#pragma unroll 4
    for (int64_t r = 0; r < s.axes.run[1]; ++r) Visit(s, in, mask, start, r, &best);
    math::Store(s.out, out, k, {static_cast<double>(best.index)});
  }
}

// `threads` threads per result, a warp or a block; neighbouring threads have neighbouring elements
// of it.
template <typename T>
__global__ void ByGroup(ArgExtremeSpec s, int threads, const T* in, const uint8_t* mask,
                        void* out) {
  using V = typename ComparedAs<T>::type;
  __shared__ math::ExtremePlace<V> found[kThreads / 32];
  const int lane = static_cast<int>(threadIdx.x) % threads;
  const int64_t first = FirstItem() / threads, step = ItemStep() / threads;
  // All threads of a block take the same number of turns, because they meet in each.
  const int64_t turns = (s.axes.results() + step - 1) / step;
  for (int64_t turn = 0; turn < turns; ++turn) {
    const int64_t k = first + turn * step;
    const bool works = k < s.axes.results();
    math::ExtremePlace<V> best;
    if (works) {
      const int64_t start = s.axes.First(k);
#pragma unroll 4
      for (int64_t r = lane; r < s.axes.run[1]; r += threads) Visit(s, in, mask, start, r, &best);
    }
    for (int offset = 16; offset > 0; offset /= 2) {
      // Shuffles move 32 and 64 bits: shorter types travel as ints.
      math::ExtremePlace<V> other;
      if constexpr (sizeof(V) < 4) {
        other.value =
            static_cast<V>(__shfl_down_sync(0xFFFFFFFFu, static_cast<int>(best.value), offset));
      } else {
        other.value = __shfl_down_sync(0xFFFFFFFFu, best.value, offset);
      }
      other.index = __shfl_down_sync(0xFFFFFFFFu, best.index, offset);
      if (math::Replaces(s.extreme, other, best)) best = other;
    }
    if (threads > 32) {
      __syncthreads();  // the turn before has been read
      if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = best;
      __syncthreads();
      for (int w = 1; lane == 0 && w < kThreads / 32; ++w) {
        if (math::Replaces(s.extreme, found[w], best)) best = found[w];
      }
    }
    if (works && lane == 0) math::Store(s.out, out, k, {static_cast<double>(best.index)});
  }
}

class CudaExtremeOps final : public ExtremeOps {
 public:
  CudaExtremeOps(int ordinal, std::shared_ptr<DeviceHealth> health)
      : ordinal_(ordinal), health_(std::move(health)) {}

  absl::Status ArgExtreme(StreamRef stream, const ArgExtremeSpec& s, const void* in,
                          const uint8_t* mask, void* out) override {
    const DeviceGuard guard(ordinal_);
    const int64_t results = s.axes.results();
    DispatchReal(s.in, [&](auto element) {
      using T = decltype(element);
      const T* const from = static_cast<const T*>(in);
      if (s.axes.run_stride[1] != 1 && results > 1) {
        ByThread<T><<<Blocks(results), kThreads, 0, AsCuda(stream)>>>(s, from, mask, out);
      } else {
        const int threads = s.axes.run[1] > 4096 ? kThreads : 32;
        ByGroup<T><<<Blocks(results * threads), kThreads, 0, AsCuda(stream)>>>(s, threads, from,
                                                                               mask, out);
      }
    });
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }

 private:
  const int ordinal_;
  const std::shared_ptr<DeviceHealth> health_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ExtremeOps>> MakeExtremeOps(Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(CudaContext context, FindCudaContext(device, ExtremeOps::kFamily));
  return std::make_unique<CudaExtremeOps>(context.ordinal, std::move(context.health));
}

}  // namespace octavo::inline gpu::cuda

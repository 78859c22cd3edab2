#pragma once

// Private to this folder: launches, loops over all pixels of rows, sums of a block, a sorting
// network.

#include <algorithm>
#include <cstdint>
#include <cuda_runtime.h>
#include <memory>
#include <type_traits>
#include <utility>

#include "gpu/base/status.h"
#include "gpu/device/cuda/cuda_stream.h"

namespace octavo::inline gpu::cuda {

inline constexpr int kRowThreads = 256;

// Calls f(row, column): one block per row if rows are long, otherwise one thread per pixel.
template <class F>
__global__ void LongRowsKernel(int64_t rows, int64_t columns, F f) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    for (int64_t column = threadIdx.x; column < columns; column += kRowThreads) f(row, column);
  }
}
template <class F>
__global__ void ShortRowsKernel(int64_t count, int64_t columns, F f) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kRowThreads + threadIdx.x; i < count;
       i += static_cast<int64_t>(gridDim.x) * kRowThreads) {
    f(i / columns, i % columns);
  }
}
template <class F>
void LaunchRows(cudaStream_t stream, int64_t rows, int64_t columns, F f) {
  constexpr int64_t kMostBlocks = int64_t{1} << 20;
  if (columns >= kRowThreads / 2) {
    LongRowsKernel<<<static_cast<unsigned>(std::min(rows, kMostBlocks)), kRowThreads, 0, stream>>>(
        rows, columns, f);
  } else {
    const int64_t blocks = (rows * columns + kRowThreads - 1) / kRowThreads;
    ShortRowsKernel<<<static_cast<unsigned>(std::min(blocks, kMostBlocks)), kRowThreads, 0,
                      stream>>>(rows * columns, columns, f);
  }
}

// Adds up kValues numbers of each of the block's kThreads threads in a fixed order. The threads of
// one lane are kLanes apart, and thread t < kLanes gets the sums of lane t.
template <int kThreads, int kLanes, int kValues>
__device__ void BlockSums(double (&mine)[kValues]) {
  __shared__ double parts[kThreads / 32][kLanes][kValues];
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    for (int offset = 16; offset >= kLanes; offset /= 2)
      mine[i] += __shfl_down_sync(0xFFFFFFFFu, mine[i], offset);
    if ((threadIdx.x & 31) < kLanes) parts[threadIdx.x / 32][threadIdx.x & 31][i] = mine[i];
  }
  __syncthreads();
  if (threadIdx.x >= kLanes) return;
  for (int i = 0; i < kValues; ++i) {
    for (int w = 1; w < kThreads / 32; ++w) mine[i] += parts[w][threadIdx.x][i];
  }
}

// Sorts n = 2^m keys in shared memory in ascending order (Batcher's bitonic network). All threads
// of the block must call it.
__device__ inline void SortShared(uint64_t* keys, int n) {
  for (int k = 2; k <= n; k *= 2) {
    for (int j = k / 2; j > 0; j /= 2) {
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < n / 2; i += static_cast<int>(blockDim.x)) {
        const int low = 2 * i - (i & (j - 1)), high = low + j;
        const uint64_t a = keys[low], b = keys[high];
        if ((a > b) == ((low & k) == 0)) {
          keys[low] = b;
          keys[high] = a;
        }
      }
    }
  }
  __syncthreads();
}

/// Launches the kernels of one device.
class TomoLauncher {
 public:
  TomoLauncher(int ordinal, std::shared_ptr<DeviceHealth> health)
      : ordinal_(ordinal), health_(std::move(health)) {}

 protected:
  /// Calls `f`, which launches kernels and returns nothing or a Status.
  template <class F>
  absl::Status Launch(F f) const {
    const DeviceGuard guard(ordinal_);
    if constexpr (std::is_void_v<std::invoke_result_t<F>>) {
      f();
    } else {
      OCTAVO_RETURN_IF_ERROR(f());
    }
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }
  /// Calls f(row, column) for all pixels.
  template <class F>
  absl::Status ForRows(StreamRef stream, int64_t rows, int64_t columns, F f) const {
    return Launch([&] { LaunchRows(AsCuda(stream), rows, columns, f); });
  }

  const int ordinal_;
  const std::shared_ptr<DeviceHealth> health_;
};

}  // namespace octavo::inline gpu::cuda

#pragma once

// Launches that the kernels of preprocessing share: over all pixels of rows, and over pairs of a sorting network.

#include <algorithm>
#include <cstdint>
#include <cuda_runtime.h>

namespace octavo::cuda {

inline constexpr int kRowThreads = 256;

// f(row, column): a block a row where rows are long, else a thread a pixel.
template <class F>
__global__ void LongRowsKernel(int64_t rows, int64_t columns, F f) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    for (int64_t column = threadIdx.x; column < columns; column += kRowThreads) f(row, column);
  }
}
template <class F>
__global__ void ShortRowsKernel(int64_t count, int64_t columns, F f) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kRowThreads + threadIdx.x; i < count; i += static_cast<int64_t>(gridDim.x) * kRowThreads) {
    f(i / columns, i % columns);
  }
}
template <class F>
void LaunchRows(cudaStream_t stream, int64_t rows, int64_t columns, F f) {
  constexpr int64_t kMostBlocks = int64_t{1} << 20;
  if (columns >= kRowThreads / 2) {
    LongRowsKernel<<<static_cast<unsigned>(std::min(rows, kMostBlocks)), kRowThreads, 0, stream>>>(rows, columns, f);
  } else {
    const int64_t blocks = (rows * columns + kRowThreads - 1) / kRowThreads;
    ShortRowsKernel<<<static_cast<unsigned>(std::min(blocks, kMostBlocks)), kRowThreads, 0, stream>>>(rows * columns, columns, f);
  }
}

// Sorts n = 2^m keys of shared memory in rising order (Batcher's bitonic network); all threads of the block call it.
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

}  // namespace octavo::cuda

#include <algorithm>

#include "gpu/device/cuda/digest_part.h"
#include "gpu/device/cuda/kernels.h"
#include "gpu/math/digest.h"

namespace octavo::inline gpu::cuda {
namespace {

__global__ void FillKernel(unsigned char* dst, int64_t bytes, uint32_t pattern) {
  const int64_t words = bytes / 4, step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < words; i += step) reinterpret_cast<uint32_t*>(dst)[i] = pattern;
  for (int64_t i = words * 4 + first; i < bytes; i += step)
    dst[i] = static_cast<unsigned char>(pattern >> (8 * (i % 4)));
}

__global__ void Fill16Kernel(uint16_t* dst, int64_t count, uint16_t pattern) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step)
    dst[i] = pattern;
}

template <bool kInRuns>
__global__ void DigestKernel(const unsigned char* src, int64_t bytes, int64_t first, int64_t run,
                             int64_t stride, unsigned long long* out) {
  const auto index = [=](int64_t i) {
    return kInRuns ? math::DigestIndex(i, first, run, stride) : static_cast<uint64_t>(i);
  };
  const int64_t words = bytes / 8, step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  unsigned long long sum = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < words;
       i += step) {
    sum += math::DigestWord(reinterpret_cast<const uint64_t*>(src)[i], index(i));
  }
  if (blockIdx.x == 0 && threadIdx.x == 0 && words * 8 < bytes) {
    uint64_t word = 0;
    for (int64_t b = words * 8; b < bytes; ++b)
      word |= static_cast<uint64_t>(src[b]) << (8 * (b - words * 8));
    sum += math::DigestWord(word, index(words));
  }
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xFFFFFFFFu, sum, offset);
  // These are sums of integers, so the order of additions does not matter.
  if ((threadIdx.x & 31) == 0) atomicAdd(out, sum);
}

__global__ void DelayKernel(int64_t ns) {
  const auto now = [] {
    long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
  };
  for (const long long begin = now(); now() - begin < ns;) __nanosleep(1000);
}

__global__ void StampKernel(int64_t* out) {
  long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  *out = now;
}

}  // namespace

void LaunchFill(cudaStream_t stream, void* dst, int64_t bytes, uint32_t pattern) {
  const auto blocks = static_cast<unsigned>(std::min<int64_t>((bytes / 4 + 255) / 256 + 1, 2048));
  // An array of 16-bit elements may begin in the middle of a word.
  if (pattern >> 16 == (pattern & 0xFFFFu) && reinterpret_cast<uintptr_t>(dst) % 4 == 2 &&
      bytes % 2 == 0) {
    Fill16Kernel<<<blocks, 256, 0, stream>>>(static_cast<uint16_t*>(dst), bytes / 2,
                                             static_cast<uint16_t>(pattern));
    return;
  }
  FillKernel<<<blocks, 256, 0, stream>>>(static_cast<unsigned char*>(dst), bytes, pattern);
}

void LaunchDigest(cudaStream_t stream, const void* src, int64_t bytes, uint64_t* out) {
  const auto blocks = static_cast<unsigned>(std::min<int64_t>((bytes / 8 + 255) / 256 + 1, 1056));
  DigestKernel<false><<<blocks, 256, 0, stream>>>(static_cast<const unsigned char*>(src), bytes, 0,
                                                  0, 0, reinterpret_cast<unsigned long long*>(out));
}

void LaunchDigestOfPart(cudaStream_t stream, const void* src, int64_t bytes, int64_t first,
                        int64_t run, int64_t stride, uint64_t* out) {
  const auto blocks = static_cast<unsigned>(std::min<int64_t>((bytes / 8 + 255) / 256 + 1, 1056));
  DigestKernel<true><<<blocks, 256, 0, stream>>>(static_cast<const unsigned char*>(src), bytes,
                                                 first, run, stride,
                                                 reinterpret_cast<unsigned long long*>(out));
}

void LaunchDelay(cudaStream_t stream, int64_t ns) { DelayKernel<<<1, 1, 0, stream>>>(ns); }
void LaunchStamp(cudaStream_t stream, int64_t* out) { StampKernel<<<1, 1, 0, stream>>>(out); }

}  // namespace octavo::inline gpu::cuda

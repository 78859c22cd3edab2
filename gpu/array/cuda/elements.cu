#include <algorithm>
#include <cmath>

#include "gpu/array/elements.h"
#include "gpu/base/status.h"
#include "gpu/device/cuda/cuda_context.h"
#include "gpu/device/cuda/cuda_stream.h"
#include "gpu/device/scalar_dispatch.h"
#include "gpu/math/element_value.h"

namespace octavo::inline gpu::cuda {
namespace {

// What bounds all of these is memory. A thread reads and writes 4 neighbouring elements at a time,
// so that elements of a byte also fill the memory's transactions.
constexpr int kPack = 4;
constexpr int kThreads = 256;

template <typename T>
struct alignas(kPack * sizeof(T)) Pack {
  T at[kPack];
};
struct alignas(16) Bytes16 {
  char bytes[16];
};

unsigned Blocks(int64_t items) {
  return static_cast<unsigned>(std::clamp<int64_t>((items + kThreads - 1) / kThreads, 1, 1 << 20));
}
__device__ inline int64_t FirstItem() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t ItemStep() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

// out[i] = f(in[i], i).
template <typename T, typename O, typename F>
__global__ void EachKernel(int64_t count, const T* in, O* out, F f) {
  const int64_t packs = count / kPack;
  for (int64_t p = FirstItem(); p < packs; p += ItemStep()) {
    const Pack<T> from = reinterpret_cast<const Pack<T>*>(in)[p];
    Pack<O> to;
#pragma unroll
    for (int k = 0; k < kPack; ++k) to.at[k] = f(from.at[k], p * kPack + k);
    reinterpret_cast<Pack<O>*>(out)[p] = to;
  }
  for (int64_t i = packs * kPack + FirstItem(); i < count; i += ItemStep()) out[i] = f(in[i], i);
}

template <typename T>
struct Applied {
  using V = typename math::ComputedIn<T>::type;
  math::Function function;
  bool keep_rest;
  __device__ V operator()(T v, int64_t) const {
    return math::FunctionOf(function, keep_rest, math::ValueOf<V>(v));
  }
};

template <typename T>
struct Above {
  double threshold;
  const double* found;  // on the device; null: `threshold`
  __device__ uint8_t operator()(T v, int64_t) const {
    return math::IsAbove(math::ValueOf<double>(v), found != nullptr ? *found : threshold) ? 1 : 0;
  }
};

// An element of `other`, or `value`.
template <typename T>
struct Rest {
  const T* other;
  int64_t other_count;
  T value;
  __device__ T At(int64_t i) const { return other == nullptr ? value : other[i % other_count]; }
};
template <typename T>
struct ChosenByMask {
  const uint8_t* mask;
  int64_t lanes, mask_count;
  Rest<T> rest;
  __device__ T operator()(T v, int64_t i) const {
    const int64_t at = lanes == 1 ? i : i / lanes;
    return mask[at < mask_count ? at : at % mask_count] != 0 ? v : rest.At(i);
  }
};
template <typename T>
struct ChosenAbove {
  Above<T> above;
  Rest<T> rest;
  __device__ T operator()(T v, int64_t i) const { return above(v, i) != 0 ? v : rest.At(i); }
};

// -- Otsu's threshold: the workspace has the threshold, two keys and the counts.

__global__ void BeginOtsu(int64_t bins, unsigned long long* work) {
  for (int64_t i = threadIdx.x; i < 3 + bins; i += blockDim.x) work[i] = i == 1 ? ~0ull : 0ull;
}

template <typename T>
__global__ void OtsuRange(int64_t count, const T* in, unsigned long long* work) {
  unsigned long long least = ~0ull, most = 0;
  for (int64_t i = FirstItem(); i < count; i += ItemStep()) {
    const double v = math::ValueOf<double>(in[i]);
    if (!(v - v == 0)) continue;
    const unsigned long long key = math::KeyOf(v);
    least = min(least, key);
    most = max(most, key);
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    least = min(least, __shfl_down_sync(0xFFFFFFFFu, least, offset));
    most = max(most, __shfl_down_sync(0xFFFFFFFFu, most, offset));
  }
  if (threadIdx.x % 32 != 0) return;
  atomicMin(&work[1], least);
  atomicMax(&work[2], most);
}

template <typename T>
__global__ void OtsuCount(int64_t count, int64_t bins, const T* in, unsigned long long* work) {
  extern __shared__ unsigned own[];
  if (work[1] > work[2]) return;  // nothing is finite
  const double lo = math::OfKey(work[1]), hi = math::OfKey(work[2]);
  for (int64_t b = threadIdx.x; b < bins; b += blockDim.x) own[b] = 0;
  __syncthreads();
  for (int64_t i = FirstItem(); i < count; i += ItemStep()) {
    if (const int64_t bin = math::BinOf(math::ValueOf<double>(in[i]), lo, hi, bins); bin >= 0)
      atomicAdd(&own[bin], 1u);
  }
  __syncthreads();
  for (int64_t b = threadIdx.x; b < bins; b += blockDim.x) {
    if (own[b] != 0) atomicAdd(&work[3 + b], static_cast<unsigned long long>(own[b]));
  }
}

__global__ void EndOtsu(int64_t bins, unsigned long long* work) {
  double threshold = NAN;
  if (work[1] <= work[2]) {
    threshold = math::OtsuThreshold(reinterpret_cast<const uint64_t*>(work + 3),
                                    math::OfKey(work[1]), math::OfKey(work[2]), bins);
  }
  *reinterpret_cast<double*>(work) = threshold;
}

class CudaElementOps final : public ElementOps {
 public:
  CudaElementOps(int ordinal, std::shared_ptr<DeviceHealth> health)
      : ordinal_(ordinal), health_(std::move(health)) {}

  absl::Status Apply(StreamRef stream, const FunctionSpec& s, const void* in, void* out) override {
    const DeviceGuard guard(ordinal_);
    DispatchReal(s.in, [&](auto element) {
      using T = decltype(element);
      using V = typename math::ComputedIn<T>::type;
      Each<T, V>(stream, s.count, in, out, Applied<T>{s.function, s.keep_rest});
    });
    return Launched();
  }

  absl::Status Otsu(StreamRef stream, const AboveSpec& s, const void* in,
                    void* workspace) override {
    const DeviceGuard guard(ordinal_);
    auto* const work = static_cast<unsigned long long*>(workspace);
    const unsigned blocks = std::min(Blocks(s.count), 1056u);
    BeginOtsu<<<1, kThreads, 0, AsCuda(stream)>>>(s.bins, work);
    DispatchReal(s.in, [&](auto element) {
      using T = decltype(element);
      const T* const from = static_cast<const T*>(in);
      OtsuRange<T><<<blocks, kThreads, 0, AsCuda(stream)>>>(s.count, from, work);
      OtsuCount<T><<<blocks, kThreads, static_cast<size_t>(s.bins) * 4, AsCuda(stream)>>>(
          s.count, s.bins, from, work);
    });
    EndOtsu<<<1, 1, 0, AsCuda(stream)>>>(s.bins, work);
    return Launched();
  }

  absl::Status Above(StreamRef stream, const AboveSpec& s, const void* in, const double* threshold,
                     void* out) override {
    const DeviceGuard guard(ordinal_);
    DispatchReal(s.in, [&](auto element) {
      using T = decltype(element);
      Each<T, uint8_t>(stream, s.count, in, out, cuda::Above<T>{s.threshold, threshold});
    });
    return Launched();
  }

  absl::Status Choose(StreamRef stream, const ChooseSpec& s, const void* in, const uint8_t* mask,
                      const double* threshold, const void* other, void* out) override {
    const DeviceGuard guard(ordinal_);
    if (mask == nullptr) {
      DispatchReal(s.in, [&](auto element) {
        using T = decltype(element);
        Each<T, T>(stream, s.count, in, out,
                   ChosenAbove<T>{{s.above.threshold, threshold}, RestOf<T>(s, other)});
      });
      return Launched();
    }
    const auto by_mask = [&](auto element) {
      using T = decltype(element);
      Each<T, T>(stream, s.count, in, out,
                 ChosenByMask<T>{mask, s.lanes, s.mask_count, RestOf<T>(s, other)});
    };
    switch (SizeOf(s.in)) {
      case 1: by_mask(uint8_t{}); break;
      case 2: by_mask(uint16_t{}); break;
      case 4: by_mask(uint32_t{}); break;
      case 8: by_mask(uint64_t{}); break;
      default: by_mask(Bytes16{}); break;
    }
    return Launched();
  }

 private:
  template <typename T>
  static Rest<T> RestOf(const ChooseSpec& s, const void* other) {
    Rest<T> rest{static_cast<const T*>(other), s.other_count, T{}};
    memcpy(&rest.value, s.value, sizeof(T));
    return rest;
  }
  template <typename T, typename O, typename F>
  static void Each(StreamRef stream, int64_t count, const void* in, void* out, const F& f) {
    EachKernel<T, O, F><<<Blocks(count / kPack), kThreads, 0, AsCuda(stream)>>>(
        count, static_cast<const T*>(in), static_cast<O*>(out), f);
  }
  absl::Status Launched() {
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }

  const int ordinal_;
  const std::shared_ptr<DeviceHealth> health_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ElementOps>> MakeElementOps(Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(CudaContext context, FindCudaContext(device, ElementOps::kFamily));
  return std::make_unique<CudaElementOps>(context.ordinal, std::move(context.health));
}

}  // namespace octavo::inline gpu::cuda

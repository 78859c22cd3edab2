#include <algorithm>
#include <cmath>
#include <list>
#include <mutex>

#include "gpu/array/array_ops.h"
#include "gpu/array/warp_elements.h"
#include "gpu/base/status.h"
#include "gpu/device/cuda/cuda_context.h"
#include "gpu/device/cuda/cuda_stream.h"
#include "gpu/device/cuda/cufft_library.h"

namespace octavo::inline gpu::cuda {
namespace {

using math::Accumulator;
using math::Number;

constexpr int kThreads = 256;
unsigned Blocks(int64_t items) {
  return static_cast<unsigned>(std::clamp<int64_t>((items + kThreads - 1) / kThreads, 1, 1 << 20));
}
__device__ inline int64_t FirstItem() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t ItemStep() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

// Index has 32 bits if the numbers allow it, because 64-bit divisions take several times as long.
template <typename T, typename Index>
__global__ void GatherKernel(GatherSpec s, const T* in, T* out) {
  const Index count = static_cast<Index>(s.out[0] * s.out[1] * s.out[2] * s.out[3]);
  const auto n1 = static_cast<Index>(s.out[1]), n2 = static_cast<Index>(s.out[2]),
             n3 = static_cast<Index>(s.out[3]);
  for (int64_t at = FirstItem(); at < static_cast<int64_t>(count); at += ItemStep()) {
    const auto i = static_cast<Index>(at);
    const Index r = i / n3, i3 = i - r * n3, q = r / n2, i2 = r - q * n2, i0 = q / n1,
                i1 = q - i0 * n1;
    const int64_t there =
        s.offset + static_cast<int64_t>(i0) * s.stride[0] + static_cast<int64_t>(i1) * s.stride[1] +
        static_cast<int64_t>(i2) * s.stride[2] + static_cast<int64_t>(i3) * s.stride[3];
    if (s.scatter) {
      out[there] = in[i];
    } else {
      out[i] = in[there];
    }
  }
}

__global__ void MapKernel(MapSpec s, const void* in, const void* other, void* out) {
  for (int64_t i = FirstItem(); i < s.count; i += ItemStep())
    math::Store(s.out, out, i, Mapped(s, in, other, i));
}

__device__ inline Number Element(const ReduceSpec& s, const void* in, int64_t at) {
  return math::PartOf(s.part, math::Load(s.in, in, at));
}

__device__ inline void Keep(const ReduceSpec& s, int64_t k, int64_t part, const Accumulator& sum,
                            void* out, Accumulator* parts) {
  if (s.parts == 1) {
    math::Store(s.out, out, k, math::Finish(s.kind, s.skip_nan, sum));
  } else {
    parts[k * s.parts + part] = sum;
  }
}

// One thread per part of a result; neighbouring threads have neighbouring results.
__global__ void ReduceByThread(ReduceSpec s, const void* in, const uint8_t* mask, void* out,
                               Accumulator* parts) {
  const int64_t results = s.axes.results(), length = s.axes.length(),
                part_length = (length + s.parts - 1) / s.parts;
  for (int64_t item = FirstItem(); item < results * s.parts; item += ItemStep()) {
    const int64_t part = item / results, k = item % results, start = s.axes.First(k);
    const int64_t begin = part * part_length, end = min(length, begin + part_length);
    Accumulator sum;
    for (int64_t r = begin, r0 = begin / s.axes.run[1], r1 = begin % s.axes.run[1]; r < end; ++r) {
      const int64_t at = start + r0 * s.axes.run_stride[0] + r1 * s.axes.run_stride[1];
      if (Counts(s.mask, mask, at)) math::Include(s.kind, Element(s, in, at), &sum);
      if (++r1 == s.axes.run[1]) r1 = 0, ++r0;
    }
    Keep(s, k, part, sum, out, parts);
  }
}

// One warp per part of a result; neighbouring threads have neighbouring elements of it.
__global__ void ReduceByWarp(ReduceSpec s, const void* in, const uint8_t* mask, void* out,
                             Accumulator* parts) {
  const int64_t results = s.axes.results(), length = s.axes.length(),
                part_length = (length + s.parts - 1) / s.parts;
  const int lane = static_cast<int>(threadIdx.x & 31);
  for (int64_t item = FirstItem() / 32; item < results * s.parts; item += ItemStep() / 32) {
    const int64_t part = item / results, k = item % results, start = s.axes.First(k);
    const int64_t begin = part * part_length, end = min(length, begin + part_length);
    Accumulator sum;
    int64_t r0 = (begin + lane) / s.axes.run[1], r1 = (begin + lane) % s.axes.run[1];
    for (int64_t r = begin + lane; r < end; r += 32) {
      const int64_t at = start + r0 * s.axes.run_stride[0] + r1 * s.axes.run_stride[1];
      if (Counts(s.mask, mask, at)) math::Include(s.kind, Element(s, in, at), &sum);
      for (r1 += 32; r1 >= s.axes.run[1]; r1 -= s.axes.run[1]) ++r0;
    }
    for (int offset = 16; offset > 0; offset /= 2) {
      Accumulator other;
      other.shift = __shfl_down_sync(0xFFFFFFFFu, sum.shift, offset);
      other.re = __shfl_down_sync(0xFFFFFFFFu, sum.re, offset);
      other.im = __shfl_down_sync(0xFFFFFFFFu, sum.im, offset);
      other.square = __shfl_down_sync(0xFFFFFFFFu, sum.square, offset);
      other.extreme = __shfl_down_sync(0xFFFFFFFFu, sum.extreme, offset);
      other.count = __shfl_down_sync(0xFFFFFFFFu, sum.count, offset);
      other.nan = __shfl_down_sync(0xFFFFFFFFu, sum.nan, offset);
      math::Join(s.kind, other, &sum);
    }
    if (lane == 0) Keep(s, k, part, sum, out, parts);
  }
}

__global__ void JoinParts(ReduceSpec s, const Accumulator* parts, void* out) {
  for (int64_t k = FirstItem(); k < s.axes.results(); k += ItemStep()) {
    Accumulator sum;
    for (int64_t p = 0; p < s.parts; ++p) math::Join(s.kind, parts[k * s.parts + p], &sum);
    math::Store(s.out, out, k, math::Finish(s.kind, s.skip_nan, sum));
  }
}

// One block per result: order statistics by radix selection on keys, one byte at a time, the
// highest byte first.
__global__ void SelectKernel(SelectSpec s, const void* in, const uint8_t* mask, void* out) {
  __shared__ unsigned bins[256];
  __shared__ uint64_t prefix;
  __shared__ unsigned rank, total;
  const int64_t results = s.axes.results(), length = s.axes.length();
  for (int64_t k = blockIdx.x; k < results; k += gridDim.x) {
    const int64_t start = s.axes.First(k);
    for (int p = 0; p < s.percentiles; ++p) {
      double below = 0, result = NAN, fraction = 0;
      for (int above = 0; above < 2; ++above) {
        uint64_t found = 0;
        for (int d = 0; d < s.digits; ++d) {
          const int shift = 56 - 8 * d;
          for (unsigned b = threadIdx.x; b < 256; b += blockDim.x) bins[b] = 0;
          if (d == 0 && threadIdx.x == 0) prefix = 0;
          __syncthreads();
          int64_t r0 = threadIdx.x / s.axes.run[1], r1 = threadIdx.x % s.axes.run[1];
          for (int64_t r = threadIdx.x; r < length; r += blockDim.x) {
            const int64_t at = start + r0 * s.axes.run_stride[0] + r1 * s.axes.run_stride[1];
            for (r1 += blockDim.x; r1 >= s.axes.run[1]; r1 -= s.axes.run[1]) ++r0;
            if (!Counts(s.mask, mask, at)) continue;
            const double v = math::Load(s.in, in, at).re;
            if (!(v == v)) continue;
            const uint64_t key = math::KeyOf(v);
            if ((key & found) == prefix) atomicAdd(&bins[key >> shift & 255], 1u);
          }
          __syncthreads();
          if (threadIdx.x == 0) {
            if (d == 0) {
              total = 0;
              for (unsigned b = 0; b < 256; ++b) total += bins[b];
              rank = total == 0 ? 0
                                : static_cast<unsigned>(s.percentile[p] / 100 *
                                                        static_cast<double>(total - 1)) +
                                      static_cast<unsigned>(above);
            }
            unsigned b = 0;
            while (b < 255 && rank >= bins[b]) rank -= bins[b++];
            prefix |= static_cast<uint64_t>(b) << shift;
          }
          found |= uint64_t{255} << shift;
          __syncthreads();
        }
        if (total == 0) break;
        // The digits that the selection skips are zeros in keys of positive numbers and ones in
        // keys of negative numbers.
        const double v = math::OfKey(prefix >> 63 != 0 ? prefix : prefix | ~found);
        const double exact = s.percentile[p] / 100 * static_cast<double>(total - 1);
        fraction = exact - floor(exact);
        if (above == 0) below = result = v;
        if (above == 1) result = math::Between(below, v, fraction);
        if (!(fraction > 0)) break;
        __syncthreads();  // all threads have read prefix and total
      }
      if (threadIdx.x == 0) math::Store(s.out, out, p * results + k, {result});
      __syncthreads();
    }
  }
}

constexpr int64_t kSharedBins = 4096;
// A block counts in shared memory if the bins fit there.
__global__ void HistogramKernel(HistogramSpec s, const void* in, const uint8_t* mask,
                                unsigned long long* counts) {
  extern __shared__ unsigned own[];
  const bool shared = s.bins <= kSharedBins;
  for (int64_t b = threadIdx.x; shared && b < s.bins; b += blockDim.x) own[b] = 0;
  __syncthreads();
  for (int64_t i = FirstItem(); i < s.count; i += ItemStep()) {
    if (!Counts(s.mask, mask, i)) continue;
    const int64_t bin = math::BinOf(math::Load(s.in, in, i).re, s.lo, s.hi, s.bins);
    if (bin < 0) continue;
    if (shared) {
      atomicAdd(&own[bin], 1u);
    } else {
      atomicAdd(&counts[bin], 1ull);
    }
  }
  __syncthreads();
  for (int64_t b = threadIdx.x; shared && b < s.bins; b += blockDim.x) {
    if (own[b] != 0) atomicAdd(&counts[b], static_cast<unsigned long long>(own[b]));
  }
}

template <class In>
__global__ void TapsKernel(TapsSpec s, In in, const int32_t* index, const double* weight,
                           void* out) {
  const int64_t count = s.outer * s.m * s.inner;
  for (int64_t at = FirstItem(); at < count; at += ItemStep())
    TapsOne(s, count < int64_t{1} << 31, in, index, weight, out, at);
}

// Taps for fewer than 2^31 numbers: a thread makes several results of the same taps, so that it
// reads the table once and waits for the samples together. kWide: these results follow each other
// along the inner axes, else along the outer ones.
constexpr int kTapsLanes = 32, kTapsRows = 8, kTapsResults = 4;
template <bool kWide, class In>
__global__ void __launch_bounds__(kTapsLanes* kTapsRows)
    TapsTogether(TapsSpec s, In in, const int32_t* __restrict__ index,
                 const double* __restrict__ weight, void* out) {
  const int m = static_cast<int>(s.m), inner = static_cast<int>(s.inner),
            line = static_cast<int>(s.n) * inner, made = m * inner;
  const int row = static_cast<int>(blockIdx.x) * kTapsRows + static_cast<int>(threadIdx.y);
  int o, i, q, left, from_step, to_step;  // left: results from here on
  if constexpr (kWide) {
    o = row / m;
    i = row - o * m;
    q = static_cast<int>(blockIdx.y) * kTapsLanes * kTapsResults + static_cast<int>(threadIdx.x);
    if (o >= static_cast<int>(s.outer) || q >= inner) return;
    left = (inner - q + kTapsLanes - 1) / kTapsLanes;
    from_step = to_step = kTapsLanes;
  } else {
    const int place = static_cast<int>(blockIdx.y) * kTapsLanes + static_cast<int>(threadIdx.x);
    i = place / inner;
    q = place - i * inner;
    o = row * kTapsResults;
    if (o >= static_cast<int>(s.outer) || i >= m) return;
    left = static_cast<int>(s.outer) - o;
    from_step = line;
    to_step = made;
  }
  double sum[kTapsResults] = {};
  const int taps = static_cast<int>(s.taps), first = o * line + q;
  for (int t = i * taps; t < (i + 1) * taps; ++t) {
    const double w = weight[t];
    if (w == 0) continue;  // such a sample must not contribute, since it may be NaN
    const int from = first + index[t] * inner;
#pragma unroll
    for (int k = 0; k < kTapsResults; ++k) {
      if (k < left) sum[k] += w * static_cast<double>(in(from + k * from_step));
    }
  }
#pragma unroll
  for (int k = 0; k < kTapsResults; ++k) {
    if (k < left)
      math::Store(s.out, out, static_cast<int64_t>(o * made + i * inner + q) + k * to_step,
                  {sum[k]});
  }
}

/// Whether it has been launched.
template <class In>
bool LaunchTapsTogether(cudaStream_t stream, const TapsSpec& s, const In& in, const int32_t* index,
                        const double* weight, void* out) {
  constexpr int64_t kFew = int64_t{1} << 31, kMostBlocks = 65535;  // along y
  if (s.outer * s.inner * std::max(s.n, s.m) >= kFew - kTapsRows * kTapsResults) return false;
  const bool wide = s.inner >= kTapsLanes;
  const int64_t rows = wide ? s.outer * s.m : (s.outer + kTapsResults - 1) / kTapsResults,
                along = wide ? s.inner : s.m * s.inner,
                each = kTapsLanes * (wide ? kTapsResults : 1), chunks = (along + each - 1) / each;
  if (chunks > kMostBlocks) return false;
  const dim3 blocks(static_cast<unsigned>((rows + kTapsRows - 1) / kTapsRows),
                    static_cast<unsigned>(chunks)),
      threads(kTapsLanes, kTapsRows);
  if (wide) {
    TapsTogether<true><<<blocks, threads, 0, stream>>>(s, in, index, weight, out);
  } else {
    TapsTogether<false><<<blocks, threads, 0, stream>>>(s, in, index, weight, out);
  }
  return true;
}

class CudaArrayOps final : public ArrayOps {
 public:
  CudaArrayOps(int ordinal, std::shared_ptr<DeviceHealth> health)
      : ordinal_(ordinal), health_(std::move(health)) {}
  absl::Status Gather(StreamRef stream, const GatherSpec& s, const void* in, void* out) override {
    const DeviceGuard guard(ordinal_);
    const int64_t count = s.out[0] * s.out[1] * s.out[2] * s.out[3];
    const auto launch = [&](auto element) {
      using T = decltype(element);
      if (count < int64_t{1} << 31) {
        GatherKernel<T, uint32_t><<<Blocks(count), kThreads, 0, AsCuda(stream)>>>(
            s, static_cast<const T*>(in), static_cast<T*>(out));
      } else {
        GatherKernel<T, uint64_t><<<Blocks(count), kThreads, 0, AsCuda(stream)>>>(
            s, static_cast<const T*>(in), static_cast<T*>(out));
      }
    };
    switch (s.bytes) {
      case 1: launch(uint8_t{}); break;
      case 2: launch(uint16_t{}); break;
      case 4: launch(uint32_t{}); break;
      case 8: launch(uint64_t{}); break;
      default: launch(double2{}); break;
    }
    return Launched();
  }
  absl::Status Map(StreamRef stream, const MapSpec& s, const void* in, const void* other,
                   void* out) override {
    const DeviceGuard guard(ordinal_);
    MapKernel<<<Blocks(s.count), kThreads, 0, AsCuda(stream)>>>(s, in, other, out);
    return Launched();
  }
  absl::Status Reduce(StreamRef stream, const ReduceSpec& s, const void* in, const uint8_t* mask,
                      void* out, void* workspace) override {
    const DeviceGuard guard(ordinal_);
    const int64_t items = s.axes.results() * s.parts;
    auto* parts = static_cast<Accumulator*>(workspace);
    if (s.axes.run_stride[1] == 1 || s.axes.results() == 1) {
      ReduceByWarp<<<Blocks(items * 32), kThreads, 0, AsCuda(stream)>>>(s, in, mask, out, parts);
    } else {
      ReduceByThread<<<Blocks(items), kThreads, 0, AsCuda(stream)>>>(s, in, mask, out, parts);
    }
    OCTAVO_RETURN_IF_ERROR(Launched());
    if (s.parts == 1) return absl::OkStatus();
    JoinParts<<<Blocks(s.axes.results()), kThreads, 0, AsCuda(stream)>>>(s, parts, out);
    return Launched();
  }
  absl::Status Select(StreamRef stream, const SelectSpec& s, const void* in, const uint8_t* mask,
                      void* out) override {
    const DeviceGuard guard(ordinal_);
    const auto blocks = static_cast<unsigned>(std::min<int64_t>(s.axes.results(), 1 << 20));
    const unsigned threads = s.axes.length() > 4096 ? 1024 : 128;
    SelectKernel<<<blocks, threads, 0, AsCuda(stream)>>>(s, in, mask, out);
    return Launched();
  }
  absl::Status Histogram(StreamRef stream, const HistogramSpec& s, const void* in,
                         const uint8_t* mask, DeviceSpan<uint64_t> counts) override {
    const DeviceGuard guard(ordinal_);
    OCTAVO_CUDA(health_.get(),
                cudaMemsetAsync(counts.data(), 0, static_cast<size_t>(s.bins) * 8, AsCuda(stream)));
    const size_t shared = s.bins <= kSharedBins ? static_cast<size_t>(s.bins) * 4 : 0;
    const auto blocks =
        static_cast<unsigned>(std::clamp<int64_t>(s.count / (kThreads * 16), 1, 1056));
    HistogramKernel<<<blocks, kThreads, shared, AsCuda(stream)>>>(
        s, in, mask, reinterpret_cast<unsigned long long*>(counts.data()));
    return Launched();
  }
  absl::Status Taps(StreamRef stream, const TapsSpec& s, const void* in,
                    DeviceSpan<const int32_t> index, DeviceSpan<const double> weight,
                    void* out) override {
    const DeviceGuard guard(ordinal_);
    const TapsSpec real = RealTaps(s);
    ForNumbers(real.in, in, [&](const auto& numbers) {
      if (LaunchTapsTogether(AsCuda(stream), real, numbers, index.data(), weight.data(), out))
        return;
      TapsKernel<<<Blocks(real.outer * real.m * real.inner), kThreads, 0, AsCuda(stream)>>>(
          real, numbers, index.data(), weight.data(), out);
    });
    return Launched();
  }

  absl::StatusOr<int64_t> PrepareFft(const FftSpec& s) override {
    const DeviceGuard guard(ordinal_);
    OCTAVO_ASSIGN_OR_RETURN(const std::shared_ptr<Plan> plan, PlanOf(s));
    return static_cast<int64_t>(plan->work_bytes);
  }

  absl::Status Fft(StreamRef stream, const FftSpec& s, void* data, void* workspace) override {
    const DeviceGuard guard(ordinal_);
    OCTAVO_ASSIGN_OR_RETURN(const std::shared_ptr<Plan> plan, PlanOf(s));
    // A plan has one stream and one work area at a time.
    const std::lock_guard lock(plan->mutex);
    OCTAVO_CUDA(health_.get(), plan->cufft->SetStream(plan->handle, AsCuda(stream)));
    if (plan->work_bytes > 0)
      OCTAVO_CUDA(health_.get(), plan->cufft->SetWorkArea(plan->handle, workspace));
    auto* complex = static_cast<cufftComplex*>(data);
    OCTAVO_CUDA(health_.get(), plan->cufft->ExecC2C(plan->handle, complex, complex,
                                                    s.inverse ? CUFFT_INVERSE : CUFFT_FORWARD));
    return absl::OkStatus();
  }

 private:
  struct Plan {
    ~Plan() {
      if (handle == 0) return;
      const DeviceGuard guard(ordinal);
      (void)cudaDeviceSynchronize();  // a transform may still be running
      (void)cufft->Destroy(handle);
    }
    int ordinal = 0;
    int64_t n = 0, rows = 0;
    const CufftLibrary* cufft = nullptr;
    cufftHandle handle = 0;
    size_t work_bytes = 0;
    std::mutex mutex;  // while a transform is enqueued
  };

  absl::Status Launched() {
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }

  // The most kinds of transforms whose plans are kept: as many as the overlaps of a large mosaic
  // need, and chains of other clients beside it. Each costs some kilobytes.
  static constexpr size_t kMostPlans = 256;

  /// The plan of a kind of transform. It is made without the lock, because that takes milliseconds
  /// in which others enqueue; who uses a plan that is dropped keeps it.
  absl::StatusOr<std::shared_ptr<Plan>> PlanOf(const FftSpec& s) {
    if (std::shared_ptr<Plan> known = Find(s); known != nullptr) return known;
    OCTAVO_ASSIGN_OR_RETURN(std::shared_ptr<Plan> made, MakePlan(s));
    std::shared_ptr<Plan> dropped;  // ends without the lock
    const std::lock_guard lock(mutex_);
    if (std::shared_ptr<Plan> known = FindLocked(s); known != nullptr) {
      dropped = std::move(made);  // another thread was faster
      return known;
    }
    if (plans_.size() >= kMostPlans) {
      dropped = std::move(plans_.back());
      plans_.pop_back();
    }
    plans_.push_front(made);
    return made;
  }
  std::shared_ptr<Plan> Find(const FftSpec& s) {
    const std::lock_guard lock(mutex_);
    return FindLocked(s);
  }
  // The plan that was used last is first.
  std::shared_ptr<Plan> FindLocked(const FftSpec& s) {
    for (auto it = plans_.begin(); it != plans_.end(); ++it) {
      if ((*it)->n != s.n || (*it)->rows != s.rows) continue;
      plans_.splice(plans_.begin(), plans_, it);
      return plans_.front();
    }
    return nullptr;
  }
  absl::StatusOr<std::shared_ptr<Plan>> MakePlan(const FftSpec& s) {
    auto plan = std::make_shared<Plan>();
    OCTAVO_ASSIGN_OR_RETURN(plan->cufft, LoadCufft());
    plan->ordinal = ordinal_;
    plan->n = s.n;
    plan->rows = s.rows;
    OCTAVO_CUDA(health_.get(), plan->cufft->Create(&plan->handle));
    long long length = s.n;
    OCTAVO_CUDA(health_.get(), plan->cufft->SetAutoAllocation(plan->handle, 0));
    OCTAVO_CUDA(health_.get(),
                plan->cufft->MakePlanMany64(plan->handle, 1, &length, nullptr, 1, length, nullptr,
                                            1, length, CUFFT_C2C, s.rows, &plan->work_bytes));
    return plan;
  }

  const int ordinal_;
  const std::shared_ptr<DeviceHealth> health_;
  std::mutex mutex_;
  std::list<std::shared_ptr<Plan>> plans_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ArrayOps>> MakeArrayOps(Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(CudaContext context, FindCudaContext(device, ArrayOps::kFamily));
  return std::make_unique<CudaArrayOps>(context.ordinal, std::move(context.health));
}

}  // namespace octavo::inline gpu::cuda

#include <algorithm>

#include "gpu/array/filters.h"
#include "gpu/array/median_window.h"
#include "gpu/base/status.h"
#include "gpu/device/cuda/cuda_context.h"
#include "gpu/device/cuda/cuda_stream.h"
#include "gpu/device/scalar_dispatch.h"
#include "gpu/math/element_value.h"
#include "gpu/math/median.h"

namespace octavo::inline gpu::cuda {
namespace {

// -- Correlations. A block stages samples in shared memory, so that each is read once, and a thread
// computes kResults neighbours, so that it reads a staged sample once for all of them. What bounds
// them is memory: each axis reads and writes the array once.

constexpr int kResults = 8;
constexpr int kThreads = 256;
constexpr int kColumns = 32, kColumnRows = kThreads / kColumns * kResults;
constexpr size_t kSharedBytes = 48 << 10;

// Beyond the ends of the axis the constant stands for a sample.
template <typename T, typename V>
__device__ inline V SampleAt(const CorrelateSpec& s, const T* in, int64_t i, int64_t stride) {
  const int64_t at = math::EdgeIndex(s.edge, i, s.n);
  return at < 0 ? static_cast<V>(s.value) : math::ValueOf<V>(in[at * stride]);
}

// A gap after each kResults numbers: then threads that are kResults numbers apart use different
// banks.
__host__ __device__ inline int Gapped(int i) { return i + i / kResults; }

// Along the fastest axis: a block computes segments of `rows` rows, of `segment` results each.
template <typename T, typename V>
__global__ void RowsKernel(CorrelateSpec s, int rows, int segment, const T* in,
                           const double* weight, V* out) {
  extern __shared__ double shared[];
  const int taps = static_cast<int>(s.taps), span = segment + taps - 1, pitch = Gapped(span) + 1,
            threads = segment / kResults;
  V* const weights = reinterpret_cast<V*>(shared);
  const int row = static_cast<int>(threadIdx.x) / threads,
            lane = static_cast<int>(threadIdx.x) % threads;
  V* const tile = weights + taps + row * pitch;
  for (int t = static_cast<int>(threadIdx.x); t < taps; t += kThreads)
    weights[t] = static_cast<V>(weight[t]);
  const int64_t segments = (s.n + segment - 1) / segment,
                o = static_cast<int64_t>(blockIdx.x) / segments * rows + row,
                begin = static_cast<int64_t>(blockIdx.x) % segments * segment,
                first = begin - s.before;
  const bool inside = first >= 0 && first + span <= s.n;
  const T* const from = in + o * s.n;
  for (int i = lane; o < s.outer && i < span; i += threads) {
    tile[Gapped(i)] =
        inside ? math::ValueOf<V>(from[first + i]) : SampleAt<T, V>(s, from, first + i, 1);
  }
  __syncthreads();
  V sums[kResults];
  const int mine = lane * kResults;
  math::Correlate<kResults>([&](int i) { return tile[Gapped(mine + i)]; },
                            [&](int t) { return weights[t]; }, taps, sums);
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kResults; ++k) tile[Gapped(mine + k)] = sums[k];
  __syncthreads();
  for (int i = lane; o < s.outer && i < segment && begin + i < s.n; i += threads)
    out[o * s.n + begin + i] = tile[Gapped(i)];
}

// Along another axis: a block computes kColumnRows results of kColumns columns. The segments of a
// column come one after the other, so that the samples that two of them share are still in the
// cache.
template <typename T, typename V>
__global__ void ColumnsKernel(CorrelateSpec s, const T* in, const double* weight, V* out) {
  extern __shared__ double shared[];
  const int taps = static_cast<int>(s.taps), span = kColumnRows + taps - 1;
  V* const weights = reinterpret_cast<V*>(shared);
  V* const tile = weights + taps;
  const int column = static_cast<int>(threadIdx.x) % kColumns,
            group = static_cast<int>(threadIdx.x) / kColumns;
  for (int t = static_cast<int>(threadIdx.x); t < taps; t += kThreads)
    weights[t] = static_cast<V>(weight[t]);
  const int64_t segments = (s.n + kColumnRows - 1) / kColumnRows,
                columns = (s.inner + kColumns - 1) / kColumns, block = blockIdx.x;
  const int64_t begin = block % segments * kColumnRows,
                q = block / segments % columns * kColumns + column, o = block / segments / columns,
                first = begin - s.before;
  const bool inside = first >= 0 && first + span <= s.n;
  const T* const from = in + o * s.n * s.inner + q;
  for (int i = group; q < s.inner && i < span; i += kThreads / kColumns) {
    tile[i * kColumns + column] = inside ? math::ValueOf<V>(from[(first + i) * s.inner])
                                         : SampleAt<T, V>(s, from, first + i, s.inner);
  }
  __syncthreads();
  if (q >= s.inner) return;
  V sums[kResults];
  const int mine = group * kResults;
  math::Correlate<kResults>([&](int i) { return tile[(mine + i) * kColumns + column]; },
                            [&](int t) { return weights[t]; }, taps, sums);
  V* const to = out + (o * s.n + begin + mine) * s.inner + q;
#pragma unroll
  for (int k = 0; k < kResults; ++k) {
    if (begin + mine + k < s.n) to[k * s.inner] = sums[k];
  }
}

// Kernels that are too long for shared memory, and axes of a few interleaved columns.
template <typename T, typename V>
__global__ void DirectKernel(CorrelateSpec s, const T* in, const double* weight, V* out) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= s.outer * s.n * s.inner) return;
  const int64_t row = at / s.inner, q = at - row * s.inner, o = row / s.n, i = row - o * s.n;
  const T* const from = in + o * s.n * s.inner + q;
  V sum = 0;
  for (int64_t t = 0; t < s.taps; ++t) {
    sum = math::WithTap(sum, static_cast<V>(weight[t]),
                        SampleAt<T, V>(s, from, i - s.before + t, s.inner));
  }
  out[at] = sum;
}

// -- Medians. A thread slides a window along an axis and sorts in registers. Neighbouring threads
// read neighbouring elements. What bounds them is the exchanges.

constexpr int kMedianThreads = 128;

// A thread has `length` results along the axis on which the window slides; an even number.
template <int kSize, int kPlane, typename Key>
__global__ void __launch_bounds__(kMedianThreads)
    MedianKernel(MedianSpec s, int64_t items, int64_t pieces, int length, const void* in,
                 void* out) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= items * pieces) return;
  const bool along_rows = s.slide.stride == 1;
  const int64_t item = along_rows ? at / pieces : at % items,
                begin = (along_rows ? at % pieces : at / items) * length;
  const int64_t end = min(begin + length, s.slide.extent);
  MedianWindow<kSize, kPlane> window;
  window.Place(s, item);
  const auto load = [&](int64_t i, Key(&keys)[kPlane]) { window.Load(s, in, begin + i, keys); };
  math::SlidingMedian<kSize, kPlane, Key> median;
  median.Begin(load);
  for (int64_t i = begin; i < end; i += 2) {
    Key first, second;
    median.Next(i - begin, load, &first, &second);
    window.Store(s, out, i, first);
    if (i + 1 < end) window.Store(s, out, i + 1, second);
  }
}

class CudaFilterOps final : public FilterOps {
 public:
  CudaFilterOps(int ordinal, std::shared_ptr<DeviceHealth> health)
      : ordinal_(ordinal), health_(std::move(health)) {}

  absl::Status Correlate(StreamRef stream, const CorrelateSpec& s, const void* in,
                         DeviceSpan<const double> weight, void* out) override {
    const DeviceGuard guard(ordinal_);
    DispatchReal(s.in, [&](auto element) {
      using T = decltype(element);
      using V = typename math::ComputedIn<T>::type;
      LaunchCorrelate(stream, s, static_cast<const T*>(in), weight.data(), static_cast<V*>(out));
    });
    return Launched();
  }

  absl::Status Median(StreamRef stream, const MedianSpec& s, const void* in, void* out) override {
    const DeviceGuard guard(ordinal_);
    if (SizeOf(s.scalar) == 8) {
      LaunchMedian<uint64_t>(stream, s, in, out);
    } else {
      LaunchMedian<uint32_t>(stream, s, in, out);
    }
    return Launched();
  }

 private:
  template <typename T, typename V>
  static void LaunchCorrelate(StreamRef stream, const CorrelateSpec& s, const T* in,
                              const double* weight, V* out) {
    const auto taps = static_cast<size_t>(s.taps);
    if (s.inner == 1) {
      int segment = 64;
      while (segment < s.n && segment < 1024) segment *= 2;
      const int rows = kThreads * kResults / segment;
      const size_t pitch =
          static_cast<size_t>(
              Gapped(static_cast<int>(std::min<int64_t>(s.taps, 1 << 20)) + segment - 1)) +
          1;
      const size_t bytes = (taps + static_cast<size_t>(rows) * pitch) * sizeof(V);
      const int64_t blocks = (s.n + segment - 1) / segment * ((s.outer + rows - 1) / rows);
      if (bytes <= kSharedBytes) {
        RowsKernel<T, V><<<static_cast<unsigned>(blocks), kThreads, bytes, AsCuda(stream)>>>(
            s, rows, segment, in, weight, out);
        return;
      }
    } else if (s.inner >= kColumns) {
      const size_t bytes = (taps + (taps + kColumnRows - 1) * kColumns) * sizeof(V);
      const int64_t blocks =
          (s.n + kColumnRows - 1) / kColumnRows * ((s.inner + kColumns - 1) / kColumns) * s.outer;
      if (bytes <= kSharedBytes) {
        ColumnsKernel<T, V><<<static_cast<unsigned>(blocks), kThreads, bytes, AsCuda(stream)>>>(
            s, in, weight, out);
        return;
      }
    }
    const int64_t count = s.outer * s.n * s.inner;
    DirectKernel<T, V>
        <<<static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads, 0, AsCuda(stream)>>>(
            s, in, weight, out);
  }

  template <typename Key>
  static void LaunchMedian(StreamRef stream, const MedianSpec& s, const void* in, void* out) {
    const int64_t items = MedianItems(s);
    // Long pieces sort fewer planes twice; many pieces keep the device busy.
    int64_t length = 2;
    while (s.slide.stride != 1 && length < 32 &&
           items * (s.slide.extent / (2 * length)) >= int64_t{1} << 18)
      length *= 2;
    const int64_t pieces = (s.slide.extent + length - 1) / length;
    const auto blocks =
        static_cast<unsigned>((items * pieces + kMedianThreads - 1) / kMedianThreads);
    DispatchMedian(s, [&](auto size, auto plane) {
      MedianKernel<decltype(size)::value, decltype(plane)::value, Key>
          <<<blocks, kMedianThreads, 0, AsCuda(stream)>>>(s, items, pieces,
                                                          static_cast<int>(length), in, out);
    });
  }

  absl::Status Launched() {
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }

  const int ordinal_;
  const std::shared_ptr<DeviceHealth> health_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FilterOps>> MakeFilterOps(Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(CudaContext context, FindCudaContext(device, FilterOps::kFamily));
  return std::make_unique<CudaFilterOps>(context.ordinal, std::move(context.health));
}

}  // namespace octavo::inline gpu::cuda

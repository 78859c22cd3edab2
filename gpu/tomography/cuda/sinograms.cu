#include <algorithm>
#include <memory>

#include "gpu/base/status.h"
#include "gpu/device/cuda/cuda_context.h"
#include "gpu/device/cuda/cuda_stream.h"
#include "gpu/tomography/cuda/launch.cuh"
#include "gpu/tomography/preprocess_ops.h"
#include "gpu/tomography/preprocess_pixels.h"

namespace octavo::inline gpu::cuda {
namespace {

constexpr int kRun = 128;  // detectors that a sliding window passes
constexpr int kSumThreads = 256;

int PowerOfTwo(int64_t n) {
  int power = 2;
  while (power < n) power *= 2;
  return power;
}

template <class T>
__global__ void TurnKernel(int64_t rows, int64_t columns, int64_t tiles_down, const T* in, T* out) {
  __shared__ T tile[32][33];
  const int64_t batch = blockIdx.y / tiles_down, r0 = blockIdx.y % tiles_down * 32,
                c0 = static_cast<int64_t>(blockIdx.x) * 32;
  const int64_t start = batch * rows * columns;
  const int x = static_cast<int>(threadIdx.x);
  for (int y = static_cast<int>(threadIdx.y); y < 32; y += 8) {
    if (r0 + y < rows && c0 + x < columns) tile[y][x] = in[start + (r0 + y) * columns + c0 + x];
  }
  __syncthreads();
  for (int y = static_cast<int>(threadIdx.y); y < 32; y += 8) {
    if (c0 + y < columns && r0 + x < rows) out[start + (c0 + y) * rows + r0 + x] = tile[x][y];
  }
}

// One block per column.
__global__ void SortColumnsKernel(int angles, int padded, const float* in, float* sorted,
                                  int32_t* order) {
  extern __shared__ uint64_t keys[];
  const int64_t start = static_cast<int64_t>(blockIdx.x) * angles;
  for (int a = static_cast<int>(threadIdx.x); a < padded; a += static_cast<int>(blockDim.x)) {
    keys[a] = a < angles ? static_cast<uint64_t>(math::SortKey(in[start + a])) << 32 |
                               static_cast<uint32_t>(a)
                         : ~uint64_t{0};
  }
  SortShared(keys, padded);
  for (int a = static_cast<int>(threadIdx.x); a < angles; a += static_cast<int>(blockDim.x)) {
    sorted[start + a] = math::FromSortKey(static_cast<uint32_t>(keys[a] >> 32));
    order[start + a] = static_cast<int32_t>(keys[a] & 0xFFFFFFFFu);
  }
}

// One thread per angle and run of detectors. The windows are in shared memory, those of
// neighbouring threads interleaved.
__global__ void MedianKernel(ColumnsSpec s, int64_t window, const float* in, float* out) {
  extern __shared__ float values[];
  const int64_t a = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
                begin = static_cast<int64_t>(blockIdx.y) * kRun;
  if (a >= s.angles) return;
  const int64_t end = begin + kRun < s.detectors ? begin + kRun : s.detectors;
  for (int64_t slice = blockIdx.z; slice < s.slices; slice += gridDim.z) {
    const float* from = in + slice * s.detectors * s.angles + a;
    float* to = out + slice * s.detectors * s.angles + a;
    math::SlideMedian(
        math::SortedWindow<float>{values + threadIdx.x, static_cast<int>(blockDim.x), 0}, window,
        false, begin, end,
        [&](int64_t d, int64_t) { return from[math::Mirrored(d, s.detectors) * s.angles]; },
        [&](int64_t d, float median) { to[d * s.angles] = median; });
  }
}

// Adds the sums of the lanes in the order of the lanes.
template <class F>
__device__ double LaneSum(int64_t count, F f) {
  double mine = 0;
  for (int64_t i = threadIdx.x % 32; i < count; i += 32) mine += f(i);
  double sum = 0;
  for (int lane = 0; lane < 32; ++lane) sum += __shfl_sync(0xFFFFFFFFu, mine, lane);
  return sum;
}

// One warp per column.
__global__ void MeanRatiosKernel(ColumnsSpec s, int64_t drop, const float* sorted,
                                 const float* smooth, double* factors) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * (kSumThreads / 32) + threadIdx.x / 32;
  if (column >= s.columns()) return;
  const int64_t start = column * s.angles + drop, count = s.angles - 2 * drop;
  const double a =
      LaneSum(count, [&](int64_t i) { return static_cast<double>(sorted[start + i]); });
  const double b =
      LaneSum(count, [&](int64_t i) { return static_cast<double>(smooth[start + i]); });
  if (threadIdx.x % 32 == 0) factors[column] = RatioOrOne(a, b);
}
__global__ void RoughnessKernel(ColumnsSpec s, const float* in, double* sums) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * (kSumThreads / 32) + threadIdx.x / 32;
  if (column >= s.columns()) return;
  const float* row = in + column * s.angles;
  const double sum = LaneSum(s.angles, [&](int64_t a) {
    return fabs(static_cast<double>(row[a]) - math::MeanOfTen(row, s.angles, a));
  });
  if (threadIdx.x % 32 == 0) sums[column] = sum;
}

// One block per slice.
__global__ void MarkStripesKernel(int detectors, int padded, double snr, bool keep_ends,
                                  const double* factors, uint8_t* mask) {
  extern __shared__ uint64_t keys[];
  __shared__ math::StripeLimits limits;
  const double* list = factors + static_cast<int64_t>(blockIdx.x) * detectors;
  for (int d = static_cast<int>(threadIdx.x); d < padded; d += static_cast<int>(blockDim.x)) {
    keys[d] = d < detectors ? math::SortKey(list[d]) : ~uint64_t{0};
  }
  SortShared(keys, padded);
  if (threadIdx.x == 0) {
    limits = math::FindStripes(
        detectors, snr, [&](int64_t i) { return math::FromSortKey(keys[detectors - 1 - i]); });
  }
  __syncthreads();
  for (int d = static_cast<int>(threadIdx.x); d < detectors; d += static_cast<int>(blockDim.x)) {
    mask[static_cast<int64_t>(blockIdx.x) * detectors + d] =
        MarkedColumn(limits, list, detectors, keep_ends, d);
  }
}

__global__ void WedgeSumsKernel(int64_t rows, int64_t columns, double slope, int64_t drop,
                                const ComplexF* data, double* sums) {
  const int64_t candidate = blockIdx.x / kWedgeParts;
  double total[1] = {0};
  for (int64_t u = blockIdx.x % kWedgeParts; u < columns; u += kWedgeParts) {
    const ComplexF* row = data + (candidate * columns + u) * rows;
    for (int64_t v = threadIdx.x; v < rows; v += kSumThreads) {
      if (!math::OutsideWedge(math::SignedFrequency(v, rows), math::SignedFrequency(u, columns),
                              slope, drop))
        continue;
      total[0] += static_cast<double>(sqrtf(row[v].re * row[v].re + row[v].im * row[v].im));
    }
  }
  BlockSums<kSumThreads, 1>(total);
  if (threadIdx.x == 0) sums[blockIdx.x] = total[0];
}

__global__ void HalvesSumsKernel(HalvesSpec s, const float* data, double* sums) {
  double totals[kHalvesSums] = {};
  for (int64_t row = blockIdx.x % kHalvesParts; row < s.slices * s.half_turn; row += kHalvesParts) {
    AddHalves(s, data, row / s.half_turn, row % s.half_turn,
              s.first_overlap + blockIdx.x / kHalvesParts, threadIdx.x, kSumThreads, totals);
  }
  BlockSums<kSumThreads, 1>(totals);
  if (threadIdx.x != 0) return;
  for (int i = 0; i < kHalvesSums; ++i) sums[blockIdx.x * kHalvesSums + i] = totals[i];
}

class CudaSinogramOps final : public SinogramOps, TomoLauncher {
 public:
  using TomoLauncher::TomoLauncher;

  absl::Status Transpose(StreamRef stream, int64_t batch, int64_t rows, int64_t columns,
                         DeviceSpan<const float> in, DeviceSpan<float> out) override {
    return TransposeRows(stream, batch, rows, columns, in.data(), out.data());
  }
  absl::Status Transpose(StreamRef stream, int64_t batch, int64_t rows, int64_t columns,
                         DeviceSpan<const ComplexF> in, DeviceSpan<ComplexF> out) override {
    return TransposeRows(stream, batch, rows, columns, in.data(), out.data());
  }

  absl::Status SortColumns(StreamRef stream, const ColumnsSpec& s, DeviceSpan<const float> in,
                           DeviceSpan<float> sorted, DeviceSpan<int32_t> order) override {
    const int padded = PowerOfTwo(s.angles);
    const size_t shared = static_cast<size_t>(padded) * sizeof(uint64_t);
    const auto threads = static_cast<unsigned>(std::clamp(padded / 2, 32, 1024));
    return Launch([&, in = in.data(), sorted = sorted.data(),
                   order = order.data()]() -> absl::Status {
      OCTAVO_RETURN_IF_ERROR(Shared(SortColumnsKernel, shared));
      SortColumnsKernel<<<static_cast<unsigned>(s.columns()), threads, shared, AsCuda(stream)>>>(
          static_cast<int>(s.angles), padded, in, sorted, order);
      return absl::OkStatus();
    });
  }

  absl::Status MedianOverDetectors(StreamRef stream, const ColumnsSpec& s, int64_t window,
                                   DeviceSpan<const float> in, DeviceSpan<float> out) override {
    const unsigned threads = window <= 95 ? 128 : 32;
    const size_t shared = static_cast<size_t>(window) * threads * sizeof(float);
    const dim3 blocks(static_cast<unsigned>((s.angles + threads - 1) / threads),
                      static_cast<unsigned>((s.detectors + kRun - 1) / kRun),
                      static_cast<unsigned>(std::min<int64_t>(s.slices, 65535)));
    return Launch([&, in = in.data(), out = out.data()]() -> absl::Status {
      OCTAVO_RETURN_IF_ERROR(Shared(MedianKernel, shared));
      MedianKernel<<<blocks, threads, shared, AsCuda(stream)>>>(s, window, in, out);
      return absl::OkStatus();
    });
  }

  absl::Status MeanRatios(StreamRef stream, const ColumnsSpec& s, int64_t drop,
                          DeviceSpan<const float> sorted, DeviceSpan<const float> smooth,
                          DeviceSpan<double> factors) override {
    return Launch([&, sorted = sorted.data(), smooth = smooth.data(), factors = factors.data()] {
      MeanRatiosKernel<<<Warps(s.columns()), kSumThreads, 0, AsCuda(stream)>>>(s, drop, sorted,
                                                                               smooth, factors);
    });
  }

  absl::Status RoughnessRatios(StreamRef stream, const ColumnsSpec& s, int64_t window,
                               DeviceSpan<const float> in, DeviceSpan<double> sums,
                               DeviceSpan<double> factors) override {
    OCTAVO_RETURN_IF_ERROR(Launch([&, in = in.data(), sums = sums.data()] {
      RoughnessKernel<<<Warps(s.columns()), kSumThreads, 0, AsCuda(stream)>>>(s, in, sums);
      return absl::OkStatus();
    }));
    return ForRows(stream, s.slices, s.detectors,
                   RoughnessRatio{s, window, sums.data(), factors.data()});
  }

  absl::Status MarkStripes(StreamRef stream, const ColumnsSpec& s, double snr, bool keep_ends,
                           DeviceSpan<const double> factors, DeviceSpan<uint8_t> mask) override {
    const int padded = PowerOfTwo(s.detectors);
    const size_t shared = static_cast<size_t>(padded) * sizeof(uint64_t);
    const auto threads = static_cast<unsigned>(std::clamp(padded / 2, 32, 1024));
    return Launch([&, factors = factors.data(), mask = mask.data()]() -> absl::Status {
      OCTAVO_RETURN_IF_ERROR(Shared(MarkStripesKernel, shared));
      MarkStripesKernel<<<static_cast<unsigned>(s.slices), threads, shared, AsCuda(stream)>>>(
          static_cast<int>(s.detectors), padded, snr, keep_ends, factors, mask);
      return absl::OkStatus();
    });
  }

  absl::Status Unsort(StreamRef stream, const ColumnsSpec& s, DeviceSpan<const float> smooth,
                      DeviceSpan<const int32_t> order, DeviceSpan<const uint8_t> mask,
                      DeviceSpan<const double> factors, DeviceSpan<float> out) override {
    return ForRows(
        stream, s.columns(), s.angles,
        UnsortPixel{s, smooth.data(), order.data(), mask.data(), factors.data(), out.data()});
  }

  absl::Status FillColumns(StreamRef stream, const ColumnsSpec& s, DeviceSpan<const uint8_t> mask,
                           DeviceSpan<float> data) override {
    return ForRows(stream, s.columns(), s.angles, FillPixel{s, mask.data(), data.data()});
  }

  absl::Status Analyze(StreamRef stream, const WaveletSpec& s, bool high,
                       DeviceSpan<const float> in, DeviceSpan<float> out) override {
    return ForRows(stream, s.outer * s.m, s.inner, AnalyzePixel{s, high, in.data(), out.data()});
  }
  absl::Status Synthesize(StreamRef stream, const WaveletSpec& s, DeviceSpan<const float> low,
                          DeviceSpan<const float> high, DeviceSpan<float> out) override {
    return ForRows(stream, s.outer * s.n, s.inner,
                   SynthesizePixel{s, low.data(), high.data(), out.data()});
  }
  absl::Status PadRows(StreamRef stream, int64_t rows, int64_t n, int64_t padded, int64_t before,
                       DeviceSpan<const float> in, DeviceSpan<float> out) override {
    return ForRows(stream, rows, padded, PadRowPixel{n, padded, before, in.data(), out.data()});
  }
  absl::Status SubtractRows(StreamRef stream, int64_t rows, int64_t n, int64_t padded,
                            int64_t before, DeviceSpan<const float> in,
                            DeviceSpan<float> data) override {
    return ForRows(stream, rows, n, SubtractRowPixel{n, padded, before, in.data(), data.data()});
  }
  absl::Status ToComplex(StreamRef stream, int64_t count, DeviceSpan<const float> in,
                         DeviceSpan<ComplexF> out) override {
    return ForRows(stream, count, 1,
                   [=, in = in.data(), out = out.data()] __device__(int64_t i, int64_t) {
                     out[i] = {in[i], 0.0f};
                   });
  }
  absl::Status RealPart(StreamRef stream, int64_t count, DeviceSpan<const ComplexF> in,
                        DeviceSpan<float> out) override {
    return ForRows(stream, count, 1,
                   [=, in = in.data(), out = out.data()] __device__(int64_t i, int64_t) {
                     out[i] = in[i].re;
                   });
  }
  absl::Status KeepStripes(StreamRef stream, int64_t rows, int64_t n, float sigma,
                           DeviceSpan<ComplexF> data) override {
    return ForRows(stream, rows, n, KeepStripesPixel{n, sigma, data.data()});
  }

  absl::Status Join(StreamRef stream, const JoinSpec& s, DeviceSpan<const float> sinogram,
                    DeviceSpan<const float> mirror, DeviceSpan<ComplexF> out) override {
    return ForRows(stream, s.count * 2 * s.angles, s.detectors,
                   JoinPixel{s, sinogram.data(), mirror.data(), out.data()});
  }

  absl::Status WedgeSums(StreamRef stream, int64_t count, int64_t rows, int64_t columns,
                         double slope, int64_t drop, DeviceSpan<const ComplexF> data,
                         DeviceSpan<double> sums) override {
    return Launch([&, data = data.data(), sums = sums.data()] {
      WedgeSumsKernel<<<static_cast<unsigned>(count * kWedgeParts), kSumThreads, 0,
                        AsCuda(stream)>>>(rows, columns, slope, drop, data, sums);
    });
  }

  absl::Status HalvesSums(StreamRef stream, const HalvesSpec& s, DeviceSpan<const float> data,
                          DeviceSpan<double> sums) override {
    return Launch([&, data = data.data(), sums = sums.data()] {
      HalvesSumsKernel<<<static_cast<unsigned>(s.overlaps * kHalvesParts), kSumThreads, 0,
                         AsCuda(stream)>>>(s, data, sums);
    });
  }

 private:
  static unsigned Warps(int64_t columns) {
    return static_cast<unsigned>((columns + kSumThreads / 32 - 1) / (kSumThreads / 32));
  }

  template <class Kernel>
  absl::Status Shared(Kernel kernel, size_t bytes) {
    if (bytes <= 48 * 1024) return absl::OkStatus();
    OCTAVO_CUDA(health_.get(),
                cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(bytes)));
    return absl::OkStatus();
  }
  template <class T>
  absl::Status TransposeRows(StreamRef stream, int64_t batch, int64_t rows, int64_t columns,
                             const T* in, T* out) {
    const int64_t tiles = (rows + 31) / 32, together = std::max<int64_t>(1, 65535 / tiles);
    return Launch([&] {
      for (int64_t first = 0; first < batch; first += together) {
        const dim3 blocks(static_cast<unsigned>((columns + 31) / 32),
                          static_cast<unsigned>(std::min(together, batch - first) * tiles));
        TurnKernel<<<blocks, dim3(32, 8), 0, AsCuda(stream)>>>(
            rows, columns, tiles, in + first * rows * columns, out + first * rows * columns);
      }
    });
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<SinogramOps>> MakeSinogramOps(Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(CudaContext context, FindCudaContext(device, SinogramOps::kFamily));
  return std::make_unique<CudaSinogramOps>(context.ordinal, std::move(context.health));
}

}  // namespace octavo::inline gpu::cuda

#include <algorithm>
#include <type_traits>

#include "gpu/array/warp.h"
#include "gpu/array/warp_elements.h"
#include "gpu/base/status.h"
#include "gpu/device/cuda/cuda_context.h"
#include "gpu/device/cuda/cuda_stream.h"

namespace octavo::inline gpu::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kFew = int64_t{1} << 31;
unsigned Blocks(int64_t items) {
  return static_cast<unsigned>(std::clamp<int64_t>((items + kThreads - 1) / kThreads, 1, 1 << 20));
}
__device__ inline int64_t FirstItem() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t ItemStep() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

// -- coefficients

constexpr int kSplineThreads = 128;
constexpr int kSegment = math::kSplineSegment;

// One thread per segment of a line. Neighbouring threads have neighbouring lines, so that a warp
// reads and writes whole sectors; neighbouring blocks have the segments of the same lines, whose
// halos they find in the cache.
template <class T, class In>
__global__ void __launch_bounds__(kSplineThreads)
    SplineColumns(SplineSpec s, int64_t segments, In in, T* out) {
  const int64_t line = blockIdx.x / segments * blockDim.x + threadIdx.x,
                begin = blockIdx.x % segments * kSegment;
  if (line >= s.outer * s.inner) return;
  const int64_t o = line / s.inner, q = line - o * s.inner;
  const int64_t first = o * s.n * s.inner + q;
  double made[kSegment];
  math::SplineSegment<math::kSplineHalo<T>>(
      [&](int i) {
        const int64_t at = math::Folded(s.edge, begin + i - s.padding, s.n);
        return static_cast<double>(in(first + at * s.inner));
      },
      made);
  T* const to = out + (o * s.made() + begin) * s.inner + q;
  const int64_t count = s.made() - begin;
#pragma unroll
  for (int i = 0; i < kSegment; ++i) {
    if (i < count) to[i * s.inner] = static_cast<T>(made[i]);
  }
}

// Where sample i of a row lies in shared memory. Threads whose segments follow each other read
// samples that are kSegment apart: the gaps put these into different banks.
__host__ __device__ constexpr int Spread(int i) { return i + i / kSegment; }

/// How blocks divide rows that are contiguous in memory.
struct RowTiles {
  int segments = 1;                // of a row in a block
  int rows = 1;                    // of a block
  int64_t chunks = 1, groups = 1;  // blocks along a row, blocks along the rows
  int width = 0, pitch = 0;        // numbers of a row in shared memory: samples, with gaps
};
template <class T>
RowTiles TilesOf(const SplineSpec& s) {
  constexpr int kShared = 40 << 10;
  RowTiles tiles;
  const int64_t segments = (s.made() + kSegment - 1) / kSegment;
  tiles.segments = static_cast<int>(std::min<int64_t>(segments, 32));
  tiles.chunks = (segments + tiles.segments - 1) / tiles.segments;
  tiles.width = tiles.segments * kSegment + 2 * math::kSplineHalo<T>;
  tiles.pitch = Spread(tiles.width - 1) + 1;
  tiles.rows = std::clamp(kShared / (tiles.pitch * static_cast<int>(sizeof(T))), 1,
                          kSplineThreads / tiles.segments);
  tiles.groups = (s.outer + tiles.rows - 1) / tiles.rows;
  return tiles;
}

// One thread per segment of a row. The block reads its rows into shared memory, where each thread
// finds its segment with the halo, and writes them from there.
template <class T, class In>
__global__ void __launch_bounds__(kSplineThreads)
    SplineRows(SplineSpec s, RowTiles tiles, In in, T* out) {
  extern __shared__ double memory[];
  T* const shared = reinterpret_cast<T*>(memory);
  constexpr int kHalo = math::kSplineHalo<T>;
  const int64_t chunk = blockIdx.x % tiles.chunks, begin = chunk * tiles.segments * kSegment,
                row0 = blockIdx.x / tiles.chunks * tiles.rows;
  const int rows = static_cast<int>(min(static_cast<int64_t>(tiles.rows), s.outer - row0));
  for (int at = static_cast<int>(threadIdx.x); at < rows * tiles.width; at += kSplineThreads) {
    const int row = at / tiles.width, i = at - row * tiles.width;
    const int64_t from = math::Folded(s.edge, begin + i - kHalo - s.padding, s.n);
    shared[row * tiles.pitch + Spread(i)] = static_cast<T>(in((row0 + row) * s.n + from));
  }
  __syncthreads();
  const int row = static_cast<int>(threadIdx.x) / tiles.segments,
            segment = static_cast<int>(threadIdx.x) - row * tiles.segments;
  T* const own = shared + row * tiles.pitch;
  double made[kSegment];
  if (row < rows) {
    math::SplineSegment<kHalo>(
        [&](int i) { return static_cast<double>(own[Spread(segment * kSegment + i + kHalo)]); },
        made);
  }
  __syncthreads();  // all threads have read what the results replace
  if (row < rows) {
#pragma unroll
    for (int i = 0; i < kSegment; ++i)
      own[Spread(segment * kSegment + i)] = static_cast<T>(made[i]);
  }
  __syncthreads();
  const int count =
      static_cast<int>(min(static_cast<int64_t>(tiles.segments * kSegment), s.made() - begin));
  for (int at = static_cast<int>(threadIdx.x); at < rows * count; at += kSplineThreads) {
    const int r = at / count, i = at - r * count;
    out[(row0 + r) * s.made() + begin + i] = shared[r * tiles.pitch + Spread(i)];
  }
}

template <class T, class In>
void LaunchSpline(cudaStream_t stream, const SplineSpec& s, const In& in, T* out) {
  if (s.inner == 1) {
    const RowTiles tiles = TilesOf<T>(s);
    const size_t shared = static_cast<size_t>(tiles.rows * tiles.pitch) * sizeof(T);
    SplineRows<T, In>
        <<<static_cast<unsigned>(tiles.chunks * tiles.groups), kSplineThreads, shared, stream>>>(
            s, tiles, in, out);
    return;
  }
  const int64_t segments = (s.made() + kSegment - 1) / kSegment,
                groups = (s.outer * s.inner + kSplineThreads - 1) / kSplineThreads;
  SplineColumns<T, In><<<static_cast<unsigned>(groups * segments), kSplineThreads, 0, stream>>>(
      s, segments, in, out);
}

// -- sampling

// One thread per result, neighbouring threads have neighbouring results.
template <int kRank, bool kCubic, class In>
__global__ void __launch_bounds__(kThreads)
    WarpKernel(WarpSpec s, In in, const void* coordinates, void* out) {
  const int64_t count = s.results();
  for (int64_t i = FirstItem(); i < count; i += ItemStep())
    WarpOne<kRank, kCubic>(s, count < kFew, in, coordinates, out, i);
}

__global__ void __launch_bounds__(kThreads)
    NearestKernel(WarpSpec s, const void* in, const void* coordinates, void* out) {
  const int64_t count = s.results();
  for (int64_t i = FirstItem(); i < count; i += ItemStep())
    WarpNearest(s, count < kFew, in, coordinates, out, i);
}

template <math::Sampling kSampling, class In>
__global__ void __launch_bounds__(kThreads)
    ShiftKernel(ShiftSpec s, const void* samples, In in, const void* amounts, void* out) {
  const int64_t count = s.results();
  for (int64_t i = FirstItem(); i < count; i += ItemStep())
    ShiftOne<kSampling>(s, count < kFew, samples, in, amounts, out, i);
}

template <int kRank>
void LaunchWarp(cudaStream_t stream, const WarpSpec& s, const void* in, const void* coordinates,
                void* out) {
  const unsigned blocks = Blocks(s.results());
  if (s.sampling == math::Sampling::kCubic) {
    if (s.in == Scalar::kF64) {
      WarpKernel<kRank, true>
          <<<blocks, kThreads, 0, stream>>>(s, NumbersOf<double, double>(in), coordinates, out);
    } else {
      WarpKernel<kRank, true>
          <<<blocks, kThreads, 0, stream>>>(s, NumbersOf<float, float>(in), coordinates, out);
    }
    return;
  }
  ForNumbers(s.in, in, [&](const auto& numbers) {
    WarpKernel<kRank, false><<<blocks, kThreads, 0, stream>>>(s, numbers, coordinates, out);
  });
}

class CudaWarpOps final : public WarpOps {
 public:
  CudaWarpOps(int ordinal, std::shared_ptr<DeviceHealth> health)
      : ordinal_(ordinal), health_(std::move(health)) {}

  absl::Status Spline(StreamRef stream, const SplineSpec& s, const void* in, void* out) override {
    const DeviceGuard guard(ordinal_);
    ForSpline(s, in, out, [&](const auto& numbers, auto* made) {
      LaunchSpline(AsCuda(stream), s, numbers, made);
    });
    return Launched();
  }

  absl::Status Warp(StreamRef stream, const WarpSpec& s, const void* in, const void* coordinates,
                    void* out) override {
    const DeviceGuard guard(ordinal_);
    if (s.sampling == math::Sampling::kNearest) {
      NearestKernel<<<Blocks(s.results()), kThreads, 0, AsCuda(stream)>>>(s, in, coordinates, out);
      return Launched();
    }
    switch (s.rank) {
      case 1: LaunchWarp<1>(AsCuda(stream), s, in, coordinates, out); break;
      case 2: LaunchWarp<2>(AsCuda(stream), s, in, coordinates, out); break;
      default: LaunchWarp<3>(AsCuda(stream), s, in, coordinates, out); break;
    }
    return Launched();
  }

  absl::Status Shift(StreamRef stream, const ShiftSpec& s, const void* in, const void* amounts,
                     void* out) override {
    const DeviceGuard guard(ordinal_);
    const unsigned blocks = Blocks(s.results());
    if (s.sampling == math::Sampling::kNearest) {
      ShiftKernel<math::Sampling::kNearest>
          <<<blocks, kThreads, 0, AsCuda(stream)>>>(s, in, AnyNumbers{in, s.in}, amounts, out);
    } else if (s.sampling == math::Sampling::kCubic && s.in == Scalar::kF64) {
      ShiftKernel<math::Sampling::kCubic><<<blocks, kThreads, 0, AsCuda(stream)>>>(
          s, in, NumbersOf<double, double>(in), amounts, out);
    } else if (s.sampling == math::Sampling::kCubic) {
      ShiftKernel<math::Sampling::kCubic><<<blocks, kThreads, 0, AsCuda(stream)>>>(
          s, in, NumbersOf<float, float>(in), amounts, out);
    } else {
      ForNumbers(s.in, in, [&](const auto& numbers) {
        ShiftKernel<math::Sampling::kLinear>
            <<<blocks, kThreads, 0, AsCuda(stream)>>>(s, in, numbers, amounts, out);
      });
    }
    return Launched();
  }

 private:
  absl::Status Launched() {
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }
  const int ordinal_;
  const std::shared_ptr<DeviceHealth> health_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WarpOps>> MakeWarpOps(Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(CudaContext context, FindCudaContext(device, WarpOps::kFamily));
  return std::make_unique<CudaWarpOps>(context.ordinal, std::move(context.health));
}

}  // namespace octavo::inline gpu::cuda

#include <algorithm>
#include <limits>
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
// I: the type of indices of samples.
template <int kRank, bool kCubic, class I, class In>
__global__ void __launch_bounds__(kThreads)
    WarpKernel(WarpSpec s, In in, const void* coordinates, void* out) {
  const int64_t count = s.results();
  for (int64_t i = FirstItem(); i < count; i += ItemStep())
    WarpOne<kRank, kCubic, I>(s, count < kFew, in, coordinates, out, i);
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

// -- sampling, the short way
//
// Most results lie plainly inside the array. For those, indices of 32 bits suffice, positions that
// are given in f32 are split in f32 without loss, and a thread asks for the samples of several
// results before it uses the first. Results at an edge, or outside, go the long way above, by the
// same rules. Both ways give the same result.

constexpr int kRowThreads = 32, kRowsOfBlock = 8, kShortResults = 4;
constexpr int64_t kMostShort = int64_t{1} << 22;  // of extents: f32 holds halves of them

/// Where a position lies on an axis of n samples. `inside`: plainly; `outside`: so far that no
/// rounding decides it (math::kPositionSlack).
struct Split {
  int at = 0;
  float t = 0;
  bool inside = false, outside = false;
};
// The sum of a number and these has no bits for fractions: it is rounded to a whole number, which
// its low bits hold. Conversions take four times as long as sums.
constexpr float kWhole32 = 12582912.0f;          // 1.5 x 2^23
constexpr double kWhole64 = 6755399441055744.0;  // 1.5 x 2^52
template <bool kNearest>
__device__ inline Split SplitPosition(double x, int n) {
  const double last = static_cast<double>(n - 1), slack = 10 * math::kPositionSlack;
  Split split;
  split.inside = x >= 0 && x <= last;
  split.outside = !(x >= -slack && x <= last + slack);
  const double v = split.inside ? x : 0, below = __dadd_rd(kNearest ? v + 0.5 : v, kWhole64);
  split.at = __double2loint(below);
  if constexpr (!kNearest) split.t = static_cast<float>(v - (below - kWhole64));
  return split;
}
/// The same for `index` + x. Tiny distances are not plainly inside: f64 may round them to a sample.
template <bool kNearest>
__device__ inline Split SplitPosition(int index, float x, int n) {
  const bool number = fabsf(x) < static_cast<float>(kMostShort);
  const float v = number ? x : 0, below = __fadd_rd(v, kWhole32), t = v - (below - kWhole32);
  const int at = index + __float_as_int(below) - __float_as_int(kWhole32);
  const bool between = t >= 0x1p-24f && t < 1;  // else on a sample, or too near to one
  const auto place = static_cast<unsigned>(at), count = static_cast<unsigned>(n);
  Split split;
  split.inside = number && (between ? place < count - 1 : place < count && t == 0);
  split.outside = !number || (between ? place >= count - 1 : place + 1 > count);
  split.at = kNearest ? at + (t >= 0.5f) : at;
  split.t = t;
  return split;
}

/// An f32 value in the type of its sample, as math::Store makes it; f32 itself is exact.
template <class T>
__device__ inline T AsSample(float v) {
  if constexpr (std::is_same_v<T, float>) {
    return v;
  } else {
    const float whole = truncf(v), rest = v - whole;
    const float rounded = whole + (rest >= 0.5f) - (rest <= -0.5f);
    constexpr auto kLeast = static_cast<float>(std::numeric_limits<T>::min()),
                   kMost = static_cast<float>(std::numeric_limits<T>::max());
    return v == v ? static_cast<T>(static_cast<int>(fminf(fmaxf(rounded, kLeast), kMost))) : T{};
  }
}

/// A result on the long way, out of line to keep the registers of the short one few.
template <int kRank, bool kNearest, class T>
__device__ __noinline__ void LongWay(const WarpSpec& s, const void* in, const void* coordinates,
                                     void* out, int64_t i) {
  if constexpr (kNearest) {
    WarpNearest(s, true, in, coordinates, out, i);
  } else {
    WarpOne<kRank, false>(s, true, NumbersOf<T, float>(in), coordinates, out, i);
  }
}

// A warp makes parts of a row. T: the type of samples, or with kNearest one of their size. Many
// warps have to be there to hide the time of the samples: the long way gets no more registers.
template <int kRank, bool kNearest, WarpPositions kFrom, class T>
__global__ void __launch_bounds__(kRowThreads* kRowsOfBlock, 6)
    ShortKernel(const __grid_constant__ WarpSpec s, T constant, const T* __restrict__ in,
                const float* __restrict__ coordinates, T* __restrict__ out) {
  constexpr int kFirst = 3 - kRank;
  const int row = static_cast<int>(blockIdx.x) * kRowsOfBlock + static_cast<int>(threadIdx.y),
            rows = static_cast<int>(s.out_extent[1]), width = static_cast<int>(s.out_extent[2]);
  if (row >= rows * static_cast<int>(s.out_extent[0])) return;
  int index[3] = {row / rows, 0, 0};
  index[1] = row - index[0] * rows;
  double row_position[3] = {};
  if constexpr (kFrom == WarpPositions::kMatrix) {
#pragma unroll
    for (int d = kFirst; d < 3; ++d) {
      row_position[d] = s.offset[d];
#pragma unroll
      for (int e = kFirst; e < 2; ++e)
        row_position[d] = math::PositionPlus(
            row_position[d], math::PositionTimes(s.matrix[d][e], static_cast<double>(index[e])));
    }
  }
  int extent[3], stride[3];
  extent[2] = static_cast<int>(s.in_extent[2]);
  extent[1] = static_cast<int>(s.in_extent[1]);
  extent[0] = static_cast<int>(s.in_extent[0]);
  stride[2] = 1;
  stride[1] = extent[2];
  stride[0] = extent[1] * extent[2];
  const int first =
      static_cast<int>(blockIdx.y) * kRowThreads * kShortResults + static_cast<int>(threadIdx.x);
  const int64_t begin = static_cast<int64_t>(row) * width;

  constexpr int kTaps = kNearest ? 1 : 1 << kRank;
  float given[kShortResults][3];
  if constexpr (kFrom != WarpPositions::kMatrix) {
    const float* const from = coordinates + (begin + first) * s.result_stride;
    const int step = kRowThreads * static_cast<int>(s.result_stride);
#pragma unroll
    for (int d = kFirst; d < 3; ++d) {
      const float* const of_axis = from + (d - kFirst) * s.axis_stride;
#pragma unroll
      for (int k = 0; k < kShortResults; ++k)
        given[k][d] = first + k * kRowThreads < width ? of_axis[k * step] : 0;
    }
  }
  uint32_t left = 0;  // a bit for each result that goes the long way
#pragma unroll
  for (int k = 0; k < kShortResults; ++k) {
    const int x = first + k * kRowThreads;
    bool inside = x < width, outside = false;
    int at = 0, next[3];
    float t[3];
#pragma unroll
    for (int d = kFirst; d < 3; ++d) {
      Split split;
      if constexpr (kFrom == WarpPositions::kMatrix) {
        split = SplitPosition<kNearest>(
            math::PositionPlus(row_position[d],
                               math::PositionTimes(s.matrix[d][2], static_cast<double>(x))),
            extent[d]);
      } else {
        const int whole = kFrom == WarpPositions::kCoordinates ? 0 : d == 2 ? x : index[d];
        split = SplitPosition<kNearest>(whole, given[k][d], extent[d]);
      }
      inside = inside && split.inside;
      outside = outside || split.outside;
      at += split.at * stride[d];
      t[d] = split.t;
    }
    // Where nobody uses the samples, they are one that exists.
    if (!inside) at = 0;
#pragma unroll
    for (int d = kFirst; d < 3; ++d) next[d] = inside && t[d] != 0 ? stride[d] : 0;
    T result;
    if constexpr (kNearest) {
      result = in[at];
    } else {
      float value[kTaps];
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) {
        int from = at;
#pragma unroll
        for (int d = kFirst; d < 3; ++d) from += tap >> (2 - d) & 1 ? next[d] : 0;
        value[tap] = static_cast<float>(in[from]);
      }
#pragma unroll
      for (int d = 2, pairs = kTaps / 2; d >= kFirst; --d, pairs /= 2) {
#pragma unroll
        for (int pair = 0; pair < pairs; ++pair)
          value[pair] = math::Mixed(value[2 * pair], value[2 * pair + 1], t[d]);
      }
      result = AsSample<T>(value[0]);
    }
    const bool constant_here = outside && s.edge == math::SampleEdge::kConstant;
    if (constant_here) result = constant;
    if (x < width && (inside || constant_here)) {
      out[begin + x] = result;
    } else if (x < width) {
      left |= 1u << k;
    }
  }
  for (; left != 0; left &= left - 1) {
    const int k = __ffs(static_cast<int>(left)) - 1;
    LongWay<kRank, kNearest, T>(s, in, coordinates, out, begin + first + k * kRowThreads);
  }
}

template <int kRank, bool kNearest, class T>
void LaunchShort(cudaStream_t stream, const WarpSpec& s, const void* in, const void* coordinates,
                 void* out) {
  constexpr int kChunk = kRowThreads * kShortResults;
  const int64_t rows = s.out_extent[0] * s.out_extent[1];
  const dim3 blocks(static_cast<unsigned>((rows + kRowsOfBlock - 1) / kRowsOfBlock),
                    static_cast<unsigned>((s.out_extent[2] + kChunk - 1) / kChunk)),
      threads(kRowThreads, kRowsOfBlock);
  T constant;
  StoreConstant(s.out, s.constant, s.complex, &constant, 0, 0);
  const auto launch = [&]<WarpPositions kFrom>() {
    ShortKernel<kRank, kNearest, kFrom><<<blocks, threads, 0, stream>>>(
        s, constant, static_cast<const T*>(in), static_cast<const float*>(coordinates),
        static_cast<T*>(out));
  };
  switch (s.positions) {
    case WarpPositions::kMatrix: launch.template operator()<WarpPositions::kMatrix>(); break;
    case WarpPositions::kCoordinates:
      launch.template operator()<WarpPositions::kCoordinates>();
      break;
    default: launch.template operator()<WarpPositions::kDisplacement>(); break;
  }
}

template <int kRank>
bool LaunchShort(cudaStream_t stream, const WarpSpec& s, const void* in, const void* coordinates,
                 void* out) {
  if (s.sampling == math::Sampling::kNearest) {
    switch (SizeOf(s.in)) {
      case 1: LaunchShort<kRank, true, uint8_t>(stream, s, in, coordinates, out); break;
      case 2: LaunchShort<kRank, true, uint16_t>(stream, s, in, coordinates, out); break;
      case 4: LaunchShort<kRank, true, uint32_t>(stream, s, in, coordinates, out); break;
      default: return false;
    }
    return true;
  }
  switch (s.in) {
    case Scalar::kU8: LaunchShort<kRank, false, uint8_t>(stream, s, in, coordinates, out); break;
    case Scalar::kU16: LaunchShort<kRank, false, uint16_t>(stream, s, in, coordinates, out); break;
    case Scalar::kI16: LaunchShort<kRank, false, int16_t>(stream, s, in, coordinates, out); break;
    case Scalar::kF32: LaunchShort<kRank, false, float>(stream, s, in, coordinates, out); break;
    default: return false;
  }
  return true;
}

/// Whether the short way takes it; then it has been launched.
bool TryShort(cudaStream_t stream, const WarpSpec& s, const void* in, const void* coordinates,
              void* out) {
  int64_t samples = 1;
  for (int d = 0; d < 3; ++d) {
    if (s.in_extent[d] >= kMostShort || s.out_extent[d] >= kMostShort) return false;
    samples *= s.in_extent[d];
    if (samples >= kFew) return false;
  }
  constexpr int64_t kMostChunks = 65535;  // blocks of a grid along y
  if (s.sampling == math::Sampling::kCubic || s.parts != 1 || s.in != s.out ||
      s.results() >= kFew || s.out_extent[2] < kRowThreads / 2 ||
      s.out_extent[2] > kMostChunks * kRowThreads * kShortResults ||
      (s.positions != WarpPositions::kMatrix && s.coordinates != Scalar::kF32))
    return false;
  switch (s.rank) {
    case 3: return LaunchShort<3>(stream, s, in, coordinates, out);
    case 2: return LaunchShort<2>(stream, s, in, coordinates, out);
    default: return false;
  }
}

/// Numbers that a step with coefficients reads from.
int64_t CoefficientsOf(const WarpSpec& s) {
  int64_t count = s.parts;
  for (int d = 0; d < 3; ++d) count *= s.in_extent[d] + 2 * s.padding[d];
  return count;
}

template <int kRank>
void LaunchWarp(cudaStream_t stream, const WarpSpec& s, const void* in, const void* coordinates,
                void* out) {
  const unsigned blocks = Blocks(s.results());
  if (s.sampling == math::Sampling::kCubic) {
    if (s.in == Scalar::kF64) {
      WarpKernel<kRank, true, int64_t>
          <<<blocks, kThreads, 0, stream>>>(s, NumbersOf<double, double>(in), coordinates, out);
    } else if (CoefficientsOf(s) < kFew) {
      WarpKernel<kRank, true, int32_t>
          <<<blocks, kThreads, 0, stream>>>(s, NumbersOf<float, float>(in), coordinates, out);
    } else {
      WarpKernel<kRank, true, int64_t>
          <<<blocks, kThreads, 0, stream>>>(s, NumbersOf<float, float>(in), coordinates, out);
    }
    return;
  }
  ForNumbers(s.in, in, [&](const auto& numbers) {
    WarpKernel<kRank, false, int64_t>
        <<<blocks, kThreads, 0, stream>>>(s, numbers, coordinates, out);
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
    if (TryShort(AsCuda(stream), s, in, coordinates, out)) return Launched();
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

#include <algorithm>

#include "gpu/tomography/cuda/lanes.cuh"
#include "gpu/tomography/cuda/projectors.h"

namespace octavo::inline gpu::cuda {
namespace {

using math::RayInterpolation;
using math::RayTaps;

// A warp computes kRays × 32 neighbouring rays of one angle, and its block the same rays at kWarps
// neighbouring angles. They read nearly the same pixels, so the image comes from the L1 cache. One
// load reads all slices of a pixel.
template <RayInterpolation kHow, int kLanes, int kRays, int kWarps>
__global__ void __launch_bounds__(32 * kWarps)
    ForwardKernel(const RayView v, int first_angle, int last_angle, const float* __restrict__ lines,
                  float* __restrict__ sinogram) {
  using Value = typename LaneValue<kLanes>::Type;
  const int angle =
      first_angle + static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.y);
  if (angle >= last_angle) return;
  const int group = static_cast<int>(blockIdx.z), size = static_cast<int>(v.size),
            detectors = static_cast<int>(v.detectors);
  const int ray = static_cast<int>(blockIdx.x) * 32 * kRays + static_cast<int>(threadIdx.x);
  const math::ForwardAngle t = v.forward[angle];
  const float n = static_cast<float>(size), middle = 0.5f * (n - 1.0f), center = v.centers[group];

  // The lines that any ray of the warp meets, and the lines that all rays meet. On the latter,
  // positions need no test.
  float offset[kRays];
  int begin = size, end = 0, all_begin = 0, all_end = size;
#pragma unroll
  for (int r = 0; r < kRays; ++r) {
    const float distance = static_cast<float>(ray + 32 * r) - center;
    offset[r] = fmaf(distance, t.inverse, middle);
    const math::LineRange one = math::LinesOf(t, distance, n, v.radius, RayTaps<kHow>::kReach);
    all_begin = max(all_begin, one.begin);
    all_end = min(all_end, one.end);
    if (one.begin == one.end) continue;
    begin = min(begin, one.begin);
    end = max(end, one.end);
  }
  begin = __reduce_min_sync(0xFFFFFFFFu, begin);
  end = __reduce_max_sync(0xFFFFFFFFu, end);
  all_begin = __reduce_max_sync(0xFFFFFFFFu, all_begin);
  all_end = __reduce_min_sync(0xFFFFFFFFu, all_end);
  if (all_begin >= all_end) all_begin = all_end = end;

  Value sum[kRays] = {};
  const int64_t pitch = v.image_pitch();
  const auto* line = reinterpret_cast<const Value*>(lines) + v.ImageRow(group * v.size + begin);
  const auto add = [&](int j, bool inside) {
    const float from_middle = static_cast<float>(j) - middle;
#pragma unroll
    for (int r = 0; r < kRays; ++r) {
      float w[RayTaps<kHow>::kCount], position = math::RayPosition(from_middle, t.slope, offset[r]);
      if (!inside) position = math::Within(position, n);
      const Value* p = line + RayTaps<kHow>::Forward(position, w);
#pragma unroll
      for (int k = 0; k < RayTaps<kHow>::kCount; ++k) AddScaled(sum[r], w[k], __ldg(p + k));
    }
    line += pitch;
  };
  int j = begin;
  for (; j < all_begin; ++j) add(j, false);
#pragma unroll 4
  for (; j < all_end; ++j) add(j, true);
  for (; j < end; ++j) add(j, false);

  const float scale = v.pixel_size * fabsf(t.inverse);
  auto* out = reinterpret_cast<Value*>(sinogram) + v.SinogramRow(group * v.angles + angle);
#pragma unroll
  for (int r = 0; r < kRays; ++r) {
    if (ray + 32 * r < detectors) out[ray + 32 * r] = Scaled(sum[r], scale);
  }
}

// A block computes 32 × 32 pixels. A warp computes 8 × 4 of them at a time, so that its detector
// coordinates are close together. A thread computes four pixels, which share the cost of an angle.
// If all angles see the whole tile, positions are not tested against the detector's ends.
constexpr int kTile = 32, kPixels = 4;

// Computes `rows` rows of the image from `image` on; the first row lies at `first_y`. As arguments
// they cost no register. Measured: with four lanes many warps and no unrolling are fastest; with
// one lane two angles at a time and no limit on registers.
template <RayInterpolation kHow, int kLanes>
__global__ void __launch_bounds__(256, kLanes == 1 || kHow == RayInterpolation::kCubic ? 1 : 5)
    BackKernel(const RayView v, int rows, float first_y, int first_angle, int last_angle,
               const float* __restrict__ sinogram, float* __restrict__ image) {
  using Value = typename LaneValue<kLanes>::Type;
  const int group = static_cast<int>(blockIdx.z), size = static_cast<int>(v.size);
  const int lane = static_cast<int>(threadIdx.x) & 31, warp = static_cast<int>(threadIdx.x) / 32;
  const int column = static_cast<int>(blockIdx.x) * kTile + (warp & 3) * 8 + (lane & 7);
  const int row = static_cast<int>(blockIdx.y) * kTile + (warp >> 2) * 4 + (lane >> 3);
  const float middle = 0.5f * (static_cast<float>(size) - 1.0f), center = v.centers[group];
  const float x = static_cast<float>(column) - middle, y = static_cast<float>(row) + first_y;
  const float half = 0.5f * kTile,
              tile_x = static_cast<float>(blockIdx.x * kTile) + half - 0.5f - middle,
              tile_y = static_cast<float>(blockIdx.y * kTile) + half - 0.5f + first_y;
  const float near_x = fmaxf(fabsf(tile_x) - half, 0.0f),
              near_y = fmaxf(fabsf(tile_y) - half, 0.0f);
  const float far = sqrtf(tile_x * tile_x + tile_y * tile_y) + 1.5f * half;
  const bool seen = far + 2.0f < fminf(center, static_cast<float>(v.detectors - 1) - center);

  Value sum[kPixels] = {};
  if (math::InCircle(near_x, near_y, v.radius)) {
    const int64_t pitch = v.sinogram_pitch();
    const auto* line =
        reinterpret_cast<const Value*>(sinogram) + v.SinogramRow(group * v.angles + first_angle);
    const auto* angles = reinterpret_cast<const float4*>(v.back);
    const auto add = [&](int a, bool inside) {
      const float4 raw = __ldg(angles + a);
      const math::BackAngle t{raw.x, raw.y, raw.z, raw.w};
#pragma unroll
      for (int k = 0; k < kPixels; ++k) {
        float w[RayTaps<kHow>::kCount],
            u = math::DetectorOf(x, y + static_cast<float>(8 * k), t, center);
        if (!inside) u = math::Within(u, static_cast<float>(v.detectors));
        const Value* p = line + RayTaps<kHow>::Back(u, t, w);
#pragma unroll
        for (int tap = 0; tap < RayTaps<kHow>::kCount; ++tap)
          AddScaled(sum[k], w[tap], __ldg(p + tap));
      }
      line += pitch;
    };
    if (seen) {
      constexpr int kUnroll = kLanes == 1 ? 2 : 1;
#pragma unroll kUnroll
      for (int a = first_angle; a < last_angle; ++a) add(a, true);
    } else {
      for (int a = first_angle; a < last_angle; ++a) add(a, false);
    }
  }
  auto* out = reinterpret_cast<Value*>(image) + v.ImageRow(group * v.size + row) + column;
#pragma unroll
  for (int k = 0; k < kPixels; ++k) {
    if (column >= size || row + 8 * k >= rows) continue;
    out[8 * k * v.image_pitch()] =
        math::InCircle(x, y + static_cast<float>(8 * k), v.radius) ? sum[k] : Value{};
  }
}

// A block computes 32 × 8 pixels of a plane, a warp neighbouring pixels of one row: at every angle
// they read neighbouring bins of one row of the sinogram.
constexpr int kPlaneColumns = 32, kPlaneRows = 8;

template <RayInterpolation kHow>
__global__ void __launch_bounds__(kPlaneColumns* kPlaneRows)
    PlaneKernel(const RayView v, const math::VolumePlane plane, const float* __restrict__ sinogram,
                float* __restrict__ image) {
  const int column = static_cast<int>(blockIdx.x) * kPlaneColumns + static_cast<int>(threadIdx.x),
            row = static_cast<int>(blockIdx.y) * kPlaneRows + static_cast<int>(threadIdx.y);
  if (column >= plane.columns() || row >= plane.rows()) return;
  const math::PlaneRow points = plane.Row(row);
  const float x = points.X(column), y = points.Y(column);
  if (!math::InCircle(x, y, v.radius)) return;
  const float center = v.centers[points.slice], detectors = static_cast<float>(v.detectors);
  const int64_t pitch = v.sinogram_pitch();
  const float* line = sinogram + v.SinogramRow(points.slice * v.angles);
  const auto* angles = reinterpret_cast<const float4*>(v.back);
  const int count = static_cast<int>(v.angles);
  float sum = 0;
#pragma unroll 4
  for (int a = 0; a < count; ++a, line += pitch) {
    const float4 raw = __ldg(angles + a);
    const math::BackAngle t{raw.x, raw.y, raw.z, raw.w};
    float w[RayTaps<kHow>::kCount];
    const float* p = line + RayTaps<kHow>::Back(
                                math::Within(math::DetectorOf(x, y, t, center), detectors), t, w);
#pragma unroll
    for (int tap = 0; tap < RayTaps<kHow>::kCount; ++tap) AddScaled(sum, w[tap], __ldg(p + tap));
  }
  image[static_cast<int64_t>(row) * plane.columns() + column] += sum;
}

// Direct convolution. A block computes kOut neighbouring bins of one row, a thread every 128th of
// them. Bins and taps pass through shared memory piece by piece.
constexpr int kPerThread = 8, kOut = 128 * kPerThread, kPiece = 64;

template <int kLanes>
__global__ void __launch_bounds__(128)
    FilterKernel(const RayView v, const RowFilter f, const float* __restrict__ in,
                 float* __restrict__ out) {
  using Value = typename LaneValue<kLanes>::Type;
  __shared__ Value bins[kPiece];
  __shared__ float taps[kOut + kPiece];
  const int n = static_cast<int>(v.detectors), first = static_cast<int>(blockIdx.y) * kOut;
  const int64_t start = v.SinogramRow(blockIdx.x);
  const auto* row = reinterpret_cast<const Value*>(in) + start;
  Value sum[kPerThread] = {};
  for (int piece = 0; piece < n; piece += kPiece) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kPiece; i += 128)
      bins[i] = piece + i < n ? row[piece + i] : Value{};
    // taps[i] is the tap of distance first − piece − (kPiece − 1) + i.
    for (int i = static_cast<int>(threadIdx.x); i < kOut + kPiece; i += 128) {
      const int distance = first - piece - (kPiece - 1) + i;
      taps[i] = distance > -n && distance < n ? f.taps[distance + n - 1] : 0.0f;
    }
    __syncthreads();
#pragma unroll 4
    for (int k = 0; k < kPiece; ++k) {
      const Value value = bins[k];
      const float* tap = taps + kPiece - 1 - k + threadIdx.x;
#pragma unroll
      for (int q = 0; q < kPerThread; ++q) AddScaled(sum[q], tap[128 * q], value);
    }
  }
#pragma unroll
  for (int q = 0; q < kPerThread; ++q) {
    const int d = first + static_cast<int>(threadIdx.x) + 128 * q;
    if (d >= n) continue;
    if (f.edge_left != nullptr) {
      AddScaled(sum[q], f.edge_left[d], row[0]);
      AddScaled(sum[q], f.edge_right[d], row[n - 1]);
    }
    reinterpret_cast<Value*>(out)[start + d] = sum[q];
  }
}

template <class F>
void ForKind(RayInterpolation how, F f) {
  switch (how) {
    case RayInterpolation::kNearest: f.template operator()<RayInterpolation::kNearest>(); break;
    case RayInterpolation::kLinear: f.template operator()<RayInterpolation::kLinear>(); break;
    case RayInterpolation::kCubic: f.template operator()<RayInterpolation::kCubic>(); break;
  }
}

unsigned Blocks(int64_t count, int64_t block) {
  return static_cast<unsigned>((count + block - 1) / block);
}

template <RayInterpolation kHow, int kLanes, int kRays, int kWarps>
void ForwardOf(cudaStream_t stream, const RayView& v, int64_t begin, int64_t end,
               const float* lines, float* sinogram) {
  if (begin == end) return;
  const dim3 grid(Blocks(v.detectors, 32 * kRays), Blocks(end - begin, kWarps),
                  static_cast<unsigned>(v.groups));
  ForwardKernel<kHow, kLanes, kRays, kWarps><<<grid, dim3(32, kWarps), 0, stream>>>(
      v, static_cast<int>(begin), static_cast<int>(end), lines, sinogram);
}

}  // namespace

void LaunchForward(cudaStream_t stream, const RayView& v, const AngleRange& range,
                   const float* image, const float* transposed, float* sinogram) {
  ForKind(v.interpolation, [&]<RayInterpolation kHow>() {
    if (v.lanes == 1) {
      ForwardOf<kHow, 1, 4, 8>(stream, v, range.begin, range.split, image, sinogram);
      ForwardOf<kHow, 1, 4, 8>(stream, v, range.split, range.end, transposed, sinogram);
    } else {
      ForwardOf<kHow, kCudaLanes, 1, 8>(stream, v, range.begin, range.split, image, sinogram);
      ForwardOf<kHow, kCudaLanes, 1, 8>(stream, v, range.split, range.end, transposed, sinogram);
    }
  });
}

void LaunchBack(cudaStream_t stream, const RayView& v, const AngleRange& range,
                const float* sinogram, float* image) {
  static_assert(kBackRows == kTile);
  const dim3 grid(Blocks(v.size, kTile), Blocks(v.back_rows(), kTile),
                  static_cast<unsigned>(v.groups));
  const int rows = static_cast<int>(v.back_rows());
  const float first_y =
      static_cast<float>(v.row_begin) - 0.5f * (static_cast<float>(v.size) - 1.0f);
  float* first_row = image + v.row_begin * v.image_pitch() * v.lanes;
  ForKind(v.interpolation, [&]<RayInterpolation kHow>() {
    const auto begin = static_cast<int>(range.begin), end = static_cast<int>(range.end);
    if (v.lanes == 1) {
      BackKernel<kHow, 1>
          <<<grid, 256, 0, stream>>>(v, rows, first_y, begin, end, sinogram, first_row);
    } else {
      BackKernel<kHow, kCudaLanes>
          <<<grid, 256, 0, stream>>>(v, rows, first_y, begin, end, sinogram, first_row);
    }
  });
}

void LaunchAddPlane(cudaStream_t stream, const RayView& v, const math::VolumePlane& plane,
                    const float* sinogram, float* image) {
  const dim3 grid(Blocks(plane.columns(), kPlaneColumns), Blocks(plane.rows(), kPlaneRows));
  ForKind(v.interpolation, [&]<RayInterpolation kHow>() {
    PlaneKernel<kHow>
        <<<grid, dim3(kPlaneColumns, kPlaneRows), 0, stream>>>(v, plane, sinogram, image);
  });
}

void LaunchFilterRows(cudaStream_t stream, const RayView& v, const RowFilter& filter,
                      const float* in, float* out) {
  const dim3 grid(static_cast<unsigned>(v.groups * v.angles), Blocks(v.detectors, kOut));
  if (v.lanes == 1) {
    FilterKernel<1><<<grid, 128, 0, stream>>>(v, filter, in, out);
  } else {
    FilterKernel<kCudaLanes><<<grid, 128, 0, stream>>>(v, filter, in, out);
  }
}

}  // namespace octavo::inline gpu::cuda

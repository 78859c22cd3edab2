#include <algorithm>
#include <memory>

#include "gpu/base/status.h"
#include "gpu/device/cuda/cuda_context.h"
#include "gpu/device/cuda/cuda_stream.h"
#include "gpu/math/total_variation.h"
#include "gpu/tomography/cuda/lanes.cuh"
#include "gpu/tomography/cuda/launch.cuh"
#include "gpu/tomography/cuda/projectors.h"
#include "gpu/tomography/reconstruct_kernels.h"

namespace octavo::inline gpu::cuda {
namespace {

using math::kRayMargin;

constexpr int kThreads = 256;

unsigned Blocks(int64_t count, int64_t block) {
  return static_cast<unsigned>((count + block - 1) / block);
}

template <int kLanes>
__global__ void TransposeKernel(int size, int64_t pitch, const float* image, float* transposed) {
  using Value = typename LaneValue<kLanes>::Type;
  __shared__ Value tile[32][33];
  const int64_t group = static_cast<int64_t>(blockIdx.z) * size * pitch + kRayMargin;
  const auto* in = reinterpret_cast<const Value*>(image) + group;
  auto* out = reinterpret_cast<Value*>(transposed) + group;
  const int c0 = static_cast<int>(blockIdx.x) * 32, r0 = static_cast<int>(blockIdx.y) * 32,
            x = static_cast<int>(threadIdx.x);
  for (int y = static_cast<int>(threadIdx.y); y < 32; y += 8) {
    if (r0 + y < size && c0 + x < size) tile[y][x] = in[(r0 + y) * pitch + c0 + x];
  }
  __syncthreads();
  for (int y = static_cast<int>(threadIdx.y); y < 32; y += 8) {
    if (c0 + y < size && r0 + x < size) out[(c0 + y) * pitch + r0 + x] = tile[x][y];
  }
}

// One block per row of the view.
__global__ void PackSinogramsKernel(RayView v, SinogramView in, const int32_t* order,
                                    int64_t slices, float* out) {
  const int64_t row = blockIdx.x, group = row / v.angles, angle = order[row % v.angles];
  float* to = out + v.SinogramRow(row) * v.lanes;
  for (int64_t lane = 0; lane < v.lanes; ++lane) {
    const int64_t slice = group * v.lanes + lane;
    const float* from = in.Row(slice, angle);
    for (int64_t d = threadIdx.x; d < v.detectors; d += kThreads)
      to[d * v.lanes + lane] = slice >= slices ? 0.0f : from == nullptr ? 1.0f : from[d];
  }
}

__global__ void UnpackSinogramsKernel(RayView v, const float* in, const int32_t* order,
                                      float* out) {
  const int64_t slice = blockIdx.x / v.angles, angle = blockIdx.x % v.angles;
  const float* from =
      in + v.SinogramRow(slice / v.lanes * v.angles + angle) * v.lanes + slice % v.lanes;
  float* to = out + (slice * v.angles + order[angle]) * v.detectors;
  for (int64_t d = threadIdx.x; d < v.detectors; d += kThreads) to[d] = from[d * v.lanes];
}

__global__ void PackImagesKernel(RayView v, const float* in, float value, int64_t n, int64_t slices,
                                 float* out) {
  const int64_t row = blockIdx.x, group = row / v.size, r = row % v.size;
  const math::GridMiddle middle(v.size, n);
  float* to = out + v.ImageRow(row) * v.lanes;
  for (int64_t i = threadIdx.x; i < v.size * v.lanes; i += kThreads) {
    const int64_t c = i / v.lanes, slice = group * v.lanes + i % v.lanes;
    const bool counts = v.Counts(r, c), given = middle.Contains(r, c);
    float x = 0;
    if (counts && slice < slices)
      x = in == nullptr ? value : given ? in[middle.At(slice, r, c)] : 0.0f;
    to[i] = x;
  }
}

__global__ void UnpackImagesKernel(RayView v, const float* in, int64_t n, int64_t first,
                                   float* out) {
  const int64_t row = blockIdx.x, slice = first + row / n,
                border = math::GridMiddle(v.size, n).border, r = row % n + border;
  const float* from =
      in + (v.ImageRow(slice / v.lanes * v.size + r) + border) * v.lanes + slice % v.lanes;
  for (int64_t c = threadIdx.x; c < n; c += kThreads) out[row * n + c] = from[c * v.lanes];
}

__global__ void InspectKernel(const float* values, int64_t count, int64_t* counts) {
  int64_t odd = 0, negative = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    odd += !isfinite(values[i]);
    negative += values[i] < 0;
  }
  // The counts are whole numbers, so the order of the additions does not matter.
  if (odd > 0)
    atomicAdd(reinterpret_cast<unsigned long long*>(counts), static_cast<unsigned long long>(odd));
  if (negative > 0)
    atomicAdd(reinterpret_cast<unsigned long long*>(counts + 1),
              static_cast<unsigned long long>(negative));
}

template <class F>
__global__ void EachKernel(int64_t count, F f) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += static_cast<int64_t>(gridDim.x) * kThreads)
    f(i);
}

// A block computes one part of one group's sums: every kSumParts-th row.
template <int kLanes>
__global__ void ResidualKernel(RayView v, AngleRange range, ResidualKind kind,
                               const float* measured, SharedWeights rows, float floor,
                               float* projected, double* sums) {
  const int64_t group = blockIdx.y;
  const auto elements = static_cast<int>(v.detectors) * kLanes;
  double total[1] = {0};
  for (int64_t angle = range.begin + blockIdx.x; angle < range.end; angle += kSumParts) {
    const int64_t start = v.SinogramRow(group * v.angles + angle) * kLanes;
    const float* w = rows.data == nullptr
                         ? nullptr
                         : rows.data + group * rows.group_stride + v.SinogramRow(angle);
    for (int e = static_cast<int>(threadIdx.x); e < elements; e += kThreads) {
      const float b = measured[start + e], p = projected[start + e], r = b - p;
      total[0] += static_cast<double>(r) * static_cast<double>(r);
      projected[start + e] = kind == ResidualKind::kRatio      ? math::MlemRatio(b, p, floor)
                             : kind == ResidualKind::kWeighted ? w[e / kLanes] * r
                                                               : r;
    }
  }
  BlockSums<kThreads, kLanes>(total);
  if (sums != nullptr && threadIdx.x < kLanes)
    sums[(blockIdx.x * v.groups + group) * kLanes + threadIdx.x] += total[0];
}

template <int kLanes>
__global__ void UpdateKernel(RayView v, UpdateOptions o, const float* back, SharedWeights columns,
                             float* image, double* changes) {
  const int64_t group = blockIdx.y;
  const auto elements = static_cast<int>(v.size) * kLanes;
  double total[2] = {0, 0};
  for (int64_t r = blockIdx.x; r < v.size; r += kSumParts) {
    const int64_t start = v.ImageRow(group * v.size + r) * kLanes;
    const float* w = columns.data + group * columns.group_stride + v.ImageRow(r);
    for (int e = static_cast<int>(threadIdx.x); e < elements; e += kThreads) {
      const float weight = w[e / kLanes];
      if (weight == 0.0f) continue;
      const float x = image[start + e], a = back[start + e];
      const float after = o.kind == UpdateKind::kSirt ? math::SirtUpdate(x, a, weight, o.relaxation)
                                                      : math::MlemUpdate(x, a, weight);
      const float now = math::Clamped(after, o.lo, o.hi);
      image[start + e] = now;
      const double change = static_cast<double>(now) - static_cast<double>(x);
      total[0] += change * change;
      total[1] += static_cast<double>(x) * static_cast<double>(x);
    }
  }
  BlockSums<kThreads, kLanes>(total);
  if (threadIdx.x >= kLanes) return;
  double* to = changes + ((blockIdx.x * v.groups + group) * kLanes + threadIdx.x) * 2;
  to[0] += total[0];
  to[1] += total[1];
}

template <int kLanes>
__global__ void DualRaysKernel(RayView v, SharedWeights rows, TvSteps steps, bool first,
                               const float* measured, const float* bar, float* dual,
                               float* projected, double* sums) {
  const int64_t group = blockIdx.y;
  const auto elements = static_cast<int>(v.detectors) * kLanes;
  double total[1] = {0};
  for (int64_t angle = blockIdx.x; angle < v.angles; angle += kSumParts) {
    const int64_t start = v.SinogramRow(group * v.angles + angle) * kLanes;
    const float* w = rows.data + group * rows.group_stride + v.SinogramRow(angle);
    for (int e = static_cast<int>(threadIdx.x); e < elements; e += kThreads) {
      const float a = bar[start + e], before = first ? a : projected[start + e],
                  now = 0.5f * (before + a), b = measured[start + e], r = b - now;
      projected[start + e] = now;
      dual[start + e] =
          math::DualOfRay(first ? 0.0f : dual[start + e], a, b, steps.rays * w[e / kLanes]);
      total[0] += static_cast<double>(r) * static_cast<double>(r);
    }
  }
  BlockSums<kThreads, kLanes>(total);
  if (threadIdx.x < kLanes)
    sums[(blockIdx.x * v.groups + group) * kLanes + threadIdx.x] += total[0];
}

// A block computes every kSumParts-th row of a group.
template <int kLanes>
__global__ void DualSlopesKernel(RayView v, SharedWeights columns, TvSteps steps, const float* bar,
                                 float* right, float* down, double* gaps) {
  const int64_t group = blockIdx.y, below = v.image_pitch();
  const auto elements = static_cast<int>(v.size) * kLanes;
  double total[2] = {0, 0};
  for (int64_t r = blockIdx.x; r < v.size; r += kSumParts) {
    const int64_t start = v.ImageRow(group * v.size + r) * kLanes;
    const float* w = columns.data + group * columns.group_stride + v.ImageRow(r);
    for (int i = static_cast<int>(threadIdx.x); i < elements; i += kThreads) {
      const int c = i / kLanes;
      const int64_t e = start + i;
      const bool has_right = w[c] != 0.0f && c + 1 < v.size && w[c + 1] != 0.0f,
                 has_down = w[c] != 0.0f && r + 1 < v.size && w[c + below] != 0.0f;
      const float x = bar[e];
      const math::Slope slope{has_right ? bar[e + kLanes] - x : 0.0f,
                              has_down ? bar[e + below * kLanes] - x : 0.0f};
      const math::Slope now =
          math::DualOfSlope({right[e], down[e]}, slope, steps.slopes, steps.limit);
      right[e] = now.right;
      down[e] = now.down;
      total[0] += static_cast<double>(math::VariationGap(now, slope, steps.limit));
      total[1] += static_cast<double>(steps.limit * math::LengthOf(slope));
    }
  }
  BlockSums<kThreads, kLanes>(total);
  if (threadIdx.x >= kLanes) return;
  double* to = gaps + ((blockIdx.x * v.groups + group) * kLanes + threadIdx.x) * 2;
  to[0] += total[0];
  to[1] += total[1];
}

template <int kLanes>
__global__ void PrimalStepKernel(RayView v, UpdateOptions o, TvSteps steps, const float* back,
                                 SharedWeights columns, const float* right, const float* down,
                                 float* image, float* bar, double* changes) {
  const int64_t group = blockIdx.y, above = v.image_pitch() * kLanes;
  const auto elements = static_cast<int>(v.size) * kLanes;
  double total[2] = {0, 0};
  for (int64_t r = blockIdx.x; r < v.size; r += kSumParts) {
    const int64_t start = v.ImageRow(group * v.size + r) * kLanes;
    const float* w = columns.data + group * columns.group_stride + v.ImageRow(r);
    for (int i = static_cast<int>(threadIdx.x); i < elements; i += kThreads) {
      const float weight = w[i / kLanes];
      if (weight == 0.0f) continue;
      const int64_t e = start + i;
      // The margin left of the first column is zero.
      const float turned =
          (right[e - kLanes] - right[e]) + ((r == 0 ? 0.0f : down[e - above]) - down[e]);
      const float x = image[e],
                  now = math::Clamped(math::PrimalStep(x, back[e], turned, steps.columns * weight,
                                                       steps.strength, steps.image),
                                      o.lo, o.hi);
      image[e] = now;
      bar[e] = 2.0f * now - x;
      const double change = static_cast<double>(now) - static_cast<double>(x);
      total[0] += change * change;
      total[1] += static_cast<double>(x) * static_cast<double>(x);
    }
  }
  BlockSums<kThreads, kLanes>(total);
  if (threadIdx.x >= kLanes) return;
  double* to = changes + ((blockIdx.x * v.groups + group) * kLanes + threadIdx.x) * 2;
  to[0] += total[0];
  to[1] += total[1];
}

template <int kLanes>
__global__ void SquareSumKernel(int64_t groups, const float* a, int64_t elements, double* sums) {
  const int64_t group = blockIdx.y;
  double total[1] = {0};
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < elements;
       i += kSumParts * kThreads) {
    const double value = a[group * elements + i];
    total[0] += value * value;
  }
  BlockSums<kThreads, kLanes>(total);
  if (threadIdx.x < kLanes) sums[(blockIdx.x * groups + group) * kLanes + threadIdx.x] = total[0];
}

__global__ void TurnKernel(TurnedGrid grid, const float* in, bool add, float* out) {
  const auto x = static_cast<int32_t>(blockIdx.x * 32 + threadIdx.x),
             y = static_cast<int32_t>(blockIdx.y * 8 + threadIdx.y);
  if (x >= grid.n || y >= grid.n) return;
  const int64_t image = blockIdx.z * grid.n * grid.n, at = image + y * grid.n + x;
  const float value = math::TurnedPixel(in + image, static_cast<int32_t>(grid.n), grid.matrix,
                                        grid.interpolation, x, y);
  out[at] = add ? out[at] + value : value;
}

__global__ void SpreadResidualKernel(int64_t n, const float* data, int64_t slice_stride, bool ratio,
                                     float* turned, double* sums) {
  __shared__ float parts[kThreads / 32];
  __shared__ float spread;
  float* row = turned + blockIdx.x * n;
  float sum = 0;
  for (int64_t x = threadIdx.x; x < n; x += kThreads) sum += row[x];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xFFFFFFFFu, sum, offset);
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < kThreads / 32; ++w) sum += parts[w];
    const float measured = data[blockIdx.x / n * slice_stride + blockIdx.x % n];
    const double r = static_cast<double>(measured) - static_cast<double>(sum);
    sums[blockIdx.x] += r * r;
    spread = math::SpreadTerm(measured, sum, ratio);
  }
  __syncthreads();
  for (int64_t x = threadIdx.x; x < n; x += kThreads) row[x] += spread;
}

class CudaTomographyOps final : public TomographyOps, TomoLauncher {
 public:
  using TomoLauncher::TomoLauncher;

  // Two slices side by side and two empty lanes still cost less than two slices one by one.
  int64_t Lanes(int64_t slices, bool shared_center) const override {
    return shared_center && slices > 1 ? kCudaLanes : 1;
  }
  int64_t PieceSamples() const override { return int64_t{1} << 37; }
  int64_t FilterSamples(int64_t detectors) const override { return detectors * detectors; }

  absl::Status Transpose(StreamRef stream, const RayView& v, DeviceSpan<const float> image,
                         DeviceSpan<float> transposed) override {
    const dim3 grid(Blocks(v.size, 32), Blocks(v.size, 32), static_cast<unsigned>(v.groups));
    return Launch([&, image = image.data(), transposed = transposed.data()] {
      ForLanes(v, [&]<int kLanes>() {
        TransposeKernel<kLanes><<<grid, dim3(32, 8), 0, AsCuda(stream)>>>(
            static_cast<int>(v.size), v.image_pitch(), image, transposed);
      });
    });
  }
  absl::Status Forward(StreamRef stream, const RayView& v, const AngleRange& range,
                       DeviceSpan<const float> image, DeviceSpan<const float> transposed,
                       DeviceSpan<float> sinogram) override {
    return Launch(
        [&, image = image.data(), transposed = transposed.data(), sinogram = sinogram.data()] {
          LaunchForward(AsCuda(stream), v, range, image, transposed, sinogram);
        });
  }
  absl::Status Back(StreamRef stream, const RayView& v, const AngleRange& range,
                    DeviceSpan<const float> sinogram, DeviceSpan<float> image) override {
    return Launch([&, sinogram = sinogram.data(), image = image.data()] {
      LaunchBack(AsCuda(stream), v, range, sinogram, image);
    });
  }
  absl::Status AddPlane(StreamRef stream, const RayView& v, const math::VolumePlane& plane,
                        DeviceSpan<const float> sinogram, DeviceSpan<float> image) override {
    return Launch([&, sinogram = sinogram.data(), image = image.data()] {
      LaunchAddPlane(AsCuda(stream), v, plane, sinogram, image);
    });
  }
  absl::Status FilterRows(StreamRef stream, const RayView& v, const RowFilter& filter,
                          DeviceSpan<const float> in, DeviceSpan<float> out) override {
    return Launch([&, in = in.data(), out = out.data()] {
      LaunchFilterRows(AsCuda(stream), v, filter, in, out);
    });
  }

  absl::Status PackSinograms(StreamRef stream, const RayView& v, const SinogramView& in,
                             DeviceSpan<const int32_t> order, int64_t slices,
                             DeviceSpan<float> out) override {
    return Launch([&, order = order.data(), out = out.data()] {
      PackSinogramsKernel<<<static_cast<unsigned>(v.groups * v.angles), kThreads, 0,
                            AsCuda(stream)>>>(v, in, order, slices, out);
    });
  }
  absl::Status UnpackSinograms(StreamRef stream, const RayView& v, DeviceSpan<const float> in,
                               DeviceSpan<const int32_t> order, int64_t slices,
                               DeviceSpan<float> out) override {
    return Launch([&, in = in.data(), order = order.data(), out = out.data()] {
      UnpackSinogramsKernel<<<static_cast<unsigned>(slices * v.angles), kThreads, 0,
                              AsCuda(stream)>>>(v, in, order, out);
    });
  }
  absl::Status PackImages(StreamRef stream, const RayView& v, DeviceSpan<const float> in,
                          float value, int64_t n, int64_t slices, DeviceSpan<float> out) override {
    return Launch([&, in = in.data(), out = out.data()] {
      PackImagesKernel<<<static_cast<unsigned>(v.groups * v.size), kThreads, 0, AsCuda(stream)>>>(
          v, in, value, n, slices, out);
    });
  }
  absl::Status UnpackImages(StreamRef stream, const RayView& v, DeviceSpan<const float> in,
                            int64_t n, int64_t first, int64_t count,
                            DeviceSpan<float> out) override {
    return Launch([&, in = in.data(), out = out.data()] {
      UnpackImagesKernel<<<static_cast<unsigned>(count * n), kThreads, 0, AsCuda(stream)>>>(
          v, in, n, first, out);
    });
  }

  absl::Status Inspect(StreamRef stream, DeviceSpan<const float> values, int64_t count,
                       DeviceSpan<int64_t> counts) override {
    return Launch([&, values = values.data(), counts = counts.data()]() -> absl::Status {
      OCTAVO_CUDA(health_.get(), cudaMemsetAsync(counts, 0, 2 * sizeof *counts, AsCuda(stream)));
      InspectKernel<<<Grid(count), kThreads, 0, AsCuda(stream)>>>(values, count, counts);
      return absl::OkStatus();
    });
  }
  absl::Status DropNegative(StreamRef stream, DeviceSpan<float> values, int64_t count) override {
    return ForEach(stream, count, [=, values = values.data()] __device__(int64_t i) {
      values[i] = math::Larger(values[i], 0.0f);
    });
  }
  absl::Status Reciprocal(StreamRef stream, DeviceSpan<float> values, int64_t count,
                          float least) override {
    return ForEach(stream, count, [=, values = values.data()] __device__(int64_t i) {
      values[i] = values[i] > least ? 1.0f / values[i] : 0.0f;
    });
  }

  absl::Status Residual(StreamRef stream, const RayView& v, const AngleRange& range,
                        ResidualKind kind, DeviceSpan<const float> measured,
                        const SharedWeights& rows, float floor, DeviceSpan<float> projected,
                        DeviceSpan<double> sums) override {
    return Launch(
        [&, measured = measured.data(), projected = projected.data(), sums = sums.data()] {
          ForLanes(v, [&]<int kLanes>() {
            ResidualKernel<kLanes><<<Parts(v), kThreads, 0, AsCuda(stream)>>>(
                v, range, kind, measured, rows, floor, projected, sums);
          });
        });
  }
  absl::Status Update(StreamRef stream, const RayView& v, const UpdateOptions& options,
                      DeviceSpan<const float> back, const SharedWeights& columns,
                      DeviceSpan<float> image, DeviceSpan<double> changes) override {
    return Launch([&, back = back.data(), image = image.data(), changes = changes.data()] {
      ForLanes(v, [&]<int kLanes>() {
        UpdateKernel<kLanes>
            <<<Parts(v), kThreads, 0, AsCuda(stream)>>>(v, options, back, columns, image, changes);
      });
    });
  }
  absl::Status DualRays(StreamRef stream, const RayView& v, const SharedWeights& rows,
                        const TvSteps& steps, bool first, DeviceSpan<const float> measured,
                        DeviceSpan<const float> bar, DeviceSpan<float> dual,
                        DeviceSpan<float> projected, DeviceSpan<double> sums) override {
    return Launch([&, measured = measured.data(), bar = bar.data(), dual = dual.data(),
                   projected = projected.data(), sums = sums.data()] {
      ForLanes(v, [&]<int kLanes>() {
        DualRaysKernel<kLanes><<<Parts(v), kThreads, 0, AsCuda(stream)>>>(
            v, rows, steps, first, measured, bar, dual, projected, sums);
      });
    });
  }
  absl::Status DualSlopes(StreamRef stream, const RayView& v, const SharedWeights& columns,
                          const TvSteps& steps, DeviceSpan<const float> bar,
                          DeviceSpan<float> right, DeviceSpan<float> down,
                          DeviceSpan<double> gaps) override {
    return Launch([&, bar = bar.data(), right = right.data(), down = down.data(),
                   gaps = gaps.data()] {
      ForLanes(v, [&]<int kLanes>() {
        DualSlopesKernel<kLanes>
            <<<Parts(v), kThreads, 0, AsCuda(stream)>>>(v, columns, steps, bar, right, down, gaps);
      });
    });
  }
  absl::Status PrimalStep(StreamRef stream, const RayView& v, const UpdateOptions& options,
                          const TvSteps& steps, DeviceSpan<const float> back,
                          const SharedWeights& columns, DeviceSpan<const float> right,
                          DeviceSpan<const float> down, DeviceSpan<float> image,
                          DeviceSpan<float> bar, DeviceSpan<double> changes) override {
    return Launch([&, back = back.data(), right = right.data(), down = down.data(),
                   image = image.data(), bar = bar.data(), changes = changes.data()] {
      ForLanes(v, [&]<int kLanes>() {
        PrimalStepKernel<kLanes><<<Parts(v), kThreads, 0, AsCuda(stream)>>>(
            v, options, steps, back, columns, right, down, image, bar, changes);
      });
    });
  }
  absl::Status SquareSum(StreamRef stream, const RayView& v, DeviceSpan<const float> a,
                         int64_t elements, DeviceSpan<double> sums) override {
    return Launch([&, a = a.data(), sums = sums.data()] {
      ForLanes(v, [&]<int kLanes>() {
        SquareSumKernel<kLanes>
            <<<Parts(v), kThreads, 0, AsCuda(stream)>>>(v.groups, a, elements, sums);
      });
    });
  }
  absl::Status ScaledAdd(StreamRef stream, const RayView& v, DeviceSpan<const float> alpha,
                         DeviceSpan<const float> x, DeviceSpan<const float> beta,
                         DeviceSpan<float> y, int64_t elements) override {
    const int64_t lanes = v.lanes;
    return ForEach(stream, v.groups * elements,
                   [=, alpha = alpha.data(), x = x.data(), beta = beta.data(),
                    y = y.data()] __device__(int64_t i) {
                     const int64_t lane = i / elements * lanes + i % lanes;
                     y[i] = fmaf(alpha[lane], x[i], beta[lane] * y[i]);
                   });
  }

  absl::Status Rotate(StreamRef stream, const TurnedGrid& grid, DeviceSpan<const float> in,
                      bool add, DeviceSpan<float> out) override {
    const dim3 blocks(Blocks(grid.n, 32), Blocks(grid.n, 8), static_cast<unsigned>(grid.slices));
    return Launch([&, in = in.data(), out = out.data()] {
      TurnKernel<<<blocks, dim3(32, 8), 0, AsCuda(stream)>>>(grid, in, add, out);
    });
  }
  absl::Status SpreadResidual(StreamRef stream, int64_t slices, int64_t n,
                              DeviceSpan<const float> data, int64_t slice_stride, bool ratio,
                              DeviceSpan<float> turned, DeviceSpan<double> sums) override {
    return Launch([&, data = data.data(), turned = turned.data(), sums = sums.data()] {
      SpreadResidualKernel<<<static_cast<unsigned>(slices * n), kThreads, 0, AsCuda(stream)>>>(
          n, data, slice_stride, ratio, turned, sums);
    });
  }
  absl::Status SpreadUpdate(StreamRef stream, int64_t slices, int64_t n,
                            DeviceSpan<const float> update, DeviceSpan<const float> cover,
                            bool ratio, DeviceSpan<float> image) override {
    const auto width = static_cast<float>(n);
    const int64_t pixels = n * n;
    return ForEach(stream, slices * pixels,
                   [=, update = update.data(), cover = cover.data(),
                    image = image.data()] __device__(int64_t i) {
                     image[i] =
                         math::SpreadUpdated(image[i], update[i], cover[i % pixels], width, ratio);
                   });
  }

 private:
  static unsigned Grid(int64_t count) { return std::min(Blocks(count, kThreads), 4096u); }
  static dim3 Parts(const RayView& v) {
    return {static_cast<unsigned>(kSumParts), static_cast<unsigned>(v.groups)};
  }
  template <class F>
  static void ForLanes(const RayView& v, F f) {
    v.lanes == 1 ? f.template operator()<1>()
                 : f.template operator()<static_cast<int>(kCudaLanes)>();
  }
  template <class F>
  absl::Status ForEach(StreamRef stream, int64_t count, F f) {
    if (count == 0) return absl::OkStatus();
    return Launch([&] { EachKernel<<<Grid(count), kThreads, 0, AsCuda(stream)>>>(count, f); });
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<TomographyOps>> MakeTomographyOps(Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(CudaContext context, FindCudaContext(device, TomographyOps::kFamily));
  return std::make_unique<CudaTomographyOps>(context.ordinal, std::move(context.health));
}

}  // namespace octavo::inline gpu::cuda

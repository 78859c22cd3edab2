#include <algorithm>
#include <cmath>
#include <memory>

#include "gpu/base/status.h"
#include "gpu/device/cuda/cuda_context.h"
#include "gpu/device/cuda/cuda_stream.h"
#include "gpu/tomography/cuda/launch.cuh"
#include "gpu/tomography/gridding.h"

namespace octavo::inline gpu::cuda {
namespace {

// A warp computes a tile, a thread a point of it. A line crosses only a band of the tile; small
// tiles leave few threads without work.
constexpr int kTileColumns = 8, kTileRows = 4, kWarps = 8;
static_assert(kTileColumns * kTileRows == 32 && kGridStep % kTileColumns == 0 &&
              kGridStep % kTileRows == 0);
constexpr int kMostLanes = 4;

template <int kLanes>
struct LaneSums {
  float2 v[kLanes];
};

// Adds the samples that reach the point (x, y), counted from the origin, from every `stride`-th
// line of the tile, from the line `from` on.
template <int kWidth, int kLanes>
__device__ void AddLines(const GriddingView& v, const math::TileLines& range, int from, int stride,
                         float x, float y, const float2* __restrict__ samples,
                         LaneSums<kLanes>& sums) {
  constexpr float kHalf = 0.5f * kWidth;
  const float step = v.shape.step(), per_step = 1.0f / step;
  const int middle = static_cast<int>(v.shape.reach), count = 2 * middle + 1,
            lines = static_cast<int>(v.shape.lines);
  for (int i = from; i < range.count; i += stride) {
    int at = range.begin + i;
    if (at >= lines) at -= lines;
    const math::GridLine* line = v.lines + at;
    const float cosine = line->cosine, minus_sine = line->minus_sine;
    math::LineSpan span{-static_cast<float>(middle) * step, static_cast<float>(middle) * step};
    math::ClipSpan(cosine, x - kHalf, x + kHalf, &span);
    math::ClipSpan(minus_sine, y - kHalf, y + kHalf, &span);
    if (span.lo > span.hi) continue;
    // One sample more on either side, where the kernel is 0: rounding decides nothing.
    const int begin = max(__float2int_rd(span.lo * per_step) + middle, 0),
              end = min(__float2int_ru(span.hi * per_step) + middle + 1, count);
    const float2* sample = samples + (static_cast<int64_t>(at) * count + begin) * kLanes;
    const float dx = step * cosine * v.kernel.inverse_half,
                dy = step * minus_sine * v.kernel.inverse_half;
    float off_x = fmaf(static_cast<float>(begin - middle), dx, -x * v.kernel.inverse_half),
          off_y = fmaf(static_cast<float>(begin - middle), dy, -y * v.kernel.inverse_half);
    for (int k = begin; k < end; ++k, sample += kLanes, off_x += dx, off_y += dy) {
      const float sx = fmaf(-off_x, off_x, 1.0f), sy = fmaf(-off_y, off_y, 1.0f);
      if (fminf(sx, sy) <= 0.0f) continue;
      const float weight =
          math::KernelAt<kWidth>(v.kernel, sx) * math::KernelAt<kWidth>(v.kernel, sy);
      if constexpr (kLanes == 1) {
        const float2 s = sample[0];
        sums.v[0].x = fmaf(weight, s.x, sums.v[0].x);
        sums.v[0].y = fmaf(weight, s.y, sums.v[0].y);
      } else {
#pragma unroll
        for (int l = 0; l < kLanes; l += 2) {
          const float4 s = *reinterpret_cast<const float4*>(sample + l);
          sums.v[l].x = fmaf(weight, s.x, sums.v[l].x);
          sums.v[l].y = fmaf(weight, s.y, sums.v[l].y);
          sums.v[l + 1].x = fmaf(weight, s.z, sums.v[l + 1].x);
          sums.v[l + 1].y = fmaf(weight, s.w, sums.v[l + 1].y);
        }
      }
    }
  }
}

// Adds up a tile at all its places.
template <int kWidth, int kLanes>
__device__ void AddTile(const GriddingView& v, int column, int row, int from, int stride,
                        const float2* __restrict__ samples, LaneSums<kLanes>& sums) {
  const int size = static_cast<int>(v.shape.grid_size), thread = static_cast<int>(threadIdx.x);
  const int x = column * kTileColumns + thread % kTileColumns - size / 2,
            y = row * kTileRows + thread / kTileColumns - size / 2;
#pragma unroll 1
  for (int i = 0; i < kTileImages; ++i) {
    const TileImage image = v.tiles.ImageOf(column, row, i);
    if (image.index < 0) continue;
    AddLines<kWidth, kLanes>(v, v.lines_of[image.index], from, stride,
                             static_cast<float>(x + static_cast<int>(image.shift_x)),
                             static_cast<float>(y + static_cast<int>(image.shift_y)), samples,
                             sums);
  }
}

template <int kLanes>
__device__ void StoreTile(const GriddingView& v, int column, int row, const LaneSums<kLanes>& sums,
                          float2* __restrict__ grid) {
  const int64_t size = v.shape.grid_size;
  const int thread = static_cast<int>(threadIdx.x),
            x = column * kTileColumns + thread % kTileColumns,
            y = row * kTileRows + thread / kTileColumns;
  const float sign = math::Chessboard(x + y);
#pragma unroll
  for (int l = 0; l < kLanes; ++l)
    grid[l * size * size + y * size + x] = make_float2(sums.v[l].x * sign, sums.v[l].y * sign);
}

// One tile a warp; a block has kWarps neighbours in a row. Busy tiles are left to BusyKernel.
template <int kWidth, int kLanes>
__global__ void __launch_bounds__(32 * kWarps)
    GatherKernel(const GriddingView v, int first_row, const float2* __restrict__ samples,
                 float2* __restrict__ grid) {
  const int column = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.y),
            row = first_row + static_cast<int>(blockIdx.y);
  if (column >= v.tiles.columns || v.lines_of[row * v.tiles.columns + column].count > kBusyLines)
    return;
  LaneSums<kLanes> sums = {};
  AddTile<kWidth, kLanes>(v, column, row, 0, 1, samples, sums);
  StoreTile(v, column, row, sums, grid);
}

// One tile a block: warp w adds the lines w, w + kWarps …; their sums are added in their order.
template <int kWidth, int kLanes>
__global__ void __launch_bounds__(32 * kWarps)
    BusyKernel(const GriddingView v, int first_column, int first_row,
               const float2* __restrict__ samples, float2* __restrict__ grid) {
  __shared__ LaneSums<kLanes> parts[kWarps][32];
  const int column = first_column + static_cast<int>(blockIdx.x),
            row = first_row + static_cast<int>(blockIdx.y);
  if (v.lines_of[row * v.tiles.columns + column].count <= kBusyLines) return;
  LaneSums<kLanes> sums = {};
  AddTile<kWidth, kLanes>(v, column, row, static_cast<int>(threadIdx.y), kWarps, samples, sums);
  parts[threadIdx.y][threadIdx.x] = sums;
  __syncthreads();
  if (threadIdx.y != 0) return;
  for (int w = 1; w < kWarps; ++w) {
#pragma unroll
    for (int l = 0; l < kLanes; ++l) {
      sums.v[l].x += parts[w][threadIdx.x].v[l].x;
      sums.v[l].y += parts[w][threadIdx.x].v[l].y;
    }
  }
  StoreTile(v, column, row, sums, grid);
}

constexpr int kTurn = 32, kTurnRows = 8;

// columns[x][y] = grid[y][begin + x]
__global__ void TakeColumnsKernel(int64_t n, int64_t m, int64_t begin, const float2* grid,
                                  float2* columns) {
  __shared__ float2 tile[kTurn][kTurn + 1];
  const float2* from = grid + blockIdx.z * m * m + begin;
  float2* to = columns + blockIdx.z * n * m;
  const int64_t x0 = static_cast<int64_t>(blockIdx.x) * kTurn,
                y0 = static_cast<int64_t>(blockIdx.y) * kTurn;
  const int t = static_cast<int>(threadIdx.x);
  for (int i = static_cast<int>(threadIdx.y); i < kTurn; i += kTurnRows)
    if (x0 + t < n) tile[i][t] = from[(y0 + i) * m + x0 + t];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.y); i < kTurn; i += kTurnRows)
    if (x0 + i < n) to[(x0 + i) * m + y0 + t] = tile[t][i];
}

// images[y][x] from columns[x][begin + y]: the real part is the first slice of a pair.
__global__ void FinishImagesKernel(const GriddingView v, const float2* columns, float* images) {
  __shared__ float2 tile[kTurn][kTurn + 1];
  const int64_t n = v.shape.image_size, m = v.shape.grid_size, slice = 2 * blockIdx.z;
  const float2* from = columns + blockIdx.z * n * m + v.image_begin();
  const int64_t x0 = static_cast<int64_t>(blockIdx.x) * kTurn,
                y0 = static_cast<int64_t>(blockIdx.y) * kTurn;
  const int t = static_cast<int>(threadIdx.x);
  for (int i = static_cast<int>(threadIdx.y); i < kTurn; i += kTurnRows)
    if (x0 + i < n && y0 + t < n) tile[i][t] = from[(x0 + i) * m + y0 + t];
  __syncthreads();
  const int64_t x = x0 + t;
  if (x >= n) return;
  for (int i = static_cast<int>(threadIdx.y); i < kTurn; i += kTurnRows) {
    const int64_t y = y0 + i;
    if (y >= n) break;
    const float factor = v.Counts(y, x) ? v.deapodisation[x] * v.deapodisation[y] : 0.0f;
    const float2 value = tile[t][i];
    images[(slice * n + y) * n + x] = value.x * factor;
    if (slice + 1 < v.slices) images[((slice + 1) * n + y) * n + x] = value.y * factor;
  }
}

struct PackPair {
  GriddingView v;
  SinogramView in;
  float2* rows;
  __device__ void operator()(int64_t row, int64_t k) const {
    const int64_t first = 2 * (row / v.shape.lines), d = v.shape.detectors,
                  angle = v.lines[row % v.shape.lines].projection;
    int64_t at = k;
    float2 value = make_float2(0, 0);
    if (k >= d) at = !v.extend_edges ? -1 : k < v.padding_middle() ? d - 1 : 0;
    if (at >= 0 && first < v.slices) {
      value.x = in.Row(v.first + first, angle)[at];
      if (first + 1 < v.slices) value.y = in.Row(v.first + first + 1, angle)[at];
    }
    rows[row * v.shape.length + k] = value;
  }
};

struct MakeSample {
  GriddingView v;
  const ComplexF* rows;
  ComplexF* samples;
  // cos and sin of 2π r (axis + shift) / L. The turns are many, so their whole part goes in f64.
  __device__ ComplexF Phase(int64_t slice, const math::GridLine& line, int64_t r) const {
    const double turns = static_cast<double>(r) *
                         (v.centers[v.shared_center ? 0 : slice] + line.shift) /
                         static_cast<double>(v.shape.length);
    ComplexF phase;
    sincospif(2.0f * static_cast<float>(turns - rint(turns)), &phase.im, &phase.re);
    return phase;
  }
  __device__ void operator()(int64_t index, int64_t k) const {
    const math::GridLine line = v.lines[index];
    const int64_t n = v.shape.length, r = k - v.shape.reach;
    const float factor = v.response[r < 0 ? -r : r] * line.weight;
    const ComplexF shared = Phase(v.first, line, r);
    for (int64_t lane = 0; lane < v.lanes; ++lane) {
      const ComplexF* row = rows + (lane * v.shape.lines + index) * n;
      const ComplexF z = row[v.shape.Wrapped(r)];
      ComplexF s = Turned(z, shared);
      if (!v.shared_center && 2 * lane < v.slices) {
        const int64_t slice = v.first + 2 * lane, last = v.first + v.slices - 1;
        s = TurnedApart(z, row[v.shape.Wrapped(-r)], Phase(slice, line, r),
                        Phase(slice < last ? slice + 1 : slice, line, r));
      }
      samples[(index * v.shape.samples() + k) * v.lanes + lane] = {s.re * factor, s.im * factor};
    }
  }
};

class CudaGriddingOps final : public GriddingOps, TomoLauncher {
 public:
  using TomoLauncher::TomoLauncher;

  int64_t Lanes() const override { return kMostLanes; }
  GridChoice Choice() const override {
    return {.tile_columns = kTileColumns, .tile_rows = kTileRows, .oversampling = 2};
  }
  DirectCosts Costs() const override {
    return {.back = 2.6e-13,
            .filter = 0.9e-13,
            .sample = 7.3e-11,
            .transform = 6.2e-13,
            .start = 1.2e-5};
  }

  // samples[line, sample, lane]; rows[lane, line, L], later columns[lane, N, M].
  GriddingMemory Memory(const GriddingShape& g) const override {
    return {.samples = g.lines * g.samples(),
            .work = std::max(g.lines * g.length, g.image_size * g.grid_size)};
  }
  absl::StatusOr<int64_t> PrepareTransforms(const GriddingShape& g, int64_t most_lanes,
                                            ArrayOps& arrays) override {
    int64_t most = 0;
    for (int64_t lanes = 1; lanes <= most_lanes; lanes *= 2) {
      for (const FftSpec& fft : {FftSpec{.n = g.length, .rows = lanes * g.lines},
                                 FftSpec{.n = g.grid_size, .rows = lanes * g.grid_size},
                                 FftSpec{.n = g.grid_size, .rows = lanes * g.image_size}}) {
        OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, arrays.PrepareFft(fft));
        most = std::max(most, bytes);
      }
    }
    return most;
  }

  absl::Status MakeSamples(StreamRef stream, const GriddingView& view, const SinogramView& in,
                           const GridTransforms& transforms, DeviceSpan<ComplexF> work,
                           DeviceSpan<ComplexF> samples) override {
    const int64_t n = view.shape.length, d = view.shape.detectors,
                  lines = view.lanes * view.shape.lines;
    ComplexF* const rows = work.data();
    const auto transform = [&](bool inverse) {
      return transforms.arrays.Fft(stream, {.n = n, .rows = lines, .inverse = inverse}, rows,
                                   transforms.workspace);
    };
    OCTAVO_RETURN_IF_ERROR(
        ForRows(stream, lines, n, PackPair{view, in, reinterpret_cast<float2*>(rows)}));
    OCTAVO_RETURN_IF_ERROR(transform(/*inverse=*/false));
    if (view.shape.cut) {
      const auto filter_row = [=, filter = view.filter] __device__(int64_t row, int64_t k) {
        const float factor = filter[k < n - k ? k : n - k];
        ComplexF& value = rows[row * n + k];
        value = {value.re * factor, value.im * factor};
      };
      const auto cut_row = [=] __device__(int64_t row, int64_t k) {
        rows[row * n + d + k] = {0, 0};
      };
      OCTAVO_RETURN_IF_ERROR(ForRows(stream, lines, n, filter_row));
      OCTAVO_RETURN_IF_ERROR(transform(/*inverse=*/true));
      OCTAVO_RETURN_IF_ERROR(ForRows(stream, lines, n - d, cut_row));
      OCTAVO_RETURN_IF_ERROR(transform(/*inverse=*/false));
    }
    return ForRows(stream, view.shape.lines, view.shape.samples(),
                   MakeSample{view, rows, samples.data()});
  }

  absl::Status Gather(StreamRef stream, const GriddingView& view, int64_t begin, int64_t end,
                      DeviceSpan<const ComplexF> samples, DeviceSpan<ComplexF> grid) override {
    const auto* from = reinterpret_cast<const float2*>(samples.data());
    auto* to = reinterpret_cast<float2*>(grid.data());
    return Launch([&] {
      switch (view.shape.width) {
        case 3: GatherWidth<3>(AsCuda(stream), view, begin, end, from, to); break;
        case 4: GatherWidth<4>(AsCuda(stream), view, begin, end, from, to); break;
        case 5: GatherWidth<5>(AsCuda(stream), view, begin, end, from, to); break;
        case 6: GatherWidth<6>(AsCuda(stream), view, begin, end, from, to); break;
        default: GatherWidth<7>(AsCuda(stream), view, begin, end, from, to); break;
      }
    });
  }

  absl::Status TransformGrid(StreamRef stream, const GriddingView& view,
                             const GridTransforms& transforms, DeviceSpan<ComplexF> grid,
                             DeviceSpan<ComplexF> work) override {
    const int64_t n = view.shape.image_size, m = view.shape.grid_size;
    OCTAVO_RETURN_IF_ERROR(transforms.arrays.Fft(stream,
                                                 {.n = m, .rows = view.lanes * m, .inverse = true},
                                                 grid.data(), transforms.workspace));
    const dim3 blocks(Tiles(n), Tiles(m), static_cast<unsigned>(view.lanes));
    return Launch([&, grid = grid.data(), columns = work.data()] {
      TakeColumnsKernel<<<blocks, dim3(kTurn, kTurnRows), 0, AsCuda(stream)>>>(
          n, m, view.image_begin(), reinterpret_cast<const float2*>(grid),
          reinterpret_cast<float2*>(columns));
    });
  }
  absl::Status MakeImages(StreamRef stream, const GriddingView& view,
                          const GridTransforms& transforms, DeviceSpan<ComplexF> work,
                          DeviceSpan<float> images) override {
    OCTAVO_RETURN_IF_ERROR(transforms.arrays.Fft(
        stream,
        {.n = view.shape.grid_size, .rows = view.lanes * view.shape.image_size, .inverse = true},
        work.data(), transforms.workspace));
    const unsigned tiles = Tiles(view.shape.image_size);
    const dim3 blocks(tiles, tiles, static_cast<unsigned>((view.slices + 1) / 2));
    return Launch([&, columns = work.data(), images = images.data()] {
      FinishImagesKernel<<<blocks, dim3(kTurn, kTurnRows), 0, AsCuda(stream)>>>(
          view, reinterpret_cast<const float2*>(columns), images);
    });
  }

 private:
  static unsigned Tiles(int64_t count) {
    return static_cast<unsigned>((count + kTurn - 1) / kTurn);
  }

  template <int kWidth>
  static void GatherWidth(cudaStream_t stream, const GriddingView& v, int64_t begin, int64_t end,
                          const float2* samples, float2* grid) {
    switch (v.lanes) {
      case 1: GatherLanes<kWidth, 1>(stream, v, begin, end, samples, grid); break;
      case 2: GatherLanes<kWidth, 2>(stream, v, begin, end, samples, grid); break;
      default: GatherLanes<kWidth, kMostLanes>(stream, v, begin, end, samples, grid); break;
    }
  }
  // Busy tiles first, because they take longest.
  template <int kWidth, int kLanes>
  static void GatherLanes(cudaStream_t stream, const GriddingView& v, int64_t begin, int64_t end,
                          const float2* samples, float2* grid) {
    const int64_t columns = v.tiles.columns, busy_begin = std::max(begin, v.busy.row_begin),
                  busy_end = std::min(end, v.busy.row_end);
    const dim3 threads(32, kWarps);
    if (busy_begin < busy_end) {
      const dim3 blocks(static_cast<unsigned>(v.busy.column_end - v.busy.column_begin),
                        static_cast<unsigned>(busy_end - busy_begin));
      BusyKernel<kWidth, kLanes><<<blocks, threads, 0, stream>>>(
          v, static_cast<int>(v.busy.column_begin), static_cast<int>(busy_begin), samples, grid);
    }
    GatherKernel<kWidth, kLanes><<<dim3(static_cast<unsigned>((columns + kWarps - 1) / kWarps),
                                        static_cast<unsigned>(end - begin)),
                                   threads, 0, stream>>>(v, static_cast<int>(begin), samples, grid);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<GriddingOps>> MakeGriddingOps(Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(CudaContext context, FindCudaContext(device, GriddingOps::kFamily));
  return std::make_unique<CudaGriddingOps>(context.ordinal, std::move(context.health));
}

}  // namespace octavo::inline gpu::cuda

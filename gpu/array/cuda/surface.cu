#include <algorithm>

#include "gpu/array/surface_elements.h"
#include "gpu/base/status.h"
#include "gpu/device/cuda/cuda_context.h"
#include "gpu/device/cuda/cuda_stream.h"

namespace octavo::inline gpu::cuda {
namespace {

// Neighbouring threads have neighbouring columns, whose samples at a depth lie side by side.
constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1056;  // of tiles, whose blocks end with atomics

unsigned Blocks(int64_t items) {
  return static_cast<unsigned>(std::clamp<int64_t>((items + kThreads - 1) / kThreads, 1, 1 << 20));
}
__device__ inline int64_t FirstItem() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t ItemStep() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

__global__ void WeighSamples(SampleWeightsSpec s, const void* in, const uint8_t* mask,
                             math::WeightedSample* out) {
  const int64_t lines = s.shape.lines();
  for (int64_t i = FirstItem(); i < s.shape.n * lines; i += ItemStep()) {
    out[i] = math::SampleOf(static_cast<float>(math::Load(s.in, in, i).re), s.zero_is_data,
                            Counts(s.mask, s.shape, mask, i / lines, i % lines));
  }
}

__global__ void Smooth(SmoothSamplesSpec s, const math::WeightedSample* in, const float* weight,
                       math::WeightedSample* out) {
  for (int64_t i = FirstItem(); i < s.outer * s.n * s.inner; i += ItemStep()) {
    const int64_t q = i % s.inner, z = i / s.inner % s.n, o = i / s.inner / s.n;
    const math::WeightedSample* const from = in + o * s.n * s.inner + q;
    out[i] =
        math::SmoothSample([&](int64_t k) { return from[k * s.inner]; }, z, s.n, weight, s.radius);
  }
}

// -- the thresholds of tiles: `parts` blocks for each

__global__ void BeginTiles(int64_t tiles, SurfaceTile* out) {
  for (int64_t i = FirstItem(); i < tiles; i += ItemStep()) out[i] = SurfaceTile{};
}

// f(the mean of a recorded sample) for the samples of a tile that are this block's.
template <typename F>
__device__ inline void EachOfTile(const SurfaceSpec& s, const math::WeightedSample* in,
                                  int64_t tile, int64_t part, int64_t parts, const F& f) {
  const int64_t y0 = tile / s.tiles_across() * s.tile_rows,
                x0 = tile % s.tiles_across() * s.tile_columns;
  const int64_t rows = min(s.tile_rows, s.shape.rows - y0),
                columns = min(s.tile_columns, s.shape.columns - x0);
  for (int64_t i = part * blockDim.x + threadIdx.x; i < s.shape.n * rows * columns;
       i += parts * blockDim.x) {
    const int64_t x = x0 + i % columns, y = y0 + i / columns % rows, z = i / columns / rows;
    const float v = math::MeanOf(in[z * s.shape.lines() + y * s.shape.columns + x]);
    if (v == v) f(static_cast<double>(v));
  }
}

__global__ void TileRange(SurfaceSpec s, int64_t parts, const math::WeightedSample* in,
                          SurfaceTile* tiles) {
  for (int64_t b = blockIdx.x; b < s.tiles() * parts; b += gridDim.x) {
    unsigned long long least = ~0ull, most = 0;
    EachOfTile(s, in, b / parts, b % parts, parts, [&](double v) {
      least = min(least, static_cast<unsigned long long>(math::KeyOf(v)));
      most = max(most, static_cast<unsigned long long>(math::KeyOf(v)));
    });
    for (int offset = 16; offset > 0; offset /= 2) {
      least = min(least, __shfl_down_sync(0xFFFFFFFFu, least, offset));
      most = max(most, __shfl_down_sync(0xFFFFFFFFu, most, offset));
    }
    if (threadIdx.x % 32 == 0) {
      atomicMin(&tiles[b / parts].least, least);
      atomicMax(&tiles[b / parts].most, most);
    }
  }
}

__global__ void TileCount(SurfaceSpec s, int64_t parts, const math::WeightedSample* in,
                          SurfaceTile* tiles) {
  __shared__ unsigned own[math::kSurfaceBins];
  for (int64_t b = blockIdx.x; b < s.tiles() * parts; b += gridDim.x) {
    SurfaceTile& tile = tiles[b / parts];
    if (tile.least >= tile.most) continue;  // nothing to tell apart; the same for all threads
    for (int k = static_cast<int>(threadIdx.x); k < math::kSurfaceBins; k += blockDim.x) own[k] = 0;
    __syncthreads();
    const double lo = math::OfKey(tile.least), hi = math::OfKey(tile.most);
    EachOfTile(s, in, b / parts, b % parts, parts, [&](double v) {
      if (const int64_t bin = math::BinOf(v, lo, hi, math::kSurfaceBins); bin >= 0)
        atomicAdd(&own[bin], 1u);
    });
    __syncthreads();
    for (int k = static_cast<int>(threadIdx.x); k < math::kSurfaceBins; k += blockDim.x) {
      if (own[k] != 0) atomicAdd(&tile.counts[k], static_cast<unsigned long long>(own[k]));
    }
    __syncthreads();
  }
}

__global__ void EndTiles(int64_t count, SurfaceTile* tiles) {
  for (int64_t i = FirstItem(); i < count; i += ItemStep()) {
    SurfaceTile& tile = tiles[i];
    if (tile.least > tile.most) continue;
    tile.levels = math::SurfaceLevelsOf(reinterpret_cast<const uint64_t*>(tile.counts),
                                        math::OfKey(tile.least), math::OfKey(tile.most));
  }
}

__global__ void Find(SurfaceSpec s, const math::WeightedSample* in, const SurfaceTile* tiles,
                     float* out) {
  const int64_t lines = s.shape.lines(), columns = s.shape.columns;
  for (int64_t line = FirstItem(); line < lines; line += ItemStep()) {
    const int64_t tile =
        line / columns / s.tile_rows * s.tiles_across() + line % columns / s.tile_columns;
    out[line] = math::FindSurface([&](int64_t z) { return math::MeanOf(in[z * lines + line]); },
                                  s.shape.n, tiles[tile].levels, s.thickness);
  }
}
__global__ void Agree(SurfaceSpec s, const float* in, float* out) {
  const int64_t columns = s.shape.columns;
  for (int64_t line = FirstItem(); line < s.shape.lines(); line += ItemStep()) {
    out[line] = math::AgreedSurface(in, s.shape.rows, columns, line / columns, line % columns,
                                    static_cast<float>(s.thickness));
  }
}
__global__ void SmoothMap(SurfaceSpec s, const float* in, float* out) {
  const int64_t columns = s.shape.columns;
  for (int64_t line = FirstItem(); line < s.shape.lines(); line += ItemStep()) {
    out[line] = math::SmoothSurface(in, s.shape.rows, columns, line / columns, line % columns);
  }
}

// -- the steepest rise

__global__ void CompactColumns(CompactSpec s, const float* in, const uint8_t* mask, float* out) {
  const int64_t lines = s.shape.lines();
  for (int64_t line = FirstItem(); line < lines; line += ItemStep()) {
    int64_t k = 0;
    for (int64_t z = 0; z < s.shape.n; ++z) {
      if (Counts(s.mask, s.shape, mask, z, line)) out[k++ * lines + line] = in[z * lines + line];
    }
  }
}
__global__ void FindSteepest(SteepestSpec s, const float* in, const uint8_t* mask,
                             const double* rise, const double* smooth, float* out) {
  const int64_t lines = s.shape.lines();
  for (int64_t line = FirstItem(); line < lines; line += ItemStep()) {
    const auto masked = [&](int64_t z) { return Counts(s.mask, s.shape, mask, z, line); };
    int64_t count = mask == nullptr ? s.shape.n : 0;
    if (mask != nullptr) {
      for (int64_t z = 0; z < s.shape.n; ++z) count += masked(z) ? 1 : 0;
    }
    out[line] = math::FindSteepest([&](int64_t k) { return in[k * lines + line]; }, masked,
                                   s.shape.n, count, rise, smooth, s.radius, s.sigma);
  }
}

class CudaSurfaceOps final : public SurfaceOps {
 public:
  CudaSurfaceOps(int ordinal, std::shared_ptr<DeviceHealth> health)
      : ordinal_(ordinal), health_(std::move(health)) {}

  absl::Status SampleWeights(StreamRef stream, const SampleWeightsSpec& s, const void* in,
                             const uint8_t* mask, void* out) override {
    const DeviceGuard guard(ordinal_);
    WeighSamples<<<Blocks(s.shape.n * s.shape.lines()), kThreads, 0, AsCuda(stream)>>>(
        s, in, mask, static_cast<math::WeightedSample*>(out));
    return Launched();
  }

  absl::Status SmoothSamples(StreamRef stream, const SmoothSamplesSpec& s, const void* in,
                             DeviceSpan<const float> weight, void* out) override {
    const DeviceGuard guard(ordinal_);
    Smooth<<<Blocks(s.outer * s.n * s.inner), kThreads, 0, AsCuda(stream)>>>(
        s, static_cast<const math::WeightedSample*>(in), weight.data(),
        static_cast<math::WeightedSample*>(out));
    return Launched();
  }

  absl::Status Surface(StreamRef stream, const SurfaceSpec& s, const void* in, void* out,
                       void* workspace) override {
    const DeviceGuard guard(ordinal_);
    const auto* const from = static_cast<const math::WeightedSample*>(in);
    char* const work = static_cast<char*>(workspace);
    float* const found = reinterpret_cast<float*>(work);
    float* const agreed = reinterpret_cast<float*>(work + SurfaceMapBytes(s));
    auto* const tiles = reinterpret_cast<SurfaceTile*>(work + 2 * SurfaceMapBytes(s));
    const cudaStream_t on = AsCuda(stream);
    const int64_t size = s.shape.n * s.tile_rows * s.tile_columns,
                  parts = std::clamp<int64_t>(kMostBlocks / s.tiles(), 1,
                                              (size + kThreads - 1) / kThreads);
    const auto blocks = static_cast<unsigned>(std::min<int64_t>(s.tiles() * parts, 1 << 20));
    BeginTiles<<<Blocks(s.tiles()), kThreads, 0, on>>>(s.tiles(), tiles);
    TileRange<<<blocks, kThreads, 0, on>>>(s, parts, from, tiles);
    TileCount<<<blocks, kThreads, 0, on>>>(s, parts, from, tiles);
    EndTiles<<<Blocks(s.tiles()), kThreads, 0, on>>>(s.tiles(), tiles);
    const unsigned lines = Blocks(s.shape.lines());
    Find<<<lines, kThreads, 0, on>>>(s, from, tiles, found);
    Agree<<<lines, kThreads, 0, on>>>(s, found, agreed);
    SmoothMap<<<lines, kThreads, 0, on>>>(s, agreed, static_cast<float*>(out));
    return Launched();
  }

  absl::Status Compact(StreamRef stream, const CompactSpec& s, const void* in, const uint8_t* mask,
                       void* out) override {
    const DeviceGuard guard(ordinal_);
    CompactColumns<<<Blocks(s.shape.lines()), kThreads, 0, AsCuda(stream)>>>(
        s, static_cast<const float*>(in), mask, static_cast<float*>(out));
    return Launched();
  }

  absl::Status Steepest(StreamRef stream, const SteepestSpec& s, const void* in,
                        const uint8_t* mask, const double* rise, const double* smooth,
                        void* out) override {
    const DeviceGuard guard(ordinal_);
    cuda::FindSteepest<<<Blocks(s.shape.lines()), kThreads, 0, AsCuda(stream)>>>(
        s, static_cast<const float*>(in), mask, rise, smooth, static_cast<float*>(out));
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

absl::StatusOr<std::unique_ptr<SurfaceOps>> MakeSurfaceOps(Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(CudaContext context, FindCudaContext(device, SurfaceOps::kFamily));
  return std::make_unique<CudaSurfaceOps>(context.ordinal, std::move(context.health));
}

}  // namespace octavo::inline gpu::cuda

#include <algorithm>

#include "tbb/blocked_range.h"
#include "tbb/parallel_for.h"

#include "gpu/array/surface_elements.h"
#include "gpu/base/status.h"
#include "gpu/device/host/host_stream.h"

namespace octavo::inline gpu::host {
namespace {

constexpr int64_t kGrain = 1 << 14;  // the least numbers that are worth a task

/// f(i) for i < count; each call handles `numbers` numbers.
template <typename F>
void Each(int64_t count, int64_t numbers, F f) {
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, numbers));
  tbb::parallel_for(tbb::blocked_range<int64_t>(0, count, grain), [&](const auto& range) {
    for (int64_t i = range.begin(); i < range.end(); ++i) f(i);
  });
}

/// f(the mean of a recorded sample) for all of a tile.
template <typename F>
void EachOfTile(const SurfaceSpec& s, const math::WeightedSample* in, int64_t tile, F f) {
  const int64_t y0 = tile / s.tiles_across() * s.tile_rows,
                x0 = tile % s.tiles_across() * s.tile_columns;
  const int64_t y1 = std::min(y0 + s.tile_rows, s.shape.rows),
                x1 = std::min(x0 + s.tile_columns, s.shape.columns);
  for (int64_t z = 0; z < s.shape.n; ++z) {
    for (int64_t y = y0; y < y1; ++y) {
      for (int64_t x = x0; x < x1; ++x) {
        const float v = math::MeanOf(in[z * s.shape.lines() + y * s.shape.columns + x]);
        if (v == v) f(static_cast<double>(v));
      }
    }
  }
}

math::SurfaceLevels LevelsOf(const SurfaceSpec& s, const math::WeightedSample* in, int64_t tile) {
  uint64_t least = ~uint64_t{0}, most = 0;
  EachOfTile(s, in, tile, [&](double v) {
    least = std::min(least, math::KeyOf(v));
    most = std::max(most, math::KeyOf(v));
  });
  if (least > most) return {};  // nothing was recorded
  const double lo = math::OfKey(least), hi = math::OfKey(most);
  uint64_t counts[math::kSurfaceBins] = {};
  if (lo < hi) {
    EachOfTile(s, in, tile, [&](double v) {
      if (const int64_t bin = math::BinOf(v, lo, hi, math::kSurfaceBins); bin >= 0) ++counts[bin];
    });
  }
  return math::SurfaceLevelsOf(counts, lo, hi);
}

void FindSurfaces(const SurfaceSpec& s, const math::WeightedSample* in, float* out, char* work) {
  float* const found = reinterpret_cast<float*>(work);
  float* const agreed = reinterpret_cast<float*>(work + SurfaceMapBytes(s));
  auto* const tiles = reinterpret_cast<SurfaceTile*>(work + 2 * SurfaceMapBytes(s));
  const int64_t lines = s.shape.lines(), columns = s.shape.columns;
  Each(s.tiles(), s.shape.n * s.tile_rows * s.tile_columns,
       [&](int64_t tile) { tiles[tile].levels = LevelsOf(s, in, tile); });
  Each(lines, s.shape.n, [&](int64_t line) {
    const int64_t tile =
        line / columns / s.tile_rows * s.tiles_across() + line % columns / s.tile_columns;
    found[line] = math::FindSurface([&](int64_t z) { return math::MeanOf(in[z * lines + line]); },
                                    s.shape.n, tiles[tile].levels, s.thickness);
  });
  Each(lines, 4 * math::kSurfaceNeighbours, [&](int64_t line) {
    agreed[line] = math::AgreedSurface(found, s.shape.rows, columns, line / columns, line % columns,
                                       static_cast<float>(s.thickness));
  });
  Each(lines, 4 * math::kSurfaceRadius * math::kSurfaceRadius, [&](int64_t line) {
    out[line] = math::SmoothSurface(agreed, s.shape.rows, columns, line / columns, line % columns);
  });
}

class HostSurfaceOps final : public SurfaceOps {
 public:
  absl::Status SampleWeights(StreamRef stream, const SampleWeightsSpec& s, const void* in,
                             const uint8_t* mask, void* out) override {
    return Enqueue(stream, [s, in, mask, out] {
      const int64_t lines = s.shape.lines();
      Each(s.shape.n * lines, 1, [&](int64_t i) {
        static_cast<math::WeightedSample*>(out)[i] =
            math::SampleOf(static_cast<float>(math::Load(s.in, in, i).re), s.zero_is_data,
                           Counts(s.mask, s.shape, mask, i / lines, i % lines));
      });
    });
  }

  absl::Status SmoothSamples(StreamRef stream, const SmoothSamplesSpec& s, const void* in,
                             DeviceSpan<const float> weight, void* out) override {
    return Enqueue(stream, [s, in, weight, out] {
      Each(s.outer * s.n * s.inner, 2 * s.radius, [&](int64_t i) {
        const int64_t q = i % s.inner, z = i / s.inner % s.n, o = i / s.inner / s.n;
        const auto* const from =
            static_cast<const math::WeightedSample*>(in) + o * s.n * s.inner + q;
        static_cast<math::WeightedSample*>(out)[i] = math::SmoothSample(
            [&](int64_t k) { return from[k * s.inner]; }, z, s.n, weight.data(), s.radius);
      });
    });
  }

  absl::Status Surface(StreamRef stream, const SurfaceSpec& s, const void* in, void* out,
                       void* workspace) override {
    return Enqueue(stream, [s, in, out, workspace] {
      FindSurfaces(s, static_cast<const math::WeightedSample*>(in), static_cast<float*>(out),
                   static_cast<char*>(workspace));
    });
  }

  absl::Status Compact(StreamRef stream, const CompactSpec& s, const void* in, const uint8_t* mask,
                       void* out) override {
    return Enqueue(stream, [s, in, mask, out] {
      const int64_t lines = s.shape.lines();
      Each(lines, s.shape.n, [&](int64_t line) {
        int64_t k = 0;
        for (int64_t z = 0; z < s.shape.n; ++z) {
          if (!Counts(s.mask, s.shape, mask, z, line)) continue;
          static_cast<float*>(out)[k++ * lines + line] =
              static_cast<const float*>(in)[z * lines + line];
        }
      });
    });
  }

  absl::Status Steepest(StreamRef stream, const SteepestSpec& s, const void* in,
                        const uint8_t* mask, const double* rise, const double* smooth,
                        void* out) override {
    return Enqueue(stream, [s, in, mask, rise, smooth, out] {
      const int64_t lines = s.shape.lines();
      Each(lines, s.shape.n * (2 * s.radius + 1), [&](int64_t line) {
        const auto masked = [&](int64_t z) { return Counts(s.mask, s.shape, mask, z, line); };
        int64_t count = 0;
        for (int64_t z = 0; z < s.shape.n; ++z) count += masked(z) ? 1 : 0;
        static_cast<float*>(out)[line] = math::FindSteepest(
            [&](int64_t k) { return static_cast<const float*>(in)[k * lines + line]; }, masked,
            s.shape.n, count, rise, smooth, s.radius, s.sigma);
      });
    });
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<SurfaceOps>> MakeSurfaceOps(Device& device) {
  OCTAVO_RETURN_IF_ERROR(CheckBackend(device, "host", SurfaceOps::kFamily));
  return std::make_unique<HostSurfaceOps>();
}

}  // namespace octavo::inline gpu::host

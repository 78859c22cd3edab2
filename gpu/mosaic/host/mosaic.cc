#include <cmath>

#include "tbb/blocked_range.h"
#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "gpu/device/host/host_stream.h"
#include "gpu/device/scalar_dispatch.h"
#include "gpu/mosaic/mosaic_ops.h"
#include "gpu/mosaic/pair_alignment.h"
#include "gpu/mosaic/slab_sums.h"
#include "gpu/mosaic/stitch_voxel.h"

namespace octavo::inline gpu::host {
namespace {

constexpr int64_t kGrain = 1 << 12;  // the least voxels that are worth a task

class HostMosaicOps final : public MosaicOps {
 public:
  absl::Status WindowOverlaps(StreamRef stream, const PairBatch& b, const void* tiles,
                              DeviceSpan<const TilePair> pairs,
                              DeviceSpan<math::Complex64> out) override {
    return Enqueue(stream, [=, pairs = pairs.data(), out = out.data()] {
      DispatchReal(b.array.scalar, [&](auto element) {
        tbb::parallel_for(int64_t{0}, 2 * b.pairs, [&](int64_t k) {
          WindowOverlap<decltype(element)>(SingleTeam(), b, tiles, pairs[k / 2],
                                           static_cast<int>(k % 2), out + k * b.elements());
        });
      });
    });
  }
  absl::Status CrossPhase(StreamRef stream, const PairBatch& b,
                          DeviceSpan<const math::Complex64> in,
                          DeviceSpan<math::Complex64> out) override {
    return Enqueue(stream, [=, in = in.data(), out = out.data()] {
      const int64_t n = b.elements();
      tbb::parallel_for(int64_t{0}, b.pairs, [&](int64_t k) {
        CrossPhaseOf(SingleTeam(), n, in + 2 * k * n, in + (2 * k + 1) * n, out + k * n);
      });
    });
  }
  absl::Status Align(StreamRef stream, const PairBatch& b, const void* tiles,
                     DeviceSpan<const TilePair> pairs, DeviceSpan<const math::Complex64> surface,
                     DeviceSpan<TileAlignment> out) override {
    return Enqueue(stream, [=, pairs = pairs.data(), surface = surface.data(), out = out.data()] {
      DispatchReal(b.array.scalar, [&](auto element) {
        tbb::parallel_for(int64_t{0}, b.pairs, [&](int64_t k) {
          out[k] = AlignPair<decltype(element)>(SingleTeam(), b, tiles, pairs[k],
                                                surface + k * b.elements());
        });
      });
    });
  }
  absl::Status SlabSums(StreamRef stream, const SlabPair& s, const void* fixed, const void* moving,
                        DeviceSpan<double> out) override {
    return Enqueue(stream, [=, out = out.data()] {
      DispatchReal(s.scalar, [&](auto element) {
        const SlabReader<decltype(element)> above(s, 0, fixed), below(s, 1, moving);
        tbb::parallel_for(int64_t{0}, SlabTeams(s),
                          [&](int64_t k) { SlabShare(SingleTeam(), s, k, above, below, out); });
      });
    });
  }
  absl::Status Stitch(StreamRef stream, const BlendSpec& s, const void* tiles, const BlendTables& t,
                      void* out) override {
    return Enqueue(stream, [=, placed = t.tiles.data(), starts = t.starts.data(),
                            lists = t.lists.data()] {
      const int64_t voxels = s.extent[0] * s.extent[1] * s.extent[2];
      DispatchReal(s.array.scalar, [&](auto element) {
        tbb::parallel_for(tbb::blocked_range<int64_t>(0, voxels, kGrain), [&](const auto& range) {
          for (int64_t i = range.begin(); i < range.end(); ++i)
            StitchVoxel<decltype(element)>(s, tiles, placed, starts, lists, i, out);
        });
      });
    });
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<MosaicOps>> MakeMosaicOps(Device& device) {
  OCTAVO_RETURN_IF_ERROR(CheckBackend(device, "host", MosaicOps::kFamily));
  return std::make_unique<HostMosaicOps>();
}

}  // namespace octavo::inline gpu::host

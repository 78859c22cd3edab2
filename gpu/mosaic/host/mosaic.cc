#include <atomic>
#include <cmath>
#include <vector>

#include "tbb/blocked_range.h"
#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "gpu/device/host/host_stream.h"
#include "gpu/device/scalar_dispatch.h"
#include "gpu/mosaic/mosaic_ops.h"
#include "gpu/mosaic/pair_alignment.h"
#include "gpu/mosaic/slab_sums.h"
#include "gpu/mosaic/stack_voxel.h"
#include "gpu/mosaic/stitch_voxel.h"

namespace octavo::inline gpu::host {
namespace {

constexpr int64_t kGrain = 1 << 12;  // the least voxels that are worth a task

/// f(i) for all items.
template <typename F>
void Each(LaunchRange items, F f) {
  tbb::parallel_for(tbb::blocked_range<int64_t>(items.begin, items.end, kGrain),
                    [&](const auto& range) {
                      for (int64_t i = range.begin(); i < range.end(); ++i) f(i);
                    });
}

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
                     DeviceSpan<TileAlignment> out, StopFlag stop) override {
    return Enqueue(stream, [=, pairs = pairs.data(), surface = surface.data(), out = out.data()] {
      DispatchReal(b.array.scalar, [&](auto element) {
        tbb::parallel_for(int64_t{0}, b.pairs, [&](int64_t k) {
          if (IsSet(stop)) return;
          out[k] = AlignPair<decltype(element)>(SingleTeam{stop}, b, tiles, pairs[k],
                                                surface + k * b.elements());
        });
      });
    });
  }
  absl::Status SlabSums(StreamRef stream, const SlabPair& s, LaunchRange shares, const void* fixed,
                        const void* moving, DeviceSpan<double> out, StopFlag stop) override {
    return Enqueue(stream, [=, out = out.data()] {
      DispatchReal(s.scalar, [&](auto element) {
        const SlabReader<decltype(element)> above(s, 0, fixed), below(s, 1, moving);
        tbb::parallel_for(shares.begin, shares.end,
                          [&](int64_t k) { SlabShare(SingleTeam{stop}, s, k, above, below, out); });
      });
    });
  }
  absl::Status Means(StreamRef stream, const MeanSpec& s, LaunchRange elements, const void* in,
                     DeviceSpan<float> out) override {
    return Enqueue(stream, [=, out = out.data()] {
      DispatchReal(s.scalar, [&](auto element) {
        Each(elements, [&](int64_t i) { out[i] = MeanAt<decltype(element)>(s, in, i); });
      });
    });
  }
  absl::Status Stitch(StreamRef stream, const BlendSpec& s, LaunchRange voxels, const void* tiles,
                      const BlendTables& t, void* out) override {
    return Enqueue(stream,
                   [=, placed = t.tiles.data(), starts = t.starts.data(), lists = t.lists.data()] {
                     DispatchReal(s.array.scalar, [&](auto element) {
                       Each(voxels, [&](int64_t i) {
                         StitchVoxel<decltype(element)>(s, tiles, placed, starts, lists, i, out);
                       });
                     });
                   });
  }
  absl::Status Stack(StreamRef stream, const StackSpec& s, LaunchRange voxels, const StackTables& t,
                     void* out) override {
    return Enqueue(stream, [=, sections = t.sections.data(), planes = t.planes.data()] {
      DispatchReal(s.scalar, [&](auto element) {
        Each(voxels,
             [&](int64_t i) { StackVoxel<decltype(element)>(s, sections, planes, i, out); });
      });
    });
  }
  absl::Status CountJointDigits(StreamRef stream, const StackSpec& s, const JointDigits& d,
                                LaunchRange voxels, const StackTables& t,
                                DeviceSpan<uint64_t> counts) override {
    return Enqueue(stream, [=, sections = t.sections.data(), planes = t.planes.data(),
                            counts = counts.data()] {
      DispatchReal(s.scalar, [&](auto element) {
        tbb::parallel_for(
            tbb::blocked_range<int64_t>(voxels.begin, voxels.end, kGrain), [&](const auto& range) {
              std::vector<uint32_t> own(JointDigits::kRanks * JointDigits::kBins);
              for (int64_t i = range.begin(); i < range.end(); ++i) {
                uint32_t bits[2];
                if (!JointVoxel<decltype(element)>(s, d, sections, planes, i, bits)) continue;
                CountDigits(d, bits, [&](int64_t bin) { ++own[static_cast<size_t>(bin)]; });
              }
              for (size_t bin = 0; bin < own.size(); ++bin) {
                if (own[bin] > 0) std::atomic_ref<uint64_t>(counts[bin]).fetch_add(own[bin]);
              }
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

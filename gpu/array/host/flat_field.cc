#include <algorithm>

#include "tbb/blocked_range.h"
#include "tbb/parallel_for.h"

#include "gpu/array/flat_field_elements.h"
#include "gpu/base/status.h"
#include "gpu/device/host/host_stream.h"

namespace octavo::inline gpu::host {
namespace {

constexpr int64_t kGrain = 1 << 12;  // the least numbers that are worth a task

/// The threads of a stream's task.
struct Team {
  template <typename F>
  void ForEach(int64_t n, const F& f) const {
    tbb::parallel_for(tbb::blocked_range<int64_t>(0, n, kGrain), [&](const auto& range) {
      for (int64_t i = range.begin(); i < range.end(); ++i) f(i);
    });
  }
  template <typename F>
  void Rows(int64_t rows, int64_t n, const F& f, double* sums) const {
    const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, n));
    tbb::parallel_for(tbb::blocked_range<int64_t>(0, rows, grain), [&](const auto& range) {
      for (int64_t r = range.begin(); r < range.end(); ++r) {
        double sum = 0;
        for (int64_t i = 0; i < n; ++i) sum += f(r, i);
        sums[r] = sum;
      }
    });
  }
};

class HostFlatFieldOps final : public FlatFieldOps {
 public:
  absl::Status CutTiles(StreamRef stream, const CutTilesSpec& s, const void* in,
                        void* out) override {
    return Enqueue(stream, [s, in, out] {
      Team().ForEach(s.tiles() * s.rows * s.columns,
                     [&](int64_t i) { static_cast<float*>(out)[i] = TileElement(s, in, i); });
    });
  }

  absl::Status FromMedian(StreamRef stream, const FromMedianSpec& s, const void* in,
                          const double* medians, void* out) override {
    return Enqueue(stream, [s, in, medians, out] {
      Team().ForEach(s.tiles * s.pixels, [&](int64_t i) {
        static_cast<float*>(out)[i] =
            SeenFromMedian(s.how, math::Load(s.in, in, i).re, medians[i / s.pixels]);
      });
    });
  }

  absl::Status Basic(StreamRef stream, const BasicSpec& s, const void* in, void* out,
                     void* workspace) override {
    return Enqueue(stream, [s, in, out, workspace] {
      math::SolveBasic(Team(), s.tiles, s.smoothness, static_cast<const float*>(in),
                       static_cast<float*>(workspace), static_cast<float*>(out));
    });
  }

  absl::Status LevelFlat(StreamRef stream, const LevelFlatSpec& s, const void* in, void* out,
                         void* workspace) override {
    return Enqueue(stream, [s, in, out, workspace] {
      math::LevelFlat(Team(), s.rows, s.columns, s.fit, s.mean_one, static_cast<const float*>(in),
                      static_cast<double*>(workspace), static_cast<float*>(out));
    });
  }

  absl::Status Flatten(StreamRef stream, const FlattenSpec& s, const void* in, const void* flat,
                       void* out) override {
    return Enqueue(stream, [s, in, flat, out] {
      Team().ForEach(s.count, [&](int64_t i) { FlattenElement(s, in, flat, i, out); });
    });
  }

  absl::Status Spread(StreamRef stream, const SpreadSpec& s, const void* in, void* out) override {
    return Enqueue(stream, [s, in, out] {
      Team().ForEach(s.map_rows * s.map_columns, [&](int64_t i) {
        static_cast<float*>(out)[i] = SpreadElement(s, static_cast<const float*>(in), i);
      });
    });
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<FlatFieldOps>> MakeFlatFieldOps(Device& device) {
  OCTAVO_RETURN_IF_ERROR(CheckBackend(device, "host", FlatFieldOps::kFamily));
  return std::make_unique<HostFlatFieldOps>();
}

}  // namespace octavo::inline gpu::host

#include "gpu/array/warp.h"

#include <algorithm>
#include <memory>

#include "tbb/blocked_range.h"
#include "tbb/parallel_for.h"

#include "gpu/array/warp_elements.h"
#include "gpu/base/status.h"
#include "gpu/device/host/host_stream.h"

namespace octavo::inline gpu::host {
namespace {

constexpr int64_t kGrain = 1 << 12;  // the least results that are worth a task
constexpr int64_t kLanes = 8;        // neighbouring lines that are filtered together

/// The same sample of neighbouring lines.
struct Lines {
  double v[kLanes];
};
Lines operator+(Lines a, const Lines& b) {
  for (int64_t k = 0; k < kLanes; ++k) a.v[k] += b.v[k];
  return a;
}
Lines operator-(Lines a, const Lines& b) {
  for (int64_t k = 0; k < kLanes; ++k) a.v[k] -= b.v[k];
  return a;
}
Lines operator*(Lines a, double b) {
  for (int64_t k = 0; k < kLanes; ++k) a.v[k] *= b;
  return a;
}

/// The segment that begins with coefficient `begin` of `lines` lines, at most kLanes: of line k the
/// sample i is in(first[k] + i × stride).
template <class T, class In>
void SplineLines(const SplineSpec& s, const In& in, const int64_t (&first)[kLanes],
                 const int64_t (&to)[kLanes], int64_t lines, int64_t begin, T* out) {
  Lines made[math::kSplineSegment];
  math::SplineSegment<math::kSplineHalo<T>>(
      [&](int i) {
        const int64_t at = math::Folded(s.edge, begin + i - s.padding, s.n) * s.inner;
        Lines samples;
        for (int64_t k = 0; k < kLanes; ++k)
          samples.v[k] = static_cast<double>(in(first[std::min(k, lines - 1)] + at));
        return samples;
      },
      made);
  const int64_t count = std::min<int64_t>(math::kSplineSegment, s.made() - begin);
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t k = 0; k < lines; ++k)
      out[to[k] + (begin + i) * s.inner] = static_cast<T>(made[i].v[k]);
  }
}

template <class T, class In>
void SplineAll(const SplineSpec& s, const In& in, T* out) {
  const int64_t lines = s.outer * s.inner, groups = (lines + kLanes - 1) / kLanes,
                segments = (s.made() + math::kSplineSegment - 1) / math::kSplineSegment;
  tbb::parallel_for(
      tbb::blocked_range<int64_t>(0, groups, std::max<int64_t>(1, kGrain / kLanes / s.made())),
      [&](const auto& range) {
        for (int64_t group = range.begin(); group < range.end(); ++group) {
          int64_t first[kLanes] = {}, to[kLanes] = {};
          const int64_t count = std::min(kLanes, lines - group * kLanes);
          for (int64_t k = 0; k < count; ++k) {
            const int64_t line = group * kLanes + k, o = line / s.inner, q = line % s.inner;
            first[k] = o * s.n * s.inner + q;
            to[k] = o * s.made() * s.inner + q;
          }
          for (int64_t j = 0; j < segments; ++j)
            SplineLines(s, in, first, to, count, j * math::kSplineSegment, out);
        }
      });
}

template <class F>
void ForResults(int64_t count, F f) {
  tbb::parallel_for(tbb::blocked_range<int64_t>(0, count, kGrain), [&](const auto& range) {
    for (int64_t i = range.begin(); i < range.end(); ++i) f(i);
  });
}

template <int kRank>
void WarpAll(const WarpSpec& s, const void* in, const void* coordinates, void* out) {
  const int64_t count = s.results();
  const bool few = count < int64_t{1} << 31;
  if (s.sampling == math::Sampling::kCubic) {
    const auto sample = [&](const auto& numbers) {
      ForResults(count,
                 [&](int64_t i) { WarpOne<kRank, true>(s, few, numbers, coordinates, out, i); });
    };
    if (s.in == Scalar::kF64) {
      sample(NumbersOf<double, double>(in));
    } else {
      sample(NumbersOf<float, float>(in));
    }
    return;
  }
  ForNumbers(s.in, in, [&](const auto& numbers) {
    ForResults(count,
               [&](int64_t i) { WarpOne<kRank, false>(s, few, numbers, coordinates, out, i); });
  });
}

class HostWarpOps final : public WarpOps {
 public:
  absl::Status Spline(StreamRef stream, const SplineSpec& s, const void* in, void* out) override {
    return Enqueue(stream, [=] {
      ForSpline(s, in, out, [&](const auto& numbers, auto* made) { SplineAll(s, numbers, made); });
    });
  }

  absl::Status Warp(StreamRef stream, const WarpSpec& s, const void* in, const void* coordinates,
                    void* out) override {
    return Enqueue(stream, [=] {
      if (s.sampling == math::Sampling::kNearest) {
        const int64_t count = s.results();
        const bool few = count < int64_t{1} << 31;
        ForResults(count, [&](int64_t i) { WarpNearest(s, few, in, coordinates, out, i); });
        return;
      }
      switch (s.rank) {
        case 1: WarpAll<1>(s, in, coordinates, out); break;
        case 2: WarpAll<2>(s, in, coordinates, out); break;
        default: WarpAll<3>(s, in, coordinates, out); break;
      }
    });
  }

  absl::Status Shift(StreamRef stream, const ShiftSpec& s, const void* in, const void* amounts,
                     void* out) override {
    return Enqueue(stream, [=] {
      const int64_t count = s.results();
      const bool few = count < int64_t{1} << 31;
      const auto shift = [&]<math::Sampling kSampling>(const auto& numbers) {
        ForResults(count,
                   [&](int64_t i) { ShiftOne<kSampling>(s, few, in, numbers, amounts, out, i); });
      };
      if (s.sampling == math::Sampling::kNearest) {
        shift.template operator()<math::Sampling::kNearest>(AnyNumbers{in, s.in});
      } else if (s.sampling == math::Sampling::kCubic && s.in == Scalar::kF64) {
        shift.template operator()<math::Sampling::kCubic>(NumbersOf<double, double>(in));
      } else if (s.sampling == math::Sampling::kCubic) {
        shift.template operator()<math::Sampling::kCubic>(NumbersOf<float, float>(in));
      } else {
        ForNumbers(s.in, in, [&](const auto& numbers) {
          shift.template operator()<math::Sampling::kLinear>(numbers);
        });
      }
    });
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<WarpOps>> MakeWarpOps(Device& device) {
  OCTAVO_RETURN_IF_ERROR(CheckBackend(device, "host", WarpOps::kFamily));
  return std::make_unique<HostWarpOps>();
}

}  // namespace octavo::inline gpu::host

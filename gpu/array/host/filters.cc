#include "gpu/array/filters.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "tbb/blocked_range.h"
#include "tbb/parallel_for.h"

#include "gpu/array/median_window.h"
#include "gpu/base/status.h"
#include "gpu/device/host/host_stream.h"
#include "gpu/device/scalar_dispatch.h"
#include "gpu/math/element_value.h"
#include "gpu/math/median.h"

namespace octavo::inline gpu::host {
namespace {

constexpr int64_t kGrain = 1 << 14;   // the least numbers that are worth a task
constexpr int64_t kColumns = 256;     // columns that a task sums together
constexpr int64_t kRowResults = 512;  // results of a row that a task sums together

/// sums[i] += weight x samples[i]: one tap of many results. The compiler makes SIMD of it.
template <typename V>
void AddTap(V weight, const V* samples, int64_t count, V* sums) {
  for (int64_t i = 0; i < count; ++i) sums[i] = math::WithTap(sums[i], weight, samples[i]);
}

/// The weights of a kernel in the type of its sums.
template <typename V>
std::vector<V> WeightsOf(const CorrelateSpec& s, const double* weight) {
  return {weight, weight + s.taps};
}

/// Along the fastest axis: a row with its continuation beyond the ends, piece by piece.
template <typename T, typename V>
void CorrelateRows(const CorrelateSpec& s, const T* in, const std::vector<V>& weight, V* out) {
  tbb::parallel_for(
      tbb::blocked_range<int64_t>(0, s.outer, std::max<int64_t>(1, kGrain / (s.n * s.taps) + 1)),
      [&](const auto& range) {
        std::vector<V> samples(static_cast<size_t>(std::min(kRowResults, s.n) + s.taps - 1));
        for (int64_t o = range.begin(); o < range.end(); ++o) {
          for (int64_t begin = 0; begin < s.n; begin += kRowResults) {
            const int64_t count = std::min(kRowResults, s.n - begin), first = begin - s.before;
            for (int64_t i = 0; i < count + s.taps - 1; ++i) {
              const int64_t at = math::EdgeIndex(s.edge, first + i, s.n);
              samples[static_cast<size_t>(i)] =
                  at < 0 ? static_cast<V>(s.value) : math::ValueOf<V>(in[o * s.n + at]);
            }
            V* const sums = out + o * s.n + begin;
            std::fill(sums, sums + count, V{0});
            for (int64_t t = 0; t < s.taps; ++t)
              AddTap(weight[static_cast<size_t>(t)], samples.data() + t, count, sums);
          }
        }
      });
}

/// Along another axis: a tap adds a row of many columns at once.
template <typename T, typename V>
void CorrelateColumns(const CorrelateSpec& s, const T* in, const std::vector<V>& weight, V* out) {
  const int64_t pieces = (s.inner + kColumns - 1) / kColumns;
  tbb::parallel_for(tbb::blocked_range<int64_t>(0, s.outer * pieces), [&](const auto& range) {
    std::vector<V> row(kColumns);
    for (int64_t task = range.begin(); task < range.end(); ++task) {
      const int64_t o = task / pieces, q = task % pieces * kColumns,
                    count = std::min(kColumns, s.inner - q);
      for (int64_t i = 0; i < s.n; ++i) {
        V* const sums = out + (o * s.n + i) * s.inner + q;
        std::fill(sums, sums + count, V{0});
        for (int64_t t = 0; t < s.taps; ++t) {
          const int64_t at = math::EdgeIndex(s.edge, i - s.before + t, s.n);
          const T* const from = in + (o * s.n + std::max<int64_t>(at, 0)) * s.inner + q;
          if constexpr (std::is_same_v<T, V>) {
            if (at >= 0) {
              AddTap(weight[static_cast<size_t>(t)], from, count, sums);
              continue;
            }
          }
          for (int64_t k = 0; k < count; ++k) {
            row[static_cast<size_t>(k)] =
                at < 0 ? static_cast<V>(s.value) : math::ValueOf<V>(from[k]);
          }
          AddTap(weight[static_cast<size_t>(t)], row.data(), count, sums);
        }
      }
    }
  });
}

/// As many keys as a SIMD operation compares at a time.
template <typename Key>
struct Lanes {
  static constexpr int kCount = 32 / sizeof(Key);
  using Vector __attribute__((vector_size(32))) = Key;
};

template <int kSize, int kPlane, typename Key>
void MedianOfItems(const MedianSpec& s, const void* in, void* out, int64_t begin, int64_t end) {
  using Vector = typename Lanes<Key>::Vector;
  constexpr int kLanes = Lanes<Key>::kCount;
  MedianWindow<kSize, kPlane> windows[kLanes];
  for (int64_t item = begin; item < end; item += kLanes) {
    const int lanes = static_cast<int>(std::min<int64_t>(kLanes, end - item));
    // Lanes beyond the end compute the last item again.
    for (int l = 0; l < kLanes; ++l) windows[l].Place(s, item + std::min<int64_t>(l, lanes - 1));
    const auto load = [&](int64_t i, Vector(&v)[kPlane]) {
      for (int l = 0; l < kLanes; ++l) {
        Key keys[kPlane];
        windows[l].Load(s, in, i, keys);
        for (int k = 0; k < kPlane; ++k) v[k][l] = keys[k];
      }
    };
    const auto store = [&](int64_t i, const Vector& v) {
      for (int l = 0; l < lanes; ++l) windows[l].Store(s, out, i, static_cast<Key>(v[l]));
    };
    math::SlidingMedian<kSize, kPlane, Vector> median;
    median.Begin(load);
    for (int64_t i = 0; i < s.slide.extent; i += 2) {
      Vector first, second;
      median.Next(i, load, &first, &second);
      store(i, first);
      if (i + 1 < s.slide.extent) store(i + 1, second);
    }
  }
}

class HostFilterOps final : public FilterOps {
 public:
  absl::Status Correlate(StreamRef stream, const CorrelateSpec& s, const void* in,
                         DeviceSpan<const double> weight, void* out) override {
    return Enqueue(stream, [s, in, weight = weight.data(), out] {
      DispatchReal(s.in, [&](auto element) {
        using T = decltype(element);
        using V = typename math::ComputedIn<T>::type;
        const std::vector<V> weights = WeightsOf<V>(s, weight);
        if (s.inner == 1) {
          CorrelateRows(s, static_cast<const T*>(in), weights, static_cast<V*>(out));
        } else {
          CorrelateColumns(s, static_cast<const T*>(in), weights, static_cast<V*>(out));
        }
      });
    });
  }

  absl::Status Median(StreamRef stream, const MedianSpec& s, const void* in, void* out) override {
    return Enqueue(stream, [s, in, out] {
      DispatchMedian(s, [&](auto size, auto plane) {
        constexpr int kSize = decltype(size)::value, kPlane = decltype(plane)::value;
        const int64_t grain = std::max<int64_t>(64, kGrain / (kSize * kPlane * s.slide.extent));
        tbb::parallel_for(
            tbb::blocked_range<int64_t>(0, MedianItems(s), grain), [&](const auto& range) {
              if (SizeOf(s.scalar) == 8) {
                MedianOfItems<kSize, kPlane, uint64_t>(s, in, out, range.begin(), range.end());
              } else {
                MedianOfItems<kSize, kPlane, uint32_t>(s, in, out, range.begin(), range.end());
              }
            });
      });
    });
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<FilterOps>> MakeFilterOps(Device& device) {
  OCTAVO_RETURN_IF_ERROR(CheckBackend(device, "host", FilterOps::kFamily));
  return std::make_unique<HostFilterOps>();
}

}  // namespace octavo::inline gpu::host

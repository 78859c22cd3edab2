#include "gpu/array/elements.h"

#include <array>
#include <cmath>
#include <cstring>
#include <mutex>
#include <vector>

#include "tbb/blocked_range.h"
#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "gpu/device/host/host_stream.h"
#include "gpu/device/scalar_dispatch.h"
#include "gpu/math/element_value.h"

namespace octavo::inline gpu::host {
namespace {

constexpr int64_t kGrain = 1 << 14;  // the least numbers that are worth a task

/// out[i] = f(in[i], i).
template <typename T, typename O, typename F>
void Each(int64_t count, const void* in, void* out, F f) {
  tbb::parallel_for(tbb::blocked_range<int64_t>(0, count, kGrain), [&](const auto& range) {
    const T* const from = static_cast<const T*>(in);
    O* const to = static_cast<O*>(out);
    for (int64_t i = range.begin(); i < range.end(); ++i) to[i] = f(from[i], i);
  });
}

/// Writes in[i] where `chosen` says so, else an element of `other` or the value.
template <typename T, typename Chosen>
void EachChosen(const ChooseSpec& s, const void* in, const void* other, void* out, Chosen chosen) {
  T value;
  std::memcpy(&value, s.value, sizeof(T));
  const T* const rest = static_cast<const T*>(other);
  Each<T, T>(s.count, in, out, [=](const T& v, int64_t i) {
    if (chosen(v, i)) return v;
    return rest == nullptr ? value : rest[i % s.other_count];
  });
}

/// Otsu's threshold of `count` numbers.
template <typename T>
double FindOtsu(const AboveSpec& s, const T* in) {
  std::mutex mutex;
  uint64_t least = ~uint64_t{0}, most = 0;
  const tbb::blocked_range<int64_t> all(0, s.count, kGrain * 16);
  tbb::parallel_for(all, [&](const auto& range) {
    uint64_t lowest = ~uint64_t{0}, highest = 0;
    for (int64_t i = range.begin(); i < range.end(); ++i) {
      const double v = math::ValueOf<double>(in[i]);
      if (!(v - v == 0)) continue;
      lowest = std::min(lowest, math::KeyOf(v));
      highest = std::max(highest, math::KeyOf(v));
    }
    const std::lock_guard lock(mutex);
    least = std::min(least, lowest);
    most = std::max(most, highest);
  });
  if (least > most) return NAN;
  const double lo = math::OfKey(least), hi = math::OfKey(most);
  std::vector<uint64_t> counts(static_cast<size_t>(s.bins));
  tbb::parallel_for(all, [&](const auto& range) {
    std::vector<uint64_t> own(counts.size());
    for (int64_t i = range.begin(); i < range.end(); ++i) {
      if (const int64_t bin = math::BinOf(math::ValueOf<double>(in[i]), lo, hi, s.bins); bin >= 0)
        ++own[static_cast<size_t>(bin)];
    }
    const std::lock_guard lock(mutex);
    for (size_t b = 0; b < own.size(); ++b) counts[b] += own[b];
  });
  return math::OtsuThreshold(counts.data(), lo, hi, s.bins);
}

class HostElementOps final : public ElementOps {
 public:
  absl::Status Apply(StreamRef stream, const FunctionSpec& s, const void* in, void* out) override {
    return Enqueue(stream, [s, in, out] {
      DispatchReal(s.in, [&](auto element) {
        using T = decltype(element);
        using V = typename math::ComputedIn<T>::type;
        Each<T, V>(s.count, in, out, [&s](T v, int64_t) {
          return math::FunctionOf(s.function, s.keep_rest, math::ValueOf<V>(v));
        });
      });
    });
  }

  absl::Status Otsu(StreamRef stream, const AboveSpec& s, const void* in,
                    void* workspace) override {
    return Enqueue(stream, [s, in, workspace] {
      DispatchReal(s.in, [&](auto element) {
        *static_cast<double*>(workspace) = FindOtsu(s, static_cast<const decltype(element)*>(in));
      });
    });
  }

  absl::Status Above(StreamRef stream, const AboveSpec& s, const void* in, const double* threshold,
                     void* out) override {
    return Enqueue(stream, [s, in, threshold, out] {
      const double value = threshold == nullptr ? s.threshold : *threshold;
      DispatchReal(s.in, [&](auto element) {
        using T = decltype(element);
        Each<T, uint8_t>(s.count, in, out, [value](T v, int64_t) {
          return static_cast<uint8_t>(math::IsAbove(math::ValueOf<double>(v), value) ? 1 : 0);
        });
      });
    });
  }

  absl::Status Choose(StreamRef stream, const ChooseSpec& s, const void* in, const uint8_t* mask,
                      const double* threshold, const void* other, void* out) override {
    return Enqueue(stream, [s, in, mask, threshold, other, out] {
      if (mask == nullptr) {
        const double value = threshold == nullptr ? s.above.threshold : *threshold;
        DispatchReal(s.in, [&](auto element) {
          using T = decltype(element);
          EachChosen<T>(s, in, other, out, [value](T v, int64_t) {
            return math::IsAbove(math::ValueOf<double>(v), value);
          });
        });
        return;
      }
      const auto by_mask = [&](auto element) {
        EachChosen<decltype(element)>(s, in, other, out, [&s, mask](const auto&, int64_t i) {
          return mask[i / s.lanes % s.mask_count] != 0;
        });
      };
      switch (SizeOf(s.in)) {
        case 1: return by_mask(uint8_t{});
        case 2: return by_mask(uint16_t{});
        case 4: return by_mask(uint32_t{});
        case 8: return by_mask(uint64_t{});
        default: return by_mask(std::array<char, 16>{});
      }
    });
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<ElementOps>> MakeElementOps(Device& device) {
  OCTAVO_RETURN_IF_ERROR(CheckBackend(device, "host", ElementOps::kFamily));
  return std::make_unique<HostElementOps>();
}

}  // namespace octavo::inline gpu::host

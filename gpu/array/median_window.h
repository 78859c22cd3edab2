#pragma once

// Private to this folder and its twins.

#include <cstdint>
#include <type_traits>

#include "gpu/array/filters.h"
#include "gpu/math/filter.h"
#include "gpu/math/host_device.h"
#include "gpu/math/median.h"

namespace octavo::inline gpu {

/// Where the elements of the windows at one position of MedianSpec::rest lie, for both twins. A
/// window is kSize planes of kPlane elements, one behind the other along MedianSpec::slide.
template <int kSize, int kPlane>
class MedianWindow {
 public:
  /// `item` counts the positions of `rest`, its last axis fastest.
  OCTAVO_HOST_DEVICE void Place(const MedianSpec& s, int64_t item) {
    start_ = 0;
    bool has_near = false;
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (int r = 2; r >= 0; --r) {
      const StridedAxis& axis = s.rest[r];
      const int64_t i = item % axis.extent;
      item /= axis.extent;
      if (kAxes == 0 || !axis.window) {
        start_ += i * axis.stride;
      } else if (!has_near) {
        Fill(s, axis, i, near_);
        has_near = true;
      } else {
        Fill(s, axis, i, far_);
      }
    }
  }
  /// Reads the keys of plane i. One kernel serves all types of elements with these keys, because
  /// its network is what takes time and space; the type is looked up once a plane.
  template <typename Key>
  OCTAVO_HOST_DEVICE void Load(const MedianSpec& s, const void* in, int64_t i,
                               Key (&keys)[kPlane]) const {
    const int64_t plane = Plane(s, i);
    math::DispatchKeyed<Key>(s.scalar, [&](auto element) {
      const auto* const from = static_cast<const decltype(element)*>(in) + plane;
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
      for (int k = 0; k < kPlane; ++k) keys[k] = math::MedianKey(from[Offset(k)]);
    });
  }
  /// Stores the median of the window around plane i.
  template <typename Key>
  OCTAVO_HOST_DEVICE void Store(const MedianSpec& s, void* out, int64_t i, Key key) const {
    math::StoreOfMedianKey(s.scalar, out, Plane(s, i) + Middle(), key);
  }

 private:
  /// The index of the window's middle in plane i, which may lie beyond the ends.
  OCTAVO_HOST_DEVICE int64_t Plane(const MedianSpec& s, int64_t i) const {
    return start_ + math::EdgeIndex(s.edge, i, s.slide.extent) * s.slide.stride;
  }
  /// From Plane(i) to the plane's element `k`.
  OCTAVO_HOST_DEVICE int64_t Offset(int k) const {
    return kAxes == 0 ? 0 : kAxes == 1 ? near_[k] : far_[k / kSize] + near_[k % kSize];
  }
  /// From Plane(i) to the element at this position itself.
  OCTAVO_HOST_DEVICE int64_t Middle() const {
    return kAxes == 0 ? 0 : near_[kSize / 2] + (kAxes == 1 ? 0 : far_[kSize / 2]);
  }

  static constexpr int kAxes = kPlane == 1 ? 0 : kPlane == kSize ? 1 : 2;

  static OCTAVO_HOST_DEVICE void Fill(const MedianSpec& s, const StridedAxis& axis, int64_t i,
                                      int64_t (&offsets)[kSize]) {
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (int k = 0; k < kSize; ++k)
      offsets[k] = math::EdgeIndex(s.edge, i + k - kSize / 2, axis.extent) * axis.stride;
  }

  int64_t start_ = 0;
  int64_t near_[kSize] = {},
          far_[kSize] = {};  // offsets along the faster axis, and along the other
};

/// The numbers of positions of `rest`.
inline int64_t MedianItems(const MedianSpec& s) {
  return s.rest[0].extent * s.rest[1].extent * s.rest[2].extent;
}

/// Calls f(std::integral_constant size, std::integral_constant elements of a plane).
template <typename F>
void DispatchMedian(const MedianSpec& s, F f) {
  const auto with = [&](auto size) {
    constexpr int kSize = decltype(size)::value;
    if (s.windows == 1) return f(size, std::integral_constant<int, 1>{});
    if (s.windows == 2) return f(size, std::integral_constant<int, kSize>{});
    return f(size, std::integral_constant<int, kSize * kSize>{});
  };
  if (s.size == 3) return with(std::integral_constant<int, 3>{});
  return with(std::integral_constant<int, 5>{});
}

}  // namespace octavo::inline gpu

#pragma once

#include <cstdint>
#include <cstring>

#include "gpu/math/array_ops.h"
#include "gpu/math/element.h"
#include "gpu/math/half.h"
#include "gpu/math/host_device.h"
#include "gpu/math/sorting_network.h"

// Medians of windows of neighbours, shared by all backends.
namespace octavo::inline gpu::math {

// -- Elements as unsigned integers of the same order, so that every backend compares the same bits.
// NaN comes after all numbers, as in numpy.sort.

OCTAVO_HOST_DEVICE inline uint32_t MedianKey(uint8_t v) { return v; }
OCTAVO_HOST_DEVICE inline uint32_t MedianKey(uint16_t v) { return v; }
OCTAVO_HOST_DEVICE inline uint32_t MedianKey(uint32_t v) { return v; }
OCTAVO_HOST_DEVICE inline uint64_t MedianKey(uint64_t v) { return v; }
OCTAVO_HOST_DEVICE inline uint32_t MedianKey(int32_t v) {
  return static_cast<uint32_t>(v) ^ 0x80000000u;
}
OCTAVO_HOST_DEVICE inline uint32_t MedianKey(int8_t v) {
  return MedianKey(static_cast<int32_t>(v));
}
OCTAVO_HOST_DEVICE inline uint32_t MedianKey(int16_t v) {
  return MedianKey(static_cast<int32_t>(v));
}
OCTAVO_HOST_DEVICE inline uint64_t MedianKey(int64_t v) {
  return static_cast<uint64_t>(v) ^ uint64_t { 1 } << 63;
}
OCTAVO_HOST_DEVICE inline uint32_t MedianKey(float v) {
  if (!(v == v)) return ~uint32_t{0};
  const uint32_t bits = FloatBits(v);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
OCTAVO_HOST_DEVICE inline uint32_t MedianKey(Half v) { return MedianKey(HalfToFloat(v.bits)); }
OCTAVO_HOST_DEVICE inline uint64_t MedianKey(double v) { return v == v ? KeyOf(v) : ~uint64_t{0}; }

OCTAVO_HOST_DEVICE inline void OfMedianKey(uint32_t key, uint8_t* v) {
  *v = static_cast<uint8_t>(key);
}
OCTAVO_HOST_DEVICE inline void OfMedianKey(uint32_t key, uint16_t* v) {
  *v = static_cast<uint16_t>(key);
}
OCTAVO_HOST_DEVICE inline void OfMedianKey(uint32_t key, uint32_t* v) { *v = key; }
OCTAVO_HOST_DEVICE inline void OfMedianKey(uint64_t key, uint64_t* v) { *v = key; }
OCTAVO_HOST_DEVICE inline void OfMedianKey(uint32_t key, int32_t* v) {
  *v = static_cast<int32_t>(key ^ 0x80000000u);
}
OCTAVO_HOST_DEVICE inline void OfMedianKey(uint32_t key, int8_t* v) {
  *v = static_cast<int8_t>(static_cast<int32_t>(key ^ 0x80000000u));
}
OCTAVO_HOST_DEVICE inline void OfMedianKey(uint32_t key, int16_t* v) {
  *v = static_cast<int16_t>(static_cast<int32_t>(key ^ 0x80000000u));
}
OCTAVO_HOST_DEVICE inline void OfMedianKey(uint64_t key, int64_t* v) {
  *v = static_cast<int64_t>(key ^ uint64_t{1} << 63);
}
OCTAVO_HOST_DEVICE inline void OfMedianKey(uint32_t key, float* v) {
  *v = FloatOfBits(key >> 31 != 0 ? key & 0x7FFFFFFFu : ~key);
}
OCTAVO_HOST_DEVICE inline void OfMedianKey(uint32_t key, Half* v) {
  float number;
  OfMedianKey(key, &number);
  v->bits = FloatToHalf(number);
}
OCTAVO_HOST_DEVICE inline void OfMedianKey(uint64_t key, double* v) { *v = OfKey(key); }

/// Calls f with a value of the element type, if its keys are `Key`: uint32_t for elements of up to
/// 4 bytes, uint64_t for those of 8.
template <typename Key, typename F>
OCTAVO_HOST_DEVICE inline void DispatchKeyed(Scalar type, const F& f) {
  if constexpr (sizeof(Key) == 4) {
    switch (type) {
      case Scalar::kU8: return f(uint8_t{});
      case Scalar::kI8: return f(int8_t{});
      case Scalar::kU16: return f(uint16_t{});
      case Scalar::kI16: return f(int16_t{});
      case Scalar::kF16: return f(Half{});
      case Scalar::kU32: return f(uint32_t{});
      case Scalar::kI32: return f(int32_t{});
      default: return f(float{});
    }
  } else {
    switch (type) {
      case Scalar::kU64: return f(uint64_t{});
      case Scalar::kI64: return f(int64_t{});
      default: return f(double{});
    }
  }
}

/// Stores the element of a key as element i of an array.
template <typename Key>
OCTAVO_HOST_DEVICE inline void StoreOfMedianKey(Scalar type, void* data, int64_t i, Key key) {
  DispatchKeyed<Key>(type, [&](auto element) {
    OfMedianKey(key, &element);
    WriteAs(data, i, element);
  });
}

// -- Windows. A window is kSize planes of kPlane values. Two neighbouring windows along the axis on
// which the planes follow each other share all planes but one each. So two medians are found at a
// time: the shared planes are merged once, and only the kPlane + 1 middle ones of their values can
// be a median.

/// The median of kPlane + 1 sorted values and kPlane sorted values.
template <typename V, int kPlane>
OCTAVO_HOST_DEVICE inline V MedianOfSorted(const V (&shared)[kPlane + 1], const V (&own)[kPlane]) {
  V best = shared[kPlane];
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (int i = 0; i < kPlane; ++i) best = Lower(best, Higher(shared[i], own[kPlane - 1 - i]));
  return best;
}

template <typename V, int kCount>
OCTAVO_HOST_DEVICE inline void CopyValues(const V (&from)[kCount], V (&to)[kCount]) {
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (int i = 0; i < kCount; ++i) to[i] = from[i];
}

/// Medians of windows of kSize x kPlane values, kSize 3 or 5, two at a time.
template <int kSize, int kPlane, typename V>
class SlidingMedian;

template <int kPlane, typename V>
class SlidingMedian<3, kPlane, V> {
 public:
  /// `load(i, v)` reads the values of plane i. The first windows will be those around planes 0, 1.
  template <typename Load>
  OCTAVO_HOST_DEVICE void Begin(const Load& load) {
    load(-1, before_);
    SortAll(before_);
    load(0, here_);
    SortAll(here_);
  }
  /// The medians of the windows around planes i and i + 1; i grows by 2 from call to call.
  template <typename Load>
  OCTAVO_HOST_DEVICE void Next(int64_t i, const Load& load, V* first, V* second) {
    V next[kPlane], after[kPlane], shared[kPlane + 1];
    load(i + 1, next);
    SortAll(next);
    load(i + 2, after);
    SortAll(after);
    MergeSorted<(kPlane - 1) / 2>(here_, next, shared);
    *first = MedianOfSorted(shared, before_);
    *second = MedianOfSorted(shared, after);
    CopyValues(next, before_);
    CopyValues(after, here_);
  }

 private:
  V before_[kPlane], here_[kPlane];  // planes i - 1 and i
};

template <int kPlane, typename V>
class SlidingMedian<5, kPlane, V> {
 public:
  template <typename Load>
  OCTAVO_HOST_DEVICE void Begin(const Load& load) {
    V previous[kPlane];
    load(-2, before_);
    SortAll(before_);
    load(-1, previous);
    SortAll(previous);
    load(0, here_);
    SortAll(here_);
    MergeSorted<0>(previous, here_, pair_);
    load(1, next_);
    SortAll(next_);
  }
  template <typename Load>
  OCTAVO_HOST_DEVICE void Next(int64_t i, const Load& load, V* first, V* second) {
    V after[kPlane], last[kPlane], pair[2 * kPlane], shared[kPlane + 1];
    load(i + 2, after);
    SortAll(after);
    load(i + 3, last);
    SortAll(last);
    MergeSorted<0>(next_, after, pair);
    MergeSorted<(3 * kPlane - 1) / 2>(pair_, pair, shared);
    *first = MedianOfSorted(shared, before_);
    *second = MedianOfSorted(shared, last);
    CopyValues(here_, before_);
    CopyValues(pair, pair_);
    CopyValues(after, here_);
    CopyValues(last, next_);
  }

 private:
  // Planes i - 2, i, i + 1, and i - 1 and i merged.
  V before_[kPlane], here_[kPlane], next_[kPlane], pair_[2 * kPlane];
};

}  // namespace octavo::inline gpu::math

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "gpu/math/element.h"
#include "gpu/math/element_value.h"
#include "gpu/math/half.h"
#include "gpu/math/host_device.h"

// Elements as files store them: at any address, in either byte order, of other types than those of
// volumes. All backends compute the same bits, with one exception: where a NaN changes its type,
// the bits of its payload are the backend's.
namespace octavo::inline gpu::math {

/// A number that is stored at `p`, which need not be aligned for it.
template <typename T>
OCTAVO_HOST_DEVICE inline T LoadStored(const void* p) {
#if defined(__CUDA_ARCH__)
  if (reinterpret_cast<uintptr_t>(p) % sizeof(T) == 0) return *static_cast<const T*>(p);
#endif
  T value;
  memcpy(&value, p, sizeof(T));
  return value;
}
template <typename T>
OCTAVO_HOST_DEVICE inline void StoreStored(void* p, T value) {
#if defined(__CUDA_ARCH__)
  if (reinterpret_cast<uintptr_t>(p) % sizeof(T) == 0) {
    *static_cast<T*>(p) = value;
    return;
  }
#endif
  memcpy(p, &value, sizeof(T));
}

/// Reverses the bytes of each number of `number` bytes (1, 2, 4 or 8) in a word. A shorter word has
/// the numbers that it has room for.
template <typename U>
OCTAVO_HOST_DEVICE inline U SwapNumbers(U word, int number) {
  static_assert(std::is_unsigned_v<U>);
  uint64_t w = word;
  if (number >= 2) w = (w & 0x00FF00FF00FF00FFull) << 8 | (w >> 8 & 0x00FF00FF00FF00FFull);
  if (number >= 4) w = (w & 0x0000FFFF0000FFFFull) << 16 | (w >> 16 & 0x0000FFFF0000FFFFull);
  if (number >= 8) w = w << 32 | w >> 32;
  return static_cast<U>(w);
}

/// Copies `unit` bytes (1, 2, 4, 8 or 16), the bytes of each number of `number` bytes reversed; 1
/// reverses nothing.
OCTAVO_HOST_DEVICE inline void CopyUnit(const char* from, char* to, int unit, int number) {
  switch (unit) {
    case 1: *to = *from; return;
    case 2: StoreStored(to, SwapNumbers(LoadStored<uint16_t>(from), number)); return;
    case 4: StoreStored(to, SwapNumbers(LoadStored<uint32_t>(from), number)); return;
    case 8: StoreStored(to, SwapNumbers(LoadStored<uint64_t>(from), number)); return;
    default: {
      const uint64_t low = LoadStored<uint64_t>(from), high = LoadStored<uint64_t>(from + 8);
      StoreStored(to, SwapNumbers(low, number));
      StoreStored(to + 8, SwapNumbers(high, number));
    }
  }
}

/// The unsigned integer of a number's size.
template <size_t kBytes>
struct WordOf {
  using type = uint64_t;
};
template <>
struct WordOf<1> {
  using type = uint8_t;
};
template <>
struct WordOf<2> {
  using type = uint16_t;
};
template <>
struct WordOf<4> {
  using type = uint32_t;
};

/// A stored number, its bytes reversed if `swap`.
template <typename T>
OCTAVO_HOST_DEVICE inline T LoadNumber(const char* p, bool swap) {
  using Word = typename WordOf<sizeof(T)>::type;
  Word word = LoadStored<Word>(p);
  if (swap) word = SwapNumbers(word, static_cast<int>(sizeof(T)));
  T value;
  memcpy(&value, &word, sizeof(T));
  return value;
}

/// scale * value + shift with both results rounded, on every backend.
OCTAVO_HOST_DEVICE inline double Scaled(double value, double scale, double shift) {
#if defined(__CUDA_ARCH__)
  return __dadd_rn(__dmul_rn(scale, value), shift);
#else
  return scale * value + shift;
#endif
}

/// The element of type `T` for a number: integers are rounded to the nearest, ties to even, and
/// clamped to the range of the type; NaN becomes 0.
template <typename T>
OCTAVO_HOST_DEVICE inline T RoundedTo(double value) {
  if constexpr (std::is_same_v<T, Half>) {
    return {FloatToHalf(static_cast<float>(value))};
  } else if constexpr (std::is_integral_v<T>) {
    if (!(value == value)) return 0;
    const double nearest = rint(value);
    constexpr double kLowest = static_cast<double>(std::numeric_limits<T>::lowest()),
                     kHighest = static_cast<double>(std::numeric_limits<T>::max());
    return static_cast<T>(nearest < kLowest ? kLowest : nearest > kHighest ? kHighest : nearest);
  } else {
    return static_cast<T>(value);
  }
}

}  // namespace octavo::inline gpu::math

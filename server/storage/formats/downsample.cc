#include "server/storage/formats/downsample.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tbb/parallel_for.h"

namespace octavo::storage {
namespace {

/// IEEE half precision in 16 bits.
struct Half {
  uint16_t bits;
};

float ToFloat(Half half) {
  const uint32_t sign = (half.bits & 0x8000u) << 16, exponent = (half.bits >> 10) & 31u,
                 mantissa = half.bits & 1023u;
  if (exponent == 0) {
    const float value = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -value : value;
  }
  const uint32_t word =
      sign | (exponent == 31 ? 0x7F800000u : (exponent + 112) << 23) | mantissa << 13;
  float value;
  std::memcpy(&value, &word, 4);
  return value;
}

/// Rounds to the nearest, ties to even.
Half ToHalf(float value) {
  uint32_t word;
  std::memcpy(&word, &value, 4);
  const auto sign = static_cast<uint16_t>(word >> 16 & 0x8000u);
  const uint32_t magnitude = word & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return {static_cast<uint16_t>(sign | 0x7E00u)};
  if (magnitude >= 0x477FF000u)
    return {static_cast<uint16_t>(sign | 0x7C00u)};  // rounds beyond the largest half
  if (magnitude < 0x38800000u) {                     // below the smallest normal half
    return {static_cast<uint16_t>(
        sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(std::fabs(value), 24))))};
  }
  const uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
  return {static_cast<uint16_t>(sign | ((rounded - (112u << 23)) >> 13))};
}

template <class T>
T Mean(const T* const* rows, int count, int64_t z, int64_t dz, int shift) {
  if constexpr (std::is_integral_v<T>) {
    int32_t sum = 0;
    for (int i = 0; i < count; ++i) {
      for (int64_t k = 0; k < dz; ++k) sum += rows[i][z + k];
    }
    if (shift == 0) return static_cast<T>(sum);
    const int32_t floor = sum >> shift, rest = sum & ((1 << shift) - 1), half = 1 << (shift - 1);
    return static_cast<T>(floor + (rest > half || (rest == half && (floor & 1)) ? 1 : 0));
  } else {
    using Sum = std::conditional_t<std::is_same_v<T, Half>, float, double>;
    Sum sum = 0;
    int valid = 0;
    for (int i = 0; i < count; ++i) {
      for (int64_t k = 0; k < dz; ++k) {
        Sum value;
        if constexpr (std::is_same_v<T, Half>)
          value = ToFloat(rows[i][z + k]);
        else
          value = rows[i][z + k];
        if (std::isnan(value)) continue;
        sum += value;
        ++valid;
      }
    }
    const Sum mean = valid > 0 ? sum / static_cast<Sum>(valid) : static_cast<Sum>(std::nan(""));
    if constexpr (std::is_same_v<T, Half>)
      return ToHalf(mean);
    else
      return static_cast<T>(mean);
  }
}

template <class T>
void Halve(const T* in, int64_t bscans, int64_t nx, int64_t nz, T* out) {
  const int64_t my = Halved(bscans), mx = Halved(nx), mz = Halved(nz);
  const int64_t dy = bscans > 1 ? 2 : 1, dx = nx > 1 ? 2 : 1, dz = nz > 1 ? 2 : 1;
  const int shift = (dy > 1) + (dx > 1) + (dz > 1);
  tbb::parallel_for(int64_t{0}, my * mx, [&](int64_t row) {
    const int64_t y = row / mx * dy, x = row % mx * dx;
    const T* rows[4];
    int count = 0;
    for (int64_t j = 0; j < dy; ++j) {
      for (int64_t i = 0; i < dx; ++i) rows[count++] = in + ((y + j) * nx + x + i) * nz;
    }
    for (int64_t z = 0; z < mz; ++z) out[row * mz + z] = Mean(rows, count, z * dz, dz, shift);
  });
}

}  // namespace

int PyramidLevelsPossible(const int64_t* shape) {
  int levels = 1;
  for (int64_t largest = *std::max_element(shape, shape + 3); largest > 1; largest /= 2) ++levels;
  return levels;
}

void HalveSlab(DType dtype, const void* in, int64_t bscans, int64_t nx, int64_t nz, void* out) {
  const auto run = [&](auto tag) {
    Halve(static_cast<const decltype(tag)*>(in), bscans, nx, nz, static_cast<decltype(tag)*>(out));
  };
  switch (dtype) {
    case DType::kU8: return run(uint8_t{});
    case DType::kI8: return run(int8_t{});
    case DType::kU16: return run(uint16_t{});
    case DType::kI16: return run(int16_t{});
    case DType::kF16: return run(Half{});
    case DType::kF32: return run(float{});
    case DType::kF64: return run(double{});
    case DType::kC64: return;
  }
}

}  // namespace octavo::storage

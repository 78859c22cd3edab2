// Converts complex depth samples to stored values, places them and makes the projections.
// Highway includes this file once per SIMD target, so it has no ordinary include guard.
#if defined(OCTAVO_GPU_HOST_DEPTH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_GPU_HOST_DEPTH_INL_H_
#undef OCTAVO_GPU_HOST_DEPTH_INL_H_
#else
#define OCTAVO_GPU_HOST_DEPTH_INL_H_
#endif

#include <atomic>
#include <cmath>
#include <cstring>

#include "gpu/device/host/vectors-inl.h"
#include "gpu/math/half.h"
#include "gpu/math/motion_contrast.h"
#include "gpu/spectral/host/spectral_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::inline gpu::host::HWY_NAMESPACE {

// Computes depth samples from the transform's rows.
template <bool kHalf>
struct FromRows {
  const TileTables& t;
  const float *HWY_RESTRICT re, *HWY_RESTRICT im;
  const int64_t pitch;
  HWY_INLINE C operator()(int64_t z) const {
    const D d;
    if constexpr (kHalf) {
      // X[k] = E[k] + exp(2πik/F) O[k] of the transforms of the even and the odd samples, which
      // share one complex transform: 2 E[k] = Z[k] + conj Z[-k], 2i O[k] = Z[k] - conj Z[-k]. The
      // window table contains the factors of one half.
      const int64_t length = t.fft.n, k = (t.first_row + z) % length, m = k == 0 ? 0 : length - k;
      const V a = hn::Load(d, re + k * pitch), b = hn::Load(d, im + k * pitch);
      const V p = hn::Load(d, re + m * pitch), q = hn::Load(d, im + m * pitch);
      const C odd =
          Twiddle({hn::Add(b, q), hn::Sub(p, a)}, hn::Set(d, t.turn_re[static_cast<size_t>(z)]),
                  hn::Set(d, t.turn_im[static_cast<size_t>(z)]));
      return {hn::Add(hn::Add(a, p), odd.re), hn::Add(hn::Sub(b, q), odd.im)};
    } else {
      const int64_t row = t.first_row + z;
      return {hn::Load(d, re + row * pitch), hn::Load(d, im + row * pitch)};
    }
  }
};

// Reads the depth samples that TransformTile stored, and subtracts the fixed pattern.
struct FromSpectra {
  const float *re, *im, *pattern_re, *pattern_im;
  const int64_t lanes;
  HWY_INLINE C operator()(int64_t z) const {
    const D d;
    return {hn::Sub(hn::Load(d, re + z * lanes), hn::Set(d, pattern_re[z])),
            hn::Sub(hn::Load(d, im + z * lanes), hn::Set(d, pattern_im[z]))};
  }
};

// Adds the powers of depth z to the sums of each lane's repeats, and returns the means.
HWY_NOINLINE void JoinRepeats(int64_t z, int64_t records, const LaneTarget* targets,
                              float* powers) {
  for (int64_t lane = 0; lane < records; ++lane) {
    const LaneTarget& target = targets[lane];
    if (target.sum == nullptr) continue;
    target.sum[z] = math::JoinRepeat(target.sum[z], target.before, powers[lane]);
    powers[lane] = math::MeanOfRepeats(target.sum[z], target.before + 1);
  }
}

// 10 log10 of a power, scaled to levels: math::ValueOf and math::ToLevels of kDb on vectors. With
// power = 2^e (1 + f), 1 + f between √½ and √2, the decibels are e 10 log10(2) + f P(f). P is the
// polynomial of degree 5 with the smallest greatest error, 6.6e-6 dB. Factors and scale are
// multiplied once for a tile.
class Decibels {
 public:
  explicit HWY_INLINE Decibels(const TileTables& t) {
    const D d;
    const float scale = t.scaled ? t.scale : 1.0f;
    constexpr float kP[6] = {4.342999412f,  -2.170817667f, 1.443002155f,
                             -1.106362247f, 0.9696761588f, -0.6214205544f};
    for (int i = 0; i < 6; ++i) p_[i] = hn::Set(d, kP[i] * scale);
    octave_ = hn::Set(d, 3.0102999566398120f / 8388608.0f * scale);
    offset_ = hn::Set(d, t.scaled ? t.offset : 0.0f);
  }
  HWY_INLINE V operator()(V power) const {
    const D d;
    const DI di;
    const VI bits = hn::BitCast(di, hn::Max(power, hn::Set(d, math::kPowerFloor)));
    const VI exponent = hn::And(hn::Sub(bits, hn::Set(di, 0x3F3504F3)),  // the bits of √½
                                hn::Set(di, static_cast<int32_t>(0xFF800000)));
    const V f = hn::Sub(hn::BitCast(d, hn::Sub(bits, exponent)), hn::Set(d, 1.0f));
    const V f2 = hn::Mul(f, f);  // Estrin's scheme: a shorter chain than Horner's
    const V p = hn::MulAdd(hn::MulAdd(hn::MulAdd(p_[5], f, p_[4]), f2, hn::MulAdd(p_[3], f, p_[2])),
                           f2, hn::MulAdd(p_[1], f, p_[0]));
    const V v = hn::MulAdd(p, f, hn::MulAdd(hn::ConvertTo(d, exponent), octave_, offset_));
    return hn::IfThenElse(hn::IsNaN(power), power, v);
  }

 private:
  V p_[6], octave_, offset_;
};

// The value of a depth sample in stored units, before rounding: math::ValueOf and math::ToLevels on
// vectors.
template <bool kDb, bool kRepeats>
HWY_INLINE V StoredValue(const TileTables& t, const Decibels& decibels, C c, int64_t z,
                         int64_t records, const LaneTarget* targets) {
  const D d;
  V v = c.re;
  if (kDb || t.value != math::Value::kReal) {
    V power = hn::MulAdd(c.re, c.re, hn::Mul(c.im, c.im));
    if constexpr (kRepeats) {
      alignas(64) float powers[16];
      hn::Store(power, d, powers);
      JoinRepeats(z, records, targets, powers);
      power = hn::Load(d, powers);
    }
    if constexpr (kDb) return decibels(power);
    v = t.value == math::Value::kPower ? power : hn::Sqrt(power);
  }
  return t.scaled ? hn::MulAdd(v, hn::Set(d, t.scale), hn::Set(d, t.offset)) : v;
}

// Counts for each lane the numbers that are not clipped below, and those that are clipped above:
// math::ClippedBelow, ClippedAbove.
struct Clipping {
  VI inside, above;
};
HWY_INLINE VI CountUp(VI count, hn::Mask<D> mask) {
  const DI di;
  return hn::Sub(count, hn::VecFromMask(di, hn::RebindMask(di, mask)));  // true is -1
}

// math::Quantise on vectors. A NaN compares false and becomes 0.
HWY_INLINE V Quantised(V v, V top, Clipping& count) {
  const D d;
  const V half = hn::Set(d, 0.5f);
  const auto inside = hn::Gt(v, hn::Neg(half));  // a value just below 0 rounds to 0
  count.inside = CountUp(count.inside, inside);
  count.above = CountUp(count.above, hn::Ge(v, hn::Add(top, half)));
  return hn::Floor(hn::Min(hn::IfThenElseZero(inside, hn::Add(v, half)), top));
}

// math::QuantiseSigned on vectors.
HWY_INLINE V QuantisedSigned(V v, V bottom, V top, Clipping& count) {
  const D d;
  const V half = hn::Set(d, 0.5f);
  const auto inside = hn::Gt(v, hn::Sub(bottom, half));
  count.inside = CountUp(count.inside, inside);
  count.above = CountUp(count.above, hn::Ge(v, hn::Add(top, half)));
  const V above = hn::IfThenElse(inside, v, bottom);
  return hn::Min(hn::CopySign(hn::Floor(hn::Add(hn::Abs(above), half)), above), top);
}

// The bits of integers of at most 16 bits, given as floats, in the low 16 bits of a word; garbage
// above. A sum with a number of 2^23 holds them as its lowest bits, which costs less than a
// conversion that also serves numbers out of range.
HWY_INLINE VI LowBits(V integer) {
  const D d;
  return hn::BitCast(DI(), hn::Add(integer, hn::Set(d, 12582912.0f)));  // 1.5 x 2^23
}

// The low kBits bits of one word below those of the next. Garbage above them stays above.
template <int kBits>
HWY_INLINE VI Pair(VI low, VI high) {
  return hn::Or(hn::And(low, hn::Set(DI(), (1 << kBits) - 1)), hn::ShiftLeft<kBits>(high));
}

// math::FloatToHalf on vectors, in the low 16 bits.
HWY_INLINE hn::Vec<DI> HalfBits(V v) {
  const D d;
  const DI di;
  const auto bits = hn::BitCast(di, v);
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(di, 0x8000)),
             magnitude = hn::And(bits, hn::Set(di, 0x7FFFFFFF));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di, 1));
  auto half = hn::ShiftRight<13>(
      hn::Add(hn::Add(hn::Sub(magnitude, hn::Set(di, 0x38000000)), hn::Set(di, 0xFFF)), odd));
  const auto small = hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f))),
                             hn::Set(di, 0x3F000000));
  half = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 0x38800000)), small, half);
  half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 0x477FFFFF)), hn::Set(di, 0x7C00), half);
  half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 0x7F800000)), hn::Set(di, 0x7E00), half);
  return hn::Or(half, sign);
}

// math::HalfToFloat on vectors, for finite numbers and infinities.
HWY_INLINE V HalfValue(hn::Vec<DI> half) {
  const D d;
  const DI di;
  const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(di, 0x8000))),
             magnitude = hn::And(half, hn::Set(di, 0x7FFF));
  const auto scaled = hn::BitCast(
      di, hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(magnitude)), hn::Set(d, 5.192296858534828e33f)));
  const auto special = hn::Or(hn::ShiftLeft<13>(magnitude), hn::Set(di, 0x7F800000));
  return hn::BitCast(
      d, hn::Or(sign, hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 0x7BFF)), special, scaled)));
}

// Adds the clipped voxels of the lanes that are placed. With repeats, the previous mean was
// overwritten, so its count is subtracted.
HWY_NOINLINE void CountClipped(const TileTables& t, const Clipping& clipping, int64_t records,
                               const LaneTarget* targets) {
  if (targets[0].clipped == nullptr) return;
  const DI di;
  alignas(64) int32_t inside[16], above[16];
  hn::Store(clipping.inside, di, inside);
  hn::Store(clipping.above, di, above);
  uint64_t sums[2] = {0, 0};
  for (int64_t lane = 0; lane < records; ++lane) {
    const LaneTarget& target = targets[lane];
    if (target.volume == nullptr) continue;
    const uint32_t counts[2] = {static_cast<uint32_t>(t.depth - inside[lane]),
                                static_cast<uint32_t>(above[lane])};
    for (int end = 0; end < 2; ++end) {
      sums[end] += counts[end];
      if (target.clipped_before == nullptr) continue;
      if (target.before > 0) sums[end] -= target.clipped_before[end];
      target.clipped_before[end] = counts[end];
    }
  }
  for (int end = 0; end < 2; ++end) {
    if (sums[end] != 0)
      std::atomic_ref(targets[0].clipped[end]).fetch_add(sums[end], std::memory_order_relaxed);
  }
}

// Steps 6 and 7 and placement. kPer depth samples of a lane fill a 32-bit word and are stored
// together.
template <DType kType, bool kDb, bool kRepeats, class Fetch>
void Finish(const TileTables& t, const Fetch fetch, int64_t records,
            const LaneTarget* HWY_RESTRICT targets) {
  const D d;
  const DI di;
  const int64_t lanes = Lanes();
  constexpr int64_t kBytes = SizeOf(kType), kPer = kBytes > 4 ? 1 : 4 / kBytes;
  constexpr bool kInteger = IsInteger(kType);
  const V top = hn::Set(d, t.top), bottom = hn::Set(d, t.bottom);
  const bool want_aip = targets[0].aip != nullptr, want_mip = targets[0].mip != nullptr;
  V most = hn::Set(d, kInteger ? LowestOf(kType) : -HUGE_VALF), part = hn::Zero(d),
    sum = hn::Zero(d), lost = hn::Zero(d);
  Clipping clipping{hn::Zero(di), hn::Zero(di)};
  alignas(64) uint32_t words[16] = {};
  alignas(64) float imaginary[16] = {};
  const Decibels decibels(t);
  // Depth sample z as it is stored: the bits of an integer, a half or a float, and its value.
  const auto bits_of = [&](int64_t z, V& v) HWY_ATTR {
    const C c = fetch(z);
    v = StoredValue<kDb, kRepeats>(t, decibels, c, z, records, targets);
    if constexpr (kType == DType::kU8 || kType == DType::kU16) {
      v = Quantised(v, top, clipping);
      return LowBits(v);
    } else if constexpr (kType == DType::kI8) {
      v = QuantisedSigned(v, bottom, top, clipping);
      return LowBits(v);
    } else if constexpr (kType == DType::kF16) {
      const VI bits = HalfBits(v);
      v = HalfValue(bits);
      return bits;
    } else if constexpr (kType == DType::kC64) {
      hn::Store(c.im, d, imaginary);
      return hn::BitCast(di, c.re);
    } else {
      return hn::BitCast(di, v);
    }
  };
  const auto project = [&](V v) HWY_ATTR {
    most = hn::Max(v, most);  // in this order a NaN leaves `most` as it is
    if (want_aip) part = hn::Add(part, v);
  };
  // Packs the `count` depth samples from z on into one word per lane.
  const auto word_of = [&](int64_t z, int64_t count) HWY_ATTR {
    VI b[kPer];
    V v[kPer];
    for (int64_t i = 0; i < kPer; ++i) b[i] = i < count ? bits_of(z + i, v[i]) : hn::Zero(di);
    if (count == kPer && z >= t.slab_begin && z + kPer <= t.slab_end) {
      for (int64_t i = 0; i < kPer; ++i) project(v[i]);
    } else {
      for (int64_t i = 0; i < count; ++i) {
        if (z + i >= t.slab_begin && z + i < t.slab_end) project(v[i]);
      }
    }
    if constexpr (kPer == 2) {
      return Pair<16>(b[0], b[1]);
    } else if constexpr (kPer == 4) {
      return Pair<16>(Pair<8>(b[0], b[1]), Pair<8>(b[2], b[3]));
    } else {
      return b[0];
    }
  };
  // Compensated summation: the rounding error of each addition is added to the next part. Otherwise
  // a sum of thousands of large numbers would lose its last digits.
  const auto add_part = [&]() HWY_ATTR {
    if (!want_aip) return;
    const V more = hn::Sub(part, lost), total = hn::Add(sum, more);
    const V rounded = hn::Sub(hn::Sub(total, sum), more);
    lost = hn::IfThenElseZero(hn::Eq(rounded, rounded), rounded);  // infinity loses nothing
    sum = total;
    part = hn::Zero(d);
  };
  int64_t z = 0;
  if constexpr (kType !=
                DType::kC64) {  // for each lane one vector of neighbouring depth samples at a time
    for (; lanes == kLanes && z + kPer * kLanes <= t.depth; z += kPer * kLanes) {
      VI rows[kLanes];
      for (int64_t i = 0; i < kLanes; ++i) rows[i] = word_of(z + i * kPer, kPer);
      add_part();
      Transpose(rows);
      for (int64_t lane = 0; lane < records; ++lane) {
        if (targets[lane].volume == nullptr) continue;
        hn::StoreU(rows[lane], di,
                   reinterpret_cast<int32_t*>(static_cast<unsigned char*>(targets[lane].volume) +
                                              z * kBytes));
      }
    }
  }
  for (; z < t.depth; z += kPer) {
    const int64_t count = HWY_MIN(kPer, t.depth - z);
    const auto word = word_of(z, count);
    add_part();
    hn::Store(word, di, reinterpret_cast<int32_t*>(words));
    for (int64_t lane = 0; lane < records; ++lane) {
      if (targets[lane].volume == nullptr) continue;
      auto* out = static_cast<unsigned char*>(targets[lane].volume) + z * kBytes;
      if constexpr (kType == DType::kC64) {
        std::memcpy(out, &words[lane], 4);
        std::memcpy(out + 4, &imaginary[lane], 4);
      } else if (count == kPer) {
        std::memcpy(out, &words[lane], 4);
      } else {
        std::memcpy(out, &words[lane], static_cast<size_t>(count * kBytes));
      }
    }
  }
  if constexpr (kInteger) CountClipped(t, clipping, records, targets);
  if (!want_mip && !want_aip) return;
  alignas(64) float mosts[16] = {}, sums[16] = {};
  hn::Store(most, d, mosts);
  hn::Store(sum, d, sums);
  for (int64_t lane = 0; lane < records; ++lane) {
    const LaneTarget& target = targets[lane];
    if (target.volume == nullptr) continue;
    if (want_mip) {
      if constexpr (kType == DType::kU8)
        *static_cast<uint8_t*>(target.mip) = static_cast<uint8_t>(mosts[lane]);
      if constexpr (kType == DType::kI8)
        *static_cast<int8_t*>(target.mip) = static_cast<int8_t>(mosts[lane]);
      if constexpr (kType == DType::kU16)
        *static_cast<uint16_t*>(target.mip) = static_cast<uint16_t>(mosts[lane]);
      if constexpr (kType == DType::kF16)
        *static_cast<uint16_t*>(target.mip) = math::FloatToHalf(mosts[lane]);
      if constexpr (kBytes >= 4) *static_cast<float*>(target.mip) = mosts[lane];
    }
    if (want_aip) *target.aip = sums[lane] / static_cast<float>(t.slab_end - t.slab_begin);
  }
}

template <bool kDb, bool kRepeats, class Fetch>
void FinishAs(const TileTables& t, const Fetch& fetch, int64_t records, const LaneTarget* targets) {
  switch (t.output) {
    case DType::kU8: Finish<DType::kU8, kDb, kRepeats>(t, fetch, records, targets); break;
    case DType::kI8: Finish<DType::kI8, kDb, kRepeats>(t, fetch, records, targets); break;
    case DType::kU16: Finish<DType::kU16, kDb, kRepeats>(t, fetch, records, targets); break;
    case DType::kF16: Finish<DType::kF16, kDb, kRepeats>(t, fetch, records, targets); break;
    case DType::kC64: Finish<DType::kC64, false, false>(t, fetch, records, targets); break;
    default: Finish<DType::kF32, kDb, kRepeats>(t, fetch, records, targets); break;
  }
}

template <bool kDb, class Fetch>
void FinishAs(const TileTables& t, const Fetch& fetch, int64_t records, const LaneTarget* targets) {
  if (t.repeats) {
    FinishAs<kDb, true>(t, fetch, records, targets);
  } else {
    FinishAs<kDb, false>(t, fetch, records, targets);
  }
}

template <class Fetch>
void FinishAs(const TileTables& t, const Fetch& fetch, int64_t records, const LaneTarget* targets) {
  if (t.value == math::Value::kDb) {
    FinishAs<true>(t, fetch, records, targets);
  } else {
    FinishAs<false>(t, fetch, records, targets);
  }
}

}  // namespace octavo::inline gpu::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

// Compiled once per SIMD target; the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/host/spectral_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// The above must come first.
#include <cstring>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

#include "gpu/host/spectral_kernels.h"
#include "gpu/math/half.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::host::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<D>;
using V = hn::Vec<D>;

struct C {
  V re, im;
};
HWY_INLINE C Add(C a, C b) { return {hn::Add(a.re, b.re), hn::Add(a.im, b.im)}; }
HWY_INLINE C Sub(C a, C b) { return {hn::Sub(a.re, b.re), hn::Sub(a.im, b.im)}; }
HWY_INLINE C TimesI(C a) { return {hn::Neg(a.im), a.re}; }
HWY_INLINE C Scale(C a, V s) { return {hn::Mul(a.re, s), hn::Mul(a.im, s)}; }
HWY_INLINE C MulAdd(C a, V s, C b) { return {hn::MulAdd(a.re, s, b.re), hn::MulAdd(a.im, s, b.im)}; }
HWY_INLINE C Twiddle(C a, V c, V s) { return {hn::NegMulAdd(a.im, s, hn::Mul(a.re, c)), hn::MulAdd(a.re, s, hn::Mul(a.im, c))}; }

template <int kRadix>
HWY_INLINE void Butterfly(C* a) {
  const D d;
  if constexpr (kRadix == 2) {
    const C t = Sub(a[0], a[1]);
    a[0] = Add(a[0], a[1]);
    a[1] = t;
  } else if constexpr (kRadix == 3) {
    const C sum = Add(a[1], a[2]), diff = TimesI(Scale(Sub(a[1], a[2]), hn::Set(d, 0.86602540378443865f)));
    const C mid = MulAdd(sum, hn::Set(d, -0.5f), a[0]);
    a[0] = Add(a[0], sum);
    a[1] = Add(mid, diff);
    a[2] = Sub(mid, diff);
  } else if constexpr (kRadix == 4) {
    const C s02 = Add(a[0], a[2]), d02 = Sub(a[0], a[2]), s13 = Add(a[1], a[3]), d13 = TimesI(Sub(a[1], a[3]));
    a[0] = Add(s02, s13);
    a[1] = Add(d02, d13);
    a[2] = Sub(s02, s13);
    a[3] = Sub(d02, d13);
  } else {
    static_assert(kRadix == 5);
    const V c1 = hn::Set(d, 0.30901699437494742f), c2 = hn::Set(d, -0.80901699437494742f);
    const V s1 = hn::Set(d, 0.95105651629515357f), s2 = hn::Set(d, 0.58778525229247313f);
    const C s14 = Add(a[1], a[4]), d14 = Sub(a[1], a[4]), s23 = Add(a[2], a[3]), d23 = Sub(a[2], a[3]);
    const C m1 = MulAdd(s23, c2, MulAdd(s14, c1, a[0])), m2 = MulAdd(s23, c1, MulAdd(s14, c2, a[0]));
    const C i1 = TimesI(MulAdd(d23, s2, Scale(d14, s1)));
    const C i2 = TimesI(MulAdd(d23, hn::Neg(s1), Scale(d14, s2)));
    a[0] = Add(a[0], Add(s14, s23));
    a[1] = Add(m1, i1);
    a[2] = Add(m2, i2);
    a[3] = Sub(m2, i2);
    a[4] = Sub(m1, i1);
  }
}

// One Stockham pass (Swarztrauber 1984; the transform sorts itself): x[q + s(p + k m)] → y[q + s(r p + k)].
template <int kRadix>
void Pass(const FftPlan::Pass& pass, const float* HWY_RESTRICT twiddles, const float* HWY_RESTRICT xr, const float* HWY_RESTRICT xi,
          float* HWY_RESTRICT yr, float* HWY_RESTRICT yi) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t s = pass.stride, m = pass.length / kRadix;
  const float* w = twiddles + pass.first_twiddle;
  for (int64_t p = 0; p < m; ++p, w += 2 * (kRadix - 1)) {
    V wr[kRadix], wi[kRadix];
    for (int k = 1; k < kRadix; ++k) {
      wr[k] = hn::Set(d, w[2 * (k - 1)]);
      wi[k] = hn::Set(d, w[2 * (k - 1) + 1]);
    }
    for (int64_t q = 0; q < s; ++q) {
      C a[kRadix];
      for (int k = 0; k < kRadix; ++k) {
        const int64_t at = (q + s * (p + k * m)) * lanes;
        a[k] = {hn::Load(d, xr + at), hn::Load(d, xi + at)};
      }
      Butterfly<kRadix>(a);
      for (int k = 0; k < kRadix; ++k) {
        const C b = k == 0 || p == 0 ? a[k] : Twiddle(a[k], wr[k], wi[k]);
        const int64_t at = (q + s * (kRadix * p + k)) * lanes;
        hn::Store(b.re, d, yr + at);
        hn::Store(b.im, d, yi + at);
      }
    }
  }
}

// Returns where the result lies: 0 = (re, im), 1 = scratch.
int RunPasses(const FftPlan& plan, float* re, float* im, float* sr, float* si) {
  int where = 0;
  for (const auto& pass : plan.passes) {
    const float* w = plan.twiddles.data();
    float *xr = where ? sr : re, *xi = where ? si : im, *yr = where ? re : sr, *yi = where ? im : si;
    switch (pass.radix) {
      case 2: Pass<2>(pass, w, xr, xi, yr, yi); break;
      case 3: Pass<3>(pass, w, xr, xi, yr, yi); break;
      case 4: Pass<4>(pass, w, xr, xi, yr, yi); break;
      default: Pass<5>(pass, w, xr, xi, yr, yi); break;
    }
    where = 1 - where;
  }
  return where;
}

int64_t Lanes() { return static_cast<int64_t>(hn::Lanes(D())); }

// Rows times one complex number each.
void TurnRows(int64_t rows, const float* HWY_RESTRICT c, const float* HWY_RESTRICT s, float* HWY_RESTRICT re, float* HWY_RESTRICT im) {
  const D d;
  const int64_t lanes = Lanes();
  for (int64_t j = 0; j < rows; ++j) {
    const C z = Twiddle({hn::Load(d, re + j * lanes), hn::Load(d, im + j * lanes)}, hn::Set(d, c[j]), hn::Set(d, s[j]));
    hn::Store(z.re, d, re + j * lanes);
    hn::Store(z.im, d, im + j * lanes);
  }
}

struct Rows {
  float *re, *im;
};

// The transform of plan.rows rows of (a.re, a.im), which a convolution wants times its chirp; b is scratch. Where the result lies.
Rows RunTransform(const FftPlan& plan, Rows a, Rows b) {
  if (RunPasses(plan, a.re, a.im, b.re, b.im) == 1) std::swap(a, b);
  if (!plan.convolution) return a;
  TurnRows(plan.rows, plan.filter_re.data(), plan.filter_im.data(), a.re, a.im);
  // With real and imaginary parts exchanged the same passes are the other transform.
  return RunPasses(plan, a.im, a.re, b.im, b.re) == 1 ? b : a;
}

void Fft(const FftPlan& plan, float* re, float* im, float* scratch) {
  const auto count = static_cast<size_t>(plan.n * Lanes()), rows = static_cast<size_t>(plan.rows * Lanes());
  Rows a{re, im}, b{scratch, scratch + rows};
  if (plan.convolution) {
    a = {scratch + 2 * rows, scratch + 3 * rows};
    std::memset(a.re, 0, 2 * rows * sizeof(float));
    std::memcpy(a.re, re, count * sizeof(float));
    std::memcpy(a.im, im, count * sizeof(float));
    TurnRows(plan.n, plan.chirp_in_re.data(), plan.chirp_in_im.data(), a.re, a.im);
  }
  const Rows out = RunTransform(plan, a, b);
  if (plan.convolution) TurnRows(plan.n, plan.chirp_out_re.data(), plan.chirp_out_im.data(), out.re, out.im);
  if (out.re == re) return;
  std::memcpy(re, out.re, count * sizeof(float));
  std::memcpy(im, out.im, count * sizeof(float));
}

// One raw record of each lane, [lane][S][C] of a narrow type, as floats [S][lane]. Gathers words of 32 bits, which hold one to
// four neighbouring samples of a lane. `store(j, values)` takes them.
template <typename T, class F>
HWY_INLINE void GatherSamples(const TileTables& t, const uint8_t* HWY_RESTRICT raw, int64_t records, int64_t lane_bytes, F store) {
  const D d;
  const DI di;
  const int64_t lanes = Lanes(), samples = t.samples, channels = t.channels;
  constexpr int64_t kSize = static_cast<int64_t>(sizeof(T));
  const int64_t bytes = math::PackedBytes(t.packing, samples * channels, kSize);
  alignas(64) int32_t offsets[16] = {};
  for (int64_t lane = 0; lane < lanes; ++lane) {  // a short tile repeats its last record; nobody sees the copies
    offsets[lane] = static_cast<int32_t>((lane < records ? lane : records - 1) * lane_bytes);
  }
  const auto lane_offset = hn::Load(di, offsets);
  const auto gather = [&](int64_t at) HWY_ATTR {
    return hn::GatherOffset(di, reinterpret_cast<const int32_t*>(raw), hn::Add(lane_offset, hn::Set(di, static_cast<int32_t>(at))));
  };
  int64_t j = 0;
  if (t.packing != math::Packing::kNone) {
    const auto mask = hn::Set(di, 0xFFF), byte = hn::Set(di, 0xFF0), nibble = hn::Set(di, 0xF);
    const bool low_first = t.packing == math::Packing::kLowFirst12;
    const auto even = [&](auto word) HWY_ATTR {  // math::Unpack12 on vectors
      return low_first ? hn::And(word, mask) : hn::Or(hn::And(hn::ShiftLeft<4>(word), byte), hn::And(hn::ShiftRight<8>(word), nibble));
    };
    for (; j < samples; ++j) {
      const int64_t i = j * channels + t.channel, at = i / 2 * 3;
      if (at + 4 > bytes) break;
      const auto word = gather(at);
      if (i & 1) {
        store(j, hn::ConvertTo(d, hn::And(hn::ShiftRight<12>(word), mask)));
        continue;
      }
      store(j, hn::ConvertTo(d, even(word)));
      if (channels == 1 && j + 1 < samples) store(++j, hn::ConvertTo(d, hn::And(hn::ShiftRight<12>(word), mask)));
    }
  } else if (channels > 1) {
    for (; j < samples; ++j) {
      const int64_t at = (j * channels + t.channel) * kSize;
      if (at + 4 > bytes) break;
      const auto word = gather(at);
      if constexpr (kSize == 4) {
        store(j, hn::BitCast(d, word));
      } else if constexpr (std::is_same_v<T, int16_t>) {
        store(j, hn::ConvertTo(d, hn::ShiftRight<16>(hn::ShiftLeft<16>(word))));
      } else {
        store(j, hn::ConvertTo(d, hn::And(word, hn::Set(di, kSize == 2 ? 0xFFFF : 0xFF))));
      }
    }
  } else {
    constexpr int64_t kPer = 4 / kSize;
    for (; j + kPer <= samples; j += kPer) {
      const auto word = gather(j * kSize);
      if constexpr (kSize == 4) {
        store(j, hn::BitCast(d, word));
      } else if constexpr (std::is_same_v<T, int16_t>) {
        store(j, hn::ConvertTo(d, hn::ShiftRight<16>(hn::ShiftLeft<16>(word))));
        store(j + 1, hn::ConvertTo(d, hn::ShiftRight<16>(word)));
      } else if constexpr (kSize == 2) {
        store(j, hn::ConvertTo(d, hn::And(word, hn::Set(di, 0xFFFF))));
        store(j + 1, hn::ConvertTo(d, hn::And(hn::ShiftRight<16>(word), hn::Set(di, 0xFFFF))));
      } else {
        const auto mask = hn::Set(di, 0xFF);
        store(j, hn::ConvertTo(d, hn::And(word, mask)));
        store(j + 1, hn::ConvertTo(d, hn::And(hn::ShiftRight<8>(word), mask)));
        store(j + 2, hn::ConvertTo(d, hn::And(hn::ShiftRight<16>(word), mask)));
        store(j + 3, hn::ConvertTo(d, hn::And(hn::ShiftRight<24>(word), mask)));
      }
    }
  }
  alignas(64) float tail[16] = {};
  for (; j < samples; ++j) {  // where a word would reach beyond the record
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const uint8_t* record = raw + offsets[lane];
      const int64_t i = j * channels + t.channel;
      if (t.packing != math::Packing::kNone) {
        tail[lane] = static_cast<float>(math::ReadPacked12(t.packing, record, i));
      } else {
        T value;
        std::memcpy(&value, record + i * kSize, sizeof value);
        tail[lane] = static_cast<float>(value);
      }
    }
    store(j, hn::Load(d, tail));
  }
}

// Records → floats [S][lane]: the mean of t.average raw records, less the background.
template <typename T>
void LoadTransposed(const TileTables& t, const uint8_t* HWY_RESTRICT raw, int64_t records, const float* HWY_RESTRICT background,
                    float* HWY_RESTRICT x) {
  const D d;
  const int64_t lanes = Lanes(), bytes = math::PackedBytes(t.packing, t.samples * t.channels, static_cast<int64_t>(sizeof(T)));
  if (t.average == 1) {
    GatherSamples<T>(t, raw, records, bytes, [&](int64_t j, V v) HWY_ATTR {
      if (background != nullptr) v = hn::Sub(v, hn::Set(d, background[j]));
      hn::Store(v, d, x + j * lanes);
    });
    return;
  }
  const V share = hn::Set(d, 1.0f / static_cast<float>(t.average));
  for (int64_t r = 0; r < t.average; ++r) {
    GatherSamples<T>(t, raw + r * bytes, records, t.average * bytes, [&](int64_t j, V v) HWY_ATTR {
      if (r > 0) v = hn::Add(v, hn::Load(d, x + j * lanes));
      if (r == t.average - 1) v = background != nullptr ? hn::MulSub(v, share, hn::Set(d, background[j])) : hn::Mul(v, share);
      hn::Store(v, d, x + j * lanes);
    });
  }
}

// Sample j after k-linearisation, times the window.
template <int kTaps>
HWY_INLINE V Resampled(const TileTables& t, const float* HWY_RESTRICT x, int64_t j) {
  const D d;
  const int64_t lanes = Lanes();
  if constexpr (kTaps == 1) {
    return hn::Load(d, x + j * lanes);
  } else {
    const float* at = x + (t.tap[static_cast<size_t>(j)] - (kTaps == 8 ? 3 : kTaps == 4 ? 1 : 0)) * lanes;
    const float* w = t.weights.data() + kTaps * j;
    V v = hn::Mul(hn::Load(d, at), hn::Set(d, w[0]));
    for (int i = 1; i < kTaps; ++i) v = hn::MulAdd(hn::Load(d, at + i * lanes), hn::Set(d, w[i]), v);
    return v;
  }
}

// k-linearisation and window × dispersion in one go, into the zero-padded input of the transform.
template <int kTaps>
void Shape(const TileTables& t, const float* HWY_RESTRICT x, float* HWY_RESTRICT re, float* HWY_RESTRICT im) {
  const D d;
  const int64_t lanes = Lanes();
  const float *h_re = t.h_re.data(), *h_im = t.h_im.data();
  int64_t rows = t.n;
  if (t.half) {
    rows = (t.n + 1) / 2;
    for (int64_t r = 0; r < rows; ++r) {
      C z{hn::Mul(Resampled<kTaps>(t, x, 2 * r), hn::Set(d, h_re[2 * r])), hn::Zero(d)};
      if (2 * r + 1 < t.n) z.im = hn::Mul(Resampled<kTaps>(t, x, 2 * r + 1), hn::Set(d, h_re[2 * r + 1]));
      if (t.fft.convolution)
        z = Twiddle(z, hn::Set(d, t.fft.chirp_in_re[static_cast<size_t>(r)]), hn::Set(d, t.fft.chirp_in_im[static_cast<size_t>(r)]));
      hn::Store(z.re, d, re + r * lanes);
      hn::Store(z.im, d, im + r * lanes);
    }
  } else if (t.h_im.empty()) {
    for (int64_t j = 0; j < t.n; ++j) {
      hn::Store(hn::Mul(Resampled<kTaps>(t, x, j), hn::Set(d, h_re[j])), d, re + j * lanes);
      hn::Store(hn::Zero(d), d, im + j * lanes);
    }
  } else {
    for (int64_t j = 0; j < t.n; ++j) {
      const V v = Resampled<kTaps>(t, x, j);
      hn::Store(hn::Mul(v, hn::Set(d, h_re[j])), d, re + j * lanes);
      hn::Store(hn::Mul(v, hn::Set(d, h_im[j])), d, im + j * lanes);
    }
  }
  const size_t pad = static_cast<size_t>((t.fft.rows - rows) * lanes) * sizeof(float);
  std::memset(re + rows * lanes, 0, pad);
  std::memset(im + rows * lanes, 0, pad);
}

// Depth samples out of the transform's rows.
template <bool kHalf>
struct FromRows {
  const TileTables& t;
  const float *HWY_RESTRICT re, *HWY_RESTRICT im;
  const int64_t lanes;
  HWY_INLINE C operator()(int64_t z) const {
    const D d;
    if constexpr (kHalf) {
      // X[k] = E[k] + exp(2πik/F) O[k] of the transforms of the even and the odd samples, which share one complex transform:
      // 2 E[k] = Z[k] + conj Z[-k], 2i O[k] = Z[k] - conj Z[-k]. The halves are in the window.
      const int64_t length = t.fft.n, k = (t.first_row + z) % length, m = k == 0 ? 0 : length - k;
      const V a = hn::Load(d, re + k * lanes), b = hn::Load(d, im + k * lanes);
      const V p = hn::Load(d, re + m * lanes), q = hn::Load(d, im + m * lanes);
      const C odd =
          Twiddle({hn::Add(b, q), hn::Sub(p, a)}, hn::Set(d, t.turn_re[static_cast<size_t>(z)]), hn::Set(d, t.turn_im[static_cast<size_t>(z)]));
      return {hn::Add(hn::Add(a, p), odd.re), hn::Add(hn::Sub(b, q), odd.im)};
    } else {
      const int64_t row = t.first_row + z;
      return {hn::Load(d, re + row * lanes), hn::Load(d, im + row * lanes)};
    }
  }
};

// Depth samples that TransformTile left, less the fixed pattern.
struct FromSpectra {
  const float *re, *im, *pattern_re, *pattern_im;
  const int64_t lanes;
  HWY_INLINE C operator()(int64_t z) const {
    const D d;
    return {hn::Sub(hn::Load(d, re + z * lanes), hn::Set(d, pattern_re[z])), hn::Sub(hn::Load(d, im + z * lanes), hn::Set(d, pattern_im[z]))};
  }
};

// Adds the powers of depth z to the sums of each lane's repeats; their means.
HWY_NOINLINE void JoinRepeats(int64_t z, int64_t records, const LaneTarget* targets, float* powers) {
  for (int64_t lane = 0; lane < records; ++lane) {
    const LaneTarget& target = targets[lane];
    if (target.sum == nullptr) continue;
    target.sum[z] = math::JoinRepeat(target.sum[z], target.before, powers[lane]);
    powers[lane] = math::MeanOfRepeats(target.sum[z], target.before + 1);
  }
}

// Value of a depth sample in stored units, before rounding: math::ValueOf and math::ToLevels on vectors.
template <bool kRepeats>
HWY_INLINE V StoredValue(const TileTables& t, C c, int64_t z, int64_t records, const LaneTarget* targets) {
  const D d;
  V v = c.re;
  if (t.value != math::Value::kReal) {
    V power = hn::MulAdd(c.re, c.re, hn::Mul(c.im, c.im));
    if constexpr (kRepeats) {
      alignas(64) float powers[16];
      hn::Store(power, d, powers);
      JoinRepeats(z, records, targets, powers);
      power = hn::Load(d, powers);
    }
    if (t.value == math::Value::kDb) {
      v = hn::Mul(hn::Log(d, hn::Max(power, hn::Set(d, math::kPowerFloor))), hn::Set(d, 4.342944819032518f));  // 10 / ln 10
    } else {
      v = t.value == math::Value::kPower ? power : hn::Sqrt(power);
    }
  }
  return t.scaled ? hn::MulAdd(v, hn::Set(d, t.scale), hn::Set(d, t.offset)) : v;
}

// math::Quantise on vectors; a NaN compares false and becomes 0.
HWY_INLINE V Quantised(V v, V top) {
  const D d;
  const V positive = hn::IfThenElseZero(hn::Gt(v, hn::Zero(d)), v);
  return hn::Min(hn::Floor(hn::Add(positive, hn::Set(d, 0.5f))), top);
}

// math::QuantiseSigned on vectors.
HWY_INLINE V QuantisedSigned(V v, V bottom, V top) {
  const D d;
  const V above = hn::IfThenElse(hn::Gt(v, bottom), v, bottom);
  return hn::Min(hn::CopySign(hn::Floor(hn::Add(hn::Abs(above), hn::Set(d, 0.5f))), above), top);
}

// math::FloatToHalf on vectors, in the low 16 bits.
HWY_INLINE hn::Vec<DI> HalfBits(V v) {
  const D d;
  const DI di;
  const auto bits = hn::BitCast(di, v);
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(di, 0x8000)), magnitude = hn::And(bits, hn::Set(di, 0x7FFFFFFF));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di, 1));
  auto half = hn::ShiftRight<13>(hn::Add(hn::Add(hn::Sub(magnitude, hn::Set(di, 0x38000000)), hn::Set(di, 0xFFF)), odd));
  const auto small = hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f))), hn::Set(di, 0x3F000000));
  half = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 0x38800000)), small, half);
  half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 0x477FFFFF)), hn::Set(di, 0x7C00), half);
  half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 0x7F800000)), hn::Set(di, 0x7E00), half);
  return hn::Or(half, sign);
}

// math::HalfToFloat on vectors; of finite numbers and infinities.
HWY_INLINE V HalfValue(hn::Vec<DI> half) {
  const D d;
  const DI di;
  const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(di, 0x8000))), magnitude = hn::And(half, hn::Set(di, 0x7FFF));
  const auto scaled = hn::BitCast(di, hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(magnitude)), hn::Set(d, 5.192296858534828e33f)));
  const auto special = hn::Or(hn::ShiftLeft<13>(magnitude), hn::Set(di, 0x7F800000));
  return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 0x7BFF)), special, scaled)));
}

// Steps 6 and 7 and placement. kPer depth samples of a lane fill a word of 32 bits, and so go to memory together.
template <DType kType, bool kRepeats, class Fetch>
void Finish(const TileTables& t, const Fetch fetch, int64_t records, const LaneTarget* HWY_RESTRICT targets) {
  const D d;
  const DI di;
  constexpr int64_t kBytes = SizeOf(kType), kPer = kBytes > 4 ? 1 : 4 / kBytes, kBits = 32 / kPer;
  constexpr bool kInteger = IsInteger(kType);
  const V top = hn::Set(d, t.top), bottom = hn::Set(d, t.bottom);
  const bool want_aip = targets[0].aip != nullptr, want_mip = targets[0].mip != nullptr;
  V most = hn::Set(d, kInteger ? LowestOf(kType) : -HUGE_VALF), sum = hn::Zero(d);
  alignas(64) uint32_t words[16] = {};
  alignas(64) float imaginary[16] = {};
  for (int64_t z = 0; z < t.depth; z += kPer) {
    const int64_t count = HWY_MIN(kPer, t.depth - z);
    auto word = hn::Zero(di);
    for (int64_t i = 0; i < count; ++i) {
      const C c = fetch(z + i);
      V v = StoredValue<kRepeats>(t, c, z + i, records, targets);
      if constexpr (kType == DType::kU8 || kType == DType::kU16) {
        v = Quantised(v, top);
        word = hn::Or(word, hn::ShiftLeftSame(hn::ConvertTo(di, v), static_cast<int>(i * kBits)));
      } else if constexpr (kType == DType::kI8) {
        v = QuantisedSigned(v, bottom, top);
        word = hn::Or(word, hn::ShiftLeftSame(hn::And(hn::ConvertTo(di, v), hn::Set(di, 0xFF)), static_cast<int>(i * kBits)));
      } else if constexpr (kType == DType::kF16) {
        const auto bits = HalfBits(v);
        v = HalfValue(bits);
        word = hn::Or(word, hn::ShiftLeftSame(bits, static_cast<int>(i * kBits)));
      } else if constexpr (kType == DType::kC64) {
        word = hn::BitCast(di, c.re);
        hn::Store(c.im, d, imaginary);
      } else {
        word = hn::BitCast(di, v);
      }
      if (z + i >= t.slab_begin && z + i < t.slab_end) {
        most = hn::Max(v, most);  // in this order a NaN leaves `most` as it is
        if (want_aip) sum = hn::Add(sum, v);
      }
    }
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
  if (!want_mip && !want_aip) return;
  alignas(64) float mosts[16] = {}, sums[16] = {};
  hn::Store(most, d, mosts);
  hn::Store(sum, d, sums);
  for (int64_t lane = 0; lane < records; ++lane) {
    const LaneTarget& target = targets[lane];
    if (target.volume == nullptr) continue;
    if (want_mip) {
      if constexpr (kType == DType::kU8) *static_cast<uint8_t*>(target.mip) = static_cast<uint8_t>(mosts[lane]);
      if constexpr (kType == DType::kI8) *static_cast<int8_t*>(target.mip) = static_cast<int8_t>(mosts[lane]);
      if constexpr (kType == DType::kU16) *static_cast<uint16_t*>(target.mip) = static_cast<uint16_t>(mosts[lane]);
      if constexpr (kType == DType::kF16) *static_cast<uint16_t*>(target.mip) = math::FloatToHalf(mosts[lane]);
      if constexpr (kBytes >= 4) *static_cast<float*>(target.mip) = mosts[lane];
    }
    if (want_aip) *target.aip = sums[lane] / static_cast<float>(t.slab_end - t.slab_begin);
  }
}

template <bool kRepeats, class Fetch>
void FinishAs(const TileTables& t, const Fetch& fetch, int64_t records, const LaneTarget* targets) {
  switch (t.output) {
    case DType::kU8: Finish<DType::kU8, kRepeats>(t, fetch, records, targets); break;
    case DType::kI8: Finish<DType::kI8, kRepeats>(t, fetch, records, targets); break;
    case DType::kU16: Finish<DType::kU16, kRepeats>(t, fetch, records, targets); break;
    case DType::kF16: Finish<DType::kF16, kRepeats>(t, fetch, records, targets); break;
    case DType::kC64: Finish<DType::kC64, false>(t, fetch, records, targets); break;
    default: Finish<DType::kF32, kRepeats>(t, fetch, records, targets); break;
  }
}

template <class Fetch>
void FinishAs(const TileTables& t, const Fetch& fetch, int64_t records, const LaneTarget* targets) {
  if (t.repeats) {
    FinishAs<true>(t, fetch, records, targets);
  } else {
    FinishAs<false>(t, fetch, records, targets);
  }
}

// Copies of the end samples around them: clamped taps read those, not branches.
constexpr int64_t kRowsBefore = 3, kRowsAfter = 4;

// Steps 1 to 4; where the transform's rows lie.
Rows TransformedRows(const TileTables& t, const void* raw, int64_t records, const float* background, float* scratch) {
  const int64_t lanes = Lanes();
  float* x = scratch + kRowsBefore * lanes;
  float* re = x + (t.samples + kRowsAfter) * lanes;
  float *im = re + t.fft.rows * lanes, *sr = im + t.fft.rows * lanes, *si = sr + t.fft.rows * lanes;
  const auto* bytes = static_cast<const uint8_t*>(raw);
  switch (t.raw_type) {
    case DType::kU8: LoadTransposed<uint8_t>(t, bytes, records, background, x); break;
    case DType::kI16: LoadTransposed<int16_t>(t, bytes, records, background, x); break;
    case DType::kF32: LoadTransposed<float>(t, bytes, records, background, x); break;
    default: LoadTransposed<uint16_t>(t, bytes, records, background, x); break;
  }
  const size_t row = static_cast<size_t>(lanes) * sizeof(float);
  for (int64_t i = 1; i <= kRowsBefore; ++i) std::memcpy(x - i * lanes, x, row);
  for (int64_t i = 0; i < kRowsAfter; ++i) std::memcpy(x + (t.samples + i) * lanes, x + (t.samples - 1) * lanes, row);
  switch (t.interpolation) {
    case math::Interpolation::kNone: Shape<1>(t, x, re, im); break;
    case math::Interpolation::kLinear: Shape<2>(t, x, re, im); break;
    case math::Interpolation::kCubic: Shape<4>(t, x, re, im); break;
    case math::Interpolation::kLanczos: Shape<8>(t, x, re, im); break;
  }
  const Rows out = RunTransform(t.fft, {re, im}, {sr, si});
  // Magnitudes do not need the chirp of a convolution's outputs; the real transform, which mixes rows, and complex values do.
  if (t.chirp_out) TurnRows(static_cast<int64_t>(t.fft.chirp_out_re.size()), t.fft.chirp_out_re.data(), t.fft.chirp_out_im.data(), out.re, out.im);
  return out;
}

void Tile(const TileTables& t, const void* raw, int64_t records, const float* background, const LaneTarget* targets, float* scratch) {
  const Rows rows = TransformedRows(t, raw, records, background, scratch);
  if (t.half) {
    FinishAs(t, FromRows<true>{t, rows.re, rows.im, Lanes()}, records, targets);
  } else {
    FinishAs(t, FromRows<false>{t, rows.re, rows.im, Lanes()}, records, targets);
  }
}

template <class Fetch>
void StoreSpectra(const TileTables& t, const Fetch& fetch, float* HWY_RESTRICT spectra) {
  const D d;
  const int64_t lanes = Lanes();
  for (int64_t z = 0; z < t.depth; ++z) {
    const C c = fetch(z);
    hn::Store(c.re, d, spectra + z * lanes);
    hn::Store(c.im, d, spectra + (t.depth + z) * lanes);
  }
}

void SpectraOfTile(const TileTables& t, const void* raw, int64_t records, const float* background, float* spectra, float* scratch) {
  const Rows rows = TransformedRows(t, raw, records, background, scratch);
  if (t.half) {
    StoreSpectra(t, FromRows<true>{t, rows.re, rows.im, Lanes()}, spectra);
  } else {
    StoreSpectra(t, FromRows<false>{t, rows.re, rows.im, Lanes()}, spectra);
  }
}

void FinishSpectra(const TileTables& t, const float* spectra, const float* pattern_re, const float* pattern_im, int64_t records,
                   const LaneTarget* targets) {
  FinishAs(t, FromSpectra{spectra, spectra + t.depth * Lanes(), pattern_re, pattern_im, Lanes()}, records, targets);
}

void Sum(const TileTables& t, const float* spectra, int64_t begin, int64_t end, int64_t first, int64_t last, const float* mean_re,
         const float* mean_im, float* re, float* im) {
  const D d;
  const int64_t lanes = Lanes();
  constexpr int64_t kDepths = 16;  // so many sums stay close while a tile's depths are read in a row
  for (int64_t z0 = first; z0 < last; z0 += kDepths) {
    const int64_t count = HWY_MIN(kDepths, last - z0);
    alignas(64) float sums[2 * kDepths * 16] = {};
    for (int64_t tile = begin / lanes; tile * lanes < end; ++tile) {
      const float* from = spectra + tile * 2 * t.depth * lanes;
      const V lane = hn::Iota(d, static_cast<float>(tile * lanes));
      const auto mask = hn::And(hn::Ge(lane, hn::Set(d, static_cast<float>(begin))), hn::Lt(lane, hn::Set(d, static_cast<float>(end))));
      for (int64_t i = 0; i < count; ++i) {
        V a = hn::Load(d, from + (z0 + i) * lanes), b = hn::Load(d, from + (t.depth + z0 + i) * lanes);
        if (mean_re != nullptr) {
          a = hn::Sub(a, hn::Set(d, mean_re[z0 + i]));
          b = hn::Sub(b, hn::Set(d, mean_im[z0 + i]));
          a = hn::MulAdd(a, a, hn::Mul(b, b));
          b = hn::Zero(d);
        }
        float* to = sums + 2 * i * lanes;
        hn::Store(hn::Add(hn::Load(d, to), hn::IfThenElseZero(mask, a)), d, to);
        hn::Store(hn::Add(hn::Load(d, to + lanes), hn::IfThenElseZero(mask, b)), d, to + lanes);
      }
    }
    for (int64_t i = 0; i < count; ++i) {
      re[z0 + i] = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, sums + 2 * i * lanes)));
      im[z0 + i] = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, sums + (2 * i + 1) * lanes)));
    }
  }
}

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace octavo::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::host {

HWY_EXPORT(Lanes);
HWY_EXPORT(Tile);
HWY_EXPORT(SpectraOfTile);
HWY_EXPORT(FinishSpectra);
HWY_EXPORT(Sum);
HWY_EXPORT(Fft);
HWY_EXPORT(TargetName);

int64_t TileLanes() { return HWY_DYNAMIC_DISPATCH(Lanes)(); }
const char* SimdTargetName() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

int64_t TileScratchFloats(const TileTables& tables) { return (tables.samples + 7 + 4 * tables.fft.rows) * TileLanes(); }

void ProcessTile(const TileTables& tables, const void* raw, int64_t records, const float* background, const LaneTarget* targets, float* scratch) {
  HWY_DYNAMIC_DISPATCH(Tile)(tables, raw, records, background, targets, scratch);
}

void TransformTile(const TileTables& tables, const void* raw, int64_t records, const float* background, float* spectra, float* scratch) {
  HWY_DYNAMIC_DISPATCH(SpectraOfTile)(tables, raw, records, background, spectra, scratch);
}

void FinishTile(const TileTables& tables, const float* spectra, const float* pattern_re, const float* pattern_im, int64_t records,
                const LaneTarget* targets) {
  HWY_DYNAMIC_DISPATCH(FinishSpectra)(tables, spectra, pattern_re, pattern_im, records, targets);
}

void SumAscans(const TileTables& tables, const float* spectra, int64_t begin, int64_t end, int64_t first, int64_t last, const float* mean_re,
               const float* mean_im, float* re, float* im) {
  HWY_DYNAMIC_DISPATCH(Sum)(tables, spectra, begin, end, first, last, mean_re, mean_im, re, im);
}

int64_t FftScratchRows(const FftPlan& plan) { return plan.convolution ? 4 * plan.rows : 2 * plan.rows; }
void InverseFft(const FftPlan& plan, float* re, float* im, float* scratch) { HWY_DYNAMIC_DISPATCH(Fft)(plan, re, im, scratch); }

}  // namespace octavo::host
#endif

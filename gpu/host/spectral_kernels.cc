// Compiled once per SIMD target; the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/host/spectral_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// The above must come first.
#include <cstring>

#include "gpu/host/spectral_kernels.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

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
HWY_INLINE C Twiddle(C a, V c, V s) {
  return {hn::NegMulAdd(a.im, s, hn::Mul(a.re, c)), hn::MulAdd(a.re, s, hn::Mul(a.im, c))};
}

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
int RunFft(const FftPlan& plan, float* re, float* im, float* sr, float* si) {
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

void Fft(const FftPlan& plan, float* re, float* im, float* scratch) {
  const size_t count = static_cast<size_t>(plan.n * Lanes());
  if (RunFft(plan, re, im, scratch, scratch + count) == 1) {
    std::memcpy(re, scratch, count * sizeof(float));
    std::memcpy(im, scratch + count, count * sizeof(float));
  }
}

// Records [lane][S] of a narrow type → floats [S][lane], less the background. Gathers words of 32 bits, which hold one to
// four neighbouring samples of a lane.
template <typename T>
void LoadTransposed(const TileTables& t, const T* HWY_RESTRICT raw, int64_t records, float* HWY_RESTRICT x) {
  const D d;
  const DI di;
  const int64_t lanes = Lanes(), samples = t.samples;
  constexpr int64_t kPer = 4 / static_cast<int64_t>(sizeof(T));
  alignas(64) int32_t offsets[16] = {};
  for (int64_t lane = 0; lane < lanes; ++lane) {  // a short tile repeats its last record; nobody sees the copies
    offsets[lane] = static_cast<int32_t>((lane < records ? lane : records - 1) * samples * static_cast<int64_t>(sizeof(T)));
  }
  const auto lane_offset = hn::Load(di, offsets);
  const auto* bytes = reinterpret_cast<const int32_t*>(raw);
  const float* background = t.background;
  const auto store = [&](int64_t j, V v) {
    if (background != nullptr) v = hn::Sub(v, hn::Set(d, background[j]));
    hn::Store(v, d, x + j * lanes);
  };
  int64_t j = 0;
  for (; j + kPer <= samples; j += kPer) {
    const auto word = hn::GatherOffset(di, bytes, hn::Add(lane_offset, hn::Set(di, static_cast<int32_t>(j * static_cast<int64_t>(sizeof(T))))));
    if constexpr (sizeof(T) == 4) {
      store(j, hn::BitCast(d, word));
    } else if constexpr (std::is_same_v<T, int16_t>) {
      store(j, hn::ConvertTo(d, hn::ShiftRight<16>(hn::ShiftLeft<16>(word))));
      store(j + 1, hn::ConvertTo(d, hn::ShiftRight<16>(word)));
    } else if constexpr (sizeof(T) == 2) {
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
  alignas(64) float tail[16] = {};
  for (; j < samples; ++j) {
    for (int64_t lane = 0; lane < lanes; ++lane) {
      tail[lane] = static_cast<float>(raw[(lane < records ? lane : records - 1) * samples + j]);
    }
    store(j, hn::Load(d, tail));
  }
}

// k-linearisation and window × dispersion in one go, into the zero-padded input of the transform.
void Shape(const TileTables& t, const float* HWY_RESTRICT x, float* HWY_RESTRICT re, float* HWY_RESTRICT im) {
  const D d;
  const int64_t lanes = Lanes();
  for (int64_t j = 0; j < t.n; ++j) {
    V v;
    if (t.interpolation == math::Interpolation::kNone) {
      v = hn::Load(d, x + j * lanes);
    } else if (t.interpolation == math::Interpolation::kLinear) {
      const float* at = x + t.tap[static_cast<size_t>(j)] * lanes;
      const float* w = t.weights.data() + 2 * j;
      v = hn::MulAdd(hn::Load(d, at + lanes), hn::Set(d, w[1]), hn::Mul(hn::Load(d, at), hn::Set(d, w[0])));
    } else {
      const float* at = x + (t.tap[static_cast<size_t>(j)] - 1) * lanes;
      const float* w = t.weights.data() + 4 * j;
      v = hn::Mul(hn::Load(d, at), hn::Set(d, w[0]));
      v = hn::MulAdd(hn::Load(d, at + lanes), hn::Set(d, w[1]), v);
      v = hn::MulAdd(hn::Load(d, at + 2 * lanes), hn::Set(d, w[2]), v);
      v = hn::MulAdd(hn::Load(d, at + 3 * lanes), hn::Set(d, w[3]), v);
    }
    hn::Store(hn::Mul(v, hn::Set(d, t.h_re[static_cast<size_t>(j)])), d, re + j * lanes);
    hn::Store(t.h_im.empty() ? hn::Zero(d) : hn::Mul(v, hn::Set(d, t.h_im[static_cast<size_t>(j)])), d, im + j * lanes);
  }
  const size_t pad = static_cast<size_t>((t.fft.n - t.n) * lanes) * sizeof(float);
  std::memset(re + t.n * lanes, 0, pad);
  std::memset(im + t.n * lanes, 0, pad);
}

// Value of a depth sample in stored units, before rounding: math::ValueOf and math::ToLevels on vectors.
HWY_INLINE V StoredValue(const TileTables& t, V re, V im) {
  const D d;
  const V power = hn::MulAdd(re, re, hn::Mul(im, im));
  V v;
  if (t.value == math::Value::kDb) {
    v = hn::Mul(hn::Log(d, hn::Max(power, hn::Set(d, math::kPowerFloor))), hn::Set(d, 4.342944819032518f));  // 10 / ln 10
  } else {
    v = t.value == math::Value::kPower ? power : hn::Sqrt(power);
  }
  return t.scaled ? hn::MulAdd(v, hn::Set(d, t.scale), hn::Set(d, t.offset)) : v;
}

// math::Quantise on vectors; a NaN compares false and becomes 0.
HWY_INLINE V Quantised(V v, V top) {
  const D d;
  const V positive = hn::IfThenElseZero(hn::Gt(v, hn::Zero(d)), v);
  return hn::Min(hn::Floor(hn::Add(positive, hn::Set(d, 0.5f))), top);
}

template <int64_t kPer>  // values per 32-bit word of output: 4 (u8), 2 (u16), 1 (f32)
void Finish(const TileTables& t, const float* HWY_RESTRICT re, const float* HWY_RESTRICT im, int64_t records,
            const LaneTarget* targets) {
  const D d;
  const DI di;
  const int64_t lanes = Lanes();
  const V top = hn::Set(d, t.top);
  const bool want_aip = targets[0].aip != nullptr, want_mip = targets[0].mip != nullptr;
  const V lowest = hn::Set(d, kPer == 1 ? -HUGE_VALF : 0.0f);
  V most = lowest, sum = hn::Zero(d);
  alignas(64) uint32_t words[16] = {};
  constexpr int64_t kBits = 32 / kPer, kBytes = 4 / kPer;
  re += t.first_bin * lanes;
  im += t.first_bin * lanes;
  for (int64_t z = 0; z < t.depth; z += kPer) {
    const int64_t count = HWY_MIN(kPer, t.depth - z);
    auto word = hn::Zero(di);
    for (int64_t i = 0; i < count; ++i) {
      V v = StoredValue(t, hn::Load(d, re + (z + i) * lanes), hn::Load(d, im + (z + i) * lanes));
      if constexpr (kPer == 1) {
        word = hn::BitCast(di, v);
      } else {
        v = Quantised(v, top);
        const auto bits = hn::ConvertTo(di, v);
        word = hn::Or(word, hn::ShiftLeftSame(bits, static_cast<int>(i * kBits)));
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
      if (count == kPer) {
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
      if constexpr (kPer == 4) *static_cast<uint8_t*>(target.mip) = static_cast<uint8_t>(mosts[lane]);
      if constexpr (kPer == 2) *static_cast<uint16_t*>(target.mip) = static_cast<uint16_t>(mosts[lane]);
      if constexpr (kPer == 1) *static_cast<float*>(target.mip) = mosts[lane];
    }
    if (want_aip) *target.aip = sums[lane] / static_cast<float>(t.slab_end - t.slab_begin);
  }
}

void Tile(const TileTables& t, const void* raw, int64_t records, const LaneTarget* targets, float* scratch) {
  const int64_t lanes = Lanes();
  // x has one row before and two after the samples: clamped taps read copies of the end samples, not branches.
  float* x = scratch + lanes;
  float* re = scratch + (t.samples + 3) * lanes;
  float *im = re + t.fft.n * lanes, *sr = im + t.fft.n * lanes, *si = sr + t.fft.n * lanes;
  switch (t.raw_type) {
    case DType::kU8: LoadTransposed(t, static_cast<const uint8_t*>(raw), records, x); break;
    case DType::kI16: LoadTransposed(t, static_cast<const int16_t*>(raw), records, x); break;
    case DType::kF32: LoadTransposed(t, static_cast<const float*>(raw), records, x); break;
    default: LoadTransposed(t, static_cast<const uint16_t*>(raw), records, x); break;
  }
  const size_t row = static_cast<size_t>(lanes) * sizeof(float);
  std::memcpy(x - lanes, x, row);
  std::memcpy(x + t.samples * lanes, x + (t.samples - 1) * lanes, row);
  std::memcpy(x + (t.samples + 1) * lanes, x + (t.samples - 1) * lanes, row);
  Shape(t, x, re, im);
  if (RunFft(t.fft, re, im, sr, si) == 1) {
    re = sr;
    im = si;
  }
  switch (t.output) {
    case DType::kU8: Finish<4>(t, re, im, records, targets); break;
    case DType::kU16: Finish<2>(t, re, im, records, targets); break;
    default: Finish<1>(t, re, im, records, targets); break;
  }
}

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace octavo::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::host {

HWY_EXPORT(Lanes);
HWY_EXPORT(Tile);
HWY_EXPORT(Fft);
HWY_EXPORT(TargetName);

int64_t TileLanes() { return HWY_DYNAMIC_DISPATCH(Lanes)(); }
const char* SimdTargetName() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

int64_t TileScratchFloats(const TileTables& tables) { return (tables.samples + 3 + 4 * tables.fft.n) * TileLanes(); }

void ProcessTile(const TileTables& tables, const void* raw, int64_t records, const LaneTarget* targets, float* scratch) {
  HWY_DYNAMIC_DISPATCH(Tile)(tables, raw, records, targets, scratch);
}

void InverseFft(const FftPlan& plan, float* re, float* im, float* scratch) { HWY_DYNAMIC_DISPATCH(Fft)(plan, re, im, scratch); }

}  // namespace octavo::host
#endif

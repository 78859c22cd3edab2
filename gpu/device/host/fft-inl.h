// Stockham passes of many transforms at once, one per lane.
// Highway includes this file once per SIMD target, so it has no ordinary include guard.
#if defined(OCTAVO_GPU_HOST_FFT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_GPU_HOST_FFT_INL_H_
#undef OCTAVO_GPU_HOST_FFT_INL_H_
#else
#define OCTAVO_GPU_HOST_FFT_INL_H_
#endif

#include <cstring>
#include <utility>

#include "gpu/device/host/fft_plan.h"
#include "gpu/device/host/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::inline gpu::host::HWY_NAMESPACE {

// The transform of 4, in place.
HWY_INLINE void Quarter(C& a, C& b, C& c, C& e) {
  const C s02 = Add(a, c), d02 = Sub(a, c), s13 = Add(b, e), d13 = TimesI(Sub(b, e));
  a = Add(s02, s13);
  b = Add(d02, d13);
  c = Sub(s02, s13);
  e = Sub(d02, d13);
}

template <int kRadix>
HWY_INLINE void Butterfly(C* a) {
  const D d;
  if constexpr (kRadix == 2) {
    const C t = Sub(a[0], a[1]);
    a[0] = Add(a[0], a[1]);
    a[1] = t;
  } else if constexpr (kRadix == 3) {
    const C sum = Add(a[1], a[2]),
            diff = TimesI(Scale(Sub(a[1], a[2]), hn::Set(d, 0.86602540378443865f)));
    const C mid = MulAdd(sum, hn::Set(d, -0.5f), a[0]);
    a[0] = Add(a[0], sum);
    a[1] = Add(mid, diff);
    a[2] = Sub(mid, diff);
  } else if constexpr (kRadix == 4) {
    Quarter(a[0], a[1], a[2], a[3]);
  } else if constexpr (kRadix == 8) {
    // n = n1 + 2 n2, k = k1 + 4 k2; output k lies at 2 k1 + k2.
    const V root = hn::Set(d, 0.70710678118654752f);
    Quarter(a[0], a[2], a[4], a[6]);
    Quarter(a[1], a[3], a[5], a[7]);
    a[3] = Scale({hn::Sub(a[3].re, a[3].im), hn::Add(a[3].re, a[3].im)}, root);
    a[5] = TimesI(a[5]);
    a[7] = Scale({hn::Neg(hn::Add(a[7].re, a[7].im)), hn::Sub(a[7].re, a[7].im)}, root);
    for (int k = 0; k < 8; k += 2) {
      const C t = Sub(a[k], a[k + 1]);
      a[k] = Add(a[k], a[k + 1]);
      a[k + 1] = t;
    }
  } else if constexpr (kRadix == 16) {
    // n = n1 + 4 n2, k = k1 + 4 k2; output k lies at 4 k1 + k2.
    const V root = hn::Set(d, 0.70710678118654752f), c1 = hn::Set(d, 0.92387953251128674f),
            s1 = hn::Set(d, 0.38268343236508977f);
    for (int n = 0; n < 4; ++n) Quarter(a[n], a[n + 4], a[n + 8], a[n + 12]);
    a[5] = Twiddle(a[5], c1, s1);
    a[9] = Scale({hn::Sub(a[9].re, a[9].im), hn::Add(a[9].re, a[9].im)}, root);
    a[13] = Twiddle(a[13], s1, c1);
    a[6] = Scale({hn::Sub(a[6].re, a[6].im), hn::Add(a[6].re, a[6].im)}, root);
    a[10] = TimesI(a[10]);
    a[14] = Scale({hn::Neg(hn::Add(a[14].re, a[14].im)), hn::Sub(a[14].re, a[14].im)}, root);
    a[7] = Twiddle(a[7], s1, c1);
    a[11] = Scale({hn::Neg(hn::Add(a[11].re, a[11].im)), hn::Sub(a[11].re, a[11].im)}, root);
    a[15] = Twiddle(a[15], hn::Neg(c1), hn::Neg(s1));
    for (int k = 0; k < 16; k += 4) Quarter(a[k], a[k + 1], a[k + 2], a[k + 3]);
  } else {
    static_assert(kRadix == 5);
    const V c1 = hn::Set(d, 0.30901699437494742f), c2 = hn::Set(d, -0.80901699437494742f);
    const V s1 = hn::Set(d, 0.95105651629515357f), s2 = hn::Set(d, 0.58778525229247313f);
    const C s14 = Add(a[1], a[4]), d14 = Sub(a[1], a[4]), s23 = Add(a[2], a[3]),
            d23 = Sub(a[2], a[3]);
    const C m1 = MulAdd(s23, c2, MulAdd(s14, c1, a[0])),
            m2 = MulAdd(s23, c1, MulAdd(s14, c2, a[0]));
    const C i1 = TimesI(MulAdd(d23, s2, Scale(d14, s1)));
    const C i2 = TimesI(MulAdd(d23, hn::Neg(s1), Scale(d14, s2)));
    a[0] = Add(a[0], Add(s14, s23));
    a[1] = Add(m1, i1);
    a[2] = Add(m2, i2);
    a[3] = Sub(m2, i2);
    a[4] = Sub(m1, i1);
  }
}

// Index of output k of Butterfly.
template <int kRadix>
constexpr int Output(int k) {
  return kRadix == 16 ? 4 * (k % 4) + k / 4 : kRadix == 8 ? 2 * (k % 4) + k / 4 : k;
}

// Real and imaginary parts of rows of one vector, `pitch` floats from row to row. They are two
// arrays; or neighbours with a pitch of two vectors, which takes half as many places in the cache.
struct Rows {
  float *re, *im;
  int64_t pitch = Lanes();
};

// Rows of a pass from memory.
struct FromMemory {
  const float *HWY_RESTRICT re, *HWY_RESTRICT im;
  const int64_t pitch;
  HWY_INLINE C operator()(int64_t row) const {
    const D d;
    return {hn::Load(d, re + row * pitch), hn::Load(d, im + row * pitch)};
  }
};

// One Stockham pass (Swarztrauber 1984; the transform sorts itself): x[q + s(p + k m)] → y[q + s(r
// p + k)]. The last pass writes only the blocks of outputs that overlap [first, last).
template <int kRadix, class Fetch>
void Pass(const FftPlan::Pass& pass, const float* HWY_RESTRICT twiddles, const Fetch fetch,
          Rows out, int64_t first, int64_t last) {
  const D d;
  const int64_t s = pass.stride, m = pass.length / kRadix;
  const float* w = twiddles + pass.first_twiddle;
  float *HWY_RESTRICT yr = out.re, *HWY_RESTRICT yi = out.im;
  bool wanted[kRadix];
  for (int k = 0; k < kRadix; ++k) wanted[k] = m > 1 || (s * k < last && s * (k + 1) > first);
  for (int64_t p = 0; p < m; ++p, w += 2 * (kRadix - 1)) {
    for (int64_t q = 0; q < s; ++q) {
      C a[kRadix];
      for (int k = 0; k < kRadix; ++k) a[k] = fetch(q + s * (p + k * m));
      Butterfly<kRadix>(a);
      for (int k = 0; k < kRadix; ++k) {
        if (!wanted[k]) continue;
        C b = a[Output<kRadix>(k)];
        if (k > 0 && p > 0)
          b = Twiddle(b, hn::Set(d, w[2 * (k - 1)]), hn::Set(d, w[2 * (k - 1) + 1]));
        const int64_t at = (q + s * (kRadix * p + k)) * out.pitch;
        hn::Store(b.re, d, yr + at);
        hn::Store(b.im, d, yi + at);
      }
    }
  }
}

// A pass of a radix above 16. Its butterflies are transforms of kFirst and of kSecond one after the
// other, which fit the registers, with the values between them in a small buffer: a pass over all
// rows less than with two passes. n = n1 + kSecond n2, k = k1 + kFirst k2.
template <int kRadix, class Fetch>
void SplitPass(const FftPlan::Pass& pass, const float* HWY_RESTRICT twiddles, const Fetch fetch,
               Rows out, int64_t first, int64_t last) {
  constexpr int kFirst = FftPlan::FirstFactor(kRadix), kSecond = kRadix / kFirst;
  const D d;
  const int64_t lanes = Lanes(), s = pass.stride, m = pass.length / kRadix;
  const float* const inner = twiddles + pass.first_inner_twiddle;
  float *HWY_RESTRICT yr = out.re, *HWY_RESTRICT yi = out.im;
  alignas(64) float between[2 * kRadix * HWY_LANES(float)];
  bool wanted[kRadix];
  for (int k = 0; k < kRadix; ++k) wanted[k] = m > 1 || (s * k < last && s * (k + 1) > first);
  for (int64_t p = 0; p < m; ++p) {
    const float* const w = twiddles + pass.first_twiddle + 2 * (kRadix - 1) * p;
    for (int64_t q = 0; q < s; ++q) {
      for (int n1 = 0; n1 < kSecond; ++n1) {
        C a[kFirst];
        HWY_UNROLL(8)
        for (int n2 = 0; n2 < kFirst; ++n2) a[n2] = fetch(q + s * (p + (n1 + kSecond * n2) * m));
        Butterfly<kFirst>(a);
        const float* const v = inner + 2 * kFirst * n1;
        for (int k1 = 0; k1 < kFirst; ++k1) {
          C b = a[Output<kFirst>(k1)];
          if (k1 > 0) b = Twiddle(b, hn::Set(d, v[2 * k1]), hn::Set(d, v[2 * k1 + 1]));
          float* const to = between + 2 * lanes * (k1 * kSecond + n1);
          hn::Store(b.re, d, to);
          hn::Store(b.im, d, to + lanes);
        }
      }
      for (int k1 = 0; k1 < kFirst; ++k1) {
        C a[kSecond];
        for (int n1 = 0; n1 < kSecond; ++n1) {
          const float* const from = between + 2 * lanes * (k1 * kSecond + n1);
          a[n1] = {hn::Load(d, from), hn::Load(d, from + lanes)};
        }
        Butterfly<kSecond>(a);
        for (int k2 = 0; k2 < kSecond; ++k2) {
          const int k = k1 + kFirst * k2;
          if (!wanted[k]) continue;
          C b = a[Output<kSecond>(k2)];
          if (k > 0 && p > 0)
            b = Twiddle(b, hn::Set(d, w[2 * (k - 1)]), hn::Set(d, w[2 * (k - 1) + 1]));
          const int64_t at = (q + s * (kRadix * p + k)) * out.pitch;
          hn::Store(b.re, d, yr + at);
          hn::Store(b.im, d, yi + at);
        }
      }
    }
  }
}

// A pass of any radix of a plan.
template <class Fetch>
void PassOf(const FftPlan::Pass& pass, const float* HWY_RESTRICT twiddles, const Fetch& fetch,
            Rows out, int64_t first, int64_t last) {
  switch (pass.radix) {
    case 2: Pass<2>(pass, twiddles, fetch, out, first, last); break;
    case 3: Pass<3>(pass, twiddles, fetch, out, first, last); break;
    case 4: Pass<4>(pass, twiddles, fetch, out, first, last); break;
    case 5: Pass<5>(pass, twiddles, fetch, out, first, last); break;
    case 8: Pass<8>(pass, twiddles, fetch, out, first, last); break;
    case 16: Pass<16>(pass, twiddles, fetch, out, first, last); break;
    case 32: SplitPass<32>(pass, twiddles, fetch, out, first, last); break;
    default: SplitPass<64>(pass, twiddles, fetch, out, first, last); break;
  }
}

// Runs the passes from `begin` on over the rows in `a`; `b` is scratch. Returns the location of the
// result, which holds the outputs [first, last) and perhaps more.
inline Rows RunPasses(const FftPlan& plan, size_t begin, Rows a, Rows b, int64_t first,
                      int64_t last) {
  const float* w = plan.twiddles.data();
  for (size_t i = begin; i < plan.passes.size(); ++i) {
    const FftPlan::Pass& pass = plan.passes[i];
    const FromMemory fetch{a.re, a.im, a.pitch};
    PassOf(pass, w, fetch, b, first, last);
    std::swap(a, b);
  }
  return a;
}

// Multiplies each row by one complex number.
inline void TurnRows(int64_t rows, const float* HWY_RESTRICT c, const float* HWY_RESTRICT s,
                     Rows of) {
  const D d;
  float *HWY_RESTRICT re = of.re, *HWY_RESTRICT im = of.im;
  for (int64_t j = 0; j < rows; ++j) {
    const C z = Twiddle({hn::Load(d, re + j * of.pitch), hn::Load(d, im + j * of.pitch)},
                        hn::Set(d, c[j]), hn::Set(d, s[j]));
    hn::Store(z.re, d, re + j * of.pitch);
    hn::Store(z.im, d, im + j * of.pitch);
  }
}

// Transforms plan.rows rows of `a`; for a convolution, `a` is already multiplied by the chirp. `b`
// is scratch. Returns the location of the result.
inline Rows RunTransform(const FftPlan& plan, Rows a, Rows b, int64_t first, int64_t last) {
  if (!plan.convolution) return RunPasses(plan, 0, a, b, first, last);
  const Rows out = RunPasses(plan, 0, a, b, 0, plan.rows);
  if (out.re != a.re) std::swap(a, b);
  TurnRows(plan.rows, plan.filter_re.data(), plan.filter_im.data(), a);
  // With real and imaginary parts exchanged, the same passes compute the transform of the other
  // sign.
  const Rows back = RunPasses(plan, 0, {a.im, a.re, a.pitch}, {b.im, b.re, b.pitch}, first, last);
  return {back.im, back.re, back.pitch};
}

}  // namespace octavo::inline gpu::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

// Vectors of one float per A-scan, complex numbers of them, and the transpose between A-scans in
// rows and in lanes. Highway includes this file once per SIMD target, so it has no ordinary include
// guard.
#if defined(OCTAVO_GPU_HOST_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_GPU_HOST_VECTORS_INL_H_
#undef OCTAVO_GPU_HOST_VECTORS_INL_H_
#else
#define OCTAVO_GPU_HOST_VECTORS_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::inline gpu::host::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<D>;
using V = hn::Vec<D>;
using VI = hn::Vec<DI>;
constexpr int64_t kLanes = HWY_LANES(float);  // for the targets of this build, as many as Lanes()

HWY_INLINE int64_t Lanes() { return static_cast<int64_t>(hn::Lanes(D())); }

struct C {
  V re, im;
};
HWY_INLINE C Add(C a, C b) { return {hn::Add(a.re, b.re), hn::Add(a.im, b.im)}; }
HWY_INLINE C Sub(C a, C b) { return {hn::Sub(a.re, b.re), hn::Sub(a.im, b.im)}; }
HWY_INLINE C TimesI(C a) { return {hn::Neg(a.im), a.re}; }
HWY_INLINE C Scale(C a, V s) { return {hn::Mul(a.re, s), hn::Mul(a.im, s)}; }
HWY_INLINE C MulAdd(C a, V s, C b) {
  return {hn::MulAdd(a.re, s, b.re), hn::MulAdd(a.im, s, b.im)};
}
HWY_INLINE C Twiddle(C a, V c, V s) {
  return {hn::NegMulAdd(a.im, s, hn::Mul(a.re, c)), hn::MulAdd(a.re, s, hn::Mul(a.im, c))};
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void Transpose(VI*) {}
#else
// Rearranges the 128-bit blocks of a and b into their lower halves (all first blocks) and their
// upper halves.
HWY_INLINE void SwapOuter(VI& a, VI& b) {
  const DI d;
  const VI low = hn::ConcatLowerLower(d, b, a), high = hn::ConcatUpperUpper(d, b, a);
  a = low;
  b = high;
}

// The transpose of kLanes vectors of kLanes words: word i of vector j becomes word j of vector i.
HWY_INLINE void Transpose(VI* v) {
  const DI d;
  const hn::Repartition<int64_t, DI> d64;
  if constexpr (kLanes >= 4) {
    // Within blocks: 4 x 4 words each.
    for (int64_t i = 0; i < kLanes; i += 4) {
      const auto a = hn::BitCast(d64, hn::InterleaveLower(d, v[i], v[i + 1])),
                 b = hn::BitCast(d64, hn::InterleaveUpper(d, v[i], v[i + 1]));
      const auto c = hn::BitCast(d64, hn::InterleaveLower(d, v[i + 2], v[i + 3])),
                 e = hn::BitCast(d64, hn::InterleaveUpper(d, v[i + 2], v[i + 3]));
      v[i] = hn::BitCast(d, hn::InterleaveLower(d64, a, c));
      v[i + 1] = hn::BitCast(d, hn::InterleaveUpper(d64, a, c));
      v[i + 2] = hn::BitCast(d, hn::InterleaveLower(d64, b, e));
      v[i + 3] = hn::BitCast(d, hn::InterleaveUpper(d64, b, e));
    }
  }
  // Blocks: v[4 g + i] holds word i of the rows 4 g ..., block by block of 4 words.
  if constexpr (kLanes == 8) {
    for (int64_t i = 0; i < 4; ++i) SwapOuter(v[i], v[i + 4]);
  } else if constexpr (kLanes == 16) {
    for (int64_t i = 0; i < 4; ++i) {
      VI p = v[i], q = v[i + 8], r = v[i + 4], s = v[i + 12];
      SwapOuter(p, q);  // p: blocks 0 1 of rows 0 and 8 ...; q: blocks 2 3
      SwapOuter(r, s);
      v[i] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(r), p);
      v[i + 4] = hn::OddEvenBlocks(r, hn::SwapAdjacentBlocks(p));
      v[i + 8] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(s), q);
      v[i + 12] = hn::OddEvenBlocks(s, hn::SwapAdjacentBlocks(q));
    }
  }
}
#endif

// The transpose of kLanes vectors of floats.
HWY_INLINE void TransposeFloats(V* v) {
  const D d;
  const DI di;
  VI words[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) words[i] = hn::BitCast(di, v[i]);
  Transpose(words);
  for (int64_t i = 0; i < kLanes; ++i) v[i] = hn::BitCast(d, words[i]);
}

// The first `count` of a vector's floats, from and to memory.
HWY_INLINE V LoadSome(const float* from, int64_t count) {
  const D d;
  if (count >= kLanes) return hn::LoadU(d, from);
  alignas(64) float part[kLanes] = {};
  std::memcpy(part, from, static_cast<size_t>(count) * sizeof(float));
  return hn::Load(d, part);
}
HWY_INLINE void StoreSome(V value, float* to, int64_t count) {
  const D d;
  if (count >= kLanes) {
    hn::StoreU(value, d, to);
    return;
  }
  alignas(64) float part[kLanes];
  hn::Store(value, d, part);
  std::memcpy(to, part, static_cast<size_t>(count) * sizeof(float));
}

}  // namespace octavo::inline gpu::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

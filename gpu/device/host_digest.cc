// Compiled once per SIMD target; the program chooses the best target at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/device/host_digest.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// These includes must come first.
#include "hwy/highway.h"

#include "gpu/device/digest.h"
#include "gpu/device/host_digest.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::inline gpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if !HWY_ARCH_X86 || HWY_TARGET > HWY_AVX2  // SSE4 is slower than none (tests/bench/RESULTS.md)
int64_t Words(const char*, int64_t, uint64_t, uint64_t*) { return 0; }
#else
using D = hn::ScalableTag<uint64_t>;
using V = hn::Vec<D>;

HWY_INLINE V Times(V x, uint64_t factor) {
// GCC 12's intrinsic multiplies signed numbers, which the sanitizer of undefined behaviour reports.
#if HWY_TARGET <= HWY_AVX3 && !defined(OCTAVO_SANITIZED)
  return hn::Mul(x, hn::Set(D(), factor));
#else  // from products of 32-bit halves
  const D d;
  const hn::Repartition<uint32_t, D> halves;
  const auto low = [&](V a, V b) {
    return hn::MulEven(hn::BitCast(halves, a), hn::BitCast(halves, b));
  };
  const V lo = hn::Set(d, factor), hi = hn::Set(d, factor >> 32);
  const V cross = hn::Add(low(hn::ShiftRight<32>(x), lo), low(x, hi));
  return hn::Add(low(x, lo), hn::ShiftLeft<32>(cross));
#endif
}

/// Adds the terms (math::DigestWord) of as many of the words as fill vectors, and returns how many.
int64_t Words(const char* data, int64_t words, uint64_t first, uint64_t* sum) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const uint64_t golden = 0x9E3779B97F4A7C15ull;
  V place = Times(hn::Add(hn::Iota(d, 0), hn::Set(d, first + 1)), golden), total = hn::Zero(d);
  const V step = hn::Set(d, golden * static_cast<uint64_t>(lanes));
  int64_t i = 0;
  for (; i + lanes <= words; i += lanes) {
    V x = hn::BitCast(d, hn::LoadU(hn::Repartition<uint8_t, D>(),
                                   reinterpret_cast<const uint8_t*>(data) + 8 * i));
    x = hn::Add(x, place);
    place = hn::Add(place, step);
    x = Times(hn::Xor(x, hn::ShiftRight<30>(x)), 0xBF58476D1CE4E5B9ull);
    x = Times(hn::Xor(x, hn::ShiftRight<27>(x)), 0x94D049BB133111EBull);
    total = hn::Add(total, hn::Xor(x, hn::ShiftRight<31>(x)));
  }
  *sum += hn::GetLane(hn::SumOfLanes(d, total));
  return i;
}
#endif

}  // namespace octavo::inline gpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::inline gpu {

HWY_EXPORT(Words);

uint64_t HostDigest(const void* data, int64_t bytes, int64_t first_byte) {
  const auto* const p = static_cast<const char*>(data);
  uint64_t sum = 0;
  const int64_t done =
      8 * HWY_DYNAMIC_DISPATCH(Words)(p, bytes / 8, static_cast<uint64_t>(first_byte) / 8, &sum);
  return sum + DigestBytes(p + done, bytes - done, first_byte + done);
}

}  // namespace octavo::inline gpu
#endif

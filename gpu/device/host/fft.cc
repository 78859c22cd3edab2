// Compiled once per SIMD target; the program chooses the best target at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/device/host/fft.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// These includes must come first.
#include "hwy/highway.h"

#include "gpu/device/host/fft-inl.h"
#include "gpu/device/host/fft.h"
#include "gpu/device/host/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::inline gpu::host::HWY_NAMESPACE {

void Fft(const FftPlan& plan, float* re, float* im, float* scratch) {
  const auto count = static_cast<size_t>(plan.n * Lanes()),
             rows = static_cast<size_t>(plan.rows * Lanes());
  Rows a{re, im}, b{scratch, scratch + rows};
  if (plan.convolution) {
    a = {scratch + 2 * rows, scratch + 3 * rows};
    std::memset(a.re, 0, 2 * rows * sizeof(float));
    std::memcpy(a.re, re, count * sizeof(float));
    std::memcpy(a.im, im, count * sizeof(float));
    TurnRows(plan.n, plan.chirp_in_re.data(), plan.chirp_in_im.data(), a);
  }
  const Rows out = RunTransform(plan, a, b, 0, plan.rows);
  if (plan.convolution) TurnRows(plan.n, plan.chirp_out_re.data(), plan.chirp_out_im.data(), out);
  if (out.re == re) return;
  std::memcpy(re, out.re, count * sizeof(float));
  std::memcpy(im, out.im, count * sizeof(float));
}

int64_t TileWidth() { return Lanes(); }
const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace octavo::inline gpu::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::inline gpu::host {

HWY_EXPORT(TileWidth);
HWY_EXPORT(Fft);
HWY_EXPORT(TargetName);

int64_t TileLanes() { return HWY_DYNAMIC_DISPATCH(TileWidth)(); }
const char* SimdTargetName() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

int64_t FftScratchRows(const FftPlan& plan) {
  return plan.convolution ? 4 * plan.rows : 2 * plan.rows;
}
void InverseFft(const FftPlan& plan, float* re, float* im, float* scratch) {
  HWY_DYNAMIC_DISPATCH(Fft)(plan, re, im, scratch);
}

}  // namespace octavo::inline gpu::host
#endif

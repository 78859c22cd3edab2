#pragma once

#include <cmath>
#include <cstdint>

#include "gpu/math/host_device.h"

// Functions of single elements, shared by all backends.
namespace octavo::inline gpu::math {

enum class Function : uint8_t { kLn = 1, kLog10 = 2, kExp = 3, kExp10 = 4 };

/// The function of a number, computed in its own type. The logarithm of 0 is -infinity, that of a
/// negative number NaN; with `keep_rest`, numbers that are not above 0 stay as they are.
template <typename V>
OCTAVO_HOST_DEVICE inline V FunctionOf(Function function, bool keep_rest, V v) {
  switch (function) {
    case Function::kLn: return keep_rest && !(v > 0) ? v : static_cast<V>(log(v));
    case Function::kLog10: return keep_rest && !(v > 0) ? v : static_cast<V>(log10(v));
    case Function::kExp: return static_cast<V>(exp(v));
    default: return static_cast<V>(pow(static_cast<V>(10), v));
  }
}

/// Whether a number is above a threshold. NaN is not.
OCTAVO_HOST_DEVICE inline bool IsAbove(double v, double threshold) { return v > threshold; }

// -- Otsu's threshold

/// The middle of bin `bin` if [lo, hi] is divided into `bins` equal bins.
OCTAVO_HOST_DEVICE inline double BinMiddle(int64_t bin, double lo, double hi, int64_t bins) {
  return lo + (static_cast<double>(bin) + 0.5) * ((hi - lo) / static_cast<double>(bins));
}

/// The middle of the bin that divides `counts` into two classes, the lower with that bin, such that
/// the variance between their means is the largest; the first such bin. lo if there is only one
/// value. Source: N. Otsu, IEEE Transactions on Systems, Man, and Cybernetics 9, 62-66 (1979).
OCTAVO_HOST_DEVICE inline double OtsuThreshold(const uint64_t* counts, double lo, double hi,
                                               int64_t bins) {
  if (!(lo < hi)) return lo;
  // Bins have the middles bin + 1/2 here: a scale changes no place of a maximum.
  double all = 0, moment = 0;
  for (int64_t b = 0; b < bins; ++b) {
    all += static_cast<double>(counts[b]);
    moment += static_cast<double>(counts[b]) * (static_cast<double>(b) + 0.5);
  }
  double below = 0, moment_below = 0, best = -1;
  int64_t chosen = 0;
  for (int64_t b = 0; b + 1 < bins; ++b) {
    below += static_cast<double>(counts[b]);
    moment_below += static_cast<double>(counts[b]) * (static_cast<double>(b) + 0.5);
    const double above = all - below;
    if (!(below > 0) || !(above > 0)) continue;
    const double apart = moment_below / below - (moment - moment_below) / above,
                 variance = below * above * apart * apart;
    if (variance > best) {
      best = variance;
      chosen = b;
    }
  }
  return BinMiddle(chosen, lo, hi, bins);
}

// -- extremes

enum class Extreme : uint8_t { kMin = 1, kMax = 2 };

/// The place of the extreme of the elements so far; index -1: there was none. The first of equals
/// counts. Join needs no order.
template <typename V>
struct ExtremePlace {
  V value = 0;
  int64_t index = -1;
};

/// Whether `a` replaces `b`. Without `skip_nan`, NaN is more extreme than every number, as in
/// numpy.argmax and argmin.
template <typename V>
OCTAVO_HOST_DEVICE inline bool Replaces(Extreme extreme, const ExtremePlace<V>& a,
                                        const ExtremePlace<V>& b) {
  if (a.index < 0) return false;
  if (b.index < 0) return true;
  const bool a_is_nan = !(a.value == a.value), b_is_nan = !(b.value == b.value);
  if (a_is_nan != b_is_nan) return a_is_nan;
  if (!a_is_nan && a.value != b.value)
    return extreme == Extreme::kMax ? a.value > b.value : a.value < b.value;
  return a.index < b.index;
}

template <typename V>
OCTAVO_HOST_DEVICE inline void IncludePlace(Extreme extreme, bool skip_nan, V value, int64_t index,
                                            ExtremePlace<V>* best) {
  if (skip_nan && !(value == value)) return;
  const ExtremePlace<V> here{value, index};
  if (Replaces(extreme, here, *best)) *best = here;
}

}  // namespace octavo::inline gpu::math

#include "gpu/device/fft_length.h"

#include <initializer_list>

namespace octavo::inline gpu {

bool IsFastLength(int64_t n) {
  if (n < 1) return false;
  for (const int64_t p : {2, 3, 5}) {
    while (n % p == 0) n /= p;
  }
  return n == 1;
}

int64_t NextFastLength(int64_t n) {
  while (!IsFastLength(n)) ++n;
  return n;
}

}  // namespace octavo::inline gpu

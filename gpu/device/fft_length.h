#pragma once

#include <cstdint>

namespace octavo::inline gpu {

/// The smallest length >= n whose only prime factors are 2, 3 and 5. IsFastLength says whether n is
/// such a length.
int64_t NextFastLength(int64_t n);
bool IsFastLength(int64_t n);

}  // namespace octavo::inline gpu

#pragma once

#include <cstdint>

namespace octavo::inline gpu {

/// The smallest length >= n made of the factors 2, 3, 5; IsFastLength tells whether n is one.
int64_t NextFastLength(int64_t n);
bool IsFastLength(int64_t n);

}  // namespace octavo::inline gpu

#pragma once

#include <cstddef>

namespace octavo::inline gpu {

/// A second array of a chain, by its index; none is the default.
struct ArrayRef {
  static constexpr size_t kNone = ~size_t{0};
  size_t index = kNone;
  bool given() const { return index != kNone; }
};

}  // namespace octavo::inline gpu

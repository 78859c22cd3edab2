#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace octavo::base {

/// A box of an array: one value of each for every axis.
struct ArrayBox {
  std::vector<int64_t> start, count;
};

/// The box that a client asks for, of an array with `extents`. No `start`: 0 on every axis. No
/// `count`, or 0 for an axis: to its end. InvalidArgument (start or count: it has neither none nor
/// as many values as there are axes); OutOfRange (BAD_RANGE; numbers: axis, extent) if the box
/// leaves the array.
absl::StatusOr<ArrayBox> ResolveBox(const std::vector<int64_t>& start,
                                    const std::vector<int64_t>& count,
                                    const std::vector<int64_t>& extents);

}  // namespace octavo::base

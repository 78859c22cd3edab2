#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

#include "gpu/array/array_ops.h"
#include "gpu/device/device.h"
#include "server/model/buffer_types.h"

namespace octavo::buffer {

/// The way through a box of an array, piece by piece, once for each of several sources. Pure
/// arithmetic.
struct BoxWalk {
  int64_t shape[3] = {1, 1, 1};  // of the array
  Box3 box;
  int64_t element_bytes = 1;
  size_t source = 0, sources = 1;
  int64_t at[3] = {0, 0, 0};

  /// The box that `spec` asks for of an array of `type`; `type` becomes that of the box. OutOfRange
  /// (BAD_RANGE).
  static absl::StatusOr<BoxWalk> Of(const model::BufferReadSpec& spec, size_t sources,
                                    ArrayType* type);
  bool done() const { return source == sources; }
  /// The next piece of at most max_bytes (an element at least): planes, rows of a plane, or a part
  /// of a row.
  Box3 Next(int64_t max_bytes);
};

}  // namespace octavo::buffer

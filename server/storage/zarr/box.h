#pragma once

#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"

namespace octavo::storage {

/// A number for each axis of an array: indices, extents, strides.
using AxisValues = absl::InlinedVector<int64_t, 4>;

/// Strides, in bytes, of packed elements in C order.
AxisValues PackedStrides(absl::Span<const int64_t> count, int64_t element_bytes);

/// Σ index·stride.
int64_t OffsetOf(absl::Span<const int64_t> index, absl::Span<const int64_t> stride);

/// Whether a box of `count` elements is one run of bytes at both sides, in the same order.
bool IsOneRun(absl::Span<const int64_t> count, int64_t element_bytes,
              absl::Span<const int64_t> from_stride, absl::Span<const int64_t> to_stride);

/// Copies a box of elements between two layouts. Strides are in bytes and not negative; `from` and
/// `to` point to the box's first element. Rows that are contiguous on both sides are copied as
/// rows, transposed ones in tiles.
void CopyBox(absl::Span<const int64_t> count, int64_t element_bytes, const char* from,
             absl::Span<const int64_t> from_stride, char* to, absl::Span<const int64_t> to_stride);

/// Writes one element everywhere in a box.
void FillBox(absl::Span<const int64_t> count, const std::string& element, char* to,
             absl::Span<const int64_t> to_stride);

}  // namespace octavo::storage

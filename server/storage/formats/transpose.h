#pragma once

#include <cstdint>

namespace octavo::storage {

/// Columns [first, first + count) of a matrix [rows, columns], as rows at these places. `size`:
/// bytes of an element (1, 2, 4 or 8).
void TransposeColumns(const char* matrix, int64_t rows, int64_t columns, int64_t size,
                      int64_t first, int64_t count, char* const* places);

}  // namespace octavo::storage

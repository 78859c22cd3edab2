#pragma once

#include <cstdint>

namespace octavo::storage {

/// The byte shuffle of HDF5, Blosc and Zarr: first the first bytes of all elements, then the second
/// ones, and so on. `out` has count * element_bytes bytes and does not overlap `in`.
void ShuffleBytes(const char* in, int64_t count, int64_t element_bytes, char* out);
/// Its inverse.
void UnshuffleBytes(const char* in, int64_t count, int64_t element_bytes, char* out);

}  // namespace octavo::storage

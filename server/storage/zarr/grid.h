#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "nlohmann/json.hpp"

#include "gpu/device/dtype.h"

namespace octavo::storage {

/// The value of a voxel outside the volume: 0, or NaN for the types that have it (complex: both
/// parts).
struct FillValue {
  nlohmann::json metadata;               // its form in Zarr's metadata
  std::array<unsigned char, 8> bytes{};  // repeats with the element's size

  static FillValue Of(DType dtype);
};

/// Cuts slabs [y, x, z] of a volume into chunks.
struct ChunkGrid {
  int64_t shape[3], chunk[3];  // voxels
  int64_t size;                // bytes of an element
  FillValue fill;

  int64_t ChunkBytes() const { return chunk[0] * chunk[1] * chunk[2] * size; }
  /// The bytes of the chunk at voxel (y0 within a slab of `bscans`, x0, z0), padded with the fill
  /// value outside the volume. Points into the slab if the bytes are contiguous there, else gathers
  /// them into `memory`.
  const char* Gather(const void* slab, int64_t bscans, int64_t y0, int64_t x0, int64_t z0,
                     std::vector<char>* memory) const;
  /// The same, always gathered into `memory`, of ChunkBytes().
  void GatherInto(const void* slab, int64_t bscans, int64_t y0, int64_t x0, int64_t z0,
                  char* memory) const;
  /// The reverse: copies the part of `bytes` within the volume to the slab.
  void Scatter(const char* bytes, void* slab, int64_t bscans, int64_t y0, int64_t x0,
               int64_t z0) const;
};

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace octavo::storage

#include "server/storage/zarr/grid.h"

#include <algorithm>
#include <cstring>

namespace octavo::storage {

FillValue FillValue::Of(DType dtype) {
  using nlohmann::json;
  switch (dtype) {
    case DType::kF16: return {"NaN", {0x00, 0x7E}};
    case DType::kF32: return {"NaN", {0x00, 0x00, 0xC0, 0x7F}};
    case DType::kF64: return {"NaN", {0, 0, 0, 0, 0, 0, 0xF8, 0x7F}};
    case DType::kC64:
      return {json::array({"NaN", "NaN"}), {0x00, 0x00, 0xC0, 0x7F, 0x00, 0x00, 0xC0, 0x7F}};
    default: return {0, {}};
  }
}

const char* ChunkGrid::Gather(const void* slab, int64_t bscans, int64_t y0, int64_t x0, int64_t z0,
                              std::vector<char>* memory) const {
  const int64_t ny = std::min(chunk[0], bscans - y0), nx = std::min(chunk[1], shape[1] - x0),
                nz = std::min(chunk[2], shape[2] - z0);
  const bool full = ny == chunk[0] && nx == chunk[1] && nz == chunk[2];
  const auto* in = static_cast<const char*>(slab) + ((y0 * shape[1] + x0) * shape[2] + z0) * size;
  if (full && nz == shape[2] && (nx == shape[1] || ny == 1)) return in;
  memory->resize(static_cast<size_t>(ChunkBytes()));
  GatherInto(slab, bscans, y0, x0, z0, memory->data());
  return memory->data();
}

void ChunkGrid::GatherInto(const void* slab, int64_t bscans, int64_t y0, int64_t x0, int64_t z0,
                           char* memory) const {
  const int64_t ny = std::min(chunk[0], bscans - y0), nx = std::min(chunk[1], shape[1] - x0),
                nz = std::min(chunk[2], shape[2] - z0);
  const auto* in = static_cast<const char*>(slab) + ((y0 * shape[1] + x0) * shape[2] + z0) * size;
  const bool full = ny == chunk[0] && nx == chunk[1] && nz == chunk[2];
  if (full && nz == shape[2] && (nx == shape[1] || ny == 1)) {
    std::memcpy(memory, in, static_cast<size_t>(ChunkBytes()));
    return;
  }
  if (!full) {
    for (int64_t i = 0; i < ChunkBytes(); i += size)
      std::memcpy(memory + i, fill.bytes.data(), static_cast<size_t>(size));
  }
  for (int64_t y = 0; y < ny; ++y) {
    for (int64_t x = 0; x < nx; ++x) {
      std::memcpy(memory + (y * chunk[1] + x) * chunk[2] * size,
                  in + (y * shape[1] + x) * shape[2] * size, static_cast<size_t>(nz * size));
    }
  }
}

void ChunkGrid::Scatter(const char* bytes, void* slab, int64_t bscans, int64_t y0, int64_t x0,
                        int64_t z0) const {
  const int64_t ny = std::min(chunk[0], bscans - y0), nx = std::min(chunk[1], shape[1] - x0),
                nz = std::min(chunk[2], shape[2] - z0);
  auto* out = static_cast<char*>(slab) + ((y0 * shape[1] + x0) * shape[2] + z0) * size;
  for (int64_t y = 0; y < ny; ++y) {
    for (int64_t x = 0; x < nx; ++x) {
      std::memcpy(out + (y * shape[1] + x) * shape[2] * size,
                  bytes + (y * chunk[1] + x) * chunk[2] * size, static_cast<size_t>(nz * size));
    }
  }
}

}  // namespace octavo::storage

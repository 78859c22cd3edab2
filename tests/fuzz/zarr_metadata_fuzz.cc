// Any text as the metadata of a Zarr array, and as the attributes of a group with OME-Zarr images.
// What is accepted must be consistent, and a chunk of zeros must be read with it or refused.

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

#include "gpu/base/json.h"
#include "server/storage/zarr/ome.h"
#include "tests/fuzz/zarr_support.h"

namespace octavo::storage {
namespace {

using fuzz::Require;
constexpr int64_t kMostBytes = 1 << 16;  // of a chunk that is read here

void CheckChain(const ZarrChain& chain, size_t rank, int64_t element_bytes) {
  Require(chain.shape.size() == rank && chain.stride.size() == rank);
  Require(chain.bytes > 0 && chain.encoded > 0);
  if (chain.shard != nullptr) {
    Require(chain.shard->chunks > 0 && chain.shard->chunks <= 1 << 24);
    int64_t last = 0;
    for (size_t d = 0; d < rank; ++d) {
      Require(chain.shard->grid[d] * chain.shard->inner.shape[d] == chain.shape[d]);
      last += (chain.shard->grid[d] - 1) * chain.stride[d];
    }
    Require(last == chain.shard->chunks - 1);
    CheckChain(chain.shard->inner, rank, element_bytes);
    return;
  }
  int64_t end = element_bytes;  // of the last element
  for (size_t d = 0; d < rank; ++d) end += (chain.shape[d] - 1) * chain.stride[d];
  Require(end == chain.bytes && chain.bytes <= int64_t{1} << 31);
}

void CheckArray(const ZarrMetadata& meta, absl::string_view text) {
  const size_t rank = meta.shape.size();
  Require(rank <= 32 && meta.fill.size() == static_cast<size_t>(meta.element_bytes));
  Require(meta.dimension_names.empty() || meta.dimension_names.size() == rank);
  CheckChain(meta.chain, rank, meta.element_bytes);
  Require(!meta.FileOf(AxisValues(rank, 3)).empty());
  // The index of a shard has as many bytes as the metadata say; nothing of that size is read here.
  const ZarrChain* leaf = &meta.chain;
  for (; leaf->shard != nullptr; leaf = &leaf->shard->inner) {
    if (leaf->shard->chunks > 1 << 10) return;
  }
  if (leaf->bytes > kMostBytes) return;
  AxisValues first(rank, 0), one(rank, 1);
  for (const std::string& file :
       {std::string(static_cast<size_t>(std::min<int64_t>(meta.chain.encoded, kMostBytes)), '\0'),
        std::string(text)})
    fuzz::ReadBox(meta, file, first, one, MissingChunk::kFill);
}

void Run(absl::string_view text) {
  const auto parsed = ParseJson(text, {.bytes = 1 << 16});
  if (!parsed.ok()) return;
  for (const auto& meta : {ParseZarrV3(*parsed), ParseZarrV2(*parsed)}) {
    if (meta.ok())
      CheckArray(*meta, text);
    else
      Require(!meta.status().message().empty());
  }
  const auto image = OmeImage::Parse(*parsed);
  if (!image.ok()) return;
  for (const OmeLevel& level : image->levels)
    Require(level.scale.size() == image->axes.size() &&
            level.translation.size() == image->axes.size() && level.path.find("..") != 0 &&
            level.path[0] != '/');
}

}  // namespace
}  // namespace octavo::storage

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  octavo::storage::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}

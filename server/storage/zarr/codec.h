#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

#include "server/storage/zarr/compression.h"

namespace octavo::storage {

/// The bytes-to-bytes codec of a Zarr chunk to be written (byte_codec.h decodes): none, zstd,
/// gzip or Blosc (frames of libblosc 1).
struct ChunkCodec {
  Codec codec = Codec::kDefault;  // kDefault: none
  int level = 1;
  Shuffle shuffle = Shuffle::kNone;  // of Blosc
  int64_t type_bytes = 1;            // of Blosc

  /// The codec as the metadata of an array of Zarr v3 name it; null for none.
  nlohmann::json ToJson() const;
  /// The same as the "compressor" of Zarr v2.
  nlohmann::json ToJsonV2() const;
};

/// The encoder of one thread; kept between chunks, so that no chunk allocates.
class ChunkCoder {
 public:
  ChunkCoder();
  ~ChunkCoder();
  ChunkCoder(const ChunkCoder&) = delete;

  /// `chunk` encoded; valid until the next call (without a codec: as long as `chunk`).
  absl::StatusOr<absl::string_view> Encode(const ChunkCodec& codec, absl::string_view chunk);

  std::vector<char> chunk;  // for the caller

 private:
  struct Contexts;
  std::unique_ptr<Contexts> contexts_;
  std::string encoded_;
};

}  // namespace octavo::storage

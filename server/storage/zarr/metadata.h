#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "server/storage/zarr/chain.h"

namespace octavo::storage {

enum class ZarrVersion : uint8_t { kV2 = 2, kV3 = 3 };

/// The metadata of a Zarr array: a regular grid of chunks of numbers, bools or raw bytes.
struct ZarrMetadata {
  ZarrVersion version = ZarrVersion::kV3;
  std::string data_type;  // its name in v3: "uint16", "r24"
  int64_t element_bytes = 1;
  bool big_endian = false;
  AxisValues shape;
  ZarrChain chain;                // of a file: chain.shape is the shape of the grid's chunks
  std::string prefix, separator;  // of the names of files: "c" and "/"
  std::string fill;               // an element, in the byte order of the array
  std::vector<std::optional<std::string>> dimension_names;  // empty if there are none
  nlohmann::json attributes = nlohmann::json::object();     // v3

  /// The file of a chunk, below the array's folder.
  std::string FileOf(absl::Span<const int64_t> chunk) const;
};

/// Strict: unknown members cannot be ignored, because they may change the meaning of the voxels.
/// DataLoss: damaged or against the specification; Unimplemented: legal, but not supported. Both
/// begin with the member's name: "shape[1] is 1.5; allowed are integers from 0 to …". v3: members
/// that are not known are refused unless they are objects that say "must_understand": false. v2,
/// whose specification says so: they are ignored. Source:
/// https://zarr-specs.readthedocs.io/en/latest/v3/core, /v2/v2.0
/// v3: transpose, bytes, sharding_indexed (also in shards, four levels deep), then gzip, zstd,
/// blosc and crc32c in any number and order. v2: both orders, the compressors gzip, zlib, zstd,
/// lz4 and blosc, and the filters delta, shuffle, fixedscaleoffset, astype, quantize and packbits.
absl::StatusOr<ZarrMetadata> ParseZarrV3(const nlohmann::json& array);
absl::StatusOr<ZarrMetadata> ParseZarrV2(const nlohmann::json& array);

/// Bytes of an element of the type that v3 calls so; 0 for others.
int64_t ZarrElementBytes(const std::string& data_type);

/// The fill value as an element. Integers are exact and in their range; floats are rounded to the
/// nearest (finite ones must stay finite), or "NaN", "Infinity", "-Infinity", in v3 also the bits
/// as "0x…" with all digits; bool true and false; complex a pair of floats; raw bytes in v3 an
/// array of them, in v2 base64. v2: null is 0, and integers may be written as 3.0.
absl::StatusOr<std::string> ZarrFill(const std::string& data_type, bool big_endian,
                                     const nlohmann::json& fill, ZarrVersion version);

}  // namespace octavo::storage

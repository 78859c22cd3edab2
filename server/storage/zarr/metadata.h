#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "server/storage/zarr/codec.h"

namespace octavo::storage {

/// The metadata of a Zarr array, for the arrays that this reader supports: regular grids in C
/// order, of numbers or bool, with the codec bytes and then at most one of zstd, gzip (v2 also
/// zlib) and Blosc; v3 also in shards with an index at the end.
struct ZarrMetadata {
  std::string data_type;  // its name in v3: "uint16"
  int64_t element_bytes = 1;
  bool big_endian = false;
  std::vector<int64_t> shape, file, chunk;  // of equal length; a file is a chunk or a shard
  bool sharded = false;
  std::string prefix, separator;  // of the names of files: "c" and "/"
  ChunkCodec codec;
  std::array<char, 16> fill{};  // an element, in the byte order of the array
  nlohmann::json attributes = nlohmann::json::object();  // v3
};

/// Strict: unknown members cannot be ignored, because they may change the meaning of the voxels.
/// DataLoss: damaged or against the specification; Unimplemented: legal, but not supported. Both
/// begin with the member's name: "shape[1] is 1.5; allowed are integers from 0 to …". v3: members
/// that are not known are refused unless they are objects that say "must_understand": false. v2,
/// whose specification says so: they are ignored. Source:
/// https://zarr-specs.readthedocs.io/en/latest/v3/core, /v2/v2.0
absl::StatusOr<ZarrMetadata> ParseZarrV3(const nlohmann::json& array);
absl::StatusOr<ZarrMetadata> ParseZarrV2(const nlohmann::json& array);

/// Bytes of an element of the type that v3 calls so; 0 for others.
int64_t ZarrElementBytes(const std::string& data_type);

/// The fill value as an element. Integers are exact and in their range; floats are rounded to the
/// nearest (finite ones must stay finite), or "NaN", "Infinity", "-Infinity", in v3 also the bits
/// as "0x…" with all digits; bool true and false; complex a pair of floats. v2: null is 0, and
/// integers may be written as 3.0.
enum class ZarrVersion : uint8_t { kV2 = 2, kV3 = 3 };
absl::StatusOr<std::array<char, 16>> ZarrFill(const std::string& data_type, bool big_endian,
                                              const nlohmann::json& fill, ZarrVersion version);

}  // namespace octavo::storage

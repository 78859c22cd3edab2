#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "server/storage/zarr/box.h"
#include "server/storage/zarr/byte_codec.h"

namespace octavo::storage {

struct ZarrShard;

/// How the elements of a chunk became bytes. Axes are those of the array at every level: the
/// transpositions are in the strides.
struct ZarrChain {
  /// A codec from bytes to bytes, and the size of what it encodes.
  struct Step {
    ByteCodec codec;
    int64_t decoded = 0;  // bytes, or the most if `exact` is false
    bool exact = true;
  };

  AxisValues shape;   // elements of a chunk
  AxisValues stride;  // between neighbours: bytes, or, of a shard, places in its index
  int64_t bytes = 0;  // of a decoded chunk; of a shard the most that it can have
  std::shared_ptr<const ZarrShard> shard;  // null: the elements themselves
  std::vector<Step> steps;                 // in the order of encoding
  int64_t encoded = 0;                     // bytes, or the most if exact_encoded is false
  bool exact_encoded = true;

  /// Whether a range of the file is the elements, as they are.
  bool IsRaw() const { return shard == nullptr && steps.empty(); }
  /// Whether the parts of a shard can be read by themselves.
  bool IsOpenShard() const { return shard != nullptr && steps.empty(); }
};

/// The codec sharding_indexed: chunks and an index of them in one file, or in a part of one.
struct ZarrShard {
  ZarrChain inner;
  AxisValues grid;  // inner chunks along each axis
  int64_t chunks = 1;
  bool index_at_start = false, index_big_endian = false;
  int index_checksums = 0;  // CRC-32Cs behind the index, each over what is before it

  int64_t IndexBytes() const { return 16 * chunks + 4 * index_checksums; }
};

}  // namespace octavo::storage

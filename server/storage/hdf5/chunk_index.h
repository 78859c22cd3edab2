#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace octavo::storage {

/// A chunk of an HDF5 dataset, as the file tells.
struct ChunkPlace {
  int64_t offset[3] = {};  // of its first number, in numbers along each dimension of the dataset
  int64_t address = 0;     // of its first byte in the file
  int64_t bytes = 0;       // that are stored
};

/// Reads where the chunks of a dataset lie from the file itself. The library (1.10) finds one chunk
/// after the other, each by a walk over all of them: a scan of a thousand chunks would take a
/// second, one of fifty thousand most of an hour.
///
/// Of files as the library writes them by default: object header version 1, layout message version
/// 3, chunks in a version 1 B-tree ("HDF5 File Format Specification Version 3.0", sections
/// IV.A.1.a, IV.A.2.i and III.A.1). Unimplemented for others: the library has to be asked. DataLoss
/// if the tree is damaged; OutOfRange if it has more than `most` chunks.
///
/// fd: the whole file, with addresses and lengths of 8 bytes. header: address of the dataset's
/// object header, as the library tells it. base: bytes of the user block, from whose end the
/// library's addresses count. The library may have written nothing that is not in the file yet.
absl::StatusOr<std::vector<ChunkPlace>> ReadChunkIndex(int fd, int64_t header, int rank,
                                                       int64_t most, int64_t base = 0);

}  // namespace octavo::storage

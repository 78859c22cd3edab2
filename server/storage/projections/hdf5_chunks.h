#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "gpu/base/unique_fd.h"
#include "server/storage/hdf5/hdf5_dataset.h"
#include "server/storage/projections/hdf5_filters.h"
#include "server/storage/projections/internal.h"
#include "server/storage/zarr/byte_codec.h"

namespace octavo::storage {

/// Whether the dataset's numbers have the format of `type` bit by bit: no unused bits, no other
/// floating point. With the library's lock held.
bool IsUsualFormat(hid_t dataset, const StoredType& type);

/// Frames in chunks, decoded outside of the library: it would decode one chunk at a time for the
/// whole program. The library only finds the chunk and reads its bytes, under its lock.
class Hdf5Chunks {
 public:
  /// Null for data that the library must read: whose chunks are larger than 64 MiB, or pass other
  /// filters than those that are decoded here, or hold numbers of other formats than the usual
  /// ones; and where there are no chunks. Data that pass a filter of hdf5_filters.h the library
  /// cannot read: the same is then an error, BAD_PROJECTIONS, but chunks may have 256 MiB. With the
  /// library's lock held. `dataset` must outlive it; it is called `name` in the file `path`.
  /// `file`: where the addresses of its chunks count; none = elsewhere.
  static absl::StatusOr<std::unique_ptr<Hdf5Chunks>> Of(const std::string& path,
                                                        const std::string& name,
                                                        const Hdf5Dataset& dataset,
                                                        const StoredType& type, int rank,
                                                        UniqueFd file);

  /// Whether a box of so many frames is to be read so. It decodes each chunk that it touches, and
  /// another box decodes it again, where the library would keep it.
  bool Suits(int64_t frames) const { return only_way_ || 2 * frames >= extent_[0]; }

  /// Reads a box of frames, packed. Takes the library's lock for each chunk that passes a filter.
  /// DataLoss: a chunk is damaged.
  absl::Status Read(const int64_t start[3], const int64_t count[3], DType dtype, char* out) const;
  /// Decodes those chunks of a box that were not decoded yet, for a box that the library is to
  /// read: it would inflate a few damaged bytes to any length. DataLoss: a chunk is damaged.
  absl::Status Check(const int64_t start[3], const int64_t count[3]) const;

 private:
  Hdf5Chunks(const Hdf5Dataset& dataset, const StoredType& type, int rank, UniqueFd file)
      : dataset_(dataset), type_(type), rank_(rank), file_(std::move(file)) {}
  /// A step of the pipeline.
  using Filter = std::variant<ByteCodec, Hdf5Lz4, Hdf5Bitshuffle>;
  /// The decoders of one read.
  struct Decoders {
    ByteDecoder bytes;
    Hdf5FilterDecoder filters;
  };
  class Finder;
  /// Calls take(at) for the chunks of a box; `at` counts chunks.
  template <class Take>
  absl::Status ForChunks(const int64_t start[3], const int64_t count[3], const Take& take) const;
  int64_t IndexOf(const int64_t at[3]) const {
    return (at[0] * chunks_[1] + at[1]) * chunks_[2] + at[2];
  }
  absl::Status ReadChunk(const int64_t at[3], Decoders& decoders, std::vector<char>* raw,
                         std::vector<char>* other) const;
  absl::Status ReadRaw(const int64_t at[3], std::vector<char>* raw, uint32_t* skipped) const;
  absl::Status Decode(Decoders& decoders, uint32_t skipped, std::vector<char>* raw,
                      std::vector<char>* other) const;
  /// Of one read: what was read, what it is decoded to, and a block of the other filters.
  int64_t memory() const { return (filters_.empty() ? 1 : only_way_ ? 4 : 3) * bytes(); }
  int64_t bytes() const { return extent_[0] * extent_[1] * extent_[2] * type_.bytes; }

  const Hdf5Dataset& dataset_;
  const StoredType type_;
  const int rank_;
  int64_t extent_[3] = {1, 1, 1};
  std::vector<Filter> filters_;    // in the order of writing
  bool only_way_ = false;          // the library cannot read the data
  int64_t chunks_[3] = {1, 1, 1};  // how many
  // Of chunks without a filter, which are read past the library: the file, and where each begins.
  const UniqueFd file_;
  std::vector<int64_t> addresses_;
  mutable Mutex mutex_;
  mutable std::vector<bool> checked_ ABSL_GUARDED_BY(mutex_);  // of each chunk; empty: none
};

}  // namespace octavo::storage

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"

#include "server/storage/hdf5/hdf5_dataset.h"
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
  /// filters than deflate and shuffle, or hold other numbers than whole ones of the usual formats;
  /// and where there are no chunks. With the library's lock held. `dataset` must outlive it.
  static std::unique_ptr<Hdf5Chunks> Of(const Hdf5Dataset& dataset, const StoredType& type,
                                        int rank);

  /// Whether a box of so many frames is read faster so: it decodes each chunk that it touches, and
  /// another box decodes it again.
  bool Suits(int64_t frames) const { return 2 * frames >= extent_[0]; }

  /// Reads a box of frames, packed. Takes the library's lock for each chunk. DataLoss: the library
  /// may know better, and has a reason to tell.
  absl::Status Read(const int64_t start[3], const int64_t count[3], DType dtype, char* out) const;

 private:
  Hdf5Chunks(const Hdf5Dataset& dataset, const StoredType& type, int rank)
      : dataset_(dataset), type_(type), rank_(rank) {}
  absl::Status ReadRaw(const int64_t first[3], std::vector<char>* raw, uint32_t* skipped) const;
  absl::Status Decode(ByteDecoder& decoder, uint32_t skipped, std::vector<char>* raw,
                      std::vector<char>* other) const;
  int64_t bytes() const { return extent_[0] * extent_[1] * extent_[2] * type_.bytes; }

  const Hdf5Dataset& dataset_;
  const StoredType type_;
  const int rank_;
  int64_t extent_[3] = {1, 1, 1};
  std::vector<ByteCodec> codecs_;  // in the order of writing
};

}  // namespace octavo::storage

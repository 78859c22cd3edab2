#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tbb/enumerable_thread_specific.h"

#include "server/storage/zarr/codec.h"
#include "server/storage/zarr/metadata.h"

namespace octavo::storage {

/// One Zarr array in a folder, of v3 or v2 (metadata.h lists the supported parts). It appears with
/// 3 axes: an array with fewer gets leading axes; one with more is allowed if those before the last
/// three have extent 1. Thread-safe.
class ZarrArrayReader {
 public:
  enum class MissingChunk { kFill, kDamage };  // the value of a missing chunk

  /// Folders, by their real paths, that must contain every file read, also through links; empty =
  /// anywhere.
  using Roots = std::vector<std::string>;

  /// Reads `path`/zarr.json or `path`/.zarray. NotFound if there is neither; DataLoss for damaged
  /// ones; Unimplemented names the unsupported part; PermissionDenied for files outside of the
  /// roots.
  static absl::StatusOr<std::unique_ptr<ZarrArrayReader>> Open(const std::string& path,
                                                               MissingChunk missing, Roots roots);
  /// Reads JSON. DataLoss; PermissionDenied.
  static absl::StatusOr<nlohmann::json> ReadJson(const std::string& path, const Roots& roots);

  const int64_t* shape() const { return shape_; }
  int64_t rank() const { return std::ssize(meta_.shape); }          // of the stored array
  const std::string& data_type() const { return meta_.data_type; }  // its name in v3: "uint16"
  bool big_endian() const { return meta_.big_endian; }  // of the elements that Read returns
  int64_t element_bytes() const { return size_; }
  // Elements per file, which is a chunk or a shard.
  const int64_t* file_shape() const { return file_; }
  const nlohmann::json& attributes() const { return meta_.attributes; }

  /// Reads a box within the array, packed, elements as stored; files are decoded in parallel in the
  /// caller's oneTBB arena. DataLoss names the file; PermissionDenied as Open.
  absl::Status Read(const int64_t start[3], const int64_t count[3], void* out) const;

 private:
  struct Scratch {
    ChunkCoder coder;
    std::vector<char> encoded;
  };
  struct Box;
  ZarrArrayReader() = default;
  absl::Status SetExtents();
  std::string FileOf(const int64_t at[3]) const;
  absl::Status ReadFile(const int64_t at[3], const Box& box) const;
  absl::Status ReadChunk(int fd, const std::string& path, int64_t offset, int64_t bytes,
                         const int64_t begin[3], const Box& box) const;
  void Fill(const int64_t begin[3], const int64_t extent[3], const Box& box) const;
  template <class Copy>
  static void Intersect(const int64_t begin[3], const int64_t extent[3], const Box& box,
                        const Copy& copy);

  std::string path_;
  Roots roots_;
  ZarrMetadata meta_;
  int64_t shape_[3] = {1, 1, 1}, file_[3] = {1, 1, 1}, chunk_[3] = {1, 1, 1};
  int64_t size_ = 1;
  MissingChunk missing_ = MissingChunk::kDamage;
  mutable tbb::enumerable_thread_specific<Scratch> scratch_;
};

}  // namespace octavo::storage

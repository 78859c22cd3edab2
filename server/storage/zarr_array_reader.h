#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tbb/enumerable_thread_specific.h"

#include "server/storage/chunk_codec.h"

namespace octavo::storage {

/// One Zarr array in a folder: v3 (regular grid; the codec bytes, then at most one of zstd, gzip, Blosc; also sharding_indexed) or v2 (C order,
/// no filters; zstd, gzip, zlib, Blosc). It is seen with 3 axes: fewer get leading ones, more are allowed where those before the last
/// three have extent 1. Thread-safe.
class ZarrArrayReader {
 public:
  enum class MissingChunk { kFill, kDamage };  // what a chunk means that is not there

  /// Folders, by their real paths, that all which is read must lie in, wherever links lead; empty = anywhere.
  using Roots = std::vector<std::string>;

  /// Reads `path`/zarr.json or `path`/.zarray. NotFound if there is neither; DataLoss for damaged ones; Unimplemented names what is not read;
  /// PermissionDenied for what lies outside of the roots.
  static absl::StatusOr<std::unique_ptr<ZarrArrayReader>> Open(const std::string& path, MissingChunk missing, Roots roots);
  /// Reads JSON. DataLoss; PermissionDenied.
  static absl::StatusOr<nlohmann::json> ReadJson(const std::string& path, const Roots& roots);

  const int64_t* shape() const { return shape_; }
  int64_t rank() const { return rank_; }                       // as stored
  const std::string& data_type() const { return data_type_; }  // as v3 calls it: "uint16"
  bool big_endian() const { return big_endian_; }              // the elements that Read gives
  int64_t element_bytes() const { return size_; }
  const int64_t* file_shape() const { return file_; }  // elements of a file: a chunk or a shard
  const nlohmann::json& attributes() const { return attributes_; }

  /// Reads a box that is inside, packed, elements as stored; files are decoded in parallel in the caller's oneTBB arena. DataLoss names the file;
  /// PermissionDenied as Open.
  absl::Status Read(const int64_t start[3], const int64_t count[3], void* out) const;

 private:
  struct Scratch {
    ChunkCoder coder;
    std::vector<char> encoded;
  };
  struct Box;
  ZarrArrayReader() = default;
  absl::Status ParseV3(const nlohmann::json& array);
  absl::Status ParseV2(const nlohmann::json& array);
  absl::Status SetShape(const nlohmann::json& shape, const nlohmann::json& file, const nlohmann::json& chunk);
  absl::Status SetCodecs(const nlohmann::json& codecs);
  void SetFill(const nlohmann::json& fill);
  std::string FileOf(const int64_t at[3]) const;
  absl::Status ReadFile(const int64_t at[3], const Box& box) const;
  absl::Status ReadChunk(int fd, const std::string& path, int64_t offset, int64_t bytes, const int64_t begin[3], const Box& box) const;
  void Fill(const int64_t begin[3], const int64_t extent[3], const Box& box) const;
  template <class Copy>
  static void Intersect(const int64_t begin[3], const int64_t extent[3], const Box& box, const Copy& copy);

  std::string path_, data_type_, prefix_, separator_;
  Roots roots_;
  nlohmann::json attributes_;
  int64_t rank_ = 0, shape_[3] = {1, 1, 1}, file_[3] = {1, 1, 1}, chunk_[3] = {1, 1, 1};
  int64_t size_ = 1;
  bool big_endian_ = false, sharded_ = false;
  MissingChunk missing_ = MissingChunk::kDamage;
  ChunkCodec codec_;
  std::array<char, 16> fill_{};
  mutable tbb::enumerable_thread_specific<Scratch> scratch_;
};

}  // namespace octavo::storage

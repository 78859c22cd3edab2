#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "tbb/enumerable_thread_specific.h"

#include "server/storage/formats/format_writers.h"
#include "server/storage/zarr/codec.h"
#include "server/storage/zarr/grid.h"

namespace octavo::storage {

/// One Zarr array below a writer's path: of v3, or of v2 for OME-Zarr 0.4. Chunks, or (v3) shards
/// of chunks (sharding_indexed), are encoded in parallel as slabs of B-scans come; every chunk is
/// written, also one that holds only the fill value.
class ZarrArray {
 public:
  /// `name`: its directory below `writer`'s; `shape`: its own, of the type and along the axes of
  /// the volume. `writer` must outlive it. `wide`: slabs are of several rows of files where one has
  /// too few for all threads.
  ZarrArray(FileListWriter* writer, std::string name, const int64_t* shape, const VolumeMeta& meta,
            const WriterOptions& options, bool wide);

  const int64_t* shape() const { return grid_.shape; }
  int64_t SlabBscans() const { return slab_rows_ * file_shape_[0]; }
  /// Makes its directories.
  absl::Status Start();
  /// As VolumeWriter's. Runs in the caller's oneTBB arena.
  absl::Status WriteSlab(int64_t y_begin, int64_t bscans, const void* data);
  /// Writes its metadata. Call after all slabs.
  absl::Status Finish();
  /// fsync of its directories, from the leaves up: an entry must be durable before the directory
  /// that refers to it.
  absl::Status SyncDirectories();

 private:
  absl::StatusOr<absl::string_view> Encode(const void* slab, int64_t bscans, int64_t y0, int64_t x0,
                                           int64_t z0);
  absl::Status WriteFile(const void* slab, int64_t bscans, int64_t fy, int64_t fx, int64_t fz);
  nlohmann::json ChunkCodecs() const;
  nlohmann::json Metadata() const;
  nlohmann::json MetadataV2() const;
  std::string Path() const;
  std::string ChunkPath() const;  // of the folder that has the chunks

  FileListWriter* const writer_;
  const std::string name_;
  const DType dtype_;
  const std::array<std::string, 3> axes_;
  const ChunkCodec codec_;
  const bool v2_, sharded_;
  ChunkGrid grid_;
  int64_t file_shape_[3], inner_[3];  // voxels of a file (chunk or shard); chunks in it
  int64_t slab_rows_ = 1;             // files along y in a slab
  tbb::enumerable_thread_specific<ChunkCoder> coders_;
  int64_t next_y_ = 0;
};

}  // namespace octavo::storage

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/storage/volume_meta.h"

namespace octavo::storage {

enum class Format : uint8_t { kOmeZarr05 = 1, kNpy = 2 };  // values equal octavo.v1.Format

struct WriterOptions {
  Format format = Format::kOmeZarr05;
  int64_t chunk[3] = {0, 0, 0};   // voxels [y, x, z]; 0 = chosen (about 1 MiB)
  int64_t shard[3] = {0, 0, 0};   // voxels; 0 = no shards; multiples of chunk
  int zstd_level = 1;             // 1 ... 19
  bool compress = true;
  int threads = 0;                // encoders; 0 = one per core
};

/// Fills in what was left to choose and checks the rest against the volume. InvalidArgument names the field
/// ("options.chunk", "options.shard", "options.zstd_level").
absl::StatusOr<WriterOptions> ResolveOptions(const WriterOptions& options, const VolumeMeta& meta);

/// Writes one volume into files below a path that does not exist yet (a temporary name: StagedPath renames it). Slabs
/// come in order of y; each is whole B-scans. One thread calls; encoding and writing run in parallel inside.
class VolumeWriter {
 public:
  virtual ~VolumeWriter() = default;
  /// B-scans per WriteSlab call this writer wants (the last slab may be shorter): whole chunks (shards) along y.
  virtual int64_t SlabBscans() const = 0;
  /// Encodes and writes B-scans [y_begin, y_begin + bscans) at `data`; returns when `data` may be reused.
  virtual absl::Status WriteSlab(int64_t y_begin, int64_t bscans, const void* data) = 0;
  /// Writes the metadata last and makes every file and directory below the path durable (fsync).
  virtual absl::Status Finish() = 0;
  /// Bytes written to disk so far. Any thread.
  virtual int64_t DiskBytes() const = 0;
};

/// Opens a writer for `path` (created here). Errors: InvalidArgument (options), ResourceExhausted (no space),
/// PermissionDenied, Internal (I/O error) with path and errno text.
absl::StatusOr<std::unique_ptr<VolumeWriter>> MakeWriter(const std::string& path, const VolumeMeta& meta,
                                                         const WriterOptions& resolved_options);

/// File name ending of a format: ".ome.zarr", ".npy".
const char* Extension(Format format);

/// Status for a failed system call: ENOSPC, EDQUOT → ResourceExhausted (DISK_FULL); EACCES, EPERM, EROFS →
/// PermissionDenied (READ_ONLY); EEXIST → AlreadyExists; ENOENT → NotFound; else Internal (IO_ERROR).
absl::Status ErrnoStatus(int error, const std::string& doing, const std::string& path);

}  // namespace octavo::storage

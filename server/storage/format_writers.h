#pragma once

// Private to server/storage: the writers behind MakeWriter.

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/storage/manifest.h"
#include "server/storage/writer.h"

namespace octavo::storage {

/// A writer that keeps account of its files.
class FileListWriter : public VolumeWriter {
 public:
  int64_t DiskBytes() const override { return disk_bytes_.load(); }
  /// The files written so far. After Finish.
  std::vector<Manifest::File> Files();

 protected:
  explicit FileListWriter(std::string path) : path_(std::move(path)) {}
  /// Creates `relative` below the path with these bytes and lists it. Any thread.
  absl::Status WriteListed(const std::string& relative, const void* data, size_t bytes);
  void List(Manifest::File file);
  /// fdatasync of every listed file.
  absl::Status SyncListed();
  const std::string path_;
  std::atomic<int64_t> disk_bytes_{0};

 private:
  Mutex mutex_;
  std::vector<Manifest::File> files_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<std::unique_ptr<VolumeWriter>> MakeZarrWriter(const std::string& path, const VolumeMeta& meta, const WriterOptions& options);
absl::StatusOr<std::unique_ptr<VolumeWriter>> MakeNpyWriter(const std::string& path, const VolumeMeta& meta);

/// Names of the files inside an .npy commit's temporary directory.
inline constexpr char kNpyData[] = "data.npy", kNpyMeta[] = "data.json";

}  // namespace octavo::storage

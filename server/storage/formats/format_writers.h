#pragma once

// Private to this folder/formats: the writers behind MakeWriter.

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "server/storage/formats/manifest.h"
#include "server/storage/formats/writer.h"
#include "server/storage/io/write_queue.h"

namespace octavo::storage {

/// A writer that records its files.
class FileListWriter : public VolumeWriter {
 public:
  int64_t DiskBytes() const override { return disk_bytes_.load(); }
  /// As SlabBscans, where there is no memory for as many: the files are the same, but written more
  /// slowly.
  virtual int64_t LeastSlabBscans() const { return SlabBscans(); }
  /// Before Finish: what the files say of the volume, in place of what the writer was made with.
  /// Its shape, type, axes and spacing are the same. Internal if the format has it in a head
  /// already (DescribesLast).
  virtual absl::Status Describe(const VolumeMeta& meta) = 0;
  /// The files written so far. After Finish.
  std::vector<Manifest::File> Files();

  /// One file being written from front to back; listed when closed.
  class Output {
   public:
    /// The bytes are copied; the queue writes them later.
    absl::Status Append(const void* data, size_t bytes);
    /// Queues the rest, and lists the file.
    absl::Status Close();
    int64_t bytes() const { return listed_.bytes; }

   private:
    friend class FileListWriter;
    absl::Status Flush();

    FileListWriter* writer_ = nullptr;
    std::shared_ptr<OutputFile> file_;
    int64_t expected_ = 0;  // bytes of the file; 0: more than fit into a block
    WriteQueue::Block block_;
    int64_t filled_ = 0;  // bytes of the block
    Manifest::File listed_;
  };

  const std::string& path() const { return path_; }
  /// Creates `relative` below the path. `bytes`: its size, if that is known. Any thread.
  absl::StatusOr<Output> Create(const std::string& relative, int64_t bytes = 0);
  /// Creates, appends and closes.
  absl::Status WriteListed(const std::string& relative, const void* data, size_t bytes);
  /// The same, without a copy: `make` puts the bytes where they are written from.
  absl::Status WriteMade(const std::string& relative, int64_t bytes,
                         const std::function<void(char*)>& make);
  void List(Manifest::File file);
  /// Waits until every file is written; then fdatasync of every listed one.
  absl::Status SyncListed();

 protected:
  explicit FileListWriter(std::string path) : path_(std::move(path)) {}

  const std::string path_;
  std::atomic<int64_t> disk_bytes_{0};
  /// Writes the files. Gone before what it counts in, after the files of derived writers.
  WriteQueue queue_{&disk_bytes_};

 private:
  Mutex mutex_;
  std::vector<Manifest::File> files_ ABSL_GUARDED_BY(mutex_);
};

/// Files, and pieces of HDF5 datasets, of fewer bytes go through the page cache: making them takes
/// longer than the copy. Also the least object that HDF5 aligns, so another value lays its files
/// out anew.
inline constexpr int64_t kLeastDirectBytes = 256 << 10;

/// Runs `sync(i)` for i in [0, count) on a few threads, because a sync waits and does not compute;
/// journalling file systems then combine several syncs into one commit. Returns the first error, if
/// any.
absl::Status SyncMany(size_t count, const std::function<absl::Status(size_t)>& sync);

// The writers of the formats, for options that are resolved.
absl::StatusOr<std::unique_ptr<FileListWriter>> MakeZarrWriter(const std::string& path,
                                                               const VolumeMeta& meta,
                                                               const WriterOptions& options);
absl::StatusOr<std::unique_ptr<FileListWriter>> MakeFlatWriter(
    const std::string& path, const VolumeMeta& meta,
    const WriterOptions& options);  // .npy, .bin
absl::StatusOr<std::unique_ptr<FileListWriter>> MakeNrrdWriter(const std::string& path,
                                                               const VolumeMeta& meta,
                                                               const WriterOptions& options);
absl::StatusOr<std::unique_ptr<FileListWriter>> MakeNiftiWriter(const std::string& path,
                                                                const VolumeMeta& meta,
                                                                const WriterOptions& options);
absl::StatusOr<std::unique_ptr<FileListWriter>> MakeTiffWriter(const std::string& path,
                                                               const VolumeMeta& meta,
                                                               const WriterOptions& options);
absl::StatusOr<std::unique_ptr<FileListWriter>> MakeTiffStackWriter(const std::string& path,
                                                                    const VolumeMeta& meta,
                                                                    const WriterOptions& options);
absl::StatusOr<std::unique_ptr<FileListWriter>> MakeMatlabWriter(const std::string& path,
                                                                 const VolumeMeta& meta,
                                                                 const WriterOptions& options);
absl::StatusOr<std::unique_ptr<FileListWriter>> MakeHdf5Writer(const std::string& path,
                                                               const VolumeMeta& meta,
                                                               const WriterOptions& options);
/// MakeWriter, as the commit needs it. `path` is an empty folder.
absl::StatusOr<std::unique_ptr<FileListWriter>> MakeFileListWriter(const std::string& path,
                                                                   const VolumeMeta& meta,
                                                                   const WriterOptions& options);

/// Threads for a oneTBB arena; -1 = as many as there are.
inline int ArenaThreads(const WriterOptions& options) {
  return options.threads > 0 ? options.threads : -1;
}

/// Names of the files inside the temporary directory of a format of one file: the file, and the
/// metadata that go beside it.
inline constexpr char kDataFile[] = "data", kMetaFile[] = "data.json";

/// Most bytes of the voxels in a MATLAB v5 file: sizes there are 32-bit, and MATLAB reads variables
/// below 2^31 bytes.
inline constexpr int64_t kMatlabMaxBytes = (int64_t{1} << 31) - (1 << 16);

}  // namespace octavo::storage

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tbb/task_arena.h"

#include "server/storage/formats/format_writers.h"

namespace octavo::storage {

/// A writer that checks the order of the slabs and processes them in its own arena.
class SlabWriter : public FileListWriter {
 public:
  SlabWriter(std::string path, const VolumeMeta& meta, const WriterOptions& options)
      : FileListWriter(std::move(path)),
        meta_(meta),
        options_(options),
        arena_(ArenaThreads(options)) {}
  /// Slabs of about 8 MiB.
  int64_t SlabBscans() const override;
  absl::Status WriteSlab(int64_t y_begin, int64_t bscans, const void* data) final;
  absl::Status Describe(const VolumeMeta& meta) final;

 protected:
  /// Writes B-scans [y_begin, y_begin + bscans), which are the next. Runs in the writer's arena.
  virtual absl::Status Slab(int64_t y_begin, int64_t bscans, const char* data) = 0;
  /// Metadata that this format adds to those of the volume.
  virtual void AddTo(nlohmann::json*) const {}

  int64_t PlaneVoxels() const { return meta_.shape[1] * meta_.shape[2]; }
  int64_t PlaneBytes() const { return PlaneVoxels() * SizeOf(meta_.dtype); }
  int64_t VolumeBytes() const { return meta_.shape[0] * PlaneBytes(); }
  /// B-scans that make about `bytes`, at least one.
  int64_t BscansOf(int64_t bytes) const;

  VolumeMeta meta_;
  const WriterOptions options_;
  tbb::task_arena arena_;

 private:
  int64_t next_y_ = 0;
};

/// A writer of a format that is one file: `data`, and beside it `data.json` with all metadata and
/// the file's size and CRC, which prove that an interrupted commit is complete. Derived classes
/// turn slabs into bytes.
class SingleFileWriter : public SlabWriter {
 public:
  using SlabWriter::SlabWriter;
  absl::Status Finish() final;

 protected:
  /// Completes the file and closes it. Runs in the writer's arena.
  virtual absl::StatusOr<Manifest::File> Complete() = 0;

  const std::string data_path_ = absl::StrCat(path_, "/", kDataFile);
};

/// A single file whose bytes come in order: a head of a size known from the start, written last
/// because it may describe the rest; then the appended bytes. Or, between, rows that grow side by
/// side (an array stored with another axis outermost than the one that slabs come along). The CRC
/// is kept along the way: nothing is read again.
class StreamedFileWriter : public SingleFileWriter {
 public:
  using SingleFileWriter::SingleFileWriter;

 protected:
  /// Creates the file. `body_bytes` > 0: reserves this much room after the head, so that a full
  /// disk is detected before any data moves.
  absl::Status Open(int64_t head_bytes, int64_t body_bytes);
  /// Adds bytes at the end, large pieces in parallel. They are copied; the queue writes them later.
  absl::Status Append(const void* data, int64_t bytes);
  /// Opens `count` rows of `bytes` each at the end, with `between` between two of them.
  absl::Status BeginRows(int64_t count, int64_t bytes, const std::string& between);
  /// Continues rows [first, first + count) by `bytes` each: `fill` puts them at the given places.
  /// Any thread, but one at a time for a row.
  absl::Status AppendToRows(int64_t first, int64_t count, int64_t bytes,
                            const std::function<void(char* const* places)>& fill);
  /// After this, Append again. All rows must be full.
  absl::Status EndRows();
  /// Offset in the file of the next Append.
  int64_t position() const { return at_; }

  /// Appends the part after the voxels and returns the head, of the size given to Open.
  virtual absl::StatusOr<std::string> Head() = 0;

 private:
  absl::StatusOr<Manifest::File> Complete() final;
  /// Bytes of the file that wait for the rest of their block, or are its last ones.
  struct Tail {
    WriteQueue::Block block;        // of the bytes from a multiple of WriteQueue::kBlockBytes on
    int64_t begin = 0, filled = 0;  // in the block
  };
  absl::Status Flush(Tail tail, int64_t block_at);

  struct Row {
    int64_t done = 0;
    uint32_t crc = 0;
    /// Its last bytes, less than a page, which the next ones complete.
    std::string rest;
  };
  std::shared_ptr<OutputFile> file_;
  int64_t head_bytes_ = 0, at_ = 0;
  uint32_t body_crc_ = 0;
  Tail tail_;
  std::vector<Row> rows_;
  int64_t rows_at_ = 0, row_bytes_ = 0;
  std::string between_;
};

/// Creates the writer and starts it.
template <class Writer>
absl::StatusOr<std::unique_ptr<FileListWriter>> Started(const std::string& path,
                                                        const VolumeMeta& meta,
                                                        const WriterOptions& options) {
  auto writer = std::make_unique<Writer>(path, meta, options);
  if (absl::Status status = writer->Start(); !status.ok()) return status;
  return writer;
}

/// Appends numbers of a fixed width in little-endian order, the order of every format here and of
/// this machine.
template <class T>
void Put(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace octavo::storage

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <hdf5.h>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/unique_fd.h"
#include "server/storage/formats/manifest.h"
#include "server/storage/io/write_queue.h"

namespace octavo::storage {

/// A file that the HDF5 library makes and a queue writes: a driver of the library. Large pieces of
/// datasets are queued with their CRC, so that only the rest of the file is read again for its own;
/// everything else is written at once. After the first error, and once it is given up, it writes
/// nothing and tells the library that all is well: a file that the library cannot close stays open,
/// with its room on the disk, until the process ends. Used under the library's lock, unless told
/// otherwise.
class Hdf5Output {
 public:
  /// `written` grows by what is not queued. Both must outlive the file.
  Hdf5Output(WriteQueue* queue, std::atomic<int64_t>* written) : queue_(queue), written_(written) {}
  /// Lets the one file that is created with this list of access properties be written by it.
  bool Use(hid_t access);
  /// A chunk of the dataset: memory that the queue writes from, and the CRC of its content.
  struct Chunk {
    WriteQueue::Block block;
    int64_t bytes = 0;
    uint32_t crc = 0;
  };
  /// Makes one: `make` puts the bytes into it. Without the lock, any thread.
  Chunk MakeChunk(int64_t bytes, const std::function<void(char*)>& make);
  /// What the library writes from this chunk's memory next is queued as it is, without a copy,
  /// where its place in the file allows that.
  void Lend(Chunk chunk) { lent_ = std::move(chunk); }
  /// Gives the open file room for all that it is going to have, or a little more. As
  /// OutputFile::Reserve; what is not used is cut off when the library closes the file.
  absl::Status Reserve(int64_t bytes);
  /// The file is not wanted any more: closing it waits for nothing.
  void GiveUp() { given_up_ = true; }
  /// Why the driver failed; OK if the library failed by itself. To be asked after a close, too,
  /// which never fails by the driver.
  const absl::Status& status() const { return status_; }
  /// Size and CRC, once the library has closed the file and the queue is drained. Without the lock.
  absl::StatusOr<Manifest::File> Describe(const std::string& path) const;

 private:
  struct Driver;  // what the library knows of the file
  friend struct Driver;
  struct Part {
    int64_t bytes;
    uint32_t crc;
  };
  static hid_t DriverId();
  absl::Status Create(const char* path);
  absl::Status Read(int64_t offset, int64_t bytes, char* out);
  absl::Status Write(bool of_dataset, int64_t offset, int64_t bytes, const char* data);
  absl::Status Truncate(int64_t bytes, bool closes);
  /// Whether nothing is written any more.
  bool IsOver() const { return given_up_ || !status_.ok(); }
  /// Forgets the parts that this range overwrites, once they are written.
  absl::Status ForgetParts(int64_t offset, int64_t bytes);
  void Close() { file_ = nullptr; }
  /// -1 for the library if it is an error, which is kept.
  herr_t Kept(absl::Status status);

  WriteQueue* const queue_;
  std::atomic<int64_t>* const written_;
  std::shared_ptr<OutputFile> file_;
  UniqueFd readable_;
  std::map<int64_t, Part> parts_;  // queued, by their offset
  Chunk lent_;
  bool given_up_ = false;
  int64_t end_ = 0;       // of the file, as the library knows it
  int64_t reserved_ = 0;  // its size until it is closed; 0: end_
  absl::Status status_;
};

}  // namespace octavo::storage

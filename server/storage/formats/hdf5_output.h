#pragma once

#include <atomic>
#include <cstdint>
#include <hdf5.h>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/unique_fd.h"
#include "server/storage/formats/manifest.h"
#include "server/storage/io/write_queue.h"

namespace octavo::storage {

/// A file that the HDF5 library makes and a queue writes: a driver of the library. Large pieces of
/// datasets are copied and queued with their CRC, so that only the rest of the file is read again
/// for its own; everything else is written at once. Used under the library's lock.
class Hdf5Output {
 public:
  /// `written` grows by what is not queued. Both must outlive the file.
  Hdf5Output(WriteQueue* queue, std::atomic<int64_t>* written) : queue_(queue), written_(written) {}
  /// Lets the one file that is created with this list of access properties be written by it.
  bool Use(hid_t access);
  /// Why the driver failed; OK if the library failed by itself.
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
  absl::Status Truncate(int64_t bytes);
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
  int64_t end_ = 0;                // of the file
  absl::Status status_;
};

}  // namespace octavo::storage

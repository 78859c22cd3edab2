#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/storage/direct/data_file.h"

namespace octavo::storage {

/// A file below a storage root that measurements read.
class ProbeFile {
 public:
  static constexpr int64_t kLeastBytes = 16 << 20;

  /// Writes a file of random bytes below `root`, which has no name, so that nothing is left of it
  /// whenever the process ends. Where the server may not write, a file of the root of at least
  /// kLeastBytes is taken. Not larger than `bytes`; smaller, from kLeastBytes on, if writing takes
  /// longer than `patience`. `go_on` is asked now and then, its error ends the writing.
  /// ResourceExhausted (DISK_FULL); NotFound (NO_FILE): there is no such root, or no such file in
  /// it; else as ErrnoStatus.
  static absl::StatusOr<std::unique_ptr<ProbeFile>> Make(
      const std::string& root, int64_t bytes, std::chrono::milliseconds patience,
      const std::function<absl::Status()>& go_on);

  const std::shared_ptr<DataFile>& file() const { return file_; }
  int64_t bytes() const { return bytes_; }
  /// The sum64 digest of its first `bytes` bytes, read through the page cache.
  absl::StatusOr<uint64_t> Digest(int64_t bytes) const;
  /// Removes it from the page cache, as far as the kernel does.
  void Evict() const;

 private:
  ProbeFile(std::shared_ptr<DataFile> file, int64_t bytes)
      : file_(std::move(file)), bytes_(bytes) {}
  const std::shared_ptr<DataFile> file_;
  const int64_t bytes_;
};

}  // namespace octavo::storage

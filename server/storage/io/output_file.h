#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "gpu/base/unique_fd.h"

namespace octavo::storage {

/// An open file whose parts are written past the page cache, where its file system takes that, else
/// through it. Thread-safe for parts that do not overlap. Nothing is durable before a sync.
class OutputFile {
 public:
  /// Parts that begin and end at multiples of it go past the page cache as a whole: of
  /// kDirectAlignment and of a page, which must not have bytes of both ways.
  static int64_t Alignment();
  /// Creates `path`, which must not exist. `direct`: try to write past the page cache.
  static absl::StatusOr<OutputFile> Create(std::string path, bool direct);
  /// Opens `path`, which another part of the program writes, too.
  static absl::StatusOr<OutputFile> Open(std::string path, bool direct);
  OutputFile(OutputFile&& other) noexcept;

  const std::string& path() const { return path_; }
  /// Its descriptor of the page cache.
  int fd() const { return fd_.get(); }
  /// Gives the file `bytes` of room and this size, so that a full disk shows now, and no write
  /// extends the file: file systems run writes that extend one at a time. False where the file
  /// system cannot.
  absl::StatusOr<bool> Reserve(int64_t bytes);
  /// Cuts the file off behind so many bytes.
  absl::Status Truncate(int64_t bytes);
  /// Writes all of it. What lies between multiples of Alignment() goes past the page cache if
  /// `data` has the remainder of `offset` by kDirectAlignment; the bytes before and behind go
  /// through it.
  absl::Status WriteAt(const char* data, int64_t bytes, int64_t offset);
  /// Whether the file system has refused to write past the page cache.
  bool refused_direct() const { return refused_.load(std::memory_order_relaxed); }
  absl::Status Close();

 private:
  OutputFile(std::string path, UniqueFd fd, bool direct)
      : path_(std::move(path)), fd_(std::move(fd)), direct_(direct) {}
  static absl::StatusOr<OutputFile> OpenWith(std::string path, int flags, bool direct);
  /// The same file opened with O_DIRECT; -1 if that is not possible.
  int DirectFd();
  absl::Status WriteDirect(int fd, const char* data, int64_t bytes, int64_t offset);
  absl::Status WriteBuffered(const char* data, int64_t bytes, int64_t offset);

  std::string path_;
  UniqueFd fd_;
  std::atomic<bool> direct_, refused_{false};
  Mutex mutex_;
  UniqueFd direct_fd_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::storage

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "gpu/base/unique_fd.h"
#include "server/storage/direct/cufile.h"
#include "server/storage/io/direct_alignment.h"

namespace octavo::storage {

/// An open regular file whose bytes are read by any way. Thread-safe.
class DataFile {
 public:
  /// `name` is for messages.
  static absl::StatusOr<std::shared_ptr<DataFile>> Of(UniqueFd fd, std::string name);
  /// The same with a descriptor of its own.
  static absl::StatusOr<std::shared_ptr<DataFile>> OfCopy(int fd, std::string name);
  ~DataFile();
  DataFile(const DataFile&) = delete;

  const std::string& name() const { return name_; }
  int fd() const { return fd_.get(); }
  int64_t size() const { return size_; }  // when it was opened

  /// Reads exactly `bytes` at `offset` through the page cache. DataLoss if the file ends before.
  absl::Status ReadBuffered(int64_t offset, int64_t bytes, char* out) const;
  /// Reads them past the page cache; `out` has the remainder of `offset` by kDirectAlignment, and
  /// what is before it back to a multiple, and behind the bytes up to one, is overwritten. What
  /// O_DIRECT does not give, ReadBuffered does.
  absl::Status ReadDirect(int64_t offset, int64_t bytes, char* out);
  /// Whether O_DIRECT can open it.
  bool CanReadDirect() { return DirectFd() >= 0; }
  /// Whether the page cache has nearly all of these bytes, so that reading past it would be slower.
  /// False where the kernel does not say.
  bool IsCached(int64_t offset, int64_t bytes) const;
  /// Asks the kernel to read them ahead.
  void WillNeed(int64_t offset, int64_t bytes) const;

  /// The file as cuFile knows it, registered at the first call. Unavailable: it cannot be.
  absl::StatusOr<cufile::Handle> CuFileHandle(const CuFile& cufile);

 private:
  DataFile(UniqueFd fd, std::string name, int64_t size, bool own)
      : fd_(std::move(fd)), name_(std::move(name)), size_(size), own_(own) {}
  /// The same file opened with O_DIRECT; -1 if that is not possible.
  int DirectFd();

  const UniqueFd fd_;
  const std::string name_;
  const int64_t size_;
  const bool own_;  // the process may ask the page cache about it
  std::atomic<bool> no_direct_{false};
  Mutex mutex_;
  UniqueFd direct_ ABSL_GUARDED_BY(mutex_);
  const CuFile* cufile_ ABSL_GUARDED_BY(mutex_) = nullptr;  // that has the handle
  cufile::Handle handle_ ABSL_GUARDED_BY(mutex_) = nullptr;
  absl::Status refused_ ABSL_GUARDED_BY(mutex_);
};

/// The path of an open file or folder as the kernel knows it now; empty if it has none.
std::string PathOfOpen(int fd);

}  // namespace octavo::storage

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "gpu/base/mutex.h"
#include "gpu/base/unique_fd.h"

namespace octavo::storage {

/// Append-only file of JSON records, one a line, each with its CRC and made durable before Append
/// returns. A torn line (a crash or a full disk while appending) is ignored. One process at a time
/// holds it. Thread-safe.
class Journal {
 public:
  /// Opens or creates `path`; `records` gets its contents. FailedPrecondition if another process
  /// holds it, if it belongs to or can be written by others, or if it is a link. If lines of it are
  /// neither records nor what a crash left of one, `report` gets a line, and "<path>.damaged" what
  /// the file held.
  static absl::StatusOr<std::unique_ptr<Journal>> Open(const std::string& path,
                                                       std::vector<nlohmann::json>* records,
                                                       std::vector<std::string>* report = nullptr);
  absl::Status Append(const nlohmann::json& record);
  int64_t bytes();
  /// Replaces the contents by these records, atomically.
  absl::Status Replace(const std::vector<nlohmann::json>& records);

 private:
  Journal(std::string path, UniqueFd lock, UniqueFd fd)
      : path_(std::move(path)), lock_(std::move(lock)), fd_(std::move(fd)) {}
  const std::string path_;
  const UniqueFd lock_;
  Mutex mutex_;
  UniqueFd fd_ ABSL_GUARDED_BY(mutex_);
  bool torn_ ABSL_GUARDED_BY(mutex_) =
      false;  // the file may end with half a line: the next record begins on a new line
};

}  // namespace octavo::storage

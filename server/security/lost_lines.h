#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/unique_fd.h"

namespace octavo::security {

/// A file that says how many lines of the audit log the last stop could not write, so that the next
/// start writes that into the log. It has its bytes from the start: to change the number takes no
/// room on a disk that is full by then. Not thread-safe.
class LostLines {
 public:
  /// Reads the file, or makes it (mode 0600), and sets the number to 0.
  static absl::StatusOr<LostLines> Open(const std::string& path);
  /// What the file said.
  int64_t before() const { return before_; }
  absl::Status Note(int64_t lines);

 private:
  LostLines(std::string path, UniqueFd file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  UniqueFd file_;
  int64_t before_ = 0;
};

}  // namespace octavo::security

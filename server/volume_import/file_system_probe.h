#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <sys/vfs.h>

#include "absl/status/status.h"

#include "gpu/base/unique_fd.h"

namespace octavo::volume_import {

/// Whether files of strangers can be read without waiting for a stranger. A file system may be a
/// program of the client (FUSE): each read of such a file waits for as long as that program likes,
/// and no signal ends it. Thread-safe.
class FileSystemProbe {
 public:
  using Ask = std::function<int(int fd, struct statfs* out)>;  // as fstatfs
  static constexpr int kMost = 8;                              // questions that wait at once

  explicit FileSystemProbe(Ask ask = ::fstatfs,
                           std::chrono::milliseconds patience = std::chrono::seconds(2));

  /// InvalidArgument (UNSUPPORTED_FILE) of a file on FUSE, and of one that the kernel makes up as
  /// it is read (procfs, sysfs and their like: no file of these is of one moment, and reading some
  /// has effects); Unavailable (IO_ERROR) if the file system does not answer in time;
  /// ResourceExhausted (BUSY) while `kMost` do not. `name`: for messages.
  absl::Status Check(const UniqueFd& file, const std::string& name);

 private:
  struct Waiting;
  const Ask ask_;
  const std::chrono::milliseconds patience_;
  const std::shared_ptr<Waiting> waiting_;  // threads keep it
};

}  // namespace octavo::volume_import

#include "client/cpp/cli/output_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"

namespace octavo::cli {
namespace {

// An error number, 0 if there is no obstacle.
int WhyNotWritable(const std::string& path) {
  if (const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); fd >= 0) {
    ::close(fd);
    ::unlink(path.c_str());
    return 0;
  }
  if (errno != EEXIST) return errno;
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return errno;
  if (S_ISDIR(info.st_mode)) return EISDIR;
  return ::access(path.c_str(), W_OK) == 0 ? 0 : errno;
}

}  // namespace

void CheckWritable(const std::string& flag, const std::string& path) {
  const int error = WhyNotWritable(path);
  if (error == 0) return;
  throw CLI::ValidationError(
      flag, absl::StrCat("is '", path, "', which cannot be written here: ", std::strerror(error),
                         error == ENOENT ? "; make its folder, or give another name"
                                         : "; give another name"));
}

}  // namespace octavo::cli

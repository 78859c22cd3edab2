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

std::string WithAdvice(int error) {
  return absl::StrCat(std::strerror(error), error == ENOENT
                                                ? "; make its folder, or give another name"
                                                : "; give another name");
}

// Empty if there is no obstacle. An existing file is replaced, also the one that a link leads to.
std::string WhyNotWritable(const std::string& path) {
  if (const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); fd >= 0) {
    ::close(fd);
    ::unlink(path.c_str());
    return "";
  }
  if (errno != EEXIST) return WithAdvice(errno);
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    return errno == ENOENT ? "it is a link to a file that is not there; give another name"
                           : WithAdvice(errno);
  if (S_ISDIR(info.st_mode)) return WithAdvice(EISDIR);
  return ::access(path.c_str(), W_OK) == 0 ? "" : WithAdvice(errno);
}

}  // namespace

void CheckWritable(const std::string& flag, const std::string& path) {
  const std::string why = WhyNotWritable(path);
  if (why.empty()) return;
  throw CLI::ValidationError(flag,
                             absl::StrCat("is '", path, "', which cannot be written here: ", why));
}

}  // namespace octavo::cli

#include "server/storage/direct/probe_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <random>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/size_text.h"
#include "gpu/base/status.h"
#include "gpu/device/digest.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"

namespace octavo::storage {
namespace {

constexpr int64_t kBlock = 4 << 20;
constexpr int kMostLooked = 20'000, kMostDepth = 6;

bool MayNotWrite(int error) { return error == EACCES || error == EPERM || error == EROFS; }

/// A file below the root without a name; errno in `error` if there is none.
UniqueFd MakeNameless(const std::string& root, int* error) {
  *error = Failpoint("probe_create");
  if (*error != 0) return UniqueFd();
  UniqueFd fd(::open(root.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  *error = errno;
  if (fd || MayNotWrite(*error) || *error == ENOSPC || *error == EDQUOT || *error == ENOENT)
    return fd;
  // A file system without such files: for an instant it has a name.
  const std::string path =
      absl::StrCat(root, "/.octavo-probe-", ::getpid(), "-", std::random_device()());
  fd = UniqueFd(::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
  *error = errno;
  if (fd) (void)::unlink(path.c_str());
  return fd;
}

/// A regular file below the root that is large enough and may be read.
std::optional<std::string> FindOwn(const std::string& root) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::recursive_directory_iterator at(root, fs::directory_options::skip_permission_denied, error);
  for (int looked = 0; !error && at != fs::recursive_directory_iterator() && looked < kMostLooked;
       at.increment(error), ++looked) {
    if (at.depth() >= kMostDepth) at.disable_recursion_pending();
    std::error_code ignored;
    if (at->is_symlink(ignored) || !at->is_regular_file(ignored)) continue;
    if (static_cast<int64_t>(at->file_size(ignored)) >= ProbeFile::kLeastBytes && !ignored &&
        ::access(at->path().c_str(), R_OK) == 0)
      return at->path().string();
  }
  return std::nullopt;
}

absl::Status NoFile(const std::string& what) {
  return WithInfo(absl::NotFoundError(what),
                  {.reason = Reason::kNoFile, .field = "root", .numbers = {}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProbeFile>> ProbeFile::Make(
    const std::string& root, int64_t bytes, std::chrono::milliseconds patience,
    const std::function<absl::Status()>& go_on) {
  const std::string name = absl::StrCat(root, ", a file to measure");
  int error = 0;
  const UniqueFd fd = MakeNameless(root, &error);
  if (!fd && error == ENOENT) return NoFile(absl::StrCat(root, ": there is no such folder"));
  if (!fd && !MayNotWrite(error)) return ErrnoStatus(error, "creating", name);
  if (!fd) {
    const auto own = FindOwn(root);
    if (!own.has_value())
      return NoFile(absl::StrCat(root, ": the server may not write there, and finds no file of ",
                                 kLeastBytes >> 20, " MiB or more in it to read"));
    UniqueFd opened(::open(own->c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
    if (!opened) return ErrnoStatus(errno, "opening", *own);
    OCTAVO_ASSIGN_OR_RETURN(auto file, DataFile::Of(std::move(opened), *own));
    const int64_t size = file->size() / kDirectAlignment * kDirectAlignment;
    return std::unique_ptr<ProbeFile>(new ProbeFile(std::move(file), std::min(bytes, size)));
  }
  // Others write there, too: a measurement never takes more than half of what is free.
  struct statvfs disk {};
  if (::fstatvfs(fd.get(), &disk) == 0) {
    const auto free = static_cast<int64_t>(disk.f_bavail * disk.f_frsize);
    if (free / 2 < bytes) {
      return WithInfo(
          absl::ResourceExhaustedError(absl::StrCat(name, " would take ", SizeText(bytes),
                                                    "; allowed is half of the ", SizeText(free),
                                                    " that are free there")),
          {.reason = Reason::kDiskFull,
           .field = "bytes",
           .numbers = {{"wanted", absl::StrCat(bytes)}, {"allowed", absl::StrCat(free / 2)}}});
    }
  }
  // Random bytes, so that no drive and no file system compresses them.
  std::vector<uint64_t> block(kBlock / sizeof(uint64_t));
  std::mt19937_64 random{std::random_device()()};
  for (uint64_t& word : block) word = random();
  const auto begun = std::chrono::steady_clock::now();
  int64_t written = 0;
  while (written < bytes) {
    OCTAVO_RETURN_IF_ERROR(go_on());
    if (written >= kLeastBytes && std::chrono::steady_clock::now() - begun > patience) break;
    if (const int fault = Failpoint("probe_write")) return ErrnoStatus(fault, "writing", name);
    for (size_t i = 0; i < block.size(); i += 512) block[i] += static_cast<uint64_t>(written) + 1;
    const int64_t part = std::min(kBlock, bytes - written);
    OCTAVO_RETURN_IF_ERROR(
        WriteAllAt(fd.get(), name, block.data(), static_cast<size_t>(part), written));
    written += part;
    // The drive gets each part at once, so that `patience` measures the drive and not the cache.
    if (written % (4 * kBlock) == 0 && ::fdatasync(fd.get()) != 0)
      return ErrnoStatus(errno, "writing", name);
  }
  if (::fdatasync(fd.get()) != 0) return ErrnoStatus(errno, "writing", name);
  UniqueFd reading(::open(absl::StrCat("/proc/self/fd/", fd.get()).c_str(), O_RDONLY | O_CLOEXEC));
  if (!reading) return ErrnoStatus(errno, "opening", name);
  OCTAVO_ASSIGN_OR_RETURN(auto file, DataFile::Of(std::move(reading), name));
  return std::unique_ptr<ProbeFile>(new ProbeFile(std::move(file), written));
}

absl::StatusOr<uint64_t> ProbeFile::Digest(int64_t bytes) const {
  std::vector<char> block(kBlock);
  uint64_t sum = 0;
  for (int64_t at = 0; at < bytes; at += kBlock) {
    const int64_t part = std::min(kBlock, bytes - at);
    OCTAVO_RETURN_IF_ERROR(file_->ReadBuffered(at, part, block.data()));
    sum += DigestBytes(block.data(), part, at);
  }
  return sum;
}

void ProbeFile::Evict() const {
  (void)::posix_fadvise(file_->fd(), 0, bytes_, POSIX_FADV_DONTNEED);
}

}  // namespace octavo::storage

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "gpu/base/unique_fd.h"
#include "server/engine/npy_input.h"
#include "server/engine/pacer.h"
#include "server/engine/sources.h"

namespace octavo::engine {
namespace {

struct File {
  UniqueFd fd;
  std::string path;
  int64_t data_offset = 0, records = 0, samples = 0;
  DType raw_type = DType::kU16;
};

// The path inside one of the roots, links resolved.
absl::StatusOr<std::string> Confine(const std::string& path, const std::vector<std::string>& roots) {
  constexpr char kField[] = "replay.path";
  if (path.empty()) return InvalidField(kField, "is empty");
  if (roots.empty()) {
    return WithInfo(absl::FailedPreconditionError("replay.path: this server has no replay roots; set storage.replay_roots"),
                    {.reason = "NO_REPLAY_ROOT", .field = kField, .numbers = {}});
  }
  int error = ENOENT;
  for (const std::string& root : roots) {
    const std::string candidate = path[0] == '/' ? path : absl::StrCat(root, "/", path);
    char* resolved = ::realpath(candidate.c_str(), nullptr);
    if (resolved == nullptr) {
      if (errno != ENOENT) error = errno;
      continue;
    }
    const std::string real = resolved;
    std::free(resolved);
    char* resolved_root = ::realpath(root.c_str(), nullptr);
    const std::string real_root = resolved_root == nullptr ? root : resolved_root;
    std::free(resolved_root);
    if (absl::StartsWith(real, absl::StrCat(real_root, "/"))) return real;
    error = EXDEV;
  }
  if (error == EXDEV) return InvalidField(kField, absl::StrCat("'", path, "' lies outside the replay roots"));
  if (error == EACCES) {
    return WithInfo(absl::PermissionDeniedError(absl::StrCat("replay.path: '", path, "' may not be read")),
                    {.reason = "NO_ACCESS", .field = kField, .numbers = {}});
  }
  return WithInfo(absl::NotFoundError(absl::StrCat("replay.path: no file '", path, "' under the replay roots")),
                  {.reason = "NO_FILE", .field = kField, .numbers = {}});
}

absl::StatusOr<File> Open(const ScanSpec& spec, const ReplaySource& replay, const std::vector<std::string>& roots) {
  constexpr char kField[] = "replay.path";
  File file;
  OCTAVO_ASSIGN_OR_RETURN(file.path, Confine(replay.path, roots));
  file.fd = UniqueFd(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!file.fd || ::fstat(file.fd.get(), &info) != 0) {
    return WithInfo(absl::PermissionDeniedError(absl::StrCat("replay.path: '", replay.path, "' cannot be opened: errno ", errno)),
                    {.reason = "NO_ACCESS", .field = kField, .numbers = {}});
  }
  if (!S_ISREG(info.st_mode)) return InvalidField(kField, absl::StrCat("'", replay.path, "' is no regular file"));
  const Acquisition& a = spec.acquisition;
  if (absl::EndsWith(file.path, ".npy")) {
    std::string head(65536 + 12, '\0');
    const ssize_t n = ::pread(file.fd.get(), head.data(), head.size(), 0);
    head.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
    OCTAVO_ASSIGN_OR_RETURN(const NpyHeader header, ParseNpyHeader(head));
    file.samples = header.shape.back();
    file.raw_type = header.dtype;
    file.data_offset = header.data_offset;
    if (a.samples_per_record != 0 && a.samples_per_record != file.samples) {
      return InvalidField("acquisition.samples_per_record", absl::StrCat("is ", a.samples_per_record, "; the file has ", file.samples));
    }
    if (a.raw_type_given && a.raw_type != file.raw_type) {
      return InvalidField("acquisition.raw_type", absl::StrCat("is ", Info(a.raw_type).name, "; the file has ", Info(file.raw_type).name));
    }
    int64_t elements = 1;
    for (const int64_t extent : header.shape) elements *= extent;
    if (info.st_size - file.data_offset != elements * SizeOf(file.raw_type)) {
      return InvalidField(kField, absl::StrCat("'", replay.path, "' holds ", info.st_size - file.data_offset, " bytes of data; its header says ",
                                               elements * SizeOf(file.raw_type)));
    }
  } else {
    if (a.samples_per_record < 16 || a.samples_per_record > 65536) {
      return InvalidField("acquisition.samples_per_record", absl::StrCat("is ", a.samples_per_record, "; a raw file needs it, 16 to 65536"));
    }
    file.samples = a.samples_per_record;
    file.raw_type = a.raw_type;
  }
  const int64_t record_bytes = file.samples * SizeOf(file.raw_type), bytes = info.st_size - file.data_offset;
  if (bytes <= 0 || bytes % record_bytes != 0) {
    return InvalidField(kField, absl::StrCat("'", replay.path, "' holds ", bytes, " bytes, no whole number of records of ", record_bytes));
  }
  file.records = bytes / record_bytes;
  return file;
}

class ReplayRecords final : public Source {
 public:
  ReplayRecords(File file, int64_t total_records, double rate_hz, const Clock* clock)
      : file_(std::move(file)), total_(total_records), record_bytes_(file_.samples * SizeOf(file_.raw_type)), pacer_(rate_hz), clock_(clock) {
    (void)::posix_fadvise(file_.fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  }

  absl::StatusOr<SourceBlock> Next(void* slot, int64_t max_records, std::stop_token stop) override {
    const int64_t records = std::min(max_records, total_ - next_);
    auto* out = static_cast<char*>(slot);
    for (int64_t done = 0; done < records;) {
      const int64_t at = (next_ + done) % file_.records, count = std::min(records - done, file_.records - at);
      OCTAVO_RETURN_IF_ERROR(Read(out + done * record_bytes_, count * record_bytes_, file_.data_offset + at * record_bytes_));
      done += count;
    }
    return Take(records, stop);
  }
  absl::StatusOr<SourceBlock> Skip(int64_t records, std::stop_token stop) override { return Take(std::min(records, total_ - next_), stop); }
  bool CanWait() const override { return !pacer_.paced(); }

 private:
  SourceBlock Take(int64_t records, std::stop_token stop) {
    if (records <= 0 || !pacer_.WaitFor(next_ + records, stop)) return {};
    const SourceBlock block{.first_record = next_, .records = records, .acquired = clock_->Now()};
    next_ += records;
    return block;
  }
  absl::Status Read(char* out, int64_t bytes, int64_t offset) {
    while (bytes > 0) {
      const ssize_t n = ::pread(file_.fd.get(), out, static_cast<size_t>(bytes), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        return WithInfo(absl::DataLossError(absl::StrCat(file_.path, n == 0 ? " became shorter while it was read" : " cannot be read",
                                                         " at byte ", offset, n == 0 ? "" : absl::StrCat(": errno ", errno))),
                        {.reason = "SOURCE_READ", .field = "replay.path", .numbers = {{"offset", absl::StrCat(offset)}}});
      }
      out += n;
      bytes -= n;
      offset += n;
    }
    return absl::OkStatus();
  }

  const File file_;
  const int64_t total_, record_bytes_;
  Pacer pacer_;
  const Clock* const clock_;
  int64_t next_ = 0;
};

}  // namespace

absl::StatusOr<SourceTraits> InspectReplay(const ScanSpec& spec, const ReplaySource& replay, const std::vector<std::string>& roots) {
  if (!std::isfinite(replay.rate_hz) || replay.rate_hz < 0) return InvalidField("replay.rate_hz", absl::StrCat("is ", replay.rate_hz, "; allowed >= 0"));
  OCTAVO_ASSIGN_OR_RETURN(const File file, Open(spec, replay, roots));
  return SourceTraits{.samples_per_record = file.samples,
                      .raw_type = file.raw_type,
                      .record_rate_hz = replay.rate_hz,
                      .full_scale_counts = 0,
                      .total_records = replay.loops == 0 ? 0 : file.records * replay.loops,
                      .wavelength_nm = {}};
}

absl::StatusOr<std::unique_ptr<Source>> OpenReplay(const ScanSpec& resolved, const ReplaySource& replay,
                                                   const std::vector<std::string>& roots, const Clock* clock) {
  OCTAVO_ASSIGN_OR_RETURN(File file, Open(resolved, replay, roots));
  const int64_t total = replay.loops == 0 ? std::numeric_limits<int64_t>::max() / 2 : file.records * static_cast<int64_t>(replay.loops);
  return std::make_unique<ReplayRecords>(std::move(file), total, replay.rate_hz, clock);
}

}  // namespace octavo::engine

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <fcntl.h>
#include <limits>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "gpu/base/unique_fd.h"
#include "server/engine/confined_path.h"
#include "server/engine/npy_input.h"
#include "server/engine/pacer.h"
#include "server/engine/record_doubts.h"
#include "server/engine/sources.h"
#include "server/storage/open_beneath.h"

namespace octavo::engine {
namespace {

struct File {
  UniqueFd fd;
  std::string path;
  int64_t data_offset = 0, records = 0, samples = 0, record_bytes = 0;
  DType raw_type = DType::kU16;
  math::Packing packing = math::Packing::kNone;
};

absl::StatusOr<UniqueFd> OpenConfined(const std::string& path, const std::vector<std::string>& roots, std::string* real, struct stat* info) {
  constexpr char kField[] = "replay.path";
  OCTAVO_ASSIGN_OR_RETURN(const ConfinedPath confined, ConfinePath(path, roots, kField));
  // Not blocking: opening a named pipe would wait for its writer.
  auto opened = storage::OpenBeneath(confined.path, roots, O_RDONLY | O_NONBLOCK);
  if (!opened.ok() && InfoOf(opened.status()).reason == "OUTSIDE_ROOTS") return OutsideRoots(kField, path);
  if (!opened.ok()) return NoAccess(kField, path, absl::StrCat("cannot be opened: ", opened.status().message()));
  if (::fstat(opened->fd.get(), info) != 0) return NoAccess(kField, path, absl::StrCat("cannot be examined: errno ", errno));
  if (!S_ISREG(info->st_mode)) return InvalidField(kField, absl::StrCat("'", path, "' is no regular file"));
  *real = opened->path;
  return std::move(opened->fd);
}

// Samples of a record from the last axes of an .npy file: [S], with channels [S, C] or [S x C]; packed the bytes of a record.
absl::StatusOr<int64_t> SamplesOf(const NpyHeader& header, const Acquisition& a) {
  const int64_t last = header.shape.back(), channels = std::max<int64_t>(a.channels, 1);
  if (a.packing != math::Packing::kNone) {
    if (header.dtype != DType::kU8)
      return InvalidField("acquisition.raw_type", absl::StrCat("is packed; the file has ", Info(header.dtype).name, ", not bytes"));
    const int64_t samples = a.samples_per_record != 0 ? a.samples_per_record : last * 2 / 3 / channels;
    if (math::PackedBytes(a.packing, samples * channels, 2) == last) return samples;
    return InvalidField("acquisition.samples_per_record",
                        absl::StrCat("is ", a.samples_per_record, " in ", channels, " channels; the file's records have ", last, " bytes"));
  }
  if (channels == 1) return last;
  if (last == channels && header.shape.size() > 1) return header.shape[header.shape.size() - 2];
  if (last % channels == 0) return last / channels;
  return InvalidField("acquisition.channels", absl::StrCat("is ", channels, "; the file's last axis is ", last));
}

absl::StatusOr<File> Open(const ScanSpec& spec, const ReplaySource& replay, const std::vector<std::string>& roots) {
  constexpr char kField[] = "replay.path";
  File file;
  struct stat info {};
  OCTAVO_ASSIGN_OR_RETURN(file.fd, OpenConfined(replay.path, roots, &file.path, &info));
  const Acquisition& a = spec.acquisition;
  if (absl::EndsWith(file.path, ".npy")) {
    std::string head(65536 + 12, '\0');
    const ssize_t n = ::pread(file.fd.get(), head.data(), head.size(), 0);
    if (n < 0) return NoAccess(kField, replay.path, absl::StrCat("cannot be read: errno ", errno));
    head.resize(static_cast<size_t>(n));
    OCTAVO_ASSIGN_OR_RETURN(const NpyHeader header, ParseNpyHeader(head));
    OCTAVO_ASSIGN_OR_RETURN(file.samples, SamplesOf(header, a));
    file.raw_type = a.packing != math::Packing::kNone ? DType::kU16 : header.dtype;
    file.data_offset = header.data_offset;
    if (a.samples_per_record != 0 && a.samples_per_record != file.samples) {
      return InvalidField("acquisition.samples_per_record", absl::StrCat("is ", a.samples_per_record, "; the file has ", file.samples));
    }
    if (a.raw_type_given && a.raw_type != file.raw_type) {
      return InvalidField("acquisition.raw_type", absl::StrCat("is ", Info(a.raw_type).name, "; the file has ", Info(file.raw_type).name));
    }
    int64_t elements = 1;
    for (const int64_t extent : header.shape) elements *= extent;
    if (info.st_size - file.data_offset != elements * SizeOf(header.dtype)) {
      return InvalidField(kField, absl::StrCat("'", replay.path, "' holds ", info.st_size - file.data_offset, " bytes of data; its header says ",
                                               elements * SizeOf(header.dtype)));
    }
  } else {
    if (a.samples_per_record < 16 || a.samples_per_record > 65536) {
      return InvalidField("acquisition.samples_per_record", absl::StrCat("is ", a.samples_per_record, "; a raw file needs it, 16 to 65536"));
    }
    file.samples = a.samples_per_record;
    file.raw_type = a.raw_type;
  }
  file.packing = a.packing;
  file.record_bytes = math::PackedBytes(file.packing, file.samples * std::max<int64_t>(a.channels, 1), SizeOf(file.raw_type));
  const int64_t bytes = info.st_size - file.data_offset;
  if (bytes <= 0 || bytes % file.record_bytes != 0) {
    return InvalidField(kField, absl::StrCat("'", replay.path, "' holds ", bytes, " bytes, no whole number of records of ", file.record_bytes));
  }
  file.records = bytes / file.record_bytes;
  return file;
}

/// Enough to tell what the file looks like.
absl::StatusOr<std::string> Beginning(const File& file, const std::string& path) {
  std::string bytes(static_cast<size_t>(std::min<int64_t>(file.records * file.record_bytes, 1 << 20)), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::pread(file.fd.get(), bytes.data() + done, bytes.size() - done, file.data_offset + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return NoAccess("replay.path", path, absl::StrCat("cannot be read: errno ", errno));
    if (n == 0) break;  // it became shorter: the scan will say so
    done += static_cast<size_t>(n);
  }
  bytes.resize(done);
  return bytes;
}

constexpr int64_t kReadBytes = 32 << 20;  // of one read, between looks at the stop token

// Records in all loops; a file that is read until the scan has enough has a number beyond reach.
int64_t TotalRecords(int64_t records, uint32_t loops) {
  constexpr int64_t kEndless = std::numeric_limits<int64_t>::max() / 2;
  return loops == 0 || records > kEndless / static_cast<int64_t>(loops) ? kEndless : records * static_cast<int64_t>(loops);
}

class ReplayRecords final : public Source {
 public:
  ReplayRecords(File file, int64_t total_records, double rate_hz, const Clock* clock)
      : file_(std::move(file)), total_(total_records), record_bytes_(file_.record_bytes), pacer_(rate_hz), clock_(clock) {
    (void)::posix_fadvise(file_.fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  }

  absl::StatusOr<SourceBlock> Next(void* slot, int64_t max_records, std::stop_token stop) override {
    const int64_t records = std::min(max_records, total_ - next_);
    auto* out = static_cast<char*>(slot);
    for (int64_t done = 0; done < records;) {
      if (stop.stop_requested()) return SourceBlock{};
      const int64_t at = (next_ + done) % file_.records;
      const int64_t count = std::min({records - done, file_.records - at, std::max<int64_t>(1, kReadBytes / record_bytes_)});
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
        return WithInfo(absl::DataLossError(absl::StrCat(file_.path, n == 0 ? " became shorter while it was read" : " cannot be read", " at byte ",
                                                         offset, n == 0 ? "" : absl::StrCat(": errno ", errno))),
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
  if (!std::isfinite(replay.rate_hz) || replay.rate_hz < 0)
    return InvalidField("replay.rate_hz", absl::StrCat("is ", replay.rate_hz, "; allowed >= 0"));
  OCTAVO_ASSIGN_OR_RETURN(const File file, Open(spec, replay, roots));
  std::vector<std::string> warnings;
  if (!absl::EndsWith(file.path, ".npy") && file.packing == math::Packing::kNone) {  // a .npy file says what it holds
    OCTAVO_ASSIGN_OR_RETURN(const std::string beginning, Beginning(file, replay.path));
    const int64_t channels = std::max<int64_t>(spec.acquisition.channels, 1);
    warnings = FindRecordDoubts(beginning, {.raw_type = file.raw_type, .samples = file.samples * channels, .channels = channels});
  }
  return SourceTraits{.samples_per_record = file.samples,
                      .raw_type = file.raw_type,
                      .packing = file.packing,
                      .record_rate_hz = replay.rate_hz,
                      .adc_bits = 0,
                      .total_records = replay.loops == 0 ? 0 : TotalRecords(file.records, replay.loops),
                      .file_records = file.records,
                      .warnings = std::move(warnings),
                      .wavelength_nm = {}};
}

absl::StatusOr<std::unique_ptr<Source>> OpenReplay(const ScanSpec& resolved, const ReplaySource& replay, const std::vector<std::string>& roots,
                                                   const Clock* clock) {
  OCTAVO_ASSIGN_OR_RETURN(File file, Open(resolved, replay, roots));
  const int64_t total = TotalRecords(file.records, replay.loops);
  return std::make_unique<ReplayRecords>(std::move(file), total, replay.rate_hz, clock);
}

}  // namespace octavo::engine

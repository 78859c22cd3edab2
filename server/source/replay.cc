#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fcntl.h>
#include <limits>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/source/rate_limiter.h"
#include "server/source/sources.h"
#include "server/storage/formats/record_file.h"
#include "server/storage/io/confined_path.h"
#include "server/storage/io/open_beneath.h"

namespace octavo::source {
namespace {

constexpr double kLeastRateHz = 1e-3;

absl::StatusOr<storage::RecordFile> Open(const model::ScanSpec& spec,
                                         const model::ReplaySource& replay,
                                         const std::vector<std::string>& roots) {
  constexpr char kField[] = "replay.path";
  OCTAVO_ASSIGN_OR_RETURN(const storage::ConfinedPath confined,
                          storage::ConfinePath(replay.path, roots, kField));
  // Not blocking: opening a named pipe would wait for its writer.
  auto opened = storage::OpenBeneath(confined.path, roots, O_RDONLY | O_NONBLOCK);
  if (!opened.ok() && InfoOf(opened.status()).reason == Reason::kOutsideRoots)
    return storage::OutsideRoots(kField, replay.path, roots);
  if (!opened.ok())
    return storage::NoAccess(kField, replay.path,
                             absl::StrCat("cannot be opened: ", opened.status().message()));
  const model::Acquisition& a = spec.acquisition;
  return storage::OpenRecords(std::move(opened->fd), replay.path,
                              absl::EndsWith(opened->path, ".npy"),
                              {.samples = a.samples_per_record,
                               .channels = std::max<int64_t>(a.channels, 1),
                               .raw_type = a.raw_type,
                               .raw_type_given = a.raw_type_given,
                               .packing = a.packing,
                               .adc_bits = a.adc_bits,
                               .header_bytes = replay.header_bytes,
                               .allow_partial = replay.allow_partial});
}

constexpr int64_t kReadBytes = 32 << 20;  // of one read, between checks of the stop token

// Number of records in all loops; practically infinite for a file that is read until the scan has
// enough.
int64_t TotalRecords(int64_t records, uint32_t loops) {
  constexpr int64_t kEndless = std::numeric_limits<int64_t>::max() / 2;
  return loops == 0 || records > kEndless / static_cast<int64_t>(loops)
             ? kEndless
             : records * static_cast<int64_t>(loops);
}

class ReplayRecords final : public Source {
 public:
  ReplayRecords(storage::RecordFile file, int64_t total_records, double rate_hz, const Clock* clock)
      : file_(std::move(file)),
        total_(total_records),
        record_bytes_(file_.record_bytes),
        pacer_(rate_hz),
        clock_(clock) {
    (void)::posix_fadvise(file_.fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  }

  absl::StatusOr<SourceBlock> Next(void* slot, int64_t max_records, std::stop_token stop) override {
    const int64_t records = std::min(max_records, total_ - next_);
    auto* out = static_cast<char*>(slot);
    for (int64_t done = 0; done < records;) {
      if (stop.stop_requested()) return SourceBlock{};
      const int64_t at = (next_ + done) % file_.records;
      const int64_t count = std::min(
          {records - done, file_.records - at, std::max<int64_t>(1, kReadBytes / record_bytes_)});
      OCTAVO_RETURN_IF_ERROR(Read(out + done * record_bytes_, count * record_bytes_,
                                  file_.data_offset + at * record_bytes_));
      done += count;
    }
    return Take(records, stop);
  }
  absl::StatusOr<SourceBlock> Skip(int64_t records, std::stop_token stop) override {
    return Take(std::min(records, total_ - next_), stop);
  }
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
        return WithInfo(
            absl::DataLossError(absl::StrCat(
                file_.name, n == 0 ? " became shorter while it was read" : " cannot be read",
                " at byte ", offset, n == 0 ? "" : absl::StrCat(": errno ", errno))),
            {.reason = Reason::kSourceRead,
             .field = "replay.path",
             .numbers = {{"offset", absl::StrCat(offset)}}});
      }
      out += n;
      bytes -= n;
      offset += n;
    }
    return absl::OkStatus();
  }

  const storage::RecordFile file_;
  const int64_t total_, record_bytes_;
  RateLimiter pacer_;
  const Clock* const clock_;
  int64_t next_ = 0;
};

}  // namespace

absl::StatusOr<model::SourceTraits> InspectReplay(const model::ScanSpec& spec,
                                                  const model::ReplaySource& replay,
                                                  const std::vector<std::string>& roots) {
  if (!std::isfinite(replay.rate_hz) || (replay.rate_hz != 0 && replay.rate_hz < kLeastRateHz))
    return InvalidField("replay.rate_hz", absl::StrCat("is ", replay.rate_hz,
                                                       "; allowed 0 (as fast as possible), and ",
                                                       kLeastRateHz, " and more"));
  OCTAVO_ASSIGN_OR_RETURN(const storage::RecordFile file, Open(spec, replay, roots));
  OCTAVO_ASSIGN_OR_RETURN(std::vector<std::string> warnings, storage::DoubtsOf(file));
  OCTAVO_ASSIGN_OR_RETURN(const bool first_differs, storage::FirstRecordDiffers(file));
  return model::SourceTraits{
      .samples_per_record = file.samples,
      .raw_type = file.raw_type,
      .packing = file.packing,
      .record_rate_hz = replay.rate_hz,
      .adc_bits = 0,
      .total_records = replay.loops == 0 ? 0 : TotalRecords(file.records, replay.loops),
      .file_records = file.records,
      .file_shape = file.shape,
      .first_differs = first_differs,
      .warnings = std::move(warnings),
      .wavelength_nm = {}};
}

absl::StatusOr<std::unique_ptr<Source>> OpenReplay(const model::ScanSpec& resolved,
                                                   const model::ReplaySource& replay,
                                                   const std::vector<std::string>& roots,
                                                   const Clock* clock) {
  OCTAVO_ASSIGN_OR_RETURN(storage::RecordFile file, Open(resolved, replay, roots));
  const int64_t total = TotalRecords(file.records, replay.loops);
  return std::make_unique<ReplayRecords>(std::move(file), total, replay.rate_hz, clock);
}

}  // namespace octavo::source

#include "client/cpp/cli/file_push.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <fcntl.h>
#include <iostream>
#include <mutex>
#include <optional>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "octavo/v1/scan.grpc.pb.h"

#include "client/cpp/cli/interrupt.h"
#include "client/cpp/cli/terminal.h"
#include "gpu/base/status.h"
#include "server/storage/formats/file_kind.h"
#include "server/storage/formats/record_file.h"

namespace octavo::cli {
namespace {

constexpr int64_t kMessageBytes = 2 << 20;  // the size at which gRPC is fastest

storage::AskedRecords AskedOf(const v1::ReplayFile& replay, const v1::Acquisition& a) {
  storage::AskedRecords asked{.samples = a.samples_per_record(),
                              .channels = std::max<int64_t>(a.channels(), 1),
                              .raw_type_given = a.raw_type() != v1::RAW_TYPE_UNSPECIFIED,
                              .adc_bits = a.adc_bits(),
                              .header_bytes = replay.header_bytes(),
                              .allow_partial = replay.allow_partial()};
  switch (a.raw_type()) {
    case v1::RAW_TYPE_U8: asked.raw_type = DType::kU8; break;
    case v1::RAW_TYPE_I16: asked.raw_type = DType::kI16; break;
    case v1::RAW_TYPE_F32: asked.raw_type = DType::kF32; break;
    case v1::RAW_TYPE_U12P: asked.packing = math::Packing::kLowFirst12; break;
    case v1::RAW_TYPE_U12_PACKED: asked.packing = math::Packing::kHighFirst12; break;
    default: break;
  }
  return asked;
}

v1::RawType RawTypeOf(const storage::RecordFile& file) {
  if (file.packing != math::Packing::kNone)
    return file.packing == math::Packing::kLowFirst12 ? v1::RAW_TYPE_U12P : v1::RAW_TYPE_U12_PACKED;
  switch (file.raw_type) {
    case DType::kU8: return v1::RAW_TYPE_U8;
    case DType::kI16: return v1::RAW_TYPE_I16;
    case DType::kF32: return v1::RAW_TYPE_F32;
    default: return v1::RAW_TYPE_U16;
  }
}

// Reads all bytes from `offset`; returns the error, or empty.
std::string ReadAt(const storage::RecordFile& file, int64_t offset, std::string* out) {
  for (size_t done = 0; done < out->size();) {
    const ssize_t n = ::pread(file.fd.get(), out->data() + done, out->size() - done,
                              offset + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::StrCat(file.name, " cannot be read: ", std::strerror(errno));
    if (n == 0) return absl::StrCat(file.name, " became shorter while it was read");
    done += static_cast<size_t>(n);
  }
  return "";
}

}  // namespace

/// The server's answers so far. Two threads use it: one records answers, one waits for credit.
class FilePush::Answers {
 public:
  void Note(const v1::PushResponse& answer) {
    const std::lock_guard lock(mutex_);
    answer_ = answer;
    changed_.notify_all();
  }
  void End() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  /// Waits for an answer that allows more than `sent` blocks; null when the scan wants no more or
  /// the stream has ended.
  std::optional<v1::PushResponse> WaitForCredit(uint64_t sent) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ || answer_.done() || answer_.credit() > sent; });
    if (ended_ || answer_.done()) return std::nullopt;
    return answer_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  v1::PushResponse answer_;
  bool ended_ = false;
};

std::string FilePush::KindOfOther(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return "";
  std::string beginning(static_cast<size_t>(storage::kKindBytes), '\0');
  const ssize_t n = ::pread(fd.get(), beginning.data(), beginning.size(), 0);
  beginning.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return storage::KindOfFile(beginning);
}

bool FilePush::Instead(const std::string& reason) {
  return reason == "OUTSIDE_ROOTS" || reason == "NO_FILE";
}

std::unique_ptr<FilePush> FilePush::Open(v1::ScanSpec* spec, std::string* error) {
  const v1::ReplayFile replay = spec->replay();
  UniqueFd fd(::open(replay.path().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) {
    if (errno != ENOENT && errno != ENOTDIR)
      *error = absl::StrCat(replay.path(), " cannot be opened here: ", std::strerror(errno));
    return nullptr;
  }
  auto file =
      storage::OpenRecords(std::move(fd), replay.path(), absl::EndsWith(replay.path(), ".npy"),
                           AskedOf(replay, spec->acquisition()));
  auto doubts = file.ok() ? storage::DoubtsOf(*file) : file.status();
  if (!doubts.ok()) {
    *error = std::string(doubts.status().message());
    return nullptr;
  }
  const v1::Pattern& pattern = spec->pattern();
  if (pattern.has_raster() && pattern.flyback() != v1::FLYBACK_POLICY_MINIMUM_TIME &&
      spec->acquisition().record_average() <= 1) {
    const v1::Raster& raster = pattern.raster();
    std::string doubt =
        storage::ShapeDoubt(file->shape, {.ascans = raster.ascans_per_bscan(),
                                          .flyback = raster.flyback_records(),
                                          .bscans = raster.bscans_per_volume(),
                                          .volume_flyback = raster.volume_flyback_records(),
                                          .volumes = raster.volumes()});
    if (!doubt.empty()) doubts->push_back(std::move(doubt));
  }
  spec->mutable_push();
  spec->mutable_acquisition()->set_samples_per_record(static_cast<uint32_t>(file->samples));
  spec->mutable_acquisition()->set_raw_type(RawTypeOf(*file));
  return std::unique_ptr<FilePush>(
      new FilePush(*std::move(file), *std::move(doubts), replay.loops(), replay.rate_hz()));
}

FilePush::FilePush(storage::RecordFile file, std::vector<std::string> doubts, uint32_t loops,
                   double rate_hz)
    : file_(std::make_unique<const storage::RecordFile>(std::move(file))),
      doubts_(std::move(doubts)),
      loops_(loops),
      rate_hz_(rate_hz) {}

FilePush::~FilePush() = default;

std::string FilePush::Describe() const {
  return absl::StrCat("the server does not reach '", file_->name,
                      "': octavo reads it here and pushes it; it holds ", file_->records,
                      " records of ", file_->samples, " samples (", Info(file_->raw_type).name,
                      file_->packing == math::Packing::kNone ? ")" : ", 12 bits packed)");
}

void FilePush::CompareWith(uint64_t wanted) const {
  if (wanted == 0 || loops_ == 0) return;
  const uint64_t all = static_cast<uint64_t>(file_->records) * loops_;
  if (all == wanted) return;
  std::cerr << "  warning: The file holds " << file_->records << " records"
            << (loops_ > 1 ? absl::StrCat(", sent ", loops_, " times") : "") << "; the scan takes "
            << wanted
            << (all > wanted ? absl::StrCat(" of them: ", all - wanted, " are left out.")
                             : ": it ends early, and its last volume may lack A-scans.")
            << "\n";
}

std::string FilePush::Write(grpc::ClientReaderWriter<v1::PushRequest, v1::PushResponse>& stream,
                            Answers& answers) const {
  const auto begun = std::chrono::steady_clock::now();
  ProgressBar bar("sending");
  uint64_t sent = 0;
  int64_t next = 0;  // record of the scan
  v1::PushRequest block;
  while (loops_ == 0 || next < file_->records * static_cast<int64_t>(loops_)) {
    const auto answer = answers.WaitForCredit(sent);
    if (!answer.has_value()) return "";
    if (sent == 0) CompareWith(answer->total_records());
    const int64_t at = next % file_->records;
    const int64_t records =
        std::min({static_cast<int64_t>(answer->max_block_records()), file_->records - at,
                  std::max<int64_t>(1, kMessageBytes / file_->record_bytes)});
    block.set_first_record(static_cast<uint64_t>(next));
    block.set_records(static_cast<uint32_t>(records));
    block.mutable_data()->resize(static_cast<size_t>(records * file_->record_bytes));
    if (std::string problem =
            ReadAt(*file_, file_->data_offset + at * file_->record_bytes, block.mutable_data());
        !problem.empty())
      return problem;
    if (rate_hz_ > 0)
      std::this_thread::sleep_until(
          begun + std::chrono::duration<double>(static_cast<double>(next + records) / rate_hz_));
    if (!stream.Write(block)) return "";
    ++sent;
    next += records;
    const uint64_t wanted = answer->total_records();
    if (wanted > 0)
      bar.Update(static_cast<double>(next) / static_cast<double>(wanted),
                 absl::StrCat(next, " records"), 0);
  }
  v1::PushRequest end;
  end.set_end(true);
  stream.Write(end);
  return "";
}

void FilePush::Send(Session& session, const std::string& scan) {
  const OnInterrupt interrupt([&session, scan] {
    v1::CancelScanRequest request;
    request.set_name(scan);
    v1::CancelScanResponse answer;
    Check(session, v1::ScanService::NewStub(session.channel())
                       ->CancelScan(session.Context().get(), request, &answer));
  });
  grpc::ClientContext context;
  const auto stream = v1::IngestService::NewStub(session.channel())->Push(&context);
  v1::PushRequest hello;
  hello.set_scan(scan);
  stream->Write(hello);
  Answers answers;
  std::thread reader([&] {
    for (v1::PushResponse answer; stream->Read(&answer);) answers.Note(answer);
    answers.End();
  });
  const std::string problem = Write(*stream, answers);
  stream->WritesDone();
  if (!problem.empty()) context.TryCancel();
  reader.join();
  const grpc::Status status = stream->Finish();
  if (interrupt.came()) {
    session.exit_code = kInterrupted;
  } else if (!problem.empty()) {
    std::cerr << "octavo: " << Printable(problem) << "; " << scan
              << " waits for the records that are missing (octavo scan cancel " << scan << ")\n";
    session.exit_code = kFailed;
  } else {
    Check(session, status);
  }
}

}  // namespace octavo::cli

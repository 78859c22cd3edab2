#include "server/storage/direct/storage_reads.h"

#include <algorithm>
#include <chrono>
#include <sys/vfs.h>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/storage/direct/probe_file.h"
#include "server/storage/io/files.h"

namespace octavo::storage {
namespace {

constexpr int64_t kFirstBytes = 64 << 20;  // of a measurement that nobody asked for
constexpr std::chrono::milliseconds kFirstPatience(1500);
constexpr std::chrono::milliseconds kAskedPatience = std::chrono::hours(1);
/// O_DIRECT leaves nothing in the page cache for the next reader: it has to be this much faster.
constexpr double kWorthwhile = 1.05;

/// One range of a file, as elements of a byte.
class RangeSource final : public PieceSource {
 public:
  RangeSource(std::shared_ptr<DataFile> file, int64_t offset, int64_t bytes)
      : file_(std::move(file)), offset_(offset), bytes_(bytes) {
    units_ = 1;
  }
  absl::Status Open(int64_t, std::vector<StoredPiece>* out) const override {
    StoredPiece piece;
    piece.file = file_;
    piece.offset = offset_;
    piece.bytes = bytes_;
    piece.stride = {1};
    piece.to = {0};
    piece.count = {bytes_};
    out->push_back(std::move(piece));
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<DataFile> file_;
  const int64_t offset_, bytes_;
};

std::string Speed(double bytes_per_s) { return absl::StrFormat("%.2f GB/s", bytes_per_s / 1e9); }

/// "ext4", for people.
std::string FileSystemOf(const std::string& path) {
  struct statfs info {};
  if (::statfs(path.c_str(), &info) != 0) return "an unknown file system";
  switch (static_cast<uint64_t>(info.f_type)) {
    case 0xEF53: return "ext4";
    case 0x58465342: return "xfs";
    case 0x9123683E: return "btrfs";
    case 0x01021994: return "tmpfs";
    case 0x794C7630: return "overlayfs";
    case 0x6969: return "NFS";
    case 0x2FC12FC1: return "ZFS";
    case 0x65735546: return "FUSE";
    case 0xF15F: return "ecryptfs";
    case 0x0BD00BD0: return "Lustre";
    default: return absl::StrFormat("a file system of the type 0x%x", info.f_type);
  }
}

}  // namespace

struct StorageReads::Root {
  std::string path;
  RootWay way;
  std::atomic<bool> tried{false};  // to measure it
  mutable Mutex mutex;
  std::string reason ABSL_GUARDED_BY(mutex) = "not measured yet";
  CuFileRefusal cufile ABSL_GUARDED_BY(mutex);
  double bytes_per_s[4] ABSL_GUARDED_BY(mutex) = {0, 0, 0, 0};
  std::optional<TimePoint> measured ABSL_GUARDED_BY(mutex);
};

StorageReads::StorageReads(Config config) : config_(std::move(config)) {
  for (const std::string& path : config_.roots) {
    if (Find(path) != nullptr) continue;
    auto root = std::make_unique<Root>();
    root->path = path;
    const MutexLock lock(root->mutex);
    switch (config_.setting) {
      case ReadSetting::kAuto: break;
      case ReadSetting::kOff:
        root->reason = "storage.direct is off: files are put together in host memory";
        break;
      case ReadSetting::kBuffered:
        root->way.Set(ReadWay::kBuffered, ReadWay::kBuffered);
        root->reason = "storage.direct is buffered";
        break;
      case ReadSetting::kDirect:
        root->way.Set(ReadWay::kDirect, ReadWay::kDirect);
        root->reason = "storage.direct is direct";
        break;
      case ReadSetting::kCufile:
        root->reason = "storage.direct is cufile; it is tried at the first read";
        break;
    }
    if (config_.setting != ReadSetting::kAuto && config_.setting != ReadSetting::kCufile)
      root->cufile = {WhyNot::kOff, root->reason};
    roots_.push_back(std::move(root));
  }
}

StorageReads::~StorageReads() = default;

StorageReads::Root* StorageReads::Find(const std::string& root) const {
  const auto found = std::find_if(roots_.begin(), roots_.end(),
                                  [&](const auto& one) { return one->path == root; });
  return found == roots_.end() ? nullptr : found->get();
}

const CuFile* StorageReads::OpenCuFile(const Device& device, CuFileRefusal* refusal) {
  if (config_.cufile.check_host && device.info().backend == "host") {
    *refusal = {WhyNot::kNoGpu, "the device is no GPU"};
    return nullptr;
  }
  const MutexLock lock(mutex_);
  if (cufile_ == nullptr) {
    cufile_ = CuFile::Open(config_.cufile);
    Log(LogLevel::kInfo, "cuFile",
        {{"usable", cufile_->usable() ? "yes" : "no"},
         {"version", cufile_->version()},
         {"why", cufile_->refusal().text}});
  }
  *refusal = cufile_->refusal();
  return cufile_->usable() ? cufile_.get() : nullptr;
}

absl::StatusOr<StorageReads::Choice> StorageReads::ChooseFor(const std::string& path,
                                                             const Place& place) {
  // Of roots within roots, the inner one.
  Root* root = nullptr;
  for (const auto& one : roots_) {
    const std::string real = RealPath(one->path);
    if (!real.empty() && (path == real || IsInside(path, real)) &&
        (root == nullptr || one->path.size() > root->path.size()))
      root = one.get();
  }
  if (root == nullptr) return Choice{};
  const bool measures =
      config_.setting == ReadSetting::kAuto || config_.setting == ReadSetting::kCufile;
  if (measures && !root->tried && place.memory.bytes() >= ProbeFile::kLeastBytes &&
      !measuring_.exchange(true)) {
    const absl::Cleanup over = [this] { measuring_ = false; };
    const absl::Status measured = MeasureRoot(root, kFirstBytes, kFirstPatience, place);
    // What may be otherwise at the next read is tried again then: a cancel, too little memory or
    // disk.
    root->tried = !absl::IsCancelled(measured) && !absl::IsResourceExhausted(measured);
    if (!measured.ok()) {
      OCTAVO_RETURN_IF_ERROR(place.go_on());
      OCTAVO_RETURN_IF_ERROR(place.device->Health());
      const MutexLock lock(root->mutex);
      root->reason = absl::StrCat("it could not be measured: ", measured.message());
      Log(LogLevel::kWarning, "storage root not measured",
          {{"root", root->path}, {"why", std::string(measured.message())}});
    }
  }
  const MutexLock lock(mutex_);
  return Choice{.way = &root->way,
                .cufile = cufile_ != nullptr && cufile_->usable() ? cufile_.get() : nullptr};
}

absl::StatusOr<int64_t> StorageReads::DeviceBytes(Device& device, int64_t memory) {
  return DeviceReader::DeviceBytes(device, RangeSource(nullptr, 0, memory), memory);
}

absl::StatusOr<StorageReads::Turn> StorageReads::Begin(const std::string& path) {
  Root* const root = Find(path);
  if (root == nullptr)
    return WithInfo(
        absl::NotFoundError(absl::StrCat("root: '", path, "' is no storage root of this server")),
        {.reason = Reason::kNoFile, .field = "root", .numbers = {}});
  if (measuring_.exchange(true))
    return WithInfo(
        absl::FailedPreconditionError("another measurement runs; ask again when it is over"),
        {.reason = Reason::kMeasuring, .field = "", .numbers = {}});
  return Turn(root, &measuring_);
}

absl::StatusOr<RootReads> StorageReads::Measure(const Turn& turn, int64_t bytes,
                                                const Place& place) {
  OCTAVO_RETURN_IF_ERROR(MeasureRoot(turn.root_, bytes, kAskedPatience, place));
  turn.root_->tried = true;
  return Told(*turn.root_);
}

absl::Status StorageReads::MeasureRoot(Root* root, int64_t bytes,
                                       std::chrono::milliseconds patience, const Place& place) {
  OCTAVO_ASSIGN_OR_RETURN(const std::unique_ptr<ProbeFile> probe,
                          ProbeFile::Make(root->path, bytes, patience, place.go_on));
  const int64_t window = std::min(place.memory.bytes(), probe->bytes());
  OCTAVO_ASSIGN_OR_RETURN(const uint64_t digest, probe->Digest(window));
  OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer word, place.device->Allocate(sizeof(uint64_t)));
  OCTAVO_ASSIGN_OR_RETURN(const std::shared_ptr<void> host, place.lend(sizeof(uint64_t)));
  CuFileRefusal refusal;
  const CuFile* const cufile = OpenCuFile(*place.device, &refusal);
  double speeds[4] = {0, 0, 0, 0};
  // The bytes per second of one way; an error of the drive or of the device.
  const auto measure = [&](ReadWay kind, CuFileRefusal* failed) -> absl::Status {
    RootWay way;
    way.Set(kind, kind == ReadWay::kCufile ? ReadWay::kBuffered : kind);
    probe->Evict();
    double seconds = 0;
    for (int64_t at = 0; at < probe->bytes(); at += window) {
      const int64_t part = std::min(window, probe->bytes() - at);
      const RangeSource source(probe->file(), at, part);
      const DeviceRead read{.device = place.device,
                            .lend = place.lend,
                            .source = &source,
                            .box_axis = {-1, -1, 0},
                            .out_stride = {0, 0, 1},
                            .out = place.memory.data(),
                            .elements = part,
                            .spec = {},
                            .way = &way,
                            .cufile = cufile,
                            .use_cached = false};
      OCTAVO_ASSIGN_OR_RETURN(const auto reader, DeviceReader::Create(read));
      const auto begun = std::chrono::steady_clock::now();
      OCTAVO_RETURN_IF_ERROR(reader->Run(place.stream, [&](double) { return place.go_on(); }));
      seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
      if (kind == ReadWay::kCufile && (way.errors() > 0 || reader->cufile_bytes() == 0)) {
        const auto handle = probe->file()->CuFileHandle(*cufile);
        const std::string hint = IommuHint(config_.cufile.root);
        const std::string system = FileSystemOf(root->path);
        if (!handle.ok() && !hint.empty())
          *failed = {WhyNot::kIommu, absl::StrCat(hint, "; ", handle.status().message())};
        else if (!handle.ok())
          *failed = {WhyNot::kFileSystem,
                     absl::StrCat("cuFile takes no files of ", system,
                                  " on this drive: ", handle.status().message())};
        else
          *failed = {WhyNot::kFailed, absl::StrCat("cuFile failed ", way.errors(),
                                                   " reads of a file to measure, on ", system, ": ",
                                                   way.last_error())};
        return absl::OkStatus();
      }
      if (at > 0) continue;
      // A way that brings other bytes is never taken.
      OCTAVO_RETURN_IF_ERROR(
          place.device->Digest(place.stream, DeviceSpan<const uint8_t>(place.memory.data(), window),
                               word.span<uint64_t>()));
      OCTAVO_RETURN_IF_ERROR(
          place.device->CopyToHost(place.stream, host.get(), word.data(), sizeof(uint64_t)));
      OCTAVO_RETURN_IF_ERROR(place.stream.Synchronize());
      if (*static_cast<const uint64_t*>(host.get()) == digest) continue;
      if (kind != ReadWay::kCufile)
        return WithInfo(absl::UnavailableError(absl::StrCat(
                            root->path, ": a file was read with other bytes than were written")),
                        {.reason = Reason::kIoError, .field = "root", .numbers = {}});
      *failed = {WhyNot::kFailed, "cuFile brought other bytes than the file has"};
      return absl::OkStatus();
    }
    speeds[static_cast<int>(kind)] = static_cast<double>(probe->bytes()) / seconds;
    return absl::OkStatus();
  };
  constexpr int kBuffered = static_cast<int>(ReadWay::kBuffered),
                kDirect = static_cast<int>(ReadWay::kDirect),
                kCufile = static_cast<int>(ReadWay::kCufile);
  OCTAVO_RETURN_IF_ERROR(measure(ReadWay::kBuffered, &refusal));
  const bool direct = probe->file()->CanReadDirect();
  if (direct) OCTAVO_RETURN_IF_ERROR(measure(ReadWay::kDirect, &refusal));
  if (cufile != nullptr) OCTAVO_RETURN_IF_ERROR(measure(ReadWay::kCufile, &refusal));
  const ReadWay by_host =
      speeds[kDirect] > kWorthwhile * speeds[kBuffered] ? ReadWay::kDirect : ReadWay::kBuffered;
  ReadWay chosen = by_host;
  const double best = speeds[static_cast<int>(by_host)];
  const bool forced = config_.setting == ReadSetting::kCufile;
  if (speeds[kCufile] > best || (forced && speeds[kCufile] > 0)) {
    chosen = ReadWay::kCufile;
  } else if (speeds[kCufile] > 0) {
    refusal = {WhyNot::kSlower, absl::StrCat("cuFile was slower: ", Speed(speeds[kCufile]),
                                             " against ", Speed(best))};
  }
  // The configuration may name a way: the measurement is then told, and changes nothing.
  std::string reason = absl::StrCat(
      "measured with ", probe->bytes() >> 20, " MiB: buffered ", Speed(speeds[kBuffered]), ", ",
      direct ? absl::StrCat("O_DIRECT ", Speed(speeds[kDirect]))
             : absl::StrCat(FileSystemOf(root->path), " has no O_DIRECT"),
      speeds[kCufile] > 0 ? absl::StrCat(", cuFile ", Speed(speeds[kCufile])) : "");
  if (config_.setting == ReadSetting::kBuffered) chosen = ReadWay::kBuffered;
  if (config_.setting == ReadSetting::kDirect) chosen = ReadWay::kDirect;
  if (config_.setting != ReadSetting::kAuto) {
    constexpr const char* kSettings[] = {"auto", "off", "buffered", "direct", "cufile"};
    reason = absl::StrCat("storage.direct is ", kSettings[static_cast<int>(config_.setting)], "; ",
                          reason);
  }
  Log(LogLevel::kInfo, "storage root measured",
      {{"root", root->path}, {"way", Name(chosen)}, {"why", reason}, {"cufile", refusal.text}});
  const MutexLock lock(root->mutex);
  if (config_.setting == ReadSetting::kOff) chosen = ReadWay::kUnmeasured;
  root->way.Set(chosen, chosen == ReadWay::kCufile ? by_host : chosen);
  root->reason = std::move(reason);
  root->cufile = chosen == ReadWay::kCufile ? CuFileRefusal{} : std::move(refusal);
  std::copy(speeds, speeds + 4, root->bytes_per_s);
  if (config_.clock != nullptr) root->measured = config_.clock->Now();
  return absl::OkStatus();
}

RootReads StorageReads::Told(const Root& root) const {
  RootReads out;
  const MutexLock lock(root.mutex);
  out.root = root.path;
  out.way = root.way.now();
  out.reason = root.reason;
  out.cufile = root.cufile.text;
  out.cufile_errors = root.way.errors();
  out.demoted = root.way.demoted();
  std::copy(root.bytes_per_s, root.bytes_per_s + 4, out.bytes_per_s);
  out.measured = root.measured;
  out.word = Name(root.cufile.why);
  if (out.demoted) {
    out.word = Name(WhyNot::kDemoted);
    out.cufile = absl::StrCat("cuFile failed ", RootWay::kMostErrors,
                              " reads since the last measurement (`octavo storage probe` measures "
                              "anew): ",
                              root.way.last_error());
    out.reason = absl::StrCat("cuFile failed too often; ", root.reason);
  } else if (out.way == ReadWay::kCufile) {
    out.word = config_.setting == ReadSetting::kCufile ? "configured" : "fastest";
  } else if (config_.setting == ReadSetting::kBuffered || config_.setting == ReadSetting::kDirect) {
    out.word = "configured";
  } else if (!root.measured.has_value() && root.cufile.why == WhyNot::kNone) {
    out.word = "unmeasured";
  }
  return out;
}

std::vector<RootReads> StorageReads::List() const {
  std::vector<RootReads> list;
  for (const auto& root : roots_) list.push_back(Told(*root));
  return list;
}

const std::vector<std::string>& StorageReads::ReasonWords() {
  static const auto& words = *[] {
    auto* const made = new std::vector<std::string>{"configured", "fastest", "unmeasured"};
    for (int why = 1; why < kWhyNots; ++why) made->emplace_back(Name(static_cast<WhyNot>(why)));
    return made;
  }();
  return words;
}

}  // namespace octavo::storage

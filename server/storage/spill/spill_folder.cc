#include "server/storage/spill/spill_folder.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "gpu/base/descriptors.h"
#include "gpu/base/failpoint.h"
#include "gpu/base/json.h"
#include "gpu/base/log.h"
#include "gpu/base/mutex.h"
#include "gpu/base/size_text.h"
#include "gpu/base/status.h"
#include "gpu/base/unique_fd.h"
#include "server/storage/formats/writer.h"
#include "server/storage/io/crc32c.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"
#include "server/storage/io/json_members.h"
#include "server/storage/io/own_file.h"

namespace octavo::storage {

bool IsSpillId(absl::string_view text) {
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '-';
  });
}

namespace {

// Bytes of each CRC. The footer says it, and a file with another one counts as damaged: whoever
// changes this needs a reader for both.
constexpr int64_t kBlock = 1 << 20;
constexpr char kMagic[4] = {'O', 'S', 'P', '1'};
constexpr int64_t kTailBytes = 16, kNoteAt = 7;  // the note's place in the tail
constexpr char kSpillSuffix[] = ".spill", kTemporarySuffix[] = ".tmp",
               kDamagedSuffix[] = ".damaged";

std::string TailOf(const std::string& footer) {
  std::string tail(kTailBytes, '\0');
  const uint64_t length = footer.size();
  const uint32_t crc = Crc32c(footer.data(), footer.size());
  std::memcpy(tail.data(), &length, 8);
  std::memcpy(tail.data() + 8, &crc, 4);
  std::memcpy(tail.data() + 12, kMagic, 4);
  return tail;
}

/// Reserved room, given back once.
class Quota {
 public:
  explicit Quota(int64_t most) : most_(most) {}
  absl::Status Take(int64_t bytes) {
    int64_t used = used_;
    do {
      if (used + bytes <= most_) continue;
      return WithInfo(absl::ResourceExhaustedError(absl::StrCat(
                          "the spill directory uses ", SizeText(used), " of its ", SizeText(most_),
                          "; the volume needs ", SizeText(bytes),
                          "; commit or discard spilled volumes, or raise spill.disk_bytes")),
                      {.reason = Reason::kSpillQuota,
                       .field = "",
                       .numbers = {{"wanted", absl::StrCat(bytes)},
                                   {"used", absl::StrCat(used)},
                                   {"quota", absl::StrCat(most_)},
                                   {"retryable", "true"}}});
    } while (!used_.compare_exchange_weak(used, used + bytes));
    return absl::OkStatus();
  }
  /// Files that an earlier process left count, even above the quota.
  void TakeAnyway(int64_t bytes) { used_ += bytes; }
  void Give(int64_t bytes) { used_ -= bytes; }
  int64_t used() const { return used_; }
  int64_t most() const { return most_; }

 private:
  const int64_t most_;
  std::atomic<int64_t> used_{0};
};

/// A spilled file that is being read: one descriptor and one block for all its readers, because any
/// number of clients may stop in the middle.
struct OpenSpill {
  using Block = std::shared_ptr<const std::vector<char>>;
  UniqueFd fd;
  Mutex mutex;
  int64_t number ABSL_GUARDED_BY(mutex) = -1;  // of `block`
  Block block ABSL_GUARDED_BY(mutex);          // the one that was last read in part

  Block Find(int64_t wanted) {
    MutexLock lock(mutex);
    return number == wanted ? block : nullptr;
  }
  void Keep(int64_t its_number, Block read) {
    MutexLock lock(mutex);
    number = its_number;
    block.swap(read);
  }
};

class Cursor final : public SpillCursor {
 public:
  Cursor(std::string path, std::shared_ptr<OpenSpill> file, int64_t bytes,
         std::shared_ptr<const std::vector<uint32_t>> crcs)
      : path_(std::move(path)), file_(std::move(file)), bytes_(bytes), crcs_(std::move(crcs)) {}

  absl::Status Read(int64_t offset, int64_t bytes, void* out) override {
    if (offset < 0 || bytes < 0 || bytes > bytes_ - offset) {
      return absl::OutOfRangeError(
          absl::StrCat(path_, ": ", bytes, " bytes from ", offset, " of ", bytes_));
    }
    auto* to = static_cast<char*>(out);
    while (bytes > 0) {
      const int64_t block = offset / kBlock, begin = block * kBlock,
                    size = std::min(kBlock, bytes_ - begin);
      const int64_t count = std::min(bytes, begin + size - offset);
      if (count == size) {  // a whole block is copied directly
        OCTAVO_RETURN_IF_ERROR(ReadBlock(block, size, to));
      } else {
        OpenSpill::Block there = file_->Find(block);
        if (there == nullptr) {
          auto read = std::make_shared<std::vector<char>>(static_cast<size_t>(size));
          OCTAVO_RETURN_IF_ERROR(ReadBlock(block, size, read->data()));
          there = std::move(read);
          file_->Keep(block, there);
        }
        std::memcpy(to, there->data() + (offset - begin), static_cast<size_t>(count));
      }
      to += count;
      offset += count;
      bytes -= count;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadBlock(int64_t block, int64_t size, char* data) const {
    OCTAVO_RETURN_IF_ERROR(
        ReadAllAt(file_->fd.get(), path_, data, static_cast<size_t>(size), block * kBlock));
    if (Crc32c(data, static_cast<size_t>(size)) == (*crcs_)[static_cast<size_t>(block)])
      return absl::OkStatus();
    return WithInfo(absl::DataLossError(absl::StrCat(path_, " changed since it was written: MiB ",
                                                     block, " has another CRC")),
                    {.reason = Reason::kSpillDamaged,
                     .field = "",
                     .numbers = {{"block", absl::StrCat(block)}}});
  }

  const std::string path_;
  const std::shared_ptr<OpenSpill> file_;
  const int64_t bytes_;
  const std::shared_ptr<const std::vector<uint32_t>> crcs_;
};

absl::Status WriteNote(int fd, const std::string& path, SpillNote note) {
  if (const int error = Failpoint("spill_note")) return ErrnoStatus(error, "writing", path);
  struct stat info {};
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, "looking at", path);
  OCTAVO_RETURN_IF_ERROR(WriteAllAt(fd, path, &note, 1, info.st_size - kTailBytes + kNoteAt));
  if (::fdatasync(fd) != 0) return ErrnoStatus(errno, "syncing", path);
  return absl::OkStatus();
}

class File final : public SpillFile {
 public:
  File(std::string path, int64_t bytes, int64_t charged,
       std::shared_ptr<const std::vector<uint32_t>> crcs, std::shared_ptr<Quota> quota)
      : path_(std::move(path)),
        bytes_(bytes),
        charged_(charged),
        crcs_(std::move(crcs)),
        quota_(std::move(quota)) {}

  const std::string& path() const override { return path_; }
  int64_t bytes() const override { return bytes_; }
  int64_t charged_bytes() const override { return charged_; }
  absl::StatusOr<std::unique_ptr<SpillCursor>> Open() const override {
    MutexLock lock(opening_);
    if (removed_) return ErrnoStatus(ENOENT, "opening", path_);
    auto file = open_.lock();
    if (file == nullptr) {
      file = std::make_shared<OpenSpill>();
      file->fd = UniqueFd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
      if (file->fd && !LeavesDescriptors(file->fd.get())) {
        file->fd = UniqueFd();
        errno = EMFILE;
      }
      if (!file->fd) return ErrnoStatus(errno, "opening", path_);
      open_ = file;
    }
    return std::make_unique<Cursor>(path_, std::move(file), bytes_, crcs_);
  }
  void Remove() override {
    // Held while the disk works: whoever comes second returns when the file is gone.
    MutexLock lock(removal_);
    if (gone_) return;
    removed_ = true;
    int error = Failpoint("spill_remove");
    if (error == 0 && ::unlink(path_.c_str()) != 0 && errno != ENOENT) error = errno;
    if (error != 0) {
      removed_ = false;
      Log(LogLevel::kError, "spill file not removed; the next start holds its volume again",
          {{"file", path_},
           {"error", std::string(ErrnoStatus(error, "removing", path_).message())}});
      return;
    }
    gone_ = true;
    quota_->Give(charged_);
    // Otherwise a power loss may restore the file.
    if (const absl::Status synced = SyncDirectory(ParentOf(path_)); !synced.ok()) {
      Log(LogLevel::kError,
          "spill directory not synced; after a power loss the next start may hold the removed "
          "volume "
          "again",
          {{"file", path_}, {"error", std::string(synced.message())}});
    }
  }
  absl::Status Write(SpillNote note) override {
    const UniqueFd fd(::open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
    // What was opened before the removal began is this file, and no later one of its name.
    if (removed_) return absl::OkStatus();
    if (!fd) return ErrnoStatus(errno, "opening", path_);
    return WriteNote(fd.get(), path_, note);
  }

 private:
  const std::string path_;
  const int64_t bytes_, charged_;
  const std::shared_ptr<const std::vector<uint32_t>> crcs_;
  const std::shared_ptr<Quota> quota_;
  std::atomic<bool> removed_{false};  // or about to be
  mutable Mutex opening_;
  mutable std::weak_ptr<OpenSpill> open_ ABSL_GUARDED_BY(opening_);  // null: nobody reads
  Mutex removal_;
  bool gone_ ABSL_GUARDED_BY(removal_) = false;
};

class Writer final : public SpillWriter {
 public:
  Writer(std::string temporary, std::string final, int64_t bytes, nlohmann::json about,
         std::shared_ptr<Quota> quota)
      : temporary_(std::move(temporary)),
        final_(std::move(final)),
        bytes_(bytes),
        about_(std::move(about)),
        quota_(std::move(quota)) {}
  ~Writer() override {
    if (finished_) return;
    if (fd_) ::unlink(temporary_.c_str());
    quota_->Give(charged_);
  }

  absl::Status Start() {
    const int64_t charged = SpillFileBytes(bytes_, about_);
    OCTAVO_RETURN_IF_ERROR(quota_->Take(charged));
    charged_ = charged;
    if (const int error = Failpoint("spill_create"))
      return ErrnoStatus(error, "creating", temporary_);
    fd_ = UniqueFd(
        ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd_) return ErrnoStatus(errno, "creating", temporary_);
    // Reserve the room, so that a full disk is found before any data move.
    if (::fallocate(fd_.get(), FALLOC_FL_KEEP_SIZE, 0, bytes_) != 0 &&
        (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
      return ErrnoStatus(errno == EFBIG ? ENOSPC : errno, "making room for", temporary_);
    }
    return absl::OkStatus();
  }

  absl::Status Append(const void* data, int64_t bytes) override {
    if (const int error = Failpoint("spill_write"))
      return ErrnoStatus(error, "writing", temporary_);
    if (bytes > bytes_ - done_)
      return absl::InternalError(absl::StrCat(temporary_, ": more than its ", bytes_, " bytes"));
    OCTAVO_RETURN_IF_ERROR(
        WriteAllAt(fd_.get(), temporary_, data, static_cast<size_t>(bytes), done_));
    const auto* p = static_cast<const char*>(data);
    while (bytes > 0) {
      const int64_t in_block = done_ % kBlock, count = std::min(bytes, kBlock - in_block);
      if (in_block == 0) crcs_.push_back(0);
      crcs_.back() = Crc32c(p, static_cast<size_t>(count), crcs_.back());
      p += count;
      done_ += count;
      bytes -= count;
    }
    return absl::OkStatus();
  }

  void SetAbout(nlohmann::json about) override { about_ = std::move(about); }
  void SetGate(std::shared_ptr<SpillGate> gate) override { gate_ = std::move(gate); }

  absl::StatusOr<std::shared_ptr<SpillFile>> Finish() override {
    if (done_ != bytes_)
      return absl::InternalError(
          absl::StrCat(temporary_, ": got ", done_, " of ", bytes_, " bytes"));
    const nlohmann::json footer = {{"octavo_spill", 1},
                                   {"about", about_},
                                   {"bytes", bytes_},
                                   {"block", kBlock},
                                   {"crc32c", crcs_}};
    std::string text = footer.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    text += TailOf(text);
    OCTAVO_RETURN_IF_ERROR(WriteAllAt(fd_.get(), temporary_, text.data(), text.size(), bytes_));
    if (const int error = Failpoint("spill_footer"))
      return ErrnoStatus(error, "writing", temporary_);
    if (::fdatasync(fd_.get()) != 0) return ErrnoStatus(errno, "syncing", temporary_);
    if (const int error = Failpoint("spill_synced"))
      return ErrnoStatus(error, "syncing", temporary_);
    auto file = std::make_shared<File>(
        final_, bytes_, charged_, std::make_shared<const std::vector<uint32_t>>(std::move(crcs_)),
        quota_);
    const auto rename = [this]() -> absl::Status {
      OCTAVO_RETURN_IF_ERROR(RenameNoReplace(temporary_, final_));
      finished_ = true;
      return absl::OkStatus();
    };
    OCTAVO_RETURN_IF_ERROR(gate_ == nullptr ? rename() : gate_->Pass(file, rename));
    if (absl::Status synced = SyncDirectory(ParentOf(final_)); !synced.ok()) {
      file->Remove();
      return synced;
    }
    (void)Failpoint("spill_renamed");
    return file;
  }

 private:
  const std::string temporary_, final_;
  const int64_t bytes_;
  nlohmann::json about_;
  const std::shared_ptr<Quota> quota_;
  std::shared_ptr<SpillGate> gate_;
  UniqueFd fd_;
  int64_t charged_ = 0, done_ = 0;
  std::vector<uint32_t> crcs_;
  bool finished_ = false;
};

class Folder final : public SpillFolder {
 public:
  Folder(std::string path, int64_t quota_bytes, UniqueFd lock)
      : path_(std::move(path)),
        lock_(std::move(lock)),
        quota_(std::make_shared<Quota>(quota_bytes)) {}

  absl::StatusOr<std::unique_ptr<SpillWriter>> Create(const std::string& id, int64_t bytes,
                                                      const nlohmann::json& about) override {
    if (!IsSpillId(id))
      return InvalidField("id",
                          absl::StrCat("is '", id, "'; allowed 1 to 128 letters, digits and '-'"));
    // A name of its own: the file of a mirror that nobody wants any more may still be on its way to
    // the disk when the volume is spilled.
    auto writer =
        std::make_unique<Writer>(absl::StrCat(path_, "/.", id, "-", ++written_, kTemporarySuffix),
                                 absl::StrCat(path_, "/", id, kSpillSuffix), bytes, about, quota_);
    OCTAVO_RETURN_IF_ERROR(writer->Start());
    return writer;
  }
  const std::string& path() const override { return path_; }
  int64_t quota_bytes() const override { return quota_->most(); }
  int64_t used_bytes() const override { return quota_->used(); }
  int64_t disk_free_bytes() const override {
    struct statvfs fs {};
    return ::statvfs(path_.c_str(), &fs) == 0
               ? static_cast<int64_t>(fs.f_bavail) * static_cast<int64_t>(fs.f_frsize)
               : 0;
  }

  /// Reads the footer of a file. DataLoss if it is damaged.
  absl::StatusOr<Found> Look(const std::string& path) {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat info {};
    if (!fd || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode))
      return absl::DataLossError("it cannot be opened");
    if (info.st_size < kTailBytes) return absl::DataLossError("it is too short");
    std::string tail(kTailBytes, '\0');
    OCTAVO_RETURN_IF_ERROR(
        ReadAllAt(fd.get(), path, tail.data(), tail.size(), info.st_size - kTailBytes));
    const auto note = static_cast<SpillNote>(std::exchange(tail[kNoteAt], '\0'));
    if (note > SpillNote::kMarked) return absl::DataLossError("its note is none");
    uint64_t length = 0;
    std::memcpy(&length, tail.data(), 8);
    if (std::memcmp(tail.data() + 12, kMagic, 4) != 0 ||
        length > static_cast<uint64_t>(info.st_size - kTailBytes)) {
      return absl::DataLossError("it has no footer");
    }
    // It holds a CRC of each block of voxels and every range of missing A-scans.
    constexpr JsonLimits kLimits{.bytes = size_t{1} << 30, .values = size_t{1} << 26};
    if (length > kLimits.bytes)
      return absl::DataLossError(
          absl::StrCat("its footer has ", length, " bytes; allowed at most ", kLimits.bytes));
    std::string footer(length, '\0');
    const int64_t voxels = info.st_size - kTailBytes - static_cast<int64_t>(length);
    OCTAVO_RETURN_IF_ERROR(ReadAllAt(fd.get(), path, footer.data(), footer.size(), voxels));
    if (TailOf(footer) != tail)
      return absl::DataLossError("its footer has another CRC than it says");
    const auto parsed = ParseJson(footer, kLimits);
    if (!parsed.ok())
      return absl::DataLossError(absl::StrCat("its footer ", parsed.status().message()));
    const auto said = ReadFooter(*parsed);
    if (!said.ok())
      return absl::DataLossError(absl::StrCat("its footer: ", said.status().message()));
    if (said->bytes != voxels || said->block != kBlock ||
        std::ssize(*said->crcs) != (voxels + kBlock - 1) / kBlock)
      return absl::DataLossError("its footer speaks of another file");
    quota_->TakeAnyway(info.st_size);
    return Found{.file = std::make_shared<File>(path, voxels, info.st_size, said->crcs, quota_),
                 .about = said->about,
                 .note = note};
  }

 private:
  struct Footer {
    int64_t bytes = 0, block = 0;
    std::shared_ptr<const std::vector<uint32_t>> crcs;
    nlohmann::json about;
  };
  static absl::StatusOr<Footer> ReadFooter(const nlohmann::json& json) {
    Footer footer;
    std::vector<uint32_t> crcs;
    OCTAVO_RETURN_IF_ERROR(ReadMember(json, "bytes", &footer.bytes));
    OCTAVO_RETURN_IF_ERROR(ReadMember(json, "block", &footer.block));
    OCTAVO_RETURN_IF_ERROR(ReadMember(json, "crc32c", &crcs));
    OCTAVO_RETURN_IF_ERROR(ReadMember(json, "about", &footer.about));
    footer.crcs = std::make_shared<const std::vector<uint32_t>>(std::move(crcs));
    return footer;
  }

  const std::string path_;
  const UniqueFd lock_;  // the folder; of this process alone
  const std::shared_ptr<Quota> quota_;
  std::atomic<uint64_t> written_{0};  // files begun
};

}  // namespace

int64_t SpillFileBytes(int64_t voxels, const nlohmann::json& about) {
  const std::string text = about.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return voxels + static_cast<int64_t>(text.size()) + (voxels / kBlock + 1) * 12 + 4096;
}

absl::Status SpillGate::Pass(const std::shared_ptr<SpillFile>& file,
                             const std::function<absl::Status()>& rename) {
  (void)Failpoint("spill_gate");
  MutexLock lock(mutex_);
  if (shut_) {
    return WithInfo(absl::CancelledError("the volume has left memory while it was written"),
                    {.reason = Reason::kVolumeGone, .field = "", .numbers = {}});
  }
  OCTAVO_RETURN_IF_ERROR(rename());
  passed_ = file;
  return absl::OkStatus();
}

void SpillGate::Shut() {
  std::shared_ptr<SpillFile> passed;
  {
    MutexLock lock(mutex_);
    shut_ = true;
    passed = passed_;  // stays: a second one waits for its removal, too
  }
  if (passed != nullptr) passed->Remove();
}

bool SpillGate::shut() {
  MutexLock lock(mutex_);
  return shut_;
}

absl::StatusOr<std::unique_ptr<SpillFolder>> SpillFolder::Open(const std::string& path,
                                                               int64_t quota_bytes,
                                                               std::vector<Found>* found,
                                                               std::vector<std::string>* report) {
  std::error_code error;
  // Not the folders above it: a disk that is not mounted has none.
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return ErrnoStatus(errno, "creating spill directory", path);
  UniqueFd opened(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat info {};
  if (!opened || ::fstat(opened.get(), &info) != 0)
    return ErrnoStatus(errno, "using spill directory", path);
  if (const std::string why = WhyNotOwn(info, path, "700"); !why.empty())
    return absl::PermissionDeniedError(why);
  // Before anything is touched: another process' unfinished files are none that a crash left. The
  // lock is on the folder itself, so that it is one also by another path, and adds no file.
  if (::flock(opened.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      return absl::FailedPreconditionError(
          absl::StrCat("another octavod uses ", path, "; give this one its own"));
    // NFS locks no folders.
    report->push_back(absl::StrCat("spill directory ", path, " cannot be locked (",
                                   std::strerror(errno),
                                   "): see to it that no other octavod uses it"));
  }
  // Or each volume that is to be kept here would be lost. A tier that is off only gives back.
  if (quota_bytes > 0 && ::faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) != 0)
    return ErrnoStatus(errno, "making files in spill directory", path);
  auto folder = std::make_unique<Folder>(path, quota_bytes, std::move(opened));
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path, error))
    names.push_back(entry.path().filename().string());
  if (error) return ErrnoStatus(error.value(), "reading spill directory", path);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const std::string full = absl::StrCat(path, "/", name);
    absl::string_view id = name;
    if (absl::ConsumePrefix(&id, ".") && absl::ConsumeSuffix(&id, kTemporarySuffix) &&
        IsSpillId(id)) {
      report->push_back(
          absl::StrCat(full, ": was not finished; ",
                       ::unlink(full.c_str()) == 0 ? "removed" : "could not be removed"));
      continue;
    }
    id = name;
    if (!absl::ConsumeSuffix(&id, kSpillSuffix) || !IsSpillId(id)) continue;
    auto one = folder->Look(full);
    if (one.ok()) {
      found->push_back(*std::move(one));
      continue;
    }
    std::string aside = absl::StrCat(path, "/", std::string(id), kDamagedSuffix);
    for (int i = 1; PathExists(aside); ++i)
      aside = absl::StrCat(path, "/", std::string(id), kDamagedSuffix, ".", i);
    const bool moved = RenameNoReplace(full, aside).ok();
    report->push_back(absl::StrCat(full, ": damaged (", one.status().message(), "); ",
                                   moved ? absl::StrCat("renamed to ", aside) : "stays as it is"));
  }
  return folder;
}

}  // namespace octavo::storage

#include "server/volume_import/file_deposits.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/io/errno_status.h"

namespace octavo::volume_import {
namespace {

constexpr size_t kMostName = 255;  // as the kernel's

absl::Status Refused(absl::StatusCode code, Reason reason, const std::string& what) {
  return WithInfo(absl::Status(code, what), {.reason = reason, .field = "", .numbers = {}});
}

/// What the server reads of others' descriptors: it must not read more for them than they can.
absl::Status Check(const UniqueFd& fd, const handoff::Peer& peer) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return storage::ErrnoStatus(errno, "examining", "the file");
  if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
    return Refused(absl::StatusCode::kInvalidArgument, Reason::kUnsupportedFile,
                   "the descriptor is of neither a file nor a folder; allowed are these");
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || (flags & O_PATH) != 0 || (flags & O_ACCMODE) == O_WRONLY)
    return Refused(absl::StatusCode::kPermissionDenied, Reason::kNoAccess,
                   "the descriptor does not allow to read; open the file for reading");
  // The files in a folder are opened by the server, with its own rights.
  if (S_ISDIR(info.st_mode) && peer.uid != ::geteuid() && peer.uid != 0)
    return Refused(absl::StatusCode::kPermissionDenied, Reason::kNoAccess,
                   "a folder is taken from the server's own user and from root only, because the "
                   "server opens the files in it; copy it below a replay root");
  return absl::OkStatus();
}

}  // namespace

/// The deposits by their tickets.
class FileDeposits::Shelf {
 public:
  bool Reserve() {
    MutexLock lock(mutex_);
    if (reserved_ >= kMost) return false;
    ++reserved_;
    return true;
  }
  void Release() {
    MutexLock lock(mutex_);
    --reserved_;
  }
  void Put(const std::string& ticket, std::shared_ptr<const DepositedFile> file) {
    MutexLock lock(mutex_);
    files_[ticket] = std::move(file);
  }
  void Drop(const std::string& ticket) {
    std::shared_ptr<const DepositedFile> gone;  // closed without the lock
    MutexLock lock(mutex_);
    const auto it = files_.find(ticket);
    if (it == files_.end()) return;
    gone = std::move(it->second);
    files_.erase(it);
  }
  std::shared_ptr<const DepositedFile> Find(const std::string& ticket) {
    MutexLock lock(mutex_);
    const auto it = files_.find(ticket);
    return it == files_.end() ? nullptr : it->second;
  }
  size_t count() {
    MutexLock lock(mutex_);
    return files_.size();
  }

 private:
  Mutex mutex_;
  size_t reserved_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::shared_ptr<const DepositedFile>> files_ ABSL_GUARDED_BY(mutex_);
};

/// The grant behind a ticket: takes the descriptor, and keeps it while the connection lasts.
class FileDeposits::DepositGrant final : public handoff::Grant {
 public:
  DepositGrant(std::shared_ptr<Shelf> shelf, std::string name)
      : shelf_(std::move(shelf)), name_(std::move(name)) {}
  handoff::v1::Purpose purpose() const override { return handoff::v1::PURPOSE_FILE; }
  absl::StatusOr<handoff::Answer> OpenWith(UniqueFd descriptor, const handoff::Peer& peer,
                                           const handoff::v1::Present& request,
                                           std::shared_ptr<handoff::Link>) override {
    OCTAVO_RETURN_IF_ERROR(Check(descriptor, peer));
    ticket_ = request.ticket();
    shelf_->Put(ticket_, std::make_shared<const DepositedFile>(
                             DepositedFile{.fd = std::move(descriptor), .name = name_}));
    handoff::Answer answer;
    answer.message.mutable_deposited();
    return answer;
  }
  void Ended(handoff::GrantEnd) override {
    if (!ticket_.empty()) shelf_->Drop(ticket_);
    shelf_->Release();
  }

 private:
  const std::shared_ptr<Shelf> shelf_;
  const std::string name_;
  std::string ticket_;  // empty: never presented
};

FileDeposits::FileDeposits() : shelf_(std::make_shared<Shelf>()) {}
FileDeposits::~FileDeposits() = default;

absl::StatusOr<handoff::Ticket> FileDeposits::Open(handoff::FdSocket& socket,
                                                   const std::string& name,
                                                   std::optional<uid_t> uid) {
  if (name.empty() || name.size() > kMostName || name.find('/') != std::string::npos)
    return InvalidField("name", absl::StrCat("is '", name.substr(0, 64),
                                             "'; allowed is the name of "
                                             "the file without its folders, 1 to ",
                                             kMostName, " bytes"));
  if (!shelf_->Reserve()) {
    return WithInfo(absl::ResourceExhaustedError(
                        absl::StrCat(kMost,
                                     " files are handed over, or about to be; end some of "
                                     "these connections first")),
                    {.reason = Reason::kTickets,
                     .field = "",
                     .numbers = {{"allowed", absl::StrCat(kMost)}, {"retryable", "true"}}});
  }
  auto ticket = socket.Issue(std::make_shared<DepositGrant>(shelf_, name), uid);
  if (!ticket.ok()) shelf_->Release();
  return ticket;
}

absl::StatusOr<DepositedFile> FileDeposits::Find(const std::string& ticket,
                                                 const std::string& field) {
  const std::shared_ptr<const DepositedFile> file = shelf_->Find(ticket);
  if (file == nullptr)
    return WithInfo(absl::NotFoundError(absl::StrCat(
                        field,
                        ": no file is there with this ticket; it was not presented, or the "
                        "connection that brought the file has ended")),
                    {.reason = Reason::kTicketUnknown, .field = field, .numbers = {}});
  UniqueFd copy(::fcntl(file->fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy) return storage::ErrnoStatus(errno, "opening", file->name);
  return DepositedFile{.fd = std::move(copy), .name = file->name};
}

size_t FileDeposits::count() { return shelf_->count(); }

}  // namespace octavo::volume_import

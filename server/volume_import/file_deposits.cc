#include "server/volume_import/file_deposits.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/handoff/descriptor_bin.h"
#include "server/storage/io/errno_status.h"

namespace octavo::volume_import {
namespace {

constexpr size_t kMostName = 255;  // as the kernel's

absl::Status Refused(absl::StatusCode code, Reason reason, const std::string& what) {
  return WithInfo(absl::Status(code, what), {.reason = reason, .field = "", .numbers = {}});
}

/// What the server reads of others' descriptors: it must not read more for them than they can.
/// Nothing here waits for the file system, which may be the client's own program (FUSE).
absl::Status Check(const UniqueFd& fd, const handoff::Peer& peer) {
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || (flags & O_PATH) != 0 || (flags & O_ACCMODE) == O_WRONLY)
    return Refused(absl::StatusCode::kPermissionDenied, Reason::kNoAccess,
                   "the descriptor does not allow to read; open the file for reading");
  struct statx info {};
  if (::statx(fd.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &info) != 0)
    return storage::ErrnoStatus(errno, "examining", "the descriptor");
  if (!S_ISREG(info.stx_mode) && !S_ISDIR(info.stx_mode))
    return Refused(absl::StatusCode::kInvalidArgument, Reason::kUnsupportedFile,
                   "the descriptor is of neither a file nor a folder; allowed are these");
  // The files in a folder are opened by the server, with its own rights.
  if (S_ISDIR(info.stx_mode) && peer.uid != ::geteuid() && peer.uid != 0)
    return Refused(absl::StatusCode::kPermissionDenied, Reason::kNoAccess,
                   "a folder is taken from the server's own user and from root only, because the "
                   "server opens the files in it; copy it below a replay root");
  return absl::OkStatus();
}

}  // namespace

/// The deposits by their tickets. No call waits.
class FileDeposits::Shelf {
 public:
  /// The client that a place belongs to.
  struct Holder {
    std::string connection, user;
  };
  /// A place, until Release. ResourceExhausted (TICKETS).
  absl::Status Reserve(const Holder& holder) {
    MutexLock lock(mutex_);
    OCTAVO_RETURN_IF_ERROR(
        CheckRoom(TakenBy(holder.connection), kMostOfConnection, "of this connection"));
    OCTAVO_RETURN_IF_ERROR(CheckRoom(TakenBy(holder.user), kMostOfUser, "of this user"));
    OCTAVO_RETURN_IF_ERROR(CheckRoom(reserved_, kMost, "of all clients"));
    size_t& of_connection = of_[holder.connection];
    ++of_[holder.user];
    ++of_connection;
    ++reserved_;
    return absl::OkStatus();
  }
  void Release(const Holder& holder) {
    MutexLock lock(mutex_);
    --reserved_;
    for (const std::string* whose : {&holder.connection, &holder.user}) {
      const auto it = of_.find(*whose);
      if (it != of_.end() && --it->second == 0) of_.erase(it);
    }
  }
  void Put(const std::string& ticket, DepositedFile file) {
    MutexLock lock(mutex_);
    files_[ticket] = std::move(file);
  }
  void Drop(const std::string& ticket) {
    std::vector<UniqueFd> gone;
    {
      MutexLock lock(mutex_);
      const auto it = files_.find(ticket);
      if (it == files_.end()) return;
      gone.push_back(std::move(it->second.fd));
      files_.erase(it);
    }
    bin_.Close(std::move(gone));
  }
  /// A descriptor of its own, of nothing if there is no such ticket.
  absl::StatusOr<DepositedFile> Find(const std::string& ticket) {
    MutexLock lock(mutex_);
    const auto it = files_.find(ticket);
    if (it == files_.end()) return DepositedFile();
    UniqueFd copy(::fcntl(it->second.fd.get(), F_DUPFD_CLOEXEC, 0));
    if (!copy) return storage::ErrnoStatus(errno, "opening", it->second.name);
    return DepositedFile{.fd = std::move(copy), .name = it->second.name};
  }
  size_t count() {
    MutexLock lock(mutex_);
    return files_.size();
  }

 private:
  static absl::Status CheckRoom(size_t taken, size_t most, const char* whose) {
    if (taken < most) return absl::OkStatus();
    return WithInfo(absl::ResourceExhaustedError(absl::StrCat(
                        most, " files ", whose,
                        " are handed over, or about to be; end some of these connections first")),
                    {.reason = Reason::kTickets,
                     .field = "",
                     .numbers = {{"allowed", absl::StrCat(most)}, {"retryable", "true"}}});
  }
  size_t TakenBy(const std::string& whose) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto it = of_.find(whose);
    return it == of_.end() ? 0 : it->second;
  }

  Mutex mutex_;
  size_t reserved_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, size_t> of_ ABSL_GUARDED_BY(mutex_);  // by connection, and by user
  std::map<std::string, DepositedFile> files_ ABSL_GUARDED_BY(mutex_);
  handoff::DescriptorBin bin_;
};

/// The grant behind a ticket: takes the descriptor, and keeps it while the connection lasts.
class FileDeposits::DepositGrant final : public handoff::Grant {
 public:
  DepositGrant(std::shared_ptr<Shelf> shelf, Shelf::Holder holder, std::string name)
      : shelf_(std::move(shelf)), holder_(std::move(holder)), name_(std::move(name)) {}
  handoff::v1::Purpose purpose() const override { return handoff::v1::PURPOSE_FILE; }
  absl::StatusOr<handoff::Answer> OpenWith(const UniqueFd& descriptor, const handoff::Peer& peer,
                                           const handoff::v1::Present& request,
                                           std::shared_ptr<handoff::Link>) override {
    OCTAVO_RETURN_IF_ERROR(Check(descriptor, peer));
    UniqueFd kept(::fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 0));
    if (!kept) return storage::ErrnoStatus(errno, "keeping", "the descriptor");
    ticket_ = request.ticket();
    shelf_->Put(ticket_, DepositedFile{.fd = std::move(kept), .name = name_});
    handoff::Answer answer;
    answer.message.mutable_deposited();
    return answer;
  }
  void Ended(handoff::GrantEnd) override {
    if (!ticket_.empty()) shelf_->Drop(ticket_);
    shelf_->Release(holder_);
  }

 private:
  const std::shared_ptr<Shelf> shelf_;
  const Shelf::Holder holder_;
  const std::string name_;
  std::string ticket_;  // empty: never presented
};

FileDeposits::FileDeposits() : shelf_(std::make_shared<Shelf>()) {}
FileDeposits::~FileDeposits() = default;

absl::StatusOr<handoff::Ticket> FileDeposits::Open(handoff::FdSocket& socket,
                                                   const std::string& name,
                                                   const std::string& connection,
                                                   std::optional<uid_t> uid,
                                                   const handoff::Holder& asked) {
  // Messages quote the name: what nobody can print does not come into them.
  const std::string shown = absl::Utf8SafeCHexEscape(name.substr(0, kMostName));
  if (name.empty() || name.size() > kMostName || name.find('/') != std::string::npos)
    return InvalidField("name", absl::StrCat("is '", shown.substr(0, 64),
                                             "'; allowed is the name of "
                                             "the file without its folders, 1 to ",
                                             kMostName, " bytes"));
  const Shelf::Holder holder{
      .connection = absl::StrCat("connection ", connection),
      .user = uid.has_value() ? absl::StrCat("user ", *uid) : std::string("unknown users")};
  OCTAVO_RETURN_IF_ERROR(shelf_->Reserve(holder));
  auto ticket = socket.Issue(std::make_shared<DepositGrant>(shelf_, holder, shown), uid, asked);
  if (!ticket.ok()) shelf_->Release(holder);
  return ticket;
}

absl::StatusOr<DepositedFile> FileDeposits::Find(const std::string& ticket,
                                                 const std::string& field) {
  OCTAVO_ASSIGN_OR_RETURN(DepositedFile file, shelf_->Find(ticket));
  if (!file.fd)
    return WithInfo(absl::NotFoundError(absl::StrCat(
                        field,
                        ": no file is there with this ticket; it was not presented, or the "
                        "connection that brought the file has ended")),
                    {.reason = Reason::kTicketUnknown, .field = field, .numbers = {}});
  OCTAVO_RETURN_IF_ERROR(probe_.Check(file.fd, file.name));
  return file;
}

size_t FileDeposits::count() { return shelf_->count(); }

}  // namespace octavo::volume_import

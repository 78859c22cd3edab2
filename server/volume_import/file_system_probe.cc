#include "server/volume_import/file_system_probe.h"

#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "server/storage/io/errno_status.h"

namespace octavo::volume_import {
namespace {

constexpr int64_t kFuse = 0x65735546;  // FUSE_SUPER_MAGIC of linux/magic.h

/// File systems whose files are the kernel's answers: by the magic numbers of linux/magic.h.
struct MadeUp {
  int64_t type;
  const char* name;
};
constexpr MadeUp kMadeUp[] = {{PROC_SUPER_MAGIC, "procfs"},
                              {SYSFS_MAGIC, "sysfs"},
                              {DEBUGFS_MAGIC, "debugfs"},
                              {TRACEFS_MAGIC, "tracefs"},
                              {SECURITYFS_MAGIC, "securityfs"},
                              {SELINUX_MAGIC, "selinuxfs"},
                              {CGROUP_SUPER_MAGIC, "cgroup"},
                              {CGROUP2_SUPER_MAGIC, "cgroup2"},
                              {BPF_FS_MAGIC, "bpf"},
                              {PSTOREFS_MAGIC, "pstore"},
                              {EFIVARFS_MAGIC, "efivarfs"},
                              {NSFS_MAGIC, "nsfs"},
                              {DEVPTS_SUPER_MAGIC, "devpts"},
                              {BINFMTFS_MAGIC, "binfmt_misc"},
                              {0x62656570 /* CONFIGFS_MAGIC */, "configfs"},
                              {0x19800202 /* MQUEUE_MAGIC */, "mqueue"}};

absl::Status Refused(absl::StatusCode code, Reason reason, const std::string& what) {
  return WithInfo(absl::Status(code, what), {.reason = reason, .field = "", .numbers = {}});
}

/// A question to a file system; its thread and the one that asks know it.
struct Question {
  Mutex mutex;
  CondVar cv;
  bool answered ABSL_GUARDED_BY(mutex) = false;
  int error ABSL_GUARDED_BY(mutex) = 0;
  int64_t type ABSL_GUARDED_BY(mutex) = 0;
};

}  // namespace

struct FileSystemProbe::Waiting : std::enable_shared_from_this<Waiting> {
  Mutex mutex;
  int count ABSL_GUARDED_BY(mutex) = 0;

  /// A place for one question, given back with the last reference; null if all are taken.
  std::shared_ptr<void> Enter() {
    MutexLock lock(mutex);
    if (count >= kMost) return nullptr;
    ++count;
    return {this, [self = shared_from_this()](void*) {
              MutexLock again(self->mutex);
              --self->count;
            }};
  }
};

FileSystemProbe::FileSystemProbe(Ask ask, std::chrono::milliseconds patience)
    : ask_(std::move(ask)), patience_(patience), waiting_(std::make_shared<Waiting>()) {}

absl::Status FileSystemProbe::Check(const UniqueFd& file, const std::string& name) {
  UniqueFd own(::fcntl(file.get(), F_DUPFD_CLOEXEC, 0));
  if (!own) return storage::ErrnoStatus(errno, "opening", name);
  std::shared_ptr<void> place = waiting_->Enter();
  if (place == nullptr)
    return Refused(absl::StatusCode::kResourceExhausted, Reason::kBusy,
                   "the file systems of files that were handed over do not answer; try again "
                   "later");
  const auto question = std::make_shared<Question>();
  std::thread([ask = ask_, own = std::move(own), place = std::move(place), question]() mutable {
    pthread_setname_np(pthread_self(), "oct-statfs");
    struct statfs told {};
    const int error = ask(own.get(), &told) == 0 ? 0 : errno;
    {
      const UniqueFd closed = std::move(own);  // waits for the file system, too
    }
    place.reset();
    MutexLock lock(question->mutex);
    question->answered = true;
    question->error = error;
    question->type = told.f_type;
    question->cv.NotifyAll();
  }).detach();

  const auto deadline = std::chrono::steady_clock::now() + patience_;
  MutexLock lock(question->mutex);
  while (!question->answered) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= left.zero()) break;
    question->cv.WaitFor(lock, left);
  }
  if (!question->answered)
    return Refused(absl::StatusCode::kUnavailable, Reason::kIoError,
                   absl::StrCat("the file system of ", name, " does not answer"));
  if (question->error != 0)
    return storage::ErrnoStatus(question->error, "examining the file system of", name);
  if (question->type == kFuse)
    return Refused(absl::StatusCode::kInvalidArgument, Reason::kUnsupportedFile,
                   absl::StrCat(name,
                                " is served by a program (FUSE), which could make the server wait; "
                                "copy it to another file system, or below a replay root"));
  for (const MadeUp& one : kMadeUp) {
    if (question->type == one.type)
      return Refused(absl::StatusCode::kInvalidArgument, Reason::kUnsupportedFile,
                     absl::StrCat(name, " is made up by the kernel as it is read (", one.name,
                                  "); allowed are files and folders of a file system that keeps "
                                  "them"));
  }
  return absl::OkStatus();
}

}  // namespace octavo::volume_import

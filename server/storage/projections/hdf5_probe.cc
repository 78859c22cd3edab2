#include "server/storage/projections/hdf5_probe.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <poll.h>
#include <semaphore>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"
#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "gpu/base/unique_fd.h"
#include "server/storage/projections/hdf5_probe_wire.h"
#include "server/storage/projections/internal.h"

namespace octavo::storage {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMostAnswer = 1 << 20;

struct Used {
  Mutex mutex;
  std::shared_ptr<const Hdf5Probe> probe ABSL_GUARDED_BY(mutex);
};
Used& TheProbe() {
  static Used& used = *new Used;
  return used;
}

/// Each process may use all the memory that it is allowed.
std::counting_semaphore<4>& Turns() {
  static auto& turns = *new std::counting_semaphore<4>(4);
  return turns;
}

/// Not 0, 1, 2 or kProbedFile, because the new process uses these for other files.
UniqueFd OutOfTheWay(UniqueFd fd) {
  return !fd || fd.get() > kProbedFile
             ? std::move(fd)
             : UniqueFd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, kProbedFile + 1));
}

/// A file without a name: unlike a pipe it accepts all data at once, without a reader.
UniqueFd FileOf(const std::string& bytes) {
  UniqueFd fd(::memfd_create("octavo-probe", MFD_CLOEXEC));
  if (!fd ||
      ::pwrite(fd.get(), bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return UniqueFd();
  return OutOfTheWay(std::move(fd));
}

/// Starts a process with these as its only descriptors, and /dev/null as its standard error.
/// Returns 0 or errno.
int Spawn(const std::vector<std::string>& command, int in, int out, int file, pid_t* pid) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, file, kProbedFile);
  posix_spawn_file_actions_addclosefrom_np(&actions, kProbedFile + 1);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                            // ^C must reach only the server
                                            POSIX_SPAWN_SETPGROUP);
  sigset_t none, usual;
  sigemptyset(&none);
  sigemptyset(&usual);
  for (const int signal : {SIGPIPE, SIGTERM, SIGINT, SIGHUP, SIGALRM, SIGCHLD, SIGXCPU})
    sigaddset(&usual, signal);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  std::vector<char*> arguments;
  for (const std::string& argument : command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const int failure =
      ::posix_spawn(pid, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return failure;
}

/// How a process ended.
struct Ended {
  std::string answer;
  bool late = false;  // it was too late and was killed
  int status = 0;     // from waitpid
};

/// Reads the output of a process until it ends. Leaves no process behind.
Ended WaitFor(pid_t pid, int from, Clock::time_point deadline) {
  Ended ended;
  const auto left = [&] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  };
  char part[65536];
  for (;;) {
    pollfd wait{.fd = from, .events = POLLIN, .revents = 0};
    if (const int ready = ::poll(&wait, 1, static_cast<int>(std::clamp<int64_t>(left(), 0, 1000)));
        ready <= 0) {
      if (left() <= 0) break;
      continue;
    }
    const ssize_t n = ::read(from, part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    if (ended.answer.size() < kMostAnswer) ended.answer.append(part, static_cast<size_t>(n));
  }
  for (;;) {
    const pid_t found = ::waitpid(pid, &ended.status, ended.late ? 0 : WNOHANG);
    if (found == pid) break;
    if (found < 0 &&
        errno != EINTR) {  // SIGCHLD is ignored, so there is no exit status; the answer suffices
      ended.status = 0;
      break;
    }
    if (found == 0 && left() <= 0) {
      ::kill(pid, SIGKILL);
      ended.late = true;
    } else if (found == 0) {
      std::this_thread::sleep_for(
          std::chrono::milliseconds(1));  // it has closed its end and is about to exit
    }
  }
  return ended;
}

absl::Status Unusable(const Hdf5Probe& probe, const std::string& why) {
  return absl::FailedPreconditionError(absl::StrCat(
      "HDF5 files are not read, because the program that looks at them first does not start: ",
      probe.command[0], " (", why,
      "); install the octavo-probe of the same version beside octavod"));
}

absl::Status NotStarted(const Hdf5Probe& probe, int error, const std::string& why) {
  // Whoever takes all descriptors or threads must not get a file past the probe.
  if (error == EMFILE || error == ENFILE || error == ENOMEM || error == EAGAIN)
    return WithInfo(absl::ResourceExhaustedError(absl::StrCat(
                        "no process can start that looks at the HDF5 file first: ", why)),
                    {.reason = error == ENOMEM   ? Reason::kOutOfMemory
                               : error == EAGAIN ? Reason::kNoThread
                                                 : Reason::kNoDescriptors,
                     .field = "",
                     .numbers = {{"retryable", "true"}}});
  static std::atomic<bool> told{false};
  absl::Status refused = Unusable(probe, why);
  if (!told.exchange(true))
    Log(LogLevel::kError, "HDF5 files are refused", {{"why", refused.message()}});
  return refused;
}

std::shared_ptr<const Hdf5Probe> InUse() {
  Used& used = TheProbe();
  MutexLock lock(used.mutex);
  return used.probe;
}

}  // namespace

void UseHdf5Probe(Hdf5Probe probe) {
  Used& used = TheProbe();
  MutexLock lock(used.mutex);
  used.probe = std::make_shared<const Hdf5Probe>(std::move(probe));
}

absl::Status CheckHdf5Probe() {
  const std::shared_ptr<const Hdf5Probe> probe = InUse();
  if (probe == nullptr || probe->command.empty()) return absl::OkStatus();
  const std::string& program = probe->command[0];
  struct stat info {};
  if (::stat(program.c_str(), &info) != 0 || ::access(program.c_str(), X_OK) != 0)
    return Unusable(*probe, std::strerror(errno));
  return S_ISREG(info.st_mode) ? absl::OkStatus() : Unusable(*probe, "it is no file");
}

namespace {

/// Runs the other process with `request`, which has no limits yet.
absl::Status Probe(const UniqueFd& file, ProbeRequest asked) {
  const std::string path = asked.path;
  const std::shared_ptr<const Hdf5Probe> probe = InUse();
  if (probe == nullptr || probe->command.empty()) return absl::OkStatus();
  asked.processor_seconds = probe->processor_seconds;
  asked.memory_bytes = probe->memory_bytes;
  const std::string bytes = EncodeRequest(asked);

  Turns().acquire();
  struct Turn {
    ~Turn() { Turns().release(); }
  } turn;
  const UniqueFd request = FileOf(bytes);
  if (!request) return NotStarted(*probe, errno, std::strerror(errno));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return NotStarted(*probe, errno, std::strerror(errno));
  const UniqueFd from(ends[0]);
  UniqueFd to = OutOfTheWay(UniqueFd(ends[1]));
  const UniqueFd looked_at(::fcntl(file.get(), F_DUPFD_CLOEXEC, kProbedFile + 1));
  if (!to || !looked_at) return NotStarted(*probe, errno, std::strerror(errno));
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(probe->seconds));
  pid_t pid = 0;
  if (const int failure = Spawn(probe->command, request.get(), to.get(), looked_at.get(), &pid);
      failure != 0)
    return NotStarted(*probe, failure, std::strerror(failure));
  to = UniqueFd();
  const Ended ended = WaitFor(pid, from.get(), deadline);
  // The loader of programs ends so where it finds no descriptors or no memory.
  if (WIFEXITED(ended.status) && WEXITSTATUS(ended.status) == 127)
    return NotStarted(*probe, EAGAIN, "it ended at once");
  if (WIFEXITED(ended.status) && WEXITSTATUS(ended.status) == kProbeNotStarted)
    return NotStarted(*probe, 0, "it ended at once, as one of another version does");
  const int signal = WIFSIGNALED(ended.status) ? WTERMSIG(ended.status) : 0;
  if (!ended.late && signal == 0) {
    if (const auto answer = DecodeAnswer(ended.answer)) return *answer;
  }
  const std::string what =
      ended.late          ? absl::StrCat("takes longer than ", probe->seconds, " s to open")
      : signal == SIGXCPU ? absl::StrCat("takes more than ", probe->processor_seconds,
                                         " s of processor time to open")
      : signal == 0
          ? std::string("is damaged: the HDF5 library crashes on it")
          : absl::StrCat("is damaged: the HDF5 library crashes on it (signal ", signal, ")");
  Log(LogLevel::kError, "HDF5 file refused", {{"path", path}, {"reason", what}});
  return DamagedProjections(path, "the file", what);
}

}  // namespace

absl::Status ProbeHdf5(const UniqueFd& file, const std::string& path,
                       const ProjectionOptions& options) {
  return Probe(file, {.path = path, .options = options});
}

absl::Status ProbeHdf5Volume(const UniqueFd& file, const std::string& path,
                             const Hdf5VolumeRequest& request) {
  return Probe(file, {.path = path, .volume = request});
}

}  // namespace octavo::storage

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <iostream>
#include <spawn.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cpp/bench/bench.h"

namespace octavo::cli {
namespace {

/// The socket that hands memory over; "none" where its path is too long for one.
std::string HandoffIn(const std::string& folder) {
  std::string path = folder + "/handoff.sock";
  return path.size() < sizeof sockaddr_un::sun_path ? path : "none";
}

}  // namespace

std::unique_ptr<BenchDaemon> BenchDaemon::Start(const BenchFlags& flags) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string program = (self.parent_path() / "octavod").string();
  if (error || ::access(program.c_str(), X_OK) != 0) {
    std::cerr << "octavo: there is no octavod beside this program (" << program
              << "); start one and name it with --address\n";
    return nullptr;
  }
  std::unique_ptr<BenchDaemon> daemon(new BenchDaemon());
  std::string folder = flags.directory.empty()
                           ? std::filesystem::temp_directory_path(error).string()
                           : flags.directory;
  folder += "/octavo-bench-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) {
    std::cerr << "octavo: cannot make a directory " << folder << ": " << std::strerror(errno)
              << "\n";
    return nullptr;
  }
  daemon->directory_ = folder;
  std::filesystem::create_directory(folder + "/data", error);
  int ready[2];
  if (::pipe2(ready, O_CLOEXEC) != 0) {
    std::cerr << "octavo: no pipe: " << std::strerror(errno) << "\n";
    return nullptr;
  }
  const std::string log = folder + "/octavod.log";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ready[1], 3);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const std::vector<std::string> arguments = {program,
                                              "--listen.tcp",
                                              "127.0.0.1:0",
                                              "--listen.loopback_role",
                                              "operator",
                                              "--metrics.listen",
                                              "none",
                                              "--state.dir",
                                              folder + "/state",
                                              "--handoff.unix",  // of frames by memory
                                              HandoffIn(folder),
                                              "--storage.roots",
                                              folder + "/data",
                                              "--storage.create_roots",
                                              "true",
                                              "--ready-fd",
                                              "3",
                                              "--device.backend",
                                              flags.backend,
                                              "--drain.seconds",
                                              "5"};
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const int failure =
      posix_spawn(&daemon->pid_, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ready[1]);
  std::string line;
  if (failure == 0) {
    char buffer[512];
    for (ssize_t n; (n = ::read(ready[0], buffer, sizeof buffer)) > 0 || (n < 0 && errno == EINTR);)
      line.append(buffer, n > 0 ? static_cast<size_t>(n) : 0);
  } else {
    daemon->pid_ = -1;
  }
  ::close(ready[0]);
  const auto addresses = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (addresses.is_discarded() || !addresses.contains("tcp") || addresses["tcp"].empty()) {
    std::cerr << "octavo: " << program << " did not start"
              << (failure != 0 ? std::string(": ") + std::strerror(failure) : "") << "\n";
    if (FILE* file = std::fopen(log.c_str(), "r")) {
      char text[4096];
      const size_t n = std::fread(text, 1, sizeof text, file);
      std::cerr.write(text, static_cast<std::streamsize>(n));
      std::fclose(file);
    }
    return nullptr;
  }
  daemon->address_ = addresses["tcp"][0].get<std::string>();
  return daemon;
}

BenchDaemon::~BenchDaemon() {
  if (pid_ > 0) {
    ::kill(pid_, SIGTERM);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  std::error_code ignored;
  if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
}

}  // namespace octavo::cli

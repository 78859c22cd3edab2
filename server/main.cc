// octavod: flags → Config → Daemon → wait for a signal → drain. Exit codes: 0 ended on a signal (what still ran after
// drain.seconds was cancelled; the last log record says so), 1 cannot start, 2 bad flags or configuration, 3 did not end
// within drain.seconds + 5.

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/log.h"
#include "server/daemon.h"
#include "server/storage/hdf5_probe.h"

namespace {

constexpr char kDefaultFile[] = "/etc/octavo/octavod.toml";

octavo::LogLevel LevelOf(const std::string& name) {
  return name == "debug"     ? octavo::LogLevel::kDebug
         : name == "warning" ? octavo::LogLevel::kWarning
         : name == "error"   ? octavo::LogLevel::kError
                             : octavo::LogLevel::kInfo;
}

int Fail(int code, const absl::Status& status) {
  std::cerr << "octavod: " << status.message() << "\n";
  return code;
}

// Beside it and renamed, so that whoever waits for the file never reads half of it.
absl::Status WriteReadyFile(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";
  std::ofstream out(temporary);
  out << text;
  out.close();
  if (!out || std::rename(temporary.c_str(), path.c_str()) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("--ready-file: cannot write ", path, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status WriteReadyFd(int fd, const std::string& text) {
  const ssize_t written = ::write(fd, text.data(), text.size());
  const int error = errno;
  ::close(fd);
  if (written == static_cast<ssize_t>(text.size())) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("--ready-fd: cannot write to descriptor ", fd, ": ", written < 0 ? std::strerror(error) : "cut short"));
}

// Whatever hangs (a write to dead storage, a driver, an exit handler): the process ends. A signal, not a thread, because it
// must work until the very last instruction.
void ArmBackstop(double drain_seconds) {
  std::signal(SIGALRM, [](int) {
    constexpr char kText[] = "octavod: did not end within drain.seconds + 5; exiting at once\n";
    [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, kText, sizeof kText - 1);
    ::_exit(3);
  });
  ::alarm(static_cast<unsigned>(std::ceil(drain_seconds)) + 5);
}

int Run(int argc, char** argv) {
  CLI::App app{"octavod: the Octavo imaging daemon"};
  app.set_version_flag("--version", octavo::kVersion);
  std::string file, ready_file;
  int ready_fd = -1;
  app.add_option("--config", file, std::string("TOML file (default ") + kDefaultFile + " if it is there)");
  app.add_option("--ready-file", ready_file, "write the addresses here, as JSON, once the daemon listens");
  app.add_option("--ready-fd", ready_fd, "write the addresses to this descriptor, as a line of JSON, once the daemon listens");
  std::map<std::string, std::string> flags;
  for (const auto& key : octavo::ConfigKeys()) app.add_option("--" + key.name, flags[key.name], key.help)->take_last();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }

  octavo::Config config;
  if (file.empty() && std::filesystem::exists(kDefaultFile)) file = kDefaultFile;
  if (!file.empty()) {
    if (absl::Status status = octavo::ApplyFile(&config, file); !status.ok()) return Fail(2, status);
  }
  std::vector<std::string> unknown;
  if (absl::Status status = octavo::ApplyEnvironment(&config, environ, &unknown); !status.ok()) return Fail(2, status);
  for (const auto& [key, value] : flags) {
    if (app.count("--" + key) == 0) continue;
    if (absl::Status status = octavo::ApplySetting(&config, key, value); !status.ok()) return Fail(2, status);
  }
  if (absl::Status status = octavo::Finalise(&config); !status.ok()) return Fail(2, status);
  octavo::SetUpLog(LevelOf(config.log_level), config.log_format == "json" || (config.log_format == "auto" && isatty(STDERR_FILENO) == 0));
  for (const auto& name : unknown) octavo::Log(octavo::LogLevel::kWarning, "environment variable is no configuration key", {{"name", name}});

  // Signals are read, not handled: blocked here, before any thread exists, so that all threads inherit it.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  const int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);

  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  octavo::storage::UseHdf5Probe({.command = {absl::StrCat(self.parent_path().string(), "/octavo-probe")}});

  auto started = octavo::Daemon::Start(config);
  if (!started.ok()) return Fail(1, started.status());
  std::unique_ptr<octavo::Daemon> daemon = *std::move(started);
  const std::string ready = daemon->ReadyJson() + "\n";
  if (!ready_file.empty()) {
    if (absl::Status status = WriteReadyFile(ready_file, ready); !status.ok()) return Fail(1, status);
  }
  if (ready_fd >= 0) {
    if (absl::Status status = WriteReadyFd(ready_fd, ready); !status.ok()) return Fail(1, status);
  }
  octavo::Log(octavo::LogLevel::kInfo, "octavod ready", {{"addresses", absl::StrJoin(daemon->addresses(), " ")}, {"version", octavo::kVersion}});

  signalfd_siginfo info;
  while (read(signal_fd, &info, sizeof info) != sizeof info) {
  }
  octavo::Log(octavo::LogLevel::kInfo, "draining", {{"signal", info.ssi_signo}});
  ArmBackstop(config.drain_seconds);
  const bool idle = daemon->Drain([&] {
    pollfd again{.fd = signal_fd, .events = POLLIN, .revents = 0};
    return poll(&again, 1, 0) > 0;  // a second signal: do not wait any longer
  });
  daemon = nullptr;
  octavo::Log(octavo::LogLevel::kInfo, "octavod ended", {{"idle", idle}});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const std::exception& e) {  // bad_alloc and the like: a message and a code instead of a core
    return Fail(1, absl::InternalError(e.what()));
  }
}

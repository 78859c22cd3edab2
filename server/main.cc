// octavod: flags → Config → Daemon → wait for a signal → drain. SIGTERM and SIGINT drain, a second
// one ends at once; SIGHUP reads the configuration again; SIGUSR1, SIGUSR2, SIGQUIT, SIGALRM and
// SIGPIPE end nothing. Exit codes: 0 ended on a signal (what still ran after drain.seconds was
// cancelled; the last log record says so, and earlier ones name held volumes that are lost), 1
// cannot start, 2 bad flags or configuration, 3 hung while it ended: it did not end within
// drain.seconds + 5, or within drain.spill_seconds + 10 while it wrote held volumes.

#include <algorithm>
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

#include "gpu/base/descriptors.h"
#include "gpu/base/last_words.h"
#include "gpu/base/log.h"
#include "gpu/base/spelling.h"
#include "gpu/base/unique_fd.h"
#include "gpu/base/version.h"
#include "server/daemon.h"
#include "server/storage/projections/hdf5_probe.h"
#include "server/systemd.h"

namespace {

constexpr char kDefaultFile[] = "/etc/octavo/octavod.toml";

// A sentence for people, before logging is configured.
int Fail(int code, const absl::Status& status) {
  std::cerr << octavo::ErrorPriority() << "octavod: " << status.message() << "\n";
  return code;
}
// The same afterwards, as a log record.
int CannotStart(const absl::Status& status) {
  octavo::Log(octavo::LogLevel::kError, "octavod cannot start",
              {{"error", std::string(status.message())}});
  return 1;
}

// Write another file and rename it, so that a program that waits for the file never reads half of
// it.
absl::Status WriteReadyFile(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";
  std::ofstream out(temporary);
  out << text;
  out.close();
  if (!out || std::rename(temporary.c_str(), path.c_str()) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("--ready-file: cannot write ", path, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status WriteReadyFd(int fd, const std::string& text) {
  const ssize_t written = ::write(fd, text.data(), text.size());
  const int error = errno;
  ::close(fd);
  if (written == static_cast<ssize_t>(text.size())) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("--ready-fd: cannot write to descriptor ", fd, ": ",
                   written < 0 ? std::strerror(error) : "cut short"));
}

// Ends the process in so many seconds even if something hangs (a write to dead storage, a driver,
// an exit handler). This uses a signal, not a thread, because it must work until the very last
// instruction. `key`: of the configuration, which gives the time. Again: the new time counts.
void ArmBackstop(double seconds, const char* key) {
  const auto whole = static_cast<unsigned>(std::ceil(seconds));
  ::alarm(0);  // nobody says the last words while they are prepared
  octavo::PrepareLastWords(
      absl::StrCat("octavod did not end within ", whole, " s (", key, "); exiting at once"), whole);
  std::signal(SIGALRM, [](int) {
    octavo::SayLastWords();
    ::_exit(3);
  });
  ::alarm(whole);
}

// The signals that control the daemon, and those that would otherwise end the process. The main
// thread reads them instead of handling them: they are blocked before any thread exists, so that
// all threads inherit the mask.
constexpr int kRead[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT};

octavo::UniqueFd ReadSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : kRead) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // SIGALRM: until the backstop is armed. SIGXFSZ: a file that may not grow further is an error of
  // its writer (EFBIG), and no end of the process, which holds volumes.
  for (const int signal : {SIGPIPE, SIGALRM, SIGXFSZ}) std::signal(signal, SIG_IGN);
  return octavo::UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

bool Ends(int signal) { return signal == SIGTERM || signal == SIGINT; }

// The next signal; 0 if none arrives within `milliseconds` (-1 = waits for ever).
int NextSignal(const octavo::UniqueFd& fd, int milliseconds) {
  for (;;) {
    signalfd_siginfo info;
    if (::read(fd.get(), &info, sizeof info) == sizeof info)
      return static_cast<int>(info.ssi_signo);
    pollfd wait{.fd = fd.get(), .events = POLLIN, .revents = 0};
    if (::poll(&wait, 1, milliseconds) == 0) return 0;
  }
}

// The first unknown word of the command line.
std::string UnknownWord(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  const std::string word = app.remaining().front(), name = word.substr(0, word.find('='));
  return absl::StrCat("there is no flag ", name, octavo::DidYouMean(name, flags),
                      " (octavod --help lists all)");
}

int Run(int argc, char** argv) {
  const octavo::UniqueFd signals = ReadSignals();
  CLI::App app{"octavod: the Octavo imaging daemon"};
  app.set_version_flag("--version", std::string("octavod ") + octavo::Version());
  std::string file, ready_file;
  int ready_fd = -1;
  app.add_option("--config", file,
                 std::string("TOML file (default ") + kDefaultFile + " if it is there)");
  app.add_option("--ready-file", ready_file,
                 "write the addresses here, as JSON, once the daemon listens");
  app.add_option(
      "--ready-fd", ready_fd,
      "write the addresses to this descriptor, as a line of JSON, once the daemon listens");
  std::map<std::string, std::string> flags;
  for (const auto& key : octavo::ConfigKeys())
    app.add_option("--" + key.name, flags[key.name], key.help)->take_last();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ExtrasError& e) {
    return Fail(2, absl::InvalidArgumentError(UnknownWord(app)));
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }

  // An unset variable in a script would otherwise start a daemon without any protection.
  if (app.count("--config") > 0 && file.empty())
    return Fail(2, absl::InvalidArgumentError("--config: is ''; allowed is the path of a file"));
  octavo::ConfigSources sources{.file = file};
  for (const auto& [key, value] : flags) {
    const std::vector<std::string>& given = app.get_option("--" + key)->results();
    if (given.empty()) continue;
    const auto other = std::find_if(given.begin(), given.end(),
                                    [&](const std::string& one) { return one != value; });
    if (other != given.end())
      return Fail(2, absl::InvalidArgumentError(absl::StrCat(
                         "--", key, ": is given more than once, with '", *other, "' and '", value,
                         "'; give it once, the parts of a list with commas")));
    sources.flags[key] = value;
  }
  const auto load = [&](std::vector<std::string>* unknown) {
    // A file that was read once has to be there again.
    if (sources.file.empty() && std::filesystem::exists(kDefaultFile)) sources.file = kDefaultFile;
    return octavo::LoadConfig(sources, unknown);
  };
  std::vector<std::string> unknown;
  const absl::StatusOr<octavo::Config> config = load(&unknown);
  if (!config.ok()) return Fail(2, config.status());
  octavo::SetUpLog(*config);
  for (const auto& name : unknown)
    octavo::Log(octavo::LogLevel::kWarning, "environment variable is no configuration key",
                {{"name", name}});

  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  octavo::storage::UseHdf5Probe(
      {.command = {absl::StrCat(self.parent_path().string(), "/octavo-probe")}});

  auto started = octavo::Daemon::Start(*config);
  if (!started.ok()) return CannotStart(started.status());
  std::unique_ptr<octavo::Daemon> daemon = *std::move(started);
  const std::string ready = daemon->ReadyJson() + "\n";
  if (!ready_file.empty()) {
    if (absl::Status status = WriteReadyFile(ready_file, ready); !status.ok())
      return CannotStart(status);
  }
  if (ready_fd >= 0) {
    if (absl::Status status = WriteReadyFd(ready_fd, ready); !status.ok())
      return CannotStart(status);
  }
  octavo::Log(
      octavo::LogLevel::kInfo, "octavod ready",
      {{"addresses", absl::StrJoin(daemon->addresses(), " ")},
       {"configuration", sources.file.empty() ? "flags and environment alone" : sources.file},
       {"version", octavo::Version()}});

  int signal = 0;
  while (!Ends(signal = NextSignal(signals, -1))) {
    if (signal == SIGHUP) {
      unknown.clear();
      octavo::NotifyReloading();
      daemon->Reload(load(&unknown));
    } else {
      octavo::Log(octavo::LogLevel::kInfo, "a signal that asks for nothing here",
                  {{"signal", signal}});
    }
  }
  octavo::Log(octavo::LogLevel::kInfo, "draining", {{"signal", signal}});
  const bool idle = daemon->Drain({.hurry =
                                       [&] {
                                         int again = 0;
                                         do {
                                           again = NextSignal(signals, 1);
                                         } while (again != 0 && !Ends(again));
                                         return again != 0;  // a second one: do not wait any longer
                                       },
                                   .may_take = ArmBackstop});
  daemon = nullptr;
  octavo::Log(octavo::LogLevel::kInfo, "octavod ended", {{"idle", idle}});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    octavo::RaiseDescriptorLimit(1 << 16);  // as many as the unit and the compose file allow
    return Run(argc, argv);
  } catch (
      const std::exception& e) {  // bad_alloc and the like: a message and a code instead of a core
    return Fail(1, absl::InternalError(e.what()));
  }
}

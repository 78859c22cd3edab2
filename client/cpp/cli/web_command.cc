// octavo web: becomes the viewer for browsers, a program of Node (client/web).

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "client/cpp/cli/commands.h"
#include "gpu/base/unique_fd.h"

namespace octavo::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kOldestNode = 18;

/// The program of Node: that of OCTAVO_NODE, else `node` or `nodejs` of the PATH; empty if none.
std::string FindNode() {
  const char* given = std::getenv("OCTAVO_NODE");
  if (given != nullptr && *given != 0) return given;
  const char* path = std::getenv("PATH");
  for (const char* name : {"node", "nodejs"}) {
    for (const auto folder : absl::StrSplit(path == nullptr ? "/usr/bin:/bin" : path, ':')) {
      const std::string candidate = absl::StrCat(folder, "/", name);
      if (!folder.empty() && access(candidate.c_str(), X_OK) == 0) return candidate;
    }
  }
  return "";
}

/// What a program prints with --version; nothing if it cannot be run.
std::optional<std::string> VersionOf(const std::string& program) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return std::nullopt;
  UniqueFd read(ends[0]), write(ends[1]);
  const pid_t child = fork();
  if (child < 0) return std::nullopt;
  if (child == 0) {
    dup2(write.get(), STDOUT_FILENO);
    execl(program.c_str(), program.c_str(), "--version", nullptr);
    _exit(127);
  }
  write = UniqueFd();  // the end of the text is the end of the child
  std::string text;
  std::array<char, 256> part{};
  for (ssize_t got = 0; (got = ::read(read.get(), part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<size_t>(got));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  return std::string(absl::StripAsciiWhitespace(text));
}

/// Empty if the program is a Node that the viewer runs on; else what is wrong, for people.
std::string NodeProblem(const std::string& node) {
  constexpr char kAdvice[] = "install it (Debian: apt-get install nodejs), or name it: OCTAVO_NODE";
  if (node.empty())
    return absl::StrCat("needs Node ", kOldestNode,
                        " or later, and no program node is on the PATH; ", kAdvice);
  const auto version = VersionOf(node);
  if (!version)
    return absl::StrCat(node, " is no Node that can be run; wanted is Node ", kOldestNode,
                        " or later; ", kAdvice);
  int major = 0;
  const absl::string_view digits = absl::StripPrefix(*version, "v");
  std::from_chars(digits.data(), digits.data() + digits.size(), major);
  if (major < kOldestNode)
    return absl::StrCat(node, " is Node ", *version, "; wanted is Node ", kOldestNode,
                        " or later; ", kAdvice);
  return "";
}

/// The viewer, which is installed (or linked, in a build) beside this program.
fs::path FindViewer() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  return self.parent_path().parent_path() / "share" / "octavo" / "web" / "octavo-web.mjs";
}

struct WebFlags {
  std::string listen, certificate, key, ready_fd;
  std::vector<std::string> hosts;
  bool insecure = false, read_only = false;
};

void Web(Session& session, const WebFlags& flags) {
  const auto fail = [&](const std::string& text) {
    std::cerr << "octavo web: " << text << "\n";
    session.exit_code = kFailed;
  };
  session.channel();  // checks the address and the login
  const std::string node = FindNode();
  if (const std::string problem = NodeProblem(node); !problem.empty()) return fail(problem);
  const fs::path viewer = FindViewer();
  if (std::error_code error; !fs::exists(viewer, error))
    return fail(
        absl::StrCat(viewer.string(), " is not there; install octavo with it (cmake --install)"));
  std::vector<std::string> words = {node, viewer.string(), "--address", session.address};
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {flag, value});
  };
  add("--token-file", session.login.token_file.value);
  add("--ca-file", session.login.ca_file.value);
  add("--cert-file", session.login.cert_file.value);
  add("--key-file", session.login.key_file.value);
  add("--server-name", session.login.server_name.value);
  add("--listen", flags.listen);
  add("--tls-cert", flags.certificate);
  add("--tls-key", flags.key);
  add("--ready-fd", flags.ready_fd);
  for (const auto& host : flags.hosts) add("--host", host);
  if (flags.insecure) words.emplace_back("--insecure");
  if (flags.read_only) words.emplace_back("--read-only");
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::cout.flush();
  // The viewer takes this process over: signals and the exit code are its own.
  execv(node.c_str(), arguments.data());
  fail(absl::StrCat("cannot start ", node, ": ", std::strerror(errno)));
}

}  // namespace

void AddWebCommand(CLI::App& app, Session& session) {
  auto* web = app.add_subcommand(
      "web", "show the server in browsers; prints an address that lets one browser in");
  auto flags = std::make_shared<WebFlags>();
  web->add_option("--listen", flags->listen,
                  "HOST:PORT where browsers reach it (default 127.0.0.1:8050; port 0 = any)");
  web->add_option("--tls-cert", flags->certificate,
                  "PEM file of the certificate; needed for addresses beside loopback");
  web->add_option("--tls-key", flags->key, "PEM file of its key");
  web->add_flag("--insecure", flags->insecure,
                "listen on other addresses without TLS: anybody on the way can read along");
  web->add_option("--host", flags->hosts, "a further name of this host that browsers may use")
      ->take_all();
  web->add_flag("--read-only", flags->read_only, "offer nothing that changes anything");
  web->add_option("--ready-fd", flags->ready_fd,
                  "write a line of JSON (url, port) to this descriptor when it listens");
  web->callback([&session, flags] { Web(session, *flags); });
}

}  // namespace octavo::cli

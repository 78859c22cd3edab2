#include "server/config.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gpu/base/status.h"
#include "toml++/toml.h"

namespace octavo {
namespace {

struct Key {
  const char* name;
  const char* help;
  std::function<absl::Status(Config*, const std::string&)> set;
};

absl::Status Bad(const char* key, const std::string& value, const std::string& allowed) {
  return InvalidField(key, absl::StrCat("is '", value, "'; allowed ", allowed));
}

template <class Member>
Key Text(const char* name, const char* help, Member member, std::vector<std::string> allowed = {}) {
  return {name, help, [=](Config* config, const std::string& value) -> absl::Status {
            if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
              return Bad(name, value, absl::StrJoin(allowed, ", "));
            }
            config->*member = value;
            return absl::OkStatus();
          }};
}
template <class Member>
Key List(const char* name, const char* help, Member member) {
  return {name, help, [=](Config* config, const std::string& value) -> absl::Status {
            config->*member = std::vector<std::string>();
            for (const absl::string_view part : absl::StrSplit(value, ',', absl::SkipWhitespace())) {
              (config->*member).emplace_back(absl::StripAsciiWhitespace(part));
            }
            return absl::OkStatus();
          }};
}
Key Number(const char* name, const char* help, double Config::*member, double lo, double hi) {
  return {name, help, [=](Config* config, const std::string& value) -> absl::Status {
            double number = 0;
            if (!absl::SimpleAtod(value, &number) || !(number >= lo && number <= hi)) return Bad(name, value, absl::StrCat(lo, " to ", hi));
            config->*member = number;
            return absl::OkStatus();
          }};
}
Key Integer(const char* name, const char* help, int64_t Config::*member, int64_t lo, int64_t hi) {
  return {name, help, [=](Config* config, const std::string& value) -> absl::Status {
            int64_t number = 0;
            if (!absl::SimpleAtoi(value, &number) || number < lo || number > hi) return Bad(name, value, absl::StrCat(lo, " to ", hi));
            config->*member = number;
            return absl::OkStatus();
          }};
}

const std::vector<Key>& Keys() {
  static const auto& keys = *new std::vector<Key>{
      List("listen.tcp", "gRPC addresses, host:port; port 0 = any free one", &Config::listen_tcp),
      Text("listen.unix", "path of the gRPC Unix socket; none = no socket; default <state.dir>/octavo.sock", &Config::listen_unix),
      Text("metrics.listen", "address of the Prometheus page, host:port; none = no page", &Config::metrics_listen),
      Text("state.dir", "directory of the commit journal and the server's identity", &Config::state_dir),
      List("storage.roots", "directories that commits are confined to; the first is the default", &Config::storage_roots),
      List("storage.replay_roots", "directories that replay files are confined to; default: the storage roots", &Config::replay_roots),
      Text("device.backend", "auto (a GPU if there is one), host, cuda", &Config::backend, {"auto", "host", "cuda"}),
      Number("device.memory_fraction", "share of a device's free memory for volumes and scans, 0.05 to 0.95", &Config::memory_fraction, 0.05, 0.95),
      Integer("device.memory_bytes", "budget per device in bytes; 0 = by the fraction", &Config::memory_bytes, 0, int64_t{1} << 50),
      Integer("device.frame_pool_bytes", "page-locked host memory for frames and reads per device, bytes", &Config::frame_pool_bytes, 16 << 20, int64_t{1} << 40),
      Integer("storage.commit_threads", "commits at once, 1 to 64", &Config::commit_threads, 1, 64),
      Text("log.level", "debug, info, warning, error", &Config::log_level, {"debug", "info", "warning", "error"}),
      Text("log.format", "auto (json unless a terminal), json, text", &Config::log_format, {"auto", "json", "text"}),
      Number("drain.seconds", "how long running scans and commits may take to end on SIGTERM, 0 to 3600", &Config::drain_seconds, 0, 3600),
  };
  return keys;
}

size_t Distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

absl::Status Unknown(const std::string& key, const std::string& where) {
  const auto nearest = std::min_element(Keys().begin(), Keys().end(), [&](const Key& a, const Key& b) { return Distance(a.name, key) < Distance(b.name, key); });
  return InvalidField(key, absl::StrCat("is no configuration key", where, "; did you mean ", nearest->name, "?"));
}

// A TOML value as the text that a flag would carry.
std::string TextOf(const toml::node& node) {
  if (const auto* array = node.as_array()) {
    std::vector<std::string> parts;
    for (const auto& item : *array) parts.push_back(TextOf(item));
    return absl::StrJoin(parts, ",");
  }
  if (const auto* text = node.as_string()) return text->get();
  std::ostringstream out;
  node.visit([&](const auto& value) { out << value; });
  return out.str();
}

absl::Status ApplyTable(Config* config, const toml::table& table, const std::string& prefix, const std::string& path) {
  for (const auto& [name, node] : table) {
    const std::string key = absl::StrCat(prefix, std::string(name.str()));
    if (const auto* inner = node.as_table()) {
      OCTAVO_RETURN_IF_ERROR(ApplyTable(config, *inner, absl::StrCat(key, "."), path));
      continue;
    }
    const std::string where = absl::StrCat(" (", path, ", line ", node.source().begin.line, ")");
    const bool known = std::any_of(Keys().begin(), Keys().end(), [&](const Key& k) { return k.name == key; });
    if (!known) return Unknown(key, where);
    if (absl::Status set = ApplySetting(config, key, TextOf(node)); !set.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(set.message(), where));
    }
  }
  return absl::OkStatus();
}

std::string EnvironmentName(const std::string& key) {
  return absl::StrCat("OCTAVO_", absl::AsciiStrToUpper(absl::StrReplaceAll(key, {{".", "_"}})));
}

}  // namespace

const std::vector<ConfigKey>& ConfigKeys() {
  static const auto& list = *[] {
    auto* out = new std::vector<ConfigKey>;
    for (const Key& key : Keys()) out->push_back({.name = key.name, .help = key.help});
    return out;
  }();
  return list;
}

absl::Status ApplySetting(Config* config, const std::string& key, const std::string& value) {
  for (const Key& known : Keys()) {
    if (known.name == key) return known.set(config, value);
  }
  return Unknown(key, "");
}

absl::Status ApplyFile(Config* config, const std::string& path) {
  try {
    return ApplyTable(config, toml::parse_file(path), "", path);
  } catch (const toml::parse_error& e) {
    return absl::InvalidArgumentError(absl::StrCat(path, ", line ", e.source().begin.line, ": ", std::string(e.description())));
  }
}

absl::Status ApplyEnvironment(Config* config, char** environment) {
  for (char** entry = environment; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    for (const Key& key : Keys()) {
      if (text.substr(0, equals) == EnvironmentName(key.name)) {
        OCTAVO_RETURN_IF_ERROR(Annotate(ApplySetting(config, key.name, text.substr(equals + 1)), "environment"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Finalise(Config* config) {
  const char* home = std::getenv("HOME");
  const char* xdg_data = std::getenv("XDG_DATA_HOME");
  const char* xdg_state = std::getenv("XDG_STATE_HOME");
  const bool root = ::geteuid() == 0;
  const std::string base = home == nullptr ? "." : home;
  if (config->state_dir.empty()) {
    config->state_dir = root ? "/var/lib/octavo/state" : xdg_state != nullptr ? absl::StrCat(xdg_state, "/octavo") : absl::StrCat(base, "/.local/state/octavo");
  }
  if (config->storage_roots.empty()) {
    config->storage_roots = {root ? "/var/lib/octavo/data" : xdg_data != nullptr ? absl::StrCat(xdg_data, "/octavo") : absl::StrCat(base, "/.local/share/octavo")};
  }
  for (auto* list : {&config->storage_roots, &config->replay_roots}) {
    for (std::string& path : *list) path = std::filesystem::absolute(path).lexically_normal().string();
  }
  config->state_dir = std::filesystem::absolute(config->state_dir).lexically_normal().string();
  if (config->replay_roots.empty()) config->replay_roots = config->storage_roots;
  if (config->listen_unix.empty()) config->listen_unix = absl::StrCat(config->state_dir, "/octavo.sock");
  if (config->listen_unix == "none") config->listen_unix.clear();
  if (config->listen_tcp.empty() && config->listen_unix.empty()) return InvalidField("listen.tcp", "and listen.unix are both empty; nothing to listen on");
  return absl::OkStatus();
}

}  // namespace octavo

#include "server/config.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "gpu/base/spelling.h"
#include "gpu/base/status.h"
#include "server/base/lies_in.h"
#include "server/base/toml.h"
#include "server/base/toml_text.h"
#include "server/listen_address.h"
#include "server/security/credential.h"
#include "server/security/token.h"

namespace octavo {
namespace {

using Values = std::vector<std::string>;  // one for a scalar key, any number for a list

struct Key {
  const char* name;
  const char* help;
  bool list;
  std::function<absl::Status(Config*, const Values&)> set;
  std::function<std::string(const Config&)> text;  // its value
};

absl::Status Bad(const char* key, const std::string& value, const std::string& allowed) {
  return InvalidField(key, absl::StrCat("is '", value, "'; allowed ", allowed));
}

// An additional check of a value beyond its type; null = none.
using Check = absl::Status (*)(const char* key, const std::string& value);

absl::Status CheckAddress(const char* key, const std::string& value) {
  const size_t colon = value.rfind(':');
  int32_t port = -1;
  const std::string host = value.substr(0, colon);
  const bool plain = host.find(':') == std::string::npos;
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (colon == std::string::npos || host.empty() || !(plain || bracketed) ||
      !absl::SimpleAtoi(value.substr(colon + 1), &port) || port < 0 || port > 65535) {
    return Bad(key, value, "host:port with port 0 to 65535 (IPv6: [::1]:50051)");
  }
  return absl::OkStatus();
}

absl::Status CheckPage(const char* key, const std::string& value) {
  return value == "none" ? absl::OkStatus() : CheckAddress(key, value);
}

absl::Status CheckInterface(const char* key, const std::string& value) {
  return value == "GigEVision" || value == "USB3Vision" || value == "Fake"
             ? absl::OkStatus()
             : Bad(key, value, "GigEVision, USB3Vision, Fake");
}

absl::Status CheckException(const char* key, const std::string& value) {
  memory::QuotaRules rules;
  const absl::Status added = rules.AddException(value);
  return added.ok() ? added : InvalidField(key, added.message());
}

absl::Status CheckRootRight(const char* key, const std::string& value) {
  security::RootRights rights;
  const absl::Status added = rights.Add(value);
  return added.ok() ? added : InvalidField(key, added.message());
}

absl::Status CheckMode(const char* key, const std::string& value) {
  const bool octal = !value.empty() && value.size() <= 4 &&
                     value.find_first_not_of("01234567") == std::string::npos;
  const long mode = octal ? std::strtol(value.c_str(), nullptr, 8) : 0;
  return mode >= 0600 && mode <= 0777 && (mode & 0600) == 0600 ? absl::OkStatus()
                                                               : Bad(key, value, "0600 to 0777");
}

Key Text(const char* name, const char* help, std::string Config::*member, Check check = nullptr) {
  return {name, help, false,
          [=](Config* config, const Values& values) -> absl::Status {
            if (check != nullptr) OCTAVO_RETURN_IF_ERROR(check(name, values[0]));
            config->*member = values[0];
            return absl::OkStatus();
          },
          [=](const Config& config) { return config.*member; }};
}
Key Choice(const char* name, const char* help, std::string Config::*member, const Values& allowed) {
  return {name, help, false,
          [=](Config* config, const Values& values) -> absl::Status {
            if (std::find(allowed.begin(), allowed.end(), values[0]) == allowed.end())
              return Bad(name, values[0], absl::StrJoin(allowed, ", "));
            config->*member = values[0];
            return absl::OkStatus();
          },
          [=](const Config& config) { return config.*member; }};
}
Key List(const char* name, const char* help, Values Config::*member, Check check = nullptr) {
  return {name, help, true,
          [=](Config* config, const Values& values) -> absl::Status {
            for (const auto& value : values) {
              if (check != nullptr) OCTAVO_RETURN_IF_ERROR(check(name, value));
            }
            config->*member = values;
            return absl::OkStatus();
          },
          [=](const Config& config) { return absl::StrJoin(config.*member, ","); }};
}
Key Number(const char* name, const char* help, double Config::*member, double lo, double hi) {
  return {name, help, false,
          [=](Config* config, const Values& values) -> absl::Status {
            double number = 0;
            if (!absl::SimpleAtod(values[0], &number) || !(number >= lo && number <= hi))
              return Bad(name, values[0], absl::StrCat(lo, " to ", hi));
            config->*member = number;
            return absl::OkStatus();
          },
          [=](const Config& config) { return absl::StrCat(config.*member); }};
}
Key Integer(const char* name, const char* help, int64_t Config::*member, int64_t lo, int64_t hi) {
  return {name, help, false,
          [=](Config* config, const Values& values) -> absl::Status {
            int64_t number = 0;
            if (!absl::SimpleAtoi(values[0], &number) || number < lo || number > hi)
              return Bad(name, values[0],
                         absl::StrCat("a whole number",
                                      absl::EndsWith(name, "bytes") ? " of bytes, " : ", ", lo,
                                      " to ", hi));
            config->*member = number;
            return absl::OkStatus();
          },
          [=](const Config& config) { return absl::StrCat(config.*member); }};
}

Key Flag(const char* name, const char* help, bool Config::*member) {
  return {name, help, false,
          [=](Config* config, const Values& values) -> absl::Status {
            if (values[0] != "true" && values[0] != "false")
              return Bad(name, values[0], "true, false");
            config->*member = values[0] == "true";
            return absl::OkStatus();
          },
          [=](const Config& config) { return config.*member ? "true" : "false"; }};
}

const std::vector<Key>& Keys() {
  static const auto& keys = *new std::vector<Key>{
      List("listen.tcp", "gRPC addresses, host:port; port 0 = any free one", &Config::listen_tcp,
           CheckAddress),
      Text("listen.unix",
           "path of the gRPC Unix socket; none = no socket; default <state.dir>/octavo.sock",
           &Config::listen_unix),
      Integer("listen.memory_bytes",
              "memory for data that gRPC clients send, until they are processed, bytes; when it is "
              "used up, calls end",
              &Config::listen_memory_bytes, 64 << 20, int64_t{1} << 40),
      Integer("listen.spare_descriptors",
              "descriptors that gRPC connections leave to the rest; 0 = a quarter of the process' "
              "limit, at most 1024",
              &Config::listen_spare_descriptors, 0, 1 << 20),
      Number(
          "listen.stalled_seconds",
          "a client that reads nothing, or answers no ping, for this long (a ping: at least 30) is "
          "disconnected, and a stream for which its "
          "client sends no first message, or in WriteBuffer no next one, ends, 1 to 3600",
          &Config::listen_stalled_seconds, 1, 3600),
      Choice(
          "listen.loopback_role",
          "what programs may do that connect by TCP without a token: none, viewer (see), operator "
          "(acquire, process, discard), admin; default operator without a configuration file, "
          "unless there are tokens, certificates of clients or other hosts; else viewer",
          &Config::listen_loopback_role, {"none", "viewer", "operator", "admin"}),
      Text("listen.tls.certificate",
           "PEM file of the server's certificate, followed by those that issued it; empty = TCP "
           "without TLS",
           &Config::listen_tls_certificate),
      Text("listen.tls.key", "PEM file of its private key, of mode 0600", &Config::listen_tls_key),
      Text("listen.tls.client_ca",
           "PEM file of the authorities whose certificates clients log in with; empty = clients "
           "have none",
           &Config::listen_tls_client_ca),
      Choice("listen.tls.client_certificates",
             "where there is a client_ca: required (without one no connection comes about), "
             "optional (clients may have a token instead)",
             &Config::listen_tls_client_certificates, {"required", "optional"}),
      Number("listen.tls.old_connections_seconds",
             "how long connections go on after the certificates were replaced, 0 to 604800; when "
             "an authority of clients is withdrawn, they end at once",
             &Config::listen_tls_old_connections_seconds, 0, 604'800),
      Text("metrics.listen", "address of the Prometheus page, host:port; none = no page",
           &Config::metrics_listen, CheckPage),
      Text("state.dir", "directory of the commit journal and the server's identity",
           &Config::state_dir),
      List("storage.roots", "directories that commits are confined to; the first is the default",
           &Config::storage_roots),
      Flag("storage.create_roots",
           "true: missing storage roots are created; else octavod does not start without them; the "
           "default root is always created",
           &Config::storage_create_roots),
      List("storage.replay_roots",
           "directories that replay files are confined to; default: the storage roots",
           &Config::replay_roots),
      Choice(
          "storage.direct",
          "how files come into devices: auto (for each root the fastest way, measured), off (put "
          "together in host memory), buffered (through the page cache), direct (O_DIRECT), "
          "cufile (GPUDirect Storage, where it is native)",
          &Config::storage_direct, {"auto", "off", "buffered", "direct", "cufile"}),
      Choice("device.backend", "auto (a GPU if there is one), host, cuda", &Config::backend,
             {"auto", "host", "cuda"}),
      Integer("device.host_devices",
              "number of devices that the host appears as if no GPU is used, 1 to 16; they share "
              "its cores and memory",
              &Config::host_devices, 1, 16),
      Flag("device.host_for_jobs",
           "true: beside the other devices, the host is the device devices/host, for tomography "
           "and projection jobs that name it; it leaves at least a quarter of the cores to other "
           "work, if there are two",
           &Config::host_for_jobs),
      Integer("device.host_for_jobs_bytes",
              "budget of devices/host in bytes of host memory; 0 = by device.memory_fraction",
              &Config::host_for_jobs_bytes, 0, int64_t{1} << 50),
      Number("device.memory_fraction",
             "share of a device's free memory for volumes and scans, 0.05 to 0.95",
             &Config::memory_fraction, 0.05, 0.95),
      Integer("device.memory_bytes", "budget per device in bytes; 0 = by the fraction",
              &Config::memory_bytes, 0, int64_t{1} << 50),
      Integer("device.frame_pool_bytes",
              "page-locked host memory per device for frames, reads and writes of clients (at most "
              "three quarters of it) and commits, bytes",
              &Config::frame_pool_bytes, 16 << 20, int64_t{1} << 40),
      Integer("device.slot_cache_bytes",
              "device memory of ended scans kept for the next ones, per device, bytes; 0 = freed "
              "at once",
              &Config::slot_cache_bytes, 0, int64_t{1} << 50),
      Integer("device.buffer_quota_bytes",
              "device memory that the buffers of one client may take, bytes; 0 = no limit",
              &Config::buffer_quota_bytes, 0, int64_t{1} << 50),
      Integer(
          "quota.device_bytes",
          "device memory of one principal's scans, jobs, buffers and volumes, bytes; 0 = no "
          "limit, here and for the next ones; admins have none, unless quota.exceptions says so",
          &Config::quota_device_bytes, 0, int64_t{1} << 50),
      Integer("quota.scans", "scans of one principal, queued and running, 0 to 1000000",
              &Config::quota_scans, 0, 1'000'000),
      Integer("quota.jobs", "jobs of one principal, queued and running, 0 to 1000000",
              &Config::quota_jobs, 0, 1'000'000),
      Integer("quota.watches",
              "watches, waits and subscriptions that one principal has open at once, 0 to 1000000",
              &Config::quota_watches, 0, 1'000'000),
      Integer("quota.plans",
              "calls that plan a scan, a waveform or a job, of one principal at once, 0 to 1000000",
              &Config::quota_plans, 0, 1'000'000),
      Integer("quota.submits",
              "calls that submit or update scans and submit jobs, of one principal at once, 0 to "
              "1000000",
              &Config::quota_submits, 0, 1'000'000),
      Integer("quota.renderings", "calls of RenderVolume of one principal at once, 0 to 1000000",
              &Config::quota_renderings, 0, 1'000'000),
      Integer("quota.mosaics", "calls of MosaicService of one principal at once, 0 to 1000000",
              &Config::quota_mosaics, 0, 1'000'000),
      List(
          "quota.exceptions",
          "other limits for a principal or a role: \"anna scans=2 device_bytes=4294967296\", "
          "\"role:admin watches=64\"; a name with spaces in double quotes; kinds as the keys above",
          &Config::quota_exceptions, CheckException),
      List("quota.roots",
           "storage roots that commits and imports of a principal may name: \"anna=/data/anna\", "
           "\"role:operator=/data/lab\", \"*=/data/shared\"; whoever has no line may name all",
           &Config::quota_roots, CheckRootRight),
      Integer("device.projection_bytes",
              "host memory for projections that clients push to tomography jobs and for chunks of "
              "files, bytes; 0 = the remainder of the host's memory after the other budgets, at "
              "most half",
              &Config::projection_bytes, 0, int64_t{1} << 50),
      Text("spill.dir",
           "private directory of volumes that are moved to disk; default <state.dir>/spill",
           &Config::spill_dir),
      Integer("spill.disk_bytes",
              "largest size of spilled volumes on disk, bytes; 0 = no tier DISK",
              &Config::spill_disk_bytes, 0, int64_t{1} << 60),
      Integer("spill.host_bytes",
              "page-locked host memory for spilled volumes, bytes; 0 = no tier HOST",
              &Config::spill_host_bytes, 0, int64_t{1} << 50),
      Integer("spill.threads", "volumes moved at once, 1 to 64", &Config::spill_threads, 1, 64),
      Choice("spill.mirror",
             "copies of held volumes in the tier DISK, so that a server that is killed loses none: "
             "off, idle (made while nothing else uses the disk)",
             &Config::spill_mirror, {"off", "idle"}),
      Number("session.heartbeat_seconds",
             "interval of the signs of life of clients with a session, 0.1 to 3600",
             &Config::session_heartbeat_seconds, 0.1, 3600),
      Number("session.expiry_seconds",
             "a session without a sign of life for this long expires, 0.2 to 86400, at least twice "
             "the heartbeat",
             &Config::session_expiry_seconds, 0.2, 86400),
      Integer("session.most",
              "sessions that may be open at once; the same number of ended ones is remembered, 1 "
              "to 10000000",
              &Config::session_most, 1, 10'000'000),
      Integer("lease.most", "leases that may be held or waited for at once, 1 to 10000000",
              &Config::lease_most, 1, 10'000'000),
      Integer("history.scans",
              "ended scans that stay listed, 1 to 1000000; one with volumes in memory always does",
              &Config::history_scans, 1, 1'000'000),
      Integer("history.bytes",
              "host memory that ended scans may take while they stay listed, bytes",
              &Config::history_bytes, 1 << 20, int64_t{1} << 40),
      Text("history.dir",
           "private directory of the database that tells the next daemon of scans, jobs, "
           "commits and held volumes; none = they are forgotten; default <state.dir>/history",
           &Config::history_dir),
      Integer("history.kept",
              "ended scans, jobs, commits and held volumes, of each kind and owner, that the "
              "database keeps for "
              "the next "
              "daemon, 1 to 100000",
              &Config::history_kept, 1, 100'000),
      Number("history.days", "days that it keeps them, 0 to 36500; 0 = for ever",
             &Config::history_days, 0, 36500),
      Text("audit.dir",
           "private directory of the audit log, which has a line for each change and refusal; none "
           "= there is no audit log; default <state.dir>/audit",
           &Config::audit_dir),
      Integer("audit.file_bytes",
              "size at which a file of the audit log is put aside, bytes, 64 KiB to 1 TiB",
              &Config::audit_file_bytes, 64 << 10, int64_t{1} << 40),
      Integer("audit.kept",
              "files of the audit log that were put aside and are kept, 0 to 1000000; 0 = all",
              &Config::audit_kept, 0, 1'000'000),
      Flag("audit.fsync",
           "lines of the audit log are on the disk before the next ones are written; if not, a "
           "power cut may take the last ones",
           &Config::audit_fsync),
      Integer("storage.quarantine_entries",
              "entries that .octavo-quarantine of a storage root may hold, 0 to 1000000; 0 = any "
              "number",
              &Config::quarantine_entries, 0, 1'000'000),
      Integer("storage.quarantine_bytes", "bytes that it may hold; 0 = any number",
              &Config::quarantine_bytes, 0, int64_t{1} << 60),
      Number("storage.quarantine_days", "days that entries stay in it, 0 to 36500; 0 = for ever",
             &Config::quarantine_days, 0, 36500),
      Integer("storage.commit_threads", "commits at once, 1 to 64", &Config::commit_threads, 1, 64),
      List("camera.interfaces",
           "interfaces searched for cameras: GigEVision, USB3Vision, Fake (a camera for tests)",
           &Config::camera_interfaces, CheckInterface),
      Text("handoff.unix",
           "path of the socket that hands memory to programs on this host; none = not offered; "
           "auto = <state.dir>/handoff.sock",
           &Config::handoff_unix),
      Text("handoff.group", "group of that socket; empty = the daemon's own",
           &Config::handoff_group),
      Text("handoff.mode", "permissions of that socket, octal, 0600 to 0777", &Config::handoff_mode,
           CheckMode),
      Number("handoff.grace_seconds",
             "how long a program may take to give back memory that is revoked, 0 to 3600",
             &Config::handoff_grace_seconds, 0, 3600),
      Text("security.tokens",
           "file of the bearer tokens that clients log in with (octavo token); empty = none are "
           "taken",
           &Config::security_tokens),
      Text("security.certificates",
           "file with the table of clients' certificates and their roles; empty = none has a line",
           &Config::security_certificates),
      Choice("security.certificate_role",
             "what a client's certificate may do that has no line in that table: none, viewer, "
             "operator, admin",
             &Config::security_certificate_role, {"none", "viewer", "operator", "admin"}),
      Flag(
          "security.insecure",
          "true: addresses that other hosts can reach are allowed without TLS, or without a login; "
          "true, false",
          &Config::security_insecure),
      Choice(
          "security.insecure_role",
          "what programs of other hosts may do that security.insecure lets in without TLS, where "
          "the server takes no tokens: none, viewer, operator, admin",
          &Config::security_insecure_role, {"none", "viewer", "operator", "admin"}),
      Choice("log.level", "debug, info, warning, error", &Config::log_level,
             {"debug", "info", "warning", "error"}),
      Choice("log.format", "auto (json unless a terminal), json, text", &Config::log_format,
             {"auto", "json", "text"}),
      Number("drain.seconds",
             "how long running scans and commits may take to end on SIGTERM, 0 to 3600",
             &Config::drain_seconds, 0, 3600),
      Choice(
          "drain.on_held",
          "what becomes of held volumes then: spill (written to the tier DISK, held again by the "
          "next daemon; without that tier as lose), commit (to drain.commit_root; what cannot "
          "be committed is spilled), lose",
          &Config::drain_on_held, {"spill", "commit", "lose"}),
      Number("drain.spill_seconds",
             "how long writing them may take, after drain.seconds, 0 to 86400; 0 = as long as it "
             "makes progress",
             &Config::drain_spill_seconds, 0, 86400),
      Text("drain.commit_root",
           "storage root of drain.on_held = commit, below which held_at_stop gets the files; "
           "default: the first",
           &Config::drain_commit_root),
      Choice("drain.commit_format",
             "ending of these files: ome.zarr, npy, nrrd, nii, ome.tif, mat, h5, bin",
             &Config::drain_commit_format,
             {"ome.zarr", "npy", "nrrd", "nii", "ome.tif", "mat", "h5", "bin"}),
  };
  return keys;
}

absl::Status Unknown(const std::string& key, const std::string& where) {
  Values names;
  for (const Key& known : Keys()) names.push_back(known.name);
  return InvalidField(key, absl::StrCat("is no configuration key", where, DidYouMean(key, names)));
}

const Key* Find(const std::string& name) {
  const auto it =
      std::find_if(Keys().begin(), Keys().end(), [&](const Key& key) { return key.name == name; });
  return it == Keys().end() ? nullptr : &*it;
}

// A scalar of TOML as the text that a flag would carry.
std::string TextOf(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_floating_point()) {
    // The shortest form that reads back the same, so that an error shows 0.96 as it was written.
    char digits[40];
    return std::string(digits, std::to_chars(digits, digits + sizeof digits, number->get()).ptr);
  }
  std::ostringstream out;
  node.visit([&](const auto& value) { out << value; });
  return out.str();
}

absl::Status ApplyNode(Config* config, const Key& key, const toml::node& node) {
  const auto* array = node.as_array();
  if (array == nullptr) return ApplySetting(config, key.name, TextOf(node));
  if (!key.list) return InvalidField(key.name, "is a list; allowed one value");
  Values values;  // not joined into one text, because a path may contain a comma
  for (const auto& item : *array) {
    if (!item.is_string())
      return InvalidField(key.name, "holds something other than text; allowed a list of texts");
    values.push_back(TextOf(item));
  }
  return key.set(config, values);
}

absl::Status ApplyTable(Config* config, const toml::table& table, const std::string& prefix,
                        const std::string& path) {
  for (const auto& [name, node] : table) {
    const std::string key = absl::StrCat(prefix, std::string(name.str()));
    const std::string where = absl::StrCat(" (", path, ", line ", node.source().begin.line, ")");
    if (const auto* inner = node.as_table()) {
      const bool section = std::any_of(Keys().begin(), Keys().end(), [&](const Key& k) {
        return absl::StartsWith(k.name, absl::StrCat(key, "."));
      });
      if (!section && inner->empty()) return Unknown(key, where);
      OCTAVO_RETURN_IF_ERROR(ApplyTable(config, *inner, absl::StrCat(key, "."), path));
      continue;
    }
    const Key* known = Find(key);
    if (known == nullptr) return Unknown(key, where);
    if (absl::Status set = ApplyNode(config, *known, node); !set.ok())
      return absl::InvalidArgumentError(absl::StrCat(set.message(), where));
  }
  return absl::OkStatus();
}

/// The key whose value stands in a line of a TOML text, "quota.scans"; empty if none is found.
std::string KeyAt(absl::string_view text, uint32_t line) {
  absl::string_view section, key;
  for (absl::string_view row : absl::StrSplit(text, '\n')) {
    if (line-- == 0) break;
    row = absl::StripAsciiWhitespace(row);
    const size_t equals = row.find('=');
    if (absl::ConsumePrefix(&row, "[")) {
      section = row.substr(0, row.find(']'));
    } else if (equals != absl::string_view::npos && !absl::StartsWith(row, "#")) {
      key = absl::StripAsciiWhitespace(row.substr(0, equals));
    }
  }
  return absl::StrCat(section, section.empty() || key.empty() ? "" : ".", key);
}

/// The number that no integer or floating-point number of TOML can be, from the parser's words;
/// empty if it complains about something else.
std::string HugeNumber(absl::string_view complaint) {
  const size_t begin = complaint.find('\''), end = complaint.rfind('\'');
  if (begin == absl::string_view::npos || end <= begin) return "";
  std::string number(complaint.substr(begin + 1, end - begin - 1));
  double value = 0;
  const bool huge = absl::StrContains(complaint, "not representable in 64 bits") ||
                    (absl::SimpleAtod(number, &value) && std::isinf(value));
  return huge ? number : "";
}

absl::Status TooLarge(const std::string& number, const std::string& key, const std::string& where) {
  // A key that is known says what it takes.
  Config scratch;
  if (const Key* const known = Find(key); known != nullptr && !known->list) {
    if (const absl::Status set = known->set(&scratch, {number}); !set.ok())
      return absl::InvalidArgumentError(absl::StrCat(set.message(), where));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(key.empty() ? "a number" : key, ": is ", number,
                   ", which is too large; allowed are numbers up to 9223372036854775807", where));
}

absl::Status CheckClosed(const char* key, const std::string& address, absl::string_view missing) {
  const absl::Status closed = CheckLoopback(address);
  if (closed.ok()) return closed;
  if (absl::IsNotFound(closed)) return InvalidField(key, std::string(closed.message()));
  return InvalidField(
      key, absl::StrCat(closed.message(), ", and ", missing,
                        "; allowed are loopback addresses (127.0.0.1, [::1]), and any address with "
                        "security.insecure = true (--security.insecure true, "
                        "OCTAVO_SECURITY_INSECURE=true)"));
}

// Credentials of systemd become paths, and paths absolute; empty ones stay empty.
absl::Status ResolveFile(const char* key, std::string* path) {
  if (path->empty()) return absl::OkStatus();
  auto resolved = security::ExpandCredential(*path);
  if (!resolved.ok()) return InvalidField(key, std::string(resolved.status().message()));
  *path = std::filesystem::absolute(*resolved).lexically_normal().string();
  return absl::OkStatus();
}

absl::Status ResolveTrust(Config* config) {
  OCTAVO_RETURN_IF_ERROR(ResolveFile("security.tokens", &config->security_tokens));
  OCTAVO_RETURN_IF_ERROR(ResolveFile("security.certificates", &config->security_certificates));
  OCTAVO_RETURN_IF_ERROR(ResolveFile("listen.tls.certificate", &config->listen_tls_certificate));
  OCTAVO_RETURN_IF_ERROR(ResolveFile("listen.tls.key", &config->listen_tls_key));
  OCTAVO_RETURN_IF_ERROR(ResolveFile("listen.tls.client_ca", &config->listen_tls_client_ca));
  const bool tls = !config->listen_tls_certificate.empty();
  if (tls != !config->listen_tls_key.empty())
    return InvalidField(tls ? "listen.tls.key" : "listen.tls.certificate",
                        "is not given; listen.tls.certificate and listen.tls.key belong together");
  if (!tls && !config->listen_tls_client_ca.empty())
    return InvalidField("listen.tls.client_ca",
                        "is of no use without listen.tls.certificate and listen.tls.key");
  if (!config->security_certificates.empty() && config->listen_tls_client_ca.empty())
    return InvalidField("security.certificates",
                        "is of no use without listen.tls.client_ca, whose certificates it names");
  return absl::OkStatus();
}

std::string EnvironmentName(const std::string& key) {
  return absl::StrCat("OCTAVO_", absl::AsciiStrToUpper(absl::StrReplaceAll(key, {{".", "_"}})));
}

absl::StatusOr<std::string> ReadConfigFile(const std::string& path) {
  std::error_code error;
  const bool exists = std::filesystem::exists(path, error);
  if (error)
    return absl::InvalidArgumentError(absl::StrCat(path, ": cannot be read: ", error.message()));
  if (!exists) return absl::InvalidArgumentError(absl::StrCat(path, ": no such file"));
  if (std::filesystem::is_directory(path, error))
    return absl::InvalidArgumentError(absl::StrCat(path, ": is a directory"));
  // A FIFO would hold up the daemon until somebody writes into it.
  if (!std::filesystem::is_regular_file(path, error))
    return absl::InvalidArgumentError(absl::StrCat(path, ": is no regular file"));
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostConfigBytes + 1, '\0');
  if (file.is_open()) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || !file.is_open())
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": cannot be read", errno == 0 ? "" : absl::StrCat(": ", std::strerror(errno))));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

/// An error about a key, found where all sources were put together, with the place of the key in
/// the file, if its value is from there.
absl::Status WithPlace(const absl::Status& status, const ConfigSources& sources) {
  const ErrorInfo info = InfoOf(status);
  if (info.field.empty() || sources.file.empty() || sources.flags.count(info.field) > 0 ||
      std::getenv(EnvironmentName(info.field).c_str()) != nullptr)
    return status;
  const auto text = ReadConfigFile(sources.file);
  if (!text.ok()) return status;
  try {
    const toml::table table = toml::parse(std::string_view(*text), std::string_view(sources.file));
    const toml::node* const node = table.at_path(info.field).node();
    if (node == nullptr) return status;
    return WithInfo(
        absl::Status(status.code(), absl::StrCat(status.message(), " (", sources.file, ", line ",
                                                 node->source().begin.line, ")")),
        info);
  } catch (const std::exception&) {  // the file has changed meanwhile
    return status;
  }
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

std::vector<ConfigChange> ChangesOf(const Config& from, const Config& to) {
  std::vector<ConfigChange> changes;
  for (const Key& key : Keys()) {
    std::string before = key.text(from), after = key.text(to);
    if (before != after)
      changes.push_back({.key = key.name, .from = std::move(before), .to = std::move(after)});
  }
  return changes;
}

absl::Status ApplySetting(Config* config, const std::string& key, const std::string& value) {
  const Key* known = Find(key);
  if (known == nullptr) return Unknown(key, "");
  if (!known->list) return known->set(config, {value});
  Values values;
  for (const absl::string_view part : absl::StrSplit(value, ',', absl::SkipWhitespace()))
    values.emplace_back(absl::StripAsciiWhitespace(part));
  return known->set(config, values);
}

absl::Status ApplyFile(Config* config, const std::string& path) {
  OCTAVO_ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(path));
  return ApplyText(config, text, path);
}

absl::Status ApplyText(Config* config, const std::string& text, const std::string& path) {
  if (absl::Status fit = CheckConfigText(text); !fit.ok())
    return absl::InvalidArgumentError(absl::StrCat(path, ", ", fit.message()));
  try {
    return ApplyTable(config, toml::parse(text, path), "", path);
  } catch (const toml::parse_error& e) {
    const auto [line, column] = e.source().begin;
    if (e.description().find("redefine") != std::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ", line ", line, ", column ", column,
                       ": names what is there already; allowed is each key and table once"));
    }
    const std::string number = HugeNumber({e.description().data(), e.description().size()});
    if (!number.empty())
      return TooLarge(number, KeyAt(text, line), absl::StrCat(" (", path, ", line ", line, ")"));
    return absl::InvalidArgumentError(absl::StrCat(
        path, ", line ", line, ", column ", column,
        ": is no TOML; allowed are lines of key = value, with text ",
        "in quotes and lists in [ ], tables as [table], and comments that begin with #"));
  } catch (const std::logic_error&) {  // where is not known
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is no TOML: a table or a key without a name, or without a value"));
  }
}

absl::Status ApplyEnvironment(Config* config, char** environment,
                              std::vector<std::string>* unknown) {
  std::vector<std::string> names;
  for (const Key& key : Keys()) names.push_back(EnvironmentName(key.name));
  for (char** entry = environment; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    if (equals == std::string::npos || !absl::StartsWith(name, "OCTAVO_")) continue;
    bool known = false, section = false;
    for (const Key& key : Keys()) {
      const std::string full = EnvironmentName(key.name);
      section |= absl::StartsWith(name, full.substr(0, full.find('_', sizeof "OCTAVO_" - 1) + 1));
      if (name != full) continue;
      known = true;
      OCTAVO_RETURN_IF_ERROR(Annotate(ApplySetting(config, key.name, text.substr(equals + 1)),
                                      absl::StrCat("environment ", name)));
    }
    if (!section || known) continue;
    if (absl::StartsWith(name, "OCTAVO_SECURITY_") || absl::StartsWith(name, "OCTAVO_LISTEN_")) {
      return absl::InvalidArgumentError(absl::StrCat(
          "environment ", name, ": is no key of the configuration", DidYouMean(name, names)));
    }
    unknown->push_back(absl::StrCat(name, DidYouMean(name, names)));
  }
  return absl::OkStatus();
}

bool IsTlsWithLogin(const Config& config) {
  return !config.listen_tls_certificate.empty() &&
         (!config.security_tokens.empty() || !config.listen_tls_client_ca.empty());
}

std::vector<std::string> OpenAddresses(const Config& config) {
  std::vector<std::string> open;
  for (const std::string& address : config.listen_tcp) {
    if (!IsTlsWithLogin(config) && !CheckLoopback(address).ok()) open.push_back(address);
  }
  if (config.metrics_listen != "none" && !CheckLoopback(config.metrics_listen).ok())
    open.push_back(config.metrics_listen);
  return open;
}

absl::StatusOr<Config> LoadConfig(const ConfigSources& sources, std::vector<std::string>* unknown) {
  Config config;
  config.listen_loopback_role.clear();
  if (!sources.file.empty()) OCTAVO_RETURN_IF_ERROR(ApplyFile(&config, sources.file));
  OCTAVO_RETURN_IF_ERROR(ApplyEnvironment(&config, environ, unknown));
  for (const auto& [key, value] : sources.flags)
    OCTAVO_RETURN_IF_ERROR(ApplySetting(&config, key, value));
  if (config.listen_loopback_role.empty()) {
    // One user's machine, unless something says that there are others.
    const bool alone = sources.file.empty() && config.security_tokens.empty() &&
                       config.listen_tls_client_ca.empty() && !config.security_insecure;
    config.listen_loopback_role = alone ? "operator" : Config().listen_loopback_role;
  }
  if (const absl::Status final = Finalise(&config); !final.ok()) return WithPlace(final, sources);
  return config;
}

memory::QuotaRules QuotaRulesOf(const Config& config) {
  using enum memory::QuotaKind;
  memory::QuotaRules rules;
  rules.SetUsual(kDeviceBytes, config.quota_device_bytes);
  rules.SetUsual(kScans, config.quota_scans);
  rules.SetUsual(kJobs, config.quota_jobs);
  rules.SetUsual(kWatches, config.quota_watches);
  rules.SetUsual(kPlans, config.quota_plans);
  rules.SetUsual(kSubmits, config.quota_submits);
  rules.SetUsual(kRenderings, config.quota_renderings);
  rules.SetUsual(kMosaics, config.quota_mosaics);
  for (const std::string& text : config.quota_exceptions) (void)rules.AddException(text);
  return rules;
}

security::RootRights RootRightsOf(const Config& config) {
  security::RootRights rights;
  for (const std::string& text : config.quota_roots) (void)rights.Add(text);
  return rights;
}

std::vector<security::NamedPrincipals::Name> NamesInQuotas(const Config& config) {
  std::vector<security::NamedPrincipals::Name> names;
  for (std::string& name : QuotaRulesOf(config).principals())
    names.push_back({.key = "quota.exceptions", .name = std::move(name)});
  for (std::string& name : RootRightsOf(config).principals())
    names.push_back({.key = "quota.roots", .name = std::move(name)});
  return names;
}

namespace {

/// A root that lies in another one; empty = there is none.
std::string NestedRoot(const Config& config) {
  Values all = config.storage_roots;
  all.insert(all.end(), config.replay_roots.begin(), config.replay_roots.end());
  for (const std::string& inner : all) {
    for (const std::string& outer : all) {
      if (base::LiesIn(inner, outer) &&
          absl::StripSuffix(inner, "/") != absl::StripSuffix(outer, "/"))
        return inner;
    }
  }
  return "";
}

/// What the lines of the lists say together.
absl::Status CheckQuotas(const Config& config) {
  memory::QuotaRules rules;
  for (const std::string& text : config.quota_exceptions) {
    if (const absl::Status added = rules.AddException(text); !added.ok())
      return InvalidField("quota.exceptions", added.message());
  }
  const auto is_in = [](const Values& roots, const std::string& root) {
    return std::any_of(roots.begin(), roots.end(),
                       [&](const std::string& one) { return absl::StripSuffix(one, "/") == root; });
  };
  const security::RootRights rights = RootRightsOf(config);
  const std::string inner = rights.named().empty() ? "" : NestedRoot(config);
  if (!inner.empty())
    return InvalidField("quota.roots",
                        absl::StrCat("keeps principals apart by roots, and the root ", inner,
                                     " lies in another one; allowed are storage.roots and "
                                     "storage.replay_roots that do not hold each other"));
  for (const std::string& root : rights.named()) {
    if (!is_in(config.storage_roots, root) && !is_in(config.replay_roots, root))
      return Bad("quota.roots", root,
                 absl::StrCat("one of storage.roots (", absl::StrJoin(config.storage_roots, ", "),
                              ") or storage.replay_roots (",
                              absl::StrJoin(config.replay_roots, ", "), ")"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Finalise(Config* config) {
  const auto directory = [root = ::geteuid() == 0](const char* of_root, const char* variable,
                                                   const char* under_home) -> std::string {
    if (root) return of_root;
    if (const char* base = std::getenv(variable); base != nullptr && *base != '\0')
      return absl::StrCat(base, "/octavo");
    const char* home = std::getenv("HOME");
    return absl::StrCat(home == nullptr || *home == '\0' ? "." : home, under_home);
  };
  if (config->state_dir.empty())
    config->state_dir =
        directory("/var/lib/octavo/state", "XDG_STATE_HOME", "/.local/state/octavo");
  if (config->storage_roots.empty()) {
    config->storage_roots = {
        directory("/var/lib/octavo/data", "XDG_DATA_HOME", "/.local/share/octavo")};
    config->storage_create_roots = true;  // not configured, so it cannot be a mistake
  }
  if (security::IdOfToken(std::filesystem::path(config->security_tokens).filename().string())) {
    // It must not be shown.
    return InvalidField("security.tokens",
                        "is a token and not the name of a file; allowed is the file that octavo "
                        "token add --file makes");
  }
  // A shell would have put a home there; this would be a folder of that name.
  const auto check_home = [](const char* key, const std::string& path) {
    if (path != "~" && !absl::StartsWith(path, "~/")) return absl::OkStatus();
    return InvalidField(key,
                        absl::StrCat("is '", path,
                                     "'; the configuration is no shell, in which ~ is a home: "
                                     "allowed are paths from / on, or from the folder in which "
                                     "octavod starts (./~ is a folder of that name)"));
  };
  for (const auto& [key, folder] :
       {std::pair("state.dir", &config->state_dir), std::pair("spill.dir", &config->spill_dir),
        std::pair("history.dir", &config->history_dir), std::pair("audit.dir", &config->audit_dir)})
    OCTAVO_RETURN_IF_ERROR(check_home(key, *folder));
  for (const auto& [key, roots] : {std::pair("storage.roots", &config->storage_roots),
                                   std::pair("storage.replay_roots", &config->replay_roots)}) {
    for (const std::string& root : *roots) OCTAVO_RETURN_IF_ERROR(check_home(key, root));
  }
  // Each would be a folder or socket of that name.
  for (const auto& [key, value] :
       {std::pair("audit.dir", config->audit_dir), std::pair("history.dir", config->history_dir),
        std::pair("listen.unix", config->listen_unix),
        std::pair("handoff.unix", config->handoff_unix)}) {
    for (const char* const word : {"none", "off", "no", "false", "disabled"}) {
      if (value != "none" && absl::EqualsIgnoreCase(value, word))
        return InvalidField(key, absl::StrCat("is '", value, "'; did you mean none? (./", value,
                                              " is a file or folder of that name)"));
    }
  }
  const auto make_absolute = [](std::string* path) {
    *path = std::filesystem::absolute(*path).lexically_normal().string();
  };
  for (Values* list : {&config->storage_roots, &config->replay_roots})
    std::for_each(list->begin(), list->end(), [&](auto& p) { make_absolute(&p); });
  make_absolute(&config->state_dir);
  if (config->spill_dir.empty()) config->spill_dir = absl::StrCat(config->state_dir, "/spill");
  make_absolute(&config->spill_dir);
  if (config->history_dir.empty())
    config->history_dir = absl::StrCat(config->state_dir, "/history");
  if (config->history_dir == "none") {
    config->history_dir.clear();
  } else {
    make_absolute(&config->history_dir);
  }
  if (config->audit_dir.empty()) config->audit_dir = absl::StrCat(config->state_dir, "/audit");
  if (config->audit_dir == "none") {
    config->audit_dir.clear();
  } else {
    make_absolute(&config->audit_dir);
  }
  if (config->replay_roots.empty()) config->replay_roots = config->storage_roots;
  if (config->listen_unix.empty())
    config->listen_unix = absl::StrCat(config->state_dir, "/octavo.sock");
  if (config->listen_unix == "none") {
    config->listen_unix.clear();
  } else {
    make_absolute(
        &config->listen_unix);  // ready lines and logs name it for programs in other directories
  }
  if (config->handoff_unix == "auto")
    config->handoff_unix = absl::StrCat(config->state_dir, "/handoff.sock");
  if (config->handoff_unix.empty() || config->handoff_unix == "none") {
    config->handoff_unix.clear();
  } else {
    make_absolute(&config->handoff_unix);
  }
  OCTAVO_RETURN_IF_ERROR(ResolveTrust(config));
  OCTAVO_RETURN_IF_ERROR(CheckQuotas(*config));
  if (config->host_for_jobs_bytes > 0 && !config->host_for_jobs)
    return InvalidField("device.host_for_jobs_bytes",
                        absl::StrCat("is ", config->host_for_jobs_bytes,
                                     ", but there is no devices/host: device.host_for_jobs is "
                                     "false; allowed 0, or device.host_for_jobs = true"));
  if (config->spill_mirror != "off" && config->spill_disk_bytes == 0)
    return InvalidField("spill.mirror",
                        absl::StrCat("is ", config->spill_mirror,
                                     ", but there is no tier DISK: spill.disk_bytes is 0; allowed "
                                     "off, or another spill.disk_bytes"));
  if (config->drain_commit_root.empty()) {
    config->drain_commit_root = config->storage_roots[0];
  } else {
    make_absolute(&config->drain_commit_root);
    if (std::find(config->storage_roots.begin(), config->storage_roots.end(),
                  config->drain_commit_root) == config->storage_roots.end())
      return Bad(
          "drain.commit_root", config->drain_commit_root,
          absl::StrCat("one of storage.roots (", absl::StrJoin(config->storage_roots, ", "), ")"));
  }
  if (config->session_expiry_seconds < 2 * config->session_heartbeat_seconds) {
    return InvalidField("session.expiry_seconds",
                        absl::StrCat("is ", config->session_expiry_seconds,
                                     "; allowed twice session.heartbeat_seconds (",
                                     2 * config->session_heartbeat_seconds, ") to 86400"));
  }
  if (config->listen_tcp.empty() && config->listen_unix.empty())
    return InvalidField("listen.tcp", "and listen.unix are both empty; nothing to listen on");
  if (!config->security_insecure) {
    const bool tls = !config->listen_tls_certificate.empty();
    for (const std::string& address : config->listen_tcp) {
      if (IsTlsWithLogin(*config)) break;
      OCTAVO_RETURN_IF_ERROR(CheckClosed(
          "listen.tcp", address,
          tls ? "clients have no way to log in: security.tokens and listen.tls.client_ca are empty"
              : "there is no TLS, so that tokens and data could be read on the way "
                "(listen.tls.certificate and listen.tls.key, with security.tokens or "
                "listen.tls.client_ca)"));
    }
    if (config->metrics_listen != "none")
      OCTAVO_RETURN_IF_ERROR(
          CheckClosed("metrics.listen", config->metrics_listen,
                      "this page has neither TLS nor a login, whatever listen.tls says"));
  }
  return absl::OkStatus();
}

}  // namespace octavo

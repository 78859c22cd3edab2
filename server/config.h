#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "server/memory/quota.h"
#include "server/security/named_principals.h"
#include "server/security/root_rights.h"

namespace octavo {

/// The whole configuration. The defaults work without a file. Sources, later ones win: file,
/// environment, flags.
struct Config {
  std::vector<std::string> listen_tcp = {"127.0.0.1:50051"};
  std::string listen_unix;  // empty = <state.dir>/octavo.sock; "none" = no socket
  int64_t listen_memory_bytes = int64_t{512} << 20;  // 64 MiB ... 1 TiB
  int64_t listen_spare_descriptors = 0;              // 0 ... 1048576; 0 = chosen
  double listen_stalled_seconds = 30;                // 1 ... 3600
  // what TCP without a token may do: none, viewer, operator, admin; LoadConfig chooses operator
  // where there is no file
  std::string listen_loopback_role = "viewer";
  std::string listen_tls_certificate;  // PEM file; empty = TCP without TLS
  std::string listen_tls_key;          // of that certificate
  std::string listen_tls_client_ca;    // PEM file; empty = clients have no certificates
  std::string listen_tls_client_certificates = "required";  // or optional
  double listen_tls_old_connections_seconds = 86'400;       // 0 ... 604800
  std::string metrics_listen = "127.0.0.1:9464";            // "none" = no page
  std::string state_dir;                                    // journal, server id, lock
  std::vector<std::string> storage_roots;                   // commits are confined to these
  bool storage_create_roots = false;  // create missing roots; set if there is only the default root
  std::vector<std::string>
      replay_roots;  // replay files are confined to these; empty = the storage roots
  std::string storage_direct = "auto";           // auto, off, buffered, direct, cufile
  std::string backend = "auto";                  // auto, host, cuda
  int64_t host_devices = 1;                      // 1 ... 16
  bool host_for_jobs = false;                    // devices/host, for jobs that name it
  int64_t host_for_jobs_bytes = 0;               // its budget; 0 = by the fraction
  double memory_fraction = 0.6;                  // 0.05 ... 0.95
  int64_t memory_bytes = 0;                      // overrides the fraction
  int64_t frame_pool_bytes = int64_t{1} << 30;   // 16 MiB ... 1 TiB
  int64_t quarantine_entries = 100;              // 0 ... 10^6
  int64_t quarantine_bytes = int64_t{64} << 30;  // 0 ... 2^60
  double quarantine_days = 90;                   // 0 ... 36500
  int64_t commit_threads = 2;                    // 1 ... 64
  int64_t slot_cache_bytes = int64_t{1} << 30;   // 0 ... 2^50
  int64_t buffer_quota_bytes = 0;                // of one client; 0 = no limit
  int64_t quota_device_bytes = 0;                // of one principal, as the next ones; 0 = no limit
  int64_t quota_scans = 0;
  int64_t quota_jobs = 0;
  int64_t quota_watches = 128;  // by default, half of what the server takes of all together
  int64_t quota_plans = 8;
  int64_t quota_submits = 32;
  int64_t quota_renderings = 16;
  int64_t quota_mosaics = 8;
  std::vector<std::string> quota_exceptions;     // "anna scans=2 jobs=10", "role:admin watches=64"
  std::vector<std::string> quota_roots;          // "anna=/data/anna", "role:viewer=...", "*=..."
  int64_t projection_bytes = 0;                  // of host memory; 0 = the remainder, at most half
  std::string spill_dir;                         // empty = <state.dir>/spill
  int64_t spill_disk_bytes = int64_t{16} << 30;  // quota; 0 = no tier DISK
  int64_t spill_host_bytes = int64_t{1} << 30;   // 0 = no tier HOST
  int64_t spill_threads = 2;                     // 1 ... 64
  std::string spill_mirror = "off";              // off, idle; idle needs a tier DISK
  double session_heartbeat_seconds = 10;         // 0.1 ... 3600
  double session_expiry_seconds = 60;            // 0.2 ... 86400; at least twice the heartbeat
  int64_t session_most = 10'000;                 // 1 ... 10^7
  int64_t lease_most = 65'536;                   // 1 ... 10^7
  int64_t history_scans = 1000;                  // 1 ... 10^6
  int64_t history_bytes = int64_t{256} << 20;    // 1 MiB ... 1 TiB
  std::string history_dir;      // empty = <state.dir>/history; "none" = no history over restarts
  int64_t history_kept = 1000;  // 1 ... 100000, of each kind
  double history_days = 90;     // 0 ... 36500; 0 = for ever
  std::string audit_dir;        // empty = <state.dir>/audit; "none" = no audit log
  int64_t audit_file_bytes = int64_t{64} << 20;  // 64 KiB ... 1 TiB
  int64_t audit_kept = 16;                       // 0 ... 10^6; 0 = all
  bool audit_fsync = true;
  std::string security_tokens;        // file of bearer tokens; empty = none are taken
  std::string security_certificates;  // file of the table of clients' certificates
  // what a certificate may do that has no line there: none, viewer, operator, admin
  std::string security_certificate_role = "none";
  // other hosts may reach the server without TLS, or without a login
  bool security_insecure = false;
  // what these may do without a token: none, viewer, operator, admin
  std::string security_insecure_role = "viewer";
  std::string log_level = "info";   // debug, info, warning, error
  std::string log_format = "auto";  // auto (json unless a terminal), json, text
  std::vector<std::string> camera_interfaces = {"GigEVision",
                                                "USB3Vision"};  // interfaces searched for cameras
  std::string handoff_unix = "none";  // socket that hands memory over; "none" = not offered; "auto"
                                      // = <state.dir>/handoff.sock
  std::string handoff_group;          // of the socket file; empty = the process'
  std::string handoff_mode = "0660";  // of the socket file, octal
  double handoff_grace_seconds = 10;  // 0 ... 3600
  double drain_seconds = 20;          // 0 ... 3600
  std::string drain_on_held = "spill";  // spill, commit, lose; without a tier DISK, spill is lose
  double drain_spill_seconds = 0;       // 0 ... 86400; 0 = as long as it makes progress
  std::string drain_commit_root;        // one of storage.roots; empty = the first
  std::string drain_commit_format = "ome.zarr";  // ending of the files
  bool operator==(const Config&) const = default;
};

/// One key: its name in the file ("storage.roots") and as a flag (--storage.roots); its environment
/// variable follows (OCTAVO_STORAGE_ROOTS); its meaning, with unit and range, in a line.
struct ConfigKey {
  std::string name;
  std::string help;
};
const std::vector<ConfigKey>& ConfigKeys();

/// The differences between two configurations, key by key, with the values in the form of flags.
struct ConfigChange {
  std::string key, from, to;
};
std::vector<ConfigChange> ChangesOf(const Config& from, const Config& to);

/// Sets one key from text; the parts of a list are separated by commas (only the file can carry a
/// path with a comma in it). InvalidArgument names the key and what is allowed.
absl::Status ApplySetting(Config* config, const std::string& key, const std::string& value);

/// Reads a TOML file into `config`. InvalidArgument names file, line and, for an unknown key, the
/// nearest known one.
absl::Status ApplyFile(Config* config, const std::string& path);
/// The same with the file's text; `path` is for messages.
absl::Status ApplyText(Config* config, const std::string& text, const std::string& path);

/// Environment variables OCTAVO_<KEY>, dots as underscores. Names that begin like a key's section
/// but are not keys are added to `unknown`; this is no error, because container platforms set such
/// names themselves (OCTAVO_METRICS_PORT). Of the sections listen and security it is one
/// (InvalidArgument): what a misspelt name was to close would stay open.
absl::Status ApplyEnvironment(Config* config, char** environment,
                              std::vector<std::string>* unknown);

/// The sources of a configuration, which can be read repeatedly.
struct ConfigSources {
  std::string file;                          // empty = none
  std::map<std::string, std::string> flags;  // key → value
};
/// Applies the defaults, then the file, the environment and the flags, then Finalise. Returns their
/// errors. Without a file, octavod is a program of one user, started by hand: TCP on this host may
/// do what an operator may. With one, or with tokens, certificates of clients or other hosts, it is
/// a service, and may show only what a viewer sees, unless listen.loopback_role says otherwise.
absl::StatusOr<Config> LoadConfig(const ConfigSources& sources, std::vector<std::string>* unknown);

/// The limits of principals, whom they name, and the roots that principals may name; of a
/// configuration that LoadConfig has checked.
memory::QuotaRules QuotaRulesOf(const Config& config);
std::vector<security::NamedPrincipals::Name> NamesInQuotas(const Config& config);
security::RootRights RootRightsOf(const Config& config);

/// Whether TCP has TLS, and whoever comes from another host needs a token or a certificate.
bool IsTlsWithLogin(const Config& config);

/// Listening addresses that other hosts can reach (or whose host does not resolve) without TLS, or
/// without a login. The metrics page has neither.
std::vector<std::string> OpenAddresses(const Config& config);

/// Fills in the values that depend on the machine (directories: root has /var/lib/octavo, others
/// $XDG_STATE_HOME and $XDG_DATA_HOME) and makes paths absolute. InvalidArgument if the server
/// would not listen at all, if keys contradict each other, or if other hosts could reach it without
/// TLS and a login and security.insecure is not set.
absl::Status Finalise(Config* config);

}  // namespace octavo

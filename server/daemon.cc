#include "server/daemon.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <set>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

#include "gpu/backend/open_devices.h"
#include "gpu/base/log.h"
#include "gpu/base/size_text.h"
#include "gpu/base/status.h"
#include "gpu/base/version.h"
#include "gpu/device/device.h"
#include "gpu/device/exportable_memory.h"
#include "server/buffer/buffer_store.h"
#include "server/engine/audit_recorder.h"
#include "server/engine/earlier_runs.h"
#include "server/engine_shelf.h"
#include "server/heap_trimmer.h"
#include "server/host_budget.h"
#include "server/memory/device_budget.h"
#include "server/private_folders.h"
#include "server/security/role.h"
#include "server/security/token.h"
#include "server/spill_mark.h"
#include "server/stop_times.h"
#include "server/storage/commit/find_published.h"
#include "server/storage/io/files.h"
#include "server/storage/io/own_file.h"
#include "server/storage/projections/hdf5_probe.h"
#include "server/systemd.h"
#include "server/volume/spill_metadata.h"

namespace octavo {
namespace {

// If systemd supervises the daemon without its socket (Type=simple), it kills the daemon after its
// own timeout, regardless of the keys of [drain].
void WarnOfShortPatience(const Config& config) {
  constexpr double kUsualStopSeconds = 90;
  if (!SystemdStartedThis() || SystemdListens() ||
      !StopTimes{config.drain_seconds}.MayTake(kUsualStopSeconds, config.drain_on_held != "lose",
                                               config.drain_spill_seconds))
    return;
  Log(LogLevel::kWarning,
      "a stop may take longer than systemd waits by default (drain.seconds + drain.spill_seconds + "
      "5; with drain.spill_seconds = 0 as long as volumes are written), and without Type=notify it "
      "cannot be asked to wait longer: set TimeoutStopSec",
      {{"drain_seconds", config.drain_seconds}, {"spill_seconds", config.drain_spill_seconds}});
}

// All packages bring the program; it is missing where somebody copied octavod alone. Then other
// work goes on, so this ends no start.
void TellHdf5Probe() {
  if (const absl::Status probe = storage::CheckHdf5Probe(); !probe.ok())
    Log(LogLevel::kWarning, "HDF5 files are refused", {{"why", probe.message()}});
}

// A missing root is more often an unmounted disk or a misspelt name than a directory to create.
absl::Status CheckRoots(const Config& config) {
  for (const std::string& root : config.storage_roots) {
    std::error_code error;
    const auto kind = std::filesystem::status(root, error).type();
    if (kind == std::filesystem::file_type::directory) continue;
    if (kind == std::filesystem::file_type::not_found && config.storage_create_roots) continue;
    return InvalidField(
        "storage.roots",
        kind == std::filesystem::file_type::not_found
            ? absl::StrCat("'", root,
                           "' is missing; mount or make it, or set storage.create_roots = true")
        : error ? absl::StrCat("'", root, "' cannot be accessed: ", error.message())
                : absl::StrCat("'", root, "' is no directory"));
  }
  for (const std::string& root : config.replay_roots) {
    std::error_code error;
    const bool will_be_made = std::find(config.storage_roots.begin(), config.storage_roots.end(),
                                        root) != config.storage_roots.end();
    if (will_be_made || std::filesystem::is_directory(root, error)) continue;
    Log(LogLevel::kWarning, "replay root is no directory; files below it are not found",
        {{"root", root}});
  }
  return absl::OkStatus();
}

absl::Status CheckFolders(const Config& config) {
  OCTAVO_RETURN_IF_ERROR(CheckRoots(config));
  return CheckPrivateFolders(config);
}

// Long compared with any block, short compared with a user's patience.
constexpr std::chrono::seconds kStallPatience(30);

// Two daemons on one journal would undo each other's commits.
absl::StatusOr<UniqueFd> Lock(const std::string& state_dir) {
  std::error_code error;
  const bool was_there = std::filesystem::exists(state_dir, error);
  std::filesystem::create_directories(state_dir, error);
  if (error)
    return absl::FailedPreconditionError(
        absl::StrCat("state.dir: cannot create ", state_dir, ": ", error.message()));
  // Clients of the socket in it may look into it. Nobody else writes into it, whatever the mask.
  struct stat info {};
  if (::stat(state_dir.c_str(), &info) != 0 ||
      (!was_there && ::chmod(state_dir.c_str(), info.st_mode & 0755) != 0) ||
      ::stat(state_dir.c_str(), &info) != 0)
    return absl::FailedPreconditionError(
        absl::StrCat("state.dir: cannot use ", state_dir, ": ", std::strerror(errno)));
  // Who could write into it could take journal, grants and identity for others.
  if (const std::string why = storage::WhyNotOwn(info, state_dir, "go-w", storage::RootToo::kYes);
      S_ISDIR(info.st_mode) && !why.empty())
    return absl::FailedPreconditionError(absl::StrCat("state.dir: ", why));
  const std::string path = absl::StrCat(state_dir, "/lock");
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd)
    return absl::FailedPreconditionError(
        absl::StrCat("state.dir: cannot open ", path, ": ", std::strerror(errno)));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK)
      return absl::FailedPreconditionError(
          absl::StrCat("state.dir: ", state_dir, " cannot be locked: ", std::strerror(errno)));
    return absl::FailedPreconditionError(
        absl::StrCat("state.dir: another octavod uses ", state_dir, "; give this one its own"));
  }
  return fd;
}

// Eight characters stored in the state directory: ids of scans and volumes begin with them.
absl::StatusOr<std::string> ServerId(const std::string& state_dir) {
  const std::string path = absl::StrCat(state_dir, "/server_id");
  constexpr int kSafely = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;  // a FIFO holds up nobody
  std::string id;
  if (const UniqueFd fd(::open(path.c_str(), O_RDONLY | kSafely)); fd) {
    // Who can change it can have the grants put aside.
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode))
      return absl::FailedPreconditionError(
          absl::StrCat("state.dir: ", path, " is no regular file"));
    if (const std::string why = storage::WhyNotOwn(info, path, "go-w", storage::RootToo::kYes);
        !why.empty())
      return absl::FailedPreconditionError(absl::StrCat("state.dir: ", why));
    constexpr size_t kMost = 64;
    const auto text = storage::ReadWholeFile(fd.get(), path, kMost);
    if (text.ok()) id = std::string(absl::StripAsciiWhitespace(*text));
  } else if (errno != ENOENT) {
    return absl::FailedPreconditionError(
        absl::StrCat("state.dir: cannot open ", path, ": ", std::strerror(errno)));
  }
  const bool fine =
      id.size() == 8 &&
      id.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789") == std::string::npos;
  if (fine) return id;
  // The lock is there already.
  std::error_code error;
  const bool is_new = std::distance(std::filesystem::directory_iterator(state_dir, error),
                                    std::filesystem::directory_iterator()) <= 1;
  std::random_device random;
  id.clear();
  for (int i = 0; i < 8; ++i) id += "abcdefghijklmnopqrstuvwxyz0123456789"[random() % 36];
  const std::string line = absl::StrCat(id, "\n");
  const UniqueFd out(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | kSafely, 0600));
  if (!out || !storage::WriteAll(out.get(), path, line.data(), line.size()).ok())
    return absl::FailedPreconditionError(absl::StrCat("state.dir: cannot write ", path));
  if (is_new) {
    Log(LogLevel::kInfo, "new state directory", {{"folder", state_dir}, {"server_id", id}});
  } else {
    Log(LogLevel::kWarning,
        "the state directory had no valid server_id; the names of new objects begin with a new one",
        {{"folder", state_dir}, {"server_id", id}});
  }
  return id;
}

std::string BuildText() {
  std::string text = absl::StrCat("g++ ", __VERSION__);
#if OCTAVO_WITH_CUDA
  text += ", CUDA";
#else
  text += ", no CUDA";
#endif
  return text;
}

void WarnOfOpenAddresses(const Config& config, const std::vector<std::string>& addresses) {
  if (addresses.empty()) return;
  const bool tls = !config.listen_tls_certificate.empty();
  Log(LogLevel::kWarning,
      "security.insecure is set: other hosts can reach these addresses without TLS, so that tokens "
      "and data can be read on the way, or without a login",
      {{"addresses", addresses},
       {"tls", tls},
       {"role_without_token",
        tls || !config.security_tokens.empty() ? "none" : config.security_insecure_role}});
}

// Who may do what, in a line of the log.
void TellTrust(const Config& config, const security::TlsStore* tls) {
  const auto or_none = [](const std::string& text) { return text.empty() ? "none" : text; };
  nlohmann::json said = {{"tcp_on_this_host", config.listen_loopback_role},
                         {"unix_socket_group", "operator"},
                         {"tokens", or_none(config.security_tokens)},
                         {"tls", or_none(config.listen_tls_certificate)}};
  if (tls != nullptr) {
    said["not_after"] = security::TimeText(tls->Count().not_after);
    said["client_certificates"] =
        tls->asks_clients() ? config.listen_tls_client_certificates : "none";
    said["certificates"] = or_none(config.security_certificates);
    said["certificate_without_line"] = config.security_certificate_role;
  }
  Log(LogLevel::kInfo, "trust", said);
}

// Logs the share of the host's memory that each use gets.
absl::StatusOr<HostBudget> HostBudgetFor(const Config& config,
                                         const std::vector<std::unique_ptr<Device>>& devices) {
  const MemoryLimit memory = ReadMemoryLimit();
  const memory::BudgetKeys budgets{.fraction = config.memory_fraction,
                                   .bytes = config.memory_bytes,
                                   .host_for_jobs_bytes = config.host_for_jobs_bytes};
  int64_t of_devices = 0;
  for (const auto& device : devices) {
    if (device->info().backend != "host") continue;
    OCTAVO_ASSIGN_OR_RETURN(const DeviceMemory own, device->Memory());
    const bool for_jobs = config.host_for_jobs && device == devices.back();
    of_devices += budgets.BudgetOf(for_jobs, own);
  }
  const int count = static_cast<int>(devices.size());
  const HostBudget budget = FitHostMemory(config, memory, of_devices, count);
  Log(LogLevel::kInfo, "host memory",
      {{"total_bytes", memory.total_bytes},
       {"available_bytes", memory.available_bytes},
       {"machine_bytes", memory.machine_bytes},
       {"limited_by", memory.limited_by.empty() ? "the machine" : memory.limited_by},
       {"devices_bytes", budget.devices_bytes},
       {"frame_pool_bytes", budget.frame_pool_bytes},
       {"listen_memory_bytes", budget.listen_bytes},
       {"spill_host_bytes", budget.spill_host_bytes},
       {"projection_bytes", budget.projection_bytes},
       {"picture_bytes", budget.picture_bytes},
       {"shared_frame_bytes", budget.shared_frame_bytes}});
  if (budget.sum(count) > memory.available_bytes) {
    Log(LogLevel::kWarning,
        "the configured budgets are more than the host's memory: the kernel may end the daemon",
        {{"budgets_bytes", budget.sum(count)},
         {"available_bytes", memory.available_bytes},
         {"limited_by", memory.limited_by}});
  }
  return budget;
}

/// The volumes that the engine holds again.
engine::VolumesAtStart HeldAgain(const std::vector<storage::SpillFolder::Found>& spilled) {
  engine::VolumesAtStart volumes;
  std::map<std::string, std::map<int64_t, std::string>> of_jobs;  // by index
  for (const storage::SpillFolder::Found& found : spilled) {
    const auto volume = volume::StatusOfFile(found);
    if (!volume.ok()) continue;
    volumes.held.insert(volume->name);
    // What was derived from a volume of a job names the job, too, and says by which operations.
    const std::vector<std::string>& operations = volume->operations;
    const bool own = operations.empty() || (operations.size() == 1 && operations[0] == "reprocess");
    if (own && !volume->job.empty()) of_jobs[volume->job].emplace(volume->index, volume->name);
  }
  for (const auto& [job, names] : of_jobs) {
    for (const auto& [index, name] : names) volumes.held_of_jobs[job].push_back(name);
  }
  return volumes;
}

/// A daemon that died between the end of a commit and the removal of the volume's file leaves both:
/// the volume is committed, and is not held again.
void RemoveCommitted(const std::vector<storage::PublishedCommit>& published,
                     std::vector<storage::SpillFolder::Found>* spilled) {
  std::set<std::string> committed;
  for (const storage::PublishedCommit& one : published) committed.insert(one.commit_id);
  std::erase_if(*spilled, [&](const storage::SpillFolder::Found& found) {
    const auto volume = volume::StatusOfFile(found);
    if (!volume.ok() ||
        !committed.contains(std::string(absl::StripPrefix(volume->name, "volumes/"))))
      return false;
    Log(LogLevel::kInfo, "the spill file of a committed volume is removed",
        {{"volume", volume->name}, {"file", found.file->path()}});
    found.file->Remove();
    return true;
  });
}

LogLevel LevelOf(const std::string& name) {
  return name == "debug"     ? LogLevel::kDebug
         : name == "warning" ? LogLevel::kWarning
         : name == "error"   ? LogLevel::kError
                             : LogLevel::kInfo;
}

/// Opens the devices, and tells of them.
absl::StatusOr<OpenedDevices> OpenAndTell(const Config& config) {
  OCTAVO_ASSIGN_OR_RETURN(
      OpenedDevices opened,
      OpenDevices(config.backend, static_cast<int>(config.host_devices), config.host_for_jobs));
  for (const auto& report : opened.reports) {
    Log(LogLevel::kInfo, "backend",
        {{"name", report.name},
         {"available", report.available},
         {"chosen", report.chosen},
         {"reason", report.reason}});
  }
  for (const auto& device : opened.devices) {
    Log(LogLevel::kInfo, "device",
        {{"index", device->info().index},
         {"backend", device->info().backend},
         {"model", device->info().model}});
  }
  return opened;
}

/// The name of the backend that was chosen.
std::string ChosenOf(const std::vector<BackendReport>& reports) {
  const auto chosen = std::find_if(reports.begin(), reports.end(),
                                   [](const BackendReport& report) { return report.chosen; });
  return chosen == reports.end() ? "" : chosen->name;
}

}  // namespace

void SetUpLog(const Config& config) {
  SetUpLog(LevelOf(config.log_level), config.log_format == "json" || (config.log_format == "auto" &&
                                                                      isatty(STDERR_FILENO) == 0));
}

bool ReloadsAtOnce(const std::string& key) {
  return key == "log.level" || key == "log.format" || key == "drain.seconds" ||
         key == "drain.spill_seconds";
}

absl::Status Daemon::OpenTrust() {
  if (!config_.security_tokens.empty()) {
    auto tokens = security::TokenStore::Open(config_.security_tokens);
    if (!tokens.ok()) return Annotate(tokens.status(), "security.tokens");
    tokens_ = *std::move(tokens);
  }
  if (!config_.listen_tls_certificate.empty()) {
    OCTAVO_ASSIGN_OR_RETURN(tls_,
                            security::TlsStore::Open({.certificate = config_.listen_tls_certificate,
                                                      .key = config_.listen_tls_key,
                                                      .client_ca = config_.listen_tls_client_ca}));
  }
  if (!config_.security_certificates.empty()) {
    auto table = security::CertificateTable::Open(config_.security_certificates);
    if (!table.ok()) return Annotate(table.status(), "security.certificates");
    certificates_ = *std::move(table);
  }
  names_ = std::make_unique<security::NamedPrincipals>(
      NamesInQuotas(config_), security::NamedPrincipals::Callers{
                                  .tokens = tokens_.get(),
                                  .certificates = certificates_.get(),
                                  .any_certificate = tls_ != nullptr && tls_->asks_clients() &&
                                                     config_.security_certificate_role != "none"});
  names_->Look();
  return absl::OkStatus();
}

absl::Status Daemon::OpenGrants() {
  std::string aside;
  OCTAVO_ASSIGN_OR_RETURN(grants_,
                          security::GrantBook::Open(absl::StrCat(config_.state_dir, "/grants.json"),
                                                    server_id_, &clock_, &aside));
  if (aside.empty()) return absl::OkStatus();
  Log(LogLevel::kError, "grants put aside", {{"what", aside}});
  Audit("grants put aside", {{"why", aside}});
  found_at_start_.push_back(std::move(aside));
  return absl::OkStatus();
}

void Daemon::Audit(const char* what, security::AuditLine fields) const {
  if (audit_ == nullptr) return;
  security::AuditLine line = {{"event", "server"}, {"what", what}};
  if (!fields.is_null()) line.update(fields);
  audit_->Write(line);
}

absl::Status Daemon::OpenAudit() {
  if (config_.audit_dir.empty()) return absl::OkStatus();
  // A server that shall be answerable for what it does does not begin without the record.
  auto audit = security::AuditLog::Open(config_.audit_dir, {.bytes = config_.audit_file_bytes,
                                                            .kept = config_.audit_kept,
                                                            .fsync = config_.audit_fsync});
  if (!audit.ok()) return Annotate(audit.status(), "audit.dir");
  audit_ = *std::move(audit);
  auto lost = security::LostLines::Open(absl::StrCat(config_.state_dir, "/audit_lines_lost"));
  if (!lost.ok()) {
    Log(LogLevel::kWarning,
        "the next start will not say how many lines of the audit log this run lost",
        {{"error", std::string(lost.status().message())}});
    return absl::OkStatus();
  }
  lost_lines_ = *std::move(lost);
  if (lost_lines_->before() > 0)
    audit_->Write({{"event", "lines lost"},
                   {"lines", lost_lines_->before()},
                   {"why", "the stop before this start could not write them"}});
  return absl::OkStatus();
}

void Daemon::NoteLostLines(int64_t lines) {
  if (!lost_lines_.has_value()) return;
  // Where nothing was written, the line about those before is one of them.
  if (audit_->Count().written == 0) lines += lost_lines_->before();
  if (const absl::Status noted = lost_lines_->Note(lines); !noted.ok())
    Log(LogLevel::kError, "the next start will not say that the audit log lacks lines",
        {{"error", std::string(noted.message())}});
}

absl::Status Daemon::OpenHandoff() {
  if (!config_.handoff_unix.empty()) {
    const auto mode = static_cast<uint32_t>(std::strtol(config_.handoff_mode.c_str(), nullptr, 8));
    OCTAVO_ASSIGN_OR_RETURN(
        handoff_, handoff::FdSocket::Open(
                      {.path = config_.handoff_unix,
                       .group = config_.handoff_group,
                       .mode = mode,
                       .why_not = [this](const handoff::Holder& holder) { return WhyNot(holder); },
                       .refused =
                           [this](const handoff::Peer& peer, const absl::Status& why) {
                             // Of a wrong ticket, or one of somebody else: what is no message tells
                             // nothing.
                             const Reason reason = InfoOf(why).reason;
                             if (audit_ == nullptr || reason == Reason::kProtocol ||
                                 reason == Reason::kProtocolVersion || reason == Reason::kBadField)
                               return;
                             audit_->WriteFailure({{"event", "hand-over"},
                                                   {"outcome", "refused"},
                                                   {"uid", peer.uid},
                                                   {"pid", peer.pid},
                                                   {"reason", std::string(Name(ReasonOrCode(why)))},
                                                   {"why", std::string(why.message())}},
                                                  absl::StrCat("uid:", peer.uid));
                           }},
                      &clock_));
  }
  ClientMemory::MakeExportable(handoff_ != nullptr);
  return absl::OkStatus();
}

absl::StatusOr<Daemon::Left> Daemon::OpenStorage() {
  Left left;
  std::vector<storage::PublishedCommit> published;
  auto store =
      storage::CommitStore::Open(config_.state_dir, config_.storage_roots, &found_at_start_,
                                 {.entries = config_.quarantine_entries,
                                  .bytes = config_.quarantine_bytes,
                                  .days = config_.quarantine_days},
                                 &published);
  if (!store.ok()) {
    const bool of_state = absl::StrContains(store.status().message(), config_.state_dir);
    return Annotate(store.status(), of_state ? "state.dir" : "storage.roots");
  }
  store_ = *std::move(store);
  std::error_code error;
  // A tier that was turned off still has its stored volumes.
  const SpillMark mark(config_.state_dir);
  auto doubt = mark.Check(config_.spill_dir);
  if (!doubt.ok() && config_.spill_disk_bytes > 0) return Annotate(doubt.status(), "spill.dir");
  if (!doubt.ok()) found_at_start_.push_back(absl::StrCat("spill.dir: ", doubt.status().message()));
  const bool is_other = doubt.ok() && !doubt->empty();
  if (is_other) found_at_start_.push_back(*doubt);
  if (config_.spill_disk_bytes > 0 || std::filesystem::exists(config_.spill_dir, error)) {
    auto spill = storage::SpillFolder::Open(config_.spill_dir, config_.spill_disk_bytes,
                                            &left.spilled, &found_at_start_);
    if (!spill.ok()) return Annotate(spill.status(), "spill.dir");
    spill_ = *std::move(spill);
    // Told at each start, until the right disk is there or the mark is gone.
    const absl::Status marked = is_other ? absl::OkStatus() : mark.Set(config_.spill_dir);
    if (!marked.ok()) return Annotate(marked, "state.dir");
  }
  // Of what is held again the engine tells, once it is.
  for (const auto& line : found_at_start_) Log(LogLevel::kWarning, "recovered", {{"what", line}});
  OCTAVO_RETURN_IF_ERROR(OpenGrants());
  RemoveCommitted(published, &left.spilled);
  engine::VolumesAtStart held_again = HeldAgain(left.spilled);
  left.lost_at_stop = drain::DrainRecord::ReadLost(config_.state_dir, held_again.held);
  OCTAVO_ASSIGN_OR_RETURN(left.earlier,
                          OpenHistory(published, std::move(held_again), &left.lost_at_stop));
  return left;
}

engine::EngineConfig Daemon::EngineConfigFor(const HostBudget& host, Left* left) {
  engine::EngineConfig engine_config;
  engine_config.memory_fraction = config_.memory_fraction;
  engine_config.memory_bytes = config_.memory_bytes;
  engine_config.host_for_jobs = config_.host_for_jobs;
  engine_config.host_for_jobs_bytes = config_.host_for_jobs_bytes;
  engine_config.frame_pool_bytes = host.frame_pool_bytes;
  engine_config.commit_threads = static_cast<int>(config_.commit_threads);
  engine_config.replay_roots = config_.replay_roots;
  engine_config.read_setting = *storage::ReadSettingNamed(config_.storage_direct);
  // Tests name a library that stands in for cuFile.
  if (const char* const library = std::getenv("OCTAVO_TEST_CUFILE"); library != nullptr)
    engine_config.cufile = {.library = library, .check_host = false};
  engine_config.camera_interfaces = config_.camera_interfaces;
  engine_config.server_id = server_id_;
  engine_config.slot_cache_bytes = config_.slot_cache_bytes;
  engine_config.buffer_quota_bytes = config_.buffer_quota_bytes;
  engine_config.quotas = QuotaRulesOf(config_);
  engine_config.root_rights = RootRightsOf(config_);
  engine_config.projection_bytes = host.projection_bytes;
  engine_config.shared_frame_bytes = host.shared_frame_bytes;
  engine_config.spill_host_bytes = host.spill_host_bytes;
  engine_config.spill_threads = static_cast<int>(config_.spill_threads);
  engine_config.mirror = config_.spill_mirror == "idle";
  engine_config.spill_folder = spill_.get();
  engine_config.spilled = std::move(left->spilled);
  engine_config.sessions = {.heartbeat_seconds = config_.session_heartbeat_seconds,
                            .expiry_seconds = config_.session_expiry_seconds,
                            .most = config_.session_most};
  engine_config.most_leases = config_.lease_most;
  engine_config.history_entries = config_.history_scans;
  engine_config.history_bytes = config_.history_bytes;
  engine_config.history = history_.get();
  engine_config.audit = audit_.get();
  engine_config.grants = grants_.get();
  engine_config.earlier = std::move(left->earlier);
  engine_config.to_resume = OpenResumes();
  engine_config.resume = resumes_.get();
  engine_config.software = absl::StrCat("octavo ", Version());
  engine_config.handoff = handoff_.get();
  return engine_config;
}

void Daemon::PrepareToKeep() {
  std::string why;
  const std::vector<drain::Way> ways = WaysToKeep(&why);
  if (ways.empty()) {
    Log(config_.drain_on_held == "lose" ? LogLevel::kInfo : LogLevel::kWarning,
        "held volumes will be lost with the daemon", {{"because", why}});
  } else {
    disk_rate_ = ways[0] == drain::Way::kCommit
                     ? std::make_unique<drain::DiskRate>(config_.drain_commit_root,
                                                         drain::DiskRate::Of::kCommits)
                     : std::make_unique<drain::DiskRate>(
                           config_.spill_dir, drain::DiskRate::Of::kSpills,
                           SpillMark(config_.state_dir).Rate(config_.spill_dir));
  }
}

absl::Status Daemon::StartMetrics(const std::string& backend) {
  if (config_.metrics_listen != "none") {
    OCTAVO_ASSIGN_OR_RETURN(
        metrics_,
        metrics::Exporter::Start(config_.metrics_listen,
                                 {.engine = engine_.get(),
                                  .version = Version(),
                                  .backend = backend,
                                  .reloads = &reloads_,
                                  .reload_errors = &reload_errors_,
                                  .tokens = tokens_.get(),
                                  .tls = tls_.get(),
                                  .tls_failures = &tls_failures_,
                                  .certificates = certificates_.get(),
                                  .lost = lost_,
                                  .stop = [this](const auto& s) { return ForecastStop(s); }}));
  }
  return absl::OkStatus();
}

rpc::RpcConfig Daemon::RpcConfigFor(const HostBudget& host) {
  rpc::RpcConfig rpc_config;
  rpc_config.tcp = config_.listen_tcp;
  rpc_config.unix_path = config_.listen_unix;
  rpc_config.memory_bytes = host.listen_bytes;
  rpc_config.picture_bytes = host.picture_bytes;
  rpc_config.stalled_seconds = config_.listen_stalled_seconds;
  rpc_config.spare_descriptors = static_cast<int>(config_.listen_spare_descriptors);
  rpc_config.trust = {.loopback_role = *security::RoleNamed(config_.listen_loopback_role),
                      .insecure_role = config_.security_insecure
                                           ? *security::RoleNamed(config_.security_insecure_role)
                                           : security::Role::kNone,
                      .tokens = tokens_.get(),
                      .tls = tls_.get(),
                      .tls_failures = &tls_failures_,
                      .certificates = certificates_.get(),
                      .names = names_.get(),
                      .certificate_role = *security::RoleNamed(config_.security_certificate_role),
                      .certificate_required = config_.listen_tls_client_certificates == "required",
                      .old_connections_seconds = config_.listen_tls_old_connections_seconds};
  rpc_config.audit = audit_.get();
  return rpc_config;
}

rpc::ServerInfo Daemon::InfoFor(const std::vector<BackendReport>& backends) const {
  rpc::ServerInfo info;
  info.version = Version();
  info.server_id = server_id_;
  info.build = BuildText();
  info.backends = backends;
  info.recovered = found_at_start_;
  info.replay_roots = config_.replay_roots;
  info.started = SystemClock().Now();
  info.open_addresses = OpenAddresses(config_);
  info.conditions = [this](const security::Principal& caller) { return Conditions(caller); };
  info.stop = [this] { return ForecastStop(engine_->Snapshot()); };
  return info;
}

absl::Status Daemon::Serve(const HostBudget& host, const std::vector<BackendReport>& backends) {
  rpc::ServerInfo info = InfoFor(backends);
  WarnOfOpenAddresses(config_, info.open_addresses);
  TellTrust(config_, tls_.get());
  OCTAVO_ASSIGN_OR_RETURN(
      rpc_, rpc::RpcServer::Start(RpcConfigFor(host), engine_.get(), std::move(info)));
  WarnOfShortPatience(config_);
  Audit("started", {{"version", Version()},
                    {"server_id", server_id_},
                    {"pid", ::getpid()},
                    {"addresses", rpc_->addresses()},
                    {"open_addresses", OpenAddresses(config_)},
                    {"loopback_role", config_.listen_loopback_role},
                    {"found_lost", lost_}});
  return absl::OkStatus();
}

void Daemon::StartWatchdog() {
  if (const auto period = Watchdog::PeriodFromEnvironment()) {
    // The check takes the locks of sessions, volumes, ledger and publisher: if one of them is
    // stuck, it gives no sign of life.
    auto look = [engine = engine_.get(), stalls = std::make_shared<StallDetector>(kStallPatience)] {
      (void)engine->Snapshot();
      return stalls->Look(engine->scans().List(),
                          std::chrono::steady_clock::now().time_since_epoch());
    };
    watchdog_ =
        std::make_unique<Watchdog>(*period, std::move(look), [] { NotifySystemd("WATCHDOG=1"); });
  }
}

void Daemon::StartTrims() {
  trims_ = std::make_unique<base::PeriodicThread>(
      "oct-trim", std::chrono::seconds(10),
      // Threads of a scan, a job or a commit must not wait for memory meanwhile.
      [trimmer = std::make_shared<HeapTrimmer>(
           [engine = engine_.get()] { return engine->Idle(); })] { trimmer->Turn(); });
}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const Config& config) {
  std::unique_ptr<Daemon> daemon(new Daemon());
  daemon->config_ = config;
  daemon->spill_seconds_ = config.drain_spill_seconds;
  OCTAVO_RETURN_IF_ERROR(CheckFolders(config));
  OCTAVO_ASSIGN_OR_RETURN(daemon->lock_, Lock(config.state_dir));
  OCTAVO_ASSIGN_OR_RETURN(daemon->server_id_, ServerId(config.state_dir));
  OCTAVO_RETURN_IF_ERROR(daemon->OpenAudit());
  OCTAVO_ASSIGN_OR_RETURN(OpenedDevices opened, OpenAndTell(config));
  // Before anything listens: a server whose tokens cannot be read must not let in whom it can.
  OCTAVO_RETURN_IF_ERROR(daemon->OpenTrust());
  OCTAVO_RETURN_IF_ERROR(daemon->OpenHandoff());
  OCTAVO_ASSIGN_OR_RETURN(Left left, daemon->OpenStorage());
  OCTAVO_ASSIGN_OR_RETURN(const HostBudget host, HostBudgetFor(config, opened.devices));
  OCTAVO_ASSIGN_OR_RETURN(daemon->engine_,
                          engine::Engine::Create(daemon->EngineConfigFor(host, &left),
                                                 std::move(opened.devices), daemon->store_.get()));
  daemon->TellHeldAgain();
  daemon->TellLostVolumes(left.lost_at_stop);
  daemon->PrepareToKeep();
  if (daemon->handoff_ != nullptr)
    daemon->engine_->exports().store().Start(daemon->handoff_.get(), config.handoff_grace_seconds);
  OCTAVO_RETURN_IF_ERROR(daemon->StartMetrics(ChosenOf(opened.reports)));
  daemon->ResumeScans();
  OCTAVO_RETURN_IF_ERROR(daemon->Serve(host, opened.reports));
  TellHdf5Probe();
  NotifySystemd("READY=1");
  daemon->StartWatchdog();
  daemon->StartTrims();
  return daemon;
}

std::string Daemon::ReadyJson() const {
  nlohmann::json ready = {{"pid", ::getpid()},
                          {"tcp", nlohmann::json::array()},
                          {"unix", config_.listen_unix},
                          {"metrics", metrics_ == nullptr ? "" : metrics_->address()}};
  for (const auto& address : rpc_->addresses()) {
    if (address.rfind("unix:", 0) != 0) ready["tcp"].push_back(address);
  }
  return ready.dump();
}

void Daemon::Reload(const absl::StatusOr<Config>& read) {
  // One with which no daemon could start is as bad as one that cannot be read.
  const absl::Status good = read.ok() ? CheckFolders(*read) : read.status();
  if (!good.ok()) {
    ++reload_errors_;
    Log(LogLevel::kError, "configuration not read again; the daemon goes on with the old one",
        {{"error", std::string(good.message())}});
    Audit("configuration not read again", {{"why", std::string(good.message())}});
    MutexLock lock(reload_mutex_);
    reload_refused_ = std::string(good.message());
    NotifySystemd("READY=1");
    return;
  }
  ++reloads_;
  nlohmann::json taken_over = nlohmann::json::array(), at_the_next_start = nlohmann::json::array();
  for (const ConfigChange& change : ChangesOf(config_, *read)) {
    (ReloadsAtOnce(change.key) ? taken_over : at_the_next_start)
        .push_back(absl::StrCat(change.key, ": ", change.from, " -> ", change.to));
  }
  config_.log_level = read->log_level;
  config_.log_format = read->log_format;
  config_.drain_seconds = read->drain_seconds;
  config_.drain_spill_seconds = read->drain_spill_seconds;
  spill_seconds_ = config_.drain_spill_seconds;
  SetUpLog(config_);
  WarnOfOpenAddresses(config_, OpenAddresses(config_));
  Log(LogLevel::kInfo, "configuration read again", {{"taken_over", taken_over}});
  Audit("configuration read again", {{"taken_over", taken_over}});
  if (!at_the_next_start.empty())
    Log(LogLevel::kWarning, "changes of the configuration that need a restart",
        {{"changes", at_the_next_start}});
  {
    MutexLock lock(reload_mutex_);
    reload_refused_.clear();
    for_next_start_ = at_the_next_start.get<std::vector<std::string>>();
  }
  NotifySystemd("READY=1");
}

std::vector<drain::Way> Daemon::WaysToKeep(std::string* why) const {
  const bool tier = spill_ != nullptr && spill_->quota_bytes() > 0;
  if (config_.drain_on_held == "commit") {
    if (tier) return {drain::Way::kCommit, drain::Way::kSpill};
    return {drain::Way::kCommit};
  }
  if (config_.drain_on_held == "spill" && tier) return {drain::Way::kSpill};
  *why = config_.drain_on_held == "lose"
             ? "drain.on_held is lose"
             : "drain.on_held is spill, but there is no tier DISK (spill.disk_bytes is 0)";
  return {};
}

void Daemon::TellHeldAgain() {
  constexpr size_t kMostTold = 20;  // the list of volumes has them all
  size_t found = 0;
  for (const model::VolumeStatus& volume : engine_->volumes().List({.in_memory = true})) {
    if (volume.recovered && ++found <= kMostTold)
      found_at_start_.push_back(
          absl::StrCat(volume.name, ": held again, from ", config_.spill_dir));
  }
  if (found > kMostTold)
    found_at_start_.push_back(absl::StrCat(found - kMostTold, " more volumes are held again, from ",
                                           config_.spill_dir, ": the list of volumes names them"));
}

void Daemon::TellLostVolumes(const std::vector<drain::DrainRecord::LostVolume>& lost) {
  for (const auto& one : lost) {
    Log(LogLevel::kError, "lost at the last end of the daemon", {{"volume", one.line}});
    if (one.name.empty()) {
      Audit("found lost", {{"why", one.line}});
    } else {
      Audit("found lost",
            {{"object", one.name}, {"owner", one.owner}, {"bytes", one.bytes}, {"why", one.line}});
    }
    found_at_start_.push_back(one.line);
    lost_["volume"] += one.killed;
  }
  drain::DrainRecord::Forget(config_.state_dir);
}

absl::StatusOr<std::vector<storage::HistoryRow>> Daemon::OpenHistory(
    const std::vector<storage::PublishedCommit>& published, engine::VolumesAtStart volumes,
    std::vector<drain::DrainRecord::LostVolume>* lost_at_stop) {
  for (const storage::HistoryKind kind : storage::kHistoryKinds) lost_[storage::Name(kind)] = 0;
  if (config_.history_dir.empty()) return std::vector<storage::HistoryRow>();
  const storage::HistoryLimits limits{.kept = config_.history_kept, .days = config_.history_days};
  std::vector<std::string> aside;
  auto opened = [&]() -> absl::StatusOr<std::vector<storage::HistoryRow>> {
    OCTAVO_ASSIGN_OR_RETURN(auto database,
                            storage::HistoryDatabase::Open(config_.history_dir, &aside));
    OCTAVO_ASSIGN_OR_RETURN(std::vector<storage::HistoryRow> rows, database->Load());
    const TimePoint now = clock_.Now();
    for (const auto& one : *lost_at_stop) volumes.lost_at_stop.emplace(one.name, one.reason);
    engine::Settled settled = engine::SettleEarlier(
        &rows, published, now,
        [&](const std::string& commit, const std::string& volume, const std::string& destination) {
          return storage::FindPublished(config_.storage_roots, commit, volume, destination);
        },
        volumes);
    // A record that a kill cut short does not say how far its volumes came.
    for (const storage::HistoryRow& row : rows) {
      if (row.kind != storage::HistoryKind::kVolume || row.state == "LOST") continue;
      std::erase_if(*lost_at_stop, [&](const auto& one) { return one.name == row.name; });
    }
    lost_ = std::move(settled.lost);
    TellLostWork(settled.lines);
    engine::KeepNewest(limits, now, &rows);
    history_ = std::make_unique<storage::HistoryWriter>(std::move(database), limits);
    engine::AuditRecorder audit(audit_.get());
    for (const storage::HistoryRow& row : settled.lost_volumes) {
      Audit("found lost", {{"object", row.name},
                           {"owner", row.owner},
                           {"bytes", engine::BytesOfVolume(row)},
                           {"why", row.reason}});
    }
    for (storage::HistoryRow& row : settled.changed) {
      if (row.kind != storage::HistoryKind::kVolume) audit.OnRow(row);
      history_->Put(std::move(row));
    }
    return rows;
  }();
  for (std::string& line : aside) {
    Log(LogLevel::kError, "history put aside", {{"what", line}});
    found_at_start_.push_back(std::move(line));
  }
  if (opened.ok()) return opened;
  if (absl::IsFailedPrecondition(opened.status())) return Annotate(opened.status(), "history.dir");
  Log(LogLevel::kError, "no history in this run",
      {{"key", "history.dir"},
       {"folder", config_.history_dir},
       {"error", std::string(opened.status().message())}});
  found_at_start_.push_back(
      absl::StrCat("the history of scans, jobs, commits and held volumes (history.dir) cannot be "
                   "used in this run, and what "
                   "the last one lost is not known: ",
                   opened.status().message()));
  return std::vector<storage::HistoryRow>();
}

engine::ResumeBook::Found Daemon::OpenResumes() {
  engine::ResumeBook::Found found;
  std::vector<std::string> report;
  auto opened = storage::ResumeFolder::Open(absl::StrCat(config_.state_dir, "/resume"),
                                            &found.records, &report);
  if (opened.ok()) {
    resumes_ = *std::move(opened);
  } else {
    report.push_back(
        absl::StrCat("no scan can go on after a restart, and none of the last run "
                     "does: ",
                     opened.status().message()));
    found.records.clear();
  }
  found.damaged = std::ssize(report);
  for (std::string& line : report) {
    Log(LogLevel::kError, "scan not resumed", {{"what", line}});
    Audit("scan not resumed", {{"why", line}});
    found_at_start_.push_back(std::move(line));
  }
  return found;
}

std::string Daemon::WhyNot(const handoff::Holder& holder) const {
  // Whoever asks for a ticket is an operator, or a viewer of frames.
  const security::Role needed =
      holder.looks_only ? security::Role::kViewer : security::Role::kOperator;
  if (RoleNow({.name = holder.principal, .project = holder.project, .role = needed}) >= needed)
    return "";
  return absl::StrCat("no token or certificate of ", holder.principal,
                      " is valid any more that makes it ",
                      holder.looks_only ? "a viewer" : "an operator");
}

security::Role Daemon::RoleNow(const security::Owner& owner) const {
  if (owner.name == "loopback" || owner.name == "remote") {
    const bool here = owner.name == "loopback";
    if (!here && !config_.security_insecure) return security::Role::kNone;
    return *security::RoleNamed(here ? config_.listen_loopback_role
                                     : config_.security_insecure_role);
  }
  if (absl::StartsWith(owner.name, "uid:")) return owner.role;  // the host knows more than we do
  security::Role now = security::Role::kNone;
  if (tokens_ != nullptr) now = tokens_->RoleOf(owner.name, owner.project);
  const bool has_line = certificates_ != nullptr && certificates_->Names().contains(owner.name);
  if (has_line) now = std::max(now, certificates_->RoleOf(owner.name, owner.project));
  if (!has_line && tls_ != nullptr && tls_->asks_clients() && absl::StrContains(owner.name, ':'))
    now = std::max(now, *security::RoleNamed(config_.security_certificate_role));
  return now;
}

absl::StatusOr<security::Owner> Daemon::OwnerNow(const security::Owner& owner) const {
  security::Owner now = owner;
  now.role = RoleNow(owner);
  if (now.role >= security::Role::kOperator) return now;
  return absl::PermissionDeniedError(
      absl::StrCat("its owner, ", owner.name, owner.project.empty() ? "" : " of the project ",
                   owner.project, ", has the role ", security::Name(now.role),
                   " now (no valid token or certificate, or a lower role); operator is needed"));
}

void Daemon::ResumeScans() {
  const auto owner_now = [this](const security::Owner& owner) { return OwnerNow(owner); };
  for (const rpc::ResumeOutcome& outcome : rpc::ResumeScans(engine_.get(), owner_now)) {
    security::AuditLine fields = {{"object", outcome.was}};
    if (!outcome.owner.name.empty()) fields["owner"] = outcome.owner.name;
    if (!outcome.owner.project.empty()) fields["project"] = outcome.owner.project;
    if (outcome.why.ok()) {
      fields["now"] = outcome.now;
      Log(LogLevel::kInfo, "scan resumed", {{"scan", outcome.now}, {"was", outcome.was}});
      Audit("scan resumed", std::move(fields));
      found_at_start_.push_back(absl::StrCat(outcome.was, " was resumed as ", outcome.now));
      continue;
    }
    std::string line = absl::StrCat(
        outcome.was, " was not resumed: ", outcome.why.message(),
        outcome.kept ? "; the next start tries again, unless it is stopped (octavo scan stop)"
                     : "; no start tries again");
    Log(LogLevel::kError, "scan not resumed", {{"what", line}});
    fields["why"] = std::string(outcome.why.message());
    Audit("scan not resumed", std::move(fields));
    found_at_start_.push_back(std::move(line));
  }
}

void Daemon::TellLostWork(const std::vector<std::string>& lines) {
  constexpr size_t kMostTold = 100;  // GetInfo has them all at once
  for (size_t i = 0; i < lines.size(); ++i) {
    Log(LogLevel::kError, "lost with an earlier daemon", {{"what", lines[i]}});
    if (i < kMostTold) found_at_start_.push_back(lines[i]);
  }
  if (lines.size() > kMostTold)
    found_at_start_.push_back(
        absl::StrCat(lines.size() - kMostTold,
                     " more scans, jobs, commits and held volumes are LOST: the "
                     "log and the lists of scans, jobs and operations name them"));
}

std::vector<std::string> Daemon::Conditions(const security::Principal& caller) const {
  std::vector<std::string> lines = names_->Unknown();
  if (const absl::Status probe = storage::CheckHdf5Probe(); !probe.ok())
    lines.emplace_back(probe.message());
  // Where secrets lie is nothing for those who only look.
  const bool may_change = caller.role >= security::Role::kOperator;
  if (may_change) {
    MutexLock lock(reload_mutex_);
    if (!reload_refused_.empty())
      lines.push_back(absl::StrCat("configuration: was not read again: ", reload_refused_,
                                   "; the one before stays in use"));
    if (!for_next_start_.empty())
      lines.push_back(absl::StrCat("configuration: changes wait for a restart: ",
                                   absl::StrJoin(for_next_start_, ", ")));
  }
  if (may_change && tokens_ != nullptr) {
    if (const std::string refused = tokens_->Refused(); !refused.empty())
      lines.push_back(absl::StrCat("security.tokens: ", refused));
  }
  if (may_change && certificates_ != nullptr) {
    if (const std::string refused = certificates_->Refused(); !refused.empty())
      lines.push_back(absl::StrCat("security.certificates: ", refused));
  }
  if (may_change && tls_ != nullptr) {
    if (const std::string refused = tls_->Refused(); !refused.empty())
      lines.push_back(
          absl::StrCat("listen.tls: ", refused, "; the certificates before them stay in use"));
  }
  if (may_change && audit_ != nullptr) {
    if (const security::AuditLog::Counts audit = audit_->Count(); audit.failing)
      lines.push_back(absl::StrCat(
          "audit.dir: the audit log cannot be written now: ", audit.error, "; ", audit.waiting,
          " lines wait, and ", audit.dropped,
          " were dropped. What waits is lost if the server ends before it can be written"));
  }
  if (may_change) AddGrantsWithoutHelp(caller, &lines);
  if (std::string line = MirrorsWithoutRoom(); !line.empty()) lines.push_back(std::move(line));
  if (history_ == nullptr) return lines;
  const storage::HistoryWriter::Counts counts = history_->Count();
  if (!counts.failing) return lines;
  lines.push_back(absl::StrCat(
      "history.dir: the history of scans, jobs, commits and held volumes cannot be written now: ",
      counts.error, "; ", counts.waiting, " rows wait, and ", counts.dropped,
      " were dropped. If the server died now, the next one would not know of what is not written"));
  return lines;
}

void Daemon::AddGrantsWithoutHelp(const security::Principal& caller,
                                  std::vector<std::string>* lines) const {
  constexpr int kMostLookedAt = 20;  // whoever grants much makes no call slow
  const std::vector<security::Grant> grants = grants_->List();
  int looked_at = 0;
  for (auto grant = grants.rbegin(); grant != grants.rend(); ++grant) {  // the newest first
    const bool own = !caller.name.empty() && grant->owner.name == caller.name;
    if (!own && caller.role != security::Role::kAdmin) continue;
    if (++looked_at > kMostLookedAt) return;
    if (const std::string why = names_->WhyNoHelp(grant->grantee); !why.empty())
      lines->push_back(absl::StrCat(grant->name, " to '", grant->grantee, "': ", why));
  }
}

std::string Daemon::MirrorsWithoutRoom() const {
  if (config_.spill_mirror != "idle") return "";
  const model::Stats stats = engine_->Snapshot();
  for (const model::TierUse& tier : stats.tiers) {
    if (tier.tier != model::Tier::kDisk || tier.unmirrored_bytes <= stats.mirror_room_bytes)
      continue;
    return absl::StrCat(
        "spill.mirror: ", tier.unmirrored, " held volumes of ", SizeText(tier.unmirrored_bytes),
        " have no copy on the disk, and there is room for ", SizeText(stats.mirror_room_bytes),
        " (spill.disk_bytes, less 1 GiB of the file system that stays free): they would be lost if "
        "the server were killed. Commit or discard some, or raise spill.disk_bytes");
  }
  return "";
}

model::StopForecast Daemon::ForecastStop(const model::Stats& stats) const {
  if (disk_rate_ == nullptr) return {.limit_seconds = spill_seconds_};
  int64_t room = 0;
  if (config_.drain_on_held == "commit") {
    std::error_code error;
    const auto space = std::filesystem::space(config_.drain_commit_root, error);
    if (!error) room = static_cast<int64_t>(space.available);
  } else {
    for (const model::TierUse& tier : stats.tiers) {
      if (tier.tier == model::Tier::kDisk)
        room = std::max<int64_t>(
            0, std::min(tier.quota_bytes - tier.used_bytes, tier.disk_free_bytes));
    }
  }
  model::StopForecast forecast =
      drain::ForecastStop(engine_->volumes().List({.in_memory = true}), room,
                          disk_rate_->BytesPerSecond(stats), spill_seconds_);
  forecast.on_held =
      config_.drain_on_held == "commit" ? model::OnHeld::kCommit : model::OnHeld::kSpill;
  return forecast;
}

void Daemon::KeepHeld(const DrainCalls& calls, bool hurried) {
  const StopTimes times{config_.drain_seconds};
  drain::KeepOptions options{.seconds = config_.drain_spill_seconds,
                             .at_once = static_cast<int>(config_.spill_threads) + 2};
  options.ways = WaysToKeep(&options.why_none);
  if (hurried) {
    options.ways.clear();
    options.why_none = "the server was told a second time to end";
  }
  if (options.ways.empty()) options.settle = {};
  drain::EngineShelf shelf(
      engine_.get(), {.root = config_.drain_commit_root, .format = config_.drain_commit_format});
  drain::DrainRecord record(config_.state_dir);
  std::optional<std::chrono::steady_clock::time_point> told;
  const drain::Kept kept = drain::KeepHeld(
      shelf, options,
      {.hurry = calls.hurry,
       .progress =
           [&](const drain::Progress& now) {
             if (options.ways.empty() || now.of_volumes == 0) return;
             const auto time = std::chrono::steady_clock::now();
             if (told.has_value() && time - *told < std::chrono::seconds(1)) return;
             told = time;
             const double seconds = times.AskedForWriting(now.seconds_left);
             calls.may_take(StopTimes::ForWriting(now.seconds_left), "drain.spill_seconds");
             NotifySystemd(absl::StrCat(
                 ExtendTimeout(seconds), "\nSTATUS=Writing held volumes: ", now.volumes, " of ",
                 now.of_volumes, ", ", SizeText(now.bytes), " of ", SizeText(now.of_bytes)));
           },
       .at_risk = [&](const model::VolumeStatus& volume) { record.AtRisk(volume); },
       .safe = [&](const std::string& volume) { record.Safe(volume); }});
  calls.may_take(times.ForWork(), "drain.seconds");
  if (kept.volumes > 0)
    Log(LogLevel::kInfo, "held volumes written",
        {{"volumes", kept.volumes}, {"bytes", kept.bytes}, {"seconds", kept.seconds}});
  if (options.ways == std::vector{drain::Way::kSpill} &&
      kept.bytes >= drain::DiskRate::kEnoughBytes && kept.seconds > 0) {
    const absl::Status noted =
        SpillMark(config_.state_dir)
            .SetRate(config_.spill_dir, static_cast<double>(kept.bytes) / kept.seconds);
    if (!noted.ok())
      Log(LogLevel::kWarning, "the next daemon does not know how fast held volumes were written",
          {{"error", std::string(noted.message())}});
  }
  for (const drain::Lost& one : kept.lost) {
    Log(LogLevel::kError, "held volume is lost with the daemon",
        {{"volume", one.volume.name},
         {"title", one.volume.title},
         {"scan", one.volume.scan},
         {"bytes", one.volume.bytes},
         {"reason", one.reason}});
    Audit("held volume lost with the server", {{"object", one.volume.name},
                                               {"owner", one.volume.owner.name},
                                               {"bytes", one.volume.bytes},
                                               {"why", one.reason}});
    record.Lost(one.volume.name, one.reason);
  }
  record.Close();
  int64_t on_disk = 0;
  for (const auto& volume : engine_->volumes().List({.in_memory = true}))
    on_disk += volume.state == model::VolumeState::kHeld &&
               (volume.tier == model::Tier::kDisk || volume.mirrored);
  if (on_disk > 0)
    Log(LogLevel::kInfo, "volumes on disk stay there and are held again by the next daemon",
        {{"volumes", on_disk}});
  if (!kept.lost.empty())
    Log(LogLevel::kWarning, "held volumes are lost with the daemon",
        {{"volumes", kept.lost.size()}});
}

bool Daemon::Drain(const DrainCalls& calls) {
  const StopTimes times{config_.drain_seconds};
  // Sufficient for any TimeoutStopSec of the unit: the backstop ends the daemon before this.
  NotifySystemd(absl::StrCat("STOPPING=1\n", ExtendTimeout(times.AskedForWork())));
  calls.may_take(times.ForWork(), "drain.seconds");
  Audit("stopping");
  rpc_->SetServing(false);
  engine_->BeginDrain();
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(config_.drain_seconds);
  bool hurried = false;
  while (!engine_->Idle() && std::chrono::steady_clock::now() < until &&
         !(hurried = calls.hurry())) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const bool idle = engine_->Idle();
  if (!idle) {
    const std::string why =
        hurried ? "the server was told a second time to end"
                : absl::StrCat("drain.seconds (", config_.drain_seconds, ") were over");
    Log(LogLevel::kWarning, hurried ? "told a second time to end; ending what still runs"
                                    : "drain time is over; ending what still runs");
    engine_->EndNow(why);
  }
  calls.may_take(times.ForSettling(), "drain.seconds");  // what was told to end may settle
  KeepHeld(calls, hurried || calls.hurry());
  NotifySystemd(ExtendTimeout(times.AskedForWork()));
  calls.may_take(times.ForWork(), "drain.seconds");
  watchdog_ = nullptr;
  trims_ = nullptr;
  rpc_->Shutdown(std::chrono::milliseconds(1000));
  if (handoff_ != nullptr) handoff_->Stop();  // its grants use the workers of rpc_
  rpc_ = nullptr;
  metrics_ = nullptr;
  engine_ = nullptr;
  handoff_ = nullptr;
  if (history_ != nullptr) {
    // A disk that hangs may cost the rows, not the end.
    hurried = hurried || calls.hurry();
    const size_t left = history_->Close(std::chrono::seconds(hurried ? 1 : 4));
    if (left > 0)
      Log(LogLevel::kError,
          "the history lacks the last changes; the next daemon takes what had not ended for LOST",
          {{"rows", left}});
    history_ = nullptr;
  }
  if (audit_ != nullptr) {
    Audit("stopped", {{"all_work_had_ended", idle}});
    hurried = hurried || calls.hurry();
    const size_t left = audit_->Close(std::chrono::seconds(hurried ? 1 : 4));
    if (left > 0) {
      Log(LogLevel::kError, "the audit log lacks its last lines", {{"lines", left}});
      NoteLostLines(static_cast<int64_t>(left));
    }
    audit_ = nullptr;
  }
  spill_ = nullptr;
  store_ = nullptr;
  return idle;
}

}  // namespace octavo

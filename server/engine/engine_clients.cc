#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/engine/engine_impl.h"

namespace octavo::engine {

absl::StatusOr<session::SessionStatus> EngineImpl::KeepAlive(const std::string& secret) {
  OCTAVO_ASSIGN_OR_RETURN(const session::ClientSessions::Alive alive,
                          sessions_of_clients_.KeepAlive(secret));
  if (alive.revived) {
    volumes_.expiry().Adopt(alive.session.name);
    Log(LogLevel::kInfo, "session revived",
        {{"session", alive.session.name}, {"client", alive.session.client}});
  }
  return WithHoldings({alive.session})[0];
}

absl::StatusOr<session::SessionStatus> EngineImpl::CloseSession(const std::string& secret) {
  OCTAVO_ASSIGN_OR_RETURN(const session::SessionStatus session, sessions_of_clients_.Close(secret));
  leases_.EndSession(session.name);  // the rest is the housekeeping's
  return WithHoldings({session})[0];
}

void EngineImpl::Housekeep() {
  MutexLock one_at_a_time(housekeeping_mutex_);
  leases_.Expire();
  const std::vector<std::string> expired = sessions_of_clients_.Expire();
  std::set<std::string> ended(expired.begin(), expired.end());
  for (const std::string& session : ended)
    Log(LogLevel::kInfo, "session ended", {{"session", session}});
  if (!ended.empty()) {
    // Scratch: nobody will look at what would come.
    for (const auto& scan : Sessions()) {
      if (ended.count(scan->client_session()) == 0 || scan->finished() ||
          scan->Resolved().spec.retention.orphan != model::Orphan::kDiscard)
        continue;
      scan->Stop("SESSION_EXPIRED", absl::StrCat(scan->client_session(),
                                                 " has ended; the scan's volumes are scratch"));
    }
  }
  if (!ended.empty()) CancelJobsOf(ended);
  if (!ended.empty()) leases_.EndSessions(ended);
  {
    MutexLock lock(mutex_);
    ForgetOldScans();
  }
  const volume::VolumeExpiry::Due due = volumes_.expiry().Tick(
      [this](const std::string& session) { return sessions_of_clients_.Gone(session); });
  for (const model::VolumeStatus& volume : due.warned) NotifyExpiring(volume);
  for (const model::VolumeStatus& volume : due.expired)
    Log(LogLevel::kInfo, "volume expired", {{"volume", volume.name}, {"reason", volume.reason}});
  for (const model::VolumeStatus& volume : due.orphans) ApplyOrphanPolicy(volume);
  if (buffers_ == nullptr || !buffers_->exports().enabled()) return;
  buffers_->feeds().Tick();
  for (const exports::ExportStore::Overdue& what : buffers_->exports().TakeOverdue())
    RelocateOverdue(what);
}

void EngineImpl::RelocateOverdue(const exports::ExportStore::Overdue& what) {
  const auto done = [this, what](const absl::Status& status) {
    buffers_->exports().Moved(what, status);
    Log(status.ok() ? LogLevel::kInfo : LogLevel::kWarning,
        status.ok() ? "moved out of memory that is not given back"
                    : "still in memory that is not given back",
        {{"name", what.of}, {"error", std::string(status.message())}});
  };
  if (absl::StartsWith(what.of, "volumes/")) return spiller_->Relocate(what.of, done);
  buffers_->Post([this, what, done] { done(buffers_->Relocate(what)); });
}

uint64_t EngineImpl::AcquireLease(const session::LeaseRequest& request, const model::Caller& caller,
                                  std::function<void(absl::StatusOr<session::Lease>)> done) {
  if (absl::StartsWith(request.resource, "buffers/"))
    return buffers_->AcquireLease(request, caller, std::move(done));
  if (absl::StartsWith(request.resource, "volumes/")) {
    done(volumes_.AcquireLease(request));  // shared ones never wait
  } else {
    done(InvalidField("resource", absl::StrCat("is '", request.resource,
                                               "'; allowed volumes/... and buffers/...")));
  }
  return 0;
}

std::vector<session::SessionStatus> EngineImpl::WithHoldings(
    std::vector<session::SessionStatus> sessions) {
  std::map<std::string, session::SessionStatus*> of;
  for (session::SessionStatus& session : sessions) of[session.name] = &session;
  const auto add = [&](const std::string& session, int64_t session::SessionStatus::*what,
                       int64_t amount) {
    if (const auto it = of.find(session); it != of.end()) it->second->*what += amount;
  };
  for (const model::VolumeStatus& volume : volumes_.List({.in_memory = true}))
    add(volume.session, &session::SessionStatus::volumes, 1);
  for (const auto& [session, count] : leases_.CountBySession())
    add(session, &session::SessionStatus::leases, count);
  for (const auto& holder : GetMemory().holders)
    add(holder.session, &session::SessionStatus::bytes, holder.what.bytes);
  return sessions;
}

void EngineImpl::NotifyExpiring(const model::VolumeStatus& volume) {
  const std::string text = absl::StrFormat("volume EXPIRING in %.0f s", volume.expires_seconds);
  Log(LogLevel::kInfo, "volume will expire",
      {{"volume", volume.name}, {"seconds", volume.expires_seconds}});
  model::ScanEvent event{.kind = model::EventKind::kExpiring,
                         .text = text,
                         .volume_index = volume.index,
                         .time = clock_->Now()};
  if (const auto session = Find(volume.scan); session.ok()) (*session)->RecordEvent(event);
  PublishEvent(volume, std::move(event));
}

void EngineImpl::CancelJobsOf(const std::set<std::string>& sessions) {
  for (const job::JobStatus& job : jobs_.List()) {
    if (IsFinal(job.state) || job.spec.orphan != model::Orphan::kDiscard ||
        sessions.count(job.spec.session) == 0)
      continue;
    (void)CancelJobOf(job);
  }
}

void EngineImpl::ApplyOrphanPolicy(const model::VolumeStatus& volume) {
  model::Retention retention =
      volume.origin == nullptr ? model::Retention{} : volume.origin->spec.retention;
  if (!volume.job.empty()) retention = {.orphan = volume.job_orphan};
  const absl::Status done = DoOrphanPolicy(volume, retention);
  if (InfoOf(done).reason == "LEASED")
    return volumes_.expiry().TellOrphanAgain(volume.name);  // when the lease has ended
  Log(LogLevel::kInfo, "volume orphaned",
      {{"volume", volume.name},
       {"session", volume.session},
       {"policy", static_cast<int>(retention.orphan)},
       {"result", done.ToString()}});
}

absl::Status EngineImpl::DoOrphanPolicy(const model::VolumeStatus& volume,
                                        const model::Retention& retention) {
  const volume::ClientVerb asked{.detach_exports = true, .of_orphans = true};
  switch (retention.orphan) {
    case model::Orphan::kSpillDisk: {
      // What is told at once; what goes wrong later is logged, and the volume stays held.
      auto begun = std::make_shared<absl::Status>();
      const auto done = [begun, here = std::this_thread::get_id()](
                            const absl::StatusOr<model::VolumeStatus>& spilled) {
        if (std::this_thread::get_id() == here) *begun = spilled.status();
      };
      spiller_->Spill(volume.name, model::Tier::kDisk, done, &asked);
      return *begun;
    }
    case model::Orphan::kCommitDefault: {
      model::CommitOptions options = retention.auto_commit;
      // What jobs make of one scan must not have one name.
      if (options.destination.empty()) {
        options.destination =
            volume.job.empty()
                ? "orphaned/{scan}_{index:05}"
                : absl::StrCat("orphaned/", absl::StripPrefix(volume.job, "jobs/"), "_{index:05}");
      }
      // Nor what a scan keeps beside a volume: its raw records, and what was derived of it.
      if (volume.is_raw) options.destination += "_raw";
      if (!volume.derived_from.empty())
        options.destination += absl::StrCat("_", absl::StripPrefix(volume.name, "volumes/"));
      return AutoCommit(volume.name, options, &asked);
    }
    case model::Orphan::kDiscard:
      return volumes_
          .Discard(volume.name, absl::StrCat("its client's ", volume.session, " has ended"), &asked)
          .status();
    default: return absl::OkStatus();
  }
}

}  // namespace octavo::engine

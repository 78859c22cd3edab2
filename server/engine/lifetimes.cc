#include "server/engine/lifetimes.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/log.h"

namespace octavo::engine {

void Lifetimes::Check() {
  context_.leases->Expire();
  const std::vector<std::string> expired = context_.sessions->Expire();
  const std::set<std::string> ended(expired.begin(), expired.end());
  for (const std::string& session : ended) {
    Log(LogLevel::kInfo, "session ended", {{"session", session}});
    context_.audit->OnSession(session, "ENDED");
  }
  if (!ended.empty()) {
    EndWorkOf(ended);
    context_.leases->EndSessions(ended);
    context_.buffers->EndSessions(ended);
  }
  context_.scans->ForgetOld();
  const volume::VolumeExpiry::Due due = context_.volumes->expiry().Tick(
      [this](const std::string& session) { return context_.sessions->Gone(session); });
  for (const model::VolumeStatus& volume : due.warned) NotifyExpiring(volume);
  for (const model::VolumeStatus& volume : due.expired)
    Log(LogLevel::kInfo, "volume expired", {{"volume", volume.name}, {"reason", volume.reason}});
  for (const model::VolumeStatus& volume : due.orphans) context_.orphans->Apply(volume);
  if (!context_.exports->enabled()) return;
  context_.feeds->Tick();
  for (const exports::ExportStore::Overdue& what : context_.exports->TakeOverdue())
    RelocateOverdue(what);
}

void Lifetimes::EndWorkOf(const std::set<std::string>& sessions) {
  // Scratch scans: no client will look at their further results.
  for (const auto& scan : context_.scans->All()) {
    if (sessions.count(scan->client_session()) == 0 || scan->finished() ||
        scan->Resolved().spec.retention.orphan != model::Orphan::kDiscard)
      continue;
    scan->Stop(Reason::kSessionExpired,
               absl::StrCat(scan->client_session(), " has ended; the scan's volumes are scratch"));
  }
  context_.jobs->CancelScratchOf(sessions);
}

void Lifetimes::NotifyExpiring(const model::VolumeStatus& volume) {
  Log(LogLevel::kInfo, "volume will expire",
      {{"volume", volume.name}, {"seconds", volume.expires_seconds}});
  model::ScanEvent event{
      .kind = model::EventKind::kExpiring,
      .text = absl::StrFormat("volume EXPIRING in %.0f s", volume.expires_seconds),
      .volume_index = volume.index,
      .time = context_.clock->Now()};
  if (const auto session = context_.scans->Find(volume.scan); session.ok())
    (*session)->RecordEvent(event);
  context_.events->Publish(volume, std::move(event));
}

void Lifetimes::RelocateOverdue(const exports::ExportStore::Overdue& what) {
  // It runs on threads that outlive this object.
  const auto done = [exports = context_.exports, what](const absl::Status& status) {
    exports->Moved(what, status);
    Log(status.ok() ? LogLevel::kInfo : LogLevel::kWarning,
        status.ok() ? "moved out of memory that is not given back"
                    : "still in memory that is not given back",
        {{"name", what.of}, {"error", std::string(status.message())}});
  };
  if (absl::StartsWith(what.of, "volumes/")) return context_.spiller->Relocate(what.of, done);
  context_.workers->Post(
      [buffers = context_.buffers, what, done] { done(buffers->Relocate(what)); });
}

}  // namespace octavo::engine

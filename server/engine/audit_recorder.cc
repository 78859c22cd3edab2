#include "server/engine/audit_recorder.h"

#include "gpu/base/json.h"
#include "gpu/base/status.h"

namespace octavo::engine {
namespace {

constexpr size_t kMostEnded = 10'000;  // more than scans and jobs that stay listed by default

using security::AuditLine;
using security::Put;

AuditLine Change(const char* kind, const std::string& object, const std::string& state) {
  return {{"event", "change"}, {"kind", kind}, {"object", object}, {"state", state}};
}

/// What the details of a row say in `member`; empty if they say nothing.
std::string DetailOf(const storage::HistoryRow& row, const char* member) {
  const auto details = ParseJson(row.details);
  if (!details.ok() || !details->is_object()) return "";
  const auto it = details->find(member);
  return it != details->end() && it->is_string() ? it->get<std::string>() : "";
}

}  // namespace

void AuditRecorder::OnRow(const storage::HistoryRow& row) {
  if (log_ == nullptr) return;
  {
    MutexLock lock(mutex_);
    const Key key(row.kind, row.name);
    const auto it = states_.find(key);
    if (it != states_.end() && it->second == row.state) return;
    states_[key] = row.state;
    if (row.ended) ended_.push_back(key);
    if (ended_.size() > kMostEnded) {
      states_.erase(ended_.front());
      ended_.pop_front();
    }
  }
  AuditLine line = Change(storage::Name(row.kind), row.name, row.state);
  Put(&line, "principal", row.owner);
  Put(&line, "project", row.project);
  if (row.kind == storage::HistoryKind::kCommit) {
    Put(&line, "volume", DetailOf(row, "volume"));
    Put(&line, "destination", DetailOf(row, "destination"));
    Put(&line, "path", DetailOf(row, "path"));
  } else {
    Put(&line, "device", DetailOf(row, "device"));
  }
  Put(&line, "reason", row.reason_code);
  Put(&line, "why", row.reason);
  Put(&line, "request_id", row.request_id);
  Put(&line, "trace_id", DetailOf(row, "trace_id"));
  log_->Write(line);
}

void AuditRecorder::OnVolumeChanged(const model::VolumeStatus& volume) {
  if (log_ == nullptr || volume.held_unix_ns == 0) return;
  // A LIVE scan overwrites several volumes a second, which nobody decides: their lines would push
  // out those of what people did.
  const bool may_be_overwritten = volume.state == model::VolumeState::kHeld && !volume.kept;
  if (may_be_overwritten || volume.reason_code == Reason::kOverwritten) return;
  AuditLine line = Change("volume", volume.name, Name(volume.state));
  if (volume.state == model::VolumeState::kHeld) line["tier"] = Name(volume.tier);
  Put(&line, "owner", volume.owner.name);
  Put(&line, "project", volume.owner.project);
  Put(&line, "parent", model::ParentOf(volume));
  line["index"] = volume.index;
  line["bytes"] = volume.bytes;
  if (volume.has_commit) Put(&line, "path", volume.commit.path);
  Put(&line, "reason", std::string(Name(volume.reason_code)));
  Put(&line, "why", volume.reason);
  Put(&line, "error", volume.last_error);
  log_->Write(line);
}

void AuditRecorder::OnSession(const std::string& session, const char* state) {
  if (log_ != nullptr) log_->Write(Change("session", session, state));
}

}  // namespace octavo::engine

// What time and the ends of clients do to volumes.

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

#include "server/volume/volume_store.h"

namespace octavo::volume {

VolumeStore::Due VolumeStore::Tick(const std::function<bool(const std::string&)>& gone) {
  Due due;
  std::vector<Memory> leaving;
  {
    MutexLock lock(mutex_);
    Purge();
    const auto leased = [this](const std::string& name) {
      return protections_.leases != nullptr && protections_.leases->Leased(name);
    };
    std::map<std::string, bool> known;  // each session is asked about once
    for (auto next = records_.begin(); next != records_.end();) {
      Record& record = *next++;  // it may leave
      model::VolumeStatus& status = record.status;
      if (status.state != model::VolumeState::kHeld) continue;
      if (status.ttl_seconds > 0 && !status.marked && status.moving.empty()) {
        const double left =
            status.ttl_seconds -
            static_cast<double>(clock_->Now().monotonic_ns - record.living_ns) * 1e-9;
        if (left <= 0 && !leased(status.name)) {
          leaving.push_back(Leave(
              record, model::VolumeState::kDiscarded,
              absl::StrCat("its time to live of ", status.ttl_seconds, " s was over"), "expired"));
          ++TotalsOf(record).expired;
          due.expired.push_back(StatusOf(record));
          continue;
        }
        if (left > 0 && left <= status.ttl_warning_seconds && !record.warned) {
          record.warned = true;
          due.warned.push_back(StatusOf(record));
        }
      }
      if (status.session.empty() || record.orphan_told || !status.moving.empty()) continue;
      const auto [it, unknown] = known.try_emplace(status.session, false);
      if (unknown) it->second = gone(status.session);
      if (!it->second) continue;
      status.orphaned = true;
      if (record.orphan_told || leased(status.name)) continue;
      record.orphan_told = true;
      due.orphans.push_back(StatusOf(record));
    }
  }
  for (size_t i = 0; i < leaving.size(); ++i) LetGo(due.expired[i].name, std::move(leaving[i]));
  for (const model::VolumeStatus& status : due.expired) Changed(status);
  return due;
}

void VolumeStore::TellOrphanAgain(const std::string& name) {
  MutexLock lock(mutex_);
  if (const auto it = Find(name); it.ok()) (*it)->orphan_told = false;
}

void VolumeStore::Adopt(const std::string& session) {
  MutexLock lock(mutex_);
  for (Record& record : records_) {
    if (record.status.session == session) record.status.orphaned = record.orphan_told = false;
  }
}

}  // namespace octavo::volume

#include "server/volume/volume_expiry.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

#include "server/volume/volume_news.h"

namespace octavo::volume {

VolumeExpiry::Due VolumeExpiry::Tick(const std::function<bool(const std::string&)>& gone) {
  Due due;
  std::vector<VolumeBytes> leaving;
  {
    VolumeNews news(table_);
    MutexLock lock(table_.mutex());
    table_.Purge();
    const int64_t now = table_.NowNs();
    const auto leased = [leases = table_.leases()](const std::string& name) {
      return leases != nullptr && leases->Leased(name);
    };
    std::map<std::string, bool> known;  // each session is asked about once
    VolumeTable::Entries& entries = table_.InMemory();
    for (auto next = entries.begin(); next != entries.end();) {
      VolumeEntry& entry = *next++;  // it may leave
      if (entry.state != model::VolumeState::kHeld || entry.moving != model::Move::kNone) continue;
      if (const auto left = entry.SecondsToLive(now); left.has_value()) {
        if (*left <= 0 && !leased(entry.name())) {
          leaving.push_back(table_.Leave(
              entry, model::VolumeState::kDiscarded, Reason::kExpired,
              absl::StrCat("its time to live of ", entry.about->ttl_seconds, " s was over"),
              "expired"));
          ++table_.TotalsOf(entry).expired;
          due.expired.push_back(table_.Changed(entry));
          continue;
        }
        if (*left > 0 && *left <= entry.about->ttl_warning_seconds && !entry.warned) {
          entry.warned = true;
          due.warned.push_back(table_.StatusOf(entry));
        }
      }
      const std::string& session = entry.about->session;
      if (session.empty() || entry.orphan_told) continue;
      const auto [it, unknown] = known.try_emplace(session, false);
      if (unknown) it->second = gone(session);
      if (!it->second) continue;
      if (!std::exchange(entry.orphaned, true)) news.Add(entry);
      if (leased(entry.name())) continue;
      entry.orphan_told = true;
      due.orphans.push_back(table_.StatusOf(entry));
    }
  }
  for (size_t i = 0; i < leaving.size(); ++i)
    table_.LetGo(due.expired[i].name, std::move(leaving[i]));
  for (const model::VolumeStatus& status : due.expired) table_.Tell(status);
  return due;
}

void VolumeExpiry::TellOrphanAgain(const std::string& name) {
  MutexLock lock(table_.mutex());
  if (const auto entry = table_.Find(name); entry.ok()) (*entry)->orphan_told = false;
}

void VolumeExpiry::Adopt(const std::string& session) {
  VolumeNews news(table_);
  MutexLock lock(table_.mutex());
  for (const auto& [number, entry] : table_.InMemoryOfSession(session)) {
    entry->orphan_told = false;
    if (std::exchange(entry->orphaned, false)) news.Add(*entry);
  }
}

}  // namespace octavo::volume

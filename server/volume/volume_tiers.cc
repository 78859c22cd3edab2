#include "server/volume/volume_tiers.h"

#include <iterator>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/model/volume_states.h"

namespace octavo::volume {
namespace {

/// Shuts a gate at the end of its scope; declare it before the lock.
struct ShutAfterTheLock {
  std::shared_ptr<storage::SpillGate> gate;
  ~ShutAfterTheLock() {
    if (gate != nullptr) gate->Shut();
  }
};

bool MayBeMirrored(const VolumeEntry& entry) {
  return entry.state == model::VolumeState::kHeld && entry.tier != model::Tier::kDisk &&
         entry.moving == model::Move::kNone && entry.bytes.mirror == nullptr &&
         entry.bytes.writing == nullptr && entry.kept && !entry.lent && !entry.unmirrorable;
}

}  // namespace

absl::Status VolumeTiers::CheckMovable(const VolumeEntry& entry) {
  if (!model::IsComplete(entry.state)) {
    return WithInfo(absl::FailedPreconditionError(
                        absl::StrCat(entry.name(), " is ", Name(entry.state),
                                     "; only HELD and COMMITTING volumes can be moved")),
                    {.reason = Reason::kVolumeState,
                     .field = "name",
                     .numbers = {{"state", Name(entry.state)}}});
  }
  if (entry.moving != model::Move::kNone) {
    return WithInfo(
        absl::FailedPreconditionError(absl::StrCat(entry.name(), " is being moved already (",
                                                   Name(entry.moving), "); ask again")),
        {.reason = Reason::kMoving, .field = "name", .numbers = {{"retryable", "true"}}});
  }
  return absl::OkStatus();
}

// Nothing throws once the entry is marked.
VolumeMove VolumeTiers::Begin(VolumeEntry& entry, model::Move kind, VolumeNews& news,
                              std::shared_ptr<storage::SpillGate>* mirroring) {
  VolumeHold hold = table_.HoldMemory(entry);
  std::shared_ptr<storage::SpillGate> gate;
  if (kind == model::Move::kSpilling) gate = std::make_shared<storage::SpillGate>();
  entry.bytes.MakeRoom();
  entry.moving = kind;
  if (gate != nullptr) {
    entry.bytes.Shuts(entry.bytes.writing);
    *mirroring = std::exchange(entry.bytes.writing, gate);
  }
  if (kind != model::Move::kNone) news.Add(entry);
  return VolumeMove(&table_, kind, std::move(hold), std::move(gate), entry.bytes.mirror);
}

absl::StatusOr<VolumeMove> VolumeTiers::BeginSpill(const std::string& name, const ClientVerb* asked,
                                                   std::optional<model::Tier> tier) {
  ShutAfterTheLock mirroring;
  VolumeNews news(table_);
  MutexLock lock(table_.mutex());
  OCTAVO_ASSIGN_OR_RETURN(VolumeEntry* const entry, table_.Find(name));
  OCTAVO_RETURN_IF_ERROR(CheckOwner(*entry->about, asked));
  if (model::IsComplete(entry->state) && entry->tier == tier && entry->moving == model::Move::kNone)
    return Begin(*entry, model::Move::kNone, news, &mirroring.gate);
  OCTAVO_RETURN_IF_ERROR(CheckMovable(*entry));
  OCTAVO_RETURN_IF_ERROR(table_.CheckLeases(*entry, asked));
  // The move would free no memory and would take the volume from processes that map it.
  OCTAVO_RETURN_IF_ERROR(table_.CheckExports(*entry, asked));
  return Begin(*entry, model::Move::kSpilling, news, &mirroring.gate);
}

absl::StatusOr<VolumeMove> VolumeTiers::BeginSpillOldest(const std::string& scan) {
  ShutAfterTheLock mirroring;
  VolumeNews news(table_);
  MutexLock lock(table_.mutex());
  const std::set<std::string> mapped = table_.Mapped();
  for (const auto& [number, entry] : table_.InMemoryOf(scan)) {
    if (entry->state == model::VolumeState::kHeld && entry->tier == model::Tier::kDevice &&
        entry->kept && entry->moving == model::Move::kNone && entry->about->derived_from.empty() &&
        mapped.count(entry->name()) == 0)
      return Begin(*entry, model::Move::kSpilling, news, &mirroring.gate);
  }
  return absl::NotFoundError(
      absl::StrCat(scan, " holds no volume on the device that could be moved"));
}

absl::StatusOr<VolumeMove> VolumeTiers::BeginRestore(const std::string& name,
                                                     const ClientVerb* asked) {
  VolumeNews news(table_);
  MutexLock lock(table_.mutex());
  OCTAVO_ASSIGN_OR_RETURN(VolumeEntry* const entry, table_.Find(name));
  OCTAVO_RETURN_IF_ERROR(CheckOwner(*entry->about, asked));
  OCTAVO_RETURN_IF_ERROR(CheckMovable(*entry));
  return Begin(
      *entry, entry->bytes.spilled == nullptr ? model::Move::kNone : model::Move::kRestoring, news);
}

absl::StatusOr<VolumeMove> VolumeTiers::BeginRelocate(const std::string& name) {
  VolumeNews news(table_);
  MutexLock lock(table_.mutex());
  OCTAVO_ASSIGN_OR_RETURN(VolumeEntry* const entry, table_.Find(name));
  OCTAVO_RETURN_IF_ERROR(CheckMovable(*entry));
  if (entry->bytes.slot == nullptr) {
    return WithInfo(
        absl::FailedPreconditionError(
            absl::StrCat(name, " is not on its device (tier ", Name(entry->tier), ")")),
        {.reason = Reason::kSpilled, .field = "name", .numbers = {{"tier", Name(entry->tier)}}});
  }
  return Begin(*entry, model::Move::kRelocating, news);
}

absl::StatusOr<VolumeMirroring> VolumeTiers::BeginMirror(const MirrorWish& wish) {
  auto gate = std::make_shared<storage::SpillGate>();
  MutexLock lock(table_.mutex());
  const int64_t now = table_.NowNs();
  for (VolumeEntry& entry : table_.InMemory()) {
    if (!MayBeMirrored(entry) || entry.about->bytes > wish.most_bytes ||
        static_cast<double>(now - entry.sealed_ns) * 1e-9 < wish.least_held_seconds ||
        wish.except.contains(entry.name()))
      continue;
    VolumeMirroring mirroring(&table_, table_.HoldMemory(entry), gate);
    entry.bytes.writing = std::move(gate);
    return mirroring;
  }
  return absl::NotFoundError("no volume is to be mirrored");
}

bool VolumeTiers::DropNewestMirror() {
  std::shared_ptr<const SpilledVolume> mirror;
  {
    VolumeNews news(table_);
    MutexLock lock(table_.mutex());
    VolumeTable::Entries& entries = table_.InMemory();
    for (auto it = entries.rbegin(); it != entries.rend() && mirror == nullptr; ++it) {
      // The spill of a volume takes its mirror.
      if (it->moving != model::Move::kNone || it->bytes.mirror == nullptr) continue;
      it->bytes.Leaves(it->bytes.mirror);
      mirror = std::exchange(it->bytes.mirror, nullptr);
      news.Add(*it);
    }
  }
  if (mirror == nullptr) return false;
  mirror->Remove();
  return true;
}

int64_t VolumeTiers::MirrorBytes() {
  MutexLock lock(table_.mutex());
  int64_t bytes = 0;
  for (const VolumeEntry& entry : table_.InMemory()) {
    if (entry.bytes.mirror != nullptr) bytes += entry.bytes.mirror->taken_bytes();
  }
  return bytes;
}

void VolumeTiers::NoteMarks() {
  // A disk that fails is not asked ten times a second: others wait behind this thread.
  constexpr int64_t kMarkRetryNs = 10'000'000'000;
  struct Old {
    std::string volume;
    std::shared_ptr<const SpilledVolume> file;
    bool marked;
  };
  std::vector<Old> old;
  {
    MutexLock lock(table_.mutex());
    const int64_t now = table_.Now().monotonic_ns;
    for (VolumeEntry& entry : table_.InMemory()) {
      const std::shared_ptr<const SpilledVolume>& file = entry.bytes.OnDisk();
      if (file == nullptr) continue;
      if (entry.noted_mark == entry.marked) {
        entry.mark_failing = false;
        continue;
      }
      if (entry.mark_failing && now < entry.mark_retry_ns) continue;
      old.push_back({.volume = entry.name(), .file = file, .marked = entry.marked});
    }
  }
  for (const Old& one : old) {
    const absl::Status noted = one.file->NoteMark(one.marked);
    if (!noted.ok()) ++mark_failures_;
    bool news = false;
    {
      MutexLock lock(table_.mutex());
      const auto found = table_.Find(one.volume);
      // Of another file, whoever put it in its place has said what it says.
      if (!found.ok() || (*found)->bytes.OnDisk() != one.file) continue;
      VolumeEntry& entry = **found;
      if (noted.ok()) entry.noted_mark = one.marked;
      news = !noted.ok() && !entry.mark_failing;
      entry.mark_failing = !noted.ok();
      entry.mark_retry_ns = table_.Now().monotonic_ns + kMarkRetryNs;
    }
    if (news)
      Log(LogLevel::kWarning,
          "the file of a volume does not say whether it is marked; it is written again until it "
          "does",
          {{"volume", one.volume},
           {"marked", one.marked},
           {"error", std::string(noted.message())}});
  }
}

}  // namespace octavo::volume

#include "server/volume/volume_mirroring.h"

#include <string>

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/model/volume_states.h"
#include "server/volume/volume_news.h"

namespace octavo::volume {

bool VolumeMirroring::Finish(absl::StatusOr<std::shared_ptr<const SpilledVolume>> made) && {
  if (table_ == nullptr) return false;
  VolumeTable& table = *std::exchange(table_, nullptr);
  const std::string& name = hold_.status.name;
  const bool changed = InfoOf(made.status()).reason == Reason::kDigest;
  // Before the lock: the last hold of a slot frees memory.
  hold_.Release();
  bool mirrored = false;
  {
    VolumeNews news(table);
    MutexLock lock(table.mutex());
    const auto found = table.Find(name);
    if (found.ok() && (*found)->bytes.writing == gate_) {
      VolumeEntry& entry = **found;
      if (!made.ok()) entry.bytes.Shuts(gate_);
      entry.bytes.writing = nullptr;
      if (made.ok()) {
        mirrored = true;
        entry.bytes.mirror = *std::move(made);
        entry.noted_mark = hold_.status.marked;
        news.Add(entry);
      } else if (changed) {
        entry.unmirrorable = true;
      }
    }
  }
  if (!mirrored) gate_->Shut();
  return mirrored;
}

VolumeMirroring::~VolumeMirroring() {
  if (table_ == nullptr) return;
  try {
    (void)std::move(*this).Finish(absl::AbortedError("the server gave up the copy before its end"));
  } catch (...) {
    Log(LogLevel::kError, "a copy was abandoned, and its volume does not say so",
        {{"volume", hold_.status.name}, {"error", base::StatusOfException().ToString()}});
  }
}

}  // namespace octavo::volume

#include "server/scan/volume_sealer.h"

#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/scan/resolve_scan.h"

namespace octavo::scan {

VolumeSealer::VolumeSealer(const model::ResolvedScan& scan, Context context)
    : context_(std::move(context)),
      volumes_wanted_(RecordsWanted(scan) == 0 ? -1 : RecordsWanted(scan) / scan.volume_records) {}

void VolumeSealer::Run() {
  for (;;) {
    Completion item;
    if (!context_.completions->Next(&item)) return;
    const absl::Status status = base::ExceptionToStatus([&] {
      (void)Failpoint("retire_turn");
      Retire(item);
      return absl::OkStatus();
    });
    if (!status.ok())
      base::GuardedTurn("a scan that fails keeps something", [&] { BreakOff(item, status); });
    context_.completions->Recycle(item);
  }
}

// The rest of what Retire would have done, without subscribers.
void VolumeSealer::BreakOff(Completion& item, const absl::Status& status) {
  const DeviceLanes::Failure failure = context_.lanes->FailureOf(status);
  context_.life->Fail(failure.code, failure.reason);
  (void)context_.completions->Wait(item);
  Release(item);
  if (item.volume == nullptr) return;
  Fail(*item.volume, status);  // unless it is sealed
  item.volume->first_records = nullptr;
  item.volume->slot = item.volume->raw_slot = nullptr;
}

// Gives the block back to the ring; once.
void VolumeSealer::Release(Completion& item) {
  context_.acquirer->Release(std::exchange(item.ring_slot, -1),
                             std::exchange(item.loan, int64_t{0}));
}

void VolumeSealer::Retire(Completion& item) {
  absl::Status status = context_.completions->Wait(item);
  if (status.ok()) status = context_.lanes->SentStatus();
  if (!status.ok()) {
    const DeviceLanes::Failure failure = context_.lanes->FailureOf(status);
    context_.life->Fail(failure.code, failure.reason);
  }
  const bool block = item.ring_slot >= 0 || item.loan > 0;
  Release(item);
  const int64_t now = context_.clock->Now().monotonic_ns;
  context_.progress->BlockThrough(now, item.records,
                                  block ? static_cast<double>(now - item.enqueued_ns) * 1e-9 : -1);
  if (item.volume == nullptr) return PublishFrames(item, status, {});
  SealAndPublish(item, status, now);
  Dispose(item, status, now);
}

void VolumeSealer::SealAndPublish(Completion& item, const absl::Status& status, int64_t now_ns) {
  std::optional<RetentionPolicy::Sealed> sealed;  // observers hear of it when the frames are out
  if (status.ok()) {
    sealed.emplace(Seal(item));
  } else {
    Fail(*item.volume, status);
  }
  PublishFrames(item, status, StagesOf(item, now_ns));
}

RetentionPolicy::Sealed VolumeSealer::Seal(Completion& item) {
  ActiveVolume& volume = *item.volume;
  const DeviceLanes::SealSum sum = context_.lanes->Sum(context_.completions->SealWords(item.event));
  volume.status.clipped_below += sum.clipped_below;
  volume.status.clipped_above += sum.clipped_above;
  volume.status.digest = absl::StrFormat("sum64:%016x", sum.digest);
  if (volume.raw_slot != nullptr) {
    volume.raw_status.digest =
        absl::StrFormat("sum64:%016x", *context_.completions->RawDigestWord(item.event));
  }
  RetentionPolicy::Sealed sealed = context_.retention->Seal(volume);
  if (const uint64_t* counts = context_.completions->NonFiniteWords(item.event); counts != nullptr)
    AddNonFinite(counts);
  CountClipped(volume.status);
  context_.events->Record({.kind = model::EventKind::kVolumeDone,
                           .text = "volume HELD",
                           .volume_index = volume.index,
                           .volume_state = model::VolumeState::kHeld,
                           .tier = model::Tier::kDevice});
  const int64_t now = context_.clock->Now().monotonic_ns;
  context_.progress->VolumeSealed(now,
                                  static_cast<double>(now - item.acquired.monotonic_ns) * 1e-9);
  return sealed;
}

void VolumeSealer::Fail(const ActiveVolume& volume, const absl::Status& status) {
  const std::string reason = absl::StrCat("device error: ", status.message());
  const Reason code = ReasonOrCode(status);
  context_.store->Fail(volume.status.name, code, reason);
  if (volume.raw_slot != nullptr) context_.store->Fail(volume.raw_status.name, code, reason);
}

void VolumeSealer::AddNonFinite(const uint64_t* counts) {
  const auto sum =
      static_cast<int64_t>(std::accumulate(counts, counts + context_.lanes->size(), uint64_t{0}));
  if (context_.progress->CountNonFinite(sum)) {
    context_.events->Warn(
        "Records hold samples that are not finite (NaN, infinite). Their A-scans are NaN; in "
        "integers NaN is the lowest number. "
        "non_finite_records counts them.");
  }
}

void VolumeSealer::CountNonFinite() {
  uint64_t* const counts = context_.completions->NonFiniteWords(0);
  if (counts == nullptr || !context_.lanes->EnqueueNonFinite(counts).ok()) return;
  if (context_.lanes->Synchronize().ok()) AddNonFinite(counts);
}

void VolumeSealer::CountClipped(const model::VolumeStatus& volume) {
  const int64_t voxels =
      (volume.shape[0] * volume.shape[1] - volume.missing_ascans) * volume.shape[2];
  context_.progress->CountVoxels(voxels, volume.clipped_below, volume.clipped_above);
  context_.events->WarnOfClipping(volume, voxels);
}

model::StageTimes VolumeSealer::StagesOf(const Completion& item, int64_t seen_ns) {
  const model::StageTimes stages =
      context_.completions->stages().StagesOf(item, seen_ns, context_.clock->Now().monotonic_ns);
  if (stages.uploaded_ns != 0 && stages.on_host_ns != 0) context_.progress->CountStages(stages);
  return stages;
}

void VolumeSealer::PublishFrames(Completion& item, const absl::Status& status,
                                 const model::StageTimes& stages) {
  for (PendingFrame& pending : item.frames) {
    if (!status.ok() || pending.lost) {
      context_.publisher->Lost(context_.scan, pending.key,
                               pending.yielded ? publish::Publisher::Loss::kYielded
                                               : publish::Publisher::Loss::kNoMemory);
      continue;
    }
    pending.frame.stages = stages;
    if (Failpoint("published_frame") != 0)
      *static_cast<uint8_t*>(const_cast<void*>(pending.frame.payload.data)) ^= 64;
    context_.publisher->Publish(pending.key, std::move(pending.frame));
  }
}

// Subscribers have been notified; the slower work follows.
void VolumeSealer::Dispose(Completion& item, const absl::Status& status, int64_t now_ns) {
  ActiveVolume& volume = *item.volume;
  if (status.ok()) {
    context_.frames->Offer(volume);
    context_.retention->Dispose(volume, context_.memory->slots(), [&]() -> int64_t {
      return volumes_wanted_ < 0 ? -1 : volumes_wanted_ - context_.progress->volumes_begun;
    });
  }
  if (volume.first_records != nullptr) {
    if (const std::string doubt = volume.first_records->Doubt(); !doubt.empty())
      context_.events->Warn(doubt);
    volume.first_records = nullptr;
  }
  volume.slot = volume.raw_slot = nullptr;
  context_.completions->stages().KeepInStep(context_.lanes->home(), now_ns);
}

}  // namespace octavo::scan

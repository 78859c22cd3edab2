#include "server/job/job_results.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/array/project.h"
#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "gpu/device/exportable_memory.h"
#include "server/base/exception_to_status.h"
#include "server/base/resource_names.h"
#include "server/publish/plane_frame.h"
#include "server/security/rights.h"

namespace octavo::job {
namespace {

constexpr int64_t kStoredPiece = 8 << 20;

int64_t BytesOf(const model::VolumeStatus& v) {
  return v.shape[0] * v.shape[1] * v.shape[2] * SizeOf(v.dtype);
}

}  // namespace

JobResults::JobResults(const JobServices& services, JobTable& table, JobPictures& pictures,
                       JobPtr job, StreamRef stream)
    : services_(services),
      table_(table),
      pictures_(pictures),
      job_(std::move(job)),
      device_(services.devices.device(job_->device)),
      stream_(stream),
      plan_(job_->plans.at(job_->device)) {}

absl::Status JobResults::Begin() {
  const auto pool = std::make_shared<memory::SlotPool>(services_.ledger);
  std::vector<std::unique_ptr<memory::VolumeSlot>> slots;
  for (size_t i = 0; i < plan_.results.size(); ++i) {
    auto slot = std::make_unique<memory::VolumeSlot>();
    slot->charge = job_->charges[i];
    if (!plan_.results[i].on_disk) {
      OCTAVO_ASSIGN_OR_RETURN(slot->volume,
                              ClientMemory::Allocate(device_, plan_.results[i].bytes));
    }
    if (plan_.results[i].mip_bytes > 0) {
      OCTAVO_ASSIGN_OR_RETURN(slot->mip, device_.Allocate(plan_.results[i].mip_bytes));
    }
    OCTAVO_ASSIGN_OR_RETURN(slot->digest, device_.Allocate(8));
    slots.push_back(std::move(slot));
  }
  // Do this only now that nothing can fail any more, because slots in a pool end their charges
  // themselves.
  for (auto& slot : slots) {
    pool->Add(std::move(slot));
    made_.push_back({.slot = pool->TryTake(),
                     .volume = {},
                     .has_mip = false,
                     .storing = nullptr,
                     .stored = nullptr,
                     .commit = nullptr});
  }
  pool->Close();
  job_->charges.erase(job_->charges.begin(), job_->charges.begin() + std::ssize(plan_.results));
  return absl::OkStatus();
}

absl::Status JobResults::Describe(size_t index, model::VolumeStatus* volume) {
  if (index >= made_.size() || !made_[index].volume.name.empty()) {
    return absl::InternalError(
        absl::StrCat("result ", index, " of ", made_.size(), " is not planned, or has begun"));
  }
  if (BytesOf(*volume) > plan_.results[index].bytes) {
    return absl::InternalError(absl::StrCat("result ", index, " has ", BytesOf(*volume),
                                            " bytes; planned were ", plan_.results[index].bytes));
  }
  const model::JobSpec& spec = job_->status.spec;  // fixed
  volume->name = absl::StrCat("volumes/", base::NewId(services_.server_id));
  if (volume->scan.empty()) volume->scan = job_->status.name;
  if (!spec.title.empty()) volume->title = spec.title;
  for (const auto& [key, value] : spec.labels) volume->labels[key] = value;
  if (volume->acquired_begin.monotonic_ns == 0 && volume->acquired_begin.unix_ns == 0)
    volume->acquired_begin = volume->acquired_end = services_.clock->Now();
  volume->device = services_.devices.names().Name(job_->device);
  volume->bytes = BytesOf(*volume);
  volume->job = job_->status.name;
  volume->job_kind = Name(job_->status.kind);
  volume->session = spec.session;
  volume->owner = security::OwnerOf(spec.caller.principal);
  volume->job_orphan = spec.orphan;
  volume->ttl_seconds = spec.ttl_seconds;
  volume->ttl_warning_seconds = std::min(60.0, spec.ttl_seconds / 2);
  volume->job_parameters = job_->work->Parameters();
  volume->reason.clear();
  volume->last_error.clear();
  volume->has_commit = false;
  volume->held_seconds = 0;
  volume->held_unix_ns = 0;
  made_[index].volume = *volume;
  return absl::OkStatus();
}

void JobResults::List(const model::VolumeStatus& volume) {
  {
    MutexLock lock(table_.mutex());
    table_.AddVolume(*job_, volume.name);
  }
  services_.observer->OnJobsChanged();
}

// A plan knows only the most that a volume can have: nothing has been written into the memory yet,
// so a smaller volume takes a smaller one, and gives the rest back.
absl::Status JobResults::FitMemory(size_t index) {
  const JobPlan::Result& planned = plan_.results[index];
  JobPlan::Result made = planned;
  made.bytes = made_[index].volume.bytes;
  if (made.charged_bytes() == planned.charged_bytes()) return absl::OkStatus();
  memory::VolumeSlot& slot = *made_[index].slot;
  slot.volume = {};
  OCTAVO_ASSIGN_OR_RETURN(slot.volume, ClientMemory::Allocate(device_, made.bytes));
  services_.ledger->Shrink(slot.charge, made.charged_bytes());
  return absl::OkStatus();
}

absl::StatusOr<void*> JobResults::Result(size_t index, model::VolumeStatus volume) {
  OCTAVO_RETURN_IF_ERROR(Describe(index, &volume));
  OCTAVO_RETURN_IF_ERROR(FitMemory(index));
  services_.volumes->Add(volume, made_[index].slot, job_->device);
  List(volume);
  return made_[index].slot->volume.data();
}

absl::Status JobResults::BeginStored(size_t index, model::VolumeStatus volume) {
  if (services_.spiller == nullptr) return absl::InternalError("this engine stores no results");
  OCTAVO_RETURN_IF_ERROR(Describe(index, &volume));
  made_[index].volume.tier = model::Tier::kDisk;
  OCTAVO_ASSIGN_OR_RETURN(made_[index].storing,
                          services_.spiller->BeginStoring(made_[index].volume));
  return absl::OkStatus();
}

absl::Status JobResults::Store(size_t index, const void* data, int64_t bytes) {
  if (index >= made_.size() || made_[index].storing == nullptr)
    return absl::InternalError(absl::StrCat("result ", index, " is not stored"));
  const auto pool = services_.devices.frames(job_->device);
  const int64_t piece = std::min(bytes, kStoredPiece);
  auto staging = pool->Get(piece);
  OCTAVO_RETURN_IF_ERROR(Annotate(staging.status(), "while storing the result"));
  const std::shared_ptr<void> memory = *std::move(staging);
  for (int64_t at = 0; at < bytes; at += piece) {
    const int64_t count = std::min(piece, bytes - at);
    OCTAVO_RETURN_IF_ERROR(
        device_.CopyToHost(stream_, memory.get(), static_cast<const char*>(data) + at, count));
    OCTAVO_RETURN_IF_ERROR(stream_.Synchronize());
    OCTAVO_RETURN_IF_ERROR(made_[index].storing->Append(memory.get(), count));
  }
  return absl::OkStatus();
}

bool JobResults::MakesInOrder(size_t index) {
  if (index >= made_.size() || !made_[index].open()) return false;
  Made& made = made_[index];
  const std::optional<model::CommitOptions>& options = job_->status.spec.commit;  // fixed
  // What is on disk is a file of its own, which is read once it is whole.
  if (!options.has_value() || made.storing != nullptr) return false;
  const absl::Status begun = base::ExceptionToStatus([&]() -> absl::Status {
    OCTAVO_ASSIGN_OR_RETURN(const model::VolumeStatus volume,
                            services_.volumes->Get(made.volume.name));
    made.commit = services_.observer->OnGrowingCommitWanted(
        {.status = volume, .slot = made.slot, .device = job_->device}, *options);
    return absl::OkStatus();
  });
  return begun.ok() && made.commit != nullptr;  // else it begins when the volume is held
}

absl::Status JobResults::MadeTo(size_t index, int64_t bytes) {
  if (index >= made_.size() || !made_[index].open() || made_[index].commit == nullptr ||
      bytes > made_[index].volume.bytes) {
    return absl::InternalError(
        absl::StrCat("result ", index, ", of which ", bytes, " bytes are made, is not committed"));
  }
  return made_[index].commit->Reach(bytes, stream_);
}

void JobResults::SetDisplay(size_t index, double lo, double hi) {
  if (index >= made_.size()) return;
  made_[index].volume.display_lo = lo;
  made_[index].volume.display_hi = hi;
}

void JobResults::SetClipped(size_t index, int64_t below, int64_t above) {
  if (index >= made_.size()) return;
  made_[index].volume.clipped_below = below;
  made_[index].volume.clipped_above = above;
}

void* JobResults::ResultMip(size_t index, bool made) {
  if (index >= made_.size()) return nullptr;
  made_[index].has_mip = made;
  return made_[index].slot->mip.data();
}

absl::Status JobResults::Finish(Made& made) {
  {
    MutexLock lock(table_.mutex());
    made.volume.job_warnings.clear();
    for (const std::string& warning : job_->status.warnings) {
      if (!job_->commit_warnings.contains(warning)) made.volume.job_warnings.push_back(warning);
    }
  }
  if (made.storing != nullptr) {
    OCTAVO_ASSIGN_OR_RETURN(made.stored, made.storing->Finish(&made.volume));
    return absl::OkStatus();
  }
  OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer word, device_.AllocatePinned(8));
  OCTAVO_RETURN_IF_ERROR(
      device_.Digest(stream_, made.slot->volume.span<const uint8_t>().First(made.volume.bytes),
                     made.slot->digest.span<uint64_t>()));
  OCTAVO_RETURN_IF_ERROR(device_.CopyToHost(stream_, word.data(), made.slot->digest.data(), 8));
  if (made.slot->mip && !made.has_mip) {
    const auto& s = made.volume.shape;
    const VolumeView view{
        .data = made.slot->volume.data(), .dtype = made.volume.dtype, .shape = {s[0], s[1], s[2]}};
    const auto z = static_cast<Axis>(publish::PositionOf(made.volume, model::FrameAxis::kZ));
    OCTAVO_RETURN_IF_ERROR(
        Mip(stream_, device_, view, z, 0, s[0], /*accumulate=*/false, made.slot->mip.data()));
  }
  OCTAVO_RETURN_IF_ERROR(stream_.Synchronize());
  made.volume.digest = absl::StrFormat("sum64:%016x", *word.as<uint64_t>());
  return absl::OkStatus();
}

absl::Status JobResults::Finish() {
  for (Made& made : made_) {
    if (made.open()) OCTAVO_RETURN_IF_ERROR(Finish(made));
  }
  return absl::OkStatus();
}

absl::Status JobResults::Complete(size_t index) {
  if (index >= made_.size() || !made_[index].open()) {
    return absl::InternalError(
        absl::StrCat("result ", index, " of ", made_.size(), " has not begun, or is complete"));
  }
  Made& made = made_[index];
  OCTAVO_RETURN_IF_ERROR(stream_.Synchronize());
  OCTAVO_RETURN_IF_ERROR(Finish(made));
  if (job_->stop.stop_requested()) return absl::CancelledError("cancelled");
  Hold(made);
  if (index + 1 < made_.size() && plan_.results[index + 1].after_before)
    made_[index + 1].slot = std::move(made.slot);
  made.slot.reset();  // its volume keeps it, until a client discards that
  return absl::OkStatus();
}

void JobResults::Move(const model::VolumeStatus& volume) {
  const std::optional<model::Tier> tier = job_->status.spec.results;  // fixed
  if (!tier.has_value() || services_.spiller == nullptr) return;
  const absl::Status begun =
      base::ExceptionToStatus([&] { return services_.spiller->SpillResult(volume.name, *tier); });
  // One that a client discarded, or moved itself, is where that wants it.
  const Reason reason = InfoOf(begun).reason;
  if (begun.ok() || absl::IsNotFound(begun) || reason == Reason::kMoving ||
      reason == Reason::kVolumeState)
    return;
  MutexLock lock(table_.mutex());
  table_.Warn(*job_, absl::StrCat("results: ", volume.name, " does not go to ", Name(*tier),
                                  " and stays where it is: ", begun.message()));
}

void JobResults::Commit(Made& made) {
  if (const auto growing = std::move(made.commit); growing != nullptr) return growing->Held();
  const std::optional<model::CommitOptions>& options = job_->status.spec.commit;  // fixed
  if (!options.has_value()) return;
  const model::VolumeStatus& volume = made.volume;
  const absl::Status begun = base::ExceptionToStatus([&] {
    services_.observer->OnCommitWanted(volume.name, *options);
    return absl::OkStatus();
  });
  if (begun.ok()) return;
  (void)table_.NoteCommitFailed(
      job_->status.name, absl::StrCat("commit: of ", volume.name,
                                      " did not begin, and it stays held: ", begun.message()));
}

void JobResults::Hold(Made& made) {
  if (made.storing != nullptr) {
    services_.volumes->AddStored(made.volume, std::move(made.stored));
    made.storing.reset();
    List(made.volume);  // only now, so that a reader of the name finds the volume
  } else {
    services_.volumes->Seal(made.volume, /*kept=*/true);
  }
  made.complete = true;
  pictures_.PublishCuts(made.volume, *made.slot);
  Move(made.volume);
  Commit(made);
}

void JobResults::Close(bool held, const absl::Status& status) {
  for (Made& made : made_) {
    if (!made.open()) continue;
    if (held) {
      Hold(made);
    } else if (made.storing == nullptr) {
      services_.volumes->Fail(
          made.volume.name, status.ok() ? Reason::kCancelled : ReasonOrCode(status),
          status.ok() ? "the job was cancelled" : std::string(status.message()));
      if (made.commit != nullptr)
        made.commit->Failed(status.ok() ? absl::CancelledError("the job was cancelled") : status);
    } else if (made.stored != nullptr) {
      made.stored->Remove();
    }
  }
  if (!held) {
    std::vector<std::string> complete;
    for (const Made& made : made_) {
      if (made.complete) complete.push_back(made.volume.name);
    }
    MutexLock lock(table_.mutex());
    job_->status.volumes = std::move(complete);
  }
  made_.clear();
}

}  // namespace octavo::job

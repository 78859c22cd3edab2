// The services for a running job: progress, memory from its reservation, results, previews.

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/array/project.h"
#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "gpu/device/exportable_memory.h"
#include "server/base/resource_names.h"
#include "server/job/internal.h"
#include "server/publish/plane_frame.h"

namespace octavo::job {
namespace {

constexpr int64_t kPreviewNs = 100'000'000;
constexpr int64_t kStoredPiece = 8 << 20;

int64_t BytesOf(const model::VolumeStatus& v) {
  return v.shape[0] * v.shape[1] * v.shape[2] * SizeOf(v.dtype);
}

}  // namespace

JobQueue::Running::Running(JobQueue& queue, std::shared_ptr<Entry> entry, Device& device,
                           StreamRef stream)
    : queue_(queue),
      entry_(std::move(entry)),
      device_(device),
      stream_(stream),
      name_(entry_->status.name),
      plan_(entry_->plans.at(entry_->device)) {}

JobQueue::Running::~Running() {
  kept_.clear();
  buffers_.clear();
}

absl::Status JobQueue::Running::Begin() {
  const auto pool = std::make_shared<memory::SlotPool>(queue_.context_.ledger);
  std::vector<std::unique_ptr<memory::VolumeSlot>> slots;
  for (size_t i = 0; i < plan_.results.size(); ++i) {
    auto slot = std::make_unique<memory::VolumeSlot>();
    slot->charge = entry_->charges[i];
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
                     .stored = nullptr});
  }
  pool->Close();
  entry_->charges.erase(entry_->charges.begin(),
                        entry_->charges.begin() + std::ssize(plan_.results));
  return absl::OkStatus();
}

// -- progress

void JobQueue::Running::Stage(const std::string& name, int64_t steps, double begin, double end) {
  {
    MutexLock lock(queue_.mutex_);
    JobStatus& status = entry_->status;
    status.stage = name;
    status.step = 0;
    status.steps = steps;
    status.fraction = begin;
    stage_begin_ = begin;
    stage_end_ = end;
    stage_ns_ = queue_.context_.clock->Now().monotonic_ns;
    ++status.event_count;
  }
  queue_.context_.observer->OnJobsChanged();
}

void JobQueue::Running::Step(int64_t step, double residual_norm) {
  const int64_t now = queue_.context_.clock->Now().monotonic_ns;
  MutexLock lock(queue_.mutex_);
  JobStatus& status = entry_->status;
  const double seconds = static_cast<double>(now - status.started.monotonic_ns) * 1e-9;
  status.step = step;
  if (status.steps > 0) {
    status.fraction = stage_begin_ + (stage_end_ - stage_begin_) *
                                         std::min(1.0, static_cast<double>(step) /
                                                           static_cast<double>(status.steps));
  }
  // Estimate from this stage's pace only, because the stage before may have waited for a scan.
  const double done = status.fraction - stage_begin_,
               in_stage = static_cast<double>(now - stage_ns_) * 1e-9;
  if (done > 0) status.eta_seconds = in_stage * (1 - status.fraction) / done;
  status.history.push_back(
      {.stage = status.stage, .step = step, .residual_norm = residual_norm, .seconds = seconds});
  if (status.history.size() > kJobHistoryKept) status.history.erase(status.history.begin());
  ++status.step_count;
  ++status.event_count;
}

void JobQueue::Running::Log(const std::string& text) {
  MutexLock lock(queue_.mutex_);
  queue_.Record(*entry_, text);
}

void JobQueue::Running::Warn(const std::string& text) {
  MutexLock lock(queue_.mutex_);
  queue_.Warn(*entry_, text);
}

void JobQueue::Running::Found(JobFinding finding) {
  MutexLock lock(queue_.mutex_);
  entry_->status.finding = std::move(finding);
  ++entry_->status.event_count;
}

absl::Status JobQueue::Running::WithoutDevice(const std::function<absl::Status()>& wait,
                                              std::stop_token stop) {
  OCTAVO_RETURN_IF_ERROR(stream_.Synchronize());
  queue_.GiveUpTurn(entry_);
  OCTAVO_RETURN_IF_ERROR(wait());
  return queue_.TakeTurn(entry_, stop);
}

// -- memory

absl::Status JobQueue::Running::Charge(int64_t bytes) {
  if (bytes < 0 || used_bytes_ + bytes > plan_.workspace_bytes) {
    return absl::InternalError(
        absl::StrCat("the job wants ", bytes, " bytes more of its workspace of ",
                     plan_.workspace_bytes, ", of which it has used ", used_bytes_));
  }
  used_bytes_ += bytes;
  return absl::OkStatus();
}

absl::StatusOr<void*> JobQueue::Running::Allocate(int64_t bytes) {
  OCTAVO_RETURN_IF_ERROR(Charge(bytes));
  auto buffer = device_.Allocate(bytes);
  if (!buffer.ok()) {
    used_bytes_ -= bytes;
    return buffer.status();
  }
  buffers_.push_back(*std::move(buffer));
  return buffers_.back().data();
}

void JobQueue::Running::Free(void* data) {
  auto it = std::find_if(buffers_.begin(), buffers_.end(),
                         [&](const DeviceBuffer& buffer) { return buffer.data() == data; });
  if (it == buffers_.end()) return;
  used_bytes_ -= it->bytes();
  buffers_.erase(it);
}

// -- results

absl::Status JobQueue::Running::Describe(size_t index, model::VolumeStatus* volume) {
  if (index >= made_.size() || !made_[index].volume.name.empty()) {
    return absl::InternalError(
        absl::StrCat("result ", index, " of ", made_.size(), " is not planned, or has begun"));
  }
  if (BytesOf(*volume) != plan_.results[index].bytes) {
    return absl::InternalError(absl::StrCat("result ", index, " has ", BytesOf(*volume),
                                            " bytes; planned were ", plan_.results[index].bytes));
  }
  const model::JobSpec& spec = entry_->status.spec;  // fixed
  volume->name = absl::StrCat("volumes/", base::NewId(queue_.context_.server_id));
  if (volume->scan.empty()) volume->scan = name_;
  if (!spec.title.empty()) volume->title = spec.title;
  for (const auto& [key, value] : spec.labels) volume->labels[key] = value;
  if (volume->acquired_begin.monotonic_ns == 0)
    volume->acquired_begin = volume->acquired_end = queue_.context_.clock->Now();
  volume->device = base::DeviceName(entry_->device);
  volume->bytes = BytesOf(*volume);
  volume->job = name_;
  volume->job_kind = entry_->status.kind;
  volume->session = spec.session;
  volume->job_orphan = spec.orphan;
  volume->ttl_seconds = spec.ttl_seconds;
  volume->ttl_warning_seconds = std::min(60.0, spec.ttl_seconds / 2);
  volume->job_parameters = entry_->work->Parameters();
  volume->reason.clear();
  volume->last_error.clear();
  volume->has_commit = false;
  volume->held_seconds = 0;
  made_[index].volume = *volume;
  return absl::OkStatus();
}

absl::StatusOr<void*> JobQueue::Running::Result(size_t index, model::VolumeStatus volume) {
  OCTAVO_RETURN_IF_ERROR(Describe(index, &volume));
  queue_.context_.volumes->Add(volume, made_[index].slot, entry_->device);
  MutexLock lock(queue_.mutex_);
  entry_->status.volumes.push_back(volume.name);
  ++entry_->status.event_count;
  return made_[index].slot->volume.data();
}

absl::Status JobQueue::Running::BeginStored(size_t index, model::VolumeStatus volume) {
  if (queue_.context_.spiller == nullptr)
    return absl::InternalError("this engine stores no results");
  OCTAVO_RETURN_IF_ERROR(Describe(index, &volume));
  made_[index].volume.tier = model::Tier::kDisk;
  OCTAVO_ASSIGN_OR_RETURN(made_[index].storing,
                          queue_.context_.spiller->BeginStoring(made_[index].volume));
  return absl::OkStatus();
}

absl::Status JobQueue::Running::Store(size_t index, const void* data, int64_t bytes) {
  if (index >= made_.size() || made_[index].storing == nullptr)
    return absl::InternalError(absl::StrCat("result ", index, " is not stored"));
  const auto pool = queue_.context_.devices.frames(entry_->device);
  const int64_t piece = std::min(bytes, kStoredPiece);
  const auto memory = pool->Get(piece);
  if (memory == nullptr) {
    return WithInfo(
        absl::ResourceExhaustedError("no page-locked memory left to store the result through"),
        {.reason = Reason::kNoStaging,
         .field = "",
         .numbers = {{"wanted", absl::StrCat(piece)}, {"retryable", "true"}}});
  }
  for (int64_t at = 0; at < bytes; at += piece) {
    const int64_t count = std::min(piece, bytes - at);
    OCTAVO_RETURN_IF_ERROR(
        device_.CopyToHost(stream_, memory.get(), static_cast<const char*>(data) + at, count));
    OCTAVO_RETURN_IF_ERROR(stream_.Synchronize());
    OCTAVO_RETURN_IF_ERROR(made_[index].storing->Append(memory.get(), count));
  }
  return absl::OkStatus();
}

void JobQueue::Running::SetDisplay(size_t index, double lo, double hi) {
  if (index >= made_.size()) return;
  made_[index].volume.display_lo = lo;
  made_[index].volume.display_hi = hi;
}

void JobQueue::Running::SetClipped(size_t index, int64_t below, int64_t above) {
  if (index >= made_.size()) return;
  made_[index].volume.clipped_below = below;
  made_[index].volume.clipped_above = above;
}

void* JobQueue::Running::ResultMip(size_t index, bool made) {
  if (index >= made_.size()) return nullptr;
  made_[index].has_mip = made;
  return made_[index].slot->mip.data();
}

absl::Status JobQueue::Running::Finish() {
  OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer words,
                          device_.AllocatePinned(8 * std::max<int64_t>(1, std::ssize(made_))));
  for (size_t i = 0; i < made_.size(); ++i) {
    Made& made = made_[i];
    if (made.volume.name.empty() || made.storing != nullptr) continue;
    OCTAVO_RETURN_IF_ERROR(device_.Digest(stream_, made.slot->volume.data(), made.volume.bytes,
                                          made.slot->digest.as<uint64_t>()));
    OCTAVO_RETURN_IF_ERROR(
        device_.CopyToHost(stream_, words.as<uint64_t>() + i, made.slot->digest.data(), 8));
    if (made.slot->mip && !made.has_mip) {
      const auto& s = made.volume.shape;
      const VolumeView view{.data = made.slot->volume.data(),
                            .dtype = made.volume.dtype,
                            .shape = {s[0], s[1], s[2]}};
      const auto z = static_cast<Axis>(publish::PositionOf(made.volume, model::FrameAxis::kZ));
      OCTAVO_RETURN_IF_ERROR(
          Mip(stream_, device_, view, z, 0, s[0], /*accumulate=*/false, made.slot->mip.data()));
    }
  }
  OCTAVO_RETURN_IF_ERROR(stream_.Synchronize());
  {
    MutexLock lock(queue_.mutex_);
    for (Made& made : made_) made.volume.job_warnings = entry_->status.warnings;
  }
  for (size_t i = 0; i < made_.size(); ++i) {
    if (made_[i].storing == nullptr) {
      made_[i].volume.digest = absl::StrFormat("sum64:%016x", words.as<uint64_t>()[i]);
    } else {
      OCTAVO_ASSIGN_OR_RETURN(made_[i].stored, made_[i].storing->Finish(&made_[i].volume));
    }
  }
  return absl::OkStatus();
}

void JobQueue::Running::Close(bool held, const absl::Status& status) {
  for (Made& made : made_) {
    if (made.volume.name.empty()) continue;
    if (made.storing != nullptr) {
      if (held) {
        queue_.context_.volumes->AddStored(made.volume, std::move(made.stored));
        {
          // set the name only now, so that a reader of the name finds the volume
          MutexLock lock(queue_.mutex_);
          entry_->status.volumes.push_back(made.volume.name);
          ++entry_->status.event_count;
        }
        PublishCuts(made);
      } else if (made.stored != nullptr) {
        made.stored->Remove();
      }
      continue;
    }
    if (held) {
      queue_.context_.volumes->Seal(made.volume, /*kept=*/true);
      PublishCuts(made);
    } else {
      queue_.context_.volumes->Fail(
          made.volume.name, status.ok() ? "the job was cancelled" : std::string(status.message()));
    }
  }
  made_.clear();
}

// -- previews

bool JobQueue::Running::PreviewDue() {
  const int64_t now = queue_.context_.clock->Now().monotonic_ns;
  if (preview_ns_ != 0 && now - preview_ns_ < kPreviewNs) return false;
  const auto wanted = Wanted();
  return std::any_of(wanted.begin(), wanted.end(), [](const auto& w) { return w.previews; });
}

absl::Status JobQueue::Running::Publish(const Plane& plane) {
  const auto& context = queue_.context_;
  const int64_t bytes = plane.rows * plane.columns * SizeOf(plane.dtype);
  preview_ns_ = context.clock->Now().monotonic_ns;
  const auto memory =
      context.devices.frames(entry_->device)->Get(bytes, memory::FramePool::Use::kFrame);
  if (memory == nullptr) {
    context.publisher->Lost(name_, plane.key);
    return absl::OkStatus();
  }
  OCTAVO_RETURN_IF_ERROR(device_.CopyToHost(stream_, memory.get(), plane.data, bytes));
  OCTAVO_RETURN_IF_ERROR(stream_.Synchronize());
  model::Frame frame;
  frame.scan = name_;
  frame.product = plane.key.product;
  frame.axis = plane.key.axis;
  frame.acquired = context.clock->Now();
  frame.shape = {plane.rows, plane.columns};
  frame.axes = {plane.row_axis, plane.column_axis};
  frame.spacing_um = {plane.row_spacing_um, plane.column_spacing_um};
  frame.dtype = plane.dtype;
  frame.display_lo = plane.display_lo;
  frame.display_hi = plane.display_hi;
  frame.complete = false;
  frame.payload = {.owner = memory, .data = memory.get(), .size = bytes};
  context.publisher->Publish(plane.key, std::move(frame));
  return absl::OkStatus();
}

// The MIP over z of the results, and the planes with subscribers.
void JobQueue::Running::PublishCuts(const Made& made) {
  const auto& context = queue_.context_;
  const model::VolumeStatus& volume = made.volume;
  std::vector<publish::TopicKey> keys;
  if (made.slot->mip) keys.push_back({.product = model::Product::kMip});
  for (const auto& wanted : Wanted()) {
    if (wanted.key.product == model::Product::kBscan && made.slot->volume)
      keys.push_back(wanted.key);
  }
  for (const publish::TopicKey& key : keys) {
    const bool mip = key.product == model::Product::kMip;
    std::optional<model::Frame> frame = publish::PlaneFrame(name_, volume, key);
    if (!frame.has_value()) continue;
    const int64_t bytes = publish::BytesOf(*frame);
    const auto memory =
        context.devices.frames(entry_->device)->Get(bytes, memory::FramePool::Use::kFrame);
    absl::Status status = memory == nullptr ? absl::ResourceExhaustedError("no page-locked memory")
                                            : absl::OkStatus();
    if (status.ok() && mip)
      status = device_.CopyToHost(stream_, memory.get(), made.slot->mip.data(), bytes);
    if (status.ok() && !mip) {
      status = device_.CopyBoxToHost(stream_, memory.get(), made.slot->volume.data(), volume.shape,
                                     SizeOf(volume.dtype), publish::PlaneBox(volume, *frame));
    }
    if (status.ok()) status = stream_.Synchronize();
    if (!status.ok()) {
      context.publisher->Lost(name_, key);
      continue;
    }
    frame->payload = {.owner = memory, .data = memory.get(), .size = bytes};
    context.publisher->Publish(key, *std::move(frame));
  }
}

}  // namespace octavo::job

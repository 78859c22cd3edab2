#include "server/volume_import/import_job.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "gpu/base/status.h"
#include "gpu/device/alignment.h"
#include "server/buffer/buffer_store.h"
#include "server/memory/device_set.h"
#include "server/memory/ledger.h"
#include "server/source/push_projections.h"
#include "server/volume_import/direct_filler.h"
#include "server/volume_import/import_source.h"
#include "server/volume_import/imported_volume.h"
#include "server/volume_import/volume_filler.h"

namespace octavo::volume_import {
namespace {

constexpr std::chrono::milliseconds kMemoryPoll(50);
constexpr double kNoNorm = std::numeric_limits<double>::quiet_NaN();

/// The types that gpu/array/project.h projects.
bool HasMip(DType dtype) {
  return dtype == DType::kU8 || dtype == DType::kI8 || dtype == DType::kU16 ||
         dtype == DType::kF16 || dtype == DType::kF32 || dtype == DType::kC64;
}

model::FrameAxis FrameAxisOf(const std::string& axis) {
  return axis == "x"   ? model::FrameAxis::kX
         : axis == "z" ? model::FrameAxis::kZ
                       : model::FrameAxis::kY;
}

/// The buffer that an import makes instead of a volume.
struct WantedBuffer {
  model::BufferSpec spec;
  model::Caller owner;
};

class ImportWork final : public job::JobWork {
 public:
  ImportWork(model::ImportSpec spec, const job::JobEnvironment& environment, ImportSource source,
             std::unique_ptr<storage::InputVolume> input,
             std::unique_ptr<const WantedBuffer> buffer, std::unique_ptr<DirectFiller> direct)
      : spec_(std::move(spec)),
        source_(std::move(source)),
        environment_(environment),
        input_(std::move(input)),
        direct_(std::move(direct)),
        bytes_(Meta().shape[0] * Meta().shape[1] * Meta().shape[2] * input_->type().bytes),
        buffer_(std::move(buffer)) {}

  job::JobKind kind() const override { return job::JobKind::kImport; }
  std::string Parameters() const override { return spec_.json; }

  absl::StatusOr<job::JobPlan> Plan(Device& device) const override {
    job::JobPlan plan;
    plan.workspace_bytes = Meta().digest.empty() ? 0 : kMemoryAlignment;
    plan.text = Text();
    plan.warnings = Warnings();
    if (buffer_ != nullptr) {
      plan.buffer_bytes = buffer::BufferReplica::ChargedBytes(bytes_);
      return WithSlabs(device, std::move(plan));
    }
    job::JobPlan::Result& result = plan.results.emplace_back();
    result.bytes = bytes_;
    if (HasMip(Meta().dtype)) {
      const int64_t depth = Meta().shape[storage::AxisAt(Meta(), 'z')];
      result.mip_bytes = bytes_ / SizeOf(Meta().dtype) / depth * SizeOf(ProjectionOf(Meta().dtype));
      for (int i = 0; i < 3; ++i) plan.view_extents[i] = Extent("yxz"[i]);
      plan.bscan_axis = FrameAxisOf(Meta().axes[0]);
    }
    return WithSlabs(device, std::move(plan));
  }

  /// Host memory while it reads.
  int64_t HostBytes() const {
    return input_->read_memory_bytes() + VolumeFiller::HostBytes(Meta());
  }
  /// Refuses, before it is queued, what could never be read.
  absl::Status CheckHostMemory() const {
    if (environment_.projection_memory == nullptr ||
        HostBytes() <= environment_.projection_memory->limit_bytes())
      return absl::OkStatus();
    const int64_t limit = environment_.projection_memory->limit_bytes();
    return WithInfo(absl::ResourceExhaustedError(
                        absl::StrCat(source_.field, ": reading it takes ", HostBytes(),
                                     " bytes of host memory; the server has ", limit, " for such")),
                    {.reason = Reason::kHostMemory,
                     .field = source_.field,
                     .numbers = {{"wanted", absl::StrCat(HostBytes())},
                                 {"limit", absl::StrCat(limit)},
                                 {"retryable", "false"}}});
  }

  absl::Status Run(job::JobRun& run, std::stop_token stop) override {
    OCTAVO_RETURN_IF_ERROR(source_.CheckUnchanged());
    OCTAVO_ASSIGN_OR_RETURN(void* const out, Memory(run));
    run.Stage(job::JobStage::kImport, Meta().shape[0], 0, 1);
    std::optional<std::pair<double, double>> display;
    // Disks are slow: other jobs use the device meanwhile.
    const absl::Status read =
        run.WithoutDevice([&] { return Read(run, stop, out, &display); }, stop);
    if (!read.ok() && !absl::IsCancelled(read)) {
      // A file that another program writes seems damaged.
      OCTAVO_RETURN_IF_ERROR(source_.CheckUnchanged());
    }
    OCTAVO_RETURN_IF_ERROR(read);
    OCTAVO_RETURN_IF_ERROR(source_.CheckUnchanged());
    if (!Meta().digest.empty()) OCTAVO_RETURN_IF_ERROR(CheckDigest(run, out));
    TellLosses(run);
    if (buffer_ != nullptr) return absl::OkStatus();
    if (!input_->info().octavo.has_value() && display.has_value())
      run.SetDisplay(0, display->first, display->second);
    return absl::OkStatus();
  }

  std::string PublishBuffer() override {
    return draft_ == nullptr ? "" : environment_.buffers->Publish(*draft_);
  }

 private:
  /// That is filled.
  absl::StatusOr<void*> Memory(job::JobRun& run) {
    if (buffer_ == nullptr)
      return run.Result(0, DescribeImported(*input_, run.name(), source_.name, Parameters()));
    OCTAVO_RETURN_IF_ERROR(run.Buffer([&](int64_t charge) -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(draft_, environment_.buffers->Draft(buffer_->spec, buffer_->owner,
                                                                  run.device_index(), charge));
      return absl::OkStatus();
    }));
    return draft_->data();
  }

  /// With the device memory through which the bytes go straight to the device. What only fits
  /// without that is put together on the host.
  absl::StatusOr<job::JobPlan> WithSlabs(Device& device, job::JobPlan plan) const {
    if (direct_ == nullptr) return plan;
    OCTAVO_ASSIGN_OR_RETURN(const int64_t slabs, direct_->DeviceBytes(device));
    const int64_t budget = environment_.ledger == nullptr
                               ? std::numeric_limits<int64_t>::max()
                               : environment_.ledger->UseOf(device.info().index).budget;
    if (plan.bytes() + slabs <= budget) plan.workspace_bytes += slabs;
    return plan;
  }

  void TellLosses(job::JobRun& run) const {
    const storage::ClippedElements& clipped = input_->clipped();
    if (buffer_ == nullptr) run.SetClipped(0, clipped.below, clipped.above);
    for (const std::string& loss : input_->Losses()) run.Warn(loss);
  }

  const storage::VolumeMeta& Meta() const { return input_->meta(); }
  int64_t Extent(char axis) const { return Meta().shape[storage::AxisAt(Meta(), axis)]; }

  std::string Text() const {
    const storage::VolumeInputInfo& info = input_->info();
    std::vector<std::string> stored;
    for (const storage::InputAxis& axis : info.axes)
      stored.push_back(absl::StrCat(axis.name.empty() ? "?" : axis.name, " ", axis.extent));
    std::vector<std::string> made;
    for (int d = 0; d < 3; ++d) {
      made.push_back(absl::StrCat(Meta().axes[d], " ", Meta().shape[d],
                                  buffer_ != nullptr ? ""
                                  : Meta().spacing_assumed[d]
                                      ? " of unknown spacing"
                                      : absl::StrFormat(" of %.9g um", Meta().spacing_um[d])));
    }
    return absl::StrCat(
        "read ", info.kind, ": ", absl::StrJoin(stored, ", "), ", ", info.type.Name(),
        info.octavo.has_value() ? absl::StrCat("; committed from ", info.octavo->volume_name) : "",
        buffer_ == nullptr ? "\nvolume: " : "\nbuffer: ", absl::StrJoin(made, ", "), ", ",
        input_->type().Name(), ", ", bytes_, " bytes",
        Meta().digest.empty() ? "" : absl::StrCat("; its digest must be ", Meta().digest),
        "\nhost memory while it is read: ", HostBytes() >> 20, " MiB\n");
  }

  std::vector<std::string> Warnings() const {
    std::vector<std::string> warnings;
    for (const auto* const notes : {&input_->info().notes, &input_->doubts()}) {
      for (const std::string& note : *notes) warnings.push_back(CleanText(note, kMostWarning));
    }
    for (int d = 0; buffer_ == nullptr && d < 3; ++d) {
      if (Meta().spacing_assumed[d] && !input_->info().octavo.has_value())
        warnings.push_back(absl::StrCat("The spacing along ", Meta().axes[d],
                                        " is not known: lengths along it count voxels."));
    }
    return warnings;
  }

  /// Waits until other imports and pushes leave room.
  absl::StatusOr<std::shared_ptr<void>> ReserveHostMemory(job::JobRun& run,
                                                          const std::stop_token& stop) const {
    if (environment_.projection_memory == nullptr) return std::shared_ptr<void>();
    for (bool told = false;;) {
      if (auto reserved = environment_.projection_memory->Reserve(HostBytes())) return reserved;
      if (!std::exchange(told, true))
        run.Log(absl::StrCat("waits for ", HostBytes() >> 20, " MiB of host memory"));
      if (stop.stop_requested()) return absl::CancelledError("cancelled");
      std::this_thread::sleep_for(kMemoryPoll);
    }
  }

  absl::Status Read(job::JobRun& run, const std::stop_token& stop, void* out,
                    std::optional<std::pair<double, double>>* display) {
    OCTAVO_ASSIGN_OR_RETURN(const std::shared_ptr<void> reserved, ReserveHostMemory(run, stop));
    input_->SetStop(stop);
    // Without a digest the files have their own checksums.
    if (Meta().digest.empty() && spec_.volume.start.empty() && spec_.volume.count.empty())
      OCTAVO_RETURN_IF_ERROR(input_->Verify());
    const auto on_planes = [&](int64_t done) -> absl::Status {
      if (stop.stop_requested()) return absl::CancelledError("cancelled");
      if (done > 0) run.Step(done, kNoNorm);
      return absl::OkStatus();
    };
    if (direct_ != nullptr) {
      OCTAVO_ASSIGN_OR_RETURN(const bool filled, FillDirect(run, out, on_planes));
      *display = direct_->display();
      if (filled) return absl::OkStatus();
    }
    OCTAVO_ASSIGN_OR_RETURN(const auto filler, VolumeFiller::Create(run.device(), Meta()));
    OCTAVO_RETURN_IF_ERROR(filler->Fill(*input_, run.stream(), out, on_planes));
    *display = filler->display();
    return absl::OkStatus();
  }

  /// Whether it could be done.
  absl::StatusOr<bool> FillDirect(job::JobRun& run, void* out,
                                  const std::function<absl::Status(int64_t)>& on_planes) const {
    OCTAVO_ASSIGN_OR_RETURN(const int64_t slabs, direct_->DeviceBytes(run.device()));
    if (const absl::Status charged = run.Charge(slabs); !charged.ok()) {
      run.Log("read in whole planes: the device has no memory for more");
      return false;
    }
    const absl::Cleanup discharge = [&] { run.Discharge(slabs); };
    const memory::PartOfPool frames(environment_.devices->frames(run.device_index()),
                                    memory::FramePool::Use::kClient);
    std::string words;
    OCTAVO_ASSIGN_OR_RETURN(
        const bool filled,
        direct_->Fill({.device = &run.device(),
                       .lend = [frames](int64_t bytes) { return frames.Lend(bytes); },
                       .most_lent = frames.most(),
                       .stream = run.stream(),
                       .out = out,
                       .path = source_.path},
                      on_planes, &words));
    run.Log(words);
    return filled;
  }

  absl::Status CheckDigest(job::JobRun& run, const void* out) const {
    OCTAVO_ASSIGN_OR_RETURN(void* const word, run.Allocate(sizeof(uint64_t)));
    OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer host, run.device().AllocatePinned(sizeof(uint64_t)));
    const absl::Status enqueued = [&]() -> absl::Status {
      OCTAVO_RETURN_IF_ERROR(run.device().Digest(
          run.stream(), DeviceSpan<const uint8_t>(static_cast<const uint8_t*>(out), bytes_),
          DeviceSpan<uint64_t>(static_cast<uint64_t*>(word), 1)));
      return run.device().CopyToHost(run.stream(), host.data(), word, sizeof(uint64_t));
    }();
    const absl::Status passed = run.stream().Synchronize();
    OCTAVO_RETURN_IF_ERROR(enqueued);
    OCTAVO_RETURN_IF_ERROR(passed);
    const std::string digest = absl::StrFormat("sum64:%016x", *host.as<uint64_t>());
    if (digest == Meta().digest) return absl::OkStatus();
    return WithInfo(
        absl::DataLossError(absl::StrCat(source_.field, ": ", source_.name,
                                         " is damaged: the digest of its voxels is ", digest,
                                         "; the volume was committed with ", Meta().digest)),
        {.reason = Reason::kDigest,
         .field = source_.field,
         .numbers = {{"sealed", Meta().digest}, {"read", digest}}});
  }

  const model::ImportSpec spec_;
  const ImportSource source_;  // without its input
  const job::JobEnvironment environment_;
  const std::unique_ptr<storage::InputVolume> input_;
  const std::unique_ptr<DirectFiller> direct_;  // null: planes are put together on the host
  const int64_t bytes_;
  const std::unique_ptr<const WantedBuffer> buffer_;  // null: a volume is wanted
  std::unique_ptr<buffer::BufferDraft> draft_;        // while it is filled
};

/// The buffer that a job with `spec` is to make. The errors of BufferStore::Check, at the fields of
/// an import.
absl::StatusOr<std::unique_ptr<const WantedBuffer>> BufferOf(
    const model::JobSpec& job, const model::ImportSpec& spec, const storage::InputVolume& input,
    const job::JobEnvironment& environment) {
  if (!spec.volume.array.has_value()) return std::unique_ptr<const WantedBuffer>();
  if (environment.buffers == nullptr)
    return InvalidField("volume_import.buffer", "is given, but this engine has no buffers");
  if (!spec.volume.value_kind.empty())
    return InvalidField("volume_import.value",
                        "or quantity is given for a buffer, which has numbers alone");
  if (!job.title.empty())
    return InvalidField("title", "is given for a buffer, which has none; its labels can say it");
  if (job.orphan != model::Orphan::kDefault && job.orphan != model::Orphan::kKeep &&
      job.orphan != model::Orphan::kDiscard)
    return InvalidField("orphan",
                        "is of volumes; allowed for a buffer KEEP, or DISCARD, which "
                        "cancels the import with its session");
  auto out = std::make_unique<WantedBuffer>();
  // The reader has refused other types (ChooseArrayType).
  out->spec.scalar = storage::ElementScalar(input.type()).value_or(Scalar::kC128);
  const int64_t* const shape = input.meta().shape;
  out->spec.shape.assign(shape, shape + 3);
  out->spec.labels = job.labels;
  out->spec.ttl_seconds = job.ttl_seconds;
  out->spec.is_private = spec.is_private;
  out->owner = job.caller;
  const absl::Status checked = environment.buffers->Check(out->spec, out->owner).status();
  if (checked.ok()) return std::unique_ptr<const WantedBuffer>(std::move(out));
  ErrorInfo info = InfoOf(checked);
  // A box of the file may fit.
  const std::string field = info.field == "shape"        ? "volume_import.count"
                            : info.field == "is_private" ? "volume_import.buffer.is_private"
                                                         : info.field;
  std::string text(checked.message());
  if (absl::StartsWith(text, info.field + ":")) text.replace(0, info.field.size(), field);
  info.field = field;
  return WithInfo(absl::Status(checked.code(), text), info);
}

}  // namespace

absl::StatusOr<std::unique_ptr<job::JobWork>> MakeImportWork(
    const model::JobSpec& job, const model::ImportSpec& spec,
    const job::JobEnvironment& environment) {
  OCTAVO_ASSIGN_OR_RETURN(ImportSource source, ImportSource::Open(spec, environment));
  if (source.input->info().octavo.has_value() && !spec.volume.value_kind.empty())
    return InvalidField(
        "volume_import.value",
        "or quantity is given for a file that a commit wrote, which says it itself");
  if (source.input->info().octavo.has_value() && !spec.volume.axes.empty())
    return InvalidField(
        "volume_import.axes",
        "is given for a file that a commit wrote, which says them itself; `order` changes theirs");
  storage::InputVolumeOptions how = spec.volume;
  how.field_prefix = kFieldPrefix;
  auto volume = storage::InputVolume::Make(std::move(source.input), how);
  if (!volume.ok()) return source.At(volume.status());
  OCTAVO_ASSIGN_OR_RETURN(auto buffer, BufferOf(job, spec, **volume, environment));
  std::unique_ptr<DirectFiller> direct;
  if (environment.devices != nullptr) {
    auto opened = DirectFiller::Create(**volume, environment.reads);
    if (!opened.ok()) return source.At(opened.status());
    direct = *std::move(opened);
  }
  auto work = std::make_unique<ImportWork>(spec, environment, std::move(source), *std::move(volume),
                                           std::move(buffer), std::move(direct));
  OCTAVO_RETURN_IF_ERROR(work->CheckHostMemory());
  return std::unique_ptr<job::JobWork>(std::move(work));
}

}  // namespace octavo::volume_import

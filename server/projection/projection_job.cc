#include "server/projection/projection_job.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "server/memory/ledger.h"
#include "server/projection/geometry.h"
#include "server/projection/input_slices.h"
#include "server/projection/projected_volume.h"
#include "server/projection/run.h"
#include "server/volume/spiller.h"

namespace octavo::projection {
namespace {

constexpr int64_t kMostSlices = 64;  // slices of a batch: more bring no gain
constexpr int64_t kMipPadding = 4096;

class ProjectionWork final : public job::JobWork {
 public:
  ProjectionWork(model::ProjectionSpec spec, const job::JobEnvironment& environment,
                 bool any_device, std::shared_ptr<const InputSlices> input,
                 ProjectionGeometry geometry)
      : spec_(std::move(spec)),
        environment_(environment),
        any_device_(any_device),
        input_(std::move(input)),
        geometry_(std::move(geometry)) {}

  job::JobKind kind() const override { return job::JobKind::kProjection; }
  std::string Parameters() const override { return spec_.json; }
  // The device of its data spares the way through host memory, but another one may be asked for.
  int home_device() const override { return any_device_ ? input_->device() : -1; }

  std::optional<model::VolumeStatus> Expected() const override {
    return DescribeResult(spec_, geometry_, input_->volume());
  }

  absl::StatusOr<job::JobPlan> Plan(Device& device) const override {
    OCTAVO_ASSIGN_OR_RETURN(const Chosen chosen, Choose(device));
    const ProjectionMemory& m = chosen.memory;
    const int64_t batch = m.slices_per_batch, batches = (geometry_.slices() + batch - 1) / batch;
    const auto extents = geometry_.result_extents();
    job::JobPlan plan;
    plan.results.push_back(
        {.bytes = ResultBytes(), .mip_bytes = MipBytes(), .on_disk = chosen.on_disk});
    plan.workspace_bytes = m.workspace();
    plan.warnings = geometry_.Warnings();
    plan.view_extents[0] = extents[0];
    plan.view_extents[1] = extents[1];
    plan.view_extents[2] = geometry_.slices();
    plan.bscan_axis = model::FrameAxis::kZ;
    plan.text = absl::StrCat(
        geometry_.Text(), "batches: ", batches, " of ", batch, " slices, result f32 ",
        chosen.on_disk ? "on disk" : "in device memory", "\nmemory of a batch: ", m.projector >> 20,
        " MiB projector, ",
        m.input == 0 ? "input in place\n" : absl::StrCat(m.input >> 20, " MiB input\n"));
    return plan;
  }

  absl::Status Run(job::JobRun& run, std::stop_token stop) override {
    OCTAVO_ASSIGN_OR_RETURN(const Chosen chosen, ChosenBefore(run.device()));
    return RunProjection(run, stop,
                         {.spec = &spec_,
                          .geometry = &geometry_,
                          .input = input_.get(),
                          .memory = chosen.memory,
                          .on_disk = chosen.on_disk});
  }

 private:
  struct Chosen {
    ProjectionMemory memory;
    bool on_disk = false;
  };

  int64_t ResultBytes() const { return geometry_.slices() * geometry_.result_elements() * 4; }
  int64_t MipBytes() const { return geometry_.result_elements() * 4; }

  absl::StatusOr<ProjectionMemory> MemoryFor(Device& device, int64_t batch, bool on_disk) const {
    ProjectionMemory memory{.slices_per_batch = batch};
    const bool in_place = input_->MemoryOn(device.info().index).data() != nullptr;
    memory.input = in_place ? 0 : batch * geometry_.input_elements() * 4;
    OCTAVO_ASSIGN_OR_RETURN(memory.projector, geometry_.ProjectorBytes(batch, device));
    memory.result = on_disk ? batch * geometry_.result_elements() * 4 : 0;
    return memory;
  }

  // Keep the plan's choice: the free memory may have changed since.
  absl::StatusOr<Chosen> ChosenBefore(Device& device) const {
    MutexLock lock(mutex_);
    const auto it = chosen_.find(device.info().index);
    if (it == chosen_.end()) return absl::InternalError("the job was not planned for this device");
    return it->second;
  }

  // Batches of the best size that fits into the free memory; if not even one slice fits now, one
  // that will fit when other memory is freed. A result that never fits beside it is stored on disk.
  absl::StatusOr<Chosen> Choose(Device& device) const {
    const int index = device.info().index;
    constexpr int64_t kAny = int64_t{1} << 60;
    const auto use = environment_.ledger == nullptr ? memory::Ledger::Use{.budget = kAny}
                                                    : environment_.ledger->UseOf(index);
    Chosen chosen;
    for (const bool on_disk : {false, true}) {
      if (spec_.place == (on_disk ? model::ResultPlace::kDevice : model::ResultPlace::kDisk))
        continue;
      chosen.on_disk = on_disk;
      const int64_t beside = MipBytes() + kMipPadding + (on_disk ? 0 : ResultBytes());
      int64_t batch = std::min(geometry_.slices(),
                               spec_.slices_per_batch > 0 ? spec_.slices_per_batch : kMostSlices);
      for (;;) {
        OCTAVO_ASSIGN_OR_RETURN(chosen.memory, MemoryFor(device, batch, on_disk));
        if (batch == 1 || spec_.slices_per_batch > 0 ||
            chosen.memory.workspace() + beside <= use.free())
          break;
        batch = batch > 8 ? batch / 8 * 4 : batch / 2;
      }
      if (chosen.memory.workspace() + beside <= use.budget || on_disk ||
          spec_.place == model::ResultPlace::kDevice || environment_.spiller == nullptr ||
          environment_.spiller->FreeOf(model::Tier::kDisk) < ResultBytes())
        break;
    }
    MutexLock lock(mutex_);
    return chosen_[index] = chosen;
  }

  const model::ProjectionSpec spec_;
  const job::JobEnvironment environment_;
  const bool any_device_;
  const std::shared_ptr<const InputSlices> input_;
  const ProjectionGeometry geometry_;
  mutable Mutex mutex_;
  mutable std::map<int, Chosen> chosen_ ABSL_GUARDED_BY(mutex_);  // by device
};

}  // namespace

absl::StatusOr<std::unique_ptr<job::JobWork>> MakeProjectionWork(
    const model::JobSpec& job, const model::ProjectionSpec& spec,
    const job::JobEnvironment& environment) {
  OCTAVO_ASSIGN_OR_RETURN(auto input, InputSlices::Open(spec.input, environment));
  OCTAVO_ASSIGN_OR_RETURN(ProjectionGeometry geometry,
                          ProjectionGeometry::Make(spec, input->shape()));
  const bool any_device = job.device.empty() || job.device == "auto";
  return std::make_unique<ProjectionWork>(spec, environment, any_device, std::move(input),
                                          std::move(geometry));
}

}  // namespace octavo::projection

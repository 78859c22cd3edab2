#include "server/projection/run.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "gpu/tomography/projector.h"
#include "server/base/errors.h"
#include "server/projection/projected_volume.h"

namespace octavo::projection {
namespace {

/// Conducts one run: passes batch after batch from the input through the projector to the result.
class ProjectionRunner {
 public:
  ProjectionRunner(job::JobRun& run, const std::stop_token& stop, const ProjectionTask& task)
      : run_(run), stop_(stop), task_(task), result_(run, *task.geometry) {}

  absl::Status Run() {
    const ProjectionGeometry& geometry = *task_.geometry;
    const int64_t slices = geometry.slices(), batch = task_.memory.slices_per_batch;
    run_.Stage(job::JobStage::kProject, slices, 0, 1);
    held_ = task_.input->MemoryOn(run_.device_index());
    if (held_.data() == nullptr) {
      OCTAVO_ASSIGN_OR_RETURN(void* const memory, run_.Allocate(task_.memory.input));
      read_ = {static_cast<float*>(memory), batch * geometry.input_elements()};
    }
    OCTAVO_RETURN_IF_ERROR(run_.Charge(task_.memory.projector));
    OCTAVO_RETURN_IF_ERROR(result_.Begin(
        DescribeResult(*task_.spec, geometry, task_.input->volume()), batch, task_.on_disk));
    const absl::Cleanup over = [&] { (void)run_.stream().Synchronize(); };  // before the projector
    for (int64_t first = 0; first < slices; first += batch) {
      const int64_t count = std::min(batch, slices - first);
      OCTAVO_RETURN_IF_ERROR(MakeBatch(first, count));
      run_.Step(first + count, std::numeric_limits<double>::quiet_NaN());
    }
    return run_.stream().Synchronize();
  }

 private:
  absl::Status MakeBatch(int64_t first, int64_t count) {
    if (stop_.stop_requested()) return absl::CancelledError("cancelled");
    OCTAVO_RETURN_IF_ERROR(PlanFor(first, count));
    OCTAVO_ASSIGN_OR_RETURN(const DeviceSpan<const float> input, InputOf(first, count));
    const DeviceSpan<float> made = result_.MemoryOf(first, count);
    const auto goes_on = [&] { return !stop_.stop_requested(); };
    absl::Status status = task_.spec->adjoint
                              ? projector_->BackProject(run_.stream(), count, input, made, goes_on)
                              : projector_->Project(run_.stream(), count, input, made, goes_on);
    if (stop_.stop_requested()) return absl::CancelledError("cancelled");
    if (absl::IsInvalidArgument(status)) {
      ErrorInfo info = InfoOf(status);
      info.field = "projection.input";
      return WithInfo(
          absl::InvalidArgumentError(absl::StrCat("projection.input: slices ", first, " to ",
                                                  first + count - 1, ": ", status.message())),
          info);
    }
    OCTAVO_RETURN_IF_ERROR(status);
    return result_.Add(first, count);
  }

  // With an axis for each slice, a batch has a plan of its own.
  absl::Status PlanFor(int64_t first, int64_t count) {
    const bool shared = task_.geometry->shared_axis();
    if (projector_ != nullptr && shared) return absl::OkStatus();
    projector_.reset();  // the stream has passed its work
    auto made = Projector::Create(
        task_.geometry->ConfigFor(first, shared ? task_.memory.slices_per_batch : count),
        run_.device());
    if (!made.ok()) return base::AtField("projection.", made.status());
    projector_ = *std::move(made);
    return absl::OkStatus();
  }

  absl::StatusOr<DeviceSpan<const float>> InputOf(int64_t first, int64_t count) {
    const int64_t slice = task_.geometry->input_elements();
    if (held_.data() != nullptr) return held_.From(first * slice).First(count * slice);
    OCTAVO_RETURN_IF_ERROR(task_.input->Read(run_, stop_, first, count, read_));
    return DeviceSpan<const float>(read_.First(count * slice));
  }

  job::JobRun& run_;
  const std::stop_token stop_;
  const ProjectionTask& task_;
  ProjectedVolume result_;
  DeviceSpan<const float> held_;  // the whole input, if the device has it
  DeviceSpan<float> read_;        // else memory for a batch of it
  std::unique_ptr<Projector> projector_;
};

}  // namespace

absl::Status RunProjection(job::JobRun& run, std::stop_token stop, const ProjectionTask& task) {
  return ProjectionRunner(run, stop, task).Run();
}

}  // namespace octavo::projection

#include "server/derive/derivation_run.h"

#include <utility>
#include <variant>

#include "absl/strings/str_format.h"

#include "gpu/array/gather_ascans.h"
#include "gpu/array/motion_contrast.h"
#include "gpu/base/status.h"
#include "server/processing/display_scale.h"

namespace octavo::derive {

absl::Status DerivationCancelled() {
  return WithInfo(absl::CancelledError("the derivation was cancelled; there is no new volume"),
                  {.reason = Reason::kCancelled, .field = "", .numbers = {}});
}

absl::StatusOr<std::unique_ptr<DerivationRun>> DerivationRun::Create(const DerivationPlan& plan,
                                                                     Device& device) {
  std::unique_ptr<DerivationRun> run(new DerivationRun(plan, device));
  OCTAVO_ASSIGN_OR_RETURN(run->stream_, device.NewStream(StreamPriority::kLow));
  return run;
}

absl::StatusOr<const void*> DerivationRun::Upload(const void* data, size_t bytes) {
  OCTAVO_ASSIGN_OR_RETURN(DeviceBuffer buffer, device_.Allocate(static_cast<int64_t>(bytes)));
  OCTAVO_RETURN_IF_ERROR(
      device_.CopyToDevice(stream_.ref(), buffer.data(), data, static_cast<int64_t>(bytes)));
  buffers_.push_back(std::move(buffer));
  return buffers_.back().data();
}

absl::Status DerivationRun::Run(const void* in, void* out, const model::WorkControl& control) {
  const DerivationStep& last = plan_.steps.back();
  model::WorkProgress progress{.stage = model::WorkStage::kComputing,
                               .total_bytes = plan_.result.bytes};
  int64_t done = 0;
  for (const DerivationStep& step : plan_.steps) {
    control.Report(progress);
    void* to = out;
    if (&step != &last) {
      OCTAVO_ASSIGN_OR_RETURN(DeviceBuffer between, device_.Allocate(step.out.bytes));
      buffers_.push_back(std::move(between));
      to = buffers_.back().data();
    }
    OCTAVO_RETURN_IF_ERROR(RunStep(step, in, to));
    in = to;
    progress.fraction = static_cast<double>(++done) / static_cast<double>(plan_.steps.size());
    // Steps are only enqueued: nobody could see or end them one by one without this.
    if (&step != &last && control.stop.stop_possible())
      OCTAVO_RETURN_IF_ERROR(stream_.ref().Synchronize());
    if (control.stop.stop_requested()) return DerivationCancelled();
  }
  return stream_.ref().Synchronize();
}

absl::Status DerivationRun::RunStep(const DerivationStep& step, const void* in, void* out) {
  if (step.chain != nullptr) return OperateOnArray(step, in, out);
  if (std::holds_alternative<pattern::CartesianGrid>(step.operation))
    return Resample(step, in, out);
  return Compare(step, in,
                 {static_cast<float*>(out), step.out.bytes / static_cast<int64_t>(sizeof(float))});
}

absl::Status DerivationRun::OperateOnArray(const DerivationStep& step, const void* in, void* out) {
  OCTAVO_ASSIGN_OR_RETURN(auto run, ChainRun::Create(step.chain, device_));
  runs_.push_back(std::move(run));
  return runs_.back()->Run(stream_.ref(), in, {}, out);
}

absl::Status DerivationRun::Resample(const DerivationStep& step, const void* in, void* out) {
  OCTAVO_ASSIGN_OR_RETURN(const void* index,
                          Upload(step.taps.index.data(), step.taps.index.size() * 4));
  OCTAVO_ASSIGN_OR_RETURN(const void* weight,
                          Upload(step.taps.weight.data(), step.taps.weight.size() * 4));
  return GatherAscans(stream_.ref(), device_,
                      {.data = in,
                       .dtype = step.in.dtype,
                       .ascans = step.in.shape[0] * step.in.shape[1],
                       .depth = step.in.shape[2]},
                      {.index = static_cast<const int32_t*>(index),
                       .weight = static_cast<const float*>(weight),
                       .ascans = step.out.shape[0] * step.out.shape[1],
                       .taps = step.taps.taps},
                      out);
}

absl::Status DerivationRun::Compare(const DerivationStep& step, const void* in,
                                    DeviceSpan<float> out) {
  RepeatView view{.data = in,
                  .dtype = step.in.dtype,
                  .rows = step.in.shape[0],
                  .columns = step.in.shape[1],
                  .depth = step.in.shape[2],
                  .order = nullptr,
                  .bscans = step.pattern.bscans_per_volume,
                  .repeats = step.pattern.repeats()};
  if (!step.order.empty()) {
    OCTAVO_ASSIGN_OR_RETURN(const void* order, Upload(step.order.data(), step.order.size() * 4));
    view.order = static_cast<const int32_t*>(order);
  }
  if (const auto* angiography = std::get_if<AngiographyOperation>(&step.operation)) {
    OCTAVO_RETURN_IF_ERROR(Angiogram(stream_.ref(), device_, angiography->method, view,
                                     processing::ScaleOf(step.in), out));
  } else {
    const auto& doppler = std::get<DopplerOperation>(step.operation);
    OCTAVO_RETURN_IF_ERROR(
        doppler.between == DopplerBetween::kRepeats
            ? DopplerOverRepeats(stream_.ref(), device_, view, doppler.half_window, out)
            : DopplerOverAscans(stream_.ref(), device_, view, doppler.half_window, out));
  }
  // Integers and phases cannot show that a part of them was missing.
  for (const auto& [first, count] : step.missing) {
    OCTAVO_RETURN_IF_ERROR(device_.Fill(stream_.ref(), out.From(first * step.out.shape[2]).data(),
                                        count * step.out.shape[2] * 4, 0x7FC00000u));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> DigestOf(Device& device, const memory::VolumeSlot& slot,
                                     int64_t bytes) {
  OCTAVO_ASSIGN_OR_RETURN(PinnedBuffer word, device.AllocatePinned(8));
  OCTAVO_ASSIGN_OR_RETURN(Stream stream, device.NewStream(StreamPriority::kLow));
  OCTAVO_RETURN_IF_ERROR(device.Digest(stream.ref(), slot.volume.span<const uint8_t>().First(bytes),
                                       slot.digest.span<uint64_t>()));
  OCTAVO_RETURN_IF_ERROR(device.CopyToHost(stream.ref(), word.data(), slot.digest.data(), 8));
  OCTAVO_RETURN_IF_ERROR(stream.ref().Synchronize());
  return absl::StrFormat("sum64:%016x", *word.as<uint64_t>());
}

}  // namespace octavo::derive

#include "server/tomography/run.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/array/project.h"
#include "gpu/base/status.h"
#include "server/base/errors.h"
#include "server/model/resolved_scan.h"
#include "server/tomography/loader.h"
#include "server/tomography/projection_arrays.h"

namespace octavo::tomography {

absl::Status TomographyRunner::Run() {
  OCTAVO_ASSIGN_OR_RETURN(preview_, run_.Allocate(task_.memory.preview));
  if (task_.port != nullptr) OCTAVO_RETURN_IF_ERROR(Collect());
  for (const std::string& note : input_->info().notes) run_.Log(note);
  report_.slices_per_batch = task_.slices_per_batch;
  OCTAVO_RETURN_IF_ERROR(FindAxis());
  OCTAVO_RETURN_IF_ERROR(LookForTruncation());
  OCTAVO_RETURN_IF_ERROR(Begin());
  OCTAVO_RETURN_IF_ERROR(layout_.tried().empty() ? Batches() : TryAxes());
  if (task_.port != nullptr) OCTAVO_RETURN_IF_ERROR(TellLeftOut());
  if (report_.outliers + report_.not_finite + report_.floored > 0) {
    run_.Log(absl::StrCat("preparation: ", report_.outliers, " outliers, ", report_.not_finite,
                          " values that were not finite, ", report_.floored,
                          " transmissions below the floor"));
  }
  if (constexpr double kMany = 0.05;
      static_cast<double>(report_.floored) > kMany * static_cast<double>(transmissions_) &&
      transmissions_ > 0) {
    run_.Warn(absl::StrFormat(
        "%.0f %% of the transmissions lie below log_floor (%g) and count as that: no light passes "
        "there, or the values are no "
        "transmissions, or the flat and dark fields do not fit.",
        100 * static_cast<double>(report_.floored) / static_cast<double>(transmissions_),
        spec_.preparation.config.log_floor));
  }
  if (report_.not_finite > 0) {
    run_.Warn(absl::StrCat(
        report_.not_finite,
        " values of the input were not finite (NaN or infinite), or became so: they count as ",
        spec_.preparation.config.not_finite_value, " (preparation.not_finite_value)."));
  }
  if (report_.unlit > 0) {
    run_.Warn(absl::StrCat("The flat field is not brighter than the dark field where ",
                           report_.unlit,
                           " transmissions were made: they were divided by denominator_floor and "
                           "tell nothing. Dead pixels, or flat and dark "
                           "fields that are exchanged?"));
  }
  report_.residual_norm = squares_ < 0 ? kNone : std::sqrt(squares_);
  report_.relative_residual = first_squares_ > 0 ? std::sqrt(squares_ / first_squares_) : kNone;
  run_.Found(report_);
  return absl::OkStatus();
}

// -- the result

absl::Status TomographyRunner::Begin() {
  model::VolumeStatus volume;
  const int64_t size = layout_.image_size();
  volume.shape[0] = layout_.slices();
  volume.shape[1] = volume.shape[2] = size;
  volume.dtype = DType::kF32;
  volume.axes[0] = "z";
  volume.axes[1] = "y";
  volume.axes[2] = "x";
  volume.spacing_um[0] =
      layout_.tried().empty()
          ? PixelUm() * static_cast<double>(spec_.preparation.config.bin_rows *
                                            std::max<int64_t>(spec_.rows.step, 1))
          : spec_.try_centers->step;
  volume.spacing_um[1] = volume.spacing_um[2] = SliceSpacingUm();
  volume.spacing_assumed[0] = !DeclaredPixelUm().has_value() ||
                              !layout_.tried().empty();  // centres tried are columns apart
  volume.spacing_assumed[1] = volume.spacing_assumed[2] = !DeclaredPixelUm().has_value();
  volume.quantity = "attenuation";
  volume.complete = missing_frames_.empty();
  if (task_.port != nullptr) volume.expected_frames = task_.port->spec().frames;
  for (const auto& [first, frames] : missing_frames_) volume.missing_frames += frames;
  volume.missing_frame_ranges.assign(
      missing_frames_.begin(),
      missing_frames_.begin() + std::min<std::ptrdiff_t>(32, std::ssize(missing_frames_)));
  if (const auto* arrays = std::get_if<model::ProjectionArraysSpec>(&spec_.input);
      arrays != nullptr && absl::StartsWith(arrays->projections, "volumes/")) {
    volume.derived_from = arrays->projections;
  }
  if (task_.on_disk) {
    OCTAVO_RETURN_IF_ERROR(run_.BeginStored(0, volume));
    OCTAVO_ASSIGN_OR_RETURN(images_, run_.Allocate(task_.slices_per_batch * layout_.image_bytes()));
  } else {
    OCTAVO_ASSIGN_OR_RETURN(images_, run_.Result(0, volume));
  }
  mip_ = static_cast<char*>(run_.ResultMip(0, /*made=*/true));
  batches_ = (layout_.slices() + task_.slices_per_batch - 1) / task_.slices_per_batch;
  iterations_ = spec_.reconstruction.algorithm == TomographyAlgorithm::kFbp
                    ? 1
                    : spec_.reconstruction.iterations;
  return absl::OkStatus();
}

// Pixel size of the detector, if known. While frames are pushed there is no input yet, so the value
// of the push counts.
std::optional<double> TomographyRunner::DeclaredPixelUm() const {
  if (spec_.pixel_size_um > 0) return spec_.pixel_size_um;
  const double declared = input_ != nullptr       ? input_->info().pixel_size_um
                          : task_.port != nullptr ? task_.port->spec().pixel_size_um
                                                  : 0;
  return declared > 0 ? std::optional<double>(declared) : std::nullopt;
}

double TomographyRunner::PixelUm() const { return DeclaredPixelUm().value_or(1); }

double TomographyRunner::SliceSpacingUm() const {
  return PixelUm() * static_cast<double>(spec_.preparation.config.bin_columns);
}

// The initial slices on the device; null = the algorithm's own start.
absl::StatusOr<DeviceSpan<const float>> TomographyRunner::InitialOf(int64_t first, int64_t count) {
  if (task_.initial == nullptr) return DeviceSpan<const float>();
  const int64_t bytes = count * layout_.image_bytes();
  if (initial_ == nullptr) {
    OCTAVO_ASSIGN_OR_RETURN(initial_,
                            run_.Allocate(task_.slices_per_batch * layout_.image_bytes()));
    OCTAVO_ASSIGN_OR_RETURN(host_initial_, run_.device().AllocatePinned(task_.slices_per_batch *
                                                                        layout_.image_bytes()));
  }
  const std::vector<int64_t> shape = {layout_.slices(), layout_.image_size(), layout_.image_size()};
  OCTAVO_RETURN_IF_ERROR(
      ReadPlanes(*task_.initial, spec_.initial_volume, first, count, shape, host_initial_.data()));
  OCTAVO_RETURN_IF_ERROR(
      run_.device().CopyToDevice(run_.stream(), initial_, host_initial_.data(), bytes));
  OCTAVO_RETURN_IF_ERROR(run_.stream().Synchronize());
  return DeviceSpan<const float>(static_cast<const float*>(initial_), bytes / 4);
}

absl::Status TomographyRunner::Batches() {
  // The batch with a subscriber comes first; batches that are stored come in order.
  std::vector<SliceBatch> batches;
  for (int64_t first = 0; first < layout_.slices(); first += task_.slices_per_batch) {
    const int64_t count = std::min(task_.slices_per_batch, layout_.slices() - first);
    batches.push_back({.first = first, .count = count, .rows = layout_.RowsOf(first, count)});
  }
  const auto wanted = WantedSlice(0, layout_.slices());
  if (wanted.has_value() && !task_.on_disk) {
    std::rotate(batches.begin(), batches.begin() + wanted->second / task_.slices_per_batch,
                batches.end());
  }
  run_.Stage("reconstruct", batches_ * iterations_, begin_, 1);
  int64_t raw = 0, fields = 0, sinograms = 0, prepare = 0;
  for (const SliceBatch& batch : batches) {
    OCTAVO_ASSIGN_OR_RETURN(const PreparedShape shape, layout_.PreparedFor(batch.rows, false));
    OCTAVO_ASSIGN_OR_RETURN(
        const int64_t bytes,
        Preparer::DeviceBytes(layout_.PrepareFor(batch.rows, false), run_.device()));
    raw = std::max(raw, layout_.RawBytes(batch.rows));
    fields = std::max(fields, layout_.FieldBytes(batch.rows));
    sinograms = std::max(sinograms, shape.elements() * 4);
    prepare = std::max(prepare, bytes);
  }
  OCTAVO_RETURN_IF_ERROR(run_.Charge(prepare));
  OCTAVO_ASSIGN_OR_RETURN(void* const data, run_.Allocate(sinograms));
  OCTAVO_ASSIGN_OR_RETURN(const auto loader,
                          TomographyLoader::Start(run_, layout_, input_, batches, raw, fields));
  std::unique_ptr<Preparer> preparer;
  const SynchroniseAtEnd over(run_.stream());
  std::optional<BatchRows> prepared;
  for (const SliceBatch& batch : batches) {
    OCTAVO_ASSIGN_OR_RETURN(PrepareInput input, loader->Next(stop_));
    input.goes_on = goes_on_;
    if (!prepared.has_value() || prepared->count != batch.rows.count ||
        prepared->crop != batch.rows.crop || prepared->crop_rows != batch.rows.crop_rows) {
      preparer.reset();  // the stream has passed it
      OCTAVO_ASSIGN_OR_RETURN(
          preparer, Preparer::Create(layout_.PrepareFor(batch.rows, false), run_.device()));
      prepared = batch.rows;
    }
    const DeviceSpan<float> taken(static_cast<float*>(data), preparer->shape().elements());
    OCTAVO_RETURN_IF_ERROR(preparer->Run(run_.stream(), input, taken));
    OCTAVO_RETURN_IF_ERROR(Count(*preparer));  // waits, so that the raw data may be freed
    transmissions_ +=
        preparer->shape().elements() * (layout_.stitched() ? 2 : 1);  // nearly, of joined ones
    loader->Release();
    OCTAVO_RETURN_IF_ERROR(MakeBatch(batch.first, batch.count, taken));
  }
  return absl::OkStatus();
}

// The same sinogram with one axis after the other: the reconstructor treats them as separate
// slices.
absl::Status TomographyRunner::TryAxes() {
  run_.Stage("reconstruct", batches_ * iterations_, begin_, 1);
  OCTAVO_ASSIGN_OR_RETURN(
      const Prepared one,
      PrepareSome(layout_, input_, layout_.RowsOf(layout_.center_slice(), 1), false));
  transmissions_ = one.shape.elements();
  const int64_t bytes = one.shape.elements() * 4;
  OCTAVO_ASSIGN_OR_RETURN(void* const copies, run_.Allocate(task_.slices_per_batch * bytes));
  const SynchroniseAtEnd over(run_.stream());
  for (int64_t i = 0; i < task_.slices_per_batch; ++i) {
    OCTAVO_RETURN_IF_ERROR(run_.device().CopyOnDevice(
        run_.stream(), static_cast<char*>(copies) + i * bytes, one.data, bytes));
  }
  for (int64_t first = 0; first < layout_.slices(); first += task_.slices_per_batch) {
    OCTAVO_RETURN_IF_ERROR(MakeBatch(
        first, std::min(task_.slices_per_batch, layout_.slices() - first),
        {static_cast<const float*>(copies), task_.slices_per_batch * one.shape.elements()}));
  }
  return absl::OkStatus();
}

// -- one batch

absl::Status TomographyRunner::MakeBatch(int64_t first, int64_t count,
                                         DeviceSpan<const float> sinograms) {
  // With a single axis, all batches share one plan of the reconstruction.
  const bool shared = centers_.size() == 1;
  if (reconstructor_ == nullptr || !shared) {
    const TomographyConfig config = layout_.ReconstructFor(
        shared ? 0 : first, shared ? task_.slices_per_batch : count, centers_);
    if (reconstructor_ == nullptr) OCTAVO_RETURN_IF_ERROR(run_.Charge(task_.memory.reconstruct));
    reconstructor_.reset();
    auto made = Reconstructor::Create(config, run_.device());
    if (!made.ok()) return base::AtField("tomography.", made.status());
    reconstructor_ = *std::move(made);
  }
  first_ = first;
  count_ = count;
  const int64_t before = report_.batches * iterations_;
  std::vector<double> first_norms;
  const auto on_iteration = [&](const IterationReport& report) {
    if (stop_.stop_requested()) return false;
    if (report.iteration == 0) return true;  // between pieces of work
    double squares = 0;
    for (const double norm : report.residual_norms) squares += norm * norm;
    if (first_norms.empty()) first_norms = report.residual_norms;
    run_.Step(before + report.iteration,
              report.residual_norms.empty() ? kNone : std::sqrt(squares));
    preview_status_ = Preview(nullptr);
    return preview_status_.ok();
  };
  float* const images = ImagesOf(first);
  OCTAVO_ASSIGN_OR_RETURN(const DeviceSpan<const float> initial, InitialOf(first, count));
  auto result =
      reconstructor_->Run(run_.stream(), {.data = sinograms, .angle_first = false, .slices = count},
                          initial, {images, count * layout_.image_bytes() / 4}, on_iteration);
  if (stop_.stop_requested()) return absl::CancelledError("cancelled");
  if (!result.ok()) return base::AtField("tomography.", result.status());
  OCTAVO_RETURN_IF_ERROR(preview_status_);
  OCTAVO_RETURN_IF_ERROR(Tell(*result, first_norms));
  OCTAVO_RETURN_IF_ERROR(Preview(images));
  const VolumeView view{.data = images,
                        .dtype = DType::kF32,
                        .shape = {count, layout_.image_size(), layout_.image_size()}};
  OCTAVO_RETURN_IF_ERROR(Mip(run_.stream(), run_.device(), view, Axis::kY, 0, count,
                             /*accumulate=*/std::exchange(mip_begun_, true), mip_));
  const int64_t middle = layout_.slices() / 2;
  if (middle >= first && middle < first + count)
    OCTAVO_RETURN_IF_ERROR(LookAt(images + (middle - first) * layout_.image_bytes() / 4));
  if (task_.on_disk) OCTAVO_RETURN_IF_ERROR(run_.Store(0, images, count * layout_.image_bytes()));
  ++report_.batches;
  run_.Step(report_.batches * iterations_, last_norm_);
  return absl::OkStatus();
}

absl::Status TomographyRunner::Tell(const TomographyResult& result,
                                    const std::vector<double>& first_norms) {
  static constexpr const char* kStops[] = {"iterations", "change", "residual", "callback"};
  last_norm_ = kNone;
  if (spec_.reconstruction.algorithm == TomographyAlgorithm::kFbp) return absl::OkStatus();
  report_.stop = kStops[static_cast<int>(result.stop)];
  report_.iterations = std::max(report_.iterations, result.last.iteration);
  double squares = 0, first = 0;
  for (const double norm : result.last.residual_norms) squares += norm * norm;
  for (const double norm : first_norms) first += norm * norm;
  squares_ = std::max(squares_, 0.0) + squares;
  first_squares_ += first;
  last_norm_ = std::sqrt(squares);
  run_.Log(absl::StrFormat("slices %d to %d: %d iterations, residual %.6g%s", first_,
                           first_ + count_ - 1, result.last.iteration, last_norm_,
                           result.stop == TomographyStop::kIterations
                               ? ""
                               : absl::StrCat(", stopped by ", report_.stop)));
  return absl::OkStatus();
}

absl::Status RunTomography(job::JobRun& run, std::stop_token stop, const TomographyTask& task) {
  TomographyRunner runner(run, std::move(stop), task);
  absl::Status status = runner.Run();
  (void)run.stream().Synchronize();  // before the reconstructor is destroyed
  return status;
}

}  // namespace octavo::tomography

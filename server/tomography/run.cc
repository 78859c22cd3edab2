#include "server/tomography/run.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/status.h"
#include "gpu/tomography/preprocess.h"
#include "server/tomography/axis_finder.h"
#include "server/tomography/corrections.h"
#include "server/tomography/half_turn.h"
#include "server/tomography/half_turn_choice.h"
#include "server/tomography/job_notes.h"
#include "server/tomography/live_slices.h"
#include "server/tomography/loader.h"
#include "server/tomography/opposite.h"
#include "server/tomography/prepare_counts.h"
#include "server/tomography/preview_maker.h"
#include "server/tomography/projection_light.h"
#include "server/tomography/push_collector.h"
#include "server/tomography/result_volume.h"
#include "server/tomography/row_preparer.h"
#include "server/tomography/scanned_object.h"
#include "server/tomography/slice_maker.h"
#include "server/tomography/synchronise_at_end.h"
#include "server/tomography/value_window.h"
#include "server/tomography/volume_series.h"
#include "server/tomography/wide_object.h"

namespace octavo::tomography {
namespace {

const char* FieldOfProjections(const model::TomographySpec& spec) {
  if (std::holds_alternative<model::ProjectionFileSpec>(spec.input)) return "tomography.file.path";
  if (std::holds_alternative<model::ProjectionArraysSpec>(spec.input))
    return "tomography.arrays.projections";
  return std::holds_alternative<model::ProjectionMosaicSpec>(spec.input) ? "tomography.mosaic.tiles"
                                                                         : "tomography.push";
}

/// Conducts one run: collects the input, has the axis found, and passes batch after batch from the
/// loader through the preparation and the reconstruction to the result.
class TomographyRunner {
 public:
  TomographyRunner(job::JobRun& run, const std::stop_token& stop, const TomographyTask& task)
      : run_(run),
        stop_(stop),
        task_(task),
        object_{.input = task.input,
                .layout = *task.layout,
                .centers = {},
                .missing_frames = {},
                .half_turns = task.half_turns},
        rows_(run, stop),
        previews_(run),
        result_(run, task) {}
  absl::Status Run();

 private:
  /// Of the whole job, for its bar.
  struct Part {
    double begin = 0, end = 1;
  };
  absl::Status Collect(PushCollector& pushed);
  absl::Status MakeOne(std::optional<PushCollector>& pushed);
  absl::Status MakeSeries(std::optional<PushCollector>& pushed);
  absl::StatusOr<bool> NextWindow(int64_t index, double fraction,
                                  std::optional<PushCollector>& pushed);
  absl::Status FindCorrections();
  absl::StatusOr<Part> FindAxis();
  absl::Status MakeVolume(int64_t index, const ValueWindow& window, const Part& part);
  void TellDoubts(int64_t index);
  absl::Status Batches(const Part& part);
  absl::Status TryAxes(const Part& part);
  absl::Status MakeBatch(int64_t first, int64_t count, DeviceSpan<const float> sinograms);
  absl::Status ShowSinogram(int64_t first, int64_t count);
  absl::Status TellCounts();

  int64_t steps() const {
    return (object_.layout.slices() + task_.slices_per_batch - 1) / task_.slices_per_batch *
           slices_->iterations();
  }

  job::JobRun& run_;
  const std::stop_token stop_;
  const TomographyTask& task_;
  ScannedObject object_;
  model::TomographyReport report_;
  int64_t transmissions_ = 0;  // that were prepared for the result
  ProjectionLight light_;      // of the result's
  RowPreparer rows_;
  PreviewMaker previews_;
  ResultVolume result_;
  std::vector<double> mass_profile_;  // over the rows, of the first volume; with row_drift
  std::optional<SliceMaker> slices_;  // of the volume that is being made
  std::optional<LiveSlices> live_;    // of a push
  bool told_doubts_ = false;          // of a volume of the series but the first
};

absl::Status TomographyRunner::Run() {
  OCTAVO_RETURN_IF_ERROR(previews_.Begin(task_.memory.preview));
  std::optional<PushCollector> pushed;
  if (task_.port != nullptr) {
    pushed.emplace(run_, stop_, *task_.port, *task_.spec, *task_.layout);
    live_.emplace(run_, stop_, *task_.port, *task_.spec, *task_.layout, task_.memory.live);
  }
  OCTAVO_RETURN_IF_ERROR(task_.spec->series.has_value() ? MakeSeries(pushed) : MakeOne(pushed));
  if (pushed.has_value()) OCTAVO_RETURN_IF_ERROR(pushed->TellLeftOut());
  if (task_.mosaic != nullptr) {
    report_.unlit += task_.mosaic->unlit() * object_.layout.frames();
    report_.mosaic_tiles = *task_.tiles;
  }
  run_.Found(report_);
  return TellCounts();
}

absl::Status TomographyRunner::MakeOne(std::optional<PushCollector>& pushed) {
  if (pushed.has_value()) OCTAVO_RETURN_IF_ERROR(Collect(*pushed));
  for (const std::string& note : object_.input->info().notes) run_.Log(note);
  if (!object_.half_turns.empty()) {
    const model::TomographySpec planned =
        WithProjections(*task_.spec, PlannedHalfTurn(*task_.spec, object_.half_turns));
    OCTAVO_RETURN_IF_ERROR(TakeHalfTurn(planned, run_, stop_, rows_, object_, report_));
  }
  // With BEST, TakeHalfTurn has found the corrections of each half turn, and taken those of the
  // best one.
  if (task_.spec->half_turn != model::HalfTurn::kBest) OCTAVO_RETURN_IF_ERROR(FindCorrections());
  OCTAVO_ASSIGN_OR_RETURN(const Part part, FindAxis());
  OCTAVO_ASSIGN_OR_RETURN(const ValueWindow window,
                          WindowFor(*task_.spec, object_, run_, stop_, rows_, previews_.image()));
  return MakeVolume(0, window, part);
}

// The first volume decides for all: where the axis is, how wide the support, and the window of
// integers.
absl::Status TomographyRunner::MakeSeries(std::optional<PushCollector>& pushed) {
  const int64_t planned =
      WindowsIn(*task_.spec, task_.port != nullptr ? task_.port->spec().frames
                                                   : task_.input->info().projections);
  model::TomographyReport all;
  all.series_planned = planned;
  ValueWindow window;
  Part whole;
  const auto done = [&](int64_t volumes) {
    return whole.begin +
           (whole.end - whole.begin) * static_cast<double>(volumes) / static_cast<double>(planned);
  };
  for (int64_t i = 0; i < planned; ++i) {
    OCTAVO_ASSIGN_OR_RETURN(const bool is_there, NextWindow(i, done(i), pushed));
    if (!is_there) break;
    if (i == 0) {
      for (const std::string& note : object_.input->info().notes) run_.Log(note);
      OCTAVO_RETURN_IF_ERROR(FindCorrections());
      OCTAVO_ASSIGN_OR_RETURN(whole, FindAxis());
      OCTAVO_ASSIGN_OR_RETURN(
          window, WindowFor(*task_.spec, object_, run_, stop_, rows_, previews_.image()));
    } else {
      TellDoubts(i);
      ForgetVolume(report_);
      OCTAVO_RETURN_IF_ERROR(FindCorrections());
    }
    OCTAVO_RETURN_IF_ERROR(MakeVolume(i, window, {.begin = done(i), .end = done(i + 1)}));
    OCTAVO_RETURN_IF_ERROR(run_.Complete(static_cast<size_t>(i)));
    AddVolume(report_, &all);
    all.series_planned = planned;
    all.series_volumes = i + 1;
    run_.Found(all);
    run_.Log(absl::StrCat("volume ", i, " of ", planned, " is held"));
  }
  report_ = all;
  return absl::OkStatus();
}

// Sets the object to the projections of volume `index`. False: the push has ended without them.
absl::StatusOr<bool> TomographyRunner::NextWindow(int64_t index, double fraction,
                                                  std::optional<PushCollector>& pushed) {
  if (stop_.stop_requested()) return absl::CancelledError("cancelled");
  if (pushed.has_value()) {
    live_->Choose(WindowOf(*task_.spec, index));
    OCTAVO_ASSIGN_OR_RETURN(
        std::optional<source::PushedPart> part,
        pushed->CollectWindow(index, fraction, [&](bool all) { return live_->Show(all); }));
    live_->Release();  // the volume needs the memory
    if (!part.has_value()) return false;
    object_.input = std::move(part->input);
    object_.missing_frames = std::move(part->missing);
    object_.begun = part->begun;
    object_.ended = part->ended;
    if (index == 0) {
      OCTAVO_ASSIGN_OR_RETURN(object_.layout, TomographyLayout::Make(OfWindow(*task_.spec, index),
                                                                     object_.input->info(), 0));
    }
  }
  if (index > 0) {
    OCTAVO_ASSIGN_OR_RETURN(
        object_.layout,
        object_.layout.ForProjections(WindowOf(*task_.spec, index), object_.input->info()));
  }
  return true;
}

// Of the first volume that shows any; the log has those of the others.
void TomographyRunner::TellDoubts(int64_t index) {
  const Implausible doubts = DoubtsOf(*task_.spec, object_.input->info(), index);
  std::vector<std::string> texts = doubts.warnings;
  for (const absl::Status& refusal : doubts.refusals) texts.emplace_back(refusal.message());
  // Those of the first volume were told.
  const Implausible known = DoubtsOf(*task_.spec, object_.input->info(), 0);
  std::erase_if(texts, [&](const std::string& text) {
    return std::find(known.warnings.begin(), known.warnings.end(), text) != known.warnings.end() ||
           std::any_of(known.refusals.begin(), known.refusals.end(),
                       [&](const absl::Status& refusal) { return refusal.message() == text; });
  });
  for (const std::string& text : texts) {
    const std::string told = absl::StrCat("Volume ", index, " of the series: ", text);
    told_doubts_ ? run_.Log(told) : run_.Warn(told);
  }
  told_doubts_ |= !texts.empty();
}

// The open beam and the row shifts of the projections, where the request asks for them.
absl::Status TomographyRunner::FindCorrections() {
  JobNotes notes;
  const absl::Status found =
      tomography::FindCorrections(object_, run_, stop_, rows_, mass_profile_, report_, notes);
  notes.TellTo(run_);  // what was found before an error may explain it
  return found;
}

// Of the first volume, if there are several.
absl::StatusOr<TomographyRunner::Part> TomographyRunner::FindAxis() {
  report_.slices_per_batch = task_.slices_per_batch;
  if (!object_.layout.stitched())
    report_.opposite = OppositeOf(object_.layout.projections(), object_.input->info().angles_rad);
  const model::TomographySpec spec = OfWindow(*task_.spec, 0);
  AxisFinder axis(run_, stop_, spec, task_.memory.check_slices, rows_, report_);
  OCTAVO_ASSIGN_OR_RETURN(const double begin, axis.Find(object_));
  OCTAVO_ASSIGN_OR_RETURN(object_.layout, WidenedFor(object_, task_.memory.support, run_, rows_));
  return Part{.begin = begin, .end = 1};
}

absl::Status TomographyRunner::MakeVolume(int64_t index, const ValueWindow& window,
                                          const Part& part) {
  slices_.emplace(run_, stop_, task_, previews_, report_);
  OCTAVO_RETURN_IF_ERROR(result_.Begin(index, object_, window));
  OCTAVO_RETURN_IF_ERROR(object_.layout.tried().empty() ? Batches(part) : TryAxes(part));
  slices_->Conclude();
  OCTAVO_RETURN_IF_ERROR(result_.Conclude(report_));
  OCTAVO_RETURN_IF_ERROR(run_.stream().Synchronize());
  slices_->Release();
  return absl::OkStatus();
}

absl::Status TomographyRunner::Collect(PushCollector& pushed) {
  OCTAVO_ASSIGN_OR_RETURN(object_, pushed.Collect([&](bool all) { return live_->Show(all); }));
  live_->Release();
  return absl::OkStatus();
}

// What the preparation of the result counted. The error if nothing was left to prepare.
absl::Status TomographyRunner::TellCounts() {
  const model::TomographySpec& spec = *task_.spec;
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
        spec.preparation.config.log_floor));
  }
  for (const std::string& doubt : light_.Doubts()) run_.Warn(doubt);
  if (report_.not_finite >= transmissions_ && transmissions_ > 0) {
    return InvalidField(
        FieldOfProjections(spec),
        absl::StrCat("has no finite value where the job looked: all ", report_.not_finite,
                     " values of its projections, or of their flat and dark fields, are NaN or "
                     "infinite, and there is nothing to reconstruct; allowed are such that have "
                     "finite ones"));
  }
  if (report_.not_finite > 0) {
    run_.Warn(absl::StrCat(
        report_.not_finite,
        " values of the input were not finite (NaN or infinite), or became so: they count as ",
        spec.preparation.config.not_finite_value, " (preparation.not_finite_value)."));
  }
  if (report_.unlit > 0) {
    run_.Warn(absl::StrCat("The flat field is not brighter than the dark field where ",
                           report_.unlit,
                           " transmissions were made: they were divided by denominator_floor and "
                           "tell nothing. Dead pixels, or flat and dark "
                           "fields that are exchanged?"));
  }
  return absl::OkStatus();
}

absl::Status TomographyRunner::Batches(const Part& part) {
  const TomographyLayout& layout = object_.layout;
  // The batch with a subscriber comes first; batches that are stored or committed come in order.
  std::vector<SliceBatch> batches;
  for (int64_t first = 0; first < layout.slices(); first += task_.slices_per_batch) {
    const int64_t count = std::min(task_.slices_per_batch, layout.slices() - first);
    batches.push_back({.first = first, .count = count, .rows = layout.RowsOf(first, count)});
  }
  const auto wanted =
      previews_.WantedOf({.first = 0, .count = layout.slices(), .slices = layout.slices()});
  if (wanted.has_value() && !result_.in_order()) {
    std::rotate(batches.begin(), batches.begin() + wanted->slice / task_.slices_per_batch,
                batches.end());
  }
  run_.Stage(layout.makes_sinograms() ? job::JobStage::kPrepare : job::JobStage::kReconstruct,
             steps(), part.begin, part.end);
  int64_t raw = 0, fields = 0, sinograms = 0, prepare = 0;
  for (const SliceBatch& batch : batches) {
    OCTAVO_ASSIGN_OR_RETURN(const PreparedShape shape, layout.PreparedFor(batch.rows, false));
    OCTAVO_ASSIGN_OR_RETURN(
        const int64_t bytes,
        Preparer::DeviceBytes(layout.PrepareFor(batch.rows, false), run_.device()));
    raw = std::max(raw, layout.RawBytes(batch.rows));
    fields = std::max(fields, layout.FieldBytes(batch.rows));
    if (!layout.makes_sinograms()) sinograms = std::max(sinograms, shape.elements() * 4);
    prepare = std::max(prepare, bytes);
  }
  OCTAVO_RETURN_IF_ERROR(run_.Charge(prepare));
  OCTAVO_ASSIGN_OR_RETURN(void* const data, run_.Allocate(sinograms));
  OCTAVO_ASSIGN_OR_RETURN(
      const auto loader,
      TomographyLoader::Start(run_, layout, object_.input, batches, raw, fields, &light_));
  std::unique_ptr<Preparer> preparer;
  const SynchroniseAtEnd over(run_.stream());
  std::optional<BatchRows> prepared;
  for (const SliceBatch& batch : batches) {
    OCTAVO_ASSIGN_OR_RETURN(PrepareInput input, loader->Next(stop_));
    input.goes_on = Until(stop_);
    if (!prepared.has_value() || prepared->count != batch.rows.count ||
        prepared->crop != batch.rows.crop || prepared->crop_rows != batch.rows.crop_rows ||
        (layout.turns() && prepared->first != batch.rows.first)) {
      preparer.reset();  // the stream has passed it
      OCTAVO_ASSIGN_OR_RETURN(
          preparer, Preparer::Create(layout.PrepareFor(batch.rows, false), run_.device()));
      prepared = batch.rows;
    }
    // Sinograms that are the result are made in its memory.
    const DeviceSpan<float> taken(
        layout.makes_sinograms() ? result_.ImagesOf(batch.first) : static_cast<float*>(data),
        preparer->shape().elements());
    OCTAVO_RETURN_IF_ERROR(preparer->Run(run_.stream(), input, taken));
    // This waits, so that the raw data may be freed.
    OCTAVO_ASSIGN_OR_RETURN(const PrepareCounts counts, preparer->Counts(run_.stream()));
    Count(counts, report_);
    transmissions_ +=
        preparer->shape().elements() * (layout.stitched() ? 2 : 1);  // nearly, of joined ones
    loader->Release();
    OCTAVO_RETURN_IF_ERROR(MakeBatch(batch.first, batch.count, taken));
  }
  OCTAVO_RETURN_IF_ERROR(run_.stream().Synchronize());
  preparer.reset();
  run_.Discharge(prepare);
  loader->Free(run_);
  run_.Free(data);
  return absl::OkStatus();
}

// The same sinogram with one axis after the other: the reconstructor treats them as separate
// slices.
absl::Status TomographyRunner::TryAxes(const Part& part) {
  const TomographyLayout& layout = object_.layout;
  run_.Stage(job::JobStage::kReconstruct, steps(), part.begin, part.end);
  OCTAVO_ASSIGN_OR_RETURN(
      const PreparedRows one,
      rows_.Prepare(layout, object_.input, layout.RowsOf(layout.center_slice(), 1), false));
  Count(one.counts, report_);
  transmissions_ = one.shape.elements();
  const int64_t bytes = one.shape.elements() * 4;
  OCTAVO_ASSIGN_OR_RETURN(void* const copies, run_.Allocate(task_.slices_per_batch * bytes));
  const SynchroniseAtEnd over(run_.stream());
  for (int64_t i = 0; i < task_.slices_per_batch; ++i) {
    OCTAVO_RETURN_IF_ERROR(run_.device().CopyOnDevice(
        run_.stream(), static_cast<char*>(copies) + i * bytes, one.data, bytes));
  }
  for (int64_t first = 0; first < layout.slices(); first += task_.slices_per_batch) {
    OCTAVO_RETURN_IF_ERROR(MakeBatch(
        first, std::min(task_.slices_per_batch, layout.slices() - first),
        {static_cast<const float*>(copies), task_.slices_per_batch * one.shape.elements()}));
  }
  return absl::OkStatus();
}

absl::Status TomographyRunner::MakeBatch(int64_t first, int64_t count,
                                         DeviceSpan<const float> sinograms) {
  double norm = std::numeric_limits<double>::quiet_NaN();
  if (object_.layout.makes_sinograms()) {
    OCTAVO_RETURN_IF_ERROR(ShowSinogram(first, count));
  } else {
    OCTAVO_ASSIGN_OR_RETURN(norm, slices_->Make(object_, {.first = first,
                                                          .count = count,
                                                          .sinograms = sinograms,
                                                          .images = result_.ImagesOf(first)}));
  }
  OCTAVO_RETURN_IF_ERROR(result_.Add(first, count));
  ++report_.batches;
  run_.Step(report_.batches * slices_->iterations(), norm);
  return absl::OkStatus();
}

// Shows a sinogram of the batch, if a subscriber wants to see one.
absl::Status TomographyRunner::ShowSinogram(int64_t first, int64_t count) {
  const TomographyLayout& layout = object_.layout;
  const auto wanted = previews_.DueOf({.first = first, .count = count, .slices = layout.slices()});
  if (!wanted.has_value()) return absl::OkStatus();
  return previews_.Publish(
      wanted->key,
      layout.Image(result_.ImagesOf(first) + (wanted->slice - first) * layout.image_voxels()),
      SliceSpacingOf(*task_.spec, object_.input->info().pixel_size_um));
}

}  // namespace

absl::Status RunTomography(job::JobRun& run, std::stop_token stop, const TomographyTask& task) {
  TomographyRunner runner(run, stop, task);
  absl::Status status = runner.Run();
  (void)run.stream().Synchronize();  // before the reconstructor is destroyed
  return status;
}

}  // namespace octavo::tomography

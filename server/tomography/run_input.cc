// The input of a tomography job: projections, also pushed ones, and their rotation axis.

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/status.h"
#include "gpu/tomography/axis.h"
#include "gpu/tomography/dead_columns.h"
#include "gpu/tomography/reconstruct_plan.h"
#include "gpu/tomography/truncation.h"
#include "server/base/errors.h"
#include "server/model/resolved_scan.h"
#include "server/source/push_projections.h"
#include "server/tomography/axis.h"
#include "server/tomography/loader.h"
#include "server/tomography/odd_values.h"
#include "server/tomography/plausible.h"
#include "server/tomography/run.h"

namespace octavo::tomography {
namespace {

constexpr double kSearchPart = 0.05;  // of the whole job, for its bar
constexpr int64_t kLeastPreview = 8;  // projections
constexpr int64_t kRowsLookedAt = 5;  // for objects wider than the detector, spread over the slices

}  // namespace

// Waits for all pushed projections. Other jobs use the device meanwhile, because a scan takes much
// longer than its reconstruction.
absl::Status TomographyRunner::Collect() {
  run_.Stage("projections", task_.port->spec().frames, 0, 0);
  OCTAVO_ASSIGN_OR_RETURN(const source::ProjectionsSoFar before, task_.port->Wait(0, 0, stop_));
  if (!before.complete) {
    OCTAVO_RETURN_IF_ERROR(run_.WithoutDevice([this] { return AwaitProjections(); }, stop_));
  }
  report_.outliers = report_.not_finite = report_.floored = report_.unlit = 0;  // those of previews
  OCTAVO_ASSIGN_OR_RETURN(input_, task_.port->Snapshot());
  OCTAVO_RETURN_IF_ERROR(LookForMissing());
  const storage::ProjectionInfo& info = input_->info();
  run_.Step(info.projections + info.flats + info.darks, kNone);
  run_.Log(absl::StrCat("all in: ", info.projections, " projections, ", info.flats, " flat and ",
                        info.darks, " dark fields"));
  // The frames have arrived and cannot be taken again, so problems that would have refused the job
  // are only warnings here.
  const Implausible doubts = FindImplausible(spec_, info);
  for (const absl::Status& refusal : doubts.refusals) run_.Warn(std::string(refusal.message()));
  for (const std::string& warning : doubts.warnings) run_.Warn(warning);
  if (const auto exchanged = FindExchangedFields(spec_, *input_))
    run_.Warn(std::string(exchanged->message()));
  if (const auto none = FindNoTransmission(spec_, *input_)) run_.Warn(*none);
  for (const std::string& odd : FindOddValues(spec_, *input_)) run_.Warn(odd);
  OCTAVO_ASSIGN_OR_RETURN(layout_, TomographyLayout::Make(spec_, info, 0));
  const int64_t fields = layout_.FieldBytes(layout_.RowsOf(0, 1)),
                planned = task_.layout->FieldBytes(task_.layout->RowsOf(0, 1));
  if (fields > planned) {
    return InvalidField(
        "tomography.push",
        absl::StrCat("brought ", info.flats, " flat and ", info.darks, " dark fields; allowed are ",
                     task_.layout->flats() + task_.layout->darks(), " together"));
  }
  return absl::OkStatus();
}

// Count them at the end of the job, because some come after the last frame that counts.
absl::Status TomographyRunner::TellLeftOut() {
  OCTAVO_ASSIGN_OR_RETURN(const source::ProjectionsSoFar pushed, task_.port->Wait(0, 0, stop_));
  const int64_t count = pushed.counts.surplus_frames;
  if (count == 0) return absl::OkStatus();
  run_.Warn(absl::StrCat(
      count, count == 1 ? " pushed frame was" : " pushed frames were",
      " left out: their numbers lie beyond tomography.push.frames (", task_.port->spec().frames,
      ", which counts projections, flat and dark fields together), or they came after the end."));
  return absl::OkStatus();
}

// Frames that never came: the spec decides whether the job continues without them.
absl::Status TomographyRunner::LookForMissing() {
  missing_frames_ = task_.port->Missing();
  if (missing_frames_.empty()) return absl::OkStatus();
  const model::PushedProjectionsSpec& push = task_.port->spec();
  int64_t count = 0;
  for (const auto& [first, frames] : missing_frames_) count += frames;
  const std::string text =
      absl::StrCat(count, " of ", push.frames, " frames never came, the first is ",
                   missing_frames_.front().first);
  if (push.on_missing == model::MissingFrames::kFailJob) {
    return WithInfo(
        absl::FailedPreconditionError(
            absl::StrCat(text, "; tomography.push.on_missing is FAIL_JOB")),
        {.reason = Reason::kFramesMissing,
         .field = "tomography.push.on_missing",
         .numbers = {{"missing", absl::StrCat(count)}, {"frames", absl::StrCat(push.frames)}}});
  }
  run_.Warn(absl::StrCat(text,
                         "; the volume is made of the others and is not complete "
                         "(tomography.push.on_missing = FAIL_JOB fails instead)"));
  return absl::OkStatus();
}

// Shows subscribers one slice from the projections so far, a small piece of work beside the job
// that has the device.
absl::Status TomographyRunner::AwaitProjections() {
  for (int64_t seen = 0, previewed = 0;
       ;) {  // a new subscriber gets a preview even if no frame arrives
    OCTAVO_ASSIGN_OR_RETURN(const source::ProjectionsSoFar so_far,
                            task_.port->Wait(seen, 0.1, stop_));
    if (so_far.complete) return absl::OkStatus();
    if (so_far.counts.frames > seen) run_.Step(so_far.counts.frames, kNone);
    if (so_far.counts.frames > previewed && so_far.counts.projections >= kLeastPreview &&
        !layout_.stitched() && WantedSlice(0, layout_.slices()).has_value() && run_.PreviewDue()) {
      previewed = so_far.counts.frames;
      // The frames so far may not suffice yet (too few angles, for example); the next preview will
      // try again.
      if (absl::Status shown = PreviewSoFar();
          absl::IsCancelled(shown) || absl::IsUnavailable(shown))
        return shown;
    }
    seen = so_far.counts.frames;
  }
}

// Computes sinograms of a few rows. Frees everything after an error, because previews are tried
// again.
absl::StatusOr<TomographyRunner::Prepared> TomographyRunner::PrepareSome(
    const TomographyLayout& layout, std::shared_ptr<storage::ProjectionInput> input,
    const BatchRows& rows, bool for_overlap) {
  const PrepareConfig config = layout.PrepareFor(rows, for_overlap);
  OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, Preparer::DeviceBytes(config, run_.device()));
  OCTAVO_ASSIGN_OR_RETURN(const auto loader,
                          TomographyLoader::Start(run_, layout, std::move(input),
                                                  {{.first = 0, .count = 1, .rows = rows}},
                                                  layout.RawBytes(rows), layout.FieldBytes(rows)));
  absl::StatusOr<Prepared> prepared;
  if (const absl::Status charged = run_.Charge(bytes); charged.ok()) {
    prepared = PrepareFrom(*loader, config);
    run_.Discharge(bytes);
  } else {
    prepared = charged;
  }
  loader->Free(run_);
  return prepared;
}

absl::StatusOr<TomographyRunner::Prepared> TomographyRunner::PrepareFrom(
    TomographyLoader& loader, const PrepareConfig& config) {
  OCTAVO_ASSIGN_OR_RETURN(const auto preparer, Preparer::Create(config, run_.device()));
  OCTAVO_ASSIGN_OR_RETURN(void* const data, run_.Allocate(preparer->shape().elements() * 4));
  const absl::Status made = [&]() -> absl::Status {
    const SynchroniseAtEnd over(run_.stream());
    OCTAVO_ASSIGN_OR_RETURN(PrepareInput raw, loader.Next(stop_));
    raw.goes_on = goes_on_;
    OCTAVO_RETURN_IF_ERROR(preparer->Run(
        run_.stream(), raw, {static_cast<float*>(data), preparer->shape().elements()}));
    return Count(*preparer);
  }();
  if (made.ok()) return Prepared{.data = static_cast<float*>(data), .shape = preparer->shape()};
  run_.Free(data);
  return made;
}

absl::Status TomographyRunner::Count(Preparer& preparer) {
  OCTAVO_ASSIGN_OR_RETURN(const PrepareCounts counts, preparer.Counts(run_.stream()));
  report_.outliers += counts.outliers;
  report_.not_finite += counts.not_finite;
  report_.floored += counts.floored;
  report_.unlit += counts.unlit;
  return absl::OkStatus();
}

// -- the axis

absl::Status TomographyRunner::FindAxis() {
  centers_ = layout_.GivenCenters();
  report_.center_method = layout_.CenterSource();
  if (report_.center_method == "file")
    run_.Log(absl::StrCat("axis at column ", centers_[0], ", as the file says"));
  const bool find = spec_.center.find && !layout_.stitched() && layout_.tried().empty();
  if (find || layout_.overlap_unknown()) {
    begin_ = kSearchPart;
    run_.Stage("axis", 1, 0, begin_);
    const bool overlap = layout_.overlap_unknown();
    const BatchRows rows = layout_.RowsOf(layout_.center_slice(), layout_.search_slices());
    OCTAVO_ASSIGN_OR_RETURN(const Prepared prepared, PrepareSome(layout_, input_, rows, overlap));
    OCTAVO_ASSIGN_OR_RETURN(const std::vector<int64_t> dead, MendForSearch(prepared));
    if (!dead.empty()) {
      run_.Warn(
          absl::StrFormat("%d %s dead in the rows that say where the axis is, or far from their "
                          "neighbours in all projections; the first is "
                          "column %.0f. The search leaves them out, the picture does not: ring "
                          "removal of dead stripes (--rings dead) mends them there.",
                          dead.size(), dead.size() == 1 ? "column is" : "columns are",
                          layout_.RawCenter(static_cast<double>(dead.front()))));
    }
    OCTAVO_RETURN_IF_ERROR(overlap ? FindOverlapIn(prepared) : FindCenterIn(prepared));
    run_.Free(prepared.data);
    run_.Step(1, kNone);
    report_.outliers = report_.not_finite = report_.floored = report_.unlit =
        0;  // they are counted again
  }
  if (layout_.stitched()) {
    centers_ = {layout_.PreparedCenterOf(0)};
    report_.center_method = "overlap";
    run_.Log(absl::StrCat("axis at column ", centers_[0], " of the joined projections"));
  }
  if (!find) OCTAVO_RETURN_IF_ERROR(CheckAxis());
  report_.centers = centers_;
  return stop_.stop_requested() ? absl::CancelledError("cancelled") : absl::OkStatus();
}

// Values that no column of the detector saw are no part of the object, and would bias the axis.
absl::StatusOr<std::vector<int64_t>> TomographyRunner::MendForSearch(const Prepared& prepared) {
  const PreparedShape& s = prepared.shape;
  return MendDeadColumns(run_.stream(), {prepared.data, s.elements()}, s.slices, s.angles,
                         s.detectors, run_.device(), goes_on_);
}

// Compares an axis that the job does not search with a few rows: gives a warning if they show
// clearly that it is elsewhere, and never ends the job.
absl::Status TomographyRunner::CheckAxis() {
  const int64_t slices = task_.memory.check_slices;
  if (slices == 0) return absl::OkStatus();
  const auto prepared =
      PrepareSome(layout_, input_, layout_.RowsOf(layout_.center_slice(), slices), false);
  absl::Status checked = prepared.status();
  if (prepared.ok()) {
    checked = CheckAxisIn(*prepared);
    run_.Free(prepared->data);
  }
  report_.outliers = report_.not_finite = report_.floored = report_.unlit =
      0;  // they are counted again
  if (absl::IsCancelled(checked) || absl::IsUnavailable(checked)) return checked;
  if (!checked.ok()) run_.Log(absl::StrCat("the axis was not checked: ", checked.message()));
  return absl::OkStatus();
}

absl::Status TomographyRunner::CheckAxisIn(const Prepared& prepared) {
  constexpr double kSure = 0.3;  // columns
  OCTAVO_RETURN_IF_ERROR(MendForSearch(prepared).status());
  const AxisConfig config = layout_.AxisCheck(prepared.shape.slices);
  const double taken =
      centers_[centers_.size() == 1 ? 0 : static_cast<size_t>(layout_.center_slice())];
  const auto elsewhere = [&](const CenterResult& found) {
    const double columns = 1 / config.agreement,
                 off = std::abs(layout_.RawCenter(found.center) - taken);  // several if binned
    return found.determined && !found.at_edge && found.uncertainty * columns <= kSure &&
           off > 1 + 3 * found.uncertainty * columns;
  };
  const CenterInput input = {
      .data = prepared.sinograms(), .angle_first = false, .goes_on = goes_on_};
  OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, FindAxisBytes(config, run_.device()));
  OCTAVO_RETURN_IF_ERROR(run_.Charge(bytes));
  // Try the cheap method first: usually it finds no contradiction.
  absl::StatusOr<AxisResult> axis = AxisResult{};
  const auto pairs = FindCenter(run_.stream(), config.search, input, run_.device());
  const bool look = pairs.ok() && elsewhere(*pairs);
  if (look) axis = octavo::FindAxis(run_.stream(), config, input, run_.device());
  run_.Discharge(bytes);
  OCTAVO_RETURN_IF_ERROR(pairs.status());
  OCTAVO_RETURN_IF_ERROR(axis.status());
  if (!look || !axis->agreed || !elsewhere(axis->found)) return absl::OkStatus();
  const AxisResult raw = layout_.RawAxis(*axis);
  const std::string source = report_.center_method == "middle" ? "The axis is taken in the middle,"
                             : report_.center_method == "file"
                                 ? "The axis is taken where the file says,"
                                 : "The axis is given as";
  run_.Warn(
      absl::StrFormat("%s column %.2f; opposite projections find it at %.2f +- %.2f: center auto "
                      "(--center auto) takes that.",
                      source, taken, raw.found.center, raw.found.uncertainty));
  return absl::OkStatus();
}

absl::Status TomographyRunner::FindCenterIn(const Prepared& prepared) {
  const AxisConfig config = layout_.AxisSearch(prepared.shape.slices);
  OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, FindAxisBytes(config, run_.device()));
  OCTAVO_RETURN_IF_ERROR(run_.Charge(bytes));
  const auto found = octavo::FindAxis(
      run_.stream(), config,
      {.data = prepared.sinograms(), .angle_first = false, .goes_on = goes_on_}, run_.device());
  run_.Discharge(bytes);
  if (!found.ok()) return AtAxisField(found.status());
  const AxisResult axis = layout_.RawAxis(*found);
  centers_ = {axis.found.center};
  report_.center_method = NameOf(axis.method);
  report_.tried_centers = axis.found.centers;
  report_.scores = axis.found.scores;
  report_.center_at_edge = axis.found.at_edge;
  if (axis.found.uncertainty > 0) report_.center_uncertainty = axis.found.uncertainty;
  if (axis.check.has_value()) {
    report_.center_check = *axis.check;
    report_.center_check_method = NameOf(axis.check_method);
  }
  run_.Log(absl::StrFormat("axis found at column %.3f by %s%s", centers_[0], report_.center_method,
                           axis.check.has_value() ? absl::StrFormat(", at %.3f by %s", *axis.check,
                                                                    report_.center_check_method)
                                                  : ""));
  const double middle = 0.5 * static_cast<double>(config.search.detectors - 1);
  const auto column = [&](double off) {
    return layout_.RawCenter(std::clamp(middle + off, 0.0, 2 * middle));
  };
  const auto [least, most] =
      std::minmax_element(config.search.angles_rad.begin(), config.search.angles_rad.end());
  const AxisRemarks remarks = RemarksOn(axis, column(config.search.search_min),
                                        column(config.search.search_max), *most - *least);
  for (const std::string& warning : remarks.warnings) run_.Warn(warning);
  return Doubt(remarks.doubts);
}

// Handles objects wider than the detector: the rays contain the part outside the field of view,
// which would pile up at the rim of the iterations' circle. The iterations get a support as wide as
// the object seems to be. All slices share one support, so that no result depends on the batches.
absl::Status TomographyRunner::LookForTruncation() {
  if (task_.memory.support <= 1) return absl::OkStatus();
  OCTAVO_ASSIGN_OR_RETURN(const TomographyLayout sparse, layout_.Sparse(input_->info()));
  const bool tries = !layout_.tried().empty();
  const int64_t count = tries ? 1 : std::min(layout_.slices(), kRowsLookedAt);
  TruncationConfig config{.angles_rad = sparse.angles_rad(), .slices = count, .centers = {}};
  std::vector<float> sinograms;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t slice =
        tries ? layout_.center_slice() : (2 * i + 1) * layout_.slices() / (2 * count);
    OCTAVO_ASSIGN_OR_RETURN(const Prepared prepared,
                            PrepareSome(sparse, input_, sparse.RowsOf(slice, 1), false));
    OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer host,
                            run_.device().AllocatePinned(prepared.shape.elements() * 4));
    const absl::Status copied = run_.device().CopyToHost(run_.stream(), host.data(), prepared.data,
                                                         prepared.shape.elements() * 4);
    OCTAVO_RETURN_IF_ERROR(run_.stream().Synchronize());
    OCTAVO_RETURN_IF_ERROR(copied);
    run_.Free(prepared.data);
    config.detectors = prepared.shape.detectors;
    sinograms.insert(sinograms.end(), host.as<float>(),
                     host.as<float>() + prepared.shape.elements());
    // The middle one of the axes tried.
    const size_t which = tries                  ? centers_.size() / 2
                         : centers_.size() == 1 ? 0
                                                : static_cast<size_t>(slice);
    config.centers.push_back(layout_.UnjoinedCenter(layout_.PreparedCenterOf(centers_[which])));
  }
  report_.outliers = report_.not_finite = report_.floored = report_.unlit =
      0;  // they are counted again
  const BoundingEnds ends = EndsThatBound(config.angles_rad, config.detectors, config.centers[0]);
  config.left = ends.left;
  config.right = ends.right;
  const Truncation truncation = FindTruncation(config, sinograms);
  if (!truncation.found) return absl::OkStatus();
  const double support = std::min(truncation.width, task_.memory.support);
  layout_ = layout_.Widened(support);
  constexpr double kHardly = 0.005;  // of the directions
  const bool left = truncation.left > kHardly, right = truncation.right > kHardly;
  const std::string where =
      left && right
          ? absl::StrFormat(
                "The object is wider than the detector: %.0f %% of the directions show it at the "
                "left end, %.0f %% at the right one.",
                100 * truncation.left, 100 * truncation.right)
          : absl::StrFormat(
                "The object leaves the detector on the %s, in %.0f %% of the directions: it is "
                "wider than that side, or the axis "
                "is not in its middle.",
                left ? "left" : "right", 100 * (left ? truncation.left : truncation.right));
  run_.Warn(
      absl::StrFormat("%s The iterations have %.2f times the usual width, a place for what lies "
                      "outside, and the slices are cut to the usual "
                      "circle; their level is less certain than that of an object that is seen as "
                      "a whole. Give padding or mask_ratio to choose.",
                      where, support));
  return absl::OkStatus();
}

// Doubts about the axis give warnings, or end the job.
absl::Status TomographyRunner::Doubt(const std::vector<std::string>& doubts) {
  if (spec_.center.fail_on_doubt && !doubts.empty()) {
    report_.centers = centers_;
    run_.Found(report_);
    return WithInfo(
        absl::FailedPreconditionError(absl::StrCat("tomography.center: ", doubts.front())),
        {.reason = Reason::kAxisInDoubt, .field = "tomography.center", .numbers = {}});
  }
  for (const std::string& doubt : doubts) run_.Warn(doubt);
  return absl::OkStatus();
}

absl::Status TomographyRunner::FindOverlapIn(const Prepared& prepared) {
  OverlapConfig config = layout_.OverlapSearch();
  config.slices = prepared.shape.slices;
  OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, FindOverlapBytes(config, run_.device()));
  OCTAVO_RETURN_IF_ERROR(run_.Charge(bytes));
  auto found = FindOverlap(run_.stream(), config,
                           {.data = prepared.sinograms(), .angle_first = false}, run_.device());
  run_.Discharge(bytes);
  if (!found.ok()) return base::AtField("tomography.preparation.stitching.", found.status());
  report_.overlap = found->overlap;
  report_.center_at_edge = found->at_edge;
  run_.Log(absl::StrFormat("overlap of %.2f columns, correlation %.4f", found->overlap,
                           found->correlation));
  OCTAVO_RETURN_IF_ERROR(Doubt(DoubtsOf(*found, config)));
  // The result keeps its planned size.
  model::TomographySpec spec = spec_;
  spec.reconstruction.image_size = layout_.image_size();
  OCTAVO_ASSIGN_OR_RETURN(layout_, TomographyLayout::Make(spec, input_->info(), found->overlap));
  return absl::OkStatus();
}

}  // namespace octavo::tomography

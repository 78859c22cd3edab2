// What a tomography job reconstructs: projections, those that are pushed included, and the axis that they turn about.

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/status.h"
#include "gpu/tomo_center.h"
#include "server/engine/resolve.h"
#include "server/engine/tomography_loader.h"
#include "server/engine/tomography_plausible.h"
#include "server/engine/tomography_runner.h"

namespace octavo::engine {
namespace {

constexpr double kSearchPart = 0.05;  // of the whole job, for its bar
constexpr int64_t kLeastPreview = 8;  // projections

}  // namespace

// Pushed projections, all of them. Other jobs have the device until they are in: a scan takes much longer than what is made of it.
absl::Status TomographyRunner::Collect() {
  run_.Stage("projections", task_.port->spec().frames, 0, 0);
  OCTAVO_ASSIGN_OR_RETURN(const ProjectionsSoFar before, task_.port->Wait(0, 0, stop_));
  if (!before.complete) {
    OCTAVO_RETURN_IF_ERROR(run_.WithoutDevice([this] { return AwaitProjections(); }, stop_));
  }
  report_.outliers = report_.not_finite = report_.floored = 0;  // those of previews
  OCTAVO_ASSIGN_OR_RETURN(input_, task_.port->Snapshot());
  OCTAVO_RETURN_IF_ERROR(LookForMissing());
  const storage::ProjectionInfo& info = input_->info();
  run_.Step(info.projections + info.flats + info.darks, kNone);
  run_.Log(absl::StrCat("all in: ", info.projections, " projections, ", info.flats, " flat and ", info.darks, " dark fields"));
  // The frames are in and cannot be taken again: what would have refused the job is a warning here.
  const Implausible doubts = FindImplausible(spec_, info);
  for (const absl::Status& refusal : doubts.refusals) run_.Warn(std::string(refusal.message()));
  for (const std::string& warning : doubts.warnings) run_.Warn(warning);
  OCTAVO_ASSIGN_OR_RETURN(layout_, TomographyLayout::Make(spec_, info, 0));
  const int64_t fields = layout_.FieldBytes(layout_.RowsOf(0, 1)), planned = task_.layout->FieldBytes(task_.layout->RowsOf(0, 1));
  if (fields > planned) {
    return InvalidField("tomography.push", absl::StrCat("brought ", info.flats, " flat and ", info.darks, " dark fields; allowed are ",
                                                        task_.layout->flats() + task_.layout->darks(), " together"));
  }
  return absl::OkStatus();
}

// Frames that never came: the spec says whether the job goes on without them.
absl::Status TomographyRunner::LookForMissing() {
  missing_frames_ = task_.port->Missing();
  if (missing_frames_.empty()) return absl::OkStatus();
  const PushedProjectionsSpec& push = task_.port->spec();
  int64_t count = 0;
  for (const auto& [first, frames] : missing_frames_) count += frames;
  const std::string text = absl::StrCat(count, " of ", push.frames, " frames never came, the first is ", missing_frames_.front().first);
  if (push.on_missing == MissingFrames::kFailJob) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(text, "; tomography.push.on_missing is FAIL_JOB")),
                    {.reason = "FRAMES_MISSING",
                     .field = "tomography.push.on_missing",
                     .numbers = {{"missing", absl::StrCat(count)}, {"frames", absl::StrCat(push.frames)}}});
  }
  run_.Warn(absl::StrCat(text, "; the volume is made of the others and is not complete (tomography.push.on_missing = FAIL_JOB fails instead)"));
  return absl::OkStatus();
}

// Who looks sees what can be made of the projections that are in: one slice, a small piece of work beside the job that has the device.
absl::Status TomographyRunner::AwaitProjections() {
  for (int64_t seen = 0, previewed = 0;;) {  // who begins to look between two frames sees what is there, too
    OCTAVO_ASSIGN_OR_RETURN(const ProjectionsSoFar so_far, task_.port->Wait(seen, 0.1, stop_));
    if (so_far.complete) return absl::OkStatus();
    if (so_far.counts.frames > seen) run_.Step(so_far.counts.frames, kNone);
    if (so_far.counts.frames > previewed && so_far.counts.projections >= kLeastPreview && !layout_.stitched() &&
        WantedSlice(0, layout_.slices()).has_value() && run_.PreviewDue()) {
      previewed = so_far.counts.frames;
      // What is there may not do yet (no angles apart, say): the next one will.
      if (absl::Status shown = PreviewSoFar(); absl::IsCancelled(shown) || absl::IsUnavailable(shown)) return shown;
    }
    seen = so_far.counts.frames;
  }
}

// Sinograms of a few rows. An error leaves nothing behind: previews are tried again.
absl::StatusOr<TomographyRunner::Prepared> TomographyRunner::PrepareSome(const TomographyLayout& layout,
                                                                         std::shared_ptr<storage::ProjectionInput> input, const BatchRows& rows,
                                                                         bool for_overlap) {
  const PrepareConfig config = layout.PrepareFor(rows, for_overlap);
  OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, Preparer::DeviceBytes(config, run_.device()));
  OCTAVO_ASSIGN_OR_RETURN(const auto loader, TomographyLoader::Start(run_, layout, std::move(input), {{.first = 0, .count = 1, .rows = rows}},
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

absl::StatusOr<TomographyRunner::Prepared> TomographyRunner::PrepareFrom(TomographyLoader& loader, const PrepareConfig& config) {
  OCTAVO_ASSIGN_OR_RETURN(const auto preparer, Preparer::Create(config, run_.device()));
  OCTAVO_ASSIGN_OR_RETURN(void* const data, run_.Allocate(preparer->shape().elements() * 4));
  const absl::Status made = [&]() -> absl::Status {
    const SynchroniseAtEnd over(run_.stream());
    OCTAVO_ASSIGN_OR_RETURN(PrepareInput raw, loader.Next(stop_));
    raw.goes_on = goes_on_;
    OCTAVO_RETURN_IF_ERROR(preparer->Run(run_.stream(), raw, static_cast<float*>(data)));
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
  return absl::OkStatus();
}

// -- the axis

absl::Status TomographyRunner::FindAxis() {
  static constexpr const char* kMethods[] = {"vo", "entropy", "phase_correlation"};
  centers_ = layout_.GivenCenters();
  report_.center_method = spec_.try_centers.has_value() || !spec_.center.pixels.empty() ? "given" : "middle";
  const bool find = spec_.center.find && !layout_.stitched() && layout_.tried().empty();
  if (find || layout_.overlap_unknown()) {
    begin_ = kSearchPart;
    run_.Stage("axis", 1, 0, begin_);
    const bool overlap = layout_.overlap_unknown();
    const BatchRows rows = layout_.RowsOf(layout_.center_slice(), layout_.search_slices());
    OCTAVO_ASSIGN_OR_RETURN(const Prepared prepared, PrepareSome(layout_, input_, rows, overlap));
    OCTAVO_RETURN_IF_ERROR(overlap ? FindOverlapIn(prepared) : FindCenterIn(prepared));
    run_.Free(prepared.data);
    if (!overlap) report_.center_method = kMethods[static_cast<int>(spec_.center.search.method)];
    run_.Step(1, kNone);
    report_.outliers = report_.not_finite = report_.floored = 0;  // they are counted again
  }
  if (layout_.stitched()) {
    centers_ = {layout_.PreparedCenterOf(0)};
    report_.center_method = "overlap";
    run_.Log(absl::StrCat("axis at column ", centers_[0], " of the joined projections"));
  }
  report_.centers = centers_;
  return stop_.stop_requested() ? absl::CancelledError("cancelled") : absl::OkStatus();
}

absl::Status TomographyRunner::FindCenterIn(const Prepared& prepared) {
  const CenterConfig config = layout_.CenterSearch(prepared.shape.slices);
  OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, FindCenterBytes(config, run_.device()));
  OCTAVO_RETURN_IF_ERROR(run_.Charge(bytes));
  auto found = FindCenter(run_.stream(), config, {.data = prepared.data, .angle_first = false, .goes_on = goes_on_}, run_.device());
  run_.Discharge(bytes);
  if (!found.ok()) return AtField("tomography.center.", found.status());
  centers_ = {layout_.RawCenter(found->center)};
  for (const double center : found->centers) report_.tried_centers.push_back(layout_.RawCenter(center));
  report_.scores = found->scores;
  report_.center_at_edge = found->at_edge;
  run_.Log(absl::StrFormat("axis found at column %.3f%s", centers_[0], found->at_edge ? ", at the end of the search: widen it" : ""));
  return absl::OkStatus();
}

absl::Status TomographyRunner::FindOverlapIn(const Prepared& prepared) {
  OverlapConfig config = layout_.OverlapSearch();
  config.slices = prepared.shape.slices;
  OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, FindOverlapBytes(config, run_.device()));
  OCTAVO_RETURN_IF_ERROR(run_.Charge(bytes));
  auto found = FindOverlap(run_.stream(), config, {.data = prepared.data, .angle_first = false}, run_.device());
  run_.Discharge(bytes);
  if (!found.ok()) return AtField("tomography.preparation.stitching.", found.status());
  report_.overlap = found->overlap;
  report_.center_at_edge = found->at_edge;
  run_.Log(absl::StrFormat("overlap of %.2f columns, correlation %.4f%s", found->overlap, found->correlation,
                           found->at_edge ? ", at the end of the search" : ""));
  // The result keeps the size that was planned.
  TomographySpec spec = spec_;
  spec.reconstruction.image_size = layout_.image_size();
  OCTAVO_ASSIGN_OR_RETURN(layout_, TomographyLayout::Make(spec, input_->info(), found->overlap));
  return absl::OkStatus();
}

}  // namespace octavo::engine

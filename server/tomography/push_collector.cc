#include "server/tomography/push_collector.h"

#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/tomography/half_turn.h"
#include "server/tomography/odd_values.h"
#include "server/tomography/plausible.h"
#include "server/tomography/volume_series.h"

namespace octavo::tomography {
namespace {

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
constexpr double kNoNorm = std::numeric_limits<double>::quiet_NaN();
constexpr double kLook = 0.1;  // s, between two looks at what subscribers want

}  // namespace

// Other jobs use the device meanwhile, because a scan takes much longer than its reconstruction.
absl::StatusOr<ScannedObject> PushCollector::Collect(const Show& show) {
  run_.Stage(job::JobStage::kProjections, port_.spec().frames, 0, 0);
  OCTAVO_ASSIGN_OR_RETURN(const source::ProjectionsSoFar before, port_.Wait(0, 0, stop_));
  if (!before.complete) {
    OCTAVO_RETURN_IF_ERROR(run_.WithoutDevice([&] { return Await(show, kAll); }, stop_));
  }
  OCTAVO_ASSIGN_OR_RETURN(const auto input, port_.Snapshot());
  const auto missing = port_.Missing();
  OCTAVO_RETURN_IF_ERROR(LookForMissing(missing));
  const storage::ProjectionInfo& info = input->info();
  run_.Step(info.projections + info.flats + info.darks, kNoNorm);
  run_.Log(absl::StrCat("all in: ", info.projections, " projections, ", info.flats, " flat and ",
                        info.darks, " dark fields"));
  std::vector<model::IndexRange> half_turns;
  model::TomographySpec spec = spec_;
  if (spec_.takes_half_turn()) {
    OCTAVO_RETURN_IF_ERROR(CheckPushedAngles(info));
    OCTAVO_ASSIGN_OR_RETURN(half_turns, HalfTurnsOf(spec_, info.angles_rad));
    spec = WithProjections(spec_, PlannedHalfTurn(spec_, half_turns));
  }
  OCTAVO_RETURN_IF_ERROR(Judge(*input, spec, 0));
  OCTAVO_ASSIGN_OR_RETURN(TomographyLayout layout, TomographyLayout::Make(spec, info, 0));
  OCTAVO_RETURN_IF_ERROR(CheckFields(info.flats, info.darks));
  return ScannedObject{.input = input,
                       .layout = std::move(layout),
                       .centers = {},
                       .missing_frames = missing,
                       .half_turns = std::move(half_turns)};
}

absl::StatusOr<std::optional<source::PushedPart>> PushCollector::CollectWindow(int64_t index,
                                                                               double fraction,
                                                                               const Show& show) {
  const model::IndexRange window = WindowOf(spec_, index);
  port_.WaitsAgain();
  OCTAVO_ASSIGN_OR_RETURN(source::ProjectionsSoFar so_far, port_.Wait(0, 0, stop_));
  if (!so_far.complete && so_far.in_order < window.end) {
    run_.Stage(job::JobStage::kProjections, port_.spec().frames, fraction, fraction);
    OCTAVO_RETURN_IF_ERROR(run_.WithoutDevice([&] { return Await(show, window.end); }, stop_));
    OCTAVO_ASSIGN_OR_RETURN(so_far, port_.Wait(0, 0, stop_));
    run_.Step(so_far.counts.frames, kNoNorm);
  }
  const auto missing = port_.Missing();
  // The push has ended, and what comes across the gap is made of fewer frames, or not at all.
  if (so_far.in_order < window.end && !std::exchange(told_missing_, true))
    OCTAVO_RETURN_IF_ERROR(LookForMissing(missing));
  const int64_t used = UsedProjections(spec_, so_far.counts.projections);
  if (so_far.counts.projections < window.end) {
    if (index == 0) {
      return WithInfo(
          absl::FailedPreconditionError(
              absl::StrCat("only ", used,
                           " projections came that the job uses; tomography.series.projections "
                           "is ",
                           spec_.series->projections)),
          {.reason = Reason::kNoProjections, .field = "tomography.push", .numbers = {}});
    }
    if (const int64_t left = used - (index - 1) * spec_.series->step - spec_.series->projections;
        left > 0) {
      run_.Log(absl::StrCat("the last ", left, " projections fill no volume of the series"));
    }
    return std::nullopt;
  }
  OCTAVO_ASSIGN_OR_RETURN(source::PushedPart part, port_.SnapshotOf(window.begin, window.end));
  const storage::ProjectionInfo& info = part.input->info();
  run_.Log(absl::StrCat("volume ", index, ": projections ", window.begin, " to ", window.end - 1,
                        " are in, and ", info.flats, " flat and ", info.darks, " dark fields"));
  if (index == 0) OCTAVO_RETURN_IF_ERROR(Judge(*part.input, spec_, index));
  OCTAVO_RETURN_IF_ERROR(CheckFields(info.flats, info.darks));
  return part;
}

absl::Status PushCollector::Judge(storage::ProjectionInput& input,
                                  const model::TomographySpec& spec, int64_t index) {
  const storage::ProjectionInfo& info = input.info();
  const model::TomographySpec window = OfWindow(spec, index);
  // Angles of a wrong unit make a picture of nothing.
  OCTAVO_RETURN_IF_ERROR(
      CheckPushedAngles(spec.series.has_value() ? InfoOfWindow(info, window.projections) : info));
  // The frames have arrived and cannot be taken again, so other problems that would have refused
  // the job are only warnings here.
  const Implausible doubts = DoubtsOf(spec, info, index);
  for (const absl::Status& refusal : doubts.refusals) run_.Warn(std::string(refusal.message()));
  for (const std::string& warning : doubts.warnings) run_.Warn(warning);
  if (const auto exchanged = FindExchangedFields(window, input))
    run_.Warn(std::string(exchanged->message()));
  if (const auto none = FindNoTransmission(window, input)) run_.Warn(*none);
  for (const std::string& odd : FindOddValues(window, input)) run_.Warn(odd);
  return absl::OkStatus();
}

// The job's memory was planned for so many fields. Told as soon as one too many is there, not when
// the last frame is.
absl::Status PushCollector::CheckFields(int64_t flats, int64_t darks) const {
  const int64_t most = planned_.flats() + planned_.darks();
  if (spec_.preparation.ignore_fields || flats + darks <= most) return absl::OkStatus();
  return InvalidField("tomography.push",
                      absl::StrCat("brought ", flats, " flat and ", darks,
                                   " dark fields; allowed are ", most, " together"));
}

absl::Status PushCollector::Await(const Show& show, int64_t in_order) {
  bool more = false;
  for (int64_t seen = 0;;) {
    // What came too early for a preview is shown when one is due, also if no other frame comes; and
    // so is what a new subscriber wants.
    const double due = run_.PreviewDueIn(), pause = more ? 0 : due > 0 ? due : kLook;
    OCTAVO_ASSIGN_OR_RETURN(const source::ProjectionsSoFar so_far, port_.Wait(seen, pause, stop_));
    if (so_far.counts.frames > seen) run_.Step(so_far.counts.frames, kNoNorm);
    OCTAVO_RETURN_IF_ERROR(CheckFields(so_far.counts.flats, so_far.counts.darks));
    const bool all = so_far.complete || so_far.in_order >= in_order;
    OCTAVO_ASSIGN_OR_RETURN(more, show(all));
    if (all && !more) return absl::OkStatus();
    seen = so_far.counts.frames;
  }
}

// Frames that never came: the spec decides whether the job continues without them.
absl::Status PushCollector::LookForMissing(
    const std::vector<std::pair<int64_t, int64_t>>& missing) {
  if (missing.empty()) return absl::OkStatus();
  const model::PushedProjectionsSpec& push = port_.spec();
  int64_t count = 0;
  for (const auto& [first, frames] : missing) count += frames;
  const std::string text = absl::StrCat(count, " of ", push.frames,
                                        " frames never came, the first is ", missing.front().first);
  if (push.on_missing == model::MissingFrames::kFailJob) {
    return WithInfo(
        absl::FailedPreconditionError(
            absl::StrCat(text, "; tomography.push.on_missing is FAIL_JOB")),
        {.reason = Reason::kFramesMissing,
         .field = "tomography.push.on_missing",
         .numbers = {{"missing", absl::StrCat(count)}, {"frames", absl::StrCat(push.frames)}}});
  }
  run_.Warn(absl::StrCat(text,
                         spec_.series.has_value()
                             ? "; volumes across a gap are made of the others and are not complete "
                             : "; the volume is made of the others and is not complete ",
                         "(tomography.push.on_missing = FAIL_JOB fails instead)"));
  return absl::OkStatus();
}

absl::Status PushCollector::TellLeftOut() {
  OCTAVO_ASSIGN_OR_RETURN(const source::ProjectionsSoFar pushed, port_.Wait(0, 0, stop_));
  if (pushed.counts.surplus_frames == 0) return absl::OkStatus();
  // Without their number: how many of them come before the clients stop is chance, and the clients
  // tell how many they were given.
  run_.Warn(absl::StrCat(
      "More frames were pushed than the ", port_.spec().frames,
      " of tomography.push.frames, which counts projections, flat and dark fields together, or "
      "some came after the end: they are left out, and counted as out_of_range_frames."));
  return absl::OkStatus();
}

}  // namespace octavo::tomography

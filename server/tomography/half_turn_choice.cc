#include "server/tomography/half_turn_choice.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "gpu/base/status.h"
#include "server/tomography/consistency.h"
#include "server/tomography/corrections.h"
#include "server/tomography/half_turn.h"
#include "server/tomography/job_notes.h"
#include "server/tomography/plausible.h"

namespace octavo::tomography {
namespace {

constexpr int64_t kSlices = 5;  // spread over all
constexpr double kAlike = 1.5;  // scores whose ratio is below that differ by chance

class HalfTurnChooser {
 public:
  HalfTurnChooser(const model::TomographySpec& spec, job::JobRun& run, std::stop_token stop,
                  RowPreparer& rows)
      : spec_(spec), run_(run), stop_(std::move(stop)), rows_(rows) {}

  absl::Status Choose(ScannedObject& object, model::TomographyReport& report);

 private:
  struct Seen {
    std::vector<SliceMoments> slices;
    std::vector<double> axes;  // of the slices; empty: not known
  };
  struct Candidate {
    TomographyLayout layout;
    model::TomographyReport report;  // with what is found in this half turn
    JobNotes notes;
  };
  absl::StatusOr<Candidate> CandidateOf(const model::IndexRange& half_turn,
                                        const ScannedObject& object,
                                        const model::TomographyReport& report);
  absl::StatusOr<Seen> LookAt(const TomographyLayout& layout, const ScannedObject& object);
  absl::StatusOr<SliceMoments> MomentsIn(const TomographyLayout& layout, int64_t slice,
                                         const ScannedObject& object);
  void Tell(const std::vector<model::HalfTurnReport>& half_turns, size_t used);
  void TellDoubts(const ScannedObject& object, const model::IndexRange& used);

  const model::TomographySpec& spec_;
  job::JobRun& run_;
  const std::stop_token stop_;
  RowPreparer& rows_;
  int64_t slices_done_ = 0;
};

/// The axis of a slice among prepared columns, if somebody says where it is.
std::optional<double> AxisOf(const TomographyLayout& layout, int64_t slice) {
  if (!layout.tried().empty() || layout.makes_sinograms() ||
      layout.GivenSource() == model::CenterSource::kMiddle)
    return std::nullopt;
  const std::vector<double> centers = layout.GivenCenters();
  return layout.PreparedCenterOf(centers[centers.size() == 1 ? 0 : static_cast<size_t>(slice)]);
}

std::vector<int64_t> SlicesOf(const TomographyLayout& layout) {
  if (!layout.tried().empty()) return {layout.center_slice()};
  const int64_t count = std::min(layout.slices(), kSlices);
  std::vector<int64_t> slices;
  for (int64_t i = 0; i < count; ++i) slices.push_back((2 * i + 1) * layout.slices() / (2 * count));
  return slices;
}

absl::StatusOr<SliceMoments> HalfTurnChooser::MomentsIn(const TomographyLayout& layout,
                                                        int64_t slice,
                                                        const ScannedObject& object) {
  OCTAVO_ASSIGN_OR_RETURN(
      const PreparedRows prepared,
      rows_.Prepare(layout, object.input, layout.RowsOf(slice, 1), /*for_overlap=*/false));
  const int64_t elements = prepared.shape.elements();
  OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer host, run_.device().AllocatePinned(elements * 4));
  const absl::Status copied =
      run_.device().CopyToHost(run_.stream(), host.data(), prepared.data, elements * 4);
  OCTAVO_RETURN_IF_ERROR(run_.stream().Synchronize());
  OCTAVO_RETURN_IF_ERROR(copied);
  run_.Free(prepared.data);
  run_.Step(++slices_done_, std::numeric_limits<double>::quiet_NaN());
  if (stop_.stop_requested()) return absl::CancelledError("cancelled");
  return MomentsOf(host.as<float>(), prepared.shape.angles, prepared.shape.detectors);
}

absl::StatusOr<HalfTurnChooser::Seen> HalfTurnChooser::LookAt(const TomographyLayout& layout,
                                                              const ScannedObject& object) {
  Seen seen;
  for (const int64_t slice : SlicesOf(layout)) {
    OCTAVO_ASSIGN_OR_RETURN(seen.slices.emplace_back(), MomentsIn(layout, slice, object));
    if (const std::optional<double> axis = AxisOf(layout, slice)) seen.axes.push_back(*axis);
  }
  return seen;
}

// Finds the corrections of a half turn before it is judged: uncorrected projections have a beam
// that changes, and shifts, which the result does not have.
absl::StatusOr<HalfTurnChooser::Candidate> HalfTurnChooser::CandidateOf(
    const model::IndexRange& half_turn, const ScannedObject& object,
    const model::TomographyReport& report) {
  ScannedObject part = object;
  OCTAVO_ASSIGN_OR_RETURN(part.layout,
                          object.layout.ForProjections(half_turn, object.input->info()));
  Candidate candidate{.layout = {}, .report = report, .notes = {}};
  std::vector<double> mass_profile;
  const absl::Status found =
      FindCorrections(part, run_, stop_, rows_, mass_profile, candidate.report, candidate.notes);
  if (!found.ok()) {
    candidate.notes.TellTo(run_);  // what was found before the error may explain it
    return found;
  }
  candidate.layout = std::move(part.layout);
  return candidate;
}

absl::Status HalfTurnChooser::Choose(ScannedObject& object, model::TomographyReport& report) {
  const std::vector<model::IndexRange>& half_turns = object.half_turns;
  run_.Stage(job::JobStage::kPrepare, std::ssize(half_turns) * std::ssize(SlicesOf(object.layout)),
             0, 0);
  std::vector<Candidate> candidates;
  size_t used = 0;
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < half_turns.size(); ++i) {
    OCTAVO_ASSIGN_OR_RETURN(candidates.emplace_back(), CandidateOf(half_turns[i], object, report));
    const TomographyLayout& layout = candidates[i].layout;
    OCTAVO_ASSIGN_OR_RETURN(const Seen seen, LookAt(layout, object));
    const std::optional<Consistency> found =
        ConsistencyOf(seen.slices, layout.angles_rad(), seen.axes);
    if (!found.has_value()) continue;
    model::HalfTurnReport& told = report.half_turns[i];
    told.mass_deviation = found->mass_deviation;
    told.center_deviation = found->center_deviation;
    told.score = found->score;
    if (told.score < least) {
      used = i;
      least = told.score;
    }
  }
  report.half_turns[used].used = true;
  Candidate& taken = candidates[used];
  taken.report.half_turns = std::move(report.half_turns);
  report = std::move(taken.report);
  object.layout = std::move(taken.layout);
  Tell(report.half_turns, used);
  taken.notes.TellTo(run_);
  if (used != 0) TellDoubts(object, half_turns[used]);
  return absl::OkStatus();
}

void HalfTurnChooser::Tell(const std::vector<model::HalfTurnReport>& half_turns, size_t used) {
  std::vector<std::string> scores;
  int64_t known = 0;
  double least = std::numeric_limits<double>::infinity(), next = least;
  for (const model::HalfTurnReport& half : half_turns) {
    if (std::isnan(half.score)) {
      scores.emplace_back("not compared");
      continue;
    }
    ++known;
    scores.push_back(absl::StrFormat("%.5f", half.score));
    next = std::min(next, std::max(least, half.score));
    least = std::min(least, half.score);
  }
  const std::string all = absl::StrJoin(scores, ", ");
  if (known == 0) {
    run_.Warn(
        "No half turn is known to be the best: the slices that were compared show no object, or "
        "one that reaches the ends of the detector. The first one is taken; half_turn SECOND takes "
        "the second one.");
  } else if (known < std::ssize(half_turns)) {
    run_.Warn(absl::StrCat(
        "Half turns without a score show no object, one that reaches the ends of the detector, or "
        "projections whose sums differ by more than their mean; they are not taken. Scores: ",
        all, " (Job.tomography.half_turns)."));
  }
  run_.Log(absl::StrCat("half turn ", used + 1, " of ", half_turns.size(), " is used, projections ",
                        half_turns[used].begin, " to ", half_turns[used].end - 1,
                        "; deviation from consistent projections: ", all,
                        known > 1 && next < kAlike * least ? " (they hardly differ)" : ""));
}

// Those of the half turn that stood for it were told when the job was submitted.
void HalfTurnChooser::TellDoubts(const ScannedObject& object, const model::IndexRange& used) {
  const storage::ProjectionInfo& info = object.input->info();
  const std::vector<std::string> told = FindImplausible(spec_, info).warnings;
  for (const std::string& warning : FindImplausible(WithProjections(spec_, used), info).warnings) {
    if (std::find(told.begin(), told.end(), warning) == told.end()) run_.Warn(warning);
  }
}

}  // namespace

absl::Status TakeHalfTurn(const model::TomographySpec& spec, job::JobRun& run,
                          const std::stop_token& stop, RowPreparer& rows, ScannedObject& object,
                          model::TomographyReport& report) {
  const std::vector<model::IndexRange>& half_turns = object.half_turns;
  for (const model::IndexRange& half : half_turns)
    report.half_turns.push_back({.begin = half.begin, .end = half.end});
  if (spec.half_turn == model::HalfTurn::kBest) {
    OCTAVO_RETURN_IF_ERROR(HalfTurnChooser(spec, run, stop, rows).Choose(object, report));
  } else {
    const size_t used = spec.half_turn == model::HalfTurn::kSecond ? 1 : 0;
    report.half_turns[used].used = true;
    run.Log(absl::StrCat("half turn ", used + 1, " of ", half_turns.size(),
                         " is used, projections ", half_turns[used].begin, " to ",
                         half_turns[used].end - 1));
  }
  object.half_turn = *std::find_if(report.half_turns.begin(), report.half_turns.end(),
                                   [](const auto& half) { return half.used; });
  return absl::OkStatus();
}

}  // namespace octavo::tomography

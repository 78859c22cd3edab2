#include "server/tomography/half_turn.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"

namespace octavo::tomography {
namespace {

constexpr double kPi = std::numbers::pi, kDegrees = 180 / kPi;
constexpr double kWidestStep = kPi / 8;  // of neighbours: others have no order along the turn
// Of a step: how far an angle may be off, and how far the ends of a half turn may be from its
// first and last projection, so that at most one is missing.
constexpr double kSlack = 0.25, kMostMissing = 2;
constexpr int64_t kMostMore = 2;  // projections of one half turn than of another: uneven steps

const char* NameOf(model::HalfTurn half) {
  switch (half) {
    case model::HalfTurn::kDefault:
    case model::HalfTurn::kAll: return "ALL";
    case model::HalfTurn::kFirst: return "FIRST";
    case model::HalfTurn::kSecond: return "SECOND";
    case model::HalfTurn::kBest: break;
  }
  return "BEST";
}

absl::Status Refused(const model::TomographySpec& spec, const std::string& why) {
  return InvalidField("tomography.half_turn",
                      absl::StrCat("is ", NameOf(spec.half_turn), ", but ", why));
}

absl::StatusOr<model::IndexRange> UsedOf(const model::TomographySpec& spec, int64_t count) {
  const model::IndexRange& asked = spec.projections;
  OCTAVO_RETURN_IF_ERROR(InRange("tomography.projections.begin", asked.begin, 0, count - 1));
  OCTAVO_RETURN_IF_ERROR(InRange("tomography.projections.end", asked.end, 0, count));
  return model::IndexRange{.begin = asked.begin,
                           .end = asked.end == 0 ? count : asked.end,
                           .step = std::max<int64_t>(asked.step, 1)};
}

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// How far each projection is turned from the first one, upwards, whatever the direction of the
/// scan and whether angles begin anew after a turn.
absl::StatusOr<std::vector<double>> TurnsOf(const model::TomographySpec& spec,
                                            const model::IndexRange& used,
                                            const std::vector<double>& angles_rad) {
  const auto index = [&](int64_t i) { return used.begin + i * used.step; };
  std::vector<double> steps;
  double sum = 0;
  for (int64_t i = 1; i < used.count(); ++i) {
    steps.push_back(std::remainder(
        angles_rad[static_cast<size_t>(index(i))] - angles_rad[static_cast<size_t>(index(i - 1))],
        2 * kPi));
    sum += steps.back();
  }
  if (steps.empty()) return Refused(spec, "the job uses 1 projection; allowed are two half turns");
  if (sum < 0)
    for (double& step : steps) step = -step;
  const double usual = MedianOf(steps);
  if (usual > kWidestStep) {
    return Refused(spec, absl::StrFormat("the projections are %.4g degrees apart; allowed are "
                                         "steps up to %g degrees, in the order of the angles",
                                         usual * kDegrees, kWidestStep * kDegrees));
  }
  std::vector<double> turns = {0};
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i] < -kSlack * std::abs(usual)) {
      return Refused(
          spec,
          absl::StrCat("the angles turn back at projection ", index(static_cast<int64_t>(i) + 1),
                       "; allowed are projections whose angles go in one direction"));
    }
    turns.push_back(turns.back() + steps[i]);
  }
  return turns;
}

/// Whether the turns [begin, end) reach from `from` over half a turn.
bool IsComplete(const std::vector<double>& turns, size_t begin, size_t end, double from) {
  if (end - begin < 2) return false;
  std::vector<double> steps;
  for (size_t i = begin + 1; i < end; ++i) steps.push_back(turns[i] - turns[i - 1]);
  const double missing = (kMostMissing + kSlack) * MedianOf(std::move(steps));
  return turns[begin] <= from + missing && turns[end - 1] >= from + kPi - missing;
}

}  // namespace

absl::StatusOr<std::vector<model::IndexRange>> HalfTurnsOf(const model::TomographySpec& spec,
                                                           const std::vector<double>& angles_rad) {
  OCTAVO_ASSIGN_OR_RETURN(const model::IndexRange used, UsedOf(spec, std::ssize(angles_rad)));
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<double> turns, TurnsOf(spec, used, angles_rad));
  std::vector<double> steps;
  for (size_t i = 1; i < turns.size(); ++i) steps.push_back(turns[i] - turns[i - 1]);
  const double step = MedianOf(std::move(steps)), slack = kSlack * step;
  std::vector<model::IndexRange> halves;
  for (size_t begin = 0; begin < turns.size();) {
    const double from = static_cast<double>(halves.size()) * kPi;
    size_t end = begin;
    while (end < turns.size() && turns[end] < from + kPi - slack) ++end;
    if (!IsComplete(turns, begin, end, from)) break;
    halves.push_back({.begin = used.begin + static_cast<int64_t>(begin) * used.step,
                      .end = used.begin + static_cast<int64_t>(end - 1) * used.step + 1,
                      .step = used.step});
    begin = end;
  }
  if (halves.size() < 2) {
    return Refused(
        spec, absl::StrFormat("the %d projections turn by %.2f degrees, about %.3f each, and hold "
                              "%s complete half turn; allowed are two or more, 360 degrees: leave "
                              "half_turn out to use all projections",
                              used.count(), turns.back() * kDegrees, step * kDegrees,
                              halves.empty() ? "no" : "1"));
  }
  if (spec.half_turn != model::HalfTurn::kBest) return halves;
  const auto [least, most] =
      std::minmax_element(halves.begin(), halves.end(),
                          [](const auto& a, const auto& b) { return a.count() < b.count(); });
  const int64_t count = least->count(), largest = most->count();
  if (largest > count + kMostMore) {
    return Refused(spec, absl::StrCat("the half turns have from ", count, " to ", largest,
                                      " projections; allowed are equally many, but for two; FIRST "
                                      "and SECOND take any number"));
  }
  for (model::IndexRange& half : halves) half.end = half.begin + (count - 1) * half.step + 1;
  return halves;
}

model::TomographySpec WithProjections(const model::TomographySpec& spec,
                                      const model::IndexRange& projections) {
  model::TomographySpec narrowed = spec;
  narrowed.projections = projections;
  return narrowed;
}

const model::IndexRange& PlannedHalfTurn(const model::TomographySpec& spec,
                                         const std::vector<model::IndexRange>& half_turns) {
  return half_turns[spec.half_turn == model::HalfTurn::kSecond ? 1 : 0];
}

std::string HalfTurnText(const model::TomographySpec& spec,
                         const std::vector<model::IndexRange>& half_turns) {
  if (half_turns.empty()) {
    if (!spec.takes_half_turn()) return "";
    return absl::StrCat("half turn: ", NameOf(spec.half_turn),
                        ", which is known when all projections are in\n");
  }
  if (spec.half_turn == model::HalfTurn::kBest) {
    return absl::StrCat("half turn: of ", half_turns.size(),
                        " the one whose projections fit together best\n");
  }
  const model::IndexRange& half = PlannedHalfTurn(spec, half_turns);
  return absl::StrCat("half turn: ", NameOf(spec.half_turn), " of ", half_turns.size(),
                      ", projections ", half.begin, " to ", half.end - 1, "\n");
}

void SetHalfTurnLabels(const model::HalfTurnReport& half_turn, int64_t projections,
                       const storage::ProjectionInfo& info, model::VolumeStatus* volume) {
  const auto degrees = [&](int64_t projection) {
    return absl::StrFormat("%.10g", info.angles_rad[static_cast<size_t>(projection)] * kDegrees);
  };
  volume->labels["half_turn.first_projection"] = absl::StrCat(half_turn.begin);
  volume->labels["half_turn.projections"] = absl::StrCat(projections);
  volume->labels["half_turn.first_angle_deg"] = degrees(half_turn.begin);
  volume->labels["half_turn.last_angle_deg"] = degrees(half_turn.end - 1);
  if (!std::isnan(half_turn.score))
    volume->labels["half_turn.score"] = absl::StrFormat("%.6g", half_turn.score);
}

}  // namespace octavo::tomography

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "gpu/device/fft_length.h"
#include "gpu/math/flat_weights.h"
#include "gpu/math/turning.h"
#include "gpu/tomography/phase_filter.h"
#include "gpu/tomography/preprocess.h"
#include "gpu/tomography/preprocess_plan.h"
#include "gpu/tomography/ring_removal.h"

namespace octavo::inline gpu {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kMostRoll = 5;  // degrees; a detector that leans more wants to be aligned

absl::Status Between(absl::string_view field, int64_t value, int64_t lo, int64_t hi) {
  if (value >= lo && value <= hi) return absl::OkStatus();
  return FieldOutOfRange(field, value, lo, hi);
}
absl::Status Positive(absl::string_view field, double value) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return FieldNotAllowed(field, value, "are finite values above 0");
}
absl::Status CountType(absl::string_view field, DType dtype) {
  if (dtype == DType::kU8 || dtype == DType::kU16 || dtype == DType::kI16 || dtype == DType::kF32)
    return absl::OkStatus();
  return FieldNotAllowed(field, Info(dtype).name, "are u8, u16, i16, f32");
}

absl::Status CheckPacking(absl::string_view field, DType dtype, math::Packing packing) {
  if (packing == math::Packing::kNone || dtype == DType::kU16) return absl::OkStatus();
  return FieldNotAllowed(field, Info(dtype).name, "is u16, of packed counts");
}

absl::Status CheckFlats(const PrepareConfig& c) {
  OCTAVO_RETURN_IF_ERROR(Between("flats", c.flats, 0, 4096));
  OCTAVO_RETURN_IF_ERROR(Between("darks", c.darks, 0, 4096));
  OCTAVO_RETURN_IF_ERROR(Positive("denominator_floor", c.denominator_floor));
  if (c.has_cutoff) OCTAVO_RETURN_IF_ERROR(Positive("cutoff", c.cutoff));
  if (c.flat_series.empty() && !c.flat_times.empty()) {
    return InvalidField("flat_times", absl::StrCat("has ", c.flat_times.size(),
                                                   " times, but flat_series is empty"));
  }
  if (!c.angle_times.empty() && static_cast<int64_t>(c.angle_times.size()) != c.angles) {
    return InvalidField(
        "angle_times", absl::StrCat("has ", c.angle_times.size(),
                                    " times; allowed none or one per projection (", c.angles, ")"));
  }
  for (size_t i = 0; i < c.angle_times.size(); ++i) {
    if (!std::isfinite(c.angle_times[i]))
      return InvalidField(absl::StrCat("angle_times[", i, "]"), "is not finite");
  }
  if (c.flat_series.empty()) return absl::OkStatus();
  if (c.flat_times.size() != c.flat_series.size()) {
    return InvalidField(
        "flat_times", absl::StrCat("has ", c.flat_times.size(), " times; allowed one per series (",
                                   c.flat_series.size(), ")"));
  }
  int64_t frames = 0;
  for (size_t i = 0; i < c.flat_series.size(); ++i) {
    OCTAVO_RETURN_IF_ERROR(
        Between(absl::StrCat("flat_series[", i, "]"), c.flat_series[i], 1, c.flats));
    frames += c.flat_series[i];
    if (!std::isfinite(c.flat_times[i]) || (i > 0 && c.flat_times[i] <= c.flat_times[i - 1])) {
      return FieldNotAllowed(absl::StrCat("flat_times[", i, "]"), c.flat_times[i],
                             "are finite, increasing times");
    }
  }
  if (frames != c.flats)
    return InvalidField(
        "flat_series",
        absl::StrCat("add up to ", frames, "; allowed is the number of flats (", c.flats, ")"));
  return absl::OkStatus();
}

absl::Status CheckFlatComponents(const PrepareConfig& c) {
  const FlatComponents& parts = c.flat_components;
  if (parts.components == 0) return absl::OkStatus();
  OCTAVO_RETURN_IF_ERROR(Between("flats", c.flats, 2, 4096));
  OCTAVO_RETURN_IF_ERROR(Between("flat_components.components", parts.components, 0,
                                 std::min<int64_t>(c.flats - 1, math::kMostFlatComponents)));
  if (!c.flat_series.empty())
    return InvalidField("flat_components", "are given with flat_series; allowed is one of the two");
  if (c.flat_average != FieldAverage::kMean)
    return InvalidField("flat_average",
                        "is the median with flat_components, which are added to the mean; allowed "
                        "is the mean");
  const auto table = [&](const char* field, const std::vector<double>& values,
                         int64_t rows) -> absl::Status {
    if (std::ssize(values) != rows * parts.components) {
      return InvalidField(field, absl::StrCat("has ", values.size(), " values; allowed ", rows,
                                              " x ", parts.components));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(values[i]))
        return InvalidField(absl::StrCat(field, "[", i, "]"), "is not finite");
    }
    return absl::OkStatus();
  };
  OCTAVO_RETURN_IF_ERROR(table("flat_components.mixture", parts.mixture, c.flats));
  return table("flat_components.weights", parts.weights, c.angles);
}

absl::Status CheckCrop(absl::string_view axis, int64_t size, int64_t bin, int64_t start,
                       int64_t count) {
  if (bin != 1 && bin != 2 && bin != 4)
    return FieldNotAllowed(absl::StrCat("bin_", axis, "s"), bin, "1, 2, 4");
  OCTAVO_RETURN_IF_ERROR(Between(absl::StrCat("crop_", axis), start, 0, size - 1));
  OCTAVO_RETURN_IF_ERROR(Between(absl::StrCat("crop_", axis, "s"), count, 0, size - start));
  const int64_t kept = (count == 0 ? size - start : count) / bin, least = axis == "column" ? 2 : 1;
  if (kept >= least) return absl::OkStatus();
  return InvalidField(absl::StrCat("crop_", axis, "s"),
                      absl::StrCat("leaves ", kept, " binned ", axis, "s; allowed from ", least));
}

absl::Status CheckHardening(const PrepareConfig& c) {
  const auto& terms = c.beam_hardening;
  if (terms.empty()) return absl::OkStatus();
  if (std::ssize(terms) > math::kHardeningTerms)
    return InvalidField("beam_hardening",
                        absl::StrCat("has ", terms.size(), " coefficients; allowed ", "are up to ",
                                     math::kHardeningTerms));
  for (size_t i = 0; i < terms.size(); ++i) {
    if (!std::isfinite(terms[i]) || std::abs(terms[i]) > 1e6)
      return FieldNotAllowed(absl::StrCat("beam_hardening[", i, "]"), terms[i], "-1e6 to 1e6");
  }
  if (terms[0] > 0) return absl::OkStatus();
  return FieldNotAllowed("beam_hardening[0]", terms[0],
                         "a number above 0, mostly 1: thin objects hardly harden the beam");
}

}  // namespace

absl::Status CheckRoll(const PrepareConfig& c) {
  const DetectorRoll& roll = c.roll;
  if (!(std::abs(roll.degrees) <= kMostRoll))  // true for NaN
    return FieldNotAllowed("roll_degrees", roll.degrees,
                           absl::StrCat("are ", -kMostRoll, " to ", kMostRoll));
  if (roll.degrees == 0 || (roll.rows == 0 && roll.first_row == 0)) return absl::OkStatus();
  OCTAVO_RETURN_IF_ERROR(Between("roll_rows", roll.rows, c.rows, 65535));
  return Between("roll_first_row", roll.first_row, 0, roll.rows - c.rows);
}

absl::Status CheckShifts(const PrepareConfig& c) {
  const RowShifts& shifts = c.shifts;
  if (!(shifts.most >= 0 && shifts.most <= RowShifts::kMost))
    return FieldNotAllowed("row_drift.most_rows", shifts.most,
                           absl::StrCat("are 0 to ", RowShifts::kMost));
  if (shifts.rows.empty()) return absl::OkStatus();
  if (std::ssize(shifts.rows) != c.angles)
    return InvalidField("row_shifts",
                        absl::StrCat("has ", shifts.rows.size(),
                                     " values; allowed one per projection (", c.angles, ")"));
  for (size_t i = 0; i < shifts.rows.size(); ++i) {
    if (!(std::abs(shifts.rows[i]) <= RowShifts::kMost))
      return FieldNotAllowed(absl::StrCat("row_shifts[", i, "]"), shifts.rows[i],
                             absl::StrCat("are ", -RowShifts::kMost, " to ", RowShifts::kMost));
  }
  if (c.bin_angles == 1) return absl::OkStatus();
  return InvalidField("bin_angles", absl::StrCat("is ", c.bin_angles,
                                                 " with shifts of rows, which each projection has "
                                                 "for itself; allowed is 1"));
}

PreparePlan PlanPrepare(const PrepareConfig& c) {
  PreparePlan plan;
  plan.angles = c.angles / c.bin_angles;
  plan.rows = (c.crop_rows == 0 ? c.rows - c.crop_row : c.crop_rows) / c.bin_rows;
  plan.columns = (c.crop_columns == 0 ? c.columns - c.crop_column : c.crop_columns) / c.bin_columns;
  plan.first_row = c.crop_row;
  plan.first_column = c.crop_column;
  plan.work_rows = plan.rows;
  plan.work_columns = plan.columns;
  if (c.phase.enabled) {  // the whole detector, in the same bins
    plan.first_row = c.crop_row % c.bin_rows;
    plan.first_column = c.crop_column % c.bin_columns;
    plan.work_rows = (c.rows - plan.first_row) / c.bin_rows;
    plan.work_columns = (c.columns - plan.first_column) / c.bin_columns;
    plan.skip_rows = c.crop_row / c.bin_rows;
    plan.skip_columns = c.crop_column / c.bin_columns;
    plan.phase = PhaseFilterOf(c.phase, c.bin_rows, c.bin_columns);
    const double reach = PhaseReachPixels(c.phase);
    plan.pad_rows = static_cast<int64_t>(std::ceil(reach / static_cast<double>(c.bin_rows)));
    plan.pad_columns = static_cast<int64_t>(std::ceil(reach / static_cast<double>(c.bin_columns)));
    plan.padded_rows = NextFastLength(plan.work_rows + 2 * plan.pad_rows);
    plan.padded_columns = NextFastLength(plan.work_columns + 2 * plan.pad_columns);
  }
  plan.shape = {.slices = plan.rows, .angles = plan.angles, .detectors = plan.columns};
  if (c.stitching.enabled) {
    plan.shape.angles = c.stitching.half_turn == 0 ? plan.angles / 2 : c.stitching.half_turn;
    const auto columns = static_cast<double>(plan.columns);
    const double overlap = c.stitching.overlap >= 0 && c.stitching.overlap <= columns
                               ? c.stitching.overlap
                               : columns;  // CheckPrepare refuses others
    plan.shape.detectors = plan.columns + static_cast<int64_t>(std::floor(columns - overlap));
  }
  return plan;
}

absl::StatusOr<PreparedShape> CheckPrepare(const PrepareConfig& c) {
  OCTAVO_RETURN_IF_ERROR(CountType("dtype", c.dtype));
  OCTAVO_RETURN_IF_ERROR(CountType("field_dtype", c.field_dtype));
  OCTAVO_RETURN_IF_ERROR(CheckPacking("dtype", c.dtype, c.packing));
  OCTAVO_RETURN_IF_ERROR(CheckPacking("field_dtype", c.field_dtype, c.field_packing));
  OCTAVO_RETURN_IF_ERROR(Between("angles", c.angles, 1, 65535));
  OCTAVO_RETURN_IF_ERROR(Between("rows", c.rows, 1, 65535));
  OCTAVO_RETURN_IF_ERROR(Between("columns", c.columns, 2, 32768));
  OCTAVO_RETURN_IF_ERROR(CheckFlats(c));
  OCTAVO_RETURN_IF_ERROR(CheckFlatComponents(c));
  OCTAVO_RETURN_IF_ERROR(CheckCrop("row", c.rows, c.bin_rows, c.crop_row, c.crop_rows));
  OCTAVO_RETURN_IF_ERROR(
      CheckCrop("column", c.columns, c.bin_columns, c.crop_column, c.crop_columns));
  if (c.bin_angles != 1 && c.bin_angles != 2 && c.bin_angles != 4) {
    return FieldNotAllowed("bin_angles", c.bin_angles, "1, 2, 4");
  }
  if (c.angles < c.bin_angles)
    return InvalidField(
        "bin_angles", absl::StrCat("is ", c.bin_angles, "; allowed up to angles (", c.angles, ")"));
  if (c.outliers.window != 0) {
    if (c.outliers.window % 2 == 0 || c.outliers.window < 3 || c.outliers.window > 15) {
      return InvalidField("outliers.window", absl::StrCat("is ", c.outliers.window,
                                                          "; allowed 0 (off) or odd, 3 to 15"));
    }
    OCTAVO_RETURN_IF_ERROR(Positive("outliers.difference", c.outliers.difference));
  }
  OCTAVO_RETURN_IF_ERROR(CheckRoll(c));
  OCTAVO_RETURN_IF_ERROR(CheckShifts(c));
  OCTAVO_RETURN_IF_ERROR(CheckPhase(c.phase));
  OCTAVO_RETURN_IF_ERROR(CheckPhaseFilter(c.phase, c.bin_rows, c.bin_columns));
  OCTAVO_RETURN_IF_ERROR(CheckHardening(c));
  OCTAVO_RETURN_IF_ERROR(Positive("log_floor", c.log_floor));
  if (!std::isfinite(c.not_finite_value))
    return FieldNotAllowed("not_finite_value", c.not_finite_value, "are finite values");
  const PreparePlan plan = PlanPrepare(c);
  OCTAVO_RETURN_IF_ERROR(Between("air_left", c.air_left, 0, plan.columns));
  if (c.air_left > 0 && c.air_right > plan.columns - c.air_left)
    return InvalidField(
        "air_right",
        absl::StrCat("is ", c.air_right, " beside air_left = ", c.air_left, "; allowed up to ",
                     plan.columns - c.air_left, ", so that no column is air of both sides"));
  OCTAVO_RETURN_IF_ERROR(Between("air_right", c.air_right, 0, plan.columns));
  if (c.stitching.enabled) {
    const Stitching& s = c.stitching;
    const auto columns = static_cast<double>(plan.columns);
    if (!(s.overlap >= 2 && s.overlap <= columns)) {
      return InvalidField(
          "stitching.overlap",
          absl::StrCat("is ", s.overlap, "; allowed 2 to the columns kept (", plan.columns, ")"));
    }
    if (plan.angles < 2)
      return InvalidField("stitching",
                          absl::StrCat("wants at least 2 projections; there are ", plan.angles));
    if (s.half_turn != 0)
      OCTAVO_RETURN_IF_ERROR(Between("stitching.half_turn", s.half_turn, 1, plan.angles / 2));
  }
  OCTAVO_RETURN_IF_ERROR(CheckRings(c.rings, plan.angles, plan.columns));
  return plan.shape;
}

int64_t PrepareMargin(const PrepareConfig& c) {
  int64_t margin = c.outliers.window / 2;
  // A configuration that CheckPrepare refuses has no plan: its sizes may exceed an integer.
  if (c.phase.enabled && CheckPhase(c.phase).ok())
    margin += static_cast<int64_t>(std::ceil(PhaseReachPixels(c.phase)));
  double shift = std::min(c.shifts.most, RowShifts::kMost);
  for (const double rows : c.shifts.rows)
    shift = std::max(shift, std::min(std::abs(rows), RowShifts::kMost));
  if (shift > 0) margin += math::kTurnReach + static_cast<int64_t>(std::ceil(shift));
  if (c.roll.degrees != 0 && std::abs(c.roll.degrees) <= kMostRoll) {
    // The ends of a row of the turned frame move up and down, and rows far from the middle of the
    // detector move towards it.
    const double angle = std::abs(c.roll.degrees) * kPi / 180,
                 rows = static_cast<double>(c.roll.rows == 0 ? c.rows : c.roll.rows);
    margin +=
        math::kTurnReach +
        static_cast<int64_t>(std::ceil(0.5 * static_cast<double>(c.columns) * std::sin(angle) +
                                       0.5 * rows * (1 - std::cos(angle))));
  }
  return margin;
}

std::vector<double> PreparedAngles(const PrepareConfig& c, const std::vector<double>& angles) {
  std::vector<double> means;
  const auto bin = static_cast<size_t>(c.bin_angles);
  for (size_t i = 0; i + bin <= angles.size(); i += bin) {
    // From the first angle to each other angle by the shorter way, because the angles may start a
    // new turn between the two.
    double sum = 0;
    for (size_t k = 1; k < bin; ++k)
      sum += std::remainder(angles[i + k] - angles[i], 2 * std::numbers::pi);
    means.push_back(angles[i] + sum / static_cast<double>(bin));
  }
  if (c.stitching.enabled) {
    const auto half =
        c.stitching.half_turn == 0 ? means.size() / 2 : static_cast<size_t>(c.stitching.half_turn);
    means.resize(std::min(means.size(), half));
  }
  return means;
}

double PreparedCenter(const PrepareConfig& c, double raw_center) {
  const auto bin = static_cast<double>(c.bin_columns);
  if (!c.stitching.enabled)
    return (raw_center - static_cast<double>(c.crop_column) - 0.5 * (bin - 1)) / bin;
  const PreparePlan plan = PlanPrepare(c);
  const double center =
      static_cast<double>(plan.shape.detectors - plan.columns) + 0.5 * (c.stitching.overlap - 1);
  return c.stitching.axis_right ? static_cast<double>(plan.shape.detectors - 1) - center : center;
}

}  // namespace octavo::inline gpu

#include "server/derive/derivation_plan.h"

#include <algorithm>
#include <cstddef>
#include <numbers>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/base/errors.h"
#include "server/pattern/plan.h"
#include "server/processing/display_scale.h"
#include "server/volume/volume_metadata.h"

namespace octavo::derive {
namespace {

// Operations on A-scans need the positions of the A-scans.
absl::Status NoPattern(const model::VolumeStatus& volume) {
  if (!volume.recovered || volume.axes[0] == "z") {
    return InvalidField(
        "name",
        absl::StrCat(
            "is ", volume.name,
            ", which no scan acquired: it has no A-scans; allowed are operations on arrays"));
  }
  return WithInfo(absl::FailedPreconditionError(
                      absl::StrCat(volume.name,
                                   " was recovered from a file that does not say where its A-scans "
                                   "lie; allowed are operations on arrays")),
                  {.reason = Reason::kRecovered, .field = "name", .numbers = {}});
}

int64_t BytesOf(const model::VolumeStatus& v) {
  return v.shape[0] * v.shape[1] * v.shape[2] * SizeOf(v.dtype);
}

/// The name of an operation that needs the A-scans where the pattern put them; null for others.
const char* NameOfPatternOperation(const Operation& operation) {
  if (std::holds_alternative<pattern::CartesianGrid>(operation)) return "cartesian";
  if (std::holds_alternative<AngiographyOperation>(operation)) return "angiography";
  if (std::holds_alternative<DopplerOperation>(operation)) return "doppler";
  return nullptr;
}

bool OverRepeats(const Operation& operation) {
  const auto* const doppler = std::get_if<DopplerOperation>(&operation);
  return std::holds_alternative<AngiographyOperation>(operation) ||
         (doppler != nullptr && doppler->between == DopplerBetween::kRepeats);
}

/// Plans one step after the other, each on what the one before makes.
class StepPlanner {
 public:
  StepPlanner(const model::VolumeStatus& source, const pattern::Pattern* acquired)
      : state_(source),
        pattern_(acquired == nullptr ? pattern::Pattern{} : *acquired),
        cartesian_(pattern_.kind == pattern::PatternKind::kRaster ||
                   pattern_.kind == pattern::PatternKind::kRepeatedRaster),
        missing_(source.all_missing != nullptr ? *source.all_missing : source.missing) {}

  absl::StatusOr<DerivationStep> Next(size_t index, const Operation& operation) {
    at_ = absl::StrCat("operations[", index, "].");
    DerivationStep step{.operation = operation, .in = state_, .pattern = pattern_};
    OCTAVO_RETURN_IF_ERROR(Plan(&step));
    step.out = state_;
    return step;
  }

 private:
  absl::Status Plan(DerivationStep* step) {
    if (const auto* array = std::get_if<model::OpSpec>(&step->operation))
      return OperateOnArray(*array, step);
    if (plain_)
      return InvalidField(
          at_ + NameOfPatternOperation(step->operation),
          "comes after an operation on arrays; it needs the A-scans where the pattern put them");
    if (auto* grid = std::get_if<pattern::CartesianGrid>(&step->operation)) {
      OCTAVO_RETURN_IF_ERROR(Resample(grid));
    } else if (const auto* angiography = std::get_if<AngiographyOperation>(&step->operation)) {
      OCTAVO_RETURN_IF_ERROR(Contrast(*angiography));
    } else {
      OCTAVO_RETURN_IF_ERROR(Doppler(&std::get<DopplerOperation>(step->operation)));
    }
    MakeTables(step);
    if (state_.quantity != model::Quantity::kNone) {
      state_.dtype = DType::kF32;
      state_.has_levels = false;
    }
    missing_ = step->missing;
    state_.bytes = BytesOf(state_);
    return absl::OkStatus();
  }

  absl::Status Needs(const char* operation, bool fine, const std::string& wants) const {
    if (fine) return absl::OkStatus();
    return InvalidField(at_ + operation, absl::StrCat("cannot be made of this: ", wants));
  }
  std::string IsDtype() const { return absl::StrCat("the voxels are ", Info(state_.dtype).name); }
  absl::Status NeedsAmplitudes(const char* operation) const {
    return Needs(
        operation,
        state_.dtype == DType::kU8 || state_.dtype == DType::kU16 || state_.dtype == DType::kF32,
        IsDtype() + "; allowed u8, u16, f32");
  }

  absl::Status OperateOnArray(const model::OpSpec& array, DerivationStep* step) {
    OCTAVO_ASSIGN_OR_RETURN(
        step->chain, model::PlanVolumeOperation(array, at_.substr(0, at_.size() - 1), &state_));
    plain_ = true;
    missing_.clear();  // places are not A-scans any more; floats say NaN
    return absl::OkStatus();
  }

  absl::Status Resample(pattern::CartesianGrid* grid) {
    OCTAVO_RETURN_IF_ERROR(
        Needs("cartesian", !cartesian_,
              absl::StrCat("it lies on a Cartesian grid already (", Name(pattern_.kind), ")")));
    OCTAVO_RETURN_IF_ERROR(NeedsAmplitudes("cartesian"));
    OCTAVO_RETURN_IF_ERROR(pattern::ResolveGrid(pattern_, at_ + "cartesian.", grid));
    if (grid->rows * grid->columns >
        (int64_t{1} << 40) / (state_.shape[2] * SizeOf(state_.dtype))) {
      return InvalidField(at_ + "cartesian.rows", "times columns makes more than 2^40 bytes");
    }
    state_.shape[0] = grid->rows;
    state_.shape[1] = grid->columns;
    state_.spacing_um[0] = grid->extent_y_mm * 1e3 / static_cast<double>(grid->rows);
    state_.spacing_um[1] = grid->extent_x_mm * 1e3 / static_cast<double>(grid->columns);
    // The grid is laid over the pattern: where its extent is assumed, so is the grid's.
    state_.spacing_assumed[0] = state_.spacing_assumed[1] =
        state_.spacing_assumed[0] || state_.spacing_assumed[1];
    state_.operations.push_back(absl::StrFormat("cartesian %d x %d over %g x %g mm of %s",
                                                grid->rows, grid->columns, grid->extent_y_mm,
                                                grid->extent_x_mm, Name(pattern_.kind)));
    cartesian_ = true;
    pattern_.kind = pattern::PatternKind::kRaster;
    return absl::OkStatus();
  }

  bool HasRepeats() const { return pattern_.repeats() >= 2 && state_.shape[0] == pattern_.rows(); }

  absl::Status Contrast(const AngiographyOperation& angiography) {
    OCTAVO_RETURN_IF_ERROR(
        Needs("angiography", HasRepeats() && state_.quantity == model::Quantity::kNone,
              absl::StrCat("it has no repeats (", Name(pattern_.kind),
                           "); scan repeated_raster or repeated_radial with count >= 2")));
    OCTAVO_RETURN_IF_ERROR(NeedsAmplitudes("angiography"));
    const bool variance = angiography.method == MotionContrast::kSpeckleVariance;
    state_.quantity =
        variance ? model::Quantity::kSpeckleVariance : model::Quantity::kAmplitudeDecorrelation;
    state_.display_hi = processing::ContrastDisplayHi(angiography.method, state_);
    state_.operations.push_back(
        absl::StrCat(Name(state_.quantity), " over ", pattern_.repeat_count, " repeats"));
    return absl::OkStatus();
  }

  absl::Status Doppler(DopplerOperation* doppler) {
    if (doppler->between == DopplerBetween::kDefault)
      doppler->between =
          pattern_.repeats() >= 2 ? DopplerBetween::kRepeats : DopplerBetween::kAscans;
    OCTAVO_RETURN_IF_ERROR(Needs("doppler", state_.dtype == DType::kC64,
                                 IsDtype() + "; a phase needs complex ones (c64)"));
    const bool repeats = doppler->between == DopplerBetween::kRepeats;
    OCTAVO_RETURN_IF_ERROR(Needs("doppler.between", !repeats || HasRepeats(),
                                 absl::StrCat("it has no repeats (", Name(pattern_.kind), ")")));
    OCTAVO_RETURN_IF_ERROR(Needs("doppler.between",
                                 repeats || (!pattern_.bidirectional && state_.shape[1] >= 2),
                                 "ASCANS needs B-scans of one direction and at least two A-scans"));
    if (doppler->half_window >= state_.shape[2]) {
      return FieldOutOfRange(at_ + "doppler.half_window", doppler->half_window, 0,
                             state_.shape[2] - 1);
    }
    state_.quantity = model::Quantity::kPhaseRad;
    state_.display_lo = -std::numbers::pi;
    state_.display_hi = std::numbers::pi;
    if (!repeats) --state_.shape[1];
    state_.operations.push_back(absl::StrCat("doppler between ", repeats ? "repeats" : "A-scans",
                                             ", ", 2 * doppler->half_window + 1, " depth samples"));
    return absl::OkStatus();
  }

  /// The tables of a step on A-scans, and what is missing of its result.
  void MakeTables(DerivationStep* step) {
    if (OverRepeats(step->operation)) {
      step->order = RepeatOrder(pattern_);
      step->missing = MissingOverRepeats(pattern_, step->order, state_.shape[1], missing_);
      state_.shape[0] = pattern_.bscans_per_volume;
      pattern_.kind = pattern_.kind == pattern::PatternKind::kRepeatedRaster
                          ? pattern::PatternKind::kRaster
                          : pattern::PatternKind::kRadial;
    } else if (std::holds_alternative<DopplerOperation>(step->operation)) {
      step->missing = MissingOverAscans(state_.shape[0], state_.shape[1], missing_);
      // Each B-scan has one A-scan less, so there is no pattern left to resample.
      cartesian_ = true;
    } else {
      const auto& grid = std::get<pattern::CartesianGrid>(step->operation);
      step->taps = pattern::MakeCartesianTaps(step->pattern, grid, missing_);
      if (!missing_.empty()) step->missing = MissingOfGrid(step->pattern, grid, step->taps);
    }
  }

  std::string at_;             // the field of the operation, with a point
  model::VolumeStatus state_;  // what the steps so far make
  pattern::Pattern pattern_;   // of that
  bool cartesian_;
  AscanRanges missing_;
  bool plain_ = false;  // an array: no pattern any more
};

/// Whether the operations can begin with this volume at all.
absl::Status CheckSource(const model::VolumeStatus& source, const pattern::Pattern* acquired,
                         const std::vector<Operation>& operations) {
  if (operations.empty() || operations.size() > 8) {
    return InvalidField("operations",
                        absl::StrCat("has ", operations.size(), " operations; allowed 1 to 8"));
  }
  if (source.is_raw) {
    return InvalidField(
        "name", absl::StrCat("is ", source.name,
                             ", which holds raw spectra; a reprocess job makes a volume of them, "
                             "and takes the operations, too"));
  }
  const bool reprocessed = source.operations.size() == 1 &&
                           source.operations[0].rfind("reprocess", 0) == 0;  // as good as acquired
  const bool arrays = std::all_of(operations.begin(), operations.end(), [](const auto& o) {
    return std::holds_alternative<model::OpSpec>(o);
  });
  if (!source.derived_from.empty() && !reprocessed && !arrays) {
    return InvalidField(
        "name", absl::StrCat("is ", source.name,
                             ", which was derived itself; give all operations at once, from ",
                             source.derived_from));
  }
  if (acquired == nullptr && !arrays) return NoPattern(source);
  return absl::OkStatus();
}

/// The new volume at the moment it is begun.
model::VolumeStatus Describe(const model::VolumeStatus& source, const DerivationStep& last) {
  model::VolumeStatus result = last.out;
  result.derived_from = source.derived_from.empty() ? source.name : source.derived_from;
  result.state = model::VolumeState::kAcquiring;
  result.has_commit = false;
  result.tier = model::Tier::kDevice;
  result.moving = model::Move::kNone;
  result.marked = result.orphaned = result.recovered = false;
  result.last_error.clear();
  result.held_seconds = 0;
  result.held_unix_ns = 0;
  result.clipped_below = result.clipped_above = 0;
  const AscanRanges& missing = last.missing;
  result.missing_ascans = 0;
  for (const auto& range : missing) result.missing_ascans += range.second;
  result.missing.assign(missing.begin(),
                        missing.begin() + std::min<std::ptrdiff_t>(32, std::ssize(missing)));
  result.all_missing = missing.size() > 32 ? std::make_shared<const AscanRanges>(missing) : nullptr;
  return result;
}

}  // namespace

absl::StatusOr<DerivationPlan> PlanDerivation(const model::VolumeStatus& source,
                                              const std::vector<Operation>& operations) {
  const pattern::Pattern* const acquired = volume::PatternOf(source);
  OCTAVO_RETURN_IF_ERROR(CheckSource(source, acquired, operations));
  DerivationPlan plan;
  StepPlanner planner(source, acquired);
  for (size_t i = 0; i < operations.size(); ++i) {
    OCTAVO_ASSIGN_OR_RETURN(DerivationStep step, planner.Next(i, operations[i]));
    plan.steps.push_back(std::move(step));
  }
  plan.result = Describe(source, plan.steps.back());
  return plan;
}

absl::StatusOr<int64_t> BytesBetween(const DerivationPlan& plan, Device& device) {
  int64_t bytes = 0;
  for (const DerivationStep& step : plan.steps) {
    bytes += step.table_bytes() + (&step == &plan.steps.back() ? 0 : step.out.bytes);
    if (step.chain == nullptr) continue;
    OCTAVO_ASSIGN_OR_RETURN(const int64_t scratch, ScratchBytes(*step.chain, device));
    bytes += scratch;
  }
  return bytes;
}

}  // namespace octavo::derive

// Computes the result of each operation of a chain from the volume before it; allocates nothing on
// the device.

#include <algorithm>
#include <numbers>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "gpu/math/gather_ascans.h"
#include "server/base/errors.h"
#include "server/base/resource_names.h"
#include "server/derive/internal.h"
#include "server/pattern/plan.h"
#include "server/processing/display_scale.h"
#include "server/processing/raw_records.h"
#include "server/processing/replay_records.h"
#include "server/volume/volume_metadata.h"

namespace octavo::derive {
namespace {

bool IsMissing(const AscanRanges& missing, int64_t ascan) {
  auto it = std::upper_bound(missing.begin(), missing.end(), ascan,
                             [](int64_t a, const auto& range) { return a < range.first; });
  return it != missing.begin() && ascan < std::prev(it)->first + std::prev(it)->second;
}

// Neighbouring A-scans as ranges.
void AddAscan(int64_t ascan, AscanRanges* ranges) {
  if (!ranges->empty() && ranges->back().first + ranges->back().second == ascan) {
    ++ranges->back().second;
  } else {
    ranges->emplace_back(ascan, 1);
  }
}

std::vector<int32_t> RepeatOrder(const pattern::Pattern& pattern) {
  std::vector<int32_t> order;
  for (int64_t b = 0; b < pattern.bscans_per_volume; ++b) {
    for (int64_t r = 0; r < pattern.repeat_count; ++r)
      order.push_back(static_cast<int32_t>(pattern::RepeatRow(pattern, b, r)));
  }
  return order;
}

// A-scans of which a repeat is missing.
AscanRanges MissingOverRepeats(const pattern::Pattern& pattern, const std::vector<int32_t>& order,
                               int64_t columns, const AscanRanges& missing) {
  AscanRanges out;
  for (int64_t a = 0; a < pattern.bscans_per_volume * columns; ++a) {
    bool lacks = false;
    for (int64_t r = 0; r < pattern.repeat_count; ++r) {
      lacks |= IsMissing(
          missing, order[static_cast<size_t>(a / columns * pattern.repeat_count + r)] * columns +
                       a % columns);
    }
    if (lacks) AddAscan(a, &out);
  }
  return out;
}

// Pairs of neighbours with a missing member: `columns` pairs in each B-scan.
AscanRanges MissingOverAscans(int64_t rows, int64_t columns, const AscanRanges& missing) {
  AscanRanges out;
  for (int64_t a = 0; a < rows * columns; ++a) {
    const int64_t from = a / columns * (columns + 1) + a % columns;
    if (IsMissing(missing, from) || IsMissing(missing, from + 1)) AddAscan(a, &out);
  }
  return out;
}

// Points that would be covered if nothing were missing. `taps`: what is left.
AscanRanges MissingOfGrid(const pattern::Pattern& pattern, const pattern::CartesianGrid& grid,
                          const pattern::CartesianTaps& taps) {
  const pattern::CartesianTaps whole = pattern::MakeCartesianTaps(pattern, grid, {});
  const auto sum = [](const pattern::CartesianTaps& of, int64_t a) {
    float weights = 0;
    for (int64_t t = 0; t < of.taps; ++t)
      weights += of.weight[static_cast<size_t>(a * of.taps + t)];
    return weights;
  };
  AscanRanges out;
  for (int64_t a = 0; a < grid.rows * grid.columns; ++a) {
    if (sum(taps, a) < math::kLeastWeight && sum(whole, a) >= math::kLeastWeight) AddAscan(a, &out);
  }
  return out;
}

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

}  // namespace

absl::StatusOr<std::shared_ptr<Deriver::Work>> Deriver::Plan(const DeriveSpec& spec) {
  auto work = std::make_shared<Work>();
  auto pinned = context_.volumes->Hold(spec.name, volume::HoldKind::kDevice);
  if (InfoOf(pinned.status()).reason == Reason::kSpilled) {
    OCTAVO_RETURN_IF_ERROR(context_.spiller->RestoreNow(spec.name).status());
    pinned = context_.volumes->Hold(spec.name, volume::HoldKind::kDevice);
  }
  OCTAVO_RETURN_IF_ERROR(pinned.status());
  work->source = *std::move(pinned);
  if (spec.operations.empty() || spec.operations.size() > 8) {
    return InvalidField(
        "operations", absl::StrCat("has ", spec.operations.size(), " operations; allowed 1 to 8"));
  }
  model::VolumeStatus state = work->source.status;
  const bool reprocessed = state.operations.size() == 1 &&
                           state.operations[0].rfind("reprocess", 0) == 0;  // as good as acquired
  const bool arrays =
      std::all_of(spec.operations.begin(), spec.operations.end(),
                  [](const auto& o) { return std::holds_alternative<model::OpSpec>(o); });
  if (!state.derived_from.empty() && !reprocessed && !arrays) {
    return InvalidField(
        "name", absl::StrCat("is ", spec.name,
                             ", which was derived itself; give all operations at once, from ",
                             state.derived_from));
  }
  const pattern::Pattern* const acquired = volume::PatternOf(state);
  if (acquired == nullptr && !arrays) return NoPattern(state);
  if (state.is_raw && state.raw == nullptr) return processing::RawOfAnEarlierProcess(state);
  pattern::Pattern pattern = acquired == nullptr ? pattern::Pattern{} : *acquired;
  bool cartesian = pattern.kind == pattern::PatternKind::kRaster ||
                   pattern.kind == pattern::PatternKind::kRepeatedRaster;
  AscanRanges missing = state.all_missing != nullptr ? *state.all_missing : state.missing;
  bool plain = false;  // an array: no pattern any more
  for (size_t i = 0; i < spec.operations.size(); ++i) {
    const std::string at = absl::StrCat("operations[", i, "].");
    const auto needs = [&](const char* operation, bool fine, const std::string& wants) {
      if (fine) return absl::OkStatus();
      return InvalidField(at + operation, absl::StrCat("cannot be made of this: ", wants));
    };
    Step step{.operation = spec.operations[i], .in = state, .pattern = pattern};
    if (const auto* again = std::get_if<ReprocessOperation>(&step.operation)) {
      OCTAVO_RETURN_IF_ERROR(needs("reprocess", i == 0 && state.raw != nullptr,
                                   "it is the first operation, of raw spectra; scan with "
                                   "retention.hold_raw and name the raw volume"));
      auto scan = processing::ResolveReprocess(state, again->processing);
      if (!scan.ok()) return base::AtField(at + "reprocess.", scan.status());
      step.scan = std::make_shared<const model::ResolvedScan>(*std::move(scan));
      step.workspace_bytes = processing::Reprocessor::DeviceBytes(
          *step.scan, context_.devices.device(work->source.device));
      step.missing = missing = state.raw->missing_ascans;
      state = processing::DescribeReprocessed(state, step.scan);
      step.out = state;
      work->steps.push_back(std::move(step));
      continue;
    }
    if (state.is_raw)
      return InvalidField(absl::StrCat("operations[", i, "]"),
                          absl::StrCat("is of raw spectra; begin with reprocess"));
    const bool amplitudes =
        state.dtype == DType::kU8 || state.dtype == DType::kU16 || state.dtype == DType::kF32;
    const std::string is_dtype = absl::StrCat("the voxels are ", Info(state.dtype).name);
    if (const auto* array = std::get_if<model::OpSpec>(&step.operation)) {
      OCTAVO_ASSIGN_OR_RETURN(
          step.chain, model::PlanVolumeOperation(*array, at.substr(0, at.size() - 1), &state));
      plain = true;
      missing.clear();  // places are not A-scans any more; floats say NaN
      step.out = state;
      work->steps.push_back(std::move(step));
      continue;
    }
    for (const char* operation : {"cartesian", "angiography", "doppler"}) {
      const bool chosen = step.operation.index() == (operation[0] == 'c'   ? 0u
                                                     : operation[0] == 'a' ? 1u
                                                                           : 2u);
      if (chosen && plain)
        return InvalidField(
            at + operation,
            "comes after an operation on arrays; it needs the A-scans where the pattern put them");
    }
    if (auto* grid = std::get_if<pattern::CartesianGrid>(&step.operation)) {
      OCTAVO_RETURN_IF_ERROR(
          needs("cartesian", !cartesian,
                absl::StrCat("it lies on a Cartesian grid already (", Name(pattern.kind), ")")));
      OCTAVO_RETURN_IF_ERROR(needs("cartesian", amplitudes, is_dtype + "; allowed u8, u16, f32"));
      OCTAVO_RETURN_IF_ERROR(pattern::ResolveGrid(pattern, at + "cartesian.", grid));
      if (grid->rows * grid->columns >
          (int64_t{1} << 40) / (state.shape[2] * SizeOf(state.dtype))) {
        return InvalidField(at + "cartesian.rows", "times columns makes more than 2^40 bytes");
      }
      state.shape[0] = grid->rows;
      state.shape[1] = grid->columns;
      state.spacing_um[0] = grid->extent_y_mm * 1e3 / static_cast<double>(grid->rows);
      state.spacing_um[1] = grid->extent_x_mm * 1e3 / static_cast<double>(grid->columns);
      // The grid is laid over the pattern: where its extent is assumed, so is the grid's.
      state.spacing_assumed[0] = state.spacing_assumed[1] =
          state.spacing_assumed[0] || state.spacing_assumed[1];
      state.operations.push_back(absl::StrFormat("cartesian %d x %d over %g x %g mm of %s",
                                                 grid->rows, grid->columns, grid->extent_y_mm,
                                                 grid->extent_x_mm, Name(pattern.kind)));
      cartesian = true;
      pattern.kind = pattern::PatternKind::kRaster;
    } else if (const auto* angiography = std::get_if<AngiographyOperation>(&step.operation)) {
      OCTAVO_RETURN_IF_ERROR(needs(
          "angiography",
          pattern.repeats() >= 2 && state.quantity.empty() && state.shape[0] == pattern.rows(),
          absl::StrCat("it has no repeats (", Name(pattern.kind),
                       "); scan repeated_raster or repeated_radial with count >= 2")));
      OCTAVO_RETURN_IF_ERROR(needs("angiography", amplitudes, is_dtype + "; allowed u8, u16, f32"));
      const bool variance = angiography->method == MotionContrast::kSpeckleVariance;
      state.quantity = variance ? "speckle_variance" : "amplitude_decorrelation";
      state.display_hi = processing::ContrastDisplayHi(angiography->method, state);
      state.operations.push_back(
          absl::StrCat(state.quantity, " over ", pattern.repeat_count, " repeats"));
    } else if (auto* doppler = std::get_if<DopplerOperation>(&step.operation)) {
      if (doppler->between == DopplerBetween::kDefault)
        doppler->between =
            pattern.repeats() >= 2 ? DopplerBetween::kRepeats : DopplerBetween::kAscans;
      OCTAVO_RETURN_IF_ERROR(needs("doppler", state.dtype == DType::kC64,
                                   is_dtype + "; a phase needs complex ones (c64)"));
      const bool repeats = doppler->between == DopplerBetween::kRepeats;
      OCTAVO_RETURN_IF_ERROR(
          needs("doppler.between",
                !repeats || (pattern.repeats() >= 2 && state.shape[0] == pattern.rows()),
                absl::StrCat("it has no repeats (", Name(pattern.kind), ")")));
      OCTAVO_RETURN_IF_ERROR(
          needs("doppler.between", repeats || (!pattern.bidirectional && state.shape[1] >= 2),
                "ASCANS needs B-scans of one direction and at least two A-scans"));
      if (doppler->half_window >= state.shape[2]) {
        return FieldOutOfRange(at + "doppler.half_window", doppler->half_window, 0,
                               state.shape[2] - 1);
      }
      state.quantity = "phase_rad";
      state.display_lo = -std::numbers::pi;
      state.display_hi = std::numbers::pi;
      if (!repeats) --state.shape[1];
      state.operations.push_back(absl::StrCat("doppler between ", repeats ? "repeats" : "A-scans",
                                              ", ", 2 * doppler->half_window + 1,
                                              " depth samples"));
    }
    const bool over_repeats =
        std::holds_alternative<AngiographyOperation>(step.operation) ||
        (std::holds_alternative<DopplerOperation>(step.operation) &&
         std::get<DopplerOperation>(step.operation).between == DopplerBetween::kRepeats);
    if (over_repeats) {
      step.order = RepeatOrder(pattern);
      step.missing = MissingOverRepeats(pattern, step.order, state.shape[1], missing);
      state.shape[0] = pattern.bscans_per_volume;
      pattern.kind = pattern.kind == pattern::PatternKind::kRepeatedRaster
                         ? pattern::PatternKind::kRaster
                         : pattern::PatternKind::kRadial;
    } else if (std::holds_alternative<DopplerOperation>(step.operation)) {
      step.missing = MissingOverAscans(state.shape[0], state.shape[1], missing);
      // Each B-scan has one A-scan less, so there is no pattern left to resample.
      cartesian = true;
    } else {
      const auto& grid = std::get<pattern::CartesianGrid>(step.operation);
      step.taps = pattern::MakeCartesianTaps(step.pattern, grid, missing);
      if (!missing.empty()) step.missing = MissingOfGrid(step.pattern, grid, step.taps);
    }
    if (!state.quantity.empty()) {
      state.dtype = DType::kF32;
      state.has_levels = false;
    }
    missing = step.missing;
    state.bytes = BytesOf(state);
    step.out = state;
    work->steps.push_back(std::move(step));
  }
  return work;
}

}  // namespace octavo::derive

#include "server/tomography/layout.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/base/errors.h"
#include "server/model/resolved_scan.h"
#include "server/tomography/axis.h"
#include "server/tomography/drift_finder.h"
#include "server/tomography/flat_finder.h"
#include "server/tomography/live_layout.h"

namespace octavo::tomography {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kLeastOverlap = 2;  // makes the widest sinograms
constexpr int64_t kSparseProjections = 96;
constexpr int64_t kFlatGroupRows = 16;  // neighbouring rows in which components of flats are found
constexpr int64_t kMostGroups = 9, kMostGroupSlices = 16;  // of the search for the axis
constexpr int64_t kLeastGroups = 3;                        // that determine a line, and check it
/// Degrees up to which rows are read for turned projections. The job reserves memory for each of
/// them, and reads as far as the smallest that covers the turn it found.
constexpr double kTurns[] = {0.25, 0.5, 1, kMostTurn};

// The range as indices into `count` elements.
absl::StatusOr<model::IndexRange> Resolve(const char* field, const model::IndexRange& range,
                                          int64_t count) {
  model::IndexRange out{.begin = range.begin,
                        .end = range.end == 0 ? count : range.end,
                        .step = std::max<int64_t>(range.step, 1)};
  if (out.begin >= count)
    return FieldOutOfRange(absl::StrCat("tomography.", field, ".begin"), out.begin, 0, count - 1);
  if (out.end > count)
    return FieldOutOfRange(absl::StrCat("tomography.", field, ".end"), out.end, 1, count);
  return out;
}

/// Rows of the detector in which components of flats are found: some pixels tell a few weights as
/// well as all do.
int64_t MostFlatRows(int64_t columns) {
  constexpr int64_t kPixels = int64_t{1} << 17, kMost = 512;
  return std::clamp(kPixels / columns, kFlatGroupRows, kMost);
}

const char* NameOf(PhaseMethod method) {
  static constexpr const char* kNames[] = {"Paganin", "generalised Paganin", "Farago"};
  static_assert(std::size(kNames) == static_cast<size_t>(PhaseMethod::kFarago) + 1);
  return kNames[static_cast<int>(method)];
}

const char* NameOf(RingMethod method) {
  static constexpr const char* kNames[] = {"sorting", "large stripe", "dead stripe", "all stripe",
                                           "Fourier-wavelet"};
  return kNames[static_cast<int>(method)];
}

// Flats of one position form a series; the field is interpolated between series, which were taken
// at different times.
absl::Status SetSeries(const std::vector<double>& positions, const model::IndexRange& projections,
                       PrepareConfig* config) {
  if (positions.empty()) {
    return InvalidField("tomography.preparation.flats_in_time",
                        "is set, but the input does not say when its flat fields were taken");
  }
  for (const double position : positions) {
    if (config->flat_series.empty() || position != config->flat_times.back()) {
      if (!config->flat_times.empty() && position < config->flat_times.back()) {
        return InvalidField(
            "tomography.preparation.flats_in_time",
            "is set, but the flat fields of the input are not in the order of their positions");
      }
      config->flat_series.push_back(0);
      config->flat_times.push_back(position);
    }
    ++config->flat_series.back();
  }
  // A flat of position p was taken between projections p − 1 and p.
  for (int64_t i = 0; i < projections.count(); ++i)
    config->angle_times.push_back(static_cast<double>(projections.begin + i * projections.step) +
                                  0.5);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TomographyLayout> TomographyLayout::Make(const model::TomographySpec& spec,
                                                        const storage::ProjectionInfo& info,
                                                        double overlap) {
  TomographyLayout l;
  l.spec_ = std::make_shared<const model::TomographySpec>(spec);
  OCTAVO_ASSIGN_OR_RETURN(l.projections_,
                          Resolve("projections", spec.projections, info.projections));
  OCTAVO_ASSIGN_OR_RETURN(l.rows_, Resolve("rows", spec.rows, info.rows));
  OCTAVO_ASSIGN_OR_RETURN(l.column_range_, Resolve("columns", spec.columns, info.columns));
  l.columns_ = info.columns;
  l.detector_rows_ = info.rows;
  l.dtype_ = info.dtype;
  l.source_ = absl::StrCat(info.format, ": ", info.projections, " projections of ", info.rows,
                           " x ", info.columns, " (",
                           info.stored_type.empty() ? Info(info.dtype).name : info.stored_type,
                           "), ", info.flats, " flat and ", info.darks, " dark fields");

  PrepareConfig& p = l.prepare_ = spec.preparation.config;
  l.flats_ = spec.preparation.ignore_fields ? 0 : info.flats;
  l.darks_ = spec.preparation.ignore_fields ? 0 : info.darks;
  p.dtype = p.field_dtype = l.dtype_;
  p.packing = p.field_packing = info.packing;
  p.angles = l.projections_.count();
  p.columns = info.columns;
  p.flats = l.flats_;
  p.darks = l.darks_;
  p.crop_column = l.column_range_.begin;
  p.crop_columns = l.column_range_.end - l.column_range_.begin;
  if (spec.preparation.flats_in_time && l.flats_ > 0)
    OCTAVO_RETURN_IF_ERROR(SetSeries(info.flat_positions, l.projections_, &p));
  if (l.dynamic_flats()) OCTAVO_RETURN_IF_ERROR(l.SetDynamicFlats());
  if (l.stitched() && overlap > 0) p.stitching.overlap = overlap;
  l.overlap_unknown_ = l.stitched() && p.stitching.overlap == 0;
  if (l.overlap_unknown_ && spec.makes_sinograms())
    return InvalidField("tomography.preparation.stitching.overlap",
                        "is 0 (found) with output SINOGRAMS, whose width depends on it; allowed is "
                        "an overlap of 2 columns or more");
  if (l.overlap_unknown_) p.stitching.overlap = kLeastOverlap;
  OCTAVO_RETURN_IF_ERROR(l.SetRowShifts(info.projections));
  p.rows = l.rows_.count();  // for the margin, which does not depend on it
  p.roll.rows = info.rows;
  for (const absl::Status& checked :
       {CheckPhase(p.phase), CheckRoll(p), CheckShifts(p)}) {  // the margin follows
    if (!checked.ok()) return base::AtField("tomography.preparation.", checked);
  }
  l.margin_ = PrepareMargin(p);
  if (l.rows_.step > 1 && (l.margin_ > 0 || p.bin_rows > 1)) {
    return InvalidField("tomography.rows.step",
                        absl::StrCat("is ", l.rows_.step,
                                     "; allowed is 1 where outliers, roll, shifts of rows, phase "
                                     "retrieval or binning look at "
                                     "neighbouring "
                                     "rows"));
  }
  l.slices_ = l.rows_.count() / p.bin_rows;
  if (l.slices_ < 1)
    return InvalidField("tomography.rows",
                        absl::StrCat("has ", l.rows_.count(), " rows; binning needs ", p.bin_rows));
  const auto slice_of = [&](int64_t row, const char* field) -> absl::StatusOr<int64_t> {
    const int64_t slice =
        row < l.rows_.begin ? -1 : (row - l.rows_.begin) / (l.rows_.step * p.bin_rows);
    if (slice >= 0 && slice < l.slices_) return slice;
    return FieldOutOfRange(absl::StrCat("tomography.", field), row, l.rows_.begin, l.rows_.end - 1);
  };
  l.center_slice_ = l.slices_ / 2;
  if (spec.center.row.has_value()) {
    OCTAVO_ASSIGN_OR_RETURN(l.center_slice_, slice_of(*spec.center.row, "center.row"));
  }
  OCTAVO_RETURN_IF_ERROR(l.CheckAlongRows());
  const bool searched = spec.center.search_begin < spec.center.search_end;
  if (l.stitched()) {
    const std::string instead =
        "with stitching, where the overlap says where the axis is: give stitching.overlap, 0 = it "
        "is found";
    if (!spec.center.pixels.empty())
      return InvalidField("tomography.center.pixels", absl::StrCat("is given ", instead));
    if (spec.center.find)
      return InvalidField("tomography.center.search_method", absl::StrCat("is given ", instead));
    if (searched)
      return InvalidField("tomography.center.search_begin",
                          absl::StrCat("to search_end is given ", instead));
  }
  if (!spec.center.find && searched) {
    return InvalidField(
        "tomography.center.search_begin",
        "to search_end is given without a search; allowed with center.search_method");
  }
  if (!spec.center.find && !l.overlap_unknown_ && spec.center.fail_on_doubt) {
    return InvalidField("tomography.center.on_doubt",
                        "is FAIL without a search that could be in doubt; allowed with "
                        "center.search_method, or with stitching whose overlap is found");
  }
  if (spec.try_centers.has_value()) {
    if (l.stitched())
      return InvalidField("tomography.try_centers",
                          "is given with stitching, where the overlap says where the axis is");
    if (spec.center.find)
      return InvalidField("tomography.try_centers",
                          "is given together with center.search_method; allowed one of the two");
    if (spec.try_centers->row.has_value()) {
      OCTAVO_ASSIGN_OR_RETURN(l.center_slice_, slice_of(*spec.try_centers->row, "try_centers.row"));
    }
    for (int64_t i = 0; i < spec.try_centers->count(); ++i)
      l.tried_.push_back(spec.try_centers->begin + static_cast<double>(i) * spec.try_centers->step);
  }

  std::vector<double> angles;
  for (int64_t i = 0; i < l.projections_.count(); ++i) {
    angles.push_back(
        info.angles_rad[static_cast<size_t>(l.projections_.begin + i * l.projections_.step)]);
  }
  const PrepareConfig whole = l.PrepareFor(l.RowsOf(0, l.slices_), false);
  auto shape = CheckPrepare(whole);
  if (!shape.ok()) return base::AtField("tomography.preparation.", shape.status());
  l.detectors_ = shape->detectors;
  l.angles_rad_ = PreparedAngles(whole, angles);

  if (!spec.center.pixels.empty() && spec.center.pixels.size() != 1 &&
      std::ssize(spec.center.pixels) != l.slices_) {
    return InvalidField("tomography.center.pixels",
                        absl::StrCat("has ", spec.center.pixels.size(), " values; allowed 1 or ",
                                     l.slices_, ", one per slice"));
  }
  if (spec.center.find && spec.center.search_begin < spec.center.search_end &&
      (spec.center.search_begin < static_cast<double>(l.column_range_.begin) ||
       spec.center.search_end > static_cast<double>(l.column_range_.end - 1))) {
    return InvalidField(
        "tomography.center.search_begin",
        absl::StrCat("to search_end is ", spec.center.search_begin, " to ", spec.center.search_end,
                     "; allowed ", l.column_range_.begin, " to ", l.column_range_.end - 1));
  }
  // The tomopy form has its own; stitched projections have theirs by the overlap.
  if (spec.reconstruction.form != TomographyForm::kTomopy && !l.stitched() && !spec.center.find)
    l.input_axis_ = info.axis_column;
  l.reconstruct_ = spec.reconstruction;
  if (spec.makes_sinograms()) {
    l.image_rows_ = std::ssize(l.angles_rad_);
    l.image_columns_ = l.detectors_;
  } else {
    l.image_rows_ = l.image_columns_ =
        spec.reconstruction.image_size == 0 ? l.detectors_ : spec.reconstruction.image_size;
  }
  if (!l.tried_.empty()) l.slices_ = std::ssize(l.tried_);
  return l;
}

absl::Status TomographyLayout::SetRowShifts(int64_t projections) {
  const std::vector<double>& given = spec_->preparation.row_shifts;
  std::vector<double>& shifts = prepare_.shifts.rows;
  if (finds_drift()) {
    constexpr int64_t kLeastRows = 16;
    if (detector_rows_ < kLeastRows)
      return InvalidField("tomography.preparation.row_drift",
                          absl::StrCat("is given with a detector of ", detector_rows_,
                                       " rows; allowed from ", kLeastRows));
    shifts.assign(static_cast<size_t>(prepare_.angles), 0.0);  // found when the job runs
    return absl::OkStatus();
  }
  if (given.empty()) return absl::OkStatus();
  if (std::holds_alternative<model::PushedProjectionsSpec>(spec_->input))
    return InvalidField("tomography.preparation.row_shifts",
                        "is given with push, whose projections are not known yet; allowed is "
                        "row_drift");
  if (std::ssize(given) != projections)
    return InvalidField("tomography.preparation.row_shifts",
                        absl::StrCat("has ", given.size(),
                                     " values; allowed one per projection of "
                                     "the input (",
                                     projections, ")"));
  for (int64_t i = 0; i < prepare_.angles; ++i) {
    const int64_t projection = projections_.begin + i * projections_.step;
    const double shift = given[static_cast<size_t>(projection)];
    // Every row would be the outermost one.
    if (!(std::abs(shift) < static_cast<double>(detector_rows_))) {
      return FieldNotAllowed(
          absl::StrCat("tomography.preparation.row_shifts[", projection, "]"), shift,
          absl::StrCat("above -", detector_rows_, " and below ", detector_rows_,
                       ", the rows of the detector, so that measured ones remain"));
    }
    shifts.push_back(shift);
  }
  return absl::OkStatus();
}

TomographyLayout TomographyLayout::WithRowShifts(std::vector<double> shifts) const {
  TomographyLayout with = *this;
  with.prepare_.shifts.rows = std::move(shifts);
  return with;
}

absl::StatusOr<TomographyLayout> TomographyLayout::ForProfiles() const {
  TomographyLayout profile = *this;
  auto spec = std::make_shared<model::TomographySpec>(*spec_);
  spec->preparation.finds_drift = false;
  spec->output = model::TomographyOutput::kSinograms;
  profile.spec_ = std::move(spec);
  PrepareConfig& p = profile.prepare_;
  p.shifts = {};
  p.bin_rows = p.bin_columns = p.bin_angles = 1;
  p.phase = {};
  p.beam_hardening.clear();
  p.rings.clear();
  p.stitching = {};
  profile.rows_ = {.begin = 0, .end = detector_rows_, .step = 1};
  profile.tried_.clear();
  p.rows = detector_rows_;
  profile.margin_ = PrepareMargin(p);
  profile.slices_ = detector_rows_;
  const PrepareConfig whole = profile.PrepareFor(profile.RowsOf(0, 1), false);
  auto shape = CheckPrepare(whole);
  if (!shape.ok()) return base::AtField("tomography.preparation.", shape.status());
  profile.detectors_ = profile.image_columns_ = shape->detectors;
  profile.image_rows_ = shape->angles;
  return profile;
}

absl::Status TomographyLayout::SetDynamicFlats() {
  const char* const field = "tomography.preparation.dynamic_flats";
  const int64_t asked = spec_->preparation.flat_components;
  if (flats_ < 2 || flats_ > FlatComponentsConfig::kMostFlats) {
    return InvalidField(
        field, absl::StrCat("is given, but the input has ", flats_,
                            flats_ == 1 ? " flat field" : " flat fields", "; allowed are 2 to ",
                            FlatComponentsConfig::kMostFlats));
  }
  const int64_t most = std::min<int64_t>(flats_ - 1, math::kMostFlatComponents);
  if (asked > most)
    return InvalidField(absl::StrCat(field, ".components"),
                        absl::StrCat("is ", asked, " with ", flats_, " flat fields; allowed 0 to ",
                                     most, ", less than the flat fields"));
  const int64_t components = asked == 0 ? most : asked;
  // The weights are found when the job runs.
  prepare_.flat_components = {
      .components = components,
      .mixture = std::vector<double>(static_cast<size_t>(flats_ * components), 0.0),
      .weights = std::vector<double>(static_cast<size_t>(prepare_.angles * components), 0.0)};
  return absl::OkStatus();
}

std::vector<int64_t> TomographyLayout::FlatGroups() const {
  const int64_t most = MostFlatRows(columns_);
  if (detector_rows_ <= most) return {0};
  const int64_t groups = most / kFlatGroupRows;
  std::vector<int64_t> first;
  for (int64_t i = 0; i < groups; ++i)
    first.push_back((2 * i + 1) * (detector_rows_ - kFlatGroupRows) / (2 * groups));
  return first;
}

FlatComponentsConfig TomographyLayout::FlatSearch() const {
  constexpr int64_t kBytes = int64_t{32} << 20;
  const bool all = detector_rows_ <= MostFlatRows(columns_);
  const int64_t groups = std::ssize(FlatGroups()),
                group_rows = all ? detector_rows_ : kFlatGroupRows;
  const int64_t frame = groups * group_rows * columns_ * SizeOf(dtype_);
  return {.dtype = dtype_,
          .flats = flats_,
          .darks = darks_,
          .columns = columns_,
          .groups = groups,
          .group_rows = group_rows,
          .frames_at_once =
              std::clamp<int64_t>(kBytes / frame, 1, std::max({flats_, darks_, frames()})),
          .components = spec_->preparation.flat_components,
          .outliers = prepare_.outliers};
}

TomographyLayout TomographyLayout::WithFlatComponents(FlatComponents found) const {
  TomographyLayout with = *this;
  with.prepare_.flat_components = std::move(found);
  return with;
}

absl::Status TomographyLayout::CheckAlongRows() const {
  const model::RotationCenterSpec& center = spec_->center;
  if (!center.searches_line()) return absl::OkStatus();
  const char* const how = center.along_rows == model::AlongRows::kLine ? "LINE" : "TURN";
  if (!center.find) {
    return InvalidField("tomography.center.along_rows",
                        absl::StrCat("is ", how,
                                     " without a search that finds how the axis leans; allowed "
                                     "with center.search_method"));
  }
  if (center.row.has_value()) {
    return InvalidField("tomography.center.row",
                        absl::StrCat("is ", *center.row, " with center.along_rows ", how,
                                     ", which looks at rows all over the detector; allowed is one "
                                     "of the two"));
  }
  if (slices_ < kLeastGroups) {
    return InvalidField(
        "tomography.center.along_rows",
        absl::StrCat("is ", how, " with ", slices_, slices_ == 1 ? " slice" : " slices",
                     "; allowed from ", kLeastGroups, ", because fewer do not tell a line"));
  }
  if (center.along_rows != model::AlongRows::kTurn) return absl::OkStatus();
  if (prepare_.roll.degrees != 0) {
    return InvalidField("tomography.preparation.roll_degrees",
                        absl::StrCat("is ", prepare_.roll.degrees,
                                     " with center.along_rows TURN, which finds it; allowed is 0, "
                                     "or center.along_rows LINE"));
  }
  if (rows_.step > 1) {
    return InvalidField("tomography.rows.step",
                        absl::StrCat("is ", rows_.step,
                                     " with center.along_rows TURN, whose turned rows are made of "
                                     "neighbouring ones; allowed is 1"));
  }
  return absl::OkStatus();
}

TomographyLayout TomographyLayout::Turned(double degrees) const {
  TomographyLayout turned = *this;
  auto spec = std::make_shared<model::TomographySpec>(*spec_);
  spec->center.along_rows = model::AlongRows::kOne;  // it is found
  spec->preparation.config.roll.degrees = degrees;
  turned.spec_ = std::move(spec);
  PrepareConfig reach = prepare_;
  reach.roll.degrees = *std::find_if(std::begin(kTurns), std::end(kTurns) - 1,
                                     [&](double most) { return std::abs(degrees) <= most; });
  turned.margin_ = PrepareMargin(reach);
  turned.prepare_.roll.degrees = degrees;
  return turned;
}

double TomographyLayout::RowOfSlice(double slice) const {
  const auto bin = static_cast<double>(prepare_.bin_rows);
  return static_cast<double>(rows_.begin) + slice * static_cast<double>(rows_.step) * bin +
         0.5 * (bin - 1);
}

BatchRows TomographyLayout::RowsOf(int64_t first, int64_t count) const {
  const int64_t bin = prepare_.bin_rows;
  if (rows_.step > 1) {
    return {.first = rows_.begin + first * rows_.step,
            .count = count,
            .step = rows_.step,
            .crop = 0,
            .crop_rows = count};
  }
  const int64_t begin = rows_.begin + first * bin, end = begin + count * bin;
  const int64_t from = std::max<int64_t>(0, begin - margin_),
                to = std::min(detector_rows_, end + margin_);
  return {
      .first = from, .count = to - from, .step = 1, .crop = begin - from, .crop_rows = end - begin};
}

PrepareConfig TomographyLayout::PrepareFor(const BatchRows& rows, bool for_overlap) const {
  PrepareConfig config = prepare_;
  config.rows = rows.count;
  config.crop_row = rows.crop;
  config.crop_rows = rows.crop_rows;
  config.roll.first_row = rows.first;
  if (for_overlap) {
    config.stitching.enabled = false;
    config.rings.clear();
  }
  return config;
}

absl::StatusOr<PreparedShape> TomographyLayout::PreparedFor(const BatchRows& rows,
                                                            bool for_overlap) const {
  auto shape = CheckPrepare(PrepareFor(rows, for_overlap));
  if (!shape.ok()) return base::AtField("tomography.preparation.", shape.status());
  return shape;
}

int64_t TomographyLayout::RawBytes(const BatchRows& rows) const {
  return frames() * rows.count * raw_row_bytes();
}
int64_t TomographyLayout::FieldBytes(const BatchRows& rows) const {
  return (flats_ + darks_) * rows.count * raw_row_bytes();
}

TomographyConfig TomographyLayout::ReconstructFor(int64_t first, int64_t count,
                                                  const std::vector<double>& centers) const {
  TomographyConfig config = reconstruct_;
  config.angles_rad = angles_rad_;
  config.detectors = detectors_;
  config.slices = count;
  config.image_size = image_columns_;
  config.centers.clear();
  // The tomopy form has the axis in the middle always.
  if (config.form == TomographyForm::kTomopy) return config;
  if (centers.size() == 1) {
    config.centers.push_back(PreparedCenterOf(centers[0]));
  } else {
    for (int64_t i = 0; i < count; ++i)
      config.centers.push_back(PreparedCenterOf(centers[static_cast<size_t>(first + i)]));
    for (const double center : centers) config.padding_centers.push_back(PreparedCenterOf(center));
  }
  return config;
}

TomographyConfig TomographyLayout::BackProjectionFor(int64_t first, int64_t count,
                                                     const std::vector<double>& centers) const {
  TomographyConfig config = ReconstructFor(first, count, centers);
  config.algorithm = TomographyAlgorithm::kFbp;
  config.form = TomographyForm::kCorrected;
  // What only the job's own algorithm has would be refused.
  config.subsets = 1;
  config.relaxation = 1;
  config.tv_weight = 0;
  config.support = 1;
  config.has_min = config.has_max = false;
  config.fourier_accuracy = TomographyConfig::kUsualAccuracy;
  return config;
}

TomographyConfig TomographyLayout::TrialFor(int64_t slice,
                                            const std::vector<double>& centers) const {
  return IsIterative(reconstruct_.algorithm) && reconstruct_.form == TomographyForm::kCorrected
             ? BackProjectionFor(slice, 1, centers)
             : ReconstructFor(slice, 1, centers);
}

std::vector<double> TomographyLayout::GivenCenters() const {
  if (!tried_.empty()) return tried_;
  if (!spec_->center.pixels.empty()) return spec_->center.pixels;
  if (input_axis_.has_value()) return {*input_axis_};
  return {RawCenter(0.5 * static_cast<double>(detectors_ - 1))};
}

model::CenterSource TomographyLayout::GivenSource() const {
  if (!tried_.empty() || !spec_->center.pixels.empty()) return model::CenterSource::kGiven;
  return input_axis_.has_value() ? model::CenterSource::kFile : model::CenterSource::kMiddle;
}

double TomographyLayout::PreparedCenterOf(double raw) const {
  return PreparedCenter(prepare_, raw);
}

double TomographyLayout::RawCenter(double prepared) const {
  if (stitched()) return prepared;  // no raw column corresponds to it
  const double zero = PreparedCenter(prepare_, 0), slope = PreparedCenter(prepare_, 1) - zero;
  return (prepared - zero) / slope;
}

AxisConfig TomographyLayout::AxisSearch(int64_t slices) const {
  AxisConfig axis{
      .search = spec_->center.search,
      .automatic = spec_->center.automatic,
      .agreement = 1 / static_cast<double>(prepare_.bin_columns)};  // a column of the detector
  CenterConfig& config = axis.search;
  config.angles_rad = angles_rad_;
  config.slices = slices;
  config.detectors = detectors_;
  const double middle = 0.5 * static_cast<double>(detectors_ - 1);
  if (spec_->center.search_begin < spec_->center.search_end) {
    config.search_min = PreparedCenterOf(spec_->center.search_begin) - middle;
    config.search_max = PreparedCenterOf(spec_->center.search_end) - middle;
  } else if (config.method == CenterMethod::kPairs) {
    config.search_min = -middle;
    config.search_max = middle;
  } else {
    config.search_min /= static_cast<double>(prepare_.bin_columns);
    config.search_max /= static_cast<double>(prepare_.bin_columns);
  }
  return axis;
}

AxisResult TomographyLayout::RawAxis(AxisResult prepared) const {
  prepared.found.center = RawCenter(prepared.found.center);
  prepared.found.uncertainty *= static_cast<double>(prepare_.bin_columns);
  for (double& center : prepared.found.centers) center = RawCenter(center);
  if (prepared.check.has_value()) prepared.check = RawCenter(*prepared.check);
  return prepared;
}

bool TomographyLayout::may_widen() const {
  const TomographyConfig& c = reconstruct_;
  const bool mlem_from_image = c.algorithm == TomographyAlgorithm::kMlem &&
                               !spec_->initial_volume.empty();  // zeros around it stay 0
  return IsIterative(c.algorithm) && c.form == TomographyForm::kCorrected &&
         c.padding == TomographyConfig::kAutomaticPadding && c.mask_ratio == 1 && !mlem_from_image;
}

bool TomographyLayout::back_projects() const {
  return !makes_sinograms() && !IsIterative(reconstruct_.algorithm) &&
         reconstruct_.form == TomographyForm::kCorrected;
}

TomographyLayout TomographyLayout::Widened(double support) const {
  TomographyLayout wider = *this;
  wider.reconstruct_.support = support;
  return wider;
}

absl::StatusOr<TomographyLayout> TomographyLayout::ForProjections(
    const model::IndexRange& projections, const storage::ProjectionInfo& info) const {
  model::TomographySpec spec = *spec_;
  spec.projections = projections;
  OCTAVO_ASSIGN_OR_RETURN(
      TomographyLayout other,
      Make(spec, info, stitched() && !overlap_unknown_ ? prepare_.stitching.overlap : 0));
  other.reconstruct_.support = reconstruct_.support;
  other.margin_ = margin_;  // rows are read as far, whatever the turn was found to be
  return other;
}

absl::StatusOr<TomographyLayout> TomographyLayout::Sparse(
    const storage::ProjectionInfo& info) const {
  model::TomographySpec spec = *spec_;
  PrepareConfig& p = spec.preparation.config;
  p.stitching.enabled = false;
  p.rings.clear();
  p.bin_angles = 1;
  const int64_t every = std::max<int64_t>(1, projections_.count() / kSparseProjections);
  spec.projections.step = projections_.step * every;
  OCTAVO_ASSIGN_OR_RETURN(TomographyLayout sparse, Make(spec, info, 0));
  // Each of its projections has the shift and the open beam that it has among all.
  if (finds_drift()) {
    std::vector<double> shifts;
    for (int64_t i = 0; i < sparse.frames(); ++i)
      shifts.push_back(row_shifts()[static_cast<size_t>(i * every)]);
    sparse = sparse.WithRowShifts(std::move(shifts));
  }
  if (!dynamic_flats()) return sparse;
  const FlatComponents& all = prepare_.flat_components;
  FlatComponents some{.components = all.components, .mixture = all.mixture, .weights = {}};
  for (int64_t i = 0; i < sparse.frames(); ++i) {
    const auto from = all.weights.begin() + i * every * all.components;
    some.weights.insert(some.weights.end(), from, from + all.components);
  }
  return sparse.WithFlatComponents(std::move(some));
}

double TomographyLayout::UnjoinedCenter(double center) const {
  if (!stitched()) return center;
  const double from_end = 0.5 * (prepare_.stitching.overlap - 1),
               last = static_cast<double>(OverlapSearch().detectors - 1);
  return prepare_.stitching.axis_right ? last - from_end : from_end;
}

OverlapConfig TomographyLayout::OverlapSearch() const {
  OverlapConfig config;
  config.angles = projections_.count() / prepare_.bin_angles;
  config.detectors = (column_range_.end - column_range_.begin) / prepare_.bin_columns;
  config.half_turn = prepare_.stitching.half_turn;
  config.axis_right = prepare_.stitching.axis_right;
  return config;
}

int64_t TomographyLayout::MostSearchSlices() const {
  const CenterMethod method = spec_->center.search.method;
  const bool of_pairs = method == CenterMethod::kPairs || method == CenterMethod::kPhaseCorrelation;
  return spec_->center.find && of_pairs && tried_.empty() ? kMostGroupSlices : 1;
}

std::vector<SliceGroup> TomographyLayout::search_groups() const {
  if (spec_->center.searches_line()) return line_groups();
  return {{.first = center_slice_, .count = std::min(slices_ - center_slice_, MostSearchSlices())}};
}

std::vector<SliceGroup> TomographyLayout::line_groups() const {
  const int64_t most = MostSearchSlices();
  const int64_t count = std::min(slices_, kMostGroups), size = std::min(most, slices_ / count);
  std::vector<SliceGroup> groups;
  for (int64_t i = 0; i < count; ++i) {
    // In the middle of each part of the slices.
    const int64_t begin = i * slices_ / count, end = (i + 1) * slices_ / count;
    groups.push_back({.first = begin + (end - begin - size) / 2, .count = size});
  }
  return groups;
}

int64_t TomographyLayout::check_slices() const {
  constexpr int64_t kChecked = 4, kLeastColumns = 16;
  if (stitched()) return overlap_unknown_ || !tried_.empty() || makes_sinograms() ? 0 : 1;
  const bool looks = !spec_->center.find && tried_.empty() && !makes_sinograms() &&
                     spec_->reconstruction.form != TomographyForm::kTomopy;
  return looks && detectors_ >= kLeastColumns ? std::min(slices_ - center_slice_, kChecked) : 0;
}

AxisConfig TomographyLayout::AxisCheck(int64_t slices) const {
  AxisConfig axis = AxisSearch(slices);
  axis.automatic = true;
  axis.search.method = CenterMethod::kPairs;
  axis.search.search_max = 0.5 * static_cast<double>(detectors_ - 1);
  axis.search.search_min = -axis.search.search_max;
  return axis;
}

std::string TomographyLayout::Text() const {
  static constexpr const char* kAlgorithms[] = {
      "SIRT", "MLEM", "CGLS", "FBP", "FOURIER", "AUTO (FOURIER or FBP)", "TV"};
  static constexpr const char* kMethods[] = {"Vo", "entropy", "phase correlation",
                                             "opposite projections"};
  const PrepareConfig& p = prepare_;
  std::string text = absl::StrCat("input: ", source_, "\n");
  absl::StrAppend(&text, "used: ", projections_.count(), " projections, rows ", rows_.begin, " to ",
                  rows_.end - 1, rows_.step > 1 ? absl::StrCat(" by ", rows_.step) : "",
                  ", columns ", column_range_.begin, " to ", column_range_.end - 1, "\n");
  if (p.outliers.window > 0)
    absl::StrAppend(&text, "outliers: median of ", p.outliers.window, " x ", p.outliers.window,
                    "\n");
  if (flats_ + darks_ > 0) {
    absl::StrAppend(&text, "fields: ", flats_, " flat (",
                    p.flat_average == FieldAverage::kMean ? "mean" : "median",
                    p.flat_series.size() > 1
                        ? absl::StrCat(", ", p.flat_series.size(), " series, interpolated in time")
                        : "",
                    dynamic_flats() ? ", of each projection by its principal components" : "",
                    "), ", darks_, " dark (",
                    p.dark_average == FieldAverage::kMean ? "mean" : "median", ")\n");
  }
  if (finds_drift())
    absl::StrAppend(&text, "shifts along the rotation axis are found, up to ", p.shifts.most,
                    " rows, and undone\n");
  if (!spec_->preparation.row_shifts.empty()) {
    const auto [least, most] = std::minmax_element(p.shifts.rows.begin(), p.shifts.rows.end());
    absl::StrAppend(&text, "shifts along the rotation axis: ", *least, " to ", *most,
                    " rows, as given\n");
  }
  if (p.roll.degrees != 0)
    absl::StrAppend(&text, "roll: projections are turned by ", p.roll.degrees, " degrees\n");
  if (p.bin_rows * p.bin_columns * p.bin_angles > 1) {
    absl::StrAppend(&text, "binning: ", p.bin_angles, " projections x ", p.bin_rows, " rows x ",
                    p.bin_columns, " columns\n");
  }
  if (p.phase.enabled)
    absl::StrAppend(&text, "phase retrieval (", NameOf(p.phase.method), "): delta/beta ",
                    p.phase.delta_beta, ", ", p.phase.distance_mm, " mm, ", p.phase.energy_kev,
                    " keV\n");
  if (p.air_left + p.air_right > 0)
    absl::StrAppend(&text, "air: ", p.air_left, " columns on the left, ", p.air_right,
                    " on the right\n");
  if (p.minus_log) absl::StrAppend(&text, "minus logarithm\n");
  if (!p.beam_hardening.empty())
    absl::StrAppend(&text, "beam hardening: polynomial of ", p.beam_hardening.size(), " terms\n");
  for (const RingRemoval& ring : p.rings)
    absl::StrAppend(&text, "rings: ", NameOf(ring.method), "\n");
  if (stitched())
    absl::StrAppend(&text, "stitching: 360 to 180 degrees, overlap ",
                    overlap_unknown() ? "is found" : absl::StrCat(p.stitching.overlap), "\n");
  if (!tried_.empty()) {
    absl::StrAppend(&text, "axis: ", tried_.size(), " tried, ", tried_.front(), " to ",
                    tried_.back(), "\n");
  } else if (spec_->center.find && !stitched()) {
    absl::StrAppend(&text, "axis: is found (",
                    kMethods[static_cast<int>(spec_->center.search.method)], ")",
                    spec_->center.along_rows == model::AlongRows::kLine
                        ? absl::StrCat(" as a line, in ", search_groups().size(),
                                       " groups of rows; each slice has its own")
                    : spec_->center.along_rows == model::AlongRows::kTurn
                        ? absl::StrCat(" as a line, in ", search_groups().size(),
                                       " groups of rows; projections are turned")
                        : "",
                    "\n");
  } else if (!stitched() && !makes_sinograms()) {
    absl::StrAppend(&text, "axis: ",
                    spec_->center.pixels.size() > 1 ? "one per slice"
                    : !spec_->center.pixels.empty() ? absl::StrCat(spec_->center.pixels[0])
                    : input_axis_.has_value() ? absl::StrCat(*input_axis_, ", as the file says")
                                              : "the middle",
                    "\n");
  }
  if (makes_sinograms()) {
    absl::StrAppend(&text, "output: ", slices_, " sinograms of ", image_rows_, " angles x ",
                    image_columns_, " columns, not reconstructed\n");
    return text;
  }
  absl::StrAppend(&text, kAlgorithms[static_cast<int>(reconstruct_.algorithm)],
                  reconstruct_.form == TomographyForm::kTomopy ? " as TomoPy's" : "");
  if (IsIterative(reconstruct_.algorithm))
    absl::StrAppend(&text, ", ", reconstruct_.iterations, " iterations");
  if (reconstruct_.subsets > 1) absl::StrAppend(&text, " of ", reconstruct_.subsets, " subsets");
  absl::StrAppend(
      &text, ": ", slices_, " slices of ", image_rows_, " x ", image_columns_, " from ",
      angles_rad_.size(), " angles over ",
      absl::StrFormat("%.1f", angles_rad_.empty()
                                  ? 0.0
                                  : (*std::max_element(angles_rad_.begin(), angles_rad_.end()) -
                                     *std::min_element(angles_rad_.begin(), angles_rad_.end())) *
                                        180 / kPi),
      " degrees\n");
  return text;
}

absl::Status AtReconstruction(const absl::Status& status) {
  static constexpr std::string_view kOfTheJob[] = {"angles_rad", "detectors",   "slices",
                                                   "centers",    "projections", "initial"};
  const std::string field = InfoOf(status).field;
  const bool of_the_job =
      std::find(std::begin(kOfTheJob), std::end(kOfTheJob), field) != std::end(kOfTheJob);
  return base::AtField(of_the_job ? "tomography." : "tomography.reconstruction.", status);
}

namespace {

/// The slices of a batch, with the axis anywhere it may be.
absl::StatusOr<int64_t> BytesOfReconstruction(const TomographyLayout& layout,
                                              const std::vector<std::vector<double>>& possible,
                                              int64_t slices, double support, Device& device) {
  int64_t most = 0;
  for (const auto& centers : possible) {
    TomographyConfig config = layout.ReconstructFor(0, slices, centers);
    config.support = support;
    OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, Reconstructor::DeviceBytes(config, device));
    most = std::max(most, bytes);
    if (config.padding_centers.empty()) continue;
    // The slices of a batch may have one axis, and then share their lanes.
    config.centers.resize(1);
    OCTAVO_ASSIGN_OR_RETURN(const int64_t shared, Reconstructor::DeviceBytes(config, device));
    most = std::max(most, shared);
  }
  return most;
}

absl::StatusOr<int64_t> BytesOfTrial(const TomographyLayout& layout,
                                     const std::vector<std::vector<double>>& possible,
                                     Device& device) {
  int64_t most = 0;
  for (const auto& centers : possible) {
    OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes,
                            Reconstructor::DeviceBytes(layout.TrialFor(0, centers), device));
    most = std::max(most, bytes);
  }
  return most;
}

/// For projections that are turned as the layout says.
absl::StatusOr<TomographyMemory> MemoryOf(const TomographyLayout& layout,
                                          const model::TomographySpec& spec, Device& device,
                                          int64_t slices, double support, bool checks,
                                          LiveKind live, bool on_disk, bool previews,
                                          MemoryBook& book) {
  TomographyMemory m;
  const auto at = [](const absl::StatusOr<int64_t>& bytes) -> absl::StatusOr<int64_t> {
    return bytes.ok() ? bytes : AtReconstruction(bytes.status());
  };
  const bool tries = !layout.tried().empty();
  m.slices_per_batch = slices;
  // Batches differ in the part of the margin that lies on the detector.
  int64_t of_slice = 0;  // bytes of a sinogram
  std::set<std::tuple<int64_t, int64_t, int64_t>> known;
  for (int64_t first = tries ? layout.center_slice() : 0;
       first < (tries ? layout.center_slice() + 1 : layout.slices()); first += slices) {
    const BatchRows rows =
        layout.RowsOf(first, tries ? 1 : std::min(slices, layout.slices() - first));
    if (!known.insert({rows.count, rows.crop, rows.crop_rows}).second) continue;
    m.raw = std::max(m.raw, layout.RawBytes(rows));
    m.fields = std::max(m.fields, layout.FieldBytes(rows));
    OCTAVO_ASSIGN_OR_RETURN(const PreparedShape shape, layout.PreparedFor(rows, false));
    OCTAVO_ASSIGN_OR_RETURN(const int64_t prepare,
                            at(Preparer::DeviceBytes(layout.PrepareFor(rows, false), device)));
    m.prepare = std::max(m.prepare, prepare);
    of_slice = shape.elements() / shape.slices * 4;
  }
  // Sinograms that are the result are prepared in its memory.
  m.sinograms = layout.makes_sinograms() ? 0 : of_slice * (slices + (tries ? 1 : 0));
  // If the job searches the axis, it may be anywhere, which affects the padding.
  std::vector<std::vector<double>> possible;
  if (!layout.makes_sinograms()) possible.push_back(layout.GivenCenters());
  if (spec.center.find && !layout.stitched() && !layout.makes_sinograms()) {
    const double last = static_cast<double>(layout.AxisSearch(1).search.detectors - 1);
    for (const double end : {0.0, last}) possible.push_back({layout.RawCenter(end)});
    if (spec.center.searches_line()) {  // or each slice has its own
      for (const double center : {0.0, 0.5 * last, last}) {
        possible.emplace_back(static_cast<size_t>(layout.slices()), layout.RawCenter(center));
        possible.back().front() += 1e-6;  // not one for all
      }
    }
  }
  if (layout.may_widen()) m.support = support;
  OCTAVO_ASSIGN_OR_RETURN(
      m.reconstruct, at(book.Once(MemoryBook::Step::kReconstruct, slices, m.support, [&] {
        return BytesOfReconstruction(layout, possible, slices, m.support, device);
      })));
  const bool converted = spec.samples.type != DType::kF32;
  if (on_disk || converted) m.images = slices * layout.image_bytes();
  if (converted) m.images += kCountBytes + (on_disk ? slices * layout.stored_image_bytes() : 0);
  if (!spec.initial_volume.empty()) m.initial = slices * layout.image_bytes();
  // Sinograms are shown, and looked at, where they are.
  if ((previews || spec.samples.found()) && !layout.makes_sinograms())
    m.preview = layout.image_bytes();
  const int64_t of_batches = m.raw + m.fields + m.prepare + m.sinograms + m.reconstruct + m.images;
  if (spec.samples.found() || spec.half_turn == model::HalfTurn::kBest) {
    // The rows in which half turns are compared come before the batches, and so do the trial
    // slices, which are made in the memory of the preview.
    const BatchRows row = layout.RowsOf(layout.center_slice(), 1);
    OCTAVO_ASSIGN_OR_RETURN(const int64_t prepare,
                            at(Preparer::DeviceBytes(layout.PrepareFor(row, false), device)));
    int64_t trial = 0;
    if (spec.samples.found()) {
      OCTAVO_ASSIGN_OR_RETURN(trial, at(book.Once(MemoryBook::Step::kTrial, 1, 1, [&] {
                                return BytesOfTrial(layout, possible, device);
                              })));
    }
    m.search = std::max<int64_t>(
        0, layout.RawBytes(row) + layout.FieldBytes(row) + prepare + of_slice + trial - of_batches);
  }
  // Planes that are shown while projections come are gone before the batches, too.
  const bool pushed = std::holds_alternative<model::PushedProjectionsSpec>(spec.input);
  if (pushed && previews && !layout.stitched() && !layout.makes_sinograms() && !tries) {
    m.live = live;
    OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, at(LiveBytes(layout, live, device)));
    m.search = std::max(m.search, bytes - of_batches);
  }
  // The open beam of each projection is found before all that.
  OCTAVO_ASSIGN_OR_RETURN(const int64_t flats, FlatFinderBytes(layout, device));
  m.search = std::max(m.search, flats - of_batches);
  OCTAVO_ASSIGN_OR_RETURN(const int64_t drift, DriftFinderBytes(layout, device));
  m.search = std::max(m.search, drift - of_batches);
  // The search has its own raw data, fields and sinograms; it ends before the batches begin, and
  // its memory is small.
  m.check_slices = checks ? layout.check_slices() : 0;
  if (!tries && (spec.center.find || layout.overlap_unknown() || m.check_slices > 0)) {
    // Turned projections are searched once more.
    std::vector<SliceGroup> groups =
        spec.center.searches_line() ? layout.line_groups() : layout.search_groups();
    if (m.check_slices > 0) groups = {{.first = layout.center_slice(), .count = m.check_slices}};
    const bool of_overlap = layout.overlap_unknown() || (layout.stitched() && m.check_slices > 0);
    for (const SliceGroup& group : groups) {
      const BatchRows looked = layout.RowsOf(group.first, group.count);
      OCTAVO_ASSIGN_OR_RETURN(const PreparedShape one, layout.PreparedFor(looked, of_overlap));
      OCTAVO_ASSIGN_OR_RETURN(
          const int64_t prepare,
          at(Preparer::DeviceBytes(layout.PrepareFor(looked, of_overlap), device)));
      int64_t find = 0;
      if (of_overlap) {
        OCTAVO_ASSIGN_OR_RETURN(find, at(FindOverlapBytes(layout.OverlapSearch(), device)));
      } else {
        const bool search = m.check_slices == 0;
        const auto bytes = book.Once(
            search ? MemoryBook::Step::kSearch : MemoryBook::Step::kCheck, one.slices, 1, [&] {
              return FindAxisBytes(
                  search ? layout.AxisSearch(one.slices) : layout.AxisCheck(one.slices), device);
            });
        if (!bytes.ok() && search) return AtAxisField(bytes.status());
        if (!bytes.ok()) {
          m.check_slices = 0;
          return m;
        }
        find = *bytes;  // scans without information about their axis are not checked
      }
      m.search = std::max<int64_t>(m.search, layout.RawBytes(looked) + layout.FieldBytes(looked) +
                                                 prepare + one.elements() * 4 + find - of_batches);
    }
  }
  return m;
}

}  // namespace

absl::StatusOr<TomographyMemory> MemoryFor(const TomographyLayout& layout,
                                           const model::TomographySpec& spec, Device& device,
                                           int64_t slices, double support, bool checks,
                                           LiveKind live, bool on_disk, bool previews,
                                           MemoryBook& book) {
  OCTAVO_ASSIGN_OR_RETURN(TomographyMemory most, MemoryOf(layout, spec, device, slices, support,
                                                          checks, live, on_disk, previews, book));
  if (spec.center.along_rows != model::AlongRows::kTurn) return most;
  // The first search has projections as they are. Further ones, and the batches, may have turned
  // ones, whose margin is known when the axis is found.
  for (const double degrees : kTurns) {
    OCTAVO_ASSIGN_OR_RETURN(const TomographyMemory turned,
                            MemoryOf(layout.Turned(degrees), spec, device, slices, support,
                                     /*checks=*/false, LiveKind::kNone, on_disk, previews, book));
    for (const auto part :
         {&TomographyMemory::raw, &TomographyMemory::fields, &TomographyMemory::prepare,
          &TomographyMemory::sinograms, &TomographyMemory::reconstruct, &TomographyMemory::images,
          &TomographyMemory::initial, &TomographyMemory::search, &TomographyMemory::preview})
      most.*part = std::max(most.*part, turned.*part);
  }
  return most;
}

}  // namespace octavo::tomography

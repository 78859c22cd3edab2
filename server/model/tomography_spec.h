#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gpu/device/dtype.h"
#include "gpu/math/raw.h"
#include "gpu/tomography/center.h"
#include "gpu/tomography/preprocess.h"
#include "gpu/tomography/reconstruct.h"
#include "server/storage/projections/projection_input.h"

// A client's specification of a tomography job: the server's counterpart of
// octavo.v1.TomographyJob. 0 and empty mean "choose".
namespace octavo::model {

/// All fields as in octavo.v1.ProjectionFile.
struct ProjectionFileSpec {
  std::string path;
  storage::ProjectionOptions options;  // angle_values: the angles of the job
};

/// All fields as in octavo.v1.ProjectionMosaic.
struct ProjectionMosaicSpec {
  struct Tile {
    ProjectionFileSpec file;
    double first_column = 0, first_row = 0;
  };
  std::vector<Tile> tiles;
  int64_t search = 0;
};

/// All fields as in octavo.v1.ProjectionArrays.
struct ProjectionArraysSpec {
  std::string projections, flats, darks;
  bool sinogram_order = false;
};

enum class MissingFrames : uint8_t {
  kDefault = 0,
  kReconstructAnyway = 1,
  kFailJob = 2
};  // as octavo.v1.MissingFrames

/// All fields as in octavo.v1.PushedProjections; 0 means "choose".
struct PushedProjectionsSpec {
  int64_t rows = 0, columns = 0;
  int64_t frames = 0;
  DType dtype = DType::kU16;                     // of the pixels, once they are unpacked
  math::Packing packing = math::Packing::kNone;  // of each row; not kNone: dtype is kU16
  double pixel_size_um = 0;
  int64_t credit_messages = 0;
  double idle_timeout_s = 0;
  MissingFrames on_missing = MissingFrames::kDefault;

  /// Of a row, and of a frame, as they are sent and kept.
  int64_t row_bytes() const { return math::PackedBytes(packing, columns, SizeOf(dtype)); }
  int64_t frame_bytes() const { return rows * row_bytes(); }
};

/// [begin, end), every `step`-th; end 0 = to the end, step 0 = 1.
struct IndexRange {
  int64_t begin = 0, end = 0, step = 0;
  int64_t count() const {
    return end <= begin ? 0 : (end - begin + step - 1) / step;
  }  // of a resolved one
};

/// How an axis that leans in the plane of the detector is honoured. Values as in
/// octavo.v1.RotationCenter.AlongRows.
enum class AlongRows : uint8_t { kDefault, kOne, kLine, kTurn };

/// All fields as in octavo.v1.RotationCenter.
struct RotationCenterSpec {
  std::vector<double> pixels;
  bool find = false, automatic = false, fail_on_doubt = false;
  bool unless_in_file = false;  // find = false if the input has an axis of its own
  CenterConfig search;          // the job fills in angles, slices, detectors and range
  std::optional<int64_t> row;
  double search_begin = 0, search_end = 0;
  AlongRows along_rows = AlongRows::kDefault;

  /// Whether the axis is searched in several groups of rows.
  bool searches_line() const {
    return along_rows == AlongRows::kLine || along_rows == AlongRows::kTurn;
  }
};

/// All fields as in octavo.v1.TomographyPreparation; the job fills in types, counts, crop and
/// times.
struct PreparationSpec {
  PrepareConfig config;
  bool ignore_fields = false, flats_in_time = false;
  bool already_sinograms = false;  // the input holds them
  bool dynamic_flats = false;      // the beam changes during the scan
  int64_t flat_components = 0;     // with dynamic_flats; 0 = found
  bool finds_drift = false;        // along the rotation axis: config.shifts.most
  std::vector<double> row_shifts;  // given, one per projection of the input

  /// Whether prepared values are integrals of the attenuation along rays; else transmissions.
  bool integrals() const { return config.minus_log || already_sinograms; }
};

/// All fields as in octavo.v1.TryCenters.
struct TryCentersSpec {
  double begin = 0, end = 0, step = 0;
  std::optional<int64_t> row;
  int64_t count() const;  // of axes
};

enum class ResultPlace : uint8_t {
  kChoose = 0,
  kDevice = 1,
  kDisk = 2
};  // as octavo.v1.ResultPlace

/// As octavo.v1.ResultSamples.
struct ResultSamplesSpec {
  DType type = DType::kF32;  // kU8, kU16, kF16, kF32
  /// Of integers: the values that become 0 and the largest number, as f32 has them. Both 0: they
  /// are found.
  double low = 0, high = 0;

  bool windowed() const { return IsInteger(type); }
  bool found() const { return windowed() && low == 0 && high == 0; }  // by the job
};

/// All fields as in octavo.v1.VolumeSeries; step is at least 1.
struct VolumeSeriesSpec {
  int64_t projections = 0, step = 0;
};

/// Which half turn of a scan over a full turn or more is used. Values as in octavo.v1.HalfTurn.
enum class HalfTurn : uint8_t { kDefault, kAll, kFirst, kSecond, kBest };

/// What the volume of the result holds: reconstructed slices, or prepared sinograms [row, angle,
/// column]. As octavo.v1.TomographyOutput.
enum class TomographyOutput : uint8_t { kSlices, kSinograms };

/// All fields as in octavo.v1.TomographyJob.
struct TomographySpec {
  std::variant<std::monostate, ProjectionFileSpec, ProjectionArraysSpec, PushedProjectionsSpec,
               ProjectionMosaicSpec>
      input;
  std::vector<double> angles_rad;
  IndexRange projections, rows, columns;
  PreparationSpec preparation;
  RotationCenterSpec center;
  TomographyConfig reconstruction;  // the job fills in angles, detectors, slices and centres
  std::optional<TryCentersSpec> try_centers;
  std::string initial_volume;
  int64_t slices_per_batch = 0;
  ResultPlace place = ResultPlace::kChoose;
  double pixel_size_um = 0;
  ResultSamplesSpec samples;
  TomographyOutput output = TomographyOutput::kSlices;
  std::optional<VolumeSeriesSpec> series;
  HalfTurn half_turn = HalfTurn::kDefault;
  std::string encoded, json;  // as received: for answers, and for the files of the results

  bool takes_half_turn() const {
    return half_turn != HalfTurn::kDefault && half_turn != HalfTurn::kAll;
  }
  bool makes_sinograms() const { return output == TomographyOutput::kSinograms; }
};

/// Where a rotation axis comes from. Values as in octavo.v1.TomographyReport.CenterSource.
enum class CenterSource : uint8_t {
  kNone,
  kGiven,
  kFile,
  kMiddle,
  kOverlap,
  kVo,
  kEntropy,
  kPhaseCorrelation,
  kPairs
};
/// Why iterations ended. Values as in octavo.v1.TomographyReport.Stop.
enum class IterationStop : uint8_t { kNone, kIterations, kChange, kResidual };

/// All fields as in octavo.v1.AxisLine.
struct AxisLineReport {
  struct Group {
    int64_t first_row = 0, rows = 0;
    double center = 0, uncertainty = 0, residual = std::numeric_limits<double>::quiet_NaN();
    bool used = false;
  };
  std::vector<Group> groups;
  double offset = std::numeric_limits<double>::quiet_NaN(), slope = offset,
         offset_uncertainty = offset, slope_uncertainty = offset, tilt_degrees = offset,
         residual_rms = offset;
  bool leans = false;
  double turned_degrees = 0;
  struct Round {
    double tilt_degrees = 0, uncertainty_degrees = 0;
    int64_t groups_used = 0;
    double turned_degrees = 0, remaining_degrees = 0;
  };
  std::vector<Round> rounds;
};

/// All fields as in octavo.v1.HalfTurnReport.
struct HalfTurnReport {
  int64_t begin = 0, end = 0;
  bool used = false;
  double mass_deviation = std::numeric_limits<double>::quiet_NaN(),
         center_deviation = mass_deviation, score = mass_deviation;
};

/// All fields as in octavo.v1.MosaicTileReport.
struct MosaicTileReport {
  double first_column = 0, first_row = 0;
  double correlation = std::numeric_limits<double>::quiet_NaN();
  bool found = false;
};

/// TomographyReport.opposite_projections and opposite_degrees.
struct OppositeProjections {
  int64_t first = 0, second = 0;
  double degrees = 0;
};

/// All fields as in octavo.v1.TomographyReport.
struct TomographyReport {
  std::vector<double> centers;
  CenterSource center_source = CenterSource::kNone;
  int64_t batches = 0, slices_per_batch = 0, iterations = 0;
  IterationStop stop = IterationStop::kNone;
  double residual_norm = 0, relative_residual = 0,
         relative_change = std::numeric_limits<double>::quiet_NaN(),
         variation_gap = relative_change;
  std::vector<double> tried_centers, scores;
  bool center_at_edge = false;
  double center_check = std::numeric_limits<double>::quiet_NaN(), center_uncertainty = center_check;
  std::optional<CenterMethod> center_check_method;
  double overlap = 0;
  int64_t outliers = 0, not_finite = 0, floored = 0, unlit = 0;
  std::optional<TomographyAlgorithm> algorithm;  // that made the slices, once it is known
  double low = 0, high = 0;                      // the window of the stored numbers
  int64_t clipped_below = 0, clipped_above = 0;
  std::optional<AxisLineReport> axis_line;
  int64_t series_volumes = 0, series_planned = 0;
  std::vector<HalfTurnReport> half_turns;
  std::optional<OppositeProjections> opposite;
  int64_t flat_components = 0;
  double largest_flat_weight = 0;
  std::vector<double> row_shifts;
  double row_shift_uncertainty = std::numeric_limits<double>::quiet_NaN();
  std::vector<MosaicTileReport> mosaic_tiles;
};

}  // namespace octavo::model

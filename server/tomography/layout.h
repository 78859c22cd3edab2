#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "gpu/tomography/axis.h"
#include "gpu/tomography/flat_components.h"
#include "gpu/tomography/preprocess.h"
#include "gpu/tomography/reconstruct.h"
#include "server/model/tomography_spec.h"
#include "server/storage/projections/projection_input.h"

// The layout of a tomography job: ranges, sizes, and the configuration of each step for any batch
// of slices. A batch is the unit of work: any device can compute any batch, and no result depends
// on the division of slices into batches.
namespace octavo::tomography {

/// Rows of the detector that a batch reads, and the places of its slices among them.
struct BatchRows {
  int64_t first = 0, count = 0, step = 1;  // raw rows that are read, those of the margin included
  int64_t crop = 0, crop_rows = 0;         // of those, raw rows that become slices
};

/// Neighbouring slices.
struct SliceGroup {
  int64_t first = 0, count = 0;
};

/// Degrees by which a job may turn projections after it has found how the axis leans. Memory is
/// reserved before that, so larger tilts are not found but given (preparation.roll_degrees).
constexpr double kMostTurn = 2;

/// A slice, or a sinogram, in device memory: f32 [rows, columns].
struct SliceImage {
  const float* data = nullptr;
  int64_t rows = 0, columns = 0;
};

/// Immutable once made.
class TomographyLayout {
 public:
  /// Checks everything that can be checked without reading frames. Errors name fields below
  /// "tomography.". `overlap`: of stitching, once it was found; 0 = as asked for.
  static absl::StatusOr<TomographyLayout> Make(const model::TomographySpec& spec,
                                               const storage::ProjectionInfo& info, double overlap);

  int64_t slices() const { return slices_; }  // of the result: reconstructed ones, or sinograms
  /// Whether the result holds the prepared sinograms instead of reconstructed slices.
  bool makes_sinograms() const { return spec_->makes_sinograms(); }
  int64_t image_rows() const { return image_rows_; }  // of a slice; of a sinogram its angles
  int64_t image_columns() const { return image_columns_; }
  SliceImage Image(const float* data) const {
    return {.data = data, .rows = image_rows_, .columns = image_columns_};
  }
  int64_t image_voxels() const { return image_rows_ * image_columns_; }  // of a slice
  int64_t image_bytes() const { return image_voxels() * 4; }             // as it is computed
  /// Of a slice as the result stores it.
  int64_t stored_image_bytes() const { return image_voxels() * SizeOf(spec_->samples.type); }
  int64_t frames() const { return projections_.count(); }  // projections that are read
  const model::IndexRange& projections() const { return projections_; }
  int64_t flats() const { return flats_; }
  int64_t darks() const { return darks_; }
  int64_t columns() const { return columns_; }  // columns that are read: the whole detector
  DType dtype() const { return dtype_; }        // on the device: u8, u16, i16, f32
  /// Bytes of a row of the detector as it is uploaded: of packed counts less than of numbers.
  int64_t raw_row_bytes() const {
    return math::PackedBytes(prepare_.packing, columns_, SizeOf(dtype_));
  }
  const std::vector<double>& angles_rad() const { return angles_rad_; }  // of prepared projections
  const std::vector<double>& tried() const {
    return tried_;
  }  // axes of try_centers, whole detector; empty: not such a job
  int64_t center_slice() const {
    return center_slice_;
  }  // index among the slices, for the search of the axis and for try_centers
  bool stitched() const { return prepare_.stitching.enabled; }
  /// Whether preparation turns or shifts projections: then it depends on where the rows lie on the
  /// detector.
  bool turns() const { return prepare_.roll.degrees != 0 || !prepare_.shifts.rows.empty(); }
  bool overlap_unknown() const {
    return overlap_unknown_;
  }  // still to be found; until then sizes are those of the widest result
  double overlap() const { return prepare_.stitching.overlap; }  // of stitching, prepared columns

  /// Slices [first, first + count) of the rows (of try_centers: any, its row is center_slice()).
  BatchRows RowsOf(int64_t first, int64_t count) const;
  /// For frames of those rows. `for_overlap`: without stitching and rings.
  PrepareConfig PrepareFor(const BatchRows& rows, bool for_overlap) const;
  absl::StatusOr<PreparedShape> PreparedFor(const BatchRows& rows, bool for_overlap) const;
  int64_t RawBytes(const BatchRows& rows) const;    // of the projections on the device
  int64_t FieldBytes(const BatchRows& rows) const;  // of flats and darks on the device

  /// For slices [first, first + count). `centers`: pixel indices among the columns of the whole
  /// detector, one or one per slice of the result.
  TomographyConfig ReconstructFor(int64_t first, int64_t count,
                                  const std::vector<double>& centers) const;
  /// The same by filtered back projection instead of the job's own algorithm, to look at a slice
  /// before it is made.
  TomographyConfig BackProjectionFor(int64_t first, int64_t count,
                                     const std::vector<double>& centers) const;
  /// For one slice whose values are those of the result, at a small cost: by the job's own
  /// algorithm, but of the iterative ones only those of the tomopy form, which have their own
  /// scale.
  TomographyConfig TrialFor(int64_t slice, const std::vector<double>& centers) const;
  /// Given ones; else the input's; else the middle. Whole detector.
  std::vector<double> GivenCenters() const;
  model::CenterSource GivenSource() const;  // of them: kGiven, kFile, kMiddle
  /// Converts a pixel index among prepared columns to one of the whole detector.
  double RawCenter(double prepared) const;
  double PreparedCenterOf(double raw) const;
  /// Columns and rows of the detector are pixel indices; a slice may lie between two rows.
  double RowOfSlice(double slice) const;
  double middle_row() const { return 0.5 * static_cast<double>(detector_rows_ - 1); }
  double middle_column() const { return 0.5 * static_cast<double>(columns_ - 1); }
  int64_t used_rows() const { return rows_.end - rows_.begin; }  // of the detector, as a span
  /// The same job with its projections turned by `degrees`, at most kMostTurn either way.
  TomographyLayout Turned(double degrees) const;
  /// Whether the open beam changes from projection to projection. Until it is found
  /// (WithFlatComponents), sizes are those of the most components, and projections have the mean
  /// flat field.
  bool dynamic_flats() const { return spec_->preparation.dynamic_flats; }
  /// Where the components of the flat fields and their weights are found: in groups of rows spread
  /// over the whole detector, so that they do not depend on which rows the job uses.
  FlatComponentsConfig FlatSearch() const;
  std::vector<int64_t> FlatGroups() const;  // the first row of each
  const FlatComponents& flat_components() const { return prepare_.flat_components; }
  TomographyLayout WithFlatComponents(FlatComponents found) const;
  /// Whether the job finds how far each projection is shifted along the rotation axis. Until then
  /// the shifts are 0, and rows are read as far as for the largest shift.
  bool finds_drift() const { return spec_->preparation.finds_drift; }
  double most_row_shift() const { return prepare_.shifts.most; }
  const std::vector<double>& row_shifts() const { return prepare_.shifts.rows; }
  TomographyLayout WithRowShifts(std::vector<double> shifts) const;
  /// The same scan prepared for profiles over the rows: line integrals of all rows of the detector,
  /// without shifts, bins, and the steps from phase retrieval on; only the turn stays.
  absl::StatusOr<TomographyLayout> ForProfiles() const;
  /// The configuration of the axis search in `slices` slices, and its result in columns of the
  /// whole detector.
  AxisConfig AxisSearch(int64_t slices) const;
  AxisResult RawAxis(AxisResult prepared) const;
  OverlapConfig OverlapSearch() const;
  /// Whether the iterations may use a wider support than the circle, because the caller set
  /// neither the padding nor a smaller mask.
  bool may_widen() const;
  /// Whether slices are made by filtered back projection or by gridding, which take what lies
  /// beside the detector for air, unless the rows are extended there.
  bool back_projects() const;
  bool extends_edges() const { return reconstruct_.extend_edges; }
  TomographyLayout Widened(double support) const;
  /// The layout of other projections of the scan, as many as these, with the overlap, the turn and
  /// the support that this one has.
  absl::StatusOr<TomographyLayout> ForProjections(const model::IndexRange& projections,
                                                  const storage::ProjectionInfo& info) const;
  /// The configuration for a few projections, each as the detector saw it, to detect objects wider
  /// than the detector.
  absl::StatusOr<TomographyLayout> Sparse(const storage::ProjectionInfo& info) const;
  /// The axis at `center` (in ReconstructFor's columns), in the columns of
  /// TomographyLayout::Sparse, which are not stitched.
  double UnjoinedCenter(double center) const;
  /// Groups of slices in which the search looks for the axis: one, or several along the rows.
  std::vector<SliceGroup> search_groups() const;
  /// The groups of an axis that may lean, also once its projections are turned.
  std::vector<SliceGroup> line_groups() const;
  /// The number of slices for checking an axis, or an overlap of stitching, that the job does not
  /// search; 0 = no check.
  int64_t check_slices() const;
  AxisConfig AxisCheck(int64_t slices) const;

  /// The steps in words, one a line.
  std::string Text() const;

 private:
  absl::Status CheckAlongRows() const;
  absl::Status SetDynamicFlats();
  absl::Status SetRowShifts(int64_t projections);
  int64_t MostSearchSlices() const;  // of a group

  std::shared_ptr<const model::TomographySpec>
      spec_;  // not by value: GCC 12 takes its variant for uninitialised
  model::IndexRange projections_, rows_, column_range_;
  int64_t slices_ = 0, image_rows_ = 0, image_columns_ = 0, flats_ = 0, darks_ = 0, columns_ = 0,
          detector_rows_ = 0, margin_ = 0, center_slice_ = 0, detectors_ = 0;
  DType dtype_ = DType::kF32;
  PrepareConfig prepare_;  // but for rows and crop of rows
  std::vector<double> angles_rad_, tried_;
  std::optional<double> input_axis_;  // the input's axis, if the request sets no other
  TomographyConfig reconstruct_;
  bool overlap_unknown_ = false;
  std::string source_;
};

/// An error of a Reconstructor, at the field of the request that it speaks of: the options below
/// "tomography.reconstruction.", all others below "tomography.".
absl::Status AtReconstruction(const absl::Status& status);

/// The planes that a job of pushed projections can show while they come: none, one along z, several
/// along z, or those along y and x, too, for which whole projections are prepared.
enum class LiveKind : uint8_t { kNone, kOneSlice, kSlices, kAll };

/// Device memory for counts of voxels, a whole piece of it.
constexpr int64_t kCountBytes = 256;

/// Device memory of the steps of a job.
struct TomographyMemory {
  int64_t slices_per_batch = 0;
  double support = 1;        // that there is room for (TomographyConfig::support)
  int64_t check_slices = 0;  // slices for which there is room to check a given axis
  LiveKind live = LiveKind::kNone;
  int64_t raw = 0, fields = 0, prepare = 0, sinograms = 0, reconstruct = 0, images = 0, initial = 0,
          search = 0, preview = 0;
  int64_t workspace() const {
    return search + raw + fields + prepare + sinograms + reconstruct + images + initial + preview;
  }
};

/// What takes long to find for many angles, and does not depend on where slices lie nor on how
/// projections are turned: a plan finds it once. Of one job and device.
class MemoryBook {
 public:
  enum class Step { kSearch, kCheck, kReconstruct, kTrial };
  /// The bytes that `step` takes with so many slices and that support, found by `find` at first.
  template <class F>
  absl::StatusOr<int64_t> Once(Step step, int64_t slices, double support, const F& find) {
    const std::tuple key(step, slices, support);
    const auto it = known_.find(key);
    if (it != known_.end()) return it->second;
    return known_.emplace(key, find()).first->second;
  }

 private:
  std::map<std::tuple<Step, int64_t, double>, absl::StatusOr<int64_t>> known_;
};

/// For batches of `slices`. `support`: the widest that the iterations may use, if the layout may
/// widen. `checks`: a given axis is checked, if the layout says so. `on_disk`: the result is stored
/// batch by batch. `live`: what is shown while projections are pushed; without effect on other
/// jobs, and on those that have nothing to show then. It ends before the batches begin, so it
/// shares their memory.
absl::StatusOr<TomographyMemory> MemoryFor(const TomographyLayout& layout,
                                           const model::TomographySpec& spec, Device& device,
                                           int64_t slices, double support, bool checks,
                                           LiveKind live, bool on_disk, bool previews,
                                           MemoryBook& book);

}  // namespace octavo::tomography

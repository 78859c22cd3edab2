#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "server/model/tomography_spec.h"
#include "server/storage/projections/projection_input.h"

// Reads a little of an input, for checks of its values before the work begins.
namespace octavo::tomography {

/// Of each frame some rows, joined.
using Frames = std::vector<std::vector<double>>;

/// A quantile of the finite values; NaN if there is none, as beside slits, where there is no light.
double Quantile(std::vector<double> values, double part);
inline double Median(std::vector<double> values) { return Quantile(std::move(values), 0.5); }
/// Of each pixel the median over the frames, of which there is at least one.
std::vector<double> MedianFrame(const Frames& frames);

/// Samples two rows in the middle of those that a request chooses. `spec` and `input` must outlive
/// it.
class ValueSampler {
 public:
  ValueSampler(const model::TomographySpec& spec, storage::ProjectionInput& input);

  /// Some of the frames, evenly spaced and in order; of projections, those that the request
  /// chooses.
  std::vector<int64_t> Places(storage::FrameKind kind, int64_t most) const;
  /// Reads these frames; empty if one cannot be read.
  Frames Read(storage::FrameKind kind, const std::vector<int64_t>& places) const;
  /// Columns [first, end) of all frames and rows; those that are not finite are left out.
  std::vector<double> Columns(const Frames& frames, int64_t first, int64_t end) const;
  /// The same of one frame.
  std::vector<double> Columns(const std::vector<double>& frame, int64_t first, int64_t end) const;

  const storage::ProjectionInfo& info() const { return info_; }

 private:
  void AddColumns(const std::vector<double>& frame, int64_t first, int64_t end,
                  std::vector<double>* out) const;

  storage::ProjectionInput& input_;
  const storage::ProjectionInfo& info_;
  const model::IndexRange chosen_;  // of the projections
  int64_t rows_ = 1, first_row_ = 0;
};

}  // namespace octavo::tomography

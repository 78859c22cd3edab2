#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gpu/base/clock.h"
#include "server/model/tomography_spec.h"
#include "server/storage/projections/projection_input.h"
#include "server/tomography/layout.h"

namespace octavo::tomography {

/// What a run knows of its input. Each step of a run takes it and returns what it learned: the
/// projections that arrived, the layout for them, the axis.
struct ScannedObject {
  std::shared_ptr<storage::ProjectionInput> input;
  TomographyLayout layout;
  std::vector<double> centers;  // of the axis: one, or one per slice; columns of the whole detector
  std::vector<std::pair<int64_t, int64_t>> missing_frames;  // of a push: first, count
  std::vector<model::IndexRange> half_turns;       // HalfTurnsOf; empty: all projections are used
  std::optional<model::HalfTurnReport> half_turn;  // that is used; nothing: all projections
  TimePoint begun = {}, ended = {};  // when the projections of a window were pushed; 0: not known
};

/// Pixel size of the detector in the object; the request's comes before the input's. Nothing if
/// neither is known (0).
inline std::optional<double> PixelUm(const model::TomographySpec& spec, double input_um) {
  const double known = spec.pixel_size_um > 0 ? spec.pixel_size_um : input_um;
  return known > 0 ? std::optional<double>(known) : std::nullopt;
}
/// Between rows, and between columns, of a slice. Assumed: nobody gave it, and `um` counts pixels.
struct PixelSpacing {
  double um = 1;
  bool assumed = true;
};
struct SliceSpacing {
  PixelSpacing rows, columns;
};
inline SliceSpacing SliceSpacingOf(const model::TomographySpec& spec, double input_um) {
  const std::optional<double> pixel_um = PixelUm(spec, input_um);
  const PixelSpacing columns = {
      .um = pixel_um.value_or(1) * static_cast<double>(spec.preparation.config.bin_columns),
      .assumed = !pixel_um.has_value()};
  return {.rows = spec.makes_sinograms() ? PixelSpacing() : columns, .columns = columns};
}

}  // namespace octavo::tomography

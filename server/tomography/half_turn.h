#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "server/model/status_types.h"
#include "server/model/tomography_spec.h"
#include "server/storage/projections/projection_input.h"

// The half turns of a scan over a full turn or more (octavo.v1.HalfTurn).
namespace octavo::tomography {

/// The complete half turns of the projections that `spec` uses, two or more, in their order, as
/// ranges of the input's projections. With HalfTurn::kBest they have equally many. InvalidArgument
/// names tomography.half_turn, or the range that is wrong.
absl::StatusOr<std::vector<model::IndexRange>> HalfTurnsOf(const model::TomographySpec& spec,
                                                           const std::vector<double>& angles_rad);

/// The spec of a job that uses these projections only.
model::TomographySpec WithProjections(const model::TomographySpec& spec,
                                      const model::IndexRange& projections);

/// Which of the half turns a job takes; with HalfTurn::kBest that is not known before it runs, and
/// the first one stands for it: all have one size.
const model::IndexRange& PlannedHalfTurn(const model::TomographySpec& spec,
                                         const std::vector<model::IndexRange>& half_turns);

/// One line of the plan; "" if the job takes none. `half_turns`: empty if they are not known yet.
std::string HalfTurnText(const model::TomographySpec& spec,
                         const std::vector<model::IndexRange>& half_turns);

/// Labels of a volume: of which half turn it is made.
void SetHalfTurnLabels(const model::HalfTurnReport& half_turn, int64_t projections,
                       const storage::ProjectionInfo& info, model::VolumeStatus* volume);

}  // namespace octavo::tomography

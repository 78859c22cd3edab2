#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/model/status_types.h"
#include "server/model/tomography_spec.h"
#include "server/storage/projections/projection_input.h"
#include "server/tomography/plausible.h"

// A series of volumes (TomographySpec::series): a window slides over the projections that the job
// uses, and each place of it makes a volume.
namespace octavo::tomography {

constexpr int64_t kMostVolumes = 4096;

/// How many of an input's projections the job uses.
int64_t UsedProjections(const model::TomographySpec& spec, int64_t projections);
/// How many windows lie within an input of `projections`; 1 without a series.
int64_t WindowsIn(const model::TomographySpec& spec, int64_t projections);
/// InvalidArgument names the field: no window is within the input, or too many are, or the request
/// uses projections that the input does not have. OK without a series.
absl::Status CheckSeries(const model::TomographySpec& spec, int64_t projections);

/// The projections of window `index`, as indices of the input; without a series those of the
/// request.
model::IndexRange WindowOf(const model::TomographySpec& spec, int64_t index);
/// The request of a job that makes volume `index` alone.
model::TomographySpec OfWindow(const model::TomographySpec& spec, int64_t index);
/// What `info` says of the projections of a window alone, for those who look at all angles.
storage::ProjectionInfo InfoOfWindow(const storage::ProjectionInfo& info,
                                     const model::IndexRange& window);

/// FindImplausible of volume `index` alone; without a series of the request.
Implausible DoubtsOf(const model::TomographySpec& spec, const storage::ProjectionInfo& info,
                     int64_t index, Angles angles = Angles::kKnown);

/// Labels of volume `index`: what it is made of.
void SetLabels(const model::TomographySpec& spec, const storage::ProjectionInfo& info,
               int64_t index, model::VolumeStatus* volume);
/// One line of the plan; "" without a series.
std::string SeriesText(const model::TomographySpec& spec, int64_t projections);
/// A warning if projections lie between the windows; "" if not.
std::string LeftBetween(const model::TomographySpec& spec, int64_t projections);

/// Adds what the job tells of one volume to what it tells of those before.
void AddVolume(const model::TomographyReport& volume, model::TomographyReport* all);

}  // namespace octavo::tomography

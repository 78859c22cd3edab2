#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "server/model/tomography_spec.h"
#include "server/storage/projections/projection_input.h"

// Detects mistakes that would give a reconstruction without an error: degrees given as radians, an
// axis beside the detector, counts without flat fields, exchanged flat and dark fields.
namespace octavo::tomography {

/// Doubts about an input and its reconstruction.
struct Implausible {
  // a request that cannot be meant: InvalidArgument that names the field, the value and what is
  // allowed
  std::vector<absl::Status> refusals;
  std::vector<std::string> warnings;  // possible mistakes, one sentence each
  absl::Status refusal() const { return refusals.empty() ? absl::OkStatus() : refusals.front(); }
};

/// Whether the angles of an input are its own. Those of a push are not known before its frames
/// come.
enum class Angles { kKnown, kAssumed };

/// Examines the specification and the input's description; reads no frames. Nothing rests on angles
/// that are assumed.
Implausible FindImplausible(const model::TomographySpec& spec, const storage::ProjectionInfo& info,
                            Angles angles = Angles::kKnown);
/// Examines the unit of pushed angles, as FindImplausible does for those of a file, when all have
/// come: the error if they look like degrees.
absl::Status CheckPushedAngles(const storage::ProjectionInfo& info);
/// Reads a little of the flat and dark fields: a warning if the flat ones are darker. `field`: what
/// it names; "" = the flat fields of the job's input.
std::optional<absl::Status> FindExchangedFields(const model::TomographySpec& spec,
                                                storage::ProjectionInput& input,
                                                const std::string& field = "");
/// Reads a little of the projections and the flat fields: a warning if hardly any light passes, as
/// in projections that were already divided by their flat fields.
std::optional<std::string> FindNoTransmission(const model::TomographySpec& spec,
                                              storage::ProjectionInput& input);

}  // namespace octavo::tomography

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "server/model/tomography_spec.h"
#include "server/storage/projections/projection_input.h"

// Mistakes that give a reconstruction without an error: degrees given as radians, an axis beside
// the detector, counts without flat fields, flat and dark fields that are exchanged.
namespace octavo::tomography {

/// What speaks against an input and the way it is to be reconstructed.
struct Implausible {
  std::vector<absl::Status> refusals;  // it cannot be meant; InvalidArgument that names the field,
                                       // the value and what is allowed
  std::vector<std::string> warnings;   // what might be a mistake, one sentence each
  absl::Status refusal() const { return refusals.empty() ? absl::OkStatus() : refusals.front(); }
};

/// Looks at the specification and at what the input says of itself; reads no frames.
Implausible FindImplausible(const model::TomographySpec& spec, const storage::ProjectionInfo& info);
/// Reads a little of the flat and dark fields: where the flat ones are darker, what is to be said
/// about it.
std::optional<absl::Status> FindExchangedFields(const model::TomographySpec& spec,
                                                storage::ProjectionInput& input);
/// Reads a little of the projections and the flat fields: a warning where hardly any light passes,
/// as in projections that were divided by their flat fields already.
std::optional<std::string> FindNoTransmission(const model::TomographySpec& spec,
                                              storage::ProjectionInput& input);

}  // namespace octavo::tomography

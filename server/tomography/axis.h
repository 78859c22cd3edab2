#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

#include "gpu/tomography/axis.h"

// A rotation axis that was found, in words: what speaks against it, and what is to be known of it.
namespace octavo::tomography {

const char* NameOf(CenterMethod method);  // "vo", "entropy", "phase_correlation", "pairs"

struct AxisRemarks {
  std::vector<std::string> doubts;    // it may be another one, one sentence each
  std::vector<std::string> warnings;  // what might be a mistake of the request or of the file
};

/// `axis` and the search from `begin` to `end` in columns of the whole detector; `span_rad`: what
/// the angles cover.
AxisRemarks RemarksOn(const AxisResult& axis, double begin, double end, double span_rad);

/// What speaks against an overlap that was found; one sentence each.
std::vector<std::string> DoubtsOf(const OverlapResult& overlap, const OverlapConfig& search);

/// An error of FindAxis with the name that the field has in a job.
absl::Status AtAxisField(const absl::Status& status);

}  // namespace octavo::tomography

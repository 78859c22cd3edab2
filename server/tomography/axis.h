#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

#include "gpu/tomography/axis.h"

// A found rotation axis in words: the doubts about it, and notes.
namespace octavo::tomography {

const char* NameOf(CenterMethod method);  // "vo", "entropy", "phase_correlation", "pairs"

struct AxisRemarks {
  std::vector<std::string> doubts;    // reasons to doubt it, one sentence each
  std::vector<std::string> warnings;  // possible mistakes of the request or of the file
};

/// `axis` and the search from `begin` to `end` in columns of the whole detector; `span_rad`: the
/// range of the angles.
AxisRemarks RemarksOn(const AxisResult& axis, double begin, double end, double span_rad);

/// Doubts about a found overlap; one sentence each.
std::vector<std::string> DoubtsOf(const OverlapResult& overlap, const OverlapConfig& search);

/// An error of FindAxis with the name that the field has in a job.
absl::Status AtAxisField(const absl::Status& status);

}  // namespace octavo::tomography

#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/field_mask.pb.h"

namespace octavo::rpc {

/// The fields that an update names, of those that it may change. "*" stands for all of them.
/// InvalidArgument (update_mask) for an empty mask and for a path that is not in `allowed`.
absl::StatusOr<std::set<std::string>> FieldsOfMask(const google::protobuf::FieldMask& mask,
                                                   const std::vector<std::string>& allowed);

}  // namespace octavo::rpc

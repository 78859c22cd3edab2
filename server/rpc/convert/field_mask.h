#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/field_mask.pb.h"

#include "octavo/v1/scan.pb.h"

namespace octavo::rpc {

/// The fields that an update names, of those that it may change. "*" stands for all of them.
/// InvalidArgument (update_mask) for an empty mask and for a path that is not in `allowed`.
absl::StatusOr<std::set<std::string>> FieldsOfMask(const google::protobuf::FieldMask& mask,
                                                   const std::vector<std::string>& allowed);

/// `current` with the fields that the mask names replaced by those of `update`, as a whole each: a
/// field that `update` leaves out goes back to its default. An empty mask and "*" name all fields.
/// InvalidArgument (update_mask) for a path that is no field of Processing.
absl::StatusOr<v1::Processing> MergeProcessing(const v1::Processing& current,
                                               const v1::Processing& update,
                                               const google::protobuf::FieldMask& mask);

}  // namespace octavo::rpc

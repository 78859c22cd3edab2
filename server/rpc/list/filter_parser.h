#pragma once

// Private to this folder: reads the text of a filter (filter.h has the grammar).

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"

#include "server/rpc/list/filter.h"

namespace octavo::rpc {

/// Nothing for a text of white space. InvalidArgument (filter) with the place in the text.
absl::StatusOr<std::optional<FilterNode>> ParseFilter(const google::protobuf::Descriptor& row,
                                                      absl::string_view text);

}  // namespace octavo::rpc

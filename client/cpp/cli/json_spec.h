#pragma once

#include <string>

#include "google/protobuf/message.h"

namespace octavo::cli {

/// What --json-spec gives: a file that holds JSON, or, where it begins with '{', the JSON itself.
/// Throws CLI::ValidationError.
void ReadJsonSpec(const std::string& given, google::protobuf::Message* spec);

}  // namespace octavo::cli

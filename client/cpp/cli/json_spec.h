#pragma once

#include <string>

#include "google/protobuf/message.h"

namespace octavo::cli {

/// Reads the argument of --json-spec, or of another `flag`: a file with JSON, or, if it begins with
/// '{', the JSON itself. Throws CLI::ValidationError.
void ReadJsonSpec(const std::string& given, google::protobuf::Message* spec,
                  const std::string& flag = "--json-spec");

}  // namespace octavo::cli

#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace octavo::inline gpu {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Sets up logging, to stderr: one JSON record a line {"time","level","event",...fields}, or text
/// for people, its values in quotes where they are not one plain word. Until it is called, Log()
/// writes plain text at info level and above. Once; later only to change the level, which any
/// thread may do.
void SetUpLog(LogLevel level, bool json);

/// Logs one event with its fields. Any thread may call it. It waits for the terminal no longer than
/// one write.
void Log(LogLevel level, absl::string_view event, const nlohmann::json& fields = {});

}  // namespace octavo::inline gpu

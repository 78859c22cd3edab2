#pragma once

#include "absl/strings/string_view.h"

namespace octavo::inline gpu {

/// The prefix of an error line on stderr that is not a log record: "<3>" where stderr is a stream
/// of systemd's journal, else "".
const char* ErrorPriority();

/// Prepares a log record of level error for SayLastWords to write, because a signal handler may not
/// format anything. `seconds` is the time from now until the record is written.
void PrepareLastWords(absl::string_view event, double seconds);
/// Writes the record to stderr. It only calls write, so that a signal handler may call it.
void SayLastWords();

}  // namespace octavo::inline gpu

#pragma once

#include "absl/strings/string_view.h"

namespace octavo::inline gpu {

/// What a line on stderr that tells of an error and is no log record begins with: "<3>" where
/// stderr is a stream of systemd's journal, else "".
const char* ErrorPriority();

/// Makes a log record of level error ready that SayLastWords writes: for a signal handler, which
/// may not format anything. `seconds`: when, from now, that will be.
void PrepareLastWords(absl::string_view event, double seconds);
/// Writes it to stderr. Nothing but a write: may be called from a signal handler.
void SayLastWords();

}  // namespace octavo::inline gpu

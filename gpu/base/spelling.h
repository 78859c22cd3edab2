#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace octavo::inline gpu {

/// The word among `words` that `text` is most likely meant to be, for "did you mean"; empty where
/// none is near. Near is what differs in at most a third of its letters (two letters that change
/// places count once), and what begins with the other one.
std::string NearestWord(absl::string_view text, const std::vector<std::string>& words);

/// "; did you mean X?", or nothing.
std::string DidYouMean(absl::string_view text, const std::vector<std::string>& words);

}  // namespace octavo::inline gpu

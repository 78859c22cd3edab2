#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace octavo::inline gpu {

/// The word among `words` that `text` is most likely meant to be, for "did you mean"; empty if no
/// word is near. A word is near if it differs in at most a third of its letters (two swapped
/// letters count once), or if one of the two begins with the other.
std::string NearestWord(absl::string_view text, const std::vector<std::string>& words);

/// "; did you mean X?", or nothing.
std::string DidYouMean(absl::string_view text, const std::vector<std::string>& words);

}  // namespace octavo::inline gpu

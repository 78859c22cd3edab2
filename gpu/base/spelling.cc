#include "gpu/base/spelling.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace octavo::inline gpu {
namespace {

/// The number of letters to insert, delete, change or exchange with their neighbour.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j - 1] + (a[i - 1] != b[j - 1]), last[j] + 1, row[j - 1] + 1});
      const bool exchanged = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (exchanged) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::string NearestWord(absl::string_view text, const std::vector<std::string>& words) {
  constexpr size_t kLeastBeginning = 3;
  std::string nearest;
  size_t least = std::max<size_t>(1, (text.size() + 1) / 3) + 1;
  for (const std::string& word : words) {
    const bool begins = std::min(text.size(), word.size()) >= kLeastBeginning &&
                        (absl::StartsWith(word, text) || absl::StartsWith(text, word));
    const size_t distance = begins ? 1 : Distance(text, word);
    if (distance >= least || distance >= word.size()) continue;
    least = distance;
    nearest = word;
  }
  return nearest;
}

std::string DidYouMean(absl::string_view text, const std::vector<std::string>& words) {
  const std::string nearest = NearestWord(text, words);
  return nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?");
}

}  // namespace octavo::inline gpu

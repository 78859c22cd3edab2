#include "server/base/toml_text.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace octavo {
namespace {

constexpr size_t kMostDepth = 4;
constexpr int kMostParts = 8;  // of a dotted key

/// The position after the string or comment that begins at `at`; `at` itself if none does. A string
/// cut off by the end of a line ends there, because the parser stops there, too.
size_t SkipOpaque(absl::string_view text, size_t at) {
  const char quote = text[at];
  if (quote == '#') return std::min(text.find('\n', at), text.size());
  if (quote != '"' && quote != '\'') return at;
  const std::string three(3, quote);
  const bool lines = absl::StartsWith(text.substr(at), three);
  for (size_t i = at + (lines ? 3 : 1); i < text.size(); ++i) {
    if (text[i] == '\\' && quote == '"') {
      ++i;
    } else if (lines && absl::StartsWith(text.substr(i), three)) {
      i += 3;
      for (int more = 0; more < 2 && i < text.size() && text[i] == quote; ++more)
        ++i;  // "a""" may end in its own quotes
      return i;
    } else if (!lines && text[i] == quote) {
      return i + 1;
    } else if (!lines && text[i] == '\n') {
      return i;
    }
  }
  return text.size();
}

}  // namespace

absl::Status CheckConfigText(absl::string_view text) {
  if (text.size() > kMostConfigBytes)
    return absl::InvalidArgumentError(absl::StrCat("more than ", kMostConfigBytes, " bytes"));
  const auto refuse = [&](size_t at, const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(
        "line ", 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'),
        ": ", what));
  };
  std::string open;  // brackets that are open
  int parts = 1;     // of the key that is being read
  for (size_t at = 0; at < text.size();) {
    if (const size_t behind = SkipOpaque(text, at); behind != at) {
      at = behind;
      continue;
    }
    const char c = text[at];
    if (c == '.') {
      if (++parts > kMostParts)
        return refuse(at, absl::StrCat("a key of more than ", kMostParts, " parts"));
    } else if (absl::StrContains("=,[]{}\n", c)) {
      parts = 1;
    }
    if (c == '[' || c == '{') {
      if (c == '[' && !open.empty() && open.back() == '[')
        return refuse(at,
                      "'[' within '['; allowed are tables [name] and lists of plain values, no "
                      "lists of tables or of lists");
      if (open.size() >= kMostDepth)
        return refuse(at, absl::StrCat("brackets more than ", kMostDepth, " deep"));
      open += c;
    } else if ((c == ']' || c == '}') && !open.empty()) {
      open.pop_back();
    }
    ++at;
  }
  return absl::OkStatus();
}

}  // namespace octavo

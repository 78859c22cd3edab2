#include "client/cpp/cli/projection_text.h"

#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace octavo::cli {

v1::Axis AxisOf(const std::string& flag, const std::string& text) {
  if (text == "x") return v1::AXIS_X;
  if (text == "y") return v1::AXIS_Y;
  if (text == "z") return v1::AXIS_Z;
  throw CLI::ValidationError(flag, absl::StrCat("has the axis '", text, "'; allowed x, y, z"));
}

int64_t IndexOf(const std::string& flag, const std::string& text) {
  int64_t number = 0;
  if (!absl::SimpleAtoi(text, &number) || number < 0)
    throw CLI::ValidationError(
        flag, absl::StrCat("has the number '", text, "'; allowed are whole numbers from 0 on"));
  return number;
}

ProjectionText ProjectionOf(const std::string& flag, const std::string& text, bool needs_range) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
  ProjectionText projection{.axis = AxisOf(flag, parts.first)};
  const bool given = absl::StrContains(text, '=');
  const std::vector<std::string> ends = absl::StrSplit(parts.second, ':');
  if (given != (ends.size() == 2) || (!given && needs_range)) {
    throw CLI::ValidationError(flag, absl::StrCat("is '", text, "'; allowed is AXIS=BEGIN:END",
                                                  needs_range ? "" : " or AXIS"));
  }
  if (!given) return projection;
  projection.begin = ends[0].empty() ? 0 : IndexOf(flag, ends[0]);
  if (ends[1].empty()) return projection;  // to the end
  projection.end = IndexOf(flag, ends[1]);
  if (projection.end <= projection.begin)
    throw CLI::ValidationError(
        flag, absl::StrCat("ends at ", projection.end, "; allowed > ", projection.begin));
  return projection;
}

}  // namespace octavo::cli

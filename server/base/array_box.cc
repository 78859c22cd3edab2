#include "server/base/array_box.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"

namespace octavo::base {
namespace {

absl::Status Outside(const char* field, size_t axis, int64_t value, int64_t lo, int64_t hi,
                     int64_t extent) {
  return WithInfo(absl::OutOfRangeError(absl::StrCat(field, ": [", axis, "] is ", value,
                                                     "; allowed ", lo, " to ", hi)),
                  {.reason = Reason::kBadRange,
                   .field = field,
                   .numbers = {{"axis", absl::StrCat(axis)}, {"extent", absl::StrCat(extent)}}});
}

}  // namespace

absl::StatusOr<ArrayBox> ResolveBox(const std::vector<int64_t>& start,
                                    const std::vector<int64_t>& count,
                                    const std::vector<int64_t>& extents) {
  for (const auto& [field, values] : {std::pair{"start", &start}, std::pair{"count", &count}}) {
    if (!values->empty() && values->size() != extents.size()) {
      return InvalidField(field, absl::StrCat("has ", values->size(), " values; allowed none or ",
                                              extents.size(), ", one for each axis"));
    }
  }
  ArrayBox box{.start = start, .count = count};
  box.start.resize(extents.size());
  box.count.resize(extents.size());
  for (size_t axis = 0; axis < extents.size(); ++axis) {
    const int64_t extent = extents[axis], from = box.start[axis];
    if (from < 0 || from >= extent) return Outside("start", axis, from, 0, extent - 1, extent);
    const int64_t rest = extent - from;
    if (box.count[axis] == 0) box.count[axis] = rest;
    if (box.count[axis] < 0 || box.count[axis] > rest)
      return Outside("count", axis, box.count[axis], 0, rest, extent);
  }
  return box;
}

}  // namespace octavo::base

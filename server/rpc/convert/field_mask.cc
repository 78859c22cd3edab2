#include "server/rpc/convert/field_mask.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"

namespace octavo::rpc {
namespace {

using google::protobuf::FieldMask;

bool IsAll(const FieldMask& mask) { return mask.paths_size() == 1 && mask.paths(0) == "*"; }

}  // namespace

absl::StatusOr<std::set<std::string>> FieldsOfMask(const FieldMask& mask,
                                                   const std::vector<std::string>& allowed) {
  if (IsAll(mask)) return std::set<std::string>(allowed.begin(), allowed.end());
  if (mask.paths().empty())
    return InvalidField("update_mask", absl::StrCat("is empty; allowed are the fields to change: ",
                                                    absl::StrJoin(allowed, ", "), ", or *"));
  for (const std::string& path : mask.paths()) {
    if (std::find(allowed.begin(), allowed.end(), path) == allowed.end())
      return InvalidField("update_mask", absl::StrCat("has the path '", path, "'; allowed ",
                                                      absl::StrJoin(allowed, ", "), ", or *"));
  }
  return std::set<std::string>(mask.paths().begin(), mask.paths().end());
}

}  // namespace octavo::rpc

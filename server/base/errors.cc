#include "server/base/errors.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"

namespace octavo::base {

absl::Status AtField(const std::string& prefix, const absl::Status& status) {
  const ErrorInfo info = InfoOf(status);
  if (status.ok() || info.field.empty()) return status;
  return WithInfo(
      absl::Status(status.code(), absl::StrCat(prefix, status.message())),
      {.reason = info.reason, .field = absl::StrCat(prefix, info.field), .numbers = info.numbers});
}

absl::Status NoParent(const std::string& name) {
  const bool job = absl::StartsWith(name, "jobs/");
  return WithInfo(
      absl::NotFoundError(absl::StrCat("parent: there is no ", job ? "job " : "scan ", name)),
      {.reason = job ? Reason::kNoJob : Reason::kNoScan, .field = "parent", .numbers = {}});
}

}  // namespace octavo::base

#include "server/base/errors.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "gpu/base/status.h"

namespace octavo::base {

absl::Status AtField(const std::string& prefix, const absl::Status& status) {
  const ErrorInfo info = InfoOf(status);
  if (status.ok() || info.field.empty()) return status;
  return WithInfo(
      absl::Status(status.code(), absl::StrCat(prefix, status.message())),
      {.reason = info.reason, .field = absl::StrCat(prefix, info.field), .numbers = info.numbers});
}

absl::Status AtCommitOptions(const std::string& field, const absl::Status& status) {
  if (status.ok()) return status;
  ErrorInfo info = InfoOf(status);
  if (info.field.empty() && absl::IsInvalidArgument(status)) info.field = "options.destination";
  // Only the field's name: the message may quote a path that has the same word.
  const std::string before = info.field;
  info.field = absl::StrReplaceAll(before, {{"options.", absl::StrCat(field, ".")}});
  std::string message(status.message());
  if (!before.empty()) message = absl::StrReplaceAll(message, {{before, info.field}});
  return WithInfo(absl::Status(status.code(), message), info);
}

absl::Status NoParent(const std::string& name) {
  const bool job = absl::StartsWith(name, "jobs/");
  return WithInfo(
      absl::NotFoundError(absl::StrCat("parent: there is no ", job ? "job " : "scan ", name)),
      {.reason = job ? Reason::kNoJob : Reason::kNoScan, .field = "parent", .numbers = {}});
}

bool IsRetryable(const absl::Status& status) {
  const ErrorInfo info = InfoOf(status);
  return std::find(info.numbers.begin(), info.numbers.end(),
                   std::pair<std::string, std::string>("retryable", "true")) != info.numbers.end();
}

}  // namespace octavo::base

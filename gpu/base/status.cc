#include "gpu/base/status.h"

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace octavo::inline gpu {
namespace {
constexpr char kReason[] = "octavo/reason";
constexpr char kField[] = "octavo/field";
constexpr char kNumber[] = "octavo/number/";
}  // namespace

absl::Status WithInfo(absl::Status status, const ErrorInfo& info) {
  if (status.ok()) return status;
  status.SetPayload(kReason, absl::Cord(Name(info.reason)));
  if (!info.field.empty()) status.SetPayload(kField, absl::Cord(info.field));
  for (const auto& [key, value] : info.numbers) {
    status.SetPayload(absl::StrCat(kNumber, key), absl::Cord(value));
  }
  return status;
}

ErrorInfo InfoOf(const absl::Status& status) {
  ErrorInfo info;
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& value) {
    if (url == kReason) {
      info.reason = ReasonNamed(std::string(value)).value_or(Reason::kNone);
    } else if (url == kField) {
      info.field = std::string(value);
    } else if (absl::ConsumePrefix(&url, kNumber)) {
      info.numbers.emplace_back(std::string(url), std::string(value));
    }
  });
  return info;
}

Reason ReasonOrCode(const absl::Status& status) {
  const Reason reason = InfoOf(status).reason;
  if (reason != Reason::kNone || status.ok()) return reason;
  // A code that a newer gRPC has is as good as none.
  return ReasonNamed(absl::StatusCodeToString(status.code())).value_or(Reason::kUnknown);
}

absl::Status InvalidField(absl::string_view field, absl::string_view what) {
  return WithInfo(absl::InvalidArgumentError(absl::StrCat(field, ": ", what)),
                  {.reason = Reason::kBadField, .field = std::string(field), .numbers = {}});
}

absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  absl::Status out(status.code(), absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& value) { out.SetPayload(url, value); });
  return out;
}

}  // namespace octavo::inline gpu

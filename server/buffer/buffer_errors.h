#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/size_text.h"
#include "gpu/base/status.h"
#include "server/model/status_types.h"

// Errors of buffers that several calls share.
namespace octavo::buffer {

inline absl::Status BadField(Reason reason, const std::string& field, const std::string& what) {
  return WithInfo(absl::InvalidArgumentError(absl::StrCat(field, ": ", what)),
                  {.reason = reason, .field = field, .numbers = {}});
}
inline absl::Status Precondition(Reason reason, const std::string& what) {
  return WithInfo(absl::FailedPreconditionError(what),
                  {.reason = reason, .field = "name", .numbers = {}});
}
inline absl::Status BadReplica(const std::string& field, uint64_t index, size_t count) {
  return WithInfo(absl::OutOfRangeError(
                      absl::StrCat(field, ": is replica ", index, "; there are 0 to ", count - 1)),
                  {.reason = Reason::kBadReplica,
                   .field = field,
                   .numbers = {{"replicas", absl::StrCat(count)}}});
}
inline absl::Status BadRange(const std::string& field, const std::string& what) {
  return WithInfo(absl::OutOfRangeError(absl::StrCat(field, ": ", what)),
                  {.reason = Reason::kBadRange, .field = field, .numbers = {}});
}
inline absl::Status CheckEtag(const std::string& name, const std::string& wanted,
                              const std::string& is) {
  if (wanted.empty() || wanted == is) return absl::OkStatus();
  return WithInfo(
      absl::AbortedError(absl::StrCat(name, " has changed: its etag is ", is, ", not ", wanted)),
      {.reason = Reason::kVersion, .field = "etag", .numbers = {{"etag", is}}});
}
inline absl::Status WrongVersion(const std::string& name, uint32_t replica, uint64_t is,
                                 uint64_t wanted) {
  return WithInfo(absl::AbortedError(absl::StrCat("replica ", replica, " of ", name,
                                                  " has version ", is, ", not ", wanted)),
                  {.reason = Reason::kVersion,
                   .field = "if_version",
                   .numbers = {{"version", absl::StrCat(is)}}});
}
inline absl::Status BeingWritten(const std::string& name) {
  return WithInfo(absl::AbortedError(absl::StrCat(name, " is being written")),
                  {.reason = Reason::kLeased,
                   .field = "",
                   .numbers = {{"mode", "EXCLUSIVE"}, {"retryable", "true"}}});
}
/// The time to live that a client gives a buffer.
inline absl::Status CheckTtl(double seconds) {
  constexpr double kLongestTtl = 31536000;
  if (seconds == 0 || (seconds >= 1 && seconds <= kLongestTtl)) return absl::OkStatus();
  return InvalidField("ttl", absl::StrCat("is ", seconds, " s; allowed unset (never), or 1 s to ",
                                          kLongestTtl / 86400, " days"));
}
/// The error for memory that a buffer or an operation was refused.
inline absl::Status DoesNotFit(const model::AdmissionReport& report) {
  std::string text = absl::StrCat(report.device, " has ", SizeText(report.free_bytes), " of ",
                                  SizeText(report.budget_bytes), " free; the call needs ",
                                  SizeText(report.wanted_bytes));
  std::string holders;
  for (size_t i = 0; i < report.holders.size() && i < 3; ++i) {
    absl::StrAppend(&holders, i == 0 ? "" : ", ", report.holders[i].name, " ",
                    SizeText(report.holders[i].bytes));
  }
  if (!report.retryable) {
    absl::StrAppend(&text, ": it can never fit");
  } else if (!holders.empty()) {
    absl::StrAppend(&text,
                    ": destroy buffers, discard volumes or stop scans; the largest: ", holders);
  }
  return WithInfo(absl::ResourceExhaustedError(text),
                  {.reason = report.retryable ? Reason::kDeviceFull : Reason::kExceedsBudget,
                   .field = "",
                   .numbers = {{"wanted", absl::StrCat(report.wanted_bytes)},
                               {"free", absl::StrCat(report.free_bytes)},
                               {"budget", absl::StrCat(report.budget_bytes)},
                               {"holders", holders},
                               {"retryable", report.retryable ? "true" : "false"}}});
}

}  // namespace octavo::buffer

#include "server/rpc/convert/status.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"

#include "octavo/v1/types.pb.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/fixed_bytes.h"
#include "server/rpc/convert/utf8.h"

namespace octavo::rpc {

namespace {

// Messages travel in HTTP/2 trailers, which clients accept only up to 8 KiB: a message that quotes
// a huge field must not hide the error.
constexpr size_t kMostMessage = 1500;
constexpr size_t kMostReport =
    2000;  // holders of an admission report; PlanScan and GetMemory list all
constexpr size_t kMostBrief = 300;
constexpr int kRetrySeconds = 1;  // RetryInfo: long enough for no client to become a busy loop

// `text`, which is UTF-8, with what nobody can print as \x01; newlines stay.
std::string Printable(absl::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte >= 0x20 && byte != 0x7F) || c == '\n') {
      out += c;
    } else {
      absl::StrAppend(&out, "\\x", absl::Hex(byte, absl::kZeroPad2));
    }
  }
  return out;
}

// Cut last: what replaces bytes is longer than they are.
std::string Shortened(absl::string_view message) {
  std::string text = Utf8(message);
  if (text.size() <= kMostMessage) return text;
  text = Printable(text);
  const absl::string_view all = text;
  return Utf8(absl::StrCat(all.substr(0, kMostMessage / 2), " ... (", message.size(),
                           " bytes in all) ... ", all.substr(all.size() - kMostMessage / 4)));
}

// The description within a detail, which repeats the status' message: short, because all details
// together have to fit the trailers as well.
std::string Brief(absl::string_view message) {
  const std::string text = Utf8(message);
  return text.size() <= kMostBrief
             ? text
             : Utf8(absl::StrCat(absl::string_view(text).substr(0, kMostBrief), "..."));
}

// Whether the same call may succeed later without anything else being done.
bool IsRetryable(const ErrorInfo& info, const model::AdmissionReport* report) {
  for (const auto& [key, value] : info.numbers)
    if (key == "retryable") return value == "true";
  return report != nullptr && report->retryable;
}

google::rpc::Status Described(const absl::Status& status, const model::AdmissionReport* report) {
  const ErrorInfo info = InfoOf(status);
  google::rpc::ErrorInfo detail;
  detail.set_domain("octavo");
  detail.set_reason(std::string(Name(ReasonOrCode(status))));
  for (const auto& [key, value] : info.numbers)
    (*detail.mutable_metadata())[key] = Shortened(value);
  if (!info.field.empty()) (*detail.mutable_metadata())["field"] = Utf8(info.field);
  v1::AdmissionReport encoded;
  // A call that can be refused for memory passes a report; it is filled if that was the reason.
  const bool reports =
      report != nullptr && !report->device.empty() && absl::IsResourceExhausted(status);
  if (reports) {
    EncodeAdmissionReport(*report, &encoded);
    // The smallest ones go: the list begins with the largest.
    while (encoded.holders_size() > 1 && encoded.ByteSizeLong() > kMostReport) {
      encoded.set_holders_left_out(encoded.holders_left_out() + 1);
      encoded.set_bytes_left_out(encoded.bytes_left_out() + encoded.holders().rbegin()->bytes());
      encoded.mutable_holders()->RemoveLast();
    }
  }
  google::rpc::Status rich;
  rich.set_code(static_cast<int>(status.code()));
  rich.set_message(Shortened(status.message()));
  rich.add_details()->PackFrom(detail);
  if (!info.field.empty() && (absl::IsInvalidArgument(status) || absl::IsOutOfRange(status))) {
    google::rpc::BadRequest bad;
    auto* violation = bad.add_field_violations();
    violation->set_field(Utf8(info.field));
    violation->set_description(Brief(status.message()));
    rich.add_details()->PackFrom(bad);
  }
  if (absl::IsResourceExhausted(status)) {
    google::rpc::QuotaFailure quota;
    auto* violation = quota.add_violations();
    const auto principal = detail.metadata().find("principal");
    violation->set_subject(reports && !encoded.device().empty()   ? encoded.device()
                           : principal != detail.metadata().end() ? principal->second
                                                                  : detail.reason());
    violation->set_description(Brief(status.message()));
    rich.add_details()->PackFrom(quota);
  }
  if (IsRetryable(info, reports ? report : nullptr)) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(kRetrySeconds);
    rich.add_details()->PackFrom(retry);
  }
  if (reports) rich.add_details()->PackFrom(encoded);
  return rich;
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status, const model::AdmissionReport* report) noexcept {
  if (status.ok()) return {};
  try {
    if (absl::IsInternal(status))
      Log(LogLevel::kError, "internal error", {{"message", std::string(status.message())}});
    const google::rpc::Status rich = Described(status, report);
    return grpc::Status(static_cast<grpc::StatusCode>(status.code()), rich.message(),
                        FixedBytes(rich));
  } catch (...) {
    return grpc::Status(static_cast<grpc::StatusCode>(status.code()), "");
  }
}

google::rpc::Status ToRpcStatus(const absl::Status& status) { return Described(status, nullptr); }

}  // namespace octavo::rpc

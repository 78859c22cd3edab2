#include "server/rpc/convert/status.h"

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "octavo/v1/types.pb.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/utf8.h"

namespace octavo::rpc {

namespace {

// Messages travel in HTTP/2 trailers, which clients accept only up to 8 KiB: a message that quotes
// a huge field must not hide the error.
constexpr size_t kMostMessage = 1500;
constexpr size_t kMostReport =
    2000;  // holders of an admission report; PlanScan and GetMemory list all
std::string Shortened(absl::string_view message) {
  if (message.size() <= kMostMessage) return Utf8(message);
  return Utf8(
      absl::StrCat(absl::Utf8SafeCHexEscape(message.substr(0, kMostMessage / 2)), " ... (",
                   message.size(), " bytes in all) ... ",
                   absl::Utf8SafeCHexEscape(message.substr(message.size() - kMostMessage / 4))));
}

grpc::Status Described(const absl::Status& status, const model::AdmissionReport* report) {
  const ErrorInfo info = InfoOf(status);
  if (absl::IsInternal(status))
    Log(LogLevel::kError, "internal error", {{"message", std::string(status.message())}});
  v1::ErrorDetail detail;
  detail.set_domain("octavo");
  detail.set_reason(ReasonOrCode(status));
  detail.set_field(Utf8(info.field));
  for (const auto& [key, value] : info.numbers) (*detail.mutable_numbers())[key] = Shortened(value);
  v1::AdmissionReport encoded;
  const bool reports = report != nullptr && absl::IsResourceExhausted(status);
  if (reports) {
    EncodeAdmissionReport(*report, &encoded);
    int left_out = 0;  // the smallest ones: the list begins with the largest
    for (; encoded.holders_size() > 1 && encoded.ByteSizeLong() > kMostReport; ++left_out)
      encoded.mutable_holders()->RemoveLast();
    if (left_out > 0) (*detail.mutable_numbers())["holders_left_out"] = absl::StrCat(left_out);
  }
  v1::RpcStatus rich;
  rich.set_code(static_cast<int>(status.code()));
  rich.set_message(Shortened(status.message()));
  rich.add_details()->PackFrom(detail);
  if (reports) rich.add_details()->PackFrom(encoded);
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), rich.message(),
                      rich.SerializeAsString());
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status, const model::AdmissionReport* report) noexcept {
  if (status.ok()) return {};
  try {
    return Described(status, report);
  } catch (...) {
    return grpc::Status(static_cast<grpc::StatusCode>(status.code()), "");
  }
}

}  // namespace octavo::rpc

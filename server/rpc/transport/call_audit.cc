#include "server/rpc/transport/call_audit.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/timestamp.pb.h"
#include "google/protobuf/util/time_util.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

#include "server/rpc/convert/utf8.h"
#include "server/security/role.h"

namespace octavo::rpc {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr size_t kMostText = 512;  // of one field of a line

// What a client may write as it likes has no control characters, which take six bytes each in JSON.
std::string Short(absl::string_view text) {
  std::string out = Utf8(text.size() <= kMostText ? text : text.substr(0, kMostText));
  for (char& c : out) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = '?';
  }
  return out;
}

std::string TextOf(const Message& message, const char* field) {
  const FieldDescriptor* const found = message.GetDescriptor()->FindFieldByName(field);
  if (found == nullptr || found->is_repeated() || found->type() != FieldDescriptor::TYPE_STRING)
    return "";
  return Short(message.GetReflection()->GetString(message, found));
}

const Message* PartOf(const Message& message, const char* field) {
  const FieldDescriptor* const found = message.GetDescriptor()->FindFieldByName(field);
  if (found == nullptr || found->is_repeated() ||
      found->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE ||
      !message.GetReflection()->HasField(message, found))
    return nullptr;
  return &message.GetReflection()->GetMessage(message, found);
}

std::string FirstOf(const Message& message, std::initializer_list<const char*> fields) {
  for (const char* const field : fields) {
    std::string text = TextOf(message, field);
    if (!text.empty()) return text;
  }
  return "";
}

// What a request is about, or what an answer names. Secrets are in none of these fields.
std::string NamedBy(const Message& message) {
  // A client names its file, and often after the patient: the audit log leaves that name out.
  if (message.GetDescriptor()->name() == "OpenDepositRequest") return "";
  return FirstOf(message, {"name", "input", "scan", "job", "resource", "parent", "object"});
}
std::string MadeBy(const Message& response) {
  for (const char* const field :
       {"scan", "job", "buffer", "output", "volume", "session", "lease", "operation"}) {
    const Message* const made = PartOf(response, field);
    std::string text = made == nullptr ? "" : NamedBy(*made);
    if (!text.empty()) return text;
  }
  return NamedBy(response);
}

// Empty = never.
std::string TimeIn(const Message& message, const char* field) {
  const auto* const time = dynamic_cast<const google::protobuf::Timestamp*>(PartOf(message, field));
  return time == nullptr ? "" : google::protobuf::util::TimeUtil::ToString(*time);
}

google::rpc::ErrorInfo InfoIn(const grpc::Status& status) {
  google::rpc::Status rpc;
  google::rpc::ErrorInfo info;
  if (!rpc.ParseFromString(status.error_details())) return info;
  for (const auto& detail : rpc.details()) {
    if (detail.UnpackTo(&info)) break;
  }
  return info;
}

// How it stands with an operation that was begun, or that an earlier call began.
std::string StateOf(const Message& operation) {
  const FieldDescriptor* const state = operation.GetDescriptor()->FindFieldByName("state");
  if (state == nullptr || state->cpp_type() != FieldDescriptor::CPPTYPE_ENUM) return "";
  absl::string_view name = operation.GetReflection()->GetEnum(operation, state)->name();
  absl::ConsumePrefix(&name, "OPERATION_STATE_");
  return std::string(name);
}

// Whether who calls is why a call has failed.
bool IsRefusal(grpc::StatusCode code, absl::string_view reason) {
  // The server's own rights to files are not the caller's.
  return code == grpc::StatusCode::UNAUTHENTICATED || reason == "QUOTA" ||
         (code == grpc::StatusCode::PERMISSION_DENIED && reason != "NO_ACCESS" &&
          reason != "READ_ONLY");
}

const char* NameOf(grpc::StatusCode code) {
  constexpr const char* kNames[] = {"OK",
                                    "CANCELLED",
                                    "UNKNOWN",
                                    "INVALID_ARGUMENT",
                                    "DEADLINE_EXCEEDED",
                                    "NOT_FOUND",
                                    "ALREADY_EXISTS",
                                    "PERMISSION_DENIED",
                                    "RESOURCE_EXHAUSTED",
                                    "FAILED_PRECONDITION",
                                    "ABORTED",
                                    "OUT_OF_RANGE",
                                    "UNIMPLEMENTED",
                                    "INTERNAL",
                                    "UNAVAILABLE",
                                    "DATA_LOSS",
                                    "UNAUTHENTICATED"};
  const int i = static_cast<int>(code);
  return i >= 0 && i < static_cast<int>(std::size(kNames)) ? kNames[i] : "UNKNOWN";
}

bool IsHex(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f');
  });
}

bool IsZero(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c == '0'; });
}

}  // namespace

AuditedRequest AuditedRequestOf(const Message& request) {
  AuditedRequest audited{.object = NamedBy(request),
                         .place = FirstOf(request, {"device", "root"}),
                         .request_id = TextOf(request, "request_id"),
                         .destination = "",
                         .grantee = TextOf(request, "grantee")};
  const FieldDescriptor* const dry = request.GetDescriptor()->FindFieldByName("validate_only");
  audited.validate_only = dry != nullptr && dry->type() == FieldDescriptor::TYPE_BOOL &&
                          request.GetReflection()->GetBool(request, dry);
  if (const Message* const options = PartOf(request, "options"); options != nullptr)
    audited.destination = TextOf(*options, "destination");
  return audited;
}

std::string TraceIdOf(const grpc::ServerContextBase& context) {
  const auto found = context.client_metadata().find("traceparent");
  if (found == context.client_metadata().end()) return "";
  const absl::string_view text(found->second.data(), found->second.size());
  // "00-<trace id>-<parent id>-<flags>"; later versions may have more behind it.
  constexpr size_t kSize = 55;
  if (text.size() < kSize || text[2] != '-' || text[35] != '-' || text[52] != '-') return "";
  const absl::string_view version = text.substr(0, 2), trace = text.substr(3, 32),
                          parent = text.substr(36, 16), flags = text.substr(53, 2);
  if (!IsHex(version) || version == "ff" || !IsHex(trace) || IsZero(trace) || !IsHex(parent) ||
      IsZero(parent) || !IsHex(flags))
    return "";
  if (version == "00" ? text.size() != kSize : text.size() > kSize && text[kSize] != '-') return "";
  return std::string(trace);
}

void CallAudit::Ended(const grpc::ServerContextBase& context, const MethodRole* line,
                      const security::Principal& principal, const AuditedRequest& request,
                      const grpc::Status& status, const Message* response) const {
  if (log_ == nullptr) return;
  const google::rpc::ErrorInfo info = status.ok() ? google::rpc::ErrorInfo() : InfoIn(status);
  const std::string& reason = info.reason();
  const bool refused = IsRefusal(status.error_code(), reason);
  if (!refused && (line == nullptr || line->effect == Effect::kAsks || request.validate_only))
    return;
  security::AuditLine out = {{"event", "call"}};
  security::Put(&out, "method", line == nullptr ? "" : std::string(line->method));
  security::Put(&out, "principal", Short(principal.name));
  if (!principal.name.empty()) security::Put(&out, "role", std::string(Name(principal.role)));
  security::Put(&out, "project", Short(principal.project));
  security::Put(&out, "token_id", principal.token_id);
  const std::string peer = context.peer();
  // gRPC names connections of the Unix socket by our descriptor, which says nothing to a reader.
  security::Put(&out, "peer", absl::StartsWith(peer, "fd:") ? "unix" : Short(peer));
  const bool made = status.ok() && response != nullptr;
  std::string object = request.object.empty() && made ? MadeBy(*response) : request.object;
  security::Put(&out, "object", object.empty() ? request.place : object);
  security::Put(&out, "destination", request.destination);
  const Message* const grant = made ? PartOf(*response, "grant") : nullptr;
  if (grant != nullptr && TextOf(*grant, "name") != object)
    security::Put(&out, "grant", TextOf(*grant, "name"));
  // What was granted, or taken back, to whom and whose it is.
  security::Put(&out, "grantee", grant == nullptr ? request.grantee : TextOf(*grant, "grantee"));
  if (grant != nullptr) {
    security::Put(&out, "owner", TextOf(*grant, "owner"));
    security::Put(&out, "expires", TimeIn(*grant, "expire_time"));
  }
  if (const Message* const operation = made ? PartOf(*response, "operation") : nullptr;
      operation != nullptr) {
    security::Put(&out, "operation", TextOf(*operation, "name"));
    security::Put(&out, "operation_state", StateOf(*operation));
  }
  out["outcome"] = status.ok() ? "ok" : refused ? "refused" : "failed";
  if (!status.ok()) out["code"] = NameOf(status.error_code());
  security::Put(&out, "reason", reason);
  if (reason == "QUOTA") {
    for (const char* const number : {"kind", "used", "wanted", "allowed"}) {
      const auto it = info.metadata().find(number);
      if (it != info.metadata().end()) out[absl::StrCat("quota_", number)] = it->second;
    }
  }
  security::Put(&out, "request_id", request.request_id);
  security::Put(&out, "trace_id", TraceIdOf(context));
  if (status.ok()) return log_->Write(out);
  // Callers without a name are told apart by nothing that they could not choose.
  log_->WriteFailure(out, principal.name);
}

}  // namespace octavo::rpc

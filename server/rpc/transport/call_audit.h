#pragma once

#include <string>

#include "google/protobuf/message.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/status.h"

#include "server/rpc/transport/method_roles.h"
#include "server/security/audit_log.h"
#include "server/security/principal.h"

namespace octavo::rpc {

/// What the audit log says of a request, beside who made it.
struct AuditedRequest {
  std::string object;       // what it is about: "volumes/…"; empty: what the answer names
  std::string place;        // the device or the root, if it names no object
  std::string request_id;   // as the client gave it
  std::string destination;  // of a commit
  std::string grantee;      // to whom the object is granted
  bool validate_only = false;
};
AuditedRequest AuditedRequestOf(const google::protobuf::Message& request);

/// The trace to which a call belongs: the trace id of its metadata `traceparent` (W3C Trace
/// Context, 32 hexadecimal digits); empty if it has none, or one that is not valid.
std::string TraceIdOf(const grpc::ServerContextBase& context);

/// Writes lines of calls: of each that changes something (method_roles.h), and of each that was
/// refused because of who makes it: without a proof, without the role, as no owner, outside the
/// storage roots, beyond a quota.
class CallAudit {
 public:
  /// `log`: null = there is no audit log.
  explicit CallAudit(security::AuditLog* log) : log_(log) {}
  bool on() const { return log_ != nullptr; }
  /// `line`: null if the call was refused before its method was known. `response`: null = none.
  void Ended(const grpc::ServerContextBase& context, const MethodRole* line,
             const security::Principal& principal, const AuditedRequest& request,
             const grpc::Status& status, const google::protobuf::Message* response) const;

 private:
  security::AuditLog* const log_;
};

}  // namespace octavo::rpc

#pragma once

#include "grpcpp/server_context.h"

#include "server/model/buffer_types.h"
#include "server/operation/operation_table.h"
#include "server/rpc/convert/buffer.h"
#include "server/rpc/convert/operation.h"
#include "server/rpc/transport/call_audit.h"
#include "server/rpc/transport/call_gate.h"
#include "server/security/rights.h"

namespace octavo::rpc {

/// Who makes a call that was let in, with what the client says of itself.
inline model::Caller CallerOf(const grpc::CallbackServerContext& context) {
  model::Caller caller = ClientOf(context);
  caller.principal = PrincipalOf(context);
  caller.trace_id = TraceIdOf(context);
  return caller;
}

/// What tells a retry of this call from another request.
template <class Request>
operation::RequestKey RequestKeyOf(const Request& request,
                                   const grpc::CallbackServerContext& context) {
  operation::RequestKey key = DecodeRequestKey(request);
  key.owner = security::OwnerOf(PrincipalOf(context));
  key.trace_id = TraceIdOf(context);
  return key;
}

}  // namespace octavo::rpc

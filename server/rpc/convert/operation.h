#pragma once

// Long-running operations: requests that begin them or wait for them, and their messages.

#include <chrono>
#include <optional>

#include "absl/status/statusor.h"
#include "google/protobuf/duration.pb.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"

#include "octavo/v1/operation.pb.h"

#include "server/operation/operation.h"
#include "server/operation/operation_table.h"
#include "server/rpc/convert/fixed_bytes.h"

namespace octavo::rpc {

/// When a call that waits answers at the latest: after the request's `wait` (null = unset), or
/// shortly before the deadline of the call, so that the client gets the answer; nothing = there is
/// no limit. InvalidArgument (wait).
absl::StatusOr<std::optional<std::chrono::steady_clock::time_point>> DecodeWait(
    const google::protobuf::Duration* wait, std::chrono::system_clock::time_point deadline);

/// For a request with the fields request_id and wait.
template <class Request>
absl::StatusOr<std::optional<std::chrono::steady_clock::time_point>> DecodeWait(
    const Request& request, const grpc::CallbackServerContext& context) {
  return DecodeWait(request.has_wait() ? &request.wait() : nullptr, context.deadline());
}
template <class Request>
operation::RequestKey DecodeRequestKey(const Request& request) {
  Request body = request;
  body.clear_request_id();
  body.clear_wait();
  return {.id = request.request_id(), .body = FixedBytes(body)};
}

void EncodeOperation(const operation::OperationStatus& in, v1::Operation* out);

}  // namespace octavo::rpc

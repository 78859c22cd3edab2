#pragma once

#include "absl/status/status.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/support/status.h"

#include "server/model/status_types.h"

namespace octavo::rpc {

/// The standard code and message, with the details of google.rpc (and the admission report, if
/// given, with the largest holders that fit into the 8 KiB that clients take;
/// numbers["holders_left_out"]) in the details. Where memory is short, the code alone.
grpc::Status ToGrpc(const absl::Status& status,
                    const model::AdmissionReport* report = nullptr) noexcept;
/// The same as a message: what a call that fails with `status` carries in its details.
google::rpc::Status ToRpcStatus(const absl::Status& status);

}  // namespace octavo::rpc

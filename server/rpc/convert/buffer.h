#pragma once

#include "absl/status/statusor.h"
#include "grpcpp/support/server_callback.h"

#include "octavo/v1/buffer.pb.h"
#include "octavo/v1/ingest.pb.h"

#include "server/base/device_names.h"
#include "server/buffer/buffer_importer.h"
#include "server/engine/buffer_commits.h"
#include "server/model/buffer_types.h"

namespace octavo::rpc {

/// The caller: metadata `octavo-client` (at most 128 bytes are kept; what is no UTF-8 is replaced)
/// and `octavo-owner-key`.
model::Caller ClientOf(const grpc::CallbackServerContext& context);

/// `names`: the server's devices, for what an error says is allowed.
absl::StatusOr<model::BufferSpec> DecodeCreate(const v1::CreateBufferRequest& request,
                                               const base::DeviceNames& names);
absl::StatusOr<model::BufferImportSpec> DecodeImport(const v1::ImportBufferRequest& request,
                                                     const base::DeviceNames& names);
void EncodeImportTicket(const buffer::ImportTicket& ticket, v1::ImportBufferResponse* out);
absl::StatusOr<model::BufferWriteSpec> DecodeWriteHeader(
    const v1::WriteBufferRequest::Header& header);
absl::StatusOr<model::BufferReadSpec> DecodeRead(const v1::ReadBufferRequest& request);
absl::StatusOr<model::BufferApplySpec> DecodeApply(const v1::ApplyOpRequest& request);
absl::StatusOr<engine::BufferCommitSpec> DecodeCommitBuffer(const v1::CommitBufferRequest& request);
void EncodeElementType(const ArrayType& type, v1::ElementType* out);
void EncodeBuffer(const model::BufferStatus& status, v1::Buffer* out);

}  // namespace octavo::rpc

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/support/byte_buffer.h"

namespace octavo::rpc {

/// The texts, bytes and messages in a serialised message, and the fields that this type does not
/// have: what costs memory of its own when it is parsed. `most` + 1 if there are more than `most`,
/// or if the bytes are no message, or one with groups.
int64_t CountParts(const grpc::ByteBuffer& bytes, const google::protobuf::Descriptor* type,
                   int64_t most);

/// InvalidArgument for a message of more than 65,536 parts: no method needs as many.
absl::Status CheckParts(const grpc::ByteBuffer& bytes, const google::protobuf::Descriptor* type);

}  // namespace octavo::rpc

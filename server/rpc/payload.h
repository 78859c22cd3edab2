#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "server/engine/frame.h"

namespace octavo::rpc {

/// A message on the wire as [serialised header][field `number`: bytes][payload by reference]: the payload is not copied into
/// protobuf. `header` must not set that field, and the field must be the message's last.
template <class Message>
grpc::ByteBuffer WithPayload(const Message& header, uint32_t field_number, const engine::Bytes& payload, int64_t offset, int64_t size) {
  std::string head = header.SerializeAsString();
  const auto varint = [&](uint64_t v) {
    for (; v >= 0x80; v >>= 7) head += static_cast<char>(v | 0x80);
    head += static_cast<char>(v);
  };
  if (size == 0) {
    const grpc::Slice slice(head);
    return grpc::ByteBuffer(&slice, 1);
  }
  varint((uint64_t{field_number} << 3) | 2);  // wire type 2: length-delimited
  varint(static_cast<uint64_t>(size));
  auto* owner = new std::shared_ptr<const void>(payload.owner);
  const grpc::Slice slices[2] = {
      grpc::Slice(head),
      grpc::Slice(const_cast<char*>(static_cast<const char*>(payload.data)) + offset, static_cast<size_t>(size),
                  [](void* p) { delete static_cast<std::shared_ptr<const void>*>(p); }, owner)};
  return grpc::ByteBuffer(slices, 2);
}

/// Parses a request that came as raw bytes.
template <class Message>
bool ParseRequest(const grpc::ByteBuffer& buffer, Message* message) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return false;
  std::string bytes;
  for (const auto& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return message->ParseFromString(bytes);
}

}  // namespace octavo::rpc

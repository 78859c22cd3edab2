#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"

#include "server/model/frame.h"

namespace octavo::rpc {

/// A message on the wire as [serialised header][field `number`: bytes][payload by reference]: the
/// payload is not copied into protobuf. `header` must not set that field, and the field must be the
/// message's last.
template <class Message>
grpc::ByteBuffer WithPayload(const Message& header, uint32_t field_number,
                             const model::Bytes& payload, int64_t offset, int64_t size) {
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
      grpc::Slice(
          const_cast<char*>(static_cast<const char*>(payload.data)) + offset,
          static_cast<size_t>(size),
          [](void* p) { delete static_cast<std::shared_ptr<const void>*>(p); }, owner)};
  return grpc::ByteBuffer(slices, 2);
}

/// A message received as raw bytes, without the field `number`, whose bytes stay in gRPC's buffers.
template <class Message>
struct WithoutPayload {
  Message message;
  std::vector<std::pair<const char*, size_t>> payload;  // pieces, in order
  std::shared_ptr<const void> owner;                    // keeps the pieces alive
};

/// Splits a message whose last field is the bytes field `field_number` (or lacks it). Nothing if it
/// does not parse.
template <class Message>
std::optional<WithoutPayload<Message>> SplitPayload(const grpc::ByteBuffer& buffer,
                                                    uint32_t field_number) {
  auto slices = std::make_shared<std::vector<grpc::Slice>>();
  if (!buffer.Dump(slices.get()).ok()) return std::nullopt;
  size_t slice = 0, at = 0;
  const auto byte = [&]() -> int {
    while (slice < slices->size() && at == (*slices)[slice].size()) ++slice, at = 0;
    return slice == slices->size() ? -1 : (*slices)[slice].begin()[at++];
  };
  std::string head;  // the fields before the payload, in wire format
  const auto varint = [&](uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const int b = byte();
      if (b < 0) return false;
      head += static_cast<char>(b);
      *value |= static_cast<uint64_t>(b & 127) << shift;
      if (b < 128) return true;
    }
    return false;
  };
  const auto copy = [&](uint64_t count) {
    for (; count > 0; --count) {
      const int b = byte();
      if (b < 0) return false;
      head += static_cast<char>(b);
    }
    return true;
  };
  WithoutPayload<Message> out;
  for (;;) {
    const size_t mark = head.size();
    uint64_t tag = 0, length = 0;
    if (!varint(&tag)) {
      if (head.size() != mark) return std::nullopt;  // cut off within a tag
      break;
    }
    const uint64_t wire = tag & 7;
    if (tag >> 3 == field_number && wire == 2) {
      if (!varint(&length)) return std::nullopt;
      head.resize(mark);
      for (uint64_t left = length; left > 0;) {
        while (slice < slices->size() && at == (*slices)[slice].size()) ++slice, at = 0;
        if (slice == slices->size()) return std::nullopt;
        const size_t n = std::min<uint64_t>(left, (*slices)[slice].size() - at);
        out.payload.emplace_back(reinterpret_cast<const char*>((*slices)[slice].begin()) + at, n);
        at += n;
        left -= n;
      }
      if (byte() >= 0) return std::nullopt;  // trailing data
      break;
    }
    if (wire == 0) {
      if (!varint(&length)) return std::nullopt;
    } else if (wire == 1 || wire == 5) {
      if (!copy(wire == 1 ? 8 : 4)) return std::nullopt;
    } else if (wire == 2) {
      if (!varint(&length) || !copy(length)) return std::nullopt;
    } else {
      return std::nullopt;
    }
  }
  if (!out.message.ParseFromString(head)) return std::nullopt;
  out.owner = std::move(slices);
  return out;
}

/// Parses a request received as raw bytes.
template <class Message>
bool ParseRequest(const grpc::ByteBuffer& buffer, Message* message) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return false;
  std::string bytes;
  for (const auto& slice : slices)
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return message->ParseFromString(bytes);
}

}  // namespace octavo::rpc

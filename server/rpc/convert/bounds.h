#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace octavo::rpc {

/// The most that a field of a request may hold. The table has a line for every repeated, string,
/// bytes and map field that any request can reach, so that no part of a client's request is
/// unbounded.
struct Bound {
  std::string field;  // "Freeform.x_mm": message (with those it is nested in) and field, without
                      // the package
  int64_t count = 0;  // elements of a repeated field or map; 0 = not repeated
  int64_t bytes = 0;  // of a text, or of each; 0 = no text
};
const std::vector<Bound>& Bounds();

/// Largest message that the server accepts, in bytes: the payload of a data message
/// (PushRequest.data) and its other fields.
constexpr int kMostMessageBytes = (8 << 20) + (64 << 10);
constexpr int64_t kMostPushedBytes = 8 << 20;

/// Checks a request and its parts against the table. InvalidArgument names the field
/// ("labels[3].value"; within a spec from there on), what it holds and what is allowed.
absl::Status CheckBounds(const google::protobuf::Message& request);
/// The same for a field that was taken out of its message before (payload.h).
absl::Status CheckPayload(const google::protobuf::FieldDescriptor& field, int64_t bytes);

}  // namespace octavo::rpc

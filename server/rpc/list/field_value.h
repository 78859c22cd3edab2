#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace octavo::rpc {

/// A client's text as errors quote it.
std::string Shortened(absl::string_view text);

/// The kinds of fields that filters compare and orders sort.
enum class FieldKind : uint8_t {
  kText,
  kBool,
  kInteger,  // signed
  kUnsigned,
  kReal,
  kEnum,
  kTimestamp,
  kDuration,
  kOther  // a message, bytes: only its presence can be asked
};
FieldKind KindOf(const google::protobuf::FieldDescriptor& field);
/// Whether `<` has a meaning for the kind.
bool IsOrdered(FieldKind kind);

/// A moment or a span: seconds and nanoseconds, compared in this order.
struct Instant {
  int64_t seconds = 0;
  int32_t nanos = 0;
  auto operator<=>(const Instant&) const = default;
};

/// One value of a field. Enums are integers.
using FieldValue = std::variant<std::string, bool, int64_t, uint64_t, double, Instant>;

/// The value of a field that is set, or of one element of it. `index`: of a repeated field, else
/// -1.
FieldValue ValueOf(const google::protobuf::Message& message,
                   const google::protobuf::FieldDescriptor& field, int index);

/// Reads a literal of a filter as a value of the field's kind. The error says what is allowed; it
/// names neither the filter nor the field.
absl::StatusOr<FieldValue> ParseValue(const google::protobuf::FieldDescriptor& field,
                                      absl::string_view literal);

}  // namespace octavo::rpc

#include "server/rpc/list/field_value.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"
#include "google/protobuf/util/time_util.h"

#include "server/rpc/convert/utf8.h"

namespace octavo::rpc {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::util::TimeUtil;

absl::Status NotA(absl::string_view literal, absl::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat("'", Shortened(literal), "'; allowed ", allowed));
}

/// The seconds and nanoseconds of a Timestamp or Duration.
Instant InstantOf(const Message& message) {
  const auto* about = message.GetDescriptor();
  const auto* reflection = message.GetReflection();
  return {.seconds = reflection->GetInt64(message, about->FindFieldByNumber(1)),
          .nanos = reflection->GetInt32(message, about->FindFieldByNumber(2))};
}

/// A whole number; also one such as 1e9, which has no fraction.
template <class Number>
std::optional<Number> WholeNumber(absl::string_view literal) {
  Number exact = 0;
  if (absl::SimpleAtoi(literal, &exact)) return exact;
  double real = 0;
  if (!absl::SimpleAtod(literal, &real) || !std::isfinite(real) || real != std::trunc(real))
    return std::nullopt;
  // Beyond 2^53 a real number does not say which whole number is meant.
  constexpr double kExact = 9007199254740992.0;
  if (std::abs(real) > kExact || (real < 0 && std::numeric_limits<Number>::min() == 0))
    return std::nullopt;
  return static_cast<Number>(real);
}

/// The ends of a type's range for people: those of 64 bits as powers of 2.
template <class Number>
std::string RangeOf() {
  using Limits = std::numeric_limits<Number>;
  if (sizeof(Number) < 8) return absl::StrCat("from ", Limits::min(), " to ", Limits::max());
  return std::is_signed_v<Number> ? "from -2^63 to 2^63 - 1" : "from 0 to 2^64 - 1";
}

template <class Number, class Wide>
absl::StatusOr<FieldValue> ParseWhole(absl::string_view literal) {
  const auto number = WholeNumber<Wide>(literal);
  if (!number.has_value() || !std::in_range<Number>(*number))
    return NotA(literal, absl::StrCat("a whole number ", RangeOf<Number>()));
  return FieldValue(*number);
}

absl::StatusOr<FieldValue> ParseEnum(const EnumDescriptor& values, absl::string_view literal) {
  // As in enum_name.h: the value 0 of every enum is PREFIX_UNSPECIFIED.
  const absl::string_view prefix =
      absl::StripSuffix(values.FindValueByNumber(0)->name(), "UNSPECIFIED");
  std::vector<absl::string_view> names;
  for (int i = 0; i < values.value_count(); ++i) {
    const auto& value = *values.value(i);
    const absl::string_view name = absl::StripPrefix(value.name(), prefix);
    if (absl::EqualsIgnoreCase(literal, name) || absl::EqualsIgnoreCase(literal, value.name()))
      return FieldValue(int64_t{value.number()});
    names.push_back(name);
  }
  return NotA(literal, absl::StrJoin(names, ", "));
}

absl::StatusOr<FieldValue> ParseTimestamp(absl::string_view literal) {
  google::protobuf::Timestamp time;
  if (!TimeUtil::FromString(std::string(literal), &time))
    return NotA(literal, "a time of RFC 3339 such as \"2026-11-23T10:00:00Z\"");
  return FieldValue(InstantOf(time));
}

absl::StatusOr<FieldValue> ParseDuration(absl::string_view literal) {
  // TimeUtil takes more than the JSON form of durations, and overflows.
  absl::string_view number = literal;
  const bool seconds = absl::ConsumeSuffix(&number, "s");
  absl::ConsumePrefix(&number, "-");
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(number, absl::MaxSplits('.', 1));
  const auto digits = [](absl::string_view text, size_t most) {
    return !text.empty() && text.size() <= most &&
           std::all_of(text.begin(), text.end(),
                       [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); });
  };
  const bool whole = !absl::StrContains(number, '.');
  google::protobuf::Duration duration;
  if (!seconds || !digits(parts.first, 12) || !(whole || digits(parts.second, 9)) ||
      !TimeUtil::FromString(std::string(literal), &duration))
    return NotA(literal, "seconds such as \"1.5s\"");
  return FieldValue(InstantOf(duration));
}

}  // namespace

std::string Shortened(absl::string_view text) {
  constexpr size_t kMost = 64;
  return text.size() <= kMost ? std::string(text) : Utf8(absl::StrCat(text.substr(0, kMost), "…"));
}

FieldKind KindOf(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return field.type() == FieldDescriptor::TYPE_STRING ? FieldKind::kText : FieldKind::kOther;
    case FieldDescriptor::CPPTYPE_BOOL: return FieldKind::kBool;
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64: return FieldKind::kInteger;
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_UINT64: return FieldKind::kUnsigned;
    case FieldDescriptor::CPPTYPE_FLOAT:
    case FieldDescriptor::CPPTYPE_DOUBLE: return FieldKind::kReal;
    case FieldDescriptor::CPPTYPE_ENUM: return FieldKind::kEnum;
    case FieldDescriptor::CPPTYPE_MESSAGE: break;
  }
  const std::string& type = field.message_type()->full_name();
  if (type == "google.protobuf.Timestamp") return FieldKind::kTimestamp;
  if (type == "google.protobuf.Duration") return FieldKind::kDuration;
  return FieldKind::kOther;
}

bool IsOrdered(FieldKind kind) {
  switch (kind) {
    case FieldKind::kInteger:
    case FieldKind::kUnsigned:
    case FieldKind::kReal:
    case FieldKind::kTimestamp:
    case FieldKind::kDuration: return true;
    default: return false;
  }
}

FieldValue ValueOf(const Message& message, const FieldDescriptor& field, int index) {
  const auto& of = *message.GetReflection();
  const bool one = index < 0;
  const auto* f = &field;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return one ? of.GetString(message, f) : of.GetRepeatedString(message, f, index);
    case FieldDescriptor::CPPTYPE_BOOL:
      return one ? of.GetBool(message, f) : of.GetRepeatedBool(message, f, index);
    case FieldDescriptor::CPPTYPE_INT32:
      return int64_t{one ? of.GetInt32(message, f) : of.GetRepeatedInt32(message, f, index)};
    case FieldDescriptor::CPPTYPE_INT64:
      return int64_t{one ? of.GetInt64(message, f) : of.GetRepeatedInt64(message, f, index)};
    case FieldDescriptor::CPPTYPE_UINT32:
      return uint64_t{one ? of.GetUInt32(message, f) : of.GetRepeatedUInt32(message, f, index)};
    case FieldDescriptor::CPPTYPE_UINT64:
      return uint64_t{one ? of.GetUInt64(message, f) : of.GetRepeatedUInt64(message, f, index)};
    case FieldDescriptor::CPPTYPE_FLOAT:
      return double{one ? of.GetFloat(message, f) : of.GetRepeatedFloat(message, f, index)};
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return one ? of.GetDouble(message, f) : of.GetRepeatedDouble(message, f, index);
    case FieldDescriptor::CPPTYPE_ENUM:
      return int64_t{one ? of.GetEnumValue(message, f)
                         : of.GetRepeatedEnumValue(message, f, index)};
    case FieldDescriptor::CPPTYPE_MESSAGE: break;
  }
  return InstantOf(one ? of.GetMessage(message, f) : of.GetRepeatedMessage(message, f, index));
}

absl::StatusOr<FieldValue> ParseValue(const FieldDescriptor& field, absl::string_view literal) {
  switch (KindOf(field)) {
    case FieldKind::kText: return FieldValue(std::string(literal));
    case FieldKind::kBool:
      if (literal == "true" || literal == "false") return FieldValue(literal == "true");
      return NotA(literal, "true, false");
    case FieldKind::kInteger:
      return field.cpp_type() == FieldDescriptor::CPPTYPE_INT32
                 ? ParseWhole<int32_t, int64_t>(literal)
                 : ParseWhole<int64_t, int64_t>(literal);
    case FieldKind::kUnsigned:
      return field.cpp_type() == FieldDescriptor::CPPTYPE_UINT32
                 ? ParseWhole<uint32_t, uint64_t>(literal)
                 : ParseWhole<uint64_t, uint64_t>(literal);
    case FieldKind::kReal: {
      double number = 0;
      if (absl::SimpleAtod(literal, &number) && std::isfinite(number)) return FieldValue(number);
      return NotA(literal, "a finite number");
    }
    case FieldKind::kEnum: return ParseEnum(*field.enum_type(), literal);
    case FieldKind::kTimestamp: return ParseTimestamp(literal);
    case FieldKind::kDuration: return ParseDuration(literal);
    case FieldKind::kOther: break;
  }
  return NotA(literal, "* (the field is set)");
}

}  // namespace octavo::rpc

#pragma once

#include <string>

#include "absl/strings/strip.h"
#include "google/protobuf/generated_enum_reflection.h"

namespace octavo::rpc {

/// The name of an enum's value as messages to people give it: without the name of the enum,
/// "U12P" for RAW_TYPE_U12P. The number as text for a value that the enum does not have.
template <class Enum>
std::string EnumName(Enum value) {
  const auto* values = google::protobuf::GetEnumDescriptor<Enum>();
  const auto* named = values->FindValueByNumber(value);
  if (named == nullptr) return std::to_string(static_cast<int>(value));
  // The value 0 of every enum is PREFIX_UNSPECIFIED.
  const absl::string_view prefix =
      absl::StripSuffix(values->FindValueByNumber(0)->name(), "UNSPECIFIED");
  return std::string(absl::StripPrefix(named->name(), prefix));
}

}  // namespace octavo::rpc

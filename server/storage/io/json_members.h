#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

#include "gpu/base/status.h"

// Reads values of untrusted JSON, each with its required type. Errors are DataLoss and begin with
// the member's name ("shape[1] is 1.5; allowed are integers from 0 to 10"); no exception, and no
// text of the library.
namespace octavo::storage {

/// A value for a message, not longer than a line.
inline std::string Shown(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > 80) {
    size_t length = 77;
    while (length > 0 && (text[length] & 0xC0) == 0x80) --length;  // does not cut a UTF-8 character
    text = text.substr(0, length) + "...";
  }
  return text;
}

inline absl::Status BadValue(const std::string& name, const nlohmann::json& value,
                             const std::string& allowed) {
  return absl::DataLossError(absl::StrCat(name, " is ", Shown(value), "; allowed ", allowed));
}

inline absl::Status ReadValue(const nlohmann::json& value, const std::string&,
                              nlohmann::json* out) {
  *out = value;
  return absl::OkStatus();
}
inline absl::Status ReadValue(const nlohmann::json& value, const std::string& name,
                              std::string* out) {
  if (!value.is_string()) return BadValue(name, value, "is text");
  *out = value.get<std::string>();
  return absl::OkStatus();
}
inline absl::Status ReadValue(const nlohmann::json& value, const std::string& name, bool* out) {
  if (!value.is_boolean()) return BadValue(name, value, "are true and false");
  *out = value.get<bool>();
  return absl::OkStatus();
}
template <std::floating_point T>
absl::Status ReadValue(const nlohmann::json& value, const std::string& name, T* out) {
  if (!value.is_number()) return BadValue(name, value, "are numbers");
  *out = value.get<T>();
  return absl::OkStatus();
}
/// An integer in [least, most]. 1.0 is not an integer: a program that counts would not have written
/// it.
inline absl::Status ReadInteger(const nlohmann::json& value, const std::string& name, int64_t least,
                                int64_t most, int64_t* out) {
  const bool fits = value.is_number_unsigned()
                        ? value.get<uint64_t>() <= static_cast<uint64_t>(std::max<int64_t>(most, 0))
                        : value.is_number_integer();
  if (!fits || value.get<int64_t>() < least || value.get<int64_t>() > most) {
    return BadValue(name, value, absl::StrCat("are integers from ", least, " to ", most));
  }
  *out = value.get<int64_t>();
  return absl::OkStatus();
}
template <std::signed_integral T>
absl::Status ReadValue(const nlohmann::json& value, const std::string& name, T* out) {
  int64_t number = 0;
  OCTAVO_RETURN_IF_ERROR(ReadInteger(value, name, std::numeric_limits<T>::min(),
                                     std::numeric_limits<T>::max(), &number));
  *out = static_cast<T>(number);
  return absl::OkStatus();
}
inline absl::Status ReadValue(const nlohmann::json& value, const std::string& name, uint32_t* out) {
  int64_t number = 0;
  OCTAVO_RETURN_IF_ERROR(
      ReadInteger(value, name, 0, std::numeric_limits<uint32_t>::max(), &number));
  *out = static_cast<uint32_t>(number);
  return absl::OkStatus();
}
template <class T, size_t n>
absl::Status ReadValue(const nlohmann::json& value, const std::string& name, T (*out)[n]) {
  if (!value.is_array() || value.size() != n)
    return BadValue(name, value, absl::StrCat("are arrays of ", n));
  for (size_t i = 0; i < n; ++i)
    OCTAVO_RETURN_IF_ERROR(ReadValue(value[i], absl::StrCat(name, "[", i, "]"), &(*out)[i]));
  return absl::OkStatus();
}
template <class A, class B>
absl::Status ReadValue(const nlohmann::json& value, const std::string& name, std::pair<A, B>* out) {
  if (!value.is_array() || value.size() != 2) return BadValue(name, value, "are arrays of 2");
  OCTAVO_RETURN_IF_ERROR(ReadValue(value[0], name + "[0]", &out->first));
  return ReadValue(value[1], name + "[1]", &out->second);
}
template <class T>
absl::Status ReadValue(const nlohmann::json& value, const std::string& name, std::vector<T>* out) {
  if (!value.is_array()) return BadValue(name, value, "are arrays");
  out->resize(value.size());
  for (size_t i = 0; i < value.size(); ++i)
    OCTAVO_RETURN_IF_ERROR(ReadValue(value[i], absl::StrCat(name, "[", i, "]"), &(*out)[i]));
  return absl::OkStatus();
}
inline absl::Status ReadValue(const nlohmann::json& value, const std::string& name,
                              std::map<std::string, std::string>* out) {
  if (!value.is_object()) return BadValue(name, value, "are objects");
  for (const auto& [key, text] : value.items())
    OCTAVO_RETURN_IF_ERROR(ReadValue(text, absl::StrCat(name, ".", key), &(*out)[key]));
  return absl::OkStatus();
}

/// The member `name` of an object that is called `where` ("" = the whole text).
inline absl::StatusOr<const nlohmann::json*> Member(const nlohmann::json& object,
                                                    const std::string& where,
                                                    absl::string_view name) {
  if (!object.is_object()) return BadValue(where.empty() ? "it" : where, object, "are objects");
  const auto found = object.find(std::string(name));
  if (found == object.end())
    return absl::DataLossError(absl::StrCat(where, where.empty() ? "" : ".", name, " is missing"));
  return &*found;
}
template <class T>
absl::Status ReadMember(const nlohmann::json& object, absl::string_view name, T* out,
                        const std::string& where = "") {
  OCTAVO_ASSIGN_OR_RETURN(const nlohmann::json* const value, Member(object, where, name));
  return ReadValue(*value, absl::StrCat(where, where.empty() ? "" : ".", name), out);
}

}  // namespace octavo::storage

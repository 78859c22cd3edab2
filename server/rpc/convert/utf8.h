#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace octavo::rpc {

/// `text` with U+FFFD in place of every byte that is not part of a character: text fields of
/// messages must be UTF-8, but a quoted file or path may hold any bytes. Clients refuse to parse a
/// whole message because of one such byte.
std::string Utf8(absl::string_view text);

}  // namespace octavo::rpc

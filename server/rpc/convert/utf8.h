#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace octavo::rpc {

/// `text` with U+FFFD in place of every byte that is no part of a character: text fields of
/// messages must be UTF-8, and what quotes a file or a path may be anything. Clients refuse to
/// parse a whole message for one such byte.
std::string Utf8(absl::string_view text);

}  // namespace octavo::rpc

#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace octavo::inline gpu {

/// Limits on a JSON text. Depth bounds the stack of everything that walks through the
/// values later (copies, comparisons and dumps recurse); bytes and values bound memory: a value
/// costs some 100 bytes, however short its text is.
struct JsonLimits {
  size_t bytes = 16 << 20;
  size_t depth = 64;        // of arrays and objects in each other
  size_t values = 1 << 20;  // of every kind, arrays and objects themselves included
};

/// Parses one whole JSON text. The server parses all JSON that it receives with this function.
/// InvalidArgument; its message continues a sentence that begins with the name of the text: "is no
/// JSON: …", "has 20 bytes; allowed …", "names the member 'x' twice"; no exception but
/// std::bad_alloc.
absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, const JsonLimits& limits = {});

/// Does the same for one CBOR value, the form that two processes of this program exchange. Texts
/// need not be UTF-8.
absl::StatusOr<nlohmann::json> ParseCbor(absl::string_view bytes, const JsonLimits& limits = {});

}  // namespace octavo::inline gpu

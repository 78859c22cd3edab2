#include "server/rpc/convert/utf8.h"

#include <cstddef>
#include <cstdint>

namespace octavo::rpc {
namespace {

// Bytes of the character that `text` begins with; 0 if it begins with none (The Unicode Standard,
// table 3-7).
size_t LengthOf(absl::string_view text) {
  const auto at = [&](size_t i) {
    return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0};
  };
  const auto within = [](uint8_t byte, uint8_t lo, uint8_t hi) { return byte >= lo && byte <= hi; };
  const uint8_t first = at(0);
  if (first < 0x80) return 1;
  size_t length = within(first, 0xC2, 0xDF)   ? 2
                  : within(first, 0xE0, 0xEF) ? 3
                  : within(first, 0xF0, 0xF4) ? 4
                                              : 0;
  if (length == 0) return 0;
  const uint8_t lo = first == 0xE0   ? 0xA0
                     : first == 0xF0 ? 0x90
                                     : 0x80,
                hi = first == 0xED   ? 0x9F
                     : first == 0xF4 ? 0x8F
                                     : 0xBF;
  if (!within(at(1), lo, hi)) return 0;
  for (size_t i = 2; i < length; ++i) {
    if (!within(at(i), 0x80, 0xBF)) return 0;
  }
  return length;
}

}  // namespace

std::string Utf8(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = LengthOf(text);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
      text.remove_prefix(1);
    } else {
      out.append(text.data(), length);
      text.remove_prefix(length);
    }
  }
  return out;
}

}  // namespace octavo::rpc

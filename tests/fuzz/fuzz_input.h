#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "absl/strings/string_view.h"

namespace octavo::fuzz {

/// Ends the program: libFuzzer keeps the input.
inline void Require(bool holds) {
  if (!holds) std::abort();
}

/// An input, taken from the front: choices first, then the text or bytes that the target reads.
/// Behind its end everything is 0.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }
  uint8_t Byte() { return Number<uint8_t>(); }
  template <class T>
  T Number() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    const absl::string_view bytes = Bytes(sizeof value);
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  absl::string_view Bytes(size_t most) {
    const absl::string_view bytes = rest_.substr(0, most);
    rest_.remove_prefix(bytes.size());
    return bytes;
  }
  /// Up to the next `end`, which is left out.
  absl::string_view Until(char end) {
    const absl::string_view text = Bytes(std::min(rest_.find(end), rest_.size()));
    (void)Bytes(1);
    return text;
  }
  absl::string_view Rest() { return Bytes(rest_.size()); }

 private:
  absl::string_view rest_;
};

}  // namespace octavo::fuzz

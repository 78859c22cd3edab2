#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

// The small font that labels pictures.
namespace octavo::inline gpu {

/// Size of a character in squares; the pitch includes the gap to the next character.
constexpr int64_t kGlyphHeight = 7, kGlyphPitch = 6;

/// Squares from the left of the first character to the right of the last.
constexpr int64_t TextWidth(std::string_view text) {
  return static_cast<int64_t>(text.size()) * kGlyphPitch - 1;
}

/// Calls `square(row, column)` for every dark square of `text`, counted from the top left. Digits,
/// lower case letters, `A`, `B`, `V` and
/// `. - + / =`; `u` is drawn as the micro sign; a character that the font lacks is a full block, a
/// space nothing.
void ForEachTextSquare(std::string_view text,
                       const std::function<void(int64_t row, int64_t column)>& square);

}  // namespace octavo::inline gpu

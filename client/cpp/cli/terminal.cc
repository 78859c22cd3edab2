#include "client/cpp/cli/terminal.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <sys/ioctl.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "client/cpp/cli/commands.h"

namespace octavo::cli {

bool IsTerminal() { return isatty(STDOUT_FILENO) != 0; }

std::string Printable(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = [&](size_t n) {
      return i + n < text.size() ? static_cast<unsigned>(static_cast<unsigned char>(text[i + n]))
                                 : 0;
    };
    // C0 and DEL are one byte, C1 is C2 80 ... C2 9F; line ends and directions are E2 80 xx, E2 81
    // xx.
    const unsigned wide = byte == 0xE2 ? 0x2000U | (next(1) & 0x3FU) << 6U | (next(2) & 0x3FU) : 0;
    if (byte < 0x20 || byte == 0x7F) {
      absl::StrAppend(&out, "\\x", absl::Hex(byte, absl::kZeroPad2));
      ++i;
    } else if (byte == 0xC2 && next(1) >= 0x80 && next(1) <= 0x9F) {
      absl::StrAppend(&out, "\\x", absl::Hex(next(1), absl::kZeroPad2));
      i += 2;
    } else if ((wide >= 0x200E && wide <= 0x200F) || (wide >= 0x2028 && wide <= 0x202E) ||
               (wide >= 0x2066 && wide <= 0x2069)) {
      absl::StrAppend(&out, "\\u", absl::Hex(wide));
      i += 3;
    } else {
      out += text[i++];
    }
  }
  return out;
}

int TerminalColumns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string RenderImage(const Grey& image, int columns, bool colour) {
  const int64_t step = std::max<int64_t>(1, (image.columns + columns - 1) / columns);
  const int64_t width = image.columns / step;
  // Characters are about twice as high as wide: two pixel rows a character keep the aspect.
  const int64_t height = std::max<int64_t>(1, image.rows / step);
  const auto at = [&](int64_t row, int64_t column) {
    uint8_t most = 0;
    for (int64_t r = row * step; r < std::min((row + 1) * step, image.rows); ++r) {
      for (int64_t c = column * step; c < (column + 1) * step; ++c)
        most = std::max(most, image.pixels[static_cast<size_t>(r * image.columns + c)]);
    }
    return most;
  };
  std::string out;
  char text[64];
  for (int64_t row = 0; row < height; row += 2) {
    for (int64_t column = 0; column < width; ++column) {
      const int top = at(row, column), bottom = row + 1 < height ? at(row + 1, column) : 0;
      if (colour) {
        std::snprintf(text, sizeof text, "\x1b[38;2;%d;%d;%dm\x1b[48;2;%d;%d;%dm", top, top, top,
                      bottom, bottom, bottom);
        out += text;
        out += "\u2580";
      } else {
        out += " .:-=+*#%@"[(top + bottom) / 2 * 9 / 255];
      }
    }
    out += colour ? "\x1b[0m\n" : "\n";
  }
  return out;
}

ProgressBar::~ProgressBar() {
  if (drawn_) std::cerr << "\n";
}

void ProgressBar::Update(double fraction, const std::string& rate, double seconds_left) {
  if (isatty(STDERR_FILENO) == 0) return;
  drawn_ = true;
  constexpr int kWidth = 32;
  const int full = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * kWidth);
  std::cerr << "\r" << label_ << " [" << std::string(static_cast<size_t>(full), '#')
            << std::string(static_cast<size_t>(kWidth - full), ' ') << "] "
            << static_cast<int>(fraction * 100) << " %  " << rate
            << (seconds_left > 0 ? "  " + Seconds(seconds_left) + " left" : "") << "\x1b[K"
            << std::flush;
}

}  // namespace octavo::cli

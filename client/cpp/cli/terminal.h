#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace octavo::cli {

/// A grey image for the terminal.
struct Grey {
  int64_t rows = 0, columns = 0;
  std::vector<uint8_t> pixels;
};

bool IsTerminal();
/// Text of other clients (titles, labels, names), made harmless for the terminal and one line: what
/// controls a terminal, breaks a line or turns the direction of writing becomes \x1b or \u202e.
std::string Printable(const std::string& text);
/// Columns of the terminal; 80 if unknown.
int TerminalColumns();

/// Half-block characters, two pixel rows a line, in 24-bit grey (where `colour`), else ASCII from
/// dark to bright. Shrunk to at most `columns` wide by taking maxima, so that small bright things
/// stay.
std::string RenderImage(const Grey& image, int columns, bool colour);

/// A bar that redraws itself on a terminal (and is silent elsewhere): [#####     ] 42 %  12.3 MiB/s
/// 3.1 s left.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label) : label_(std::move(label)) {}
  ~ProgressBar();
  void Update(double fraction, const std::string& rate, double seconds_left);

 private:
  const std::string label_;
  bool drawn_ = false;
};

}  // namespace octavo::cli

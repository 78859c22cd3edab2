#include <algorithm>
#include <cstdio>
#include <iostream>

#include "client/cpp/bench/bench.h"

namespace octavo::cli {
namespace {

// In readable units: "27.0 M A-scans/s", "55.4 GB/s", "812 us".
std::string Text(double value, const std::string& unit) {
  if (unit == "A-scans/s") return Count(value) + " A-scans/s";
  char text[64];
  std::snprintf(text, sizeof text, value >= 100 ? "%.0f %s" : "%.3g %s", value, unit.c_str());
  return text;
}

size_t Columns(const std::string& text) {  // of UTF-8
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

void BenchReport::Add(const Figure& figure) {
  if (figure.verified.empty()) {
    Refuse(figure.name, "its output was not verified");
    return;
  }
  figures_.push_back(figure);
  if (!session_.json) {
    std::cerr << "  " << figure.name << ": " << Text(figure.value, figure.unit) << "\n";
    return;
  }
  nlohmann::json line = {{"name", figure.name},
                         {"value", figure.value},
                         {"unit", figure.unit},
                         {"included", figure.included},
                         {"verified", figure.verified}};
  if (figure.ceiling > 0) {
    line["ceiling"] = figure.ceiling;
    line["ceiling_name"] = figure.ceiling_name;
    line["of_ceiling"] = figure.value / figure.ceiling;
  }
  line.update(figure.more);
  std::cout << line.dump() << "\n" << std::flush;
}

void BenchReport::Refuse(const std::string& name, const std::string& why) {
  session_.exit_code = kFailed;
  std::cerr << "octavo: " << name << " is not reported: " << why << "\n";
  if (session_.json)
    std::cout << nlohmann::json({{"name", name}, {"refused", why}}).dump() << "\n" << std::flush;
}

void BenchReport::Note(const std::string& text) { notes_ += text; }

void BenchReport::Finish(const std::string& title) {
  if (session_.json || figures_.empty()) return;
  std::vector<std::vector<std::string>> rows = {
      {"what", "figure", "of the ceiling", "included", "verified"}};
  for (const Figure& f : figures_) {
    char ratio[96] = "";
    if (f.ceiling > 0)
      std::snprintf(ratio, sizeof ratio, "%.3g %% of %s", 100 * f.value / f.ceiling,
                    f.ceiling_name.c_str());
    rows.push_back({f.name, Text(f.value, f.unit), ratio, f.included, f.verified});
  }
  size_t widths[5] = {};
  for (const auto& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], Columns(row[c]));
  }
  std::cout << title << "\n";
  for (size_t r = 0; r < rows.size(); ++r) {
    std::cout << "|";
    for (size_t c = 0; c < rows[r].size(); ++c)
      std::cout << " " << rows[r][c] << std::string(widths[c] - Columns(rows[r][c]), ' ') << " |";
    std::cout << "\n";
    if (r > 0) continue;
    std::cout << "|";
    for (const size_t width : widths) std::cout << std::string(width + 2, '-') << "|";
    std::cout << "\n";
  }
  std::cout << notes_ << std::flush;
}

double BenchReport::ValueOf(const std::string& name) const {
  const auto it = std::find_if(figures_.begin(), figures_.end(),
                               [&](const Figure& f) { return f.name == name; });
  return it == figures_.end() ? 0 : it->value;
}

}  // namespace octavo::cli

#pragma once

// The values of the labels of the page. Each series exists, at 0, from the first scrape on;
// otherwise its first failure would not show as an increase.

#include <initializer_list>
#include <string>
#include <vector>

namespace octavo::metrics {

using LabelValues = std::vector<std::string>;

/// The names of an enumeration's values from 0 to 31.
template <class Enum>
LabelValues NamesOf(const char* (*name)(Enum)) {
  LabelValues names;
  for (int value = 0; value < 32; ++value) {
    if (const std::string text = name(static_cast<Enum>(value)); text != "?") names.push_back(text);
  }
  return names;
}

/// Reasons are an open set: a reason that is not in the lists below is counted under this value, so
/// that no series appears later.
inline constexpr char kOther[] = "OTHER";

/// Why scans end.
const LabelValues& ScanEnds();
/// Why scans are refused.
const LabelValues& ScanRejections();
/// Why commits fail.
const LabelValues& CommitErrors();
const LabelValues& JobKinds();
/// Why jobs end.
const LabelValues& JobEnds();
/// Why memory is not handed over.
const LabelValues& ExportRefusals();
/// Why calls of BufferService are refused.
const LabelValues& BufferRefusals();

}  // namespace octavo::metrics

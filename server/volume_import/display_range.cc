#include "server/volume_import/display_range.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "server/storage/io/element_type.h"

namespace octavo::volume_import {
namespace {

constexpr int64_t kMostLookedAt = 1 << 20;
constexpr double kDarkPart = 0.002, kBrightPart = 0.998;

}  // namespace

std::optional<std::pair<double, double>> FindDisplayRange(const void* plane, int64_t elements,
                                                          DType dtype) {
  if (dtype == DType::kC64) return std::nullopt;
  const int64_t size = SizeOf(dtype), step = (elements + kMostLookedAt - 1) / kMostLookedAt,
                count = (elements + step - 1) / step;
  std::vector<char> picked(static_cast<size_t>(count * size));
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(picked.data() + i * size, static_cast<const char*>(plane) + i * step * size,
                static_cast<size_t>(size));
  }
  std::vector<double> values(static_cast<size_t>(count));
  if (!storage::ConvertElements(storage::ElementTypeOf(dtype), DType::kF64, 1, 0, count,
                                picked.data(), values.data()))
    return std::nullopt;
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return std::nullopt;
  const auto at = [&](double part) {
    const auto nth = values.begin() + std::lround(part * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), nth, values.end());
    return *nth;
  };
  const double lo = at(kDarkPart), hi = at(kBrightPart);
  return std::pair(lo, hi > lo ? hi : lo + 1);
}

}  // namespace octavo::volume_import

#pragma once

#include <string>

namespace octavo::inline gpu {

/// A number of bytes for people, in the largest unit that keeps it at 1 or above: "512 B",
/// "64.0 MiB", "1.6 TiB". Programs take the exact number from the details of the error.
std::string SizeText(double bytes);
template <class Integer>
std::string SizeText(Integer bytes) {
  return SizeText(static_cast<double>(bytes));
}

}  // namespace octavo::inline gpu

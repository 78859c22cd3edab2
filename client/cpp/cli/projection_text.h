#pragma once

#include <cstdint>
#include <string>

#include "octavo/v1/stream.pb.h"

namespace octavo::cli {

/// A slab along an axis, as flags name it: "z", "z=100:140", "z=100:", "z=:140".
struct ProjectionText {
  v1::Axis axis = v1::AXIS_UNSPECIFIED;
  int64_t begin = 0, end = 0;  // samples [begin, end); 0: to the end of the axis
};

/// x, y or z. Throws CLI::ValidationError, naming `flag`.
v1::Axis AxisOf(const std::string& flag, const std::string& text);
/// A whole number from 0 on. Throws CLI::ValidationError, naming `flag`.
int64_t IndexOf(const std::string& flag, const std::string& text);
/// Throws CLI::ValidationError, naming `flag`. `needs_range`: an axis alone is refused.
ProjectionText ProjectionOf(const std::string& flag, const std::string& text, bool needs_range);

}  // namespace octavo::cli

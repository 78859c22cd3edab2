#pragma once

namespace octavo::inline gpu {

/// The version of these programs, as the build names it: "0.1.0".
const char* Version();

}  // namespace octavo::inline gpu

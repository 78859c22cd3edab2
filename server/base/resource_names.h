#pragma once

#include <cstdint>
#include <string>

namespace octavo::base {

/// A new 128-bit random id as 32 hex digits behind the server's own: "<server_id>-<32 hex>".
/// Thread-safe.
std::string NewId(const std::string& server_id);

inline std::string DeviceName(int index) { return "devices/" + std::to_string(index); }

}  // namespace octavo::base

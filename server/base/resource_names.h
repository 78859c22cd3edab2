#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace octavo::base {

/// A new 128-bit random id as 32 hex digits behind the server's own: "<server_id>-<32 hex>".
/// Thread-safe.
std::string NewId(const std::string& server_id);

inline std::string DeviceName(int index) { return "devices/" + std::to_string(index); }
/// n of "devices/<n>" as DeviceName writes it; nullopt for every other text.
std::optional<int> DeviceIndex(absl::string_view name);

}  // namespace octavo::base

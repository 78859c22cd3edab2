#include "server/base/resource_names.h"

#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace octavo::base {

std::string NewId(const std::string& server_id) {
  thread_local std::random_device entropy;
  uint64_t words[2];
  for (auto& word : words) word = (static_cast<uint64_t>(entropy()) << 32) | entropy();
  return absl::StrCat(server_id, "-", absl::Hex(words[0], absl::kZeroPad16),
                      absl::Hex(words[1], absl::kZeroPad16));
}

std::optional<int> DeviceIndex(absl::string_view name) {
  int index = 0;
  if (!absl::SimpleAtoi(absl::StripPrefix(name, "devices/"), &index) || index < 0 ||
      DeviceName(index) != name)
    return std::nullopt;
  return index;
}

}  // namespace octavo::base

#include "server/base/resource_names.h"

#include <random>

#include "absl/strings/str_cat.h"

namespace octavo::base {

std::string NewId(const std::string& server_id) {
  thread_local std::random_device entropy;
  uint64_t words[2];
  for (auto& word : words) word = (static_cast<uint64_t>(entropy()) << 32) | entropy();
  return absl::StrCat(server_id, "-", absl::Hex(words[0], absl::kZeroPad16),
                      absl::Hex(words[1], absl::kZeroPad16));
}

}  // namespace octavo::base

#include "gpu/base/reason.h"

#include <cstddef>
#include <iterator>

namespace octavo::inline gpu {
namespace {

constexpr absl::string_view kNames[] = {"",
#define OCTAVO_REASON_(enumerator, name, meaning) name,
                                        OCTAVO_REASONS(OCTAVO_REASON_)
#undef OCTAVO_REASON_
};

}  // namespace

absl::string_view Name(Reason reason) { return kNames[static_cast<size_t>(reason)]; }

std::optional<Reason> ReasonNamed(absl::string_view name) {
  for (size_t i = 1; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return static_cast<Reason>(i);
  }
  return std::nullopt;
}

}  // namespace octavo::inline gpu

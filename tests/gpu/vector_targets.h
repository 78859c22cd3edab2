#pragma once

#include <cstdint>

#include "hwy/highway.h"

namespace octavo::testing {

/// Calls f(target) once with each kind of vectors that this processor has and the build knows, and
/// with none; plans and sizes made within f are of that kind. Then the best kind counts again.
template <class F>
void OnEveryTarget(F f) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    f(target);
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace octavo::testing

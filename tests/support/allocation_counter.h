#pragma once

#include <cstdint>

// Link allocation_counter.cc into a test program: it replaces operator new, to show that a path
// allocates nothing.
namespace octavo::testing {

/// False under the sanitizers, which replace operator new themselves. Such tests are then skipped.
#ifdef OCTAVO_SANITIZED
constexpr bool kCountsAllocations = false;
#else
constexpr bool kCountsAllocations = true;
#endif

/// Calls of operator new since the start of the program, by all threads.
int64_t Allocations();
/// The same, by this thread only.
int64_t AllocationsOfThisThread();

}  // namespace octavo::testing

#include <cstdlib>
#include <limits>
#include <new>
#include <sys/mman.h>

#include "client/cpp/include/octavo/octavo.h"

namespace octavo::client {

namespace {
constexpr size_t kLargePage = size_t{2} << 20;
constexpr size_t kLargeArray = 4 * kLargePage;
}  // namespace

void* AllocateArray(size_t bytes) {
  if (bytes < kLargeArray) return ::operator new(bytes);
  if (bytes > std::numeric_limits<size_t>::max() - kLargePage) throw std::bad_alloc();
  const size_t rounded = (bytes + kLargePage - 1) / kLargePage * kLargePage;
  void* const memory = std::aligned_alloc(kLargePage, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  // One fault for each large page in place of 512. A system that has none gives small ones.
  (void)::madvise(memory, rounded, MADV_HUGEPAGE);
  return memory;
}

void FreeArray(void* memory, size_t bytes) noexcept {
  if (bytes < kLargeArray) return ::operator delete(memory);
  std::free(memory);
}

}  // namespace octavo::client

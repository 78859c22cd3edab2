#include "tests/support/allocation_counter.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace octavo::testing {
namespace {
std::atomic<int64_t> g_all{0};
thread_local int64_t g_of_this_thread = 0;
}  // namespace

int64_t Allocations() { return g_all; }
int64_t AllocationsOfThisThread() { return g_of_this_thread; }

}  // namespace octavo::testing

#ifndef OCTAVO_SANITIZED
namespace {
void* Counted(void* p) {
  ++octavo::testing::g_all;
  ++octavo::testing::g_of_this_thread;
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
}  // namespace

void* operator new(size_t bytes) { return Counted(std::malloc(bytes == 0 ? 1 : bytes)); }
void* operator new[](size_t bytes) { return operator new(bytes); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  const auto a = static_cast<size_t>(alignment);
  return Counted(std::aligned_alloc(a, (bytes + a - 1) / a * a));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return operator new(bytes, alignment);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { std::free(p); }
#endif

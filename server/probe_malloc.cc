// malloc of octavo-probe, which puts an inaccessible page after each larger block. Normally it
// depends on the neighbouring memory whether a read beyond the end of a block crashes: a file that
// octavo-probe survived by luck could crash octavod. glibc's own malloc serves small blocks.

#include <cstddef>  // says whether this is glibc

#if defined(__GLIBC__) && defined(__x86_64__) && !defined(OCTAVO_SANITIZED)

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <sys/mman.h>

extern "C" {
void* __libc_malloc(size_t);            // NOLINT: glibc's names
void* __libc_calloc(size_t, size_t);    // NOLINT
void* __libc_realloc(void*, size_t);    // NOLINT
void* __libc_memalign(size_t, size_t);  // NOLINT
void __libc_free(void*);                // NOLINT
}

namespace {

constexpr size_t kSmall = 512, kPage = 4096, kHead = 16;
constexpr int kMostGuarded = 20000;  // a process may have some 65000 mappings, a block takes two
// Marks the word before a block. There glibc stores sizes, whose upper bits are 0.
constexpr uint64_t kMark = uint64_t{0x0c7a} << 48;
std::atomic<int> g_guarded{0};

struct Head {
  uint64_t bytes;  // as asked for
  uint64_t mark;
};
static_assert(sizeof(Head) == kHead);

Head* HeadOf(void* block) { return reinterpret_cast<Head*>(static_cast<char*>(block) - kHead); }
bool IsGuarded(void* block) { return HeadOf(block)->mark == kMark; }
size_t Rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }
/// Describes the mapping before the guard page; the mapping's end is the block's end.
size_t Mapped(size_t bytes) { return Rounded(kHead + Rounded(bytes, 16), kPage); }

void* Guarded(size_t bytes) {
  if (bytes > SIZE_MAX / 2 || g_guarded.fetch_add(1, std::memory_order_relaxed) >= kMostGuarded) {
    g_guarded.fetch_sub(1, std::memory_order_relaxed);
    return nullptr;
  }
  const size_t mapped = Mapped(bytes);
  void* start =
      ::mmap(nullptr, mapped + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) {
    g_guarded.fetch_sub(1, std::memory_order_relaxed);
    return nullptr;
  }
  ::mprotect(static_cast<char*>(start) + mapped, kPage, PROT_NONE);
  void* block = static_cast<char*>(start) + mapped - Rounded(bytes, 16);
  *HeadOf(block) = {.bytes = bytes, .mark = kMark};
  return block;
}

size_t SizeOf(void* block) {
  if (IsGuarded(block)) return HeadOf(block)->bytes;
  const uint64_t word =
      HeadOf(block)->mark;  // glibc's: bit 1 says that it has a mapping of its own
  return static_cast<size_t>(word & ~uint64_t{7}) - ((word & 2) != 0 ? 16 : 8);
}

}  // namespace

extern "C" {

void* malloc(size_t bytes) {
  if (bytes >= kSmall) {
    if (void* block = Guarded(bytes)) return block;
  }
  return __libc_malloc(bytes);
}

void free(void* block) {
  if (block == nullptr) return;
  if (!IsGuarded(block)) {
    __libc_free(block);
    return;
  }
  const int error = errno;
  const size_t bytes = HeadOf(block)->bytes, mapped = Mapped(bytes);
  ::munmap(static_cast<char*>(block) + Rounded(bytes, 16) - mapped, mapped + kPage);
  g_guarded.fetch_sub(1, std::memory_order_relaxed);
  errno = error;
}

void* calloc(size_t count, size_t bytes) {
  size_t all = 0;
  if (__builtin_mul_overflow(count, bytes, &all)) {
    errno = ENOMEM;
    return nullptr;
  }
  if (all >= kSmall) {
    if (void* block = Guarded(all)) return block;  // of fresh pages
  }
  return __libc_calloc(count, bytes);
}

void* realloc(void* block, size_t bytes) {
  if (block == nullptr) return malloc(bytes);
  if (bytes == 0) {
    free(block);
    return nullptr;
  }
  if (!IsGuarded(block) && bytes < kSmall) return __libc_realloc(block, bytes);
  void* moved = malloc(bytes);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, block, std::min(bytes, SizeOf(block)));
  free(block);
  return moved;
}

size_t malloc_usable_size(void* block) { return block == nullptr ? 0 : SizeOf(block); }
void* memalign(size_t alignment, size_t bytes) {
  return alignment <= 16 ? malloc(bytes) : __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** to, size_t alignment, size_t bytes) {
  void* block = memalign(alignment, bytes);
  if (block == nullptr) return ENOMEM;
  *to = block;
  return 0;
}

}  // extern "C"

#endif

#include "server/heap_trimmer.h"

#include <algorithm>
#include <fstream>
#include <malloc.h>
#include <unistd.h>
#include <utility>

#include "gpu/base/log.h"

namespace octavo {
namespace {

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

HeapTrimmer::Heap LookAtHeap() {
  return {.free_bytes = static_cast<int64_t>(::mallinfo2().fordblks),
          .resident_bytes = ResidentBytes()};
}

}  // namespace

HeapTrimmer::HeapTrimmer(std::function<bool()> idle)
    : HeapTrimmer(Calls{
          .look = LookAtHeap, .trim = [] { (void)::malloc_trim(0); }, .idle = std::move(idle)}) {}

void HeapTrimmer::Turn() {
  if (!calls_.idle())
    return;  // a look holds the locks of the heap for a tenth of a second and more
  const Heap before = calls_.look();
  if (before.resident_bytes == 0) return;  // not known
  least_ = {.free_bytes = std::min(least_.free_bytes, before.free_bytes),
            .resident_bytes = std::min(least_.resident_bytes, before.resident_bytes)};
  // What is free may be the kernel's already, so that it alone says nothing.
  const bool grown = before.resident_bytes - least_.resident_bytes >= growth_;
  const bool freed = before.free_bytes - least_.free_bytes >= kWorth;
  if (before.free_bytes < kWorth || !(grown || freed)) return;
  calls_.trim();
  const Heap after = calls_.look();
  if (after.resident_bytes == 0) return;
  least_ = after;
  const int64_t given = before.resident_bytes - after.resident_bytes;
  growth_ = given >= kWorth / 2 ? kWorth : std::min(2 * growth_, 16 * kWorth);
  if (given <= 0) return;
  Log(LogLevel::kInfo, "free memory was given back to the system",
      {{"bytes", given}, {"resident_bytes", after.resident_bytes}});
}

}  // namespace octavo

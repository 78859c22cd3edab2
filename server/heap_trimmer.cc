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
  floor_ = std::min(floor_, before.resident_bytes);
  if (before.free_bytes < kWorth || before.resident_bytes - floor_ < kWorth) return;
  calls_.trim();
  const int64_t after = calls_.look().resident_bytes;
  if (after == 0) return;
  floor_ = after;
  Log(LogLevel::kInfo, "free memory was given back to the system",
      {{"bytes", before.resident_bytes - floor_}, {"resident_bytes", floor_}});
}

}  // namespace octavo

#include "server/heap_trimmer.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>
#include <unistd.h>
#include <vector>

#include "gtest/gtest.h"

namespace octavo {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

struct Fake {
  HeapTrimmer::Heap heap;
  int64_t left = 0;  // resident after a trim
  bool idle = true;
  int trims = 0;
  HeapTrimmer trimmer{{.look = [this] { return heap; },
                       .trim =
                           [this] {
                             ++trims;
                             heap.resident_bytes = left;
                           },
                       .idle = [this] { return idle; }}};
  int TrimsWith(int64_t free_bytes, int64_t resident_bytes) {
    heap = {.free_bytes = free_bytes, .resident_bytes = resident_bytes};
    trimmer.Turn();
    return trims;
  }
};

TEST(HeapTrimmerTest, TrimsWhatIsFreeAndResident) {
  Fake fake;
  EXPECT_EQ(fake.TrimsWith(10 * kMiB, 3000 * kMiB), 0) << "it is used";
  EXPECT_EQ(fake.TrimsWith(63 * kMiB, 3000 * kMiB), 0) << "too little";
  fake.left = 100 * kMiB;
  EXPECT_EQ(fake.TrimsWith(2000 * kMiB, 2100 * kMiB), 1);
}

TEST(HeapTrimmerTest, WhatIsGivenBackAlreadyIsNoReason) {
  Fake fake;
  fake.left = 2000 * kMiB;  // held by others than the heap
  EXPECT_EQ(fake.TrimsWith(1000 * kMiB, 3000 * kMiB), 1);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(fake.TrimsWith(1000 * kMiB, 2000 * kMiB), 1);
  EXPECT_EQ(fake.TrimsWith(1000 * kMiB, 2063 * kMiB), 1);
  EXPECT_EQ(fake.TrimsWith(1000 * kMiB, 2064 * kMiB), 2);
  // What others let go counts no more.
  fake.left = 500 * kMiB;
  EXPECT_EQ(fake.TrimsWith(1000 * kMiB, 400 * kMiB), 2);
  EXPECT_EQ(fake.TrimsWith(1000 * kMiB, 700 * kMiB), 3);
}

TEST(HeapTrimmerTest, WhatABurstStillUsedAtATrimGoesBackLater) {
  Fake fake;
  fake.left = 300 * kMiB;  // 200 of them are still used
  EXPECT_EQ(fake.TrimsWith(100 * kMiB, 400 * kMiB), 1);
  EXPECT_EQ(fake.TrimsWith(163 * kMiB, 300 * kMiB), 1);
  fake.left = 100 * kMiB;
  EXPECT_EQ(fake.TrimsWith(300 * kMiB, 300 * kMiB), 2);
  EXPECT_EQ(fake.TrimsWith(300 * kMiB, 100 * kMiB), 2);
  // Used and free again: it is resident, whatever the sum says.
  EXPECT_EQ(fake.TrimsWith(200 * kMiB, 150 * kMiB), 2);
  EXPECT_EQ(fake.TrimsWith(263 * kMiB, 150 * kMiB), 2);
  EXPECT_EQ(fake.TrimsWith(264 * kMiB, 150 * kMiB), 3);
}

TEST(HeapTrimmerTest, GrowthThatIsNotTheHeapsIsLessAndLessAReason) {
  Fake fake;
  fake.left = 100 * kMiB;
  EXPECT_EQ(fake.TrimsWith(1000 * kMiB, 1100 * kMiB), 1);
  int64_t resident = fake.left;
  for (int i = 0; i < 100; ++i) {  // 64 MiB of others each time
    fake.left = resident += 64 * kMiB;
    fake.TrimsWith(1000 * kMiB, resident);
  }
  EXPECT_LE(fake.trims, 1 + 5 + 100 / 16);
  // What the heap lets go is one all the same.
  const int before = fake.trims;
  fake.left = resident - 500 * kMiB;
  EXPECT_EQ(fake.TrimsWith(1600 * kMiB, resident), before + 1);
}

TEST(HeapTrimmerTest, WhatIsNotKnownIsNoReason) {
  Fake fake;
  EXPECT_EQ(fake.TrimsWith(3000 * kMiB, 0), 0) << "the system did not say";
  fake.left = 2000 * kMiB;
  EXPECT_EQ(fake.TrimsWith(1000 * kMiB, 3000 * kMiB), 1);
  EXPECT_EQ(fake.TrimsWith(1000 * kMiB, 0), 1);
  EXPECT_EQ(fake.TrimsWith(1000 * kMiB, 2000 * kMiB), 1) << "nothing came to it since";
}

TEST(HeapTrimmerTest, WaitsUntilNobodyMinds) {
  Fake fake;
  fake.idle = false;
  fake.left = 100 * kMiB;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(fake.TrimsWith(2000 * kMiB, 2100 * kMiB), 0);
  fake.idle = true;
  EXPECT_EQ(fake.TrimsWith(2000 * kMiB, 2100 * kMiB), 1);
}

#ifndef OCTAVO_SANITIZED
int64_t Resident() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

// As a burst of calls leaves it: small pieces of another thread's heap, with used ones between.
TEST(HeapTrimmerTest, TheHeapOfThisProcessShrinks) {
  constexpr size_t kPieces = 240'000, kBytes = 1500, kBetweenUsed = 1000;
  std::vector<void*> pieces(kPieces);
  std::jthread([&] {
    for (void*& piece : pieces) piece = std::memset(std::malloc(kBytes), 1, kBytes);
  }).join();
  const int64_t most = Resident();
  for (size_t i = 0; i < kPieces; ++i) {
    if (i % kBetweenUsed != 0) std::free(pieces[i]);
  }
  HeapTrimmer trimmer([] { return true; });
  trimmer.Turn();
  EXPECT_LT(Resident(), most - 250 * kMiB);
  for (size_t i = 0; i < kPieces; i += kBetweenUsed) std::free(pieces[i]);
}
#endif

}  // namespace
}  // namespace octavo

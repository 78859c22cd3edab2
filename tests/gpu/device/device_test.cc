#include "gpu/device/device.h"

#include <atomic>
#include <cstring>
#include <numeric>
#include <random>

#include "gpu/base/clock.h"
#include "gpu/device/digest.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using testing::BackendTest;
using testing::IsError;
using testing::IsOk;

class DeviceTest : public BackendTest {
 protected:
  std::vector<uint8_t> RandomBytes(size_t count) {
    std::vector<uint8_t> bytes(count);
    for (auto& b : bytes) b = static_cast<uint8_t>(random_());
    return bytes;
  }
  std::mt19937 random_{testing::FreshSeed()};
};

TEST_P(DeviceTest, MemoryIsAlignedAndAccountedFor) {
  ASSERT_OK_AND_ASSIGN(const DeviceMemory memory, device_.Memory());
  EXPECT_GT(memory.total_bytes, int64_t{1} << 28);
  EXPECT_GE(memory.total_bytes, memory.free_bytes);
  EXPECT_GT(memory.free_bytes, 0);
  for (const int64_t bytes : {1, 100, 4097, 1 << 20}) {
    ASSERT_OK_AND_ASSIGN(const DeviceBuffer buffer, device_.Allocate(bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 256, 0u);
    EXPECT_EQ(buffer.bytes(), bytes);
    ASSERT_OK_AND_ASSIGN(const PinnedBuffer pinned, device_.AllocatePinned(bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pinned.data()) % 4096, 0u);
    std::memset(pinned.data(), 1, static_cast<size_t>(bytes));
  }
}

TEST_P(DeviceTest, TooMuchMemoryIsRefusedAndTheDeviceStaysUsable) {
  EXPECT_THAT(device_.Allocate(int64_t{1} << 55),
              IsError(absl::StatusCode::kResourceExhausted, ""));
  EXPECT_THAT(device_.Health(), IsOk());
  const auto bytes = RandomBytes(1000);
  EXPECT_EQ(Download<uint8_t>(Upload(bytes), bytes.size()), bytes);
}

TEST_P(DeviceTest, FillRepeatsThePatternToTheLastByte) {
  const uint32_t pattern = 0x04030201u;
  for (const int64_t bytes : {1, 2, 3, 4, 5, 63, 64, 1000, 1025, 65539}) {
    const DeviceBuffer buffer = Poisoned(bytes + 8);
    ASSERT_THAT(device_.Fill(stream_.ref(), buffer.data(), bytes, pattern), IsOk());
    const auto got = Download<uint8_t>(buffer, static_cast<size_t>(bytes) + 8);
    for (int64_t i = 0; i < bytes + 8; ++i) {
      ASSERT_EQ(got[static_cast<size_t>(i)], i < bytes ? i % 4 + 1 : 0xA5)
          << "byte " << i << " of " << bytes;
    }
  }
}

TEST_P(DeviceTest, CopiesBoxesOfEveryElementSize) {
  for (const int64_t element : {1, 2, 4, 8}) {
    for (int trial = 0; trial < 30; ++trial) {
      int64_t shape[3], total = element;
      Box3 box;
      for (int d = 0; d < 3; ++d) {
        shape[d] = 1 + static_cast<int64_t>(random_() % 23);
        box.start[d] = static_cast<int64_t>(random_()) % shape[d];
        box.count[d] = 1 + static_cast<int64_t>(random_()) % (shape[d] - box.start[d]);
        // Some boxes have whole rows and planes.
        if (trial % 5 == d) box.start[d] = 0, box.count[d] = shape[d];
        total *= shape[d];
      }
      const auto bytes = RandomBytes(static_cast<size_t>(total));
      const DeviceBuffer source = Upload(bytes);
      const int64_t count = box.count[0] * box.count[1] * box.count[2] * element;
      std::vector<uint8_t> got(static_cast<size_t>(count) + 16, 0xEE), wanted;
      ASSERT_THAT(
          device_.CopyBoxToHost(stream_.ref(), got.data(), source.data(), shape, element, box),
          IsOk());
      ASSERT_THAT(stream_.ref().Synchronize(), IsOk());
      for (int64_t y = 0; y < box.count[0]; ++y) {
        for (int64_t x = 0; x < box.count[1]; ++x) {
          const int64_t at =
              (((box.start[0] + y) * shape[1] + box.start[1] + x) * shape[2] + box.start[2]) *
              element;
          wanted.insert(wanted.end(), bytes.begin() + at,
                        bytes.begin() + at + box.count[2] * element);
        }
      }
      wanted.insert(wanted.end(), 16, 0xEE);
      ASSERT_EQ(got, wanted) << "shape " << shape[0] << " " << shape[1] << " " << shape[2]
                             << ", elements of " << element;
    }
  }
}

TEST_P(DeviceTest, DigestEqualsTheHostsAndAddsUp) {
  for (const int64_t bytes : {1, 7, 8, 9, 15, 4096, 4097, 1000003}) {
    auto data = RandomBytes(static_cast<size_t>(bytes));
    const DeviceBuffer buffer = Upload(data), out = Poisoned(8);
    ASSERT_THAT(device_.Digest(stream_.ref(), buffer.span<const uint8_t>().First(bytes),
                               out.span<uint64_t>()),
                IsOk());
    const uint64_t digest = Download<uint64_t>(out, 1)[0];
    EXPECT_EQ(digest, DigestBytes(data.data(), bytes, 0)) << bytes;
    const int64_t cut = bytes / 16 * 8;
    EXPECT_EQ(digest,
              DigestBytes(data.data(), cut, 0) + DigestBytes(data.data() + cut, bytes - cut, cut))
        << bytes;
    // A flipped bit anywhere, or two exchanged words, change the digest.
    data[random_() % data.size()] ^= static_cast<uint8_t>(1 << random_() % 8);
    EXPECT_NE(digest, DigestBytes(data.data(), bytes, 0)) << bytes;
  }
  std::vector<uint64_t> words(100);
  std::iota(words.begin(), words.end(), 1);
  const uint64_t before = DigestBytes(words.data(), 800, 0);
  std::swap(words[3], words[77]);
  EXPECT_NE(before, DigestBytes(words.data(), 800, 0));
}

// Digests and stamps are refused where there is no room for their word.
TEST_P(DeviceTest, RefusesADigestOrStampWithoutRoom) {
  const DeviceBuffer buffer = Poisoned(64), out = Poisoned(8);
  ASSERT_OK_AND_ASSIGN(const PinnedBuffer stamp, device_.AllocatePinned(8));
  *stamp.as<int64_t>() = -7;
  ASSERT_THAT(stream_.ref().Synchronize(), IsOk());
  const auto poison = Download<uint64_t>(out, 1);
  const DeviceSpan<const uint8_t> bytes = buffer.span<const uint8_t>();
  const DeviceSpan<uint64_t> none = out.span<uint64_t>().First(0);
  EXPECT_EQ(device_.Digest(stream_.ref(), bytes, none).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(device_.DigestOfPart(stream_.ref(), bytes, {}, none).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(device_.Stamp(stream_.ref(), stamp.span<int64_t>().First(0)).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_THAT(stream_.ref().Synchronize(), IsOk());
  EXPECT_EQ(Download<uint64_t>(out, 1), poison);
  EXPECT_EQ(*stamp.as<int64_t>(), -7);
}

// A buffer is split into runs, which are dealt to several parts: the digests of the parts add up to
// the digest of the whole.
TEST_P(DeviceTest, DigestsOfPartsInRunsAddUp) {
  constexpr int64_t kRun = 264, kParts = 3;
  for (const int64_t bytes :
       {int64_t{8}, int64_t{264}, int64_t{265}, int64_t{3000}, int64_t{100001}}) {
    const auto data = RandomBytes(static_cast<size_t>(bytes));
    uint64_t sum = 0;
    for (int64_t part = 0; part < kParts; ++part) {
      std::vector<uint8_t> own;
      for (int64_t at = part * kRun; at < bytes; at += kParts * kRun) {
        own.insert(own.end(), data.begin() + at, data.begin() + std::min(at + kRun, bytes));
      }
      if (own.empty()) continue;
      const DeviceBuffer buffer = Upload(own), out = Poisoned(8);
      ASSERT_THAT(device_.DigestOfPart(
                      stream_.ref(), buffer.span<const uint8_t>().First(std::ssize(own)),
                      {.first_byte = part * kRun, .run_bytes = kRun, .stride_bytes = kParts * kRun},
                      out.span<uint64_t>()),
                  IsOk());
      sum += Download<uint64_t>(out, 1)[0];
    }
    EXPECT_EQ(sum, DigestBytes(data.data(), bytes, 0)) << bytes;
  }
  const DeviceBuffer buffer = Poisoned(64), out = Poisoned(8);
  for (const DigestPlace& bad :
       {DigestPlace{.first_byte = 4}, DigestPlace{.run_bytes = 12, .stride_bytes = 24},
        DigestPlace{.run_bytes = 16, .stride_bytes = 8}}) {
    EXPECT_EQ(
        device_.DigestOfPart(stream_.ref(), buffer.span<const uint8_t>(), bad, out.span<uint64_t>())
            .code(),
        absl::StatusCode::kInvalidArgument);
  }
  ASSERT_THAT(stream_.ref().Synchronize(), IsOk());  // the poison is written
}

TEST_P(DeviceTest, AnEventNeverRecordedHasPassed) {
  ASSERT_OK_AND_ASSIGN(Event event, device_.NewEvent());
  ASSERT_OK_AND_ASSIGN(const bool passed, event.Query());
  EXPECT_TRUE(passed);
  EXPECT_THAT(event.Synchronize(), IsOk());
  EXPECT_THAT(event.EnqueueWait(stream_.ref()), IsOk());
  EXPECT_THAT(stream_.ref().Synchronize(), IsOk());
}

// Two streams pass a buffer back and forth. Without the waits, or with a wait for the wrong event,
// the rounds would mix.
TEST_P(DeviceTest, EventsOrderTwoStreams) {
  ASSERT_OK_AND_ASSIGN(Stream other, device_.NewStream(StreamPriority::kHigh));
  ASSERT_OK_AND_ASSIGN(Event written, device_.NewEvent());
  ASSERT_OK_AND_ASSIGN(Event read, device_.NewEvent());
  constexpr int64_t kBytes = 1 << 20;
  constexpr uint32_t kRounds = 64;
  const DeviceBuffer shared = Poisoned(kBytes), out = Poisoned(kRounds * 4),
                     last = Poisoned(kRounds * 4);
  ASSERT_THAT(stream_.ref().Synchronize(), IsOk());
  for (uint32_t round = 0; round < kRounds; ++round) {
    ASSERT_THAT(read.EnqueueWait(stream_.ref()), IsOk());
    ASSERT_THAT(device_.Fill(stream_.ref(), shared.data(), kBytes, round), IsOk());
    ASSERT_THAT(written.Record(stream_.ref()), IsOk());
    ASSERT_THAT(written.EnqueueWait(other.ref()), IsOk());
    ASSERT_THAT(device_.CopyOnDevice(other.ref(), out.as<uint32_t>() + round, shared.data(), 4),
                IsOk());
    ASSERT_THAT(device_.CopyOnDevice(other.ref(), last.as<uint32_t>() + round,
                                     shared.as<uint8_t>() + kBytes - 4, 4),
                IsOk());
    ASSERT_THAT(read.Record(other.ref()), IsOk());
  }
  ASSERT_THAT(other.ref().Synchronize(), IsOk());
  const auto first_words = Download<uint32_t>(out, kRounds),
             last_words = Download<uint32_t>(last, kRounds);
  for (uint32_t round = 0; round < kRounds; ++round) {
    EXPECT_EQ(first_words[round], round);
    EXPECT_EQ(last_words[round], round);
  }
  ASSERT_OK_AND_ASSIGN(const bool passed, read.Query());
  EXPECT_TRUE(passed);
}

// Enqueueing behind unfinished work returns at once. The proof is an event that cannot have passed
// yet: it waits for a stream that only later calls release.
TEST_P(DeviceTest, EnqueueingNeverWaits) {
  ASSERT_OK_AND_ASSIGN(Stream slow, device_.NewStream(StreamPriority::kNormal));
  ASSERT_OK_AND_ASSIGN(Event done, device_.NewEvent());
  // So many bytes that 100 writes of them take longer than 100 calls on any machine.
  const int64_t bytes = device_.info().backend == "host" ? 8 << 20 : 64 << 20;
  const DeviceBuffer buffer = Poisoned(bytes);
  ASSERT_THAT(stream_.ref().Synchronize(), IsOk());
  for (uint32_t i = 0; i < 100; ++i)
    ASSERT_THAT(device_.Fill(slow.ref(), buffer.data(), bytes, i), IsOk());
  ASSERT_THAT(done.Record(slow.ref()), IsOk());
  ASSERT_OK_AND_ASSIGN(const bool passed, done.Query());
  EXPECT_FALSE(passed);
  ASSERT_THAT(done.Synchronize(), IsOk());
  ASSERT_OK_AND_ASSIGN(const bool now, done.Query());
  EXPECT_TRUE(now);
  EXPECT_EQ(Download<uint32_t>(buffer, 1)[0], 99u);
}

// The device takes stamps where they stand in the stream, with a clock that ReadClock relates to
// the host's clock.
TEST_P(DeviceTest, StampsTellWhenTheStreamCameThere) {
  constexpr int64_t kBytes = 64 << 20;
  const DeviceBuffer buffer = Poisoned(kBytes);
  ASSERT_OK_AND_ASSIGN(const PinnedBuffer stamps, device_.AllocatePinned(2 * sizeof(int64_t)));
  ASSERT_THAT(stream_.ref().Synchronize(), IsOk());
  ASSERT_OK_AND_ASSIGN(const ClockReading clock, device_.ReadClock());
  const int64_t before = SystemClock().Now().monotonic_ns;
  ASSERT_THAT(device_.Stamp(stream_.ref(), stamps.span<int64_t>()), IsOk());
  for (uint32_t i = 0; i < 20; ++i)
    ASSERT_THAT(device_.Fill(stream_.ref(), buffer.data(), kBytes, i), IsOk());
  ASSERT_THAT(device_.Stamp(stream_.ref(), stamps.span<int64_t>().From(1)), IsOk());
  ASSERT_THAT(stream_.ref().Synchronize(), IsOk());
  const int64_t after = SystemClock().Now().monotonic_ns;
  const int64_t first = stamps.as<int64_t>()[0] - clock.device_ns + clock.host_ns,
                last = stamps.as<int64_t>()[1] - clock.device_ns + clock.host_ns;
  constexpr int64_t kTolerance = 100'000;  // of the clock conversion
  EXPECT_GE(first, before - kTolerance);
  EXPECT_GT(last, first);
  EXPECT_LE(last, after + kTolerance);
  EXPECT_GT(last - first, 20 * kBytes / 10'000);  // no machine writes 10 TB/s
}

INSTANTIATE_TEST_SUITE_P(Backends, DeviceTest, ::testing::ValuesIn(testing::AvailableBackends()),
                         testing::BackendName);

}  // namespace
}  // namespace octavo

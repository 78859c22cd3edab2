#include "gpu/device/exportable_memory.h"

#include <fcntl.h>
#include <filesystem>
#include <set>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gmock/gmock.h"

#include "gpu/base/allocation_fault.h"
#include "gpu/base/status.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/status_matchers.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace octavo {
namespace {

using ::octavo::testing::BackendName;
using ::octavo::testing::IsError;
using ::octavo::testing::IsOk;

class ShareableTest : public ::octavo::testing::BackendTest {
 protected:
  void SetUp() override {
    memory_ = ExportableOf(device_);
    ASSERT_NE(memory_, nullptr);
  }
  void TearDown() override { ClientMemory::MakeExportable(false); }
  static size_t OpenDescriptors() {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                             std::filesystem::directory_iterator()));
  }
  ExportableMemory* memory_ = nullptr;
};

TEST_P(ShareableTest, IsWholeGranulesOfZerosThatTheDeviceWorksOn) {
  ASSERT_OK_AND_ASSIGN(const DeviceBuffer buffer, memory_->AllocateExportable(3'000'001));
  EXPECT_EQ(buffer.bytes(), 2 * ClientMemory::kGranule);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 256, 0u);
  const auto count = static_cast<size_t>(buffer.bytes());
  EXPECT_EQ(Download<uint8_t>(buffer, count), std::vector<uint8_t>(count, 0));
  std::vector<uint8_t> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
  ASSERT_THAT(device_.CopyToDevice(stream_.ref(), buffer.data(), values.data(), buffer.bytes()),
              IsOk());
  const DeviceBuffer other = Poisoned(buffer.bytes());
  ASSERT_THAT(device_.CopyOnDevice(stream_.ref(), other.data(), buffer.data(), buffer.bytes()),
              IsOk());
  EXPECT_EQ(Download<uint8_t>(other, count), values);
  // The digest does not depend on where the bytes lie.
  ASSERT_OK_AND_ASSIGN(const DeviceBuffer sums, device_.Allocate(16));
  const DeviceSpan<uint64_t> digests = sums.span<uint64_t>();
  ASSERT_THAT(device_.Digest(stream_.ref(), buffer.span<const uint8_t>(), digests), IsOk());
  ASSERT_THAT(device_.Digest(stream_.ref(), other.span<const uint8_t>().First(buffer.bytes()),
                             digests.From(1)),
              IsOk());
  const auto words = Download<uint64_t>(sums, 2);
  EXPECT_EQ(words[0], words[1]);
  ASSERT_THAT(device_.Fill(stream_.ref(), buffer.data(), buffer.bytes(), 0x01020304u), IsOk());
  EXPECT_EQ(Download<uint32_t>(buffer, count / 4).back(), 0x01020304u);
}

TEST_P(ShareableTest, EveryAllocationHasItsIdAndItsDescriptor) {
  const size_t before = OpenDescriptors();
  std::set<uint64_t> ids;
  {
    std::vector<DeviceBuffer> buffers;
    for (int i = 0; i < 8; ++i) {
      ASSERT_OK_AND_ASSIGN(DeviceBuffer buffer, memory_->AllocateExportable(1));
      ASSERT_OK_AND_ASSIGN(const SharedMemory shared, memory_->Share(buffer));
      EXPECT_EQ(shared.mapped_bytes, ClientMemory::kGranule);
      EXPECT_GE(::fcntl(shared.fd, F_GETFD), 0);
      EXPECT_TRUE(ids.insert(shared.id).second);
      buffers.push_back(std::move(buffer));
    }
    ASSERT_OK_AND_ASSIGN(const SharedMemory again, memory_->Share(buffers[3]));
    EXPECT_TRUE(ids.contains(again.id));  // the memory is exported only once
  }
  EXPECT_EQ(OpenDescriptors(), before);
  ASSERT_OK_AND_ASSIGN(const DeviceBuffer plain, device_.Allocate(4096));
  EXPECT_THAT(memory_->Share(plain), IsError(absl::StatusCode::kNotFound, "not shareable"));
}

TEST_P(ShareableTest, AFailedAllocationLeavesNothing) {
  { ASSERT_OK_AND_ASSIGN(const DeviceBuffer first, memory_->AllocateExportable(1)); }
  const size_t before = OpenDescriptors();
  AllocationFault::Arm(1);
  const auto failed = memory_->AllocateExportable(1);
  AllocationFault::Arm(0);
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(InfoOf(failed.status()).reason, Reason::kOutOfMemory);
  EXPECT_EQ(memory_->AllocateExportable(int64_t{1} << 50).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(OpenDescriptors(), before);
  EXPECT_THAT(memory_->AllocateExportable(1), IsOk());
}

TEST_P(ShareableTest, ClientMemoryIsOrdinaryUnlessTold) {
  EXPECT_EQ(ClientMemory::Bytes(1000), 1000);
  ASSERT_OK_AND_ASSIGN(const DeviceBuffer plain, ClientMemory::Allocate(device_, 1000));
  EXPECT_EQ(plain.bytes(), 1000);
  EXPECT_EQ(memory_->Share(plain).status().code(), absl::StatusCode::kNotFound);
  ClientMemory::MakeExportable(true);
  EXPECT_EQ(ClientMemory::Bytes(0), ClientMemory::kGranule);
  EXPECT_EQ(ClientMemory::Bytes(ClientMemory::kGranule + 1), 2 * ClientMemory::kGranule);
  ASSERT_OK_AND_ASSIGN(const DeviceBuffer shared, ClientMemory::Allocate(device_, 1000));
  EXPECT_EQ(shared.bytes(), ClientMemory::kGranule);
  EXPECT_THAT(memory_->Share(shared), IsOk());
}

TEST_P(ShareableTest, FreeingWaitsForNoRunningWork) {
  ASSERT_OK_AND_ASSIGN(DeviceBuffer buffer, memory_->AllocateExportable(1));
  ASSERT_OK_AND_ASSIGN(Event done, device_.NewEvent());
  ASSERT_THAT(device_.Delay(stream_.ref(), 500'000'000), IsOk());
  ASSERT_THAT(done.Record(stream_.ref()), IsOk());
  buffer = DeviceBuffer();  // freed: the enqueued work no longer needs it
  ASSERT_OK_AND_ASSIGN(const bool passed, done.Query());
  EXPECT_FALSE(passed);
  ASSERT_THAT(stream_.ref().Synchronize(), IsOk());
}

TEST_P(ShareableTest, AMemoryFileIsReadOnlyForOthers) {
  if (GetParam() != "host") GTEST_SKIP() << "memory files are the host's";
  ASSERT_OK_AND_ASSIGN(const DeviceBuffer buffer, memory_->AllocateExportable(1));
  ASSERT_OK_AND_ASSIGN(const SharedMemory shared, memory_->Share(buffer));
  EXPECT_EQ(::fcntl(shared.fd, F_GET_SEALS) &
                (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL),
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
  EXPECT_EQ(::write(shared.fd, "x", 1), -1);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, shared.fd, 0), MAP_FAILED);
  const int writable = ::open(("/proc/self/fd/" + std::to_string(shared.fd)).c_str(), O_RDWR);
  if (writable >= 0) {
    EXPECT_EQ(::write(writable, "x", 1), -1);
    EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, writable, 0), MAP_FAILED);
    EXPECT_EQ(::ftruncate(writable, 0), -1);
    EXPECT_EQ(::fallocate(writable, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
    ::close(writable);
  }
  // Other mappings see at once what the engine writes.
  void* view = ::mmap(nullptr, static_cast<size_t>(shared.mapped_bytes), PROT_READ, MAP_SHARED,
                      shared.fd, 0);
  ASSERT_NE(view, MAP_FAILED);
  ASSERT_THAT(device_.Fill(stream_.ref(), buffer.data(), buffer.bytes(), 0x2A2A2A2Au), IsOk());
  ASSERT_THAT(stream_.ref().Synchronize(), IsOk());
  EXPECT_EQ(static_cast<const uint8_t*>(view)[shared.mapped_bytes - 1], 42);
  ::munmap(view, static_cast<size_t>(shared.mapped_bytes));
}

INSTANTIATE_TEST_SUITE_P(Backends, ShareableTest,
                         ::testing::ValuesIn(::octavo::testing::AvailableBackends()), BackendName);

}  // namespace
}  // namespace octavo

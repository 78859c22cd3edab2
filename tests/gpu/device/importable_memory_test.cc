#include "gpu/device/importable_memory.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "gmock/gmock.h"

#include "gpu/base/allocation_fault.h"
#include "gpu/base/status.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/lent_memory.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo {
namespace {

using ::octavo::testing::BackendName;
using ::octavo::testing::IsError;
using ::octavo::testing::IsOk;
using ::octavo::testing::LentMemory;
using ::testing::HasSubstr;

constexpr int64_t kBytes = 2 * ClientMemory::kGranule;

size_t OpenDescriptors() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                           std::filesystem::directory_iterator()));
}

UniqueFd Duplicate(int fd) { return UniqueFd(::dup(fd)); }

class ImportableTest : public ::octavo::testing::BackendTest {
 protected:
  void SetUp() override {
    memory_ = ImportableOf(device_);
    ASSERT_NE(memory_, nullptr);
  }
  absl::StatusOr<DeviceBuffer> Import(int fd, int64_t bytes) {
    return memory_->Import(Duplicate(fd), bytes);
  }
  void ExpectRefused(const absl::Status& status, absl::StatusCode code, Reason reason,
                     const std::string& text) {
    EXPECT_THAT(status, IsError(code, text));
    EXPECT_EQ(InfoOf(status).reason, reason) << status;
  }
  ImportableMemory* memory_ = nullptr;
};

TEST_P(ImportableTest, TheDeviceReadsWhatTheOwnerWrites) {
  const size_t before = OpenDescriptors();
  {
    LentMemory lent = LentMemory::Of(device_, kBytes);
    std::vector<uint8_t> values(static_cast<size_t>(kBytes));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<uint8_t>(i * 2654435761u >> 9);
    lent.Write(values.data(), kBytes);
    ASSERT_OK_AND_ASSIGN(const DeviceBuffer buffer, Import(lent.fd(), kBytes));
    EXPECT_EQ(buffer.bytes(), kBytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 256, 0u);
    EXPECT_EQ(Download<uint8_t>(buffer, values.size()), values);
    const DeviceBuffer other = Poisoned(kBytes);
    ASSERT_THAT(device_.CopyOnDevice(stream_.ref(), other.data(), buffer.data(), kBytes), IsOk());
    EXPECT_EQ(Download<uint8_t>(other, values.size()), values);
    values.assign(values.size(), 7);
    lent.Write(values.data(), kBytes);  // in place: no copy was made
    EXPECT_EQ(Download<uint8_t>(buffer, values.size()), values);
    // It outlives its owner.
    lent = LentMemory::Of(device_, kBytes);
    EXPECT_EQ(Download<uint8_t>(buffer, values.size()), values);
    ASSERT_OK_AND_ASSIGN(const DeviceBuffer second, Import(lent.fd(), kBytes));
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_P(ImportableTest, FreeingWaitsForNoRunningWork) {
  const LentMemory lent = LentMemory::Of(device_, kBytes);
  ASSERT_OK_AND_ASSIGN(DeviceBuffer buffer, Import(lent.fd(), kBytes));
  ASSERT_OK_AND_ASSIGN(Event done, device_.NewEvent());
  ASSERT_THAT(device_.Delay(stream_.ref(), 500'000'000), IsOk());
  ASSERT_THAT(done.Record(stream_.ref()), IsOk());
  buffer = DeviceBuffer();
  ASSERT_OK_AND_ASSIGN(const bool passed, done.Query());
  EXPECT_FALSE(passed);
  ASSERT_THAT(stream_.ref().Synchronize(), IsOk());
}

TEST_P(ImportableTest, WhatIsNoMemoryOfThisDevice) {
  const size_t before = OpenDescriptors();
  {
    const octavo::testing::TempFolder folder;
    const std::string path = folder.path() + "/file";
    std::ofstream(path) << std::string(static_cast<size_t>(kBytes), 'x');
    int pair[2], ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    std::vector<std::pair<std::string, UniqueFd>> cases;
    cases.emplace_back("a regular file", ::open(path.c_str(), O_RDWR | O_CLOEXEC));
    cases.emplace_back("a path", ::open(path.c_str(), O_PATH | O_CLOEXEC));
    cases.emplace_back("a folder", ::open(folder.path().c_str(), O_RDONLY | O_CLOEXEC));
    cases.emplace_back("/dev/null", ::open("/dev/null", O_RDWR | O_CLOEXEC));
    cases.emplace_back("/dev/zero", ::open("/dev/zero", O_RDWR | O_CLOEXEC));
    cases.emplace_back("/proc", ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
    cases.emplace_back("a socket", pair[0]);
    cases.emplace_back("its end", pair[1]);
    cases.emplace_back("a pipe", ends[0]);
    cases.emplace_back("its end", ends[1]);
    cases.emplace_back("an event", ::eventfd(0, EFD_CLOEXEC));
    for (const auto& [what, fd] : cases) {
      SCOPED_TRACE(what);
      ASSERT_TRUE(fd);
      const auto refused = memory_->Import(fd, kBytes);
      EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(InfoOf(refused.status()).reason, Reason::kImportKind) << refused.status();
      EXPECT_EQ(InfoOf(refused.status()).field, "descriptor");
    }
    if (GetParam() == "cuda") {
      const LentMemory file = LentMemory::File(kBytes);
      ExpectRefused(Import(file.fd(), kBytes).status(), absl::StatusCode::kInvalidArgument,
                    Reason::kImportKind, "is a memory file of the host");
    }
    EXPECT_EQ(memory_->Import(UniqueFd(), kBytes).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(OpenDescriptors(), before);
  EXPECT_THAT(device_.Health(), IsOk());
}

TEST_P(ImportableTest, TheSizeIsThatOfTheMemory) {
  const LentMemory lent = LentMemory::Of(device_, kBytes);
  const int64_t granule = memory_->ImportGranule();
  ExpectRefused(Import(lent.fd(), kBytes + std::max<int64_t>(granule, 4096)).status(),
                absl::StatusCode::kInvalidArgument, Reason::kImportSize, "announced");
  if (granule > 1) {
    ExpectRefused(Import(lent.fd(), kBytes - 4096).status(), absl::StatusCode::kInvalidArgument,
                  Reason::kImportSize, "allowed are multiples of");
  } else {
    ExpectRefused(Import(lent.fd(), kBytes - 1).status(), absl::StatusCode::kInvalidArgument,
                  Reason::kImportSize, "has 4194304 bytes; announced are 4194303");
  }
  for (const int64_t bytes : {int64_t{0}, int64_t{-4096}})
    EXPECT_EQ(Import(lent.fd(), bytes).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Import(lent.fd(), kBytes), IsOk());
}

TEST_P(ImportableTest, AFailedMappingLeavesNothing) {
  const LentMemory lent = LentMemory::Of(device_, kBytes);
  const size_t before = OpenDescriptors();
  AllocationFault::Arm(1);
  const auto failed = Import(lent.fd(), kBytes);
  AllocationFault::Arm(0);
  ExpectRefused(failed.status(), absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory, "");
  EXPECT_EQ(OpenDescriptors(), before);
  EXPECT_THAT(Import(lent.fd(), kBytes), IsOk());
}

class LentFileTest : public ImportableTest {
 protected:
  void SetUp() override {
    if (GetParam() != "host") GTEST_SKIP() << "memory files are the host's";
    ImportableTest::SetUp();
  }
};

TEST_P(LentFileTest, SealsThatMustBeThere) {
  struct Case {
    int seals;
    const char* missing;  // null: it is taken
  };
  for (const Case& one :
       {Case{0, "F_SEAL_SHRINK"}, Case{F_SEAL_GROW, "F_SEAL_SHRINK"},
        Case{F_SEAL_FUTURE_WRITE, "F_SEAL_SHRINK"}, Case{F_SEAL_SHRINK, "F_SEAL_FUTURE_WRITE"},
        Case{F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, "F_SEAL_FUTURE_WRITE"},
        Case{F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE, nullptr},
        Case{F_SEAL_SHRINK | F_SEAL_WRITE, nullptr},
        Case{F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL, nullptr}}) {
    SCOPED_TRACE(one.seals);
    const LentMemory lent = LentMemory::File(kBytes, one.seals);
    const auto mapped = Import(lent.fd(), kBytes);
    if (one.missing == nullptr) {
      EXPECT_THAT(mapped, IsOk());
      continue;
    }
    ExpectRefused(mapped.status(), absl::StatusCode::kFailedPrecondition, Reason::kImportNotSealed,
                  std::string("no seal ") + one.missing);
    EXPECT_EQ(InfoOf(mapped.status()).numbers.at(0).second, one.missing);
  }
}

// Whatever the owner tries on a file that was taken, the pages stay.
TEST_P(LentFileTest, TheOwnerCannotTakePagesAway) {
  LentMemory lent = LentMemory::File(kBytes);
  const std::vector<uint8_t> values(static_cast<size_t>(kBytes), 42);
  lent.Write(values.data(), kBytes);
  ASSERT_OK_AND_ASSIGN(const DeviceBuffer buffer, Import(lent.fd(), kBytes));
  EXPECT_EQ(::ftruncate(lent.fd(), 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::fallocate(lent.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes), -1);
  EXPECT_EQ(errno, EPERM);
  (void)::ftruncate(lent.fd(), 2 * kBytes);  // it may grow
  EXPECT_EQ(Download<uint8_t>(buffer, values.size()), values);
  // And this side cannot write.
  EXPECT_EQ(::mprotect(buffer.data(), 4096, PROT_READ | PROT_WRITE), -1);
}

TEST_P(LentFileTest, HolesAreRefused) {
  const UniqueFd sparse(::memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(sparse.get(), kBytes), 0);
  ASSERT_EQ(::pwrite(sparse.get(), "x", 1, 4096), 1);
  ASSERT_EQ(::fcntl(sparse.get(), F_ADD_SEALS, octavo::testing::kLentSeals), 0);
  ExpectRefused(memory_->Import(sparse, kBytes).status(), absl::StatusCode::kInvalidArgument,
                Reason::kImportSize, "has holes");
}

TEST_P(LentFileTest, HugePagesAndWriteOnlyDescriptorsAreRefused) {
  const UniqueFd huge(::memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (huge && ::ftruncate(huge.get(), kBytes) == 0 &&
      ::fcntl(huge.get(), F_ADD_SEALS, octavo::testing::kLentSeals) == 0) {
    ExpectRefused(memory_->Import(huge, kBytes).status(), absl::StatusCode::kInvalidArgument,
                  Reason::kImportKind, "huge pages");
  }
  const LentMemory lent = LentMemory::File(kBytes, F_SEAL_SHRINK);
  const UniqueFd writes(
      ::open(("/proc/self/fd/" + std::to_string(lent.fd())).c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(writes);
  ASSERT_EQ(::fcntl(lent.fd(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
  ExpectRefused(memory_->Import(writes, kBytes).status(), absl::StatusCode::kInvalidArgument,
                Reason::kImportKind, "open to write only");
  // A descriptor that reads only is enough.
  const UniqueFd reads(
      ::open(("/proc/self/fd/" + std::to_string(lent.fd())).c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_THAT(memory_->Import(reads, kBytes), IsOk());
}

INSTANTIATE_TEST_SUITE_P(Backends, ImportableTest,
                         ::testing::ValuesIn(::octavo::testing::AvailableBackends()), BackendName);
INSTANTIATE_TEST_SUITE_P(Backends, LentFileTest,
                         ::testing::ValuesIn(::octavo::testing::AvailableBackends()), BackendName);

}  // namespace
}  // namespace octavo

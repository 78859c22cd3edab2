// Measurements of storage roots: what they choose, tell and leave behind.

#include "server/storage/direct/storage_reads.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"
#include "server/storage/direct/probe_file.h"
#include "tests/server/storage/direct/cufile_shim.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::storage {
namespace {

using absl::StatusCode;
using octavo::testing::CuFileShim;
using octavo::testing::IsError;
using octavo::testing::IsOk;
using ::testing::Contains;
using ::testing::HasSubstr;
constexpr int64_t kBytes = 24 << 20;

class StorageReadsTest : public octavo::testing::BackendTest {
 protected:
  StorageReadsTest() : memory_(Poisoned(kBytes)) {}

  StorageReads::Config Config(ReadSetting setting = ReadSetting::kAuto) {
    return {.roots = {folder_.path()},
            .setting = setting,
            .cufile = CuFileShim::Options(),
            .clock = &clock_};
  }
  StorageReads::Place Place() {
    return {
        .device = &device_,
        .lend = [this](int64_t bytes) -> absl::StatusOr<std::shared_ptr<void>> {
          OCTAVO_ASSIGN_OR_RETURN(PinnedBuffer memory, device_.AllocatePinned(bytes));
          auto kept = std::make_shared<PinnedBuffer>(std::move(memory));
          return std::shared_ptr<void>(kept, kept->data());
        },
        .stream = stream_.ref(),
        .memory = memory_.span<uint8_t>(),
        .go_on = [this] { return cancelled_ ? absl::CancelledError("enough") : absl::OkStatus(); }};
  }
  static absl::StatusOr<RootReads> Measure(StorageReads& reads, const std::string& root,
                                           const StorageReads::Place& place,
                                           int64_t bytes = kBytes) {
    OCTAVO_ASSIGN_OR_RETURN(const StorageReads::Turn turn, reads.Begin(root));
    return reads.Measure(turn, bytes, place);
  }
  void ExpectNothingIsLeft() {
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
    EXPECT_EQ(shim_.Get("handles"), 0);
    EXPECT_EQ(shim_.Get("buffers"), 0);
  }

  const octavo::testing::TempFolder folder_;
  const SystemClock clock_;
  CuFileShim shim_;
  DeviceBuffer memory_;
  std::atomic<bool> cancelled_{false};
};

TEST_P(StorageReadsTest, ARootIsMeasuredAtItsFirstUse) {
  StorageReads::Config config = Config();
  config.cufile = {.library = folder_ / "no such library", .check_host = false};
  StorageReads reads(config);
  ASSERT_EQ(reads.List().size(), 1u);
  EXPECT_EQ(reads.List()[0].way, ReadWay::kUnmeasured);
  EXPECT_STREQ(reads.List()[0].word, "unmeasured");
  // Too little memory, or a file elsewhere, measures nothing.
  StorageReads::Place small = Place();
  small.memory = small.memory.First(1 << 20);
  EXPECT_THAT(reads.ChooseFor(folder_ / "a", small), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto elsewhere, reads.ChooseFor("/usr/lib/a", Place()));
  EXPECT_EQ(elsewhere.way, nullptr);
  EXPECT_FALSE(reads.List()[0].measured.has_value());
  ASSERT_OK_AND_ASSIGN(const auto choice, reads.ChooseFor(folder_ / "a/b", Place()));
  ASSERT_NE(choice.way, nullptr);
  EXPECT_EQ(choice.cufile, nullptr);
  const RootReads told = reads.List()[0];
  EXPECT_TRUE(told.measured.has_value());
  EXPECT_TRUE(told.way == ReadWay::kBuffered || told.way == ReadWay::kDirect);
  EXPECT_EQ(choice.way->now(), told.way);
  EXPECT_GT(told.bytes_per_s[1], 0);
  EXPECT_EQ(told.bytes_per_s[3], 0);
  EXPECT_THAT(told.reason, HasSubstr("measured with 64 MiB: buffered "));
  EXPECT_STREQ(told.word, "no_library");
  EXPECT_THAT(told.cufile, HasSubstr("cannot be loaded"));
  EXPECT_THAT(StorageReads::ReasonWords(), Contains(std::string(told.word)));
  ExpectNothingIsLeft();
}

TEST_P(StorageReadsTest, CuFileIsUsedWhereItIsFasterAndSound) {
  struct Case {
    const char* knob;
    long value;
    const char *word, *text;
  };
  for (const Case& c : {Case{"sticky_compat", 1, "compat", "compat mode"},
                        Case{"register_error", 5008, "file_system", "5008 (IO_NOT_SUPPORTED)"},
                        Case{"fail_from", 1, "failed", "failed 1 reads"},
                        Case{"wrong_bytes", 1, "failed", "other bytes"},
                        Case{"delay_us", 50'000, "slower", "cuFile was slower"}}) {
    SCOPED_TRACE(c.knob);
    shim_.Set("reset", 0);
    shim_.Set(c.knob, c.value);
    StorageReads reads(Config());
    ASSERT_OK_AND_ASSIGN(const RootReads told, Measure(reads, folder_.path(), Place()));
    EXPECT_NE(told.way, ReadWay::kCufile);
    EXPECT_STREQ(told.word, c.word) << told.cufile;
    EXPECT_THAT(told.cufile, HasSubstr(c.text));
    EXPECT_THAT(StorageReads::ReasonWords(), Contains(std::string(told.word)));
  }
  shim_.Set("reset", 0);
  StorageReads reads(Config(ReadSetting::kCufile));
  ASSERT_OK_AND_ASSIGN(const RootReads told, Measure(reads, folder_.path(), Place()));
  EXPECT_EQ(told.way, ReadWay::kCufile) << told.cufile;
  EXPECT_STREQ(told.word, "configured");
  EXPECT_EQ(told.cufile, "");
  EXPECT_GT(told.bytes_per_s[3], 0);
  // Eight errors of reads; then a measurement lifts the ban.
  ASSERT_OK_AND_ASSIGN(const auto choice, reads.ChooseFor(folder_ / "a", Place()));
  ASSERT_NE(choice.cufile, nullptr);
  for (int i = 0; i < RootWay::kMostErrors; ++i) choice.way->CuFileFailed("the drive is gone");
  const RootReads demoted = reads.List()[0];
  EXPECT_TRUE(demoted.demoted);
  EXPECT_NE(demoted.way, ReadWay::kCufile);
  EXPECT_STREQ(demoted.word, "demoted");
  EXPECT_EQ(demoted.cufile_errors, 8);
  EXPECT_THAT(demoted.cufile, HasSubstr("8 reads"));
  EXPECT_THAT(demoted.cufile, HasSubstr("the drive is gone"));
  ASSERT_OK_AND_ASSIGN(const RootReads again, Measure(reads, folder_.path(), Place()));
  EXPECT_EQ(again.way, ReadWay::kCufile);
  EXPECT_FALSE(again.demoted);
  EXPECT_EQ(again.cufile_errors, 8) << "counted since the start";
  ExpectNothingIsLeft();
}

TEST_P(StorageReadsTest, WhatIsConfiguredIsUsed) {
  for (const auto& [setting, way] : {std::pair{ReadSetting::kBuffered, ReadWay::kBuffered},
                                     {ReadSetting::kDirect, ReadWay::kDirect},
                                     {ReadSetting::kOff, ReadWay::kUnmeasured}}) {
    StorageReads reads(Config(setting));
    EXPECT_EQ(reads.enabled(), setting != ReadSetting::kOff);
    EXPECT_EQ(reads.List()[0].way, way);
    EXPECT_THAT(reads.ChooseFor(folder_ / "a", Place()), IsOk());
    EXPECT_FALSE(reads.List()[0].measured.has_value()) << "nothing is to be chosen";
    ASSERT_OK_AND_ASSIGN(const RootReads told, Measure(reads, folder_.path(), Place()));
    EXPECT_EQ(told.way, way) << "a measurement is told, and changes nothing";
    EXPECT_GT(told.bytes_per_s[1], 0);
  }
}

TEST_P(StorageReadsTest, MeasurementsThatFail) {
  StorageReads reads(Config());
  const auto measure = [&](const std::string& root) {
    return Measure(reads, root, Place()).status();
  };
  const auto expect = [](const absl::Status& status, StatusCode code, Reason reason) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_EQ(Name(InfoOf(status).reason), Name(reason)) << status;
  };
  expect(measure("/nowhere"), StatusCode::kNotFound, Reason::kNoFile);
  for (int n = 1; n <= 6; ++n) {
    ArmFailpoint("probe_write:errno=28:" + std::to_string(n));
    expect(measure(folder_.path()), StatusCode::kResourceExhausted, Reason::kDiskFull);
  }
  // A measurement leaves half of what is free to others.
  expect(Measure(reads, folder_.path(), Place(), int64_t{1} << 60).status(),
         StatusCode::kResourceExhausted, Reason::kDiskFull);
  ArmFailpoint("probe_create:errno=28");
  expect(measure(folder_.path()), StatusCode::kResourceExhausted, Reason::kDiskFull);
  ArmFailpoint("probe_write:errno=5:2");
  expect(measure(folder_.path()), StatusCode::kInternal, Reason::kIoError);
  ArmFailpoint("direct_read:errno=5:2");
  expect(measure(folder_.path()), StatusCode::kInternal, Reason::kIoError);
  // A root where the server may not write has to have a file.
  ArmFailpoint("probe_create:errno=30");
  expect(measure(folder_.path()), StatusCode::kNotFound, Reason::kNoFile);
  ArmFailpoint("");
  cancelled_ = true;
  EXPECT_EQ(measure(folder_.path()).code(), StatusCode::kCancelled);
  EXPECT_EQ(reads.ChooseFor(folder_ / "a", Place()).status().code(), StatusCode::kCancelled);
  cancelled_ = false;
  EXPECT_EQ(reads.List()[0].way, ReadWay::kUnmeasured);
  ExpectNothingIsLeft();
  // An import goes on where the measurement fails.
  StorageReads other(Config());
  ArmFailpoint("probe_write:errno=28:2");
  ASSERT_OK_AND_ASSIGN(const auto choice, other.ChooseFor(folder_ / "a", Place()));
  ArmFailpoint("");
  EXPECT_NE(choice.way, nullptr);
  EXPECT_THAT(other.List()[0].reason, HasSubstr("could not be measured"));
  ExpectNothingIsLeft();
}

TEST_P(StorageReadsTest, ARootThatIsOnlyReadIsMeasuredByItsOwnFile) {
  std::filesystem::create_directories(folder_ / "deep/er");
  std::ofstream(folder_ / "deep/er/large.bin") << std::string(20 << 20, 'x');
  std::ofstream(folder_ / "small.bin") << std::string(1 << 20, 'x');
  StorageReads reads(Config());
  ArmFailpoint("probe_create:errno=30");
  ASSERT_OK_AND_ASSIGN(const RootReads told, Measure(reads, folder_.path(), Place()));
  ArmFailpoint("");
  EXPECT_THAT(told.reason, HasSubstr("measured with 20 MiB"));
}

TEST_P(StorageReadsTest, OneMeasurementAtATime) {
  StorageReads reads(Config());
  std::atomic<int> busy{0}, done{0};
  std::vector<std::jthread> threads;
  std::vector<DeviceBuffer> memories(4);
  for (DeviceBuffer& memory : memories) {
    memory = Poisoned(kBytes);
    threads.emplace_back([&] {
      StorageReads::Place place = Place();
      const Stream own = *device_.NewStream(StreamPriority::kNormal);
      place.memory = memory.span<uint8_t>();
      place.stream = own.ref();
      const auto told = Measure(reads, folder_.path(), place);
      if (told.ok()) {
        ++done;
      } else if (InfoOf(told.status()).reason == Reason::kMeasuring) {
        ++busy;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(busy + done, 4);
  EXPECT_GE(done, 1);
  ExpectNothingIsLeft();
}

INSTANTIATE_TEST_SUITE_P(Backends, StorageReadsTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::storage

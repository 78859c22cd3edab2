#include "server/storage/history/history_writer.h"

#include <atomic>
#include <chrono>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "gpu/base/failpoint.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace {

std::atomic<bool> g_hang{false};

}  // namespace

// Replaces libc's function: a disk that hangs.
extern "C" int fdatasync(int fd) {
  while (g_hang) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return static_cast<int>(::syscall(SYS_fdatasync, fd));
}

namespace octavo::storage {
namespace {

using octavo::testing::IsOk;
using octavo::testing::TempFolder;
using std::chrono::milliseconds;
using std::chrono::seconds;

HistoryRow Row(int number, const std::string& state = "DONE") {
  return {.name = absl::StrCat("scans/", number),
          .number = static_cast<uint64_t>(number),
          .state = state,
          .ended = state != "RUNNING",
          .ended_unix_ns = 1,
          .details = "{}"};
}

class HistoryWriterTest : public ::testing::Test {
 protected:
  void TearDown() override {
    ArmFailpoint("");
    g_hang = false;
  }
  std::unique_ptr<HistoryWriter> Start(size_t most = 100, HistoryLimits limits = {.days = 0}) {
    auto database = HistoryDatabase::Open(folder_, nullptr);
    EXPECT_THAT(database, IsOk());
    return std::make_unique<HistoryWriter>(*std::move(database), limits, most);
  }
  std::vector<HistoryRow> Load() {
    auto database = HistoryDatabase::Open(folder_, nullptr);
    EXPECT_THAT(database, IsOk());
    auto rows = (*database)->Load();
    EXPECT_THAT(rows, IsOk());
    return *rows;
  }
  template <class F>
  static bool Soon(F done) {
    for (int i = 0; i < 10'000 && !done(); ++i) std::this_thread::sleep_for(milliseconds(1));
    return done();
  }

  TempFolder temp_;
  const std::string folder_ = temp_ / "history";
};

TEST_F(HistoryWriterTest, WritesWhatIsPut) {
  auto writer = Start();
  for (int n = 1; n <= 50; ++n) writer->Put(Row(n));
  EXPECT_EQ(writer->Close(seconds(20)), 0u);
  EXPECT_EQ(writer->Count().written, 50);
  writer.reset();
  EXPECT_EQ(Load().size(), 50u);
}

TEST_F(HistoryWriterTest, TheNewestRowOfANameIsWritten) {
  auto writer = Start();
  for (int i = 0; i < 100; ++i) writer->Put(Row(1, "RUNNING"));
  writer->Put(Row(1));
  EXPECT_EQ(writer->Close(seconds(20)), 0u);
  writer.reset();
  EXPECT_EQ(Load(), std::vector<HistoryRow>{Row(1)});
}

TEST_F(HistoryWriterTest, ADiskThatHangsHoldsNobodyUp) {
  auto writer = Start(/*most=*/20);
  writer->Put(Row(1));
  ASSERT_TRUE(Soon([&] { return writer->Count().waiting == 0; }));
  g_hang = true;
  const auto begun = std::chrono::steady_clock::now();
  for (int n = 2; n <= 100; ++n) writer->Put(Row(n));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(20));
  const HistoryWriter::Counts counts = writer->Count();
  EXPECT_GT(counts.dropped, 0);
  EXPECT_GE(counts.waiting, 20);
  EXPECT_EQ(counts.written, 1);
  // Nor the end.
  EXPECT_GT(writer->Close(milliseconds(50)), 0u);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(20));
  writer.reset();
  g_hang = false;
  // The thread finds its way out, and lets go of the folder.
  EXPECT_TRUE(Soon([&] { return HistoryDatabase::Open(folder_, nullptr).ok(); }));
  EXPECT_GE(Load().size(), 2u);
}

TEST_F(HistoryWriterTest, RowsThatADiskDidNotTakeAreWrittenLater) {
  auto writer = Start();
  ArmFailpoint("history_write:errno=28:*");
  writer->Put(Row(1, "RUNNING"));
  ASSERT_TRUE(Soon([&] { return writer->Count().errors > 0; }));
  EXPECT_TRUE(writer->Count().failing);
  EXPECT_THAT(writer->Count().error, ::testing::HasSubstr("No space left"));
  EXPECT_EQ(writer->Count().waiting, 1);
  writer->Put(Row(1));  // is the one to be written
  ArmFailpoint("");
  ASSERT_TRUE(Soon([&] { return writer->Count().waiting == 0; }));
  EXPECT_FALSE(writer->Count().failing);
  EXPECT_GE(writer->Count().written, 1);  // a retry may have had the first row in hand
  writer.reset();
  EXPECT_EQ(Load(), std::vector<HistoryRow>{Row(1)});
}

TEST_F(HistoryWriterTest, TheEndDoesNotTryAgain) {
  auto writer = Start();
  ArmFailpoint("history_write:errno=5:*");
  writer->Put(Row(1));
  ASSERT_TRUE(Soon([&] { return writer->Count().errors > 0; }));
  const int64_t errors = writer->Count().errors;
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(writer->Close(seconds(60)), 1u);
  EXPECT_LE(writer->Count().errors, errors + 1) << "one may have been under way";
  EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(30));
}

TEST_F(HistoryWriterTest, OldRowsGoWhileItRuns) {
  auto writer = Start(/*most=*/1000, {.kept = 10, .days = 0});
  for (int n = 1; n <= 450; ++n) {
    writer->Put(Row(n));
    if (n % 150 == 0) ASSERT_TRUE(Soon([&] { return writer->Count().waiting == 0; }));
  }
  EXPECT_EQ(writer->Close(seconds(20)), 0u);
  writer.reset();
  EXPECT_LT(Load().size(), 250u);
}

TEST_F(HistoryWriterTest, NothingIsTakenAfterItsEnd) {
  auto writer = Start();
  EXPECT_EQ(writer->Close(seconds(20)), 0u);
  writer->Put(Row(1));
  EXPECT_EQ(writer->Count().dropped, 1);
  writer.reset();
  EXPECT_TRUE(Load().empty());
}

}  // namespace
}  // namespace octavo::storage

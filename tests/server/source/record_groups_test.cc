#include "server/source/record_groups.h"

#include <algorithm>
#include <deque>
#include <vector>

#include "gtest/gtest.h"

#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

// Delivers blocks of one-byte records whose byte is the record's number.
class Blocks final : public Source {
 public:
  explicit Blocks(std::deque<std::pair<int64_t, int64_t>> blocks)
      : blocks_(std::move(blocks)) {}  // first, records
  absl::StatusOr<SourceBlock> Next(void* slot, int64_t max_records, std::stop_token) override {
    if (blocks_.empty()) return SourceBlock{};
    auto& [first, left] = blocks_.front();
    const SourceBlock block{.first_record = first,
                            .records = std::min(left, max_records),
                            .acquired = {.monotonic_ns = first + std::min(left, max_records)}};
    for (int64_t i = 0; i < block.records; ++i)
      static_cast<uint8_t*>(slot)[i] = static_cast<uint8_t>(first + i);
    first += block.records;
    left -= block.records;
    if (left == 0) blocks_.pop_front();
    return block;
  }
  absl::StatusOr<SourceBlock> Skip(int64_t records, std::stop_token) override {
    skipped_ += records;
    return SourceBlock{.first_record = 12, .records = records};
  }
  bool CanWait() const override { return false; }
  int64_t skipped_ = 0;

 private:
  std::deque<std::pair<int64_t, int64_t>> blocks_;
};

// Returns all delivered groups, and checks that each consists of its own records.
std::vector<int64_t> Groups(int64_t size, std::deque<std::pair<int64_t, int64_t>> blocks,
                            int64_t max_groups) {
  Blocks source(std::move(blocks));
  RecordGroups groups(size, 1);
  std::vector<int64_t> out;
  for (;;) {
    std::vector<uint8_t> slot(static_cast<size_t>(size * max_groups));
    const auto block = groups.Next(source, slot.data(), max_groups, {});
    EXPECT_TRUE(block.ok());
    if (block->records == 0) return out;
    EXPECT_LE(block->records, max_groups);
    for (int64_t g = 0; g < block->records; ++g) {
      out.push_back(block->first_record + g);
      for (int64_t i = 0; i < size; ++i)
        EXPECT_EQ(slot[static_cast<size_t>(g * size + i)], (block->first_record + g) * size + i);
    }
    EXPECT_GE(block->acquired.monotonic_ns, (block->first_record + block->records) * size);
  }
}

using Numbers = std::vector<int64_t>;

TEST(RecordGroupsTest, OneIsTheSourceItself) {
  EXPECT_EQ(Groups(1, {{0, 2}, {5, 1}}, 4), (Numbers{0, 1, 5}));
}

TEST(RecordGroupsTest, BlocksOfAnySizeMakeWholeGroups) {
  EXPECT_EQ(Groups(3, {{0, 12}}, 2), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(Groups(3, {{0, 1}, {1, 1}, {2, 5}, {7, 2}}, 4), (Numbers{0, 1, 2}));
  EXPECT_EQ(Groups(3, {{0, 7}}, 4), (Numbers{0, 1})) << "the end cuts the last group";
  EXPECT_EQ(Groups(4, {{0, 3}}, 4), (Numbers{}));
}

TEST(RecordGroupsTest, AGapLosesTheGroupsItTouches) {
  EXPECT_EQ(Groups(3, {{0, 4}, {6, 3}}, 4), (Numbers{0, 2}))
      << "record 5 is lost, and with it group 1";
  EXPECT_EQ(Groups(3, {{0, 3}, {7, 5}}, 4), (Numbers{0, 3})) << "begins within group 2";
  EXPECT_EQ(Groups(3, {{1, 2}, {3, 3}}, 4), (Numbers{1}));
  EXPECT_EQ(Groups(3, {{2, 1}, {4, 1}, {6, 3}}, 4), (Numbers{2}));
  EXPECT_EQ(Groups(2, {{0, 3}, {9, 1}, {10, 4}}, 8), (Numbers{0, 5, 6}));
}

TEST(RecordGroupsTest, SkipsInGroups) {
  Blocks source({});
  RecordGroups groups(4, 1);
  ASSERT_OK_AND_ASSIGN(const SourceBlock block, groups.Skip(source, 5, {}));
  EXPECT_EQ(source.skipped_, 20);
  EXPECT_EQ(block.first_record, 3);
  EXPECT_EQ(block.records, 5);
}

}  // namespace
}  // namespace octavo::engine

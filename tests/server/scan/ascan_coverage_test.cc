#include "server/scan/ascan_coverage.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "tests/support/rooms.h"

namespace octavo::engine {
namespace {

using Ranges = std::vector<std::pair<int64_t, int64_t>>;

// Two A-scans, three times each, with flyback after each pass.
const std::vector<int32_t> kPasses = {0, 1, -1, 1, 0, -1, 0, 1, -1};

TEST(AscanCoverageTest, AveragedAscansAreMissingIfNoneOfTheirRecordsCame) {
  AscanCoverage some(kPasses, 8, 3);
  some.Placed(0, 1);  // A-scan 0
  some.Placed(7, 1);  // A-scan 1, in the last pass
  EXPECT_TRUE(some.all_seen());
  some.Finish();
  EXPECT_EQ(some.missing_ascans(), 0);

  AscanCoverage one(kPasses, 8, 3);
  one.Placed(4, 1);  // only A-scan 0
  one.Finish();
  EXPECT_EQ(one.missing(), (Ranges{{1, 1}}));
  EXPECT_EQ(one.missing_ascans(), 1);

  AscanCoverage none(kPasses, 8, 3);
  none.Finish();
  EXPECT_EQ(none.missing(), (Ranges{{0, 2}}));
}

}  // namespace
}  // namespace octavo::engine

#include "server/job/job_order.h"

#include <iterator>

#include "gmock/gmock.h"

#include "tests/server/job/job_parts.h"

namespace octavo::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::MakeJob;
using testing::NamesOf;

TEST(JobOrderTest, HigherPrioritiesComeFirstAndEqualOnesInTheirOrder) {
  const JobOrder order;
  const JobList jobs = {MakeJob("a"), MakeJob("idle", -1), MakeJob("urgent", 2), MakeJob("b")};
  EXPECT_THAT(NamesOf(order.Waiting(jobs)), ElementsAre("urgent", "a", "b", "idle"));
}

TEST(JobOrderTest, APlaceIsThatInTheOrder) {
  JobOrder order;
  const JobList jobs = {MakeJob("a1", 0, "a"), MakeJob("low", -1), MakeJob("a2", 0, "a"),
                        MakeJob("b1", 0, "b"), MakeJob("runs"),    MakeJob("urgent", 2, "b")};
  (*std::next(jobs.begin(), 4))->status.state = JobState::kRunning;
  for (const char* served : {"c", "a", "b", "a"}) {
    order.Served(served);
    int64_t place = 0;
    for (const JobPtr& job : order.Waiting(jobs)) {
      EXPECT_EQ(order.PlaceOf(*job, jobs), ++place) << job->status.name << " after " << served;
    }
    EXPECT_EQ(place, 5);
  }
}

TEST(JobOrderTest, JobsThatDoNotWaitAreLeftOut) {
  const JobOrder order;
  const JobList jobs = {MakeJob("a"), MakeJob("b")};
  jobs.front()->status.state = JobState::kRunning;
  EXPECT_THAT(NamesOf(order.Waiting(jobs)), ElementsAre("b"));
  EXPECT_THAT(JobOrder::Returning(jobs), IsEmpty());
}

TEST(JobOrderTest, TheGroupThatWasServedLongestAgoComesFirst) {
  JobOrder order;
  const JobList jobs = {MakeJob("a1", 0, "a"), MakeJob("a2", 0, "a"), MakeJob("b1", 0, "b"),
                        MakeJob("c1", 0, "c")};
  order.Served("a");
  order.Served("b");
  EXPECT_THAT(NamesOf(order.Waiting(jobs)), ElementsAre("c1", "a1", "a2", "b1"));
  order.Served("c");
  order.Served("a");
  EXPECT_THAT(NamesOf(order.Waiting(jobs)), ElementsAre("b1", "c1", "a1", "a2"));
}

TEST(JobOrderTest, AGroupWithoutJobsIsForgotten) {
  JobOrder order;
  order.Served("a");
  order.Served("b");
  const auto a = MakeJob("a", 0, "a"), b = MakeJob("b", 0, "b");
  order.KeepGroupsOf({b});
  EXPECT_THAT(NamesOf(order.Waiting({b, a})), ElementsAre("a", "b")) << "a is new again";
}

TEST(JobOrderTest, JobsReturnByPriorityThenInTheOrderOfTheirReturn) {
  const auto first = MakeJob("first"), second = MakeJob("second"), urgent = MakeJob("urgent", 1);
  first->returned = 7;
  second->returned = 3;
  urgent->returned = 9;
  EXPECT_THAT(NamesOf(JobOrder::Returning({first, second, urgent})),
              ElementsAre("urgent", "second", "first"));
}

}  // namespace
}  // namespace octavo::engine

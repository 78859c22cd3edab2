#include "server/job/job_admission.h"

#include "gpu/base/status.h"
#include "tests/server/job/job_parts.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using testing::IdleWork;

class JobAdmissionTest : public testing::JobPartsTest {
 protected:
  JobAdmissionTest() : JobPartsTest(2) {}
  static JobSpec On(const std::string& device) {
    JobSpec spec;
    spec.device = device;
    return spec;
  }
  JobAdmission admission_{services_.devices, &ledger_};
};

TEST_F(JobAdmissionTest, AJobMayRunWhereTheRequestAndItsDataAllow) {
  EXPECT_EQ(admission_.Admit(On(""), IdleWork(), nullptr)->size(), 2u);
  EXPECT_EQ(admission_.Admit(On("auto"), IdleWork(1024, 1), nullptr)->begin()->first, 1);
  EXPECT_EQ(admission_.Admit(On("devices/1"), IdleWork(), nullptr)->begin()->first, 1);
  EXPECT_THAT(admission_.Admit(On("devices/7"), IdleWork(), nullptr),
              IsError(absl::StatusCode::kInvalidArgument, "devices/0 to devices/1"));
  EXPECT_THAT(admission_.Admit(On("devices/1"), IdleWork(1024, 0), nullptr),
              IsError(absl::StatusCode::kInvalidArgument, "the volume is on devices/0"));
}

TEST_F(JobAdmissionTest, WhatExceedsTheBudgetIsRefusedAndWhatIsTakenIsNot) {
  AdmissionReport report;
  const auto refused = admission_.Admit(On(""), IdleWork(kBudgetBytes + 1), &report);
  EXPECT_EQ(InfoOf(refused.status()).reason, Reason::kExceedsBudget);
  EXPECT_GT(report.wanted_bytes, report.budget_bytes);
  ASSERT_TRUE(
      ledger_
          .Reserve(0, "scans/a", "",
                   {{.kind = model::NeedKind::kVolumeSlots, .bytes = kBudgetBytes, .count = 1}},
                   nullptr)
          .ok());
  EXPECT_EQ(admission_.Admit(On(""), IdleWork(), nullptr)->size(), 2u) << "it can wait";
  JobPlan plan;
  ASSERT_OK_AND_ASSIGN(const auto now, admission_.Plan(On(""), IdleWork(), &plan));
  EXPECT_TRUE(now.admitted);
  EXPECT_EQ(now.device, "devices/1");
  EXPECT_EQ(plan.text, "nothing");
}

TEST_F(JobAdmissionTest, OnlyHealthyDevicesCount) {
  opened_.devices[0]->InjectFault("the test");
  EXPECT_EQ(admission_.Admit(On(""), IdleWork(), nullptr)->begin()->first, 1);
  EXPECT_EQ(InfoOf(admission_.Admit(On("devices/0"), IdleWork(), nullptr).status()).reason,
            Reason::kDeviceDown);
}

TEST_F(JobAdmissionTest, AResultOnDiskNeedsOnlyItsProjection) {
  JobPlan plan;
  plan.workspace_bytes = 1;
  plan.results = {{.bytes = 1 << 16, .mip_bytes = 256, .on_disk = true}};
  const Ledger::Needs needs = JobAdmission::NeedsOf(plan);
  ASSERT_EQ(needs.size(), 2u);
  EXPECT_EQ(needs[0].kind, model::NeedKind::kResult);
  EXPECT_LT(needs[0].bytes, 1 << 12);
  EXPECT_EQ(needs[1].kind, model::NeedKind::kWorkspace);
  plan.results[0].on_disk = false;
  EXPECT_GE(JobAdmission::NeedsOf(plan)[0].bytes, 1 << 16);
}

TEST_F(JobAdmissionTest, ResultsOnDiskThatFollowEachOtherShareTheirProjection) {
  JobPlan plan;
  plan.workspace_bytes = 1;
  plan.results = {{.bytes = 1 << 16, .mip_bytes = 1 << 12, .on_disk = true}};
  for (int i = 0; i < 9; ++i)
    plan.results.push_back({.bytes = 1 << 16, .on_disk = true, .after_before = true});
  const Ledger::Needs needs = JobAdmission::NeedsOf(plan);
  ASSERT_EQ(needs.size(), 3u) << "the first, the others together, the workspace";
  EXPECT_EQ(needs[0].count, 1);
  EXPECT_GE(needs[0].bytes, 1 << 12);
  EXPECT_EQ(needs[1].kind, model::NeedKind::kResult);
  EXPECT_EQ(needs[1].count, 9);
  EXPECT_EQ(needs[1].bytes, 9 * plan.results[1].charged_bytes());
  EXPECT_LT(needs[1].bytes, 1 << 12);
  EXPECT_EQ(needs[2].kind, model::NeedKind::kWorkspace);
}

}  // namespace
}  // namespace octavo::engine

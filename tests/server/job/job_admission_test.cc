#include "server/job/job_admission.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"

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

/// devices/0 and devices/host.
class HostForJobsAdmissionTest : public JobAdmissionTest {
 protected:
  static DeviceSet WithHost(const DeviceSet& devices) {
    std::vector<DeviceSet::Member> members;
    for (int d = 0; d < devices.size(); ++d)
      members.push_back({&devices.device(d), devices.frames(d)});
    return DeviceSet(std::move(members), /*host_for_jobs=*/true);
  }
  static IdleWork Work(JobKind kind, int home = -1) { return IdleWork(1024, home, nullptr, kind); }
  /// The devices on which the job may run, or why it may not.
  absl::StatusOr<std::vector<int>> May(const std::string& device, const IdleWork& work) const {
    OCTAVO_ASSIGN_OR_RETURN(const auto plans, on_host_.Admit(On(device), work, nullptr));
    std::vector<int> devices;
    for (const auto& [d, plan] : plans) devices.push_back(d);
    return devices;
  }
  JobAdmission on_host_{WithHost(services_.devices), &ledger_};
};

TEST_F(HostForJobsAdmissionTest, OnlyAJobThatNamesItRunsOnTheHost) {
  for (const JobKind kind : {JobKind::kTomography, JobKind::kProjection}) {
    for (const char* device : {"", "auto", "devices/0"})
      EXPECT_THAT(*May(device, Work(kind)), ::testing::ElementsAre(0)) << device;
    EXPECT_THAT(*May("devices/host", Work(kind)), ::testing::ElementsAre(1));
  }
  EXPECT_THAT(May("devices/1", Work(JobKind::kTomography)),
              IsError(absl::StatusCode::kInvalidArgument,
                      "device: is 'devices/1'; allowed are auto, devices/0, devices/host"));
  opened_.devices[0]->InjectFault("the test");
  EXPECT_EQ(InfoOf(May("auto", Work(JobKind::kTomography)).status()).reason, Reason::kDeviceDown);
  EXPECT_THAT(*May("devices/host", Work(JobKind::kTomography)), ::testing::ElementsAre(1));
}

TEST_F(HostForJobsAdmissionTest, OtherKindsOfJobsAreRefused) {
  for (const JobKind kind : {JobKind::kReprocess, JobKind::kDispersionAutofocus,
                             JobKind::kKCalibration, JobKind::kImport}) {
    EXPECT_THAT(May("devices/host", Work(kind)),
                IsError(absl::StatusCode::kInvalidArgument,
                        absl::StrCat("device: is devices/host, which runs tomography and "
                                     "projection jobs, and this is a job of kind ",
                                     Name(kind), "; allowed are auto, devices/0")));
    const absl::Status other = May("devices/7", Work(kind)).status();
    EXPECT_EQ(other.message(), "device: is 'devices/7'; allowed are auto, devices/0")
        << Name(kind) << ": devices/host would be refused next";
  }
}

TEST_F(HostForJobsAdmissionTest, DataThereDoNotBringAJobThere) {
  EXPECT_THAT(May("auto", Work(JobKind::kTomography, 1)),
              IsError(absl::StatusCode::kInvalidArgument,
                      "device: is auto, but the volume is on devices/host"));
  EXPECT_THAT(*May("devices/host", Work(JobKind::kTomography, 1)), ::testing::ElementsAre(1));
  EXPECT_THAT(May("devices/host", Work(JobKind::kTomography, 0)),
              IsError(absl::StatusCode::kInvalidArgument, "but the volume is on devices/0"));
}

TEST_F(JobAdmissionTest, AServerWithoutTheHostForJobsSaysSo) {
  EXPECT_THAT(admission_.Admit(On("devices/host"), IdleWork(), nullptr),
              IsError(absl::StatusCode::kInvalidArgument,
                      "device: is 'devices/host', which this server does not have "
                      "(device.host_for_jobs of its configuration is false); allowed are auto, "
                      "devices/0 to devices/1"));
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

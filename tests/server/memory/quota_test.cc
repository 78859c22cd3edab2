// What principals are charged, and that every end of what they pay for gives it back.

#include "server/memory/quota.h"

#include <atomic>
#include <barrier>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gpu/base/failpoint.h"
#include "server/memory/ledger.h"
#include "tests/support/status_matchers.h"

namespace octavo::memory {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using security::Owner, security::Role;
constexpr absl::StatusCode kExhausted = absl::StatusCode::kResourceExhausted;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

const Owner kAda{.name = "ada", .role = Role::kOperator};
const Owner kBob{.name = "bob", .role = Role::kOperator};
const Owner kVera{.name = "vera", .role = Role::kViewer};
const Owner kRoot{.name = "root", .role = Role::kAdmin};

int64_t UsedBy(const QuotaBook& book, const Owner& owner, QuotaKind kind) {
  return book.UseOf(owner)[static_cast<size_t>(kind)].used;
}

QuotaRules AtMost(QuotaKind kind, int64_t most) {
  QuotaRules rules;
  rules.SetUsual(kind, most);
  return rules;
}

TEST(QuotaRules, ANamePrecedesItsRoleAndThatTheUsual) {
  QuotaRules rules = AtMost(QuotaKind::kScans, 2);
  rules.SetUsual(QuotaKind::kJobs, 5);
  ASSERT_THAT(rules.AddException("role:viewer scans=1"), IsOk());
  ASSERT_THAT(rules.AddException("ada scans=7"), IsOk());
  ASSERT_THAT(rules.AddException("role:operator scans=3 jobs=0"), IsOk());
  EXPECT_EQ(rules.LimitOf(QuotaKind::kScans, kAda), 7);
  EXPECT_EQ(rules.LimitOf(QuotaKind::kJobs, kAda), 0) << "of her role";
  EXPECT_EQ(rules.LimitOf(QuotaKind::kScans, kBob), 3);
  EXPECT_EQ(rules.LimitOf(QuotaKind::kScans, kVera), 1);
  EXPECT_EQ(rules.LimitOf(QuotaKind::kJobs, kVera), 5) << "not named by her line";
  EXPECT_EQ(rules.LimitOf(QuotaKind::kScans, kRoot), 0) << "admins have no quota";
  ASSERT_THAT(rules.AddException("role:admin scans=9"), IsOk());
  EXPECT_EQ(rules.LimitOf(QuotaKind::kScans, kRoot), 9) << "unless it is said";
}

TEST(QuotaRules, ANameWithSpacesStandsInQuotes) {
  QuotaRules rules = AtMost(QuotaKind::kScans, 2);
  ASSERT_THAT(rules.AddException(R"("cn:Inès Müller" scans=7 jobs=3)"), IsOk());
  ASSERT_THAT(rules.AddException(R"(  "bob"  scans=5)"), IsOk());
  ASSERT_THAT(rules.AddException(R"("role:viewer" scans=1)"), IsOk());
  const Owner ines{.name = "cn:Inès Müller", .role = Role::kOperator};
  EXPECT_EQ(rules.LimitOf(QuotaKind::kScans, ines), 7);
  EXPECT_EQ(rules.LimitOf(QuotaKind::kJobs, ines), 3);
  EXPECT_EQ(rules.LimitOf(QuotaKind::kScans, kBob), 5);
  EXPECT_EQ(rules.LimitOf(QuotaKind::kScans, kVera), 1);
  EXPECT_THAT(rules.AddException("bob jobs=1"), IsError(kInvalid, "bob a second time"));
}

TEST(QuotaRules, BadExceptionsSayWhatIsAllowed) {
  for (const char* bad : {"",
                          "ada",
                          "ada scans",
                          "ada scans=",
                          "ada scans=-1",
                          "ada scans=x",
                          "ada scan=1",
                          "ada scans=1 scans=2",
                          "role: scans=1",
                          "role:none scans=1",
                          "role:king scans=1",
                          "ada scans=1125899906842625",
                          "\"ada scans=1",
                          "\"ada\"scans=1",
                          "\"ada\"",
                          "\"\" scans=1",
                          "\"a\" b\" scans=1",
                          "cn:Ada L scans=1",
                          "scans=1",
                          "ada: scans=1",
                          "king:ada scans=1"}) {
    QuotaRules rules;
    EXPECT_THAT(rules.AddException(bad), IsError(kInvalid, "allowed is a name")) << bad;
  }
  QuotaRules rules;
  ASSERT_THAT(rules.AddException("ada scans=1"), IsOk());
  EXPECT_THAT(rules.AddException("ada jobs=1"), IsError(kInvalid, "ada a second time"));
}

TEST(QuotaBook, OneTooManyIsRefusedWithTheNumbersAndChargesNothing) {
  QuotaBook book(AtMost(QuotaKind::kScans, 2));
  ASSERT_OK_AND_ASSIGN(QuotaCharge first, book.Take(kAda, QuotaKind::kScans, 1, "the scan"));
  ASSERT_OK_AND_ASSIGN(QuotaCharge second, book.Take(kAda, QuotaKind::kScans, 1, "the scan"));
  const auto refused = book.Take(kAda, QuotaKind::kScans, 1, "the scan");
  EXPECT_THAT(refused,
              IsError(kExhausted, "quota.scans: ada uses 2, and the scan needs 1 more; allowed 2"));
  const ErrorInfo info = InfoOf(refused.status());
  EXPECT_EQ(info.reason, Reason::kQuota);
  const std::vector<std::pair<std::string, std::string>> numbers = {
      {"principal", "ada"}, {"kind", "scans"}, {"used", "2"},
      {"wanted", "1"},      {"allowed", "2"},  {"retryable", "true"}};
  EXPECT_THAT(info.numbers, ::testing::UnorderedElementsAreArray(numbers));
  EXPECT_EQ(UsedBy(book, kAda, QuotaKind::kScans), 2);
  EXPECT_THAT(book.Take(kBob, QuotaKind::kScans, 2, "it"), IsOk()) << "each has an own account";
  EXPECT_THAT(book.Take(kAda, QuotaKind::kJobs, 1, "it"), IsOk()) << "each kind by itself";
  second.Release();
  EXPECT_THAT(book.Take(kAda, QuotaKind::kScans, 1, "the scan"), IsOk());
  EXPECT_EQ(book.Refusals()["scans"], 1);
  // Whoever waits asks without being counted, and takes nothing.
  EXPECT_THAT(book.Check(kAda, QuotaKind::kScans, 3, "the scan"), IsError(kExhausted, "ada uses"));
  EXPECT_EQ(book.Refusals()["scans"], 1);
  EXPECT_EQ(book.Refusals()["jobs"], 0) << "there from the first scrape on";
  EXPECT_EQ(book.Refusals().size(), kQuotaKinds);
}

TEST(QuotaBook, NobodyAndAdminsAndWhatTheServerDoesAreNotRefused) {
  QuotaBook book(AtMost(QuotaKind::kDeviceBytes, 100));
  ASSERT_OK_AND_ASSIGN(QuotaCharge nobodys,
                       book.Take({}, QuotaKind::kDeviceBytes, 1000, "the scan"));
  EXPECT_EQ(nobodys.amount(), 0);
  ASSERT_OK_AND_ASSIGN(QuotaCharge of_root,
                       book.Take(kRoot, QuotaKind::kDeviceBytes, 1000, "the scan"));
  EXPECT_EQ(UsedBy(book, kRoot, QuotaKind::kDeviceBytes), 1000) << "counted all the same";
  const QuotaCharge moved = book.TakeAnyway(kAda, QuotaKind::kDeviceBytes, 150);
  EXPECT_EQ(UsedBy(book, kAda, QuotaKind::kDeviceBytes), 150);
  EXPECT_THAT(book.Take(kAda, QuotaKind::kDeviceBytes, 1, "the scan"),
              IsError(kExhausted, "ada uses 150 B"));
}

TEST(QuotaBook, WhatCanNeverFitSaysSo) {
  QuotaBook book(AtMost(QuotaKind::kDeviceBytes, 100));
  EXPECT_THAT(book.CheckEver(kAda, QuotaKind::kDeviceBytes, 100, "the job"), IsOk());
  const absl::Status never = book.CheckEver(kAda, QuotaKind::kDeviceBytes, 101, "the job");
  EXPECT_THAT(never, IsError(kExhausted, "it can never fit"));
  EXPECT_THAT(InfoOf(never).numbers, ::testing::Contains(::testing::Pair("retryable", "false")));
  EXPECT_THAT(book.CheckEver(kRoot, QuotaKind::kDeviceBytes, 101, "the job"), IsOk());
  EXPECT_THAT(book.Take(kAda, QuotaKind::kDeviceBytes, INT64_MAX, "the job"),
              IsError(kExhausted, "never"));
}

TEST(QuotaCharge, ItsPartsAndItsMovesGiveBackOnce) {
  QuotaBook book;
  {
    ASSERT_OK_AND_ASSIGN(QuotaCharge all, book.Take(kAda, QuotaKind::kDeviceBytes, 10, "it"));
    QuotaCharge part = all.Split(4);
    EXPECT_EQ(all.amount(), 6);
    EXPECT_EQ(part.amount(), 4);
    QuotaCharge too_much = part.Split(9);
    EXPECT_EQ(too_much.amount(), 4) << "what there is";
    EXPECT_EQ(UsedBy(book, kAda, QuotaKind::kDeviceBytes), 10) << "a split charges nothing";
    all = std::move(too_much);
    EXPECT_EQ(UsedBy(book, kAda, QuotaKind::kDeviceBytes), 4) << "what was there is given back";
    QuotaCharge& same = all;
    all = std::move(same);
    EXPECT_EQ(UsedBy(book, kAda, QuotaKind::kDeviceBytes), 4);
    all.Release();
    all.Release();
    EXPECT_EQ(UsedBy(book, kAda, QuotaKind::kDeviceBytes), 0);
    EXPECT_EQ(book.accounts(), 1u) << "the empty part refers to it";
  }
  EXPECT_EQ(book.accounts(), 0u) << "names do not pile up";
}

// The limit holds at every moment, and each of two who want the last place gets it or not.
TEST(QuotaBook, HoldsUnderManyThreads) {
  constexpr int64_t kMost = 5;
  constexpr int kThreads = 8, kRounds = 4000;
  QuotaBook book(AtMost(QuotaKind::kJobs, kMost));
  std::atomic<int64_t> charged{0};
  std::atomic<int> over{0}, granted{0}, refused{0};
  std::barrier start(kThreads);
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      for (int i = 0; i < kRounds; ++i) {
        const int64_t amount = 1 + (t + i) % 3;
        auto charge = book.Take(kAda, QuotaKind::kJobs, amount, "it");
        if (!charge.ok()) {
          ++refused;
          continue;
        }
        ++granted;
        if ((charged += amount) > kMost) ++over;
        QuotaCharge part = charge->Split(1);
        charged -= amount;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(over, 0);
  EXPECT_GT(granted, 0);
  EXPECT_EQ(granted + refused, kThreads * kRounds);
  EXPECT_EQ(book.Refusals()["jobs"], refused);
  EXPECT_EQ(book.accounts(), 0u);
}

TEST(QuotaBook, OneOfManyGetsTheLastPlace) {
  for (int round = 0; round < 200; ++round) {
    QuotaBook book(AtMost(QuotaKind::kScans, 1));
    std::atomic<int> got{0};
    std::barrier start(4);
    std::vector<std::optional<QuotaCharge>> kept(4);
    {
      std::vector<std::jthread> threads;
      for (size_t t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
          start.arrive_and_wait();
          if (auto charge = book.Take(kAda, QuotaKind::kScans, 1, "it"); charge.ok()) {
            ++got;
            kept[t] = *std::move(charge);
          }
        });
      }
    }
    ASSERT_EQ(got, 1);
  }
}

// -- the ledger's charges

Ledger::Needs Slots(int64_t bytes, int64_t count) {
  return {{.kind = model::NeedKind::kVolumeSlots, .bytes = bytes, .count = count}};
}

TEST(LedgerQuota, RefusesThePayerAndChangesNothing) {
  QuotaBook book(AtMost(QuotaKind::kDeviceBytes, 500));
  Ledger ledger({1000, 1000}, &book);
  model::AdmissionReport report;
  ASSERT_OK_AND_ASSIGN(const auto first,
                       ledger.Reserve(0, "scans/a", "", Slots(300, 3), &report, kAda));
  EXPECT_EQ(UsedBy(book, kAda, QuotaKind::kDeviceBytes), 300);
  const auto refused = ledger.Reserve(1, "scans/b", "", Slots(201, 1), &report, kAda);
  EXPECT_THAT(refused, IsError(kExhausted,
                               "quota.device_bytes: ada uses 300 B, and the scan needs "
                               "201 B more; allowed 500 B"));
  EXPECT_EQ(InfoOf(refused.status()).reason, Reason::kQuota);
  EXPECT_EQ(report.device, "") << "the device's account says nothing about it";
  EXPECT_EQ(ledger.UseOf(1).reserved, 0);
  EXPECT_EQ(ledger.Refusals()["QUOTA"], 1);
  EXPECT_EQ(UsedBy(book, kAda, QuotaKind::kDeviceBytes), 300) << "all devices together";
  EXPECT_THAT(ledger.Reserve(1, "scans/c", "", Slots(900, 1), nullptr, kRoot), IsOk());
  EXPECT_THAT(ledger.CheckQuota(Slots(501, 1), kAda), IsError(kExhausted, "never"));
  EXPECT_THAT(ledger.CheckQuota(Slots(500, 1), kAda), IsOk());
  for (const auto id : first) ledger.Release(id);
  EXPECT_EQ(UsedBy(book, kAda, QuotaKind::kDeviceBytes), 0);
}

TEST(LedgerQuota, FollowsAChargeThroughItsKinds) {
  QuotaBook book;
  Ledger ledger({1000}, &book);
  ASSERT_OK_AND_ASSIGN(const auto ids,
                       ledger.Reserve(0, "scans/a", "", Slots(200, 2), nullptr, kAda));
  const auto used = [&](const Owner& owner) {
    return UsedBy(book, owner, QuotaKind::kDeviceBytes);
  };
  ledger.Hold(ids[0], "volumes/x");
  EXPECT_EQ(used(kAda), 200) << "a held volume is its owner's";
  ledger.Move(ids[0], ChargeKind::kDetached, "volumes/x");
  EXPECT_EQ(used(kAda), 200) << "as long as another process has its memory";
  ledger.Move(ids[1], ChargeKind::kCached, "");
  EXPECT_EQ(used(kAda), 100) << "the cache is nobody's";
  ASSERT_OK_AND_ASSIGN(
      const Ledger::Grant grant,
      ledger.ReserveReusing(0, "scans/b", "", Slots(200, 2), {ids[1]}, nullptr, kBob));
  EXPECT_EQ(grant.reused, 1u);
  EXPECT_EQ(used(kBob), 200) << "what is taken over counts, too";
  ledger.SetPayer({ids[0]}, kVera);
  EXPECT_EQ(used(kAda), 0);
  EXPECT_EQ(used(kVera), 100);
  ledger.Release(ids[0]);
  for (const auto id : grant.charges) ledger.Release(id);
  EXPECT_EQ(book.accounts(), 0u);
}

TEST(LedgerQuota, WhatAChargeNoLongerCountsIsGivenBack) {
  QuotaBook book(AtMost(QuotaKind::kDeviceBytes, 500));
  Ledger ledger({1000}, &book);
  const auto id = ledger.Reserve(0, "jobs/a", "", Slots(400, 1), nullptr, kAda).value()[0];
  ledger.Shrink(id, 150);
  EXPECT_EQ(ledger.UseOf(0).reserved, 150);
  EXPECT_EQ(ledger.BytesOf("jobs/a"), 150);
  EXPECT_EQ(UsedBy(book, kAda, QuotaKind::kDeviceBytes), 150);
  ledger.Shrink(id, 300);
  EXPECT_EQ(ledger.UseOf(0).reserved, 150) << "it never grows";
  EXPECT_THAT(ledger.Reserve(0, "jobs/b", "", Slots(350, 1), nullptr, kAda), IsOk());
  ledger.Release(id);
  EXPECT_EQ(UsedBy(book, kAda, QuotaKind::kDeviceBytes), 350);
}

TEST(LedgerQuota, WhatBreaksOffIsGivenBack) {
  QuotaBook book;
  Ledger ledger({1000}, &book);
  ASSERT_OK_AND_ASSIGN(const auto cached,
                       ledger.Reserve(0, "scans/a", "", Slots(100, 1), nullptr, kAda));
  ledger.Move(cached[0], ChargeKind::kCached, "");
  ArmFailpoint("ledger_granting:throw=bad_alloc");
  EXPECT_ANY_THROW(
      (void)ledger.ReserveReusing(0, "scans/b", "", Slots(300, 3), cached, nullptr, kBob));
  ArmFailpoint("");
  EXPECT_EQ(book.accounts(), 0u);
  EXPECT_EQ(ledger.UseOf(0).reserved, 0);
  EXPECT_EQ(ledger.UseOf(0).cached, 100);
}

}  // namespace
}  // namespace octavo::memory

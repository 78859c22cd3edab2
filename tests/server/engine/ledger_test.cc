#include "server/engine/ledger.h"

#include <numeric>
#include <random>
#include <thread>

#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;

TEST(Ledger, OneByteTooMuchIsRefusedWithTheNumbers) {
  Ledger ledger({1000});
  AdmissionReport report;
  ASSERT_OK_AND_ASSIGN(const auto first, ledger.Reserve(0, "scans/a", "eye", {{"volume", 600, 2}, {"ring", 100, 1}}, &report));
  EXPECT_EQ(first.size(), 3u);
  EXPECT_EQ(report.wanted_bytes, 700);
  const auto refused = ledger.Reserve(0, "scans/b", "", {{"volume", 301, 1}}, &report);
  ASSERT_THAT(refused, IsError(absl::StatusCode::kResourceExhausted, "devices/0 has 300 of 1000 bytes free, the scan needs 301"));
  EXPECT_EQ(InfoOf(refused.status()).reason, "DEVICE_FULL");
  EXPECT_FALSE(report.admitted);
  EXPECT_TRUE(report.retryable);
  ASSERT_EQ(report.holders.size(), 1u);
  EXPECT_EQ(report.holders[0].name, "scans/a");
  EXPECT_EQ(report.holders[0].bytes, 700);
  EXPECT_EQ(report.holders[0].title, "eye");
  EXPECT_EQ(ledger.UseOf(0).reserved, 700) << "a refusal charges nothing";
  EXPECT_TRUE(ledger.Reserve(0, "scans/b", "", {{"volume", 300, 1}}, nullptr).ok());
}

TEST(Ledger, WhatCanNeverFitSaysSo) {
  Ledger ledger({1000});
  const auto refused = ledger.Reserve(0, "scans/a", "", {{"volume", 1001, 1}}, nullptr);
  EXPECT_EQ(InfoOf(refused.status()).reason, "EXCEEDS_BUDGET");
  EXPECT_THAT(refused, IsError(absl::StatusCode::kResourceExhausted, "raise the budget of devices/0 by 1 bytes"));
}

TEST(Ledger, HeldVolumesAreTheirOwnHolders) {
  Ledger ledger({1000, 500});
  ASSERT_OK_AND_ASSIGN(const auto ids, ledger.Reserve(0, "scans/a", "", {{"volume", 600, 2}}, nullptr));
  ledger.Hold(ids[1], "volumes/x");
  EXPECT_EQ(ledger.UseOf(0).held, 300);
  EXPECT_EQ(ledger.UseOf(0).reserved, 300);
  EXPECT_EQ(ledger.UseOf(1).free(), 500) << "devices have accounts of their own";
  const auto report = ledger.Plan(0, {{"volume", 900, 1}});
  ASSERT_EQ(report.holders.size(), 2u);
  EXPECT_EQ(report.holders[0].bytes, 300);
  EXPECT_NE(report.advice.find("worth 500 bytes"), std::string::npos) << report.advice;
  ledger.Unhold(ids[1]);
  EXPECT_EQ(ledger.UseOf(0).held, 0);
  for (const auto id : ids) ledger.Release(id);
  ledger.Release(ids[0]);  // twice: nothing
  EXPECT_EQ(ledger.UseOf(0).free(), 1000);
}

// Random programs from several threads: never over the budget, all or nothing, and the sums come out.
TEST(Ledger, RandomProgramsKeepTheInvariant) {
  constexpr int64_t kBudget = 10'000;
  Ledger ledger({kBudget});
  std::vector<std::thread> threads;
  std::atomic<int64_t> granted{0}, refused{0};
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t + std::random_device{}());
      std::vector<Ledger::ChargeId> mine;
      for (int step = 0; step < 2000; ++step) {
        if (random() % 3 != 0 || mine.empty()) {
          const auto count = static_cast<int64_t>(1 + random() % 4), each = static_cast<int64_t>(1 + random() % 900);
          auto ids = ledger.Reserve(0, absl::StrCat("scans/", t), "", {{"volume", count * each, count}}, nullptr);
          if (ids.ok()) {
            ASSERT_EQ(static_cast<int64_t>(ids->size()), count);
            mine.insert(mine.end(), ids->begin(), ids->end());
            ++granted;
          } else {
            ++refused;
          }
        } else {
          const size_t i = random() % mine.size();
          if (random() % 2 == 0) ledger.Hold(mine[i], "volumes/v");
          ledger.Release(mine[i]);
          mine.erase(mine.begin() + static_cast<int64_t>(i));
        }
        const auto use = ledger.UseOf(0);
        ASSERT_LE(use.reserved + use.held, kBudget);
        ASSERT_GE(use.free(), 0);
      }
      for (const auto id : mine) ledger.Release(id);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_GT(granted, 100);
  EXPECT_GT(refused, 100);
  EXPECT_EQ(ledger.UseOf(0).free(), kBudget);
}

}  // namespace
}  // namespace octavo::engine

#include "server/memory/ledger.h"

#include <atomic>
#include <barrier>
#include <numeric>
#include <random>
#include <thread>

#include "tests/support/rooms.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;

TEST(Ledger, OneByteTooMuchIsRefusedWithTheNumbers) {
  Ledger ledger({1000});
  AdmissionReport report;
  ASSERT_OK_AND_ASSIGN(
      const auto first,
      ledger.Reserve(0, "scans/a", "eye",
                     {{NeedKind::kVolumeSlots, 600, 2}, {NeedKind::kRawBlocks, 100, 1}}, &report));
  EXPECT_EQ(first.size(), 3u);
  EXPECT_EQ(report.wanted_bytes, 700);
  const auto refused =
      ledger.Reserve(0, "scans/b", "", {{NeedKind::kVolumeSlots, 301, 1}}, &report);
  ASSERT_THAT(refused, IsError(absl::StatusCode::kResourceExhausted,
                               "devices/0 has 300 B of 1000 B free; the scan needs 301 B"));
  EXPECT_EQ(InfoOf(refused.status()).reason, Reason::kDeviceFull);
  EXPECT_FALSE(report.admitted);
  EXPECT_TRUE(report.retryable);
  ASSERT_EQ(report.holders.size(), 1u);
  EXPECT_EQ(report.holders[0].name, "scans/a");
  EXPECT_EQ(report.holders[0].bytes, 700);
  EXPECT_EQ(report.holders[0].title, "eye");
  EXPECT_EQ(ledger.UseOf(0).reserved, 700) << "a refusal charges nothing";
  EXPECT_TRUE(ledger.Reserve(0, "scans/b", "", {{NeedKind::kVolumeSlots, 300, 1}}, nullptr).ok());
}

TEST(Ledger, WhatCanNeverFitSaysSo) {
  Ledger ledger({1000});
  const auto refused =
      ledger.Reserve(0, "scans/a", "", {{NeedKind::kVolumeSlots, 1001, 1}}, nullptr);
  EXPECT_EQ(InfoOf(refused.status()).reason, Reason::kExceedsBudget);
  EXPECT_THAT(refused, IsError(absl::StatusCode::kResourceExhausted,
                               "raise the budget of devices/0 by 1 B"));
}

TEST(Ledger, HeldVolumesAreTheirOwnHolders) {
  Ledger ledger({1000, 500});
  ASSERT_OK_AND_ASSIGN(const auto ids, ledger.Reserve(0, "scans/a", "",
                                                      {{NeedKind::kVolumeSlots, 600, 2}}, nullptr));
  ledger.Hold(ids[1], "volumes/x");
  EXPECT_EQ(ledger.UseOf(0).held, 300);
  EXPECT_EQ(ledger.UseOf(0).reserved, 300);
  EXPECT_EQ(ledger.UseOf(1).free(), 500) << "devices have accounts of their own";
  const auto report = ledger.Plan(0, {{NeedKind::kVolumeSlots, 900, 1}});
  ASSERT_EQ(report.holders.size(), 2u);
  EXPECT_EQ(report.holders[0].bytes, 300);
  EXPECT_NE(report.advice.find("worth 500 B"), std::string::npos) << report.advice;
  ledger.Unhold(ids[1]);
  EXPECT_EQ(ledger.UseOf(0).held, 0);
  for (const auto id : ids) ledger.Release(id);
  ledger.Release(ids[0]);  // a second release has no effect
  EXPECT_EQ(ledger.UseOf(0).free(), 1000);
}

// Random programs from several threads. The ledger never exceeds the budget, grants all or nothing,
// and keeps its sums right.
TEST(Ledger, RandomProgramsKeepTheInvariant) {
  constexpr int64_t kBudget = 10'000;
  Ledger ledger({kBudget});
  std::vector<std::thread> threads;
  std::atomic<int64_t> granted{0}, refused{0};
  const uint32_t seed = testing::FreshSeed();
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(seed + t);
      std::vector<Ledger::ChargeId> mine;
      for (int step = 0; step < 2000; ++step) {
        if (random() % 3 != 0 || mine.empty()) {
          const auto count = static_cast<int64_t>(1 + random() % 4),
                     each = static_cast<int64_t>(1 + random() % 900);
          auto ids = ledger.Reserve(0, absl::StrCat("scans/", t), "",
                                    {{NeedKind::kVolumeSlots, count * each, count}}, nullptr);
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

// The sum over the charges equals the ledger's own sum.
void ExpectConsistent(const Ledger& ledger, int device) {
  const auto use = ledger.UseOf(device);
  int64_t rows = 0;
  for (const auto& holder : ledger.HoldersOf(device)) rows += holder.bytes;
  EXPECT_EQ(rows, use.granted() + use.cached);
  EXPECT_LE(use.granted() + use.cached, use.budget);
  for (const int64_t part : {use.reserved, use.held, use.buffers, use.cached, use.detached})
    EXPECT_GE(part, 0);
}

TEST(Ledger, ExactlyTheBudgetFitsAGranuleMoreDoesNot) {
  constexpr int64_t kGranule = 2 << 20, kBudget = 64 * kGranule;
  Ledger ledger({kBudget});
  EXPECT_TRUE(ledger.Plan(0, {{NeedKind::kVolumeSlots, kBudget, 64}}).admitted);
  AdmissionReport report;
  const auto refused = ledger.Reserve(
      0, "scans/a", "",
      {{NeedKind::kVolumeSlots, kBudget, 64}, {NeedKind::kRawBlocks, kGranule, 1}}, &report);
  EXPECT_EQ(InfoOf(refused.status()).reason, Reason::kExceedsBudget);
  EXPECT_EQ(report.wanted_bytes, kBudget + kGranule);
  EXPECT_EQ(report.free_bytes, kBudget);
  EXPECT_EQ(ledger.UseOf(0).granted(), 0);
  ASSERT_TRUE(
      ledger.Reserve(0, "scans/a", "", {{NeedKind::kVolumeSlots, kBudget, 64}}, &report).ok());
  EXPECT_EQ(ledger.UseOf(0).free(), 0);
  EXPECT_FALSE(ledger.Reserve(0, "scans/b", "", {{NeedKind::kVolumeSlots, 1, 1}}, nullptr).ok());
  EXPECT_EQ(ledger.Refusals().at("EXCEEDS_BUDGET"), 1);
  EXPECT_EQ(ledger.Refusals().at("DEVICE_FULL"), 1);
  ExpectConsistent(ledger, 0);
}

TEST(Ledger, PlanAndReserveSayTheSame) {
  Ledger ledger({1000});
  ASSERT_OK_AND_ASSIGN(const auto ids, ledger.Reserve(0, "scans/a", "eye",
                                                      {{NeedKind::kVolumeSlots, 900, 3}}, nullptr));
  ledger.Hold(ids[0], "volumes/x");
  ledger.Move(ids[1], ChargeKind::kBuffer, "buffers/b");
  const AdmissionReport planned = ledger.Plan(0, {{NeedKind::kVolumeSlots, 200, 2}});
  AdmissionReport answered;
  EXPECT_FALSE(
      ledger.Reserve(0, "scans/b", "", {{NeedKind::kVolumeSlots, 200, 2}}, &answered).ok());
  EXPECT_EQ(planned.advice, answered.advice);
  EXPECT_EQ(planned.free_bytes, answered.free_bytes);
  ASSERT_EQ(planned.holders.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(planned.holders[i].name, answered.holders[i].name);
    EXPECT_EQ(planned.holders[i].kind, answered.holders[i].kind);
  }
}

TEST(Ledger, SeveralDevicesAllOrNothing) {
  Ledger ledger({1000, 500});
  std::vector<AdmissionReport> reports;
  const auto refused = ledger.ReserveAll(
      "scans/a", "",
      {{0, {{NeedKind::kVolumeSlots, 600, 2}}}, {1, {{NeedKind::kVolumeSlots, 501, 1}}}}, &reports);
  EXPECT_THAT(refused, IsError(absl::StatusCode::kResourceExhausted, "devices/1 has 500"));
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_TRUE(reports[0].admitted);
  EXPECT_FALSE(reports[1].admitted);
  EXPECT_EQ(ledger.UseOf(0).granted(), 0) << "nothing on the device that had room either";
  ASSERT_OK_AND_ASSIGN(const auto ids, ledger.ReserveAll("scans/a", "",
                                                         {{0, {{NeedKind::kVolumeSlots, 600, 2}}},
                                                          {1, {{NeedKind::kVolumeSlots, 500, 1}}}},
                                                         nullptr));
  ASSERT_EQ(ids.size(), 2u);
  EXPECT_EQ(ids[0].size(), 2u);
  EXPECT_EQ(ledger.UseOf(1).free(), 0);
  EXPECT_FALSE(ledger
                   .ReserveAll("scans/b", "",
                               {{0, {{NeedKind::kVolumeSlots, 250, 1}}},
                                {0, {{NeedKind::kVolumeSlots, 250, 1}}}},
                               nullptr)
                   .ok())
      << "400 are free";
  EXPECT_TRUE(ledger
                  .ReserveAll("scans/b", "",
                              {{0, {{NeedKind::kVolumeSlots, 200, 1}}},
                               {0, {{NeedKind::kVolumeSlots, 200, 1}}}},
                              nullptr)
                  .ok());
}

TEST(Ledger, WhatIsCachedMakesRoomAndIsReused) {
  Ledger ledger({1000});
  std::vector<Ledger::ChargeId> freed;
  ledger.SetReclaim([&](const std::vector<Ledger::ChargeId>& ids) {
    freed.insert(freed.end(), ids.begin(), ids.end());
  });
  ASSERT_OK_AND_ASSIGN(const auto old, ledger.Reserve(0, "scans/a", "",
                                                      {{NeedKind::kVolumeSlots, 900, 3}}, nullptr));
  for (const auto id : old) ledger.Move(id, ChargeKind::kCached, "");
  EXPECT_EQ(ledger.UseOf(0).free(), 1000) << "what is cached counts as free";
  AdmissionReport report;
  // The new charge takes over two slots of the same size. The third is freed, but only if its room
  // is needed.
  ASSERT_OK_AND_ASSIGN(const auto grant, ledger.ReserveReusing(0, "scans/b", "",
                                                               {{NeedKind::kVolumeSlots, 600, 2},
                                                                {NeedKind::kRawBlocks, 100, 1}},
                                                               old, &report));
  EXPECT_EQ(grant.reused, 2u);
  EXPECT_EQ(grant.charges.size(), 3u);
  EXPECT_EQ(grant.charges[0], old[0]);
  EXPECT_TRUE(freed.empty()) << "100 were free";
  ASSERT_TRUE(ledger.Reserve(0, "scans/c", "", {{NeedKind::kRawBlocks, 200, 1}}, nullptr).ok());
  EXPECT_EQ(freed, std::vector<Ledger::ChargeId>{old[2]});
  EXPECT_EQ(ledger.UseOf(0).cached, 0);
  EXPECT_FALSE(ledger.Claim(old[2]));
  ledger.Move(old[0], ChargeKind::kCached, "");
  EXPECT_EQ(
      ledger
          .ReserveReusing(0, "scans/d", "", {{NeedKind::kVolumeSlots, 299, 1}}, {old[0]}, nullptr)
          ->reused,
      0u)
      << "another size";
  ExpectConsistent(ledger, 0);
}

// Requests that fit together are all granted, regardless of which one frees the cached slots.
TEST(Ledger, NoSpuriousRefusalWhenRequestsThatFitRace) {
  constexpr int kThreads = 4;
  for (int round = 0; round < 200; ++round) {
    Ledger ledger({1000});
    ledger.SetReclaim([](const std::vector<Ledger::ChargeId>&) { std::this_thread::yield(); });
    const auto old =
        ledger.Reserve(0, "scans/old", "", {{NeedKind::kVolumeSlots, 1000, 10}}, nullptr).value();
    for (const auto id : old) ledger.Move(id, ChargeKind::kCached, "");
    std::atomic<int> granted{0};
    std::barrier start(kThreads);
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        start.arrive_and_wait();
        granted +=
            ledger
                .ReserveReusing(0, "scans/a", "",
                                {{NeedKind::kVolumeSlots, 200, 2}, {NeedKind::kRawBlocks, 50, 1}},
                                old, nullptr)
                .ok();
      });
    }
    threads.clear();
    ASSERT_EQ(granted, kThreads) << "round " << round;
    ASSERT_EQ(ledger.UseOf(0).granted(), 1000);
    ExpectConsistent(ledger, 0);
  }
}

TEST(Ledger, OfTwoScansThatDoNotFitTogetherExactlyOneWins) {
  for (int round = 0; round < 200; ++round) {
    Ledger ledger({1000, 1000});
    std::atomic<int> granted{0};
    std::barrier start(2);
    std::vector<std::jthread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        start.arrive_and_wait();
        // The two requests name the devices in opposite order: each must get both devices or
        // neither.
        granted += ledger
                       .ReserveAll("scans/a", "",
                                   {{t, {{NeedKind::kVolumeSlots, 600, 2}}},
                                    {1 - t, {{NeedKind::kVolumeSlots, 600, 2}}}},
                                   nullptr)
                       .ok();
      });
    }
    threads.clear();
    ASSERT_EQ(granted, 1) << "round " << round;
    ASSERT_EQ(ledger.UseOf(0).granted(), 600);
    ASSERT_EQ(ledger.UseOf(1).granted(), 600);
  }
}

// Random programs over all transitions of a charge, on two devices, from several threads.
TEST(Ledger, RandomLivesOfChargesKeepTheInvariant) {
  constexpr int64_t kBudget = 20'000;
  Ledger ledger({kBudget, kBudget / 2});
  std::atomic<int64_t> freed{0};
  ledger.SetReclaim([&](const std::vector<Ledger::ChargeId>& ids) { freed += std::ssize(ids); });
  const uint32_t seed = testing::FreshSeed();
  std::vector<std::jthread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(seed + t);
      std::vector<Ledger::ChargeId> mine, cached;
      for (int step = 0; step < 3000; ++step) {
        const int device = static_cast<int>(random() % 2);
        const auto count = static_cast<int64_t>(1 + random() % 4),
                   each = static_cast<int64_t>(100 * (1 + random() % 9));
        switch (random() % 8) {
          case 0:
          case 1:
          case 2: {
            auto grant = ledger.ReserveReusing(device, absl::StrCat("scans/", t), "",
                                               {{NeedKind::kVolumeSlots, count * each, count}},
                                               cached, nullptr);
            if (grant.ok()) mine.insert(mine.end(), grant->charges.begin(), grant->charges.end());
            break;
          }
          case 3: {
            auto both = ledger.ReserveAll(absl::StrCat("scans/", t), "",
                                          {{0, {{NeedKind::kVolumeSlots, each, 1}}},
                                           {1, {{NeedKind::kVolumeSlots, each, 1}}}},
                                          nullptr);
            for (size_t d = 0; both.ok() && d < 2; ++d) mine.push_back((*both)[d][0]);
            break;
          }
          default:
            if (mine.empty()) break;
            const size_t i = random() % mine.size();
            const auto id = mine[i];
            switch (random() % 7) {
              case 5: ledger.Shrink(id, static_cast<int64_t>(1 + random() % 900)); break;
              case 0: ledger.Hold(id, "volumes/v"); break;
              case 1: ledger.Unhold(id); break;
              case 2: ledger.Move(id, ChargeKind::kBuffer, "buffers/b"); break;
              case 3: ledger.Move(id, ChargeKind::kDetached, "volumes/v"); break;
              case 4:
                ledger.Move(id, ChargeKind::kCached, "");
                cached.push_back(id);
                mine.erase(mine.begin() + static_cast<int64_t>(i));
                break;
              default: ledger.Release(id); mine.erase(mine.begin() + static_cast<int64_t>(i));
            }
        }
        for (int d = 0; d < 2; ++d) {
          const auto use = ledger.UseOf(d);
          ASSERT_LE(use.granted() + use.cached, use.budget);
          ASSERT_LE(use.granted(), use.peak);
        }
      }
      for (const auto id : mine) ledger.Release(id);
      for (const auto id : cached) {
        if (ledger.Claim(id)) ledger.Release(id);
      }
    });
  }
  threads.clear();
  for (int d = 0; d < 2; ++d) {
    EXPECT_EQ(ledger.UseOf(d).granted(), 0);
    EXPECT_EQ(ledger.UseOf(d).cached, 0);
    ExpectConsistent(ledger, d);
  }
  EXPECT_GT(freed, 0);
}

TEST(Ledger, TheBytesOfAHolderAreThoseOfItsRows) {
  std::mt19937 random(octavo::testing::FreshSeed());
  Ledger ledger({1000, 1000});
  std::vector<Ledger::ChargeId> charges, cached;
  const auto name = [&](const char* kind) { return kind + std::to_string(random() % 3); };
  for (int i = 0; i < 3000; ++i) {
    const int device = static_cast<int>(random() % 2);
    const size_t at = charges.empty() ? 0 : random() % charges.size();
    switch (random() % 6) {
      case 0: {
        const auto made = ledger.ReserveReusing(
            device, name("scans/"), "",
            {{.kind = model::NeedKind::kVolumeSlots, .bytes = 60, .count = 2}}, cached, nullptr);
        if (!made.ok()) break;
        charges.insert(charges.end(), made->charges.begin(), made->charges.end());
        for (const auto id : made->charges) std::erase(cached, id);
        break;
      }
      case 1:
        if (!charges.empty()) ledger.Hold(charges[at], name("volumes/"));
        break;
      case 2:
        if (!charges.empty()) ledger.Unhold(charges[at]);
        break;
      case 3:
        if (!charges.empty()) ledger.Move(charges[at], ChargeKind::kDetached, name("volumes/"));
        break;
      default:
        if (charges.empty()) break;
        if (random() % 2 == 0) {
          ledger.Release(charges[at]);
        } else {
          ledger.Move(charges[at], ChargeKind::kCached, "");
          cached.push_back(charges[at]);
        }
        charges.erase(charges.begin() + static_cast<std::ptrdiff_t>(at));
    }
    std::map<std::string, int64_t> rows;
    for (int d = 0; d < 2; ++d) {
      for (const auto& holder : ledger.HoldersOf(d)) rows[holder.name] += holder.bytes;
    }
    for (const char* kind : {"scans/", "volumes/"}) {
      for (int n = 0; n < 3; ++n) {
        const std::string holder = kind + std::to_string(n);
        ASSERT_EQ(ledger.BytesOf(holder), rows[holder]) << holder;
      }
    }
  }
  for (const auto id : charges) ledger.Release(id);
  EXPECT_EQ(ledger.BytesOf("scans/0") + ledger.BytesOf("volumes/0"), 0);
}

}  // namespace
}  // namespace octavo::engine

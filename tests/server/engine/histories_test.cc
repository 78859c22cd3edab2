// Ended objects must not pile up as descriptors, memory or entries, and the time of a list must
// grow only in proportion to its length.

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <functional>
#include <malloc.h>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "server/buffer/buffer_store.h"
#include "tests/server/engine/memory_fixture.h"
#include "tests/support/rooms.h"
#include "tests/support/seed.h"

namespace octavo::engine {
namespace {

using octavo::testing::FreshSeed;
using octavo::testing::IsError;
using octavo::testing::IsOk;
constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;

int64_t Descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

class HistoriesTest : public testing::MemoryTest {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(temp_ / "data");
    config_.replay_roots = {temp_ / "data"};
    config_.history_entries = 1000;
    MemoryTest::SetUp();
  }

  Retention Discarded() {
    Retention retention;
    retention.disposition = Disposition::kAutoDiscard;
    return retention;
  }
  /// Runs a scan to its end. Cancels scans whose source waits for another program.
  std::string Run(const ScanSpec& spec) {
    const ScanStatus scan = Submit(spec);
    if (std::holds_alternative<PushSource>(spec.source) ||
        std::holds_alternative<RingSource>(spec.source))
      EXPECT_THAT(engine_->scans().Cancel(scan.name), IsOk());
    EXPECT_EQ(Finished(scan.name).state == ScanState::kFailed, false) << Finished(scan.name).reason;
    return scan.name;
  }
  /// Returns whether the condition becomes true within ten seconds.
  template <class F>
  bool Soon(F done) {
    for (int i = 0; i < 5000 && !done(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return done();
  }
  ScanSpec Freeform(int64_t segments, int64_t ascans, uint32_t seed) {
    ScanSpec spec = Spec(1, Discarded());
    std::get<SimulatedSource>(spec.source).repeat_block = true;
    spec.pattern = {.ascans_per_bscan = ascans,
                    .bscans_per_volume = 0,
                    .volumes = 1,
                    .kind = PatternKind::kFreeform};
    std::mt19937 random(seed);
    for (int64_t i = 0; i < segments * ascans; ++i) {
      spec.pattern.points_x_mm.push_back(1e-9 * static_cast<double>(random() % 1000));
      spec.pattern.points_y_mm.push_back(1e-9 * static_cast<double>(random() % 1000));
    }
    return spec;
  }
};

TEST_F(HistoriesTest, EndedScansOfEverySourceLeaveNoDescriptor) {
  std::string raw(64 * 2 * 16 * 8, '\1');
  std::filesystem::create_directories(temp_ / "data");
  temp_.Write("data/records.raw", raw);
  std::string head = "{'descr': '<u2', 'fortran_order': False, 'shape': (128, 64), }";
  head.resize(117, ' ');
  temp_.Write("data/records.npy", std::string("\x93NUMPY\x01\x00\x76\x00", 10) + head + "\n" + raw);
  const std::pair<const char*, std::function<void(ScanSpec&)>> kinds[] = {
      {"simulated", [](ScanSpec&) {}},
      {"replay of .npy",
       [&](ScanSpec& spec) {
         spec.source = ReplaySource{.path = temp_ / "data/records.npy", .loops = 1};
       }},
      {"replay of raw records",
       [&](ScanSpec& spec) {
         spec.source = ReplaySource{.path = temp_ / "data/records.raw", .loops = 1};
       }},
      {"push", [](ScanSpec& spec) { spec.source = PushSource{}; }},
      {"ring", [](ScanSpec& spec) { spec.source = RingSource{}; }},
  };
  for (const auto& [name, change] : kinds) {
    SCOPED_TRACE(name);
    ScanSpec spec = Spec(1, Discarded());
    change(spec);
    Run(spec);  // opens what stays open for good
    // The scan before may still be closing its descriptors.
    int64_t before = Descriptors();
    Soon([&] {
      const int64_t now = Descriptors();
      return std::exchange(before, now) == now;
    });
    for (int i = 0; i < 25; ++i) Run(spec);
    EXPECT_TRUE(Soon([&] { return Descriptors() <= before; }))
        << Descriptors() << " descriptors after 25 scans, " << before << " before";
  }
  EXPECT_EQ(engine_->scans().List().size(), 26 * std::size(kinds))
      << "all the same they are listed";
  for (const ScanStatus& scan : engine_->scans().List()) {
    EXPECT_THAT(engine_->scans().Update(scan.name, {}, {"window"}),
                IsError(absl::StatusCode::kFailedPrecondition,
                        "only QUEUED and RUNNING scans can be updated"));
  }
}

TEST_F(HistoriesTest, AnEndedFreeformScanKeepsItsPointsOnce) {
#ifdef OCTAVO_SANITIZED
  GTEST_SKIP() << "the sanitizer's allocator is not asked";
#endif
  constexpr int64_t kSegments = 64, kAscans = 512, kScans = 12;
  constexpr size_t kPoints = kSegments * kAscans * 2 * sizeof(double);
  const auto used = [] {
    const struct mallinfo2 info = ::mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  const uint32_t seed = FreshSeed();
  for (int i = 0; i < 2; ++i) Run(Freeform(kSegments, kAscans, seed));
  size_t before = used();
  for (int64_t i = 0; i < kScans; ++i)
    Run(Freeform(kSegments, kAscans, seed + static_cast<uint32_t>(i)));
  EXPECT_TRUE(Soon([&] { return used() < before + kScans * (kPoints * 3 / 2 + (128 << 10)); }))
      << (used() - before) / kScans << " bytes each, for points of " << kPoints;
}

TEST_F(HistoriesTest, EndedScansAreBoundedInNumberAndBytes) {
  Stop();
  config_.history_entries = 7;
  Start();
  const std::string held = Run(Spec(1));  // its volume stays in memory
  std::vector<std::string> names;
  for (int i = 0; i < 20; ++i) names.push_back(Run(Spec(1, Discarded())));
  EXPECT_TRUE(Soon([&] {
    engine_->Housekeep();
    return engine_->scans().List().size() <= 7;
  })) << engine_->scans().List().size();
  EXPECT_THAT(engine_->scans().Get(held), IsOk());
  EXPECT_THAT(engine_->scans().Get(names.back()), IsOk());
  EXPECT_THAT(engine_->scans().Get(names.front()),
              IsError(absl::StatusCode::kNotFound, names.front()));
  const Stats stats = engine_->Snapshot();
  EXPECT_EQ(stats.volumes_finished.at("discarded"), 20) << "what those counted that went is kept";

  Stop();
  config_.history_entries = 1000;
  config_.history_bytes = 4 << 20;
  Start();
  for (uint32_t i = 0; i < 12; ++i) Run(Freeform(64, 1024, i));  // 1 MiB of points each
  EXPECT_TRUE(Soon([&] {
    engine_->Housekeep();
    return engine_->scans().List().size() <= 4;
  })) << engine_->scans().List().size();
  EXPECT_GE(engine_->scans().List().size(), 2u);
}

// CPU seconds of this thread, the smallest of several tries, because other processes disturb the
// measurement.
double Seconds(const std::function<void()>& work) {
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    timespec begin{}, end{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    work();
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    best = std::min(best, static_cast<double>(end.tv_sec - begin.tv_sec) +
                              1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec));
  }
  return best;
}

// Eight times as many entries take eight times as long, not sixty-four times.
TEST_F(HistoriesTest, ListsAreLinear) {
  LeaseTable& leases = engine_->clients().leases();
  double few = 0, few_buffers = 0;
  for (int i = 0; i < 40; ++i) {
    ASSERT_THAT(engine_->buffers().Create({.scalar = static_cast<Scalar>(1), .shape = {16}}, {}),
                IsOk());
  }
  const auto lists = [&](double* sessions, double* buffers) {
    *sessions = Seconds([&] { (void)engine_->clients().List(); });
    *buffers = Seconds([&] { (void)engine_->buffers().List({}); });
  };
  std::vector<std::string> secrets;
  const auto grow = [&](size_t count) {
    while (secrets.size() < count) {
      const auto session = engine_->clients().Open(absl::StrCat("client ", secrets.size()));
      ASSERT_THAT(session, IsOk());
      secrets.push_back(session->secret);
      ASSERT_THAT(leases.TryAcquire({.resource = absl::StrCat("buffers/", secrets.size()),
                                     .session = session->session.name}),
                  IsOk());
    }
  };
  grow(1000);
  lists(&few, &few_buffers);
  grow(8000);
  double many = 0, many_buffers = 0;
  lists(&many, &many_buffers);
  EXPECT_LT(many, 28 * few) << few << " s for 1000 sessions with leases";
  EXPECT_LT(many_buffers, 4 * few_buffers + 1e-4)
      << few_buffers << " s for 40 buffers: leases of others are not theirs";
  // Keep-alive calls, and the end of all sessions at once.
  const double one = Seconds([&] { ASSERT_THAT(engine_->clients().Find(secrets[4000]), IsOk()); });
  EXPECT_LT(one, 2e-4);
  // Closing a session costs the same, however many others there are.
  const auto close = [&](size_t count) {
    timespec begin{}, end{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_THAT(engine_->clients().Close(secrets.back()), IsOk());
      secrets.pop_back();
    }
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    return static_cast<double>(end.tv_sec - begin.tv_sec) +
           1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec);
  };
  const double first = close(1000);  // of 8000
  close(6000);
  const double last = close(1000);  // of 1000
  EXPECT_LT(first, 4 * last + 0.05) << last << " s for the last 1000";
  engine_->Housekeep();
  EXPECT_TRUE(leases.List().empty());
}

TEST_F(HistoriesTest, SessionsAndLeasesAreBoundedInNumber) {
  Stop();
  config_.sessions.most = 20;
  config_.most_leases = 30;
  Start();
  std::vector<std::string> secrets;
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK_AND_ASSIGN(const auto opened, engine_->clients().Open("a"));
    secrets.push_back(opened.secret);
  }
  EXPECT_THAT(engine_->clients().Open("a"),
              IsError(kExhausted, "20 sessions are open; allowed session.most = 20"));
  ASSERT_THAT(engine_->clients().Close(secrets[3]), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto more, engine_->clients().Open("b"));
  EXPECT_THAT(engine_->clients().KeepAlive(secrets[3]), IsError(kExhausted, "session.most"))
      << "reviving one is as good as opening one";
  ASSERT_THAT(engine_->clients().Close(more.secret), IsOk());
  EXPECT_THAT(engine_->clients().KeepAlive(secrets[3]), IsOk());
  // The engine remembers the newest ended ones.
  for (int i = 0; i < 100; ++i) {
    ASSERT_THAT(engine_->clients().Close(secrets.back()), IsOk());
    ASSERT_OK_AND_ASSIGN(const auto opened, engine_->clients().Open("c"));
    secrets.back() = opened.secret;
    engine_->Housekeep();
  }
  EXPECT_LE(engine_->clients().List().size(), 41u);

  LeaseTable& leases = engine_->clients().leases();
  std::vector<std::string> tokens;
  int waited = 0;
  for (int i = 0; i < 25; ++i) {
    ASSERT_OK_AND_ASSIGN(
        const Lease lease,
        leases.TryAcquire({.resource = absl::StrCat("buffers/", i % 10), .session = ""}));
    tokens.push_back(lease.token);
  }
  uint64_t place = 0;
  for (int i = 0; i < 5; ++i) {
    place = leases.Acquire(
        {.resource = "buffers/0", .mode = LeaseMode::kExclusive, .wait_seconds = 100},
        [&](const absl::StatusOr<Lease>& lease) {
          waited += InfoOf(lease.status()).reason == Reason::kLeases;
        });
    EXPECT_NE(place, 0u);
  }
  EXPECT_THAT(leases.TryAcquire({.resource = "buffers/new"}),
              IsError(kExhausted, "25 leases, and 5 wait for one; allowed lease.most = 30"));
  EXPECT_EQ(
      leases.Acquire({.resource = "buffers/0", .mode = LeaseMode::kExclusive, .wait_seconds = 100},
                     [&](const absl::StatusOr<Lease>& lease) {
                       waited += 100 * (InfoOf(lease.status()).reason == Reason::kLeases);
                     }),
      0u);
  EXPECT_EQ(waited, 100);
  leases.Withdraw(place);
  EXPECT_THAT(leases.TryAcquire({.resource = "buffers/new"}), IsOk());
  EXPECT_THAT(leases.TryAcquire({.resource = "buffers/newer"}),
              IsError(kExhausted, "lease.most = 30"))
      << "full again";
  EXPECT_THAT(leases.Release(tokens[5]), IsOk());
  EXPECT_THAT(leases.TryAcquire({.resource = "buffers/newer"}), IsOk());
  leases.Forget("buffers/0");  // together with its waiters
  EXPECT_THAT(leases.TryAcquire({.resource = "buffers/newest"}), IsOk());
}

TEST_F(HistoriesTest, BuffersThatWentAreRememberedUpToABound) {
  BufferStore& buffers = engine_->buffers();
  std::string first, last;
  for (int i = 0; i < 10'050; ++i) {
    ASSERT_OK_AND_ASSIGN(
        const BufferStatus buffer,
        buffers.Create({.scalar = static_cast<Scalar>(1), .shape = {1}, .uninitialized = true},
                       {}));
    ASSERT_THAT(buffers.Destroy(buffer.name, "", "", {}), IsOk());
    last = buffer.name;
    if (first.empty()) first = last;
  }
  buffers.Housekeep();
  EXPECT_THAT(buffers.Get(first, {}), IsError(absl::StatusCode::kNotFound, "no buffer"));
  EXPECT_THAT(buffers.Get(last, {}), IsError(absl::StatusCode::kNotFound, "is gone"));
}

}  // namespace
}  // namespace octavo::engine

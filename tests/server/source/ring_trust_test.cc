// The server's end of a producer's ring against a producer that writes arbitrary data, or dies.

#include <chrono>
#include <csignal>
#include <functional>
#include <random>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "tests/server/source/ring_fixture.h"
#include "tests/support/rooms.h"
#include "tests/support/seed.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsOk;
using testing::kBlock;
using testing::kSlots;

class RingTrustTest : public testing::RingPortTest {};

// The producer writes inconsistent counters. The server disconnects it and keeps the accepted
// records; another producer may attach.
TEST_F(RingTrustTest, AProducerThatBreaksTheRingIsCutOff) {
  const std::vector<std::function<void()>> wrongs = {
      [&] { Producer().published += kSlots + 1; },
      [&] { Producer().published = ~uint64_t{0}; },
      [&] { Producer().published -= 1; },
      [&] { Producer().published = 0; },
      [&] { Producer().published ^= uint64_t{1} << 63; },
      [&] {
        Descriptor(1).number = 17;
        Producer().published += 1;
      },
  };
  for (size_t i = 0; i < wrongs.size(); ++i) {
    SCOPED_TRACE(i);
    Make({.idle_timeout_s = 0.05, .restart_grace_s = 30});
    Attach();
    Write(50);
    EXPECT_EQ(Next(), Run(0, 50));
    cuts_ = 0;
    wrongs[i]();
    EXPECT_EQ(InfoOf(port_->Lend(stop_.get_token()).status()).reason, Reason::kSourceStalled);
    EXPECT_EQ(cuts_, 1);
    EXPECT_EQ(octavo_ring_trouble(&ring_), EPROTO);
    EXPECT_NE(std::string(Server().error).find("the ring is broken"), std::string::npos)
        << Server().error;
    Detach();
    Attach();
    EXPECT_EQ(octavo_ring_trouble(&ring_), 0);
    EXPECT_EQ(ring_.next_record, 50u);
    Write(50);
    EXPECT_EQ(Next(), Run(50, 50));
    EXPECT_EQ(port_->Counts().broken_blocks, 1);
  }
}

// The test changes every field of the memory in every way. The server reads nothing beyond the
// ring, does not wait, and does not trust even its own pages.
TEST_F(RingTrustTest, NoFieldIsTrusted) {
  const std::vector<uint64_t> values = {0,
                                        1,
                                        2,
                                        49,
                                        51,
                                        0x7FFFFFFF,
                                        0x80000000,
                                        0xFFFFFFFF,
                                        uint64_t{1} << 32,
                                        ~uint64_t{0},
                                        uint64_t{1} << 63};
  struct Place {
    size_t offset, bytes;
    bool server;  // a field that the server writes but never reads
  };
  std::vector<Place> places;
  for (size_t at = 0; at < sizeof(RingFacts); at += 4) places.push_back({at, 4, true});
  for (size_t at = 0; at < 96; at += 4) places.push_back({kRingPage + at, 4, true});
  for (size_t at = 0; at < 48; at += 4) places.push_back({2 * kRingPage + at, 4, false});
  for (size_t at = 0; at < 2 * sizeof(RingDescriptor); at += 4)
    places.push_back({3 * kRingPage + at, 4, false});
  for (size_t at = 0; at < 48; at += 8) places.push_back({2 * kRingPage + at, 8, false});
  for (size_t at = 0; at < sizeof(RingDescriptor); at += 8)
    places.push_back({3 * kRingPage + at, 8, false});
  for (const Place& place : places) {
    for (const uint64_t value : values) {
      SCOPED_TRACE(
          absl::StrCat("offset ", place.offset, ", ", place.bytes, " bytes, value ", value));
      Make({.idle_timeout_s = 0.002, .restart_grace_s = 0.002, .total = 1000});
      Attach();
      Write(50);
      Write(50);
      char* const memory = ring_.memory;
      std::memcpy(memory + place.offset, &value, place.bytes);
      int64_t taken = 0;
      for (int i = 0; i < 8; ++i) {
        const auto loan = port_->Lend(stop_.get_token());
        if (!loan.ok() || loan->block.records == 0) break;
        // Lent memory lies within the ring, and a sanitizer checks all of it. It holds data of this
        // producer, or nothing.
        for (int64_t r = 0; r < loan->block.records; ++r) {
          uint32_t number = 0;
          std::memcpy(&number, loan->data + 4 * r, 4);
          ASSERT_LT(number, 100u);
        }
        EXPECT_GE(loan->block.records, 1);
        EXPECT_LE(loan->block.records, kBlock);
        EXPECT_LE(loan->block.first_record + loan->block.records, 1000);
        taken += loan->block.records;
        port_->Return(loan->loan);
      }
      if (place.server) EXPECT_EQ(taken, 100) << "the server believes itself";
      EXPECT_GE(port_->Occupancy(), 0.0);
      EXPECT_LE(port_->Occupancy(), 1.0);
      Detach();
    }
  }
}

// A faulty producer keeps writing everywhere while another thread takes records: the server neither
// crashes nor stalls.
TEST_F(RingTrustTest, NoiseInTheMemoryIsSurvived) {
  Make({.idle_timeout_s = 0.02, .restart_grace_s = 30, .total = 0});
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(600);
  const auto seed = octavo::testing::FreshSeed();
  for (int round = 0; std::chrono::steady_clock::now() < until; ++round) {
    Attach();
    std::atomic<bool> over{false};
    std::thread noise([&] {
      std::mt19937_64 random(seed + static_cast<unsigned>(round));
      while (!over) {
        // Values are mostly almost valid, because those reach deeper code.
        if (random() % 8 == 0) {
          std::atomic_ref<uint64_t>(
              *reinterpret_cast<uint64_t*>(ring_.memory + 2 * kRingPage + 8 * (random() % 6)))
              .store(random() % 3 ? random() % 8 : random());
        } else if (random() % 4 == 0) {
          auto& of = Descriptor(random() % kSlots);
          std::atomic_ref<uint64_t>(of.number).store(random() % 16);
          std::atomic_ref<uint64_t>(of.first_record)
              .store(random() % 3 ? random() % 4096 : random());
          std::atomic_ref<uint32_t>(of.records).store(static_cast<uint32_t>(random() % 60));
        } else {
          std::atomic_ref<uint64_t>(Producer().published).fetch_add(1);
          std::atomic_ref<uint32_t>(Producer().bell).fetch_add(1);
        }
      }
    });
    for (int i = 0; i < 50; ++i) {
      const auto loan = port_->Lend(stop_.get_token());
      if (!loan.ok()) break;
      if (loan->block.records == 0) break;
      EXPECT_LE(loan->block.records, kBlock);
      port_->Return(loan->loan);
    }
    over = true;
    noise.join();
    Detach();
    if (!port_->CanAttach().ok())
      Make({.idle_timeout_s = 0.02, .restart_grace_s = 30});  // the producer declared its end
  }
}

/// Writes over all of a ring, as a producer that has gone may do.
void Scribble(const octavo_ring& ring, uint64_t from = 0) {
  for (uint64_t at = from; at + 4 <= ring.facts.total_bytes; at += 4)
    std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(ring.memory + at)).store(~0u);
}

// A producer that has gone keeps its mapping, and scribbles over all of it while the next one
// feeds.
TEST_F(RingTrustTest, AFormerProducerDisturbsNobody) {
  Make({.idle_timeout_s = 30, .restart_grace_s = 30});
  Attach();
  Write(50);
  Write(20);
  octavo_ring former = ring_;
  ring_.memory = nullptr;                            // keeps its mapping
  const auto lent = port_->Lend(stop_.get_token());  // the device reads the first block
  ASSERT_THAT(lent.status(), IsOk());
  port_->Detach(connection_);
  Attach();
  EXPECT_EQ(octavo_ring_trouble(&former), ESTALE);
  EXPECT_EQ(std::memcmp(lent->data, Run(0, 50).second.data(), 200), 0) << "is read as it lies";
  Scribble(former);
  EXPECT_EQ(Next(), Run(50, 20)) << "what was published before counts, as it was then";
  for (int i = 0; i < 200; ++i) {
    Write(50);
    Scribble(former);
    octavo_ring_ring_bell(&former);
    EXPECT_EQ(Next(), Run(70 + 50 * i, 50));
  }
  EXPECT_EQ(octavo_ring_trouble(&ring_), 0);
  EXPECT_EQ(cuts_, 0);
  EXPECT_EQ(port_->Counts().broken_blocks, 0);
  EXPECT_EQ(port_->Counts().lost_records, 0);
  EXPECT_EQ(port_->Counts().records, 70 + 200 * 50);
  octavo_ring_close(&former);
}

// The slots of former producers are not kept for as long as these map them.
TEST_F(RingTrustTest, TheSlotsOfAFormerProducerAreGivenBack) {
  Make({.idle_timeout_s = 30, .restart_grace_s = 30});
  for (const bool waits : {false, true}) {
    Attach();
    octavo_ring former = ring_;
    Write(50);
    if (!waits) EXPECT_EQ(Next().second.size(), 50u);
    ring_.memory = nullptr;
    port_->Detach(connection_);
    Attach();
    if (waits) EXPECT_EQ(Next().second.size(), 50u) << "of the copy";
    for (int64_t at = static_cast<int64_t>(former.facts.data_offset);
         at < static_cast<int64_t>(former.facts.total_bytes); ++at)
      ASSERT_EQ(former.memory[at], 0) << at;
    octavo_ring_close(&former);
    Detach();
  }
  // While the device reads a block, its memory stays; so many of them at once are refused.
  int attached = 0;
  for (int i = 0; i < 10 && port_->CanAttach().ok(); ++i) {
    auto one = port_->Attach({.cut = [] {}});
    if (!one.ok()) {
      EXPECT_EQ(InfoOf(one.status()).reason, Reason::kRingTaken);
      break;
    }
    ++attached;
    char error[256] = "";
    ASSERT_EQ(octavo_ring_map(&ring_, one->fd.get(), error, sizeof error), 0) << error;
    if (octavo_ring_free(&ring_) > 0) {
      Write(1);
      ASSERT_THAT(port_->Lend(stop_.get_token()).status(), IsOk());
    }
    octavo_ring_close(&ring_);
    port_->Detach(one->connection);
  }
  EXPECT_GE(attached, 2);
  EXPECT_LE(attached, 6);
}

TEST_F(RingTrustTest, TheMemoryCannotBeTakenAway) {
  auto attached = port_->Attach({.cut = [] {}});
  ASSERT_THAT(attached.status(), IsOk());
  EXPECT_NE(::ftruncate(attached->fd.get(), 0), 0);
  EXPECT_NE(::ftruncate(attached->fd.get(), 1 << 30), 0);
}

// A producer in another process is killed in the middle of a block; another one follows it.
TEST_F(RingTrustTest, AKilledProducerIsFollowedByAnother) {
  Make({.idle_timeout_s = 30, .restart_grace_s = 30});
  int64_t expected = 0;
  for (int round = 0; round < 3; ++round) {
    auto attached = port_->Attach({.cut = [] {}});
    ASSERT_THAT(attached.status(), IsOk());
    const int fd = attached->fd.get();
    const pid_t child = ::fork();
    if (child == 0) {
      octavo_ring ring;
      if (octavo_ring_map(&ring, fd, nullptr, 0) != 0) ::_exit(1);
      for (;;) {
        auto* slot = static_cast<uint32_t*>(octavo_ring_begin(&ring, -1));
        if (slot == nullptr) ::_exit(2);
        for (uint32_t r = 0; r < kBlock; ++r) slot[r] = static_cast<uint32_t>(ring.next_record) + r;
        octavo_ring_publish(&ring, kBlock);
      }
    }
    for (int i = 0; i < 500; ++i) {
      EXPECT_EQ(Next(), Run(expected, kBlock));
      expected += kBlock;
    }
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
    port_->Detach(attached->connection);
  }
  EXPECT_EQ(port_->Counts().lost_records, 0);
  EXPECT_EQ(port_->Counts().broken_blocks, 0);
}

}  // namespace
}  // namespace octavo::engine

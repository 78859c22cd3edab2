// The server's end of a producer's ring against a correct producer.

#include <chrono>
#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "tests/server/source/ring_fixture.h"
#include "tests/support/rooms.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using testing::kBlock;
using testing::kSlots;
using testing::RingPortTest;

// Both sides agree on the layout of the memory.
static_assert(sizeof(RingFacts) == sizeof(octavo_ring_facts) &&
              sizeof(RingServerPage) == sizeof(octavo_ring_server) &&
              sizeof(RingProducerPage) == sizeof(octavo_ring_producer) &&
              sizeof(RingDescriptor) == sizeof(octavo_ring_descriptor));
#define OCTAVO_SAME(ours, theirs, field)                            \
  static_assert(offsetof(ours, field) == offsetof(theirs, field) && \
                sizeof(ours::field) == sizeof(theirs::field))
OCTAVO_SAME(RingFacts, octavo_ring_facts, magic);
OCTAVO_SAME(RingFacts, octavo_ring_facts, version);
OCTAVO_SAME(RingFacts, octavo_ring_facts, flags);
OCTAVO_SAME(RingFacts, octavo_ring_facts, total_bytes);
OCTAVO_SAME(RingFacts, octavo_ring_facts, descriptor_offset);
OCTAVO_SAME(RingFacts, octavo_ring_facts, data_offset);
OCTAVO_SAME(RingFacts, octavo_ring_facts, slot_bytes);
OCTAVO_SAME(RingFacts, octavo_ring_facts, slots);
OCTAVO_SAME(RingFacts, octavo_ring_facts, block_records);
OCTAVO_SAME(RingFacts, octavo_ring_facts, record_bytes);
OCTAVO_SAME(RingFacts, octavo_ring_facts, samples_per_record);
OCTAVO_SAME(RingFacts, octavo_ring_facts, raw_type);
OCTAVO_SAME(RingFacts, octavo_ring_facts, channels);
OCTAVO_SAME(RingFacts, octavo_ring_facts, total_records);
OCTAVO_SAME(RingServerPage, octavo_ring_server, released);
OCTAVO_SAME(RingServerPage, octavo_ring_server, bell);
OCTAVO_SAME(RingServerPage, octavo_ring_server, state);
OCTAVO_SAME(RingServerPage, octavo_ring_server, waits);
OCTAVO_SAME(RingServerPage, octavo_ring_server, error_code);
OCTAVO_SAME(RingServerPage, octavo_ring_server, attachment);
OCTAVO_SAME(RingServerPage, octavo_ring_server, next_record);
OCTAVO_SAME(RingServerPage, octavo_ring_server, records);
OCTAVO_SAME(RingServerPage, octavo_ring_server, broken_blocks);
OCTAVO_SAME(RingServerPage, octavo_ring_server, error);
OCTAVO_SAME(RingProducerPage, octavo_ring_producer, published);
OCTAVO_SAME(RingProducerPage, octavo_ring_producer, bell);
OCTAVO_SAME(RingProducerPage, octavo_ring_producer, state);
OCTAVO_SAME(RingProducerPage, octavo_ring_producer, waits);
OCTAVO_SAME(RingProducerPage, octavo_ring_producer, next_record);
OCTAVO_SAME(RingProducerPage, octavo_ring_producer, overruns);
OCTAVO_SAME(RingProducerPage, octavo_ring_producer, overrun_records);
OCTAVO_SAME(RingProducerPage, octavo_ring_producer, error);
OCTAVO_SAME(RingDescriptor, octavo_ring_descriptor, number);
OCTAVO_SAME(RingDescriptor, octavo_ring_descriptor, first_record);
OCTAVO_SAME(RingDescriptor, octavo_ring_descriptor, records);
OCTAVO_SAME(RingDescriptor, octavo_ring_descriptor, flags);
OCTAVO_SAME(RingDescriptor, octavo_ring_descriptor, time_ns);
static_assert(kRingMagic == OCTAVO_RING_MAGIC && kRingVersion == OCTAVO_RING_VERSION &&
              kRingPage == OCTAVO_RING_PAGE && kRingOverrun == OCTAVO_RING_OVERRUN);

TEST_F(RingPortTest, WhatTheProducerWritesIsLentWhereItLies) {
  Attach();
  EXPECT_EQ(ring_.slots, kSlots);
  EXPECT_EQ(ring_.block_records, kBlock);
  EXPECT_EQ(octavo_ring_scan_state(&ring_), OCTAVO_RING_QUEUED);
  Write(50);
  Write(7);  // a short block
  EXPECT_EQ(octavo_ring_free(&ring_), 2u);
  EXPECT_EQ(Next(), Run(0, 50));
  EXPECT_EQ(octavo_ring_scan_state(&ring_), OCTAVO_RING_RUNNING);
  EXPECT_EQ(Next(), Run(50, 7));
  EXPECT_EQ(octavo_ring_free(&ring_), 4u);
  for (int i = 0; i < 20; ++i) {
    Write(50);
    EXPECT_EQ(Next(), Run(57 + 50 * i, 50));
  }
  // The block is not a copy: the producer's changes while it is lent are visible.
  auto* slot = static_cast<uint32_t*>(octavo_ring_begin(&ring_, 0));
  octavo_ring_publish(&ring_, 1);
  const auto loan = port_->Lend(stop_.get_token());
  ASSERT_THAT(loan.status(), IsOk());
  slot[0] = 4711;
  uint32_t seen = 0;
  std::memcpy(&seen, loan->data, 4);
  EXPECT_EQ(seen, 4711u);
  EXPECT_EQ(port_->Counts().records, 57 + 1000 + 1);
  EXPECT_EQ(port_->Counts().connections, 1);
}

TEST_F(RingPortTest, AFullRingHasNoSlotUntilOneIsReturned) {
  Attach();
  for (int i = 0; i < kSlots; ++i) Write(50);
  EXPECT_EQ(octavo_ring_begin(&ring_, 0), nullptr);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(port_->Occupancy(), 1.0);
  const auto first = port_->Lend(stop_.get_token()), second = port_->Lend(stop_.get_token());
  ASSERT_THAT(second.status(), IsOk());
  EXPECT_EQ(octavo_ring_begin(&ring_, 5), nullptr) << "lent is not free";
  std::thread returns([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    port_->Return(second->loan);  // also returns the loans before it
  });
  EXPECT_NE(octavo_ring_begin(&ring_, 10000), nullptr) << "is woken";
  returns.join();
  EXPECT_EQ(octavo_ring_free(&ring_), 2u);
}

TEST_F(RingPortTest, AWaitingServerIsWoken) {
  Make({.idle_timeout_s = 30});
  Attach();
  std::thread writes([&] {
    for (int i = 0; i < 200; ++i) {
      if (i % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
      Write(50);
    }
  });
  for (int i = 0; i < 200; ++i) EXPECT_EQ(Next(), Run(50 * i, 50));
  writes.join();
}

TEST_F(RingPortTest, AStopEndsTheWait) {
  Make({.idle_timeout_s = 0});
  std::thread stops([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stop_.request_stop();
  });
  EXPECT_EQ(Next().first, -1);
  stops.join();
}

TEST_F(RingPortTest, GapsDuplicatesAndNumbersBeyondTheEndAreCounted) {
  Make({.total = 500});
  Attach();
  Write(50);
  ring_.next_record = 60;  // ten are lost
  Write(20);
  EXPECT_EQ(Next(), Run(0, 50));
  EXPECT_EQ(Next(), Run(60, 20));
  ring_.next_record = 70;  // ten of these arrived before
  Write(30, 1000);
  auto [first, got] = Next();
  EXPECT_EQ(first, 80);
  EXPECT_EQ(got.size(), 20u);
  EXPECT_EQ(got[0], 1080u) << "those behind what was known";
  ring_.next_record = 90;  // all of these arrived before
  Write(10);
  ring_.next_record = 500;  // past the end
  Write(50);
  ring_.next_record = uint64_t{1} << 63;
  Write(50);
  ring_.next_record = 480;  // half of it past the end
  Write(40);
  EXPECT_EQ(Next(), Run(480, 20));
  const SourceCounts counts = port_->Counts();
  EXPECT_EQ(counts.gaps, 2);
  EXPECT_EQ(counts.lost_records, 10 + 380);
  EXPECT_EQ(counts.duplicate_records, 10 + 10);
  EXPECT_EQ(counts.out_of_range_records, 50 + 50 + 20);
  EXPECT_EQ(counts.records, 50 + 20 + 20 + 20);
  EXPECT_EQ(counts.overruns, 0);
  EXPECT_EQ(octavo_ring_free(&ring_), 4u) << "what cannot be used is given back";
  EXPECT_EQ(Server().lost_records, 390u) << "the producer sees it";
  EXPECT_EQ(Server().duplicate_records, 20u);
}

TEST_F(RingPortTest, ABlockOfAWrongSizeIsLeftOut) {
  Attach();
  Write(50);
  for (const uint32_t records : {0u, 51u, 0xFFFFFFFFu}) {
    ASSERT_NE(octavo_ring_begin(&ring_, 0), nullptr);
    octavo_ring_publish(&ring_, records);
    ring_.next_record = 50;
  }
  EXPECT_EQ(Next(), Run(0, 50));
  Write(50);
  EXPECT_EQ(Next(), Run(50, 50));
  EXPECT_EQ(port_->Counts().broken_blocks, 3);
  EXPECT_EQ(port_->Counts().gaps, 0);
  EXPECT_EQ(cuts_, 0);
}

TEST_F(RingPortTest, OverrunsAreCountedExactly) {
  Attach();
  Write(50);
  octavo_ring_drop(&ring_, 30);
  octavo_ring_drop(&ring_, 5);
  Write(50);
  ring_.next_record += 7;  // lost for another reason
  Write(50);
  octavo_ring_drop(&ring_, 11);
  Write(50);
  EXPECT_EQ(Next().first, 0);
  EXPECT_EQ(Next().first, 85);
  EXPECT_EQ(Next().first, 142);
  EXPECT_EQ(Next().first, 203);
  octavo_ring_drop(&ring_, 13);
  octavo_ring_end(&ring_);
  EXPECT_EQ(Next().first, -1);
  const SourceCounts counts = port_->Counts();
  EXPECT_EQ(counts.lost_records, 35 + 7 + 11 + 13);
  EXPECT_EQ(counts.overrun_records, 35 + 11 + 13);
  EXPECT_EQ(counts.overruns, 3);
  EXPECT_EQ(Producer().overruns, 3u);
  EXPECT_EQ(Producer().overrun_records, 59u);
}

TEST_F(RingPortTest, WhatIsDroppedBehindTheLastBlockIsEachProducersOwn) {
  Make({.idle_timeout_s = 30, .restart_grace_s = 30});
  Attach();
  Write(50);
  octavo_ring_drop(&ring_, 5);
  Write(50);
  EXPECT_EQ(Next().first, 0);
  EXPECT_EQ(Next().first, 55);
  Detach();
  Attach();
  Write(50);
  EXPECT_EQ(Next().first, 105);
  octavo_ring_drop(&ring_, 3);
  ring_.next_record += 7;  // lost for another reason
  octavo_ring_end(&ring_);
  EXPECT_EQ(Next().first, -1);
  const SourceCounts counts = port_->Counts();
  EXPECT_EQ(counts.lost_records, 5 + 3 + 7);
  EXPECT_EQ(counts.overrun_records, 5 + 3);
  EXPECT_EQ(counts.overruns, 2);
}

TEST_F(RingPortTest, WhatWasCountedBeforeTheEndIsNotCountedAgain) {
  Attach();
  Write(50);
  octavo_ring_drop(&ring_, 20);
  Write(50);
  EXPECT_EQ(Next().first, 0);
  EXPECT_EQ(Next().first, 70);
  octavo_ring_drop(&ring_, 2);
  ring_.next_record += 30;  // lost for another reason
  octavo_ring_end(&ring_);
  EXPECT_EQ(Next().first, -1);
  EXPECT_EQ(port_->Counts().lost_records, 20 + 2 + 30);
  EXPECT_EQ(port_->Counts().overrun_records, 20 + 2);
}

TEST_F(RingPortTest, AnOverrunFailsAScanThatAsksForIt) {
  Make({.fail_on_overrun = true});
  Attach();
  Write(50);
  ring_.next_record += 3;  // no overrun
  Write(50);
  octavo_ring_drop(&ring_, 30);
  Write(50);
  EXPECT_EQ(Next().first, 0);
  EXPECT_EQ(Next().first, 53);
  const auto loan = port_->Lend(stop_.get_token());
  EXPECT_EQ(InfoOf(loan.status()).reason, Reason::kSourceOverrun);
  EXPECT_EQ(loan.status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(RingPortTest, SilenceEndsInTime) {
  EXPECT_EQ(InfoOf(port_->Lend(stop_.get_token()).status()).reason, Reason::kSourceStalled);
  EXPECT_THAT(port_->Lend(stop_.get_token()).status(),
              IsError(absl::StatusCode::kDeadlineExceeded, "no producer ever attached"));
  Attach();
  EXPECT_THAT(port_->Lend(stop_.get_token()).status(),
              IsError(absl::StatusCode::kDeadlineExceeded, "attached, but silent"));
}

TEST_F(RingPortTest, AProducerThatGoesLosesOnlyWhatItHadNotPublished) {
  Make({.idle_timeout_s = 30, .restart_grace_s = 30});
  Attach();
  Write(50);
  Write(20);
  auto* slot = static_cast<uint32_t*>(octavo_ring_begin(&ring_, 0));
  slot[0] = 666;  // within a block
  Detach();
  EXPECT_FALSE(port_->Counts().connected);
  EXPECT_EQ(Next(), Run(0, 50));
  // The next producer continues behind it, while a block of the first one still waits.
  Attach();
  EXPECT_EQ(ring_.next_record, 70u);
  EXPECT_EQ(octavo_ring_free(&ring_), 3u);
  Write(50);
  EXPECT_EQ(Next(), Run(50, 20));
  EXPECT_EQ(Next(), Run(70, 50));
  EXPECT_EQ(port_->Counts().connections, 2);
  EXPECT_EQ(port_->Counts().lost_records, 0);
}

TEST_F(RingPortTest, TheGraceIsOverOnce) {
  Make({.idle_timeout_s = 0, .restart_grace_s = 0.03});
  Attach();
  Write(50);
  Detach();
  EXPECT_EQ(Next(), Run(0, 50));
  const auto began = std::chrono::steady_clock::now();
  const auto loan = port_->Lend(stop_.get_token());
  EXPECT_EQ(InfoOf(loan.status()).reason, Reason::kSourceLost);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
  Make({.idle_timeout_s = 0, .restart_grace_s = -1});
  Attach();
  Write(50);
  Detach();
  EXPECT_EQ(Next(), Run(0, 50)) << "what was published counts";
  EXPECT_EQ(InfoOf(port_->Lend(stop_.get_token()).status()).reason, Reason::kSourceLost);
}

TEST_F(RingPortTest, OneProducerAtATime) {
  Attach();
  const auto second = port_->Attach({.cut = [] {}});
  EXPECT_EQ(InfoOf(second.status()).reason, Reason::kRingTaken);
  EXPECT_EQ(port_->Counts().connections, 1);
  Detach();
  port_->Detach(connection_);  // again: no effect
  bool gone = false;
  const auto third = port_->Attach({.cut = [] {}, .has_gone = [&] { return gone; }});
  ASSERT_THAT(third.status(), IsOk());
  EXPECT_EQ(InfoOf(port_->CanAttach()).reason, Reason::kRingTaken);
  gone = true;  // and nobody has told the port
  EXPECT_THAT(port_->CanAttach(), IsOk());
  EXPECT_FALSE(port_->Counts().connected);
  Attach();
  port_->Detach(third->connection);  // late
  EXPECT_TRUE(port_->Counts().connected);
  EXPECT_EQ(port_->Counts().connections, 3);
  Write(50);
  EXPECT_EQ(Next(), Run(0, 50));
  port_->Close();
  EXPECT_EQ(octavo_ring_begin(&ring_, 0), nullptr);
  EXPECT_EQ(errno, EPIPE);
  Detach();
  EXPECT_EQ(InfoOf(port_->Attach({.cut = [] {}}).status()).reason, Reason::kScanState);
  port_->CloseMemory();
  EXPECT_EQ(InfoOf(port_->Attach({.cut = [] {}}).status()).reason, Reason::kScanState);
  EXPECT_EQ(port_->Counts().records, 50);
}

TEST_F(RingPortTest, AnEndAndAFailureAreHeard) {
  Attach();
  Write(50);
  octavo_ring_end(&ring_);
  EXPECT_EQ(Next(), Run(0, 50));
  EXPECT_EQ(Next().first, -1);
  Make({});
  Attach();
  Write(50);
  octavo_ring_fail(&ring_, "the trigger cable\x01 is out");
  EXPECT_EQ(Next(), Run(0, 50));
  const auto loan = port_->Lend(stop_.get_token());
  EXPECT_EQ(InfoOf(loan.status()).reason, Reason::kSourceLost);
  EXPECT_THAT(loan.status(), IsError(absl::StatusCode::kUnavailable, "the trigger cable? is out"));
}

}  // namespace
}  // namespace octavo::engine

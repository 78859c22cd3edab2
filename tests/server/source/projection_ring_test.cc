// The ring by which a program on the server's host pushes projections to a job: with a right
// producer, with several ways to push at once, and with one that writes arbitrary data, or dies.

#include "server/source/projection_ring.h"

#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <functional>
#include <limits>
#include <mutex>
#include <random>
#include <sys/wait.h>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "client/cpp/include/octavo/octavo_ring.h"
#include "gpu/base/status.h"
#include "server/source/push_projections.h"
#include "server/source/ring_words.h"
#include "tests/support/fake_clock.h"
#include "tests/support/rooms.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using octavo::testing::FakeClock;
using octavo::testing::IsError;
using octavo::testing::IsOk;
using storage::FrameKind;
using ::testing::HasSubstr;

static_assert(kRingOfJob == OCTAVO_RING_OF_JOB && kRingFrame == OCTAVO_RING_FRAME);
static_assert(offsetof(RingFacts, rows) == offsetof(octavo_ring_facts, rows) &&
              offsetof(RingFacts, columns) == offsetof(octavo_ring_facts, columns));
static_assert(offsetof(RingDescriptor, sequence) == offsetof(octavo_ring_descriptor, sequence) &&
              offsetof(RingDescriptor, kind) == offsetof(octavo_ring_descriptor, kind) &&
              offsetof(RingDescriptor, angle_bits) == offsetof(octavo_ring_descriptor, angle_bits));

constexpr int64_t kRows = 3, kColumns = 5, kSlots = 4, kPixels = kRows * kColumns;

bool Until(const std::function<bool()>& come) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!come()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

class ProjectionRingTest : public ::testing::Test {
 protected:
  void Open(int64_t frames, DType dtype = DType::kU16, double idle_timeout_s = 3600) {
    Hang();
    port_.reset();
    ring_.reset();
    ASSERT_OK_AND_ASSIGN(port_, ProjectionPort::Create({.rows = kRows,
                                                        .columns = kColumns,
                                                        .frames = frames,
                                                        .dtype = dtype,
                                                        .credit_messages = 4,
                                                        .idle_timeout_s = idle_timeout_s},
                                                       &memory_, &clock_));
    ASSERT_OK_AND_ASSIGN(ring_, port_->OpenRing(kSlots));
  }
  void Attach() {
    auto attached = ring_->Attach({.cut = [this] { ++cuts_; }});
    ASSERT_THAT(attached.status(), IsOk());
    attachment_ = attached->connection;
    char error[256] = "";
    ASSERT_EQ(octavo_ring_map(&c_, attached->fd.get(), error, sizeof error), 0) << error;
  }
  void Detach() {
    Hang();
    ring_->Detach(attachment_);
  }
  void Hang() {
    if (c_.memory != nullptr) octavo_ring_close(&c_);
  }
  ~ProjectionRingTest() override { Hang(); }

  static uint16_t Pixel(uint64_t sequence, int64_t i) {
    return static_cast<uint16_t>(sequence * 100 + static_cast<uint64_t>(i));
  }
  static void Draw(void* slot, uint64_t sequence) {
    std::vector<uint16_t> pixels;
    for (int64_t i = 0; i < kPixels; ++i) pixels.push_back(Pixel(sequence, i));
    std::memcpy(slot, pixels.data(), pixels.size() * 2);
  }
  void Send(uint64_t sequence, uint32_t kind = OCTAVO_RING_PROJECTION) {
    void* slot = octavo_ring_begin(&c_, 10000);
    ASSERT_NE(slot, nullptr) << strerror(errno);
    Draw(slot, sequence);
    ASSERT_EQ(octavo_ring_publish_frame(&c_, sequence, kind, AngleOf(sequence)), 0);
  }
  static double AngleOf(uint64_t sequence) { return 0.25 * static_cast<double>(sequence); }
  absl::Status Offer(int64_t connection, uint64_t sequence) {
    (void)port_->Progress(connection);
    uint16_t pixels[kPixels];
    Draw(pixels, sequence);
    return port_->Offer(connection,
                        {.sequence = sequence,
                         .angle_rad = AngleOf(sequence),
                         .rows = kRows,
                         .parts = {{reinterpret_cast<const char*>(pixels), sizeof pixels}}});
  }
  bool Flushed() {
    return Until([this] { return octavo_ring_free(&c_) == kSlots; });
  }
  ProjectionPushCounts Counts() { return port_->Totals().counts; }
  octavo_ring_descriptor& Descriptor(uint64_t block) {
    return reinterpret_cast<octavo_ring_descriptor*>(c_.memory +
                                                     c_.facts.descriptor_offset)[block % kSlots];
  }
  octavo_ring_producer& Producer() { return *octavo_ring_producer_of(&c_); }
  octavo_ring_server& Server() { return *octavo_ring_server_of(&c_); }
  // All pixels of what has arrived are those of Draw.
  void CheckPixels() {
    for (const ArrivedFrame& frame : port_->Arrivals(0, 1'000'000)) {
      uint16_t pixels[kPixels];
      std::memcpy(pixels, frame.data, sizeof pixels);
      const uint64_t sequence = pixels[0] / 100;
      for (int64_t i = 0; i < kPixels; ++i) ASSERT_EQ(pixels[i], Pixel(sequence, i));
      if (frame.kind == FrameKind::kProjection) ASSERT_EQ(frame.angle_rad, AngleOf(sequence));
    }
  }
  // The producer is told why it was cut off, and another one goes on.
  void ExpectCutOff(const std::string& why) {
    EXPECT_TRUE(Until([this] { return cuts_ == 1; }));
    EXPECT_EQ(octavo_ring_trouble(&c_), EPROTO);
    EXPECT_EQ(octavo_ring_begin(&c_, 0), nullptr);
    EXPECT_EQ(errno, EPROTO);
    EXPECT_THAT(std::string(Server().error), HasSubstr(why));
    cuts_ = 0;
    Detach();
    EXPECT_TRUE(Until([this] { return !Counts().connected; }));
    Attach();
    EXPECT_EQ(octavo_ring_trouble(&c_), 0);
  }

  FakeClock clock_;
  ProjectionMemory memory_{1 << 20};
  std::shared_ptr<ProjectionPort> port_;
  std::shared_ptr<ProjectionRing> ring_;
  octavo_ring c_{};
  int64_t attachment_ = 0;
  std::atomic<int> cuts_{0};
};

TEST_F(ProjectionRingTest, FramesGoToTheirPlaces) {
  Open(12);
  Attach();
  EXPECT_EQ(c_.of_job, 1u);
  EXPECT_EQ(c_.rows, kRows);
  EXPECT_EQ(c_.columns, kColumns);
  EXPECT_EQ(c_.record_bytes, kPixels * 2);
  EXPECT_EQ(c_.samples_per_record, kPixels);
  EXPECT_EQ(c_.block_records, 1u);
  EXPECT_EQ(c_.raw_type, 2u);
  EXPECT_EQ(c_.slots, kSlots);
  EXPECT_EQ(c_.total_records, 12u);
  EXPECT_EQ(octavo_ring_scan_state(&c_), OCTAVO_RING_RUNNING);
  EXPECT_EQ(ring_->total_bytes(), static_cast<int64_t>(c_.facts.total_bytes));
  const uint64_t order[] = {7, 0, 3, 11, 1, 10, 2, 9, 5, 4, 8, 6};
  for (const uint64_t sequence : order) {
    Send(sequence, sequence == 3   ? OCTAVO_RING_FLAT
                   : sequence == 9 ? OCTAVO_RING_DARK
                                   : OCTAVO_RING_PROJECTION);
  }
  // All are there: the producer is told that no more is wanted.
  ASSERT_TRUE(Until([&] { return octavo_ring_trouble(&c_) == EPIPE; }));
  EXPECT_EQ(octavo_ring_begin(&c_, -1), nullptr);
  EXPECT_EQ(errno, EPIPE);
  EXPECT_EQ(Server().next_record, 12u);
  EXPECT_EQ(Server().records, 12u);
  CheckPixels();
  ASSERT_OK_AND_ASSIGN(const auto input, port_->Snapshot());
  EXPECT_EQ(input->info().projections, 10);
  EXPECT_THAT(input->info().flat_positions, ::testing::ElementsAre(3));
  EXPECT_THAT(input->info().dark_positions, ::testing::ElementsAre(8));
  EXPECT_EQ(InfoOf(ring_->CanAttach()).reason, Reason::kJobState);
  EXPECT_EQ(InfoOf(port_->OpenRing(0).status()).reason, Reason::kJobState);
}

TEST_F(ProjectionRingTest, EveryTypeOfPixelsHasItsSize) {
  for (const auto& [dtype, bytes, raw] :
       {std::tuple(DType::kU8, 1, 1u), std::tuple(DType::kU16, 2, 2u),
        std::tuple(DType::kI16, 2, 3u), std::tuple(DType::kF32, 4, 4u)}) {
    Open(3, dtype);
    Attach();
    EXPECT_EQ(c_.raw_type, raw);
    EXPECT_EQ(c_.record_bytes, kPixels * bytes);
    std::vector<std::vector<char>> sent;
    for (uint64_t i = 0; i < 3; ++i) {
      auto* slot = static_cast<char*>(octavo_ring_begin(&c_, 10000));
      ASSERT_NE(slot, nullptr);
      std::vector<char>& bytes_of = sent.emplace_back(kPixels * bytes);
      for (size_t b = 0; b < bytes_of.size(); ++b) bytes_of[b] = static_cast<char>(b * 7 + i * 31);
      std::memcpy(slot, bytes_of.data(), bytes_of.size());
      ASSERT_EQ(octavo_ring_publish_frame(&c_, i, OCTAVO_RING_PROJECTION, 0), 0);
    }
    ASSERT_TRUE(Until([&] { return Counts().frames == 3; }));
    const auto frames = port_->Arrivals(0, 3);
    for (size_t i = 0; i < 3; ++i)
      EXPECT_EQ(std::memcmp(frames[i].data, sent[i].data(), sent[i].size()), 0);
    Detach();
  }
}

TEST_F(ProjectionRingTest, TheAccountIsThatOfAPush) {
  Open(6);
  Attach();
  for (const uint64_t sequence : {0, 1, 1, 4, 6, 4}) Send(sequence);
  ASSERT_NE(octavo_ring_begin(&c_, 10000), nullptr);
  ASSERT_EQ(octavo_ring_publish_frame(&c_, ~uint64_t{0}, OCTAVO_RING_FLAT, 0), 0);
  ASSERT_TRUE(Flushed());
  const ProjectionPushCounts counts = Counts();
  EXPECT_EQ(counts.frames, 3);
  EXPECT_EQ(counts.duplicate_frames, 2);
  EXPECT_EQ(counts.out_of_range_frames, 2);
  EXPECT_EQ(counts.missing_frames, 2);
  EXPECT_EQ(counts.gaps, 1);
  EXPECT_EQ(counts.connections, 1);
  EXPECT_TRUE(Until([&] { return Server().duplicate_records == 2; }));
  EXPECT_EQ(Server().lost_records, 2u);
  EXPECT_EQ(Server().out_of_range_records, 2u);
  EXPECT_EQ(Server().next_record, 2u);
  // The end of all clients: what is missing stays so.
  octavo_ring_end(&c_);
  Detach();
  ASSERT_TRUE(Until([&] { return !Counts().connected; }));
  EXPECT_FALSE(port_->Wait(0, 0, {})->complete);
  clock_.Advance(5.1);
  EXPECT_TRUE(port_->Wait(0, 0, {})->complete);
  EXPECT_EQ(Counts().frames, 3);
}

TEST_F(ProjectionRingTest, SilenceAndAnOpenConnectionAreThoseOfAPush) {
  Open(6, DType::kU16, /*idle_timeout_s=*/5);
  const auto wait = [&] { return port_->Wait(Counts().frames, 0, {}); };
  ASSERT_THAT(wait().status(), IsOk());  // the job waits from now on
  Attach();
  clock_.Advance(4);
  Send(0);
  ASSERT_TRUE(Flushed());
  clock_.Advance(4);
  EXPECT_THAT(wait().status(), IsOk());
  clock_.Advance(1.1);
  EXPECT_THAT(wait().status(),
              IsError(absl::StatusCode::kDeadlineExceeded, "a client is connected, but silent"));
  // Another client has ended, but this producer is attached and may send.
  Open(6);
  Attach();
  const int64_t other = port_->Connect();
  ASSERT_THAT(port_->EndOfFrames(other), IsOk());
  port_->Disconnect(other);
  clock_.Advance(6);
  EXPECT_FALSE(port_->Wait(0, 0, {})->complete);
  octavo_ring_end(&c_);
  ASSERT_TRUE(Until([&] {
    clock_.Advance(6);
    return port_->Wait(0, 0, {})->complete;
  }));
  EXPECT_TRUE(Until([&] { return octavo_ring_trouble(&c_) == EPIPE; })) << "it is told";
}

TEST_F(ProjectionRingTest, AProducersFailureFailsTheJob) {
  Open(6);
  Attach();
  Send(0);
  octavo_ring_fail(&c_, "the camera is off");
  const auto waited = port_->Wait(6, 20, {});
  EXPECT_THAT(waited.status(), IsError(absl::StatusCode::kUnavailable, "the camera is off"));
  EXPECT_EQ(InfoOf(waited.status()).reason, Reason::kSourceLost);
  EXPECT_EQ(Counts().frames, 1) << "what it had published counts";
}

// The server takes no frame while a copy is held up: the ring fills, and its producer waits.
class HeldUp {
 public:
  explicit HeldUp(ProjectionPort* port) : port_(*port), connection_(port->Connect()) {
    port_.OnProgress(connection_, [this] {
      std::unique_lock lock(mutex_);
      ++calls_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return open_; });
    });
  }
  ~HeldUp() {
    Release();
    port_.Disconnect(connection_);
  }
  void UntilHeld() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return calls_ > 0; });
  }
  void Release() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  ProjectionPort& port_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int calls_ = 0;
  bool open_ = false;
  const int64_t connection_;
};

TEST_F(ProjectionRingTest, AFullRingLetsItsProducerWait) {
  Open(20);
  Attach();
  {
    HeldUp held(port_.get());
    Send(0);
    held.UntilHeld();
    for (uint64_t sequence = 1; sequence < kSlots; ++sequence) Send(sequence);
    EXPECT_EQ(octavo_ring_free(&c_), 0u);
    EXPECT_EQ(octavo_ring_begin(&c_, 20), nullptr);
    EXPECT_EQ(errno, EAGAIN);
    const auto began = std::chrono::steady_clock::now();
    std::thread release([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      held.Release();
    });
    EXPECT_NE(octavo_ring_begin(&c_, 10000), nullptr);
    EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(5));
    release.join();
  }
  for (uint64_t sequence = kSlots; sequence < 20; ++sequence) Send(sequence);
  ASSERT_TRUE(Until([&] { return Counts().frames == 20; }));
  CheckPixels();
}

TEST_F(ProjectionRingTest, AProducerThatWaitsLearnsThatTheJobHasEnded) {
  Open(20);
  Attach();
  HeldUp held(port_.get());
  Send(0);
  held.UntilHeld();
  for (uint64_t sequence = 1; sequence < kSlots; ++sequence) Send(sequence);
  std::atomic<int> error{0};
  std::thread waits([&] {
    if (octavo_ring_begin(&c_, -1) == nullptr) error = errno;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::thread close([&] { port_->Close(); });  // as the job does when it is cancelled
  waits.join();                                // while the server's copy is held up still
  EXPECT_EQ(error, EPIPE);
  held.Release();
  close.join();
  EXPECT_EQ(InfoOf(ring_->CanAttach()).reason, Reason::kJobState);
  EXPECT_EQ(InfoOf(port_->OpenRing(0).status()).reason, Reason::kJobState);
  EXPECT_EQ(octavo_ring_trouble(&c_), EPIPE);
  ring_->Detach(attachment_);  // the hand-over socket notices later
  EXPECT_EQ(memory_.used_bytes(), 20 * kPixels * 2) << "the frames' alone";
}

TEST_F(ProjectionRingTest, ARingOutlivesNothing) {
  Open(20);
  Attach();
  Send(0);
  ASSERT_TRUE(Flushed());
  port_.reset();  // with its ring, whose grant is there still
  EXPECT_EQ(memory_.used_bytes(), 0);
  EXPECT_EQ(octavo_ring_trouble(&c_), EPIPE);
  std::memset(octavo_ring_server_of(&c_), 0x7f,
              64);  // the memory is the producer's as long as it maps it
  EXPECT_EQ(InfoOf(ring_->Attach({.cut = [] {}}).status()).reason, Reason::kJobState);
  ring_->Detach(attachment_);
}

TEST_F(ProjectionRingTest, MemoryIsCountedInTheBudget) {
  constexpr int64_t kFrames = 10, kOfFrames = kFrames * kPixels * 2;
  const int64_t of_ring = RingMemory::TotalBytes(8, kPixels * 2);
  ProjectionMemory memory(kOfFrames + of_ring);
  const PushedProjectionsSpec spec{.rows = kRows, .columns = kColumns, .frames = kFrames};
  ASSERT_OK_AND_ASSIGN(auto port, ProjectionPort::Create(spec, &memory, &clock_));
  const auto refused = port->OpenRing(200);
  EXPECT_EQ(InfoOf(refused.status()).reason, Reason::kHostMemory);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(memory.used_bytes(), kOfFrames);
  ASSERT_OK_AND_ASSIGN(auto ring, port->OpenRing(0));
  EXPECT_EQ(ring->slots(), ProjectionRing::kDefaultSlots);
  EXPECT_EQ(memory.used_bytes(), kOfFrames + of_ring);
  // The same ring again, whose slots are fixed.
  ASSERT_OK_AND_ASSIGN(const auto again, port->OpenRing(8));
  EXPECT_EQ(again, ring);
  EXPECT_THAT(port->OpenRing(9).status(), IsError(absl::StatusCode::kInvalidArgument, "0 or 8"));
  port->Close();
  EXPECT_EQ(memory.used_bytes(), kOfFrames);
  port.reset();
  EXPECT_EQ(memory.used_bytes(), 0);
}

TEST_F(ProjectionRingTest, WrongSlotsAreNamed) {
  ASSERT_OK_AND_ASSIGN(
      const auto port,
      ProjectionPort::Create({.rows = kRows, .columns = kColumns, .frames = 2}, &memory_, &clock_));
  for (const int64_t slots : {int64_t{-1}, int64_t{1}, int64_t{1025}, int64_t{1} << 40}) {
    const auto refused = port->OpenRing(slots);
    EXPECT_THAT(refused.status(),
                IsError(absl::StatusCode::kInvalidArgument, "allowed 0 (8), 2 to"));
    EXPECT_EQ(InfoOf(refused.status()).field, "slots");
  }
  ProjectionMemory much(int64_t{1} << 50);
  const auto huge = ProjectionPort::Create(
      {.rows = 65535, .columns = 32768, .frames = 1, .dtype = DType::kF32}, &much, &clock_);
  ASSERT_THAT(huge.status(), IsOk());
  EXPECT_EQ(InfoOf((*huge)->OpenRing(2).status()).field, "job");
}

TEST_F(ProjectionRingTest, OneProducerAtATime) {
  Open(8);
  Attach();
  const auto second = ring_->Attach({.cut = [] {}});
  EXPECT_EQ(InfoOf(second.status()).reason, Reason::kRingTaken);
  EXPECT_EQ(InfoOf(ring_->CanAttach()).reason, Reason::kRingTaken);
  ring_->Detach(attachment_ + 1);  // of nobody
  Send(0);
  octavo_ring old = c_;
  c_.memory = nullptr;  // keeps its mapping
  ring_->Detach(attachment_);
  Attach();
  EXPECT_EQ(octavo_ring_trouble(&old), ESTALE);
  EXPECT_EQ(octavo_ring_begin(&old, 0), nullptr);
  EXPECT_EQ(errno, ESTALE);
  ring_->Detach(attachment_ - 1);  // late, of the one before
  EXPECT_EQ(InfoOf(ring_->CanAttach()).reason, Reason::kRingTaken);
  Send(1);
  ASSERT_TRUE(Until([&] { return Counts().frames == 2; }));
  EXPECT_EQ(Counts().connections, 2);
  octavo_ring_close(&old);
}

TEST_F(ProjectionRingTest, AProducerThatHasGoneMakesRoomBeforeItsEndIsTold) {
  Open(8);
  bool gone = false;
  const auto first = ring_->Attach({.cut = [] {}, .has_gone = [&] { return gone; }});
  ASSERT_THAT(first.status(), IsOk());
  EXPECT_EQ(InfoOf(ring_->CanAttach()).reason, Reason::kRingTaken);
  gone = true;
  EXPECT_THAT(ring_->CanAttach(), IsOk());
  Attach();
  ring_->Detach(first->connection);  // late
  EXPECT_EQ(InfoOf(ring_->CanAttach()).reason, Reason::kRingTaken);
  Send(0);
  ASSERT_TRUE(Until([&] { return Counts().frames == 1; }));
  EXPECT_EQ(Counts().connections, 2);
}

/// Writes over all of a ring, as a producer that has gone may do.
void Scribble(const octavo_ring& ring, uint64_t from = 0) {
  for (uint64_t at = from; at + 4 <= ring.facts.total_bytes; at += 4)
    std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(ring.memory + at)).store(~0u);
}

// A producer that has gone keeps its mapping, and scribbles over all of it while the next one
// feeds.
TEST_F(ProjectionRingTest, AFormerProducerDisturbsNobody) {
  Open(300);
  Attach();
  octavo_ring former{};
  {
    HeldUp held(port_.get());
    Send(0);
    held.UntilHeld();
    Send(1);
    Send(2);
    former = c_;
    c_.memory = nullptr;  // keeps its mapping
    ring_->Detach(attachment_);
    std::thread attaches([this] { Attach(); });  // waits for nobody but the port's listeners
    EXPECT_TRUE(Until([&] { return octavo_ring_trouble(&former) == ESTALE; }));
    Scribble(former, former.facts.data_offset);  // frames 1 and 2 are copied by now
    held.Release();
    attaches.join();
  }
  ASSERT_TRUE(Until([&] { return Counts().frames == 3; }));
  CheckPixels();
  for (uint64_t sequence = 3; sequence < 300; ++sequence) {
    Scribble(former);
    octavo_ring_ring_bell(&former);
    Send(sequence);
  }
  EXPECT_TRUE(Until([&] { return Counts().frames == 300; }));
  EXPECT_EQ(cuts_, 0);
  EXPECT_EQ(Counts().duplicate_frames, 0);
  EXPECT_EQ(Counts().out_of_range_frames, 0);
  CheckPixels();
  octavo_ring_close(&former);
}

TEST_F(ProjectionRingTest, TheSlotsOfAFormerProducerAreGivenBack) {
  Open(8);
  Attach();
  Send(0);
  ASSERT_TRUE(Flushed());
  octavo_ring former = c_;
  c_.memory = nullptr;
  ring_->Detach(attachment_);
  Attach();
  for (uint64_t at = former.facts.data_offset; at < former.facts.total_bytes; ++at)
    ASSERT_EQ(former.memory[at], 0) << at;
  octavo_ring_close(&former);
}

// The producer before had published frames that were not yet taken when it went: they count, as
// its, and the next one writes behind them.
TEST_F(ProjectionRingTest, WhatWasPublishedBeforeADeathCounts) {
  Open(20);
  Attach();
  {
    HeldUp held(port_.get());
    Send(0);
    held.UntilHeld();
    Send(1);
    Send(2);
    Detach();
    std::thread attaches([this] { Attach(); });  // waits for nobody but the port's listeners
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    held.Release();
    attaches.join();
    EXPECT_EQ(octavo_ring_trouble(&c_), 0);
  }
  for (uint64_t sequence = 3; sequence < 20; ++sequence) Send(sequence);
  ASSERT_TRUE(Until([&] { return Counts().frames == 20; }));
  EXPECT_EQ(Counts().duplicate_frames, 0);
  CheckPixels();
}

TEST_F(ProjectionRingTest, TwoWaysAtOnce) {
  Open(300);
  Attach();
  const int64_t stream = port_->Connect();
  std::thread pushes([&] {
    for (uint64_t sequence = 0; sequence < 300; sequence += 2)
      EXPECT_THAT(Offer(stream, sequence), IsOk());
  });
  for (uint64_t sequence = 1; sequence < 300; sequence += 2) Send(sequence);
  pushes.join();
  ASSERT_TRUE(Until([&] { return Counts().frames == 300; }));
  EXPECT_EQ(Counts().duplicate_frames, 0);
  CheckPixels();
  EXPECT_TRUE(Until([&] { return octavo_ring_trouble(&c_) == EPIPE; }));
  // The last frame by the other way: the producer that is silent is told, too.
  Open(2);
  Attach();
  Send(0);
  ASSERT_TRUE(Flushed());
  EXPECT_EQ(octavo_ring_trouble(&c_), 0);
  ASSERT_THAT(Offer(port_->Connect(), 1), IsOk());
  EXPECT_TRUE(Until([&] { return octavo_ring_trouble(&c_) == EPIPE; }));
}

TEST_F(ProjectionRingTest, TheSameFrameByTwoWaysComesOnce) {
  Open(200);
  Attach();
  const int64_t stream = port_->Connect();
  std::thread pushes([&] {
    for (uint64_t sequence = 0; sequence < 200; ++sequence) (void)Offer(stream, sequence);
  });
  for (uint64_t sequence = 0; sequence < 200; ++sequence) {
    void* slot = octavo_ring_begin(&c_, 10000);
    if (slot == nullptr) break;
    Draw(slot, sequence);
    ASSERT_EQ(octavo_ring_publish_frame(&c_, sequence, OCTAVO_RING_PROJECTION, AngleOf(sequence)),
              0);
  }
  pushes.join();
  ASSERT_TRUE(Until([&] { return Counts().frames == 200; }));
  CheckPixels();
}

// ---- wrong uses

TEST_F(ProjectionRingTest, RecordsAreNotForAJob) {
  Open(8);
  Attach();
  ASSERT_NE(octavo_ring_begin(&c_, 0), nullptr);
  EXPECT_EQ(octavo_ring_publish(&c_, 1), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(octavo_ring_trouble(&c_), EINVAL) << "a program that looks at no result learns it, too";
  EXPECT_EQ(octavo_ring_begin(&c_, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(c_.published, 0u);
  Detach();
  Attach();
  octavo_ring_drop(&c_, 3);
  EXPECT_EQ(octavo_ring_trouble(&c_), EINVAL);
  EXPECT_EQ(cuts_, 0);
}

TEST_F(ProjectionRingTest, WrongFramesAreNotPublished) {
  Open(8);
  Attach();
  ASSERT_NE(octavo_ring_begin(&c_, 0), nullptr);
  const double infinite = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (const auto& [kind, angle] :
       {std::pair(0u, 0.0), {4u, 0.0}, {1u, nan}, {1u, -infinite}, {2u, infinite}}) {
    EXPECT_EQ(octavo_ring_publish_frame(&c_, 0, kind, angle), -1);
    EXPECT_EQ(errno, EINVAL);
  }
  EXPECT_EQ(octavo_ring_trouble(&c_), 0);
  Send(0);
  ASSERT_TRUE(Until([&] { return Counts().frames == 1; }));
}

// A program that was compiled with a header that knew nothing of frames.
TEST_F(ProjectionRingTest, AnOlderProgramIsToldWhatIsWrong) {
  Open(8);
  Attach();
  Send(5);
  ASSERT_TRUE(Flushed());
  octavo_ring_descriptor& of = Descriptor(1);
  of.number = 1;
  of.first_record = 6;
  of.records = 1;
  of.flags = 0;
  Store(Producer().published, uint64_t{2});
  ExpectCutOff(
      "octavo_ring_publish: is for the ring of a scan, and this one is a job's; allowed "
      "octavo_ring_publish_frame");
  EXPECT_EQ(Counts().frames, 1);
}

// ---- hostile memory

TEST_F(ProjectionRingTest, HostileWordsCutTheProducerOff) {
  const uint64_t nan = std::bit_cast<uint64_t>(std::nan("")),
                 infinite = std::bit_cast<uint64_t>(-std::numeric_limits<double>::infinity());
  const std::vector<std::pair<std::function<void()>, std::string>> wrongs = {
      {[&] { Producer().published += kSlots + 1; }, "the ring is broken: the producer published 6"},
      {[&] { Producer().published = ~uint64_t{0}; }, "there was room for 4"},
      {[&] { Producer().published -= 1; }, "the producer published 0 frames; 1 were there before"},
      {[&] { Producer().published ^= uint64_t{1} << 63; }, "the ring is broken"},
      {[&] { Descriptor(1).number = 17; }, "frame 1 says of itself that it is frame 17"},
      {[&] { Descriptor(1).records = 0; }, "records: is 0 of frame 2; allowed 1"},
      {[&] { Descriptor(1).records = 0xFFFFFFFF; }, "records: is 4294967295"},
      {[&] { Descriptor(1).kind = 4; }, "kind: is 4 of frame 2; allowed 1 (projection), 2 (flat)"},
      {[&] { Descriptor(1).kind = (uint64_t{1} << 32) + 1; }, "kind: is 4294967297"},
      {[&] { Descriptor(1).angle_bits = nan; }, "angle_rad: is nan of frame 2"},
      {[&] { Descriptor(1).angle_bits = infinite; }, "angle_rad: is -inf of frame 2"},
      {[&] { Descriptor(1).flags = ~OCTAVO_RING_FRAME; }, "octavo_ring_publish"},
  };
  for (size_t i = 0; i < wrongs.size(); ++i) {
    SCOPED_TRACE(i);
    Open(8);
    Attach();
    Send(0);
    ASSERT_TRUE(Flushed());
    octavo_ring_descriptor& of = Descriptor(1);
    of = {.number = 1,
          .records = 1,
          .flags = OCTAVO_RING_FRAME,
          .sequence = 2,
          .kind = OCTAVO_RING_PROJECTION};
    wrongs[i].first();
    if (Load(Producer().published) == 1) Store(Producer().published, uint64_t{2});
    ExpectCutOff(wrongs[i].second);
    EXPECT_EQ(Server().broken_blocks, 1u);
    EXPECT_EQ(Counts().frames, 1);
    // The next producer goes on behind what counted.
    for (uint64_t sequence = 1; sequence < 8; ++sequence) Send(sequence);
    EXPECT_TRUE(Until([&] { return Counts().frames == 8; }));
    CheckPixels();
    EXPECT_EQ(Counts().connections, 2);
  }
}

// Words that may be anything: the server neither crashes nor hangs nor reads beyond the ring, and
// what it says to others stays right.
TEST_F(ProjectionRingTest, NoFieldIsTrusted) {
  const std::vector<uint64_t> values = {
      0, 1, 2, 9, 0x7FFFFFFF, 0xFFFFFFFF, ~uint64_t{0}, uint64_t{1} << 63, uint64_t{0x7FF0} << 48};
  std::vector<size_t> places;
  for (size_t at = 0; at < sizeof(RingFacts); at += 8) places.push_back(at);
  for (size_t at = 0; at < 96; at += 8) places.push_back(kRingPage + at);
  for (size_t at = 0; at < 48; at += 8) places.push_back(2 * kRingPage + at);
  for (size_t at = 0; at < 2 * sizeof(RingDescriptor); at += 8)
    places.push_back(3 * kRingPage + at);
  for (const size_t place : places) {
    for (const uint64_t value : values) {
      SCOPED_TRACE(absl::StrCat("offset ", place, ", value ", value));
      Open(8);
      Attach();
      Send(0);
      std::memcpy(c_.memory + place, &value, 8);
      octavo_ring_ring_bell(&c_);
      ring_->Detach(attachment_);
      Hang();
      ASSERT_TRUE(Until([&] { return !Counts().connected; }));
      EXPECT_LE(Counts().frames + Counts().out_of_range_frames + Counts().duplicate_frames, kSlots);
      ASSERT_THAT(ring_->CanAttach(), IsOk());
      Attach();
      for (uint64_t sequence = 0; sequence < 8 && octavo_ring_trouble(&c_) == 0; ++sequence)
        if (void* slot = octavo_ring_begin(&c_, 10000); slot != nullptr) {
          Draw(slot, sequence);
          ASSERT_EQ(octavo_ring_publish_frame(&c_, sequence, OCTAVO_RING_PROJECTION, 0), 0);
        }
      ASSERT_TRUE(Until([&] { return Counts().frames == 8; }));
    }
  }
}

TEST_F(ProjectionRingTest, NoiseInTheMemoryIsSurvived) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(800);
  const auto seed = octavo::testing::FreshSeed();
  Open(1000);
  for (unsigned round = 0; std::chrono::steady_clock::now() < until; ++round) {
    if (Counts().frames > 900) Open(1000);
    Attach();
    std::mt19937_64 random(seed + round);
    for (int i = 0; i < 20000; ++i) {
      // Values are mostly almost valid, because those reach deeper code.
      auto& of = Descriptor(random() % kSlots);
      switch (random() % 8) {
        case 0:
          std::atomic_ref<uint64_t>(
              *reinterpret_cast<uint64_t*>(c_.memory + 2 * kRingPage + 8 * (random() % 6)))
              .store(random() % 3 ? random() % 8 : random());
          break;
        case 1: Store(of.number, random() % 16); break;
        case 2: Store(of.sequence, random() % 3 ? random() % 1200 : random()); break;
        case 3: Store(of.kind, random() % 5); break;
        case 4: Store(of.angle_bits, random()); break;
        case 5: Store(of.flags, static_cast<uint32_t>(random() % 8 ? 2 : random())); break;
        case 6: Store(of.records, static_cast<uint32_t>(random() % 8 ? 1 : random())); break;
        default:
          std::atomic_ref<uint64_t>(Producer().published).fetch_add(1);
          std::atomic_ref<uint32_t>(Producer().bell).fetch_add(1);
      }
    }
    Detach();
    ASSERT_TRUE(Until([&] { return ring_->CanAttach().ok(); }));
  }
  // Whatever came, a right producer is served.
  Open(1000);
  Attach();
  for (uint64_t sequence = 0; sequence < 100; ++sequence) Send(sequence);
  EXPECT_TRUE(Until([&] { return Counts().frames == 100; }));
  CheckPixels();
}

// A producer that rings without need does not keep a processor busy, and one that says nothing even
// less so.
TEST_F(ProjectionRingTest, NobodyWaitsBusily) {
  Open(8);
  Attach();
  const auto cpu = [] {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  };
  const double before = cpu();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LT(cpu() - before, 0.05);
}

// A producer in another process is killed in the middle of a frame; another one follows it.
TEST_F(ProjectionRingTest, AKilledProducerIsFollowedByAnother) {
  Open(100);
  for (uint64_t round = 0; round < 3; ++round) {
    auto attached = ring_->Attach({.cut = [] {}});
    ASSERT_THAT(attached.status(), IsOk());
    const int fd = attached->fd.get();
    const uint64_t stop = 25 * (round + 1);
    const pid_t child = ::fork();
    if (child == 0) {
      octavo_ring ring;
      if (octavo_ring_map(&ring, fd, nullptr, 0) != 0) ::_exit(1);
      for (uint64_t sequence = ring.next_record;; ++sequence) {
        auto* slot = static_cast<uint16_t*>(octavo_ring_begin(&ring, -1));
        if (slot == nullptr) ::_exit(2);
        if (sequence == stop) {
          slot[0] = 0xFFFF;  // half of a frame
          for (;;) ::pause();
        }
        for (int64_t i = 0; i < kPixels; ++i) slot[i] = Pixel(sequence, i);
        if (octavo_ring_publish_frame(&ring, sequence, OCTAVO_RING_PROJECTION, AngleOf(sequence)))
          ::_exit(3);
      }
    }
    EXPECT_TRUE(Until([&] { return Counts().frames == static_cast<int64_t>(stop); }));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
    ring_->Detach(attached->connection);
  }
  Attach();
  EXPECT_EQ(c_.next_record, 75u);
  for (uint64_t sequence = 75; sequence < 100; ++sequence) Send(sequence);
  ASSERT_TRUE(Until([&] { return Counts().frames == 100; }));
  EXPECT_EQ(Counts().duplicate_frames, 0);
  CheckPixels();
}

}  // namespace
}  // namespace octavo::engine

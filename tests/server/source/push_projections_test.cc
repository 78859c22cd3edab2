#include "server/source/push_projections.h"

#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

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
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr int64_t kRows = 3, kColumns = 4;
constexpr double kForever = 3600;

/// Pixels that encode their position.
std::vector<uint16_t> Rows(uint64_t sequence, int64_t first_row, int64_t rows) {
  std::vector<uint16_t> out;
  for (int64_t i = first_row * kColumns; i < (first_row + rows) * kColumns; ++i)
    out.push_back(static_cast<uint16_t>(sequence * 100 + static_cast<uint64_t>(i)));
  return out;
}

class ProjectionPortTest : public ::testing::Test {
 protected:
  static PushedProjectionsSpec Spec(int64_t frames) {
    return {.rows = kRows,
            .columns = kColumns,
            .frames = frames,
            .dtype = DType::kU16,
            .pixel_size_um = 2,
            .credit_messages = 4,
            .idle_timeout_s = 5};
  }
  void Open(int64_t frames, double idle_timeout_s = 5) {
    PushedProjectionsSpec spec = Spec(frames);
    spec.idle_timeout_s = idle_timeout_s;
    ASSERT_OK_AND_ASSIGN(port_, ProjectionPort::Create(spec, &memory_, &clock_));
    connection_ = port_->Connect();
  }
  absl::Status Send(uint64_t sequence, FrameKind kind = FrameKind::kProjection,
                    int64_t first_row = 0, int64_t rows = kRows) {
    (void)port_->Progress(connection_);  // as the stream does before it reports credit
    const auto pixels = Rows(sequence, first_row, rows);
    const char* data = reinterpret_cast<const char*>(pixels.data());
    const size_t bytes = pixels.size() * 2, split = 7;  // as gRPC divides messages
    PushedFrame frame{.sequence = sequence,
                      .kind = kind,
                      .angle_rad = 0.25 * static_cast<double>(sequence),
                      .first_row = first_row,
                      .rows = rows,
                      .parts = {{data, split}, {data + split, bytes - split}}};
    return port_->Offer(connection_, frame);
  }

  FakeClock clock_;
  ProjectionMemory memory_{1 << 20};
  std::shared_ptr<ProjectionPort> port_;
  int64_t connection_ = 0;
};

TEST_F(ProjectionPortTest, FramesInAnyOrderBecomeAnInput) {
  Open(7);
  // 0 flat, 1 projection, 2 projection, 3 dark, 4 projection, 5 flat, 6 projection
  const FrameKind kinds[] = {FrameKind::kFlat,      FrameKind::kProjection, FrameKind::kProjection,
                             FrameKind::kDark,      FrameKind::kProjection, FrameKind::kFlat,
                             FrameKind::kProjection};
  EXPECT_THAT(port_->Snapshot(),
              IsError(absl::StatusCode::kFailedPrecondition, "no projection has come"));
  for (const uint64_t s : {6, 2, 0}) ASSERT_THAT(Send(s, kinds[s]), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto early, port_->Snapshot());
  for (const uint64_t s : {5, 1, 3}) ASSERT_THAT(Send(s, kinds[s]), IsOk());
  ASSERT_OK_AND_ASSIGN(auto so_far, port_->Wait(5, kForever, {}));
  EXPECT_FALSE(so_far.complete);
  EXPECT_EQ(so_far.counts.frames, 6);
  EXPECT_EQ(so_far.counts.gaps, 1);
  ASSERT_THAT(Send(4, kinds[4]), IsOk());
  ASSERT_OK_AND_ASSIGN(so_far, port_->Wait(7, kForever, {}));
  EXPECT_TRUE(so_far.complete);
  EXPECT_THAT((std::vector{so_far.counts.projections, so_far.counts.flats, so_far.counts.darks,
                           so_far.counts.gaps, so_far.counts.missing_frames}),
              ElementsAre(4, 2, 1, 0, 0));

  ASSERT_OK_AND_ASSIGN(const auto input, port_->Snapshot());
  const storage::ProjectionInfo& info = input->info();
  EXPECT_EQ(info.format, "push");
  EXPECT_EQ(info.dtype, DType::kU16);
  EXPECT_EQ(info.pixel_size_um, 2);
  EXPECT_THAT(info.angles_rad, ElementsAre(0.25, 0.5, 1.0, 1.5));
  EXPECT_THAT(info.flat_positions, ElementsAre(0, 3));
  EXPECT_THAT(info.dark_positions, ElementsAre(2));
  EXPECT_THAT(info.notes, IsEmpty());
  std::vector<uint16_t> pixels(4 * kRows * kColumns);
  ASSERT_THAT(input->Read({.frames = 4, .rows = kRows, .columns = kColumns}, pixels.data()),
              IsOk());
  const uint64_t order[] = {1, 2, 4, 6};
  for (size_t f = 0; f < 4; ++f) {
    const auto expected = Rows(order[f], 0, kRows);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(),
                           pixels.begin() + static_cast<int64_t>(f) * kRows * kColumns))
        << f;
  }
  std::vector<uint16_t> box(4);
  ASSERT_THAT(input->Read({.kind = FrameKind::kFlat,
                           .first_frame = 1,
                           .frames = 1,
                           .first_row = 1,
                           .rows = 2,
                           .first_column = 2,
                           .columns = 2},
                          box.data()),
              IsOk());
  EXPECT_THAT(box, ElementsAre(506, 507, 510, 511));
  // Frames that arrived earlier do not change, even after the port is destroyed.
  port_.reset();
  EXPECT_THAT(early->info().angles_rad, ElementsAre(0.5, 1.5));
  EXPECT_EQ(early->info().flats, 1);
  ASSERT_THAT(early->Read({.first_frame = 1, .frames = 1, .rows = 1, .columns = 4}, box.data()),
              IsOk());
  EXPECT_THAT(box, ElementsAre(600, 601, 602, 603));
}

TEST_F(ProjectionPortTest, ArrivalsAreCompleteFramesInTheOrderInWhichTheyCame) {
  Open(5);
  EXPECT_THAT(port_->Arrivals(0, 10), IsEmpty());
  ASSERT_THAT(Send(3, FrameKind::kProjection), IsOk());
  ASSERT_THAT(Send(0, FrameKind::kProjection, 0, 1), IsOk());  // a part
  ASSERT_THAT(Send(4, FrameKind::kDark), IsOk());
  ASSERT_THAT(Send(3, FrameKind::kFlat), IsOk());  // it is in already
  ASSERT_THAT(Send(0, FrameKind::kProjection, 1, 2), IsOk());
  std::vector<double> angles;
  for (int64_t seen = 0; seen < 3; ++seen) {
    const auto next = port_->Arrivals(seen, 1);
    ASSERT_EQ(next.size(), 1u);
    angles.push_back(next[0].angle_rad);
    EXPECT_EQ(next[0].kind, seen == 1 ? FrameKind::kDark : FrameKind::kProjection);
    const auto expected = Rows(seen == 0 ? 3 : seen == 1 ? 4 : 0, 0, kRows);
    EXPECT_EQ(std::memcmp(next[0].data, expected.data(), expected.size() * 2), 0) << seen;
  }
  EXPECT_EQ(angles[0], 0.75);
  EXPECT_EQ(angles[2], 0);
  EXPECT_EQ(port_->Arrivals(1, 10).size(), 2u);
  EXPECT_THAT(port_->Arrivals(3, 10), IsEmpty());
}

TEST_F(ProjectionPortTest, RowsOfAFrameComeInOrder) {
  Open(2);
  ASSERT_THAT(Send(0, FrameKind::kProjection, 0, 1), IsOk());
  ASSERT_THAT(Send(1, FrameKind::kProjection, 0, 2), IsOk());
  ASSERT_THAT(Send(0, FrameKind::kProjection, 2, 1), IsOk());  // row 1 is missing
  ASSERT_OK_AND_ASSIGN(auto progress, port_->Progress(connection_));
  EXPECT_EQ(progress.counts.frames, 0);
  EXPECT_EQ(progress.counts.out_of_range_frames, 1);
  ASSERT_THAT(Send(7, FrameKind::kProjection, 0, 2),
              IsOk());  // an extra frame, in two messages
  ASSERT_THAT(Send(7, FrameKind::kProjection, 2, 1), IsOk());
  ASSERT_OK_AND_ASSIGN(progress, port_->Progress(connection_));
  EXPECT_EQ(progress.counts.out_of_range_frames, 3);
  EXPECT_EQ(progress.counts.surplus_frames, 1);
  ASSERT_THAT(Send(0, FrameKind::kDark, 0, 1), IsOk());  // from its start again, as another kind
  ASSERT_THAT(Send(0, FrameKind::kProjection, 1, 2), IsOk());
  ASSERT_THAT(Send(1, FrameKind::kProjection, 2, 1), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto input, port_->Snapshot());
  EXPECT_THAT((std::vector{input->info().projections, input->info().darks}), ElementsAre(1, 1));
  std::vector<uint16_t> pixels(kRows * kColumns);
  ASSERT_THAT(
      input->Read({.kind = FrameKind::kDark, .frames = 1, .rows = kRows, .columns = kColumns},
                  pixels.data()),
      IsOk());
  EXPECT_EQ(pixels, Rows(0, 0, kRows));
}

TEST_F(ProjectionPortTest, DuplicatesGapsAndTheEndAreCounted) {
  Open(10);
  for (const uint64_t s : {0, 1, 4, 8}) ASSERT_THAT(Send(s), IsOk());
  ASSERT_THAT(Send(1), IsOk());
  ASSERT_THAT(Send(10), IsOk());
  ASSERT_THAT(Send(uint64_t{1} << 63), IsOk());
  ASSERT_OK_AND_ASSIGN(auto progress, port_->Progress(connection_));
  EXPECT_EQ(progress.next_sequence, 2);
  EXPECT_THAT(progress.missing, ElementsAre(Pair(2, 2), Pair(5, 3), Pair(9, 1)));
  EXPECT_THAT(
      (std::vector{progress.counts.frames, progress.counts.missing_frames, progress.counts.gaps,
                   progress.counts.duplicate_frames, progress.counts.out_of_range_frames}),
      ElementsAre(4, 5, 2, 1, 2));
  EXPECT_EQ(progress.received, 7);
  EXPECT_FALSE(progress.done);
  ASSERT_THAT(port_->EndOfFrames(connection_), IsOk());
  clock_.Advance(5.1);  // no other client connected
  ASSERT_OK_AND_ASSIGN(const auto so_far, port_->Wait(4, kForever, {}));
  EXPECT_TRUE(so_far.complete);
  ASSERT_THAT(Send(2), IsOk());  // too late
  ASSERT_OK_AND_ASSIGN(progress, port_->Progress(connection_));
  EXPECT_TRUE(progress.done);
  EXPECT_EQ(progress.counts.frames, 4);
  EXPECT_EQ(progress.counts.out_of_range_frames, 3);
  ASSERT_OK_AND_ASSIGN(const auto input, port_->Snapshot());
  EXPECT_THAT(input->info().notes, ElementsAre("6 of 10 frames never came, the first is 2"));
  EXPECT_THAT(input->info().angles_rad, ElementsAre(0, 0.25, 1, 2));
}

TEST_F(ProjectionPortTest, CreditIsKept) {
  Open(100);
  const auto pixels = Rows(0, 0, kRows);
  const PushedFrame frame{
      .rows = kRows, .parts = {{reinterpret_cast<const char*>(pixels.data()), pixels.size() * 2}}};
  EXPECT_THAT(port_->Offer(connection_, frame),
              IsError(absl::StatusCode::kResourceExhausted, "message 1 came without credit"));
  EXPECT_EQ(InfoOf(port_->Offer(connection_, frame)).reason, Reason::kCreditExceeded);
  ASSERT_OK_AND_ASSIGN(auto progress, port_->Progress(connection_));
  EXPECT_EQ(progress.credit, 4);
  for (int i = 0; i < 4; ++i) ASSERT_THAT(port_->Offer(connection_, frame), IsOk());
  EXPECT_THAT(port_->Offer(connection_, frame),
              IsError(absl::StatusCode::kResourceExhausted, "message 5"));
  ASSERT_OK_AND_ASSIGN(progress, port_->Progress(connection_));
  EXPECT_EQ(progress.credit, 8);
}

TEST_F(ProjectionPortTest, ConnectionsPushSideBySide) {
  Open(6);
  ASSERT_THAT(Send(0), IsOk());
  ASSERT_THAT(Send(2), IsOk());
  int told = 0;
  port_->OnProgress(connection_, [&] { ++told; });
  const int64_t first = connection_, second = port_->Connect();
  connection_ = second;
  ASSERT_THAT(Send(1), IsOk());
  EXPECT_EQ(told, 1);  // also counts frames from other connections
  ASSERT_OK_AND_ASSIGN(auto progress, port_->Progress(second));
  EXPECT_EQ(progress.received, 1);
  EXPECT_THAT(progress.missing, ElementsAre(Pair(3, 3)));
  EXPECT_EQ(progress.counts.connections, 2);
  connection_ = first;
  ASSERT_THAT(Send(3), IsOk());
  ASSERT_OK_AND_ASSIGN(progress, port_->Progress(first));
  EXPECT_EQ(progress.received, 3);
  port_->Disconnect(second);
  EXPECT_THAT(port_->Progress(second), IsError(absl::StatusCode::kInternal, "closed"));
  ASSERT_OK_AND_ASSIGN(progress, port_->Progress(first));
  EXPECT_TRUE(progress.counts.connected);
  ASSERT_THAT(Send(4), IsOk());
  ASSERT_THAT(Send(5), IsOk());
  ASSERT_OK_AND_ASSIGN(progress, port_->Progress(first));
  EXPECT_TRUE(progress.done);
  EXPECT_THAT(progress.missing, IsEmpty());
  EXPECT_EQ(progress.next_sequence, 6);
}

TEST_F(ProjectionPortTest, TheEndIsWhenAllHaveSaidSo) {
  const auto complete = [&] { return port_->Wait(0, 0.0, {})->complete; };
  Open(6);
  const int64_t first = connection_, second = port_->Connect();
  ASSERT_THAT(port_->EndOfFrames(first), IsOk());
  EXPECT_TRUE(port_->Progress(first)->done);  // this connection is done
  EXPECT_FALSE(port_->Progress(second)->done);
  EXPECT_FALSE(complete());
  port_->Disconnect(first);
  EXPECT_FALSE(complete());
  ASSERT_THAT(port_->EndOfFrames(second), IsOk());
  EXPECT_FALSE(complete());
  clock_.Advance(4.0);  // a third client may be about to connect
  EXPECT_FALSE(complete());
  clock_.Advance(1.1);
  EXPECT_TRUE(complete());

  // The first client finishes before the second one connects.
  Open(4);
  ASSERT_THAT(Send(0), IsOk());
  ASSERT_THAT(port_->EndOfFrames(connection_), IsOk());
  EXPECT_THAT(Send(1), IsOk());  // after the client's end: counted, not stored
  EXPECT_EQ(port_->Progress(connection_)->counts.out_of_range_frames, 1);
  port_->Disconnect(connection_);
  EXPECT_FALSE(complete());
  clock_.Advance(4.9);
  EXPECT_FALSE(complete());
  connection_ = port_->Connect();
  EXPECT_FALSE(port_->Progress(connection_)->done);
  for (const uint64_t sequence : {1, 2, 3}) ASSERT_THAT(Send(sequence), IsOk());
  EXPECT_TRUE(complete());
  EXPECT_TRUE(port_->Missing().empty());

  // A silent client with an open connection does not fail a push that others have ended: the idle
  // timeout ends the push.
  Open(6, /*idle_timeout_s=*/5);
  EXPECT_FALSE(complete());  // the job waits
  const int64_t silent = port_->Connect();
  ASSERT_THAT(port_->EndOfFrames(connection_), IsOk());
  port_->Disconnect(connection_);
  clock_.Advance(4.9);
  EXPECT_FALSE(complete());
  clock_.Advance(0.2);
  EXPECT_TRUE(complete());
  port_->Disconnect(silent);

  // A client whose connection breaks may connect again.
  Open(6, kForever);
  const int64_t broken = port_->Connect();
  port_->Disconnect(broken);
  ASSERT_THAT(port_->EndOfFrames(connection_), IsOk());
  port_->Disconnect(connection_);
  clock_.Advance(4.0);
  EXPECT_FALSE(complete());
  const int64_t back = port_->Connect();
  clock_.Advance(4.0);
  EXPECT_FALSE(complete());
  ASSERT_THAT(port_->EndOfFrames(back), IsOk());
  port_->Disconnect(back);
  clock_.Advance(4.0);
  EXPECT_FALSE(complete());
  clock_.Advance(1.1);
  EXPECT_TRUE(complete());
}

TEST_F(ProjectionPortTest, BadRowsAreRefusedAndChangeNothing) {
  Open(4);
  (void)port_->Progress(connection_);
  const auto pixels = Rows(0, 0, kRows);
  const PushedFrame good{
      .rows = kRows, .parts = {{reinterpret_cast<const char*>(pixels.data()), pixels.size() * 2}}};
  const auto refused = [&](const char* text, auto change) {
    PushedFrame frame = good;
    change(frame);
    EXPECT_THAT(port_->Offer(connection_, frame),
                IsError(absl::StatusCode::kInvalidArgument, text));
  };
  refused("first_row: is 3; allowed 0 to 2", [](PushedFrame& f) { f.first_row = 3; });
  refused("rows: is 0; allowed 1 to 3", [](PushedFrame& f) { f.rows = 0; });
  refused("rows: is 3; allowed 1 to 2", [](PushedFrame& f) { f.first_row = 1; });
  refused("data: has 24 bytes; 2 rows have 16", [](PushedFrame& f) { f.rows = 2; });
  refused("angle_rad: is nan", [](PushedFrame& f) { f.angle_rad = NAN; });
  ASSERT_OK_AND_ASSIGN(const auto progress, port_->Progress(connection_));
  EXPECT_EQ(progress.received, 0);
  EXPECT_EQ(progress.counts.frames, 0);
}

TEST_F(ProjectionPortTest, BadSpecsNameTheField) {
  const auto refused = [&](const char* text, auto change) {
    PushedProjectionsSpec spec = Spec(10);
    change(spec);
    EXPECT_THAT(ProjectionPort::Create(spec, &memory_, &clock_),
                IsError(absl::StatusCode::kInvalidArgument, text));
  };
  refused("push.rows: is 0; allowed 1 to 65535", [](auto& s) { s.rows = 0; });
  refused("push.columns: is 1; allowed 2 to 32768", [](auto& s) { s.columns = 1; });
  refused("push.columns: is 32769; allowed 2 to 32768", [](auto& s) { s.columns = 32'769; });
  refused("push.frames: is 1000001", [](auto& s) { s.frames = 1'000'001; });
  refused("push.dtype: is c64; allowed u8, u16, i16, f32", [](auto& s) { s.dtype = DType::kC64; });
  refused("push.dtype: is f32; allowed u16, of packed counts", [](auto& s) {
    s.dtype = DType::kF32;
    s.packing = math::Packing::kLowFirst12;
  });
  refused("push.credit_messages: is 257", [](auto& s) { s.credit_messages = 257; });
  refused("push.pixel_size_um: is nan", [](auto& s) { s.pixel_size_um = NAN; });
  refused("push.idle_timeout: is inf", [](auto& s) { s.idle_timeout_s = INFINITY; });
}

TEST_F(ProjectionPortTest, HostMemoryIsCountedAndGivenBack) {
  const int64_t frame = kRows * kColumns * 2;
  ProjectionMemory memory(100 * frame);
  ASSERT_OK_AND_ASSIGN(auto first, ProjectionPort::Create(Spec(60), &memory, &clock_));
  EXPECT_EQ(memory.used_bytes(), 60 * frame);
  const auto second = ProjectionPort::Create(Spec(41), &memory, &clock_);
  EXPECT_THAT(second, IsError(absl::StatusCode::kResourceExhausted,
                              "of 2400 for pushed projections 960 are free"));
  EXPECT_EQ(InfoOf(second.status()).reason, Reason::kHostMemory);
  first.reset();
  EXPECT_EQ(memory.used_bytes(), 0);
}

// Packed rows are kept as they come, take three quarters of the memory, and are read as numbers or
// as they are.
TEST_F(ProjectionPortTest, PackedRowsStayPacked) {
  std::mt19937 random(testing::FreshSeed());
  for (const math::Packing packing : {math::Packing::kLowFirst12, math::Packing::kHighFirst12}) {
    for (const int64_t columns : {2, 3, 7, 8, 33}) {
      constexpr int64_t kFrames = 4, kHigh = 5;
      const int64_t row = (columns * 3 + 1) / 2;
      PushedProjectionsSpec spec = Spec(kFrames);
      spec.rows = kHigh;
      spec.columns = columns;
      spec.packing = packing;
      ProjectionMemory memory(kFrames * kHigh * row);
      ASSERT_OK_AND_ASSIGN(const auto port, ProjectionPort::Create(spec, &memory, &clock_));
      EXPECT_EQ(memory.used_bytes(), kFrames * kHigh * row);
      const int64_t connection = port->Connect();
      std::vector<uint16_t> counts(static_cast<size_t>(kFrames * kHigh * columns));
      std::vector<uint8_t> packed(static_cast<size_t>(kFrames * kHigh * row));
      for (int64_t i = 0; i < std::ssize(counts); ++i) {
        const auto count = static_cast<uint16_t>(random() % 4096);
        counts[static_cast<size_t>(i)] = count;
        math::WritePacked12(packing, packed.data() + i / columns * row, i % columns, count);
      }
      for (int64_t f = kFrames; f-- > 0;) {
        for (const int64_t first : {int64_t{0}, int64_t{2}}) {  // in two messages
          const int64_t rows = first == 0 ? 2 : kHigh - 2;
          const auto* const data =
              reinterpret_cast<const char*>(packed.data() + (f * kHigh + first) * row);
          const auto bytes = static_cast<size_t>(rows * row);
          PushedFrame frame{.sequence = static_cast<uint64_t>(f),
                            .kind = f == 0 ? FrameKind::kFlat : FrameKind::kProjection,
                            .first_row = first,
                            .rows = rows,
                            .parts = {{data, 3}, {data + 3, bytes - 3}}};
          (void)port->Progress(connection);
          ASSERT_THAT(port->Offer(connection, frame), IsOk());
        }
      }
      (void)port->Progress(connection);
      const PushedFrame numbers{.rows = kHigh,
                                .parts = {{reinterpret_cast<const char*>(counts.data()),
                                           static_cast<size_t>(kHigh * columns * 2)}}};
      EXPECT_THAT(port->Offer(connection, numbers),
                  IsError(absl::StatusCode::kInvalidArgument,
                          absl::StrCat("data: has ", kHigh * columns * 2, " bytes; 5 rows have ",
                                       kHigh * row)));
      const auto arrived = port->Arrivals(3, 1);
      ASSERT_EQ(arrived.size(), 1u);  // the one of number 0
      EXPECT_EQ(std::memcmp(arrived[0].data, packed.data(), static_cast<size_t>(kHigh * row)), 0);
      ASSERT_OK_AND_ASSIGN(const auto input, port->Snapshot());
      EXPECT_EQ(input->info().dtype, DType::kU16);
      EXPECT_EQ(input->info().packing, packing);
      EXPECT_EQ(input->info().stored_type,
                packing == math::Packing::kLowFirst12 ? "u12p" : "u12_packed");
      std::vector<uint16_t> read(counts.size());
      ASSERT_THAT(input->Read({.frames = 3, .rows = kHigh, .columns = columns}, read.data()),
                  IsOk());
      EXPECT_TRUE(std::equal(counts.begin() + kHigh * columns, counts.end(), read.begin()));
      const storage::ProjectionBox part{.first_frame = 1,
                                        .frames = 2,
                                        .first_row = 1,
                                        .rows = 3,
                                        .first_column = 1,
                                        .columns = columns - 1};
      ASSERT_THAT(input->Read(part, read.data()), IsOk());
      for (int64_t i = 0; i < part.elements(); ++i) {
        const int64_t f = i / (3 * part.columns), r = i / part.columns % 3, c = i % part.columns;
        ASSERT_EQ(read[static_cast<size_t>(i)],
                  counts[static_cast<size_t>(((f + 2) * kHigh + r + 1) * columns + c + 1)]);
      }
      std::vector<uint8_t> stored(static_cast<size_t>(2 * 3 * row));
      ASSERT_THAT(input->Read({.first_frame = 1,
                               .frames = 2,
                               .first_row = 1,
                               .rows = 3,
                               .first_column = 0,
                               .columns = columns},
                              stored.data(), storage::PixelForm::kStored),
                  IsOk());
      for (int64_t f = 0; f < 2; ++f) {
        EXPECT_EQ(
            std::memcmp(stored.data() + f * 3 * row, packed.data() + ((f + 2) * kHigh + 1) * row,
                        static_cast<size_t>(3 * row)),
            0);
      }
    }
  }
}

TEST_F(ProjectionPortTest, AJobWaitsForNewsTheEndOrTooLong) {
  Open(3);
  ASSERT_OK_AND_ASSIGN(auto so_far, port_->Wait(0, 0.0, {}));
  EXPECT_EQ(so_far.counts.frames, 0);
  clock_.Advance(4.0);
  ASSERT_THAT(Send(0), IsOk());
  clock_.Advance(4.0);
  ASSERT_OK_AND_ASSIGN(so_far, port_->Wait(1, 0.0, {}));
  EXPECT_EQ(so_far.counts.frames, 1);
  clock_.Advance(2.0);
  const auto stalled = port_->Wait(1, kForever, {});
  EXPECT_THAT(
      stalled,
      IsError(absl::StatusCode::kDeadlineExceeded,
              "no projections came for 5 s (a client is connected, but silent); 1 of 3 frames"));
  EXPECT_EQ(InfoOf(stalled.status()).reason, Reason::kSourceStalled);
  // The wait ends at a frame, at the end, or at a stop.
  ASSERT_THAT(Send(1), IsOk());
  {
    std::jthread sender([&] { EXPECT_THAT(Send(2), IsOk()); });
    ASSERT_OK_AND_ASSIGN(so_far, port_->Wait(2, kForever, {}));
  }
  EXPECT_TRUE(so_far.complete);
  Open(3);
  std::stop_source stop;
  std::jthread stopper([&] { stop.request_stop(); });
  EXPECT_THAT(port_->Wait(0, kForever, stop.get_token()),
              IsError(absl::StatusCode::kCancelled, ""));
  port_->Close();
  ASSERT_OK_AND_ASSIGN(so_far, port_->Wait(0, kForever, {}));
  EXPECT_TRUE(so_far.complete);
}

TEST_F(ProjectionPortTest, APartEndsAtAProjectionWhateverComesAfterIt) {
  Open(9);
  // 0 flat, 1 and 2 projections, 3 dark, 4 projection, 5 flat, 6 and 7 projections, 8 flat
  const std::string kinds = "fppdpfppf";
  const auto send = [&](uint64_t s) {
    clock_.Advance(1);
    return Send(s, kinds[s] == 'f'   ? FrameKind::kFlat
                   : kinds[s] == 'd' ? FrameKind::kDark
                                     : FrameKind::kProjection);
  };
  for (const uint64_t s : {8, 2, 0, 7}) ASSERT_THAT(send(s), IsOk());
  EXPECT_EQ(port_->Wait(0, 0, {})->in_order, 0) << "frame 1 has not arrived";
  ASSERT_THAT(send(1), IsOk());
  EXPECT_EQ(port_->Wait(0, 0, {})->in_order, 2);
  const auto early = port_->SnapshotOf(0, 2);
  for (const uint64_t s : {4, 3}) ASSERT_THAT(send(s), IsOk());
  EXPECT_EQ(port_->Wait(0, 0, {})->in_order, 3);
  for (const auto& part : {early, port_->SnapshotOf(0, 2)}) {  // the same before and after
    ASSERT_THAT(part, IsOk());
    const storage::ProjectionInfo& info = part->input->info();
    EXPECT_THAT(info.angles_rad, ElementsAre(0.25, 0.5));
    EXPECT_EQ(info.flats, 1);
    EXPECT_EQ(info.darks, 0);
    EXPECT_THAT(part->missing, IsEmpty());
    EXPECT_EQ(part->ended.monotonic_ns - part->begun.monotonic_ns, 3'000'000'000)
        << "frame 2 came second, frame 1 fifth";
  }
  // Across a frame that is missing: it is counted where it lies between those that are asked for.
  ASSERT_OK_AND_ASSIGN(const PushedPart across, port_->SnapshotOf(2, 4));
  EXPECT_THAT(across.input->info().angles_rad, ElementsAre(0.25, 0.5, 1.0, 1.75));
  EXPECT_THAT(across.input->info().dark_positions, ElementsAre(2));
  EXPECT_THAT(across.missing, ElementsAre(Pair(5, 2)));
  std::vector<uint16_t> pixels(static_cast<size_t>(kRows * kColumns));
  ASSERT_THAT(
      across.input->Read({.first_frame = 3, .frames = 1, .rows = kRows, .columns = kColumns},
                         pixels.data()),
      IsOk());
  EXPECT_EQ(pixels, Rows(7, 0, kRows));
  const auto more = port_->SnapshotOf(2, 5);
  EXPECT_THAT(more, IsError(absl::StatusCode::kFailedPrecondition,
                            "only 4 projections have come, of 5 that are needed"));
  EXPECT_EQ(InfoOf(more.status()).reason, Reason::kNoProjections);
}

TEST_F(ProjectionPortTest, TimeInWhichTheJobWorksIsNoSilence) {
  Open(3);
  ASSERT_THAT(Send(0), IsOk());
  ASSERT_OK_AND_ASSIGN(auto so_far, port_->Wait(1, 0.0, {}));
  clock_.Advance(100);
  port_->WaitsAgain();
  ASSERT_OK_AND_ASSIGN(so_far, port_->Wait(1, 0.0, {}));
  clock_.Advance(6);
  EXPECT_THAT(port_->Wait(1, 0.0, {}), IsError(absl::StatusCode::kDeadlineExceeded, "5 s"));
}

TEST_F(ProjectionPortTest, TheJobMayLookWhileFramesCome) {
  constexpr int64_t kFrames = 300;
  Open(kFrames);
  std::jthread sender([&] {
    std::vector<uint64_t> order(kFrames);
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), std::mt19937(7));
    for (const uint64_t s : order) EXPECT_THAT(Send(s), IsOk());
  });
  for (int64_t seen = 0;;) {
    ASSERT_OK_AND_ASSIGN(const auto so_far, port_->Wait(seen, kForever, {}));
    seen = so_far.counts.frames;
    ASSERT_OK_AND_ASSIGN(const auto input, port_->Snapshot());
    ASSERT_GE(input->info().projections, seen);
    std::vector<uint16_t> pixels(static_cast<size_t>(input->info().projections * kColumns));
    ASSERT_THAT(
        input->Read(
            {.frames = input->info().projections, .first_row = 1, .rows = 1, .columns = kColumns},
            pixels.data()),
        IsOk());
    for (size_t i = 0; i < input->info().angles_rad.size(); ++i) {
      const auto sequence = static_cast<uint64_t>(4 * input->info().angles_rad[i]);
      ASSERT_EQ(pixels[i * kColumns], static_cast<uint16_t>(sequence * 100 + kColumns));
    }
    if (so_far.complete) break;
  }
}

}  // namespace
}  // namespace octavo::engine

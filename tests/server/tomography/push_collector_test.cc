// The projections that clients push, as a run sees them.

#include "server/tomography/push_collector.h"

#include <thread>

#include "gmock/gmock.h"

#include "gpu/base/status.h"
#include "tests/server/tomography/fake_run.h"
#include "tests/support/fake_clock.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using ::testing::Contains;
using testing::DiscInput;
using testing::FakeRun;
using ::testing::HasSubstr;
using testing::kAngles;
using testing::kColumns;
using testing::kPi;
using testing::kRows;

class PushCollectorTest : public ::testing::Test {
 protected:
  PushCollectorTest() : spec_(testing::DiscSpec()) { Open(MissingFrames::kDefault); }
  ~PushCollectorTest() override { port_->Disconnect(connection_); }

  void Open(MissingFrames on_missing) {
    spec_.input = PushedProjectionsSpec{.rows = kRows,
                                        .columns = kColumns,
                                        .frames = kAngles,
                                        .dtype = DType::kF32,
                                        .idle_timeout_s = 3600,
                                        .on_missing = on_missing};
    port_ = ProjectionPort::Create(std::get<PushedProjectionsSpec>(spec_.input), &memory_, &clock_)
                .value();
    connection_ = port_->Connect();
  }

  void Push(int64_t first, int64_t end, storage::FrameKind kind = storage::FrameKind::kProjection) {
    std::vector<float> frame(static_cast<size_t>(kRows * kColumns));
    for (int64_t a = first; a < end; ++a) {
      for (int64_t i = 0; i < kRows * kColumns; ++i)
        frame[static_cast<size_t>(i)] = DiscInput::Value(12, a, i % kColumns);
      PushedFrame pushed{.sequence = static_cast<uint64_t>(a),
                         .kind = kind,
                         .angle_rad = turn_ * static_cast<double>(a) / kAngles,
                         .rows = kRows,
                         .parts = {}};
      pushed.parts.emplace_back(reinterpret_cast<const char*>(frame.data()), frame.size() * 4);
      ASSERT_THAT(port_->Progress(connection_), IsOk());  // takes the credit
      ASSERT_THAT(port_->Offer(connection_, pushed), IsOk());
    }
  }
  static absl::StatusOr<bool> Nothing(bool /*all*/) { return false; }

  double turn_ = kPi;  // what the angles cover
  FakeRun run_;
  octavo::testing::FakeClock clock_;
  ProjectionMemory memory_{1 << 20};
  TomographySpec spec_;
  std::shared_ptr<ProjectionPort> port_;
  int64_t connection_ = 0;
  const TomographyLayout planned_ = testing::DiscLayout(testing::DiscSpec());
};

TEST_F(PushCollectorTest, WhatIsInAlreadyNeedsNoWait) {
  Push(0, kAngles);
  PushCollector input(run_, {}, *port_, spec_, planned_);
  ASSERT_OK_AND_ASSIGN(const ScannedObject object, input.Collect(Nothing));
  EXPECT_EQ(run_.waits, 0) << "the device is not given up";
  EXPECT_EQ(object.input->info().projections, kAngles);
  EXPECT_EQ(object.layout.slices(), kRows);
  EXPECT_TRUE(object.missing_frames.empty());
  EXPECT_EQ(run_.steps.back(), kAngles);
  EXPECT_THAT(run_.log, Contains(HasSubstr("all in: 60 projections")));
  EXPECT_THAT(input.TellLeftOut(), IsOk());
}

TEST_F(PushCollectorTest, WhileItWaitsItShowsWhatHasComeAndAtLastAll) {
  Push(0, kAngles / 2);
  int shown = 0, last = 0;
  PushCollector input(run_, {}, *port_, spec_, planned_);
  const auto object = input.Collect([&](bool all) -> absl::StatusOr<bool> {
    if (all) return ++last < 3;
    Push(kAngles / 2 + shown, kAngles / 2 + shown + 1);
    ++shown;
    return shown % 2 == 0;
  });
  ASSERT_THAT(object, IsOk());
  EXPECT_EQ(run_.waits, 1);
  EXPECT_EQ(shown, kAngles / 2);
  EXPECT_EQ(last, 3) << "as often as there is more to do";
}

TEST_F(PushCollectorTest, APreviewThatIsCancelledEndsTheWait) {
  Push(0, kAngles / 2);
  PushCollector input(run_, {}, *port_, spec_, planned_);
  EXPECT_THAT(
      input.Collect([](bool) -> absl::StatusOr<bool> { return absl::CancelledError("stopped"); }),
      IsError(absl::StatusCode::kCancelled, "stopped"));
}

TEST_F(PushCollectorTest, FramesThatNeverCameAreToldOrFailTheJob) {
  for (const MissingFrames on_missing :
       {MissingFrames::kReconstructAnyway, MissingFrames::kFailJob}) {
    Open(on_missing);
    Push(0, 20);
    Push(22, kAngles);
    ASSERT_THAT(port_->EndOfFrames(connection_), IsOk());
    clock_.Advance(60);  // no other client has come
    PushCollector input(run_, {}, *port_, spec_, planned_);
    const auto object = input.Collect(Nothing);
    if (on_missing == MissingFrames::kFailJob) {
      EXPECT_EQ(InfoOf(object.status()).reason, Reason::kFramesMissing);
    } else {
      ASSERT_THAT(object, IsOk());
      EXPECT_EQ(object->missing_frames, (std::vector<std::pair<int64_t, int64_t>>{{20, 2}}));
      EXPECT_THAT(run_.warnings, Contains(HasSubstr("2 of 60 frames never came")));
    }
  }
}

TEST_F(PushCollectorTest, TooManyFieldsEndTheJobBeforeItsLastFrame) {
  spec_.preparation.ignore_fields = false;
  storage::ProjectionInfo info = DiscInput::Info();
  info.flats = info.darks = 1;
  ASSERT_OK_AND_ASSIGN(const TomographyLayout planned, TomographyLayout::Make(spec_, info, 0));
  Push(0, 10);
  Push(10, 11, storage::FrameKind::kFlat);
  Push(11, 12, storage::FrameKind::kFlat);
  int shown = 0;
  PushCollector input(run_, {}, *port_, spec_, planned);
  const auto object = input.Collect([&](bool) -> absl::StatusOr<bool> {
    ++shown;
    Push(12, 13, storage::FrameKind::kDark);
    return false;
  });
  EXPECT_THAT(object, IsError(absl::StatusCode::kInvalidArgument,
                              "brought 2 flat and 1 dark fields; allowed are 2 together"));
  EXPECT_EQ(shown, 1) << "47 frames were still to come";
}

// As those of a file: a picture of them would be of nothing.
TEST_F(PushCollectorTest, AnglesThatLookLikeDegreesFailTheJob) {
  turn_ = 180;
  Push(0, kAngles);
  PushCollector input(run_, {}, *port_, spec_, planned_);
  const absl::Status status = input.Collect(Nothing).status();
  EXPECT_THAT(status, IsError(absl::StatusCode::kInvalidArgument,
                              "tomography.push: makes the angles 0 to 177 radians, 28.2 turns; "
                              "these look like degrees"));
  EXPECT_EQ(InfoOf(status).field, "tomography.push");
}

TEST_F(PushCollectorTest, AStopEndsTheWait) {
  std::stop_source stop;
  PushCollector input(run_, stop.get_token(), *port_, spec_, planned_);
  std::thread stopper([&] { stop.request_stop(); });
  EXPECT_THAT(input.Collect(Nothing), IsError(absl::StatusCode::kCancelled, ""));
  stopper.join();
}

}  // namespace
}  // namespace octavo::engine

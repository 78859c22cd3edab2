// What a run tells of its corrections when one of them fails.

#include "server/tomography/corrections.h"

#include <algorithm>
#include <memory>

#include "gmock/gmock.h"

#include "server/tomography/half_turn.h"
#include "server/tomography/run.h"
#include "tests/server/tomography/fake_run.h"

namespace octavo::engine {
namespace {

using model::HalfTurn;
using octavo::testing::IsError;
using testing::DiscSpec;
using ::testing::ElementsAre;
using testing::FakeRun;
using ::testing::HasSubstr;
using testing::kPi;

/// A full turn whose flat fields are all alike, and whose projections cannot be read.
class BrokenInput final : public storage::ProjectionInput {
 public:
  BrokenInput() : ProjectionInput(Info()) {}
  static storage::ProjectionInfo Info() {
    storage::ProjectionInfo info;
    info.format = "memory";
    info.dtype = DType::kF32;
    info.projections = 80;
    info.rows = 20;
    info.columns = 32;
    info.flats = 4;
    for (int64_t a = 0; a < info.projections; ++a)
      info.angles_rad.push_back(2 * kPi * static_cast<double>(a) / 80);
    return info;
  }

 protected:
  absl::Status ReadInside(const storage::ProjectionBox& box, void* out) override {
    if (box.kind == storage::FrameKind::kProjection) return absl::DataLossError("a bad sector");
    std::fill_n(static_cast<float*>(out), box.frames * box.rows * box.columns, 1000.0F);
    return absl::OkStatus();
  }
};

TEST(CorrectionsTest, AnErrorOfTheRowShiftsLosesNoWarningOfTheFlats) {
  for (const HalfTurn half_turn : {HalfTurn::kAll, HalfTurn::kFirst, HalfTurn::kBest}) {
    SCOPED_TRACE(static_cast<int>(half_turn));
    TomographySpec spec = DiscSpec();
    spec.preparation.config.minus_log = true;
    spec.preparation.ignore_fields = false;
    spec.preparation.dynamic_flats = true;
    spec.preparation.finds_drift = true;
    spec.preparation.config.shifts.most = 2;
    spec.half_turn = half_turn;
    const storage::ProjectionInfo info = BrokenInput::Info();
    ASSERT_OK_AND_ASSIGN(const auto half_turns, tomography::HalfTurnsOf(spec, info.angles_rad));
    TomographySpec planned = spec;
    if (!half_turns.empty()) planned.projections = half_turns[0];
    ASSERT_OK_AND_ASSIGN(const TomographyLayout layout, TomographyLayout::Make(planned, info, 0));
    TomographyTask task;
    task.spec = &spec;
    task.layout = &layout;
    task.input = std::make_shared<BrokenInput>();
    task.half_turns = half_turns;
    FakeRun run;
    EXPECT_THAT(RunTomography(run, {}, task), IsError(absl::StatusCode::kDataLoss, "a bad sector"));
    EXPECT_THAT(run.warnings,
                ElementsAre(HasSubstr("The 4 flat fields do not differ by more than their noise")));
  }
}

}  // namespace
}  // namespace octavo::engine

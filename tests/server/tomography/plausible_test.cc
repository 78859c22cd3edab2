#include "server/tomography/plausible.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gpu/base/status.h"
#include "tests/support/rooms.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using ::octavo::testing::IsError;
using ::octavo::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kPi = 3.14159265358979323846;

/// A file of `count` projections at the angles first, first + step, ...
struct Case {
  TomographySpec spec;
  storage::ProjectionInfo info;

  Case(int64_t count, double first, double step) {
    spec.input = ProjectionFileSpec{.path = "scan.h5", .options = {}};
    spec.preparation.config.minus_log = true;
    info.dtype = DType::kU16;
    info.projections = count;
    info.rows = 8;
    info.columns = 256;
    info.flats = 4;
    info.darks = 4;
    for (int64_t i = 0; i < count; ++i)
      info.angles_rad.push_back(first + static_cast<double>(i) * step);
  }
  Case& Shuffled(std::mt19937& random) {
    std::shuffle(info.angles_rad.begin(), info.angles_rad.end(), random);
    return *this;
  }
  Case& Given() {
    spec.angles_rad = info.angles_rad;
    return *this;
  }
};

class TomographyPlausibleTest : public ::testing::Test {
 protected:
  std::mt19937 random_{::octavo::testing::FreshSeed()};
  int64_t Count() { return std::uniform_int_distribution<int64_t>(20, 2000)(random_); }
};

TEST_F(TomographyPlausibleTest, NothingRestsOnAssumedAngles) {
  for (const double span : {0.0, 0.5 * kPi, kPi, 180.0}) {  // one angle, a gap, fine, degrees
    for (const int64_t bin : {1, 4}) {
      for (const bool stitched : {false, true}) {
        Case c(24, 0, span / 24);
        c.spec.input = PushedProjectionsSpec{.rows = 8, .columns = 256, .frames = 24};
        c.spec.preparation.config.bin_angles = bin;
        c.spec.preparation.config.stitching.enabled = stitched;
        const Implausible known = FindImplausible(c.spec, c.info),
                          assumed = FindImplausible(c.spec, c.info, Angles::kAssumed);
        EXPECT_THAT(assumed.refusals, IsEmpty());
        EXPECT_THAT(assumed.warnings, IsEmpty());
        EXPECT_EQ(known.refusals.empty() && known.warnings.empty(),
                  span == kPi && bin == 1 && !stitched);
      }
    }
  }
  // All else is looked at.
  Case few(3, 0, 1);
  few.spec.center.pixels = {400};
  const Implausible found = FindImplausible(few.spec, few.info, Angles::kAssumed);
  EXPECT_EQ(found.refusals.size(), 1u);
  EXPECT_THAT(found.warnings, ElementsAre(HasSubstr("only 3 projections")));
}

TEST_F(TomographyPlausibleTest, UsualScansAreNotDoubted) {
  for (int i = 0; i < 30; ++i) {
    const int64_t n = Count();
    const double first = std::uniform_real_distribution<double>(-7, 7)(random_),
                 golden = kPi * (3 - std::sqrt(5.0));
    for (const double step : {kPi / static_cast<double>(n), kPi / static_cast<double>(n - 1),
                              2 * kPi / static_cast<double>(n), -kPi / static_cast<double>(n),
                              4 * kPi / static_cast<double>(n)}) {
      Case c(n, first, step);
      if (i % 2 == 0) c.Shuffled(random_);
      if (i % 3 == 0) c.Given();
      const Implausible doubts = FindImplausible(c.spec, c.info);
      EXPECT_THAT(doubts.refusal(), IsOk()) << n << " angles from " << first << " by " << step;
      EXPECT_THAT(doubts.warnings, IsEmpty()) << n << " angles from " << first << " by " << step;
    }
    // Golden angles that are not reduced to one turn: many turns, which might be intended. Some
    // cover 180 or 360.
    for (const int64_t m : {75, 76, 150, 151})
      EXPECT_THAT(
          FindImplausible(Case(m, first, golden).spec, Case(m, first, golden).info).refusal(),
          IsOk())
          << m;
    EXPECT_THAT(FindImplausible(Case(n, first, golden).spec, Case(n, first, golden).info).refusal(),
                IsOk())
        << n;
  }
}

// Two turns of 20 projections have ten directions, or five. They are evenly spaced in both cases.
TEST_F(TomographyPlausibleTest, TurnsThatComeBackToTheSameDirectionsLeaveNoGap) {
  for (int64_t n = 8; n < 80; ++n) {
    for (int turns = 1; turns <= 2; ++turns) {
      Case c(n, std::uniform_real_distribution<double>(-7, 7)(random_),
             turns * 2 * kPi / static_cast<double>(n));
      EXPECT_THAT(FindImplausible(c.Shuffled(random_).spec, c.info).warnings, IsEmpty())
          << n << " angles in " << turns << " turns";
    }
  }
}

TEST_F(TomographyPlausibleTest, GoldenAnglesThatSomebodyDeclaredAreNotDoubted) {
  const double ratio = 0.5 * (std::sqrt(5.0) - 1);
  for (const double step : {kPi * (3 - std::sqrt(5.0)), kPi * ratio, 2 * kPi * ratio}) {
    const Case c(180, 0.3, step);
    EXPECT_THAT(FindImplausible(c.spec, c.info).warnings, IsEmpty()) << step;
  }
}

TEST_F(TomographyPlausibleTest, FewProjectionsAndPixelsOfAnotherUnitAreTold) {
  for (const int64_t n : {2, 4}) {
    const Case c(n, 0, kPi / static_cast<double>(n));
    EXPECT_THAT(FindImplausible(c.spec, c.info).warnings,
                ElementsAre(HasSubstr("too few for a picture")))
        << n;
  }
  Case pair(2, 0, kPi);  // enough to find the axis with
  pair.spec.output = model::TomographyOutput::kSinograms;
  pair.spec.center.find = true;
  EXPECT_THAT(FindImplausible(pair.spec, pair.info).warnings, IsEmpty());
  Case c(180, 0, kPi / 180);
  for (const double um : {2.5e6, 2.5e-6}) {
    c.spec.pixel_size_um = um;
    EXPECT_THAT(FindImplausible(c.spec, c.info).warnings,
                ElementsAre(HasSubstr("hardly the size of a pixel")))
        << um;
  }
  c.spec.pixel_size_um = 2.5;
  c.info.doubts = {"x_pixel_size is 2.5, without a unit"};
  EXPECT_THAT(FindImplausible(c.spec, c.info).warnings, ElementsAre(HasSubstr("without a unit")));
}

TEST_F(TomographyPlausibleTest, DegreesGivenAsRadiansAreRefused) {
  for (int i = 0; i < 30; ++i) {
    const int64_t n = Count();
    for (const double turn : {180.0, 360.0}) {
      for (const double step : {turn / static_cast<double>(n), turn / static_cast<double>(n - 1)}) {
        Case c(n, i % 2 == 0 ? 0 : -turn / 2, step);
        c.Shuffled(random_);
        absl::Status refusal = FindImplausible(c.spec, c.info).refusal();
        EXPECT_THAT(refusal, IsError(absl::StatusCode::kInvalidArgument, "look like degrees"))
            << n << " by " << step;
        EXPECT_EQ(InfoOf(refusal).field, "tomography.file.angle_unit");
        refusal = FindImplausible(c.Given().spec, c.info).refusal();
        EXPECT_EQ(InfoOf(refusal).field, "tomography.angles_rad");
      }
    }
  }
  const Case other(500, 0, 0.5);  // half the count: the step belongs to another scan
  const Implausible doubts = FindImplausible(other.spec, other.info);
  EXPECT_THAT(doubts.refusal(), IsOk());
  EXPECT_THAT(doubts.warnings, ElementsAre(HasSubstr("39.7 turns. If they are degrees")));
}

TEST_F(TomographyPlausibleTest, RadiansTakenAsDegreesAreRefusedWhereNobodySaidTheUnit) {
  for (int i = 0; i < 30; ++i) {
    const int64_t n = Count();
    for (const double turn : {kPi, 2 * kPi}) {
      Case c(n, 0, turn / static_cast<double>(n) * kPi / 180);
      c.Shuffled(random_);
      c.info.angle_unit_assumed = true;
      const absl::Status refusal = FindImplausible(c.spec, c.info).refusal();
      EXPECT_THAT(refusal, IsError(absl::StatusCode::kInvalidArgument,
                                   "look like radians. Allowed are RADIANS and DEGREES"))
          << n;
      EXPECT_EQ(InfoOf(refusal).field, "tomography.file.angle_unit");
      c.info.angle_unit_assumed = false;
      const Implausible said = FindImplausible(c.spec, c.info);
      EXPECT_THAT(said.refusal(), IsOk()) << "somebody said degrees";
      EXPECT_THAT(said.warnings, ElementsAre(HasSubstr("these look like radians")));
      // Opposite projections, which a search compares, are half a turn apart.
      c.spec.center.find = true;
      const Implausible searched = FindImplausible(c.spec, c.info);
      EXPECT_THAT(searched.refusal(),
                  IsError(absl::StatusCode::kInvalidArgument, "These look like radians"));
      EXPECT_EQ(InfoOf(searched.refusal()).field, "tomography.file.angle_unit");
      EXPECT_THAT(searched.warnings, IsEmpty());
    }
  }
}

TEST_F(TomographyPlausibleTest, AWedgeThatIsMissingIsTold) {
  for (const double covered : {90.0, 120.0, 150.0}) {
    const Case c(300, 0.3, covered / 300 * kPi / 180);
    EXPECT_THAT(FindImplausible(c.spec, c.info).warnings, ElementsAre(HasSubstr("leave a gap of")))
        << covered;
  }
  const Case few(6, 0, kPi / 6);
  EXPECT_THAT(FindImplausible(few.spec, few.info).warnings, IsEmpty()) << "few, but even";
  const Case one(1, 0.2, 0);
  EXPECT_THAT(FindImplausible(one.spec, one.info).refusal(), IsOk());
  const Case same(5, 0.2, 0);
  EXPECT_THAT(FindImplausible(same.spec, same.info).refusal(),
              IsError(absl::StatusCode::kInvalidArgument, "5 angles, all 0.2 rad"));
}

TEST_F(TomographyPlausibleTest, AWedgeThatTheChosenProjectionsLeaveIsTold) {
  for (int i = 0; i < 30; ++i) {
    const int64_t n = Count(), begin = std::uniform_int_distribution<int64_t>(0, n / 4)(random_);
    Case c(n, std::uniform_real_distribution<double>(-7, 7)(random_), kPi / static_cast<double>(n));
    c.spec.projections = {.begin = begin, .end = begin + n / 2};
    EXPECT_THAT(FindImplausible(c.spec, c.info).warnings, ElementsAre(HasSubstr("leave a gap of")))
        << n << " from " << begin;
    c.spec.projections = {.begin = 0, .end = 0, .step = 2};
    EXPECT_THAT(FindImplausible(c.spec, c.info).warnings, IsEmpty())
        << n << ": every second one leaves none";
    // All angles together decide the unit.
    for (double& angle : c.info.angles_rad) angle *= 180 / kPi;
    c.spec.projections = {.begin = begin, .end = begin + n / 2};
    EXPECT_THAT(FindImplausible(c.spec, c.info).refusal(),
                IsError(absl::StatusCode::kInvalidArgument, "look like degrees"))
        << n;
  }
  Case c(300, 0, kPi / 300);
  c.spec.projections = {.begin = 17, .end = 18};
  EXPECT_THAT(FindImplausible(c.spec, c.info).refusal(), IsOk()) << "one projection has no gap";
}

TEST_F(TomographyPlausibleTest, ProjectionsFarApartThatAreMadeOneAreTold) {
  for (const int64_t bin : {2, 4}) {
    Case c(400, std::uniform_real_distribution<double>(-7, 7)(random_), 2 * kPi / 400);
    c.spec.preparation.config.bin_angles = bin;
    EXPECT_THAT(FindImplausible(c.spec, c.info).warnings, IsEmpty()) << bin;
    for (double& angle : c.info.angles_rad) angle -= 2 * kPi * std::floor(angle / (2 * kPi));
    EXPECT_THAT(FindImplausible(c.spec, c.info).warnings, IsEmpty())
        << bin << ", where a turn begins anew";
    EXPECT_THAT(FindImplausible(c.Shuffled(random_).spec, c.info).warnings,
                ElementsAre(HasSubstr("degrees apart")))
        << bin;
  }
}

TEST_F(TomographyPlausibleTest, OnlyScansOver360DegreesAreJoined) {
  const auto refusal = [](Case c, int64_t half_turn = 0, int64_t bin = 1) {
    c.spec.preparation.config.stitching = {.enabled = true, .half_turn = half_turn};
    c.spec.preparation.config.bin_angles = bin;
    return FindImplausible(c.spec, c.info).refusal();
  };
  for (int i = 0; i < 30; ++i) {
    const int64_t n = Count();
    const double first = std::uniform_real_distribution<double>(-7, 7)(random_);
    for (const auto steps : {n, n - 1}) {  // with or without the last one
      const double step = (i % 2 == 0 ? 2 : -2) * kPi / static_cast<double>(steps);
      EXPECT_THAT(refusal(Case(n, first, step)), IsOk()) << n;
      EXPECT_THAT(refusal(Case(n, first, step), 0, 4), IsOk()) << n;
      const absl::Status half = refusal(Case(n, first, step / 2));
      EXPECT_THAT(half,
                  IsError(absl::StatusCode::kInvalidArgument, "needs a scan over 360 degrees"))
          << n;
      EXPECT_EQ(InfoOf(half).field, "tomography.preparation.stitching");
      EXPECT_THAT(refusal(Case(n, first, step).Shuffled(random_)),
                  IsError(absl::StatusCode::kInvalidArgument, "in the order of its angles"))
          << n;
    }
    // More than a turn: half_turn gives the distance to the opposite projections.
    Case more(2 * n, first, 2.2 * kPi / static_cast<double>(2 * n));
    EXPECT_EQ(InfoOf(refusal(more)).field, "tomography.preparation.stitching") << n;
    EXPECT_THAT(refusal(more, std::lround(static_cast<double>(2 * n) / 2.2)), IsOk()) << n;
    more.spec.projections = {
        .begin = 0, .end = std::lround(static_cast<double>(2 * n) / 1.1), .step = 0};
    EXPECT_THAT(refusal(more), IsOk()) << n;
  }
}

TEST_F(TomographyPlausibleTest, AnAxisBesideTheDetectorIsRefused) {
  for (const double axis : {-0.5, 0.0, 17.3, 255.0, 255.5}) {
    Case c(180, 0, kPi / 180);
    c.spec.center.pixels = {axis};
    c.spec.try_centers = TryCentersSpec{.begin = axis, .end = axis, .step = 1, .row = {}};
    EXPECT_THAT(FindImplausible(c.spec, c.info).refusal(), IsOk()) << axis;
  }
  for (const double axis : {-0.6, -500.0, 255.6, 256.0, 500.0}) {
    Case c(180, 0, kPi / 180);
    c.spec.center.pixels = {100, axis, 100};
    absl::Status refusal = FindImplausible(c.spec, c.info).refusal();
    EXPECT_THAT(refusal, IsError(absl::StatusCode::kInvalidArgument,
                                 "allowed -0.5 to 255.5, the columns of the detector"))
        << axis;
    EXPECT_EQ(InfoOf(refusal).field, "tomography.center.pixels");
    c.spec.center.pixels.clear();
    c.spec.try_centers = TryCentersSpec{
        .begin = std::min(100.0, axis), .end = std::max(100.0, axis), .step = 1, .row = {}};
    refusal = FindImplausible(c.spec, c.info).refusal();
    EXPECT_EQ(InfoOf(refusal).field,
              axis < 100 ? "tomography.try_centers.begin" : "tomography.try_centers.end");
  }
}

TEST_F(TomographyPlausibleTest, AnAxisOutsideOfTheChosenColumnsIsRefused) {
  for (const double axis : {99.5, 100.0, 123.4, 199.5}) {
    Case c(180, 0, kPi / 180);
    c.spec.columns = {.begin = 100, .end = 200};
    c.spec.center.pixels = {axis};
    EXPECT_THAT(FindImplausible(c.spec, c.info).refusal(), IsOk()) << axis;
  }
  for (const double axis : {0.0, 88.0, 99.4, 199.6, 250.0}) {
    Case c(180, 0, kPi / 180);
    c.spec.columns = {.begin = 100, .end = 200};
    c.spec.center.pixels = {axis};
    const absl::Status refusal = FindImplausible(c.spec, c.info).refusal();
    EXPECT_THAT(refusal, IsError(absl::StatusCode::kInvalidArgument,
                                 "allowed 99.5 to 199.5, the columns that are chosen (100 to 199)"))
        << axis;
    EXPECT_THAT(std::string(refusal.message()), HasSubstr("on the whole detector, 0 to 255"));
    EXPECT_EQ(InfoOf(refusal).field, "tomography.center.pixels");
  }
  Case c(180, 0, kPi / 180);
  c.spec.columns = {.begin = 100, .end = 0};  // to the end
  c.spec.center.pixels = {255.5};
  EXPECT_THAT(FindImplausible(c.spec, c.info).refusal(), IsOk());
}

/// Frames that hold one value for each kind.
class EvenFrames final : public storage::ProjectionInput {
 public:
  EvenFrames(storage::ProjectionInfo info, double flat, double dark)
      : ProjectionInput(std::move(info)), flat_(flat), dark_(dark) {}

 private:
  absl::Status ReadInside(const storage::ProjectionBox& box, void* out) override {
    if (broken) return absl::DataLossError("broken");
    const double value = box.kind == storage::FrameKind::kFlat   ? flat_
                         : box.kind == storage::FrameKind::kDark ? dark_
                                                                 : 0;
    const auto fill = [&](auto type) {
      std::fill_n(static_cast<decltype(type)*>(out), box.elements(),
                  static_cast<decltype(type)>(value));
    };
    switch (info_.dtype) {
      case DType::kU8: fill(uint8_t{}); break;
      case DType::kU16: fill(uint16_t{}); break;
      case DType::kI16: fill(int16_t{}); break;
      default: fill(float{}); break;
    }
    return absl::OkStatus();
  }

  const double flat_, dark_;

 public:
  bool broken = false;
};

TEST_F(TomographyPlausibleTest, FlatFieldsDarkerThanDarkOnesAreRefused) {
  for (const DType dtype : {DType::kU8, DType::kU16, DType::kI16, DType::kF32}) {
    for (const int64_t rows : {1, 7, 300}) {
      Case c(180, 0, kPi / 180);
      c.info.dtype = dtype;
      c.info.rows = rows;
      c.info.flats = std::uniform_int_distribution<int64_t>(1, 30)(random_);
      c.info.darks = std::uniform_int_distribution<int64_t>(1, 30)(random_);
      EvenFrames good(c.info, 90, 10), exchanged(c.info, 10, 90), even(c.info, 10, 10);
      EXPECT_FALSE(FindExchangedFields(c.spec, good).has_value());
      EXPECT_FALSE(FindExchangedFields(c.spec, even).has_value())
          << "no light at all: the job tells";
      const auto refusal = FindExchangedFields(c.spec, exchanged);
      ASSERT_TRUE(refusal.has_value());
      EXPECT_THAT(*refusal, IsError(absl::StatusCode::kInvalidArgument,
                                    "flat fields of 10 in the mean, and dark fields of 90"));
      EXPECT_EQ(InfoOf(*refusal).field, "tomography.file.flats");
      exchanged.broken = true;
      EXPECT_FALSE(FindExchangedFields(c.spec, exchanged).has_value())
          << "the job will say that it cannot be read";
      exchanged.broken = false;
      c.spec.preparation.ignore_fields = true;
      EXPECT_FALSE(FindExchangedFields(c.spec, exchanged).has_value()) << "they are not used";
    }
  }
}

TEST_F(TomographyPlausibleTest, FlatFieldsWithoutDarkOnesAreTold) {
  Case c(180, 0, kPi / 180);
  c.info.darks = 0;
  EXPECT_THAT(FindImplausible(c.spec, c.info).warnings,
              ElementsAre(HasSubstr("flat fields but no dark ones")));
  c.spec.preparation.ignore_fields = true;
  EXPECT_THAT(FindImplausible(c.spec, c.info).warnings, IsEmpty());
}

TEST_F(TomographyPlausibleTest, CountsNeedFlatFields) {
  Case c(180, 0, kPi / 180);
  c.info.flats = 0;
  for (const DType dtype : {DType::kU8, DType::kU16, DType::kI16}) {
    c.info.dtype = dtype;
    const absl::Status refusal = FindImplausible(c.spec, c.info).refusal();
    EXPECT_THAT(refusal, IsError(absl::StatusCode::kInvalidArgument, "without flat fields"));
    EXPECT_EQ(InfoOf(refusal).field, "tomography.preparation.ignore_fields");
  }
  c.spec.preparation.ignore_fields = true;
  EXPECT_THAT(FindImplausible(c.spec, c.info).refusal(), IsOk()) << "it is meant";
  c.spec.preparation.ignore_fields = false;
  c.spec.preparation.config.minus_log = false;
  EXPECT_THAT(FindImplausible(c.spec, c.info).refusal(), IsOk()) << "no transmissions are needed";
  c.spec.preparation.config.minus_log = true;
  c.info.dtype = DType::kF32;
  const Implausible doubts = FindImplausible(c.spec, c.info);
  EXPECT_THAT(doubts.refusal(), IsOk());
  EXPECT_THAT(doubts.warnings,
              ElementsAre(HasSubstr("no flat fields: its values are taken as transmissions")));
}

}  // namespace
}  // namespace octavo::engine

#include <cmath>
#include <numbers>
#include <set>

#include "server/pattern/flyback.h"
#include "server/pattern/geometry.h"
#include "server/pattern/plan.h"
#include "server/scan/ascan_coverage.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsError;
using testing::IsOk;

Pattern Make(PatternKind kind, int64_t ascans, int64_t bscans) {
  Pattern p;
  p.kind = kind;
  p.ascans_per_bscan = ascans;
  p.bscans_per_volume = bscans;
  p.volumes = 1;
  return p;
}

Pattern Limited(Pattern p, double velocity = 2000, double acceleration = 4e6) {
  p.has_limits = true;
  for (auto& axis : p.limits)
    axis = {.position_min = -10,
            .position_max = 10,
            .velocity = velocity,
            .acceleration = acceleration};
  return p;
}

// Expects that every A-scan of the volume has exactly one record.
void ExpectWhole(const PatternPlan& plan, int64_t volume) {
  std::set<int32_t> seen;
  for (const int32_t ascan : plan.Of(volume).placement) {
    if (ascan < 0) continue;
    EXPECT_LT(ascan, plan.rows * plan.columns);
    EXPECT_TRUE(seen.insert(ascan).second) << ascan;
  }
  EXPECT_EQ(std::ssize(seen), plan.rows * plan.columns);
  const auto& placement = plan.Of(volume).placement;
  EXPECT_GE(placement[static_cast<size_t>(plan.Of(volume).active_records - 1)], 0);
  for (size_t r = static_cast<size_t>(plan.Of(volume).active_records); r < placement.size(); ++r)
    EXPECT_EQ(placement[r], -1);
}

std::vector<int64_t> Rows(const PatternPlan& plan, int64_t volume) {
  std::vector<int64_t> rows;
  for (const auto& s : plan.Of(volume).segments) rows.push_back(s.row);
  return rows;
}
std::vector<int64_t> Bscans(const PatternPlan& plan, int64_t volume) {
  std::vector<int64_t> bscans;
  for (const auto& s : plan.Of(volume).segments) bscans.push_back(s.bscan);
  return bscans;
}
std::vector<bool> Reversed(const PatternPlan& plan, int64_t volume) {
  std::vector<bool> reversed;
  for (const auto& s : plan.Of(volume).segments) reversed.push_back(s.reversed);
  return reversed;
}

TEST(PatternPlan, PlainRasterNeedsNone) {
  Pattern p = Make(PatternKind::kRaster, 5, 4);
  ASSERT_THAT(ResolvePattern(p, 0), IsOk());
  EXPECT_EQ(p.plan, nullptr);
  EXPECT_DOUBLE_EQ(p.extent_x_mm, 0.005);
}

TEST(PatternPlan, TheTableAndTheRasterRuleAgree) {
  for (const bool bidirectional : {false, true}) {
    Pattern p = Make(PatternKind::kRaster, 5, 4);
    p.bidirectional = bidirectional;
    p.flyback_records = 3;
    p.volume_flyback_records = 7;
    ASSERT_THAT(ResolvePattern(p, 0), IsOk());
    const auto plan = MakePlan(p, 0);
    ASSERT_THAT(plan.status(), IsOk());
    const math::RasterPlacement raster{.ascans_per_bscan = 5,
                                       .bscans_per_volume = 4,
                                       .flyback_records = 3,
                                       .bidirectional = bidirectional};
    ASSERT_EQ(plan->volume_records, 4 * 8 + 7);
    EXPECT_EQ(plan->kind[0].pitch, 8);
    EXPECT_EQ(plan->kind[0].active_records, AscanCoverage(raster).active_records());
    for (int64_t r = 0; r < plan->volume_records; ++r) {
      EXPECT_EQ(plan->kind[0].placement[static_cast<size_t>(r)], math::RasterAscan(raster, r)) << r;
    }
  }
}

TEST(PatternPlan, RepeatsInGroupsArePackedOrInOrder) {
  Pattern p = Make(PatternKind::kRepeatedRaster, 3, 5);
  p.repeat_count = 3;
  p.repeat_period = 2;  // the last group is one B-scan
  ASSERT_THAT(ResolvePattern(p, 0), IsOk());
  ASSERT_NE(p.plan, nullptr);
  EXPECT_EQ(p.rows(), 15);
  EXPECT_THAT(Bscans(*p.plan, 0), ElementsAre(0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 4, 4, 4));
  EXPECT_THAT(Rows(*p.plan, 0), ElementsAre(0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11, 12, 13, 14));
  ExpectWhole(*p.plan, 0);
  p.repeat_strategy = RepeatStrategy::kOrder;
  ASSERT_THAT(ResolvePattern(p, 0), IsOk());
  EXPECT_THAT(Rows(*p.plan, 0), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14));
  ExpectWhole(*p.plan, 0);
}

TEST(PatternPlan, AnOddPeriodAlternatesTheDirectionOfABscan) {
  Pattern p = Make(PatternKind::kRepeatedRaster, 4, 3);
  p.repeat_count = 2;
  p.repeat_period = 3;
  p.bidirectional = true;
  ASSERT_THAT(ResolvePattern(p, 0), IsOk());
  EXPECT_THAT(Reversed(*p.plan, 0), ElementsAre(false, true, false, true, false, true));
  // B-scan 0, repeat 1 is the fourth pass: backwards into row 1.
  EXPECT_EQ(p.plan->kind[0].placement[12], 1 * 4 + 3);
  EXPECT_EQ(p.plan->kind[0].placement[15], 1 * 4 + 0);
  p.repeat_period = 2;
  ASSERT_THAT(ResolvePattern(p, 0), IsOk());
  for (const auto& s : p.plan->kind[0].segments) {
    if (s.bscan < 2) EXPECT_EQ(s.reversed, s.bscan == 1);
  }
}

TEST(PatternPlan, BidirectionalVolumesGoBackTheWayTheyCame) {
  for (const int64_t bscans : {3, 4}) {
    Pattern p = Make(PatternKind::kRaster, 2, bscans);
    p.bidirectional = true;
    p.bidirectional_volumes = true;
    ASSERT_THAT(ResolvePattern(p, 0), IsOk());
    ASSERT_EQ(p.plan->kinds, 2);
    ExpectWhole(*p.plan, 0);
    ExpectWhole(*p.plan, 1);
    EXPECT_EQ(Bscans(*p.plan, 1).front(), bscans - 1);
    EXPECT_EQ(Bscans(*p.plan, 1).back(), 0);
    EXPECT_EQ(Rows(*p.plan, 1), Bscans(*p.plan, 1));  // each in its own place
    // The direction also alternates between volumes: the odd volume begins where the even one
    // ended.
    EXPECT_NE(Reversed(*p.plan, 0).back(), Reversed(*p.plan, 1).front());
    EXPECT_EQ(Reversed(*p.plan, 2), Reversed(*p.plan, 0));
  }
}

TEST(PatternGeometry, RadialSegmentsCoverTheCircleOnce) {
  Pattern p = Make(PatternKind::kRadial, 10, 4);
  p.radius_begin_mm = -2;
  p.radius_end_mm = 2;
  ASSERT_THAT(ResolvePattern(p, 0), IsOk());
  EXPECT_DOUBLE_EQ(p.angle_end_deg, 180);
  EXPECT_DOUBLE_EQ(p.extent_x_mm, 4);
  const Point first = PositionMm(p, 0, 0), last = PositionMm(p, 0, 9), up = PositionMm(p, 2, 9);
  EXPECT_NEAR(first.x, -1.8, 1e-12);
  EXPECT_NEAR(last.x, 1.8, 1e-12);
  EXPECT_NEAR(up.x, 0, 1e-12);
  EXPECT_NEAR(up.y, 1.8, 1e-12);
  Pattern rays = Make(PatternKind::kRadial, 10, 4);
  rays.radius_begin_mm = 0.5;
  rays.radius_end_mm = 2;
  ASSERT_THAT(ResolvePattern(rays, 0), IsOk());
  EXPECT_DOUBLE_EQ(rays.angle_end_deg, 360);
}

TEST(PatternGeometry, RotationThenOffset) {
  Pattern p = Make(PatternKind::kRaster, 1, 2);
  p.extent_x_mm = 1;
  p.extent_y_mm = 4;
  p.rotation_deg = 90;
  p.offset_x_mm = 10;
  ASSERT_THAT(ResolvePattern(p, 0), IsOk());
  const Point at = PositionMm(p, 1, 0);  // this was (0, 1)
  EXPECT_NEAR(at.x, 9, 1e-12);
  EXPECT_NEAR(at.y, 0, 1e-12);
}

TEST(PatternGeometry, SpiralStepsAreEqualInAngleOrInLength) {
  Pattern p = Make(PatternKind::kSpiral, 200, 12);
  p.radius_begin_mm = 0.2;
  p.radius_end_mm = 3;
  ASSERT_THAT(ResolvePattern(p, 0), IsOk());
  const Point turn0 = PositionMm(p, 3, 17),
              turn1 = PositionMm(p, 4, 17);  // one turn apart: same direction
  EXPECT_NEAR(std::atan2(turn0.y, turn0.x), std::atan2(turn1.y, turn1.x), 1e-9);
  EXPECT_NEAR(std::hypot(turn1.x, turn1.y) - std::hypot(turn0.x, turn0.y), 2.8 / 12, 1e-9);
  p.spiral_sampling = SpiralSampling::kLinear;
  ASSERT_THAT(ResolvePattern(p, 0), IsOk());
  double least = 1e9, most = 0;
  for (int64_t i = 1; i < 2400; ++i) {
    const Point a = PositionMm(p, 0, i - 1), b = PositionMm(p, 0, i);
    least = std::min(least, std::hypot(b.x - a.x, b.y - a.y));
    most = std::max(most, std::hypot(b.x - a.x, b.y - a.y));
  }
  EXPECT_LT(most / least,
            1.01);  // chords instead of arcs: slightly shorter where the turn is tight
  for (const double t : {0.0, 0.1, 0.5, 0.99}) {
    const double angle = SpiralAngle(0.2, 3, 12, SpiralSampling::kLinear, t);
    EXPECT_NEAR(SpiralFraction(0.2, 3, 12, SpiralSampling::kLinear, angle), t, 1e-12);
  }
}

TEST(PatternGeometry, LissajousClosesAndStaysInside) {
  Pattern p = Make(PatternKind::kLissajous, 100, 10);
  p.extent_x_mm = 2;
  p.extent_y_mm = 1;
  p.cycles_x = 7;
  p.cycles_y = 5;
  p.phase_x_deg = 90;
  ASSERT_THAT(ResolvePattern(p, 0), IsOk());
  EXPECT_NEAR(PositionMm(p, 0, 0).x, 1, 1e-12);
  for (int64_t i = 0; i < 1000; ++i) {
    EXPECT_LE(std::abs(PositionMm(p, 0, i).x), 1 + 1e-12);
    EXPECT_LE(std::abs(PositionMm(p, 0, i).y), 0.5 + 1e-12);
  }
  EXPECT_EQ(p.plan->volume_records, 1000);
  // If the scan is slow enough for the limits, the figure needs no flyback.
  Pattern limited = Limited(p, 1000, 1e6);
  ASSERT_THAT(ResolvePattern(limited, 20e3), IsOk());
  EXPECT_EQ(limited.plan->volume_records, 1000);
}

TEST(PatternGeometry, WarpsInvert) {
  Pattern p = Make(PatternKind::kRaster, 8, 8);
  p.warp = WarpKind::kTelecentric;
  p.warp_lens_spacing_mm = 50;
  ASSERT_THAT(ResolvePattern(p, 0), IsOk());
  EXPECT_NEAR(ToScanner(p, {.x = 50, .y = 0}).x, 45.0 / 2,
              1e-12);  // the mirror turns 22.5 degrees to deflect light by 45
  p.warp = WarpKind::kAngular;
  p.warp_mm_per_deg = 0.5;
  ASSERT_THAT(ResolvePattern(p, 0), IsOk());
  EXPECT_DOUBLE_EQ(ToScanner(p, {.x = 1, .y = 0}).x, 2);
  for (const WarpKind kind : {WarpKind::kNone, WarpKind::kAngular, WarpKind::kTelecentric}) {
    p.warp = kind;
    if (kind == WarpKind::kTelecentric) p.warp_lens_spacing_mm = 80, p.warp_rad_per_deg = 0.03;
    const Point back = FromScanner(p, ToScanner(p, {.x = 3.5, .y = -7.25}));
    EXPECT_NEAR(back.x, 3.5, 1e-12);
    EXPECT_NEAR(back.y, -7.25, 1e-12);
  }
}

TEST(Flyback, AProfileMeetsBothEndsWithinItsLimits) {
  const AxisLimits limits{
      .position_min = -10, .position_max = 10, .velocity = 50, .acceleration = 3e4};
  for (const AxisMove& move :
       {AxisMove{1, 20, -1, 20}, AxisMove{0, 0, 2, 0}, AxisMove{0, -50, 0, 50},
        AxisMove{1, 10, 1, 10}, AxisMove{-1, 40, 1, -30}}) {
    const AxisMove both[2] = {move, {}};
    const AxisLimits axes[2] = {limits, limits};
    const double dt = 1e-5;
    const int64_t least = LeastRecords(both, axes, dt, 0, 1 << 20);
    ASSERT_GE(least, 0);
    AxisProfile profile;
    // One step less is too short.
    if (least > 0) EXPECT_FALSE(PlanMove(move, limits, static_cast<double>(least) * dt, &profile));
    const double seconds = static_cast<double>(least + 1) * dt;
    ASSERT_TRUE(PlanMove(move, limits, seconds, &profile));
    EXPECT_NEAR(profile.At(0), move.from, 1e-9);
    EXPECT_NEAR(profile.At(seconds), move.to, 1e-9);
    const double h = seconds / 4096;
    for (int i = 1; i < 4096; ++i) {
      const double a = profile.At(h * (i - 1)), b = profile.At(h * i), c = profile.At(h * (i + 1));
      EXPECT_LE(std::abs(b - a) / h, limits.velocity * (1 + 1e-6));
      EXPECT_LE(std::abs(c - 2 * b + a) / (h * h), limits.acceleration * 1.01);
    }
    EXPECT_NEAR((profile.At(h) - profile.At(0)) / h, move.from_velocity, limits.acceleration * h);
    EXPECT_NEAR((profile.At(seconds) - profile.At(seconds - h)) / h, move.to_velocity,
                limits.acceleration * h);
  }
}

// Expects that the whole waveform, flyback and the turn to the next volume included, keeps the
// limits.
void ExpectWithin(const Pattern& p, double rate) {
  std::vector<double> x, y;
  for (int64_t volume = 0; volume < 3; ++volume) {
    const auto wave = MakeWaveform(p, *p.plan, volume, rate);
    ASSERT_THAT(wave.status(), IsOk());
    ASSERT_EQ(std::ssize(wave->x), p.plan->volume_records);
    x.insert(x.end(), wave->x.begin(), wave->x.end());
    y.insert(y.end(), wave->y.begin(), wave->y.end());
    // Active samples lie on the pattern.
    for (const auto& s : p.plan->Of(volume).segments) {
      const Point want = ToScanner(p, PositionMm(p, s.bscan, s.reversed ? s.ascans - 1 : 0));
      EXPECT_NEAR(wave->x[static_cast<size_t>(s.first_record)], want.x, 1e-12);
      EXPECT_NEAR(wave->y[static_cast<size_t>(s.first_record)], want.y, 1e-12);
    }
  }
  for (const auto& [values, limits] : {std::pair{&x, p.limits[0]}, std::pair{&y, p.limits[1]}}) {
    const auto& v = *values;
    for (size_t i = 2; i < v.size(); ++i) {
      ASSERT_LE(std::abs(v[i] - v[i - 1]) * rate, limits.velocity * (1 + 1e-6)) << i;
      ASSERT_LE(std::abs(v[i] - 2 * v[i - 1] + v[i - 2]) * rate * rate,
                limits.acceleration * (1 + 1e-6) + 1e-3)
          << i;
    }
  }
}

TEST(Waveform, MinimumTimeFlybackKeepsTheLimits) {
  const double rate = 100e3;
  for (const bool bidirectional : {false, true}) {
    for (const bool volumes : {false, true}) {
      for (const auto kind : {PatternKind::kRaster, PatternKind::kRepeatedRaster,
                              PatternKind::kRadial, PatternKind::kSpiral}) {
        Pattern p = Limited(Make(kind, 100, 7), 4000, 3e7);
        p.bidirectional = bidirectional;
        p.bidirectional_volumes = volumes;
        p.extent_x_mm = p.extent_y_mm = 1;
        p.radius_begin_mm = kind == PatternKind::kSpiral ? 0.1 : -0.5;
        p.radius_end_mm = 0.5;
        p.flyback = FlybackPolicy::kMinimumTime;
        ASSERT_THAT(ResolvePattern(p, rate), IsOk());
        ExpectWhole(*p.plan, 0);
        ExpectWhole(*p.plan, 1);
        ExpectWithin(p, rate);
      }
    }
  }
}

TEST(Waveform, FixedFlybackIsRefusedWhenTooShort) {
  Pattern p = Limited(Make(PatternKind::kRaster, 100, 7));
  p.extent_x_mm = p.extent_y_mm = 1;
  p.flyback_records = 3;
  const absl::Status status = ResolvePattern(p, 100e3);
  EXPECT_THAT(status,
              IsError(absl::StatusCode::kInvalidArgument, "pattern.raster.flyback_records"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("leaves 3 records after segment 0"));
  p.flyback_records = 400;
  p.volume_flyback_records = 400;
  ASSERT_THAT(ResolvePattern(p, 100e3), IsOk());
  EXPECT_EQ(p.plan->volume_records, 7 * 500 + 400);
  ExpectWithin(p, 100e3);
}

TEST(Waveform, LinearFlybackIsStraight) {
  Pattern p = Make(PatternKind::kRadial, 10, 3);
  p.flyback = FlybackPolicy::kFixedLinear;
  p.flyback_records = 9;
  ASSERT_THAT(ResolvePattern(p, 0), IsOk());
  const auto wave = MakeWaveform(p, *p.plan, 0, 0);
  ASSERT_THAT(wave.status(), IsOk());
  for (size_t r = 10; r < 19; ++r) {
    const double u = static_cast<double>(r - 9) / 10;
    EXPECT_NEAR(wave->x[r], wave->x[9] + u * (wave->x[19] - wave->x[9]), 1e-12);
    EXPECT_EQ(wave->placement[r], -1);
  }
}

TEST(Waveform, ABreachNamesAxisSegmentSampleAndValue) {
  Pattern fast = Limited(Make(PatternKind::kRaster, 10, 3), 1, 4e6);
  fast.extent_x_mm = 1;
  fast.flyback = FlybackPolicy::kMinimumTime;
  const absl::Status velocity = ResolvePattern(fast, 100e3);
  EXPECT_THAT(velocity, IsError(absl::StatusCode::kInvalidArgument, "pattern.scanner.x.velocity"));
  EXPECT_THAT(std::string(velocity.message()),
              HasSubstr("segment 0, sample 1: 10000 per s; allowed 1"));
  Pattern wide = Limited(Make(PatternKind::kRaster, 10, 3), 1e9, 1e12);
  wide.extent_y_mm = 100;
  wide.flyback = FlybackPolicy::kMinimumTime;
  EXPECT_THAT(ResolvePattern(wide, 100e3),
              IsError(absl::StatusCode::kInvalidArgument, "pattern.scanner.y.position_min"));
  Pattern jagged = Limited(Make(PatternKind::kFreeform, 0, 0), 1e9, 1e6);
  jagged.points_x_mm = {0, 0.1, 0, 0.1};
  jagged.points_y_mm = {0, 0, 0, 0};
  jagged.flyback = FlybackPolicy::kMinimumTime;
  const absl::Status acceleration = ResolvePattern(jagged, 100e3);
  EXPECT_THAT(acceleration,
              IsError(absl::StatusCode::kInvalidArgument, "pattern.scanner.x.acceleration"));
  EXPECT_THAT(std::string(acceleration.message()), HasSubstr("segment 0, sample 2"));
}

TEST(PatternErrors, NameTheField) {
  const auto field = [](const char* name, Pattern p, double rate = 100e3) {
    EXPECT_THAT(ResolvePattern(p, rate), IsError(absl::StatusCode::kInvalidArgument, name));
  };
  field("pattern.raster.ascans_per_bscan", Make(PatternKind::kRaster, 0, 4));
  field("pattern.repeated_raster.raster.bscans_per_volume",
        Make(PatternKind::kRepeatedRaster, 4, 0));
  field("pattern.spiral.rings", Make(PatternKind::kSpiral, 4, 0));
  field("pattern.spiral.ascans_per_ring", Make(PatternKind::kSpiral, 0, 4));
  field("pattern.lissajous.rows", Make(PatternKind::kLissajous, 4, 0));
  field("pattern.freeform.x_mm", Make(PatternKind::kFreeform, 0, 0));
  field("pattern.radial.bscans_per_volume", Make(PatternKind::kRadial, 1 << 13, 1 << 13));
  Pattern p = Make(PatternKind::kRepeatedRadial, 4, 4);
  p.repeat_period = 5;
  field("pattern.repeated_radial.repeat.period", p);
  p = Make(PatternKind::kRepeatedRaster, 4, 4);
  p.repeat_count = 2000;
  field("pattern.repeated_raster.repeat.count", p);
  p = Make(PatternKind::kRadial, 4, 4);
  p.radius_begin_mm = p.radius_end_mm = 1;
  field("pattern.radial.radius_end_mm", p);
  p.radius_begin_mm = std::nan("");
  field("pattern.radial.radius_begin_mm", p);
  p.radius_begin_mm = -1;
  p.angle_begin_deg = p.angle_end_deg = 30;
  field("pattern.radial.angle_end_deg", p);
  p = Make(PatternKind::kSpiral, 4, 4);
  p.radius_begin_mm = 3;
  p.radius_end_mm = 2;
  field("pattern.spiral.outer_radius_mm", p);
  p = Make(PatternKind::kLissajous, 4, 4);
  p.cycles_x = 9;
  field("pattern.lissajous.cycles_x", p);
  p = Make(PatternKind::kFreeform, 3, 0);
  p.points_x_mm = p.points_y_mm = {0, 1, 2, 3};
  field("pattern.freeform.ascans_per_bscan", p);
  p.points_y_mm.pop_back();
  field("pattern.freeform.y_mm", p);
  p.ascans_per_bscan = 4;
  p.points_y_mm = {0, 1, std::nan(""), 3};
  field("pattern.freeform.y_mm[2]", p);
  p = Make(PatternKind::kRaster, 4, 4);
  p.flyback = FlybackPolicy::kMinimumTime;
  field("pattern.scanner", p);
  p = Limited(p);
  field("acquisition.record_rate_hz", p, 0);
  p.limits[1].acceleration = 0;
  field("pattern.scanner.y.acceleration", p);
  p = Make(PatternKind::kRaster, 4, 4);
  p.warp = WarpKind::kAngular;
  p.warp_mm_per_deg = -1;
  field("pattern.angular_warp.factor", p);
  p.warp = WarpKind::kTelecentric;
  p.warp_lens_spacing_mm = -1;
  field("pattern.telecentric_warp.galvo_lens_spacing_mm", p);
}

TEST(Assembly, AccountsForTablesOfAnyOrder) {
  Pattern p = Make(PatternKind::kRepeatedRaster, 4, 2);
  p.repeat_count = 2;
  p.repeat_period = 2;
  p.flyback_records = 1;
  ASSERT_THAT(ResolvePattern(p, 0), IsOk());
  const auto& kind = p.plan->kind[0];  // rows scanned: 0 2 1 3, five records each
  AscanCoverage assembly(kind.placement, kind.active_records);
  EXPECT_EQ(assembly.active_records(), 19);
  assembly.Placed(0, 3);
  assembly.Placed(12, 2);  // lost: the last A-scan of row 0, all of row 2, two of row 1
  assembly.Finish();       // row 3 is lost too
  EXPECT_EQ(assembly.missing_ascans(), 1 + 4 + 2 + 4);
  EXPECT_THAT(assembly.missing(),
              ElementsAre(std::pair<int64_t, int64_t>(3, 3), std::pair<int64_t, int64_t>(8, 8)));
  EXPECT_TRUE(assembly.all_seen());
}

}  // namespace
}  // namespace octavo::engine

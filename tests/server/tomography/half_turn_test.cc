// One half turn of a scan over a full turn or more: which projections it has, how well projections
// fit together, and jobs of scans in which a part is no good. The attenuation of the discs falls
// from their middle as 1 - r^2, so that columns lose nothing of their sums.

#include "server/tomography/half_turn.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"

#include "server/engine/job_kinds.h"
#include "server/job/job_queue.h"
#include "server/tomography/consistency.h"
#include "tests/server/job/job_fixture.h"
#include "tests/support/seed.h"
#include "tests/support/temp_folder.h"

namespace octavo::engine {
namespace {

using model::HalfTurn;
using octavo::testing::IsError;
using octavo::testing::IsOk;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using tomography::Consistency;
using tomography::HalfTurnsOf;

constexpr double kPi = 3.14159265358979323846, kDegree = kPi / 180;

std::vector<double> Angles(double first_degrees, double step_degrees, int64_t count) {
  std::vector<double> angles;
  for (int64_t i = 0; i < count; ++i)
    angles.push_back((first_degrees + step_degrees * static_cast<double>(i)) * kDegree);
  return angles;
}

std::vector<std::pair<int64_t, int64_t>> Ranges(
    const absl::StatusOr<std::vector<IndexRange>>& halves) {
  EXPECT_THAT(halves, IsOk());
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (const IndexRange& half : halves.value_or(std::vector<IndexRange>()))
    ranges.emplace_back(half.begin, half.end);
  return ranges;
}

TomographySpec Half(HalfTurn half, IndexRange projections = {}) {
  TomographySpec spec;
  spec.half_turn = half;
  spec.projections = projections;
  return spec;
}

TEST(HalfTurnsTest, TheBestGoesWithWhatIsFoundInIt) {
  const std::vector<double> angles = Angles(0, 1, 360);
  for (const bool drift : {false, true}) {
    TomographySpec spec = Half(HalfTurn::kBest);
    spec.preparation.finds_drift = drift;
    spec.preparation.dynamic_flats = !drift;
    EXPECT_THAT(HalfTurnsOf(spec, angles), IsOk());
  }
}

TEST(HalfTurnsTest, ThePlanTellsThoseThatAreNotKnownYet) {
  EXPECT_EQ(tomography::HalfTurnText(Half(HalfTurn::kAll), {}), "");
  EXPECT_EQ(tomography::HalfTurnText(Half(HalfTurn::kSecond), {}),
            "half turn: SECOND, which is known when all projections are in\n");
}

TEST(HalfTurnsTest, AreCountedFromTheFirstProjectionOn) {
  // Whatever the first angle, the direction and the unit of a turn at which angles begin anew.
  for (const double first : {0.0, 90.0, -37.3, 1000.25, 359.5}) {
    for (const double step : {1.0, -1.0, 0.1, -12.0}) {
      SCOPED_TRACE(absl::StrCat("from ", first, " by ", step));
      const auto count = static_cast<int64_t>(std::lround(180 / std::abs(step)));
      for (const int64_t more : {0, 1}) {  // the last one as the first one again
        std::vector<double> angles = Angles(first, step, 2 * count + more);
        for (const HalfTurn half : {HalfTurn::kFirst, HalfTurn::kSecond, HalfTurn::kBest}) {
          EXPECT_THAT(Ranges(HalfTurnsOf(Half(half), angles)),
                      ElementsAre(std::pair(0, count), std::pair(count, 2 * count)));
        }
        for (double& angle : angles) angle -= 2 * kPi * std::floor(angle / 2 / kPi);
        EXPECT_THAT(Ranges(HalfTurnsOf(Half(HalfTurn::kFirst), angles)),
                    ElementsAre(std::pair(0, count), std::pair(count, 2 * count)));
      }
    }
  }
}

TEST(HalfTurnsTest, MoreThanAFullTurn) {
  // 400 degrees: what is left after two half turns is in none.
  EXPECT_THAT(Ranges(HalfTurnsOf(Half(HalfTurn::kBest), Angles(0, 2, 200))),
              ElementsAre(std::pair(0, 90), std::pair(90, 180)));
  EXPECT_THAT(
      Ranges(HalfTurnsOf(Half(HalfTurn::kBest), Angles(5, -2, 360))),
      ElementsAre(std::pair(0, 90), std::pair(90, 180), std::pair(180, 270), std::pair(270, 360)));
  // The last projection of a half turn, or the first one, may be missing.
  EXPECT_THAT(Ranges(HalfTurnsOf(Half(HalfTurn::kSecond), Angles(0, 2, 179))),
              ElementsAre(std::pair(0, 90), std::pair(90, 179)));
  // With BEST all have as many.
  EXPECT_THAT(Ranges(HalfTurnsOf(Half(HalfTurn::kBest), Angles(0, 2, 179))),
              ElementsAre(std::pair(0, 89), std::pair(90, 179)));
}

TEST(HalfTurnsTest, OfTheProjectionsThatTheJobUses) {
  const std::vector<double> angles = Angles(-20, 1, 800);
  const auto halves =
      HalfTurnsOf(Half(HalfTurn::kBest, {.begin = 17, .end = 400, .step = 2}), angles);
  EXPECT_THAT(Ranges(halves), ElementsAre(std::pair(17, 196), std::pair(197, 376)));
  for (const IndexRange& half : *halves) {
    EXPECT_EQ(half.step, 2);
    EXPECT_EQ(half.count(), 90);
  }
  EXPECT_THAT(HalfTurnsOf(Half(HalfTurn::kFirst, {.begin = 800, .end = 0, .step = 1}), angles),
              IsError(absl::StatusCode::kInvalidArgument,
                      "tomography.projections.begin: is 800; allowed 0 to 799"));
  EXPECT_THAT(HalfTurnsOf(Half(HalfTurn::kFirst, {.begin = 0, .end = 801, .step = 1}), angles),
              IsError(absl::StatusCode::kInvalidArgument, "tomography.projections.end: is 801"));
}

TEST(HalfTurnsTest, UnevenAngles) {
  std::mt19937 random(octavo::testing::FreshSeed());
  std::uniform_real_distribution<double> jitter(-0.3, 0.3);
  for (int round = 0; round < 20; ++round) {
    std::vector<double> angles = Angles(12, 1.5, 240);
    for (size_t i = 1; i < angles.size(); ++i) angles[i] += 1.5 * jitter(random) * kDegree;
    for (const HalfTurn half : {HalfTurn::kSecond, HalfTurn::kBest}) {
      const auto ranges = Ranges(HalfTurnsOf(Half(half), angles));
      ASSERT_EQ(ranges.size(), 2u);
      EXPECT_EQ(ranges[0].first, 0);
      EXPECT_NEAR(static_cast<double>(ranges[1].first), 120, 2);
      EXPECT_NEAR(static_cast<double>(ranges[1].second), 240, 2);
      for (const auto& [begin, end] : ranges) {
        const double span =
            angles[static_cast<size_t>(end - 1)] - angles[static_cast<size_t>(begin)];
        EXPECT_NEAR(span / kDegree, 178.5, 4);
      }
    }
  }
  // The second half turn has half as many: BEST would compare unlike ones.
  std::vector<double> angles = Angles(0, 1, 180);
  for (const double angle : Angles(180, 2, 90)) angles.push_back(angle);
  EXPECT_THAT(Ranges(HalfTurnsOf(Half(HalfTurn::kSecond), angles)),
              ElementsAre(std::pair(0, 180), std::pair(180, 270)));
  EXPECT_THAT(HalfTurnsOf(Half(HalfTurn::kBest), angles),
              IsError(absl::StatusCode::kInvalidArgument,
                      "tomography.half_turn: is BEST, but the half turns have from 90 to 180 "
                      "projections"));
}

TEST(HalfTurnsTest, RefusalsSayWhatIsAllowed) {
  const auto refused = [](const std::vector<double>& angles, const std::string& why) {
    EXPECT_THAT(HalfTurnsOf(Half(HalfTurn::kSecond), angles),
                IsError(absl::StatusCode::kInvalidArgument,
                        absl::StrCat("tomography.half_turn: is SECOND, but ", why)));
  };
  refused(Angles(0, 1, 180),
          "the 180 projections turn by 179.00 degrees, about 1.000 each, and hold 1 complete half "
          "turn; allowed are two or more, 360 degrees: leave half_turn out to use all projections");
  refused(Angles(0, 1, 357), "the 357 projections turn by 356.00 degrees");
  refused(Angles(0, 1, 100),
          "the 100 projections turn by 99.00 degrees, about 1.000 each, and "
          "hold no complete half turn; allowed");
  refused({0.5}, "the job uses 1 projection");
  refused(Angles(0, 137.5, 400), "the projections are 137.5 degrees apart");
  refused(Angles(0, 24, 15), "the projections are 24 degrees apart");
  std::vector<double> back = Angles(0, 1, 360);
  std::swap(back[100], back[101]);
  refused(back, "the angles turn back at projection 101");
  std::vector<double> same(360, 1.0);
  refused(same, "the 360 projections turn by 0.00 degrees");
  std::vector<double> mixed = Angles(0, 1, 360);
  std::shuffle(mixed.begin(), mixed.end(), std::mt19937(3));
  EXPECT_THAT(HalfTurnsOf(Half(HalfTurn::kFirst), mixed),
              IsError(absl::StatusCode::kInvalidArgument, "tomography.half_turn"));
}

struct Disc {
  double x = 0, y = 0, radius = 0, value = 0;  // pixels from the axis
};
const std::vector<Disc> kDiscs = {
    {0, 0, 19, 0.02}, {7, -4, 5, 0.05}, {-9, 3, 4, 0.08}, {2, 11, 5, 0.03}, {-3, -10, 3, 0.1}};

/// The line integrals of the discs, moved across the axis by `shift` columns, at column `column`.
double LineIntegral(double angle, double column, double axis, double shift) {
  double sum = 0;
  for (const Disc& disc : kDiscs) {
    const double off =
        column - axis - shift - (disc.x * std::cos(angle) - disc.y * std::sin(angle));
    const double square = disc.radius * disc.radius - off * off;
    if (square > 0)
      sum += 4.0 / 3 * disc.value * std::pow(square, 1.5) / (disc.radius * disc.radius);
  }
  return sum;
}

/// [slice, angle, column]: slices of different weight. `shift`: of the object, by angle.
std::vector<float> Sinograms(const std::vector<double>& angles, int64_t columns, double axis,
                             const std::vector<double>& weights,
                             const std::function<double(size_t)>& shift) {
  std::vector<float> values;
  for (const double weight : weights) {
    for (size_t a = 0; a < angles.size(); ++a) {
      for (int64_t c = 0; c < columns; ++c)
        values.push_back(static_cast<float>(
            weight * LineIntegral(angles[a], static_cast<double>(c), axis, shift(a))));
    }
  }
  return values;
}

/// Least squares of c + a cos t + b sin t by the normal equations, in long double.
double RmsOffCurve(const std::vector<double>& values, const std::vector<double>& angles,
                   bool free_axis) {
  using Row = std::array<long double, 4>;
  const size_t terms = free_axis ? 3 : 2;
  const auto term = [&](size_t k, double t) -> long double {
    return k == 0 ? std::cos(t) : k == 1 ? std::sin(t) : 1.0;
  };
  std::array<Row, 3> m = {};
  for (size_t i = 0; i < values.size(); ++i) {
    for (size_t r = 0; r < terms; ++r) {
      for (size_t c = 0; c < terms; ++c) m[r][c] += term(r, angles[i]) * term(c, angles[i]);
      m[r][3] += term(r, angles[i]) * values[i];
    }
  }
  for (size_t k = 0; k < terms; ++k) {
    for (size_t r = 0; r < terms; ++r) {
      if (r == k) continue;
      const long double factor = m[r][k] / m[k][k];
      for (size_t c = 0; c < 4; ++c) m[r][c] -= factor * m[k][c];
    }
  }
  long double squares = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    long double fitted = 0;
    for (size_t k = 0; k < terms; ++k) fitted += m[k][3] / m[k][k] * term(k, angles[i]);
    squares += (values[i] - fitted) * (values[i] - fitted);
  }
  return std::sqrt(static_cast<double>(squares) / static_cast<double>(values.size()));
}

/// Of sinograms [slice, angle, column].
std::optional<Consistency> ConsistencyOf(const std::vector<float>& sinograms,
                                         const std::vector<double>& angles, int64_t columns,
                                         const std::vector<double>& axes) {
  std::vector<tomography::SliceMoments> slices;
  const auto count = std::ssize(angles);
  for (int64_t at = 0; at < std::ssize(sinograms); at += count * columns)
    slices.push_back(tomography::MomentsOf(sinograms.data() + at, count, columns));
  return tomography::ConsistencyOf(slices, angles, axes);
}

TEST(ConsistencyTest, ProjectionsOfAnObjectAreConsistentAndAShiftIsWhatRemainsOfIt) {
  for (const int64_t columns : {48, 65}) {
    for (const double span : {180.0, 140.0, 360.0}) {
      for (const double axis : {23.5, 22.2}) {
        SCOPED_TRACE(absl::StrCat(columns, " columns, ", span, " degrees, axis ", axis));
        const std::vector<double> angles = Angles(13, span / 90, 90);
        const auto still =
            ConsistencyOf(Sinograms(angles, columns, axis, {1, 0.5}, [](size_t) { return 0.0; }),
                          angles, columns, {axis, axis});
        ASSERT_TRUE(still.has_value());
        EXPECT_LT(still->mass_deviation, 1e-3);
        EXPECT_LT(still->center_deviation, 5e-3);
        EXPECT_LT(still->score, 1.5e-3);
        // It jumps by 2 columns after a third, and comes back.
        const auto jump = [](size_t a) { return a >= 30 && a < 62 ? 2.0 : 0.0; };
        std::vector<double> off;
        for (size_t a = 0; a < angles.size(); ++a) off.push_back(jump(a));
        const std::vector<float> moved = Sinograms(angles, columns, axis, {1, 0.5}, jump);
        for (const bool given : {false, true}) {
          const auto found =
              ConsistencyOf(moved, angles, columns,
                            given ? std::vector<double>{axis, axis} : std::vector<double>());
          ASSERT_TRUE(found.has_value());
          EXPECT_LT(found->mass_deviation, 1e-3);
          EXPECT_NEAR(found->center_deviation, RmsOffCurve(off, angles, !given), 5e-3);
          EXPECT_GT(found->score, 20 * still->score);
        }
        // An axis that is not there is no curve, if it is given.
        const auto elsewhere =
            ConsistencyOf(Sinograms(angles, columns, axis, {1}, [](size_t) { return 0.0; }), angles,
                          columns, {axis + 3});
        ASSERT_TRUE(elsewhere.has_value());
        EXPECT_NEAR(elsewhere->center_deviation,
                    RmsOffCurve(std::vector<double>(angles.size(), 3.0), angles, false), 5e-3);
      }
    }
  }
}

// Against sums in long double and medians of sorted values, for sizes around those of the blocks.
TEST(ConsistencyTest, MomentsAreThoseOfTheValues) {
  std::mt19937 random(octavo::testing::FreshSeed());
  std::uniform_real_distribution<float> values(-0.2F, 1), negative(-1, -0.1F);
  for (const int64_t columns : {1, 2, 3, 7, 8, 33, 34, 35, 66, 67, 200}) {
    for (const int64_t angles : {1, 2, 90, 255, 256, 257, 600}) {
      SCOPED_TRACE(absl::StrCat(angles, " angles, ", columns, " columns"));
      std::vector<float> sinogram(static_cast<size_t>(angles * columns));
      const bool below = angles == 255;  // no value is above 0
      for (float& value : sinogram) value = below ? negative(random) : values(random);
      const auto at = [&](int64_t a, int64_t c) {
        return static_cast<long double>(sinogram[static_cast<size_t>(a * columns + c)]);
      };
      const auto found = tomography::MomentsOf(sinogram.data(), angles, columns);
      long double total = 0, squares = 0;
      std::vector<double> ends;
      for (int64_t a = 0; a < angles; ++a) {
        long double mass = 0, first = 0, highest = 0, left = 0, right = 0;
        const int64_t rim = std::max<int64_t>(1, columns / 50);
        for (int64_t c = 0; c < columns; ++c) highest = std::max(highest, at(a, c));
        for (int64_t c = 0; c < rim; ++c) left += at(a, c), right += at(a, columns - 1 - c);
        ends.push_back(highest > 0 ? static_cast<double>(std::max(std::abs(left), std::abs(right)) /
                                                         static_cast<long double>(rim) / highest)
                                   : 1.0);
        for (int64_t c = 0; c < columns; ++c) mass += at(a, c), first += at(a, c) * c;
        const long double center = first / mass;
        for (int64_t c = 0; c < columns; ++c) squares += at(a, c) * (c - center) * (c - center);
        total += mass;
        const auto tolerance = [](long double value) {
          return 1e-9 * (1 + std::abs(static_cast<double>(value)));
        };
        ASSERT_NEAR(found.mass[static_cast<size_t>(a)], static_cast<double>(mass), 1e-9);
        if (std::abs(mass) > 0.01)
          ASSERT_NEAR(found.center[static_cast<size_t>(a)], static_cast<double>(center),
                      tolerance(center));
      }
      std::sort(ends.begin(), ends.end());
      EXPECT_NEAR(found.ends, ends[ends.size() / 2], 1e-9);
      const long double mean = total / angles;
      EXPECT_NEAR(found.mean_mass, static_cast<double>(mean), 1e-9);
      if (mean < 0.05 || columns < 3) continue;
      if (squares > 0 && columns > 30)
        EXPECT_NEAR(found.width, static_cast<double>(std::sqrt(squares / total)), 1e-6);
      long double noise = 0;
      const int64_t step = (angles + 255) / 256;
      for (int64_t c = 1; c + 1 < columns; ++c) {
        std::vector<double> bends;
        for (int64_t a = 0; a < angles; a += step)
          bends.push_back(
              static_cast<double>(std::abs(at(a, c - 1) - 2 * at(a, c) + at(a, c + 1))));
        std::sort(bends.begin(), bends.end());
        const long double lever = (c - 0.5L * (columns - 1)) * bends[bends.size() / 2];
        noise += lever * lever;
      }
      const auto expected = static_cast<double>(std::sqrt(noise) / 1.652L / mean);
      EXPECT_NEAR(found.center_noise, expected, 1e-9 * (1 + expected));
    }
  }
}

TEST(ConsistencyTest, SumsThatDifferCountWithTheMassOfTheSlice) {
  const std::vector<double> angles = Angles(0, 2, 90);
  std::vector<float> values =
      Sinograms(angles, 48, 23.5, {1, 0.5, 0.01}, [](size_t) { return 0.0; });
  // The second slice is brighter by a tenth in every other projection.
  for (size_t a = 0; a < 90; a += 2) {
    for (size_t c = 0; c < 48; ++c) values[(90 + a) * 48 + c] *= 1.1F;
  }
  // The third one hardly shows the object: what is wrong with it does not matter.
  for (size_t i = size_t{2} * 90 * 48; i < values.size(); i += 3) values[i] = 0.01F;
  const auto found = ConsistencyOf(values, angles, 48, {});
  ASSERT_TRUE(found.has_value());
  const double deviation = 0.05 / 1.05, weight = 0.525 * 0.525;
  EXPECT_NEAR(found->mass_deviation, deviation * std::sqrt(weight / (1 + weight)), 2e-4);
  EXPECT_NEAR(found->score, found->mass_deviation, 3e-4);
}

TEST(ConsistencyTest, NothingIsKnownOfWhatIsNotThereOrDoesNotFit) {
  const std::vector<double> angles = Angles(0, 2, 90);
  EXPECT_FALSE(ConsistencyOf(std::vector<float>(90 * 40), angles, 40, {}).has_value());
  std::mt19937 random(octavo::testing::FreshSeed());
  std::normal_distribution<float> noise(0, 0.1F);
  std::vector<float> values(size_t{3} * 90 * 40);
  for (float& value : values) value = noise(random);
  EXPECT_FALSE(ConsistencyOf(values, angles, 40, {}).has_value());
  // 40 columns see all of the object, 30 do not.
  const auto still = [](size_t) { return 0.0; };
  EXPECT_TRUE(ConsistencyOf(Sinograms(angles, 40, 19.5, {1}, still), angles, 40, {}).has_value());
  EXPECT_FALSE(ConsistencyOf(Sinograms(angles, 30, 14.5, {1}, still), angles, 30, {}).has_value());
}

constexpr int64_t kRows = 8, kColumns = 64;
constexpr double kAxis = 30.7;

/// What is wrong with a scan in projections [begin, end).
struct Defect {
  enum class Kind { kNone, kJump, kTremble, kBeam } kind = Kind::kNone;
  int64_t begin = 0, end = 0;
};

class HalfTurnJobTest : public testing::JobFixture {
 protected:
  /// scan.npy: line integrals [angle, row, column].
  void Write(const std::vector<double>& angles, const Defect& defect) {
    angles_ = angles;
    std::mt19937 random(7);
    std::normal_distribution<double> noise(0, 0.002), tremble(0, 1);
    std::vector<float> values;
    for (int64_t a = 0; a < std::ssize(angles); ++a) {
      const bool bad = a >= defect.begin && a < defect.end;
      const double shift = !bad                                    ? 0
                           : defect.kind == Defect::Kind::kJump    ? 3
                           : defect.kind == Defect::Kind::kTremble ? tremble(random)
                                                                   : 0,
                   beam = bad && defect.kind == Defect::Kind::kBeam ? 0.1 : 0;
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t c = 0; c < kColumns; ++c) {
          values.push_back(
              static_cast<float>((1 - 0.05 * static_cast<double>(r)) *
                                     LineIntegral(angles[static_cast<size_t>(a)],
                                                  static_cast<double>(c), kAxis, shift) +
                                 beam + noise(random)));
        }
      }
    }
    std::string dict = absl::StrCat("{'descr': '<f4', 'fortran_order': False, 'shape': (",
                                    angles.size(), ", ", kRows, ", ", kColumns, "), }");
    dict.resize((dict.size() + 10 + 63) / 64 * 64 - 11, ' ');
    dict += '\n';
    std::ofstream file(folder_.path() + "/scan.npy", std::ios::binary);
    file.write("\x93NUMPY\x01\x00", 8);
    file.put(static_cast<char>(dict.size() & 255)).put(static_cast<char>(dict.size() >> 8));
    file << dict;
    file.write(reinterpret_cast<const char*>(values.data()), std::ssize(values) * 4);
  }

  TomographySpec Spec(HalfTurn half, bool axis_given) const {
    TomographySpec spec;
    spec.input = ProjectionFileSpec{.path = "scan.npy", .options = {}};
    spec.angles_rad = angles_;
    spec.preparation.config.minus_log = false;
    spec.preparation.already_sinograms = true;
    spec.reconstruction.algorithm = TomographyAlgorithm::kFbp;
    spec.half_turn = half;
    spec.json = "{}";
    if (axis_given) {
      spec.center.pixels = {kAxis};
    } else {
      spec.center = {.pixels = {}, .find = true, .automatic = true};
      spec.center.search.method = CenterMethod::kPairs;
    }
    return spec;
  }
  absl::StatusOr<JobStatus> Submit(const TomographySpec& work) {
    const auto spec = std::make_unique<JobSpec>();
    spec->work = work;
    return SubmitTo(*spec, {.volumes = &store_,
                            .spiller = nullptr,
                            .ledger = &ledger_,
                            .buffers = nullptr,
                            .file_roots = {folder_.path()},
                            .projection_memory = nullptr,
                            .clock = &clock_});
  }
  struct Made {
    JobStatus job;
    TomographyReport report;
    VolumeStatus volume;
    std::vector<float> values;

    int64_t used() const {
      int64_t index = -1;
      for (size_t i = 0; i < report.half_turns.size(); ++i) {
        if (!report.half_turns[i].used) continue;
        EXPECT_EQ(index, -1) << "two are used";
        index = static_cast<int64_t>(i);
      }
      return index;
    }
    std::string log() const {
      std::string all;
      for (const JobLogLine& line : job.log) absl::StrAppend(&all, line.text, "\n");
      return all;
    }
  };
  Made Run(const TomographySpec& spec) {
    Made made;
    made.job = WaitDone(Submit(spec));
    if (made.job.volumes.empty()) return made;
    made.report = std::get<TomographyReport>(made.job.finding);
    {
      const auto pinned = store_.Hold(made.job.volumes[0], HoldKind::kDevice);
      EXPECT_THAT(pinned, IsOk());
      made.volume = pinned->status;
      made.values.resize(static_cast<size_t>(pinned->status.bytes / 4));
      const Stream stream = *device_.NewStream(StreamPriority::kNormal);
      EXPECT_THAT(device_.CopyToHost(stream.ref(), made.values.data(), pinned->slot->volume.data(),
                                     pinned->status.bytes),
                  IsOk());
      EXPECT_THAT(stream.ref().Synchronize(), IsOk());
    }
    EXPECT_THAT(store_.Discard(made.job.volumes[0], Reason::kDiscarded, "test"), IsOk());
    return made;
  }
  /// The same job of those projections alone.
  Made RunOf(TomographySpec spec, int64_t begin, int64_t end) {
    spec.half_turn = HalfTurn::kDefault;
    spec.projections = {.begin = begin, .end = end, .step = 1};
    return Run(spec);
  }

  octavo::testing::TempFolder folder_;
  std::vector<double> angles_;
};

TEST_P(HalfTurnJobTest, TheResultIsThatOfItsProjectionsAlone) {
  Write(Angles(25, -2, 200), {});
  for (const bool axis_given : {true, false}) {
    for (const HalfTurn half : {HalfTurn::kFirst, HalfTurn::kSecond}) {
      const int64_t second = half == HalfTurn::kSecond ? 1 : 0;
      const Made made = Run(Spec(half, axis_given));
      EXPECT_EQ(made.values, RunOf(Spec(half, axis_given), 90 * second, 90 * second + 90).values);
      EXPECT_THAT(made.job.warnings, IsEmpty());
      ASSERT_EQ(made.report.half_turns.size(), 2u);
      EXPECT_EQ(made.used(), second);
      for (int64_t i = 0; i < 2; ++i) {
        const model::HalfTurnReport& told = made.report.half_turns[static_cast<size_t>(i)];
        EXPECT_EQ(told.begin, 90 * i);
        EXPECT_EQ(told.end, 90 * i + 90);
        EXPECT_TRUE(std::isnan(told.score)) << "only BEST compares them";
      }
      EXPECT_THAT(made.log(),
                  HasSubstr(absl::StrCat("half turn ", second + 1, " of 2 is used, projections ",
                                         90 * second, " to ", 90 * second + 89)));
      EXPECT_EQ(made.volume.labels.at("half_turn.first_projection"), absl::StrCat(90 * second));
      EXPECT_EQ(made.volume.labels.at("half_turn.projections"), "90");
      EXPECT_EQ(made.volume.labels.at("half_turn.first_angle_deg"),
                absl::StrCat(25 - 180 * second));
      EXPECT_EQ(made.volume.labels.at("half_turn.last_angle_deg"),
                absl::StrCat(25 - 180 * second - 178));
      EXPECT_EQ(made.volume.labels.count("half_turn.score"), 0u);
    }
    TomographySpec all = Spec(HalfTurn::kAll, axis_given);
    const Made whole = Run(all);
    EXPECT_THAT(whole.report.half_turns, IsEmpty());
    EXPECT_EQ(whole.volume.labels.count("half_turn.projections"), 0u);
    all.half_turn = HalfTurn::kDefault;
    EXPECT_EQ(Run(all).values, whole.values);
  }
}

TEST_P(HalfTurnJobTest, TheBestOneIsThatWithoutADefect) {
  struct Case {
    Defect::Kind kind;
    double first, step;
    int64_t count, halves, bad;  // the half turns, and the one with the defect
  };
  for (const Case& c :
       {Case{Defect::Kind::kJump, 0, 2, 180, 2, 0}, Case{Defect::Kind::kJump, -40, -2, 181, 2, 1},
        Case{Defect::Kind::kTremble, 123, 2.5, 144, 2, 0},
        Case{Defect::Kind::kTremble, 0, -1.5, 260, 2, 1},
        Case{Defect::Kind::kBeam, 300, 2, 190, 2, 0},
        Case{Defect::Kind::kBeam, 10, 3, 180, 3, 1}}) {
    SCOPED_TRACE(absl::StrCat("defect ", static_cast<int>(c.kind), " in half turn ", c.bad));
    const auto each = static_cast<int64_t>(180 / std::abs(c.step));
    Write(Angles(c.first, c.step, c.count),
          {.kind = c.kind, .begin = c.bad * each + each / 3, .end = c.bad * each + 2 * each / 3});
    for (const bool axis_given : {true, false}) {
      SCOPED_TRACE(axis_given ? "the axis is given" : "the axis is searched");
      const Made made = Run(Spec(HalfTurn::kBest, axis_given));
      ASSERT_GE(std::ssize(made.report.half_turns), c.halves);
      const int64_t used = made.used();
      ASSERT_GE(used, 0);
      EXPECT_NE(used, c.bad);
      for (size_t i = 0; i < made.report.half_turns.size(); ++i) {
        const model::HalfTurnReport& told = made.report.half_turns[i];
        EXPECT_EQ(told.begin, static_cast<int64_t>(i) * each);
        EXPECT_EQ(told.end, told.begin + each);
        EXPECT_GT(told.mass_deviation, 0);
        EXPECT_GT(told.center_deviation, 0);
        EXPECT_GE(told.score, told.mass_deviation);
        EXPECT_GE(told.score, made.report.half_turns[static_cast<size_t>(used)].score);
      }
      EXPECT_GT(made.report.half_turns[static_cast<size_t>(c.bad)].score,
                1.5 * made.report.half_turns[static_cast<size_t>(used)].score);
      EXPECT_EQ(made.values,
                RunOf(Spec(HalfTurn::kBest, axis_given), used * each, used * each + each).values);
      ASSERT_EQ(made.report.centers.size(), 1u);
      EXPECT_NEAR(made.report.centers[0], kAxis, 0.4);
      EXPECT_THAT(made.log(), HasSubstr(absl::StrCat("half turn ", used + 1, " of ", c.halves)));
      EXPECT_EQ(made.volume.labels.at("half_turn.first_projection"), absl::StrCat(used * each));
      EXPECT_EQ(made.volume.labels.count("half_turn.score"), 1u);
    }
  }
  EXPECT_EQ(ledger_.UseOf(0).granted(), 0);
}

// Other outputs, algorithms and preparations: what a plan reserves must do for each of them.
TEST_P(HalfTurnJobTest, WhateverIsMadeOfIt) {
  Write(Angles(0, 2, 180), {.kind = Defect::Kind::kTremble, .begin = 20, .end = 60});
  const auto check = [&](const char* what, const std::function<void(TomographySpec&)>& change) {
    SCOPED_TRACE(what);
    TomographySpec spec = Spec(HalfTurn::kBest, true);
    change(spec);
    const Made made = Run(spec);
    EXPECT_EQ(made.used(), 1);
    const Made alone = RunOf(spec, 90, 180);
    EXPECT_TRUE(
        std::equal(std::begin(made.volume.shape), std::end(made.volume.shape), alone.volume.shape));
    EXPECT_EQ(made.values, alone.values);
  };
  check("sinograms", [](TomographySpec& spec) {
    spec.output = model::TomographyOutput::kSinograms;
    spec.center = {};
  });
  check("sirt, in bins", [](TomographySpec& spec) {
    spec.reconstruction.algorithm = TomographyAlgorithm::kSirt;
    spec.reconstruction.iterations = 3;
    spec.preparation.config.bin_angles = 2;
    spec.preparation.config.bin_columns = 2;
    spec.preparation.config.bin_rows = 2;
  });
  check("fourier, batch by batch", [](TomographySpec& spec) {
    spec.reconstruction.algorithm = TomographyAlgorithm::kFourier;
    spec.slices_per_batch = 3;
    spec.rows = {.begin = 1, .end = 7, .step = 2};
  });
  check("axes that are tried", [](TomographySpec& spec) {
    spec.center = {};
    spec.try_centers = model::TryCentersSpec{.begin = 29, .end = 32, .step = 1, .row = 2};
  });
  check("an axis for each slice",
        [](TomographySpec& spec) { spec.center.pixels.assign(kRows, kAxis); });
  check("columns", [](TomographySpec& spec) { spec.columns = {.begin = 5, .end = 60, .step = 1}; });
}

TEST_P(HalfTurnJobTest, NothingToCompareIsAWarning) {
  Write(Angles(0, 2, 180), {});
  TomographySpec spec = Spec(HalfTurn::kBest, true);
  spec.columns = {.begin = 20, .end = 42, .step = 1};  // within the object
  const Made made = Run(spec);
  EXPECT_EQ(made.used(), 0);
  EXPECT_THAT(made.job.warnings, Contains(HasSubstr("No half turn is known to be the best")));
  for (const model::HalfTurnReport& half : made.report.half_turns)
    EXPECT_TRUE(std::isnan(half.score));
  EXPECT_EQ(made.values, RunOf(spec, 0, 90).values);
}

TEST_P(HalfTurnJobTest, AScanOfHalfATurnIsRefused) {
  Write(Angles(0, 2, 91), {});
  for (const HalfTurn half : {HalfTurn::kFirst, HalfTurn::kSecond, HalfTurn::kBest}) {
    EXPECT_THAT(Submit(Spec(half, true)),
                IsError(absl::StatusCode::kInvalidArgument, "tomography.half_turn"));
  }
  EXPECT_EQ(ledger_.UseOf(0).granted(), 0);
}

TEST_P(HalfTurnJobTest, ThePlanSaysWhichOne) {
  Write(Angles(0, 2, 180), {});
  for (const auto& [half, text] :
       {std::pair(HalfTurn::kSecond, "half turn: SECOND of 2, projections 90 to 179"),
        std::pair(HalfTurn::kBest,
                  "half turn: of 2 the one whose projections fit together best")}) {
    const auto spec = std::make_unique<JobSpec>();
    spec->work = Spec(half, true);
    ASSERT_OK_AND_ASSIGN(const auto work, MakeJobWork(*spec, {.volumes = &store_,
                                                              .spiller = nullptr,
                                                              .ledger = &ledger_,
                                                              .buffers = nullptr,
                                                              .file_roots = {folder_.path()},
                                                              .projection_memory = nullptr,
                                                              .clock = &clock_}));
    ASSERT_OK_AND_ASSIGN(const auto plan, work->Plan(device_));
    EXPECT_THAT(plan.text, HasSubstr(text));
    EXPECT_THAT(plan.text, HasSubstr("used: 90 projections"));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, HalfTurnJobTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine

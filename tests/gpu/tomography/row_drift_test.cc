// Shifts of projections along the rows of the detector: found from profiles with known shifts, and
// undone by a Preparer against a model in double precision.

#include "gpu/tomography/row_drift.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tests/gpu/tomography/data.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using testing::As;
using testing::IsError;
using testing::IsOk;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
using Doubles = std::vector<double>;

// The mass of an object over its rows.
double MassAt(double row, double rows) {
  const auto bump = [&](double middle, double width) {
    return std::exp(-std::pow((row - middle * rows) / width, 2));
  };
  return bump(0.5, 0.2 * rows) + 0.5 * bump(0.3, 4) - 0.3 * bump(0.65, 5) + 0.002 * row;
}

struct Scan {
  std::vector<float> profiles;
  Doubles shifts;     // less their mean
  double offset = 0;  // their mean
};
Scan MakeScan(int64_t projections, int64_t rows, double reach, double noise, std::mt19937& random) {
  std::normal_distribution<double> normal;
  Scan scan;
  double mean = 0;
  const double bend = std::uniform_real_distribution<double>(-1, 1)(random);
  for (int64_t a = 0; a < projections; ++a) {
    const double t = static_cast<double>(a) / static_cast<double>(projections) - 0.5;
    scan.shifts.push_back(reach * (1.4 * t + bend * (t * t - 1.0 / 12)) + 0.1 * normal(random));
    mean += scan.shifts.back() / static_cast<double>(projections);
    const double brighter = 0.05 * normal(random);
    for (int64_t r = 0; r < rows; ++r)
      scan.profiles.push_back(static_cast<float>(
          MassAt(static_cast<double>(r) - scan.shifts.back(), static_cast<double>(rows)) +
          brighter + noise * normal(random)));
  }
  for (double& shift : scan.shifts) shift -= mean;
  scan.offset = mean;
  return scan;
}
double RmsOff(const Doubles& found, const Doubles& wanted) {
  double squares = 0;
  for (size_t i = 0; i < found.size(); ++i) squares += std::pow(found[i] - wanted[i], 2);
  return std::sqrt(squares / static_cast<double>(found.size()));
}

TEST(RowDriftTest, FindsTheShiftsOfProfiles) {
  std::mt19937 random{testing::FreshSeed()};
  for (const int64_t rows : {40, 90, 300}) {
    for (const double noise : {0.0, 0.003, 0.01}) {
      const int64_t projections = 60 + static_cast<int64_t>(random() % 60);
      const Scan scan = MakeScan(projections, rows, 3, noise, random);
      ASSERT_OK_AND_ASSIGN(const RowDrift drift, FindRowDrift(projections, rows, scan.profiles, 5));
      SCOPED_TRACE(::testing::Message() << rows << " rows, noise " << noise);
      ASSERT_EQ(std::ssize(drift.shifts), projections);
      const double off = RmsOff(drift.shifts, scan.shifts);
      EXPECT_LE(off, 0.02 + 1.5 * drift.uncertainty);
      EXPECT_LE(off, 0.02 + 12 * noise);
      EXPECT_GE(drift.agreement, 0.98);
      EXPECT_EQ(drift.at_limit, 0);
      if (noise > 0) EXPECT_GE(off, 0.4 * drift.uncertainty);  // it is no bound without a meaning
    }
  }
}

TEST(RowDriftTest, OddRowsAndProfilesDoNotMoveTheOthers) {
  std::mt19937 random{testing::FreshSeed()};
  Scan scan = MakeScan(80, 70, 3, 0.002, random);
  for (int64_t a = 0; a < 80; ++a) {
    scan.profiles[static_cast<size_t>(a * 70 + 33)] += 0.4f;  // a bright row of the detector
    if (a % 9 == 0)
      scan.profiles[static_cast<size_t>(a * 70 + 50)] = std::numeric_limits<float>::quiet_NaN();
  }
  ASSERT_OK_AND_ASSIGN(const RowDrift drift, FindRowDrift(80, 70, scan.profiles, 5));
  EXPECT_LE(RmsOff(drift.shifts, scan.shifts), 0.15);
}

TEST(RowDriftTest, TellsWhatItDoesNotKnow) {
  std::mt19937 random{testing::FreshSeed()};
  std::normal_distribution<double> normal;
  for (const int64_t rows : {40, 500}) {
    std::vector<float> alike;
    for (int64_t i = 0; i < 60 * rows; ++i)
      alike.push_back(static_cast<float>(2 + 0.05 * normal(random)));
    ASSERT_OK_AND_ASSIGN(const RowDrift drift, FindRowDrift(60, rows, alike, 5));
    EXPECT_LE(drift.agreement, 0.5);
  }
  // Without any noise there is nothing to compare at all.
  ASSERT_OK_AND_ASSIGN(const RowDrift none, FindRowDrift(10, 30, std::vector<float>(300, 2.0f), 5));
  EXPECT_TRUE(std::isinf(none.uncertainty));
  // More than is looked for.
  const Scan scan = MakeScan(60, 80, 8, 0, random);
  ASSERT_OK_AND_ASSIGN(const RowDrift drift, FindRowDrift(60, 80, scan.profiles, 2));
  EXPECT_GT(drift.at_limit, 5);
  for (const double shift : drift.shifts) EXPECT_LE(std::abs(shift), 2);
}

// Two volumes of a series: the second lies away from the first, and its shifts say by how much.
TEST(RowDriftTest, IsMeasuredFromTheReference) {
  std::mt19937 random{testing::FreshSeed()};
  for (const double away : {-2.6, 0.0, 0.4, 3.0}) {
    const int64_t rows = 60 + static_cast<int64_t>(random() % 100);
    const Scan first = MakeScan(70, rows, 1.5, 0.002, random);
    Scan second = MakeScan(90, rows, 1.5, 0.002, random);
    ASSERT_OK_AND_ASSIGN(const RowDrift reference, FindRowDrift(70, rows, first.profiles, 6));
    ASSERT_EQ(std::ssize(reference.profile), rows);
    // The same projections again, whose object lies `away` from that of the first.
    std::normal_distribution<double> normal;
    for (int64_t a = 0; a < 90; ++a) {
      second.shifts[static_cast<size_t>(a)] += away;
      for (int64_t r = 0; r < rows; ++r)
        second.profiles[static_cast<size_t>(a * rows + r)] = static_cast<float>(
            MassAt(static_cast<double>(r) - first.offset - second.shifts[static_cast<size_t>(a)],
                   static_cast<double>(rows)) +
            0.002 * normal(random));
    }
    SCOPED_TRACE(::testing::Message() << rows << " rows, " << away << " away");
    ASSERT_OK_AND_ASSIGN(const RowDrift alone, FindRowDrift(90, rows, second.profiles, 6));
    ASSERT_OK_AND_ASSIGN(const RowDrift drift,
                         FindRowDrift(90, rows, second.profiles, 6, reference.profile));
    EXPECT_LE(RmsOff(drift.shifts, second.shifts), 0.1);
    if (std::abs(away) > 1) EXPECT_GE(RmsOff(alone.shifts, second.shifts), 0.8 * std::abs(away));
  }
}

TEST(RowDriftTest, IsGivenUpWhenAsked) {
  std::mt19937 random{testing::FreshSeed()};
  const int64_t projections = 300 + static_cast<int64_t>(random() % 100);
  const Scan scan = MakeScan(projections, 50, 3, 0.002, random);
  int64_t asked = 0;
  ASSERT_THAT(
      FindRowDrift(projections, 50, scan.profiles, 5, {}, [&] { return ++asked > 0; }).status(),
      IsOk());
  // Each 64 projections, in the first pass and twice in each round.
  EXPECT_GE(asked, 3 * (projections / 64));
  for (const int64_t last : {int64_t{0}, int64_t{4}, asked / 2, asked - 1}) {
    int64_t times = 0;
    EXPECT_EQ(FindRowDrift(projections, 50, scan.profiles, 5, {}, [&] { return times++ < last; })
                  .status()
                  .code(),
              absl::StatusCode::kCancelled)
        << last;
    EXPECT_EQ(times, last + 1);  // nothing is asked, nor done, after that
  }
  EXPECT_EQ(RowDriftHostBytes(300, 50), 300 * 50 * 12);
}

class RowShiftsTest : public testing::BackendTest {
 protected:
  std::mt19937 random_{testing::FreshSeed()};
};

// Keys' cubic convolution along the rows; the outermost rows go on.
double Between(const std::vector<float>& frames, int64_t frame, int64_t rows, int64_t columns,
               double at, int64_t column) {
  const auto keys = [](double x) {
    x = std::abs(x);
    return x < 1   ? 1.5 * x * x * x - 2.5 * x * x + 1
           : x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2
                   : 0.0;
  };
  double sum = 0;
  const auto below = static_cast<int64_t>(std::floor(at));
  for (int64_t r = below - 1; r <= below + 2; ++r) {
    const int64_t row = std::clamp<int64_t>(r, 0, rows - 1);
    sum +=
        keys(at - static_cast<double>(r)) *
        static_cast<double>(frames[static_cast<size_t>((frame * rows + row) * columns + column)]);
  }
  return sum;
}

TEST_P(RowShiftsTest, MoveEachProjectionWhateverTheBatch) {
  for (int round = 0; round < 8; ++round) {
    const int64_t angles = 3 + round, rows = 24, columns = 9 + 4 * round,
                  bin = round % 2 == 0 ? 1 : 2;
    std::uniform_real_distribution<double> uniform(0.2, 1);
    std::vector<float> raw;
    for (int64_t i = 0; i < angles * rows * columns; ++i)
      raw.push_back(static_cast<float>(uniform(random_)));
    PrepareConfig whole;
    whole.dtype = DType::kF32;
    whole.angles = angles;
    whole.rows = rows;
    whole.columns = columns;
    whole.minus_log = false;
    whole.bin_rows = whole.bin_columns = bin;
    for (int64_t a = 0; a < angles; ++a)
      whole.shifts.rows.push_back(a == 1 ? 0.0
                                  : a == 2
                                      ? -3.0
                                      : std::uniform_real_distribution<double>(-4, 4)(random_));
    const auto prepared = [&](const PrepareConfig& c, const std::vector<float>& values) {
      auto preparer = Preparer::Create(c, device_);
      EXPECT_THAT(preparer.status(), IsOk());
      const DeviceBuffer in = Upload(values);
      const DeviceBuffer out = Poisoned((*preparer)->shape().elements() * 4);
      EXPECT_THAT((*preparer)->Run(stream_.ref(), {.projections = in.data()}, out.span<float>()),
                  IsOk());
      return Download<float>(out, static_cast<size_t>((*preparer)->shape().elements()));
    };
    const auto got = prepared(whole, raw);
    const int64_t slices = rows / bin, detectors = columns / bin;
    for (int64_t s = 0; s < slices; ++s) {
      for (int64_t a = 0; a < angles; ++a) {
        for (int64_t d = 0; d < detectors; ++d) {
          double want = 0;
          for (int64_t i = 0; i < bin * bin; ++i)
            want += Between(raw, a, rows, columns,
                            static_cast<double>(s * bin + i / bin) +
                                whole.shifts.rows[static_cast<size_t>(a)],
                            d * bin + i % bin) /
                    static_cast<double>(bin * bin);
          ASSERT_NEAR(
              static_cast<double>(got[static_cast<size_t>((s * angles + a) * detectors + d)]), want,
              2e-6)
              << "round " << round << " at " << s << " " << a << " " << d;
        }
      }
    }
    // Rows 8 to 12 alone, with the rows that their shifts reach.
    PrepareConfig part = whole;
    const int64_t margin = PrepareMargin(whole);
    EXPECT_LE(margin, 6);
    const int64_t first = 8 - margin, count = 4 + 2 * margin;
    part.rows = count;
    part.crop_row = margin;
    part.crop_rows = 4;
    part.roll.rows = rows;
    part.roll.first_row = first;
    std::vector<float> some;
    for (int64_t a = 0; a < angles; ++a) {
      const auto from = raw.begin() + (a * rows + first) * columns;
      some.insert(some.end(), from, from + count * columns);
    }
    const auto of_part = prepared(part, some);
    const size_t offset = static_cast<size_t>(8 / bin * angles * detectors);
    EXPECT_TRUE(std::equal(of_part.begin(), of_part.end(),
                           got.begin() + static_cast<std::ptrdiff_t>(offset)));
  }
}

TEST_P(RowShiftsTest, MeansOfRows) {
  const PreparedShape shape{.slices = 5, .angles = 7, .detectors = 33};
  std::vector<float> values;
  std::uniform_real_distribution<double> uniform(-1, 3);
  for (int64_t i = 0; i < shape.elements(); ++i)
    values.push_back(static_cast<float>(uniform(random_)));
  const DeviceBuffer in = Upload(values), scratch = Poisoned(2 * 5 * 7 * 4);
  ASSERT_OK_AND_ASSIGN(const auto means,
                       RowMeans(stream_.ref(), device_, shape, {in.as<float>(), shape.elements()},
                                scratch.span<float>()));
  ASSERT_EQ(means.size(), 35u);
  for (int64_t a = 0; a < 7; ++a) {
    for (int64_t s = 0; s < 5; ++s) {
      double sum = 0;
      for (int64_t d = 0; d < 33; ++d)
        sum += static_cast<double>(values[static_cast<size_t>((s * 7 + a) * 33 + d)]);
      EXPECT_NEAR(static_cast<double>(means[static_cast<size_t>(a * 5 + s)]), sum / 33, 1e-6);
    }
  }
}

TEST_P(RowShiftsTest, RefusesWhatCannotBe) {
  PrepareConfig c;
  c.angles = 4;
  c.rows = 8;
  c.columns = 6;
  c.shifts = {.rows = {0.5, -64, 64, 0}, .most = 64};
  ASSERT_THAT(CheckPrepare(c).status(), IsOk());
  EXPECT_EQ(PrepareMargin(c), 66);
  const auto refuses = [&](const char* text, auto change) {
    PrepareConfig wrong = c;
    change(wrong);
    EXPECT_THAT(CheckPrepare(wrong).status(), IsError(kInvalid, text));
  };
  refuses("row_shifts", [](auto& w) { w.shifts.rows.pop_back(); });
  refuses("row_shifts[1]", [](auto& w) { w.shifts.rows[1] = -64.5; });
  refuses("row_shifts[3]", [](auto& w) { w.shifts.rows[3] = std::nan(""); });
  refuses("row_drift.most_rows", [](auto& w) { w.shifts.most = 65; });
  refuses("row_drift.most_rows", [](auto& w) { w.shifts.most = std::nan(""); });
  refuses("bin_angles", [](auto& w) { w.bin_angles = 2; });
}

INSTANTIATE_TEST_SUITE_P(Backends, RowShiftsTest, ::testing::ValuesIn(testing::AvailableBackends()),
                         testing::BackendName);

}  // namespace
}  // namespace octavo

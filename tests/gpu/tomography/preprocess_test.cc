// Preprocessing of projections against a double-precision model, TomoPy's fixture and physics.

#include "gpu/tomography/preprocess.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <numbers>
#include <random>

#include "gpu/tomography/phase_filter.h"
#include "gpu/tomography/preprocess_plan.h"
#include "tests/gpu/tomography/data.h"
#include "tests/gpu/tomography/preprocess_model.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/device/unruly_device.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using testing::As;
using testing::Doubles;
using testing::IsError;
using testing::IsOk;
using testing::PrepareModel;
using testing::PrepareTurnedModel;
using testing::TurnModel;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// Air at both ends, as far as there are columns for it.
void AddAir(int64_t left, int64_t right, PrepareConfig* c) {
  const int64_t kept =
      (c->crop_columns == 0 ? c->columns - c->crop_column : c->crop_columns) / c->bin_columns;
  c->air_left = std::min(left, kept);
  c->air_right = std::min(right, kept - c->air_left);
}

class TomoPrepareTest : public testing::BackendTest {
 protected:
  Doubles Counts(int64_t count, double lo, double hi) {  // whole numbers
    std::uniform_real_distribution<double> uniform(lo, hi);
    Doubles out(static_cast<size_t>(count));
    for (double& v : out) v = std::floor(uniform(random_));
    return out;
  }
  /// Rows of counts of 12 bits. What the last byte of an odd row has besides is noise.
  DeviceBuffer UploadPacked(const Doubles& values, int64_t columns, math::Packing packing) {
    const int64_t rows = std::ssize(values) / columns,
                  bytes = math::PackedBytes(packing, columns, sizeof(uint16_t));
    std::vector<uint8_t> packed(static_cast<size_t>(rows * bytes));
    for (int64_t r = 0; r < rows; ++r) {
      uint8_t* const row = packed.data() + r * bytes;
      for (int64_t c = 0; c < columns; ++c)
        math::WritePacked12(packing, row, c,
                            static_cast<uint32_t>(values[static_cast<size_t>(r * columns + c)]));
      if (columns % 2 != 0) row[bytes - 1] |= static_cast<uint8_t>(random_() % 16 << 4);
    }
    return Upload(packed);
  }
  DeviceBuffer UploadAs(const Doubles& values, DType dtype, int64_t columns,
                        math::Packing packing) {
    if (packing != math::Packing::kNone) return UploadPacked(values, columns, packing);
    if (dtype == DType::kU8) return Upload(As<uint8_t>(values));
    if (dtype == DType::kU16) return Upload(As<uint16_t>(values));
    if (dtype == DType::kI16) return Upload(As<int16_t>(values));
    return Upload(As<float>(values));
  }
  static Doubles RowFirst(const Doubles& in, const PrepareConfig& c) {
    Doubles out(in.size());
    for (int64_t a = 0; a < c.angles; ++a) {
      for (int64_t r = 0; r < c.rows; ++r) {
        std::copy_n(in.begin() + (a * c.rows + r) * c.columns, c.columns,
                    out.begin() + (r * c.angles + a) * c.columns);
      }
    }
    return out;
  }
  absl::StatusOr<std::vector<float>> Prepare(const PrepareConfig& c, const Doubles& raw,
                                             const Doubles& flats, const Doubles& darks,
                                             PrepareCounts* counts = nullptr,
                                             Device* device = nullptr,
                                             const CancelCheck& goes_on = {}) {
    OCTAVO_ASSIGN_OR_RETURN(auto preparer,
                            Preparer::Create(c, device == nullptr ? device_ : *device));
    const DeviceBuffer in = UploadAs(c.row_first ? RowFirst(raw, c) : raw, c.dtype, c.columns,
                                     c.packing),
                       flat = UploadAs(flats, c.field_dtype, c.columns, c.field_packing),
                       dark = UploadAs(darks, c.field_dtype, c.columns, c.field_packing);
    const DeviceBuffer out = Poisoned(preparer->shape().elements() * 4 + 64);
    const PrepareInput input{.projections = in.data(),
                             .flats = flats.empty() ? nullptr : flat.data(),
                             .darks = darks.empty() ? nullptr : dark.data(),
                             .goes_on = goes_on};
    OCTAVO_RETURN_IF_ERROR(preparer->Run(stream_.ref(), input, out.span<float>()));
    OCTAVO_ASSIGN_OR_RETURN(const PrepareCounts met, preparer->Counts(stream_.ref()));
    if (counts != nullptr) *counts = met;
    const auto guard =
        Download<uint8_t>(out, static_cast<size_t>(preparer->shape().elements() * 4 + 64));
    for (size_t i = guard.size() - 64; i < guard.size(); ++i)
      EXPECT_EQ(guard[i], 0xA5) << "behind the result";
    return Download<float>(out, static_cast<size_t>(preparer->shape().elements()));
  }
  static PrepareConfig Plain(int64_t angles, int64_t rows, int64_t columns) {
    PrepareConfig c;
    c.angles = angles;
    c.rows = rows;
    c.columns = columns;
    c.dtype = c.field_dtype = DType::kF32;
    return c;
  }

  std::mt19937 random_{testing::FreshSeed()};
};

// For f32 sums of up to 64 counts, and a logarithm.
constexpr double kTolerance = 2e-5;

void ExpectNear(const std::vector<float>& got, const Doubles& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    worst = std::max(
        worst, std::abs(static_cast<double>(got[i]) - want[i]) / std::max(1.0, std::abs(want[i])));
    ASSERT_FALSE(std::isnan(got[i])) << i;
  }
  EXPECT_LE(worst, tolerance);
}

TEST_P(TomoPrepareTest, MatchesTheModel) {
  for (int round = 0; round < 40; ++round) {
    const auto pick = [&](int64_t n) {
      return static_cast<int64_t>(random_() % static_cast<uint64_t>(n));
    };
    const int64_t bins[] = {1, 2, 4};
    PrepareConfig c = Plain(5 + pick(9), 5 + pick(40), 12 + pick(300));
    const DType types[] = {DType::kU8, DType::kU16, DType::kI16, DType::kF32};
    c.dtype = types[pick(4)];
    c.field_dtype = c.dtype == DType::kF32 ? types[1 + pick(3)] : c.dtype;
    c.row_first = pick(2) != 0;
    c.flats = pick(6);
    c.darks = pick(4);
    c.flat_average = pick(2) != 0 ? FieldAverage::kMedian : FieldAverage::kMean;
    c.dark_average = pick(2) != 0 ? FieldAverage::kMedian : FieldAverage::kMean;
    if (c.flats >= 3 && pick(2) != 0) {
      c.flat_series = {1, c.flats - 2, 1};
      c.flat_times = {-3, 2.5, static_cast<double>(c.angles) - 2};
    }
    c.bin_rows = bins[pick(3)];
    c.bin_columns = bins[pick(3)];
    c.bin_angles = bins[pick(3)];
    const bool plain = round % 2 == 0;  // what most scans are
    if (plain) {
      c.bin_rows = c.bin_columns = c.bin_angles = 1;
      c.angles += pick(40);
      c.columns = pick(4) == 0 ? c.columns : (c.columns + 3) / 4 * 4;
      if (pick(4) != 0) c.flat_series.clear(), c.flat_times.clear();
    }
    if (pick(2) != 0) {
      c.crop_row = pick(c.rows - c.bin_rows + 1);
      c.crop_column = pick(c.columns / 4);
      c.crop_columns = std::max(2 * c.bin_columns, c.columns / 2 + pick(c.columns / 4));
    }
    if (!plain && pick(2) != 0)
      c.outliers = {.window = 3 + 2 * pick(3), .difference = 20, .dark_too = pick(2) != 0};
    c.has_cutoff = pick(2) != 0;
    c.cutoff = 1.05;
    if (!plain && pick(2) != 0) AddAir(1 + pick(2), pick(3), &c);
    c.minus_log = pick(3) != 0;
    const double light = c.dtype == DType::kU8 ? 200 : 2000;
    Doubles raw = Counts(c.angles * c.rows * c.columns, 0.2 * light, 1.02 * light);
    Doubles flats = Counts(c.flats * c.rows * c.columns, 0.9 * light, light),
            darks = Counts(c.darks * c.rows * c.columns, 3, 9);
    // Dead pixels of the detector: no flat field lights them.
    for (int i = 0; c.outliers.window == 0 && c.air_left + c.air_right == 0 && i < 3; ++i) {
      const size_t dead = random_() % static_cast<size_t>(c.rows * c.columns),
                   pixels = static_cast<size_t>(c.rows * c.columns);
      for (size_t at = dead; at < flats.size(); at += pixels) flats[at] = 3;
      for (size_t at = dead; at < darks.size(); at += pixels) darks[at] = 3;
      for (size_t at = dead; at < raw.size(); at += pixels) raw[at] = 3;
    }
    for (int i = 0; i < 20; ++i)
      raw[random_() % raw.size()] = light + 50, raw[random_() % raw.size()] = 0;
    if (c.dtype == DType::kI16 && c.flats > 0 && c.darks > 0) {  // counts below 0
      for (Doubles* const values : {&raw, &flats, &darks}) {
        for (double& v : *values) v -= 1000;
      }
    }
    PrepareCounts want_counts, counts;
    const Doubles want = PrepareModel(c, raw, flats, darks, &want_counts);
    ASSERT_OK_AND_ASSIGN(const auto got, Prepare(c, raw, flats, darks, &counts));
    SCOPED_TRACE(::testing::Message()
                 << "round " << round << ": " << c.angles << " x " << c.rows << " x " << c.columns
                 << " " << Info(c.dtype).name << " bins " << c.bin_angles << " " << c.bin_rows
                 << " " << c.bin_columns << " outliers " << c.outliers.window);
    // Where air is nearly dark, rounding of f32 weighs heavily.
    ExpectNear(got, want, c.air_left + c.air_right > 0 ? 20 * kTolerance : kTolerance);
    EXPECT_EQ(counts.outliers, want_counts.outliers);
    // Quotients of small integers often lie at a limit, and f32 rounds them to either side.
    const auto near = [](int64_t count) { return 2 + static_cast<double>(count) / 50; };
    EXPECT_NEAR(static_cast<double>(counts.cut), static_cast<double>(want_counts.cut),
                near(want_counts.cut));
    EXPECT_EQ(counts.not_finite, want_counts.not_finite);
    EXPECT_EQ(counts.unlit, want_counts.unlit);
    EXPECT_NEAR(static_cast<double>(counts.floored), static_cast<double>(want_counts.floored),
                near(want_counts.floored));
  }
}

// Counts of 12 bits, packed and as numbers, through every step that reads counts: not one bit of
// the result differs.
TEST_P(TomoPrepareTest, PackedCountsMakeTheSameResult) {
  for (int round = 0; round < 40; ++round) {
    const auto pick = [&](int64_t n) {
      return static_cast<int64_t>(random_() % static_cast<uint64_t>(n));
    };
    const int64_t bins[] = {1, 1, 2, 4};
    PrepareConfig c = Plain(5 + pick(9), 5 + pick(30), 12 + pick(400));
    c.dtype = c.field_dtype = DType::kU16;
    c.row_first = pick(4) == 0;
    c.flats = pick(6);
    c.darks = pick(4);
    c.flat_average = pick(2) != 0 ? FieldAverage::kMedian : FieldAverage::kMean;
    if (c.flats >= 3 && pick(2) != 0) {
      c.flat_series = {1, c.flats - 2, 1};
      c.flat_times = {-3, 2.5, static_cast<double>(c.angles) - 2};
    }
    if (round % 2 == 0) {
      c.bin_rows = bins[pick(4)];
      c.bin_columns = bins[pick(4)];
      c.bin_angles = bins[pick(4)];
    }
    if (pick(3) == 0) {
      c.crop_row = pick(c.rows - c.bin_rows + 1);
      c.crop_column = pick(c.columns / 4);
      c.crop_columns = std::max(2 * c.bin_columns, c.columns / 2 + pick(c.columns / 4));
    }
    if (pick(3) == 0) c.outliers = {.window = 3, .difference = 20, .dark_too = pick(2) != 0};
    if (pick(4) == 0) c.roll.degrees = 0.7;
    if (pick(4) == 0) AddAir(1 + pick(2), pick(3), &c);
    if (pick(4) == 0) {
      c.phase = {.enabled = true,
                 .pixel_size_um = 2,
                 .distance_mm = 60,
                 .energy_kev = 25,
                 .delta_beta = 30};
    }
    if (c.flat_series.empty() && c.flats >= 2 && c.flat_average == FieldAverage::kMean &&
        pick(2) != 0) {
      c.flat_components.components = 1;
      for (int64_t f = 0; f < c.flats; ++f)
        c.flat_components.mixture.push_back(f % 2 == 0 ? 0.1 : -0.1);
      for (int64_t a = 0; a < c.angles; ++a)
        c.flat_components.weights.push_back(0.1 * static_cast<double>(a));
    }
    Doubles raw = Counts(c.angles * c.rows * c.columns, 0, 4096),
            flats = Counts(c.flats * c.rows * c.columns, 3000, 4096),
            darks = Counts(c.darks * c.rows * c.columns, 0, 90);
    raw.front() = raw.back() = 4095;
    SCOPED_TRACE(::testing::Message()
                 << "round " << round << ": " << c.angles << " x " << c.rows << " x " << c.columns
                 << " bins " << c.bin_angles << " " << c.bin_rows << " " << c.bin_columns
                 << " outliers " << c.outliers.window << " row_first " << c.row_first);
    PrepareCounts want_counts, counts;
    ASSERT_OK_AND_ASSIGN(const auto want, Prepare(c, raw, flats, darks, &want_counts));
    for (const math::Packing packing : {math::Packing::kLowFirst12, math::Packing::kHighFirst12}) {
      c.packing = packing;
      c.field_packing = pick(3) == 0 ? math::Packing::kNone : packing;
      ASSERT_OK_AND_ASSIGN(const auto got, Prepare(c, raw, flats, darks, &counts));
      ASSERT_EQ(got.size(), want.size());
      EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0);
      EXPECT_EQ(counts.outliers, want_counts.outliers);
      EXPECT_EQ(counts.not_finite, want_counts.not_finite);
      EXPECT_EQ(counts.floored, want_counts.floored);
      EXPECT_EQ(counts.unlit, want_counts.unlit);
      c.packing = math::Packing::kNone;
      ASSERT_OK_AND_ASSIGN(const auto fields, Prepare(c, raw, flats, darks));
      EXPECT_EQ(std::memcmp(fields.data(), want.data(), want.size() * sizeof(float)), 0)
          << "fields alone are packed";
      c.field_packing = math::Packing::kNone;
    }
  }
}

// On the host medians of large windows are made of few projections at a time if the caller may give
// up: the later ones begin within the input.
TEST_P(TomoPrepareTest, PackedCountsAreFoundAtEachPieceOfTheWork) {
  for (const bool row_first : {false, true}) {
    PrepareConfig c = Plain(5, 67, 1111);
    c.dtype = c.field_dtype = DType::kU16;
    c.row_first = row_first;
    c.outliers = {.window = 15, .difference = 1000};
    const Doubles raw = Counts(c.angles * c.rows * c.columns, 0, 4096);
    const auto goes_on = [] { return true; };
    ASSERT_OK_AND_ASSIGN(const auto want, Prepare(c, raw, {}, {}));
    for (const math::Packing packing : {math::Packing::kLowFirst12, math::Packing::kHighFirst12}) {
      c.packing = packing;
      ASSERT_OK_AND_ASSIGN(const auto got, Prepare(c, raw, {}, {}, nullptr, nullptr, goes_on));
      EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0);
    }
  }
}

// More than are unpacked at a time.
TEST_P(TomoPrepareTest, ManyPackedCountsArePreparedInParts) {
  PrepareConfig c = Plain(18, 1024, 2047);
  c.dtype = DType::kU16;
  const int64_t pixels = c.angles * c.rows * c.columns;
  std::vector<uint16_t> counts(static_cast<size_t>(pixels));
  for (uint16_t& count : counts) count = static_cast<uint16_t>(random_() % 4096);
  const auto prepared = [&](const DeviceBuffer& in) -> absl::StatusOr<std::vector<float>> {
    OCTAVO_ASSIGN_OR_RETURN(const auto preparer, Preparer::Create(c, device_));
    const DeviceBuffer out = Poisoned(pixels * 4);
    OCTAVO_RETURN_IF_ERROR(
        preparer->Run(stream_.ref(), {.projections = in.data()}, out.span<float>()));
    return Download<float>(out, static_cast<size_t>(pixels));
  };
  ASSERT_OK_AND_ASSIGN(const std::vector<float> wanted, prepared(Upload(counts)));
  c.packing = math::Packing::kHighFirst12;
  const int64_t bytes = math::PackedBytes(c.packing, c.columns, 2);
  std::vector<uint8_t> packed(static_cast<size_t>(c.angles * c.rows * bytes));
  for (int64_t i = 0; i < pixels; ++i) {
    math::WritePacked12(c.packing, packed.data() + i / c.columns * bytes, i % c.columns,
                        counts[static_cast<size_t>(i)]);
  }
  ASSERT_OK_AND_ASSIGN(const std::vector<float> made, prepared(Upload(packed)));
  EXPECT_EQ(std::memcmp(made.data(), wanted.data(), wanted.size() * sizeof(float)), 0);
  ASSERT_OK_AND_ASSIGN(const int64_t memory, Preparer::DeviceBytes(c, device_));
  EXPECT_LT(memory, pixels * 2) << "some at a time";
}

TEST(PreparedAnglesTest, BinnedAnglesAreMeansOnTheShorterWayRound) {
  const double degree = std::numbers::pi / 180;
  PrepareConfig c;
  c.bin_angles = 2;
  Doubles angles;
  for (const double angle : {358.0, 359.0, 359.5, 0.5, 1.0, 2.0, -179.0, 179.0})
    angles.push_back(angle * degree);
  const std::vector<double> means = PreparedAngles(c, angles);
  ASSERT_EQ(means.size(), 4);
  for (size_t i = 0; i < means.size(); ++i) {
    const double want[] = {358.5, 0, 1.5, 180};
    EXPECT_NEAR(std::remainder(means[i] - want[i] * degree, 2 * std::numbers::pi), 0, 1e-12) << i;
  }
}

TEST_P(TomoPrepareTest, MeetsTomopysNormalize) {
  const Doubles tomo = testing::LoadTomoNpy("tomopy_fixtures/tomo.npy"),
                flat = testing::LoadTomoNpy("tomopy_fixtures/flat_1.npy"),
                dark = testing::LoadTomoNpy("tomopy_fixtures/dark.npy"),
                want = testing::LoadTomoNpy("tomopy_fixtures/normalize.npy");
  if (tomo.empty()) GTEST_SKIP() << "no data in " << testing::TomoData() << " (OCTAVO_TEST_DATA)";
  // The flats of that result are 1000 everywhere; flat_1 contains them among flats of 1000 and
  // 1100.
  Doubles flats;
  for (size_t f = 0; f < 10; ++f) {
    if (flat[f * 8 * 46] == 1000)
      flats.insert(flats.end(), flat.begin() + static_cast<std::ptrdiff_t>(f * 8 * 46),
                   flat.begin() + static_cast<std::ptrdiff_t>((f + 1) * 8 * 46));
  }
  ASSERT_FALSE(flats.empty());
  PrepareConfig c = Plain(16, 8, 46);
  c.flats = static_cast<int64_t>(flats.size()) / (8 * 46);
  c.darks = 2;
  c.minus_log = false;
  ASSERT_OK_AND_ASSIGN(const auto got, Prepare(c, tomo, flats, dark));
  double worst = 0;
  for (int64_t a = 0; a < 16; ++a) {
    for (int64_t r = 0; r < 8; ++r) {
      for (int64_t d = 0; d < 46; ++d) {
        worst = std::max(
            worst, std::abs(static_cast<double>(got[static_cast<size_t>((r * 16 + a) * 46 + d)]) -
                            want[static_cast<size_t>((a * 8 + r) * 46 + d)]));
      }
    }
  }
  EXPECT_LE(worst, 1e-6);
}

TEST_P(TomoPrepareTest, OddValuesAreHandledAsStated) {
  PrepareConfig c = Plain(1, 1, 6);
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               inf = std::numeric_limits<double>::infinity();
  c.not_finite_value = 7;
  c.log_floor = 1e-3;
  PrepareCounts counts;
  ASSERT_OK_AND_ASSIGN(const auto log, Prepare(c, {nan, inf, -inf, 0, -2, 0.5}, {}, {}, &counts));
  const float floor = -std::log(1e-3f);
  EXPECT_EQ(log[0], 7);
  EXPECT_EQ(log[1], 7);
  for (size_t i = 2; i < 5; ++i) EXPECT_NEAR(log[i], floor, 1e-5f) << i;
  EXPECT_NEAR(log[5], std::log(2.0f), 1e-6f);
  EXPECT_EQ(counts.not_finite, 2);
  EXPECT_EQ(counts.floored, 3);
  c.minus_log = false;
  ASSERT_OK_AND_ASSIGN(const auto plain, Prepare(c, {nan, inf, -inf, 0, -2, 0.5}, {}, {}, &counts));
  EXPECT_EQ(plain, (std::vector<float>{7, 7, 7, 0, -2, 0.5f}));
  // A pixel that is dark in every flat.
  c.flats = 1;
  c.denominator_floor = 0.5;
  ASSERT_OK_AND_ASSIGN(const auto dim,
                       Prepare(c, {1, 1, 1, 1, 1, 1}, {0, -1, 2, nan, 1, 1}, {}, &counts));
  EXPECT_EQ(dim, (std::vector<float>{2, 2, 0.5f, 7, 1, 1}));
}

TEST_P(TomoPrepareTest, BeamHardeningIsAPolynomialOfTheLineIntegrals) {
  PrepareConfig c = Plain(2, 3, 17);
  c.beam_hardening = {1, 0.25, -0.03, 0.002};
  Doubles raw(static_cast<size_t>(c.angles * c.rows * c.columns));
  std::uniform_real_distribution<double> uniform(0.02, 1.1);
  for (double& v : raw) v = uniform(random_);
  raw[7] = std::nan("");
  c.not_finite_value = 0.5;
  const auto hardened = [](double p) {
    return p + 0.25 * p * p - 0.03 * p * p * p + 0.002 * p * p * p * p;
  };
  for (const bool log : {true, false}) {
    c.minus_log = log;
    ASSERT_OK_AND_ASSIGN(const auto got, Prepare(c, raw, {}, {}));
    for (int64_t a = 0; a < c.angles; ++a) {
      for (int64_t r = 0; r < c.rows; ++r) {
        for (int64_t x = 0; x < c.columns; ++x) {
          const double v = raw[static_cast<size_t>((a * c.rows + r) * c.columns + x)];
          const float made = got[static_cast<size_t>((r * c.angles + a) * c.columns + x)];
          if (std::isnan(v)) {
            EXPECT_EQ(made, 0.5f) << "what is not finite stays as it was asked for";
          } else {
            ASSERT_NEAR(made, hardened(log ? -std::log(v) : v), 2e-6);
          }
        }
      }
    }
  }
}

TEST_P(TomoPrepareTest, AHardenedValueThatIsTooLargeCountsAsNotFinite) {
  PrepareConfig c = Plain(1, 1, 6);
  c.minus_log = false;
  c.not_finite_value = 2;
  c.beam_hardening = {1, 1};
  PrepareCounts counts;
  ASSERT_OK_AND_ASSIGN(const auto got,
                       Prepare(c, {1e30, -1e30, 2, 0, 3e38, 1e10}, {}, {}, &counts));
  EXPECT_EQ(got, (std::vector<float>{2, 2, 6, 0, 2, 1e20f}));
  EXPECT_EQ(counts.not_finite, 3);
}

// 1 / the expression of each method, from physics: λ = hc / E, frequencies in cycles per metre.
double PhaseDivisor(const PhaseRetrieval& p, double per_row, double per_column) {
  const double l = 1.2398419843e-9 / p.energy_kev * p.distance_mm * 1e-3 / (4 * std::numbers::pi),
               kx = 2 * std::numbers::pi * per_column / (p.pixel_size_um * 1e-6),
               ky = 2 * std::numbers::pi * per_row / (p.pixel_size_um * 1e-6),
               chi = l * (kx * kx + ky * ky);
  switch (p.method) {
    case PhaseMethod::kPaganin: return 1 + p.delta_beta * chi;
    case PhaseMethod::kGeneralized: {
      const double w = (p.feature_size_um == 0 ? p.pixel_size_um : p.feature_size_um) * 1e-6;
      return 1 - 2 * p.delta_beta * l / (w * w) * (std::cos(w * kx) + std::cos(w * ky) - 2);
    }
    case PhaseMethod::kFarago: return std::cos(chi) + p.delta_beta * std::sin(chi);
  }
  return 0;
}

TEST(TomoPhaseFilterTest, HasTheStatedFactors) {
  for (const PhaseMethod method :
       {PhaseMethod::kPaganin, PhaseMethod::kGeneralized, PhaseMethod::kFarago}) {
    for (const double feature : {0.0, 1.0, 5.0}) {
      for (const double distance : {1.0, 40.0}) {
        for (const double ratio : {0.5, 30.0, 2000.0}) {
          PhaseRetrieval p{.enabled = true,
                           .method = method,
                           .pixel_size_um = 2,
                           .distance_mm = distance,
                           .energy_kev = 30,
                           .delta_beta = ratio};
          if (method == PhaseMethod::kGeneralized) p.feature_size_um = feature;
          ASSERT_THAT(CheckPhase(p), IsOk());
          ASSERT_THAT(CheckPhaseFilter(p, 1, 1), IsOk());
          EXPECT_GT(PhaseReachPixels(p), 0);
          for (const int64_t bin : {1, 2, 4}) {
            const math::PhaseFilter filter = PhaseFilterOf(p, bin, 3 - bin > 0 ? 3 - bin : 1);
            const int64_t bin_columns = 3 - bin > 0 ? 3 - bin : 1, m = 45, n = 32;
            for (int64_t i = 0; i < m; ++i) {
              for (int64_t j = 0; j < n; ++j) {
                const double u = static_cast<double>(std::min(i, m - i)) /
                                 static_cast<double>(m * bin),
                             v = static_cast<double>(std::min(j, n - j)) /
                                 static_cast<double>(n * bin_columns);
                const double wanted = 1 / PhaseDivisor(p, u, v);
                ASSERT_NEAR(math::PhaseFactor(filter, i, m, j, n), wanted,
                            1e-5 * std::abs(wanted) + 1e-9)
                    << "method " << static_cast<int>(method) << " at " << i << ", " << j;
              }
            }
          }
        }
      }
    }
  }
}

TEST(TomoPhaseFilterTest, FaragoIsRefusedWhereItIsInfinite) {
  PhaseRetrieval p{.enabled = true,
                   .method = PhaseMethod::kFarago,
                   .pixel_size_um = 1,
                   .distance_mm = 400,
                   .energy_kev = 20,
                   .delta_beta = 100};
  EXPECT_THAT(CheckPhaseFilter(p, 1, 1), IsError(kInvalid, "phase.retrieval_method"));
  EXPECT_THAT(CheckPhaseFilter(p, 4, 4), IsOk()) << "binned pixels have no such fine structure";
  p.distance_mm = 20;
  EXPECT_THAT(CheckPhaseFilter(p, 1, 1), IsOk());
  p.method = PhaseMethod::kPaganin;
  p.distance_mm = 400;
  EXPECT_THAT(CheckPhaseFilter(p, 1, 1), IsOk());
}

constexpr PhaseRetrieval kRetrieval{
    .enabled = true, .pixel_size_um = 2, .distance_mm = 60, .energy_kev = 25, .delta_beta = 90};

std::vector<PhaseRetrieval> Retrievals() {
  std::vector<PhaseRetrieval> all(4, kRetrieval);
  all[1].method = all[2].method = PhaseMethod::kGeneralized;
  all[2].feature_size_um = 3;
  all[3].method = PhaseMethod::kFarago;
  return all;
}

TEST_P(TomoPrepareTest, PhaseRetrievalIsTheStatedFilter) {
  PrepareConfig c = Plain(2, 11, 26);
  c.minus_log = false;
  c.crop_row = 3;
  c.crop_rows = 5;
  for (const PhaseRetrieval& phase : Retrievals()) {
    c.phase = phase;
    const PreparePlan plan = PlanPrepare(c);
    Doubles raw(static_cast<size_t>(c.angles * c.rows * c.columns));
    std::uniform_real_distribution<double> uniform(0.3, 1);
    for (double& v : raw) v = uniform(random_);
    ASSERT_OK_AND_ASSIGN(const auto got, Prepare(c, raw, {}, {}));
    // The transform written as a loop, with the factor from physics.
    const int64_t m = plan.padded_rows, n = plan.padded_columns, top = (m - c.rows) / 2,
                  left = (n - c.columns) / 2;
    ASSERT_GE(top, plan.pad_rows);
    using Complex = std::complex<double>;
    const auto turn = [](int64_t a, int64_t size) {
      return std::polar(
          1.0, 2 * std::numbers::pi * static_cast<double>(a % size) / static_cast<double>(size));
    };
    const auto transform = [&](std::vector<Complex>& data, int64_t lines, int64_t size,
                               int64_t line, int64_t step, bool inverse) {
      for (int64_t l = 0; l < lines; ++l) {
        std::vector<Complex> out(static_cast<size_t>(size));
        for (int64_t k = 0; k < size; ++k) {
          for (int64_t i = 0; i < size; ++i) {
            const Complex w = turn(k * i, size);
            out[static_cast<size_t>(k)] +=
                data[static_cast<size_t>(l * line + i * step)] * (inverse ? w : std::conj(w));
          }
        }
        for (int64_t k = 0; k < size; ++k)
          data[static_cast<size_t>(l * line + k * step)] = out[static_cast<size_t>(k)];
      }
    };
    Doubles want;
    for (int64_t r = 0; r < 5; ++r) {
      for (int64_t a = 0; a < c.angles; ++a) {
        std::vector<Complex> data;
        for (int64_t y = 0; y < m; ++y) {
          for (int64_t x = 0; x < n; ++x) {
            data.emplace_back(raw[static_cast<size_t>(
                (a * c.rows + std::clamp<int64_t>(y - top, 0, c.rows - 1)) * c.columns +
                std::clamp<int64_t>(x - left, 0, c.columns - 1))]);
          }
        }
        transform(data, m, n, n, 1, false);
        transform(data, n, m, 1, n, false);
        for (int64_t y = 0; y < m; ++y) {
          for (int64_t x = 0; x < n; ++x) {
            const double v = static_cast<double>(std::min(y, m - y)) / static_cast<double>(m),
                         u = static_cast<double>(std::min(x, n - x)) / static_cast<double>(n);
            data[static_cast<size_t>(y * n + x)] /=
                PhaseDivisor(phase, v, u) * static_cast<double>(m * n);
          }
        }
        transform(data, n, m, 1, n, true);
        transform(data, m, n, n, 1, true);
        for (int64_t d = 0; d < c.columns; ++d)
          want.push_back(data[static_cast<size_t>((3 + r + top) * n + d + left)].real());
      }
    }
    ExpectNear(got, want, 2e-5);
    // Air stays air. More rows than the margin needs change nothing.
    ASSERT_OK_AND_ASSIGN(const auto air, Prepare(c, Doubles(raw.size(), 0.75), {}, {}));
    for (const float v : air) ASSERT_NEAR(v, 0.75f, 1e-5f);
    EXPECT_EQ(PrepareMargin(c), plan.pad_rows);
  }
}

// A frame that is not finite, or far too bright, changes no bit of the others.
TEST_P(TomoPrepareTest, PhaseRetrievalKeepsFramesApart) {
  for (const auto& [angles, rows, columns] :
       std::vector<std::array<int64_t, 3>>{{3, 11, 26}, {7, 5, 33}, {4, 16, 101}}) {
    PrepareConfig c = Plain(angles, rows, columns);
    c.minus_log = false;
    c.phase = {
        .enabled = true, .pixel_size_um = 2, .distance_mm = 60, .energy_kev = 25, .delta_beta = 90};
    Doubles raw(static_cast<size_t>(c.angles * c.rows * c.columns));
    std::uniform_real_distribution<double> uniform(0.3, 1);
    for (double& v : raw) v = uniform(random_);
    ASSERT_OK_AND_ASSIGN(const auto alone, Prepare(c, raw, {}, {}));
    const auto bad = static_cast<int64_t>(random_() % static_cast<uint32_t>(angles));
    for (const double value : {std::nan(""), HUGE_VAL, 1e30}) {
      Doubles spoilt = raw;
      std::fill_n(spoilt.begin() + bad * rows * columns, rows * columns, value);
      ASSERT_OK_AND_ASSIGN(const auto got, Prepare(c, spoilt, {}, {}));
      for (size_t i = 0; i < got.size(); ++i) {
        if (static_cast<int64_t>(i) / columns % angles == bad) continue;
        ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(alone[i]))
            << "at " << i << " beside frame " << bad << " of " << value << ": " << got[i]
            << ", alone " << alone[i];
      }
    }
  }
}

TEST_P(TomoPrepareTest, MoreRowsThanTheMarginChangeLittle) {
  for (const PhaseRetrieval& phase : Retrievals()) {
    PrepareConfig c = Plain(2, 64, 40);
    c.phase = phase;
    c.outliers = {.window = 5, .difference = 0.4};
    const int64_t margin = PrepareMargin(c), keep = 6, first = 30;
    ASSERT_LE(margin, 28);
    Doubles raw(static_cast<size_t>(c.angles * c.rows * c.columns));
    std::uniform_real_distribution<double> uniform(0.3, 1);
    for (double& v : raw) v = uniform(random_);
    c.crop_row = first;
    c.crop_rows = keep;
    ASSERT_OK_AND_ASSIGN(const auto whole, Prepare(c, raw, {}, {}));
    PrepareConfig part = c;
    part.rows = keep + 2 * margin;
    part.crop_row = margin;
    Doubles cut;
    for (int64_t a = 0; a < c.angles; ++a) {
      const auto from = raw.begin() + (a * c.rows + first - margin) * c.columns;
      cut.insert(cut.end(), from, from + part.rows * c.columns);
    }
    ASSERT_OK_AND_ASSIGN(const auto chunk, Prepare(part, cut, {}, {}));
    ASSERT_EQ(chunk.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(chunk[i], whole[i], 2e-3f) << i;
  }
}

TEST_P(TomoPrepareTest, StitchingMakesTheWideScan) {
  // Two blobs, seen over 360° by a detector that ends beyond the axis. The wide scan sees them over
  // 180°.
  const int64_t angles = 60, columns = 90;
  const auto see = [](double angle, double s) {
    const double blobs[][4] = {{30, 10, 6, 1}, {-50, 20, 9, 0.5}};
    double sum = 0;
    for (const auto& [x, y, width, height] : blobs) {
      const double off = (s - (x * std::cos(angle) + y * std::sin(angle))) / width;
      sum += height * std::exp(-off * off);
    }
    return sum;
  };
  for (const bool right : {false, true}) {
    for (const double overlap : {24.0, 25.0, 24.6}) {
      PrepareConfig c = Plain(angles, 2, columns);
      c.minus_log = false;
      c.stitching = {.enabled = true, .axis_right = right, .overlap = overlap};
      const double center =
          right ? static_cast<double>(columns - 1) - 0.5 * (overlap - 1) : 0.5 * (overlap - 1);
      Doubles raw;
      for (int64_t a = 0; a < angles; ++a) {
        for (int64_t r = 0; r < 2; ++r) {
          for (int64_t d = 0; d < columns; ++d) {
            raw.push_back(
                see(2 * std::numbers::pi * static_cast<double>(a) / static_cast<double>(angles),
                    static_cast<double>(d) - center));
          }
        }
      }
      ASSERT_OK_AND_ASSIGN(const PreparedShape shape, CheckPrepare(c));
      EXPECT_EQ(shape.angles, angles / 2);
      EXPECT_EQ(shape.detectors, 2 * columns - static_cast<int64_t>(std::ceil(overlap)));
      ASSERT_OK_AND_ASSIGN(const auto got, Prepare(c, raw, {}, {}));
      const double axis = PreparedCenter(c, 0);
      // An overlap of whole columns copies values; a fractional one interpolates linearly between
      // bins.
      const double tolerance = overlap == std::floor(overlap) ? 1e-6 : 0.01;
      for (int64_t i = 0; i < shape.elements(); ++i) {
        const auto a = static_cast<double>(i / shape.detectors % shape.angles),
                   d = static_cast<double>(i % shape.detectors);
        ASSERT_NEAR(static_cast<double>(got[static_cast<size_t>(i)]),
                    see(2 * std::numbers::pi * a / static_cast<double>(angles), d - axis),
                    tolerance)
            << "right " << right << " overlap " << overlap << " at " << i;
      }
      const auto prepared = PreparedAngles(c, Doubles(static_cast<size_t>(angles), 1.0));
      EXPECT_EQ(prepared.size(), static_cast<size_t>(angles / 2));
    }
  }
}

TEST_P(TomoPrepareTest, ARollMatchesTheModel) {
  const double rolls[] = {0.2, -0.2, 1, -1, 5, -5, 0.001, 2.5};
  for (size_t round = 0; round < 24; ++round) {
    const auto pick = [&](int64_t n) {
      return static_cast<int64_t>(random_() % static_cast<uint64_t>(n));
    };
    const int64_t bins[] = {1, 2, 4};
    PrepareConfig c = Plain(3 + pick(5), 6 + pick(40), 12 + pick(150));
    const DType types[] = {DType::kU8, DType::kU16, DType::kI16, DType::kF32};
    c.dtype = c.field_dtype = types[round % 4];
    c.roll.degrees = rolls[round % std::size(rolls)];
    c.row_first = pick(2) != 0;
    c.flats = pick(3);
    c.darks = pick(3);
    if (c.flats == 2 && pick(2) != 0) {
      c.flat_series = {1, 1};
      c.flat_times = {0, static_cast<double>(c.angles)};
    }
    c.bin_rows = bins[pick(3)];
    c.bin_columns = bins[pick(3)];
    c.bin_angles = bins[pick(2)];
    if (pick(2) != 0) {
      c.crop_row = pick(c.rows - c.bin_rows + 1);
      c.crop_column = pick(c.columns / 4);
      c.crop_columns = std::max(2 * c.bin_columns, c.columns / 2 + pick(c.columns / 4));
    }
    if (pick(3) == 0) c.outliers = {.window = 3, .difference = 20, .dark_too = pick(2) != 0};
    if (pick(3) == 0) AddAir(1 + pick(2), pick(3), &c);
    c.minus_log = pick(3) != 0;
    const double light = c.dtype == DType::kU8 ? 200 : 2000;
    // Never near 0: there, rounding of f32 would weigh heavily after the logarithm.
    const Doubles raw = Counts(c.angles * c.rows * c.columns, 0.6 * light, light),
                  flats = Counts(c.flats * c.rows * c.columns, 0.9 * light, light),
                  darks = Counts(c.darks * c.rows * c.columns, 3, 9);
    PrepareCounts want_counts, counts;
    const Doubles want = PrepareTurnedModel(c, raw, flats, darks, &want_counts);
    ASSERT_OK_AND_ASSIGN(const auto got, Prepare(c, raw, flats, darks, &counts));
    SCOPED_TRACE(::testing::Message()
                 << "round " << round << ": " << c.roll.degrees << " degrees, " << c.angles << " x "
                 << c.rows << " x " << c.columns << " " << Info(c.dtype).name << " bins "
                 << c.bin_angles << " " << c.bin_rows << " " << c.bin_columns);
    ExpectNear(got, want, 3 * kTolerance);
    EXPECT_EQ(counts.outliers, want_counts.outliers);
    EXPECT_EQ(counts.not_finite, want_counts.not_finite);
    EXPECT_EQ(counts.unlit, want_counts.unlit);
    EXPECT_EQ(counts.floored, want_counts.floored);
  }
}

// A line that leans by the roll stands upright afterwards.
TEST_P(TomoPrepareTest, ARollMakesALeaningLineParallelToTheColumns) {
  PrepareConfig c = Plain(1, 120, 161);
  c.minus_log = false;
  for (const double degrees : {-5.0, -1.0, 0.3, 2.0, 5.0}) {
    const double slope = std::tan(degrees * std::numbers::pi / 180), at = 73.4;
    Doubles raw;
    for (int64_t r = 0; r < c.rows; ++r) {
      const double line = at + slope * (static_cast<double>(r) - 59.5);
      for (int64_t x = 0; x < c.columns; ++x) {
        const double off = (static_cast<double>(x) - line) / 3;
        raw.push_back(std::exp(-0.5 * off * off));
      }
    }
    c.roll.degrees = degrees;
    ASSERT_OK_AND_ASSIGN(const auto turned, Prepare(c, raw, {}, {}));
    const double want = 80 + (at - 80) * std::cos(degrees * std::numbers::pi / 180);
    for (int64_t r = 0; r < c.rows; ++r) {
      double sum = 0, moment = 0;
      for (int64_t x = 0; x < c.columns; ++x) {
        const double value = static_cast<double>(turned[static_cast<size_t>(r * c.columns + x)]);
        sum += value;
        moment += value * static_cast<double>(x);
      }
      // At the upper and lower ends the outermost row goes on in the direction of the columns.
      if (r >= 2 && r < c.rows - 2) {
        ASSERT_NEAR(moment / sum, want, 0.02) << degrees << " degrees, row " << r;
      }
    }
  }
}

// Batches of rows with the margin give the same bits as all rows at once, with phase retrieval
// nearly the same.
TEST_P(TomoPrepareTest, ARollDoesNotDependOnTheBatch) {
  for (const double degrees : {-3.0, 0.4, 5.0}) {
    for (const bool phase : {false, true}) {
      PrepareConfig c = Plain(3, 90, 48);
      c.roll = {.degrees = degrees, .rows = 90, .first_row = 0};
      c.outliers = {.window = 3, .difference = 0.3};
      c.bin_rows = 2;
      if (phase) {
        c.phase = {.enabled = true,
                   .pixel_size_um = 2,
                   .distance_mm = 10,
                   .energy_kev = 25,
                   .delta_beta = 50};
      }
      Doubles raw(static_cast<size_t>(c.angles * c.rows * c.columns));
      std::uniform_real_distribution<double> uniform(0.4, 1);
      for (double& v : raw) v = uniform(random_);
      ASSERT_OK_AND_ASSIGN(const auto whole, Prepare(c, raw, {}, {}));
      const int64_t margin = PrepareMargin(c), row = c.angles * c.columns;
      for (int64_t first = 0; first < c.rows; first += 30) {
        const int64_t from = std::max<int64_t>(0, first - margin),
                      to = std::min(c.rows, first + 30 + margin);
        PrepareConfig part = c;
        part.rows = to - from;
        part.roll.first_row = from;
        part.crop_row = first - from;
        part.crop_rows = 30;
        Doubles cut;
        for (int64_t a = 0; a < c.angles; ++a) {
          const auto begin = raw.begin() + (a * c.rows + from) * c.columns;
          cut.insert(cut.end(), begin, begin + part.rows * c.columns);
        }
        ASSERT_OK_AND_ASSIGN(const auto chunk, Prepare(part, cut, {}, {}));
        ASSERT_EQ(std::ssize(chunk), 15 * row);
        for (size_t i = 0; i < chunk.size(); ++i) {
          const float want = whole[static_cast<size_t>(first / 2 * row) + i];
          if (phase) {
            ASSERT_NEAR(chunk[i], want, 6e-3f) << degrees << " degrees, rows from " << first;
          } else {
            ASSERT_EQ(chunk[i], want) << degrees << " degrees, rows from " << first;
          }
        }
      }
    }
  }
}

// A pixel that is not finite makes one such value, not all that the interpolation reads.
TEST_P(TomoPrepareTest, ARollKeepsHolesSmall) {
  PrepareConfig c = Plain(1, 40, 40);
  c.not_finite_value = 7;
  c.roll.degrees = 2;
  Doubles raw(1600, 0.5);
  raw[20 * 40 + 13] = std::numeric_limits<double>::quiet_NaN();
  raw[8 * 40 + 30] = std::numeric_limits<double>::infinity();
  PrepareCounts counts;
  ASSERT_OK_AND_ASSIGN(const auto got, Prepare(c, raw, {}, {}, &counts));
  int holes = 0;
  for (const float value : got) {
    holes += value == 7;
    if (value != 7) ASSERT_NEAR(value, std::log(2.0f), 1e-5f);
  }
  EXPECT_GE(holes, 1);
  EXPECT_LE(holes, 4) << "each pixel is nearest to one or two";
  EXPECT_EQ(counts.not_finite, holes);
}

TEST_P(TomoPrepareTest, KeepsToItsMemoryAndOrder) {
  PrepareConfig c = Plain(20, 9, 50);
  c.flats = 3;
  c.darks = 2;
  c.outliers = {.window = 3, .difference = 30};
  c.phase = {
      .enabled = true, .pixel_size_um = 2, .distance_mm = 60, .energy_kev = 25, .delta_beta = 30};
  c.crop_row = 2;
  c.crop_rows = 4;
  c.air_left = c.air_right = 3;
  c.stitching = {.enabled = true, .overlap = 20};
  c.rings = {{.method = RingMethod::kAllStripe, .sorting_window = 5, .stripe_window = 9},
             {.method = RingMethod::kFourierWavelet}};
  const Doubles raw = Counts(20 * 9 * 50, 200, 1000), flats = Counts(3 * 9 * 50, 900, 1000),
                darks = Counts(2 * 9 * 50, 3, 9);
  ASSERT_OK_AND_ASSIGN(const auto plain, Prepare(c, raw, flats, darks));
  testing::UnrulyDevice unruly(device_, {.seed = 3, .longest_delay_ns = 200'000});
  {
    ASSERT_OK_AND_ASSIGN(const auto late, Prepare(c, raw, flats, darks, nullptr, &unruly));
    EXPECT_EQ(plain, late);
  }
  EXPECT_EQ(unruly.guards_broken(), 0);
  ASSERT_OK_AND_ASSIGN(const int64_t bytes, Preparer::DeviceBytes(c, device_));
  EXPECT_GT(bytes, 20 * 9 * 50 * 4);
  c.roll.degrees = 1.5;
  ASSERT_OK_AND_ASSIGN(const auto turned, Prepare(c, raw, flats, darks));
  EXPECT_NE(turned, plain);
  testing::UnrulyDevice again(device_, {.seed = 4, .longest_delay_ns = 200'000});
  {
    ASSERT_OK_AND_ASSIGN(const auto late, Prepare(c, raw, flats, darks, nullptr, &again));
    EXPECT_EQ(turned, late);
  }
  EXPECT_EQ(again.guards_broken(), 0);
  ASSERT_OK_AND_ASSIGN(const int64_t more, Preparer::DeviceBytes(c, device_));
  EXPECT_GE(more, bytes + 20 * 9 * 50 * 4) << "the frames before the turn";
  c.dtype = c.field_dtype = DType::kU16;
  ASSERT_OK_AND_ASSIGN(const auto numbers, Prepare(c, raw, flats, darks));
  c.packing = c.field_packing = math::Packing::kLowFirst12;
  testing::UnrulyDevice packed(device_, {.seed = 5, .longest_delay_ns = 200'000});
  {
    ASSERT_OK_AND_ASSIGN(const auto late, Prepare(c, raw, flats, darks, nullptr, &packed));
    EXPECT_EQ(numbers, late);
  }
  EXPECT_EQ(packed.guards_broken(), 0);
  ASSERT_OK_AND_ASSIGN(const int64_t unpacked, Preparer::DeviceBytes(c, device_));
  EXPECT_GE(unpacked, more + 20 * 9 * 50 * 2) << "the counts as numbers";
}

TEST_P(TomoPrepareTest, NamesTheFieldAtFault) {
  const auto refuses = [&](const char* field, auto change) {
    PrepareConfig c = Plain(8, 6, 32);
    c.flats = 2;
    change(c);
    EXPECT_THAT(Preparer::Create(c, device_), IsError(kInvalid, field));
    EXPECT_THAT(Preparer::DeviceBytes(c, device_), IsError(kInvalid, field));
    const absl::Status status = CheckPrepare(c).status();
    EXPECT_EQ(InfoOf(status).field, field);
  };
  refuses("dtype", [](auto& c) { c.dtype = DType::kC64; });
  refuses("field_dtype", [](auto& c) { c.field_dtype = DType::kI8; });
  refuses("dtype", [](auto& c) { c.packing = math::Packing::kLowFirst12; });
  refuses("field_dtype", [](auto& c) { c.field_packing = math::Packing::kHighFirst12; });
  refuses("angles", [](auto& c) { c.angles = 0; });
  refuses("rows", [](auto& c) { c.rows = 70000; });
  refuses("columns", [](auto& c) { c.columns = 1; });
  refuses("flats", [](auto& c) { c.flats = -1; });
  refuses("denominator_floor", [](auto& c) { c.denominator_floor = 0; });
  refuses("cutoff", [](auto& c) { c.has_cutoff = true, c.cutoff = -1; });
  refuses("flat_series", [](auto& c) { c.flat_series = {1}, c.flat_times = {0}; });
  refuses("flat_times[1]", [](auto& c) { c.flat_series = {1, 1}, c.flat_times = {2, 2}; });
  refuses("flat_times", [](auto& c) { c.flat_times = {2, 3}; });
  refuses("angle_times", [](auto& c) { c.angle_times = {2, 3}; });
  refuses("bin_rows", [](auto& c) { c.bin_rows = 3; });
  refuses("bin_angles", [](auto& c) { c.bin_angles = 8; });
  refuses("crop_row", [](auto& c) { c.crop_row = 6; });
  refuses("crop_columns", [](auto& c) { c.crop_columns = 33; });
  refuses("outliers.window", [](auto& c) { c.outliers.window = 4; });
  refuses("outliers.difference", [](auto& c) { c.outliers.window = 3; });
  for (const double degrees : {5.01, -90.0, std::nan(""), HUGE_VAL})
    refuses("roll_degrees", [=](auto& c) { c.roll.degrees = degrees; });
  refuses("roll_rows", [](auto& c) { c.roll = {.degrees = 1, .rows = 5}; });
  refuses("roll_first_row", [](auto& c) { c.roll = {.degrees = 1, .rows = 8, .first_row = 3}; });
  // Values in a wrong unit, and missing values.
  const auto phase = [](double pixel, double distance, double energy, double delta_beta) {
    return [=](auto& c) {
      c.phase = {.enabled = true,
                 .pixel_size_um = pixel,
                 .distance_mm = distance,
                 .energy_kev = energy,
                 .delta_beta = delta_beta};
    };
  };
  for (const double energy : {0.0, 0.02, 20'000.0, -20.0, std::nan("")})
    refuses("phase.energy_kev", phase(1, 100, energy, 90));
  for (const double pixel : {0.0, 1.3e-6, 2000.0})
    refuses("phase.pixel_size_um", phase(pixel, 100, 20, 90));
  for (const double distance : {0.0, -1.0, 1e8})
    refuses("phase.distance_mm", phase(1, distance, 20, 90));
  for (const double delta_beta : {0.0, -5.0, 1e9})
    refuses("phase.delta_beta", phase(1, 100, 20, delta_beta));
  refuses("phase.feature_size_um", [](auto& c) {
    c.phase = kRetrieval;
    c.phase.feature_size_um = 3;
  });
  for (const double feature : {-1.0, 5000.0, std::nan("")})
    refuses("phase.feature_size_um", [=](auto& c) {
      c.phase = kRetrieval;
      c.phase.method = PhaseMethod::kGeneralized;
      c.phase.feature_size_um = feature;
    });
  refuses("phase.retrieval_method", [](auto& c) {
    c.phase = kRetrieval;
    c.phase.method = PhaseMethod::kFarago;
    c.phase.distance_mm = 400;
  });
  for (const double first : {0.0, -1.0})
    refuses("beam_hardening[0]", [=](auto& c) { c.beam_hardening = {first, 1}; });
  refuses("beam_hardening[1]", [](auto& c) { c.beam_hardening = {1, std::nan("")}; });
  refuses("beam_hardening", [](auto& c) { c.beam_hardening = Doubles(7, 1); });
  refuses("log_floor", [](auto& c) { c.log_floor = std::nan(""); });
  refuses("air_left", [](auto& c) { c.air_left = 33; });
  refuses("air_right", [](auto& c) { c.air_left = 20, c.air_right = 13; });
  refuses("stitching.overlap", [](auto& c) { c.stitching = {.enabled = true, .overlap = 40}; });
  refuses("stitching.half_turn",
          [](auto& c) { c.stitching = {.enabled = true, .overlap = 4, .half_turn = 5}; });
  refuses("rings[0].sorting_window", [](auto& c) { c.rings = {{.sorting_window = 4}}; });
  refuses("rings[1].wavelet_sigma", [](auto& c) {
    c.rings = {{}, {.method = RingMethod::kFourierWavelet, .wavelet_sigma = 0}};
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, TomoPrepareTest,
                         ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

}  // namespace
}  // namespace octavo

// The surface of a sample: the steepest rise against plain loops in double precision, and planted
// surfaces under padding, window reflections and coverslips.

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"

#include "tests/gpu/array/array_ops_fixture.h"
#include "tests/support/seed.h"

namespace octavo {
namespace {

using testing::HostArray;
using testing::IsError;
using testing::MakeRandom;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr Scalar kReal[] = {Scalar::kU8,  Scalar::kI8,  Scalar::kU16, Scalar::kI16,
                            Scalar::kF16, Scalar::kF32, Scalar::kF64, Scalar::kU32,
                            Scalar::kI32, Scalar::kU64, Scalar::kI64};

// A sample of an axis of n that continues d c b a | a b c d | d c b a.
int64_t Reflected(int64_t i, int64_t n) {
  while (i < 0 || i >= n) i = i < 0 ? -1 - i : 2 * n - 1 - i;
  return i;
}

class SurfaceTest : public testing::OpsTest {
 protected:
  std::mt19937 random_{testing::FreshSeed()};

  int64_t Draw(int64_t lo, int64_t hi) {
    return std::uniform_int_distribution<int64_t>(lo, hi)(random_);
  }
  // The array [rows, columns, n] with its last axis moved to `axis`; `rank` 2: without rows.
  static HostArray Arrange(Scalar scalar, int64_t rows, int64_t columns, int64_t n, int rank,
                           int axis, const std::vector<double>& values) {
    std::vector<int64_t> dims =
        rank == 3 ? std::vector<int64_t>{rows, columns} : std::vector<int64_t>{columns};
    dims.insert(dims.begin() + axis, n);
    HostArray array{.type = {.scalar = scalar, .dims = dims}, .bytes = {}};
    array.bytes.resize(static_cast<size_t>(array.type.bytes()));
    for (int64_t line = 0; line < rows * columns; ++line) {
      for (int64_t z = 0; z < n; ++z) {
        std::vector<int64_t> index = rank == 3
                                         ? std::vector<int64_t>{line / columns, line % columns}
                                         : std::vector<int64_t>{line};
        index.insert(index.begin() + axis, z);
        int64_t at = 0;
        for (size_t d = 0; d < dims.size(); ++d) at = at * dims[d] + index[d];
        math::Store(scalar, array.bytes.data(), at, {values[static_cast<size_t>(line * n + z)], 0});
      }
    }
    return array;
  }
};

TEST_P(SurfaceTest, SteepestRiseAgainstPlainLoops) {
  for (int round = 0; round < 60; ++round) {
    const Scalar scalar = kReal[static_cast<size_t>(round) % std::size(kReal)];
    const int rank = static_cast<int>(Draw(2, 3)), axis = static_cast<int>(Draw(0, rank - 1));
    const int64_t rows = rank == 3 ? Draw(1, 9) : 1, columns = Draw(1, 12), n = Draw(1, 70);
    const bool masked = Draw(0, 1) == 1, cutting = Draw(0, 1) == 1, log = Draw(0, 1) == 1;
    const int64_t order = Draw(0, 2), size = Draw(0, 6);
    const double sigma = Draw(0, 3) == 0 ? 0.25 : 0.5 + 0.1 * static_cast<double>(Draw(0, 30));
    const bool is_unsigned = scalar == Scalar::kU8 || scalar == Scalar::kU16 ||
                             scalar == Scalar::kU32 || scalar == Scalar::kU64;
    std::vector<double> values, marks;
    for (int64_t i = 0; i < rows * columns * n; ++i) {
      values.push_back(static_cast<double>(Draw(is_unsigned ? 0 : -20, 120)));
      marks.push_back(Draw(0, 3) == 0 ? 0 : 7);
    }
    if (masked) std::fill_n(marks.begin(), n, 0);  // nothing of the first column
    const HostArray in = Arrange(scalar, rows, columns, n, rank, axis, values),
                    mask = Arrange(Scalar::kU8, rows, columns, n, rank, axis, marks);
    SurfaceOp op{.axis = axis,
                 .keep_dims = true,
                 .method = SurfaceMethod::kGradient,
                 .sigma = sigma,
                 .lateral_size = size,
                 .order = order,
                 .logarithm = log,
                 .detect_cutting_errors = cutting};
    if (masked) op.mask = {0};
    const HostArray out = Run({op}, in, {mask});
    std::vector<int64_t> dims = in.type.dims;
    dims[static_cast<size_t>(axis)] = 1;
    ASSERT_EQ(out.type, (ArrayType{.scalar = Scalar::kF32, .dims = dims}));

    if (log) {
      for (double& v : values) v = v > 0 ? std::log(v) : v;
    }
    // The means over columns.
    std::vector<double> means(values.size());
    const int64_t window = std::max<int64_t>(1, size), down = rank == 3 ? window : 1;
    for (int64_t i = 0; i < rows * columns * n; ++i) {
      const int64_t y = i / n / columns, x = i / n % columns, z = i % n;
      double sum = 0;
      for (int64_t a = 0; a < down; ++a) {
        for (int64_t b = 0; b < window; ++b) {
          const int64_t r = Reflected(y - down / 2 + a, rows),
                        c = Reflected(x - window / 2 + b, columns);
          sum += values[static_cast<size_t>((r * columns + c) * n + z)];
        }
      }
      means[static_cast<size_t>(i)] = sum / static_cast<double>(down * window);
    }
    const auto radius = static_cast<int64_t>(4 * sigma + 0.5);
    for (int64_t line = 0; line < rows * columns; ++line) {
      const std::string what =
          absl::StrCat(in.type.Text(), " axis ", axis, " line ", line, " sigma ", sigma, " order ",
                       order, " masked ", masked, " cutting ", cutting);
      std::vector<int64_t> left;
      for (int64_t z = 0; z < n; ++z) {
        if (!masked || marks[static_cast<size_t>(line * n + z)] != 0) left.push_back(z);
      }
      const double got = out.at(line).real();
      if (left.empty()) {
        ASSERT_TRUE(std::isnan(got)) << what;
        continue;
      }
      const auto filtered = [&](int64_t derivative) {
        std::vector<double> result(static_cast<size_t>(n), 0.0);
        const auto count = static_cast<int64_t>(left.size());
        for (int64_t k = 0; k < count; ++k) {
          double sum = 0, weights = 0;
          for (int64_t t = -radius; t <= radius; ++t) {
            const double x = static_cast<double>(t),
                         weight = radius == 0 ? 1 : std::exp(-0.5 * x * x / (sigma * sigma));
            const double factor = derivative == 0 ? 1
                                  : derivative == 1
                                      ? x / (sigma * sigma)
                                      : x * x / std::pow(sigma, 4) - 1 / (sigma * sigma);
            weights += weight;
            sum += weight * factor *
                   means[static_cast<size_t>(line * n +
                                             left[static_cast<size_t>(Reflected(k + t, count))])];
          }
          result[static_cast<size_t>(left[static_cast<size_t>(k)])] = sum / weights;
        }
        return result;
      };
      // Any of the maxima that rounding to f32 cannot tell apart.
      const auto peaks = [&](std::vector<double> v, bool magnitude) {
        if (magnitude) {
          for (double& one : v) one = std::abs(one);
        }
        const double most = *std::max_element(v.begin(), v.end());
        std::vector<double> places;
        for (int64_t z = 0; z < n; ++z) {
          if (v[static_cast<size_t>(z)] >= most - 1e-4) places.push_back(static_cast<double>(z));
        }
        return places;
      };
      bool found = false;
      for (const double z : peaks(filtered(order), false)) {
        const double place = std::ceil(z + 0.5 * sigma);
        std::vector<double> tops = {1e9};
        if (cutting) tops = peaks(filtered(0), true);
        for (const double top : tops)
          found |= got == std::min({place, top, static_cast<double>(n - 1)});
      }
      ASSERT_TRUE(found) << what << ": " << got;
    }
  }
}

TEST_P(SurfaceTest, ColumnsThatHoldNanHaveNoSteepestRise) {
  HostArray in = MakeRandom({.scalar = Scalar::kF32, .dims = {3, 30}}, 1);
  math::Store(Scalar::kF32, in.bytes.data(), 47, {NAN, 0});
  const HostArray out = Run(
      {SurfaceOp{.method = SurfaceMethod::kGradient, .lateral_size = 0, .logarithm = false}}, in);
  EXPECT_FALSE(std::isnan(out.at(0).real()));
  EXPECT_TRUE(std::isnan(out.at(1).real()));
  EXPECT_FALSE(std::isnan(out.at(2).real()));
}

TEST_P(SurfaceTest, FindsPlantedSurfaces) {
  for (int round = 0; round < 12; ++round) {
    const Scalar scalar = round % 3 == 0   ? Scalar::kU16
                          : round % 3 == 1 ? Scalar::kF32
                                           : Scalar::kF64;
    const int rank = round % 2 == 0 ? 3 : 2, axis = static_cast<int>(Draw(0, rank - 1));
    const int64_t rows = rank == 3 ? Draw(20, 40) : 1, columns = Draw(60, 90), n = 160;
    const double tilt = static_cast<double>(Draw(-10, 10)) / 60, bend = 0.004;
    std::normal_distribution<double> noise(0, 100);
    std::vector<double> values(static_cast<size_t>(rows * columns * n)), wanted;
    const int64_t padding = Draw(0, 12), gain = Draw(1, 4);
    for (int64_t line = 0; line < rows * columns; ++line) {
      const double y = static_cast<double>(line / columns), x = static_cast<double>(line % columns);
      const double top = 75 + tilt * (x - 30) + bend * (y - 15) * (y - 15);
      wanted.push_back(top);
      for (int64_t z = 0; z < n; ++z) {
        const double depth = static_cast<double>(z) - top;
        double v = 1000 + noise(random_);
        if (z < padding + 8) v += 1500;                     // a window's reflection
        if (std::abs(depth + 25) < 2) v += 3000;            // a coverslip
        if (depth >= 0) v += 1200 * std::exp(-depth / 60);  // tissue
        values[static_cast<size_t>(line * n + z)] =
            z < padding ? 0 : std::max(1.0, v * static_cast<double>(gain));
      }
    }
    const HostArray in = Arrange(scalar, rows, columns, n, rank, axis, values);
    const HostArray out = Run({SurfaceOp{.axis = axis - rank}}, in);
    int64_t near = 0;
    for (int64_t line = 0; line < rows * columns; ++line) {
      if (std::abs(out.at(line).real() - wanted[static_cast<size_t>(line)]) < 3) ++near;
    }
    EXPECT_GE(static_cast<double>(near), 0.97 * static_cast<double>(rows * columns))
        << in.type.Text() << " axis " << axis;
    // Nothing of the surface is left where the mask leaves what lies above it.
    std::vector<double> marks(values.size(), 0.0);
    for (size_t i = 0; i < marks.size(); ++i) marks[i] = static_cast<int64_t>(i) % n < 40 ? 1 : 0;
    const HostArray mask = Arrange(Scalar::kU8, rows, columns, n, rank, axis, marks);
    const HostArray above =
        Run({SurfaceOp{.axis = axis, .mask = {0}, .thickness = 30}}, in, {mask});
    for (int64_t line = 0; line < rows * columns; ++line)
      ASSERT_FALSE(above.at(line).real() > 40) << line;
  }
}

TEST_P(SurfaceTest, TilesHaveThresholdsOfTheirOwn) {
  // Two tiles side by side, the second a hundred times as bright: one threshold loses the first.
  const int64_t columns = 128, n = 100;
  std::vector<double> values;
  std::normal_distribution<double> noise(0, 2);
  for (int64_t x = 0; x < columns; ++x) {
    for (int64_t z = 0; z < n; ++z)
      values.push_back((x < 64 ? 1 : 100) * (20 + noise(random_) + (z >= 50 ? 40 : 0)));
  }
  const HostArray in = Arrange(Scalar::kF32, 1, columns, n, 2, 1, values);
  const HostArray one = Run({SurfaceOp{}}, in),
                  two = Run({SurfaceOp{.lateral_sigma = 0.0, .tile = {64}}}, in);
  EXPECT_FALSE(std::abs(one.at(10).real() - 50) < 2);
  for (const int64_t x : {10, 50, 80, 120}) EXPECT_NEAR(two.at(x).real(), 49.5, 1.5) << x;
}

TEST_P(SurfaceTest, BlurredEdgesAreFoundWhereTheyAre) {
  // The middle of an edge, whatever the blur of the instrument, the brightness and the filter are.
  const int64_t columns = 90, n = 140;
  for (const double blur : {0.3, 1.5, 3.0}) {
    for (const double sigma : {0.0, 1.5, 3.0}) {
      for (const double bright : {60.0, 400.0}) {
        const double edge = 60 + static_cast<double>(Draw(0, 9)) / 10;
        std::normal_distribution<double> noise(0, 2);
        std::vector<double> values;
        for (int64_t i = 0; i < columns * n; ++i) {
          const double depth = static_cast<double>(i % n) - edge;
          values.push_back(20 + noise(random_) +
                           bright / 2 * (1 + std::erf(depth / blur / std::sqrt(2))));
        }
        const HostArray out = Run({SurfaceOp{.sigma = sigma, .lateral_sigma = 2.0}},
                                  Arrange(Scalar::kF32, 1, columns, n, 2, 1, values));
        double mean = 0;
        for (int64_t x = 0; x < columns; ++x) mean += out.at(x).real() / columns;
        // An edge that is nearly as wide as the tissue that confirms it has no plateau to tell.
        EXPECT_NEAR(mean, edge, std::hypot(blur, sigma) > 2.5 ? 0.5 : 0.2)
            << blur << " " << sigma << " " << bright;
      }
    }
  }
}

TEST_P(SurfaceTest, NothingIsFoundInNothing) {
  for (const double value : {0.0, 7.0}) {
    const HostArray in = Arrange(Scalar::kF32, 4, 5, 50, 3, 2, std::vector<double>(1000, value));
    const HostArray out = Run({SurfaceOp{.zero_is_data = value == 0}}, in);
    for (int64_t i = 0; i < 20; ++i) EXPECT_TRUE(std::isnan(out.at(i).real())) << value;
  }
}

TEST_P(SurfaceTest, RefusesWhatMakesNoSense) {
  const ArrayType in{.scalar = Scalar::kU16, .dims = {4, 5, 60}};
  const auto gradient = [](SurfaceOp op) {
    op.method = SurfaceMethod::kGradient;
    return op;
  };
  EXPECT_THAT(Refused({SurfaceOp{.axis = 3}}, in), IsError(kInvalid, "surface.axis: is 3"));
  EXPECT_THAT(Refused({SurfaceOp{}}, {.scalar = Scalar::kC64, .dims = {4, 5}}),
              IsError(kInvalid, "surface: has no meaning"));
  EXPECT_THAT(Refused({SurfaceOp{}}, {.scalar = Scalar::kF32, .dims = {40}}),
              IsError(kInvalid, "surface: is of f32"));
  EXPECT_THAT(Refused({SurfaceOp{.sigma = -1}}, in), IsError(kInvalid, "surface.sigma: is -1"));
  EXPECT_THAT(Refused({SurfaceOp{.lateral_sigma = NAN}}, in),
              IsError(kInvalid, "surface.lateral_sigma: is nan"));
  EXPECT_THAT(Refused({SurfaceOp{.thickness = 0.2}}, in),
              IsError(kInvalid, "surface.thickness: is 0.2"));
  EXPECT_THAT(Refused({SurfaceOp{.thickness = 61}}, in),
              IsError(kInvalid, "surface.thickness: is 61; allowed 1 to 60"));
  EXPECT_THAT(Refused({SurfaceOp{.thickness = 1, .step = 5}}, in),
              IsError(kInvalid, "surface.thickness_um: is 1"));
  EXPECT_THAT(Refused({SurfaceOp{.tile = {3}}}, in), IsError(kInvalid, "surface.tile: has 1"));
  EXPECT_THAT(Refused({SurfaceOp{.tile = {3, -1}}}, in), IsError(kInvalid, "surface.tile: has -1"));
  EXPECT_THAT(Refused({SurfaceOp{.order = 1}}, in), IsError(kInvalid, "surface.order: is given"));
  EXPECT_THAT(Refused({gradient({.order = 3})}, in), IsError(kInvalid, "surface.order: is 3"));
  EXPECT_THAT(Refused({gradient({.sigma = 0.0})}, in), IsError(kInvalid, "surface.sigma: is 0"));
  EXPECT_THAT(Refused({gradient({.thickness = 5})}, in),
              IsError(kInvalid, "surface.thickness: is given; only OTSU"));
  EXPECT_THAT(Refused({gradient({.lateral_size = 70000})}, in),
              IsError(kInvalid, "surface.lateral_size: is 70000"));
}

INSTANTIATE_TEST_SUITE_P(Backends, SurfaceTest, ::testing::ValuesIn(testing::AvailableBackends()),
                         testing::BackendName);

}  // namespace
}  // namespace octavo

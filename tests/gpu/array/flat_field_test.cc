// Flat fields and focal curvature: what is left of a planted illumination or curvature, and the
// division of mosaics with partial tiles against plain loops.

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"

#include "tests/gpu/array/array_ops_fixture.h"
#include "tests/support/seed.h"

namespace octavo {
namespace {

using testing::Complex;
using testing::HostArray;
using testing::IsError;
using testing::kAll;
using testing::MakeRandom;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

HostArray Floats(std::vector<int64_t> dims, const std::function<double(int64_t)>& at,
                 Scalar scalar = Scalar::kF32) {
  HostArray array{.type = {.scalar = scalar, .dims = std::move(dims)}, .bytes = {}};
  array.bytes.resize(static_cast<size_t>(array.type.bytes()));
  for (int64_t i = 0; i < array.type.numbers(); ++i)
    math::Store(scalar, array.bytes.data(), i, {at(i), 0});
  return array;
}

class FlatFieldTest : public testing::OpsTest {
 protected:
  std::mt19937 random_{testing::FreshSeed()};
  double Uniform(double lo, double hi) {
    return std::uniform_real_distribution<double>(lo, hi)(random_);
  }
  // An illumination of mean 1: quadratic, or with finer structure.
  std::vector<double> Illumination(int64_t rows, int64_t columns, bool fine) {
    const double cy = Uniform(-0.3, 0.3), cx = Uniform(-0.3, 0.3), ty = Uniform(-0.1, 0.1),
                 tx = Uniform(-0.1, 0.1), ripple = fine ? 0.06 : 0;
    std::vector<double> flat;
    double sum = 0;
    for (int64_t i = 0; i < rows * columns; ++i) {
      const double y = 2 * static_cast<double>(i / columns) / static_cast<double>(rows - 1) - 1,
                   x = 2 * static_cast<double>(i % columns) / static_cast<double>(columns - 1) - 1;
      flat.push_back(1 - 0.2 * ((y - cy) * (y - cy) + (x - cx) * (x - cx)) + ty * y + tx * x +
                     ripple * std::cos(4 * x) * std::sin(3 * y));
      sum += flat.back();
    }
    for (double& v : flat) v *= static_cast<double>(flat.size()) / sum;
    return flat;
  }
  // Tiles of random brightness under the illumination, with noise and a few bright objects.
  std::vector<double> Tiles(const std::vector<double>& flat, int64_t tiles, int64_t rows,
                            int64_t columns) {
    std::normal_distribution<double> noise(1, 0.03);
    std::vector<double> out;
    for (int64_t t = 0; t < tiles; ++t) {
      const double bright = Uniform(400, 2000);
      struct Object {
        double y, x, r, add;
      };
      std::vector<Object> objects(random_() % 4);
      for (Object& o : objects) {
        o = {Uniform(0, static_cast<double>(rows)), Uniform(0, static_cast<double>(columns)),
             Uniform(0.04, 0.12) * static_cast<double>(rows), Uniform(0.5, 2)};
      }
      for (int64_t i = 0; i < rows * columns; ++i) {
        double object = 1;
        for (const Object& o : objects) {
          if (std::hypot(static_cast<double>(i / columns) - o.y,
                         static_cast<double>(i % columns) - o.x) < o.r)
            object += o.add;
        }
        out.push_back(bright * flat[static_cast<size_t>(i)] * object * noise(random_));
      }
    }
    return out;
  }
  // The standard deviation of flat / wanted, and its mean.
  static void ExpectFlat(const HostArray& got, const std::vector<double>& wanted,
                         const std::string& what) {
    double mean = 0, ratio = 0, squares = 0;
    const auto n = static_cast<double>(wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      const double v = got.at(static_cast<int64_t>(i)).real(), r = v / wanted[i];
      mean += v / n;
      ratio += r / n;
      squares += r * r / n;
    }
    EXPECT_NEAR(mean, 1, 1e-4) << what;
    const double left = std::sqrt(squares - ratio * ratio) / ratio;
    ::testing::Test::RecordProperty(what, absl::StrCat(left));
    EXPECT_LE(left, 0.01) << what;
  }
};

TEST_P(FlatFieldTest, QuadraticFlatLeavesOnePercent) {
  for (const Scalar scalar : {Scalar::kU16, Scalar::kF32, Scalar::kF64}) {
    const auto rows = static_cast<int64_t>(Uniform(20, 70)),
               columns = static_cast<int64_t>(Uniform(20, 70));
    const auto tiles = static_cast<int64_t>(Uniform(15, 40));
    const std::vector<double> flat = Illumination(rows, columns, false),
                              stack = Tiles(flat, tiles, rows, columns);
    HostArray in = Floats(
        {tiles, rows, columns}, [&](int64_t i) { return stack[static_cast<size_t>(i)]; }, scalar);
    if (scalar != Scalar::kU16) math::Store(scalar, in.bytes.data(), rows * columns / 2, {NAN, 0});
    const HostArray out = Run({FlatFieldOp{}}, in);
    ASSERT_EQ(out.type, (ArrayType{.scalar = Scalar::kF32, .dims = {rows, columns}}));
    ExpectFlat(out, flat, absl::StrCat("quadratic ", in.type.Text()));
  }
}

TEST_P(FlatFieldTest, BasicFlatLeavesOnePercent) {
  struct Case {
    int64_t tiles, rows, columns;
    bool fine;
  };
  for (const Case& c : {Case{20, 128, 128, false}, {24, 90, 150, true}, {16, 200, 64, true}}) {
    const std::vector<double> flat = Illumination(c.rows, c.columns, c.fine),
                              stack = Tiles(flat, c.tiles, c.rows, c.columns);
    HostArray in = Floats({c.tiles, c.rows, c.columns},
                          [&](int64_t i) { return stack[static_cast<size_t>(i)]; });
    math::Store(Scalar::kF32, in.bytes.data(), 77, {NAN, 0});
    const HostArray out = Run({FlatFieldOp{.method = FlatMethod::kBasic}}, in);
    ASSERT_EQ(out.type, (ArrayType{.scalar = Scalar::kF32, .dims = {c.rows, c.columns}}));
    ExpectFlat(out, flat, absl::StrCat("basic ", in.type.Text(), c.fine ? " fine" : ""));
  }
}

TEST_P(FlatFieldTest, NothingBrightHasAFlatOfOnes) {
  for (const double dark : {0.0, -3.0, static_cast<double>(NAN)}) {
    for (const int64_t tiles : {1, 3}) {
      const HostArray in = Floats({tiles, 10, 12}, [&](int64_t) { return dark; });
      for (const FlatMethod method : {FlatMethod::kQuadratic, FlatMethod::kBasic}) {
        const HostArray out = Run({FlatFieldOp{.method = method}}, in);
        for (int64_t i = 0; i < 120; ++i) ASSERT_EQ(out.at(i).real(), 1) << dark << " " << tiles;
      }
    }
  }
}

TEST_P(FlatFieldTest, FewTilesAndDarkOnesAmongThemHaveAFlatOfMeanOne) {
  for (const FlatMethod method : {FlatMethod::kQuadratic, FlatMethod::kBasic}) {
    for (int64_t tiles = 1; tiles <= 3; ++tiles) {
      const HostArray in = Floats({tiles, 14, 20}, [&](int64_t i) {
        if (i / 280 == 1) return 0.0;
        return random_() % 10 == 0 ? static_cast<double>(NAN) : Uniform(100, 200);
      });
      const HostArray out = Run({FlatFieldOp{.method = method}}, in);
      double mean = 0;
      for (int64_t i = 0; i < 280; ++i) {
        ASSERT_GE(out.at(i).real(), 0.01F);
        mean += out.at(i).real() / 280;
      }
      EXPECT_NEAR(mean, 1, 1e-4);
    }
  }
}

TEST_P(FlatFieldTest, TheUnitOfBrightnessDoesNotMatter) {
  const int64_t rows = 60, columns = 80, tiles = 16;
  const std::vector<double> flat = Illumination(rows, columns, false),
                            stack = Tiles(flat, tiles, rows, columns);
  for (const FlatMethod method : {FlatMethod::kQuadratic, FlatMethod::kBasic}) {
    for (const double unit : {1.0, 1e-28, 1e28}) {
      const HostArray in = Floats({tiles, rows, columns},
                                  [&](int64_t i) { return unit * stack[static_cast<size_t>(i)]; });
      ExpectFlat(Run({FlatFieldOp{.method = method}}, in), flat,
                 absl::StrCat("unit ", unit, " method ", static_cast<int>(method)));
    }
  }
}

TEST_P(FlatFieldTest, FlattensMosaicsWithPartialTiles) {
  const std::vector<std::vector<int64_t>> choices = {{}, {0, 1}, {1, 0}, {-1, 0}, {0, 2}};
  for (const Scalar scalar : kAll) {
    for (const int64_t lanes : {1, 2}) {
      const std::vector<int64_t> dims = {11, 7, 13};
      const HostArray in = MakeRandom({.scalar = scalar, .lanes = lanes, .dims = dims},
                                      static_cast<uint32_t>(random_()));
      const HostArray flat = Floats({4, 5}, [&](int64_t) { return Uniform(0.5, 2); });
      for (const auto& axes : choices) {
        std::vector<int64_t> at = axes.empty() ? std::vector<int64_t>{1, 2} : axes;
        for (int64_t& axis : at) axis = axis < 0 ? axis + 3 : axis;
        std::vector<Complex> wanted;
        for (int64_t i = 0; i < in.type.numbers(); ++i) {
          const int64_t e = i / lanes;
          const int64_t index[] = {e / 91, e / 13 % 7, e % 13};
          const double by = flat.at(index[at[0]] % 4 * 5 + index[at[1]] % 5).real();
          Complex v = in.at(i) / by;
          if (IsIntegral(scalar)) v = std::round(v.real());
          wanted.push_back(testing::Clipped(scalar, v));
        }
        const HostArray out = Run({FlattenOp{.flat = 0, .axes = axes}}, in, {flat});
        ASSERT_EQ(out.type, in.type);
        ExpectNear(out, wanted, SizeOf(scalar) <= 4 && !IsIntegral(scalar) ? 2e-3 : 1e-6,
                   in.type.Text());
      }
    }
  }
}

TEST_P(FlatFieldTest, CurvatureIsGoneAfterAShift) {
  for (const FlatMethod method : {FlatMethod::kQuadratic, FlatMethod::kBasic}) {
    const int64_t ty = 24, tx = 30, rows = 100, columns = 131;  // partial tiles at both ends
    const auto curve = [&](int64_t y, int64_t x) {
      const double v = 2 * static_cast<double>(y % ty) / 23 - 1,
                   u = 2 * static_cast<double>(x % tx) / 29 - 1;
      return 6 * (v * v - 0.36) + 4 * (u * u - 0.36);
    };
    // The sample is tilted: that stays as it is.
    const double tilt[2] = {Uniform(-0.1, 0.1), Uniform(-0.1, 0.1)};
    const auto sample = [&](int64_t y, int64_t x) {
      return 41 + tilt[0] * static_cast<double>(y - 50) + tilt[1] * static_cast<double>(x - 65);
    };
    std::normal_distribution<double> noise(0, 0.5);
    std::vector<double> depth;
    for (int64_t i = 0; i < rows * columns; ++i) {
      const int64_t y = i / columns, x = i % columns;
      depth.push_back(sample(y, x) + curve(y, x) + noise(random_));
      if (random_() % 50 == 0) depth.back() = NAN;
    }
    const HostArray map =
        Floats({rows, columns}, [&](int64_t i) { return depth[static_cast<size_t>(i)]; });
    const HostArray amounts = Run({FocalCurvatureOp{.tile = {ty, tx}, .method = method}}, map);
    ASSERT_EQ(amounts.type, map.type);
    // The volume's surface is an edge at its depth; after the shift it is found again.
    const HostArray volume = Floats({rows, columns, 90}, [&](int64_t i) {
      const double at = depth[static_cast<size_t>(i / 90)];
      return std::isnan(at) ? 0 : std::clamp(static_cast<double>(i % 90) - at, 0.0, 20.0);
    });
    const HostArray moved = Run({ShiftOp{.axis = 2, .other = 0}}, volume, {amounts});
    double before = 0, after = 0, points = 0;
    for (int64_t i = 0; i < rows * columns; ++i) {
      if (std::isnan(depth[static_cast<size_t>(i)])) continue;
      int64_t z = 0;
      while (z < 89 && moved.at(i * 90 + z).real() < 10) ++z;
      const double low = moved.at(i * 90 + z - 1).real(), high = moved.at(i * 90 + z).real();
      const double found = static_cast<double>(z - 1) + (10 - low) / (high - low) - 10;
      const double height = sample(i / columns, i % columns);
      before += std::pow(depth[static_cast<size_t>(i)] - height, 2);
      after += std::pow(found - height, 2);
      ++points;
    }
    before = std::sqrt(before / points);
    after = std::sqrt(after / points);
    RecordProperty(absl::StrCat("curvature ", static_cast<int>(method)),
                   absl::StrCat(before, " -> ", after, " samples"));
    EXPECT_GT(before, 2);
    // What is left is the noise of the surface, 0.5, and BASIC's product instead of a sum.
    EXPECT_LT(after, method == FlatMethod::kBasic ? 0.8 : 0.6) << before;
  }
}

TEST_P(FlatFieldTest, CurvatureDoesNotGoBeyondWhatWasSeen) {
  // Only a strip of each tile has a surface, and that is noise with a bend: far from the strip a
  // surface of second degree would leave the volume.
  const int64_t ty = 40, tx = 60;
  const HostArray map = Floats({2 * ty, 2 * tx}, [&](int64_t i) {
    const int64_t x = i % (2 * tx) % tx;
    if (x >= 8) return static_cast<double>(NAN);
    return 50 + 0.05 * static_cast<double>(x * x) + Uniform(-0.2, 0.2);
  });
  for (const FlatMethod method : {FlatMethod::kQuadratic, FlatMethod::kBasic}) {
    const HostArray amounts = Run({FocalCurvatureOp{.tile = {ty, tx}, .method = method}}, map);
    for (int64_t i = 0; i < amounts.type.numbers(); ++i)
      ASSERT_LE(std::abs(amounts.at(i).real()), 4) << i;  // the strip itself bends by less than 1
  }
  // Nothing was seen at all.
  const HostArray blind = Floats({ty, tx}, [](int64_t) { return static_cast<double>(NAN); });
  const HostArray none = Run({FocalCurvatureOp{.tile = {20, 20}}}, blind);
  for (int64_t i = 0; i < ty * tx; ++i) ASSERT_EQ(none.at(i).real(), 0);
}

TEST_P(FlatFieldTest, RefusesWhatMakesNoSense) {
  const ArrayType stack{.scalar = Scalar::kU16, .dims = {9, 20, 30}},
      map{.scalar = Scalar::kF32, .dims = {20, 30}};
  EXPECT_THAT(Refused({FlatFieldOp{}}, map), IsError(kInvalid, "flat_field: is of f32"));
  EXPECT_THAT(Refused({FlatFieldOp{.smoothness = 2}}, stack),
              IsError(kInvalid, "flat_field.smoothness: is given; only BASIC"));
  EXPECT_THAT(Refused({FlatFieldOp{.method = FlatMethod::kBasic, .smoothness = -1}}, stack),
              IsError(kInvalid, "flat_field.smoothness: is -1"));
  EXPECT_THAT(Refused({FocalCurvatureOp{.tile = {5, 5}}}, stack),
              IsError(kInvalid, "focal_curvature: is of u16"));
  EXPECT_THAT(Refused({FocalCurvatureOp{.tile = {5}}}, map),
              IsError(kInvalid, "focal_curvature.tile: has 1"));
  EXPECT_THAT(Refused({FocalCurvatureOp{.tile = {5, 31}}}, map),
              IsError(kInvalid, "focal_curvature.tile: [1] is 31"));
  const auto refused = [&](const FlattenOp& op, const ArrayType& flat, const ArrayType& in) {
    return PlanChain({op}, in, {flat}, false, "operations").status();
  };
  EXPECT_THAT(refused({.flat = 0}, stack, stack), IsError(kInvalid, "flatten.flat: is u16"));
  EXPECT_THAT(refused({.flat = 0, .axes = {1}}, map, stack),
              IsError(kInvalid, "flatten.axes: has 1"));
  EXPECT_THAT(refused({.flat = 0, .axes = {1, -2}}, map, stack),
              IsError(kInvalid, "flatten.axes: names axis 1 twice"));
  EXPECT_THAT(refused({.flat = 0, .axes = {1, 3}}, map, stack),
              IsError(kInvalid, "flatten.axes: is 3"));
  EXPECT_THAT(refused({.flat = 0}, {.scalar = Scalar::kF32, .dims = {30, 20}}, stack),
              IsError(kInvalid, "flatten.flat: is 30 x 20; allowed at most the array's 20 x 30"));
}

INSTANTIATE_TEST_SUITE_P(Backends, FlatFieldTest, ::testing::ValuesIn(testing::AvailableBackends()),
                         testing::BackendName);

}  // namespace
}  // namespace octavo

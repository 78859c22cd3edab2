// Coarse pictures of boxes, of every element type, against a loop in double precision.

#include "gpu/array/coarsen.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "gpu/device/scalar.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using testing::IsError;
using testing::IsOk;

constexpr DType kTypes[] = {DType::kU8,  DType::kI8,  DType::kU16, DType::kI16,
                            DType::kF16, DType::kF32, DType::kF64, DType::kC64};

class CoarsenTest : public testing::BackendTest {
 protected:
  // A volume of random numbers; floats have some NaN, and whole cubes of them.
  void Make(DType dtype, int64_t y, int64_t x, int64_t z) {
    dtype_ = dtype;
    shape_[0] = y, shape_[1] = x, shape_[2] = z;
    bytes_.assign(static_cast<size_t>(y * x * z * SizeOf(dtype)), 0);
    for (int64_t i = 0; i < y * x * z; ++i) {
      const bool cube = i % z < 4 && i / z % x < 4 && i / z / x < 4;
      const double nan = random_() % 16 == 0 || cube ? NAN : 0;
      const double re = static_cast<double>(random_() % 20000) - 9000,
                   im = static_cast<double>(random_() % 300);
      math::Store(ScalarOf(dtype), bytes_.data(), i,
                  IsInteger(dtype) ? math::Number{std::fmod(re, 120)} : math::Number{re + nan, im});
    }
  }
  double ValueAt(int64_t y, int64_t x, int64_t z) const {
    const math::Number n =
        math::Load(ScalarOf(dtype_), bytes_.data(), (y * shape_[1] + x) * shape_[2] + z);
    return dtype_ == DType::kC64 ? std::hypot(n.re, n.im) : n.re;
  }
  /// Of one result, before it is windowed: all voxels of its cube that the box has.
  double Wanted(const Coarsening& c, int64_t i, int64_t j, int64_t k) const {
    const Box3& b = c.box;
    double most = NAN, sum = 0;
    int64_t count = 0;
    for (int64_t y = i * c.factor; y < std::min((i + 1) * c.factor, b.count[0]); ++y) {
      for (int64_t x = j * c.factor; x < std::min((j + 1) * c.factor, b.count[1]); ++x) {
        for (int64_t z = k * c.factor; z < std::min((k + 1) * c.factor, b.count[2]); ++z) {
          const double v = ValueAt(b.start[0] + y, b.start[1] + x, b.start[2] + z);
          if (std::isnan(v)) continue;
          most = std::isnan(most) ? v : std::max(most, v);
          sum += v;
          ++count;
        }
      }
    }
    return c.kind == math::Reduction::kMax ? most : sum / static_cast<double>(count);
  }
  void Check(const Coarsening& c) {
    SCOPED_TRACE(::testing::Message()
                 << Info(dtype_).name << " factor " << c.factor << " kind "
                 << static_cast<int>(c.kind) << " window " << c.window.has_value());
    const DType to = ResultOf(c, dtype_);
    const int64_t results = c.results(0) * c.results(1) * c.results(2);
    DeviceBuffer in = Upload(bytes_);
    DeviceBuffer out = Poisoned(results * SizeOf(to));
    ASSERT_THAT(
        Coarsen(stream_.ref(), device_,
                {.data = in.data(), .dtype = dtype_, .shape = {shape_[0], shape_[1], shape_[2]}}, c,
                out.data()),
        IsOk());
    const auto got = Download<uint8_t>(out, static_cast<size_t>(results * SizeOf(to)));
    const bool mean = c.kind == math::Reduction::kMean;
    for (int64_t at = 0; at < results; ++at) {
      const int64_t k = at % c.results(2), j = at / c.results(2) % c.results(1),
                    i = at / c.results(2) / c.results(1);
      double wanted = Wanted(c, i, j, k);
      const double is = math::Load(ScalarOf(to), got.data(), at).re;
      if (c.window.has_value()) {
        wanted = (wanted - c.window->lo) / (c.window->hi - c.window->lo) * 255;
        wanted = std::isnan(wanted) ? 0 : std::clamp(std::floor(wanted + 0.5), 0.0, 255.0);
        ASSERT_LE(std::abs(is - wanted), mean ? 1 : 0)
            << at;  // a mean near a half rounds either way
      } else if (std::isnan(wanted)) {
        ASSERT_TRUE(std::isnan(is)) << at;
      } else {
        const double slack = mean || dtype_ == DType::kC64 || dtype_ == DType::kF64 ? 1e-6 : 0;
        ASSERT_NEAR(is, wanted, slack * (1 + std::abs(wanted)) + (mean ? 1e-3 : 0)) << at;
      }
    }
  }

  DType dtype_ = DType::kU8;
  int64_t shape_[3] = {1, 1, 1};
  std::vector<uint8_t> bytes_;
  std::mt19937 random_{testing::FreshSeed()};
};
TEST_P(CoarsenTest, EveryTypeFactorAndWindow) {
  for (const DType dtype : kTypes) {
    Make(dtype, 1 + static_cast<int64_t>(random_() % 40), 1 + static_cast<int64_t>(random_() % 40),
         1 + static_cast<int64_t>(random_() % 150));
    for (const int64_t factor : {1, 2, 4, 8, 16, 64}) {
      for (const auto kind : {math::Reduction::kMax, math::Reduction::kMean}) {
        Coarsening c{.factor = factor, .kind = kind};
        for (int d = 0; d < 3; ++d) {
          c.box.start[d] = static_cast<int64_t>(random_() % static_cast<uint64_t>(shape_[d]));
          c.box.count[d] = 1 + static_cast<int64_t>(
                                   random_() % static_cast<uint64_t>(shape_[d] - c.box.start[d]));
        }
        Check(c);
        c.window = Coarsening::Window{.lo = -50.5, .hi = 77};
        Check(c);
      }
    }
  }
}

TEST_P(CoarsenTest, WhatIsRefused) {
  Make(DType::kU16, 4, 4, 4);
  DeviceBuffer in = Upload(bytes_), out = Poisoned(4096);
  const VolumeView view{.data = in.data(), .dtype = dtype_, .shape = {4, 4, 4}};
  const Box3 all{.start = {0, 0, 0}, .count = {4, 4, 4}};
  const auto run = [&](const Coarsening& c) {
    return Coarsen(stream_.ref(), device_, view, c, out.data());
  };
  EXPECT_THAT(run({.factor = 3, .box = all}),
              IsError(absl::StatusCode::kInvalidArgument, "3 is no power of two"));
  EXPECT_THAT(run({.factor = 0, .box = all}), IsError(absl::StatusCode::kInvalidArgument, "0"));
  EXPECT_THAT(run({.kind = math::Reduction::kStd, .box = all}),
              IsError(absl::StatusCode::kInvalidArgument, "maximum or its mean"));
  EXPECT_THAT(run({.window = Coarsening::Window{.lo = 2, .hi = 2}, .box = all}),
              IsError(absl::StatusCode::kInvalidArgument, "empty"));
  EXPECT_THAT(run({.box = {.start = {0, 0, 1}, .count = {4, 4, 4}}}),
              IsError(absl::StatusCode::kOutOfRange, "axis 2"));
}

INSTANTIATE_TEST_SUITE_P(Backends, CoarsenTest, ::testing::ValuesIn(testing::AvailableBackends()),
                         testing::BackendName);

}  // namespace
}  // namespace octavo

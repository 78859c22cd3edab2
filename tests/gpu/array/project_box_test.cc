// Planes and projections of boxes, of every element type, against a loop in double precision.

#include "gpu/array/project_box.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <random>
#include <vector>

#include "gpu/device/scalar.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using testing::IsError;
using testing::IsOk;

constexpr DType kTypes[] = {DType::kU8,  DType::kI8,  DType::kU16, DType::kI16,
                            DType::kF16, DType::kF32, DType::kF64, DType::kC64};
constexpr math::Reduction kKinds[] = {math::Reduction::kMax, math::Reduction::kMin,
                                      math::Reduction::kMean, math::Reduction::kStd};

class ProjectBoxTest : public testing::BackendTest {
 protected:
  // A volume of random numbers; floats have some NaN, and a line of NaN along each axis.
  void Make(DType dtype, int64_t y, int64_t x, int64_t z) {
    dtype_ = dtype;
    shape_[0] = y, shape_[1] = x, shape_[2] = z;
    std::mt19937 random(static_cast<uint32_t>(dtype) + static_cast<uint32_t>(x));
    const int64_t count = y * x * z;
    bytes_.assign(static_cast<size_t>(count * SizeOf(dtype)), 0);
    for (int64_t i = 0; i < count; ++i) {
      const bool line = (i % z == 1 && i / z % x == 1) || (i % z == 1 && i / z / x == 1) ||
                        (i / z % x == 1 && i / z / x == 1);
      const double nan = random() % 16 == 0 || line ? NAN : 0;
      const double re = static_cast<double>(random() % 20000) - 9000,
                   im = static_cast<double>(random() % 300);
      math::Store(ScalarOf(dtype), bytes_.data(), i,
                  IsInteger(dtype) ? math::Number{std::fmod(re, 120)} : math::Number{re + nan, im});
    }
  }
  double ValueAt(const uint8_t* memory, DType dtype, int64_t i) const {
    const math::Number n = math::Load(ScalarOf(dtype), memory, i);
    return dtype == DType::kC64 ? std::hypot(n.re, n.im) : n.re;
  }
  // In the order of the result.
  std::vector<double> Wanted(const BoxProjection& p) const {
    std::vector<std::vector<double>> lines(static_cast<size_t>(p.results()));
    const Box3& b = p.box;
    for (int64_t y = 0; y < b.count[0]; ++y) {
      for (int64_t x = 0; x < b.count[1]; ++x) {
        for (int64_t z = 0; z < b.count[2]; ++z) {
          const int64_t from =
              ((y + b.start[0]) * shape_[1] + x + b.start[1]) * shape_[2] + z + b.start[2];
          const int64_t to = p.axis == 0   ? x * b.count[2] + z
                             : p.axis == 1 ? y * b.count[2] + z
                                           : y * b.count[1] + x;
          lines[static_cast<size_t>(to)].push_back(ValueAt(bytes_.data(), dtype_, from));
        }
      }
    }
    std::vector<double> wanted;
    for (std::vector<double>& line : lines) {
      std::erase_if(line, [](double v) { return std::isnan(v); });
      const auto n = static_cast<double>(line.size());
      double result = NAN, mean = 0;
      for (const double v : line) mean += v / n;
      if (!line.empty() && (!p.kind.has_value() || p.kind == math::Reduction::kMax)) {
        result = *std::max_element(line.begin(), line.end());
      } else if (!line.empty() && p.kind == math::Reduction::kMin) {
        result = *std::min_element(line.begin(), line.end());
      } else if (!line.empty() && p.kind == math::Reduction::kMean) {
        result = mean;
      } else if (!line.empty()) {
        double square = 0;
        for (const double v : line) square += (v - mean) * (v - mean) / n;
        result = std::sqrt(square);
      }
      wanted.push_back(result);
    }
    return wanted;
  }
  void Check(const BoxProjection& p) {
    const DeviceBuffer volume = Upload(bytes_);
    const DType dtype = ResultOf(p, dtype_);
    const int64_t bytes = p.results() * SizeOf(dtype);
    const DeviceBuffer out = Poisoned(bytes), scratch = Poisoned(ProjectBoxScratch(p) + 1);
    ASSERT_THAT(
        ProjectBox(
            stream_.ref(), device_,
            {.data = volume.data(), .dtype = dtype_, .shape = {shape_[0], shape_[1], shape_[2]}}, p,
            scratch.data(), out.data()),
        IsOk());
    const auto got = Download<uint8_t>(out, static_cast<size_t>(bytes));
    const std::vector<double> wanted = Wanted(p);
    const bool exact =
        !p.kind.has_value() || *p.kind == math::Reduction::kMax || *p.kind == math::Reduction::kMin;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const double value = ValueAt(got.data(), dtype, static_cast<int64_t>(i));
      if (std::isnan(wanted[i])) {
        ASSERT_TRUE(std::isnan(value)) << i;
      } else {
        ASSERT_NEAR(value, wanted[i],
                    exact && dtype_ != DType::kC64 ? 0 : 1e-6 * std::abs(wanted[i]) + 1e-6)
            << i;
      }
    }
  }

  DType dtype_ = DType::kU8;
  int64_t shape_[3] = {};
  std::vector<uint8_t> bytes_;
};

TEST_P(ProjectBoxTest, EveryAxisTypeAndKindOfABox) {
  for (const DType dtype : kTypes) {
    SCOPED_TRACE(Info(dtype).name);
    Make(dtype, 7, 19, 33);
    for (int axis = 0; axis < 3; ++axis) {
      for (const Box3& box : {Box3{.start = {0, 0, 0}, .count = {7, 19, 33}},
                              Box3{.start = {1, 3, 5}, .count = {4, 11, 17}},
                              Box3{.start = {6, 18, 32}, .count = {1, 1, 1}}}) {
        SCOPED_TRACE(axis);
        for (const math::Reduction kind : kKinds) Check({.axis = axis, .kind = kind, .box = box});
        BoxProjection plane{.axis = axis, .kind = std::nullopt, .box = box};
        plane.box.start[axis] += box.count[axis] / 2;
        plane.box.count[axis] = 1;
        Check(plane);
      }
    }
  }
}

// A line that is long enough to be cut in parts.
TEST_P(ProjectBoxTest, LongLinesAreJoined) {
  const int64_t shapes[3][3] = {{5000, 3, 2}, {3, 5000, 2}, {2, 3, 5000}};
  for (int axis = 0; axis < 3; ++axis) {
    Make(DType::kF32, shapes[axis][0], shapes[axis][1], shapes[axis][2]);
    for (const math::Reduction kind : kKinds) {
      BoxProjection p{.axis = axis,
                      .kind = kind,
                      .box = {.start = {0, 0, 0}, .count = {shape_[0], shape_[1], shape_[2]}}};
      EXPECT_GT(ProjectBoxScratch(p), 0);
      Check(p);
      p.box.start[axis] = 17;
      p.box.count[axis] = 4711;
      Check(p);
    }
  }
}

TEST_P(ProjectBoxTest, TheBoxLiesInTheVolume) {
  Make(DType::kU8, 4, 5, 6);
  const DeviceBuffer volume = Upload(bytes_), out = Poisoned(64);
  const VolumeView view{.data = volume.data(), .dtype = dtype_, .shape = {4, 5, 6}};
  for (const Box3& box :
       {Box3{.start = {-1, 0, 0}, .count = {1, 1, 1}}, Box3{.start = {0, 5, 0}, .count = {1, 1, 1}},
        Box3{.start = {0, 0, 4}, .count = {1, 1, 3}},
        Box3{.start = {0, 0, 0}, .count = {0, 1, 1}}}) {
    EXPECT_THAT(
        ProjectBox(stream_.ref(), device_, view,
                   {.axis = 0, .kind = math::Reduction::kMax, .box = box}, nullptr, out.data()),
        IsError(absl::StatusCode::kOutOfRange, "asked are"));
  }
  EXPECT_THAT(
      ProjectBox(stream_.ref(), device_, view,
                 {.axis = 2, .kind = std::nullopt, .box = {.start = {0, 0, 0}, .count = {4, 5, 2}}},
                 nullptr, out.data()),
      IsError(absl::StatusCode::kOutOfRange, "one sample"));
}

INSTANTIATE_TEST_SUITE_P(Backends, ProjectBoxTest,
                         ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

}  // namespace
}  // namespace octavo

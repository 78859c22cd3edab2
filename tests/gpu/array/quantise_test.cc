// Numbers in fewer bits, against a loop in double precision; and how many were clipped.

#include "gpu/array/quantise.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gpu/math/half.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using testing::IsError;
using testing::IsOk;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinite = std::numeric_limits<float>::infinity();

class QuantiseTest : public testing::BackendTest {
 protected:
  struct Got {
    std::vector<double> numbers;
    uint64_t below = 0, above = 0;
  };
  // The counts begin with 7 and 11, which are taken off again.
  Got Run(const Quantisation& q, const std::vector<float>& values) {
    const auto n = static_cast<int64_t>(values.size());
    DeviceBuffer in = Upload(values), out = Poisoned(n * SizeOf(q.out)),
                 counts = Upload(std::vector<uint64_t>{7, 11});
    EXPECT_THAT(Quantise(stream_.ref(), device_, q, in.span<const float>(), out.data(),
                         counts.span<uint64_t>()),
                IsOk());
    Got got;
    if (q.out == DType::kU8) {
      for (const uint8_t v : Download<uint8_t>(out, values.size())) got.numbers.push_back(v);
    } else {
      for (const uint16_t v : Download<uint16_t>(out, values.size())) {
        got.numbers.push_back(q.out == DType::kU16 ? v : static_cast<double>(math::HalfToFloat(v)));
      }
    }
    const auto clipped = Download<uint64_t>(counts, 2);
    got.below = clipped[0] - 7;
    got.above = clipped[1] - 11;
    return got;
  }
};

TEST_P(QuantiseTest, IntegersAreThoseOfTheFormulaAndTheClippedOnesAreCounted) {
  std::mt19937 random(testing::FreshSeed());
  std::normal_distribution<float> normal(0.2f, 1.0f);
  // More than one block and one task take, and a remainder.
  std::vector<float> values(1'300'017);
  for (float& v : values) v = random() % 1000 == 0 ? kNan : normal(random);
  for (const DType type : {DType::kU8, DType::kU16}) {
    for (const auto& [lo, hi] : {std::pair{-1.0, 1.5}, std::pair{0.0, 1e-3},
                                 std::pair{-1000.0, 2000.0}, std::pair{-1e30, 1e30}}) {
      SCOPED_TRACE(::testing::Message() << Info(type).name << " " << lo << " to " << hi);
      const Got got = Run({.out = type, .lo = lo, .hi = hi}, values);
      const auto top = static_cast<double>(HighestOf(type));
      uint64_t below = 0, above = 0, wrong = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const double v = (static_cast<double>(values[i]) - lo) * top / (hi - lo);
        below += std::isnan(v) || v < -0.5 ? 1 : 0;
        above += v > top + 0.5 ? 1 : 0;
        const double wanted = std::isnan(v) ? 0 : std::min(std::max(std::floor(v + 0.5), 0.0), top);
        wrong += got.numbers[i] != wanted ? 1 : 0;
      }
      EXPECT_EQ(wrong, 0u);
      EXPECT_EQ(got.below, below);
      EXPECT_EQ(got.above, above);
    }
  }
}

TEST_P(QuantiseTest, TheEdgesOfTheWindow) {
  // A step of 1: stored is the number itself.
  const Got got = Run({.out = DType::kU8, .lo = 0, .hi = 255},
                      {-0.5f, -0.4375f, 0.0f, 0.5f, 254.5f, 255.4375f, 255.5f, kNan, kInfinite,
                       -kInfinite, 3e38f, -3e38f});
  EXPECT_EQ(got.numbers, (std::vector<double>{0, 0, 0, 1, 255, 255, 255, 0, 255, 0, 255, 0}));
  EXPECT_EQ(got.below, 3u);  // NaN, -inf, -3e38; not -0.5
  EXPECT_EQ(got.above, 2u);  // inf, 3e38; not 255.5
}

TEST_P(QuantiseTest, HalvesDoNotBecomeInfinite) {
  const Got got = Run({.out = DType::kF16}, {1.0f, -2.5f, 65504.0f, 65505.0f, 1e9f, -65505.0f,
                                             kInfinite, -kInfinite, 1e-8f, 0.1f});
  EXPECT_EQ(got.numbers,
            (std::vector<double>{1, -2.5, 65504, 65504, 65504, -65504, 65504, -65504, 0,
                                 static_cast<double>(math::HalfToFloat(math::FloatToHalf(0.1f)))}));
  EXPECT_EQ(got.below, 2u);
  EXPECT_EQ(got.above, 3u);
  const Got nan = Run({.out = DType::kF16}, {kNan, 0.0f});
  EXPECT_TRUE(std::isnan(nan.numbers[0]));
  EXPECT_EQ(nan.below + nan.above, 0u);
}

TEST_P(QuantiseTest, NothingIsNothing) {
  DeviceBuffer counts = Upload(std::vector<uint64_t>{1, 2});
  EXPECT_THAT(
      Quantise(stream_.ref(), device_, {.out = DType::kU8}, {}, nullptr, counts.span<uint64_t>()),
      IsOk());
  EXPECT_EQ(Download<uint64_t>(counts, 2), (std::vector<uint64_t>{1, 2}));
}

TEST_P(QuantiseTest, WhatIsRefused) {
  DeviceBuffer in = Upload(std::vector<float>{1, 2}), out = Poisoned(16),
               counts = Upload(std::vector<uint64_t>{0, 0});
  const auto run = [&](const Quantisation& q) {
    return Quantise(stream_.ref(), device_, q, in.span<const float>(), out.data(),
                    counts.span<uint64_t>());
  };
  for (const DType other : {DType::kI8, DType::kI16, DType::kF32, DType::kC64})
    EXPECT_THAT(run({.out = other}), IsError(absl::StatusCode::kInvalidArgument, "u8, u16, f16"));
  for (const auto& [lo, hi] :
       {std::pair{1.0, 1.0}, std::pair{2.0, 1.0}, std::pair{std::nan(""), 1.0},
        std::pair{0.0, std::numeric_limits<double>::infinity()}}) {
    EXPECT_THAT(run({.out = DType::kU16, .lo = lo, .hi = hi}),
                IsError(absl::StatusCode::kInvalidArgument, "lo below hi"));
  }
  EXPECT_THAT(Quantise(stream_.ref(), device_, {.out = DType::kU8}, in.span<const float>(),
                       out.data(), counts.span<uint64_t>().First(1)),
              IsError(absl::StatusCode::kInvalidArgument, "needed are 2"));
}

INSTANTIATE_TEST_SUITE_P(Backends, QuantiseTest, ::testing::ValuesIn(testing::AvailableBackends()),
                         testing::BackendName);

}  // namespace
}  // namespace octavo

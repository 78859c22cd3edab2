#include "gpu/array/gather_ascans.h"

#include <cmath>
#include <limits>
#include <random>

#include "tests/support/device/backend_param.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using testing::BackendTest;
using testing::IsError;
using testing::IsOk;

constexpr int64_t kAscans = 97, kDepth = 131, kOut = 211, kTaps = 5;
constexpr double kRelative = 2e-6;  // five float products and sums against double precision

class ResampleTest : public BackendTest {
 protected:
  ResampleTest() {
    std::mt19937 random(7);
    for (int64_t i = 0; i < kOut * kTaps; ++i) {
      index_.push_back(static_cast<int32_t>(random() % (kAscans + 20)) -
                       20);  // some are -1 or less: no source
      weight_.push_back(static_cast<float>(random() % 1000) / 2500.0f);
    }
  }

  template <class T>
  void Run(DType dtype, std::vector<T> in) {
    const DeviceBuffer data = Upload(in), index = Upload(index_), weight = Upload(weight_);
    const DeviceBuffer out = Poisoned(kOut * kDepth * SizeOf(dtype));
    ASSERT_THAT(
        GatherAscans(stream_.ref(), device_,
                     {.data = data.data(), .dtype = dtype, .ascans = kAscans, .depth = kDepth},
                     {.index = index.as<int32_t>(),
                      .weight = weight.as<float>(),
                      .ascans = kOut,
                      .taps = kTaps},
                     out.data()),
        IsOk());
    const auto got = Download<T>(out, kOut * kDepth);
    int64_t missing = 0;
    for (int64_t a = 0; a < kOut; ++a) {
      for (int64_t z = 0; z < kDepth; ++z) {
        double sum = 0, weights = 0;
        for (int64_t t = 0; t < kTaps; ++t) {
          const auto i = static_cast<size_t>(a * kTaps + t);
          if (index_[i] < 0) continue;
          const auto v = static_cast<double>(in[static_cast<size_t>(index_[i] * kDepth + z)]);
          if (std::isnan(v)) continue;
          sum += static_cast<double>(weight_[i]) * v;
          weights += static_cast<double>(weight_[i]);
        }
        const auto value = static_cast<double>(got[static_cast<size_t>(a * kDepth + z)]);
        if (std::abs(weights - 0.5) < 1e-6) continue;  // at the threshold, rounding decides
        if (weights < 0.5) {
          ++missing;
          EXPECT_TRUE(dtype == DType::kF32 ? std::isnan(value) : value == 0) << value;
        } else if (dtype == DType::kF32) {
          EXPECT_NEAR(value, sum / weights, kRelative * 70000);
        } else {
          // The result is rounded to a count.
          EXPECT_NEAR(value, sum / weights, 0.5 + 1e-2) << a << " " << z;
        }
      }
    }
    EXPECT_GT(missing, 100);
    EXPECT_LT(missing, kOut * kDepth / 2);
  }

  std::vector<int32_t> index_;
  std::vector<float> weight_;
};

TEST_P(ResampleTest, AgreesWithDoublePrecision) {
  std::mt19937 random(11);
  std::vector<uint8_t> u8(kAscans * kDepth);
  std::vector<uint16_t> u16(kAscans * kDepth);
  std::vector<float> f32(kAscans * kDepth);
  for (auto& v : u8) v = static_cast<uint8_t>(random());
  for (auto& v : u16) v = static_cast<uint16_t>(random());
  for (auto& v : f32)
    v = random() % 9 == 0 ? std::numeric_limits<float>::quiet_NaN()
                          : static_cast<float>(random() % 65536);
  Run(DType::kU8, u8);
  Run(DType::kU16, u16);
  Run(DType::kF32, f32);
}

TEST_P(ResampleTest, WholeWeightsCopy) {
  const std::vector<uint16_t> in = {1, 2, 3, 60000, 50000, 40000};
  const std::vector<int32_t> index = {1, 0, -1};
  const std::vector<float> weight = {1, 1, 1};
  const DeviceBuffer data = Upload(in), at = Upload(index), by = Upload(weight),
                     out = Poisoned(3 * 3 * 2);
  ASSERT_THAT(
      GatherAscans(stream_.ref(), device_,
                   {.data = data.data(), .dtype = DType::kU16, .ascans = 2, .depth = 3},
                   {.index = at.as<int32_t>(), .weight = by.as<float>(), .ascans = 3, .taps = 1},
                   out.data()),
      IsOk());
  EXPECT_THAT(Download<uint16_t>(out, 9),
              ::testing::ElementsAre(60000, 50000, 40000, 1, 2, 3, 0, 0, 0));
}

TEST_P(ResampleTest, RefusesWhatItCannotRead) {
  const auto refused = [&](DType dtype, int64_t ascans, int64_t taps) {
    return GatherAscans(stream_.ref(), device_,
                        {.data = nullptr, .dtype = dtype, .ascans = ascans, .depth = 1},
                        {.ascans = 1, .taps = taps}, nullptr);
  };
  EXPECT_THAT(refused(DType::kC64, 1, 1),
              IsError(absl::StatusCode::kInvalidArgument, "volume.dtype"));
  EXPECT_THAT(refused(DType::kU8, 0, 1),
              IsError(absl::StatusCode::kInvalidArgument, "volume.shape"));
  EXPECT_THAT(refused(DType::kU8, 1, 0), IsError(absl::StatusCode::kInvalidArgument, "table"));
}

INSTANTIATE_TEST_SUITE_P(Backends, ResampleTest, ::testing::ValuesIn(testing::AvailableBackends()),
                         testing::BackendName);

}  // namespace
}  // namespace octavo

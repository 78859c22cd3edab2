// Long work that the caller cancels, and work that only asks whether to continue.

#include <numbers>
#include <random>

#include "gpu/tomography/center.h"
#include "gpu/tomography/preprocess.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using testing::IsError;
using testing::IsOk;

class TomoGiveUpTest : public testing::BackendTest {
 protected:
  static std::vector<float> Noise(int64_t count) {
    std::mt19937 random(testing::FreshSeed());
    std::uniform_real_distribution<float> uniform(0, 1);
    std::vector<float> out(static_cast<size_t>(count));
    for (float& v : out) v = uniform(random);
    return out;
  }
};

TEST_P(TomoGiveUpTest, SearchesOfTheAxis) {
  std::vector<double> angles;
  for (int i = 0; i < 40; ++i) angles.push_back(std::numbers::pi * i / 40);
  for (const CenterMethod method : {CenterMethod::kVo, CenterMethod::kEntropy}) {
    CenterConfig c{.method = method, .angles_rad = angles, .detectors = 64};
    const DeviceBuffer in = Upload(Noise(40 * 64));
    int left = 2;
    const CenterInput input{.data = in.span<float>(), .goes_on = [&] { return left-- > 0; }};
    EXPECT_THAT(FindCenter(stream_.ref(), c, input, device_),
                IsError(absl::StatusCode::kCancelled, "given up"));
    EXPECT_EQ(left, -1) << "asked again";
  }
}

TEST_P(TomoGiveUpTest, PreparingIsTheSameHoweverOftenItAsks) {
  constexpr int64_t kAngles = 50;
  PrepareConfig c;
  c.angles = kAngles;
  c.rows = 4;
  c.columns = 1024;
  c.dtype = c.field_dtype = DType::kF32;
  c.minus_log = false;
  c.outliers = {.window = 15, .difference = 0.3};
  c.rings = {{.method = RingMethod::kSorting}, {.method = RingMethod::kLargeStripe}};
  const DeviceBuffer in = Upload(Noise(kAngles * c.rows * c.columns));
  ASSERT_OK_AND_ASSIGN(const auto preparer, Preparer::Create(c, device_));
  const int64_t elements = preparer->shape().elements();
  const DeviceBuffer out = Poisoned(elements * 4);
  ASSERT_THAT(preparer->Run(stream_.ref(), {.projections = in.data()}, out.span<float>()), IsOk());
  const auto whole = Download<float>(out, static_cast<size_t>(elements));
  int asked = 0;
  const auto asks = [&] { return ++asked > 0; };
  ASSERT_THAT(
      preparer->Run(stream_.ref(), {.projections = in.data(), .goes_on = asks}, out.span<float>()),
      IsOk());
  EXPECT_EQ(Download<float>(out, static_cast<size_t>(elements)), whole);
  for (int yes = 0; yes < asked; ++yes) {
    int left = yes;
    EXPECT_THAT(preparer->Run(stream_.ref(),
                              {.projections = in.data(), .goes_on = [&] { return left-- > 0; }},
                              out.span<float>()),
                IsError(absl::StatusCode::kCancelled, "given up"));
    EXPECT_EQ(left, -1);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, TomoGiveUpTest,
                         ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

}  // namespace
}  // namespace octavo

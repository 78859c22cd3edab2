#include "server/engine/device_benchmark.h"

#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gpu/backend/open_devices.h"
#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"
#include "gpu/spectral/spectral_design.h"
#include "server/engine/device_benchmark_reference.h"
#include "server/storage/commit/commit_store.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using ::octavo::testing::IsError;
using ::octavo::testing::IsOk;
using ::testing::ElementsAre;

class MeasureTest : public ::testing::Test {
 protected:
  MeasureTest() : opened_(OpenDevices("host")), device_(*opened_->devices[0]) {}
  ~MeasureTest() override { ArmFailpoint(""); }

  absl::Status Run(MayGoOn may_go_on = [] { return absl::OkStatus(); }) {
    MeasureSpec spec{.device = "", .samples = 128, .records = 40, .seconds = 0.01};
    EXPECT_THAT(ResolveMeasure(&spec, device_), IsOk());
    return MeasureDevice(device_, spec, may_go_on, [this](const Measured& figure) {
      order_.push_back(figure.figure);
      figures_[figure.figure] = figure;
      return absl::OkStatus();
    });
  }

  absl::StatusOr<OpenedDevices> opened_;
  Device& device_;
  std::vector<Figure> order_;
  std::map<Figure, Measured> figures_;
};

TEST_F(MeasureTest, TellsEachFigureWithWhatItContainsAndHowItWasChecked) {
  ASSERT_THAT(Run(), IsOk());
  EXPECT_THAT(order_, ElementsAre(Figure::kUpload, Figure::kDownload, Figure::kDeviceCopy,
                                  Figure::kLaunch, Figure::kResident, Figure::kResidentNoDispersion,
                                  Figure::kStreamed, Figure::kStreamedPacked));
  for (const auto& [of, figure] : figures_) {
    const int name = static_cast<int>(of);
    EXPECT_GT(figure.value, 0) << name;
    EXPECT_GE(figure.rounds, 5) << name;
    EXPECT_FALSE(figure.included.empty() || figure.verified.empty() || figure.unit.empty()) << name;
    // Only the chain's figures have both.
    EXPECT_EQ(figure.ceiling > 0, figure.samples > 0) << name;
  }
  // Records of 12 bits need three quarters of the link.
  EXPECT_NEAR(figures_[Figure::kStreamedPacked].ceiling / figures_[Figure::kStreamed].ceiling,
              4.0 / 3, 1e-9);
}

TEST_F(MeasureTest, AWrongOutputEndsItWithoutAFigure) {
  ArmFailpoint("measured_output:errno=5:3");  // the third figure of the chain
  const absl::Status status = Run();
  EXPECT_THAT(status, IsError(absl::StatusCode::kDataLoss, "A-scan 0 depth 0"));
  EXPECT_EQ(InfoOf(status).reason, Reason::kMeasurementWrong);
  EXPECT_THAT(order_,
              ElementsAre(Figure::kUpload, Figure::kDownload, Figure::kDeviceCopy, Figure::kLaunch,
                          Figure::kResident, Figure::kResidentNoDispersion));
}

TEST_F(MeasureTest, EndsWhenItMayNotGoOn) {
  int asked = 0;
  const absl::Status status =
      Run([&] { return ++asked < 8 ? absl::OkStatus() : absl::AbortedError("a scan"); });
  EXPECT_THAT(status, IsError(absl::StatusCode::kAborted, "a scan"));
  EXPECT_EQ(asked, 8);
}

TEST_F(MeasureTest, BadFieldsAreNamed) {
  const std::vector<std::pair<MeasureSpec, std::string>> bad = {
      {{.samples = 63}, "samples"},
      {{.samples = 20000}, "samples"},
      {{.records = 15}, "records_per_block"},
      {{.samples = 16384, .records = 262144}, "records_per_block"},
      {{.seconds = 11}, "duration"},
      {{.seconds = std::nan("")}, "duration"}};
  for (auto [spec, field] : bad) {
    const absl::Status status = ResolveMeasure(&spec, device_);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_EQ(InfoOf(status).field, field);
  }
}

// x[n] = 1000 cos(2πkn/N), rectangular window, linear in k: |z| = 500 at bin k.
TEST(MeasureReferenceTest, ACosineIsWhereItBelongs) {
  SpectralConfig c;
  constexpr int64_t kSamples = 64;
  c.samples_per_record = c.fft_length = kSamples;
  c.depth = kSamples / 2;
  std::vector<uint16_t> record;
  for (int64_t j = 0; j < kSamples; ++j) {
    c.k_index.push_back(static_cast<double>(j));
    c.background_spectrum.push_back(2000);
    record.push_back(static_cast<uint16_t>(std::lround(
        2000 + 1000 * std::cos(2 * std::numbers::pi * 5 * static_cast<double>(j) / kSamples))));
  }
  c.window = MakeWindow(WindowKind::kRect, kSamples);
  c.level_lo = 0;
  c.level_hi = 255;  // values are dB
  const auto db = ReferenceAscan(c, record.data());
  EXPECT_NEAR(db[5], 20 * std::log10(500.0), 0.01);
  for (const size_t z : {0u, 4u, 6u, 31u}) EXPECT_LT(db[z], 0) << z;
}

}  // namespace
}  // namespace octavo::engine

#include "gpu/array/motion_contrast.h"

#include <cmath>
#include <complex>
#include <numbers>
#include <random>

#include "tests/support/device/backend_param.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using testing::BackendTest;
using testing::IsError;
using testing::IsOk;

constexpr int64_t kBscans = 5, kRepeats = 4, kX = 23, kZ = 65, kRows = kBscans * kRepeats;
constexpr double kTolerance =
    2e-5;  // sums of a few floats and an exponential; relative to the largest value

class RepeatsTest : public BackendTest {
 protected:
  RepeatsTest() {
    // Packed rows in a shuffled order: the table, not the layout, says which row belongs to which
    // repeat.
    for (int32_t r = 0; r < kRows; ++r) order_.push_back(r);
    std::shuffle(order_.begin(), order_.end(), random_);
  }
  size_t At(int64_t row, int64_t x, int64_t z) const {
    return static_cast<size_t>((row * kX + x) * kZ + z);
  }
  int64_t Row(int64_t b, int64_t r) const { return order_[static_cast<size_t>(b * kRepeats + r)]; }
  RepeatView View(const DeviceBuffer& data, DType dtype, const DeviceBuffer& order) const {
    return {.data = data.data(),
            .dtype = dtype,
            .rows = kRows,
            .columns = kX,
            .depth = kZ,
            .order = order.as<int32_t>(),
            .bscans = kBscans,
            .repeats = kRepeats};
  }

  static double Amplitude(const math::StoredScale& scale, double stored) {
    const double v = static_cast<double>(scale.lo) + static_cast<double>(scale.step) * stored;
    return scale.kind == math::Value::kDb      ? std::pow(10.0, v / 20)
           : scale.kind == math::Value::kPower ? std::sqrt(v)
                                               : v;
  }

  template <class T>
  void CheckContrast(DType dtype, const std::vector<T>& in, const math::StoredScale& scale) {
    const DeviceBuffer data = Upload(in), order = Upload(order_);
    for (const auto kind :
         {MotionContrast::kSpeckleVariance, MotionContrast::kAmplitudeDecorrelation}) {
      const DeviceBuffer out = Poisoned(kBscans * kX * kZ * 4);
      ASSERT_THAT(Angiogram(stream_.ref(), device_, kind, View(data, dtype, order), scale,
                            out.span<float>()),
                  IsOk());
      const auto got = Download<float>(out, kBscans * kX * kZ);
      std::vector<double> want;
      double most = 1e-30;
      for (int64_t b = 0; b < kBscans; ++b) {
        for (int64_t x = 0; x < kX; ++x) {
          for (int64_t z = 0; z < kZ; ++z) {
            std::vector<double> a;
            for (int64_t r = 0; r < kRepeats; ++r)
              a.push_back(Amplitude(scale, static_cast<double>(in[At(Row(b, r), x, z)])));
            double value = 0;
            if (kind == MotionContrast::kSpeckleVariance) {
              double mean = 0;
              for (const double v : a) mean += v / kRepeats;
              for (const double v : a) value += (v - mean) * (v - mean) / kRepeats;
            } else {
              for (size_t r = 1; r < a.size(); ++r) {
                const double power = a[r - 1] * a[r - 1] + a[r] * a[r];
                value += (1 - (power == 0 ? 1 : 2 * a[r - 1] * a[r] / power)) / (kRepeats - 1);
              }
            }
            want.push_back(value);
            most = std::max(most, value);
          }
        }
      }
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(static_cast<double>(got[i]), want[i], kTolerance * most) << i;
      const DeviceBuffer face = Poisoned(kBscans * kX * 4);
      ASSERT_THAT(AngiogramEnFace(stream_.ref(), device_, kind, View(data, dtype, order), scale, 7,
                                  61, face.span<float>()),
                  IsOk());
      const auto means = Download<float>(face, kBscans * kX);
      for (size_t a = 0; a < means.size(); ++a) {
        double mean = 0;
        for (size_t z = 7; z < 61; ++z) mean += want[a * kZ + z] / 54;
        ASSERT_NEAR(static_cast<double>(means[a]), mean, kTolerance * most) << a;
      }
    }
  }

  std::vector<std::complex<float>> Complex() {
    std::normal_distribution<float> normal;
    std::vector<std::complex<float>> z(kRows * kX * kZ);
    for (auto& v : z) v = {normal(random_), normal(random_)};
    return z;
  }

  std::mt19937 random_{5};
  std::vector<int32_t> order_;
};

TEST_P(RepeatsTest, ContrastAgreesWithDoublePrecision) {
  std::vector<uint8_t> u8(kRows * kX * kZ);
  std::vector<uint16_t> u16(u8.size());
  std::vector<float> f32(u8.size());
  for (auto& v : u8) v = static_cast<uint8_t>(random_());
  for (auto& v : u16) v = static_cast<uint16_t>(random_());
  for (auto& v : f32) v = static_cast<float>(random_() % 1000) / 10.0f;
  CheckContrast(DType::kU8, u8, {.kind = math::Value::kDb, .lo = -20, .step = 80.0f / 255});
  CheckContrast(DType::kU16, u16,
                {.kind = math::Value::kMagnitude, .lo = 0, .step = 300.0f / 65535});
  CheckContrast(DType::kU8, u8, {.kind = math::Value::kPower, .lo = 0, .step = 1});
  CheckContrast(DType::kF32, f32, {.kind = math::Value::kMagnitude, .lo = 0, .step = 1});
}

TEST_P(RepeatsTest, StillIsZeroAndMissingIsNan) {
  std::vector<float> still(kRows * kX * kZ, 3.0f);
  for (int64_t z = 0; z < kZ; ++z) still[At(Row(2, 1), 4, z)] = std::nanf("");
  for (int64_t r = 0; r < kRepeats; ++r) still[At(Row(1, r), 0, 0)] = 0;
  const DeviceBuffer data = Upload(still), order = Upload(order_);
  for (const auto kind :
       {MotionContrast::kSpeckleVariance, MotionContrast::kAmplitudeDecorrelation}) {
    const DeviceBuffer out = Poisoned(kBscans * kX * kZ * 4);
    ASSERT_THAT(Angiogram(stream_.ref(), device_, kind, View(data, DType::kF32, order), {},
                          out.span<float>()),
                IsOk());
    const auto got = Download<float>(out, kBscans * kX * kZ);
    for (int64_t b = 0; b < kBscans; ++b) {
      for (int64_t x = 0; x < kX; ++x) {
        for (int64_t z = 0; z < kZ; ++z) {
          const float v = got[static_cast<size_t>((b * kX + x) * kZ + z)];
          EXPECT_TRUE(b == 2 && x == 4 ? std::isnan(v) : v == 0.0f) << v;
        }
      }
    }
    const DeviceBuffer face = Poisoned(kBscans * kX * 4);
    ASSERT_THAT(AngiogramEnFace(stream_.ref(), device_, kind, View(data, DType::kF32, order), {}, 0,
                                kZ, face.span<float>()),
                IsOk());
    const auto means = Download<float>(face, kBscans * kX);
    for (size_t a = 0; a < means.size(); ++a) EXPECT_EQ(std::isnan(means[a]), a == 2 * kX + 4) << a;
  }
}

TEST_P(RepeatsTest, DopplerAgreesWithDoublePrecision) {
  const auto z = Complex();
  const DeviceBuffer data = Upload(z), order = Upload(order_);
  const RepeatView view = View(data, DType::kC64, order);
  for (const int64_t half : {0, 3, 64}) {
    for (const bool ascans : {false, true}) {
      const int64_t rows = ascans ? kRows : kBscans, columns = ascans ? kX - 1 : kX;
      const DeviceBuffer out = Poisoned(rows * columns * kZ * 4);
      ASSERT_THAT(ascans
                      ? DopplerOverAscans(stream_.ref(), device_, view, half, out.span<float>())
                      : DopplerOverRepeats(stream_.ref(), device_, view, half, out.span<float>()),
                  IsOk());
      const auto got = Download<float>(out, static_cast<size_t>(rows * columns * kZ));
      for (int64_t y = 0; y < rows; ++y) {
        for (int64_t x = 0; x < columns; ++x) {
          for (int64_t d = 0; d < kZ; ++d) {
            std::complex<double> sum = 0;
            for (int64_t k = std::max<int64_t>(0, d - half); k < std::min(kZ, d + half + 1); ++k) {
              if (ascans) {
                sum += std::complex<double>(z[At(y, x + 1, k)]) *
                       std::conj(std::complex<double>(z[At(y, x, k)]));
              } else {
                for (int64_t r = 1; r < kRepeats; ++r) {
                  sum += std::complex<double>(z[At(Row(y, r), x, k)]) *
                         std::conj(std::complex<double>(z[At(Row(y, r - 1), x, k)]));
                }
              }
            }
            if (std::abs(sum) < 1e-2) continue;  // too small: its phase is arbitrary
            const double off = std::remainder(
                static_cast<double>(got[static_cast<size_t>((y * columns + x) * kZ + d)]) -
                    std::arg(sum),
                2 * std::numbers::pi);
            ASSERT_NEAR(off, 0, 1e-3) << y << " " << x << " " << d;
          }
        }
      }
    }
  }
}

TEST_P(RepeatsTest, AKnownTurnComesBack) {
  auto z = Complex();
  for (int64_t b = 0; b < kBscans; ++b) {
    for (int64_t r = 1; r < kRepeats; ++r) {
      for (int64_t x = 0; x < kX; ++x) {
        for (int64_t d = 0; d < kZ; ++d)
          z[At(Row(b, r), x, d)] =
              z[At(Row(b, r - 1), x, d)] * std::polar(1.0f, 0.1f * static_cast<float>(b) - 0.2f);
      }
    }
  }
  const DeviceBuffer data = Upload(z), order = Upload(order_),
                     out = Poisoned(kBscans * kX * kZ * 4);
  ASSERT_THAT(DopplerOverRepeats(stream_.ref(), device_, View(data, DType::kC64, order), 0,
                                 out.span<float>()),
              IsOk());
  const auto got = Download<float>(out, kBscans * kX * kZ);
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], 0.1f * static_cast<float>(i / (kX * kZ)) - 0.2f, 1e-4f);
}

TEST_P(RepeatsTest, RefusesWhatItCannotRead) {
  RepeatView view{.data = nullptr,
                  .dtype = DType::kU8,
                  .rows = 4,
                  .columns = 2,
                  .depth = 8,
                  .order = nullptr,
                  .bscans = 2,
                  .repeats = 2};
  const auto doppler = [&](const RepeatView& v, int64_t half) {
    return DopplerOverRepeats(stream_.ref(), device_, v, half, nullptr);
  };
  EXPECT_THAT(doppler(view, 0), IsError(absl::StatusCode::kInvalidArgument, "volume.dtype"));
  view.dtype = DType::kC64;
  EXPECT_THAT(doppler(view, 8), IsError(absl::StatusCode::kInvalidArgument, "half_window"));
  EXPECT_THAT(
      Angiogram(stream_.ref(), device_, MotionContrast::kSpeckleVariance, view, {}, nullptr),
      IsError(absl::StatusCode::kInvalidArgument, "volume.dtype"));
  view.dtype = DType::kU8;
  EXPECT_THAT(AngiogramEnFace(stream_.ref(), device_, MotionContrast::kSpeckleVariance, view, {}, 3,
                              9, nullptr),
              IsError(absl::StatusCode::kInvalidArgument, "slab"));
  view.dtype = DType::kC64;
  view.repeats = 1;
  EXPECT_THAT(doppler(view, 0), IsError(absl::StatusCode::kInvalidArgument, "repeats"));
  view.repeats = 3;
  EXPECT_THAT(doppler(view, 0), IsError(absl::StatusCode::kInvalidArgument, "bscans"));
  view.columns = 1;
  EXPECT_THAT(DopplerOverAscans(stream_.ref(), device_, view, 0, nullptr),
              IsError(absl::StatusCode::kInvalidArgument, "volume.shape"));
}

INSTANTIATE_TEST_SUITE_P(Backends, RepeatsTest, ::testing::ValuesIn(testing::AvailableBackends()),
                         testing::BackendName);

}  // namespace
}  // namespace octavo

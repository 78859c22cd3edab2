// Projections and cuts of every element type.

#include <cmath>
#include <complex>
#include <cstring>
#include <random>
#include <vector>

#include "gpu/array/project.h"
#include "gpu/math/half.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using testing::IsError;
using testing::IsOk;

constexpr int64_t kY = 5, kX = 37, kZ = 71;
constexpr DType kTypes[] = {DType::kU8,  DType::kI8,  DType::kU16,
                            DType::kF16, DType::kF32, DType::kC64};

class ProjectTypesTest : public testing::BackendTest {
 protected:
  // Makes a random volume, as bytes and as the numbers that the maxima are computed from. Floats
  // include negative numbers, some NaN and one line of NaN.
  void Make(DType dtype) {
    std::mt19937 random(static_cast<uint32_t>(dtype));
    const auto count = static_cast<size_t>(kY * kX * kZ);
    bytes_.resize(count * static_cast<size_t>(SizeOf(dtype)));
    values_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      const auto put = [&](auto v, double value) {
        std::memcpy(bytes_.data() + i * sizeof v, &v, sizeof v);
        values_[i] = value;
      };
      const bool nan = random() % 16 == 0 || i / static_cast<size_t>(kZ) == 40;
      const float a = nan ? NAN : static_cast<float>(random() % 20000) - 15000.0f,
                  b = static_cast<float>(random() % 200);
      switch (dtype) {
        case DType::kU8:
          put(static_cast<uint8_t>(random()), bytes_[i]), values_[i] = bytes_[i];
          break;
        case DType::kI8: {
          const auto v = static_cast<int8_t>(random());
          put(v, v);
          break;
        }
        case DType::kU16: {
          const auto v = static_cast<uint16_t>(random());
          put(v, v);
          break;
        }
        case DType::kF16: {
          const uint16_t v = math::FloatToHalf(a);
          put(v, static_cast<double>(math::HalfToFloat(v)));
          break;
        }
        case DType::kC64:
          put(std::complex<float>(a, b), static_cast<double>(std::sqrt(a * a + b * b)));
          break;
        default: put(a, static_cast<double>(a)); break;
      }
    }
  }
  static double NumberAt(DType dtype, const std::vector<uint8_t>& memory, size_t i) {
    const auto read = [&](auto v) {
      std::memcpy(&v, memory.data() + i * sizeof v, sizeof v);
      return v;
    };
    switch (dtype) {
      case DType::kU8: return read(uint8_t{});
      case DType::kI8: return read(int8_t{});
      case DType::kU16: return read(uint16_t{});
      case DType::kF16: return static_cast<double>(math::HalfToFloat(read(uint16_t{})));
      default: return static_cast<double>(read(float{}));
    }
  }
  double ValueAt(int64_t y, int64_t x, int64_t z) const {
    return values_[static_cast<size_t>((y * kX + x) * kZ + z)];
  }
  // Maximum that ignores NaN.
  static void Join(double* most, double v) { *most = std::isnan(*most) || v > *most ? v : *most; }

  std::vector<uint8_t> bytes_;
  std::vector<double> values_;
};

TEST_P(ProjectTypesTest, MaximaAlongEachAxisIgnoreNan) {
  for (const DType dtype : kTypes) {
    SCOPED_TRACE(Info(dtype).name);
    Make(dtype);
    const DeviceBuffer volume = Upload(bytes_);
    const VolumeView view{.data = volume.data(), .dtype = dtype, .shape = {kY, kX, kZ}};
    const int64_t shape[3] = {kY, kX, kZ}, size = SizeOf(ProjectionOf(dtype));
    for (const Axis axis : {Axis::kY, Axis::kX, Axis::kZ}) {
      const int64_t count = PlaneElements(shape, axis);
      const DeviceBuffer out = Poisoned(count * size);
      // In two steps, as blocks arrive.
      ASSERT_THAT(Mip(stream_.ref(), device_, view, axis, 0, 2, false, out.data()), IsOk());
      ASSERT_THAT(Mip(stream_.ref(), device_, view, axis, 2, kY, true, out.data()), IsOk());
      const auto got = Download<uint8_t>(out, static_cast<size_t>(count * size));
      std::vector<double> wanted(static_cast<size_t>(count), NAN);
      for (int64_t y = 0; y < kY; ++y) {
        for (int64_t x = 0; x < kX; ++x) {
          for (int64_t z = 0; z < kZ; ++z) {
            const int64_t at = axis == Axis::kY   ? x * kZ + z
                               : axis == Axis::kX ? y * kZ + z
                                                  : y * kX + x;
            Join(&wanted[static_cast<size_t>(at)], ValueAt(y, x, z));
          }
        }
      }
      for (size_t i = 0; i < wanted.size(); ++i) {
        const double value = NumberAt(ProjectionOf(dtype), got, i);
        if (std::isnan(wanted[i])) {
          ASSERT_TRUE(std::isnan(value)) << "axis " << static_cast<int>(axis) << " at " << i;
        } else {
          ASSERT_NEAR(value, wanted[i], dtype == DType::kC64 ? 1e-6 * wanted[i] : 0)
              << "axis " << static_cast<int>(axis) << " at " << i;
        }
      }
    }
  }
}

TEST_P(ProjectTypesTest, PlanesAreCopiedAsTheyAre) {
  for (const DType dtype : kTypes) {
    SCOPED_TRACE(Info(dtype).name);
    Make(dtype);
    const auto size = static_cast<size_t>(SizeOf(dtype));
    const DeviceBuffer volume = Upload(bytes_);
    const VolumeView view{.data = volume.data(), .dtype = dtype, .shape = {kY, kX, kZ}};
    const int64_t shape[3] = {kY, kX, kZ}, index[3] = {3, 20, 50};
    for (const Axis axis : {Axis::kY, Axis::kX, Axis::kZ}) {
      const int64_t count = PlaneElements(shape, axis), at = index[static_cast<int>(axis)];
      const DeviceBuffer out = Poisoned(count * static_cast<int64_t>(size));
      ASSERT_THAT(ExtractPlane(stream_.ref(), device_, view, axis, at, out.data()), IsOk());
      const auto got = Download<uint8_t>(out, static_cast<size_t>(count) * size);
      size_t i = 0;
      for (int64_t y = 0; y < kY; ++y) {
        for (int64_t x = 0; x < kX; ++x) {
          for (int64_t z = 0; z < kZ; ++z) {
            const int64_t place[3] = {y, x, z};
            if (place[static_cast<int>(axis)] != at) continue;
            ASSERT_EQ(std::memcmp(got.data() + i++ * size,
                                  bytes_.data() + static_cast<size_t>((y * kX + x) * kZ + z) * size,
                                  size),
                      0);
          }
        }
      }
    }
  }
}

TEST_P(ProjectTypesTest, RefusesWhatItCannotDo) {
  const DeviceBuffer volume = Poisoned(kY * kX * kZ * 8), out = Poisoned(kX * kZ * 8);
  VolumeView view{.data = volume.data(), .dtype = DType::kF64, .shape = {kY, kX, kZ}};
  EXPECT_THAT(Mip(stream_.ref(), device_, view, Axis::kZ, 0, kY, false, out.data()),
              IsError(absl::StatusCode::kInvalidArgument, "volume.dtype"));
  view.dtype = DType::kU8;
  EXPECT_THAT(Mip(stream_.ref(), device_, view, Axis::kZ, 0, kY + 1, false, out.data()),
              IsError(absl::StatusCode::kOutOfRange, "B-scans 0 to 6"));
  EXPECT_THAT(ExtractPlane(stream_.ref(), device_, view, Axis::kX, kX, out.data()),
              IsError(absl::StatusCode::kOutOfRange, "plane 37"));
  EXPECT_THAT(stream_.ref().Synchronize(), IsOk());  // before the buffers are freed
}

// A fill may begin at any multiple of the pattern's length.
TEST_P(ProjectTypesTest, FillsWithEveryTypesPattern) {
  for (const DType dtype : kTypes) {
    const uint32_t pattern = FillPattern(dtype);
    const auto step = static_cast<size_t>(std::min<int64_t>(SizeOf(dtype), 4));
    for (const size_t begin : {size_t{0}, step, 3 * step}) {
      const DeviceBuffer buffer = Poisoned(400);
      ASSERT_THAT(device_.Fill(stream_.ref(), buffer.as<uint8_t>() + begin,
                               static_cast<int64_t>(step * 75), pattern),
                  IsOk());
      const auto got = Download<uint8_t>(buffer, 400);
      for (size_t i = 0; i < 400; ++i) {
        const bool inside = i >= begin && i < begin + step * 75;
        ASSERT_EQ(got[i], inside ? static_cast<uint8_t>(pattern >> 8 * ((i - begin) % 4)) : 0xA5)
            << Info(dtype).name << " from " << begin << " at " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ProjectTypesTest,
                         ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

}  // namespace
}  // namespace octavo

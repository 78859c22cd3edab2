#include "gpu/array/project.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/support/device/backend_param.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using testing::BackendTest;
using testing::IsError;
using testing::IsOk;

template <class T>
constexpr DType kDType = sizeof(T) == 1   ? DType::kU8
                         : sizeof(T) == 2 ? DType::kU16
                                          : DType::kF32;

class ProjectTest : public BackendTest {
 protected:
  template <class T>
  std::vector<T> RandomVolume(const int64_t shape[3], double nan_share = 0) {
    std::vector<T> volume(static_cast<size_t>(shape[0] * shape[1] * shape[2]));
    for (auto& v : volume) {
      if constexpr (std::is_floating_point_v<T>) {
        v = std::uniform_real_distribution<T>(-100, 100)(random_);
        if (std::uniform_real_distribution<double>(0, 1)(random_) < nan_share)
          v = std::numeric_limits<T>::quiet_NaN();
      } else {
        v = static_cast<T>(random_());
      }
    }
    return volume;
  }

  // The maximum by definition: any number wins over NaN.
  template <class T>
  static T Max(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(a)) return b;
      if (std::isnan(b)) return a;
    }
    return std::max(a, b);
  }
  template <class T>
  static bool Same(const std::vector<T>& a, const std::vector<T>& b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i] != b[i] && !(a[i] != a[i] && b[i] != b[i])) return false;
    }
    return true;
  }
  template <class T>
  static std::vector<T> ModelMip(const std::vector<T>& v, const int64_t shape[3], Axis axis) {
    std::vector<T> out(static_cast<size_t>(PlaneElements(shape, axis)));
    std::vector<bool> begun(out.size());
    for (int64_t y = 0; y < shape[0]; ++y) {
      for (int64_t x = 0; x < shape[1]; ++x) {
        for (int64_t z = 0; z < shape[2]; ++z) {
          const auto at = static_cast<size_t>(axis == Axis::kY   ? x * shape[2] + z
                                              : axis == Axis::kX ? y * shape[2] + z
                                                                 : y * shape[1] + x);
          const T value = v[static_cast<size_t>((y * shape[1] + x) * shape[2] + z)];
          out[at] = begun[at] ? Max(out[at], value) : value;
          begun[at] = true;
        }
      }
    }
    return out;
  }

  template <class T>
  void CheckAll(double nan_share) {
    for (const auto& shape :
         {std::array<int64_t, 3>{5, 7, 129}, {1, 1, 1}, {3, 64, 256}, {17, 33, 31}, {2, 300, 5}}) {
      SCOPED_TRACE(std::to_string(shape[0]) + " " + std::to_string(shape[1]) + " " +
                   std::to_string(shape[2]) + " " + Info(kDType<T>).numpy);
      const auto volume = RandomVolume<T>(shape.data(), nan_share);
      const DeviceBuffer device = Upload(volume);
      const VolumeView view{
          .data = device.data(), .dtype = kDType<T>, .shape = {shape[0], shape[1], shape[2]}};
      for (const Axis axis : {Axis::kY, Axis::kX, Axis::kZ}) {
        const int64_t elements = PlaneElements(view.shape, axis);
        const DeviceBuffer out = Poisoned(elements * static_cast<int64_t>(sizeof(T)));
        // As the engine does it: in two parts, which Mip joins over y.
        const int64_t cut = shape[0] / 2;
        if (cut > 0)
          ASSERT_THAT(Mip(stream_.ref(), device_, view, axis, 0, cut, false, out.data()), IsOk());
        ASSERT_THAT(Mip(stream_.ref(), device_, view, axis, cut, shape[0], cut > 0, out.data()),
                    IsOk());
        EXPECT_TRUE(Same(Download<T>(out, static_cast<size_t>(elements)),
                         ModelMip(volume, view.shape, axis)))
            << "axis " << static_cast<int>(axis);

        const int64_t extent = shape[static_cast<size_t>(axis)],
                      index = static_cast<int64_t>(random_()) % extent;
        const DeviceBuffer plane = Poisoned(elements * static_cast<int64_t>(sizeof(T)));
        ASSERT_THAT(ExtractPlane(stream_.ref(), device_, view, axis, index, plane.data()), IsOk());
        std::vector<T> wanted;
        for (int64_t y = 0; y < shape[0]; ++y) {
          for (int64_t x = 0; x < shape[1]; ++x) {
            for (int64_t z = 0; z < shape[2]; ++z) {
              if ((axis == Axis::kY ? y : axis == Axis::kX ? x : z) == index) {
                wanted.push_back(volume[static_cast<size_t>((y * shape[1] + x) * shape[2] + z)]);
              }
            }
          }
        }
        EXPECT_TRUE(Same(Download<T>(plane, static_cast<size_t>(elements)), wanted))
            << "plane " << index << " of axis " << static_cast<int>(axis);
      }
      // A slab: a range of depths.
      const int64_t z0 = shape[2] / 3, z1 = std::max(z0 + 1, shape[2] * 2 / 3),
                    elements = shape[0] * shape[1];
      const DeviceBuffer out = Poisoned(elements * static_cast<int64_t>(sizeof(T)));
      ASSERT_THAT(EnFaceSlab(stream_.ref(), device_, view, z0, z1, out.data()), IsOk());
      std::vector<T> slab;
      for (int64_t a = 0; a < elements; ++a) {
        slab.insert(slab.end(), volume.begin() + a * shape[2] + z0,
                    volume.begin() + a * shape[2] + z1);
      }
      const int64_t slab_shape[3] = {shape[0], shape[1], z1 - z0};
      EXPECT_TRUE(Same(Download<T>(out, static_cast<size_t>(elements)),
                       ModelMip(slab, slab_shape, Axis::kZ)));
    }
  }

  std::mt19937 random_{testing::FreshSeed()};
};

TEST_P(ProjectTest, MaximaAndPlanesOfU8) { CheckAll<uint8_t>(0); }
TEST_P(ProjectTest, MaximaAndPlanesOfU16) { CheckAll<uint16_t>(0); }
TEST_P(ProjectTest, MaximaAndPlanesOfF32) { CheckAll<float>(0); }
TEST_P(ProjectTest, NaNIsIgnoredUnlessThereIsNothingElse) { CheckAll<float>(0.6); }

TEST_P(ProjectTest, RefusesWhatIsNotThere) {
  const DeviceBuffer device = Poisoned(4 * 5 * 6), out = Poisoned(4 * 5 * 6);
  const VolumeView view{.data = device.data(), .dtype = DType::kU8, .shape = {4, 5, 6}};
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{-1, 2}, {0, 5}, {3, 3}, {3, 2}}) {
    EXPECT_FALSE(Mip(stream_.ref(), device_, view, Axis::kX, begin, end, false, out.data()).ok())
        << begin << " " << end;
  }
  EXPECT_FALSE(ExtractPlane(stream_.ref(), device_, view, Axis::kY, 4, out.data()).ok());
  EXPECT_FALSE(ExtractPlane(stream_.ref(), device_, view, Axis::kZ, -1, out.data()).ok());
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{-1, 2}, {0, 7}, {3, 3}, {4, 3}}) {
    EXPECT_FALSE(EnFaceSlab(stream_.ref(), device_, view, begin, end, out.data()).ok())
        << begin << " " << end;
  }
  VolumeView other = view;
  other.dtype = DType::kF64;
  EXPECT_FALSE(Mip(stream_.ref(), device_, other, Axis::kX, 0, 4, false, out.data()).ok());
  const auto untouched = Download<uint8_t>(out, 120);
  EXPECT_EQ(untouched, std::vector<uint8_t>(120, 0xA5));
}

TEST_P(ProjectTest, PowerSumsOfEachAscan) {
  const int64_t ascans = 37, depth = 301, begin = 5, end = 290;
  std::vector<float> power(static_cast<size_t>(ascans * depth));
  for (float& p : power) p = std::uniform_real_distribution<float>(0, 3)(random_);
  const DeviceBuffer in = Upload(power), out = Poisoned(ascans * 8);
  ASSERT_THAT(PowerSums(stream_.ref(), device_, in.span<float>(), ascans, depth, begin, end,
                        out.span<float>()),
              IsOk());
  const auto sums = Download<float>(out, static_cast<size_t>(2 * ascans));
  for (int64_t a = 0; a < ascans; ++a) {
    double sum = 0, squares = 0;
    for (int64_t z = begin; z < end; ++z) {
      const double p = static_cast<double>(power[static_cast<size_t>(a * depth + z)]);
      sum += p;
      squares += p * p;
    }
    // Ten sums per lane and five joins in float.
    EXPECT_NEAR(static_cast<double>(sums[static_cast<size_t>(2 * a)]) / sum, 1, 1e-6);
    EXPECT_NEAR(static_cast<double>(sums[static_cast<size_t>(2 * a + 1)]) / squares, 1, 1e-6);
  }
  EXPECT_THAT(
      PowerSums(stream_.ref(), device_, in.span<float>(), ascans, depth, 5, 302, out.span<float>()),
      IsError(absl::StatusCode::kOutOfRange, "302"));
  EXPECT_THAT(
      PowerSums(stream_.ref(), device_, in.span<float>(), 0, depth, 0, 2, out.span<float>()),
      IsError(absl::StatusCode::kInvalidArgument, "power"));
}

INSTANTIATE_TEST_SUITE_P(Backends, ProjectTest, ::testing::ValuesIn(testing::AvailableBackends()),
                         testing::BackendName);

}  // namespace
}  // namespace octavo

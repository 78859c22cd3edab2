// Planes that grow projection by projection equal those of the FBP volume, and a sum in double
// precision.

#include "gpu/tomography/live_planes.h"

#include "tests/gpu/tomography/reconstruct_fixture.h"

namespace octavo {
namespace {

using math::RayInterpolation;
using testing::Doubles;
using testing::IsError;
using testing::IsOk;
using Floats = std::vector<float>;

class LivePlanesTest : public testing::TomographyFixture {
 protected:
  struct Scan {
    LivePlanesConfig config;
    std::vector<double> angles;
    Floats sinograms;  // [slice, angle, detector]
  };

  template <class T>
  T Pick(std::initializer_list<T> values) {
    return *(values.begin() + static_cast<std::ptrdiff_t>(random_() % values.size()));
  }

  /// A random geometry; its angles are evenly spaced directions in an arbitrary order.
  Scan RandomScan() {
    Scan scan;
    TomographyConfig& c = scan.config.back_projection;
    c.algorithm = TomographyAlgorithm::kFbp;
    c.detectors = 20 + static_cast<int64_t>(random_() % 40);
    c.image_size = Pick<int64_t>({0, c.detectors - 5, c.detectors + 8, 2 * c.detectors / 3});
    scan.config.slices = 1 + static_cast<int64_t>(random_() % 20);
    scan.config.batch = 1 + static_cast<int64_t>(random_() % 20);
    c.pixel_size = Pick({1.0, 0.25, 3.7});
    c.mask_ratio = Pick({0.0, 0.6, 1.0});
    c.padding = Pick<int64_t>({TomographyConfig::kAutomaticPadding, 0, 4});
    c.filter = Pick({ProjectionFilter::kRamp, ProjectionFilter::kHann, ProjectionFilter::kParzen});
    c.extend_edges = Pick({false, true});
    c.interpolation = Pick({RayInterpolation::kLinear, RayInterpolation::kLinear,
                            RayInterpolation::kCubic, RayInterpolation::kNearest});
    const auto center = [&] {
      return 0.5 * static_cast<double>(c.detectors) +
             std::uniform_real_distribution<double>(-6, 6)(random_);
    };
    switch (random_() % 3) {
      case 0: break;
      case 1: c.centers = {center()}; break;
      default:
        for (int64_t i = 0; i < scan.config.slices; ++i) c.centers.push_back(center());
    }
    const auto angles = 8 + static_cast<int64_t>(random_() % 30);
    const double turns = Pick({0.5, 1.0, 2.5}), begin = Pick({0.0, -1.3, 40.0});
    for (int64_t i = 0; i < angles; ++i) {
      scan.angles.push_back(begin + turns * 2 * std::numbers::pi * static_cast<double>(i) /
                                        static_cast<double>(angles));
    }
    std::shuffle(scan.angles.begin(), scan.angles.end(), random_);
    scan.sinograms = Random(scan.config.slices * angles * c.detectors, -0.5f, 2.0f);
    return scan;
  }

  /// Adds the projections [first, first + count) of the scan. The array has room for a few more
  /// angles, whose values do not count.
  absl::Status Add(LivePlanes& planes, const Scan& scan, int64_t first, int64_t count,
                   const std::vector<PlaneId>& to) {
    const int64_t room = count + static_cast<int64_t>(random_() % 3),
                  detectors = scan.config.back_projection.detectors,
                  angles = std::ssize(scan.angles);
    Floats some(static_cast<size_t>(scan.config.slices * room * detectors), 1e30f);
    for (int64_t s = 0; s < scan.config.slices; ++s) {
      const auto from = scan.sinograms.begin() + (s * angles + first) * detectors;
      std::copy(from, from + count * detectors, some.begin() + s * room * detectors);
    }
    const DeviceBuffer data = Upload(some);
    return planes.Add(
        stream_.ref(),
        {.data = data.span<float>(),
         .room = room,
         .angles_rad = {scan.angles.begin() + first, scan.angles.begin() + first + count}},
        to);
  }
  void AddAll(LivePlanes& planes, const Scan& scan, const std::vector<PlaneId>& to) {
    for (int64_t first = 0, count; first < std::ssize(scan.angles); first += count) {
      count = std::min<int64_t>(std::ssize(scan.angles) - first,
                                1 + static_cast<int64_t>(random_()) % scan.config.batch);
      ASSERT_THAT(Add(planes, scan, first, count, to), IsOk());
    }
  }
  Floats Image(LivePlanes& planes, const PlaneId& plane) {
    const int64_t pixels = planes.rows(plane.axis) * planes.columns(plane.axis);
    const DeviceBuffer image = Poisoned(pixels * 4);
    EXPECT_THAT(planes.Image(stream_.ref(), plane, image.span<float>()), IsOk());
    return Download<float>(image, static_cast<size_t>(pixels));
  }
  static int64_t SizeOf(const Scan& scan) {
    const TomographyConfig& c = scan.config.back_projection;
    return c.image_size == 0 ? c.detectors : c.image_size;
  }
  static Floats PlaneOf(const Floats& volume, int64_t slices, int64_t n, const PlaneId& plane) {
    Floats out;
    for (int64_t r = 0; r < (plane.axis == PlaneAxis::kZ ? n : slices); ++r) {
      for (int64_t c = 0; c < n; ++c) {
        const int64_t z = plane.axis == PlaneAxis::kZ ? plane.index : r,
                      y = plane.axis == PlaneAxis::kZ   ? r
                          : plane.axis == PlaneAxis::kY ? plane.index
                                                        : c,
                      x = plane.axis == PlaneAxis::kX ? plane.index : c;
        out.push_back(volume[static_cast<size_t>((z * n + y) * n + x)]);
      }
    }
    return out;
  }
  std::vector<PlaneId> SomePlanes(const Scan& scan) {
    std::vector<PlaneId> planes;
    for (const PlaneAxis axis : {PlaneAxis::kZ, PlaneAxis::kY, PlaneAxis::kX}) {
      const int64_t count = axis == PlaneAxis::kZ ? scan.config.slices : SizeOf(scan);
      for (const int64_t index :
           {int64_t{0}, count / 2, count - 1, static_cast<int64_t>(random_()) % count}) {
        const PlaneId plane{axis, index};
        if (std::find(planes.begin(), planes.end(), plane) == planes.end()) planes.push_back(plane);
      }
    }
    return planes;
  }
};

TEST_P(LivePlanesTest, WithAllProjectionsTheyAreThePlanesOfTheFbpVolume) {
  for (int trial = 0; trial < 40; ++trial) {
    const Scan scan = RandomScan();
    TomographyConfig fbp = scan.config.back_projection;
    fbp.angles_rad = scan.angles;
    fbp.slices = scan.config.slices;
    ASSERT_OK_AND_ASSIGN(const Floats volume, Reconstruct(fbp, scan.sinograms));
    ASSERT_OK_AND_ASSIGN(const auto planes, LivePlanes::Create(scan.config, device_));
    std::vector<PlaneId> all = SomePlanes(scan);
    for (const PlaneId& plane : all) ASSERT_THAT(planes->Begin(stream_.ref(), plane), IsOk());
    AddAll(*planes, scan, all);
    const double most = testing::Largest(Doubles(volume.begin(), volume.end()));
    for (const PlaneId& plane : all) {
      EXPECT_EQ(planes->count(plane), std::ssize(scan.angles));
      const Floats expected = PlaneOf(volume, fbp.slices, SizeOf(scan), plane);
      // The nearest bin of a point between two of them may be either.
      if (fbp.interpolation == RayInterpolation::kNearest) {
        int64_t far = 0;
        const Floats actual = Image(*planes, plane);
        for (size_t i = 0; i < expected.size(); ++i)
          far += std::abs(actual[i] - expected[i]) > 1e-5 * most;
        EXPECT_LE(far, std::ssize(expected) / 50);
        continue;
      }
      EXPECT_LE(testing::LargestDifference(Image(*planes, plane), expected), 1e-5 * most)
          << "trial " << trial << ", axis " << static_cast<int>(plane.axis) << ", index "
          << plane.index << ", detectors " << fbp.detectors << ", size " << SizeOf(scan);
    }
  }
}

TEST_P(LivePlanesTest, EveryProjectionCountsTheSame) {
  for (int trial = 0; trial < 6; ++trial) {
    Scan scan = RandomScan();
    TomographyConfig& c = scan.config.back_projection;
    c.interpolation = RayInterpolation::kLinear;
    c.extend_edges = false;
    // In the order of the golden angle, as a scan without an end has them.
    for (size_t i = 0; i < scan.angles.size(); ++i)
      scan.angles[i] = static_cast<double>(i) * std::numbers::pi * (std::sqrt(5.0) - 1) / 2;
    const int64_t n = SizeOf(scan), angles = std::ssize(scan.angles);
    const ProjectionFilterTaps filter = DesignProjectionFilter(c);
    Doubles filtered(scan.sinograms.size(), 0.0);
    for (size_t row = 0; row < filtered.size(); row += static_cast<size_t>(c.detectors)) {
      for (int64_t d = 0; d < c.detectors; ++d) {
        for (int64_t k = 0; k < c.detectors; ++k) {
          filtered[row + static_cast<size_t>(d)] +=
              static_cast<double>(filter.taps[static_cast<size_t>(d - k + c.detectors - 1)]) *
              static_cast<double>(scan.sinograms[row + static_cast<size_t>(k)]);
        }
      }
    }
    const double middle = 0.5 * static_cast<double>(n - 1),
                 radius = static_cast<double>(PlanTomography([&] {
                                                TomographyConfig one = c;
                                                one.angles_rad = {0};
                                                one.slices = 1;
                                                one.centers.clear();
                                                return one;
                                              }())
                                                  .radius);
    Doubles volume;
    for (int64_t z = 0; z < scan.config.slices; ++z) {
      const double center = c.centers.empty()
                                ? 0.5 * static_cast<double>(c.detectors - 1)
                                : c.centers[c.centers.size() == 1 ? 0 : static_cast<size_t>(z)];
      for (int64_t r = 0; r < n; ++r) {
        for (int64_t column = 0; column < n; ++column) {
          const double x = static_cast<double>(column) - middle,
                       y = middle - static_cast<double>(r);
          double sum = 0;
          for (int64_t a = 0; a < angles && x * x + y * y <= radius * radius; ++a) {
            const double angle = scan.angles[static_cast<size_t>(a)],
                         u = center + x * std::cos(angle) + y * std::sin(angle),
                         part = u - std::floor(u);
            for (const int64_t side : {0, 1}) {
              const auto d = static_cast<int64_t>(std::floor(u)) + side;
              if (d < 0 || d >= c.detectors) continue;
              sum += (side == 1 ? part : 1 - part) *
                     filtered[static_cast<size_t>((z * angles + a) * c.detectors + d)];
            }
          }
          volume.push_back(sum * std::numbers::pi / static_cast<double>(angles) / c.pixel_size);
        }
      }
    }
    ASSERT_OK_AND_ASSIGN(const auto planes, LivePlanes::Create(scan.config, device_));
    const std::vector<PlaneId> all = SomePlanes(scan);
    for (const PlaneId& plane : all) ASSERT_THAT(planes->Begin(stream_.ref(), plane), IsOk());
    AddAll(*planes, scan, all);
    const double most = testing::Largest(volume);
    for (const PlaneId& plane : all) {
      const Floats expected =
          PlaneOf(Floats(volume.begin(), volume.end()), scan.config.slices, n, plane);
      EXPECT_LE(testing::LargestDifference(Image(*planes, plane), expected), 1e-4 * most)
          << "trial " << trial << ", axis " << static_cast<int>(plane.axis) << ", index "
          << plane.index;
    }
  }
}

TEST_P(LivePlanesTest, APlaneNeedsNoOther) {
  Scan scan = RandomScan();
  scan.config.slices = 5;
  scan.config.back_projection.centers = {14.3};
  scan.config.batch = 4;
  scan.angles = {0.1, 2, 0.7, 3, 1.1, 4, 1.9};
  scan.sinograms = Random(5 * 7 * scan.config.back_projection.detectors, 0, 2);
  ASSERT_OK_AND_ASSIGN(const auto planes, LivePlanes::Create(scan.config, device_));
  const PlaneId z{PlaneAxis::kZ, 3}, y{PlaneAxis::kY, 4}, late{PlaneAxis::kX, 7};
  ASSERT_THAT(planes->Begin(stream_.ref(), z), IsOk());
  ASSERT_THAT(planes->Begin(stream_.ref(), y), IsOk());
  ASSERT_THAT(planes->Begin(stream_.ref(), late), IsOk());
  ASSERT_THAT(Add(*planes, scan, 0, 4, {z}), IsOk());  // one row alone
  ASSERT_THAT(Add(*planes, scan, 0, 4, {y}), IsOk());
  ASSERT_THAT(Add(*planes, scan, 4, 3, {y, z}), IsOk());
  ASSERT_THAT(Add(*planes, scan, 0, 4, {late}), IsOk());  // catches up
  EXPECT_EQ(planes->count(late), 4);
  ASSERT_THAT(Add(*planes, scan, 4, 3, {late}), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto others, LivePlanes::Create(scan.config, device_));
  for (const PlaneId& plane : {z, y, late})
    ASSERT_THAT(others->Begin(stream_.ref(), plane), IsOk());
  ASSERT_THAT(Add(*others, scan, 0, 4, {z, y, late}), IsOk());
  ASSERT_THAT(Add(*others, scan, 4, 3, {z, y, late}), IsOk());
  EXPECT_EQ(Image(*planes, y), Image(*others, y));
  EXPECT_EQ(Image(*planes, late), Image(*others, late));
  EXPECT_LE(testing::LargestDifference(Image(*planes, z), Image(*others, z)), 1e-4)
      << "the host filters rows in pairs";
  // Anew, and dropped.
  ASSERT_THAT(planes->Begin(stream_.ref(), y), IsOk());
  EXPECT_EQ(planes->count(y), 0);
  EXPECT_EQ(Image(*planes, y), Floats(static_cast<size_t>(planes->rows(PlaneAxis::kY) *
                                                          planes->columns(PlaneAxis::kY))));
  ASSERT_THAT(Add(*planes, scan, 0, 4, {y}), IsOk());
  ASSERT_THAT(Add(*planes, scan, 4, 3, {y}), IsOk());
  EXPECT_EQ(Image(*planes, y), Image(*others, y));
  ASSERT_THAT(planes->End(stream_.ref(), y), IsOk());
  EXPECT_EQ(planes->count(y), -1);
  EXPECT_EQ(planes->count(late), 7);
}

TEST_P(LivePlanesTest, WrongInputIsRefusedAndChangesNothing) {
  Scan scan = RandomScan();
  const auto refused = [&](auto change, const char* why) {
    LivePlanesConfig config = scan.config;
    change(config);
    EXPECT_THAT(LivePlanes::Create(config, device_),
                IsError(absl::StatusCode::kInvalidArgument, why));
    EXPECT_THAT(LivePlanes::DeviceBytes(config, device_),
                IsError(absl::StatusCode::kInvalidArgument, why));
  };
  refused([](LivePlanesConfig& c) { c.slices = 0; }, "slices");
  refused([](LivePlanesConfig& c) { c.batch = 5000; }, "batch");
  refused([](LivePlanesConfig& c) { c.back_projection.detectors = 1; }, "detectors");
  refused([](LivePlanesConfig& c) { c.back_projection.filter_cutoff = 0; }, "filter_cutoff");
  refused(
      [](LivePlanesConfig& c) {
        c.back_projection.centers = {1, 2, 3};
        c.slices = 7;
      },
      "has 3 values");
  refused([](LivePlanesConfig& c) { c.back_projection.centers = {1e9}; }, "centers");
  refused([](LivePlanesConfig& c) { c.back_projection.form = TomographyForm::kTomopy; }, "TomoPy");

  scan.config.batch = 3;
  ASSERT_OK_AND_ASSIGN(const auto planes, LivePlanes::Create(scan.config, device_));
  const PlaneId z{PlaneAxis::kZ, 0}, y{PlaneAxis::kY, 1};
  EXPECT_THAT(planes->Begin(stream_.ref(), {PlaneAxis::kZ, scan.config.slices}),
              IsError(absl::StatusCode::kInvalidArgument, "plane"));
  EXPECT_THAT(planes->Begin(stream_.ref(), {PlaneAxis::kX, SizeOf(scan)}),
              IsError(absl::StatusCode::kInvalidArgument, "plane"));
  EXPECT_THAT(planes->Begin(stream_.ref(), {PlaneAxis::kY, -1}),
              IsError(absl::StatusCode::kInvalidArgument, "plane"));
  ASSERT_THAT(planes->Begin(stream_.ref(), z), IsOk());
  ASSERT_THAT(Add(*planes, scan, 0, 2, {z}), IsOk());
  const Floats before = Image(*planes, z);
  EXPECT_THAT(Add(*planes, scan, 0, 4, {z}),
              IsError(absl::StatusCode::kInvalidArgument, "angles_rad"));
  EXPECT_THAT(Add(*planes, scan, 0, 0, {z}),
              IsError(absl::StatusCode::kInvalidArgument, "angles_rad"));
  EXPECT_THAT(Add(*planes, scan, 0, 2, {z, y}),
              IsError(absl::StatusCode::kInvalidArgument, "not begun"));
  EXPECT_THAT(
      planes->Add(stream_.ref(),
                  {.data = Upload(Floats(4)).span<float>(), .room = 2, .angles_rad = {1}}, {z}),
      IsError(absl::StatusCode::kInvalidArgument, "data"));
  Scan bad = scan;
  bad.angles[1] = std::nan("");
  EXPECT_THAT(Add(*planes, bad, 0, 2, {z}), IsError(absl::StatusCode::kInvalidArgument, "angles"));
  const DeviceBuffer small = Poisoned(4);
  EXPECT_THAT(planes->Image(stream_.ref(), z, small.span<float>()),
              IsError(absl::StatusCode::kInvalidArgument, "image"));
  EXPECT_THAT(planes->Image(stream_.ref(), y, small.span<float>()),
              IsError(absl::StatusCode::kInvalidArgument, "not begun"));
  EXPECT_EQ(planes->count(z), 2);
  EXPECT_EQ(Image(*planes, z), before);
}

INSTANTIATE_TEST_SUITE_P(Backends, LivePlanesTest,
                         ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

}  // namespace
}  // namespace octavo

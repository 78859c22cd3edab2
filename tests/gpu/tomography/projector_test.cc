// Projection and its adjoint as a plan of their own.

#include "gpu/tomography/projector.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "tests/gpu/tomography/reconstruct_fixture.h"

namespace octavo {
namespace {

using math::RayInterpolation;
using testing::DenseProjector;
using testing::Doubles;
using testing::Floats;
using testing::IsError;
using testing::IsOk;

// For sums of some hundred products of f32; positions are accurate to 1e-5 of a pixel. Relative to
// the largest value.
constexpr double kTolerance = 2e-5;
constexpr RayInterpolation kAll[] = {RayInterpolation::kNearest, RayInterpolation::kLinear,
                                     RayInterpolation::kCubic};

class ProjectorTest : public testing::TomographyFixture {
 protected:
  static int64_t ImageSize(const ProjectorConfig& c) {
    return c.image_size == 0 ? c.detectors : c.image_size;
  }
  static int64_t ImagePixels(const ProjectorConfig& c) { return ImageSize(c) * ImageSize(c); }
  static int64_t SinogramBins(const ProjectorConfig& c) {
    return static_cast<int64_t>(c.angles_rad.size()) * c.detectors;
  }

  absl::StatusOr<std::vector<float>> Project(Projector& projector, const ProjectorConfig& c,
                                             const std::vector<float>& images,
                                             const CancelCheck& goes_on = {}) {
    const int64_t slices = static_cast<int64_t>(images.size()) / ImagePixels(c);
    const DeviceBuffer in = Upload(images), out = Poisoned(slices * SinogramBins(c) * 4);
    OCTAVO_RETURN_IF_ERROR(
        projector.Project(stream_.ref(), slices, in.span<float>(), out.span<float>(), goes_on));
    return Download<float>(out, static_cast<size_t>(slices * SinogramBins(c)));
  }
  absl::StatusOr<std::vector<float>> BackProject(Projector& projector, const ProjectorConfig& c,
                                                 const std::vector<float>& sinograms,
                                                 const CancelCheck& goes_on = {}) {
    const int64_t slices = static_cast<int64_t>(sinograms.size()) / SinogramBins(c);
    const DeviceBuffer in = Upload(sinograms), out = Poisoned(slices * ImagePixels(c) * 4);
    OCTAVO_RETURN_IF_ERROR(
        projector.BackProject(stream_.ref(), slices, in.span<float>(), out.span<float>(), goes_on));
    return Download<float>(out, static_cast<size_t>(slices * ImagePixels(c)));
  }

  static DenseProjector Dense(const ProjectorConfig& c, int64_t slice) {
    const double center = c.centers.empty()       ? static_cast<double>(c.detectors - 1) / 2
                          : c.centers.size() == 1 ? c.centers[0]
                                                  : c.centers[static_cast<size_t>(slice)];
    return {.n = ImageSize(c),
            .detectors = c.detectors,
            .angles = c.angles_rad,
            .center = center,
            .pixel_size = c.pixel_size,
            .radius = 0.5 * c.mask_ratio * static_cast<double>(ImageSize(c)),
            .how = c.interpolation};
  }
  static Doubles Slice(const std::vector<float>& all, int64_t slice, int64_t count) {
    const auto begin = all.begin() + slice * count;
    return {begin, begin + count};
  }

  /// Compares A x and Aᵀ y of random x and y with the matrix, and <A x, y> with <x, Aᵀ y>.
  void Check(const ProjectorConfig& c) {
    ASSERT_OK_AND_ASSIGN(const auto projector, Projector::Create(c, device_));
    const auto x = Random(c.slices * ImagePixels(c), -1, 1),
               y = Random(c.slices * SinogramBins(c), -1, 1);
    ASSERT_OK_AND_ASSIGN(const auto ax, Project(*projector, c, x));
    ASSERT_OK_AND_ASSIGN(const auto aty, BackProject(*projector, c, y));
    for (int64_t slice = 0; slice < c.slices; ++slice) {
      const DenseProjector dense = Dense(c, slice);
      const Doubles xs = Slice(x, slice, ImagePixels(c)), ys = Slice(y, slice, SinogramBins(c)),
                    got = Slice(ax, slice, SinogramBins(c)),
                    back = Slice(aty, slice, ImagePixels(c)), want = dense.Forward(xs),
                    want_back = dense.Back(ys);
      EXPECT_LE(testing::LargestDifference(got, want), kTolerance * testing::Largest(want))
          << "slice " << slice;
      EXPECT_LE(testing::LargestDifference(back, want_back),
                kTolerance * testing::Largest(want_back))
          << "slice " << slice;
      const double right = std::inner_product(xs.begin(), xs.end(), back.begin(), 0.0);
      double left = 0, scale = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        left += got[i] * ys[i];
        scale += std::abs(got[i] * ys[i]);
      }
      EXPECT_NEAR(left, right, kTolerance * scale) << "slice " << slice;
    }
  }
};

// In no order, repeated, over more than a turn and below 0.
std::vector<double> OddAngles() { return {0.3, 2.9, 1.2, -0.4, 4.0, 7.5, 1.2, 0.1, 1.9, 0.3}; }

ProjectorConfig Odd(RayInterpolation how) {
  ProjectorConfig c;
  c.angles_rad = OddAngles();
  // For nearest: no angle at which every pixel is a tie.
  if (how != RayInterpolation::kNearest) {
    for (const double more : {0.0, 0.25, 0.5, 0.75, 1.0, 1.5})
      c.angles_rad.push_back(more * std::numbers::pi);
  }
  c.detectors = 45;
  c.slices = 1;
  c.centers = {21.3};
  c.image_size = 38;
  c.pixel_size = 0.25;
  c.interpolation = how;
  return c;
}

TEST_P(ProjectorTest, IsTheMatrixAndItsAdjoint) {
  for (const RayInterpolation how : kAll) {
    SCOPED_TRACE(static_cast<int>(how));
    ProjectorConfig c = Odd(how);
    Check(c);
    c.slices = 9;  // interleaved
    Check(c);
    c.mask_ratio = 0.8;
    Check(c);
    c.slices = 3;  // an axis for each slice
    c.centers = {20.2, 24.6, 12.1};
    Check(c);
  }
}

TEST_P(ProjectorTest, ExtentsOfManyKinds) {
  for (const auto& [detectors, image] :
       {std::pair<int64_t, int64_t>{2, 1}, {31, 64}, {64, 31}, {33, 33}, {50, 0}, {7, 101}}) {
    SCOPED_TRACE(detectors);
    ProjectorConfig c = Odd(RayInterpolation::kLinear);
    c.detectors = detectors;
    c.image_size = image;
    c.centers = {};
    c.slices = 2;
    c.pixel_size = 1;
    Check(c);
    c.centers = {static_cast<double>(detectors) - 0.7};  // at an end of the detector
    Check(c);
    c.centers = {-0.9 * static_cast<double>(detectors)};  // beside it
    Check(c);
    c.angles_rad = {std::numbers::pi / 2};  // one angle, whose rays step along columns
    Check(c);
  }
}

TEST_P(ProjectorTest, RepeatedAnglesGiveEqualRows) {
  const ProjectorConfig c = Odd(RayInterpolation::kCubic);
  ASSERT_OK_AND_ASSIGN(const auto projector, Projector::Create(c, device_));
  ASSERT_OK_AND_ASSIGN(const auto ax, Project(*projector, c, Random(ImagePixels(c), -1, 1)));
  for (const auto& [a, b] : {std::pair<int64_t, int64_t>{2, 6}, {0, 9}}) {
    EXPECT_EQ(Slice(ax, a, c.detectors), Slice(ax, b, c.detectors)) << a;
    EXPECT_GT(testing::Largest(Slice(ax, a, c.detectors)), 0);
  }
}

TEST_P(ProjectorTest, ASliceDoesNotDependOnItsRun) {
  for (const RayInterpolation how : kAll) {
    ProjectorConfig c = Odd(how);
    c.slices = 21;
    const auto x = Random(c.slices * ImagePixels(c), -1, 1),
               y = Random(c.slices * SinogramBins(c), -1, 1);
    ASSERT_OK_AND_ASSIGN(const auto whole, Projector::Create(c, device_));
    ASSERT_OK_AND_ASSIGN(const auto ax, Project(*whole, c, x));
    ASSERT_OK_AND_ASSIGN(const auto aty, BackProject(*whole, c, y));
    for (const int64_t batch : {1, 4, 16}) {
      ProjectorConfig part = c;
      part.slices = batch;
      ASSERT_OK_AND_ASSIGN(const auto projector, Projector::Create(part, device_));
      std::vector<float> parts, back;
      for (int64_t first = 0; first < c.slices; first += batch) {
        const int64_t count = std::min(batch, c.slices - first);
        const auto cut = [&](const std::vector<float>& all, int64_t each) {
          return std::vector<float>(all.begin() + first * each,
                                    all.begin() + (first + count) * each);
        };
        ASSERT_OK_AND_ASSIGN(const auto a, Project(*projector, part, cut(x, ImagePixels(c))));
        ASSERT_OK_AND_ASSIGN(const auto b, BackProject(*projector, part, cut(y, SinogramBins(c))));
        parts.insert(parts.end(), a.begin(), a.end());
        back.insert(back.end(), b.begin(), b.end());
      }
      // Kernels of other lanes may add in another order.
      EXPECT_LE(testing::LargestDifference(parts, ax),
                2e-6 * testing::Largest(Doubles(ax.begin(), ax.end())))
          << batch;
      EXPECT_LE(testing::LargestDifference(back, aty),
                2e-6 * testing::Largest(Doubles(aty.begin(), aty.end())))
          << batch;
    }
    // Again, to the last bit, also after a smaller run.
    ASSERT_THAT(Project(*whole, c, Random(2 * ImagePixels(c), -1, 1)), IsOk());
    ASSERT_OK_AND_ASSIGN(const auto again, Project(*whole, c, x));
    EXPECT_EQ(again, ax);
    ASSERT_OK_AND_ASSIGN(const auto back_again, BackProject(*whole, c, y));
    EXPECT_EQ(back_again, aty);
  }
}

TEST_P(ProjectorTest, PiecesMakeWhatOneMakesAndCanBeGivenUp) {
  ProjectorConfig c;
  c.angles_rad = testing::HalfTurn(40);
  c.detectors = 101;
  c.image_size = 97;
  for (const int64_t slices : {1, 18}) {
    c.slices = slices;
    c.piece_samples = 0;
    const auto x = Random(slices * ImagePixels(c), -1, 1),
               y = Random(slices * SinogramBins(c), -1, 1);
    ASSERT_OK_AND_ASSIGN(const auto one, Projector::Create(c, device_));
    ASSERT_OK_AND_ASSIGN(const auto ax, Project(*one, c, x));
    ASSERT_OK_AND_ASSIGN(const auto aty, BackProject(*one, c, y));
    c.piece_samples = 1;
    ASSERT_OK_AND_ASSIGN(const auto many, Projector::Create(c, device_));
    int64_t pieces = 0;
    const auto count = [&] { return ++pieces > 0; };
    ASSERT_OK_AND_ASSIGN(const auto ax_pieces, Project(*many, c, x, count));
    EXPECT_EQ(ax_pieces, ax);
    EXPECT_EQ(pieces, 40 / 8 - 1);
    pieces = 0;
    ASSERT_OK_AND_ASSIGN(const auto aty_pieces, BackProject(*many, c, y, count));
    EXPECT_EQ(aty_pieces, aty);
    EXPECT_EQ(pieces, 97 / 32);
    for (const int64_t last : {1, 3}) {
      int64_t calls = 0;
      const auto give_up = [&] { return ++calls < last; };
      EXPECT_THAT(Project(*many, c, x, give_up), IsError(absl::StatusCode::kCancelled, "given up"));
      EXPECT_EQ(calls, last) << "nothing more is begun";
      calls = 0;
      EXPECT_THAT(BackProject(*many, c, y, give_up),
                  IsError(absl::StatusCode::kCancelled, "given up"));
      EXPECT_EQ(calls, last);
    }
    ASSERT_OK_AND_ASSIGN(const auto after, Project(*many, c, x));
    EXPECT_EQ(after, ax) << "a plan outlives a cancelled run";
  }
}

// The chord of a disc at distance s is 2 sqrt(r² − s²).
TEST_P(ProjectorTest, ADiscHasItsChords) {
  ProjectorConfig c;
  c.angles_rad = testing::HalfTurn(12);
  c.detectors = 128;
  c.centers = {60.0};
  c.slices = 1;
  c.pixel_size = 0.5;
  constexpr int64_t kFine = 8;
  constexpr double kRadius = 40, kX = 9, kY = 6;  // y upwards
  std::vector<float> disc(128 * 128, 0.0f);
  for (int64_t r = 0; r < 128 * kFine; ++r) {
    for (int64_t q = 0; q < 128 * kFine; ++q) {
      const double x = (static_cast<double>(q) + 0.5) / kFine - 64 - kX,
                   y = 64 - (static_cast<double>(r) + 0.5) / kFine - kY;
      if (x * x + y * y <= kRadius * kRadius)
        disc[static_cast<size_t>(r / kFine * 128 + q / kFine)] += 1.0f / (kFine * kFine);
    }
  }
  ASSERT_OK_AND_ASSIGN(const auto projector, Projector::Create(c, device_));
  ASSERT_OK_AND_ASSIGN(const auto ax, Project(*projector, c, disc));
  int64_t inside = 0;
  for (size_t a = 0; a < c.angles_rad.size(); ++a) {
    for (int64_t d = 0; d < c.detectors; ++d) {
      const double s = static_cast<double>(d) - 60 - kX * std::cos(c.angles_rad[a]) -
                       kY * std::sin(c.angles_rad[a]);
      if (std::abs(s) > kRadius - 2) continue;
      ++inside;
      EXPECT_NEAR(ax[a * 128 + static_cast<size_t>(d)],
                  c.pixel_size * 2 * std::sqrt(kRadius * kRadius - s * s),
                  0.01 * 2 * kRadius * 0.5);
    }
  }
  EXPECT_GT(inside, 12 * 70);
}

TEST_P(ProjectorTest, DeviceBytesCoversTheMemory) {
  for (const int64_t slices : {1, 16}) {
    ProjectorConfig c = Odd(RayInterpolation::kLinear);
    c.slices = slices;
    ASSERT_OK_AND_ASSIGN(const int64_t bytes, Projector::DeviceBytes(c, device_));
    const int64_t arrays = slices * 4 * (2 * 38 * 38 + 16 * 45);
    EXPECT_GE(bytes, arrays);
    EXPECT_LE(bytes, 2 * arrays + 65536);
  }
}

TEST_P(ProjectorTest, RefusesWhatIsWrong) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  const auto refused = [&](const char* field, const std::function<void(ProjectorConfig&)>& change) {
    ProjectorConfig c = Odd(RayInterpolation::kLinear);
    change(c);
    EXPECT_THAT(Projector::Create(c, device_), IsError(invalid, field));
    EXPECT_THAT(Projector::DeviceBytes(c, device_), IsError(invalid, field));
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  refused("angles_rad", [](auto& c) { c.angles_rad = {}; });
  refused("angles_rad", [&](auto& c) { c.angles_rad[3] = nan; });
  refused("detectors", [](auto& c) { c.detectors = 1; });
  refused("slices", [](auto& c) { c.slices = 0; });
  refused("centers", [](auto& c) { c.centers = {1, 2}; });
  refused("centers", [&](auto& c) { c.centers = {nan}; });
  refused("image_size", [](auto& c) { c.image_size = -1; });
  refused("image_size", [](auto& c) { c.image_size = 40000; });
  refused("pixel_size", [](auto& c) { c.pixel_size = 0; });
  refused("mask_ratio", [](auto& c) { c.mask_ratio = 1.5; });
  refused("piece_samples", [](auto& c) { c.piece_samples = -1; });

  ProjectorConfig c = Odd(RayInterpolation::kLinear);
  ASSERT_OK_AND_ASSIGN(const auto projector, Projector::Create(c, device_));
  auto x = Random(ImagePixels(c), -1, 1), y = Random(SinogramBins(c), -1, 1);
  EXPECT_THAT(Project(*projector, c, Random(2 * ImagePixels(c), -1, 1)),
              IsError(invalid, "slices"));
  EXPECT_THAT(projector->Project(stream_.ref(), 0, nullptr, nullptr, {}),
              IsError(invalid, "slices"));
  x[5] = std::numeric_limits<float>::infinity();
  y[6] = y[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(Project(*projector, c, x), IsError(invalid, "images: 1 values are not finite"));
  EXPECT_THAT(BackProject(*projector, c, y),
              IsError(invalid, "sinograms: 2 values are not finite"));
}

INSTANTIATE_TEST_SUITE_P(Backends, ProjectorTest, ::testing::ValuesIn(testing::AvailableBackends()),
                         testing::BackendName);

}  // namespace
}  // namespace octavo

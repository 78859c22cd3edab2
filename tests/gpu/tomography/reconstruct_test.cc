#include "gpu/tomography/reconstruct.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "tests/gpu/tomography/reconstruct_fixture.h"

namespace octavo {
namespace {

using math::RayInterpolation;
using testing::DenseProjector;
using testing::Doubles;
using testing::Floats;
using testing::IsError;
using testing::IsOk;
using testing::Small;

// For sums of some hundred products of f32; positions are accurate to 1e-5 of a pixel. Relative to
// the largest value.
constexpr double kProjectionTolerance = 2e-5;

class TomographyTest : public testing::TomographyFixture {
 protected:
  testing::TestView MakeView(const TomographyConfig& config, int64_t groups, int64_t lanes) {
    testing::TestView t;
    t.plan = PlanTomography(config);
    std::vector<float> centers(static_cast<size_t>(groups), t.plan.centers[0]);
    t.forward = Upload(t.plan.forward);
    t.back = Upload(t.plan.back);
    t.order = Upload(t.plan.order);
    t.centers = Upload(centers);
    t.view = {.groups = groups,
              .lanes = lanes,
              .size = t.plan.grid_size,
              .detectors = config.detectors,
              .angles = static_cast<int64_t>(t.plan.order.size()),
              .forward = t.forward.as<math::ForwardAngle>(),
              .back = t.back.as<math::BackAngle>(),
              .centers = t.centers.as<float>(),
              .pixel_size = static_cast<float>(config.pixel_size),
              .radius = t.plan.radius,
              .interpolation = config.interpolation};
    return t;
  }
  DeviceBuffer Zeros(int64_t elements) {
    DeviceBuffer buffer = device_.Allocate(elements * 4).value();
    EXPECT_THAT(device_.Fill(stream_.ref(), buffer.data(), elements * 4, 0), IsOk());
    return buffer;
  }

  // A x and Aᵀ y of random x and y through the operators, in the order of the configuration:
  // [slice, angle, detector] and [slice, n, n].
  struct Pair {
    std::vector<float> x, y;
    Doubles ax, aty;
  };
  Pair Project(const TomographyConfig& config, int64_t slices, int64_t lanes) {
    const int64_t groups = (slices + lanes - 1) / lanes;
    testing::TestView t = MakeView(config, groups, lanes);
    const RayView& v = t.view;
    TomographyOps& ops = *FindOperators<TomographyOps>(device_).value();
    Pair pair;
    pair.x = Random(slices * v.size * v.size, -1, 1);
    pair.y = Random(slices * v.angles * v.detectors, -1, 1);
    const DeviceBuffer x = Upload(pair.x), y = Upload(pair.y);
    const DeviceBuffer image = Zeros(v.image_elements()), turned = Zeros(v.image_elements()),
                       sinogram = Zeros(v.sinogram_elements()),
                       given = Zeros(v.sinogram_elements()), back = Zeros(v.image_elements()),
                       out = Poisoned(static_cast<int64_t>(pair.x.size()) * 4);
    const StreamRef s = stream_.ref();
    EXPECT_THAT(ops.PackImages(s, v, x.span<float>(), 0, v.size, slices, image.span<float>()),
                IsOk());
    EXPECT_THAT(ops.Transpose(s, v, image.span<float>(), turned.span<float>()), IsOk());
    EXPECT_THAT(ops.PackSinograms(s, v, {y.as<float>(), v.angles * v.detectors, v.detectors},
                                  t.order.span<int32_t>(), slices, given.span<float>()),
                IsOk());
    for (const AngleRange& range : t.plan.subsets) {
      EXPECT_THAT(ops.Forward(s, v, range, image.span<float>(), turned.span<float>(),
                              sinogram.span<float>()),
                  IsOk());
    }
    pair.aty.assign(pair.x.size(), 0.0);
    for (const AngleRange& range : t.plan.subsets) {
      EXPECT_THAT(ops.Back(s, v, range, given.span<float>(), back.span<float>()), IsOk());
      EXPECT_THAT(ops.UnpackImages(s, v, back.span<float>(), v.size, 0, slices, out.span<float>()),
                  IsOk());
      const auto part = Download<float>(out, pair.x.size());
      for (size_t i = 0; i < part.size(); ++i) pair.aty[i] += static_cast<double>(part[i]);
    }
    const auto packed = Download<float>(sinogram, static_cast<size_t>(v.sinogram_elements()));
    pair.ax.resize(pair.y.size());
    for (int64_t slice = 0; slice < slices; ++slice) {
      for (int64_t a = 0; a < v.angles; ++a) {
        for (int64_t d = 0; d < v.detectors; ++d) {
          const int64_t from =
              (((slice / lanes) * v.angles + a) * v.sinogram_pitch() + math::kRayMargin + d) *
                  lanes +
              slice % lanes;
          pair.ax[static_cast<size_t>(
              (slice * v.angles + t.plan.order[static_cast<size_t>(a)]) * v.detectors + d)] =
              static_cast<double>(packed[static_cast<size_t>(from)]);
        }
      }
    }
    return pair;
  }
};

TomographyConfig Odd(RayInterpolation how) {
  TomographyConfig c;
  // Whole quarter turns, diagonals, more than a turn and below zero. For nearest: no angle at which
  // every pixel is a tie.
  c.angles_rad = {0.3, 2.9, 1.2, -0.4, 4.0, 7.5, 0.1, 1.9};
  if (how != RayInterpolation::kNearest) {
    for (const double more : {0.0, 0.25, 0.5, 0.75, 1.0, 1.5})
      c.angles_rad.push_back(more * std::numbers::pi);
  }
  c.detectors = 45;
  c.slices = 20;
  c.centers = {20.3};
  c.image_size = 37;
  c.padding = 0;
  c.mask_ratio = 0;
  c.pixel_size = 0.7;
  c.interpolation = how;
  return c;
}

TEST_P(TomographyTest, ProjectorsAgreeWithDoublePrecision) {
  for (const auto how :
       {RayInterpolation::kNearest, RayInterpolation::kLinear, RayInterpolation::kCubic}) {
    for (const int64_t slices : {1, 20}) {
      for (const double mask : {0.0, 0.9}) {
        TomographyConfig c = Odd(how);
        c.mask_ratio = mask;
        c.subsets = mask == 0 ? 1 : 3;
        const Pair pair =
            Project(c, slices, FindOperators<TomographyOps>(device_).value()->Lanes(slices, true));
        const int64_t n = c.image_size, pixels = n * n,
                      rays = static_cast<int64_t>(c.angles_rad.size()) * c.detectors;
        const DenseProjector dense{n,
                                   c.detectors,
                                   c.angles_rad,
                                   c.centers[0],
                                   c.pixel_size,
                                   mask * static_cast<double>(n) / 2,
                                   how};
        for (const int64_t slice : {int64_t{0}, slices - 1}) {
          const Doubles x(pair.x.begin() + slice * pixels, pair.x.begin() + (slice + 1) * pixels);
          const Doubles y(pair.y.begin() + slice * rays, pair.y.begin() + (slice + 1) * rays);
          const Doubles ax = dense.Forward(x), aty = dense.Back(y);
          const Doubles got_ax(pair.ax.begin() + slice * rays,
                               pair.ax.begin() + (slice + 1) * rays);
          const Doubles got_aty(pair.aty.begin() + slice * pixels,
                                pair.aty.begin() + (slice + 1) * pixels);
          EXPECT_LT(testing::LargestDifference(got_ax, ax),
                    kProjectionTolerance * testing::Largest(ax))
              << static_cast<int>(how) << " " << slices;
          EXPECT_LT(testing::LargestDifference(got_aty, aty),
                    kProjectionTolerance * testing::Largest(aty))
              << static_cast<int>(how) << " " << slices;
        }
      }
    }
  }
}

TEST_P(TomographyTest, BackIsTheAdjointOfForward) {
  for (const auto how :
       {RayInterpolation::kNearest, RayInterpolation::kLinear, RayInterpolation::kCubic}) {
    const Pair pair = Project(Odd(how), 3, 1);
    double forward = 0, back = 0, scale = 0;
    for (size_t i = 0; i < pair.ax.size(); ++i)
      forward += pair.ax[i] * static_cast<double>(pair.y[i]),
          scale += std::abs(pair.ax[i] * static_cast<double>(pair.y[i]));
    for (size_t i = 0; i < pair.aty.size(); ++i)
      back += pair.aty[i] * static_cast<double>(pair.x[i]);
    EXPECT_NEAR(forward, back, 1e-6 * scale) << static_cast<int>(how);
  }
}

TEST_P(TomographyTest, OneSliceOfABatchIsThatSliceAlone) {
  for (const auto algorithm :
       {TomographyAlgorithm::kSirt, TomographyAlgorithm::kMlem, TomographyAlgorithm::kCgls,
        TomographyAlgorithm::kFbp, TomographyAlgorithm::kTv}) {
    TomographyConfig c = Small(algorithm, 21);
    const int64_t rays = static_cast<int64_t>(c.angles_rad.size()) * c.detectors,
                  pixels = c.image_size * c.image_size;
    const auto b = Random(c.slices * rays, 0.5f, 2.0f);
    ASSERT_OK_AND_ASSIGN(const auto all, Reconstruct(c, b));
    ASSERT_OK_AND_ASSIGN(const auto again, Reconstruct(c, b));
    EXPECT_EQ(all, again) << "not bit for bit";
    c.slices = 1;
    for (const int64_t slice : {0, 17, 20}) {
      ASSERT_OK_AND_ASSIGN(const auto one, Reconstruct(c, {b.begin() + slice * rays,
                                                           b.begin() + (slice + 1) * rays}));
      const std::vector<float> mine(all.begin() + slice * pixels,
                                    all.begin() + (slice + 1) * pixels);
      EXPECT_LT(testing::LargestDifference(mine, one),
                1e-5 * testing::Largest({one.begin(), one.end()}));
    }
  }
}

TEST_P(TomographyTest, ReportsAndStops) {
  TomographyConfig c = Small(TomographyAlgorithm::kSirt, 2);
  c.iterations = 300;
  const int64_t n = c.image_size;
  Doubles disc(static_cast<size_t>(n * n), 0.0);
  for (int64_t i = 0; i < n * n; ++i)
    disc[static_cast<size_t>(i)] =
        std::hypot(static_cast<double>(i % n - n / 2), static_cast<double>(i / n - n / 2)) < 8 ? 1
                                                                                               : 0;
  std::vector<float> b =
      Floats(testing::ExactProjections(disc, n, c.angles_rad, c.detectors, c.centers[0]));
  b.insert(b.end(), b.begin(), b.end());
  double norm = 0;
  for (size_t i = 0; i < b.size() / 2; ++i)
    norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  norm = std::sqrt(norm);
  std::vector<double> norms;
  TomographyResult result;
  const auto watch = [&](const IterationReport& r) {
    EXPECT_EQ(r.residual_norms.size(), 2u);
    EXPECT_EQ(r.residual_norms[0], r.residual_norms[1]);
    norms.push_back(r.residual_norms[0]);
    return r.iteration < 12;
  };
  ASSERT_THAT(Reconstruct(c, b, {}, watch, &result), IsOk());
  ASSERT_EQ(norms.size(), 12u);
  EXPECT_EQ(result.stop, TomographyStop::kCallback);
  EXPECT_NEAR(norms[0], norm, 1e-5 * norm) << "from zero the first residual is the data";
  for (size_t i = 1; i < norms.size(); ++i) EXPECT_LT(norms[i], norms[i - 1]);
  c.stop_residual = 0.2;
  ASSERT_THAT(Reconstruct(c, b, {}, {}, &result), IsOk());
  EXPECT_EQ(result.stop, TomographyStop::kResidual);
  EXPECT_LE(result.last.residual_norms[1], 0.2 * norm);
  EXPECT_GT(result.last.iteration, 1);
  c.stop_residual = 0;
  c.stop_change = 0.02;
  ASSERT_THAT(Reconstruct(c, b, {}, {}, &result), IsOk());
  EXPECT_EQ(result.stop, TomographyStop::kChange);
  EXPECT_LT(result.last.changes[0], 0.02);
  c.stop_change = 0;
  c.iterations = 3;
  ASSERT_THAT(Reconstruct(c, b, {}, {}, &result), IsOk());
  EXPECT_EQ(result.stop, TomographyStop::kIterations);
  EXPECT_EQ(result.last.iteration, 3);
}

TEST_P(TomographyTest, ShowsTheImageWhileItGrows) {
  TomographyConfig c = Small(TomographyAlgorithm::kMlem, 6);
  ASSERT_OK_AND_ASSIGN(auto reconstructor, Reconstructor::Create(c, device_));
  const int64_t pixels = c.image_size * c.image_size;
  const DeviceBuffer in = Upload(Random(c.slices * 15 * c.detectors, 0.5f, 2.0f)),
                     out = Poisoned(c.slices * pixels * 4), shown = Poisoned(pixels * 4);
  const auto watch = [&](const IterationReport& r) {
    EXPECT_THAT(reconstructor->CopyImage(stream_.ref(), 5, shown.span<float>()), IsOk());
    EXPECT_THAT(reconstructor->CopyImage(stream_.ref(), 6, shown.span<float>()),
                IsError(absl::StatusCode::kInvalidArgument, "slice: is 6; allowed 0 to 5"));
    return r.iteration < 2;
  };
  ASSERT_THAT(reconstructor->Run(stream_.ref(),
                                 {.data = in.span<float>(), .angle_first = true, .slices = 6},
                                 nullptr, out.span<float>(), watch),
              IsOk());
  const auto all = Download<float>(out, static_cast<size_t>(6 * pixels));
  EXPECT_EQ(Download<float>(shown, static_cast<size_t>(pixels)),
            std::vector<float>(all.begin() + 5 * pixels, all.end()));
}

TEST_P(TomographyTest, DeviceBytesCoversTheArrays) {
  // The host cannot report how much it allocates, and the pool of a GPU grows in pieces. Therefore
  // the test checks that the formula covers at least what the buffers must hold.
  for (const auto algorithm : {TomographyAlgorithm::kSirt, TomographyAlgorithm::kCgls,
                               TomographyAlgorithm::kFbp, TomographyAlgorithm::kTv}) {
    TomographyConfig c = Small(algorithm, 32);
    ASSERT_OK_AND_ASSIGN(const int64_t bytes, Reconstructor::DeviceBytes(c, device_));
    const int64_t image = 32 * c.image_size * c.image_size * 4,
                  sinogram = 32 * 15 * c.detectors * 4;
    EXPECT_GT(bytes, image + 2 * sinogram);
    EXPECT_LT(bytes, 12 * (image + 2 * sinogram));
  }
}

TEST_P(TomographyTest, RefusesWhatItCannotDo) {
  const auto refused = [&](auto change, const char* what) {
    TomographyConfig c = Small(TomographyAlgorithm::kSirt, 2);
    change(c);
    EXPECT_THAT(Reconstructor::Create(c, device_),
                IsError(absl::StatusCode::kInvalidArgument, what));
    EXPECT_THAT(Reconstructor::DeviceBytes(c, device_),
                IsError(absl::StatusCode::kInvalidArgument, what));
  };
  refused([](auto& c) { c.detectors = 1; }, "detectors: is 1; allowed 2 to 32768");
  refused([](auto& c) { c.slices = 0; }, "slices: is 0");
  refused([](auto& c) { c.angles_rad.clear(); }, "angles_rad: is 0");
  refused([](auto& c) { c.angles_rad[3] = NAN; }, "angles_rad: angle 3 is nan");
  refused([](auto& c) { c.centers = {1, 2, 3}; }, "centers: has 3 values");
  refused([](auto& c) { c.centers = {-100}; }, "centers: is -100");
  refused([](auto& c) { c.pixel_size = 0; }, "pixel_size: is 0");
  refused([](auto& c) { c.iterations = 0; }, "iterations: is 0");
  refused([](auto& c) { c.relaxation = 2; }, "relaxation: is 2; allowed above 0, below 2");
  refused([](auto& c) { c.subsets = 16; }, "subsets: is 16; allowed 1 to 15");
  refused([](auto& c) { c.mask_ratio = 1.5; }, "mask_ratio: is 1.5");
  refused([](auto& c) { c.padding = -2; }, "padding: is -2");
  refused([](auto& c) { c.has_min = c.has_max = true, c.min_value = 3; },
          "min_value: is 3; allowed up to max_value (0)");
  refused([](auto& c) { c.stop_change = -1; }, "stop_change: is -1");
  refused([](auto& c) { c.stop_change = 5; }, "stop_change: is 5; allowed 0 (never) to 1");
  refused([](auto& c) { c.stop_residual = 1.1; }, "stop_residual: is 1.1; allowed 0 (never) to 1");
  refused([](auto& c) { c.ratio_floor = 0; }, "ratio_floor: is 0");
  refused([](auto& c) { c.algorithm = TomographyAlgorithm::kCgls, c.has_min = true; },
          "min_value: only sirt, mlem and tv have bounds");
  refused([](auto& c) { c.tv_weight = 0.1; }, "tv_weight: is 0.1; only tv has one");
  for (const double weight : {0.0, -1.0, 1e13, std::nan("")})
    refused([=](auto& c) { c.algorithm = TomographyAlgorithm::kTv, c.tv_weight = weight; },
            "tv_weight: is ");
  refused([](auto& c) { c.algorithm = TomographyAlgorithm::kTv, c.tv_weight = 1, c.subsets = 2; },
          "subsets: is 2; only sirt and mlem");
  refused([](auto& c) { c.algorithm = TomographyAlgorithm::kCgls, c.subsets = 2; },
          "subsets: is 2; only sirt and mlem");
  refused([](auto& c) { c.algorithm = TomographyAlgorithm::kMlem, c.relaxation = 0.5; },
          "relaxation: only sirt");
  refused([](auto& c) { c.filter_cutoff = 0; }, "filter_cutoff: is 0");
  refused([](auto& c) { c.form = TomographyForm::kTomopy; },
          "centers: the tomopy form ignores the centre");
  refused([](auto& c) { c.form = TomographyForm::kTomopy, c.centers.clear(); },
          "image_size: is 29");
}

TEST_P(TomographyTest, RefusesDataThatCannotBe) {
  TomographyConfig c = Small(TomographyAlgorithm::kMlem, 2);
  auto b = Random(2 * 15 * c.detectors, 0.5f, 2.0f);
  b[77] = -0.25f;
  EXPECT_THAT(Reconstruct(c, b),
              IsError(absl::StatusCode::kInvalidArgument, "projections: 1 values are negative"));
  c.negative_data_to_zero = true;
  ASSERT_OK_AND_ASSIGN(const auto got, Reconstruct(c, b));
  b[77] = 0;
  ASSERT_OK_AND_ASSIGN(const auto zeroed, Reconstruct(c, b));
  EXPECT_EQ(got, zeroed);
  b[5] = NAN;
  b[6] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(Reconstruct(c, b),
              IsError(absl::StatusCode::kInvalidArgument, "projections: 2 values are not finite"));
  b[5] = b[6] = 1;
  std::vector<float> initial(static_cast<size_t>(2 * c.image_size * c.image_size), 1.0f);
  initial[400] = NAN;  // row 13: inside the circle
  EXPECT_THAT(Reconstruct(c, b, initial),
              IsError(absl::StatusCode::kInvalidArgument, "initial: 1 values are not finite"));
  initial[400] = -1;
  EXPECT_THAT(Reconstruct(c, b, initial),
              IsError(absl::StatusCode::kInvalidArgument, "initial: 1 values are negative"));
}

INSTANTIATE_TEST_SUITE_P(Backends, TomographyTest,
                         ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

}  // namespace
}  // namespace octavo

// Fourier reconstruction against its sum in double precision, against exact phantoms and against
// filtered back projection.

#include <cmath>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>
#include <limits>
#include <numbers>
#include <string>

#include "gpu/backend/open_devices.h"
#include "gpu/tomography/gridding.h"
#include "tests/gpu/tomography/fourier_phantoms.h"
#include "tests/gpu/tomography/reconstruct_fixture.h"

namespace octavo::testing {
namespace {

using Complex = std::complex<double>;

class FourierTest : public TomographyFixture {
 protected:
  std::vector<float> Made(TomographyConfig config, TomographyAlgorithm algorithm,
                          const std::vector<float>& sinograms) {
    config.algorithm = algorithm;
    auto made = Reconstruct(config, sinograms);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *made : std::vector<float>();
  }
  // The lower bound on FOURIER's PSNR, and both printed if it is missed.
  void ExpectAsGoodAsFbp(const DirectCase& c, TomographyAlgorithm algorithm) {
    const double fbp = CirclePsnr(Made(c.config, TomographyAlgorithm::kFbp, c.sinogram), c.truth,
                                  c.config.detectors, c.radius);
    const double other =
        CirclePsnr(Made(c.config, algorithm, c.sinogram), c.truth, c.config.detectors, c.radius);
    std::printf("DIFF %d %.4f density %.3f fbp %.2f %s\n", algorithm == TomographyAlgorithm::kAuto,
                other - fbp,
                double(c.config.angles_rad.size()) / static_cast<double>(c.config.detectors), fbp,
                c.text.c_str());
    EXPECT_GT(other, fbp - 0.1) << c.text << ": " << other << " dB, FBP " << fbp;
  }
};

// The sum that gridding approximates, at one pixel, from the definition: the projections padded,
// transformed, filtered with FBP's taps, and summed over all frequencies.
class DirectSum {
 public:
  explicit DirectSum(const TomographyConfig& c)
      : config_(c),
        shape_(ShapeGridding(c, PlanTomography(c), {})),
        plan_(PlanGridding(c, shape_, {})) {}

  double At(const std::vector<float>& sinogram, double center, int64_t row, int64_t column) {
    if (spectra_.empty()) Transform(sinogram);
    const double middle = 0.5 * static_cast<double>(shape_.image_size - 1),
                 x = static_cast<double>(column) - middle, y = static_cast<double>(row) - middle;
    double sum = 0;
    const int64_t half = shape_.length / 2;
    for (size_t i = 0; i < plan_.lines.size(); ++i) {
      const math::GridLine& line = plan_.lines[i];
      const double angle = config_.angles_rad[static_cast<size_t>(line.projection)],
                   u = center + x * std::cos(angle) - y * std::sin(angle),
                   turn = 2 * std::numbers::pi * u / static_cast<double>(shape_.length);
      double of_line = 0;
      for (int64_t r = 0; r <= shape_.reach; ++r) {
        // Beyond half of the row the spectrum goes on periodically.
        const int64_t k = std::min(r, shape_.length - r);
        const Complex at = spectra_[i * static_cast<size_t>(half + 1) + static_cast<size_t>(k)],
                      value = (k == r ? at : std::conj(at)) *
                              static_cast<double>(plan_.response[static_cast<size_t>(r)]) *
                              std::polar(1.0, turn * static_cast<double>(r));
        of_line += (r == 0 ? 1 : 2) * value.real();
      }
      sum += of_line * static_cast<double>(line.weight);
    }
    return sum;
  }

 private:
  void Transform(const std::vector<float>& sinogram) {
    const int64_t n = shape_.length, d = config_.detectors, change = d + (n - d + 1) / 2;
    std::vector<Complex> roots;
    for (int64_t k = 0; k < n; ++k)
      roots.push_back(
          std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n)));
    const auto forward = [&](const std::vector<double>& row) {
      std::vector<Complex> out;
      for (int64_t k = 0; k <= n / 2; ++k) {
        Complex sum = 0;
        for (int64_t i = 0; i < n; ++i)
          sum += row[static_cast<size_t>(i)] * roots[static_cast<size_t>(i * k % n)];
        out.push_back(sum);
      }
      return out;
    };
    for (const math::GridLine& line : plan_.lines) {
      const float* from = sinogram.data() + line.projection * d;
      std::vector<double> row(static_cast<size_t>(n), 0.0);
      for (int64_t i = 0; i < n; ++i) {
        const bool inside = i < d;
        if (inside || config_.extend_edges)
          row[static_cast<size_t>(i)] = static_cast<double>(from[inside       ? i
                                                                 : i < change ? d - 1
                                                                              : 0]);
      }
      std::vector<Complex> values = forward(row);
      if (shape_.cut) {
        for (int64_t i = 0; i < n; ++i) {
          double sum = 0;
          for (int64_t k = 0; i < d && k <= n / 2; ++k) {
            const Complex value =
                values[static_cast<size_t>(k)] * std::conj(roots[static_cast<size_t>(i * k % n)]);
            sum += (k == 0 || 2 * k == n ? 1 : 2) * value.real() *
                   static_cast<double>(plan_.filter[static_cast<size_t>(k)]);
          }
          row[static_cast<size_t>(i)] = sum;
        }
        values = forward(row);
      }
      spectra_.insert(spectra_.end(), values.begin(), values.end());
    }
  }
  const TomographyConfig config_;
  const GriddingShape shape_;
  const GriddingPlan plan_;
  std::vector<Complex> spectra_;
};

TomographyConfig Scan(int64_t detectors, int64_t angles) {
  TomographyConfig c;
  c.algorithm = TomographyAlgorithm::kFourier;
  c.detectors = detectors;
  c.slices = 1;
  c.angles_rad = HalfTurn(angles);
  return c;
}

TEST_P(FourierTest, IsTheSumOverAllFrequencies) {
  struct Case {
    int64_t detectors, image;
    double center;
    bool extend;
    double mask, accuracy, most;
  };
  // Even and odd sizes, an axis that is off, images larger and smaller than the detector, corners.
  for (const Case& k : {Case{48, 0, 23.5, false, 1, 1e-4, 1e-4},
                        {47, 0, 23.2, false, 1, 1e-4, 1e-4},
                        {48, 0, 18.3, false, 1, 1e-4, 1e-4},
                        {48, 0, 23.5, true, 1, 1e-4, 1e-4},
                        {40, 61, 19.5, false, 0, 1e-4, 1e-4},
                        {64, 21, 30, true, 0, 1e-4, 1e-4},
                        {48, 0, 23.5, false, 1, 1e-6, 4e-6},
                        {48, 0, 23.5, false, 1, 1e-2, 1e-2},
                        {2, 0, 0.5, false, 0, 1e-4, 1e-4}}) {
    TomographyConfig c = Scan(k.detectors, 37);
    c.angles_rad[3] += 0.02;
    std::swap(c.angles_rad[5], c.angles_rad[20]);
    c.centers = {k.center};
    c.image_size = k.image;
    c.extend_edges = k.extend;
    c.mask_ratio = k.mask;
    c.fourier_accuracy = k.accuracy;
    c.pixel_size = 0.5;
    const std::vector<float> sinogram = Random(37 * k.detectors, 0.5f, 1);
    const std::vector<float> image = Made(c, TomographyAlgorithm::kFourier, sinogram);
    const int64_t n = k.image == 0 ? k.detectors : k.image;
    ASSERT_EQ(image.size(), static_cast<size_t>(n * n));
    DirectSum sum(c);
    double squares = 0, error = 0;
    for (int64_t i = 0; i < n * n; i += 1 + n / 8) {
      const double middle = 0.5 * static_cast<double>(n - 1);
      const bool inside = k.mask == 0 || std::hypot(static_cast<double>(i / n) - middle,
                                                    static_cast<double>(i % n) - middle) <=
                                             0.5 * static_cast<double>(n);
      const double exact = inside ? sum.At(sinogram, k.center, i / n, i % n) : 0,
                   off = static_cast<double>(image[static_cast<size_t>(i)]) - exact;
      squares += exact * exact;
      error += off * off;
    }
    EXPECT_LT(std::sqrt(error / squares), k.most)
        << k.detectors << " bins, image " << n << ", centre " << k.center << ", accuracy "
        << k.accuracy;
  }
}

TEST_P(FourierTest, IsAsGoodAsFbpAtAnyNumberOfAngles) {
  std::mt19937 random(5);
  for (const int64_t angles : {180, 361, 720, 2048}) {
    DirectCase c;
    c.config = Scan(129, angles);
    c.radius = 64;
    c.text = std::to_string(angles) + " angles";
    const auto ellipses = RandomEllipses(random, 55);
    c.sinogram = Floats(ProjectEllipses(ellipses, c.config.angles_rad, 129, 64));
    c.truth = DrawEllipses(ellipses, 129);
    ExpectAsGoodAsFbp(c, TomographyAlgorithm::kFourier);
  }
}

int64_t FromEnvironment(const char* name, int64_t usual) {
  const char* text = std::getenv(name);
  return text == nullptr ? usual : std::atoll(text);
}

// By hand: OCTAVO_DIRECT_PHANTOMS=200, and OCTAVO_DIRECT_SEED for other ones.
TEST_P(FourierTest, RandomScansAreAsGoodAsFbp) {
  const int64_t count = FromEnvironment("OCTAVO_DIRECT_PHANTOMS", 12),
                first = FromEnvironment("OCTAVO_DIRECT_SEED", 1);
  std::printf("seeds %lld to %lld\n", static_cast<long long>(first),
              static_cast<long long>(first + count - 1));
  for (int64_t seed = first; seed < first + count; ++seed) {
    const DirectCase c = DrawDirectCase(static_cast<uint32_t>(seed), count > 12 ? 2048 : 400);
    ExpectAsGoodAsFbp(c, TomographyAlgorithm::kFourier);
    ExpectAsGoodAsFbp(c, TomographyAlgorithm::kAuto);
  }
}

TEST_P(FourierTest, KeepsTheLevel) {
  // A disc of 1 that the detector sees whole.
  TomographyConfig c = Scan(128, 200);
  const std::vector<PhantomEllipse> disc = {
      {.value = 1, .a = 50, .b = 50, .x = 0, .y = 0, .phi = 0}};
  const std::vector<float> sinogram =
      Floats(ProjectEllipses(disc, c.angles_rad, c.detectors, 63.5));
  const auto mean = [&](const std::vector<float>& image) {
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < 128 * 128; ++i) {
      if (std::hypot(static_cast<double>(i / 128) - 63.5, static_cast<double>(i % 128) - 63.5) > 40)
        continue;
      sum += static_cast<double>(image[static_cast<size_t>(i)]);
      ++count;
    }
    return sum / static_cast<double>(count);
  };
  const double fourier = mean(Made(c, TomographyAlgorithm::kFourier, sinogram));
  EXPECT_NEAR(fourier, mean(Made(c, TomographyAlgorithm::kFbp, sinogram)), 1e-4);
  EXPECT_NEAR(fourier, 1, 2e-3);
}

TEST_P(FourierTest, EachSliceHasItsAxis) {
  TomographyConfig c = Scan(64, 90);
  c.slices = 5;
  std::vector<float> all;
  for (int64_t s = 0; s < c.slices; ++s) {
    const std::vector<float> one = Random(90 * 64, -1, 1);
    all.insert(all.end(), one.begin(), one.end());
    c.centers.push_back(26.5 + 0.7 * static_cast<double>(s));
  }
  const std::vector<float> together = Made(c, TomographyAlgorithm::kFourier, all);
  const double peak = Largest({together.begin(), together.end()});
  for (int64_t s = 0; s < c.slices; ++s) {
    TomographyConfig one = c;
    one.slices = 1;
    one.centers = {c.centers[static_cast<size_t>(s)]};
    const std::vector<float> alone =
        Made(one, TomographyAlgorithm::kFourier,
             {all.begin() + s * 90 * 64, all.begin() + (s + 1) * 90 * 64});
    const std::vector<float> got(together.begin() + s * 64 * 64,
                                 together.begin() + (s + 1) * 64 * 64);
    EXPECT_LT(LargestDifference(alone, got), 3e-4 * peak) << s;
  }
}

TEST_P(FourierTest, PlansOfOtherAxesShareTheirTable) {
  TomographyConfig c = Scan(96, 120);
  const std::vector<float> sinogram = Random(120 * 96, 0, 1);
  SharedTables shared;
  const auto made = [&] {
    auto reconstructor = Reconstructor::Create(c, device_, &shared);
    EXPECT_TRUE(reconstructor.ok()) << reconstructor.status();
    if (!reconstructor.ok()) return std::vector<float>();
    const DeviceBuffer in = Upload(sinogram), out = Poisoned(96 * 96 * 4);
    const auto ran =
        (*reconstructor)
            ->Run(stream_.ref(), {.data = in.span<float>(), .angle_first = false, .slices = 1},
                  nullptr, out.span<float>(), {});
    EXPECT_TRUE(ran.ok()) << ran.status();
    return Download<float>(out, 96 * 96);
  };
  const auto alone = [&] { return Made(c, TomographyAlgorithm::kFourier, sinogram); };
  c.centers = {47.5};
  EXPECT_EQ(made(), alone());
  const auto first = shared.grid;
  ASSERT_NE(first, nullptr);
  // Near the middle, and so far off that the rows are longer and cut.
  for (const double center : {48.2, 30.0, 5.0}) {
    c.centers = {center};
    EXPECT_EQ(made(), alone()) << center;
    EXPECT_EQ(shared.grid, first) << center;
  }
  c.angles_rad[7] += 0.001;
  EXPECT_EQ(made(), alone());
  EXPECT_NE(shared.grid, first);
  const auto second = shared.grid;
  c.fourier_accuracy = 1e-2;
  EXPECT_EQ(made(), alone());
  EXPECT_NE(shared.grid, second);
}

TEST_P(FourierTest, BatchesAreTheSameAsSingleSlicesAndRepeat) {
  TomographyConfig c = Scan(50, 66);
  c.slices = 11;
  const std::vector<float> all = Random(11 * 66 * 50, 0, 1);
  const std::vector<float> together = Made(c, TomographyAlgorithm::kFourier, all);
  EXPECT_EQ(together, Made(c, TomographyAlgorithm::kFourier, all));
  TomographyConfig one = c;
  one.slices = 1;
  for (const int64_t s : {0, 1, 7, 10}) {
    const std::vector<float> alone =
        Made(one, TomographyAlgorithm::kFourier,
             {all.begin() + s * 66 * 50, all.begin() + (s + 1) * 66 * 50});
    const std::vector<float> got(together.begin() + s * 50 * 50,
                                 together.begin() + (s + 1) * 50 * 50);
    EXPECT_LT(LargestDifference(alone, got), 1e-5 * Largest({got.begin(), got.end()})) << s;
  }
}

TEST_P(FourierTest, TakesProjectionsOfEitherOrder) {
  TomographyConfig c = Scan(40, 30);
  c.slices = 3;
  const std::vector<float> sinograms = Random(3 * 30 * 40, 0, 1);
  std::vector<float> projections(sinograms.size());
  for (size_t i = 0; i < sinograms.size(); ++i)
    projections[(i / 40 % 30 * 3 + i / 1200) * 40 + i % 40] = sinograms[i];
  ASSERT_OK_AND_ASSIGN(auto made, Reconstructor::Create(c, device_));
  const DeviceBuffer in = Upload(projections), out = Poisoned(3 * 40 * 40 * 4);
  ASSERT_TRUE(made->Run(stream_.ref(), {.data = in.span<float>(), .angle_first = true, .slices = 3},
                        nullptr, out.span<float>(), {})
                  .ok());
  EXPECT_EQ(Download<float>(out, 3 * 40 * 40), Made(c, TomographyAlgorithm::kFourier, sinograms));
}

// Their grids differ (GridChoice), so each has its own error, of about the accuracy asked for; at
// 1e-6 rounding to f32 is the larger part.
TEST_P(FourierTest, AgreesWithTheHost) {
  if (device_.info().backend == "host") GTEST_SKIP() << "this is the host";
  ASSERT_OK_AND_ASSIGN(auto opened, OpenDevices("host", 1));
  Device& host = *opened.devices[0];
  TomographyConfig c = Scan(300, 257);
  c.slices = 7;
  c.centers = {140};
  const std::vector<float> all = Random(7 * 257 * 300, 0, 1);
  for (const auto& [accuracy, difference] : {std::pair(1e-4, 2e-4), std::pair(1e-6, 3e-5)}) {
    c.fourier_accuracy = accuracy;
    const std::vector<float> here = Made(c, TomographyAlgorithm::kFourier, all);
    ASSERT_OK_AND_ASSIGN(auto made, Reconstructor::Create(c, host));
    ASSERT_OK_AND_ASSIGN(Stream stream, host.NewStream(StreamPriority::kNormal));
    ASSERT_OK_AND_ASSIGN(DeviceBuffer in, host.Allocate(static_cast<int64_t>(all.size() * 4)));
    ASSERT_OK_AND_ASSIGN(DeviceBuffer out, host.Allocate(7 * 300 * 300 * 4));
    ASSERT_TRUE(host.Upload(stream.ref(), in.span<float>(), all).ok());
    ASSERT_TRUE(made->Run(stream.ref(),
                          {.data = in.span<float>(), .angle_first = false, .slices = 7}, nullptr,
                          out.span<float>(), {})
                    .ok());
    const std::vector<float> there(out.as<float>(), out.as<float>() + 7 * 300 * 300);
    const double apart = LargestDifference(here, there) / Largest({there.begin(), there.end()});
    std::printf("accuracy %g: the backends differ by %g of the largest value\n", accuracy, apart);
    EXPECT_LT(apart, difference) << accuracy;
  }
}

TEST_P(FourierTest, RefusesMistakes) {
  const auto refused = [&](auto change) {
    TomographyConfig c = Scan(32, 20);
    change(c);
    return Reconstructor::Create(c, device_).status().ToString();
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  std::string text = refused([](auto& c) { c.fourier_accuracy = 0.1; });
  EXPECT_TRUE(has(text, "fourier_accuracy") && has(text, "0.1") && has(text, "1e-6 to 1e-2"))
      << text;
  text = refused([](auto& c) {
    c.algorithm = TomographyAlgorithm::kFbp;
    c.fourier_accuracy = 1e-3;
  });
  EXPECT_TRUE(has(text, "fourier_accuracy") && has(text, "only fourier")) << text;
  text = refused([](auto& c) { c.subsets = 2; });
  EXPECT_TRUE(has(text, "subsets")) << text;
  text = refused([](auto& c) { c.has_min = true; });
  EXPECT_TRUE(has(text, "min_value")) << text;
  text = refused([](auto& c) { c.form = TomographyForm::kTomopy; });
  EXPECT_TRUE(has(text, "algorithm")) << text;
  TomographyConfig c = Scan(32, 20);
  std::vector<float> bad(32 * 20, 1);
  bad[77] = std::numeric_limits<float>::quiet_NaN();
  const auto made = Reconstruct(c, bad);
  EXPECT_TRUE(has(made.status().ToString(), "projections: 1 values are not finite"))
      << made.status();
}

TEST_P(FourierTest, CanBeGivenUp) {
  TomographyConfig c = Scan(64, 64);
  c.piece_samples = 1;
  int calls = 0;
  const auto made = Reconstruct(c, std::vector<float>(64 * 64, 1), {},
                                [&](const IterationReport&) { return ++calls < 3; });
  EXPECT_EQ(made.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(calls, 3);
}

TEST_P(FourierTest, CountsItsMemory) {
  for (const int64_t slices : {1, 2, 7, 16}) {
    TomographyConfig c = Scan(200, 300);
    c.slices = slices;
    ASSERT_OK_AND_ASSIGN(const int64_t bytes, Reconstructor::DeviceBytes(c, device_));
    // Grid, columns and samples of at least one pair, of an oversampling of 1.5 or more.
    EXPECT_GT(bytes, 8 * (320 * 320 + 300 * 401 + 200 * 320)) << slices;
    EXPECT_LT(bytes, 40 * 8 * (416 * 416 + 300 * 401 + 300 * 400)) << slices;
  }
}

TEST_P(FourierTest, AutoTakesTheFasterOne) {
  const auto chosen = [&](auto change) {
    TomographyConfig c = Scan(64, 1500);
    c.algorithm = TomographyAlgorithm::kAuto;
    change(c);
    return ChooseAlgorithm(c, device_);
  };
  EXPECT_EQ(chosen([](auto& c) { c.detectors = 2048; }), TomographyAlgorithm::kFourier);
  EXPECT_EQ(chosen([](auto& c) { c.detectors = 2048, c.angles_rad = {0}; }),
            TomographyAlgorithm::kFbp);
  EXPECT_EQ(chosen([](auto& c) { c.detectors = 2048, c.auto_bytes = int64_t{64} << 20; }),
            TomographyAlgorithm::kFbp);
  EXPECT_EQ(chosen([](auto& c) { c.detectors = 2048, c.auto_bytes = int64_t{4} << 30; }),
            TomographyAlgorithm::kFourier);
  EXPECT_EQ(chosen([](auto& c) { c.detectors = 4096; }), TomographyAlgorithm::kFourier);
  EXPECT_EQ(chosen([](auto& c) {
              c.detectors = 2048;
              c.interpolation = math::RayInterpolation::kCubic;
            }),
            TomographyAlgorithm::kFbp);
  EXPECT_EQ(chosen([](auto& c) { c.algorithm = TomographyAlgorithm::kFbp; }),
            TomographyAlgorithm::kFbp);
  TomographyConfig c = Scan(32, 20);
  c.algorithm = TomographyAlgorithm::kAuto;
  ASSERT_OK_AND_ASSIGN(auto made, Reconstructor::Create(c, device_));
  EXPECT_EQ(made->algorithm(), ChooseAlgorithm(c, device_));
}

INSTANTIATE_TEST_SUITE_P(Backends, FourierTest, ::testing::ValuesIn(AvailableBackends()),
                         BackendName);

}  // namespace
}  // namespace octavo::testing

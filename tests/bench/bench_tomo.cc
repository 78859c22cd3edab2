// Seconds per slice of a reconstruction on each backend. The timed output is checked: some pixels
// against one step in double precision from the image of the previous iteration, and the other
// slices against the first, of which they are multiples. With --devices N, the program also deals
// --batches B (default: 2 for each device) batches of --slices slices to N devices. Each device has
// its own reconstructor and its own thread, which takes the next batch, uploads it, reconstructs
// and downloads it. In the same run, one device does as many batches alone. Every batch has its own
// data, and its whole result is compared, bit for bit, with the first device's.
//   bench_tomo [--backend host|cuda] [--algorithm sirt|mlem|cgls|fbp] [--size N] [--angles N]
//   [--slices N] [--iterations N] [--mask 0|1] [--peer 0|1]
//              [--interpolation linear|cubic] [--devices N] [--batches B]

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "gpu/backend/open_devices.h"
#include "gpu/tomography/reconstruct.h"
#include "gpu/tomography/reconstruct_plan.h"
#include "tests/bench/bench_basics.h"
#include "tests/gpu/tomography/reconstruct_model.h"

namespace octavo {
namespace {

using bench::Clock;
using bench::Die;
using bench::Ok;
using bench::ReadOptions;
using bench::Take;
using testing::Doubles;

double SliceFactor(int64_t slice) { return 1 + 0.125 * static_cast<double>(slice % 8); }

/// Line integrals of the phantom's ellipses, exact; the unit square is n − 1 pixels wide.
std::vector<float> Sinogram(const std::vector<double>& angles, int64_t n) {
  std::vector<float> out;
  const double half = static_cast<double>(n - 1) / 2;
  for (const double angle : angles) {
    for (int64_t d = 0; d < n; ++d) {
      const double s = (static_cast<double>(d) - half) / half;
      double sum = 0;
      for (const testing::Ellipse& e : testing::SheppLogan()) {
        const double turned = angle - e.degrees * 3.14159265358979323846 / 180,
                     c = std::cos(turned), k = std::sin(turned);
        const double width = e.a * e.a * c * c + e.b * e.b * k * k,
                     off = s - e.x * std::cos(angle) - e.y * std::sin(angle);
        if (off * off < width)
          sum += e.value * 2 * e.a * e.b * std::sqrt(width - off * off) / width;
      }
      out.push_back(static_cast<float>(sum * half));
    }
  }
  return out;
}

struct Checker {
  const TomographyConfig& config;
  const TomographyPlan plan;
  const std::vector<float>& measured;  // slice 0, [angle, detector]
  const double center;

  // Σ over the grid of A[θ, d; pixel] x: the image between padding and circle; x = 1 where `image`
  // is null.
  double Ray(double cosine, double sine, int64_t d, const std::vector<float>* image) const {
    const int64_t n = plan.grid_size, border = (n - plan.image_size) / 2;
    const double middle = static_cast<double>(n - 1) / 2,
                 w = std::max(std::abs(cosine), std::abs(sine)),
                 s = static_cast<double>(d) - center;
    const bool rows = std::abs(cosine) >= std::abs(sine);
    double sum = 0;
    for (int64_t j = 0; j < n; ++j) {
      const double along = static_cast<double>(j) - middle,
                   at = rows ? (s + along * sine) / cosine + middle
                             : (along * cosine - s) / sine + middle;
      for (auto i = static_cast<int64_t>(std::floor(at));
           i <= static_cast<int64_t>(std::floor(at)) + 1; ++i) {
        const int64_t r = rows ? j : i, c = rows ? i : j;
        const double x = static_cast<double>(c) - middle, y = static_cast<double>(r) - middle;
        if (i < 0 || i >= n ||
            x * x + y * y > static_cast<double>(plan.radius) * static_cast<double>(plan.radius))
          continue;
        const int64_t ir = r - border, ic = c - border;
        const bool known = ir >= 0 && ir < plan.image_size && ic >= 0 && ic < plan.image_size;
        const double value =
            image == nullptr ? 1
            : known ? static_cast<double>((*image)[static_cast<size_t>(ir * plan.image_size + ic)])
                    : 0;
        sum += (1 - std::abs(at - static_cast<double>(i))) * value / w;
      }
    }
    return sum;
  }

  // The value of one pixel after an iteration from `before`.
  double Step(int64_t row, int64_t column, const std::vector<float>& before,
              const Doubles& filter) const {
    const double middle = static_cast<double>(plan.image_size - 1) / 2,
                 x = static_cast<double>(column) - middle, y = middle - static_cast<double>(row);
    const bool fbp = config.algorithm == TomographyAlgorithm::kFbp,
               mlem = config.algorithm == TomographyAlgorithm::kMlem;
    double back = 0, columns = 0;
    for (size_t a = 0; a < config.angles_rad.size(); ++a) {
      const double cosine = std::cos(config.angles_rad[a]), sine = std::sin(config.angles_rad[a]);
      const double w = fbp ? 1 : std::max(std::abs(cosine), std::abs(sine)),
                   u = center + x * cosine + y * sine;
      for (auto d = static_cast<int64_t>(std::floor(u));
           d <= static_cast<int64_t>(std::floor(u)) + 1; ++d) {
        const double weight = std::max(0.0, 1 - std::abs(u - static_cast<double>(d)) / w) / w;
        if (weight == 0 || d < 0 || d >= config.detectors) continue;
        const float* row_data = measured.data() + a * static_cast<size_t>(config.detectors);
        double value = 0;
        if (fbp) {
          for (int64_t k = 0; k < config.detectors; ++k)
            value += static_cast<double>(row_data[k]) *
                     filter[static_cast<size_t>(d - k + config.detectors - 1)];
        } else {
          const double projected = Ray(cosine, sine, d, &before),
                       b = static_cast<double>(row_data[d]);
          const double sum = mlem ? 0 : Ray(cosine, sine, d, nullptr);
          value = mlem         ? b / std::max(projected, config.ratio_floor)
                  : sum > 1e-3 ? (b - projected) / sum
                               : 0;
        }
        back += weight * value;
        columns += weight;
      }
    }
    if (fbp) return back * 3.14159265358979323846 / static_cast<double>(config.angles_rad.size());
    const auto x0 =
        static_cast<double>(before[static_cast<size_t>(row * plan.image_size + column)]);
    return mlem ? x0 * back / columns : x0 + back / columns;
  }
};

/// Batches of slices dealt to several devices.
struct Dealer {
  const TomographyConfig& config;
  const std::vector<float>& one;  // sinogram of slice 0, [angle, detector]
  const int64_t batches;

  // A power of two: where the algorithm is linear, the results of batches are multiples of each
  // other, bit for bit.
  static float Factor(int64_t batch) { return static_cast<float>(1 << batch % 5); }

  /// In page-locked memory, where a reader leaves it and a writer takes it.
  struct Batch {
    PinnedBuffer sinograms, images;
  };
  struct Worker {
    Device* device = nullptr;
    Stream stream;
    DeviceBuffer in, out;
    std::unique_ptr<Reconstructor> reconstructor;
  };

  Batch MakeBatch(Device& device, int64_t index) const {
    const auto rays = static_cast<int64_t>(one.size());
    Batch batch{.sinograms = Take(device.AllocatePinned(config.slices * rays * 4)),
                .images = Take(device.AllocatePinned(config.slices * config.detectors *
                                                     config.detectors * 4))};
    for (int64_t s = 0; s < config.slices; ++s) {
      const float factor = Factor(index) * static_cast<float>(SliceFactor(s));
      for (int64_t i = 0; i < rays; ++i)
        batch.sinograms.as<float>()[s * rays + i] = factor * one[static_cast<size_t>(i)];
    }
    return batch;
  }

  std::unique_ptr<Worker> MakeWorker(Device& device) const {
    auto w = std::make_unique<Worker>();
    w->device = &device;
    w->stream = Take(device.NewStream(StreamPriority::kNormal));
    w->in = Take(device.Allocate(config.slices * static_cast<int64_t>(one.size()) * 4));
    w->out = Take(device.Allocate(config.slices * config.detectors * config.detectors * 4));
    w->reconstructor = Take(Reconstructor::Create(config, device));
    return w;
  }

  void Reconstruct(Worker& w, const Batch& batch) const {
    Ok(w.device->Fill(w.stream.ref(), w.out.data(), w.out.bytes(), 0xA5A5A5A5u));
    Ok(w.device->CopyToDevice(w.stream.ref(), w.in.data(), batch.sinograms.data(), w.in.bytes()));
    (void)Take(w.reconstructor->Run(
        w.stream.ref(), {.data = w.in.span<float>(), .angle_first = false, .slices = config.slices},
        nullptr, w.out.span<float>(), {}));
    Ok(w.device->CopyToHost(w.stream.ref(), batch.images.data(), w.out.data(), w.out.bytes()));
    Ok(w.stream.ref().Synchronize());
  }

  void Check(const Batch& batch, int64_t index, const std::vector<float>& reference) const {
    const bool exact =
        config.algorithm != TomographyAlgorithm::kMlem;  // its floor of ratios does not scale
    for (size_t i = 0; i < reference.size(); ++i) {
      const float wanted = Factor(index) * reference[i], got = batch.images.as<float>()[i];
      if (exact ? got != wanted
                : !(std::abs(got - wanted) <= 1e-4f * (std::abs(wanted) + Factor(index)))) {
        Die("batch " + std::to_string(index) + ": voxel " + std::to_string(i) + " is " +
            std::to_string(got) + ", on the first device " + std::to_string(wanted));
      }
    }
  }

  void Run(std::vector<std::unique_ptr<Device>>& devices) const {
    std::vector<std::unique_ptr<Worker>> workers;
    for (auto& device : devices) workers.push_back(MakeWorker(*device));
    std::vector<Batch> all;
    for (int64_t b = 0; b < batches; ++b) all.push_back(MakeBatch(*devices[0], b));
    Reconstruct(*workers[0], all[0]);
    const std::vector<float> reference(all[0].images.as<float>(),
                                       all[0].images.as<float>() + all[0].images.bytes() / 4);
    const size_t count = workers.size();
    double one_rate = 0;
    for (size_t n = 1; n <= count; n = n < count ? std::min(2 * n, count) : n + 1) {
      const int64_t share =
          std::max<int64_t>(1, batches * static_cast<int64_t>(n) / static_cast<int64_t>(count));
      for (int64_t b = 0; b < share; ++b)
        std::memset(all[static_cast<size_t>(b)].images.data(), 0xA5,
                    static_cast<size_t>(all[0].images.bytes()));
      std::atomic<int64_t> next{0};
      const auto start = Clock::now();
      {
        std::vector<std::jthread> threads;
        for (size_t i = 0; i < n; ++i) {
          threads.emplace_back([&, i] {
            for (int64_t b; (b = next++) < share;)
              Reconstruct(*workers[i], all[static_cast<size_t>(b)]);
          });
        }
      }
      const double took = std::chrono::duration<double>(Clock::now() - start).count();
      for (int64_t b = 0; b < share; ++b) Check(all[static_cast<size_t>(b)], b, reference);
      const double rate = static_cast<double>(share * config.slices) / took;
      if (n == 1) one_rate = rate;
      std::printf(
          "{\"name\": \"tomo devices\", \"backend\": \"%s\", \"device\": \"%s\", \"devices\": %zu, "
          "\"size\": %lld, \"angles\": %zu, "
          "\"slices_a_batch\": %lld, \"batches\": %lld, \"iterations\": %lld, \"s\": %.3f, "
          "\"s_per_slice\": %.4f, \"of_one\": %.3f, "
          "\"checked\": true}\n",
          devices[0]->info().backend.c_str(), devices[0]->info().model.c_str(), n,
          static_cast<long long>(config.detectors), config.angles_rad.size(),
          static_cast<long long>(config.slices), static_cast<long long>(share),
          static_cast<long long>(config.iterations), took, 1 / rate, rate / one_rate);
      std::fflush(stdout);
    }
  }
};

int Run(int argc, char** argv) {
  std::string backend = "auto", algorithm = "sirt", interpolation = "linear";
  int64_t size = 0, angles = 0, slices = 0, iterations = 0;
  int64_t devices = 1, batches = 0;
  bool mask = true, peer = false;
  ReadOptions(argc, argv,
              {{"--backend", &backend},
               {"--algorithm", &algorithm},
               {"--size", &size},
               {"--angles", &angles},
               {"--slices", &slices},
               {"--iterations", &iterations},
               {"--mask", &mask},
               {"--peer", &peer},
               {"--interpolation", &interpolation},
               {"--devices", &devices},
               {"--batches", &batches}});
  auto opened = Take(OpenDevices(backend, static_cast<int>(devices)));
  if (std::ssize(opened.devices) < devices)
    Die("there are " + std::to_string(opened.devices.size()) + " devices");
  Device& device = *opened.devices[0];
  const bool cuda = device.info().backend == "cuda";
  TomographyConfig c;
  c.algorithm = algorithm == "mlem"   ? TomographyAlgorithm::kMlem
                : algorithm == "cgls" ? TomographyAlgorithm::kCgls
                : algorithm == "tv"   ? TomographyAlgorithm::kTv
                : algorithm == "fbp"  ? TomographyAlgorithm::kFbp
                                      : TomographyAlgorithm::kSirt;
  c.detectors = size != 0 ? size : cuda ? 2048 : 256;
  c.angles_rad = testing::HalfTurn(angles != 0 ? angles : cuda ? 1501 : 90);
  if (c.algorithm == TomographyAlgorithm::kTv) c.tv_weight = 0.01;
  c.slices = slices != 0 ? slices : 16;
  c.iterations = c.algorithm == TomographyAlgorithm::kFbp ? 1
                 : iterations != 0                        ? iterations
                 : cuda                                   ? 100
                                                          : 4;
  c.mask_ratio = mask ? 1 : 0;
  if (interpolation != "linear" && interpolation != "cubic")
    Die("--interpolation is " + interpolation + "; allowed linear, cubic");
  c.interpolation =
      interpolation == "cubic" ? math::RayInterpolation::kCubic : math::RayInterpolation::kLinear;
  const int64_t n = c.detectors, pixels = n * n;
  const double center = static_cast<double>(n - 1) / 2;

  const std::vector<float> one = Sinogram(c.angles_rad, n);
  if (devices > 1) {
    opened.devices.resize(static_cast<size_t>(devices));
    Dealer{c, one, batches != 0 ? batches : 2 * devices}.Run(opened.devices);
    return 0;
  }
  const auto rays = static_cast<int64_t>(one.size());
  Stream stream = Take(device.NewStream(StreamPriority::kNormal));
  const DeviceBuffer in = Take(device.Allocate(c.slices * rays * 4)),
                     out = Take(device.Allocate(c.slices * pixels * 4)),
                     before = Take(device.Allocate(pixels * 4));
  PinnedBuffer staging = Take(device.AllocatePinned(std::max(rays, pixels) * 4));
  for (int64_t s = 0; s < c.slices; ++s) {
    for (int64_t i = 0; i < rays; ++i)
      staging.as<float>()[i] = static_cast<float>(SliceFactor(s)) * one[static_cast<size_t>(i)];
    Ok(device.CopyToDevice(stream.ref(), in.as<float>() + s * rays, staging.data(), rays * 4));
    Ok(stream.ref().Synchronize());
  }
  Ok(device.Fill(stream.ref(), out.data(), out.bytes(), 0xA5A5A5A5u));
  Ok(device.Fill(stream.ref(), before.data(), before.bytes(), 0));
  const TomographyInput input{.data = in.span<float>(), .angle_first = false, .slices = c.slices};

  const auto plan_start = Clock::now();
  auto reconstructor = Take(Reconstructor::Create(c, device));
  const double plan_seconds = std::chrono::duration<double>(Clock::now() - plan_start).count();
  (void)Take(
      reconstructor->Run(stream.ref(), input, nullptr, out.span<float>(),
                         [](const IterationReport& r) { return r.iteration == 0; }));  // warm-up
  Ok(device.Fill(stream.ref(), out.data(), out.bytes(), 0xA5A5A5A5u));
  Ok(stream.ref().Synchronize());
  const auto start = Clock::now();
  const TomographyResult result = Take(reconstructor->Run(
      stream.ref(), input, nullptr, out.span<float>(), [&](const IterationReport& r) {
        if (r.iteration > 0 && r.iteration == c.iterations - 1)
          Ok(reconstructor->CopyImage(stream.ref(), 0, before.span<float>()));
        return true;
      }));
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();

  const auto fetch = [&](const float* from) {
    Ok(device.CopyToHost(stream.ref(), staging.data(), from, pixels * 4));
    Ok(stream.ref().Synchronize());
    return std::vector<float>(staging.as<float>(), staging.as<float>() + pixels);
  };
  const std::vector<float> first = fetch(out.as<float>()), last_but_one = fetch(before.as<float>());
  const double peak = testing::Largest({first.begin(), first.end()});
  double off = 0;
  // The Checker supports only linear interpolation.
  const bool checked = c.interpolation == math::RayInterpolation::kLinear;
  if (checked && c.algorithm != TomographyAlgorithm::kCgls &&
      c.algorithm != TomographyAlgorithm::kTv &&
      (c.iterations > 1 || c.algorithm == TomographyAlgorithm::kFbp)) {
    const Checker checker{c, PlanTomography(c), one, center};
    const ProjectionFilterTaps taps = DesignProjectionFilter(c);
    const Doubles filter(taps.taps.begin(), taps.taps.end());
    for (const auto& [r, k] : {std::pair{0.5, 0.5}, {0.31, 0.62}, {0.77, 0.4}, {0.12, 0.5}}) {
      const auto row = static_cast<int64_t>(r * static_cast<double>(n)),
                 column = static_cast<int64_t>(k * static_cast<double>(n));
      off = std::max(off,
                     std::abs(checker.Step(row, column, last_but_one, filter) -
                              static_cast<double>(first[static_cast<size_t>(row * n + column)])) /
                         peak);
    }
    if (!(off < 1e-4)) Die("a pixel is off by " + std::to_string(off) + " of the largest value");
  }
  for (int64_t s = 1; s < c.slices; ++s) {
    const std::vector<float> other = fetch(out.as<float>() + s * pixels);
    double most = 0;
    for (size_t i = 0; i < other.size(); ++i)
      most = std::max(most, std::abs(static_cast<double>(other[i]) / SliceFactor(s) -
                                     static_cast<double>(first[i])));
    if (!(most < 2e-3 * peak))
      Die("slice " + std::to_string(s) + " is off by " + std::to_string(most / peak));
  }
  const double updates = static_cast<double>(c.iterations * c.slices),
               samples =
                   2.0 * static_cast<double>(pixels) * static_cast<double>(c.angles_rad.size());
  std::printf(
      "{\"name\": \"tomo\", \"backend\": \"%s\", \"device\": \"%s\", \"algorithm\": \"%s\", "
      "\"interpolation\": \"%s\", \"size\": %lld, \"angles\": "
      "%zu, \"slices\": %lld, "
      "\"iterations\": %lld, "
      "\"mask\": %s, \"s_per_slice\": %.4f, \"ms_per_slice_iteration\": %.4f, \"gsamples_per_s\": "
      "%.1f, \"plan_s\": %.3f, \"device_gb\": %.2f, "
      "\"psnr_db\": %.2f, "
      "\"residual\": %.4g, \"off\": %.2g, \"checked\": %s}\n",
      device.info().backend.c_str(), device.info().model.c_str(), algorithm.c_str(),
      interpolation.c_str(), static_cast<long long>(n), c.angles_rad.size(),
      static_cast<long long>(c.slices), static_cast<long long>(c.iterations),
      mask ? "true" : "false", seconds / static_cast<double>(c.slices), 1e3 * seconds / updates,
      samples * updates / seconds * 1e-9, plan_seconds,
      static_cast<double>(Take(Reconstructor::DeviceBytes(c, device))) * 1e-9,
      testing::Psnr(first, testing::Phantom(n)),
      result.last.residual_norms.empty() ? 0 : result.last.residual_norms[0], off,
      checked ? "true" : "false");
  std::fflush(stdout);

  if (peer) {  // rotation-based like TomoPy's accelerated code, linear, on the same threads
    TomographyConfig p;
    p.form = TomographyForm::kTomopy;
    p.angles_rad = c.angles_rad;
    p.detectors = n;
    p.slices = std::min<int64_t>(c.slices, 2);
    p.iterations = 1;
    auto form = Take(Reconstructor::Create(p, device));
    const auto begin = Clock::now();
    (void)Take(form->Run(stream.ref(),
                         {.data = in.span<float>(), .angle_first = false, .slices = p.slices},
                         nullptr, out.span<float>(), {}));
    const double each =
        std::chrono::duration<double>(Clock::now() - begin).count() / static_cast<double>(p.slices);
    std::printf(
        "{\"name\": \"tomo_rotation_peer\", \"ms_per_slice_iteration\": %.3f, \"ratio\": %.1f}\n",
        1e3 * each, each / (seconds / updates));
  }
  return 0;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) { return octavo::Run(argc, argv); }

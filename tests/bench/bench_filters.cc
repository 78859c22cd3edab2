// Filters, functions, thresholds, choices and places of extremes at one size: seconds, bytes that
// the steps read and write at least, and the rate, beside the rate of a copy on the same device in
// the same run. Every timed output was poisoned before; elements at random places are compared with
// a plain loop in double precision. tests/bench/bench_filters_cupy.py times the same with
// cupyx.scipy.ndimage.
//   bench_filters [--backend host|cuda] [--size N] [--seconds S] [--seed N]

#include <cmath>
#include <functional>
#include <memory>
#include <random>

#include "absl/strings/str_cat.h"

#include "gpu/array/array_ops.h"
#include "gpu/backend/open_devices.h"
#include "tests/bench/bench_basics.h"

namespace octavo::bench {
namespace {

constexpr int kChecked = 200;  // elements of each output

/// An array [n, n, n] on the host, and how it continues.
struct Cube {
  ArrayType type;
  std::vector<char> bytes;
  double At(int64_t a, int64_t b, int64_t c) const {
    const int64_t n = type.dims[0];
    const auto inside = [n](int64_t i) {  // d c b a | a b c d | d c b a
      while (i < 0 || i >= n) i = i < 0 ? -i - 1 : 2 * n - 1 - i;
      return i;
    };
    return math::Load(type.scalar, bytes.data(), (inside(a) * n + inside(b)) * n + inside(c)).re;
  }
};

Cube MakeCube(Scalar scalar, int64_t n, std::mt19937_64& random) {
  Cube cube{.type = {.scalar = scalar, .dims = {n, n, n}}, .bytes = {}};
  cube.bytes.resize(static_cast<size_t>(cube.type.bytes()));
  for (int64_t i = 0; i < cube.type.numbers(); ++i)
    math::Store(scalar, cube.bytes.data(), i, {static_cast<double>(random() % 4096 + 1), 0});
  return cube;
}

/// The sum of a cube's elements around a place, weighted along each axis.
double Weighted(const Cube& cube, const std::vector<double>& weight, int64_t before, int64_t a,
                int64_t b, int64_t c) {
  const int64_t taps = std::ssize(weight);
  double sum = 0;
  for (int64_t i = 0; i < taps; ++i) {
    for (int64_t j = 0; j < taps; ++j) {
      double row = 0;
      for (int64_t k = 0; k < taps; ++k) {
        row += weight[static_cast<size_t>(k)] *
               cube.At(a - before + i, b - before + j, c - before + k);
      }
      sum += weight[static_cast<size_t>(i)] * weight[static_cast<size_t>(j)] * row;
    }
  }
  return sum;
}

std::vector<double> Gaussian(double sigma, int64_t radius) {
  std::vector<double> weight;
  double sum = 0;
  for (int64_t k = -radius; k <= radius; ++k) {
    weight.push_back(std::exp(-0.5 * static_cast<double>(k * k) / (sigma * sigma)));
    sum += weight.back();
  }
  for (double& w : weight) w /= sum;
  return weight;
}

double Median(const Cube& cube, int64_t reach, int64_t a, int64_t b, int64_t c) {
  std::vector<double> window;
  for (int64_t i = -reach; i <= reach; ++i) {
    for (int64_t j = -reach; j <= reach; ++j) {
      for (int64_t k = -reach; k <= reach; ++k) window.push_back(cube.At(a + i, b + j, c + k));
    }
  }
  std::nth_element(window.begin(), window.begin() + std::ssize(window) / 2, window.end());
  return window[window.size() / 2];
}

/// One operation, and what it makes of the element at a place.
struct Case {
  const char* name;
  Op op;
  std::function<double(const Cube&, int64_t, int64_t, int64_t)> model;
  double tolerance;  // relative to the largest element
};

std::vector<Case> Cases(int64_t n) {
  const auto gaussian = [](double sigma) {
    const auto radius = static_cast<int64_t>(4 * sigma + 0.5);
    return
        [weight = Gaussian(sigma, radius), radius](const Cube& x, int64_t a, int64_t b, int64_t c) {
          return Weighted(x, weight, radius, a, b, c);
        };
  };
  const auto element = [](auto f) {
    return [f](const Cube& x, int64_t a, int64_t b, int64_t c) { return f(x.At(a, b, c)); };
  };
  const auto largest = [n](const Cube& x, int64_t a, int64_t b, int64_t) {
    int64_t best = 0;
    for (int64_t c = 1; c < n; ++c) best = x.At(a, b, c) > x.At(a, b, best) ? c : best;
    return static_cast<double>(best);
  };
  const auto largest_of_first = [n](const Cube& x, int64_t, int64_t b, int64_t c) {
    int64_t best = 0;
    for (int64_t a = 1; a < n; ++a) best = x.At(a, b, c) > x.At(best, b, c) ? a : best;
    return static_cast<double>(best);
  };
  return {
      {"gaussian_sigma1", GaussianOp{.sigma = {1}}, gaussian(1), 1e-6},
      {"gaussian_sigma2", GaussianOp{.sigma = {2}}, gaussian(2), 1e-6},
      {"uniform_5", UniformOp{.size = {5}},
       [](const Cube& x, int64_t a, int64_t b, int64_t c) {
         return Weighted(x, std::vector<double>(5, 0.2), 2, a, b, c);
       },
       1e-6},
      {"median_3", MedianOp{.size = 3},
       [](const Cube& x, int64_t a, int64_t b, int64_t c) { return Median(x, 1, a, b, c); }, 0},
      {"median_5", MedianOp{.size = 5},
       [](const Cube& x, int64_t a, int64_t b, int64_t c) { return Median(x, 2, a, b, c); }, 0},
      {"logarithm", FunctionOp{}, element([](double v) { return std::log(v); }), 1e-9},
      {"threshold", ThresholdOp{.value = 2000},
       element([](double v) { return v > 2000 ? 1.0 : 0.0; }), 0},
      {"select", ChooseOp{.threshold = {.value = 2000}},
       element([](double v) { return v > 2000 ? v : 0.0; }), 0},
      {"argmax_last", ArgExtremeOp{.axis = 2}, largest, 0},
      {"argmax_first", ArgExtremeOp{.axis = 0}, largest_of_first, 0},
  };
}

/// The bytes that the steps of a chain read and write at least: each its input and its output once.
int64_t BytesOf(const ArrayChain& chain) {
  int64_t bytes = 0, from = chain.in.bytes();
  for (const PlannedOp& step : chain.steps) {
    bytes += from + step.out_bytes;
    from = step.out_bytes;
  }
  return bytes;
}

struct Bench {
  std::string backend = "host";
  int64_t size = 512;
  double seconds = 0.5;
  uint64_t seed = std::random_device{}();

  void Run() {
    const OpenedDevices opened = Take(OpenDevices(backend));
    Device& device = *opened.devices[0];
    const Stream stream = Take(device.NewStream(StreamPriority::kNormal));
    std::mt19937_64 random(seed);
    for (const Scalar scalar : {Scalar::kF32, Scalar::kU16}) {
      const Cube cube = MakeCube(scalar, size, random);
      const DeviceBuffer in = Take(device.Allocate(cube.type.bytes()));
      Ok(device.CopyToDevice(stream.ref(), in.data(), cube.bytes.data(), cube.type.bytes()));
      Ok(stream.ref().Synchronize());
      const double copy = CopyRate(device, stream.ref(), in, cube.type);
      for (const Case& one : Cases(size)) Time(device, stream.ref(), one, cube, in, copy, random);
    }
  }

  // Bytes read and written in a second.
  double CopyRate(Device& device, StreamRef stream, const DeviceBuffer& in, const ArrayType& type) {
    const auto chain = std::make_shared<const ArrayChain>(
        Take(PlanChain({CopyOp{}}, type, {}, false, "operations")));
    const DeviceBuffer to = Take(device.Allocate(type.bytes()));
    const auto run = Take(ChainRun::Create(chain, device));
    return 2 * static_cast<double>(type.bytes()) / MedianSeconds(seconds, [&] {
             Ok(run->Run(stream, in.data(), {}, to.data()));
             Ok(stream.Synchronize());
           });
  }

  void Time(Device& device, StreamRef stream, const Case& one, const Cube& cube,
            const DeviceBuffer& in, double copy, std::mt19937_64& random) const {
    const auto chain = std::make_shared<const ArrayChain>(
        Take(PlanChain({one.op}, cube.type, {}, false, "operations")));
    const auto run = Take(ChainRun::Create(chain, device));
    const DeviceBuffer to = Take(device.Allocate(chain->out.bytes()));
    Ok(device.Fill(stream, to.data(), chain->out.bytes() / 4 * 4, 0xA5A5A5A5u));
    const double each = MedianSeconds(seconds, [&] {
      Ok(run->Run(stream, in.data(), {}, to.data()));
      Ok(stream.Synchronize());
    });
    std::vector<char> got(static_cast<size_t>(chain->out.bytes()));
    Ok(device.CopyToHost(stream, got.data(), to.data(), chain->out.bytes()));
    Ok(stream.Synchronize());
    Check(one, cube, *chain, got, random);
    const auto bytes = static_cast<double>(BytesOf(*chain));
    std::printf(
        "{\"bench\": \"filters\", \"backend\": \"%s\", \"device\": \"%s\", \"operation\": \"%s\", "
        "\"type\": \"%s\", \"size\": %lld, \"seconds\": %.6g, \"bytes\": %.0f, "
        "\"gb_per_s\": %.1f, \"copy_gb_per_s\": %.1f, \"of_copy\": %.3f}\n",
        backend.c_str(), device.info().model.c_str(), one.name, octavo::NameOf(cube.type.scalar),
        static_cast<long long>(size), each, bytes, bytes / each / 1e9, copy / 1e9,
        bytes / each / copy);
    std::fflush(stdout);
  }

  void Check(const Case& one, const Cube& cube, const ArrayChain& chain,
             const std::vector<char>& got, std::mt19937_64& random) const {
    const auto edge = [&] {  // half of the places lie near an end
      const auto near = static_cast<int64_t>(random() % 10);
      const auto any = static_cast<int64_t>(random() % static_cast<uint64_t>(size));
      return random() % 2 == 0 ? any : random() % 2 == 0 ? near % size : size - 1 - near % size;
    };
    for (int i = 0; i < kChecked; ++i) {
      const int64_t a = edge(), b = edge(), c = edge();
      // A reduced axis is gone.
      const auto* const place = std::get_if<ArgExtremeOp>(&one.op);
      const int64_t at = place == nullptr   ? (a * size + b) * size + c
                         : place->axis == 2 ? a * size + b
                                            : b * size + c;
      const double value = math::Load(chain.out.scalar, got.data(), at).re,
                   wanted = one.model(cube, a, b, c);
      if (!(std::abs(value - wanted) <= one.tolerance * 4096)) {
        Die(absl::StrCat(one.name, " of ", cube.type.Text(), " at ", a, ", ", b, ", ", c, " is ",
                         value, ", the model says ", wanted, " (--seed ", seed, ")"));
      }
    }
  }
};

}  // namespace
}  // namespace octavo::bench

int main(int argc, char** argv) {
  octavo::bench::Bench bench;
  octavo::bench::ReadOptions(argc, argv,
                             {{"--backend", &bench.backend},
                              {"--size", &bench.size},
                              {"--seconds", &bench.seconds},
                              {"--seed", &bench.seed}});
  bench.Run();
}

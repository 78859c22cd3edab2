// Resampling of a cube: affine, map_coordinates, displace, shift and resize in each sampling,
// beside a copy of the same bytes on the device. Results drawn at random are checked against the
// definition in double precision. `of_copy` is the time that a copy of what the operation reads and
// writes at least would take, divided by its own.
//   bench_array_ops [--backend host|cuda] [--size N] [--seconds S] [--only TEXT] [--checks N]
// tests/bench/bench_array_ops_cupy.py runs it beside CuPy.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gpu/array/array_ops.h"
#include "gpu/backend/open_devices.h"
#include "tests/bench/bench_basics.h"

namespace octavo {
namespace {

using bench::Die;
using bench::MedianSeconds;
using bench::Ok;
using bench::ReadOptions;
using bench::Take;
using math::SampleEdge;
using math::Sampling;

/// Sample → weight, along one axis.
using Weights = std::map<int64_t, double>;

int64_t Beyond(SampleEdge edge, int64_t i, int64_t n) {
  while (i < 0 || i >= n) {
    switch (edge) {
      case SampleEdge::kReflect: i = i < 0 ? -i - 1 : 2 * n - 1 - i; break;
      case SampleEdge::kWrap: i += i < 0 ? n : -n; break;
      default: i = i < 0 ? -i : 2 * n - 2 - i; break;
    }
  }
  return i;
}

/// The samples around x with their weights, on a line without ends. Of a cubic spline: each
/// B-spline's coefficient is a sum over all samples with weights that fall by √3 - 2 a sample.
Weights Around(Sampling sampling, double x) {
  if (sampling == Sampling::kNearest) return {{static_cast<int64_t>(std::floor(x + 0.5)), 1}};
  const double first = std::floor(x), t = x - first, u = 1 - t;
  const auto i = static_cast<int64_t>(first);
  if (sampling == Sampling::kLinear) return {{i, u}, {i + 1, t}};
  const double pole = std::sqrt(3.0) - 2,
               spline[4] = {u * u * u / 6, (4 - 6 * t * t + 3 * t * t * t) / 6,
                            (4 - 6 * u * u + 3 * u * u * u) / 6, t * t * t / 6};
  Weights all;
  for (int64_t k = 0; k < 4; ++k) {
    for (int64_t j = -26; j <= 26; ++j) {
      all[i - 1 + k + j] += spline[k] * -6 * pole / (1 - pole * pole) *
                            std::pow(pole, static_cast<double>(std::abs(j)));
    }
  }
  return all;
}

Weights Inside(const Weights& around, SampleEdge edge, int64_t n) {
  Weights inside;
  for (const auto& [i, weight] : around) inside[Beyond(edge, i, n)] += weight;
  return inside;
}

/// The weights of a result along each axis; none: it is outside.
using ResultWeights = std::function<std::vector<Weights>(const int64_t (&index)[3])>;

struct Case {
  std::string name;
  Op op;
  std::shared_ptr<const std::vector<float>> other;  // second array, f32
  std::vector<int64_t> other_dims;
  ResultWeights weights;
};

class Bench {
 public:
  Bench(const std::string& backend, int64_t size, double seconds, int64_t checks)
      : opened_(Take(OpenDevices(backend))),
        device_(*opened_.devices[0]),
        stream_(Take(device_.NewStream(StreamPriority::kNormal))),
        backend_(backend),
        n_(size),
        seconds_(seconds),
        checks_(checks) {}

  std::vector<Case> Cases();
  void Run(const Case& one, Scalar scalar);

 private:
  std::vector<Weights> At(const SamplingRules& rules, const double (&x)[3]) const {
    std::vector<Weights> axes;
    for (const double position : x) {
      if (rules.edge == SampleEdge::kConstant &&
          (position < 0 || position > static_cast<double>(n_ - 1)))
        return {};
      axes.push_back(Inside(Around(rules.sampling, position), rules.edge, n_));
    }
    return axes;
  }
  void Check(const Case& one, const ArrayType& in, const std::vector<char>& from,
             const ArrayType& made, const std::vector<char>& out);

  OpenedDevices opened_;
  Device& device_;
  Stream stream_;
  const std::string backend_;
  const int64_t n_;
  const double seconds_;
  const int64_t checks_;
  std::mt19937_64 random_{std::random_device{}()};
};

std::vector<Case> Bench::Cases() {
  const auto edge_of = [](Sampling sampling) {
    return sampling == Sampling::kCubic ? SampleEdge::kMirror : SampleEdge::kConstant;
  };
  const std::pair<const char*, Sampling> samplings[] = {
      {"nearest", Sampling::kNearest}, {"linear", Sampling::kLinear}, {"cubic", Sampling::kCubic}};
  const int64_t n = n_, cube = n * n * n;
  const auto fresh = [&](int64_t count, double lo, double hi) {
    std::uniform_real_distribution<float> values(static_cast<float>(lo), static_cast<float>(hi));
    std::mt19937 quick(static_cast<uint32_t>(random_()));
    std::vector<float> made(static_cast<size_t>(count));
    for (float& v : made) v = values(quick);
    return made;
  };
  std::vector<Case> cases;
  for (const auto& [name, sampling] : samplings) {
    const SamplingRules rules{.sampling = sampling, .edge = edge_of(sampling)};
    // A turn of a few degrees about two axes, around the middle.
    const double c = std::cos(0.1), s = std::sin(0.1), middle = static_cast<double>(n - 1) / 2;
    AffineOp affine{
        .rules = rules, .matrix = {c, -s, 0, s * c, c * c, -s, s * s, c * s, c}, .offset = {}};
    for (size_t d = 0; d < 3; ++d) {
      affine.offset.push_back(
          middle -
          (affine.matrix[3 * d] + affine.matrix[3 * d + 1] + affine.matrix[3 * d + 2]) * middle);
    }
    cases.push_back(
        {std::string("affine_") + name, affine, {}, {}, [=, this](const int64_t(&index)[3]) {
           double x[3];
           for (size_t d = 0; d < 3; ++d) {
             x[d] = affine.offset[d];
             for (size_t e = 0; e < 3; ++e)
               x[d] += affine.matrix[3 * d + e] * static_cast<double>(index[e]);
           }
           return At(rules, x);
         }});
  }
  // Neighbouring results read neighbouring samples, as in a registration.
  const auto field = std::make_shared<std::vector<float>>(fresh(3 * cube, -2, 2));
  const auto coordinates = std::make_shared<std::vector<float>>(*field);
  const auto at = [=](int64_t d, const int64_t(&index)[3]) {
    return static_cast<size_t>(d * cube + (index[0] * n + index[1]) * n + index[2]);
  };
  for (int64_t d = 0; d < 3; ++d) {
    for (int64_t k = 0; k < cube; ++k) {
      const int64_t index[3] = {k / (n * n), k / n % n, k % n};
      (*coordinates)[at(d, index)] += static_cast<float>(index[d]);
    }
  }
  for (const auto& [name, sampling] : samplings) {
    const SamplingRules rules{.sampling = sampling, .edge = edge_of(sampling)};
    cases.push_back({std::string("displace_") + name,
                     DisplaceOp{.rules = rules},
                     field,
                     {3 * n, n, n},
                     [=, this](const int64_t(&index)[3]) {
                       double x[3];
                       for (int64_t d = 0; d < 3; ++d) {
                         x[d] = static_cast<double>(index[d]) +
                                static_cast<double>((*field)[at(d, index)]);
                       }
                       return At(rules, x);
                     }});
    cases.push_back({std::string("map_coordinates_") + name,
                     MapCoordinatesOp{.rules = rules, .shape = {n, n, n}},
                     coordinates,
                     {3 * n, n, n},
                     [=, this](const int64_t(&index)[3]) {
                       double x[3];
                       for (int64_t d = 0; d < 3; ++d)
                         x[d] = static_cast<double>((*coordinates)[at(d, index)]);
                       return At(rules, x);
                     }});
  }
  for (int64_t axis : {int64_t{0}, int64_t{2}}) {
    for (const auto& [name, sampling] : samplings) {
      const SamplingRules rules{.sampling = sampling, .edge = SampleEdge::kWrap};
      const auto amounts = std::make_shared<std::vector<float>>(fresh(n * n, -20, 20));
      cases.push_back(
          {std::string("shift_") + name + "_axis_" + std::to_string(axis),
           ShiftOp{.rules = rules, .axis = axis},
           amounts,
           {n, n},
           [=](const int64_t(&index)[3]) {
             const int64_t column = axis == 0 ? index[1] * n + index[2] : index[0] * n + index[1];
             std::vector<Weights> axes;
             for (int64_t d = 0; d < 3; ++d) {
               const double x = static_cast<double>(index[d]) -
                                static_cast<double>((*amounts)[static_cast<size_t>(column)]);
               axes.push_back(d == axis ? Inside(Around(rules.sampling, x), rules.edge, n)
                                        : Weights{{index[d], 1}});
             }
             return axes;
           }});
    }
  }
  struct Resize {
    const char* name;
    int64_t m;
    Sampling sampling;
    bool corners;
  };
  for (const Resize& r : {Resize{"resize_half_linear", n / 2, Sampling::kLinear, false},
                          Resize{"resize_half_cubic", n / 2, Sampling::kCubic, false},
                          Resize{"resize_up_linear", n * 5 / 4, Sampling::kLinear, true},
                          Resize{"resize_up_cubic", n * 5 / 4, Sampling::kCubic, true}}) {
    cases.push_back(
        {r.name,
         ResizeOp{.shape = {r.m, r.m, r.m},
                  .sampling = r.sampling,
                  .corner_aligned = r.corners,
                  .edge = ResizeEdge::kMirror},
         {},
         {},
         [=](const int64_t(&index)[3]) {
           const double shrink = static_cast<double>(n) / static_cast<double>(r.m),
                        sigma = shrink > 1 ? (shrink - 1) / 2 : 0;
           const auto radius = static_cast<int64_t>(4 * sigma + 0.5);
           std::vector<Weights> axes;
           for (const int64_t i : index) {
             const double x = r.corners
                                  ? static_cast<double>(i * (n - 1)) / static_cast<double>(r.m - 1)
                                  : (static_cast<double>(i) + 0.5) * shrink - 0.5;
             double sum = 0;
             Weights smooth, all;
             for (int64_t k = -radius; k <= radius; ++k) {
               smooth[k] =
                   radius == 0 ? 1 : std::exp(-0.5 * static_cast<double>(k * k) / sigma / sigma);
               sum += smooth[k];
             }
             for (const auto& [j, weight] : Around(r.sampling, x)) {
               for (const auto& [k, gauss] : smooth) all[j + k] += weight * gauss / sum;
             }
             axes.push_back(Inside(all, SampleEdge::kMirror, n));
           }
           return axes;
         }});
  }
  return cases;
}

void Bench::Check(const Case& one, const ArrayType& in, const std::vector<char>& from,
                  const ArrayType& made, const std::vector<char>& out) {
  for (int64_t check = 0; check < checks_; ++check) {
    int64_t index[3], at = 0;
    for (size_t d = 0; d < 3; ++d) {
      index[d] = static_cast<int64_t>(random_() % static_cast<uint64_t>(made.dims[d]));
      at = at * made.dims[d] + index[d];
    }
    double wanted = 0;
    if (const std::vector<Weights> axes = one.weights(index); !axes.empty()) {
      for (const auto& [i, wi] : axes[0]) {
        for (const auto& [j, wj] : axes[1]) {
          for (const auto& [k, wk] : axes[2])
            wanted += wi * wj * wk * math::Load(in.scalar, from.data(), (i * n_ + j) * n_ + k).re;
        }
      }
    }
    const bool whole = IsIntegral(in.scalar);
    if (whole) wanted = std::clamp(wanted, 0.0, 65535.0);
    const double got = math::Load(made.scalar, out.data(), at).re, largest = whole ? 65535 : 1;
    if (!(std::abs(got - wanted) <= 4e-6 * largest + (whole ? 0.5 : 0))) {
      Die(one.name + ": result " + std::to_string(index[0]) + ", " + std::to_string(index[1]) +
          ", " + std::to_string(index[2]) + " is " + std::to_string(got) +
          "; the definition gives " + std::to_string(wanted));
    }
  }
}

void Bench::Run(const Case& one, Scalar scalar) {
  const ArrayType in{.scalar = scalar, .lanes = 1, .dims = {n_, n_, n_}};
  std::vector<char> from(static_cast<size_t>(in.bytes()));
  std::mt19937 quick(static_cast<uint32_t>(random_()));
  for (int64_t i = 0; i < in.numbers(); ++i) {
    const auto drawn = static_cast<uint32_t>(quick());
    math::Store(scalar, from.data(), i,
                {scalar == Scalar::kF32 ? static_cast<double>(drawn) / 4294967296.0
                                        : static_cast<double>(drawn >> 16)});
  }
  std::vector<ArrayType> others;
  if (one.other != nullptr)
    others.push_back({.scalar = Scalar::kF32, .lanes = 1, .dims = one.other_dims});
  const auto chain = std::make_shared<const ArrayChain>(
      Take(PlanChain({one.op}, in, others, false, "operations")));
  const auto run = Take(ChainRun::Create(chain, device_));
  const DeviceBuffer source = Take(device_.Allocate(in.bytes())),
                     copy = Take(device_.Allocate(in.bytes())),
                     to = Take(device_.Allocate(chain->out.bytes()));
  Ok(device_.CopyToDevice(stream_.ref(), source.data(), from.data(), in.bytes()));
  std::vector<const void*> pointers;
  DeviceBuffer second;
  if (!others.empty()) {
    second = Take(device_.Allocate(others[0].bytes()));
    Ok(device_.CopyToDevice(stream_.ref(), second.data(), one.other->data(), others[0].bytes()));
    pointers.push_back(second.data());
  }
  Ok(stream_.ref().Synchronize());
  const double copied = MedianSeconds(seconds_ / 4, [&] {
    Ok(device_.CopyOnDevice(stream_.ref(), copy.data(), source.data(), in.bytes()));
    Ok(stream_.ref().Synchronize());
  });
  const double taken = MedianSeconds(seconds_, [&] {
    Ok(run->Run(stream_.ref(), source.data(), pointers, to.data()));
    Ok(stream_.ref().Synchronize());
  });
  std::vector<char> out(static_cast<size_t>(chain->out.bytes()));
  Ok(device_.CopyToHost(stream_.ref(), out.data(), to.data(), chain->out.bytes()));
  Ok(stream_.ref().Synchronize());
  Check(one, in, from, chain->out, out);
  const auto moved = static_cast<double>(in.bytes() + chain->out.bytes() +
                                         (others.empty() ? 0 : others[0].bytes()));
  const double rate = 2 * static_cast<double>(in.bytes()) / copied;
  std::printf(
      "{\"bench\": \"array_ops\", \"backend\": \"%s\", \"op\": \"%s\", \"type\": \"%s\", \"size\": "
      "%lld, \"ms\": %.4f, \"gb_per_s\": %.1f, \"copy_gb_per_s\": %.1f, \"of_copy\": %.3f, "
      "\"checked\": %lld}\n",
      backend_.c_str(), one.name.c_str(), NameOf(scalar), static_cast<long long>(n_), taken * 1e3,
      moved / taken / 1e9, rate / 1e9, moved / rate / taken, static_cast<long long>(checks_));
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  std::string backend = "host", only;
  int64_t size = 512, checks = 100;
  double seconds = 0.5;
  ReadOptions(argc, argv,
              {{"--backend", &backend},
               {"--size", &size},
               {"--seconds", &seconds},
               {"--only", &only},
               {"--checks", &checks}});
  if (size < 32 || checks < 1) Die("--size is at least 32, --checks at least 1");
  Bench bench(backend, size, seconds, checks);
  for (const Case& one : bench.Cases()) {
    if (one.name.find(only) == std::string::npos) continue;
    for (const Scalar scalar : {Scalar::kF32, Scalar::kU16}) bench.Run(one, scalar);
  }
  return 0;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) { return octavo::Main(argc, argv); }

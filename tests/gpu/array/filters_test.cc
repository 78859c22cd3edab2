// Filters over neighbours against plain loops in double precision, over random shapes, every
// element type and every edge.

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "tests/gpu/array/array_ops_fixture.h"
#include "tests/support/seed.h"

namespace octavo {
namespace {

using testing::Complex;
using testing::HostArray;
using testing::IsError;
using testing::IsOk;
using testing::kAll;
using testing::MakeRandom;

class FiltersTest : public testing::OpsTest {};

constexpr math::Edge kEdges[] = {math::Edge::kReflect, math::Edge::kNearest, math::Edge::kMirror,
                                 math::Edge::kConstant, math::Edge::kWrap};

// The sample at position i of a line that continues beyond its ends as scipy.ndimage says, found by
// going there step by step.
template <typename T>
T Beyond(const std::vector<T>& line, int64_t i, math::Edge edge, T value) {
  const int64_t n = std::ssize(line);
  while (i < 0 || i >= n) {
    switch (edge) {
      case math::Edge::kReflect: i = i < 0 ? -i - 1 : 2 * n - 1 - i; break;
      case math::Edge::kMirror: i = n == 1 ? 0 : i < 0 ? -i : 2 * n - 2 - i; break;
      case math::Edge::kNearest: i = i < 0 ? 0 : n - 1; break;
      case math::Edge::kWrap: i += i < 0 ? n : -n; break;
      case math::Edge::kConstant: return value;
    }
  }
  return line[static_cast<size_t>(i)];
}

// Calls f(line) for each line along an axis of [dims, lanes] and stores what it returns.
template <typename T, typename F>
std::vector<T> AlongAxis(const std::vector<T>& in, const std::vector<int64_t>& dims, int64_t lanes,
                         size_t axis, F f) {
  int64_t outer = 1, inner = lanes;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (d != axis) (d < axis ? outer : inner) *= dims[d];
  }
  const int64_t n = dims[axis];
  std::vector<T> out(in.size());
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t q = 0; q < inner; ++q) {
      std::vector<T> line;
      for (int64_t i = 0; i < n; ++i)
        line.push_back(in[static_cast<size_t>((o * n + i) * inner + q)]);
      const std::vector<T> made = f(line);
      for (int64_t i = 0; i < n; ++i)
        out[static_cast<size_t>((o * n + i) * inner + q)] = made[static_cast<size_t>(i)];
    }
  }
  return out;
}

std::vector<Complex> Correlated(const std::vector<Complex>& line, const std::vector<double>& weight,
                                int64_t before, math::Edge edge, double value) {
  std::vector<Complex> out;
  for (int64_t i = 0; i < std::ssize(line); ++i) {
    Complex sum = 0;
    for (int64_t t = 0; t < std::ssize(weight); ++t) {
      sum += weight[static_cast<size_t>(t)] * Beyond<Complex>(line, i - before + t, edge, value);
    }
    out.push_back(sum);
  }
  return out;
}

// The weights of scipy.ndimage's _gaussian_kernel1d, in correlation order.
std::vector<double> GaussianWeights(double sigma, int64_t order, int64_t radius) {
  std::vector<double> weight;
  double sum = 0;
  for (int64_t k = -radius; k <= radius; ++k)
    sum += std::exp(-0.5 * static_cast<double>(k * k) / sigma / sigma);
  for (int64_t k = -radius; k <= radius; ++k) {
    const auto x = static_cast<double>(k);
    const double phi = std::exp(-0.5 * x * x / sigma / sigma) / sum;
    weight.push_back(order == 0   ? phi
                     : order == 1 ? x / (sigma * sigma) * phi
                                  : (x * x / std::pow(sigma, 4) - 1 / (sigma * sigma)) * phi);
  }
  return weight;
}

std::vector<Complex> ValuesOf(const HostArray& array) {
  std::vector<Complex> values;
  for (int64_t i = 0; i < array.type.numbers(); ++i) values.push_back(array.at(i));
  return values;
}

Scalar FilteredType(Scalar in) {
  return in == Scalar::kC128  ? Scalar::kC128
         : IsComplex(in)      ? Scalar::kC64
         : in == Scalar::kF64 ? Scalar::kF64
                              : Scalar::kF32;
}

// Sums of f32 differ from the model by their rounding, relative to the largest sample.
void ExpectFiltered(const HostArray& got, const HostArray& in, const std::vector<Complex>& wanted,
                    double gain, const std::string& what) {
  ASSERT_EQ(got.type.scalar, FilteredType(in.type.scalar)) << what;
  ASSERT_EQ(got.type.dims, in.type.dims) << what;
  double largest = 1;
  for (const Complex& v : ValuesOf(in)) largest = std::max(largest, std::abs(v));
  const bool precise = SizeOf(got.type.scalar) == (IsComplex(got.type.scalar) ? 16 : 8);
  const double tolerance = (precise ? 1e-13 : 1e-6) * largest * std::max(1.0, gain);
  for (size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_LE(std::abs(got.at(static_cast<int64_t>(i)) - wanted[i]), tolerance)
        << what << " at " << i << ": " << got.at(static_cast<int64_t>(i)) << ", wanted "
        << wanted[i];
  }
}

std::vector<std::vector<int64_t>> Shapes(std::mt19937& random) {
  std::vector<std::vector<int64_t>> shapes = {
      {1}, {2}, {1500}, {3, 1100}, {70, 40}, {1, 7, 2}, {5, 66, 33}, {130, 3, 35}, {2, 3, 257}};
  const auto extent = [&](uint32_t most) { return static_cast<int64_t>(1 + random() % most); };
  for (int i = 0; i < 4; ++i) shapes.push_back({extent(12), extent(80), extent(70)});
  return shapes;
}

TEST_P(FiltersTest, GaussiansAndTheirDerivatives) {
  std::mt19937 random(testing::FreshSeed());
  size_t next = random();
  for (const std::vector<int64_t>& dims : Shapes(random)) {
    for (const math::Edge edge : kEdges) {
      for (int repeat = 0; repeat < 2; ++repeat) {
        const Scalar scalar = kAll[next++ % std::size(kAll)];
        const int64_t lanes = next % 5 == 0 ? 2 : 1;
        const HostArray in = MakeRandom({.scalar = scalar, .lanes = lanes, .dims = dims},
                                        static_cast<uint32_t>(random()));
        GaussianOp op{.edge = edge};
        if (edge == math::Edge::kConstant && !IsComplex(scalar)) op.value = 7;
        if (random() % 3 == 0) op.truncate = 2.5;
        std::vector<Complex> wanted = ValuesOf(in);
        double gain = 1;
        for (size_t axis = 0; axis < dims.size(); ++axis) {
          const double sigma =
              random() % 4 == 0 ? 0 : 0.3 + static_cast<double>(random() % 1000) / 1000 * 3;
          const int64_t order = sigma > 0 ? static_cast<int64_t>(random() % 3) : 0;
          op.sigma.push_back(sigma);
          op.order.push_back(order);
          const auto radius = static_cast<int64_t>(op.truncate * sigma + 0.5);
          if (sigma == 0) continue;
          const std::vector<double> weight = GaussianWeights(sigma, order, radius);
          double sum = 0;
          for (const double w : weight) sum += std::abs(w);
          gain *= std::max(1.0, sum);
          wanted = AlongAxis(wanted, dims, lanes, axis, [&](const auto& line) {
            return Correlated(line, weight, radius, edge, op.value);
          });
        }
        ASSERT_NO_FATAL_FAILURE(ExpectFiltered(
            Run({op}, in), in, wanted, gain,
            absl::StrCat(in.type.Text(), " sigma ", absl::StrJoin(op.sigma, ", "), " order ",
                         absl::StrJoin(op.order, ", "), " edge ", static_cast<int>(edge))));
      }
    }
  }
}

TEST_P(FiltersTest, MeansOfWindows) {
  std::mt19937 random(testing::FreshSeed());
  size_t next = random();
  for (const std::vector<int64_t>& dims : Shapes(random)) {
    for (const math::Edge edge : kEdges) {
      const Scalar scalar = kAll[next++ % std::size(kAll)];
      const HostArray in =
          MakeRandom({.scalar = scalar, .dims = dims}, static_cast<uint32_t>(random()));
      UniformOp op{.edge = edge};
      std::vector<Complex> wanted = ValuesOf(in);
      for (size_t axis = 0; axis < dims.size(); ++axis) {
        const auto size = static_cast<int64_t>(random() % 12);
        op.size.push_back(static_cast<double>(size));
        if (size < 2) continue;
        wanted = AlongAxis(wanted, dims, 1, axis, [&](const auto& line) {
          return Correlated(
              line, std::vector<double>(static_cast<size_t>(size), 1 / static_cast<double>(size)),
              size / 2, edge, 0);
        });
      }
      ASSERT_NO_FATAL_FAILURE(
          ExpectFiltered(Run({op}, in), in, wanted, 1,
                         absl::StrCat(in.type.Text(), " size ", absl::StrJoin(op.size, ", "),
                                      " edge ", static_cast<int>(edge))));
    }
  }
}

// Kernels that reach far beyond an axis, or are too long for a device's fast memory.
TEST_P(FiltersTest, LongKernels) {
  for (const std::vector<int64_t>& dims :
       {std::vector<int64_t>{5, 40}, {40, 5}, {900, 34}, {3, 2000}}) {
    for (const Scalar scalar : {Scalar::kU16, Scalar::kF64}) {
      for (const math::Edge edge : kEdges) {
        const HostArray in = MakeRandom({.scalar = scalar, .dims = dims}, testing::FreshSeed());
        const double sigma = 150;
        std::vector<Complex> wanted = ValuesOf(in);
        for (const size_t axis : {size_t{0}, size_t{1}}) {
          wanted = AlongAxis(wanted, dims, 1, axis, [&](const auto& line) {
            return Correlated(line, GaussianWeights(sigma, 0, 600), 600, edge, 0);
          });
        }
        ASSERT_NO_FATAL_FAILURE(ExpectFiltered(
            Run({GaussianOp{.sigma = {sigma}, .edge = edge}}, in), in, wanted, 10,
            absl::StrCat(in.type.Text(), " sigma 150 edge ", static_cast<int>(edge))));
      }
    }
  }
}

TEST_P(FiltersTest, LengthsInUnitsOfTheStep) {
  const HostArray in = MakeRandom({.scalar = Scalar::kF32, .dims = {20, 30, 40}}, 3);
  const std::vector<double> step = {2, 0.5, 4};
  const HostArray in_um =
                      Run({GaussianOp{.sigma = {3, 1, 8}, .order = {0, 1, 2}, .step = step}}, in),
                  in_samples = Run({GaussianOp{.sigma = {1.5, 2, 2}, .order = {0, 1, 2}}}, in);
  for (int64_t i = 0; i < in.type.numbers(); ++i) {
    // Per um: d/dx of 0.5 um samples, and d2/dx2 of 4 um samples.
    ASSERT_NEAR(in_um.at(i).real(), in_samples.at(i).real() / 0.5 / 16, 1e-5) << i;
  }
  EXPECT_EQ(Run({UniformOp{.size = {6, 1.6, 4}, .step = step}}, in).bytes,
            Run({UniformOp{.size = {3, 3, 1}}}, in).bytes);
}

// A derivative of a rising edge is positive.
TEST_P(FiltersTest, ARisingEdgeHasAPositiveDerivative) {
  HostArray in{.type = {.scalar = Scalar::kU8, .dims = {40}},
               .bytes = std::vector<uint8_t>(40, 10)};
  std::fill(in.bytes.begin() + 20, in.bytes.end(), uint8_t{90});
  const HostArray out = Run({GaussianOp{.sigma = {2}, .order = {1}}}, in);
  EXPECT_GT(out.at(20).real(), 10);
  EXPECT_NEAR(out.at(5).real(), 0, 1e-5);
}

// A sample that is not finite reaches the results whose window holds it, and no other.
TEST_P(FiltersTest, NoSampleReachesBeyondItsWindow) {
  for (const size_t axis : {size_t{0}, size_t{1}}) {
    for (const double value : {std::numeric_limits<double>::quiet_NaN(), HUGE_VAL}) {
      HostArray in = MakeRandom({.scalar = Scalar::kF32, .dims = {90, 90}}, testing::FreshSeed());
      const int64_t spoilt = 41;
      const auto at = [&](int64_t i, int64_t other) {
        return axis == 0 ? i * 90 + other : other * 90 + i;
      };
      math::Store(Scalar::kF32, in.bytes.data(), at(spoilt, 50), {value, 0});
      GaussianOp op{.sigma = {0, 0}};
      op.sigma[axis] = 1.5;  // 6 samples on either side
      const HostArray out = Run({op}, in);
      for (int64_t i = 0; i < 90; ++i) {
        for (int64_t other = 0; other < 90; ++other) {
          const bool reached = other == 50 && std::abs(i - spoilt) <= 6;
          ASSERT_EQ(std::isfinite(out.at(at(i, other)).real()), !reached)
              << i << " " << other << " axis " << axis;
        }
      }
    }
  }
}

TEST_P(FiltersTest, MediansOfWindows) {
  std::mt19937 random(testing::FreshSeed());
  const std::vector<std::vector<int64_t>> sets = {{},     {0},    {1},    {2},
                                                  {0, 1}, {1, 2}, {0, 2}, {0, 1, 2}};
  size_t next = 0;
  for (const Scalar scalar : kAll) {
    if (IsComplex(scalar)) continue;
    for (const int64_t size : {3, 5}) {
      for (const auto& set : sets) {
        const math::Edge edge =
            std::array{math::Edge::kReflect, math::Edge::kReflect, math::Edge::kNearest,
                       math::Edge::kMirror, math::Edge::kWrap}[next++ % 5];
        const auto extent = [&](uint32_t most) {
          return static_cast<int64_t>(1 + random() % most);
        };
        const std::vector<int64_t> dims = {extent(8), extent(9), extent(40)};
        const int64_t lanes = next % 7 == 0 ? 2 : 1;
        const HostArray in = MakeRandom({.scalar = scalar, .lanes = lanes, .dims = dims},
                                        static_cast<uint32_t>(random()), IsFloating(scalar));
        const HostArray out = Run({MedianOp{.size = size, .axes = set, .edge = edge}}, in);
        ASSERT_EQ(out.type, in.type);
        int64_t reach[3];
        for (int64_t d = 0; d < 3; ++d) {
          const bool chosen = set.empty() || std::find(set.begin(), set.end(), d) != set.end();
          reach[d] = chosen ? size / 2 : 0;
        }
        std::vector<int64_t> places[3];
        for (size_t d = 0; d < 3; ++d) {
          for (int64_t i = 0; i < dims[d]; ++i) places[d].push_back(i);
        }
        for (int64_t i = 0; i < in.type.numbers(); ++i) {
          const int64_t lane = i % lanes, c = i / lanes % dims[2],
                        b = i / lanes / dims[2] % dims[1], a = i / lanes / dims[2] / dims[1];
          std::vector<double> window;
          for (int64_t da = -reach[0]; da <= reach[0]; ++da) {
            for (int64_t db = -reach[1]; db <= reach[1]; ++db) {
              for (int64_t dc = -reach[2]; dc <= reach[2]; ++dc) {
                window.push_back(in.at(in.index(Beyond<int64_t>(places[0], a + da, edge, 0),
                                                Beyond<int64_t>(places[1], b + db, edge, 0),
                                                Beyond<int64_t>(places[2], c + dc, edge, 0), lane))
                                     .real());
              }
            }
          }
          std::sort(window.begin(), window.end(),
                    [](double x, double y) { return std::isnan(y) ? !std::isnan(x) : x < y; });
          const double wanted = window[window.size() / 2], got = out.at(i).real();
          ASSERT_TRUE(got == wanted || (std::isnan(got) && std::isnan(wanted)))
              << in.type.Text() << " size " << size << " axes " << absl::StrJoin(set, ", ")
              << " edge " << static_cast<int>(edge) << " at " << i << ": " << got << ", wanted "
              << wanted;
        }
      }
    }
  }
}

TEST_P(FiltersTest, MediansKeepEveryDigitOf64Bits) {
  HostArray in{.type = {.scalar = Scalar::kI64, .dims = {3}}, .bytes = std::vector<uint8_t>(24)};
  auto* const values = reinterpret_cast<int64_t*>(in.bytes.data());
  values[0] = std::numeric_limits<int64_t>::max();
  values[1] = std::numeric_limits<int64_t>::max() - 1;
  values[2] = std::numeric_limits<int64_t>::min();
  const HostArray out = Run({MedianOp{}}, in);
  EXPECT_EQ(reinterpret_cast<const int64_t*>(out.bytes.data())[1], values[1]);
}

// Filters whose output lies in the memory of their input.
TEST_P(FiltersTest, InPlace) {
  const HostArray in = MakeRandom({.scalar = Scalar::kF32, .dims = {9, 20, 31}}, 5);
  for (const std::vector<Op>& ops :
       {std::vector<Op>{GaussianOp{.sigma = {0, 1, 0}}},
        {GaussianOp{.sigma = {1}}},
        {MedianOp{}},
        {UniformOp{.size = {3}}, MedianOp{.size = 5, .axes = {1, 2}}}}) {
    const auto chain =
        std::make_shared<const ArrayChain>(PlanChain(ops, in.type, {}, true, "operations").value());
    const auto run = ChainRun::Create(chain, device_).value();
    const DeviceBuffer memory = Upload(in.bytes);
    ASSERT_THAT(run->Run(stream_.ref(), memory.data(), {}, memory.data()), IsOk());
    EXPECT_EQ(Download<uint8_t>(memory, in.bytes.size()), Run(ops, in).bytes);
  }
}

TEST_P(FiltersTest, WhatCannotBeIsRefusedByName) {
  const ArrayType in{.scalar = Scalar::kF32, .dims = {4, 5, 6}},
      complex{.scalar = Scalar::kC64, .dims = {4}};
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(Refused({GaussianOp{}}, in),
              IsError(kInvalid, "operations[0].gaussian.sigma: has 0 numbers; allowed 1 or 3"));
  EXPECT_THAT(Refused({GaussianOp{.sigma = {1, 2}}}, in), IsError(kInvalid, "allowed 1 or 3"));
  EXPECT_THAT(Refused({GaussianOp{.sigma = {1, -1, 0}}}, in),
              IsError(kInvalid, "gaussian.sigma: [1] is -1; allowed 0 to 16384"));
  EXPECT_THAT(Refused({GaussianOp{.sigma = {NAN}}}, in), IsError(kInvalid, "sigma: [0] is nan"));
  EXPECT_THAT(Refused({GaussianOp{.sigma = {1}, .order = {3}}}, in),
              IsError(kInvalid, "gaussian.order: [0] is 3; allowed 0 to 2"));
  EXPECT_THAT(Refused({GaussianOp{.sigma = {1, 0, 1}, .order = {1}}}, in),
              IsError(kInvalid, "gaussian.order: [1] is 1 where sigma is 0"));
  EXPECT_THAT(Refused({GaussianOp{.sigma = {1}, .truncate = 0}}, in),
              IsError(kInvalid, "gaussian.truncate: is 0"));
  EXPECT_THAT(Refused({GaussianOp{.sigma = {1}, .edge = static_cast<math::Edge>(9)}}, in),
              IsError(kInvalid, "gaussian.edge: has the unknown value 9"));
  EXPECT_THAT(Refused({GaussianOp{.sigma = {1}, .value = 2}}, in),
              IsError(kInvalid, "gaussian.edge_value: is 2; only the edge CONSTANT"));
  EXPECT_THAT(
      Refused({GaussianOp{.sigma = {1}, .edge = math::Edge::kConstant, .value = 2}}, complex),
      IsError(kInvalid, "allowed 0 for complex numbers"));
  EXPECT_THAT(Refused({UniformOp{.size = {1e9}}}, in),
              IsError(kInvalid, "uniform.size: [0] is 1e+09; allowed 0 to 65536"));
  EXPECT_THAT(Refused({UniformOp{.size = {NAN}, .step = {2}}}, in),
              IsError(kInvalid, "uniform.size_um: [0] is nan; allowed 0 to 131072"));
  EXPECT_THAT(Refused({GaussianOp{.sigma = {-1}, .step = {2, 1, 1}}}, in),
              IsError(kInvalid, "gaussian.sigma_um: [0] is -1; allowed 0 to 32768"));
  EXPECT_THAT(Refused({MedianOp{.size = 4}}, in),
              IsError(kInvalid, "median.size: is 4; allowed 3 and 5"));
  EXPECT_THAT(Refused({MedianOp{.axes = {3}}}, in), IsError(kInvalid, "median.axes: is 3"));
  EXPECT_THAT(
      Refused({MedianOp{.edge = math::Edge::kConstant}}, in),
      IsError(kInvalid, "median.edge: is CONSTANT; allowed REFLECT, NEAREST, MIRROR, WRAP"));
  EXPECT_THAT(Refused({MedianOp{}}, complex), IsError(kInvalid, "no meaning for complex"));
}

INSTANTIATE_TEST_SUITE_P(Backends, FiltersTest, ::testing::ValuesIn(testing::AvailableBackends()),
                         testing::BackendName);

}  // namespace
}  // namespace octavo

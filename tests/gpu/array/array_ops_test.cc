// Chained operations against plain loops in double precision. Covers every element type, shapes
// that do not divide evenly, lanes and NaN.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numbers>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "tests/gpu/array/array_ops_fixture.h"
#include "tests/support/seed.h"

namespace octavo {
namespace {

using testing::Clipped;
using testing::Complex;
using testing::HostArray;
using testing::IsError;
using testing::IsOk;
using testing::kAll;
using testing::kFloatTolerance;
using testing::MakeRandom;
using testing::OpsTest;

// Tolerance of f32 transforms, relative to the norm of the row.
constexpr double kFftTolerance = 2e-6;

TEST_P(OpsTest, CropFlipTransposeCopyMoveEveryElementType) {
  for (const Scalar scalar : kAll) {
    const int64_t lanes = IsComplex(scalar) ? 1 : 3;
    const HostArray in = MakeRandom({.scalar = scalar, .lanes = lanes, .dims = {5, 7, 11}}, 1);
    const auto expect = [&](const HostArray& out, const std::vector<int64_t>& dims,
                            const std::function<int64_t(int64_t, int64_t, int64_t)>& from) {
      ASSERT_EQ(out.type.dims, dims) << NameOf(scalar);
      const auto size = static_cast<size_t>(SizeOf(scalar) * lanes);
      for (int64_t a = 0; a < dims[0]; ++a) {
        for (int64_t b = 0; b < dims[1]; ++b) {
          for (int64_t c = 0; c < dims[2]; ++c) {
            const auto to_at = static_cast<size_t>(out.index(a, b, c, 0) * SizeOf(scalar)),
                       from_at = static_cast<size_t>(from(a, b, c) * SizeOf(scalar));
            ASSERT_EQ(std::memcmp(&out.bytes[to_at], &in.bytes[from_at], size), 0)
                << NameOf(scalar) << " " << a << " " << b << " " << c;
          }
        }
      }
    };
    expect(Run({CopyOp{}}, in), {5, 7, 11},
           [&](auto a, auto b, auto c) { return in.index(a, b, c, 0); });
    expect(Run({CropOp{.start = {1, 2, 3}, .count = {2, 0, 4}}}, in), {2, 5, 4},
           [&](auto a, auto b, auto c) { return in.index(a + 1, b + 2, c + 3, 0); });
    expect(Run({FlipOp{.axes = {0, -1}}}, in), {5, 7, 11},
           [&](auto a, auto b, auto c) { return in.index(4 - a, b, 10 - c, 0); });
    expect(Run({TransposeOp{.axes = {2, 0, 1}}}, in), {11, 5, 7},
           [&](auto a, auto b, auto c) { return in.index(b, c, a, 0); });
    expect(Run({TransposeOp{}}, in), {11, 7, 5},
           [&](auto a, auto b, auto c) { return in.index(c, b, a, 0); });
    // Both operations in sequence, and in place on the device.
    expect(
        Run({TransposeOp{.axes = {2, 0, 1}}, FlipOp{.axes = {1}}, CropOp{.start = {4, 0, 0}}}, in),
        {7, 5, 7}, [&](auto a, auto b, auto c) { return in.index(4 - b, c, a + 4, 0); });
  }
}

TEST_P(OpsTest, ScaleCastsBetweenAllTypes) {
  for (const Scalar from : kAll) {
    const HostArray in = MakeRandom({.scalar = from, .dims = {3, 331}}, 2);
    for (const Scalar to : kAll) {
      if (IsComplex(from) && !IsComplex(to)) {
        EXPECT_THAT(Refused({ScaleOp{.scalar = to}}, in.type),
                    IsError(absl::StatusCode::kInvalidArgument, "which part"));
        continue;
      }
      const HostArray out = Run({ScaleOp{.scalar = to, .multiply = {1.5, 0}, .add = {-20, 0}}}, in);
      ASSERT_EQ(out.type.scalar, to);
      std::vector<Complex> wanted;
      for (int64_t i = 0; i < in.type.numbers(); ++i) {
        Complex v = in.at(i) * 1.5 - 20.0;
        if (IsIntegral(to)) {
          const bool sign =
              to == Scalar::kI8 || to == Scalar::kI16 || to == Scalar::kI32 || to == Scalar::kI64;
          const double bits = static_cast<double>(8 * SizeOf(to)),
                       top = std::exp2(sign ? bits - 1 : bits) - 1,
                       bottom = sign ? -std::exp2(bits - 1) : 0;
          v = std::clamp(std::round(v.real()), bottom, top);
        }
        wanted.push_back(v);
      }
      ExpectNear(out, wanted, SizeOf(to) == 2 || to == Scalar::kC32 ? 1e-3 : kFloatTolerance,
                 std::string(NameOf(from)) + " to " + NameOf(to));
    }
  }
}

TEST_P(OpsTest, PartsOfComplexNumbers) {
  const HostArray in = MakeRandom({.scalar = Scalar::kC64, .dims = {1000}}, 3);
  const std::pair<math::Part, double (*)(Complex)> parts[] = {
      {math::Part::kReal, [](Complex z) { return z.real(); }},
      {math::Part::kImaginary, [](Complex z) { return z.imag(); }},
      {math::Part::kMagnitude, [](Complex z) { return std::abs(z); }},
      {math::Part::kPhase, [](Complex z) { return std::arg(z); }},
      {math::Part::kPower, [](Complex z) { return std::norm(z); }}};
  for (const auto& [part, f] : parts) {
    const HostArray out = Run({ScaleOp{.part = part}}, in);
    ASSERT_EQ(out.type.scalar, Scalar::kF32);
    std::vector<Complex> wanted;
    for (int64_t i = 0; i < 1000; ++i) wanted.push_back(f(in.at(i)));
    ExpectNear(out, wanted, kFloatTolerance, "part");
  }
  // A complex factor rotates the phase.
  std::vector<Complex> wanted;
  for (int64_t i = 0; i < 1000; ++i) wanted.push_back(in.at(i) * Complex(0, 2) + Complex(1, -1));
  ExpectNear(Run({ScaleOp{.multiply = {0, 2}, .add = {1, -1}}}, in), wanted, kFloatTolerance,
             "complex factor");
}

TEST_P(OpsTest, CombineRepeatsTheSecondAlongTheFirstAxes) {
  const HostArray in = MakeRandom({.scalar = Scalar::kF32, .lanes = 2, .dims = {4, 5, 6}}, 4);
  for (const std::vector<int64_t>& dims : {std::vector<int64_t>{4, 5, 6}, {5, 6}, {6}}) {
    const HostArray other = MakeRandom({.scalar = Scalar::kI16, .lanes = 2, .dims = dims}, 5);
    for (const Combination kind : {Combination::kAdd, Combination::kSubtract,
                                   Combination::kMultiply, Combination::kDivide}) {
      std::vector<Complex> wanted;
      for (int64_t i = 0; i < in.type.numbers(); ++i) {
        const double a = in.at(i).real(), b = other.at(i % other.type.numbers()).real();
        wanted.push_back(kind == Combination::kAdd        ? a + b
                         : kind == Combination::kSubtract ? a - b
                         : kind == Combination::kMultiply ? a * b
                                                          : a / b);
      }
      bool finite = true;
      for (const Complex& w : wanted) finite &= std::isfinite(w.real());
      if (finite)
        ExpectNear(Run({CombineOp{.kind = kind}}, in, {other}), wanted, kFloatTolerance, "combine");
    }
  }
  EXPECT_THAT(
      PlanChain({CombineOp{}}, in.type, {{.scalar = Scalar::kF32, .lanes = 2, .dims = {4, 5}}},
                false, "operations"),
      IsError(absl::StatusCode::kInvalidArgument, "last axes"));
}

TEST_P(OpsTest, FftAlongEachAxis) {
  // Lengths of every radix, and primes.
  for (const std::vector<int64_t>& dims :
       {std::vector<int64_t>{8, 15, 36}, {3, 7, 31}, {2, 1, 512}, {61, 1, 1}, {1, 2, 3}}) {
    for (const Scalar scalar : {Scalar::kF32, Scalar::kC64, Scalar::kU8}) {
      const HostArray in = MakeRandom({.scalar = scalar, .dims = dims}, 13);
      for (int64_t axis = 0; axis < 3; ++axis) {
        for (const bool inverse : {false, true}) {
          const HostArray out = Run({FftOp{.axis = axis, .inverse = inverse}}, in);
          ASSERT_EQ(out.type, (ArrayType{.scalar = Scalar::kC64, .dims = dims}));
          const int64_t n = dims[static_cast<size_t>(axis)];
          double worst = 0, norm = 0;
          std::vector<Complex> roots;
          for (int64_t j = 0; j < n; ++j) {
            roots.push_back(std::polar(1.0, (inverse ? 2 : -2) * std::numbers::pi *
                                                static_cast<double>(j) / static_cast<double>(n)));
          }
          for (int64_t i = 0; i < in.type.numbers(); ++i) {
            const int64_t c = i % dims[2], b = i / dims[2] % dims[1], a = i / dims[2] / dims[1],
                          k = axis == 0   ? a
                              : axis == 1 ? b
                                          : c;
            Complex sum = 0;
            double power = 0;
            for (int64_t j = 0; j < n; ++j) {
              const Complex z =
                  in.at(in.index(axis == 0 ? j : a, axis == 1 ? j : b, axis == 2 ? j : c, 0));
              sum += z * roots[static_cast<size_t>(j * k % n)];
              power += std::norm(z);
            }
            if (inverse) sum /= static_cast<double>(n);
            worst = std::max(worst, std::abs(out.at(i) - sum));
            norm =
                std::max(norm, std::sqrt(power) * (inverse ? 1.0 / static_cast<double>(n) : 1.0) *
                                   std::sqrt(static_cast<double>(n)));
          }
          ASSERT_LE(worst, kFftTolerance * norm)
              << in.type.Text() << " axis " << axis << " inverse " << inverse;
        }
      }
    }
  }
}

// A line that is not finite or far too large does not affect the others: they have the same bits as
// without it.
TEST_P(OpsTest, FftKeepsLinesApart) {
  std::mt19937 random(testing::FreshSeed());
  for (const int64_t n : {2, 3, 16, 31, 257, 501, 512, 1001, 1009, 2018, 2049, 2048, 4099}) {
    for (const int64_t axis : {0, 1, 2}) {
      std::vector<int64_t> dims = {1 + static_cast<int64_t>(random() % 3),
                                   1 + static_cast<int64_t>(random() % 4),
                                   1 + static_cast<int64_t>(random() % 3)};
      dims[static_cast<size_t>(axis)] = n;
      for (const Scalar scalar : {Scalar::kF32, Scalar::kC64}) {
        const HostArray in =
            MakeRandom({.scalar = scalar, .dims = dims}, static_cast<uint32_t>(random()));
        // The line of an element, and the line that the test spoils.
        const auto line_of = [&](int64_t i) {
          const int64_t c = i % dims[2], b = i / dims[2] % dims[1], a = i / dims[2] / dims[1];
          return axis == 0 ? b * dims[2] + c : axis == 1 ? a * dims[2] + c : a * dims[1] + b;
        };
        const int64_t lines = in.type.numbers() / n,
                      bad = static_cast<int64_t>(random() % static_cast<uint32_t>(lines));
        const std::vector<Op> ops = {FftOp{.axis = axis, .inverse = random() % 2 == 0}};
        const HostArray alone = Run(ops, in), again = Run(ops, in);
        ASSERT_EQ(again.bytes, alone.bytes) << in.type.Text() << " axis " << axis;
        for (const double value : {std::nan(""), HUGE_VAL, 1e30}) {
          HostArray spoilt = in;
          for (int64_t i = 0; i < in.type.numbers(); ++i) {
            if (line_of(i) == bad) math::Store(scalar, spoilt.bytes.data(), i, {value, 0});
          }
          const HostArray out = Run(ops, spoilt);
          for (int64_t i = 0; i < in.type.numbers(); ++i) {
            if (line_of(i) == bad) continue;
            ASSERT_EQ(std::memcmp(out.bytes.data() + 8 * i, alone.bytes.data() + 8 * i, 8), 0)
                << in.type.Text() << " axis " << axis << " at " << i << " beside a line of "
                << value << ": " << out.at(i) << ", alone " << alone.at(i);
          }
        }
      }
    }
  }
}

// Extends a line beyond its ends as scipy.ndimage does: 'mirror' d c b | a b c d | c b a, 'reflect'
// d c b a | a b c d | d c b a.
Complex Beyond(const std::vector<Complex>& line, int64_t i, bool mirror) {
  const int64_t n = std::ssize(line);
  if (n == 1) return line[0];
  while (i < 0 || i >= n) i = i < 0 ? -i - (mirror ? 0 : 1) : 2 * n - (mirror ? 2 : 1) - i;
  return line[static_cast<size_t>(i)];
}

// Resizes one axis as scipy.ndimage does: gaussian_filter1d, then zoom.
std::vector<Complex> ResizedLine(const std::vector<Complex>& line, int64_t m, const ResizeOp& op,
                                 bool mirror) {
  const int64_t n = std::ssize(line);
  const double sigma =
      op.anti_aliasing && n > m ? (static_cast<double>(n) / static_cast<double>(m) - 1) / 2 : 0;
  const auto radius = static_cast<int64_t>(4 * sigma + 0.5);
  std::vector<Complex> smoothed, made;
  for (int64_t i = 0; i < n; ++i) {
    Complex sum = 0;
    double weights = 0;
    for (int64_t k = -radius; k <= radius; ++k) {
      const double w =
          radius == 0 ? 1 : std::exp(-0.5 * static_cast<double>(k * k) / sigma / sigma);
      sum += w * Beyond(line, i + k, mirror);
      weights += w;
    }
    smoothed.push_back(sum / weights);
  }
  const int64_t margin = 60 + n;
  std::vector<Complex> coefficients;
  if (op.sampling == math::Sampling::kCubic) {
    for (int64_t i = -margin; i < n + margin; ++i)
      coefficients.push_back(6.0 * Beyond(smoothed, i, mirror));
    // c[i-1] + 4 c[i] + c[i+1] = 6 s[i]: forwards, then backwards.
    std::vector<double> upper = {0.25};
    coefficients[0] *= 0.25;
    for (size_t i = 1; i < coefficients.size(); ++i) {
      const double pivot = 4 - upper.back();
      coefficients[i] = (coefficients[i] - coefficients[i - 1]) / pivot;
      upper.push_back(1 / pivot);
    }
    for (size_t i = coefficients.size() - 1; i-- > 0;)
      coefficients[i] -= upper[i] * coefficients[i + 1];
  }
  const auto coefficient = [&](int64_t i) { return coefficients[static_cast<size_t>(i + margin)]; };
  for (int64_t i = 0; i < m; ++i) {
    // Multiplies before it divides: then halves, which decide the nearest sample, are exact.
    const double x =
        op.corner_aligned
            ? (m == 1 ? 0 : static_cast<double>(i * (n - 1)) / static_cast<double>(m - 1))
            : (static_cast<double>(i) + 0.5) * static_cast<double>(n) / static_cast<double>(m) -
                  0.5;
    const bool nearest = op.sampling == math::Sampling::kNearest;
    const auto left = static_cast<int64_t>(std::floor(nearest ? x + 0.5 : x));
    const double t = nearest ? 0 : x - static_cast<double>(left), u = 1 - t;
    if (op.sampling == math::Sampling::kCubic) {
      // The spline's coefficients of a line that was continued far beyond its ends.
      made.push_back((u * u * u * coefficient(left - 1) +
                      (4 - 6 * t * t + 3 * t * t * t) * coefficient(left) +
                      (4 - 6 * u * u + 3 * u * u * u) * coefficient(left + 1) +
                      t * t * t * coefficient(left + 2)) /
                     6.0);
      continue;
    }
    made.push_back(Beyond(smoothed, left, mirror) * (1 - t) +
                   (t == 0 ? Complex(0) : Beyond(smoothed, left + 1, mirror) * t));
  }
  return made;
}

TEST_P(OpsTest, ResizeSmoothsAndSamples) {
  std::mt19937 random(octavo::testing::Seeds::Get().Next());
  std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>> shapes = {
      {{9, 20, 8},
       // 8 to 26: here i (n - 1)/(m - 1), computed in the other order, leaves the array.
       {4, 33, 26}},
      {{1, 7, 2}, {5, 1, 9}},   // from axes of one sample, and to one sample
      {{2, 3, 31}, {1, 2, 2}},  // smoothed over more samples than the axis has
      {{13, 1, 5}, {3, 1, 40}}};
  for (int i = 0; i < 4; ++i) {
    const auto extent = [&] { return static_cast<int64_t>(1 + random() % 23); };
    shapes.push_back({{extent(), extent(), extent()}, {extent(), extent(), extent()}});
  }
  size_t next = 0;
  for (const auto& [from, shape] : shapes) {
    for (const bool corners : {false, true}) {
      for (const math::Sampling sampling : {math::Sampling::kDefault, math::Sampling::kNearest,
                                            math::Sampling::kLinear, math::Sampling::kCubic}) {
        for (const bool smooth : {false, true}) {
          for (const ResizeEdge edge :
               {ResizeEdge::kDefault, ResizeEdge::kMirror, ResizeEdge::kReflect}) {
            const Scalar scalar = kAll[next++ % std::size(kAll)];
            const HostArray in = MakeRandom(
                {.scalar = scalar, .lanes = scalar == Scalar::kF32 ? 2 : 1, .dims = from},
                static_cast<uint32_t>(random()));
            const ResizeOp op{.shape = shape,
                              .sampling = sampling,
                              .corner_aligned = corners,
                              .anti_aliasing = smooth,
                              .edge = edge};
            const bool mirror =
                edge == ResizeEdge::kMirror || (edge == ResizeEdge::kDefault && !corners);
            const std::string what = absl::StrCat(
                NameOf(scalar), " from ", absl::StrJoin(from, " x "), " to ",
                absl::StrJoin(shape, " x "), " corners ", corners, " sampling ",
                static_cast<int>(sampling), " smooth ", smooth, " edge ", static_cast<int>(edge));
            const HostArray out = Run({op}, in);
            ASSERT_EQ(out.type.dims, shape);
            std::vector<Complex> values;
            for (int64_t i = 0; i < in.type.numbers(); ++i) values.push_back(in.at(i));
            std::vector<int64_t> dims = from;
            double largest = 1;
            for (const Complex& value : values) largest = std::max(largest, std::abs(value));
            for (size_t axis = 0; axis < 3; ++axis) {
              const int64_t n = dims[axis], m = shape[axis];
              int64_t outer = 1, inner = in.type.lanes;
              for (size_t d = 0; d < 3; ++d) (d < axis ? outer : inner) *= d == axis ? 1 : dims[d];
              std::vector<Complex> made(static_cast<size_t>(outer * m * inner));
              for (int64_t o = 0; n != m && o < outer; ++o) {
                for (int64_t q = 0; q < inner; ++q) {
                  std::vector<Complex> line;
                  for (int64_t i = 0; i < n; ++i)
                    line.push_back(values[static_cast<size_t>((o * n + i) * inner + q)]);
                  const std::vector<Complex> resized = ResizedLine(line, m, op, mirror);
                  for (int64_t i = 0; i < m; ++i)
                    made[static_cast<size_t>((o * m + i) * inner + q)] =
                        resized[static_cast<size_t>(i)];
                }
              }
              if (n != m) values = std::move(made);
              dims[axis] = m;
            }
            // Integers are rounded, so the error is half a step. Values between samples have the
            // precision of the axis's floats.
            const double precision = scalar == Scalar::kF16 || scalar == Scalar::kC32    ? 2e-3
                                     : scalar == Scalar::kF64 || scalar == Scalar::kC128 ? 1e-13
                                     : sampling == math::Sampling::kCubic                ? 4e-6
                                                                                         : 1e-6;
            for (size_t i = 0; i < values.size(); ++i) {
              ASSERT_LE(std::abs(out.at(static_cast<int64_t>(i)) - Clipped(scalar, values[i])),
                        (IsIntegral(scalar) ? 0.5 : 0) + precision * largest)
                  << what << " at " << i;
            }
          }
        }
      }
    }
  }
}

TEST_P(OpsTest, ChainsRunInOrderAndInPlace) {
  const HostArray in = MakeRandom({.scalar = Scalar::kF32, .dims = {12, 17}}, 15);
  // Centre, square by combining the array with itself, sum along x, then take the largest.
  const HostArray out = Run({ScaleOp{.add = {-3, 0}}, CropOp{.start = {2, 0}}, TransposeOp{},
                             ReduceOp{.axes = {0}}, ScaleOp{.multiply = {0.5, 0}}},
                            in);
  std::vector<Complex> wanted;
  for (int64_t a = 2; a < 12; ++a) {
    Complex sum = 0;
    for (int64_t b = 0; b < 17; ++b) sum += in.at(a * 17 + b) - 3.0;
    wanted.push_back(sum * 0.5);
  }
  ExpectNear(out, wanted, 1e-5, "chain");
  // The output lies in the input's memory.
  for (const std::vector<Op>& ops : {std::vector<Op>{FlipOp{}},
                                     {ScaleOp{.add = {1, 0}}},
                                     {TransposeOp{}, TransposeOp{}, FlipOp{}}}) {
    const auto chain =
        std::make_shared<const ArrayChain>(PlanChain(ops, in.type, {}, true, "operations").value());
    const auto run = ChainRun::Create(chain, device_).value();
    const DeviceBuffer memory = Upload(in.bytes);
    ASSERT_THAT(run->Run(stream_.ref(), memory.data(), {}, memory.data()), IsOk());
    const HostArray place{.type = chain->out, .bytes = Download<uint8_t>(memory, in.bytes.size())};
    const HostArray apart = Run(ops, in);
    EXPECT_EQ(place.bytes, apart.bytes);
  }
}

TEST_P(OpsTest, WhatCannotBeIsRefusedByName) {
  const ArrayType in{.scalar = Scalar::kF32, .dims = {4, 5, 6}};
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(Refused({}, in), IsError(kInvalid, "operations: has 0 operations"));
  EXPECT_THAT(Refused(std::vector<Op>(17, CopyOp{}), in), IsError(kInvalid, "allowed 1 to 16"));
  EXPECT_THAT(Refused({CopyOp{}, CropOp{.start = {4, 0, 0}}}, in),
              IsError(kInvalid, "operations[1].crop.start: [0] is 4; allowed 0 to 3"));
  EXPECT_THAT(Refused({CropOp{.count = {5, 1, 1}}}, in), IsError(kInvalid, "crop.count: [0] is 5"));
  EXPECT_THAT(Refused({CropOp{.start = {1}}}, in), IsError(kInvalid, "allowed none or 3"));
  EXPECT_THAT(Refused({ReduceOp{.axes = {3}}}, in),
              IsError(kInvalid, "reduce.axes: is 3; allowed -3 to 2"));
  EXPECT_THAT(Refused({ReduceOp{.axes = {1, -2}}}, in), IsError(kInvalid, "names axis 1 twice"));
  EXPECT_THAT(Refused({SlabOp{.begin = 2, .end = 2}}, in),
              IsError(kInvalid, "slab.end: is 2; allowed 3 to 6"));
  EXPECT_THAT(Refused({PercentileOp{.percentiles = {101}}}, in),
              IsError(kInvalid, "[0] is 101; allowed 0 to 100"));
  EXPECT_THAT(Refused({PercentileOp{.percentiles = {NAN}}}, in),
              IsError(kInvalid, "allowed 0 to 100"));
  EXPECT_THAT(Refused({HistogramOp{}}, in), IsError(kInvalid, "histogram.hi"));
  EXPECT_THAT(Refused({HistogramOp{.bins = 0}}, in), IsError(kInvalid, "histogram.bins: is 0"));
  EXPECT_THAT(Refused({FftOp{.axis = -4}}, in), IsError(kInvalid, "fft.axis: is -4"));
  EXPECT_THAT(Refused({FftOp{}}, {.scalar = Scalar::kF32, .lanes = 2, .dims = {4}}),
              IsError(kInvalid, "lanes"));
  EXPECT_THAT(Refused({ResizeOp{.shape = {2, 2}}}, in),
              IsError(kInvalid, "resize.shape: has 2 numbers"));
  // Tables of such a size are not built before the operation is refused.
  EXPECT_THAT(Refused({ResizeOp{.shape = {40000}}},
                      {.scalar = Scalar::kF32, .lanes = 1, .dims = {int64_t{1} << 30}}),
              IsError(kInvalid, "resize.shape: [0] is 40000, which takes"));
  EXPECT_THAT(Refused({FlipOp{.axes = {9}}}, in), IsError(kInvalid, "flip.axes"));
  EXPECT_THAT(Refused({TransposeOp{.axes = {0, 1}}}, in), IsError(kInvalid, "transpose.axes"));
  EXPECT_THAT(Refused({FillOp{.value = {0, 1}}}, in),
              IsError(kInvalid, "fill.value.im: is 1; allowed 0"));
  EXPECT_THAT(Refused({ScaleOp{.scalar = static_cast<Scalar>(77)}}, in),
              IsError(kInvalid, "unknown value 77"));
  EXPECT_THAT(PlanChain({ResizeOp{.shape = {1000, 1000, 1001}}}, in, {}, false, "operations",
                        1'000'000'000),
              IsError(kInvalid, "the result may have 1000000000"));
}

INSTANTIATE_TEST_SUITE_P(Backends, OpsTest, ::testing::ValuesIn(testing::AvailableBackends()),
                         testing::BackendName);

}  // namespace
}  // namespace octavo

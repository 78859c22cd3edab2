// Chained operations against plain loops in double precision: every element type, shapes that do not divide evenly, lanes, NaN.

#include "gpu/ops.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <functional>
#include <numbers>
#include <random>
#include <vector>

#include "tests/support/backend_param.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using testing::IsError;
using testing::IsOk;
using Complex = std::complex<double>;

// Relative error of a result that is stored as f32 (half a unit in the last place, with room for the sums' order).
constexpr double kFloatTolerance = 1e-6;
// f32 transforms, relative to the norm of the row.
constexpr double kFftTolerance = 2e-6;

/// An array in host memory, and its numbers.
struct HostArray {
  ArrayType type;
  std::vector<uint8_t> bytes;
  Complex at(int64_t i) const {
    const math::Number v = math::Load(type.scalar, bytes.data(), i);
    return {v.re, v.im};
  }
  // Index of [i0, i1, i2, lane] of an array of three dims.
  int64_t index(int64_t a, int64_t b, int64_t c, int64_t lane) const { return ((a * type.dims[1] + b) * type.dims[2] + c) * type.lanes + lane; }
};

HostArray MakeRandom(ArrayType type, uint32_t seed, bool nan = false) {
  HostArray array{.type = std::move(type), .bytes = {}};
  array.bytes.resize(static_cast<size_t>(array.type.bytes()));
  std::mt19937 random(seed);
  const Scalar s = array.type.scalar;
  const double low = IsIntegral(s) && (s == Scalar::kU8 || s == Scalar::kU16 || s == Scalar::kU32 || s == Scalar::kU64) ? 0 : -100;
  std::uniform_real_distribution<double> values(low, SizeOf(s) == 1 ? 100 : 200);
  for (int64_t i = 0; i < array.type.numbers(); ++i) {
    math::Number v{values(random), IsComplex(s) ? values(random) : 0};
    if (nan && random() % 8 == 0) v.re = NAN;
    math::Store(s, array.bytes.data(), i, v);
  }
  return array;
}

class OpsTest : public testing::BackendTest {
 protected:
  // Through the device; in place where the types allow and `in_place`.
  HostArray Run(const std::vector<ArrayOp>& ops, const HostArray& in, const std::vector<HostArray>& others = {}) {
    std::vector<ArrayType> other_types;
    for (const auto& o : others) other_types.push_back(o.type);
    auto planned = PlanChain(ops, in.type, other_types, false, "operations");
    EXPECT_THAT(planned, IsOk());
    if (!planned.ok()) return in;
    const auto chain = std::make_shared<const ArrayChain>(*std::move(planned));
    auto run = ChainRun::Create(chain, device_);
    EXPECT_THAT(run, IsOk());
    EXPECT_EQ((*run)->scratch_bytes(), ScratchBytes(*chain, device_).value());
    const DeviceBuffer from = Upload(in.bytes), to = Poisoned(chain->out.bytes());
    std::vector<DeviceBuffer> second;
    std::vector<const void*> pointers;
    for (const auto& o : others) {
      second.push_back(Upload(o.bytes));
      pointers.push_back(second.back().data());
    }
    EXPECT_THAT((*run)->Run(stream_.ref(), from.data(), pointers, to.data()), IsOk());
    HostArray out{.type = chain->out, .bytes = Download<uint8_t>(to, static_cast<size_t>(chain->out.bytes()))};
    EXPECT_EQ(Download<uint8_t>(from, in.bytes.size()), in.bytes) << "the input was written to";
    return out;
  }
  absl::Status Refused(const std::vector<ArrayOp>& ops, const ArrayType& in) { return PlanChain(ops, in, {}, false, "operations").status(); }

  static void ExpectNear(const HostArray& got, const std::vector<Complex>& wanted, double tolerance, const std::string& what) {
    ASSERT_EQ(got.type.numbers(), static_cast<int64_t>(wanted.size())) << what << " " << got.type.Text();
    for (size_t i = 0; i < wanted.size(); ++i) {
      const Complex value = got.at(static_cast<int64_t>(i));
      if (std::isnan(wanted[i].real())) {
        ASSERT_TRUE(std::isnan(value.real())) << what << " at " << i << ": " << value;
      } else {
        ASSERT_LE(std::abs(value - wanted[i]), tolerance * std::max(1.0, std::abs(wanted[i])))
            << what << " at " << i << ": " << value << ", wanted " << wanted[i];
      }
    }
  }
};

constexpr Scalar kAll[] = {Scalar::kU8,  Scalar::kI8,  Scalar::kU16, Scalar::kI16, Scalar::kF16, Scalar::kF32, Scalar::kF64,
                           Scalar::kC64, Scalar::kU32, Scalar::kI32, Scalar::kU64, Scalar::kI64, Scalar::kC32, Scalar::kC128};

TEST_P(OpsTest, CropFlipTransposeCopyMoveEveryElementType) {
  for (const Scalar scalar : kAll) {
    const int64_t lanes = IsComplex(scalar) ? 1 : 3;
    const HostArray in = MakeRandom({.scalar = scalar, .lanes = lanes, .dims = {5, 7, 11}}, 1);
    const auto expect = [&](const HostArray& out, const std::vector<int64_t>& dims, const std::function<int64_t(int64_t, int64_t, int64_t)>& from) {
      ASSERT_EQ(out.type.dims, dims) << NameOf(scalar);
      const auto size = static_cast<size_t>(SizeOf(scalar) * lanes);
      for (int64_t a = 0; a < dims[0]; ++a) {
        for (int64_t b = 0; b < dims[1]; ++b) {
          for (int64_t c = 0; c < dims[2]; ++c) {
            const auto to_at = static_cast<size_t>(out.index(a, b, c, 0) * SizeOf(scalar)),
                       from_at = static_cast<size_t>(from(a, b, c) * SizeOf(scalar));
            ASSERT_EQ(std::memcmp(&out.bytes[to_at], &in.bytes[from_at], size), 0) << NameOf(scalar) << " " << a << " " << b << " " << c;
          }
        }
      }
    };
    expect(Run({CopyOp{}}, in), {5, 7, 11}, [&](auto a, auto b, auto c) { return in.index(a, b, c, 0); });
    expect(Run({CropOp{.start = {1, 2, 3}, .count = {2, 0, 4}}}, in), {2, 5, 4},
           [&](auto a, auto b, auto c) { return in.index(a + 1, b + 2, c + 3, 0); });
    expect(Run({FlipOp{.axes = {0, -1}}}, in), {5, 7, 11}, [&](auto a, auto b, auto c) { return in.index(4 - a, b, 10 - c, 0); });
    expect(Run({TransposeOp{.axes = {2, 0, 1}}}, in), {11, 5, 7}, [&](auto a, auto b, auto c) { return in.index(b, c, a, 0); });
    expect(Run({TransposeOp{}}, in), {11, 7, 5}, [&](auto a, auto b, auto c) { return in.index(c, b, a, 0); });
    // One after the other, and in place on the device.
    expect(Run({TransposeOp{.axes = {2, 0, 1}}, FlipOp{.axes = {1}}, CropOp{.start = {4, 0, 0}}}, in), {7, 5, 7},
           [&](auto a, auto b, auto c) { return in.index(4 - b, c, a + 4, 0); });
  }
}

TEST_P(OpsTest, ScaleCastsBetweenAllTypes) {
  for (const Scalar from : kAll) {
    const HostArray in = MakeRandom({.scalar = from, .dims = {3, 331}}, 2);
    for (const Scalar to : kAll) {
      if (IsComplex(from) && !IsComplex(to)) {
        EXPECT_THAT(Refused({ScaleOp{.scalar = to}}, in.type), IsError(absl::StatusCode::kInvalidArgument, "which part"));
        continue;
      }
      const HostArray out = Run({ScaleOp{.scalar = to, .multiply = {1.5, 0}, .add = {-20, 0}}}, in);
      ASSERT_EQ(out.type.scalar, to);
      std::vector<Complex> wanted;
      for (int64_t i = 0; i < in.type.numbers(); ++i) {
        Complex v = in.at(i) * 1.5 - 20.0;
        if (IsIntegral(to)) {
          const bool sign = to == Scalar::kI8 || to == Scalar::kI16 || to == Scalar::kI32 || to == Scalar::kI64;
          const double bits = static_cast<double>(8 * SizeOf(to)), top = std::exp2(sign ? bits - 1 : bits) - 1,
                       bottom = sign ? -std::exp2(bits - 1) : 0;
          v = std::clamp(std::round(v.real()), bottom, top);
        }
        wanted.push_back(v);
      }
      ExpectNear(out, wanted, SizeOf(to) == 2 || to == Scalar::kC32 ? 1e-3 : kFloatTolerance, std::string(NameOf(from)) + " to " + NameOf(to));
    }
  }
}

TEST_P(OpsTest, PartsOfComplexNumbers) {
  const HostArray in = MakeRandom({.scalar = Scalar::kC64, .dims = {1000}}, 3);
  const std::pair<math::Part, double (*)(Complex)> parts[] = {{math::Part::kReal, [](Complex z) { return z.real(); }},
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
  // A complex factor turns.
  std::vector<Complex> wanted;
  for (int64_t i = 0; i < 1000; ++i) wanted.push_back(in.at(i) * Complex(0, 2) + Complex(1, -1));
  ExpectNear(Run({ScaleOp{.multiply = {0, 2}, .add = {1, -1}}}, in), wanted, kFloatTolerance, "complex factor");
}

TEST_P(OpsTest, CombineRepeatsTheSecondAlongTheFirstAxes) {
  const HostArray in = MakeRandom({.scalar = Scalar::kF32, .lanes = 2, .dims = {4, 5, 6}}, 4);
  for (const std::vector<int64_t>& dims : {std::vector<int64_t>{4, 5, 6}, {5, 6}, {6}}) {
    const HostArray other = MakeRandom({.scalar = Scalar::kI16, .lanes = 2, .dims = dims}, 5);
    for (const Combination kind : {Combination::kAdd, Combination::kSubtract, Combination::kMultiply, Combination::kDivide}) {
      std::vector<Complex> wanted;
      for (int64_t i = 0; i < in.type.numbers(); ++i) {
        const double a = in.at(i).real(), b = other.at(i % other.type.numbers()).real();
        wanted.push_back(kind == Combination::kAdd ? a + b : kind == Combination::kSubtract ? a - b : kind == Combination::kMultiply ? a * b : a / b);
      }
      bool finite = true;
      for (const Complex& w : wanted) finite &= std::isfinite(w.real());
      if (finite) ExpectNear(Run({CombineOp{.kind = kind}}, in, {other}), wanted, kFloatTolerance, "combine");
    }
  }
  EXPECT_THAT(PlanChain({CombineOp{}}, in.type, {{.scalar = Scalar::kF32, .lanes = 2, .dims = {4, 5}}}, false, "operations"),
              IsError(absl::StatusCode::kInvalidArgument, "last axes"));
}

// What a reduction of `values` should be.
double Reduced(math::Reduction kind, std::vector<double> values, bool skip_nan) {
  const auto nan = std::count_if(values.begin(), values.end(), [](double v) { return std::isnan(v); });
  if (nan > 0 && !skip_nan) return NAN;
  std::erase_if(values, [](double v) { return std::isnan(v); });
  double sum = 0, deviations = 0;
  for (const double v : values) sum += v;
  if (kind == math::Reduction::kSum) return sum;
  if (values.empty()) return NAN;
  const double n = static_cast<double>(values.size()), mean = sum / n;
  for (const double v : values) deviations += (v - mean) * (v - mean);
  switch (kind) {
    case math::Reduction::kMin: return *std::min_element(values.begin(), values.end());
    case math::Reduction::kMax: return *std::max_element(values.begin(), values.end());
    case math::Reduction::kMean: return mean;
    default: return std::sqrt(deviations / n);
  }
}

TEST_P(OpsTest, ReductionsOverEverySetOfAxes) {
  const std::vector<std::vector<int64_t>> sets = {{}, {0}, {1}, {2}, {0, 1}, {1, 2}, {0, 2}, {0, 1, 2}};
  for (const Scalar scalar : {Scalar::kU8, Scalar::kI16, Scalar::kF16, Scalar::kF32, Scalar::kF64, Scalar::kU32}) {
    for (const int64_t lanes : {1, 2}) {
      const bool floats = IsFloating(scalar);
      const HostArray in = MakeRandom({.scalar = scalar, .lanes = lanes, .dims = {37, 5, 70}}, 6, floats);
      for (const auto& set : sets) {
        for (const auto kind : {math::Reduction::kSum, math::Reduction::kMin, math::Reduction::kMax, math::Reduction::kMean, math::Reduction::kStd}) {
          const bool skip = set.size() % 2 == 0;
          const HostArray out = Run({ReduceOp{.kind = kind, .axes = set, .skip_nan = skip}}, in);
          const auto runs = [&](int64_t axis) { return set.empty() || std::find(set.begin(), set.end(), axis) != set.end(); };
          std::vector<std::vector<double>> groups(static_cast<size_t>(out.type.numbers()));
          for (int64_t a = 0; a < 37; ++a) {
            for (int64_t b = 0; b < 5; ++b) {
              for (int64_t c = 0; c < 70; ++c) {
                for (int64_t l = 0; l < lanes; ++l) {
                  int64_t k = runs(0) ? 0 : a;
                  if (!runs(1)) k = k * 5 + b;
                  if (!runs(2)) k = k * 70 + c;
                  groups[static_cast<size_t>(k * lanes + l)].push_back(in.at(in.index(a, b, c, l)).real());
                }
              }
            }
          }
          std::vector<Complex> wanted;
          for (auto& group : groups) wanted.push_back(Reduced(kind, std::move(group), skip));
          const bool exact = kind == math::Reduction::kMin || kind == math::Reduction::kMax;
          ASSERT_NO_FATAL_FAILURE(ExpectNear(out, wanted, exact ? 0 : kFloatTolerance,
                                             std::string(NameOf(scalar)) + " kind " + std::to_string(static_cast<int>(kind)) + " axes " +
                                                 std::to_string(set.size()) + (set.empty() ? "" : std::to_string(set[0]))));
        }
      }
    }
  }
}

TEST_P(OpsTest, ReductionsOfManyElementsAreSplitAndJoined) {
  const HostArray in = MakeRandom({.scalar = Scalar::kF32, .dims = {300, 1000}}, 7);  // §6: 300 000 elements
  std::vector<double> values;
  for (int64_t i = 0; i < in.type.numbers(); ++i) values.push_back(in.at(i).real() + 1e6);  // far from zero: the deviation must survive
  for (const auto kind : {math::Reduction::kSum, math::Reduction::kMin, math::Reduction::kMax, math::Reduction::kMean, math::Reduction::kStd}) {
    const HostArray out = Run({ScaleOp{.scalar = Scalar::kF64, .add = {1e6, 0}}, ReduceOp{.kind = kind}}, in);
    EXPECT_EQ(out.type.dims, std::vector<int64_t>{1});
    ExpectNear(out, {Reduced(kind, values, false)}, 1e-9, "kind " + std::to_string(static_cast<int>(kind)));
  }
  const HostArray kept = Run({ReduceOp{.kind = math::Reduction::kMean, .axes = {0}, .keep_dims = true}}, in);
  EXPECT_EQ(kept.type.dims, (std::vector<int64_t>{1, 1000}));
}

TEST_P(OpsTest, ComplexSumsAndMeans) {
  const HostArray in = MakeRandom({.scalar = Scalar::kC64, .dims = {9, 130}}, 8);
  std::vector<Complex> sums(9), means(9), mips(9);
  for (int64_t a = 0; a < 9; ++a) {
    for (int64_t b = 0; b < 130; ++b) {
      const Complex z = in.at(a * 130 + b);
      sums[static_cast<size_t>(a)] += z;
      mips[static_cast<size_t>(a)] = std::max(std::abs(z), mips[static_cast<size_t>(a)].real());
    }
    means[static_cast<size_t>(a)] = sums[static_cast<size_t>(a)] / 130.0;
  }
  ExpectNear(Run({ReduceOp{.kind = math::Reduction::kSum, .axes = {1}}}, in), sums, kFloatTolerance, "sum");
  ExpectNear(Run({ReduceOp{.kind = math::Reduction::kMean, .axes = {1}}}, in), means, kFloatTolerance, "mean");
  ExpectNear(Run({SlabOp{.kind = math::Reduction::kMax}}, in), mips, kFloatTolerance, "MIP of magnitudes");
  EXPECT_THAT(Refused({ReduceOp{.kind = math::Reduction::kMax}}, in.type), IsError(absl::StatusCode::kInvalidArgument, "no meaning for complex"));
}

TEST_P(OpsTest, SlabsOfARangeLeaveNanOut) {
  for (const Scalar scalar : {Scalar::kU8, Scalar::kF32}) {
    const HostArray in = MakeRandom({.scalar = scalar, .dims = {6, 35, 90}}, 9, scalar == Scalar::kF32);
    for (const int64_t axis : {0, 1, 2}) {
      const int64_t extent = in.type.dims[static_cast<size_t>(axis)], begin = extent / 3, end = extent - 1;
      for (const auto kind : {math::Reduction::kMax, math::Reduction::kMean}) {
        const HostArray out = Run({SlabOp{.kind = kind, .axis = axis, .begin = begin, .end = end, .keep_dims = true}}, in);
        std::vector<int64_t> dims = in.type.dims;
        dims[static_cast<size_t>(axis)] = 1;
        ASSERT_EQ(out.type.dims, dims);
        std::vector<Complex> wanted;
        for (int64_t a = 0; a < dims[0]; ++a) {
          for (int64_t b = 0; b < dims[1]; ++b) {
            for (int64_t c = 0; c < dims[2]; ++c) {
              std::vector<double> values;
              for (int64_t r = begin; r < end; ++r)
                values.push_back(in.at(in.index(axis == 0 ? r : a, axis == 1 ? r : b, axis == 2 ? r : c, 0)).real());
              wanted.push_back(Reduced(kind, std::move(values), true));
            }
          }
        }
        ExpectNear(out, wanted, kind == math::Reduction::kMax ? 0 : kFloatTolerance, "slab axis " + std::to_string(axis));
      }
    }
  }
}

double Percentile(std::vector<double> values, double p) {
  std::erase_if(values, [](double v) { return std::isnan(v); });
  if (values.empty()) return NAN;
  std::sort(values.begin(), values.end());
  const double rank = p / 100 * static_cast<double>(values.size() - 1), below = std::floor(rank);
  const double a = values[static_cast<size_t>(below)], b = values[std::min(static_cast<size_t>(below) + 1, values.size() - 1)];
  return a + (b - a) * (rank - below);
}

TEST_P(OpsTest, PercentilesAlongAxesAndOfAll) {
  const std::vector<double> asked = {0, 1, 37.3, 50, 99, 100};
  for (const Scalar scalar : {Scalar::kU8, Scalar::kI8, Scalar::kU16, Scalar::kF16, Scalar::kF32, Scalar::kF64, Scalar::kI32, Scalar::kI64}) {
    const HostArray in = MakeRandom({.scalar = scalar, .dims = {5, 13, 50}}, 10, IsFloating(scalar));
    const HostArray all = Run({PercentileOp{.percentiles = asked}}, in);
    ASSERT_EQ(all.type.dims, std::vector<int64_t>{6}) << NameOf(scalar);
    std::vector<double> values;
    for (int64_t i = 0; i < in.type.numbers(); ++i) values.push_back(in.at(i).real());
    std::vector<Complex> wanted;
    for (const double p : asked) wanted.push_back(Percentile(values, p));
    ASSERT_NO_FATAL_FAILURE(ExpectNear(all, wanted, kFloatTolerance, std::string("all of ") + NameOf(scalar)));
    const HostArray middle = Run({PercentileOp{.percentiles = {25, 75}, .axes = {1}}}, in);
    ASSERT_EQ(middle.type.dims, (std::vector<int64_t>{2, 5, 50}));
    wanted.clear();
    for (const double p : {25.0, 75.0}) {
      for (int64_t a = 0; a < 5; ++a) {
        for (int64_t c = 0; c < 50; ++c) {
          values.clear();
          for (int64_t b = 0; b < 13; ++b) values.push_back(in.at(in.index(a, b, c, 0)).real());
          wanted.push_back(Percentile(values, p));
        }
      }
    }
    ASSERT_NO_FATAL_FAILURE(ExpectNear(middle, wanted, kFloatTolerance, std::string("axis 1 of ") + NameOf(scalar)));
  }
}

TEST_P(OpsTest, HistogramsCountWhatLiesInRange) {
  for (const Scalar scalar : {Scalar::kU8, Scalar::kI8, Scalar::kU16, Scalar::kF32, Scalar::kF64}) {
    const HostArray in = MakeRandom({.scalar = scalar, .dims = {77, 600}}, 11, IsFloating(scalar));
    for (const int64_t bins : {1, 10, 5000}) {
      const double lo = -40, hi = 90;
      const HostArray out = Run({HistogramOp{.bins = bins, .lo = lo, .hi = hi}}, in);
      ASSERT_EQ(out.type.scalar, Scalar::kU64);
      std::vector<Complex> wanted(static_cast<size_t>(bins));
      for (int64_t i = 0; i < in.type.numbers(); ++i) {
        const double v = in.at(i).real();
        if (!(v >= lo && v <= hi)) continue;
        // The bin whose edges contain it, found by looking.
        int64_t bin = std::max<int64_t>(0, static_cast<int64_t>((v - lo) / (hi - lo) * static_cast<double>(bins)) - 2);
        while (bin + 1 < bins && v >= lo + static_cast<double>(bin + 1) * ((hi - lo) / static_cast<double>(bins))) ++bin;
        wanted[static_cast<size_t>(bin)] += 1;
      }
      ASSERT_NO_FATAL_FAILURE(ExpectNear(out, wanted, 0, std::string(NameOf(scalar)) + " in " + std::to_string(bins)));
    }
  }
  const HostArray bytes = MakeRandom({.scalar = Scalar::kU8, .dims = {1000}}, 12);
  std::vector<Complex> wanted(256);
  for (const uint8_t b : bytes.bytes) wanted[b] += 1;
  ExpectNear(Run({HistogramOp{.scalar = Scalar::kF64}}, bytes), wanted, 0, "every value of u8");
}

TEST_P(OpsTest, FftAlongEachAxis) {
  // Lengths of every radix, and primes.
  for (const std::vector<int64_t>& dims : {std::vector<int64_t>{8, 15, 36}, {3, 7, 31}, {2, 1, 512}, {61, 1, 1}, {1, 2, 3}}) {
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
            roots.push_back(std::polar(1.0, (inverse ? 2 : -2) * std::numbers::pi * static_cast<double>(j) / static_cast<double>(n)));
          }
          for (int64_t i = 0; i < in.type.numbers(); ++i) {
            const int64_t c = i % dims[2], b = i / dims[2] % dims[1], a = i / dims[2] / dims[1], k = axis == 0 ? a : axis == 1 ? b : c;
            Complex sum = 0;
            double power = 0;
            for (int64_t j = 0; j < n; ++j) {
              const Complex z = in.at(in.index(axis == 0 ? j : a, axis == 1 ? j : b, axis == 2 ? j : c, 0));
              sum += z * roots[static_cast<size_t>(j * k % n)];
              power += std::norm(z);
            }
            if (inverse) sum /= static_cast<double>(n);
            worst = std::max(worst, std::abs(out.at(i) - sum));
            norm = std::max(norm, std::sqrt(power) * (inverse ? 1.0 / static_cast<double>(n) : 1.0) * std::sqrt(static_cast<double>(n)));
          }
          ASSERT_LE(worst, kFftTolerance * norm) << in.type.Text() << " axis " << axis << " inverse " << inverse;
        }
      }
    }
  }
}

TEST_P(OpsTest, ResizeSmoothsAndSamples) {
  const auto mirrored = [](int64_t i, int64_t n) {
    while (i < 0 || i >= n) i = i < 0 ? -i - 1 : 2 * n - 1 - i;
    return i;
  };
  for (const Scalar scalar : {Scalar::kF32, Scalar::kU8, Scalar::kC64}) {
    const HostArray in = MakeRandom({.scalar = scalar, .lanes = scalar == Scalar::kF32 ? 2 : 1, .dims = {9, 20, 8}}, 14);
    const int64_t lanes = in.type.lanes;
    for (const auto& [nearest, corners, smooth] : {std::tuple{false, false, true}, {false, true, true}, {true, false, false}, {false, true, false}}) {
      const std::vector<int64_t> shape = {4, 33, 26};  // 8 to 26: where i (n - 1)/(m - 1) computed the other way leaves the array
      const HostArray out = Run({ResizeOp{.shape = shape, .nearest = nearest, .corner_aligned = corners, .anti_aliasing = smooth}}, in);
      ASSERT_EQ(out.type.dims, shape);
      std::vector<Complex> values;
      for (int64_t i = 0; i < in.type.numbers(); ++i) values.push_back(in.at(i));
      std::vector<int64_t> dims = in.type.dims;
      for (size_t axis = 0; axis < 3; ++axis) {
        const int64_t n = dims[axis], m = shape[axis];
        int64_t outer = 1, inner = lanes;
        for (size_t d = 0; d < 3; ++d) (d < axis ? outer : inner) *= d == axis ? 1 : dims[d];
        const auto line = [&](int64_t o, int64_t i, int64_t q) { return values[static_cast<size_t>((o * n + i) * inner + q)]; };
        const double sigma = smooth && n > m ? (static_cast<double>(n) / static_cast<double>(m) - 1) / 2 : 0;
        const auto radius = static_cast<int64_t>(4 * sigma + 0.5);
        std::vector<Complex> made(static_cast<size_t>(outer * m * inner));
        for (int64_t o = 0; o < outer; ++o) {
          for (int64_t q = 0; q < inner; ++q) {
            std::vector<Complex> smoothed;
            for (int64_t i = 0; i < n; ++i) {
              Complex sum = 0;
              double weights = 0;
              for (int64_t k = -radius; k <= radius; ++k) {
                const double w = radius == 0 ? 1 : std::exp(-0.5 * static_cast<double>(k * k) / sigma / sigma);
                sum += w * line(o, mirrored(i + k, n), q);
                weights += w;
              }
              smoothed.push_back(sum / weights);
            }
            for (int64_t i = 0; i < m; ++i) {
              double x = corners ? static_cast<double>(i) * (static_cast<double>(n - 1) / static_cast<double>(m - 1))
                                 : (static_cast<double>(i) + 0.5) * static_cast<double>(n) / static_cast<double>(m) - 0.5;
              x = std::clamp(x, 0.0, static_cast<double>(n - 1));
              if (nearest) x = std::floor(x + 0.5);
              const auto left = static_cast<int64_t>(x);
              const double t = x - static_cast<double>(left);
              const Complex right = smoothed[static_cast<size_t>(std::min(left + 1, n - 1))];
              made[static_cast<size_t>((o * m + i) * inner + q)] = smoothed[static_cast<size_t>(left)] * (1 - t) + right * t;
            }
          }
        }
        values = std::move(made);
        dims[axis] = m;
      }
      if (scalar != Scalar::kU8) {
        ASSERT_NO_FATAL_FAILURE(ExpectNear(out, values, 1e-5, "resize"));
      } else {
        for (size_t i = 0; i < values.size(); ++i) {  // rounded: half a step, and a little
          ASSERT_NEAR(out.at(static_cast<int64_t>(i)).real(), values[i].real(), 0.5 + 1e-4);
        }
      }
    }
  }
}

TEST_P(OpsTest, ChainsRunInOrderAndInPlace) {
  const HostArray in = MakeRandom({.scalar = Scalar::kF32, .dims = {12, 17}}, 15);
  // Centre, square by combining with itself, sum along x, then the largest.
  const HostArray out =
      Run({ScaleOp{.add = {-3, 0}}, CropOp{.start = {2, 0}}, TransposeOp{}, ReduceOp{.axes = {0}}, ScaleOp{.multiply = {0.5, 0}}}, in);
  std::vector<Complex> wanted;
  for (int64_t a = 2; a < 12; ++a) {
    Complex sum = 0;
    for (int64_t b = 0; b < 17; ++b) sum += in.at(a * 17 + b) - 3.0;
    wanted.push_back(sum * 0.5);
  }
  ExpectNear(out, wanted, 1e-5, "chain");
  // The output is the input's memory.
  for (const std::vector<ArrayOp>& ops : {std::vector<ArrayOp>{FlipOp{}}, {ScaleOp{.add = {1, 0}}}, {TransposeOp{}, TransposeOp{}, FlipOp{}}}) {
    const auto chain = std::make_shared<const ArrayChain>(PlanChain(ops, in.type, {}, true, "operations").value());
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
  EXPECT_THAT(Refused(std::vector<ArrayOp>(17, CopyOp{}), in), IsError(kInvalid, "allowed 1 to 16"));
  EXPECT_THAT(Refused({CopyOp{}, CropOp{.start = {4, 0, 0}}}, in), IsError(kInvalid, "operations[1].crop.start: [0] is 4; allowed 0 to 3"));
  EXPECT_THAT(Refused({CropOp{.count = {5, 1, 1}}}, in), IsError(kInvalid, "crop.count: [0] is 5"));
  EXPECT_THAT(Refused({CropOp{.start = {1}}}, in), IsError(kInvalid, "allowed none or 3"));
  EXPECT_THAT(Refused({ReduceOp{.axes = {3}}}, in), IsError(kInvalid, "reduce.axes: is 3; allowed -3 to 2"));
  EXPECT_THAT(Refused({ReduceOp{.axes = {1, -2}}}, in), IsError(kInvalid, "names axis 1 twice"));
  EXPECT_THAT(Refused({SlabOp{.begin = 2, .end = 2}}, in), IsError(kInvalid, "slab.end: is 2; allowed 3 to 6"));
  EXPECT_THAT(Refused({PercentileOp{.percentiles = {101}}}, in), IsError(kInvalid, "[0] is 101; allowed 0 to 100"));
  EXPECT_THAT(Refused({PercentileOp{.percentiles = {NAN}}}, in), IsError(kInvalid, "allowed 0 to 100"));
  EXPECT_THAT(Refused({HistogramOp{}}, in), IsError(kInvalid, "histogram.hi"));
  EXPECT_THAT(Refused({HistogramOp{.bins = 0}}, in), IsError(kInvalid, "histogram.bins: is 0"));
  EXPECT_THAT(Refused({FftOp{.axis = -4}}, in), IsError(kInvalid, "fft.axis: is -4"));
  EXPECT_THAT(Refused({FftOp{}}, {.scalar = Scalar::kF32, .lanes = 2, .dims = {4}}), IsError(kInvalid, "lanes"));
  EXPECT_THAT(Refused({ResizeOp{.shape = {2, 2}}}, in), IsError(kInvalid, "resize.shape: has 2 numbers"));
  // Tables as large as that are not made before they are refused.
  EXPECT_THAT(Refused({ResizeOp{.shape = {40000}}}, {.scalar = Scalar::kF32, .lanes = 1, .dims = {int64_t{1} << 30}}),
              IsError(kInvalid, "resize.shape: [0] is 40000, which takes"));
  EXPECT_THAT(Refused({FlipOp{.axes = {9}}}, in), IsError(kInvalid, "flip.axes"));
  EXPECT_THAT(Refused({TransposeOp{.axes = {0, 1}}}, in), IsError(kInvalid, "transpose.axes"));
  EXPECT_THAT(Refused({FillOp{.value = {0, 1}}}, in), IsError(kInvalid, "fill.imaginary"));
  EXPECT_THAT(Refused({ScaleOp{.scalar = static_cast<Scalar>(77)}}, in), IsError(kInvalid, "unknown value 77"));
  EXPECT_THAT(PlanChain({ResizeOp{.shape = {1000, 1000, 1001}}}, in, {}, false, "operations", 1'000'000'000),
              IsError(kInvalid, "allowed 1000000000"));
}

INSTANTIATE_TEST_SUITE_P(Backends, OpsTest, ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

}  // namespace
}  // namespace octavo

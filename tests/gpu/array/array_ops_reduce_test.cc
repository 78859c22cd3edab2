// Reductions, slabs, percentiles and histograms against plain loops in double precision.

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/gpu/array/array_ops_fixture.h"

namespace octavo {
namespace {

using testing::Complex;
using testing::HostArray;
using testing::IsError;
using testing::kFloatTolerance;
using testing::MakeRandom;

class OpsReduceTest : public testing::OpsTest {};

// The expected reduction of `values`.
double Reduced(math::Reduction kind, std::vector<double> values, bool skip_nan) {
  const auto nan =
      std::count_if(values.begin(), values.end(), [](double v) { return std::isnan(v); });
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

TEST_P(OpsReduceTest, ReductionsOverEverySetOfAxes) {
  const std::vector<std::vector<int64_t>> sets = {{},     {0},    {1},    {2},
                                                  {0, 1}, {1, 2}, {0, 2}, {0, 1, 2}};
  for (const Scalar scalar :
       {Scalar::kU8, Scalar::kI16, Scalar::kF16, Scalar::kF32, Scalar::kF64, Scalar::kU32}) {
    for (const int64_t lanes : {1, 2}) {
      const bool floats = IsFloating(scalar);
      const HostArray in =
          MakeRandom({.scalar = scalar, .lanes = lanes, .dims = {37, 5, 70}}, 6, floats);
      for (const auto& set : sets) {
        for (const auto kind : {math::Reduction::kSum, math::Reduction::kMin, math::Reduction::kMax,
                                math::Reduction::kMean, math::Reduction::kStd}) {
          const bool skip = set.size() % 2 == 0;
          const HostArray out = Run({ReduceOp{.kind = kind, .axes = set, .skip_nan = skip}}, in);
          const auto runs = [&](int64_t axis) {
            return set.empty() || std::find(set.begin(), set.end(), axis) != set.end();
          };
          std::vector<std::vector<double>> groups(static_cast<size_t>(out.type.numbers()));
          for (int64_t a = 0; a < 37; ++a) {
            for (int64_t b = 0; b < 5; ++b) {
              for (int64_t c = 0; c < 70; ++c) {
                for (int64_t l = 0; l < lanes; ++l) {
                  int64_t k = runs(0) ? 0 : a;
                  if (!runs(1)) k = k * 5 + b;
                  if (!runs(2)) k = k * 70 + c;
                  groups[static_cast<size_t>(k * lanes + l)].push_back(
                      in.at(in.index(a, b, c, l)).real());
                }
              }
            }
          }
          std::vector<Complex> wanted;
          for (auto& group : groups) wanted.push_back(Reduced(kind, std::move(group), skip));
          const bool exact = kind == math::Reduction::kMin || kind == math::Reduction::kMax;
          ASSERT_NO_FATAL_FAILURE(ExpectNear(out, wanted, exact ? 0 : kFloatTolerance,
                                             std::string(NameOf(scalar)) + " kind " +
                                                 std::to_string(static_cast<int>(kind)) + " axes " +
                                                 std::to_string(set.size()) +
                                                 (set.empty() ? "" : std::to_string(set[0]))));
        }
      }
    }
  }
}

TEST_P(OpsReduceTest, ReductionsOfManyElementsAreSplitAndJoined) {
  const HostArray in =
      MakeRandom({.scalar = Scalar::kF32, .dims = {300, 1000}}, 7);  // §6: 300 000 elements
  std::vector<double> values;
  for (int64_t i = 0; i < in.type.numbers(); ++i)
    values.push_back(in.at(i).real() + 1e6);  // far from zero: the deviation must stay precise
  for (const auto kind : {math::Reduction::kSum, math::Reduction::kMin, math::Reduction::kMax,
                          math::Reduction::kMean, math::Reduction::kStd}) {
    const HostArray out =
        Run({ScaleOp{.scalar = Scalar::kF64, .add = {1e6, 0}}, ReduceOp{.kind = kind}}, in);
    EXPECT_EQ(out.type.dims, std::vector<int64_t>{1});
    ExpectNear(out, {Reduced(kind, values, false)}, 1e-9,
               "kind " + std::to_string(static_cast<int>(kind)));
  }
  const HostArray kept =
      Run({ReduceOp{.kind = math::Reduction::kMean, .axes = {0}, .keep_dims = true}}, in);
  EXPECT_EQ(kept.type.dims, (std::vector<int64_t>{1, 1000}));
}

TEST_P(OpsReduceTest, ComplexSumsAndMeans) {
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
  ExpectNear(Run({ReduceOp{.kind = math::Reduction::kSum, .axes = {1}}}, in), sums, kFloatTolerance,
             "sum");
  ExpectNear(Run({ReduceOp{.kind = math::Reduction::kMean, .axes = {1}}}, in), means,
             kFloatTolerance, "mean");
  ExpectNear(Run({SlabOp{.kind = math::Reduction::kMax}}, in), mips, kFloatTolerance,
             "MIP of magnitudes");
  EXPECT_THAT(Refused({ReduceOp{.kind = math::Reduction::kMax}}, in.type),
              IsError(absl::StatusCode::kInvalidArgument, "no meaning for complex"));
}

TEST_P(OpsReduceTest, SlabsOfARangeLeaveNanOut) {
  for (const Scalar scalar : {Scalar::kU8, Scalar::kF32}) {
    const HostArray in =
        MakeRandom({.scalar = scalar, .dims = {6, 35, 90}}, 9, scalar == Scalar::kF32);
    for (const int64_t axis : {0, 1, 2}) {
      const int64_t extent = in.type.dims[static_cast<size_t>(axis)], begin = extent / 3,
                    end = extent - 1;
      for (const auto kind : {math::Reduction::kMax, math::Reduction::kMean}) {
        const HostArray out =
            Run({SlabOp{.kind = kind, .axis = axis, .begin = begin, .end = end, .keep_dims = true}},
                in);
        std::vector<int64_t> dims = in.type.dims;
        dims[static_cast<size_t>(axis)] = 1;
        ASSERT_EQ(out.type.dims, dims);
        std::vector<Complex> wanted;
        for (int64_t a = 0; a < dims[0]; ++a) {
          for (int64_t b = 0; b < dims[1]; ++b) {
            for (int64_t c = 0; c < dims[2]; ++c) {
              std::vector<double> values;
              for (int64_t r = begin; r < end; ++r)
                values.push_back(
                    in.at(in.index(axis == 0 ? r : a, axis == 1 ? r : b, axis == 2 ? r : c, 0))
                        .real());
              wanted.push_back(Reduced(kind, std::move(values), true));
            }
          }
        }
        ExpectNear(out, wanted, kind == math::Reduction::kMax ? 0 : kFloatTolerance,
                   "slab axis " + std::to_string(axis));
      }
    }
  }
}

double Percentile(std::vector<double> values, double p) {
  std::erase_if(values, [](double v) { return std::isnan(v); });
  if (values.empty()) return NAN;
  std::sort(values.begin(), values.end());
  const double rank = p / 100 * static_cast<double>(values.size() - 1), below = std::floor(rank);
  const double a = values[static_cast<size_t>(below)],
               b = values[std::min(static_cast<size_t>(below) + 1, values.size() - 1)];
  return a + (b - a) * (rank - below);
}

TEST_P(OpsReduceTest, PercentilesAlongAxesAndOfAll) {
  const std::vector<double> asked = {0, 1, 37.3, 50, 99, 100};
  for (const Scalar scalar : {Scalar::kU8, Scalar::kI8, Scalar::kU16, Scalar::kF16, Scalar::kF32,
                              Scalar::kF64, Scalar::kI32, Scalar::kI64}) {
    const HostArray in =
        MakeRandom({.scalar = scalar, .dims = {5, 13, 50}}, 10, IsFloating(scalar));
    const HostArray all = Run({PercentileOp{.percentiles = asked}}, in);
    ASSERT_EQ(all.type.dims, std::vector<int64_t>{6}) << NameOf(scalar);
    std::vector<double> values;
    for (int64_t i = 0; i < in.type.numbers(); ++i) values.push_back(in.at(i).real());
    std::vector<Complex> wanted;
    for (const double p : asked) wanted.push_back(Percentile(values, p));
    ASSERT_NO_FATAL_FAILURE(
        ExpectNear(all, wanted, kFloatTolerance, std::string("all of ") + NameOf(scalar)));
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
    ASSERT_NO_FATAL_FAILURE(
        ExpectNear(middle, wanted, kFloatTolerance, std::string("axis 1 of ") + NameOf(scalar)));
  }
}

TEST_P(OpsReduceTest, HistogramsCountWhatLiesInRange) {
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
        // Searches for the bin whose edges contain the value.
        int64_t bin = std::max<int64_t>(
            0, static_cast<int64_t>((v - lo) / (hi - lo) * static_cast<double>(bins)) - 2);
        while (bin + 1 < bins &&
               v >= lo + static_cast<double>(bin + 1) * ((hi - lo) / static_cast<double>(bins)))
          ++bin;
        wanted[static_cast<size_t>(bin)] += 1;
      }
      ASSERT_NO_FATAL_FAILURE(
          ExpectNear(out, wanted, 0, std::string(NameOf(scalar)) + " in " + std::to_string(bins)));
    }
  }
  const HostArray bytes = MakeRandom({.scalar = Scalar::kU8, .dims = {1000}}, 12);
  std::vector<Complex> wanted(256);
  for (const uint8_t b : bytes.bytes) wanted[b] += 1;
  ExpectNear(Run({HistogramOp{.scalar = Scalar::kF64}}, bytes), wanted, 0, "every value of u8");
}

INSTANTIATE_TEST_SUITE_P(Backends, OpsReduceTest, ::testing::ValuesIn(testing::AvailableBackends()),
                         testing::BackendName);

}  // namespace
}  // namespace octavo

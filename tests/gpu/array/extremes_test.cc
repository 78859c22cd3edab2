// Places of extremes, and reductions, percentiles and histograms of what a mask leaves, against
// plain loops in double precision.

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"

#include "tests/gpu/array/array_ops_fixture.h"
#include "tests/support/seed.h"

namespace octavo {
namespace {

using testing::Complex;
using testing::HostArray;
using testing::IsError;
using testing::kAll;
using testing::kFloatTolerance;
using testing::MakeRandom;

class ExtremesTest : public testing::OpsTest {
 protected:
  std::mt19937 random_{testing::FreshSeed()};
  HostArray Mask(std::vector<int64_t> dims, uint32_t one_of = 3) {
    HostArray mask = MakeRandom({.scalar = Scalar::kU8, .dims = std::move(dims)},
                                static_cast<uint32_t>(random_()));
    for (uint8_t& byte : mask.bytes) byte = random_() % one_of == 0 ? 0 : 200;
    return mask;
  }
};

TEST_P(ExtremesTest, PlacesOfExtremesAlongEachAxis) {
  for (const Scalar scalar : kAll) {
    if (IsComplex(scalar)) continue;
    for (const std::vector<int64_t>& dims :
         {std::vector<int64_t>{6, 7, 40}, {1, 5000, 2}, {3, 1, 6000}}) {
      for (const int64_t lanes : {1, 2}) {
        HostArray in = MakeRandom({.scalar = scalar, .lanes = lanes, .dims = dims},
                                  static_cast<uint32_t>(random_()));
        // Many equals, and NaN in some lines.
        for (int64_t i = 0; i < in.type.numbers(); ++i) {
          const bool nan = IsFloating(scalar) && random_() % 50 == 0;
          math::Store(scalar, in.bytes.data(), i,
                      {nan ? NAN : static_cast<double>(random_() % 20), 0});
        }
        const HostArray mask = Mask(dims);
        for (int64_t axis = 0; axis < 3; ++axis) {
          for (const auto extreme : {math::Extreme::kMin, math::Extreme::kMax}) {
            for (const bool skip : {false, true}) {
              for (const bool masked : {false, true}) {
                ArgExtremeOp op{
                    .extreme = extreme, .axis = axis, .keep_dims = true, .skip_nan = skip};
                if (masked) op.mask = {0};
                const HostArray out = Run({op}, in, {mask});
                std::vector<int64_t> wanted_dims = dims;
                wanted_dims[static_cast<size_t>(axis)] = 1;
                ASSERT_EQ(out.type,
                          (ArrayType{.scalar = Scalar::kI64, .lanes = lanes, .dims = wanted_dims}));
                for (int64_t i = 0; i < out.type.numbers(); ++i) {
                  const int64_t lane = i % lanes, c = i / lanes % wanted_dims[2],
                                b = i / lanes / wanted_dims[2] % wanted_dims[1],
                                a = i / lanes / wanted_dims[2] / wanted_dims[1];
                  int64_t best = -1;
                  double value = 0;
                  for (int64_t r = 0; r < dims[static_cast<size_t>(axis)]; ++r) {
                    const int64_t at =
                        in.index(axis == 0 ? r : a, axis == 1 ? r : b, axis == 2 ? r : c, lane);
                    const double v = in.at(at).real();
                    if (masked && mask.bytes[static_cast<size_t>(at / lanes)] == 0) continue;
                    if (std::isnan(v) && skip) continue;
                    const bool better = extreme == math::Extreme::kMax ? v > value : v < value;
                    if (best < 0 || (!std::isnan(value) && (std::isnan(v) || better))) {
                      best = r;
                      value = v;
                    }
                  }
                  ASSERT_EQ(out.at(i).real(), static_cast<double>(best))
                      << in.type.Text() << " axis " << axis << " skip " << skip << " masked "
                      << masked;
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST_P(ExtremesTest, PlacesTellApart64BitIntegers) {
  HostArray in{.type = {.scalar = Scalar::kU64, .dims = {3}}, .bytes = std::vector<uint8_t>(24)};
  auto* const values = reinterpret_cast<uint64_t*>(in.bytes.data());
  values[0] = ~uint64_t{0} - 2;
  values[1] = ~uint64_t{0};
  values[2] = ~uint64_t{0} - 1;
  const HostArray out = Run({ArgExtremeOp{.axis = 0, .scalar = Scalar::kF64}}, in);
  EXPECT_EQ(out.type.scalar, Scalar::kF64);
  EXPECT_EQ(out.at(0).real(), 1);
}

TEST_P(ExtremesTest, ReductionsOfWhatAMaskLeaves) {
  const std::vector<std::vector<int64_t>> sets = {{}, {0}, {1}, {2}, {0, 2}, {1, 2}};
  for (const Scalar scalar : {Scalar::kU8, Scalar::kU16, Scalar::kF32, Scalar::kF64}) {
    for (const int64_t lanes : {1, 2}) {
      const std::vector<int64_t> dims = {12, 30, 41};
      HostArray in = MakeRandom({.scalar = scalar, .lanes = lanes, .dims = dims},
                                static_cast<uint32_t>(random_()), IsFloating(scalar));
      const HostArray mask = Mask(dims, 2);
      // What the mask leaves out may be anything.
      for (int64_t i = 0; i < in.type.numbers(); ++i) {
        if (mask.bytes[static_cast<size_t>(i / lanes)] == 0)
          math::Store(scalar, in.bytes.data(), i, {IsFloating(scalar) ? 1e30 : 255, 0});
      }
      for (const auto& set : sets) {
        const auto runs = [&](int64_t axis) {
          return set.empty() || std::find(set.begin(), set.end(), axis) != set.end();
        };
        std::vector<std::vector<double>> groups;
        for (const auto kind : {math::Reduction::kSum, math::Reduction::kMin, math::Reduction::kMax,
                                math::Reduction::kMean, math::Reduction::kStd}) {
          const HostArray out =
              Run({ReduceOp{.kind = kind, .axes = set, .skip_nan = true, .mask = {0}}}, in, {mask});
          groups.assign(static_cast<size_t>(out.type.numbers()), {});
          for (int64_t i = 0; i < in.type.numbers(); ++i) {
            const int64_t c = i / lanes % 41, b = i / lanes / 41 % 30, a = i / lanes / 41 / 30;
            if (mask.bytes[static_cast<size_t>(i / lanes)] == 0 || std::isnan(in.at(i).real()))
              continue;
            int64_t k = runs(0) ? 0 : a;
            if (!runs(1)) k = k * 30 + b;
            if (!runs(2)) k = k * 41 + c;
            groups[static_cast<size_t>(k * lanes + i % lanes)].push_back(in.at(i).real());
          }
          std::vector<Complex> wanted;
          for (const auto& group : groups) {
            const double n = static_cast<double>(group.size());
            double sum = 0, squares = 0;
            for (const double v : group) sum += v;
            for (const double v : group) squares += (v - sum / n) * (v - sum / n);
            if (group.empty()) {
              // Integers have no NaN.
              const bool zero = kind == math::Reduction::kSum || IsIntegral(out.type.scalar);
              wanted.emplace_back(zero ? 0 : NAN);
              continue;
            }
            wanted.emplace_back(
                kind == math::Reduction::kSum    ? sum
                : kind == math::Reduction::kMin  ? *std::min_element(group.begin(), group.end())
                : kind == math::Reduction::kMax  ? *std::max_element(group.begin(), group.end())
                : kind == math::Reduction::kMean ? sum / n
                                                 : std::sqrt(squares / n));
          }
          ASSERT_NO_FATAL_FAILURE(
              ExpectNear(out, wanted, kFloatTolerance,
                         absl::StrCat(in.type.Text(), " kind ", static_cast<int>(kind), " axes ",
                                      set.size())));
        }
        const HostArray middle =
            Run({PercentileOp{.percentiles = {30}, .axes = set, .mask = {0}}}, in, {mask});
        std::vector<Complex> wanted;
        for (auto& group : groups) {
          std::sort(group.begin(), group.end());
          const double rank = 0.3 * static_cast<double>(group.size()) - 0.3;
          const auto below = static_cast<size_t>(std::max(0.0, std::floor(rank)));
          wanted.emplace_back(
              group.empty()
                  ? NAN
                  : group[below] + (group[std::min(below + 1, group.size() - 1)] - group[below]) *
                                       (rank - std::floor(rank)));
        }
        ASSERT_NO_FATAL_FAILURE(ExpectNear(middle, wanted, kFloatTolerance,
                                           absl::StrCat(in.type.Text(), " percentile")));
      }
      const HostArray counts =
          Run({HistogramOp{.bins = 13, .lo = -50, .hi = 80, .mask = {0}}}, in, {mask});
      std::vector<Complex> wanted(13);
      for (int64_t i = 0; i < in.type.numbers(); ++i) {
        const int64_t bin = math::BinOf(in.at(i).real(), -50, 80, 13);
        if (bin >= 0 && mask.bytes[static_cast<size_t>(i / lanes)] != 0)
          wanted[static_cast<size_t>(bin)] += 1;
      }
      ExpectNear(counts, wanted, 0, "histogram");
    }
  }
}

// The first elements of a part may lie far from the rest, or be left out: the deviation stays
// precise.
TEST_P(ExtremesTest, DeviationsStayPrecise) {
  HostArray in =
      MakeRandom({.scalar = Scalar::kF64, .dims = {100000}}, static_cast<uint32_t>(random_()));
  HostArray mask = Mask({100000});
  double sum = 0, n = 0, squares = 0;
  mask.bytes[0] = 0;
  for (int64_t i = 0; i < 100000; ++i) {
    const bool in_it = mask.bytes[static_cast<size_t>(i)] != 0;
    math::Store(Scalar::kF64, in.bytes.data(), i,
                {in_it ? 1e6 + 1e-3 * in.at(i).real() : -1e30, 0});
    if (in_it) sum += in.at(i).real() - 1e6, n += 1;
  }
  for (int64_t i = 0; i < 100000; ++i) {
    if (mask.bytes[static_cast<size_t>(i)] == 0) continue;
    const double d = in.at(i).real() - 1e6 - sum / n;
    squares += d * d;
  }
  const HostArray out = Run({ReduceOp{.kind = math::Reduction::kStd, .mask = {0}}}, in, {mask});
  EXPECT_NEAR(out.at(0).real() / std::sqrt(squares / n), 1, 1e-8);
}

TEST_P(ExtremesTest, WhatCannotBeIsRefusedByName) {
  const ArrayType in{.scalar = Scalar::kF32, .lanes = 2, .dims = {4, 6}};
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const auto refused = [&](const Op& op, const ArrayType& other) {
    return PlanChain({op}, in, {other}, false, "operations").status();
  };
  EXPECT_THAT(Refused({ArgExtremeOp{}}, {.scalar = Scalar::kC64, .dims = {4}}),
              IsError(kInvalid, "argmax: has no meaning"));
  EXPECT_THAT(Refused({ArgExtremeOp{.extreme = math::Extreme::kMin, .axis = 2}}, in),
              IsError(kInvalid, "argmin.axis: is 2"));
  for (const ArrayType& mask : {ArrayType{.scalar = Scalar::kI8, .dims = {4, 6}},
                                ArrayType{.scalar = Scalar::kU8, .dims = {6}},
                                ArrayType{.scalar = Scalar::kU8, .lanes = 2, .dims = {4, 6}}}) {
    EXPECT_THAT(refused(ArgExtremeOp{.mask = {0}}, mask), IsError(kInvalid, "argmax.mask: is "));
    EXPECT_THAT(refused(ReduceOp{.mask = {0}}, mask), IsError(kInvalid, "reduce.mask: is "));
    EXPECT_THAT(refused(PercentileOp{.percentiles = {1}, .mask = {0}}, mask),
                IsError(kInvalid, "percentile.mask: is "));
    EXPECT_THAT(refused(HistogramOp{.hi = 1, .mask = {0}}, mask),
                IsError(kInvalid, "histogram.mask: is "));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ExtremesTest, ::testing::ValuesIn(testing::AvailableBackends()),
                         testing::BackendName);

}  // namespace
}  // namespace octavo

// Functions, thresholds, choices, paste and concatenate against plain loops in double precision.

#include <algorithm>
#include <cmath>
#include <cstring>
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
using testing::IsOk;
using testing::kAll;
using testing::kFloatTolerance;
using testing::MakeRandom;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class ElementsTest : public testing::OpsTest {
 protected:
  std::mt19937 random_{testing::FreshSeed()};
  uint32_t Draw() { return static_cast<uint32_t>(random_()); }
  HostArray Mask(std::vector<int64_t> dims) {
    HostArray mask = MakeRandom({.scalar = Scalar::kU8, .dims = std::move(dims)}, Draw());
    for (uint8_t& byte : mask.bytes) byte = byte % 3 == 0 ? 0 : byte;
    return mask;
  }
};

TEST_P(ElementsTest, LogarithmsAndExponentials) {
  for (const Scalar scalar : kAll) {
    if (IsComplex(scalar)) continue;
    // Not a multiple of what a thread takes at a time; 0 and negative numbers are among them.
    HostArray in = MakeRandom({.scalar = scalar, .dims = {7, 143}}, Draw());
    for (int64_t i = 0; i < 40; ++i) math::Store(scalar, in.bytes.data(), 3 * i, {0, 0});
    for (const math::Function function : {math::Function::kLn, math::Function::kLog10,
                                          math::Function::kExp, math::Function::kExp10}) {
      for (const bool keep : {false, true}) {
        const bool logarithm = function <= math::Function::kLog10;
        if (keep && !logarithm) continue;
        // Exponents in the range of f32.
        const std::vector<Op> scaled = {ScaleOp{
            .scalar = scalar == Scalar::kF64 ? Scalar::kF64 : Scalar::kF32, .multiply = {0.1, 0}}};
        const HostArray arguments = logarithm ? in : Run(scaled, in);
        const HostArray out = Run({FunctionOp{.function = function, .keep_rest = keep}}, arguments);
        ASSERT_EQ(out.type.scalar, scalar == Scalar::kF64 ? Scalar::kF64 : Scalar::kF32);
        for (int64_t i = 0; i < in.type.numbers(); ++i) {
          const double v = arguments.at(i).real(), got = out.at(i).real();
          double wanted = 0;
          switch (function) {
            case math::Function::kLn: wanted = std::log(v); break;
            case math::Function::kLog10: wanted = std::log10(v); break;
            case math::Function::kExp: wanted = std::exp(v); break;
            default: wanted = std::pow(10.0, v);
          }
          if (keep && !(v > 0)) wanted = v;
          const double tolerance =
              (scalar == Scalar::kF64 ? 1e-13 : 3e-6) * std::abs(wanted) + 1e-7;
          ASSERT_TRUE(std::isnan(wanted)   ? std::isnan(got)
                      : std::isinf(wanted) ? got == wanted
                                           : std::abs(got - wanted) <= tolerance)
              << NameOf(scalar) << " function " << static_cast<int>(function) << " of " << v << ": "
              << got << ", wanted " << wanted;
        }
      }
    }
  }
}

TEST_P(ElementsTest, ThresholdsMakeMasks) {
  for (const Scalar scalar : kAll) {
    if (IsComplex(scalar)) continue;
    const HostArray in =
        MakeRandom({.scalar = scalar, .lanes = 2, .dims = {5, 77}}, Draw(), IsFloating(scalar));
    const HostArray out = Run({ThresholdOp{.value = 31}}, in);
    ASSERT_EQ(out.type, (ArrayType{.scalar = Scalar::kU8, .lanes = 2, .dims = {5, 77}}));
    for (int64_t i = 0; i < in.type.numbers(); ++i)
      ASSERT_EQ(out.at(i).real(), in.at(i).real() > 31 ? 1 : 0) << NameOf(scalar) << " at " << i;
  }
}

// Otsu's threshold by its definition: tries every bin.
double Otsu(const HostArray& in, int64_t bins) {
  std::vector<double> values;
  for (int64_t i = 0; i < in.type.numbers(); ++i) {
    if (const double v = in.at(i).real(); std::isfinite(v)) values.push_back(v);
  }
  if (values.empty()) return NAN;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const double lo = *least, hi = *most;
  if (lo == hi) return lo;
  std::vector<double> counts(static_cast<size_t>(bins)), middles(counts.size());
  for (int64_t b = 0; b < bins; ++b)
    middles[static_cast<size_t>(b)] =
        lo + (static_cast<double>(b) + 0.5) * (hi - lo) / static_cast<double>(bins);
  for (const double v : values) counts[static_cast<size_t>(math::BinOf(v, lo, hi, bins))] += 1;
  double best = -1, threshold = 0;
  for (size_t split = 0; split + 1 < counts.size(); ++split) {
    double n[2] = {}, sum[2] = {};
    for (size_t b = 0; b < counts.size(); ++b) {
      n[b > split] += counts[b];
      sum[b > split] += counts[b] * middles[b];
    }
    if (n[0] == 0 || n[1] == 0) continue;
    const double apart = sum[0] / n[0] - sum[1] / n[1], variance = n[0] * n[1] * apart * apart;
    // Equal but for rounding: the first counts.
    if (variance > best * (1 + 1e-9)) {
      best = variance;
      threshold = middles[split];
    }
  }
  return threshold;
}

TEST_P(ElementsTest, OtsuFindsTheThresholdBetweenTwoClasses) {
  for (const Scalar scalar : kAll) {
    if (IsComplex(scalar)) continue;
    for (const int64_t bins : {2, 64, 256, 1000}) {
      HostArray in = MakeRandom({.scalar = scalar, .dims = {90, 101}}, Draw(), IsFloating(scalar));
      std::normal_distribution<double> low(30, 4), high(80, 9);
      for (int64_t i = 0; i < in.type.numbers(); ++i) {
        if (!std::isnan(in.at(i).real()))
          math::Store(scalar, in.bytes.data(), i, {i % 3 == 0 ? high(random_) : low(random_), 0});
      }
      if (IsFloating(scalar)) math::Store(scalar, in.bytes.data(), 5, {HUGE_VAL, 0});
      const double threshold = Otsu(in, bins);
      const HostArray out = Run({ThresholdOp{.otsu = true, .bins = bins}}, in);
      for (int64_t i = 0; i < in.type.numbers(); ++i) {
        const double v = in.at(i).real();
        if (std::abs(v - threshold) < 1e-9 * std::abs(threshold)) continue;  // rounding decides
        ASSERT_EQ(out.at(i).real(), v > threshold ? 1 : 0)
            << NameOf(scalar) << " bins " << bins << " value " << v << " threshold " << threshold;
      }
    }
  }
  // Nothing is above the only value, or above NaN.
  for (const double value : {3.0, std::nan("")}) {
    HostArray in = MakeRandom({.scalar = Scalar::kF32, .dims = {50}}, 1);
    for (int64_t i = 0; i < 50; ++i) math::Store(Scalar::kF32, in.bytes.data(), i, {value, 0});
    EXPECT_EQ(Run({ThresholdOp{.otsu = true}}, in).bytes, std::vector<uint8_t>(50, 0));
  }
}

TEST_P(ElementsTest, ChoosesByMaskOrThreshold) {
  for (const Scalar scalar : kAll) {
    for (const int64_t lanes : {1, 3}) {
      const HostArray in =
          MakeRandom({.scalar = scalar, .lanes = lanes, .dims = {4, 5, 7}}, Draw());
      const auto size = static_cast<size_t>(SizeOf(scalar));
      for (const std::vector<int64_t>& mask_dims : {std::vector<int64_t>{4, 5, 7}, {5, 7}, {7}}) {
        const HostArray mask = Mask(mask_dims),
                        other =
                            MakeRandom({.scalar = scalar, .lanes = lanes, .dims = {5, 7}}, Draw());
        const HostArray out = Run({ChooseOp{.mask = {0}, .other = {1}}}, in, {mask, other});
        const HostArray filled = Run({ChooseOp{.mask = {0}, .value = {9, 0}}}, in, {mask});
        ASSERT_EQ(out.type, in.type);
        for (int64_t i = 0; i < in.type.numbers(); ++i) {
          const bool chosen = mask.bytes[static_cast<size_t>(i / lanes % mask.type.numbers())] != 0;
          const uint8_t* const wanted =
              chosen ? &in.bytes[static_cast<size_t>(i) * size]
                     : &other.bytes[static_cast<size_t>(i % other.type.numbers()) * size];
          ASSERT_EQ(std::memcmp(&out.bytes[static_cast<size_t>(i) * size], wanted, size), 0)
              << NameOf(scalar) << " lanes " << lanes << " at " << i;
          ASSERT_EQ(filled.at(i), chosen ? in.at(i) : Complex(9)) << NameOf(scalar) << " at " << i;
        }
      }
      if (IsComplex(scalar)) continue;
      const HostArray above = Run({ChooseOp{.threshold = {.value = 40}, .value = {2, 0}}}, in),
                      otsu = Run({ChooseOp{.threshold = {.otsu = true}, .value = {2, 0}}}, in),
                      otsu_mask = Run({ThresholdOp{.otsu = true}}, in);
      for (int64_t i = 0; i < in.type.numbers(); ++i) {
        ASSERT_EQ(above.at(i).real(), in.at(i).real() > 40 ? in.at(i).real() : 2) << NameOf(scalar);
        ASSERT_EQ(otsu.at(i).real(), otsu_mask.at(i).real() != 0 ? in.at(i).real() : 2);
      }
    }
  }
  // Arithmetic where a mask says so: the unchanged array is the second one.
  const HostArray in = MakeRandom({.scalar = Scalar::kF32, .dims = {60}}, Draw()),
                  mask = Mask({60});
  const HostArray out =
      Run({ScaleOp{.multiply = {2, 0}}, ChooseOp{.mask = {0}, .other = {1}}}, in, {mask, in});
  for (int64_t i = 0; i < 60; ++i)
    ASSERT_EQ(out.at(i), in.at(i) * (mask.bytes[static_cast<size_t>(i)] != 0 ? 2.0 : 1.0));
}

TEST_P(ElementsTest, PasteAndConcatenate) {
  for (const Scalar scalar : kAll) {
    const int64_t lanes = IsComplex(scalar) ? 1 : 2;
    const auto make = [&](std::vector<int64_t> dims) {
      return MakeRandom({.scalar = scalar, .lanes = lanes, .dims = std::move(dims)}, Draw());
    };
    const HostArray in = make({5, 6, 9});
    for (const auto& [dims, start] :
         {std::pair{std::vector<int64_t>{2, 3, 4}, std::vector<int64_t>{3, 1, 5}},
          {{5, 6, 9}, {}},
          {{1, 6, 9}, {2, 0, 0}},
          {{5, 1, 1}, {0, 5, 8}}}) {
      const HostArray box = make(dims), out = Run({PasteOp{.start = start}}, in, {box});
      ASSERT_EQ(out.type, in.type);
      const auto from = [&](size_t d) { return start.empty() ? 0 : start[d]; };
      for (int64_t a = 0; a < 5; ++a) {
        for (int64_t b = 0; b < 6; ++b) {
          for (int64_t c = 0; c < 9; ++c) {
            const int64_t i = a - from(0), j = b - from(1), k = c - from(2);
            const bool inside =
                i >= 0 && i < dims[0] && j >= 0 && j < dims[1] && k >= 0 && k < dims[2];
            for (int64_t lane = 0; lane < lanes; ++lane) {
              ASSERT_EQ(out.at(out.index(a, b, c, lane)),
                        inside ? box.at(box.index(i, j, k, lane)) : in.at(in.index(a, b, c, lane)))
                  << NameOf(scalar);
            }
          }
        }
      }
    }
    for (size_t axis = 0; axis < 3; ++axis) {
      std::vector<int64_t> dims[2] = {in.type.dims, in.type.dims};
      dims[0][axis] = 1;
      dims[1][axis] = 4;
      const HostArray first = make(dims[0]), second = make(dims[1]);
      const HostArray out =
          Run({ConcatenateOp{.axis = static_cast<int64_t>(axis) - 3, .others = {1, 0}}}, in,
              {first, second});
      std::vector<int64_t> wanted = in.type.dims;
      wanted[axis] += 5;
      ASSERT_EQ(out.type.dims, wanted);
      for (int64_t a = 0; a < wanted[0]; ++a) {
        for (int64_t b = 0; b < wanted[1]; ++b) {
          for (int64_t c = 0; c < wanted[2]; ++c) {
            int64_t at[3] = {a, b, c};
            const HostArray* piece = &in;
            for (const HostArray* next : {&second, &first}) {
              if (at[axis] < piece->type.dims[axis]) break;
              at[axis] -= piece->type.dims[axis];
              piece = next;
            }
            for (int64_t lane = 0; lane < lanes; ++lane) {
              ASSERT_EQ(out.at(out.index(a, b, c, lane)),
                        piece->at(piece->index(at[0], at[1], at[2], lane)))
                  << NameOf(scalar) << " axis " << axis;
            }
          }
        }
      }
    }
  }
}

// The output may be the memory of a second array.
TEST_P(ElementsTest, IntoASecondArray) {
  const HostArray in = MakeRandom({.scalar = Scalar::kF32, .dims = {6, 50}}, Draw()),
                  box = MakeRandom({.scalar = Scalar::kF32, .dims = {6, 50}}, Draw()),
                  mask = Mask({6, 50});
  for (const Op& op : {Op(PasteOp{.other = 1}), Op(ChooseOp{.mask = {0}, .other = {1}})}) {
    const auto chain = std::make_shared<const ArrayChain>(
        PlanChain({op}, in.type, {mask.type, box.type}, true, "operations").value());
    const auto run = ChainRun::Create(chain, device_).value();
    const DeviceBuffer from = Upload(in.bytes), by = Upload(mask.bytes), other = Upload(box.bytes);
    ASSERT_THAT(run->Run(stream_.ref(), from.data(), {by.data(), other.data()}, other.data()),
                IsOk());
    EXPECT_EQ(Download<uint8_t>(other, box.bytes.size()), Run({op}, in, {mask, box}).bytes);
  }
}

TEST_P(ElementsTest, WhatCannotBeIsRefusedByName) {
  const ArrayType in{.scalar = Scalar::kF32, .dims = {4, 6}},
      complex{.scalar = Scalar::kC64, .dims = {4}}, u8{.scalar = Scalar::kU8, .dims = {4, 6}},
      large{.scalar = Scalar::kF32, .dims = {5, 6}};
  const auto refused = [&](const Op& op, const ArrayType& other) {
    return PlanChain({op}, in, {other}, false, "operations").status();
  };
  EXPECT_THAT(Refused({FunctionOp{}}, complex), IsError(kInvalid, "logarithm: has no meaning"));
  EXPECT_THAT(Refused({FunctionOp{.function = math::Function::kExp10}}, complex),
              IsError(kInvalid, "exponential: has no meaning"));
  EXPECT_THAT(Refused({FunctionOp{.function = static_cast<math::Function>(8)}}, in),
              IsError(kInvalid, "base: has the unknown value 8"));
  EXPECT_THAT(Refused({ThresholdOp{}}, complex), IsError(kInvalid, "threshold: has no meaning"));
  EXPECT_THAT(Refused({ThresholdOp{.value = NAN}}, in),
              IsError(kInvalid, "threshold.value: is NaN"));
  EXPECT_THAT(Refused({ThresholdOp{.otsu = true, .bins = 1}}, in),
              IsError(kInvalid, "threshold.otsu.bins: is 1; allowed 2 to 4096"));
  EXPECT_THAT(Refused({ChooseOp{.threshold = {.otsu = true, .bins = 9999}}}, in),
              IsError(kInvalid, "select.above.otsu.bins: is 9999"));
  EXPECT_THAT(refused(ChooseOp{.mask = {0}}, in), IsError(kInvalid, "select.mask: is f32[4, 6]"));
  EXPECT_THAT(refused(ChooseOp{.mask = {0}}, large), IsError(kInvalid, "wants u8 with one lane"));
  EXPECT_THAT(refused(ChooseOp{.other = {0}}, u8), IsError(kInvalid, "select.other: is u8[4, 6]"));
  EXPECT_THAT(refused(ChooseOp{.mask = {0}, .value = {0, 1}}, u8),
              IsError(kInvalid, "select.value.im: is 1; allowed 0"));
  EXPECT_THAT(refused(PasteOp{}, u8), IsError(kInvalid, "paste.other: is u8[4, 6]"));
  EXPECT_THAT(refused(PasteOp{}, large), IsError(kInvalid, "paste.other: is f32[5, 6], larger"));
  EXPECT_THAT(refused(PasteOp{.start = {1, 0}}, in),
              IsError(kInvalid, "paste.start: [0] is 1; allowed 0 to 0"));
  EXPECT_THAT(refused(PasteOp{.start = {1}}, in), IsError(kInvalid, "allowed none or 2"));
  EXPECT_THAT(refused(ConcatenateOp{}, in),
              IsError(kInvalid, "others: has 0 arrays; allowed 1 to 8"));
  EXPECT_THAT(refused(ConcatenateOp{.axis = 1, .others = {0}}, large),
              IsError(kInvalid, "concatenate.others: [0] is f32[5, 6]"));
  EXPECT_THAT(refused(ConcatenateOp{.axis = 2, .others = {0}}, in),
              IsError(kInvalid, "concatenate.axis: is 2"));
}

INSTANTIATE_TEST_SUITE_P(Backends, ElementsTest, ::testing::ValuesIn(testing::AvailableBackends()),
                         testing::BackendName);

}  // namespace
}  // namespace octavo

#pragma once

// Fixture that runs chains of operations on arrays whose content the host knows.

#include <algorithm>
#include <cmath>
#include <complex>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "gpu/array/array_ops.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/status_matchers.h"

namespace octavo::testing {

using Complex = std::complex<double>;

// Relative error of a result stored as f32: half a unit in the last place, plus a margin for the
// order of the sums.
inline constexpr double kFloatTolerance = 1e-6;

/// An array in host memory with its numbers.
struct HostArray {
  ArrayType type;
  std::vector<uint8_t> bytes;
  Complex at(int64_t i) const {
    const math::Number v = math::Load(type.scalar, bytes.data(), i);
    return {v.re, v.im};
  }
  // Index of element [i0, i1, i2, lane] of a three-dimensional array.
  int64_t index(int64_t a, int64_t b, int64_t c, int64_t lane) const {
    return ((a * type.dims[1] + b) * type.dims[2] + c) * type.lanes + lane;
  }
};

inline HostArray MakeRandom(ArrayType type, uint32_t seed, bool nan = false) {
  HostArray array{.type = std::move(type), .bytes = {}};
  array.bytes.resize(static_cast<size_t>(array.type.bytes()));
  std::mt19937 random(seed);
  const Scalar s = array.type.scalar;
  const double low = IsIntegral(s) && (s == Scalar::kU8 || s == Scalar::kU16 || s == Scalar::kU32 ||
                                       s == Scalar::kU64)
                         ? 0
                         : -100;
  std::uniform_real_distribution<double> values(low, SizeOf(s) == 1 ? 100 : 200);
  for (int64_t i = 0; i < array.type.numbers(); ++i) {
    math::Number v{values(random), IsComplex(s) ? values(random) : 0};
    if (nan && random() % 8 == 0) v.re = NAN;
    math::Store(s, array.bytes.data(), i, v);
  }
  return array;
}

/// `v` within the range of an integer type; a spline leaves it at steps. Other types have no range.
inline Complex Clipped(Scalar scalar, Complex v) {
  if (!IsIntegral(scalar)) return v;
  const auto end = [&](double far) {
    uint64_t cell = 0;
    math::Store(scalar, &cell, 0, {far, 0});
    return math::Load(scalar, &cell, 0).re;
  };
  return {std::clamp(v.real(), end(-1e300), end(1e300)), v.imag()};
}

class OpsTest : public BackendTest {
 protected:
  // Runs the chain on the device: in place if the types allow it and `in_place` is set.
  HostArray Run(const std::vector<Op>& ops, const HostArray& in,
                const std::vector<HostArray>& others = {}) {
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
    HostArray out{.type = chain->out,
                  .bytes = Download<uint8_t>(to, static_cast<size_t>(chain->out.bytes()))};
    EXPECT_EQ(Download<uint8_t>(from, in.bytes.size()), in.bytes) << "the input was written to";
    return out;
  }
  absl::Status Refused(const std::vector<Op>& ops, const ArrayType& in) {
    return PlanChain(ops, in, {}, false, "operations").status();
  }

  static void ExpectNear(const HostArray& got, const std::vector<Complex>& wanted, double tolerance,
                         const std::string& what) {
    ASSERT_EQ(got.type.numbers(), static_cast<int64_t>(wanted.size()))
        << what << " " << got.type.Text();
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

inline constexpr Scalar kAll[] = {Scalar::kU8,  Scalar::kI8,  Scalar::kU16, Scalar::kI16,
                                  Scalar::kF16, Scalar::kF32, Scalar::kF64, Scalar::kC64,
                                  Scalar::kU32, Scalar::kI32, Scalar::kU64, Scalar::kI64,
                                  Scalar::kC32, Scalar::kC128};

}  // namespace octavo::testing

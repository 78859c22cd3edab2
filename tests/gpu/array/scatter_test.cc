// Stored elements at their places in an array: types, byte orders, orders of axes and edges,
// against plain loops.

#include "gpu/array/scatter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/device/scalar.h"
#include "gpu/math/element.h"
#include "gpu/math/half.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using testing::IsError;
using testing::IsOk;

class ScatterTest : public testing::BackendTest {
 protected:
  /// Runs pieces on a slab into `bytes` of poisoned memory.
  std::vector<uint8_t> Run(const ScatterSpec& spec, std::vector<ScatterPiece> pieces,
                           const std::vector<uint8_t>& slab, int64_t bytes) {
    const auto ops = FindOperators<ScatterOps>(device_);
    EXPECT_TRUE(ops.ok());
    const auto blocks = PrepareScatter(spec, absl::MakeSpan(pieces));
    EXPECT_TRUE(blocks.ok()) << blocks.status();
    const DeviceBuffer from = Upload(slab), table = Upload(pieces), out = Poisoned(bytes);
    EXPECT_THAT((*ops)->Scatter(stream_.ref(), spec, from.data(), table.as<ScatterPiece>(),
                                std::ssize(pieces), *blocks, out.data()),
                IsOk());
    return Download<uint8_t>(out, static_cast<size_t>(bytes));
  }
  std::vector<uint8_t> RandomBytes(int64_t bytes) {
    std::vector<uint8_t> made(static_cast<size_t>(bytes));
    for (uint8_t& byte : made) byte = static_cast<uint8_t>(random_());
    return made;
  }
  int64_t Below(int64_t most) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(most));
  }

  std::mt19937_64 random_{testing::FreshSeed()};
};

// Bits stay as they are, but for their order: random boxes with random orders of axes, gaps, and
// places that fit no alignment; many pieces in one call.
TEST_P(ScatterTest, BitsAreCopiedToTheirPlaces) {
  constexpr DType kTypes[] = {DType::kU8,  DType::kI16, DType::kF32,
                              DType::kF64, DType::kC64, DType::kF16};
  for (int round = 0; round < 60; ++round) {
    const DType type = kTypes[round % 6];
    const int64_t size = SizeOf(type), number = type == DType::kC64 ? 4 : size;
    const bool swap = random_() % 2 == 0;
    const ScatterSpec spec{.from = ScalarOf(type), .swap_bytes = swap, .to = type};
    // The array is cut along its first axis into pieces of random thickness.
    const int64_t shape[3] = {1 + Below(40), 1 + Below(30), 1 + Below(round % 3 == 0 ? 3 : 200)};
    std::vector<ScatterPiece> pieces;
    std::vector<uint8_t> slab = RandomBytes(64);
    std::vector<uint8_t> wanted(static_cast<size_t>(shape[0] * shape[1] * shape[2] * size), 0xA5);
    for (int64_t first = 0; first < shape[0];) {
      ScatterPiece piece;
      piece.count[0] = 1 + Below(std::min<int64_t>(shape[0] - first, 5));
      piece.count[1] = shape[1];
      piece.count[2] = shape[2];
      piece.to_stride[2] = size;
      piece.to_stride[1] = shape[2] * size;
      piece.to_stride[0] = shape[1] * piece.to_stride[1];
      piece.to = first * piece.to_stride[0];
      int order[3] = {2, 1, 0};
      if (random_() % 2 == 0) std::shuffle(order, order + 3, random_);
      int64_t stride = size;
      for (const int d : order) {
        piece.from_stride[d] = stride;
        stride *= piece.count[d];
        if (random_() % 4 == 0) stride += size * Below(4) + Below(2);
      }
      const bool fill = random_() % 6 == 0;
      if (fill) std::fill(piece.from_stride, piece.from_stride + 3, 0);
      piece.from = std::ssize(slab) + (random_() % 2 == 0 ? 0 : Below(7));
      const std::vector<uint8_t> bytes = RandomBytes(stride + size + 8);
      slab.insert(slab.end(), bytes.begin(), bytes.end());
      for (int64_t a = 0; a < piece.count[0]; ++a) {
        for (int64_t b = 0; b < piece.count[1]; ++b) {
          for (int64_t c = 0; c < piece.count[2]; ++c) {
            const uint8_t* const from = slab.data() + piece.from + a * piece.from_stride[0] +
                                        b * piece.from_stride[1] + c * piece.from_stride[2];
            uint8_t* const to = wanted.data() + piece.to + a * piece.to_stride[0] +
                                b * piece.to_stride[1] + c * piece.to_stride[2];
            for (int64_t n = 0; n < size; n += number)
              for (int64_t i = 0; i < number; ++i)
                to[n + i] = from[n + (swap ? number - 1 - i : i)];
          }
        }
      }
      first += piece.count[0];
      pieces.push_back(piece);
    }
    ASSERT_TRUE(Run(spec, pieces, slab, std::ssize(wanted)) == wanted)
        << round << " " << Info(type).name << (swap ? " swapped" : "");
  }
}

template <class T>
void Put(std::vector<uint8_t>* bytes, T value, bool swap) {
  uint8_t raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  if (swap) std::reverse(raw, raw + sizeof(T));
  bytes->insert(bytes->end(), raw, raw + sizeof(T));
}

// Ties, limits, infinities, NaN and minus zero become what the contract of the spec says.
TEST_P(ScatterTest, TypesAreConverted) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> values = {
      0,       -0.0,  0.5,     1.5,   2.5,    -0.5, -1.5, 127.5, 128,   -128.5,
      254.5,   255.5, 65534.5, 70000, -40000, inf,  -inf, NAN,   1e-30, 3.14159265358979,
      32767.5, 1e10};
  for (const bool swap : {false, true}) {
    std::vector<uint8_t> slab;
    for (const double value : values) Put(&slab, value, swap);
    for (const DType to : {DType::kU8, DType::kI8, DType::kU16, DType::kI16, DType::kF32,
                           DType::kF64, DType::kC64, DType::kF16}) {
      for (const double scale : {1.0, -2.0}) {
        const double shift = scale == 1 ? 0 : 0.25;
        const int64_t size = SizeOf(to);
        ScatterPiece piece;
        piece.count[2] = std::ssize(values);
        piece.from_stride[2] = 8;
        piece.to_stride[2] = size;
        const std::vector<uint8_t> out = Run(
            {.from = Scalar::kF64, .swap_bytes = swap, .to = to, .scale = scale, .shift = shift},
            {piece}, slab, piece.count[2] * size);
        const auto at = [&]<class T>(size_t i, T) {
          T value;
          std::memcpy(&value, out.data() + i * static_cast<size_t>(size), sizeof(T));
          return value;
        };
        const auto integer = [](double v, double lo, double hi) {
          return std::isnan(v) ? 0 : std::clamp(std::nearbyint(v), lo, hi);
        };
        for (size_t i = 0; i < values.size(); ++i) {
          const double v = scale * values[i] + shift;
          SCOPED_TRACE(absl::StrCat(v, " to ", Info(to).name));
          switch (to) {
            case DType::kU8: EXPECT_EQ(at(i, uint8_t{}), integer(v, 0, 255)); break;
            case DType::kI8: EXPECT_EQ(at(i, int8_t{}), integer(v, -128, 127)); break;
            case DType::kU16: EXPECT_EQ(at(i, uint16_t{}), integer(v, 0, 65535)); break;
            case DType::kI16: EXPECT_EQ(at(i, int16_t{}), integer(v, -32768, 32767)); break;
            case DType::kF16: {
              const float got = math::HalfToFloat(at(i, uint16_t{}));
              if (std::isnan(v))
                EXPECT_TRUE(std::isnan(got));
              else
                EXPECT_EQ(got, math::HalfToFloat(math::FloatToHalf(static_cast<float>(v))));
              break;
            }
            case DType::kF64:
              if (std::isnan(v))
                EXPECT_TRUE(std::isnan(at(i, double{})));
              else
                EXPECT_EQ(at(i, double{}), v);
              break;
            case DType::kC64: EXPECT_EQ(at(i, math::Complex64{}).im, 0); [[fallthrough]];
            case DType::kF32:
              if (std::isnan(v))
                EXPECT_TRUE(std::isnan(at(i, float{})));
              else
                EXPECT_EQ(at(i, float{}), static_cast<float>(v));
              break;
          }
        }
      }
    }
  }
}

// Every type of files, in both byte orders, at odd places.
TEST_P(ScatterTest, EveryStoredTypeBecomesNumbers) {
  constexpr int64_t kCount = 9000;  // several blocks
  const auto check = [&]<class T>(Scalar from, T) {
    for (const bool swap : {false, true}) {
      std::vector<uint8_t> slab(3, 0);
      std::vector<double> wanted;
      for (int64_t i = 0; i < kCount; ++i) {
        const T value = static_cast<T>(static_cast<int64_t>(random_()) >> (random_() % 63));
        Put(&slab, value, swap);
        wanted.push_back(static_cast<double>(value));
      }
      ScatterPiece piece;
      piece.from = 3;
      piece.count[0] = 3;
      piece.count[2] = kCount / 3;
      piece.from_stride[0] = kCount / 3 * int64_t{sizeof(T)};
      piece.from_stride[2] = sizeof(T);
      piece.to_stride[0] = kCount / 3 * 8;
      piece.to_stride[2] = 8;
      std::vector<double> got(kCount);
      const auto out =
          Run({.from = from, .swap_bytes = swap, .to = DType::kF64}, {piece}, slab, kCount * 8);
      std::memcpy(got.data(), out.data(), out.size());
      EXPECT_EQ(got, wanted) << NameOf(from);
    }
  };
  check(Scalar::kU8, uint8_t{});
  check(Scalar::kI8, int8_t{});
  check(Scalar::kU16, uint16_t{});
  check(Scalar::kI16, int16_t{});
  check(Scalar::kU32, uint32_t{});
  check(Scalar::kI32, int32_t{});
  check(Scalar::kU64, uint64_t{});
  check(Scalar::kI64, int64_t{});
  check(Scalar::kF32, float{});
  check(Scalar::kF64, double{});
}

TEST_P(ScatterTest, ComplexNumbersKeepBothParts) {
  for (const bool swap : {false, true}) {
    std::vector<uint8_t> slab;
    for (int i = 0; i < 100; ++i) Put(&slab, 0.1 * i - 3, swap);
    ScatterPiece piece;
    piece.count[2] = 50;
    piece.from_stride[2] = 16;
    piece.to_stride[2] = 8;
    const auto out =
        Run({.from = Scalar::kC128, .swap_bytes = swap, .to = DType::kC64, .scale = 2, .shift = 1},
            {piece}, slab, 400);
    for (int i = 0; i < 100; ++i) {
      float got;
      std::memcpy(&got, out.data() + 4 * i, 4);
      EXPECT_EQ(got, static_cast<float>(2 * (0.1 * i - 3) + (i % 2 == 0 ? 1 : 0)));
    }
  }
}

TEST_P(ScatterTest, WhatCannotBeDoneIsRefused) {
  using absl::StatusCode;
  EXPECT_THAT(PrepareScatter({.from = Scalar::kC64, .to = DType::kF32}, {}).status(),
              IsError(StatusCode::kInvalidArgument, "c64 cannot become f32"));
  EXPECT_THAT(PrepareScatter({.from = Scalar::kC32, .to = DType::kC64}, {}).status(),
              IsError(StatusCode::kInvalidArgument, "c32 cannot become c64"));
  std::vector<ScatterPiece> pieces(1);
  pieces[0].count[1] = 0;
  EXPECT_THAT(PrepareScatter({}, absl::MakeSpan(pieces)).status(),
              IsError(StatusCode::kInvalidArgument, "1 x 0 x 1 elements"));
  pieces[0].count[1] = pieces[0].count[2] = 1 << 16;
  EXPECT_THAT(PrepareScatter({}, absl::MakeSpan(pieces)).status(),
              IsError(StatusCode::kInvalidArgument, "allowed 1 to 2147483647"));
}

INSTANTIATE_TEST_SUITE_P(Backends, ScatterTest, ::testing::ValuesIn(testing::AvailableBackends()),
                         testing::BackendName);

}  // namespace
}  // namespace octavo

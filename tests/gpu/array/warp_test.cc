// Resampling at any positions against a model in double precision: each result is a sum over all
// samples, with weights for each axis that come from the definition of a spline on a line that was
// continued far beyond its ends.

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "tests/gpu/array/array_ops_fixture.h"
#include "tests/support/seed.h"

namespace octavo {
namespace {

using math::SampleEdge;
using math::Sampling;
using testing::Clipped;
using testing::Complex;
using testing::HostArray;
using testing::IsError;
using testing::IsOk;
using testing::kAll;
using testing::MakeRandom;
using testing::OpsTest;

constexpr Sampling kSamplings[] = {Sampling::kNearest, Sampling::kLinear, Sampling::kCubic};
constexpr SampleEdge kEdges[] = {SampleEdge::kConstant, SampleEdge::kNearest, SampleEdge::kReflect,
                                 SampleEdge::kMirror, SampleEdge::kWrap};

/// The sample that continues a line of n samples at i, step by step.
int64_t Beyond(SampleEdge edge, int64_t i, int64_t n) {
  if (n == 1) return 0;
  while (i < 0 || i >= n) {
    switch (edge) {
      case SampleEdge::kNearest: i = i < 0 ? 0 : n - 1; break;
      case SampleEdge::kWrap: i += i < 0 ? n : -n; break;
      case SampleEdge::kReflect: i = i < 0 ? -i - 1 : 2 * n - 1 - i; break;
      default: i = i < 0 ? -i : 2 * n - 2 - i; break;
    }
  }
  return i;
}

/// Solves (c[i-1] + 4 c[i] + c[i+1]) / 6 = s[i] on a line with zeros outside.
std::vector<double> Coefficients(std::vector<double> s) {
  const size_t n = s.size();
  std::vector<double> upper(n);
  double pivot = 4;
  for (size_t i = 0; i < n; ++i) {
    s[i] *= 6;
    if (i > 0) {
      s[i] -= s[i - 1];
      pivot = 4 - upper[i - 1];
    }
    upper[i] = 1 / pivot;
    s[i] /= pivot;
  }
  for (size_t i = n - 1; i-- > 0;) s[i] -= upper[i] * s[i + 1];
  return s;
}

/// How much each sample of an axis counts at a position.
class AxisModel {
 public:
  AxisModel(int64_t n, const SamplingRules& rules)
      : n_(n),
        margin_(6 * n + 60),
        rules_(rules),
        rows_(static_cast<size_t>(n + 2 * margin_), std::vector<double>(static_cast<size_t>(n))) {
    for (int64_t j = 0; j < n; ++j) {
      std::vector<double> line(rows_.size());
      for (size_t i = 0; i < line.size(); ++i)
        line[i] = Beyond(rules.edge, static_cast<int64_t>(i) - margin_, n) == j;
      if (rules.sampling == Sampling::kCubic && rules.prefilter) line = Coefficients(line);
      for (size_t i = 0; i < line.size(); ++i) rows_[i][static_cast<size_t>(j)] = line[i];
    }
  }

  /// Nothing if the position is outside, an empty list if it is too near to another result.
  std::optional<std::vector<double>> WeightsAt(double x) const {
    if (std::isnan(x)) return std::nullopt;
    const auto last = static_cast<double>(n_ - 1);
    if (rules_.edge == SampleEdge::kConstant && (x < 0 || x > last)) {
      if (x > -1e-8 && x < last + 1e-8) return std::vector<double>{};
      return std::nullopt;
    }
    // A spline goes on through the repeated sample, to 12 samples outside.
    const double reach = rules_.sampling == Sampling::kCubic && rules_.prefilter ? 12 : 0;
    if (rules_.edge == SampleEdge::kNearest) x = std::clamp(x, -reach, last + reach);
    if (rules_.sampling == Sampling::kNearest) {
      if (std::abs(x - std::floor(x) - 0.5) < 1e-9) return std::vector<double>{};
      return Row(std::floor(x + 0.5));
    }
    const double first = std::floor(x), t = x - first, u = 1 - t;
    if (rules_.sampling == Sampling::kLinear) return Sum({{first, u}, {first + 1, t}});
    return Sum({{first - 1, u * u * u / 6},
                {first, (4 - 6 * t * t + 3 * t * t * t) / 6},
                {first + 1, (4 - 6 * u * u + 3 * u * u * u) / 6},
                {first + 2, t * t * t / 6}});
  }

 private:
  const std::vector<double>& Row(double i) const {
    return rows_.at(static_cast<size_t>(static_cast<int64_t>(i) + margin_));
  }
  std::vector<double> Sum(const std::vector<std::pair<double, double>>& terms) const {
    std::vector<double> sum(static_cast<size_t>(n_));
    for (const auto& [i, weight] : terms) {
      for (size_t j = 0; j < sum.size(); ++j) sum[j] += weight * Row(i)[j];
    }
    return sum;
  }
  int64_t n_, margin_;
  SamplingRules rules_;
  std::vector<std::vector<double>> rows_;
};

double LargestOf(const HostArray& array) {
  double largest = 1;
  for (int64_t i = 0; i < array.type.numbers(); ++i)
    largest = std::max(largest, std::abs(array.at(i)));
  return largest;
}

/// The difference from the model that is allowed, relative to the largest number.
double PrecisionOf(Scalar scalar, Sampling sampling) {
  if (sampling == Sampling::kNearest) return 0;
  if (scalar == Scalar::kF16 || scalar == Scalar::kC32) return 2e-3;
  const bool wide = SizeOf(scalar) >= 4 && scalar != Scalar::kF32 && scalar != Scalar::kC64;
  return wide ? 1e-13 : sampling == Sampling::kCubic ? 3e-6 : 1e-6;
}

class WarpTest : public OpsTest {
 protected:
  // `positions`: one coordinate for each axis of `in`, result by result.
  void ExpectSampled(const HostArray& out, const HostArray& in, const SamplingRules& rules,
                     const std::vector<std::vector<double>>& positions, const std::string& what) {
    const int64_t lanes = in.type.lanes;
    ASSERT_EQ(out.type.numbers(), std::ssize(positions) * lanes) << what;
    ASSERT_EQ(out.type.scalar, in.type.scalar) << what;
    std::vector<AxisModel> axes;
    for (const int64_t n : in.type.dims) axes.emplace_back(n, rules);
    const Scalar scalar = in.type.scalar;
    const double allowed = PrecisionOf(scalar, rules.sampling) * LargestOf(in) +
                           (IsIntegral(scalar) && rules.sampling != Sampling::kNearest ? 0.5 : 0);
    int64_t compared = 0;
    for (size_t r = 0; r < positions.size(); ++r) {
      bool outside = false, near = false;
      std::vector<std::vector<double>> weights;
      for (size_t d = 0; d < axes.size(); ++d) {
        const auto found = axes[d].WeightsAt(positions[r][d]);
        outside |= !found.has_value();
        near |= found.has_value() && found->empty();
        weights.push_back(found.value_or(std::vector<double>{}));
      }
      if (near) continue;
      ++compared;
      for (int64_t lane = 0; lane < lanes; ++lane) {
        Complex wanted = 0;
        for (int64_t e = 0; !outside && e < in.type.numbers() / lanes; ++e) {
          double weight = 1;
          int64_t rest = e;
          for (size_t d = axes.size(); d-- > 0; rest /= in.type.dims[d])
            weight *= weights[d][static_cast<size_t>(rest % in.type.dims[d])];
          if (weight != 0) wanted += weight * in.at(e * lanes + lane);
        }
        wanted = Clipped(scalar, wanted);
        if (outside) {
          std::vector<uint8_t> cell(16);
          math::Store(scalar, cell.data(), 0, rules.constant);
          const math::Number stored = math::Load(scalar, cell.data(), 0);
          wanted = {stored.re, stored.im};
        }
        const Complex got = out.at(static_cast<int64_t>(r) * lanes + lane);
        ASSERT_LE(std::abs(got - wanted), outside ? 0 : allowed)
            << what << " of " << in.type.Text() << " result " << r << " lane " << lane << ": "
            << got << ", wanted " << wanted << " at " << positions[r][0];
      }
    }
    ASSERT_GT(compared, std::ssize(positions) / 2) << what;
  }

  std::vector<int64_t> RandomShape(size_t rank, int64_t most) {
    std::vector<int64_t> shape(rank);
    for (auto& n : shape) n = 1 + static_cast<int64_t>(random_() % static_cast<uint32_t>(most));
    return shape;
  }
  HostArray RandomArray(Scalar scalar, std::vector<int64_t> dims) {
    const int64_t lanes = random_() % 4 == 0 ? 3 : 1;
    return MakeRandom({.scalar = scalar, .lanes = lanes, .dims = std::move(dims)},
                      static_cast<uint32_t>(random_()));
  }
  SamplingRules RandomRules(Sampling sampling, SampleEdge edge) {
    return {
        .sampling = sampling, .edge = edge, .constant = {7, 0}, .prefilter = random_() % 4 != 0};
  }
  double Between(double lo, double hi) {
    return std::uniform_real_distribution<double>(lo, hi)(random_);
  }
  /// An array of f64, f32 or i16 with values up to `span` beyond the ends of an axis of n samples,
  /// which it gives back as stored.
  static HostArray Numbers(ArrayType type, const std::vector<double>& values) {
    HostArray array{.type = std::move(type), .bytes = {}};
    array.bytes.resize(static_cast<size_t>(array.type.bytes()));
    for (size_t i = 0; i < values.size(); ++i)
      math::Store(array.type.scalar, array.bytes.data(), static_cast<int64_t>(i), {values[i], 0});
    return array;
  }
  std::mt19937 random_{octavo::testing::Seeds::Get().Next()};
};

const char* Name(Sampling s) {
  return s == Sampling::kNearest ? "nearest" : s == Sampling::kLinear ? "linear" : "cubic";
}
std::string What(const char* op, const SamplingRules& rules) {
  return absl::StrCat(op, " ", Name(rules.sampling), " edge ", static_cast<int>(rules.edge),
                      rules.prefilter ? "" : " of coefficients");
}

TEST_P(WarpTest, AffineOfEveryTypeAndRank) {
  size_t next = random_();
  for (const Sampling sampling : kSamplings) {
    for (const SampleEdge edge : kEdges) {
      for (size_t rank = 1; rank <= 3; ++rank) {
        for (int turn = 0; turn < 2; ++turn) {
          const HostArray in = RandomArray(kAll[next++ % std::size(kAll)], RandomShape(rank, 9));
          AffineOp op{.rules = RandomRules(sampling, edge)};
          if (turn == 0) op.shape = RandomShape(rank, 9);
          for (size_t i = 0; i < rank * rank; ++i) op.matrix.push_back(Between(-1.2, 1.2));
          for (size_t d = 0; d < rank; ++d) op.offset.push_back(Between(-2, 8));
          const HostArray out = Run({op}, in);
          const std::vector<int64_t> shape = turn == 0 ? op.shape : in.type.dims;
          ASSERT_EQ(out.type.dims, shape);
          std::vector<std::vector<double>> positions;
          for (int64_t i = 0; i < out.type.numbers() / in.type.lanes; ++i) {
            std::vector<double> index(rank), x = op.offset;
            int64_t rest = i;
            for (size_t d = rank; d-- > 0; rest /= shape[d])
              index[d] = static_cast<double>(rest % shape[d]);
            for (size_t d = 0; d < rank; ++d) {
              for (size_t e = 0; e < rank; ++e) x[d] += op.matrix[d * rank + e] * index[e];
            }
            positions.push_back(x);
          }
          ExpectSampled(out, in, op.rules, positions, What("affine", op.rules));
        }
      }
    }
  }
}

TEST_P(WarpTest, CoordinatesInEveryLayout) {
  size_t next = random_();
  for (const Sampling sampling : kSamplings) {
    for (const SampleEdge edge : kEdges) {
      for (size_t rank = 1; rank <= 3; ++rank) {
        for (int layout = 0; layout < 3; ++layout) {
          const HostArray in = RandomArray(kAll[next++ % std::size(kAll)], RandomShape(rank, 8));
          const auto axes = static_cast<int64_t>(rank);
          MapCoordinatesOp op{.rules = RandomRules(sampling, edge)};
          const Scalar kinds[] = {Scalar::kF64, Scalar::kF32, Scalar::kI16};
          ArrayType type{.scalar = kinds[random_() % 3], .lanes = 1, .dims = {}};
          std::vector<int64_t> shape = RandomShape(layout == 0 ? 1 + random_() % 2 : 3, 7);
          int64_t results = 1;
          for (const int64_t n : shape) results *= n;
          if (layout == 0) {
            type.dims = shape;
            type.dims.insert(type.dims.begin(), axes);
          } else if (layout == 1) {
            type.dims = {axes * results};
            op.shape = shape;
          } else {
            type.dims = shape;
            type.lanes = axes;
            if (rank == 1) op.shape = shape;
          }
          std::vector<double> values(static_cast<size_t>(axes * results));
          std::vector<std::vector<double>> positions(static_cast<size_t>(results));
          for (int64_t i = 0; i < results; ++i) {
            for (int64_t d = 0; d < axes; ++d) {
              const auto n = static_cast<double>(in.type.dims[static_cast<size_t>(d)]);
              values[static_cast<size_t>(layout == 2 ? i * axes + d : d * results + i)] =
                  Between(-2 * n, 3 * n);
            }
          }
          if (type.scalar == Scalar::kF32) values[0] = std::nan("");
          const HostArray coordinates = Numbers(type, values);
          for (int64_t i = 0; i < results; ++i) {
            for (int64_t d = 0; d < axes; ++d) {
              positions[static_cast<size_t>(i)].push_back(
                  coordinates.at(layout == 2 ? i * axes + d : d * results + i).real());
            }
          }
          const HostArray out = Run({op}, in, {coordinates});
          ASSERT_EQ(out.type.dims, shape);
          ExpectSampled(out, in, op.rules, positions,
                        absl::StrCat(What("map_coordinates", op.rules), " layout ", layout));
        }
      }
    }
  }
}

TEST_P(WarpTest, DisplacementsMoveEachResult) {
  size_t next = random_();
  for (const Sampling sampling : kSamplings) {
    for (const SampleEdge edge : kEdges) {
      for (size_t rank = 1; rank <= 3; ++rank) {
        const std::vector<int64_t> shape = RandomShape(rank, 8);
        const HostArray in = RandomArray(kAll[next++ % std::size(kAll)], shape);
        const auto axes = static_cast<int64_t>(rank);
        const bool lanes = random_() % 2 == 0;
        ArrayType type{.scalar = random_() % 2 == 0 ? Scalar::kF32 : Scalar::kF64,
                       .lanes = lanes ? axes : 1,
                       .dims = shape};
        const int64_t results = in.type.numbers() / in.type.lanes;
        if (!lanes && rank < 3) {
          type.dims.insert(type.dims.begin(), axes);
        } else if (!lanes) {
          type.dims[0] *= axes;
        } else if (rank == 1 && random_() % 2 == 0) {
          type.dims = {1, shape[0]};
        }
        std::vector<double> values(static_cast<size_t>(axes * results));
        for (double& v : values) v = Between(-6, 6);
        const HostArray field = Numbers(type, values);
        std::vector<std::vector<double>> positions;
        for (int64_t i = 0; i < results; ++i) {
          std::vector<double> x(rank);
          int64_t rest = i;
          for (size_t d = rank; d-- > 0; rest /= shape[d]) {
            const auto axis = static_cast<int64_t>(d);
            x[d] = static_cast<double>(rest % shape[d]) +
                   field.at(type.lanes > 1 ? i * axes + axis : axis * results + i).real();
          }
          positions.push_back(x);
        }
        const DisplaceOp op{.rules = RandomRules(sampling, edge)};
        ExpectSampled(Run({op}, in, {field}), in, op.rules, positions, What("displace", op.rules));
      }
    }
  }
}

TEST_P(WarpTest, ShiftsEachColumn) {
  size_t next = random_();
  for (const Sampling sampling : kSamplings) {
    for (const SampleEdge edge : kEdges) {
      for (int64_t axis = 0; axis < 3; ++axis) {
        const std::vector<int64_t> dims = RandomShape(3, 8);
        const HostArray in = RandomArray(kAll[next++ % std::size(kAll)], dims);
        std::vector<int64_t> columns = dims;
        columns.erase(columns.begin() + axis);
        const auto n = static_cast<double>(dims[static_cast<size_t>(axis)]);
        std::vector<double> values(static_cast<size_t>(columns[0] * columns[1]));
        const bool whole = random_() % 2 == 0;
        for (double& v : values) v = whole ? std::round(Between(-2 * n, 2 * n)) : Between(-n, n);
        const HostArray amounts = Numbers(
            {.scalar = whole ? Scalar::kI32 : Scalar::kF64, .lanes = 1, .dims = columns}, values);
        const ShiftOp op{.rules = RandomRules(sampling, edge),
                         .axis = random_() % 2 == 0 ? axis : axis - 3};
        const HostArray out = Run({op}, in, {amounts});
        ASSERT_EQ(out.type, in.type);
        // Each column by itself, as an array of one axis.
        const int64_t lanes = in.type.lanes, size = SizeOf(in.type.scalar) * lanes;
        for (int64_t c = 0; c < std::ssize(values); ++c) {
          const int64_t c0 = c / columns[1], c1 = c % columns[1];
          HostArray line{.type = {.scalar = in.type.scalar,
                                  .lanes = lanes,
                                  .dims = {dims[static_cast<size_t>(axis)]}},
                         .bytes = {}},
              made = line;
          std::vector<std::vector<double>> positions;
          for (int64_t i = 0; i < line.type.dims[0]; ++i) {
            const int64_t at = (axis == 0   ? in.index(i, c0, c1, 0)
                                : axis == 1 ? in.index(c0, i, c1, 0)
                                            : in.index(c0, c1, i, 0)) /
                               lanes * size;
            line.bytes.insert(line.bytes.end(), in.bytes.begin() + at,
                              in.bytes.begin() + at + size);
            made.bytes.insert(made.bytes.end(), out.bytes.begin() + at,
                              out.bytes.begin() + at + size);
            positions.push_back({static_cast<double>(i) - amounts.at(c).real()});
          }
          ExpectSampled(made, line, op.rules, positions,
                        absl::StrCat(What("shift", op.rules), " axis ", axis));
        }
      }
    }
  }
}

// Lines of many segments, along each axis, against the definition: at a sample (c[i-1] + 4 c[i] +
// c[i+1]) / 6 is the sample, and half way between two it is (c[i-1] + 23 c[i] + 23 c[i+1] +
// c[i+2]) / 48.
TEST_P(WarpTest, LongLinesHaveTheirSpline) {
  for (const Scalar scalar : {Scalar::kF32, Scalar::kF64, Scalar::kU16, Scalar::kC64}) {
    for (const int64_t n : {31, 32, 33, 64, 1000, 1057, 2500}) {
      for (int64_t axis = 0; axis < 3; ++axis) {
        for (const SampleEdge edge : kEdges) {
          std::vector<int64_t> dims = {2, 3, 5};
          dims[static_cast<size_t>(axis)] = n;
          const HostArray in =
              MakeRandom({.scalar = scalar, .dims = dims}, static_cast<uint32_t>(random_()));
          AffineOp op{.rules = {.sampling = Sampling::kCubic, .edge = edge},
                      .matrix = {1, 0, 0, 0, 1, 0, 0, 0, 1},
                      .offset = {0, 0, 0}};
          const HostArray same = Run({op}, in);
          op.offset[static_cast<size_t>(axis)] = 0.5;
          const HostArray half = Run({op}, in);
          const double allowed = PrecisionOf(scalar, Sampling::kCubic) * LargestOf(in) +
                                 (IsIntegral(scalar) ? 0.5 : 0);
          for (int64_t i = 0; i < in.type.numbers(); ++i)
            ASSERT_LE(std::abs(same.at(i) - in.at(i)), allowed) << in.type.Text() << " at " << i;
          for (int64_t line = 0; line < 2; ++line) {
            const auto at = [&](int64_t i) {
              return axis == 0   ? in.index(i, line, 1, 0)
                     : axis == 1 ? in.index(line, i, 1, 0)
                                 : in.index(line, 1, i, 0);
            };
            constexpr int64_t kMargin = 60;
            std::vector<double> samples;
            for (int64_t i = -kMargin; i < n + kMargin; ++i)
              samples.push_back(in.at(at(Beyond(edge, i, n))).real());
            const std::vector<double> c = Coefficients(samples);
            for (int64_t i = 0; i + 1 < n; ++i) {
              const auto k = static_cast<size_t>(i + kMargin);
              const double wanted =
                  Clipped(scalar, (c[k - 1] + 23 * c[k] + 23 * c[k + 1] + c[k + 2]) / 48).real();
              ASSERT_LE(std::abs(half.at(at(i)).real() - wanted), allowed)
                  << in.type.Text() << " axis " << axis << " edge " << static_cast<int>(edge)
                  << " at " << i;
            }
          }
        }
      }
    }
  }
}

TEST_P(WarpTest, PositionsOnSamplesGiveThem) {
  HostArray in = MakeRandom({.scalar = Scalar::kF32, .dims = {6, 7, 8}}, 3);
  math::Store(Scalar::kF32, in.bytes.data(), 100, {std::nan(""), 0});
  math::Store(Scalar::kF32, in.bytes.data(), 200, {HUGE_VAL, 0});
  for (const Sampling sampling : {Sampling::kNearest, Sampling::kLinear}) {
    for (const SampleEdge edge : kEdges) {
      const AffineOp op{.rules = {.sampling = sampling, .edge = edge},
                        .matrix = {1, 0, 0, 0, 1, 0, 0, 0, 1},
                        .offset = {}};
      EXPECT_EQ(Run({op}, in).bytes, in.bytes) << What("identity", op.rules);
    }
  }
  // Numbers of 64 bits keep all of them.
  const HostArray wide = MakeRandom({.scalar = Scalar::kU64, .dims = {5}}, 4);
  HostArray odd = wide;
  for (size_t i = 0; i < odd.bytes.size(); ++i) odd.bytes[i] = static_cast<uint8_t>(7 * i + 129);
  const AffineOp copy{.rules = {.sampling = Sampling::kNearest}, .matrix = {1}, .offset = {}};
  EXPECT_EQ(Run({copy}, odd).bytes, odd.bytes);
}

// Rounding alone must not put the end of an axis outside: i (n - 1)/(m - 1), computed as i times a
// step, exceeds n - 1 for the last i of many pairs.
TEST_P(WarpTest, RoundingLeavesNoEndOutside) {
  int beyond = 0;
  for (int64_t n = 2; n < 30; ++n) {
    const HostArray in = MakeRandom({.scalar = Scalar::kF64, .dims = {n}}, 5);
    for (int64_t m = 2; m < 60; ++m) {
      const double step = static_cast<double>(n - 1) / static_cast<double>(m - 1);
      beyond += step * static_cast<double>(m - 1) > static_cast<double>(n - 1);
      const AffineOp op{
          .rules = {.constant = {1e9, 0}}, .matrix = {step}, .offset = {}, .shape = {m}};
      const HostArray out = Run({op}, in);
      ASSERT_LE(std::abs(out.at(m - 1) - in.at(n - 1)), 1e-10) << n << " to " << m;
    }
  }
  EXPECT_GT(beyond, 0);
  // What lies outside by more is outside.
  const HostArray in = MakeRandom({.scalar = Scalar::kF64, .dims = {4}}, 6);
  const AffineOp op{.rules = {.constant = {5, 0}}, .matrix = {1}, .offset = {-1e-6}};
  EXPECT_EQ(Run({op}, in).at(0), Complex(5));
}

TEST_P(WarpTest, FarPositionsStayInside) {
  const HostArray in = MakeRandom({.scalar = Scalar::kF32, .dims = {5, 3}}, 7);
  std::vector<double> values;
  for (const double far : {1e300, -1e300, HUGE_VAL, -HUGE_VAL, 1e17, -4e15, std::nan(""), 1e30})
    values.push_back(far);
  values.insert(values.end(), 8, 1.0);
  const HostArray coordinates =
      Numbers({.scalar = Scalar::kF64, .lanes = 1, .dims = {2, 8}}, values);
  for (const Sampling sampling : kSamplings) {
    for (const SampleEdge edge : kEdges) {
      const MapCoordinatesOp op{
          .rules = {.sampling = sampling, .edge = edge, .constant = {-9e5, 0}}};
      const HostArray out = Run({op}, in, {coordinates});
      for (int64_t i = 0; i < 8; ++i) {
        const double v = out.at(i).real();
        const bool constant =
            edge == SampleEdge::kConstant || std::isnan(values[static_cast<size_t>(i)]);
        if (constant) {
          EXPECT_EQ(v, -9e5) << What("far", op.rules) << " " << i;
        } else {
          EXPECT_TRUE(v == -9e5f || std::abs(v) < 1000) << What("far", op.rules) << " " << i;
        }
      }
    }
  }
}

TEST_P(WarpTest, WhatCannotBeSampledIsRefusedByName) {
  const ArrayType in{.scalar = Scalar::kF32, .dims = {4, 5, 6}};
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const auto refused = [&](const Op& op, const std::vector<ArrayType>& others = {}) {
    return PlanChain({op}, in, others, false, "operations").status();
  };
  const auto real = [](std::vector<int64_t> dims, int64_t lanes = 1) {
    return ArrayType{.scalar = Scalar::kF32, .lanes = lanes, .dims = std::move(dims)};
  };
  const std::vector<double> identity = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  EXPECT_THAT(refused(AffineOp{.matrix = {1, 2}}),
              IsError(kInvalid, "operations[0].affine.matrix: has 2 numbers; allowed 9"));
  EXPECT_THAT(refused(AffineOp{.matrix = identity, .offset = {1}}),
              IsError(kInvalid, "affine.offset: has 1 numbers; allowed none or 3"));
  EXPECT_THAT(refused(AffineOp{.matrix = identity, .offset = {}, .shape = {2, 2}}),
              IsError(kInvalid, "affine.shape: has 2 numbers"));
  EXPECT_THAT(refused(AffineOp{.matrix = identity, .offset = {}, .shape = {2, -2, 1}}),
              IsError(kInvalid, "affine.shape: [1] is -2; allowed 0 (as it is) to 2^31"));
  EXPECT_THAT(refused(AffineOp{.matrix = identity, .offset = {0, NAN, 0}}),
              IsError(kInvalid, "affine.offset: [1] is nan; allowed are finite numbers"));
  EXPECT_THAT(refused(AffineOp{.rules = {.constant = {0, 1}}, .matrix = identity}),
              IsError(kInvalid, "affine.constant.im: is 1; allowed 0"));
  EXPECT_THAT(refused(MapCoordinatesOp{}),
              IsError(kInvalid, "map_coordinates.coordinates: is empty"));
  EXPECT_THAT(refused(MapCoordinatesOp{}, {real({2, 7})}),
              IsError(kInvalid,
                      "map_coordinates.coordinates: is f32[2, 7]; allowed for f32[4, 5, "
                      "6]: [3, ...]"));
  EXPECT_THAT(refused(MapCoordinatesOp{}, {real({7}, 2)}), IsError(kInvalid, "3 lanes"));
  EXPECT_THAT(refused(MapCoordinatesOp{.shape = {2, 2}}, {real({3, 5})}),
              IsError(kInvalid, "3 x 2 x 2 numbers"));
  EXPECT_THAT(refused(MapCoordinatesOp{.shape = {0}}, {real({3, 5})}),
              IsError(kInvalid, "map_coordinates.shape: [0] is 0; allowed 1 to 2^31"));
  EXPECT_THAT(refused(MapCoordinatesOp{}, {{.scalar = Scalar::kC64, .dims = {3, 5}}}),
              IsError(kInvalid, "allowed are real numbers"));
  EXPECT_THAT(refused(DisplaceOp{}, {real({4, 5, 6})}),
              IsError(kInvalid,
                      "displace.field: is f32[4, 5, 6]; allowed for f32[4, 5, 6]: [12, 5, "
                      "6], or [4, 5, 6] with 3 lanes"));
  EXPECT_THAT(refused(ShiftOp{.axis = 3}, {real({4, 5})}),
              IsError(kInvalid, "shift.axis: is 3; allowed -3 to 2"));
  EXPECT_THAT(refused(ShiftOp{.axis = 1}, {real({4, 5})}),
              IsError(kInvalid, "shift.amounts: is f32[4, 5]; allowed [4, 6]"));
  // The second array is read before an output in its place is written.
  const auto plan = PlanChain({ShiftOp{.axis = 0}}, real({4, 5}), {real({5})}, true, "operations");
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->steps.size(), 2u);
}

INSTANTIATE_TEST_SUITE_P(Backends, WarpTest, ::testing::ValuesIn(testing::AvailableBackends()),
                         testing::BackendName);

}  // namespace
}  // namespace octavo

// Sections stacked: every voxel, gain and place against plain loops; and a phantom cut into
// sections whose overlaps, places and brightness are known.

#include "gpu/mosaic/stack_sections.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "gmock/gmock.h"

#include "tests/gpu/mosaic/mosaic_fixture.h"
#include "tests/support/seed.h"

namespace octavo {
namespace {

using testing::IsError;
using testing::IsOk;
using testing::StoredArray;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class StackSectionsTest : public testing::ProgramTest {
 protected:
  std::mt19937 random_{testing::FreshSeed()};
  int64_t Draw(int64_t lo, int64_t hi) {
    return std::uniform_int_distribution<int64_t>(lo, hi)(random_);
  }
  double Uniform(double lo, double hi) {
    return std::uniform_real_distribution<double>(lo, hi)(random_);
  }

  static std::vector<ArrayType> TypesOf(const std::vector<StoredArray>& sections) {
    std::vector<ArrayType> types;
    for (const StoredArray& one : sections) types.push_back(one.type);
    return types;
  }
  /// The stack of the sections, measured.
  absl::StatusOr<SectionStack> Measured(const StackSectionsSpec& spec,
                                        const std::vector<StoredArray>& sections) {
    OCTAVO_ASSIGN_OR_RETURN(SectionStack stack, SectionStack::Plan(spec, TypesOf(sections)));
    OCTAVO_RETURN_IF_ERROR(
        stack.Measure([&](const SlicedProgram& program,
                          const std::vector<size_t>& which) -> absl::StatusOr<std::vector<char>> {
          std::vector<StoredArray> inputs;
          for (const size_t i : which) inputs.push_back(sections[i]);
          const std::vector<uint8_t> bytes = RunBytes(program, inputs);
          return std::vector<char>(bytes.begin(), bytes.end());
        }));
    return stack;
  }

  /// What the definition makes, in loops over sections and voxels.
  struct Model {
    const StackSectionsSpec& spec;
    const std::vector<StoredArray>& sections;
    std::vector<int64_t> z, overlap, planes;
    std::vector<double> y, x, gain;
    int64_t extent[3] = {0, 1, 1};
    double origin[2] = {0, 0};
    std::vector<double> values;  // NaN: no section
    std::vector<bool> valid;

    Model(const StackSectionsSpec& s, const std::vector<StoredArray>& of) : spec(s), sections(of) {
      const size_t n = of.size();
      std::vector<double> at[2];
      for (int d = 0; d < 2; ++d) {
        for (size_t i = 0; i < n; ++i) {
          double v = s.position_um[i][d + 1] / s.spacing_um[d + 1];
          if (s.center_on_middle) v -= s.position_um[n / 2][d + 1] / s.spacing_um[d + 1];
          if (s.whole_voxels) v = std::nearbyint(v);
          at[d].push_back(v);
        }
        double least = *std::min_element(at[d].begin(), at[d].end());
        if (s.center_on_middle) least = std::ceil(least - 1e-9);
        for (double& v : at[d]) v -= least;
        origin[d] = least;
      }
      y = at[0];
      x = at[1];
      for (size_t i = 0; i < n; ++i) {
        const auto& dims = of[i].type.dims;
        planes.push_back(dims[0] - (i == 0 ? 0 : s.moving_first_plane));
        overlap.push_back(i == 0 ? 0 : s.overlap[i - 1]);
        z.push_back(i == 0 ? 0 : z[i - 1] + planes[i - 1] - overlap[i]);
        extent[0] = z[i] + planes[i];
        extent[1] = std::max(extent[1], static_cast<int64_t>(std::floor(y[i] + 1e-9)) + dims[1]);
        extent[2] = std::max(extent[2], static_cast<int64_t>(std::floor(x[i] + 1e-9)) + dims[2]);
      }
      values.assign(static_cast<size_t>(extent[0] * extent[1] * extent[2]), kNan);
      valid.assign(values.size(), false);
      for (size_t i = 0; i < n; ++i) Add(i);
    }
    /// A section's value, without its gain; NaN beyond it.
    double At(size_t i, int64_t pz, int64_t py, int64_t px) const {
      const auto& dims = sections[i].type.dims;
      const int64_t k = pz - z[i] + (i == 0 ? 0 : spec.moving_first_plane);
      double v = static_cast<double>(py) - y[i], u = static_cast<double>(px) - x[i];
      if (std::abs(v - std::round(v)) < 1e-9) v = std::round(v);
      if (std::abs(u - std::round(u)) < 1e-9) u = std::round(u);
      if (pz < z[i] || pz >= z[i] + planes[i] || v < 0 || u < 0 ||
          v > static_cast<double>(dims[1] - 1) || u > static_cast<double>(dims[2] - 1))
        return kNan;
      double sum = 0;
      for (int64_t dy = 0; dy < 2; ++dy) {
        for (int64_t dx = 0; dx < 2; ++dx) {
          const double wy = 1 - std::abs(v - std::floor(v) - static_cast<double>(dy)),
                       wx = 1 - std::abs(u - std::floor(u) - static_cast<double>(dx));
          if (wy <= 0 || wx <= 0) continue;
          sum += wy * wx *
                 sections[i].at((k * dims[1] + static_cast<int64_t>(v) + dy) * dims[2] +
                                static_cast<int64_t>(u) + dx);
        }
      }
      return sum;
    }
    void Add(size_t i) {
      std::vector<double> before, moving;
      double by = 1;
      for (const bool apply : {false, true}) {
        if (!apply && (!spec.match_intensity || i == 0)) continue;
        for (int64_t k = 0; k < static_cast<int64_t>(values.size()); ++k) {
          const int64_t pz = k / (extent[1] * extent[2]);
          const double v = At(i, pz, k / extent[2] % extent[1], k % extent[2]) * by;
          double& now = values[static_cast<size_t>(k)];
          if (!apply) {
            if (v > 0 && now > 0 && std::isfinite(v) && std::isfinite(now))
              before.push_back(now), moving.push_back(v);
            continue;
          }
          if (std::isnan(v)) continue;
          const bool counts = v > spec.valid_above, had = valid[static_cast<size_t>(k)];
          if (had && !counts) continue;
          if (!had || spec.blend == SectionBlend::kLater || spec.blend == SectionBlend::kDefault) {
            now = v;
          } else if (spec.blend == SectionBlend::kHann) {
            const int64_t m = pz - z[i], count = overlap[i];
            const double w = count == 1 ? 0
                                        : 0.5 * (1 - std::cos(M_PI * static_cast<double>(m) /
                                                              static_cast<double>(count - 1)));
            now = now * (1 - w) + v * w;
          }
          valid[static_cast<size_t>(k)] = had || counts;
        }
        if (apply || static_cast<int64_t>(before.size()) <= spec.gain_min_voxels) continue;
        by = std::clamp(Median(before) / Median(moving), spec.gain_least, spec.gain_most);
        if (std::abs(by - 1) <= 0.01) by = 1;
      }
      gain.push_back(by);
    }
    static double Median(std::vector<double> v) {
      std::sort(v.begin(), v.end());
      return (v[(v.size() - 1) / 2] + v[v.size() / 2]) / 2;
    }
  };
};

TEST_P(StackSectionsTest, FollowsTheDefinition) {
  for (int round = 0; round < 60; ++round) {
    const Scalar scalar = std::vector{Scalar::kF32, Scalar::kU16, Scalar::kU8,
                                      Scalar::kF64}[static_cast<size_t>(round) % 4];
    const bool real = !IsIntegral(scalar);
    const auto n = static_cast<size_t>(Draw(1, 5));
    StackSectionsSpec spec{.spacing_um = {{10, 2.5, 0.5}},
                           .center_on_middle = Draw(0, 1) == 1,
                           .whole_voxels = Draw(0, 1) == 1,
                           .moving_first_plane = Draw(0, 2),
                           .match_intensity = Draw(0, 2) > 0,
                           .gain_min_voxels = Draw(0, 1) * 200,
                           .blend = static_cast<SectionBlend>(Draw(0, 3)),
                           .valid_above = real && Draw(0, 1) == 1 ? -1e300 : 0};
    if (Draw(0, 2) == 0) spec.scalar = real ? Scalar::kU16 : Scalar::kF32;
    if (Draw(0, 1) == 1) spec.gap = 7;
    std::vector<StoredArray> sections;
    for (size_t i = 0; i < n; ++i) {
      const int64_t dims[3] = {Draw(4, 9), Draw(3, 14), Draw(3, 14)};
      const double bright = Uniform(0.3, 2);
      std::vector<double> values;
      for (int64_t k = 0; k < dims[0] * dims[1] * dims[2]; ++k) {
        const int64_t kind = Draw(0, 14);
        double v = std::floor(bright * Uniform(30, 90));
        if (kind == 0) v = 0;
        if (real && kind == 1) v = kNan;
        if (real && kind == 2) v = -v;
        values.push_back(v);
      }
      sections.emplace_back(scalar, std::vector<int64_t>{dims[0], dims[1], dims[2]}, values);
      const double step = Draw(0, 1) == 1 ? 1 : 0.37;
      spec.position_um.push_back({{99, 2.5 * step * static_cast<double>(Draw(-6, 6)),
                                   0.5 * step * static_cast<double>(Draw(-6, 6))}});
      if (i > 0) {
        const int64_t most =
            std::min(sections[i - 1].type.dims[0] - (i == 1 ? 0 : spec.moving_first_plane),
                     dims[0] - spec.moving_first_plane);
        spec.overlap.push_back(Draw(0, most));
      }
    }
    SCOPED_TRACE(::testing::Message() << "round " << round);
    const auto stack = Measured(spec, sections);
    ASSERT_THAT(stack, IsOk());
    const Model model(spec, sections);
    const auto program = stack->Program();
    ASSERT_THAT(program, IsOk());
    const Scalar out = spec.scalar == Scalar{} ? scalar : spec.scalar;
    ASSERT_EQ((*program)->out(),
              (ArrayType{.scalar = out, .dims = {model.extent, model.extent + 3}}));
    EXPECT_EQ(stack->total_z(), model.extent[0]);
    for (int d = 0; d < 2; ++d) {
      const double from = spec.center_on_middle ? spec.position_um[n / 2][d + 1] : 0;
      EXPECT_NEAR(stack->origin_um()[d + 1], from + model.origin[d] * spec.spacing_um[d + 1], 1e-9);
    }
    for (size_t i = 0; i < n; ++i) {
      const StackedSection& report = stack->sections()[i];
      EXPECT_EQ(report.first_plane, model.z[i]);
      EXPECT_EQ(report.planes, model.planes[i]);
      EXPECT_EQ(report.overlap, model.overlap[i]);
      EXPECT_NEAR(report.gain, model.gain[i], 1e-5);
      EXPECT_EQ(report.overlap_state, i == 0 ? OverlapState::kNone : OverlapState::kGiven);
    }
    const std::vector<double> got = Run(**program, sections);
    const double gap = spec.gap.value_or(IsIntegral(out) ? 0 : kNan);
    for (size_t k = 0; k < got.size(); ++k) {
      double wanted = std::isnan(model.values[k]) ? gap : model.values[k];
      if (std::isnan(wanted)) {
        ASSERT_TRUE(std::isnan(got[k])) << k;
        continue;
      }
      if (IsIntegral(out))
        wanted = std::clamp(std::round(wanted), 0.0, out == Scalar::kU8 ? 255.0 : 65535.0);
      // A number between two integers may be rounded to either.
      ASSERT_NEAR(got[k], wanted, IsIntegral(out) ? 1 : 1e-5 * std::abs(wanted) + 1e-9) << k;
    }
  }
}

TEST_P(StackSectionsTest, APhantomComesTogether) {
  // Blobs known between the voxels, cut into sections that overlap by known numbers of planes. The
  // stage is off by up to a voxel, each section has its brightness, all have noise.
  struct Blob {
    double z, y, x, size, bright;
  };
  for (const Scalar scalar : {Scalar::kF32, Scalar::kU16}) {
    const int64_t planes = 24, side = 72, n = 5, first = 2;
    std::vector<Blob> blobs;
    for (int i = 0; i < 900; ++i) {
      blobs.push_back({Uniform(-4, 110), Uniform(-15, 95), Uniform(-15, 95), Uniform(1.8, 3.5),
                       Uniform(0.4, 1.5)});
    }
    std::vector<StoredArray> sections;
    std::vector<int64_t> overlaps;
    std::vector<double> off[2];
    StackSectionsSpec spec{.spacing_um = {{10, 5, 5}},
                           .moving_first_plane = first,
                           .slicing_interval_um = 150,
                           .search_range_um = 60,
                           .min_correlation = 0.3,
                           .consistency_tolerance = 10,  // the overlaps are all different
                           .refine_limit_um = 25,
                           .match_intensity = true,
                           .blend = SectionBlend::kHann};
    std::normal_distribution<double> noise(0, 0.03);
    int64_t top = 0;
    std::vector<double> bright;
    for (int64_t i = 0; i < n; ++i) {
      if (i > 0) {
        overlaps.push_back(Draw(4, 11));
        top += planes - first - overlaps.back();
      }
      const double y = 5 * static_cast<double>(Draw(-1, 1)),
                   x = 5 * static_cast<double>(Draw(-1, 1));
      off[0].push_back(y / 5 + Uniform(-1, 1));
      off[1].push_back(x / 5 + Uniform(-1, 1));
      spec.position_um.push_back({{0, y, x}});
      bright.push_back(i == 0 ? 1 : Uniform(0.7, 1.4));
      const int64_t skipped = i == 0 ? 0 : first;
      std::vector<double> values(static_cast<size_t>((planes + skipped - first) * side * side));
      // Its first planes are not of the sample; `top` is where the others begin.
      const int64_t count = planes + skipped - first;
      for (int64_t z = 0; z < count; ++z) {
        for (int64_t k = 0; k < side * side; ++k)
          values[static_cast<size_t>(z * side * side + k)] = 0.4 + noise(random_);
      }
      for (const Blob& b : blobs) {
        const double cz = b.z - static_cast<double>(top - skipped), cy = b.y - off[0].back(),
                     cx = b.x - off[1].back(), reach = 3.5 * b.size;
        for (auto z = std::max<int64_t>(0, std::llround(cz - reach));
             z < std::min<int64_t>(count, std::llround(cz + reach)); ++z) {
          for (auto yy = std::max<int64_t>(0, std::llround(cy - reach));
               yy < std::min<int64_t>(side, std::llround(cy + reach)); ++yy) {
            for (auto xx = std::max<int64_t>(0, std::llround(cx - reach));
                 xx < std::min<int64_t>(side, std::llround(cx + reach)); ++xx) {
              const double square = std::pow(static_cast<double>(z) - cz, 2) +
                                    std::pow(static_cast<double>(yy) - cy, 2) +
                                    std::pow(static_cast<double>(xx) - cx, 2);
              values[static_cast<size_t>((z * side + yy) * side + xx)] +=
                  b.bright * std::exp(-square / (2 * b.size * b.size));
            }
          }
        }
      }
      for (double& v : values) v *= bright.back() * (scalar == Scalar::kU16 ? 3000 : 1);
      for (int64_t k = 0; k < skipped * side * side; ++k) values[static_cast<size_t>(k)] = 0;
      sections.emplace_back(scalar, std::vector<int64_t>{count, side, side}, values);
    }
    const auto stack = Measured(spec, sections);
    ASSERT_THAT(stack, IsOk());
    for (size_t i = 1; i < sections.size(); ++i) {
      const StackedSection& report = stack->sections()[i];
      EXPECT_EQ(report.overlap_state, OverlapState::kFound) << i;
      EXPECT_EQ(report.overlap, overlaps[i - 1]) << i << " " << report.correlation;
      EXPECT_TRUE(report.refinement_state == RefinementState::kApplied ||
                  report.refinement_state == RefinementState::kSmall)
          << i;
      EXPECT_GT(report.refinement_confidence, 0.7);
      EXPECT_NEAR(report.gain, 1 / bright[i], 0.05 / bright[i]) << i;
      for (int d = 1; d < 3; ++d) {
        const double wanted = off[d - 1][i] - off[d - 1][i - 1],
                     got = (report.position_um[d] - stack->sections()[i - 1].position_um[d]) / 5;
        EXPECT_NEAR(got, wanted, 0.2) << "section " << i << " axis " << d;
      }
    }
  }
}

TEST_P(StackSectionsTest, PairsThatHaveNothingInCommonFallBack) {
  std::vector<StoredArray> sections;
  StackSectionsSpec spec{.spacing_um = {{1, 1, 1}},
                         .slicing_interval_um = 7,
                         .search_range_um = 3,
                         .refine_limit_um = 3};
  for (int i = 0; i < 4; ++i) {
    std::vector<double> values(12 * 20 * 20);
    for (double& v : values) v = Uniform(1, 2);
    sections.emplace_back(Scalar::kF32, std::vector<int64_t>{12, 20, 20}, values);
    spec.position_um.push_back({{0, 0, i == 3 ? 100.0 : 0.0}});  // the last one lies beside
  }
  const auto stack = Measured(spec, sections);
  ASSERT_THAT(stack, IsOk());
  for (size_t i = 1; i < 4; ++i) {
    const StackedSection& report = stack->sections()[i];
    EXPECT_EQ(report.overlap_state, OverlapState::kFallback);
    EXPECT_EQ(report.overlap, 5);
    EXPECT_EQ(report.expected_overlap, 5);
    EXPECT_EQ(report.refinement_state, RefinementState::kUnsure);
  }
  EXPECT_EQ(stack->total_z(), 12 + 3 * 7);
}

TEST(ConsistentOverlapsTest, FollowsTheDefinition) {
  const auto run = [](std::vector<int64_t> overlaps, std::vector<double> correlations,
                      std::vector<bool>* corrected) {
    std::vector<SectionOverlap> found;
    for (size_t i = 0; i < overlaps.size(); ++i) {
      found.push_back({.planes = 50, .overlap = overlaps[i], .correlation = correlations[i]});
    }
    return ConsistentOverlaps(found, 3, 0.3, 0.6, corrected);
  };
  std::vector<bool> corrected;
  // The median of 10, 11, 20, 13 is 12; 20 is far and unsure: (11 + 13) / 2.
  EXPECT_EQ(run({10, 11, 20, 13}, {0.9, 0.9, 0.5, 0.9}, &corrected),
            (std::vector<int64_t>{10, 11, 12, 13}));
  EXPECT_EQ(corrected, (std::vector<bool>{false, false, true, false}));
  // A sure one stays, and so does one at the tolerance.
  EXPECT_EQ(run({10, 20, 10}, {0.9, 0.6, 0.9}, &corrected), (std::vector<int64_t>{10, 20, 10}));
  EXPECT_EQ(run({10, 13, 10}, {0, 0, 0}, &corrected), (std::vector<int64_t>{10, 13, 10}));
  // At the ends there is one neighbour; a half is cut off.
  EXPECT_EQ(run({30, 10, 11, 40, 10}, {0, 0.9, 0.9, 0, 0.9}, &corrected),
            (std::vector<int64_t>{10, 10, 11, 10, 10}));
  EXPECT_EQ(corrected, (std::vector<bool>{true, false, false, true, false}));
  // Two pairs contradict each other: nothing tells which is right.
  EXPECT_EQ(run({10, 40}, {0, 0}, &corrected), (std::vector<int64_t>{10, 40}));
}

TEST_P(StackSectionsTest, WhatIsNotAllowedIsNamed) {
  const ArrayType type{.scalar = Scalar::kF32, .dims = {8, 6, 6}};
  const StackSectionsSpec spec{
      .position_um = std::vector<Vector3>(3), .spacing_um = {{1, 1, 1}}, .overlap = {2, 3}};
  const auto code = absl::StatusCode::kInvalidArgument;
  const auto wrong = [&](auto change, std::vector<ArrayType> types = {}) {
    StackSectionsSpec bad = spec;
    change(&bad);
    if (types.empty()) types = {type, type, type};
    return SectionStack::Plan(bad, types).status();
  };
  EXPECT_THAT(wrong([](auto*) {}), IsOk());
  EXPECT_THAT(wrong([](auto*) {}, {type, type, {.scalar = Scalar::kU8, .dims = {8, 6, 6}}}),
              IsError(code, "sections[2].name"));
  EXPECT_THAT(wrong([](auto*) {}, {type, {.scalar = Scalar::kF32, .dims = {8, 6}}, type}),
              IsError(code, "sections[1].name"));
  EXPECT_THAT(wrong([](auto* s) { s->overlap = {2}; }), IsError(code, "overlap: is 1 numbers"));
  EXPECT_THAT(wrong([](auto* s) { s->overlap = {2, 9}; }), IsError(code, "overlap[1]"));
  EXPECT_THAT(wrong([](auto* s) {
                s->overlap = {2, 7}, s->moving_first_plane = 2;
              }),
              IsError(code, "overlap[1]"));
  EXPECT_THAT(wrong([](auto* s) { s->overlap = {}; }), IsError(code, "slicing_interval_um"));
  EXPECT_THAT(wrong([](auto* s) { s->moving_first_plane = 8; }),
              IsError(code, "moving_first_plane"));
  EXPECT_THAT(wrong([](auto* s) { s->spacing_um[0] = 0; }), IsError(code, "spacing_um.z"));
  EXPECT_THAT(wrong([](auto* s) { s->position_um[1][2] = NAN; }),
              IsError(code, "sections[1].position_um.x"));
  EXPECT_THAT(wrong([](auto* s) { s->min_correlation = 2; }), IsError(code, "min_correlation"));
  EXPECT_THAT(wrong([](auto* s) { s->consistency_min_pairs = 1; }),
              IsError(code, "consistency_min_pairs"));
  EXPECT_THAT(wrong([](auto* s) { s->gain_least = 2; }), IsError(code, "gain_least"));
  EXPECT_THAT(wrong([](auto* s) { s->valid_above = INFINITY; }), IsError(code, "valid_above"));
  EXPECT_THAT(wrong([](auto* s) { s->scalar = Scalar::kU8, s->gap = 300; }), IsError(code, "gap"));
  StackSectionsSpec far = spec;
  far.position_um[2][1] = 1e9;
  const std::vector<StoredArray> sections(3, StoredArray(Scalar::kF32, {8, 6, 6}, {}));
  EXPECT_THAT(Measured(far, sections).status(), IsError(code, "sections: the result would have"));
}

INSTANTIATE_TEST_SUITE_P(Backends, StackSectionsTest,
                         ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

}  // namespace
}  // namespace octavo

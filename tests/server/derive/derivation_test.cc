// What will be made of a volume, and that it is made: without stores, ledger or threads.

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "gpu/base/status.h"
#include "server/derive/derivation_plan.h"
#include "server/derive/derivation_run.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;

class DerivationTest : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr int64_t kRows = 6, kColumns = 4, kDepth = 5;  // 3 B-scans of 2 repeats

  DerivationTest() {
    source_.name = "volumes/source";
    source_.scan = "scans/a";
    source_.state = VolumeState::kHeld;
    source_.shape[0] = kRows;
    source_.shape[1] = kColumns;
    source_.shape[2] = kDepth;
    source_.dtype = DType::kF32;
    source_.bytes = kRows * kColumns * kDepth * 4;
    Pattern pattern{.ascans_per_bscan = kColumns,
                    .bscans_per_volume = kRows / 2,
                    .extent_x_mm = 1,
                    .extent_y_mm = 1,
                    .kind = PatternKind::kRepeatedRaster,
                    .repeat_count = 2,
                    .repeat_period = 1,
                    .repeat_strategy = RepeatStrategy::kPack};
    source_.recovered_pattern = std::make_shared<const Pattern>(pattern);
  }
  absl::StatusOr<DerivationPlan> Plan(const std::vector<Operation>& operations) {
    return PlanDerivation(source_, operations);
  }
  static Operation FirstPlane() { return OpSpec{CropOp{.start = {}, .count = {1, 0, 0}}}; }
  /// The result for a source with the voxels 0, 1, 2, ...
  std::vector<float> Compute(const DerivationPlan& plan) {
    const DeviceBuffer source = device_.Allocate(source_.bytes).value();
    Stream stream = device_.NewStream(StreamPriority::kNormal).value();
    std::vector<float> voxels(static_cast<size_t>(source_.bytes / 4));
    std::iota(voxels.begin(), voxels.end(), 0.0f);
    EXPECT_THAT(device_.CopyToDevice(stream.ref(), source.data(), voxels.data(), source_.bytes),
                IsOk());
    EXPECT_THAT(stream.ref().Synchronize(), IsOk());
    VolumeSlot made;
    made.volume = device_.Allocate(plan.result.bytes).value();
    made.digest = device_.Allocate(256).value();
    const auto run = DerivationRun::Create(plan, device_);
    EXPECT_THAT(run, IsOk());
    EXPECT_THAT((*run)->Run(source.data(), made.volume.data()), IsOk());
    const auto digest = DigestOf(device_, made, plan.result.bytes);
    EXPECT_THAT(digest, IsOk());
    EXPECT_EQ(digest->substr(0, 6), "sum64:");
    std::vector<float> out(static_cast<size_t>(plan.result.bytes / 4));
    EXPECT_THAT(device_.CopyToHost(stream.ref(), out.data(), made.volume.data(), plan.result.bytes),
                IsOk());
    EXPECT_THAT(stream.ref().Synchronize(), IsOk());
    return out;
  }
  template <class T>
  static std::string ReasonOf(const T& answer) {
    return std::string(Name(ReasonOrCode(octavo::testing::StatusOf(answer))));
  }

  Device& device_ = octavo::testing::SharedDevice(GetParam());
  VolumeStatus source_;
};

TEST_P(DerivationTest, ThePlanDescribesTheResultAndItsMemory) {
  ASSERT_OK_AND_ASSIGN(const DerivationPlan plan, Plan({AngiographyOperation{}, FirstPlane()}));
  ASSERT_EQ(plan.steps.size(), 2u);
  EXPECT_EQ(plan.steps[0].out.shape[0], kRows / 2);
  EXPECT_EQ(plan.steps[0].order.size(), static_cast<size_t>(kRows));
  EXPECT_EQ(plan.steps[1].in.quantity, model::Quantity::kAmplitudeDecorrelation);
  ASSERT_OK_AND_ASSIGN(const int64_t bytes_between, BytesBetween(plan, device_));
  EXPECT_GE(bytes_between, kRows * 4 + kRows / 2 * kColumns * kDepth * 4)
      << "the table of repeats and the volume between";
  const VolumeStatus& result = plan.result;
  EXPECT_EQ(result.derived_from, "volumes/source");
  EXPECT_EQ(result.state, VolumeState::kAcquiring);
  EXPECT_EQ(result.operations.size(), 2u);
  EXPECT_EQ(result.shape[0], 1);
  EXPECT_EQ(result.bytes, kColumns * kDepth * 4);
}

TEST_P(DerivationTest, WhatCannotBeMadeNamesItsOperation) {
  EXPECT_THAT(Plan({}), IsError(absl::StatusCode::kInvalidArgument, "has 0 operations"));
  EXPECT_THAT(Plan(std::vector<Operation>(9, FirstPlane())),
              IsError(absl::StatusCode::kInvalidArgument, "has 9 operations"));
  EXPECT_THAT(Plan({CartesianGrid{}}),
              IsError(absl::StatusCode::kInvalidArgument, "operations[0].cartesian: "));
  EXPECT_THAT(Plan({DopplerOperation{}}),
              IsError(absl::StatusCode::kInvalidArgument, "a phase needs complex ones"));
  EXPECT_THAT(Plan({FirstPlane(), AngiographyOperation{}}),
              IsError(absl::StatusCode::kInvalidArgument,
                      "operations[1].angiography: comes after an operation on arrays"));
  EXPECT_THAT(Plan({AngiographyOperation{}, AngiographyOperation{}}),
              IsError(absl::StatusCode::kInvalidArgument, "operations[1].angiography: "));
  source_.is_raw = true;
  EXPECT_THAT(Plan({FirstPlane()}), IsError(absl::StatusCode::kInvalidArgument,
                                            "a reprocess job makes a volume of them"));
  source_.is_raw = false;
  source_.derived_from = "volumes/older";
  EXPECT_THAT(Plan({AngiographyOperation{}}),
              IsError(absl::StatusCode::kInvalidArgument, "was derived itself"));
  EXPECT_THAT(Plan({FirstPlane()}), IsOk()) << "arrays need no A-scans";
}

TEST_P(DerivationTest, WithoutAPatternThereAreOperationsOnArraysOnly) {
  source_.recovered_pattern = nullptr;
  EXPECT_THAT(Plan({AngiographyOperation{}}),
              IsError(absl::StatusCode::kInvalidArgument, "no scan acquired"));
  source_.recovered = true;
  EXPECT_EQ(ReasonOf(Plan({AngiographyOperation{}})), "RECOVERED");
  EXPECT_THAT(Plan({FirstPlane()}), IsOk());
}

TEST_P(DerivationTest, DopplerBetweenAscansTakesOneAscanFromEachBscan) {
  source_.dtype = DType::kC64;
  source_.missing = {{1, 1}};
  ASSERT_OK_AND_ASSIGN(const DerivationPlan plan,
                       Plan({DopplerOperation{.between = DopplerBetween::kAscans}}));
  EXPECT_EQ(plan.result.shape[1], kColumns - 1);
  EXPECT_EQ(plan.result.dtype, DType::kF32);
  EXPECT_EQ(plan.result.missing, (AscanRanges{{0, 2}}));
  EXPECT_EQ(plan.result.missing_ascans, 2);
  EXPECT_EQ(ReasonOf(Plan({DopplerOperation{.half_window = kDepth}})), "BAD_FIELD");
  // Repeats are the default where there are some.
  ASSERT_OK_AND_ASSIGN(const DerivationPlan repeats, Plan({DopplerOperation{}}));
  EXPECT_EQ(repeats.result.shape[0], kRows / 2);
  EXPECT_EQ(repeats.result.shape[1], kColumns);
}

// What a tomogram shows as black and white says nothing about counts of its values.
TEST_P(DerivationTest, DisplayLevelsStayWithValuesOfTheirRange) {
  source_.quantity = model::Quantity::kAttenuation;
  source_.display_lo = -0.1;
  source_.display_hi = 0.4;
  source_.axes[0] = "z", source_.axes[1] = "y", source_.axes[2] = "x";
  const auto display_of = [&](Op op) {
    const auto plan = Plan({OpSpec{std::move(op)}});
    EXPECT_THAT(plan, IsOk());
    return std::pair(plan->result.display_lo, plan->result.display_hi);
  };
  const std::pair kNone(0.0, 0.0), kOfSource(-0.1, 0.4);
  EXPECT_EQ(display_of(HistogramOp{.bins = 4, .lo = 0, .hi = 1}), kNone);
  EXPECT_EQ(display_of(ReduceOp{.kind = math::Reduction::kSum, .axes = {0}}), kNone);
  EXPECT_EQ(display_of(ReduceOp{.kind = math::Reduction::kStd, .axes = {0}}), kNone);
  EXPECT_EQ(display_of(FftOp{.axis = 0}), kNone);
  EXPECT_EQ(display_of(ScaleOp{.multiply = {.re = 2}}), kNone);
  EXPECT_EQ(display_of(ReduceOp{.kind = math::Reduction::kMean, .axes = {0}}), kOfSource);
  EXPECT_EQ(display_of(ReduceOp{.kind = math::Reduction::kMax, .axes = {0}}), kOfSource);
  EXPECT_EQ(display_of(CropOp{.start = {}, .count = {1, 0, 0}}), kOfSource);
}

// Filters take lengths by the volume's spacing, and the description says what their values are.
TEST_P(DerivationTest, FiltersThresholdsAndPlacesOfExtremes) {
  source_.spacing_um[0] = 8, source_.spacing_um[1] = 4, source_.spacing_um[2] = 2;
  source_.has_levels = true;
  const auto result_of = [&](const OpSpec& operation) {
    const auto plan = Plan({operation});
    EXPECT_THAT(plan, IsOk());
    return plan->result;
  };
  const OpSpec slope{.op = GaussianOp{.sigma = {16, 0, 3}, .order = {0, 0, 1}}, .filter_um = true};
  ASSERT_OK_AND_ASSIGN(const DerivationPlan plan, Plan({slope}));
  const auto& steps = plan.steps[0].chain->steps;
  ASSERT_EQ(steps.size(), 2u) << "an axis of sigma 0 is left alone";
  EXPECT_EQ(std::get<CorrelateSpec>(steps[0].spec).taps, 17) << "2 samples of 8 um, 4 sigma";
  EXPECT_EQ(std::get<CorrelateSpec>(steps[1].spec).taps, 13) << "1.5 samples of 2 um";
  EXPECT_EQ(plan.result.quantity, model::Quantity::kDerivative);
  EXPECT_FALSE(plan.result.has_levels);
  EXPECT_EQ(plan.result.spacing_um[2], 2);
  const VolumeStatus smooth = result_of({.op = GaussianOp{.sigma = {1}}});
  EXPECT_EQ(smooth.quantity, model::Quantity::kNone) << "f32 stays f32 and means what it did";
  EXPECT_TRUE(smooth.has_levels);
  const VolumeStatus mask = result_of({.op = ThresholdOp{.value = 3}});
  EXPECT_EQ(mask.dtype, DType::kU8);
  EXPECT_EQ(mask.bytes, kRows * kColumns * kDepth);
  EXPECT_EQ(mask.quantity, model::Quantity::kMask);
  const VolumeStatus place = result_of({.op = ArgExtremeOp{.axis = -1}});
  EXPECT_EQ(place.dtype, DType::kF64);
  EXPECT_EQ(place.quantity, model::Quantity::kIndex);
  EXPECT_EQ(place.shape[2], 1);
  EXPECT_EQ(place.spacing_um[2], 2 * kDepth);
  EXPECT_EQ(result_of({.op = FunctionOp{}}).quantity, model::Quantity::kLogarithm);
  EXPECT_TRUE(result_of({.op = MedianOp{}}).has_levels);
  source_.dtype = DType::kU16;
  EXPECT_EQ(result_of({.op = UniformOp{.size = {3}}}).quantity, model::Quantity::kMean);
  // Cycles are no lengths.
  EXPECT_THAT(Plan({OpSpec{FftOp{.axis = 2}}, slope}),
              IsError(absl::StatusCode::kInvalidArgument,
                      "operations[1].gaussian.sigma_um: [2] is 3, and axis 2 holds frequencies"));
  // Neither are samples whose distance nobody gave.
  source_.spacing_assumed[0] = true;
  EXPECT_THAT(Plan({slope}),
              IsError(absl::StatusCode::kInvalidArgument,
                      "operations[0].gaussian.sigma_um: [0] is 16, and nobody gave the sample "
                      "spacing along axis 0 (y); allowed 0 there, or samples"));
  EXPECT_THAT(Plan({OpSpec{.op = UniformOp{.size = {4}}, .filter_um = true}}),
              IsError(absl::StatusCode::kInvalidArgument,
                      "operations[0].uniform.size_um: [0] is 4, and nobody gave the sample"));
  EXPECT_THAT(Plan({OpSpec{.op = UniformOp{.size = {0, 8, 4}}, .filter_um = true}}), IsOk());
}

// A spacing that is no length on the sample is not taken for one.
TEST_P(DerivationTest, TheSpacingOfTheResultSaysWhatItCounts) {
  source_.spacing_um[0] = 8, source_.spacing_um[1] = 4, source_.spacing_um[2] = 2;
  struct Axes {
    std::vector<std::string> names;
    std::vector<double> spacing;
    std::vector<bool> lengths, inverse;
    std::vector<int64_t> shape;
  };
  const auto axes_after = [&](const std::vector<Operation>& operations) {
    const auto plan = Plan(operations);
    EXPECT_THAT(plan, IsOk());
    Axes out;
    for (int d = 0; d < 3; ++d) {
      const VolumeStatus& result = plan->result;
      out.names.push_back(result.axes[d]);
      out.spacing.push_back(result.spacing_um[d]);
      out.lengths.push_back(result.IsLength(d));
      out.inverse.push_back(result.spacing_inverse[d]);
      out.shape.push_back(result.shape[d]);
    }
    return out;
  };
  using Bools = std::vector<bool>;
  using Doubles = std::vector<double>;
  const Axes once = axes_after({OpSpec{FftOp{.axis = 1}}});
  EXPECT_EQ(once.spacing, (Doubles{8, 1.0 / (4 * kColumns), 2}));
  EXPECT_EQ(once.lengths, (Bools{true, false, true}));
  EXPECT_EQ(once.inverse, (Bools{false, true, false}));
  const Axes turned =
      axes_after({OpSpec{FftOp{.axis = -1}}, OpSpec{TransposeOp{.axes = {2, 0, 1}}}});
  EXPECT_EQ(turned.inverse, (Bools{true, false, false}));
  EXPECT_EQ(turned.names, (std::vector<std::string>{"z", "y", "x"}));
  const Axes back =
      axes_after({OpSpec{FftOp{.axis = 1}}, OpSpec{FftOp{.axis = 1, .inverse = true}}});
  EXPECT_EQ(back.spacing, (Doubles{8, 4, 2}));
  EXPECT_EQ(back.lengths, (Bools{true, true, true}));
  OpSpec slab{SlabOp{.kind = math::Reduction::kMax, .axis = 1}};
  slab.end_um = 8;
  EXPECT_THAT(Plan({OpSpec{FftOp{.axis = 1}}, slab}),
              IsError(absl::StatusCode::kInvalidArgument,
                      "operations[1].slab.end_um: is given, and axis 1 holds frequencies"));
  // The length of a step in the source: 6 um along y and 8 um along x are 10 um.
  const OpSpec skewed{AffineOp{
      .matrix = {0.75, 0, 0, 2, 1, 0, 0, 0, 0.5}, .offset = {}, .shape = {0, 0, 2 * kDepth}}};
  const Axes affine = axes_after({skewed});
  EXPECT_EQ(affine.spacing, (Doubles{10, 4, 1}));
  EXPECT_EQ(affine.shape, (std::vector<int64_t>{kRows, kColumns, 2 * kDepth}));
  EXPECT_EQ(affine.lengths, (Bools{true, true, true}));
  EXPECT_THAT(Plan({OpSpec{FftOp{.axis = 1}}, skewed}),
              IsError(absl::StatusCode::kInvalidArgument,
                      "operations[1].affine.matrix: has a column 0 that mixes frequencies"));
  EXPECT_EQ(axes_after({OpSpec{FftOp{.axis = 1}},
                        OpSpec{AffineOp{.matrix = {1, 0, 0, 0, 2, 0, 0, 0, 1}, .offset = {}}}})
                .inverse,
            (Bools{false, true, false}));
  const Axes counts = axes_after({OpSpec{HistogramOp{.bins = 4, .lo = 0, .hi = 1}}});
  EXPECT_EQ(counts.shape, (std::vector<int64_t>{1, 1, 4}));
  EXPECT_EQ(counts.spacing, (Doubles{1, 1, 1}));
  EXPECT_EQ(counts.lengths, (Bools{false, false, false}));
  // Several percentiles: the reduced axes come first, and the last of them counts them.
  const Axes one = axes_after({OpSpec{PercentileOp{.percentiles = {50}, .axes = {2}}}});
  EXPECT_EQ(one.shape, (std::vector<int64_t>{kRows, kColumns, 1}));
  EXPECT_EQ(one.spacing, (Doubles{8, 4, 2 * kDepth}));
  const Axes along_z = axes_after({OpSpec{PercentileOp{.percentiles = {25, 75}, .axes = {-1}}}});
  EXPECT_EQ(along_z.shape, (std::vector<int64_t>{2, kRows, kColumns}));
  EXPECT_EQ(along_z.names, (std::vector<std::string>{"z", "y", "x"}));
  EXPECT_EQ(along_z.spacing, (Doubles{1, 8, 4}));
  EXPECT_EQ(along_z.lengths, (Bools{false, true, true}));
  const Axes of_columns =
      axes_after({OpSpec{PercentileOp{.percentiles = {25, 50, 75}, .axes = {0, 2}}}});
  EXPECT_EQ(of_columns.shape, (std::vector<int64_t>{1, 3, kColumns}));
  EXPECT_EQ(of_columns.names, (std::vector<std::string>{"y", "z", "x"}));
  EXPECT_EQ(of_columns.spacing, (Doubles{8 * kRows, 1, 4}));
  EXPECT_EQ(of_columns.lengths, (Bools{true, false, true}));
  const Axes of_all = axes_after({OpSpec{PercentileOp{.percentiles = {25, 75}, .axes = {}}}});
  EXPECT_EQ(of_all.shape, (std::vector<int64_t>{1, 1, 2}));
  EXPECT_EQ(of_all.spacing, (Doubles{8 * kRows, 4 * kColumns, 1}));
}

TEST_P(DerivationTest, StepsRunOneOnAnother) {
  // The second B-scan, then its first A-scan.
  ASSERT_OK_AND_ASSIGN(const DerivationPlan plan,
                       Plan({OpSpec{CropOp{.start = {1, 0, 0}, .count = {1, 0, 0}}},
                             OpSpec{CropOp{.start = {}, .count = {0, 1, 0}}}}));
  const float first = kColumns * kDepth;
  EXPECT_EQ(Compute(plan), (std::vector<float>{first, first + 1, first + 2, first + 3, first + 4}));
}

TEST_P(DerivationTest, WhatIsMissingIsNan) {
  source_.missing = {{2, 1}};
  ASSERT_OK_AND_ASSIGN(const DerivationPlan plan,
                       Plan({AngiographyOperation{.method = MotionContrast::kSpeckleVariance}}));
  EXPECT_EQ(plan.result.missing, (AscanRanges{{2, 1}}));
  const std::vector<float> out = Compute(plan);
  for (size_t i = 0; i < out.size(); ++i)
    EXPECT_EQ(std::isnan(out[i]), i / kDepth == 2) << "voxel " << i;
}

INSTANTIATE_TEST_SUITE_P(Backends, DerivationTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine

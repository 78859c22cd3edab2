// The parts of a tomography run by themselves: rows, axis, wide objects, slices, the result.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"

#include "gpu/math/half.h"
#include "gpu/tomography/reconstruct_plan.h"
#include "server/tomography/axis_finder.h"
#include "server/tomography/result_volume.h"
#include "server/tomography/row_preparer.h"
#include "server/tomography/run.h"
#include "server/tomography/slice_maker.h"
#include "server/tomography/value_window.h"
#include "server/tomography/wide_object.h"
#include "tests/server/tomography/fake_run.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using ::testing::AllOf;
using testing::DiscInput;
using testing::DiscLayout;
using testing::DiscSpec;
using ::testing::ElementsAre;
using testing::FakeRun;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kAngles;
using testing::kAxis;
using testing::kColumns;
using testing::kRows;

ScannedObject Disc(const TomographySpec& spec, double radius = 12) {
  return {.input = std::make_shared<DiscInput>(radius),
          .layout = DiscLayout(spec),
          .centers = {kAxis},
          .missing_frames = {}};
}

TEST(RowPreparerTest, SinogramsOfARowAreThoseOfTheInputAndOnlyTheyStay) {
  FakeRun run;
  const TomographySpec spec = DiscSpec();
  const ScannedObject disc = Disc(spec);
  RowPreparer rows(run, {});
  ASSERT_OK_AND_ASSIGN(const PreparedRows prepared,
                       rows.Prepare(disc.layout, disc.input, disc.layout.RowsOf(3, 1), false));
  EXPECT_EQ(prepared.shape.slices, 1);
  EXPECT_EQ(prepared.shape.angles, kAngles);
  EXPECT_EQ(prepared.shape.detectors, kColumns);
  EXPECT_EQ(prepared.counts.not_finite, 0);
  EXPECT_EQ(run.used(), prepared.shape.elements() * 4);
  const auto values = run.Download(prepared.data, static_cast<size_t>(kAngles * kColumns));
  for (int64_t a = 0; a < kAngles; ++a) {
    for (int64_t c = 0; c < kColumns; ++c) {
      ASSERT_NEAR(values[static_cast<size_t>(a * kColumns + c)], DiscInput::Value(12, a, c), 1e-6)
          << a << " " << c;
    }
  }
  run.Free(prepared.data);
  EXPECT_EQ(run.used(), 0);
}

TEST(RowPreparerTest, AnErrorLeavesTheWorkspaceAsItWas) {
  FakeRun run(1 << 14);  // too small for the sinograms
  const ScannedObject disc = Disc(DiscSpec());
  RowPreparer rows(run, {});
  EXPECT_THAT(rows.Prepare(disc.layout, disc.input, disc.layout.RowsOf(0, 1), false),
              IsError(absl::StatusCode::kInternal, "workspace"));
  std::stop_source stop;
  stop.request_stop();
  FakeRun large;
  RowPreparer stopped(large, stop.get_token());
  EXPECT_THAT(stopped.Prepare(disc.layout, disc.input, disc.layout.RowsOf(0, 1), false),
              IsError(absl::StatusCode::kCancelled, ""));
  EXPECT_EQ(large.used(), 0);
}

TEST(AxisFinderTest, AGivenAxisIsTakenAndOneThatIsSearchedIsFound) {
  FakeRun run;
  TomographySpec spec = DiscSpec();
  ScannedObject disc = Disc(spec);
  disc.centers.clear();
  RowPreparer rows(run, {});
  TomographyReport report;
  {
    AxisFinder axis(run, {}, spec, /*check_slices=*/0, rows, report);
    ASSERT_OK_AND_ASSIGN(const double begun, axis.Find(disc));
    EXPECT_EQ(begun, 0);
    EXPECT_THAT(disc.centers, ElementsAre(kAxis));
    EXPECT_EQ(report.center_source, model::CenterSource::kGiven);
    EXPECT_THAT(run.stages, IsEmpty());
  }
  spec.center = {};
  spec.center.find = true;
  spec.center.search.method = CenterMethod::kEntropy;
  spec.center.search_begin = 20;
  spec.center.search_end = 40;
  disc = Disc(spec);
  AxisFinder axis(run, {}, spec, 0, rows, report);
  ASSERT_OK_AND_ASSIGN(const double begun, axis.Find(disc));
  EXPECT_GT(begun, 0);
  ASSERT_EQ(disc.centers.size(), 1u);
  EXPECT_NEAR(disc.centers[0], kAxis, 0.5);
  EXPECT_EQ(report.centers, disc.centers);
  EXPECT_EQ(report.center_source, model::CenterSource::kEntropy);
  EXPECT_THAT(run.stages, ElementsAre(job::JobStage::kAxis));
  EXPECT_EQ(run.used(), 0) << "what the search took is free again";
}

TEST(AxisFinderTest, AStopEndsTheSearch) {
  FakeRun run;
  const TomographySpec spec = DiscSpec();
  ScannedObject disc = Disc(spec);
  std::stop_source stop;
  stop.request_stop();
  RowPreparer rows(run, stop.get_token());
  TomographyReport report;
  AxisFinder axis(run, stop.get_token(), spec, 0, rows, report);
  EXPECT_THAT(axis.Find(disc), IsError(absl::StatusCode::kCancelled, ""));
}

TEST(WideObjectTest, OnlyAnObjectWiderThanTheDetectorWidensTheLayout) {
  FakeRun run;
  const TomographySpec spec = DiscSpec(TomographyAlgorithm::kSirt);
  RowPreparer rows(run, {});
  const ScannedObject whole = Disc(spec), wide = Disc(spec, 45);
  const auto support = [](const TomographyLayout& layout) {
    return layout.ReconstructFor(0, 1, {kAxis}).support;
  };
  ASSERT_OK_AND_ASSIGN(const auto same, WidenedFor(whole, 2, run, rows));
  EXPECT_EQ(support(same), support(whole.layout));
  EXPECT_THAT(run.warnings, IsEmpty());
  ASSERT_OK_AND_ASSIGN(const auto no_room, WidenedFor(wide, 1, run, rows));
  EXPECT_EQ(support(no_room), support(wide.layout));
  EXPECT_THAT(run.warnings, IsEmpty());
  ASSERT_OK_AND_ASSIGN(const auto widened, WidenedFor(wide, 2, run, rows));
  EXPECT_GT(support(widened), support(wide.layout));
  ASSERT_EQ(run.warnings.size(), 1u);
  EXPECT_THAT(run.warnings[0], HasSubstr("times the usual width"));
  EXPECT_EQ(run.used(), 0);
}

struct ScannedDisc {
  double x = 0, y = 0, radius = 0, value = 0.02;  // columns, from the axis
};

/// What a detector sees of discs that turn, the same in every row: minus logarithms.
struct Scan {
  std::vector<double> angles;  // in truth
  double axis = 31.5;
  int64_t columns = 64;
  std::vector<ScannedDisc> discs = {{4, -3, 21}, {9, -5, 6, 0.05}, {-8, 10, 4, 0.08}};
  double noise = 0;               // standard deviation
  std::vector<double> told = {};  // the angles that the file has; empty: the true ones
};

class ScanInput final : public storage::ProjectionInput {
 public:
  explicit ScanInput(const Scan& scan) : ProjectionInput(Info(scan)) {
    std::mt19937 random(7);
    std::normal_distribution<double> noise(0, 1);
    for (const double angle : scan.angles) {
      for (int64_t i = 0; i < kRows * scan.columns; ++i) {
        double sum = 0;
        for (const ScannedDisc& disc : scan.discs) {
          const double s = static_cast<double>(i % scan.columns) - scan.axis -
                           (disc.x * std::cos(angle) - disc.y * std::sin(angle));
          sum += 2 * disc.value * std::sqrt(std::max(0.0, disc.radius * disc.radius - s * s));
        }
        values_.push_back(static_cast<float>(sum + scan.noise * noise(random)));
      }
    }
  }
  static storage::ProjectionInfo Info(const Scan& scan) {
    storage::ProjectionInfo info;
    info.format = "memory";
    info.dtype = DType::kF32;
    info.projections = std::ssize(scan.angles);
    info.rows = kRows;
    info.columns = scan.columns;
    info.angles_rad = scan.told.empty() ? scan.angles : scan.told;
    return info;
  }

 protected:
  absl::Status ReadInside(const storage::ProjectionBox& box, void* out) override {
    auto* to = static_cast<float*>(out);
    for (int64_t a = box.first_frame; a < box.first_frame + box.frames; ++a) {
      for (int64_t r = box.first_row; r < box.first_row + box.rows; ++r) {
        const auto from = values_.begin() + (a * info().rows + r) * info().columns;
        to = std::copy(from + box.first_column, from + box.first_column + box.columns, to);
      }
    }
    return absl::OkStatus();
  }

 private:
  std::vector<float> values_;
};

std::vector<double> Turn(double degrees, int64_t count) {
  std::vector<double> angles;
  for (int64_t i = 0; i < count; ++i)
    angles.push_back(degrees * testing::kPi / 180 * static_cast<double>(i) /
                     static_cast<double>(count));
  return angles;
}

/// What a job says of a scan before its batches. `axis`: the given one.
std::vector<std::string> WarningsOf(const Scan& scan, const TomographySpec& asked,
                                    std::optional<double> axis) {
  FakeRun run;
  TomographySpec spec = asked;
  spec.center.pixels.clear();
  if (axis.has_value()) spec.center.pixels = {*axis};
  const auto input = std::make_shared<ScanInput>(scan);
  const auto layout = TomographyLayout::Make(spec, input->info(), 0);
  EXPECT_THAT(layout, IsOk());
  if (!layout.ok()) return {};
  ScannedObject object{.input = input, .layout = *layout, .centers = {}, .missing_frames = {}};
  RowPreparer rows(run, {});
  TomographyReport report;
  AxisFinder finder(run, {}, spec, layout->check_slices(), rows, report);
  EXPECT_THAT(finder.Find(object), IsOk());
  EXPECT_THAT(WidenedFor(object, 1, run, rows), IsOk());
  EXPECT_THAT(run.log, ::testing::Each(::testing::Not(HasSubstr("not checked"))));
  EXPECT_THAT(run.log, ::testing::Each(::testing::Not(HasSubstr("not looked at"))));
  EXPECT_EQ(run.used(), 0);
  return run.warnings;
}

TEST(WideObjectTest, BackProjectionTellsWhatLiesOutsideAndKeepsItsLayout) {
  for (const auto algorithm :
       {TomographyAlgorithm::kFbp, TomographyAlgorithm::kFourier, TomographyAlgorithm::kAuto}) {
    TomographySpec spec = DiscSpec(algorithm);
    Scan scan{.angles = Turn(180, 60)};
    EXPECT_THAT(WarningsOf(scan, spec, 31.5), IsEmpty());
    scan.discs[0] = {0, 0, 31};  // nearly fills the detector
    EXPECT_THAT(WarningsOf(scan, spec, 31.5), IsEmpty());
    scan.discs[0].radius = 40;
    EXPECT_THAT(WarningsOf(scan, spec, 31.5),
                ElementsAre(AllOf(HasSubstr("wider than the detector: 100 %"),
                                  HasSubstr("reconstruction.extend_edges"))));
    spec.reconstruction.extend_edges = true;
    EXPECT_THAT(WarningsOf(scan, spec, 31.5), IsEmpty()) << "it is done already";
  }
}

TEST(WideObjectTest, HalvesOfAFullTurnThatAreNotJoinedAreTold) {
  TomographySpec spec = DiscSpec();
  for (const bool right : {false, true}) {
    Scan scan{.angles = Turn(360, 120), .axis = right ? 52.2 : 10.8};
    const char* const words = right ? "preparation.stitching axis_right true joins the two halves"
                                    : "preparation.stitching axis_right false joins the two halves";
    for (const bool extend : {false, true}) {
      spec.reconstruction.extend_edges = extend;
      EXPECT_THAT(WarningsOf(scan, spec, scan.axis), ElementsAre(HasSubstr(words)));
    }
    spec.reconstruction.extend_edges = false;
    // Halves in another order cannot be joined.
    std::shuffle(scan.angles.begin(), scan.angles.end(), std::mt19937(1));
    EXPECT_THAT(WarningsOf(scan, spec, scan.axis),
                ElementsAre(HasSubstr("Iterative algorithms (SIRT) take such projections")));
    scan.angles = Turn(360, 120);
    TomographySpec joins = spec;
    joins.preparation.config.stitching = {.enabled = true, .axis_right = right};
    EXPECT_THAT(WarningsOf(scan, joins, std::nullopt), IsEmpty());
    // Seen as a whole, though the axis is off the middle.
    scan.discs = {{0, 0, 8}, {3, -2, 2, 0.05}};
    EXPECT_THAT(WarningsOf(scan, spec, scan.axis), IsEmpty());
  }
}

TEST(AxisFinderTest, AGivenOverlapIsChecked) {
  for (const bool right : {false, true}) {
    // Columns that both halves see: twice the distance of the axis from the end, and one.
    const Scan scan{.angles = Turn(360, 120), .axis = right ? 52.2 : 10.8, .noise = 0.01};
    TomographySpec spec = DiscSpec();
    spec.preparation.config.stitching = {.enabled = true, .axis_right = right};
    for (const double overlap : {2.0, 15.0, 19.0, 26.0, 40.0}) {
      spec.preparation.config.stitching.overlap = overlap;
      EXPECT_THAT(WarningsOf(scan, spec, std::nullopt),
                  ElementsAre(HasSubstr(absl::StrCat("stitching.overlap is given as ", overlap))))
          << overlap;
    }
    for (const double overlap : {22.0, 22.6, 23.0}) {
      spec.preparation.config.stitching.overlap = overlap;
      EXPECT_THAT(WarningsOf(scan, spec, std::nullopt), IsEmpty()) << overlap;
    }
  }
}

// Mistakes that leave no axis on which opposite projections agree.
TEST(AxisFinderTest, ProjectionsThatDoNotFitTheAnglesAndAGivenAxisAreTold) {
  const TomographySpec spec = DiscSpec();
  const auto told = ElementsAre(HasSubstr("The projections do not fit together: with the axis at"));
  for (const double noise : {0.0, 0.01, 0.03}) {
    Scan half{.angles = Turn(180, 120), .axis = 30.25, .noise = noise};
    EXPECT_THAT(WarningsOf(half, spec, 30.25), IsEmpty()) << noise;
    half.told = Turn(360, 120);
    EXPECT_THAT(WarningsOf(half, spec, 30.25), told) << "half a turn as a full one";
    Scan full{.angles = Turn(360, 120), .axis = 30.25, .noise = noise};
    EXPECT_THAT(WarningsOf(full, spec, 30.25), IsEmpty()) << noise;
    full.told = Turn(180, 120);
    EXPECT_THAT(WarningsOf(full, spec, 30.25), told) << "a full turn as half a one";
    half.told = half.angles;
    std::shuffle(half.angles.begin(), half.angles.end(), std::mt19937(3));
    EXPECT_THAT(WarningsOf(half, spec, 30.25), told) << "in another order";
    half.angles.assign(half.told.size(), 0.3);
    EXPECT_THAT(WarningsOf(half, spec, 30.25), told) << "one frame again and again";
  }
}

// A search finds some axis for wrong angles, too.
TEST(AxisFinderTest, ProjectionsThatDoNotFitTheAnglesAreToldWhereTheAxisIsSearched) {
  TomographySpec spec = DiscSpec();
  spec.center = {.pixels = {}, .find = true, .automatic = true};
  const auto told = Contains(HasSubstr("The projections do not fit together: with the axis at"));
  for (const double noise : {0.0, 0.01, 0.03}) {
    Scan full{.angles = Turn(360, 120), .axis = 30.25, .noise = noise};
    EXPECT_THAT(WarningsOf(full, spec, std::nullopt), Not(told)) << noise;
    full.told = Turn(180, 120);
    EXPECT_THAT(WarningsOf(full, spec, std::nullopt), told) << "a full turn as half a one";
    Scan half{.angles = Turn(180, 120), .axis = 30.25, .noise = noise};
    EXPECT_THAT(WarningsOf(half, spec, std::nullopt), Not(told)) << noise;
    half.told = half.angles;
    std::shuffle(half.angles.begin(), half.angles.end(), std::mt19937(3));
    EXPECT_THAT(WarningsOf(half, spec, std::nullopt), told) << "in another order";
  }
}

TEST(AxisFinderTest, SoundScansAreNotDoubted) {
  std::vector<double> golden;
  for (int64_t i = 0; i < 89; ++i)
    golden.push_back(static_cast<double>(i) * testing::kPi * 0.618034);
  const TomographySpec spec = DiscSpec();
  TomographySpec searches = spec;
  searches.center = {.pixels = {}, .find = true, .automatic = true};
  const std::vector<std::vector<double>> all = {Turn(180, 20),  Turn(180, 61),  Turn(180, 400),
                                                Turn(360, 40),  Turn(360, 121), Turn(720, 160),
                                                Turn(200, 100), golden};
  for (size_t i = 0; i < all.size(); ++i) {
    for (const double noise : {0.0, 0.02, 0.1, 0.4}) {
      for (const double radius : {6.0, 22.0, 30.0}) {
        const Scan scan{.angles = all[i],
                        .axis = 31.2,
                        .discs = {{0, 0, radius}, {radius / 3, radius / 5, radius / 4, 0.05}},
                        .noise = noise};
        EXPECT_THAT(WarningsOf(scan, spec, 31.2), IsEmpty())
            << "scan " << i << ", noise " << noise << ", radius " << radius;
        EXPECT_THAT(WarningsOf(scan, searches, std::nullopt),
                    Not(Contains(HasSubstr("do not fit together"))))
            << "scan " << i << ", noise " << noise << ", radius " << radius;
      }
    }
  }
}

TEST(AxisFinderTest, AGivenAxisFarFromTheFoundOneIsToldWhateverTheBinning) {
  const Scan scan{.angles = Turn(180, 120),
                  .axis = 61.3,
                  .columns = 127,
                  .discs = {{0, 0, 45}, {15, -12, 12, 0.03}, {-18, 10, 7, 0.05}, {5, 20, 3, 0.1}},
                  .noise = 0.01};
  for (const int64_t bin : {1, 2, 4}) {
    TomographySpec spec = DiscSpec();
    spec.preparation.config.bin_columns = bin;
    for (const double given : {15.1, 30.4, 45.0})
      EXPECT_THAT(
          WarningsOf(scan, spec, given),
          ElementsAre(HasSubstr(absl::StrFormat(
              "The axis is given as column %.2f; opposite projections find it at 61", given))))
          << bin;
    EXPECT_THAT(WarningsOf(scan, spec, 61.3), IsEmpty()) << bin;
    EXPECT_THAT(WarningsOf(scan, spec, 61.0), IsEmpty()) << bin;
  }
}

/// A task of three slices a batch.
TomographyTask TaskOf(const TomographySpec& spec, const ScannedObject& object, bool on_disk) {
  TomographyTask task;
  task.spec = &spec;
  task.layout = &object.layout;
  task.input = object.input;
  task.slices_per_batch = 3;
  task.on_disk = on_disk;
  return task;
}

TEST(ResultVolumeTest, BatchesBecomeOneVolumeInMemoryOrOnDisk) {
  const TomographySpec spec = DiscSpec();
  const ScannedObject disc = Disc(spec);
  const int64_t size = disc.layout.image_columns(), elements = size * size;
  for (const bool on_disk : {false, true}) {
    FakeRun run;
    const TomographyTask task = TaskOf(spec, disc, on_disk);
    ResultVolume result(run, task);
    ASSERT_THAT(result.Begin(0, disc, {}), IsOk());
    EXPECT_EQ(run.result.shape[0], kRows);
    EXPECT_EQ(run.result.axes[0], "z");
    EXPECT_TRUE(run.result.spacing_assumed[0]) << "nobody says the size of a pixel";
    EXPECT_TRUE(run.result.complete);
    EXPECT_EQ(result.ImagesOf(3) - result.ImagesOf(0), on_disk ? 0 : 3 * elements);
    for (int64_t first = 0; first < kRows; first += 3) {
      const int64_t count = std::min<int64_t>(3, kRows - first);
      std::vector<float> images;
      for (int64_t i = 0; i < count * elements; ++i)
        images.push_back(static_cast<float>(first + i / elements) +
                         static_cast<float>(i % elements) / static_cast<float>(elements));
      ASSERT_THAT(run.device().CopyToDevice(run.stream(), result.ImagesOf(first), images.data(),
                                            std::ssize(images) * 4),
                  IsOk());
      ASSERT_THAT(run.stream().Synchronize(), IsOk());
      ASSERT_THAT(result.Add(first, count), IsOk());
    }
    const auto mip = run.Download(run.ResultMip(0, true), static_cast<size_t>(elements));
    EXPECT_FLOAT_EQ(mip[0], 6) << "of the last slice, over all batches";
    EXPECT_NEAR(run.result.display_lo, 3, 0.01) << "the slice in the middle";
    EXPECT_NEAR(run.result.display_hi, 4, 0.01);
    EXPECT_EQ(std::ssize(run.stored), on_disk ? kRows * elements * 4 : 0);
    TomographyReport report;
    ASSERT_THAT(result.Conclude(report), IsOk());
    EXPECT_EQ(report.low, 0);
    EXPECT_EQ(report.high, 0);
    EXPECT_EQ(report.clipped_below + report.clipped_above, 0);
    EXPECT_FALSE(run.result.has_levels);
  }
}

TEST(ResultVolumeTest, ValuesThatAreNotFiniteAreTold) {
  const TomographySpec spec = DiscSpec();
  const ScannedObject disc = Disc(spec);
  const int64_t size = disc.layout.image_columns(), elements = size * size;
  for (const int64_t odd : {int64_t{0}, int64_t{5}, elements}) {
    FakeRun run;
    const TomographyTask task = TaskOf(spec, disc, /*on_disk=*/false);
    ResultVolume result(run, task);
    ASSERT_THAT(result.Begin(0, disc, {}), IsOk());
    std::vector<float> images(static_cast<size_t>(kRows * elements), 1.0f);
    std::fill_n(images.begin() + kRows / 2 * elements, odd, std::nanf(""));
    ASSERT_THAT(run.device().CopyToDevice(run.stream(), result.ImagesOf(0), images.data(),
                                          std::ssize(images) * 4),
                IsOk());
    ASSERT_THAT(run.stream().Synchronize(), IsOk());
    ASSERT_THAT(result.Add(0, kRows), IsOk());
    if (odd == 0) {
      EXPECT_THAT(run.warnings, IsEmpty());
    } else {
      EXPECT_THAT(run.warnings,
                  ElementsAre(HasSubstr(absl::StrCat(
                      odd, " of ", elements, " values in the middle of the result are NaN"))));
    }
  }
}

/// The number that a value is stored as, and whether it is clipped.
struct Stored {
  double number = 0;
  bool below = false, above = false;
};
Stored StoredOf(const model::ResultSamplesSpec& samples, float value) {
  if (samples.type == DType::kF16) {
    const bool below = value<-65504, above = value> 65504;
    const float kept = below ? -65504.0f : above ? 65504.0f : value;
    return {static_cast<double>(math::HalfToFloat(math::FloatToHalf(kept))), below, above};
  }
  const double top = samples.type == DType::kU8 ? 255 : 65535;
  const double v = (static_cast<double>(value) - samples.low) * top / (samples.high - samples.low);
  if (std::isnan(v)) return {0, true, false};
  return {std::clamp(std::floor(v + 0.5), 0.0, top), v<-0.5, v> top + 0.5};
}
double NumberAt(DType type, const char* bytes, int64_t i) {
  if (type == DType::kU8) return static_cast<uint8_t>(bytes[i]);
  uint16_t bits = 0;
  std::memcpy(&bits, bytes + 2 * i, 2);
  return type == DType::kU16 ? bits : static_cast<double>(math::HalfToFloat(bits));
}

// A run whose result is committed while it is made tells how much of it is made, in its own order
// even if somebody watches another slice.
TEST(ResultVolumeTest, ACommittedResultIsMadeFrontToBackAndTold) {
  for (const DType type : {DType::kU8, DType::kU16, DType::kF16, DType::kF32}) {
    for (const bool in_order : {true, false}) {
      for (const bool on_disk : {false, true}) {
        SCOPED_TRACE(absl::StrCat(Info(type).name, " ", in_order, " ", on_disk));
        TomographySpec spec = DiscSpec();
        spec.samples.type = type;
        if (spec.samples.windowed()) spec.samples.low = 0, spec.samples.high = 0.03;
        const TomographyLayout layout = DiscLayout(spec);
        FakeRun run;
        run.in_order = in_order;
        run.wanted = {{.key = {.product = model::Product::kBscan,
                               .axis = model::FrameAxis::kZ,
                               .plane_index = 5},
                       .previews = true}};
        TomographyTask task{.spec = &spec,
                            .layout = &layout,
                            .input = std::make_shared<DiscInput>(),
                            .half_turns = {},
                            .slices_per_batch = 2,
                            .on_disk = on_disk};
        ASSERT_THAT(RunTomography(run, {}, task), IsOk());
        const int64_t slice = kColumns * kColumns * SizeOf(type);
        if (in_order && !on_disk) {
          EXPECT_THAT(run.made, ElementsAre(2 * slice, 4 * slice, 6 * slice, 7 * slice));
        } else {
          EXPECT_THAT(run.made, IsEmpty());
        }
        EXPECT_EQ(run.stored.size(), on_disk ? static_cast<size_t>(kRows * slice) : 0);
      }
    }
  }
}

TEST(ResultVolumeTest, VoxelsAreConvertedAndTheClippedOnesCounted) {
  for (const DType type : {DType::kU8, DType::kU16, DType::kF16}) {
    for (const bool on_disk : {false, true}) {
      SCOPED_TRACE(::testing::Message() << Info(type).name << (on_disk ? " on disk" : ""));
      FakeRun run;
      TomographySpec spec = DiscSpec();
      spec.samples = {.type = type};
      if (type != DType::kF16) spec.samples.low = -0.25, spec.samples.high = 5.5;
      const ScannedObject disc = Disc(spec);
      const int64_t size = disc.layout.image_columns(), elements = size * size;
      const TomographyTask task = TaskOf(spec, disc, on_disk);
      ResultVolume result(run, task);
      ASSERT_THAT(result.Begin(0, disc, {.low = spec.samples.low, .high = spec.samples.high}),
                  IsOk());
      EXPECT_EQ(run.result.dtype, type);
      EXPECT_EQ(run.result.has_levels, type != DType::kF16);
      EXPECT_EQ(result.ImagesOf(3), result.ImagesOf(0)) << "each batch is converted in turn";
      std::vector<float> all;
      for (int64_t first = 0; first < kRows; first += 3) {
        const int64_t count = std::min<int64_t>(3, kRows - first);
        std::vector<float> images;
        for (int64_t i = 0; i < count * elements; ++i) {
          const int64_t slice = first + i / elements, pixel = i % elements;
          float value = static_cast<float>(slice) - 0.5f +
                        static_cast<float>(pixel) / static_cast<float>(elements);
          if (slice != 3 && pixel % 97 == 0) value = std::numeric_limits<float>::quiet_NaN();
          if (slice != 3 && pixel % 101 == 0) value = std::numeric_limits<float>::infinity();
          if (slice != 3 && pixel % 103 == 0) value = -70000;
          images.push_back(value);
        }
        ASSERT_THAT(run.device().CopyToDevice(run.stream(), result.ImagesOf(first), images.data(),
                                              std::ssize(images) * 4),
                    IsOk());
        ASSERT_THAT(run.stream().Synchronize(), IsOk());
        ASSERT_THAT(result.Add(first, count), IsOk());
        ASSERT_THAT(run.stream().Synchronize(), IsOk());
        all.insert(all.end(), images.begin(), images.end());
      }
      TomographyReport report;
      ASSERT_THAT(result.Conclude(report), IsOk());
      const std::vector<char> stored =
          on_disk ? run.stored
                  : run.Download<char>(run.result_data(),
                                       all.size() * static_cast<size_t>(SizeOf(type)));
      ASSERT_EQ(std::ssize(stored), std::ssize(all) * SizeOf(type));
      int64_t below = 0, above = 0, wrong = 0;
      for (int64_t i = 0; i < std::ssize(all); ++i) {
        const Stored wanted = StoredOf(spec.samples, all[static_cast<size_t>(i)]);
        const double got = NumberAt(type, stored.data(), i);
        wrong += got == wanted.number || (std::isnan(got) && std::isnan(wanted.number)) ? 0 : 1;
        below += wanted.below ? 1 : 0;
        above += wanted.above ? 1 : 0;
      }
      EXPECT_EQ(wrong, 0);
      EXPECT_GT(below, 0);
      EXPECT_GT(above, 0);
      EXPECT_EQ(report.clipped_below, below);
      EXPECT_EQ(report.clipped_above, above);
      EXPECT_EQ(run.result.clipped_below, below);
      EXPECT_EQ(run.result.clipped_above, above);
      EXPECT_EQ(report.low, spec.samples.low);
      EXPECT_EQ(report.high, spec.samples.high);
      if (type == DType::kF16) {
        EXPECT_THAT(run.warnings, IsEmpty()) << "less than a fiftieth is clipped";
      } else {
        EXPECT_THAT(run.warnings, ElementsAre(HasSubstr("were clipped")));
      }
      // The MIP has the voxels' type, and the display levels are stored numbers.
      const auto mip =
          run.Download<char>(run.ResultMip(0, true), static_cast<size_t>(elements * SizeOf(type)));
      EXPECT_EQ(NumberAt(type, mip.data(), 1),
                StoredOf(spec.samples, all[static_cast<size_t>(6 * elements + 1)]).number);
      const double tolerance = type == DType::kU8 ? 1 : type == DType::kU16 ? 130 : 0.01;
      const auto wanted = [&](float value) {
        return type == DType::kF16 ? static_cast<double>(value)
                                   : StoredOf(spec.samples, value).number;
      };
      EXPECT_NEAR(run.result.display_lo, wanted(2.5f), tolerance);
      EXPECT_NEAR(run.result.display_hi, wanted(3.5f), tolerance);
    }
  }
}

class ValueWindowTest : public ::testing::Test {
 protected:
  /// Of trial slices of the disc, whose value is about 0.01.
  ValueWindow Find(const TomographySpec& spec) {
    const ScannedObject disc{.input = std::make_shared<DiscInput>(),
                             .layout = DiscLayout(spec),
                             .centers = DiscLayout(spec).GivenCenters(),
                             .missing_frames = {}};
    RowPreparer rows(run_, {});
    const int64_t before = run_.used();
    void* const image = run_.Allocate(disc.layout.image_bytes()).value();
    const auto window = WindowFor(spec, disc, run_, {}, rows, static_cast<float*>(image));
    run_.Free(image);
    EXPECT_EQ(run_.used(), before) << "what the trials took is free again";
    EXPECT_THAT(window, IsOk());
    return window.value_or(ValueWindow{});
  }
  FakeRun run_;
};

TEST_F(ValueWindowTest, AGivenWindowIsTakenAndFloatsNeedNone) {
  TomographySpec spec = DiscSpec();
  EXPECT_EQ(Find(spec).high, 0);
  spec.samples = {.type = DType::kF16};
  EXPECT_EQ(Find(spec).high, 0);
  spec.samples = {.type = DType::kU8, .low = -1, .high = 2};
  EXPECT_EQ(Find(spec).low, -1);
  EXPECT_EQ(Find(spec).high, 2);
  EXPECT_THAT(run_.log, IsEmpty()) << "nothing was looked for";
}

TEST_F(ValueWindowTest, AFoundWindowHoldsTheObjectAndIsNotMuchWider) {
  for (const auto algorithm :
       {TomographyAlgorithm::kFbp, TomographyAlgorithm::kSirt, TomographyAlgorithm::kMlem}) {
    TomographySpec spec = DiscSpec(algorithm);
    spec.samples = {.type = DType::kU16};
    const ValueWindow window = Find(spec);
    EXPECT_LE(window.low, 0);
    EXPECT_GT(window.high, 0.01);
    EXPECT_LT(window.high - window.low, 0.03);
    EXPECT_EQ(static_cast<double>(static_cast<float>(window.low)), window.low);
    if (algorithm == TomographyAlgorithm::kMlem) EXPECT_EQ(window.low, 0) << "no pixel is below";
  }
  EXPECT_THAT(run_.log, ::testing::Each(HasSubstr("found in 5 slices")));
}

TEST_F(ValueWindowTest, BoundsOfThePixelsBoundIt) {
  TomographySpec spec = DiscSpec(TomographyAlgorithm::kSirt);
  spec.samples = {.type = DType::kU8};
  spec.reconstruction.has_min = spec.reconstruction.has_max = true;
  spec.reconstruction.min_value = 0;
  spec.reconstruction.max_value = 0.005;
  const ValueWindow window = Find(spec);
  EXPECT_EQ(window.low, 0);
  EXPECT_EQ(window.high, static_cast<double>(0.005f));
}

TEST_F(ValueWindowTest, TriedAxesAreTheTrials) {
  TomographySpec spec = DiscSpec();
  spec.center = {};
  spec.try_centers = TryCentersSpec{.begin = 28.25, .end = 30.25, .step = 1, .row = 3};
  spec.samples = {.type = DType::kU8};
  const ValueWindow window = Find(spec);
  EXPECT_GT(window.high, 0.01);
  EXPECT_THAT(run_.log, ElementsAre(HasSubstr("found in 3 slices")));
}

TEST_F(ValueWindowTest, NothingToSeeIsStillAWindow) {
  TomographySpec spec = DiscSpec();
  spec.samples = {.type = DType::kU8};
  const ScannedObject empty{.input = std::make_shared<DiscInput>(0),
                            .layout = DiscLayout(spec),
                            .centers = {kAxis},
                            .missing_frames = {}};
  RowPreparer rows(run_, {});
  void* const image = run_.Allocate(empty.layout.image_bytes()).value();
  ASSERT_OK_AND_ASSIGN(const ValueWindow window,
                       WindowFor(spec, empty, run_, {}, rows, static_cast<float*>(image)));
  EXPECT_LT(window.low, window.high);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THAT(WindowFor(spec, empty, run_, stop.get_token(), rows, static_cast<float*>(image)),
              IsError(absl::StatusCode::kCancelled, ""));
}

TEST(ResultVolumeTest, FramesThatNeverCameAreNoted) {
  FakeRun run;
  const TomographySpec spec = DiscSpec();
  ScannedObject disc = Disc(spec);
  disc.missing_frames = {{3, 2}, {9, 1}};
  const TomographyTask task = TaskOf(spec, disc, false);
  ResultVolume result(run, task);
  ASSERT_THAT(result.Begin(0, disc, {}), IsOk());
  EXPECT_FALSE(run.result.complete);
  EXPECT_EQ(run.result.missing_frames, 3);
  EXPECT_EQ(run.result.missing_frame_ranges.size(), 2u);
}

TEST(SliceMakerTest, ABatchIsReconstructedToldAndShown) {
  for (const auto algorithm : {TomographyAlgorithm::kFbp, TomographyAlgorithm::kSirt}) {
    FakeRun run;
    const bool iterates = algorithm == TomographyAlgorithm::kSirt;
    const TomographySpec spec = DiscSpec(algorithm);
    const ScannedObject disc = Disc(spec);
    TomographyTask task = TaskOf(spec, disc, false);
    task.slices_per_batch = 2;
    PreviewMaker previews(run);
    ASSERT_THAT(previews.Begin(disc.layout.image_bytes()), IsOk());
    run.preview_due = true;
    run.wanted = {{.key = {.product = Product::kBscan, .axis = FrameAxis::kZ, .plane_index = 3},
                   .previews = true}};
    TomographyReport report;
    SliceMaker slices(run, {}, task, previews, report);
    EXPECT_EQ(slices.iterations(), iterates ? 3 : 1);
    RowPreparer rows(run, {});
    ASSERT_OK_AND_ASSIGN(const PreparedRows prepared,
                         rows.Prepare(disc.layout, disc.input, disc.layout.RowsOf(2, 2), false));
    ASSERT_OK_AND_ASSIGN(void* const images, run.Allocate(2 * disc.layout.image_bytes()));
    ASSERT_OK_AND_ASSIGN(const double norm,
                         slices.Make(disc, {.first = 2,
                                            .count = 2,
                                            .sinograms = prepared.sinograms(),
                                            .images = static_cast<float*>(images)}));
    slices.Conclude();
    EXPECT_EQ(std::isnan(norm), !iterates);
    EXPECT_EQ(std::isnan(report.residual_norm), !iterates);
    if (iterates) {
      EXPECT_DOUBLE_EQ(report.residual_norm, norm);
      EXPECT_LT(report.relative_residual, 1);
      EXPECT_EQ(report.stop, model::IterationStop::kIterations);
      EXPECT_THAT(run.steps, ElementsAre(1, 2, 3));
      EXPECT_THAT(run.log, ElementsAre(HasSubstr("slices 2 to 3: 3 iterations")));
    }
    ASSERT_FALSE(run.published.empty());
    const size_t elements = static_cast<size_t>(disc.layout.image_bytes() / 4);
    const auto made = run.Download(static_cast<float*>(images) + elements, elements);
    EXPECT_EQ(run.published.back(), made) << "the last preview is the slice itself";
    EXPECT_GT(std::accumulate(made.begin(), made.end(), 0.0), 0);
    ASSERT_THAT(run.stream().Synchronize(), IsOk());
  }
}

/// A scan of as many projections as a job may use.
storage::ProjectionInfo LongScan() {
  storage::ProjectionInfo info = DiscInput::Info();
  info.projections = 65535;
  info.rows = 400;
  info.angles_rad.clear();
  for (int64_t a = 0; a < info.projections; ++a)
    info.angles_rad.push_back(testing::kPi * static_cast<double>(a) /
                              static_cast<double>(info.projections));
  return info;
}

double SecondsOf(const std::function<void()>& work) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    least = std::min(least, took.count());
  }
  return least;
}

// The tables of all angles are made once, by the run: a plan, which looks at many batches and
// turns, takes a few times as long as one of them, and not hundreds of times.
TEST(PlanTest, ManyAnglesArePlannedWithoutTheirTables) {
  FakeRun run;
  TomographySpec spec = DiscSpec(TomographyAlgorithm::kTv);
  spec.reconstruction.tv_weight = 0.01;
  spec.center = {.pixels = {}, .find = true, .automatic = true};
  spec.center.search.method = CenterMethod::kPairs;
  spec.center.along_rows = AlongRows::kTurn;
  ASSERT_OK_AND_ASSIGN(const TomographyLayout layout, TomographyLayout::Make(spec, LongScan(), 0));
  const TomographyConfig one = layout.ReconstructFor(0, 16, {31.5});
  const double table = SecondsOf([&] { (void)PlanTomography(one); });
  MemoryBook known;
  const auto plan = [&](MemoryBook& book) {
    for (const int64_t slices : {64, 32, 16, 8, 4, 2, 1})
      EXPECT_THAT(MemoryFor(layout, spec, run.device(), slices, 1.75, false, LiveKind::kNone, false,
                            true, book),
                  IsOk());
  };
  plan(known);
  const double all = SecondsOf([&] {
    MemoryBook book;
    plan(book);
  }),
               again = SecondsOf([&] { plan(known); });
  EXPECT_LT(all, 40 * table);
  EXPECT_LT(again, all);
}

// What the book knows is what would be found anew.
TEST(PlanTest, TheBookChangesNoNumber) {
  FakeRun run;
  for (const AlongRows along : {AlongRows::kOne, AlongRows::kLine, AlongRows::kTurn}) {
    TomographySpec spec = DiscSpec(TomographyAlgorithm::kSirt);
    spec.center = {.pixels = {}, .find = true, .automatic = true};
    spec.center.search.method = CenterMethod::kPairs;
    spec.center.along_rows = along;
    spec.samples.type = DType::kU8;
    const TomographyLayout layout = DiscLayout(spec);
    MemoryBook book;
    for (const double support : {1.75, 1.0, 1.75}) {
      for (const int64_t slices : {7, 3, 1, 3, 7}) {
        MemoryBook empty;
        ASSERT_OK_AND_ASSIGN(const TomographyMemory known,
                             MemoryFor(layout, spec, run.device(), slices, support, false,
                                       LiveKind::kNone, false, true, book));
        ASSERT_OK_AND_ASSIGN(const TomographyMemory anew,
                             MemoryFor(layout, spec, run.device(), slices, support, false,
                                       LiveKind::kNone, false, true, empty));
        EXPECT_EQ(known.workspace(), anew.workspace());
        EXPECT_EQ(known.reconstruct, anew.reconstruct);
        EXPECT_EQ(known.search, anew.search);
      }
    }
  }
}

TEST(SliceMakerTest, AStopWithinABatchCancels) {
  FakeRun run;
  const TomographySpec spec = DiscSpec(TomographyAlgorithm::kSirt);
  const ScannedObject disc = Disc(spec);
  const TomographyTask task = TaskOf(spec, disc, false);
  PreviewMaker previews(run);
  TomographyReport report;
  std::stop_source stop;
  SliceMaker slices(run, stop.get_token(), task, previews, report);
  RowPreparer rows(run, {});
  ASSERT_OK_AND_ASSIGN(const PreparedRows prepared,
                       rows.Prepare(disc.layout, disc.input, disc.layout.RowsOf(0, 3), false));
  ASSERT_OK_AND_ASSIGN(void* const images, run.Allocate(3 * disc.layout.image_bytes()));
  stop.request_stop();
  EXPECT_THAT(slices.Make(disc, {.first = 0,
                                 .count = 3,
                                 .sinograms = prepared.sinograms(),
                                 .images = static_cast<float*>(images)}),
              IsError(absl::StatusCode::kCancelled, ""));
  ASSERT_THAT(run.stream().Synchronize(), IsOk());
}

}  // namespace
}  // namespace octavo::engine

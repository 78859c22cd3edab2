// Tomography jobs whose axis leans in the plane of the detector: spheres with a known axis, found
// as a line along the rows. The attenuation falls from the middle of a sphere as 1 - r^2, so that
// there are no edges, which pixels would lose.

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>

#include "server/engine/job_kinds.h"
#include "server/job/job_queue.h"
#include "tests/server/job/job_fixture.h"
#include "tests/support/seed.h"
#include "tests/support/temp_folder.h"

namespace octavo::engine {
namespace {

using model::AlongRows;
using model::AxisLineReport;
using octavo::testing::IsError;
using octavo::testing::IsOk;
using ::testing::HasSubstr;

constexpr double kPi = 3.14159265358979323846;
constexpr int64_t kAngles = 90, kColumns = 96;
constexpr double kDegrees = 180 / kPi;
constexpr double kAxis = 45.3;  // in the middle row

// An ellipsoid: x, y, z of its middle in pixels from the axis and from the middle row, its radius
// across the axis, and how many times as thick it is along the axis.
struct Sphere {
  double x, y, z, radius, value, thick = 1;
};

struct Scan {
  int64_t rows = 45, columns = kColumns;
  double tilt_degrees = 0;
  bool mixed = false;            // rows mix as on a detector that leans; else only the axis moves
  double noise = 0, radius = 6;  // of spheres, in the mean
  int64_t empty_begin = 0, empty_end = 0;  // rows without an object
  double axis = kAxis;
  std::vector<Sphere> spheres;  // empty: 60 spheres
};

class AxisLineJobTest : public testing::JobFixture {
 protected:
  AxisLineJobTest() {
    for (int64_t i = 0; i < kAngles; ++i)
      angles_.push_back(2 * kPi * static_cast<double>(i) / kAngles);
  }

  /// scan.npy: line integrals [angle, row, column].
  void Write(const Scan& scan) {
    std::mt19937 places(17), random(octavo::testing::FreshSeed());
    std::uniform_real_distribution<double> uniform(-1, 1);
    std::normal_distribution<double> normal(0, scan.noise > 0 ? scan.noise : 1);
    std::vector<Sphere> spheres = scan.spheres;
    const double middle = 0.5 * static_cast<double>(scan.rows - 1),
                 middle_column = 0.5 * static_cast<double>(scan.columns - 1);
    for (int i = 0; scan.spheres.empty() && i < 60; ++i) {
      spheres.push_back({.x = 20 * uniform(places),
                         .y = 20 * uniform(places),
                         .z = (middle + 4) * uniform(places),
                         .radius = scan.radius * (1 + uniform(places) / 3),
                         .value = 0.04 + 0.02 * uniform(places)});
    }
    const double tilt = scan.tilt_degrees * kPi / 180;
    std::vector<float> values;
    for (const double angle : angles_) {
      for (int64_t r = 0; r < scan.rows; ++r) {
        for (int64_t c = 0; c < scan.columns; ++c) {
          // Seen from the middle of the detector, about which it leans.
          const double shift = middle_column - scan.axis, y = static_cast<double>(r) - middle,
                       x = static_cast<double>(c) - middle_column;
          const double u = shift + (scan.mixed ? x * std::cos(tilt) - y * std::sin(tilt)
                                               : x - y * std::tan(tilt)),
                       v = scan.mixed ? x * std::sin(tilt) + y * std::cos(tilt) : y;
          double sum = 0;
          for (const Sphere& s : spheres) {
            const double du = u - (s.x * std::cos(angle) - s.y * std::sin(angle)),
                         dv = (v - s.z) / s.thick, square = s.radius * s.radius - du * du - dv * dv;
            if (square > 0)
              sum += 4.0 / 3 * s.value * std::pow(square, 1.5) / (s.radius * s.radius);
          }
          if (r >= scan.empty_begin && r < scan.empty_end) sum = 0;
          values.push_back(static_cast<float>(sum + (scan.noise > 0 ? normal(random) : 0)));
        }
      }
    }
    std::string dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                       std::to_string(kAngles) + ", " + std::to_string(scan.rows) + ", " +
                       std::to_string(scan.columns) + "), }";
    dict.resize((dict.size() + 10 + 63) / 64 * 64 - 11, ' ');
    dict += '\n';
    std::ofstream file(folder_.path() + "/scan.npy", std::ios::binary);
    file.write("\x93NUMPY\x01\x00", 8);
    file.put(static_cast<char>(dict.size() & 255)).put(static_cast<char>(dict.size() >> 8));
    file << dict;
    file.write(reinterpret_cast<const char*>(values.data()), std::ssize(values) * 4);
  }

  TomographySpec Spec(AlongRows along) const {
    TomographySpec spec;
    spec.input = ProjectionFileSpec{.path = "scan.npy", .options = {}};
    spec.angles_rad = angles_;
    spec.preparation.config.minus_log = false;
    spec.preparation.ignore_fields = true;
    spec.reconstruction.algorithm = TomographyAlgorithm::kFbp;
    spec.center = {.pixels = {}, .find = true, .automatic = true};
    spec.center.search.method = CenterMethod::kPairs;
    spec.center.along_rows = along;
    spec.json = "{}";
    return spec;
  }
  static TomographySpec Given(TomographySpec spec, std::vector<double> pixels) {
    spec.center = {};
    spec.center.pixels = std::move(pixels);
    return spec;
  }
  absl::StatusOr<JobStatus> Submit(const TomographySpec& work) {
    const auto spec = std::make_unique<JobSpec>();
    spec->work = work;
    return SubmitTo(*spec, {.volumes = &store_,
                            .spiller = nullptr,
                            .ledger = &ledger_,
                            .buffers = nullptr,
                            .file_roots = {folder_.path()},
                            .projection_memory = nullptr,
                            .clock = &clock_});
  }
  struct Made {
    JobStatus job;
    TomographyReport report;
    AxisLineReport line;
    std::vector<float> values;
  };
  Made Run(const TomographySpec& spec) {
    Made made;
    made.job = WaitDone(Submit(spec));
    if (made.job.volumes.empty()) return made;
    made.report = std::get<TomographyReport>(made.job.finding);
    EXPECT_EQ(made.report.axis_line.has_value(), spec.center.searches_line());
    made.line = made.report.axis_line.value_or(AxisLineReport());
    {
      const auto pinned = store_.Hold(made.job.volumes[0], HoldKind::kDevice);
      EXPECT_THAT(pinned, IsOk());
      made.values.resize(static_cast<size_t>(pinned->status.bytes / 4));
      const Stream stream = *device_.NewStream(StreamPriority::kNormal);
      EXPECT_THAT(device_.CopyToHost(stream.ref(), made.values.data(), pinned->slot->volume.data(),
                                     pinned->status.bytes),
                  IsOk());
      EXPECT_THAT(stream.ref().Synchronize(), IsOk());
    }
    EXPECT_THAT(store_.Discard(made.job.volumes[0], Reason::kDiscarded, "test"), IsOk());
    return made;
  }
  /// Leaves out a tenth of the slices at both ends, where a turned detector sees something else.
  static double Distance(const std::vector<float>& a, const std::vector<float>& b) {
    EXPECT_EQ(a.size(), b.size());
    double squares = 0;
    for (size_t i = a.size() / 10; i < a.size() - a.size() / 10; ++i)
      squares += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    return std::sqrt(squares / static_cast<double>(a.size()));
  }

  octavo::testing::TempFolder folder_;
  std::vector<double> angles_;
};

TEST_P(AxisLineJobTest, EachSliceGetsItsAxis) {
  for (const double tilt : {0.2, -0.2, 1.0, -1.0}) {
    SCOPED_TRACE(tilt);
    const Scan scan{.rows = 72, .tilt_degrees = tilt, .noise = 0.005};
    Write(scan);
    TomographySpec spec = Spec(AlongRows::kLine);
    const Made made = Run(spec);
    ASSERT_EQ(std::ssize(made.report.centers), scan.rows);
    const double slope = std::tan(tilt * kPi / 180);
    EXPECT_TRUE(made.line.leans);
    // PAIRS interpolates between half columns, with an error of some hundredths of a column.
    EXPECT_NEAR(made.line.tilt_degrees, tilt, 0.18);
    EXPECT_NEAR(made.line.slope, slope, 4 * made.line.slope_uncertainty);
    EXPECT_NEAR(made.line.tilt_degrees, std::atan(made.line.slope) * 180 / kPi, 1e-9);
    EXPECT_NEAR(made.line.offset, kAxis - slope * 35.5, 0.2);
    EXPECT_LT(made.line.residual_rms, 0.2);
    EXPECT_EQ(made.line.turned_degrees, 0);
    ASSERT_EQ(made.line.groups.size(), 9u);
    for (size_t i = 0; i < 9; ++i) {
      EXPECT_EQ(made.line.groups[i].first_row, static_cast<int64_t>(8 * i));
      EXPECT_EQ(made.line.groups[i].rows, 8);
    }
    for (int64_t r = 0; r < scan.rows; ++r) {
      EXPECT_NEAR(made.report.centers[static_cast<size_t>(r)],
                  made.line.offset + made.line.slope * static_cast<double>(r), 1e-9);
      EXPECT_NEAR(made.report.centers[static_cast<size_t>(r)],
                  kAxis + slope * (static_cast<double>(r) - 35.5), 0.2);
    }
    EXPECT_EQ(made.report.center_source, model::CenterSource::kPairs);
    EXPECT_GT(made.report.center_uncertainty, 0);
    // The slices are those of these axes, whatever the batches.
    EXPECT_EQ(Run(Given(spec, made.report.centers)).values, made.values);
    if (tilt != 1.0) continue;
    spec.slices_per_batch = 7;
    EXPECT_EQ(Run(spec).values, made.values);
  }
  EXPECT_EQ(ledger_.UseOf(0).granted(), 0);
}

TEST_P(AxisLineJobTest, AnUprightAxisIsOne) {
  Write({.rows = 72, .tilt_degrees = 0, .noise = 0});
  for (const AlongRows along : {AlongRows::kLine, AlongRows::kTurn}) {
    const TomographySpec spec = Spec(along);
    const Made made = Run(spec);
    EXPECT_FALSE(made.line.leans);
    EXPECT_EQ(made.line.turned_degrees, 0);
    EXPECT_NEAR(made.line.tilt_degrees, 0, 0.08);
    ASSERT_EQ(made.report.centers.size(), 1u);
    EXPECT_NEAR(made.report.centers[0], kAxis, 0.1);
    EXPECT_EQ(Run(Given(spec, made.report.centers)).values, made.values);
  }
}

TEST_P(AxisLineJobTest, RowsWithoutAnObjectAreLeftOut) {
  Write({.rows = 72, .tilt_degrees = 1, .noise = 0.005, .empty_begin = 40, .empty_end = 56});
  const Made made = Run(Spec(AlongRows::kLine));
  ASSERT_EQ(made.line.groups.size(), 9u);
  for (const auto& group : made.line.groups) {
    if (group.first_row >= 40 && group.first_row < 56) {
      EXPECT_FALSE(group.used) << "rows from " << group.first_row;
    } else {
      EXPECT_TRUE(group.used) << "rows from " << group.first_row;
    }
  }
  EXPECT_TRUE(made.line.leans);
  EXPECT_NEAR(made.line.tilt_degrees, 1, 0.1);
  EXPECT_EQ(made.report.centers.size(), 72u);
}

// Rows of the request, bins and columns that are cut off: the line counts in the whole detector.
TEST_P(AxisLineJobTest, TheLineCountsInTheWholeDetector) {
  Write({.rows = 80, .tilt_degrees = 1});
  TomographySpec spec = Spec(AlongRows::kLine);
  spec.rows = {.begin = 6, .end = 78, .step = 0};
  spec.columns = {.begin = 3, .end = 0, .step = 0};
  spec.preparation.config.bin_rows = 2;
  const Made made = Run(spec);
  const double slope = std::tan(kPi / 180);
  EXPECT_NEAR(made.line.slope, slope, 0.002);
  EXPECT_NEAR(made.line.offset, kAxis - slope * 39.5, 0.2);
  ASSERT_EQ(made.report.centers.size(), 36u);
  EXPECT_NEAR(made.report.centers[0], made.line.offset + made.line.slope * 6.5, 1e-9);
  EXPECT_NEAR(made.report.centers[35], made.line.offset + made.line.slope * 76.5, 1e-9);
  EXPECT_EQ(made.line.groups.front().first_row, 6);
  EXPECT_EQ(made.line.groups.front().rows, 8);
  spec.preparation.config.bin_rows = 1;
  spec.rows.step = 3;
  const Made stepped = Run(spec);
  EXPECT_NEAR(stepped.line.slope, slope, 0.002);
  ASSERT_EQ(stepped.report.centers.size(), 24u);
  EXPECT_NEAR(stepped.report.centers[23], stepped.line.offset + stepped.line.slope * 75, 1e-9);
}

TEST_P(AxisLineJobTest, OtherMethodsFindItToo) {
  Write({.rows = 60, .tilt_degrees = 2});
  for (const CenterMethod method : {CenterMethod::kVo, CenterMethod::kPhaseCorrelation}) {
    TomographySpec spec = Spec(AlongRows::kLine);
    spec.center.automatic = false;
    spec.center.search.method = method;
    spec.center.search_begin = 35;
    spec.center.search_end = 55;
    const Made made = Run(spec);
    EXPECT_TRUE(made.line.leans);
    EXPECT_NEAR(made.line.tilt_degrees, 2, 0.5);
    for (const auto& group : made.line.groups)
      EXPECT_EQ(group.uncertainty, 0.25) << "these methods tell none";
  }
}

TEST_P(AxisLineJobTest, FewRowsAreTakenAsTheyAre) {
  Write({.rows = 5, .tilt_degrees = 1});
  const Made made = Run(Spec(AlongRows::kLine));
  ASSERT_EQ(made.line.groups.size(), 5u);
  EXPECT_FALSE(made.line.leans) << "0.07 columns over all rows";
  ASSERT_EQ(made.report.centers.size(), 1u);
  EXPECT_NEAR(made.report.centers[0], kAxis, 0.3);
  TomographySpec spec = Spec(AlongRows::kLine);
  spec.rows = {.begin = 0, .end = 2, .step = 0};
  const auto refused = Submit(spec);
  EXPECT_THAT(refused, IsError(absl::StatusCode::kInvalidArgument, "2 slices; allowed from 3"));
  EXPECT_EQ(InfoOf(refused.status()).field, "tomography.center.along_rows");
}

// Noise alone has no axis: one axis is taken with a warning, or the job fails.
TEST_P(AxisLineJobTest, GroupsThatDoNotAgreeAreADoubt) {
  Write({.rows = 45, .noise = 1, .empty_begin = 0, .empty_end = 45});
  for (const AlongRows along : {AlongRows::kLine, AlongRows::kTurn}) {
    TomographySpec spec = Spec(along);
    const Made made = Run(spec);
    EXPECT_EQ(made.report.centers.size(), 1u);
    EXPECT_FALSE(made.line.leans);
    const auto doubt = [](const std::string& s) {
      return s.find("groups of rows show it on one line") != std::string::npos;
    };
    EXPECT_TRUE(std::any_of(made.job.warnings.begin(), made.job.warnings.end(), doubt));
    spec.center.fail_on_doubt = true;
    const auto job = Submit(spec);
    ASSERT_THAT(job, IsOk());
    const JobStatus failed = Wait(job->name);
    EXPECT_EQ(failed.state, JobState::kFailed);
    EXPECT_THAT(failed.reason, HasSubstr("tomography.center: The axis"));
    EXPECT_TRUE(failed.volumes.empty());
    EXPECT_EQ(std::get<TomographyReport>(failed.finding).axis_line->groups.size(), 9u);
  }
  EXPECT_EQ(ledger_.UseOf(0).granted(), 0);
}

TEST_P(AxisLineJobTest, TurnedProjectionsHaveOneAxis) {
  for (const double tilt : {-1.5, 1.7}) {
    SCOPED_TRACE(tilt);
    Scan scan{.rows = 60, .tilt_degrees = 0, .mixed = true, .radius = 13};
    Write(scan);
    TomographySpec spec = Spec(AlongRows::kTurn);
    spec.reconstruction.filter = ProjectionFilter::kHann;
    const std::vector<float> upright = Run(Given(spec, {kAxis})).values;
    scan.tilt_degrees = tilt;
    Write(scan);
    const Made made = Run(spec);
    EXPECT_TRUE(made.line.leans);
    EXPECT_NEAR(made.line.turned_degrees, tilt, 0.18);
    EXPECT_EQ(made.line.turned_degrees, made.line.tilt_degrees);
    ASSERT_EQ(made.report.centers.size(), 1u);
    const double middle = 0.5 * (kColumns - 1);
    EXPECT_NEAR(made.report.centers[0], middle + (kAxis - middle) * std::cos(tilt * kPi / 180),
                0.1);
    // The same as a given roll with that axis, whatever the batches.
    TomographySpec given = Given(spec, made.report.centers);
    given.preparation.config.roll.degrees = made.line.turned_degrees;
    EXPECT_EQ(Run(given).values, made.values);
    given.slices_per_batch = 7;
    const double largest =
        static_cast<double>(*std::max_element(made.values.begin(), made.values.end()));
    EXPECT_LT(Distance(Run(given).values, made.values), 1e-6 * largest);
    TomographySpec each = spec;
    each.center.along_rows = AlongRows::kLine;
    // Much nearer to the scan that does not lean than without the turn.
    const double off = Distance(made.values, upright),
                 without = Distance(Run(Given(spec, {kAxis})).values, upright),
                 lines = Distance(Run(each).values, upright);
    EXPECT_LT(off, 0.6 * without);
    EXPECT_LT(off, lines);
  }
  EXPECT_EQ(ledger_.UseOf(0).granted(), 0);
}

// Objects whose parts are thick along the axis, or flat, of random sizes: within a row both sides
// see different parts of them.
TEST_P(AxisLineJobTest, TurnedProjectionsTellTheRestOfTheTilt) {
  std::mt19937 places(23);
  std::uniform_real_distribution<double> uniform(-1, 1);
  const auto uniform_int = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(places);
  };
  double first_worst = 0, worst = 0;
  int turned = 0;
  for (const double tilt : {0.15, -0.3, 0.6, -1.0, 1.5, -1.8}) {
    Scan scan{.rows = uniform_int(48, 90),
              .columns = uniform_int(80, 128),
              .tilt_degrees = tilt,
              .mixed = true};
    scan.axis = 0.5 * static_cast<double>(scan.columns - 1) + 3 * uniform(places);
    const double width = 0.28 * static_cast<double>(scan.columns),
                 height = 0.5 * static_cast<double>(scan.rows);
    for (int i = 0; i < 50; ++i) {
      scan.spheres.push_back({.x = width * uniform(places),
                              .y = width * uniform(places),
                              .z = height * uniform(places),
                              .radius = 6 + 3 * uniform(places),
                              .value = 0.04 + 0.02 * uniform(places),
                              .thick = std::exp2(1.2 * uniform(places))});
    }
    SCOPED_TRACE(absl::StrCat("tilt ", tilt, ", ", scan.rows, " x ", scan.columns));
    Write(scan);
    TomographySpec spec = Spec(AlongRows::kTurn);
    spec.output = model::TomographyOutput::kSinograms;
    const Made made = Run(spec);
    const double off = std::abs(made.line.tilt_degrees - tilt),
                 stated = made.line.slope_uncertainty * kDegrees;
    EXPECT_LE(off, std::max(stated, 0.02));
    // The last round is what is told; each turns by what was known before.
    double known = 0;
    for (const auto& round : made.line.rounds) {
      EXPECT_EQ(round.turned_degrees, known);
      EXPECT_GT(round.uncertainty_degrees, 0);
      EXPECT_GE(round.groups_used, 3);
      known = round.tilt_degrees;
    }
    EXPECT_EQ(made.line.tilt_degrees, known);
    if (made.line.rounds.size() > 1) {
      EXPECT_LT(std::abs(made.line.rounds.back().remaining_degrees),
                std::abs(made.line.rounds.front().remaining_degrees));
    }
    if (made.line.turned_degrees != 0) {
      EXPECT_GE(made.line.rounds.size(), 2u);
      EXPECT_EQ(made.line.turned_degrees, known);
    }
    for (const auto& group : made.line.groups) {
      EXPECT_NEAR(group.center - group.residual,
                  made.line.offset + made.line.slope * (static_cast<double>(group.first_row) +
                                                        0.5 * static_cast<double>(group.rows - 1)),
                  1e-9);
    }
    first_worst = std::max(first_worst, std::abs(made.line.rounds.front().tilt_degrees - tilt));
    worst = std::max(worst, off);
    turned += made.line.turned_degrees != 0;
  }
  EXPECT_GE(turned, 5);
  EXPECT_LT(worst, 0.5 * first_worst);
  EXPECT_EQ(ledger_.UseOf(0).granted(), 0);
}

TEST_P(AxisLineJobTest, AnAxisThatLeansTooMuchToBeTurnedIsADoubt) {
  Write({.rows = 60, .tilt_degrees = 3, .mixed = true});
  TomographySpec spec = Spec(AlongRows::kTurn);
  const Made made = Run(spec);
  EXPECT_EQ(made.report.centers.size(), 60u);
  EXPECT_NEAR(made.line.tilt_degrees, 3, 0.3);
  EXPECT_EQ(made.line.turned_degrees, 0);
  EXPECT_THAT(made.job.warnings,
              ::testing::Contains(HasSubstr("TURN turns projections by up to 2")));
  const Made line = Run(Spec(AlongRows::kLine));
  EXPECT_EQ(line.values, made.values);
  EXPECT_THAT(line.job.warnings, ::testing::Contains(HasSubstr("rows apart")));
  spec.center.fail_on_doubt = true;
  const auto job = Submit(spec);
  ASSERT_THAT(job, IsOk());
  EXPECT_THAT(Wait(job->name).reason, HasSubstr("tomography.center: The axis leans"));
}

TEST_P(AxisLineJobTest, SinogramsTellTheLine) {
  Write({.rows = 60, .tilt_degrees = 1, .mixed = true});
  TomographySpec spec = Spec(AlongRows::kLine);
  spec.output = model::TomographyOutput::kSinograms;
  const Made line = Run(spec);
  EXPECT_TRUE(line.line.leans);
  EXPECT_EQ(line.report.centers.size(), 60u);
  TomographySpec plain = spec;
  plain.center = {};
  EXPECT_EQ(Run(plain).values, line.values) << "they are as without the search";
  spec.center.along_rows = AlongRows::kTurn;
  const Made turned = Run(spec);
  EXPECT_EQ(turned.report.centers.size(), 1u);
  plain.preparation.config.roll.degrees = turned.line.turned_degrees;
  for (const int64_t batch : {0, 7}) {
    plain.slices_per_batch = batch;
    EXPECT_EQ(Run(plain).values, turned.values) << "batches of " << batch;
  }
}

TEST_P(AxisLineJobTest, RefusesWhatCannotBe) {
  Write({.rows = 9});
  const auto refused = [&](const std::string& field, auto change) {
    TomographySpec spec = Spec(AlongRows::kTurn);
    change(spec);
    const auto job = Submit(spec);
    EXPECT_FALSE(job.ok()) << field;
    EXPECT_EQ(InfoOf(job.status()).field, field) << job.status();
  };
  refused("tomography.center.along_rows", [](TomographySpec& s) {
    s.center = {};
    s.center.along_rows = AlongRows::kLine;
  });
  refused("tomography.center.along_rows", [](TomographySpec& s) {
    s.center = {};
    s.center.pixels = {40};
    s.center.along_rows = AlongRows::kTurn;
  });
  refused("tomography.center.along_rows", [](TomographySpec& s) {
    s.center = {};
    s.center.along_rows = AlongRows::kLine;
    s.try_centers = TryCentersSpec{.begin = 40, .end = 42, .step = 1, .row = {}};
  });
  refused("tomography.center.row", [](TomographySpec& s) { s.center.row = 4; });
  refused("tomography.preparation.roll_degrees",
          [](TomographySpec& s) { s.preparation.config.roll.degrees = 0.5; });
  refused("tomography.rows.step", [](TomographySpec& s) { s.rows.step = 2; });
  refused("tomography.center.search_method", [](TomographySpec& s) {
    s.preparation.config.stitching = {.enabled = true, .overlap = 10};
  });
  refused("tomography.center", [](TomographySpec& s) {
    s.reconstruction.algorithm = TomographyAlgorithm::kSirt;
    s.reconstruction.form = TomographyForm::kTomopy;
  });
  refused("tomography.preparation.roll_degrees", [](TomographySpec& s) {
    s.center.along_rows = AlongRows::kLine;
    s.preparation.config.roll.degrees = -5.5;
  });
  refused("tomography.rows.step", [](TomographySpec& s) {
    s.center = {};
    s.preparation.config.roll.degrees = 1;
    s.rows.step = 2;
  });
  EXPECT_EQ(ledger_.UseOf(0).granted(), 0);
}

INSTANTIATE_TEST_SUITE_P(Backends, AxisLineJobTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine

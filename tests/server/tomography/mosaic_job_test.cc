// Tomography jobs on mosaics, beside jobs on the whole scan of which the tiles are parts.

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "server/engine/job_kinds.h"
#include "server/job/job_queue.h"
#include "server/source/push_projections.h"
#include "tests/server/job/job_fixture.h"
#include "tests/support/seed.h"
#include "tests/support/temp_folder.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using ::testing::HasSubstr;

constexpr double kPi = 3.14159265358979323846;
constexpr int64_t kAngles = 60, kRows = 40, kColumns = 150, kFlats = 3, kDarks = 2;
constexpr double kAxis = 73.25;
constexpr double kDark = 100, kOpen = 50000;

struct Cut {
  int64_t column = 0, row = 0, columns = 0, rows = 0;
  double gain = 1;                     // of its flat field beside that of the scan
  double off_column = 0, off_row = 0;  // of the given place
};

class MosaicJobTest : public engine::testing::JobFixture {
 protected:
  MosaicJobTest() : MosaicJobTest(1) {}
  explicit MosaicJobTest(double turns) {
    for (int64_t i = 0; i < kAngles; ++i)
      angles_.push_back(turns * kPi * static_cast<double>(i) / kAngles);
    std::mt19937 random(octavo::testing::FreshSeed());
    std::uniform_real_distribution<double> part(0, 1);
    for (int i = 0; i < 60; ++i) {
      const double radius = 62 * std::sqrt(part(random)), angle = 2 * kPi * part(random);
      balls_.push_back({.x = radius * std::cos(angle),
                        .y = radius * std::sin(angle),
                        .z = -3 + (kRows + 6) * part(random),
                        .radius = 1.5 + 4 * part(random)});
    }
    const std::vector<double> open = Fields(random, 1);
    WriteScan("whole", {.columns = kColumns, .rows = kRows}, open);
    open_ = open;
  }

  std::vector<double> Fields(std::mt19937& random, double gain) const {
    std::uniform_real_distribution<double> part(0.9, 1);
    std::vector<double> open;
    for (int64_t i = 0; i < kRows * kColumns; ++i)
      open.push_back(std::round(gain * kOpen * part(random)));
    return open;
  }

  /// The line integral of a ray through the object.
  double Integral(int64_t a, double column, double row) const {
    const double angle = angles_[static_cast<size_t>(a)], s = column - kAxis;
    double sum = 0.004 * 2 * std::sqrt(std::max(0.0, 66.0 * 66.0 - s * s));
    for (const Ball& ball : balls_) {
      const double d = s - ball.x * std::cos(angle) - ball.y * std::sin(angle), z = row - ball.z;
      sum += 0.02 * 2 * std::sqrt(std::max(0.0, ball.radius * ball.radius - d * d - z * z));
    }
    return sum;
  }

  template <class T>
  void Write(const std::string& name, const std::string& type, const std::vector<T>& data,
             const std::vector<int64_t>& shape) const {
    std::string dict = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (";
    for (const int64_t extent : shape) dict += std::to_string(extent) + ", ";
    dict += "), }";
    dict.resize((dict.size() + 10 + 63) / 64 * 64 - 11, ' ');
    dict += '\n';
    std::ofstream file(folder_.path() + "/" + name, std::ios::binary);
    file.write("\x93NUMPY\x01\x00", 8);
    file.put(static_cast<char>(dict.size() & 255)).put(static_cast<char>(dict.size() >> 8));
    file << dict;
    file.write(reinterpret_cast<const char*>(data.data()),
               static_cast<std::streamsize>(data.size() * sizeof(T)));
  }

  /// Writes the part of the scan with the flat field `open`, of the whole detector.
  ProjectionFileSpec WriteScan(const std::string& name, const Cut& cut,
                               const std::vector<double>& open) const {
    const auto open_at = [&](int64_t r, int64_t c) {
      return open[static_cast<size_t>((cut.row + r) * kColumns + cut.column + c)];
    };
    std::vector<uint16_t> counts, flats, darks;
    for (int64_t a = 0; a < kAngles; ++a) {
      for (int64_t r = 0; r < cut.rows; ++r) {
        for (int64_t c = 0; c < cut.columns; ++c)
          counts.push_back(static_cast<uint16_t>(std::lround(
              kDark + open_at(r, c) * std::exp(-Integral(a, static_cast<double>(cut.column + c),
                                                         static_cast<double>(cut.row + r))))));
      }
    }
    for (int64_t f = 0; f < kFlats; ++f) {
      for (int64_t r = 0; r < cut.rows; ++r) {
        for (int64_t c = 0; c < cut.columns; ++c)
          flats.push_back(static_cast<uint16_t>(
              std::lround(kDark + open_at(r, c) + static_cast<double>(f - 1))));
      }
    }
    darks.assign(static_cast<size_t>(kDarks * cut.rows * cut.columns),
                 static_cast<uint16_t>(kDark));
    Write(name + ".npy", "<u2", counts, {kAngles, cut.rows, cut.columns});
    Write(name + "_flats.npy", "<u2", flats, {kFlats, cut.rows, cut.columns});
    Write(name + "_darks.npy", "<u2", darks, {kDarks, cut.rows, cut.columns});
    return FileOf(name);
  }
  static ProjectionFileSpec FileOf(const std::string& name) {
    return {.path = name + ".npy",
            .options = {.flats = name + "_flats.npy", .darks = name + "_darks.npy"}};
  }

  TomographySpec Whole() const {
    TomographySpec spec;
    spec.input = FileOf("whole");
    spec.angles_rad = angles_;
    spec.reconstruction.algorithm = TomographyAlgorithm::kFbp;
    spec.center.pixels = {kAxis};
    spec.json = "{}";
    return spec;
  }
  /// The same job on tiles that are cut out of the scan.
  TomographySpec OfTiles(const std::vector<Cut>& cuts, int64_t search = 0) {
    std::mt19937 random(octavo::testing::FreshSeed());
    ProjectionMosaicSpec mosaic;
    mosaic.search = search;
    for (const Cut& cut : cuts) {
      const std::string name = "tile" + std::to_string(mosaic.tiles.size());
      mosaic.tiles.push_back(
          {.file = WriteScan(name, cut, cut.gain == 1 ? open_ : Fields(random, cut.gain)),
           .first_column = static_cast<double>(cut.column) + cut.off_column,
           .first_row = static_cast<double>(cut.row) + cut.off_row});
    }
    TomographySpec spec = Whole();
    spec.input = mosaic;
    return spec;
  }

  JobEnvironment Environment() {
    return {.volumes = &store_,
            .spiller = nullptr,
            .ledger = &ledger_,
            .buffers = nullptr,
            .file_roots = {folder_.path()},
            .projection_memory = &memory_,
            .clock = &clock_};
  }
  absl::StatusOr<JobStatus> Submit(const TomographySpec& work) {
    const auto spec = std::make_unique<JobSpec>();
    spec->work = work;
    return SubmitTo(*spec, Environment());
  }
  JobStatus Run(const TomographySpec& spec) { return WaitDone(Submit(spec)); }
  std::vector<float> VolumeOf(const JobStatus& job, size_t index = 0) {
    if (index >= job.volumes.size()) return {};
    const auto pinned = store_.Hold(job.volumes[index], HoldKind::kDevice);
    EXPECT_THAT(pinned, IsOk());
    std::vector<float> values(static_cast<size_t>(pinned->status.bytes / 4));
    const Stream stream = *device_.NewStream(StreamPriority::kNormal);
    EXPECT_THAT(device_.CopyToHost(stream.ref(), values.data(), pinned->slot->volume.data(),
                                   pinned->status.bytes),
                IsOk());
    EXPECT_THAT(stream.ref().Synchronize(), IsOk());
    return values;
  }
  static TomographyReport ReportOf(const JobStatus& job) {
    const auto* const report = std::get_if<TomographyReport>(&job.finding);
    EXPECT_NE(report, nullptr);
    return report == nullptr ? TomographyReport() : *report;
  }
  static std::string LogOf(const JobStatus& job) {
    std::string text;
    for (const auto& line : job.log) text += line.text + "\n";
    return text;
  }
  /// How far the volumes of a job are from those of another one, of their largest value.
  static double Difference(const std::vector<float>& made, const std::vector<float>& wanted) {
    EXPECT_EQ(made.size(), wanted.size());
    if (made.size() != wanted.size() || made.empty()) return 1e9;
    double largest = 0, off = 0;
    for (size_t i = 0; i < made.size(); ++i) {
      largest = std::max<double>(largest, std::abs(wanted[i]));
      off = std::max<double>(off, std::abs(made[i] - wanted[i]));
    }
    return off / largest;
  }

  struct Ball {
    double x = 0, y = 0, z = 0, radius = 0;
  };
  octavo::testing::TempFolder folder_;
  std::vector<double> angles_, open_;
  std::vector<Ball> balls_;
  ProjectionMemory memory_{1 << 20};
};

const std::map<std::string, std::vector<Cut>>& Layouts() {
  static const std::map<std::string, std::vector<Cut>> layouts = {
      {"two",
       {{.column = 0, .columns = 90, .rows = kRows}, {.column = 70, .columns = 80, .rows = kRows}}},
      {"three, in any order",
       {{.column = 95, .columns = 55, .rows = kRows},
        {.column = 0, .columns = 60, .rows = kRows},
        {.column = 45, .columns = 70, .rows = kRows}}},
      {"two by two",
       {{.column = 0, .row = 0, .columns = 80, .rows = 25},
        {.column = 65, .row = 0, .columns = 85, .rows = 25},
        {.column = 0, .row = 18, .columns = 80, .rows = 22},
        {.column = 65, .row = 18, .columns = 85, .rows = 22}}},
      {"one above the other",
       {{.row = 0, .columns = kColumns, .rows = 22},
        {.row = 22, .columns = kColumns, .rows = 18}}}};
  return layouts;
}

TEST_P(MosaicJobTest, TilesWithTheFieldsOfTheScanGiveItsSinogramsExactly) {
  TomographySpec whole = Whole();
  whole.output = TomographyOutput::kSinograms;
  whole.center = {};
  const std::vector<float> wanted = VolumeOf(Run(whole));
  for (const auto& [name, cuts] : Layouts()) {
    TomographySpec spec = OfTiles(cuts);
    spec.output = TomographyOutput::kSinograms;
    spec.center = {};
    spec.slices_per_batch = 7;
    EXPECT_EQ(VolumeOf(Run(spec)), wanted) << name;
  }
}

TEST_P(MosaicJobTest, TilesWithFieldsOfTheirOwnMakeWhatTheWholeScanMakes) {
  const JobStatus whole = Run(Whole());
  const std::vector<float> wanted = VolumeOf(whole);
  for (const auto& [name, cuts] : Layouts()) {
    std::vector<Cut> tiles = cuts;
    double gain = 0.8;
    for (Cut& tile : tiles) tile.gain = gain += 0.1;
    const JobStatus job = Run(OfTiles(tiles));
    EXPECT_LT(Difference(VolumeOf(job), wanted), 0.01) << name;
    EXPECT_TRUE(job.warnings.empty()) << job.warnings.front();
    ASSERT_EQ(ReportOf(job).mosaic_tiles.size(), tiles.size());
    for (size_t i = 0; i < tiles.size(); ++i) {
      EXPECT_EQ(ReportOf(job).mosaic_tiles[i].first_column, static_cast<double>(tiles[i].column));
      EXPECT_EQ(ReportOf(job).mosaic_tiles[i].first_row, static_cast<double>(tiles[i].row));
      EXPECT_FALSE(ReportOf(job).mosaic_tiles[i].found);
      EXPECT_TRUE(std::isnan(ReportOf(job).mosaic_tiles[i].correlation));
    }
  }
}

TEST_P(MosaicJobTest, EveryStepWorksAsOnTheWholeScan) {
  using Change = std::function<void(TomographySpec&)>;
  const auto find = [](CenterMethod method) -> Change {
    return [method](TomographySpec& spec) {
      spec.center = {.find = true};
      spec.center.search.method = method;
    };
  };
  const std::map<std::string, Change> changes = {
      {"rows and columns",
       [](TomographySpec& spec) {
         spec.rows = {.begin = 11, .end = 30, .step = 3};
         spec.columns = {.begin = 5, .end = 140};
       }},
      {"vo", find(CenterMethod::kVo)},
      {"entropy", find(CenterMethod::kEntropy)},
      {"pairs", find(CenterMethod::kPairs)},
      {"auto",
       [](TomographySpec& spec) {
         spec.center = {.find = true, .automatic = true};
         spec.center.search.method = CenterMethod::kPairs;
       }},
      {"phase correlation", find(CenterMethod::kPhaseCorrelation)},
      {"try_centers",
       [](TomographySpec& spec) {
         spec.center = {};
         spec.try_centers = TryCentersSpec{.begin = 70, .end = 76, .step = 1, .row = 20};
       }},
      {"phase retrieval",
       [](TomographySpec& spec) {
         spec.preparation.config.phase = {.enabled = true,
                                          .pixel_size_um = 1,
                                          .distance_mm = 20,
                                          .energy_kev = 20,
                                          .delta_beta = 300};
       }},
      {"rings",
       [](TomographySpec& spec) { spec.preparation.config.rings = {{.sorting_window = 5}}; }},
      {"roll", [](TomographySpec& spec) { spec.preparation.config.roll.degrees = 0.7; }},
      {"bins",
       [](TomographySpec& spec) {
         spec.preparation.config.bin_rows = spec.preparation.config.bin_columns = 2;
       }},
      {"shifts of rows",
       [](TomographySpec& spec) {
         for (int64_t i = 0; i < kAngles; ++i)
           spec.preparation.row_shifts.push_back(0.05 * static_cast<double>(i % 20));
         spec.preparation.config.shifts.most = 0;
       }},
      {"drift",
       [](TomographySpec& spec) {
         spec.preparation.finds_drift = true;
         spec.preparation.config.shifts.most = 3;
       }},
      {"air", [](TomographySpec& spec) { spec.preparation.config.air_left = 4; }},
      {"series",
       [](TomographySpec& spec) { spec.series = VolumeSeriesSpec{.projections = 30, .step = 15}; }},
      {"transmissions", [](TomographySpec& spec) { spec.preparation.config.minus_log = false; }},
      {"medians of fields",
       [](TomographySpec& spec) {
         spec.preparation.config.flat_average = spec.preparation.config.dark_average =
             FieldAverage::kMedian;
       }},
      {"projections",
       [](TomographySpec& spec) { spec.projections = {.begin = 1, .end = 60, .step = 2}; }},
  };
  const TomographySpec tiles = OfTiles(Layouts().at("two by two"));
  for (const auto& [name, change] : changes) {
    TomographySpec whole = Whole(), mosaic = tiles;
    change(whole);
    change(mosaic);
    const JobStatus wanted = Run(whole), made = Run(mosaic);
    ASSERT_EQ(made.volumes.size(), wanted.volumes.size()) << name;
    for (size_t i = 0; i < made.volumes.size(); ++i)
      // A bin of counts weighs its pixels by their flat field.
      EXPECT_LT(Difference(VolumeOf(made, i), VolumeOf(wanted, i)), name == "bins" ? 0.05 : 1e-4)
          << name;
    ASSERT_EQ(ReportOf(made).centers.size(), ReportOf(wanted).centers.size()) << name;
    for (size_t i = 0; i < ReportOf(made).centers.size(); ++i)
      EXPECT_NEAR(ReportOf(made).centers[i], ReportOf(wanted).centers[i], 1e-3) << name;
  }
}

class FullTurnMosaicTest : public MosaicJobTest {
 protected:
  FullTurnMosaicTest() : MosaicJobTest(2) {}
};

TEST_P(FullTurnMosaicTest, HalfTurnsAndADoubleFieldOfViewWorkAsOnTheWholeScan) {
  for (const bool stitched : {false, true}) {
    TomographySpec whole = Whole(), mosaic = OfTiles(Layouts().at("two"));
    for (TomographySpec* spec : {&whole, &mosaic}) {
      if (stitched) {  // the axis near the right end of what is used
        spec->center = {};
        spec->columns = {.begin = 0, .end = 80};
        spec->preparation.config.stitching = {.enabled = true, .axis_right = true, .overlap = 12.5};
      } else {
        spec->half_turn = HalfTurn::kSecond;
      }
    }
    EXPECT_LT(Difference(VolumeOf(Run(mosaic)), VolumeOf(Run(whole))), 1e-4) << stitched;
  }
}

TEST_P(MosaicJobTest, FindsWhereTilesLie) {
  std::vector<Cut> cuts = {{.column = 0, .columns = 105, .rows = kRows, .gain = 0.9},
                           {.column = 65,
                            .row = 0,
                            .columns = 85,
                            .rows = kRows,
                            .gain = 1.1,
                            .off_column = 4,
                            .off_row = -3}};
  const JobStatus job = Run(OfTiles(cuts, 8));
  EXPECT_TRUE(job.warnings.empty()) << job.warnings.front();
  ASSERT_EQ(ReportOf(job).mosaic_tiles.size(), 2);
  const auto tiles = ReportOf(job).mosaic_tiles;
  EXPECT_NEAR(tiles[1].first_column - tiles[0].first_column, 65, 0.1);
  EXPECT_NEAR(tiles[1].first_row - tiles[0].first_row, 0, 0.1);
  EXPECT_TRUE(tiles[0].found && tiles[1].found);
  EXPECT_GT(tiles[0].correlation, 0.8);
  // The joined detector may begin a row later, or end one earlier, by the parts of a pixel.
  const std::vector<float> made = VolumeOf(job);
  EXPECT_NEAR(static_cast<double>(made.size()) / kColumns / kColumns, kRows, 1.01);
  EXPECT_THAT(LogOf(job), HasSubstr("tile 1 lies from tile 0: columns 6"));
  EXPECT_THAT(LogOf(job), HasSubstr("'tile1.npy', lies at column 6"));
}

TEST_P(MosaicJobTest, RefusesTilesThatDoNotFit) {
  const std::vector<Cut>& two = Layouts().at("two");
  const auto expect = [&](TomographySpec spec, const char* field, const char* text) {
    const auto job = Submit(spec);
    EXPECT_THAT(job, IsError(absl::StatusCode::kInvalidArgument, text));
    EXPECT_EQ(InfoOf(job.status()).field, field);
  };
  const TomographySpec good = OfTiles(two);
  const auto changed = [&](const std::function<void(ProjectionMosaicSpec&)>& change) {
    TomographySpec spec = good;
    change(std::get<ProjectionMosaicSpec>(spec.input));
    return spec;
  };
  expect(changed([](auto& m) { m.tiles[1].first_column = 95; }), "tomography.mosaic.tiles[1]",
         "no tile covers columns 90 to 94");
  // As many numbers, of one projection less.
  std::vector<uint16_t> counts(static_cast<size_t>(kAngles * kRows * 80), 1000);
  Write("few.npy", "<u2", counts, {kAngles - 1, kRows, 80});
  TomographySpec few = changed([](auto& m) { m.tiles[1].file.path = "few.npy"; });
  expect(few, "tomography.mosaic.tiles[1].file.path", "angle");
  Write("angles.npy", "<f8", angles_, {kAngles});
  std::vector<double> fewer(angles_.begin(), angles_.end() - 1);
  Write("fewer.npy", "<f8", fewer, {kAngles - 1});
  const auto with_angles = [&](const char* of_second, const char* path = "tile1.npy") {
    TomographySpec spec = changed([&](auto& m) {
      m.tiles[1].file.path = path;
      m.tiles[0].file.options.angles = "angles.npy";
      m.tiles[1].file.options.angles = of_second;
      for (auto& tile : m.tiles) tile.file.options.angle_unit = storage::AngleUnit::kRadians;
    });
    spec.angles_rad.clear();
    return spec;
  };
  expect(with_angles("fewer.npy", "few.npy"), "tomography.mosaic.tiles[1].file.path",
         "has 59 projections; allowed 60, as tiles[0]");
  std::vector<double> others = angles_;
  others[17] += 2e-4;
  Write("others.npy", "<f8", others, {kAngles});
  expect(with_angles("others.npy"), "tomography.mosaic.tiles[1].file.angles",
         "gives projection 17 the angle");
  others[17] = angles_[17] + 2 * kPi + 5e-5;  // nearly the same, a turn later
  Write("others.npy", "<f8", others, {kAngles});
  (void)Run(with_angles("others.npy"));
  (void)Run(with_angles(""));  // those of the first tile

  std::vector<uint8_t> bytes(static_cast<size_t>(kAngles * kRows * 80), 100);
  Write("bytes.npy", "|u1", bytes, {kAngles, kRows, 80});
  Write("bytes_flats.npy", "|u1", bytes, {kAngles, kRows, 80});
  expect(changed([](auto& m) {
           m.tiles[1].file.path = "bytes.npy";
           m.tiles[1].file.options.flats = "bytes_flats.npy";
           m.tiles[1].file.options.darks = "";
         }),
         "tomography.mosaic.tiles[1].file.path", "has pixels of type u8; allowed u16");
  expect(changed([](auto& m) { m.tiles[1].file.options.flats = ""; }),
         "tomography.mosaic.tiles[1].file.flats",
         "allowed are flat fields in all tiles or in none");
  TomographySpec none = changed([](auto& m) {
    for (auto& tile : m.tiles) tile.file.options.flats = "";
  });
  expect(none, "tomography.mosaic.tiles[0].file.flats", "transmissions need them");
  none.preparation.ignore_fields = true;
  EXPECT_THAT(Submit(none), IsOk());
  expect(changed([](auto& m) {
           std::swap(m.tiles[1].file.options.flats, m.tiles[1].file.options.darks);
         }),
         "tomography.mosaic.tiles[1].file.flats", "are they exchanged?");
  const auto missing = Submit(changed([](auto& m) { m.tiles[1].file.path = "no.npy"; }));
  EXPECT_THAT(missing, IsError(absl::StatusCode::kNotFound, "no.npy"));
  EXPECT_EQ(InfoOf(missing.status()).field, "tomography.mosaic.tiles[1].file.path");
  const auto damaged = [&] {
    std::ofstream(folder_.path() + "/cut.npy", std::ios::binary) << "\x93NUMPY";
    return Submit(changed([](auto& m) { m.tiles[0].file.path = "cut.npy"; }));
  }();
  EXPECT_FALSE(damaged.ok());
  EXPECT_EQ(InfoOf(damaged.status()).field, "tomography.mosaic.tiles[0].file.path");
  const auto outside =
      Submit(changed([](auto& m) { m.tiles[1].file.options.flats = "/etc/hosts"; }));
  EXPECT_EQ(InfoOf(outside.status()).field, "tomography.mosaic.tiles[1].file.flats");
  // Too much for the host's memory: 9 bytes for each pixel.
  ProjectionMemory little{1 << 15};
  JobEnvironment environment = Environment();
  environment.projection_memory = &little;
  const auto spec = std::make_unique<JobSpec>();
  spec->work = good;
  const auto too_large = SubmitTo(*spec, environment);
  EXPECT_THAT(too_large, IsError(absl::StatusCode::kResourceExhausted, "combined fields"));
  EXPECT_EQ(InfoOf(too_large.status()).field, "tomography.mosaic.tiles");
}

TEST_P(MosaicJobTest, TellsOfPoorOverlapsAndDeadPixels) {
  balls_.clear();
  std::vector<Cut> cuts = {{.column = 0, .columns = 90, .rows = kRows},
                           {.column = 70, .columns = 80, .rows = kRows}};
  open_.assign(open_.size(), kOpen);
  open_[5 * kColumns + 20] = 0;  // of the first tile alone
  const JobStatus job = Run(OfTiles(cuts, 5));
  EXPECT_THAT(::testing::PrintToString(job.warnings),
              HasSubstr("Their positions to each other are taken as given"));
  EXPECT_EQ(ReportOf(job).unlit, kAngles);
  EXPECT_EQ(ReportOf(job).mosaic_tiles[1].first_column, 70);
  EXPECT_FALSE(ReportOf(job).mosaic_tiles[1].found);
  // All the memory comes back.
  Await([&] { return memory_.used_bytes() == 0; });
}

TEST_P(MosaicJobTest, TellsOfWrongPlacesAndFiles) {
  const std::vector<Cut> cuts = {{.column = 0, .columns = 105, .rows = kRows},
                                 {.column = 65, .columns = 85, .rows = kRows, .off_column = 8}};
  const JobStatus off = Run(OfTiles(cuts));
  EXPECT_THAT(::testing::PrintToString(off.warnings),
              HasSubstr("Tiles 0 and 1 of the mosaic do not show the same"));
  TomographySpec twice = OfTiles({cuts[0], {.column = 65, .columns = 85, .rows = kRows}});
  EXPECT_TRUE(Run(twice).warnings.empty());
  auto& tiles = std::get<ProjectionMosaicSpec>(twice.input).tiles;
  tiles[1] = tiles[0];
  tiles[1].first_column = 0.065;
  const std::string warnings = ::testing::PrintToString(Run(twice).warnings);
  EXPECT_THAT(warnings, HasSubstr("are the same file, 'tile0.npy'"));
  EXPECT_THAT(warnings, HasSubstr("lie at the same place: 0.065 columns and 0 rows apart"));
}

INSTANTIATE_TEST_SUITE_P(Backends, MosaicJobTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);
INSTANTIATE_TEST_SUITE_P(Backends, FullTurnMosaicTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine

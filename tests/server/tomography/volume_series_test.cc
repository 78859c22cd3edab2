// A series of volumes: its windows, and runs that make it, from files and from pushed projections.

#include "server/tomography/volume_series.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <optional>

#include "gmock/gmock.h"

#include "server/source/push_projections.h"
#include "server/tomography/run.h"
#include "tests/server/tomography/fake_run.h"
#include "tests/support/fake_clock.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using ::testing::Contains;
using testing::DiscInput;
using testing::DiscSpec;
using ::testing::ElementsAre;
using testing::FakeRun;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kAngles;
using testing::kAxis;
using testing::kColumns;
using testing::kPi;
using testing::kRows;
using ::testing::Not;

TomographySpec SeriesSpec(int64_t projections, int64_t step, IndexRange used = {}) {
  TomographySpec spec = DiscSpec();
  spec.series = VolumeSeriesSpec{.projections = projections, .step = step};
  spec.projections = used;
  return spec;
}

std::vector<int64_t> IndicesOf(const IndexRange& range) {
  std::vector<int64_t> indices;
  for (int64_t i = range.begin; i < range.end; i += range.step) indices.push_back(i);
  return indices;
}

TEST(VolumeSeriesTest, WindowsAreThoseOfTheProjectionsThatTheJobUses) {
  for (const int64_t count : {1, 7, 60}) {
    for (const int64_t projections : {1, 2, 7, 30}) {
      for (const int64_t step : {1, 3, 7, 40}) {
        for (const IndexRange& used : {IndexRange{}, IndexRange{.begin = 2, .end = 0, .step = 1},
                                       IndexRange{.begin = 1, .end = 50, .step = 3}}) {
          const TomographySpec spec = SeriesSpec(projections, step, used);
          // Slide the window over the list.
          IndexRange all = used;
          all.end = used.end == 0 ? count : std::min(used.end, count);
          all.step = std::max<int64_t>(1, used.step);
          const std::vector<int64_t> list = IndicesOf(all);
          int64_t windows = 0;
          for (size_t at = 0; at + static_cast<size_t>(projections) <= list.size();
               at += static_cast<size_t>(step)) {
            const auto first = list.begin() + static_cast<std::ptrdiff_t>(at);
            ASSERT_EQ(IndicesOf(WindowOf(spec, windows)),
                      std::vector<int64_t>(first, first + projections));
            ++windows;
          }
          ASSERT_EQ(WindowsIn(spec, count), windows);
          ASSERT_EQ(UsedProjections(spec, count), std::ssize(list));
        }
      }
    }
  }
  const TomographySpec one = DiscSpec();
  EXPECT_EQ(WindowsIn(one, 60), 1);
  EXPECT_EQ(OfWindow(one, 0).projections.end, 0) << "without a series, what the request says";
}

TEST(VolumeSeriesTest, RefusalsNameFieldValueAndWhatIsAllowed) {
  EXPECT_THAT(CheckSeries(DiscSpec(), 0), IsOk());
  EXPECT_THAT(CheckSeries(SeriesSpec(60, 60), 60), IsOk());
  EXPECT_THAT(CheckSeries(SeriesSpec(61, 61), 60),
              IsError(absl::StatusCode::kInvalidArgument,
                      "tomography.series.projections: is 61, and the job uses 60 projections; "
                      "allowed 1 to 60"));
  EXPECT_THAT(CheckSeries(SeriesSpec(20, 1, {.begin = 10, .end = 40, .step = 2}), 60),
              IsError(absl::StatusCode::kInvalidArgument, "the job uses 15 projections"));
  EXPECT_THAT(CheckSeries(SeriesSpec(1, 1, {.begin = 60, .end = 0, .step = 0}), 60),
              IsError(absl::StatusCode::kInvalidArgument, "tomography.projections.begin"));
  EXPECT_THAT(CheckSeries(SeriesSpec(1, 1, {.begin = 0, .end = 61, .step = 0}), 60),
              IsError(absl::StatusCode::kInvalidArgument, "tomography.projections.end"));
  // The step that is advised is the least that is taken.
  for (const int64_t count : {4097, 5000, 60000}) {
    for (const int64_t projections : {1, 100}) {
      const TomographySpec fine = SeriesSpec(projections, 1);
      if (WindowsIn(fine, count) <= kMostVolumes) continue;
      const absl::Status refused = CheckSeries(fine, count);
      EXPECT_THAT(refused, IsError(absl::StatusCode::kInvalidArgument, "tomography.series.step"));
      int64_t least = 1;
      while (WindowsIn(SeriesSpec(projections, least), count) > kMostVolumes) ++least;
      EXPECT_THAT(std::string(refused.message()),
                  HasSubstr("with a step of " + std::to_string(least) + " or more"));
      EXPECT_THAT(CheckSeries(SeriesSpec(projections, least), count), IsOk());
    }
  }
}

TEST(VolumeSeriesTest, WordsAndLabelsSayWhatItIsMadeOf) {
  const TomographySpec spec = SeriesSpec(20, 10, {.begin = 5, .end = 0, .step = 1});
  EXPECT_EQ(SeriesText(spec, 60),
            "series: 4 volumes of 20 projections each, a new one every 10; the last 5 projections "
            "fill none\n");
  EXPECT_EQ(SeriesText(DiscSpec(), 60), "");
  EXPECT_EQ(LeftBetween(spec, 60), "");
  EXPECT_THAT(LeftBetween(SeriesSpec(20, 25), 60), HasSubstr("5 projections are left out"));
  EXPECT_EQ(LeftBetween(SeriesSpec(20, 100), 60), "") << "there is one volume alone";
  VolumeStatus volume;
  SetLabels(spec, DiscInput::Info(), 1, &volume);
  EXPECT_EQ(volume.labels["series.first_projection"], "15");
  EXPECT_EQ(volume.labels["series.projections"], "20");
  EXPECT_NEAR(std::stod(volume.labels["series.first_angle_deg"]), 180.0 * 15 / kAngles, 1e-6);
  EXPECT_NEAR(std::stod(volume.labels["series.last_angle_deg"]), 180.0 * 34 / kAngles, 1e-6);
  VolumeStatus alone;
  SetLabels(DiscSpec(), DiscInput::Info(), 0, &alone);
  EXPECT_THAT(alone.labels, IsEmpty());
}

TEST(VolumeSeriesTest, AReportIsThatOfAllVolumes) {
  TomographyReport first, second, all;
  first.batches = 2, second.batches = 3;
  first.iterations = 9, second.iterations = 4;
  first.floored = 1, second.floored = 10, second.clipped_above = 7;
  first.residual_norm = 3, second.residual_norm = 4;
  first.relative_residual = 0.5, second.relative_residual = 0.5;  // of 6 and 8
  AddVolume(first, &all);
  EXPECT_EQ(all.batches, 2);
  AddVolume(second, &all);
  EXPECT_EQ(all.batches, 5);
  EXPECT_EQ(all.iterations, 9);
  EXPECT_EQ(all.floored, 11);
  EXPECT_EQ(all.clipped_above, 7);
  EXPECT_DOUBLE_EQ(all.residual_norm, 5);
  EXPECT_DOUBLE_EQ(all.relative_residual, 0.5);
}

/// Discs that become larger with the scan, so that each window shows another one.
class GrowingInput final : public storage::ProjectionInput {
 public:
  explicit GrowingInput(int64_t projections = 3 * kAngles) : ProjectionInput(Info(projections)) {}
  static storage::ProjectionInfo Info(int64_t projections) {
    storage::ProjectionInfo info = DiscInput::Info();
    info.projections = projections;
    info.angles_rad.clear();
    for (int64_t a = 0; a < projections; ++a)
      info.angles_rad.push_back(kPi * static_cast<double>(a) / kAngles);
    return info;
  }
  static float Value(int64_t angle, int64_t row, int64_t column) {
    return DiscInput::Value(6 + 0.05 * static_cast<double>(angle) + 0.5 * static_cast<double>(row),
                            angle, column);
  }

 protected:
  absl::Status ReadInside(const storage::ProjectionBox& box, void* out) override {
    auto* to = static_cast<float*>(out);
    for (int64_t a = box.first_frame; a < box.first_frame + box.frames; ++a) {
      for (int64_t r = box.first_row; r < box.first_row + box.rows; ++r) {
        for (int64_t c = box.first_column; c < box.first_column + box.columns; ++c)
          *to++ = Value(a, r, c);
      }
    }
    return absl::OkStatus();
  }
};

/// Makes `spec` of `input` in a workspace of the size that is planned, and no larger.
struct Made {
  std::unique_ptr<FakeRun> run;
  absl::Status status;
};
Made MakeOf(const TomographySpec& spec, std::shared_ptr<storage::ProjectionInput> input,
            bool on_disk = false, int64_t slices_per_batch = 3) {
  const TomographyLayout layout =
      TomographyLayout::Make(OfWindow(spec, 0), input->info(), 0).value();
  Made made;
  TomographyMemory memory;
  {
    FakeRun look;
    MemoryBook book;
    memory = MemoryFor(layout, OfWindow(spec, 0), look.device(), slices_per_batch, 1.5,
                       /*checks=*/false, LiveKind::kNone, on_disk, /*previews=*/true, book)
                 .value();
  }
  made.run = std::make_unique<FakeRun>(memory.workspace());
  made.status = RunTomography(*made.run, {},
                              {.spec = &spec,
                               .layout = &layout,
                               .input = input,
                               .slices_per_batch = slices_per_batch,
                               .memory = memory,
                               .on_disk = on_disk});
  return made;
}

/// The bytes of the one volume that a job of the projections of window `index` makes.
std::vector<char> Alone(const TomographySpec& spec, int64_t index,
                        const std::shared_ptr<storage::ProjectionInput>& input,
                        VolumeStatus* volume = nullptr) {
  const TomographySpec one = OfWindow(spec, index);
  const Made made = MakeOf(one, input);
  EXPECT_THAT(made.status, IsOk());
  const VolumeStatus& v = made.run->result;
  if (volume != nullptr) *volume = v;
  return made.run->Download<char>(
      made.run->result_data(),
      static_cast<size_t>(v.shape[0] * v.shape[1] * v.shape[2] * SizeOf(v.dtype)));
}

TEST(VolumeSeriesRunTest, EachVolumeIsThatOfAJobOfItsProjections) {
  const auto input = std::make_shared<GrowingInput>();
  std::vector<TomographySpec> specs = {SeriesSpec(60, 60), SeriesSpec(60, 25),
                                       SeriesSpec(20, 30, {.begin = 3, .end = 150, .step = 2})};
  for (const TomographyAlgorithm algorithm :
       {TomographyAlgorithm::kSirt, TomographyAlgorithm::kCgls, TomographyAlgorithm::kFourier}) {
    specs.push_back(SeriesSpec(60, 50));
    specs.back().reconstruction.algorithm = algorithm;
  }
  specs.push_back(SeriesSpec(60, 40));  // prepared sinograms
  specs.back().output = model::TomographyOutput::kSinograms;
  specs.back().center = {};
  specs.push_back(SeriesSpec(60, 40));  // u16 in a window that is given
  specs.back().samples = {.type = DType::kU16, .low = -0.01, .high = 0.05};
  specs.push_back(SeriesSpec(120, 30));  // 360 degrees that are joined
  specs.back().center = {};
  specs.back().preparation.config.stitching = {.enabled = true, .axis_right = false, .overlap = 12};
  for (size_t n = 0; n < specs.size(); ++n) {
    for (const bool on_disk : {false, true}) {
      SCOPED_TRACE(absl::StrCat("request ", n, on_disk ? " on disk" : ""));
      const TomographySpec& spec = specs[n];
      const Made made = MakeOf(spec, input, on_disk);
      ASSERT_THAT(made.status, IsOk());
      const int64_t windows = WindowsIn(spec, input->info().projections);
      ASSERT_GT(windows, 1);
      ASSERT_EQ(std::ssize(made.run->completed), windows);
      for (int64_t i = 0; i < windows; ++i) {
        const auto& one = made.run->completed[static_cast<size_t>(i)];
        VolumeStatus wanted;
        ASSERT_EQ(one.bytes, Alone(spec, i, input, &wanted)) << "volume " << i;
        EXPECT_EQ(one.volume.index, i);
        EXPECT_EQ(one.volume.display_lo, wanted.display_lo);
        EXPECT_EQ(one.volume.display_hi, wanted.display_hi);
        EXPECT_EQ(one.volume.quantity, wanted.quantity);
        EXPECT_TRUE(one.volume.complete);
        EXPECT_EQ(one.volume.labels.at("series.first_projection"),
                  absl::StrCat(WindowOf(spec, i).begin));
        if (i > 0) EXPECT_NE(one.bytes, made.run->completed[static_cast<size_t>(i - 1)].bytes);
      }
      const auto& report = std::get<TomographyReport>(made.run->found);
      EXPECT_EQ(report.series_volumes, windows);
      EXPECT_EQ(report.series_planned, windows);
      EXPECT_EQ(report.batches, windows * ((kRows + 2) / 3));
    }
  }
}

TEST(VolumeSeriesRunTest, ManyVolumesNeedNoMoreWorkspaceThanOne) {
  const auto input = std::make_shared<GrowingInput>();
  for (const TomographyAlgorithm algorithm :
       {TomographyAlgorithm::kFbp, TomographyAlgorithm::kSirt}) {
    TomographySpec few = SeriesSpec(60, 120), many = SeriesSpec(60, 10);
    few.reconstruction.algorithm = many.reconstruction.algorithm = algorithm;
    const Made two = MakeOf(few, input), thirteen = MakeOf(many, input);
    ASSERT_THAT(two.status, IsOk());
    ASSERT_THAT(thirteen.status, IsOk());
    EXPECT_EQ(two.run->completed.size(), 2u);
    EXPECT_EQ(thirteen.run->completed.size(), 13u);
    EXPECT_EQ(two.run->used(), thirteen.run->used());
  }
}

// The first volume decides: an axis of its own for each would make the volumes jump.
TEST(VolumeSeriesRunTest, TheAxisAndTheWindowOfTheFirstVolumeAreThoseOfAll) {
  const auto input = std::make_shared<GrowingInput>();
  TomographySpec spec = SeriesSpec(60, 60);
  spec.samples.type = DType::kU8;
  spec.center = {};
  spec.center.find = true;
  spec.center.search.method = CenterMethod::kEntropy;
  spec.center.search_begin = 20;
  spec.center.search_end = 40;
  const Made made = MakeOf(spec, input);
  ASSERT_THAT(made.status, IsOk());
  ASSERT_EQ(made.run->completed.size(), 3u);
  EXPECT_EQ(std::count(made.run->stages.begin(), made.run->stages.end(), job::JobStage::kAxis), 1);
  const auto& report = std::get<TomographyReport>(made.run->found);
  ASSERT_EQ(report.centers.size(), 1u);
  EXPECT_NEAR(report.centers[0], kAxis, 1) << "the disc grows while it turns";
  const Made first = MakeOf(OfWindow(spec, 0), input);
  ASSERT_THAT(first.status, IsOk());
  const auto& alone = std::get<TomographyReport>(first.run->found);
  EXPECT_EQ(report.centers, alone.centers);
  EXPECT_EQ(report.low, alone.low);
  EXPECT_EQ(report.high, alone.high);
  EXPECT_LT(report.low, report.high);
  TomographySpec given = spec;
  given.center = {};
  given.center.pixels = report.centers;
  given.samples.low = report.low;
  given.samples.high = report.high;
  for (int64_t i = 0; i < 3; ++i) {
    const auto& one = made.run->completed[static_cast<size_t>(i)];
    EXPECT_EQ(one.volume.level_lo, static_cast<float>(report.low));
    EXPECT_EQ(one.volume.level_hi, static_cast<float>(report.high));
    EXPECT_EQ(one.bytes, Alone(given, i, input)) << i;
  }
}

TEST(VolumeSeriesRunTest, AnAxisThatLeansTurnsAllVolumes) {
  // The layout of other projections keeps the turn, and the rows that are read for it.
  TomographySpec spec = SeriesSpec(60, 40);
  spec.center = {};
  const storage::ProjectionInfo info = GrowingInput::Info(180);
  const TomographyLayout first =
      TomographyLayout::Make(OfWindow(spec, 0), info, 0).value().Turned(0.7).Widened(1.25);
  ASSERT_OK_AND_ASSIGN(const TomographyLayout second,
                       first.ForProjections(WindowOf(spec, 1), info));
  EXPECT_TRUE(second.turns());
  EXPECT_EQ(second.projections().begin, 40);
  EXPECT_EQ(second.RowsOf(3, 1).count, first.RowsOf(3, 1).count);
  EXPECT_EQ(second.ReconstructFor(0, 1, {kAxis}).support, 1.25);
  EXPECT_NEAR(second.angles_rad()[0], info.angles_rad[40], 1e-12);
  EXPECT_THAT(first.ForProjections(WindowOf(spec, 9), info),
              IsError(absl::StatusCode::kInvalidArgument, "tomography.projections"));
}

TEST(VolumeSeriesRunTest, DoubtsOfALaterVolumeAreTold) {
  class Stops final : public storage::ProjectionInput {
   public:
    Stops()
        : ProjectionInput([] {
            storage::ProjectionInfo info = GrowingInput::Info(120);
            for (size_t i = 60; i < 120; ++i) info.angles_rad[i] = 1;  // the stage stood still
            return info;
          }()) {}

   protected:
    absl::Status ReadInside(const storage::ProjectionBox& box, void* out) override {
      std::fill_n(static_cast<float*>(out), box.elements(), 0.5f);
      return absl::OkStatus();
    }
  };
  const Made made = MakeOf(SeriesSpec(60, 60), std::make_shared<Stops>());
  EXPECT_THAT(made.status, IsOk());
  EXPECT_THAT(made.run->warnings, Contains(HasSubstr("Volume 1 of the series: ")));
}

/// Pushes frames of GrowingInput to a port, and makes a series of them.
class PushedSeriesTest : public ::testing::Test {
 protected:
  ~PushedSeriesTest() override { port_->Disconnect(connection_); }

  void Open(int64_t frames, const TomographySpec& spec,
            MissingFrames on_missing = MissingFrames::kDefault) {
    spec_ = spec;
    spec_.input = PushedProjectionsSpec{.rows = kRows,
                                        .columns = kColumns,
                                        .frames = frames,
                                        .dtype = DType::kF32,
                                        .idle_timeout_s = 30,
                                        .on_missing = on_missing};
    port_ = ProjectionPort::Create(std::get<PushedProjectionsSpec>(spec_.input), &memory_, &clock_)
                .value();
    connection_ = port_->Connect();
  }
  /// Frame `sequence` is projection `projection`, or a field of the value `field`.
  void Push(int64_t sequence, int64_t projection, std::optional<float> field = std::nullopt) {
    std::vector<float> frame(static_cast<size_t>(kRows * kColumns), field.value_or(0));
    for (int64_t i = 0; !field.has_value() && i < kRows * kColumns; ++i)
      frame[static_cast<size_t>(i)] =
          scale_ * GrowingInput::Value(projection, i / kColumns, i % kColumns) + offset_;
    PushedFrame pushed{
        .sequence = static_cast<uint64_t>(sequence),
        .kind = field.has_value() ? storage::FrameKind::kFlat : storage::FrameKind::kProjection,
        .angle_rad = kPi * static_cast<double>(projection) / kAngles,
        .rows = kRows,
        .parts = {}};
    pushed.parts.emplace_back(reinterpret_cast<const char*>(frame.data()), frame.size() * 4);
    ASSERT_THAT(port_->Progress(connection_), IsOk());  // takes the credit
    ASSERT_THAT(port_->Offer(connection_, pushed), IsOk());
  }
  void PushProjections(int64_t first, int64_t end) {
    for (int64_t i = first; i < end; ++i) Push(i, i);
  }
  void End() {
    ASSERT_THAT(port_->EndOfFrames(connection_), IsOk());
    clock_.Advance(10);  // no other client comes
  }
  absl::Status Make(const std::stop_token& stop = {}) {
    storage::ProjectionInfo info =
        GrowingInput::Info(std::get<PushedProjectionsSpec>(spec_.input).frames);
    info.flats = flats_;
    info.flat_positions.assign(static_cast<size_t>(flats_), 0.0);
    const TomographyLayout layout = TomographyLayout::Make(OfWindow(spec_, 0), info, 0).value();
    MemoryBook book;
    const TomographyMemory memory = MemoryFor(layout, OfWindow(spec_, 0), run_.device(), 4, 1,
                                              false, LiveKind::kAll, false, true, book)
                                        .value();
    return RunTomography(run_, stop,
                         {.spec = &spec_,
                          .layout = &layout,
                          .input = nullptr,
                          .port = port_.get(),
                          .slices_per_batch = 4,
                          .memory = memory});
  }

  octavo::testing::FakeClock clock_;
  ProjectionMemory memory_{1 << 24};
  TomographySpec spec_;
  std::shared_ptr<ProjectionPort> port_;
  int64_t connection_ = 0, flats_ = 0;
  float scale_ = 1, offset_ = 0;
  FakeRun run_;
};

TEST_F(PushedSeriesTest, AVolumeIsHeldBeforeFramesThatItDoesNotNeedHaveCome) {
  Open(180, SeriesSpec(60, 40));
  PushProjections(0, 60);
  // Each volume, when it is held, lets the frames of the next one come, in another order.
  run_.on_complete = [&] {
    const auto done = std::ssize(run_.completed);
    clock_.Advance(100);  // longer than the client may be silent while the job waits
    for (int64_t i = 60 + 40 * done - 1; i >= 60 + 40 * (done - 1) && i < 180; --i) Push(i, i);
  };
  ASSERT_THAT(Make(), IsOk());
  ASSERT_EQ(run_.completed.size(), 4u);
  const auto input = std::make_shared<GrowingInput>();
  for (int64_t i = 0; i < 4; ++i) {
    const auto& one = run_.completed[static_cast<size_t>(i)];
    EXPECT_EQ(one.bytes, Alone(spec_, i, input)) << i;
    EXPECT_TRUE(one.volume.complete);
    EXPECT_EQ(one.volume.expected_frames, 180);
    EXPECT_LE(one.volume.acquired_begin.monotonic_ns, one.volume.acquired_end.monotonic_ns);
  }
  EXPECT_GE(run_.completed[3].volume.acquired_end.monotonic_ns -
                run_.completed[0].volume.acquired_end.monotonic_ns,
            int64_t{300} * 1'000'000'000);
}

TEST_F(PushedSeriesTest, FieldsAreThoseThatCameBeforeTheLastProjection) {
  TomographySpec spec = SeriesSpec(60, 60);
  spec.preparation.ignore_fields = false;
  flats_ = 3;
  scale_ = 0.5f, offset_ = 1;
  Open(123, spec);
  // A flat of 2 before, one of 4 in the second window, and one of 100 after all.
  int64_t sequence = 0;
  Push(sequence++, 0, 2.0f);
  for (int64_t i = 0; i < 70; ++i) Push(sequence++, i);
  Push(sequence++, 0, 4.0f);
  for (int64_t i = 70; i < 120; ++i) Push(sequence++, i);
  Push(sequence++, 0, 100.0f);
  ASSERT_THAT(Make(), IsOk());
  ASSERT_EQ(run_.completed.size(), 2u);
  // Without a logarithm, the values are divided by the mean of the flats: 2, and then 3.
  const auto expected = [&](int64_t index, double flat) {
    class Divided final : public storage::ProjectionInput {
     public:
      explicit Divided(double flat) : ProjectionInput(GrowingInput::Info(120)), flat_(flat) {}

     protected:
      absl::Status ReadInside(const storage::ProjectionBox& box, void* out) override {
        auto* to = static_cast<float*>(out);
        for (int64_t a = box.first_frame; a < box.first_frame + box.frames; ++a) {
          for (int64_t r = box.first_row; r < box.first_row + box.rows; ++r) {
            for (int64_t c = 0; c < box.columns; ++c)
              *to++ = static_cast<float>((0.5f * GrowingInput::Value(a, r, c) + 1) / flat_);
          }
        }
        return absl::OkStatus();
      }

     private:
      const double flat_;
    };
    TomographySpec plain = SeriesSpec(60, 60);
    return Alone(plain, index, std::make_shared<Divided>(flat));
  };
  for (int64_t i = 0; i < 2; ++i) {
    const std::vector<char>& bytes = run_.completed[static_cast<size_t>(i)].bytes;
    const std::vector<char> wanted = expected(i, i == 0 ? 2 : 3);
    ASSERT_EQ(bytes.size(), wanted.size());
    double off = 0, largest = 0;
    for (size_t k = 0; k < bytes.size(); k += 4) {
      float a = 0, b = 0;
      std::memcpy(&a, bytes.data() + k, 4);
      std::memcpy(&b, wanted.data() + k, 4);
      off = std::max<double>(off, std::abs(a - b));
      largest = std::max<double>(largest, std::abs(b));
    }
    EXPECT_LT(off, 1e-4 * largest) << i;
  }
}

TEST_F(PushedSeriesTest, AWindowThatIsNotWholeAtTheEndIsNotMade) {
  Open(180, SeriesSpec(60, 40));
  PushProjections(0, 130);
  End();
  ASSERT_THAT(Make(), IsOk());
  EXPECT_EQ(run_.completed.size(), 2u) << "0 to 59 and 40 to 99";
  EXPECT_THAT(run_.log, Contains(HasSubstr("the last 30 projections fill no volume")));
  const auto& report = std::get<TomographyReport>(run_.found);
  EXPECT_EQ(report.series_volumes, 2);
  EXPECT_EQ(report.series_planned, 4);
}

TEST_F(PushedSeriesTest, TooFewForOneVolumeFailTheJob) {
  Open(180, SeriesSpec(60, 40));
  PushProjections(0, 59);
  End();
  EXPECT_THAT(Make(), IsError(absl::StatusCode::kFailedPrecondition,
                              "only 59 projections came that the job uses; "
                              "tomography.series.projections is 60"));
  EXPECT_TRUE(run_.completed.empty());
}

TEST_F(PushedSeriesTest, VolumesAcrossAGapAreMadeOfWhatCameAndAreNotComplete) {
  Open(180, SeriesSpec(60, 60));
  PushProjections(0, 70);
  PushProjections(73, 180);
  End();
  ASSERT_THAT(Make(), IsOk());
  ASSERT_EQ(run_.completed.size(), 2u) << "177 projections came";
  EXPECT_TRUE(run_.completed[0].volume.complete);
  EXPECT_FALSE(run_.completed[1].volume.complete);
  EXPECT_EQ(run_.completed[1].volume.missing_frames, 3);
  EXPECT_THAT(run_.completed[1].volume.missing_frame_ranges, ElementsAre(std::pair(70, 3)));
  EXPECT_THAT(run_.warnings, Contains(HasSubstr("3 of 180 frames never came, the first is 70")));
  // It is what those projections make.
  TomographySpec spec = DiscSpec();
  class Skipping final : public storage::ProjectionInput {
   public:
    Skipping()
        : ProjectionInput([] {
            storage::ProjectionInfo info = GrowingInput::Info(180);
            info.angles_rad.erase(info.angles_rad.begin() + 70, info.angles_rad.begin() + 73);
            info.projections = 177;
            return info;
          }()) {}

   protected:
    absl::Status ReadInside(const storage::ProjectionBox& box, void* out) override {
      auto* to = static_cast<float*>(out);
      for (int64_t a = box.first_frame; a < box.first_frame + box.frames; ++a) {
        for (int64_t r = box.first_row; r < box.first_row + box.rows; ++r) {
          for (int64_t c = 0; c < box.columns; ++c)
            *to++ = GrowingInput::Value(a < 70 ? a : a + 3, r, c);
        }
      }
      return absl::OkStatus();
    }
  };
  EXPECT_EQ(run_.completed[1].bytes, Alone(SeriesSpec(60, 60), 1, std::make_shared<Skipping>()));
}

TEST_F(PushedSeriesTest, OnMissingFailJobFailsAfterTheVolumesBeforeTheGap) {
  Open(180, SeriesSpec(60, 60), MissingFrames::kFailJob);
  PushProjections(0, 70);
  PushProjections(73, 180);
  End();
  EXPECT_THAT(Make(), IsError(absl::StatusCode::kFailedPrecondition, "on_missing is FAIL_JOB"));
  EXPECT_EQ(run_.completed.size(), 1u);
}

TEST_F(PushedSeriesTest, TheJobDoesNotWaitForFramesThatItDoesNotNeed) {
  Open(100, SeriesSpec(40, 40));
  PushProjections(0, 80);
  ASSERT_THAT(Make(), IsOk());
  EXPECT_EQ(run_.completed.size(), 2u);
}

TEST_F(PushedSeriesTest, ACancelWhileItWaitsLeavesWhatIsHeld) {
  Open(180, SeriesSpec(60, 60));
  PushProjections(0, 60);
  std::stop_source stop;
  run_.on_complete = [&] { stop.request_stop(); };
  EXPECT_THAT(Make(stop.get_token()), IsError(absl::StatusCode::kCancelled, ""));
  EXPECT_EQ(run_.completed.size(), 1u);
}

TEST_F(PushedSeriesTest, AnglesInDegreesFailTheJobBeforeItsFirstVolume) {
  Open(120, SeriesSpec(60, 60));
  for (int64_t i = 0; i < 60; ++i) {
    std::vector<float> frame(static_cast<size_t>(kRows * kColumns), 0.5f);
    PushedFrame pushed{.sequence = static_cast<uint64_t>(i),
                       .angle_rad = 3.0 * static_cast<double>(i),
                       .rows = kRows,
                       .parts = {}};
    pushed.parts.emplace_back(reinterpret_cast<const char*>(frame.data()), frame.size() * 4);
    ASSERT_THAT(port_->Progress(connection_), IsOk());
    ASSERT_THAT(port_->Offer(connection_, pushed), IsOk());
  }
  EXPECT_THAT(Make(), IsError(absl::StatusCode::kInvalidArgument, "tomography.push"));
  EXPECT_TRUE(run_.completed.empty());
}

}  // namespace
}  // namespace octavo::engine

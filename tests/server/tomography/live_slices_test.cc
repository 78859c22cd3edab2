// Planes of an object whose projections are still pushed: they end as the planes of the FBP volume.

#include "server/tomography/live_slices.h"

#include <map>
#include <random>
#include <thread>

#include "gmock/gmock.h"

#include "gpu/base/status.h"
#include "gpu/tomography/reconstruct.h"
#include "server/tomography/row_preparer.h"
#include "tests/server/tomography/fake_run.h"
#include "tests/support/fake_clock.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using ::testing::Contains;
using testing::FakeRun;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kPi;
using ::testing::Not;
using tomography::kMostLivePlanes;
using tomography::LiveBytes;
using tomography::LiveKind;
using tomography::LiveSlices;
using tomography::MostLivePlanes;

publish::Wanted Plane(FrameAxis axis, int64_t index, bool previews = true) {
  return {.key = {.product = Product::kBscan, .axis = axis, .plane_index = index},
          .previews = previews};
}

/// A scan of discs that differ from row to row, and its port.
class LiveSlicesTest : public ::testing::Test {
 protected:
  static constexpr int64_t kProjections = 48, kRows = 12, kColumns = 40, kFlats = 3, kDarks = 2;

  explicit LiveSlicesTest(DType dtype = DType::kU16) { Open(dtype); }
  ~LiveSlicesTest() override { port_->Disconnect(connection_); }

  void Open(DType dtype, math::Packing packing = math::Packing::kNone) {
    spec_ = TomographySpec();
    spec_.reconstruction.algorithm = TomographyAlgorithm::kFbp;
    spec_.center.pixels = {18.6};
    spec_.json = "{}";
    push_ = {.rows = kRows,
             .columns = kColumns,
             .frames = kProjections + kFlats + kDarks,
             .dtype = dtype,
             .packing = packing,
             .idle_timeout_s = 3600};
    spec_.input = push_;
    if (port_ != nullptr) port_->Disconnect(connection_);
    port_ = ProjectionPort::Create(push_, &memory_, &clock_).value();
    connection_ = port_->Connect();
  }
  /// Frames 0 … 2 are flat, 3 and 4 dark fields.
  static storage::FrameKind KindOf(int64_t frame) {
    return frame < kFlats            ? storage::FrameKind::kFlat
           : frame < kFlats + kDarks ? storage::FrameKind::kDark
                                     : storage::FrameKind::kProjection;
  }
  double AngleOf(int64_t frame) const {
    return turns_ * 2 * kPi * static_cast<double>(frame - kFlats - kDarks) / kProjections;
  }
  double Count(int64_t frame, int64_t row, int64_t column) const {
    const double dark = 100 + static_cast<double>((7 * row + 3 * column + 5 * frame) % 11);
    if (KindOf(frame) == storage::FrameKind::kDark) return dark;
    const double lamp = 30000 + 200 * static_cast<double>((row * 5 + column * 3 + frame) % 17);
    if (KindOf(frame) == storage::FrameKind::kFlat) return lamp;
    const double angle = AngleOf(frame), radius = 4 + 0.7 * static_cast<double>(row),
                 s = static_cast<double>(column) - 18.6 - 6 * std::cos(angle) - 2 * std::sin(angle);
    return 100 + (lamp - 100) * std::exp(-0.1 * std::sqrt(std::max(0.0, radius * radius - s * s)));
  }
  template <class T>
  void PushAs(int64_t frame) {
    std::vector<T> data;
    for (int64_t i = 0; i < kRows * kColumns; ++i) {
      const double count = Count(frame, i / kColumns, i % kColumns);
      data.push_back(static_cast<T>(push_.dtype == DType::kU8 ? count / 128
                                    : twelve_bits_            ? count / 16
                                                              : count));
    }
    Send(frame, data.data(), data.size() * sizeof(T));
  }
  void PushPacked(int64_t frame) {
    std::vector<uint8_t> data(static_cast<size_t>(push_.frame_bytes()));
    for (int64_t i = 0; i < kRows * kColumns; ++i) {
      math::WritePacked12(push_.packing, data.data() + i / kColumns * push_.row_bytes(),
                          i % kColumns,
                          static_cast<uint32_t>(Count(frame, i / kColumns, i % kColumns) / 16));
    }
    Send(frame, data.data(), data.size());
  }
  void Send(int64_t frame, const void* data, size_t bytes) {
    PushedFrame pushed{
        .sequence = static_cast<uint64_t>(frame),
        .kind = KindOf(frame),
        .angle_rad = KindOf(frame) == storage::FrameKind::kProjection ? AngleOf(frame) : 0,
        .rows = kRows,
        .parts = {}};
    pushed.parts.emplace_back(static_cast<const char*>(data), bytes);
    ASSERT_THAT(port_->Progress(connection_), IsOk());  // takes the credit
    ASSERT_THAT(port_->Offer(connection_, pushed), IsOk());
  }
  void Push(int64_t frame) {
    if (push_.packing != math::Packing::kNone) return PushPacked(frame);
    switch (push_.dtype) {
      case DType::kU8: return PushAs<uint8_t>(frame);
      case DType::kU16: return PushAs<uint16_t>(frame);
      case DType::kI16: return PushAs<int16_t>(frame);
      default: return PushAs<float>(frame);
    }
  }
  std::vector<int64_t> Frames(int64_t first, int64_t end, int64_t step = 1) {
    std::vector<int64_t> frames;
    for (int64_t f = first; f < end; f += step) frames.push_back(f);
    return frames;
  }
  std::vector<int64_t> Shuffled(std::vector<int64_t> frames) {
    std::shuffle(frames.begin(), frames.end(), random_);
    return frames;
  }
  /// As the job plans it, before any frame has come.
  TomographyLayout Planned() const {
    storage::ProjectionInfo info;
    info.format = "push";
    info.dtype = push_.dtype;
    info.packing = push_.packing;
    info.projections = push_.frames;
    info.rows = kRows;
    info.columns = kColumns;
    info.flats = info.darks = push_.frames;
    for (int64_t i = 0; i < push_.frames; ++i)
      info.angles_rad.push_back(kPi * static_cast<double>(i) / static_cast<double>(push_.frames));
    info.flat_positions.assign(static_cast<size_t>(info.flats), 0.0);
    return TomographyLayout::Make(spec_, info, 0).value();
  }

  /// Shows until there is nothing more to do.
  static void ShowAll(LiveSlices& live, bool all) {
    for (;;) {
      ASSERT_OK_AND_ASSIGN(const bool more, live.Show(all));
      if (!more) return;
    }
  }
  /// FBP slices [first, first + count) of all frames that have come, made as one batch.
  std::vector<float> Slices(const TomographyLayout& layout, int64_t first, int64_t count) {
    FakeRun run;
    RowPreparer rows(run, {});
    const PreparedRows prepared =
        rows.Prepare(layout, port_->Snapshot().value(), layout.RowsOf(first, count), false).value();
    const auto reconstructor =
        Reconstructor::Create(layout.BackProjectionFor(first, count, layout.GivenCenters()),
                              run.device())
            .value();
    const DeviceBuffer images = run.device().Allocate(count * layout.image_voxels() * 4).value();
    EXPECT_THAT(
        reconstructor->Run(run.stream(),
                           {.data = prepared.sinograms(), .angle_first = false, .slices = count},
                           nullptr, images.span<float>(), {}),
        IsOk());
    return run.Download<float>(images.data(), static_cast<size_t>(count * layout.image_voxels()));
  }
  /// The last image of each plane that was published is that of the volume.
  void ExpectPlanesOfTheVolume(const FakeRun& run, const std::vector<publish::Wanted>& planes) {
    const TomographyLayout layout =
        TomographyLayout::Make(spec_, port_->Snapshot().value()->info(), 0).value();
    const int64_t slices = layout.slices(), n = layout.image_rows();
    const std::vector<float> volume = Slices(layout, 0, slices);
    float most = 0;
    for (const float value : volume) most = std::max(most, std::abs(value));
    ASSERT_GT(most, 0.01f);
    for (const publish::Wanted& wanted : planes) {
      const auto found =
          std::find(run.published_keys.rbegin(), run.published_keys.rend(), wanted.key);
      ASSERT_NE(found, run.published_keys.rend()) << "axis " << Name(wanted.key.axis);
      const auto at = static_cast<size_t>(run.published_keys.rend() - found) - 1;
      const std::vector<float>& image = run.published[at];
      const bool z = wanted.key.axis == FrameAxis::kZ, y = wanted.key.axis == FrameAxis::kY;
      EXPECT_EQ(run.published_axes[at], z ? "yx" : y ? "zx" : "zy");
      ASSERT_EQ(std::ssize(image), z ? n * n : slices * n);
      const int64_t index =
          wanted.key.plane_index < 0 ? (z ? slices : n) / 2 : wanted.key.plane_index;
      // A slice depends on as many neighbours as its batch reads: phase retrieval sees a part.
      const std::vector<float> slice = z ? Slices(layout, index, 1) : std::vector<float>();
      float off = 0;
      for (int64_t i = 0; i < std::ssize(image); ++i) {
        const auto voxel = static_cast<size_t>(y ? (i / n * n + index) * n + i % n : i * n + index);
        const float expected = z ? slice[static_cast<size_t>(i)] : volume[voxel];
        off = std::max(off, std::abs(image[static_cast<size_t>(i)] - expected));
      }
      EXPECT_LT(off, 2e-5f * most) << "axis " << Name(wanted.key.axis) << ", plane " << index;
    }
  }

  double turns_ = 0.5;        // that the angles cover
  bool twelve_bits_ = false;  // u16 have only that many
  std::mt19937 random_{3};
  octavo::testing::FakeClock clock_;
  ProjectionMemory memory_{1 << 24};
  PushedProjectionsSpec push_;
  TomographySpec spec_;
  std::shared_ptr<ProjectionPort> port_;
  int64_t connection_ = 0;
};

TEST_F(LiveSlicesTest, FramesInAnyOrderEndInThePlanesOfTheVolume) {
  const std::map<std::string, std::function<void(TomographySpec&)>> cases = {
      {"plain", [](TomographySpec&) {}},
      {"several turns", [this](TomographySpec&) { turns_ = 2; }},
      {"binned",
       [](TomographySpec& s) {
         s.preparation.config.bin_rows = 2;
         s.preparation.config.bin_columns = 2;
       }},
      {"rows and columns",
       [](TomographySpec& s) {
         s.rows = {.begin = 1, .end = 12, .step = 3};
         s.columns = {.begin = 3, .end = 36, .step = 1};
       }},
      {"medians",
       [](TomographySpec& s) {
         s.preparation.config.flat_average = s.preparation.config.dark_average =
             FieldAverage::kMedian;
       }},
      {"no fields",
       [](TomographySpec& s) {
         s.preparation.ignore_fields = true;
         s.preparation.config.minus_log = false;
       }},
      {"an axis for each slice, a mask, a window",
       [](TomographySpec& s) {
         for (int i = 1; i < kRows; ++i) s.center.pixels.push_back(18.6 + 0.3 * i);
         s.reconstruction.mask_ratio = 0.8;
         s.reconstruction.image_size = 31;
         s.reconstruction.pixel_size = 0.5;
         s.reconstruction.filter = ProjectionFilter::kHann;
       }},
      {"rolled, with air",
       [](TomographySpec& s) {
         s.rows = {.begin = 3, .end = 10, .step = 1};
         s.preparation.config.roll.degrees = 2;
         s.preparation.config.air_left = s.preparation.config.air_right = 3;
       }},
      {"phase",
       [](TomographySpec& s) {
         PhaseRetrieval& phase = s.preparation.config.phase;
         phase = {.enabled = true,
                  .pixel_size_um = 1,
                  .distance_mm = 1,
                  .energy_kev = 20,
                  .delta_beta = 10};
       }},
      {"SIRT", [](TomographySpec& s) {
         s.reconstruction.algorithm = TomographyAlgorithm::kSirt;
         s.reconstruction.relaxation = 0.7;
         s.reconstruction.iterations = 5;
       }}};
  for (const auto& [name, change] : cases) {
    for (const DType dtype : {DType::kU16, DType::kF32, DType::kU8, DType::kI16}) {
      if (name != "plain" && (dtype == DType::kU8 || dtype == DType::kI16)) continue;
      SCOPED_TRACE(name + std::string(" ") + Info(dtype).name);
      turns_ = 0.5;
      Open(dtype);
      change(spec_);
      const TomographyLayout planned = Planned();
      const std::vector<publish::Wanted> wanted = {Plane(FrameAxis::kZ, -1),
                                                   Plane(FrameAxis::kZ, 0),
                                                   Plane(FrameAxis::kZ, planned.slices() - 1),
                                                   Plane(FrameAxis::kY, 9),
                                                   Plane(FrameAxis::kX, -1),
                                                   Plane(FrameAxis::kX, 11)};
      FakeRun run;
      run.wanted = wanted;
      {
        LiveSlices live(run, {}, *port_, spec_, planned, LiveKind::kAll);
        for (const int64_t frame : Shuffled(Frames(0, kFlats + kDarks))) Push(frame);
        run.preview_due = true;
        int64_t pushed = 0;
        for (const int64_t frame : Shuffled(Frames(kFlats + kDarks, push_.frames))) {
          Push(frame);
          if (++pushed % 7 == 3) ShowAll(live, false);
        }
        ShowAll(live, true);
      }
      EXPECT_EQ(run.used(), 0);
      ExpectPlanesOfTheVolume(run, wanted);
    }
  }
}

TEST_F(LiveSlicesTest, PlanesOfPackedFramesAreThoseOfNumbers) {
  twelve_bits_ = true;
  for (const bool medians : {false, true}) {
    std::vector<std::vector<float>> wanted;
    for (const math::Packing packing :
         {math::Packing::kNone, math::Packing::kLowFirst12, math::Packing::kHighFirst12}) {
      Open(DType::kU16, packing);
      if (medians) {
        spec_.preparation.config.flat_average = spec_.preparation.config.dark_average =
            FieldAverage::kMedian;
        spec_.rows = {.begin = 1, .end = 12, .step = 3};
      }
      FakeRun run;
      run.wanted = {Plane(FrameAxis::kZ, 1), Plane(FrameAxis::kY, 20), Plane(FrameAxis::kX, 11)};
      const TomographyLayout planned = Planned();
      {
        LiveSlices live(run, {}, *port_, spec_, planned, LiveKind::kAll);
        for (const int64_t frame : Frames(0, 20)) Push(frame);
        ShowAll(live, false);
        for (const int64_t frame : Frames(20, push_.frames)) Push(frame);
        ShowAll(live, true);
      }
      EXPECT_EQ(run.used(), 0);
      ExpectPlanesOfTheVolume(run, run.wanted);
      ASSERT_EQ(run.published.size(), 3u);
      if (wanted.empty()) wanted = run.published;
      EXPECT_EQ(run.published, wanted);
    }
  }
}

TEST_F(LiveSlicesTest, ABackgroundOfGapsIsNoHindrance) {
  FakeRun run;
  run.wanted = {Plane(FrameAxis::kZ, 4), Plane(FrameAxis::kX, 20)};
  const TomographyLayout live_layout = Planned();
  LiveSlices live(run, {}, *port_, spec_, live_layout, LiveKind::kAll);
  for (const int64_t frame : Frames(0, kFlats + kDarks)) Push(frame);
  for (const int64_t frame : Shuffled(Frames(kFlats + kDarks, push_.frames, 2))) Push(frame);
  ShowAll(live, false);
  EXPECT_THAT(run.published, IsEmpty()) << "none is due";
  ShowAll(live, true);
  EXPECT_EQ(run.published.size(), 2u);
  ExpectPlanesOfTheVolume(run, run.wanted);  // every other direction is as even
  ShowAll(live, true);
  EXPECT_EQ(run.published.size(), 2u) << "nothing is new";
}

TEST_F(LiveSlicesTest, FieldsThatComeLateBeginThePlanesAnew) {
  FakeRun run;
  run.preview_due = true;
  run.wanted = {Plane(FrameAxis::kZ, 4), Plane(FrameAxis::kY, 20), Plane(FrameAxis::kX, 20)};
  const TomographyLayout live_layout = Planned();
  LiveSlices live(run, {}, *port_, spec_, live_layout, LiveKind::kAll);
  Push(0);
  for (const int64_t frame : Frames(kFlats + kDarks, 40)) Push(frame);
  ShowAll(live, false);
  EXPECT_EQ(run.published.size(), 3u);
  for (const int64_t frame : Frames(1, kFlats + kDarks)) Push(frame);
  ShowAll(live, false);
  for (const int64_t frame : Frames(40, push_.frames)) Push(frame);
  ShowAll(live, true);
  ExpectPlanesOfTheVolume(run, run.wanted);
}

TEST_F(LiveSlicesTest, PlanesOfChosenProjectionsAreThoseOfTheirVolume) {
  turns_ = 2;  // 24 projections of one turn are even again
  FakeRun run;
  run.preview_due = true;
  run.wanted = {Plane(FrameAxis::kZ, 4), Plane(FrameAxis::kY, 20), Plane(FrameAxis::kX, 20)};
  const TomographySpec whole = spec_;
  const TomographyLayout live_layout = Planned();
  LiveSlices live(run, {}, *port_, whole, live_layout, LiveKind::kAll);
  for (const int64_t frame : Frames(0, 36)) Push(frame);  // seven more than the window has
  spec_.projections = {.begin = 0, .end = 24, .step = 1};
  live.Choose(spec_.projections);
  ShowAll(live, true);
  ExpectPlanesOfTheVolume(run, run.wanted);
  const size_t shown = run.published.size();
  spec_.projections = {.begin = 12, .end = 36, .step = 1};  // the next window has some of the same
  live.Choose(spec_.projections);
  EXPECT_EQ(run.used(), 0);
  ShowAll(live, false);
  EXPECT_EQ(run.published.size(), shown + 3) << "those that have come already";
  for (const int64_t frame : Frames(36, push_.frames)) Push(frame);
  ShowAll(live, true);
  ExpectPlanesOfTheVolume(run, run.wanted);
  live.Choose({.begin = 44, .end = 48, .step = 1});  // not one preview of fewer than eight
  const size_t before = run.published.size();
  ShowAll(live, false);
  EXPECT_EQ(run.published.size(), before);
  live.Release();
  EXPECT_EQ(run.used(), 0);
}

TEST_F(LiveSlicesTest, PlanesComeAndGoWhileTheScanRuns) {
  FakeRun run;
  run.preview_due = true;
  const TomographyLayout live_layout = Planned();
  LiveSlices live(run, {}, *port_, spec_, live_layout, LiveKind::kAll);
  for (const int64_t frame : Frames(0, 30)) Push(frame);
  ShowAll(live, false);
  EXPECT_THAT(run.published, IsEmpty()) << "nobody looks";
  EXPECT_EQ(run.used(), 0);
  EXPECT_THAT(run.log, IsEmpty());
  run.wanted = {Plane(FrameAxis::kZ, 4),
                Plane(FrameAxis::kY, 7, /*previews=*/false),
                {.key = {.product = Product::kMip}, .previews = true}};
  ShowAll(live, false);
  EXPECT_EQ(run.published.size(), 1u);
  const int64_t one = run.used();
  run.wanted.push_back(Plane(FrameAxis::kX, 9));
  Push(30);
  ShowAll(live, false);
  EXPECT_EQ(run.published_keys.back(), run.wanted.back().key);
  EXPECT_GT(run.used(), one);
  run.wanted.push_back(Plane(FrameAxis::kY, 30));  // catches up, and goes on with the other
  for (const int64_t frame : Frames(31, 45)) Push(frame);
  ShowAll(live, false);
  run.wanted.erase(run.wanted.begin());
  ShowAll(live, false);
  run.wanted.insert(run.wanted.begin(), Plane(FrameAxis::kZ, 5));
  for (const int64_t frame : Frames(45, push_.frames)) Push(frame);
  ShowAll(live, true);
  ExpectPlanesOfTheVolume(
      run, {Plane(FrameAxis::kZ, 5), Plane(FrameAxis::kX, 9), Plane(FrameAxis::kY, 30)});
  run.wanted.clear();
  ShowAll(live, true);
  EXPECT_EQ(run.used(), 0);
}

// The middle plane is one topic, the same plane by its index another.
TEST_F(LiveSlicesTest, AnotherNameOfAShownPlaneGetsItsImageAtOnce) {
  FakeRun run;
  run.preview_due = true;
  run.wanted = {Plane(FrameAxis::kY, -1)};
  const TomographyLayout live_layout = Planned();
  LiveSlices live(run, {}, *port_, spec_, live_layout, LiveKind::kAll);
  for (const int64_t frame : Frames(0, push_.frames)) Push(frame);
  ShowAll(live, false);
  ASSERT_EQ(run.published.size(), 1u);
  run.wanted.push_back(Plane(FrameAxis::kY, kColumns / 2));
  ShowAll(live, false);
  ASSERT_EQ(run.published.size(), 2u) << "to the new topic alone";
  EXPECT_EQ(run.published_keys[1], run.wanted[1].key);
  EXPECT_EQ(run.published[1], run.published[0]);
  ShowAll(live, true);
  EXPECT_EQ(run.published.size(), 2u);
}

TEST_F(LiveSlicesTest, ThePlannedMemorySufficesForTheMostPlanes) {
  for (const LiveKind kind : {LiveKind::kOneSlice, LiveKind::kSlices, LiveKind::kAll}) {
    const int64_t most = MostLivePlanes(kind);
    EXPECT_EQ(most, kind == LiveKind::kOneSlice ? 1 : kMostLivePlanes);
    Open(DType::kU16);
    const TomographyLayout planned = Planned();
    int64_t bytes = 0;
    {
      FakeRun any;
      bytes = LiveBytes(planned, kind, any.device()).value();
    }
    FakeRun run(bytes);
    for (const int64_t frame : Frames(0, push_.frames)) Push(frame);
    for (int64_t z = 0; z < kMostLivePlanes + 3; ++z) run.wanted.push_back(Plane(FrameAxis::kZ, z));
    if (kind == LiveKind::kAll) {
      run.wanted[0] = Plane(FrameAxis::kX, 3);
      run.wanted[1] = Plane(FrameAxis::kY, 3);
      run.wanted.push_back(Plane(FrameAxis::kZ, -1));  // the same as one of them
    }
    LiveSlices live(run, {}, *port_, spec_, planned, kind);
    ShowAll(live, true);
    EXPECT_EQ(run.published.size(), static_cast<size_t>(most + (kind == LiveKind::kAll)));
    const std::vector<publish::Wanted> shown(run.wanted.begin(), run.wanted.begin() + most);
    ExpectPlanesOfTheVolume(run, shown);
    // When one goes, the next one comes.
    run.wanted.erase(run.wanted.begin());
    ShowAll(live, true);
    ExpectPlanesOfTheVolume(run, {Plane(FrameAxis::kZ, most)});
  }
}

TEST_F(LiveSlicesTest, WithoutRoomForThemPlanesAlongYAndXAreLeftOut) {
  FakeRun run;
  run.wanted = {Plane(FrameAxis::kY, 4), Plane(FrameAxis::kZ, 4)};
  for (const int64_t frame : Frames(0, push_.frames)) Push(frame);
  const TomographyLayout live_layout = Planned();
  LiveSlices live(run, {}, *port_, spec_, live_layout, LiveKind::kSlices);
  ShowAll(live, true);
  ASSERT_EQ(run.published.size(), 1u);
  EXPECT_EQ(run.published_keys[0], run.wanted[1].key);
  EXPECT_THAT(run.log,
              Contains(HasSubstr("planes along y and x are shown when the volume is made")));
}

TEST_F(LiveSlicesTest, WhatIsLeftOutIsTold) {
  spec_.preparation.config.rings = {RingRemoval()};
  spec_.preparation.config.bin_angles = 2;
  spec_.projections = {.begin = 1, .end = 40, .step = 1};
  spec_.reconstruction.algorithm = TomographyAlgorithm::kCgls;
  spec_.center = {};
  spec_.center.find = true;
  FakeRun run;
  run.wanted = {Plane(FrameAxis::kZ, 4)};
  for (const int64_t frame : Frames(0, 20)) Push(frame);
  const TomographyLayout live_layout = Planned();
  LiveSlices live(run, {}, *port_, spec_, live_layout, LiveKind::kAll);
  ShowAll(live, true);
  EXPECT_EQ(run.published.size(), 1u);
  ASSERT_EQ(run.log.size(), 1u);
  for (const char* part : {"each of which counts the same", "searched when all are in",
                           "ring removal, binning of projections, the choice of projections (all "
                           "are used), the job's algorithm (FBP stands for it)"})
    EXPECT_THAT(run.log[0], HasSubstr(part));
  // Of the given axis and nothing left out.
  Open(DType::kU16);
  FakeRun plain;
  plain.wanted = run.wanted;
  const TomographyLayout same_layout = Planned();
  LiveSlices same(plain, {}, *port_, spec_, same_layout, LiveKind::kAll);
  ShowAll(same, false);
  ASSERT_EQ(plain.log.size(), 1u);
  EXPECT_THAT(plain.log[0], HasSubstr("the axis is the given one"));
  EXPECT_THAT(plain.log[0], Not(HasSubstr("left out")));
}

TEST_F(LiveSlicesTest, JobsThatCannotShowPlanesSaySo) {
  const std::map<std::string, std::function<void(TomographySpec&)>> cases = {
      {"sinograms", [](TomographySpec& s) { s.output = TomographyOutput::kSinograms; }},
      {"stitching",
       [](TomographySpec& s) {
         s.center = {};
         s.preparation.config.stitching.enabled = true;
       }},
      {"several axes", [](TomographySpec& s) {
         s.center = {};
         s.try_centers = TryCentersSpec{.begin = 17, .end = 20, .step = 1, .row = {}};
       }}};
  for (const auto& [words, change] : cases) {
    Open(DType::kU16);
    change(spec_);
    FakeRun run;
    run.preview_due = true;
    run.wanted = {Plane(FrameAxis::kZ, 0)};
    for (const int64_t frame : Frames(0, push_.frames)) Push(frame);
    const TomographyLayout live_layout = Planned();
    LiveSlices live(run, {}, *port_, spec_, live_layout, LiveKind::kNone);
    ShowAll(live, false);
    ShowAll(live, true);
    EXPECT_THAT(run.published, IsEmpty());
    ASSERT_EQ(run.log.size(), 1u);
    EXPECT_THAT(run.log[0], HasSubstr(words));
  }
}

TEST_F(LiveSlicesTest, FewProjectionsAreNotShownUnlessTheyAreAll) {
  FakeRun run;
  run.preview_due = true;
  run.wanted = {Plane(FrameAxis::kZ, 4)};
  const TomographyLayout live_layout = Planned();
  LiveSlices live(run, {}, *port_, spec_, live_layout, LiveKind::kAll);
  ShowAll(live, true);
  EXPECT_THAT(run.published, IsEmpty()) << "none has come";
  for (const int64_t frame : Frames(5, 12)) Push(frame);
  ShowAll(live, false);
  EXPECT_THAT(run.published, IsEmpty());
  Push(12);
  ShowAll(live, false);
  EXPECT_EQ(run.published.size(), 1u);
}

TEST_F(LiveSlicesTest, ACancelAndTooLittleMemoryLeaveTheWorkspaceAsItWas) {
  for (const int64_t frame : Frames(0, push_.frames)) Push(frame);
  FakeRun run;
  run.wanted = {Plane(FrameAxis::kZ, 4), Plane(FrameAxis::kX, 4)};
  std::stop_source stop;
  {
    const TomographyLayout live_layout = Planned();
    LiveSlices live(run, stop.get_token(), *port_, spec_, live_layout, LiveKind::kAll);
    stop.request_stop();
    EXPECT_THAT(live.Show(false), IsError(absl::StatusCode::kCancelled, ""));
  }
  EXPECT_EQ(run.used(), 0);
  EXPECT_THAT(run.published, IsEmpty());
  FakeRun small(1 << 14);
  small.wanted = run.wanted;
  const TomographyLayout live_layout = Planned();
  LiveSlices live(small, {}, *port_, spec_, live_layout, LiveKind::kAll);
  ShowAll(live, false);
  EXPECT_EQ(small.used(), 0);
  EXPECT_THAT(small.log.back(), HasSubstr("no planes are shown before all projections are in"));
  const size_t said = small.log.size();
  ShowAll(live, true);
  EXPECT_EQ(small.log.size(), said) << "it is not tried again";
}

}  // namespace
}  // namespace octavo::engine

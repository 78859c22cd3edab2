// Projection jobs on held volumes and buffers: batches, axes, the adjoint, results on disk, memory,
// cancellation, refusals.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "gpu/tomography/projector.h"
#include "server/buffer/buffer_store.h"
#include "server/engine/job_kinds.h"
#include "server/exports/export_store.h"
#include "server/projection/geometry.h"
#include "server/projection/projected_volume.h"
#include "server/session/lease.h"
#include "tests/server/job/job_fixture.h"
#include "tests/support/rooms.h"
#include "tests/support/seed.h"

namespace octavo::engine {
namespace {

using math::RayInterpolation;
using octavo::testing::IsError;
using octavo::testing::IsOk;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr double kPi = 3.14159265358979323846;
constexpr uint64_t kChunk = 1 << 20;  // the most that a writer takes at a time
constexpr int64_t kSlices = 7, kSize = 30, kColumns = 41;
const Caller kMe{.client = "me", .key = ""};

class ProjectionJobTest : public engine::testing::JobFixture {
 protected:
  ProjectionJobTest() {
    exports_ = std::make_unique<ExportStore>(ExportStore::Context{.devices = {&device_},
                                                                  .ledger = &ledger_,
                                                                  .volumes = &store_,
                                                                  .clock = &clock_,
                                                                  .server_id = "testtest"});
    buffers_ = std::make_unique<BufferStore>(BufferStore::Context{.devices = {&device_},
                                                                  .ledger = &ledger_,
                                                                  .volumes = &store_,
                                                                  .leases = &leases_,
                                                                  .clock = &clock_,
                                                                  .exports = exports_.get(),
                                                                  .frames = {frames_},
                                                                  .server_id = "testtest",
                                                                  .quota_bytes = int64_t{300} << 20,
                                                                  .handoff = nullptr,
                                                                  .sessions = nullptr,
                                                                  .import_limits = {}});
    // In no order, repeated, below 0 and beyond a turn.
    angles_ = {0.3, 2.9, 1.2, -0.4, 4.0, 7.5, 1.2, 0.1, 1.9};
    images_ = Random(kSlices * kSize * kSize);
    sinograms_ = Random(kSlices * Angles() * kColumns);
  }
  ~ProjectionJobTest() override { queue_ = nullptr; }

  int64_t Angles() const { return std::ssize(angles_); }
  std::vector<float> Random(int64_t count) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = uniform(random_);
    return values;
  }

  std::string Buffer(Scalar scalar, const std::vector<uint64_t>& shape, const void* data,
                     uint64_t bytes) {
    const auto made = buffers_->Create(
        {.scalar = scalar, .lanes = 1, .shape = shape, .devices = {}, .uninitialized = true}, kMe);
    EXPECT_THAT(made, IsOk());
    BufferWriteSpec spec;
    spec.name = made->name;
    spec.total_bytes = bytes;
    auto writer = buffers_->OpenWrite(spec, kMe);
    EXPECT_THAT(writer, IsOk());
    for (uint64_t at = 0; at < bytes; at += kChunk) {
      EXPECT_THAT(
          (*writer)->Chunk({{static_cast<const char*>(data) + at, std::min(kChunk, bytes - at)}}),
          IsOk());
    }
    EXPECT_THAT((*writer)->Finish(), IsOk());
    return made->name;
  }
  std::string FloatBuffer(const std::vector<float>& values, const std::vector<uint64_t>& shape) {
    return Buffer(Scalar::kF32, shape, values.data(), values.size() * 4);
  }
  std::string Images() { return FloatBuffer(images_, {kSlices, kSize, kSize}); }
  std::string Sinograms() {
    return FloatBuffer(sinograms_, {kSlices, static_cast<uint64_t>(Angles()), kColumns});
  }

  ProjectionSpec Spec(const std::string& input, bool adjoint) const {
    return {.input = input,
            .adjoint = adjoint,
            .angles_rad = angles_,
            .axis_pixels = {18.4},
            .columns = adjoint ? 0 : kColumns,
            .image_size = adjoint ? kSize : 0,
            .pixel_size = 0.5,
            .encoded = "",
            .json = "{}"};
  }
  JobEnvironment Environment() {
    return {.volumes = &store_,
            .spiller = nullptr,
            .ledger = &ledger_,
            .buffers = buffers_.get(),
            .clock = &clock_};
  }
  absl::StatusOr<JobStatus> Submit(const ProjectionSpec& work) {
    const auto spec = std::make_unique<JobSpec>();
    spec->work = work;
    return SubmitTo(*spec, Environment());
  }
  JobStatus Run(const ProjectionSpec& spec) { return WaitDone(Submit(spec)); }
  std::vector<float> VolumeOf(const JobStatus& job) {
    if (job.volumes.empty()) return {};
    const auto pinned = store_.Hold(job.volumes[0], HoldKind::kDevice);
    EXPECT_THAT(pinned, IsOk());
    std::vector<float> values(static_cast<size_t>(pinned->status.bytes / 4));
    const Stream stream = *device_.NewStream(StreamPriority::kNormal);
    EXPECT_THAT(device_.CopyToHost(stream.ref(), values.data(), pinned->slot->volume.data(),
                                   pinned->status.bytes),
                IsOk());
    EXPECT_THAT(stream.ref().Synchronize(), IsOk());
    return values;
  }
  /// The same by one plan of all slices.
  std::vector<float> Direct(const ProjectionSpec& spec, const std::vector<float>& input) {
    const ProjectorConfig config{.angles_rad = angles_,
                                 .detectors = kColumns,
                                 .slices = kSlices,
                                 .centers = spec.axis_pixels,
                                 .image_size = kSize,
                                 .pixel_size = spec.pixel_size,
                                 .interpolation = spec.interpolation,
                                 .mask_ratio = spec.mask_ratio};
    const auto projector = Projector::Create(config, device_);
    EXPECT_THAT(projector, IsOk());
    std::vector<float> made(spec.adjoint ? images_.size() : sinograms_.size());
    const DeviceBuffer in = *device_.Allocate(std::ssize(input) * 4),
                       out = *device_.Allocate(std::ssize(made) * 4);
    const Stream stream = *device_.NewStream(StreamPriority::kNormal);
    EXPECT_THAT(device_.CopyToDevice(stream.ref(), in.data(), input.data(), in.bytes()), IsOk());
    const auto run = spec.adjoint ? &Projector::BackProject : &Projector::Project;
    EXPECT_THAT(
        ((**projector).*run)(stream.ref(), kSlices, in.span<float>(), out.span<float>(), {}),
        IsOk());
    EXPECT_THAT(device_.CopyToHost(stream.ref(), made.data(), out.data(), out.bytes()), IsOk());
    EXPECT_THAT(stream.ref().Synchronize(), IsOk());
    return made;
  }
  void ExpectNear(const std::vector<float>& made, const std::vector<float>& wanted) {
    ASSERT_EQ(made.size(), wanted.size());
    float largest = 0, off = 0;
    for (size_t i = 0; i < made.size(); ++i) {
      largest = std::max(largest, std::abs(wanted[i]));
      off = std::max(off, std::abs(made[i] - wanted[i]));
    }
    EXPECT_GT(largest, 0);
    EXPECT_LE(off, 1e-5f * largest);
  }

  session::LeaseTable leases_{&clock_};
  std::unique_ptr<ExportStore> exports_;
  std::unique_ptr<BufferStore> buffers_;
  std::mt19937 random_{octavo::testing::FreshSeed()};
  std::vector<double> angles_;
  std::vector<float> images_, sinograms_;
};

TEST_P(ProjectionJobTest, BatchesMakeWhatOneProjectorMakes) {
  const std::string images = Images(), sinograms = Sinograms();
  for (const bool adjoint : {false, true}) {
    for (const auto how :
         {RayInterpolation::kNearest, RayInterpolation::kLinear, RayInterpolation::kCubic}) {
      for (const std::vector<double>& axes :
           {std::vector<double>{}, {18.4}, {18.4, 20.1, 19.0, 19.0, 19.0, 25.5, -3.0}}) {
        ProjectionSpec spec = Spec(adjoint ? sinograms : images, adjoint);
        spec.interpolation = how;
        spec.axis_pixels = axes;
        spec.mask_ratio = how == RayInterpolation::kCubic ? 0.7 : 0;
        const std::vector<float> wanted = Direct(spec, adjoint ? sinograms_ : images_);
        for (const int64_t batch : {0, 1, 3, 100}) {
          SCOPED_TRACE(::testing::Message()
                       << (adjoint ? "adjoint" : "forward") << ", " << axes.size() << " axes, "
                       << "batches of " << batch);
          spec.slices_per_batch = batch;
          const JobStatus job = Run(spec);
          ExpectNear(VolumeOf(job), wanted);
          EXPECT_EQ(job.kind, job::JobKind::kProjection);
          EXPECT_EQ(job.stage, job::JobStage::kProject);
          EXPECT_EQ(job.step, kSlices);
          EXPECT_EQ(job.steps, kSlices);
          const auto volume = store_.Get(job.volumes[0]);
          EXPECT_EQ(volume->shape[0], kSlices);
          EXPECT_EQ(volume->shape[1], adjoint ? kSize : Angles());
          EXPECT_EQ(volume->shape[2], adjoint ? kSize : kColumns);
          EXPECT_EQ(volume->axes[0], "z");
          EXPECT_EQ(volume->quantity,
                    adjoint ? model::Quantity::kSum : model::Quantity::kLineIntegral);
          EXPECT_TRUE(volume->complete);
          EXPECT_TRUE(volume->spacing_assumed[0] && volume->spacing_assumed[2]);
          EXPECT_LT(volume->display_lo, volume->display_hi);
          EXPECT_EQ(volume->derived_from, "") << "it is a buffer";
          ASSERT_THAT(store_.Discard(volume->name, Reason::kDiscarded, "test"), IsOk());
        }
      }
    }
  }
}

// The result of one job is the input of the next, without a way through host memory.
TEST_P(ProjectionJobTest, AHeldVolumeIsReadInPlace) {
  const JobStatus forward = Run(Spec(Images(), false));
  const std::vector<float> sinograms = VolumeOf(forward);
  const ProjectionSpec spec = Spec(forward.volumes[0], true);
  const JobStatus back = Run(spec);
  ExpectNear(VolumeOf(back), Direct(spec, sinograms));
  EXPECT_THAT(back.plan, HasSubstr("input in place"));
  EXPECT_THAT(forward.plan, HasSubstr("MiB input"));
  EXPECT_EQ(store_.Get(back.volumes[0])->derived_from, forward.volumes[0]);
  // <A x, A x> = <x, Aᵀ A x>.
  double left = 0, right = 0;
  for (const float value : sinograms) left += static_cast<double>(value) * value;
  const auto images = VolumeOf(back);
  for (size_t i = 0; i < images.size(); ++i)
    right += static_cast<double>(images[i]) * static_cast<double>(images_[i]);
  EXPECT_NEAR(left, right, 1e-4 * left);
  // Once its job is made, its memory outlives the volume.
  const auto later = std::make_unique<JobSpec>();
  later->work = spec;
  ASSERT_OK_AND_ASSIGN(auto work, MakeJobWork(*later, Environment()));
  ASSERT_THAT(store_.Discard(forward.volumes[0], Reason::kDiscarded, "test"), IsOk());
  EXPECT_THAT(Submit(spec), IsError(absl::StatusCode::kNotFound, "projection.input"));
  EXPECT_EQ(VolumeOf(WaitDone(queue_->Submit(*later, std::move(work), nullptr))), images);
}

// A write between the submit and the end would mix the old slices and the new ones.
TEST_P(ProjectionJobTest, ABufferThatIsWrittenMeanwhileFailsTheJob) {
  const std::string images = Images();
  const auto spec = std::make_unique<JobSpec>();
  spec->work = Spec(images, false);
  ASSERT_OK_AND_ASSIGN(auto work, MakeJobWork(*spec, Environment()));
  ASSERT_OK_AND_ASSIGN(auto unread, MakeJobWork(*spec, Environment()));
  EXPECT_EQ(WaitDone(queue_->Submit(*spec, std::move(unread), nullptr)).volumes.size(), 1u);
  BufferWriteSpec write;
  write.name = images;
  write.total_bytes = images_.size() * 4;
  ASSERT_OK_AND_ASSIGN(const auto writer, buffers_->OpenWrite(write, kMe));
  ASSERT_THAT(writer->Chunk({{reinterpret_cast<const char*>(images_.data()), images_.size() * 4}}),
              IsOk());
  ASSERT_THAT(writer->Finish(), IsOk());
  ASSERT_OK_AND_ASSIGN(const JobStatus job, queue_->Submit(*spec, std::move(work), nullptr));
  const JobStatus end = Wait(job.name);
  EXPECT_EQ(end.state, JobState::kFailed);
  EXPECT_EQ(end.reason_code, Reason::kVersion);
  EXPECT_EQ(InfoOf(end.error).field, "projection.input");
  EXPECT_THAT(end.reason, HasSubstr("was written while a job needed its earlier contents"));
  // A new job takes what is there now.
  ExpectNear(VolumeOf(Run(Spec(images, false))), Direct(Spec(images, false), images_));
}

// A slice is read in pieces, however large it is.
TEST_P(ProjectionJobTest, SlicesLargerThanAPieceComeWhole) {
  constexpr int64_t kLarge = 4201;  // 67 MiB, no multiple of a piece
  const std::vector<float> image = Random(kLarge * kLarge);
  ProjectionSpec spec = Spec(FloatBuffer(image, {1, kLarge, kLarge}), false);
  spec.columns = spec.image_size = 0;
  spec.angles_rad = {0};
  spec.axis_pixels = {};
  spec.pixel_size = 1;
  const std::vector<float> made = VolumeOf(Run(spec));
  ASSERT_EQ(made.size(), static_cast<size_t>(kLarge));
  for (int64_t column = 0; column < kLarge; column += 100) {
    double sum = 0;
    for (int64_t row = 0; row < kLarge; ++row)
      sum += static_cast<double>(image[static_cast<size_t>(row * kLarge + column)]);
    EXPECT_NEAR(static_cast<double>(made[static_cast<size_t>(column)]), sum, 0.02) << column;
  }
}

TEST_P(ProjectionJobTest, SpacingsFollowTheInput) {
  model::VolumeStatus input;
  input.spacing_um[0] = 3;
  input.spacing_um[1] = 7;
  input.spacing_um[2] = 2;
  for (const bool adjoint : {false, true}) {
    const ProjectionSpec spec = Spec("volumes/a", adjoint);
    const auto geometry =
        ProjectionGeometry::Make(spec, adjoint ? std::vector<int64_t>{kSlices, Angles(), kColumns}
                                               : std::vector<int64_t>{kSlices, kSize, kSize});
    ASSERT_THAT(geometry, IsOk());
    const auto volume = DescribeResult(spec, *geometry, input);
    EXPECT_EQ(volume.spacing_um[0], 3);
    EXPECT_EQ(volume.spacing_um[1], adjoint ? 2 : 1);
    EXPECT_EQ(volume.spacing_assumed[1], !adjoint) << "angles are no places";
    EXPECT_EQ(volume.spacing_um[2], 2);
    EXPECT_FALSE(volume.spacing_assumed[2]);
    EXPECT_EQ(volume.derived_from, "volumes/a");
  }
}

TEST_P(ProjectionJobTest, SmallMemoryMeansSmallBatches) {
  constexpr int64_t kMany = 40;
  std::vector<float> many = Random(kMany * kSize * kSize);
  const ProjectionSpec spec = Spec(FloatBuffer(many, {kMany, kSize, kSize}), false);
  const JobStatus all = Run(spec);
  EXPECT_THAT(all.plan, HasSubstr("batches: 1 of 40 slices"));
  const std::vector<float> wanted = VolumeOf(all);
  ASSERT_THAT(store_.Discard(all.volumes[0], Reason::kDiscarded, "test"), IsOk());
  const int64_t result = kMany * Angles() * kColumns * 4,
                leave = result + (all.memory_bytes - result) / 2;
  const auto taken = ledger_.Reserve(
      0, "somebody", "",
      {{.kind = model::NeedKind::kBuffer, .bytes = ledger_.UseOf(0).free() - leave, .count = 1}},
      nullptr);
  ASSERT_THAT(taken, IsOk());
  const JobStatus small = Run(spec);
  EXPECT_THAT(small.plan, Not(HasSubstr("batches: 1 of 40 slices")));
  EXPECT_LE(small.memory_bytes, leave);
  ExpectNear(VolumeOf(small), wanted);
  ledger_.Release((*taken)[0]);
}

TEST_P(ProjectionJobTest, CancelledJobsLeaveNothing) {
  constexpr int64_t kLarge = 512;
  ProjectionSpec spec = Spec(FloatBuffer(Random(kLarge * kLarge), {1, kLarge, kLarge}), false);
  spec.columns = spec.image_size = 0;
  for (int i = 0; i < 4000; ++i) spec.angles_rad.push_back(1e-3 * i);
  const int64_t before = ledger_.UseOf(0).granted();
  ASSERT_OK_AND_ASSIGN(const JobStatus job, Submit(spec));
  ASSERT_THAT(queue_->Cancel(job.name), IsOk());
  const JobStatus end = Wait(job.name);
  EXPECT_EQ(end.state, JobState::kCancelled) << end.reason;
  EXPECT_THAT(end.volumes.empty() || !store_.Hold(end.volumes[0], HoldKind::kDevice).ok(), true);
  Await([&] { return ledger_.UseOf(0).granted() == before; });
}

TEST_P(ProjectionJobTest, ValuesThatAreNotFiniteFailTheJob) {
  images_[kSize * kSize * 4 + 3] = std::numeric_limits<float>::quiet_NaN();
  ProjectionSpec spec = Spec(Images(), false);
  spec.slices_per_batch = 2;
  const int64_t before = ledger_.UseOf(0).granted();
  ASSERT_OK_AND_ASSIGN(const JobStatus job, Submit(spec));
  const JobStatus end = Wait(job.name);
  EXPECT_EQ(end.state, JobState::kFailed);
  EXPECT_THAT(end.reason, HasSubstr("projection.input: slices 4 to 5: images: 1 values are not "
                                    "finite; allowed are finite values"));
  EXPECT_EQ(InfoOf(end.error).field, "projection.input");
  Await([&] { return ledger_.UseOf(0).granted() == before; });
}

TEST_P(ProjectionJobTest, RefusesWhatCannotBe) {
  const std::string images = Images(), sinograms = Sinograms();
  const std::vector<uint16_t> counts(kSize * kSize);
  const std::string integers =
      Buffer(Scalar::kU16, {1, kSize, kSize}, counts.data(), counts.size() * 2);
  const std::string flat = FloatBuffer(std::vector<float>(kSize * kSize), {kSize, kSize});
  const std::string thin = FloatBuffer(std::vector<float>(9), {1, 9, 1});
  const std::string dot = FloatBuffer(std::vector<float>(1), {1, 1, 1});
  const int64_t before = ledger_.UseOf(0).granted();
  const auto refused = [&](bool adjoint, auto change, const std::string& field,
                           const std::string& text) {
    ProjectionSpec spec = Spec(adjoint ? sinograms : images, adjoint);
    change(spec);
    const auto job = Submit(spec);
    ASSERT_FALSE(job.ok()) << field << text;
    EXPECT_EQ(InfoOf(job.status()).field, field) << job.status();
    EXPECT_THAT(job.status().message(), HasSubstr(text));
  };
  using Change = ProjectionSpec&;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  refused(
      false, [](Change s) { s.input = "buffers/none"; }, "projection.input", "buffers/none");
  refused(
      false, [&](Change s) { s.input = sinograms; }, "projection.input",
      "is [7, 9, 41]; allowed are square images");
  refused(
      true, [&](Change s) { s.input = images; }, "projection.angles_rad",
      "has 9 values; allowed 30, one per projection of the input [7, 30, 30]");
  refused(
      false, [&](Change s) { s.input = integers; }, "projection.input", "f32 with three axes");
  refused(
      false, [&](Change s) { s.input = flat; }, "projection.input", "f32 with three axes");
  refused(
      true, [&](Change s) { s.input = thin; }, "projection.input", "2 to 32768 columns");
  refused(
      false, [&](Change s) { s.input = dot, s.columns = 0; }, "projection.columns",
      "allowed 2 to 32768");
  for (const bool adjoint : {false, true}) {
    refused(
        adjoint, [](Change s) { s.angles_rad.clear(); }, "projection.angles_rad",
        "has 0 values; allowed 1 to 65535");
    refused(
        adjoint, [&](Change s) { s.angles_rad[4] = nan; }, "projection.angles_rad[4]",
        "finite radians");
    refused(
        adjoint,
        [](Change s) {
          s.axis_pixels = {1, 2};
        },
        "projection.axis_pixels",
        "has 2 values; allowed none (the middle), one, or 7, one per slice");
    refused(
        adjoint, [](Change s) { s.axis_pixels = {83}; }, "projection.axis_pixels[0]",
        "is 83; allowed are pixel indices from -41 to 82");
    refused(
        adjoint, [&](Change s) { s.axis_pixels = {nan}; }, "projection.axis_pixels[0]",
        "allowed are pixel indices");
    refused(
        adjoint, [](Change s) { s.pixel_size = -1; }, "projection.pixel_size", "1e-12 to 1e12");
    refused(
        adjoint, [](Change s) { s.mask_ratio = 1.5; }, "projection.mask_ratio", "is 1.5");
  }
  refused(
      false, [](Change s) { s.columns = 1; }, "projection.columns", "is 1; allowed are 0");
  refused(
      false, [](Change s) { s.columns = 40000; }, "projection.columns", "2 to 32768");
  refused(
      false, [](Change s) { s.image_size = 31; }, "projection.image_size",
      "is 31; allowed are 0 and 30, which the input has");
  refused(
      true, [](Change s) { s.columns = 40; }, "projection.columns",
      "is 40; allowed are 0 and 41, which the input has");
  refused(
      true, [](Change s) { s.image_size = 40000; }, "projection.image_size", "1 to 32768");
  refused(
      false,
      [](Change s) {
        s.angles_rad.clear();
        for (int i = 0; i < 180; ++i) s.angles_rad.push_back(i);
      },
      "projection.angles_rad", "these look like degrees");
  refused(
      false, [](Change s) { s.angles_rad.assign(65536, 0.1); }, "projection.angles_rad",
      "has 65536 values; allowed 1 to 65535");
  EXPECT_EQ(ledger_.UseOf(0).granted(), before) << "a refused job takes nothing";
}

TEST_P(ProjectionJobTest, WarnsOfWhatMayBeAMistake) {
  ProjectionSpec spec = Spec(Images(), false);
  EXPECT_THAT(Run(spec).warnings, IsEmpty());
  spec.axis_pixels = {45};
  const JobStatus beside = Run(spec);
  ASSERT_EQ(beside.warnings.size(), 1u);
  EXPECT_THAT(beside.warnings[0],
              HasSubstr("The axis 45 lies beside the detector, whose columns are 0 to 40"));
  spec.axis_pixels = {};
  for (int i = 0; i < 100; ++i) spec.angles_rad.push_back(0.9 * i);
  const JobStatus turns = Run(spec);
  ASSERT_EQ(turns.warnings.size(), 1u);
  EXPECT_THAT(turns.warnings[0], HasSubstr("14.2 turns"));
}

INSTANTIATE_TEST_SUITE_P(Backends, ProjectionJobTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine

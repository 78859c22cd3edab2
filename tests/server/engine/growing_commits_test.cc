// Jobs whose results are committed while they are made: overlap, cancels, failures, a full disk.

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <vector>

#include "gmock/gmock.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"
#include "server/storage/commit/commit_store.h"
#include "tests/server/engine/memory_fixture.h"

namespace octavo::engine {
namespace {

namespace fs = std::filesystem;
using octavo::testing::IsError;
using octavo::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kAngles = 60, kRows = 24, kColumns = 96;

class GrowingCommitsTest : public testing::MemoryTest {
 protected:
  void SetUp() override {
    fs::create_directories(temp_ / "in");
    // Discs of other sizes in each row: minus logarithms.
    std::vector<float> sinograms;
    for (int64_t a = 0; a < kAngles; ++a) {
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t c = 0; c < kColumns; ++c) {
          const double radius = 20 + 0.5 * static_cast<double>(r),
                       s = static_cast<double>(c) - 47.5 -
                           6 * std::cos(M_PI * static_cast<double>(a) / kAngles);
          sinograms.push_back(
              static_cast<float>(0.02 * std::sqrt(std::max(0.0, radius * radius - s * s))));
        }
      }
    }
    std::string dict = absl::StrCat("{'descr': '<f4', 'fortran_order': False, 'shape': (", kAngles,
                                    ", ", kRows, ", ", kColumns, "), }");
    dict.resize((dict.size() + 10 + 63) / 64 * 64 - 11, ' ');
    dict += '\n';
    std::ofstream file(temp_ / "in/scan.npy", std::ios::binary);
    file.write("\x93NUMPY\x01\x00", 8);
    file.put(static_cast<char>(dict.size() & 255)).put(static_cast<char>(dict.size() >> 8));
    file << dict;
    file.write(reinterpret_cast<const char*>(sinograms.data()),
               static_cast<std::streamsize>(sinograms.size() * 4));
    file.close();
    config_.replay_roots = {temp_ / "in"};
    MemoryTest::SetUp();
  }

  /// One slice a batch; `iterations` make it as slow as the test needs it.
  static JobSpec Spec(const std::string& destination, int64_t iterations,
                      DType type = DType::kF32) {
    TomographySpec work;
    work.input = ProjectionFileSpec{.path = "scan.npy", .options = {}};
    for (int64_t a = 0; a < kAngles; ++a)
      work.angles_rad.push_back(M_PI * static_cast<double>(a) / kAngles);
    work.preparation.config.minus_log = false;
    work.preparation.ignore_fields = true;
    work.reconstruction.algorithm = TomographyAlgorithm::kSirt;
    work.reconstruction.iterations = iterations;
    work.center.pixels = {47.5};
    work.slices_per_batch = 1;
    work.samples.type = type;
    if (work.samples.windowed()) work.samples.low = 0, work.samples.high = 0.019;
    work.json = "{}";
    JobSpec spec;
    spec.work = work;
    if (!destination.empty()) spec.commit = BySlice(destination);
    return spec;
  }
  static CommitOptions BySlice(const std::string& destination) {
    CommitOptions options{.destination = destination};
    options.writer.chunk[0] = 1;
    options.writer.chunk[1] = options.writer.chunk[2] = kColumns;
    return options;
  }
  std::string SubmitJob(const JobSpec& spec) {
    const auto job = engine_->jobs().Submit(spec, nullptr);
    EXPECT_THAT(job, IsOk());
    return job.ok() ? job->name : "";
  }
  JobStatus Job(const std::string& name) { return engine_->jobs().Get(name).value(); }
  JobStatus EndOf(const std::string& name) {
    Until([&] { return IsFinal(Job(name).state); });
    return Job(name);
  }
  /// The operations that commit volumes of the job, oldest first.
  std::vector<OperationStatus> CommitsOf(const std::string& job) {
    std::vector<OperationStatus> commits;
    for (const OperationStatus& one : engine_->operations().List()) {
      if (one.kind != OperationKind::kCommit) continue;
      const auto volume = engine_->volumes().Get(one.target);
      if (volume.ok() && volume->job == job) commits.insert(commits.begin(), one);
    }
    return commits;
  }
  /// Waits until a commit of the running job has written something. Its operation.
  OperationStatus Writing(const std::string& job) {
    Until([&] {
      const auto commits = CommitsOf(job);
      return IsFinal(Job(job).state) || (!commits.empty() && commits[0].progress.done_bytes > 0);
    });
    EXPECT_EQ(Job(job).state, JobState::kRunning) << Job(job).reason;
    const auto commits = CommitsOf(job);
    EXPECT_THAT(commits, SizeIs(1));
    return commits.empty() ? OperationStatus() : commits[0];
  }
  /// Relative path → bytes of all files below the storage root.
  std::map<std::string, std::string> Files(const std::string& below = "") {
    std::map<std::string, std::string> files;
    const std::string root = temp_ / "data" + below;
    for (const auto& one : fs::recursive_directory_iterator(root)) {
      if (!one.is_regular_file()) continue;
      std::ifstream in(one.path(), std::ios::binary);
      files[fs::relative(one.path(), root)] = {std::istreambuf_iterator<char>(in), {}};
    }
    return files;
  }
  /// Those that hold voxels.
  std::map<std::string, std::string> Chunks(const std::string& below) {
    auto files = Files(below);
    std::erase_if(files, [](const auto& one) { return !one.first.starts_with("0/c/"); });
    return files;
  }
};

// The slices that are made are written before the last one is computed, and the voxels are those of
// a commit after the fact.
TEST_F(GrowingCommitsTest, AJobIsWrittenWhileItComputes) {
  for (const DType type : {DType::kU8, DType::kU16, DType::kF16, DType::kF32}) {
    SCOPED_TRACE(Info(type).name);
    const std::string to = absl::StrCat("v_", Info(type).name);
    const std::string job = SubmitJob(Spec(to, 40, type));
    const OperationStatus writing = Writing(job);
    EXPECT_EQ(writing.state, OperationState::kRunning);
    EXPECT_EQ(writing.progress.total_bytes, kRows * kColumns * kColumns * SizeOf(type));
    EXPECT_LT(writing.progress.done_bytes, writing.progress.total_bytes);
    EXPECT_EQ(engine_->volumes().Get(writing.target)->state, VolumeState::kAcquiring);
    EXPECT_FALSE(fs::exists(temp_ / "data/" + to + ".ome.zarr"));
    ASSERT_OK_AND_ASSIGN(const OperationStatus end, Ended(writing.name));
    const JobStatus done = EndOf(job);
    EXPECT_EQ(done.state, JobState::kDone) << done.reason;
    EXPECT_THAT(done.commits, ElementsAre(end.commit->path));
    EXPECT_EQ(done.commit_failures, 0);
    EXPECT_THAT(done.volumes, ElementsAre(writing.target));
    const VolumeStatus volume = *engine_->volumes().Get(writing.target);
    EXPECT_EQ(volume.state, VolumeState::kCommitted);
    const auto& report = std::get<TomographyReport>(done.finding);
    EXPECT_EQ(volume.clipped_above, report.clipped_above);
    if (type != DType::kF16 && type != DType::kF32)
      EXPECT_GT(report.clipped_below + report.clipped_above, 0);
    const auto files = Files("/" + to + ".ome.zarr");
    EXPECT_THAT(files.at("zarr.json"), HasSubstr(volume.digest));

    const JobStatus after = EndOf(SubmitJob(Spec("", 40, type)));
    ASSERT_THAT(after.volumes, SizeIs(1));
    EXPECT_EQ(engine_->volumes().Get(after.volumes[0])->digest, volume.digest);
    ASSERT_THAT(Ended(engine_->volumes().Commit(after.volumes[0], BySlice(to + "_after"))), IsOk());
    EXPECT_EQ(Chunks("/" + to + ".ome.zarr"), Chunks("/" + to + "_after.ome.zarr"));
    EXPECT_EQ(Chunks("/" + to + ".ome.zarr").size(), static_cast<size_t>(kRows));
  }
  EXPECT_EQ(Device().held_bytes, 0);
}

TEST_F(GrowingCommitsTest, ACancelOfTheCommitLeavesTheJobAndItsVolume) {
  const std::string job = SubmitJob(Spec("v", 200));
  const OperationStatus writing = Writing(job);
  ASSERT_THAT(engine_->operations().Cancel(writing.name), IsOk());
  const auto end = Ended(writing.name);
  EXPECT_EQ(InfoOf(end.status()).reason, Reason::kCommitCancelled) << end.status();
  EXPECT_EQ(Job(job).state, JobState::kRunning);
  EXPECT_THAT(Files(), IsEmpty());
  const JobStatus done = EndOf(job);
  EXPECT_EQ(done.state, JobState::kDone) << done.reason;
  EXPECT_EQ(done.commit_failures, 1);
  EXPECT_THAT(done.warnings,
              ElementsAre(HasSubstr("stays held once it is made: the commit was cancelled")));
  ASSERT_THAT(done.volumes, SizeIs(1));
  EXPECT_EQ(engine_->volumes().Get(done.volumes[0])->state, VolumeState::kHeld);
  EXPECT_THAT(Commit(done.volumes[0], "v"), IsOk());
}

TEST_F(GrowingCommitsTest, ACancelOfTheJobLeavesNothing) {
  const std::string job = SubmitJob(Spec("deep/v", 200));
  const OperationStatus writing = Writing(job);
  ASSERT_THAT(engine_->jobs().Cancel(job), IsOk());
  const auto end = Ended(writing.name);
  EXPECT_EQ(InfoOf(end.status()).reason, Reason::kCommitCancelled) << end.status();
  EXPECT_THAT(end.status().message(), HasSubstr("its volume was not made: "));
  const JobStatus ended = EndOf(job);
  EXPECT_EQ(ended.state, JobState::kCancelled);
  EXPECT_EQ(ended.commit_failures, 0);
  EXPECT_THAT(ended.commits, IsEmpty());
  EXPECT_TRUE(fs::is_empty(temp_ / "data")) << "nor the folder";
  EXPECT_EQ(engine_->volumes().Get(writing.target)->state, VolumeState::kFailed);
  Until([&] { return engine_->Idle(); });
  EXPECT_EQ(Device().held_bytes, 0);
}

TEST_F(GrowingCommitsTest, AFullDiskIsToldAtOnceAndTheVolumeIsHeld) {
  ArmFailpoint("chunk_written:errno=28:3");
  const std::string job = SubmitJob(Spec("v", 200));
  Until([&] { return IsFinal(Job(job).state) || Job(job).commit_failures > 0; });
  const JobStatus now = Job(job);
  ASSERT_EQ(now.state, JobState::kRunning) << now.reason;
  EXPECT_THAT(now.warnings, ElementsAre(HasSubstr("stays held once it is made: ")));
  const JobStatus done = EndOf(job);
  EXPECT_EQ(done.state, JobState::kDone) << done.reason;
  EXPECT_EQ(done.commit_failures, 1);
  const auto commits = CommitsOf(job);
  ASSERT_THAT(commits, SizeIs(1));
  EXPECT_EQ(commits[0].state, OperationState::kFailed);
  EXPECT_EQ(InfoOf(commits[0].error).reason, Reason::kDiskFull);
  ASSERT_THAT(done.volumes, SizeIs(1));
  const VolumeStatus volume = *engine_->volumes().Get(done.volumes[0]);
  EXPECT_EQ(volume.state, VolumeState::kHeld);
  EXPECT_EQ(volume.last_error, commits[0].error.message());
  EXPECT_TRUE(fs::is_empty(temp_ / "data"));
  EXPECT_THAT(Commit(done.volumes[0], "v"), IsOk());
}

// What is at the destination by then fails the commit, not the job.
TEST_F(GrowingCommitsTest, ADestinationThatIsTakenMeanwhile) {
  const std::string first = SubmitJob(Spec("v", 200));
  const OperationStatus writing = Writing(first);
  const JobStatus second = EndOf(SubmitJob(Spec("v", 1)));
  EXPECT_EQ(second.state, JobState::kDone);
  EXPECT_EQ(second.commit_failures, 1);
  EXPECT_EQ(InfoOf(CommitsOf(second.name).at(0).error).reason, Reason::kDestinationExists);
  EXPECT_THAT(Ended(writing.name), IsOk());
}

TEST_F(GrowingCommitsTest, AFormatWithAHeadIsWrittenAfterwardsAndIsAnOperationToo) {
  JobSpec spec = Spec("", 3);
  spec.commit = CommitOptions{.destination = "v"};
  spec.commit->writer.format = storage::Format::kNifti;
  const std::string job = SubmitJob(spec);
  Until([&] { return !Job(job).commits.empty() || Job(job).commit_failures > 0; });
  const auto commits = CommitsOf(job);
  ASSERT_THAT(commits, SizeIs(1));
  ASSERT_THAT(Ended(commits[0].name), IsOk());
  EXPECT_THAT(Job(job).commits, ElementsAre(temp_ / "data/v.nii"));
}

TEST_F(GrowingCommitsTest, EachVolumeOfASeriesAndTriedAxesAreWritten) {
  JobSpec series = Spec("s{index}", 20);
  std::get<TomographySpec>(series.work).series =
      model::VolumeSeriesSpec{.projections = 30, .step = 10};
  const std::string job = SubmitJob(series);
  EXPECT_EQ(EndOf(job).state, JobState::kDone);
  Until(
      [&] { return Job(job).commits.size() + static_cast<size_t>(Job(job).commit_failures) == 4; });
  EXPECT_THAT(Job(job).commits, SizeIs(4));
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(Chunks(absl::StrCat("/s", i, ".ome.zarr")).size(), static_cast<size_t>(kRows));

  JobSpec tries = Spec("t", 5);
  auto& work = std::get<TomographySpec>(tries.work);
  work.center = {};
  work.try_centers = model::TryCentersSpec{.begin = 45, .end = 50, .step = 1};
  const std::string tried = SubmitJob(tries);
  EXPECT_EQ(EndOf(tried).state, JobState::kDone) << Job(tried).reason;
  Until([&] { return !Job(tried).commits.empty() || Job(tried).commit_failures > 0; });
  EXPECT_THAT(Job(tried).commits, SizeIs(1));
}

TEST_F(GrowingCommitsTest, TheEndOfTheServerLeavesNothing) {
  const std::string job = SubmitJob(Spec("deep/v", 400));
  (void)Writing(job);
  EXPECT_FALSE(engine_->Idle());
  Stop();
  EXPECT_TRUE(fs::is_empty(temp_ / "data"));
  std::vector<std::string> report;
  ASSERT_OK_AND_ASSIGN(store_,
                       storage::CommitStore::Open(temp_ / "state", {temp_ / "data"}, &report));
  EXPECT_THAT(report, IsEmpty());
}

TEST_F(GrowingCommitsTest, AnEndNowEndsBoth) {
  const std::string job = SubmitJob(Spec("deep/v", 400));
  const OperationStatus writing = Writing(job);
  engine_->BeginDrain();
  EXPECT_EQ(Job(job).state, JobState::kRunning) << "what runs may finish";
  engine_->EndNow("the test ends it");
  EXPECT_THAT(Ended(writing.name), IsError(absl::StatusCode::kCancelled, "nothing was written"));
  EXPECT_EQ(EndOf(job).state, JobState::kCancelled);
  Until([&] { return engine_->Idle(); });
  EXPECT_TRUE(fs::is_empty(temp_ / "data"));
}

}  // namespace
}  // namespace octavo::engine

// Commits of volumes that are still being made: what is written when, and what every end leaves.

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <stop_token>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"

#include "gpu/backend/open_devices.h"
#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"
#include "gpu/device/digest.h"
#include "server/storage/commit/commit_store.h"
#include "server/volume/committer.h"
#include "server/volume/volume_metadata.h"
#include "tests/support/fake_clock.h"
#include "tests/support/rooms.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::engine {
namespace {

namespace fs = std::filesystem;
using octavo::testing::FakeClock;
using octavo::testing::IsError;
using octavo::testing::IsOk;
using octavo::testing::TempFolder;
using storage::Format;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Outcome = absl::StatusOr<storage::CommitOutcome>;

constexpr char kName[] = "volumes/a";

/// A store of volumes and a committer, below a folder of their own.
class Server {
 public:
  explicit Server(const std::string& folder) : folder_(folder) {
    storage_ = storage::CommitStore::Open(folder + "/state", {folder + "/data"}, &report).value();
    device_ = std::move(OpenDevices("host").value().devices[0]);
    frames_ = std::make_shared<FramePool>(device_.get(), 64 << 20);
    stream_ = device_->NewStream(StreamPriority::kNormal).value();
    committer = std::make_unique<Committer>(
        Committer::Context{.storage = storage_.get(),
                           .volumes = &volumes,
                           .clock = &clock,
                           .devices = DeviceSet({{device_.get(), frames_}}),
                           .meta_of =
                               [](const VolumeStatus& v) {
                                 storage::VolumeMeta meta = MetaOf(v, "test", "host");
                                 meta.warnings = v.job_warnings;
                                 return meta;
                               }},
        1);
  }
  ~Server() { ArmFailpoint(""); }

  /// A volume that is being made, of random bytes.
  void Add(const VolumeStatus& volume) {
    auto slot = std::make_shared<VolumeSlot>();
    slot->volume = device_->Allocate(volume.bytes).value();
    slot->charge =
        ledger_
            .Reserve(0, "scans/a", "",
                     {{.kind = model::NeedKind::kVolumeSlots, .bytes = 10, .count = 1}}, nullptr)
            .value()[0];
    slots_[volume.name] = slot;
    volumes.Add(volume, slot, 0);
  }
  /// Begins to write it.
  absl::StatusOr<std::unique_ptr<GrowingCommit>> Begin(const CommitOptions& options,
                                                       const std::string& name = kName) {
    outcome_ = {};
    auto promise = std::make_shared<std::promise<Outcome>>();
    outcome_ = promise->get_future();
    return committer->CommitGrowing(
        {.status = *volumes.Get(name), .slot = slots_.at(name), .device = 0}, options,
        {.stop = stop.get_token(),
         .report =
             [this](const WorkProgress& progress) {
               std::lock_guard lock(mutex_);
               progress_ = progress;
             }},
        [promise](Outcome outcome) { promise->set_value(std::move(outcome)); });
  }
  Outcome End() { return outcome_.get(); }
  bool ended() { return outcome_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
  /// Makes bytes [begin, end) of the volume, on the stream.
  void Make(const std::vector<char>& bytes, int64_t begin, int64_t end,
            const std::string& name = kName) {
    ASSERT_THAT(device_->CopyToDevice(stream_.ref(), slots_.at(name)->volume.as<char>() + begin,
                                      bytes.data() + begin, end - begin),
                IsOk());
  }
  StreamRef stream() { return stream_.ref(); }
  /// The volume is held, as its maker says at the end.
  void Seal(VolumeStatus volume, const std::vector<char>& bytes) {
    EXPECT_THAT(stream_.ref().Synchronize(), IsOk());
    volume.digest = absl::StrFormat("sum64:%016x", DigestBytes(bytes.data(), std::ssize(bytes), 0));
    volume.display_lo = 3;
    volume.display_hi = 77;
    volume.job_warnings = {"known at the end"};
    volumes.Seal(volume, /*kept=*/true);
  }
  /// Waits until so many bytes were written.
  void AwaitWritten(int64_t bytes) {
    while (progress().done_bytes < bytes && !ended())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (!ended()) EXPECT_GE(progress().done_bytes, bytes);
  }
  void AwaitStage(WorkStage stage) {
    while (progress().stage != stage && !ended())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  WorkProgress progress() {
    std::lock_guard lock(mutex_);
    return progress_;
  }
  /// Relative path → bytes, of all files below the storage root but the quarantine.
  std::map<std::string, std::string> Files() const {
    std::map<std::string, std::string> files;
    const std::string root = folder_ + "/data";
    for (const auto& one : fs::recursive_directory_iterator(root)) {
      const std::string path = fs::relative(one.path(), root);
      if (!one.is_regular_file() || path.starts_with(".octavo-quarantine")) continue;
      std::ifstream in(one.path(), std::ios::binary);
      files[path] = {std::istreambuf_iterator<char>(in), {}};
    }
    return files;
  }
  VolumeState state(const std::string& name = kName) { return volumes.Get(name)->state; }
  Device& device() { return *device_; }
  FramePool& frames() { return *frames_; }

  std::vector<std::string> report;
  FakeClock clock;
  std::stop_source stop;

 private:
  const std::string folder_;
  Ledger ledger_{{1000}};

 public:
  VolumeStore volumes{&ledger_, &clock};

 private:
  std::unique_ptr<storage::CommitStore> storage_;
  std::unique_ptr<Device> device_;
  std::shared_ptr<FramePool> frames_;
  Stream stream_;
  std::map<std::string, std::shared_ptr<VolumeSlot>> slots_;
  std::mutex mutex_;
  WorkProgress progress_;
  std::future<Outcome> outcome_;

 public:
  std::unique_ptr<Committer> committer;  // last: its threads use the rest
};

VolumeStatus Described(DType dtype, int64_t z, int64_t y, int64_t x,
                       const std::string& name = kName) {
  VolumeStatus volume;
  volume.name = name;
  volume.scan = "scans/a";
  volume.dtype = dtype;
  volume.axes[0] = "z";
  volume.axes[1] = "y";
  volume.axes[2] = "x";
  volume.shape[0] = z;
  volume.shape[1] = y;
  volume.shape[2] = x;
  volume.quantity = model::Quantity::kAttenuation;
  volume.bytes = z * y * x * SizeOf(dtype);
  return volume;
}

std::vector<char> RandomBytes(const VolumeStatus& volume, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::vector<char> bytes(static_cast<size_t>(volume.bytes));
  // Few values, so that codecs have something to do; finite in every type.
  for (char& byte : bytes) byte = static_cast<char>(random() % 5);
  return bytes;
}

CommitOptions To(Format format, const std::string& destination = "deep/v") {
  CommitOptions options{.destination = destination};
  options.writer.format = format;
  return options;
}

/// Zarr with a slab for each slice.
CommitOptions BySlice(const VolumeStatus& volume, const std::string& destination = "deep/v") {
  CommitOptions options = To(Format::kOmeZarr05, destination);
  options.writer.chunk[0] = 1;
  // Four chunks a slice are a slab for one thread: each slice is written as soon as it is made.
  options.writer.chunk[1] = (volume.shape[1] + 1) / 2;
  options.writer.chunk[2] = (volume.shape[2] + 1) / 2;
  options.writer.threads = 1;
  return options;
}

struct Way {
  Format format;
  int64_t planes = 40, rows = 512, columns = 500;  // several slabs
  bool stack = false;
  storage::NgffVersion ngff = storage::NgffVersion::kDefault;
  int pyramid = 0;
  storage::TiffPlane plane = storage::TiffPlane::kDefault;
};

/// A manifest lists the files in the order in which the encoders have closed them, which is any.
std::string Sorted(const std::string& path, const std::string& content) {
  if (!path.ends_with("manifest.json")) return content;
  auto manifest = nlohmann::json::parse(content);
  // In the order in which threads came to them, on which its own checksum depends.
  std::sort(manifest["files"].begin(), manifest["files"].end());
  manifest.erase("manifest_crc32c");
  return manifest.dump();
}

class GrowingFiles : public ::testing::TestWithParam<std::tuple<Way, DType>> {};

// The files of a volume that was written while it was made are those of a commit after the fact,
// byte for byte: what is known at the end is in them, and no voxel was read before it was made.
TEST_P(GrowingFiles, AreThoseOfACommitAfterTheFact) {
  const auto& [way, dtype] = GetParam();
  const VolumeStatus volume = Described(dtype, way.planes, way.rows, way.columns);
  const std::vector<char> bytes = RandomBytes(volume);
  CommitOptions options = To(way.format);
  options.writer.tiff_stack = way.stack;
  options.writer.ngff = way.ngff;
  options.writer.pyramid_levels = way.pyramid;
  options.writer.tiff_plane = way.plane;
  if (way.format == Format::kOmeZarr05 || way.format == Format::kHdf5) {
    options.writer.chunk[0] = 7;
    options.writer.chunk[1] = options.writer.chunk[2] = 200;
  }

  const TempFolder afterwards_folder;
  Server afterwards(afterwards_folder.path());
  afterwards.Add(volume);
  afterwards.Make(bytes, 0, volume.bytes);
  afterwards.Seal(volume, bytes);
  std::promise<Outcome> promise;
  ASSERT_THAT(
      afterwards.committer->Commit(kName, options, {},
                                   [&](Outcome outcome) { promise.set_value(std::move(outcome)); }),
      IsOk());
  const Outcome wanted = promise.get_future().get();
  ASSERT_THAT(wanted, IsOk());

  const uint32_t seed = octavo::testing::FreshSeed();
  std::mt19937 random(seed);
  const TempFolder folder;
  Server server(folder.path());
  server.Add(volume);
  ASSERT_OK_AND_ASSIGN(auto growing, server.Begin(options));
  // Batches of random sizes, not all at the bounds of slices.
  for (int64_t at = 0; at < volume.bytes;) {
    const int64_t end =
        std::min<int64_t>(volume.bytes, at + 1 + static_cast<int64_t>(random() % (4u << 20)));
    server.Make(bytes, at, end);
    ASSERT_THAT(growing->Reach(end, server.stream()), IsOk());
    at = end;
    if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  server.Seal(volume, bytes);
  EXPECT_EQ(server.state(), VolumeState::kHeld);
  growing->Held();
  const Outcome made = server.End();
  ASSERT_THAT(made, IsOk()) << "seed " << seed;
  EXPECT_EQ(server.state(), VolumeState::kCommitted);
  EXPECT_EQ(made->checksum, wanted->checksum);
  EXPECT_EQ(made->disk_bytes, wanted->disk_bytes);
  const auto files = server.Files(), wanted_files = afterwards.Files();
  ASSERT_EQ(files.size(), wanted_files.size());
  for (const auto& [path, content] : wanted_files) {
    ASSERT_TRUE(files.contains(path)) << path;
    EXPECT_TRUE(Sorted(path, files.at(path)) == Sorted(path, content)) << path << ", seed " << seed;
  }
  std::string all;
  for (const auto& [path, content] : files) all += content;
  // Not HasSubstr, which would print all.
  EXPECT_NE(all.find("known at the end"), std::string::npos);
  EXPECT_NE(all.find(server.volumes.Get(kName)->digest), std::string::npos);
}

std::vector<Way> Ways() {
  using enum Format;
  return {{.format = kOmeZarr05},
          {.format = kOmeZarr05, .ngff = storage::NgffVersion::k04, .pyramid = 3},
          {.format = kNpy},
          {.format = kBin},
          {.format = kOmeTiff},
          {.format = kOmeTiff, .plane = storage::TiffPlane::kBscan},
          {.format = kOmeTiff, .stack = true},
          {.format = kHdf5}};
}
std::vector<std::tuple<Way, DType>> WaysAndTypes() {
  std::vector<std::tuple<Way, DType>> all;
  for (const Way& way : Ways()) {
    for (const DType dtype : {DType::kU8, DType::kU16, DType::kF16, DType::kF32}) {
      if (way.format == Format::kOmeTiff && dtype == DType::kF16) continue;  // it has none
      all.emplace_back(way, dtype);
    }
  }
  return all;
}
std::string NameOfWay(const ::testing::TestParamInfo<std::tuple<Way, DType>>& info) {
  const auto& [way, dtype] = info.param;
  return absl::StrCat(
      storage::FormatName(way.format), way.stack ? "_stack" : "", way.pyramid > 0 ? "_pyramid" : "",
      way.plane == storage::TiffPlane::kBscan ? "_across" : "", "_", Info(dtype).name);
}
INSTANTIATE_TEST_SUITE_P(All, GrowingFiles, ::testing::ValuesIn(WaysAndTypes()), NameOfWay);

class GrowingCommitTest : public ::testing::Test {
 protected:
  /// Begins to write a volume of 8 slices, of which `made` are made.
  void Begin(int64_t made) {
    server_.Add(volume_);
    ASSERT_OK_AND_ASSIGN(growing_, server_.Begin(BySlice(volume_)));
    Reach(made);
  }
  void Reach(int64_t slices) {
    server_.Make(bytes_, 0, slices * slice_);
    ASSERT_THAT(growing_->Reach(slices * slice_, server_.stream()), IsOk());
  }
  void Hold() {
    server_.Seal(volume_, bytes_);
    growing_->Held();
  }

  const VolumeStatus volume_ = Described(DType::kU16, 8, 40, 50);
  const int64_t slice_ = volume_.bytes / 8;
  const std::vector<char> bytes_ = RandomBytes(volume_);
  const TempFolder folder_;
  Server server_{folder_.path()};
  std::unique_ptr<GrowingCommit> growing_;
};

TEST_F(GrowingCommitTest, WhatIsMadeIsWrittenBeforeTheRestIsMade) {
  Begin(3);
  server_.AwaitWritten(3 * slice_);
  server_.AwaitStage(WorkStage::kWaiting);
  EXPECT_EQ(server_.progress().done_bytes, 3 * slice_) << "no slice that is not made";
  EXPECT_EQ(server_.progress().total_bytes, 8 * slice_);
  EXPECT_GT(server_.progress().disk_bytes, 0);
  EXPECT_EQ(server_.state(), VolumeState::kAcquiring);
  EXPECT_FALSE(fs::exists(folder_ / "data/deep/v.ome.zarr"));
  EXPECT_EQ(server_.Files().count("deep/.octavo-a.tmp/0/c/2/0/0"), 1u);
  // Nothing to do: neither a thread of other commits nor memory for slabs is taken.
  while (server_.committer->Busy()) std::this_thread::yield();
  EXPECT_EQ(server_.committer->Pending(), 1);
  EXPECT_THAT(server_.frames().Get(server_.frames().ShareOf(FramePool::Use::kStaging)), IsOk());
  const VolumeStatus other = Described(DType::kU8, 4, 4, 4, "volumes/b");
  server_.Add(other);
  server_.Seal(other, RandomBytes(other));
  std::promise<Outcome> promise;
  ASSERT_THAT(
      server_.committer->Commit("volumes/b", To(Format::kNpy, "b"), {},
                                [&](Outcome outcome) { promise.set_value(std::move(outcome)); }),
      IsOk());
  EXPECT_EQ(InfoOf(promise.get_future().get().status()).reason, Reason::kDigest)
      << "its memory was not filled";
  server_.clock.Advance(1000);
  Reach(8);
  server_.AwaitWritten(8 * slice_);
  EXPECT_FALSE(fs::exists(folder_ / "data/deep/v.ome.zarr")) << "the volume is not held";
  server_.clock.Advance(1000);
  Hold();
  const Outcome outcome = server_.End();
  ASSERT_THAT(outcome, IsOk());
  EXPECT_LT(outcome->seconds, 1) << "without the time in which it waited for the volume";
  EXPECT_EQ(server_.state(), VolumeState::kCommitted);
}

TEST_F(GrowingCommitTest, AFormatThatBeginsWithTheEndWaits) {
  server_.Add(volume_);
  for (const Format format : {Format::kNrrd, Format::kNifti, Format::kMatlab}) {
    EXPECT_THAT(server_.Begin(To(format)),
                IsError(absl::StatusCode::kFailedPrecondition, storage::FormatName(format)));
  }
  EXPECT_EQ(server_.committer->Pending(), 0);
  EXPECT_THAT(server_.Begin(To(Format::kNpy, "../out")),
              IsError(absl::StatusCode::kInvalidArgument, "destination"));
  EXPECT_THAT(server_.Files(), IsEmpty());
}

TEST_F(GrowingCommitTest, ACancelEndsTheCommitAndTheVolumeIsHeld) {
  for (const int64_t made : {0, 3, 8}) {
    SCOPED_TRACE(made);
    const TempFolder folder;
    Server server(folder.path());
    server.Add(volume_);
    ASSERT_OK_AND_ASSIGN(auto growing, server.Begin(BySlice(volume_)));
    server.Make(bytes_, 0, made * slice_);
    if (made > 0) ASSERT_THAT(growing->Reach(made * slice_, server.stream()), IsOk());
    server.AwaitWritten(made * slice_);
    server.stop.request_stop();
    const Outcome outcome = server.End();
    EXPECT_THAT(outcome, IsError(absl::StatusCode::kCancelled, "nothing was written"));
    EXPECT_EQ(InfoOf(outcome.status()).reason, Reason::kCommitCancelled);
    EXPECT_THAT(server.Files(), IsEmpty());
    EXPECT_EQ(server.state(), VolumeState::kAcquiring);
    // Its maker does not notice.
    server.Make(bytes_, 0, volume_.bytes);
    EXPECT_THAT(growing->Reach(volume_.bytes, server.stream()), IsOk());
    server.Seal(volume_, bytes_);
    growing->Held();
    EXPECT_EQ(server.state(), VolumeState::kHeld);
    EXPECT_THAT(server.volumes.Get(kName)->last_error, HasSubstr("cancelled"));
    EXPECT_EQ(server.volumes.CountOf("scans/a").commit_failures, 1);
    EXPECT_FALSE(fs::exists(folder / "data/deep")) << "the folder was the commit's";
  }
}

TEST_F(GrowingCommitTest, AFullDiskLeavesTheVolumeHeldAndAnotherTryWorks) {
  for (const std::string point : {"journal_begin", "tmp_created", "chunk_written", "files_synced",
                                  "manifest_written", "before_rename"}) {
    SCOPED_TRACE(point);
    const TempFolder folder;
    Server server(folder.path());
    server.Add(volume_);
    ArmFailpoint(absl::StrCat(point, ":errno=28", point == "chunk_written" ? ":3" : ""));
    ASSERT_OK_AND_ASSIGN(auto growing, server.Begin(BySlice(volume_)));
    server.Make(bytes_, 0, volume_.bytes);
    ASSERT_THAT(growing->Reach(5 * slice_, server.stream()), IsOk());
    const bool early =
        point == "journal_begin" || point == "tmp_created" || point == "chunk_written";
    std::optional<Outcome> outcome;
    if (early) {
      outcome = server.End();
      EXPECT_EQ(server.state(), VolumeState::kAcquiring);
      EXPECT_THAT(server.Files(), IsEmpty());
    }
    ASSERT_THAT(growing->Reach(volume_.bytes, server.stream()), IsOk());
    server.Seal(volume_, bytes_);
    growing->Held();
    if (!early) outcome = server.End();
    EXPECT_EQ(InfoOf(outcome->status()).reason, Reason::kDiskFull) << outcome->status();
    EXPECT_EQ(server.state(), VolumeState::kHeld);
    EXPECT_EQ(server.volumes.Get(kName)->last_error, outcome->status().message());
    EXPECT_THAT(server.Files(), IsEmpty());
    ArmFailpoint("");
    std::promise<Outcome> promise;
    ASSERT_THAT(server.committer->Commit(kName, BySlice(volume_), {},
                                         [&](Outcome end) { promise.set_value(std::move(end)); }),
                IsOk());
    EXPECT_THAT(promise.get_future().get(), IsOk());
  }
}

TEST_F(GrowingCommitTest, AVolumeThatIsNotMadeLeavesNothing) {
  for (const bool told : {true, false}) {
    for (const int64_t made : {0, 3, 8}) {
      SCOPED_TRACE(absl::StrCat(told, " ", made));
      const TempFolder folder;
      Server server(folder.path());
      server.Add(volume_);
      ASSERT_OK_AND_ASSIGN(auto growing, server.Begin(BySlice(volume_)));
      server.Make(bytes_, 0, made * slice_);
      if (made > 0) ASSERT_THAT(growing->Reach(made * slice_, server.stream()), IsOk());
      server.AwaitWritten(made * slice_);
      server.volumes.Fail(kName, Reason::kInternal, "broken");
      if (told) growing->Failed(absl::DataLossError("broken"));
      growing = nullptr;
      const Outcome outcome = server.End();
      EXPECT_THAT(outcome, IsError(absl::StatusCode::kCancelled,
                                   told ? "not made: broken" : "nobody makes it"));
      EXPECT_EQ(InfoOf(outcome.status()).reason, Reason::kCommitCancelled);
      EXPECT_THAT(server.Files(), IsEmpty());
      EXPECT_EQ(server.state(), VolumeState::kFailed);
      EXPECT_EQ(server.volumes.CountOf("scans/a").commit_failures, 0);
      std::vector<std::string> report;
      while (server.committer->Pending() > 0) std::this_thread::yield();
    }
  }
}

TEST_F(GrowingCommitTest, AClientThatIsFasterHasItsWill) {
  Begin(8);
  server_.AwaitWritten(8 * slice_);
  server_.Seal(volume_, bytes_);
  ASSERT_THAT(server_.volumes.Discard(kName, Reason::kDiscarded, "a client's"), IsOk());
  growing_->Held();
  const Outcome outcome = server_.End();
  EXPECT_EQ(InfoOf(outcome.status()).reason, Reason::kVolumeState) << outcome.status();
  EXPECT_EQ(server_.state(), VolumeState::kDiscarded);
  EXPECT_THAT(server_.Files(), IsEmpty());
}

// Whatever is written before its time is found by the digest of the device.
TEST_F(GrowingCommitTest, BytesThatChangedAfterwardsAreNotPublished) {
  Begin(8);
  server_.AwaitWritten(8 * slice_);
  std::vector<char> other = bytes_;
  other[5] ^= 1;
  server_.Seal(volume_, other);
  growing_->Held();
  const Outcome outcome = server_.End();
  EXPECT_EQ(InfoOf(outcome.status()).reason, Reason::kDigest) << outcome.status();
  EXPECT_EQ(server_.state(), VolumeState::kHeld);
  EXPECT_THAT(server_.Files(), IsEmpty());
}

TEST_F(GrowingCommitTest, MoreThanSomeWaitAndTheNameIsOneCommits) {
  std::vector<std::unique_ptr<GrowingCommit>> growing;
  std::vector<std::string> names;
  for (const char c : {'a', 'b', 'c'}) {
    VolumeStatus volume = volume_;
    volume.name = names.emplace_back(absl::StrCat("volumes/", std::string(1, c)));
    server_.Add(volume);
  }
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK_AND_ASSIGN(growing.emplace_back(),
                         server_.Begin(BySlice(volume_, names[static_cast<size_t>(i)].substr(8)),
                                       names[static_cast<size_t>(i)]));
  }
  EXPECT_THAT(server_.Begin(BySlice(volume_, "c"), names[2]),
              IsError(absl::StatusCode::kFailedPrecondition, "as many"));
  growing.pop_back();
  while (server_.committer->Pending() > 1) std::this_thread::yield();
  // The place is free, but the name is not.
  ASSERT_OK_AND_ASSIGN(growing.emplace_back(), server_.Begin(BySlice(volume_, "a"), names[2]));
  EXPECT_THAT(server_.End(), IsError(absl::StatusCode::kAlreadyExists, "options.destination"));
}

TEST_F(GrowingCommitTest, TheEndOfTheCommitterEndsIt) {
  for (const int64_t made : {0, 3, 8}) {
    SCOPED_TRACE(made);
    const TempFolder folder;
    Server server(folder.path());
    server.Add(volume_);
    ASSERT_OK_AND_ASSIGN(auto growing, server.Begin(BySlice(volume_)));
    server.Make(bytes_, 0, made * slice_);
    if (made > 0) ASSERT_THAT(growing->Reach(made * slice_, server.stream()), IsOk());
    server.AwaitWritten(made * slice_);
    server.committer->CancelAll();  // as its end does
    EXPECT_THAT(server.End(), IsError(absl::StatusCode::kCancelled, "nothing was written"));
    growing = nullptr;
    server.committer = nullptr;
    EXPECT_THAT(server.Files(), IsEmpty());
  }
}

TEST_F(GrowingCommitTest, AThreadThatCannotTakeItLeavesTheVolumeToItsMaker) {
  server_.Add(volume_);
  ArmFailpoint("task_posted:throw=bad_alloc");
  EXPECT_THAT(server_.Begin(BySlice(volume_)),
              IsError(absl::StatusCode::kResourceExhausted, "no host memory left"));
  ArmFailpoint("");
  EXPECT_EQ(server_.committer->Pending(), 0);
  EXPECT_FALSE(server_.committer->PendingOf("scans/a"));
  ASSERT_OK_AND_ASSIGN(growing_, server_.Begin(BySlice(volume_)));
  Reach(8);
  Hold();
  EXPECT_THAT(server_.End(), IsOk());
}

// Ends of both sides at once: the volume ends COMMITTED or HELD, never between.
TEST_F(GrowingCommitTest, ACancelAtTheMomentOfTheEndIsOneOfTheTwo) {
  const uint32_t seed = octavo::testing::FreshSeed();
  std::mt19937 random(seed);
  for (int i = 0; i < 40; ++i) {
    const TempFolder folder;
    Server server(folder.path());
    server.Add(volume_);
    ASSERT_OK_AND_ASSIGN(auto growing, server.Begin(BySlice(volume_)));
    server.Make(bytes_, 0, volume_.bytes);
    ASSERT_THAT(growing->Reach(volume_.bytes, server.stream()), IsOk());
    const auto pause = std::chrono::microseconds(random() % 40000);
    std::thread canceller([&] {
      std::this_thread::sleep_for(pause);
      server.stop.request_stop();
    });
    if (random() % 2 == 0) server.AwaitWritten(4 * slice_);
    server.Seal(volume_, bytes_);
    growing->Held();
    canceller.join();
    const Outcome outcome = server.End();
    while (server.committer->Pending() > 0) std::this_thread::yield();
    EXPECT_EQ(server.state(), outcome.ok() ? VolumeState::kCommitted : VolumeState::kHeld)
        << "seed " << seed;
    EXPECT_EQ(server.Files().empty(), !outcome.ok()) << outcome.status() << ", seed " << seed;
  }
}

struct Kill {
  const char* point;
  int count;
  bool complete;  // the next start publishes it
};

class GrowingKill : public ::testing::TestWithParam<std::tuple<Kill, Format>> {};

// A process that dies while it writes a volume that is being made leaves nothing under its name:
// there is no manifest before the volume is held.
TEST_P(GrowingKill, TheDestinationIsAbsentOrComplete) {
  const auto& [kill, format] = GetParam();
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // The process that is killed begins this test anew, in the same folder.
  constexpr char kFolder[] = "OCTAVO_TEST_KILLED_IN";
  std::optional<TempFolder> own;
  if (std::getenv(kFolder) == nullptr) own.emplace();
  const std::string folder = own.has_value() ? own->path() : std::getenv(kFolder);
  ::setenv(kFolder, folder.c_str(), 1);
  const absl::Cleanup over = [&] { ::unsetenv(kFolder); };
  const VolumeStatus volume = Described(DType::kF32, 24, 512, 400);
  const std::vector<char> bytes = RandomBytes(volume);
  EXPECT_EXIT(
      {
        Server server(folder);
        server.Add(volume);
        ArmFailpoint(absl::StrCat(kill.point, ":kill:", kill.count));
        auto growing = server.Begin(To(format)).value();
        server.Make(bytes, 0, volume.bytes);
        if (!kill.complete) {
          (void)growing->Reach(volume.bytes / 2, server.stream());
          server.AwaitStage(WorkStage::kWaiting);
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
        (void)growing->Reach(volume.bytes, server.stream());
        server.Seal(volume, bytes);
        growing->Held();
        (void)server.End();
      },
      ::testing::KilledBySignal(SIGKILL), "");
  Server next(folder);
  ASSERT_EQ(next.report.size(), 1u);
  const bool there = format == Format::kNpy ? fs::exists(folder + "/data/deep/v.npy")
                                            : fs::exists(folder + "/data/deep/v.ome.zarr");
  EXPECT_EQ(there, kill.complete) << next.report[0];
  for (const auto& [path, content] : next.Files())
    EXPECT_EQ(path.find(".octavo-a"), std::string::npos) << path;
  if (!there) EXPECT_THAT(next.Files(), IsEmpty());
}

std::vector<std::tuple<Kill, Format>> Kills() {
  std::vector<std::tuple<Kill, Format>> all;
  for (const Format format : {Format::kNpy, Format::kOmeZarr05}) {
    for (const Kill& kill : {Kill{"journal_begin", 1, false}, Kill{"tmp_created", 1, false},
                             Kill{"chunk_written", 1, false}, Kill{"chunk_written", 3, false},
                             Kill{"files_synced", 1, false}, Kill{"manifest_written", 1, true},
                             Kill{"before_rename", 1, true}, Kill{"after_rename", 1, true}})
      all.emplace_back(kill, format);
  }
  return all;
}
std::string NameOfKill(const ::testing::TestParamInfo<std::tuple<Kill, Format>>& info) {
  const auto& [kill, format] = info.param;
  return absl::StrCat(kill.point, "_", kill.count, "_", storage::FormatName(format));
}
INSTANTIATE_TEST_SUITE_P(Points, GrowingKill, ::testing::ValuesIn(Kills()), NameOfKill);

}  // namespace
}  // namespace octavo::engine

// Imports of files: bits, description, plan, and every way to fail: nothing is left then.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/failpoint.h"
#include "server/buffer/buffer_store.h"
#include "server/engine/job_kinds.h"
#include "server/job/job_queue.h"
#include "server/source/push_projections.h"
#include "tests/server/job/job_fixture.h"
#include "tests/support/rooms.h"
#include "tests/support/seed.h"
#include "tests/support/temp_folder.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kPlanes = 40, kRows = 12, kColumns = 20;

const Caller kOwner{.client = "me", .key = "0123456789abcdef"};

class ImportJobTest : public engine::testing::JobFixture {
 protected:
  ImportJobTest() : voxels_(kPlanes * kRows * kColumns) {
    std::mt19937 random(octavo::testing::FreshSeed());
    for (uint16_t& voxel : voxels_) voxel = static_cast<uint16_t>(random() % 5000);
    WriteNpy("a.npy", voxels_, {kPlanes, kRows, kColumns});
  }

  void WriteNpy(const std::string& name, const std::vector<uint16_t>& values,
                const std::vector<int64_t>& shape) const {
    std::string header = "{'descr': '<u2', 'fortran_order': False, 'shape': (";
    for (const int64_t extent : shape) header += std::to_string(extent) + ", ";
    header += "), }";
    header.resize(117, ' ');
    std::string bytes = std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n";
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * 2);
    folder_.Write(name, bytes);
  }

  static ImportSpec Spec(const std::string& path = "a.npy") {
    ImportSpec spec;
    spec.path = path;
    spec.volume.axes = {"z", "y", "x"};
    spec.volume.spacing_um = {{"x", 10}, {"y", 20}, {"z", 3.5}};
    spec.json = R"({"path": "a.npy"})";
    return spec;
  }
  JobEnvironment Environment() {
    return {.volumes = &store_,
            .spiller = nullptr,
            .ledger = &ledger_,
            .buffers = &buffers_,
            .file_roots = {folder_.path()},
            .projection_memory = &memory_,
            .clock = &clock_};
  }
  static std::unique_ptr<JobSpec> SpecOf(const ImportSpec& work) {
    auto spec = std::make_unique<JobSpec>();
    spec->work = work;
    return spec;
  }
  absl::StatusOr<JobStatus> Submit(const ImportSpec& work) {
    const auto spec = SpecOf(work);
    spec->title = "imported";
    spec->labels = {{"eye", "OD"}};
    return SubmitTo(*spec, Environment());
  }
  absl::Status Refusal(const ImportSpec& spec) { return Submit(spec).status(); }
  static void Expect(const absl::Status& status, absl::StatusCode code, Reason reason,
                     const std::string& field, const std::string& text) {
    EXPECT_THAT(status, IsError(code, text));
    EXPECT_EQ(Name(InfoOf(status).reason), Name(reason)) << status;
    EXPECT_EQ(InfoOf(status).field, field) << status;
  }
  template <class T>
  std::vector<T> Voxels(const std::string& name) {
    const auto held = store_.Hold(name, HoldKind::kDevice);
    EXPECT_THAT(held, IsOk());
    std::vector<T> values(static_cast<size_t>(held->status.bytes) / sizeof(T));
    const Stream stream = *device_.NewStream(StreamPriority::kNormal);
    EXPECT_THAT(device_.CopyToHost(stream.ref(), values.data(), held->slot->volume.data(),
                                   held->status.bytes),
                IsOk());
    EXPECT_THAT(stream.ref().Synchronize(), IsOk());
    return values;
  }
  /// After a job that made no volume.
  void ExpectNothingIsLeft() {
    EXPECT_EQ(ledger_.UseOf(0).reserved, 0);
    EXPECT_EQ(ledger_.UseOf(0).held, 0);
    EXPECT_EQ(ledger_.UseOf(0).buffers, 0);
    EXPECT_EQ(memory_.used_bytes(), 0);
    EXPECT_TRUE(buffers_.List(kOwner).empty());
    for (const VolumeStatus& volume : store_.List())
      EXPECT_TRUE(volume.state == VolumeState::kFailed || volume.state == VolumeState::kDiscarded)
          << volume.name;
  }

  octavo::testing::TempFolder folder_;
  source::ProjectionMemory memory_{64 << 20};
  session::LeaseTable leases_{&clock_};
  exports::ExportStore exports_{exports::ExportStore::Context{.devices = {&device_},
                                                              .ledger = &ledger_,
                                                              .volumes = &store_,
                                                              .clock = &clock_,
                                                              .server_id = "testtest"}};
  buffer::BufferStore buffers_{{.devices = {&device_},
                                .ledger = &ledger_,
                                .volumes = &store_,
                                .leases = &leases_,
                                .clock = &clock_,
                                .exports = &exports_,
                                .frames = {frames_},
                                .server_id = "testtest",
                                .most_elements = int64_t{1} << 28,
                                .quota_bytes = int64_t{300} << 20}};
  std::vector<uint16_t> voxels_;  // [z, y, x]
};

TEST_P(ImportJobTest, AFileBecomesAHeldVolume) {
  const JobStatus job = WaitDone(Submit(Spec()));
  EXPECT_EQ(job.kind, job::JobKind::kImport);
  EXPECT_EQ(job.stage, job::JobStage::kImport);
  EXPECT_EQ(job.fraction, 1);
  EXPECT_EQ(job.steps, kPlanes);
  EXPECT_THAT(job.plan,
              HasSubstr("z 40 of 3.5 um, y 12 of 20 um, x 20 of 10 um, u16, 19200 bytes"));
  ASSERT_EQ(job.volumes.size(), 1u);
  ASSERT_OK_AND_ASSIGN(const VolumeStatus volume, store_.Get(job.volumes[0]));
  EXPECT_EQ(volume.state, VolumeState::kHeld);
  EXPECT_EQ(volume.scan, job.name);
  EXPECT_EQ(volume.title, "imported");
  EXPECT_EQ(volume.labels.at("eye"), "OD");
  EXPECT_EQ(volume.job_kind, "import");
  EXPECT_EQ(volume.quantity, Quantity::kNone);
  EXPECT_EQ(volume.value, ValueKind::kDefault) << "the file does not say what its numbers are";
  EXPECT_TRUE(volume.complete);
  EXPECT_THAT(volume.shape, ElementsAre(kPlanes, kRows, kColumns));
  EXPECT_THAT(volume.axes, ElementsAre("z", "y", "x"));
  EXPECT_THAT(volume.spacing_um, ElementsAre(3.5, 20, 10));
  EXPECT_THAT(volume.spacing_assumed, ElementsAre(false, false, false));
  EXPECT_EQ(Voxels<uint16_t>(volume.name), voxels_);
  EXPECT_LT(volume.digest.find("sum64:"), 1u);
  // A plane in the middle tells what to show.
  EXPECT_GE(volume.display_lo, 0);
  EXPECT_LT(volume.display_lo, 200);
  EXPECT_GT(volume.display_hi, 4800);
  EXPECT_LT(volume.display_hi, 5000);
  ASSERT_NE(volume.recovered_meta, nullptr);
  EXPECT_EQ(volume.recovered_meta->processing["import"]["job"], job.name);
  EXPECT_EQ(volume.recovered_meta->processing["import"]["format"], "npy");
  EXPECT_EQ(volume.recovered_meta->processing["import"]["parameters"]["path"], "a.npy");
  EXPECT_FALSE(volume.recovered);
  // The MIP over z was made.
  const auto held = store_.Hold(volume.name, HoldKind::kDevice);
  ASSERT_THAT(held, IsOk());
  std::vector<uint16_t> mip(kRows * kColumns);
  const Stream stream = *device_.NewStream(StreamPriority::kNormal);
  ASSERT_THAT(
      device_.CopyToHost(stream.ref(), mip.data(), held->slot->mip.data(), std::ssize(mip) * 2),
      IsOk());
  ASSERT_THAT(stream.ref().Synchronize(), IsOk());
  for (size_t i = 0; i < mip.size(); ++i) {
    uint16_t highest = 0;
    for (size_t z = 0; z < kPlanes; ++z) highest = std::max(highest, voxels_[z * mip.size() + i]);
    ASSERT_EQ(mip[i], highest) << i;
  }
  EXPECT_EQ(memory_.used_bytes(), 0);
}

TEST_P(ImportJobTest, OrderTypeAndABox) {
  ImportSpec spec = Spec();
  spec.volume.order = "yxz";
  spec.volume.dtype = DType::kF32;
  spec.volume.start = {2, 3, 5};
  spec.volume.count = {7, 0, 11};
  spec.volume.value_kind = "db";
  const JobStatus job = WaitDone(Submit(spec));
  ASSERT_OK_AND_ASSIGN(const VolumeStatus volume, store_.Get(job.volumes.at(0)));
  EXPECT_THAT(volume.shape, ElementsAre(7, kColumns - 3, 11));
  EXPECT_THAT(volume.spacing_um, ElementsAre(20, 10, 3.5));
  EXPECT_EQ(volume.value, ValueKind::kDb);
  EXPECT_EQ(volume.quantity, Quantity::kNone);
  const std::vector<float> read = Voxels<float>(volume.name);
  size_t i = 0;
  for (int64_t y = 2; y < 9; ++y) {
    for (int64_t x = 3; x < kColumns; ++x) {
      for (int64_t z = 5; z < 16; ++z, ++i)
        ASSERT_EQ(read[i], voxels_[static_cast<size_t>((z * kRows + y) * kColumns + x)]);
    }
  }
}

// More than one piece, so that both slabs are used again.
TEST_P(ImportJobTest, AVolumeOfManyPieces) {
  std::vector<uint16_t> large(int64_t{50} * 700 * 1000);
  std::mt19937 random(octavo::testing::FreshSeed());
  for (uint16_t& voxel : large) voxel = static_cast<uint16_t>(random());
  WriteNpy("large.npy", large, {50, 700, 1000});
  const JobStatus job = WaitDone(Submit(Spec("large.npy")));
  EXPECT_EQ(Voxels<uint16_t>(job.volumes.at(0)), large);
  ASSERT_GT(job.history.size(), 2u);
  for (size_t i = 1; i < job.history.size(); ++i)
    EXPECT_GT(job.history[i].step, job.history[i - 1].step);
}

TEST_P(ImportJobTest, WhatIsMissingHasToBeGiven) {
  using absl::StatusCode;
  ImportSpec spec = Spec();
  spec.volume.axes.clear();
  Expect(Refusal(spec), StatusCode::kInvalidArgument, Reason::kBadField, "volume_import.axes",
         "is missing");
  spec = Spec();
  spec.volume.spacing_um.erase("y");
  Expect(Refusal(spec), StatusCode::kInvalidArgument, Reason::kBadField,
         "volume_import.spacing_um.y", "is missing");
  spec.volume.allow_unknown_spacing = true;
  const JobStatus job = WaitDone(Submit(spec));
  EXPECT_THAT(job.warnings, ElementsAre(HasSubstr("The spacing along y is not known")));
  ASSERT_OK_AND_ASSIGN(const VolumeStatus volume, store_.Get(job.volumes.at(0)));
  EXPECT_THAT(volume.spacing_assumed, ElementsAre(false, true, false));
}

TEST_P(ImportJobTest, WrongPathsAndFiles) {
  using absl::StatusCode;
  Expect(Refusal(Spec("")), StatusCode::kInvalidArgument, Reason::kBadField, "volume_import.path",
         "is empty");
  Expect(Refusal(Spec("no.npy")), StatusCode::kNotFound, Reason::kNoFile, "volume_import.path",
         "no.npy");
  Expect(Refusal(Spec("/etc/passwd")), StatusCode::kInvalidArgument, Reason::kOutsideRoots,
         "volume_import.path", "");
  std::filesystem::create_symlink("/etc/passwd", folder_ / "link");
  Expect(Refusal(Spec("link")), StatusCode::kInvalidArgument, Reason::kOutsideRoots,
         "volume_import.path", "");
  folder_.Write("text", "nothing of any kind");
  Expect(Refusal(Spec("text")), StatusCode::kInvalidArgument, Reason::kUnsupportedFile,
         "volume_import.path", "text");
  std::filesystem::copy_file(folder_ / "a.npy", folder_ / "cut.npy");
  std::filesystem::resize_file(folder_ / "cut.npy", 200);
  Expect(Refusal(Spec("cut.npy")), StatusCode::kDataLoss, Reason::kDamagedFile,
         "volume_import.path", "cut.npy");
  ExpectNothingIsLeft();
}

TEST_P(ImportJobTest, AFileThatChangesIsNoVolume) {
  ASSERT_OK_AND_ASSIGN(auto work, MakeJobWork(*SpecOf(Spec()), Environment()));
  // Between the plan and the run.
  const auto spec = SpecOf(Spec());
  std::filesystem::last_write_time(
      folder_ / "a.npy",
      std::filesystem::last_write_time(folder_ / "a.npy") + std::chrono::seconds(5));
  ASSERT_OK_AND_ASSIGN(const JobStatus job, queue_->Submit(*spec, std::move(work), nullptr));
  const JobStatus end = Wait(job.name);
  EXPECT_EQ(end.state, JobState::kFailed);
  Expect(end.error, absl::StatusCode::kAborted, Reason::kReplaced, "volume_import.path",
         "has changed since it was opened");
  EXPECT_EQ(end.reason_code, Reason::kReplaced);
  EXPECT_TRUE(end.volumes.empty());
  ExpectNothingIsLeft();
}

TEST_P(ImportJobTest, MemoryIsPlannedAndRefusedWithNumbers) {
  ASSERT_OK_AND_ASSIGN(auto work, MakeJobWork(*SpecOf(Spec()), Environment()));
  ASSERT_OK_AND_ASSIGN(const job::JobPlan plan, work->Plan(device_));
  ASSERT_EQ(plan.results.size(), 1u);
  EXPECT_EQ(plan.results[0].bytes, kPlanes * kRows * kColumns * 2);
  EXPECT_EQ(plan.results[0].mip_bytes, kRows * kColumns * 2);
  EXPECT_THAT(plan.view_extents, ElementsAre(kRows, kColumns, kPlanes));
  // More than the device has.
  Ledger small({4096});
  const auto large = SpecOf(Spec());
  JobQueue queue({.devices = DeviceSet({{&device_, frames_}}),
                  .ledger = &small,
                  .volumes = &store_,
                  .publisher = &publisher_,
                  .clock = &clock_,
                  .server_id = "smallone",
                  .observer = &observer_});
  AdmissionReport report;
  const absl::Status refused = queue.Submit(*large, std::move(work), &report).status();
  EXPECT_THAT(refused, IsError(absl::StatusCode::kResourceExhausted, ""));
  EXPECT_EQ(InfoOf(refused).reason, Reason::kExceedsBudget);
  EXPECT_GT(report.wanted_bytes, report.budget_bytes);
  // More than the host has for reading.
  source::ProjectionMemory tiny(1000);
  JobEnvironment environment = Environment();
  environment.projection_memory = &tiny;
  const absl::Status host = MakeJobWork(*large, environment).status();
  Expect(host, absl::StatusCode::kResourceExhausted, Reason::kHostMemory, "volume_import.path",
         "bytes of host memory; the server has 1000");
  EXPECT_THAT(InfoOf(host).numbers, ::testing::Contains(::testing::Pair("limit", "1000")));
  ExpectNothingIsLeft();
}

TEST_P(ImportJobTest, WaitsForHostMemoryAndCanBeCancelled) {
  const std::shared_ptr<void> taken = memory_.Reserve(memory_.limit_bytes());
  ASSERT_NE(taken, nullptr);
  ASSERT_OK_AND_ASSIGN(const JobStatus job, Submit(Spec()));
  Await([&] {
    const auto log = queue_->Get(job.name)->log;
    return std::any_of(log.begin(), log.end(), [](const job::JobLogLine& line) {
      return line.text.find("of host memory") != std::string::npos;
    });
  });
  EXPECT_THAT(queue_->Cancel(job.name), IsOk());
  const JobStatus end = Wait(job.name);
  EXPECT_EQ(end.state, JobState::kCancelled);
  EXPECT_EQ(ledger_.UseOf(0).reserved, 0);
  EXPECT_EQ(ledger_.UseOf(0).held, 0);
}

// At every piece, by an error of the disk and by exceptions.
TEST_P(ImportJobTest, AFaultInTheMiddleLeavesNothing) {
  WriteNpy("large.npy", std::vector<uint16_t>(size_t{50} * 700 * 1000, 7), {50, 700, 1000});
  struct Fault {
    const char* action;
    Reason reason;
  };
  for (const Fault& fault :
       {Fault{"errno=5", Reason::kIoError}, Fault{"errno=24", Reason::kNoDescriptors},
        Fault{"throw=bad_alloc", Reason::kOutOfMemory}}) {
    for (int piece = 1; piece <= 5; ++piece) {
      SCOPED_TRACE(absl::StrCat(fault.action, " at piece ", piece));
      ArmFailpoint(absl::StrCat("import_piece:", fault.action, ":", piece));
      const auto job = Submit(Spec("large.npy"));
      ASSERT_THAT(job, IsOk());
      const JobStatus end = Wait(job->name);
      ArmFailpoint("");
      EXPECT_EQ(end.state, JobState::kFailed);
      EXPECT_EQ(Name(end.reason_code), Name(fault.reason)) << end.error;
      EXPECT_TRUE(end.volumes.empty());
      ExpectNothingIsLeft();
    }
  }
  EXPECT_EQ(WaitDone(Submit(Spec("large.npy"))).volumes.size(), 1u);
}

TEST_P(ImportJobTest, CancelledInTheMiddle) {
  WriteNpy("large.npy", std::vector<uint16_t>(size_t{200} * 700 * 1000, 7), {200, 700, 1000});
  bool cancelled = false;
  for (int attempt = 0; attempt < 20 && !cancelled; ++attempt) {  // it may be done too soon
    ASSERT_OK_AND_ASSIGN(const JobStatus job, Submit(Spec("large.npy")));
    Await([&] {
      const auto now = queue_->Get(job.name);
      return now->step > 0 || now->state == JobState::kDone;
    });
    (void)queue_->Cancel(job.name);
    const JobStatus end = Wait(job.name);
    cancelled = end.state == JobState::kCancelled;
    if (!cancelled) {
      EXPECT_THAT(store_.Discard(end.volumes.at(0), Reason::kDiscarded, "too soon"), IsOk());
      continue;
    }
    EXPECT_GT(end.step, 0);
    EXPECT_LT(end.step, 200);
  }
  EXPECT_TRUE(cancelled);
  ExpectNothingIsLeft();
}

TEST_P(ImportJobTest, OptionsThatContradictTheFile) {
  using absl::StatusCode;
  ImportSpec spec = Spec();
  spec.volume.axes = {"z", "y"};
  Expect(Refusal(spec), StatusCode::kInvalidArgument, Reason::kBadField, "volume_import.axes",
         "allowed 3 names");
  spec = Spec();
  spec.volume.order = "xx";
  Expect(Refusal(spec), StatusCode::kInvalidArgument, Reason::kBadField, "volume_import.order",
         "'xx'");
  spec = Spec();
  spec.volume.start = {0, 0, kColumns};
  Expect(Refusal(spec), StatusCode::kOutOfRange, Reason::kBadRange, "volume_import.start", "");
  spec = Spec();
  spec.input.format = storage::InputFormat::kTiff;
  Expect(Refusal(spec), StatusCode::kInvalidArgument, Reason::kBadField, "volume_import.format",
         "a.npy is recognised as npy by its first bytes");
  spec = Spec();
  spec.volume.spacing_um["z"] = 0;
  Expect(Refusal(spec), StatusCode::kInvalidArgument, Reason::kBadField,
         "volume_import.spacing_um.z", "");
  ExpectNothingIsLeft();
}

// -- buffers

TEST_P(ImportJobTest, AFileBecomesABuffer) {
  ImportSpec spec = Spec();
  spec.volume.spacing_um.clear();  // it need not be known
  spec.volume.array.emplace();
  spec.volume.order = "yxz";
  spec.is_private = true;
  auto job_spec = SpecOf(spec);
  job_spec->labels = {{"eye", "OD"}};
  job_spec->ttl_seconds = 1000;
  job_spec->caller = kOwner;
  const JobStatus job = WaitDone(SubmitTo(*job_spec, Environment()));
  EXPECT_TRUE(job.volumes.empty());
  EXPECT_TRUE(job.warnings.empty());
  EXPECT_THAT(job.plan, HasSubstr("buffer: y 12, x 20, z 40, u16, 19200 bytes"));
  ASSERT_OK_AND_ASSIGN(const BufferStatus made, buffers_.Get(job.buffer, kOwner));
  EXPECT_EQ(buffers_.Get(job.buffer, {}).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(made.type, (ArrayType{.scalar = Scalar::kU16, .lanes = 1, .dims = {12, 20, 40}}));
  EXPECT_EQ(made.state, BufferState::kReady);
  EXPECT_TRUE(made.coherent);
  EXPECT_EQ(made.client, "me");
  EXPECT_TRUE(made.is_private);
  EXPECT_EQ(made.labels.at("eye"), "OD");
  EXPECT_GT(made.expires_seconds, 900);
  ASSERT_EQ(made.replicas.size(), 1u);
  EXPECT_EQ(made.replicas[0].version, 1u);
  EXPECT_EQ(ledger_.UseOf(0).reserved, 0) << "the charge is the buffer's";
  EXPECT_EQ(ledger_.UseOf(0).buffers, made.charged_bytes);
  ASSERT_OK_AND_ASSIGN(const auto reader, buffers_.OpenRead({.name = job.buffer}, kOwner));
  std::vector<uint16_t> read;
  for (;;) {
    ASSERT_OK_AND_ASSIGN(const Bytes part, reader->Next(1 << 20));
    if (part.size == 0) break;
    const auto* from = static_cast<const uint16_t*>(part.data);
    read.insert(read.end(), from, from + part.size / 2);
  }
  ASSERT_EQ(read.size(), voxels_.size());
  size_t i = 0;
  for (int64_t y = 0; y < kRows; ++y) {
    for (int64_t x = 0; x < kColumns; ++x) {
      for (int64_t z = 0; z < kPlanes; ++z, ++i)
        ASSERT_EQ(read[i], voxels_[static_cast<size_t>((z * kRows + y) * kColumns + x)]);
    }
  }
  EXPECT_THAT(buffers_.Destroy(job.buffer, "", "", kOwner), IsOk());
  EXPECT_THAT(buffers_.Drain(), IsOk());
  ExpectNothingIsLeft();
}

TEST_P(ImportJobTest, NobodySeesABufferBeforeItIsWhole) {
  WriteNpy("large.npy", std::vector<uint16_t>(size_t{200} * 700 * 1000, 7), {200, 700, 1000});
  ImportSpec spec = Spec("large.npy");
  spec.volume.array.emplace();
  auto job_spec = SpecOf(spec);
  job_spec->caller = kOwner;
  std::atomic<int> told{0};
  const auto watch = buffers_.Watch(kOwner, [&](const auto&...) { ++told; });
  bool cancelled = false;
  for (int attempt = 0; attempt < 20 && !cancelled; ++attempt) {  // it may be done too soon
    ASSERT_OK_AND_ASSIGN(const JobStatus job, SubmitTo(*job_spec, Environment()));
    Await([&] {
      const auto now = queue_->Get(job.name);
      return now->step > 0 || now->state == JobState::kDone;
    });
    if (queue_->Get(job.name)->state != JobState::kDone) {
      EXPECT_EQ(queue_->Get(job.name)->buffer, "");
      EXPECT_GT(ledger_.UseOf(0).reserved, 200 * 700 * 1000 * 2);
    }
    (void)queue_->Cancel(job.name);
    const JobStatus end = Wait(job.name);
    cancelled = end.state == JobState::kCancelled;
    if (cancelled) continue;
    EXPECT_THAT(buffers_.Destroy(end.buffer, "", "", kOwner), IsOk());
    EXPECT_THAT(buffers_.Drain(), IsOk());
    buffers_.FlushWatches();
    told = 0;
  }
  EXPECT_TRUE(cancelled);
  buffers_.FlushWatches();
  EXPECT_EQ(told, 0) << "watchers hear nothing of what was never there";
  ExpectNothingIsLeft();
}

TEST_P(ImportJobTest, AFaultLeavesNoBuffer) {
  WriteNpy("large.npy", std::vector<uint16_t>(size_t{50} * 700 * 1000, 7), {50, 700, 1000});
  ImportSpec spec = Spec("large.npy");
  spec.volume.array.emplace();
  auto job_spec = SpecOf(spec);
  job_spec->caller = kOwner;
  std::vector<std::string> faults = {"draft_published:throw=bad_alloc"};
  for (const char* action : {"errno=5", "throw=bad_alloc"}) {
    for (int piece = 1; piece <= 5; ++piece)
      faults.push_back(absl::StrCat("import_piece:", action, ":", piece));
  }
  for (const std::string& fault : faults) {
    SCOPED_TRACE(fault);
    ArmFailpoint(fault);
    const auto job = SubmitTo(*job_spec, Environment());
    ASSERT_THAT(job, IsOk());
    const JobStatus end = Wait(job->name);
    ArmFailpoint("");
    EXPECT_EQ(end.state, JobState::kFailed);
    EXPECT_EQ(end.buffer, "");
    ExpectNothingIsLeft();
  }
  const JobStatus job = WaitDone(SubmitTo(*job_spec, Environment()));
  EXPECT_THAT(buffers_.Destroy(job.buffer, "", "", kOwner), IsOk());
}

TEST_P(ImportJobTest, BuffersThatAreRefused) {
  using absl::StatusCode;
  const auto refusal = [&](const std::function<void(JobSpec*, ImportSpec*)>& change) {
    ImportSpec spec = Spec();
    spec.volume.array.emplace();
    JobSpec job;
    change(&job, &spec);
    job.work = spec;
    return SubmitTo(job, Environment()).status();
  };
  Expect(refusal([](JobSpec*, ImportSpec* spec) { spec->volume.value_kind = "db"; }),
         StatusCode::kInvalidArgument, Reason::kBadField, "volume_import.value",
         "for a buffer, which has numbers alone");
  Expect(refusal([](JobSpec*, ImportSpec* spec) { spec->is_private = true; }),
         StatusCode::kInvalidArgument, Reason::kBadField, "volume_import.buffer.is_private",
         "no key");
  Expect(refusal([](JobSpec* job, ImportSpec*) { job->title = "a title"; }),
         StatusCode::kInvalidArgument, Reason::kBadField, "title", "for a buffer");
  Expect(refusal([](JobSpec* job, ImportSpec*) { job->orphan = Orphan::kSpillDisk; }),
         StatusCode::kInvalidArgument, Reason::kBadField, "orphan", "allowed for a buffer");
  Expect(refusal([](JobSpec* job, ImportSpec*) { job->ttl_seconds = 0.5; }),
         StatusCode::kInvalidArgument, Reason::kBadField, "ttl", "0.5 s");
  Expect(
      refusal([](JobSpec*, ImportSpec* spec) {
        spec->volume.array->type = storage::ElementType{storage::ElementType::Kind::kComplex, 16};
      }),
      StatusCode::kInvalidArgument, Reason::kBadField, "volume_import.dtype", "c128");
  ExpectNothingIsLeft();
  // A quota is looked at when the memory is taken: what the owner has may go while the job waits.
  ASSERT_OK_AND_ASSIGN(
      const BufferStatus held,
      buffers_.Create({.scalar = Scalar::kF32, .lanes = 1, .shape = {75 << 20}}, kOwner));
  ImportSpec spec = Spec();
  spec.volume.array.emplace();
  auto job = SpecOf(spec);
  job->caller = kOwner;
  ASSERT_OK_AND_ASSIGN(const JobStatus begun, SubmitTo(*job, Environment()));
  const JobStatus end = Wait(begun.name);
  EXPECT_EQ(end.state, JobState::kFailed);
  EXPECT_EQ(end.reason_code, Reason::kQuota) << end.reason;
  EXPECT_THAT(buffers_.Destroy(held.name, "", "", kOwner), IsOk());
  EXPECT_THAT(buffers_.Drain(), IsOk());
  ExpectNothingIsLeft();
}

// -- clipping, doubts

TEST_P(ImportJobTest, ClippedVoxelsAreCountedAndTold) {
  ImportSpec spec = Spec();
  spec.volume.dtype = DType::kU8;
  const JobStatus job = WaitDone(Submit(spec));
  const auto above = std::count_if(voxels_.begin(), voxels_.end(), [](auto v) { return v > 255; });
  EXPECT_THAT(job.warnings, ElementsAre(HasSubstr(absl::StrCat("0 numbers were below and ", above,
                                                               " above the range of u8"))));
  ASSERT_OK_AND_ASSIGN(const VolumeStatus volume, store_.Get(job.volumes.at(0)));
  EXPECT_EQ(volume.clipped_below, 0);
  EXPECT_EQ(volume.clipped_above, above);
}

INSTANTIATE_TEST_SUITE_P(Backends, ImportJobTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine

// Imports that go straight to the device: the same volumes as those that are put together on the
// host, and nothing left of those that fail.

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/failpoint.h"
#include "server/engine/job_kinds.h"
#include "server/job/job_queue.h"
#include "server/source/push_projections.h"
#include "server/storage/direct/storage_reads.h"
#include "tests/server/job/job_fixture.h"
#include "tests/support/rooms.h"
#include "tests/support/seed.h"
#include "tests/support/temp_folder.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsOk;
using ::testing::HasSubstr;
using ::testing::Not;

class DirectImportTest : public engine::testing::JobFixture {
 protected:
  DirectImportTest()
      : large_frames_(std::make_shared<FramePool>(&device_, 256 << 20)),
        devices_({{&device_, large_frames_}}),
        reads_({.roots = {folder_.path()},
                .setting = storage::ReadSetting::kDirect,
                .cufile = {},
                .clock = &clock_}) {}

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
  absl::StatusOr<JobStatus> Submit(const ImportSpec& work, bool direct) {
    JobSpec spec;
    spec.work = work;
    return SubmitTo(spec, {.volumes = &store_,
                           .ledger = &ledger_,
                           .file_roots = {folder_.path()},
                           .projection_memory = &memory_,
                           .clock = &clock_,
                           .reads = direct ? &reads_ : nullptr,
                           .devices = direct ? &devices_ : nullptr});
  }
  /// The volume's digest, shape, display range and what the job's log says; the volume is gone.
  struct Made {
    std::string digest, log;
    std::vector<int64_t> shape;
    double lo = 0, hi = 0;
  };
  Made Import(const ImportSpec& spec, bool direct) {
    const JobStatus job = WaitDone(Submit(spec, direct));
    Made made;
    for (const job::JobLogLine& line : job.log) made.log += line.text + "\n";
    if (job.volumes.size() != 1) {
      ADD_FAILURE() << job.reason;
      return made;
    }
    const VolumeStatus volume = *store_.Get(job.volumes[0]);
    made.digest = volume.digest;
    made.shape.assign(volume.shape, volume.shape + 3);
    made.lo = volume.display_lo;
    made.hi = volume.display_hi;
    EXPECT_THAT(store_.Discard(volume.name, Reason::kDiscarded, "seen"), IsOk());
    return made;
  }
  void ExpectNothingIsLeft() {
    EXPECT_EQ(ledger_.UseOf(0).reserved, 0);
    EXPECT_EQ(ledger_.UseOf(0).held, 0);
    EXPECT_EQ(memory_.used_bytes(), 0);
    for (const VolumeStatus& volume : store_.List())
      EXPECT_TRUE(volume.state == VolumeState::kFailed || volume.state == VolumeState::kDiscarded)
          << volume.name;
  }

  octavo::testing::TempFolder folder_;
  source::ProjectionMemory memory_{64 << 20};
  std::shared_ptr<FramePool> large_frames_;
  DeviceSet devices_;
  storage::StorageReads reads_;
};

// Types, boxes and orders.
TEST_P(DirectImportTest, TheVolumeIsTheSame) {
  std::mt19937 random(octavo::testing::FreshSeed());
  for (int round = 0; round < 12; ++round) {
    const std::vector<int64_t> shape = {1 + static_cast<int64_t>(random() % 60),
                                        1 + static_cast<int64_t>(random() % 80),
                                        1 + static_cast<int64_t>(random() % 90)};
    std::vector<uint16_t> voxels(static_cast<size_t>(shape[0] * shape[1] * shape[2]));
    for (uint16_t& voxel : voxels) voxel = static_cast<uint16_t>(random());
    WriteNpy("a.npy", voxels, shape);
    ImportSpec spec = Spec();
    if (round % 2 == 1) spec.volume.order = round % 4 == 1 ? "xyz" : "yxz";
    if (round % 3 == 1) spec.volume.dtype = round % 2 == 0 ? DType::kF32 : DType::kI8;
    if (round % 3 == 2) spec.volume.start = {0, 0, 0}, spec.volume.count = {1, 1, 1};
    SCOPED_TRACE(absl::StrCat(round, ": ", shape[0], " x ", shape[1], " x ", shape[2]));
    const Made host = Import(spec, false), direct = Import(spec, true);
    EXPECT_EQ(direct.digest, host.digest);
    EXPECT_EQ(direct.shape, host.shape);
    EXPECT_EQ(direct.lo, host.lo);
    EXPECT_EQ(direct.hi, host.hi);
    // Numbers that may be clipped are counted, on the host.
    if (spec.volume.dtype == DType::kI8) {
      EXPECT_THAT(direct.log, Not(HasSubstr("read straight to the device")));
    } else {
      EXPECT_THAT(direct.log, HasSubstr("read straight to the device"));
    }
    EXPECT_THAT(host.log, Not(HasSubstr("read straight to the device")));
  }
  ExpectNothingIsLeft();
}

TEST_P(DirectImportTest, AFaultInTheMiddleLeavesNothing) {
  WriteNpy("large.npy", std::vector<uint16_t>(size_t{20} * 700 * 1000, 7), {20, 700, 1000});
  struct Fault {
    const char* action;
    Reason reason;
  };
  for (const Fault& fault :
       {Fault{"errno=5", Reason::kIoError}, Fault{"errno=24", Reason::kNoDescriptors},
        Fault{"throw=bad_alloc", Reason::kOutOfMemory}}) {
    for (int piece = 1; piece <= 4; ++piece) {
      SCOPED_TRACE(absl::StrCat(fault.action, " at piece ", piece));
      ArmFailpoint(absl::StrCat("direct_read:", fault.action, ":", piece));
      const auto job = Submit(Spec("large.npy"), true);
      ASSERT_THAT(job, IsOk());
      const JobStatus end = Wait(job->name);
      ArmFailpoint("");
      EXPECT_EQ(end.state, JobState::kFailed);
      EXPECT_EQ(Name(end.reason_code), Name(fault.reason)) << end.error;
      EXPECT_TRUE(end.volumes.empty());
      ExpectNothingIsLeft();
    }
  }
  EXPECT_EQ(Import(Spec("large.npy"), true).digest, Import(Spec("large.npy"), false).digest);
}

TEST_P(DirectImportTest, CancelledInTheMiddle) {
  WriteNpy("large.npy", std::vector<uint16_t>(size_t{200} * 700 * 1000, 7), {200, 700, 1000});
  bool cancelled = false;
  for (int attempt = 0; attempt < 20 && !cancelled; ++attempt) {  // it may be done too soon
    ASSERT_OK_AND_ASSIGN(const JobStatus job, Submit(Spec("large.npy"), true));
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
  }
  EXPECT_TRUE(cancelled);
  ExpectNothingIsLeft();
}

// Without page-locked memory it is read in whole planes, and the log says so.
TEST_P(DirectImportTest, WithoutPageLockedMemory) {
  WriteNpy("large.npy", std::vector<uint16_t>(size_t{40} * 700 * 1000, 7), {40, 700, 1000});
  const Made before = Import(Spec("large.npy"), true);
  std::vector<std::shared_ptr<void>> taken;
  for (;;) {
    auto block = large_frames_->Get(1 << 20, FramePool::Use::kClient);
    if (!block.ok()) break;
    taken.push_back(*std::move(block));
  }
  const Made made = Import(Spec("large.npy"), true);
  EXPECT_EQ(made.digest, before.digest);
  EXPECT_THAT(made.log, HasSubstr("read in whole planes: no page-locked memory"));
  ExpectNothingIsLeft();
}

INSTANTIATE_TEST_SUITE_P(Backends, DirectImportTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine

// devices/host beside the devices of an engine: two simulated ones of the host, or the GPUs.
// Tomography and projection jobs that name it run there, with its own memory; nothing else does.

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numbers>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "gmock/gmock.h"

#include "gpu/base/status.h"
#include "gpu/device/exportable_memory.h"
#include "server/mosaic/mosaics.h"
#include "tests/server/engine/memory_fixture.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/rooms.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using ::testing::Each;
using ::testing::HasSubstr;
using Code = absl::StatusCode;

constexpr char kHost[] = "devices/host";
constexpr int64_t kHostBytes = int64_t{96} << 20;

/// Projections of two discs, which differ from row to row, as minus logarithms.
struct Object {
  int64_t angles = 0, rows = 0, columns = 0;
  double axis = 0, begin_rad = 0;
  std::vector<double> angles_rad() const {
    std::vector<double> out;
    for (int64_t a = 0; a < angles; ++a)
      out.push_back(begin_rad +
                    std::numbers::pi * static_cast<double>(a) / static_cast<double>(angles));
    return out;
  }
  /// Radius of the large disc, around the axis; its attenuation a pixel is 0.01.
  double radius() const { return 0.38 * static_cast<double>(columns); }
  std::vector<float> Projections() const {  // [angle, row, column]
    std::vector<float> out;
    for (const double angle : angles_rad()) {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          const double s = static_cast<double>(c) - axis;
          const auto disc = [&](double radius, double x, double y, double value) {
            const double d = s - x * std::cos(angle) - y * std::sin(angle);
            return 2 * value * std::sqrt(std::max(0.0, radius * radius - d * d));
          };
          out.push_back(static_cast<float>(
              disc(radius(), 0, 0, 0.01) +
              disc(3, 0.25 * radius() - static_cast<double>(r), 0.5 * radius(), 0.02)));
        }
      }
    }
    return out;
  }
};
constexpr Object kObject{.angles = 60, .rows = 5, .columns = 48, .axis = 23.25};

class HostForJobsTest : public testing::MemoryTest,
                        public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    backend_ = GetParam();
    host_devices_ = 2;
    config_.host_for_jobs = true;
    config_.host_for_jobs_bytes = kHostBytes;
    config_.replay_roots = {temp_ / "in"};
    std::filesystem::create_directories(temp_ / "in");
    Write("scan.npy", kObject);
    MemoryTest::SetUp();
  }

  void Write(const std::string& name, const Object& object) {
    const std::vector<float> values = object.Projections();
    std::string dict = absl::StrCat("{'descr': '<f4', 'fortran_order': False, 'shape': (",
                                    object.angles, ", ", object.rows, ", ", object.columns, "), }");
    dict.resize((dict.size() + 10 + 63) / 64 * 64 - 11, ' ');
    dict += '\n';
    std::ofstream file(temp_ / ("in/" + name), std::ios::binary);
    file.write("\x93NUMPY\x01\x00", 8);
    file.put(static_cast<char>(dict.size() & 255)).put(static_cast<char>(dict.size() >> 8));
    file << dict;
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(float)));
  }

  static TomographySpec Tomography(const Object& object = kObject,
                                   const std::string& file = "scan.npy") {
    TomographySpec spec;
    spec.input = ProjectionFileSpec{.path = file, .options = {}};
    spec.angles_rad = object.angles_rad();
    spec.preparation.config.minus_log = false;
    spec.preparation.ignore_fields = true;
    spec.reconstruction.algorithm = TomographyAlgorithm::kFbp;
    spec.center.pixels = {object.axis};
    spec.json = "{}";
    return spec;
  }
  ProjectionSpec Projection(const std::string& input, bool adjoint = false) const {
    ProjectionSpec spec;
    spec.input = input;
    spec.adjoint = adjoint;
    spec.angles_rad = kObject.angles_rad();
    spec.columns = adjoint ? 0 : kObject.columns;
    spec.json = "{}";
    return spec;
  }
  template <class Work>
  static JobSpec On(const std::string& device, Work work) {
    JobSpec spec;
    spec.device = device;
    spec.work = std::move(work);
    return spec;
  }
  template <class Work>
  absl::StatusOr<JobStatus> Submit(const std::string& device, const Work& work) {
    return engine_->jobs().Submit(On(device, work), nullptr);
  }
  JobStatus Ended(const absl::StatusOr<JobStatus>& job) {
    EXPECT_THAT(job, IsOk());
    if (!job.ok()) return {};
    Until([&] { return IsFinal(engine_->jobs().Get(job->name)->state); });
    return *engine_->jobs().Get(job->name);
  }
  template <class Work>
  JobStatus Run(const std::string& device, const Work& work) {
    JobStatus job = Ended(Submit(device, work));
    EXPECT_EQ(job.state, JobState::kDone) << device << ": " << job.reason;
    return job;
  }
  /// The name of the volume that the job makes on the device.
  template <class Work>
  std::string Made(const std::string& device, const Work& work) {
    const JobStatus job = Run(device, work);
    return job.volumes.empty() ? "" : job.volumes[0];
  }
  std::vector<float> Values(const std::string& volume) {
    const auto bytes = Bytes_(volume);
    EXPECT_THAT(bytes, IsOk());
    if (!bytes.ok()) return {};
    std::vector<float> values(bytes->size() / sizeof(float));
    std::memcpy(values.data(), bytes->data(), values.size() * sizeof(float));
    return values;
  }
  static void ExpectAgree(const std::vector<float>& a, const std::vector<float>& b,
                          const std::string& what, double tolerance = 1e-4) {
    ASSERT_EQ(a.size(), b.size()) << what;
    ASSERT_FALSE(a.empty()) << what;
    double largest = 0, difference = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(a[i])));
      difference = std::max(difference, std::abs(static_cast<double>(a[i]) - b[i]));
    }
    EXPECT_GT(largest, 0) << what;
    EXPECT_LT(difference, tolerance * largest) << what;
  }
  std::string DeviceOf(const std::string& volume) {
    const auto status = engine_->volumes().Get(volume);
    EXPECT_THAT(status, IsOk());
    return status.ok() ? status->device : "";
  }
  std::vector<DeviceStatus> Devices() { return engine_->devices().List(); }
  /// devices/host, and the bytes in use on all others.
  DeviceStatus Host() { return Devices().back(); }
  int64_t UsedByOthers() {
    int64_t used = 0;
    for (const DeviceStatus& device : Devices())
      used += device.name == kHost ? 0 : device.used_bytes;
    return used;
  }
  std::string Numbered() const {
    return DeviceNames(static_cast<int>(devices_.size()), true).Numbered();
  }
};

TEST_P(HostForJobsTest, IsTheLastDeviceWithABudgetOfItsOwn) {
  const auto devices = Devices();
  ASSERT_GE(devices.size(), 2u);
  for (size_t d = 0; d + 1 < devices.size(); ++d) {
    EXPECT_EQ(devices[d].name, absl::StrCat("devices/", d));
    EXPECT_EQ(devices[d].backend, GetParam());
    EXPECT_EQ(devices[d].budget_bytes, budget_);
    EXPECT_NE(devices[d].uuid, devices.back().uuid);
  }
  EXPECT_EQ(devices.back().name, kHost);
  EXPECT_EQ(devices.back().backend, "host");
  EXPECT_EQ(devices.back().budget_bytes, kHostBytes);
  EXPECT_TRUE(devices.back().healthy);
}

TEST_P(HostForJobsTest, ItsBudgetComesFromTheHostsFreeMemory) {
  Stop();
  config_.host_for_jobs_bytes = 0;
  config_.memory_fraction = 0.05;
  Start();
  const DeviceStatus host = Host();
  EXPECT_GT(host.budget_bytes, 0);
  EXPECT_LE(host.budget_bytes, host.total_bytes / 20);
  EXPECT_EQ(Devices()[0].budget_bytes, budget_);

  Stop();
  std::vector<std::string> report;
  ASSERT_OK_AND_ASSIGN(store_,
                       storage::CommitStore::Open(temp_ / "state", {temp_ / "data"}, &report));
  ASSERT_OK_AND_ASSIGN(OpenedDevices opened, OpenDevices(GetParam(), 2, true));
  config_.host_for_jobs_bytes = int64_t{1} << 50;
  config_.spill_folder = nullptr;
  EXPECT_THAT(
      Engine::Create(config_, std::move(opened.devices), store_.get()),
      IsError(Code::kFailedPrecondition,
              "device.host_for_jobs_bytes: asks for 1125899906842624 bytes of devices/host; "
              "allowed 1 to "));
}

TEST_P(HostForJobsTest, TheSameJobAgreesWithTheOtherDevices) {
  int number = 0;
  for (const Object& object :
       {kObject, Object{.angles = 91, .rows = 3, .columns = 65, .axis = 30.6, .begin_rad = 0.3},
        Object{.angles = 37, .rows = 8, .columns = 40, .axis = 19.5, .begin_rad = -1}}) {
    const std::string file = absl::StrCat("object", ++number, ".npy");
    Write(file, object);
    for (const auto algorithm : {TomographyAlgorithm::kFbp, TomographyAlgorithm::kFourier,
                                 TomographyAlgorithm::kSirt, TomographyAlgorithm::kCgls}) {
      TomographySpec spec = Tomography(object, file);
      spec.reconstruction.algorithm = algorithm;
      spec.reconstruction.iterations = 6;
      spec.slices_per_batch = number;  // also batches that do not divide the slices
      const std::string what =
          absl::StrCat(object.columns, " columns, algorithm ", static_cast<int>(algorithm));
      const auto here = Values(Made("devices/0", spec)), there = Values(Made(kHost, spec));
      // The grids of FOURIER differ between the backends, each within its accuracy.
      const bool gridded = algorithm == TomographyAlgorithm::kFourier;
      ExpectAgree(here, there, what, gridded ? 4e-4 : 1e-4);
      if (algorithm != TomographyAlgorithm::kFbp || HasFailure()) continue;
      // The large disc, away from the small one, has the attenuation that it was given.
      const int64_t side = object.columns, middle = side / 2;
      double sum = 0;
      int count = 0;
      for (int64_t x = 0; x < 5; ++x, ++count)
        sum += there[static_cast<size_t>((middle - side / 5) * side + middle - x)];
      EXPECT_NEAR(sum / count, 0.01, 0.001) << what;
    }
  }
}

TEST_P(HostForJobsTest, PreparesAndFindsTheAxis) {
  TomographySpec prepare = Tomography();
  prepare.output = TomographyOutput::kSinograms;
  ExpectAgree(Values(Made("devices/0", prepare)), Values(Made(kHost, prepare)), "prepared");
  TomographySpec find = Tomography();
  find.center.pixels.clear();
  find.center.find = true;
  find.center.search.method = CenterMethod::kPairs;
  for (const char* device : {"devices/0", kHost}) {
    const JobStatus job = Run(device, find);
    EXPECT_EQ(job.device, device);
    const auto* const report = std::get_if<TomographyReport>(&job.finding);
    ASSERT_NE(report, nullptr);
    ASSERT_FALSE(report->centers.empty());
    EXPECT_NEAR(report->centers[0], kObject.axis, 0.3) << device;
  }
}

// AUTO takes what the budgets of the other devices have room for, however small its own is.
TEST_P(HostForJobsTest, ItsBudgetDoesNotChooseTheAlgorithmOfOthers) {
  const Object object{.angles = 1500, .rows = 1, .columns = 1024, .axis = 511};
  Write("large.npy", object);
  TomographySpec spec = Tomography(object, "large.npy");
  spec.reconstruction.algorithm = TomographyAlgorithm::kAuto;
  const auto chosen = [&](int64_t budget) {
    Stop();
    budget_ = budget;
    config_.host_for_jobs_bytes = int64_t{64} << 20;
    Start();
    const JobStatus job = Run("devices/0", spec);
    const auto* const report = std::get_if<TomographyReport>(&job.finding);
    return report == nullptr ? std::nullopt : report->algorithm;
  };
  EXPECT_EQ(chosen(int64_t{1} << 30), TomographyAlgorithm::kFourier);
  EXPECT_EQ(chosen(int64_t{96} << 20), TomographyAlgorithm::kFbp);  // not in a quarter of it
}

TEST_P(HostForJobsTest, ItsResultsLiveInItsMemory) {
  const int64_t others = UsedByOthers();
  const JobStatus job = Run(kHost, Tomography());
  EXPECT_EQ(job.device, kHost);
  ASSERT_EQ(job.volumes.size(), 1u);
  EXPECT_EQ(DeviceOf(job.volumes[0]), kHost);
  const int64_t bytes = engine_->volumes().Get(job.volumes[0])->bytes;
  EXPECT_EQ(bytes, kObject.rows * kObject.columns * kObject.columns * 4);
  EXPECT_GE(Host().held_bytes, bytes);
  EXPECT_EQ(UsedByOthers(), others);
  bool held = false;
  for (const auto& holder : engine_->devices().GetMemory().holders)
    held = held || (holder.holder.name == job.volumes[0] && holder.device == kHost);
  EXPECT_TRUE(held);
  ASSERT_THAT(engine_->volumes().Discard(job.volumes[0]), IsOk());
  EXPECT_EQ(Host().used_bytes, 0);
}

TEST_P(HostForJobsTest, NoJobGoesThereThatDoesNotNameIt) {
  std::vector<JobStatus> jobs;
  for (const char* device : {"", "auto", "", "auto", "", "auto"}) {
    const auto job = Submit(device, Tomography());
    ASSERT_THAT(job, IsOk());
    jobs.push_back(*job);
  }
  for (const JobStatus& job : jobs) {
    const JobStatus end = Ended(job);
    EXPECT_EQ(end.state, JobState::kDone) << end.reason;
    EXPECT_NE(end.device, kHost);
    for (const std::string& volume : end.volumes) EXPECT_NE(DeviceOf(volume), kHost);
  }
  EXPECT_EQ(Host().peak_bytes, 0);
  // Not even one that fits nowhere else.
  Stop();
  budget_ = 64 << 10;
  Start();
  TomographySpec spec = Tomography();
  spec.place = ResultPlace::kDevice;
  EXPECT_EQ(InfoOf(Submit("auto", spec).status()).reason, Reason::kExceedsBudget);
  EXPECT_EQ(Run(kHost, spec).device, kHost);
}

TEST_P(HostForJobsTest, TheDevicesThatAreDownDoNotSendJobsThere) {
  for (size_t d = 0; d + 1 < devices_.size(); ++d) devices_[d]->InjectFault("the test");
  const auto refused = Submit("auto", Tomography());
  EXPECT_THAT(refused, IsError(Code::kUnavailable, "healthy"));
  EXPECT_EQ(InfoOf(refused.status()).reason, Reason::kDeviceDown);
  EXPECT_EQ(Run(kHost, Tomography()).device, kHost);
}

TEST_P(HostForJobsTest, ItsLossLeavesTheOthers) {
  const std::string volume = Made(kHost, Tomography());
  devices_.back()->InjectFault("the test");
  engine_->Housekeep();
  EXPECT_FALSE(Host().healthy);
  EXPECT_TRUE(Devices()[0].healthy);
  EXPECT_EQ(InfoOf(Submit(kHost, Tomography()).status()).reason, Reason::kDeviceDown);
  EXPECT_THAT(Bytes_(volume), IsError(Code::kDataLoss, "was in the memory of devices/host"));
  EXPECT_EQ(Run("devices/0", Tomography()).device, "devices/0");
  EXPECT_EQ(Finished(MemoryTest::Submit(Spec(1)).name).state, ScanState::kDone);
}

TEST_P(HostForJobsTest, ScansAreRefused) {
  ScanSpec spec = Spec(1);
  spec.device = kHost;
  const std::string refusal = absl::StrCat(
      "device: is 'devices/host', which is for tomography and projection jobs, not for scans; "
      "allowed are auto, ",
      Numbered());
  EXPECT_THAT(engine_->scans().Submit(spec, nullptr), IsError(Code::kInvalidArgument, refusal));
  EXPECT_THAT(engine_->scans().Plan(spec, nullptr), IsError(Code::kInvalidArgument, refusal));
  spec.device = "";
  spec.spread = {.given = true, .devices = {"devices/0", kHost}};
  EXPECT_THAT(engine_->scans().Submit(spec, nullptr),
              IsError(Code::kInvalidArgument, "spread.devices: is 'devices/host', which is for"));
  const auto numbered = std::ssize(devices_) - 1;
  spec.spread = {.given = true, .count = numbered + 1};
  EXPECT_THAT(engine_->scans().Submit(spec, nullptr),
              IsError(Code::kInvalidArgument, absl::StrCat("spread.count: is ", numbered + 1,
                                                           "; allowed 0 (all) to ", numbered)));
  EXPECT_TRUE(engine_->scans().List().empty());
  EXPECT_EQ(Host().peak_bytes, 0);
}

TEST_P(HostForJobsTest, NoScanIsPlacedThere) {
  ScanSpec spread = Spec(2);
  spread.spread = {.given = true};  // over all devices
  std::vector<std::string> names;
  for (int i = 0; i < 4; ++i) names.push_back(MemoryTest::Submit(Spec(2)).name);
  names.push_back(MemoryTest::Submit(spread).name);
  for (const std::string& name : names) {
    const ScanStatus scan = Finished(name);
    EXPECT_EQ(scan.state, ScanState::kDone);
    EXPECT_NE(scan.device, kHost);
    EXPECT_THAT(scan.spread_devices, Each(::testing::Ne(kHost)));
  }
  EXPECT_EQ(Host().peak_bytes, 0);
}

TEST_P(HostForJobsTest, OtherJobsAndTheStorageProbeAreRefused) {
  ImportSpec import;
  import.path = "scan.npy";
  import.volume.axes = {"z", "y", "x"};
  import.volume.allow_unknown_spacing = true;
  EXPECT_THAT(Submit(kHost, import),
              IsError(Code::kInvalidArgument,
                      absl::StrCat("device: is devices/host, which runs tomography and projection "
                                   "jobs, and this is a job of kind import; allowed are auto, ",
                                   Numbered())));
  EXPECT_EQ(engine_->devices()
                .ProbeStorage(temp_ / "data", "devices/77", 0, [] { return absl::OkStatus(); })
                .status()
                .message(),
            absl::StrCat("device: is 'devices/77'; allowed are ", Numbered()))
      << "devices/host would be refused next";
  EXPECT_THAT(
      engine_->devices().ProbeStorage(temp_ / "data", kHost, 0, [] { return absl::OkStatus(); }),
      IsError(Code::kInvalidArgument,
              absl::StrCat("device: is devices/host, into which no files are imported; "
                           "allowed are ",
                           Numbered())));
}

TEST_P(HostForJobsTest, WithoutItsKeyItIsNotThere) {
  Stop();
  config_.host_for_jobs = false;
  Start();
  for (const DeviceStatus& device : Devices()) EXPECT_NE(device.name, kHost);
  EXPECT_THAT(Submit(kHost, Tomography()),
              IsError(Code::kInvalidArgument,
                      "device: is 'devices/host', which this server does not have "
                      "(device.host_for_jobs of its configuration is false); allowed are auto, "
                      "devices/0"));
  ScanSpec scan = Spec(1);
  scan.device = kHost;
  EXPECT_THAT(engine_->scans().Plan(scan, nullptr),
              IsError(Code::kInvalidArgument,
                      "device: is 'devices/host', which this server does not have "
                      "(device.host_for_jobs of its configuration is false); allowed are auto, "));
  EXPECT_THAT(
      engine_->devices().ProbeStorage(temp_ / "data", kHost, 0, [] { return absl::OkStatus(); }),
      IsError(Code::kInvalidArgument, "device: is 'devices/host', which this server does not"));
}

TEST_P(HostForJobsTest, ItsVolumesAreCommitted) {
  const std::string volume = Made(kHost, Tomography());
  ASSERT_OK_AND_ASSIGN(const std::string bytes, Bytes_(volume));
  ASSERT_OK_AND_ASSIGN(const auto outcome, Commit(volume, "made.npy"));
  std::ifstream file(outcome.path, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  ASSERT_GT(content.size(), bytes.size());
  EXPECT_TRUE(absl::EndsWith(content, bytes));
  EXPECT_EQ(engine_->volumes().Get(volume)->state, VolumeState::kCommitted);
  Until([&] { return Host().used_bytes == 0; });
}

TEST_P(HostForJobsTest, ItsVolumesAreSpilledAndRestored) {
  const std::string volume = Made(kHost, Tomography());
  ASSERT_OK_AND_ASSIGN(const std::string bytes, Bytes_(volume));
  for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
    ASSERT_THAT(Spill(volume, tier), IsOk());
    EXPECT_EQ(Host().held_bytes, 0);
    EXPECT_EQ(*Bytes_(volume), bytes);
    ASSERT_THAT(Restore(volume), IsOk());
    EXPECT_EQ(DeviceOf(volume), kHost);
    EXPECT_GT(Host().held_bytes, 0);
    EXPECT_EQ(*Bytes_(volume), bytes);
  }
}

// A result that was never in the device's memory, and one of a daemon that has ended.
TEST_P(HostForJobsTest, ResultsOnDiskComeBackWhereTheyWereMade) {
  TomographySpec spec = Tomography();
  spec.place = ResultPlace::kDisk;
  const std::string volume = Made(kHost, spec);
  EXPECT_EQ(engine_->volumes().Get(volume)->tier, Tier::kDisk);
  ASSERT_OK_AND_ASSIGN(const std::string bytes, Bytes_(volume));
  ASSERT_THAT(Restore(volume), IsOk());
  EXPECT_EQ(DeviceOf(volume), kHost);
  EXPECT_EQ(*Bytes_(volume), bytes);
  ASSERT_THAT(Spill(volume, Tier::kDisk), IsOk());
  for (const bool there : {true, false}) {
    Stop();
    config_.host_for_jobs = there;
    Start();
    EXPECT_EQ(*Bytes_(volume), bytes);
    if (there) continue;
    ASSERT_THAT(Restore(volume), IsOk());
    EXPECT_EQ(DeviceOf(volume), "devices/0") << "the first device, as what other daemons left";
    EXPECT_EQ(*Bytes_(volume), bytes);
  }
}

TEST_P(HostForJobsTest, DerivedVolumesAndPicturesAreMadeThere) {
  const std::string there = Made(kHost, Tomography()), here = Made("devices/0", Tomography());
  const std::vector<OpSpec> crop = {{.op = CropOp{.start = {1, 2, 3}, .count = {2, 20, 17}}}};
  ASSERT_OK_AND_ASSIGN(const VolumeStatus derived,
                       Derive({.name = there, .operations = {crop[0]}}));
  EXPECT_EQ(derived.device, kHost);
  ASSERT_OK_AND_ASSIGN(const VolumeStatus other, Derive({.name = here, .operations = {crop[0]}}));
  EXPECT_EQ(other.device, "devices/0");
  ExpectAgree(Values(derived.name), Values(other.name), "derived");
  ASSERT_OK_AND_ASSIGN(
      const Rendered picture,
      engine_->volumes().Render({.volume = there, .axis = FrameAxis::kZ, .plane_index = 2}, nullptr,
                                [](const Rendered&) { return absl::OkStatus(); }));
  EXPECT_GT(picture.frame.payload.size, 0);
}

TEST_P(HostForJobsTest, ProjectionsCrossDevices) {
  const std::string there = Made(kHost, Tomography()), here = Made("devices/0", Tomography());
  const auto expected = Values(Made("devices/0", Projection(here)));
  for (const std::string& input : {there, here}) {
    for (const char* device : {"auto", "devices/0", kHost}) {
      const JobStatus job = Run(device, Projection(input));
      EXPECT_EQ(job.device == kHost, device == std::string(kHost))
          << "the input is on " << DeviceOf(input);
      ASSERT_EQ(job.volumes.size(), 1u);
      ExpectAgree(Values(job.volumes[0]), expected,
                  absl::StrCat(device, " from ", DeviceOf(input)));
    }
  }
  // The adjoint of projections that are on the other device; in batches.
  const std::string sinograms = Made(kHost, Projection(here));
  ProjectionSpec adjoint = Projection(sinograms, /*adjoint=*/true);
  adjoint.slices_per_batch = 2;
  ExpectAgree(Values(Made("devices/0", adjoint)), Values(Made(kHost, adjoint)), "adjoint");
  if (devices_.size() > 2)
    ExpectAgree(Values(Made("devices/1", Projection(here))), expected, "devices/1 from devices/0");
}

TEST_P(HostForJobsTest, AVolumeStaysForAProjectionOnAnotherDevice) {
  const std::string there = Made(kHost, Tomography());
  const auto expected = Values(Made("devices/0", Projection(there)));
  const auto job = Submit("devices/0", Projection(there));
  (void)engine_->volumes().Discard(there);
  const JobStatus end = Ended(job);
  ASSERT_EQ(end.state, JobState::kDone) << end.reason;
  ExpectAgree(Values(end.volumes.at(0)), expected, "discarded meanwhile");
}

TEST_P(HostForJobsTest, ItsVolumesAreTheInputOfJobsOnOtherDevices) {
  // Sinograms [slice, angle, column] and first slices on devices/host, for devices/0, and back.
  const std::string there = Made(kHost, Tomography());
  const std::string sinograms = Made(kHost, Projection(there));
  TomographySpec spec = Tomography();
  spec.input = ProjectionArraysSpec{.projections = sinograms, .sinogram_order = true};
  spec.center.pixels = {(kObject.columns - 1) / 2.0};
  spec.reconstruction.algorithm = TomographyAlgorithm::kSirt;
  spec.reconstruction.iterations = 3;
  spec.initial_volume = there;
  ExpectAgree(Values(Made("devices/0", spec)), Values(Made(kHost, spec)), "arrays");
}

TEST_P(HostForJobsTest, BuffersStayOnTheOtherDevices) {
  const Caller me{.client = "me", .key = ""};
  BufferStore& buffers = engine_->buffers();
  ASSERT_OK_AND_ASSIGN(const BufferStatus made,
                       buffers.Create({.scalar = Scalar::kF32, .shape = {4, 5, 6}}, me));
  EXPECT_EQ(made.replicas.size(), devices_.size() - 1) << "on all devices that have buffers";
  const auto last = static_cast<uint32_t>(devices_.size() - 1);
  EXPECT_THAT(buffers.Create({.scalar = Scalar::kF32, .shape = {4}, .devices = {last}}, me),
              IsError(Code::kInvalidArgument, absl::StrCat("placement.devices: names devices/",
                                                           last, "; there are ", Numbered())));
  const std::string there = Made(kHost, Tomography()), here = Made("devices/0", Tomography());
  const std::string no_place = absl::StrCat(
      "is on devices/host, which has no buffers, so the result has no place; allowed are arrays "
      "on ",
      Numbered());
  const int64_t used = Host().used_bytes;
  EXPECT_THAT(buffers.Apply({.input = there, .operations = {CopyOp{}}}, me),
              IsError(Code::kInvalidArgument, "input: " + no_place));
  EXPECT_THAT(buffers.Apply({.input = here, .operations = {CopyOp{}}}, me), IsOk());
  // What only measures works on the host; what is on two devices is refused as ever.
  const mosaic::Source fixed{.name = there, .lease_token = "", .field = "fixed", .any_axes = true};
  mosaic::FindZOverlapCall overlap{
      .fixed = fixed,
      .moving = fixed,
      .spec = {.slicing_interval_um = 3, .search_range_um = 1, .spacing_z_um = 1}};
  EXPECT_THAT(engine_->mosaics().FindZOverlap(overlap, me), IsOk());
  overlap.moving.name = here;
  EXPECT_THAT(engine_->mosaics().FindZOverlap(overlap, me),
              IsError(Code::kInvalidArgument, "fixed: no device has all arrays that are read"));
  mosaic::StitchTilesCall stitch{.tiles = fixed, .spec = {}, .made = {}};
  stitch.tiles.field = "tiles";
  stitch.spec.layout = {.kind = TileLayoutSpec::Kind::kStack, .depth = kObject.rows};
  stitch.spec.position_um = {{}};
  EXPECT_THAT(engine_->mosaics().Stitch(stitch, me),
              IsError(Code::kInvalidArgument, "tiles: " + no_place));
  stitch.tiles.name = here;
  EXPECT_THAT(engine_->mosaics().Stitch(stitch, me), IsOk());
  ASSERT_THAT(buffers.Drain(), IsOk());
  EXPECT_EQ(Host().used_bytes, used);
}

TEST_P(HostForJobsTest, ItsMemoryIsExportedAsTheHosts) {
  ClientMemory::MakeExportable(true);
  const absl::Cleanup ordinary = [] { ClientMemory::MakeExportable(false); };
  const std::string there = Made(kHost, Tomography());
  ASSERT_OK_AND_ASSIGN(const ExportedMemory memory, engine_->exports().store().OfVolume(there, 0));
  EXPECT_EQ(memory.backend, "host");
  EXPECT_EQ(memory.device_uuid, Host().uuid);
  EXPECT_THAT(engine_->exports().store().Issue(memory, {.local = true, .accept = {"cuda"}}),
              IsError(Code::kUnimplemented, "is of the host backend; the client accepts cuda"));
}

TEST_P(HostForJobsTest, ScansGoOnBesideItsJobs) {
  TomographySpec spec = Tomography();
  spec.reconstruction.algorithm = TomographyAlgorithm::kSirt;
  spec.reconstruction.iterations = 200;
  const auto job = Submit(kHost, spec);
  ASSERT_THAT(job, IsOk());
  const ScanStatus scan = Finished(MemoryTest::Submit(Spec(20)).name);
  EXPECT_EQ(scan.state, ScanState::kDone);
  EXPECT_EQ(scan.volumes_done, 20);
  EXPECT_EQ(Ended(job).state, JobState::kDone);
}

INSTANTIATE_TEST_SUITE_P(Backends, HostForJobsTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

// Says that the tests with GPUs did not run.
TEST(HostForJobsOnGpus, Cuda) {
  const auto opened = OpenDevices("cuda");
  if (!opened.ok()) GTEST_SKIP() << "no GPU: " << opened.status().message();
}

}  // namespace
}  // namespace octavo::engine

// Jobs on held raw spectra of the simulated instrument, with known ground truth: reprocessing,
// dispersion autofocus, k-linearisation.

#include <algorithm>
#include <cmath>

#include "server/engine/job_kinds.h"
#include "server/job/job_queue.h"
#include "server/processing/raw_records.h"
#include "server/scan/resolve_scan.h"
#include "server/source/simulated_model.h"
#include "tests/server/job/job_fixture.h"
#include "tests/support/rooms.h"
#include "tests/support/scan/session_runner.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using ::testing::HasSubstr;

constexpr int64_t kSamples = 512;
constexpr double kHalf = kSamples / 2;

class RawJobsTest : public engine::testing::JobFixture {
 protected:
  static SimulatedSource Instrument() {
    SimulatedSource source;
    source.seed = 7;
    source.nonlinearity = 0.06;
    source.as_fast_as_possible = true;
    source.layers = {{.depth_um = 180, .reflectivity = 0.05, .tilt_um_per_mm = 20},
                     {.depth_um = 330, .reflectivity = 0.03, .tilt_um_per_mm = -15},
                     {.depth_um = 520, .reflectivity = 0.02, .tilt_um_per_mm = 5}};
    return source;
  }
  /// One volume of raw spectra, held.
  VolumeStatus Acquire(const SimulatedSource& source, const Processing& processing,
                       const std::string& name = "scans/a") {
    const auto owned =
        std::make_unique<ScanSpec>();  // on the stack GCC 12 takes its variant for uninitialised
    ScanSpec& spec = *owned;
    spec.source = source;
    spec.acquisition.samples_per_record = kSamples;
    spec.pattern.ascans_per_bscan = 32;
    spec.pattern.bscans_per_volume = 6;
    spec.pattern.volumes = 1;
    spec.processing = processing;
    spec.retention.hold_raw = true;
    const auto scan = ResolveScan(spec, {});
    EXPECT_THAT(scan, IsOk());
    auto opened = OpenSource(scan->spec, {}, &clock_);
    EXPECT_THAT(opened, IsOk());
    testing::RunToTheEnd(name, *scan, *std::move(opened),
                         {.device = &device_,
                          .ledger = &ledger_,
                          .store = &store_,
                          .publisher = &publisher_,
                          .frames = frames_,
                          .clock = &clock_});
    for (const VolumeStatus& volume : store_.List()) {
      if (volume.is_raw && volume.scan == name) return volume;
    }
    ADD_FAILURE() << "no raw volume";
    return {};
  }
  static JobSpec SpecOf(decltype(JobSpec::work) work) {
    JobSpec spec;
    spec.work = std::move(work);
    return spec;
  }
  absl::StatusOr<JobStatus> Submit(const JobSpec& spec) {
    return SubmitTo(spec, {.volumes = &store_});
  }
  JobStatus Run(decltype(JobSpec::work) work) { return WaitDone(Submit(SpecOf(std::move(work)))); }
  int64_t Reserved() { return ledger_.UseOf(0).reserved; }
};

TEST_P(RawJobsTest, AutofocusFindsTheDispersion) {
  SimulatedSource source = Instrument();
  source.dispersion_a2 = 26 / (kHalf * kHalf);
  source.dispersion_a3 = -12 / (kHalf * kHalf * kHalf);
  const VolumeStatus raw = Acquire(source, {});
  DispersionAutofocusSpec spec;
  spec.volume = raw.name;
  spec.reprocess = true;
  const JobStatus job = Run(spec);
  const auto& found = std::get<DispersionEstimate>(job.finding);
  EXPECT_NEAR(found.a2 / source.dispersion_a2, 1, 0.02);
  EXPECT_NEAR(found.a3 / source.dispersion_a3, 1, 0.02);
  EXPECT_GT(found.sharpness, 2 * found.sharpness_before);
  EXPECT_GT(found.evaluations, 600);
  EXPECT_EQ(job.history.back().stage, job::JobStage::kReprocess);
  // The volume equals that of the chain with the coefficients found.
  ASSERT_EQ(job.volumes.size(), 1u);
  ASSERT_OK_AND_ASSIGN(const VolumeStatus volume, store_.Get(job.volumes[0]));
  EXPECT_EQ(volume.derived_from, raw.name);
  EXPECT_EQ(volume.origin->spec.processing.dispersion_a2, found.a2);
  EXPECT_THAT(volume.job_parameters, HasSubstr(raw.name));
  ReprocessSpec again{.volume = raw.name, .processing = {}};
  again.processing.dispersion_a2 = found.a2;
  again.processing.dispersion_a3 = found.a3;
  const JobStatus reprocessed = Run(again);
  EXPECT_EQ(store_.Get(reprocessed.volumes.at(0))->digest, volume.digest);
  EXPECT_EQ(Reserved(), 0);
}

TEST_P(RawJobsTest, AutofocusWithinGivenRanges) {
  SimulatedSource source = Instrument();
  source.dispersion_a2 = -9 / (kHalf * kHalf);
  const VolumeStatus raw = Acquire(source, {});
  DispersionAutofocusSpec spec;
  spec.volume = raw.name;
  spec.a2_begin = -20 / (kHalf * kHalf);
  spec.a2_end = 0;
  spec.only_a2 = true;
  spec.ascans = 40;
  const JobStatus job = Run(spec);
  const auto& found = std::get<DispersionEstimate>(job.finding);
  EXPECT_NEAR(found.a2 / source.dispersion_a2, 1, 0.02);
  EXPECT_EQ(found.a3, 0);
  EXPECT_TRUE(job.volumes.empty());
}

TEST_P(RawJobsTest, CalibrationFindsThePositions) {
  SimulatedSource source = Instrument();
  source.nonlinearity = 0.08;
  source.layers = {{.depth_um = 310, .reflectivity = 0.1}};
  const VolumeStatus raw = Acquire(source, {});
  SimulatedSource resolved = std::get<SimulatedSource>(raw.origin->spec.source);
  const auto truth = KIndexFromWavelength(SimulatedModel::WavelengthNm(resolved, kSamples));
  ASSERT_THAT(truth, IsOk());
  double bend = 0;
  for (int64_t j = 0; j < kSamples; ++j) {
    bend = std::max(bend, std::abs(static_cast<double>((*truth)[static_cast<size_t>(j)]) -
                                   static_cast<double>(j)));
  }
  for (const int64_t records : {1, 5}) {
    KCalibrationSpec spec;
    spec.volume = raw.name;
    spec.first_record = 3;
    spec.records = records;
    const JobStatus job = Run(spec);
    const auto& found = std::get<KLinearisationEstimate>(job.finding);
    ASSERT_EQ(std::ssize(found.index), kSamples);
    double error = 0, polynomial_error = 0;
    for (int64_t j = 0; j < kSamples; ++j) {
      const auto i = static_cast<size_t>(j);
      error = std::max(error, std::abs(found.index[i] - static_cast<double>((*truth)[i])));
      double r = 0;
      for (size_t c = found.polynomial.size(); c-- > 0;)
        r = r * static_cast<double>(j) + found.polynomial[c];
      polynomial_error = std::max(polynomial_error, std::abs(r - found.index[i]));
    }
    EXPECT_LT(error, 0.02 * bend) << "of " << bend;
    EXPECT_NEAR(found.nonlinearity_samples / bend, 1, 0.02);
    EXPECT_LT(polynomial_error, 0.005 * bend);
    EXPECT_THAT(KIndexFromPolynomial(found.polynomial, kSamples), IsOk());
    EXPECT_EQ(job.step_count, static_cast<uint64_t>(records));
  }
  EXPECT_EQ(Reserved(), 0);
}

TEST_P(RawJobsTest, CancelledAtAnyTimeTheyLeaveNothing) {
  const VolumeStatus raw = Acquire(Instrument(), {});
  const int64_t held = ledger_.UseOf(0).held;
  DispersionAutofocusSpec spec;
  spec.volume = raw.name;
  spec.reprocess = true;
  for (const int64_t steps : {0, 1, 17}) {
    ASSERT_OK_AND_ASSIGN(const JobStatus job, Submit(SpecOf(spec)));
    while (queue_->Get(job.name)->step < steps) std::this_thread::yield();
    ASSERT_THAT(queue_->Cancel(job.name), IsOk());
    news_.Await([&] { return IsFinal(queue_->Get(job.name)->state); });
    EXPECT_EQ(queue_->Get(job.name)->state, JobState::kCancelled);
    EXPECT_EQ(Reserved(), 0);
    EXPECT_EQ(ledger_.UseOf(0).held, held);
  }
}

TEST_P(RawJobsTest, TheRawVolumeMayBeDiscardedMeanwhile) {
  const VolumeStatus raw = Acquire(Instrument(), {});
  ASSERT_OK_AND_ASSIGN(auto work,
                       MakeJobWork(SpecOf(ReprocessSpec{.volume = raw.name, .processing = {}}),
                                   {.volumes = &store_}));
  ASSERT_THAT(store_.Discard(raw.name, Reason::kDiscarded, "not wanted"), IsOk());
  ASSERT_OK_AND_ASSIGN(const JobStatus job, queue_->Submit(JobSpec(), std::move(work), nullptr));
  news_.Await([&] { return IsFinal(queue_->Get(job.name)->state); });
  EXPECT_EQ(queue_->Get(job.name)->state, JobState::kDone);
  for (const auto& volume : store_.List()) {
    if (volume.state == VolumeState::kHeld)
      ASSERT_THAT(store_.Discard(volume.name, Reason::kDiscarded, "over"), IsOk());
  }
  EXPECT_EQ(ledger_.UseOf(0).held, 0);
}

TEST_P(RawJobsTest, BadRequestsAreRefusedByName) {
  const VolumeStatus raw = Acquire(Instrument(), {});
  const auto expect = [&](decltype(JobSpec::work) work, absl::StatusCode code,
                          const std::string& field, const std::string& text) {
    const auto status = MakeJobWork(SpecOf(std::move(work)), {.volumes = &store_}).status();
    EXPECT_THAT(status, IsError(code, text));
    EXPECT_EQ(InfoOf(status).field, field);
  };
  constexpr auto kBad = absl::StatusCode::kInvalidArgument;
  expect({}, kBad, "work", "not given");
  expect(ReprocessSpec{.volume = "volumes/none", .processing = {}}, absl::StatusCode::kNotFound,
         "name", "volumes/none");
  std::string plain;
  for (const auto& volume : store_.List()) plain = volume.is_raw ? plain : volume.name;
  expect(ReprocessSpec{.volume = plain, .processing = {}}, kBad, "reprocess.volume", "hold_raw");
  ReprocessSpec reprocess{.volume = raw.name, .processing = {}};
  reprocess.processing.depth = 100000;
  expect(reprocess, kBad, "reprocess.processing.depth", "100000");
  const auto focus = [&](auto change) {
    DispersionAutofocusSpec spec;
    spec.volume = raw.name;
    change(spec);
    return spec;
  };
  expect(focus([](auto& s) { s.a2_begin = 1; }), kBad, "dispersion_autofocus.a2_begin",
         "smaller begin");
  expect(focus([](auto& s) { s.a3_begin = -1, s.a3_end = 1; }), kBad, "dispersion_autofocus.a2_end",
         "16384");
  expect(focus([](auto& s) { s.first_bin = 256; }), kBad, "dispersion_autofocus.first_bin", "256");
  const auto made = [&](decltype(JobSpec::work) work) {
    const auto job = MakeJobWork(SpecOf(std::move(work)), {.volumes = &store_});
    return job.ok() ? (*job)->Parameters() : std::string(job.status().message());
  };
  EXPECT_THAT(made(focus([](auto&) {})), HasSubstr("\"first_bin\":8"));
  EXPECT_THAT(made(focus([](auto& s) { s.first_bin = 0; })), HasSubstr("\"first_bin\":0"));
  expect(focus([](auto& s) { s.bins = 1; }), kBad, "dispersion_autofocus.bins", "is 1");
  expect(focus([](auto& s) { s.ascans = 65537; }), kBad, "dispersion_autofocus.ascans", "65537");
  expect(focus([](auto& s) { s.processing.dispersion_a2 = 1; }), kBad,
         "dispersion_autofocus.processing.dispersion", "searches for it");
  const auto calibrate = [&](auto change) {
    KCalibrationSpec spec;
    spec.volume = raw.name;
    change(spec);
    return spec;
  };
  expect(calibrate([](auto& s) { s.first_record = 192; }), kBad, "k_calibration.first_record",
         "allowed 0 to 191");
  expect(calibrate([](auto& s) { s.records = 193; }), kBad, "k_calibration.records",
         "allowed 1 to 192");
  expect(calibrate([](auto& s) { s.least_bin = 1; }), kBad, "k_calibration.least_bin", "is 1");
  expect(calibrate([](auto& s) { s.polynomial_degree = 16; }), kBad,
         "k_calibration.polynomial_degree", "16");
  expect(calibrate([](auto& s) { s.edge = 0.5; }), kBad, "k_calibration.edge", "0.5");
  EXPECT_THAT(made(calibrate([](auto&) {})), HasSubstr("\"edge\":0.05"));
  EXPECT_THAT(made(calibrate([](auto& s) { s.edge = 0; })), HasSubstr("\"edge\":0.0"));
  expect(calibrate([](auto& s) { s.processing.background = BackgroundMode::kRolling; }), kBad,
         "k_calibration.processing.background.mode", "fringe");
  expect(calibrate([](auto& s) { s.processing.background = BackgroundMode::kStatic; }), kBad,
         "k_calibration.processing.background.spectrum", "512");
}

INSTANTIATE_TEST_SUITE_P(Backends, RawJobsTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine

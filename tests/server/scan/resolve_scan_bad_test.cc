// Requests that ResolveScan refuses, field by field.

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "server/model/resolved_scan.h"
#include "server/scan/resolve_scan.h"
#include "tests/support/rooms.h"
#include "tests/support/scan/scan_specs.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using ::octavo::testing::IsError;
using ::testing::StartsWith;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

SimulatedSource& Simulated(ScanSpec& spec) { return std::get<SimulatedSource>(spec.source); }

struct Bad {
  const char* field;
  std::function<void(ScanSpec&)> change;
};

/// A scan that may go on after a restart.
ScanSpec Resumable() {
  ScanSpec spec = SimulatedScan();
  spec.pattern.volumes = 0;
  spec.retention.disposition = Disposition::kAutoCommit;
  spec.retention.auto_commit.destination = "long/{scan}_{index:05}.npy";
  spec.on_restart = OnRestart::kResume;
  return spec;
}

std::vector<Bad> BadSpecs() {
  return {
      {"source", [](ScanSpec& s) { s.source = std::monostate(); }},
      {"pattern.raster.ascans_per_bscan", [](ScanSpec& s) { s.pattern.ascans_per_bscan = 0; }},
      {"pattern.raster.ascans_per_bscan", [](ScanSpec& s) { s.pattern.ascans_per_bscan = -4; }},
      {"pattern.raster.ascans_per_bscan",
       [](ScanSpec& s) { s.pattern.ascans_per_bscan = int64_t{1} << 40; }},
      {"pattern.raster.bscans_per_volume", [](ScanSpec& s) { s.pattern.bscans_per_volume = 0; }},
      {"pattern.raster.bscans_per_volume",
       [](ScanSpec& s) { s.pattern.bscans_per_volume = s.pattern.ascans_per_bscan = 1 << 20; }},
      {"pattern.raster.bscans_per_volume",  // 2^31 records, but 2^41 bytes
       [](ScanSpec& s) {
         s.pattern.bscans_per_volume = s.pattern.ascans_per_bscan = 46000;
         s.processing.dtype = DType::kF32;
         s.processing.dtype_given = true;
       }},
      {"pattern.raster.volumes", [](ScanSpec& s) { s.pattern.volumes = int64_t{1} << 32; }},
      {"pattern.raster.volumes", [](ScanSpec& s) { s.pattern.volumes = -1; }},
      {"pattern.raster.flyback_records", [](ScanSpec& s) { s.pattern.flyback_records = -1; }},
      {"pattern.raster.flyback_records", [](ScanSpec& s) { s.pattern.flyback_records = 1 << 30; }},
      {"pattern.raster.volume_flyback_records",
       [](ScanSpec& s) { s.pattern.volume_flyback_records = int64_t{1} << 40; }},
      {"pattern.raster.extent_x_mm", [](ScanSpec& s) { s.pattern.extent_x_mm = kNan; }},
      {"pattern.raster.extent_x_mm", [](ScanSpec& s) { s.pattern.extent_x_mm = -1; }},
      {"pattern.raster.extent_y_mm", [](ScanSpec& s) { s.pattern.extent_y_mm = 1e300; }},
      {"acquisition.samples_per_record",
       [](ScanSpec& s) { s.acquisition.samples_per_record = 15; }},
      {"acquisition.samples_per_record",
       [](ScanSpec& s) { s.acquisition.samples_per_record = 65537; }},
      {"acquisition.record_rate_hz", [](ScanSpec& s) { s.acquisition.record_rate_hz = -1; }},
      {"acquisition.record_rate_hz", [](ScanSpec& s) { s.acquisition.record_rate_hz = kNan; }},
      {"acquisition.records_per_block", [](ScanSpec& s) { s.acquisition.records_per_block = -1; }},
      {"acquisition.records_per_block",
       [](ScanSpec& s) { s.acquisition.records_per_block = int64_t{1} << 33; }},
      {"acquisition.records_per_block",
       [](ScanSpec& s) {
         s.acquisition.samples_per_record = 16;
         s.acquisition.records_per_block = (1 << 24) + 1;
       }},
      {"acquisition.ring_blocks", [](ScanSpec& s) { s.acquisition.ring_blocks = 2; }},
      {"acquisition.ring_blocks", [](ScanSpec& s) { s.acquisition.ring_blocks = 100000; }},
      {"acquisition.raw_type",
       [](ScanSpec& s) {
         s.acquisition.raw_type = DType::kF64;
         s.acquisition.raw_type_given = true;
       }},
      {"simulated.centre_wavelength_nm",
       [](ScanSpec& s) { Simulated(s).centre_wavelength_nm = 399; }},
      {"simulated.centre_wavelength_nm",
       [](ScanSpec& s) { Simulated(s).centre_wavelength_nm = kNan; }},
      {"simulated.bandwidth_nm", [](ScanSpec& s) { Simulated(s).bandwidth_nm = 840; }},
      {"simulated.bandwidth_nm", [](ScanSpec& s) { Simulated(s).bandwidth_nm = -5; }},
      {"simulated.bandwidth_nm", [](ScanSpec& s) { Simulated(s).bandwidth_nm = 1e-12; }},
      {"simulated.nonlinearity", [](ScanSpec& s) { Simulated(s).nonlinearity = 0.21; }},
      {"simulated.dispersion_a2", [](ScanSpec& s) { Simulated(s).dispersion_a2 = kNan; }},
      {"simulated.dispersion_a3", [](ScanSpec& s) { Simulated(s).dispersion_a3 = 2; }},
      {"simulated.noise_counts", [](ScanSpec& s) { Simulated(s).noise_counts = 1e6; }},
      {"simulated.fixed_pattern", [](ScanSpec& s) { Simulated(s).fixed_pattern = 0.6; }},
      {"simulated.adc_bits", [](ScanSpec& s) { Simulated(s).adc_bits = 7; }},
      {"simulated.adc_bits",
       [](ScanSpec& s) {
         s.acquisition.raw_type = DType::kU8;
         s.acquisition.raw_type_given = true;
         Simulated(s).adc_bits = 9;
       }},
      {"simulated.scatterers", [](ScanSpec& s) { Simulated(s).scatterers = 20000; }},
      {"simulated.layers", [](ScanSpec& s) { Simulated(s).layers.resize(100, {.depth_um = 5}); }},
      {"simulated.layers[0].depth_um",
       [](ScanSpec& s) { Simulated(s).layers = {{.depth_um = 0}}; }},
      {"simulated.layers[1].reflectivity",
       [](ScanSpec& s) {
         Simulated(s).layers = {{.depth_um = 9}, {.depth_um = 9, .reflectivity = 0.3}};
       }},
      {"simulated.layers[0].reflectivity",
       [](ScanSpec& s) { Simulated(s).layers = {{.depth_um = 9, .reflectivity = 0}}; }},
      {"simulated.layers[0].tilt_um_per_mm",
       [](ScanSpec& s) { Simulated(s).layers = {{.depth_um = 9, .tilt_um_per_mm = kNan}}; }},
      {"processing.background.spectrum",
       [](ScanSpec& s) { s.processing.background = BackgroundMode::kStatic; }},
      {"processing.background.spectrum",
       [](ScanSpec& s) {
         s.processing.background = BackgroundMode::kStatic;
         s.processing.background_spectrum.assign(1024, NAN);
       }},
      {"processing.background.spectrum",
       [](ScanSpec& s) { s.processing.background_spectrum.assign(1024, 1.0f); }},
      {"processing.background.window_records",
       [](ScanSpec& s) { s.processing.background_window_records = (1 << 20) + 1; }},
      {"processing.background.window_records",
       [](ScanSpec& s) {
         s.processing.background_group_records = 1, s.processing.background_window_records = 4097;
       }},
      {"processing.background.group_records",
       [](ScanSpec& s) { s.processing.background_group_records = 1 << 20; }},
      {"processing.k_linearisation.index",
       [](ScanSpec& s) { s.processing.k_mode = KMode::kIndex; }},
      {"processing.k_linearisation.index",
       [](ScanSpec& s) {
         s.processing.k_mode = KMode::kIndex;
         s.processing.k_index.assign(1024, 1024.0);
       }},
      {"processing.k_linearisation.index",
       [](ScanSpec& s) {
         s.processing.k_mode = KMode::kIndex;
         s.processing.k_index.assign(1024, 5.0);
         s.processing.k_index[70] = 4;
       }},
      {"processing.k_linearisation.polynomial",
       [](ScanSpec& s) { s.processing.k_mode = KMode::kPolynomial; }},
      {"processing.k_linearisation.polynomial",
       [](ScanSpec& s) {
         s.processing.k_mode = KMode::kPolynomial;
         s.processing.k_polynomial = {0, 2};
       }},
      {"processing.k_linearisation.wavelength_nm",
       [](ScanSpec& s) {
         s.processing.k_mode = KMode::kWavelength;
         s.processing.k_wavelength_nm = {800};
       }},
      {"processing.k_linearisation.wavelength_nm",
       [](ScanSpec& s) {
         s.processing.k_mode = KMode::kWavelength;
         s.processing.k_wavelength_nm.assign(1024, 800);
       }},
      {"processing.window", [](ScanSpec& s) { s.processing.window = 9; }},
      {"processing.window_values",
       [](ScanSpec& s) {
         s.processing.window_values = {1, 2, 3};
       }},
      {"processing.window_values",
       [](ScanSpec& s) {
         s.processing.window = 1;
         s.processing.window_values.assign(1024, 1.0f);
       }},
      {"processing.dispersion.a2", [](ScanSpec& s) { s.processing.dispersion_a2 = kNan; }},
      {"processing.dispersion.phase", [](ScanSpec& s) { s.processing.dispersion_phase = {1}; }},
      {"processing.dispersion.phase",
       [](ScanSpec& s) {
         s.processing.dispersion_a3 = 1e-9;
         s.processing.dispersion_phase.assign(1024, 0.0f);
       }},
      {"processing.fft_length", [](ScanSpec& s) { s.processing.fft_length = 1000; }},
      {"acquisition.channels", [](ScanSpec& s) { s.acquisition.channels = 17; }},
      {"acquisition.channels",
       [](ScanSpec& s) {
         s.acquisition.samples_per_record = 65536;
         s.acquisition.channels = 2;
       }},
      {"acquisition.channel", [](ScanSpec& s) { s.acquisition.channel = 1; }},
      {"acquisition.record_average", [](ScanSpec& s) { s.acquisition.record_average = 257; }},
      {"simulated.adc_bits",
       [](ScanSpec& s) {
         s.acquisition.packing = math::Packing::kLowFirst12;
         Simulated(s).adc_bits = 13;
       }},
      {"processing.background.mode",
       [](ScanSpec& s) {
         s.pattern.ascans_per_bscan = 1;
         s.processing.background = BackgroundMode::kBscan;
       }},
      {"processing.fixed_pattern_noise",
       [](ScanSpec& s) {
         s.pattern.ascans_per_bscan = 17;
         s.processing.fixed_pattern_noise = FixedPatternNoise::kQuietSegment;
       }},
      {"processing.dtype",
       [](ScanSpec& s) {
         s.processing.value = ValueKind::kComplex;
         s.processing.dtype = DType::kF32;
         s.processing.dtype_given = true;
       }},
      {"processing.dtype",
       [](ScanSpec& s) {
         s.processing.dtype = DType::kC64;
         s.processing.dtype_given = true;
       }},
      {"processing.levels",
       [](ScanSpec& s) {
         s.processing.value = ValueKind::kComplex;
         s.processing.has_levels = true;
         s.processing.level_hi = 1;
       }},
      {"processing.fft_length", [](ScanSpec& s) { s.processing.fft_length = 1 << 20; }},
      {"processing.first_bin", [](ScanSpec& s) { s.processing.first_bin = 1024; }},
      {"processing.first_bin", [](ScanSpec& s) { s.processing.first_bin = -1; }},
      {"processing.depth", [](ScanSpec& s) { s.processing.depth = 1025; }},
      {"processing.depth", [](ScanSpec& s) { s.processing.first_bin = 600; }},
      {"processing.dtype",
       [](ScanSpec& s) {
         s.processing.dtype = DType::kF64;
         s.processing.dtype_given = true;
       }},
      {"processing.levels",
       [](ScanSpec& s) {
         s.processing.has_levels = true;
         s.processing.level_lo = s.processing.level_hi = 3;
       }},
      {"processing.axial_spacing_um", [](ScanSpec& s) { s.processing.axial_spacing_um = -1; }},
      {"processing.refractive_index", [](ScanSpec& s) { s.processing.refractive_index = 0.9; }},
      {"products.slab_begin_um", [](ScanSpec& s) { s.products.slab_begin_um = -3; }},
      {"products.slab_end_um",
       [](ScanSpec& s) {
         s.products.slab_begin_um = 500;
         s.products.slab_end_um = 400;
       }},
      {"products.slab_end_um", [](ScanSpec& s) { s.products.slab_begin_um = 1e8; }},
      {"products.preview_rate_hz", [](ScanSpec& s) { s.products.preview_rate_hz = kNan; }},
      {"retention.hold_slots", [](ScanSpec& s) { s.retention.hold_slots = 1 << 20; }},
      {"retention.hold_slots", [](ScanSpec& s) { s.pattern.volumes = 100000; }},
      {"retention.auto_commit.destination",
       [](ScanSpec& s) { s.retention.disposition = Disposition::kAutoCommit; }},
      {"replay.path", [](ScanSpec& s) { s.source = ReplaySource(); }},
      {"replay.rate_hz", [](ScanSpec& s) { s.source = ReplaySource{.path = "x", .rate_hz = -1}; }},
  };
}

TEST(ResolveTest, BadSpecsAreRefusedByTheNameOfTheirField) {
  for (const Bad& bad : BadSpecs()) {
    SCOPED_TRACE(bad.field);
    ScanSpec spec = SimulatedScan();
    bad.change(spec);
    const auto scan = ResolveScan(spec, {"/"});
    EXPECT_THAT(scan, IsError(absl::StatusCode::kInvalidArgument, bad.field));
    EXPECT_EQ(InfoOf(scan.status()).field, bad.field) << scan.status();
    EXPECT_THAT(std::string(scan.status().message()), StartsWith(bad.field));
  }
}

TEST(ResolveScanTest, OnlyScansThatNeedNobodyGoOnAfterARestart) {
  ASSERT_TRUE(ResolveScan(Resumable(), {"/"}).ok()) << ResolveScan(Resumable(), {"/"}).status();
  const std::pair<const char*, std::function<void(ScanSpec&)>> bad[] = {
      {"simulated or camera",
       [](ScanSpec& s) {
         s.source = PushSource();
         s.acquisition.samples_per_record = 1024;
       }},
      {"simulated or camera",
       [](ScanSpec& s) {
         s.source = RingSource();
         s.acquisition.samples_per_record = 1024;
       }},
      {"pattern.volumes 0", [](ScanSpec& s) { s.pattern.volumes = 3; }},
      {"AUTO_COMMIT", [](ScanSpec& s) { s.retention.disposition = Disposition::kAsk; }},
      {"AUTO_COMMIT", [](ScanSpec& s) { s.retention.disposition = Disposition::kAutoDiscard; }},
      {"{scan}", [](ScanSpec& s) { s.retention.auto_commit.destination = "long/{index:05}.npy"; }},
      {"without a queue", [](ScanSpec& s) { s.queue.name = "night"; }},
      {"KEEP",
       [](ScanSpec& s) {
         s.session = "sessions/1";
         s.retention.orphan = Orphan::kCommitDefault;
       }},
      {"KEEP", [](ScanSpec& s) {
         s.session = "sessions/1";
         s.retention.orphan = Orphan::kDiscard;
       }}};
  for (const auto& [allowed, change] : bad) {
    ScanSpec spec = Resumable();
    change(spec);
    const auto refused = ResolveScan(spec, {"/"});
    EXPECT_THAT(refused, IsError(absl::StatusCode::kInvalidArgument, allowed));
    EXPECT_EQ(InfoOf(refused.status()).field, "on_restart") << refused.status();
    EXPECT_THAT(std::string(refused.status().message()), StartsWith("on_restart: is RESUME"));
    spec.on_restart = OnRestart::kEnd;  // the rest of it is fine
    EXPECT_TRUE(ResolveScan(spec, {"/"}).ok()) << ResolveScan(spec, {"/"}).status();
  }
  ScanSpec spec = Resumable();
  spec.session = "sessions/1";  // KEEP is the default
  EXPECT_TRUE(ResolveScan(spec, {"/"}).ok());
  spec.on_restart = OnRestart::kDefault;
  EXPECT_EQ(ResolveScan(spec, {"/"})->spec.on_restart, OnRestart::kEnd);
}

}  // namespace
}  // namespace octavo::engine

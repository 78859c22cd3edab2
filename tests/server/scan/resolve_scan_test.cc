#include "server/scan/resolve_scan.h"

#include <cmath>
#include <string>

#include "gtest/gtest.h"

#include "server/model/resolved_scan.h"
#include "server/processing/resolve_processing.h"
#include "tests/support/rooms.h"
#include "tests/support/scan/scan_specs.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::engine {
namespace {

using ::octavo::testing::IsError;
using ::octavo::testing::IsOk;
using ::octavo::testing::TempFolder;

TEST(ResolveTest, SourceAndGeometryAloneMakeASensibleScan) {
  ASSERT_OK_AND_ASSIGN(const ResolvedScan scan, ResolveScan(SimulatedScan(), {}));
  const ScanSpec& s = scan.spec;
  const auto& source = std::get<SimulatedSource>(s.source);
  EXPECT_EQ(source.centre_wavelength_nm, 840);
  EXPECT_EQ(source.bandwidth_nm, 94);
  EXPECT_EQ(source.noise_counts, 2);
  EXPECT_EQ(source.fixed_pattern, 0.002);
  EXPECT_EQ(source.adc_bits, 12u);
  EXPECT_EQ(source.motion_um_per_volume, 4);
  EXPECT_EQ(source.scatterers, 64u);
  ScanSpec without = SimulatedScan();
  std::get<SimulatedSource>(without.source).scatterers = 0;
  ASSERT_OK_AND_ASSIGN(const ResolvedScan none, ResolveScan(without, {}));
  EXPECT_EQ(std::get<SimulatedSource>(none.spec.source).scatterers, 0u);
  EXPECT_EQ(s.acquisition.raw_type, DType::kU16);
  EXPECT_EQ(s.acquisition.record_rate_hz, 100e3);
  EXPECT_EQ(s.acquisition.ring_blocks, 8);
  for (const auto& [rate, blocks] : {std::pair(100e3, 8), {1e6, 25}, {1e7, 65}}) {
    ScanSpec fast = SimulatedScan();
    fast.acquisition.record_rate_hz = rate;
    ASSERT_OK_AND_ASSIGN(const ResolvedScan resolved, ResolveScan(fast, {}));
    EXPECT_EQ(resolved.spec.acquisition.records_per_block, 2000);
    EXPECT_EQ(resolved.spec.acquisition.ring_blocks, blocks) << "50 ms, at most 256 MiB";
  }
  EXPECT_EQ(s.acquisition.records_per_block % 100, 0) << "whole B-scans";
  EXPECT_LE(s.acquisition.records_per_block * 2048, 4 << 20);
  EXPECT_GT(s.acquisition.records_per_block * 2048, 3 << 20);
  EXPECT_EQ(s.pattern.extent_x_mm, 0.1);
  EXPECT_EQ(s.pattern.extent_y_mm, 0.05);
  EXPECT_EQ(s.processing.background, BackgroundMode::kRolling);
  EXPECT_EQ(s.processing.background_group_records, 100) << "a B-scan";
  EXPECT_EQ(s.processing.background_window_records, 0) << "the group";
  EXPECT_EQ(scan.chain.volume_records, scan.volume_records);
  EXPECT_EQ(s.processing.k_mode, KMode::kFromSource);
  EXPECT_EQ(s.processing.k_interpolation, KInterpolation::kCubic);
  EXPECT_EQ(s.processing.window, 1 + static_cast<int>(WindowKind::kHann));
  EXPECT_EQ(s.processing.fft_length, 1024);
  EXPECT_EQ(s.processing.depth, 512);
  EXPECT_EQ(s.processing.value, ValueKind::kDb);
  EXPECT_EQ(s.acquisition.adc_bits, 12);
  EXPECT_EQ(s.processing.dtype, DType::kU16);
  EXPECT_TRUE(s.processing.has_levels);
  EXPECT_EQ(s.processing.level_lo, -300);
  EXPECT_EQ(s.processing.level_hi,
            93);  // of 65535 counts: the window halves it, the interpolation multiplies it by 1.25
  EXPECT_EQ(s.processing.refractive_index, 1);
  EXPECT_EQ(s.products.preview_rate_hz, 10);
  EXPECT_EQ(s.retention.mode, RetentionMode::kCapture);
  EXPECT_EQ(s.retention.hold_slots, 3);
  EXPECT_EQ(s.retention.on_full, OnFull::kStopAtVolume);
  EXPECT_EQ(s.retention.disposition, Disposition::kAsk);
  EXPECT_EQ(s.overrun, Overrun::kFailScan);
  EXPECT_EQ(scan.volume_records, 5000);
  EXPECT_EQ(scan.shape[0], 50);
  EXPECT_EQ(scan.shape[1], 100);
  EXPECT_EQ(scan.shape[2], 512);
  EXPECT_EQ(scan.volume_bytes, 50 * 100 * 512 * 2);
  EXPECT_NEAR(scan.spacing_um[0], 1, 1e-12);
  EXPECT_NEAR(scan.spacing_um[1], 1, 1e-12);
  EXPECT_NEAR(scan.spacing_um[2], 3.738, 1e-3);  // π / (k span · 1024/1023), 793 to 887 nm
  EXPECT_EQ(scan.display_lo, std::round((20 * std::log10(4095.0 / 60) - 52 + 300) / 393 * 65535));
  EXPECT_EQ(scan.display_hi, std::round((20 * std::log10(4095.0 / 60) + 300) / 393 * 65535));
  EXPECT_THAT(SpectralProcessor::Validate(scan.chain), IsOk());
}

TEST(ResolveTest, ExtentsOfMetresAreDoubtedAndAssumedSpacingsTold) {
  ScanSpec spec = SimulatedScan();
  ASSERT_OK_AND_ASSIGN(ResolvedScan scan, ResolveScan(spec, {}));
  EXPECT_TRUE(scan.warnings.empty());
  EXPECT_EQ(
      DescribeSpacing(scan),
      "spacing: y 1 um, x 1 um, z 3.738 um (y, x: assumed, the request does not say the extent)\n");
  spec.pattern.extent_x_mm = 3;
  spec.pattern.extent_y_mm = 3000;
  spec.processing.k_mode = KMode::kNone;
  ASSERT_OK_AND_ASSIGN(scan, ResolveScan(spec, {}));
  ASSERT_EQ(scan.warnings.size(), 1u);
  EXPECT_EQ(scan.warnings[0],
            "pattern.raster.extent_y_mm is 3000, 3 m. If micrometres are meant: in mm they are a "
            "thousandth.");
  EXPECT_EQ(DescribeSpacing(scan),
            "spacing: y 6e+04 um, x 30 um, z 1 um (z: assumed, the request does not say the "
            "wavelengths or axial_spacing_um)\n");
  spec.pattern.extent_y_mm = 100;
  spec.processing.axial_spacing_um = 2.5;
  ASSERT_OK_AND_ASSIGN(scan, ResolveScan(spec, {}));
  EXPECT_TRUE(scan.warnings.empty()) << scan.warnings[0];
  EXPECT_EQ(DescribeSpacing(scan), "spacing: y 2000 um, x 30 um, z 2.5 um\n");
  spec.pattern.kind = PatternKind::kRadial;
  ASSERT_OK_AND_ASSIGN(scan, ResolveScan(spec, {}));
  EXPECT_NE(DescribeSpacing(scan).find("(y, x: assumed"), std::string::npos)
      << DescribeSpacing(scan);
  spec.pattern.radius_begin_mm = -2000;
  spec.pattern.radius_end_mm = 2000;
  ASSERT_OK_AND_ASSIGN(scan, ResolveScan(spec, {}));
  ASSERT_EQ(scan.warnings.size(), 2u);
  EXPECT_EQ(scan.warnings[0].find("The pattern goes over 4000 mm along x, 4 m."), 0u)
      << scan.warnings[0];
  EXPECT_EQ(DescribeSpacing(scan).find("assumed"), std::string::npos) << DescribeSpacing(scan);
}

TEST(ResolveTest, ContinuousScansAreLive) {
  ScanSpec spec = SimulatedScan();
  spec.pattern.volumes = 0;
  ASSERT_OK_AND_ASSIGN(const ResolvedScan scan, ResolveScan(spec, {}));
  EXPECT_EQ(scan.spec.retention.mode, RetentionMode::kLive);
  EXPECT_EQ(scan.spec.retention.hold_slots, 4);
  EXPECT_EQ(scan.spec.retention.on_full, OnFull::kDropNew);
  EXPECT_EQ(scan.spec.overrun, Overrun::kDropBlock);
}

TEST(ResolveTest, AutoDiscardNeedsTwoSlots) {
  ScanSpec spec = SimulatedScan();
  spec.retention.disposition = Disposition::kAutoDiscard;
  ASSERT_OK_AND_ASSIGN(const ResolvedScan scan, ResolveScan(spec, {}));
  EXPECT_EQ(scan.spec.retention.hold_slots, 2);
}

TEST(ResolveTest, WhatWasResolvedResolvesToItself) {
  for (const bool fast : {false, true}) {
    ScanSpec spec = SimulatedScan();
    std::get<SimulatedSource>(spec.source).as_fast_as_possible = fast;
    spec.products.slab_begin_um = 100;
    ASSERT_OK_AND_ASSIGN(const ResolvedScan once, ResolveScan(spec, {}));
    ASSERT_OK_AND_ASSIGN(const ResolvedScan twice, ResolveScan(once.spec, {}));
    EXPECT_EQ(once.spec.acquisition.record_rate_hz, fast ? 0 : 100e3);
    EXPECT_EQ(twice.spec.acquisition.record_rate_hz, once.spec.acquisition.record_rate_hz);
    EXPECT_EQ(twice.spec.acquisition.records_per_block, once.spec.acquisition.records_per_block);
    EXPECT_EQ(twice.spec.processing.level_lo, once.spec.processing.level_lo);
    EXPECT_EQ(twice.spec.acquisition.adc_bits, once.spec.acquisition.adc_bits);
    EXPECT_EQ(twice.display_lo, once.display_lo);
    EXPECT_EQ(twice.display_hi, once.display_hi);
    EXPECT_EQ(twice.chain.slab_begin, once.chain.slab_begin);
    EXPECT_EQ(twice.chain.k_index, once.chain.k_index);
    EXPECT_EQ(twice.chain.window, once.chain.window);
    EXPECT_EQ(twice.volume_bytes, once.volume_bytes);
  }
}

TEST(ResolveTest, FlybackCountsAsRecords) {
  ScanSpec spec = SimulatedScan();
  spec.pattern.flyback_records = 20;
  spec.pattern.volume_flyback_records = 7;
  ASSERT_OK_AND_ASSIGN(const ResolvedScan scan, ResolveScan(spec, {}));
  EXPECT_EQ(scan.volume_records, 120 * 50 + 7);
  EXPECT_EQ(scan.spec.acquisition.records_per_block % 120, 0);
}

TEST(ResolveTest, ASlabBecomesDepthSamples) {
  ScanSpec spec = SimulatedScan();
  spec.processing.axial_spacing_um = 2;
  spec.processing.first_bin = 10;
  spec.products.slab_begin_um = 100;
  spec.products.slab_end_um = 300;
  ASSERT_OK_AND_ASSIGN(ResolvedScan scan, ResolveScan(spec, {}));
  EXPECT_EQ(scan.spacing_um[2], 2);
  EXPECT_EQ(scan.spec.processing.depth, 502);
  EXPECT_EQ(scan.chain.slab_begin, 40);
  EXPECT_EQ(scan.chain.slab_end, 140);
  spec.products.slab_end_um = 0;  // to the end
  ASSERT_OK_AND_ASSIGN(scan, ResolveScan(spec, {}));
  EXPECT_EQ(scan.chain.slab_end, 502);
}

TEST(ResolveTest, FloatOutputIsNotScaledUnlessAsked) {
  ScanSpec spec = SimulatedScan();
  spec.processing.dtype = DType::kF32;
  spec.processing.dtype_given = true;
  ASSERT_OK_AND_ASSIGN(ResolvedScan scan, ResolveScan(spec, {}));
  EXPECT_FALSE(scan.chain.has_levels);
  EXPECT_NEAR(scan.display_hi, 20 * std::log10(4095.0 / 60), 1e-9);
  EXPECT_NEAR(scan.display_hi - scan.display_lo, 52, 1e-9);
  spec.processing.has_levels = true;
  spec.processing.level_lo = -10;
  spec.processing.level_hi = 40;
  ASSERT_OK_AND_ASSIGN(scan, ResolveScan(spec, {}));
  EXPECT_EQ(scan.display_lo, 0);
  EXPECT_EQ(scan.display_hi, 1);
}

TEST(ResolveTest, RefractiveIndexShortensTheDepthStep) {
  ScanSpec spec = SimulatedScan();
  ASSERT_OK_AND_ASSIGN(const ResolvedScan air, ResolveScan(spec, {}));
  spec.processing.refractive_index = 1.38;
  ASSERT_OK_AND_ASSIGN(const ResolvedScan tissue, ResolveScan(spec, {}));
  EXPECT_NEAR(tissue.spacing_um[2], air.spacing_um[2] / 1.38, 1e-9);
}

// Values that the server chooses must not break bounds that the client never heard of.
TEST(ResolveTest, ChosenValuesStayInTheirOwnBounds) {
  ScanSpec spec = SimulatedScan();
  spec.acquisition.samples_per_record = 65536;
  spec.pattern = {.ascans_per_bscan = 1 << 20, .bscans_per_volume = 1, .volumes = 1};
  ASSERT_OK_AND_ASSIGN(ResolvedScan scan, ResolveScan(spec, {}));
  EXPECT_LE(scan.spec.acquisition.records_per_block * 131072, int64_t{1} << 30);
  EXPECT_LE(scan.spec.processing.background_group_records * 131072, int64_t{1} << 30);
  spec.acquisition.samples_per_record = 16;
  spec.pattern.flyback_records = 5;
  ASSERT_OK_AND_ASSIGN(scan, ResolveScan(spec, {}));
  EXPECT_EQ(scan.spec.processing.background_group_records, 1 << 20);
}

// For every pattern, the default group is a B-scan with its flyback.
TEST(ResolveTest, AGroupOfTheRollingBackgroundIsABscan) {
  const auto group = [](const Pattern& pattern) {
    ScanSpec spec = SimulatedScan();
    spec.pattern = pattern;
    const auto scan = ResolveScan(spec, {});
    EXPECT_TRUE(scan.ok()) << scan.status();
    return scan.ok() ? scan->chain.background_group_records : 0;
  };
  Pattern raster{
      .ascans_per_bscan = 30, .bscans_per_volume = 7, .volumes = 2, .flyback_records = 4};
  EXPECT_EQ(group(raster), 34);
  raster.bidirectional_volumes = true;
  EXPECT_EQ(group(raster), 34);
  raster.kind = PatternKind::kRepeatedRaster;
  raster.repeat_count = 2;
  raster.repeat_period = 7;
  EXPECT_EQ(group(raster), 34);
  Pattern spiral{.ascans_per_bscan = 16,
                 .bscans_per_volume = 9,
                 .volumes = 2,
                 .volume_flyback_records = 5,
                 .kind = PatternKind::kSpiral};
  spiral.radius_end_mm = 1;
  EXPECT_EQ(group(spiral), 16) << "a stored row of the path";
}

TEST(ResolveTest, TransformsOfAnyLength) {
  for (const int64_t samples : {509, 1024, 1376, 2048, 2500, 4096}) {
    ScanSpec spec = SimulatedScan();
    spec.acquisition.samples_per_record = samples;
    ASSERT_OK_AND_ASSIGN(const ResolvedScan scan, ResolveScan(spec, {}));
    EXPECT_EQ(scan.chain.fft_length, samples);
    EXPECT_EQ(scan.shape[2], samples / 2);
  }
}

TEST(ResolveTest, ValuesChooseTypeLevelsAndWhatIsShown) {
  const auto resolved = [](ValueKind value, DType dtype, bool given) {
    ScanSpec spec = SimulatedScan();
    spec.processing.value = value;
    spec.processing.dtype = dtype;
    spec.processing.dtype_given = given;
    return ResolveScan(spec, {}).value();
  };
  const ResolvedScan complex = resolved(ValueKind::kComplex, DType::kU8, false);
  EXPECT_EQ(complex.chain.output, DType::kC64);
  EXPECT_FALSE(complex.chain.has_levels);
  EXPECT_EQ(complex.display_lo, 0);
  EXPECT_GT(complex.display_hi, 0);
  EXPECT_EQ(complex.volume_bytes, 50 * 100 * 512 * 8);
  const ResolvedScan real = resolved(ValueKind::kReal, DType::kI8, true);
  EXPECT_TRUE(real.chain.has_levels);
  EXPECT_EQ(real.chain.level_lo, -real.chain.level_hi);
  EXPECT_LT(real.display_lo, 0);
  EXPECT_GT(real.display_hi, 0);
  const ResolvedScan half = resolved(ValueKind::kDb, DType::kF16, true);
  EXPECT_FALSE(half.chain.has_levels);
  EXPECT_LT(half.display_lo, half.display_hi);
}

TEST(ResolveTest, RecordsOfThePatternAreMeansOfTheSources) {
  ScanSpec spec = SimulatedScan();
  spec.acquisition.record_average = 4;
  spec.acquisition.channels = 2;
  spec.acquisition.channel = 1;
  spec.acquisition.packing = math::Packing::kHighFirst12;
  spec.processing.background = BackgroundMode::kBscan;
  spec.processing.fixed_pattern_noise = FixedPatternNoise::kMean;
  ASSERT_OK_AND_ASSIGN(const ResolvedScan scan, ResolveScan(spec, {}));
  EXPECT_EQ(scan.volume_records, 5000);
  EXPECT_EQ(RecordBytes(scan.chain), 4 * 1024 * 2 * 3 / 2);
  EXPECT_LE(scan.spec.acquisition.records_per_block * RecordBytes(scan.chain), 4 << 20);
  EXPECT_EQ(scan.chain.record_average, 4);
  EXPECT_EQ(scan.chain.channel, 1);
  EXPECT_EQ(scan.chain.bscan_records, 100);
  EXPECT_EQ(scan.chain.fixed_pattern, math::FixedPattern::kMean);
}

TEST(ResolveTest, FromSourceNeedsASourceThatKnows) {
  const TempFolder folder;
  folder.Write("some.raw", std::string(64, '\0'));
  ScanSpec spec = SimulatedScan();
  spec.source = ReplaySource{.path = "some.raw"};
  spec.acquisition.samples_per_record = 16;
  ASSERT_THAT(ResolveScan(spec, {folder.path()}), IsOk());
  spec.processing.k_mode = KMode::kFromSource;
  const auto scan = ResolveScan(spec, {folder.path()});
  EXPECT_EQ(InfoOf(scan.status()).field, "processing.k_linearisation.from_source");
}

TEST(ResolveUpdateTest, KeepsShapeAndType) {
  ASSERT_OK_AND_ASSIGN(const ResolvedScan scan, ResolveScan(SimulatedScan(), {}));
  Processing other;
  other.window = 1;
  other.dispersion_a2 = 1e-5;
  ASSERT_OK_AND_ASSIGN(const ResolvedScan updated, ResolveUpdate(scan, other));
  EXPECT_EQ(updated.chain.phase_rad.size(), 1024u);
  EXPECT_EQ(updated.chain.window[0], 1);
  EXPECT_EQ(updated.volume_bytes, scan.volume_bytes);
  Processing shorter;
  shorter.depth = 100;
  EXPECT_THAT(ResolveUpdate(scan, shorter),
              IsError(absl::StatusCode::kInvalidArgument, "processing.depth"));
  Processing wider;
  wider.dtype = DType::kF32;
  wider.dtype_given = true;
  EXPECT_THAT(ResolveUpdate(scan, wider),
              IsError(absl::StatusCode::kInvalidArgument, "processing.dtype"));
  Processing wrong;
  wrong.window_values = {1};
  EXPECT_THAT(ResolveUpdate(scan, wrong),
              IsError(absl::StatusCode::kInvalidArgument, "processing.window_values"));
}

}  // namespace
}  // namespace octavo::engine

// The default stored form, for requests that leave it open, and the share of clipped voxels.

#include "server/processing/stored_form.h"

#include <cmath>
#include <set>

#include "gpu/spectral/spectral_span.h"
#include "server/processing/resolve_processing.h"
#include "server/scan/resolve_scan.h"
#include "tests/support/rooms.h"
#include "tests/support/scan/scan_specs.h"
#include "tests/support/scan/session_fixture.h"
#include "tests/support/seed.h"

namespace octavo::engine {
namespace {

using octavo::testing::FreshSeed;
using octavo::testing::IsError;
using octavo::testing::IsOk;
using testing::KnownRecords;
using testing::KnownSource;
using testing::ResolvedKnown;
using testing::RunOutcome;
using testing::SessionRun;

ResolvedScan Resolved(const std::function<void(ScanSpec&)>& change) {
  const auto spec = std::make_unique<ScanSpec>(SimulatedScan());
  change(*spec);
  auto resolved = ResolveScan(*spec, {});
  EXPECT_THAT(resolved.status(), IsOk());
  return *std::move(resolved);
}
void SetType(ScanSpec& spec, DType dtype) {
  spec.processing.dtype = dtype;
  spec.processing.dtype_given = true;
}
double StepOf(const SpectralConfig& c) {
  return (static_cast<double>(c.level_hi) - c.level_lo) /
         (static_cast<double>(HighestOf(c.output)) - LowestOf(c.output));
}

TEST(StoredFormTest, DbOfIntegersIsU16OverAllThatTheChainCanGive) {
  for (const DType raw : {DType::kU8, DType::kU16, DType::kI16}) {
    for (const int64_t samples : {64, 1000, 2048, 65536}) {
      for (const auto background :
           {BackgroundMode::kNone, BackgroundMode::kRolling, BackgroundMode::kBscan}) {
        for (const auto noise : {FixedPatternNoise::kKeep, FixedPatternNoise::kMean}) {
          const ResolvedScan scan = Resolved([&](ScanSpec& s) {
            s.acquisition.samples_per_record = samples;
            s.acquisition.raw_type = raw;
            s.acquisition.raw_type_given = true;
            s.processing.background = background;
            s.processing.fixed_pattern_noise = noise;
          });
          const SpectralConfig& c = scan.chain;
          EXPECT_EQ(c.output, DType::kU16);
          ASSERT_TRUE(c.has_levels);
          EXPECT_LE(StepOf(c), 0.01);
          EXPECT_EQ(c.level_lo, -300);
          const double most = LargestMagnitude(c, RangeOf(raw, c.packing, 0));
          EXPECT_GE(c.level_hi, 20 * std::log10(most));
          EXPECT_LT(c.level_hi, 20 * std::log10(most) + 1);
          EXPECT_LT(scan.display_lo, scan.display_hi);
          EXPECT_GT(scan.display_lo, 0) << "what is shown is less than what is stored";
          EXPECT_LT(scan.display_hi, 65535);
        }
      }
    }
  }
}

TEST(StoredFormTest, WhatTheLevelsOfU16CannotHoldFinelyIsF32) {
  for (const ValueKind value : {ValueKind::kMagnitude, ValueKind::kPower, ValueKind::kReal}) {
    const ResolvedScan scan = Resolved([&](ScanSpec& s) { s.processing.value = value; });
    EXPECT_EQ(scan.chain.output, DType::kF32);
    EXPECT_FALSE(scan.chain.has_levels);
  }
  const ResolvedScan complex =
      Resolved([](ScanSpec& s) { s.processing.value = ValueKind::kComplex; });
  EXPECT_EQ(complex.chain.output, DType::kC64);
  // The range of raw F32 is unknown unless the source declares its ADC.
  const auto pushed = [](int64_t adc_bits) {
    return Resolved([&](ScanSpec& s) {
      s.source = PushSource();
      s.acquisition.raw_type = DType::kF32;
      s.acquisition.raw_type_given = true;
      s.acquisition.adc_bits = adc_bits;
    });
  };
  EXPECT_EQ(pushed(0).chain.output, DType::kF32);
  EXPECT_FALSE(pushed(0).chain.has_levels);
  EXPECT_EQ(pushed(14).chain.output, DType::kU16);
  EXPECT_LE(StepOf(pushed(14).chain), 0.01);
}

TEST(StoredFormTest, AdcBitsAreWhatTheSourceDeclares) {
  const auto bits = [](const std::function<void(ScanSpec&)>& change) {
    return Resolved(change).spec.acquisition.adc_bits;
  };
  EXPECT_EQ(bits([](ScanSpec&) {}), 12);
  EXPECT_EQ(bits([](ScanSpec& s) { std::get<SimulatedSource>(s.source).adc_bits = 10; }), 10);
  EXPECT_EQ(bits([](ScanSpec& s) { s.acquisition.adc_bits = 12; }), 12);
  const auto push = [](DType raw, math::Packing packing, int64_t given) {
    return [=](ScanSpec& s) {
      s.source = PushSource();
      s.acquisition.raw_type = raw;
      s.acquisition.packing = packing;
      s.acquisition.raw_type_given = true;
      s.acquisition.adc_bits = given;
    };
  };
  EXPECT_EQ(bits(push(DType::kU16, math::Packing::kNone, 0)), 16);
  EXPECT_EQ(bits(push(DType::kU16, math::Packing::kNone, 12)), 12);
  EXPECT_EQ(bits(push(DType::kU16, math::Packing::kLowFirst12, 0)), 12);
  EXPECT_EQ(bits(push(DType::kU8, math::Packing::kNone, 0)), 8);
  EXPECT_EQ(bits(push(DType::kI16, math::Packing::kNone, 0)), 16);
  EXPECT_EQ(bits(push(DType::kF32, math::Packing::kNone, 0)), 0);
  const auto refused = [](const std::function<void(ScanSpec&)>& change) {
    const auto spec = std::make_unique<ScanSpec>(SimulatedScan());
    change(*spec);
    return ResolveScan(*spec, {}).status();
  };
  const auto bad = [](const absl::Status& status) {
    return status.code() == absl::StatusCode::kInvalidArgument ? InfoOf(status).field : "accepted";
  };
  EXPECT_EQ(bad(refused([](ScanSpec& s) { s.acquisition.adc_bits = 11; })), "acquisition.adc_bits")
      << "the simulated one has 12";
  EXPECT_EQ(bad(refused(push(DType::kU8, math::Packing::kNone, 9))), "acquisition.adc_bits");
  EXPECT_EQ(bad(refused(push(DType::kU16, math::Packing::kLowFirst12, 13))),
            "acquisition.adc_bits");
  EXPECT_EQ(bad(refused(push(DType::kU16, math::Packing::kNone, 17))), "acquisition.adc_bits");
  EXPECT_EQ(bad(refused(push(DType::kF32, math::Packing::kNone, 33))), "acquisition.adc_bits");
  EXPECT_EQ(bad(refused(push(DType::kU16, math::Packing::kNone, -1))), "acquisition.adc_bits");
}

TEST(StoredFormTest, LevelsOfBytesFollowTheAdc) {
  const auto levels = [](int64_t adc_bits, DType dtype) {
    const ResolvedScan scan = Resolved([&](ScanSpec& s) {
      s.source = PushSource();
      s.acquisition.adc_bits = adc_bits;
      SetType(s, dtype);
    });
    return std::pair(scan.chain.level_lo, scan.chain.level_hi);
  };
  const auto [lo12, hi12] = levels(12, DType::kU8);
  const auto [lo16, hi16] = levels(0, DType::kU8);
  EXPECT_NEAR(hi16 - hi12, 20 * std::log10(65535.0 / 4095), 0.01);
  EXPECT_EQ(lo12, lo16) << "the noise of digitising is that of one count";
  EXPECT_EQ(levels(12, DType::kI8), levels(12, DType::kU8));
}

TEST(StoredFormTest, ACountIsAStepOfRawF32Too) {
  const auto levels = [](DType raw, int64_t adc_bits, ValueKind value) {
    const ResolvedScan scan = Resolved([&](ScanSpec& s) {
      s.source = PushSource();
      s.acquisition.raw_type = raw;
      s.acquisition.raw_type_given = true;
      s.acquisition.adc_bits = adc_bits;
      s.processing.value = value;
      SetType(s, DType::kU8);
    });
    return std::pair(scan.chain.level_lo, scan.chain.level_hi);
  };
  for (const int64_t bits : {8, 10, 12, 14, 16}) {
    for (const ValueKind value : {ValueKind::kDb, ValueKind::kDefault}) {
      EXPECT_EQ(levels(DType::kF32, bits, value).first, levels(DType::kU16, bits, value).first)
          << bits;
    }
  }
  // Without a declaration the default is a step of 65535 across -1 ... 1.
  EXPECT_NEAR(levels(DType::kF32, 0, ValueKind::kDb).first,
              levels(DType::kF32, 16, ValueKind::kDb).first + 20 * std::log10(2.0 / 65535), 1e-3);
}

TEST(StoredFormTest, AnUpdateKeepsTheTypeThatItDoesNotName) {
  for (const DType dtype : {DType::kU8, DType::kU16, DType::kF32}) {
    const ResolvedScan scan = Resolved([&](ScanSpec& s) { SetType(s, dtype); });
    for (const ValueKind value : {ValueKind::kDefault, ValueKind::kMagnitude, ValueKind::kPower}) {
      Processing other;
      other.value = value;
      ASSERT_OK_AND_ASSIGN(const ResolvedScan updated, ResolveUpdate(scan, other));
      EXPECT_EQ(updated.chain.output, dtype);
    }
  }
}

TEST(StoredFormTest, ThePlanTellsTheMemory) {
  const ResolvedScan wide = Resolved([](ScanSpec&) {}),
                     narrow = Resolved([](ScanSpec&s) { SetType(s, DType::kU8); });
  EXPECT_EQ(DescribeMemory(wide, 3),
            "memory: 2 bytes a voxel, 5120000 bytes a volume, 3 volumes held at once (u8 would "
            "take 2560000 a volume)\n");
  EXPECT_EQ(DescribeMemory(narrow, 1),
            "memory: 1 byte a voxel, 2560000 bytes a volume, 1 volume held at once\n");
}

// Levels do not depend on the data, and yet they clip almost no voxel: 12 bits as a source declares
// them and in a container of 16, the simulated instrument, all patterns, values and types.
class DefaultsClipTest : public ::testing::TestWithParam<std::string> {
 protected:
  static double ClippedShare(const RunOutcome& outcome) {
    EXPECT_EQ(outcome.scan.state, ScanState::kDone) << outcome.scan.reason;
    EXPECT_GT(outcome.scan.voxels, 0);
    int64_t clipped = 0;
    for (const VolumeStatus& volume : outcome.volumes)
      clipped += volume.clipped_below + volume.clipped_above;
    EXPECT_EQ(clipped, outcome.scan.clipped_below + outcome.scan.clipped_above);
    return static_cast<double>(clipped) / static_cast<double>(outcome.scan.voxels);
  }
  const SystemClock clock_;
  Device& device_ = octavo::testing::SharedDevice(GetParam());
};

TEST_P(DefaultsClipTest, LessThanOnePercentOfTheSimulator) {
  for (const DType raw : {DType::kU16, DType::kU8, DType::kI16, DType::kF32}) {
    for (const ValueKind value :
         {ValueKind::kDb, ValueKind::kMagnitude, ValueKind::kPower, ValueKind::kReal}) {
      for (const DType dtype : {DType::kU16, DType::kU8, DType::kI8, DType::kF32}) {
        for (const bool open : {false, true}) {
          if (open && dtype != DType::kU16) continue;
          if (raw != DType::kU16 && (value == ValueKind::kPower || dtype == DType::kI8)) continue;
          const ResolvedScan scan = Resolved([&](ScanSpec& s) {
            auto& source = std::get<SimulatedSource>(s.source);
            source.as_fast_as_possible = true;
            source.seed = FreshSeed();
            s.acquisition.samples_per_record = 512;
            s.acquisition.raw_type = raw;
            s.acquisition.raw_type_given = true;
            s.pattern = {.ascans_per_bscan = 40, .bscans_per_volume = 5, .volumes = 1};
            s.processing.value = value;
            if (!open) SetType(s, dtype);
          });
          auto source = OpenSource(scan.spec, {}, &clock_);
          ASSERT_THAT(source.status(), IsOk());
          const RunOutcome outcome = SessionRun::Run({&device_}, scan, *std::move(source));
          SCOPED_TRACE(std::string(Info(raw).name) + " to " + Info(scan.chain.output).name +
                       ", value " + std::to_string(static_cast<int>(value)));
          const double share = ClippedShare(outcome);
          EXPECT_LT(share, 0.01);
          if (scan.chain.output == DType::kU16 && value == ValueKind::kDb) EXPECT_EQ(share, 0);
          EXPECT_TRUE(outcome.scan.warnings.empty()) << outcome.scan.warnings[0];
        }
      }
    }
  }
}

TEST_P(DefaultsClipTest, LessThanOnePercentOfTwelveBitsInSixteen) {
  std::vector<Pattern> patterns = {{.ascans_per_bscan = 30,
                                    .bscans_per_volume = 6,
                                    .volumes = 2,
                                    .bidirectional = true,
                                    .flyback_records = 3}};
  Pattern averaged{.ascans_per_bscan = 30, .bscans_per_volume = 4, .volumes = 2};
  averaged.kind = PatternKind::kRepeatedRaster;
  averaged.repeat_count = averaged.repeat_period = 2;
  averaged.repeat_strategy = RepeatStrategy::kAverage;
  patterns.push_back(averaged);
  Pattern spiral{.ascans_per_bscan = 30,
                 .bscans_per_volume = 6,
                 .volumes = 2,
                 .volume_flyback_records = 5,
                 .kind = PatternKind::kSpiral};
  spiral.radius_end_mm = 1;
  patterns.push_back(spiral);
  for (const Pattern& pattern : patterns) {
    for (const int64_t samples : {128, 1000}) {
      for (const auto& change : std::vector<std::function<void(ScanSpec&)>>{
               [](ScanSpec&) {}, [](ScanSpec& s) { SetType(s, DType::kU8); },
               [](ScanSpec& s) { SetType(s, DType::kU8), s.acquisition.adc_bits = 12; },
               [](ScanSpec& s) {
                 SetType(s, DType::kI8), s.processing.background = BackgroundMode::kRolling;
               },
               [](ScanSpec& s) {
                 SetType(s, DType::kU8), s.processing.background = BackgroundMode::kBscan;
               },
               [](ScanSpec& s) {
                 SetType(s, DType::kU8),
                     s.processing.fft_length = 2 * s.acquisition.samples_per_record;
               },
               [](ScanSpec& s) {
                 SetType(s, DType::kU8),
                     s.processing.window = 1 + static_cast<int>(WindowKind::kBlackman);
               },
               [](ScanSpec& s) {
                 SetType(s, DType::kU8),
                     s.processing.fixed_pattern_noise = FixedPatternNoise::kQuietSegment;
               },
               [](ScanSpec& s) {
                 SetType(s, DType::kU8), s.processing.value = ValueKind::kMagnitude,
                                         s.acquisition.adc_bits = 12,
                                         s.processing.background = BackgroundMode::kBscan;
               }}) {
        const KnownRecords records(FreshSeed(), samples);
        const ResolvedScan scan = ResolvedKnown(pattern, [&](ScanSpec& s) {
          s.source = PushSource();
          s.acquisition.samples_per_record = samples;
          s.processing.has_levels = s.processing.dtype_given = false;
          s.processing.dispersion_a2 = 0;
          change(s);
        });
        const RunOutcome outcome = SessionRun::Run(
            {&device_}, scan,
            std::make_unique<KnownSource>(records, scan.volume_records * 2, nullptr, nullptr));
        EXPECT_LT(ClippedShare(outcome), 0.01)
            << Info(scan.chain.output).name << ", levels " << scan.chain.level_lo << " to "
            << scan.chain.level_hi;
      }
    }
  }
}

// Levels that clip give one warning, which names levels that do not.
TEST_P(DefaultsClipTest, AWarningNamesLevelsThatDoNotClip) {
  const Pattern pattern{.ascans_per_bscan = 20, .bscans_per_volume = 10, .volumes = 3};
  const KnownRecords records(FreshSeed(), 64);
  const auto run = [&](float lo, float hi) {
    const ResolvedScan scan = ResolvedKnown(pattern, [&](ScanSpec& s) {
      s.processing.has_levels = true;
      s.processing.level_lo = lo;
      s.processing.level_hi = hi;
      SetType(s, DType::kU8);
    });
    return std::pair(scan,
                     SessionRun::Run({&device_}, scan,
                                     std::make_unique<KnownSource>(records, scan.volume_records * 3,
                                                                   nullptr, nullptr)));
  };
  const auto [clipping, told] = run(10, 30);
  ASSERT_EQ(told.scan.warnings.size(), 1u) << "one for all volumes";
  EXPECT_GT(ClippedShare(told), 0.01);
  EXPECT_NE(told.scan.warnings[0].find("processing.levels 10 to 30"), std::string::npos)
      << told.scan.warnings[0];
  EXPECT_NE(told.scan.warnings[0].find(told.volumes[0].name), std::string::npos)
      << told.scan.warnings[0];
  float lo = 0, hi = 0;
  ASSERT_EQ(std::sscanf(told.scan.warnings[0].c_str() + told.scan.warnings[0].find("Levels "),
                        "Levels %f to %f clip nothing", &lo, &hi),
            2);
  const auto [wide, silent] = run(lo, hi);
  EXPECT_TRUE(silent.scan.warnings.empty());
  EXPECT_EQ(silent.scan.clipped_below + silent.scan.clipped_above, 0);
  // Noise with a mean 27 dB higher: some hundredths of a percent of its voxels are clipped, which
  // is not worth a warning.
  const auto [deep, quiet] = run(-12, 70);
  EXPECT_GT(quiet.scan.clipped_below, 0);
  EXPECT_LT(ClippedShare(quiet), 0.01);
  EXPECT_TRUE(quiet.scan.warnings.empty());
}

// The counts match the values exactly, volume by volume, for every pattern and any losses.
TEST_P(DefaultsClipTest, CountsAreThoseOfTheValues) {
  Pattern raster{.ascans_per_bscan = 12,
                 .bscans_per_volume = 11,
                 .volumes = 3,
                 .bidirectional = true,
                 .flyback_records = 3};
  Pattern averaged{.ascans_per_bscan = 12, .bscans_per_volume = 6, .volumes = 3};
  averaged.kind = PatternKind::kRepeatedRaster;
  averaged.repeat_count = averaged.repeat_period = 2;
  averaged.repeat_strategy = RepeatStrategy::kAverage;
  for (const Pattern& pattern : {raster, averaged}) {
    const KnownRecords records(FreshSeed(), 64);
    const auto run = [&](DType dtype) {
      const ResolvedScan scan = ResolvedKnown(pattern, [&](ScanSpec& s) {
        SetType(s, dtype);
        s.processing.has_levels = dtype == DType::kU8;
        s.processing.level_lo = 12;
        s.processing.level_hi = 35;
      });
      return SessionRun::Run(
          {&device_}, scan,
          std::make_unique<KnownSource>(records, scan.volume_records * 3 - 60, nullptr, nullptr));
    };
    const RunOutcome values = run(DType::kF32), bytes = run(DType::kU8);
    ASSERT_EQ(bytes.volumes.size(), 3u);
    std::set<int64_t> below;
    int64_t voxels = 0;
    for (size_t v = 0; v < 3; ++v) {
      const VolumeStatus& volume = bytes.volumes[v];
      std::vector<float> all(values.voxels[v].size() / 4);
      std::memcpy(all.data(), values.voxels[v].data(), values.voxels[v].size());
      int64_t wanted_below = 0, wanted_above = 0, doubtful = 0;
      for (const float value : all) {
        if (std::isnan(value)) continue;  // missing
        const double x = (static_cast<double>(value) - 12) / 23 * 255;
        wanted_below += x <= -0.5;
        wanted_above += x >= 255.5;
        doubtful += std::abs(x + 0.5) < 2e-3 || std::abs(x - 255.5) < 2e-3;
      }
      EXPECT_GT(wanted_below, 0);
      EXPECT_GT(wanted_above, 0);
      EXPECT_NEAR(static_cast<double>(volume.clipped_below), static_cast<double>(wanted_below),
                  static_cast<double>(doubtful));
      EXPECT_NEAR(static_cast<double>(volume.clipped_above), static_cast<double>(wanted_above),
                  static_cast<double>(doubtful));
      voxels += (volume.shape[0] * volume.shape[1] - volume.missing_ascans) * volume.shape[2];
      below.insert(volume.clipped_below);
    }
    EXPECT_GT(bytes.volumes[2].missing_ascans, 0);
    EXPECT_GT(below.size(), 1u) << "each volume has its own";
    EXPECT_EQ(bytes.scan.voxels, voxels);
    EXPECT_EQ(values.scan.clipped_below + values.scan.clipped_above, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, DefaultsClipTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine

// The chain transforms records side by side, in plans that have more rows than there are records,
// in memory that still holds rows of earlier calls. A record's result must depend neither on the
// memory beyond the records nor on a neighbouring record that is not finite or far too large.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tests/gpu/spectral/spectral_fixture.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using testing::BaseConfig;
using testing::FreshSeed;
using testing::IsOk;
using testing::ModelDepth;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr uint32_t kUntouched = 0xA5A5A5A5u;

class SpectralRowsTest : public testing::SpectralTest {
 protected:
  static constexpr int64_t kMost = 9;

  // Lengths of every kind: powers of two, other fast lengths, primes, odd numbers, twice a prime,
  // and some random ones.
  static std::vector<int64_t> Lengths(size_t drawn) {
    std::vector<int64_t> lengths = {16,   17,   257,  501,  512,  513,  1000, 1001,
                                    1009, 1024, 1125, 1376, 2018, 2048, 2049};
    std::mt19937 random(FreshSeed());
    for (size_t i = 0; i < drawn; ++i)
      lengths.push_back(18 + static_cast<int64_t>(random() % 1200) * 2 + (i % 3 == 0 ? 0 : 1));
    return lengths;
  }

  // Runs the first `count` records of `raw` through the chain. Returns the bits of their f32
  // A-scans, out of kMost A-scans in all.
  std::vector<uint32_t> Run(SpectralProcessor& processor, const DeviceBuffer& raw, int64_t count,
                            int repeats = 1) {
    const SpectralConfig& c = processor.config();
    const DeviceBuffer volume = Poisoned(kMost * c.depth * 4);
    const SpectralTarget target{.volume = volume.data(), .volume_ascans = kMost};
    for (int i = 0; i < repeats; ++i) {
      EXPECT_THAT(processor.Process(stream_.ref(), raw.data(), count,
                                    {.raster = {kMost, 1, 0, false}, .first_record = 0}, target),
                  IsOk());
    }
    return Download<uint32_t>(volume, static_cast<size_t>(kMost * c.depth));
  }

  // Expects that A-scans [0, count) of two runs are equal, `except` excluded, and that the A-scans
  // after them were not written.
  static void ExpectSame(const SpectralConfig& c, const std::vector<uint32_t>& got,
                         const std::vector<uint32_t>& wanted, int64_t count, int64_t except = -1) {
    for (int64_t a = 0; a < kMost; ++a) {
      if (a == except) continue;
      for (int64_t z = 0; z < c.depth; ++z) {
        const auto at = static_cast<size_t>(a * c.depth + z);
        ASSERT_EQ(got[at], a < count ? wanted[at] : kUntouched)
            << "A-scan " << a << " of " << count << ", depth " << z << ": "
            << std::bit_cast<float>(got[at]) << ", alone " << std::bit_cast<float>(wanted[at]);
      }
    }
  }

  // kMost records; the memory behind them holds NaN.
  std::vector<float> Floats(const SpectralConfig& c) {
    MakeRecords(c, kMost, FreshSeed());
    std::vector<float> raw(static_cast<size_t>((kMost + 2) * c.samples_per_record), kNan);
    std::memcpy(raw.data(), bytes_.data(), bytes_.size());
    return raw;
  }

  // Runs `most` records of one constant through the chain, so that its memory holds them
  // afterwards.
  void Fill(SpectralProcessor& processor, float value, int repeats) {
    const SpectralConfig& c = processor.config();
    const int64_t most = c.max_records_per_block;
    const DeviceBuffer raw = Upload(std::vector<float>(
                           static_cast<size_t>(most * c.samples_per_record), value)),
                       volume = Poisoned(most * c.depth * 4);
    for (int i = 0; i < repeats; ++i) {
      EXPECT_THAT(processor.Process(stream_.ref(), raw.data(), most,
                                    {.raster = {most, 1, 0, false}, .first_record = 0},
                                    {.volume = volume.data(), .volume_ascans = most}),
                  IsOk());
    }
    EXPECT_THAT(stream_.ref().Synchronize(), IsOk());
  }
};

SpectralConfig FloatConfig(int64_t length, bool dispersion, int64_t most) {
  SpectralConfig c = BaseConfig(length);
  c.raw_type = DType::kF32;
  c.depth = length / 2 + 1;
  c.max_records_per_block = most;
  if (dispersion) c.phase_rad = MakeDispersionPhase(3e-5, 1e-8, length);
  return c;
}

// Plans for 9 and for 64 records, filled with 1 to 9 records. The memory of the plan is fresh, then
// full of NaN, then holds rows that were transformed in place until they overflowed.
TEST_P(SpectralRowsTest, NothingBeyondTheRecordsReachesThem) {
  size_t turn = 0;
  for (const int64_t length : Lengths(12)) {
    for (const int64_t most : {kMost, int64_t{64}}) {
      const bool dispersion = ++turn % 5 == 0;
      SCOPED_TRACE(std::to_string(length) + (dispersion ? " points with dispersion" : " points") +
                   ", plan for " + std::to_string(most));
      const SpectralConfig c = FloatConfig(length, dispersion, most);
      ASSERT_OK_AND_ASSIGN(auto processor, SpectralProcessor::Create(c, device_));
      const DeviceBuffer raw = Upload(Floats(c));
      std::vector<std::vector<uint32_t>> alone(1);
      for (int64_t count = 1; count <= kMost; ++count) {
        ASSERT_OK_AND_ASSIGN(auto fresh, SpectralProcessor::Create(c, device_));
        alone.push_back(Run(*fresh, raw, count));
      }
      std::vector<uint8_t> volume(alone[kMost].size() * 4);
      std::memcpy(volume.data(), alone[kMost].data(), volume.size());
      Compare(c, volume, kMost - 1, ModelDepth(c, Record(c, kMost - 1), {}));
      for (const float left : {kNan, 1e20f, 3e38f}) {
        for (int64_t count = 1; count <= kMost; ++count) {
          Fill(*processor, left, 1);
          ExpectSame(c, Run(*processor, raw, count), alone[static_cast<size_t>(count)], count);
          if (HasFatalFailure()) return;
        }
      }
      // Each call transforms the rows that no record fills once more, whatever they hold.
      Fill(*processor, 7, 1);
      for (const int64_t count : {1, 2, 5, 7}) {
        ExpectSame(c, Run(*processor, raw, count, 40), alone[static_cast<size_t>(count)], count);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(SpectralRowsTest, ABadRecordStaysByItself) {
  size_t turn = 0;
  std::mt19937 random(FreshSeed());
  for (const int64_t length : Lengths(12)) {
    const bool dispersion = ++turn % 4 == 0;
    SpectralConfig c = FloatConfig(length, dispersion, turn % 2 == 0 ? kMost : 40);
    if (turn % 3 == 0) testing::Warp(c, math::Interpolation::kCubic);
    SCOPED_TRACE(std::to_string(length) + (dispersion ? " points with dispersion" : " points"));
    ASSERT_OK_AND_ASSIGN(auto processor, SpectralProcessor::Create(c, device_));
    const std::vector<float> good = Floats(c);
    const DeviceBuffer good_raw = Upload(good);
    for (int64_t count = 1; count <= kMost; ++count) {
      const auto wanted = Run(*processor, good_raw, count);
      ExpectSame(c, Run(*processor, good_raw, count), wanted, count);  // and again
      for (int64_t bad = 0; bad < count; ++bad) {
        if (count < kMost && bad != static_cast<int64_t>(random() % static_cast<uint32_t>(count)))
          continue;
        for (const float value : {kNan, std::numeric_limits<float>::infinity(), 1e20f}) {
          std::vector<float> values = good;
          const auto begin = values.begin() + bad * length;
          if (value == 1e20f) {
            std::transform(begin, begin + length, begin, [](float v) { return v * 1e20f; });
          } else {
            *(begin + static_cast<int64_t>(random() % static_cast<uint32_t>(length / 3)) +
              length / 3) = value;  // where the window is not 0
          }
          const auto got = Run(*processor, Upload(values), count);
          ExpectSame(c, got, wanted, count, bad);
          if (HasFatalFailure()) return;
          for (int64_t z = 0; z < c.depth; ++z) {
            const auto at = static_cast<size_t>(bad * c.depth + z);
            const float v = std::bit_cast<float>(got[at]);
            ASSERT_TRUE(value == 1e20f ? got[at] != wanted[at] : !std::isfinite(v))
                << "a bad record gives " << v << " at depth " << z;
          }
        }
      }
    }
  }
}

// With transforms this long a block has several chunks; the last one does not fill its plan.
TEST_P(SpectralRowsTest, ChunksOfLongTransforms) {
  for (const int64_t length : {65537, 65536, 98301}) {
    SCOPED_TRACE(length);
    SpectralConfig c = FloatConfig(600, false, 64);
    c.fft_length = length;
    c.first_bin = 1000;
    c.depth = 50;
    const int64_t records = 53;
    MakeRecords(c, records, FreshSeed());
    std::vector<float> values(static_cast<size_t>(records * 600));
    std::memcpy(values.data(), bytes_.data(), bytes_.size());
    const auto run = [&](SpectralProcessor& processor, const std::vector<float>& from,
                         int64_t count) {
      const DeviceBuffer raw = Upload(from), volume = Poisoned(64 * c.depth * 4);
      EXPECT_THAT(processor.Process(stream_.ref(), raw.data(), count,
                                    {.raster = {64, 1, 0, false}, .first_record = 0},
                                    {.volume = volume.data(), .volume_ascans = 64}),
                  IsOk());
      return Download<uint32_t>(volume, static_cast<size_t>(64 * c.depth));
    };
    ASSERT_OK_AND_ASSIGN(auto fresh, SpectralProcessor::Create(c, device_));
    const auto wanted = run(*fresh, values, records);
    std::vector<uint8_t> volume(wanted.size() * 4);
    std::memcpy(volume.data(), wanted.data(), volume.size());
    for (const int64_t r : {int64_t{0}, records - 1})
      Compare(c, volume, r, ModelDepth(c, Record(c, r), {}));
    ASSERT_OK_AND_ASSIGN(auto processor, SpectralProcessor::Create(c, device_));
    (void)run(*processor, std::vector<float>(64 * 600, kNan), 64);
    EXPECT_EQ(run(*processor, values, records), wanted);
    for (const int64_t bad : {int64_t{0}, int64_t{32}, records - 2}) {
      std::vector<float> spoiled = values;
      spoiled[static_cast<size_t>(bad * 600 + 300)] = kNan;
      auto got = run(*processor, spoiled, records);
      const auto at = static_cast<int64_t>(bad * c.depth);
      std::copy_n(wanted.begin() + at, c.depth, got.begin() + at);
      EXPECT_EQ(got, wanted) << "record " << bad << " is not finite";
    }
  }
}

// Integers cannot be NaN; the worst case is a saturated record beside dark ones. Where two A-scans
// are the real and the imaginary part of one transform of bounded numbers, they affect each other
// only by its rounding: 1e-6 of full scale.
TEST_P(SpectralRowsTest, SaturatedNeighboursOfIntegers) {
  struct Input {
    DType raw_type;
    math::Packing packing = math::Packing::kNone;
    double top = 0;
  };
  size_t turn = 0;
  for (const int64_t length : {257, 509, 512, 1000, 1001, 1024, 1536, 2048, 2049, 3072, 4096}) {
    for (const Input& input : std::vector<Input>{{DType::kU8, {}, 255},
                                                 {DType::kU16, {}, 65535},
                                                 {DType::kI16, {}, 32767},
                                                 {DType::kU16, math::Packing::kLowFirst12, 4095}}) {
      SpectralConfig c = BaseConfig(length);
      c.raw_type = input.raw_type;
      c.packing = input.packing;
      c.max_records_per_block = ++turn % 2 == 0 ? kMost : 64;
      ASSERT_OK_AND_ASSIGN(auto processor, SpectralProcessor::Create(c, device_));
      SCOPED_TRACE(std::to_string(length) + " points of " + Info(c.raw_type).name + "\n" +
                   processor->Describe());
      const bool pairs =
          processor->Describe().find("two A-scans as one complex transform") != std::string::npos;
      MakeRecords(c, kMost, FreshSeed(), 1, 0, 1);  // at most 1/32 of the range
      const auto bytes = static_cast<size_t>(RecordBytes(c));
      std::vector<uint8_t> saturated(bytes, 0xFF);
      for (size_t i = 1; c.raw_type == DType::kI16 && i < bytes; i += 2) saturated[i] = 0x7F;
      const DeviceBuffer good = Upload(bytes_);
      std::vector<uint8_t> bright;
      for (int64_t r = 0; r < kMost; ++r)
        bright.insert(bright.end(), saturated.begin(), saturated.end());
      const DeviceBuffer all = Upload(bright);
      for (const int64_t count : {1, 2, 5, 8, 9}) {
        const auto wanted = Run(*processor, good, count);
        (void)Run(*processor, all, kMost);
        ExpectSame(c, Run(*processor, good, count), wanted,
                   count);  // rows kept from that run do not matter
        for (int64_t bad = 0; bad < count; bad += 3) {
          std::vector<uint8_t> spoiled = bytes_;
          std::copy(saturated.begin(), saturated.end(),
                    spoiled.begin() + bad * static_cast<int64_t>(bytes));
          const auto got = Run(*processor, Upload(spoiled), count);
          if (!pairs) {
            ExpectSame(c, got, wanted, count, bad);
          } else {
            for (size_t i = 0; i < static_cast<size_t>(count * c.depth); ++i) {
              if (static_cast<int64_t>(i) / c.depth == bad) continue;
              ASSERT_NEAR(std::bit_cast<float>(got[i]), std::bit_cast<float>(wanted[i]),
                          1e-6 * input.top)
                  << "record " << bad << " is saturated";
            }
          }
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, SpectralRowsTest,
                         ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

}  // namespace
}  // namespace octavo

// The rolling background depends on record numbers only. The tests check which records it contains,
// for any calls, gaps and non-finite records.

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
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

// Without a device: which parts of the groups arrived, and which of them a window adds, against the
// rule as it is written.
TEST(RollingWindowTest, WindowsAreWholeParts) {
  std::mt19937 random(FreshSeed());
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random()) % n; };
  for (int round = 0; round < 3000; ++round) {
    const int64_t volume = round % 7 == 0 ? RollingShape::kNoVolumes : 1 + below(60);
    const int64_t group = 1 + below(std::min<int64_t>(volume, 25));
    const RollingShape shape{.volume_records = volume,
                             .group_records = group,
                             .window_records = round % 5 == 0 ? 0 : 1 + below(90)};
    SCOPED_TRACE("volume " + std::to_string(volume) + " group " + std::to_string(group) +
                 " window " + std::to_string(shape.window_records));
    const int64_t ahead = 1 + below(5);  // groups whose parts are added before windows are read
    RollingWindow window(shape, std::max<int64_t>(1, shape.RingEntries(ahead)));
    std::vector<std::set<int64_t>> ring(static_cast<size_t>(window.entries()));
    std::set<int64_t> came;
    struct Wanted {
      int64_t end;
      RollingWindow::Entries entries;
      std::set<int64_t> local;
    };
    std::vector<Wanted> waiting;
    const auto check = [&] {
      for (const Wanted& w : waiting) {
        std::set<int64_t> got = w.local;
        for (int64_t i = 0; i < w.entries.count; ++i) {
          const auto& part = ring[static_cast<size_t>((w.entries.first + i) % window.entries())];
          for (const int64_t n : part) ASSERT_TRUE(got.insert(n).second) << n << " twice";
        }
        const int64_t begin =
            shape.window_records == 0 ? shape.GroupBegin(w.end - 1) : w.end - shape.window_records;
        ASSERT_EQ(got, std::set<int64_t>(came.lower_bound(begin), came.lower_bound(w.end)))
            << "the group that ends before " << w.end;
      }
      waiting.clear();
    };
    for (int64_t at = 0; at < 260;) {
      const int64_t end = shape.GroupEnd(at);
      ASSERT_EQ(shape.GroupBegin(at), at);
      ASSERT_LE(end - at, group);
      std::vector<int64_t> of_group;
      const bool lost = below(4) == 0;
      for (int64_t n = at; n < end; ++n) {
        if (!lost && below(8) > 0) of_group.push_back(n);
      }
      if (!of_group.empty()) {
        came.insert(of_group.begin(), of_group.end());
        int64_t cuts[RollingShape::kMostParts + 1];
        const int parts = shape.Parts(at, end, cuts);
        Wanted wanted{.end = end, .entries = {}, .local = {}};
        for (int i = 0; i < parts; ++i) {
          std::set<int64_t> part;
          for (const int64_t n : of_group) {
            if (n >= cuts[i] && n < cuts[i + 1]) part.insert(n);
          }
          if (part.empty()) continue;
          if (shape.LooksBack()) {
            const int64_t entry = window.Add(cuts[i]);
            ASSERT_EQ(window.Add(cuts[i]), entry) << "another device adds the same part";
            ring[static_cast<size_t>(entry)] = std::move(part);
          } else {
            wanted.local = std::move(part);
          }
        }
        if (shape.LooksBack()) {
          wanted.entries = window.WindowOf(end);
          for (int i = 0; i < parts; ++i) {  // another device ends the group later
            const bool there = std::any_of(of_group.begin(), of_group.end(), [&](int64_t n) {
              return n >= cuts[i] && n < cuts[i + 1];
            });
            if (there) (void)window.Add(cuts[i]);
          }
          const RollingWindow::Entries again = window.WindowOf(end);
          ASSERT_EQ(again.count, wanted.entries.count);
          if (again.count > 0) ASSERT_EQ(again.first, wanted.entries.first);
        }
        waiting.push_back(std::move(wanted));
        if (std::ssize(waiting) == ahead) ASSERT_NO_FATAL_FAILURE(check());
      }
      at = end;
    }
    ASSERT_NO_FATAL_FAILURE(check());
  }
}

class RollingTest : public testing::SpectralTest {
 protected:
  static constexpr int64_t kX = 18, kY = 4, kFlyback = 3, kLine = kX + kFlyback, kVolumeFlyback = 5,
                           kVolume = kY * kLine + kVolumeFlyback;
  static constexpr int64_t kVolumes = 3, kAscans = kX * kY;
  const math::RasterPlacement raster_{.ascans_per_bscan = kX,
                                      .bscans_per_volume = kY,
                                      .flyback_records = kFlyback,
                                      .bidirectional = true};

  // Records [begin, end) that arrived, across all volumes.
  using Range = std::pair<int64_t, int64_t>;

  // Sends the ranges, cut at random; the volumes lie one behind the other. `replace` > 0: another
  // processor takes over at the start of that volume.
  std::vector<uint8_t> Run(const SpectralConfig& c, const std::vector<Range>& came,
                           std::mt19937& random, int64_t most, int64_t replace = 0,
                           const SpectralConfig* other = nullptr) {
    const DeviceBuffer raw = Upload(bytes_);
    auto processor = *SpectralProcessor::Create(c, device_);
    std::vector<std::unique_ptr<SpectralProcessor>> before;
    const int64_t bytes = kAscans * c.depth * SizeOf(c.output);
    const DeviceBuffer volumes = Poisoned(kVolumes * bytes);
    size_t range = 0;
    int64_t at = came.empty() ? 0 : came[0].first;
    for (int64_t v = 0; v < kVolumes; ++v) {
      if (replace > 0 && v == replace) {
        before.push_back(std::move(processor));
        processor = *SpectralProcessor::Create(other != nullptr ? *other : c, device_);
        const auto goes_on = processor->Continue(stream_.ref(), *before.back());
        EXPECT_TRUE(goes_on.ok());
        EXPECT_EQ(*goes_on, other == nullptr);
      }
      EXPECT_THAT(processor->BeginVolume(stream_.ref()), IsOk());
      const SpectralTarget target{.volume = volumes.as<uint8_t>() + v * bytes,
                                  .volume_ascans = kAscans};
      while (range < came.size() && at < (v + 1) * kVolume) {
        const int64_t end = std::min(came[range].second, (v + 1) * kVolume);
        const int64_t count =
            std::min({end - at, 1 + static_cast<int64_t>(random() % static_cast<uint32_t>(most)),
                      c.max_records_per_block});
        // The block has memory of its own, so a read beyond its end is noticed.
        const DeviceBuffer block = Poisoned(count * RecordBytes(c));
        EXPECT_THAT(device_.CopyOnDevice(stream_.ref(), block.data(),
                                         raw.as<uint8_t>() + at * RecordBytes(c), block.bytes()),
                    IsOk());
        EXPECT_THAT(processor->Process(
                        stream_.ref(), block.data(), count,
                        {.raster = raster_, .volume = v, .first_record = at - v * kVolume}, target),
                    IsOk());
        EXPECT_THAT(stream_.ref().Synchronize(), IsOk());
        at += count;
        if (at == came[range].second && ++range < came.size()) at = came[range].first;
      }
      EXPECT_THAT(processor->EndVolume(stream_.ref()), IsOk());
    }
    if (processor->non_finite_records()) {
      uint64_t count = 0;
      EXPECT_THAT(device_.Download(stream_.ref(), HostSpan<uint64_t>(&count, 1),
                                   processor->non_finite_records()),
                  IsOk());
      EXPECT_THAT(stream_.ref().Synchronize(), IsOk());
      non_finite_ = static_cast<int64_t>(count);
    }
    return Download<uint8_t>(volumes, static_cast<size_t>(kVolumes * bytes));
  }

  static std::vector<Range> Gaps(std::mt19937& random, int gaps) {
    std::vector<bool> there(static_cast<size_t>(kVolumes * kVolume), true);
    for (int i = 0; i < gaps; ++i) {
      const auto begin = random() % there.size(), count = 1 + random() % 40;
      for (size_t r = begin; r < std::min(there.size(), begin + count); ++r) there[r] = false;
    }
    std::vector<Range> came;
    for (int64_t r = 0; r < std::ssize(there); ++r) {
      if (!there[static_cast<size_t>(r)]) continue;
      if (!came.empty() && came.back().second == r) {
        ++came.back().second;
      } else {
        came.emplace_back(r, r + 1);
      }
    }
    return came;
  }

  // The background of a record by the rule, in double precision. Non-finite numbers do not count.
  std::vector<double> Background(const SpectralConfig& c, const std::vector<Range>& came,
                                 int64_t record, int64_t since = 0) const {
    const int64_t volume = record / kVolume * kVolume,
                  group = volume + (record - volume) / c.background_group_records *
                                       c.background_group_records;
    const int64_t end = std::min(group + c.background_group_records, volume + kVolume);
    const int64_t begin = std::max(
        since, c.background_window_records == 0 ? group : end - c.background_window_records);
    std::vector<double> mean(static_cast<size_t>(c.samples_per_record), 0.0);
    double count = 0;
    for (const auto& [first, last] : came) {
      for (int64_t r = std::max(first, begin); r < std::min(last, end); ++r) {
        const std::vector<double> one = Record(c, r);
        if (!std::all_of(one.begin(), one.end(), [](double v) { return std::isfinite(v); }))
          continue;
        ++count;
        for (size_t j = 0; j < mean.size(); ++j) mean[j] += one[j];
      }
    }
    for (double& m : mean) m = count > 0 ? m / count : 0;
    return mean;
  }

  void CompareSome(const SpectralConfig& c, const std::vector<uint8_t>& got,
                   const std::vector<Range>& came, std::mt19937& random, int count,
                   int64_t since = 0, int64_t first = 0) {
    const int64_t bytes = kAscans * c.depth * SizeOf(c.output);
    for (int i = 0; i < count;) {
      const Range& range = came[random() % came.size()];
      const int64_t r = range.first + static_cast<int64_t>(random()) % (range.second - range.first),
                    ascan = math::RasterAscan(raster_, r % kVolume);
      if (++i > 20 * count) break;
      if (ascan < 0 || r < first) continue;
      const std::vector<double> record = Record(c, r);
      if (!std::all_of(record.begin(), record.end(),
                       [](double v) { return std::isfinite(v) && std::abs(v) < 1e6; }))
        continue;
      const std::vector<uint8_t> volume(got.begin() + r / kVolume * bytes,
                                        got.begin() + (r / kVolume + 1) * bytes);
      SCOPED_TRACE("record " + std::to_string(r));
      ASSERT_NO_FATAL_FAILURE(
          Compare(c, volume, ascan, ModelDepth(c, record, Background(c, came, r, since))));
    }
  }

  SpectralConfig Random(std::mt19937& random, int turn) const {
    const std::vector<int64_t> samples = {512, 500, 1024, 509, 512};
    SpectralConfig c = BaseConfig(samples[static_cast<size_t>(turn) % samples.size()]);
    c.background = math::Background::kRolling;
    c.volume_records = kVolume;
    const std::vector<int64_t> groups = {
        kLine, 1, 7, kVolume, 2 * kLine, 30, 1 + static_cast<int64_t>(random() % kVolume)};
    c.background_group_records = groups[static_cast<size_t>(turn / 2) % groups.size()];
    if (turn % 2 == 1)
      c.background_window_records = 1 + static_cast<int64_t>(random() % (5 * kVolume / 2));
    c.max_records_per_block = 1 + static_cast<int64_t>(random() % (2 * kVolume));
    switch (turn % 6) {
      case 1: c.raw_type = DType::kF32; break;
      case 2: c.raw_type = DType::kU8; break;
      case 3: c.packing = math::Packing::kLowFirst12; break;
      case 4: c.raw_type = DType::kI16, c.channels = 2, c.channel = 1; break;
      case 5: c.raw_type = DType::kF32, c.record_average = 2; break;
      default: break;
    }
    if (random() % 2 == 0)
      testing::Warp(
          c, random() % 2 == 0 ? math::Interpolation::kCubic : math::Interpolation::kLanczos);
    if (random() % 2 == 0) c.phase_rad = MakeDispersionPhase(3e-5, 0, c.samples_per_record);
    return c;
  }

  int64_t non_finite_ = 0;
};

// Random calls, gaps, groups and windows.
TEST_P(RollingTest, CutsChangeNoBit) {
  std::mt19937 random(FreshSeed());
  for (int turn = 0; turn < 28; ++turn) {
    const SpectralConfig c = Random(random, turn);
    SCOPED_TRACE("turn " + std::to_string(turn) + " " + std::string(Info(c.raw_type).name) +
                 " samples " + std::to_string(c.samples_per_record) + " group " +
                 std::to_string(c.background_group_records) + " window " +
                 std::to_string(c.background_window_records) + " block " +
                 std::to_string(c.max_records_per_block));
    MakeRecords(c, kVolumes * kVolume, FreshSeed());
    const std::vector<Range> came = Gaps(random, turn % 3 * 3);
    std::vector<uint8_t> first;
    for (const int64_t most : {int64_t{10000}, int64_t{1}, int64_t{11}, int64_t{60}}) {
      const std::vector<uint8_t> got = Run(c, came, random, most);
      if (first.empty()) {
        first = got;
        ASSERT_NO_FATAL_FAILURE(CompareSome(c, got, came, random, 12));
      }
      ASSERT_TRUE(got == first) << "calls of at most " << most << " records";
    }
  }
}

// A fixed pattern is computed from the whole B-scan, but each record keeps the background of its
// own group.
TEST_P(RollingTest, BscansOfSeveralGroups) {
  std::mt19937 random(FreshSeed());
  for (const int64_t group : {kLine, int64_t{5}, int64_t{1}, 2 * kLine, kLine - 2}) {
    SCOPED_TRACE("group " + std::to_string(group));
    SpectralConfig c = BaseConfig(256);
    c.background = math::Background::kRolling;
    c.volume_records = kVolume;
    c.background_group_records = group;
    c.fixed_pattern = math::FixedPattern::kMean;
    c.bscan_records = kX;
    c.max_records_per_block = kVolume;
    MakeRecords(c, kVolumes * kVolume, FreshSeed());
    std::vector<uint8_t> first;
    for (const int64_t most : {int64_t{10000}, int64_t{1}, int64_t{9}, int64_t{50}}) {
      const std::vector<uint8_t> got = Run(c, {{0, kVolumes * kVolume}}, random, most);
      if (first.empty()) {
        first = got;
        const int64_t line = kVolume + kLine;  // line 1 of volume 1
        std::vector<testing::Spectrum> spectra;
        for (int64_t x = 0; x < kX; ++x)
          spectra.push_back(ModelDepth(c, Record(c, line + x),
                                       Background(c, {{0, kVolumes * kVolume}}, line + x)));
        const testing::Spectrum pattern = testing::ModelPattern(c, spectra);
        const int64_t bytes = kAscans * c.depth * 4;
        const std::vector<uint8_t> volume(got.begin() + bytes, got.begin() + 2 * bytes);
        for (int64_t x = 0; x < kX; ++x) {
          for (size_t z = 0; z < pattern.size(); ++z)
            spectra[static_cast<size_t>(x)][z] -= pattern[z];
          ASSERT_NO_FATAL_FAILURE(Compare(c, volume, math::RasterAscan(raster_, kLine + x),
                                          spectra[static_cast<size_t>(x)]));
        }
      }
      ASSERT_TRUE(got == first) << "calls of at most " << most << " records";
    }
  }
}

// The error against double precision stays below -120 dB of full scale. Fringes, whose positions
// matter most, come in blocks of random lengths, with and without a fixed pattern, which needs the
// whole B-scan.
TEST_P(RollingTest, ErrorsStayBelow120Db) {
  std::mt19937 random(FreshSeed());
  for (const int64_t samples : {512, 1000, 1024, 4096, 16384}) {
    for (const auto kind : {math::Interpolation::kLinear, math::Interpolation::kCubic,
                            math::Interpolation::kLanczos}) {
      for (const bool pattern : {false, true}) {
        if (pattern && samples > 1024) continue;  // the model is slow
        SCOPED_TRACE(std::to_string(samples) + " samples, interpolation " +
                     std::to_string(static_cast<int>(kind)) + (pattern ? ", fixed pattern" : ""));
        SpectralConfig c = BaseConfig(samples);
        testing::Warp(c, kind);
        c.depth = std::min<int64_t>(c.depth, 512);
        c.background = math::Background::kRolling;
        c.volume_records = kVolume;
        c.background_group_records = kLine;
        c.max_records_per_block = kVolume;
        if (pattern) c.fixed_pattern = math::FixedPattern::kMean, c.bscan_records = kX;
        MakeRecords(c, kVolumes * kVolume, FreshSeed());
        for (int64_t r = 0; r < kVolumes * kVolume; ++r) {
          const double fringes =
              0.05 * static_cast<double>(samples) * (1 + static_cast<double>(random() % 80) / 10);
          for (int64_t j = 0; j < samples; ++j) {
            const auto v = static_cast<uint16_t>(std::lround(
                2047 + 2000 * std::cos(6.283185307179586 * fringes * static_cast<double>(j) /
                                       static_cast<double>(samples))));
            std::memcpy(bytes_.data() + (r * samples + j) * 2, &v, 2);
            values_[static_cast<size_t>(r * samples + j)] = v;
          }
        }
        const std::vector<Range> all = {{0, kVolumes * kVolume}};
        const std::vector<uint8_t> got = Run(c, all, random, 30);
        const int64_t line = kVolume + 2 * kLine,
                      bytes = kAscans * c.depth * 4;  // line 2 of volume 1
        const std::vector<double> background = Background(c, all, line);
        std::vector<testing::Spectrum> spectra;
        for (int64_t x = 0; x < kX; ++x) {
          if (!pattern && x % 6 > 0) continue;
          spectra.push_back(ModelDepth(c, Record(c, line + x), background));
        }
        const testing::Spectrum fixed = pattern ? testing::ModelPattern(c, spectra)
                                                : testing::Spectrum(static_cast<size_t>(c.depth));
        double worst = 0;
        for (size_t i = 0; i < spectra.size(); ++i) {
          const int64_t x = pattern ? static_cast<int64_t>(i) : 6 * static_cast<int64_t>(i),
                        ascan = math::RasterAscan(raster_, 2 * kLine + x);
          for (int64_t z = 0; z < c.depth; ++z) {
            const double wanted =
                std::abs(spectra[i][static_cast<size_t>(z)] - fixed[static_cast<size_t>(z)]);
            worst = std::max(worst, std::abs(NumberAt(DType::kF32, got.data() + bytes,
                                                      static_cast<size_t>(ascan * c.depth + z)) -
                                             wanted));
          }
        }
        EXPECT_LT(worst, 1e-6 * FullScale(c)) << 20 * std::log10(worst / FullScale(c)) << " dB";
      }
    }
  }
}

// A new processor with the same groups and windows continues the sums. With other groups or windows
// it starts them again.
TEST_P(RollingTest, SumsOutliveAReplacement) {
  std::mt19937 random(FreshSeed());
  for (const DType type : {DType::kU16, DType::kF32}) {
    SpectralConfig c = BaseConfig(512);
    c.raw_type = type;
    c.background = math::Background::kRolling;
    c.volume_records = kVolume;
    c.background_group_records = kLine;
    c.background_window_records = 100;
    MakeRecords(c, kVolumes * kVolume, FreshSeed());
    const std::vector<Range> all = {{0, kVolumes * kVolume}};
    const std::vector<uint8_t> whole = Run(c, all, random, 50);
    EXPECT_TRUE(Run(c, all, random, 30, /*replace=*/1) == whole);
    EXPECT_TRUE(Run(c, all, random, 30, /*replace=*/2) == whole);
    SpectralConfig other = c;
    other.background_window_records = 90;
    const std::vector<uint8_t> anew = Run(c, all, random, 40, /*replace=*/1, &other);
    ASSERT_NO_FATAL_FAILURE(
        CompareSome(other, anew, all, random, 10, /*since=*/kVolume, /*first=*/kVolume));
  }
}

// A record with a non-finite sample does not count. A huge record leaves no trace once it has left
// the window.
TEST_P(RollingTest, NothingStaysOfWhatIsNoNumberOrHuge) {
  std::mt19937 random(FreshSeed());
  for (const int64_t window : {int64_t{0}, int64_t{64}, int64_t{3}}) {
    for (const int64_t average : {1, 2}) {
      SCOPED_TRACE("window " + std::to_string(window) + " average " + std::to_string(average));
      SpectralConfig c = BaseConfig(256);
      c.raw_type = DType::kF32;
      c.record_average = average;
      c.background = math::Background::kRolling;
      c.volume_records = kVolume;
      c.background_group_records = 8;
      c.background_window_records = window;
      MakeRecords(c, kVolumes * kVolume, FreshSeed());
      const auto put = [&](int64_t record, int64_t sample, float v) {
        std::memcpy(bytes_.data() + record * RecordBytes(c) + sample * 4, &v, 4);
        values_[static_cast<size_t>(record * 256 + sample)] = static_cast<double>(v);
      };
      put(11, 0, std::numeric_limits<float>::quiet_NaN());
      put(12, 255, std::numeric_limits<float>::infinity());
      put(40, 77, -std::numeric_limits<float>::infinity());
      for (int64_t r = 80; r < 88; ++r)
        put(r, 3, std::numeric_limits<float>::quiet_NaN());  // a whole group
      for (int64_t j = 0; j < 256; ++j) put(20, j, 1e12f);
      const std::vector<Range> all = {{0, kVolumes * kVolume}};
      std::vector<uint8_t> first;
      for (const int64_t most : {int64_t{1000}, int64_t{5}}) {
        const std::vector<uint8_t> got = Run(c, all, random, most);
        EXPECT_EQ(non_finite_, 11);
        if (first.empty()) first = got;
        // Beyond the huge record's window, the tolerance for ordinary records holds.
        ASSERT_NO_FATAL_FAILURE(CompareSome(c, got, all, random, 20, 0,
                                            /*first=*/20 + std::max<int64_t>(8, window) + 8));
        ASSERT_EQ(got.size(), first.size());
        EXPECT_TRUE(got == first);
      }
    }
  }
}

// The mean of a B-scan also leaves non-finite records out.
TEST_P(RollingTest, TheMeanOfABscanIsOfNumbers) {
  SpectralConfig c = BaseConfig(256);
  c.raw_type = DType::kF32;
  c.background = math::Background::kBscan;
  c.bscan_records = kX;
  MakeRecords(c, kVolumes * kVolume, FreshSeed());
  const float bad = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(bytes_.data() + (kLine + 4) * RecordBytes(c) + 40, &bad, 4);
  std::mt19937 random(FreshSeed());
  const auto got = Run(c, {{0, kVolumes * kVolume}}, random, 40);
  EXPECT_EQ(non_finite_, 1);
  const std::vector<uint8_t> volume(got.begin(), got.begin() + kAscans * c.depth * 4);
  std::vector<double> mean(256, 0.0);
  for (int64_t x = 0; x < kX; ++x) {
    if (x == 4) continue;
    for (size_t j = 0; j < mean.size(); ++j)
      mean[j] += Record(c, kLine + x)[j] / static_cast<double>(kX - 1);
  }
  for (int64_t x = 0; x < kX; ++x) {
    if (x != 4)
      Compare(c, volume, math::RasterAscan(raster_, kLine + x),
              ModelDepth(c, Record(c, kLine + x), mean));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, RollingTest, ::testing::ValuesIn(testing::AvailableBackends()),
                         testing::BackendName);

}  // namespace
}  // namespace octavo

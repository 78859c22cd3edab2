// Parts of the chain that keep state: B-scans cut by blocks and gaps, and repeats.

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "tests/gpu/spectral/spectral_fixture.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using testing::BaseConfig;
using testing::IsError;
using testing::IsOk;
using testing::ModelDepth;
using testing::Spectrum;

class SpectralOptionsTest : public testing::SpectralTest {
 protected:
  static constexpr int64_t kX = 24, kY = 4, kFlyback = 3, kLine = kX + kFlyback;
  // Lines of kX records, each followed by kFlyback records that are dropped. `period` lines form
  // one repeat.
  static std::vector<BscanSpan> Lines(int64_t count, int64_t period) {
    std::vector<BscanSpan> spans;
    for (int64_t y = 0; y < count; ++y)
      spans.push_back({.first_record = y * kLine, .records = kX, .repeat = y / period});
    return spans;
  }
  const math::RasterPlacement raster_{.ascans_per_bscan = kX,
                                      .bscans_per_volume = kY,
                                      .flyback_records = kFlyback,
                                      .bidirectional = true};
};

// A B-scan's mean and pattern do not depend on where blocks end.
TEST_P(SpectralOptionsTest, BlocksCutBscansWithoutATrace) {
  for (const bool table : {false, true}) {
    for (const auto pattern : {math::FixedPattern::kNone, math::FixedPattern::kMean,
                               math::FixedPattern::kQuietSegment}) {
      SpectralConfig c = BaseConfig(256);
      c.background = math::Background::kBscan;
      c.fixed_pattern = pattern;
      c.bscan_records = kX;
      const int64_t records = kY * kLine, ascans = kX * kY;
      MakeRecords(c, records, 11, kLine, 5, 9);
      const DeviceBuffer raw = Upload(bytes_);
      std::vector<int32_t> places;
      for (int64_t r = 0; r < records; ++r)
        places.push_back(static_cast<int32_t>(math::RasterAscan(raster_, r)));
      const DeviceBuffer device_places = Upload(places);
      const std::vector<BscanSpan> spans = Lines(kY, kY);
      std::vector<uint8_t> whole;
      for (const std::vector<int64_t>& cuts : std::vector<std::vector<int64_t>>{
               {},
               {kLine},
               {5},
               {kX},
               {kX - 1, kX + 1},
               {30, 40, 45, 50, 60},
               {7, 14, 21, 28, 35, 42, 49, 56, 63, 70, 77, 84, 91, 98, 105}}) {
        ASSERT_OK_AND_ASSIGN(auto processor, SpectralProcessor::Create(c, device_));
        const DeviceBuffer volume = Poisoned(ascans * c.depth * 4);
        const SpectralTarget target{.volume = volume.data(), .volume_ascans = ascans};
        ASSERT_THAT(processor->BeginVolume(stream_.ref()), IsOk());
        std::vector<int64_t> ends = cuts;
        ends.push_back(records);
        int64_t begin = 0;
        for (const int64_t end : ends) {
          RecordPlacement placement{.raster = raster_, .first_record = begin};
          if (table)
            placement = {.first_record = begin,
                         .table = device_places.as<int32_t>() + begin,
                         .spans = spans.data(),
                         .span_count = kY};
          ASSERT_THAT(processor->Process(stream_.ref(), raw.as<uint8_t>() + begin * RecordBytes(c),
                                         end - begin, placement, target),
                      IsOk());
          begin = end;
        }
        ASSERT_THAT(processor->EndVolume(stream_.ref()), IsOk());
        const auto got = Download<uint8_t>(volume, static_cast<size_t>(ascans * c.depth * 4));
        if (whole.empty()) {
          whole = got;
          std::vector<Spectrum> line;
          for (int64_t x = 0; x < kX; ++x)
            line.push_back(ModelDepth(c, Record(c, kLine + x), Mean(c, kLine, kLine + kX)));
          const Spectrum fixed = pattern == math::FixedPattern::kNone
                                     ? Spectrum(static_cast<size_t>(c.depth))
                                     : testing::ModelPattern(c, line);
          for (int64_t x = 0; x < kX; ++x) {
            for (size_t z = 0; z < fixed.size(); ++z) line[static_cast<size_t>(x)][z] -= fixed[z];
            Compare(c, got, math::RasterAscan(raster_, kLine + x), line[static_cast<size_t>(x)]);
          }
        }
        ASSERT_EQ(got.size(), whole.size());
        for (size_t i = 0; i < got.size() / 4;
             ++i) {  // libraries may round differently in batches of another size
          ASSERT_NEAR(NumberAt(DType::kF32, got.data(), i), NumberAt(DType::kF32, whole.data(), i),
                      1e-7 * FullScale(c))
              << ::testing::PrintToString(cuts);
        }
      }
    }
  }
}

// A B-scan that lost records is processed with the mean of each piece that arrived. No data of one
// volume reaches the next.
TEST_P(SpectralOptionsTest, GapsLeaveWhatCameAndNothingStale) {
  SpectralConfig c = BaseConfig(256);
  c.background = math::Background::kBscan;
  c.bscan_records = kX;
  const int64_t records = kY * kLine, ascans = kX * kY;
  MakeRecords(c, records, 12);
  const DeviceBuffer raw = Upload(bytes_), volume = Poisoned(ascans * c.depth * 4);
  const SpectralTarget target{.volume = volume.data(), .volume_ascans = ascans};
  ASSERT_OK_AND_ASSIGN(auto processor, SpectralProcessor::Create(c, device_));
  ASSERT_THAT(processor->BeginVolume(stream_.ref()), IsOk());
  // All records of line 0; records 0 to 9 and 15 to 23 of line 1; none of line 2; records 2 to 19
  // of line 3, then nothing more.
  const std::vector<std::pair<int64_t, int64_t>> pieces = {
      {0, kLine + 10}, {kLine + 15, 2 * kLine}, {3 * kLine + 2, 3 * kLine + 20}};
  for (const auto& [begin, end] : pieces) {
    ASSERT_THAT(processor->Process(stream_.ref(), raw.as<uint8_t>() + begin * RecordBytes(c),
                                   end - begin, {.raster = raster_, .first_record = begin}, target),
                IsOk());
  }
  ASSERT_THAT(processor->EndVolume(stream_.ref()), IsOk());
  const auto got = Download<uint8_t>(volume, static_cast<size_t>(ascans * c.depth * 4));
  std::map<int64_t, std::pair<int64_t, int64_t>> came;  // from each record to its piece
  for (const auto& [begin, end] :
       std::vector<std::pair<int64_t, int64_t>>{{0, kX},
                                                {kLine, kLine + 10},
                                                {kLine + 15, kLine + kX},
                                                {3 * kLine + 2, 3 * kLine + 20}}) {
    for (int64_t r = begin; r < end; ++r) came[r] = {begin, end};
  }
  for (int64_t r = 0; r < records; ++r) {
    const int64_t ascan = math::RasterAscan(raster_, r);
    if (ascan < 0) continue;
    if (const auto piece = came.find(r); piece != came.end()) {
      Compare(c, got, ascan,
              ModelDepth(c, Record(c, r), Mean(c, piece->second.first, piece->second.second)));
    } else {
      EXPECT_EQ(got[static_cast<size_t>(ascan * c.depth * 4)], 0xA5)
          << "record " << r << " did not come";
    }
  }
  // The next volume begins in the middle of a line: it must not see what the chain kept of the last
  // volume.
  const DeviceBuffer next = Poisoned(ascans * c.depth * 4);
  const SpectralTarget next_target{.volume = next.data(), .volume_ascans = ascans};
  ASSERT_THAT(processor->Process(stream_.ref(), raw.data(), 5,
                                 {.raster = raster_, .first_record = 0}, target),
              IsOk());
  ASSERT_THAT(processor->BeginVolume(stream_.ref()), IsOk());
  ASSERT_THAT(processor->Process(stream_.ref(), raw.as<uint8_t>() + 20 * RecordBytes(c), 4,
                                 {.raster = raster_, .first_record = 20}, next_target),
              IsOk());
  ASSERT_THAT(processor->EndVolume(stream_.ref()), IsOk());
  const auto after = Download<uint8_t>(next, static_cast<size_t>(ascans * c.depth * 4));
  EXPECT_EQ(after[0], 0xA5);
  for (int64_t r = 20; r < 24; ++r)
    Compare(c, after, r, ModelDepth(c, Record(c, r), Mean(c, 20, 24)));
}

// Two lines at a time, repeated three times: the result is the mean power of the repeats that
// arrived.
TEST_P(SpectralOptionsTest, RepeatsAreAveragedAsPower) {
  constexpr int64_t kRepeats = 3, kPeriod = 2, kRun = kPeriod * kLine;
  for (const auto& [value, output] :
       std::vector<std::pair<math::Value, DType>>{{math::Value::kDb, DType::kF32},
                                                  {math::Value::kMagnitude, DType::kF32},
                                                  {math::Value::kPower, DType::kF32},
                                                  {math::Value::kDb, DType::kU8},
                                                  {math::Value::kMagnitude, DType::kF16}}) {
    for (const bool fixed_pattern : {false, true}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(value)) +
                   (fixed_pattern ? " less the fixed pattern" : ""));
      SpectralConfig c = BaseConfig(256);
      c.value = value;
      c.output = output;
      c.repeats = kRepeats;
      c.repeat_ascans = kPeriod * kX;
      c.max_records_per_block = kRepeats * kY * kLine;
      if (output == DType::kU8) c.has_levels = true, c.level_lo = -10, c.level_hi = 60;
      if (fixed_pattern) c.fixed_pattern = math::FixedPattern::kMean, c.bscan_records = kX;
      const int64_t records = kRepeats * kY * kLine, ascans = kX * kY, size = SizeOf(output);
      MakeRecords(c, records, 13);
      const DeviceBuffer raw = Upload(bytes_);
      // A-scan of each record: two lines three times, then the next two.
      std::vector<int32_t> places;
      for (int64_t r = 0; r < records; ++r) {
        const int64_t group = r / (kRun * kRepeats);
        places.push_back(static_cast<int32_t>(math::RasterAscan(raster_, group * kRun + r % kRun)));
      }
      const DeviceBuffer device_places = Upload(places);
      const std::vector<BscanSpan> spans = Lines(kRepeats * kY, kPeriod);
      ASSERT_OK_AND_ASSIGN(auto processor, SpectralProcessor::Create(c, device_));
      // Two volumes: the first with all records; the second without the first repeat of the first
      // lines and without half a line elsewhere.
      const std::vector<std::vector<std::pair<int64_t, int64_t>>> volumes = {
          {{0, 100}, {100, 101}, {101, records}},
          {{kRun, kRun + kLine}, {kRun + kLine + 12, records - 2 * kRun - 7}}};
      for (const auto& pieces : volumes) {
        const DeviceBuffer volume = Poisoned(ascans * c.depth * size);
        const SpectralTarget target{.volume = volume.data(), .volume_ascans = ascans};
        ASSERT_THAT(processor->BeginVolume(stream_.ref()), IsOk());
        std::map<int64_t, std::vector<int64_t>> came;  // from each A-scan to its records
        for (const auto& [begin, end] : pieces) {
          ASSERT_THAT(processor->Process(stream_.ref(), raw.as<uint8_t>() + begin * RecordBytes(c),
                                         end - begin,
                                         {.first_record = begin,
                                          .table = device_places.as<int32_t>() + begin,
                                          .spans = spans.data(),
                                          .span_count = static_cast<int64_t>(spans.size())},
                                         target),
                      IsOk());
          for (int64_t r = begin; r < end; ++r) {
            if (places[static_cast<size_t>(r)] >= 0)
              came[places[static_cast<size_t>(r)]].push_back(r);
          }
        }
        ASSERT_THAT(processor->EndVolume(stream_.ref()), IsOk());
        const auto got = Download<uint8_t>(volume, static_cast<size_t>(ascans * c.depth * size));
        // The piece that contains record r and arrived without a gap within its line. Its fixed
        // pattern is computed from this piece.
        const auto pattern_of = [&](int64_t r) {
          for (const auto& [begin, end] : pieces) {
            if (r < begin || r >= end) continue;
            const int64_t y = r / kLine;
            int64_t first = std::max(begin, y * kLine), last = std::min(end, y * kLine + kX);
            if (begin == 100 || begin == 101 || end == 100)
              first = y * kLine, last = y * kLine + kX;  // contiguous calls
            std::vector<Spectrum> line;
            for (int64_t i = first; i < last; ++i) line.push_back(ModelDepth(c, Record(c, i), {}));
            return testing::ModelPattern(c, line);
          }
          return Spectrum();
        };
        for (int64_t ascan = 0; ascan < ascans; ascan += 5) {
          if (came[ascan].empty()) {
            EXPECT_EQ(got[static_cast<size_t>(ascan * c.depth * size)], 0xA5);
            continue;
          }
          std::vector<double> power(static_cast<size_t>(c.depth), 0.0);
          for (const int64_t r : came[ascan]) {
            const Spectrum spectrum = ModelDepth(c, Record(c, r), {}),
                           pattern = fixed_pattern ? pattern_of(r) : Spectrum(power.size());
            for (size_t z = 0; z < power.size(); ++z)
              power[z] +=
                  std::norm(spectrum[z] - pattern[z]) / static_cast<double>(came[ascan].size());
          }
          Compare(c, got, ascan, power);
        }
      }
    }
  }
}

TEST_P(SpectralOptionsTest, RefusesPlacementsThatLackWhatTheOptionsNeed) {
  SpectralConfig c = BaseConfig(256);
  c.background = math::Background::kBscan;
  c.bscan_records = kX;
  MakeRecords(c, 10, 1);
  const DeviceBuffer raw = Upload(bytes_), volume = Poisoned(kX * c.depth * 4),
                     places = Upload(std::vector<int32_t>(10, 0));
  const SpectralTarget target{.volume = volume.data(), .volume_ascans = kX};
  ASSERT_OK_AND_ASSIGN(auto processor, SpectralProcessor::Create(c, device_));
  EXPECT_THAT(
      processor->Process(stream_.ref(), raw.data(), 10, {.table = places.as<int32_t>()}, target),
      IsError(absl::StatusCode::kInvalidArgument, "placement.spans"));
  EXPECT_THAT(processor->Process(stream_.ref(), raw.data(), 10,
                                 {.raster = raster_, .first_record = -1}, target),
              IsError(absl::StatusCode::kInvalidArgument, "placement.first_record"));
  const BscanSpan longer{.first_record = 0, .records = kX + 1};
  EXPECT_THAT(processor->Process(stream_.ref(), raw.data(), 10,
                                 {.table = places.as<int32_t>(), .spans = &longer, .span_count = 1},
                                 target),
              IsError(absl::StatusCode::kInvalidArgument, "placement.spans.records"));
  EXPECT_THAT(stream_.ref().Synchronize(), IsOk());  // before the buffers are freed
}

// B-scans of different lengths with flyback of different lengths, which patterns other than rasters
// have.
TEST_P(SpectralOptionsTest, BscansOfAnyLength) {
  SpectralConfig c = BaseConfig(256);
  c.background = math::Background::kBscan;
  c.fixed_pattern = math::FixedPattern::kMean;
  c.bscan_records = 40;
  const std::vector<BscanSpan> spans = {
      {.first_record = 2, .records = 10}, {.first_record = 15, .records = 40},
      {.first_record = 55, .records = 7}, {.first_record = 62, .records = 7},
      {.first_record = 69, .records = 7}, {.first_record = 80, .records = 7}};
  const int64_t records = 100, ascans = 78;
  MakeRecords(c, records, 17);
  std::vector<int32_t> places(static_cast<size_t>(records), -1);
  int32_t next = 0;
  for (const BscanSpan& span : spans) {
    for (int64_t r = 0; r < span.records; ++r)
      places[static_cast<size_t>(span.first_record + r)] = next++;
  }
  ASSERT_EQ(next, ascans);
  const DeviceBuffer raw = Upload(bytes_), device_places = Upload(places),
                     volume = Poisoned(ascans * c.depth * 4);
  const SpectralTarget target{.volume = volume.data(), .volume_ascans = ascans};
  ASSERT_OK_AND_ASSIGN(auto processor, SpectralProcessor::Create(c, device_));
  ASSERT_THAT(processor->BeginVolume(stream_.ref()), IsOk());
  for (const auto& [begin, end] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {1, 30}, {30, 66}, {66, 95}, {95, 100}}) {
    ASSERT_THAT(
        processor->Process(stream_.ref(), raw.as<uint8_t>() + begin * RecordBytes(c), end - begin,
                           {.first_record = begin,
                            .table = device_places.as<int32_t>() + begin,
                            .spans = spans.data(),
                            .span_count = static_cast<int64_t>(spans.size())},
                           target),
        IsOk());
  }
  ASSERT_THAT(processor->EndVolume(stream_.ref()), IsOk());
  const auto got = Download<uint8_t>(volume, static_cast<size_t>(ascans * c.depth * 4));
  for (const BscanSpan& span : spans) {
    std::vector<Spectrum> line;
    for (int64_t r = 0; r < span.records; ++r) {
      line.push_back(ModelDepth(c, Record(c, span.first_record + r),
                                Mean(c, span.first_record, span.first_record + span.records)));
    }
    const Spectrum pattern = testing::ModelPattern(c, line);
    for (int64_t r = 0; r < span.records; ++r) {
      for (size_t z = 0; z < pattern.size(); ++z) line[static_cast<size_t>(r)][z] -= pattern[z];
      Compare(c, got, places[static_cast<size_t>(span.first_record + r)],
              line[static_cast<size_t>(r)]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, SpectralOptionsTest,
                         ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

}  // namespace
}  // namespace octavo

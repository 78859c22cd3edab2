#include "server/scan/block_pipeline.h"

#include "tests/support/scan/builder_parts.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsOk;
using octavo::testing::SharedDevice;
using testing::BuilderParts;
using testing::Captures;
using testing::KnownRecords;
using testing::ResolvedKnown;

constexpr int64_t kSamples = 64, kVolume = 80;

/// Delivers known records in blocks of given numbers, and ends with `end`.
class Scripted final : public Source {
 public:
  explicit Scripted(std::vector<std::pair<int64_t, int64_t>> blocks,
                    absl::Status end = absl::OkStatus())
      : blocks_(std::move(blocks)), end_(std::move(end)) {}
  absl::StatusOr<SourceBlock> Next(void* slot, int64_t most, std::stop_token) override {
    if (next_ == blocks_.size()) {
      if (!end_.ok()) return end_;
      return SourceBlock{};
    }
    auto& [begin, left] = blocks_[next_];
    const SourceBlock block{.first_record = begin, .records = std::min(left, most)};
    for (int64_t r = 0; r < block.records; ++r)
      records_.Write(begin + r, static_cast<uint16_t*>(slot) + r * kSamples);
    begin += block.records;
    left -= block.records;
    next_ += left == 0;
    return block;
  }
  absl::StatusOr<SourceBlock> Skip(int64_t, std::stop_token) override {
    return absl::InternalError("this source waits");
  }
  bool CanWait() const override { return true; }

 private:
  const KnownRecords records_{3, kSamples};
  std::vector<std::pair<int64_t, int64_t>> blocks_;  // first, records
  const absl::Status end_;
  size_t next_ = 0;
};

/// The compute thread's part of a scan, without a session: every step runs on this thread, one
/// after the other. Volumes of 8 B-scans of 10 A-scans.
class PipelineRun : public BuilderParts {
 public:
  PipelineRun(int64_t count, std::vector<std::pair<int64_t, int64_t>> script,
              absl::Status end = absl::OkStatus())
      : BuilderParts(
            ResolvedKnown({.ascans_per_bscan = 10, .bscans_per_volume = 8, .volumes = count},
                          [](ScanSpec& spec) {
                            spec.acquisition.ring_blocks = 32;
                            Captures(4)(spec);
                          }),
            /*source_waits=*/true),
        acquirer_(std::make_unique<Scripted>(std::move(script), std::move(end)), of.scan,
                  &of.progress),
        products_(of.scan, &lanes,
                  {.scan = "scans/x",
                   .publisher = &of.publisher,
                   .frames = std::make_shared<FramePool>(&SharedDevice("host"), 16 << 20),
                   .source_waits = true}),
        pipeline_(of.scan, {.scan = "scans/x",
                            .clock = &of.clock,
                            .acquirer = &acquirer_,
                            .lanes = &lanes,
                            .builder = &builder,
                            .products = &products_,
                            .completions = &completions_,
                            .events = &of.events,
                            .progress = &of.progress,
                            .life = &of.life}) {
    EXPECT_THAT(acquirer_.Allocate(SharedDevice("host")), IsOk());
    EXPECT_THAT(products_.Allocate(), IsOk());
    EXPECT_THAT(completions_.Allocate(SharedDevice("host"), 64, 1, false), IsOk());
    acquirer_.Run({}, {});
    pipeline_.Run([this] { ++stops_; });
    completions_.Close();
    for (Completion item; completions_.Next(&item); completions_.Recycle(item)) {
      EXPECT_THAT(completions_.Wait(item), IsOk());
      EXPECT_GE(item.event, 0);
      if (item.volume != nullptr) {
        volumes.push_back(item.volume->index);
        missing.push_back(item.volume->status.missing_ascans);
        frames.push_back(static_cast<int64_t>(item.frames.size()));
        item.volume->slot = nullptr;
      } else {
        ++blocks;
        records += item.records;
      }
    }
    (void)lanes.Synchronize();
    EXPECT_EQ(stops_, 1);
  }
  Reason EndCode() { return of.Status().reason_code; }

  std::vector<int64_t> volumes, missing, frames;
  int64_t blocks = 0, records = 0;

 private:
  Acquirer acquirer_;
  CompletionQueue completions_;
  ProductMaker products_;
  BlockPipeline pipeline_;
  int stops_ = 0;
};

using Numbers = std::vector<int64_t>;

TEST(BlockPipelineTest, BlocksThatSpanVolumesCompleteThem) {
  PipelineRun run(3, {{0, 50}, {50, 50}, {100, 50}, {150, 50}, {200, 40}});
  EXPECT_EQ(run.volumes, (Numbers{0, 1, 2}));
  EXPECT_EQ(run.missing, (Numbers{0, 0, 0}));
  EXPECT_EQ(run.frames, (Numbers{2, 2, 2}));  // MIP and AIP
  EXPECT_EQ(run.records, 240);
  EXPECT_EQ(run.EndCode(), Reason::kCompleted);
  EXPECT_EQ(run.of.progress.missing_ascans, 0);
}

TEST(BlockPipelineTest, RecordsThatCameAlreadyOrHaveNoPlaceAreCounted) {
  PipelineRun run(2, {{-5, 15}, {10, 40}, {30, 40}, {300, 10}, {70, 50}, {120, 40}});
  EXPECT_EQ(run.of.progress.out_of_range_records, 5 + 10);
  EXPECT_EQ(run.of.progress.duplicate_records, 20);
  EXPECT_EQ(run.volumes, (Numbers{0, 1}));
  EXPECT_EQ(run.missing, (Numbers{0, 0}));
}

TEST(BlockPipelineTest, AGapEndsTheVolumeBeforeItAndWhatIsLostIsMissing) {
  PipelineRun run(3, {{0, 50}, {170, 50}, {220, 20}});
  EXPECT_EQ(run.volumes, (Numbers{0, 2}));
  EXPECT_EQ(run.missing, (Numbers{30, 10}));
  EXPECT_EQ(run.of.progress.missing_ascans, 30 + kVolume + 10);
  EXPECT_EQ(run.of.Status().volumes_dropped, 1);
}

TEST(BlockPipelineTest, ASourceThatEndsLeavesAPartOfAVolume) {
  PipelineRun run(2, {{0, 50}});
  EXPECT_EQ(run.volumes, (Numbers{0}));
  EXPECT_EQ(run.missing, (Numbers{30}));
  EXPECT_EQ(run.EndCode(), Reason::kSourceEnded);
}

TEST(BlockPipelineTest, AScanSaysWhyItsSourceFailed) {
  for (const Reason reason :
       {Reason::kSourceRead, Reason::kSourceLost, Reason::kCameraError, Reason::kCameraChanged}) {
    PipelineRun run(
        2, {{0, 50}},
        WithInfo(absl::DataLossError("the cable"), {.reason = reason, .field = "", .numbers = {}}));
    EXPECT_EQ(run.EndCode(), reason);
  }
  EXPECT_EQ(PipelineRun(2, {{0, 50}}, absl::DataLossError("the cable")).EndCode(),
            Reason::kSourceError)
      << "a source without a reason of its own";
}

}  // namespace
}  // namespace octavo::engine

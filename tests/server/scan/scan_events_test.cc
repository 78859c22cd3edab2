#include "server/scan/scan_events.h"

#include <deque>

#include "tests/support/scan/scan_parts.h"

namespace octavo::engine {
namespace {

using testing::ResolvedKnown;
using testing::ScanSurroundings;

// 4 B-scans of 6 A-scans and 2 records of flyback: 32 records per volume.
ResolvedScan FewRecords() {
  return ResolvedKnown(
      {.ascans_per_bscan = 6, .bscans_per_volume = 4, .volumes = 2, .flyback_records = 2});
}

/// Has markers and no records.
class Marked final : public Source {
 public:
  explicit Marked(std::deque<SourceMark> marks) : marks_(std::move(marks)) {}
  absl::StatusOr<SourceBlock> Next(void*, int64_t, std::stop_token) override {
    return SourceBlock{};
  }
  absl::StatusOr<SourceBlock> Skip(int64_t, std::stop_token) override { return SourceBlock{}; }
  bool CanWait() const override { return true; }
  std::vector<SourceMark> TakeMarks(int64_t record) override {
    std::vector<SourceMark> taken;
    for (; !marks_.empty() && marks_.front().record < record; marks_.pop_front())
      taken.push_back(marks_.front());
    return taken;
  }

 private:
  std::deque<SourceMark> marks_;
};

std::shared_ptr<Subscription> SubscribeToEvents(Publisher& publisher) {
  auto subscription = publisher.Subscribe(
      {.products = {Product::kEvent}, .delivery = Delivery::kDropOldest, .queue_length = 1024},
      [] {});
  EXPECT_THAT(subscription.status(), octavo::testing::IsOk());
  return *std::move(subscription);
}

TEST(ScanEventsTest, TheLastOnesAreListedAndNumbered) {
  ScanSurroundings of(FewRecords());
  for (int i = 0; i < 70; ++i)
    of.events.Record({.kind = EventKind::kMarker, .text = std::to_string(i)});
  ScanStatus status;
  of.events.AddTo(&status);
  EXPECT_EQ(status.event_count, 70u);
  ASSERT_EQ(status.events.size(), 64u);
  EXPECT_EQ(status.events.front().text, "6");
  EXPECT_EQ(status.events.front().number, 6u);
  EXPECT_EQ(status.events.back().number, 69u);
}

TEST(ScanEventsTest, PublishedOnesAreListedAndSent) {
  ScanSurroundings of(FewRecords());
  of.publisher.ScanStarted("scans/x", {}, {});
  const auto subscription = SubscribeToEvents(of.publisher);
  of.events.Record({.kind = EventKind::kVolumeDone, .text = "listed"});
  of.events.Publish({.kind = EventKind::kSource, .text = "sent"});
  EXPECT_TRUE(of.events.PublishIf([] { return true; }, {.text = "happened"}));
  EXPECT_FALSE(of.events.PublishIf([] { return false; }, {.text = "did not"}));
  std::vector<std::string> sent, listed;
  for (Delivered next; subscription->Take(&next);) sent.push_back(next.frame->event.text);
  for (const ScanEvent& event : of.Events()) listed.push_back(event.text);
  EXPECT_EQ(sent, (std::vector<std::string>{"sent", "happened"}));
  EXPECT_EQ(listed, (std::vector<std::string>{"listed", "sent", "happened"}));
}

TEST(ScanEventsTest, AWarningCountsOnceAndManyAreOnlyLogged) {
  ScanSurroundings of(FewRecords());
  of.events.Warn("one");
  of.events.Warn("one");
  EXPECT_EQ(of.told.changes, 1);
  EXPECT_EQ(of.events.Warnings(), (std::vector<std::string>{"one"}));
  of.events.WarnOfCommit("of a commit");
  EXPECT_EQ(of.events.Warnings(), (std::vector<std::string>{"one", "of a commit"}));
  EXPECT_EQ(of.events.WarningsOfData(), (std::vector<std::string>{"one"}));
  for (int i = 0; i < 100; ++i) of.events.Warn(std::to_string(i));
  EXPECT_EQ(of.events.Warnings().size(), ScanEvents::kWarningsKept);
}

TEST(ScanEventsTest, ClippingIsToldOnceForEachProcessing) {
  ScanSurroundings of(FewRecords());
  VolumeStatus volume;
  volume.origin = std::make_shared<const ResolvedScan>(of.scan);
  volume.clipped_below = 10;
  of.events.WarnOfClipping(volume, 1000);  // one in a hundred is below the limit
  EXPECT_TRUE(of.events.Warnings().empty());
  volume.clipped_above = 1;
  of.events.WarnOfClipping(volume, 1000);
  EXPECT_EQ(of.told.changes, 1);
  volume.clipped_above = 500;  // another text for the same processing
  of.events.WarnOfClipping(volume, 1000);
  EXPECT_EQ(of.told.changes, 1);
  volume.origin = std::make_shared<const ResolvedScan>(of.scan);
  of.events.WarnOfClipping(volume, 1000);
  EXPECT_EQ(of.told.changes, 2);
}

// A scan that has ended stays listed, and the processing of its volumes takes megabytes.
TEST(ScanEventsTest, TheProcessingOfAClippedVolumeIsNotKept) {
  ScanSurroundings of(FewRecords());
  VolumeStatus volume;
  volume.origin = std::make_shared<const ResolvedScan>(of.scan);
  volume.clipped_below = 500;
  of.events.WarnOfClipping(volume, 1000);
  EXPECT_EQ(of.told.changes, 1);
  const std::weak_ptr<const ResolvedScan> processing = volume.origin;
  volume.origin = nullptr;
  EXPECT_TRUE(processing.expired());
  // The next one is told, wherever it lies in memory.
  volume.origin = std::make_shared<const ResolvedScan>(of.scan);
  volume.clipped_below = 600;
  of.events.WarnOfClipping(volume, 1000);
  EXPECT_EQ(of.told.changes, 2);
}

TEST(ScanEventsTest, GapsAndMarksOfTheSourceAreToldOnce) {
  ScanSurroundings of(FewRecords());
  Marked source({{.name = "a", .record = 3}, {.name = "b", .record = 40}});
  of.events.TellMarkers({.first_record = 0, .records = 10}, source);
  of.events.TellMarkers({.first_record = 5, .records = 5}, source);    // these arrived already
  of.events.TellMarkers({.first_record = 36, .records = 10}, source);  // 26 records lost
  of.events.TellMarkers({.first_record = 64, .records = 1}, source);   // belongs to no volume
  const std::vector<ScanEvent> events = of.Events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].marker, "a");
  EXPECT_EQ(events[0].record, 3);
  EXPECT_EQ(events[0].volume_index, 0);
  EXPECT_EQ(events[1].kind, EventKind::kGap);
  EXPECT_EQ(events[1].count, 26);
  EXPECT_EQ(events[1].record, 36);
  EXPECT_EQ(events[2].marker, "b");
  EXPECT_EQ(events[2].volume_index, 1);
  EXPECT_EQ(of.events.next_record(), 46);
  EXPECT_EQ(of.events.Mark("now").record, 46);
}

TEST(ScanEventsTest, MarkersOfRulesAreSentAndNotListed) {
  ScanSurroundings of(FewRecords());
  of.scan.spec.markers = {{.name = "line", .at = MarkerAt::kBscanStart, .every = 2, .offset = 1}};
  of.publisher.ScanStarted("scans/x", {}, {});
  const auto subscription = SubscribeToEvents(of.publisher);
  Marked source({});
  of.events.TellMarkers({.first_record = 0, .records = 20}, source);
  of.events.TellMarkers({.first_record = 20, .records = 44}, source);
  std::vector<int64_t> records;
  for (Delivered next; subscription->Take(&next);) records.push_back(next.frame->event.record);
  EXPECT_EQ(records, (std::vector<int64_t>{8, 24, 40, 56}));
  EXPECT_TRUE(of.Events().empty());
}

}  // namespace
}  // namespace octavo::engine

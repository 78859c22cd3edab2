#include "server/scan/scan_events.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"
#include "server/pattern/plan.h"
#include "server/processing/stored_form.h"
#include "server/scan/resolve_scan.h"

namespace octavo::scan {
namespace {

// Above this share of clipped voxels the levels hide more than noise. scan.proto
// (Processing.levels), gpu/README.md (What a voxel holds) and deploy/prometheus-rules.yml
// (OctavoVoxelsClipped) say the same.
constexpr double kClippedTold = 0.01;

/// The record of the scan at the `k`-th place of a rule.
int64_t PlaceOf(const model::ResolvedScan& scan, model::MarkerAt at, int64_t k) {
  if (at == model::MarkerAt::kRecord) return k;
  if (at == model::MarkerAt::kVolumeStart) return k * scan.volume_records;
  const pattern::Pattern& p = scan.spec.pattern;
  if (p.plan != nullptr) {
    const int64_t segments = std::ssize(p.plan->kind[0].segments), volume = k / segments;
    return volume * scan.volume_records +
           p.plan->Of(volume).segments[static_cast<size_t>(k % segments)].first_record;
  }
  return k / p.bscans_per_volume * scan.volume_records +
         k % p.bscans_per_volume * (p.ascans_per_bscan + p.flyback_records);
}

/// The first k whose place is not before `record`.
int64_t FirstAt(const model::ResolvedScan& scan, model::MarkerAt at, int64_t record) {
  if (at == model::MarkerAt::kRecord) return record;
  const int64_t volume = record / scan.volume_records;
  if (at == model::MarkerAt::kVolumeStart) return volume + (record % scan.volume_records != 0);
  const pattern::Pattern& p = scan.spec.pattern;
  if (p.plan != nullptr) {
    const auto& segments = p.plan->Of(volume).segments;
    const auto first = std::lower_bound(
        segments.begin(), segments.end(), record % scan.volume_records,
        [](const pattern::PatternSegment& s, int64_t r) { return s.first_record < r; });
    return volume * std::ssize(segments) + (first - segments.begin());
  }
  const int64_t line = p.ascans_per_bscan + p.flyback_records;
  return volume * p.bscans_per_volume +
         std::min(p.bscans_per_volume, (record % scan.volume_records + line - 1) / line);
}

}  // namespace

ScanEvents::ScanEvents(std::string name, const model::ResolvedScan& scan, const Clock* clock,
                       publish::Publisher* publisher, ScanObserver* observer)
    : name_(std::move(name)),
      scan_(scan),
      volume_records_(scan.volume_records),
      wanted_records_(RecordsWanted(scan)),
      clock_(clock),
      publisher_(publisher),
      observer_(observer) {}

model::ScanEvent ScanEvents::Publish(model::ScanEvent event) {
  if (event.time.monotonic_ns == 0) event.time = clock_->Now();
  MutexLock lock(event_mutex_);
  return RecordLocked(std::move(event), /*publish=*/true);
}

void ScanEvents::Record(model::ScanEvent event) {
  if (event.time.monotonic_ns == 0) event.time = clock_->Now();
  MutexLock lock(event_mutex_);
  RecordLocked(std::move(event), /*publish=*/false);
}

bool ScanEvents::PublishIf(const std::function<bool()>& happens, model::ScanEvent event) {
  MutexLock lock(event_mutex_);
  if (!happens()) return false;
  event.time = clock_->Now();
  RecordLocked(std::move(event), /*publish=*/true);
  return true;
}

model::ScanEvent ScanEvents::RecordLocked(model::ScanEvent event, bool publish) {
  event.number = count_++;
  recent_.push_back(event);
  if (recent_.size() > kEventsKept) recent_.pop_front();
  if (publish) PublishFrame(event);
  return event;
}

void ScanEvents::PublishFrame(const model::ScanEvent& event) {
  model::Frame frame;
  frame.parent = name_;
  frame.volume_index = event.volume_index;
  frame.product = model::Product::kEvent;
  frame.acquired = event.time;
  frame.event = event;
  frame.event.number = 0;  // frames have their own
  publisher_->Publish({.product = model::Product::kEvent}, std::move(frame));
}

model::ScanEvent ScanEvents::Mark(const std::string& marker) {
  const int64_t record = next_record_;
  return Publish({.kind = model::EventKind::kMarker,
                  .text = absl::StrCat("marker ", marker),
                  .volume_index = record / volume_records_,
                  .record = record,
                  .marker = marker});
}

void ScanEvents::TellMarkers(const source::SourceBlock& block, source::Source& source) {
  const int64_t end = block.first_record + block.records;
  // Skip: the records arrived earlier or belong to no volume.
  if (block.first_record < 0 || end <= next_record_ ||
      (wanted_records_ > 0 && block.first_record >= wanted_records_))
    return;
  if (const int64_t lost = block.first_record - next_record_; lost > 0) {
    Publish({.kind = model::EventKind::kGap,
             .text = absl::StrCat(lost, " records lost"),
             .volume_index = next_record_ / volume_records_,
             .record = block.first_record,
             .count = lost});
  }
  const int64_t average = scan_.chain.record_average;
  // The block's time is that of its last record.
  const double period_ns = scan_.source.record_rate_hz > 0
                               ? 1e9 * static_cast<double>(average) / scan_.source.record_rate_hz
                               : 0;
  const auto event_at = [&](const std::string& name, int64_t record) {
    const auto before = static_cast<int64_t>(static_cast<double>(end - 1 - record) * period_ns);
    return model::ScanEvent{
        .kind = model::EventKind::kMarker,
        .text = absl::StrCat("marker ", name),
        .volume_index = record / volume_records_,
        .record = record,
        .marker = name,
        .time = {block.acquired.monotonic_ns - before, block.acquired.unix_ns - before}};
  };
  for (const source::SourceMark& mark : source.TakeMarks(end * average))
    Publish(event_at(mark.name, mark.record / average));
  for (const model::MarkerRule& rule : scan_.spec.markers) {
    int64_t k = std::max(FirstAt(scan_, rule.at, block.first_record), rule.offset);
    k += (rule.every - (k - rule.offset) % rule.every) % rule.every;
    for (; PlaceOf(scan_, rule.at, k) < end; k += rule.every)
      PublishFrame(event_at(rule.name, PlaceOf(scan_, rule.at, k)));
  }
  next_record_ = end;
}

void ScanEvents::Warn(const std::string& text) {
  {
    MutexLock lock(warning_mutex_);
    if (std::find(warnings_.begin(), warnings_.end(), text) != warnings_.end()) return;
    if (warnings_.size() < kWarningsKept) warnings_.push_back(text);
  }
  Log(LogLevel::kWarning, "scan warning", {{"scan", name_}, {"text", text}});
  observer_->OnScanChanged(name_);
}

void ScanEvents::WarnOfCommit(const std::string& text) {
  Warn(text);
  MutexLock lock(warning_mutex_);
  if (std::find(warnings_.begin(), warnings_.end(), text) != warnings_.end())
    commit_warnings_.insert(text);
}

void ScanEvents::WarnOfClipping(const model::VolumeStatus& volume, int64_t voxels) {
  const auto clipped = static_cast<double>(volume.clipped_below + volume.clipped_above);
  const bool told =
      !clipping_told_.owner_before(volume.origin) && !volume.origin.owner_before(clipping_told_);
  if (clipped <= kClippedTold * static_cast<double>(voxels) || told) return;
  clipping_told_ = volume.origin;
  Warn(processing::DescribeClipping(volume, voxels));
}

std::vector<std::string> ScanEvents::Warnings() {
  MutexLock lock(warning_mutex_);
  return warnings_;
}

std::vector<std::string> ScanEvents::WarningsOfData() {
  MutexLock lock(warning_mutex_);
  std::vector<std::string> of_data;
  for (const std::string& text : warnings_) {
    if (!commit_warnings_.contains(text)) of_data.push_back(text);
  }
  return of_data;
}

void ScanEvents::AddTo(model::ScanStatus* status) {
  MutexLock lock(event_mutex_);
  status->events.assign(recent_.begin(), recent_.end());
  status->event_count = count_;
}

int64_t ScanEvents::ListedBytes() {
  MutexLock lock(event_mutex_);
  int64_t bytes = 0;
  for (const model::ScanEvent& event : recent_)
    bytes += static_cast<int64_t>(sizeof event) + std::ssize(event.text) + std::ssize(event.marker);
  return bytes;
}

}  // namespace octavo::scan

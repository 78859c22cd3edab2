// What a scan tells of itself while it runs: events, markers, gaps.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/pattern/plan.h"
#include "server/scan/scan_session.h"
#include "server/source/push_records.h"
#include "server/source/ring_port.h"

namespace octavo::scan {
namespace {

/// Where the `k`-th place of a rule is, as a record of the scan.
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

model::ScanEvent ScanSession::PublishEvent(model::ScanEvent event) {
  if (event.time.monotonic_ns == 0) event.time = context_.clock->Now();
  MutexLock lock(event_mutex_);
  return RecordEventLocked(std::move(event), /*publish=*/true);
}

void ScanSession::RecordEvent(model::ScanEvent event) {
  if (event.time.monotonic_ns == 0) event.time = context_.clock->Now();
  MutexLock lock(event_mutex_);
  RecordEventLocked(std::move(event), /*publish=*/false);
}

void ScanSession::Warn(const std::string& text) {
  {
    MutexLock lock(status_mutex_);
    auto& warnings = status_.warnings;
    if (std::find(warnings.begin(), warnings.end(), text) != warnings.end()) return;
    if (warnings.size() < kWarningsKept) warnings.push_back(text);
  }
  Log(LogLevel::kWarning, "scan warning", {{"scan", name_}, {"text", text}});
  context_.changed();
}

void ScanSession::WarnOfCommit(const std::string& text) {
  Warn(text);
  MutexLock lock(status_mutex_);
  const auto& kept = status_.warnings;
  if (std::find(kept.begin(), kept.end(), text) != kept.end()) commit_warnings_.insert(text);
}

std::vector<std::string> ScanSession::WarningsOfData() {
  MutexLock lock(status_mutex_);
  std::vector<std::string> warnings = status_.warnings;
  std::erase_if(warnings,
                [this](const std::string& text) { return commit_warnings_.contains(text); });
  return warnings;
}

model::ScanEvent ScanSession::RecordEventLocked(model::ScanEvent event, bool publish) {
  event.number = event_count_++;
  recent_events_.push_back(event);
  if (recent_events_.size() > kEventsKept) recent_events_.pop_front();
  if (publish) PublishEventFrame(event);
  return event;
}

void ScanSession::PublishEventFrame(const model::ScanEvent& event) {
  model::Frame frame;
  frame.scan = name_;
  frame.volume_index = event.volume_index;
  frame.product = model::Product::kEvent;
  frame.acquired = event.time;
  frame.event = event;
  frame.event.number = 0;  // frames have their own
  context_.publisher->Publish({.product = model::Product::kEvent}, std::move(frame));
}

absl::StatusOr<model::ScanEvent> ScanSession::Mark(const std::string& marker) {
  if (marker.empty() || marker.size() > 63) {
    return InvalidField("marker",
                        absl::StrCat("has ", marker.size(), " characters; allowed 1 to 63"));
  }
  {
    MutexLock lock(status_mutex_);
    if (status_.state != model::ScanState::kRunning &&
        status_.state != model::ScanState::kDraining) {
      return WithInfo(
          absl::FailedPreconditionError(absl::StrCat(name_, " is ", Name(status_.state),
                                                     "; only a scan that runs can be marked")),
          {.reason = Reason::kScanState,
           .field = "name",
           .numbers = {{"state", Name(status_.state)}}});
    }
  }
  const int64_t record = next_record_;
  return PublishEvent({.kind = model::EventKind::kMarker,
                       .text = absl::StrCat("marker ", marker),
                       .volume_index = record / volume_records_,
                       .record = record,
                       .marker = marker});
}

absl::StatusOr<std::shared_ptr<source::PushPort>> ScanSession::Push() {
  if (push_ == nullptr) {
    return WithInfo(
        absl::FailedPreconditionError(absl::StrCat(
            name_, " fetches its records itself; only scans with source push take them")),
        {.reason = Reason::kNotPush, .field = "scan", .numbers = {}});
  }
  MutexLock lock(status_mutex_);
  if (status_.state == model::ScanState::kFailed || status_.state == model::ScanState::kCancelled) {
    return WithInfo(absl::FailedPreconditionError(
                        absl::StrCat(name_, " is ", Name(status_.state), ": ", status_.reason)),
                    {.reason = Reason::kScanState,
                     .field = "scan",
                     .numbers = {{"state", Name(status_.state)}}});
  }
  return push_;
}

absl::StatusOr<std::shared_ptr<source::RingPort>> ScanSession::Ring() {
  if (ring_port_ == nullptr) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(
                        name_, " has another source; only scans with source ring take a producer")),
                    {.reason = Reason::kNotRing, .field = "scan", .numbers = {}});
  }
  OCTAVO_RETURN_IF_ERROR(ring_port_->CanAttach());
  return ring_port_;
}

// Of the records of a block: what is lost before them, and what they are marked with.
void ScanSession::TellMarkers(const source::SourceBlock& block) {
  const int64_t end = block.first_record + block.records;
  // Nothing new in it: the records came already, or they are of no volume.
  if (block.first_record < 0 || end <= next_record_ ||
      (wanted_records_ > 0 && block.first_record >= wanted_records_))
    return;
  if (const int64_t lost = block.first_record - next_record_; lost > 0) {
    PublishEvent({.kind = model::EventKind::kGap,
                  .text = absl::StrCat(lost, " records lost"),
                  .volume_index = next_record_ / volume_records_,
                  .record = block.first_record,
                  .count = lost});
  }
  // The block's time is that of its last record.
  const double period_ns =
      scan_.source.record_rate_hz > 0
          ? 1e9 * static_cast<double>(record_average_) / scan_.source.record_rate_hz
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
  for (const source::SourceMark& mark : source_->TakeMarks(end * record_average_))
    PublishEvent(event_at(mark.name, mark.record / record_average_));
  for (const model::MarkerRule& rule : scan_.spec.markers) {
    int64_t k = std::max(FirstAt(scan_, rule.at, block.first_record), rule.offset);
    k += (rule.every - (k - rule.offset) % rule.every) % rule.every;
    for (; PlaceOf(scan_, rule.at, k) < end; k += rule.every)
      PublishEventFrame(event_at(rule.name, PlaceOf(scan_, rule.at, k)));
  }
  next_record_ = end;
}

}  // namespace octavo::scan

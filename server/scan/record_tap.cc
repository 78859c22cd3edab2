#include "server/scan/record_tap.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace octavo::scan {

std::string RecordTap::WhyNotAlone(const model::ResolvedScan& scan) {
  const int64_t record_bytes = RecordBytes(scan.chain);
  // The choice does not own the scan, and does not outlive this call.
  const processing::RecordChoice choice(
      std::shared_ptr<const model::ResolvedScan>(std::shared_ptr<void>(), &scan));
  const int64_t needed = choice.MostNeeded();
  if (needed * record_bytes <= kMostBytes) return "";
  return absl::StrCat("needs up to ", needed, " records of ", record_bytes,
                      " bytes for one A-scan (background, fixed pattern, repeats); allowed ",
                      kMostBytes, " bytes. SPECTRUM as stored (RAW) needs one record");
}

bool RecordTap::Wants(int64_t now_ns) {
  if (now_ns >= next_look_ns_) {
    next_look_ns_ = now_ns + kLookNs;
    Look();
  }
  return !positions_.empty();
}

// Asks which topics subscribers want now. Topics of one column share a copy.
void RecordTap::Look() {
  std::vector<Position> now;
  for (const publish::Wanted& wanted : publisher_->WantedOf(scan_)) {
    const publish::TopicKey& key = wanted.key;
    if (!model::IsLine(key.product)) continue;
    const bool computed = key.product == model::Product::kAscan || key.corrected;
    const auto same = [&](const Position& p) {
      return p.column == key.plane_index && p.computed == computed;
    };
    auto to = std::find_if(now.begin(), now.end(), same);
    if (to == now.end()) {
      if (now.size() >= kMostPositions) {
        publisher_->Lost(scan_, key);
        continue;
      }
      to = now.insert(now.end(), Position{.column = key.plane_index, .computed = computed});
      if (auto had = std::find_if(positions_.begin(), positions_.end(), same);
          had != positions_.end()) {
        to->due_ns = had->due_ns;
        to->copy = std::move(had->copy);
      }
    }
    to->keys.push_back(key);
  }
  for (Position& gone : positions_) {
    if (gone.copy != nullptr) frames_->TakeBack(std::move(gone.copy));
  }
  positions_ = std::move(now);
  if (positions_.empty()) choice_ = nullptr;
}

void RecordTap::Take(const std::shared_ptr<const model::ResolvedScan>& scan, const uint8_t* data,
                     const Segment& segment, const ActiveVolume* active, TimePoint acquired,
                     int64_t now_ns) {
  if (choice_ == nullptr || choice_->scan() != scan) {
    for (Position& p : positions_) {  // these copies belong to the processing before
      if (p.copy != nullptr) frames_->Drop(std::move(p.copy), publish::Loss::kSuperseded);
    }
    choice_ = std::make_shared<const processing::RecordChoice>(scan);
  }
  const int64_t first = segment.volume * scan->volume_records + segment.first_record;
  for (Position& p : positions_) {
    if (p.copy == nullptr && now_ns >= p.due_ns) Begin(p, segment, first, now_ns);
    if (p.copy != nullptr) Fill(p, data, segment, first, active, acquired);
  }
}

void RecordTap::Begin(Position& p, const Segment& segment, int64_t first, int64_t now_ns) {
  const auto unit = p.computed && !choice_->alone()
                        ? choice_->Next(first, p.column)
                        : choice_->Newest(first, first + segment.records, p.column);
  if (!unit.has_value()) return;
  const int64_t bytes = unit->needed() * RecordBytes(choice_->scan()->chain);
  p.due_ns =
      now_ns +
      std::max(kFrameNs, static_cast<int64_t>(static_cast<double>(bytes) * 1e9 / kBytesPerSecond));
  p.copy = bytes <= kMostBytes ? frames_->NewCopy(bytes) : nullptr;
  if (p.copy == nullptr) {
    for (const publish::TopicKey& key : p.keys) publisher_->Lost(scan_, key);
    return;
  }
  p.copy->choice = choice_;
  p.copy->unit = *unit;
  p.copy->size = 0;
}

void RecordTap::Fill(Position& p, const uint8_t* data, const Segment& segment, int64_t first,
                     const ActiveVolume* active, TimePoint acquired) {
  RecordCopy& copy = *p.copy;
  const processing::RecordUnit& unit = copy.unit;
  const int64_t record_bytes = RecordBytes(choice_->scan()->chain);
  const int64_t next = unit.need_first + copy.size / record_bytes;
  const int64_t end = std::min(first + segment.records, unit.need_end);
  if (end <= next) return;  // the next records that the unit needs come later
  copy.keys = p.keys;
  if (first > next) {  // records are missing
    frames_->Drop(std::move(p.copy), publish::Loss::kSuperseded);
    return;
  }
  const int64_t bytes = (end - next) * record_bytes;
  std::memcpy(copy.data.get() + copy.size, data + (next - first) * record_bytes,
              static_cast<size_t>(bytes));
  copy.size += bytes;
  copy.acquired = acquired;
  if (active != nullptr && segment.volume == unit.volume && active->slot != nullptr) {
    copy.volume = active->status.name;
    copy.scale = model::ValueScaleOf(active->status);
    copy.display_lo = active->display_lo;
    copy.display_hi = active->display_hi;
  }
  if (copy.size == unit.needed() * record_bytes) frames_->Offer(std::move(p.copy));
}

void RecordTap::Free() {
  positions_.clear();
  choice_ = nullptr;
}

}  // namespace octavo::scan

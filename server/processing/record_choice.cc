#include "server/processing/record_choice.h"

#include <algorithm>
#include <map>
#include <utility>

#include "server/pattern/plan.h"
#include "server/processing/replay_records.h"

namespace octavo::processing {
namespace {

const SpectralConfig& ChainOf(const model::ResolvedScan& scan) { return scan.chain; }

}  // namespace

RecordChoice::RecordChoice(std::shared_ptr<const model::ResolvedScan> scan)
    : scan_(std::move(scan)),
      rolling_(ChainOf(*scan_).background == math::Background::kRolling),
      spans_(ChainOf(*scan_).bscan_records > 0 || ChainOf(*scan_).repeats > 1),
      shape_(RollingShapeOf(ChainOf(*scan_))) {
  shape_.volume_records = scan_->volume_records;
  if (!spans_) return;
  const auto& plan = scan_->spec.pattern.plan;
  for (size_t kind = 0; kind < (plan != nullptr && plan->kinds > 1 ? 2 : 1); ++kind)
    MakeSpans(kind);
}

size_t RecordChoice::KindOf(int64_t volume) const {
  const auto& plan = scan_->spec.pattern.plan;
  return plan != nullptr && plan->kinds > 1 ? static_cast<size_t>(volume & 1) : 0;
}

// The B-scans, and the parts that are processed together: a B-scan, or the B-scans of all repeats
// of the segments that are repeated together.
void RecordChoice::MakeSpans(size_t kind) {
  const pattern::Pattern& p = scan_->spec.pattern;
  std::vector<Span>& bscans = bscans_[kind];
  if (p.plan == nullptr) {
    const math::RasterPlacement raster = RasterOf(*scan_);
    const int64_t line = raster.ascans_per_bscan + raster.flyback_records;
    for (int64_t y = 0; y < raster.bscans_per_volume; ++y)
      bscans.push_back({.first = y * line, .end = y * line + raster.ascans_per_bscan, .repeat = 0});
  } else {
    for (const BscanSpan& s : SpansOf(p, static_cast<int>(kind))) {
      bscans.push_back(
          {.first = s.first_record, .end = s.first_record + s.records, .repeat = s.repeat});
    }
  }
  std::vector<Part>& parts = parts_[kind];
  if (ChainOf(*scan_).repeats == 1 || p.plan == nullptr) {
    for (const Span& s : bscans) parts.push_back({.first = s.first, .end = s.end});
    return;
  }
  std::map<int64_t, int64_t> passes;  // of the segments that are not complete
  bool begins = true;
  for (const pattern::PatternSegment& s : p.plan->kind[kind].segments) {
    if (begins) parts.push_back({.first = s.first_record, .end = 0});
    parts.back().end = s.first_record + s.ascans;
    ++passes[s.bscan];
    begins = std::all_of(passes.begin(), passes.end(),
                         [&](const auto& one) { return one.second >= p.passes(); });
    if (begins) passes.clear();
  }
}

int64_t RecordChoice::AscanOf(int64_t record) const {
  const int64_t volume = record / scan_->volume_records, in = record % scan_->volume_records;
  if (const auto& plan = scan_->spec.pattern.plan; plan != nullptr)
    return plan->Of(volume).placement[static_cast<size_t>(in)];
  return math::RasterAscan(RasterOf(*scan_), in);
}

std::pair<int64_t, int64_t> RecordChoice::BackgroundOf(int64_t record) const {
  if (rolling_) {
    const int64_t end = shape_.GroupEnd(record);
    const int64_t begin =
        shape_.window_records == 0 ? shape_.GroupBegin(record) : end - shape_.window_records;
    return {std::max<int64_t>(begin, 0), end};
  }
  if (ChainOf(*scan_).background != math::Background::kBscan) return {record, record};
  const int64_t volume = record / scan_->volume_records, base = volume * scan_->volume_records;
  const std::vector<Span>& bscans = bscans_[KindOf(volume)];
  const auto after = std::partition_point(bscans.begin(), bscans.end(),
                                          [&](const Span& s) { return base + s.end <= record; });
  if (after == bscans.end() || base + after->first > record) return {record, record};
  return {base + after->first, base + after->end};
}

// The windows of rolling backgrounds may begin before the records that are processed, and their
// groups end behind them.
RecordUnit RecordChoice::WithNeeds(RecordUnit unit) const {
  unit.need_first = unit.first;
  unit.need_end = unit.end;
  if (!rolling_) return unit;
  unit.need_first = std::min(unit.first, BackgroundOf(unit.first).first);
  unit.need_end = BackgroundOf(unit.end - 1).second;
  return unit;
}

std::optional<RecordUnit> RecordChoice::Newest(int64_t first, int64_t end, int64_t column) const {
  for (int64_t record = end - 1; record >= first; --record) {
    const int64_t ascan = AscanOf(record);
    if (ascan < 0 || (column >= 0 && ascan % columns() != column)) continue;
    return RecordUnit{.volume = record / scan_->volume_records,
                      .record = record,
                      .ascan = ascan,
                      .first = record,
                      .end = record + 1,
                      .need_first = record,
                      .need_end = record + 1};
  }
  return std::nullopt;
}

// The last A-scan of the part, or the one in `column` whose last record comes last.
std::optional<RecordUnit> RecordChoice::InPart(int64_t volume, int64_t first, int64_t end,
                                               int64_t column) const {
  std::optional<RecordUnit> unit = Newest(first, end, column);
  if (!unit.has_value()) return unit;
  unit->volume = volume;
  if (!spans_) return WithNeeds(*unit);
  unit->first = first;
  unit->end = end;
  return WithNeeds(*unit);
}

std::optional<RecordUnit> RecordChoice::Next(int64_t from, int64_t column) const {
  const int64_t records = scan_->volume_records;
  const auto early = [&](int64_t first, int64_t end) {
    RecordUnit unit;
    unit.first = first;
    unit.end = end;
    return WithNeeds(unit).need_first < from;
  };
  // Each volume has all columns, but a window may reach back over several volumes.
  const int64_t volumes = 3 + (rolling_ ? shape_.window_records / records : 0);
  for (int64_t volume = from / records; volume < from / records + volumes; ++volume) {
    const int64_t base = volume * records;
    if (spans_) {
      const std::vector<Part>& parts = parts_[KindOf(volume)];
      auto part = std::partition_point(parts.begin(), parts.end(), [&](const Part& p) {
        return early(base + p.first, base + p.end);
      });
      for (; part != parts.end(); ++part) {
        auto unit = InPart(volume, base + part->first, base + part->end, column);
        if (unit.has_value()) return unit;
      }
      continue;
    }
    const int64_t group = rolling_ ? shape_.group_records : 1;
    for (int64_t first = std::max(from, base) - (std::max(from, base) - base) % group;
         first < base + records; first += group) {
      const int64_t end = std::min(first + group, base + records);
      if (early(first, end)) continue;
      auto unit = InPart(volume, first, end, column);
      if (unit.has_value()) return unit;
    }
  }
  return std::nullopt;
}

int64_t RecordChoice::MostNeeded() const {
  int64_t most = 1;
  for (const std::vector<Part>& parts : parts_) {
    for (const Part& p : parts) most = std::max(most, p.end - p.first);
  }
  if (rolling_) {
    const int64_t window = std::max(shape_.window_records, shape_.group_records);
    most = spans_ ? most + window + shape_.group_records : window;
  }
  return most;
}

std::vector<RecordChoice::Span> RecordChoice::SpansIn(const RecordUnit& unit) const {
  std::vector<Span> spans;
  const int64_t base = unit.volume * scan_->volume_records;
  for (const Span& s : bscans_[KindOf(unit.volume)]) {
    if (base + s.first >= unit.first && base + s.end <= unit.end) spans.push_back(s);
  }
  return spans;
}

}  // namespace octavo::processing

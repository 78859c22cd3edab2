#include "server/scan/block_shares.h"

#include <algorithm>

#include "absl/container/inlined_vector.h"

#include "gpu/spectral/rolling_window.h"
#include "server/pattern/plan.h"
#include "server/processing/replay_records.h"
#include "server/scan/scan_memory.h"

namespace octavo::scan {

BlockShares::BlockShares(const model::ResolvedScan& scan, size_t lanes)
    : scan_(scan),
      kinds_(scan.spec.pattern.plan == nullptr ? 1 : scan.spec.pattern.plan->kinds),
      records_(lanes, 0) {
  const pattern::Pattern& p = scan.spec.pattern;
  for (int k = 0; p.plan != nullptr && k < kinds_; ++k) spans_[k] = processing::SpansOf(p, k);
  shares_.reserve(lanes == 1 ? 1 : 256);
  if (lanes == 1) return;
  int64_t bscans_per_block =
      scan.chain.max_records_per_block / (p.ascans_per_bscan + p.flyback_records);
  if (p.plan != nullptr) {
    for (int k = 0; k < kinds_; ++k) {
      for (const BscanSpan& span : spans_[k]) {
        span_rows_[k].push_back(p.plan->kind[k].placement[static_cast<size_t>(span.first_record)] /
                                p.ascans_per_bscan);
      }
    }
    bscans_per_block =
        scan.chain.max_records_per_block * std::ssize(spans_[0]) / scan.volume_records;
  }
  // Neighbouring rows stay together so that each device gets its share of a block in one piece:
  // small pieces do not fill a link.
  rows_ = scan.stripe_devices > 1 ? StripesOf(scan).bscans
                                  : std::max<int64_t>(1, bscans_per_block / std::ssize(records_));
}

void BlockShares::Cut(const source::SourceBlock& block) {
  shares_.clear();
  std::fill(records_.begin(), records_.end(), 0);
  if (records_.size() == 1) return Add(0, 0, block.records, /*borrowed=*/false);
  const int64_t end = block.first_record + block.records;
  for (int64_t at = std::max<int64_t>(0, block.first_record); at < end;) {
    const int64_t volume = at / scan_.volume_records, begin = volume * scan_.volume_records;
    const BscanPlace place = PlaceAt(volume, at - begin);
    const size_t owner = LaneOfRow(place.row);
    int64_t stop = std::min(end, begin + place.end);
    if (scan_.chain.background != math::Background::kRolling) {
      Add(owner, at - block.first_record, stop - at, /*borrowed=*/false);
    } else {
      // All lanes that have B-scans of the group take all of it.
      const RollingShape shape = RollingShapeOf(scan_.chain);
      const int64_t group_begin = shape.GroupBegin(at), group_end = shape.GroupEnd(at);
      stop = std::min(stop, group_end);
      absl::InlinedVector<bool, 16> takes(records_.size(), false);
      for (int64_t r = group_begin - begin; r < group_end - begin;) {
        const BscanPlace of = PlaceAt(volume, r);
        takes[LaneOfRow(of.row)] = true;
        r = of.end;
      }
      for (size_t lane = 0; lane < takes.size(); ++lane) {
        if (takes[lane]) Add(lane, at - block.first_record, stop - at, lane != owner);
      }
    }
    at = stop;
  }
}

void BlockShares::Add(size_t lane, int64_t offset, int64_t count, bool borrowed) {
  Share* const last = shares_.empty() ? nullptr : &shares_.back();
  if (last != nullptr && last->lane == lane && last->borrowed == borrowed &&
      last->offset + last->count == offset) {
    last->count += count;
  } else {
    shares_.push_back({.lane = lane,
                       .offset = offset,
                       .count = count,
                       .raw_offset = records_[lane],
                       .borrowed = borrowed});
  }
  records_[lane] += count;
}

BlockShares::BscanPlace BlockShares::PlaceAt(int64_t volume, int64_t record) const {
  const pattern::Pattern& p = scan_.spec.pattern;
  if (p.plan == nullptr) {
    const int64_t line = p.ascans_per_bscan + p.flyback_records,
                  row = std::min(record / line, p.bscans_per_volume - 1);
    return {.row = row,
            .end = row == p.bscans_per_volume - 1 ? scan_.volume_records : (row + 1) * line};
  }
  const size_t kind = KindOf(volume);
  const auto& spans = spans_[kind];
  const auto next = std::partition_point(
      spans.begin() + 1, spans.end(), [&](const BscanSpan& s) { return s.first_record <= record; });
  return {.row = span_rows_[kind][static_cast<size_t>(next - spans.begin()) - 1],
          .end = next == spans.end() ? scan_.volume_records : next->first_record};
}

void BlockShares::LetGo() {
  for (std::vector<BscanSpan>& spans : spans_) spans = {};
  for (std::vector<int64_t>& rows : span_rows_) rows = {};
  shares_ = {};
}

void RowsHome::Clear() {
  open_.clear();
  whole_.clear();
}

// A row waits if the next block will still write to it or the processor has kept its beginning: it
// must not be copied before that.
void RowsHome::Note(const BlockShares& shares, int64_t volume, int64_t first, int64_t last,
                    int64_t made, bool last_waits) {
  for (int64_t at = first; at < last;) {
    const BlockShares::BscanPlace place = shares.PlaceAt(volume, at);
    if (open_.empty() || open_.back().row != place.row)
      open_.push_back({.row = place.row, .end = place.end});
    at = place.end;
  }
  size_t whole = 0;
  const size_t most = open_.size() - (last_waits ? 1 : 0);
  for (; whole < most && open_[whole].end <= made; ++whole) Add(open_[whole].row);
  open_.erase(open_.begin(), open_.begin() + static_cast<std::ptrdiff_t>(whole));
}

void RowsHome::Add(int64_t row) {
  if (!whole_.empty() && row >= whole_.back().first &&
      row < whole_.back().first + whole_.back().second)
    return;
  if (!whole_.empty() && whole_.back().first + whole_.back().second == row) {
    ++whole_.back().second;
  } else {
    whole_.emplace_back(row, 1);
  }
}

void RowsHome::Finish(bool again) {
  for (const Open& open : open_) Add(open.row);
  open_.clear();
  if (!again) return;
  std::sort(whole_.begin(), whole_.end());
  size_t kept = 0;
  for (const auto& [first, count] : whole_) {
    Run& last = whole_[kept > 0 ? kept - 1 : 0];
    if (kept > 0 && first <= last.first + last.second) {
      last.second = std::max(last.second, first + count - last.first);
    } else {
      whole_[kept++] = {first, count};
    }
  }
  whole_.resize(kept);
}

}  // namespace octavo::scan

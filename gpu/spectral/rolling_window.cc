#include "gpu/spectral/rolling_window.h"

#include <algorithm>

namespace octavo::inline gpu {

int64_t RollingShape::GroupBegin(int64_t number) const {
  const int64_t volume = number / volume_records * volume_records;
  return volume + (number - volume) / group_records * group_records;
}

int64_t RollingShape::GroupEnd(int64_t number) const {
  const int64_t volume = number / volume_records * volume_records;
  return volume + std::min(volume_records, ((number - volume) / group_records + 1) * group_records);
}

bool RollingShape::LooksBack() const {
  const int64_t last = volume_records == kNoVolumes ? 0 : volume_records % group_records;
  return window_records > (last > 0 ? last : group_records);
}

int RollingShape::Parts(int64_t begin, int64_t end, int64_t (&cuts)[kMostParts + 1]) const {
  int parts = 0;
  if (!LooksBack()) {  // a single window, which lies within the group
    cuts[parts++] = window_records == 0 ? begin : std::max(begin, end - window_records);
    cuts[parts] = end;
    return parts;
  }
  cuts[parts++] = begin;
  // A window that begins within this group belongs to a later group, whose end the loop visits.
  for (int64_t until = GroupEnd(begin + window_records); until < end + window_records;
       until = GroupEnd(until)) {
    if (parts < kMostParts) cuts[parts++] = until - window_records;
  }
  cuts[parts] = end;
  return parts;
}

int64_t RollingShape::RingEntries(int64_t groups) const {
  if (!LooksBack()) return 0;
  const bool whole = volume_records == kNoVolumes || volume_records % group_records == 0;
  // Each volume that the window touches may end with a short group.
  const int64_t touched =
      window_records / group_records + 2 + (whole ? 0 : window_records / volume_records + 2);
  return (touched + groups) * (!whole ? kMostParts : window_records % group_records == 0 ? 1 : 2);
}

int64_t RollingWindow::Add(int64_t begin) {
  for (int64_t i = count_; i-- > 0;) {
    const int64_t entry = (first_ + i) % entries();
    if (begins_[static_cast<size_t>(entry)] == begin) return entry;
    if (begins_[static_cast<size_t>(entry)] < begin) break;
    if (i == 0) return -1;  // dropped: it is older than the first entry of any later window
  }
  if (count_ == entries()) {  // the ring has room for all windows in use, so no window needs the
                              // oldest entry any more
    first_ = (first_ + 1) % entries();
    --count_;
  }
  const int64_t entry = (first_ + count_++) % entries();
  begins_[static_cast<size_t>(entry)] = begin;
  return entry;
}

RollingWindow::Entries RollingWindow::WindowOf(int64_t end) {
  while (count_ > 0 && begins_[static_cast<size_t>(first_)] < end - shape_.window_records) {
    first_ = (first_ + 1) % entries();
    --count_;
  }
  return {.first = first_, .count = count_};
}

}  // namespace octavo::inline gpu

#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

// The rolling background: the rule by which each record gets its background from other records.
//
// The rule. Records are numbered through the whole scan (volume times records of a volume, plus the
// position in the volume). The numbers divide them into groups of `group_records`; grouping
// restarts with each volume, so that the last group of a volume may be shorter and no group lies in
// two volumes. All records of a group have one background: the mean of the records received among
// the last `window_records` numbers up to and including the group's last (0: among the group's own
// numbers). The background depends on nothing else. In particular, it does not depend on how a
// source, a transport, a block or a gathering cuts the stream, on the time or on the device. A
// record that arrives twice or too late does not count, nor does a record with a sample that is not
// finite. Where no record counts, nothing is subtracted.
//
// Consequences. The background of a group needs the group's end, so a record waits on the device
// for the last record of its group. If the end of a group has not arrived, the processor
// (SpectralProcessor) copies the beginning of the group to its own memory, which holds one group,
// and processes the copy when the end arrives. By default a group is a B-scan with its flyback, of
// at most kMostRecords records and 1 GiB: an A-scan comes out with the last record of its B-scan,
// and a volume is complete with the last record of the group of its last A-scan. If the end of a
// group is lost, the group ends with the first record of another group, or with the volume, and its
// background is the mean of the records received. When a scan is stopped or its source ends,
// EndVolume ends the group in the same way. Groups that lie whole within a block are processed in
// place, many in one launch.
//
// Summation. A window that reaches back beyond its group adds sums of parts instead of keeping
// records. The parts lie between cuts, and cuts depend on numbers alone: a number is a cut if a
// group ends before it or if a window begins with it. So every window consists of whole parts. Each
// part is summed once, when its group ends and its records lie side by side. Each window adds its
// parts afresh. Both orders of summation depend on positions alone, not on how the records arrived:
// the host adds in the order of positions, and CUDA adds rows in pieces and pieces in slices.
// Nothing is ever subtracted from a sum, so that a record that has left the window leaves no
// rounding error behind, however large it was. Integers are summed without rounding, numbers of 32
// bits in double precision, so that the backends may differ in their last bits. A part without
// records adds nothing.
//
// Memory: one group of raw records, and a ring of sums of 8 bytes a sample for the parts of a
// window (at most kMostGroups groups).
//
// Several devices. If a group has a record of a device's own B-scans, the device receives the whole
// group, including the records whose A-scans another device computes ("borrowed"). The device sums
// such groups itself. It receives the sums of the other groups from the device that summed them,
// into the same entry of its own ring. The devices share one RollingWindow, and groups end on all
// of them in the order of their numbers.
//
// Reprocessing runs the last records received before a volume (window_records, and at least a
// block) through the same steps ahead of the volume's own records. The sums survive an update of
// the processing that leaves the group, the window and the mode unchanged. A different rolling
// background begins with the first volume that uses it.

namespace octavo::inline gpu {

/// Numbers of the rule.
struct RollingShape {
  static constexpr int64_t kNoVolumes = int64_t{1} << 60;
  static constexpr int64_t kMostRecords = 1 << 20;  // of a group or a window
  static constexpr int64_t kMostGroups =
      4096;  // window_records is at most so many times group_records

  int64_t volume_records = kNoVolumes;  // >= 1
  int64_t group_records = 1;            // 1 ... volume_records
  int64_t window_records = 0;           // 0 = the group

  bool operator==(const RollingShape&) const = default;
  /// One past the last number of the group that `number` lies in; the first number of it.
  int64_t GroupEnd(int64_t number) const;
  int64_t GroupBegin(int64_t number) const;
  /// Whether any window begins before its group.
  bool LooksBack() const;
  /// The parts of the group [begin, end) that are summed: their first numbers, ascending, and in
  /// cuts[parts] their end.
  static constexpr int kMostParts = 3;
  int Parts(int64_t begin, int64_t end, int64_t (&cuts)[kMostParts + 1]) const;
  /// Number of entries that a ring of sums needs for a window while the parts of `groups` more
  /// groups are added.
  int64_t RingEntries(int64_t groups) const;
};

/// Tracks which sums exist and where they lie in a ring of entries. Only the enqueueing thread uses
/// it. It holds no sums itself.
class RollingWindow {
 public:
  RollingWindow(const RollingShape& shape, int64_t entries)
      : shape_(shape), begins_(static_cast<size_t>(entries)) {}

  const RollingShape& shape() const { return shape_; }
  int64_t entries() const { return std::ssize(begins_); }
  /// The entry of the part that begins with the number `begin`. This is the next entry unless the
  /// part already has one (because another device has summed the group too). -1 if the part is
  /// already discarded, because no later window begins with it. Parts are added in the order of
  /// their numbers.
  int64_t Add(int64_t begin);
  /// Entries of the parts of the window that ends before the number `end`, which was added last:
  /// `count` from `first` on, around the ring. Discards the entries before `first`.
  struct Entries {
    int64_t first = 0, count = 0;
  };
  Entries WindowOf(int64_t end);

 private:
  const RollingShape shape_;
  std::vector<int64_t> begins_;    // of the part in each entry
  int64_t first_ = 0, count_ = 0;  // entries in use, around the ring, oldest first
};

}  // namespace octavo::inline gpu

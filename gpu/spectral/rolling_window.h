#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

// The rolling background: which records make the background of which record.
//
// The rule. Records are numbered through the whole scan (volume times records of a volume, plus the
// place in the volume). They are grouped by number into groups of `group_records`; groups begin
// anew with each volume, so that the last one of a volume may be shorter and no group lies in two
// volumes. All records of a group have one background: the mean of those records that came among
// the last `window_records` numbers up to and with the group's last (0: among the group's own).
// Nothing else enters: not how a source, a transport, a block or a gathering cut the stream, not
// the time, not the device. A record that comes twice or too late does not count; neither does one
// with a sample that is no finite number. Where no record counts, nothing is subtracted.
//
// What follows from it. The background of a group needs the group's end. So a record waits on the
// device for the last record of its group: the processor copies the beginning of a group whose end
// has not come to memory of its own (one group, SpectralProcessor) and takes it up when the end
// comes. By default a group is a B-scan with its flyback, of at most kMostRecords records and 1
// GiB: an A-scan comes out with the last record of its B-scan, and a volume is complete with the
// last record of the group of its last A-scan. An end that is lost never comes: the group ends with
// the first record of another group, or with the volume, and has the mean of what came. A scan that
// is stopped or whose source ends does the same with EndVolume. Whole groups within a block are
// processed where they lie, many in one launch.
//
// How it is summed. A window that looks back beyond its group adds sums of parts, it does not keep
// records. The parts lie between cuts, and cuts depend on numbers alone: a number is a cut if a
// group ends before it or if a window begins with it. So every window is whole parts. Each part is
// summed once, when its group ends (its records then lie side by side), and each window adds its
// parts anew. Both orders depend on places alone, not on how the records came: on the host it is
// theirs, on CUDA rows are added in pieces, and pieces in slices. Nothing is ever subtracted from a
// sum: a record that has left the window has left no trace in it, however large it was. Integers
// are summed without rounding, numbers of 32 bits in double precision, so that the backends may
// differ in their last bits. A part without records adds nothing.
//
// Memory: one group of raw records, and a ring of sums of 8 bytes a sample for the parts of a
// window (at most kMostGroups groups).
//
// Several devices. A device takes every group that has a record of its own B-scans, whole, also
// those records whose A-scans another device makes ("borrowed"). It makes the sums of such groups
// itself. Sums of the others come from the device that made them, into the same entry of its own
// ring: the devices share one RollingWindow, and groups end on all of them in the order of their
// numbers.
//
// Reprocessing has the last records that came before a volume (window_records, and at least a
// block) beside its own, and runs them through the same. The sums outlive an update of the
// processing that leaves the group, the window and the mode as they are; another rolling background
// begins with the first volume that it is used for.

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
  /// Whether some window begins before its group.
  bool LooksBack() const;
  /// The parts of the group [begin, end) that are summed: their first numbers, ascending, and in
  /// cuts[parts] their end.
  static constexpr int kMostParts = 3;
  int Parts(int64_t begin, int64_t end, int64_t (&cuts)[kMostParts + 1]) const;
  /// Entries of a ring of sums for a window while the parts of `groups` more groups are added.
  int64_t RingEntries(int64_t groups) const;
};

/// Which sums are there and where they lie in a ring of entries. Used by the thread that enqueues;
/// holds no sums itself.
class RollingWindow {
 public:
  RollingWindow(const RollingShape& shape, int64_t entries)
      : shape_(shape), begins_(static_cast<size_t>(entries)) {}

  const RollingShape& shape() const { return shape_; }
  int64_t entries() const { return std::ssize(begins_); }
  /// The entry of the part that begins with the number `begin`: the next one, unless this part has
  /// one (another device has summed the group too); -1 if the part is given up already, because no
  /// window from now on begins with it. Parts are added in the order of their numbers.
  int64_t Add(int64_t begin);
  /// Entries of the parts of the window that ends before the number `end`, which was added last:
  /// `count` from `first` on, around the ring. Those before are given up.
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

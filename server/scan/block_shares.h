#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "gpu/spectral/spectral.h"
#include "server/model/resolved_scan.h"
#include "server/source/source.h"

namespace octavo::scan {

/// Splits the records of a block among the devices ("lanes") of a scan: each lane gets whole,
/// neighbouring B-scans. A single lane gets the whole block as one share. With a rolling
/// background, every lane that has B-scans of a group gets the whole group. Compute thread;
/// allocates nothing per block.
class BlockShares {
 public:
  struct Share {  // records of the block that go to one lane
    size_t lane;
    int64_t offset, count;  // within the block
    int64_t raw_offset;     // within the lane's raw buffer
    bool borrowed;          // of another lane's B-scans; this lane's background needs it
  };
  struct BscanPlace {
    int64_t row;  // of the stored volume
    int64_t end;  // one past its last record, flyback records included
  };

  /// `scan` must outlive this object. Its pattern and volumes must not change; its chain may change
  /// between blocks.
  BlockShares(const model::ResolvedScan& scan, size_t lanes);

  /// Computes the shares of the next block.
  void Cut(const source::SourceBlock& block);
  const std::vector<Share>& shares() const { return shares_; }
  /// Records of the block for a lane.
  int64_t RecordsOf(size_t lane) const { return records_[lane]; }

  /// The B-scan that a record of a volume belongs to.
  BscanPlace PlaceAt(int64_t volume, int64_t record) const;
  size_t LaneOfRow(int64_t row) const { return static_cast<size_t>(row / rows_) % records_.size(); }
  /// Even-numbered and odd-numbered volumes may have different scan patterns.
  size_t KindOf(int64_t volume) const { return kinds_ > 1 ? static_cast<size_t>(volume & 1) : 0; }
  /// The B-scans of a kind in the order of the scan; empty: the raster rule.
  const std::vector<BscanSpan>& Spans(size_t kind) const { return spans_[kind]; }
  void LetGo();

 private:
  void Add(size_t lane, int64_t offset, int64_t count, bool borrowed);

  const model::ResolvedScan& scan_;
  const int kinds_;
  std::vector<BscanSpan> spans_[2];
  std::vector<int64_t> span_rows_[2];  // stored row of each entry of spans_; with several lanes
  int64_t rows_ = 1;                   // number of neighbouring rows per lane
  std::vector<Share> shares_;
  std::vector<int64_t> records_;  // of each lane
};

/// The rows (B-scans) of a volume that one lane makes and copies home. A row is copied only once it
/// is whole, so no kernel is still writing to it.
class RowsHome {
 public:
  using Run = std::pair<int64_t, int64_t>;  // first, count

  void Clear();
  /// The lane received records [first, last) of the volume; it has processed all records before
  /// `made`. `last_waits`: the last row is held back until its end is known.
  void Note(const BlockShares& shares, int64_t volume, int64_t first, int64_t last, int64_t made,
            bool last_waits);
  /// The volume gets no more records: all rows are whole. `again`: rows arrived more than once.
  void Finish(bool again);
  /// Rows ready to be copied.
  const std::vector<Run>& whole() const { return whole_; }
  void Sent() { whole_.clear(); }

 private:
  struct Open {
    int64_t row, end;  // one past its last record
  };
  void Add(int64_t row);

  std::vector<Open> open_;  // rows that may not be whole yet
  std::vector<Run> whole_;
};

}  // namespace octavo::scan

#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "gpu/spectral/spectral.h"
#include "server/model/resolved_scan.h"
#include "server/source/source.h"

namespace octavo::scan {

/// Which records of a block go to which device ("lane") of a scan: whole B-scans, neighbours
/// together. One lane takes all of a block in one share. Of a rolling background, all lanes that
/// have B-scans of a group take all of the group. Compute thread; allocates nothing per block.
class BlockShares {
 public:
  struct Share {  // records of the block that go to one lane
    size_t lane;
    int64_t offset, count;  // within the block
    int64_t raw_offset;     // within the lane's raw buffer
    bool borrowed;          // of another lane's B-scans, for the background of its own
  };
  struct BscanPlace {
    int64_t row;  // of the stored volume
    int64_t end;  // one past its records, what is flown back behind it included
  };

  /// Of `scan`, which must outlive this, the pattern and the volumes stay as they are; the chain
  /// may change between blocks.
  BlockShares(const model::ResolvedScan& scan, size_t lanes);

  /// Cuts the next block.
  void Cut(const source::SourceBlock& block);
  const std::vector<Share>& shares() const { return shares_; }
  /// Records of the block for a lane.
  int64_t RecordsOf(size_t lane) const { return records_[lane]; }

  /// The B-scan that a record of a volume belongs to.
  BscanPlace PlaceAt(int64_t volume, int64_t record) const;
  size_t LaneOfRow(int64_t row) const { return static_cast<size_t>(row / rows_) % records_.size(); }
  /// Volumes of even and odd numbers may be scanned differently.
  size_t KindOf(int64_t volume) const { return kinds_ > 1 ? static_cast<size_t>(volume & 1) : 0; }
  /// The B-scans of a kind in the order of the scan; empty: the raster rule.
  const std::vector<BscanSpan>& Spans(size_t kind) const { return spans_[kind]; }
  void LetGo();

 private:
  void Add(size_t lane, int64_t offset, int64_t count, bool borrowed);

  const model::ResolvedScan& scan_;
  const int kinds_;
  std::vector<BscanSpan> spans_[2];
  std::vector<int64_t> span_rows_[2];  // the stored row of each of spans_; of several lanes
  int64_t rows_ = 1;                   // neighbouring rows that one lane takes
  std::vector<Share> shares_;
  std::vector<int64_t> records_;  // of each lane
};

/// The rows (B-scans) of a volume that one lane makes and that are to be copied home: each when it
/// is whole, so that none is copied while it is still written.
class RowsHome {
 public:
  using Run = std::pair<int64_t, int64_t>;  // first, count

  void Clear();
  /// Records [first, last) of the volume came to the lane; the lane has made all before `made`.
  /// `last_waits`: the last row is kept until its end shows.
  void Note(const BlockShares& shares, int64_t volume, int64_t first, int64_t last, int64_t made,
            bool last_waits);
  /// No more will come of the volume: all rows are whole. `again`: rows came more than once.
  void Finish(bool again);
  /// To be copied.
  const std::vector<Run>& whole() const { return whole_; }
  void Sent() { whole_.clear(); }

 private:
  struct Open {
    int64_t row, end;  // one past its last record
  };
  void Add(int64_t row);

  std::vector<Open> open_;  // rows that the lane may not have made whole yet
  std::vector<Run> whole_;
};

}  // namespace octavo::scan

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gpu/spectral/rolling_window.h"
#include "server/model/resolved_scan.h"

namespace octavo::processing {

/// A record, the records that become one A-scan with it, and those that their backgrounds are made
/// of. Record numbers count from the start of the scan.
struct RecordUnit {
  int64_t volume = 0;
  int64_t record = 0;                    // the last one of the A-scan
  int64_t ascan = 0;                     // its place in the volume, y * columns + x
  int64_t first = 0, end = 0;            // the chain needs these to compute the A-scan
  int64_t need_first = 0, need_end = 0;  // with the records of their backgrounds

  int64_t needed() const { return need_end - need_first; }
};

/// Finds records of a scan, and what their A-scans depend on: nothing but themselves, their B-scan
/// (fixed pattern, background of the B-scan), their group and window (rolling background), and
/// their repeats. One thread.
class RecordChoice {
 public:
  explicit RecordChoice(std::shared_ptr<const model::ResolvedScan> scan);

  const std::shared_ptr<const model::ResolvedScan>& scan() const { return scan_; }
  /// The place of a record in its volume; -1: flyback.
  int64_t AscanOf(int64_t record) const;
  int64_t columns() const { return scan_->shape[1]; }
  /// The newest record of [first, end) with an A-scan in column `column` (-1: any), by itself.
  std::optional<RecordUnit> Newest(int64_t first, int64_t end, int64_t column) const;
  /// Whether an A-scan depends on its record alone.
  bool alone() const { return !spans_ && !rolling_; }
  /// The first A-scan in `column` (-1: any) with nothing needed before record `from`. Nothing if
  /// the scan has none.
  std::optional<RecordUnit> Next(int64_t from, int64_t column) const;
  /// An upper bound of RecordUnit::needed.
  int64_t MostNeeded() const;
  /// The records that the background of `record` is the mean of: [first, second).
  std::pair<int64_t, int64_t> BackgroundOf(int64_t record) const;
  /// Runs of records [first, end) that are processed as one B-scan, in the order of the scan.
  /// Counted from the beginning of `volume`.
  struct Span {
    int64_t first = 0, end = 0, repeat = 0;
  };
  std::vector<Span> SpansIn(const RecordUnit& unit) const;

 private:
  struct Part {  // records of a volume that are processed together
    int64_t first = 0, end = 0;
  };
  size_t KindOf(int64_t volume) const;
  void MakeSpans(size_t kind);
  RecordUnit WithNeeds(RecordUnit unit) const;
  std::optional<RecordUnit> InPart(int64_t volume, int64_t first, int64_t end,
                                   int64_t column) const;

  const std::shared_ptr<const model::ResolvedScan> scan_;
  const bool rolling_, spans_;
  RollingShape shape_;
  std::vector<Span> bscans_[2];  // of even and odd volumes
  std::vector<Part> parts_[2];
};

}  // namespace octavo::processing

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/pattern/geometry.h"
#include "server/pattern/pattern.h"

namespace octavo::pattern {

/// A run of active records: one pass over one segment.
struct PatternSegment {
  int64_t first_record = 0;  // within the volume
  int64_t ascans = 0;
  int64_t bscan = 0;      // the segment, 0 ... bscans_per_volume-1
  int64_t repeat = 0;     // number of the pass over the segment
  int64_t row = 0;        // its row in the stored volume (spiral, Lissajous: its first row)
  bool reversed = false;  // runs from the last A-scan to the first
};

/// Maps each record of a volume to its place. Even and odd volumes differ with
/// bidirectional_volumes.
struct PatternPlan {
  int64_t rows = 0, columns = 0;  // of the stored volume: y, x
  int64_t volume_records = 0;     // flyback included; the same for all volumes
  int kinds = 1;                  // 2: odd volumes differ
  struct Kind {
    std::vector<PatternSegment> segments;  // in the order of the scan
    std::vector<int32_t>
        placement;  // [volume_records]: A-scan index y * columns + x, or -1 for flyback
    int64_t active_records = 0;  // one past the last record that is an A-scan
    int64_t pitch =
        0;  // records from one segment's first record to the next segment's; 0: not constant
  } kind[2];
  const Kind& Of(int64_t volume) const { return kind[kinds == 2 ? volume & 1 : 0]; }
};

/// Scanner positions of one volume, one sample per record, and which of them are A-scans.
struct PatternWaveform {
  std::vector<double> x,
      y;  // [volume_records], scanner units, in the scanner's own (warped) coordinates
  std::vector<int32_t> placement;  // [volume_records]
  double rate_hz = 0;              // 0: not known
  const char* unit = "mm";         // "mm" or "deg"
};

/// Fills in the defaults, checks everything and makes the plan if one is needed. `rate_hz` is the
/// record rate (0: unknown; then limits cannot be kept and are an error). InvalidArgument names the
/// field as in the request
/// ("pattern.radial.radius_end_mm"), the value and what is allowed; a breach of the scanner's
/// limits names axis, segment, sample and value.
absl::Status ResolvePattern(Pattern& pattern, double rate_hz);

/// The plan of a resolved pattern, also if ResolvePattern needs none. At most kMostPlanRecords.
absl::StatusOr<PatternPlan> MakePlan(const Pattern& pattern, double rate_hz);

/// Waveforms of an even or odd volume of a resolved pattern, within its limits, if it has any.
absl::StatusOr<PatternWaveform> MakeWaveform(const Pattern& pattern, const PatternPlan& plan,
                                             int64_t volume, double rate_hz);

/// Row of the stored volume of pass `repeat` (in the order of time) over segment `bscan`.
int64_t RepeatRow(const Pattern& pattern, int64_t bscan, int64_t repeat);

inline bool IsRaster(const Pattern& p) {
  return p.kind == PatternKind::kRaster || p.kind == PatternKind::kRepeatedRaster;
}
inline bool IsRadial(const Pattern& p) {
  return p.kind == PatternKind::kRadial || p.kind == PatternKind::kRepeatedRadial;
}

/// What errors call the fields of this kind of pattern: "pattern.raster.".
std::string FieldsOf(PatternKind kind);
const char* Name(PatternKind kind);  // "repeated_raster"

/// Distance of neighbouring rows and columns of the stored volume, in um: raster: of B-scans and
/// A-scans; radial: of segments at the largest radius, and along them; spiral: of turns, and the
/// mean along the path; Lissajous and freeform: extent over rows, and the mean along the path.
void SpacingUm(const Pattern& pattern, double* y, double* x);

constexpr int64_t kMostPlanRecords = int64_t{1} << 24;
constexpr int64_t kMostFreeformPoints = int64_t{1} << 17;

}  // namespace octavo::pattern

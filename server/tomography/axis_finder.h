#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/tomography/axis_line.h"
#include "server/job/job.h"
#include "server/model/tomography_spec.h"
#include "server/tomography/row_preparer.h"
#include "server/tomography/scanned_object.h"

namespace octavo::tomography {

/// Finds the rotation axis of a run, or the overlap of its halves, in a few rows, or checks an axis
/// that was given. An axis that may lean is found in several groups of rows, as a line; where the
/// projections are to be turned, again in the turned ones. Writes what it found to the run's
/// report. Used by the job's thread only.
class AxisFinder {
 public:
  /// All must outlive it. `check_slices`: rows for which there is room to check a given axis; 0: no
  /// check.
  AxisFinder(job::JobRun& run, std::stop_token stop, const model::TomographySpec& spec,
             int64_t check_slices, RowPreparer& rows, model::TomographyReport& report)
      : run_(run),
        stop_(std::move(stop)),
        spec_(spec),
        check_slices_(check_slices),
        rows_(rows),
        report_(report) {}

  /// Sets the centers of `object`, and its layout if the overlap was found. Returns the part of the
  /// whole job that this took, for its bar. FailedPrecondition (AXIS_IN_DOUBT); Cancelled.
  absl::StatusOr<double> Find(ScannedObject& object);

 private:
  absl::Status Search(ScannedObject& object, bool overlap);
  absl::Status SearchIn(const SliceGroup& group, bool overlap, ScannedObject& object);
  /// The axis in all groups of rows, and the line through them.
  struct LineSearch {
    std::vector<AxisPoint> points;
    std::vector<model::AxisLineReport::Group> groups;
    std::optional<AxisLine> line;
    int64_t agree() const { return line.has_value() ? line->points_used : 0; }
    /// Multiplies the slope of the line, which must be there, about its mean row.
    void Steepen(double factor);
  };
  absl::Status SearchLine(ScannedObject& object);
  absl::StatusOr<LineSearch> LookForLine(const ScannedObject& object);
  absl::StatusOr<AxisLine> RefinedByTurning(AxisLine line, const ScannedObject& object);
  void TellLine(const AxisLine& line, const LineSearch& search, double turned, double remaining);
  absl::StatusOr<CenterResult> CenterIn(const SliceGroup& group, const ScannedObject& object);
  absl::Status TakeLine(const AxisLine& line, ScannedObject& object);
  absl::StatusOr<PreparedRows> Mended(const ScannedObject& object, const SliceGroup& group,
                                      bool overlap);
  absl::Status FindCenter(const PreparedRows& rows, ScannedObject& object);
  absl::Status FindOverlap(const PreparedRows& rows, ScannedObject& object);
  absl::Status Check(const ScannedObject& object);
  absl::Status CheckIn(const PreparedRows& rows, const ScannedObject& object);
  /// Whence the axis is: from the request or the input; the same, and opposite projections show it,
  /// too; from a search.
  enum class AxisKnown { kGiven, kSeen, kSearched };
  absl::Status CheckTogether(const PreparedRows& rows, const ScannedObject& object, AxisKnown axis);
  absl::Status CheckOverlap(const PreparedRows& rows, const ScannedObject& object);
  absl::StatusOr<std::vector<int64_t>> Mend(const PreparedRows& rows);
  void TellDead(const std::vector<int64_t>& dead, const TomographyLayout& layout);
  absl::Status Doubt(const std::vector<std::string>& doubts, const std::vector<double>& centers);

  job::JobRun& run_;
  const std::stop_token stop_;
  const model::TomographySpec& spec_;
  const int64_t check_slices_;
  RowPreparer& rows_;
  model::TomographyReport& report_;
  bool told_dead_ = false;
  int64_t groups_done_ = 0;
};

}  // namespace octavo::tomography

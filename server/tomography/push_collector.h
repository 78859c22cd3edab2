#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/job/job.h"
#include "server/model/tomography_spec.h"
#include "server/source/push_projections.h"
#include "server/tomography/layout.h"
#include "server/tomography/scanned_object.h"

namespace octavo::tomography {

/// The projections that clients push: waits for them, and judges what came. Used by the job's
/// thread only.
class PushCollector {
 public:
  /// Shows what has come so far, while the input waits for more. `all`: nothing more will come.
  /// Returns whether it has more to do at once.
  using Show = std::function<absl::StatusOr<bool>(bool all)>;
  /// All must outlive it. `planned`: the layout of all frames.
  PushCollector(job::JobRun& run, std::stop_token stop, source::ProjectionPort& port,
                const model::TomographySpec& spec, const TomographyLayout& planned)
      : run_(run), stop_(std::move(stop)), port_(port), spec_(spec), planned_(planned) {}

  /// Waits for all projections, without the device's turn, and calls `show` meanwhile: after each
  /// frame, and at least ten times a second. Then the angles are known, and with them the half
  /// turns; the layout is that of the planned one. Errors of `show`; FailedPrecondition
  /// (FRAMES_MISSING) if the request says so; InvalidArgument names the field.
  absl::StatusOr<ScannedObject> Collect(const Show& show);
  /// The same for the projections of volume `index` of the series. Nothing if the push has ended
  /// without all of them. `fraction`: of the whole job, that is done. Errors as Collect;
  /// FailedPrecondition (NO_PROJECTIONS) if there is no first volume.
  absl::StatusOr<std::optional<source::PushedPart>> CollectWindow(int64_t index, double fraction,
                                                                  const Show& show);
  /// Warns of pushed frames that were left out. At the end of the job, because some come after the
  /// last frame that counts.
  absl::Status TellLeftOut();

 private:
  /// Until the push has ended, or so many projections are in, none of the frames before them
  /// missing.
  absl::Status Await(const Show& show, int64_t in_order);
  /// `index`: of the volume of `spec`, whose projections are among those of `input`.
  absl::Status Judge(storage::ProjectionInput& input, const model::TomographySpec& spec,
                     int64_t index);
  absl::Status CheckFields(int64_t flats, int64_t darks) const;
  absl::Status LookForMissing(const std::vector<std::pair<int64_t, int64_t>>& missing);

  job::JobRun& run_;
  const std::stop_token stop_;
  source::ProjectionPort& port_;
  const model::TomographySpec& spec_;
  const TomographyLayout& planned_;
  bool told_missing_ = false;
};

}  // namespace octavo::tomography

#pragma once

#include "absl/status/status.h"

#include "server/job/job.h"
#include "server/model/tomography_spec.h"
#include "server/source/push_projections.h"
#include "server/tomography/layout.h"
#include "server/tomography/preview_maker.h"
#include "server/tomography/row_preparer.h"

namespace octavo::tomography {

/// Shows subscribers one slice from the projections that were pushed so far: a filtered
/// back projection, a small piece of work beside the job that has the device.
class PushPreview {
 public:
  /// All must outlive it. `planned`: the layout of all frames.
  PushPreview(job::JobRun& run, source::ProjectionPort& port, const model::TomographySpec& spec,
              const TomographyLayout& planned, RowPreparer& rows, PreviewMaker& previews)
      : run_(run), port_(port), spec_(spec), planned_(planned), rows_(rows), previews_(previews) {}

  bool Due() const;
  absl::Status Show();

 private:
  job::JobRun& run_;
  source::ProjectionPort& port_;
  const model::TomographySpec& spec_;
  const TomographyLayout& planned_;
  RowPreparer& rows_;
  PreviewMaker& previews_;
};

}  // namespace octavo::tomography

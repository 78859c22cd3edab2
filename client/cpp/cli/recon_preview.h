#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "octavo/v1/job.pb.h"
#include "octavo/v1/volume.pb.h"

#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/grey_picture.h"
#include "client/cpp/cli/own_session.h"
#include "client/cpp/cli/recon_flags.h"

namespace octavo::cli {

/// The pictures of --preview. Of each scan a projection, prepared but for the steps that need other
/// projections or follow the logarithm (ring removal, shifts along the axis that are found,
/// stitching, beam hardening), and the sinogram of a row as the reconstruction would get it, but of
/// all half turns. The server prepares both, whatever kind of file the scan is, and keeps nothing.
class ReconPreview {
 public:
  ReconPreview(Session& session, const ReconFlags& flags);
  /// Writes the pictures of the scan in `file` and prints their paths. False, after a message and
  /// with the exit code set, if that fails or is interrupted. Throws CLI::ValidationError for a
  /// place that cannot be written, and for a row that the scan does not have. A folder that it
  /// makes does not stay without a picture.
  bool Make(const std::string& file);

 private:
  /// A picture that was written.
  struct Picture {
    std::string path, quantity;
    int64_t rows = 0, columns = 0;
    GreyWindow window;
  };
  /// Makes the sinograms that `spec` describes; nothing after a message.
  std::optional<v1::Volume> Prepare(const std::string& file, const v1::JobSpec& spec);
  /// Writes the values of a volume with one row or one angle as a picture.
  std::optional<Picture> Write(const v1::Volume& volume, const std::string& path);
  void Discard(const v1::Volume& volume);
  /// The rows of the detector that make the sinogram of --preview-row, of the rows that `job` uses,
  /// which make `slices` slices.
  v1::IndexRange RowsOf(const v1::TomographyJob& job, int64_t slices) const;

  Session& session_;
  const ReconFlags& flags_;
  OwnSession own_;
  v1::Job job_;  // the last one
};

}  // namespace octavo::cli

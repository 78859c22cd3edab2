#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

#include "octavo/v1/job.pb.h"

#include "client/cpp/cli/format_flags.h"
#include "client/cpp/cli/job_flags.h"
#include "client/cpp/cli/scan_follower.h"
#include "client/cpp/cli/settings_file.h"

namespace octavo::cli {

/// The name of a scan: that of its file without folders and without the ending of its kind of file.
std::string NameOfScan(const std::string& file);

/// The flags of octavo recon.
class ReconFlags {
 public:
  void AddTo(CLI::App* app);
  /// The job that the flags describe for the scan in `file`, on top of --json-spec. Throws
  /// CLI::ValidationError for flags without effect beside the others.
  v1::JobSpec Spec(const std::string& file) const;
  /// The server's choices, in words; empty if there are none.
  std::string ChosenIterations() const;
  /// The commit options of --output; nothing if it is not given.
  std::optional<v1::CommitOptions> Commit() const;
  /// The same for a series: each volume gets its number, unless --output says where.
  std::optional<v1::CommitOptions> CommitOfSeries() const;
  /// Those of the result of `file` in --output-dir: its name is that of the scan.
  v1::CommitOptions CommitInFolder(const std::string& file) const;

  /// Whether a name may be a pattern or a folder of scans; then FindScans has to be called.
  bool MayNameMany() const;
  /// Whether a name is a pattern.
  bool HasPattern() const;
  /// Puts the scans in place of the patterns and folders of scans that are named, and returns what
  /// was left out, for people. `roots`: the server's replay roots. Throws CLI::ValidationError for
  /// those that stand for no scan.
  std::vector<std::string> FindScans(std::vector<std::string> roots, const std::string& address);

  /// The files, at least one; of tiles the first one, which stands for all. Throws
  /// CLI::RequiredError.
  std::vector<std::string> files() const;
  /// Every result goes to --output-dir: with several files, with a pattern or a folder of scans,
  /// however many it stands for, and if that is given.
  bool batch() const { return files().size() > 1 || !many_.empty() || Given("--output-dir"); }
  size_t jobs_at_a_time() const { return jobs_at_a_time_; }
  bool skip_existing() const { return skip_existing_; }
  bool stop_on_error() const { return stop_on_error_; }

  const SettingsFile& settings() const { return settings_; }
  const JobFlags& job() const { return job_; }
  const std::string& png() const { return png_; }
  /// The file of the picture of evidence of the axis; empty: none.
  const std::string& axis_png() const { return axis_png_; }
  std::optional<uint32_t> slice() const { return slice_; }
  /// The folder of --preview; empty: no previews.
  const std::string& preview() const { return preview_; }
  /// The file of a picture of the scan in `file` there. `kind`: projection, sinogram.
  std::string PreviewOf(const std::string& file, const char* kind) const;
  /// The index of the projection of a preview in its scan; nothing: the first that is used.
  std::optional<uint32_t> preview_projection() const { return preview_projection_; }
  /// The row of the detector whose sinogram is shown; nothing: the middle one of those used.
  std::optional<uint32_t> preview_row() const { return preview_row_; }
  bool preview_only() const { return preview_only_; }
  /// Whether the scan is still being written, on this computer.
  bool follow() const { return follow_; }
  const FollowOptions& following() const { return following_; }
  /// Whether a result is to go somewhere: on the server, or into a picture.
  bool HasPlace() const {
    return Given("--output") || Given("--output-dir") || Given("--png") || Given("--axis-png") ||
           Given("--try-centers");
  }
  /// The command ends when the job is queued, and the server commits the result by itself.
  bool no_wait() const { return no_wait_; }

 private:
  void AddFollowingTo(CLI::App* app);
  void AddTilesTo(CLI::App* app);
  /// Whether the files are tiles of one scan.
  bool HasTiles() const { return Given("--tile-columns") || Given("--tile-rows"); }
  void SetTiles(v1::TomographyJob* job) const;
  bool Given(const char* flag) const { return app_->count(flag) > 0; }
  /// SettingsFile::Replaced of this command.
  std::string Replaces(const std::string& setting, const std::string& value,
                       const std::set<std::string>& by_hand) const;
  void SetFile(const std::string& file, v1::TomographyJob* job) const;
  void SetPreparation(v1::TomographyPreparation* preparation) const;
  void SetCenter(v1::TomographyJob* job) const;
  void SetAlongRows(v1::TomographyJob* job) const;
  void SetUsualCenter(v1::TomographyJob* job) const;
  void SetAlgorithm(v1::TomographyAlgorithmOptions* options) const;
  /// Whether the result is prepared sinograms.
  static bool OnlyPrepares(const v1::TomographyJob& job);
  void CheckOnlyPrepares(const v1::TomographyJob& job) const;
  void SetSamples(v1::TomographyJob* job) const;
  void SetSeries(v1::TomographyJob* job) const;
  void CheckTogether(const v1::TomographyJob& job) const;
  void CheckFollowing(const v1::TomographyJob& job) const;
  void CheckOfBatch() const;

  const CLI::App* app_ = nullptr;
  std::vector<std::string> files_;
  std::string many_;  // ScanNames
  std::string output_, output_dir_, png_, algorithm_, center_,
      center_doubt_ = "warn", rows_, columns_, projections_, interpolation_, filter_, angles_,
      flats_, darks_, angles_file_, try_centers_, projections_at_, samples_, window_, phase_method_,
      series_, preview_, half_turn_, axis_png_, along_rows_, tile_columns_, tile_rows_;
  std::vector<std::string> rings_;
  std::vector<double> outliers_, phase_, hardening_;
  std::vector<uint32_t> air_;
  std::optional<double> min_, max_, mask_, overlap_, not_finite_;
  std::optional<uint32_t> padding_, slice_, row_, preview_projection_, preview_row_,
      flat_components_;
  uint32_t tile_search_ = 0, iterations_ = 0, subsets_ = 0, batch_ = 0, size_ = 0, bin_ = 0;
  double relaxation_ = 0, stop_change_ = 0, stop_residual_ = 0, pixel_ = 0, accuracy_ = 0,
         cutoff_ = 0, most_row_drift_ = 0, tv_weight_ = 0, phase_feature_ = 0, roll_ = 0;
  bool tomopy_ = false, sinograms_ = false, no_log_ = false, extend_ = false, on_disk_ = false,
       median_ = false, in_time_ = false, dynamic_flats_ = false, row_drift_ = false,
       stitch_right_ = false, stitch_left_ = false, radians_ = false, degrees_ = false,
       transmissions_ = false, to_zero_ = false, no_wait_ = false, prepare_only_ = false,
       skip_existing_ = false, stop_on_error_ = false, preview_only_ = false, follow_ = false;
  FollowOptions following_;
  size_t jobs_at_a_time_ = 2;
  SettingsFile settings_;
  FormatFlags format_;
  JobFlags job_;
};

}  // namespace octavo::cli

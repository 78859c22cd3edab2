#include "server/scan/admission.h"

#include <algorithm>
#include <filesystem>
#include <sys/statvfs.h>
#include <system_error>

#include "gpu/base/status.h"
#include "server/base/errors.h"
#include "server/scan/scan_memory.h"
#include "server/volume/committer.h"
#include "server/volume/volume_metadata.h"

namespace octavo::scan {
namespace {

// A volume of the scan, as far as the path of its commit depends on it.
model::VolumeStatus FirstVolume(const model::ResolvedScan& scan) {
  model::VolumeStatus volume;
  volume.scan = "scans/check";
  volume.title = scan.spec.title;
  volume.dtype = scan.chain.output;
  std::copy(scan.shape, scan.shape + 3, volume.shape);
  return volume;
}

// The folder that AUTO_COMMIT writes to, as far as it exists; without it, the first storage root.
std::filesystem::path CommitFolder(const model::ResolvedScan& scan,
                                   const std::vector<std::string>& roots) {
  const model::Retention& retention = scan.spec.retention;
  if (retention.disposition == model::Disposition::kAutoCommit) {
    const auto destination =
        volume::ExpandDestination(retention.auto_commit.destination, FirstVolume(scan));
    const auto path =
        destination.ok() ? storage::ResolveDestination(roots, *destination) : destination.status();
    if (path.ok()) {  // CheckAutoCommit refuses others
      std::filesystem::path folder = std::filesystem::path(*path).parent_path();
      std::error_code none;
      while (folder.has_relative_path() && !std::filesystem::exists(folder, none))
        folder = folder.parent_path();
      return folder;
    }
  }
  return roots[0];
}

}  // namespace

void AddRunFigures(const model::ResolvedScan& scan, const std::vector<std::string>& roots,
                   int64_t spill_free_bytes, model::AdmissionReport* report) {
  const model::ScanSpec& spec = scan.spec;
  report->volume_bytes = scan.volume_bytes;
  report->run_bytes = spec.pattern.volumes * scan.volume_bytes;
  report->pinned_bytes = PinnedBytes(scan);
  report->spill_free_bytes = spill_free_bytes;
  const auto* simulated = std::get_if<model::SimulatedSource>(&spec.source);
  const bool paced = simulated == nullptr || !simulated->as_fast_as_possible;
  if (paced && scan.source.record_rate_hz > 0) {
    report->volumes_per_second =
        scan.source.record_rate_hz /
        static_cast<double>(scan.volume_records * scan.chain.record_average);
  }
  if (!roots.empty()) {
    struct statvfs fs {};
    if (statvfs(CommitFolder(scan, roots).c_str(), &fs) == 0) {
      report->disk_free_bytes =
          static_cast<int64_t>(fs.f_bavail) * static_cast<int64_t>(fs.f_frsize);
    }
  }
  if (report->volumes_per_second <= 0) return;
  const model::Retention& retention = spec.retention;
  const int64_t slots = VolumeSlots(scan);
  const bool fills_memory = retention.mode == model::RetentionMode::kCapture &&
                            retention.disposition == model::Disposition::kAsk &&
                            (spec.pattern.volumes == 0 || spec.pattern.volumes > slots);
  if (fills_memory)
    report->seconds_to_memory_full = static_cast<double>(slots) / report->volumes_per_second;
  const int64_t with_tier = slots + spill_free_bytes / scan.volume_bytes;
  if (fills_memory && model::Spills(retention.on_full) &&
      (spec.pattern.volumes == 0 || spec.pattern.volumes > with_tier)) {
    report->seconds_to_spill_full = static_cast<double>(with_tier) / report->volumes_per_second;
  }
  const double disk_volumes =
      static_cast<double>(report->disk_free_bytes) / static_cast<double>(scan.volume_bytes);
  if (retention.disposition == model::Disposition::kAutoCommit &&
      (spec.pattern.volumes == 0 || static_cast<double>(spec.pattern.volumes) > disk_volumes)) {
    report->seconds_to_disk_full = disk_volumes / report->volumes_per_second;
  }
}

absl::Status CheckAutoCommit(const model::ResolvedScan& scan,
                             const std::vector<std::string>& roots) {
  const model::Retention& retention = scan.spec.retention;
  if (retention.disposition != model::Disposition::kAutoCommit) return absl::OkStatus();
  const auto rename = [](const absl::Status& status) {
    return base::AtCommitOptions("retention.auto_commit", status);
  };
  model::VolumeStatus volume = FirstVolume(scan);
  const auto destination = volume::ExpandDestination(retention.auto_commit.destination, volume);
  if (!destination.ok()) return rename(destination.status());
  if (absl::Status status = storage::ResolveDestination(roots, *destination).status(); !status.ok())
    return rename(status);
  // Two volumes of one scan must not want the same name.
  volume.index = 1;
  if (scan.spec.pattern.volumes != 1 &&
      *volume::ExpandDestination(retention.auto_commit.destination, volume) == *destination) {
    return InvalidField("retention.auto_commit.destination",
                        "names the same file for every volume; use {index} in it");
  }
  return rename(
      storage::ResolveOptions(retention.auto_commit.writer, volume::MetaOf(volume, "", ""))
          .status());
}

}  // namespace octavo::scan

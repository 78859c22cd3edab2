#include "server/volume/spill_metadata.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "gpu/base/status.h"
#include "server/storage/formats/meta_json.h"
#include "server/storage/io/json_members.h"
#include "server/storage/spill/spill_folder.h"
#include "server/volume/pattern_json.h"
#include "server/volume/volume_metadata.h"

namespace octavo::volume {
namespace {

// A collection and an id: parts of them become names of files.
bool IsNamed(absl::string_view collection, absl::string_view name) {
  return absl::ConsumePrefix(&name, collection) && storage::IsSpillId(name);
}

}  // namespace

nlohmann::json AboutOf(const model::VolumeStatus& volume, const storage::VolumeMeta& meta) {
  storage::VolumeMeta all = meta;
  if (volume.all_missing != nullptr) all.missing_ranges = *volume.all_missing;
  nlohmann::json about = {{"meta", storage::MetaJson(all)},
                          {"value", static_cast<int>(volume.value)},
                          {"quantity", Name(volume.quantity)},
                          {"derived_from", volume.derived_from},
                          {"operations", volume.operations},
                          {"display", {volume.display_lo, volume.display_hi}},
                          {"clipped", {volume.clipped_below, volume.clipped_above}},
                          {"ttl_seconds", volume.ttl_seconds},
                          {"ttl_warning_seconds", volume.ttl_warning_seconds},
                          {"marked", volume.marked},
                          {"raw", volume.is_raw}};
  if (volume.expected_frames > 0) {
    about["frames"] = {{"missing", volume.missing_frames},
                       {"expected", volume.expected_frames},
                       {"first_ranges", volume.missing_frame_ranges}};
  }
  if (!volume.job.empty()) about["job"] = volume.job;
  if (volume.held_unix_ns > 0) about["held_unix_ns"] = volume.held_unix_ns;
  if (volume.expires_seconds > 0) about["expires_seconds"] = volume.expires_seconds;
  if (!volume.owner.name.empty())
    about["owner"] = {{"name", volume.owner.name},
                      {"project", volume.owner.project},
                      {"role", std::string(security::Name(volume.owner.role))}};
  const pattern::Pattern* const pattern = PatternOf(volume);
  if (pattern != nullptr) about["pattern"] = PatternJson(*pattern);
  return about;
}

absl::StatusOr<model::VolumeStatus> StatusFromAbout(const nlohmann::json& about) {
  if (!about.is_object() || !about.contains("meta"))
    return absl::DataLossError("it has no metadata");
  OCTAVO_ASSIGN_OR_RETURN(storage::VolumeMeta meta, storage::MetaFromJson(about["meta"]));
  model::VolumeStatus volume;
  int value = 0;
  double display[2];
  OCTAVO_RETURN_IF_ERROR(storage::ReadMember(about, "value", &value));
  if (value < 0 || value > static_cast<int>(model::ValueKind::kComplex))
    return absl::DataLossError(absl::StrCat("value is ", value));
  volume.value = static_cast<model::ValueKind>(value);
  std::string quantity;
  OCTAVO_RETURN_IF_ERROR(storage::ReadMember(about, "quantity", &quantity));
  const std::optional<model::Quantity> known = model::QuantityNamed(quantity);
  if (!known.has_value()) return absl::DataLossError(absl::StrCat("quantity is '", quantity, "'"));
  volume.quantity = *known;
  OCTAVO_RETURN_IF_ERROR(storage::ReadMember(about, "derived_from", &volume.derived_from));
  OCTAVO_RETURN_IF_ERROR(storage::ReadMember(about, "operations", &volume.operations));
  OCTAVO_RETURN_IF_ERROR(storage::ReadMember(about, "display", &display));
  volume.display_lo = display[0];
  volume.display_hi = display[1];
  if (about.contains("clipped")) {  // the member is optional
    int64_t clipped[2];
    OCTAVO_RETURN_IF_ERROR(storage::ReadMember(about, "clipped", &clipped));
    volume.clipped_below = clipped[0];
    volume.clipped_above = clipped[1];
  }
  OCTAVO_RETURN_IF_ERROR(storage::ReadMember(about, "ttl_seconds", &volume.ttl_seconds));
  OCTAVO_RETURN_IF_ERROR(
      storage::ReadMember(about, "ttl_warning_seconds", &volume.ttl_warning_seconds));
  OCTAVO_RETURN_IF_ERROR(storage::ReadMember(about, "marked", &volume.marked));
  if (about.contains("frames")) {
    const nlohmann::json& frames = about["frames"];
    OCTAVO_RETURN_IF_ERROR(
        storage::ReadMember(frames, "missing", &volume.missing_frames, "frames"));
    OCTAVO_RETURN_IF_ERROR(
        storage::ReadMember(frames, "expected", &volume.expected_frames, "frames"));
    OCTAVO_RETURN_IF_ERROR(
        storage::ReadMember(frames, "first_ranges", &volume.missing_frame_ranges, "frames"));
  }
  // Older files tell neither: for them both times begin anew.
  if (about.contains("held_unix_ns"))
    OCTAVO_RETURN_IF_ERROR(storage::ReadMember(about, "held_unix_ns", &volume.held_unix_ns));
  if (about.contains("expires_seconds"))
    OCTAVO_RETURN_IF_ERROR(storage::ReadMember(about, "expires_seconds", &volume.expires_seconds));
  if (about.contains("job")) OCTAVO_RETURN_IF_ERROR(storage::ReadMember(about, "job", &volume.job));
  if (about.contains("owner")) {  // older files tell none: what they hold is nobody's
    const nlohmann::json& owner = about["owner"];
    OCTAVO_RETURN_IF_ERROR(storage::ReadMember(owner, "name", &volume.owner.name, "owner"));
    OCTAVO_RETURN_IF_ERROR(storage::ReadMember(owner, "project", &volume.owner.project, "owner"));
    std::string role;  // older files tell none: no role has an exception of its own then
    if (owner.contains("role"))
      OCTAVO_RETURN_IF_ERROR(storage::ReadMember(owner, "role", &role, "owner"));
    volume.owner.role = security::RoleNamed(role).value_or(security::Role::kNone);
  }
  if (about.contains("raw"))
    OCTAVO_RETURN_IF_ERROR(storage::ReadMember(about, "raw", &volume.is_raw));
  if (!IsNamed("volumes/", meta.volume_name) ||
      (!IsNamed("scans/", meta.scan_name) && !IsNamed("jobs/", meta.scan_name))) {
    return absl::DataLossError(
        absl::StrCat("it names the volume '", meta.volume_name, "' of '", meta.scan_name, "'"));
  }
  int64_t bytes = SizeOf(meta.dtype);
  for (const int64_t extent : meta.shape) {
    if (extent < 1 || extent > (int64_t{1} << 40) / bytes)
      return absl::DataLossError(absl::StrCat("an extent is ", extent));
    bytes *= extent;
  }
  volume.name = meta.volume_name;
  volume.scan = meta.scan_name;
  volume.index = meta.index;
  DescribeBy(meta, &volume);
  volume.complete = meta.missing_ascans == 0 && volume.missing_frames == 0;
  volume.digest = meta.digest;
  if (about.contains("pattern")) {  // tomograms have none, and older files tell none; without one
                                    // the voxels are as good
    auto pattern = PatternFromJson(about["pattern"]);
    if (pattern.ok() && pattern->rows() == volume.shape[0] &&
        pattern->ascans_per_bscan == volume.shape[1]) {
      volume.recovered_pattern = std::make_shared<const pattern::Pattern>(*std::move(pattern));
    }
  }
  volume.recovered_meta = std::make_shared<const storage::VolumeMeta>(std::move(meta));
  return volume;
}

absl::StatusOr<model::VolumeStatus> StatusOfFile(const storage::SpillFolder::Found& found) {
  OCTAVO_ASSIGN_OR_RETURN(model::VolumeStatus volume, StatusFromAbout(found.about));
  if (volume.bytes != found.file->bytes()) return absl::DataLossError("another size");
  const absl::string_view id = absl::StripPrefix(volume.name, "volumes/");
  if (!absl::EndsWith(found.file->path(), absl::StrCat("/", id, ".spill")))
    return absl::DataLossError(absl::StrCat("it is of ", volume.name, ", a copy of another file"));
  return volume;
}

}  // namespace octavo::volume

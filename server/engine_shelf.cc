#include "server/engine_shelf.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

#include "server/security/rights.h"
#include "server/storage/formats/ending.h"

namespace octavo::drain {

std::vector<model::VolumeStatus> EngineShelf::Volumes() {
  return engine_.volumes().List({.in_memory = true});
}

bool EngineShelf::Busy() { return !engine_.Idle(); }

absl::StatusOr<std::string> EngineShelf::Begin(const model::VolumeStatus& volume, Way way) {
  // No client but an admin may cancel what keeps the volumes of all.
  const security::Principal itself = security::ServerItself();
  const operation::RequestKey request{.id = "", .body = "", .owner = security::OwnerOf(itself)};
  if (way == Way::kSpill)
    return engine_.volumes().Spill(volume.name, model::Tier::kDisk, request, "", itself);
  model::CommitOptions options;
  options.destination = DestinationAtStop(volume, to_.root, to_.format);
  if (const auto format = storage::EndingOf(options.destination).format; format.has_value())
    options.writer.format = *format;
  return engine_.volumes().Commit(volume.name, options, request, "", itself);
}

absl::StatusOr<operation::OperationStatus> EngineShelf::Look(const std::string& operation) {
  return engine_.operations().Get(operation);
}

void EngineShelf::Cancel(const std::string& operation) {
  (void)engine_.operations().Cancel(operation,
                                    security::ServerItself());  // one that has ended needs none
}

std::string DestinationAtStop(const model::VolumeStatus& volume, const std::string& root,
                              const std::string& format) {
  absl::string_view maker = model::ParentOf(volume);
  maker = absl::StripPrefix(maker, "scans/");
  maker = absl::StripPrefix(maker, "jobs/");
  std::string destination = absl::StrFormat("%s/held_at_stop/%s_%05d", root, maker, volume.index);
  if (volume.is_raw) destination += "_raw";
  if (!volume.derived_from.empty() || !volume.job.empty())
    absl::StrAppend(&destination, "_", absl::StripPrefix(volume.name, "volumes/"));
  return absl::StrCat(destination, ".", format);
}

}  // namespace octavo::drain

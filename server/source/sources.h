#pragma once

// Private to this folder and resolve_scan.cc: one Inspect and one Open per kind of source.

#include <memory>
#include <string>
#include <vector>

#include "server/source/source.h"

namespace octavo::source {

/// Replaces zeros by the documented defaults. Idempotent.
model::SimulatedSource WithDefaults(const model::SimulatedSource& given, DType raw_type);
absl::StatusOr<model::SourceTraits> InspectSimulated(const model::ScanSpec& spec,
                                                     const model::SimulatedSource& given);
std::unique_ptr<Source> OpenSimulated(const model::ScanSpec& resolved,
                                      const model::SimulatedSource& source, const Clock* clock);

/// The traits of a source whose producers deliver the records that the acquisition describes. `who`
/// names the source in errors: "a ring".
absl::StatusOr<model::SourceTraits> TraitsOfDelivered(const model::Acquisition& acquisition,
                                                      const char* who);

model::PushSource WithDefaults(const model::PushSource& given);
absl::StatusOr<model::SourceTraits> InspectPush(const model::ScanSpec& spec,
                                                const model::PushSource& given);
std::unique_ptr<Source> OpenPush(const model::ScanSpec& resolved, const model::PushSource& source,
                                 const Clock* clock);

model::RingSource WithDefaults(const model::RingSource& given);
absl::StatusOr<model::SourceTraits> InspectRing(const model::ScanSpec& spec,
                                                const model::RingSource& given);
/// Fills in and checks the fields that depend on the acquisition, whose blocks are resolved.
absl::Status ResolveRing(model::ScanSpec* spec, int64_t volume_records);
std::unique_ptr<Source> OpenRing(const model::ScanSpec& resolved, const Clock* clock);

model::CameraSource WithDefaults(const model::CameraSource& given);
/// camera_aravis.cc and camera_aravis_source.cc, or camera_none.cc where there is no Aravis.
absl::StatusOr<model::SourceTraits> InspectCamera(const model::ScanSpec& spec,
                                                  const model::CameraSource& given);
absl::StatusOr<std::unique_ptr<Source>> OpenCamera(const model::ScanSpec& resolved,
                                                   const model::CameraSource& source,
                                                   const Clock* clock);

absl::StatusOr<model::SourceTraits> InspectReplay(const model::ScanSpec& spec,
                                                  const model::ReplaySource& replay,
                                                  const std::vector<std::string>& roots);
absl::StatusOr<std::unique_ptr<Source>> OpenReplay(const model::ScanSpec& resolved,
                                                   const model::ReplaySource& replay,
                                                   const std::vector<std::string>& roots,
                                                   const Clock* clock);

}  // namespace octavo::source

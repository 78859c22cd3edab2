#pragma once

// Private to this folder and resolve_scan.cc: one Inspect and one Open per kind of source.

#include <memory>
#include <string>
#include <vector>

#include "server/source/source.h"

namespace octavo::engine {

/// Zeros replaced by the documented defaults. Idempotent.
SimulatedSource WithDefaults(const SimulatedSource& given, DType raw_type);
absl::StatusOr<SourceTraits> InspectSimulated(const ScanSpec& spec, const SimulatedSource& given);
std::unique_ptr<Source> OpenSimulated(const ScanSpec& resolved, const SimulatedSource& source, const Clock* clock);

/// Of a source whose producers deliver what the acquisition says; `who` needs that: "a ring".
absl::StatusOr<SourceTraits> TraitsOfDelivered(const Acquisition& acquisition, const char* who);

PushSource WithDefaults(const PushSource& given);
absl::StatusOr<SourceTraits> InspectPush(const ScanSpec& spec, const PushSource& given);
std::unique_ptr<Source> OpenPush(const ScanSpec& resolved, const PushSource& source, const Clock* clock);

RingSource WithDefaults(const RingSource& given);
absl::StatusOr<SourceTraits> InspectRing(const ScanSpec& spec, const RingSource& given);
/// Fills in and checks what depends on the acquisition; its blocks are resolved.
absl::Status ResolveRing(ScanSpec* spec, int64_t volume_records);
std::unique_ptr<Source> OpenRing(const ScanSpec& resolved, const Clock* clock);

CameraSource WithDefaults(const CameraSource& given);
/// camera_aravis.cc and camera_aravis_source.cc, or camera_none.cc where there is no Aravis.
absl::StatusOr<SourceTraits> InspectCamera(const ScanSpec& spec, const CameraSource& given);
absl::StatusOr<std::unique_ptr<Source>> OpenCamera(const ScanSpec& resolved, const CameraSource& source, const Clock* clock);

absl::StatusOr<SourceTraits> InspectReplay(const ScanSpec& spec, const ReplaySource& replay, const std::vector<std::string>& roots);
absl::StatusOr<std::unique_ptr<Source>> OpenReplay(const ScanSpec& resolved, const ReplaySource& replay, const std::vector<std::string>& roots,
                                                   const Clock* clock);

}  // namespace octavo::engine

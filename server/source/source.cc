#include "server/source/source.h"

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/source/camera.h"
#include "server/source/ring_port.h"
#include "server/source/sources.h"

namespace octavo::source {

std::vector<SourceKind> SourceKinds() {
  return {{.name = "simulated", .available = true, .reason = "part of the server"},
          {.name = "replay", .available = true, .reason = "part of the server"},
          {.name = "push", .available = true, .reason = "part of the server"},
          {.name = "ring", .available = true, .reason = "part of the server"},
          CameraSupport()};
}

absl::Status NoSource() {
  return InvalidField("source", "is not given; allowed are simulated, replay, push, camera, ring");
}

int64_t LentBytes(const model::ScanSpec& resolved) {
  return std::holds_alternative<model::RingSource>(resolved.source)
             ? LimitsOfRing(resolved).total_bytes()
             : 0;
}

absl::StatusOr<model::SourceTraits> TraitsOfDelivered(const model::Acquisition& a,
                                                      const char* who) {
  if (a.samples_per_record < 16 || a.samples_per_record > 65536) {
    return InvalidField(
        "acquisition.samples_per_record",
        absl::StrCat("is ", a.samples_per_record, "; ", who, " needs it, 16 to 65536"));
  }
  return model::SourceTraits{.samples_per_record = a.samples_per_record,
                             .raw_type = a.raw_type_given ? a.raw_type : DType::kU16,
                             .packing = a.packing,
                             .record_rate_hz = a.record_rate_hz,
                             .adc_bits = 0,
                             .total_records = 0,
                             .wavelength_nm = {}};
}

absl::StatusOr<model::SourceTraits> InspectSource(const model::ScanSpec& spec,
                                                  const std::vector<std::string>& replay_roots) {
  if (const auto* simulated = std::get_if<model::SimulatedSource>(&spec.source))
    return InspectSimulated(spec, *simulated);
  if (const auto* replay = std::get_if<model::ReplaySource>(&spec.source))
    return InspectReplay(spec, *replay, replay_roots);
  if (const auto* push = std::get_if<model::PushSource>(&spec.source))
    return InspectPush(spec, *push);
  if (const auto* camera = std::get_if<model::CameraSource>(&spec.source))
    return InspectCamera(spec, *camera);
  if (const auto* ring = std::get_if<model::RingSource>(&spec.source))
    return InspectRing(spec, *ring);
  return NoSource();
}

absl::StatusOr<std::unique_ptr<Source>> OpenSource(const model::ScanSpec& resolved,
                                                   const std::vector<std::string>& replay_roots,
                                                   const Clock* clock) {
  if (const auto* simulated = std::get_if<model::SimulatedSource>(&resolved.source))
    return OpenSimulated(resolved, *simulated, clock);
  if (const auto* replay = std::get_if<model::ReplaySource>(&resolved.source))
    return OpenReplay(resolved, *replay, replay_roots, clock);
  if (const auto* push = std::get_if<model::PushSource>(&resolved.source))
    return OpenPush(resolved, *push, clock);
  if (const auto* camera = std::get_if<model::CameraSource>(&resolved.source))
    return OpenCamera(resolved, *camera, clock);
  if (std::holds_alternative<model::RingSource>(resolved.source)) return OpenRing(resolved, clock);
  return NoSource();
}

}  // namespace octavo::source

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/time.h"
#include "server/rpc/convert/utf8.h"

namespace octavo::rpc {

v1::Reason EncodeReason(Reason reason) {
  v1::Reason out = v1::REASON_UNSPECIFIED;
  // Every reason has a value (tests/reasons_test.py).
  if (reason != Reason::kNone) v1::Reason_Parse(absl::StrCat("REASON_", Name(reason)), &out);
  return out;
}

void EncodeAdmissionReport(const model::AdmissionReport& report, v1::AdmissionReport* out) {
  out->set_admitted(report.admitted);
  out->set_device(report.device);
  out->set_wanted_bytes(report.wanted_bytes);
  out->set_free_bytes(report.free_bytes);
  out->set_budget_bytes(report.budget_bytes);
  for (const auto& need : report.needs) {
    auto* item = out->add_needs();
    item->set_kind(static_cast<v1::AdmissionReport::Item::Kind>(need.kind));
    item->set_bytes(need.bytes);
    item->set_count(need.count);
    item->set_chain(need.chain);
  }
  for (const auto& holder : report.holders) {
    auto* item = out->add_holders();
    item->set_name(holder.name);
    item->set_kind(static_cast<v1::AdmissionReport::Holder::Kind>(holder.kind));
    item->set_bytes(holder.bytes);
    item->set_title(holder.title);
  }
  out->set_advice(report.advice);
  out->set_retryable(report.retryable);
  out->set_volume_bytes(report.volume_bytes);
  out->set_run_bytes(report.run_bytes);
  if (report.seconds_to_memory_full > 0)
    *out->mutable_time_to_memory_full() = ToDuration(report.seconds_to_memory_full);
  out->set_volumes_per_second(report.volumes_per_second);
  out->set_disk_free_bytes(report.disk_free_bytes);
  if (report.seconds_to_disk_full > 0)
    *out->mutable_time_to_disk_full() = ToDuration(report.seconds_to_disk_full);
  out->set_pinned_bytes(report.pinned_bytes);
  out->set_spill_free_bytes(report.spill_free_bytes);
  if (report.seconds_to_spill_full > 0)
    *out->mutable_time_to_spill_full() = ToDuration(report.seconds_to_spill_full);
}

void EncodeDeviceStatus(const model::DeviceStatus& device, v1::DeviceStatus* out) {
  out->set_name(device.name);
  out->set_backend(device.backend);
  out->set_model(device.model);
  out->set_uuid(device.uuid);
  out->set_healthy(device.healthy);
  out->set_reason(Utf8(device.reason));
  out->set_total_bytes(device.total_bytes);
  out->set_budget_bytes(device.budget_bytes);
  out->set_reserved_bytes(device.reserved_bytes);
  out->set_held_bytes(device.held_bytes);
  out->set_used_bytes(device.used_bytes);
  out->set_cached_bytes(device.cached_bytes);
  out->set_detached_bytes(device.detached_bytes);
  out->set_free_bytes(device.free_bytes);
  out->set_running_scans(device.running_scans);
  out->set_running_jobs(device.running_jobs);
  out->set_buffer_bytes(device.buffer_bytes);
  out->set_peak_bytes(device.peak_bytes);
  out->set_imported_bytes(device.imported_bytes);
}

void EncodeMemory(const model::MemoryStatus& memory, v1::GetMemoryResponse* out) {
  for (const auto& device : memory.devices) EncodeDeviceStatus(device, out->add_devices());
  for (const auto& holder : memory.holders) {
    auto* item = out->add_holders();
    item->set_name(holder.holder.name);
    item->set_kind(static_cast<v1::AdmissionReport::Holder::Kind>(holder.holder.kind));
    item->set_device(holder.device);
    item->set_bytes(holder.holder.bytes);
    item->set_title(holder.holder.title);
    item->set_session(holder.session);
  }
  for (const auto& tier : memory.tiers) {
    auto* item = out->add_tiers();
    item->set_tier(static_cast<v1::Tier>(tier.tier));
    item->set_quota_bytes(tier.quota_bytes);
    item->set_used_bytes(tier.used_bytes);
    item->set_volumes(tier.volumes);
    item->set_path(Utf8(tier.path));
    item->set_disk_free_bytes(tier.disk_free_bytes);
    item->set_spilled_bytes(tier.spilled_bytes);
    item->set_restored_bytes(tier.restored_bytes);
    item->set_failures(tier.failures);
    item->set_mirrors(tier.mirrors);
    item->set_mirror_bytes(tier.mirror_bytes);
  }
}

void EncodeMeasured(const engine::Measured& in, v1::Measurement* out) {
  out->set_figure(static_cast<v1::Measurement::Figure>(in.figure));
  out->set_included(in.included);
  out->set_value(in.value);
  out->set_unit(in.unit);
  out->set_ceiling(in.ceiling);
  out->set_ceiling_name(in.ceiling_name);
  out->set_rounds(in.rounds);
  *out->mutable_round_duration() = ToDuration(in.seconds_per_round);
  out->set_verified(in.verified);
  out->set_samples(static_cast<uint32_t>(in.samples));
  out->set_records_per_block(static_cast<uint32_t>(in.records));
}

absl::Status CheckFinite(const char* field, double value) {
  return std::isfinite(value) ? absl::OkStatus() : InvalidField(field, "is not finite");
}

absl::Status CheckLabels(const google::protobuf::Map<std::string, std::string>& labels) {
  if (labels.size() > 64)
    return InvalidField("labels", absl::StrCat("has ", labels.size(), " entries; allowed 64"));
  for (const auto& [key, value] : labels) {
    const bool fine =
        !key.empty() && key.size() <= 63 &&
        key.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.-") == std::string::npos;
    if (!fine)
      return InvalidField("labels",
                          absl::StrCat("has the key '", key, "'; allowed is [a-z0-9_.-]{1,63}"));
    if (value.size() > 256)
      return InvalidField(
          "labels", absl::StrCat("'", key, "' has ", value.size(), " characters; allowed 256"));
  }
  return absl::OkStatus();
}

absl::Status CheckEnum(const char* field, int value, bool valid) {
  return valid ? absl::OkStatus()
               : InvalidField(field, absl::StrCat("has the unknown value ", value));
}

absl::Status CheckChoice(const char* field, bool value) {
  return value ? absl::OkStatus()
               : InvalidField(field, "is false; allowed is true, or to leave it out");
}

absl::Status CheckRequestId(const std::string& id) {
  if (id.size() <= 128) return absl::OkStatus();
  return InvalidField("request_id", absl::StrCat("has ", id.size(), " characters; allowed 128"));
}

absl::Status CheckParent(const std::string& name) {
  if (name.empty() || absl::StartsWith(name, "scans/") || absl::StartsWith(name, "jobs/"))
    return absl::OkStatus();
  return InvalidField("parent",
                      absl::StrCat("is '", name, "'; allowed are scans/<id>, jobs/<id>, or empty"));
}

void EncodeScanEvent(const model::ScanEvent& in, v1::ScanEvent* out) {
  out->set_kind(static_cast<v1::ScanEvent::Kind>(in.kind));
  out->set_text(Utf8(in.text));
  out->set_volume_index(in.volume_index);
  out->set_record(in.record);
  out->set_count(in.count);
  out->set_marker(in.marker);
  *out->mutable_event_time() = WallTime(in.time);
  out->set_monotonic_ns(in.time.monotonic_ns);
  if (in.scan_state.has_value()) out->set_scan_state(static_cast<v1::ScanState>(*in.scan_state));
  if (in.volume_state.has_value())
    out->set_volume_state(static_cast<v1::VolumeState>(*in.volume_state));
  if (in.tier.has_value()) out->set_tier(static_cast<v1::Tier>(*in.tier));
}

void EncodeSourceStatus(const model::SourceCounts& in, v1::SourceStatus* out) {
  out->set_records(in.records);
  out->set_gaps(in.gaps);
  out->set_lost_records(in.lost_records);
  out->set_duplicate_records(in.duplicate_records);
  out->set_out_of_range_records(in.out_of_range_records);
  out->set_connections(in.connections);
  out->set_connected(in.connected);
  out->set_frames(in.frames);
  out->set_frames_lost(in.frames_lost);
  out->set_frames_broken(in.frames_broken);
  out->set_ignored_markers(in.ignored_markers);
  out->set_late_records(in.late_records);
  out->set_overruns(in.overruns);
  out->set_overrun_records(in.overrun_records);
  out->set_broken_blocks(in.broken_blocks);
}

}  // namespace octavo::rpc

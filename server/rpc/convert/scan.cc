#include <algorithm>
#include <optional>
#include <type_traits>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/rpc/convert/array_operation.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/owner.h"
#include "server/rpc/convert/request_digest.h"
#include "server/rpc/convert/time.h"
#include "server/rpc/convert/utf8.h"

namespace octavo::rpc {
namespace {

absl::StatusOr<model::SimulatedSource> DecodeSimulated(const v1::Simulated& in) {
  model::SimulatedSource out;
  const std::pair<const char*, double> numbers[] = {
      {"simulated.centre_wavelength_nm", in.centre_wavelength_nm()},
      {"simulated.bandwidth_nm", in.bandwidth_nm()},
      {"simulated.nonlinearity", in.nonlinearity()},
      {"simulated.dispersion_a2", in.dispersion_a2()},
      {"simulated.dispersion_a3", in.dispersion_a3()},
      {"simulated.noise_counts", in.noise_counts()},
      {"simulated.fixed_pattern", in.fixed_pattern()},
      {"simulated.motion_um_per_volume", in.motion_um_per_volume()}};
  for (const auto& [field, value] : numbers) OCTAVO_RETURN_IF_ERROR(CheckFinite(field, value));
  out.seed = in.seed();
  out.centre_wavelength_nm = in.centre_wavelength_nm();
  out.bandwidth_nm = in.bandwidth_nm();
  out.nonlinearity = in.nonlinearity();
  out.dispersion_a2 = in.dispersion_a2();
  out.dispersion_a3 = in.dispersion_a3();
  out.noise_counts = in.noise_counts();
  out.fixed_pattern = in.fixed_pattern();
  out.adc_bits = in.adc_bits();
  out.motion_um_per_volume = in.motion_um_per_volume();
  out.as_fast_as_possible = in.as_fast_as_possible();
  out.repeat_block = in.repeat_block();
  if (in.has_scatterers()) out.scatterers = in.scatterers();
  for (const auto& layer : in.layers()) {
    out.layers.push_back({.depth_um = layer.depth_um(),
                          .reflectivity = layer.reflectivity(),
                          .tilt_um_per_mm = layer.tilt_um_per_mm(),
                          .waviness_um = layer.waviness_um()});
  }
  return out;
}

void EncodeSimulated(const model::SimulatedSource& in, v1::Simulated* out) {
  out->set_seed(in.seed);
  out->set_centre_wavelength_nm(in.centre_wavelength_nm);
  out->set_bandwidth_nm(in.bandwidth_nm);
  out->set_nonlinearity(in.nonlinearity);
  out->set_dispersion_a2(in.dispersion_a2);
  out->set_dispersion_a3(in.dispersion_a3);
  out->set_noise_counts(in.noise_counts);
  out->set_fixed_pattern(in.fixed_pattern);
  out->set_adc_bits(in.adc_bits);
  out->set_motion_um_per_volume(in.motion_um_per_volume);
  out->set_as_fast_as_possible(in.as_fast_as_possible);
  out->set_repeat_block(in.repeat_block);
  if (in.scatterers.has_value()) out->set_scatterers(*in.scatterers);
  for (const auto& layer : in.layers) {
    auto* to = out->add_layers();
    to->set_depth_um(layer.depth_um);
    to->set_reflectivity(layer.reflectivity);
    to->set_tilt_um_per_mm(layer.tilt_um_per_mm);
    to->set_waviness_um(layer.waviness_um);
  }
}

v1::RawType RawTypeOf(DType dtype, math::Packing packing) {
  if (packing != math::Packing::kNone)
    return packing == math::Packing::kLowFirst12 ? v1::RAW_TYPE_U12P : v1::RAW_TYPE_U12_PACKED;
  switch (dtype) {
    case DType::kU8: return v1::RAW_TYPE_U8;
    case DType::kI16: return v1::RAW_TYPE_I16;
    case DType::kF32: return v1::RAW_TYPE_F32;
    default: return v1::RAW_TYPE_U16;
  }
}

absl::StatusOr<model::CameraSource> DecodeCamera(const v1::Camera& in) {
  for (const auto& [field, value] :
       {std::pair{"camera.exposure_us", in.exposure_us()}, std::pair{"camera.gain", in.gain()},
        std::pair{"camera.frame_rate_hz", in.frame_rate_hz()}}) {
    OCTAVO_RETURN_IF_ERROR(CheckFinite(field, value));
  }
  OCTAVO_RETURN_IF_ERROR(CheckDuration("camera.frame_timeout", in.frame_timeout()));
  for (const auto& [field, text] :
       {std::pair{"camera.id", &in.id()}, std::pair{"camera.pixel_format", &in.pixel_format()},
        std::pair{"camera.trigger_source", &in.trigger_source()}}) {
    if (text->size() > 256)
      return InvalidField(field, absl::StrCat("has ", text->size(), " characters; allowed 256"));
  }
  const auto given = [](bool has, uint32_t value) {
    return has ? std::optional<int64_t>(value) : std::nullopt;
  };
  return model::CameraSource{.id = in.id(),
                             .pixel_format = in.pixel_format(),
                             .offset_x = given(in.has_offset_x(), in.offset_x()),
                             .offset_y = given(in.has_offset_y(), in.offset_y()),
                             .width = in.width(),
                             .height = in.height(),
                             .exposure_us = in.exposure_us(),
                             .frame_rate_hz = in.frame_rate_hz(),
                             .gain = in.has_gain() ? std::optional(in.gain()) : std::nullopt,
                             .trigger_source = in.trigger_source(),
                             .buffers = in.buffers(),
                             .frame_timeout_s = ToSeconds(in.frame_timeout())};
}

void EncodeCamera(const model::CameraSource& in, v1::Camera* out) {
  out->set_id(in.id);
  out->set_pixel_format(in.pixel_format);
  if (in.offset_x.has_value()) out->set_offset_x(static_cast<uint32_t>(*in.offset_x));
  if (in.offset_y.has_value()) out->set_offset_y(static_cast<uint32_t>(*in.offset_y));
  out->set_width(static_cast<uint32_t>(in.width));
  out->set_height(static_cast<uint32_t>(in.height));
  out->set_exposure_us(in.exposure_us);
  if (in.gain.has_value()) out->set_gain(*in.gain);
  out->set_frame_rate_hz(in.frame_rate_hz);
  out->set_trigger_source(in.trigger_source);
  out->set_buffers(static_cast<uint32_t>(in.buffers));
  *out->mutable_frame_timeout() = ToDuration(in.frame_timeout_s);
}

absl::Status DecodeQueueAndMarkers(const v1::ScanSpec& in, model::ScanSpec* out) {
  if (in.has_queue() && in.queue().name().empty())
    return InvalidField("queue.name", "is empty; allowed are 1 to 63 of a-z 0-9 _ . -");
  OCTAVO_RETURN_IF_ERROR(CheckEnum("queue.insert", in.queue().insert(),
                                   v1::Queue::Insert_IsValid(in.queue().insert())));
  out->queue = {.name = in.queue().name(),
                .insert = static_cast<model::QueueInsert>(in.queue().insert())};
  for (int i = 0; i < in.markers_size(); ++i) {
    const auto& marker = in.markers(i);
    if (!v1::Marker::At_IsValid(marker.at()) || marker.at() == v1::Marker::AT_UNSPECIFIED) {
      return InvalidField(absl::StrCat("markers[", i, "].at"),
                          absl::StrCat("is ", static_cast<int>(marker.at()),
                                       "; allowed VOLUME_START, BSCAN_START, RECORD"));
    }
    out->markers.push_back({.name = marker.name(),
                            .at = static_cast<model::MarkerAt>(marker.at()),
                            .every = marker.every(),
                            .offset = marker.offset()});
  }
  OCTAVO_ASSIGN_OR_RETURN(out->chains, DecodeChains(in.chains()));
  return absl::OkStatus();
}

absl::StatusOr<model::Retention> DecodeRetention(const v1::Retention& in) {
  OCTAVO_RETURN_IF_ERROR(
      CheckEnum("retention.mode", in.mode(), v1::RetentionMode_IsValid(in.mode())));
  OCTAVO_RETURN_IF_ERROR(
      CheckEnum("retention.on_full", in.on_full(), v1::OnFull_IsValid(in.on_full())));
  OCTAVO_RETURN_IF_ERROR(CheckEnum("retention.disposition", in.disposition(),
                                   v1::Disposition_IsValid(in.disposition())));
  OCTAVO_RETURN_IF_ERROR(CheckEnum("retention.on_tier_full", in.on_tier_full(),
                                   v1::OnFull_IsValid(in.on_tier_full())));
  OCTAVO_RETURN_IF_ERROR(
      CheckEnum("retention.orphan", in.orphan(), v1::Orphan_IsValid(in.orphan())));
  model::Retention out;
  out.keep_last = in.keep_last();
  out.on_tier_full = static_cast<model::OnFull>(in.on_tier_full());
  OCTAVO_RETURN_IF_ERROR(CheckDuration("retention.ttl", in.ttl()));
  OCTAVO_RETURN_IF_ERROR(CheckDuration("retention.ttl_warning", in.ttl_warning()));
  out.ttl_seconds = ToSeconds(in.ttl());
  out.ttl_warning_seconds = ToSeconds(in.ttl_warning());
  out.orphan = static_cast<model::Orphan>(in.orphan());
  out.mode = static_cast<model::RetentionMode>(in.mode());
  out.hold_slots = in.hold_slots();
  out.on_full = static_cast<model::OnFull>(in.on_full());
  out.disposition = static_cast<model::Disposition>(in.disposition());
  out.hold_raw = in.hold_raw();
  OCTAVO_ASSIGN_OR_RETURN(out.auto_commit,
                          DecodeCommitOptions(in.auto_commit(), "retention.auto_commit"));
  return out;
}

}  // namespace

DType RawDType(v1::RawType type) {
  switch (type) {
    case v1::RAW_TYPE_U8: return DType::kU8;
    case v1::RAW_TYPE_I16: return DType::kI16;
    case v1::RAW_TYPE_F32: return DType::kF32;
    default: return DType::kU16;
  }
}
math::Packing PackingOf(v1::RawType type) {
  return type == v1::RAW_TYPE_U12P         ? math::Packing::kLowFirst12
         : type == v1::RAW_TYPE_U12_PACKED ? math::Packing::kHighFirst12
                                           : math::Packing::kNone;
}
v1::RawType EncodeRawType(const model::Acquisition& acquisition) {
  return RawTypeOf(acquisition.raw_type, acquisition.packing);
}

absl::StatusOr<model::ScanSpec> DecodeScanSpec(const v1::ScanSpec& in) {
  model::ScanSpec out;
  if (in.title().size() > 256)
    return InvalidField("title",
                        absl::StrCat("has ", in.title().size(), " characters; allowed 256"));
  OCTAVO_RETURN_IF_ERROR(CheckLabels(in.labels()));
  for (const auto& [field, text] : {std::pair{"subject.id", &in.subject().id()},
                                    std::pair{"subject.site", &in.subject().site()},
                                    std::pair{"subject.note", &in.subject().note()}}) {
    if (text->size() > 4096)
      return InvalidField(field, absl::StrCat("has ", text->size(), " characters; allowed 4096"));
  }
  out.request_digest = RequestDigest(in);
  out.title = in.title();
  out.labels.insert(in.labels().begin(), in.labels().end());
  out.subject = {.id = in.subject().id(), .site = in.subject().site(), .note = in.subject().note()};
  if (in.has_simulated()) {
    OCTAVO_ASSIGN_OR_RETURN(out.source, DecodeSimulated(in.simulated()));
  } else if (in.has_replay()) {
    OCTAVO_RETURN_IF_ERROR(CheckFinite("replay.rate_hz", in.replay().rate_hz()));
    out.source = model::ReplaySource{.path = in.replay().path(),
                                     .rate_hz = in.replay().rate_hz(),
                                     .loops = in.replay().loops(),
                                     .header_bytes = in.replay().header_bytes(),
                                     .allow_partial = in.replay().allow_partial()};
  } else if (in.has_push()) {
    OCTAVO_RETURN_IF_ERROR(CheckDuration("push.idle_timeout", in.push().idle_timeout()));
    out.source = model::PushSource{.credit_blocks = in.push().credit_blocks(),
                                   .idle_timeout_s = ToSeconds(in.push().idle_timeout())};
  } else if (in.has_ring()) {
    OCTAVO_RETURN_IF_ERROR(CheckDuration("ring.idle_timeout", in.ring().idle_timeout()));
    OCTAVO_RETURN_IF_ERROR(CheckDuration("ring.restart_grace", in.ring().restart_grace()));
    out.source = model::RingSource{.slots = in.ring().slots(),
                                   .idle_timeout_s = ToSeconds(in.ring().idle_timeout()),
                                   .restart_grace_s = ToSeconds(in.ring().restart_grace()),
                                   .producer_waits = in.ring().producer_waits()};
  } else if (in.has_camera()) {
    OCTAVO_ASSIGN_OR_RETURN(out.source, DecodeCamera(in.camera()));
  }
  OCTAVO_RETURN_IF_ERROR(DecodeQueueAndMarkers(in, &out));
  const auto& a = in.acquisition();
  OCTAVO_RETURN_IF_ERROR(
      CheckEnum("acquisition.raw_type", a.raw_type(), v1::RawType_IsValid(a.raw_type())));
  OCTAVO_RETURN_IF_ERROR(CheckFinite("acquisition.record_rate_hz", a.record_rate_hz()));
  // Times and speeds are quotients by it: below, they would be no numbers.
  if (a.record_rate_hz() > 0 && a.record_rate_hz() < 1e-6)
    return FieldNotAllowed("acquisition.record_rate_hz", a.record_rate_hz(), "0 or 1e-6 to 1e9");
  out.acquisition = {.samples_per_record = a.samples_per_record(),
                     .raw_type = RawDType(a.raw_type()),
                     .packing = PackingOf(a.raw_type()),
                     .raw_type_given = a.raw_type() != v1::RAW_TYPE_UNSPECIFIED,
                     .record_rate_hz = a.record_rate_hz(),
                     .records_per_block = a.records_per_block(),
                     .ring_blocks = a.ring_blocks(),
                     .channels = a.channels(),
                     .channel = a.channel(),
                     .record_average = a.record_average(),
                     .adc_bits = a.adc_bits()};
  OCTAVO_ASSIGN_OR_RETURN(out.pattern, DecodePattern(in.pattern()));
  OCTAVO_ASSIGN_OR_RETURN(out.processing, DecodeProcessing(in.processing()));
  const auto& products = in.products();
  OCTAVO_RETURN_IF_ERROR(CheckFinite("products.slab_begin_um", products.slab_begin_um()));
  OCTAVO_RETURN_IF_ERROR(CheckFinite("products.slab_end_um", products.slab_end_um()));
  OCTAVO_RETURN_IF_ERROR(CheckFinite("products.preview_rate_hz", products.preview_rate_hz()));
  OCTAVO_RETURN_IF_ERROR(CheckEnum("products.angiography", products.angiography(),
                                   v1::Products::MotionContrast_IsValid(products.angiography())));
  out.products = {.mip = !products.has_mip() || products.mip(),
                  .aip = products.aip(),
                  .slab_begin_um = products.slab_begin_um(),
                  .slab_end_um = products.slab_end_um(),
                  .angiography = products.angiography(),
                  .preview_rate_hz = products.preview_rate_hz()};
  OCTAVO_ASSIGN_OR_RETURN(out.retention, DecodeRetention(in.retention()));
  out.device = in.device();
  out.spread = {.given = in.has_spread(),
                .count = static_cast<int64_t>(in.spread().count()),
                .devices = {in.spread().devices().begin(), in.spread().devices().end()},
                .striped = in.spread().striped()};
  OCTAVO_RETURN_IF_ERROR(
      CheckEnum("on_restart", in.on_restart(), v1::OnRestart_IsValid(in.on_restart())));
  out.on_restart = static_cast<model::OnRestart>(in.on_restart());
  OCTAVO_RETURN_IF_ERROR(CheckEnum("overrun", in.overrun(), v1::Overrun_IsValid(in.overrun())));
  out.overrun = static_cast<model::Overrun>(in.overrun());
  return out;
}

void EncodeScanSpec(const model::ScanSpec& in, v1::ScanSpec* out) {
  out->set_title(in.title);
  out->mutable_labels()->insert(in.labels.begin(), in.labels.end());
  out->mutable_subject()->set_id(in.subject.id);
  out->mutable_subject()->set_site(in.subject.site);
  out->mutable_subject()->set_note(in.subject.note);
  if (const auto* simulated = std::get_if<model::SimulatedSource>(&in.source))
    EncodeSimulated(*simulated, out->mutable_simulated());
  if (const auto* replay = std::get_if<model::ReplaySource>(&in.source)) {
    out->mutable_replay()->set_path(replay->path);
    out->mutable_replay()->set_rate_hz(replay->rate_hz);
    out->mutable_replay()->set_loops(replay->loops);
    out->mutable_replay()->set_header_bytes(replay->header_bytes);
    out->mutable_replay()->set_allow_partial(replay->allow_partial);
  }
  if (const auto* push = std::get_if<model::PushSource>(&in.source)) {
    out->mutable_push()->set_credit_blocks(static_cast<uint32_t>(push->credit_blocks));
    *out->mutable_push()->mutable_idle_timeout() = ToDuration(push->idle_timeout_s);
  }
  if (const auto* ring = std::get_if<model::RingSource>(&in.source)) {
    out->mutable_ring()->set_slots(static_cast<uint32_t>(ring->slots));
    *out->mutable_ring()->mutable_idle_timeout() = ToDuration(ring->idle_timeout_s);
    *out->mutable_ring()->mutable_restart_grace() = ToDuration(ring->restart_grace_s);
    out->mutable_ring()->set_producer_waits(ring->producer_waits);
  }
  if (const auto* camera = std::get_if<model::CameraSource>(&in.source))
    EncodeCamera(*camera, out->mutable_camera());
  if (!in.queue.name.empty()) {
    out->mutable_queue()->set_name(in.queue.name);
    out->mutable_queue()->set_insert(static_cast<v1::Queue::Insert>(in.queue.insert));
  }
  for (const auto& marker : in.markers) {
    auto* to = out->add_markers();
    to->set_name(marker.name);
    to->set_at(static_cast<v1::Marker::At>(marker.at));
    to->set_every(static_cast<uint32_t>(marker.every));
    to->set_offset(static_cast<uint32_t>(marker.offset));
  }
  EncodeChains(in.chains.get(), out->mutable_chains());
  auto* a = out->mutable_acquisition();
  a->set_samples_per_record(static_cast<uint32_t>(in.acquisition.samples_per_record));
  if (in.acquisition.raw_type_given)
    a->set_raw_type(RawTypeOf(in.acquisition.raw_type, in.acquisition.packing));
  a->set_record_rate_hz(in.acquisition.record_rate_hz);
  a->set_records_per_block(static_cast<uint32_t>(in.acquisition.records_per_block));
  a->set_ring_blocks(static_cast<uint32_t>(in.acquisition.ring_blocks));
  a->set_channels(static_cast<uint32_t>(in.acquisition.channels));
  a->set_channel(static_cast<uint32_t>(in.acquisition.channel));
  a->set_record_average(static_cast<uint32_t>(in.acquisition.record_average));
  a->set_adc_bits(static_cast<uint32_t>(in.acquisition.adc_bits));
  EncodePattern(in.pattern, out->mutable_pattern());
  EncodeProcessing(in.processing, out->mutable_processing());
  out->mutable_products()->set_mip(in.products.mip);
  out->mutable_products()->set_aip(in.products.aip);
  out->mutable_products()->set_angiography(
      static_cast<v1::Products::MotionContrast>(in.products.angiography));
  out->mutable_products()->set_slab_begin_um(in.products.slab_begin_um);
  out->mutable_products()->set_slab_end_um(in.products.slab_end_um);
  out->mutable_products()->set_preview_rate_hz(in.products.preview_rate_hz);
  auto* r = out->mutable_retention();
  r->set_mode(static_cast<v1::RetentionMode>(in.retention.mode));
  r->set_hold_slots(static_cast<uint32_t>(in.retention.hold_slots));
  r->set_on_full(static_cast<v1::OnFull>(in.retention.on_full));
  r->set_disposition(static_cast<v1::Disposition>(in.retention.disposition));
  EncodeCommitOptions(in.retention.auto_commit, r->mutable_auto_commit());
  r->set_keep_last(static_cast<uint32_t>(in.retention.keep_last));
  r->set_on_tier_full(static_cast<v1::OnFull>(in.retention.on_tier_full));
  if (in.retention.ttl_seconds > 0) {
    *r->mutable_ttl() = ToDuration(in.retention.ttl_seconds);
    *r->mutable_ttl_warning() = ToDuration(in.retention.ttl_warning_seconds);
  }
  r->set_orphan(static_cast<v1::Orphan>(in.retention.orphan));
  r->set_hold_raw(in.retention.hold_raw);
  out->set_device(in.device);
  if (in.spread.given) {
    out->mutable_spread()->set_count(static_cast<uint32_t>(in.spread.count));
    for (const auto& device : in.spread.devices) out->mutable_spread()->add_devices(device);
    out->mutable_spread()->set_striped(in.spread.striped);
  }
  out->set_overrun(static_cast<v1::Overrun>(in.overrun));
  out->set_on_restart(static_cast<v1::OnRestart>(in.on_restart));
}

namespace {

/// Of a scan of an earlier run only this is known; defaults would look like what it asked for.
void EncodeEarlierSpec(const model::ScanSpec& in, v1::ScanSpec* out) {
  out->set_title(in.title);
  out->mutable_labels()->insert(in.labels.begin(), in.labels.end());
  if (!in.queue.name.empty()) out->mutable_queue()->set_name(in.queue.name);
  if (std::holds_alternative<model::SimulatedSource>(in.source)) out->mutable_simulated();
  if (std::holds_alternative<model::ReplaySource>(in.source)) out->mutable_replay();
  if (std::holds_alternative<model::PushSource>(in.source)) out->mutable_push();
  if (std::holds_alternative<model::CameraSource>(in.source)) out->mutable_camera();
  if (std::holds_alternative<model::RingSource>(in.source)) out->mutable_ring();
}

}  // namespace

void EncodeScan(const model::ScanStatus& in, v1::Scan* out) {
  out->set_name(in.name);
  if (in.earlier_run) {
    EncodeEarlierSpec(in.spec, out->mutable_spec());
  } else {
    EncodeScanSpec(in.spec, out->mutable_spec());
  }
  out->set_state(static_cast<v1::ScanState>(in.state));
  out->set_reason(Utf8(in.reason));
  out->set_reason_code(EncodeReason(in.reason_code));
  *out->mutable_create_time() = WallTime(in.created);
  if (in.started.unix_ns != 0) *out->mutable_start_time() = WallTime(in.started);
  if (in.ended.unix_ns != 0) *out->mutable_end_time() = WallTime(in.ended);
  out->set_records(in.records);
  out->set_volumes_done(in.volumes_done);
  out->set_volumes_held(in.volumes_held);
  out->set_volumes_dropped(in.volumes_dropped);
  out->set_volumes_overwritten(in.volumes_overwritten);
  out->set_blocks_dropped(in.blocks_dropped);
  out->set_missing_ascans(in.missing_ascans);
  out->set_device(in.device);
  for (const auto& device : in.spread_devices) out->add_spread_devices(device);
  out->set_records_per_second(in.records_per_second);
  out->set_volumes_per_second(in.volumes_per_second);
  out->set_bytes_per_second(in.bytes_per_second);
  out->set_ring_occupancy(in.ring_occupancy);
  out->set_current_volume(in.current_volume);
  out->set_current_fraction(in.current_fraction);
  for (const auto& volume : in.volumes) out->add_volumes(volume);
  out->set_plan(Utf8(in.plan));
  out->set_volumes_committed(in.volumes_committed);
  out->set_volumes_discarded(in.volumes_discarded);
  out->set_commit_failures(in.commit_failures);
  out->set_queue_position(static_cast<uint32_t>(in.queue_position));
  for (const auto& event : in.events) {
    v1::ScanEvent* const to = out->add_events();
    EncodeScanEvent(event, to);
    to->set_number(event.number);
  }
  EncodeSourceStatus(in.source, out->mutable_source());
  out->set_duplicate_records(in.duplicate_records);
  out->set_out_of_range_records(in.out_of_range_records);
  out->set_non_finite_records(in.non_finite_records);
  out->set_session(in.spec.session);
  EncodeOwner(in.spec.owner, out);
  out->set_volumes_spilled(in.volumes_spilled);
  out->set_volumes_expired(in.volumes_expired);
  out->set_spill_failures(in.spill_failures);
  for (const auto& warning : in.warnings) out->add_warnings(Utf8(warning));
  out->set_voxels(in.voxels);
  out->set_clipped_below(in.clipped_below);
  out->set_clipped_above(in.clipped_above);
  out->set_waits_for(Utf8(model::WaitsFor(in)));
  out->set_earlier_run(in.earlier_run);
  out->set_resumed_from(in.spec.resumed_from);
}

}  // namespace octavo::rpc

#include "client/cpp/lib/convert.h"

#include <algorithm>
#include <memory>

#include "google/protobuf/util/json_util.h"

#include "octavo/v1/types.pb.h"

#include "client/cpp/wire/error_details.h"
#include "client/cpp/wire/seconds.h"

namespace octavo::client {
namespace {

// Fields that the caller did not set keep the server's default.
template <class T, class Set>
void IfGiven(const T& value, Set set) {
  if (value != T{}) set(value);
}

void Encode(const Levels& in, v1::Levels* out) {
  out->set_lo(in.lo);
  out->set_hi(in.hi);
}

template <class Repeated>
auto ListOf(const Repeated& in) {
  return std::vector<typename Repeated::value_type>(in.begin(), in.end());
}

// "COMPLETED" for REASON_COMPLETED; the number as text for a reason that only a newer server knows.
std::string ReasonName(v1::Reason reason) {
  constexpr size_t kPrefix = sizeof("REASON_") - 1;
  if (reason == v1::REASON_UNSPECIFIED) return "";
  const std::string& name = v1::Reason_Name(reason);
  return name.empty() ? std::to_string(static_cast<int>(reason)) : name.substr(kPrefix);
}

ScanEvent Decode(const v1::ScanEvent& in) {
  ScanEvent out{.kind = static_cast<ScanEvent::Kind>(in.kind()),
                .text = in.text(),
                .volume_index = in.volume_index(),
                .record = in.record(),
                .count = in.count(),
                .marker = in.marker()};
  if (in.scan_state() != v1::SCAN_STATE_UNSPECIFIED)
    out.scan_state = static_cast<ScanState>(in.scan_state());
  if (in.volume_state() != v1::VOLUME_STATE_UNSPECIFIED)
    out.volume_state = static_cast<VolumeState>(in.volume_state());
  return out;
}

}  // namespace

Error ErrorOf(const grpc::Status& status) {
  Error error(static_cast<Code>(status.error_code()), status.error_message());
  ErrorDetails details = DetailsOf(status);
  error.reason = std::move(details.reason);
  error.field = std::move(details.field);
  error.numbers = std::move(details.numbers);
  return error;
}

void Check(const grpc::Status& status) {
  if (!status.ok()) throw ErrorOf(status);
}

void FromJson(const std::string& json, google::protobuf::Message* message) {
  if (json.empty()) return;
  const std::unique_ptr<google::protobuf::Message> parsed(message->New());
  const auto status = google::protobuf::util::JsonStringToMessage(json, parsed.get());
  if (status.ok()) {
    message->MergeFrom(*parsed);
    return;
  }
  Error error(Code::kInvalidArgument, "json is no " + message->GetDescriptor()->full_name() + ": " +
                                          std::string(status.message()));
  error.reason = "BAD_FIELD";
  error.field = "json";
  throw error;
}

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  (void)google::protobuf::util::MessageToJsonString(
      message, &text, options);  // fails only for messages with an invalid Any
  return text;
}

void Encode(const Processing& in, v1::Processing* out) {
  FromJson(in.json, out);
  if (!in.background.empty()) {
    out->mutable_background()->set_mode(v1::Processing::Background::MODE_STATIC);
    out->mutable_background()->mutable_spectrum()->Assign(in.background.begin(),
                                                          in.background.end());
  }
  if (!in.wavelength_nm.empty()) {
    out->mutable_k_linearisation()->mutable_wavelength_nm()->mutable_values()->Assign(
        in.wavelength_nm.begin(), in.wavelength_nm.end());
  }
  if (!in.k_index.empty())
    out->mutable_k_linearisation()->mutable_index()->mutable_values()->Assign(in.k_index.begin(),
                                                                              in.k_index.end());
  IfGiven(in.dispersion_a2, [&](double v) { out->mutable_dispersion()->set_a2(v); });
  IfGiven(in.dispersion_a3, [&](double v) { out->mutable_dispersion()->set_a3(v); });
  IfGiven(in.fft_length, [&](uint32_t v) { out->set_fft_length(v); });
  IfGiven(in.depth, [&](uint32_t v) { out->set_depth(v); });
  IfGiven(in.value, [&](Value v) { out->set_value(static_cast<v1::Value>(v)); });
  if (in.levels) Encode(*in.levels, out->mutable_levels());
  if (in.dtype) out->set_dtype(static_cast<v1::Dtype>(*in.dtype));
}

void Encode(const CommitOptions& in, v1::CommitOptions* out) {
  FromJson(in.json, out);
  IfGiven(in.destination, [&](const std::string& v) { out->set_destination(v); });
  if (in.format) out->set_format(static_cast<v1::Format>(*in.format));
}

void Encode(const ScanSpec& in, v1::ScanSpec* out) {
  FromJson(in.json, out);
  if (const auto* simulated = std::get_if<Simulated>(&in.source)) {
    out->mutable_simulated()->set_seed(simulated->seed);
    out->mutable_simulated()->set_as_fast_as_possible(simulated->as_fast_as_possible);
  } else if (const auto* ring = std::get_if<Ring>(&in.source)) {
    out->mutable_ring()->set_slots(ring->slots);
    if (ring->idle_timeout_s != 0)
      *out->mutable_ring()->mutable_idle_timeout() = DurationOf(ring->idle_timeout_s);
    if (ring->restart_grace_s != 0)
      *out->mutable_ring()->mutable_restart_grace() = DurationOf(ring->restart_grace_s);
    out->mutable_ring()->set_producer_waits(ring->producer_waits);
  } else if (const auto* replay = std::get_if<Replay>(&in.source)) {
    out->mutable_replay()->set_path(replay->path);
    out->mutable_replay()->set_rate_hz(replay->rate_hz);
    out->mutable_replay()->set_loops(replay->loops);
    out->mutable_replay()->set_header_bytes(replay->header_bytes);
    out->mutable_replay()->set_allow_partial(replay->allow_partial);
  }
  if (const Raster& raster = in.pattern;
      raster.ascans_per_bscan != 0 || raster.bscans_per_volume != 0) {
    auto* to = out->mutable_pattern()->mutable_raster();
    to->set_ascans_per_bscan(raster.ascans_per_bscan);
    to->set_bscans_per_volume(raster.bscans_per_volume);
    to->set_volumes(raster.volumes);
    to->set_bidirectional(raster.bidirectional);
    to->set_flyback_records(raster.flyback_records);
    to->set_extent_x_mm(raster.extent_x_mm);
    to->set_extent_y_mm(raster.extent_y_mm);
  }
  IfGiven(in.samples_per_record,
          [&](uint32_t v) { out->mutable_acquisition()->set_samples_per_record(v); });
  IfGiven(in.raw_type, [&](RawType v) {
    out->mutable_acquisition()->set_raw_type(static_cast<v1::RawType>(v));
  });
  IfGiven(in.record_rate_hz, [&](double v) { out->mutable_acquisition()->set_record_rate_hz(v); });
  Encode(in.processing, out->mutable_processing());
  if (in.aip) out->mutable_products()->set_aip(true);
  IfGiven(in.retention, [&](RetentionMode v) {
    out->mutable_retention()->set_mode(static_cast<v1::RetentionMode>(v));
  });
  IfGiven(in.disposition, [&](Disposition v) {
    out->mutable_retention()->set_disposition(static_cast<v1::Disposition>(v));
  });
  IfGiven(in.hold_slots, [&](uint32_t v) { out->mutable_retention()->set_hold_slots(v); });
  if (in.auto_commit) Encode(*in.auto_commit, out->mutable_retention()->mutable_auto_commit());
  if (in.resume) out->set_on_restart(v1::ON_RESTART_RESUME);
  IfGiven(in.title, [&](const std::string& v) { out->set_title(v); });
  for (const auto& [key, value] : in.labels) (*out->mutable_labels())[key] = value;
}

void Encode(const ImageOptions& in, v1::ImageOptions* out) {
  if (in.colour_map != ColourMap::kGray)
    out->set_colour_map(static_cast<v1::ColourMap>(in.colour_map));
  if (in.levels) Encode(*in.levels, out->mutable_levels());
  if (in.percentiles) Encode(*in.percentiles, out->mutable_percentiles());
  out->set_display_levels(in.display_levels);
  out->set_max_width(in.max_width);
  out->set_max_height(in.max_height);
  out->set_square_pixels(in.square_pixels);
  out->set_depth_down(in.depth_down);
  out->set_scale_bar(in.scale_bar);
  out->set_colour_bar(in.colour_bar);
  out->set_quality(in.quality);
}

void Encode(const ReadOptions& in, v1::ReadVolumeRequest* out) {
  out->mutable_start()->Assign(in.start.begin(), in.start.end());
  out->mutable_count()->Assign(in.count.begin(), in.count.end());
  out->set_downsample(in.downsample);
  // Without downsample the contract takes no downsampling, not even the default.
  if (in.downsample > 1 || in.downsampling != Downsampling::kMax)
    out->set_downsampling(static_cast<v1::Downsampling>(in.downsampling));
  if (in.window) {
    out->mutable_window()->set_lo(in.window->lo);
    out->mutable_window()->set_hi(in.window->hi);
  }
}

void Encode(const RenderOptions& in, v1::RenderVolumeRequest* out) {
  out->set_rendering(static_cast<v1::Rendering>(in.rendering));
  out->set_axis(static_cast<v1::Axis>(in.axis));
  if (in.index) out->set_index(*in.index);
  out->set_begin(in.begin);
  out->set_end(in.end);
  out->mutable_start()->Assign(in.start.begin(), in.start.end());
  out->mutable_count()->Assign(in.count.begin(), in.count.end());
  out->set_encoding(static_cast<v1::Encoding>(in.encoding));
  Encode(in.image, out->mutable_image());
}

void Encode(const SubscribeOptions& in, v1::SubscribeRequest* out) {
  out->set_parent(in.parent);
  for (const auto& [key, value] : in.labels) (*out->mutable_labels())[key] = value;
  for (const Product product : in.products) out->add_products(static_cast<v1::Product>(product));
  out->set_axis(static_cast<v1::Axis>(in.axis));
  if (in.index) out->set_index(*in.index);
  if (in.slab) {
    out->mutable_slab()->set_begin(in.slab->first);
    out->mutable_slab()->set_end(in.slab->second);
  }
  out->set_spectrum(static_cast<v1::SpectrumForm>(in.spectrum));
  out->set_encoding(static_cast<v1::Encoding>(in.encoding));
  if (in.image) Encode(*in.image, out->mutable_image());
  out->set_delivery(static_cast<v1::Delivery>(in.delivery));
  out->set_queue_length(in.queue_length);
  out->set_max_rate_hz(in.max_rate_hz);
  if (in.from_sequence) out->set_from_sequence(*in.from_sequence);
  out->set_preview(in.preview);
  out->set_volumes_by_read(in.volumes_by_read && !in.same_host &&
                           std::find(in.products.begin(), in.products.end(), Product::kVolume) !=
                               in.products.end());
}

Scan Decode(const v1::Scan& in) {
  return {.name = in.name(),
          .state = static_cast<ScanState>(in.state()),
          .reason = in.reason(),
          .reason_code = ReasonName(in.reason_code()),
          .device = in.device(),
          .plan = in.plan(),
          .records = in.records(),
          .volumes_done = in.volumes_done(),
          .volumes_held = in.volumes_held(),
          .volumes_dropped = in.volumes_dropped(),
          .blocks_dropped = in.blocks_dropped(),
          .missing_ascans = in.missing_ascans(),
          .records_per_second = in.records_per_second(),
          .volumes_per_second = in.volumes_per_second(),
          .bytes_per_second = in.bytes_per_second(),
          .current_volume = in.current_volume(),
          .current_fraction = in.current_fraction(),
          .volumes = ListOf(in.volumes()),
          .resumed_from = in.resumed_from(),
          .json = ToJson(in)};
}

Operation Decode(const v1::Operation& in) {
  Operation out;
  out.name = in.name();
  out.kind = static_cast<OperationKind>(in.kind());
  out.state = static_cast<OperationState>(in.state());
  out.done = in.done();
  out.target = in.target();
  out.request_id = in.request_id();
  const v1::OperationProgress& progress = in.progress();
  out.progress = {.stage = static_cast<OperationStage>(progress.stage()),
                  .done_bytes = progress.done_bytes(),
                  .total_bytes = progress.total_bytes(),
                  .disk_bytes = progress.disk_bytes(),
                  .fraction = progress.fraction(),
                  .seconds = SecondsOf(progress.elapsed())};
  if (in.has_error()) {
    out.error = ErrorOf({static_cast<grpc::StatusCode>(in.error().code()), in.error().message(),
                         in.error().SerializeAsString()});
  }
  if (in.has_commit()) {
    out.commit = {.path = in.commit().path(),
                  .checksum = in.commit().checksum(),
                  .bytes = in.commit().bytes(),
                  .raw_bytes = in.commit().raw_bytes(),
                  .seconds = SecondsOf(in.commit().elapsed())};
  }
  out.volumes = ListOf(in.volumes());
  out.json = ToJson(in);
  return out;
}

Volume Decode(const v1::Volume& in) {
  return {.name = in.name(),
          .title = in.title(),
          .last_error = in.last_error(),
          .digest = in.digest(),
          .reason = in.reason(),
          .reason_code = ReasonName(in.reason_code()),
          .parent = in.parent(),
          .index = in.index(),
          .state = static_cast<VolumeState>(in.state()),
          .shape = ListOf(in.shape()),
          .axes = ListOf(in.axes()),
          .dtype = static_cast<DType>(in.dtype()),
          .spacing_um = ListOf(in.spacing_um()),
          .complete = in.complete(),
          .mirrored = in.mirrored(),
          .missing_ascans = in.missing_ascans(),
          .bytes = in.bytes(),
          .labels = {in.labels().begin(), in.labels().end()},
          .owner = in.owner(),
          .project = in.project(),
          .committed_to = in.commit().path(),
          .json = ToJson(in)};
}

static FrameRecord Decode(const v1::FrameRecord& in) {
  FrameRecord out;
  if (in.has_record()) out.record = in.record();
  out.row = in.row();
  out.column = in.column();
  out.corrected = in.corrected();
  if (in.has_minimum()) out.minimum = in.minimum();
  if (in.has_maximum()) out.maximum = in.maximum();
  if (in.has_saturation_low()) out.saturation_low = in.saturation_low();
  if (in.has_saturation_high()) out.saturation_high = in.saturation_high();
  out.saturated_samples.assign(in.saturated_samples().begin(), in.saturated_samples().end());
  return out;
}

Frame Decode(const v1::Frame& in) {
  Frame out{.parent = in.parent(),
            .volume = in.volume(),
            .volume_index = in.volume_index(),
            .product = static_cast<Product>(in.product()),
            .axis = static_cast<Axis>(in.axis()),
            .sequence = in.sequence(),
            .dropped_before = in.dropped_before(),
            .complete = in.complete(),
            .encoding = static_cast<Encoding>(in.encoding()),
            .array = {},
            .axes = ListOf(in.axes()),
            .spacing_um = ListOf(in.spacing_um()),
            .display = {in.display_levels().lo(), in.display_levels().hi()},
            .unit = in.unit(),
            .value_offset = in.value_offset(),
            .value_step = in.value_step(),
            .scale_bar_um = in.scale_bar_um(),
            .colour_bar_columns = in.colour_bar_columns(),
            .acquired_ns = in.acquire_monotonic_ns(),
            .published_ns = in.publish_monotonic_ns(),
            .event = std::nullopt,
            .record = std::nullopt};
  out.array.dtype = static_cast<DType>(in.dtype());
  out.array.shape = ListOf(in.shape());
  if (in.has_event()) out.event = Decode(in.event());
  if (in.has_record()) out.record = Decode(in.record());
  return out;
}

RenderedPicture Decode(const v1::RenderedPicture& in) {
  RenderedPicture out{.array = {},
                      .encoding = static_cast<Encoding>(in.encoding()),
                      .axes = ListOf(in.axes()),
                      .spacing_um = ListOf(in.spacing_um()),
                      .axis = static_cast<Axis>(in.axis()),
                      .start = ListOf(in.start()),
                      .count = ListOf(in.count()),
                      .begin_um = in.begin_um(),
                      .end_um = in.end_um(),
                      .levels = {in.levels().lo(), in.levels().hi()},
                      .values = {in.values().lo(), in.values().hi()},
                      .unit = in.unit(),
                      .scale_bar_um = in.scale_bar_um(),
                      .colour_bar_columns = in.colour_bar_columns(),
                      .warnings = ListOf(in.warnings())};
  out.array.dtype = static_cast<DType>(in.dtype());
  out.array.shape = ListOf(in.shape());
  return out;
}

}  // namespace octavo::client

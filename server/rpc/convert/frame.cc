#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/enum_name.h"
#include "server/rpc/convert/time.h"

namespace octavo::rpc {

absl::StatusOr<int64_t> DecodeChunkBytes(uint32_t chunk_bytes) {
  if (chunk_bytes == 0) return 2 << 20;
  if (chunk_bytes < 64 << 10 || chunk_bytes > 4 << 20) {
    return FieldNotAllowed("chunk_bytes", chunk_bytes, "0 (2 MiB) or 65536 to 4194304");
  }
  return chunk_bytes;
}

absl::StatusOr<picture::ImageOptions> DecodeImageOptions(const v1::ImageOptions& in,
                                                         v1::Encoding encoding) {
  picture::ImageOptions out;
  out.encoding = encoding == v1::ENCODING_JPEG   ? picture::ImageOptions::Encoding::kJpeg
                 : encoding == v1::ENCODING_PNG  ? picture::ImageOptions::Encoding::kPng
                 : encoding == v1::ENCODING_WEBP ? picture::ImageOptions::Encoding::kWebp
                                                 : picture::ImageOptions::Encoding::kRaw;
  const auto for_files = [&](const char* field) {
    return InvalidField(field, "is given, but encoding is RAW; allowed with PNG, JPEG and WEBP");
  };
  if (encoding == v1::ENCODING_RAW) {
    if (in.colour_map() != v1::COLOUR_MAP_UNSPECIFIED) return for_files("image.colour_map");
    if (in.has_levels()) return for_files("image.levels");
    if (in.has_percentiles()) return for_files("image.percentiles");
    if (in.display_levels()) return for_files("image.display_levels");
    if (in.scale_bar()) return for_files("image.scale_bar");
    if (in.colour_bar()) return for_files("image.colour_bar");
  }
  if (!v1::ColourMap_IsValid(in.colour_map())) {
    return InvalidField("image.colour_map",
                        absl::StrCat("has the unknown value ", static_cast<int>(in.colour_map())));
  }
  out.colour_map = in.colour_map() == v1::COLOUR_MAP_UNSPECIFIED
                       ? picture::ColourMap::kGray
                       : static_cast<picture::ColourMap>(in.colour_map());
  if (in.has_levels() && in.has_percentiles())
    return InvalidField("image.levels",
                        "and image.percentiles are both given; allowed one of them");
  if (in.display_levels() && (in.has_levels() || in.has_percentiles())) {
    return InvalidField("image.display_levels",
                        "is given with image.levels or image.percentiles; allowed one of them");
  }
  if (!in.display_levels()) {
    out.contrast = picture::ImageOptions::Contrast::kPercentiles;
    std::tie(out.lo, out.hi) =
        std::pair(picture::ImageOptions::kDarkPercentile, picture::ImageOptions::kBrightPercentile);
  }
  if (in.has_levels()) {
    out.contrast = picture::ImageOptions::Contrast::kLevels;
    std::tie(out.lo, out.hi) = std::pair(in.levels().lo(), in.levels().hi());
    OCTAVO_RETURN_IF_ERROR(CheckFinite("image.levels.lo", static_cast<double>(out.lo)));
    OCTAVO_RETURN_IF_ERROR(CheckFinite("image.levels.hi", static_cast<double>(out.hi)));
    if (!(out.lo < out.hi))
      return InvalidField("image.levels",
                          absl::StrCat("is ", out.lo, " to ", out.hi, "; lo must be below hi"));
  } else if (in.has_percentiles()) {
    std::tie(out.lo, out.hi) = std::pair(in.percentiles().lo(), in.percentiles().hi());
    if (!(out.lo >= 0 && out.lo < out.hi && out.hi <= 100)) {  // also false for NaN
      return InvalidField("image.percentiles", absl::StrCat("is ", out.lo, " to ", out.hi,
                                                            "; allowed 0 <= lo < hi <= 100"));
    }
    if (out.hi <= 1) {
      return InvalidField("image.percentiles",
                          absl::StrCat("is ", out.lo, " to ", out.hi,
                                       ", which look like fractions; percentiles are 0 to 100: ",
                                       100 * out.lo, " to ", 100 * out.hi, " for these"));
    }
  }
  const auto side = [](const char* field, uint32_t given, int64_t* most) -> absl::Status {
    if (given > picture::ImageOptions::kMostPixels)
      return InvalidField(field, absl::StrCat("is ", given, "; allowed 0 (no limit) to ",
                                              picture::ImageOptions::kMostPixels));
    if (given > 0) *most = given;
    return absl::OkStatus();
  };
  OCTAVO_RETURN_IF_ERROR(side("image.max_width", in.max_width(), &out.max_width));
  OCTAVO_RETURN_IF_ERROR(side("image.max_height", in.max_height(), &out.max_height));
  out.square_pixels = in.square_pixels();
  out.depth_down = in.depth_down();
  out.scale_bar = in.scale_bar();
  out.colour_bar = in.colour_bar();
  if (in.quality() > 100)
    return FieldNotAllowed("image.quality", in.quality(), "0 (85) or 1 to 100");
  if (in.quality() > 0 && encoding != v1::ENCODING_JPEG && encoding != v1::ENCODING_WEBP)
    return InvalidField("image.quality", "is given, but encoding is neither JPEG nor WEBP");
  if (in.quality() > 0) out.quality = static_cast<int>(in.quality());
  return out;
}

namespace {

// After the products and the axis.
absl::Status DecodeSlab(const v1::SubscribeRequest& in, model::SubscribeSpec* spec) {
  if (std::find(spec->products.begin(), spec->products.end(), model::Product::kMip) ==
      spec->products.end())
    return InvalidField("slab", "is for MIP only, and products has none");
  if (spec->axis_given && spec->axis != model::FrameAxis::kZ)
    return InvalidField("slab", absl::StrCat("is a range of depth, but axis is ",
                                             EnumName(in.axis()), "; allowed Z"));
  if (in.slab().begin() < 0) return FieldNotAllowed("slab.begin", in.slab().begin(), ">= 0");
  if (in.slab().end() <= in.slab().begin())
    return FieldNotAllowed("slab.end", in.slab().end(),
                           absl::StrCat("more than slab.begin, ", in.slab().begin()));
  spec->slab = {.begin = in.slab().begin(), .end = in.slab().end()};
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SubscribeOptions> DecodeSubscribe(const v1::SubscribeRequest& in) {
  SubscribeOptions out;
  model::SubscribeSpec& spec = out.spec;
  OCTAVO_RETURN_IF_ERROR(CheckParent(in.parent()));
  spec.parent = in.parent();
  OCTAVO_RETURN_IF_ERROR(CheckLabels(in.labels()));
  spec.labels.insert(in.labels().begin(), in.labels().end());
  if (!in.labels().empty() && !in.parent().empty()) {
    return InvalidField("labels", absl::StrCat("choose among all scans and jobs, but parent names ",
                                               in.parent(), "; allowed one of the two"));
  }
  bool images = false, lines = false, spectra = false, volumes = false;
  for (const int product : in.products()) {
    if (!v1::Product_IsValid(product) || product == v1::PRODUCT_UNSPECIFIED) {
      return InvalidField("products", absl::StrCat("has the unknown value ", product));
    }
    spec.products.push_back(static_cast<model::Product>(product));
    images |= model::IsImage(spec.products.back());
    lines |= model::IsLine(spec.products.back());
    spectra |= spec.products.back() == model::Product::kSpectrum;
    volumes |= spec.products.back() == model::Product::kVolume;
  }
  if (spec.products.empty()) {
    spec.products.push_back(model::Product::kMip);
    images = true;
  }
  if (!v1::SpectrumForm_IsValid(in.spectrum())) {
    return InvalidField("spectrum",
                        absl::StrCat("has the unknown value ", static_cast<int>(in.spectrum())));
  }
  if (in.spectrum() != v1::SPECTRUM_FORM_UNSPECIFIED && !spectra) {
    return InvalidField("spectrum", absl::StrCat("is ", EnumName(in.spectrum()),
                                                 ", but products have no SPECTRUM"));
  }
  spec.corrected = in.spectrum() == v1::SPECTRUM_FORM_CORRECTED;
  if (!v1::Axis_IsValid(in.axis()))
    return InvalidField("axis",
                        absl::StrCat("has the unknown value ", static_cast<int>(in.axis())));
  spec.axis_given = in.axis() != v1::AXIS_UNSPECIFIED;
  if (spec.axis_given) spec.axis = static_cast<model::FrameAxis>(in.axis());
  if (in.has_index()) spec.plane_index = in.index();
  if (spec.plane_index < -1) return FieldNotAllowed("index", in.index(), ">= -1");
  if (in.has_slab()) OCTAVO_RETURN_IF_ERROR(DecodeSlab(in, &spec));
  if (!v1::Encoding_IsValid(in.encoding()))
    return InvalidField("encoding",
                        absl::StrCat("has the unknown value ", static_cast<int>(in.encoding())));
  out.encoding = in.encoding() == v1::ENCODING_UNSPECIFIED ? v1::ENCODING_RAW : in.encoding();
  if (out.encoding != v1::ENCODING_RAW && lines) {
    return InvalidField("encoding",
                        absl::StrCat("is ", EnumName(out.encoding),
                                     ", but SPECTRUM and ASCAN are lines of numbers; allowed RAW"));
  }
  if (out.encoding != v1::ENCODING_RAW && !images) {
    return InvalidField("encoding",
                        absl::StrCat("is ", EnumName(out.encoding),
                                     ", which is for images only, not for VOLUME and EVENT"));
  }
  if (in.has_image() && !images)
    return InvalidField("image", lines ? "is for images only, not for SPECTRUM and ASCAN"
                                       : "is for images only, not for VOLUME and EVENT");
  if (out.encoding != v1::ENCODING_RAW || in.has_image()) {
    OCTAVO_ASSIGN_OR_RETURN(out.image, DecodeImageOptions(in.image(), out.encoding));
  }
  if (!v1::Delivery_IsValid(in.delivery()))
    return InvalidField("delivery",
                        absl::StrCat("has the unknown value ", static_cast<int>(in.delivery())));
  if (in.delivery() != v1::DELIVERY_UNSPECIFIED)
    spec.delivery = static_cast<model::Delivery>(in.delivery());
  if (in.queue_length() > 1024) return FieldOutOfRange("queue_length", in.queue_length(), 0, 1024);
  if (in.queue_length() != 0) spec.queue_length = in.queue_length();
  OCTAVO_RETURN_IF_ERROR(CheckFinite("max_rate_hz", in.max_rate_hz()));
  spec.max_rate_hz = in.max_rate_hz();
  const bool all_lossless =
      std::all_of(spec.products.begin(), spec.products.end(), [&](model::Product product) {
        return spec.DeliveryOf(product) == model::Delivery::kLossless;
      });
  if (spec.max_rate_hz > 0 && all_lossless) {
    return InvalidField(
        "max_rate_hz",
        absl::StrCat("is ", in.max_rate_hz(),
                     "; allowed 0 with delivery LOSSLESS, which leaves nothing out"));
  }
  spec.resume = in.has_from_sequence();
  spec.from_sequence = in.from_sequence();
  spec.previews = !in.has_preview() || in.preview();
  if (in.volumes_by_read() && !volumes)
    return InvalidField("volumes_by_read", "is set, but products have no VOLUME");
  spec.volumes_by_read = in.volumes_by_read();
  OCTAVO_ASSIGN_OR_RETURN(out.chunk_bytes, DecodeChunkBytes(in.chunk_bytes()));
  return out;
}

void EncodeFrameHeader(const model::Frame& in, uint64_t dropped_before, v1::Frame* out) {
  out->set_parent(in.parent);
  out->set_volume(in.volume);
  out->set_volume_index(in.volume_index);
  out->set_product(static_cast<v1::Product>(in.product));
  out->set_axis(static_cast<v1::Axis>(in.axis));
  if (in.slab.given()) {
    out->mutable_slab()->set_begin(in.slab.begin);
    out->mutable_slab()->set_end(in.slab.end);
  }
  out->set_sequence(in.sequence);
  out->set_dropped_before(dropped_before);
  *out->mutable_acquire_time() = WallTime(in.acquired);
  out->set_acquire_monotonic_ns(in.acquired.monotonic_ns);
  *out->mutable_publish_time() = WallTime(in.published);
  out->set_publish_monotonic_ns(in.published.monotonic_ns);
  for (const int64_t extent : in.shape) out->add_shape(extent);
  for (const auto& axis : in.axes) out->add_axes(axis);
  for (const double spacing : in.spacing_um) out->add_spacing_um(spacing);
  out->set_dtype(static_cast<v1::Dtype>(in.dtype));
  out->mutable_display_levels()->set_lo(static_cast<float>(in.display_lo));
  out->mutable_display_levels()->set_hi(static_cast<float>(in.display_hi));
  out->set_complete(in.complete);
  if (in.stages.taken_ns != 0) {
    auto* stages = out->mutable_stages();
    stages->set_taken_ns(in.stages.taken_ns);
    stages->set_uploaded_ns(in.stages.uploaded_ns);
    stages->set_processed_ns(in.stages.processed_ns);
    stages->set_on_host_ns(in.stages.on_host_ns);
    stages->set_seen_ns(in.stages.seen_ns);
    stages->set_sealed_ns(in.stages.sealed_ns);
  }
  if (in.record != nullptr) {
    const model::RecordInfo& record = *in.record;
    v1::FrameRecord& to = *out->mutable_record();
    if (record.record >= 0) to.set_record(record.record);
    to.set_row(record.row);
    to.set_column(record.column);
    to.set_corrected(record.corrected);
    if (record.minimum.has_value()) to.set_minimum(*record.minimum);
    if (record.maximum.has_value()) to.set_maximum(*record.maximum);
    if (record.saturation_low.has_value()) to.set_saturation_low(*record.saturation_low);
    if (record.saturation_high.has_value()) to.set_saturation_high(*record.saturation_high);
    to.set_saturated_count(std::ssize(record.saturated));
    to.mutable_saturated_samples()->Assign(record.saturated.begin(), record.saturated.end());
  }
  out->set_unit(in.scale.unit);
  out->set_value_offset(in.scale.offset);
  out->set_value_step(in.scale.step);
  if (in.product == model::Product::kEvent) EncodeScanEvent(in.event, out->mutable_event());
}

void EncodePictureHeader(const picture::Picture& in, v1::Frame* out) {
  out->mutable_shape()->Assign(in.shape.begin(), in.shape.end());
  out->set_dtype(static_cast<v1::Dtype>(in.dtype));
  out->mutable_axes()->Assign(in.axes.begin(), in.axes.end());
  out->mutable_spacing_um()->Assign(in.spacing_um.begin(), in.spacing_um.end());
  out->mutable_display_levels()->set_lo(static_cast<float>(in.display_lo));
  out->mutable_display_levels()->set_hi(static_cast<float>(in.display_hi));
  out->set_scale_bar_um(in.scale_bar_um);
  out->set_colour_bar_columns(in.colour_bar_columns);
}

}  // namespace octavo::rpc

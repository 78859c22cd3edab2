#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "server/rpc/convert.h"

namespace octavo::rpc {

absl::StatusOr<int64_t> DecodeChunkBytes(uint32_t chunk_bytes) {
  if (chunk_bytes == 0) return 2 << 20;
  if (chunk_bytes < 64 << 10 || chunk_bytes > 4 << 20) {
    return InvalidField("chunk_bytes", absl::StrCat("is ", chunk_bytes, "; allowed 0 (2 MiB) or 65536 to 4194304"));
  }
  return chunk_bytes;
}

absl::StatusOr<SubscribeOptions> DecodeSubscribe(const v1::SubscribeRequest& in) {
  SubscribeOptions out;
  engine::SubscribeSpec& spec = out.spec;
  spec.scan = in.scan();
  OCTAVO_RETURN_IF_ERROR(CheckLabels(in.labels()));
  spec.labels.insert(in.labels().begin(), in.labels().end());
  bool images = false;
  for (const int product : in.products()) {
    if (!v1::Product_IsValid(product) || product == v1::PRODUCT_UNSPECIFIED) {
      return InvalidField("products", absl::StrCat("has the unknown value ", product));
    }
    spec.products.push_back(static_cast<engine::Product>(product));
    images |= product != v1::VOLUME && product != v1::EVENT;
  }
  if (spec.products.empty()) {
    spec.products.push_back(engine::Product::kMip);
    images = true;
  }
  if (!v1::Axis_IsValid(in.axis())) return InvalidField("axis", absl::StrCat("has the unknown value ", static_cast<int>(in.axis())));
  spec.axis_given = in.axis() != v1::AXIS_UNSPECIFIED;
  if (spec.axis_given) spec.axis = static_cast<engine::FrameAxis>(in.axis());
  if (in.index_set() || in.index() > 0) spec.plane_index = in.index();
  if (spec.plane_index < -1) return InvalidField("index", absl::StrCat("is ", in.index(), "; allowed >= -1"));
  if (!v1::Encoding_IsValid(in.encoding())) return InvalidField("encoding", absl::StrCat("has the unknown value ", static_cast<int>(in.encoding())));
  out.encoding = in.encoding() == v1::PNG ? v1::PNG : v1::RAW;
  if (out.encoding == v1::PNG && !images) return InvalidField("encoding", "is PNG, which is for images (MIP, AIP, BSCAN) only");
  if (!v1::Delivery_IsValid(in.delivery())) return InvalidField("delivery", absl::StrCat("has the unknown value ", static_cast<int>(in.delivery())));
  spec.delivery = in.delivery() != v1::DELIVERY_UNSPECIFIED ? static_cast<engine::Delivery>(in.delivery())
                  : images                                  ? engine::Delivery::kLatest
                                                            : engine::Delivery::kLossless;
  if (in.queue_length() > 1024) return InvalidField("queue_length", absl::StrCat("is ", in.queue_length(), "; allowed 0 to 1024"));
  const bool volumes = std::find(spec.products.begin(), spec.products.end(), engine::Product::kVolume) != spec.products.end();
  const bool events_only = std::all_of(spec.products.begin(), spec.products.end(), [](auto product) { return product == engine::Product::kEvent; });
  spec.queue_length = in.queue_length() != 0 ? in.queue_length() : volumes ? 2 : events_only ? 256 : 16;
  OCTAVO_RETURN_IF_ERROR(CheckFinite("max_rate_hz", in.max_rate_hz()));
  spec.max_rate_hz = in.max_rate_hz();
  spec.resume = in.resume();
  spec.from_sequence = in.from_sequence();
  spec.previews = !in.no_preview();
  OCTAVO_ASSIGN_OR_RETURN(out.chunk_bytes, DecodeChunkBytes(in.chunk_bytes()));
  return out;
}

void EncodeFrameHeader(const engine::Frame& in, uint64_t dropped_before, v1::Frame* out) {
  out->set_scan(in.scan);
  out->set_volume(in.volume);
  out->set_volume_index(in.volume_index);
  out->set_product(static_cast<v1::Product>(in.product));
  out->set_axis(static_cast<v1::Axis>(in.axis));
  out->set_sequence(in.sequence);
  out->set_dropped_before(dropped_before);
  EncodeTime(in.acquired, out->mutable_acquired());
  EncodeTime(in.published, out->mutable_published());
  for (const int64_t extent : in.shape) out->add_shape(extent);
  for (const auto& axis : in.axes) out->add_axes(axis);
  for (const double spacing : in.spacing_um) out->add_spacing_um(spacing);
  out->set_dtype(static_cast<v1::DType>(in.dtype));
  out->mutable_display()->set_lo(static_cast<float>(in.display_lo));
  out->mutable_display()->set_hi(static_cast<float>(in.display_hi));
  out->set_complete(in.complete);
  out->set_event(in.event.text);
  if (in.product == engine::Product::kEvent) EncodeScanEvent(in.event, out->mutable_scan_event());
}

}  // namespace octavo::rpc

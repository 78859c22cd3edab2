#include "server/rpc/convert/projection.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/fixed_bytes.h"

namespace octavo::rpc {
namespace {

absl::Status AllFinite(const char* field, const google::protobuf::RepeatedField<double>& values) {
  for (int i = 0; i < values.size(); ++i)
    OCTAVO_RETURN_IF_ERROR(CheckFinite(absl::StrCat(field, "[", i, "]").c_str(), values[i]));
  return absl::OkStatus();
}

absl::StatusOr<math::RayInterpolation> Decode(
    v1::TomographyAlgorithmOptions::Interpolation interpolation) {
  using O = v1::TomographyAlgorithmOptions;
  switch (interpolation) {
    case O::INTERPOLATION_NEAREST: return math::RayInterpolation::kNearest;
    case O::INTERPOLATION_UNSPECIFIED:
    case O::INTERPOLATION_LINEAR: return math::RayInterpolation::kLinear;
    case O::INTERPOLATION_CUBIC: return math::RayInterpolation::kCubic;
    default: break;
  }
  return CheckEnum("projection.interpolation", interpolation, false);
}

}  // namespace

absl::StatusOr<model::ProjectionSpec> DecodeProjection(const v1::ProjectionJob& in) {
  if (in.input().empty())
    return InvalidField("projection.input",
                        "is empty; allowed is the name of a held volume or of a buffer that is not "
                        "private, volumes/<id> or buffers/<id>");
  OCTAVO_RETURN_IF_ERROR(AllFinite("projection.angles_rad", in.angles_rad()));
  OCTAVO_RETURN_IF_ERROR(AllFinite("projection.axis_pixels", in.axis_pixels()));
  OCTAVO_RETURN_IF_ERROR(CheckFinite("projection.pixel_size", in.pixel_size()));
  OCTAVO_RETURN_IF_ERROR(CheckFinite("projection.mask_ratio", in.mask_ratio()));
  OCTAVO_RETURN_IF_ERROR(InRange("projection.slices_per_batch", in.slices_per_batch(), 0, 4096));
  OCTAVO_RETURN_IF_ERROR(
      CheckEnum("projection.place", in.place(), v1::ResultPlace_IsValid(in.place())));
  model::ProjectionSpec out{.input = in.input(),
                            .adjoint = in.adjoint(),
                            .angles_rad = {in.angles_rad().begin(), in.angles_rad().end()},
                            .axis_pixels = {in.axis_pixels().begin(), in.axis_pixels().end()},
                            .columns = in.columns(),
                            .image_size = in.image_size(),
                            .pixel_size = in.pixel_size() == 0 ? 1 : in.pixel_size(),
                            .mask_ratio = in.mask_ratio(),
                            .slices_per_batch = in.slices_per_batch(),
                            .place = static_cast<model::ResultPlace>(in.place()),
                            .encoded = FixedBytes(in),
                            .json = ""};
  OCTAVO_ASSIGN_OR_RETURN(out.interpolation, Decode(in.interpolation()));
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  (void)google::protobuf::util::MessageToJsonString(in, &out.json, options);
  return out;
}

void EncodeProjection(const model::ProjectionSpec& in, v1::ProjectionJob* out) {
  out->ParseFromString(in.encoded);
}

}  // namespace octavo::rpc

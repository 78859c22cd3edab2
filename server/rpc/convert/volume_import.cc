#include "server/rpc/convert/volume_import.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/enum_name.h"
#include "server/rpc/convert/fixed_bytes.h"
#include "server/volume/volume_metadata.h"

namespace octavo::rpc {
namespace {

using storage::ElementType;
using storage::InputFormat;

static_assert(v1::INPUT_FORMAT_NPY == static_cast<int>(InputFormat::kNpy) &&
              v1::INPUT_FORMAT_RAW == static_cast<int>(InputFormat::kRaw) &&
              v1::INPUT_FORMAT_TIFF == static_cast<int>(InputFormat::kTiff) &&
              v1::INPUT_FORMAT_TIFF_STACK == static_cast<int>(InputFormat::kTiffStack) &&
              v1::INPUT_FORMAT_NIFTI == static_cast<int>(InputFormat::kNifti) &&
              v1::INPUT_FORMAT_NRRD == static_cast<int>(InputFormat::kNrrd) &&
              v1::INPUT_FORMAT_HDF5 == static_cast<int>(InputFormat::kHdf5) &&
              v1::INPUT_FORMAT_MATLAB == static_cast<int>(InputFormat::kMatlab) &&
              v1::INPUT_FORMAT_LINUMPY == static_cast<int>(InputFormat::kLinumpy) &&
              v1::INPUT_FORMAT_ZARR == static_cast<int>(InputFormat::kZarr));

std::optional<ElementType> StoredTypeOf(v1::Dtype dtype) {
  using Kind = ElementType::Kind;
  switch (dtype) {
    case v1::DTYPE_U8: return ElementType{.kind = Kind::kUnsigned, .bytes = 1};
    case v1::DTYPE_I8: return ElementType{.kind = Kind::kSigned, .bytes = 1};
    case v1::DTYPE_U16: return ElementType{.kind = Kind::kUnsigned, .bytes = 2};
    case v1::DTYPE_I16: return ElementType{.kind = Kind::kSigned, .bytes = 2};
    case v1::DTYPE_U32: return ElementType{.kind = Kind::kUnsigned, .bytes = 4};
    case v1::DTYPE_I32: return ElementType{.kind = Kind::kSigned, .bytes = 4};
    case v1::DTYPE_U64: return ElementType{.kind = Kind::kUnsigned, .bytes = 8};
    case v1::DTYPE_I64: return ElementType{.kind = Kind::kSigned, .bytes = 8};
    case v1::DTYPE_F16: return ElementType{.kind = Kind::kFloat, .bytes = 2};
    case v1::DTYPE_F32: return ElementType{.kind = Kind::kFloat, .bytes = 4};
    case v1::DTYPE_F64: return ElementType{.kind = Kind::kFloat, .bytes = 8};
    case v1::DTYPE_C64: return ElementType{.kind = Kind::kComplex, .bytes = 8};
    case v1::DTYPE_C128: return ElementType{.kind = Kind::kComplex, .bytes = 16};
    default: return std::nullopt;
  }
}

absl::Status DecodeRaw(const v1::RawNumbers& in, storage::RawLayout* out) {
  const auto type = StoredTypeOf(in.dtype());
  if (!type.has_value())
    return FieldNotAllowed("volume_import.raw.dtype", EnumName(in.dtype()),
                           storage::kElementTypeNames);
  out->shape = {in.shape().begin(), in.shape().end()};
  out->type = *type;
  out->big_endian = in.big_endian();
  out->offset_bytes = in.offset_bytes();
  out->fortran = in.fortran();
  out->allow_trailing = in.allow_trailing();
  return absl::OkStatus();
}

/// What the numbers are: the name that files have.
absl::Status DecodeMeaning(const v1::ImportJob& in, std::string* value_kind) {
  OCTAVO_RETURN_IF_ERROR(
      CheckEnum("volume_import.value", in.value(), v1::Value_IsValid(in.value())));
  OCTAVO_RETURN_IF_ERROR(
      CheckEnum("volume_import.quantity", in.quantity(), v1::Quantity_IsValid(in.quantity())));
  const bool value = in.value() != v1::VALUE_UNSPECIFIED,
             quantity = in.quantity() != v1::QUANTITY_UNSPECIFIED;
  if (value && quantity)
    return FieldNotAllowed("volume_import.quantity", EnumName(in.quantity()),
                           absl::StrCat("no value beside value = ", EnumName(in.value())));
  if (value) *value_kind = volume::NameOfValue(static_cast<model::ValueKind>(in.value()));
  if (quantity) *value_kind = Name(static_cast<model::Quantity>(in.quantity()));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<model::ImportSpec> DecodeImport(const v1::ImportJob& in) {
  model::ImportSpec out;
  out.path = in.path();
  out.deposit = in.deposit();
  OCTAVO_RETURN_IF_ERROR(
      CheckEnum("volume_import.format", in.format(), v1::InputFormat_IsValid(in.format())));
  if (in.format() != v1::INPUT_FORMAT_UNSPECIFIED)
    out.input.format = static_cast<InputFormat>(in.format());
  if (in.has_raw()) OCTAVO_RETURN_IF_ERROR(DecodeRaw(in.raw(), &out.input.raw.emplace()));
  out.input.dataset = in.dataset();
  if (in.has_image()) {
    OCTAVO_RETURN_IF_ERROR(InRange("volume_import.image", in.image(), 0, 1 << 20));
    out.input.image = static_cast<int>(in.image());
  }
  if (in.has_level()) {
    OCTAVO_RETURN_IF_ERROR(InRange("volume_import.level", in.level(), 0, 1 << 20));
    out.input.level = static_cast<int>(in.level());
  }
  storage::InputVolumeOptions& volume = out.volume;
  volume.axes = {in.axes().begin(), in.axes().end()};
  volume.select.insert(in.select().begin(), in.select().end());
  for (const auto& [axis, um] : in.spacing_um()) {
    if (axis != "x" && axis != "y" && axis != "z")
      return FieldNotAllowed("volume_import.spacing_um", absl::StrCat("for the axis '", axis, "'"),
                             "x, y, z");
    volume.spacing_um[axis] = um;
  }
  volume.allow_unknown_spacing = in.allow_unknown_spacing();
  volume.order = in.order();
  OCTAVO_RETURN_IF_ERROR(
      CheckEnum("volume_import.dtype", in.dtype(), v1::Dtype_IsValid(in.dtype())));
  if (in.has_buffer()) {
    volume.array.emplace();
    out.is_private = in.buffer().is_private();
    if (in.dtype() != v1::DTYPE_UNSPECIFIED) volume.array->type = StoredTypeOf(in.dtype());
    if (in.dtype() == v1::DTYPE_C128 ||
        (in.dtype() != v1::DTYPE_UNSPECIFIED && !volume.array->type.has_value()))
      return FieldNotAllowed("volume_import.dtype", EnumName(in.dtype()),
                             "U8, I8, U16, I16, U32, I32, U64, I64, F16, F32, F64, C64");
  } else if (in.dtype() > v1::DTYPE_C64) {
    return FieldNotAllowed("volume_import.dtype", EnumName(in.dtype()),
                           "U8, I8, U16, I16, F16, F32, F64, C64, and others for a buffer");
  } else if (in.dtype() != v1::DTYPE_UNSPECIFIED) {
    volume.dtype = static_cast<DType>(in.dtype());
  }
  if (in.scaled()) volume.values = storage::InputVolumeOptions::Values::kScaled;
  volume.start = {in.start().begin(), in.start().end()};
  volume.count = {in.count().begin(), in.count().end()};
  OCTAVO_RETURN_IF_ERROR(DecodeMeaning(in, &volume.value_kind));
  v1::ImportJob told = in;
  told.clear_deposit();  // a reader of the job could import the file with this ticket
  out.encoded = FixedBytes(told);
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  (void)google::protobuf::util::MessageToJsonString(told, &out.json, options);
  return out;
}

void EncodeImport(const model::ImportSpec& in, v1::ImportJob* out) {
  out->ParseFromString(in.encoded);
}

v1::JobSpec JobSpecOf(const v1::ImportVolumeRequest& in) {
  v1::JobSpec out;
  out.set_title(in.title());
  *out.mutable_labels() = in.labels();
  out.set_priority(in.priority());
  out.set_device(in.device());
  out.set_orphan(in.orphan());
  if (in.has_ttl()) *out.mutable_ttl() = in.ttl();
  out.set_group(in.group());
  *out.mutable_volume_import() = in.volume_import();
  return out;
}

}  // namespace octavo::rpc

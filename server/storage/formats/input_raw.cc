#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/storage/formats/flat_array.h"
#include "server/storage/formats/format_inputs.h"
#include "server/storage/io/file_errors.h"

namespace octavo::storage {
namespace {

/// Checks the caller's description, whose errors name its fields.
absl::Status CheckRaw(const RawLayout& raw, const VolumeInputOptions& options) {
  if (raw.shape.empty() || raw.shape.size() > 8)
    return FieldNotAllowed(FieldOf(options, "raw.shape"),
                           absl::StrCat("of ", raw.shape.size(), " axes"), "1 to 8 axes");
  int64_t elements = 1;
  for (size_t d = 0; d < raw.shape.size(); ++d) {
    const int64_t most = (int64_t{1} << 40) / elements;
    OCTAVO_RETURN_IF_ERROR(
        InRange(absl::StrCat(FieldOf(options, "raw.shape"), "[", d, "]"), raw.shape[d], 1, most));
    elements *= raw.shape[d];
  }
  if (!CheckedElementType(raw.type.kind, raw.type.bytes).has_value())
    return FieldNotAllowed(FieldOf(options, "raw.type"), raw.type.Name(), kElementTypeNames);
  return InRange(FieldOf(options, "raw.offset_bytes"), raw.offset_bytes, 0, int64_t{1} << 50);
}

}  // namespace

OpenedVolume OpenRawInput(OpenedInput input, const VolumeInputOptions& options) {
  OCTAVO_ASSIGN_OR_RETURN(auto side, ReadSideMeta(input, options));
  RawLayout raw;
  if (options.raw.has_value()) {
    raw = *options.raw;
    OCTAVO_RETURN_IF_ERROR(CheckRaw(raw, options));
  } else if (side.has_value()) {
    raw.shape.assign(side->meta.shape, side->meta.shape + 3);
    raw.type = ElementTypeOf(side->meta.dtype);
    OCTAVO_RETURN_IF_ERROR(CheckInputShape(input.name + ".json", "shape", raw.shape));
  } else {
    return InvalidField(FieldOf(options, "raw"),
                        absl::StrCat("is missing: ", input.name,
                                     " has no header; allowed are shape, type, byte order, offset "
                                     "and order of its elements"));
  }
  const FlatLayout layout{
      .offset = raw.offset_bytes,
      .type = raw.type,
      .big_endian = raw.big_endian,
      .shape = raw.shape,
      .file_order = raw.fortran ? FortranOrder(raw.shape.size()) : COrder(raw.shape.size())};
  VolumeInputInfo info{.format = InputFormat::kRaw, .kind = "raw numbers", .type = raw.type};
  for (const int64_t extent : raw.shape) info.axes.push_back({.extent = extent});
  const int64_t wanted = raw.offset_bytes + ElementsOf(raw.shape) * raw.type.bytes,
                there = input.bytes->size();
  const auto sizes = [&] {
    return absl::StrCat("an offset of ", raw.offset_bytes, " and the shape [",
                        absl::StrJoin(raw.shape, ", "), "] of ", raw.type.Name(), " make ", wanted,
                        " bytes, ", input.name, " has ", there);
  };
  const absl::string_view field = "raw.shape";
  if (there < wanted && !options.raw.has_value())
    return DamagedFile(input.name, "the file",
                       absl::StrCat("ends ", wanted - there, " bytes too early: ", sizes()));
  if (there < wanted)
    return InvalidField(
        absl::StrCat(options.field_prefix, field),
        absl::StrCat("asks for ", wanted - there, " bytes that are missing: ", sizes()));
  if (there > wanted && !raw.allow_trailing)
    return InvalidField(absl::StrCat(options.field_prefix, field),
                        absl::StrCat("leaves ", there - wanted, " bytes over: ", sizes(),
                                     "; allowed with raw.allow_trailing"));
  if (there > wanted)
    info.notes.push_back(absl::StrCat(there - wanted, " bytes after the array are left out"));
  if (side.has_value() && !options.raw.has_value())
    OCTAVO_RETURN_IF_ERROR(AdoptMeta(input.name, std::move(side->meta), COrder(3), &info));
  return std::make_unique<FlatInput>(std::move(info), input.bytes, layout);
}

}  // namespace octavo::storage

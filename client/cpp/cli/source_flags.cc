#include "client/cpp/cli/source_flags.h"

#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "client/cpp/cli/words.h"
#include "gpu/base/status.h"
#include "server/storage/formats/volume_input.h"
#include "server/storage/io/element_type.h"

namespace octavo::cli {
namespace {

constexpr int kMostIndex = 1 << 20;
constexpr char kVolumeTypes[] = "u8, i8, u16, i16, f16, f32, f64, c64";
constexpr char kArrayTypes[] = "u8, i8, u16, i16, u32, i32, u64, i64, f16, f32, f64, c64";

/// "x=6": a name and a number, into a map of the message.
template <class T>
absl::Status Pairs(const char* flag, const std::vector<std::string>& given,
                   google::protobuf::Map<std::string, T>* out) {
  for (const std::string& pair : given) {
    const size_t at = pair.find('=');
    std::istringstream text(at == std::string::npos ? "" : pair.substr(at + 1));
    T value{};
    if (!(text >> value) || !text.eof())
      return InvalidField(flag, absl::StrCat("is '", pair, "'; allowed are name=number"));
    if (!out->insert({pair.substr(0, at), value}).second)
      return InvalidField(flag, absl::StrCat("has '", pair.substr(0, at), "' twice"));
  }
  return absl::OkStatus();
}

/// DTYPE_UNSPECIFIED if there is no such type.
v1::Dtype TypeNamed(const std::string& word) {
  v1::Dtype dtype = v1::DTYPE_UNSPECIFIED;
  (void)v1::Dtype_Parse(absl::StrCat("DTYPE_", absl::AsciiStrToUpper(word)), &dtype);
  return dtype;
}

}  // namespace

std::string TypeWord(v1::Dtype dtype) { return absl::AsciiStrToLower(ShortName(dtype)); }

void SourceFlags::AddTo(CLI::App* app) {
  app->add_option("--from-format", format,
                  absl::StrCat("the source's format, if its content does not tell: ",
                               storage::kInputFormatNames));
  app->add_option("--raw-shape", raw_shape,
                  "raw numbers: extents, slowest first (with --raw-fortran fastest first)")
      ->delimiter(',');
  app->add_option("--raw-type", raw_type,
                  absl::StrCat("raw numbers: ", storage::kElementTypeNames));
  app->add_option("--raw-offset", raw_offset, "raw numbers: bytes before the first one");
  app->add_flag("--raw-big-endian", raw_big_endian, "raw numbers: most significant byte first");
  app->add_flag("--raw-fortran", raw_fortran, "raw numbers: the first axis is the fastest");
  app->add_flag("--raw-trailing", raw_trailing, "raw numbers: leave out what follows them");
  app->add_option("--dataset,--array", dataset,
                  "HDF5: path of the dataset; MATLAB: name of the variable; Zarr: path of an "
                  "array or a group below the folder");
  app->add_option("--image", image, "OME-TIFF and OME-Zarr with several images: which one, from 0")
      ->check(CLI::Range(0, kMostIndex));
  app->add_option("--from-level", from_level,
                  "OME-Zarr: level of the pyramid that is read; default 0, the full resolution")
      ->check(CLI::Range(0, kMostIndex));
  app->add_option("--axes", axes,
                  "names of the source's axes, slowest first: z,y,x; others than x, y, z need "
                  "--select. Of MATLAB's volume(a, b, c) these are c,b,a. Of .npy and raw numbers "
                  "they are in the order of the shape, in Fortran order, too")
      ->delimiter(',');
  app->add_option("--select", select, "index along another axis: c=0")->delimiter(',');
  app->add_option("--spacing-um", spacing_um,
                  "micrometres from sample to sample, instead of the source's: x=6,y=12,z=3.5")
      ->delimiter(',');
  app->add_flag("--unknown-spacing", unknown_spacing,
                "go on where neither the source nor --spacing-um tells a spacing");
  app->add_option("--order", order, "axes of the result, slowest first: yxz");
  app->add_option("--dtype", dtype, absl::StrCat("type of the result: ", kVolumeTypes));
  app->add_flag("--scaled", scaled, "NIfTI: values scaled by scl_slope and scl_inter");
}

absl::StatusOr<v1::ImportJob> SourceFlags::Make(bool array) const {
  v1::ImportJob out;
  if (!format.empty()) {
    const auto named = storage::InputFormatNamed(format);
    if (!named.has_value())
      return InvalidField("--from-format",
                          absl::StrCat("is '", format, "'; allowed ", storage::kInputFormatNames));
    out.set_format(static_cast<v1::InputFormat>(*named));
  }
  out.set_dataset(dataset);
  if (image.has_value()) out.set_image(*image);
  if (from_level.has_value()) out.set_level(*from_level);
  const bool raw = !raw_shape.empty() || !raw_type.empty();
  if (!raw && (raw_offset != 0 || raw_big_endian || raw_fortran || raw_trailing))
    return InvalidField("--raw-shape",
                        "and --raw-type are missing: without them nothing is read as raw numbers");
  if (raw) {
    if (raw_shape.empty()) return InvalidField("--raw-shape", "is missing beside --raw-type");
    if (raw_type.empty()) return InvalidField("--raw-type", "is missing beside --raw-shape");
    if (!storage::ElementTypeNamed(raw_type).has_value())
      return InvalidField(
          "--raw-type", absl::StrCat("is '", raw_type, "'; allowed ", storage::kElementTypeNames));
    out.mutable_raw()->mutable_shape()->Add(raw_shape.begin(), raw_shape.end());
    out.mutable_raw()->set_dtype(TypeNamed(raw_type));
    out.mutable_raw()->set_big_endian(raw_big_endian);
    out.mutable_raw()->set_offset_bytes(raw_offset);
    out.mutable_raw()->set_fortran(raw_fortran);
    out.mutable_raw()->set_allow_trailing(raw_trailing);
  }
  for (const std::string& axis : axes) out.add_axes(axis);
  out.set_order(order);
  out.set_allow_unknown_spacing(unknown_spacing);
  out.set_scaled(scaled);
  OCTAVO_RETURN_IF_ERROR(Pairs("--select", select, out.mutable_select()));
  OCTAVO_RETURN_IF_ERROR(Pairs("--spacing-um", spacing_um, out.mutable_spacing_um()));
  for (const auto& [axis, um] : out.spacing_um()) {
    if (axis != "x" && axis != "y" && axis != "z")
      return InvalidField("--spacing-um",
                          absl::StrCat("is for the axis '", axis, "'; allowed x, y, z"));
  }
  if (!dtype.empty()) {
    out.set_dtype(TypeNamed(dtype));
    const bool known = array ? out.dtype() != v1::DTYPE_C32 && out.dtype() != v1::DTYPE_C128
                             : out.dtype() <= v1::DTYPE_C64;
    if (out.dtype() == v1::DTYPE_UNSPECIFIED || !known)
      return InvalidField("--dtype", absl::StrCat("is '", dtype, "'; allowed ",
                                                  array ? kArrayTypes : kVolumeTypes));
  }
  return out;
}

}  // namespace octavo::cli

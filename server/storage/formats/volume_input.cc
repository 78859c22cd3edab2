#include "server/storage/formats/volume_input.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <iterator>
#include <sys/stat.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/json.h"
#include "gpu/base/status.h"
#include "server/storage/formats/format_inputs.h"
#include "server/storage/formats/meta_json.h"
#include "server/storage/io/crc32c.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/file_errors.h"
#include "server/storage/io/files.h"
#include "server/storage/io/open_beneath.h"
#include "server/storage/zarr/ome.h"

namespace octavo::storage {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 40;
constexpr size_t kMostAxes = 16;

constexpr const char* kNames[] = {"",     "npy",  "raw", "tiff",    "tiff-stack", "nifti",
                                  "nrrd", "hdf5", "mat", "linumpy", "zarr"};

bool IsFolder(InputFormat format) {
  return format == InputFormat::kTiffStack || format == InputFormat::kLinumpy ||
         format == InputFormat::kZarr;
}

bool HasEntry(const UniqueFd& folder, const char* name) {
  struct stat info {};
  return ::fstatat(folder.get(), name, &info, 0) == 0 && S_ISREG(info.st_mode);
}

/// A folder that is none of the others may hold TIFF files, which its input says.
InputFormat RecogniseFolder(const UniqueFd& folder) {
  for (const char* entry : {"zarr.json", ".zarray", ".zgroup", ".zattrs"}) {
    if (HasEntry(folder, entry)) return InputFormat::kZarr;
  }
  return HasEntry(folder, "info.txt") ? InputFormat::kLinumpy : InputFormat::kTiffStack;
}

bool IsNiftiHead(absl::string_view head) {
  if (head.size() < 4) return false;
  const absl::string_view size = head.substr(0, 4);
  return size == absl::string_view("\x5C\x01\0\0", 4) ||
         size == absl::string_view("\0\0\x01\x5C", 4) ||
         size == absl::string_view("\x1C\x02\0\0", 4) ||
         size == absl::string_view("\0\0\x02\x1C", 4);
}

/// The head of what a gzip file holds; empty if it cannot be decompressed.
std::string HeadInGzip(const std::shared_ptr<ByteSource>& bytes) {
  std::string head(4, '\0');
  const auto inside = InflatedBytes(bytes, InflateWrap::kGzip, 0, -1, -1, Trailing::kIgnore);
  return inside->ReadAt(0, head.data(), head.size()).ok() ? head : "";
}

absl::Status CheckCrc(ByteSource& bytes, const SideMeta& side) {
  if (side.bytes < 0) return absl::OkStatus();
  if (bytes.size() != side.bytes)
    return DamagedFile(bytes.name(), "the file",
                       absl::StrCat("has ", bytes.size(), " bytes; its metadata say ", side.bytes));
  std::string piece(1 << 20, '\0');
  uint32_t crc = 0;
  for (int64_t at = 0; at < side.bytes;) {
    const auto part = static_cast<size_t>(std::min<int64_t>(side.bytes - at, 1 << 20));
    OCTAVO_RETURN_IF_ERROR(bytes.ReadAt(at, piece.data(), part));
    crc = Crc32c(piece.data(), part, crc);
    at += static_cast<int64_t>(part);
  }
  if (crc == side.crc32c) return absl::OkStatus();
  return DamagedFile(bytes.name(), "the file",
                     absl::StrFormat("has the CRC %08x; its metadata say %08x", crc, side.crc32c));
}

OpenedVolume OpenAs(InputFormat format, OpenedInput input, const VolumeInputOptions& options) {
  switch (format) {
    case InputFormat::kNpy: return OpenNpyInput(std::move(input), options);
    case InputFormat::kRaw: return OpenRawInput(std::move(input), options);
    case InputFormat::kTiff: return OpenTiffInput(std::move(input), options);
    case InputFormat::kTiffStack: return OpenTiffStackInput(std::move(input), options);
    case InputFormat::kNifti: return OpenNiftiInput(std::move(input), options);
    case InputFormat::kNrrd: return OpenNrrdInput(std::move(input), options);
    case InputFormat::kHdf5: return OpenHdf5Input(std::move(input), options);
    case InputFormat::kMatlab: return OpenMatlabInput(std::move(input), options);
    case InputFormat::kLinumpy: return OpenLinumpyInput(std::move(input), options);
    case InputFormat::kZarr: return OpenZarrInput(std::move(input), options);
  }
  return FieldNotAllowed(FieldOf(options, "format"), static_cast<int>(format), kInputFormatNames);
}

absl::StatusOr<InputFormat> FormatOf(const OpenedInput& input, bool folder, bool own_bin,
                                     const VolumeInputOptions& options) {
  const std::string field = FieldOf(options, "format");
  if (options.format.has_value() && IsFolder(*options.format) != folder)
    return InvalidField(
        field, absl::StrCat("is ", Name(*options.format), ", and ", input.name, " is a ",
                            folder ? "folder; allowed tiff-stack, linumpy, zarr"
                                   : "file; allowed npy, raw, tiff, nifti, nrrd, hdf5, mat"));
  if (folder) {
    const InputFormat recognised = RecogniseFolder(input.fd);
    if (options.format.value_or(recognised) == recognised) return recognised;
    // Beside the files of these there may be TIFF files.
    if (*options.format == InputFormat::kTiffStack) return InputFormat::kTiffStack;
    return InvalidField(
        field, absl::StrCat("is ", Name(*options.format), ", and ", input.name,
                            recognised == InputFormat::kTiffStack
                                ? " has neither files of Zarr (zarr.json, .zarray, .zgroup) nor "
                                  "info.txt of linumpy; allowed tiff-stack"
                                : absl::StrCat(" is recognised as ", Name(recognised),
                                               "; allowed are that, tiff-stack, or none")));
  }
  if (options.raw.has_value() && !options.format.has_value()) return InputFormat::kRaw;
  auto format = RecogniseInput(input.head);
  if (!format.has_value() && absl::StartsWith(input.head, "\x1F\x8B") &&
      IsNiftiHead(HeadInGzip(input.bytes)))
    format = InputFormat::kNifti;
  if (options.format.has_value()) {
    // All formats but raw numbers have a signature.
    if (*options.format == InputFormat::kRaw || options.format == format) return *options.format;
    return InvalidField(
        field, absl::StrCat(
                   "is ", Name(*options.format), ", and ", input.name, " is ",
                   format.has_value()
                       ? absl::StrCat("recognised as ", Name(*format),
                                      " by its first bytes; allowed are that, or none")
                       : std::string("of no kind that its first bytes tell; allowed raw, with its "
                                     "shape and type")));
  }
  if (!format.has_value() && own_bin) format = InputFormat::kRaw;
  if (format.has_value()) return *format;
  return UnsupportedFile(
      input.name, "the file", "of no kind that its first bytes tell",
      absl::StrCat(kInputFormatNames,
                   "; raw numbers need their shape and type, an .img file is opened by its .hdr"));
}

/// Options that have no effect on files of the format are mistakes.
absl::Status CheckOptions(InputFormat format, const VolumeInputOptions& options) {
  const auto check = [&](const char* option, bool given, absl::Span<const InputFormat> takes) {
    if (!given || std::find(takes.begin(), takes.end(), format) != takes.end())
      return absl::OkStatus();
    return InvalidField(
        FieldOf(options, option),
        absl::StrCat("is given for a file of the format ", Name(format), "; allowed for ",
                     absl::StrJoin(takes, ", ", [](std::string* out, InputFormat one) {
                       absl::StrAppend(out, Name(one));
                     })));
  };
  OCTAVO_RETURN_IF_ERROR(check("dataset", !options.dataset.empty(),
                               {InputFormat::kHdf5, InputFormat::kMatlab, InputFormat::kZarr}));
  OCTAVO_RETURN_IF_ERROR(check("image", options.image.value_or(0) != 0,
                               {InputFormat::kTiff, InputFormat::kTiffStack, InputFormat::kZarr}));
  OCTAVO_RETURN_IF_ERROR(check("level", options.level.value_or(0) != 0, {InputFormat::kZarr}));
  return check("raw", options.raw.has_value(), {InputFormat::kRaw});
}

OpenedVolume OpenOpened(OpenedInput input, const VolumeInputOptions& options) {
  struct stat info {};
  if (::fstat(input.fd.get(), &info) != 0) return ErrnoStatus(errno, "examining", input.name);
  const bool folder = S_ISDIR(info.st_mode);
  std::optional<SideMeta> side;
  if (!folder) {
    if (options.on_opened) OCTAVO_RETURN_IF_ERROR(options.on_opened(input.fd, input.name));
    UniqueFd copy(::fcntl(input.fd.get(), F_DUPFD_CLOEXEC, 0));
    if (!copy) return ErrnoStatus(errno, "opening", input.name);
    OCTAVO_ASSIGN_OR_RETURN(input.bytes, FileBytes(std::move(copy), input.name));
    input.head.resize(static_cast<size_t>(std::min<int64_t>(input.bytes->size(), kHeadBytes)));
    OCTAVO_RETURN_IF_ERROR(input.bytes->ReadAt(0, input.head.data(), input.head.size()));
    OCTAVO_ASSIGN_OR_RETURN(side, ReadSideMeta(input, options));
  }
  OCTAVO_ASSIGN_OR_RETURN(const InputFormat format,
                          FormatOf(input, folder, side.has_value(), options));
  OCTAVO_RETURN_IF_ERROR(CheckOptions(format, options));
  // Of a folder only its kind has been read, so that no other folder is looked through.
  if (folder && options.on_opened) OCTAVO_RETURN_IF_ERROR(options.on_opened(input.fd, input.name));
  const std::shared_ptr<ByteSource> bytes = input.bytes;
  OCTAVO_ASSIGN_OR_RETURN(auto opened, OpenAs(format, std::move(input), options));
  if (side.has_value() && opened->info().octavo.has_value())
    opened->SetVerify([bytes, side = *side] { return CheckCrc(*bytes, side); });
  return opened;
}

}  // namespace

const char* Name(InputFormat format) {
  const auto at = static_cast<size_t>(format);
  return at < std::size(kNames) ? kNames[at] : "?";
}

std::optional<InputFormat> InputFormatNamed(const std::string& name) {
  for (size_t i = 1; i < std::size(kNames); ++i) {
    if (name == kNames[i]) return static_cast<InputFormat>(i);
  }
  return std::nullopt;
}

std::vector<int64_t> VolumeInputInfo::shape() const {
  std::vector<int64_t> out;
  out.reserve(axes.size());
  for (const InputAxis& axis : axes) out.push_back(axis.extent);
  return out;
}

absl::Status VolumeInput::CheckBox(const base::ArrayBox& box) const {
  const std::vector<int64_t> shape = info_.shape();
  if (box.start.size() != shape.size() || box.count.size() != shape.size())
    return absl::InvalidArgumentError(absl::StrCat("a box of ", box.start.size(), " and ",
                                                   box.count.size(), " values for ", shape.size(),
                                                   " axes"));
  for (size_t d = 0; d < shape.size(); ++d) {
    if (box.start[d] < 0 || box.count[d] < 1 || box.start[d] > shape[d] - box.count[d])
      return absl::InvalidArgumentError(
          absl::StrCat("the box begins at ", box.start[d], " along axis ", d, " and has ",
                       box.count[d], "; allowed are boxes within the extent ", shape[d]));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PieceSource>> VolumeInput::Pieces(const base::ArrayBox& box) const {
  OCTAVO_RETURN_IF_ERROR(CheckBox(box));
  return PiecesInside(box);
}

absl::Status VolumeInput::Read(const base::ArrayBox& box, absl::Span<char> out) {
  OCTAVO_RETURN_IF_ERROR(CheckBox(box));
  const int64_t elements = ElementsOf(box.count);
  if (static_cast<int64_t>(out.size()) != elements * info_.type.bytes)
    return absl::InvalidArgumentError(absl::StrCat("memory of ", out.size(), " bytes for a box of ",
                                                   elements * info_.type.bytes));
  return ReadInside(box, out.data());
}

absl::Status CheckStop(const std::stop_token& stop) {
  return stop.stop_requested() ? absl::CancelledError("cancelled") : absl::OkStatus();
}

std::optional<InputFormat> RecogniseInput(absl::string_view head) {
  const auto begins = [&](absl::string_view with) { return absl::StartsWith(head, with); };
  if (begins("\x93NUMPY")) return InputFormat::kNpy;
  if (begins(absl::string_view("II*\0", 4)) || begins(absl::string_view("MM\0*", 4)) ||
      begins(absl::string_view("II+\0", 4)) || begins(absl::string_view("MM\0+", 4)))
    return InputFormat::kTiff;
  if (begins("NRRD000")) return InputFormat::kNrrd;
  // The signature may come after a block of the user's (MATLAB 7.3: 512 bytes).
  for (size_t at = 0; at + 8 <= head.size(); at = at == 0 ? 512 : 2 * at) {
    if (head.substr(at, 8) == "\x89HDF\r\n\x1A\n") return InputFormat::kHdf5;
  }
  if (head.size() >= 128 && (head.substr(124, 4) == absl::string_view("\0\1IM", 4) ||
                             head.substr(124, 4) == "\1" + std::string(1, '\0') + "MI"))
    return InputFormat::kMatlab;
  if (IsNiftiHead(head)) return InputFormat::kNifti;
  return std::nullopt;
}

absl::StatusOr<std::unique_ptr<VolumeInput>> OpenVolumeInput(const std::string& path,
                                                             const VolumeInputOptions& options) {
  OCTAVO_ASSIGN_OR_RETURN(OpenedBeneath opened,
                          OpenBeneath(path, options.roots, O_RDONLY | O_NONBLOCK));
  std::string resolved = opened.path;
  while (resolved.size() > 1 && resolved.back() == '/') resolved.pop_back();
  return OpenOpened({.fd = std::move(opened.fd), .name = BaseOf(resolved), .path = resolved},
                    options);
}

absl::StatusOr<std::unique_ptr<VolumeInput>> OpenVolumeInput(UniqueFd opened,
                                                             const std::string& name,
                                                             const VolumeInputOptions& options) {
  return OpenOpened({.fd = std::move(opened), .name = name, .path = ""}, options);
}

absl::StatusOr<std::shared_ptr<ByteSource>> OpenReferred(const OpenedInput& input,
                                                         const std::string& name,
                                                         const std::string& place,
                                                         const VolumeInputOptions& options) {
  if (input.path.empty())
    return UnsupportedFile(input.name, place, absl::StrCat("another file, '", name, "'"),
                           "such files by their path only, not by descriptor");
  if (name.empty() || name.find('\0') != std::string::npos)
    return UnsupportedFile(input.name, place, "no name of a file", "names of files");
  const std::string path = name[0] == '/' ? name : absl::StrCat(ParentOf(input.path), "/", name);
  auto opened = OpenBeneath(path, options.roots, O_RDONLY | O_NONBLOCK);
  if (!opened.ok())
    return Annotate(opened.status(), absl::StrCat(input.name, ": ", place, " '", name, "'"));
  if (options.on_opened) OCTAVO_RETURN_IF_ERROR(options.on_opened(opened->fd, BaseOf(path)));
  return FileBytes(std::move(opened->fd), BaseOf(path));
}

absl::Status CheckInputShape(const std::string& name, const std::string& place,
                             const std::vector<int64_t>& shape) {
  if (shape.empty() || shape.size() > kMostAxes)
    return UnsupportedFile(name, place, absl::StrCat("of ", shape.size(), " axes"),
                           absl::StrCat("1 to ", kMostAxes));
  int64_t elements = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] < 1 || shape[d] > kMostElements / elements)
      return UnsupportedFile(name, absl::StrCat(place, "[", d, "]"), shape[d],
                             absl::StrCat("from 1, and ", kMostElements, " elements together"));
    elements *= shape[d];
  }
  return absl::OkStatus();
}

int64_t ElementsOf(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  return elements;
}

std::optional<double> MicrometresOf(const std::string& unit) {
  static const std::map<std::string, double> units = {
      {"m", 1e6},          {"meter", 1e6},       {"metre", 1e6},       {"meters", 1e6},
      {"metres", 1e6},     {"dm", 1e5},          {"decimeter", 1e5},   {"cm", 1e4},
      {"centimeter", 1e4}, {"centimetre", 1e4},  {"centimeters", 1e4}, {"mm", 1e3},
      {"millimeter", 1e3}, {"millimetre", 1e3},  {"millimeters", 1e3}, {"millimetres", 1e3},
      {"um", 1},           {"\xC2\xB5m", 1},     {"\xCE\xBCm", 1},     {"\xB5m", 1},
      {"micron", 1},       {"microns", 1},       {"micrometer", 1},    {"micrometre", 1},
      {"micrometers", 1},  {"micrometres", 1},   {"nm", 1e-3},         {"nanometer", 1e-3},
      {"nanometre", 1e-3}, {"nanometers", 1e-3}, {"nanometres", 1e-3}, {"pm", 1e-6},
      {"picometer", 1e-6}, {"picometre", 1e-6},  {"\xC3\x85", 1e-4},   {"angstrom", 1e-4},
      {"in", 25400},       {"inch", 25400},      {"inches", 25400},    {"ft", 304800},
      {"km", 1e9},         {"\\u00b5m", 1},      {"\\u03bcm", 1}};
  const std::string trimmed(absl::StripAsciiWhitespace(unit));
  // Signs distinguish case (Mm, mm), words do not.
  if (const auto found = units.find(trimmed); found != units.end()) return found->second;
  const std::string word = absl::AsciiStrToLower(trimmed);
  if (const auto found = units.find(word); trimmed.size() > 2 && found != units.end())
    return found->second;
  return OmeUnitMicrometres(word);
}

void SetSpacing(double value, const std::string& unit, const std::string& place, InputAxis* axis,
                std::vector<std::string>* notes) {
  if (!std::isfinite(value) || value == 0) {
    notes->push_back(absl::StrCat(place, " is ", value, ", which is no distance; left out"));
    return;
  }
  axis->spacing_as_stored =
      absl::StrCat(absl::StrFormat("%.9g", value), unit.empty() ? "" : " ", unit);
  axis->spacing_place = place;
  const auto um = MicrometresOf(unit);
  const double spacing = um.has_value() ? std::abs(value) * *um : 0;
  if (um.has_value() && std::isfinite(spacing) && spacing > 0) axis->spacing_um = spacing;
}

std::optional<std::vector<int>> OrderOfNames(const VolumeMeta& meta,
                                             const std::vector<std::string>& names) {
  if (names.size() != 3) return std::nullopt;
  std::vector<int> order;
  for (const std::string& name : names) {
    const auto* const found = std::find(meta.axes, meta.axes + 3, name);
    const int axis = static_cast<int>(found - meta.axes);
    if (axis == 3 || std::find(order.begin(), order.end(), axis) != order.end())
      return std::nullopt;
    order.push_back(axis);
  }
  return order;
}

absl::Status AdoptMeta(const std::string& name, VolumeMeta meta, const std::vector<int>& order,
                       VolumeInputInfo* info) {
  if (info->axes.size() != 3 || order.size() != 3)
    return DamagedFile(name, "the array",
                       absl::StrCat("has ", info->axes.size(), " axes; its metadata say 3"));
  if (info->type != ElementTypeOf(meta.dtype))
    return DamagedFile(name, "the array",
                       absl::StrCat("has the type ", info->type.Name(), "; its metadata say ",
                                    Info(meta.dtype).name));
  for (size_t i = 0; i < 3; ++i) {
    const auto d = static_cast<size_t>(order[i]);
    InputAxis& axis = info->axes[i];
    if (axis.extent != meta.shape[d])
      return DamagedFile(name, "the array",
                         absl::StrCat("has the extent ", axis.extent, " along ", meta.axes[d],
                                      "; its metadata say ", meta.shape[d]));
    axis.name = meta.axes[d];
    axis.spacing_um.reset();
    axis.spacing_as_stored.clear();
    axis.spacing_place.clear();
    if (meta.spacing_assumed[d]) continue;
    SetSpacing(meta.spacing_um[d], "\xC2\xB5m", "octavo.spacing_um", &axis, &info->notes);
  }
  info->labels = meta.labels;
  info->octavo = std::move(meta);
  return absl::OkStatus();
}

absl::StatusOr<VolumeMeta> ParseOwnMeta(const std::string& name, const std::string& place,
                                        const std::string& text, nlohmann::json* parsed) {
  auto json = ParseJson(text);
  if (!json.ok()) return DamagedFile(name, place, json.status().message());
  auto meta = MetaFromJson(*json);
  if (!meta.ok()) return DamagedFile(name, place, absl::StrCat(": ", meta.status().message()));
  if (parsed != nullptr) *parsed = *std::move(json);
  return meta;
}

absl::StatusOr<std::optional<SideMeta>> ReadSideMeta(const OpenedInput& input,
                                                     const VolumeInputOptions& options) {
  if (input.path.empty()) return std::nullopt;
  const std::string path = input.path + ".json", name = input.name + ".json";
  auto opened = OpenBeneath(path, options.roots, O_RDONLY | O_NONBLOCK);
  if (absl::IsNotFound(opened.status())) return std::nullopt;
  if (!opened.ok()) return Annotate(opened.status(), name);
  OCTAVO_ASSIGN_OR_RETURN(const std::string text,
                          ReadWholeFile(opened->fd.get(), name, JsonLimits().bytes));
  const auto json = ParseJson(text);
  if (!json.ok()) return DamagedFile(name, "the file", json.status().message());
  for (const char* member : {"dtype", "axes", "software", "digest"}) {
    if (!json->is_object() || !json->contains(member)) return std::nullopt;  // another program's
  }
  SideMeta side;
  OCTAVO_ASSIGN_OR_RETURN(side.meta, ParseOwnMeta(name, "the file", text));
  const auto file = json->find("file");
  if (file != json->end() && file->is_object() && file->contains("bytes") &&
      (*file)["bytes"].is_number_integer() && file->contains("crc32c") &&
      (*file)["crc32c"].is_string() &&
      absl::SimpleHexAtoi((*file)["crc32c"].get<std::string>(), &side.crc32c))
    side.bytes = (*file)["bytes"].get<int64_t>();
  return side;
}

}  // namespace octavo::storage

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/status.h"
#include "server/storage/formats/flat_array.h"
#include "server/storage/formats/format_inputs.h"
#include "server/storage/io/file_errors.h"

namespace octavo::storage {
namespace {

constexpr int64_t kMostExtension = 16 << 20;

/// The members that are read, of either version.
struct NiftiHead {
  int version = 1;
  bool big_endian = false, two_files = false;
  int64_t dim[8] = {}, datatype = 0, bitpix = 0;
  double pixdim[8] = {}, vox_offset = 0, slope = 0, inter = 0;
  int64_t units = 0, qform = 0, sform = 0;
  double quatern[3] = {}, srow[3][4] = {};
  std::string description, intent;
  int64_t bytes() const { return version == 1 ? 348 : 540; }
};

/// Reads members by their offset.
class Members {
 public:
  Members(const std::string& head, bool big_endian) : head_(head), big_endian_(big_endian) {}
  template <class T>
  T At(size_t offset) const {
    char word[sizeof(T)];
    std::memcpy(word, head_.data() + offset, sizeof(T));
    if (big_endian_) std::reverse(word, word + sizeof(T));
    return std::bit_cast<T>(*reinterpret_cast<const std::array<char, sizeof(T)>*>(word));
  }
  std::string Text(size_t offset, size_t bytes) const {
    const std::string text = head_.substr(offset, bytes);
    return text.substr(0, text.find('\0'));
  }

 private:
  const std::string& head_;
  const bool big_endian_;
};

/// Source: nifti1.h, nifti2_hdr.h of https://nifti.nimh.nih.gov
absl::StatusOr<NiftiHead> ParseHead(const std::string& name, const std::string& bytes) {
  NiftiHead head;
  int32_t little = 0;
  std::memcpy(&little, bytes.data(), 4);
  const auto swapped = static_cast<int32_t>(__builtin_bswap32(static_cast<uint32_t>(little)));
  head.big_endian = swapped == 348 || swapped == 540;
  head.version = little == 540 || swapped == 540 ? 2 : 1;
  if (!head.big_endian && little != 348 && little != 540)
    return DamagedFile(name, "sizeof_hdr", absl::StrCat("is ", little, "; allowed 348, 540"));
  const Members m(bytes, head.big_endian);
  const bool one = head.version == 1;
  const std::string magic = bytes.substr(one ? 344 : 4, one ? 4 : 8);
  const std::string single = one ? std::string("n+1\0", 4) : std::string("n+2\0\r\n\x1A\n", 8),
                    pair = one ? std::string("ni1\0", 4) : std::string("ni2\0\r\n\x1A\n", 8);
  if (magic != single && magic != pair)
    return UnsupportedFile(name, "magic",
                           one && magic == std::string(4, '\0')
                               ? "empty, as in ANALYZE 7.5"
                               : absl::StrCat("'", absl::CHexEscape(magic), "'"),
                           one ? "n+1, ni1 (NIfTI-1)" : "n+2, ni2 (NIfTI-2)");
  head.two_files = magic == pair;
  for (size_t i = 0; i < 8; ++i) {
    head.dim[i] = one ? m.At<int16_t>(40 + 2 * i) : m.At<int64_t>(16 + 8 * i);
    head.pixdim[i] = one ? static_cast<double>(m.At<float>(76 + 4 * i)) : m.At<double>(104 + 8 * i);
  }
  head.datatype = m.At<int16_t>(one ? 70 : 12);
  head.bitpix = m.At<int16_t>(one ? 72 : 14);
  head.vox_offset =
      one ? static_cast<double>(m.At<float>(108)) : static_cast<double>(m.At<int64_t>(168));
  head.slope = one ? static_cast<double>(m.At<float>(112)) : m.At<double>(176);
  head.inter = one ? static_cast<double>(m.At<float>(116)) : m.At<double>(184);
  head.units = one ? static_cast<int64_t>(m.At<uint8_t>(123)) : m.At<int32_t>(500);
  head.qform = one ? m.At<int16_t>(252) : m.At<int32_t>(344);
  head.sform = one ? m.At<int16_t>(254) : m.At<int32_t>(348);
  for (size_t i = 0; i < 3; ++i) {
    head.quatern[i] =
        one ? static_cast<double>(m.At<float>(256 + 4 * i)) : m.At<double>(352 + 8 * i);
    for (size_t k = 0; k < 4; ++k)
      head.srow[i][k] = one ? static_cast<double>(m.At<float>(280 + 16 * i + 4 * k))
                            : m.At<double>(400 + 32 * i + 8 * k);
  }
  head.description = m.Text(one ? 148 : 240, 80);
  head.intent = m.Text(one ? 328 : 508, 16);
  return head;
}

std::optional<ElementType> TypeOf(int64_t datatype) {
  using Kind = ElementType::Kind;
  switch (datatype) {
    case 2: return ElementType{Kind::kUnsigned, 1};
    case 4: return ElementType{Kind::kSigned, 2};
    case 8: return ElementType{Kind::kSigned, 4};
    case 16: return ElementType{Kind::kFloat, 4};
    case 32: return ElementType{Kind::kComplex, 8};
    case 64: return ElementType{Kind::kFloat, 8};
    case 256: return ElementType{Kind::kSigned, 1};
    case 512: return ElementType{Kind::kUnsigned, 2};
    case 768: return ElementType{Kind::kUnsigned, 4};
    case 1024: return ElementType{Kind::kSigned, 8};
    case 1280: return ElementType{Kind::kUnsigned, 8};
    case 1792: return ElementType{Kind::kComplex, 16};
    default: return std::nullopt;
  }
}

/// The columns of the rotation of a file's orientation; false if it has none.
bool RotationOf(const NiftiHead& head, double out[3][3]) {
  if (head.sform > 0) {
    for (int i = 0; i < 3; ++i) {
      for (int k = 0; k < 3; ++k) out[i][k] = head.srow[i][k];
    }
    return true;
  }
  if (head.qform <= 0) return false;
  const double b = head.quatern[0], c = head.quatern[1], d = head.quatern[2],
               a = std::sqrt(std::max(0.0, 1 - b * b - c * c - d * d)),
               last = head.pixdim[0] < 0 ? -1 : 1;
  const double r[3][3] = {
      {a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)},
      {2 * (b * c + a * d), a * a + c * c - b * b - d * d, 2 * (c * d - a * b)},
      {2 * (b * d - a * c), 2 * (c * d + a * b), a * a + d * d - b * b - c * c}};
  for (int i = 0; i < 3; ++i) {
    for (int k = 0; k < 3; ++k) out[i][k] = r[i][k] * (k == 2 ? last : 1);
  }
  return true;
}

/// The axes of i, j and k, if each runs along another one; else nothing.
std::string AxesOf(const double r[3][3], std::string* reversed) {
  std::string names;
  for (int k = 0; k < 3; ++k) {
    double sum = 0;
    int most = 0;
    for (int i = 0; i < 3; ++i) {
      sum += std::abs(r[i][k]);
      if (std::abs(r[i][k]) > std::abs(r[most][k])) most = i;
    }
    if (!std::isfinite(sum) || sum == 0 || std::abs(r[most][k]) < 0.9999 * sum) return "";
    const char name = "xyz"[most];
    if (names.find(name) != std::string::npos) return "";
    names += name;
    if (r[most][k] < 0) *reversed += name;
  }
  return names;
}

/// Names and spacings. NIfTI's first index, i, is the fastest.
void SetAxes(const NiftiHead& head, VolumeInputInfo* info) {
  const int64_t rank = head.dim[0];
  std::string names = "xyz", reversed;
  double rotation[3][3];
  if (RotationOf(head, rotation)) {
    const std::string found = AxesOf(rotation, &reversed);
    if (found.empty()) {
      info->notes.push_back(
          "the orientation (sform or qform) is oblique; it is not applied, and the file's indices "
          "i, j, k are taken as x, y, z");
    } else {
      names = found;
    }
    for (const char axis : reversed)
      info->notes.push_back(absl::StrCat("the samples run against the axis ", std::string(1, axis),
                                         " (sform or qform); their order is kept"));
    info->labels["orientation"] = absl::StrFormat(
        "%s code %d: [%g %g %g; %g %g %g; %g %g %g]", head.sform > 0 ? "sform" : "qform",
        head.sform > 0 ? head.sform : head.qform, rotation[0][0], rotation[0][1], rotation[0][2],
        rotation[1][0], rotation[1][1], rotation[1][2], rotation[2][0], rotation[2][1],
        rotation[2][2]);
  }
  const int64_t space = head.units & 7;
  const char* const unit = space == 1 ? "m" : space == 2 ? "mm" : space == 3 ? "\xC2\xB5m" : "";
  for (int64_t i = rank; i-- > 0;) {
    InputAxis axis{.name = i < 3    ? std::string(1, names[static_cast<size_t>(i)])
                           : i == 3 ? "t"
                           : i == 4 ? "c"
                                    : absl::StrCat("dim", i + 1),
                   .extent = head.dim[i + 1]};
    // 0 is NIfTI's word for no distance.
    if (i < 3 && head.pixdim[i + 1] != 0)
      SetSpacing(head.pixdim[i + 1], unit, absl::StrCat("pixdim[", i + 1, "]"), &axis,
                 &info->notes);
    info->axes.push_back(std::move(axis));
  }
}

/// The metadata in an extension of code 6 that a commit wrote.
absl::StatusOr<std::optional<VolumeMeta>> FindOwnMeta(ByteSource& bytes, const NiftiHead& head,
                                                      const std::string& name) {
  int64_t at = head.bytes() + 4;
  const auto end = static_cast<int64_t>(head.vox_offset);
  char flags[4] = {};
  if (end < at || !bytes.ReadAt(head.bytes(), flags, 4).ok() || flags[0] == 0) return std::nullopt;
  while (end - at >= 8) {
    std::string words(8, '\0');
    OCTAVO_RETURN_IF_ERROR(bytes.ReadAt(at, words.data(), 8));
    const Members m(words, head.big_endian);
    const int64_t size = m.At<int32_t>(0), code = m.At<int32_t>(4);
    if (size < 8 || size > end - at)
      return DamagedFile(name, "an extension", absl::StrCat("at ", at, " has ", size, " bytes"));
    if (code == 6 && size <= kMostExtension) {
      std::string text(static_cast<size_t>(size - 8), '\0');
      OCTAVO_RETURN_IF_ERROR(bytes.ReadAt(at + 8, text.data(), text.size()));
      while (!text.empty() && text.back() == '\0') text.pop_back();
      if (absl::StartsWith(text, "{") && absl::StrContains(text, "\"digest\"") &&
          absl::StrContains(text, "\"spacing_um\"")) {
        OCTAVO_ASSIGN_OR_RETURN(auto meta, ParseOwnMeta(name, "the extension of code 6", text));
        return meta;
      }
    }
    at += size;
  }
  return std::nullopt;
}

}  // namespace

/// NIfTI-1 and NIfTI-2. Stored values are read; scl_slope and scl_inter are told, and applied where
/// the caller asks for it (input_volume.h).
OpenedVolume OpenNiftiInput(OpenedInput input, const VolumeInputOptions& options) {
  std::shared_ptr<ByteSource> bytes = input.bytes;
  const bool packed = absl::StartsWith(input.head, "\x1F\x8B");
  if (packed) bytes = InflatedBytes(input.bytes, InflateWrap::kGzip, 0, -1, -1, Trailing::kIgnore);
  std::string text(348, '\0');
  OCTAVO_RETURN_IF_ERROR(bytes->ReadAt(0, text.data(), text.size()));
  text.resize(540, '\0');
  if (text[0] == '\x1C' || text[3] == '\x1C')
    OCTAVO_RETURN_IF_ERROR(bytes->ReadAt(348, text.data() + 348, 540 - 348));
  OCTAVO_ASSIGN_OR_RETURN(const NiftiHead head, ParseHead(input.name, text));
  if (head.dim[0] < 1 || head.dim[0] > 7)
    return DamagedFile(input.name, "dim[0]", absl::StrCat("is ", head.dim[0], "; allowed 1 to 7"));
  const auto type = TypeOf(head.datatype);
  if (!type.has_value())
    return UnsupportedFile(input.name, "datatype", head.datatype,
                           "2, 256 (8-bit), 4, 512 (16), 8, 768 (32), 1024, 1280 (64), 16, 64 "
                           "(float), 32, 1792 (complex); not colours, bits and f128");
  if (head.bitpix != 8 * type->bytes)
    return DamagedFile(
        input.name, "bitpix",
        absl::StrCat("is ", head.bitpix, "; datatype ", head.datatype, " has ", 8 * type->bytes));
  const double least = head.two_files ? 0 : static_cast<double>(head.bytes() + 4);
  if (!(head.vox_offset >= least) || head.vox_offset > 1e15 ||
      head.vox_offset != std::floor(head.vox_offset))
    return DamagedFile(input.name, "vox_offset",
                       absl::StrCat("is ", head.vox_offset, "; allowed are integers from ", least));
  VolumeInputInfo info{
      .format = InputFormat::kNifti,
      .kind = absl::StrCat("NIfTI-", head.version, head.two_files ? ", two files" : "",
                           packed ? ", gzip" : "", head.big_endian ? ", big-endian" : ""),
      .type = *type};
  std::vector<int64_t> dims(head.dim + 1, head.dim + 1 + head.dim[0]);
  OCTAVO_RETURN_IF_ERROR(CheckInputShape(input.name, "dim", dims));
  SetAxes(head, &info);
  const FlatLayout layout{.offset = static_cast<int64_t>(head.vox_offset),
                          .type = *type,
                          .big_endian = head.big_endian,
                          .shape = info.shape(),
                          .file_order = COrder(info.axes.size())};
  const int64_t end = layout.offset + ElementsOf(layout.shape) * type->bytes;
  if (head.two_files) {
    const std::string img = absl::EndsWithIgnoreCase(input.name, ".gz")
                                ? input.name.substr(0, input.name.size() - 7) + ".img.gz"
                                : input.name.substr(0, input.name.rfind('.')) + ".img";
    OCTAVO_ASSIGN_OR_RETURN(bytes, OpenReferred(input, img, "the voxels", options));
  }
  if (packed) {
    bytes = InflatedBytes(head.two_files ? bytes : input.bytes, InflateWrap::kGzip, 0, -1, end,
                          Trailing::kIgnore);
  } else if (bytes->size() < end) {
    return DamagedFile(bytes->name(), "the file",
                       absl::StrCat("has ", bytes->size(), " bytes; the header asks for ", end));
  }
  if (!head.description.empty()) info.labels["descrip"] = head.description;
  if (!head.intent.empty()) info.labels["intent_name"] = head.intent;
  // A slope of 0 (or none) means that values are stored as they are.
  if (std::isfinite(head.slope) && std::isfinite(head.inter) && head.slope != 0 &&
      (head.slope != 1 || head.inter != 0))
    info.slope_intercept = {head.slope, head.inter};
  OCTAVO_ASSIGN_OR_RETURN(auto meta, head.two_files
                                         ? absl::StatusOr<std::optional<VolumeMeta>>(std::nullopt)
                                         : FindOwnMeta(*bytes, head, input.name));
  if (meta.has_value()) {
    std::vector<std::string> names;
    for (const InputAxis& axis : info.axes) names.push_back(axis.name);
    const auto order = OrderOfNames(*meta, names);
    if (!order.has_value())
      return DamagedFile(input.name, "the extension of code 6", "has other axes than the file");
    OCTAVO_RETURN_IF_ERROR(AdoptMeta(input.name, *std::move(meta), *order, &info));
  }
  return std::make_unique<FlatInput>(std::move(info), std::move(bytes), layout);
}

}  // namespace octavo::storage

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/status.h"
#include "server/storage/formats/flat_array.h"
#include "server/storage/formats/format_inputs.h"
#include "server/storage/io/file_errors.h"

namespace octavo::storage {
namespace {

using Kind = ElementType::Kind;
constexpr uint32_t kMatrix = 14, kCompressed = 15, kComplexFlag = 0x800;
constexpr size_t kMostVariables = 4096;
constexpr int64_t kMostText = 32 << 20;

/// The numbers of MATLAB's types mi...; nothing for others.
std::optional<ElementType> TypeOfElement(uint32_t type) {
  switch (type) {
    case 1: return ElementType{Kind::kSigned, 1};
    case 2:
    case 16: return ElementType{Kind::kUnsigned, 1};
    case 3: return ElementType{Kind::kSigned, 2};
    case 4:
    case 17: return ElementType{Kind::kUnsigned, 2};
    case 5: return ElementType{Kind::kSigned, 4};
    case 6: return ElementType{Kind::kUnsigned, 4};
    case 7: return ElementType{Kind::kFloat, 4};
    case 9: return ElementType{Kind::kFloat, 8};
    case 12: return ElementType{Kind::kSigned, 8};
    case 13: return ElementType{Kind::kUnsigned, 8};
    default: return std::nullopt;
  }
}
/// The numbers of MATLAB's classes mx...; nothing for cells, structures, text, sparse matrices.
std::optional<ElementType> TypeOfClass(uint32_t of) {
  switch (of) {
    case 6: return ElementType{Kind::kFloat, 8};
    case 7: return ElementType{Kind::kFloat, 4};
    case 8: return ElementType{Kind::kSigned, 1};
    case 9: return ElementType{Kind::kUnsigned, 1};
    case 10: return ElementType{Kind::kSigned, 2};
    case 11: return ElementType{Kind::kUnsigned, 2};
    case 12: return ElementType{Kind::kSigned, 4};
    case 13: return ElementType{Kind::kUnsigned, 4};
    case 14: return ElementType{Kind::kSigned, 8};
    case 15: return ElementType{Kind::kUnsigned, 8};
    default: return std::nullopt;
  }
}

/// A tag: type and size of the data at `data`; `next` is behind it and its padding.
struct Element {
  uint32_t type = 0;
  int64_t bytes = 0, data = 0, next = 0;
};

/// A variable; the places are in `bytes`, which is the file or what a part of it decompresses to.
struct Variable {
  std::shared_ptr<ByteSource> bytes;
  std::string name;
  uint32_t array_class = 0;
  bool complex = false;
  std::vector<int64_t> extents;  // fastest first
  Element real, imaginary;
  int64_t packed_at = -1, packed_bytes = 0;  // in the file, if it is compressed
};

class MatFile {
 public:
  MatFile(std::shared_ptr<ByteSource> file, bool big_endian)
      : file_(std::move(file)), big_endian_(big_endian) {}

  /// Source: MathWorks, MAT-File Format, Level 5.
  absl::Status List(std::vector<Variable>* out) {
    for (int64_t at = 128; at < file_->size();) {
      if (file_->size() - at < 8) return Damaged(at, "ends within a tag");
      OCTAVO_ASSIGN_OR_RETURN(Element element, ReadTag(*file_, at));
      if (element.bytes > file_->size() - element.data)
        return Damaged(at, absl::StrCat("has ", element.bytes, " bytes; the file is shorter"));
      if (out->size() >= kMostVariables) return Damaged(at, "is one of too many variables");
      if (element.type == kMatrix) {
        Variable variable{.bytes = file_};
        OCTAVO_RETURN_IF_ERROR(ReadMatrix(element, &variable));
        out->push_back(std::move(variable));
      } else if (element.type == kCompressed) {
        Variable variable{.packed_at = element.data, .packed_bytes = element.bytes};
        variable.bytes = InflatedBytes(file_, InflateWrap::kZlib, element.data, element.bytes, -1,
                                       Trailing::kIgnore);
        OCTAVO_ASSIGN_OR_RETURN(const Element inner, ReadTag(*variable.bytes, 0));
        if (inner.type == kMatrix) {
          OCTAVO_RETURN_IF_ERROR(ReadMatrix(inner, &variable));
          out->push_back(std::move(variable));
        }
      }
      // Compressed elements are not padded.
      at = element.type == kCompressed ? element.data + element.bytes : element.next;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Text(const Variable& variable) const {
    const Element& data = variable.real;
    if (variable.array_class != 4 || data.bytes > kMostText ||
        (data.type != 16 && data.type != 2 && data.type != 1))
      return Damaged(data.data, "is no text of bytes");
    std::string text(static_cast<size_t>(data.bytes), '\0');
    OCTAVO_RETURN_IF_ERROR(variable.bytes->ReadAt(data.data, text.data(), text.size()));
    return text;
  }

 private:
  absl::Status Damaged(int64_t at, absl::string_view what) const {
    return DamagedFile(file_->name(), absl::StrCat("the element at ", at), what);
  }

  uint32_t Word(const char* at) const {
    uint32_t value = 0;
    std::memcpy(&value, at, 4);
    return big_endian_ ? __builtin_bswap32(value) : value;
  }

  /// Small elements have type, size and data in 8 bytes.
  absl::StatusOr<Element> ReadTag(ByteSource& bytes, int64_t at) const {
    char tag[8];
    OCTAVO_RETURN_IF_ERROR(bytes.ReadAt(at, tag, 8));
    const uint32_t first = Word(tag);
    if ((first >> 16) != 0) {
      const int64_t size = first >> 16;
      if (size > 4) return Damaged(at, absl::StrCat("is small, with ", size, " bytes"));
      return Element{.type = first & 0xFFFF, .bytes = size, .data = at + 4, .next = at + 8};
    }
    const int64_t size = Word(tag + 4);
    return Element{
        .type = first, .bytes = size, .data = at + 8, .next = at + 8 + (size + 7) / 8 * 8};
  }

  absl::Status ReadMatrix(const Element& matrix, Variable* out) const {
    ByteSource& bytes = *out->bytes;
    const int64_t end = matrix.data + matrix.bytes;
    int64_t at = matrix.data;
    const auto part = [&]() -> absl::StatusOr<Element> {
      OCTAVO_ASSIGN_OR_RETURN(const Element element, ReadTag(bytes, at));
      if (element.data > end || element.bytes > end - element.data)
        return Damaged(at, "reaches behind its matrix");
      at = element.next;
      return element;
    };
    OCTAVO_ASSIGN_OR_RETURN(const Element flags, part());
    char words[8];
    if (flags.type != 6 || flags.bytes != 8) return Damaged(flags.data, "has no array flags");
    OCTAVO_RETURN_IF_ERROR(bytes.ReadAt(flags.data, words, 8));
    out->array_class = Word(words) & 255;
    out->complex = (Word(words) & kComplexFlag) != 0;
    OCTAVO_ASSIGN_OR_RETURN(const Element extents, part());
    if (extents.type != 5 || extents.bytes % 4 != 0 || extents.bytes < 4 || extents.bytes > 64)
      return Damaged(extents.data, "has no extents");
    std::string list(static_cast<size_t>(extents.bytes), '\0');
    OCTAVO_RETURN_IF_ERROR(bytes.ReadAt(extents.data, list.data(), list.size()));
    for (size_t i = 0; i < list.size(); i += 4)
      out->extents.push_back(static_cast<int32_t>(Word(list.data() + i)));
    OCTAVO_ASSIGN_OR_RETURN(const Element name, part());
    if (name.type != 1 || name.bytes > 255) return Damaged(name.data, "has no name");
    out->name.resize(static_cast<size_t>(name.bytes));
    OCTAVO_RETURN_IF_ERROR(bytes.ReadAt(name.data, out->name.data(), out->name.size()));
    if (!TypeOfClass(out->array_class).has_value() && out->array_class != 4)
      return absl::OkStatus();  // cells and the like are known by their name alone
    OCTAVO_ASSIGN_OR_RETURN(out->real, part());
    if (out->complex) {
      OCTAVO_ASSIGN_OR_RETURN(out->imaginary, part());
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<ByteSource> file_;
  const bool big_endian_;
};

/// Complex numbers whose real and imaginary parts lie apart.
class SplitComplexInput final : public VolumeInput {
 public:
  SplitComplexInput(VolumeInputInfo info, std::shared_ptr<ByteSource> real,
                    std::shared_ptr<ByteSource> imaginary, FlatLayout layout)
      : VolumeInput(std::move(info)), layout_(std::move(layout)) {
    bytes_[0] = std::move(real);
    bytes_[1] = std::move(imaginary);
  }

 private:
  absl::Status ReadInside(const base::ArrayBox& box, char* out) override {
    // A row of the first axis at a time bounds the memory.
    base::ArrayBox row = box;
    row.count[0] = 1;
    const int64_t count = ElementsOf(row.count), size = layout_.type.bytes;
    std::vector<char> part(static_cast<size_t>(count * size));
    for (int64_t i = 0; i < box.count[0]; ++i, ++row.start[0], out += 2 * count * size) {
      for (int k = 0; k < 2; ++k) {
        OCTAVO_RETURN_IF_ERROR(ReadFlat(*bytes_[k], layout_, row, part.data(), stop_));
        for (int64_t j = 0; j < count; ++j)
          std::memcpy(out + (2 * j + k) * size, part.data() + j * size, static_cast<size_t>(size));
      }
    }
    return absl::OkStatus();
  }

  std::shared_ptr<ByteSource> bytes_[2];
  const FlatLayout layout_;
};

}  // namespace

/// A variable of MATLAB v5 (`save -v6` and `-v7`): `volume` where a commit wrote it, else the one
/// that options.dataset names. MATLAB's first index is its fastest: the axes are in reverse.
OpenedVolume OpenMatlabInput(OpenedInput input, const VolumeInputOptions& options) {
  if (input.head.size() < 128)
    return DamagedFile(input.name, "the file", "is shorter than MATLAB's head");
  const bool big_endian = input.head.substr(126, 2) == "MI";
  MatFile file(input.bytes, big_endian);
  std::vector<Variable> variables;
  OCTAVO_RETURN_IF_ERROR(file.List(&variables));
  const auto find = [&](const std::string& name) {
    return std::find_if(variables.begin(), variables.end(),
                        [&](const Variable& one) { return one.name == name; });
  };
  const auto own = find("octavo");
  const std::string wanted = !options.dataset.empty() ? options.dataset
                             : own != variables.end() ? "volume"
                                                      : "";
  std::vector<std::string> names;
  for (const Variable& one : variables) {
    if (names.size() < 32) names.push_back(one.name);
  }
  const auto found = find(wanted);
  if (wanted.empty() || found == variables.end())
    return InvalidField(FieldOf(options, "dataset"),
                        absl::StrCat("is '", wanted, "'; allowed are the variables of ", input.name,
                                     ": ", absl::StrJoin(names, ", ")));
  const Variable& variable = *found;
  const auto of_class = TypeOfClass(variable.array_class),
             stored = TypeOfElement(variable.real.type);
  if (!of_class.has_value() || !stored.has_value())
    return UnsupportedFile(
        input.name, variable.name,
        absl::StrCat("of MATLAB's class ", variable.array_class, ", type ", variable.real.type),
        "arrays of numbers");
  // MATLAB may store whole numbers of a double array in a narrower type.
  OCTAVO_RETURN_IF_ERROR(CheckInputShape(input.name, variable.name, variable.extents));
  const int64_t bytes = ElementsOf(variable.extents) * stored->bytes;
  if (variable.real.bytes != bytes ||
      (variable.complex &&
       (variable.imaginary.bytes != bytes || variable.imaginary.type != variable.real.type)))
    return DamagedFile(
        input.name, variable.name,
        absl::StrCat("has ", variable.real.bytes, " bytes; its extents ask for ", bytes));
  if (variable.complex && stored->kind != Kind::kFloat)
    return UnsupportedFile(input.name, variable.name, "complex integers", "complex floats");
  VolumeInputInfo info{
      .format = InputFormat::kMatlab,
      .kind = absl::StrCat("MATLAB v5", variable.packed_at >= 0 ? ", compressed" : "",
                           big_endian ? ", big-endian" : ""),
      .type = *stored};
  for (size_t i = variable.extents.size(); i-- > 0;)
    info.axes.push_back({.extent = variable.extents[i]});
  const FlatLayout layout{.offset = variable.real.data,
                          .type = *stored,
                          .big_endian = big_endian,
                          .shape = info.shape(),
                          .file_order = COrder(info.axes.size())};
  std::shared_ptr<ByteSource> source = variable.bytes, imaginary = variable.bytes;
  if (variable.packed_at >= 0)
    source = imaginary = InflatedBytes(input.bytes, InflateWrap::kZlib, variable.packed_at,
                                       variable.packed_bytes, -1, Trailing::kIgnore);
  if (variable.complex) info.type = {Kind::kComplex, 2 * stored->bytes};
  if (wanted == "volume" && own != variables.end()) {
    OCTAVO_ASSIGN_OR_RETURN(const std::string text, file.Text(*own));
    OCTAVO_ASSIGN_OR_RETURN(VolumeMeta meta, ParseOwnMeta(input.name, "the text 'octavo'", text));
    OCTAVO_RETURN_IF_ERROR(AdoptMeta(input.name, std::move(meta), COrder(3), &info));
  }
  if (!variable.complex)
    return std::make_unique<FlatInput>(std::move(info), std::move(source), layout);
  info.file_order = layout.file_order;
  info.chunk.assign(info.axes.size(), 1);
  info.sequential = source->sequential();
  info.read_memory_bytes =
      kFlatReadBytes + bytes / info.axes[0].extent + (source->sequential() ? 1 << 20 : 0);
  return std::make_unique<SplitComplexInput>(
      std::move(info), std::move(source),
      BytesFrom(std::move(imaginary), variable.imaginary.data - variable.real.data), layout);
}

}  // namespace octavo::storage

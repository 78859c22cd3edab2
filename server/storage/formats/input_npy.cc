#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/status.h"
#include "server/storage/formats/flat_array.h"
#include "server/storage/formats/format_inputs.h"
#include "server/storage/io/file_errors.h"

namespace octavo::storage {
namespace {

constexpr size_t kMostHeader = 1 << 20;

/// What the header's dictionary says.
struct NpyDict {
  std::string descr;
  bool fortran = false;
  std::vector<int64_t> shape;
};

/// Parses the header: a literal of Python, a dictionary with the keys descr, fortran_order and
/// shape. Source: NumPy NEP 1.
class NpyParser {
 public:
  NpyParser(const std::string& name, absl::string_view text) : name_(name), text_(text) {}

  absl::StatusOr<NpyDict> Parse() {
    NpyDict out;
    bool descr = false, order = false, shape = false;
    if (!Take('{')) return Damaged("does not begin with '{'");
    while (!Take('}')) {
      OCTAVO_ASSIGN_OR_RETURN(const std::string key, Text());
      if (!Take(':')) return Damaged(absl::StrCat("has no ':' after '", key, "'"));
      bool* const seen = key == "descr"           ? &descr
                         : key == "fortran_order" ? &order
                         : key == "shape"         ? &shape
                                                  : nullptr;
      if (seen == nullptr || *seen)
        return Damaged(absl::StrCat("has the key '", key, "'", seen == nullptr ? "" : " twice"));
      *seen = true;
      if (key == "descr") {
        if (Peek() == '[')
          return UnsupportedFile(name_, "descr", "a structured type", "numbers and bool");
        OCTAVO_ASSIGN_OR_RETURN(out.descr, Text());
      } else if (key == "shape") {
        OCTAVO_ASSIGN_OR_RETURN(out.shape, Shape());
      } else if (TakeWord("True")) {
        out.fortran = true;
      } else if (!TakeWord("False")) {
        return Damaged("has a fortran_order that is neither True nor False");
      }
      if (!Take(',') && Peek() != '}') return Damaged(absl::StrCat("goes on after '", key, "'"));
    }
    if (!descr || !order || !shape) return Damaged("lacks descr, fortran_order or shape");
    if (Peek() != '\0') return Damaged("goes on after '}'");
    return out;
  }

 private:
  absl::Status Damaged(absl::string_view what) { return DamagedFile(name_, "the header", what); }

  char Peek() {
    while (at_ < text_.size() && absl::ascii_isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool Take(char c) {
    if (Peek() != c) return false;
    ++at_;
    return true;
  }
  bool TakeWord(absl::string_view word) {
    (void)Peek();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  absl::StatusOr<std::string> Text() {
    const char quote = Peek();
    if (quote != '\'' && quote != '"') return Damaged("has no text where one belongs");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == absl::string_view::npos) return Damaged("has a text without an end");
    std::string out(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return out;
  }
  absl::StatusOr<std::vector<int64_t>> Shape() {
    std::vector<int64_t> shape;
    if (!Take('(')) return Damaged("has a shape that is no tuple");
    while (!Take(')')) {
      (void)Peek();
      const size_t begin = at_;
      while (at_ < text_.size() && absl::ascii_isdigit(static_cast<unsigned char>(text_[at_])))
        ++at_;
      int64_t extent = 0;
      if (!absl::SimpleAtoi(text_.substr(begin, at_ - begin), &extent))
        return Damaged("has a shape with something else than numbers");
      (void)TakeWord("L");  // Python 2
      shape.push_back(extent);
      if (!Take(',') && Peek() != ')') return Damaged("has a shape without an end");
    }
    return shape;
  }

  const std::string& name_;
  const absl::string_view text_;
  size_t at_ = 0;
};

/// "<f4" and its kin. Nothing for other types.
std::optional<ElementType> TypeOfDescr(const std::string& descr, bool* big_endian) {
  if (descr.size() < 3) return std::nullopt;
  int64_t bytes = 0;
  if (!absl::SimpleAtoi(descr.substr(2), &bytes) || bytes > 16) return std::nullopt;
  *big_endian = descr[0] == '>';
  if (descr[0] != '<' && descr[0] != '>' && descr[0] != '=' && (descr[0] != '|' || bytes != 1))
    return std::nullopt;
  switch (descr[1]) {
    case 'u': return CheckedElementType(ElementType::Kind::kUnsigned, bytes);
    case 'i': return CheckedElementType(ElementType::Kind::kSigned, bytes);
    case 'f': return CheckedElementType(ElementType::Kind::kFloat, bytes);
    case 'c': return CheckedElementType(ElementType::Kind::kComplex, bytes);
    case 'b': return bytes == 1 ? std::optional(ElementType{}) : std::nullopt;
    default: return std::nullopt;
  }
}

}  // namespace

OpenedVolume OpenNpyInput(OpenedInput input, const VolumeInputOptions& options) {
  const std::string& name = input.name;
  const auto byte = [&](size_t i) {
    return static_cast<size_t>(static_cast<uint8_t>(input.head[i]));
  };
  if (input.head.size() < 12 || input.head.substr(0, 6) != "\x93NUMPY")
    return DamagedFile(name, "the file", "has no head of NumPy");
  const size_t version = byte(6), start = version == 1 ? 10 : 12;
  if (version < 1 || version > 3)
    return UnsupportedFile(name, "the version of the header", version, "1, 2, 3");
  const size_t length =
      byte(8) | byte(9) << 8 | (version == 1 ? 0 : byte(10) << 16 | byte(11) << 24);
  if (length > kMostHeader)
    return UnsupportedFile(name, "the header", absl::StrCat(length, " bytes long"),
                           absl::StrCat("up to ", kMostHeader));
  std::string text(length, '\0');
  OCTAVO_RETURN_IF_ERROR(input.bytes->ReadAt(static_cast<int64_t>(start), text.data(), length));
  OCTAVO_ASSIGN_OR_RETURN(const NpyDict dict, NpyParser(name, text).Parse());
  FlatLayout layout{.offset = static_cast<int64_t>(start + length), .shape = dict.shape};
  const auto type = TypeOfDescr(dict.descr, &layout.big_endian);
  if (!type.has_value())
    return UnsupportedFile(name, "descr", absl::StrCat("'", dict.descr, "'"),
                           "integers of 1, 2, 4 and 8 bytes, floats of 2, 4 and 8, complex of 8 "
                           "and 16, and bool, in either byte order");
  layout.type = *type;
  OCTAVO_RETURN_IF_ERROR(CheckInputShape(name, "shape", dict.shape));
  layout.file_order = dict.fortran ? FortranOrder(dict.shape.size()) : COrder(dict.shape.size());
  VolumeInputInfo info{
      .format = InputFormat::kNpy,
      .kind = absl::StrCat("NumPy ", version, dict.fortran ? ", Fortran order" : "",
                           layout.big_endian ? ", big-endian" : ""),
      .type = *type};
  for (const int64_t extent : dict.shape) info.axes.push_back({.extent = extent});
  const int64_t wanted = ElementsOf(dict.shape) * type->bytes,
                there = input.bytes->size() - layout.offset;
  if (there < wanted)
    return DamagedFile(name, "the file",
                       absl::StrCat("ends ", wanted - there, " bytes too early: the shape (",
                                    absl::StrJoin(dict.shape, ", "), ") of ", type->Name(),
                                    " takes ", wanted, " bytes, there are ", there));
  if (there > wanted)
    info.notes.push_back(absl::StrCat(there - wanted, " bytes after the array are left out"));
  OCTAVO_ASSIGN_OR_RETURN(auto side, ReadSideMeta(input, options));
  if (side.has_value())
    OCTAVO_RETURN_IF_ERROR(AdoptMeta(name, std::move(side->meta), COrder(3), &info));
  return std::make_unique<FlatInput>(std::move(info), input.bytes, std::move(layout));
}

}  // namespace octavo::storage

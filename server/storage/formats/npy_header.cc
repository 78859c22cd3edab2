#include "server/storage/formats/npy_header.h"

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "gpu/base/status.h"

namespace octavo::storage {
namespace {

absl::Status Bad(absl::string_view what) { return absl::InvalidArgumentError(what); }

absl::Status CannotReplay(absl::string_view name, absl::string_view what) {
  return InvalidField("replay.path",
                      absl::StrCat("'", name, "' is no .npy file that can be replayed: ", what));
}

// The text after 'key': in the header's dictionary.
absl::StatusOr<absl::string_view> After(absl::string_view dict, absl::string_view key) {
  const size_t at = dict.find(absl::StrCat("'", key, "'"));
  if (at == absl::string_view::npos) return Bad(absl::StrCat("its header has no '", key, "'"));
  dict.remove_prefix(at + key.size() + 2);
  const size_t colon = dict.find(':');
  if (colon == absl::string_view::npos) return Bad("its header is damaged");
  return absl::StripLeadingAsciiWhitespace(dict.substr(colon + 1));
}

// The type as the header has it: '<u2' in its quotes, or the begin of the list of a structured
// type.
absl::string_view TypeIn(absl::string_view descr) {
  const size_t quote = absl::StartsWith(descr, "'") ? descr.find('\'', 1) : absl::string_view::npos;
  return quote == absl::string_view::npos ? descr.substr(0, descr.find(','))
                                          : descr.substr(0, quote + 1);
}

}  // namespace

absl::StatusOr<NpyText> ParseNpyText(const std::string& head) {
  if (head.size() < 12 || !absl::StartsWith(head, "\x93NUMPY")) return Bad("it has no NumPy magic");
  const auto byte = [&](size_t i) {
    return static_cast<size_t>(static_cast<unsigned char>(head[i]));
  };
  const size_t version = byte(6);
  if (version < 1 || version > 3)
    return Bad(absl::StrCat("its format version is ", version, "; allowed 1 to 3"));
  const size_t start = version == 1 ? 10 : 12;
  const size_t length =
      byte(8) | byte(9) << 8 | (version == 1 ? 0 : byte(10) << 16 | byte(11) << 24);
  if (start + length > head.size())
    return Bad(absl::StrCat("its header has ", length, " bytes, and the file ends before"));
  const absl::string_view dict = absl::string_view(head).substr(start, length);

  NpyText out{.descr = {}, .shape = {}, .data_offset = static_cast<int64_t>(start + length)};
  OCTAVO_ASSIGN_OR_RETURN(const absl::string_view descr, After(dict, "descr"));
  out.descr = std::string(TypeIn(descr));
  OCTAVO_ASSIGN_OR_RETURN(const absl::string_view order, After(dict, "fortran_order"));
  out.fortran_order = !absl::StartsWith(order, "False");
  OCTAVO_ASSIGN_OR_RETURN(absl::string_view shape, After(dict, "shape"));
  const size_t close = shape.find(')');
  if (!absl::ConsumePrefix(&shape, "(") || close == absl::string_view::npos)
    return Bad("its shape is damaged");
  int64_t elements = 1;
  for (const absl::string_view part :
       absl::StrSplit(shape.substr(0, close - 1), ',', absl::SkipWhitespace())) {
    int64_t extent = 0;
    if (!absl::SimpleAtoi(part, &extent) || extent < 1 || extent > (int64_t{1} << 50) / elements)
      return Bad("its shape is damaged");
    elements *= extent;
    out.shape.push_back(extent);
  }
  return out;
}

absl::StatusOr<NpyHeader> ParseNpyHeader(const std::string& head, const std::string& name) {
  auto text = ParseNpyText(head);
  if (!text.ok()) return CannotReplay(name, text.status().message());
  NpyHeader header{.shape = std::move(text->shape), .data_offset = text->data_offset};
  bool known = false;
  for (const DType dtype : {DType::kU8, DType::kU16, DType::kI16, DType::kF32}) {
    if (text->descr != absl::StrCat("'", Info(dtype).numpy, "'")) continue;
    header.dtype = dtype;
    known = true;
  }
  if (!known)
    return CannotReplay(name,
                        absl::StrCat("its type ", text->descr, "; allowed |u1, <u2, <i2, <f4"));
  if (text->fortran_order)
    return CannotReplay(name, "its array is in Fortran order; allowed is C order");
  if (header.shape.empty()) return CannotReplay(name, "it holds a single number");
  return header;
}

}  // namespace octavo::storage

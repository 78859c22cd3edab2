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

absl::Status BadFile(absl::string_view name, absl::string_view what) {
  return InvalidField("replay.path", absl::StrCat("'", name, "' is no .npy file that can be replayed: ", what));
}

// The text after 'key': in the header's dictionary of the file `name`.
absl::StatusOr<absl::string_view> After(absl::string_view name, absl::string_view dict, absl::string_view key) {
  const size_t at = dict.find(absl::StrCat("'", key, "'"));
  if (at == absl::string_view::npos) return BadFile(name, absl::StrCat("its header has no '", key, "'"));
  dict.remove_prefix(at + key.size() + 2);
  const size_t colon = dict.find(':');
  if (colon == absl::string_view::npos) return BadFile(name, "its header is damaged");
  return absl::StripLeadingAsciiWhitespace(dict.substr(colon + 1));
}

}  // namespace

absl::StatusOr<NpyHeader> ParseNpyHeader(const std::string& head, const std::string& name) {
  const auto bad = [&](absl::string_view what) { return BadFile(name, what); };
  if (head.size() < 12 || !absl::StartsWith(head, "\x93NUMPY")) return bad("it has no NumPy magic");
  const auto byte = [&](size_t i) {
    return static_cast<size_t>(static_cast<unsigned char>(head[i]));
  };
  const size_t version = byte(6);
  if (version < 1 || version > 3) return bad(absl::StrCat("its format version is ", version, "; allowed 1 to 3"));
  const size_t start = version == 1 ? 10 : 12;
  const size_t length =
      byte(8) | byte(9) << 8 | (version == 1 ? 0 : byte(10) << 16 | byte(11) << 24);
  if (start + length > head.size())
    return bad(absl::StrCat("its header should have ", length, " bytes, and the file ends before"));
  const absl::string_view dict = absl::string_view(head).substr(start, length);

  NpyHeader header;
  header.data_offset = static_cast<int64_t>(start + length);
  OCTAVO_ASSIGN_OR_RETURN(const absl::string_view descr, After(name, dict, "descr"));
  bool known = false;
  for (const DType dtype : {DType::kU8, DType::kU16, DType::kI16, DType::kF32}) {
    if (absl::StartsWith(descr, absl::StrCat("'", Info(dtype).numpy, "'"))) {
      header.dtype = dtype;
      known = true;
    }
  }
  if (!known)
    return bad(absl::StrCat("its type ", descr.substr(0, descr.find(',')),
                            "; allowed |u1, <u2, <i2, <f4"));
  OCTAVO_ASSIGN_OR_RETURN(const absl::string_view order, After(name, dict, "fortran_order"));
  if (!absl::StartsWith(order, "False")) return bad("its array is in Fortran order; allowed is C order");
  OCTAVO_ASSIGN_OR_RETURN(absl::string_view shape, After(name, dict, "shape"));
  const size_t close = shape.find(')');
  if (!absl::ConsumePrefix(&shape, "(") || close == absl::string_view::npos)
    return bad("its shape is damaged");
  int64_t elements = 1;
  for (const absl::string_view part :
       absl::StrSplit(shape.substr(0, close - 1), ',', absl::SkipWhitespace())) {
    int64_t extent = 0;
    if (!absl::SimpleAtoi(part, &extent) || extent < 1 || extent > (int64_t{1} << 50) / elements)
      return bad("its shape is damaged");
    elements *= extent;
    header.shape.push_back(extent);
  }
  if (header.shape.empty()) return bad("it holds a single number");
  return header;
}

}  // namespace octavo::storage

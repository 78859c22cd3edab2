#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "gpu/base/status.h"
#include "server/storage/formats/flat_array.h"
#include "server/storage/formats/format_inputs.h"
#include "server/storage/io/file_errors.h"

namespace octavo::storage {
namespace {

constexpr int64_t kMostHeader = 32 << 20;  // the metadata of a commit are in it

struct NrrdHead {
  std::map<std::string, std::string> fields, pairs;
  int64_t bytes = 0;  // up to and with the empty line; detached: all of the file
  bool ends = false;  // there is an empty line

  std::string Field(const std::string& name) const {
    const auto found = fields.find(name);
    return found == fields.end() ? "" : found->second;
  }
};

/// Source: https://teem.sourceforge.net/nrrd/format.html
absl::StatusOr<NrrdHead> ParseHead(ByteSource& bytes) {
  const std::string& name = bytes.name();
  std::string text;
  NrrdHead head;
  size_t begin = 0;
  bool first = true;
  for (;;) {
    size_t end = text.find('\n', begin);
    if (end == std::string::npos) {
      const int64_t there = std::ssize(text),
                    part = std::min<int64_t>({64 << 10, bytes.size() - there, kMostHeader - there});
      if (part > 0) {
        text.resize(static_cast<size_t>(there + part));
        OCTAVO_RETURN_IF_ERROR(bytes.ReadAt(there, text.data() + there, static_cast<size_t>(part)));
        continue;
      }
      if (there == kMostHeader)
        return UnsupportedFile(name, "the header",
                               absl::StrCat("longer than ", kMostHeader, " bytes"),
                               "shorter headers");
      if (begin == text.size()) break;
      end = text.size();
    }
    absl::string_view line = absl::string_view(text).substr(begin, end - begin);
    if (absl::EndsWith(line, "\r")) line.remove_suffix(1);
    begin = std::min(end + 1, text.size());
    if (line.empty()) {
      head.ends = true;
      break;
    }
    if (first) {
      first = false;
      if (line.size() != 8 || line[7] < '1' || line[7] > '5')
        return UnsupportedFile(name, "the version", absl::StrCat("'", line.substr(0, 20), "'"),
                               "NRRD0001 to NRRD0005");
      continue;
    }
    if (line[0] == '#') continue;
    const size_t field = line.find(": "), pair = line.find(":=");
    if (pair != absl::string_view::npos && (field == absl::string_view::npos || pair < field)) {
      std::string value;
      const absl::string_view raw = line.substr(pair + 2);
      for (size_t i = 0; i < raw.size(); ++i) {
        const bool escape = raw[i] == '\\' && i + 1 < raw.size();
        if (escape) ++i;
        value += escape && raw[i] == 'n' ? '\n' : raw[i];
      }
      head.pairs.insert_or_assign(std::string(line.substr(0, pair)), std::move(value));
    } else if (field != absl::string_view::npos) {
      std::string key = absl::AsciiStrToLower(line.substr(0, field));
      std::erase(key, ' ');  // "space directions", "datafile" and "data file"
      if (!head.fields.emplace(key, std::string(absl::StripAsciiWhitespace(line.substr(field + 2))))
               .second)
        return DamagedFile(name, absl::StrCat("the field '", key, "'"), "is there twice");
    } else {
      return DamagedFile(name, "the header",
                         absl::StrCat("has a line that is no field: '", line.substr(0, 60), "'"));
    }
  }
  head.bytes = static_cast<int64_t>(begin);
  return head;
}

std::optional<ElementType> TypeOf(const std::string& word) {
  using Kind = ElementType::Kind;
  static const std::map<std::string, ElementType> types = [] {
    std::map<std::string, ElementType> out;
    const auto add = [&](std::initializer_list<const char*> names, ElementType type) {
      for (const char* one : names) out[one] = type;
    };
    add({"signed char", "int8", "int8_t"}, {Kind::kSigned, 1});
    add({"uchar", "unsigned char", "uint8", "uint8_t"}, {Kind::kUnsigned, 1});
    add({"short", "short int", "signed short", "signed short int", "int16", "int16_t"},
        {Kind::kSigned, 2});
    add({"ushort", "unsigned short", "unsigned short int", "uint16", "uint16_t"},
        {Kind::kUnsigned, 2});
    add({"int", "signed int", "int32", "int32_t"}, {Kind::kSigned, 4});
    add({"uint", "unsigned int", "uint32", "uint32_t"}, {Kind::kUnsigned, 4});
    add({"longlong", "long long", "long long int", "signed long long", "signed long long int",
         "int64", "int64_t"},
        {Kind::kSigned, 8});
    add({"ulonglong", "unsigned long long", "unsigned long long int", "uint64", "uint64_t"},
        {Kind::kUnsigned, 8});
    add({"float"}, {Kind::kFloat, 4});
    add({"double"}, {Kind::kFloat, 8});
    return out;
  }();
  const auto found = types.find(absl::AsciiStrToLower(word));
  return found == types.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::string> Words(const std::string& text) {
  return absl::StrSplit(text, absl::ByAnyChar(" \t"), absl::SkipWhitespace());
}

/// Quoted words: "\"x\" \"y\"".
std::vector<std::string> Quoted(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = text.find('"'); at != std::string::npos; at = text.find('"', at)) {
    std::string word;
    for (++at; at < text.size() && text[at] != '"'; ++at) {
      if (text[at] == '\\' && at + 1 < text.size()) ++at;
      word += text[at];
    }
    out.push_back(std::move(word));
    if (at < text.size()) ++at;
  }
  return out;
}

/// "(0,1,0) none (2, 0,0)": a vector for each axis, empty for none.
std::optional<std::vector<std::vector<double>>> Vectors(const std::string& text, size_t dimension) {
  std::vector<std::vector<double>> out;
  for (size_t at = 0; at < text.size();) {
    if (absl::ascii_isspace(static_cast<unsigned char>(text[at]))) {
      ++at;
    } else if (text.compare(at, 4, "none") == 0) {
      out.emplace_back();
      at += 4;
    } else {
      const size_t close = text.find(')', at);
      if (text[at] != '(' || close == std::string::npos) return std::nullopt;
      std::vector<double> vector;
      for (const auto part :
           absl::StrSplit(absl::string_view(text).substr(at + 1, close - at - 1), ',')) {
        double value = 0;
        if (!absl::SimpleAtod(absl::StripAsciiWhitespace(part), &value)) return std::nullopt;
        vector.push_back(value);
      }
      if (vector.size() != dimension) return std::nullopt;
      out.push_back(std::move(vector));
      at = close + 1;
    }
  }
  return out;
}

/// Dimension of a named space; 0 for names that do not exist.
size_t DimensionOfSpace(const std::string& space) {
  const std::string lower = absl::AsciiStrToLower(space);
  if (absl::EndsWith(lower, "-time") || absl::EndsWith(lower, "t")) return 4;
  return lower.empty() ? 0 : 3;
}

/// Names, units and spacings of the axes, fastest first.
absl::Status SetAxes(const std::string& name, const NrrdHead& head,
                     const std::vector<int64_t>& sizes, VolumeInputInfo* info) {
  std::vector<InputAxis> axes;
  for (const int64_t size : sizes) axes.push_back({.extent = size});
  const auto each = [&](const char* field, size_t count) -> absl::Status {
    if (count == 0 || count == axes.size()) return absl::OkStatus();
    return DamagedFile(name, absl::StrCat("the field '", field, "'"),
                       absl::StrCat("has ", count, " values for ", axes.size(), " axes"));
  };
  const std::vector<std::string> labels = Quoted(head.Field("labels")),
                                 units = Quoted(head.Field("units")),
                                 kinds = Words(head.Field("kinds")),
                                 spacings = Words(head.Field("spacings"));
  OCTAVO_RETURN_IF_ERROR(each("labels", labels.size()));
  OCTAVO_RETURN_IF_ERROR(each("units", units.size()));
  OCTAVO_RETURN_IF_ERROR(each("kinds", kinds.size()));
  OCTAVO_RETURN_IF_ERROR(each("spacings", spacings.size()));
  size_t dimension = DimensionOfSpace(head.Field("space"));
  if (const std::string text = head.Field("spacedimension");
      !text.empty() && (!absl::SimpleAtoi(text, &dimension) || dimension < 1 || dimension > 16))
    return DamagedFile(name, "the field 'space dimension'", absl::StrCat("is '", text, "'"));
  const auto directions = Vectors(head.Field("spacedirections"), dimension);
  if (!directions.has_value())
    return DamagedFile(name, "the field 'space directions'",
                       absl::StrCat("is no list of vectors of ", dimension, " numbers"));
  OCTAVO_RETURN_IF_ERROR(each("space directions", directions->size()));
  const std::vector<std::string> space_units = Quoted(head.Field("spaceunits"));
  bool oblique = false;
  for (size_t i = 0; i < axes.size(); ++i) {
    InputAxis& axis = axes[i];
    const std::string kind = i < kinds.size() ? absl::AsciiStrToLower(kinds[i]) : "";
    if (i < labels.size()) axis.name = labels[i];
    if (kind == "time" && axis.name.empty()) axis.name = "t";
    if (!kind.empty() && kind != "domain" && kind != "space" && kind != "time" && kind != "???" &&
        kind != "none" && axis.name.empty())
      axis.name = "c";  // the parts of a value: vectors, colours, lists
    const std::string place = absl::StrCat("spacings[", i, "]");
    double spacing = 0;
    if (i < spacings.size() && absl::SimpleAtod(spacings[i], &spacing) && !std::isnan(spacing))
      SetSpacing(spacing, i < units.size() ? units[i] : "", place, &axis, &info->notes);
    if (i >= directions->size() || (*directions)[i].empty()) continue;
    const std::vector<double>& vector = (*directions)[i];
    double sum = 0;
    size_t most = 0;
    for (size_t d = 0; d < vector.size(); ++d) {
      sum += std::abs(vector[d]);
      if (std::abs(vector[d]) > std::abs(vector[most])) most = d;
    }
    const double length =
        std::sqrt(std::inner_product(vector.begin(), vector.end(), vector.begin(), 0.0));
    const bool along = std::isfinite(sum) && std::abs(vector[most]) >= 0.9999 * sum && most < 3;
    if (along) {
      if (axis.name.empty()) axis.name = std::string(1, "xyz"[most]);
      if (vector[most] < 0)
        info->notes.push_back(absl::StrCat("axis ", i, " runs against ",
                                           std::string(1, "xyz"[most]),
                                           " (space directions); the order of samples is kept"));
    } else {
      oblique = true;
    }
    // The unit of an oblique axis is known only if all axes of the space share it.
    const bool one_unit = std::adjacent_find(space_units.begin(), space_units.end(),
                                             std::not_equal_to<>()) == space_units.end();
    const std::string unit =
        most < space_units.size() && (along || one_unit) ? space_units[most] : "";
    SetSpacing(length, unit, absl::StrCat("space directions[", i, "]"), &axis, &info->notes);
  }
  if (oblique)
    info->notes.push_back(
        "the axes are oblique (space directions); their lengths are read, the "
        "rotation is not applied");
  // A name that comes twice says nothing.
  for (InputAxis& axis : axes) {
    const auto same = [&](const InputAxis& other) { return other.name == axis.name; };
    if (!axis.name.empty() && std::count_if(axes.begin(), axes.end(), same) > 1) {
      const std::string twice = axis.name;
      info->notes.push_back(absl::StrCat("several axes are called ", twice));
      for (InputAxis& other : axes) {
        if (other.name == twice) other.name.clear();
      }
    }
  }
  std::reverse(axes.begin(), axes.end());
  info->axes = std::move(axes);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Skip(const std::string& name, const NrrdHead& head, const char* field,
                             int64_t least) {
  const std::string text = head.Field(field);
  int64_t value = 0;
  if (text.empty()) return value;
  if (absl::SimpleAtoi(text, &value) && value >= least && value <= (int64_t{1} << 50)) return value;
  return DamagedFile(
      name, absl::StrCat("the field '", field, "'"),
      absl::StrCat("is '", text.substr(0, 40), "'; allowed are integers from ", least));
}

/// Where the voxels begin in `bytes`, from `at` on, after `lines` lines.
absl::StatusOr<int64_t> SkipLines(ByteSource& bytes, int64_t at, int64_t lines) {
  std::string piece;
  while (lines > 0) {
    const int64_t part = std::min<int64_t>(64 << 10, bytes.size() - at);
    if (part <= 0) return DamagedFile(bytes.name(), "the file", "has fewer lines than line skip");
    piece.resize(static_cast<size_t>(part));
    OCTAVO_RETURN_IF_ERROR(bytes.ReadAt(at, piece.data(), piece.size()));
    size_t from = 0;
    while (lines > 0) {
      const size_t end = piece.find('\n', from);
      if (end == std::string::npos) {
        from = piece.size();
        break;
      }
      from = end + 1;
      --lines;
    }
    at += static_cast<int64_t>(from);
  }
  return at;
}

}  // namespace

/// NRRD with the voxels in the file or in one other file; raw and gzip.
OpenedVolume OpenNrrdInput(OpenedInput input, const VolumeInputOptions& options) {
  const std::string& name = input.name;
  OCTAVO_ASSIGN_OR_RETURN(const NrrdHead head, ParseHead(*input.bytes));
  const std::string encoding = absl::AsciiStrToLower(head.Field("encoding"));
  const bool gzip = encoding == "gzip" || encoding == "gz";
  if (!gzip && encoding != "raw")
    return UnknownFileCompression(name, "the field 'encoding'", absl::StrCat("'", encoding, "'"),
                                  "raw, gzip");
  auto type = TypeOf(head.Field("type"));
  if (!type.has_value())
    return UnsupportedFile(name, "the field 'type'", absl::StrCat("'", head.Field("type"), "'"),
                           "integers of 8 to 64 bits, float, double");
  const std::string endian = absl::AsciiStrToLower(head.Field("endian"));
  if ((type->bytes > 1 || !endian.empty()) && endian != "little" && endian != "big")
    return DamagedFile(name, "the field 'endian'",
                       absl::StrCat("is '", endian, "'; allowed little, big"));
  std::vector<int64_t> sizes;  // fastest first
  for (const std::string& word : Words(head.Field("sizes"))) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(word, &size) || sizes.size() >= 16)
      return DamagedFile(name, "the field 'sizes'", "is no list of up to 16 integers");
    sizes.push_back(size);
  }
  int64_t dimension = 0;
  if (!absl::SimpleAtoi(head.Field("dimension"), &dimension) || dimension != std::ssize(sizes))
    return DamagedFile(
        name, "the field 'dimension'",
        absl::StrCat("is '", head.Field("dimension"), "'; there are ", sizes.size(), " sizes"));
  OCTAVO_RETURN_IF_ERROR(CheckInputShape(name, "sizes", sizes));
  VolumeInputInfo info{
      .format = InputFormat::kNrrd,
      .kind = absl::StrCat("NRRD", gzip ? ", gzip" : "", endian == "big" ? ", big-endian" : "")};
  OCTAVO_RETURN_IF_ERROR(SetAxes(name, head, sizes, &info));
  const std::vector<std::string> kinds = Words(head.Field("kinds"));
  if (!kinds.empty() && absl::AsciiStrToLower(kinds[0]) == "complex" && sizes[0] == 2 &&
      type->kind == ElementType::Kind::kFloat && info.axes.size() > 1) {
    type = ElementType{ElementType::Kind::kComplex, 2 * type->bytes};
    info.axes.pop_back();
  }
  info.type = *type;
  if (const std::string content = head.Field("content"); !content.empty())
    info.labels["content"] = content.substr(0, 1024);
  if (const std::string space = head.Field("space"); !space.empty()) info.labels["space"] = space;
  if (const std::string units = head.Field("sampleunits"); !units.empty()) {
    const auto quoted = Quoted(units);
    info.value_unit = quoted.empty() ? units : quoted[0];
  }
  for (const auto& [key, value] : head.pairs) {
    if (key != "octavo" && info.labels.size() < 64)
      info.labels[key.substr(0, 64)] = value.substr(0, 256);
  }

  std::shared_ptr<ByteSource> bytes = input.bytes;
  int64_t at = head.bytes;
  if (const std::string file = head.Field("datafile"); !file.empty()) {
    const bool pattern = file.find('%') != std::string::npos && Words(file).size() >= 4;
    if (absl::StartsWith(file, "LIST") || pattern)
      return UnsupportedFile(name, "the field 'data file'", absl::StrCat("'", file, "'"),
                             "the name of one file");
    OCTAVO_ASSIGN_OR_RETURN(bytes, OpenReferred(input, file, "the field 'data file'", options));
    at = 0;
    info.kind += ", detached";
  } else if (!head.ends) {
    return DamagedFile(name, "the header", "has no empty line at its end and no data file");
  }
  OCTAVO_ASSIGN_OR_RETURN(const int64_t lines, Skip(name, head, "lineskip", 0));
  OCTAVO_ASSIGN_OR_RETURN(const int64_t skip, Skip(name, head, "byteskip", gzip ? 0 : -1));
  OCTAVO_ASSIGN_OR_RETURN(at, SkipLines(*bytes, at, lines));
  const int64_t wanted = ElementsOf(info.shape()) * type->bytes;
  if (gzip) {
    // Bytes to skip are those of the decompressed stream.
    bytes = InflatedBytes(bytes, InflateWrap::kGzip, at, -1, skip + wanted, Trailing::kRefuse);
    at = skip;
  } else {
    at = skip == -1 ? bytes->size() - wanted : at + skip;
    if (at < 0 || bytes->size() - at < wanted)
      return DamagedFile(bytes->name(), "the file",
                         absl::StrCat("has ", bytes->size(), " bytes; the header asks for ", wanted,
                                      " from ", std::max<int64_t>(at, 0), " on"));
    if (bytes->size() - at > wanted)
      info.notes.push_back(
          absl::StrCat(bytes->size() - at - wanted, " bytes after the array are left out"));
  }
  const FlatLayout layout{.offset = at,
                          .type = *type,
                          .big_endian = endian == "big",
                          .shape = info.shape(),
                          .file_order = COrder(info.axes.size())};
  if (const auto own = head.pairs.find("octavo"); own != head.pairs.end()) {
    OCTAVO_ASSIGN_OR_RETURN(VolumeMeta meta, ParseOwnMeta(name, "the key 'octavo'", own->second));
    OCTAVO_RETURN_IF_ERROR(AdoptMeta(name, std::move(meta), COrder(3), &info));
  }
  return std::make_unique<FlatInput>(std::move(info), std::move(bytes), layout);
}

}  // namespace octavo::storage

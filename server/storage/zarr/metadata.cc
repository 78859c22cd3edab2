#include "server/storage/zarr/metadata.h"

#include <algorithm>
#include <initializer_list>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/io/json_members.h"

namespace octavo::storage {
namespace {

using nlohmann::json;
constexpr int64_t kMostExtent = int64_t{1} << 40, kMostFileExtent = 1 << 24;
constexpr int64_t kMostChunk = int64_t{1} << 31;  // bytes: the limit of the codecs
constexpr int64_t kMostInner = 1 << 24;           // chunks of a shard
constexpr size_t kMostAxes = 32;

using Names = std::initializer_list<absl::string_view>;

std::string At(const std::string& where, absl::string_view name) {
  return absl::StrCat(where, where.empty() ? "" : ".", name);
}

absl::Status NotRead(const std::string& name, const json& value, const std::string& read) {
  return absl::UnimplementedError(
      absl::StrCat(name, " is ", Shown(value), "; what is read here ", read));
}

/// Refuses members of an object that are not among `known`.
absl::Status OnlyMembers(const json& object, const std::string& where, Names known,
                         bool extensible = false) {
  if (!object.is_object()) return BadValue(where.empty() ? "it" : where, object, "are objects");
  for (const auto& [name, value] : object.items()) {
    if (std::find(known.begin(), known.end(), absl::string_view(name)) != known.end()) continue;
    if (extensible && value.is_object() && value.contains("must_understand") &&
        value["must_understand"] == false)
      continue;
    return absl::UnimplementedError(
        absl::StrCat(At(where, Shown(name)), " is not known, and must be understood"));
  }
  return absl::OkStatus();
}

/// An extension of v3: {"name": …, "configuration": {…}}, or its name alone.
struct NamedPart {
  std::string name;
  json configuration = json::object();
  std::string where;  // of the configuration
};
absl::StatusOr<NamedPart> NamedPartOf(const json& value, const std::string& where) {
  NamedPart out{.name = "", .where = At(where, "configuration")};
  if (value.is_string()) {
    OCTAVO_RETURN_IF_ERROR(ReadValue(value, where, &out.name));
    return out;
  }
  OCTAVO_RETURN_IF_ERROR(OnlyMembers(value, where, {"name", "configuration", "must_understand"}));
  OCTAVO_RETURN_IF_ERROR(ReadMember(value, "name", &out.name, where));
  if (value.contains("configuration")) {
    OCTAVO_RETURN_IF_ERROR(ReadMember(value, "configuration", &out.configuration, where));
    if (!out.configuration.is_object())
      return BadValue(out.where, out.configuration, "are objects");
  }
  return out;
}

absl::Status ReadExtents(const json& value, const std::string& name, int64_t least, int64_t most,
                         std::vector<int64_t>* out) {
  if (!value.is_array() || value.size() > kMostAxes)
    return BadValue(name, value, absl::StrCat("are arrays of at most ", kMostAxes, " integers"));
  out->resize(value.size());
  for (size_t i = 0; i < value.size(); ++i)
    OCTAVO_RETURN_IF_ERROR(
        ReadInteger(value[i], absl::StrCat(name, "[", i, "]"), least, most, &(*out)[i]));
  return absl::OkStatus();
}

/// Checks that the shape, file and chunk just read are consistent. `file_name`, `chunk_name`: names
/// of the members.
absl::Status CheckExtents(const ZarrMetadata& m, const std::string& file_name,
                          const std::string& chunk_name) {
  for (const auto& [extents, name] : {std::pair{&m.file, &file_name}, {&m.chunk, &chunk_name}}) {
    if (extents->size() != m.shape.size())
      return absl::DataLossError(absl::StrCat(*name, " has ", extents->size(),
                                              " integers; allowed are as many as shape has, ",
                                              m.shape.size()));
  }
  int64_t bytes = m.element_bytes, inner = 1;  // of a chunk; chunks of a shard
  for (size_t i = 0; i < m.shape.size(); ++i) {
    const int64_t file = m.file[i], chunk = m.chunk[i];
    if (file % chunk != 0)
      return absl::DataLossError(absl::StrCat(chunk_name, "[", i, "] is ", chunk,
                                              "; allowed are divisors of the shard's ", file));
    if (chunk > kMostChunk / bytes)
      return absl::DataLossError(
          absl::StrCat(chunk_name, " makes a chunk shape of more than ", kMostChunk, " bytes"));
    if (file / chunk > kMostInner / inner)
      return absl::DataLossError(
          absl::StrCat(file_name, " makes a chunk shape of more than ", kMostInner, " parts"));
    bytes *= chunk;
    inner *= file / chunk;
  }
  return absl::OkStatus();
}

/// Checks the other members of a configuration: known members of the right type, which the decoders
/// do not need.
absl::Status CheckCodec(const std::string& name, const json& configuration,
                        const std::string& where) {
  int64_t number = 0;
  const auto integer = [&](const char* member, int64_t least, int64_t most) {
    return configuration.contains(member)
               ? ReadInteger(configuration[member], At(where, member), least, most, &number)
               : absl::OkStatus();
  };
  if (name == "gzip" || name == "zlib") {
    OCTAVO_RETURN_IF_ERROR(OnlyMembers(configuration, where, {"level"}));
    return integer("level", -1, 9);
  }
  if (name == "zstd") {
    OCTAVO_RETURN_IF_ERROR(OnlyMembers(configuration, where, {"level", "checksum"}));
    bool checksum = false;
    if (configuration.contains("checksum"))
      OCTAVO_RETURN_IF_ERROR(ReadMember(configuration, "checksum", &checksum, where));
    return integer("level", -131072, 22);
  }
  if (name == "blosc") {
    OCTAVO_RETURN_IF_ERROR(
        OnlyMembers(configuration, where, {"cname", "clevel", "shuffle", "typesize", "blocksize"}));
    std::string cname;
    if (configuration.contains("cname"))
      OCTAVO_RETURN_IF_ERROR(ReadMember(configuration, "cname", &cname, where));
    if (configuration.contains("shuffle")) {  // v3 has words, v2 numbers
      const json& shuffle = configuration["shuffle"];
      if (!(shuffle == "noshuffle" || shuffle == "shuffle" || shuffle == "bitshuffle" ||
            (shuffle.is_number_integer() && shuffle >= -1 && shuffle <= 2)))
        return BadValue(At(where, "shuffle"), shuffle,
                        "are \"noshuffle\", \"shuffle\", \"bitshuffle\" and, in v2, -1 to 2");
    }
    for (const auto& [member, least, most] :
         {std::tuple{"clevel", 0, 9}, {"typesize", 0, 255}, {"blocksize", 0, 0x7FFFFFFF}}) {
      OCTAVO_RETURN_IF_ERROR(integer(member, least, most));
    }
  }
  return absl::OkStatus();
}

/// "bytes": with the byte order, where an element has more than one.
absl::Status ReadBytesCodec(const NamedPart& codec, const std::string& where, int64_t element_bytes,
                            bool* big_endian) {
  if (codec.name != "bytes")
    return NotRead(where, codec.name,
                   "are the codecs 'bytes' and then at most one of zstd, gzip, blosc");
  OCTAVO_RETURN_IF_ERROR(OnlyMembers(codec.configuration, codec.where, {"endian"}));
  if (element_bytes == 1 && !codec.configuration.contains("endian")) return absl::OkStatus();
  std::string endian;
  OCTAVO_RETURN_IF_ERROR(ReadMember(codec.configuration, "endian", &endian, codec.where));
  if (endian != "little" && endian != "big")
    return BadValue(At(codec.where, "endian"), endian, "are \"little\" and \"big\"");
  *big_endian = endian == "big";
  return absl::OkStatus();
}

absl::StatusOr<std::vector<NamedPart>> CodecsOf(const json& codecs, const std::string& where) {
  if (!codecs.is_array() || codecs.empty())
    return BadValue(where, codecs, "are arrays of at least one codec");
  std::vector<NamedPart> out;
  for (size_t i = 0; i < codecs.size(); ++i) {
    OCTAVO_ASSIGN_OR_RETURN(NamedPart codec,
                            NamedPartOf(codecs[i], absl::StrCat(where, "[", i, "]")));
    out.push_back(std::move(codec));
  }
  return out;
}

/// "bytes", then at most one that compresses.
absl::Status ReadChunkCodecs(const json& value, const std::string& where, ZarrMetadata* out) {
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<NamedPart> codecs, CodecsOf(value, where));
  OCTAVO_RETURN_IF_ERROR(
      ReadBytesCodec(codecs[0], where + "[0]", out->element_bytes, &out->big_endian));
  if (codecs.size() == 1) return absl::OkStatus();
  if (codecs.size() > 2)
    return NotRead(where, value, "are 'bytes' and then at most one of zstd, gzip, blosc");
  auto codec = ChunkCodec::Named(codecs[1].name);
  if (!codec.ok() || codec->zlib)
    return NotRead(where + "[1]", codecs[1].name, "are the codecs zstd, gzip, blosc");
  out->codec = *codec;
  return CheckCodec(codecs[1].name, codecs[1].configuration, codecs[1].where);
}

absl::Status ReadSharding(const NamedPart& sharding, ZarrMetadata* out) {
  const json& c = sharding.configuration;
  const std::string& where = sharding.where;
  OCTAVO_RETURN_IF_ERROR(
      OnlyMembers(c, where, {"chunk_shape", "codecs", "index_codecs", "index_location"}));
  out->sharded = true;
  OCTAVO_ASSIGN_OR_RETURN(const json* const chunk, Member(c, where, "chunk_shape"));
  OCTAVO_RETURN_IF_ERROR(
      ReadExtents(*chunk, At(where, "chunk_shape"), 1, kMostFileExtent, &out->chunk));
  OCTAVO_ASSIGN_OR_RETURN(const json* const codecs, Member(c, where, "codecs"));
  OCTAVO_RETURN_IF_ERROR(ReadChunkCodecs(*codecs, At(where, "codecs"), out));
  OCTAVO_ASSIGN_OR_RETURN(const json* const index, Member(c, where, "index_codecs"));
  const std::string index_name = At(where, "index_codecs");
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<NamedPart> index_codecs, CodecsOf(*index, index_name));
  bool big_endian = false;
  OCTAVO_RETURN_IF_ERROR(ReadBytesCodec(index_codecs[0], index_name + "[0]", 8, &big_endian));
  if (big_endian || index_codecs.size() != 2 || index_codecs[1].name != "crc32c" ||
      !index_codecs[1].configuration.empty())
    return NotRead(index_name, *index, "is little-endian bytes with crc32c (a shard index)");
  if (c.contains("index_location")) {
    std::string location;
    OCTAVO_RETURN_IF_ERROR(ReadMember(c, "index_location", &location, where));
    if (location == "start")
      return NotRead(At(where, "index_location"), location, "is a shard index at the end");
    if (location != "end")
      return BadValue(At(where, "index_location"), location, "are \"start\" and \"end\"");
  }
  return absl::OkStatus();
}

absl::Status ReadKeys(const json& value, ZarrMetadata* out) {
  OCTAVO_ASSIGN_OR_RETURN(const NamedPart keys, NamedPartOf(value, "chunk_key_encoding"));
  if (keys.name != "default" && keys.name != "v2")
    return NotRead("chunk_key_encoding", keys.name, "is 'default' or 'v2'");
  OCTAVO_RETURN_IF_ERROR(OnlyMembers(keys.configuration, keys.where, {"separator"}));
  out->separator = keys.name == "v2" ? "." : "/";
  out->prefix = keys.name == "v2" ? "" : "c";
  if (!keys.configuration.contains("separator")) return absl::OkStatus();
  OCTAVO_RETURN_IF_ERROR(ReadMember(keys.configuration, "separator", &out->separator, keys.where));
  if (out->separator != "/" && out->separator != ".")
    return BadValue(At(keys.where, "separator"), out->separator, "are \"/\" and \".\"");
  return absl::OkStatus();
}

/// zarr_format, an integer.
absl::Status CheckFormat(const json& array, int64_t wanted) {
  OCTAVO_ASSIGN_OR_RETURN(const json* const format, Member(array, "", "zarr_format"));
  if (!format->is_number_integer() || *format != wanted)
    return BadValue("zarr_format", *format, absl::StrCat("is ", wanted));
  return absl::OkStatus();
}

/// v3's name of v2's "<u2" without its byte order.
std::string NameOfNumpy(const std::string& code) {
  int bytes = 0;
  if (code == "b1") return "bool";
  if (code.size() < 2 || code[1] < '1' || code[1] > '9' ||
      !absl::SimpleAtoi(code.substr(1), &bytes) || bytes > 16)
    return "";
  const char* kind = code[0] == 'u'   ? "uint"
                     : code[0] == 'i' ? "int"
                     : code[0] == 'f' ? "float"
                     : code[0] == 'c' ? "complex"
                                      : "?";
  return absl::StrCat(kind, 8 * bytes);
}

}  // namespace

int64_t ZarrElementBytes(const std::string& data_type) {
  static const std::pair<const char*, int64_t> kTypes[] = {
      {"bool", 1},    {"uint8", 1},   {"int8", 1},      {"uint16", 2},     {"int16", 2},
      {"uint32", 4},  {"int32", 4},   {"uint64", 8},    {"int64", 8},      {"float16", 2},
      {"float32", 4}, {"float64", 8}, {"complex64", 8}, {"complex128", 16}};
  for (const auto& [known, bytes] : kTypes) {
    if (data_type == known) return bytes;
  }
  return 0;
}

absl::StatusOr<ZarrMetadata> ParseZarrV3(const json& array) {
  ZarrMetadata out;
  OCTAVO_RETURN_IF_ERROR(CheckFormat(array, 3));
  std::string node;
  OCTAVO_RETURN_IF_ERROR(ReadMember(array, "node_type", &node));
  if (node != "array") return BadValue("node_type", node, "is \"array\"");
  OCTAVO_RETURN_IF_ERROR(OnlyMembers(
      array, "",
      {"zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding",
       "fill_value", "codecs", "attributes", "storage_transformers", "dimension_names"},
      /*extensible=*/true));
  OCTAVO_ASSIGN_OR_RETURN(const json* const type, Member(array, "", "data_type"));
  out.data_type = type->is_string() ? type->get<std::string>() : "";
  out.element_bytes = ZarrElementBytes(out.data_type);
  if (out.element_bytes == 0) return NotRead("data_type", *type, "are numbers and bool");
  if (array.contains("storage_transformers")) {
    const json& transformers = array["storage_transformers"];
    if (!transformers.is_array())
      return BadValue("storage_transformers", transformers, "are arrays");
    if (!transformers.empty())
      return NotRead("storage_transformers", transformers, "are arrays without them");
  }
  OCTAVO_ASSIGN_OR_RETURN(const json* const shape, Member(array, "", "shape"));
  OCTAVO_RETURN_IF_ERROR(ReadExtents(*shape, "shape", 0, kMostExtent, &out.shape));
  OCTAVO_ASSIGN_OR_RETURN(const json* const grid_value, Member(array, "", "chunk_grid"));
  OCTAVO_ASSIGN_OR_RETURN(const NamedPart grid, NamedPartOf(*grid_value, "chunk_grid"));
  if (grid.name != "regular") return NotRead("chunk_grid", grid.name, "is the regular grid");
  OCTAVO_RETURN_IF_ERROR(OnlyMembers(grid.configuration, grid.where, {"chunk_shape"}));
  OCTAVO_ASSIGN_OR_RETURN(const json* const file,
                          Member(grid.configuration, grid.where, "chunk_shape"));
  const std::string file_name = At(grid.where, "chunk_shape");
  OCTAVO_RETURN_IF_ERROR(ReadExtents(*file, file_name, 1, kMostFileExtent, &out.file));
  OCTAVO_ASSIGN_OR_RETURN(const json* const keys, Member(array, "", "chunk_key_encoding"));
  OCTAVO_RETURN_IF_ERROR(ReadKeys(*keys, &out));
  OCTAVO_ASSIGN_OR_RETURN(const json* const codecs_value, Member(array, "", "codecs"));
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<NamedPart> codecs, CodecsOf(*codecs_value, "codecs"));
  std::string chunk_name = file_name;
  out.chunk = out.file;
  if (codecs[0].name == "sharding_indexed" && codecs.size() == 1) {
    OCTAVO_RETURN_IF_ERROR(ReadSharding(codecs[0], &out));
    chunk_name = At(codecs[0].where, "chunk_shape");
  } else {
    OCTAVO_RETURN_IF_ERROR(ReadChunkCodecs(*codecs_value, "codecs", &out));
  }
  OCTAVO_RETURN_IF_ERROR(CheckExtents(out, file_name, chunk_name));
  OCTAVO_ASSIGN_OR_RETURN(const json* const fill, Member(array, "", "fill_value"));
  OCTAVO_ASSIGN_OR_RETURN(out.fill,
                          ZarrFill(out.data_type, out.big_endian, *fill, ZarrVersion::kV3));
  if (array.contains("dimension_names")) {
    const json& names = array["dimension_names"];
    if (!names.is_array() || names.size() != out.shape.size() ||
        !std::all_of(names.begin(), names.end(),
                     [](const json& name) { return name.is_null() || name.is_string(); }))
      return BadValue("dimension_names", names, "are arrays of a text or null for each axis");
  }
  if (array.contains("attributes")) {
    out.attributes = array["attributes"];
    if (!out.attributes.is_object()) return BadValue("attributes", out.attributes, "are objects");
  }
  return out;
}

absl::StatusOr<ZarrMetadata> ParseZarrV2(const json& array) {
  ZarrMetadata out;
  OCTAVO_RETURN_IF_ERROR(CheckFormat(array, 2));
  OCTAVO_ASSIGN_OR_RETURN(const json* const type, Member(array, "", "dtype"));
  const std::string dtype = type->is_string() ? type->get<std::string>() : "";
  out.data_type = dtype.size() < 3 ? "" : NameOfNumpy(dtype.substr(1));
  out.element_bytes = ZarrElementBytes(out.data_type);
  if (out.element_bytes == 0) return NotRead("dtype", *type, "are numbers and bool");
  if (dtype[0] != '<' && dtype[0] != '>' && !(dtype[0] == '|' && out.element_bytes == 1))
    return BadValue("dtype", *type, "are '<', '>' or, for one byte, '|' before the type");
  out.big_endian = dtype[0] == '>';
  std::string order;
  OCTAVO_RETURN_IF_ERROR(ReadMember(array, "order", &order));
  if (order == "F") return NotRead("order", order, "is C order");
  if (order != "C") return BadValue("order", order, "are \"C\" and \"F\"");
  OCTAVO_ASSIGN_OR_RETURN(const json* const filters, Member(array, "", "filters"));
  if (!filters->is_null() && !filters->is_array())
    return BadValue("filters", *filters, "are null and arrays");
  if (!filters->empty())
    return NotRead("filters", *filters,
                   "are arrays without filters (codecs before the compressor)");
  out.separator = ".";
  if (array.contains("dimension_separator")) {
    OCTAVO_RETURN_IF_ERROR(ReadMember(array, "dimension_separator", &out.separator));
    if (out.separator != "/" && out.separator != ".")
      return BadValue("dimension_separator", out.separator, "are \"/\" and \".\"");
  }
  OCTAVO_ASSIGN_OR_RETURN(const json* const compressor, Member(array, "", "compressor"));
  if (!compressor->is_null()) {
    std::string id;
    OCTAVO_RETURN_IF_ERROR(ReadMember(*compressor, "id", &id, "compressor"));
    auto codec = ChunkCodec::Named(id);
    if (!codec.ok()) return NotRead("compressor.id", id, "are the codecs zstd, gzip, zlib, blosc");
    out.codec = *codec;
    json configuration = *compressor;
    configuration.erase("id");
    OCTAVO_RETURN_IF_ERROR(CheckCodec(id, configuration, "compressor"));
  }
  OCTAVO_ASSIGN_OR_RETURN(const json* const shape, Member(array, "", "shape"));
  OCTAVO_RETURN_IF_ERROR(ReadExtents(*shape, "shape", 0, kMostExtent, &out.shape));
  OCTAVO_ASSIGN_OR_RETURN(const json* const chunks, Member(array, "", "chunks"));
  OCTAVO_RETURN_IF_ERROR(ReadExtents(*chunks, "chunks", 1, kMostFileExtent, &out.file));
  out.chunk = out.file;
  OCTAVO_RETURN_IF_ERROR(CheckExtents(out, "chunks", "chunks"));
  OCTAVO_ASSIGN_OR_RETURN(const json* const fill, Member(array, "", "fill_value"));
  OCTAVO_ASSIGN_OR_RETURN(out.fill,
                          ZarrFill(out.data_type, out.big_endian, *fill, ZarrVersion::kV2));
  return out;
}

}  // namespace octavo::storage

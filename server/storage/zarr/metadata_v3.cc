#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/io/json_members.h"
#include "server/storage/zarr/metadata.h"
#include "server/storage/zarr/metadata_parts.h"

namespace octavo::storage {
namespace {

using nlohmann::json;
constexpr int64_t kMostInner = 1 << 24;  // chunks of a shard
constexpr int64_t kMostShardInMemory = int64_t{1} << 31;
constexpr int64_t kGap = 4096;  // bytes that a writer may leave between the chunks of a shard
constexpr int kMostNesting = 4;
constexpr size_t kMostCodecs = 16;
constexpr int64_t kMostRawBytes = 4096;  // of an element

/// An extension of v3: {"name": …, "configuration": {…}}, or its name alone.
struct NamedPart {
  std::string name;
  json configuration = json::object();
  std::string where;  // of the configuration
};
absl::StatusOr<NamedPart> NamedPartOf(const json& value, const std::string& where) {
  NamedPart out{.name = "", .where = MemberPath(where, "configuration")};
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

absl::StatusOr<std::vector<NamedPart>> CodecsOf(const json& codecs, const std::string& where) {
  if (!codecs.is_array() || codecs.empty() || codecs.size() > kMostCodecs)
    return BadValue(where, codecs, absl::StrCat("are arrays of 1 to ", kMostCodecs, " codecs"));
  std::vector<NamedPart> out;
  for (size_t i = 0; i < codecs.size(); ++i) {
    OCTAVO_ASSIGN_OR_RETURN(NamedPart codec,
                            NamedPartOf(codecs[i], absl::StrCat(where, "[", i, "]")));
    out.push_back(std::move(codec));
  }
  return out;
}

/// "bytes": with the byte order, where an element has one.
absl::Status ReadBytesCodec(const NamedPart& codec, bool ordered, bool* big_endian) {
  OCTAVO_RETURN_IF_ERROR(OnlyMembers(codec.configuration, codec.where, {"endian"}));
  if (!ordered && !codec.configuration.contains("endian")) return absl::OkStatus();
  std::string endian;
  OCTAVO_RETURN_IF_ERROR(ReadMember(codec.configuration, "endian", &endian, codec.where));
  if (endian != "little" && endian != "big")
    return BadValue(MemberPath(codec.where, "endian"), endian, "are \"little\" and \"big\"");
  *big_endian = ordered && endian == "big";
  return absl::OkStatus();
}

/// "transpose": permutes the order of the axes as NumPy's transpose does.
absl::Status ReadTranspose(const NamedPart& codec, std::vector<size_t>* order) {
  OCTAVO_RETURN_IF_ERROR(OnlyMembers(codec.configuration, codec.where, {"order"}));
  OCTAVO_ASSIGN_OR_RETURN(const json* const value,
                          Member(codec.configuration, codec.where, "order"));
  const std::string name = MemberPath(codec.where, "order");
  const std::string allowed =
      absl::StrCat("are arrays of the axes 0 to ", static_cast<int64_t>(order->size()) - 1,
                   ", each of them once");
  if (!value->is_array() || value->size() != order->size()) return BadValue(name, *value, allowed);
  std::vector<size_t> permuted;
  std::vector<bool> seen(order->size());
  for (size_t i = 0; i < value->size(); ++i) {
    int64_t axis = 0;
    OCTAVO_RETURN_IF_ERROR(ReadInteger((*value)[i], absl::StrCat(name, "[", i, "]"), 0,
                                       static_cast<int64_t>(order->size()) - 1, &axis));
    if (seen[static_cast<size_t>(axis)]) return BadValue(name, *value, allowed);
    seen[static_cast<size_t>(axis)] = true;
    permuted.push_back((*order)[static_cast<size_t>(axis)]);
  }
  *order = std::move(permuted);
  return absl::OkStatus();
}

/// The codecs of the chunks of an array, and of the chunks in their shards.
class ChainParser {
 public:
  ChainParser(int64_t element_bytes, bool ordered)
      : element_bytes_(element_bytes), ordered_(ordered) {}

  bool big_endian() const { return big_endian_; }

  /// `shape`: of the chunk, along the array's axes; `shape_name`: the member that has it; `order`:
  /// the axes from the slowest to the fastest one.
  absl::StatusOr<ZarrChain> Parse(const json& value, const std::string& where,
                                  const AxisValues& shape, const std::string& shape_name,
                                  std::vector<size_t> order, int depth) {
    OCTAVO_ASSIGN_OR_RETURN(const std::vector<NamedPart> codecs, CodecsOf(value, where));
    const auto at = [&](size_t k) { return absl::StrCat(where, "[", k, "]"); };
    size_t i = 0;
    for (; i < codecs.size() && codecs[i].name == "transpose"; ++i)
      OCTAVO_RETURN_IF_ERROR(ReadTranspose(codecs[i], &order));
    if (i == codecs.size())
      return BadValue(where, value, "are codecs with 'bytes' or 'sharding_indexed' among them");
    ZarrChain chain;
    if (codecs[i].name == "bytes") {
      OCTAVO_RETURN_IF_ERROR(ReadBytesCodec(codecs[i], ordered_, &big_endian_));
      OCTAVO_ASSIGN_OR_RETURN(chain, ElementChain(shape, shape_name, order, element_bytes_));
    } else if (codecs[i].name == "sharding_indexed") {
      if (depth == kMostNesting)
        return NotRead(at(i), codecs[i].name,
                       absl::StrCat("are codecs with shards in shards ", kMostNesting, " deep"));
      OCTAVO_ASSIGN_OR_RETURN(chain, ReadSharding(codecs[i], shape, shape_name, order, depth));
    } else {
      return NotRead(at(i), codecs[i].name,
                     "are the codecs transpose, then bytes or sharding_indexed, then gzip, zstd, "
                     "blosc and crc32c");
    }
    for (++i; i < codecs.size(); ++i) {
      const std::string& name = codecs[i].name;
      ByteCodec codec;
      if (name == "gzip")
        codec.kind = ByteCodec::Kind::kGzip;
      else if (name == "zstd")
        codec.kind = ByteCodec::Kind::kZstd;
      else if (name == "blosc")
        codec.kind = ByteCodec::Kind::kBlosc;
      else if (name == "crc32c")
        codec.kind = ByteCodec::Kind::kCrc32c;
      else if (name == "bytes" || name == "transpose" || name == "sharding_indexed")
        return BadValue(at(i), name, "behind the codec that makes bytes are codecs of bytes");
      else
        return NotRead(at(i), name, "are the codecs gzip, zstd, blosc and crc32c");
      OCTAVO_RETURN_IF_ERROR(CheckCodecParameters(name, codecs[i].configuration, codecs[i].where));
      OCTAVO_RETURN_IF_ERROR(AppendStep(codec, at(i), &chain));
    }
    if (chain.shard != nullptr && !chain.steps.empty()) {
      // It has to be decoded as a whole.
      chain.bytes = std::min(chain.bytes, kMostShardInMemory);
      chain.steps[0].decoded = chain.bytes;
    }
    return chain;
  }

 private:
  absl::StatusOr<ZarrChain> ReadSharding(const NamedPart& sharding, const AxisValues& shape,
                                         const std::string& shape_name,
                                         const std::vector<size_t>& order, int depth) {
    const json& c = sharding.configuration;
    const std::string& where = sharding.where;
    OCTAVO_RETURN_IF_ERROR(
        OnlyMembers(c, where, {"chunk_shape", "codecs", "index_codecs", "index_location"}));
    OCTAVO_ASSIGN_OR_RETURN(const json* const chunk, Member(c, where, "chunk_shape"));
    const std::string chunk_name = MemberPath(where, "chunk_shape");
    AxisValues extents;  // along the axes as they are here
    OCTAVO_RETURN_IF_ERROR(ReadExtents(*chunk, chunk_name, 1, &extents));
    if (extents.size() != shape.size())
      return absl::DataLossError(absl::StrCat(chunk_name, " has ", extents.size(),
                                              " integers; allowed are as many as shape has, ",
                                              shape.size()));
    auto shard = std::make_shared<ZarrShard>();
    ZarrChain chain;
    chain.shape = shape;
    chain.stride.resize(shape.size());
    shard->grid.resize(shape.size());
    AxisValues inner(shape.size());
    for (size_t k = shape.size(); k > 0; --k) {
      const size_t axis = order[k - 1];
      inner[axis] = extents[k - 1];
      if (shape[axis] % inner[axis] != 0)
        return absl::DataLossError(absl::StrCat(chunk_name, "[", k - 1, "] is ", inner[axis],
                                                "; allowed are divisors of the shard's ",
                                                shape[axis]));
      shard->grid[axis] = shape[axis] / inner[axis];
      if (shard->grid[axis] > kMostInner / shard->chunks)
        return absl::DataLossError(
            absl::StrCat(shape_name, " makes a chunk shape of more than ", kMostInner, " parts"));
      chain.stride[axis] = shard->chunks;
      shard->chunks *= shard->grid[axis];
    }
    OCTAVO_ASSIGN_OR_RETURN(const json* const codecs, Member(c, where, "codecs"));
    OCTAVO_ASSIGN_OR_RETURN(shard->inner, Parse(*codecs, MemberPath(where, "codecs"), inner,
                                                chunk_name, order, depth + 1));
    OCTAVO_RETURN_IF_ERROR(ReadIndexCodecs(c, where, shard.get()));
    if (c.contains("index_location")) {
      std::string location;
      OCTAVO_RETURN_IF_ERROR(ReadMember(c, "index_location", &location, where));
      if (location != "start" && location != "end")
        return BadValue(MemberPath(where, "index_location"), location, "are \"start\" and \"end\"");
      shard->index_at_start = location == "start";
    }
    // A shard is read in parts, so its length does not matter, unless a codec follows.
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 4;
    const int64_t each = std::min(shard->inner.encoded, kMost - kGap) + kGap;
    chain.bytes = each > (kMost - shard->IndexBytes()) / shard->chunks
                      ? kMost
                      : each * shard->chunks + shard->IndexBytes();
    chain.encoded = kMost;
    chain.exact_encoded = false;
    chain.shard = std::move(shard);
    return chain;
  }

  static absl::Status ReadIndexCodecs(const json& sharding, const std::string& where,
                                      ZarrShard* shard) {
    OCTAVO_ASSIGN_OR_RETURN(const json* const index, Member(sharding, where, "index_codecs"));
    const std::string name = MemberPath(where, "index_codecs");
    OCTAVO_ASSIGN_OR_RETURN(const std::vector<NamedPart> codecs, CodecsOf(*index, name));
    constexpr char kRead[] = "are the codecs bytes and then crc32c, for the index of a shard";
    if (codecs[0].name != "bytes") return NotRead(name + "[0]", codecs[0].name, kRead);
    OCTAVO_RETURN_IF_ERROR(ReadBytesCodec(codecs[0], /*ordered=*/true, &shard->index_big_endian));
    for (size_t i = 1; i < codecs.size(); ++i) {
      if (codecs[i].name != "crc32c")
        return NotRead(absl::StrCat(name, "[", i, "]"), codecs[i].name, kRead);
      OCTAVO_RETURN_IF_ERROR(
          CheckCodecParameters(codecs[i].name, codecs[i].configuration, codecs[i].where));
      ++shard->index_checksums;
    }
    return absl::OkStatus();
  }

  const int64_t element_bytes_;
  const bool ordered_;  // whether an element has a byte order
  bool big_endian_ = false;
};

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
    return BadValue(MemberPath(keys.where, "separator"), out->separator, "are \"/\" and \".\"");
  return absl::OkStatus();
}

absl::Status ReadDimensionNames(const json& names, ZarrMetadata* out) {
  if (!names.is_array() || names.size() != out->shape.size() ||
      !std::all_of(names.begin(), names.end(),
                   [](const json& name) { return name.is_null() || name.is_string(); }))
    return BadValue("dimension_names", names, "are arrays of a text or null for each axis");
  for (const json& name : names)
    out->dimension_names.push_back(name.is_null() ? std::nullopt
                                                  : std::optional(name.get<std::string>()));
  return absl::OkStatus();
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
  // Raw bits: "r24".
  int bits = 0;
  if (data_type.size() >= 2 && data_type.size() <= 6 && data_type[0] == 'r' &&
      data_type[1] >= '1' && data_type[1] <= '9' && absl::SimpleAtoi(data_type.substr(1), &bits) &&
      bits % 8 == 0 && bits / 8 <= kMostRawBytes)
    return bits / 8;
  return 0;
}

absl::StatusOr<ZarrMetadata> ParseZarrV3(const json& array) {
  ZarrMetadata out;
  out.version = ZarrVersion::kV3;
  OCTAVO_RETURN_IF_ERROR(CheckZarrFormat(array, 3));
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
  if (out.element_bytes == 0)
    return NotRead("data_type", *type,
                   "are bool, int8 to int64, uint8 to uint64, float16 to float64, complex64, "
                   "complex128 and raw bits (r8, r16, …)");
  if (array.contains("storage_transformers")) {
    const json& transformers = array["storage_transformers"];
    if (!transformers.is_array())
      return BadValue("storage_transformers", transformers, "are arrays");
    if (!transformers.empty())
      return NotRead("storage_transformers", transformers, "are arrays without them");
  }
  OCTAVO_ASSIGN_OR_RETURN(const json* const shape, Member(array, "", "shape"));
  OCTAVO_RETURN_IF_ERROR(ReadExtents(*shape, "shape", 0, &out.shape));
  OCTAVO_RETURN_IF_ERROR(CheckArrayBytes(out));
  OCTAVO_ASSIGN_OR_RETURN(const json* const grid_value, Member(array, "", "chunk_grid"));
  OCTAVO_ASSIGN_OR_RETURN(const NamedPart grid, NamedPartOf(*grid_value, "chunk_grid"));
  if (grid.name != "regular") return NotRead("chunk_grid", grid.name, "is the regular grid");
  OCTAVO_RETURN_IF_ERROR(OnlyMembers(grid.configuration, grid.where, {"chunk_shape"}));
  OCTAVO_ASSIGN_OR_RETURN(const json* const chunk,
                          Member(grid.configuration, grid.where, "chunk_shape"));
  const std::string chunk_name = MemberPath(grid.where, "chunk_shape");
  AxisValues extents;
  OCTAVO_RETURN_IF_ERROR(ReadExtents(*chunk, chunk_name, 1, &extents));
  if (extents.size() != out.shape.size())
    return absl::DataLossError(absl::StrCat(chunk_name, " has ", extents.size(),
                                            " integers; allowed are as many as shape has, ",
                                            out.shape.size()));
  OCTAVO_ASSIGN_OR_RETURN(const json* const keys, Member(array, "", "chunk_key_encoding"));
  OCTAVO_RETURN_IF_ERROR(ReadKeys(*keys, &out));
  OCTAVO_ASSIGN_OR_RETURN(const json* const codecs, Member(array, "", "codecs"));
  std::vector<size_t> order(extents.size());
  for (size_t d = 0; d < order.size(); ++d) order[d] = d;
  ChainParser parser(out.element_bytes, out.element_bytes > 1 && out.data_type[0] != 'r');
  OCTAVO_ASSIGN_OR_RETURN(out.chain,
                          parser.Parse(*codecs, "codecs", extents, chunk_name, order, 0));
  out.big_endian = parser.big_endian();
  OCTAVO_ASSIGN_OR_RETURN(const json* const fill, Member(array, "", "fill_value"));
  OCTAVO_ASSIGN_OR_RETURN(out.fill,
                          ZarrFill(out.data_type, out.big_endian, *fill, ZarrVersion::kV3));
  if (array.contains("dimension_names"))
    OCTAVO_RETURN_IF_ERROR(ReadDimensionNames(array["dimension_names"], &out));
  if (array.contains("attributes")) {
    out.attributes = array["attributes"];
    if (!out.attributes.is_object()) return BadValue("attributes", out.attributes, "are objects");
  }
  return out;
}

}  // namespace octavo::storage

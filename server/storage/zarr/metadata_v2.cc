#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/io/json_members.h"
#include "server/storage/zarr/metadata.h"
#include "server/storage/zarr/metadata_parts.h"

namespace octavo::storage {
namespace {

using nlohmann::json;
constexpr size_t kMostFilters = 8;
constexpr int64_t kMostShuffled = 4096;  // bytes of an element

/// v3's name of a type.
std::string NameOf(const NumpyType& type) {
  switch (type.kind) {
    case 'b': return "bool";
    case 'i': return absl::StrCat("int", 8 * type.bytes);
    case 'u': return absl::StrCat("uint", 8 * type.bytes);
    case 'f': return absl::StrCat("float", 8 * type.bytes);
    case 'c': return absl::StrCat("complex", 8 * type.bytes);
    default: return absl::StrCat("r", 8 * type.bytes);
  }
}

absl::StatusOr<NumpyType> ReadNumpyType(const json& value, const std::string& name) {
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  if (const auto type = NumpyType::Parse(text); type.has_value()) return *type;
  // Of a known type, but without a known byte order.
  if (text.size() > 2 && NumpyType::Parse("<" + text.substr(1)).has_value())
    return BadValue(name, value, "are '<', '>' or, for one byte, '|' before the type");
  return NotRead(name, value,
                 "are booleans, integers, floats, complex numbers and raw bytes: \"|b1\", \"<u2\", "
                 "\">f4\", \"<c8\", \"|V3\"");
}

absl::Status ReadNumber(const json& object, const char* name, const std::string& where,
                        double* out) {
  OCTAVO_RETURN_IF_ERROR(ReadMember(object, name, out, where));
  if (!std::isfinite(*out))
    return BadValue(MemberPath(where, name), object[name], "are finite numbers");
  return absl::OkStatus();
}

/// A filter as numcodecs describes it.
absl::StatusOr<ByteCodec> ReadFilter(const json& filter, const std::string& where) {
  std::string id;
  OCTAVO_RETURN_IF_ERROR(ReadMember(filter, "id", &id, where));
  ByteCodec codec;
  if (id == "shuffle") {
    codec.kind = ByteCodec::Kind::kShuffle;
    codec.element_bytes = 4;
    OCTAVO_RETURN_IF_ERROR(OnlyMembers(filter, where, {"id", "elementsize"}));
    if (filter.contains("elementsize"))
      OCTAVO_RETURN_IF_ERROR(ReadInteger(filter["elementsize"], MemberPath(where, "elementsize"), 1,
                                         kMostShuffled, &codec.element_bytes));
    return codec;
  }
  codec.kind = ByteCodec::Kind::kNumbers;
  NumberFilter& out = codec.filter;
  const auto type = [&](const char* name, NumpyType* to) -> absl::Status {
    OCTAVO_ASSIGN_OR_RETURN(const json* const value, Member(filter, where, name));
    OCTAVO_ASSIGN_OR_RETURN(*to, ReadNumpyType(*value, MemberPath(where, name)));
    return absl::OkStatus();
  };
  const auto encoded_type = [&]() -> absl::Status {  // "astype"; without it the same as "dtype"
    OCTAVO_RETURN_IF_ERROR(type("dtype", &out.decoded));
    out.encoded = out.decoded;
    return filter.contains("astype") && !filter["astype"].is_null() ? type("astype", &out.encoded)
                                                                    : absl::OkStatus();
  };
  if (id == "delta") {
    out.kind = NumberFilter::Kind::kDelta;
    OCTAVO_RETURN_IF_ERROR(OnlyMembers(filter, where, {"id", "dtype", "astype"}));
    OCTAVO_RETURN_IF_ERROR(encoded_type());
  } else if (id == "fixedscaleoffset") {
    out.kind = NumberFilter::Kind::kFixedScaleOffset;
    OCTAVO_RETURN_IF_ERROR(
        OnlyMembers(filter, where, {"id", "scale", "offset", "dtype", "astype"}));
    OCTAVO_RETURN_IF_ERROR(encoded_type());
    OCTAVO_RETURN_IF_ERROR(ReadNumber(filter, "scale", where, &out.scale));
    OCTAVO_RETURN_IF_ERROR(ReadNumber(filter, "offset", where, &out.offset));
    if (out.scale == 0 || !std::isfinite(static_cast<float>(out.scale)) ||
        !std::isfinite(static_cast<float>(out.offset)))
      return BadValue(MemberPath(where, "scale"), filter["scale"],
                      "are scales but 0 and, as the offset, within the range of float32");
  } else if (id == "quantize") {
    out.kind = NumberFilter::Kind::kCast;
    OCTAVO_RETURN_IF_ERROR(OnlyMembers(filter, where, {"id", "digits", "dtype", "astype"}));
    OCTAVO_RETURN_IF_ERROR(encoded_type());
  } else if (id == "astype") {
    out.kind = NumberFilter::Kind::kCast;
    OCTAVO_RETURN_IF_ERROR(OnlyMembers(filter, where, {"id", "encode_dtype", "decode_dtype"}));
    OCTAVO_RETURN_IF_ERROR(type("encode_dtype", &out.encoded));
    OCTAVO_RETURN_IF_ERROR(type("decode_dtype", &out.decoded));
  } else if (id == "packbits") {
    out.kind = NumberFilter::Kind::kPackBits;
    OCTAVO_RETURN_IF_ERROR(OnlyMembers(filter, where, {"id"}));
  } else {
    return NotRead(
        MemberPath(where, "id"), id,
        "are the filters delta, shuffle, fixedscaleoffset, astype, quantize and packbits");
  }
  if (!out.IsSupported())
    return NotRead(where, filter,
                   "are filters of integers, float32 and float64, from integers to floats or to "
                   "the same kind (float16 only in astype and quantize, widened)");
  return codec;
}

absl::Status ReadFilters(const json& filters, ZarrChain* chain) {
  if (filters.is_null()) return absl::OkStatus();
  if (!filters.is_array() || filters.size() > kMostFilters)
    return BadValue("filters", filters,
                    absl::StrCat("are null and arrays of at most ", kMostFilters, " filters"));
  for (size_t i = 0; i < filters.size(); ++i) {
    const std::string where = absl::StrCat("filters[", i, "]");
    OCTAVO_ASSIGN_OR_RETURN(const ByteCodec filter, ReadFilter(filters[i], where));
    OCTAVO_RETURN_IF_ERROR(AppendStep(filter, where, chain));
  }
  return absl::OkStatus();
}

absl::Status ReadCompressor(const json& compressor, ZarrChain* chain) {
  if (compressor.is_null()) return absl::OkStatus();
  std::string id;
  OCTAVO_RETURN_IF_ERROR(ReadMember(compressor, "id", &id, "compressor"));
  ByteCodec codec;
  if (id == "gzip")
    codec.kind = ByteCodec::Kind::kGzip;
  else if (id == "zlib")
    codec.kind = ByteCodec::Kind::kZlib;
  else if (id == "zstd")
    codec.kind = ByteCodec::Kind::kZstd;
  else if (id == "lz4")
    codec.kind = ByteCodec::Kind::kLz4;
  else if (id == "blosc")
    codec.kind = ByteCodec::Kind::kBlosc;
  else
    return NotRead("compressor.id", id, "are the codecs gzip, zlib, zstd, lz4, blosc");
  json configuration = compressor;
  configuration.erase("id");
  OCTAVO_RETURN_IF_ERROR(CheckCodecParameters(id, configuration, "compressor"));
  return AppendStep(codec, "compressor", chain);
}

}  // namespace

absl::StatusOr<ZarrMetadata> ParseZarrV2(const json& array) {
  ZarrMetadata out;
  out.version = ZarrVersion::kV2;
  OCTAVO_RETURN_IF_ERROR(CheckZarrFormat(array, 2));
  OCTAVO_ASSIGN_OR_RETURN(const json* const dtype, Member(array, "", "dtype"));
  OCTAVO_ASSIGN_OR_RETURN(const NumpyType type, ReadNumpyType(*dtype, "dtype"));
  out.data_type = NameOf(type);
  out.element_bytes = type.bytes;
  out.big_endian = type.big_endian && type.kind != 'V';
  std::string order_name;
  OCTAVO_RETURN_IF_ERROR(ReadMember(array, "order", &order_name));
  if (order_name != "C" && order_name != "F")
    return BadValue("order", order_name, "are \"C\" and \"F\"");
  out.separator = ".";
  if (array.contains("dimension_separator")) {
    OCTAVO_RETURN_IF_ERROR(ReadMember(array, "dimension_separator", &out.separator));
    if (out.separator != "/" && out.separator != ".")
      return BadValue("dimension_separator", out.separator, "are \"/\" and \".\"");
  }
  OCTAVO_ASSIGN_OR_RETURN(const json* const shape, Member(array, "", "shape"));
  OCTAVO_RETURN_IF_ERROR(ReadExtents(*shape, "shape", 0, &out.shape));
  OCTAVO_RETURN_IF_ERROR(CheckArrayBytes(out));
  OCTAVO_ASSIGN_OR_RETURN(const json* const chunks, Member(array, "", "chunks"));
  AxisValues extents;
  OCTAVO_RETURN_IF_ERROR(ReadExtents(*chunks, "chunks", 1, &extents));
  if (extents.size() != out.shape.size())
    return absl::DataLossError(absl::StrCat("chunks has ", extents.size(),
                                            " integers; allowed are as many as shape has, ",
                                            out.shape.size()));
  std::vector<size_t> order(extents.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (order_name == "F") std::reverse(order.begin(), order.end());
  OCTAVO_ASSIGN_OR_RETURN(out.chain, ElementChain(extents, "chunks", order, out.element_bytes));
  OCTAVO_ASSIGN_OR_RETURN(const json* const filters, Member(array, "", "filters"));
  OCTAVO_RETURN_IF_ERROR(ReadFilters(*filters, &out.chain));
  OCTAVO_ASSIGN_OR_RETURN(const json* const compressor, Member(array, "", "compressor"));
  OCTAVO_RETURN_IF_ERROR(ReadCompressor(*compressor, &out.chain));
  OCTAVO_ASSIGN_OR_RETURN(const json* const fill, Member(array, "", "fill_value"));
  OCTAVO_ASSIGN_OR_RETURN(out.fill,
                          ZarrFill(out.data_type, out.big_endian, *fill, ZarrVersion::kV2));
  return out;
}

}  // namespace octavo::storage

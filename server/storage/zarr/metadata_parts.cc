#include "server/storage/zarr/metadata_parts.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/status.h"
#include "server/storage/io/json_members.h"

namespace octavo::storage {
namespace {

using nlohmann::json;
constexpr int64_t kMostExtent = int64_t{1} << 40;
constexpr int64_t kMostArray = int64_t{1} << 62;    // bytes
constexpr int64_t kMostChunk = int64_t{1} << 31;    // bytes: the limit of the codecs
constexpr int64_t kMostEncoded = int64_t{3} << 30;  // bytes, also behind several codecs
constexpr size_t kMostAxes = 32;

}  // namespace

std::string ZarrMetadata::FileOf(absl::Span<const int64_t> chunk) const {
  const std::string numbers = absl::StrJoin(chunk, separator);
  if (prefix.empty()) return chunk.empty() ? "0" : numbers;
  return chunk.empty() ? prefix : absl::StrCat(prefix, separator, numbers);
}

std::string MemberPath(const std::string& where, absl::string_view name) {
  return absl::StrCat(where, where.empty() ? "" : ".", name);
}

absl::Status NotRead(const std::string& name, const json& value, const std::string& read) {
  return absl::UnimplementedError(
      absl::StrCat(name, " is ", Shown(value), "; what is read here ", read));
}

absl::Status OnlyMembers(const json& object, const std::string& where,
                         std::initializer_list<absl::string_view> known, bool extensible) {
  if (!object.is_object()) return BadValue(where.empty() ? "it" : where, object, "are objects");
  for (const auto& [name, value] : object.items()) {
    if (std::find(known.begin(), known.end(), absl::string_view(name)) != known.end()) continue;
    if (extensible && value.is_object() && value.contains("must_understand") &&
        value["must_understand"] == false)
      continue;
    return absl::UnimplementedError(
        absl::StrCat(MemberPath(where, Shown(name)), " is not known, and must be understood"));
  }
  return absl::OkStatus();
}

absl::Status CheckZarrFormat(const json& object, int64_t wanted) {
  OCTAVO_ASSIGN_OR_RETURN(const json* const format, Member(object, "", "zarr_format"));
  if (!format->is_number_integer() || *format != wanted)
    return BadValue("zarr_format", *format, absl::StrCat("is ", wanted));
  return absl::OkStatus();
}

absl::Status ReadExtents(const json& value, const std::string& name, int64_t least,
                         AxisValues* out) {
  if (!value.is_array() || value.size() > kMostAxes)
    return BadValue(name, value, absl::StrCat("are arrays of at most ", kMostAxes, " integers"));
  out->resize(value.size());
  for (size_t i = 0; i < value.size(); ++i)
    OCTAVO_RETURN_IF_ERROR(
        ReadInteger(value[i], absl::StrCat(name, "[", i, "]"), least, kMostExtent, &(*out)[i]));
  return absl::OkStatus();
}

absl::Status CheckArrayBytes(const ZarrMetadata& array) {
  int64_t bytes = array.element_bytes;
  for (const int64_t extent : array.shape) {
    if (extent > 0 && bytes > kMostArray / extent)
      return BadValue("shape", json(std::vector<int64_t>(array.shape.begin(), array.shape.end())),
                      "are arrays of less than 2^62 bytes");
    bytes *= std::max<int64_t>(extent, 1);
  }
  return absl::OkStatus();
}

absl::Status CheckCodecParameters(const std::string& name, const json& configuration,
                                  const std::string& where) {
  int64_t number = 0;
  const auto integer = [&](const char* member, int64_t least, int64_t most) {
    return configuration.contains(member)
               ? ReadInteger(configuration[member], MemberPath(where, member), least, most, &number)
               : absl::OkStatus();
  };
  if (name == "crc32c") return OnlyMembers(configuration, where, {});
  if (name == "gzip" || name == "zlib") {
    OCTAVO_RETURN_IF_ERROR(OnlyMembers(configuration, where, {"level"}));
    return integer("level", -1, 9);
  }
  if (name == "lz4") {
    OCTAVO_RETURN_IF_ERROR(OnlyMembers(configuration, where, {"acceleration"}));
    return integer("acceleration", 0, 0x7FFFFFFF);
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
    if (configuration.contains("cname")) {
      std::string cname;
      OCTAVO_RETURN_IF_ERROR(ReadMember(configuration, "cname", &cname, where));
      static constexpr absl::string_view kNames[] = {"blosclz", "lz4",  "lz4hc",
                                                     "snappy",  "zlib", "zstd"};
      if (std::find(std::begin(kNames), std::end(kNames), cname) == std::end(kNames))
        return NotRead(MemberPath(where, "cname"), cname,
                       absl::StrCat("are the codecs of Blosc ", absl::StrJoin(kNames, ", ")));
    }
    if (configuration.contains("shuffle")) {  // v3 has words, v2 numbers
      const json& shuffle = configuration["shuffle"];
      if (!(shuffle == "noshuffle" || shuffle == "shuffle" || shuffle == "bitshuffle" ||
            (shuffle.is_number_integer() && shuffle >= -1 && shuffle <= 2)))
        return BadValue(MemberPath(where, "shuffle"), shuffle,
                        "are \"noshuffle\", \"shuffle\", \"bitshuffle\" and, in v2, -1 to 2");
    }
    for (const auto& [member, least, most] :
         {std::tuple{"clevel", 0, 9}, {"typesize", 0, 255}, {"blocksize", 0, 0x7FFFFFFF}}) {
      OCTAVO_RETURN_IF_ERROR(integer(member, least, most));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ZarrChain> ElementChain(const AxisValues& shape, const std::string& name,
                                       const std::vector<size_t>& order, int64_t element_bytes) {
  ZarrChain chain;
  chain.shape = shape;
  chain.stride.resize(shape.size());
  int64_t bytes = element_bytes;
  for (size_t k = shape.size(); k > 0; --k) {
    const size_t axis = order[k - 1];
    if (shape[axis] > kMostChunk / bytes)
      return absl::DataLossError(
          absl::StrCat(name, " makes a chunk shape of more than ", kMostChunk, " bytes"));
    chain.stride[axis] = bytes;
    bytes *= shape[axis];
  }
  chain.bytes = chain.encoded = bytes;
  return chain;
}

absl::Status AppendStep(const ByteCodec& codec, const std::string& where, ZarrChain* chain) {
  ZarrChain::Step step{.codec = codec, .decoded = chain->encoded, .exact = chain->exact_encoded};
  if (!step.exact) step.decoded = std::min(step.decoded, kMostEncoded);
  int64_t encoded = codec.EncodedBytes(step.decoded);
  if (encoded < 0 && step.exact)
    return absl::DataLossError(absl::StrCat(where, " is ", codec.Name(),
                                            ", whose element does not"
                                            " divide the chunk's ",
                                            step.decoded, " bytes"));
  if (encoded < 0) encoded = step.decoded;  // of shuffle: checked with each chunk
  chain->exact_encoded = step.exact && codec.HasFixedSize();
  if (chain->exact_encoded && encoded > kMostEncoded)
    return absl::DataLossError(
        absl::StrCat(where, " makes more than ", kMostEncoded, " bytes of a chunk"));
  chain->encoded = std::min(encoded, kMostEncoded);
  chain->steps.push_back(step);
  return absl::OkStatus();
}

}  // namespace octavo::storage

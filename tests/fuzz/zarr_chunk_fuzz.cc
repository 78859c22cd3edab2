// Any bytes as the file of a chunk. The first byte chooses the array, the second one the box; the
// rest is the file. make_zarr_seeds.py knows the order of the arrays.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "gpu/base/json.h"
#include "tests/fuzz/zarr_support.h"

namespace octavo::storage {
namespace {

constexpr char kBytes[] = R"({"name":"bytes","configuration":{"endian":"little"}})";

std::string Shard(const std::string& chunk, const std::string& codecs, const std::string& location,
                  const std::string& checks = R"(,"crc32c")") {
  return absl::StrCat(R"({"name":"sharding_indexed","configuration":{"chunk_shape":)", chunk,
                      R"(,"codecs":[)", codecs, R"(],"index_codecs":[)", kBytes, checks,
                      R"(],"index_location":")", location, R"("}})");
}

/// uint16 [4, 6, 4] in one chunk.
ZarrMetadata V3(const std::string& codecs) {
  const auto array = ParseJson(absl::StrCat(
      R"({"zarr_format":3,"node_type":"array","shape":[4,6,4],"data_type":"uint16","fill_value":7,
      "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[4,6,4]}},
      "chunk_key_encoding":"default","codecs":[)",
      codecs, "]}"));
  auto meta = ParseZarrV3(*array);
  fuzz::Require(meta.ok());
  return *std::move(meta);
}
ZarrMetadata V2(const std::string& dtype, const std::string& filters, const std::string& codec) {
  const auto array = ParseJson(absl::StrCat(
      R"({"zarr_format":2,"shape":[4,6,4],"chunks":[4,6,4],"fill_value":null,"order":"F","dtype":")",
      dtype, R"(","filters":)", filters, R"(,"compressor":)", codec, "}"));
  auto meta = ParseZarrV2(*array);
  fuzz::Require(meta.ok());
  return *std::move(meta);
}

std::vector<ZarrMetadata> MakeArrays() {
  const std::string bytes = kBytes, gzip = R"({"name":"gzip"})", blosc = R"({"name":"blosc"})";
  const std::string turn = R"({"name":"transpose","configuration":{"order":[2,0,1]}},)";
  std::vector<ZarrMetadata> out;
  out.push_back(V3(bytes));
  out.push_back(V3(turn + bytes));
  out.push_back(V3(bytes + R"(,"gzip")"));
  out.push_back(V3(bytes + R"(,"zstd")"));
  out.push_back(V3(bytes + R"(,"blosc")"));
  out.push_back(V3(bytes + R"(,"crc32c")"));
  out.push_back(V3(bytes + R"(,"zstd","gzip","crc32c")"));
  out.push_back(V3(bytes + R"(,"blosc","zstd")"));
  out.push_back(V3(Shard("[2,3,4]", bytes, "end")));
  out.push_back(V3(Shard("[2,3,4]", bytes, "start", "")));
  out.push_back(V3(Shard("[2,3,2]", turn + bytes + R"(,"zstd")", "end", "")));
  out.push_back(V3(turn + Shard("[2,2,3]", bytes + R"(,"crc32c")", "start")));
  out.push_back(V3(Shard("[2,6,4]", Shard("[1,3,2]", bytes, "end", ""), "end", "")));
  out.push_back(V3(Shard("[2,3,4]", bytes + R"(,"gzip")", "end", "") + R"(,"zstd")"));
  out.push_back(V2("<u2", "null", R"({"id":"lz4"})"));
  out.push_back(V2(">u2", "null", R"({"id":"zlib"})"));
  out.push_back(
      V2("<i2", R"([{"id":"delta","dtype":"<i2","astype":"<i4"},{"id":"shuffle"}])", "null"));
  out.push_back(V2("|b1", R"([{"id":"packbits"}])", "null"));
  out.push_back(
      V2("<i2", R"([{"id":"astype","encode_dtype":"<f4","decode_dtype":"<i2"}])", "null"));
  out.push_back(V2(
      "<f4", R"([{"id":"fixedscaleoffset","scale":10,"offset":-3,"dtype":"<f4","astype":"|u1"}])",
      R"({"id":"zstd"})"));
  return out;
}

}  // namespace
}  // namespace octavo::storage

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace octavo::storage;  // NOLINT: the whole of this function is about it
  static const std::vector<ZarrMetadata> arrays = MakeArrays();
  if (size < 2 || size > 1 << 16) return 0;
  const ZarrMetadata& array = arrays[data[0] % arrays.size()];
  // Memory of just the file's size, so that reads behind it are found.
  const std::vector<char> file(data + 2, data + size);
  AxisValues from(3, 0), count = array.shape;
  const auto missing = (data[1] & 0x80) != 0 ? MissingChunk::kDamage : MissingChunk::kFill;
  if ((data[1] & 1) != 0) {
    from = {1, 2, (data[1] >> 1) & 3};
    count = {2, 3, 4 - from[2]};
  }
  fuzz::ReadBox(array, {file.data(), file.size()}, from, count, missing);
  return 0;
}

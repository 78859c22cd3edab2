// Zarr metadata as other programs and attackers write them: the reader returns exact values, or
// errors that name the member.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "server/storage/zarr/reader.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::storage {
namespace {

using nlohmann::json;
using octavo::testing::IsOk;
using octavo::testing::TempFolder;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kV3[] = R"({"zarr_format":3,"node_type":"array","shape":[2,3,4],"data_type":"uint16",
    "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[1,3,4]}},
    "chunk_key_encoding":{"name":"default","configuration":{"separator":"/"}},
    "fill_value":7,"codecs":[{"name":"bytes","configuration":{"endian":"little"}},{"name":"zstd","configuration":{"level":1,"checksum":false}}],
    "attributes":{"a":1},"dimension_names":["y",null,"z"]})";
constexpr char kV2[] =
    R"({"zarr_format":2,"shape":[2,3,4],"chunks":[1,3,4],"dtype":"<u2","compressor":{"id":"blosc","cname":"lz4","clevel":5,
    "shuffle":1,"blocksize":0},"fill_value":7,"order":"C","filters":null,"dimension_separator":"/"})";
constexpr char kSharded[] = R"([{"name":"sharding_indexed","configuration":{"chunk_shape":[1,3,2],
    "codecs":[{"name":"bytes","configuration":{"endian":"little"}},{"name":"gzip","configuration":{"level":5}}],
    "index_codecs":[{"name":"bytes","configuration":{"endian":"little"}},{"name":"crc32c"}],"index_location":"end"}}])";

class ZarrMetadataTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<ZarrArrayReader>> Open(const std::string& text, bool v3) {
    const std::string name = absl::StrCat("array", count_++);
    std::filesystem::create_directories(folder_ / name);
    folder_.Write(name + (v3 ? "/zarr.json" : "/.zarray"), text);
    return ZarrArrayReader::Open(folder_ / name, MissingChunk::kFill, {});
  }
  /// The fill value of an element as hexadecimal digits, first byte first.
  absl::StatusOr<std::string> Fill(const std::string& type, const std::string& fill, bool v3,
                                   const std::string& endian) {
    std::string text;
    if (v3) {
      json array = json::parse(kV3);
      array["data_type"] = type;
      array["codecs"] = json::array({{{"name", "bytes"}, {"configuration", {{"endian", endian}}}}});
      array["fill_value"] = "HERE";
      text = array.dump();
    } else {
      json array = json::parse(kV2);
      array["dtype"] = type;
      array["fill_value"] = "HERE";
      text = array.dump();
    }
    auto opened = Open(absl::StrReplaceAll(text, {{"\"HERE\"", fill}}), v3);
    if (!opened.ok()) return opened.status();
    const int64_t start[3] = {0, 0, 0}, count[3] = {2, 3, 4};
    std::string out(static_cast<size_t>(24 * (*opened)->element_bytes()), 'x');
    EXPECT_THAT((*opened)->Read(start, count, out.data()), IsOk());
    const std::string first = out.substr(0, static_cast<size_t>((*opened)->element_bytes()));
    for (size_t i = 0; i < out.size(); i += first.size())
      EXPECT_EQ(out.substr(i, first.size()), first);
    return absl::BytesToHexString(first);
  }

  const TempFolder folder_;
  int count_ = 0;
};

std::string Reversed(const std::string& hex, size_t part_bytes) {
  std::string bytes = absl::HexStringToBytes(hex);
  for (size_t at = 0; at < bytes.size(); at += part_bytes) {
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                 bytes.begin() + static_cast<std::ptrdiff_t>(at + part_bytes));
  }
  return absl::BytesToHexString(bytes);
}

struct Value {
  const char* type;  // type in v3
  const char* v2;    // type in v2 without its byte order; "" = v3 only
  const char* fill;  // JSON
  // Most significant byte first, the parts of complex numbers separately; "" = refused.
  const char* bits;
};
// Half precision: the expected bits are numpy.float16's.
const Value kValues[] = {
    {"bool", "b1", "true", "01"},
    {"bool", "b1", "false", "00"},
    {"bool", "b1", "1", ""},
    {"bool", "b1", "\"true\"", ""},
    {"uint8", "u1", "255", "ff"},
    {"uint8", "u1", "256", ""},
    {"uint8", "u1", "-1", ""},
    {"int8", "i1", "-128", "80"},
    {"int8", "i1", "127", "7f"},
    {"int8", "i1", "128", ""},
    {"uint16", "u2", "65535", "ffff"},
    {"uint16", "u2", "65536", ""},
    {"uint16", "u2", "1.5", ""},
    {"uint16", "u2", "\"7\"", ""},
    {"uint16", "u2", "\"NaN\"", ""},
    {"uint16", "u2", "\"0x0007\"", ""},
    {"uint16", "u2", "true", ""},
    {"int16", "i2", "-32768", "8000"},
    {"int16", "i2", "-32769", ""},
    {"uint32", "u4", "4294967295", "ffffffff"},
    {"uint32", "u4", "4294967296", ""},
    {"int32", "i4", "-2147483648", "80000000"},
    {"uint64", "u8", "18446744073709551615", "ffffffffffffffff"},
    {"uint64", "u8", "9007199254740993", "0020000000000001"},  // no double equals it
    {"uint64", "u8", "18446744073709551616", ""},
    {"uint64", "u8", "-1", ""},
    {"int64", "i8", "-9223372036854775808", "8000000000000000"},
    {"int64", "i8", "-9223372036854775809", ""},
    {"int64", "i8", "9223372036854775807", "7fffffffffffffff"},
    {"int64", "i8", "9223372036854775808", ""},
    {"int64", "i8", "-9007199254740993", "ffdfffffffffffff"},
    {"int64", "i8", "1e3", nullptr},
    {"float16", "f2", "1", "3c00"},
    {"float16", "f2", "-0.0", "8000"},
    {"float16", "f2", "0", "0000"},
    {"float16", "f2", "0.1", "2e66"},
    {"float16", "f2", "65504", "7bff"},
    {"float16", "f2", "65519.99", "7bff"},
    {"float16", "f2", "65520", ""},
    {"float16", "f2", "-1e5", ""},
    {"float16", "f2", "6e-8", "0001"},
    {"float16", "f2", "2.9e-8", "0000"},
    {"float16", "f2", "6.097e-5", "03ff"},
    {"float16", "f2", "6.1034e-5", "0400"},
    {"float16", "f2", "2049", "6800"},  // rounds to even
    {"float16", "f2", "2051", "6802"},
    {"float16", "f2", "1.00048828125001",
     "3c01"},  // above the middle by less than a float can resolve
    {"float16", "f2", "\"NaN\"", "7e00"},
    {"float16", "f2", "\"Infinity\"", "7c00"},
    {"float16", "f2", "\"-Infinity\"", "fc00"},
    {"float16", "", "\"0x7e01\"", "7e01"},
    {"float16", "", "\"0x7E\"", ""},
    {"float32", "f4", "0.1", "3dcccccd"},
    {"float32", "f4", "16777217", "4b800000"},
    {"float32", "f4", "3.4028235e38", "7f7fffff"},
    {"float32", "f4", "3.5e38", ""},
    {"float32", "f4", "\"NaN\"", "7fc00000"},
    {"float32", "f4", "\"nan\"", ""},
    {"float32", "f4", "\"\"", ""},
    {"float32", "f4", "[0]", ""},
    {"float32", "", "\"0xFFc12345\"", "ffc12345"},
    {"float32", "", "\"0xffc1234\"", ""},
    {"float32", "", "\"0xffc123456\"", ""},
    {"float32", "", "\"0x-fc12345\"", ""},
    {"float32", "", "\"ffc12345\"", ""},
    {"float32", "", "null", ""},
    {"float64", "f8", "0.1", "3fb999999999999a"},
    {"float64", "f8", "-1.7976931348623157e308", "ffefffffffffffff"},
    {"float64", "f8", "1e400", ""},
    {"float64", "f8", "\"-Infinity\"", "fff0000000000000"},
    {"float64", "", "\"0x7ff8000000000001\"", "7ff8000000000001"},
    {"complex64", "c8", "[1,-2.5]", "3f800000c0200000"},
    {"complex64", "c8", "[\"NaN\",\"Infinity\"]", "7fc000007f800000"},
    {"complex64", "", "[\"0x00000001\",0]", "0000000100000000"},
    {"complex64", "c8", "1", ""},
    {"complex64", "c8", "[1]", ""},
    {"complex64", "c8", "[1,\"x\"]", ""},
    {"complex128", "c16", "[0.1,\"-Infinity\"]", "3fb999999999999afff0000000000000"},
};

TEST_F(ZarrMetadataTest, FillValuesAreExactOrRefused) {
  for (const Value& value : kValues) {
    for (const std::string version : {"3", "2"}) {
      if (version == "2" && value.v2[0] == '\0') continue;
      for (const std::string endian : {"little", "big"}) {
        const std::string what =
            absl::StrCat("v", version, " ", value.type, " ", value.fill, " ", endian);
        const std::string type =
            version == "3" ? value.type : absl::StrCat(endian == "little" ? "<" : ">", value.v2);
        const auto got = Fill(type, value.fill, version == "3", endian);
        // v2 may write integers as floats.
        const std::string bits = value.bits != nullptr ? value.bits
                                 : version == "2"      ? "00000000000003e8"
                                                       : "";
        if (bits.empty()) {
          ASSERT_FALSE(got.ok()) << what << " is taken for " << *got;
          const std::string text(got.status().message());
          EXPECT_THAT(text, Not(HasSubstr("json.exception"))) << what;
          if (!absl::StrContains(value.fill, "e400"))
            EXPECT_THAT(text, HasSubstr("fill_value")) << what;  // not a JSON number
          continue;
        }
        ASSERT_THAT(got, IsOk()) << what;
        const size_t part = bits.size() / 2 / (value.type[0] == 'c' ? 2 : 1);
        EXPECT_EQ(*got, endian == "little" ? Reversed(bits, part) : bits) << what;
      }
    }
  }
  EXPECT_EQ(*Fill("<f8", "null", false, ""), "0000000000000000");
}

struct Bad {
  const char* what;
  std::function<void(json&)> change;
  absl::StatusCode code;
  std::vector<std::string> words;
};

TEST_F(ZarrMetadataTest, V3IsReadStrictly) {
  const auto damaged = absl::StatusCode::kDataLoss, unknown = absl::StatusCode::kUnimplemented;
  const auto grid = [](json& a) -> json& { return a["chunk_grid"]["configuration"]; };
  const auto codec = [](json& a) -> json& { return a["codecs"][1]; };
  const auto shard = [](json& a) -> json& {
    return (a["codecs"] = json::parse(kSharded))[0]["configuration"];
  };
  const std::vector<Bad> cases = {
      {"shape of 1.5",
       [](json& a) { a["shape"][1] = 1.5; },
       damaged,
       {"shape[1] is 1.5", "integers from 0"}},
      {"shape of 3.0", [](json& a) { a["shape"][1] = 3.0; }, damaged, {"shape[1] is 3.0"}},
      {"shape below 0", [](json& a) { a["shape"][2] = -4; }, damaged, {"shape[2] is -4"}},
      {"huge shape",
       [](json& a) { a["shape"][0] = uint64_t{1} << 63; },
       damaged,
       {"shape[0] is 9223372036854775808"}},
      {"shape of text",
       [](json& a) { a["shape"] = "2,3,4"; },
       damaged,
       {"shape is \"2,3,4\"", "arrays"}},
      {"shape of true", [](json& a) { a["shape"][0] = true; }, damaged, {"shape[0] is true"}},
      {"no shape", [](json& a) { a.erase("shape"); }, damaged, {"shape is missing"}},
      {"33 axes",
       [](json& a) { a["shape"] = std::vector<int>(33, 1); },
       damaged,
       {"shape", "at most 32"}},
      {"shape and chunks",
       [](json& a) {
         a["shape"] = {6, 4};
       },
       damaged,
       {"chunk_grid.configuration.chunk_shape has 3"}},
      {"chunk of 0",
       [&](json& a) { grid(a)["chunk_shape"][0] = 0; },
       damaged,
       {"chunk_shape[0] is 0", "from 1"}},
      {"chunk of 1.5",
       [&](json& a) { grid(a)["chunk_shape"][0] = 1.5; },
       damaged,
       {"chunk_shape[0] is 1.5"}},
      {"no chunk shape",
       [&](json& a) { grid(a).erase("chunk_shape"); },
       damaged,
       {"chunk_grid.configuration.chunk_shape is missing"}},
      {"another grid",
       [](json& a) { a["chunk_grid"]["name"] = "rectangular"; },
       unknown,
       {"chunk_grid is \"rectangular\""}},
      {"grid with more",
       [&](json& a) { grid(a)["offset"] = 3; },
       unknown,
       {"chunk_grid.configuration", "offset", "not known"}},
      {"format 3.0", [](json& a) { a["zarr_format"] = 3.0; }, damaged, {"zarr_format is 3.0"}},
      {"format 4", [](json& a) { a["zarr_format"] = 4; }, damaged, {"zarr_format is 4"}},
      {"a group", [](json& a) { a["node_type"] = "group"; }, damaged, {"node_type is \"group\""}},
      {"no node type", [](json& a) { a.erase("node_type"); }, damaged, {"node_type is missing"}},
      {"text type",
       [](json& a) { a["data_type"] = "string"; },
       unknown,
       {"data_type is \"string\""}},
      {"type of an object",
       [](json& a) {
         a["data_type"] = {{"name", "datetime"}};
       },
       unknown,
       {"data_type is {"}},
      {"a member more",
       [](json& a) {
         a["compression_dictionary"] = {{"x", 1}};
       },
       unknown,
       {"compression_dictionary", "not known"}},
      {"a member of null", [](json& a) { a["extra"] = nullptr; }, unknown, {"extra", "not known"}},
      {"must be understood",
       [](json& a) {
         a["extra"] = {{"must_understand", true}};
       },
       unknown,
       {"extra", "not known"}},
      {"must_understand of text",
       [](json& a) {
         a["extra"] = {{"must_understand", "false"}};
       },
       unknown,
       {"extra", "not known"}},
      {"a transformer",
       [](json& a) {
         a["storage_transformers"] = json::array({{{"name", "chunk-manifest-json"}}});
       },
       unknown,
       {"storage_transformers"}},
      {"transformers of an object",
       [](json& a) { a["storage_transformers"] = json::object(); },
       damaged,
       {"storage_transformers is {}"}},
      {"no fill value", [](json& a) { a.erase("fill_value"); }, damaged, {"fill_value is missing"}},
      {"null fill value",
       [](json& a) { a["fill_value"] = nullptr; },
       damaged,
       {"fill_value is null", "0 to 65535"}},
      {"keys of another kind",
       [](json& a) { a["chunk_key_encoding"]["name"] = "suffix"; },
       unknown,
       {"chunk_key_encoding is \"suffix\""}},
      {"another separator",
       [](json& a) { a["chunk_key_encoding"]["configuration"]["separator"] = "_"; },
       damaged,
       {"chunk_key_encoding.configuration.separator is \"_\""}},
      {"separator of a number",
       [](json& a) { a["chunk_key_encoding"]["configuration"]["separator"] = 1; },
       damaged,
       {"separator is 1"}},
      {"no codecs", [](json& a) { a["codecs"] = json::array(); }, damaged, {"codecs is []"}},
      {"codecs of an object",
       [](json& a) { a["codecs"] = json::object(); },
       damaged,
       {"codecs is {}"}},
      {"no endian",
       [](json& a) { a["codecs"][0].erase("configuration"); },
       damaged,
       {"codecs[0].configuration.endian is missing"}},
      {"name alone",
       [](json& a) { a["codecs"][0] = "bytes"; },
       damaged,
       {"codecs[0].configuration.endian is missing"}},
      {"middle endian",
       [](json& a) { a["codecs"][0]["configuration"]["endian"] = "middle"; },
       damaged,
       {"codecs[0].configuration.endian is \"middle\""}},
      {"transpose alone",
       [](json& a) {
         a["codecs"] =
             json::array({{{"name", "transpose"}, {"configuration", {{"order", {2, 1, 0}}}}}});
       },
       damaged,
       {"codecs is [", "'bytes'"}},
      {"transpose twice the same axis",
       [](json& a) {
         a["codecs"].insert(a["codecs"].begin(),
                            json{{"name", "transpose"}, {"configuration", {{"order", {2, 1, 1}}}}});
       },
       damaged,
       {"codecs[0].configuration.order is [2,1,1]", "each of them once"}},
      {"transpose of an axis that is not there",
       [](json& a) {
         a["codecs"].insert(a["codecs"].begin(),
                            json{{"name", "transpose"}, {"configuration", {{"order", {3, 1, 0}}}}});
       },
       damaged,
       {"codecs[0].configuration.order[0] is 3"}},
      {"transpose of a letter",
       [](json& a) {
         a["codecs"].insert(a["codecs"].begin(),
                            json{{"name", "transpose"}, {"configuration", {{"order", "F"}}}});
       },
       damaged,
       {"codecs[0].configuration.order is \"F\""}},
      {"transpose behind bytes",
       [](json& a) {
         a["codecs"][1] = {{"name", "transpose"}, {"configuration", {{"order", {2, 1, 0}}}}};
       },
       damaged,
       {"codecs[1] is \"transpose\"", "codecs of bytes"}},
      {"no codec that makes bytes",
       [](json& a) { a["codecs"].erase(0); },
       unknown,
       {"codecs[0] is \"zstd\"", "bytes or sharding_indexed"}},
      {"crc32c with a parameter",
       [](json& a) {
         a["codecs"][1] = {{"name", "crc32c"}, {"configuration", {{"seed", 1}}}};
       },
       unknown,
       {"codecs[1].configuration", "seed"}},
      {"blosc of an unknown compressor",
       [](json& a) {
         a["codecs"][1] = {{"name", "blosc"}, {"configuration", {{"cname", "oodle"}}}};
       },
       unknown,
       {"codecs[1].configuration.cname is \"oodle\""}},
      {"17 codecs",
       [](json& a) { a["codecs"].insert(a["codecs"].end(), 15, json("crc32c")); },
       damaged,
       {"codecs is [", "1 to 16"}},
      {"raw bits that are no bytes",
       [](json& a) { a["data_type"] = "r12"; },
       unknown,
       {"data_type is \"r12\""}},
      {"a fill value of raw bits",
       [](json& a) {
         a["data_type"] = "r24";
         a["fill_value"] = {1, 256, 3};
       },
       damaged,
       {"fill_value[1] is 256"}},
      {"another compressor",
       [&](json& a) {
         codec(a) = {{"name", "lzma"}};
       },
       unknown,
       {"codecs[1] is \"lzma\"", "codec"}},
      {"zlib is v2's",
       [&](json& a) {
         codec(a) = {{"name", "zlib"}};
       },
       unknown,
       {"codecs[1] is \"zlib\""}},
      {"a codec of a number", [&](json& a) { codec(a) = 5; }, damaged, {"codecs[1] is 5"}},
      {"level of text",
       [&](json& a) { codec(a)["configuration"]["level"] = "1"; },
       damaged,
       {"codecs[1].configuration.level is \"1\""}},
      {"a codec with more",
       [&](json& a) { codec(a)["configuration"]["dictionary"] = 1; },
       unknown,
       {"codecs[1].configuration", "dictionary", "not known"}},
      {"names of two axes",
       [](json& a) {
         a["dimension_names"] = {"y", "x"};
       },
       damaged,
       {"dimension_names is [\"y\",\"x\"]"}},
      {"names of numbers",
       [](json& a) { a["dimension_names"][0] = 3; },
       damaged,
       {"dimension_names"}},
      {"attributes of text",
       [](json& a) { a["attributes"] = "x"; },
       damaged,
       {"attributes is \"x\""}},
      {"inner chunk",
       [&](json& a) {
         shard(a)["chunk_shape"] = {1, 2, 2};
       },
       damaged,
       {"codecs[0].configuration.chunk_shape[1] is 2", "divisors"}},
      {"inner chunk of 1.5",
       [&](json& a) { shard(a)["chunk_shape"][2] = 1.5; },
       damaged,
       {"codecs[0].configuration.chunk_shape[2] is 1.5"}},
      {"index nowhere",
       [&](json& a) { shard(a)["index_location"] = 0; },
       damaged,
       {"codecs[0].configuration.index_location is 0"}},
      {"index with gzip",
       [&](json& a) {
         shard(a)["index_codecs"][1] = {{"name", "gzip"}};
       },
       unknown,
       {"codecs[0].configuration.index_codecs[1] is \"gzip\"", "crc32c"}},
      {"index of the middle endian",
       [&](json& a) { shard(a)["index_codecs"][0]["configuration"]["endian"] = "middle"; },
       damaged,
       {"index_codecs[0]", "endian is \"middle\""}},
      {"index that begins with crc32c",
       [&](json& a) { shard(a)["index_codecs"].erase(0); },
       unknown,
       {"codecs[0].configuration.index_codecs[0] is \"crc32c\""}},
      {"no index codecs",
       [&](json& a) { shard(a).erase("index_codecs"); },
       damaged,
       {"codecs[0].configuration.index_codecs is missing"}},
      {"shards five deep",
       [&](json& a) {
         json inner = json::parse(kSharded);
         for (int i = 0; i < 4; ++i) {
           json outer = json::parse(kSharded);
           outer[0]["configuration"]["codecs"] = inner;
           inner = outer;
         }
         a["codecs"] = inner;
       },
       unknown,
       {"is \"sharding_indexed\"", "4 deep"}},
      {"inner chunks of two axes",
       [&](json& a) {
         shard(a)["chunk_shape"] = {1, 3};
       },
       damaged,
       {"codecs[0].configuration.chunk_shape has 2"}},
      {"a huge shard",
       [&](json& a) {
         shard(a)["chunk_shape"] = {1, 1, 1};
         grid(a)["chunk_shape"] = {1 << 20, 1 << 20, 1 << 20};
       },
       damaged,
       {"chunk_grid.configuration.chunk_shape makes a chunk shape of more than 16777216 parts"}},
      {"a huge chunk",
       [&](json& a) {
         grid(a)["chunk_shape"] = {1 << 20, 1 << 20, 1 << 20};
       },
       damaged,
       {"chunk_grid.configuration.chunk_shape makes a chunk shape of more than 2147483648 bytes"}},
      {"a huge array",
       [&](json& a) {
         a["shape"] = {int64_t{1} << 40, int64_t{1} << 40, 4};
       },
       damaged,
       {"shape is [1099511627776,1099511627776,4]", "2^62 bytes"}},
      {"an array", [](json& a) { a = json::array({a}); }, damaged, {"allowed are objects"}},
      {"a long value",
       [](json& a) { a["data_type"] = std::string(100'000, 'x'); },
       unknown,
       {"data_type is \"xxx", "..."}},
  };
  for (const Bad& bad : cases) {
    json array = json::parse(kV3);
    bad.change(array);
    const auto opened = Open(array.dump(), true);
    ASSERT_FALSE(opened.ok()) << bad.what;
    const std::string text(opened.status().message());
    EXPECT_EQ(opened.status().code(), bad.code) << bad.what << ": " << text;
    for (const std::string& word : bad.words) EXPECT_THAT(text, HasSubstr(word)) << bad.what;
    EXPECT_THAT(text, HasSubstr("/zarr.json")) << bad.what;
    EXPECT_THAT(text, Not(HasSubstr("json.exception"))) << bad.what;
    EXPECT_LT(text.size(), 600u) << bad.what;
  }
  // Variants that are still valid.
  const std::vector<std::function<void(json&)>> fine = {
      [](json&) {},
      [](json& a) {
        a["extra"] = {{"must_understand", false}, {"x", 1}};
      },
      [](json& a) { a["storage_transformers"] = json::array(); },
      [](json& a) { a.erase("attributes"), a.erase("dimension_names"); },
      [](json& a) { a["chunk_key_encoding"] = "default"; },
      [](json& a) {
        a["chunk_key_encoding"] = {{"name", "v2"}};
      },
      [](json& a) { a["codecs"][1] = "gzip"; },
      [](json& a) { a["codecs"].erase(1); },
      [&](json& a) { a["codecs"].push_back(codec(a)); },
      [](json& a) { a["codecs"].push_back("crc32c"); },
      [](json& a) { a["codecs"] = json::parse(kSharded); },
      [&](json& a) { shard(a)["index_location"] = "start"; },
      [&](json& a) { shard(a)["index_codecs"].erase(1); },
      [&](json& a) { shard(a)["index_codecs"][0]["configuration"]["endian"] = "big"; },
      [&](json& a) {
        auto inner = json::parse(kSharded);
        shard(a)["codecs"] = inner;
      },
      [&](json& a) {
        a["shape"] = {2, 2, 3, 4}, grid(a)["chunk_shape"] = {1, 1, 3, 4};
        a.erase("dimension_names");
      },
      [&](json& a) {
        a["shape"] = json::array(), grid(a)["chunk_shape"] = json::array();
        a.erase("dimension_names");
      },
      [](json& a) {
        a["data_type"] = "r24";
        a["fill_value"] = {1, 255, 0};
        a["codecs"][0] = "bytes";
      },
      [](json& a) { a["shape"][0] = 0; },
      [](json& a) { a["data_type"] = "uint8", a["codecs"][0] = "bytes"; },
  };
  for (size_t i = 0; i < fine.size(); ++i) {
    json array = json::parse(kV3);
    fine[i](array);
    EXPECT_THAT(Open(array.dump(), true), IsOk()) << i;
  }
}

TEST_F(ZarrMetadataTest, V2IsReadStrictly) {
  const auto damaged = absl::StatusCode::kDataLoss, unknown = absl::StatusCode::kUnimplemented;
  const std::vector<Bad> cases = {
      {"shape of 1.5", [](json& a) { a["shape"][1] = 1.5; }, damaged, {"shape[1] is 1.5"}},
      {"chunks of 1.5", [](json& a) { a["chunks"][0] = 1.5; }, damaged, {"chunks[0] is 1.5"}},
      {"fewer chunks",
       [](json& a) {
         a["chunks"] = {1, 3};
       },
       damaged,
       {"chunks has 2"}},
      {"format of text",
       [](json& a) { a["zarr_format"] = "2"; },
       damaged,
       {"zarr_format is \"2\""}},
      {"no dtype", [](json& a) { a.erase("dtype"); }, damaged, {"dtype is missing"}},
      {"structured",
       [](json& a) {
         a["dtype"] = json::array({{"a", "<u2"}});
       },
       unknown,
       {"dtype is [["}},
      {"text", [](json& a) { a["dtype"] = "|S4"; }, unknown, {"dtype is \"|S4\""}},
      {"no byte order", [](json& a) { a["dtype"] = "|u2"; }, damaged, {"dtype is \"|u2\""}},
      {"odd byte order", [](json& a) { a["dtype"] = "=u2"; }, damaged, {"dtype is \"=u2\""}},
      {"a sign", [](json& a) { a["dtype"] = "<u+2"; }, unknown, {"dtype is \"<u+2\""}},
      {"no order", [](json& a) { a.erase("order"); }, damaged, {"order is missing"}},
      {"a filter without its type",
       [](json& a) {
         a["filters"] = json::array({{{"id", "delta"}}});
       },
       damaged,
       {"filters[0].dtype is missing"}},
      {"an unknown filter",
       [](json& a) {
         a["filters"] = json::array({{{"id", "shuffle"}}, {{"id", "bitround"}, {"keepbits", 3}}});
       },
       unknown,
       {"filters[1].id is \"bitround\"", "packbits"}},
      {"a filter of text",
       [](json& a) {
         a["filters"] = json::array({{{"id", "categorize"}, {"dtype", "|U4"}}});
       },
       unknown,
       {"filters[0].id is \"categorize\""}},
      {"shuffle that does not divide",
       [](json& a) {
         a["filters"] = json::array({{{"id", "shuffle"}, {"elementsize", 5}}});
       },
       damaged,
       {"filters[0] is shuffle", "24 bytes"}},
      {"delta of half precision",
       [](json& a) {
         a["filters"] = json::array({{{"id", "delta"}, {"dtype", "<f2"}}});
       },
       unknown,
       {"filters[0] is {", "float16"}},
      {"a scale of 0",
       [](json& a) {
         a["filters"] = json::array(
             {{{"id", "fixedscaleoffset"}, {"dtype", "<f4"}, {"scale", 0}, {"offset", 1}}});
       },
       damaged,
       {"filters[0].scale is 0"}},
      {"nine filters",
       [](json& a) {
         a["filters"] = json(9, json{{"id", "shuffle"}});
       },
       damaged,
       {"filters is ["}},
      {"filters of text",
       [](json& a) { a["filters"] = "delta"; },
       damaged,
       {"filters is \"delta\""}},
      {"another compressor",
       [](json& a) {
         a["compressor"] = {{"id", "bz2"}};
       },
       unknown,
       {"compressor.id is \"bz2\"", "codec"}},
      {"lzma",
       [](json& a) {
         a["compressor"] = {{"id", "lzma"}};
       },
       unknown,
       {"compressor.id is \"lzma\"", "codec"}},
      {"a compressor without id",
       [](json& a) { a["compressor"] = json::object(); },
       damaged,
       {"compressor.id is missing"}},
      {"a compressor of text",
       [](json& a) { a["compressor"] = "gzip"; },
       damaged,
       {"compressor is \"gzip\""}},
      {"another level",
       [](json& a) { a["compressor"]["clevel"] = 10; },
       damaged,
       {"compressor.clevel is 10"}},
      {"another shuffle",
       [](json& a) { a["compressor"]["shuffle"] = 3; },
       damaged,
       {"compressor.shuffle is 3"}},
      {"no compressor", [](json& a) { a.erase("compressor"); }, damaged, {"compressor is missing"}},
      {"no fill value", [](json& a) { a.erase("fill_value"); }, damaged, {"fill_value is missing"}},
      {"another separator",
       [](json& a) { a["dimension_separator"] = ","; },
       damaged,
       {"dimension_separator is \",\""}},
  };
  for (const Bad& bad : cases) {
    json array = json::parse(kV2);
    bad.change(array);
    const auto opened = Open(array.dump(), false);
    ASSERT_FALSE(opened.ok()) << bad.what;
    const std::string text(opened.status().message());
    EXPECT_EQ(opened.status().code(), bad.code) << bad.what << ": " << text;
    for (const std::string& word : bad.words) EXPECT_THAT(text, HasSubstr(word)) << bad.what;
    EXPECT_THAT(text, HasSubstr("/.zarray")) << bad.what;
    EXPECT_THAT(text, Not(HasSubstr("json.exception"))) << bad.what;
  }
  for (const auto& fine : std::vector<std::function<void(json&)>>{
           [](json&) {}, [](json& a) { a["writer"] = "somebody"; },
           [](json& a) { a["filters"] = json::array(); },
           [](json& a) { a.erase("dimension_separator"); },
           [](json& a) { a["compressor"] = nullptr; }, [](json& a) { a["order"] = "F"; },
           [](json& a) {
             a["compressor"] = {{"id", "lz4"}, {"acceleration", 1}};
           },
           [](json& a) {
             a["filters"] = json::array({{{"id", "shuffle"}}});
           },
           [](json& a) { a["dtype"] = "|V3", a["fill_value"] = "AQL/"; }}) {
    json array = json::parse(kV2);
    fine(array);
    EXPECT_THAT(Open(array.dump(), false), IsOk()) << array.dump();
  }
}

// Invalid documents, and documents that may confuse a parser.
TEST_F(ZarrMetadataTest, TextsThatAreNoMetadata) {
  for (const bool v3 : {true, false}) {
    const std::string whole = v3 ? kV3 : kV2;
    const std::string nested = std::string(70'000, '[') + std::string(70'000, ']');
    for (const std::string& text :
         {std::string(), std::string("{"), std::string("null"), std::string("[]"), whole + "x",
          whole.substr(0, whole.size() - 1), std::string("\xff\xfe{}"), nested,
          absl::StrCat("{\"shape\":", nested, "}"), whole.substr(0, 20) + '\0' + whole.substr(20),
          absl::StrReplaceAll(whole, {{"\"shape\":", "\"shape\":[1],\"shape\":"}})}) {
      const auto opened = Open(text, v3);
      ASSERT_FALSE(opened.ok()) << text.substr(0, 60);
      EXPECT_EQ(opened.status().code(), absl::StatusCode::kDataLoss) << opened.status();
      EXPECT_THAT(std::string(opened.status().message()), Not(HasSubstr("json.exception")));
      EXPECT_LT(opened.status().message().size(), 600u);
    }
  }
  // Members of any type: the call returns, with an error message.
  std::mt19937 random(octavo::testing::Seeds::Get().Next());
  const std::vector<json> odd = {
      nullptr,           true,         0,   -1,   1.5,           1e300,
      uint64_t{1} << 63, "",           "x", "0x", json::array(), json::array({nullptr}),
      json::object(),    {{"name", 3}}};
  for (int i = 0; i < 2000; ++i) {
    const bool v3 = random() % 2 == 0;
    json array = json::parse(v3 ? kV3 : kV2);
    if (v3 && random() % 3 == 0) array["codecs"] = json::parse(kSharded);
    const json flat = array.flatten();
    for (int changes = 1 + static_cast<int>(random() % 2); changes > 0; --changes) {
      auto at = flat.begin();
      std::advance(at, static_cast<std::ptrdiff_t>(random() % flat.size()));
      json::json_pointer pointer(at.key());
      while (random() % 3 == 0 && !pointer.parent_pointer().empty())
        pointer = pointer.parent_pointer();
      if (array.contains(pointer)) array[pointer] = odd[random() % odd.size()];
    }
    const auto opened = Open(array.dump(), v3);
    if (!opened.ok())
      EXPECT_THAT(std::string(opened.status().message()), Not(HasSubstr("json.exception")))
          << array.dump();
  }
}

}  // namespace
}  // namespace octavo::storage

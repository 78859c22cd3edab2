// Zarr arrays that other programs wrote, whole, in boxes and in pieces; and damaged ones.

#include "server/storage/zarr/reader.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <vector>
#include <zlib.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "server/storage/io/crc32c.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::storage {
namespace {

using nlohmann::json;
using octavo::testing::FreshSeed;
using octavo::testing::IsError;
using octavo::testing::IsOk;
using octavo::testing::TempFolder;
using ::testing::HasSubstr;
using ::testing::Not;
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;

std::string FileText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Other contents for a file, in place: file systems write files to the disk that are made empty
/// first and filled again, which takes most of the time of a test that does it often.
void Overwrite(const std::string& path, const std::string& text) {
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out)
      .write(text.data(), static_cast<std::streamsize>(text.size()));
  if (std::filesystem::file_size(path) != text.size())
    std::filesystem::resize_file(path, text.size());
}

/// A box of packed elements in C order.
std::string Part(const std::string& whole, absl::Span<const int64_t> shape, size_t element,
                 const AxisValues& start, const AxisValues& count) {
  std::string out;
  const AxisValues strides = PackedStrides(shape, static_cast<int64_t>(element));
  int64_t all = 1;
  for (const int64_t n : count) all *= n;
  for (int64_t i = 0; i < all; ++i) {
    int64_t rest = i, at = 0;
    for (size_t d = count.size(); d > 0; --d) {
      at += (start[d - 1] + rest % count[d - 1]) * strides[d - 1];
      rest /= count[d - 1];
    }
    out.append(whole, static_cast<size_t>(at), element);
  }
  return out;
}

class ZarrReaderTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_NE(std::getenv("OCTAVO_SOURCE_DIR"), nullptr); }

  /// Runs a writer of arrays in the folder; a line of JSON for each. Nothing if it lacks a module.
  std::vector<json> Write(const std::string& script, const std::string& mode) {
    const std::string command = absl::StrCat(
        "/usr/bin/python3 -B '", std::getenv("OCTAVO_SOURCE_DIR"), "/tests/server/storage/zarr/",
        script, "' '", folder_.path(), "' ", FreshSeed(), " ", mode);
    FILE* const writer = ::popen(command.c_str(), "r");
    if (writer == nullptr) return {};
    std::string text;
    for (char piece[4096]; const size_t n = std::fread(piece, 1, sizeof piece, writer);)
      text.append(piece, n);
    const int code = ::pclose(writer);
    skipped_ = WIFEXITED(code) && WEXITSTATUS(code) == 77;
    EXPECT_TRUE(code == 0 || skipped_) << command;
    std::vector<json> arrays;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) arrays.push_back(json::parse(line));
    return arrays;
  }

  /// The whole array, boxes of it with and without strides, and its plan, against `wanted`.
  void ExpectContents(const ZarrArrayReader& array, const std::string& wanted,
                      std::mt19937& random) {
    const auto element = static_cast<size_t>(array.element_bytes());
    const auto rank = static_cast<size_t>(array.rank());
    for (int i = 0; i < 6; ++i) {
      AxisValues start(rank), count(rank);
      for (size_t d = 0; d < rank; ++d) {
        const int64_t extent = array.shape()[d];
        start[d] = i == 0 ? 0 : static_cast<int64_t>(random() % static_cast<uint64_t>(extent + 1));
        count[d] =
            i == 0 ? extent
                   : static_cast<int64_t>(random() % static_cast<uint64_t>(extent - start[d] + 1));
      }
      const std::string box = Part(wanted, array.shape(), element, start, count);
      std::string got(box.size(), 'x');
      ASSERT_THAT(array.Read(start, count, got.data()), IsOk());
      ASSERT_TRUE(got == box) << i;
      ExpectPlan(array, start, count, box);
      // The axes in another order at the destination.
      std::vector<size_t> order(rank);
      for (size_t d = 0; d < rank; ++d) order[d] = d;
      std::shuffle(order.begin(), order.end(), random);
      AxisValues strides(rank);
      int64_t bytes = static_cast<int64_t>(element);
      for (const size_t d : order) {
        strides[d] = bytes;
        bytes *= count[d];
      }
      std::string turned(box.size(), 'x');
      ASSERT_THAT(array.Read(start, count, turned.data(), strides), IsOk());
      std::string back(box.size(), 'y');
      CopyBox(count, static_cast<int64_t>(element), turned.data(), strides, back.data(),
              PackedStrides(count, static_cast<int64_t>(element)));
      ASSERT_TRUE(back == box) << i;
    }
  }

  /// Puts the box together from the plan, as a reader with its own memory would.
  void ExpectPlan(const ZarrArrayReader& array, const AxisValues& start, const AxisValues& count,
                  const std::string& wanted) {
    const int64_t element = array.element_bytes();
    ASSERT_OK_AND_ASSIGN(const std::vector<ZarrPiece> plan, array.Plan(start, count));
    std::string got(wanted.size(), 'x');
    const AxisValues strides = PackedStrides(count, element);
    int64_t elements = 0;
    for (const ZarrPiece& piece : plan) {
      int64_t all = 1;
      for (const int64_t n : piece.count) all *= n;
      elements += all;
      std::string bytes(static_cast<size_t>(piece.bytes), 'x');
      if (piece.form != ZarrPiece::Form::kFill) {
        std::ifstream file(array.folder().PathOf(piece.file), std::ios::binary);
        file.seekg(piece.offset);
        file.read(bytes.data(), piece.bytes);
        ASSERT_TRUE(file.good());
      }
      if (piece.form == ZarrPiece::Form::kRaw || piece.form == ZarrPiece::Form::kRawCrc32c) {
        ++raw_;
        const bool checked = piece.form == ZarrPiece::Form::kRawCrc32c;
        ASSERT_EQ(piece.bytes, piece.chain->bytes + (checked ? 4 : 0));
        ASSERT_LE(piece.RawBegin() + piece.RawSpan(element), piece.chain->bytes);
        CopyBox(piece.count, element, bytes.data() + piece.RawBegin(), piece.chain->stride,
                got.data() + OffsetOf(piece.to, strides), strides);
      } else {
        ++(piece.form == ZarrPiece::Form::kFill ? fills_ : encoded_);
        ASSERT_THAT(array.Decode(piece, bytes, got.data(), strides), IsOk());
      }
    }
    ASSERT_TRUE(got == wanted);
    ASSERT_EQ(elements * element, std::ssize(wanted)) << "pieces overlap";
  }

  const TempFolder folder_;
  bool skipped_ = false;
  int raw_ = 0, encoded_ = 0, fills_ = 0;
};

TEST_F(ZarrReaderTest, ReadsWhatAnotherProgramWrote) {
  const std::vector<json> arrays = Write("zarr_arrays.py", "all");
  if (skipped_) GTEST_SKIP() << "no NumPy or numcodecs for /usr/bin/python3";
  std::mt19937 random(FreshSeed());
  for (const json& about : arrays) {
    SCOPED_TRACE(about.dump());
    const std::string path = folder_ / about["name"].get<std::string>();
    const auto opened = ZarrArrayReader::Open(path, MissingChunk::kFill, {});
    ASSERT_THAT(opened, IsOk());
    const std::vector<int64_t> shape = about["shape"];
    ASSERT_EQ((*opened)->shape(), absl::MakeConstSpan(shape));
    const std::string wanted = FileText(path + ".bytes");
    if (about.contains("error")) {
      std::string got(wanted.size(), 'x');
      EXPECT_THAT((*opened)->Read(AxisValues(shape.size(), 0), shape, got.data()),
                  IsError(kDataLoss, about["error"].get<std::string>()));
      continue;
    }
    ExpectContents(**opened, wanted, random);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(arrays.size(), 300u);
  EXPECT_GT(raw_, 100);
  EXPECT_GT(encoded_, 100);
  EXPECT_GT(fills_, 100);
}

// The same by zarr-python 2, with its own choice of metadata, and what it says about each array.
TEST_F(ZarrReaderTest, ReadsWhatZarrPythonWrote) {
  const std::vector<json> arrays = Write("zarr_python_arrays.py", "");
  if (skipped_) GTEST_SKIP() << "no zarr for /usr/bin/python3";
  std::mt19937 random(FreshSeed());
  for (const json& about : arrays) {
    SCOPED_TRACE(about.dump());
    const std::string path = folder_ / about["name"].get<std::string>();
    const auto opened = ZarrArrayReader::Open(path, MissingChunk::kFill, {});
    ASSERT_THAT(opened, IsOk());
    EXPECT_EQ((*opened)->attributes(), about["attributes"]);
    ExpectContents(**opened, FileText(path + ".bytes"), random);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(arrays.size(), 50u);
}

// Every byte of the chunks and the metadata of small arrays is changed, and every file is cut at
// every length. A codec with a checksum gives the right data or an error.
TEST_F(ZarrReaderTest, DamagedArraysAreReadRightOrRefused) {
  const std::vector<json> arrays = Write("zarr_arrays.py", "small");
  if (skipped_) GTEST_SKIP() << "no NumPy or numcodecs for /usr/bin/python3";
  std::mt19937 random(FreshSeed());
  int refused = 0, harmless = 0, count = 0;
  for (const json& about : arrays) {
    const bool with_metadata = count++ % 5 == 0;  // they differ little
    SCOPED_TRACE(about.dump());
    const std::string path = folder_ / about["name"].get<std::string>();
    const std::string wanted = FileText(path + ".bytes");
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    ASSERT_EQ(files.size(), 3u);
    for (const std::string& file : files) {
      const std::string whole = FileText(file);
      const bool metadata = absl::EndsWith(file, ".json");
      if (metadata && !with_metadata) continue;
      for (size_t i = 0; i < 2 * whole.size(); ++i) {
        const size_t at = i / 2;
        std::string damaged = whole;
        const bool cut = i % 2 == 0;
        if (cut)
          damaged.resize(at);
        else
          damaged[at] = static_cast<char>(damaged[at] ^ (1 + random() % 255));
        Overwrite(file, damaged);
        const auto opened = ZarrArrayReader::Open(path, MissingChunk::kFill, {});
        std::string got(wanted.size(), 'x');
        absl::Status read = opened.status();
        if (opened.ok() && (*opened)->element_bytes() == 2) {
          // A damaged shape may be another one: then the box may be outside.
          read = (*opened)->Read(AxisValues(3, 0), AxisValues{2, 3, 7}, got.data());
        }
        const std::string text(read.message());
        ASSERT_THAT(text, Not(HasSubstr("json.exception")));
        if (metadata) {
          // There are no blanks behind the closing brace that could be missing.
          if (cut) ASSERT_FALSE(opened.ok()) << at;
          continue;
        }
        ASSERT_THAT(opened, IsOk());
        if (!read.ok()) {
          ASSERT_EQ(read.code(), kDataLoss) << read;
          ASSERT_THAT(text, HasSubstr(file.substr(path.size() + 1))) << "the chunk's file is named";
          ++refused;
        } else if (got == wanted) {
          ++harmless;
        }
        if (cut) ASSERT_FALSE(read.ok()) << "a chunk of " << at << " bytes";
        if (about["safe"] == true && read.ok()) ASSERT_TRUE(got == wanted) << at;
      }
      Overwrite(file, whole);
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(harmless, 0);
}

constexpr char kArray[] = R"({"zarr_format":3,"node_type":"array","shape":[4,6],"data_type":"uint8",
    "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[4,6]}},
    "chunk_key_encoding":{"name":"default"},"fill_value":7,"codecs":["bytes"]})";

TEST_F(ZarrReaderTest, BoxesMustBeWithinTheArray) {
  folder_.Write("zarr.json", kArray);
  ASSERT_OK_AND_ASSIGN(const auto array,
                       ZarrArrayReader::Open(folder_.path(), MissingChunk::kFill, {}));
  char out[64];
  constexpr auto kOutside = absl::StatusCode::kOutOfRange;
  EXPECT_THAT(array->Read({0, 0}, {5, 6}, out), IsError(kOutside, "shape [4,6]"));
  EXPECT_THAT(array->Read({-1, 0}, {1, 1}, out), IsError(kOutside, "[-1,0]"));
  EXPECT_THAT(array->Read({0, 0}, {-1, 1}, out), IsError(kOutside, "[-1,1]"));
  EXPECT_THAT(array->Read({1, 0}, {std::numeric_limits<int64_t>::max(), 1}, out),
              IsError(kOutside, "shape [4,6]"));
  EXPECT_THAT(array->Read({0}, {1}, out), IsError(kOutside, "shape [4,6]"));
  EXPECT_THAT(array->Plan({0, 0, 0}, {1, 1, 1}), IsError(kOutside, "shape [4,6]"));
  EXPECT_THAT(array->Read({4, 0}, {0, 6}, out), IsOk());
  EXPECT_THAT(array->Read({0, 0}, {4, 6}, out), IsOk());
  EXPECT_EQ(std::string(out, 24), std::string(24, '\7'));
}

// Compressed data that would grow without bounds are refused where they exceed the chunk, in the
// last codec and in one before it.
TEST_F(ZarrReaderTest, BombsAreRefusedBeforeTheyGrow) {
  const std::string zeros(size_t{64} << 20, '\0');
  const auto gzip = [](const std::string& data) {
    z_stream stream{};
    EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    std::string out(deflateBound(&stream, data.size()), '\0');
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
    stream.avail_in = static_cast<uInt>(data.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
    out.resize(stream.total_out);
    deflateEnd(&stream);
    return out;
  };
  const std::string bomb = gzip(zeros);
  std::filesystem::create_directories(folder_ / "c/0");
  folder_.Write("c/0/0", bomb);
  char out[24];
  const auto read = [&](const json& codecs) {
    json array = json::parse(kArray);
    array["codecs"] = codecs;
    folder_.Write("zarr.json", array.dump());
    const auto opened = ZarrArrayReader::Open(folder_.path(), MissingChunk::kFill, {});
    return opened.ok() ? (*opened)->Read({0, 0}, {4, 6}, out) : opened.status();
  };
  EXPECT_THAT(read({"bytes", "gzip"}), IsError(kDataLoss, "c/0/0: damaged chunk: gzip"));
  EXPECT_THAT(read({"bytes", "crc32c", "gzip"}), IsError(kDataLoss, "c/0/0: damaged chunk: gzip"));
  EXPECT_THAT(read({"bytes", "zstd", "gzip"}),
              IsError(kDataLoss, "more than the 1048603 bytes that it can have"));
  // A shard that is compressed as a whole.
  const json shard = {
      {"name", "sharding_indexed"},
      {"configuration",
       {{"chunk_shape", {2, 3}},
        {"codecs", {"bytes"}},
        {"index_codecs", {{{"name", "bytes"}, {"configuration", {{"endian", "little"}}}}}}}}};
  EXPECT_THAT(read({shard, "gzip"}), IsError(kDataLoss, "bytes that it can have"));
  // One that is none, and one whose chunks are there.
  std::string small;
  for (int i = 0; i < 4; ++i) small += std::string(6, static_cast<char>('a' + i));
  for (uint64_t i = 0; i < 4; ++i) {
    const uint64_t entry[2] = {6 * i, 6};
    small.append(reinterpret_cast<const char*>(entry), 16);
  }
  folder_.Write("c/0/0", gzip(small));
  EXPECT_THAT(read({shard, "gzip"}), IsOk());
  EXPECT_EQ(std::string(out, 24), "aaabbbaaabbbcccdddcccddd");
  folder_.Write("c/0/0", gzip(small.substr(30)));
  EXPECT_THAT(read({shard, "gzip"}), IsError(kDataLoss, "the shard is too short"));
  // A file that is much longer than a chunk can be is not loaded.
  std::filesystem::resize_file(folder_ / "c/0/0", uintmax_t{1} << 40);
  EXPECT_THAT(read({"bytes", "gzip"}),
              IsError(kDataLoss, "1099511627776 bytes; allowed are at most"));
  EXPECT_THAT(read({"bytes"}), IsError(kDataLoss, "1099511627776 bytes; allowed are 24"));
}

TEST_F(ZarrReaderTest, EntriesOfAShardLieWithinIt) {
  json array = json::parse(kArray);
  array["codecs"] = json::array(
      {{{"name", "sharding_indexed"},
        {"configuration",
         {{"chunk_shape", {2, 6}},
          {"codecs", {"bytes"}},
          {"index_codecs",
           {{{"name", "bytes"}, {"configuration", {{"endian", "little"}}}}, "crc32c"}}}}}});
  folder_.Write("zarr.json", array.dump());
  std::filesystem::create_directories(folder_ / "c/0");
  char out[24];
  const auto read = [&](bool at_start, uint64_t offset, uint64_t bytes, MissingChunk missing) {
    array["codecs"][0]["configuration"]["index_location"] = at_start ? "start" : "end";
    folder_.Write("zarr.json", array.dump());
    const uint64_t entries[4] = {at_start ? 36u : 0u, 12, offset, bytes};
    std::string index(reinterpret_cast<const char*>(entries), 32);
    const uint32_t crc = Crc32c(index.data(), 32);
    index.append(reinterpret_cast<const char*>(&crc), 4);
    const std::string data(24, 'd');
    folder_.Write("c/0/0", at_start ? index + data : data + index);
    const auto opened = ZarrArrayReader::Open(folder_.path(), missing, {});
    return opened.ok() ? (*opened)->Read({0, 0}, {4, 6}, out) : opened.status();
  };
  const uint64_t none = ~uint64_t{0};
  for (const bool start : {false, true}) {
    const uint64_t begin = start ? 36 : 0;
    EXPECT_THAT(read(start, begin + 12, 12, MissingChunk::kDamage), IsOk());
    EXPECT_THAT(read(start, begin, 12, MissingChunk::kFill), IsOk()) << "chunks may share bytes";
    EXPECT_THAT(read(start, begin + 13, 12, MissingChunk::kFill),
                IsError(kDataLoss, "inner chunk 1 is missing or outside the shard"));
    EXPECT_THAT(read(start, start ? 35 : 24, 12, MissingChunk::kFill),
                IsError(kDataLoss, "inner chunk 1"))
        << "the index is no chunk";
    EXPECT_THAT(read(start, none - 3, 12, MissingChunk::kFill),
                IsError(kDataLoss, "inner chunk 1"));
    EXPECT_THAT(read(start, begin, none - 5, MissingChunk::kFill),
                IsError(kDataLoss, "inner chunk 1"));
    EXPECT_THAT(read(start, none, 12, MissingChunk::kFill), IsError(kDataLoss, "inner chunk 1"));
    EXPECT_THAT(read(start, begin, 11, MissingChunk::kFill),
                IsError(kDataLoss, "inner chunk 1: damaged chunk: 11 bytes; allowed are 12"));
    EXPECT_THAT(read(start, none, none, MissingChunk::kDamage),
                IsError(kDataLoss, "inner chunk 1"));
    ASSERT_THAT(read(start, none, none, MissingChunk::kFill), IsOk());
    EXPECT_EQ(std::string(out, 24), std::string(12, 'd') + std::string(12, '\7'));
  }
}

// Chunks that are links, with and without folders in between.
TEST_F(ZarrReaderTest, LinksStayBelowTheRoots) {
  namespace fs = std::filesystem;
  const TempFolder outside;
  fs::create_directories(folder_ / "a/c/0");
  folder_.Write("a/zarr.json", kArray);
  outside.Write("0", std::string(24, 'o'));
  folder_.Write("inside", std::string(24, 'i'));
  char out[24];
  const auto read = [&](ZarrFolder::Roots roots) {
    const auto opened = ZarrArrayReader::Open(folder_ / "a", MissingChunk::kFill, std::move(roots));
    return opened.ok() ? (*opened)->Read({0, 0}, {4, 6}, out) : opened.status();
  };
  constexpr auto kDenied = absl::StatusCode::kPermissionDenied;
  fs::create_symlink(folder_ / "inside", folder_ / "a/c/0/0");
  ASSERT_THAT(read({folder_.path()}), IsOk());
  EXPECT_EQ(out[0], 'i');
  EXPECT_THAT(read({folder_ / "a"}), IsError(kDenied, "c/0/0"));
  fs::remove(folder_ / "a/c/0/0");
  fs::create_symlink(outside / "0", folder_ / "a/c/0/0");
  EXPECT_THAT(read({folder_.path()}), IsError(kDenied, "c/0/0"));
  ASSERT_THAT(read({folder_.path(), outside.path()}), IsOk());
  EXPECT_EQ(out[0], 'o');
  fs::remove_all(folder_ / "a/c/0");
  fs::create_directory_symlink(outside.path(), folder_ / "a/c/0");
  EXPECT_THAT(read({folder_.path()}), IsError(kDenied, "c/0/0")) << "not taken for missing";
  fs::remove_all(folder_ / "a/c");
  ASSERT_THAT(read({folder_.path()}), IsOk());
  EXPECT_EQ(out[0], '\7');
  // A pipe is no chunk, and nobody waits for it.
  fs::create_directories(folder_ / "a/c/0");
  ASSERT_EQ(::mkfifo((folder_ / "a/c/0/0").c_str(), 0600), 0);
  EXPECT_THAT(read({folder_.path()}), IsError(kDataLoss, "c/0/0 is no regular file"));
}

TEST_F(ZarrReaderTest, AFolderThatWasHandedOverIsReadWithoutLinks) {
  namespace fs = std::filesystem;
  fs::create_directories(folder_ / "a/c/0");
  folder_.Write("a/zarr.json", kArray);
  folder_.Write("a/c/0/0", std::string(24, 'x'));
  const auto open = [&] {
    return ZarrArrayReader::Open(
        ZarrFolder::FromDescriptor(
            UniqueFd(::open((folder_ / "a").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)), "mine"),
        MissingChunk::kFill);
  };
  char out[24];
  ASSERT_OK_AND_ASSIGN(const auto array, open());
  // The descriptor counts, not the name.
  fs::rename(folder_ / "a", folder_ / "b");
  fs::create_directories(folder_ / "a");
  EXPECT_THAT(array->Read({0, 0}, {4, 6}, out), IsOk());
  EXPECT_EQ(out[0], 'x');
  fs::rename(folder_ / "b/c/0/0", folder_ / "b/chunk");
  fs::create_symlink("../../chunk", folder_ / "b/c/0/0");
  EXPECT_THAT(array->Read({0, 0}, {4, 6}, out),
              IsError(absl::StatusCode::kPermissionDenied, "mine/c/0/0: is a link"));
}

TEST_F(ZarrReaderTest, V3IsPreferredAndSaidSo) {
  folder_.Write("zarr.json", kArray);
  folder_.Write(".zarray", "{");
  ASSERT_OK_AND_ASSIGN(const auto array,
                       ZarrArrayReader::Open(folder_.path(), MissingChunk::kFill, {}));
  EXPECT_THAT(array->notes(), ::testing::ElementsAre(HasSubstr("zarr.json was read")));
}

}  // namespace
}  // namespace octavo::storage

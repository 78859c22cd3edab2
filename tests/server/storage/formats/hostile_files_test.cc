#include <cstdint>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"

#include "server/storage/commit/journal.h"
#include "server/storage/formats/manifest.h"
#include "server/storage/formats/volume_input.h"
#include "server/storage/io/crc32c.h"
#include "server/storage/io/json_file.h"
#include "server/storage/zarr/byte_codec.h"
#include "server/storage/zarr/codec.h"
#include "server/storage/zarr/reader.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

// Files made to crash the reader.
namespace octavo::storage {
namespace {

using octavo::testing::FreshSeed;
using octavo::testing::IsError;
using octavo::testing::TempFolder;
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;

std::string Nested(size_t depth, const std::string& open, const std::string& close) {
  std::string out;
  for (size_t i = 0; i < depth; ++i) out += open;
  out += "1";
  for (size_t i = 0; i < depth; ++i) out += close;
  return out;
}

/// Every member that a Zarr array has, with one of them replaced; "" replaces the whole.
std::string Array3(const std::string& member, const std::string& value) {
  const std::pair<const char*, const char*> members[] = {
      {"zarr_format", "3"},
      {"node_type", "\"array\""},
      {"shape", "[2,3,4]"},
      {"data_type", "\"uint8\""},
      {"chunk_grid", R"({"name":"regular","configuration":{"chunk_shape":[2,3,4]}})"},
      {"chunk_key_encoding", R"({"name":"default","configuration":{"separator":"/"}})"},
      {"codecs", R"([{"name":"bytes"}])"},
      {"fill_value", "0"},
      {"attributes", "{}"}};
  if (member.empty()) return value;
  std::string out;
  for (const auto& [name, usual] : members)
    absl::StrAppend(&out, out.empty() ? "{" : ",", "\"", name,
                    "\":", member == name ? value : usual);
  return out + "}";
}

TEST(HostileFilesTest, NestedZarrMetadataIsRefusedWhereverItIsNested) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "a");
  std::mt19937 random(FreshSeed());
  const auto open = [&] { return ZarrArrayReader::Open(folder / "a", MissingChunk::kFill, {}); };
  folder.Write("a/zarr.json", Array3("attributes", Nested(10, R"({"a":)", "}")));
  ASSERT_TRUE(open().ok()) << open().status();
  for (const char* member : {"", "zarr_format", "node_type", "shape", "data_type", "chunk_grid",
                             "chunk_key_encoding", "codecs", "fill_value", "attributes"}) {
    for (const size_t depth :
         {size_t{66'000}, size_t{65 + random() % 2000}, size_t{100'000 + random() % 1'000'000}}) {
      for (const auto& [left, right] : {std::pair{"[", "]"}, std::pair{R"({"a":)", "}"}}) {
        folder.Write("a/zarr.json", Array3(member, Nested(depth, left, right)));
        EXPECT_THAT(open(), IsError(kDataLoss, "deep in each other")) << member << " " << depth;
      }
    }
  }
  std::filesystem::remove(folder / "a/zarr.json");
  const std::string whole =
      R"({"zarr_format":2,"shape":[2,3],"chunks":[2,3],"dtype":"|u1","compressor":null,"fill_value":0,"order":"C","filters":)";
  folder.Write("a/.zarray", whole + Nested(66'000, "[", "]") + "}");
  EXPECT_THAT(open(), IsError(kDataLoss, "deep in each other"));
  folder.Write("a/.zarray", whole + "null}");
  folder.Write("a/.zattrs", Nested(66'000, "[", "]"));
  EXPECT_THAT(open(), IsError(kDataLoss, "/.zattrs holds arrays or objects more than 64 deep"));
}

TEST(HostileFilesTest, MetadataFilesAreRegularAndOfBoundedSize) {
  const TempFolder folder;
  const std::string path = folder / "zarr.json";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(ReadJsonFile(path), IsError(kDataLoss, "is no regular file"))
      << "and does not wait for somebody who writes";
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_THAT(ReadJsonFile(path), IsError(kDataLoss, "is no regular file"));
  std::filesystem::remove(path);
  EXPECT_THAT(ReadJsonFile(path), IsError(absl::StatusCode::kNotFound, path));
  folder.Write("zarr.json", "{}");
  EXPECT_TRUE(ReadJsonFile(path).ok());
  std::filesystem::resize_file(path, int64_t{1} << 40);  // uses no space on the disk
  EXPECT_THAT(ReadJsonFile(path), IsError(kDataLoss, "has 1099511627776 bytes"));
  folder.Write("zarr.json", "[" + std::string(3'000'000, ' ') + "{}");
  EXPECT_THAT(ReadJsonFile(path), IsError(kDataLoss, "is no JSON: byte 3000004"));
}

TEST(HostileFilesTest, NestedSideFilesManifestsAndJournalLinesAreRefused) {
  const TempFolder folder;
  for (const size_t depth : {65, 66'000, 500'000}) {
    const std::string nested = Nested(depth, R"({"a":)", "}");
    folder.Write("v.npy", "x");
    folder.Write("v.npy.json", nested);
    EXPECT_THAT(OpenVolumeInput(folder / "v.npy", {}), IsError(kDataLoss, "deep in each other"));
    EXPECT_THAT(Manifest::FromJson(nested), IsError(kDataLoss, "damaged manifest: it holds"));
    // A line with a correct CRC, and the next one.
    std::string journal;
    for (const std::string& record : {nested, std::string(R"({"op":"x"})")})
      absl::StrAppend(&journal, absl::Hex(Crc32c(record.data(), record.size()), absl::kZeroPad8),
                      " ", record, "\n");
    folder.Write("journal", journal);
    std::vector<nlohmann::json> records;
    ASSERT_OK_AND_ASSIGN(const auto opened, Journal::Open(folder / "journal", &records));
    ASSERT_EQ(records.size(), 1u);
    EXPECT_EQ(records[0]["op"], "x");
  }
}

/// Memory between two inaccessible pages.
class Fenced {
 public:
  explicit Fenced(size_t bytes) : bytes_(bytes), pages_((bytes + kPage - 1) / kPage + 2) {
    base_ = static_cast<char*>(::mmap(nullptr, pages_ * kPage, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED) std::abort();
    ::mprotect(base_, kPage, PROT_NONE);
    ::mprotect(base_ + (pages_ - 1) * kPage, kPage, PROT_NONE);
  }
  ~Fenced() { ::munmap(base_, pages_ * kPage); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  char* data() const { return base_ + (pages_ - 1) * kPage - bytes_; }

 private:
  static constexpr size_t kPage = 4096;
  const size_t bytes_, pages_;
  char* base_;
};

// The daemon itself decodes chunks of untrusted files: the decoders must refuse damaged chunks
// without an access outside their memory.
TEST(HostileFilesTest, DamagedChunksStayWithinTheirMemory) {
  std::mt19937 random(FreshSeed());
  ChunkCoder coder;
  ByteDecoder decoder;
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    std::vector<char> chunk(1 + random() % (random() % 2 == 0 ? 300 : 60'000));
    const auto kind = random() % 3;
    for (char& c : chunk)
      c = static_cast<char>(kind == 0 ? random() : kind == 1 ? random() % 3 : 7);
    ChunkCodec codec{
        .codec = std::vector{Codec::kZstd, Codec::kGzip, Codec::kBloscZstd,
                             Codec::kBloscLz4}[random() % 4],
        .level = 1 + static_cast<int>(random() % 5),
        .shuffle = std::vector{Shuffle::kByte, Shuffle::kBit, Shuffle::kNone}[random() % 3],
        .type_bytes = int64_t{1} << random() % 4};
    ASSERT_OK_AND_ASSIGN(const absl::string_view encoded,
                         coder.Encode(codec, {chunk.data(), chunk.size()}));
    const std::string whole(encoded);
    const ByteCodec decoded{.kind = codec.codec == Codec::kZstd   ? ByteCodec::Kind::kZstd
                                    : codec.codec == Codec::kGzip ? ByteCodec::Kind::kGzip
                                                                  : ByteCodec::Kind::kBlosc};
    for (int j = 0; j < 12; ++j) {
      std::string damaged = whole;
      for (auto n = random() % 6; n > 0; --n) {
        const size_t at =
            random() % (random() % 2 == 0 ? std::min<size_t>(48, damaged.size()) : damaged.size());
        damaged[at] = random() % 3 == 0   ? '\xff'
                      : random() % 2 == 0 ? static_cast<char>(random())
                                          : static_cast<char>(damaged[at] ^ (1 << random() % 8));
      }
      if (random() % 8 == 0) damaged.resize(random() % damaged.size());
      if (random() % 2 == 0 && damaged.size() >= 16 && codec.codec != Codec::kZstd &&
          codec.codec != Codec::kGzip) {
        // Consistent sizes, so that the decoder examines more of the frame.
        const auto plain = static_cast<uint32_t>(chunk.size()),
                   packed = static_cast<uint32_t>(damaged.size());
        std::memcpy(damaged.data() + 4, &plain, 4);
        std::memcpy(damaged.data() + 12, &packed, 4);
      }
      const Fenced in(damaged.size()), out(chunk.size());
      std::memcpy(in.data(), damaged.data(), damaged.size());
      const absl::Status status = decoder.Decode(decoded, {in.data(), damaged.size()}, out.data(),
                                                 static_cast<int64_t>(chunk.size()));
      if (damaged == whole) {
        ASSERT_TRUE(status.ok()) << status;
        ASSERT_EQ(std::memcmp(out.data(), chunk.data(), chunk.size()), 0);
      } else if (!status.ok()) {
        ASSERT_EQ(status.code(), kDataLoss);
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 300);
}

// Complete, but from a program that uses other types.
TEST(HostileFilesTest, AManifestNamesTheMemberThatIsNotWhatItMustBe) {
  const nlohmann::json good = {{"octavo_manifest", 1},
                               {"commit", "a"},
                               {"raw_bytes", 8},
                               {"checksum", "crc32c:0"},
                               {"files", {{{"path", "data"}, {"bytes", 8}, {"crc32c", 7}}}}};
  const auto read = [](nlohmann::json json) {
    const std::string text = json.dump();
    json["manifest_crc32c"] = Crc32c(text.data(), text.size());
    return Manifest::FromJson(json.dump()).status();
  };
  ASSERT_TRUE(read(good).ok()) << read(good);
  const std::tuple<const char*, nlohmann::json, const char*> bad[] = {
      {"/commit", 3, "damaged manifest: commit is 3; allowed is text"},
      {"/raw_bytes", "8", "raw_bytes is \"8\"; allowed are integers"},
      {"/files", nullptr, "files is null; allowed are arrays"},
      {"/files/0", 1, "files[0] is 1; allowed are objects"},
      {"/files/0/path", nlohmann::json::array(), "files[0].path is []; allowed is text"},
      {"/files/0/bytes", 1.5, "files[0].bytes is 1.5; allowed are integers"},
      {"/files/0/crc32c", -1, "files[0].crc32c is -1; allowed are integers from 0 to 4294967295"},
  };
  for (const auto& [at, value, message] : bad) {
    nlohmann::json json = good;
    json[nlohmann::json::json_pointer(at)] = value;
    EXPECT_THAT(read(json), IsError(kDataLoss, message));
    EXPECT_THAT(std::string(read(json).message()),
                ::testing::Not(::testing::HasSubstr("json.exception")))
        << at;
  }
  for (const char* text : {"[]", "3", "{}", R"({"manifest_crc32c": "x"})"})
    EXPECT_THAT(Manifest::FromJson(text), IsError(kDataLoss, "damaged manifest: "));
}

}  // namespace
}  // namespace octavo::storage

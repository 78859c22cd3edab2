// .npy files that form one scan, and Zarr groups and arrays.

#include <cstring>

#include "server/storage/projections/projection_input.h"
#include "tests/server/storage/projections/projection_input_fixture.h"

namespace octavo::storage {
namespace {

using namespace storage::testing;  // NOLINT: the fixture's own words
using octavo::testing::IsError;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(ProjectionInputTest, NpyFilesTogether) {
  std::string swapped;
  for (const uint16_t v : Frames<uint16_t>(kAngles, 0))
    swapped += {static_cast<char>(v >> 8), static_cast<char>(v & 255)};
  Npy("p.npy", ">u2", {5, 4, 6}, swapped);
  Npy("w.npy", "<u2", {4, 6}, Bytes(Frames<uint16_t>(1, 1)));
  Npy("d.npy", "|u1", {2, 4, 6}, Bytes(Frames<uint8_t>(2, 2)));
  Npy("a.npy", "<f8", {5}, Bytes(Degrees(5)));
  ProjectionOptions options{.flats = folder_ / "w.npy", .angles = folder_ / "a.npy"};
  ASSERT_OK_AND_ASSIGN(auto input, OpenProjections(folder_ / "p.npy", options));
  EXPECT_EQ(input->info().dtype, DType::kU16);
  EXPECT_EQ(input->info().stored_type, "u16, big-endian");
  EXPECT_EQ(input->info().flats, 1);
  EXPECT_DOUBLE_EQ(input->info().angles_rad[4], 144 * kDegree);
  EXPECT_EQ(ReadAll<uint16_t>(*input, FrameKind::kProjection), Frames<uint16_t>(kAngles, 0));
  ExpectAPart(*input);
  options.darks = folder_ / "d.npy";
  ASSERT_OK_AND_ASSIGN(input, OpenProjections(folder_ / "p.npy", options));
  EXPECT_EQ(ReadAll<float>(*input, FrameKind::kDark), Frames<float>(2, 2));
  EXPECT_EQ(ReadAll<float>(*input, FrameKind::kProjection), Frames<float>(kAngles, 0));
  // One sinogram.
  Npy("s.npy", "<f4", {5, 6}, Bytes(Frames<float>(5, 0, 1)));
  ASSERT_OK_AND_ASSIGN(input, OpenProjections(folder_ / "s.npy", {.angles = folder_ / "a.npy"}));
  EXPECT_THAT((std::vector{input->info().projections, input->info().rows, input->info().columns}),
              ElementsAre(5, 1, 6));
  EXPECT_THAT(input->info().notes,
              ElementsAre(HasSubstr("one row of each frame"), HasSubstr("taken as degrees")));
  // Half precision: 1, -2, the largest, the smallest, infinity, and 0.1 rounded.
  Npy("h.npy", "<f2", {1, 1, 6},
      Bytes(std::vector<uint16_t>{0x3C00, 0xC000, 0x7BFF, 0x0001, 0x7C00, 0x2E66}));
  ASSERT_OK_AND_ASSIGN(input, OpenProjections(folder_ / "h.npy", {.angle_values = {0}}));
  EXPECT_THAT(ReadAll<float>(*input, FrameKind::kProjection),
              ElementsAre(1, -2, 65504, std::ldexp(1.0f, -24), INFINITY, 0.0999755859375f));
}

TEST_F(ProjectionInputTest, BrokenNpyIsRefused) {
  Npy("a.npy", "<f8", {5}, Bytes(Degrees(5)));
  const ProjectionOptions options{.angles = folder_ / "a.npy"};
  const auto open = [&](const std::string& name) {
    return OpenProjections(folder_ / name, options);
  };
  Npy("short.npy", "<u2", {5, 4, 6}, std::string(239, 'x'));
  EXPECT_THAT(open("short.npy"),
              IsError(absl::StatusCode::kDataLoss, "short.npy: the file has 239 bytes of data"));
  Npy("complex.npy", "<c8", {5, 4, 6}, std::string(960, 'x'));
  EXPECT_THAT(open("complex.npy"), IsError(kInvalid, "has the type '<c8'"));
  Npy("rank.npy", "<u2", {5, 4, 6, 1}, std::string(240, 'x'));
  EXPECT_THAT(open("rank.npy"), IsError(kInvalid, "rank.npy has 4 dimensions"));
  Npy("count.npy", "<u2", {4, 4, 6}, std::string(192, 'x'));
  EXPECT_THAT(open("count.npy"), IsError(kInvalid, "a.npy has 5 values; allowed 4"));
  folder_.Write("magic.npy", std::string(100, 'x'));
  EXPECT_THAT(open("magic.npy"), IsError(kInvalid, "the header is none of NumPy"));
  folder_.Write("header.npy", std::string("\x93NUMPY\x01\x00\xFF\xFF{", 11) + std::string(20, ' '));
  EXPECT_THAT(open("header.npy"),
              IsError(absl::StatusCode::kDataLoss, "the header has 65535 bytes"));
  Npy("good.npy", "<u2", {5, 4, 6}, Bytes(Frames<uint16_t>(5, 0)));
  EXPECT_THAT(OpenProjections(folder_ / "good.npy", {}), IsError(kInvalid, "angles are not given"));
  EXPECT_THAT(OpenProjections(folder_ / "good.npy",
                              {.flats = folder_ / "none.npy", .angle_values = Degrees(5)}),
              IsError(absl::StatusCode::kNotFound, "none.npy"));
  Npy("other.npy", "<u2", {1, 6, 4}, Bytes(Frames<uint16_t>(1, 0)));
  EXPECT_THAT(OpenProjections(folder_ / "good.npy",
                              {.flats = folder_ / "other.npy", .angle_values = Degrees(5)}),
              IsError(kInvalid, "other.npy has frames of 6 rows and 4 columns"));
}

TEST_F(ProjectionInputTest, ZarrGroupsAndArrays) {
  const std::string path = ZarrGroup();
  ASSERT_OK_AND_ASSIGN(auto input, OpenProjections(path, {}));
  EXPECT_EQ(input->info().format, "zarr");
  EXPECT_THAT((std::vector{input->info().projections, input->info().rows, input->info().columns,
                           input->info().flats, input->info().darks}),
              ElementsAre(5, 4, 6, 1, 0));
  EXPECT_THAT(input->info().angles_rad, ElementsAre(0, 0.5, 1, 1.5, 2));
  EXPECT_EQ(input->row_granularity(), 3);
  auto expected = Frames<uint16_t>(kAngles, 0);
  std::fill_n(expected.begin() + (4 * 4 + 3) * 6, 6, uint16_t{7});  // from the missing chunk
  EXPECT_EQ(ReadAll<uint16_t>(*input, FrameKind::kProjection), expected);
  EXPECT_EQ(ReadAll<uint16_t>(*input, FrameKind::kFlat), Frames<uint16_t>(1, 1));
  ExpectAPart(*input);
  ASSERT_OK_AND_ASSIGN(input,
                       OpenProjections(path + "/exchange/data", {.angle_values = Degrees(5)}));
  EXPECT_EQ(ReadAll<uint16_t>(*input, FrameKind::kProjection), expected);
  // v2, big-endian, one chunk with its own name.
  std::filesystem::create_directories(folder_ / "v2.zarr");
  folder_.Write(
      "v2.zarr/.zarray",
      R"({"zarr_format":2,"shape":[1,2,3],"chunks":[1,2,3],"dtype":">i2","compressor":null,"fill_value":0,"order":"C","filters":null})");
  folder_.Write("v2.zarr/0.0.0",
                std::string("\x00\x01\xFF\xFF\x00\x03\x01\x00\x00\x05\x00\x06", 12));
  ASSERT_OK_AND_ASSIGN(input, OpenProjections(folder_ / "v2.zarr", {.angle_values = {0}}));
  EXPECT_THAT(ReadAll<int16_t>(*input, FrameKind::kProjection), ElementsAre(1, -1, 3, 256, 5, 6));
}

// As for links in HDF5: the client's path lies under the roots, and so must every file that the
// reader opens.
TEST_F(ProjectionInputTest, LinksOfZarrStayUnderTheRoots) {
  namespace fs = std::filesystem;
  const octavo::testing::TempFolder outside;
  const std::string path = ZarrGroup(), data = path + "/exchange/data";
  const auto open = [&](std::vector<std::string> roots) {
    return OpenProjections(path, {.roots = std::move(roots)});
  };
  const auto read = [&](const ProjectionInput& input) {
    std::vector<uint16_t> frames(
        static_cast<size_t>(input.info().projections * input.info().rows * input.info().columns));
    return const_cast<ProjectionInput&>(input).Read({.frames = input.info().projections,
                                                     .rows = input.info().rows,
                                                     .columns = input.info().columns},
                                                    frames.data());
  };
  ASSERT_OK_AND_ASSIGN(auto input, open({}));
  const auto wanted = ReadAll<uint16_t>(*input, FrameKind::kProjection);
  // Links to a chunk: within the folder, under the roots, outside; and a link to nothing.
  fs::rename(data + "/c.1.0.0", outside.path() + "/chunk");
  fs::create_symlink(outside.path() + "/chunk", data + "/c.1.0.0");
  ASSERT_OK_AND_ASSIGN(input, open({folder_.path()}));
  EXPECT_THAT(read(*input), IsError(kInvalid, "outside of the configured roots"));
  ASSERT_OK_AND_ASSIGN(input, open({folder_.path(), outside.path()}));
  EXPECT_EQ(ReadAll<uint16_t>(*input, FrameKind::kProjection), wanted);
  fs::remove(data + "/c.1.0.0");
  fs::create_symlink(outside.path() + "/nothing", data + "/c.1.0.0");
  ASSERT_OK_AND_ASSIGN(input, open({folder_.path()}));
  EXPECT_THAT(read(*input), IsError(kInvalid, "or links to nothing"));
  fs::remove(data + "/c.1.0.0");
  fs::rename(outside.path() + "/chunk", path + "/elsewhere");
  fs::create_symlink("../../elsewhere", data + "/c.1.0.0");
  ASSERT_OK_AND_ASSIGN(input, open({}));
  EXPECT_EQ(ReadAll<uint16_t>(*input, FrameKind::kProjection), wanted);
  // A link to a whole array.
  fs::rename(data, outside.path() + "/data");
  fs::create_directory_symlink(outside.path() + "/data", data);
  EXPECT_THAT(open({folder_.path()}), IsError(kInvalid, "has neither an array of projections"));
  EXPECT_THAT(OpenProjections(path, {.projections = "exchange/data", .roots = {folder_.path()}}),
              IsError(kInvalid, "outside of the configured roots"));
  // A link to the array's description only.
  fs::remove(data);
  fs::rename(outside.path() + "/data", data);
  fs::rename(data + "/zarr.json", outside.path() + "/zarr.json");
  fs::create_symlink(outside.path() + "/zarr.json", data + "/zarr.json");
  EXPECT_THAT(OpenProjections(path, {.projections = "exchange/data", .roots = {folder_.path()}}),
              IsError(kInvalid, "outside of the configured roots"));
}

TEST_F(ProjectionInputTest, BrokenZarrIsRefused) {
  const std::string path = ZarrGroup();
  EXPECT_THAT(OpenProjections(path, {.flats = "../other"}), IsError(kInvalid, "'../other'"));
  EXPECT_THAT(OpenProjections(path, {.flats = "nothing"}), IsError(kInvalid, "nothing is missing"));
  EXPECT_THAT(OpenProjections(path + "/exchange/data", {}),
              IsError(kInvalid, "angles are not given"));
  folder_.Write("scan.zarr/exchange/data/c.1.0.0", "short");
  ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(path, {}));
  std::vector<uint16_t> out(120);
  EXPECT_THAT(input->Read({.frames = 5, .rows = 4, .columns = 6}, out.data()),
              IsError(absl::StatusCode::kDataLoss, "exchange/data cannot be read"));
  folder_.Write("scan.zarr/exchange/data/zarr.json", "{");
  EXPECT_THAT(OpenProjections(path, {.projections = "exchange/data"}),
              IsError(absl::StatusCode::kDataLoss, "exchange/data cannot be opened"));
  ZarrJson("scan.zarr/exchange/data", "[5,4,6]", "[2,3,6]", "complex64");
  EXPECT_THAT(OpenProjections(path, {}), IsError(kInvalid, "exchange/data holds complex64"));
  ZarrJson("scan.zarr/exchange/data", "[5,4,6]", "[2,3,6]", "uint16",
           R"(,"codecs":[{"name":"bytes","configuration":{"endian":"little"}},{"name":"jpeg"}])");
  EXPECT_THAT(OpenProjections(path, {}),
              IsError(absl::StatusCode::kUnimplemented, "exchange/data is compressed with"));
}

// The reader must not trust the sizes in an untrusted file.
TEST_F(ProjectionInputTest, ZarrOfSizesThatCannotBeIsRefused) {
  const auto sharded = [&](const std::string& shard) {
    folder_.Write(
        "scan.zarr/exchange/theta/zarr.json",
        absl::StrCat(
            R"({"zarr_format":3,"node_type":"array","shape":[1,1,5],"data_type":"float64","chunk_grid":{"name":"regular",
                                "configuration":{"chunk_shape":)",
            shard,
            R"(}},"chunk_key_encoding":{"name":"default","configuration":{"separator":"."}},"fill_value":0,
                                "codecs":[{"name":"sharding_indexed","configuration":{"chunk_shape":[1,1,1],
                                "codecs":[{"name":"bytes","configuration":{"endian":"little"}}],
                                "index_codecs":[{"name":"bytes","configuration":{"endian":"little"}},{"name":"crc32c"}]}}]})"));
  };
  const std::string path = ZarrGroup(), data = path + "/exchange/theta";
  folder_.Write("scan.zarr/exchange/theta/c.0.0.0", std::string(4, '\0'));
  for (const char* shard :
       {"[1048576,1048576,524288]", "[16777216,16777216,65536]", "[16777216,16777216,16777216]"}) {
    sharded(shard);
    const auto input = OpenProjections(data, {.angle_values = {0}});
    EXPECT_THAT(input, IsError(absl::StatusCode::kDataLoss, "chunk shape")) << shard;
  }
  // The reader does not load a file that is much longer than its contents should be.
  folder_.Write("scan.zarr/exchange/data/c.0.0.0", "");
  std::filesystem::resize_file(path + "/exchange/data/c.0.0.0", uintmax_t{1} << 42);
  ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(path, {.angle_values = Degrees(5)}));
  std::vector<uint16_t> out(120);
  EXPECT_THAT(input->Read({.frames = 5, .rows = 4, .columns = 6}, out.data()),
              IsError(absl::StatusCode::kDataLoss, "exchange/data cannot be read"));
  std::filesystem::create_directories(folder_ / "huge.zarr");
  folder_.Write("huge.zarr/zarr.json", "");
  std::filesystem::resize_file(folder_ / "huge.zarr/zarr.json", uintmax_t{1} << 42);
  EXPECT_FALSE(OpenProjections(folder_ / "huge.zarr", {.angle_values = {0}}).ok());
}

}  // namespace
}  // namespace octavo::storage

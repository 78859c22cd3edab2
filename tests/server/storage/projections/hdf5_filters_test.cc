// LZ4 and bitshuffle of HDF5: chunks of every form, files of them, and hostile ones.

#include "server/storage/projections/hdf5_filters.h"

#include <array>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <thread>

#include "tests/server/storage/formats/tiff_builder.h"
#include "tests/server/storage/projections/hdf5_encoders.h"
#include "tests/server/storage/projections/projection_input_fixture.h"
#include "tests/support/seed.h"

namespace octavo::storage {
namespace {

using namespace storage::testing;  // NOLINT: the fixture's own words
using octavo::testing::FreshSeed;
using octavo::testing::IsError;
using Inside = Hdf5Bitshuffle::Inside;
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;

/// Decodes from and to memory of the exact sizes, so that a sanitizer sees every byte beyond.
template <class Filter>
absl::StatusOr<std::string> Decoded(const Filter& filter, const std::string& encoded,
                                    size_t bytes) {
  const std::unique_ptr<char[]> in(new char[encoded.size()]), out(new char[bytes]);
  std::memcpy(in.get(), encoded.data(), encoded.size());
  Hdf5FilterDecoder decoder;
  const absl::Status status = decoder.Decode(filter, absl::string_view(in.get(), encoded.size()),
                                             out.get(), static_cast<int64_t>(bytes));
  if (!status.ok()) return status;
  return std::string(out.get(), bytes);
}

/// Some bytes that compress, and some that do not.
std::string Bytes(std::mt19937& random, size_t count) {
  std::string out(count, '\0');
  const bool noise = random() % 2 == 0;
  for (char& c : out) c = static_cast<char>(noise ? random() : random() % 4);
  return out;
}

Hdf5Bitshuffle Bitshuffle(size_t element, size_t block, int inside) {
  return {.element_bytes = static_cast<int64_t>(element),
          .block_elements = static_cast<int64_t>(inside == 0 ? block : 0),
          .inside = inside == 0   ? Inside::kNothing
                    : inside == 2 ? Inside::kLz4
                                  : Inside::kZstd};
}

std::string Text(absl::string_view bytes) { return std::string(bytes); }

TEST(Hdf5FiltersTest, DecodesWhatOtherProgramsWrote) {
  // Written by h5py 3.7 with the plug-ins of Debian's hdf5-filter-plugin and bitshuffle 0.3.5.
  const uint16_t values[] = {0, 14, 5, 19, 10, 1, 15, 6, 20, 11,
                             2, 16, 7, 21, 12, 3, 17, 8, 22, 13};
  const std::string wanted(reinterpret_cast<const char*>(values), sizeof values);
  using std::literals::string_view_literals::operator""sv;
  const auto lz4 =
      "\x00\x00\x00\x00\x00\x00\x00\x28\x00\x00\x00\x10\x00\x00\x00\x10\x00\x00\x0e\x00\x05\x00\x13"
      "\x00\x0a\x00\x01\x00\x0f\x00\x06\x00\x00\x00\x00\x10\x14\x00\x0b\x00\x02\x00\x10\x00\x07\x00"
      "\x15\x00\x0c\x00\x03\x00\x00\x00\x00\x08\x11\x00\x08\x00\x16\x00\x0d\x00"sv;
  const auto plain =
      "\x6c\xb2\xda\x96\xc6\x71\x52\x42\x08\x29\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
      "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x11\x00\x08\x00\x16\x00\x0d\x00"sv;
  const auto packed =
      "\x00\x00\x00\x00\x00\x00\x00\x28\x00\x00\x20\x00\x00\x00\x00\x14\xbc\x6c\xb2\xda\x96\xc6\x71"
      "\x52\x42\x08\x29\x00\x01\x00\x50\x00\x00\x00\x00\x00\x11\x00\x08\x00\x16\x00\x0d\x00"sv;
  const auto blocks =
      "\x00\x00\x00\x00\x00\x00\x00\x28\x00\x00\x00\x10\x00\x00\x00\x12\xf0\x01\x6c\xda\xc6\x52\x08"
      "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x12\xf0\x01\xb2\x96\x71\x42\x29\x00"
      "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x11\x00\x08\x00\x16\x00\x0d\x00"sv;
  EXPECT_EQ(Decoded(Hdf5Lz4{}, Text({lz4.data(), lz4.size()}), 40).value(), wanted);
  EXPECT_EQ(Decoded(Bitshuffle(2, 0, 0), Text({plain.data(), plain.size()}), 40).value(), wanted);
  EXPECT_EQ(Decoded(Bitshuffle(2, 0, 2), Text({packed.data(), packed.size()}), 40).value(), wanted);
  EXPECT_EQ(Decoded(Bitshuffle(2, 0, 2), Text({blocks.data(), blocks.size()}), 40).value(), wanted);
}

TEST(Hdf5FiltersTest, DecodesEveryFormOfChunk) {
  std::mt19937 random(FreshSeed());
  for (int i = 0; i < 400; ++i) {
    const size_t element = size_t{1} << random() % 4, block = 8 * (1 + random() % 100);
    const std::string bytes = Bytes(random, element * (1 + random() % 3000));
    const int inside = std::array{0, 2, 3}[random() % 3];
    ASSERT_EQ(Decoded(Bitshuffle(element, block, inside),
                      BitshuffleChunk(bytes, element, block, inside), bytes.size())
                  .value(),
              bytes)
        << element << " bytes, blocks of " << block << ", inside " << inside;
    const size_t part = 1 + random() % 5000;
    ASSERT_EQ(Decoded(Hdf5Lz4{}, Lz4Chunk(bytes, part), bytes.size()).value(), bytes) << part;
  }
  // Without a size, the usual block.
  const std::string bytes = Bytes(random, 50000);
  EXPECT_EQ(Decoded(Bitshuffle(2, 0, 0), BitshuffleChunk(bytes, 2, 4096, 0), bytes.size()).value(),
            bytes);
}

TEST(Hdf5FiltersTest, RefusesWrongSizes) {
  std::mt19937 random(1);
  const std::string bytes = Bytes(random, 1000);
  const std::string lz4 = Lz4Chunk(bytes, 256), shuffled = BitshuffleChunk(bytes, 2, 64, 2),
                    zstd = BitshuffleChunk(bytes, 2, 64, 3);
  // Cut off anywhere.
  for (size_t n = 0; n < lz4.size(); ++n)
    EXPECT_THAT(Decoded(Hdf5Lz4{}, lz4.substr(0, n), 1000), IsError(kDataLoss, "damaged chunk"));
  for (const auto& [chunk, inside] : {std::pair(shuffled, 2), std::pair(zstd, 3)}) {
    for (size_t n = 0; n < chunk.size(); ++n)
      EXPECT_THAT(Decoded(Bitshuffle(2, 0, inside), chunk.substr(0, n), 1000),
                  IsError(kDataLoss, "damaged chunk"));
  }
  EXPECT_THAT(Decoded(Bitshuffle(2, 64, 0), bytes.substr(1), 1000),
              IsError(kDataLoss, "it has 999 bytes; it should have 1000"));
  // Another total, in the head or in the file.
  EXPECT_THAT(Decoded(Hdf5Lz4{}, lz4, 999),
              IsError(kDataLoss, "its head says 1000 bytes; it should have 999"));
  EXPECT_THAT(Decoded(Hdf5Lz4{}, BigEndian(UINT64_MAX, 8) + lz4.substr(8), 1000),
              IsError(kDataLoss, "its head says 18446744073709551615 bytes"));
  EXPECT_THAT(Decoded(Bitshuffle(2, 0, 2), shuffled, 1002),
              IsError(kDataLoss, "its head says 1000 bytes"));
  EXPECT_THAT(Decoded(Bitshuffle(8, 0, 2), shuffled, 1001), IsError(kDataLoss, "1001"));
  // Blocks that cannot be.
  const auto blocks = [](const std::string& chunk, uint64_t size) {
    return chunk.substr(0, 8) + BigEndian(size, 4) + chunk.substr(12);
  };
  EXPECT_THAT(Decoded(Hdf5Lz4{}, blocks(lz4, 0), 1000), IsError(kDataLoss, "blocks of 0 bytes"));
  EXPECT_THAT(Decoded(Bitshuffle(2, 0, 2), blocks(shuffled, 0), 1000),
              IsError(kDataLoss, "blocks of 0 bytes"));
  EXPECT_THAT(Decoded(Bitshuffle(2, 0, 2), blocks(shuffled, 24), 1000),
              IsError(kDataLoss, "blocks of 24 bytes; allowed multiples of 16"));
  EXPECT_THAT(Decoded(Bitshuffle(2, 0, 2), blocks(shuffled, 0xFFFFFFF0), 1000),
              IsError(kDataLoss, "lz4: a block of "));
  EXPECT_THAT(Decoded(Hdf5Lz4{}, blocks(lz4, 0xFFFFFFFF), 1000), IsError(kDataLoss, "lz4"));
  const std::string huge = lz4.substr(0, 12) + BigEndian(0xFFFFFFFF, 4) + lz4.substr(16);
  EXPECT_THAT(Decoded(Hdf5Lz4{}, huge, 1000),
              IsError(kDataLoss, "a block of 4294967295 bytes, of which it has"));
}

TEST(Hdf5FiltersTest, SurvivesMutations) {
  std::mt19937 random(FreshSeed());
  int errors = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::string bytes = Bytes(random, 8 * (1 + random() % 400));
    const int inside = std::array{0, 2, 3}[random() % 3];
    const size_t element = size_t{1} << random() % 4, block = 8 * (1 + random() % 30);
    const bool lz4 = random() % 3 == 0;
    std::string chunk =
        lz4 ? Lz4Chunk(bytes, 1 + random() % 700) : BitshuffleChunk(bytes, element, block, inside);
    for (size_t k = 1 + random() % 6; k-- > 0;) {
      // Mostly in the head and the first lengths.
      char& at =
          chunk[random() % (random() % 2 == 0 ? std::min<size_t>(24, chunk.size()) : chunk.size())];
      at = static_cast<char>(random() % 2 == 0 ? random() : at ^ 1 << random() % 8);
    }
    if (random() % 8 == 0) chunk.resize(random() % chunk.size());
    const auto decoded = lz4 ? Decoded(Hdf5Lz4{}, chunk, bytes.size())
                             : Decoded(Bitshuffle(element, block, inside), chunk, bytes.size());
    if (decoded.ok()) continue;  // other data: these formats have no checksum
    ++errors;
    ASSERT_THAT(decoded, IsError(kDataLoss, "damaged chunk"));
  }
  EXPECT_GT(errors, 100);
}

/// A dataset of projections in chunks of a filter.
struct Encoded {
  int filter = kHdf5Bitshuffle;
  int inside = 2;
  size_t block = 0;  // 0 = the usual one
  std::vector<hsize_t> chunk = {2, 3, 4};
  std::vector<unsigned> parameters;  // empty = the right ones
  Hdf5Builder::Layout layout;        // shuffle, deflate, type
};

class Hdf5FilterFilesTest : public ProjectionInputTest {
 protected:
  template <class T>
  std::string File(const std::vector<T>& values, Encoded how,
                   const std::vector<hsize_t>& shape = {kAngles, kRows, kColumns}) {
    const std::string path = folder_ / "filter.h5";
    Hdf5Builder file(path);
    std::vector<double> angles(shape[0]);
    file.Data("/exchange/theta", {shape[0]}, angles);
    Add(file, "/exchange/data", values, std::move(how), shape);
    return path;
  }

  template <class T>
  static void Add(Hdf5Builder& file, const std::string& name, const std::vector<T>& values,
                  Encoded how, const std::vector<hsize_t>& shape = {kAngles, kRows, kColumns}) {
    const size_t block =
        how.block > 0 ? how.block : static_cast<size_t>(Hdf5Bitshuffle::DefaultBlock(sizeof(T)));
    if (how.parameters.empty() && how.filter == kHdf5Bitshuffle)
      how.parameters = {0, 4, sizeof(T), static_cast<unsigned>(how.block),
                        static_cast<unsigned>(how.inside)};
    how.layout.chunk = how.chunk;
    file.Encoded(
        name, shape, values, how.layout, how.filter, how.parameters, [&](const std::string& bytes) {
          return how.filter == kHdf5Lz4 ? Lz4Chunk(bytes, how.block > 0 ? how.block : 1 << 20)
                                        : BitshuffleChunk(bytes, sizeof(T), block, how.inside);
        });
  }

  template <class T>
  void ExpectRead(const Encoded& how) {
    const std::string path = File(Frames<T>(kAngles, 0), how);
    ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(path, {}));
    EXPECT_EQ(ReadAll<T>(*input, FrameKind::kProjection), Frames<T>(kAngles, 0));
    // One frame of a chunk of several, and a box within a chunk.
    const ProjectionBox part{
        .first_frame = 3, .frames = 1, .first_row = 1, .rows = 2, .first_column = 3, .columns = 2};
    std::vector<T> wanted;
    for (const int at : {3 * 24 + 6 + 3, 3 * 24 + 6 + 4, 3 * 24 + 12 + 3, 3 * 24 + 12 + 4})
      wanted.push_back(Frames<T>(kAngles, 0)[static_cast<size_t>(at)]);
    EXPECT_EQ(Read<T>(*input, part), wanted);
  }
};

TEST_F(Hdf5FilterFilesTest, EveryBoxIsRead) {
  for (const auto& chunk : {std::vector<hsize_t>{1, 4, 6}, {2, 3, 4}, {5, 4, 6}, {1, 1, 5}}) {
    for (const int inside : {0, 2, 3}) {
      for (const size_t block : {0, 8, 64}) {
        SCOPED_TRACE(absl::StrCat(chunk[0], " frames, inside ", inside, ", block ", block));
        ExpectRead<uint8_t>({.inside = inside, .block = block, .chunk = chunk});
        ExpectRead<uint16_t>({.inside = inside, .block = block, .chunk = chunk});
        ExpectRead<int16_t>({.inside = inside, .block = block, .chunk = chunk});
        ExpectRead<float>({.inside = inside, .block = block, .chunk = chunk});
      }
    }
    ExpectRead<uint16_t>({.filter = kHdf5Lz4, .chunk = chunk});
    ExpectRead<uint16_t>({.filter = kHdf5Lz4, .block = 7, .chunk = chunk});
    ExpectRead<float>({.filter = kHdf5Lz4, .block = 16, .chunk = chunk});
  }
}

TEST_F(Hdf5FilterFilesTest, OtherNumbersBecomeFloats) {
  for (const int inside : {0, 2, 3}) {
    const std::string path = File(Frames<uint32_t>(kAngles, 0), {.inside = inside});
    ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(path, {}));
    EXPECT_EQ(input->info().stored_type, "u32");
    EXPECT_EQ(ReadAll<float>(*input, FrameKind::kProjection), Frames<float>(kAngles, 0));
  }
  const std::string path = File(Frames<double>(kAngles, 0), {.filter = kHdf5Lz4});
  ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(path, {}));
  EXPECT_EQ(ReadAll<float>(*input, FrameKind::kProjection), Frames<float>(kAngles, 0));
}

// Many threads, random shapes and boxes.
TEST_F(Hdf5FilterFilesTest, ManyThreadsRead) {
  std::mt19937 random(FreshSeed());
  const auto upto = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
  for (int i = 0; i < 10; ++i) {
    const int64_t frames = 1 + upto(12), rows = 1 + upto(20), columns = 2 + upto(40);
    std::vector<uint16_t> values(static_cast<size_t>(frames * rows * columns));
    for (uint16_t& v : values) v = static_cast<uint16_t>(random() % 1000);
    const auto u = [](int64_t n) { return static_cast<hsize_t>(n); };
    const std::string path = File(values,
                                  {.filter = i % 3 == 0 ? kHdf5Lz4 : kHdf5Bitshuffle,
                                   .inside = i % 2 == 0 ? 2 : 3,
                                   .block = 8 * (random() % 10),
                                   .chunk = {u(1 + upto(static_cast<uint64_t>(frames))),
                                             u(1 + upto(static_cast<uint64_t>(rows))),
                                             u(1 + upto(static_cast<uint64_t>(columns)))}},
                                  {u(frames), u(rows), u(columns)});
    ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(path, {}));
    std::vector<std::jthread> threads;
    for (uint32_t t = 0; t < 6; ++t) {
      threads.emplace_back([&, seed = static_cast<uint32_t>(random())] {
        std::mt19937 own(seed);
        for (int k = 0; k < 20; ++k) {
          const auto at = [&](int64_t n) { return static_cast<int64_t>(own()) % n; };
          ProjectionBox box{
              .first_frame = at(frames), .first_row = at(rows), .first_column = at(columns)};
          box.frames = 1 + at(frames - box.first_frame);
          box.rows = 1 + at(rows - box.first_row);
          box.columns = 1 + at(columns - box.first_column);
          std::vector<uint16_t> wanted;
          for (int64_t f = box.first_frame; f < box.first_frame + box.frames; ++f) {
            for (int64_t r = box.first_row; r < box.first_row + box.rows; ++r) {
              for (int64_t c = box.first_column; c < box.first_column + box.columns; ++c)
                wanted.push_back(values[static_cast<size_t>((f * rows + r) * columns + c)]);
            }
          }
          EXPECT_EQ(Read<uint16_t>(*input, box), wanted);
        }
      });
    }
  }
}

TEST_F(Hdf5FilterFilesTest, WhatCannotBeDecodedIsRefused) {
  const auto frames = Frames<uint16_t>(kAngles, 0);
  const auto refused = [&](const Encoded& how, const char* text) {
    const auto input = OpenProjections(File(frames, how), {});
    EXPECT_THAT(input, IsError(kInvalid, text));
    EXPECT_THAT(input, IsError(kInvalid, how.filter == kHdf5Lz4 ? "LZ4 (filter 32004)"
                                                                : "bitshuffle (filter 32008)"));
    EXPECT_EQ(InfoOf(input.status()).reason, Reason::kBadProjections);
  };
  refused({.parameters = {0, 4, 4, 0, 2}}, "its elements have 4 bytes; allowed 2");
  refused({.parameters = {0, 4, 2, 12, 2}}, "blocks of 12 elements; allowed multiples of 8");
  refused({.parameters = {0, 4, 2, 0, 5}},
          "the compression 5 inside; allowed 0 (none), 2 (LZ4), 3 (zstd)");
  refused({.parameters = {0, 4}}, "has 2 parameters of the filter; allowed 3 to 16");
  refused({.layout = {.deflate = 1}},
          "behind a compression; allowed a compression as the last filter");
  refused({.filter = kHdf5Lz4, .layout = {.deflate = 1}},
          "behind a compression; allowed a compression as the last filter");
  const hid_t odd = H5Tcopy(H5T_STD_U16LE);
  H5Tset_precision(odd, 12);
  refused({.layout = {.type = odd}}, "holds numbers of an unusual format");
  H5Tclose(odd);
}

TEST_F(Hdf5FilterFilesTest, ShuffleMayComeBefore) {
  // The shuffle of HDF5 and then LZ4, as some detectors do.
  const auto shuffle = [](const std::string& bytes) {
    std::string out;
    for (size_t b = 0; b < 2; ++b) {
      for (size_t i = b; i < bytes.size(); i += 2) out += bytes[i];
    }
    return out;
  };
  const std::string path = folder_ / "shuffle.h5";
  const auto frames = Frames<uint16_t>(kAngles, 0);
  {
    Hdf5Builder file(path);
    file.Data("/exchange/theta", {kAngles}, Degrees(kAngles));
    file.Encoded("/exchange/data", {kAngles, kRows, kColumns}, frames,
                 {.chunk = {2, 4, 6}, .shuffle = true}, kHdf5Lz4, {},
                 [&](const std::string& bytes) { return Lz4Chunk(shuffle(bytes), 50); });
  }
  ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(path, {}));
  EXPECT_EQ(ReadAll<uint16_t>(*input, FrameKind::kProjection), frames);
}

// The library takes the size from the file when it reads, whatever type the dataset has.
TEST_F(Hdf5FilterFilesTest, AShuffleOfOtherElementsIsLeftToTheLibraryOrRefused) {
  const auto frames = Frames<uint16_t>(kAngles, 0);
  const std::string deflated = folder_ / "deflated.h5", lz4 = folder_ / "lz4.h5";
  {
    Hdf5Builder file(deflated);
    file.Data("/exchange/theta", {kAngles}, Degrees(kAngles));
    file.Data("/exchange/data", {kAngles, kRows, kColumns}, frames,
              {.chunk = {2, 4, 6}, .deflate = 1, .shuffle = true});
    Hdf5Builder other(lz4);
    other.Data("/exchange/theta", {kAngles}, Degrees(kAngles));
    other.Encoded("/exchange/data", {kAngles, kRows, kColumns}, frames,
                  {.chunk = {2, 4, 6}, .shuffle = true}, kHdf5Lz4, {},
                  [&](const std::string& bytes) { return Lz4Chunk(bytes, 50); });
  }
  for (const std::string& path : {deflated, lz4}) {
    std::string bytes = Contents(path);
    const size_t at = bytes.find(std::string("shuffle\0\2\0\0\0", 12));
    ASSERT_NE(at, std::string::npos);
    bytes[at + 8] = 4;
    std::ofstream(path, std::ios::binary) << bytes;
  }
  std::vector<uint16_t> of_the_library(frames.size());
  {
    const hid_t file = H5Fopen(deflated.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    const hid_t data = H5Dopen2(file, "/exchange/data", H5P_DEFAULT);
    ASSERT_GE(
        H5Dread(data, H5T_NATIVE_UINT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, of_the_library.data()), 0);
    H5Dclose(data);
    H5Fclose(file);
  }
  ASSERT_NE(of_the_library, frames);
  ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(deflated, {}));
  EXPECT_EQ(ReadAll<uint16_t>(*input, FrameKind::kProjection), of_the_library);
  EXPECT_THAT(OpenProjections(lz4, {}),
              IsError(kInvalid, "shuffles elements of another size; allowed 2 bytes"));
}

TEST_F(Hdf5FilterFilesTest, PartsOfAVirtualDatasetAreRefused) {
  const std::string path = folder_ / "virtual.h5";
  {
    Hdf5Builder file(path);
    file.Data("/exchange/theta", {kAngles}, Degrees(kAngles));
    Add(file, "/raw", Frames<uint16_t>(kAngles, 0), {});
    file.VirtualData("/exchange/data", {kAngles, kRows, kColumns},
                     {{.file = ".", .dataset = "/raw", .shape = {5, 4, 6}, .at = {0, 0, 0}}});
  }
  EXPECT_THAT(OpenProjections(path, {}),
              IsError(kInvalid, "is a part of a virtual dataset and compressed with filter 32008"));
  ASSERT_OK_AND_ASSIGN(const auto input,
                       OpenProjections(path, {.projections = "/raw", .angles = "/exchange/theta"}));
  EXPECT_EQ(ReadAll<uint16_t>(*input, FrameKind::kProjection), Frames<uint16_t>(kAngles, 0));
}

TEST_F(Hdf5FilterFilesTest, AnglesSoCompressedAreRefused) {
  const std::string path = File(Frames<uint16_t>(kAngles, 0), {});
  EXPECT_THAT(OpenProjections(path, {.angles = "/exchange/data"}),
              IsError(absl::StatusCode::kUnimplemented, "compressed with filter 32008"));
}

// A chunk with wrong bytes: an error that names the dataset, or other data.
TEST_F(Hdf5FilterFilesTest, DamageIsDataLoss) {
  std::mt19937 random(FreshSeed());
  int errors = 0;
  for (int i = 0; i < 60; ++i) {
    std::pair<int64_t, int64_t> chunk;
    const std::string path = folder_ / "damaged.h5";
    {
      Hdf5Builder file(path);
      file.Data("/exchange/theta", {kAngles}, Degrees(kAngles));
      Add(file, "/exchange/data", Frames<uint16_t>(kAngles, 0),
          {.filter = i % 2 == 0 ? kHdf5Lz4 : kHdf5Bitshuffle, .chunk = {1, 4, 6}});
      chunk = file.FirstChunk("/exchange/data");
    }
    std::string bytes(static_cast<size_t>(chunk.second), '\0');
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(chunk.first);
    file.read(bytes.data(), chunk.second);
    for (int k = 0; k < 3; ++k) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (i < 2) bytes[7] = static_cast<char>(bytes[7] + 1);  // the total
    file.seekp(chunk.first);
    file.write(bytes.data(), chunk.second);
    file.close();
    ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(path, {}));
    std::vector<uint16_t> out(kAngles * kRows * kColumns);
    const absl::Status read =
        input->Read({.frames = kAngles, .rows = kRows, .columns = kColumns}, out.data());
    if (!read.ok()) {
      ++errors;
      EXPECT_THAT(read, IsError(kDataLoss, "/exchange/data cannot be read at frame 0: damaged"));
      EXPECT_EQ(InfoOf(read).reason, Reason::kDamagedFile);
    }
    EXPECT_THAT(input->Read({.first_frame = 1, .frames = 4, .rows = kRows, .columns = kColumns},
                            out.data()),
                IsOk());
  }
  EXPECT_GE(errors, 2);
}

// As the library does.
TEST_F(Hdf5FilterFilesTest, BytesBehindTheEndAreLeftOut) {
  const std::string path = folder_ / "tail.h5";
  const auto frames = Frames<uint16_t>(kAngles, 0);
  {
    Hdf5Builder file(path);
    file.Data("/exchange/theta", {kAngles}, Degrees(kAngles));
    file.Encoded("/exchange/data", {kAngles, kRows, kColumns}, frames, {.chunk = {1, 4, 6}},
                 H5Z_FILTER_DEFLATE, {6},
                 [](const std::string& bytes) { return Deflate(bytes) + "tail"; });
  }
  ASSERT_OK_AND_ASSIGN(const auto input, OpenProjections(path, {}));
  EXPECT_EQ(ReadAll<uint16_t>(*input, FrameKind::kProjection), frames);
}

}  // namespace
}  // namespace octavo::storage

// Commits whose files go past the page cache: what is in them, and what happens when that is
// refused or fails.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <hdf5.h>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"

#include "gpu/device/alignment.h"
#include "server/storage/formats/format_writers.h"
#include "server/storage/formats/input_volume.h"
#include "server/storage/formats/volume_input.h"
#include "server/storage/io/crc32c.h"
#include "server/storage/zarr/grid.h"
#include "tests/server/storage/io/write_faults.h"
#include "tests/server/storage/storage_test_base.h"
#include "tests/support/seed.h"

namespace octavo::storage {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using testing::Faults;
using testing::StorageTest;

struct Shape {
  int64_t y, x, z;
  DType dtype;
};
// Larger than a block, rows and planes of all remainders.
const Shape kShapes[] = {{37, 61, 509, DType::kF32},  {64, 64, 256, DType::kU16},
                         {5, 1021, 1031, DType::kU8}, {1031, 3, 700, DType::kU16},
                         {40, 128, 128, DType::kC64}, {2, 3, 5, DType::kU8},
                         {600, 16, 64, DType::kU8}};

class DirectCommitTest : public StorageTest {
 protected:
  DirectCommitTest() { Faults().Reset(); }
  ~DirectCommitTest() override {
    Faults().Reset();
    // A file that the library cannot close stays open in it, with its memory, until the end.
    EXPECT_EQ(H5Fget_obj_count(H5F_OBJ_ALL, H5F_OBJ_ALL), 0);
  }

  /// Writes a volume in slabs of random extents, and returns the folder.
  std::string Write(const VolumeMeta& meta, const std::vector<uint8_t>& data,
                    const WriterOptions& options, uint32_t seed) {
    std::string folder = absl::StrCat(root(), "/w", count_++);
    std::filesystem::create_directory(folder);
    auto writer = MakeFileListWriter(folder, meta, options);
    EXPECT_THAT(writer, IsOk());
    const int64_t plane = meta.shape[1] * meta.shape[2] * SizeOf(meta.dtype);
    std::mt19937 random(seed);
    for (int64_t y = 0; y < meta.shape[0];) {
      const int64_t n =
          std::min<int64_t>(meta.shape[0] - y, 1 + static_cast<int64_t>(random()) % meta.shape[0]);
      // The memory of a slab is the caller's again as soon as the call returns.
      std::vector<uint8_t> slab(data.begin() + y * plane, data.begin() + (y + n) * plane);
      EXPECT_THAT((*writer)->WriteSlab(y, n, slab.data()), IsOk());
      std::fill(slab.begin(), slab.end(), uint8_t{0xEE});
      y += n;
    }
    EXPECT_THAT((*writer)->Finish(), IsOk());
    int64_t bytes = 0;
    for (const Manifest::File& file : (*writer)->Files()) {
      const auto content = ReadFile(absl::StrCat(folder, "/", file.path));
      EXPECT_EQ(file.bytes, std::ssize(content)) << file.path;
      EXPECT_EQ(file.crc32c, Crc32c(content.data(), content.size())) << file.path;
      bytes += file.bytes;
    }
    EXPECT_EQ((*writer)->DiskBytes(), bytes);
    return folder;
  }

  /// The voxels at the end of a file as a volume [y, x, z]; `transposed`: they lie as [z, y, x].
  static std::vector<uint8_t> Voxels(const std::vector<uint8_t>& file, const VolumeMeta& meta,
                                     bool transposed) {
    const auto size = static_cast<size_t>(SizeOf(meta.dtype));
    const auto ny = static_cast<size_t>(meta.shape[0]), nx = static_cast<size_t>(meta.shape[1]),
               nz = static_cast<size_t>(meta.shape[2]);
    const size_t bytes = ny * nx * nz * size;
    const uint8_t* const in = file.data() + (file.size() - bytes);
    if (!transposed) return {in, in + bytes};
    std::vector<uint8_t> out(bytes);
    for (size_t z = 0; z < nz; ++z) {
      for (size_t i = 0; i < ny * nx; ++i)
        std::memcpy(&out[(i * nz + z) * size], in + (z * ny * nx + i) * size, size);
    }
    return out;
  }

  int count_ = 0;
};

TEST_F(DirectCommitTest, FilesOfAnySlabsHaveTheVolumeAndTheCrcThatIsListed) {
  const uint32_t seed = octavo::testing::FreshSeed();
  SCOPED_TRACE(seed);
  for (const Shape& shape : kShapes) {
    VolumeMeta meta;
    const auto data = MakeVolume(&meta, shape.y, shape.x, shape.z, shape.dtype);
    for (const Format format : {Format::kNpy, Format::kBin, Format::kNrrd, Format::kNifti}) {
      if (shape.dtype == DType::kF16) continue;
      SCOPED_TRACE(absl::StrCat(FormatName(format), " ", shape.y, " ", shape.x, " ", shape.z));
      const std::string folder = Write(meta, data, {.format = format, .compress = false},
                                       seed + static_cast<uint32_t>(count_));
      EXPECT_TRUE(Voxels(ReadFile(folder + "/data"), meta, format == Format::kNifti) == data);
      std::filesystem::remove_all(folder);
    }
  }
}

TEST_F(DirectCommitTest, ChunksOfManyThreadsInOneSlabAreThoseOfOne) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 150, 40, 64);
  auto store = Open();
  const auto files = [&](const char* name, WriterOptions options) {
    auto outcome = Commit(*store, name, meta, data, options);
    EXPECT_THAT(outcome, IsOk());
    std::map<std::string, std::vector<uint8_t>> out;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(outcome->path)) {
      if (entry.is_regular_file() && entry.path().filename() != ".octavo-manifest.json")
        out[std::filesystem::relative(entry.path(), outcome->path)] = ReadFile(entry.path());
    }
    return out;
  };
  for (const WriterOptions& options :
       {WriterOptions{.chunk = {16, 32, 32}}, WriterOptions{.chunk = {1, 40, 64}},
        WriterOptions{.chunk = {8, 16, 16}, .shard = {32, 32, 32}},
        WriterOptions{.chunk = {16, 32, 32}, .pyramid_levels = 4}}) {
    WriterOptions one = options, many = options;
    one.threads = 1;
    many.threads = 40;
    const auto slab = [&](const WriterOptions& of) {
      return (*store->Begin("test-1", "x", meta, of))->SlabBscans();
    };
    EXPECT_GT(slab(many), slab(one));
    EXPECT_TRUE(files("one", one) == files("many", many));
    for (const auto& entry : std::filesystem::directory_iterator(root()))
      std::filesystem::remove_all(entry);
  }
}

TEST_F(DirectCommitTest, TransposedVolumesComeInLargeSlabsWhereThereIsMemory) {
  auto store = Open();
  for (const auto& [bscans, slab] : {std::pair<int64_t, int64_t>{16, 16}, {200, 64}, {1024, 128}}) {
    const VolumeMeta meta{
        .volume_name = "volumes/1", .shape = {bscans, 512, 512}, .dtype = DType::kU16};
    const auto slabs = [&](Format format) {
      auto begun = store->Begin("test-1", "x", meta, {.format = format});
      EXPECT_THAT(begun, IsOk());
      return std::pair((*begun)->SlabBscans(), (*begun)->LeastSlabBscans());
    };
    EXPECT_EQ(slabs(Format::kNifti), std::pair(slab, std::min<int64_t>(bscans, 64)));
    EXPECT_EQ(slabs(Format::kNpy), std::pair(int64_t{16}, int64_t{16}));
  }
}

TEST_F(DirectCommitTest, ComplexMatlabRowsComeBack) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 41, 61, 129, DType::kC64);
  const std::string folder = Write(meta, data, {.format = Format::kMatlab, .compress = false}, 5);
  const auto file = ReadFile(folder + "/data");
  const size_t count = data.size() / 8;
  // The real parts, which begin the voxels, and the imaginary ones.
  std::vector<uint8_t> real, imaginary;
  for (size_t i = 0; i < count; ++i) {
    real.insert(real.end(), &data[8 * i], &data[8 * i] + 4);
    imaginary.insert(imaginary.end(), &data[8 * i + 4], &data[8 * i + 4] + 4);
  }
  const auto first = std::search(file.begin(), file.end(), real.begin(), real.end());
  ASSERT_NE(first, file.end());
  EXPECT_NE(std::search(first, file.end(), imaginary.begin(), imaginary.end()), file.end());
}

TEST_F(DirectCommitTest, LargeFilesGoPastThePageCacheAndSmallOnesThroughIt) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 64, 256, 256);  // 4 MiB
  auto store = Open();
  ASSERT_THAT(Commit(*store, "a", meta, data, {.format = Format::kNpy}), IsOk());
  if (Faults().opened_direct == 0) GTEST_SKIP() << "no direct writes below " << root();
  EXPECT_GE(Faults().direct, std::ssize(data) - 8192);
  Faults().Reset();
  ASSERT_THAT(Commit(*store, "b", meta, data, {.chunk = {64, 128, 128}, .compress = false}),
              IsOk());
  EXPECT_EQ(Faults().direct, std::ssize(data)) << "four chunks of 1 MiB";
  Faults().Reset();
  ASSERT_THAT(Commit(*store, "c", meta, data, {.chunk = {16, 64, 64}, .compress = false}), IsOk());
  EXPECT_EQ(Faults().direct, 0) << "chunks of 64 KiB";
  EXPECT_EQ(Faults().opened_direct, 0);
  Faults().Reset();
  ASSERT_THAT(Commit(*store, "d", meta, data,
                     {.chunk = {16, 64, 64}, .shard = {64, 256, 256}, .compress = false}),
              IsOk());
  EXPECT_GE(Faults().direct, std::ssize(data)) << "a shard of 4 MiB";
}

// The file gets its room before the first chunk. What the library does not use of it is cut off.
TEST_F(DirectCommitTest, AnHdf5FileHasItsChunksAndNoRoomBehindThem) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 64, 256, 250, DType::kU16);
  auto store = Open();
  const int64_t chunks[][3] = {{16, 128, 128},  // pages
                               {16, 128, 125},  // larger than what is written at once, no pages
                               {7, 100, 150},   // smaller
                               {64, 256, 250}, {1, 256, 250}, {5, 256, 3}};
  for (const auto& chunk : chunks) {
    SCOPED_TRACE(absl::StrCat(chunk[0], " ", chunk[1], " ", chunk[2]));
    WriterOptions options{.format = Format::kHdf5, .compress = false};
    std::copy_n(chunk, 3, options.chunk);
    ASSERT_OK_AND_ASSIGN(const auto outcome, Commit(*store, "a", meta, data, options));
    int64_t count = 1, bytes = 2;
    for (int d = 0; d < 3; ++d) {
      count *= CeilDiv(meta.shape[d], chunk[d]);
      bytes *= chunk[d];
    }
    const bool aligned = bytes >= kLeastDirectBytes;
    const int64_t size = static_cast<int64_t>(std::filesystem::file_size(outcome.path)),
                  raw = count * (aligned ? RoundUp(bytes, 4096) : bytes);
    EXPECT_GE(size, raw);
    EXPECT_LT(size, raw + count * 64 + (32 << 10));
    ASSERT_OK_AND_ASSIGN(auto input, OpenVolumeInput(outcome.path, {}));
    ASSERT_OK_AND_ASSIGN(const auto stored, InputVolume::Make(std::move(input), {}));
    EXPECT_THAT(stored->Verify(), IsOk());
    std::vector<uint8_t> back(data.size());
    ASSERT_THAT(stored->Read(0, 64, back.data()), IsOk());
    EXPECT_TRUE(back == data);
    std::filesystem::remove_all(outcome.path);
    std::filesystem::remove_all(outcome.path + ".json");
  }
}

TEST_F(DirectCommitTest, AFileSystemWithoutItAndShortWritesChangeNothing) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 64, 250, 256, DType::kU16);
  auto store = Open();
  const auto commits = [&](const char* name) {
    for (const WriterOptions& options :
         {WriterOptions{.format = Format::kNpy}, WriterOptions{.compress = false},
          WriterOptions{.format = Format::kNifti}, WriterOptions{.format = Format::kHdf5},
          WriterOptions{.format = Format::kHdf5, .compress = false}}) {
      const auto outcome = Commit(
          *store, absl::StrCat(name, FormatName(options.format), options.compress ? "" : "-none"),
          meta, data, options);
      ASSERT_THAT(outcome, IsOk());
      if (options.format == Format::kOmeZarr05) {
        EXPECT_THAT(VerifyDirectory(outcome->path), IsOk());
      } else {
        const auto file = ReadFile(outcome->path);
        EXPECT_EQ(nlohmann::json::parse(ReadFile(outcome->path + ".json"))["file"]["crc32c"],
                  absl::StrCat(absl::Hex(Crc32c(file.data(), file.size()), absl::kZeroPad8)));
      }
    }
  };
  Faults().open_direct = EINVAL;
  commits("open");
  EXPECT_EQ(Faults().direct, 0);
  Faults().Reset();
  Faults().write_direct = EINVAL;
  commits("write");
  EXPECT_EQ(Faults().direct, 0);
  Faults().Reset();
  Faults().most = 70'000;
  commits("short");
}

TEST_F(DirectCommitTest, AFullDiskLeavesNothing) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 64, 256, 256, DType::kU16);
  auto store = Open();
  for (const int64_t room : {0, 1000, 5'000'000}) {
    for (const WriterOptions& options :
         {WriterOptions{.format = Format::kNpy}, WriterOptions{.compress = false},
          WriterOptions{.format = Format::kNifti}, WriterOptions{.format = Format::kHdf5},
          WriterOptions{.format = Format::kHdf5, .compress = false}}) {
      Faults().room = room;
      EXPECT_THAT(Commit(*store, "deep/x", meta, data, options),
                  IsError(absl::StatusCode::kResourceExhausted, "No space left"));
      EXPECT_EQ(Files(), std::vector<std::string>()) << FormatName(options.format) << " " << room;
      Faults().Reset();
    }
  }
  EXPECT_THAT(Commit(*store, "deep/x", meta, data, {}), IsOk());
}

TEST_F(DirectCommitTest, RoomThatCannotBeReserved) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 64, 256, 250, DType::kU16);
  auto store = Open();
  for (const WriterOptions& options :
       {WriterOptions{.format = Format::kNpy}, WriterOptions{.format = Format::kNifti},
        WriterOptions{.format = Format::kHdf5, .compress = false}}) {
    SCOPED_TRACE(FormatName(options.format));
    Faults().reserve = ENOSPC;
    EXPECT_THAT(Commit(*store, "deep/x", meta, data, options),
                IsError(absl::StatusCode::kResourceExhausted, "No space left"));
    EXPECT_EQ(Files(), std::vector<std::string>());
    Faults().reserve = EOPNOTSUPP;  // of a file system that reserves nothing: written as it is
    ASSERT_OK_AND_ASSIGN(const auto outcome, Commit(*store, "x", meta, data, options));
    ASSERT_OK_AND_ASSIGN(auto input, OpenVolumeInput(outcome.path, {}));
    EXPECT_THAT(input->Verify(), IsOk());
    input.reset();
    std::filesystem::remove_all(outcome.path);
    std::filesystem::remove_all(outcome.path + ".json");
  }
}

TEST_F(DirectCommitTest, AnHdf5FileThatCannotBeCutOffLeavesNothing) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 64, 256, 250, DType::kU16);
  auto store = Open();
  const WriterOptions options{.format = Format::kHdf5, .compress = false};
  Faults().truncate = EIO;
  EXPECT_THAT(Commit(*store, "deep/x", meta, data, options),
              IsError(absl::StatusCode::kInternal, "Input/output error"));
  EXPECT_EQ(Files(), std::vector<std::string>());
  Faults().Reset();
  EXPECT_THAT(Commit(*store, "deep/x", meta, data, options), IsOk());
}

TEST_F(DirectCommitTest, ACommitThatIsGivenUpInTheMiddleLeavesNothing) {
  VolumeMeta meta;
  const auto data = MakeVolume(&meta, 64, 256, 256, DType::kU16);
  auto store = Open();
  for (const WriterOptions& options : {WriterOptions{.format = Format::kNpy},
                                       WriterOptions{.chunk = {32, 128, 128}, .compress = false},
                                       WriterOptions{.format = Format::kNifti},
                                       WriterOptions{.format = Format::kHdf5, .compress = false}}) {
    Faults().delay_ms = 20;
    {
      auto begun = store->Begin("test-1", "deep/x", meta, options);
      ASSERT_THAT(begun, IsOk());
      ASSERT_THAT(
          (*begun)->WriteSlab(0, std::min<int64_t>(64, (*begun)->SlabBscans()), data.data()),
          IsOk());
    }
    EXPECT_EQ(Files(), std::vector<std::string>()) << FormatName(options.format);
  }
}

}  // namespace
}  // namespace octavo::storage

// The index of chunks that is read from a file, against what the library says of the same file.
#include "server/storage/hdf5/chunk_index.h"

#include <cstdint>
#include <fcntl.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "gpu/base/unique_fd.h"
#include "server/storage/io/hdf5_library.h"
#include "tests/server/storage/projections/hdf5_builder.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::storage {
namespace {

using octavo::testing::TempFolder;
using testing::Hdf5Builder;
using Shape = std::vector<hsize_t>;

class ChunkIndexTest : public ::testing::Test {
 protected:
  // Writes /a/data of u16 in chunks.
  std::string Write(const Shape& shape, const Shape& chunk) {
    MutexLock lock(Hdf5Mutex());
    const std::string path = folder_ / "scan.h5";
    Hdf5Builder file(path);
    size_t count = 1;
    for (const hsize_t extent : shape) count *= extent;
    std::vector<uint16_t> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<uint16_t>(i);
    file.Data("/a/data", shape, values, {.chunk = chunk});
    return path;
  }
  // As the library says; the address of the object header is `header_`.
  std::vector<ChunkPlace> FromLibrary(const std::string& path, int rank, bool all) {
    MutexLock lock(Hdf5Mutex());
    const Hdf5Id file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose),
        data(H5Dopen2(file.get(), "/a/data", H5P_DEFAULT), H5Dclose),
        space(H5Dget_space(data.get()), H5Sclose);
    H5O_info_t info;
    EXPECT_GE(H5Oget_info2(data.get(), &info, H5O_INFO_BASIC), 0);
    header_ = static_cast<int64_t>(info.addr);
    hsize_t count = 0;
    EXPECT_GE(H5Dget_num_chunks(data.get(), space.get(), &count), 0);
    count_ = static_cast<int64_t>(count);
    std::vector<ChunkPlace> out;
    for (hsize_t i = 0; all && i < count; ++i) {
      hsize_t offset[3] = {}, bytes = 0;
      unsigned skipped = 0;
      haddr_t address = 0;
      EXPECT_GE(H5Dget_chunk_info(data.get(), space.get(), i, offset, &skipped, &address, &bytes),
                0);
      ChunkPlace place{.address = static_cast<int64_t>(address),
                       .bytes = static_cast<int64_t>(bytes)};
      for (int d = 0; d < rank; ++d) place.offset[d] = static_cast<int64_t>(offset[d]);
      out.push_back(place);
    }
    return out;
  }
  absl::StatusOr<std::vector<ChunkPlace>> Index(const std::string& path, int rank, int64_t most) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    return ReadChunkIndex(fd.get(), header_, rank, most);
  }

  TempFolder folder_;
  int64_t header_ = 0, count_ = 0;
};

TEST_F(ChunkIndexTest, IsThatOfTheLibrary) {
  // One chunk, a node of them, several levels of nodes, chunks beyond the edges.
  for (const auto& [shape, chunk] : {std::pair<Shape, Shape>{{3, 5, 7}, {3, 5, 7}},
                                     {{9, 5, 7}, {1, 5, 7}},
                                     {{120, 7, 10}, {1, 2, 4}},
                                     {{40, 30}, {7, 1}},
                                     {{4500, 1, 2}, {1, 1, 2}},
                                     {{11}, {2}}}) {
    const int rank = static_cast<int>(shape.size());
    const std::string path = Write(shape, chunk);
    const std::vector<ChunkPlace> wanted = FromLibrary(path, rank, true);
    ASSERT_OK_AND_ASSIGN(const std::vector<ChunkPlace> got, Index(path, rank, count_));
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].address, wanted[i].address) << i;
      EXPECT_EQ(got[i].bytes, wanted[i].bytes) << i;
      for (int d = 0; d < 3; ++d) EXPECT_EQ(got[i].offset[d], wanted[i].offset[d]) << i;
    }
    if (count_ > 1) EXPECT_TRUE(absl::IsOutOfRange(Index(path, rank, count_ - 1).status()));
  }
}

TEST_F(ChunkIndexTest, OtherIndexesAreLeftToTheLibrary) {
  const std::string path = folder_ / "latest.h5";
  {
    MutexLock lock(Hdf5Mutex());
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    const Hdf5Id file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access), H5Fclose);
    H5Pclose(access);
    const Hdf5Id group(H5Gcreate2(file.get(), "/a", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                       H5Gclose);
    const hsize_t shape[3] = {20, 3, 4}, chunk[3] = {1, 3, 4};
    const Hdf5Id space(H5Screate_simple(3, shape, nullptr), H5Sclose),
        creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_chunk(creation.get(), 3, chunk);
    const Hdf5Id data(H5Dcreate2(file.get(), "/a/data", H5T_STD_U16LE, space.get(), H5P_DEFAULT,
                                 creation.get(), H5P_DEFAULT),
                      H5Dclose);
    const std::vector<uint16_t> values(240, 7);
    ASSERT_GE(H5Dwrite(data.get(), H5T_STD_U16LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
  }
  FromLibrary(path, 3, false);
  EXPECT_TRUE(absl::IsUnimplemented(Index(path, 3, 20).status()));
  EXPECT_TRUE(absl::IsUnimplemented(Index(path, 4, 20).status()));
}

// Whatever the bytes are: an answer or an error, in no more steps than the chunks allow.
TEST_F(ChunkIndexTest, DamageEndsIt) {
  const std::string path = Write({400, 2, 4}, {1, 1, 4});
  FromLibrary(path, 3, false);
  std::ifstream in(path, std::ios::binary);
  const std::string sound(std::istreambuf_iterator<char>(in), {});
  std::mt19937 random(20261129);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = sound;
    // Near the header, and in nodes of trees.
    size_t begin = static_cast<size_t>(header_), length = 400;
    if (round % 3 > 0) {
      begin = 0;
      for (auto skip = random() % 20; skip > 0; --skip) {
        const size_t next = bytes.find("TREE", begin + 1);
        if (next == std::string::npos) break;
        begin = next;
      }
      length = round % 3 == 1 ? 24 : 3000;
    }
    for (auto i = 1 + random() % 4; i > 0; --i)
      bytes[std::min(begin + random() % length, bytes.size() - 1)] = static_cast<char>(random());
    if (round % 50 == 0) bytes.resize(random() % bytes.size());
    folder_.Write("damaged.h5", bytes);
    refused += !Index(folder_ / "damaged.h5", 3, 800).ok();
  }
  EXPECT_GT(refused, 100);
  // A node that is its own child would never end.
  std::string bytes = sound;
  for (size_t at = bytes.find("TREE"); at != std::string::npos; at = bytes.find("TREE", at + 4)) {
    if (bytes[at + 4] != 1 || bytes[at + 5] == 0) continue;
    for (size_t i = 0; i < 8; ++i)
      bytes[at + 24 + 40 + i] = static_cast<char>(static_cast<uint64_t>(at) >> 8 * i & 0xFF);
  }
  folder_.Write("loop.h5", bytes);
  EXPECT_TRUE(absl::IsDataLoss(Index(folder_ / "loop.h5", 3, 800).status()));
}

}  // namespace
}  // namespace octavo::storage

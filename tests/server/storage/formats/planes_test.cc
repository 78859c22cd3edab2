// Volumes cut into planes of another order, beside element by element.

#include "server/storage/formats/planes.h"

#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace octavo::storage {
namespace {

constexpr char kGuard = 0x5a;

class PlanesTest : public ::testing::TestWithParam<int64_t> {
 protected:
  /// Elements [0, count) of the element size, with random bytes.
  std::vector<char> Elements(int64_t count) {
    std::vector<char> bytes(static_cast<size_t>(count * GetParam()));
    for (char& byte : bytes) byte = static_cast<char>(random_());
    return bytes;
  }
  int64_t Draw(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }

  std::mt19937_64 random_{std::random_device{}()};
};

// Sizes around those of vectors and tiles, parts of the planes, places that are not aligned.
TEST_P(PlanesTest, AnyShapeAndOrder) {
  const int64_t size = GetParam();
  for (int turn = 0; turn < 200; ++turn) {
    const int64_t extents[3] = {Draw(1, 9), Draw(1, 70), Draw(1, 150)};
    const std::vector<char> slab = Elements(extents[0] * extents[1] * extents[2]);
    for (const PlaneOrder order : {PlaneOrder{2, 0, 1}, {1, 0, 2}}) {
      const int64_t all = extents[order[0]], first = Draw(0, all - 1), count = Draw(1, all - first),
                    rows = extents[order[1]], columns = extents[order[2]],
                    bytes = rows * columns * size, pitch = bytes + Draw(1, 9);
      std::vector<char> out(static_cast<size_t>(count * pitch), kGuard), behind = out;
      std::vector<char*> places;
      for (int64_t i = 0; i < count; ++i) places.push_back(out.data() + i * pitch);
      CopyPlanes(slab.data(), extents, size, order, first, count, places.data());
      for (int64_t plane = 0; plane < count; ++plane) {
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t column = 0; column < columns; ++column) {
            int64_t at[3] = {};
            at[order[0]] = first + plane, at[order[1]] = row, at[order[2]] = column;
            std::memcpy(behind.data() + plane * pitch + (row * columns + column) * size,
                        slab.data() + ((at[0] * extents[1] + at[1]) * extents[2] + at[2]) * size,
                        static_cast<size_t>(size));
          }
        }
      }
      ASSERT_EQ(out, behind) << "extents " << extents[0] << " " << extents[1] << " " << extents[2]
                             << ", planes " << first << " + " << count << " across " << order[0];
    }
  }
}

TEST_P(PlanesTest, AnyRowsOfPlanesAcrossTheFirstAxis) {
  const int64_t size = GetParam();
  for (int turn = 0; turn < 200; ++turn) {
    const int64_t extents[3] = {Draw(1, 5), Draw(1, 70), Draw(1, 70)};
    const std::vector<char> slab = Elements(extents[0] * extents[1] * extents[2]);
    for (const PlaneOrder order : {PlaneOrder{0, 1, 2}, {0, 2, 1}}) {
      const int64_t rows = extents[order[1]], columns = extents[order[2]], all = extents[0] * rows,
                    first = Draw(0, all - 1), count = Draw(1, all - first);
      std::vector<char> out(static_cast<size_t>(count * columns * size + 8), kGuard), want = out;
      CopyRows(slab.data(), extents, size, order, first, count, out.data());
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t column = 0; column < columns; ++column) {
          int64_t at[3] = {(first + i) / rows};
          at[order[1]] = (first + i) % rows, at[order[2]] = column;
          std::memcpy(want.data() + (i * columns + column) * size,
                      slab.data() + ((at[0] * extents[1] + at[1]) * extents[2] + at[2]) * size,
                      static_cast<size_t>(size));
        }
      }
      ASSERT_EQ(out, want) << "extents " << extents[0] << " " << extents[1] << " " << extents[2]
                           << ", rows " << first << " + " << count << ", columns along "
                           << order[2];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(BytesOfAnElement, PlanesTest, ::testing::Values(1, 2, 4, 8));

}  // namespace
}  // namespace octavo::storage

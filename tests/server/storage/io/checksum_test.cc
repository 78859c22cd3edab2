#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "gpu/device/digest.h"
#include "server/storage/io/checksum_stream.h"
#include "server/storage/io/crc32c.h"
#include "tests/support/seed.h"

namespace octavo::storage {
namespace {

// RFC 3720, B.4, and the customary check value.
TEST(Crc32c, PublishedVectors) {
  EXPECT_EQ(Crc32c("123456789", 9), 0xE3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0').data(), 32), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(std::string(32, '\xFF').data(), 32), 0x62A8AB43u);
  std::string ascending;
  for (int i = 0; i < 32; ++i) ascending += static_cast<char>(i);
  EXPECT_EQ(Crc32c(ascending.data(), 32), 0x46DD794Eu);
  EXPECT_EQ(Crc32c("", 0), 0u);
}

std::vector<char> RandomBytes(size_t count) {
  std::mt19937 random{testing::FreshSeed()};
  std::vector<char> bytes(count);
  for (auto& b : bytes) b = static_cast<char>(random());
  return bytes;
}

TEST(Crc32c, TableAndInstructionAgreeAndPartsCombine) {
  const auto bytes = RandomBytes(100'003);
  std::mt19937 random{7};
  for (int trial = 0; trial < 300; ++trial) {
    const size_t begin = random() % 64, length = trial < 100 ? static_cast<size_t>(trial)
                                                             : random() % (bytes.size() - begin);
    const auto seed = static_cast<uint32_t>(random());
    EXPECT_EQ(Crc32c(bytes.data() + begin, length, seed),
              internal::Crc32cTable(bytes.data() + begin, length, seed));
    const size_t cut = length == 0 ? 0 : random() % length;
    const uint32_t first = Crc32c(bytes.data() + begin, cut),
                   second = Crc32c(bytes.data() + begin + cut, length - cut);
    EXPECT_EQ(Crc32cCombine(first, second, length - cut), Crc32c(bytes.data() + begin, length));
  }
}

TEST(ChecksumStream, PiecesOfAnyLengthGiveTheSumsOfTheWhole) {
  std::mt19937 random{testing::FreshSeed()};
  for (const size_t total :
       {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{4097}, size_t{20'000'003}}) {
    const auto bytes = RandomBytes(total);
    ChecksumStream sums;
    for (size_t at = 0; at < total;) {
      const size_t length =
          std::min(total - at, size_t{1} + random() % (total > 100'000 ? 9'000'000 : 11));
      sums.Add(bytes.data() + at, static_cast<int64_t>(length));
      at += length;
    }
    EXPECT_EQ(sums.bytes(), static_cast<int64_t>(total));
    EXPECT_EQ(sums.Crc(), Crc32c(bytes.data(), total));
    EXPECT_EQ(sums.Sum(), DigestBytes(bytes.data(), static_cast<int64_t>(total), 0));
  }
}

}  // namespace
}  // namespace octavo::storage

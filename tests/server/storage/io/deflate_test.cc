// Deflate of pieces and of whole blocks, each read by zlib; and the byte shuffle.

#include "server/storage/io/deflate.h"

#include <algorithm>
#include <memory>
#include <random>
#include <zlib.h>

#include "server/storage/io/byte_shuffle.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo::storage {
namespace {

using octavo::testing::FreshSeed;
using octavo::testing::IsOk;

constexpr DeflateWrap kWraps[] = {DeflateWrap::kGzip, DeflateWrap::kZlib};

/// What zlib decodes of one member or stream, its checksum and length included.
std::string ByZlib(DeflateWrap wrap, std::string packed, size_t bytes) {
  std::string back(bytes + 1, '\0');
  z_stream inflater{};
  EXPECT_EQ(inflateInit2(&inflater, wrap == DeflateWrap::kGzip ? MAX_WBITS + 16 : MAX_WBITS), Z_OK);
  inflater.next_in = reinterpret_cast<Bytef*>(packed.data());
  inflater.avail_in = static_cast<uInt>(packed.size());
  inflater.next_out = reinterpret_cast<Bytef*>(back.data());
  inflater.avail_out = static_cast<uInt>(back.size());
  EXPECT_EQ(inflate(&inflater, Z_FINISH), Z_STREAM_END);
  EXPECT_EQ(inflater.avail_in, 0u);
  back.resize(std::min<size_t>(inflater.total_out, back.size()));
  inflateEnd(&inflater);
  return back;
}

std::string Random(std::mt19937& random, size_t bytes, unsigned of) {
  std::string out(bytes, '\0');
  for (char& c : out) c = static_cast<char>(random() % of);
  return out;
}

/// Into memory of exactly this size, so that a sanitizer sees every byte beyond.
bool Inflated(DeflateWrap wrap, const std::string& packed, size_t bytes, std::string* out) {
  const std::unique_ptr<char[]> in(new char[packed.size()]), to(new char[bytes]);
  std::copy(packed.begin(), packed.end(), in.get());
  const bool whole =
      InflateBlock(wrap, absl::string_view(in.get(), packed.size()), to.get(), bytes);
  out->assign(to.get(), bytes);
  return whole;
}

TEST(Deflate, PiecesMakeOneStream) {
  std::mt19937 random(1);
  const std::string data = Random(random, 7'300'001, 20);
  for (const auto wrap : kWraps) {
    DeflateStream stream(wrap, 1);
    std::string packed = stream.Head();
    for (size_t at = 0; at < data.size();) {
      const size_t n = std::min<size_t>(random() % 3'000'000, data.size() - at);
      ASSERT_OK_AND_ASSIGN(const auto pieces,
                           stream.Add(data.data() + at, static_cast<int64_t>(n)));
      for (const auto& piece : pieces) packed += piece;
      at += n;
    }
    packed += stream.Tail();
    EXPECT_LT(packed.size(), data.size() * 3 / 4);
    EXPECT_EQ(ByZlib(wrap, packed, data.size()), data);
  }
}

TEST(Deflate, BlocksAreStreamsOfTheirOwn) {
  std::mt19937 random(FreshSeed());
  BlockDeflater deflater;
  for (int i = 0; i < 60; ++i) {
    const std::string data = Random(random, i == 0 ? 0 : random() % 70'000, 1 + random() % 256);
    const int level = 1 + static_cast<int>(random() % 9);
    for (const auto wrap : kWraps) {
      std::string packed = "before";
      ASSERT_THAT(deflater.Append(wrap, level, data.data(), data.size(), &packed), IsOk());
      ASSERT_EQ(packed.substr(0, 6), "before");
      packed.erase(0, 6);
      EXPECT_EQ(ByZlib(wrap, packed, data.size()), data);
      std::string back;
      EXPECT_TRUE(Inflated(wrap, packed, data.size(), &back));
      EXPECT_EQ(back, data);
    }
  }
}

TEST(Deflate, OnlyOneWholeStreamIsABlock) {
  std::mt19937 random(FreshSeed());
  BlockDeflater deflater;
  const std::string data = Random(random, 5'000, 30);
  for (const auto wrap : kWraps) {
    std::string packed, back;
    ASSERT_THAT(deflater.Append(wrap, 6, data.data(), data.size(), &packed), IsOk());
    EXPECT_FALSE(Inflated(wrap, packed, data.size() - 1, &back));
    EXPECT_FALSE(Inflated(wrap, packed, data.size() + 1, &back));
    EXPECT_FALSE(Inflated(wrap, packed + "x", data.size(), &back));
    EXPECT_FALSE(Inflated(wrap, packed + packed, data.size(), &back));
    EXPECT_FALSE(Inflated(wrap, "", data.size(), &back));
    EXPECT_FALSE(Inflated(wrap == DeflateWrap::kGzip ? DeflateWrap::kZlib : DeflateWrap::kGzip,
                          packed, data.size(), &back));
    for (size_t cut = 0; cut < packed.size(); cut += 1 + random() % 40)
      EXPECT_FALSE(Inflated(wrap, packed.substr(0, cut), data.size(), &back)) << cut;
    for (int i = 0; i < 300; ++i) {  // its checksum, and that of zlib's header, see every change
      std::string damaged = packed;
      const size_t at = random() % packed.size();
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
      if (Inflated(wrap, damaged, data.size(), &back)) {
        EXPECT_EQ(back, data);  // of gzip: time, system and extra flags, which mean nothing here
      }
    }
  }
}

TEST(ByteShuffle, PutsEqualBytesTogetherAndBack) {
  std::mt19937 random(FreshSeed());
  for (const int64_t element : {1, 2, 3, 4, 8, 16}) {
    for (const int64_t count : {0, 1, 7, 64, 1001}) {
      const std::string data = Random(random, static_cast<size_t>(element * count), 256);
      std::string shuffled(data.size(), 'x'), back(data.size(), 'y');
      ShuffleBytes(data.data(), count, element, shuffled.data());
      for (int64_t i = 0; i < element * count; ++i) {
        ASSERT_EQ(shuffled[static_cast<size_t>(i % element * count + i / element)],
                  data[static_cast<size_t>(i)]);
      }
      UnshuffleBytes(shuffled.data(), count, element, back.data());
      EXPECT_EQ(back, data);
    }
  }
}

}  // namespace
}  // namespace octavo::storage

#include "server/storage/projections/hdf5_filters.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <lz4.h>
#include <zstd.h>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"

namespace octavo::storage {
namespace {

static_assert(std::endian::native == std::endian::little);
constexpr int64_t kGroup = 8;  // elements whose bits make a byte

absl::Status Damaged(const absl::AlphaNum& what, const absl::AlphaNum& value) {
  return absl::DataLossError(absl::StrCat("damaged chunk: ", what, value));
}

/// Big-endian numbers and pieces of an encoded chunk, from its beginning on.
class Pieces {
 public:
  explicit Pieces(absl::string_view rest) : rest_(rest) {}

  /// False if the chunk ends before.
  bool Number(size_t bytes, uint64_t* out) {
    absl::string_view piece;
    if (!Take(bytes, &piece)) return false;
    *out = 0;
    for (const char byte : piece) *out = *out << 8 | static_cast<unsigned char>(byte);
    return true;
  }
  bool Take(uint64_t bytes, absl::string_view* out) {
    if (bytes > rest_.size()) return false;
    *out = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return true;
  }
  size_t left() const { return rest_.size(); }

 private:
  absl::string_view rest_;
};

/// The head that both filters write: bytes of the decoded chunk and of a block.
absl::Status ReadHead(Pieces* pieces, int64_t bytes, uint64_t* block) {
  uint64_t total = 0;
  if (!pieces->Number(8, &total) || !pieces->Number(4, block))
    return Damaged("a head of fewer bytes than ", 12);
  if (total != static_cast<uint64_t>(bytes))
    return Damaged(absl::StrCat("its head says ", total, " bytes; it should have "), bytes);
  if (*block == 0) return Damaged("its head says blocks of ", "0 bytes");
  return absl::OkStatus();
}

/// The next block, encoded.
absl::Status TakeBlock(Pieces* pieces, absl::string_view* packed) {
  uint64_t size = 0;
  if (!pieces->Number(4, &size)) return Damaged("it ends before a block", "");
  const size_t left = pieces->left();
  if (pieces->Take(size, packed)) return absl::OkStatus();
  return Damaged(absl::StrCat("a block of ", size, " bytes, of which it has "), left);
}

absl::Status UnpackLz4(absl::string_view packed, char* out, int64_t bytes) {
  // A chunk may have 2 GiB or more of them; a block that decodes to `bytes` needs far less.
  if (packed.size() > static_cast<size_t>(LZ4_COMPRESSBOUND(LZ4_MAX_INPUT_SIZE)))
    return Damaged("lz4: a block of ", packed.size());
  const int n = LZ4_decompress_safe(packed.data(), out, static_cast<int>(packed.size()),
                                    static_cast<int>(bytes));
  return n == bytes ? absl::OkStatus()
                    : Damaged(absl::StrCat("lz4: a block of ", bytes, " bytes has "), n);
}

// -- Transposition of bits

/// Swaps, in all 8 words, bits (of index `distance` in groups of `shift`) with words: after the
/// three steps 4, 2, 1 word and bit have changed places.
template <int kDistance>
void Swap(uint64_t* words, int shift, uint64_t mask) {
  const auto swap = [&](int k) {
    const uint64_t t = (words[k] >> shift ^ words[k + kDistance]) & mask;
    words[k + kDistance] ^= t;
    words[k] ^= t << shift;
  };
  // The words whose index lacks the bit kDistance, without a loop: compilers keep them in
  // registers.
  constexpr int kOne = kDistance == 1 ? 2 : 1, kOther = kDistance == 4 ? 2 : 4;
  swap(0), swap(kOne), swap(kOther), swap(kOne + kOther);
}

/// `plane[k]` has bit k of 64 elements, 8 to a byte; afterwards `plane[q]` has the elements 8 q to
/// 8 q + 7, a byte each.
void BitsToBytes(uint64_t* plane) {
  uint64_t words[8];
  std::copy(plane, plane + 8, words);
  Swap<4>(words, 4, 0x0F0F0F0F0F0F0F0F);
  Swap<2>(words, 2, 0x3333333333333333);
  Swap<1>(words, 1, 0x5555555555555555);
  Swap<4>(words, 32, 0x00000000FFFFFFFF);
  Swap<2>(words, 16, 0x0000FFFF0000FFFF);
  Swap<1>(words, 8, 0x00FF00FF00FF00FF);
  std::copy(words, words + 8, plane);
}

/// Moves the units of kBits in the lower half of a word apart.
template <int kBits>
uint64_t Spread(uint64_t x) {
  x &= 0xFFFFFFFF;
  if constexpr (kBits <= 16) x = (x | x << 16) & 0x0000FFFF0000FFFF;
  if constexpr (kBits <= 8) x = (x | x << 8) & 0x00FF00FF00FF00FF;
  return x;
}

/// Units of kBits of `a` and `b` in turn.
template <int kBits>
void Zip(uint64_t a, uint64_t b, uint64_t* out) {
  out[0] = Spread<kBits>(a) | Spread<kBits>(b) << kBits;
  out[1] = Spread<kBits>(a >> 32) | Spread<kBits>(b >> 32) << kBits;
}

/// From `words[j]`, byte j of 8 elements each, the elements.
template <int64_t kBytes>
void BytesToElements(const uint64_t* words, uint64_t* out) {
  if constexpr (kBytes == 1) {
    out[0] = words[0];
  } else if constexpr (kBytes == 2) {
    Zip<8>(words[0], words[1], out);
  } else if constexpr (kBytes == 4) {
    uint64_t low[2], high[2];
    BytesToElements<2>(words, low);
    BytesToElements<2>(words + 2, high);
    Zip<16>(low[0], high[0], out);
    Zip<16>(low[1], high[1], out + 2);
  } else {
    uint64_t low[4], high[4];
    BytesToElements<4>(words, low);
    BytesToElements<4>(words + 4, high);
    Zip<32>(low[0], high[0], out);
    Zip<32>(low[1], high[1], out + 2);
    Zip<32>(low[2], high[2], out + 4);
    Zip<32>(low[3], high[3], out + 6);
  }
}

/// A block of `count` elements, a multiple of 8. It has a row for each bit of an element, the
/// lowest first, of count / 8 bytes.
template <int64_t kBytes>
void Untranspose(const char* in, int64_t count, char* out) {
  const int64_t row = count / kGroup;
  // `groups` of 8 elements, at most 8, from group `first` on.
  const auto turn = [&](int64_t first, int64_t groups) {
    uint64_t planes[kBytes][8];
    for (int64_t j = 0; j < kBytes; ++j) {
      for (int64_t k = 0; k < 8; ++k) {
        planes[j][k] = 0;
        const char* const from = in + (8 * j + k) * row + first;
        if (groups == 8) {
          std::memcpy(&planes[j][k], from, 8);
        } else {
          std::memcpy(&planes[j][k], from, static_cast<size_t>(groups));
        }
      }
      BitsToBytes(planes[j]);
    }
    char* to = out + first * kGroup * kBytes;
    for (int64_t q = 0; q < groups; ++q, to += kGroup * kBytes) {
      uint64_t words[kBytes], elements[kBytes];
      for (int64_t j = 0; j < kBytes; ++j) words[j] = planes[j][q];
      BytesToElements<kBytes>(words, elements);
      std::memcpy(to, elements, sizeof elements);
    }
  };
  int64_t first = 0;
  for (; first + 8 <= row; first += 8) turn(first, 8);
  if (first < row) turn(first, row - first);
}

void Untranspose(const char* in, int64_t count, int64_t element_bytes, char* out) {
  switch (element_bytes) {
    case 1: return Untranspose<1>(in, count, out);
    case 2: return Untranspose<2>(in, count, out);
    case 4: return Untranspose<4>(in, count, out);
    default: return Untranspose<8>(in, count, out);
  }
}

}  // namespace

struct Hdf5FilterDecoder::Contexts {
  ZSTD_DCtx* zstd = nullptr;
  ~Contexts() { ZSTD_freeDCtx(zstd); }
};

Hdf5FilterDecoder::Hdf5FilterDecoder() : contexts_(std::make_unique<Contexts>()) {}
Hdf5FilterDecoder::~Hdf5FilterDecoder() = default;

int64_t Hdf5Bitshuffle::DefaultBlock(int64_t element_bytes) {
  constexpr int64_t kTarget = 8192, kLeast = 128;
  return std::max(kTarget / element_bytes / kGroup * kGroup, kLeast);
}

absl::Status Hdf5FilterDecoder::Decode(const Hdf5Lz4&, absl::string_view encoded, char* out,
                                       int64_t bytes) {
  Pieces pieces(encoded);
  uint64_t block = 0;
  OCTAVO_RETURN_IF_ERROR(ReadHead(&pieces, bytes, &block));
  for (int64_t done = 0; done < bytes;) {
    const int64_t part = std::min(static_cast<int64_t>(block), bytes - done);
    absl::string_view packed;
    OCTAVO_RETURN_IF_ERROR(TakeBlock(&pieces, &packed));
    if (std::ssize(packed) == part) {  // stored as it is
      std::copy(packed.begin(), packed.end(), out + done);
    } else {
      OCTAVO_RETURN_IF_ERROR(UnpackLz4(packed, out + done, part));
    }
    done += part;
  }
  return absl::OkStatus();
}

absl::Status Hdf5FilterDecoder::Unpack(Hdf5Bitshuffle::Inside inside, absl::string_view packed,
                                       char* out, int64_t bytes) {
  if (inside == Hdf5Bitshuffle::Inside::kLz4) return UnpackLz4(packed, out, bytes);
  if (contexts_->zstd == nullptr) contexts_->zstd = ZSTD_createDCtx();
  if (contexts_->zstd == nullptr) return absl::ResourceExhaustedError("no memory for a decoder");
  const size_t n = ZSTD_decompressDCtx(contexts_->zstd, out, static_cast<size_t>(bytes),
                                       packed.data(), packed.size());
  if (ZSTD_isError(n)) return Damaged("zstd: ", ZSTD_getErrorName(n));
  return n == static_cast<size_t>(bytes)
             ? absl::OkStatus()
             : Damaged(absl::StrCat("zstd: a block of ", bytes, " bytes has "), n);
}

absl::Status Hdf5FilterDecoder::Decode(const Hdf5Bitshuffle& filter, absl::string_view encoded,
                                       char* out, int64_t bytes) {
  const int64_t element = filter.element_bytes;
  const bool packs = filter.inside != Hdf5Bitshuffle::Inside::kNothing;
  if (bytes % element != 0) return Damaged("no whole number of elements: bytes ", bytes);
  Pieces pieces(encoded);
  int64_t block =
      filter.block_elements > 0 ? filter.block_elements : Hdf5Bitshuffle::DefaultBlock(element);
  if (packs) {
    uint64_t block_bytes = 0;
    OCTAVO_RETURN_IF_ERROR(ReadHead(&pieces, bytes, &block_bytes));
    if (block_bytes % static_cast<uint64_t>(kGroup * element) != 0)
      return Damaged(
          absl::StrCat("its head says blocks of ", block_bytes, " bytes; allowed multiples of "),
          kGroup * element);
    block = static_cast<int64_t>(block_bytes) / element;
  } else if (std::ssize(encoded) != bytes) {
    return Damaged(absl::StrCat("it has ", encoded.size(), " bytes; it should have "), bytes);
  }
  // What does not fill a block is a shorter one, and the last elements, fewer than 8, lie behind it
  // as they are.
  const int64_t elements = bytes / element, whole = elements / kGroup * kGroup;
  for (int64_t done = 0; done < whole;) {
    const int64_t count = std::min(block, whole - done), size = count * element;
    absl::string_view data;
    if (packs) {
      absl::string_view packed;
      OCTAVO_RETURN_IF_ERROR(TakeBlock(&pieces, &packed));
      block_.resize(static_cast<size_t>(size));
      OCTAVO_RETURN_IF_ERROR(Unpack(filter.inside, packed, block_.data(), size));
      data = {block_.data(), block_.size()};
    } else if (!pieces.Take(static_cast<uint64_t>(size), &data)) {
      return Damaged("it ends before a block", "");
    }
    Untranspose(data.data(), count, element, out + done * element);
    done += count;
  }
  absl::string_view rest;
  if (!pieces.Take(static_cast<uint64_t>((elements - whole) * element), &rest))
    return Damaged("it ends before its last elements", "");
  std::copy(rest.begin(), rest.end(), out + whole * element);
  return absl::OkStatus();
}

}  // namespace octavo::storage

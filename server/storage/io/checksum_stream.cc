#include "server/storage/io/checksum_stream.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "tbb/parallel_for.h"

#include "gpu/device/digest.h"
#include "gpu/device/host_digest.h"
#include "server/storage/io/crc32c.h"

namespace octavo::storage {

void ChecksumStream::Add(const void* data, int64_t bytes) {
  constexpr int64_t kPiece =
      1 << 20;  // a multiple of the digest's words, and small enough to stay in a cache
  const auto* p = static_cast<const char*>(data);
  if (held_ > 0) {  // complete the word that the last piece left open
    const int64_t take = std::min<int64_t>(8 - held_, bytes);
    std::memcpy(word_ + held_, p, static_cast<size_t>(take));
    crc_ = Crc32c(p, static_cast<size_t>(take), crc_);
    held_ += take;
    p += take;
    bytes -= take;
    if (held_ < 8) return;
    sum_ += DigestBytes(word_, 8, at_);
    at_ += 8;
    held_ = 0;
  }
  const int64_t whole = bytes / 8 * 8;
  struct Part {
    uint32_t crc = 0;
    uint64_t sum = 0;
  };
  std::vector<Part> parts(static_cast<size_t>((whole + kPiece - 1) / kPiece));
  const auto length = [&](size_t i) {
    return std::min(kPiece, whole - static_cast<int64_t>(i) * kPiece);
  };
  tbb::parallel_for(size_t{0}, parts.size(), [&](size_t i) {
    const int64_t first = static_cast<int64_t>(i) * kPiece;
    parts[i] = {.crc = Crc32c(p + first, static_cast<size_t>(length(i))),
                .sum = HostDigest(p + first, length(i), at_ + first)};
  });
  for (size_t i = 0; i < parts.size(); ++i) {
    crc_ = Crc32cCombine(crc_, parts[i].crc, static_cast<uint64_t>(length(i)));
    sum_ += parts[i].sum;
  }
  at_ += whole;
  held_ = bytes - whole;
  std::memcpy(word_, p + whole, static_cast<size_t>(held_));
  crc_ = Crc32c(word_, static_cast<size_t>(held_), crc_);
}

uint64_t ChecksumStream::Sum() const {
  return sum_ + (held_ > 0 ? DigestBytes(word_, held_, at_) : 0);
}

}  // namespace octavo::storage

#include "server/storage/io/crc32c.h"

#include <algorithm>
#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace octavo::storage {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78u;  // Castagnoli, bits reversed

uint32_t Table(const unsigned char* p, size_t n, uint32_t crc) {
  static const auto table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int k = 0; k < 8; ++k) c = (c >> 1) ^ (c & 1 ? kPolynomial : 0);
      t[i] = c;
    }
    return t;
  }();
  while (n-- > 0) crc = (crc >> 8) ^ table[(crc ^ *p++) & 255];
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t Hardware(const unsigned char* p, size_t n,
                                                    uint32_t crc) {
  uint64_t c = crc;
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    c = _mm_crc32_u64(c, word);
  }
  auto c32 = static_cast<uint32_t>(c);
  while (n-- > 0) c32 = _mm_crc32_u8(c32, *p++);
  return c32;
}

// Three consecutive stretches of `n` bytes (a multiple of 8), each with its own CRC: the
// instruction has a latency of three cycles but a throughput of one per cycle, so three chains take
// the time of one.
__attribute__((target("sse4.2"))) void HardwareThree(const unsigned char* p, size_t n,
                                                     uint32_t crc[3]) {
  uint64_t a = crc[0], b = crc[1], c = crc[2];
  for (const unsigned char* end = p + n; p != end; p += 8) {
    uint64_t words[3];
    std::memcpy(&words[0], p, 8);
    std::memcpy(&words[1], p + n, 8);
    std::memcpy(&words[2], p + 2 * n, 8);
    a = _mm_crc32_u64(a, words[0]);
    b = _mm_crc32_u64(b, words[1]);
    c = _mm_crc32_u64(c, words[2]);
  }
  crc[0] = static_cast<uint32_t>(a);
  crc[1] = static_cast<uint32_t>(b);
  crc[2] = static_cast<uint32_t>(c);
}
constexpr size_t kThreeFrom = 16 << 10;  // below, joining them costs more than it saves
#endif

// GF(2) matrices as 32 columns (zlib's crc32_combine, Adler).
using Matrix = std::array<uint32_t, 32>;
uint32_t Times(const Matrix& m, uint32_t v) {
  uint32_t sum = 0;
  for (size_t i = 0; v != 0; v >>= 1, ++i) {
    if (v & 1) sum ^= m[i];
  }
  return sum;
}
Matrix Square(const Matrix& m) {
  Matrix s{};
  for (size_t i = 0; i < 32; ++i) s[i] = Times(m, m[i]);
  return s;
}

}  // namespace

uint32_t Crc32c(const void* data, size_t bytes, uint32_t crc) {
  const auto* p = static_cast<const unsigned char*>(data);
#if defined(__x86_64__)
  static const bool hardware = __builtin_cpu_supports("sse4.2");
  if (hardware && bytes >= kThreeFrom) {
    const size_t third = bytes / 24 * 8;
    uint32_t parts[3] = {~crc, ~0u, ~0u};
    HardwareThree(p, third, parts);
    crc = Crc32cCombine(Crc32cCombine(~parts[0], ~parts[1], third), ~parts[2], third);
    return ~Hardware(p + 3 * third, bytes - 3 * third, ~crc);
  }
  if (hardware) return ~Hardware(p, bytes, ~crc);
#endif
  return ~Table(p, bytes, ~crc);
}

uint32_t CopyWithCrc32c(void* to, const void* from, size_t bytes, uint32_t crc) {
  constexpr size_t kPiece = 128 << 10;  // stays in a cache between the two
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  while (bytes > 0) {
    const size_t n = std::min(kPiece, bytes);
    crc = Crc32c(in, n, crc);
    std::memcpy(out, in, n);
    in += n, out += n, bytes -= n;
  }
  return crc;
}

uint32_t Crc32cCombine(uint32_t first, uint32_t second, uint64_t second_bytes) {
  // Operator k advances a CRC over 2^k zero bytes; made once, so that a combination is a few
  // matrix-vector products.
  static const auto operators = [] {
    std::array<Matrix, 64> powers{};
    Matrix m{};  // one zero bit
    m[0] = kPolynomial;
    for (size_t i = 1; i < 32; ++i) m[i] = 1u << (i - 1);
    for (int i = 0; i < 3; ++i) m = Square(m);  // one zero byte
    for (Matrix& power : powers) {
      power = m;
      m = Square(m);
    }
    return powers;
  }();
  for (size_t k = 0; second_bytes != 0; second_bytes >>= 1, ++k) {
    if (second_bytes & 1) first = Times(operators[k], first);
  }
  return first ^ second;
}

namespace internal {
uint32_t Crc32cTable(const void* data, size_t bytes, uint32_t crc) {
  return ~Table(static_cast<const unsigned char*>(data), bytes, ~crc);
}
}  // namespace internal

}  // namespace octavo::storage

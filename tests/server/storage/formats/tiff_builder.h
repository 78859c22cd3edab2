#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <turbojpeg.h>
#include <vector>
#include <zlib.h>
#include <zstd.h>

namespace octavo::storage::testing {

/// Makes TIFF files byte by byte, for tests. Shares no code with the reader or the writer.
class TiffBuilder {
 public:
  explicit TiffBuilder(bool big = false, bool big_endian = false)
      : big_(big), big_endian_(big_endian) {
    bytes_ = big_endian ? "MM" : "II";
    Put(2, big ? 43 : 42);
    if (big) Put(2, 8), Put(2, 0);
    link_ = bytes_.size();
    Put(big ? 8 : 4, 0);
  }

  struct Tag {
    int type = 3;  // 1 byte, 2 ASCII, 3 short, 4 long, 5 rational, 7 undefined, 16 long8
    std::vector<uint64_t> values;
    std::string text;  // of types 1, 2, 7
  };
  using Tags = std::map<int, Tag>;

  /// Appends bytes; returns their offset.
  uint64_t Data(const std::string& data) {
    if (bytes_.size() % 2 != 0) bytes_ += '\0';
    const uint64_t at = bytes_.size();
    bytes_ += data;
    return at;
  }

  /// Appends a page and links it to the one before. Returns the offset of its directory.
  uint64_t Page(const Tags& tags) {
    std::map<int, uint64_t> places;
    const size_t room = big_ ? 8 : 4;
    std::map<int, std::string> values;
    for (const auto& [tag, value] : tags) {
      std::string text = value.text;
      if (text.empty()) {
        for (size_t i = 0; i < value.values.size(); ++i)
          text += Number(value.type == 5 ? 4 : SizeOfType(value.type), value.values[i]);
      }
      values[tag] = text;
      if (text.size() > room) places[tag] = Data(text);
    }
    if (bytes_.size() % 2 != 0) bytes_ += '\0';
    const uint64_t at = bytes_.size();
    bytes_.replace(link_, room, Number(static_cast<int>(room), at));
    Put(big_ ? 8 : 2, tags.size());
    for (const auto& [tag, value] : tags) {
      Put(2, static_cast<uint64_t>(tag));
      Put(2, static_cast<uint64_t>(value.type));
      Put(static_cast<int>(room),
          value.text.empty() ? (value.type == 5 ? value.values.size() / 2 : value.values.size())
                             : value.text.size());
      std::string in_place = values[tag];
      if (places.count(tag) > 0) in_place = Number(static_cast<int>(room), places[tag]);
      in_place.resize(room);
      bytes_ += in_place;
    }
    link_ = bytes_.size();
    Put(static_cast<int>(room), 0);
    return at;
  }

  /// Makes the last page's link point somewhere.
  void Link(uint64_t offset) {
    const int room = big_ ? 8 : 4;
    bytes_.replace(link_, static_cast<size_t>(room), Number(room, offset));
  }

  std::string Number(int bytes, uint64_t value) const {
    std::string out(reinterpret_cast<const char*>(&value), static_cast<size_t>(bytes));
    if (big_endian_) std::reverse(out.begin(), out.end());
    return out;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  static int SizeOfType(int type) { return type == 3 ? 2 : type == 16 ? 8 : type == 4 ? 4 : 1; }
  void Put(int bytes, uint64_t value) { bytes_ += Number(bytes, value); }

  const bool big_, big_endian_;
  std::string bytes_;
  size_t link_ = 0;
};

inline std::string PackBits(const std::string& data) {
  std::string out;
  for (size_t at = 0; at < data.size();) {
    size_t run = 1;
    while (at + run < data.size() && run < 128 && data[at + run] == data[at]) ++run;
    if (run > 1) {
      out += static_cast<char>(1 - static_cast<int>(run));
      out += data[at];
      at += run;
      continue;
    }
    size_t plain = 1;
    while (at + plain < data.size() && plain < 128 &&
           (at + plain + 1 >= data.size() || data[at + plain] != data[at + plain + 1]))
      ++plain;
    out += static_cast<char>(plain - 1);
    out += data.substr(at, plain);
    at += plain;
  }
  return out;
}

/// LZW after the encoder of TIFF 6.0, section 13.
inline std::string Lzw(const std::string& data) {
  std::string out;
  uint64_t word = 0;
  int bits = 0;
  int width = 9;
  const auto put = [&](int code) {
    word = word << width | static_cast<uint64_t>(code);
    bits += width;
    while (bits >= 8) {
      out += static_cast<char>(word >> (bits - 8));
      bits -= 8;
    }
  };
  std::map<std::string, int> table;
  const auto clear = [&] {
    table.clear();
    for (int i = 0; i < 256; ++i) table[std::string(1, static_cast<char>(i))] = i;
  };
  clear();
  put(256);
  std::string prefix;
  int next = 258;
  for (const char c : data) {
    if (table.count(prefix + c) > 0) {
      prefix += c;
      continue;
    }
    put(table[prefix]);
    table[prefix + c] = next++;
    prefix = std::string(1, c);
    if (next == 511 + 1) width = 10;
    if (next == 1023 + 1) width = 11;
    if (next == 2047 + 1) width = 12;
    if (next == 4094 + 1) {
      put(256);
      clear();
      next = 258, width = 9;
    }
  }
  if (!prefix.empty()) {
    put(table[prefix]);
    ++next;
    if (next == 512) width = 10;
    if (next == 1024) width = 11;
    if (next == 2048) width = 12;
  }
  put(257);
  if (bits > 0) out += static_cast<char>(word << (8 - bits));
  return out;
}

inline std::string Deflate(const std::string& data) {
  uLongf room = compressBound(data.size());
  std::string out(room, '\0');
  compress2(reinterpret_cast<Bytef*>(out.data()), &room,
            reinterpret_cast<const Bytef*>(data.data()), data.size(), 6);
  out.resize(room);
  return out;
}

inline std::string Zstd(const std::string& data) {
  std::string out(ZSTD_compressBound(data.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), data.data(), data.size(), 3));
  return out;
}

/// Grey, of the best quality.
inline std::string Jpeg(const std::string& pixels, int width, int height) {
  tjhandle encoder = tjInitCompress();
  unsigned char* made = nullptr;
  unsigned long size = 0;
  tjCompress2(encoder, reinterpret_cast<const unsigned char*>(pixels.data()), width, width, height,
              TJPF_GRAY, &made, &size, TJSAMP_GRAY, 100, TJFLAG_ACCURATEDCT);
  std::string out(reinterpret_cast<const char*>(made), size);
  tjFree(made);
  tjDestroy(encoder);
  return out;
}

}  // namespace octavo::storage::testing

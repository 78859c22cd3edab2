#include "server/storage/zarr/byte_codec.h"

#include <algorithm>
#include <blosc.h>
#include <cstring>
#include <limits>
#include <lz4.h>
#include <zlib.h>
#include <zstd.h>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/io/byte_shuffle.h"
#include "server/storage/io/crc32c.h"
#include "server/storage/io/deflate.h"

namespace octavo::storage {
namespace {

using Kind = ByteCodec::Kind;
constexpr size_t kLz4Header = 4;

absl::Status Damaged(const std::string& what) {
  return absl::DataLossError(absl::StrCat("damaged chunk: ", what));
}
absl::Status WrongSize(const char* codec, size_t got, int64_t wanted) {
  return Damaged(absl::StrCat(codec, ": ", got, " of ", wanted, " bytes"));
}
absl::Status TooLong(const char* codec, int64_t most) {
  return Damaged(absl::StrCat(codec, ": more than the ", most, " bytes that it can have"));
}

/// inflate with its end, one stream or gzip members one after the other.
class Inflater {
 public:
  explicit Inflater(bool gzip) : gzip_(gzip) {
    usable_ = inflateInit2(&stream_, gzip ? MAX_WBITS + 16 : MAX_WBITS) == Z_OK;
  }
  ~Inflater() {
    if (usable_) inflateEnd(&stream_);
  }
  Inflater(const Inflater&) = delete;

  bool usable() const { return usable_; }
  void SetInput(absl::string_view in) {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    stream_.avail_in = static_cast<uInt>(in.size());
  }
  void SetOutput(char* out, size_t bytes) {
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(bytes);
  }
  /// Goes on until the input ends, the output is full, or the data are damaged.
  int Run() {
    int result = inflate(&stream_, Z_FINISH);
    while (result == Z_STREAM_END && stream_.avail_in > 0 && gzip_ &&
           inflateReset(&stream_) == Z_OK)
      result = inflate(&stream_, Z_FINISH);
    return result;
  }
  size_t left_in() const { return stream_.avail_in; }
  size_t left_out() const { return stream_.avail_out; }

 private:
  const bool gzip_;
  z_stream stream_{};
  bool usable_ = false;
};

absl::Status BadStream(const char* name, int result) {
  return Damaged(absl::StrCat(name, ": ",
                              result == Z_BUF_ERROR ? "too short or too long" : "no such stream",
                              " (", result, ")"));
}

uint32_t LoadLittle32(const char* in) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(in[i]);
  return value;
}

absl::StatusOr<int64_t> Lz4Bytes(absl::string_view encoded) {
  if (encoded.size() < kLz4Header) return Damaged("lz4: no header");
  const auto bytes = static_cast<int32_t>(LoadLittle32(encoded.data()));
  if (bytes < 0) return Damaged(absl::StrCat("lz4: a header of ", bytes, " bytes"));
  return bytes;
}

absl::StatusOr<int64_t> BloscBytes(absl::string_view encoded) {
  size_t content = 0;
  if (blosc_cbuffer_validate(encoded.data(), encoded.size(), &content) != 0)
    return Damaged("blosc frame");
  return static_cast<int64_t>(content);
}

}  // namespace

const char* ByteCodec::Name() const {
  switch (kind) {
    case Kind::kGzip: return "gzip";
    case Kind::kZlib: return "zlib";
    case Kind::kZstd: return "zstd";
    case Kind::kBlosc: return "blosc";
    case Kind::kLz4: return "lz4";
    case Kind::kCrc32c: return "crc32c";
    case Kind::kShuffle: return "shuffle";
    case Kind::kNumbers: return "filter";
  }
  return "";
}

int64_t ByteCodec::EncodedBytes(int64_t decoded) const {
  switch (kind) {
    case Kind::kCrc32c: return decoded + 4;
    case Kind::kShuffle: return decoded % element_bytes == 0 ? decoded : -1;
    case Kind::kNumbers: return filter.EncodedBytes(decoded);
    default: return decoded + decoded / 8 + (1 << 20);  // more than any of them needs
  }
}

struct ByteDecoder::Contexts {
  ZSTD_DCtx* zstd = nullptr;
  ~Contexts() { ZSTD_freeDCtx(zstd); }
  ZSTD_DCtx* Zstd() {
    if (zstd == nullptr) zstd = ZSTD_createDCtx();
    if (zstd != nullptr) ZSTD_DCtx_reset(zstd, ZSTD_reset_session_only);
    return zstd;
  }
};

ByteDecoder::ByteDecoder() : contexts_(std::make_unique<Contexts>()) {}
ByteDecoder::~ByteDecoder() = default;

absl::Status ByteDecoder::Decode(const ByteCodec& codec, absl::string_view encoded, char* out,
                                 int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  const char* const name = codec.Name();
  switch (codec.kind) {
    case Kind::kGzip:
    case Kind::kZlib: {
      const bool gzip = codec.kind == Kind::kGzip;
      if (InflateBlock(gzip ? DeflateWrap::kGzip : DeflateWrap::kZlib, encoded, out, size))
        return absl::OkStatus();
      Inflater inflater(gzip);
      if (!inflater.usable()) return absl::ResourceExhaustedError("no memory for a decoder");
      inflater.SetInput(encoded);
      inflater.SetOutput(out, size);
      if (const int result = inflater.Run(); result != Z_STREAM_END) return BadStream(name, result);
      if (inflater.left_in() > 0 && !codec.lax)
        return Damaged(absl::StrCat(name, ": ", inflater.left_in(), " bytes behind its end"));
      return inflater.left_out() == 0 ? absl::OkStatus()
                                      : WrongSize(name, size - inflater.left_out(), bytes);
    }
    case Kind::kZstd: {
      ZSTD_DCtx* const context = contexts_->Zstd();
      if (context == nullptr) return absl::ResourceExhaustedError("no memory for a decoder");
      const size_t n = ZSTD_decompressDCtx(context, out, size, encoded.data(), encoded.size());
      if (ZSTD_isError(n)) return Damaged(absl::StrCat("zstd: ", ZSTD_getErrorName(n)));
      return n == size ? absl::OkStatus() : WrongSize(name, n, bytes);
    }
    case Kind::kBlosc: {
      OCTAVO_ASSIGN_OR_RETURN(const int64_t content, BloscBytes(encoded));
      if (content != bytes) return WrongSize(name, static_cast<size_t>(content), bytes);
      const int n = blosc_decompress_ctx(encoded.data(), out, size, 1);
      if (n == bytes) return absl::OkStatus();
      const char* const library = blosc_cbuffer_complib(encoded.data());
      return Damaged(absl::StrCat("blosc with ",
                                  library == nullptr ? "an unknown library" : library, ": ", n));
    }
    case Kind::kLz4: {
      OCTAVO_ASSIGN_OR_RETURN(const int64_t content, Lz4Bytes(encoded));
      if (content != bytes) return WrongSize(name, static_cast<size_t>(content), bytes);
      if (encoded.size() - kLz4Header > std::numeric_limits<int>::max())
        return Damaged("lz4: too long");
      const int n = LZ4_decompress_safe(encoded.data() + kLz4Header, out,
                                        static_cast<int>(encoded.size() - kLz4Header),
                                        static_cast<int>(bytes));
      return n == bytes ? absl::OkStatus() : Damaged(absl::StrCat("lz4: ", n));
    }
    case Kind::kCrc32c: {
      OCTAVO_ASSIGN_OR_RETURN(const absl::string_view data,
                              DecodeUpTo(codec, encoded, bytes, nullptr));
      if (data.size() != size) return WrongSize(name, data.size(), bytes);
      std::copy(data.begin(), data.end(), out);
      return absl::OkStatus();
    }
    case Kind::kShuffle:
      if (encoded.size() != size || bytes % codec.element_bytes != 0)
        return WrongSize(name, encoded.size(), bytes);
      UnshuffleBytes(encoded.data(), bytes / codec.element_bytes, codec.element_bytes, out);
      return absl::OkStatus();
    case Kind::kNumbers: return codec.filter.Decode(encoded, out, bytes);
  }
  return absl::InternalError("a codec that is none");
}

absl::StatusOr<absl::string_view> ByteDecoder::DecodeUpTo(const ByteCodec& codec,
                                                          absl::string_view encoded, int64_t most,
                                                          ScratchMemory* memory) {
  const char* const name = codec.Name();
  // The first guess of the size; the memory doubles from there.
  const auto limit = static_cast<size_t>(most);
  const size_t guess = std::min(limit, std::max<size_t>(4 * encoded.size(), 1 << 16));
  switch (codec.kind) {
    case Kind::kGzip:
    case Kind::kZlib: {
      Inflater inflater(codec.kind == Kind::kGzip);
      if (!inflater.usable()) return absl::ResourceExhaustedError("no memory for a decoder");
      inflater.SetInput(encoded);
      size_t there = guess, made = 0;
      inflater.SetOutput(memory->Get(there), there);
      int result = inflater.Run();
      made = there - inflater.left_out();
      while (result == Z_BUF_ERROR && inflater.left_out() == 0) {
        if (there == limit) return TooLong(name, most);
        there = std::min(limit, 2 * there);
        inflater.SetOutput(memory->Grow(there, made) + made, there - made);
        result = inflater.Run();
        made = there - inflater.left_out();
      }
      if (result != Z_STREAM_END) return BadStream(name, result);
      if (inflater.left_in() > 0 && !codec.lax)
        return Damaged(absl::StrCat(name, ": ", inflater.left_in(), " bytes behind its end"));
      return absl::string_view(memory->data(), made);
    }
    case Kind::kZstd: {
      ZSTD_DCtx* const context = contexts_->Zstd();
      if (context == nullptr) return absl::ResourceExhaustedError("no memory for a decoder");
      size_t there = guess;
      ZSTD_inBuffer in{encoded.data(), encoded.size(), 0};
      ZSTD_outBuffer out{memory->Get(there), there, 0};
      for (;;) {
        const size_t taken = in.pos, made = out.pos;
        const size_t left = ZSTD_decompressStream(context, &out, &in);
        if (ZSTD_isError(left)) return Damaged(absl::StrCat("zstd: ", ZSTD_getErrorName(left)));
        if (left == 0 && in.pos == in.size) break;
        if (out.pos == out.size) {
          if (there == limit) return TooLong(name, most);
          there = std::min(limit, 2 * there);
          out = {memory->Grow(there, out.pos), there, out.pos};
        } else if (in.pos == taken && out.pos == made) {
          return Damaged("zstd: too short");
        }
      }
      return absl::string_view(memory->data(), out.pos);
    }
    case Kind::kBlosc:
    case Kind::kLz4: {
      OCTAVO_ASSIGN_OR_RETURN(const int64_t content,
                              codec.kind == Kind::kBlosc ? BloscBytes(encoded) : Lz4Bytes(encoded));
      if (content > most) return TooLong(name, most);
      char* const out = memory->Get(static_cast<size_t>(content));
      OCTAVO_RETURN_IF_ERROR(Decode(codec, encoded, out, content));
      return absl::string_view(out, static_cast<size_t>(content));
    }
    case Kind::kCrc32c: {
      if (encoded.size() < 4) return Damaged("crc32c: too short");
      const absl::string_view data = encoded.substr(0, encoded.size() - 4);
      if (LoadLittle32(encoded.data() + data.size()) != Crc32c(data.data(), data.size()))
        return Damaged("crc32c: the checksum does not match");
      return data;
    }
    case Kind::kShuffle: {
      if (encoded.size() > limit) return TooLong(name, most);
      char* const out = memory->Get(encoded.size());
      OCTAVO_RETURN_IF_ERROR(Decode(codec, encoded, out, static_cast<int64_t>(encoded.size())));
      return absl::string_view(out, encoded.size());
    }
    case Kind::kNumbers: break;  // only of v2, whose sizes are known
  }
  return absl::InternalError("a filter of an unknown size");
}

}  // namespace octavo::storage

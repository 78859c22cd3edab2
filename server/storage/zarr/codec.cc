#include "server/storage/zarr/codec.h"

#include <blosc.h>
#include <zlib.h>
#include <zstd.h>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"

namespace octavo::storage {

using nlohmann::json;

struct ChunkCoder::Contexts {
  ZSTD_CCtx* compress = nullptr;
  ZSTD_DCtx* decompress = nullptr;
  ~Contexts() {
    ZSTD_freeCCtx(compress);
    ZSTD_freeDCtx(decompress);
  }
};

ChunkCoder::ChunkCoder() : contexts_(std::make_unique<Contexts>()) {}
ChunkCoder::~ChunkCoder() = default;

json ChunkCodec::ToJson() const {
  switch (codec) {
    case Codec::kDefault: return nullptr;
    case Codec::kZstd:
      return {{"name", "zstd"}, {"configuration", {{"level", level}, {"checksum", false}}}};
    case Codec::kGzip: return {{"name", "gzip"}, {"configuration", {{"level", level}}}};
    case Codec::kBloscZstd:
    case Codec::kBloscLz4: break;
  }
  const char* kShuffle[] = {"", "noshuffle", "shuffle", "bitshuffle"};
  return {{"name", "blosc"},
          {"configuration",
           {{"cname", codec == Codec::kBloscZstd ? "zstd" : "lz4"},
            {"clevel", level},
            {"shuffle", kShuffle[static_cast<int>(shuffle)]},
            {"typesize", type_bytes},
            {"blocksize", 0}}}};
}

absl::StatusOr<ChunkCodec> ChunkCodec::Named(const std::string& name) {
  if (name == "zstd") return ChunkCodec{.codec = Codec::kZstd};
  if (name == "gzip") return ChunkCodec{.codec = Codec::kGzip};
  if (name == "zlib") return ChunkCodec{.codec = Codec::kGzip, .zlib = true};
  if (name == "blosc")
    return ChunkCodec{.codec = Codec::kBloscZstd};  // its frames describe themselves
  return absl::UnimplementedError(
      absl::StrCat("codec '", name, "'; known are zstd, gzip, zlib, blosc"));
}

absl::StatusOr<absl::string_view> ChunkCoder::Encode(const ChunkCodec& codec,
                                                     absl::string_view chunk_bytes) {
  switch (codec.codec) {
    case Codec::kDefault: return chunk_bytes;
    case Codec::kZstd: {
      if (contexts_->compress == nullptr) contexts_->compress = ZSTD_createCCtx();
      if (contexts_->compress == nullptr)
        return absl::ResourceExhaustedError("no memory for a zstd encoder");
      encoded_.resize(ZSTD_compressBound(chunk_bytes.size()));
      // One-shot compression writes the content size into the frame, which some readers need.
      const size_t n = ZSTD_compressCCtx(contexts_->compress, encoded_.data(), encoded_.size(),
                                         chunk_bytes.data(), chunk_bytes.size(), codec.level);
      if (ZSTD_isError(n)) return absl::InternalError(absl::StrCat("zstd: ", ZSTD_getErrorName(n)));
      return absl::string_view(encoded_.data(), n);
    }
    case Codec::kGzip: {
      z_stream stream{};
      if (deflateInit2(&stream, codec.level, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) !=
          Z_OK) {
        return absl::ResourceExhaustedError("no memory for a deflate encoder");
      }
      encoded_.resize(deflateBound(&stream, chunk_bytes.size()));
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(chunk_bytes.data()));
      stream.avail_in = static_cast<uInt>(chunk_bytes.size());
      stream.next_out = reinterpret_cast<Bytef*>(encoded_.data());
      stream.avail_out = static_cast<uInt>(encoded_.size());
      const int result = deflate(&stream, Z_FINISH);
      const size_t n = encoded_.size() - stream.avail_out;
      deflateEnd(&stream);
      if (result != Z_STREAM_END) return absl::InternalError(absl::StrCat("deflate: ", result));
      return absl::string_view(encoded_.data(), n);
    }
    case Codec::kBloscZstd:
    case Codec::kBloscLz4: break;
  }
  encoded_.resize(chunk_bytes.size() + BLOSC_MAX_OVERHEAD);
  const int shuffle = codec.shuffle == Shuffle::kByte  ? BLOSC_SHUFFLE
                      : codec.shuffle == Shuffle::kBit ? BLOSC_BITSHUFFLE
                                                       : BLOSC_NOSHUFFLE;
  const int n = blosc_compress_ctx(
      codec.level, shuffle, static_cast<size_t>(codec.type_bytes), chunk_bytes.size(),
      chunk_bytes.data(), encoded_.data(), encoded_.size(),
      codec.codec == Codec::kBloscZstd ? BLOSC_ZSTD_COMPNAME : BLOSC_LZ4_COMPNAME, 0, 1);
  if (n <= 0) return absl::InternalError(absl::StrCat("blosc: ", n));
  return absl::string_view(encoded_.data(), static_cast<size_t>(n));
}

absl::Status ChunkCoder::Decode(const ChunkCodec& codec, absl::string_view encoded, char* out,
                                int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  const auto damaged = [&](const std::string& what) {
    return absl::DataLossError(absl::StrCat("damaged chunk: ", what));
  };
  switch (codec.codec) {
    case Codec::kDefault:
      if (encoded.size() != size)
        return damaged(absl::StrCat(encoded.size(), " of ", bytes, " bytes"));
      std::copy(encoded.begin(), encoded.end(), out);
      return absl::OkStatus();
    case Codec::kZstd: {
      if (contexts_->decompress == nullptr) contexts_->decompress = ZSTD_createDCtx();
      if (contexts_->decompress == nullptr)
        return absl::ResourceExhaustedError("no memory for a zstd decoder");
      const size_t n =
          ZSTD_decompressDCtx(contexts_->decompress, out, size, encoded.data(), encoded.size());
      if (ZSTD_isError(n)) return damaged(absl::StrCat("zstd: ", ZSTD_getErrorName(n)));
      return n == size ? absl::OkStatus() : damaged(absl::StrCat(n, " of ", bytes, " bytes"));
    }
    case Codec::kGzip: {
      z_stream stream{};
      if (inflateInit2(&stream, codec.zlib ? MAX_WBITS : MAX_WBITS + 16) != Z_OK)
        return absl::ResourceExhaustedError("no memory for a deflate decoder");
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(encoded.data()));
      stream.avail_in = static_cast<uInt>(encoded.size());
      stream.next_out = reinterpret_cast<Bytef*>(out);
      stream.avail_out = static_cast<uInt>(size);
      int result = inflate(&stream, Z_FINISH);
      while (result == Z_STREAM_END && stream.avail_in > 0 && !codec.zlib &&
             inflateReset(&stream) == Z_OK)
        result = inflate(&stream, Z_FINISH);
      const auto left = static_cast<int64_t>(stream.avail_in),
                 missing = static_cast<int64_t>(stream.avail_out);
      inflateEnd(&stream);
      const char* const name = codec.zlib ? "zlib" : "gzip";
      if (result != Z_STREAM_END)
        return damaged(absl::StrCat(
            name, ": ", result == Z_BUF_ERROR ? "too short or too long" : "no such stream", " (",
            result, ")"));
      if (left > 0) return damaged(absl::StrCat(name, ": ", left, " bytes behind its end"));
      return missing == 0
                 ? absl::OkStatus()
                 : damaged(absl::StrCat(name, ": ", bytes - missing, " of ", bytes, " bytes"));
    }
    case Codec::kBloscZstd:
    case Codec::kBloscLz4: break;
  }
  size_t content = 0;
  if (blosc_cbuffer_validate(encoded.data(), encoded.size(), &content) != 0 || content != size)
    return damaged("blosc frame");
  const int n = blosc_decompress_ctx(encoded.data(), out, size, 1);
  return n == bytes ? absl::OkStatus() : damaged(absl::StrCat("blosc: ", n));
}

}  // namespace octavo::storage

#include "server/storage/zarr/codec.h"

#include <blosc.h>
#include <zstd.h>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/io/deflate.h"

namespace octavo::storage {

using nlohmann::json;

struct ChunkCoder::Contexts {
  ZSTD_CCtx* compress = nullptr;
  BlockDeflater deflater;
  ~Contexts() { ZSTD_freeCCtx(compress); }
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

json ChunkCodec::ToJsonV2() const {
  switch (codec) {
    case Codec::kDefault: return nullptr;
    case Codec::kZstd: return {{"id", "zstd"}, {"level", level}};
    case Codec::kGzip: return {{"id", "gzip"}, {"level", level}};
    case Codec::kBloscZstd:
    case Codec::kBloscLz4: break;
  }
  const int shuffles[] = {0, 0, 1, 2};  // none, byte, bit
  return {{"id", "blosc"},
          {"cname", codec == Codec::kBloscZstd ? "zstd" : "lz4"},
          {"clevel", level},
          {"shuffle", shuffles[static_cast<int>(shuffle)]},
          {"blocksize", 0}};
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
      encoded_.clear();
      OCTAVO_RETURN_IF_ERROR(contexts_->deflater.Append(
          DeflateWrap::kGzip, codec.level, chunk_bytes.data(), chunk_bytes.size(), &encoded_));
      return absl::string_view(encoded_);
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

}  // namespace octavo::storage

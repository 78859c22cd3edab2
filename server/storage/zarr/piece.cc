#include "server/storage/zarr/piece.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/io/crc32c.h"

namespace octavo::storage {
namespace {

constexpr uint64_t kAbsent = std::numeric_limits<uint64_t>::max();
constexpr size_t kKept = size_t{64} << 20;  // of a thread's scratch memory between chunks

struct Entry {
  uint64_t offset, bytes;
};

uint64_t LoadIndexNumber(const char* in, bool big_endian) {
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i)
    value = value << 8 | static_cast<unsigned char>(in[big_endian ? i : 7 - i]);
  return value;
}

/// The index of the shard in a range of the source, its checksums verified.
absl::StatusOr<std::vector<Entry>> ReadIndex(const ZarrShard& shard, const ChunkSource& source,
                                             int64_t offset, int64_t bytes) {
  const int64_t index_bytes = shard.IndexBytes();
  if (bytes < index_bytes)
    return absl::DataLossError(absl::StrCat("the shard is too short: ", bytes,
                                            " bytes, and its index alone has ", index_bytes));
  std::vector<char> text(static_cast<size_t>(index_bytes));
  OCTAVO_RETURN_IF_ERROR(source.Read(shard.index_at_start ? offset : offset + bytes - index_bytes,
                                     index_bytes, text.data()));
  for (int i = shard.index_checksums; i > 0; --i) {
    const auto before = static_cast<size_t>(index_bytes - 4 * (shard.index_checksums - i + 1));
    uint32_t crc = 0;
    for (int j = 3; j >= 0; --j)
      crc = crc << 8 | static_cast<unsigned char>(text[before + static_cast<size_t>(j)]);
    if (crc != Crc32c(text.data(), before))
      return absl::DataLossError("the shard's index is damaged: its CRC-32C does not match");
  }
  std::vector<Entry> entries(static_cast<size_t>(shard.chunks));
  for (size_t i = 0; i < entries.size(); ++i)
    entries[i] = {LoadIndexNumber(text.data() + 16 * i, shard.index_big_endian),
                  LoadIndexNumber(text.data() + 16 * i + 8, shard.index_big_endian)};
  return entries;
}

class MemorySource final : public ChunkSource {
 public:
  explicit MemorySource(absl::string_view bytes) : bytes_(bytes) {}
  absl::Status Read(int64_t offset, int64_t bytes, char* out) const override {
    std::memcpy(out, bytes_.data() + offset, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }

 private:
  const absl::string_view bytes_;
};

absl::Status AppendInnerPieces(const ZarrChain& chain, const ChunkSource& source, int64_t offset,
                               int64_t bytes, const ZarrPiece& window, MissingChunk missing,
                               std::vector<ZarrPiece>* out) {
  const ZarrShard& shard = *chain.shard;
  const size_t rank = chain.shape.size();
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<Entry> index, ReadIndex(shard, source, offset, bytes));
  const auto index_bytes = static_cast<uint64_t>(shard.IndexBytes());
  const uint64_t least = shard.index_at_start ? index_bytes : 0,
                 most = static_cast<uint64_t>(bytes) - (shard.index_at_start ? 0 : index_bytes);
  AxisValues first(rank), end(rank), at;
  for (size_t d = 0; d < rank; ++d) {
    first[d] = window.from[d] / shard.inner.shape[d];
    end[d] = (window.from[d] + window.count[d] - 1) / shard.inner.shape[d] + 1;
  }
  at = first;
  for (;;) {
    const int64_t place = OffsetOf(at, chain.stride);
    ZarrPiece inner{.form = ZarrPiece::Form::kFill,
                    .file = window.file,
                    .from = AxisValues(rank),
                    .to = AxisValues(rank),
                    .count = AxisValues(rank)};
    for (size_t d = 0; d < rank; ++d) {
      const int64_t begin = at[d] * shard.inner.shape[d], lo = std::max(begin, window.from[d]),
                    hi = std::min(begin + shard.inner.shape[d], window.from[d] + window.count[d]);
      inner.from[d] = lo - begin;
      inner.to[d] = window.to[d] + lo - window.from[d];
      inner.count[d] = hi - lo;
    }
    const Entry& entry = index[static_cast<size_t>(place)];
    if (entry.offset == kAbsent && entry.bytes == kAbsent && missing == MissingChunk::kFill) {
      out->push_back(std::move(inner));
    } else {
      if (entry.offset < least || entry.offset > most || entry.bytes > most - entry.offset)
        return absl::DataLossError(
            absl::StrCat("inner chunk ", place, " is missing or outside the shard"));
      const absl::Status appended =
          AppendPieces(shard.inner, source, offset + static_cast<int64_t>(entry.offset),
                       static_cast<int64_t>(entry.bytes), inner, missing, out);
      if (!appended.ok()) return Annotate(appended, absl::StrCat("inner chunk ", place));
    }
    size_t d = rank;
    for (; d > 0; --d) {
      if (++at[d - 1] < end[d - 1]) break;
      at[d - 1] = first[d - 1];
    }
    if (d == 0) return absl::OkStatus();
  }
}

}  // namespace

int64_t ZarrPiece::RawSpan(int64_t element_bytes) const {
  int64_t span = element_bytes;
  for (size_t d = 0; d < count.size(); ++d) span += (count[d] - 1) * chain->stride[d];
  return span;
}

absl::Status AppendPieces(const ZarrChain& chain, const ChunkSource& source, int64_t offset,
                          int64_t bytes, const ZarrPiece& window, MissingChunk missing,
                          std::vector<ZarrPiece>* out) {
  if (chain.exact_encoded ? bytes != chain.encoded : bytes > chain.encoded)
    return absl::DataLossError(absl::StrCat("damaged chunk: ", bytes, " bytes; allowed are ",
                                            chain.exact_encoded ? "" : "at most ", chain.encoded));
  if (chain.IsOpenShard())
    return AppendInnerPieces(chain, source, offset, bytes, window, missing, out);
  const bool checked = chain.shard == nullptr && chain.steps.size() == 1 &&
                       chain.steps[0].codec.kind == ByteCodec::Kind::kCrc32c;
  out->push_back({.form = chain.IsRaw() ? ZarrPiece::Form::kRaw
                          : checked     ? ZarrPiece::Form::kRawCrc32c
                                        : ZarrPiece::Form::kEncoded,
                  .file = window.file,
                  .offset = offset,
                  .bytes = bytes,
                  .from = window.from,
                  .to = window.to,
                  .count = window.count,
                  .chain = &chain});
  return absl::OkStatus();
}

absl::Status PieceDecoder::Decode(const ZarrPiece& piece, absl::string_view bytes,
                                  const std::string& fill, MissingChunk missing, char* out,
                                  absl::Span<const int64_t> stride) {
  const auto element = static_cast<int64_t>(fill.size());
  char* const to = out + OffsetOf(piece.to, stride);
  if (piece.form == ZarrPiece::Form::kFill) {
    FillBox(piece.count, fill, to, stride);
    return absl::OkStatus();
  }
  const ZarrChain& chain = *piece.chain;
  const absl::Span<const ZarrChain::Step> steps = chain.steps;
  absl::string_view now = bytes;
  size_t next = 0;  // of parts_; crc32c leaves its result in the other one
  for (size_t i = steps.size(); i > 0; --i) {
    const ZarrChain::Step& step = steps[i - 1];
    const bool in_place = step.codec.kind == ByteCodec::Kind::kCrc32c;
    if (i == 1 && chain.shard == nullptr && !in_place) {
      // The last one decodes to its destination if the whole chunk lies there in one run.
      const bool whole =
          piece.count == chain.shape && IsOneRun(piece.count, element, chain.stride, stride);
      char* const decoded = whole ? to : chunk_.Get(static_cast<size_t>(chain.bytes));
      OCTAVO_RETURN_IF_ERROR(decoder_.Decode(step.codec, now, decoded, chain.bytes));
      if (whole) return absl::OkStatus();
      now = absl::string_view(decoded, static_cast<size_t>(chain.bytes));
      break;
    }
    if (step.exact && !in_place) {
      char* const decoded = parts_[next].Get(static_cast<size_t>(step.decoded));
      OCTAVO_RETURN_IF_ERROR(decoder_.Decode(step.codec, now, decoded, step.decoded));
      now = absl::string_view(decoded, static_cast<size_t>(step.decoded));
    } else {
      OCTAVO_ASSIGN_OR_RETURN(now,
                              decoder_.DecodeUpTo(step.codec, now, step.decoded, &parts_[next]));
    }
    if (!in_place) next = 1 - next;
  }
  if (chain.shard != nullptr) return DecodeShard(piece, now, fill, missing, out, stride);
  if (static_cast<int64_t>(now.size()) != chain.bytes)
    return absl::DataLossError(
        absl::StrCat("damaged chunk: ", now.size(), " of ", chain.bytes, " bytes"));
  CopyBox(piece.count, element, now.data() + piece.RawBegin(), chain.stride, to, stride);
  return absl::OkStatus();
}

absl::Status PieceDecoder::DecodeShard(const ZarrPiece& piece, absl::string_view shard,
                                       const std::string& fill, MissingChunk missing, char* out,
                                       absl::Span<const int64_t> stride) {
  std::vector<ZarrPiece> pieces;
  ZarrChain open = *piece.chain;  // what is left of the chain
  open.steps.clear();
  open.exact_encoded = false;
  open.encoded = open.bytes;
  OCTAVO_RETURN_IF_ERROR(AppendPieces(open, MemorySource(shard), 0,
                                      static_cast<int64_t>(shard.size()), piece, missing, &pieces));
  PieceDecoder inner;  // this one's memory holds the shard
  for (const ZarrPiece& part : pieces)
    OCTAVO_RETURN_IF_ERROR(inner.Decode(
        part, shard.substr(static_cast<size_t>(part.offset), static_cast<size_t>(part.bytes)), fill,
        missing, out, stride));
  return absl::OkStatus();
}

void PieceDecoder::Shrink() {
  for (ScratchMemory* memory : {&encoded_, &parts_[0], &parts_[1], &chunk_}) memory->Shrink(kKept);
}

}  // namespace octavo::storage

#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "server/storage/zarr/metadata.h"
#include "server/storage/zarr/piece.h"
#include "tests/fuzz/fuzz_input.h"

namespace octavo::storage::fuzz {

using octavo::fuzz::Require;

/// A chunk's file in memory. A read outside of it ends the program.
class FileInMemory final : public ChunkSource {
 public:
  explicit FileInMemory(absl::string_view bytes) : bytes_(bytes) {}
  absl::Status Read(int64_t offset, int64_t bytes, char* out) const override {
    const auto size = static_cast<int64_t>(bytes_.size());
    Require(offset >= 0 && bytes >= 0 && offset <= size && bytes <= size - offset);
    std::memcpy(out, bytes_.data() + offset, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }

 private:
  const absl::string_view bytes_;
};

/// Reads a box of a chunk from its file, as ZarrArrayReader does, into memory of just its size.
inline void ReadBox(const ZarrMetadata& meta, absl::string_view file, const AxisValues& from,
                    const AxisValues& count, MissingChunk missing) {
  ZarrPiece window{.from = from, .to = AxisValues(from.size(), 0), .count = count};
  int64_t elements = 1;
  for (const int64_t n : count) elements *= n;
  std::vector<ZarrPiece> pieces;
  const auto size = static_cast<int64_t>(file.size());
  const absl::Status planned =
      AppendPieces(meta.chain, FileInMemory(file), 0, size, window, missing, &pieces);
  if (!planned.ok()) {
    Require(!planned.message().empty());
    return;
  }
  std::vector<char> out(static_cast<size_t>(elements * meta.element_bytes));
  const AxisValues strides = PackedStrides(count, meta.element_bytes);
  PieceDecoder decoder;
  int64_t covered = 0;
  for (const ZarrPiece& piece : pieces) {
    Require(piece.offset >= 0 && piece.bytes >= 0 && piece.offset <= size &&
            piece.bytes <= size - piece.offset);
    int64_t all = 1;
    for (const int64_t n : piece.count) all *= n;
    covered += all;
    if (piece.form == ZarrPiece::Form::kRaw)
      Require(piece.RawBegin() + piece.RawSpan(meta.element_bytes) <= piece.bytes);
    const absl::Status decoded = decoder.Decode(
        piece,
        piece.form == ZarrPiece::Form::kFill
            ? absl::string_view()
            : file.substr(static_cast<size_t>(piece.offset), static_cast<size_t>(piece.bytes)),
        meta.fill, missing, out.data(), strides);
    if (!decoded.ok()) Require(!decoded.message().empty());
  }
  Require(covered == elements);  // the pieces cover the box once
}

}  // namespace octavo::storage::fuzz

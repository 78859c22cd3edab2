#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <vector>

#include "absl/status/status.h"

#include "server/storage/formats/volume_input.h"
#include "server/storage/io/byte_source.h"

namespace octavo::storage {

/// An array of plain numbers that lie without gaps in a stream of bytes.
struct FlatLayout {
  int64_t offset = 0;  // bytes before the first element
  ElementType type;
  bool big_endian = false;
  std::vector<int64_t> shape;
  std::vector<int> file_order;  // the axes from the slowest to the fastest in the stream
};

/// The order of axes that lie as `shape` counts them, and the reverse.
std::vector<int> COrder(size_t rank);
std::vector<int> FortranOrder(size_t rank);

/// Most bytes that ReadFlat takes beside the caller's memory.
inline constexpr int64_t kFlatReadBytes = 4 << 20;

/// Reads a box within the array into C order and host byte order. Elements that lie apart are read
/// in pieces with what is between them, in the stream's order. Cancelled soon after `stop` is
/// requested.
absl::Status ReadFlat(ByteSource& bytes, const FlatLayout& layout, const base::ArrayBox& box,
                      char* out, const std::stop_token& stop = {});

/// A box of an array that lies in one such stream, or in several, one for each part of its first
/// axis: read straight into a device.
class FlatPieces final : public PieceSource {
 public:
  struct Part {
    /// Opens the stream, which must be plain (ByteSource::plain).
    std::function<absl::StatusOr<std::shared_ptr<ByteSource>>()> open;
    FlatLayout layout;
    base::ArrayBox box;  // of the stream's array
    int64_t to = 0;      // its first index along the first axis of the whole box
  };
  explicit FlatPieces(std::vector<Part> parts);
  absl::Status Open(int64_t unit, std::vector<StoredPiece>* out) const override;

 private:
  const std::vector<Part> parts_;
};

/// An input that is one such array.
class FlatInput : public VolumeInput {
 public:
  FlatInput(VolumeInputInfo info, std::shared_ptr<ByteSource> bytes, FlatLayout layout);

 private:
  absl::Status ReadInside(const base::ArrayBox& box, char* out) override;
  absl::StatusOr<std::unique_ptr<PieceSource>> PiecesInside(
      const base::ArrayBox& box) const override;

  const std::shared_ptr<ByteSource> bytes_;
  const FlatLayout layout_;
};

}  // namespace octavo::storage

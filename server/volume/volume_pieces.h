#pragma once

// How a volume is read piece by piece, whatever memory it is in.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"

#include "gpu/base/status.h"
#include "gpu/device/device.h"
#include "server/memory/stripe_layout.h"
#include "server/volume/spilled_volume.h"
#include "server/volume/volume_hold.h"

namespace octavo::volume {

/// The order in which an array [planes, rows, columns] goes in pieces: whole planes where they fit,
/// else rows of one plane.
class PieceWalk {
 public:
  PieceWalk(const int64_t count[3], int64_t element_bytes)
      : planes_(count[0]),
        rows_(count[1]),
        columns_(count[2]),
        row_bytes_(count[2] * element_bytes) {}

  bool done() const { return plane_ >= planes_; }
  int64_t row_bytes() const { return row_bytes_; }
  /// The next piece, of at most `max_bytes` but at least a row.
  Box3 Next(int64_t max_bytes) const {
    const int64_t plane_bytes = row_bytes_ * rows_;
    if (row_ == 0 && plane_bytes <= max_bytes) {
      return {.start = {plane_, 0, 0},
              .count = {std::min(planes_ - plane_, max_bytes / plane_bytes), rows_, columns_}};
    }
    return {.start = {plane_, row_, 0},
            .count = {1, std::min(rows_ - row_, std::max<int64_t>(1, max_bytes / row_bytes_)),
                      columns_}};
  }
  /// `piece`, which Next gave, is done.
  void Advance(const Box3& piece) {
    if (piece.count[1] == rows_) {
      plane_ += piece.count[0];
    } else if ((row_ += piece.count[1]) >= rows_) {
      row_ = 0;
      ++plane_;
    }
  }

 private:
  const int64_t planes_, rows_, columns_, row_bytes_;
  int64_t plane_ = 0, row_ = 0;
};

/// A piece of a volume in host memory: a box, of which the rows may be longer than asked.
struct Piece {
  const char* data = nullptr;
  Box3 box;         // what it shows
  int64_t row = 0;  // elements from one row to the next
  int64_t Plane() const { return box.count[1] * row; }
};

/// Reads boxes of a volume into one staging buffer.
class PieceReader {
 public:
  /// `staging` is page-locked memory for the largest box.
  PieceReader(Device& device, StreamRef stream, const VolumeHold& hold,
              std::shared_ptr<void> staging)
      : device_(device),
        stream_(stream),
        hold_(hold),
        volume_(hold.status),
        element_(SizeOf(volume_.dtype)),
        staging_(std::move(staging)) {}

  /// Elements of a row as it is read.
  int64_t RowOf(const Box3& box) const {
    return box.count[2] * element_ < kLeastRunBytes ? volume_.shape[2] : box.count[2];
  }
  /// `box` takes at most the staging buffer's bytes with rows of RowOf.
  absl::StatusOr<Piece> Read(const Box3& box) {
    Box3 whole = box;
    const int64_t row = RowOf(box);
    if (row != box.count[2]) {
      whole.start[2] = 0;
      whole.count[2] = row;
    }
    if (hold_.cursor != nullptr) {
      OCTAVO_RETURN_IF_ERROR(
          ReadBox(*hold_.cursor, volume_.shape, element_, whole, staging_.get()));
    } else {
      OCTAVO_RETURN_IF_ERROR(
          memory::CopyVolumeBox(device_, stream_, staging_.get(), *hold_.slot, volume_, whole));
      OCTAVO_RETURN_IF_ERROR(stream_.Synchronize());
    }
    return Piece{.data = static_cast<const char*>(staging_.get()) +
                         (box.start[2] - whole.start[2]) * element_,
                 .box = box,
                 .row = row};
  }

 private:
  // Shorter runs of depth samples are read with the rest of their A-scans: a disk and a checksum
  // take whole blocks anyway.
  static constexpr int64_t kLeastRunBytes = 512;

  Device& device_;
  const StreamRef stream_;
  const VolumeHold& hold_;
  const model::VolumeStatus& volume_;
  const int64_t element_;
  const std::shared_ptr<void> staging_;
};

}  // namespace octavo::volume

#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "server/buffer/buffer_reader.h"
#include "server/buffer/piece_to_host.h"

namespace octavo::buffer {

/// A read that was copied in full when it was opened, so that no writer waits for the client.
class StagedReader final : public BufferReader {
 public:
  StagedReader(About about, std::vector<PieceToHost> parts)
      : BufferReader(std::move(about)), parts_(std::move(parts)) {}
  absl::StatusOr<model::Bytes> Next(int64_t max_bytes) override;

 private:
  std::vector<PieceToHost> parts_;
  size_t next_ = 0;
  int64_t at_ = 0;
};

}  // namespace octavo::buffer

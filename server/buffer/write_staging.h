#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/buffer/stream_ordering.h"
#include "server/memory/frame_pool.h"

namespace octavo::buffer {

/// The bytes of one write on their way from a client to page-locked blocks, which it uploads when
/// they are full. A short write is one block, so that nothing is uploaded before all bytes have
/// come. One thread at a time.
class WriteStaging {
 public:
  static constexpr int64_t kMostChunk = 1 << 20;
  /// Enqueues the copy of `bytes` bytes of page-locked memory to byte `at` of the write. The
  /// returned event has passed once the memory is free again.
  using Upload =
      std::function<absl::StatusOr<SharedEvent>(const void* from, int64_t at, int64_t bytes)>;

  WriteStaging(std::shared_ptr<memory::FramePool> pool, int64_t total_bytes);

  /// Takes the next bytes; may wait for the upload of earlier ones. InvalidArgument (PROTOCOL: too
  /// many), the errors of FramePool::Get and of `upload`.
  absl::Status Take(const std::vector<std::pair<const char*, size_t>>& pieces,
                    const Upload& upload);
  /// All bytes have come: uploads what is left. InvalidArgument (SHORT_STREAM), DataLoss (CHECKSUM)
  /// unless the bytes have the checksum `crc32c`, if it is given.
  absl::Status Finish(std::optional<uint32_t> crc32c, const Upload& upload);
  /// Gives up the blocks that uploads may still read.
  std::vector<std::shared_ptr<const void>> Release();

 private:
  struct Block {  // page-locked
    std::shared_ptr<void> memory;
    SharedEvent uploaded;
    int64_t bytes = 0;
  };
  absl::Status NextBlock();
  absl::Status UploadBlock(const Upload& upload);
  absl::Status WaitForOldest();

  const std::shared_ptr<memory::FramePool> pool_;
  const int64_t total_, block_bytes_;
  int64_t received_ = 0, uploaded_ = 0;
  uint32_t crc_ = 0;
  Block block_;                  // being filled; without memory between two blocks
  int64_t filled_ = 0;           // bytes of it
  std::deque<Block> in_flight_;  // oldest first
};

}  // namespace octavo::buffer

#include "server/buffer/write_staging.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/buffer/buffer_errors.h"
#include "server/buffer/staging.h"
#include "server/model/checksum.h"

namespace octavo::buffer {
namespace {

constexpr int64_t kBlock = int64_t{4} << 20;  // of a long write
constexpr size_t kMostInFlight = 4;           // enough to hide the copies

}  // namespace

WriteStaging::WriteStaging(std::shared_ptr<memory::FramePool> pool, int64_t total_bytes)
    : pool_(std::move(pool)),
      total_(total_bytes),
      block_bytes_(total_bytes <= kStagedWhole ? total_bytes : kBlock) {}

absl::Status WriteStaging::Take(const std::vector<std::pair<const char*, size_t>>& pieces,
                                const Upload& upload) {
  int64_t bytes = 0;
  for (const auto& piece : pieces) bytes += static_cast<int64_t>(piece.second);
  if (bytes > kMostChunk)
    return BadField(Reason::kProtocol, "data",
                    absl::StrCat("has ", bytes, " bytes; allowed ", kMostChunk));
  if (bytes > total_ - received_) {
    return BadField(
        Reason::kProtocol, "data",
        absl::StrCat("makes ", received_ + bytes, " bytes; header.total_bytes is ", total_));
  }
  for (auto [data, size] : pieces) {
    crc_ = model::Crc32c(data, size, crc_);
    while (size > 0) {
      if (block_.memory == nullptr) OCTAVO_RETURN_IF_ERROR(NextBlock());
      const auto n = std::min(size, static_cast<size_t>(block_.bytes - filled_));
      std::memcpy(static_cast<char*>(block_.memory.get()) + filled_, data, n);
      data += n;
      size -= n;
      filled_ += static_cast<int64_t>(n);
      received_ += static_cast<int64_t>(n);
      if (filled_ == block_.bytes && block_bytes_ < total_)
        OCTAVO_RETURN_IF_ERROR(UploadBlock(upload));
    }
  }
  return absl::OkStatus();
}

absl::Status WriteStaging::Finish(std::optional<uint32_t> crc32c, const Upload& upload) {
  if (received_ < total_) {
    return BadField(
        Reason::kShortStream, "data",
        absl::StrCat("ended after ", received_, " bytes; header.total_bytes is ", total_));
  }
  if (crc32c.has_value() && *crc32c != crc_) {
    return WithInfo(absl::DataLossError(absl::StrCat("header.crc32c is ", absl::Hex(*crc32c),
                                                     ", that of what came is ", absl::Hex(crc_))),
                    {.reason = Reason::kChecksum, .field = "header.crc32c", .numbers = {}});
  }
  return block_.memory == nullptr ? absl::OkStatus() : UploadBlock(upload);
}

absl::Status WriteStaging::NextBlock() {
  block_.bytes = std::min(block_bytes_, total_ - received_);
  filled_ = 0;
  while (in_flight_.size() >= kMostInFlight) OCTAVO_RETURN_IF_ERROR(WaitForOldest());
  for (;;) {
    auto memory = pool_->Get(block_.bytes, memory::FramePool::Use::kClient);
    if (memory.ok()) {
      block_.memory = *std::move(memory);
      return absl::OkStatus();
    }
    if (in_flight_.empty() || !absl::IsResourceExhausted(memory.status()))
      return std::move(memory).status();
    OCTAVO_RETURN_IF_ERROR(WaitForOldest());
  }
}

absl::Status WriteStaging::WaitForOldest() {
  OCTAVO_RETURN_IF_ERROR(in_flight_.front().uploaded->Synchronize());
  in_flight_.pop_front();
  return absl::OkStatus();
}

absl::Status WriteStaging::UploadBlock(const Upload& upload) {
  // If the write breaks off half-way, copies in flight still use the memory: Release returns it.
  OCTAVO_ASSIGN_OR_RETURN(block_.uploaded, upload(block_.memory.get(), uploaded_, filled_));
  in_flight_.push_back(std::move(block_));
  uploaded_ += filled_;
  block_ = {};
  return absl::OkStatus();
}

std::vector<std::shared_ptr<const void>> WriteStaging::Release() {
  std::vector<std::shared_ptr<const void>> blocks;
  blocks.reserve(in_flight_.size() + 1);
  for (Block& block : in_flight_) blocks.push_back(std::move(block.memory));
  if (block_.memory != nullptr) blocks.push_back(std::move(block_.memory));
  return blocks;
}

}  // namespace octavo::buffer

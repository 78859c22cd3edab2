#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/unique_fd.h"

namespace octavo::storage {

/// Bytes by their offset: of a file, or what a part of a file decompresses to. Any thread; sources
/// that decompress let callers take turns.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Reads exactly `bytes` at `offset`. DataLoss (DAMAGED_FILE) names the file if it has fewer, or
  /// if the compressed bytes are damaged.
  virtual absl::Status ReadAt(int64_t offset, void* out, size_t bytes) = 0;
  /// Number of bytes; -1 where only decompressing all would tell.
  virtual int64_t size() const = 0;
  /// Whether reading at a lower offset than before means to decompress from the start again.
  virtual bool sequential() const { return false; }
  /// An open file that has these bytes as they are.
  struct Plain {
    int fd = -1;         // as long as the source lives
    int64_t offset = 0;  // of the first byte in the file
  };
  /// Nothing: they are made of what files have.
  virtual std::optional<Plain> plain() const { return std::nullopt; }
  /// The file's name for messages.
  const std::string& name() const { return name_; }

 protected:
  explicit ByteSource(std::string name) : name_(std::move(name)) {}
  const std::string name_;
};

/// An open regular file, of the size that it has now. DataLoss if it is none.
absl::StatusOr<std::shared_ptr<ByteSource>> FileBytes(UniqueFd fd, std::string name);

/// How deflated bytes are wrapped.
enum class InflateWrap : uint8_t { kGzip, kZlib };

/// What follows the data that a header declares.
enum class Trailing : uint8_t { kRefuse, kIgnore };

/// The `bytes` bytes that the bytes [offset, offset + packed) of `file` decompress to; `packed` -1:
/// to the end of the file. `bytes` -1: not known, the caller reads as far as it needs. When the
/// last of the `bytes` is read, the stream's checksum is compared, and with Trailing::kRefuse the
/// stream has to end there. gzip: members one after the other are one stream. Uses less than 1 MiB.
std::shared_ptr<ByteSource> InflatedBytes(std::shared_ptr<ByteSource> file, InflateWrap wrap,
                                          int64_t offset, int64_t packed, int64_t bytes,
                                          Trailing trailing);

/// The bytes of `source` from `offset` on.
std::shared_ptr<ByteSource> BytesFrom(std::shared_ptr<ByteSource> source, int64_t offset);

}  // namespace octavo::storage

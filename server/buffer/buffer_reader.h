#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/array/array_ops.h"
#include "server/model/frame.h"

namespace octavo::buffer {

/// One read, piece by piece. One Next at a time.
class BufferReader {
 public:
  struct About {
    ArrayType type;  // of what is read
    std::vector<uint64_t> versions;
    std::vector<uint32_t> replicas;
  };
  explicit BufferReader(About about) : about_(std::move(about)) {}
  virtual ~BufferReader() = default;
  BufferReader(const BufferReader&) = delete;
  BufferReader& operator=(const BufferReader&) = delete;

  const ArrayType& type() const { return about_.type; }
  const std::vector<uint64_t>& versions() const { return about_.versions; }
  const std::vector<uint32_t>& replicas() const { return about_.replicas; }
  int64_t total_bytes() const { return about_.type.bytes(); }
  /// Waits for the device and returns at most max_bytes; empty at the end. Aborted (SLOW_READER)
  /// if the last call was too long ago.
  virtual absl::StatusOr<model::Bytes> Next(int64_t max_bytes) = 0;

 private:
  const About about_;
};

}  // namespace octavo::buffer

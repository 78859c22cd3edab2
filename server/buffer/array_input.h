#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/buffer/buffer_reader.h"
#include "server/buffer/buffer_store.h"

namespace octavo::buffer {

/// A held volume, or a buffer that is not private, as the input of a job, which reads it box by
/// box. All reads see the contents that were there when it was opened: a read fails (NotFound) if
/// the array was removed since, and (Aborted, VERSION) if it was written since. Thread-safe.
class ArrayInput {
 public:
  /// Errors name `field`, as those of reads do. `buffers` must outlive it.
  static absl::StatusOr<std::shared_ptr<const ArrayInput>> Open(BufferStore& buffers,
                                                                std::string field,
                                                                std::string name);
  /// The same, if the array is f32 with three axes.
  static absl::StatusOr<std::shared_ptr<const ArrayInput>> OpenFloats(BufferStore& buffers,
                                                                      std::string field,
                                                                      std::string name);

  const ArrayType& type() const { return type_; }
  /// Takes a piece of an array, in C order. An error ends the read.
  using TakePiece = std::function<absl::Status(const char* data, int64_t bytes)>;
  /// Calls `take` with one piece of the box [start, start + count) after the other. Blocks.
  absl::Status Read(std::vector<int64_t> start, std::vector<int64_t> count,
                    const TakePiece& take) const;
  /// Reads [first, first + count) of the first of three axes to `out`. Blocks.
  absl::Status ReadPlanes(int64_t first, int64_t count, void* out) const;

 private:
  ArrayInput(BufferStore& buffers, std::string field, std::string name)
      : buffers_(buffers), field_(std::move(field)), name_(std::move(name)) {}
  absl::StatusOr<std::shared_ptr<BufferReader>> OpenRead(std::vector<int64_t> start,
                                                         std::vector<int64_t> count) const;
  absl::Status AtField(const absl::Status& status) const;

  BufferStore& buffers_;
  const std::string field_, name_;
  ArrayType type_;
  uint64_t version_ = 0;
};

}  // namespace octavo::buffer

#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>

namespace octavo::storage {

/// Memory that one thread reuses from chunk to chunk. Its contents are not initialised.
class ScratchMemory {
 public:
  /// At least `bytes` bytes; the contents before are lost. Throws std::bad_alloc.
  char* Get(size_t bytes) {
    if (bytes > size_) {
      memory_.reset();  // first, so that both are never there at once
      memory_ = std::make_unique_for_overwrite<char[]>(bytes);
      size_ = bytes;
    }
    return memory_.get();
  }
  /// At least `bytes` bytes; the first `kept` bytes stay.
  char* Grow(size_t bytes, size_t kept) {
    if (bytes > size_) {
      auto larger = std::make_unique_for_overwrite<char[]>(bytes);
      std::copy_n(memory_.get(), kept, larger.get());
      memory_ = std::move(larger);
      size_ = bytes;
    }
    return memory_.get();
  }
  const char* data() const { return memory_.get(); }
  /// Frees the memory if it is larger than `most` bytes.
  void Shrink(size_t most) {
    if (size_ > most) memory_.reset(), size_ = 0;
  }

 private:
  std::unique_ptr<char[]> memory_;
  size_t size_ = 0;
};

}  // namespace octavo::storage

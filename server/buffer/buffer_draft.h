#pragma once

#include <string>
#include <utility>

#include "server/buffer/buffer_entry.h"

namespace octavo::buffer {

class BufferMaker;

/// A buffer that the server fills itself, before anybody sees it: it is in no table, and counts
/// against its owner's quota. It becomes a buffer by BufferStore::Publish; destroyed before, it
/// frees its memory and ends its charge. The owner waits for the work on its memory. Not
/// thread-safe; the BufferStore that made it must outlive it.
class BufferDraft {
 public:
  BufferDraft(BufferMaker* maker, BufferPtr buffer) : maker_(maker), buffer_(std::move(buffer)) {}
  ~BufferDraft();
  BufferDraft(const BufferDraft&) = delete;

  /// The name that the buffer will have.
  const std::string& name() const { return buffer_->status.name; }
  /// That opens it, if it is private.
  const std::string& key() const { return buffer_->key; }
  /// Its memory on its one device; what it holds is undefined at first.
  void* data() const { return buffer_->replicas.front()->memory.data(); }

 private:
  friend class BufferMaker;
  BufferMaker* const maker_;
  const BufferPtr buffer_;
  bool counted_ = false;  // its bytes are its owner's, by the maker
};

}  // namespace octavo::buffer

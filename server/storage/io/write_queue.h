#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "server/storage/io/output_file.h"

namespace octavo::storage {

/// Writes blocks into files by a few threads of its own, so that a drive has several writes at a
/// time and the threads that make the bytes do not wait for it. The pieces of a block are written
/// side by side, too. Thread-safe. The first error is the error of all that follows: what was
/// queued behind it is dropped.
class WriteQueue {
 public:
  /// Bytes of a block of a long file: large enough for a drive that gets one at a time, as from
  /// file systems that write a file with one thread.
  static constexpr int64_t kBlockBytes = 4 << 20;

  /// Page-aligned memory.
  class Block {
   public:
    Block() = default;
    Block(Block&&) = default;  // no copies: the queue hands it out again
    Block& operator=(Block&&) = default;
    Block(std::shared_ptr<char> data, int64_t size) : data_(std::move(data)), size_(size) {}
    char* data() const { return data_.get(); }
    int64_t size() const { return size_; }
    explicit operator bool() const { return data_ != nullptr; }

   private:
    std::shared_ptr<char> data_;  // perhaps a part of what several blocks share
    int64_t size_ = 0;
  };
  /// A part of a block, and where it goes in the file.
  struct Piece {
    int64_t begin, bytes, offset;
  };

  /// `written` grows by what was written.
  explicit WriteQueue(std::atomic<int64_t>* written) : written_(written) {}
  /// Drops what is not being written yet, and waits for the rest.
  ~WriteQueue();
  WriteQueue(const WriteQueue&) = delete;

  /// A new file, which is closed when its last block is written and the caller has let it go.
  /// `direct`: it is large enough for writes past the page cache.
  absl::StatusOr<std::shared_ptr<OutputFile>> Create(const std::string& path, bool direct);
  /// The same for a file that is there.
  absl::StatusOr<std::shared_ptr<OutputFile>> Open(const std::string& path);
  /// A block of at least `bytes`, one that was written if possible. Its content is undefined.
  Block NewBlock(int64_t bytes);
  /// Queues the pieces of a block, at least one. Each begins at the remainder of its offset by
  /// kDirectAlignment. Waits while as much as the queue holds is pending.
  absl::Status Write(std::shared_ptr<OutputFile> file, Block block, std::vector<Piece> pieces);
  /// Waits until all that was queued is written, and tells the first error.
  absl::Status Drain();

 private:
  struct Item {
    std::shared_ptr<OutputFile> file;
    Block block;
    std::vector<Piece> pieces;
    int64_t bytes = 0;
    // The queue's mutex guards these.
    size_t taken = 0, written = 0;  // pieces
  };
  std::shared_ptr<OutputFile> Shared(OutputFile file);
  void Run();
  /// Writes pieces [first, end) of it, unless something failed before. With the last one the item
  /// is done.
  void Process(Item& item, size_t first, size_t end);
  /// Gives block and file back.
  void End(Item& item);
  void Fail(absl::Status status);
  /// A new block, and others of its size for the next calls.
  Block MakeBlocks(int64_t bytes);
  void Keep(Block block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasRoom(int64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::atomic<int64_t>* const written_;
  std::atomic<bool> direct_{true}, failed_{false};
  Mutex mutex_;
  CondVar work_, done_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<Item>> queue_ ABSL_GUARDED_BY(mutex_);  // that have pieces to take
  // Pending:
  int64_t items_ ABSL_GUARDED_BY(mutex_) = 0, bytes_ ABSL_GUARDED_BY(mutex_) = 0,
                 pieces_ ABSL_GUARDED_BY(mutex_) = 0;
  std::multimap<int64_t, Block> free_ ABSL_GUARDED_BY(mutex_);  // by their size
  int64_t free_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::storage

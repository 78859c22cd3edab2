#include "server/storage/io/write_queue.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <new>
#include <pthread.h>
#include <utility>

#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"
#include "gpu/device/alignment.h"
#include "server/storage/io/direct_alignment.h"
#include "server/storage/io/errno_status.h"

namespace octavo::storage {
namespace {

// So many writes at a time keep a drive busy; more take memory.
constexpr size_t kThreads = 8;
// What may be pending: each thread's block, and as much again that is ready.
constexpr int64_t kMostBytes = 16 * WriteQueue::kBlockBytes, kMostItems = 64;
// Sizes of blocks, so that a block fits the next file of about the same size.
constexpr int64_t kSizeStep = 256 << 10;

}  // namespace

WriteQueue::Block::Block(int64_t bytes)
    : data_(static_cast<char*>(
          ::operator new (static_cast<size_t>(bytes), std::align_val_t{kDirectAlignment}))),
      size_(bytes) {}
void WriteQueue::Block::Free::operator()(char* data) const {
  ::operator delete (data, std::align_val_t{kDirectAlignment});
}

WriteQueue::~WriteQueue() {
  std::deque<Item> dropped;
  std::vector<std::thread> threads;
  {
    const MutexLock lock(mutex_);
    failed_ = true;  // also what a thread has just taken
    ends_ = true;
    dropped.swap(queue_);
    threads.swap(threads_);
  }
  work_.NotifyAll();
  for (std::thread& thread : threads) thread.join();
}

std::shared_ptr<OutputFile> WriteQueue::Shared(OutputFile file) {
  return {new OutputFile(std::move(file)), [this](OutputFile* closing) {
            if (absl::Status closed = closing->Close(); !closed.ok()) Fail(std::move(closed));
            delete closing;
          }};
}

absl::StatusOr<std::shared_ptr<OutputFile>> WriteQueue::Create(const std::string& path,
                                                               bool direct) {
  OCTAVO_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path, direct && direct_));
  return Shared(std::move(file));
}
absl::StatusOr<std::shared_ptr<OutputFile>> WriteQueue::Open(const std::string& path) {
  OCTAVO_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Open(path, direct_));
  return Shared(std::move(file));
}

WriteQueue::Block WriteQueue::NewBlock(int64_t bytes) {
  {
    const MutexLock lock(mutex_);
    if (const auto it = free_.lower_bound(bytes); it != free_.end()) {
      Block block = std::move(it->second);
      free_.erase(it);
      free_bytes_ -= block.size();
      return block;
    }
  }
  return Block(RoundUp(bytes, kSizeStep));
}

void WriteQueue::Keep(Block block) {
  if (free_bytes_ + block.size() > kMostBytes) return;
  free_bytes_ += block.size();
  const int64_t size = block.size();
  free_.emplace(size, std::move(block));
}

bool WriteQueue::HasRoom(int64_t bytes) const {
  return items_ == 0 || (items_ < kMostItems && bytes_ + bytes <= kMostBytes);
}

absl::Status WriteQueue::Write(std::shared_ptr<OutputFile> file, Block block,
                               std::vector<Piece> pieces) {
  Item item{.file = std::move(file), .block = std::move(block), .pieces = std::move(pieces)};
  for (const Piece& piece : item.pieces) item.bytes += piece.bytes;
  bool alone = false;
  {
    MutexLock lock(mutex_);
    while (!failed_ && !HasRoom(item.bytes)) done_.Wait(lock);
    if (!status_.ok()) return status_;
    if (threads_.size() < kThreads && std::ssize(threads_) <= items_) {
      try {
        threads_.emplace_back([this] { Run(); });
      } catch (const std::exception&) {  // no more threads can start
        alone = threads_.empty();
      }
    }
    const int64_t bytes = item.bytes;
    if (!alone) queue_.push_back(std::move(item));
    ++items_;
    bytes_ += bytes;
  }
  if (alone) {
    Process(std::move(item));
    const MutexLock lock(mutex_);
    return status_;
  }
  work_.NotifyOne();
  return absl::OkStatus();
}

absl::Status WriteQueue::Drain() {
  MutexLock lock(mutex_);
  while (items_ > 0) done_.Wait(lock);
  return status_;
}

void WriteQueue::Run() {
  pthread_setname_np(pthread_self(), "oct-write");
  for (;;) {
    Item item;
    {
      MutexLock lock(mutex_);
      while (!ends_ && queue_.empty()) work_.Wait(lock);
      if (ends_) return;
      item = std::move(queue_.front());
      queue_.pop_front();
    }
    Process(std::move(item));
  }
}

void WriteQueue::Process(Item item) {
  for (const Piece& piece : item.pieces) {
    if (failed_) break;
    absl::Status written;
    try {
      written = item.file->WriteAt(item.block.data() + piece.begin, piece.bytes, piece.offset);
      if (const int error = written.ok() ? Failpoint("block_written") : 0)
        written = ErrnoStatus(error, "writing", item.file->path());
    } catch (const std::exception& e) {
      written = absl::InternalError(e.what());
    }
    if (written.ok())
      *written_ += piece.bytes;
    else
      Fail(std::move(written));
  }
  if (item.file->refused_direct()) direct_ = false;
  item.file = nullptr;  // before it counts as done: closing it may fail
  {
    const MutexLock lock(mutex_);
    --items_;
    bytes_ -= item.bytes;
    try {
      Keep(std::move(item.block));
    } catch (const std::exception&) {  // no memory to keep it
    }
  }
  done_.NotifyAll();
}

void WriteQueue::Fail(absl::Status status) {
  {
    const MutexLock lock(mutex_);
    if (status_.ok()) status_ = std::move(status);
    failed_ = true;
  }
  done_.NotifyAll();
}

}  // namespace octavo::storage

#include "server/storage/io/write_queue.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <new>
#include <numeric>
#include <pthread.h>
#include <sys/mman.h>
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
// Bytes of pieces that one thread takes at a time.
constexpr int64_t kTogether = 64 << 10;
// What is kept for the next blocks: as much as may be pending, and as much for those that are being
// filled.
constexpr int64_t kMostFree = 2 * kMostBytes;
// Sizes of blocks, so that a block fits the next file of about the same size.
constexpr int64_t kSizeStep = 256 << 10;
// Blocks that are written past the page cache lie in huge pages: the kernel then hands a drive a
// few long runs of memory for a write. With small pages it hands over each page by itself, which
// took a virtual drive twice as long. And new memory costs a fault for each page.
constexpr size_t kHugePage = 2 << 20;

/// Aligned memory, freed with the last that refers to it.
std::shared_ptr<char> Allocate(int64_t bytes) {
  void* data = nullptr;
  if (::posix_memalign(&data, kDirectAlignment, static_cast<size_t>(bytes)) != 0)
    throw std::bad_alloc();
  return {static_cast<char*>(data), [](char* memory) { std::free(memory); }};
}
/// The same, in huge pages if the system has them; nothing if it has not so much. Not from the
/// heap, where the advice would stay for whatever comes there later.
std::shared_ptr<char> AllocateHuge(int64_t bytes) {
#ifdef __SANITIZE_ADDRESS__
  return nullptr;  // so that a write beyond a block of the heap is seen
#endif
  const auto size = static_cast<size_t>(bytes), more = size + kHugePage;
  void* const mapped =
      ::mmap(nullptr, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<char*>(mapped);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(mapped) % kHugePage) % kHugePage;
  char* const data = begin + before;
  if (before > 0) (void)::munmap(begin, before);
  if (before < kHugePage) (void)::munmap(data + size, kHugePage - before);
  (void)::madvise(data, size, MADV_HUGEPAGE);  // only a hint
  return {data, [size](char* memory) { (void)::munmap(memory, size); }};
}

}  // namespace

WriteQueue::~WriteQueue() {
  std::deque<std::shared_ptr<Item>> dropped;
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
  return MakeBlocks(bytes);
}

WriteQueue::Block WriteQueue::MakeBlocks(int64_t bytes) {
  const int64_t size = RoundUp(bytes, kSizeStep);
  // Several small blocks share whole huge pages; of large ones, the last page may be small ones.
  constexpr int64_t kHuge = kHugePage;
  const int64_t count = size < kHuge ? kHuge / std::gcd(size, kHuge) : 1;
  const auto memory = bytes < kSizeStep ? nullptr : AllocateHuge(count * size);
  if (memory != nullptr) {
    const MutexLock lock(mutex_);
    for (int64_t i = 1; i < count; ++i) Keep({{memory, memory.get() + i * size}, size});
    return {memory, size};
  }
  return {Allocate(size), size};
}

void WriteQueue::Keep(Block block) {
  const int64_t size = block.size();
  // Smaller ones give way: those that are wanted now have the size of this one.
  while (free_bytes_ + size > kMostFree && !free_.empty() && free_.begin()->first < size) {
    free_bytes_ -= free_.begin()->first;
    free_.erase(free_.begin());
  }
  if (free_bytes_ + size > kMostFree) return;
  try {
    free_.emplace(size, std::move(block));
    free_bytes_ += size;
  } catch (const std::exception&) {  // no memory to keep it
  }
}

bool WriteQueue::HasRoom(int64_t bytes) const {
  return items_ == 0 || (items_ < kMostItems && bytes_ + bytes <= kMostBytes);
}

absl::Status WriteQueue::Write(std::shared_ptr<OutputFile> file, Block block,
                               std::vector<Piece> pieces) {
  if (pieces.empty()) return absl::InternalError("a block without pieces");
  const auto item = std::make_shared<Item>(
      Item{.file = std::move(file), .block = std::move(block), .pieces = std::move(pieces)});
  for (const Piece& piece : item->pieces) item->bytes += piece.bytes;
  bool alone = false;
  {
    MutexLock lock(mutex_);
    while (!failed_ && !HasRoom(item->bytes)) done_.Wait(lock);
    if (!status_.ok()) return status_;
    // A thread for each piece, as far as there may be so many.
    const int64_t pending = pieces_ + std::ssize(item->pieces);
    while (threads_.size() < kThreads && std::ssize(threads_) < pending) {
      try {
        threads_.emplace_back([this] { Run(); });
      } catch (const std::exception&) {  // no more threads can start
        alone = threads_.empty();
        break;
      }
    }
    if (!alone) queue_.push_back(item);  // may throw: nothing is counted yet
    ++items_;
    bytes_ += item->bytes;
    pieces_ = pending;
  }
  if (alone) {
    Process(*item, 0, item->pieces.size());
    const MutexLock lock(mutex_);
    return status_;
  }
  item->pieces.size() == 1 ? work_.NotifyOne() : work_.NotifyAll();
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
    std::shared_ptr<Item> item;
    size_t first = 0, end = 0;
    {
      MutexLock lock(mutex_);
      while (!ends_ && queue_.empty()) work_.Wait(lock);
      if (ends_) return;
      item = queue_.front();
      // Tiny pieces together, so that they cost no look at the queue each.
      first = item->taken;
      int64_t bytes = 0;
      do {
        bytes += item->pieces[item->taken++].bytes;
      } while (item->taken < item->pieces.size() &&
               bytes + item->pieces[item->taken].bytes <= kTogether);
      end = item->taken;
      if (item->taken == item->pieces.size()) queue_.pop_front();
    }
    Process(*item, first, end);
  }
}

void WriteQueue::Process(Item& item, size_t first, size_t end) {
  for (size_t i = first; i < end && !failed_; ++i) {
    const Piece& piece = item.pieces[i];
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
  {
    const MutexLock lock(mutex_);
    item.written += end - first;
    if (item.written < item.pieces.size()) return;
  }
  End(item);
}

void WriteQueue::End(Item& item) {
  if (item.file->refused_direct()) direct_ = false;
  item.file = nullptr;  // before it counts as done: closing it may fail
  {
    const MutexLock lock(mutex_);
    --items_;
    bytes_ -= item.bytes;
    pieces_ -= std::ssize(item.pieces);
    Keep(std::move(item.block));
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

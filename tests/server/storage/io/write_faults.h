#pragma once

#include <atomic>
#include <cstdint>

namespace octavo::storage::testing {

/// What the system calls of this program do: open, pwrite, fallocate, ftruncate and pthread_create
/// are replaced.
struct WriteFaults {
  std::atomic<int> open_direct{0};      // errno of opening with O_DIRECT
  std::atomic<int> write_direct{0};     // errno of writing past the page cache
  std::atomic<int> reserve{0};          // errno of reserving room
  std::atomic<int> truncate{0};         // errno of cutting a file off
  std::atomic<int64_t> most{0};         // bytes that one call writes; 0 = all
  std::atomic<int64_t> room{-1};        // bytes until ENOSPC; -1 = enough
  std::atomic<int> delay_ms{0};         // of each write
  std::atomic<bool> held{false};        // writes wait
  std::atomic<int> waiting{0};          // so many do
  std::atomic<bool> no_threads{false};  // no thread can start
  std::atomic<int64_t> direct{0},
      buffered{0};                    // bytes that were written, past the page cache or not
  std::atomic<int> opened_direct{0};  // files
  void Reset();
};
WriteFaults& Faults();

}  // namespace octavo::storage::testing

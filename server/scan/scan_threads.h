#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <thread>

namespace octavo::scan {

/// The threads of a scan. They are created with the scan, like its memory: if the system cannot
/// start them, the scan is refused instead of failing later. Each thread waits at a gate until the
/// scan starts.
class ScanThreads {
 public:
  using Body = std::function<void(const std::stop_token&)>;
  /// Creates a thread that runs `body` when the gate opens. It ends without running `body` if the
  /// gate never opens. Name: at most 15 characters.
  std::jthread Make(const char* name, Body body);
  void Open();
  /// Ends the threads that still wait at the gate.
  void NeverOpen();

 private:
  enum class Gate : uint8_t { kClosed, kOpen, kNever };
  std::atomic<Gate> gate_{Gate::kClosed};

 public:
  std::jthread acquire, compute, retire, copy,
      records;  // joined before the gate is destroyed
};

}  // namespace octavo::scan

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <thread>

namespace octavo::scan {

/// The threads of a scan. They are made with it, like its memory: where none can start any more the
/// scan is refused, and none is missing later. Each waits at a gate until the scan starts.
class ScanThreads {
 public:
  using Body = std::function<void(const std::stop_token&)>;
  /// A thread that runs `body` when the gate opens, and ends without that when it never will. Name:
  /// at most 15 characters.
  std::jthread Make(const char* name, Body body);
  void Open();
  /// For threads whose gate is not open yet.
  void NeverOpen();

 private:
  enum class Gate : uint8_t { kClosed, kOpen, kNever };
  std::atomic<Gate> gate_{Gate::kClosed};

 public:
  std::jthread acquire, compute, retire, copy;  // join before the gate goes
};

}  // namespace octavo::scan

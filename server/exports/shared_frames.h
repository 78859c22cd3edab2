#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "server/memory/shared_pages.h"

namespace octavo::exports {

/// Bytes of host memory that are bounded together. One payer gets at most half, so that nobody
/// takes all from the others; an empty name, that of admins, has no such limit. Thread-safe.
class FrameBudget {
 public:
  explicit FrameBudget(int64_t most_bytes) : most_bytes_(most_bytes) {}
  /// ResourceExhausted (OUT_OF_MEMORY: wanted, used, allowed).
  absl::Status Take(const std::string& payer, int64_t bytes);
  void GiveBack(const std::string& payer, int64_t bytes) noexcept;
  int64_t used() const;

 private:
  const int64_t most_bytes_;
  mutable Mutex mutex_;
  int64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, int64_t> of_payer_ ABSL_GUARDED_BY(mutex_);  // of those with any
};

/// Memory for one frame at a time, which a client maps to read. Charged to the budget until it
/// ends; what the client keeps mapped then is the client's.
class SharedFrame {
 public:
  /// Of at least `bytes` bytes; somewhat more, so that a little larger frame fits, too. The errors
  /// of FrameBudget::Take; ResourceExhausted (OUT_OF_MEMORY, NO_DESCRIPTORS) if the host has none.
  static absl::StatusOr<std::shared_ptr<SharedFrame>> Make(
      const std::shared_ptr<FrameBudget>& budget, const std::string& payer, int64_t bytes);
  SharedFrame(const SharedFrame&) = delete;
  SharedFrame& operator=(const SharedFrame&) = delete;
  ~SharedFrame();

  char* data() const { return pages_.data(); }
  int64_t bytes() const { return pages_.bytes(); }
  /// For the client, until CloseDescriptor: a descriptor is needed once.
  int fd() const { return pages_.fd(); }
  void CloseDescriptor() { pages_.CloseDescriptor(); }

 private:
  SharedFrame(std::shared_ptr<FrameBudget> budget, std::string payer, int64_t charged)
      : budget_(std::move(budget)), payer_(std::move(payer)), charged_(charged) {}

  const std::shared_ptr<FrameBudget> budget_;
  const std::string payer_;
  const int64_t charged_;
  memory::SharedPages pages_;
};

}  // namespace octavo::exports

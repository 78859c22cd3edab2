#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "gpu/base/unique_fd.h"

namespace octavo::handoff {

/// Closes descriptors that clients sent. A close may wait: that of a file for its file system,
/// which a client may be (FUSE), that of a connection for its peer (SO_LINGER). Such a descriptor
/// is closed by a thread of the bin, which alone waits then. Thread-safe; no call waits.
class DescriptorBin {
 public:
  static constexpr size_t kMost = 256;

  DescriptorBin();
  /// Does not wait for the thread, which ends when it has closed what there is.
  ~DescriptorBin();
  DescriptorBin(const DescriptorBin&) = delete;
  DescriptorBin& operator=(const DescriptorBin&) = delete;

  /// Closes memory files now and all else soon.
  void Close(std::vector<UniqueFd> descriptors);
  /// Whether so many wait to be closed that no further ones should be taken.
  bool full();

 private:
  struct Heap;
  const std::shared_ptr<Heap> heap_;  // the thread's, too
};

}  // namespace octavo::handoff

#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "gpu/device/device.h"
#include "server/memory/frame_pool.h"

namespace octavo::memory {

/// The devices of a server by index, each with the page-locked host memory through which its bytes
/// come and go. A small value: the devices outlive it, the pools are shared.
class DeviceSet {
 public:
  struct Member {
    Device* device = nullptr;
    std::shared_ptr<FramePool> frames;
  };
  DeviceSet() = default;
  explicit DeviceSet(std::vector<Member> members) : members_(std::move(members)) {}

  int size() const { return static_cast<int>(members_.size()); }
  Device& device(int index) const { return *members_[static_cast<size_t>(index)].device; }
  const std::shared_ptr<FramePool>& frames(int index) const {
    return members_[static_cast<size_t>(index)].frames;
  }

 private:
  std::vector<Member> members_;
};

}  // namespace octavo::memory

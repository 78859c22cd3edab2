#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "gpu/device/device.h"
#include "server/base/device_names.h"
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
  /// `host_for_jobs`: the last one is devices/host.
  explicit DeviceSet(std::vector<Member> members, bool host_for_jobs = false)
      : members_(std::move(members)), names_(static_cast<int>(members_.size()), host_for_jobs) {}

  int size() const { return static_cast<int>(members_.size()); }
  const base::DeviceNames& names() const { return names_; }
  Device& device(int index) const { return *members_[static_cast<size_t>(index)].device; }
  const std::shared_ptr<FramePool>& frames(int index) const {
    return members_[static_cast<size_t>(index)].frames;
  }

 private:
  std::vector<Member> members_;
  base::DeviceNames names_{0};
};

}  // namespace octavo::memory

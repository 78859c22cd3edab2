#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gpu/base/log.h"
#include "server/base/exception_to_status.h"
#include "server/volume/volume_table.h"

namespace octavo::volume {

/// Changes of neither state nor tier that a verb makes under the table's lock. They are told when
/// this object ends; declare it before the lock, so that the lock has been released by then.
class VolumeNews {
 public:
  explicit VolumeNews(VolumeTable& table) : table_(table) {}
  VolumeNews(const VolumeNews&) = delete;
  VolumeNews& operator=(const VolumeNews&) = delete;
  ~VolumeNews() {
    for (const model::VolumeStatus& volume : changed_) table_.TellDetails(volume);
  }

  /// Call it after the change, which stands even if there is no memory to tell it.
  void Add(VolumeEntry& entry) noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_.mutex()) {
    try {
      changed_.push_back(table_.Changed(entry));
    } catch (...) {
      Log(LogLevel::kError, "a change of a volume is not told",
          {{"volume", entry.name()}, {"error", base::StatusOfException().ToString()}});
    }
  }

 private:
  VolumeTable& table_;
  std::vector<model::VolumeStatus> changed_;
};

/// A seal that has been made. Observers hear of it when this object ends: whoever seals does first
/// what its clients wait for. If the volume has left memory by then, they hear of that end alone.
class UntoldSeal {
 public:
  UntoldSeal() = default;
  UntoldSeal(VolumeTable* table, model::VolumeStatus sealed)
      : table_(table), sealed_(std::move(sealed)) {}
  UntoldSeal(UntoldSeal&& other) noexcept
      : table_(std::exchange(other.table_, nullptr)), sealed_(std::move(other.sealed_)) {}
  UntoldSeal& operator=(UntoldSeal&&) = delete;
  ~UntoldSeal() {
    if (table_ != nullptr && table_->IsInMemory(sealed_.name)) table_->Tell(sealed_);
  }

 private:
  VolumeTable* table_ = nullptr;
  model::VolumeStatus sealed_;
};

}  // namespace octavo::volume

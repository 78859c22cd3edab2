#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

#include "gpu/base/mutex.h"
#include "server/storage/direct/read_way.h"

namespace octavo::storage {

/// The way by which files below a storage root are read now, shared by all reads of the root. Any
/// thread.
class RootWay {
 public:
  /// So many failed reads since the last measurement end cuFile for the root.
  static constexpr int64_t kMostErrors = 8;

  ReadWay now() const { return now_.load(std::memory_order_relaxed); }
  /// The better one of those that do without cuFile.
  ReadWay by_host() const { return by_host_.load(std::memory_order_relaxed); }
  int64_t errors() const { return errors_.load(std::memory_order_relaxed); }
  bool demoted() const { return demoted_.load(std::memory_order_relaxed); }
  /// What cuFile answered to the last read that it failed; empty without one.
  std::string last_error() const {
    const MutexLock lock(mutex_);
    return last_error_;
  }

  /// A measurement decided. Lifts the ban.
  void Set(ReadWay way, ReadWay by_host) {
    recent_ = 0;
    demoted_ = false;
    by_host_ = by_host;
    now_ = way;
  }
  /// cuFile failed a read, which the other way repeats. `why`: in words.
  void CuFileFailed(absl::string_view why) {
    {
      const MutexLock lock(mutex_);
      last_error_ = std::string(why);
    }
    ++errors_;
    if (++recent_ < kMostErrors || now_ != ReadWay::kCufile) return;
    demoted_ = true;
    now_ = by_host();
  }

 private:
  std::atomic<ReadWay> now_{ReadWay::kUnmeasured}, by_host_{ReadWay::kBuffered};
  std::atomic<int64_t> errors_{0}, recent_{0};
  std::atomic<bool> demoted_{false};
  mutable Mutex mutex_;
  std::string last_error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::storage

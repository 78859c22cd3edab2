#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "server/model/frame.h"
#include "server/picture/image.h"

namespace octavo::picture {

using PicturePtr = std::shared_ptr<const Picture>;

/// Pictures shared by all who want the same frame with the same options: the last ones used, within
/// a number of bytes. What users still hold counts for them, not for the cache. Thread-safe.
class PictureCache {
 public:
  static constexpr int64_t kUsualBytes = int64_t{64} << 20;
  explicit PictureCache(int64_t most_bytes = kUsualBytes) : most_bytes_(most_bytes) {}

  /// The picture of a frame; makes it unless it is there. Errors of MakePicture.
  absl::StatusOr<PicturePtr> Get(const model::FramePtr& frame, const ImageOptions& options);
  /// Of the pictures that the cache holds.
  int64_t bytes();

 private:
  using Key = std::pair<const model::Frame*, ImageOptions>;
  struct Entry {
    Key key;
    std::weak_ptr<const model::Frame> frame;
    PicturePtr picture;
  };
  void Remove(std::list<Entry>::iterator entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t most_bytes_;
  Mutex mutex_;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // the last used first
  std::map<Key, std::list<Entry>::iterator> by_key_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::picture

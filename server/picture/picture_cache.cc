#include "server/picture/picture_cache.h"

#include <iterator>

#include "gpu/base/status.h"

namespace octavo::picture {

absl::StatusOr<PicturePtr> PictureCache::Get(const model::FramePtr& frame,
                                             const ImageOptions& options) {
  const Key key(frame.get(), options);
  {
    MutexLock lock(mutex_);
    // A frame that is gone leaves its address to another one.
    for (auto it = entries_.begin(); it != entries_.end();) {
      const auto entry = it++;
      if (entry->frame.expired()) Remove(entry);
    }
    if (const auto it = by_key_.find(key); it != by_key_.end()) {
      entries_.splice(entries_.begin(), entries_, it->second);
      return it->second->picture;
    }
  }
  OCTAVO_ASSIGN_OR_RETURN(Picture made, MakePicture(*frame, options));
  auto picture = std::make_shared<const Picture>(std::move(made));
  MutexLock lock(mutex_);
  if (picture->data.size > most_bytes_) return picture;
  if (const auto it = by_key_.find(key); it != by_key_.end()) Remove(it->second);
  entries_.push_front({.key = key, .frame = frame, .picture = picture});
  try {
    by_key_[key] = entries_.begin();
  } catch (...) {
    entries_.pop_front();
    throw;
  }
  bytes_ += picture->data.size;
  while (bytes_ > most_bytes_) Remove(std::prev(entries_.end()));
  return picture;
}

int64_t PictureCache::bytes() {
  MutexLock lock(mutex_);
  return bytes_;
}

void PictureCache::Remove(std::list<Entry>::iterator entry) {
  bytes_ -= entry->picture->data.size;
  by_key_.erase(entry->key);
  entries_.erase(entry);
}

}  // namespace octavo::picture

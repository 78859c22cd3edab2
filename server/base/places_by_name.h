#pragma once

#include <map>
#include <memory>
#include <string>

#include "gpu/base/mutex.h"

namespace octavo::base {

/// Places of which each name may have `most` at a time, so that nobody takes those of others.
/// Thread-safe.
class PlacesByName {
 public:
  explicit PlacesByName(int most) : most_(most), taken_(std::make_shared<Taken>()) {}
  /// A place until its last reference ends, which may be after this object; null if the name has
  /// `most` already.
  std::shared_ptr<void> Take(const std::string& name);
  int most() const { return most_; }

 private:
  class Place;
  struct Taken {
    Mutex mutex;
    std::map<std::string, int> places ABSL_GUARDED_BY(mutex);  // of those with any
  };
  const int most_;
  const std::shared_ptr<Taken> taken_;
};

}  // namespace octavo::base

#pragma once

#include "gpu/device/stream.h"

namespace octavo::tomography {

/// Its destructor waits for the stream before the objects declared above it are destroyed.
class SynchroniseAtEnd {
 public:
  explicit SynchroniseAtEnd(StreamRef stream) : stream_(stream) {}
  ~SynchroniseAtEnd() { (void)stream_.Synchronize(); }
  SynchroniseAtEnd(const SynchroniseAtEnd&) = delete;
  SynchroniseAtEnd& operator=(const SynchroniseAtEnd&) = delete;

 private:
  StreamRef stream_;
};

}  // namespace octavo::tomography

#pragma once

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace octavo::inline gpu {

enum class StreamPriority { kNormal, kHigh, kLow };

/// Backend part of an event. See Event.
class EventBase {
 public:
  virtual ~EventBase() = default;
  virtual absl::StatusOr<bool> Query() = 0;
  virtual absl::Status Synchronize() = 0;
};

/// Backend part of a stream. See Stream.
class StreamBase {
 public:
  virtual ~StreamBase() = default;
  virtual absl::Status Record(EventBase& event) = 0;
  virtual absl::Status Wait(EventBase& event) = 0;
  virtual absl::Status Synchronize() = 0;
};

/// Copyable, non-owning view of a stream. Work enqueued on one stream runs in order; different
/// streams run concurrently.
class StreamRef {
 public:
  StreamRef() = default;
  explicit StreamRef(StreamBase* base) : base_(base) {}
  StreamBase* base() const { return base_; }
  explicit operator bool() const { return base_ != nullptr; }
  /// Waits on the calling thread until everything enqueued so far is done. Returns the first error
  /// of that work.
  absl::Status Synchronize() const { return base_->Synchronize(); }

 private:
  StreamBase* base_ = nullptr;
};

/// Move-only owner of a mark in a stream. An event that was never recorded counts as passed.
class Event {
 public:
  Event() = default;
  explicit Event(std::unique_ptr<EventBase> base) : base_(std::move(base)) {}
  explicit operator bool() const { return base_ != nullptr; }
  /// Marks the current end of `stream`. Recording again replaces the mark. Does not synchronise.
  absl::Status Record(StreamRef stream) { return stream.base()->Record(*base_); }
  /// Work enqueued on `stream` from now on starts after the last recorded mark. Does not wait on
  /// the calling thread.
  absl::Status EnqueueWait(StreamRef stream) { return stream.base()->Wait(*base_); }
  /// Whether the stream has passed the mark. Returns an error of the work before the mark.
  absl::StatusOr<bool> Query() { return base_->Query(); }
  /// Waits on the calling thread until the stream has passed the mark.
  absl::Status Synchronize() { return base_->Synchronize(); }

 private:
  std::unique_ptr<EventBase> base_;
};

/// Move-only owner of a stream. Its destructor waits for the work enqueued on the stream.
class Stream {
 public:
  Stream() = default;
  explicit Stream(std::unique_ptr<StreamBase> base) : base_(std::move(base)) {}
  explicit operator bool() const { return base_ != nullptr; }
  StreamRef ref() const { return StreamRef(base_.get()); }

 private:
  std::unique_ptr<StreamBase> base_;
};

}  // namespace octavo::inline gpu

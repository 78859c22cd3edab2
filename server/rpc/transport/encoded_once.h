#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "gpu/base/mutex.h"

namespace octavo::rpc {

/// The message of the status that was encoded last: all watchers of a change hear of it with the
/// same object, one after the other, and only the first of them has it encoded. Thread-safe.
template <class Status, class Message>
class EncodedOnce {
 public:
  explicit EncodedOnce(std::function<void(const Status&, Message*)> encode)
      : encode_(std::move(encode)) {}

  std::shared_ptr<const Message> Get(const std::shared_ptr<const Status>& status) {
    {
      MutexLock lock(mutex_);
      if (status_ == status) return message_;
    }
    auto message = std::make_shared<Message>();
    encode_(*status, message.get());
    MutexLock lock(mutex_);
    status_ = status;  // kept, so that no other object has its address
    message_ = message;
    return message;
  }

 private:
  const std::function<void(const Status&, Message*)> encode_;
  Mutex mutex_;
  std::shared_ptr<const Status> status_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const Message> message_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::rpc

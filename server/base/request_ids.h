#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace octavo::base {

/// A request that is at work: its id is free again when this ends, unless the request has made
/// something.
class RequestClaim {
 public:
  /// `end` is RequestIds::End, with the lock that guards it; with an empty name it must not throw.
  explicit RequestClaim(std::function<void(const std::string& name)> end) : end_(std::move(end)) {}
  RequestClaim(RequestClaim&& other) noexcept : end_(std::exchange(other.end_, nullptr)) {}
  RequestClaim& operator=(RequestClaim&&) = delete;
  ~RequestClaim() {
    if (end_) end_("");
  }
  /// To be called as soon as `name` is there: whatever happens later, a retry gets it.
  void Made(const std::string& name) {
    if (end_) end_(name);
    end_ = nullptr;
  }

 private:
  std::function<void(const std::string& name)> end_;
};

/// What requests with an id have made: a retry gets what the first one made. The last 10000 are
/// remembered. Not thread-safe.
class RequestIds {
 public:
  static constexpr size_t kMost = 10000;
  /// `made`: what it makes, the key of its name in the numbers of IDEMPOTENCY_MISMATCH; empty = it
  /// is not told.
  explicit RequestIds(std::string made = "") : made_(std::move(made)) {}

  /// The name of what the first request with this id made; empty = this is the first (an empty id
  /// always is), and has the id now. AlreadyExists (IDEMPOTENCY_MISMATCH) if that had another body,
  /// by its digest; Unavailable (IN_PROGRESS) if it is still at work.
  absl::StatusOr<std::string> Begin(const std::string& id, const std::string& digest);
  /// It made `name`; empty = it failed, and the id is free again.
  void End(const std::string& id, const std::string& name);

 private:
  struct Request {
    std::string digest, name;  // empty name: at work
  };
  std::string made_;
  std::map<std::string, Request> requests_;
  std::deque<std::string> order_;  // oldest first
};

}  // namespace octavo::base

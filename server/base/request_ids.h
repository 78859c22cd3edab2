#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace octavo::base {

/// A request in progress: its id becomes free when this object ends, unless the request has created
/// its resource.
class RequestClaim {
 public:
  /// `end` is RequestIds::End, with the lock that guards it; with an empty name it must not throw.
  explicit RequestClaim(std::function<void(const std::string& name)> end) : end_(std::move(end)) {}
  RequestClaim(RequestClaim&& other) noexcept : end_(std::exchange(other.end_, nullptr)) {}
  RequestClaim& operator=(RequestClaim&&) = delete;
  ~RequestClaim() {
    if (end_) end_("");
  }
  /// Call it as soon as `name` exists: whatever happens later, a retry gets that name.
  void Made(const std::string& name) {
    if (end_) end_(name);
    end_ = nullptr;
  }

 private:
  std::function<void(const std::string& name)> end_;
};

/// The resources created by requests with an id: a retry gets the resource of the first request.
/// It remembers 10000 requests. A new one beyond them replaces the oldest request of the principal
/// with the most requests, so that no principal pushes out the requests of others. Not thread-safe.
class RequestIds {
 public:
  static constexpr size_t kMost = 10000;
  /// `made`: the kind of resource, the key of its name in the numbers of IDEMPOTENCY_MISMATCH;
  /// empty = omitted.
  explicit RequestIds(std::string made = "") : made_(std::move(made)) {}

  /// The name of the resource that the first request with this id created; empty = this request is
  /// the first (one with an empty id always is) and owns the id now. AlreadyExists
  /// (IDEMPOTENCY_MISMATCH) if the first had another body; Unavailable (IN_PROGRESS) if it is still
  /// in progress. The table keeps only the SHA-256 of `body`. `principal`: the caller.
  absl::StatusOr<std::string> Begin(const std::string& id, const std::string& body,
                                    const std::string& principal);
  /// The request created `name`; empty = it failed, and the id is free again.
  void End(const std::string& id, const std::string& name);

 private:
  struct Request {
    std::string digest;  // SHA-256 of the body
    std::string name;    // empty: in progress
    std::string principal;
  };
  /// Forgets the oldest request of the principal with the most requests.
  void MakeRoom();
  void Forget(std::map<std::string, Request>::iterator request);
  std::string made_;
  std::map<std::string, Request> requests_;
  std::map<std::string, size_t> of_;  // how many a principal has
  std::deque<std::string> order_;     // oldest first
};

}  // namespace octavo::base

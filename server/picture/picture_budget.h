#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"

namespace octavo::picture {

/// Host memory of pictures that clients ask for one by one: while they are made, and until their
/// clients have them. A client that reads slowly keeps its share. Copies are the same budget.
/// Thread-safe.
class PictureBudget {
 public:
  static constexpr int64_t kUsualBytes = int64_t{1} << 30;
  explicit PictureBudget(int64_t most_bytes = kUsualBytes)
      : state_(std::make_shared<State>(most_bytes)) {}

  /// The share of one picture, until it is destroyed. It may outlive the budget.
  class Share;
  /// A share of `bytes`, of which the picture takes part only while it is made. A picture that is
  /// larger than what is free may be made if it is the only one that is made now, so that there is
  /// none for which the budget is too small. ResourceExhausted (BUSY).
  absl::StatusOr<std::shared_ptr<Share>> Take(int64_t bytes);
  /// Of all shares.
  int64_t bytes();

 private:
  struct State {
    explicit State(int64_t most) : most_bytes(most) {}
    const int64_t most_bytes;
    Mutex mutex;
    int64_t used ABSL_GUARDED_BY(mutex) = 0;
    int making ABSL_GUARDED_BY(mutex) = 0;
  };
  const std::shared_ptr<State> state_;
};

class PictureBudget::Share {
 public:
  explicit Share(std::shared_ptr<State> state) : state_(std::move(state)) {}
  Share(const Share&) = delete;
  Share& operator=(const Share&) = delete;
  ~Share();
  /// The picture is made and has this many bytes. Called once at most.
  void Made(int64_t bytes);

 private:
  friend class PictureBudget;
  const std::shared_ptr<State> state_;
  int64_t bytes_ = 0;
  bool making_ = false;
};

}  // namespace octavo::picture

#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "server/model/subscription.h"
#include "server/publish/publisher.h"

namespace octavo::engine {

/// Live frames and events: the engine's part for StreamService.
class Streams {
 public:
  explicit Streams(publish::Publisher* publisher) : publisher_(*publisher) {}

  /// `notify` is called (from any engine thread, must not block or call back into the engine) when
  /// Take or Ended may have news. OutOfRange if from_sequence is no longer kept
  /// (numbers.first_available).
  absl::StatusOr<std::shared_ptr<model::Subscription>> Subscribe(const model::SubscribeSpec& spec,
                                                                 std::function<void()> notify) {
    return publisher_.Subscribe(spec, std::move(notify));
  }
  /// Counts a stream that the server has cut.
  void CountCut(const std::string& reason) { publisher_.CountCut(reason); }

 private:
  publish::Publisher& publisher_;
};

}  // namespace octavo::engine

#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "absl/status/statusor.h"

#include "server/engine/earlier_runs.h"
#include "server/model/subscription.h"
#include "server/publish/publisher.h"

namespace octavo::engine {

/// Live frames and events: the engine's part for StreamService.
class Streams {
 public:
  Streams(publish::Publisher* publisher, const EarlierRuns* earlier)
      : publisher_(*publisher), earlier_(*earlier) {}

  /// `notify` is called (from any engine thread, must not block or call back into the engine) when
  /// Take or Ended may have news. OutOfRange if from_sequence is no longer kept
  /// (numbers.first_available). NotFound (NO_SCAN, NO_JOB), which says so of one of an earlier
  /// daemon.
  absl::StatusOr<std::shared_ptr<model::Subscription>> Subscribe(const model::SubscribeSpec& spec,
                                                                 std::function<void()> notify);
  /// After such a subscription has ended well: the newest picture of each product that can be cut
  /// from held volumes, that it wanted the latest of, and that is not among those `shown`.
  /// FailedPrecondition if there is none.
  absl::StatusOr<std::shared_ptr<model::Subscription>> SubscribeToLast(
      const model::SubscribeSpec& spec, const std::set<model::Product>& shown,
      std::function<void()> notify);
  /// Counts a stream that the server has cut.
  void CountCut(const std::string& reason) { publisher_.CountCut(reason); }

 private:
  publish::Publisher& publisher_;
  const EarlierRuns& earlier_;
};

}  // namespace octavo::engine

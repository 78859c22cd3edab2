#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "server/engine/earlier_runs.h"
#include "server/model/subscription.h"
#include "server/publish/held_frame_source.h"
#include "server/publish/publisher.h"

namespace octavo::engine {

/// Live frames and events: the engine's part for StreamService.
class Streams {
 public:
  Streams(publish::Publisher* publisher, publish::HeldFrameSource* held, const EarlierRuns* earlier)
      : publisher_(*publisher), held_(*held), earlier_(*earlier) {}

  /// `notify` is called (from any engine thread, must not block or call back into the engine) when
  /// Take or Ended may have news. OutOfRange if from_sequence is no longer kept
  /// (numbers.first_available). NotFound (NO_SCAN, NO_JOB), which says so of one of an earlier
  /// daemon.
  absl::StatusOr<std::shared_ptr<model::Subscription>> Subscribe(const model::SubscribeSpec& spec,
                                                                 std::function<void()> notify);
  /// After such a subscription has ended well: the newest picture of each product that can be cut
  /// from held volumes and that it wanted the latest of, if it has not `shown` that volume or a
  /// later one (Frame::volume_index of the last complete frame). FailedPrecondition if there is
  /// none.
  absl::StatusOr<std::shared_ptr<model::Subscription>> SubscribeToLast(
      const model::SubscribeSpec& spec, const std::map<model::Product, int64_t>& shown,
      std::function<void()> notify);
  /// Counts a stream that the server has cut.
  void CountCut(const std::string& reason) { publisher_.CountCut(reason); }

 private:
  publish::Publisher& publisher_;
  publish::HeldFrameSource& held_;
  const EarlierRuns& earlier_;
};

}  // namespace octavo::engine

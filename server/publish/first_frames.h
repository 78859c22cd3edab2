#pragma once

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "server/model/frame.h"
#include "server/model/status_types.h"
#include "server/model/subscription.h"
#include "server/publish/topic.h"
#include "server/publish/topic_table.h"

namespace octavo::publish {

/// Checks what a subscription says by itself, without its scan. InvalidArgument names the field.
absl::Status CheckSpec(const model::SubscribeSpec& spec);

/// The frames that a new subscription gets at once, of those that a scan has already.
struct FirstFrames {
  std::vector<model::FramePtr> replay;  // delivered before new frames
  // A picture at once, not only at the next volume: pushed like a new frame.
  std::vector<std::pair<TopicKey, model::FramePtr>> at_once;
};

/// Checks the subscription against its scan and finds its first frames. `held`: the volumes that
/// the scan's B-scans can be made of once it has ended. FailedPrecondition (NO_AIP, NO_ANGIOGRAM,
/// STRIPED; NOTHING_KEPT: the scan has ended and nothing would come), OutOfRange (BAD_RANGE,
/// SEQUENCE_GONE).
absl::StatusOr<FirstFrames> FindFirstFrames(const model::SubscribeSpec& spec,
                                            const TopicTable::Scan& scan,
                                            const std::vector<model::VolumeStatus>& held,
                                            const Clock& clock);

/// A scan that ended so long ago that its topics are forgotten, as one of its held volumes shows
/// it.
TopicTable::Scan EndedScanOf(const model::VolumeStatus& held);

}  // namespace octavo::publish

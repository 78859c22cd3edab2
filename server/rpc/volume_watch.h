#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "octavo/v1/volume.pb.h"

#include "server/base/change_watchers.h"
#include "server/model/status_types.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/list/filter.h"
#include "server/rpc/transport/encoded_once.h"
#include "server/rpc/transport/reactor.h"
#include "server/volume/volume_watchers.h"

namespace octavo::rpc {

using EncodedVolumes = EncodedOnce<model::VolumeStatus, v1::Volume>;

/// Merges `news` of a volume into a message that the client has not read yet. The result says what
/// is new to the client, which knows the volume unless `waiting` is the first it hears of it.
/// False: there is nothing to tell, since the volume came and went meanwhile.
inline bool MergeChanges(v1::WatchVolumesResponse& waiting, v1::WatchVolumesResponse news) {
  using Response = v1::WatchVolumesResponse;
  const Response::Kind first = waiting.kind(), then = news.kind();
  const bool known = first != Response::KIND_EXISTS && first != Response::KIND_CREATED;
  const bool leaves = then == Response::KIND_GONE || then == Response::KIND_UNMATCHED;
  if (!known && leaves) return false;
  waiting = std::move(news);
  if (!known) waiting.set_kind(first);
  if (known && !leaves) waiting.set_kind(Response::KIND_CHANGED);
  return true;
}

/// One WatchVolumes stream: makes messages of the changes that its client wants to hear of. A
/// volume is known from the change with which it matches the filter until one with which it does
/// not, or until it has left memory. Of unknown volumes the client hears nothing, unless they match
/// by leaving memory (`state = COMMITTED`). One thread at a time calls it.
class VolumeWatch {
 public:
  using Writer = QueuedWriter<v1::WatchVolumesResponse>;

  /// `encoded`: shared by all watches.
  VolumeWatch(Filter filter, bool skip_existing, std::weak_ptr<Writer> writer,
              std::shared_ptr<EncodedVolumes> encoded)
      : filter_(std::move(filter)),
        skip_existing_(skip_existing),
        writer_(std::move(writer)),
        encoded_(std::move(encoded)) {}

  void Tell(base::ChangeKind kind, const volume::VolumeWatchers::VolumePtr& status) {
    auto writer = writer_.lock();
    if (writer == nullptr) return;
    writer->Feed([&] {
      const std::shared_ptr<const v1::Volume> volume = encoded_->Get(status);
      v1::WatchVolumesResponse message;
      message.set_kind(KindOf(kind, *volume));
      if (message.kind() == v1::WatchVolumesResponse::KIND_UNSPECIFIED) return;
      *message.mutable_volume() = *volume;
      writer->PushLatest(volume->name(), std::move(message), MergeChanges);
    });
  }

 private:
  using Response = v1::WatchVolumesResponse;

  /// Unspecified: nothing to tell.
  Response::Kind KindOf(base::ChangeKind kind, const v1::Volume& volume) {
    const bool matches = filter_.Matches(volume);
    const bool known = known_.count(volume.name()) > 0;
    if (!matches && !known) return Response::KIND_UNSPECIFIED;
    if (kind == base::ChangeKind::kGone) {
      known_.erase(volume.name());
      return Response::KIND_GONE;
    }
    if (!matches) {
      known_.erase(volume.name());
      return Response::KIND_UNMATCHED;
    }
    if (known) return Response::KIND_CHANGED;
    known_.insert(volume.name());
    if (kind != base::ChangeKind::kExists) return Response::KIND_CREATED;
    return skip_existing_ ? Response::KIND_UNSPECIFIED : Response::KIND_EXISTS;
  }

  const Filter filter_;
  const bool skip_existing_;
  const std::weak_ptr<Writer> writer_;
  const std::shared_ptr<EncodedVolumes> encoded_;
  std::set<std::string> known_;
};

}  // namespace octavo::rpc

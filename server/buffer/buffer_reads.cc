#include "server/buffer/buffer_reads.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/buffer/box_walk.h"
#include "server/buffer/buffer_errors.h"
#include "server/buffer/staged_reader.h"
#include "server/buffer/staging.h"

namespace octavo::buffer {

/// What a read is about, and where it is read: one source for each replica.
struct BufferReads::Opening {
  BufferReader::About about;
  std::vector<ReadPlace> sources;
};

absl::StatusOr<std::vector<uint32_t>> BufferReads::ReplicasToRead(
    const BufferEntry& buffer, const model::BufferReadSpec& spec) const {
  const auto& replicas = buffer.replicas;
  if (spec.which == model::BufferReadSpec::Which::kReplica) {
    if (spec.replica >= replicas.size())
      return BadReplica("selector.replica", spec.replica, replicas.size());
    OCTAVO_RETURN_IF_ERROR(
        environment_.table.CheckReadable(buffer, spec.replica, spec.allow_uninitialized));
    return std::vector<uint32_t>{spec.replica};
  }
  // An error that all replicas share comes first: nothing was written, a device is gone. Otherwise
  // the error is that they differ.
  const bool same = std::all_of(replicas.begin(), replicas.end(), [&](const auto& r) {
    return r->version == replicas[0]->version && r->state == replicas[0]->state;
  });
  if (!same && !spec.allow_incoherent) {
    std::string text;
    for (const auto& r : replicas)
      absl::StrAppend(&text, text.empty() ? "" : ", ", r->version, " ", Name(r->state));
    return Precondition(Reason::kIncoherent,
                        absl::StrCat("the replicas of ", spec.name, " differ (versions ", text,
                                     "); name one, use SyncReplicas, or allow_incoherent"));
  }
  absl::Status first;
  std::vector<uint32_t> readable;
  for (size_t i = 0; i < replicas.size(); ++i) {
    absl::Status status = environment_.table.CheckReadable(buffer, i, spec.allow_uninitialized);
    if (status.ok()) {
      readable.push_back(static_cast<uint32_t>(i));
    } else if (first.ok()) {
      first = status;
    }
  }
  if (spec.which == model::BufferReadSpec::Which::kStacked) {
    OCTAVO_RETURN_IF_ERROR(first);
    return readable;
  }
  if (readable.empty()) return first;
  return std::vector<uint32_t>{*std::max_element(
      readable.begin(), readable.end(),
      [&](uint32_t a, uint32_t b) { return replicas[a]->version < replicas[b]->version; })};
}

absl::Status BufferReads::FindVolume(const model::BufferReadSpec& spec, Opening* opening) {
  OCTAVO_ASSIGN_OR_RETURN(volume::VolumeHold pinned,
                          volumes_->Hold(spec.name, volume::HoldKind::kDevice));
  if (spec.which == model::BufferReadSpec::Which::kReplica && spec.replica != 0)
    return BadReplica("selector.replica", spec.replica, 1);
  opening->about = {.type = {.scalar = ScalarOf(pinned.status.dtype),
                             .lanes = 1,
                             .dims = {pinned.status.shape, pinned.status.shape + 3}},
                    .versions = {1},
                    .replicas = {0}};
  opening->sources.push_back({.device = pinned.device,
                              .data = pinned.slot->volume.data(),
                              .replica = nullptr,
                              .keep = pinned.slot});
  if (spec.if_version > 1) return WrongVersion(spec.name, 0, 1, spec.if_version);
  return absl::OkStatus();
}

absl::Status BufferReads::FindBuffer(const model::BufferReadSpec& spec, const model::Caller& caller,
                                     BufferTurn& turn, Opening* opening) {
  {
    MutexLock lock(environment_.table.mutex());
    OCTAVO_RETURN_IF_ERROR(environment_.table.Find(spec.name, caller).status());
  }
  OCTAVO_RETURN_IF_ERROR(turn.Enter(spec.name, session::LeaseMode::kShared, spec.lease_token,
                                    spec.lease_fence, "ReadBuffer"));
  MutexLock lock(environment_.table.mutex());
  OCTAVO_RETURN_IF_ERROR(turn.Stands());
  OCTAVO_ASSIGN_OR_RETURN(const BufferPtr buffer, environment_.table.Find(spec.name, caller));
  opening->about.type = buffer->status.type;
  OCTAVO_ASSIGN_OR_RETURN(opening->about.replicas, ReplicasToRead(*buffer, spec));
  for (const uint32_t i : opening->about.replicas) {
    const auto& replica = buffer->replicas[i];
    if (spec.if_version != 0 && replica->version != spec.if_version)
      return WrongVersion(spec.name, i, replica->version, spec.if_version);
    opening->about.versions.push_back(replica->version);
    opening->sources.push_back({.device = replica->device,
                                .data = replica->memory.data(),
                                .replica = replica,
                                .keep = replica,
                                .version = replica->version,
                                .state = replica->state});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<BufferReader>> BufferReads::Stage(const Opening& opening,
                                                                 const BoxWalk& walk,
                                                                 int64_t bytes) {
  std::vector<std::shared_ptr<void>> slots;  // all of it, before anything is copied
  for (const ReadPlace& source : opening.sources) {
    OCTAVO_ASSIGN_OR_RETURN(std::shared_ptr<void> slot,
                            environment_.frames[static_cast<size_t>(source.device)]->Get(
                                bytes, memory::FramePool::Use::kClient));
    slots.push_back(std::move(slot));
  }
  std::vector<PieceToHost> parts(slots.size());
  {
    MutexLock lock(environment_.table.mutex());
    for (size_t i = 0; i < parts.size(); ++i) {
      OCTAVO_ASSIGN_OR_RETURN(
          parts[i], CopyBoxToHost(environment_.table, environment_.order, opening.sources[i],
                                  walk.shape, walk.element_bytes, walk.box, std::move(slots[i])));
    }
  }
  return std::make_shared<StagedReader>(opening.about, std::move(parts));
}

absl::StatusOr<std::shared_ptr<BufferReader>> BufferReads::Open(const model::BufferReadSpec& spec,
                                                                const model::Caller& caller) {
  const bool volume = absl::StartsWith(spec.name, "volumes/");
  Opening opening;  // before the turn, so that its references end after the turn
  BufferTurn turn(turns_);
  OCTAVO_RETURN_IF_ERROR(volume ? FindVolume(spec, &opening)
                                : FindBuffer(spec, caller, turn, &opening));
  ArrayType& type = opening.about.type;
  OCTAVO_ASSIGN_OR_RETURN(const BoxWalk walk, BoxWalk::Of(spec, opening.sources.size(), &type));
  const int64_t bytes = type.bytes();  // of each source
  if (spec.which == model::BufferReadSpec::Which::kStacked)
    type.dims.insert(type.dims.begin(), static_cast<int64_t>(opening.sources.size()));
  if (type.bytes() <= kStagedWhole && !spec.by_server) return Stage(opening, walk, bytes);
  auto reader = std::make_shared<LongReader>(environment_, std::move(opening.about),
                                             std::move(opening.sources), walk,
                                             volume ? session::LeaseTable::Guard() : turn.Keep());
  if (spec.by_server) return reader;
  MutexLock lock(mutex_);
  long_.remove_if([](const auto& r) { return r.expired(); });
  long_.push_back(reader);
  return reader;
}

std::vector<std::shared_ptr<LongReader>> BufferReads::LongReaders() {
  std::vector<std::shared_ptr<LongReader>> readers;
  MutexLock lock(mutex_);
  for (const auto& weak : long_) {
    if (auto reader = weak.lock()) readers.push_back(std::move(reader));
  }
  return readers;
}

void BufferReads::CutSlow(int64_t now_ns) {
  for (const auto& reader : LongReaders()) reader->CutIfSlow(now_ns);
}

void BufferReads::LetGo(const BufferReplica& replica) {
  for (const auto& reader : LongReaders()) reader->LetGo(replica);
}

}  // namespace octavo::buffer

#include "server/buffer/buffer_writes.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/status.h"
#include "server/buffer/buffer_errors.h"

namespace octavo::buffer {
namespace {

/// Whether range, type and shape of the write are those of an array of `type`.
absl::Status CheckRange(const model::BufferWriteSpec& spec, const ArrayType& type) {
  const auto bytes = static_cast<uint64_t>(type.bytes()),
             element = static_cast<uint64_t>(SizeOf(type.scalar) * type.lanes);
  if (spec.total_bytes == 0) return BadRange("header.total_bytes", "is 0; allowed >= 1");
  if (spec.byte_offset > bytes || spec.total_bytes > bytes - spec.byte_offset) {
    return BadRange("header.total_bytes",
                    absl::StrCat("is ", spec.total_bytes, " from byte ", spec.byte_offset,
                                 "; the buffer has ", bytes, " bytes (", type.Text(), ")"));
  }
  if (spec.byte_offset % element != 0 || spec.total_bytes % element != 0) {
    return BadField(Reason::kMisaligned,
                    spec.byte_offset % element != 0 ? "header.byte_offset" : "header.total_bytes",
                    absl::StrCat("is no multiple of the element's ", element, " bytes"));
  }
  if (spec.has_type && (spec.scalar != type.scalar ||
                        static_cast<int64_t>(spec.lanes == 0 ? 1 : spec.lanes) != type.lanes)) {
    return BadField(Reason::kTypeMismatch, "header.type",
                    absl::StrCat("is ", NameOf(spec.scalar),
                                 spec.lanes > 1 ? absl::StrCat(" x ", spec.lanes) : "",
                                 "; the buffer is ", type.Text()));
  }
  const bool shaped =
      spec.shape.empty() ||
      std::equal(spec.shape.begin(), spec.shape.end(), type.dims.begin(), type.dims.end(),
                 [](uint64_t a, int64_t b) { return a == static_cast<uint64_t>(b); });
  if (!shaped)
    return BadField(
        Reason::kShapeMismatch, "header.shape",
        absl::StrCat("is ", absl::StrJoin(spec.shape, " x "), "; the buffer is ", type.Text()));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<size_t>> BufferWrites::CheckTargets(const model::BufferWriteSpec& spec,
                                                               const BufferEntry& buffer) const {
  OCTAVO_RETURN_IF_ERROR(BufferTable::CheckWritable(buffer, "header.name"));
  const size_t count = buffer.replicas.size();
  if (!spec.all && spec.replica >= count)
    return BadReplica("header.target.replica", spec.replica, count);
  std::vector<size_t> targets;
  for (size_t i = 0; i < count; ++i) {
    if (spec.all || i == spec.replica) targets.push_back(i);
  }
  OCTAVO_RETURN_IF_ERROR(CheckRange(spec, buffer.status.type));
  for (const size_t target : targets) {
    const BufferReplica& replica = *buffer.replicas[target];
    if (!table_.IsHealthy(replica.device))
      OCTAVO_RETURN_IF_ERROR(table_.CheckReadable(buffer, target, true));
    if (replica.state == model::BufferState::kWriting) {
      return WithInfo(
          absl::AbortedError(absl::StrCat(spec.name, " is being written with the same lease")),
          {.reason = Reason::kLeased, .field = "", .numbers = {}});
    }
    OCTAVO_RETURN_IF_ERROR(ReplicaUpdate::CheckVersion(spec, target, replica.version));
  }
  return targets;
}

absl::StatusOr<std::unique_ptr<BufferWriter>> BufferWrites::Open(const model::BufferWriteSpec& spec,
                                                                 const model::Caller& caller) {
  {
    MutexLock lock(table_.mutex());
    OCTAVO_RETURN_IF_ERROR(table_.FindToChange(spec.name, caller).status());
  }
  BufferTurn turn(turns_);
  OCTAVO_RETURN_IF_ERROR(turn.Enter(spec.name, session::LeaseMode::kExclusive, spec.lease_token,
                                    spec.lease_fence, "WriteBuffer"));
  BufferPtr buffer;
  std::vector<size_t> targets;
  // The device of the first target. A replica may move to other memory before the write starts, but
  // never to another device.
  size_t device = 0;
  {
    MutexLock lock(table_.mutex());
    OCTAVO_RETURN_IF_ERROR(turn.Stands());
    OCTAVO_ASSIGN_OR_RETURN(buffer, table_.FindToChange(spec.name, caller));
    OCTAVO_ASSIGN_OR_RETURN(targets, CheckTargets(spec, *buffer));
    device = static_cast<size_t>(buffer->replicas[targets[0]]->device);
  }
  return std::make_unique<BufferWriter>(
      table_, watchers_, WriteStaging(frames_[device], static_cast<int64_t>(spec.total_bytes)),
      ReplicaUpdate(table_, order_, std::move(buffer), std::move(targets), spec),
      spec.has_crc ? std::optional(spec.crc32c) : std::nullopt, turn.Keep());
}

}  // namespace octavo::buffer

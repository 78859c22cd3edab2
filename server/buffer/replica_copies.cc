#include "server/buffer/replica_copies.h"

#include "gpu/base/status.h"

// Enqueued work uses the memory, so each copy keeps it even if a later step failed.
namespace octavo::buffer {

absl::Status ForwardReplica(BufferTable& table, StreamOrdering& order,
                            const std::shared_ptr<BufferReplica>& from,
                            const std::shared_ptr<BufferReplica>& to, int64_t bytes) {
  OCTAVO_ASSIGN_OR_RETURN(const StreamRef stream, order.Begin(to->device));
  OCTAVO_RETURN_IF_ERROR(StreamOrdering::BeforeRead(stream, from->order));
  OCTAVO_RETURN_IF_ERROR(StreamOrdering::BeforeWrite(stream, to->order));
  const absl::Status copied =
      order.device(to->device).CopyAcross(stream, to->memory.data(), from->memory.data(), bytes);
  const absl::Status ended = order.End(to->device, stream, {&from->order}, {&to->order}, {from, to},
                                       table.LostUnlessOk(to));
  OCTAVO_RETURN_IF_ERROR(copied);
  OCTAVO_RETURN_IF_ERROR(ended);
  table.totals().forwarded_bytes += bytes;
  return absl::OkStatus();
}

absl::Status CopyReplica(BufferTable& table, StreamOrdering& order,
                         const std::shared_ptr<BufferReplica>& old,
                         const std::shared_ptr<BufferReplica>& fresh, int64_t bytes) {
  OCTAVO_ASSIGN_OR_RETURN(const StreamRef stream, order.Begin(old->device));
  absl::Status copied = StreamOrdering::BeforeRead(stream, old->order);
  if (copied.ok())
    copied = order.device(old->device)
                 .CopyOnDevice(stream, fresh->memory.data(), old->memory.data(), bytes);
  // If a pending write to the old memory fails, its contents are lost in the new memory, too.
  const absl::Status ended =
      order.End(old->device, stream, {&old->order}, {&fresh->order}, {old, fresh},
                [&table, old, fresh](const absl::Status& status) {
                  MutexLock lock(table.mutex());
                  if (!status.ok() || old->state == model::BufferState::kLost)
                    fresh->state = model::BufferState::kLost;
                });
  OCTAVO_RETURN_IF_ERROR(copied);
  OCTAVO_RETURN_IF_ERROR(ended);
  fresh->version = old->version;
  fresh->state = old->state;
  return absl::OkStatus();
}

absl::StatusOr<PieceToHost> CopyBoxToHost(BufferTable& table, StreamOrdering& order,
                                          const ReadPlace& source, const int64_t shape[3],
                                          int64_t element_bytes, const Box3& box,
                                          std::shared_ptr<void> to) {
  OCTAVO_ASSIGN_OR_RETURN(const StreamRef stream, order.Begin(source.device));
  AccessTracker none;
  AccessTracker& memory = source.replica == nullptr ? none : source.replica->order;
  OCTAVO_RETURN_IF_ERROR(StreamOrdering::BeforeRead(stream, memory));
  const absl::Status copied =
      order.device(source.device)
          .CopyBoxToHost(stream, to.get(), source.data, shape, element_bytes, box);
  const absl::Status ended =
      order.End(source.device, stream, {&memory}, {}, {source.keep}, nullptr);
  if (!ended.ok()) {
    // No event tells when the copy has passed. Another End keeps `to` until then, with or without
    // one.
    (void)order.End(source.device, stream, {}, {}, {std::move(to)}, nullptr);
    return copied.ok() ? ended : copied;
  }
  const int64_t bytes = box.count[0] * box.count[1] * box.count[2] * element_bytes;
  PieceToHost piece(order, source.device, std::move(to), memory.reads_since.back(), bytes);
  OCTAVO_RETURN_IF_ERROR(copied);
  table.totals().read_bytes += bytes;
  return piece;
}

}  // namespace octavo::buffer

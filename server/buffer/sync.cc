// From replica to replica, and waiting for the devices.

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/buffer/buffer_errors.h"
#include "server/buffer/buffer_store.h"

namespace octavo::buffer {

std::function<void(const absl::Status&)> BufferStore::LostUnlessOk(
    std::shared_ptr<BufferReplica> replica) {
  return [this, replica = std::move(replica)](const absl::Status& status) {
    if (status.ok()) return;
    MutexLock lock(mutex_);
    replica->state = model::BufferState::kLost;
  };
}

absl::Status BufferStore::ForwardLocked(const std::shared_ptr<BufferReplica>& from,
                                        const std::shared_ptr<BufferReplica>& to, int64_t bytes) {
  OCTAVO_ASSIGN_OR_RETURN(const StreamRef stream, order_.Begin(to->device));
  OCTAVO_RETURN_IF_ERROR(StreamOrdering::BeforeRead(stream, from->order));
  OCTAVO_RETURN_IF_ERROR(StreamOrdering::BeforeWrite(stream, to->order));
  const absl::Status copied =
      order_.device(to->device).CopyAcross(stream, to->memory.data(), from->memory.data(), bytes);
  // Enqueued work uses the memory, so it is kept even if a later step failed.
  const absl::Status ended =
      order_.End(to->device, stream, {&from->order}, {&to->order}, {from, to}, LostUnlessOk(to));
  OCTAVO_RETURN_IF_ERROR(copied);
  OCTAVO_RETURN_IF_ERROR(ended);
  totals_.forwarded_bytes += bytes;
  return absl::OkStatus();
}

absl::StatusOr<model::BufferStatus> BufferStore::SyncNow(const std::string& name, uint32_t source,
                                                         const std::vector<uint32_t>& targets,
                                                         const std::string& lease_token,
                                                         const model::Caller& caller) {
  {
    MutexLock lock(mutex_);
    OCTAVO_RETURN_IF_ERROR(FindLocked(name, caller).status());
  }
  BufferPtr buffer;
  model::BufferStatus status;
  {
    BufferTurn turn(turn_mutex_, context_.leases);
    OCTAVO_RETURN_IF_ERROR(
        turn.Enter(name, session::LeaseMode::kExclusive, lease_token, 0, "SyncReplicas"));
    MutexLock lock(mutex_);
    OCTAVO_RETURN_IF_ERROR(turn.Stands());
    OCTAVO_ASSIGN_OR_RETURN(buffer, FindLocked(name, caller));
    const size_t count = buffer->replicas.size();
    if (source >= count) return BadReplica("source", source, count);
    std::vector<size_t> to;
    for (const uint32_t target : targets) {
      if (target >= count) return BadReplica("targets", target, count);
      if (target != source) to.push_back(target);
    }
    for (size_t i = 0; targets.empty() && i < count; ++i) {
      if (i != source) to.push_back(i);
    }
    OCTAVO_RETURN_IF_ERROR(CheckReadable(*buffer, source, false));
    // Forwards along the devices: each copies from the previous one.
    std::shared_ptr<BufferReplica> from = buffer->replicas[source];
    const int64_t bytes = buffer->status.type.bytes();
    for (const size_t target : to) {
      const auto& replica = buffer->replicas[target];
      if (!order_.device(replica->device).Health().ok())
        OCTAVO_RETURN_IF_ERROR(CheckReadable(*buffer, target, true));
      if (replica->state == model::BufferState::kWriting)
        return BeingWritten(name);                    // under a lease that ended meanwhile
      replica->state = model::BufferState::kPartial;  // unless all of the following works
      OCTAVO_RETURN_IF_ERROR(ForwardLocked(from, replica, bytes));
      replica->version = from->version;
      replica->state = model::BufferState::kReady;
      from = replica;
    }
    buffer->status.sequence = ++sequence_;
    TouchLocked(*buffer);
    status = StatusLocked(*buffer);
  }
  Tell(model::BufferEventKind::kChanged, status, buffer->key, "");
  return status;
}

absl::Status BufferStore::Wait(const std::string& name, const model::Caller& caller,
                               std::function<void(absl::StatusOr<model::BufferStatus>)> done) {
  std::map<int, std::vector<SharedEvent>> events;
  {
    MutexLock lock(mutex_);
    OCTAVO_ASSIGN_OR_RETURN(const BufferPtr buffer, FindLocked(name, caller));
    for (const auto& replica : buffer->replicas) {
      auto& list = events[replica->device];
      if (replica->order.last_write != nullptr) list.push_back(replica->order.last_write);
      list.insert(list.end(), replica->order.reads_since.begin(), replica->order.reads_since.end());
    }
  }
  // One device after the other; each in its own follower.
  struct Rest {
    std::map<int, std::vector<SharedEvent>> events;
    absl::Status first;
    std::function<void(const std::shared_ptr<Rest>&)> step;
  };
  auto rest = std::make_shared<Rest>();
  rest->events = std::move(events);
  rest->step = [this, name, caller, done = std::move(done)](const std::shared_ptr<Rest>& self) {
    if (self->events.empty()) {
      self->step = nullptr;  // of this very function: `done` is a copy
      if (self->first.ok()) {
        auto status = Get(name, caller);
        return done(std::move(status));
      }
      return done(WithInfo(
          absl::DataLossError(absl::StrCat(name, ": work on it failed: ", self->first.message())),
          {.reason = Reason::kLost, .field = "name", .numbers = {}}));
    }
    auto next = self->events.extract(self->events.begin());
    order_.WhenPassed(next.key(), std::move(next.mapped()), [self](const absl::Status& status) {
      if (self->first.ok()) self->first = status;
      const auto step = self->step;  // it may reset itself
      step(self);
    });
  };
  const auto step = rest->step;
  step(rest);
  return absl::OkStatus();
}

}  // namespace octavo::buffer

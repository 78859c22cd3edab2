#include "server/buffer/buffer_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/base/resource_names.h"
#include "server/buffer/buffer_errors.h"

namespace octavo::buffer {

BufferReplica::~BufferReplica() {
  memory = DeviceBuffer();  // a charge must never end before its bytes are free
  if (ledger != nullptr) ledger->Release(charge);
}

BufferStore::BufferStore(Context context)
    : context_(std::move(context)), order_(context_.devices) {}

BufferStore::~BufferStore() { (void)Drain(); }

// -- calls of clients, counted when they are refused

void BufferStore::CountRefusal(const absl::Status& answer) {
  if (answer.ok()) return;
  MutexLock lock(mutex_);
  ++totals_.refusals[ReasonOrCode(answer)];
}

absl::StatusOr<model::BufferStatus> BufferStore::Create(const model::BufferSpec& spec,
                                                        const model::Caller& caller) {
  return Counted(base::ExceptionToStatus([&] { return CreateNow(spec, caller); }));
}

absl::StatusOr<model::BufferStatus> BufferStore::Change(const Update& update,
                                                        const model::Caller& caller) {
  return Counted(ChangeNow(update, caller));
}

absl::Status BufferStore::Destroy(const std::string& name, const std::string& etag,
                                  const std::string& lease_token, const model::Caller& caller,
                                  bool detach) {
  absl::Status answer = DestroyNow(name, etag, lease_token, caller, detach);
  CountRefusal(answer);
  return answer;
}

absl::StatusOr<model::BufferStatus> BufferStore::Sync(const std::string& name, uint32_t source,
                                                      const std::vector<uint32_t>& targets,
                                                      const std::string& lease_token,
                                                      const model::Caller& caller) {
  return Counted(
      base::ExceptionToStatus([&] { return SyncNow(name, source, targets, lease_token, caller); }));
}

absl::StatusOr<model::BufferStatus> BufferStore::Apply(const model::BufferApplySpec& spec,
                                                       const model::Caller& caller) {
  return Counted(base::ExceptionToStatus([&] { return ApplyNow(spec, caller); }));
}

absl::StatusOr<std::unique_ptr<BufferStore::Writer>> BufferStore::OpenWrite(
    const model::BufferWriteSpec& spec, const model::Caller& caller) {
  return Counted(base::ExceptionToStatus([&] { return OpenWriteNow(spec, caller); }));
}

absl::StatusOr<std::shared_ptr<BufferStore::Reader>> BufferStore::OpenRead(
    const model::BufferReadSpec& spec, const model::Caller& caller) {
  return Counted(base::ExceptionToStatus([&] { return OpenReadNow(spec, caller); }));
}

// -- what there is

absl::StatusOr<BufferStore::BufferPtr> BufferStore::FindLocked(const std::string& name,
                                                               const model::Caller& caller) {
  if (absl::StartsWith(name, "volumes/")) {
    return WithInfo(
        absl::FailedPreconditionError(absl::StrCat(
            name, " is a volume: sealed, it can be read and be the input of operations only")),
        {.reason = Reason::kSealed, .field = "name", .numbers = {}});
  }
  auto it = by_name_.find(name);
  if (it == by_name_.end()) {
    auto gone = tombstones_.find(name);
    return WithInfo(
        absl::NotFoundError(gone == tombstones_.end()
                                ? absl::StrCat("no buffer ", name,
                                               " (one that is gone is remembered for ten minutes)")
                                : absl::StrCat(name, " is gone: ", gone->second)),
        {.reason = Reason::kNoBuffer, .field = "name", .numbers = {}});
  }
  if (it->second->status.is_private && it->second->key != caller.key) {
    return WithInfo(
        absl::PermissionDeniedError(absl::StrCat(
            name, " is private; its owner's calls carry a key in the metadata octavo-owner-key")),
        {.reason = Reason::kNotOwner, .field = "name", .numbers = {}});
  }
  return it->second;
}

void BufferStore::TouchLocked(Buffer& buffer) {
  ++buffer.revision;
  buffer.warned = false;
  buffer.expires_ns = buffer.ttl_seconds == 0 ? 0
                                              : context_.clock->Now().monotonic_ns +
                                                    static_cast<int64_t>(buffer.ttl_seconds * 1e9);
}

bool BufferStore::CoherentLocked(const Buffer& buffer) const {
  return std::all_of(buffer.replicas.begin(), buffer.replicas.end(), [&](const auto& r) {
    return r->version == buffer.replicas[0]->version && r->state == model::BufferState::kReady &&
           order_.device(r->device).Health().ok();
  });
}

uint64_t BufferStore::NewestOf(const Buffer& buffer) {
  uint64_t newest = 0;
  for (const auto& replica : buffer.replicas) newest = std::max(newest, replica->version);
  return newest;
}

model::BufferStatus BufferStore::StatusLocked(const Buffer& buffer) {
  model::BufferStatus status = buffer.status;
  status.state = model::BufferState::kReady;
  // From harmless to grave.
  const auto rank = [](model::BufferState s) {
    return s == model::BufferState::kReady           ? 0
           : s == model::BufferState::kUninitialized ? 1
           : s == model::BufferState::kWriting       ? 2
           : s == model::BufferState::kPartial       ? 3
                                                     : 4;
  };
  for (size_t i = 0; i < buffer.replicas.size(); ++i) {
    const BufferReplica& r = *buffer.replicas[i];
    const Device& device = order_.device(r.device);
    const bool lost = !order_.device(r.device).Health().ok();
    status.replicas.push_back({.index = static_cast<uint32_t>(i),
                               .device = r.device,
                               .device_uuid = device.info().uuid,
                               .version = r.version,
                               .bytes = r.memory.bytes(),
                               .state = lost ? model::BufferState::kLost : r.state});
    status.charged_bytes += r.memory.bytes();
    if (rank(status.replicas.back().state) > rank(status.state))
      status.state = status.replicas.back().state;
  }
  status.coherent = CoherentLocked(buffer);
  const auto leases = context_.leases->CountOf(status.name);
  status.shared_leases = leases.shared;
  status.exclusive_leases = leases.exclusive;
  if (buffer.expires_ns > 0)
    status.expires_seconds = std::max(
        0.0, static_cast<double>(buffer.expires_ns - context_.clock->Now().monotonic_ns) * 1e-9);
  status.revision = buffer.revision;
  status.etag = absl::StrCat(buffer.revision);
  return status;
}

absl::Status BufferStore::CheckReadable(const Buffer& buffer, size_t replica,
                                        bool allow_uninitialized) const {
  const BufferReplica& r = *buffer.replicas[replica];
  const model::BufferState state =
      order_.device(r.device).Health().ok() ? r.state : model::BufferState::kLost;
  const std::string who = absl::StrCat("replica ", replica, " of ", buffer.status.name);
  switch (state) {
    case model::BufferState::kReady: return absl::OkStatus();
    case model::BufferState::kUninitialized:
      if (allow_uninitialized) return absl::OkStatus();
      return Precondition(Reason::kUninitialized, absl::StrCat(who, " was never written"));
    case model::BufferState::kWriting:
      return Precondition(Reason::kPartial, absl::StrCat(who, " is being written"));
    case model::BufferState::kPartial:
      return Precondition(
          Reason::kPartial,
          absl::StrCat(who, " was written in part only; write it whole, or use SyncReplicas"));
    case model::BufferState::kLost: break;
  }
  return WithInfo(
      absl::DataLossError(absl::StrCat(who, " is lost with ", base::DeviceName(r.device))),
      {.reason = Reason::kLost, .field = "name", .numbers = {}});
}

absl::StatusOr<model::BufferStatus> BufferStore::Get(const std::string& name,
                                                     const model::Caller& caller) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(const BufferPtr buffer, FindLocked(name, caller));
  return StatusLocked(*buffer);
}

std::vector<model::BufferStatus> BufferStore::List(const model::Caller& caller) {
  MutexLock lock(mutex_);
  std::vector<model::BufferStatus> list;
  for (const auto& buffer : buffers_) {
    if (!buffer->status.is_private || buffer->key == caller.key)
      list.push_back(StatusLocked(*buffer));
  }
  return list;
}

absl::StatusOr<model::BufferStatus> BufferStore::ChangeNow(const Update& update,
                                                           const model::Caller& caller) {
  OCTAVO_RETURN_IF_ERROR(CheckTtl(update.ttl_seconds));
  BufferPtr buffer;
  model::BufferStatus status;
  {
    MutexLock lock(mutex_);
    OCTAVO_ASSIGN_OR_RETURN(buffer, FindLocked(update.name, caller));
    OCTAVO_RETURN_IF_ERROR(CheckEtag(update.name, update.etag, absl::StrCat(buffer->revision)));
    if (update.set_labels) buffer->status.labels = update.labels;
    if (update.set_ttl) buffer->ttl_seconds = update.ttl_seconds;
    TouchLocked(*buffer);
    status = StatusLocked(*buffer);
  }
  Tell(model::BufferEventKind::kChanged, status, buffer->key, "");
  return status;
}

BufferStore::Totals BufferStore::Count() {
  MutexLock lock(mutex_);
  Totals totals = totals_;
  totals.buffers = static_cast<int64_t>(buffers_.size());
  totals.quota_bytes = context_.quota_bytes;
  std::map<std::string, int64_t> owned;
  for (int d = 0; d < order_.devices(); ++d) totals.replicas_on[d] = totals.bytes_on[d] = 0;
  for (const auto& buffer : buffers_) {
    const int64_t bytes = buffer->status.type.bytes();
    for (const auto& replica : buffer->replicas) {
      ++totals.replicas_on[replica->device];
      totals.bytes_on[replica->device] += bytes;
    }
    totals.bytes += bytes * static_cast<int64_t>(buffer->replicas.size());
    owned[buffer->status.owner] += bytes * static_cast<int64_t>(buffer->replicas.size());
  }
  totals.owners = std::ssize(owned);
  for (const auto& [owner, bytes] : owned)
    totals.largest_owner_bytes = std::max(totals.largest_owner_bytes, bytes);
  return totals;
}

absl::Status BufferStore::Drain() {
  for (int d = 0; d < order_.devices(); ++d) {
    Mutex mutex;
    CondVar cv;
    bool passed = false;
    order_.WhenPassed(d, {}, [&](const absl::Status&) {
      MutexLock lock(mutex);
      passed = true;
      cv.NotifyAll();
    });
    MutexLock lock(mutex);
    while (!passed) cv.Wait(lock);
  }
  return absl::OkStatus();
}

}  // namespace octavo::buffer

// How buffers come to be, and how they go.

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/base/resource_names.h"
#include "server/buffer/buffer_errors.h"
#include "server/buffer/buffer_store.h"

namespace octavo::buffer {
namespace {

constexpr double kLongestTtl = 31536000;

}  // namespace

absl::StatusOr<ArrayType> BufferStore::CheckType(Scalar scalar, uint64_t lanes,
                                                 const std::vector<uint64_t>& shape) const {
  ArrayType type{.scalar = scalar,
                 .lanes = lanes == 0 ? 1 : static_cast<int64_t>(std::min<uint64_t>(lanes, 1 << 20)),
                 .dims = {}};
  if (scalar == Scalar{} || static_cast<int>(scalar) > kMostScalar) {
    return BadField(Reason::kBadType, "type.scalar",
                    absl::StrCat("has the unknown value ", static_cast<int>(scalar),
                                 "; allowed SCALAR_U8 to SCALAR_C128"));
  }
  if (type.lanes > 4)
    return BadField(Reason::kBadType, "type.lanes", absl::StrCat("is ", lanes, "; allowed 1 to 4"));
  if (type.lanes > 1 && IsComplex(scalar)) {
    return BadField(Reason::kBadType, "type.lanes",
                    absl::StrCat("is ", lanes, "; complex elements (", NameOf(scalar), ") have 1"));
  }
  if (shape.empty() || shape.size() > 3)
    return BadField(Reason::kBadShape, "shape",
                    absl::StrCat("has ", shape.size(), " dims; allowed 1 to 3"));
  uint64_t elements = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 0)
      return BadField(Reason::kBadShape, "shape", absl::StrCat("[", d, "] is 0; allowed >= 1"));
    if (shape[d] > static_cast<uint64_t>(context_.most_elements) / elements) {
      return WithInfo(absl::InvalidArgumentError(
                          absl::StrCat("shape: ", absl::StrJoin(shape, " x "), " makes more than ",
                                       context_.most_elements, " elements")),
                      {.reason = Reason::kTooManyElements,
                       .field = "shape",
                       .numbers = {{"allowed", absl::StrCat(context_.most_elements)}}});
    }
    elements *= shape[d];
    type.dims.push_back(static_cast<int64_t>(shape[d]));
  }
  return type;
}

absl::StatusOr<std::vector<int>> BufferStore::CheckDevices(
    const std::vector<uint32_t>& devices) const {
  std::vector<int> out;
  for (const uint32_t device : devices) {
    if (device >= context_.devices.size()) {
      return BadField(
          Reason::kBadPlacement, "placement.devices",
          absl::StrCat("names device ", device, "; there are 0 to ", context_.devices.size() - 1));
    }
    if (std::find(out.begin(), out.end(), static_cast<int>(device)) != out.end()) {
      return BadField(Reason::kBadPlacement, "placement.devices",
                      absl::StrCat("names device ", device, " twice"));
    }
    out.push_back(static_cast<int>(device));
  }
  for (int d = 0; devices.empty() && d < order_.devices(); ++d) out.push_back(d);
  for (const int d : out) {
    if (const absl::Status health = order_.device(d).Health(); !health.ok()) {
      return WithInfo(
          absl::UnavailableError(absl::StrCat(base::DeviceName(d), " is down: ", health.message())),
          {.reason = Reason::kDeviceDown,
           .field = "placement.devices",
           .numbers = {{"device", absl::StrCat(d)}}});
    }
  }
  return out;
}

absl::Status BufferStore::CheckTtl(double seconds) const {
  if (seconds == 0 || (seconds >= 1 && seconds <= kLongestTtl)) return absl::OkStatus();
  return InvalidField("ttl_seconds",
                      absl::StrCat("is ", seconds, "; allowed 0 (never) and 1 to ", kLongestTtl));
}

absl::Status BufferStore::NotDraining() const {
  if (!draining_) return absl::OkStatus();
  return WithInfo(absl::UnavailableError(
                      "the server is draining and takes no new work; try another one or later"),
                  {.reason = Reason::kDraining, .field = "", .numbers = {{"retryable", "true"}}});
}

absl::StatusOr<std::string> BufferStore::BeginRequest(const std::string& id,
                                                      const std::string& digest) {
  MutexLock lock(mutex_);
  return requests_.Begin(id, digest);
}

void BufferStore::EndRequest(const std::string& id, const std::string& name) {
  MutexLock lock(mutex_);
  requests_.End(id, name);
}

absl::Status BufferStore::CheckQuota(const std::string& owner, int64_t bytes) {
  MutexLock lock(mutex_);
  int64_t has = owned_bytes_[owner];
  for (const auto& buffer : buffers_) {
    if (buffer->status.owner == owner)
      has += buffer->status.type.bytes() * static_cast<int64_t>(buffer->replicas.size());
  }
  if (context_.quota_bytes > 0 && has + bytes > context_.quota_bytes) {
    return WithInfo(absl::ResourceExhaustedError(absl::StrCat(
                        "'", owner, "' has buffers of ", has, " bytes; ", bytes,
                        " more pass its quota of ", context_.quota_bytes, "; destroy some")),
                    {.reason = Reason::kQuota,
                     .field = "",
                     .numbers = {{"held", absl::StrCat(has)},
                                 {"wanted", absl::StrCat(bytes)},
                                 {"quota", absl::StrCat(context_.quota_bytes)},
                                 {"retryable", "true"}}});
  }
  owned_bytes_[owner] += bytes;
  return absl::OkStatus();
}

absl::StatusOr<BufferStore::BufferPtr> BufferStore::Make(const ArrayType& type,
                                                         const std::vector<int>& devices,
                                                         const std::string& name,
                                                         const model::Caller& caller, bool ready) {
  const std::string owner = caller.client;
  const int64_t bytes = type.bytes(), all = bytes * static_cast<int64_t>(devices.size());
  OCTAVO_RETURN_IF_ERROR(CheckQuota(owner, all));
  absl::Cleanup made_or_not = [&] {
    MutexLock lock(mutex_);
    const auto owned = owned_bytes_.find(owner);
    if ((owned->second -= all) == 0) owned_bytes_.erase(owned);
  };
  auto buffer = std::make_shared<Buffer>();
  const absl::Status made = [&]() -> absl::Status {
    for (const int d : devices) {
      auto replica = std::make_shared<BufferReplica>();
      model::AdmissionReport report;
      auto charges =
          context_.ledger->Reserve(d, name, "",
                                   {{.what = "buffer",
                                     .bytes = ClientMemory::Bytes(std::max<int64_t>(bytes, 256)),
                                     .count = 1}},
                                   &report);
      if (!charges.ok()) return DoesNotFit(report);
      replica->ledger = context_.ledger;
      replica->charge = charges->front();
      replica->device = d;
      context_.ledger->Move(replica->charge, memory::ChargeKind::kBuffer, name);
      OCTAVO_ASSIGN_OR_RETURN(replica->memory, ClientMemory::Allocate(order_.device(d), bytes));
      buffer->replicas.push_back(std::move(replica));
    }
    // Clears the memory in every case, so that its earlier contents are never visible.
    for (const auto& replica : buffer->replicas) {
      OCTAVO_ASSIGN_OR_RETURN(const StreamRef stream, order_.Begin(replica->device));
      OCTAVO_RETURN_IF_ERROR(
          order_.device(replica->device).Fill(stream, replica->memory.data(), bytes, 0));
      OCTAVO_RETURN_IF_ERROR(
          order_.End(replica->device, stream, {}, {&replica->order}, {replica}, nullptr));
      replica->state = ready ? model::BufferState::kReady : model::BufferState::kUninitialized;
      replica->version = ready ? 1 : 0;
    }
    return absl::OkStatus();
  }();
  std::move(made_or_not).Invoke();
  OCTAVO_RETURN_IF_ERROR(Annotate(made, absl::StrCat("while making a buffer of ", type.Text())));
  buffer->status.name = name;
  buffer->status.type = type;
  buffer->status.owner = owner;
  buffer->status.created = context_.clock->Now();
  return buffer;
}

absl::StatusOr<model::BufferStatus> BufferStore::CreateNow(const model::BufferSpec& spec,
                                                           const model::Caller& caller) {
  OCTAVO_ASSIGN_OR_RETURN(const ArrayType type, CheckType(spec.scalar, spec.lanes, spec.shape));
  OCTAVO_RETURN_IF_ERROR(CheckTtl(spec.ttl_seconds));
  if (spec.is_private && caller.key.empty())
    return InvalidField("private",
                        "is given, but the call carries no key in the metadata octavo-owner-key");
  OCTAVO_ASSIGN_OR_RETURN(const std::string answered,
                          BeginRequest(spec.request_id, spec.request_digest));
  if (!answered.empty()) return Get(answered, caller);
  auto created = base::ExceptionToStatus([&]() -> absl::StatusOr<model::BufferStatus> {
    OCTAVO_RETURN_IF_ERROR(NotDraining());
    OCTAVO_ASSIGN_OR_RETURN(const std::vector<int> devices, CheckDevices(spec.devices));
    OCTAVO_ASSIGN_OR_RETURN(
        const BufferPtr buffer,
        Make(type, devices, absl::StrCat("buffers/", base::NewId(context_.server_id)), caller,
             !spec.uninitialized));
    buffer->status.labels = spec.labels;
    buffer->status.is_private = spec.is_private;
    buffer->key = spec.is_private ? caller.key : "";
    buffer->ttl_seconds = spec.ttl_seconds;
    MutexLock lock(mutex_);
    TouchLocked(*buffer);
    model::BufferStatus status = StatusLocked(*buffer);
    ListLocked(buffer);
    return status;
  });
  EndRequest(spec.request_id, created.ok() ? created->name : "");
  if (created.ok()) Tell(model::BufferEventKind::kCreated, *created, caller.key, "");
  return created;
}

void BufferStore::ListLocked(const BufferPtr& buffer) {
  std::list<BufferPtr> one{buffer};
  by_name_.emplace(buffer->status.name, buffer);
  buffers_.splice(buffers_.end(), one);  // in both lists or in neither
}

absl::StatusOr<std::function<void()>> BufferStore::Remove(
    BufferTurn& turn, const std::string& name, const std::string& reason, const std::string& text,
    const std::function<absl::Status(const Buffer&)>& may) {
  BufferPtr gone;  // dropped without the lock: that frees memory
  model::BufferStatus status;
  {
    MutexLock lock(mutex_);
    auto it = by_name_.find(name);
    if (it == by_name_.end()) return [] {};
    OCTAVO_RETURN_IF_ERROR(may(*it->second));
    gone = it->second;
    status = StatusLocked(*gone);
    by_name_.erase(it);
    buffers_.remove(gone);
    tombstones_[name] = text;  // the housekeeping forgets the oldest
    gone_order_.emplace_back(context_.clock->Now().monotonic_ns, name);
    ++totals_.gone[reason];
  }
  context_.exports->Gone(name);
  turn.Forget(name);
  return [this, status, key = gone->key, text] {
    Tell(model::BufferEventKind::kGone, status, key, text);
  };
}

absl::Status BufferStore::DestroyNow(const std::string& name, const std::string& etag,
                                     const std::string& lease_token, const model::Caller& caller,
                                     bool detach) {
  const auto unchanged = [&](const Buffer& buffer) {
    return CheckEtag(name, etag, absl::StrCat(buffer.revision));
  };
  {
    MutexLock lock(mutex_);
    OCTAVO_ASSIGN_OR_RETURN(const BufferPtr buffer, FindLocked(name, caller));
    OCTAVO_RETURN_IF_ERROR(unchanged(*buffer));
  }
  std::function<void()> tell;
  {
    BufferTurn turn(turn_mutex_, context_.leases);
    OCTAVO_RETURN_IF_ERROR(
        turn.Enter(name, session::LeaseMode::kExclusive, lease_token, 0, "DestroyBuffer"));
    OCTAVO_ASSIGN_OR_RETURN(
        tell, Remove(turn, name, "destroyed", "destroyed by a client",
                     [&](const Buffer& buffer) -> absl::Status {
                       OCTAVO_RETURN_IF_ERROR(unchanged(buffer));
                       OCTAVO_RETURN_IF_ERROR(turn.Stands());
                       for (const auto& replica : buffer.replicas) {
                         if (replica->state == model::BufferState::kWriting)
                           return BeingWritten(name);  // under a lease that ended meanwhile
                       }
                       return detach ? absl::OkStatus() : context_.exports->CheckFree(name);
                     }));
  }
  tell();
  return absl::OkStatus();
}

uint64_t BufferStore::AcquireLease(const session::LeaseRequest& request,
                                   const model::Caller& caller, session::LeaseTable::Done done) {
  session::LeaseTable::Told told;
  uint64_t place = 0;
  {
    MutexLock lock(mutex_);
    if (const absl::Status found = FindLocked(request.resource, caller).status(); found.ok()) {
      place = context_.leases->Acquire(request, std::move(done), &told);
    } else {
      told.emplace_back(std::move(done), found);
    }
  }
  session::LeaseTable::Tell(told);
  return place;
}

}  // namespace octavo::buffer

#include "server/engine/buffer_store.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <pthread.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/engine/buffer_errors.h"
#include "server/engine/names.h"

namespace octavo::engine {
namespace {

constexpr int64_t kTombstoneNs = int64_t{600} * 1'000'000'000;
constexpr double kLongestTtl = 31536000;
constexpr size_t kMostRequests = 10000;

size_t At(int i) { return static_cast<size_t>(i); }

}  // namespace

const char* Name(BufferState state) {
  switch (state) {
    case BufferState::kReady: return "READY";
    case BufferState::kWriting: return "WRITING";
    case BufferState::kPartial: return "PARTIAL";
    case BufferState::kLost: return "LOST";
    case BufferState::kUninitialized: return "UNINITIALIZED";
  }
  return "?";
}

BufferReplica::~BufferReplica() {
  memory = DeviceBuffer();  // a charge must never end before its bytes are free
  if (ledger != nullptr) ledger->Release(charge);
}

BufferStore::BufferStore(Context context)
    : context_(std::move(context)),
      exports_({.devices = context_.devices,
                .ledger = context_.ledger,
                .volumes = context_.volumes,
                .clock = context_.clock,
                .server_id = context_.server_id,
                .draining = context_.draining}),
      feeds_({.exports = &exports_,
              .volumes = context_.volumes,
              .ended = context_.scan_ended,
              .spare = context_.spare_slots,
              .draining = context_.draining,
              .clock = context_.clock}),
      order_(context_.devices),
      housekeeper_([this] {
        pthread_setname_np(pthread_self(), "oct-buffers");
        for (;;) {
          {
            MutexLock lock(mutex_);
            if (!end_) wake_.WaitFor(lock, std::chrono::milliseconds(500));
            if (end_) return;
          }
          Housekeep();
        }
      }) {}

BufferStore::~BufferStore() {
  {
    MutexLock lock(mutex_);
    end_ = true;
    wake_.NotifyAll();
  }
  housekeeper_.join();
  (void)Drain();
}

// -- calls of clients, counted when they are refused

void BufferStore::CountRefusal(const absl::Status& answer) {
  if (answer.ok()) return;
  const std::string reason = InfoOf(answer).reason;
  MutexLock lock(mutex_);
  ++totals_.refusals[reason.empty() ? absl::StatusCodeToString(answer.code()) : reason];
}

absl::StatusOr<BufferStatus> BufferStore::Create(const BufferSpec& spec, const Caller& caller) {
  auto answer = CreateNow(spec, caller);
  CountRefusal(answer.status());
  return answer;
}

absl::StatusOr<BufferStatus> BufferStore::Change(const Update& update, const Caller& caller) {
  auto answer = ChangeNow(update, caller);
  CountRefusal(answer.status());
  return answer;
}

absl::Status BufferStore::Destroy(const std::string& name, const std::string& etag, const std::string& lease_token, const Caller& caller,
                                  bool detach) {
  absl::Status answer = DestroyNow(name, etag, lease_token, caller, detach);
  CountRefusal(answer);
  return answer;
}

absl::StatusOr<BufferStatus> BufferStore::Sync(const std::string& name, uint32_t source, const std::vector<uint32_t>& targets,
                                               const std::string& lease_token, const Caller& caller) {
  auto answer = SyncNow(name, source, targets, lease_token, caller);
  CountRefusal(answer.status());
  return answer;
}

absl::StatusOr<BufferStatus> BufferStore::Apply(const BufferApplySpec& spec, const Caller& caller) {
  auto answer = ApplyNow(spec, caller);
  CountRefusal(answer.status());
  return answer;
}

absl::StatusOr<std::unique_ptr<BufferStore::Writer>> BufferStore::OpenWrite(const BufferWriteSpec& spec, const Caller& caller) {
  auto answer = OpenWriteNow(spec, caller);
  CountRefusal(answer.status());
  return answer;
}

absl::StatusOr<std::shared_ptr<BufferStore::Reader>> BufferStore::OpenRead(const BufferReadSpec& spec, const Caller& caller) {
  auto answer = OpenReadNow(spec, caller);
  CountRefusal(answer.status());
  return answer;
}

// -- what is asked

absl::StatusOr<ArrayType> BufferStore::CheckType(Scalar scalar, uint64_t lanes, const std::vector<uint64_t>& shape) const {
  ArrayType type{.scalar = scalar, .lanes = lanes == 0 ? 1 : static_cast<int64_t>(std::min<uint64_t>(lanes, 1 << 20)), .dims = {}};
  if (scalar == Scalar{} || static_cast<int>(scalar) > kMostScalar) {
    return BadField("BAD_TYPE", "type.scalar",
                    absl::StrCat("has the unknown value ", static_cast<int>(scalar), "; allowed SCALAR_U8 to SCALAR_C128"));
  }
  if (type.lanes > 4) return BadField("BAD_TYPE", "type.lanes", absl::StrCat("is ", lanes, "; allowed 1 to 4"));
  if (type.lanes > 1 && IsComplex(scalar)) {
    return BadField("BAD_TYPE", "type.lanes", absl::StrCat("is ", lanes, "; complex elements (", NameOf(scalar), ") have 1"));
  }
  if (shape.empty() || shape.size() > 3) return BadField("BAD_SHAPE", "shape", absl::StrCat("has ", shape.size(), " dims; allowed 1 to 3"));
  uint64_t elements = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 0) return BadField("BAD_SHAPE", "shape", absl::StrCat("[", d, "] is 0; allowed >= 1"));
    if (shape[d] > static_cast<uint64_t>(context_.most_elements) / elements) {
      return WithInfo(
          absl::InvalidArgumentError(absl::StrCat("shape: ", absl::StrJoin(shape, " x "), " makes more than ", context_.most_elements, " elements")),
          {.reason = "TOO_MANY_ELEMENTS", .field = "shape", .numbers = {{"allowed", absl::StrCat(context_.most_elements)}}});
    }
    elements *= shape[d];
    type.dims.push_back(static_cast<int64_t>(shape[d]));
  }
  return type;
}

absl::StatusOr<std::vector<int>> BufferStore::CheckDevices(const std::vector<uint32_t>& devices) const {
  std::vector<int> out;
  for (const uint32_t device : devices) {
    if (device >= context_.devices.size()) {
      return BadField("BAD_PLACEMENT", "placement.devices", absl::StrCat("names device ", device, "; there are 0 to ", context_.devices.size() - 1));
    }
    if (std::find(out.begin(), out.end(), static_cast<int>(device)) != out.end()) {
      return BadField("BAD_PLACEMENT", "placement.devices", absl::StrCat("names device ", device, " twice"));
    }
    out.push_back(static_cast<int>(device));
  }
  for (int d = 0; devices.empty() && d < order_.devices(); ++d) out.push_back(d);
  for (const int d : out) {
    if (const absl::Status health = context_.devices[At(d)]->Health(); !health.ok()) {
      return WithInfo(absl::UnavailableError(absl::StrCat(DeviceName(d), " is down: ", health.message())),
                      {.reason = "DEVICE_DOWN", .field = "placement.devices", .numbers = {{"device", absl::StrCat(d)}}});
    }
  }
  return out;
}

absl::Status BufferStore::CheckTtl(double seconds) const {
  if (seconds == 0 || (seconds >= 1 && seconds <= kLongestTtl)) return absl::OkStatus();
  return InvalidField("ttl_seconds", absl::StrCat("is ", seconds, "; allowed 0 (never) and 1 to ", kLongestTtl));
}

absl::Status BufferStore::NotDraining() const {
  if (!context_.draining || !context_.draining()) return absl::OkStatus();
  return WithInfo(absl::UnavailableError("the server is draining and takes no new work; try another one or later"),
                  {.reason = "DRAINING", .field = "", .numbers = {{"retryable", "true"}}});
}

absl::StatusOr<std::string> BufferStore::BeginRequest(const std::string& id, const std::string& digest) {
  if (id.empty()) return std::string();
  MutexLock lock(mutex_);
  auto it = requests_.find(id);
  if (it == requests_.end()) {
    requests_[id] = {digest, ""};
    request_order_.push_back(id);
    for (; request_order_.size() > kMostRequests; request_order_.pop_front()) requests_.erase(request_order_.front());
    return std::string();
  }
  if (it->second.first != digest) {
    return WithInfo(absl::AlreadyExistsError(absl::StrCat("request_id '", id, "' was used with another body")),
                    {.reason = "IDEMPOTENCY_MISMATCH", .field = "request_id", .numbers = {}});
  }
  if (it->second.second.empty()) {
    return WithInfo(absl::UnavailableError(absl::StrCat("request_id '", id, "' is still at work; ask again")),
                    {.reason = "IN_PROGRESS", .field = "request_id", .numbers = {{"retryable", "true"}}});
  }
  return it->second.second;
}

void BufferStore::EndRequest(const std::string& id, const std::string& name) {
  if (id.empty()) return;
  MutexLock lock(mutex_);
  if (name.empty()) {
    requests_.erase(id);
    std::erase(request_order_, id);
  } else if (auto it = requests_.find(id); it != requests_.end()) {
    it->second.second = name;
  }
}

absl::Status BufferStore::CheckQuota(const std::string& owner, int64_t bytes) {
  MutexLock lock(mutex_);
  int64_t has = owned_bytes_[owner];
  for (const auto& buffer : buffers_) {
    if (buffer->status.owner == owner) has += buffer->status.type.bytes() * static_cast<int64_t>(buffer->replicas.size());
  }
  if (context_.quota_bytes > 0 && has + bytes > context_.quota_bytes) {
    return WithInfo(
        absl::ResourceExhaustedError(absl::StrCat("'", owner, "' has buffers of ", has, " bytes; ", bytes, " more pass its quota of ",
                                                  context_.quota_bytes, "; destroy some")),
        {.reason = "QUOTA",
         .field = "",
         .numbers = {
             {"held", absl::StrCat(has)}, {"wanted", absl::StrCat(bytes)}, {"quota", absl::StrCat(context_.quota_bytes)}, {"retryable", "true"}}});
  }
  owned_bytes_[owner] += bytes;
  return absl::OkStatus();
}

// -- buffers

absl::StatusOr<BufferStore::BufferPtr> BufferStore::Make(const ArrayType& type, const std::vector<int>& devices, const std::string& name,
                                                         const Caller& caller, bool ready) {
  const std::string owner = caller.client;
  const int64_t bytes = type.bytes(), all = bytes * static_cast<int64_t>(devices.size());
  OCTAVO_RETURN_IF_ERROR(CheckQuota(owner, all));
  auto buffer = std::make_shared<Buffer>();
  const absl::Status made = [&]() -> absl::Status {
    for (const int d : devices) {
      auto replica = std::make_shared<BufferReplica>();
      AdmissionReport report;
      auto charges = context_.ledger->Reserve(d, name, "",
                                              {{.what = "buffer", .bytes = ClientMemory::Bytes(std::max<int64_t>(bytes, 256)), .count = 1}}, &report);
      if (!charges.ok()) return DoesNotFit(report);
      replica->ledger = context_.ledger;
      replica->charge = charges->front();
      replica->device = d;
      context_.ledger->Move(replica->charge, ChargeKind::kBuffer, name);
      OCTAVO_ASSIGN_OR_RETURN(replica->memory, ClientMemory::Allocate(*context_.devices[At(d)], bytes));
      buffer->replicas.push_back(std::move(replica));
    }
    // What was in the memory before is never seen, whatever is asked for.
    for (const auto& replica : buffer->replicas) {
      OCTAVO_ASSIGN_OR_RETURN(const StreamRef stream, order_.Begin(replica->device));
      OCTAVO_RETURN_IF_ERROR(context_.devices[At(replica->device)]->Fill(stream, replica->memory.data(), bytes, 0));
      OCTAVO_RETURN_IF_ERROR(order_.End(replica->device, stream, {}, {&replica->order}, {replica}, nullptr));
      replica->state = ready ? BufferState::kReady : BufferState::kUninitialized;
      replica->version = ready ? 1 : 0;
    }
    return absl::OkStatus();
  }();
  {
    MutexLock lock(mutex_);
    if ((owned_bytes_[owner] -= all) == 0) owned_bytes_.erase(owner);
  }
  OCTAVO_RETURN_IF_ERROR(Annotate(made, absl::StrCat("while making a buffer of ", type.Text())));
  buffer->status.name = name;
  buffer->status.type = type;
  buffer->status.owner = owner;
  buffer->status.created = context_.clock->Now();
  return buffer;
}

absl::StatusOr<BufferStatus> BufferStore::CreateNow(const BufferSpec& spec, const Caller& caller) {
  OCTAVO_ASSIGN_OR_RETURN(const ArrayType type, CheckType(spec.scalar, spec.lanes, spec.shape));
  OCTAVO_RETURN_IF_ERROR(CheckTtl(spec.ttl_seconds));
  if (spec.is_private && caller.key.empty()) return InvalidField("private", "is given, but the call carries no key in the metadata octavo-owner-key");
  OCTAVO_ASSIGN_OR_RETURN(const std::string answered, BeginRequest(spec.request_id, spec.request_digest));
  if (!answered.empty()) return Get(answered, caller);
  auto created = [&]() -> absl::StatusOr<BufferStatus> {
    OCTAVO_RETURN_IF_ERROR(NotDraining());
    OCTAVO_ASSIGN_OR_RETURN(const std::vector<int> devices, CheckDevices(spec.devices));
    OCTAVO_ASSIGN_OR_RETURN(const BufferPtr buffer,
                            Make(type, devices, absl::StrCat("buffers/", NewId(context_.server_id)), caller, !spec.uninitialized));
    buffer->status.labels = spec.labels;
    buffer->status.is_private = spec.is_private;
    buffer->key = spec.is_private ? caller.key : "";
    buffer->ttl_seconds = spec.ttl_seconds;
    MutexLock lock(mutex_);
    buffers_.push_back(buffer);
    by_name_[buffer->status.name] = buffer;
    TouchLocked(*buffer);
    return StatusLocked(*buffer);
  }();
  EndRequest(spec.request_id, created.ok() ? created->name : "");
  if (created.ok()) Tell(BufferEventKind::kCreated, *created, "");
  return created;
}

absl::StatusOr<BufferStore::BufferPtr> BufferStore::FindLocked(const std::string& name, const Caller& caller) {
  if (absl::StartsWith(name, "volumes/")) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(name, " is a volume: sealed, it can be read and be the input of operations only")),
                    {.reason = "SEALED", .field = "name", .numbers = {}});
  }
  auto it = by_name_.find(name);
  if (it == by_name_.end()) {
    auto gone = tombstones_.find(name);
    return WithInfo(
        absl::NotFoundError(gone == tombstones_.end() ? absl::StrCat("no buffer ", name, " (one that is gone is remembered for ten minutes)")
                                                      : absl::StrCat(name, " is gone: ", gone->second.text)),
        {.reason = "NO_BUFFER", .field = "name", .numbers = {}});
  }
  if (it->second->status.is_private && it->second->key != caller.key) {
    return WithInfo(absl::PermissionDeniedError(absl::StrCat(name, " is private; its owner's calls carry a key in the metadata octavo-owner-key")),
                    {.reason = "NOT_OWNER", .field = "name", .numbers = {}});
  }
  return it->second;
}

void BufferStore::TouchLocked(Buffer& buffer) {
  ++buffer.revision;
  buffer.warned = false;
  buffer.expires_ns = buffer.ttl_seconds == 0 ? 0 : context_.clock->Now().monotonic_ns + static_cast<int64_t>(buffer.ttl_seconds * 1e9);
}

bool BufferStore::CoherentLocked(const Buffer& buffer) const {
  return std::all_of(buffer.replicas.begin(), buffer.replicas.end(), [&](const auto& r) {
    return r->version == buffer.replicas[0]->version && r->state == BufferState::kReady && context_.devices[At(r->device)]->Health().ok();
  });
}

uint64_t BufferStore::NewestOf(const Buffer& buffer) {
  uint64_t newest = 0;
  for (const auto& replica : buffer.replicas) newest = std::max(newest, replica->version);
  return newest;
}

BufferStatus BufferStore::StatusLocked(const Buffer& buffer) {
  BufferStatus status = buffer.status;
  status.state = BufferState::kReady;
  // From harmless to grave.
  const auto rank = [](BufferState s) {
    return s == BufferState::kReady ? 0 : s == BufferState::kUninitialized ? 1 : s == BufferState::kWriting ? 2 : s == BufferState::kPartial ? 3 : 4;
  };
  for (size_t i = 0; i < buffer.replicas.size(); ++i) {
    const BufferReplica& r = *buffer.replicas[i];
    const Device& device = *context_.devices[At(r.device)];
    const bool lost = !context_.devices[At(r.device)]->Health().ok();
    status.replicas.push_back({.index = static_cast<uint32_t>(i),
                               .device = r.device,
                               .device_uuid = device.info().uuid,
                               .version = r.version,
                               .bytes = r.memory.bytes(),
                               .state = lost ? BufferState::kLost : r.state});
    status.charged_bytes += r.memory.bytes();
    if (rank(status.replicas.back().state) > rank(status.state)) status.state = status.replicas.back().state;
  }
  status.coherent = CoherentLocked(buffer);
  const auto leases = context_.leases->CountOf(status.name);
  status.shared_leases = leases.shared;
  status.exclusive_leases = leases.exclusive;
  if (buffer.expires_ns > 0)
    status.expires_seconds = std::max(0.0, static_cast<double>(buffer.expires_ns - context_.clock->Now().monotonic_ns) * 1e-9);
  status.etag = absl::StrCat(buffer.revision);
  return status;
}

absl::Status BufferStore::CheckReadable(const Buffer& buffer, size_t replica, bool allow_uninitialized) const {
  const BufferReplica& r = *buffer.replicas[replica];
  const BufferState state = context_.devices[At(r.device)]->Health().ok() ? r.state : BufferState::kLost;
  const std::string who = absl::StrCat("replica ", replica, " of ", buffer.status.name);
  switch (state) {
    case BufferState::kReady: return absl::OkStatus();
    case BufferState::kUninitialized:
      if (allow_uninitialized) return absl::OkStatus();
      return Precondition("UNINITIALIZED", absl::StrCat(who, " was never written"));
    case BufferState::kWriting: return Precondition("PARTIAL", absl::StrCat(who, " is being written"));
    case BufferState::kPartial: return Precondition("PARTIAL", absl::StrCat(who, " was written in part only; write it whole, or use SyncReplicas"));
    case BufferState::kLost: break;
  }
  return WithInfo(absl::DataLossError(absl::StrCat(who, " is lost with ", DeviceName(r.device))), {.reason = "LOST", .field = "name", .numbers = {}});
}

absl::StatusOr<BufferStatus> BufferStore::Get(const std::string& name, const Caller& caller) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(const BufferPtr buffer, FindLocked(name, caller));
  return StatusLocked(*buffer);
}

std::vector<BufferStatus> BufferStore::List(const Caller& caller) {
  MutexLock lock(mutex_);
  std::vector<BufferStatus> list;
  for (const auto& buffer : buffers_) {
    if (!buffer->status.is_private || buffer->key == caller.key) list.push_back(StatusLocked(*buffer));
  }
  return list;
}

absl::StatusOr<BufferStatus> BufferStore::ChangeNow(const Update& update, const Caller& caller) {
  OCTAVO_RETURN_IF_ERROR(CheckTtl(update.ttl_seconds));
  BufferStatus status;
  {
    MutexLock lock(mutex_);
    OCTAVO_ASSIGN_OR_RETURN(const BufferPtr buffer, FindLocked(update.name, caller));
    OCTAVO_RETURN_IF_ERROR(CheckEtag(update.name, update.etag, absl::StrCat(buffer->revision)));
    if (update.set_labels) buffer->status.labels = update.labels;
    if (update.set_ttl) buffer->ttl_seconds = update.ttl_seconds;
    TouchLocked(*buffer);
    status = StatusLocked(*buffer);
  }
  Tell(BufferEventKind::kChanged, status, "");
  return status;
}

void BufferStore::Remove(const std::string& name, const std::string& reason, const std::string& text) {
  BufferPtr gone;  // dropped without the lock: that frees memory
  BufferStatus status;
  {
    MutexLock lock(mutex_);
    auto it = by_name_.find(name);
    if (it == by_name_.end()) return;
    gone = it->second;
    status = StatusLocked(*gone);
    by_name_.erase(it);
    buffers_.remove(gone);
    tombstones_[name] = {.text = text, .gone_ns = context_.clock->Now().monotonic_ns};
    ++totals_.gone[reason];
  }
  exports_.Gone(name);
  context_.leases->Forget(name);
  Tell(BufferEventKind::kGone, status, text);
}

absl::Status BufferStore::DestroyNow(const std::string& name, const std::string& etag, const std::string& lease_token, const Caller& caller,
                                     bool detach) {
  {
    MutexLock lock(mutex_);
    OCTAVO_ASSIGN_OR_RETURN(const BufferPtr buffer, FindLocked(name, caller));
    OCTAVO_RETURN_IF_ERROR(CheckEtag(name, etag, absl::StrCat(buffer->revision)));
  }
  MutexLock turn(turn_mutex_);
  OCTAVO_ASSIGN_OR_RETURN(const auto guard, context_.leases->Enter(name, LeaseMode::kExclusive, lease_token, 0, "DestroyBuffer"));
  if (!detach) OCTAVO_RETURN_IF_ERROR(exports_.CheckFree(name));
  Remove(name, "destroyed", "destroyed by a client");
  return absl::OkStatus();
}

absl::StatusOr<BufferStatus> BufferStore::SyncNow(const std::string& name, uint32_t source, const std::vector<uint32_t>& targets,
                                                  const std::string& lease_token, const Caller& caller) {
  {
    MutexLock lock(mutex_);
    OCTAVO_RETURN_IF_ERROR(FindLocked(name, caller).status());
  }
  MutexLock turn(turn_mutex_);
  OCTAVO_ASSIGN_OR_RETURN(const auto guard, context_.leases->Enter(name, LeaseMode::kExclusive, lease_token, 0, "SyncReplicas"));
  BufferStatus status;
  {
    MutexLock lock(mutex_);
    OCTAVO_ASSIGN_OR_RETURN(const BufferPtr buffer, FindLocked(name, caller));
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
    // Along the devices: each copies from the one before.
    std::shared_ptr<BufferReplica> from = buffer->replicas[source];
    const int64_t bytes = buffer->status.type.bytes();
    for (const size_t target : to) {
      const auto& replica = buffer->replicas[target];
      if (!context_.devices[At(replica->device)]->Health().ok()) OCTAVO_RETURN_IF_ERROR(CheckReadable(*buffer, target, true));
      OCTAVO_ASSIGN_OR_RETURN(const StreamRef stream, order_.Begin(replica->device));
      OCTAVO_RETURN_IF_ERROR(DeviceOrder::BeforeRead(stream, from->order));
      OCTAVO_RETURN_IF_ERROR(DeviceOrder::BeforeWrite(stream, replica->order));
      replica->state = BufferState::kPartial;  // unless all of the following works
      OCTAVO_RETURN_IF_ERROR(order_.device(replica->device).CopyAcross(stream, replica->memory.data(), from->memory.data(), bytes));
      OCTAVO_RETURN_IF_ERROR(
          order_.End(replica->device, stream, {&from->order}, {&replica->order}, {from, replica}, [this, replica](const absl::Status& s) {
            if (s.ok()) return;
            MutexLock lost(mutex_);
            replica->state = BufferState::kLost;
          }));
      replica->version = from->version;
      replica->state = BufferState::kReady;
      totals_.forwarded_bytes += bytes;
      from = replica;
    }
    buffer->status.sequence = ++sequence_;
    TouchLocked(*buffer);
    status = StatusLocked(*buffer);
  }
  Tell(BufferEventKind::kChanged, status, "");
  return status;
}

absl::Status BufferStore::Wait(const std::string& name, const Caller& caller, std::function<void(absl::StatusOr<BufferStatus>)> done) {
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
      return done(WithInfo(absl::DataLossError(absl::StrCat(name, ": work on it failed: ", self->first.message())),
                           {.reason = "LOST", .field = "name", .numbers = {}}));
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

// -- watching, housekeeping

std::shared_ptr<void> BufferStore::Watch(const Caller& caller, Told told) {
  auto watcher = std::make_shared<Watcher>(Watcher{caller, std::move(told)});
  std::vector<BufferStatus> now;
  {
    MutexLock lock(mutex_);
    for (const auto& buffer : buffers_) {
      if (!buffer->status.is_private || buffer->key == caller.key) now.push_back(StatusLocked(*buffer));
    }
    watchers_.push_back(watcher);
  }
  for (const auto& status : now) watcher->told(BufferEventKind::kExists, status, "");
  return watcher;
}

void BufferStore::Tell(BufferEventKind kind, const BufferStatus& status, const std::string& text) {
  std::vector<std::shared_ptr<Watcher>> watchers;
  {
    MutexLock lock(mutex_);
    std::string key;
    if (auto it = by_name_.find(status.name); it != by_name_.end()) key = it->second->key;
    for (auto it = watchers_.begin(); it != watchers_.end();) {
      if (auto watcher = it->lock()) {
        if (!status.is_private || (kind != BufferEventKind::kGone && watcher->caller.key == key)) watchers.push_back(std::move(watcher));
        ++it;
      } else {
        it = watchers_.erase(it);
      }
    }
  }
  for (const auto& watcher : watchers) watcher->told(kind, status, text);
}

void BufferStore::Housekeep() {
  const int64_t now = context_.clock->Now().monotonic_ns;
  std::vector<std::string> overdue;
  std::vector<BufferStatus> warnings;
  std::vector<std::shared_ptr<Reader>> readers;
  {
    MutexLock lock(mutex_);
    for (const auto& weak : readers_) {
      if (auto reader = weak.lock()) readers.push_back(std::move(reader));
    }
    for (const auto& buffer : buffers_) {
      if (buffer->expires_ns == 0) continue;
      const auto left = static_cast<double>(buffer->expires_ns - now) * 1e-9;
      if (left <= 0) {
        overdue.push_back(buffer->status.name);
      } else if (!buffer->warned && left <= std::min(60.0, buffer->ttl_seconds / 2)) {
        buffer->warned = true;
        warnings.push_back(StatusLocked(*buffer));
      }
    }
    std::erase_if(tombstones_, [&](const auto& t) { return now - t.second.gone_ns > kTombstoneNs; });
  }
  for (const auto& reader : readers) reader->CutIfSlow(now);
  for (const auto& status : warnings) Tell(BufferEventKind::kExpiring, status, "its time to live ends");
  for (const auto& name : overdue) {
    // Whoever is at it now keeps it a little longer.
    MutexLock turn(turn_mutex_);
    auto guard = context_.leases->Enter(name, LeaseMode::kExclusive, "", 0, "expiry");
    if (guard.ok()) Remove(name, "expired", "its time to live was over");
  }
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
  for (const auto& [owner, bytes] : owned) totals.largest_owner_bytes = std::max(totals.largest_owner_bytes, bytes);
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

}  // namespace octavo::engine

#include "server/exports/export_store.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "gpu/device/scalar.h"
#include "server/base/resource_names.h"
#include "server/security/rights.h"
#include "server/security/shares.h"

namespace octavo::exports {
namespace {

namespace wire = handoff::v1;

constexpr size_t kMostUses = 4096;

absl::Status Refusal(absl::StatusCode code, Reason reason, const std::string& what,
                     std::vector<std::pair<std::string, std::string>> numbers = {}) {
  return WithInfo(absl::Status(code, what),
                  {.reason = reason, .field = "name", .numbers = std::move(numbers)});
}

// The wire's types have the numbers of ours (a test compares their names).
wire::Dtype DtypeOf(Scalar scalar) { return static_cast<wire::Dtype>(scalar); }

std::string Hex(uint64_t number) { return absl::StrCat(absl::Hex(number, absl::kZeroPad16)); }

handoff::Holder HolderOf(const security::Owner& owner) {
  return {.payer = security::ShareOf(owner), .principal = owner.name, .project = owner.project};
}

}  // namespace

/// One client's exports on one connection: the object of its ticket and the objects that it takes
/// later.
class ExportStore::Port final : public handoff::Grant {
 public:
  Port(ExportStore* store, std::string first, ExportPeer peer)
      : store_(store), names_{std::move(first)}, peer_(std::move(peer)) {}

  wire::Purpose purpose() const override { return wire::PURPOSE_MEMORY; }
  absl::StatusOr<handoff::Answer> Open(const handoff::Peer& peer, const wire::Present& request,
                                       std::shared_ptr<handoff::Link> link) override {
    who_ = peer;
    peer_.uid = peer.uid;
    link_ = std::move(link);
    return store_->Open(names_.front(), peer, {request.have().begin(), request.have().end()},
                        link_);
  }
  absl::StatusOr<handoff::Answer> Message(const wire::ClientMessage& request) override {
    if (request.has_take()) {
      const wire::Take& take = request.take();
      std::string name;
      auto answer = store_->Take(take.volume(), peer_, who_,
                                 {take.have().begin(), take.have().end()}, link_, &name);
      if (answer.ok()) names_.push_back(std::move(name));
      return answer;
    }
    if (request.has_release()) {
      const std::string& name = request.release().name();
      const auto it = std::find(names_.begin(), names_.end(), name);
      if (it == names_.end())
        return Refusal(absl::StatusCode::kNotFound, Reason::kNoExport,
                       absl::StrCat(name, " is no export of this connection (any more)"));
      names_.erase(it);
      (void)store_->End(name);
      handoff::Answer answer;
      answer.message.mutable_released()->set_name(name);
      return answer;
    }
    return handoff::Refusal(absl::StatusCode::kInvalidArgument, Reason::kProtocol,
                            "a grant of memory takes Take, Release and End");
  }
  void Ended(handoff::GrantEnd) override {
    link_ = nullptr;
    for (const auto& name : std::exchange(names_, {})) (void)store_->End(name);
  }

 private:
  ExportStore* const store_;
  std::vector<std::string> names_;
  ExportPeer peer_;
  handoff::Peer who_;
  std::shared_ptr<handoff::Link> link_;
};

void ExportStore::Start(handoff::FdSocket* socket, double grace_seconds) {
  grace_seconds_ = grace_seconds;
  socket_ = socket;
}

absl::Status ExportStore::Refuse(absl::Status status) {
  MutexLock lock(mutex_);
  ++counts_.refused[std::string(Name(ReasonOrCode(status)))];
  return status;
}

absl::Status ExportStore::AdmitLocked(const ExportPeer& peer) {
  if (socket_ == nullptr) {
    return Refusal(absl::StatusCode::kFailedPrecondition, Reason::kExportDisabled,
                   "this server hands no memory over (handoff.unix is \"none\")");
  }
  if (!peer.local) {
    return Refusal(
        absl::StatusCode::kPermissionDenied, Reason::kExportRemote,
        "memory is handed over on the same host only: call by the Unix socket or loopback");
  }
  if (draining_) {
    return Refusal(absl::StatusCode::kUnavailable, Reason::kDraining,
                   "the server is draining and takes no new work; try another one or later");
  }
  for (const auto& [number, entry] : entries_) {
    if (peer.uid.has_value() && entry.status.uid == peer.uid && IsOverdue(entry)) {
      return Refusal(absl::StatusCode::kPermissionDenied, Reason::kExportRefused,
                     absl::StrCat("user ", *peer.uid, " was asked to give ", entry.status.name,
                                  " back and has not"),
                     {{"export", entry.status.name}, {"pid", absl::StrCat(entry.status.pid)}});
    }
  }
  return absl::OkStatus();
}

absl::Status ExportStore::Admit(const ExportPeer& peer) {
  absl::Status status;
  {
    MutexLock lock(mutex_);
    status = AdmitLocked(peer);
  }
  return status.ok() ? status : Refuse(status);
}

absl::Status ExportStore::Describe(const DeviceBuffer& memory, ExportedMemory* out) {
  Device& device = *context_.devices[static_cast<size_t>(out->device)];
  out->device_uuid = device.info().uuid;
  out->backend = device.info().backend;
  ExportableMemory* shareable = ExportableOf(device);
  const auto shared = shareable == nullptr
                          ? absl::StatusOr<SharedMemory>(absl::NotFoundError("the device has none"))
                          : shareable->Share(memory);
  if (!shared.ok()) {
    return Refusal(absl::StatusCode::kFailedPrecondition, Reason::kExportNotShareable,
                   absl::StrCat("the memory of ", out->name, " on ",
                                context_.ledger->names().Name(out->device),
                                " cannot be handed over: ", shared.status().message()));
  }
  out->memory = *shared;
  return absl::OkStatus();
}

absl::StatusOr<ExportedMemory> ExportStore::OfVolume(const std::string& name, uint32_t replica,
                                                     bool borrowed) {
  auto pinned = context_.volumes->Hold(name, volume::HoldKind::kMemory);
  if (!pinned.ok()) {
    if (InfoOf(pinned.status()).reason != Reason::kVolumeState) return pinned.status();
    return Refuse(Refusal(absl::StatusCode::kFailedPrecondition, Reason::kExportNotSealed,
                          std::string(pinned.status().message())));
  }
  if (pinned->slot == nullptr) {
    return Refuse(Refusal(absl::StatusCode::kFailedPrecondition, Reason::kExportSpilled,
                          absl::StrCat(name, " was spilled (tier ", Name(pinned->status.tier),
                                       "); restore it to its device first"),
                          {{"tier", Name(pinned->status.tier)}}));
  }
  if (replica != 0) {
    return WithInfo(
        absl::OutOfRangeError(absl::StrCat("replica: is ", replica, "; a volume has replica 0")),
        {.reason = Reason::kBadReplica, .field = "replica", .numbers = {{"replicas", "1"}}});
  }
  // An early check before anything is made for the client; WhileMappable decides.
  if (const absl::Status may =
          context_.volumes->WhileMappable(*pinned, borrowed, [] { return absl::OkStatus(); });
      !may.ok())
    return Refuse(may);
  const model::VolumeStatus& status = pinned->status;
  ExportedMemory out{.name = name,
                     .scan = status.scan,
                     .device = pinned->device,
                     .device_uuid = {},
                     .backend = {},
                     .memory = {},
                     .type = {.scalar = ScalarOf(status.dtype),
                              .lanes = 1,
                              .dims = {status.shape, status.shape + 3}},
                     .version = 1,
                     .digest = status.digest,
                     .charge = pinned->slot->charge,
                     .keep = pinned->slot,
                     .pinned = *pinned,
                     .owner = status.owner,
                     .parent = model::ParentOf(status)};
  if (const absl::Status described = Describe(pinned->slot->volume, &out); !described.ok())
    return Refuse(described);
  return out;
}

ExportStore::Entry& ExportStore::AddLocked(const std::string& name, ExportedMemory memory,
                                           const ExportPeer& peer) {
  Use& use = uses_[memory.memory.id];
  if (use.of != memory.name || use.version != memory.version || use.generation == 0) {
    use = {.of = memory.name, .version = memory.version, .generation = use.generation + 1};
  }
  Entry made;
  made.status = {.name = name,
                 .of = memory.name,
                 .replica = memory.replica,
                 .device = context_.ledger->names().Name(memory.device),
                 .uid = peer.uid,
                 .client = peer.client,
                 .owner = peer.owner,
                 .mapped_bytes = memory.memory.mapped_bytes,
                 .created = context_.clock->Now(),
                 .memory = memory.memory.id,
                 .generation = use.generation};
  made.memory = std::move(memory);
  Entry& entry = entries_.emplace(next_++, std::move(made)).first->second;
  ++counts_.granted;
  if (uses_.size() > kMostUses) {
    // Forgets memory without exports. Its generations start again, but no client is expected to
    // still have it cached.
    std::set<uint64_t> mapped;
    for (const auto& [number_of, other] : entries_) mapped.insert(other.status.memory);
    std::erase_if(uses_, [&](const auto& item) { return mapped.count(item.first) == 0; });
  }
  return entry;
}

absl::StatusOr<handoff::Ticket> ExportStore::IssueFor(std::shared_ptr<handoff::Grant> grant,
                                                      const ExportPeer& peer) {
  OCTAVO_RETURN_IF_ERROR(Admit(peer));
  handoff::Holder holder = HolderOf(peer.owner);
  holder.looks_only = grant->purpose() == wire::PURPOSE_FRAMES;
  auto ticket = socket_.load()->Issue(std::move(grant), peer.uid, holder);
  if (!ticket.ok()) return Refuse(ticket.status());
  return ticket;
}

absl::StatusOr<ExportTicket> ExportStore::Issue(ExportedMemory memory, const ExportPeer& peer,
                                                const Under& under) {
  if (!peer.accept.empty() && peer.accept.count(memory.backend) == 0) {
    return Refuse(
        Refusal(absl::StatusCode::kUnimplemented, Reason::kExportKind,
                absl::StrCat("the memory of ", memory.name, " is of the ", memory.backend,
                             " backend; the client accepts ", absl::StrJoin(peer.accept, ", "))));
  }
  const volume::VolumeHold pinned = std::exchange(memory.pinned, {});
  ExportTicket out;
  out.memory = memory;
  const std::string name = absl::StrCat("exports/", base::NewId(context_.server_id));
  const auto port = std::make_shared<Port>(this, name, peer);
  absl::Cleanup ended = [&] { (void)End(name); };
  const auto make = [&]() -> absl::Status {
    MutexLock lock(mutex_);
    OCTAVO_RETURN_IF_ERROR(AdmitLocked(peer));
    out.status = AddLocked(name, std::move(memory), peer).status;
    return absl::OkStatus();
  };
  const absl::Status made =
      under != nullptr ? under(make) : context_.volumes->WhileMappable(pinned, peer.borrows, make);
  if (!made.ok()) return Refuse(made);
  auto ticket = socket_.load()->Issue(port, peer.uid, HolderOf(peer.owner));
  if (!ticket.ok()) return Refuse(ticket.status());
  std::move(ended).Cancel();
  out.ticket = *std::move(ticket);
  return out;
}

handoff::Answer ExportStore::AnswerLocked(const Entry& entry, const std::set<std::string>& have) {
  const ExportedMemory& m = entry.memory;
  handoff::Answer answer;
  wire::Export& out = *answer.message.mutable_exported();
  out.set_name(entry.status.name);
  out.set_resource(m.name);
  out.set_replica(m.replica);
  out.set_memory(Hex(m.memory.id));
  out.set_generation(entry.status.generation);
  out.set_kind(m.backend == "cuda" ? wire::MEMORY_KIND_CUDA_VMM : wire::MEMORY_KIND_HOST_MEMFD);
  out.set_device_uuid(m.device_uuid);
  out.set_mapped_bytes(static_cast<uint64_t>(m.memory.mapped_bytes));
  out.set_byte_offset(0);
  out.set_byte_size(static_cast<uint64_t>(m.type.bytes()));
  out.set_dtype(DtypeOf(m.type.scalar));
  out.set_lanes(static_cast<uint32_t>(m.type.lanes));
  for (const int64_t size : m.type.dims) out.add_shape(size);
  out.set_version(m.version);
  out.set_digest(m.digest);
  if (have.count(out.memory()) == 0) {
    answer.descriptor = m.memory.fd;
    ++counts_.descriptors_sent;
  }
  answer.keep = m.keep;
  return answer;
}

absl::StatusOr<handoff::Answer> ExportStore::Open(const std::string& name,
                                                  const handoff::Peer& peer,
                                                  const std::set<std::string>& have,
                                                  std::shared_ptr<handoff::Link> link) {
  MutexLock lock(mutex_);
  const auto it = std::find_if(entries_.begin(), entries_.end(),
                               [&](const auto& e) { return e.second.status.name == name; });
  if (it == entries_.end())
    return Refusal(absl::StatusCode::kFailedPrecondition, Reason::kExportRevoked,
                   absl::StrCat(name, " was revoked"));
  Entry& entry = it->second;
  entry.status.state = ExportState::kOpen;
  entry.status.uid = peer.uid;
  entry.status.pid = peer.pid;
  entry.link = std::move(link);
  return AnswerLocked(entry, have);
}

absl::StatusOr<handoff::Answer> ExportStore::Take(const std::string& of, const ExportPeer& peer,
                                                  const handoff::Peer& who,
                                                  const std::set<std::string>& have,
                                                  std::shared_ptr<handoff::Link> link,
                                                  std::string* name, int64_t most_slots) {
  if (!absl::StartsWith(of, "volumes/")) {
    return Refusal(
        absl::StatusCode::kInvalidArgument, Reason::kProtocol,
        absl::StrCat("volume: '", of, "' is no volume; buffers need a lease, and a ticket each"));
  }
  OCTAVO_RETURN_IF_ERROR(Admit(peer));
  OCTAVO_ASSIGN_OR_RETURN(ExportedMemory memory, OfVolume(of, 0, peer.borrows));
  if (!peer.accept.empty() && peer.accept.count(memory.backend) == 0) {
    return Refuse(
        Refusal(absl::StatusCode::kUnimplemented, Reason::kExportKind,
                absl::StrCat("the memory of ", of, " is of the ", memory.backend, " backend")));
  }
  const volume::VolumeHold pinned = std::exchange(memory.pinned, {});
  *name = absl::StrCat("exports/", base::NewId(context_.server_id));
  absl::Cleanup ended = [&] { (void)End(*name); };
  handoff::Answer answer;
  const absl::Status made =
      context_.volumes->WhileMappable(pinned, peer.borrows, [&]() -> absl::Status {
        MutexLock lock(mutex_);
        if (SlotsLocked(memory.scan) >= most_slots) {
          // A feed takes the volume later, and tells nobody.
          return absl::ResourceExhaustedError(
              absl::StrCat("all of the ", most_slots, " slots of ", memory.scan, " are mapped"));
        }
        Entry& entry = AddLocked(*name, std::move(memory), peer);
        entry.status.state = ExportState::kOpen;
        entry.status.uid = who.uid;
        entry.status.pid = who.pid;
        entry.link = std::move(link);
        answer = AnswerLocked(entry, have);
        return absl::OkStatus();
      });
  if (!made.ok()) return Refuse(made);
  std::move(ended).Cancel();
  return answer;
}

bool ExportStore::End(const std::string& name) {
  Entry gone;  // its memory may be freed with it, without the lock
  MutexLock lock(mutex_);
  const auto it = std::find_if(entries_.begin(), entries_.end(),
                               [&](const auto& e) { return e.second.status.name == name; });
  if (it == entries_.end()) return false;
  gone = std::move(it->second);
  entries_.erase(it);
  return true;
}

absl::StatusOr<int64_t> ExportStore::Revoke(const std::string& name,
                                            const security::Principal& caller) {
  std::vector<std::pair<std::string, std::shared_ptr<handoff::Link>>> told;
  std::vector<std::string> unopened;
  int64_t found = 0;
  {
    MutexLock lock(mutex_);
    for (const auto& [number, entry] : entries_) {
      if (entry.status.name != name && entry.status.of != name) continue;
      if (!security::IsChangeableBy(caller, entry.memory.owner, entry.status.of,
                                    entry.memory.parent))
        OCTAVO_RETURN_IF_ERROR(security::MayChange(caller, entry.status.owner, entry.status.name));
    }
    for (auto& [number, entry] : entries_) {
      if (entry.status.name != name && entry.status.of != name) continue;
      ++found;
      if (entry.status.state == ExportState::kWaiting) {
        unopened.push_back(entry.status.name);
      } else if (entry.status.state == ExportState::kOpen) {
        entry.status.state = ExportState::kRevoked;
        entry.due_ns =
            context_.clock->Now().monotonic_ns + static_cast<int64_t>(grace_seconds_ * 1e9);
        told.emplace_back(entry.status.name, entry.link);
      }
    }
  }
  if (found == 0)
    return Refusal(absl::StatusCode::kNotFound, Reason::kNoExport,
                   absl::StrCat("no export ", name, ", and none of it"));
  for (const auto& export_name : unopened) (void)End(export_name);
  for (const auto& [export_name, link] : told) {
    wire::ServerMessage message;
    message.mutable_revoked()->set_name(export_name);
    *message.mutable_revoked()->mutable_grace() = handoff::DurationOf(grace_seconds_);
    (void)link->Send(std::move(message));
  }
  return found;
}

std::vector<ExportStatus> ExportStore::List(const std::string& of) {
  MutexLock lock(mutex_);
  std::vector<ExportStatus> list;
  for (const auto& [number, entry] : entries_) {
    if (!of.empty() && entry.status.of != of) continue;
    list.push_back(entry.status);
    list.back().number = static_cast<uint64_t>(number);
    list.back().overdue = IsOverdue(entry);
  }
  return list;
}

absl::Status ExportStore::CheckFree(const std::string& of) {
  MutexLock lock(mutex_);
  int64_t count = 0;
  std::set<std::string> users;
  for (const auto& [number, entry] : entries_) {
    if (entry.status.of != of || entry.status.detached || IsOverdue(entry)) continue;
    ++count;
    users.insert(entry.status.uid.has_value() ? absl::StrCat(*entry.status.uid) : "?");
  }
  if (count == 0) return absl::OkStatus();
  const std::string who = absl::StrJoin(users, ", ");
  return Refusal(absl::StatusCode::kFailedPrecondition, Reason::kExported,
                 absl::StrCat(of, " is mapped by other processes (", count, " exports, of users ",
                              who, "); revoke them, or set detach_exports"),
                 {{"exports", absl::StrCat(count)}, {"uids", who}});
}

void ExportStore::Gone(const std::string& of) {
  MutexLock lock(mutex_);
  DetachLocked(of, std::nullopt);
}

void ExportStore::Left(const std::string& of, memory::Ledger::ChargeId charge) {
  MutexLock lock(mutex_);
  DetachLocked(of, charge);
}

void ExportStore::DetachLocked(const std::string& of,
                               std::optional<memory::Ledger::ChargeId> charge) {
  for (auto& [number, entry] : entries_) {
    if (entry.status.of != of || entry.status.detached ||
        entry.memory.charge != charge.value_or(entry.memory.charge))
      continue;
    entry.status.detached = true;
    context_.ledger->Move(entry.memory.charge, memory::ChargeKind::kDetached,
                          entry.memory.holder.empty() ? of : entry.memory.holder);
  }
}

std::set<std::string> ExportStore::Mapped() {
  MutexLock lock(mutex_);
  std::set<std::string> names;
  for (const auto& [number, entry] : entries_) {
    if (!entry.status.detached) names.insert(entry.status.of);
  }
  return names;
}

int64_t ExportStore::SlotsOf(const std::string& scan) {
  MutexLock lock(mutex_);
  return SlotsLocked(scan);
}

int64_t ExportStore::SlotsLocked(const std::string& scan) {
  std::set<memory::Ledger::ChargeId> slots;
  for (const auto& [number, entry] : entries_) {
    if (entry.memory.scan == scan) slots.insert(entry.memory.charge);
  }
  return static_cast<int64_t>(slots.size());
}

std::vector<ExportStore::Overdue> ExportStore::TakeOverdue() {
  const int64_t now = context_.clock->Now().monotonic_ns;
  std::vector<Overdue> list;
  std::set<memory::Ledger::ChargeId> seen;
  MutexLock lock(mutex_);
  for (auto& [number, entry] : entries_) {
    if (!IsOverdue(entry) || entry.status.detached) continue;
    if (entry.asked_ns == 0) {
      Log(LogLevel::kWarning, "memory was not given back in time",
          {{"export", entry.status.name},
           {"of", entry.status.of},
           {"uid", int64_t{*entry.status.uid}},
           {"pid", int64_t{entry.status.pid}}});
    } else if (static_cast<double>(now - entry.asked_ns) < kRetrySeconds * 1e9) {
      continue;
    }
    entry.asked_ns = now;
    if (seen.insert(entry.memory.charge).second) {
      list.push_back(
          {.of = entry.status.of, .replica = entry.status.replica, .charge = entry.memory.charge});
    }
  }
  return list;
}

void ExportStore::Moved(const Overdue& what, const absl::Status& status) {
  MutexLock lock(mutex_);
  ++(status.ok() ? counts_.moved : counts_.not_moved);
  if (status.ok()) DetachLocked(what.of, what.charge);
}

ExportStore::Counts ExportStore::Count() {
  Counts counts;
  std::set<memory::Ledger::ChargeId> detached;
  {
    MutexLock lock(mutex_);
    counts = counts_;
    for (const auto& [number, entry] : entries_) {
      ++counts.exports;
      counts.waiting += entry.status.state == ExportState::kWaiting;
      counts.revoked += entry.status.state == ExportState::kRevoked;
      counts.overdue += IsOverdue(entry);
      if (entry.status.detached && detached.insert(entry.memory.charge).second)
        counts.detached_bytes += entry.status.mapped_bytes;
    }
  }
  if (handoff::FdSocket* socket = socket_; socket != nullptr) {
    for (const auto& [reason, count] : socket->Count().refused) counts.refused[reason] += count;
  }
  return counts;
}

}  // namespace octavo::exports

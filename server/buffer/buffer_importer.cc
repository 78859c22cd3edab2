#include "server/buffer/buffer_importer.h"

#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "gpu/device/alignment.h"
#include "gpu/device/importable_memory.h"
#include "server/base/device_names.h"
#include "server/base/resource_names.h"
#include "server/buffer/buffer_errors.h"
#include "server/buffer/import_grant.h"
#include "server/security/rights.h"
#include "server/security/shares.h"

namespace octavo::buffer {
namespace {

using model::ImportKind;

/// The kind of memory that the devices of a backend take.
ImportKind KindOf(const Device& device) {
  return device.info().backend == "cuda" ? ImportKind::kCudaVmm : ImportKind::kHostMemfd;
}

absl::Status CheckKind(ImportKind wanted, const Device& device) {
  const ImportKind takes = KindOf(device);
  if (wanted == ImportKind::kDefault || wanted == takes) return absl::OkStatus();
  const std::string name = base::DeviceName(device.info().index);
  return BadField(
      Reason::kImportKind, "kind",
      absl::StrCat(
          "is ", Name(wanted), "; ", name, " is of the ", device.info().backend,
          " backend and takes ", Name(takes),
          takes == ImportKind::kCudaVmm
              ? ". Memory of the host is no memory of a GPU, page-locked or not: write it to "
                "a buffer instead (WriteBuffer)"
              : ""));
}

/// The size that the memory must have.
absl::StatusOr<int64_t> SizeOf(uint64_t wanted, int64_t array, int64_t granule) {
  if (wanted == 0) return RoundUp(array, granule);
  if (wanted < static_cast<uint64_t>(array)) {
    return BadField(Reason::kImportSize, "byte_size",
                    absl::StrCat("is ", wanted, "; the array has ", array, " bytes"));
  }
  if (wanted > static_cast<uint64_t>(INT64_MAX) || wanted % static_cast<uint64_t>(granule) != 0) {
    return BadField(
        Reason::kImportSize, "byte_size",
        absl::StrCat("is ", wanted, "; allowed are multiples of ", granule, " up to ", INT64_MAX));
  }
  return static_cast<int64_t>(wanted);
}

}  // namespace

absl::Status BufferImporter::CheckSession(const std::string& session) {
  if (session.empty() || !context_.sessions->Gone(session)) return absl::OkStatus();
  return WithInfo(absl::NotFoundError(absl::StrCat(session, " has ended")),
                  {.reason = Reason::kNoSession, .field = "session_secret", .numbers = {}});
}

absl::StatusOr<BufferImporter::Import> BufferImporter::Plan(const model::BufferImportSpec& spec,
                                                            const model::Caller& caller) {
  Import import{.ticket = {}, .array = spec.array, .type = {}, .caller = caller, .session = {}};
  import.caller.principal = security::WithoutGrants(std::move(import.caller.principal));
  OCTAVO_ASSIGN_OR_RETURN(import.type, context_.maker.Check(spec.array, caller));
  const uint32_t index = spec.array.devices.empty() ? 0 : spec.array.devices.front();
  if (const base::DeviceNames& names = context_.maker.names();
      index >= static_cast<uint32_t>(names.numbered())) {
    return BadField(Reason::kBadField, "device",
                    absl::StrCat("is devices/", index, "; allowed are ", names.Numbered()));
  }
  ImportTicket& ticket = import.ticket;
  ticket.device = static_cast<int>(index);
  Device& device = context_.order.device(ticket.device);
  if (const absl::Status health = device.Health(); !health.ok()) {
    return WithInfo(
        absl::UnavailableError(absl::StrCat("devices/", index, " is down: ", health.message())),
        {.reason = Reason::kDeviceDown,
         .field = "device",
         .numbers = {{"device", base::DeviceName(ticket.device)}}});
  }
  OCTAVO_RETURN_IF_ERROR(CheckKind(spec.kind, device));
  ImportableMemory* importable = ImportableOf(device);
  if (importable == nullptr) {
    return BadField(Reason::kImportKind, "device",
                    absl::StrCat("devices/", index, " takes no memory of other processes"));
  }
  OCTAVO_ASSIGN_OR_RETURN(ticket.bytes,
                          SizeOf(spec.byte_size, import.type.bytes(), importable->ImportGranule()));
  OCTAVO_RETURN_IF_ERROR(book_->CheckBytes(ticket.bytes));
  if (!spec.session_secret.empty()) {
    OCTAVO_ASSIGN_OR_RETURN(const auto session,
                            context_.sessions->Find(spec.session_secret, &caller.principal));
    import.session = session.name;
  }
  ticket.kind = KindOf(device);
  ticket.device_uuid = device.info().uuid;
  ticket.buffer = context_.maker.NewName();
  return import;
}

absl::StatusOr<ImportTicket> BufferImporter::IssuePlanned(Import import, std::optional<uid_t> uid) {
  const std::string name = import.ticket.buffer;
  const security::Principal& caller = import.caller.principal;
  const handoff::Holder holder{.payer = security::ShareOf(security::OwnerOf(caller)),
                               .principal = caller.name,
                               .project = caller.project};
  {
    MutexLock lock(mutex_);
    imports_.emplace(name, std::move(import));
  }
  absl::Cleanup not_issued = [&] {
    MutexLock lock(mutex_);
    imports_.erase(name);
  };
  OCTAVO_ASSIGN_OR_RETURN(
      const handoff::Ticket issued,
      context_.socket->Issue(std::make_shared<ImportGrant>(this, name), uid, holder));
  std::move(not_issued).Cancel();
  MutexLock lock(mutex_);
  const auto it = imports_.find(name);
  if (it == imports_.end()) {  // the socket stopped at this moment
    return WithInfo(absl::UnavailableError("the server stops"),
                    {.reason = Reason::kDraining, .field = "", .numbers = {}});
  }
  ImportTicket& ticket = it->second.ticket;
  ticket.ticket = issued;
  ticket.expires_unix_ns =
      context_.table.Now().unix_ns + static_cast<int64_t>(issued.expires_seconds * 1e9);
  return ticket;
}

absl::StatusOr<ImportTicket> BufferImporter::Again(const std::string& buffer,
                                                   const model::Caller& caller) {
  {
    MutexLock lock(mutex_);
    if (const auto it = imports_.find(buffer); it != imports_.end()) return it->second.ticket;
  }
  OCTAVO_RETURN_IF_ERROR(context_.table.Get(buffer, caller).status());
  return WithInfo(absl::NotFoundError(absl::StrCat(buffer, " has ended meanwhile")),
                  {.reason = Reason::kNoBuffer, .field = "", .numbers = {}});
}

absl::StatusOr<ImportTicket> BufferImporter::Issue(const model::BufferImportSpec& spec,
                                                   const model::Caller& caller,
                                                   std::optional<uid_t> uid) {
  if (context_.socket == nullptr) {
    return WithInfo(absl::FailedPreconditionError(
                        "this server has no socket that takes descriptors (handoff.unix)"),
                    {.reason = Reason::kHandoffDisabled, .field = "", .numbers = {}});
  }
  OCTAVO_ASSIGN_OR_RETURN(Import import, Plan(spec, caller));
  OCTAVO_ASSIGN_OR_RETURN(const std::string answered,
                          context_.requests.Begin(spec.array.request_id,
                                                  absl::StrCat(spec.array.request_digest,
                                                               "owner:", caller.principal.name),
                                                  caller.principal.name));
  if (!answered.empty()) return Again(answered, caller);
  std::string made;  // empty: the id is free again
  const absl::Cleanup ended = [&] { context_.requests.End(spec.array.request_id, made); };
  OCTAVO_RETURN_IF_ERROR(context_.requests.CheckOpen());
  OCTAVO_ASSIGN_OR_RETURN(ImportTicket ticket, IssuePlanned(std::move(import), uid));
  made = ticket.buffer;
  return ticket;
}

absl::StatusOr<model::BufferStatus> BufferImporter::Open(const std::string& name,
                                                         const UniqueFd& descriptor,
                                                         const handoff::Peer& peer,
                                                         std::shared_ptr<handoff::Link> link) {
  Import import;
  {
    MutexLock lock(mutex_);
    import = imports_.at(name);  // it ends with the grant, whose call this is
  }
  OCTAVO_RETURN_IF_ERROR(context_.requests.CheckOpen());
  OCTAVO_RETURN_IF_ERROR(CheckSession(import.session));
  const ImportTicket& ticket = import.ticket;
  auto replica = std::make_shared<BufferReplica>();
  replica->device = ticket.device;
  OCTAVO_ASSIGN_OR_RETURN(replica->loan, ImportLoan::Make(book_, peer, ticket.device, ticket.bytes,
                                                          name, std::move(link)));
  OCTAVO_ASSIGN_OR_RETURN(
      replica->memory,
      ImportableOf(context_.order.device(ticket.device))->Import(descriptor, ticket.bytes));
  replica->version = 1;
  replica->state = model::BufferState::kReady;
  auto buffer = std::make_shared<BufferEntry>();
  buffer->status.name = name;
  buffer->status.type = import.type;
  buffer->status.client = import.caller.client;
  buffer->status.owner = security::OwnerOf(import.caller.principal);
  buffer->status.labels = import.array.labels;
  buffer->status.is_private = import.array.is_private;
  buffer->status.created = context_.table.Now();
  buffer->status.imported = {.kind = ticket.kind,
                             .mapped_bytes = ticket.bytes,
                             .session = import.session,
                             .uid = static_cast<int64_t>(peer.uid),
                             .pid = peer.pid};
  buffer->key = import.array.is_private ? import.caller.key : "";
  buffer->ttl_seconds = import.array.ttl_seconds;
  buffer->replicas.push_back(std::move(replica));
  model::BufferStatus status;
  {
    MutexLock lock(context_.table.mutex());
    context_.table.Touch(*buffer);
    context_.table.Insert(buffer);
    status = context_.table.StatusOf(*buffer);
  }
  context_.watchers.Tell(base::ChangeKind::kCreated, status, buffer->key, "");
  buffer = nullptr;
  // From here on EndSessions finds it. The session may have ended since it was checked.
  if (const absl::Status alive = CheckSession(import.session); !alive.ok()) {
    context_.remover.Revoke(name, ImportEnd::kPeerGone, absl::StrCat(import.session, " has ended"));
    return alive;
  }
  return status;
}

absl::StatusOr<uint64_t> BufferImporter::Publish(const std::string& name) {
  model::Caller owner;
  {
    MutexLock lock(mutex_);
    owner = imports_.at(name).caller;
  }
  model::BufferStatus status;
  {
    MutexLock lock(context_.table.mutex());
    // Dropped before the lock: it is never the last reference, whose end takes time.
    OCTAVO_ASSIGN_OR_RETURN(const BufferPtr buffer, context_.table.Find(name, owner));
    ++buffer->replicas.front()->version;
    buffer->status.sequence = context_.table.NextSequence();
    context_.table.Touch(*buffer);
    status = context_.table.StatusOf(*buffer);
  }
  context_.watchers.Tell(base::ChangeKind::kChanged, status, owner.key, "");
  return status.replicas.front().version;
}

void BufferImporter::End(const std::string& name, handoff::GrantEnd why) {
  {
    MutexLock lock(mutex_);
    imports_.erase(name);
  }
  switch (why) {
    case handoff::GrantEnd::kExpired:
    case handoff::GrantEnd::kRefused: return;  // there is no buffer
    case handoff::GrantEnd::kReleased:
      return context_.remover.Revoke(name, ImportEnd::kReleased,
                                     "the client that lent its memory took it back");
    case handoff::GrantEnd::kHungUp:
      return context_.remover.Revoke(name, ImportEnd::kPeerGone,
                                     "the client that lent its memory has gone");
    case handoff::GrantEnd::kStopped:
      return context_.remover.Revoke(name, ImportEnd::kPeerGone, "the server stopped");
  }
}

void BufferImporter::EndSessions(const std::set<std::string>& sessions) {
  std::vector<std::pair<std::string, std::string>> ended;  // buffer and session
  {
    MutexLock lock(context_.table.mutex());
    for (const auto& [number, buffer] : context_.table.Buffers()) {
      const auto& imported = buffer->status.imported;
      if (imported.has_value() && sessions.count(imported->session) != 0)
        ended.emplace_back(buffer->status.name, imported->session);
    }
  }
  for (const auto& [name, session] : ended) {
    context_.remover.Revoke(name, ImportEnd::kSessionEnded,
                            absl::StrCat(session, ", with which it was to end, has ended"));
  }
}

}  // namespace octavo::buffer

#include "server/engine/clients.h"

#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/engine/internal.h"
#include "server/security/rights.h"

namespace octavo::engine {

absl::StatusOr<session::ClientSessions::Opened> Clients::Open(const std::string& client,
                                                              const security::Owner& owner) {
  return components_.sessions.Open(client, owner);
}

absl::StatusOr<session::SessionStatus> Clients::KeepAlive(const std::string& secret,
                                                          const security::Principal& caller) {
  OCTAVO_ASSIGN_OR_RETURN(const session::ClientSessions::Alive alive,
                          components_.sessions.KeepAlive(secret, &caller));
  if (alive.revived) {
    components_.volumes.expiry().Adopt(alive.session.name);
    components_.audit.OnSession(alive.session.name, "REVIVED");
    Log(LogLevel::kInfo, "session revived",
        {{"session", alive.session.name}, {"client", alive.session.client}});
  }
  return WithHoldings({alive.session})[0];
}

absl::StatusOr<session::SessionStatus> Clients::Close(const std::string& secret,
                                                      const security::Principal& caller) {
  OCTAVO_ASSIGN_OR_RETURN(const session::SessionStatus session,
                          components_.sessions.Close(secret, &caller));
  components_.leases.EndSession(session.name);  // Lifetimes does the other work
  return WithHoldings({session})[0];
}

absl::StatusOr<session::SessionStatus> Clients::Find(const std::string& secret,
                                                     const security::Principal& caller) {
  return components_.sessions.Find(secret, &caller);
}

std::vector<session::SessionStatus> Clients::List(uint64_t after, size_t most) {
  return WithHoldings(components_.sessions.List(after, most));
}

const session::SessionConfig& Clients::config() const { return components_.sessions.config(); }

session::LeaseTable& Clients::leases() { return components_.leases; }

uint64_t Clients::AcquireLease(const session::LeaseRequest& request, const model::Caller& caller,
                               std::function<void(absl::StatusOr<session::Lease>)> done) {
  if (absl::StartsWith(request.resource, "buffers/"))
    return components_.buffers.AcquireLease(request, caller, std::move(done));
  if (absl::StartsWith(request.resource, "volumes/")) {
    done(components_.volumes.AcquireLease(request));  // shared ones never wait
  } else {
    done(InvalidField("resource", absl::StrCat("is '", request.resource,
                                               "'; allowed volumes/... and buffers/...")));
  }
  return 0;
}

absl::Status Clients::EndLease(uint64_t fence, const model::Caller& caller) {
  OCTAVO_ASSIGN_OR_RETURN(const session::Lease lease, components_.leases.OfFence(fence));
  if (!security::IsChangeableBy(caller.principal, lease.owner)) {
    // Fencing numbers can be guessed: they do not tell the name of another's private buffer.
    if (!components_.buffers.MaySee(lease.resource, caller))
      return components_.leases.NoneOfFence(fence);
    security::Owner owner;
    std::string parent;
    if (absl::StartsWith(lease.resource, "buffers/")) {
      OCTAVO_ASSIGN_OR_RETURN(const model::BufferStatus buffer,
                              components_.buffers.Get(lease.resource, caller));
      owner = buffer.owner;
    } else {
      OCTAVO_ASSIGN_OR_RETURN(const model::VolumeStatus volume,
                              components_.volumes.Get(lease.resource));
      owner = volume.owner;
      parent = model::ParentOf(volume);
    }
    OCTAVO_RETURN_IF_ERROR(security::MayChange(caller.principal, owner, lease.resource, parent));
  }
  return components_.leases.Release(lease.token);
}

std::vector<session::SessionStatus> Clients::WithHoldings(
    std::vector<session::SessionStatus> sessions) {
  std::map<std::string, session::SessionStatus*> by_name;
  for (session::SessionStatus& session : sessions) {
    by_name[session.name] = &session;
    const std::vector<std::string> volumes = components_.volumes.NamesOfSession(session.name);
    session.volumes = std::ssize(volumes);
    session.leases = components_.leases.CountOfSession(session.name);
    for (const std::string& volume : volumes) session.bytes += components_.ledger.BytesOf(volume);
  }
  for (const auto& scan : components_.scans.All()) {
    if (scan->finished()) continue;
    if (const auto it = by_name.find(scan->client_session()); it != by_name.end())
      it->second->bytes += components_.ledger.BytesOf(scan->name());
  }
  return sessions;
}

}  // namespace octavo::engine

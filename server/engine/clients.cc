#include "server/engine/clients.h"

#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/engine/devices.h"
#include "server/engine/internal.h"

namespace octavo::engine {

absl::StatusOr<session::ClientSessions::Opened> Clients::Open(const std::string& client) {
  return components_.sessions.Open(client);
}

absl::StatusOr<session::SessionStatus> Clients::KeepAlive(const std::string& secret) {
  OCTAVO_ASSIGN_OR_RETURN(const session::ClientSessions::Alive alive,
                          components_.sessions.KeepAlive(secret));
  if (alive.revived) {
    components_.volumes.expiry().Adopt(alive.session.name);
    Log(LogLevel::kInfo, "session revived",
        {{"session", alive.session.name}, {"client", alive.session.client}});
  }
  return WithHoldings({alive.session})[0];
}

absl::StatusOr<session::SessionStatus> Clients::Close(const std::string& secret) {
  OCTAVO_ASSIGN_OR_RETURN(const session::SessionStatus session, components_.sessions.Close(secret));
  components_.leases.EndSession(session.name);  // Lifetimes does the other work
  return WithHoldings({session})[0];
}

absl::StatusOr<session::SessionStatus> Clients::Find(const std::string& secret) {
  return components_.sessions.Find(secret);
}

std::vector<session::SessionStatus> Clients::List() {
  return WithHoldings(components_.sessions.List());
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

std::vector<session::SessionStatus> Clients::WithHoldings(
    std::vector<session::SessionStatus> sessions) {
  std::map<std::string, session::SessionStatus*> by_name;
  for (session::SessionStatus& session : sessions) by_name[session.name] = &session;
  const auto add = [&](const std::string& session, int64_t session::SessionStatus::*what,
                       int64_t amount) {
    if (const auto it = by_name.find(session); it != by_name.end()) it->second->*what += amount;
  };
  for (const auto& [session, count] : components_.volumes.CountBySession())
    add(session, &session::SessionStatus::volumes, count);
  for (const auto& [session, count] : components_.leases.CountBySession())
    add(session, &session::SessionStatus::leases, count);
  for (const auto& holder : devices_.GetMemory().holders)
    add(holder.session, &session::SessionStatus::bytes, holder.holder.bytes);
  return sessions;
}

}  // namespace octavo::engine

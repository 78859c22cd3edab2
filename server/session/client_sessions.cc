#include "server/session/client_sessions.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/base/resource_names.h"
#include "server/security/rights.h"

namespace octavo::session {
namespace {

constexpr int64_t kRememberNs = int64_t{24} * 3600 * 1'000'000'000;

int64_t Nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

}  // namespace

SessionStatus ClientSessions::StatusOf(const Session& session) const {
  SessionStatus status = session.status;
  status.alive = session.ended_ns == 0;
  const int64_t expiry_ns = Nanoseconds(config_.expiry_seconds);
  status.expires = session.closed.unix_ns != 0
                       ? session.closed
                       : TimePoint{.monotonic_ns = status.seen.monotonic_ns + expiry_ns,
                                   .unix_ns = status.seen.unix_ns + expiry_ns};
  if (status.alive) {
    status.expires_seconds =
        static_cast<double>(status.seen.monotonic_ns + Nanoseconds(config_.expiry_seconds) -
                            clock_->Now().monotonic_ns) *
        1e-9;
  }
  return status;
}

void ClientSessions::EndOverdue() {
  const int64_t now = clock_->Now().monotonic_ns;
  while (!alive_.empty() &&
         alive_.front().status.seen.monotonic_ns + Nanoseconds(config_.expiry_seconds) <= now) {
    alive_.front().ended_ns = now;
    alive_.front().place = nullptr;
    ++expired_;
    ended_.splice(ended_.end(), alive_, alive_.begin());
  }
  while (!told_.empty() &&
         (now - told_.front().ended_ns > kRememberNs || std::ssize(told_) > config_.most)) {
    by_secret_.erase(told_.front().secret);
    by_name_.erase(told_.front().status.name);
    by_number_.erase(told_.front().status.number);
    told_.pop_front();
  }
}

absl::StatusOr<std::shared_ptr<void>> ClientSessions::TakePlace(const security::Owner& owner) {
  if (std::ssize(alive_) >= config_.most) {
    return WithInfo(
        absl::ResourceExhaustedError(absl::StrCat(
            alive_.size(), " sessions are open; allowed session.most = ", config_.most)),
        {.reason = Reason::kSessions,
         .field = "",
         .numbers = {{"allowed", absl::StrCat(config_.most)}, {"retryable", "true"}}});
  }
  const std::string name = security::ShareOf(owner);
  if (name.empty()) return nullptr;
  std::shared_ptr<void> place = places_of_.Take(name);
  if (place != nullptr) return place;
  return WithInfo(
      absl::ResourceExhaustedError(absl::StrCat(
          name, " has ", places_of_.most(), " sessions open; allowed to one principal is half of ",
          "session.most = ", config_.most, "; close some")),
      {.reason = Reason::kSessions,
       .field = "",
       .numbers = {{"principal", name},
                   {"allowed", absl::StrCat(places_of_.most())},
                   {"retryable", "true"}}});
}

void ClientSessions::Touch(Sessions::iterator session) {
  session->status.seen = clock_->Now();
  alive_.splice(alive_.end(), alive_, session);
}

absl::StatusOr<ClientSessions::Sessions::iterator> ClientSessions::FindLocked(
    const std::string& secret, const security::Principal* caller) {
  EndOverdue();
  const auto it = by_secret_.find(secret);
  if (it == by_secret_.end()) {
    return WithInfo(absl::NotFoundError("no session has this secret; open one (the server forgets "
                                        "a session within a day of its end, and when it restarts)"),
                    {.reason = Reason::kNoSession, .field = "session_secret", .numbers = {}});
  }
  if (caller != nullptr) {
    const SessionStatus& session = it->second->status;
    OCTAVO_RETURN_IF_ERROR(security::MayChange(*caller, session.owner, session.name));
  }
  return it->second;
}

absl::StatusOr<ClientSessions::Opened> ClientSessions::Open(const std::string& client,
                                                            const security::Owner& owner) {
  MutexLock lock(mutex_);
  EndOverdue();
  Session session;
  OCTAVO_ASSIGN_OR_RETURN(session.place, TakePlace(owner));
  session.status.number = ++opened_;
  session.status.name = absl::StrCat("sessions/", base::NewId(server_id_));
  session.status.client = client;
  session.status.owner = owner;
  session.status.opened = session.status.seen = clock_->Now();
  session.secret = base::NewId("").substr(1);
  alive_.push_back(session);
  by_secret_[session.secret] = by_name_[session.status.name] = by_number_[session.status.number] =
      std::prev(alive_.end());
  return Opened{.session = StatusOf(session), .secret = session.secret};
}

absl::StatusOr<ClientSessions::Alive> ClientSessions::KeepAlive(const std::string& secret,
                                                                const security::Principal* caller) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(const Sessions::iterator session, FindLocked(secret, caller));
  Alive alive;
  alive.revived = session->ended_ns != 0;
  if (alive.revived) {
    OCTAVO_ASSIGN_OR_RETURN(session->place, TakePlace(session->status.owner));
    session->ended_ns = 0;
    session->closed = {};
    alive_.splice(alive_.end(), std::exchange(session->told, false) ? told_ : ended_, session);
  }
  Touch(session);
  alive.session = StatusOf(*session);
  return alive;
}

absl::StatusOr<SessionStatus> ClientSessions::Close(const std::string& secret,
                                                    const security::Principal* caller) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(const Sessions::iterator session, FindLocked(secret, caller));
  if (session->ended_ns == 0) {
    session->closed = clock_->Now();
    session->ended_ns = session->closed.monotonic_ns;
    session->place = nullptr;
    ended_.splice(ended_.end(), alive_, session);
  }
  return StatusOf(*session);
}

absl::StatusOr<SessionStatus> ClientSessions::Find(const std::string& secret,
                                                   const security::Principal* caller) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(const Sessions::iterator session, FindLocked(secret, caller));
  if (session->ended_ns != 0) {
    return WithInfo(absl::NotFoundError(absl::StrCat(session->status.name,
                                                     session->closed.unix_ns != 0
                                                         ? " was closed; OpenSession opens another "
                                                           "(KeepAlive revives this one)"
                                                         : " has expired; KeepAlive revives it")),
                    {.reason = Reason::kNoSession,
                     .field = "session_secret",
                     .numbers = {{"session", session->status.name}}});
  }
  Touch(session);
  return StatusOf(*session);
}

std::vector<SessionStatus> ClientSessions::List(uint64_t after, size_t most) {
  MutexLock lock(mutex_);
  EndOverdue();
  std::vector<SessionStatus> list;
  for (auto it = by_number_.upper_bound(after); it != by_number_.end() && list.size() < most; ++it)
    list.push_back(StatusOf(*it->second));
  return list;
}

bool ClientSessions::Gone(const std::string& name) {
  MutexLock lock(mutex_);
  EndOverdue();
  const auto it = by_name_.find(name);
  return it == by_name_.end() || it->second->ended_ns != 0;
}

std::vector<std::string> ClientSessions::Expire() {
  MutexLock lock(mutex_);
  EndOverdue();
  std::vector<std::string> ended;
  for (Session& session : ended_) {
    session.told = true;
    ended.push_back(session.status.name);
  }
  told_.splice(told_.end(), ended_);
  return ended;
}

ClientSessions::Counts ClientSessions::Count() {
  MutexLock lock(mutex_);
  EndOverdue();
  return {.alive = std::ssize(alive_), .expired = expired_};
}

}  // namespace octavo::session

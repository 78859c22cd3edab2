#include "server/engine/client_sessions.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/engine/names.h"

namespace octavo::engine {
namespace {

constexpr int64_t kRememberNs = int64_t{24} * 3600 * 1'000'000'000;

int64_t Nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

}  // namespace

SessionStatus ClientSessions::StatusOf(const Session& session) const {
  SessionStatus status = session.status;
  status.alive = session.ended_ns == 0;
  if (status.alive) {
    status.expires_seconds = static_cast<double>(status.seen.monotonic_ns + Nanoseconds(config_.expiry_seconds) - clock_->Now().monotonic_ns) * 1e-9;
  }
  return status;
}

void ClientSessions::EndOverdue() {
  const int64_t now = clock_->Now().monotonic_ns;
  for (auto it = sessions_.begin(); it != sessions_.end();) {
    Session& session = it->second;
    if (session.ended_ns == 0 && session.status.seen.monotonic_ns + Nanoseconds(config_.expiry_seconds) <= now) {
      session.ended_ns = now;
      ++expired_;
    }
    if (session.ended_ns != 0 && session.told && now - session.ended_ns > kRememberNs) {
      name_of_.erase(session.secret);
      it = sessions_.erase(it);
    } else {
      ++it;
    }
  }
}

absl::StatusOr<ClientSessions::Session*> ClientSessions::FindLocked(const std::string& secret) {
  EndOverdue();
  const auto it = name_of_.find(secret);
  if (it == name_of_.end()) {
    return WithInfo(absl::NotFoundError("no session has this secret; open one (they are forgotten a day after their end, and with the server)"),
                    {.reason = "NO_SESSION", .field = "session_secret", .numbers = {}});
  }
  return &sessions_.at(it->second);
}

ClientSessions::Opened ClientSessions::Open(const std::string& client) {
  MutexLock lock(mutex_);
  EndOverdue();
  Session session;
  session.status.name = absl::StrCat("sessions/", NewId(server_id_));
  session.status.client = client;
  session.status.opened = session.status.seen = clock_->Now();
  session.secret = NewId("").substr(1);
  Opened opened{.session = StatusOf(session), .secret = session.secret};
  sessions_[opened.session.name] = std::move(session);  // first: one that nobody knows the secret of expires
  name_of_[opened.secret] = opened.session.name;
  return opened;
}

absl::StatusOr<ClientSessions::Alive> ClientSessions::KeepAlive(const std::string& secret) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(Session * session, FindLocked(secret));
  Alive alive;
  alive.revived = session->ended_ns != 0;
  session->ended_ns = 0;
  session->told = false;
  session->status.seen = clock_->Now();
  alive.session = StatusOf(*session);
  return alive;
}

absl::StatusOr<SessionStatus> ClientSessions::Close(const std::string& secret) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(Session * session, FindLocked(secret));
  if (session->ended_ns == 0) session->ended_ns = clock_->Now().monotonic_ns;
  return StatusOf(*session);
}

absl::StatusOr<SessionStatus> ClientSessions::Find(const std::string& secret) {
  MutexLock lock(mutex_);
  OCTAVO_ASSIGN_OR_RETURN(Session * session, FindLocked(secret));
  if (session->ended_ns != 0) {
    return WithInfo(absl::NotFoundError(absl::StrCat(session->status.name, " has expired; KeepAlive revives it")),
                    {.reason = "NO_SESSION", .field = "session_secret", .numbers = {{"session", session->status.name}}});
  }
  session->status.seen = clock_->Now();
  return StatusOf(*session);
}

std::vector<SessionStatus> ClientSessions::List() {
  MutexLock lock(mutex_);
  EndOverdue();
  std::vector<SessionStatus> list;
  for (const auto& [name, session] : sessions_) list.push_back(StatusOf(session));
  std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.opened.monotonic_ns < b.opened.monotonic_ns; });
  return list;
}

bool ClientSessions::Gone(const std::string& name) {
  MutexLock lock(mutex_);
  EndOverdue();
  const auto it = sessions_.find(name);
  return it == sessions_.end() || it->second.ended_ns != 0;
}

std::vector<std::string> ClientSessions::Expire() {
  MutexLock lock(mutex_);
  EndOverdue();
  std::vector<std::string> ended;
  for (auto& [name, session] : sessions_) {
    if (session.ended_ns == 0 || session.told) continue;
    session.told = true;
    ended.push_back(name);
  }
  return ended;
}

ClientSessions::Counts ClientSessions::Count() {
  MutexLock lock(mutex_);
  EndOverdue();
  Counts counts{.alive = 0, .expired = expired_};
  for (const auto& [name, session] : sessions_) counts.alive += session.ended_ns == 0;
  return counts;
}

}  // namespace octavo::engine

#include "server/session/lease.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/base/resource_names.h"
#include "server/security/rights.h"

namespace octavo::session {
namespace {

int64_t Nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

/// `seconds` from now; 0: it has no expiry of its own.
void SetExpiry(const TimePoint& now, double seconds, Lease* lease) {
  lease->expires_ns = seconds > 0 ? now.monotonic_ns + Nanoseconds(seconds) : 0;
  lease->expires_unix_ns = seconds > 0 ? now.unix_ns + Nanoseconds(seconds) : 0;
}

absl::Status Lost(const std::string& what) {
  return WithInfo(absl::FailedPreconditionError(
                      absl::StrCat("the lease is lost: ", what, "; acquire it again")),
                  {.reason = Reason::kLeaseLost, .field = "lease_token", .numbers = {}});
}

/// `caller`: null if the server acts for itself.
absl::Status CheckOwner(const Lease& lease, const security::Principal* caller) {
  if (caller == nullptr) return absl::OkStatus();
  return security::MayChange(
      *caller, lease.owner, absl::StrCat("the lease of ", lease.resource, ", fence ", lease.fence));
}

absl::Status CheckSeconds(const char* field, double seconds, double most) {
  if (std::isfinite(seconds) && seconds >= 0 && seconds <= most) return absl::OkStatus();
  return FieldOutOfRange(field, seconds, 0, most);
}

}  // namespace

absl::Status NeedsTimeToLive() {
  return InvalidField(
      "ttl", absl::StrCat("is 0: without a session (session_secret) a lease has to end by itself; "
                          "allowed more than 0, at most ",
                          LeaseTable::kLongestLeaseSeconds, " s"));
}

const char* Name(LeaseMode mode) { return mode == LeaseMode::kExclusive ? "EXCLUSIVE" : "SHARED"; }

absl::Status LeaseTable::CheckRequest(const LeaseRequest& request) const {
  if (request.resource.empty())
    return InvalidField("resource", "is empty; give buffers/... or volumes/...");
  if (request.mode != LeaseMode::kShared && request.mode != LeaseMode::kExclusive) {
    return FieldNotAllowed("mode", static_cast<int>(request.mode), "SHARED, EXCLUSIVE");
  }
  OCTAVO_RETURN_IF_ERROR(CheckSeconds("ttl", request.seconds, kLongestLeaseSeconds));
  OCTAVO_RETURN_IF_ERROR(CheckSeconds("wait", request.wait_seconds, kLongestWaitSeconds));
  if (request.mode == LeaseMode::kExclusive && absl::StartsWith(request.resource, "volumes/")) {
    return WithInfo(
        absl::FailedPreconditionError(absl::StrCat(
            request.resource,
            " is sealed and cannot change, so no client needs it alone; ask for SHARED")),
        {.reason = Reason::kSealed, .field = "mode", .numbers = {}});
  }
  return absl::OkStatus();
}

bool LeaseTable::Fits(const Resource& resource, LeaseMode mode) {
  if (resource.held.empty()) return true;
  return mode == LeaseMode::kShared && resource.held.front().mode == LeaseMode::kShared;
}

absl::Status LeaseTable::CheckAlive(const std::string& session) const {
  if (session.empty() || sessions_ == nullptr || !sessions_->Gone(session)) return absl::OkStatus();
  return WithInfo(
      absl::NotFoundError(absl::StrCat(session, " has ended; KeepAlive revives it")),
      {.reason = Reason::kNoSession, .field = "session_secret", .numbers = {{"session", session}}});
}

absl::Status LeaseTable::Conflict(const Resource& resource, const std::string& name, bool waited) {
  return ConflictWith(resource.held.empty() ? nullptr : &resource.held.front(), resource, name,
                      waited);
}

absl::Status LeaseTable::ConflictWith(const Lease* lease, const Resource& resource,
                                      const std::string& name, bool waited) {
  const double left =
      lease == nullptr || lease->expires_ns == 0
          ? -1
          : static_cast<double>(lease->expires_ns - clock_->Now().monotonic_ns) * 1e-9;
  const std::string who = lease == nullptr          ? "a client that waits"
                          : !lease->holder.empty()  ? lease->holder
                          : !lease->session.empty() ? lease->session
                                                    : "another client";
  const std::string mode = lease == nullptr ? "waiting" : Name(lease->mode);
  const std::string text = absl::StrCat(
      name, " is leased (", mode, ") by ", who,
      left >= 0 ? absl::StrCat(" for ", left, " s more") : "",
      resource.waiting.empty() ? "" : absl::StrCat(", and ", resource.waiting.size(), " wait"),
      waited ? "; the wait ran out" : "");
  return WithInfo(waited ? absl::DeadlineExceededError(text) : absl::AbortedError(text),
                  {.reason = Reason::kLeased,
                   .field = "",
                   .numbers = {{"mode", mode},
                               {"holder", who},
                               {"expires_seconds", left >= 0 ? absl::StrCat(left) : "never"},
                               {"waiting", absl::StrCat(resource.waiting.size())},
                               {"retryable", "true"}}});
}

void LeaseTable::Uncount(const std::string& session, const std::string& resource,
                         int64_t SessionUse::*what) {
  const auto of = of_session_.find(session);
  const auto use = of->second.find(resource);
  --(use->second.*what);
  if (use->second.held + use->second.waiting > 0) return;
  of->second.erase(use);
  if (of->second.empty()) of_session_.erase(of);
}

std::list<Lease>::iterator LeaseTable::Drop(Resource& resource, std::list<Lease>::iterator lease) {
  Uncount(lease->session, lease->resource, &SessionUse::held);
  resource_of_.erase(lease->token);
  by_fence_.erase(lease->fence);
  shares_.erase(lease->fence);
  return resource.held.erase(lease);
}

LeaseTable::Waiter LeaseTable::Drop(Resource& resource, std::list<Waiter>::iterator waiter) {
  Uncount(waiter->request.session, waiter->request.resource, &SessionUse::waiting);
  waits_for_.erase(waiter->place);
  Waiter dropped = std::move(*waiter);
  resource.waiting.erase(waiter);
  --waiting_;
  return dropped;
}

Lease LeaseTable::Grant(Resource& resource, const LeaseRequest& request,
                        std::shared_ptr<void> share) {
  Lease lease{.resource = request.resource,
              .mode = request.mode,
              .token = base::NewId("").substr(1),
              .fence = ++last_fence_,
              .session = request.session,
              .holder = request.holder,
              .owner = request.owner,
              .granted_ns = clock_->Now().monotonic_ns,
              .expires_ns = 0};
  SetExpiry(clock_->Now(), request.seconds, &lease);
  std::list<Lease> one{lease};
  std::map<uint64_t, const Lease*> row{{lease.fence, &one.front()}};
  std::map<uint64_t, std::shared_ptr<void>> of_share;
  if (share != nullptr) of_share.emplace(lease.fence, std::move(share));
  (void)Failpoint("lease_granted");
  SessionUse& use = UseOf(request.session, request.resource);
  resource_of_.emplace(lease.token, request.resource);
  ++use.held;
  resource.held.splice(resource.held.end(), one);  // in all lists or in none
  by_fence_.merge(row);
  shares_.merge(of_share);
  ++totals_.granted;
  return lease;
}

LeaseTable::Resources::iterator LeaseTable::Settle(Resources::iterator it, Told* told) {
  Resource& resource = it->second;
  const int64_t now = clock_->Now().monotonic_ns;
  for (auto lease = resource.held.begin(); lease != resource.held.end();) {
    if (lease->expires_ns == 0 || lease->expires_ns > now) {
      ++lease;
      continue;
    }
    lease = Drop(resource, lease);
    ++totals_.expired;
  }
  // In order: the first waiter gets a lease that has become free, even if its time ran out at the
  // same moment.
  while (!resource.waiting.empty() && Fits(resource, resource.waiting.front().request.mode)) {
    Waiter waiter = Drop(resource, resource.waiting.begin());
    totals_.wait_seconds += static_cast<double>(now - waiter.since_ns) * 1e-9;
    told->emplace_back(std::move(waiter.done),
                       Grant(resource, waiter.request, std::move(waiter.share)));
  }
  for (auto waiter = resource.waiting.begin(); waiter != resource.waiting.end();) {
    if (waiter->until_ns > now) {
      ++waiter;
      continue;
    }
    ++totals_.waits_timed_out;
    Waiter late = Drop(resource, waiter++);
    told->emplace_back(std::move(late.done), Conflict(resource, it->first, /*waited=*/true));
  }
  // A waiter that gave up may have blocked those behind it.
  if (!resource.waiting.empty() && Fits(resource, resource.waiting.front().request.mode))
    return Settle(it, told);
  return resource.held.empty() && resource.waiting.empty() ? resources_.erase(it) : std::next(it);
}

void LeaseTable::SettleOne(const std::string& name, Told* told) {
  if (auto it = resources_.find(name); it != resources_.end()) Settle(it, told);
}

void LeaseTable::Tell(const Told& told) {
  for (const auto& [done, answer] : told) done(answer);
}

namespace {
/// Runs `act` under the table's lock, and then the callbacks that it causes.
template <class Act>
auto Telling(const Act& act) {
  LeaseTable::Told told;
  auto answer = act(&told);
  LeaseTable::Tell(told);
  return answer;
}
}  // namespace

absl::StatusOr<std::shared_ptr<void>> LeaseTable::TakeShare(const security::Owner& owner) {
  if (std::ssize(resource_of_) + waiting_ >= most_) {
    ++totals_.refused;
    return WithInfo(absl::ResourceExhaustedError(
                        absl::StrCat("there are ", resource_of_.size(), " leases, and ", waiting_,
                                     " wait for one; allowed lease.most = ", most_)),
                    {.reason = Reason::kLeases,
                     .field = "",
                     .numbers = {{"allowed", absl::StrCat(most_)}, {"retryable", "true"}}});
  }
  const std::string name = security::ShareOf(owner);
  if (name.empty()) return nullptr;
  std::shared_ptr<void> share = places_of_.Take(name);
  if (share != nullptr) return share;
  ++totals_.refused;
  return WithInfo(absl::ResourceExhaustedError(absl::StrCat(
                      name, " has ", places_of_.most(), " leases and waits for one; allowed to ",
                      "one principal is half of lease.most = ", most_, "; release some")),
                  {.reason = Reason::kLeases,
                   .field = "",
                   .numbers = {{"principal", name},
                               {"allowed", absl::StrCat(places_of_.most())},
                               {"retryable", "true"}}});
}

absl::StatusOr<Lease> LeaseTable::TryLocked(const LeaseRequest& request) {
  OCTAVO_RETURN_IF_ERROR(CheckAlive(request.session));
  OCTAVO_ASSIGN_OR_RETURN(std::shared_ptr<void> share, TakeShare(request.owner));
  Resource& resource = resources_[request.resource];
  if (!resource.waiting.empty() || !Fits(resource, request.mode)) {
    ++totals_.refused;
    return Conflict(resource, request.resource, /*waited=*/false);
  }
  return Grant(resource, request, std::move(share));
}

absl::StatusOr<Lease> LeaseTable::TryAcquire(const LeaseRequest& request) {
  return Telling([&](Told* told) { return TryAcquire(request, told); });
}

absl::StatusOr<Lease> LeaseTable::TryAcquire(const LeaseRequest& request, Told* told) {
  OCTAVO_RETURN_IF_ERROR(CheckRequest(request));
  MutexLock lock(mutex_);
  SettleOne(request.resource, told);
  return TryLocked(request);
}

uint64_t LeaseTable::Acquire(const LeaseRequest& request, Done done) {
  Told told;
  const uint64_t place = Acquire(request, std::move(done), &told);
  Tell(told);
  return place;
}

uint64_t LeaseTable::Acquire(const LeaseRequest& request, Done done, Told* told) {
  if (absl::Status status = CheckRequest(request); !status.ok()) {
    told->emplace_back(std::move(done), status);
    return 0;
  }
  MutexLock lock(mutex_);
  SettleOne(request.resource, told);
  if (request.wait_seconds == 0) {
    told->emplace_back(std::move(done), TryLocked(request));
    return 0;
  }
  if (const absl::Status alive = CheckAlive(request.session); !alive.ok()) {
    told->emplace_back(std::move(done), alive);
    return 0;
  }
  auto share = TakeShare(request.owner);
  if (!share.ok()) {
    told->emplace_back(std::move(done), share.status());
    return 0;
  }
  Resource& resource = resources_[request.resource];
  if (resource.waiting.empty() && Fits(resource, request.mode)) {
    told->emplace_back(std::move(done), Grant(resource, request, *std::move(share)));
    return 0;
  }
  const int64_t now = clock_->Now().monotonic_ns;
  const uint64_t place = ++last_place_;
  ++totals_.waits;
  SessionUse& use = UseOf(request.session, request.resource);
  waits_for_.emplace(place, request.resource);
  resource.waiting.push_back({.place = place,
                              .request = request,
                              .since_ns = now,
                              .until_ns = now + Nanoseconds(request.wait_seconds),
                              .done = std::move(done),
                              .share = *std::move(share)});
  ++use.waiting;
  ++waiting_;
  return place;
}

void LeaseTable::Withdraw(uint64_t place) {
  Told told;
  {
    MutexLock lock(mutex_);
    const auto name = waits_for_.find(place);
    if (name == waits_for_.end()) return;
    const auto it = resources_.find(name->second);
    auto& waiting = it->second.waiting;
    const auto waiter = std::find_if(waiting.begin(), waiting.end(),
                                     [&](const Waiter& w) { return w.place == place; });
    told.emplace_back(Drop(it->second, waiter).done,
                      absl::CancelledError("the wait for the lease was given up"));
    Settle(it, &told);
  }
  Tell(told);
}

Lease* LeaseTable::FindToken(const std::string& token, Told* told) {
  auto name = resource_of_.find(token);
  if (name == resource_of_.end()) return nullptr;
  const std::string resource = name->second;
  SettleOne(resource, told);
  auto it = resources_.find(resource);
  if (it == resources_.end()) return nullptr;
  auto& held = it->second.held;
  const auto lease =
      std::find_if(held.begin(), held.end(), [&](const Lease& l) { return l.token == token; });
  return lease == held.end() ? nullptr : &*lease;
}

absl::StatusOr<Lease> LeaseTable::Renew(const std::string& token, double seconds,
                                        const security::Principal* caller) {
  OCTAVO_RETURN_IF_ERROR(CheckSeconds("ttl", seconds, kLongestLeaseSeconds));
  Told told;
  absl::StatusOr<Lease> renewed = Lost("it expired, was given back, or never was");
  {
    MutexLock lock(mutex_);
    if (Lease* lease = FindToken(token, &told); lease == nullptr) {
      // as above
    } else if (const absl::Status may = CheckOwner(*lease, caller); !may.ok()) {
      renewed = may;
    } else if (seconds == 0 && lease->session.empty()) {
      renewed = NeedsTimeToLive();
    } else {
      SetExpiry(clock_->Now(), seconds, lease);
      renewed = *lease;
    }
  }
  Tell(told);
  return renewed;
}

absl::Status LeaseTable::Release(const std::string& token, const security::Principal* caller) {
  return Telling([&](Told* told) { return Release(token, caller, told); });
}

absl::Status LeaseTable::Release(const std::string& token, const security::Principal* caller,
                                 Told* told) {
  MutexLock lock(mutex_);
  const Lease* lease = FindToken(token, told);
  if (lease == nullptr) return Lost("it expired, was given back, or never was");
  OCTAVO_RETURN_IF_ERROR(CheckOwner(*lease, caller));
  auto it = resources_.find(lease->resource);
  std::list<Lease>& held = it->second.held;
  Drop(it->second,
       std::find_if(held.begin(), held.end(), [&](const Lease& l) { return l.token == token; }));
  Settle(it, told);
  return absl::OkStatus();
}

absl::StatusOr<Lease> LeaseTable::OfToken(const std::string& token) {
  return Telling([&](Told* told) -> absl::StatusOr<Lease> {
    MutexLock lock(mutex_);
    const Lease* const lease = FindToken(token, told);
    if (lease == nullptr) return Lost("it expired, was given back, or never was");
    return *lease;
  });
}

absl::Status LeaseTable::NoneOfFence(uint64_t fence) {
  return Lost(absl::StrCat("none has the fencing number ", fence, " (any more)"));
}

absl::StatusOr<Lease> LeaseTable::OfFence(uint64_t fence) {
  MutexLock lock(mutex_);
  const auto found = by_fence_.find(fence);
  const int64_t now = clock_->Now().monotonic_ns;
  if (found == by_fence_.end() ||
      (found->second->expires_ns != 0 && found->second->expires_ns <= now))
    return NoneOfFence(fence);
  const Lease& lease = *found->second;
  // Clients' leases end by themselves: NeedsTimeToLive.
  if (lease.session.empty() && lease.expires_ns == 0) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat("a running call (", lease.holder,
                                                               ") has the lease ", fence,
                                                               ", and gives it back when it ends")),
                    {.reason = Reason::kLeased, .field = "fence", .numbers = {}});
  }
  return lease;
}

absl::StatusOr<Lease> LeaseTable::Check(const std::string& resource, const std::string& token,
                                        uint64_t fence, LeaseMode mode) {
  return Telling([&](Told* told) { return Check(resource, token, fence, mode, told); });
}

absl::StatusOr<Lease> LeaseTable::Check(const std::string& resource, const std::string& token,
                                        uint64_t fence, LeaseMode mode, Told* told) {
  MutexLock lock(mutex_);
  const Lease* lease = FindToken(token, told);
  if (lease == nullptr) return Lost("it expired, was given back, or never was");
  if (lease->resource != resource)
    return Lost(absl::StrCat("it is one of ", lease->resource, ", not of ", resource));
  if (fence != 0 && fence != lease->fence)
    return Lost(absl::StrCat("its fencing number is ", lease->fence, ", not ", fence));
  if (mode == LeaseMode::kExclusive && lease->mode != LeaseMode::kExclusive) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(
                        "the lease of ", resource, " is SHARED; writing needs an EXCLUSIVE one")),
                    {.reason = Reason::kLeaseMode, .field = "lease_token", .numbers = {}});
  }
  return *lease;
}

absl::StatusOr<LeaseTable::Guard> LeaseTable::Enter(const std::string& resource, LeaseMode mode,
                                                    const std::string& token, uint64_t fence,
                                                    const std::string& holder, Told* told) {
  if (!token.empty()) {
    OCTAVO_ASSIGN_OR_RETURN(Lease lease, Check(resource, token, fence, mode, told));
    return Guard(this, std::move(lease), /*own=*/false);
  }
  OCTAVO_ASSIGN_OR_RETURN(
      Lease lease,
      TryAcquire({.resource = resource, .mode = mode, .session = "", .holder = holder}, told));
  return Guard(this, std::move(lease), /*own=*/true);
}

absl::Status LeaseTable::Guard::Stands() const {
  if (asked_ == nullptr || table_ != nullptr)
    return absl::OkStatus();  // a temporary lease ends only with its guard
  MutexLock lock(asked_->mutex_);
  const auto resource = asked_->resources_.find(lease_.resource);
  if (resource != asked_->resources_.end()) {
    const int64_t now = asked_->clock_->Now().monotonic_ns;
    for (const Lease& lease : resource->second.held) {
      if (lease.token == lease_.token && (lease.expires_ns == 0 || lease.expires_ns > now))
        return absl::OkStatus();
    }
  }
  return Lost("it ended while the operation waited for its turn");
}

absl::Status LeaseTable::CheckNobodyElse(const std::string& name, const std::string& own) {
  MutexLock lock(mutex_);
  const Resource none;
  const auto it = resources_.find(name);
  const Resource& resource = it == resources_.end() ? none : it->second;
  const int64_t now = clock_->Now().monotonic_ns;
  const Lease* other = nullptr;
  bool has_own = own.empty();
  for (const Lease& lease : resource.held) {
    if (lease.expires_ns != 0 && lease.expires_ns <= now) continue;
    if (!own.empty() && lease.token == own) {
      has_own = true;
    } else if (other == nullptr) {
      other = &lease;
    }
  }
  if (!has_own) return Lost(absl::StrCat("it expired, was given back, or is none of ", name));
  if (other == nullptr) return absl::OkStatus();
  ++totals_.refused;
  return ConflictWith(other, resource, name, /*waited=*/false);
}

bool LeaseTable::Leased(const std::string& name) {
  MutexLock lock(mutex_);
  const auto it = resources_.find(name);
  const int64_t now = clock_->Now().monotonic_ns;
  return it != resources_.end() &&
         std::any_of(it->second.held.begin(), it->second.held.end(),
                     [&](const Lease& l) { return l.expires_ns == 0 || l.expires_ns > now; });
}

void LeaseTable::Guard::Done() {
  if (table_ != nullptr) (void)std::exchange(table_, nullptr)->Release(lease_.token);
}

void LeaseTable::Guard::Done(Told* told) {
  if (table_ != nullptr) (void)std::exchange(table_, nullptr)->Release(lease_.token, nullptr, told);
}

void LeaseTable::Forget(const std::string& name) {
  Told told;
  Forget(name, &told);
  Tell(told);
}

void LeaseTable::Forget(const std::string& name, Told* told) {
  MutexLock lock(mutex_);
  auto it = resources_.find(name);
  if (it == resources_.end()) return;
  Resource& resource = it->second;
  while (!resource.held.empty()) Drop(resource, resource.held.begin());
  while (!resource.waiting.empty()) {
    told->emplace_back(Drop(resource, resource.waiting.begin()).done,
                       WithInfo(absl::NotFoundError(absl::StrCat(name, " is gone")),
                                {.reason = Reason::kNoBuffer, .field = "resource", .numbers = {}}));
  }
  resources_.erase(it);
}

void LeaseTable::EndOf(const std::string& session, const std::string& name, Told* told) {
  const auto it = resources_.find(name);
  if (it == resources_.end()) return;  // a grant that failed left its place
  Resource& resource = it->second;
  for (auto lease = resource.held.begin(); lease != resource.held.end();)
    lease = lease->session == session ? Drop(resource, lease) : std::next(lease);
  for (auto waiter = resource.waiting.begin(); waiter != resource.waiting.end();) {
    const auto next = std::next(waiter);
    if (waiter->request.session == session) {
      told->emplace_back(Drop(resource, waiter).done,
                         absl::CancelledError(absl::StrCat(session, " has ended")));
    }
    waiter = next;
  }
  Settle(it, told);
}

void LeaseTable::EndSessions(const std::set<std::string>& sessions) {
  const auto ended = [&](const std::string& session) {
    return !session.empty() && (sessions_ == nullptr || sessions_->Gone(session));
  };
  Told told;
  {
    MutexLock lock(mutex_);
    for (const std::string& session : sessions) {
      if (!ended(session)) continue;
      const auto of = of_session_.find(session);
      if (of == of_session_.end()) continue;
      std::vector<std::string> names;  // the drops change the map
      for (const auto& [name, use] : of->second) names.push_back(name);
      for (const std::string& name : names) EndOf(session, name, &told);
    }
  }
  Tell(told);
}

void LeaseTable::Expire() {
  Told told;
  {
    MutexLock lock(mutex_);
    for (auto it = resources_.begin(); it != resources_.end();) it = Settle(it, &told);
  }
  Tell(told);
}

std::vector<Lease> LeaseTable::List(const std::string& resource) {
  if (resource.empty()) Expire();
  Told told;
  std::vector<Lease> list;
  {
    MutexLock lock(mutex_);
    if (!resource.empty()) SettleOne(resource, &told);
    const auto begin = resource.empty() ? resources_.begin() : resources_.find(resource);
    const auto end =
        resource.empty() || begin == resources_.end() ? resources_.end() : std::next(begin);
    for (auto it = begin; it != end; ++it)
      list.insert(list.end(), it->second.held.begin(), it->second.held.end());
  }
  Tell(told);
  return list;
}

std::vector<Lease> LeaseTable::ListAfter(uint64_t fence, size_t most) {
  MutexLock lock(mutex_);
  const int64_t now = clock_->Now().monotonic_ns;
  std::vector<Lease> list;
  for (auto it = by_fence_.upper_bound(fence); it != by_fence_.end() && list.size() < most; ++it) {
    if (it->second->expires_ns == 0 || it->second->expires_ns > now) list.push_back(*it->second);
  }
  return list;
}

// Handles this resource only, because lists of leased resources call this for each one.
LeaseTable::Counts LeaseTable::CountOf(const std::string& resource) {
  MutexLock lock(mutex_);
  Counts counts;
  const auto it = resources_.find(resource);
  if (it == resources_.end()) return counts;
  const int64_t now = clock_->Now().monotonic_ns;
  for (const Lease& lease : it->second.held) {
    if (lease.expires_ns == 0 || lease.expires_ns > now)
      ++(lease.mode == LeaseMode::kShared ? counts.shared : counts.exclusive);
  }
  const auto& waiting = it->second.waiting;
  counts.waiting = std::count_if(waiting.begin(), waiting.end(),
                                 [&](const Waiter& waiter) { return waiter.until_ns > now; });
  return counts;
}

int64_t LeaseTable::CountOfSession(const std::string& session) {
  MutexLock lock(mutex_);
  const auto of = of_session_.find(session);
  if (of == of_session_.end()) return 0;
  const int64_t now = clock_->Now().monotonic_ns;
  int64_t count = 0;
  for (const auto& [name, use] : of->second) {
    const auto resource = resources_.find(name);
    if (resource == resources_.end()) continue;  // a grant that failed left its place
    for (const Lease& lease : resource->second.held)
      count += lease.session == session && (lease.expires_ns == 0 || lease.expires_ns > now);
  }
  return count;
}

LeaseTable::Totals LeaseTable::CountAll() {
  Expire();
  MutexLock lock(mutex_);
  Totals totals = totals_;
  for (const auto& [name, row] : resources_) {
    for (const Lease& lease : row.held)
      ++(lease.mode == LeaseMode::kShared ? totals.now.shared : totals.now.exclusive);
    totals.now.waiting += std::ssize(row.waiting);
  }
  return totals;
}

}  // namespace octavo::session

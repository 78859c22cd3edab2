#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "server/base/places_by_name.h"
#include "server/security/owner.h"
#include "server/security/principal.h"
#include "server/security/shares.h"
#include "server/session/client_sessions.h"

namespace octavo::session {

enum class LeaseMode : uint8_t { kShared = 1, kExclusive = 2 };
const char* Name(LeaseMode mode);  // "SHARED"
/// The refusal of a client's lease that would never end by itself.
absl::Status NeedsTimeToLive();

/// A row of the lease table.
struct Lease {
  std::string resource;  // "buffers/...", "volumes/..."
  LeaseMode mode = LeaseMode::kShared;
  std::string token;    // 32 hex digits, known to the holder only
  uint64_t fence = 0;   // fencing number: each grant of this table has a larger one than all before
  std::string session;  // "sessions/...": the lease ends with it; empty = none
  std::string holder;   // for people: the name of the session, or of the call that took the lease
  security::Owner owner;  // who asked for it; nobody's for the lease of a call
  int64_t granted_ns = 0;
  int64_t expires_ns = 0;  // monotonic; 0 = no expiry of its own
  int64_t expires_unix_ns = 0;
};

struct LeaseRequest {
  std::string resource;
  LeaseMode mode = LeaseMode::kShared;
  std::string session;
  std::string holder;
  security::Owner owner = {};
  // time until it expires unless renewed; 0 = with its session (without a session: when released)
  double seconds = 0;
  double wait_seconds = 0;  // how long to wait in the queue; 0 = do not wait
};

/// Leases: rows {resource, mode, token, fencing number, holder, expiry}, not locks held across
/// calls. A resource has any number of shared leases or one exclusive lease. First come, first
/// served: a later request does not overtake a waiter, so writers do not starve. No call blocks:
/// waiting is a callback. Scans never use this table.
///
/// Every call handles leases that have expired by then; Expire, which a housekeeping thread calls,
/// answers waits that ran out. Thread-safe. Callbacks run without locks, on the thread whose call
/// caused them (Release, Renew, EndSession, Forget, Expire, Acquire).
class LeaseTable {
 public:
  using Done = std::function<void(absl::StatusOr<Lease>)>;
  /// A caller that holds its own lock passes one: pending callbacks are added to it, and the caller
  /// runs them with Tell after releasing the lock.
  using Told = std::vector<std::pair<Done, absl::StatusOr<Lease>>>;
  static void Tell(const Told& told);

  /// `most`: limit of leases plus waiters, over all resources. `sessions`: the table asks it, under
  /// its own lock, whether a session has ended, so that no lease is granted to a session that ends
  /// at this moment; null: sessions are not looked at.
  explicit LeaseTable(const Clock* clock, int64_t most = 65'536, ClientSessions* sessions = nullptr)
      : clock_(clock), most_(most), sessions_(sessions), places_of_(security::HalfOf(most)) {}

  /// Grants at once or not at all. Aborted (LEASED; numbers: mode, holder, expires_seconds,
  /// waiting) if it conflicts with a lease or there is a waiter; wait_seconds is ignored.
  /// FailedPrecondition (SEALED) for an exclusive one on a volume. ResourceExhausted (LEASES) if
  /// the table is full, or an owner that is no admin has half of it.
  absl::StatusOr<Lease> TryAcquire(const LeaseRequest& request);

  /// As TryAcquire, but waits in the queue for up to request.wait_seconds (at most
  /// kLongestWaitSeconds): calls `done` exactly once, possibly before this returns.
  /// DeadlineExceeded (LEASED) if the time ran out; NotFound (NO_BUFFER) if the resource is gone;
  /// Cancelled if Withdraw came first or the session ended. Returns an id of the waiter for
  /// Withdraw; 0 = answered already.
  uint64_t Acquire(const LeaseRequest& request, Done done);
  uint64_t Acquire(const LeaseRequest& request, Done done, Told* told);
  /// Removes a waiter whose client went away. Does nothing if the waiter was answered meanwhile.
  void Withdraw(uint64_t place);

  /// Moves the expiry to `seconds` from now (0 = as long as the session; without one
  /// InvalidArgument). FailedPrecondition (LEASE_LOST). `caller`: null if the server acts for
  /// itself; else also PermissionDenied (NOT_OWNER).
  absl::StatusOr<Lease> Renew(const std::string& token, double seconds,
                              const security::Principal* caller = nullptr);
  /// FailedPrecondition (LEASE_LOST) if there is no such lease (any more). `caller`: as above.
  absl::Status Release(const std::string& token, const security::Principal* caller = nullptr);

  /// A client's lease, by its fencing number. FailedPrecondition: LEASE_LOST if there is none (any
  /// more); LEASED if a call under way has taken it for its duration.
  absl::StatusOr<Lease> OfFence(uint64_t fence);
  /// The error of OfFence for a fencing number that no lease has.
  static absl::Status NoneOfFence(uint64_t fence);
  /// The lease of a token. FailedPrecondition (LEASE_LOST) if there is none (any more).
  absl::StatusOr<Lease> OfToken(const std::string& token);

  /// Checks the token of an operation: OK if it names a live lease of `resource` that allows
  /// `mode`. FailedPrecondition: LEASE_LOST (unknown, expired, of something else), LEASE_MODE
  /// (shared, but the operation writes). `fence` (0 = not given) must be the lease's own: a delayed
  /// operation of an earlier lease is refused as LEASE_LOST.
  absl::StatusOr<Lease> Check(const std::string& resource, const std::string& token, uint64_t fence,
                              LeaseMode mode);
  /// OK if there is no lease of `resource` except the one with the token `own` (empty = none).
  /// Aborted (LEASED: names the holder of the first), or FailedPrecondition (LEASE_LOST) if `own`
  /// is no live lease of it. Makes no callbacks, so it may be called under the lock of the store
  /// that owns the resource.
  absl::Status CheckNobodyElse(const std::string& resource, const std::string& own);

  /// Whether there is a lease of it.
  bool Leased(const std::string& resource);

  /// Every operation runs under a lease: the caller's (checked) if the call carries a token, else a
  /// temporary one that the guard releases. Operations therefore exclude each other and the leases
  /// of others, whether or not clients use leases at all.
  class Guard {
   public:
    Guard() = default;
    Guard(Guard&& other) noexcept
        : table_(std::exchange(other.table_, nullptr)),
          asked_(other.asked_),
          lease_(std::move(other.lease_)) {}
    Guard& operator=(Guard&& other) noexcept {
      if (this != &other) {
        Done();
        table_ = std::exchange(other.table_, nullptr);
        asked_ = other.asked_;
        lease_ = std::move(other.lease_);
      }
      return *this;
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard() { Done(); }
    const Lease& lease() const { return lease_; }
    /// OK while the lease is valid: the caller's own lease may have ended since. Call this under
    /// the lock of the store that owns the resource, right before the operation acts: then the next
    /// lease through that store comes after the operation. Makes no callbacks.
    absl::Status Stands() const;
    /// Releases a temporary lease now; leaves the caller's own.
    void Done();
    void Done(Told* told);

   private:
    friend class LeaseTable;
    Guard(LeaseTable* table, Lease lease, bool own)
        : table_(own ? table : nullptr), asked_(table), lease_(std::move(lease)) {}
    LeaseTable* table_ = nullptr;  // null: no lease to return
    LeaseTable* asked_ = nullptr;
    Lease lease_;
  };
  absl::StatusOr<Guard> Enter(const std::string& resource, LeaseMode mode, const std::string& token,
                              uint64_t fence, const std::string& holder, Told* told);

  /// The resource is gone: ends its leases and answers its waiters.
  void Forget(const std::string& resource);
  void Forget(const std::string& resource, Told* told);
  /// The client is gone: ends its leases and removes its waiters. Does nothing if the session was
  /// revived since.
  void EndSession(const std::string& session) { EndSessions({session}); }
  void EndSessions(const std::set<std::string>& sessions);
  /// Ends expired leases and answers the waits that ran out.
  void Expire();

  std::vector<Lease> List(
      const std::string& resource = "");  // of all resources if empty; by resource, oldest first
  /// Up to `most` leases of all resources whose fence is greater than `fence`, by fence; without
  /// expired ones, even if these were not handled yet. Makes no callbacks.
  std::vector<Lease> ListAfter(uint64_t fence, size_t most);
  struct Counts {
    int64_t shared = 0, exclusive = 0, waiting = 0;
  };
  /// The present state, without expired leases and waits, even if these were not handled yet. Makes
  /// no callbacks.
  Counts CountOf(const std::string& resource);
  int64_t CountOfSession(const std::string& session);  // leases held
  struct Totals {
    Counts now;
    int64_t granted = 0, expired = 0, refused = 0, waits = 0, waits_timed_out = 0;
    double wait_seconds = 0;  // of the waits that were answered with a lease
  };
  Totals CountAll();

  static constexpr double kLongestWaitSeconds = 300;
  static constexpr double kLongestLeaseSeconds = 24 * 3600;

 private:
  struct Waiter {
    uint64_t place = 0;
    LeaseRequest request;
    int64_t since_ns = 0, until_ns = 0;
    Done done;
    std::shared_ptr<void> share;  // of TakeShare
  };
  struct Resource {
    std::list<Lease> held;      // oldest first
    std::list<Waiter> waiting;  // first come first
  };
  using Resources = std::map<std::string, Resource>;

  /// The leases and waiters of a session for one resource.
  struct SessionUse {
    int64_t held = 0, waiting = 0;
  };
  /// Where a lease or a waiter of the session is counted.
  SessionUse& UseOf(const std::string& session, const std::string& resource)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return of_session_[session][resource];
  }
  /// One lease, or one waiter, less.
  void Uncount(const std::string& session, const std::string& resource, int64_t SessionUse::*what)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Takes a lease out of the table.
  std::list<Lease>::iterator Drop(Resource& resource, std::list<Lease>::iterator lease)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Takes a waiter out of the table.
  Waiter Drop(Resource& resource, std::list<Waiter>::iterator waiter)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  /// Ends the leases and waits of a session for one resource.
  void EndOf(const std::string& session, const std::string& name, Told* told)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Status CheckRequest(const LeaseRequest& request) const;
  absl::Status CheckAlive(const std::string& session) const;
  static bool Fits(const Resource& resource, LeaseMode mode);
  absl::Status Conflict(const Resource& resource, const std::string& name, bool waited)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ConflictWith(const Lease* lease, const Resource& resource, const std::string& name,
                            bool waited) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Lease Grant(Resource& resource, const LeaseRequest& request, std::shared_ptr<void> share)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Lease> TryLocked(const LeaseRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Lease> TryAcquire(const LeaseRequest& request, Told* told);
  absl::Status Release(const std::string& token, const security::Principal* caller, Told* told);
  absl::StatusOr<Lease> Check(const std::string& resource, const std::string& token, uint64_t fence,
                              LeaseMode mode, Told* told);
  /// Ends expired leases, answers waits that ran out, grants to the first waiters; removes the
  /// resource when it has no lease or waiter left. Returns the resource after this one.
  Resources::iterator Settle(Resources::iterator it, Told* told)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SettleOne(const std::string& name, Told* told) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// The row of a token, after removing expired leases; null if there is none.
  Lease* FindToken(const std::string& token, Told* told) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  /// A place in the table, of the owner's half; null for those who have no limit.
  absl::StatusOr<std::shared_ptr<void>> TakeShare(const security::Owner& owner)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock* const clock_;
  const int64_t most_;
  ClientSessions* const sessions_;  // null: sessions end only through EndSession
  base::PlacesByName places_of_;
  Mutex mutex_;
  Resources resources_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> resource_of_ ABSL_GUARDED_BY(mutex_);    // by token
  std::map<uint64_t, std::string> waits_for_ ABSL_GUARDED_BY(mutex_);         // resource, by place
  std::map<uint64_t, const Lease*> by_fence_ ABSL_GUARDED_BY(mutex_);         // all that are held
  std::map<uint64_t, std::shared_ptr<void>> shares_ ABSL_GUARDED_BY(mutex_);  // by fence
  // By session and resource, so that the end of a session looks at its own resources only.
  std::map<std::string, std::map<std::string, SessionUse>> of_session_ ABSL_GUARDED_BY(mutex_);
  int64_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;  // of all resources
  uint64_t last_fence_ ABSL_GUARDED_BY(mutex_) = 0, last_place_ ABSL_GUARDED_BY(mutex_) = 0;
  Totals totals_ ABSL_GUARDED_BY(mutex_);  // `now` unused
};

}  // namespace octavo::session

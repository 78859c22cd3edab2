#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "server/session/client_sessions.h"

namespace octavo::session {

enum class LeaseMode : uint8_t { kShared = 1, kExclusive = 2 };
const char* Name(LeaseMode mode);  // "SHARED"

/// A row of the lease table.
struct Lease {
  std::string resource;  // "buffers/...", "volumes/..."
  LeaseMode mode = LeaseMode::kShared;
  std::string token;    // 32 hex digits, known to the holder only
  uint64_t fence = 0;   // fencing number: each grant of this table has a larger one than all before
  std::string session;  // "sessions/...": the lease ends with it; empty = none
  std::string holder;   // for people: what the session calls itself, or the call that took it
  int64_t granted_ns = 0;
  int64_t expires_ns = 0;  // monotonic; 0 = not by itself
};

struct LeaseRequest {
  std::string resource;
  LeaseMode mode = LeaseMode::kShared;
  std::string session;
  std::string holder;
  double seconds = 0;  // until it expires unless renewed; 0 = with its session (without a session:
                       // when released)
  double wait_seconds = 0;  // how long to stand in the queue; 0 = try
};

/// Leases: rows {resource, mode, token, fencing number, holder, expiry}, not locks held across
/// calls. Any number of shared ones or one exclusive one for a resource. First come, first served:
/// whoever comes later does not overtake somebody who waits, so writers do not starve. Nothing here
/// blocks: waiting is a callback. The engine's scans never ask this table for anything.
///
/// Time passes with every call; waits that ran out are told by Expire, which a housekeeping thread
/// calls. Thread-safe. Callbacks run without locks, on the thread whose call brought them about
/// (Release, Renew, EndSession, Forget, Expire, Acquire).
class LeaseTable {
 public:
  using Done = std::function<void(absl::StatusOr<Lease>)>;
  /// Who holds a lock of his own gives one: the calls that are to be made are added to it, for Tell
  /// without the lock.
  using Told = std::vector<std::pair<Done, absl::StatusOr<Lease>>>;
  static void Tell(const Told& told);

  /// `most`: leases and places in queues, of all resources together.
  /// `sessions`: asked under the table's lock whether a session has ended, so that no lease is
  /// granted to one that ends in this moment; null: sessions are not looked at.
  explicit LeaseTable(const Clock* clock, int64_t most = 65'536, ClientSessions* sessions = nullptr)
      : clock_(clock), most_(most), sessions_(sessions) {}

  /// Grants at once or not at all. Aborted (LEASED; numbers: mode, holder, expires_seconds,
  /// waiting) if it conflicts with a lease or somebody waits; wait_seconds is ignored.
  /// FailedPrecondition (SEALED) for an exclusive one on a volume. ResourceExhausted (LEASES) if
  /// the table is full.
  absl::StatusOr<Lease> TryAcquire(const LeaseRequest& request);

  /// As TryAcquire, standing in the queue for up to request.wait_seconds (at most
  /// kLongestWaitSeconds): `done` is called exactly once, possibly before this returns.
  /// DeadlineExceeded (LEASED) if the time ran out; NotFound (NO_BUFFER) if the resource went;
  /// Cancelled if Withdraw came first or the session ended. Returns the place in the queue for
  /// Withdraw; 0 = answered already.
  uint64_t Acquire(const LeaseRequest& request, Done done);
  uint64_t Acquire(const LeaseRequest& request, Done done, Told* told);
  /// The client went away: takes its place out of the queue. Nothing if it was answered meanwhile.
  void Withdraw(uint64_t place);

  /// Moves the expiry to `seconds` from now (0 = as long as the session). FailedPrecondition
  /// (LEASE_LOST).
  absl::StatusOr<Lease> Renew(const std::string& token, double seconds);
  /// FailedPrecondition (LEASE_LOST) if there is no such lease (any more).
  absl::Status Release(const std::string& token);

  /// What every operation asks that comes with a token: OK if the token is a live lease of
  /// `resource` that allows `mode`. FailedPrecondition: LEASE_LOST (unknown, expired, of something
  /// else), LEASE_MODE (shared, but the operation writes). `fence` (0 = not given) must be the
  /// lease's own: a delayed operation of an earlier lease is refused as LEASE_LOST.
  absl::StatusOr<Lease> Check(const std::string& resource, const std::string& token, uint64_t fence,
                              LeaseMode mode);
  /// OK if nobody has a lease of `resource`, but for the one with the token `own` (empty = none).
  /// Aborted (LEASED: names the holder of the first), or FailedPrecondition (LEASE_LOST) if `own`
  /// is no live lease of it. Calls nobody back: it may be asked under the lock of the store that
  /// owns the resource.
  absl::Status CheckNobodyElse(const std::string& resource, const std::string& own);

  /// Whether anybody has a lease of it.
  bool Leased(const std::string& resource);

  /// The operation itself is done under a lease: the caller's (checked) if it came with a token,
  /// else a new one (tried) that the guard gives back. So operations exclude each other and leases
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
    /// OK while the lease stands: the caller's own may have ended since. To be asked under the lock
    /// of the store that owns the resource, right before the operation acts: whoever gets the next
    /// lease through that store comes after it then. Calls nobody back.
    absl::Status Stands() const;
    /// Gives a new lease back now; leaves the caller's own.
    void Done();
    void Done(Told* told);

   private:
    friend class LeaseTable;
    Guard(LeaseTable* table, Lease lease, bool own)
        : table_(own ? table : nullptr), asked_(table), lease_(std::move(lease)) {}
    LeaseTable* table_ = nullptr;  // null: nothing to give back
    LeaseTable* asked_ = nullptr;
    Lease lease_;
  };
  absl::StatusOr<Guard> Enter(const std::string& resource, LeaseMode mode, const std::string& token,
                              uint64_t fence, const std::string& holder, Told* told);

  /// The resource is gone: its leases are lost, whoever waits is told.
  void Forget(const std::string& resource);
  void Forget(const std::string& resource, Told* told);
  /// The client is gone: so are its leases and its places in queues. Nothing if it has come back
  /// since.
  void EndSession(const std::string& session) { EndSessions({session}); }
  void EndSessions(const std::set<std::string>& sessions);
  /// Ends what has expired and answers the waits that ran out.
  void Expire();

  std::vector<Lease> List(
      const std::string& resource = "");  // of all resources if empty; by resource, oldest first
  struct Counts {
    int64_t shared = 0, exclusive = 0, waiting = 0;
  };
  /// As it is now: whose time has run out does not count, whether or not it was told. Calls nobody
  /// back.
  Counts CountOf(const std::string& resource);
  std::map<std::string, int64_t> CountBySession();  // leases held; "" = of no session
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
  };
  struct Resource {
    std::list<Lease> held;      // oldest first
    std::list<Waiter> waiting;  // first come first
  };
  using Resources = std::map<std::string, Resource>;

  absl::Status CheckRequest(const LeaseRequest& request) const;
  absl::Status CheckAlive(const std::string& session) const;
  static bool Fits(const Resource& resource, LeaseMode mode);
  absl::Status Conflict(const Resource& resource, const std::string& name, bool waited)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ConflictWith(const Lease* lease, const Resource& resource, const std::string& name,
                            bool waited) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Lease Grant(Resource& resource, const LeaseRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Lease> TryLocked(const LeaseRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Lease> TryAcquire(const LeaseRequest& request, Told* told);
  absl::Status Release(const std::string& token, Told* told);
  absl::StatusOr<Lease> Check(const std::string& resource, const std::string& token, uint64_t fence,
                              LeaseMode mode, Told* told);
  /// Lets expired leases go, tells waits that ran out, grants to whoever is first; forgets the
  /// resource when nothing is left of it. Returns the resource after this one.
  Resources::iterator Settle(Resources::iterator it, Told* told)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SettleOne(const std::string& name, Told* told) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// The row of a token, after what has expired is gone; null if there is none.
  Lease* FindToken(const std::string& token, Told* told) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Status CheckRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock* const clock_;
  const int64_t most_;
  ClientSessions* const sessions_;  // null: none ends but by EndSession
  Mutex mutex_;
  Resources resources_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> resource_of_ ABSL_GUARDED_BY(mutex_);  // by token
  int64_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;                             // of all resources
  uint64_t last_fence_ ABSL_GUARDED_BY(mutex_) = 0, last_place_ ABSL_GUARDED_BY(mutex_) = 0;
  Totals totals_ ABSL_GUARDED_BY(mutex_);  // `now` unused
};

}  // namespace octavo::session

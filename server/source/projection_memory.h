#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"

// Host memory for pushed projections (device.projection_bytes), and who may have how much of it.
//
// A job takes the memory of all its frames when it is submitted, and its ring when that is opened,
// because a scanner must not find the memory gone in the middle of a scan. So a principal could
// have all of it by submitting one job that nothing is pushed to; nobody else could push then, and
// no quota bounds that by default (quota.jobs counts jobs, not bytes). Therefore:
//
// - As soon as a second principal has asked for such memory, since the start, each has at most half
//   of it, as with sessions, leases and tickets (security::ShareOf). What one took before that
//   stays his until his jobs end, but he gets no more.
// - While only one principal has asked, the server gives him at most seven eighths. Most machines
//   have one user, and the server should not refuse his largest scan for people who do not exist.
//   The server keeps the last eighth for the next principal: without it the first one could take
//   all before the next one asks.
// - Admins have no share: they may cancel everybody's jobs anyway. The user who runs the server is
//   one at its Unix socket.
// - What the server takes by itself (chunks of files, imports while they read) is nobody's share.
//   It ends with the work that it is for, or is done without.
//
// Principals who act together are not told apart from people who work together.
namespace octavo::source {

/// Host memory that the frames and rings of all ports, and the reading of imports, may take
/// together. Thread-safe; must outlive the ports' memory and all reservations.
class ProjectionMemory {
 public:
  explicit ProjectionMemory(int64_t limit_bytes) : limit_(limit_bytes) {}

  /// What is wanted, and the words for a refusal: "<field>: <what> 4096 bytes of host memory; ...".
  struct Claim {
    int64_t bytes = 0;
    std::string payer;  // as security::ShareOf; empty = no share
    std::string field, what;
  };
  /// Zeroed memory, returned to the budget with the last reference. ResourceExhausted (HOST_MEMORY:
  /// wanted, free, limit; or wanted, held, allowed, limit: the share of the payer).
  absl::StatusOr<std::shared_ptr<char>> Take(const Claim& claim);
  /// Counts memory that the caller allocates itself, until the last reference is gone. Errors as
  /// Take.
  absl::StatusOr<std::shared_ptr<void>> Reserve(const Claim& claim);
  /// The same for the server itself. Null if there is not as much.
  std::shared_ptr<void> Reserve(int64_t bytes);
  int64_t limit_bytes() const { return limit_; }
  int64_t used_bytes();

 private:
  absl::Status TakeLocked(const Claim& claim) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t AllowedTo(const std::string& payer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveBack(int64_t bytes, const std::string& payer);

  const int64_t limit_;
  Mutex mutex_;
  int64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, int64_t> held_ ABSL_GUARDED_BY(mutex_);  // bytes by payer, none of 0
  std::string first_ ABSL_GUARDED_BY(mutex_);     // payer that asked first; empty: none has
  bool several_ ABSL_GUARDED_BY(mutex_) = false;  // others have asked, too
};

}  // namespace octavo::source

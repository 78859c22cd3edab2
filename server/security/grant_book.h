#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "server/security/grant.h"
#include "server/security/grant_file.h"
#include "server/security/principal.h"

namespace octavo::security {

/// The grants of a server: who else may change whose objects. A change is on the disk before the
/// call returns, and one that the disk did not take has changed nothing. Whoever asks never waits
/// for a disk. A grant ends by the wall clock, which a restart does not stop. Thread-safe.
class GrantBook {
 public:
  struct Limits {
    size_t of_owner = 1000, in_all = 10'000;  // grants
  };
  /// With the grants of the file; `aside` gets a line if it had to be put aside (GrantFile::Read).
  /// `clock` must outlive the book.
  static absl::StatusOr<std::unique_ptr<GrantBook>> Open(const std::string& path,
                                                         const std::string& server_id,
                                                         const Clock* clock, std::string* aside,
                                                         Limits limits = DefaultLimits());
  /// A book that is in memory alone, and ends with the process.
  GrantBook(const std::string& server_id, const Clock* clock, Limits limits = DefaultLimits());

  /// Grants `object` (empty = all) of `owner`. One that gives the same to the same gets the new
  /// end, keeps its name and becomes the newest. ResourceExhausted (GRANTS, DISK_FULL), Internal
  /// (IO_ERROR).
  absl::StatusOr<Grant> Put(const Owner& owner, const std::string& object,
                            const std::string& grantee, int64_t ttl_ns);
  /// Takes a grant back if `may` allows it; returns it as it was. NotFound (GRANT_ENDED), errors of
  /// `may`, ResourceExhausted (DISK_FULL), Internal (IO_ERROR).
  absl::StatusOr<Grant> Remove(const std::string& name,
                               const std::function<absl::Status(const Grant&)>& may);
  /// Those that have not ended and were granted after number `after`, oldest first, at most `most`.
  std::vector<Grant> List(uint64_t after = 0,
                          size_t most = std::numeric_limits<size_t>::max()) const;
  /// How many have not ended.
  int64_t Count() const;
  /// What is granted to the caller now; null = nothing, as to callers without an identity.
  std::shared_ptr<const GrantedObjects> Of(const Principal& caller) const;

 private:
  /// What one grantee has, as long as the wall clock stands from `from_ns` to before `until_ns`; at
  /// first never.
  struct Snapshot {
    std::shared_ptr<const GrantedObjects> granted;
    int64_t from_ns = 0, until_ns = 0;
  };
  using Snapshots = std::map<std::string, Snapshot>;  // of all who have grants
  using Grants = std::vector<Grant>;                  // by number

  GrantBook(std::optional<GrantFile> file, const std::string& server_id, const Clock* clock,
            Limits limits, Grants grants);
  static Limits DefaultLimits() { return {}; }
  int64_t NowNs() const { return clock_->Now().unix_ns; }
  Grants NotEnded() const;
  absl::Status CheckRoom(const Grants& grants, const Owner& owner) const;
  /// Writes the grants, then takes them over.
  absl::Status TakeOver(Grants grants) ABSL_EXCLUSIVE_LOCKS_REQUIRED(writing_);

  const std::optional<GrantFile> file_;
  const std::string server_id_;
  const Clock* const clock_;
  const Limits limits_;
  // One change after another. Whoever writes holds it while the disk works; whoever asks never
  // takes it. Before mutex_.
  Mutex writing_;
  uint64_t last_number_ ABSL_GUARDED_BY(writing_) = 0;
  std::string written_ ABSL_GUARDED_BY(writing_);  // what the file holds
  mutable Mutex mutex_;
  Grants grants_ ABSL_GUARDED_BY(mutex_);
  mutable Snapshots of_grantee_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::security

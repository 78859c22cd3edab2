#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "server/base/device_names.h"
#include "server/memory/quota.h"
#include "server/model/status_types.h"
#include "server/security/owner.h"

namespace octavo::memory {

/// The purpose of a charge.
enum class ChargeKind : uint8_t {
  kReserved = 0,  // granted to a scan: slots without a volume, ring, workspaces
  kHeld = 1,      // a volume
  kBuffer = 2,    // a buffer that a client made
  kCached = 3,   // a slot of an ended scan, kept for the next one; makes room for any other request
  kDetached = 4  // released for the API, but another process still maps it
};

/// The account of device memory: owner, purpose and bytes of each charge on each device. Plain
/// bookkeeping without device calls. Invariant per device, at every moment: reserved + held +
/// buffers + cached + detached <= budget. Thread-safe.
///
/// A charge has a payer, whose quota (memory/quota.h) it uses until it ends or goes to the cache;
/// without one, it is the server's own, or a moment's work.
class Ledger {
 public:
  using ChargeId = int64_t;
  using Needs = std::vector<model::AdmissionReport::Item>;

  /// `quotas`: null = nobody pays; must outlive the ledger. `host_for_jobs`: the last device is
  /// devices/host.
  explicit Ledger(std::vector<int64_t> budgets, QuotaBook* quotas = nullptr,
                  bool host_for_jobs = false);

  /// Frees the memory of these cached charges (which have ended already). Reserve calls it without
  /// locks before it returns, so that the owner of the new charge may allocate at once. Set it
  /// before the first charge is cached.
  void SetReclaim(std::function<void(const std::vector<ChargeId>&)> reclaim) {
    reclaim_ = std::move(reclaim);
  }

  /// The answer that Reserve would give now for `needs` on `device`. Changes nothing.
  model::AdmissionReport Plan(int device, const Needs& needs) const;

  /// Reserves all of `needs` or nothing. Returns one charge per piece, in the order of needs
  /// (item.count pieces of item.bytes / item.count each). Cached charges make room, the longest
  /// cached first. ResourceExhausted (DEVICE_FULL, or EXCEEDS_BUDGET when it can never fit) with
  /// wanted, free and budget; `report` (may be null) gets the full account. ResourceExhausted
  /// (QUOTA) if the payer may not have so much; the report is empty then, because it says nothing
  /// about that.
  absl::StatusOr<std::vector<ChargeId>> Reserve(int device, const std::string& owner,
                                                const std::string& title, const Needs& needs,
                                                model::AdmissionReport* report,
                                                const security::Owner& payer = {});
  /// The same on several devices at once: everything or nothing. Charges and reports (may be null)
  /// in the order of `wants`. The error is that of the first device that lacks room.
  struct Want {
    int device = 0;
    Needs needs;
  };
  absl::StatusOr<std::vector<std::vector<ChargeId>>> ReserveAll(
      const std::string& owner, const std::string& title, const std::vector<Want>& wants,
      std::vector<model::AdmissionReport>* reports);
  /// As Reserve, but takes over cached charges of `reuse` with the piece size of the first item
  /// instead of new ones, up to its number of pieces. They come first, and their memory belongs to
  /// the caller from now on.
  struct Grant {
    std::vector<ChargeId> charges;
    size_t reused = 0;
  };
  absl::StatusOr<Grant> ReserveReusing(int device, const std::string& owner,
                                       const std::string& title, const Needs& needs,
                                       const std::vector<ChargeId>& reuse,
                                       model::AdmissionReport* report,
                                       const security::Owner& payer = {});
  /// QUOTA, if the payer could never have so much.
  absl::Status CheckQuota(const Needs& needs, const security::Owner& payer) const;
  /// The same for what the payer may have now. It counts no refusal: for work that waits.
  absl::Status CheckQuotaNow(const Needs& needs, const security::Owner& payer) const;
  /// The charges are the payer's from now on, whatever its quota is: what the server moves by
  /// itself stays the principal's.
  void SetPayer(const std::vector<ChargeId>& ids, const security::Owner& payer);

  /// The charge now counts as held, under the name of the volume in it.
  void Hold(ChargeId id, const std::string& volume);
  /// The charge counts as reserved again, under its owner.
  void Unhold(ChargeId id);
  /// The charge now counts as `kind`, under `name`. Its bytes stay the same.
  void Move(ChargeId id, ChargeKind kind, const std::string& name);
  /// Takes a cached charge out of the cache: it counts as reserved, and its memory belongs to the
  /// caller. False if another thread was faster.
  bool Claim(ChargeId id);
  /// The charge counts only `bytes` from now on, at least 1; the rest of its memory must be free by
  /// now. Without effect if it counts no more than that already.
  void Shrink(ChargeId id, int64_t bytes);
  /// Its memory must be free by now.
  void Release(ChargeId id);

  struct Use {
    int64_t budget = 0, reserved = 0, held = 0, buffers = 0, cached = 0, detached = 0;
    int64_t peak = 0;  // largest total ever granted at once, without cached charges
    int64_t granted() const { return reserved + held + buffers + detached; }
    /// Bytes that can be granted: cached charges make room.
    int64_t free() const { return budget - granted(); }
  };
  Use UseOf(int device) const;
  int devices() const { return static_cast<int>(budgets_.size()); }
  const base::DeviceNames& names() const { return names_; }
  /// The holders of the memory of `device`, largest first.
  std::vector<model::AdmissionReport::Holder> HoldersOf(int device) const;
  /// The bytes of one holder (a name of HoldersOf) on all devices.
  int64_t BytesOf(const std::string& holder) const;
  /// Requests that were refused, by reason, since the start.
  std::map<std::string, int64_t> Refusals() const;

 private:
  struct Charge {
    int device = 0;
    std::string owner, title;
    std::string name;  // name of the volume or buffer, unless reserved
    ChargeKind kind = ChargeKind::kReserved;
    int64_t bytes = 0;
    int64_t moved = 0;  // stamp of the last change of kind: a smaller one is older
    QuotaCharge paid = {};
  };
  using Charges = std::map<ChargeId, Charge>;
  /// The name under which a charge counts.
  static const std::string& HolderOf(const Charge& charge) {
    return charge.kind == ChargeKind::kReserved ? charge.owner : charge.name;
  }
  /// Takes a charge out of the sums.
  void Uncount(const Charge& charge) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t& SumOf(const Charge& charge) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MoveLocked(Charge& charge, ChargeKind kind, std::string name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Use UseLocked(int device) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<model::AdmissionReport::Holder> HoldersLocked(int device) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  model::AdmissionReport PlanLocked(int device, const Needs& needs) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Makes charges for needs that fit; ends cached ones until the budget holds.
  Grant GrantLocked(int device, const std::string& owner, const std::string& title,
                    const Needs& needs, const std::vector<ChargeId>& reuse, QuotaCharge paid,
                    std::vector<ChargeId>* reclaimed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::vector<int64_t> budgets_;
  const base::DeviceNames names_;
  QuotaBook* const quotas_;
  std::function<void(const std::vector<ChargeId>&)> reclaim_;
  mutable Mutex mutex_;
  ChargeId next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  int64_t moves_ ABSL_GUARDED_BY(mutex_) = 0;
  Charges charges_ ABSL_GUARDED_BY(mutex_);
  // Sums over charges_.
  std::vector<Use> use_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> bytes_of_ ABSL_GUARDED_BY(mutex_);  // by holder, without the cache
  std::map<std::string, int64_t> refusals_ ABSL_GUARDED_BY(mutex_);
};

/// Owner of charges: they end with it on every path, unless they were handed on.
class ChargeHolder {
 public:
  /// `free` (may be empty; must not throw) is called before a charge ends, because its memory must
  /// be free by then.
  explicit ChargeHolder(Ledger* ledger, std::function<void(Ledger::ChargeId)> free = nullptr)
      : ledger_(ledger), free_(std::move(free)) {}
  ChargeHolder(Ledger* ledger, std::vector<Ledger::ChargeId> ids)
      : ledger_(ledger), ids_(std::move(ids)) {}
  ChargeHolder(ChargeHolder&& other) noexcept
      : ledger_(other.ledger_),
        free_(std::move(other.free_)),
        ids_(std::exchange(other.ids_, {})) {}
  ChargeHolder& operator=(ChargeHolder&&) = delete;
  ~ChargeHolder() { Release(ids_); }
  void Add(const std::vector<Ledger::ChargeId>& ids) {
    try {
      ids_.insert(ids_.end(), ids.begin(), ids.end());
    } catch (...) {
      Release(ids);
      throw;
    }
  }
  const std::vector<Ledger::ChargeId>& ids() const { return ids_; }
  /// Another owner has them from now on.
  std::vector<Ledger::ChargeId> Keep() { return std::exchange(ids_, {}); }

 private:
  void Release(const std::vector<Ledger::ChargeId>& ids) const {
    for (const Ledger::ChargeId id : ids) {
      if (free_) free_(id);
      ledger_->Release(id);
    }
  }
  Ledger* ledger_;
  std::function<void(Ledger::ChargeId)> free_;
  std::vector<Ledger::ChargeId> ids_;
};

}  // namespace octavo::memory

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "gpu/base/mutex.h"
#include "server/security/owner.h"
#include "server/security/role.h"

namespace octavo::memory {

/// What is counted of a principal.
enum class QuotaKind : uint8_t {
  kDeviceBytes = 0,  // device memory of its scans, jobs, buffers and volumes
  kScans = 1,        // queued and running
  kJobs = 2,         // queued and running
  kWatches = 3,      // open watches, waits, subscriptions, streams of clients
  kPlans = 4,        // calls that plan a scan, a waveform or a job
  kSubmits = 5,      // calls that submit or update a scan, or submit a job
  kRenderings = 6,   // calls of RenderVolume
  kMosaics = 7       // calls of MosaicService
};
inline constexpr size_t kQuotaKinds = 8;
/// "device_bytes": as the key of the configuration (quota.device_bytes).
absl::string_view Name(QuotaKind kind);

/// The limits of the configuration; 0 = none.
class QuotaRules {
 public:
  using Limits = std::array<int64_t, kQuotaKinds>;

  /// For all principals but admins, who have none.
  void SetUsual(QuotaKind kind, int64_t most) { usual_[static_cast<size_t>(kind)] = most; }
  /// An exception: "anna device_bytes=4294967296 scans=2", "role:viewer watches=16". What it does
  /// not name stays as it is; a line for a name precedes one for its role. InvalidArgument says
  /// what is wrong with the text, without a name of a field.
  absl::Status AddException(absl::string_view text);
  int64_t LimitOf(QuotaKind kind, const security::Owner& payer) const;
  /// Those that have exceptions by name.
  std::vector<std::string> principals() const;

 private:
  using Exception = std::map<QuotaKind, int64_t>;
  Limits usual_{};
  std::map<security::Role, Exception> of_role_;
  std::map<std::string, Exception> of_name_;
};

class QuotaBook;

/// What a principal is charged for something, until this object ends: it lives in what it pays for,
/// so that every end of that gives it back. Not thread-safe; another thread may take it over. The
/// book must outlive it.
class QuotaCharge {
 public:
  QuotaCharge() = default;  // for nothing, to nobody
  QuotaCharge(QuotaCharge&& other) noexcept { *this = std::move(other); }
  QuotaCharge& operator=(QuotaCharge&& other) noexcept {
    if (this == &other) return *this;
    Release();
    book_ = std::exchange(other.book_, nullptr);
    account_ = std::exchange(other.account_, nullptr);
    kind_ = other.kind_;
    amount_ = std::exchange(other.amount_, 0);
    return *this;
  }
  ~QuotaCharge() { Release(); }

  /// Gives it back now.
  void Release() noexcept;
  /// A part of it, with a life of its own; what is left stays here. At most all of it.
  QuotaCharge Split(int64_t amount) noexcept;
  int64_t amount() const { return amount_; }

 private:
  friend class QuotaBook;
  QuotaBook* book_ = nullptr;  // null: to nobody
  void* account_ = nullptr;    // the book's
  QuotaKind kind_ = QuotaKind::kDeviceBytes;
  int64_t amount_ = 0;
};

/// What each principal uses, and may use. It is checked and charged under one lock, under which
/// it calls nothing: whoever charges may hold others. Thread-safe.
class QuotaBook {
 public:
  explicit QuotaBook(QuotaRules rules = {}) : rules_(std::move(rules)) {}
  QuotaBook(const QuotaBook&) = delete;
  QuotaBook& operator=(const QuotaBook&) = delete;

  /// Charges the payer. ResourceExhausted (QUOTA; names kind, use, what is wanted and allowed) if
  /// that would exceed its limit; nothing is charged then. What is nobody's costs nothing. `what`
  /// is wanted, in words: "the scan".
  absl::StatusOr<QuotaCharge> Take(const security::Owner& payer, QuotaKind kind, int64_t amount,
                                   absl::string_view what);
  /// Charges without a limit, what the server moves or keeps by itself: it must not fail for that,
  /// but counts.
  QuotaCharge TakeAnyway(const security::Owner& payer, QuotaKind kind, int64_t amount);
  /// The error of Take, without taking and without counting a refusal: for those who ask again and
  /// again.
  absl::Status Check(const security::Owner& payer, QuotaKind kind, int64_t amount,
                     absl::string_view what) const;
  /// The error of Take, if `amount` could never be granted, whatever else is given back.
  absl::Status CheckEver(const security::Owner& payer, QuotaKind kind, int64_t amount,
                         absl::string_view what);

  struct Use {
    QuotaKind kind = QuotaKind::kDeviceBytes;
    int64_t used = 0;
    int64_t allowed = 0;  // 0 = no limit
  };
  /// One for each kind, in their order.
  std::vector<Use> UseOf(const security::Owner& payer) const;
  /// Refusals since the start, by the names of the kinds.
  std::map<std::string, int64_t> Refusals() const;
  /// Principals that are charged for anything now.
  size_t accounts() const;

 private:
  friend class QuotaCharge;
  struct Account {
    std::array<int64_t, kQuotaKinds> used{};
    int64_t charges = 0;  // objects that refer to it
  };
  using Accounts = std::map<std::string, Account>;  // by the name of the principal
  QuotaCharge ChargeLocked(const security::Owner& payer, QuotaKind kind, int64_t amount)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// OK if the limit allows for it now.
  absl::Status CheckLocked(const security::Owner& payer, QuotaKind kind, int64_t amount,
                           absl::string_view what) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveBack(void* account, QuotaKind kind, int64_t amount) noexcept;
  void CountSplit(void* account) noexcept;

  const QuotaRules rules_;
  mutable Mutex mutex_;
  Accounts accounts_ ABSL_GUARDED_BY(mutex_);  // of those with charges
  std::array<int64_t, kQuotaKinds> refusals_ ABSL_GUARDED_BY(mutex_){};
};

}  // namespace octavo::memory

#include "server/memory/quota.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "gpu/base/size_text.h"
#include "gpu/base/status.h"
#include "server/security/root_rights.h"

namespace octavo::memory {
namespace {

constexpr std::array<absl::string_view, kQuotaKinds> kNames = {
    "device_bytes", "scans", "jobs", "watches", "plans", "submits", "renderings", "mosaics"};
static_assert(!kNames.back().empty(), "a kind of quota has no name");
constexpr int64_t kMostLimit = int64_t{1} << 50;

std::optional<QuotaKind> KindNamed(absl::string_view name) {
  const auto* const it = std::find(kNames.begin(), kNames.end(), name);
  if (it == kNames.end()) return std::nullopt;
  return static_cast<QuotaKind>(it - kNames.begin());
}

std::string AmountText(QuotaKind kind, int64_t amount) {
  return kind == QuotaKind::kDeviceBytes ? SizeText(amount) : absl::StrCat(amount);
}

/// What gives the principal room again.
const char* Advice(QuotaKind kind) {
  switch (kind) {
    case QuotaKind::kDeviceBytes:
      return "commit, spill or discard volumes, destroy buffers, or stop scans";
    case QuotaKind::kScans: return "stop a scan, or wait for one to end";
    case QuotaKind::kJobs: return "cancel a job, or wait for one to end";
    case QuotaKind::kWatches: return "end a watch, a wait or a subscription";
    default: return "wait for the answer of an earlier call";
  }
}

absl::Status BadException(const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat(what,
                   "; allowed is a name of a principal (in double quotes if it has spaces) or "
                   "role:<viewer, operator, admin>, then <kind>=<limit> (",
                   absl::StrJoin(kNames, ", "), "; 0 = no limit), separated by spaces"));
}

}  // namespace

absl::string_view Name(QuotaKind kind) { return kNames[static_cast<size_t>(kind)]; }

absl::Status QuotaRules::AddException(absl::string_view text) {
  absl::string_view rest = absl::StripLeadingAsciiWhitespace(text), quoted;
  const bool in_quotes = absl::ConsumePrefix(&rest, "\"");
  if (in_quotes) {
    const size_t end = rest.find('"');
    if (end == absl::string_view::npos || !absl::StartsWith(rest.substr(end + 1), " "))
      return BadException(absl::StrCat("is '", text, "'"));
    quoted = rest.substr(0, end);
    rest.remove_prefix(end + 1);
  }
  std::vector<absl::string_view> words = absl::StrSplit(rest, ' ', absl::SkipEmpty());
  if (in_quotes) words.insert(words.begin(), quoted);
  if (words.size() < 2) return BadException(absl::StrCat("is '", text, "'"));
  Exception limits;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(words[i], absl::MaxSplits('=', 1));
    const std::optional<QuotaKind> kind = KindNamed(parts.first);
    int64_t most = 0;
    if (!kind.has_value() || !absl::SimpleAtoi(parts.second, &most) || most < 0 ||
        most > kMostLimit)
      return BadException(absl::StrCat("has '", words[i], "'"));
    if (!limits.emplace(*kind, most).second)
      return BadException(absl::StrCat("has ", parts.first, " twice"));
  }
  absl::string_view name = words[0];
  bool added = false;
  if (absl::ConsumePrefix(&name, "role:")) {
    const auto role = security::RoleNamed(name);
    if (!role.has_value() || *role == security::Role::kNone)
      return BadException(absl::StrCat("has the role '", name, "'"));
    added = of_role_.emplace(*role, std::move(limits)).second;
  } else if (!security::CouldBePrincipal(name)) {
    return BadException(absl::StrCat("has the name '", name, "'"));
  } else {
    added = of_name_.emplace(std::string(name), std::move(limits)).second;
  }
  return added ? absl::OkStatus() : BadException(absl::StrCat("has ", words[0], " a second time"));
}

std::vector<std::string> QuotaRules::principals() const {
  std::vector<std::string> names;
  for (const auto& [name, exception] : of_name_) names.push_back(name);
  return names;
}

int64_t QuotaRules::LimitOf(QuotaKind kind, const security::Owner& payer) const {
  const auto limit_in = [&](const Exception& exception) -> std::optional<int64_t> {
    const auto it = exception.find(kind);
    if (it == exception.end()) return std::nullopt;
    return it->second;
  };
  if (const auto it = of_name_.find(payer.name); it != of_name_.end()) {
    if (const auto limit = limit_in(it->second); limit.has_value()) return *limit;
  }
  if (const auto it = of_role_.find(payer.role); it != of_role_.end()) {
    if (const auto limit = limit_in(it->second); limit.has_value()) return *limit;
  }
  return payer.role == security::Role::kAdmin ? 0 : usual_[static_cast<size_t>(kind)];
}

void QuotaCharge::Release() noexcept {
  if (book_ != nullptr) book_->GiveBack(account_, kind_, amount_);
  book_ = nullptr;
  account_ = nullptr;
  amount_ = 0;
}

QuotaCharge QuotaCharge::Split(int64_t amount) noexcept {
  QuotaCharge part;
  if (book_ == nullptr) return part;
  book_->CountSplit(account_);
  part.book_ = book_;
  part.account_ = account_;
  part.kind_ = kind_;
  part.amount_ = std::min(amount, amount_);
  amount_ -= part.amount_;
  return part;
}

QuotaCharge QuotaBook::ChargeLocked(const security::Owner& payer, QuotaKind kind, int64_t amount) {
  Accounts::value_type& account = *accounts_.try_emplace(payer.name).first;
  // Nothing throws from here on.
  ++account.second.charges;
  account.second.used[static_cast<size_t>(kind)] += amount;
  QuotaCharge charge;
  charge.book_ = this;
  charge.account_ = &account;
  charge.kind_ = kind;
  charge.amount_ = amount;
  return charge;
}

absl::Status QuotaBook::CheckLocked(const security::Owner& payer, QuotaKind kind, int64_t amount,
                                    absl::string_view what) const {
  const int64_t most = rules_.LimitOf(kind, payer);
  if (payer.name.empty() || most == 0 || amount <= 0) return absl::OkStatus();
  const auto it = accounts_.find(payer.name);
  const int64_t used = it == accounts_.end() ? 0 : it->second.used[static_cast<size_t>(kind)];
  if (used <= most - amount) return absl::OkStatus();
  const bool ever = amount <= most;
  return WithInfo(
      absl::ResourceExhaustedError(absl::StrCat(
          "quota.", Name(kind), ": ", payer.name, " uses ", AmountText(kind, used), ", and ", what,
          " needs ", AmountText(kind, amount), " more; allowed ", AmountText(kind, most), "; ",
          ever ? Advice(kind) : "it can never fit: make it smaller, or ask for a larger quota")),
      {.reason = Reason::kQuota,
       .field = "",
       .numbers = {{"principal", payer.name},
                   {"kind", std::string(Name(kind))},
                   {"used", absl::StrCat(used)},
                   {"wanted", absl::StrCat(amount)},
                   {"allowed", absl::StrCat(most)},
                   {"retryable", ever ? "true" : "false"}}});
}

absl::StatusOr<QuotaCharge> QuotaBook::Take(const security::Owner& payer, QuotaKind kind,
                                            int64_t amount, absl::string_view what) {
  if (payer.name.empty()) return QuotaCharge();
  MutexLock lock(mutex_);
  if (absl::Status refused = CheckLocked(payer, kind, amount, what); !refused.ok()) {
    ++refusals_[static_cast<size_t>(kind)];
    return refused;
  }
  return ChargeLocked(payer, kind, amount);
}

absl::Status QuotaBook::Check(const security::Owner& payer, QuotaKind kind, int64_t amount,
                              absl::string_view what) const {
  MutexLock lock(mutex_);
  return CheckLocked(payer, kind, amount, what);
}

QuotaCharge QuotaBook::TakeAnyway(const security::Owner& payer, QuotaKind kind, int64_t amount) {
  if (payer.name.empty()) return {};
  MutexLock lock(mutex_);
  return ChargeLocked(payer, kind, amount);
}

absl::Status QuotaBook::CheckEver(const security::Owner& payer, QuotaKind kind, int64_t amount,
                                  absl::string_view what) {
  const int64_t most = rules_.LimitOf(kind, payer);
  if (most == 0 || amount <= most) return absl::OkStatus();
  MutexLock lock(mutex_);
  absl::Status refused = CheckLocked(payer, kind, amount, what);
  if (!refused.ok()) ++refusals_[static_cast<size_t>(kind)];
  return refused;
}

void QuotaBook::GiveBack(void* account, QuotaKind kind, int64_t amount) noexcept {
  auto* const of = static_cast<Accounts::value_type*>(account);
  MutexLock lock(mutex_);
  of->second.used[static_cast<size_t>(kind)] -= amount;
  if (--of->second.charges == 0) accounts_.erase(accounts_.find(of->first));
}

void QuotaBook::CountSplit(void* account) noexcept {
  MutexLock lock(mutex_);
  ++static_cast<Accounts::value_type*>(account)->second.charges;
}

std::vector<QuotaBook::Use> QuotaBook::UseOf(const security::Owner& payer) const {
  std::vector<Use> uses;
  MutexLock lock(mutex_);
  const auto it = accounts_.find(payer.name);
  for (size_t k = 0; k < kQuotaKinds; ++k) {
    const auto kind = static_cast<QuotaKind>(k);
    uses.push_back({.kind = kind,
                    .used = it == accounts_.end() ? 0 : it->second.used[k],
                    .allowed = rules_.LimitOf(kind, payer)});
  }
  return uses;
}

std::map<std::string, int64_t> QuotaBook::Refusals() const {
  MutexLock lock(mutex_);
  std::map<std::string, int64_t> refusals;
  for (size_t k = 0; k < kQuotaKinds; ++k) refusals[std::string(kNames[k])] = refusals_[k];
  return refusals;
}

size_t QuotaBook::accounts() const {
  MutexLock lock(mutex_);
  return accounts_.size();
}

}  // namespace octavo::memory

#include "server/memory/ledger.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/size_text.h"
#include "gpu/base/status.h"

namespace octavo::memory {
namespace {

model::HolderKind KindOf(ChargeKind kind, const std::string& owner) {
  switch (kind) {
    case ChargeKind::kReserved:
      return absl::StartsWith(owner, "jobs/") ? model::HolderKind::kRunningJob
                                              : model::HolderKind::kRunningScan;
    case ChargeKind::kHeld: return model::HolderKind::kHeldVolume;
    case ChargeKind::kBuffer: return model::HolderKind::kClientBuffer;
    case ChargeKind::kCached: return model::HolderKind::kCached;
    case ChargeKind::kDetached: return model::HolderKind::kDetached;
  }
  return model::HolderKind::kNone;
}

/// What wants the memory, in words, by its first need.
const char* WhatWants(const model::AdmissionReport& report) {
  switch (report.needs.empty() ? model::NeedKind::kNone : report.needs.front().kind) {
    case model::NeedKind::kResult:
    case model::NeedKind::kWorkspace: return "job";
    case model::NeedKind::kDerivedVolume:
    case model::NeedKind::kDerivationScratch: return "derived volume";
    case model::NeedKind::kRestoredVolume: return "volume";
    case model::NeedKind::kBuffer: return "buffer";
    case model::NeedKind::kOperation: return "operation";
    case model::NeedKind::kMeasurement: return "measurement";
    default: return "scan";
  }
}

/// What would make it smaller.
std::string Smaller(const model::AdmissionReport& report) {
  const std::string what = WhatWants(report);
  return what == "scan" ? "lower retention.hold_slots or the volume's size"
                        : absl::StrCat("make the ", what, " smaller");
}

int64_t BytesWanted(const Ledger::Needs& needs) {
  int64_t bytes = 0;
  for (const auto& need : needs) bytes += need.bytes / need.count * need.count;
  return bytes;
}

absl::Status Refusal(const model::AdmissionReport& report) {
  return WithInfo(absl::ResourceExhaustedError(
                      absl::StrCat(report.device, " has ", SizeText(report.free_bytes), " of ",
                                   SizeText(report.budget_bytes), " free; the ", WhatWants(report),
                                   " needs ", SizeText(report.wanted_bytes), ": ", report.advice)),
                  {.reason = report.retryable ? Reason::kDeviceFull : Reason::kExceedsBudget,
                   .field = "",
                   .numbers = {{"wanted", absl::StrCat(report.wanted_bytes)},
                               {"free", absl::StrCat(report.free_bytes)},
                               {"budget", absl::StrCat(report.budget_bytes)},
                               {"retryable", report.retryable ? "true" : "false"}}});
}

}  // namespace

Ledger::Ledger(std::vector<int64_t> budgets, QuotaBook* quotas, bool host_for_jobs)
    : budgets_(std::move(budgets)),
      names_(static_cast<int>(budgets_.size()), host_for_jobs),
      quotas_(quotas) {
  MutexLock lock(mutex_);
  for (const int64_t budget : budgets_) use_.push_back({.budget = budget});
}

int64_t& Ledger::SumOf(const Charge& charge) {
  Use& use = use_[static_cast<size_t>(charge.device)];
  switch (charge.kind) {
    case ChargeKind::kHeld: return use.held;
    case ChargeKind::kBuffer: return use.buffers;
    case ChargeKind::kCached: return use.cached;
    case ChargeKind::kDetached: return use.detached;
    default: return use.reserved;
  }
}

void Ledger::Uncount(const Charge& charge) {
  SumOf(charge) -= charge.bytes;
  if (charge.kind == ChargeKind::kCached) return;
  const auto holder = bytes_of_.find(HolderOf(charge));
  if (holder == bytes_of_.end()) return;  // of no bytes
  holder->second -= charge.bytes;
  if (holder->second == 0) bytes_of_.erase(holder);
}

int64_t Ledger::BytesOf(const std::string& holder) const {
  MutexLock lock(mutex_);
  const auto it = bytes_of_.find(holder);
  return it == bytes_of_.end() ? 0 : it->second;
}

Ledger::Use Ledger::UseLocked(int device) const { return use_[static_cast<size_t>(device)]; }

Ledger::Use Ledger::UseOf(int device) const {
  MutexLock lock(mutex_);
  return UseLocked(device);
}

std::vector<model::AdmissionReport::Holder> Ledger::HoldersLocked(int device) const {
  std::map<std::pair<ChargeKind, std::string>, model::AdmissionReport::Holder>
      by_name;  // the pieces of a scan form one row
  for (const auto& [id, charge] : charges_) {
    if (charge.device != device) continue;
    const std::string& name = HolderOf(charge);
    auto& holder = by_name[{charge.kind, name}];
    holder.name = name;
    holder.kind = KindOf(charge.kind, charge.owner);
    if (charge.kind != ChargeKind::kCached) holder.title = charge.title;
    holder.bytes += charge.bytes;
  }
  std::vector<model::AdmissionReport::Holder> holders;
  holders.reserve(by_name.size());
  for (auto& [name, holder] : by_name) holders.push_back(std::move(holder));
  std::stable_sort(holders.begin(), holders.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return holders;
}

std::vector<model::AdmissionReport::Holder> Ledger::HoldersOf(int device) const {
  MutexLock lock(mutex_);
  return HoldersLocked(device);
}

model::AdmissionReport Ledger::PlanLocked(int device, const Needs& needs) const {
  model::AdmissionReport report;
  report.device = names_.Name(device);
  report.needs = needs;
  for (const auto& need : needs) report.wanted_bytes += need.bytes;
  const Use use = UseLocked(device);
  report.budget_bytes = use.budget;
  report.free_bytes = use.free();
  report.admitted = report.wanted_bytes <= report.free_bytes;
  report.retryable = report.wanted_bytes <= report.budget_bytes;
  report.holders = HoldersLocked(device);
  if (report.admitted) return report;
  if (!report.retryable) {
    report.advice =
        absl::StrCat("it can never fit: ", Smaller(report), ", or raise the budget of ",
                     report.device, " by ", SizeText(report.wanted_bytes - report.budget_bytes));
    return report;
  }
  report.advice = absl::StrCat("commit, spill or discard held volumes, or stop scans, worth ",
                               SizeText(report.wanted_bytes - report.free_bytes));
  const auto largest =
      std::find_if(report.holders.begin(), report.holders.end(),
                   [](const auto& holder) { return holder.kind != model::HolderKind::kCached; });
  if (largest != report.holders.end()) {
    absl::StrAppend(&report.advice, "; the largest holder is ", largest->name, " (",
                    Name(largest->kind), ", ", SizeText(largest->bytes), ")");
  }
  return report;
}

model::AdmissionReport Ledger::Plan(int device, const Needs& needs) const {
  MutexLock lock(mutex_);
  return PlanLocked(device, needs);
}

Ledger::Grant Ledger::GrantLocked(int device, const std::string& owner, const std::string& title,
                                  const Needs& needs, const std::vector<ChargeId>& reuse,
                                  QuotaCharge paid, std::vector<ChargeId>* reclaimed) {
  Grant grant;
  // All or nothing, also if host memory runs out in the middle.
  absl::Cleanup nothing = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    auto reused = static_cast<int64_t>(grant.reused);
    for (const ChargeId id : grant.charges) {
      const auto it = charges_.find(id);
      if (it == charges_.end()) continue;
      if (--reused >= 0) {  // back to the cache
        MoveLocked(it->second, ChargeKind::kCached, "");
        it->second.owner.clear();
        continue;
      }
      Uncount(it->second);
      charges_.erase(it);
    }
  };
  int64_t wanted = BytesWanted(needs);
  for (const ChargeId id : reuse) {
    auto it = charges_.find(id);
    if (grant.reused == static_cast<size_t>(needs[0].count)) break;
    if (it == charges_.end() || it->second.kind != ChargeKind::kCached ||
        it->second.device != device || it->second.bytes != needs[0].bytes / needs[0].count) {
      continue;  // another owner has been granted its room meanwhile
    }
    it->second.owner = owner;
    it->second.title = title;
    MoveLocked(it->second, ChargeKind::kReserved, "");
    it->second.paid = paid.Split(it->second.bytes);
    grant.charges.push_back(id);
    ++grant.reused;
    wanted -= it->second.bytes;
  }
  // Book the room at once: no other request can get it while the memory is being freed.
  Use& use = use_[static_cast<size_t>(device)];
  std::vector<std::pair<int64_t, ChargeId>> cached;
  if (use.granted() + use.cached + wanted > use.budget) {
    for (const auto& [id, charge] : charges_) {
      if (charge.device == device && charge.kind == ChargeKind::kCached)
        cached.emplace_back(charge.moved, id);
    }
    std::sort(cached.begin(), cached.end());
  }
  for (const auto& [moved, id] : cached) {
    if (use.granted() + use.cached + wanted <= use.budget) break;
    const auto it = charges_.find(id);
    Uncount(it->second);
    charges_.erase(it);
    reclaimed->push_back(id);
  }
  size_t skip = grant.reused;
  for (const auto& need : needs) {
    for (int64_t i = 0; i < need.count; ++i) {
      if (skip > 0) {
        --skip;
        continue;
      }
      Charge charge{.device = device,
                    .owner = owner,
                    .title = title,
                    .name = "",
                    .bytes = need.bytes / need.count,
                    .moved = ++moves_,
                    .paid = paid.Split(need.bytes / need.count)};
      grant.charges.push_back(next_id_);
      int64_t& owned = bytes_of_[owner];
      charges_.emplace(next_id_++, std::move(charge));
      owned += need.bytes / need.count;
      use.reserved += need.bytes / need.count;
    }
  }
  use.peak = std::max(use.peak, use.granted());
  (void)Failpoint("ledger_granting");
  std::move(nothing).Cancel();
  return grant;
}

absl::StatusOr<Ledger::Grant> Ledger::ReserveReusing(int device, const std::string& owner,
                                                     const std::string& title, const Needs& needs,
                                                     const std::vector<ChargeId>& reuse,
                                                     model::AdmissionReport* report,
                                                     const security::Owner& payer) {
  Grant grant;
  std::vector<ChargeId> reclaimed;
  {
    MutexLock lock(mutex_);
    model::AdmissionReport plan = PlanLocked(device, needs);
    const absl::Status refused = plan.admitted ? absl::OkStatus() : Refusal(plan);
    if (plan.admitted) {
      QuotaCharge paid;
      if (quotas_ != nullptr) {
        auto taken = quotas_->Take(payer, QuotaKind::kDeviceBytes, BytesWanted(needs),
                                   absl::StrCat("the ", WhatWants(plan)));
        if (!taken.ok()) {
          ++refusals_["QUOTA"];
          if (report != nullptr) *report = {};
          return taken.status();
        }
        paid = *std::move(taken);
      }
      grant = GrantLocked(device, owner, title, needs, reuse, std::move(paid), &reclaimed);
    } else {
      ++refusals_[plan.retryable ? "DEVICE_FULL" : "EXCEEDS_BUDGET"];
    }
    if (report != nullptr) *report = std::move(plan);
    if (!refused.ok()) return refused;
  }
  if (!reclaimed.empty() && reclaim_) reclaim_(reclaimed);
  return grant;
}

absl::StatusOr<std::vector<Ledger::ChargeId>> Ledger::Reserve(int device, const std::string& owner,
                                                              const std::string& title,
                                                              const Needs& needs,
                                                              model::AdmissionReport* report,
                                                              const security::Owner& payer) {
  auto grant = ReserveReusing(device, owner, title, needs, {}, report, payer);
  if (!grant.ok()) return grant.status();
  return std::move(grant->charges);
}

absl::Status Ledger::CheckQuota(const Needs& needs, const security::Owner& payer) const {
  if (quotas_ == nullptr) return absl::OkStatus();
  model::AdmissionReport wanted;
  wanted.needs = needs;
  return quotas_->CheckEver(payer, QuotaKind::kDeviceBytes, BytesWanted(needs),
                            absl::StrCat("the ", WhatWants(wanted)));
}

absl::Status Ledger::CheckQuotaNow(const Needs& needs, const security::Owner& payer) const {
  if (quotas_ == nullptr) return absl::OkStatus();
  model::AdmissionReport wanted;
  wanted.needs = needs;
  return quotas_->Check(payer, QuotaKind::kDeviceBytes, BytesWanted(needs),
                        absl::StrCat("the ", WhatWants(wanted)));
}

void Ledger::SetPayer(const std::vector<ChargeId>& ids, const security::Owner& payer) {
  if (quotas_ == nullptr) return;
  MutexLock lock(mutex_);
  for (const ChargeId id : ids) {
    const auto it = charges_.find(id);
    if (it == charges_.end() || it->second.kind == ChargeKind::kCached) continue;
    it->second.paid = quotas_->TakeAnyway(payer, QuotaKind::kDeviceBytes, it->second.bytes);
  }
}

absl::StatusOr<std::vector<std::vector<Ledger::ChargeId>>> Ledger::ReserveAll(
    const std::string& owner, const std::string& title, const std::vector<Want>& wants,
    std::vector<model::AdmissionReport>* reports) {
  std::vector<std::vector<ChargeId>> charges;
  std::vector<ChargeId> reclaimed;
  std::vector<ChargeHolder> held;  // holds charges until all are granted
  {
    MutexLock lock(mutex_);
    absl::Status refused = absl::OkStatus();
    std::vector<model::AdmissionReport> plans;
    std::map<int, Needs> together;  // a device that is named twice needs room for both
    for (const Want& want : wants) {
      Needs& all = together[want.device];
      all.insert(all.end(), want.needs.begin(), want.needs.end());
    }
    for (const Want& want : wants) {
      plans.push_back(PlanLocked(want.device, together[want.device]));
      if (!plans.back().admitted && refused.ok()) {
        refused = Refusal(plans.back());
        ++refusals_[plans.back().retryable ? "DEVICE_FULL" : "EXCEEDS_BUDGET"];
      }
    }
    if (refused.ok()) {
      held.reserve(wants.size());
      for (const Want& want : wants)
        held.emplace_back(
            this, GrantLocked(want.device, owner, title, want.needs, {}, {}, &reclaimed).charges);
      charges.reserve(wants.size());
      for (ChargeHolder& one : held) charges.push_back(one.Keep());
    }
    if (reports != nullptr) *reports = std::move(plans);
    if (!refused.ok()) return refused;
  }
  if (!reclaimed.empty() && reclaim_) reclaim_(reclaimed);
  return charges;
}

void Ledger::MoveLocked(Charge& charge, ChargeKind kind, std::string name) {
  // What may throw comes first; nothing does for a charge that goes to the cache.
  if (kind != ChargeKind::kCached)
    bytes_of_[kind == ChargeKind::kReserved ? charge.owner : name] += charge.bytes;
  Uncount(charge);
  charge.kind = kind;
  charge.name = std::move(name);
  charge.moved = ++moves_;
  if (kind == ChargeKind::kCached) charge.paid.Release();  // it makes room for everybody
  SumOf(charge) += charge.bytes;
  Use& use = use_[static_cast<size_t>(charge.device)];
  use.peak = std::max(use.peak, use.granted());
}

void Ledger::Move(ChargeId id, ChargeKind kind, const std::string& name) {
  MutexLock lock(mutex_);
  if (auto it = charges_.find(id); it != charges_.end()) MoveLocked(it->second, kind, name);
}

void Ledger::Hold(ChargeId id, const std::string& volume) { Move(id, ChargeKind::kHeld, volume); }
void Ledger::Unhold(ChargeId id) { Move(id, ChargeKind::kReserved, ""); }

bool Ledger::Claim(ChargeId id) {
  MutexLock lock(mutex_);
  auto it = charges_.find(id);
  if (it == charges_.end() || it->second.kind != ChargeKind::kCached) return false;
  MoveLocked(it->second, ChargeKind::kReserved, "");
  return true;
}

void Ledger::Shrink(ChargeId id, int64_t bytes) {
  MutexLock lock(mutex_);
  const auto it = charges_.find(id);
  if (it == charges_.end() || it->second.bytes <= bytes) return;
  Charge& charge = it->second;
  const int64_t less = charge.bytes - bytes;
  charge.bytes = bytes;
  SumOf(charge) -= less;
  if (charge.kind == ChargeKind::kCached) return;  // nobody holds it, and nobody pays
  bytes_of_.find(HolderOf(charge))->second -= less;
  if (charge.paid.amount() > 0) charge.paid.Split(less).Release();
}

void Ledger::Release(ChargeId id) {
  MutexLock lock(mutex_);
  auto it = charges_.find(id);
  if (it == charges_.end()) return;
  Uncount(it->second);
  charges_.erase(it);
}

std::map<std::string, int64_t> Ledger::Refusals() const {
  MutexLock lock(mutex_);
  return refusals_;
}

}  // namespace octavo::memory

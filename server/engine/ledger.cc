#include "server/engine/ledger.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/engine/names.h"

namespace octavo::engine {

Ledger::Use Ledger::UseLocked(int device) const {
  Use use{.budget = budgets_[static_cast<size_t>(device)]};
  for (const auto& [id, charge] : charges_) {
    if (charge.device == device) (charge.held_by.empty() ? use.reserved : use.held) += charge.bytes;
  }
  return use;
}

Ledger::Use Ledger::UseOf(int device) const {
  MutexLock lock(mutex_);
  return UseLocked(device);
}

AdmissionReport Ledger::PlanLocked(int device, const std::vector<AdmissionReport::Item>& needs) const {
  AdmissionReport report;
  report.device = DeviceName(device);
  report.needs = needs;
  for (const auto& need : needs) report.wanted_bytes += need.bytes;
  const Use use = UseLocked(device);
  report.budget_bytes = use.budget;
  report.free_bytes = use.free();
  report.admitted = report.wanted_bytes <= report.free_bytes;
  report.retryable = report.wanted_bytes <= report.budget_bytes;

  std::map<std::string, AdmissionReport::Holder> holders;  // by name: a scan's pieces are one row
  for (const auto& [id, charge] : charges_) {
    if (charge.device != device) continue;
    const std::string& name = charge.held_by.empty() ? charge.owner : charge.held_by;
    auto& holder = holders[name];
    holder.name = name;
    holder.what = !charge.held_by.empty() ? "held volume" : charge.owner.rfind("jobs/", 0) == 0 ? "running job" : "running scan";
    holder.title = charge.title;
    holder.bytes += charge.bytes;
  }
  for (auto& [name, holder] : holders) report.holders.push_back(std::move(holder));
  std::stable_sort(report.holders.begin(), report.holders.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  if (!report.admitted) {
    const int64_t lacking = report.wanted_bytes - report.free_bytes;
    if (!report.retryable) {
      report.advice = absl::StrCat(
          "it can never fit: lower retention.hold_slots or the volume's size, or raise the "
          "budget of ",
          report.device, " by ", report.wanted_bytes - report.budget_bytes, " bytes");
    } else {
      report.advice = absl::StrCat("commit or discard held volumes, or stop scans, worth ", lacking, " bytes");
      if (!report.holders.empty()) {
        absl::StrAppend(&report.advice, "; the largest holder is ", report.holders[0].name, " (", report.holders[0].bytes, ")");
      }
    }
  }
  return report;
}

AdmissionReport Ledger::Plan(int device, const std::vector<AdmissionReport::Item>& needs) const {
  MutexLock lock(mutex_);
  return PlanLocked(device, needs);
}

absl::StatusOr<std::vector<Ledger::ChargeId>> Ledger::Reserve(int device, const std::string& owner, const std::string& title,
                                                              const std::vector<AdmissionReport::Item>& needs, AdmissionReport* report) {
  MutexLock lock(mutex_);
  AdmissionReport plan = PlanLocked(device, needs);
  std::vector<ChargeId> ids;
  if (plan.admitted) {
    for (const auto& need : needs) {
      for (int64_t i = 0; i < need.count; ++i) {
        charges_[next_id_] = {.device = device, .owner = owner, .title = title, .held_by = "", .bytes = need.bytes / need.count};
        ids.push_back(next_id_++);
      }
    }
  }
  absl::Status refused = absl::OkStatus();
  if (!plan.admitted) {
    refused = WithInfo(absl::ResourceExhaustedError(absl::StrCat(plan.device, " has ", plan.free_bytes, " of ", plan.budget_bytes,
                                                                 " bytes free, the scan needs ", plan.wanted_bytes, ": ", plan.advice)),
                       {.reason = plan.retryable ? "DEVICE_FULL" : "EXCEEDS_BUDGET",
                        .field = "",
                        .numbers = {{"wanted", absl::StrCat(plan.wanted_bytes)},
                                    {"free", absl::StrCat(plan.free_bytes)},
                                    {"budget", absl::StrCat(plan.budget_bytes)},
                                    {"retryable", plan.retryable ? "true" : "false"}}});
  }
  if (report != nullptr) *report = std::move(plan);
  if (!refused.ok()) return refused;
  return ids;
}

void Ledger::Hold(ChargeId id, const std::string& volume) {
  MutexLock lock(mutex_);
  if (auto it = charges_.find(id); it != charges_.end()) it->second.held_by = volume;
}

void Ledger::Unhold(ChargeId id) {
  MutexLock lock(mutex_);
  if (auto it = charges_.find(id); it != charges_.end()) it->second.held_by.clear();
}

void Ledger::Release(ChargeId id) {
  MutexLock lock(mutex_);
  charges_.erase(id);
}

}  // namespace octavo::engine

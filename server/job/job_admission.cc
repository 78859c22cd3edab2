#include "server/job/job_admission.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"

#include "gpu/base/size_text.h"
#include "gpu/base/status.h"
#include "gpu/device/alignment.h"
#include "server/base/device_names.h"
#include "server/security/rights.h"

namespace octavo::job {
namespace {

/// Whether jobs of this kind may run on devices/host. Those that read raw spectra run where these
/// are, and imports would read files in the way that was measured for the other devices.
bool UsesHost(JobKind kind) { return kind == JobKind::kTomography || kind == JobKind::kProjection; }

}  // namespace

absl::StatusOr<int> JobAdmission::Named(const std::string& device, const JobWork& work) const {
  const base::DeviceNames& names = devices_.names();
  const std::optional<int> named = names.Find(device);
  if (!named.has_value()) {
    return InvalidField("device",
                        absl::StrCat("is '", device, "'",
                                     device == base::kHostDeviceName ? base::kNoHostForJobs : "",
                                     "; allowed are auto, ",
                                     UsesHost(work.kind()) ? names.All() : names.Numbered()));
  }
  if (names.IsForJobs(*named) && !UsesHost(work.kind())) {
    return InvalidField("device",
                        absl::StrCat("is ", device,
                                     ", which runs tomography and "
                                     "projection jobs, and this is a job of kind ",
                                     Name(work.kind()), "; allowed are auto, ", names.Numbered()));
  }
  return *named;
}

absl::StatusOr<std::vector<int>> JobAdmission::Candidates(const model::JobSpec& spec,
                                                          const JobWork& work) const {
  const base::DeviceNames& names = devices_.names();
  const bool any = spec.device.empty() || spec.device == "auto";
  std::vector<int> devices;
  if (any) {
    for (int d = 0; d < names.numbered(); ++d) {
      if (work.home_device() < 0 || work.home_device() == d) devices.push_back(d);
    }
  } else {
    OCTAVO_ASSIGN_OR_RETURN(const int named, Named(spec.device, work));
    devices.push_back(named);
  }
  if (work.home_device() >= 0 && (devices.empty() || devices[0] != work.home_device())) {
    return InvalidField("device",
                        absl::StrCat("is ", any ? "auto" : spec.device, ", but the volume is on ",
                                     names.Name(work.home_device())));
  }
  std::erase_if(devices, [&](int d) { return !devices_.device(d).Health().ok(); });
  if (!devices.empty()) return devices;
  return WithInfo(absl::UnavailableError("no device that the job could run on is healthy"),
                  {.reason = Reason::kDeviceDown, .field = "device", .numbers = {}});
}

memory::Ledger::Needs JobAdmission::NeedsOf(const JobPlan& plan) {
  memory::Ledger::Needs needs;
  for (const auto& result : plan.results) {
    const int64_t bytes = result.charged_bytes();
    if (!needs.empty() && needs.back().bytes == bytes * needs.back().count) {
      needs.back().bytes += bytes;
      ++needs.back().count;
    } else {
      needs.push_back({.kind = model::NeedKind::kResult, .bytes = bytes, .count = 1});
    }
  }
  needs.push_back({.kind = model::NeedKind::kWorkspace,
                   .bytes = std::max(AlignedBytes(plan.workspace_bytes), kMemoryAlignment),
                   .count = 1});
  // Last: JobResults takes the charges of the results from the front.
  if (plan.buffer_bytes > 0)
    needs.push_back({.kind = model::NeedKind::kBuffer, .bytes = plan.buffer_bytes, .count = 1});
  return needs;
}

absl::StatusOr<model::AdmissionReport> JobAdmission::Plan(const model::JobSpec& spec,
                                                          const JobWork& work,
                                                          JobPlan* chosen) const {
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<int> devices, Candidates(spec, work));
  model::AdmissionReport best;
  for (const int d : devices) {
    OCTAVO_ASSIGN_OR_RETURN(JobPlan plan, work.Plan(devices_.device(d)));
    model::AdmissionReport report = ledger_->Plan(d, NeedsOf(plan));
    if (best.device.empty() || (report.admitted && !best.admitted)) {
      best = std::move(report);
      for (const auto& result : plan.results) best.volume_bytes += result.bytes;
      if (chosen != nullptr) *chosen = std::move(plan);
    }
  }
  return best;
}

absl::StatusOr<std::map<int, JobPlan>> JobAdmission::Admit(const model::JobSpec& spec,
                                                           const JobWork& work,
                                                           model::AdmissionReport* report) const {
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<int> devices, Candidates(spec, work));
  std::map<int, JobPlan> plans;
  absl::Status refused = absl::OkStatus();
  for (const int d : devices) {
    OCTAVO_ASSIGN_OR_RETURN(JobPlan plan, work.Plan(devices_.device(d)));
    model::AdmissionReport admission = ledger_->Plan(d, NeedsOf(plan));
    if (admission.wanted_bytes > admission.budget_bytes) {
      refused =
          WithInfo(absl::ResourceExhaustedError(absl::StrCat(
                       admission.device, " has a budget of ", SizeText(admission.budget_bytes),
                       "; the job needs ", SizeText(admission.wanted_bytes))),
                   {.reason = Reason::kExceedsBudget,
                    .field = "",
                    .numbers = {{"wanted", absl::StrCat(admission.wanted_bytes)},
                                {"budget", absl::StrCat(admission.budget_bytes)},
                                {"retryable", "false"}}});
      if (report != nullptr) *report = std::move(admission);
      continue;
    }
    // A job waits while its owner has too much, but not for what it will never get.
    if (absl::Status never =
            ledger_->CheckQuota(NeedsOf(plan), security::OwnerOf(spec.caller.principal));
        !never.ok()) {
      refused = std::move(never);
      continue;
    }
    plans.emplace(d, std::move(plan));
  }
  if (plans.empty()) return refused;
  return plans;
}

}  // namespace octavo::job

#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "server/job/job.h"
#include "server/memory/device_set.h"
#include "server/memory/ledger.h"

namespace octavo::job {

/// Finds the devices on which a job may run and the memory that it needs there: checks its plans
/// against the devices and their budgets. Reserves nothing. Thread-safe.
class JobAdmission {
 public:
  JobAdmission(memory::DeviceSet devices, const memory::Ledger* ledger)
      : devices_(std::move(devices)), ledger_(ledger) {}

  /// The plan of each device whose budget it fits. The error of a device whose budget is too small
  /// if there is none; `report` (may be null) then says why memory can never suffice.
  absl::StatusOr<std::map<int, JobPlan>> Admit(const model::JobSpec& spec, const JobWork& work,
                                               model::AdmissionReport* report) const;
  /// The answer for now: the first device that has the memory, else the first one. `chosen` (may be
  /// null) gets the plan for it.
  absl::StatusOr<model::AdmissionReport> Plan(const model::JobSpec& spec, const JobWork& work,
                                              JobPlan* chosen) const;
  /// The memory that a plan requests from the ledger: its results, in their order, then its
  /// workspace.
  static memory::Ledger::Needs NeedsOf(const JobPlan& plan);

 private:
  /// The device that the request names. InvalidArgument if there is none, or if it is devices/host
  /// and does not run such work.
  absl::StatusOr<int> Named(const std::string& device, const JobWork& work) const;
  /// The healthy devices that the request and the work's data allow, in ascending order.
  /// devices/host is among them only if the request names it.
  absl::StatusOr<std::vector<int>> Candidates(const model::JobSpec& spec,
                                              const JobWork& work) const;

  const memory::DeviceSet devices_;
  const memory::Ledger* const ledger_;
};

}  // namespace octavo::job

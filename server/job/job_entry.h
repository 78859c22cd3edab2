#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "server/job/job.h"
#include "server/memory/ledger.h"
#include "server/memory/quota.h"

namespace octavo::job {

/// One job. What is marked (lock) is guarded by the lock of its JobTable; the rest is fixed, or
/// belongs to the thread that runs the job.
struct JobEntry {
  JobStatus status;  // (lock), but for name, kind and spec but its work, which are fixed
  std::map<int, JobPlan> plans;  // by device, of those that it may run on; fixed
  std::unique_ptr<JobWork> work;
  // (lock) of the work, until the job has ended
  std::shared_ptr<source::ProjectionPort> projections;
  memory::QuotaCharge place;  // (lock) of its owner's quota, until it has ended
  std::stop_source stop;
  std::vector<memory::Ledger::ChargeId> charges;  // without those of results that have begun
  int device = -1;
  uint64_t returned = 0;   // (lock) not 0: it waits for its device's turn again, in this order
  uint64_t changed = 0;    // (lock) JobTable::changes_ at its last change that ChangedSince tells
  bool finishing = false;  // (lock) its results are being handed out
  // (lock) those of its warnings that are about commits: its volumes' files do not repeat them
  std::set<std::string> commit_warnings;
};

using JobPtr = std::shared_ptr<JobEntry>;
using JobList = std::list<JobPtr>;

}  // namespace octavo::job

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "server/job/job_entry.h"

namespace octavo::job {

/// The order in which jobs get devices. Higher priorities come first. At equal priority the groups
/// take turns: first comes the group that was served longest ago, and within a group the job that
/// was submitted first. Not thread-safe; the JobTable's lock guards it.
class JobOrder {
 public:
  /// The queued jobs of `jobs` (in the order of their submission), the next one first.
  std::vector<JobPtr> Waiting(const JobList& jobs) const;
  /// The place of a queued job in Waiting, from 1 on.
  int64_t PlaceOf(const JobEntry& job, const JobList& jobs) const;
  /// The jobs that want their device's turn again, the next one first: higher priorities first,
  /// then in the order of their return.
  static std::vector<JobPtr> Returning(const JobList& jobs);
  /// A job of `group` has got a device.
  void Served(const std::string& group) { served_[group] = ++turn_; }
  /// Forgets the groups that have none of `jobs`.
  void KeepGroupsOf(const JobList& jobs);

 private:
  // The smaller one is before.
  std::pair<int, uint64_t> KeyOf(const JobEntry& job) const;

  std::map<std::string, uint64_t> served_;  // group → when one of it began last
  uint64_t turn_ = 0;
};

}  // namespace octavo::job

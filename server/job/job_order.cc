#include "server/job/job_order.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace octavo::job {

std::vector<JobPtr> JobOrder::Waiting(const JobList& jobs) const {
  std::vector<std::tuple<int, uint64_t, JobPtr>> keyed;
  for (const JobPtr& job : jobs) {  // in the order of submission, which a stable sort keeps
    if (job->status.state != JobState::kQueued) continue;
    auto served = served_.find(job->status.spec.group);
    keyed.emplace_back(-job->status.spec.priority, served == served_.end() ? 0 : served->second,
                       job);
  }
  std::stable_sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
  });
  std::vector<JobPtr> order;
  order.reserve(keyed.size());
  for (auto& [priority, served, job] : keyed) order.push_back(std::move(job));
  return order;
}

std::vector<JobPtr> JobOrder::Returning(const JobList& jobs) {
  std::vector<JobPtr> returning;
  for (const JobPtr& job : jobs) {
    if (job->returned > 0) returning.push_back(job);
  }
  std::sort(returning.begin(), returning.end(), [](const JobPtr& a, const JobPtr& b) {
    return std::pair(-a->status.spec.priority, a->returned) <
           std::pair(-b->status.spec.priority, b->returned);
  });
  return returning;
}

void JobOrder::KeepGroupsOf(const JobList& jobs) {
  std::map<std::string, uint64_t> served;
  for (const JobPtr& job : jobs) {
    if (auto it = served_.find(job->status.spec.group); it != served_.end()) served.insert(*it);
  }
  served_.swap(served);
}

}  // namespace octavo::job

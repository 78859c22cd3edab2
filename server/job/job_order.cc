#include "server/job/job_order.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace octavo::job {

std::vector<JobPtr> JobOrder::Waiting(const JobList& jobs) const {
  std::vector<std::tuple<int, uint64_t, JobPtr>> keyed;
  for (const JobPtr& job : jobs) {  // in the order of submission, which a stable sort keeps
    if (job->status.state != JobState::kQueued) continue;
    const auto [priority, served] = KeyOf(*job);
    keyed.emplace_back(priority, served, job);
  }
  std::stable_sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
  });
  std::vector<JobPtr> order;
  order.reserve(keyed.size());
  for (auto& [priority, served, job] : keyed) order.push_back(std::move(job));
  return order;
}

int64_t JobOrder::PlaceOf(const JobEntry& job, const JobList& jobs) const {
  const auto key = KeyOf(job);
  int64_t place = 1;
  bool earlier = true;  // submitted before `job`
  for (const JobPtr& other : jobs) {
    if (other.get() == &job) {
      earlier = false;
    } else if (other->status.state == JobState::kQueued) {
      const auto theirs = KeyOf(*other);
      if (theirs < key || (earlier && theirs == key)) ++place;
    }
  }
  return place;
}

std::pair<int, uint64_t> JobOrder::KeyOf(const JobEntry& job) const {
  const auto served = served_.find(job.status.spec.group);
  return {-job.status.spec.priority, served == served_.end() ? 0 : served->second};
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

#pragma once

#include "server/job/job_observer.h"
#include "tests/support/news.h"

namespace octavo::testing {

/// Tells the news that jobs have changed.
class NewsOfJobs final : public job::JobObserver {
 public:
  explicit NewsOfJobs(News* news) : news_(*news) {}
  void OnJobsChanged() override { news_.Tell(); }
  void OnCommitWanted(const std::string&, const model::CommitOptions&) override {}
  std::unique_ptr<volume::GrowingCommit> OnGrowingCommitWanted(
      const volume::GrowingVolume&, const model::CommitOptions&) override {
    return nullptr;
  }

 private:
  News& news_;
};

}  // namespace octavo::testing

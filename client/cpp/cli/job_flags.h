#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

#include "octavo/v1/job.pb.h"

#include "client/cpp/cli/commands.h"

namespace octavo::cli {

void PrintJob(const Session& session, const v1::Job& job);

/// How a job is followed.
struct JobWatch {
  std::set<std::string> told = {};  // its warnings that were printed before
  bool volumes = true;              // name those that it has made
  // An interrupt ends the watching while the job continues; else the caller handles interrupts.
  bool alone = false;
};
/// Follows a job to its end: prints the newest log lines, a progress bar, and each warning once.
/// Returns the last state; one other than DONE sets the exit code.
v1::Job WatchJob(Session& session, const std::string& name, JobWatch how);
/// Prints a refused job like Check; if the file is on this computer but not on the server, says
/// what to do.
bool CheckJob(Session& session, const v1::JobSpec& spec, const grpc::Status& status);
/// What the server would do of the job; nothing if it would not take it, and prints why not.
std::optional<v1::PlanJobResponse> PlanOf(Session& session, const v1::JobSpec& spec);
/// Records the warnings of a job as printed.
std::set<std::string> WarningsOf(const v1::Job& job);

/// Shared by all jobs.
struct JobFlags {
  std::string json_spec, title, device, group, request_id, results, commit;
  std::vector<std::string> labels;
  int32_t priority = 0;
  bool watch = false, plan = false;

  void AddTo(CLI::App* app);
  /// --commit, of jobs that hold a volume; after AddTo.
  void AddCommitTo(CLI::App* app);
  /// All but --json-spec, --results, --commit and --watch.
  void AddSharedTo(CLI::App* app);
  v1::JobSpec Spec() const;
  /// Submits or plans the job and prints the result. Returns the job, empty if there is none
  /// (refused, or --plan). `secret`: of the job's session; empty: none.
  v1::Job Submit(Session& session, const v1::JobSpec& spec, const std::string& secret = "") const;
};

}  // namespace octavo::cli

#pragma once

#include <cstdint>
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
  bool alone =
      false;  // an interrupt ends the watching, the job goes on; else who calls deals with that
};
/// Follows a job to its end: the newest log lines, and a bar; each warning once. Returns it as it
/// was last; not DONE sets the exit code.
v1::Job WatchJob(Session& session, const std::string& name, JobWatch how);
/// The warnings of a job, which have been told with it.
std::set<std::string> WarningsOf(const v1::Job& job);

/// What all jobs share.
struct JobFlags {
  std::string json_spec, title, device, group, request_id;
  std::vector<std::string> labels;
  int32_t priority = 0;
  bool watch = false, plan = false;

  void AddTo(CLI::App* app);
  v1::JobSpec Spec() const;
  /// Prints what was asked for; the job, empty if there is none (refused, or --plan). `secret`: of
  /// the session that it belongs to; empty: none.
  v1::Job Submit(Session& session, const v1::JobSpec& spec, const std::string& secret = "") const;
};

}  // namespace octavo::cli

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

#include "octavo/v1/job.pb.h"

#include "client/cpp/commands.h"

namespace octavo::cli {

void PrintJob(const Session& session, const v1::Job& job);

/// Follows a job to its end: the newest log lines, and a bar. Returns it as it was last; not DONE sets the exit code.
v1::Job WatchJob(Session& session, const std::string& name);

/// What all jobs share.
struct JobFlags {
  std::string json_spec, title, device, group, request_id;
  std::vector<std::string> labels;
  int32_t priority = 0;
  bool watch = false, plan = false;

  void AddTo(CLI::App* app);
  v1::JobSpec Spec() const;
  /// Prints what was asked for; the job, empty if there is none (refused, or --plan). `secret`: of the session that it belongs to; empty: none.
  v1::Job Submit(Session& session, const v1::JobSpec& spec, const std::string& secret = "") const;
};

}  // namespace octavo::cli

#pragma once

#include <string>
#include <vector>

#include "server/job/job.h"

namespace octavo::tomography {

/// What a step of a run has to tell, kept until it is known whether the run uses what it found.
struct JobNotes {
  std::vector<std::string> log, warnings;

  void TellTo(job::JobRun& run) const {
    for (const std::string& line : log) run.Log(line);
    for (const std::string& warning : warnings) run.Warn(warning);
  }
};

}  // namespace octavo::tomography

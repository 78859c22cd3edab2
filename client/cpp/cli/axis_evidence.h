#pragma once

#include <string>

#include "octavo/v1/job.pb.h"

#include "client/cpp/cli/commands.h"

namespace octavo::cli {

/// Writes a picture that lets people judge the axis of a tomography job (axis_picture.h), and
/// prints its path and how well opposite projections fit. Two projections are prepared for it by
/// another job, whose result does not stay. `spec`: of the job. Returns whether everything
/// succeeded; a problem is printed, and sets the exit code.
bool ShowAxis(Session& session, const v1::JobSpec& spec, const v1::Job& job,
              const std::string& png);

}  // namespace octavo::cli

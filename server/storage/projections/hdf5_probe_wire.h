#pragma once

// Private to hdf5_probe.cc and hdf5_probe_answer.cc: what they tell each other. Both are of one
// build.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

#include "server/storage/projections/projection_input.h"

namespace octavo::storage {

/// Exit status of a process that could not look at anything, as that of a shell without the
/// program.
inline constexpr int kProbeNotStarted = 127;
/// The descriptor that the process inherits beside those of standard input and output: of the file
/// that it is to look at.
inline constexpr int kProbedFile = 3;

struct ProbeRequest {
  std::string path;
  ProjectionOptions options;
  int64_t processor_seconds = 0, memory_bytes = 0;
};
std::string EncodeRequest(const ProbeRequest& request);
std::optional<ProbeRequest> DecodeRequest(const std::string& bytes);

std::string EncodeAnswer(const absl::Status& status);
/// Nothing for half an answer.
std::optional<absl::Status> DecodeAnswer(const std::string& bytes);

}  // namespace octavo::storage

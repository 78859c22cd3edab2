#pragma once

// Private to hdf5_probe.cc and hdf5_probe_answer.cc: their messages. Both come from one build.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

#include "server/storage/projections/hdf5_probe.h"
#include "server/storage/projections/projection_input.h"

namespace octavo::storage {

/// Exit status of a process that could not start probing, like that of a shell that lacks the
/// program.
inline constexpr int kProbeNotStarted = 126;
/// The descriptor of the file to probe, which the process inherits beside standard input and
/// output.
inline constexpr int kProbedFile = 3;

struct ProbeRequest {
  std::string path;
  ProjectionOptions options;
  /// Set: the file is opened as a volume (server/storage/formats/volume_input.h), not as
  /// projections.
  std::optional<Hdf5VolumeRequest> volume;
  int64_t processor_seconds = 0, memory_bytes = 0;
};
std::string EncodeRequest(const ProbeRequest& request);
std::optional<ProbeRequest> DecodeRequest(const std::string& bytes);

std::string EncodeAnswer(const absl::Status& status);
/// Nothing if the answer is incomplete.
std::optional<absl::Status> DecodeAnswer(const std::string& bytes);

}  // namespace octavo::storage

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "server/job/job.h"
#include "server/volume/volume_store.h"

namespace octavo::engine {

class BufferStore;
class ProjectionMemory;
class Spiller;

/// What the kinds of jobs need of the engine around them. All must outlive the jobs.
struct JobEnvironment {
  VolumeStore* volumes = nullptr;
  // Of tomography jobs; what is missing is refused.
  const Ledger* ledger = nullptr;            // what is free of each device
  BufferStore* buffers = nullptr;            // arrays of clients
  const Spiller* spiller = nullptr;          // room for results that no device can hold
  std::vector<std::string> file_roots = {};  // files that may be read
  ProjectionMemory* projection_memory = nullptr;
  const Clock* clock = nullptr;
};

/// The work that `spec` asks for: the one list of kinds. Pins what it reads. InvalidArgument names the field, NotFound.
absl::StatusOr<std::unique_ptr<JobWork>> MakeJobWork(const JobSpec& spec, const JobEnvironment& environment);

}  // namespace octavo::engine

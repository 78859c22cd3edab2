#pragma once

#include <string>
#include <vector>

#include "gpu/base/clock.h"
#include "server/memory/ledger.h"
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

}  // namespace octavo::engine

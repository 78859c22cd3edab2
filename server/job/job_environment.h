#pragma once

#include <string>
#include <vector>

#include "gpu/base/clock.h"
#include "server/memory/ledger.h"
#include "server/volume/volume_store.h"

namespace octavo::buffer {
class BufferStore;
}  // namespace octavo::buffer

namespace octavo::source {
class ProjectionMemory;
}  // namespace octavo::source

namespace octavo::memory {
class DeviceSet;
}  // namespace octavo::memory

namespace octavo::storage {
class StorageReads;
}  // namespace octavo::storage

namespace octavo::volume {
class Spiller;
}  // namespace octavo::volume

namespace octavo::volume_import {
class FileDeposits;
}  // namespace octavo::volume_import

namespace octavo::job {

/// The parts of the server that the kinds of jobs use. All must outlive the jobs.
struct JobEnvironment {
  volume::VolumeStore* volumes = nullptr;
  // Brings inputs back to their device, and has room for results that no device can hold.
  volume::Spiller* spiller = nullptr;
  // For tomography jobs; a job that needs a missing part is refused.
  const memory::Ledger* ledger = nullptr;    // the free memory of each device
  buffer::BufferStore* buffers = nullptr;    // arrays of clients
  std::vector<std::string> file_roots = {};  // files that may be read
  source::ProjectionMemory* projection_memory = nullptr;
  std::string payer = {};  // whose share of it the pushes of the job take (security::ShareOf)
  volume_import::FileDeposits* deposits = nullptr;  // files that clients have handed over
  const Clock* clock = nullptr;
  // For imports that go straight to the device; without both, none does.
  storage::StorageReads* reads = nullptr;
  const memory::DeviceSet* devices = nullptr;  // their page-locked memory
};

}  // namespace octavo::job

#pragma once

#include <cstdint>
#include <string>

#include "gpu/base/clock.h"
#include "server/job/job_observer.h"
#include "server/memory/device_set.h"
#include "server/memory/ledger.h"
#include "server/memory/quota.h"
#include "server/publish/publisher.h"
#include "server/volume/spiller.h"
#include "server/volume/volume_store.h"

namespace octavo::job {

/// The parts of the server that jobs are run with. All must outlive the jobs.
struct JobServices {
  memory::DeviceSet devices;
  memory::Ledger* ledger = nullptr;
  volume::VolumeStore* volumes = nullptr;
  publish::Publisher* publisher = nullptr;
  const Clock* clock = nullptr;
  std::string server_id;
  volume::Spiller* spiller = nullptr;  // stores results that stay on disk; null: there are none
  JobObserver* observer = nullptr;
  memory::QuotaBook* quotas = nullptr;  // null: jobs are not counted
  uint64_t last_number = 0;             // of the jobs of earlier daemons
};

}  // namespace octavo::job

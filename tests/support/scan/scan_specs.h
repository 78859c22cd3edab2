#pragma once

#include "server/model/scan_spec.h"
#include "tests/support/rooms.h"

namespace octavo::engine {

/// Three volumes of a simulated source; all other fields have their defaults.
inline ScanSpec SimulatedScan() {
  ScanSpec spec;
  spec.source = SimulatedSource();
  spec.acquisition.samples_per_record = 1024;
  spec.pattern = {.ascans_per_bscan = 100, .bscans_per_volume = 50, .volumes = 3};
  return spec;
}

}  // namespace octavo::engine

#pragma once

// Private to this folder: a planned chain of operations.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu/array/array_ops.h"
#include "server/derive/deriver.h"
#include "server/model/resolved_scan.h"

namespace octavo::derive {

using AscanRanges = std::vector<std::pair<int64_t, int64_t>>;  // first, count

/// One operation, ready to run: its tables in host memory and the description of its result.
struct Deriver::Step {
  Operation operation;
  model::VolumeStatus in, out;  // shape, dtype, value, levels, spacing, missing
  pattern::Pattern pattern;     // of `in`
  pattern::CartesianTaps taps;
  std::vector<int32_t> order;                       // [bscans, repeats]
  AscanRanges missing;                              // of `out`
  std::shared_ptr<const model::ResolvedScan> scan;  // reprocessing
  std::shared_ptr<const ArrayChain> chain;
  int64_t workspace_bytes = 0;  // the same
  int64_t table_bytes() const {
    return workspace_bytes + static_cast<int64_t>(taps.index.size() * 8 + order.size() * 4);
  }
};

struct Deriver::Work {
  volume::VolumeHold source;
  std::vector<Step> steps;
  std::string name;                               // of the new volume
  std::string chain;                              // of the scan
  std::vector<memory::Ledger::ChargeId> charges;  // [0]: the new volume; [1]: intermediate arrays
  std::shared_ptr<memory::VolumeSlot> slot;
  bool granted = false;  // the scan is charged for the intermediate arrays and for `slot`, if set
};

}  // namespace octavo::derive

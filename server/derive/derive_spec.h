#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "gpu/array/motion_contrast.h"
#include "server/model/scan_spec.h"
#include "server/model/volume_operation.h"
#include "server/pattern/cartesian.h"
#include "server/processing/chain_state.h"

namespace octavo::derive {

struct AngiographyOperation {
  MotionContrast method = MotionContrast::kAmplitudeDecorrelation;
};
enum class DopplerBetween : uint8_t { kDefault = 0, kRepeats = 1, kAscans = 2 };
struct DopplerOperation {
  DopplerBetween between = DopplerBetween::kDefault;
  int64_t half_window = 0;
};
struct ReprocessOperation {  // of raw spectra; first
  model::Processing processing;
};
using Operation = std::variant<pattern::CartesianGrid, AngiographyOperation, DopplerOperation,
                               ReprocessOperation, model::OpSpec>;

/// A client's request to derive a new volume.
struct DeriveSpec {
  std::string name;  // of the source
  std::vector<Operation> operations;
  std::string chain;  // the scan's chain, if this is one
  std::shared_ptr<processing::ChainState>
      memory;  // granted with the scan for the chain; null: none, or the scan has ended
};

}  // namespace octavo::derive

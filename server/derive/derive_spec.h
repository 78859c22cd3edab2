#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/model/volume_operation.h"
#include "server/processing/chain_state.h"
#include "server/security/owner.h"

namespace octavo::derive {

using model::AngiographyOperation;
using model::DopplerBetween;
using model::DopplerOperation;
using Operation = model::VolumeOperation;

/// A client's request to derive a new volume.
struct DeriveSpec {
  std::string name;  // of the source
  std::vector<Operation> operations;
  std::string chain;  // the scan's chain, if this is one
  std::shared_ptr<processing::ChainState>
      memory;  // granted with the scan for the chain; null: none, or the scan has ended
  std::optional<security::Owner> owner = {};  // of the new volume; nothing: that of the source
};

}  // namespace octavo::derive

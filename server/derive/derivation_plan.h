#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/array/array_ops.h"
#include "gpu/device/device.h"
#include "server/derive/derive_spec.h"
#include "server/derive/missing_ascans.h"
#include "server/model/status_types.h"
#include "server/pattern/cartesian.h"
#include "server/pattern/pattern.h"

namespace octavo::derive {

/// One operation, ready to run: its tables in host memory and the description of its result.
struct DerivationStep {
  Operation operation;
  model::VolumeStatus in, out;  // shape, dtype, value, levels, spacing, missing
  pattern::Pattern pattern;     // of `in`
  pattern::CartesianTaps taps;
  std::vector<int32_t> order;  // [bscans, repeats]
  AscanRanges missing;         // of `out`
  std::shared_ptr<const ArrayChain> chain;
  int64_t table_bytes() const {
    return static_cast<int64_t>(taps.index.size() * 8 + order.size() * 4);
  }
};

/// What a derivation will make.
struct DerivationPlan {
  std::vector<DerivationStep> steps;
  model::VolumeStatus result;  // ACQUIRING, without name, chain and digest
};

/// Plans `operations` on the volume `source`. InvalidArgument names the operation and its field;
/// FailedPrecondition (RECOVERED). Takes longer for larger tables.
absl::StatusOr<DerivationPlan> PlanDerivation(const model::VolumeStatus& source,
                                              const std::vector<Operation>& operations);

/// Memory of `device` for tables, for the volumes between the steps, and for scratch; not for the
/// result. Allocates nothing.
absl::StatusOr<int64_t> BytesBetween(const DerivationPlan& plan, Device& device);

}  // namespace octavo::derive

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/model/resolved_scan.h"

namespace octavo::processing {

constexpr int64_t kMostBlockBytes = int64_t{1} << 30;  // of a block of records

/// Fills in and checks processing and products of a scan whose acquisition and pattern are
/// resolved: the chain and how its values are stored and shown. Errors name the request's fields
/// ("processing.depth").
absl::Status ResolveProcessing(model::ResolvedScan& scan);
/// Derives shape, spacing and bytes of its volumes.
absl::Status SetGeometry(model::ResolvedScan& scan);

/// The same scan with other processing, for held raw records: shape and dtype may change.
/// `warnings` are those of the new processing only and, if it replaces the earlier one as a
/// `whole`, the parts of that one that it leaves out.
absl::StatusOr<model::ResolvedScan> ResolveProcessingAnew(const model::ResolvedScan& current,
                                                          const model::Processing& processing,
                                                          bool whole = true);

/// The same scan with other processing, which is resolved as for a new scan; without a dtype it
/// keeps the scan's. InvalidArgument if shape or dtype of the volumes would change. `whole`: the
/// request replaces the earlier one as a whole, so that a warning names what it leaves out.
absl::StatusOr<model::ResolvedScan> ResolveUpdate(const model::ResolvedScan& current,
                                                  const model::Processing& requested,
                                                  bool whole = true);

}  // namespace octavo::processing

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

#include "server/memory/ledger.h"
#include "server/model/resolved_scan.h"
#include "server/model/status_types.h"

namespace octavo::scan {

/// Adds to a ledger's report what a run of `scan` needs over time: bytes per volume and per run,
/// when memory and disk would be full at its rate, and the free disk space where AUTO_COMMIT writes
/// (else of the first of `roots`).
/// `spill_free_bytes`: free bytes in the tier that the scan spills to.
void AddRunFigures(const model::ResolvedScan& scan, const std::vector<std::string>& roots,
                   int64_t spill_free_bytes, model::AdmissionReport* report);

/// Checks the destination and writer options of AUTO_COMMIT before the scan starts.
absl::Status CheckAutoCommit(const model::ResolvedScan& scan,
                             const std::vector<std::string>& roots);

}  // namespace octavo::scan

#pragma once

#include <string>
#include <vector>

#include "server/model/resolved_scan.h"

// Warnings about a valid processing that is probably a mistake: it would give volumes without an
// error.
namespace octavo::processing {

/// Default number of records in a group of a rolling background: those of a B-scan with its flyback
/// (`bscan_records`) or, if these are too few to distinguish the background from the sample, as
/// many whole B-scans as make 64 records; at most the volume's records.
int64_t DefaultGroupRecords(int64_t bscan_records, int64_t volume_records);

/// Possible mistakes in the processing of `scan`, one sentence each.
std::vector<std::string> DoubtsOfProcessing(const model::ResolvedScan& scan);

/// A processing replaces the earlier one as a whole. Returns a sentence that names the parts of
/// `before` that `asked`, as the client gave it, leaves out; empty if there are none. An explicit
/// choice in `asked` (k-linearisation none) is no mistake.
std::string DescribeLeftOut(const model::ResolvedScan& before, const model::Processing& asked,
                            const model::ResolvedScan& after);

}  // namespace octavo::processing

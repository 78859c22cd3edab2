#pragma once

#include <string>
#include <vector>

#include "server/model/resolved_scan.h"

// A processing may be valid and still not be meant: it gives volumes without an error.
namespace octavo::processing {

/// Records of a group of a rolling background where the client does not say: those of a B-scan with
/// its flyback (`bscan_records`), or, where these are too few to tell the background from the
/// sample, of as many whole B-scans as have 64; at most the volume's.
int64_t DefaultGroupRecords(int64_t bscan_records, int64_t volume_records);

/// What of the processing of `scan` might be a mistake: a sentence each.
std::vector<std::string> DoubtsOfProcessing(const model::ResolvedScan& scan);

/// A processing replaces the one before as a whole. A sentence that names what that of `before` had
/// and `asked`, as the client gave it, leaves out; empty if there is nothing. What `asked` says
/// itself (k-linearisation none) is no mistake.
std::string DescribeLeftOut(const model::ResolvedScan& before, const model::Processing& asked,
                            const model::ResolvedScan& after);

}  // namespace octavo::processing

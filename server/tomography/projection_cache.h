#pragma once

#include <memory>
#include <string>

#include "server/source/push_projections.h"
#include "server/storage/projections/projection_input.h"

namespace octavo::tomography {

/// An input that reads each chunk of its file once. Otherwise files whose chunks span many rows (a
/// whole frame, as detectors write them) would be read and decompressed again for every batch of
/// slices. The data stay in host memory of the budget `memory` while the input lives. Returns
/// `input` itself if its chunks have one row, or if the memory does not suffice; `note` then says
/// so.
std::shared_ptr<storage::ProjectionInput> CacheChunks(
    std::shared_ptr<storage::ProjectionInput> input, source::ProjectionMemory* memory,
    std::string* note);

}  // namespace octavo::tomography

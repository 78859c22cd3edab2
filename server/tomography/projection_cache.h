#pragma once

#include <memory>
#include <string>

#include "server/source/push_projections.h"
#include "server/storage/projections/projection_input.h"

namespace octavo::tomography {

/// An input that reads each chunk of its file once. Files whose chunks span many rows (a whole
/// frame, as detectors write them) would be read and decompressed anew for every batch of slices
/// otherwise; what was read stays in host memory out of `memory` while the input lives. Gives
/// `input` itself where its chunks have one row, or where the memory does not suffice: `note` then
/// says so.
std::shared_ptr<storage::ProjectionInput> CacheChunks(
    std::shared_ptr<storage::ProjectionInput> input, source::ProjectionMemory* memory,
    std::string* note);

}  // namespace octavo::tomography

#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>

namespace octavo::inline gpu::cuda {

/// Adds the sum64 digest of `bytes` at `src`, which stand in a whole in runs (all numbers in 8-byte
/// words, run > 0), to `out`.
void LaunchDigestOfPart(cudaStream_t stream, const void* src, int64_t bytes, int64_t first,
                        int64_t run, int64_t stride, uint64_t* out);

}  // namespace octavo::inline gpu::cuda

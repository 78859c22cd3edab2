#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>

namespace octavo::inline gpu::cuda {

/// Adds to `out` the sum64 digest of `bytes` at `src`, a part that lies in runs within a whole (all
/// numbers in 8-byte words, run > 0).
void LaunchDigestOfPart(cudaStream_t stream, const void* src, int64_t bytes, int64_t first,
                        int64_t run, int64_t stride, uint64_t* out);

}  // namespace octavo::inline gpu::cuda

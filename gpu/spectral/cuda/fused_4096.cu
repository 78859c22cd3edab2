#include "gpu/spectral/cuda/fused_kernel.cuh"

namespace octavo::inline gpu::cuda {
const FusedLength kFused4096 = fused::LengthOf<32, 4>();
}

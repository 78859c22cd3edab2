#include "gpu/spectral/cuda/fused_kernel.cuh"

namespace octavo::inline gpu::cuda {
const FusedLength kFused512 = fused::LengthOf<16, 2>();
}

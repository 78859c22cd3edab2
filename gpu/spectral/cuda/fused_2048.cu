#include "gpu/spectral/cuda/fused_kernel.cuh"

namespace octavo::inline gpu::cuda {
const FusedLength kFused2048 = fused::LengthOf<32, 2>();
}

#include "gpu/spectral/cuda/fused_kernel.cuh"

namespace octavo::inline gpu::cuda {
const FusedLength kFused1024 = fused::LengthOf<32, 1>();
}

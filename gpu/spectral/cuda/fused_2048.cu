#include "gpu/spectral/cuda/fused_kernel.cuh"

namespace octavo::cuda {
const FusedLength kFused2048 = fused::LengthOf<32, 2>();
}

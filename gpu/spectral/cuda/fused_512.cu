#include "gpu/spectral/cuda/fused_kernel.cuh"

namespace octavo::cuda {
const FusedLength kFused512 = fused::LengthOf<16, 2>();
}

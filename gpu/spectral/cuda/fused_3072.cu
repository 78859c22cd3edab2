#include "gpu/spectral/cuda/fused_kernel.cuh"

namespace octavo::inline gpu::cuda {
const FusedLength kFused3072 = fused::LengthOf<32, 3>();
}

#include <algorithm>
#include <cmath>

#include "gpu/array/scatter.h"
#include "gpu/base/status.h"
#include "gpu/device/cuda/cuda_context.h"
#include "gpu/device/cuda/cuda_stream.h"
#include "gpu/math/stored_element.h"

namespace octavo::inline gpu::cuda {
namespace {

using math::Half;

// The link to the device bounds all of this: it brings a slab in more time than the kernel needs.
// Threads follow the order of the array, so that writes are whole transactions; what is read in
// another order comes out of the L2 cache, which holds several slabs.
constexpr int kThreads = 256;

__device__ double RealOf(const char* p, Scalar type, bool swap) {
  switch (type) {
    case Scalar::kU8: return static_cast<uint8_t>(*p);
    case Scalar::kI8: return static_cast<int8_t>(*p);
    case Scalar::kU16: return math::LoadNumber<uint16_t>(p, swap);
    case Scalar::kI16: return math::LoadNumber<int16_t>(p, swap);
    case Scalar::kU32: return math::LoadNumber<uint32_t>(p, swap);
    case Scalar::kI32: return math::LoadNumber<int32_t>(p, swap);
    case Scalar::kU64: return static_cast<double>(math::LoadNumber<uint64_t>(p, swap));
    case Scalar::kI64: return static_cast<double>(math::LoadNumber<int64_t>(p, swap));
    case Scalar::kF16: return math::ValueOf<double>(math::LoadNumber<Half>(p, swap));
    case Scalar::kF32: return math::LoadNumber<float>(p, swap);
    default: return math::LoadNumber<double>(p, swap);
  }
}

__device__ void StoreReal(double value, DType type, char* to) {
  switch (type) {
    case DType::kU8: math::StoreStored(to, math::RoundedTo<uint8_t>(value)); break;
    case DType::kI8: math::StoreStored(to, math::RoundedTo<int8_t>(value)); break;
    case DType::kU16: math::StoreStored(to, math::RoundedTo<uint16_t>(value)); break;
    case DType::kI16: math::StoreStored(to, math::RoundedTo<int16_t>(value)); break;
    case DType::kF16: math::StoreStored(to, math::RoundedTo<Half>(value).bits); break;
    case DType::kF32: math::StoreStored(to, math::RoundedTo<float>(value)); break;
    default: math::StoreStored(to, value); break;
  }
}

__device__ void ConvertElement(const ScatterSpec& s, const char* from, char* to) {
  const bool swap = s.swap_bytes;
  if (s.to != DType::kC64) {
    StoreReal(math::Scaled(RealOf(from, s.from, swap), s.scale, s.shift), s.to, to);
    return;
  }
  double re, im = 0;
  if (s.from == Scalar::kC64) {
    re = math::LoadNumber<float>(from, swap);
    im = math::Scaled(math::LoadNumber<float>(from + 4, swap), s.scale, 0);
  } else if (s.from == Scalar::kC128) {
    re = math::LoadNumber<double>(from, swap);
    im = math::Scaled(math::LoadNumber<double>(from + 8, swap), s.scale, 0);
  } else {
    re = RealOf(from, s.from, swap);
  }
  math::StoreStored(to, static_cast<float>(math::Scaled(re, s.scale, s.shift)));
  math::StoreStored(to + 4, static_cast<float>(im));
}

__global__ void ScatterKernel(ScatterSpec s, const char* slab, const ScatterPiece* pieces,
                              int64_t count, char* out) {
  __shared__ ScatterPiece piece;
  if (threadIdx.x == 0) {
    // The last piece that begins at this block or before.
    const int64_t block = blockIdx.x;
    int64_t low = 0, high = count;
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      if (pieces[middle].first_block <= block)
        low = middle;
      else
        high = middle;
    }
    piece = pieces[low];
  }
  __syncthreads();
  const auto n1 = static_cast<uint32_t>(piece.count[1]), n2 = static_cast<uint32_t>(piece.count[2]);
  const auto all = static_cast<uint32_t>(piece.count[0]) * n1 * n2;
  const auto first = static_cast<uint32_t>((blockIdx.x - piece.first_block) * kScatterBlock);
  const uint32_t end = min(all, first + static_cast<uint32_t>(kScatterBlock));
  for (uint32_t i = first + threadIdx.x; i < end; i += kThreads) {
    const uint32_t row = i / n2, c = i - row * n2, a = row / n1, b = row - a * n1;
    const char* const from = slab + piece.from + a * piece.from_stride[0] +
                             b * piece.from_stride[1] + c * piece.from_stride[2];
    char* const to =
        out + piece.to + a * piece.to_stride[0] + b * piece.to_stride[1] + c * piece.to_stride[2];
    if (piece.unit > 0)
      math::CopyUnit(from, to, piece.unit, piece.number);
    else
      ConvertElement(s, from, to);
  }
}

class CudaScatterOps final : public ScatterOps {
 public:
  CudaScatterOps(int ordinal, std::shared_ptr<DeviceHealth> health)
      : ordinal_(ordinal), health_(std::move(health)) {}

  bool ReadsHostMemory() const override { return false; }
  absl::Status Scatter(StreamRef stream, const ScatterSpec& spec, const void* slab,
                       const ScatterPiece* pieces, int64_t count, int64_t blocks,
                       void* out) override {
    if (count == 0) return absl::OkStatus();
    const DeviceGuard guard(ordinal_);
    ScatterKernel<<<static_cast<unsigned>(blocks), kThreads, 0, AsCuda(stream)>>>(
        spec, static_cast<const char*>(slab), pieces, count, static_cast<char*>(out));
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }

 private:
  const int ordinal_;
  const std::shared_ptr<DeviceHealth> health_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ScatterOps>> MakeScatterOps(Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(const CudaContext context, FindCudaContext(device, ScatterOps::kFamily));
  return std::make_unique<CudaScatterOps>(context.ordinal, context.health);
}

}  // namespace octavo::inline gpu::cuda

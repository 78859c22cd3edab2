#include <algorithm>

#include "gpu/array/project.h"
#include "gpu/base/status.h"
#include "gpu/device/cuda/cuda_context.h"
#include "gpu/device/cuda/cuda_stream.h"
#include "gpu/device/dtype_dispatch.h"
#include "gpu/math/element.h"
#include "gpu/math/projection.h"
#include "gpu/math/sharpness.h"

namespace octavo::inline gpu::cuda {
namespace {

using math::MaxOf;
using math::Projected;
template <typename T>
using ProjectedType = decltype(Projected(T{}));

template <typename T>
__device__ inline T ShuffleDown(T v, int offset) {
  return static_cast<T>(__shfl_down_sync(0xFFFFFFFFu, v, offset));
}
__device__ inline math::Half ShuffleDown(math::Half v, int offset) {
  return {
      static_cast<uint16_t>(__shfl_down_sync(0xFFFFFFFFu, static_cast<unsigned>(v.bits), offset))};
}

// One thread per (y, z); neighbouring threads read neighbouring depth samples.
template <typename T>
__global__ void MaxOverXKernel(const T* in, int64_t X, int64_t Z, int64_t y_begin,
                               ProjectedType<T>* out) {
  const int64_t z = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
                y = y_begin + blockIdx.y;
  if (z >= Z) return;
  auto most = Projected(in[y * X * Z + z]);
  for (int64_t x = 1; x < X; ++x) most = MaxOf(most, Projected(in[(y * X + x) * Z + z]));
  out[y * Z + z] = most;
}

template <typename T>
__global__ void MaxOverYKernel(const T* in, int64_t plane, int64_t y_begin, int64_t y_end,
                               bool accumulate, ProjectedType<T>* out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= plane) return;
  auto most = accumulate ? out[i] : Projected(in[y_begin * plane + i]);
  for (int64_t y = y_begin; y < y_end; ++y) most = MaxOf(most, Projected(in[y * plane + i]));
  out[i] = most;
}

// One warp per A-scan.
template <typename T>
__global__ void MaxOverZKernel(const T* in, int64_t first, int64_t ascans, int64_t Z,
                               int64_t z_begin, int64_t z_end, ProjectedType<T>* out) {
  const int64_t a = first + (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (a >= first + ascans) return;
  const int lane = threadIdx.x & 31;
  auto most = Projected(in[a * Z + z_begin]);
  for (int64_t z = z_begin + lane; z < z_end; z += 32) most = MaxOf(most, Projected(in[a * Z + z]));
  for (int offset = 16; offset > 0; offset /= 2) most = MaxOf(most, ShuffleDown(most, offset));
  if (lane == 0) out[a] = most;
}

template <typename T>
__global__ void StridedKernel(const T* in, int64_t rows, int64_t columns, int64_t row_stride,
                              int64_t column_stride, T* out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < rows * columns) out[i] = in[i / columns * row_stride + i % columns * column_stride];
}

unsigned Blocks(int64_t threads) { return static_cast<unsigned>((threads + 255) / 256); }

// One warp per A-scan.
__global__ void PowerSumsKernel(const float* power, int64_t ascans, int64_t depth, int64_t z_begin,
                                int64_t z_end, float* out) {
  const int64_t ascan = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (ascan >= ascans) return;
  const int lane = static_cast<int>(threadIdx.x & 31);
  math::PowerSums sums = math::LaneSums(power + ascan * depth, z_begin, z_end, lane);
  for (int half = math::kSharpnessLanes / 2; half > 0; half /= 2) {
    const math::PowerSums other{__shfl_down_sync(0xFFFFFFFFu, sums.sum, half),
                                __shfl_down_sync(0xFFFFFFFFu, sums.squares, half)};
    sums = math::Merge(sums, other);
  }
  if (lane != 0) return;
  out[2 * ascan] = sums.sum;
  out[2 * ascan + 1] = sums.squares;
}

class CudaProjectOps final : public ProjectOps {
 public:
  CudaProjectOps(int ordinal, std::shared_ptr<DeviceHealth> health)
      : ordinal_(ordinal), health_(std::move(health)) {}

  absl::Status MaxOverX(StreamRef stream, const VolumeView& v, int64_t y_begin, int64_t y_end,
                        void* out) override {
    return Launch(
        [&](auto type) {
          using T = decltype(type);
          for (int64_t y = y_begin; y < y_end; y += 65535) {
            const dim3 grid(Blocks(v.shape[2]),
                            static_cast<unsigned>(std::min<int64_t>(65535, y_end - y)));
            MaxOverXKernel<<<grid, 256, 0, AsCuda(stream)>>>(static_cast<const T*>(v.data),
                                                             v.shape[1], v.shape[2], y,
                                                             static_cast<ProjectedType<T>*>(out));
          }
        },
        v);
  }
  absl::Status MaxOverY(StreamRef stream, const VolumeView& v, int64_t y_begin, int64_t y_end,
                        bool accumulate, void* out) override {
    return Launch(
        [&](auto type) {
          using T = decltype(type);
          const int64_t plane = v.shape[1] * v.shape[2];
          MaxOverYKernel<<<Blocks(plane), 256, 0, AsCuda(stream)>>>(
              static_cast<const T*>(v.data), plane, y_begin, y_end, accumulate,
              static_cast<ProjectedType<T>*>(out));
        },
        v);
  }
  absl::Status MaxOverZ(StreamRef stream, const VolumeView& v, int64_t y_begin, int64_t y_end,
                        int64_t z_begin, int64_t z_end, void* out) override {
    return Launch(
        [&](auto type) {
          using T = decltype(type);
          const int64_t ascans = (y_end - y_begin) * v.shape[1];
          MaxOverZKernel<<<Blocks(ascans * 32), 256, 0, AsCuda(stream)>>>(
              static_cast<const T*>(v.data), y_begin * v.shape[1], ascans, v.shape[2], z_begin,
              z_end, static_cast<ProjectedType<T>*>(out));
        },
        v);
  }
  absl::Status ExtractPlane(StreamRef stream, const VolumeView& v, Axis axis, int64_t index,
                            void* out) override {
    return Launch(
        [&](auto type) {
          using T = decltype(type);
          const int64_t Y = v.shape[0], X = v.shape[1], Z = v.shape[2];
          const T* in = static_cast<const T*>(v.data);
          T* to = static_cast<T*>(out);
          if (axis == Axis::kY)
            StridedKernel<<<Blocks(X * Z), 256, 0, AsCuda(stream)>>>(in + index * X * Z, X, Z, Z, 1,
                                                                     to);
          if (axis == Axis::kX)
            StridedKernel<<<Blocks(Y * Z), 256, 0, AsCuda(stream)>>>(in + index * Z, Y, Z, X * Z, 1,
                                                                     to);
          if (axis == Axis::kZ)
            StridedKernel<<<Blocks(Y * X), 256, 0, AsCuda(stream)>>>(in + index, Y, X, X * Z, Z,
                                                                     to);
        },
        v);
  }
  absl::Status PowerSums(StreamRef stream, DeviceSpan<const float> power, int64_t ascans,
                         int64_t depth, int64_t z_begin, int64_t z_end,
                         DeviceSpan<float> out) override {
    const DeviceGuard guard(ordinal_);
    PowerSumsKernel<<<Blocks(ascans * 32), 256, 0, AsCuda(stream)>>>(power.data(), ascans, depth,
                                                                     z_begin, z_end, out.data());
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }

 private:
  template <typename F>
  absl::Status Launch(F launch, const VolumeView& v) {
    const DeviceGuard guard(ordinal_);
    DispatchVolumeType(v.dtype, launch);
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }
  const int ordinal_;
  const std::shared_ptr<DeviceHealth> health_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ProjectOps>> MakeProjectOps(Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(CudaContext context, FindCudaContext(device, ProjectOps::kFamily));
  return std::make_unique<CudaProjectOps>(context.ordinal, std::move(context.health));
}

}  // namespace octavo::inline gpu::cuda

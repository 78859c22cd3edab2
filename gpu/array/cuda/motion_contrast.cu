#include <algorithm>

#include "gpu/array/motion_contrast.h"
#include "gpu/base/status.h"
#include "gpu/device/cuda/cuda_context.h"
#include "gpu/device/cuda/cuda_stream.h"
#include "gpu/device/dtype_dispatch.h"
#include "gpu/math/motion_contrast.h"

namespace octavo::inline gpu::cuda {
namespace {

struct VarianceOf {
  template <class F>
  __device__ float operator()(int64_t n, const F& amplitude) const {
    return math::SpeckleVariance(n, amplitude);
  }
};
struct DecorrelationOf {
  template <class F>
  __device__ float operator()(int64_t n, const F& amplitude) const {
    return math::AmplitudeDecorrelation(n, amplitude);
  }
};

// One block per A-scan of the result; neighbouring threads read neighbouring depth samples.
template <typename T, class F>
__global__ void OverRepeatsKernel(RepeatView v, math::StoredScale scale, F f, float* out) {
  const int64_t ascan = blockIdx.x, b = ascan / v.columns, x = ascan % v.columns;
  for (int64_t z = threadIdx.x; z < v.depth; z += blockDim.x) {
    const math::RepeatAmplitudes<T> amplitudes{static_cast<const T*>(v.data) + x * v.depth + z,
                                               v.order + b * v.repeats, v.columns * v.depth, scale};
    out[ascan * v.depth + z] = f(v.repeats, amplitudes);
  }
}

// One block per A-scan of the result; the block adds the sums of its threads in a fixed order.
template <typename T, class F>
__global__ void EnFaceKernel(RepeatView v, math::StoredScale scale, F f, int64_t z_begin,
                             int64_t z_end, float* out) {
  const int64_t ascan = blockIdx.x, b = ascan / v.columns, x = ascan % v.columns;
  float sum = 0, count = 0;
  for (int64_t z = z_begin + threadIdx.x; z < z_end; z += blockDim.x) {
    const math::RepeatAmplitudes<T> amplitudes{static_cast<const T*>(v.data) + x * v.depth + z,
                                               v.order + b * v.repeats, v.columns * v.depth, scale};
    const float c = f(v.repeats, amplitudes);
    if (c == c) sum += c, count += 1;
  }
  __shared__ float sums[4], counts[4];
  for (int offset = 16; offset > 0; offset /= 2) {
    sum += __shfl_down_sync(0xFFFFFFFFu, sum, offset);
    count += __shfl_down_sync(0xFFFFFFFFu, count, offset);
  }
  if ((threadIdx.x & 31) == 0) {
    sums[threadIdx.x / 32] = sum;
    counts[threadIdx.x / 32] = count;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < 4; ++w) {
    sum += sums[w];
    count += counts[w];
  }
  out[ascan] = count == 0.0f ? NAN : sum / count;
}

__global__ void PhaseOverRepeatsKernel(RepeatView v, int64_t half_window, float* out) {
  const auto* in = static_cast<const float*>(v.data);
  const int64_t ascan = blockIdx.x, b = ascan / v.columns, x = ascan % v.columns;
  const int32_t* rows = v.order + b * v.repeats;
  for (int64_t z = threadIdx.x; z < v.depth; z += blockDim.x) {
    const int64_t begin = max(z - half_window, int64_t{0}), end = min(z + half_window + 1, v.depth);
    float re = 0, im = 0;
    for (int64_t r = 1; r < v.repeats; ++r) {
      math::AddProducts(in + 2 * ((rows[r - 1] * v.columns + x) * v.depth + begin),
                        in + 2 * ((rows[r] * v.columns + x) * v.depth + begin), end - begin, &re,
                        &im);
    }
    out[ascan * v.depth + z] = math::PhaseOf(re, im);
  }
}

__global__ void PhaseOverAscansKernel(RepeatView v, int64_t half_window, float* out) {
  const auto* in = static_cast<const float*>(v.data);
  const int64_t ascan = blockIdx.x,
                from = ascan / (v.columns - 1) * v.columns + ascan % (v.columns - 1);
  for (int64_t z = threadIdx.x; z < v.depth; z += blockDim.x) {
    const int64_t begin = max(z - half_window, int64_t{0}), end = min(z + half_window + 1, v.depth);
    float re = 0, im = 0;
    math::AddProducts(in + 2 * (from * v.depth + begin), in + 2 * ((from + 1) * v.depth + begin),
                      end - begin, &re, &im);
    out[ascan * v.depth + z] = math::PhaseOf(re, im);
  }
}

class CudaRepeatOps final : public RepeatOps {
 public:
  CudaRepeatOps(int ordinal, std::shared_ptr<DeviceHealth> health)
      : ordinal_(ordinal), health_(std::move(health)) {}

  absl::Status SpeckleVariance(StreamRef stream, const RepeatView& v,
                               const math::StoredScale& scale, DeviceSpan<float> out) override {
    return OverRepeats(stream, v, scale, out, VarianceOf{});
  }
  absl::Status AmplitudeDecorrelation(StreamRef stream, const RepeatView& v,
                                      const math::StoredScale& scale,
                                      DeviceSpan<float> out) override {
    return OverRepeats(stream, v, scale, out, DecorrelationOf{});
  }

  absl::Status ContrastEnFace(StreamRef stream, bool decorrelation, const RepeatView& v,
                              const math::StoredScale& scale, int64_t z_begin, int64_t z_end,
                              DeviceSpan<float> out) override {
    const DeviceGuard guard(ordinal_);
    const auto blocks = static_cast<unsigned>(v.bscans * v.columns);
    DispatchIntensityType(v.dtype, [&](auto type) {
      using T = decltype(type);
      if (decorrelation) {
        EnFaceKernel<T><<<blocks, 128, 0, AsCuda(stream)>>>(v, scale, DecorrelationOf{}, z_begin,
                                                            z_end, out.data());
      } else {
        EnFaceKernel<T><<<blocks, 128, 0, AsCuda(stream)>>>(v, scale, VarianceOf{}, z_begin, z_end,
                                                            out.data());
      }
    });
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }

  absl::Status PhaseOverRepeats(StreamRef stream, const RepeatView& v, int64_t half_window,
                                DeviceSpan<float> out) override {
    const DeviceGuard guard(ordinal_);
    PhaseOverRepeatsKernel<<<static_cast<unsigned>(v.bscans * v.columns), 128, 0, AsCuda(stream)>>>(
        v, half_window, out.data());
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }

  absl::Status PhaseOverAscans(StreamRef stream, const RepeatView& v, int64_t half_window,
                               DeviceSpan<float> out) override {
    const DeviceGuard guard(ordinal_);
    PhaseOverAscansKernel<<<static_cast<unsigned>(v.rows * (v.columns - 1)), 128, 0,
                            AsCuda(stream)>>>(v, half_window, out.data());
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }

 private:
  template <class F>
  absl::Status OverRepeats(StreamRef stream, const RepeatView& v, const math::StoredScale& scale,
                           DeviceSpan<float> out, F f) {
    const DeviceGuard guard(ordinal_);
    DispatchIntensityType(v.dtype, [&](auto type) {
      using T = decltype(type);
      OverRepeatsKernel<T><<<static_cast<unsigned>(v.bscans * v.columns), 128, 0, AsCuda(stream)>>>(
          v, scale, f, out.data());
    });
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }
  const int ordinal_;
  const std::shared_ptr<DeviceHealth> health_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RepeatOps>> MakeRepeatOps(Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(CudaContext context, FindCudaContext(device, RepeatOps::kFamily));
  return std::make_unique<CudaRepeatOps>(context.ordinal, std::move(context.health));
}

}  // namespace octavo::inline gpu::cuda

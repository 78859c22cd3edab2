#include <algorithm>
#include <memory>

#include "gpu/base/status.h"
#include "gpu/device/cuda/cuda_context.h"
#include "gpu/device/cuda/cuda_stream.h"
#include "gpu/device/dtype_dispatch.h"
#include "gpu/tomography/cuda/launch.cuh"
#include "gpu/tomography/preprocess_ops.h"
#include "gpu/tomography/preprocess_pixels.h"

namespace octavo::inline gpu::cuda {
namespace {

constexpr int kRun = 32;  // rows that a sliding window passes

// Few pixels have flags. The counts are whole numbers, so the order of the additions does not
// matter.
template <class F>
__global__ void CountRowsKernel(int64_t rows, int64_t columns, int64_t* counts, F f) {
  int mine[math::kPrepareFlags] = {};
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    for (int64_t column = threadIdx.x; column < columns; column += kRowThreads) {
      const uint32_t flags = f(row, column);
      for (int bit = 0; bit < math::kPrepareFlags; ++bit)
        mine[bit] += static_cast<int>(flags >> bit) & 1;
    }
  }
  for (int bit = 0; bit < math::kPrepareFlags; ++bit) {
    const int warp =
        static_cast<int>(__reduce_add_sync(0xFFFFFFFFu, static_cast<unsigned>(mine[bit])));
    if (warp != 0 && threadIdx.x % 32 == 0)
      atomicAdd(reinterpret_cast<unsigned long long*>(counts + bit),
                static_cast<unsigned long long>(warp));
  }
}

// One thread per column and run of rows. The windows are in shared memory, those of neighbouring
// threads interleaved.
template <class T>
__global__ void OutliersKernel(OutlierSpec s, const T* frames, float* out, int64_t* counts) {
  extern __shared__ uint32_t windows[];
  const int64_t c = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
                begin = static_cast<int64_t>(blockIdx.y) * kRun;
  const FrameSpec& in = s.in;
  if (c >= in.columns) return;
  int found = 0;
  for (int64_t frame = blockIdx.z; frame < in.frames; frame += gridDim.z) {
    const OutlierFrame<T> pixels(s, frames, out, frame);
    const int64_t end = begin + kRun < in.rows ? begin + kRun : in.rows;
    math::SlideMedian(
        math::SortedWindow<uint32_t>{windows + threadIdx.x, static_cast<int>(blockDim.x), 0},
        s.window, true, begin, end,
        [&](int64_t row, int64_t o) { return pixels.KeyAt(row, c + o); },
        [&](int64_t row, uint32_t median) { found += pixels.Write(row, c, median); });
  }
  if (found != 0)
    atomicAdd(reinterpret_cast<unsigned long long*>(counts),
              static_cast<unsigned long long>(found));
}

class CudaPrepareOps final : public PrepareOps, TomoLauncher {
 public:
  using TomoLauncher::TomoLauncher;

  absl::Status Field(StreamRef stream, const FrameSpec& in, bool median, const void* frames,
                     DeviceSpan<float> out) override {
    return ForType(in.dtype, [&, out = out.data()](auto type) {
      using T = decltype(type);
      LaunchRows(AsCuda(stream), in.rows, in.columns,
                 FieldPixel<T>{in, median, static_cast<const T*>(frames), out});
    });
  }

  absl::Status Outliers(StreamRef stream, const OutlierSpec& spec, const void* frames,
                        DeviceSpan<float> out, DeviceSpan<int64_t> counts) override {
    const int64_t values = spec.window * spec.window;
    const unsigned threads = values <= 81 ? 128 : 32;
    const dim3 blocks(static_cast<unsigned>((spec.in.columns + threads - 1) / threads),
                      static_cast<unsigned>((spec.in.rows + kRun - 1) / kRun),
                      static_cast<unsigned>(std::min<int64_t>(spec.in.frames, 65535)));
    return ForType(spec.in.dtype, [&, out = out.data(), counts = counts.data()](auto type) {
      OutliersKernel<<<blocks, threads, static_cast<size_t>(values) * threads * sizeof(uint32_t),
                       AsCuda(stream)>>>(spec, static_cast<const decltype(type)*>(frames), out,
                                         counts);
    });
  }

  absl::Status Correct(StreamRef stream, const CorrectSpec& spec, const void* frames,
                       DeviceSpan<float> out, DeviceSpan<int64_t> counts) override {
    return ForType(spec.in.dtype, [&, out = out.data(), counts = counts.data()](auto type) {
      using T = decltype(type);
      LaunchCounted(stream, spec.angles * spec.rows, spec.columns, counts,
                    CorrectPixel<T>{spec, static_cast<const T*>(frames), out});
    });
  }

  absl::Status AirLevels(StreamRef stream, const RowsSpec& in, int64_t left, int64_t right,
                         DeviceSpan<const float> values, DeviceSpan<float> air) override {
    return ForRows(stream, in.angles * in.rows, 1,
                   AirRow{in, left, right, values.data(), air.data()});
  }

  absl::Status Finish(StreamRef stream, const FinishSpec& spec, DeviceSpan<const float> in,
                      DeviceSpan<float> out, DeviceSpan<int64_t> counts) override {
    return CountRows(stream, spec.in.angles * spec.in.rows, spec.in.columns, counts.data(),
                     FinishPixel{spec, in.data(), out.data()});
  }

  absl::Status Pad(StreamRef stream, const PaddedSpec& s, DeviceSpan<const float> in,
                   DeviceSpan<ComplexF> out) override {
    return ForRows(stream, s.frames * s.padded_rows, s.padded_columns,
                   PadPixel{s, in.data(), out.data()});
  }
  absl::Status Unpad(StreamRef stream, const PaddedSpec& s, DeviceSpan<const ComplexF> in,
                     DeviceSpan<float> out) override {
    return ForRows(stream, s.frames * s.rows, s.columns, UnpadPixel{s, in.data(), out.data()});
  }
  absl::Status FilterPhase(StreamRef stream, const PaddedSpec& s, float scale_rows,
                           float scale_columns, float scale, DeviceSpan<ComplexF> data) override {
    return ForRows(stream, s.frames * s.padded_columns, s.padded_rows,
                   FilterPhasePixel{s, scale_rows, scale_columns, scale, data.data()});
  }

  absl::Status Stitch(StreamRef stream, const StitchSpec& s, DeviceSpan<const float> in,
                      DeviceSpan<float> out) override {
    return ForRows(stream, s.slices * s.half_turn, s.width, StitchPixel{s, in.data(), out.data()});
  }

 private:
  template <class F>
  static void LaunchCounted(StreamRef stream, int64_t rows, int64_t columns, int64_t* counts, F f) {
    CountRowsKernel<<<static_cast<unsigned>(std::min<int64_t>(rows, 8192)), kRowThreads, 0,
                      AsCuda(stream)>>>(rows, columns, counts, f);
  }
  template <class F>
  absl::Status CountRows(StreamRef stream, int64_t rows, int64_t columns, int64_t* counts, F f) {
    return Launch([&] { LaunchCounted(stream, rows, columns, counts, f); });
  }
  template <class F>
  absl::Status ForType(DType dtype, F f) {
    return Launch([&] { DispatchIntensityType(dtype, f); });
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<PrepareOps>> MakePrepareOps(Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(CudaContext context, FindCudaContext(device, PrepareOps::kFamily));
  return std::make_unique<CudaPrepareOps>(context.ordinal, std::move(context.health));
}

}  // namespace octavo::inline gpu::cuda

#include <algorithm>
#include <memory>

#include "gpu/base/status.h"
#include "gpu/device/cuda/cuda_context.h"
#include "gpu/device/cuda/cuda_stream.h"
#include "gpu/device/dtype_dispatch.h"
#include "gpu/tomography/cuda/launch.cuh"
#include "gpu/tomography/preprocess_ops.h"

namespace octavo::inline gpu::cuda {
namespace {

constexpr int kRun = 32;  // rows that a sliding window passes

// Pixels that met something are few: whole numbers, the order does not matter.
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

// A thread a column and run of rows; the windows lie in shared memory, those of neighbours side by
// side.
template <class T>
__global__ void OutliersKernel(OutlierSpec s, const T* frames, float* out, int64_t* counts) {
  extern __shared__ uint32_t windows[];
  const int64_t c = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
                begin = static_cast<int64_t>(blockIdx.y) * kRun;
  const FrameSpec& in = s.in;
  if (c >= in.columns) return;
  int found = 0;
  for (int64_t frame = blockIdx.z; frame < in.frames; frame += gridDim.z) {
    const T* values = frames + frame * in.frame_stride;
    const auto at = [&](int64_t row, int64_t column) {
      return static_cast<float>(values[math::Mirrored(row, in.rows) * in.row_stride +
                                       math::Mirrored(column, in.columns)]);
    };
    const int64_t end = begin + kRun < in.rows ? begin + kRun : in.rows;
    math::SlideMedian(
        math::SortedWindow<uint32_t>{windows + threadIdx.x, static_cast<int>(blockDim.x), 0},
        s.window, true, begin, end,
        [&](int64_t row, int64_t o) { return math::SortKey(at(row, c + o)); },
        [&](int64_t row, uint32_t key) {
          const float value = at(row, c), median = math::FromSortKey(key);
          const bool odd = math::IsOutlier(value, median, s.difference, s.dark_too);
          found += odd;
          out[(frame * in.rows + row) * in.columns + c] = odd ? median : value;
        });
  }
  if (found != 0)
    atomicAdd(reinterpret_cast<unsigned long long*>(counts),
              static_cast<unsigned long long>(found));
}

// Typed pixels: an extended lambda may not stand in a generic one.
template <class T>
struct FieldPixel {
  FrameSpec in;
  bool median;
  const T* values;
  float* out;
  __device__ void operator()(int64_t row, int64_t column) const {
    out[row * in.columns + column] = math::FieldValue(in.frames, median, [&](int64_t i) {
      return static_cast<float>(values[i * in.frame_stride + row * in.row_stride + column]);
    });
  }
};
template <class T>
struct CorrectPixel {
  CorrectSpec spec;
  const T* values;
  float* out;
  __device__ uint32_t operator()(int64_t i, int64_t column) const {
    const int64_t angle = i / spec.rows, row = i % spec.rows;
    uint32_t flags = 0;
    out[angle * spec.out_angle_stride + row * spec.out_row_stride + column] =
        Corrected(spec, values, angle, row, column, &flags);
    return flags;
  }
};

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
                   [=, values = values.data(), air = air.data()] __device__(int64_t i, int64_t) {
                     AirOfRow(values + i / in.rows * in.angle_stride + i % in.rows * in.row_stride,
                              in.columns, left, right, air + 2 * i);
                   });
  }

  absl::Status Finish(StreamRef stream, const FinishSpec& spec, DeviceSpan<const float> in,
                      DeviceSpan<float> out, DeviceSpan<int64_t> counts) override {
    return CountRows(
        stream, spec.in.angles * spec.in.rows, spec.in.columns, counts.data(),
        [=, in = in.data(), out = out.data()] __device__(int64_t i, int64_t column) {
          const int64_t angle = i / spec.in.rows, row = i % spec.in.rows;
          uint32_t flags = 0;
          out[angle * spec.out.angle_stride + row * spec.out.row_stride + column] = FinishedPixel(
              spec, in[angle * spec.in.angle_stride + row * spec.in.row_stride + column], i, column,
              &flags);
          return flags;
        });
  }

  absl::Status Pad(StreamRef stream, const PaddedSpec& s, DeviceSpan<const float> in,
                   DeviceSpan<ComplexF> out) override {
    return ForRows(stream, s.frames * s.padded_rows, s.padded_columns,
                   [=, in = in.data(), out = out.data()] __device__(int64_t row, int64_t c) {
                     out[row * s.padded_columns + c] = PaddedPixel(s, in, row, c);
                   });
  }
  absl::Status Unpad(StreamRef stream, const PaddedSpec& s, DeviceSpan<const ComplexF> in,
                     DeviceSpan<float> out) override {
    return ForRows(stream, s.frames * s.rows, s.columns,
                   [=, in = in.data(), out = out.data()] __device__(int64_t row, int64_t c) {
                     out[row * s.columns + c] = UnpaddedPixel(s, in, row, c);
                   });
  }
  absl::Status FilterPhase(StreamRef stream, const PaddedSpec& s, float scale_rows,
                           float scale_columns, float scale, DeviceSpan<ComplexF> data) override {
    return ForRows(stream, s.frames * s.padded_columns, s.padded_rows,
                   [=, data = data.data()] __device__(int64_t i, int64_t v) {
                     const float factor =
                         scale * math::PhaseFactor(v, s.padded_rows, i % s.padded_columns,
                                                   s.padded_columns, scale_rows, scale_columns);
                     data[i * s.padded_rows + v].re *= factor;
                     data[i * s.padded_rows + v].im *= factor;
                   });
  }

  absl::Status Stitch(StreamRef stream, const StitchSpec& s, DeviceSpan<const float> in,
                      DeviceSpan<float> out) override {
    return ForRows(
        stream, s.slices * s.half_turn, s.width,
        [=, in = in.data(), out = out.data()] __device__(int64_t i, int64_t y) {
          const float* near = in + (i / s.half_turn * s.angles + i % s.half_turn) * s.columns;
          out[i * s.width + y] = math::StitchedPixel(near, near + s.half_turn * s.columns,
                                                     s.columns, s.width, s.overlap, s.right, y);
        });
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

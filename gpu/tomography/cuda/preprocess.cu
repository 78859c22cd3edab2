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
constexpr int kLanes = 4, kAngles = 16;
constexpr int kWeightThreads = 256;  // that find the weights of one projection

// Few pixels have flags. The counts are whole numbers, so the order of the additions does not
// matter.
struct FlagCounts {
  int mine[math::kPrepareFlags] = {};
  __device__ void Add(uint32_t flags) {
    if (flags == 0) return;
    for (int bit = 0; bit < math::kPrepareFlags; ++bit)
      mine[bit] += static_cast<int>(flags >> bit) & 1;
  }
  /// Adds them to those of all threads. All threads of a warp must call it.
  __device__ void AddTo(int64_t* counts) const {
    for (int bit = 0; bit < math::kPrepareFlags; ++bit) {
      const int warp =
          static_cast<int>(__reduce_add_sync(0xFFFFFFFFu, static_cast<unsigned>(mine[bit])));
      if (warp != 0 && threadIdx.x % 32 == 0)
        atomicAdd(reinterpret_cast<unsigned long long*>(counts + bit),
                  static_cast<unsigned long long>(warp));
    }
  }
};

template <class F>
__global__ void CountRowsKernel(int64_t rows, int64_t columns, int64_t* counts, F f) {
  FlagCounts mine;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    for (int64_t column = threadIdx.x; column < columns; column += kRowThreads)
      mine.Add(f(row, column));
  }
  mine.AddTo(counts);
}

// kLanes neighbouring elements, loaded and stored as one.
template <class T>
struct alignas(kLanes * sizeof(T)) Lanes {
  T at[kLanes];
};

// Correct without binning and with one series of flat fields at most: what most scans are. A thread
// keeps the fields of kLanes pixels of the detector while it passes kAngles projections, so that
// the fields cost nothing beside the counts, which come and go once.
//
// `kLineIntegrals`: what MakesLineIntegrals says. Then nearly all pixels lie between the floor and
// the cutoff, and are −log of a product. They are computed side by side without a look at flags;
// only where one of a thread's pixels does not lie there, the thread computes them again, one by
// one. With the flags of each pixel, the arithmetic and not the memory sets the pace.
template <class T, bool kLineIntegrals>
__global__ void CorrectPlainKernel(CorrectSpec s, const T* frames, float* out, int64_t* counts) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kLanes,
                row = blockIdx.y, first = static_cast<int64_t>(blockIdx.z) * kAngles,
                pixel = (s.first_row + row) * s.in.columns + s.first_column + column;
  FlagCounts mine;
  if (column < s.columns) {
    float dark[kLanes], open_inverse[kLanes];
    uint32_t unlit[kLanes] = {}, any_unlit = 0;
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) {
      dark[lane] = s.dark == nullptr ? 0.0f : s.dark[pixel + lane];
      const float open = s.flats == nullptr
                             ? 1.0f
                             : FlooredBeam(s, s.flats[pixel + lane] - dark[lane], unlit + lane);
      open_inverse[lane] = 1.0f / open;
      any_unlit |= unlit[lane];
    }
    const float low = s.finishing.log_floor, high = fminf(s.cutoff, 3.402823466e38f);
    const T* from = frames + s.in.At(first, s.first_row + row, s.first_column + column);
    float* to = out + first * s.out_angle_stride + row * s.out_row_stride + column;
    const int passes = static_cast<int>(s.angles - first < kAngles ? s.angles - first : kAngles);
#pragma unroll 4
    for (int a = 0; a < passes; ++a, from += s.in.frame_stride, to += s.out_angle_stride) {
      const auto in = *reinterpret_cast<const Lanes<T>*>(from);
      Lanes<float> made;
      bool usual = kLineIntegrals && any_unlit == 0;
      if constexpr (kLineIntegrals) {
#pragma unroll
        for (int lane = 0; lane < kLanes; ++lane) {
          const float transmission =
              (static_cast<float>(in.at[lane]) - dark[lane]) * open_inverse[lane];
          usual = usual && transmission >= low && transmission <= high;
          made.at[lane] = -logf(transmission);
        }
      }
      if (!usual) {
#pragma unroll
        for (int lane = 0; lane < kLanes; ++lane) {
          uint32_t flags = unlit[lane];
          made.at[lane] = CorrectedPixel(s, static_cast<float>(in.at[lane]) - dark[lane],
                                         open_inverse[lane], &flags);
          mine.Add(flags);
        }
      }
      *reinterpret_cast<Lanes<float>*>(to) = made;
    }
  }
  mine.AddTo(counts);
}

// Whether CorrectPlainKernel does it: no binning, one series of flat fields at most, and rows that
// begin where kLanes elements are loaded and stored as one.
template <class T>
bool IsPlain(const CorrectSpec& s, const T* frames, const float* out) {
  const auto aligned = [](const void* data, size_t bytes) {
    return reinterpret_cast<uintptr_t>(data) % bytes == 0;
  };
  const int64_t steps = s.columns | s.first_column | s.in.frame_stride | s.in.row_stride |
                        s.out_angle_stride | s.out_row_stride;
  return s.bin_angles == 1 && s.bin_rows == 1 && s.bin_columns == 1 && s.flat_at == nullptr &&
         s.components == 0 && steps % kLanes == 0 && aligned(frames, kLanes * sizeof(T)) &&
         aligned(out, kLanes * sizeof(float)) && s.rows <= 65535;
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

// One block per projection. All threads know the sums, and so take the same steps.
template <int K>
__global__ void FlatWeightsKernel(math::FlatSample s, int64_t frames, const float* counts,
                                  double* weights) {
  __shared__ math::FlatSums<K> total;
  for (int64_t frame = blockIdx.x; frame < frames; frame += gridDim.x) {
    const auto sum = [&](const auto& add) {
      math::FlatSums<K> mine;
      for (int64_t i = threadIdx.x; i < s.pixels(); i += kWeightThreads) add(i, mine.values);
      BlockSums<kWeightThreads, 1>(mine.values);
      if (threadIdx.x == 0) total = mine;
      __syncthreads();
      mine = total;
      __syncthreads();
      return mine;
    };
    double found[K];
    math::FindFlatWeights<K>(s, counts + frame * s.pixels(), sum, found);
    if (threadIdx.x == 0) {
      for (int k = 0; k < K; ++k) weights[frame * K + k] = found[k];
    }
  }
}

class CudaPrepareOps final : public PrepareOps, TomoLauncher {
 public:
  using TomoLauncher::TomoLauncher;

  absl::Status Unpack(StreamRef stream, const UnpackSpec& spec, const void* frames,
                      DeviceSpan<uint16_t> out) override {
    return Launch([&] {
      DispatchUnpack(spec, frames, out.data(), [&](auto pair) {
        LaunchRows(AsCuda(stream), spec.frames * spec.rows, spec.pairs(), pair);
      });
    });
  }

  absl::Status Field(StreamRef stream, const FrameSpec& in, bool median, const void* frames,
                     DeviceSpan<float> out) override {
    return ForType(in.dtype, [&, out = out.data()](auto type) {
      using T = decltype(type);
      LaunchRows(AsCuda(stream), in.rows, in.columns,
                 FieldPixel<T>{in, median, static_cast<const T*>(frames), out});
    });
  }

  absl::Status MixField(StreamRef stream, const FrameSpec& in, const void* frames,
                        const double* mixture, int64_t stride, DeviceSpan<float> out) override {
    return ForType(in.dtype, [&, out = out.data()](auto type) {
      using T = decltype(type);
      LaunchRows(AsCuda(stream), in.rows, in.columns,
                 MixPixel<T>{in, mixture, stride, static_cast<const T*>(frames), out});
    });
  }

  absl::Status FlatWeights(StreamRef stream, const math::FlatSample& sample, int components,
                           int64_t frames, DeviceSpan<const float> counts,
                           DeviceSpan<double> weights) override {
    return Launch([&] {
      DispatchComponents(components, [&](auto number) {
        FlatWeightsKernel<decltype(number)::value>
            <<<static_cast<unsigned>(std::min<int64_t>(frames, 65535)), kWeightThreads, 0,
               AsCuda(stream)>>>(sample, frames, counts.data(), weights.data());
      });
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
      const auto* raw = static_cast<const T*>(frames);
      if (IsPlain(spec, raw, out)) {
        const dim3 blocks(
            static_cast<unsigned>((spec.columns / kLanes + kRowThreads - 1) / kRowThreads),
            static_cast<unsigned>(spec.rows),
            static_cast<unsigned>((spec.angles + kAngles - 1) / kAngles));
        if (MakesLineIntegrals(spec)) {
          CorrectPlainKernel<T, true>
              <<<blocks, kRowThreads, 0, AsCuda(stream)>>>(spec, raw, out, counts);
        } else {
          CorrectPlainKernel<T, false>
              <<<blocks, kRowThreads, 0, AsCuda(stream)>>>(spec, raw, out, counts);
        }
      } else {
        LaunchCounted(stream, spec.angles * spec.rows, spec.columns, counts,
                      CorrectPixel<T>{spec, raw, out});
      }
    });
  }

  absl::Status Turn(StreamRef stream, const TurnSpec& s, DeviceSpan<const float> in,
                    DeviceSpan<float> out) override {
    return ForRows(stream, s.frames * s.rows, s.columns, TurnPixel{s, in.data(), out.data()});
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
  absl::Status FilterPhase(StreamRef stream, const PaddedSpec& s, const math::PhaseFilter& filter,
                           float scale, DeviceSpan<ComplexF> data) override {
    return ForRows(stream, s.frames * s.padded_columns, s.padded_rows,
                   FilterPhasePixel{s, filter, scale, data.data()});
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
    return Launch([&] { DispatchCountType(dtype, f); });
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<PrepareOps>> MakePrepareOps(Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(CudaContext context, FindCudaContext(device, PrepareOps::kFamily));
  return std::make_unique<CudaPrepareOps>(context.ordinal, std::move(context.health));
}

}  // namespace octavo::inline gpu::cuda

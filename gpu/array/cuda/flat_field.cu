#include <algorithm>
#include <cooperative_groups.h>

#include "gpu/array/flat_field_elements.h"
#include "gpu/base/status.h"
#include "gpu/device/cuda/cuda_context.h"
#include "gpu/device/cuda/cuda_stream.h"

namespace octavo::inline gpu::cuda {
namespace {

constexpr int kThreads = 256;
// Blocks of a team. They wait for each other, so that all must fit on the GPU, beside other work.
constexpr int kTeamBlocks = 64;

unsigned Blocks(int64_t items) {
  return static_cast<unsigned>(std::clamp<int64_t>((items + kThreads - 1) / kThreads, 1, 1 << 20));
}
__device__ inline int64_t FirstItem() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t ItemStep() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

// All threads of a cooperative launch.
struct Team {
  template <typename F>
  __device__ void ForEach(int64_t n, const F& f) const {
    for (int64_t i = FirstItem(); i < n; i += ItemStep()) f(i);
    cooperative_groups::this_grid().sync();
  }
  // A block for a row; its sum does not depend on the number of blocks.
  template <typename F>
  __device__ void Rows(int64_t rows, int64_t n, const F& f, double* sums) const {
    __shared__ double parts[kThreads / 32];
    cooperative_groups::this_grid().sync();  // everybody has read the sums before
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
      double sum = 0;
      for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += f(r, i);
      for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xFFFFFFFFu, sum, offset);
      __syncthreads();  // the row before has been read
      if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
      __syncthreads();
      if (threadIdx.x == 0) {
        double all = 0;
        for (const double part : parts) all += part;
        sums[r] = all;
      }
    }
    cooperative_groups::this_grid().sync();
  }
};

__global__ void SolveBasic(BasicSpec s, const float* in, float* work, float* out) {
  math::SolveBasic(Team(), s.tiles, s.smoothness, in, work, out);
}
__global__ void Level(LevelFlatSpec s, const float* in, double* work, float* out) {
  math::LevelFlat(Team(), s.rows, s.columns, s.fit, s.mean_one, in, work, out);
}

__global__ void Cut(CutTilesSpec s, const void* in, float* out) {
  for (int64_t i = FirstItem(); i < s.tiles() * s.rows * s.columns; i += ItemStep())
    out[i] = TileElement(s, in, i);
}
__global__ void See(FromMedianSpec s, const void* in, const double* medians, float* out) {
  for (int64_t i = FirstItem(); i < s.tiles * s.pixels; i += ItemStep())
    out[i] = SeenFromMedian(s.how, math::Load(s.in, in, i).re, medians[i / s.pixels]);
}
__global__ void Divide(FlattenSpec s, const void* in, const void* flat, void* out) {
  for (int64_t i = FirstItem(); i < s.count; i += ItemStep()) FlattenElement(s, in, flat, i, out);
}
__global__ void SpreadFlat(SpreadSpec s, const float* in, float* out) {
  for (int64_t i = FirstItem(); i < s.map_rows * s.map_columns; i += ItemStep())
    out[i] = SpreadElement(s, in, i);
}

class CudaFlatFieldOps final : public FlatFieldOps {
 public:
  CudaFlatFieldOps(int ordinal, std::shared_ptr<DeviceHealth> health)
      : ordinal_(ordinal), health_(std::move(health)) {}

  absl::Status CutTiles(StreamRef stream, const CutTilesSpec& s, const void* in,
                        void* out) override {
    const DeviceGuard guard(ordinal_);
    Cut<<<Blocks(s.tiles() * s.rows * s.columns), kThreads, 0, AsCuda(stream)>>>(
        s, in, static_cast<float*>(out));
    return Launched();
  }

  absl::Status FromMedian(StreamRef stream, const FromMedianSpec& s, const void* in,
                          const double* medians, void* out) override {
    const DeviceGuard guard(ordinal_);
    See<<<Blocks(s.tiles * s.pixels), kThreads, 0, AsCuda(stream)>>>(s, in, medians,
                                                                     static_cast<float*>(out));
    return Launched();
  }

  absl::Status Basic(StreamRef stream, const BasicSpec& spec, const void* in, void* out,
                     void* workspace) override {
    BasicSpec s = spec;
    const float* from = static_cast<const float*>(in);
    float* work = static_cast<float*>(workspace);
    float* to = static_cast<float*>(out);
    void* arguments[] = {&s, &from, &work, &to};
    return Launch(stream, reinterpret_cast<const void*>(&SolveBasic), arguments);
  }

  absl::Status LevelFlat(StreamRef stream, const LevelFlatSpec& spec, const void* in, void* out,
                         void* workspace) override {
    LevelFlatSpec s = spec;
    const float* from = static_cast<const float*>(in);
    double* work = static_cast<double*>(workspace);
    float* to = static_cast<float*>(out);
    void* arguments[] = {&s, &from, &work, &to};
    return Launch(stream, reinterpret_cast<const void*>(&Level), arguments);
  }

  absl::Status Flatten(StreamRef stream, const FlattenSpec& s, const void* in, const void* flat,
                       void* out) override {
    const DeviceGuard guard(ordinal_);
    Divide<<<Blocks(s.count), kThreads, 0, AsCuda(stream)>>>(s, in, flat, out);
    return Launched();
  }

  absl::Status Spread(StreamRef stream, const SpreadSpec& s, const void* in, void* out) override {
    const DeviceGuard guard(ordinal_);
    SpreadFlat<<<Blocks(s.map_rows * s.map_columns), kThreads, 0, AsCuda(stream)>>>(
        s, static_cast<const float*>(in), static_cast<float*>(out));
    return Launched();
  }

 private:
  // A launch whose threads may wait for each other.
  absl::Status Launch(StreamRef stream, const void* kernel, void** arguments) {
    const DeviceGuard guard(ordinal_);
    int processors = 0, resident = 0;
    OCTAVO_CUDA(health_.get(),
                cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, ordinal_));
    OCTAVO_CUDA(health_.get(),
                cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kThreads, 0));
    const int blocks = std::clamp(processors * resident, 1, kTeamBlocks);
    OCTAVO_CUDA(health_.get(),
                cudaLaunchCooperativeKernel(kernel, dim3(static_cast<unsigned>(blocks)),
                                            dim3(kThreads), arguments, 0, AsCuda(stream)));
    return absl::OkStatus();
  }
  absl::Status Launched() {
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }

  const int ordinal_;
  const std::shared_ptr<DeviceHealth> health_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FlatFieldOps>> MakeFlatFieldOps(Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(CudaContext context, FindCudaContext(device, FlatFieldOps::kFamily));
  return std::make_unique<CudaFlatFieldOps>(context.ordinal, std::move(context.health));
}

}  // namespace octavo::inline gpu::cuda

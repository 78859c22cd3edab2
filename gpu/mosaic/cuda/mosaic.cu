#include <algorithm>

#include "gpu/base/status.h"
#include "gpu/device/cuda/cuda_context.h"
#include "gpu/device/cuda/cuda_stream.h"
#include "gpu/device/scalar_dispatch.h"
#include "gpu/mosaic/mosaic_ops.h"
#include "gpu/mosaic/pair_alignment.h"
#include "gpu/mosaic/slab_sums.h"
#include "gpu/mosaic/stack_voxel.h"
#include "gpu/mosaic/stitch_voxel.h"

namespace octavo::inline gpu::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

/// The threads of a block as a team (gpu/mosaic/team.h). All of them make the same calls.
struct BlockTeam {
  double* sums;     // [kWarps], shared
  int64_t* places;  // likewise
  StopFlag stop = nullptr;
  __device__ int64_t rank() const { return threadIdx.x; }
  __device__ int64_t size() const { return kThreads; }
  /// The flag is far away, so only long loops look at it. A thread that leaves its loop goes on to
  /// the sums, as all others do.
  __device__ bool Stops(int64_t turn) const { return (turn & 0xFFF) == 0xFFF && IsSet(stop); }

  template <int kCount>
  __device__ void Sum(double (&values)[kCount]) const {
    for (int k = 0; k < kCount; ++k) {
      double sum = values[k];
      for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xFFFFFFFFu, sum, offset);
      __syncthreads();  // the sum before has been read
      if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
      __syncthreads();
      sum = 0;
      for (int w = 0; w < kWarps; ++w) sum += sums[w];
      values[k] = sum;
    }
  }
  __device__ Candidate Best(Candidate mine) const {
    for (int offset = 16; offset > 0; offset /= 2) {
      Candidate other;
      other.value = __shfl_down_sync(0xFFFFFFFFu, mine.value, offset);
      other.index = __shfl_down_sync(0xFFFFFFFFu, mine.index, offset);
      if (IsBetter(other, mine)) mine = other;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
      sums[threadIdx.x / 32] = mine.value;
      places[threadIdx.x / 32] = mine.index;
    }
    __syncthreads();
    Candidate best;
    for (int w = 0; w < kWarps; ++w) {
      const Candidate one{sums[w], places[w]};
      if (IsBetter(one, best)) best = one;
    }
    return best;
  }
};

template <typename T>
__global__ void WindowKernel(PairBatch b, const void* tiles, const TilePair* pairs,
                             math::Complex64* out) {
  __shared__ double sums[kWarps];
  const BlockTeam team{sums, nullptr};
  for (int64_t k = blockIdx.x; k < 2 * b.pairs; k += gridDim.x) {
    WindowOverlap<T>(team, b, tiles, pairs[k / 2], static_cast<int>(k % 2), out + k * b.elements());
  }
}

__global__ void CrossPhaseKernel(PairBatch b, const math::Complex64* in, math::Complex64* out) {
  __shared__ double sums[kWarps];
  const BlockTeam team{sums, nullptr};
  const int64_t n = b.elements();
  for (int64_t k = blockIdx.x; k < b.pairs; k += gridDim.x)
    CrossPhaseOf(team, n, in + 2 * k * n, in + (2 * k + 1) * n, out + k * n);
}

template <typename T>
__global__ void AlignKernel(PairBatch b, const void* tiles, const TilePair* pairs,
                            const math::Complex64* surface, TileAlignment* out, StopFlag stop) {
  __shared__ double sums[kWarps];
  __shared__ int64_t places[kWarps];
  const BlockTeam team{sums, places, stop};
  for (int64_t k = blockIdx.x; k < b.pairs; k += gridDim.x) {
    const TileAlignment found = AlignPair<T>(team, b, tiles, pairs[k], surface + k * b.elements());
    if (threadIdx.x == 0) out[k] = found;
  }
}

template <typename T>
__global__ void SlabSumsKernel(SlabPair s, LaunchRange shares, const void* fixed,
                               const void* moving, double* out, StopFlag stop) {
  __shared__ double sums[kWarps];
  const BlockTeam team{sums, nullptr, stop};
  const SlabReader<T> above(s, 0, fixed), below(s, 1, moving);
  for (int64_t k = shares.begin + blockIdx.x; k < shares.end; k += gridDim.x)
    SlabShare(team, s, k, above, below, out);
}

/// The items of this thread.
template <typename F>
__device__ void Each(LaunchRange items, F f) {
  for (int64_t i = items.begin + static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < items.end; i += static_cast<int64_t>(gridDim.x) * blockDim.x)
    f(i);
}

template <typename T>
__global__ void MeansKernel(MeanSpec s, LaunchRange elements, const void* in, float* out) {
  Each(elements, [&](int64_t i) { out[i] = MeanAt<T>(s, in, i); });
}

template <typename T>
__global__ void StitchKernel(BlendSpec s, LaunchRange voxels, const void* tiles,
                             const PlacedTile* placed, const int32_t* starts, const int32_t* lists,
                             void* out) {
  Each(voxels, [&](int64_t i) { StitchVoxel<T>(s, tiles, placed, starts, lists, i, out); });
}

template <typename T>
__global__ void StackKernel(StackSpec s, LaunchRange voxels, const PlacedSection* sections,
                            const SectionRange* planes, void* out) {
  Each(voxels, [&](int64_t i) { StackVoxel<T>(s, sections, planes, i, out); });
}

template <typename T>
__global__ void JointDigitsKernel(StackSpec s, JointDigits d, LaunchRange voxels,
                                  const PlacedSection* sections, const SectionRange* planes,
                                  unsigned long long* counts) {
  constexpr int kCounts = JointDigits::kRanks * JointDigits::kBins;
  __shared__ uint32_t own[kCounts];  // 32 KiB; a block has fewer than 2^32 voxels
  for (int bin = threadIdx.x; bin < kCounts; bin += blockDim.x) own[bin] = 0;
  __syncthreads();
  Each(voxels, [&](int64_t i) {
    uint32_t bits[2];
    if (!JointVoxel<T>(s, d, sections, planes, i, bits)) return;
    CountDigits(d, bits, [&](int64_t bin) { atomicAdd(own + bin, 1u); });
  });
  __syncthreads();
  for (int bin = threadIdx.x; bin < kCounts; bin += blockDim.x) {
    if (own[bin] > 0) atomicAdd(counts + bin, static_cast<unsigned long long>(own[bin]));
  }
}

unsigned Blocks(int64_t blocks) {
  return static_cast<unsigned>(std::clamp<int64_t>(blocks, 1, 1 << 20));
}

unsigned BlocksOf(LaunchRange items) {
  return Blocks((items.end - items.begin + kThreads - 1) / kThreads);
}

class CudaMosaicOps final : public MosaicOps {
 public:
  CudaMosaicOps(int ordinal, std::shared_ptr<DeviceHealth> health)
      : ordinal_(ordinal), health_(std::move(health)) {}

  absl::Status WindowOverlaps(StreamRef stream, const PairBatch& b, const void* tiles,
                              DeviceSpan<const TilePair> pairs,
                              DeviceSpan<math::Complex64> out) override {
    return Launch([&] {
      DispatchReal(b.array.scalar, [&](auto element) {
        WindowKernel<decltype(element)><<<Blocks(2 * b.pairs), kThreads, 0, AsCuda(stream)>>>(
            b, tiles, pairs.data(), out.data());
      });
    });
  }
  absl::Status CrossPhase(StreamRef stream, const PairBatch& b,
                          DeviceSpan<const math::Complex64> in,
                          DeviceSpan<math::Complex64> out) override {
    return Launch([&] {
      CrossPhaseKernel<<<Blocks(b.pairs), kThreads, 0, AsCuda(stream)>>>(b, in.data(), out.data());
    });
  }
  absl::Status Align(StreamRef stream, const PairBatch& b, const void* tiles,
                     DeviceSpan<const TilePair> pairs, DeviceSpan<const math::Complex64> surface,
                     DeviceSpan<TileAlignment> out, StopFlag stop) override {
    return Launch([&] {
      DispatchReal(b.array.scalar, [&](auto element) {
        AlignKernel<decltype(element)><<<Blocks(b.pairs), kThreads, 0, AsCuda(stream)>>>(
            b, tiles, pairs.data(), surface.data(), out.data(), stop);
      });
    });
  }
  absl::Status SlabSums(StreamRef stream, const SlabPair& s, LaunchRange shares, const void* fixed,
                        const void* moving, DeviceSpan<double> out, StopFlag stop) override {
    return Launch([&] {
      DispatchReal(s.scalar, [&](auto element) {
        SlabSumsKernel<decltype(element)>
            <<<Blocks(shares.end - shares.begin), kThreads, 0, AsCuda(stream)>>>(
                s, shares, fixed, moving, out.data(), stop);
      });
    });
  }
  absl::Status Means(StreamRef stream, const MeanSpec& s, LaunchRange elements, const void* in,
                     DeviceSpan<float> out) override {
    return Launch([&] {
      DispatchReal(s.scalar, [&](auto element) {
        MeansKernel<decltype(element)>
            <<<BlocksOf(elements), kThreads, 0, AsCuda(stream)>>>(s, elements, in, out.data());
      });
    });
  }
  absl::Status Stitch(StreamRef stream, const BlendSpec& s, LaunchRange voxels, const void* tiles,
                      const BlendTables& t, void* out) override {
    return Launch([&] {
      DispatchReal(s.array.scalar, [&](auto element) {
        StitchKernel<decltype(element)><<<BlocksOf(voxels), kThreads, 0, AsCuda(stream)>>>(
            s, voxels, tiles, t.tiles.data(), t.starts.data(), t.lists.data(), out);
      });
    });
  }
  absl::Status Stack(StreamRef stream, const StackSpec& s, LaunchRange voxels, const StackTables& t,
                     void* out) override {
    return Launch([&] {
      DispatchReal(s.scalar, [&](auto element) {
        StackKernel<decltype(element)><<<BlocksOf(voxels), kThreads, 0, AsCuda(stream)>>>(
            s, voxels, t.sections.data(), t.planes.data(), out);
      });
    });
  }
  absl::Status CountJointDigits(StreamRef stream, const StackSpec& s, const JointDigits& d,
                                LaunchRange voxels, const StackTables& t,
                                DeviceSpan<uint64_t> counts) override {
    return Launch([&] {
      DispatchReal(s.scalar, [&](auto element) {
        // Few blocks, because each adds a whole histogram to that of all.
        JointDigitsKernel<decltype(element)>
            <<<std::min(BlocksOf(voxels), 1056u), kThreads, 0, AsCuda(stream)>>>(
                s, d, voxels, t.sections.data(), t.planes.data(),
                reinterpret_cast<unsigned long long*>(counts.data()));
      });
    });
  }

 private:
  template <typename F>
  absl::Status Launch(F launch) {
    const DeviceGuard guard(ordinal_);
    launch();
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }
  const int ordinal_;
  const std::shared_ptr<DeviceHealth> health_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MosaicOps>> MakeMosaicOps(Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(CudaContext context, FindCudaContext(device, MosaicOps::kFamily));
  return std::make_unique<CudaMosaicOps>(context.ordinal, std::move(context.health));
}

}  // namespace octavo::inline gpu::cuda

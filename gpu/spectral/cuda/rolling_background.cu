#include <algorithm>
#include <utility>

#include "gpu/base/status.h"
#include "gpu/math/spectral.h"
#include "gpu/spectral/cuda/raw_rows.cuh"
#include "gpu/spectral/cuda/rolling_background.h"

namespace octavo::inline gpu::cuda {
namespace {

constexpr int64_t
    kPartRows = 64,
    kMostPartRows = 16384,
    kMostParts = 1024;  // raw records of a part, and the most parts of a group if records allow
constexpr int kSumThreads = 128, kSumAhead = 4, kMeanColumns = 32, kMeanSlices = 16,
              kFiniteThreads = 128;

/// Sums of the parts. For integers they are exact in 32 bits, because a part has at most 16384 rows
/// of at most 16 bits.
template <typename T>
using Sum = std::conditional_t<std::is_same_v<Kept<T>, float>, double, int32_t>;

/// Raw records of a part, the same for all groups of a chain.
int64_t PartRows(const SpectralConfig& c) {
  const int64_t rows = c.background_group_records * c.record_average;
  return std::clamp((rows + kMostParts - 1) / kMostParts, kPartRows, kMostPartRows);
}
int64_t PartsOf(const SpectralConfig& c, int64_t records) {
  return (records * c.record_average + PartRows(c) - 1) / PartRows(c);
}
// Each piece that is not a whole number of parts needs one more part.
int64_t MostPartsOf(const SpectralConfig& c) {
  return PartsOf(c, RollingStepRecords(c)) + RollingShape::kMostParts * RollingStepGroups(c);
}

/// The pieces of a call, by their rows and their parts.
struct Pieces {
  int32_t count, part_rows;
  struct Piece {
    int64_t first_row;
    int32_t rows, first_part;
  } at[kMostSumPieces];
};
/// The rows [begin, end) that part `part` sums.
struct Part {
  int64_t begin, end;
};
__device__ inline Part PartAt(const Pieces& pieces, int part) {
  int low = 0, high = pieces.count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (pieces.at[middle].first_part <= part) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const Pieces::Piece& piece = pieces.at[low];
  const int64_t within = static_cast<int64_t>(part - piece.first_part) * pieces.part_rows;
  return {piece.first_row + within,
          piece.first_row + min(within + pieces.part_rows, static_cast<int64_t>(piece.rows))};
}

/// Which records count, and how many rows each record has; null: all records count.
struct Counted {
  const uint8_t* finite;
  int average;
  __device__ bool Row(int64_t row) const { return finite == nullptr || finite[row / average] != 0; }
};

// The number of rows of a part that count is stored behind its sums.
template <typename T>
__device__ inline void StoreCount(const RawRows& rows, const Part& part, const Counted& counted,
                                  Sum<T>* partial) {
  int64_t count = part.end - part.begin;
  if (counted.finite != nullptr) {
    count = 0;
    for (int64_t r = part.begin; r < part.end; ++r) count += counted.Row(r) ? 1 : 0;
  }
  partial[rows.samples] = static_cast<Sum<T>>(count);
}

// Each block sums a part; a thread sums eight samples and keeps loads of several records in flight.
template <typename T>
__global__ __launch_bounds__(kSumThreads) void SumEightKernel(RawRows rows,
                                                              const __grid_constant__ Pieces pieces,
                                                              const uint8_t* raw, Counted counted,
                                                              Sum<T>* partials) {
  const int64_t i = static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
  const Part part = PartAt(pieces, static_cast<int>(blockIdx.x));
  Sum<T>* const partial = partials + blockIdx.x * (rows.samples + 1);
  if (i == 0) StoreCount<T>(rows, part, counted, partial);
  if (8 * i >= rows.samples) return;
  Sum<T> sum[8] = {};
  for (int64_t first = part.begin; first < part.end; first += kSumAhead) {
    EightSamples<T> in[kSumAhead];
    // Past the end a thread loads the last record again and does not count it.
#pragma unroll
    for (int k = 0; k < kSumAhead; ++k)
      in[k] = ReadEight<T>(rows, raw + min(first + k, part.end - 1) * rows.bytes, i);
#pragma unroll
    for (int k = 0; k < kSumAhead; ++k) {
      if (first + k >= part.end || !counted.Row(first + k)) continue;
#pragma unroll
      for (int j = 0; j < 8; ++j) sum[j] += static_cast<Sum<T>>(in[k].at[j]);
    }
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) partial[8 * i + j] = sum[j];
}

// Does the same, in the same order, for records of any layout; one thread per sample.
template <typename T>
__global__ void SumKernel(RawRows rows, const __grid_constant__ Pieces pieces, const uint8_t* raw,
                          Counted counted, Sum<T>* partials) {
  const int64_t j = static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
  const Part part = PartAt(pieces, static_cast<int>(blockIdx.x));
  Sum<T>* const partial = partials + blockIdx.x * (rows.samples + 1);
  if (j == 0) StoreCount<T>(rows, part, counted, partial);
  if (j >= rows.samples) return;
  Sum<T> sum = 0;
  for (int64_t r = part.begin; r < part.end; ++r) {
    if (counted.Row(r)) sum += static_cast<Sum<T>>(ReadSample<T>(rows, raw + r * rows.bytes, j));
  }
  partial[j] = sum;
}

/// The entries from which a block of JoinKernel makes one output: [first, first + entries),
/// wrapping around a ring.
struct Joins {
  struct Join {
    int32_t out, first, entries;
  } at[kMostSumPieces];
};

// Adds entries of S + 1 numbers in their order, slice by slice. The output is sums (kRing) or
// means.
template <typename S, bool kRing>
__global__ __launch_bounds__(kMeanColumns* kMeanSlices) void JoinKernel(
    const __grid_constant__ Joins joins, const S* entries, int ring, int64_t samples,
    int64_t average, double* sums, float* backgrounds) {
  __shared__ double slices[kMeanSlices][kMeanColumns];
  __shared__ double counts[kMeanSlices];
  const Joins::Join& join = joins.at[blockIdx.y];
  const int64_t j = static_cast<int64_t>(blockIdx.x) * kMeanColumns + threadIdx.x;
  const int slice = static_cast<int>(threadIdx.y),
            begin = static_cast<int>(int64_t{join.entries} * slice / kMeanSlices),
            end = static_cast<int>(int64_t{join.entries} * (slice + 1) / kMeanSlices);
  double sum = 0, count = 0;
#pragma unroll 4
  for (int i = begin; i < end; ++i) {
    const int at = join.first + i;
    const S* const entry =
        entries + static_cast<int64_t>(at < ring ? at : at - ring) * (samples + 1);
    if (j < samples) sum += static_cast<double>(entry[j]);
    if (threadIdx.x == 0) count += static_cast<double>(entry[samples]);
  }
  slices[slice][threadIdx.x] = sum;
  if (threadIdx.x == 0) counts[slice] = count;
  __syncthreads();
  if (slice != 0) return;
  sum = count = 0;
#pragma unroll
  for (int s = 0; s < kMeanSlices; ++s) {
    sum += slices[s][threadIdx.x];
    count += counts[s];
  }
  if constexpr (kRing) {
    double* const out = sums + join.out * (samples + 1);
    if (j < samples) out[j] = sum;
    if (j == 0) out[samples] = count / static_cast<double>(average);
  } else if (j < samples) {
    // A part counts rows; the ring counts records.
    backgrounds[join.out * samples + j] = math::MeanOfRecords(
        sum, std::is_same_v<S, double> && ring > 0 ? count : count / average, average);
  }
}

// One warp per record.
__device__ inline bool WarpSeesFinite(const RawRows& rows, const uint8_t* record, int average,
                                      int lane) {
  bool finite = true;
  for (int r = 0; r < average; ++r) {
    for (int64_t j = lane; j < rows.samples; j += 32)
      finite &= math::IsFinite(ReadSample<float>(rows, record + r * rows.bytes, j));
  }
  return __all_sync(0xFFFFFFFFu, finite) != 0;
}
__global__ void FiniteKernel(RawRows rows, int average, const uint8_t* raw, RecordRuns runs,
                             uint8_t* finite, unsigned long long* count) {
  const int64_t record = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (record >= runs.records()) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool all =
      WarpSeesFinite(rows, raw + runs.At(record) * average * rows.bytes, average, lane);
  if (lane != 0) return;
  if (finite != nullptr) finite[record] = all ? 1 : 0;
  if (count != nullptr && !all) atomicAdd(count, 1ull);
}

unsigned Blocks(int64_t columns, int64_t each) {
  return static_cast<unsigned>((columns + each - 1) / each);
}

void LaunchFiniteKernel(cudaStream_t stream, const SpectralConfig& c, const void* raw,
                        const RecordRuns& runs, uint8_t* finite, uint64_t* count) {
  FiniteKernel<<<Blocks(runs.records() * 32, kFiniteThreads), kFiniteThreads, 0, stream>>>(
      RawRowsOf(c), static_cast<int>(c.record_average), static_cast<const uint8_t*>(raw), runs,
      finite, reinterpret_cast<unsigned long long*>(count));
}

}  // namespace

void LaunchFinite(cudaStream_t stream, const SpectralConfig& config, const void* raw,
                  const RecordRuns& runs, uint8_t* finite) {
  LaunchFiniteKernel(stream, config, raw, runs, finite, nullptr);
}

void LaunchCountNonFinite(cudaStream_t stream, const SpectralConfig& config, const void* raw,
                          int64_t records, uint64_t* count) {
  LaunchFiniteKernel(stream, config, raw, {.runs = 1, .active = records, .pitch = records}, nullptr,
                     count);
}

int64_t RollingBackground::DeviceBytes(const SpectralConfig& c) {
  return MostPartsOf(c) * (c.samples_per_record + 1) * 8 + RollingStepRecords(c);
}

absl::StatusOr<std::unique_ptr<RollingBackground>> RollingBackground::Create(
    const SpectralConfig& config, Device* device, std::shared_ptr<DeviceHealth> health) {
  std::unique_ptr<RollingBackground> rolling(new RollingBackground(config, std::move(health)));
  OCTAVO_ASSIGN_OR_RETURN(
      rolling->partials_,
      device->Allocate(MostPartsOf(config) * (config.samples_per_record + 1) * 8));
  if (config.raw_type == DType::kF32) {
    OCTAVO_ASSIGN_OR_RETURN(rolling->finite_, device->Allocate(RollingStepRecords(config)));
  }
  return rolling;
}

absl::Status RollingBackground::Sum(cudaStream_t stream, const void* raw,
                                    std::span<const SumPiece> pieces, const SumRing& ring) {
  const RawRows rows = RawRowsOf(config_);
  const int64_t average = config_.record_average, samples = rows.samples;
  Pieces parts{.count = static_cast<int32_t>(pieces.size()),
               .part_rows = static_cast<int32_t>(PartRows(config_))};
  Joins joins;
  int64_t next = 0;
  for (size_t k = 0; k < pieces.size(); ++k) {
    const SumPiece& piece = pieces[k];
    parts.at[k] = {.first_row = piece.first * average,
                   .rows = static_cast<int32_t>(piece.records * average),
                   .first_part = static_cast<int32_t>(next)};
    part_begin_[k] = next;
    next += PartsOf(config_, piece.records);
    joins.at[k] = {.out = piece.entry,
                   .first = parts.at[k].first_part,
                   .entries = static_cast<int32_t>(next) - parts.at[k].first_part};
  }
  part_begin_[pieces.size()] = next;
  const auto* const bytes = static_cast<const uint8_t*>(raw);
  if (config_.raw_type == DType::kF32) {
    const int64_t records = pieces.back().first + pieces.back().records;
    LaunchFinite(stream, config_, raw, {.runs = 1, .active = records, .pitch = records},
                 finite_.as<uint8_t>());
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
  }
  const Counted counted{.finite = finite_.as<uint8_t>(), .average = static_cast<int>(average)};
  return ForRawType(config_, [&](auto type) -> absl::Status {
    using T = decltype(type);
    auto* const partials = partials_.as<octavo::cuda::Sum<T>>();
    // Every row begins on a boundary of a group of eight samples.
    const bool eight =
        rows.channels == 1 && samples % 8 == 0 && reinterpret_cast<uintptr_t>(raw) % 16 == 0;
    const auto blocks = static_cast<unsigned>(next);
    if (eight) {
      SumEightKernel<T><<<dim3(blocks, Blocks(samples, 8 * kSumThreads)), kSumThreads, 0, stream>>>(
          rows, parts, bytes, counted, partials);
    } else {
      SumKernel<T><<<dim3(blocks, Blocks(samples, kSumThreads)), kSumThreads, 0, stream>>>(
          rows, parts, bytes, counted, partials);
    }
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    if (ring.sums == nullptr) return absl::OkStatus();
    JoinKernel<octavo::cuda::Sum<T>, true>
        <<<dim3(Blocks(samples, kMeanColumns), static_cast<unsigned>(pieces.size())),
           dim3(kMeanColumns, kMeanSlices), 0, stream>>>(joins, partials, static_cast<int>(next),
                                                         samples, average, ring.sums, nullptr);
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  });
}

absl::Status RollingBackground::Mean(cudaStream_t stream, std::span<const MeanOfSums> means,
                                     const SumRing& ring, float* backgrounds) {
  const int64_t samples = config_.samples_per_record, average = config_.record_average;
  const dim3 grid(Blocks(samples, kMeanColumns), static_cast<unsigned>(means.size())),
      threads(kMeanColumns, kMeanSlices);
  Joins joins;
  for (size_t k = 0; k < means.size(); ++k) {
    const MeanOfSums& mean = means[k];
    if (ring.sums != nullptr) {
      joins.at[k] = {.out = mean.row, .first = mean.first, .entries = mean.entries};
    } else {  // the mean comes directly from the parts of its piece
      const auto first = part_begin_[mean.first], end = part_begin_[mean.first + mean.entries];
      joins.at[k] = {.out = mean.row,
                     .first = static_cast<int32_t>(first),
                     .entries = static_cast<int32_t>(end - first)};
    }
  }
  if (ring.sums != nullptr) {
    JoinKernel<double, false><<<grid, threads, 0, stream>>>(
        joins, ring.sums, static_cast<int>(ring.entries), samples, average, nullptr, backgrounds);
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }
  return ForRawType(config_, [&](auto type) -> absl::Status {
    using S = octavo::cuda::Sum<decltype(type)>;
    JoinKernel<S, false><<<grid, threads, 0, stream>>>(joins, partials_.as<S>(), 0, samples,
                                                       average, nullptr, backgrounds);
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  });
}

}  // namespace octavo::inline gpu::cuda

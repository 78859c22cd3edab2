#include <algorithm>
#include <utility>

#include "gpu/base/status.h"
#include "gpu/cuda/raw_rows.cuh"
#include "gpu/cuda/rolling_background.h"

namespace octavo::cuda {
namespace {

constexpr int64_t kRollRecords = 64, kMostRollParts = 16384;  // raw records of a part, parts
constexpr int kRollThreads = 128, kRollAhead = 4, kFinishColumns = 32, kFinishSlices = 16;

/// Sums of the parts: of integers exact in 32 bits, a part being at most 16384 records.
template <typename T>
using Sum = std::conditional_t<std::is_same_v<Kept<T>, float>, double, int32_t>;

/// New raw records that enter the ring at `next`; those from `leave_from` on take the place of records that leave.
struct Roll {
  const uint8_t* newest;
  int64_t part, fresh, leave_from, next, window;
};

// Each block sums a part of the new records less those that leave, and keeps the new ones: eight samples a thread, with loads of
// several records in flight.
template <typename T>
__global__ __launch_bounds__(kRollThreads) void RollEightKernel(RawRows rows, Roll roll, Kept<T>* history, Sum<T>* partials) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (8 * i >= rows.samples) return;
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * roll.part, end = min(begin + roll.part, roll.fresh);
  Sum<T> sum[8] = {};
  const auto slot = [&](int64_t r) {
    const int64_t at = roll.next + r;
    return reinterpret_cast<EightSamples<T>*>(history + (at < roll.window ? at : at - roll.window) * rows.samples) + i;
  };
  for (int64_t first = begin; first < end; first += kRollAhead) {
    EightSamples<T> in[kRollAhead], out[kRollAhead];
    // Past the end: the last one again, not counted.
#pragma unroll
    for (int k = 0; k < kRollAhead; ++k) in[k] = ReadEight<T>(rows, roll.newest + min(first + k, end - 1) * rows.bytes, i);
    const bool leaving = first + kRollAhead > roll.leave_from;
    if (leaving) {
#pragma unroll
      for (int k = 0; k < kRollAhead; ++k) out[k] = *slot(min(first + k, end - 1));
    }
#pragma unroll
    for (int k = 0; k < kRollAhead; ++k) {
      const int64_t r = first + k;
      if (r >= end) break;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        sum[j] += static_cast<Sum<T>>(in[k].at[j]);
        if (leaving && r >= roll.leave_from) sum[j] -= static_cast<Sum<T>>(out[k].at[j]);
      }
      *slot(r) = in[k];
    }
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) partials[blockIdx.y * rows.samples + 8 * i + j] = sum[j];
}

// The same for records of any form, a thread a sample.
template <typename T>
__global__ void RollKernel(RawRows rows, Roll roll, Kept<T>* history, Sum<T>* partials) {
  const int64_t j = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (j >= rows.samples) return;
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * roll.part, end = min(begin + roll.part, roll.fresh);
  Sum<T> sum = 0;
  for (int64_t r = begin; r < end; ++r) {
    const int64_t at = roll.next + r;
    Kept<T>* slot = history + (at < roll.window ? at : at - roll.window) * rows.samples + j;
    if (r >= roll.leave_from) sum -= static_cast<Sum<T>>(*slot);
    const Kept<T> v = ReadSample<T>(rows, roll.newest + r * rows.bytes, j);
    sum += static_cast<Sum<T>>(v);
    *slot = v;
  }
  partials[blockIdx.y * rows.samples + j] = sum;
}

// Adds the parts, and what was there before unless all of it left, in a fixed order, so that results do not depend on timing.
template <typename S>
__global__ __launch_bounds__(kFinishColumns* kFinishSlices) void RollFinishKernel(const S* partials, int64_t parts, int64_t samples, double count,
                                                                                  bool replaced, double* sums, float* background) {
  __shared__ double slices[kFinishSlices][kFinishColumns];
  const int64_t j = static_cast<int64_t>(blockIdx.x) * kFinishColumns + threadIdx.x;
  double sum = 0;
  if (j < samples) {
#pragma unroll 4
    for (int64_t p = threadIdx.y; p < parts; p += kFinishSlices) sum += static_cast<double>(partials[p * samples + j]);
  }
  slices[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || j >= samples) return;
  sum = replaced ? 0.0 : sums[j];
#pragma unroll
  for (int s = 0; s < kFinishSlices; ++s) sum += slices[s][threadIdx.x];
  sums[j] = sum;
  background[j] = static_cast<float>(sum / count);
}

int64_t WindowOf(const SpectralConfig& c) { return c.background_window_records * c.record_average; }
int64_t MostParts(const SpectralConfig& c) {
  const int64_t rows = std::min(c.max_records_per_block * c.record_average, WindowOf(c));
  return std::min((rows + kRollRecords - 1) / kRollRecords, kMostRollParts);
}

unsigned Blocks(int64_t columns, int64_t each) { return static_cast<unsigned>((columns + each - 1) / each); }

}  // namespace

RollingBackground::RollingBackground(const SpectralConfig& config, std::shared_ptr<DeviceHealth> health)
    : config_(config), health_(std::move(health)), window_(WindowOf(config)), most_parts_(MostParts(config)) {}

int64_t RollingBackground::DeviceBytes(const SpectralConfig& c) {
  return c.samples_per_record * (8 + MostParts(c) * 8 + WindowOf(c) * SizeOf(c.raw_type));
}

absl::StatusOr<std::unique_ptr<RollingBackground>> RollingBackground::Create(const SpectralConfig& config, Device* device,
                                                                             std::shared_ptr<DeviceHealth> health, cudaStream_t stream) {
  std::unique_ptr<RollingBackground> rolling(new RollingBackground(config, std::move(health)));
  const int64_t samples = config.samples_per_record;
  const auto zeroed = [&](int64_t bytes, DeviceBuffer* out) -> absl::Status {
    OCTAVO_ASSIGN_OR_RETURN(*out, device->Allocate(bytes));
    OCTAVO_CUDA(rolling->health_.get(), cudaMemsetAsync(out->data(), 0, static_cast<size_t>(bytes), stream));
    return absl::OkStatus();
  };
  OCTAVO_RETURN_IF_ERROR(zeroed(samples * 8, &rolling->sums_));
  OCTAVO_RETURN_IF_ERROR(zeroed(rolling->most_parts_ * samples * 8, &rolling->partials_));
  OCTAVO_RETURN_IF_ERROR(zeroed(rolling->window_ * samples * SizeOf(config.raw_type), &rolling->history_));
  return rolling;
}

absl::Status RollingBackground::Update(cudaStream_t stream, const void* raw, int64_t records, float* background) {
  const RawRows rows = RawRowsOf(config_);
  const int64_t count = records * config_.record_average, fresh = std::min(count, window_),
                part = std::max(kRollRecords, (fresh + kMostRollParts - 1) / kMostRollParts), parts = (fresh + part - 1) / part,
                leaving = std::max<int64_t>(0, seen_ + fresh - window_);
  const bool replaced = fresh == window_;  // nothing that was there stays, so it need not be read
  const Roll roll{.newest = static_cast<const uint8_t*>(raw) + (count - fresh) * rows.bytes,
                  .part = part,
                  .fresh = fresh,
                  .leave_from = replaced ? fresh : fresh - leaving,
                  .next = next_,
                  .window = window_};
  next_ = (next_ + fresh) % window_;
  seen_ = std::min(seen_ + fresh, window_);
  return ForRawType(config_, [&](auto type) -> absl::Status {
    using T = decltype(type);
    auto* const history = history_.as<Kept<T>>();
    auto* const partials = partials_.as<Sum<T>>();
    // Every row and the ring's begin on a boundary of a group of eight samples.
    const bool eight = rows.channels == 1 && rows.samples % 8 == 0 && reinterpret_cast<uintptr_t>(raw) % 16 == 0;
    const auto y = static_cast<unsigned>(parts);
    if (eight) {
      RollEightKernel<T><<<dim3(Blocks(rows.samples, 8 * kRollThreads), y), kRollThreads, 0, stream>>>(rows, roll, history, partials);
    } else {
      RollKernel<T><<<dim3(Blocks(rows.samples, kRollThreads), y), kRollThreads, 0, stream>>>(rows, roll, history, partials);
    }
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    RollFinishKernel<<<Blocks(rows.samples, kFinishColumns), dim3(kFinishColumns, kFinishSlices), 0, stream>>>(
        partials, parts, rows.samples, static_cast<double>(seen_), replaced, sums_.as<double>(), background);
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  });
}

}  // namespace octavo::cuda

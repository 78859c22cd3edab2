#pragma once

// Private to this folder: the mean of each B-scan (step 1). spectral.cu launches the kernels.

#include "gpu/spectral/cuda/spectral_steps.cuh"

namespace octavo::inline gpu::cuda {

// Computes the mean of the raw records of each run in parts: partials [run, part, sample]. `finite`
// [record]: which records count; null: all records.
template <typename T>
__global__ void RunSumKernel(Tables t, const uint8_t* raw, RecordRuns runs, int64_t part,
                             const uint8_t* finite, double* partials) {
  const int64_t j = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (j >= t.rows.samples) return;
  const uint8_t* run = raw + blockIdx.y * runs.pitch * t.average * t.rows.bytes;
  const int64_t begin = static_cast<int64_t>(blockIdx.z) * part,
                end = min(begin + part, runs.active * t.average);
  double sum = 0;
  for (int64_t r = begin; r < end; ++r) {
    if (finite != nullptr && finite[blockIdx.y * runs.active + r / t.average] == 0) continue;
    sum += static_cast<double>(ReadSample<T>(t.rows, run + r * t.rows.bytes, j));
  }
  partials[(static_cast<int64_t>(blockIdx.y) * gridDim.z + blockIdx.z) * t.rows.samples + j] = sum;
}
static __global__ void RunMeanKernel(Tables t, const double* partials, int64_t parts,
                                     int64_t records, const uint8_t* finite, float* background) {
  const int64_t samples = t.rows.samples;
  const int64_t j = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (j >= samples) return;
  const double* from = partials + static_cast<int64_t>(blockIdx.y) * parts * samples + j;
  double sum = 0;
  for (int64_t p = 0; p < parts; ++p) sum += from[p * samples];
  int64_t count = records;
  for (int64_t r = 0; finite != nullptr && r < records; ++r)
    count -= finite[blockIdx.y * records + r] == 0 ? 1 : 0;
  background[blockIdx.y * samples + j] =
      math::MeanOfRecords(sum, static_cast<double>(count), t.average);
}

}  // namespace octavo::inline gpu::cuda

#pragma once

// Private to gpu/cuda: step 1's mean of each B-scan; spectral.cu launches it.

#include "gpu/cuda/spectral_steps.cuh"

namespace octavo::cuda {

// Mean of each run's raw records, in parts: partials [run, part, sample].
template <typename T>
__global__ void RunSumKernel(Tables t, const uint8_t* raw, RecordRuns runs, int64_t part, double* partials) {
  const int64_t j = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (j >= t.rows.samples) return;
  const uint8_t* run = raw + blockIdx.y * runs.pitch * t.average * t.rows.bytes;
  const int64_t begin = static_cast<int64_t>(blockIdx.z) * part, end = min(begin + part, runs.active * t.average);
  double sum = 0;
  for (int64_t r = begin; r < end; ++r) sum += static_cast<double>(ReadSample<T>(t.rows, run + r * t.rows.bytes, j));
  partials[(static_cast<int64_t>(blockIdx.y) * gridDim.z + blockIdx.z) * t.rows.samples + j] = sum;
}
static __global__ void RunMeanKernel(const double* partials, int64_t parts, int64_t samples, double count, float* background) {
  const int64_t j = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (j >= samples) return;
  const double* from = partials + static_cast<int64_t>(blockIdx.y) * parts * samples + j;
  double sum = 0;
  for (int64_t p = 0; p < parts; ++p) sum += from[p * samples];
  background[blockIdx.y * samples + j] = static_cast<float>(sum / count);
}

}  // namespace octavo::cuda

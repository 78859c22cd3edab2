#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/cuda/cuda_stream.h"
#include "gpu/cuda/cufft_library.h"
#include "gpu/cuda/kernels.h"
#include "gpu/cuda/launch.h"

namespace octavo::cuda {
namespace {

constexpr int kPrepareThreads = 256, kFinishThreads = 128, kRollRecords = 64;
constexpr int64_t kStagedBytes = 160 << 10;       // records larger than this are read from device memory directly
constexpr int64_t kChunkBytes = int64_t{24} << 20;  // spectra of a chunk between the launches: stays in the L2 cache

struct Tables {
  int64_t samples, n, fft, first_bin, depth;
  math::Interpolation interpolation;
  const int32_t* tap;
  const float* weights;  // [n][2 or 4]
  const float2* h;       // window × dispersion × 1/F
  const float* background;  // null = none
  math::Value value;
  bool scaled;
  float scale, offset, top;
  int64_t slab_begin, slab_end;
};

__device__ inline int64_t Clamp(int64_t i, int64_t samples) { return i < 0 ? 0 : i >= samples ? samples - 1 : i; }

// Steps 1 to 3 and the zero padding: one block a record, staged in shared memory.
template <typename T, bool kStaged>
__global__ void PrepareKernel(Tables t, const T* raw, float2* out) {
  extern __shared__ float staged[];
  const T* record = raw + static_cast<int64_t>(blockIdx.x) * t.samples;
  float2* spectrum = out + static_cast<int64_t>(blockIdx.x) * t.fft;
  const auto load = [&](int64_t i) { return static_cast<float>(record[i]) - (t.background != nullptr ? t.background[i] : 0.0f); };
  if constexpr (kStaged) {
    for (int64_t i = threadIdx.x; i < t.samples; i += blockDim.x) staged[i] = load(i);
    __syncthreads();
  }
  const auto at = [&](int64_t i) {
    i = Clamp(i, t.samples);
    if constexpr (kStaged) {
      return staged[i];
    } else {
      return load(i);
    }
  };
  for (int64_t j = threadIdx.x; j < t.fft; j += blockDim.x) {
    float2 z = make_float2(0, 0);
    if (j < t.n) {
      float v;
      if (t.interpolation == math::Interpolation::kNone) {
        v = at(j);
      } else if (t.interpolation == math::Interpolation::kLinear) {
        const int64_t i = t.tap[j];
        v = t.weights[2 * j] * at(i) + t.weights[2 * j + 1] * at(i + 1);
      } else {
        const int64_t i = t.tap[j];
        const float4 w = reinterpret_cast<const float4*>(t.weights)[j];
        v = w.x * at(i - 1) + w.y * at(i) + w.z * at(i + 1) + w.w * at(i + 2);
      }
      const float2 h = t.h[j];
      z = make_float2(v * h.x, v * h.y);
    }
    spectrum[j] = z;
  }
}

template <typename T>
__device__ inline T Store(const Tables& t, float v) {
  if (t.scaled) v = math::ToLevels(v, t.scale, t.offset);
  if constexpr (std::is_same_v<T, float>) {
    return v;
  } else {
    return static_cast<T>(math::Quantise(v, t.top));
  }
}

// Steps 6 and 7, placement and en face projections: one block an A-scan.
template <typename T>
__global__ void FinishKernel(Tables t, const float2* spectra, int64_t first, RecordPlacement placement, SpectralTarget target) {
  const int64_t record = first + blockIdx.x;
  const int64_t ascan = placement.table != nullptr ? placement.table[record] : math::RasterAscan(placement.raster, placement.first_record + record);
  if (ascan < 0 || ascan >= target.volume_ascans) return;
  const float2* in = spectra + static_cast<int64_t>(blockIdx.x) * t.fft + t.first_bin;
  T* out = static_cast<T*>(target.volume) + ascan * t.depth;
  float most = std::is_same_v<T, float> ? -INFINITY : 0.0f, sum = 0;
  for (int64_t z = threadIdx.x; z < t.depth; z += blockDim.x) {
    const float2 c = in[z];
    const T stored = Store<T>(t, math::ValueOf(t.value, c.x, c.y));
    out[z] = stored;
    if (z >= t.slab_begin && z < t.slab_end) {
      most = fmaxf(most, static_cast<float>(stored));
      sum += static_cast<float>(stored);
    }
  }
  if (target.mip == nullptr && target.aip == nullptr) return;  // the same for all threads
  __shared__ float mosts[kFinishThreads / 32], sums[kFinishThreads / 32];
  for (int offset = 16; offset > 0; offset /= 2) {
    most = fmaxf(most, __shfl_down_sync(0xFFFFFFFFu, most, offset));
    sum += __shfl_down_sync(0xFFFFFFFFu, sum, offset);
  }
  if ((threadIdx.x & 31) == 0) {
    mosts[threadIdx.x / 32] = most;
    sums[threadIdx.x / 32] = sum;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < kFinishThreads / 32; ++w) {
    most = fmaxf(most, mosts[w]);
    sum += sums[w];
  }
  if (target.mip != nullptr) static_cast<T*>(target.mip)[ascan] = static_cast<T>(most);
  if (target.aip != nullptr) target.aip[ascan] = sum / static_cast<float>(t.slab_end - t.slab_begin);
}

// Rolling background: each block sums kRollRecords new records less those that leave, and keeps the new ones.
template <typename T>
__global__ void RollKernel(const T* newest, int64_t fresh, int64_t leaving, int64_t next, int64_t window, int64_t samples, T* history, double* partials) {
  const int64_t j = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (j >= samples) return;
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * kRollRecords, end = min(begin + kRollRecords, fresh);
  double sum = 0;
  for (int64_t r = begin; r < end; ++r) {
    T* slot = history + (next + r) % window * samples + j;
    if (r >= fresh - leaving) sum -= static_cast<double>(*slot);
    const T v = newest[r * samples + j];
    sum += static_cast<double>(v);
    *slot = v;
  }
  partials[blockIdx.y * samples + j] = sum;
}

// Adds the parts in a fixed order, so that results do not depend on timing.
__global__ void RollFinishKernel(const double* partials, int64_t parts, int64_t samples, double count, double* sums, float* background) {
  const int64_t j = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (j >= samples) return;
  double sum = sums[j];
  for (int64_t p = 0; p < parts; ++p) sum += partials[p * samples + j];
  sums[j] = sum;
  background[j] = static_cast<float>(sum / count);
}

int64_t ChunkRecords(const SpectralConfig& c) {
  return std::clamp<int64_t>(kChunkBytes / (c.fft_length * static_cast<int64_t>(sizeof(float2))), 1, c.max_records_per_block);
}
int64_t RollParts(const SpectralConfig& c) {
  return (std::min(c.max_records_per_block, c.background_window_records) + kRollRecords - 1) / kRollRecords;
}

class CudaSpectralPlan final : public SpectralPlan {
 public:
  CudaSpectralPlan(const SpectralConfig& config, int ordinal, std::shared_ptr<DeviceHealth> health, const CufftLibrary* cufft)
      : config_(config), ordinal_(ordinal), health_(std::move(health)), cufft_(cufft) {}

  ~CudaSpectralPlan() override {
    const DeviceGuard guard(ordinal_);
    for (const auto& [records, handle] : plans_) (void)cufft_->Destroy(handle);
  }

  absl::Status Build(Device* device) {
    const DeviceGuard guard(ordinal_);
    const SpectralConfig& c = config_;
    OCTAVO_ASSIGN_OR_RETURN(Stream owned, device->NewStream(StreamPriority::kNormal));
    const cudaStream_t stream = Of(owned.ref());
    std::vector<int32_t> tap;
    std::vector<float> weights;
    const bool cubic = c.interpolation == math::Interpolation::kCubic;
    for (const float r : c.k_index) {
      const float left = std::floor(r), t = r - left;
      tap.push_back(static_cast<int32_t>(left));
      float w[4] = {1.0f - t, t, 0, 0};
      if (cubic) math::CubicWeights(t, w);
      weights.insert(weights.end(), w, w + (cubic ? 4 : 2));
    }
    std::vector<float2> h;
    const double scale = 1.0 / static_cast<double>(c.fft_length);
    for (size_t j = 0; j < c.window.size(); ++j) {
      const double phase = c.phase_rad.empty() ? 0.0 : static_cast<double>(c.phase_rad[j]);
      h.push_back(make_float2(static_cast<float>(c.window[j] * std::cos(phase) * scale), static_cast<float>(c.window[j] * std::sin(phase) * scale)));
    }
    OCTAVO_RETURN_IF_ERROR(Upload(device, stream, tap, &tap_));
    OCTAVO_RETURN_IF_ERROR(Upload(device, stream, weights, &weights_));
    OCTAVO_RETURN_IF_ERROR(Upload(device, stream, h, &h_));
    if (c.background == math::Background::kStatic) OCTAVO_RETURN_IF_ERROR(Upload(device, stream, c.background_spectrum, &background_));
    if (c.background == math::Background::kRolling) {
      const int64_t samples = c.samples_per_record;
      OCTAVO_RETURN_IF_ERROR(Zeroed(device, stream, samples * 4, &background_));
      OCTAVO_RETURN_IF_ERROR(Zeroed(device, stream, samples * 8, &sums_));
      OCTAVO_RETURN_IF_ERROR(Zeroed(device, stream, RollParts(c) * samples * 8, &partials_));
      OCTAVO_RETURN_IF_ERROR(Zeroed(device, stream, c.background_window_records * samples * SizeOf(c.raw_type), &history_));
    }
    chunk_ = ChunkRecords(c);
    OCTAVO_RETURN_IF_ERROR(Zeroed(device, stream, chunk_ * c.fft_length * static_cast<int64_t>(sizeof(float2)), &spectra_));
    // Transforms of fewer records than a chunk use the next smaller plan that covers them.
    for (int64_t records = chunk_;; records = (records + 3) / 4) {
      OCTAVO_RETURN_IF_ERROR(AddPlan(records));
      if (records == 1) break;
    }
    OCTAVO_RETURN_IF_ERROR(Zeroed(device, stream, static_cast<int64_t>(std::max<size_t>(work_bytes_, 1)), &work_));
    for (const auto& [records, handle] : plans_) OCTAVO_CUDA(health_.get(), cufft_->SetWorkArea(handle, work_.data()));
    t_ = {.samples = c.samples_per_record, .n = static_cast<int64_t>(c.window.size()), .fft = c.fft_length, .first_bin = c.first_bin, .depth = c.depth,
          .interpolation = c.interpolation, .tap = tap_.as<int32_t>(), .weights = weights_.as<float>(), .h = h_.as<float2>(),
          .background = background_.as<float>(), .value = c.value, .scaled = c.has_levels, .scale = 1, .offset = 0,
          .top = c.output == DType::kU8 ? 255.0f : c.output == DType::kU16 ? 65535.0f : 0.0f, .slab_begin = c.slab_begin, .slab_end = c.slab_end};
    if (c.has_levels) {
      t_.scale = (t_.top > 0 ? t_.top : 1.0f) / (c.level_hi - c.level_lo);
      t_.offset = -c.level_lo * t_.scale;
    }
    staged_bytes_ = c.samples_per_record * 4 <= kStagedBytes ? static_cast<size_t>(c.samples_per_record * 4) : 0;
    if (staged_bytes_ > 48 << 10) {
      OCTAVO_RETURN_IF_ERROR(ForRaw([&](auto type) -> absl::Status {
        using T = decltype(type);
        OCTAVO_CUDA(health_.get(), cudaFuncSetAttribute(PrepareKernel<T, true>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(staged_bytes_)));
        return absl::OkStatus();
      }));
    }
    return owned.ref().Synchronize();
  }

  absl::Status UpdateBackground(StreamRef stream, const void* raw, int64_t records) override {
    const DeviceGuard guard(ordinal_);
    const int64_t samples = config_.samples_per_record, window = config_.background_window_records;
    const int64_t fresh = std::min(records, window), leaving = std::max<int64_t>(0, seen_ + fresh - window), parts = (fresh + kRollRecords - 1) / kRollRecords;
    const auto columns = static_cast<unsigned>((samples + 127) / 128);
    OCTAVO_RETURN_IF_ERROR(ForRaw([&](auto type) -> absl::Status {
      using T = decltype(type);
      const T* newest = static_cast<const T*>(raw) + (records - fresh) * samples;
      RollKernel<T><<<dim3(columns, static_cast<unsigned>(parts)), 128, 0, Of(stream)>>>(newest, fresh, leaving, next_, window, samples, history_.as<T>(),
                                                                                        partials_.as<double>());
      OCTAVO_CUDA(health_.get(), cudaGetLastError());
      return absl::OkStatus();
    }));
    next_ = (next_ + fresh) % window;
    seen_ = std::min(seen_ + fresh, window);
    RollFinishKernel<<<columns, 128, 0, Of(stream)>>>(partials_.as<double>(), parts, samples, static_cast<double>(seen_), sums_.as<double>(), background_.as<float>());
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }

  absl::Status Process(StreamRef stream, const void* raw, int64_t records, const RecordPlacement& placement, const SpectralTarget& target) override {
    const DeviceGuard guard(ordinal_);
    for (int64_t first = 0; first < records; first += chunk_) {
      const int64_t count = std::min(chunk_, records - first);
      OCTAVO_RETURN_IF_ERROR(ForRaw([&](auto type) -> absl::Status {
        using T = decltype(type);
        const T* from = static_cast<const T*>(raw) + first * config_.samples_per_record;
        if (staged_bytes_ > 0) {
          PrepareKernel<T, true><<<static_cast<unsigned>(count), kPrepareThreads, staged_bytes_, Of(stream)>>>(t_, from, spectra_.as<float2>());
        } else {
          PrepareKernel<T, false><<<static_cast<unsigned>(count), kPrepareThreads, 0, Of(stream)>>>(t_, from, spectra_.as<float2>());
        }
        OCTAVO_CUDA(health_.get(), cudaGetLastError());
        return absl::OkStatus();
      }));
      // The plans stand largest first: the last one that covers the count does least work.
      cufftHandle handle = plans_.front().second;
      for (const auto& [covers, candidate] : plans_) handle = covers >= count ? candidate : handle;
      OCTAVO_CUDA(health_.get(), cufft_->SetStream(handle, Of(stream)));
      OCTAVO_CUDA(health_.get(), cufft_->ExecC2C(handle, spectra_.as<cufftComplex>(), spectra_.as<cufftComplex>(), CUFFT_INVERSE));
      const auto finish = [&](auto type) -> absl::Status {
        using T = decltype(type);
        FinishKernel<T><<<static_cast<unsigned>(count), kFinishThreads, 0, Of(stream)>>>(t_, spectra_.as<float2>(), first, placement, target);
        OCTAVO_CUDA(health_.get(), cudaGetLastError());
        return absl::OkStatus();
      };
      OCTAVO_RETURN_IF_ERROR(config_.output == DType::kU8 ? finish(uint8_t{}) : config_.output == DType::kU16 ? finish(uint16_t{}) : finish(float{}));
    }
    return absl::OkStatus();
  }

  int64_t device_bytes() const override { return device_bytes_; }
  std::string description() const override {
    return "cuda: three launches (prepare, cuFFT C2C inverse, finish) over chunks of " + std::to_string(chunk_) + " records that stay in the L2 cache";
  }

 private:
  template <class F>
  absl::Status ForRaw(F f) {
    switch (config_.raw_type) {
      case DType::kU8: return f(uint8_t{});
      case DType::kI16: return f(int16_t{});
      case DType::kF32: return f(float{});
      default: return f(uint16_t{});
    }
  }

  template <class T>
  absl::Status Upload(Device* device, cudaStream_t stream, const std::vector<T>& values, DeviceBuffer* out) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    if (bytes == 0) return absl::OkStatus();
    OCTAVO_ASSIGN_OR_RETURN(*out, device->Allocate(bytes));
    device_bytes_ += bytes;
    OCTAVO_CUDA(health_.get(), cudaMemcpyAsync(out->data(), values.data(), static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream));
    OCTAVO_CUDA(health_.get(), cudaStreamSynchronize(stream));
    return absl::OkStatus();
  }
  absl::Status Zeroed(Device* device, cudaStream_t stream, int64_t bytes, DeviceBuffer* out) {
    OCTAVO_ASSIGN_OR_RETURN(*out, device->Allocate(bytes));
    device_bytes_ += bytes;
    OCTAVO_CUDA(health_.get(), cudaMemsetAsync(out->data(), 0, static_cast<size_t>(bytes), stream));
    return absl::OkStatus();
  }
  // Our own work area: cuFFT must not allocate behind the ledger's back.
  absl::Status AddPlan(int64_t records) {
    cufftHandle handle = 0;
    OCTAVO_CUDA(health_.get(), cufft_->Create(&handle));
    plans_.emplace_back(records, handle);
    OCTAVO_CUDA(health_.get(), cufft_->SetAutoAllocation(handle, 0));
    long long length = config_.fft_length;  // cuFFT's own type
    size_t work = 0;
    OCTAVO_CUDA(health_.get(), cufft_->MakePlanMany64(handle, 1, &length, nullptr, 1, length, nullptr, 1, length, CUFFT_C2C, records, &work));
    work_bytes_ = std::max(work_bytes_, work);
    return absl::OkStatus();
  }

  const SpectralConfig config_;
  const int ordinal_;
  const std::shared_ptr<DeviceHealth> health_;
  const CufftLibrary* const cufft_;
  Tables t_{};
  int64_t chunk_ = 1, device_bytes_ = 0, next_ = 0, seen_ = 0;
  size_t staged_bytes_ = 0, work_bytes_ = 0;
  std::vector<std::pair<int64_t, cufftHandle>> plans_;  // records → plan, largest first
  DeviceBuffer tap_, weights_, h_, background_, sums_, partials_, history_, spectra_, work_;
};

class CudaSpectralOps final : public SpectralOps {
 public:
  CudaSpectralOps(int ordinal, Device* device, std::shared_ptr<DeviceHealth> health) : ordinal_(ordinal), device_(device), health_(std::move(health)) {}

  absl::StatusOr<std::unique_ptr<SpectralPlan>> CreatePlan(const SpectralConfig& config) override {
    OCTAVO_ASSIGN_OR_RETURN(const CufftLibrary* cufft, LoadCufft());
    auto plan = std::make_unique<CudaSpectralPlan>(config, ordinal_, health_, cufft);
    OCTAVO_RETURN_IF_ERROR(plan->Build(device_));
    return plan;
  }

  int64_t PlanBytes(const SpectralConfig& c) override {
    const int64_t spectra = ChunkRecords(c) * c.fft_length * static_cast<int64_t>(sizeof(float2));
    int64_t bytes = 2 * spectra;  // with cuFFT's work area, which needs no more than the data for these lengths
    bytes += static_cast<int64_t>(c.window.size()) * (8 + 16 + 4) + c.samples_per_record * 4 + (1 << 16);
    if (c.background == math::Background::kRolling) {
      bytes += c.samples_per_record * (12 + RollParts(c) * 8 + c.background_window_records * SizeOf(c.raw_type));
    }
    return bytes;
  }

 private:
  const int ordinal_;
  Device* const device_;
  const std::shared_ptr<DeviceHealth> health_;
};

}  // namespace

std::unique_ptr<SpectralOps> MakeCudaSpectralOps(int ordinal, Device* device, std::shared_ptr<DeviceHealth> health) {
  return std::make_unique<CudaSpectralOps>(ordinal, device, std::move(health));
}

}  // namespace octavo::cuda

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/cuda/cuda_stream.h"
#include "gpu/cuda/cufft_library.h"
#include "gpu/cuda/fused_spectral.h"
#include "gpu/cuda/kernels.h"
#include "gpu/cuda/raw_rows.cuh"
#include "gpu/cuda/rolling_background.h"
#include "gpu/math/projection.h"

namespace octavo::cuda {
namespace {

constexpr int kPrepareThreads = 256, kFinishThreads = 128, kColumnThreads = 128;
constexpr int64_t kMeanRecords = 32, kMostMeanParts = 1024;  // raw records of a part, parts
constexpr int64_t kPatternParts = 16;                        // of a B-scan whose mean is taken
constexpr int64_t kMostRuns = 32768;                         // of a launch
constexpr int64_t kStagedBytes = 160 << 10;                  // records larger than this are read from device memory directly
constexpr int64_t kChunkBytes = int64_t{24} << 20;           // spectra of a chunk between the launches: stays in the L2 cache

struct Tables {
  RawRows rows;
  int64_t average;                          // rows of a record
  int64_t n, fft, pitch, first_bin, depth;  // pitch: complex numbers from one spectrum to the next
  math::Interpolation interpolation;
  const int32_t* tap;
  const float* weights;     // [n][taps]
  const float2* h;          // window × dispersion × 1/F
  const float* background;  // null = none
  int64_t background_step;  // floats from one run's background to the next one's; 0 = the same for all
  const float2* pattern;    // [run, depth]; null = none
  math::Value value;
  bool scaled;
  float scale, offset, bottom, top;
  int64_t slab_begin, slab_end;
  int64_t repeat_ascans;
};

__device__ inline int64_t Clamp(int64_t i, int64_t samples) { return i < 0 ? 0 : i >= samples ? samples - 1 : i; }

// Position of the launch's record `b`, and the run it belongs to.
struct Place {
  int64_t record, run;
};
__device__ inline Place PlaceOf(const RecordRuns& runs, unsigned b) {
  if (runs.runs == 1) return {b, 0};
  const unsigned run = b / static_cast<unsigned>(runs.active);
  return {static_cast<int64_t>(run) * runs.pitch + b % static_cast<unsigned>(runs.active), run};
}

// Steps 1 to 3 and the zero padding: one block a record, staged in shared memory. kReal: rows of real numbers for the real transform.
template <typename T, bool kStaged, bool kReal>
__global__ void PrepareKernel(Tables t, const uint8_t* raw, RecordRuns runs, float2* out) {
  extern __shared__ float staged[];
  const Place place = PlaceOf(runs, blockIdx.x);
  const uint8_t* record = raw + place.record * t.average * t.rows.bytes;
  const float* background = t.background == nullptr ? nullptr : t.background + place.run * t.background_step;
  float2* spectrum = out + static_cast<int64_t>(blockIdx.x) * t.pitch;
  const auto load = [&](int64_t i) {
    float v = static_cast<float>(ReadSample<T>(t.rows, record, i));
    if (t.average > 1) {
      for (int64_t r = 1; r < t.average; ++r) v += static_cast<float>(ReadSample<T>(t.rows, record + r * t.rows.bytes, i));
      v *= 1.0f / static_cast<float>(t.average);
    }
    return v - (background != nullptr ? background[i] : 0.0f);
  };
  if constexpr (kStaged) {
    for (int64_t i = threadIdx.x; i < t.rows.samples; i += blockDim.x) staged[i] = load(i);
    __syncthreads();
  }
  const auto at = [&](int64_t i) {
    i = Clamp(i, t.rows.samples);
    if constexpr (kStaged) {
      return staged[i];
    } else {
      return load(i);
    }
  };
  for (int64_t j = threadIdx.x; j < t.fft; j += blockDim.x) {
    float v = 0;
    if (j < t.n) {
      if (t.interpolation == math::Interpolation::kNone) {
        v = at(j);
      } else if (t.interpolation == math::Interpolation::kLinear) {
        const int64_t i = t.tap[j];
        v = t.weights[2 * j] * at(i) + t.weights[2 * j + 1] * at(i + 1);
      } else if (t.interpolation == math::Interpolation::kCubic) {
        const int64_t i = t.tap[j];
        const float4 w = reinterpret_cast<const float4*>(t.weights)[j];
        v = w.x * at(i - 1) + w.y * at(i) + w.z * at(i + 1) + w.w * at(i + 2);
      } else {
        const int64_t i = t.tap[j];
        const float4 w = reinterpret_cast<const float4*>(t.weights)[2 * j], u = reinterpret_cast<const float4*>(t.weights)[2 * j + 1];
        v = w.x * at(i - 3) + w.y * at(i - 2) + w.z * at(i - 1) + w.w * at(i) + u.x * at(i + 1) + u.y * at(i + 2) + u.z * at(i + 3) + u.w * at(i + 4);
      }
    }
    const float2 h = j < t.n ? t.h[j] : make_float2(0, 0);
    if constexpr (kReal) {
      reinterpret_cast<float*>(spectrum)[j] = v * h.x;
    } else {
      spectrum[j] = make_float2(v * h.x, v * h.y);
    }
  }
}

// Depth sample z of a spectrum: of the real transform, which runs forward over half the bins, by symmetry.
template <bool kReal>
__device__ inline float2 DepthSample(const Tables& t, const float2* spectrum, int64_t z) {
  const int64_t bin = t.first_bin + z;
  if constexpr (kReal) {
    if (2 * bin > t.fft) return spectrum[t.fft - bin];
    const float2 c = spectrum[bin];
    return make_float2(c.x, -c.y);
  } else {
    return spectrum[bin];
  }
}

// A number as it is stored, and back.
template <typename T>
__device__ inline T Stored(const Tables& t, float v) {
  if constexpr (std::is_same_v<T, math::Half>) {
    return {math::FloatToHalf(v)};
  } else if constexpr (std::is_same_v<T, int8_t>) {
    return static_cast<int8_t>(math::QuantiseSigned(v, t.bottom, t.top));
  } else if constexpr (std::is_same_v<T, float>) {
    return v;
  } else {
    return static_cast<T>(math::Quantise(v, t.top));
  }
}
template <typename T>
__device__ inline float NumberOf(T v) {
  if constexpr (std::is_same_v<T, math::Half>) {
    return math::HalfToFloat(v.bits);
  } else {
    return static_cast<float>(v);
  }
}

// Steps 6 and 7, placement and en face projections: one block an A-scan. T: element of the volume.
template <typename T, bool kReal>
__global__ void FinishKernel(Tables t, const float2* spectra, RecordRuns runs, RecordPlacement placement, SpectralTarget target, RepeatSums repeats) {
  using P = decltype(math::Projected(T{}));
  const Place place = PlaceOf(runs, blockIdx.x);
  const int64_t ascan =
      placement.table != nullptr ? placement.table[place.record] : math::RasterAscan(placement.raster, placement.first_record + place.record);
  if (ascan < 0 || ascan >= target.volume_ascans) return;
  const float2* in = spectra + static_cast<int64_t>(blockIdx.x) * t.pitch;
  const float2* pattern = t.pattern == nullptr ? nullptr : t.pattern + place.run * t.depth;
  T* out = static_cast<T*>(target.volume) + ascan * t.depth;
  float* sums = nullptr;
  int32_t before = 0;
  if (t.repeat_ascans > 0) {  // the same for all threads
    const int64_t slot = ascan % t.repeat_ascans;
    sums = repeats.power + slot * t.depth;
    before = repeats.owner[slot] == static_cast<int32_t>(ascan) ? repeats.count[slot] : 0;
    __syncthreads();
    if (threadIdx.x == 0) {
      repeats.owner[slot] = static_cast<int32_t>(ascan);
      repeats.count[slot] = before + 1;
    }
  }
  float most = std::is_same_v<P, int8_t> ? -128.0f : std::is_integral_v<P> ? 0.0f : -INFINITY, sum = 0;
  for (int64_t z = threadIdx.x; z < t.depth; z += blockDim.x) {
    float2 c = DepthSample<kReal>(t, in, z);
    if (pattern != nullptr) c = make_float2(c.x - pattern[z].x, c.y - pattern[z].y);
    float number;
    if constexpr (std::is_same_v<T, math::Complex64>) {
      out[z] = {c.x, c.y};
      number = math::ValueOf(t.value, c.x, c.y);
    } else {
      float v;
      if (sums != nullptr) {
        sums[z] = math::JoinRepeat(before == 0 ? 0.0f : sums[z], before, c.x * c.x + c.y * c.y);
        v = math::ValueOfPower(t.value, math::MeanOfRepeats(sums[z], before + 1));
      } else {
        v = math::ValueOf(t.value, c.x, c.y);
      }
      const T stored = Stored<T>(t, t.scaled ? math::ToLevels(v, t.scale, t.offset) : v);
      out[z] = stored;
      number = NumberOf(stored);
    }
    if (z >= t.slab_begin && z < t.slab_end) {
      most = fmaxf(most, number);
      sum += number;
    }
  }
  if (target.mip == nullptr && target.aip == nullptr) return;  // the same for all threads
  __shared__ float mosts[kFinishThreads / 32], block_sums[kFinishThreads / 32];
  for (int offset = 16; offset > 0; offset /= 2) {
    most = fmaxf(most, __shfl_down_sync(0xFFFFFFFFu, most, offset));
    sum += __shfl_down_sync(0xFFFFFFFFu, sum, offset);
  }
  if ((threadIdx.x & 31) == 0) {
    mosts[threadIdx.x / 32] = most;
    block_sums[threadIdx.x / 32] = sum;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < kFinishThreads / 32; ++w) {
    most = fmaxf(most, mosts[w]);
    sum += block_sums[w];
  }
  if (target.mip != nullptr) {
    if constexpr (std::is_same_v<P, math::Half>) {
      static_cast<P*>(target.mip)[ascan] = {math::FloatToHalf(most)};
    } else {
      static_cast<P*>(target.mip)[ascan] = static_cast<P>(most);
    }
  }
  if (target.aip != nullptr) target.aip[ascan] = sum / static_cast<float>(t.slab_end - t.slab_begin);
}

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
__global__ void RunMeanKernel(const double* partials, int64_t parts, int64_t samples, double count, float* background) {
  const int64_t j = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (j >= samples) return;
  const double* from = partials + static_cast<int64_t>(blockIdx.y) * parts * samples + j;
  double sum = 0;
  for (int64_t p = 0; p < parts; ++p) sum += from[p * samples];
  background[blockIdx.y * samples + j] = static_cast<float>(sum / count);
}

// Of each depth of each segment of each run: the sum, and for quiet segments the variance. [run, segment, depth]
template <bool kReal>
__global__ void SegmentKernel(Tables t, const float2* spectra, int64_t ascans, bool variance, float2* sums, float* variances) {
  const int64_t z = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (z >= t.depth) return;
  const int64_t segments = gridDim.z, begin = math::SegmentBegin(ascans, segments, blockIdx.z),
                end = math::SegmentBegin(ascans, segments, blockIdx.z + 1);
  const float2* run = spectra + static_cast<int64_t>(blockIdx.y) * ascans * t.pitch;
  const int64_t at = (static_cast<int64_t>(blockIdx.y) * segments + blockIdx.z) * t.depth + z;
  float2 sum = make_float2(0, 0);
  for (int64_t a = begin; a < end; ++a) {
    const float2 c = DepthSample<kReal>(t, run + a * t.pitch, z);
    sum = make_float2(sum.x + c.x, sum.y + c.y);
  }
  sums[at] = sum;
  if (!variance) return;
  const float share = 1.0f / static_cast<float>(end - begin);
  float square = 0;
  for (int64_t a = begin; a < end; ++a) {
    const float2 c = DepthSample<kReal>(t, run + a * t.pitch, z);
    const float x = c.x - sum.x * share, y = c.y - sum.y * share;
    square += x * x + y * y;
  }
  variances[at] = square * share;
}
// The fixed pattern [run, depth]: the mean of all segments, or that of the one of least variance.
__global__ void PatternKernel(int64_t depth, int64_t ascans, int64_t segments, bool quiet, const float2* sums, const float* variances,
                              float2* pattern) {
  const int64_t z = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (z >= depth) return;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * segments * depth + z;
  float2 sum = make_float2(0, 0);
  int64_t count = ascans;
  if (quiet) {
    int64_t least = 0;
    for (int64_t s = 1; s < segments; ++s) {
      if (variances[first + s * depth] < variances[first + least * depth]) least = s;
    }
    sum = sums[first + least * depth];
    count = math::SegmentBegin(ascans, segments, least + 1) - math::SegmentBegin(ascans, segments, least);
  } else {
    for (int64_t s = 0; s < segments; ++s) sum = make_float2(sum.x + sums[first + s * depth].x, sum.y + sums[first + s * depth].y);
  }
  const float share = 1.0f / static_cast<float>(count);
  pattern[blockIdx.y * depth + z] = make_float2(sum.x * share, sum.y * share);
}

int64_t Parts(int64_t rows, int64_t part, int64_t most) { return std::min((rows + part - 1) / part, most); }

// What a plan allocates, in one place for PlanBytes and Build.
struct Sizes {
  bool real, lines;
  int64_t pitch, chunk, runs;  // complex numbers of a spectrum; records and runs of a chunk
  int64_t mean_parts = 0;
  int64_t segments = 0;  // of a run
  int64_t work = 0;      // what cuFFT may need

  explicit Sizes(const SpectralConfig& c) : real(c.phase_rad.empty()), lines(c.bscan_records > 0), pitch(real ? c.fft_length / 2 + 1 : c.fft_length) {
    chunk = std::clamp<int64_t>(kChunkBytes / (pitch * static_cast<int64_t>(sizeof(float2))), 1, c.max_records_per_block);
    runs = lines ? std::clamp<int64_t>(chunk / c.bscan_records, 1, kMostRuns) : 1;
    if (lines) chunk = runs * c.bscan_records;
    if (c.background == math::Background::kBscan) mean_parts = Parts(c.bscan_records * c.record_average, kMeanRecords, kMostMeanParts);
    if (c.fixed_pattern != math::FixedPattern::kNone) segments = std::max(kPatternParts, math::kFixedPatternSegments);
    // Lengths of small factors work in as much as the data; others by convolutions of at least twice the length.
    int64_t rest = c.fft_length, power = 1;
    for (const int64_t p : {2, 3, 5, 7}) {
      while (rest % p == 0) rest /= p;
    }
    while (power < 2 * c.fft_length) power *= 2;
    work = chunk * (rest == 1 ? c.fft_length + 1 : 2 * power) * static_cast<int64_t>(sizeof(float2)) + (1 << 20);
  }
  int64_t spectra_bytes() const { return chunk * pitch * static_cast<int64_t>(sizeof(float2)); }
};

class CudaSpectralPlan final : public SpectralPlan {
 public:
  CudaSpectralPlan(const SpectralConfig& config, int ordinal, std::shared_ptr<DeviceHealth> health, const CufftLibrary* cufft)
      : config_(config), sizes_(config), record_bytes_(RecordBytes(config)), ordinal_(ordinal), health_(std::move(health)), cufft_(cufft) {}

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
    for (const float r : c.k_index) {
      const float left = std::floor(r);
      float w[8];
      math::WeightsOf(c.interpolation, r - left, w);
      tap.push_back(static_cast<int32_t>(left));
      weights.insert(weights.end(), w, w + math::Taps(c.interpolation));
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
    const int64_t samples = c.samples_per_record;
    if (c.background == math::Background::kStatic) OCTAVO_RETURN_IF_ERROR(Upload(device, stream, c.background_spectrum, &background_));
    if (c.background == math::Background::kRolling) {
      OCTAVO_RETURN_IF_ERROR(Zeroed(device, stream, samples * 4, &background_));
      OCTAVO_ASSIGN_OR_RETURN(rolling_, RollingBackground::Create(c, device, health_, stream));
      device_bytes_ += RollingBackground::DeviceBytes(c);
    }
    if (c.background == math::Background::kBscan) {
      OCTAVO_RETURN_IF_ERROR(Zeroed(device, stream, sizes_.runs * samples * 4, &background_));
      OCTAVO_RETURN_IF_ERROR(Zeroed(device, stream, sizes_.runs * sizes_.mean_parts * samples * 8, &partials_));
    }
    if (c.fixed_pattern != math::FixedPattern::kNone) {
      OCTAVO_RETURN_IF_ERROR(Zeroed(device, stream, sizes_.runs * c.depth * 8, &pattern_));
      OCTAVO_RETURN_IF_ERROR(Zeroed(device, stream, sizes_.runs * sizes_.segments * c.depth * 8, &segment_sums_));
      OCTAVO_RETURN_IF_ERROR(Zeroed(device, stream, sizes_.runs * sizes_.segments * c.depth * 4, &segment_variances_));
    }
    if (why_not_fused_.empty()) {
      OCTAVO_ASSIGN_OR_RETURN(fused_, FusedChain::Create(c, device, health_, background_.as<float>(), stream));
      device_bytes_ += FusedChain::DeviceBytes(c);
    } else {
      OCTAVO_RETURN_IF_ERROR(BuildTransforms(device, stream));
    }
    t_ = {.rows = RawRowsOf(c),
          .average = c.record_average,
          .n = static_cast<int64_t>(c.window.size()),
          .fft = c.fft_length,
          .pitch = sizes_.pitch,
          .first_bin = c.first_bin,
          .depth = c.depth,
          .interpolation = c.interpolation,
          .tap = tap_.as<int32_t>(),
          .weights = weights_.as<float>(),
          .h = h_.as<float2>(),
          .background = background_.as<float>(),
          .background_step = c.background == math::Background::kBscan ? samples : 0,
          .pattern = pattern_.as<float2>(),
          .value = c.value,
          .scaled = c.has_levels,
          .scale = 1,
          .offset = 0,
          .bottom = LowestOf(c.output),
          .top = HighestOf(c.output),
          .slab_begin = c.slab_begin,
          .slab_end = c.slab_end,
          .repeat_ascans = c.repeats > 1 ? c.repeat_ascans : 0};
    if (c.has_levels) {
      t_.scale = (IsInteger(c.output) ? t_.top - t_.bottom : 1.0f) / (c.level_hi - c.level_lo);
      t_.offset = t_.bottom - c.level_lo * t_.scale;
    }
    staged_bytes_ = samples * 4 <= kStagedBytes ? static_cast<size_t>(samples * 4) : 0;
    if (staged_bytes_ > 48 << 10) {
      OCTAVO_RETURN_IF_ERROR(ForRawType(config_, [&](auto type) -> absl::Status {
        using T = decltype(type);
        const auto bytes = static_cast<int>(staged_bytes_);
        OCTAVO_CUDA(health_.get(), cudaFuncSetAttribute(PrepareKernel<T, true, true>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
        OCTAVO_CUDA(health_.get(), cudaFuncSetAttribute(PrepareKernel<T, true, false>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
        return absl::OkStatus();
      }));
    }
    return owned.ref().Synchronize();
  }

  absl::Status UpdateBackground(StreamRef stream, const void* raw, int64_t records) override {
    const DeviceGuard guard(ordinal_);
    OCTAVO_RETURN_IF_ERROR(rolling_->Update(Of(stream), raw, records, background_.as<float>()));
    return fused_ != nullptr ? fused_->Refresh(Of(stream)) : absl::OkStatus();
  }

  absl::Status Process(StreamRef stream, const void* raw, const RecordRuns& runs, const RecordPlacement& placement, const SpectralTarget& target,
                       const RepeatSums& sums) override {
    const DeviceGuard guard(ordinal_);
    if (fused_ != nullptr) return fused_->Process(Of(stream), raw, runs.records(), placement, target);  // one run always: no whole B-scans
    // A chunk holds whole runs where the runs matter, else records.
    const int64_t total = sizes_.lines ? runs.runs : runs.active, step = sizes_.lines ? sizes_.runs : sizes_.chunk;
    for (int64_t first = 0; first < total; first += step) {
      const int64_t count = std::min(step, total - first), offset = sizes_.lines ? first * runs.pitch : first;
      const RecordRuns part = sizes_.lines ? RecordRuns{.runs = count, .active = runs.active, .pitch = runs.pitch}
                                           : RecordRuns{.runs = 1, .active = count, .pitch = count};
      RecordPlacement place = placement;
      place.first_record += offset;
      if (place.table != nullptr) place.table += offset;
      OCTAVO_RETURN_IF_ERROR(ProcessChunk(Of(stream), static_cast<const uint8_t*>(raw) + offset * record_bytes_, part, place, target, sums));
    }
    return absl::OkStatus();
  }

  int64_t device_bytes() const override { return device_bytes_; }
  std::string description() const override {
    if (fused_ != nullptr) return "cuda: " + FusedChain::Describe(config_);
    return std::string("cuda: launches (prepare, cuFFT ") + (sizes_.real ? "R2C" : "C2C inverse") + " of " + std::to_string(config_.fft_length) +
           ", finish) over chunks of " + std::to_string(sizes_.chunk) + " records that stay in the L2 cache (not fused: " + why_not_fused_ + ")";
  }

 private:
  template <class F>
  absl::Status ForOutput(F f) {
    switch (config_.output) {
      case DType::kU8: return f(uint8_t{});
      case DType::kI8: return f(int8_t{});
      case DType::kU16: return f(uint16_t{});
      case DType::kF16: return f(math::Half{});
      case DType::kC64: return f(math::Complex64{});
      default: return f(float{});
    }
  }
  static unsigned Columns(int64_t count) { return static_cast<unsigned>((count + kColumnThreads - 1) / kColumnThreads); }

  template <bool kReal>
  void LaunchPrepare(cudaStream_t stream, const uint8_t* raw, const RecordRuns& runs, unsigned records, auto type) {
    using T = decltype(type);
    if (staged_bytes_ > 0) {
      PrepareKernel<T, true, kReal><<<records, kPrepareThreads, staged_bytes_, stream>>>(t_, raw, runs, spectra_.as<float2>());
    } else {
      PrepareKernel<T, false, kReal><<<records, kPrepareThreads, 0, stream>>>(t_, raw, runs, spectra_.as<float2>());
    }
  }

  absl::Status ProcessChunk(cudaStream_t stream, const uint8_t* raw, const RecordRuns& runs, const RecordPlacement& placement,
                            const SpectralTarget& target, const RepeatSums& sums) {
    const auto records = static_cast<unsigned>(runs.records());
    OCTAVO_RETURN_IF_ERROR(ForRawType(config_, [&](auto type) -> absl::Status {
      using T = decltype(type);
      if (config_.background == math::Background::kBscan) {
        const int64_t rows = runs.active * config_.record_average;
        const int64_t part = std::max(kMeanRecords, (rows + kMostMeanParts - 1) / kMostMeanParts), parts = (rows + part - 1) / part;
        RunSumKernel<T>
            <<<dim3(Columns(t_.rows.samples), static_cast<unsigned>(runs.runs), static_cast<unsigned>(parts)), kColumnThreads, 0, stream>>>(
                t_, raw, runs, part, partials_.as<double>());
        OCTAVO_CUDA(health_.get(), cudaGetLastError());
        RunMeanKernel<<<dim3(Columns(t_.rows.samples), static_cast<unsigned>(runs.runs)), kColumnThreads, 0, stream>>>(
            partials_.as<double>(), parts, t_.rows.samples, static_cast<double>(rows), background_.as<float>());
        OCTAVO_CUDA(health_.get(), cudaGetLastError());
      }
      if (sizes_.real) {
        LaunchPrepare<true>(stream, raw, runs, records, type);
      } else {
        LaunchPrepare<false>(stream, raw, runs, records, type);
      }
      OCTAVO_CUDA(health_.get(), cudaGetLastError());
      return absl::OkStatus();
    }));
    // The plans stand largest first: the last one that covers the count does least work.
    cufftHandle handle = plans_.front().second;
    for (const auto& [covers, candidate] : plans_) handle = covers >= records ? candidate : handle;
    OCTAVO_CUDA(health_.get(), cufft_->SetStream(handle, stream));
    if (sizes_.real) {
      OCTAVO_CUDA(health_.get(), cufft_->ExecR2C(handle, spectra_.as<cufftReal>(), spectra_.as<cufftComplex>()));
    } else {
      OCTAVO_CUDA(health_.get(), cufft_->ExecC2C(handle, spectra_.as<cufftComplex>(), spectra_.as<cufftComplex>(), CUFFT_INVERSE));
    }
    if (config_.fixed_pattern != math::FixedPattern::kNone) {
      const bool quiet = math::PatternSegments(config_.fixed_pattern, runs.active) > 1;
      const int64_t segments = quiet ? math::kFixedPatternSegments : std::min(kPatternParts, runs.active);
      const dim3 grid(Columns(t_.depth), static_cast<unsigned>(runs.runs), static_cast<unsigned>(segments));
      if (sizes_.real) {
        SegmentKernel<true><<<grid, kColumnThreads, 0, stream>>>(t_, spectra_.as<float2>(), runs.active, quiet, segment_sums_.as<float2>(),
                                                                 segment_variances_.as<float>());
      } else {
        SegmentKernel<false><<<grid, kColumnThreads, 0, stream>>>(t_, spectra_.as<float2>(), runs.active, quiet, segment_sums_.as<float2>(),
                                                                  segment_variances_.as<float>());
      }
      OCTAVO_CUDA(health_.get(), cudaGetLastError());
      PatternKernel<<<dim3(grid.x, grid.y), kColumnThreads, 0, stream>>>(t_.depth, runs.active, segments, quiet, segment_sums_.as<float2>(),
                                                                         segment_variances_.as<float>(), pattern_.as<float2>());
      OCTAVO_CUDA(health_.get(), cudaGetLastError());
    }
    return ForOutput([&](auto type) -> absl::Status {
      using T = decltype(type);
      if (sizes_.real) {
        FinishKernel<T, true><<<records, kFinishThreads, 0, stream>>>(t_, spectra_.as<float2>(), runs, placement, target, sums);
      } else {
        FinishKernel<T, false><<<records, kFinishThreads, 0, stream>>>(t_, spectra_.as<float2>(), runs, placement, target, sums);
      }
      OCTAVO_CUDA(health_.get(), cudaGetLastError());
      return absl::OkStatus();
    });
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
  absl::Status BuildTransforms(Device* device, cudaStream_t stream) {
    OCTAVO_RETURN_IF_ERROR(Zeroed(device, stream, sizes_.spectra_bytes(), &spectra_));
    // Transforms of fewer records than a chunk use the next smaller plan that covers them.
    for (int64_t records = sizes_.chunk;; records = (records + 3) / 4) {
      OCTAVO_RETURN_IF_ERROR(AddPlan(records));
      if (records == 1) break;
    }
    OCTAVO_RETURN_IF_ERROR(Zeroed(device, stream, static_cast<int64_t>(std::max<size_t>(work_bytes_, 1)), &work_));
    for (const auto& [records, handle] : plans_) OCTAVO_CUDA(health_.get(), cufft_->SetWorkArea(handle, work_.data()));
    return absl::OkStatus();
  }
  // Our own work area: cuFFT must not allocate behind the ledger's back.
  absl::Status AddPlan(int64_t records) {
    cufftHandle handle = 0;
    OCTAVO_CUDA(health_.get(), cufft_->Create(&handle));
    plans_.emplace_back(records, handle);
    OCTAVO_CUDA(health_.get(), cufft_->SetAutoAllocation(handle, 0));
    // cuFFT's own type. The real transform works in place: rows of real numbers as far apart as rows of complex ones.
    long long length = config_.fft_length, real_row = 2 * sizes_.pitch, complex_row = sizes_.pitch;
    size_t work = 0;
    if (sizes_.real) {
      OCTAVO_CUDA(health_.get(),
                  cufft_->MakePlanMany64(handle, 1, &length, &real_row, 1, real_row, &complex_row, 1, complex_row, CUFFT_R2C, records, &work));
    } else {
      OCTAVO_CUDA(health_.get(), cufft_->MakePlanMany64(handle, 1, &length, nullptr, 1, length, nullptr, 1, length, CUFFT_C2C, records, &work));
    }
    work_bytes_ = std::max(work_bytes_, work);
    return absl::OkStatus();
  }

  const SpectralConfig config_;
  const Sizes sizes_;
  const int64_t record_bytes_;
  const int ordinal_;
  const std::shared_ptr<DeviceHealth> health_;
  const CufftLibrary* const cufft_;
  const std::string why_not_fused_ = FusedChain::WhyNot(config_);
  std::unique_ptr<FusedChain> fused_;
  std::unique_ptr<RollingBackground> rolling_;
  Tables t_{};
  int64_t device_bytes_ = 0;
  size_t staged_bytes_ = 0, work_bytes_ = 0;
  std::vector<std::pair<int64_t, cufftHandle>> plans_;  // records → plan, largest first
  DeviceBuffer tap_, weights_, h_, background_, partials_, spectra_, work_, pattern_, segment_sums_, segment_variances_;
};

class CudaSpectralOps final : public SpectralOps {
 public:
  CudaSpectralOps(int ordinal, Device* device, std::shared_ptr<DeviceHealth> health)
      : ordinal_(ordinal), device_(device), health_(std::move(health)) {}

  absl::StatusOr<std::unique_ptr<SpectralPlan>> CreatePlan(const SpectralConfig& config) override {
    OCTAVO_ASSIGN_OR_RETURN(const CufftLibrary* cufft, LoadCufft());
    auto plan = std::make_unique<CudaSpectralPlan>(config, ordinal_, health_, cufft);
    OCTAVO_RETURN_IF_ERROR(plan->Build(device_));
    return plan;
  }

  int64_t PlanBytes(const SpectralConfig& c) override {
    const Sizes sizes(c);
    int64_t bytes = FusedChain::WhyNot(c).empty() ? FusedChain::DeviceBytes(c) : sizes.spectra_bytes() + sizes.work;
    bytes += static_cast<int64_t>(c.window.size()) * (8 + 32 + 4) + c.samples_per_record * 4 * sizes.runs + (1 << 16);
    bytes += c.samples_per_record * (4 + sizes.runs * sizes.mean_parts * 8);
    if (c.background == math::Background::kRolling) bytes += RollingBackground::DeviceBytes(c);
    if (sizes.segments > 0) bytes += sizes.runs * c.depth * (8 + sizes.segments * 12);
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

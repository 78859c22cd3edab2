#include <algorithm>
#include <complex>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/device/cuda/cuda_context.h"
#include "gpu/device/cuda/cuda_stream.h"
#include "gpu/device/cuda/cufft_library.h"
#include "gpu/math/element.h"
#include "gpu/spectral/cuda/bscan_mean.cuh"
#include "gpu/spectral/cuda/fixed_pattern.cuh"
#include "gpu/spectral/cuda/fused_spectral.h"
#include "gpu/spectral/cuda/rolling_background.h"
#include "gpu/spectral/cuda/spectral_steps.cuh"
#include "gpu/spectral/spectral_tables.h"

namespace octavo::inline gpu::cuda {
namespace {

constexpr int kColumnThreads = 128;
constexpr int64_t kMeanRecords = 32,
                  kMostMeanParts = 1024;  // raw records of a part, and the most parts
constexpr int64_t kPatternParts = 16;     // parts of a B-scan for its mean
constexpr int64_t kMostRuns = 32768;      // of a launch
constexpr int64_t kStagedBytes =
    160 << 10;  // the kernel reads larger records directly from device memory
constexpr int64_t kChunkBytes =
    int64_t{24} << 20;  // the spectra of a chunk stay in the L2 cache between the launches

int64_t Parts(int64_t rows, int64_t part, int64_t most) {
  return std::min((rows + part - 1) / part, most);
}

// The memory that a plan allocates, computed in one place for PlanBytes and Build.
struct Sizes {
  bool real, lines;
  int64_t pitch, chunk, runs;  // complex numbers per spectrum; records and runs per chunk
  int64_t mean_parts = 0;
  int64_t segments = 0;  // per run
  int64_t work = 0;      // work area that cuFFT may need

  // cuFFT transforms two real rows of odd length as one complex row. There a row that is not
  // finite, far too large or left over from an earlier call would spoil its neighbour. So rows of
  // odd length are complex, with zero imaginary parts.
  explicit Sizes(const SpectralConfig& c)
      : real(TransformsReal(c)),
        lines(c.bscan_records > 0),
        pitch(real ? c.fft_length / 2 + 1 : c.fft_length) {
    chunk = std::clamp<int64_t>(kChunkBytes / (pitch * static_cast<int64_t>(sizeof(float2))), 1,
                                c.max_records_per_block);
    runs = lines ? std::clamp<int64_t>(chunk / c.bscan_records, 1, kMostRuns) : 1;
    if (lines) chunk = runs * c.bscan_records;
    if (c.background == math::Background::kBscan)
      mean_parts = Parts(c.bscan_records * c.record_average, kMeanRecords, kMostMeanParts);
    if (c.fixed_pattern != math::FixedPattern::kNone)
      segments = std::max(kPatternParts, math::kFixedPatternSegments);
    // For lengths with small prime factors the work area is as large as the data; other lengths use
    // convolutions of at least twice the length.
    int64_t rest = c.fft_length, power = 1;
    for (const int64_t p : {2, 3, 5, 7}) {
      while (rest % p == 0) rest /= p;
    }
    while (power < 2 * c.fft_length) power *= 2;
    work =
        chunk * (rest == 1 ? c.fft_length + 1 : 2 * power) * static_cast<int64_t>(sizeof(float2)) +
        (1 << 20);
  }
  int64_t spectra_bytes() const { return chunk * pitch * static_cast<int64_t>(sizeof(float2)); }
};

class CudaSpectralPlan final : public SpectralPlan {
 public:
  CudaSpectralPlan(const SpectralConfig& config, int ordinal, std::shared_ptr<DeviceHealth> health,
                   const CufftLibrary* cufft)
      : config_(config),
        sizes_(config),
        record_bytes_(RecordBytes(config)),
        ordinal_(ordinal),
        health_(std::move(health)),
        cufft_(cufft) {}

  ~CudaSpectralPlan() override {
    const DeviceGuard guard(ordinal_);
    for (const auto& [records, handle] : plans_) (void)cufft_->Destroy(handle);
  }

  absl::Status Build(Device* device) {
    const DeviceGuard guard(ordinal_);
    const SpectralConfig& c = config_;
    OCTAVO_ASSIGN_OR_RETURN(Stream owned, device->NewStream(StreamPriority::kNormal));
    const cudaStream_t stream = AsCuda(owned.ref());
    const SpectralTables tables = MakeSpectralTables(c);
    std::vector<float2> h;
    for (const std::complex<double>& window : tables.window)
      h.push_back(
          make_float2(static_cast<float>(window.real()), static_cast<float>(window.imag())));
    OCTAVO_RETURN_IF_ERROR(Upload(device, stream, tables.tap, &tap_));
    OCTAVO_RETURN_IF_ERROR(Upload(device, stream, tables.weights, &weights_));
    OCTAVO_RETURN_IF_ERROR(Upload(device, stream, h, &h_));
    const int64_t samples = c.samples_per_record;
    if (c.background == math::Background::kStatic)
      OCTAVO_RETURN_IF_ERROR(Upload(device, stream, c.background_spectrum, &background_));
    if (c.background == math::Background::kRolling) {
      OCTAVO_RETURN_IF_ERROR(Zeroed(device, stream, RollingRows(c) * samples * 4, &background_));
      OCTAVO_ASSIGN_OR_RETURN(rolling_, RollingBackground::Create(c, device, health_));
      device_bytes_ += RollingBackground::DeviceBytes(c);
    }
    if (c.background == math::Background::kBscan) {
      OCTAVO_RETURN_IF_ERROR(Zeroed(device, stream, sizes_.runs * samples * 4, &background_));
      OCTAVO_RETURN_IF_ERROR(
          Zeroed(device, stream, sizes_.runs * sizes_.mean_parts * samples * 8, &partials_));
      if (c.raw_type == DType::kF32)
        OCTAVO_RETURN_IF_ERROR(Zeroed(device, stream, sizes_.chunk, &finite_));
    }
    if (c.fixed_pattern != math::FixedPattern::kNone) {
      OCTAVO_RETURN_IF_ERROR(Zeroed(device, stream, sizes_.runs * c.depth * 8, &pattern_));
      OCTAVO_RETURN_IF_ERROR(
          Zeroed(device, stream, sizes_.runs * sizes_.segments * c.depth * 8, &segment_sums_));
      OCTAVO_RETURN_IF_ERROR(
          Zeroed(device, stream, sizes_.runs * sizes_.segments * c.depth * 4, &segment_variances_));
    }
    if (why_not_fused_.empty()) {
      OCTAVO_ASSIGN_OR_RETURN(
          fused_, FusedChain::Create(c, device, health_, background_.as<float>(), stream));
      device_bytes_ += FusedChain::DeviceBytes(c);
    } else {
      OCTAVO_RETURN_IF_ERROR(BuildTransforms(device, stream));
    }
    const LevelScale<float> levels = MakeLevelScale<float>(c);
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
          .group_records =
              c.background == math::Background::kRolling ? c.background_group_records : 0,
          .group_rows = RollingRows(c),
          .pattern = pattern_.as<float2>(),
          .value = c.value,
          .scaled = c.has_levels,
          .scale = levels.scale,
          .offset = levels.offset,
          .bottom = LowestOf(c.output),
          .top = HighestOf(c.output),
          .slab_begin = c.slab_begin,
          .slab_end = c.slab_end,
          .repeat_ascans = c.repeats > 1 ? c.repeat_ascans : 0};
    staged_bytes_ = samples * 4 <= kStagedBytes ? static_cast<size_t>(samples * 4) : 0;
    if (staged_bytes_ > 48 << 10) {
      OCTAVO_RETURN_IF_ERROR(ForRawType(config_, [&](auto type) -> absl::Status {
        using T = decltype(type);
        const auto bytes = static_cast<int>(staged_bytes_);
        OCTAVO_CUDA(health_.get(),
                    cudaFuncSetAttribute(PrepareKernel<T, true, true>,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
        OCTAVO_CUDA(health_.get(),
                    cudaFuncSetAttribute(PrepareKernel<T, true, false>,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
        return absl::OkStatus();
      }));
    }
    return owned.ref().Synchronize();
  }

  absl::Status SumRecords(StreamRef stream, const void* raw, std::span<const SumPiece> pieces,
                          const SumRing& ring) override {
    const DeviceGuard guard(ordinal_);
    return rolling_->Sum(AsCuda(stream), raw, pieces, ring);
  }

  absl::Status MakeBackgrounds(StreamRef stream, std::span<const MeanOfSums> means,
                               const SumRing& ring) override {
    const DeviceGuard guard(ordinal_);
    OCTAVO_RETURN_IF_ERROR(rolling_->Mean(AsCuda(stream), means, ring, background_.as<float>()));
    return fused_ != nullptr ? fused_->Refresh(AsCuda(stream), means) : absl::OkStatus();
  }

  absl::Status CountNonFinite(StreamRef stream, DeviceSpan<const float> raw,
                              DeviceSpan<uint64_t> count) override {
    const DeviceGuard guard(ordinal_);
    LaunchCountNonFinite(AsCuda(stream), config_, raw.data(), raw.bytes() / RecordBytes(config_),
                         count.data());
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }

  absl::Status Process(StreamRef stream, const void* raw, const RecordRuns& runs,
                       const RecordPlacement& placement, const SpectralTarget& target,
                       const RepeatSums& sums) override {
    const DeviceGuard guard(ordinal_);
    if (fused_ != nullptr)
      return fused_->Process(AsCuda(stream), raw, runs.records(), placement,
                             target);  // always a single run, because no step needs whole B-scans
    // A chunk holds whole runs if the steps depend on runs, otherwise any records.
    const int64_t total = sizes_.lines ? runs.runs : runs.active,
                  step = sizes_.lines ? sizes_.runs : sizes_.chunk;
    for (int64_t first = 0; first < total; first += step) {
      const int64_t count = std::min(step, total - first),
                    offset = sizes_.lines ? first * runs.pitch : first;
      const RecordRuns part =
          sizes_.lines ? RecordRuns{.runs = count, .active = runs.active, .pitch = runs.pitch}
                       : RecordRuns{.runs = 1, .active = count, .pitch = count};
      RecordPlacement place = placement;
      place.first_record += offset;
      if (place.table != nullptr) place.table += offset;
      OCTAVO_RETURN_IF_ERROR(ProcessChunk(AsCuda(stream),
                                          static_cast<const uint8_t*>(raw) + offset * record_bytes_,
                                          part, place, target, sums));
    }
    return absl::OkStatus();
  }

  bool pairs() const override { return fused_ != nullptr && sizes_.real; }
  int64_t device_bytes() const override { return device_bytes_; }
  std::string description() const override {
    if (fused_ != nullptr) return "cuda: " + FusedChain::Describe(config_);
    return std::string("cuda: launches (prepare, cuFFT ") + (sizes_.real ? "R2C" : "C2C inverse") +
           " of " + std::to_string(config_.fft_length) + ", finish) over chunks of " +
           std::to_string(sizes_.chunk) +
           " records that stay in the L2 cache (not fused: " + why_not_fused_ + ")";
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
  static unsigned Columns(int64_t count) {
    return static_cast<unsigned>((count + kColumnThreads - 1) / kColumnThreads);
  }

  template <bool kReal>
  void LaunchPrepare(cudaStream_t stream, const uint8_t* raw, const RecordRuns& runs,
                     int64_t first_record, auto type) {
    using T = decltype(type);
    const auto records = static_cast<unsigned>(runs.records());
    if (staged_bytes_ > 0) {
      PrepareKernel<T, true, kReal><<<records, kPrepareThreads, staged_bytes_, stream>>>(
          t_, raw, runs, first_record, spectra_.as<float2>());
    } else {
      PrepareKernel<T, false, kReal><<<records, kPrepareThreads, 0, stream>>>(
          t_, raw, runs, first_record, spectra_.as<float2>());
    }
  }

  absl::Status ProcessChunk(cudaStream_t stream, const uint8_t* raw, const RecordRuns& runs,
                            const RecordPlacement& placement, const SpectralTarget& target,
                            const RepeatSums& sums) {
    const auto records = static_cast<unsigned>(runs.records());
    OCTAVO_RETURN_IF_ERROR(ForRawType(config_, [&](auto type) -> absl::Status {
      using T = decltype(type);
      if (config_.background == math::Background::kBscan) {
        const int64_t rows = runs.active * config_.record_average;
        const int64_t part = std::max(kMeanRecords, (rows + kMostMeanParts - 1) / kMostMeanParts),
                      parts = (rows + part - 1) / part;
        if (finite_.bytes() > 0) {
          LaunchFinite(stream, config_, raw, runs, finite_.as<uint8_t>());
          OCTAVO_CUDA(health_.get(), cudaGetLastError());
        }
        RunSumKernel<T><<<dim3(Columns(t_.rows.samples), static_cast<unsigned>(runs.runs),
                               static_cast<unsigned>(parts)),
                          kColumnThreads, 0, stream>>>(t_, raw, runs, part, finite_.as<uint8_t>(),
                                                       partials_.as<double>());
        OCTAVO_CUDA(health_.get(), cudaGetLastError());
        RunMeanKernel<<<dim3(Columns(t_.rows.samples), static_cast<unsigned>(runs.runs)),
                        kColumnThreads, 0, stream>>>(t_, partials_.as<double>(), parts, runs.active,
                                                     finite_.as<uint8_t>(),
                                                     background_.as<float>());
        OCTAVO_CUDA(health_.get(), cudaGetLastError());
      }
      if (sizes_.real) {
        LaunchPrepare<true>(stream, raw, runs, placement.first_record, type);
      } else {
        LaunchPrepare<false>(stream, raw, runs, placement.first_record, type);
      }
      OCTAVO_CUDA(health_.get(), cudaGetLastError());
      return absl::OkStatus();
    }));
    // The plans are in descending order of size, and the last one that covers the count does the
    // least work.
    cufftHandle handle = plans_.front().second;
    for (const auto& [covers, candidate] : plans_) handle = covers >= records ? candidate : handle;
    OCTAVO_CUDA(health_.get(), cufft_->SetStream(handle, stream));
    if (sizes_.real) {
      OCTAVO_CUDA(health_.get(),
                  cufft_->ExecR2C(handle, spectra_.as<cufftReal>(), spectra_.as<cufftComplex>()));
    } else {
      OCTAVO_CUDA(health_.get(), cufft_->ExecC2C(handle, spectra_.as<cufftComplex>(),
                                                 spectra_.as<cufftComplex>(), CUFFT_INVERSE));
    }
    if (config_.fixed_pattern != math::FixedPattern::kNone) {
      const bool quiet = math::PatternSegments(config_.fixed_pattern, runs.active) > 1;
      const int64_t segments =
          quiet ? math::kFixedPatternSegments : std::min(kPatternParts, runs.active);
      const dim3 grid(Columns(t_.depth), static_cast<unsigned>(runs.runs),
                      static_cast<unsigned>(segments));
      if (sizes_.real) {
        SegmentKernel<true><<<grid, kColumnThreads, 0, stream>>>(
            t_, spectra_.as<float2>(), runs.active, quiet, segment_sums_.as<float2>(),
            segment_variances_.as<float>());
      } else {
        SegmentKernel<false><<<grid, kColumnThreads, 0, stream>>>(
            t_, spectra_.as<float2>(), runs.active, quiet, segment_sums_.as<float2>(),
            segment_variances_.as<float>());
      }
      OCTAVO_CUDA(health_.get(), cudaGetLastError());
      PatternKernel<<<dim3(grid.x, grid.y), kColumnThreads, 0, stream>>>(
          t_.depth, runs.active, segments, quiet, segment_sums_.as<float2>(),
          segment_variances_.as<float>(), pattern_.as<float2>());
      OCTAVO_CUDA(health_.get(), cudaGetLastError());
    }
    return ForOutput([&](auto type) -> absl::Status {
      using T = decltype(type);
      if (sizes_.real) {
        FinishKernel<T, true><<<records, kFinishThreads, 0, stream>>>(
            t_, spectra_.as<float2>(), runs, placement, target, sums);
      } else {
        FinishKernel<T, false><<<records, kFinishThreads, 0, stream>>>(
            t_, spectra_.as<float2>(), runs, placement, target, sums);
      }
      OCTAVO_CUDA(health_.get(), cudaGetLastError());
      return absl::OkStatus();
    });
  }

  template <class T>
  absl::Status Upload(Device* device, cudaStream_t stream, const std::vector<T>& values,
                      DeviceBuffer* out) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    if (bytes == 0) return absl::OkStatus();
    OCTAVO_ASSIGN_OR_RETURN(*out, device->Allocate(bytes));
    device_bytes_ += bytes;
    OCTAVO_CUDA(health_.get(),
                cudaMemcpyAsync(out->data(), values.data(), static_cast<size_t>(bytes),
                                cudaMemcpyHostToDevice, stream));
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
    // A transform of fewer records than a chunk uses the smallest plan that covers them.
    for (int64_t records = sizes_.chunk;; records = (records + 3) / 4) {
      OCTAVO_RETURN_IF_ERROR(AddPlan(records));
      if (records == 1) break;
    }
    OCTAVO_RETURN_IF_ERROR(
        Zeroed(device, stream, static_cast<int64_t>(std::max<size_t>(work_bytes_, 1)), &work_));
    for (const auto& [records, handle] : plans_)
      OCTAVO_CUDA(health_.get(), cufft_->SetWorkArea(handle, work_.data()));
    return absl::OkStatus();
  }
  // The plan provides the work area, because cuFFT must not allocate memory that the ledger does
  // not know.
  absl::Status AddPlan(int64_t records) {
    cufftHandle handle = 0;
    OCTAVO_CUDA(health_.get(), cufft_->Create(&handle));
    plans_.emplace_back(records, handle);
    OCTAVO_CUDA(health_.get(), cufft_->SetAutoAllocation(handle, 0));
    // cuFFT's own type. The real transform works in place, so rows of real numbers have the same
    // pitch as rows of complex numbers.
    long long length = config_.fft_length, real_row = 2 * sizes_.pitch, complex_row = sizes_.pitch;
    size_t work = 0;
    if (sizes_.real) {
      OCTAVO_CUDA(health_.get(),
                  cufft_->MakePlanMany64(handle, 1, &length, &real_row, 1, real_row, &complex_row,
                                         1, complex_row, CUFFT_R2C, records, &work));
    } else {
      OCTAVO_CUDA(health_.get(),
                  cufft_->MakePlanMany64(handle, 1, &length, nullptr, 1, length, nullptr, 1, length,
                                         CUFFT_C2C, records, &work));
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
  DeviceBuffer tap_, weights_, h_, background_, partials_, finite_, spectra_, work_, pattern_,
      segment_sums_, segment_variances_;
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
    int64_t bytes = FusedChain::WhyNot(c).empty() ? FusedChain::DeviceBytes(c)
                                                  : sizes.spectra_bytes() + sizes.work;
    bytes += static_cast<int64_t>(c.window.size()) * (8 + 32 + 4) +
             c.samples_per_record * 4 * sizes.runs + (1 << 16);
    bytes += c.samples_per_record * (4 + sizes.runs * sizes.mean_parts * 8);
    if (c.background == math::Background::kRolling)
      bytes += RollingBackground::DeviceBytes(c) + RollingRows(c) * c.samples_per_record * 4;
    if (c.background == math::Background::kBscan && c.raw_type == DType::kF32) bytes += sizes.chunk;
    if (sizes.segments > 0) bytes += sizes.runs * c.depth * (8 + sizes.segments * 12);
    return bytes;
  }

 private:
  const int ordinal_;
  Device* const device_;
  const std::shared_ptr<DeviceHealth> health_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SpectralOps>> MakeSpectralOps(Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(CudaContext context, FindCudaContext(device, SpectralOps::kFamily));
  return std::make_unique<CudaSpectralOps>(context.ordinal, &device, std::move(context.health));
}

}  // namespace octavo::inline gpu::cuda

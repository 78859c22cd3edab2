#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/spectral/cuda/fused_spectral.h"
#include "gpu/spectral/cuda/fused_tables.h"
#include "gpu/spectral/spectral_tables.h"

namespace octavo::inline gpu::cuda {
namespace {

/// The fused kernel for a length, or null.
const FusedLength* LengthOf(int64_t length) {
  for (const FusedLength* fused :
       {&kFused512, &kFused1024, &kFused1536, &kFused2048, &kFused3072, &kFused4096}) {
    if (fused->length() == length) return fused;
  }
  return nullptr;
}

/// Entry of point n in a table of pairs. Points n and n + F/2 are neighbours; there are F/2 pairs,
/// in steps of G.
__host__ __device__ inline int64_t EntryOf(int64_t n, int64_t length) {
  return n < length / 2 ? 2 * n : 2 * (n - length / 2) + 1;
}

constexpr int kNoGroups = 1 << 25;  // more than the records of a launch

/// Rows of backgrounds.
struct Rows {
  int32_t at[kMostRollingStepGroups];
};

// The negative background after the interpolation: one thread per position, for each of some rows.
__global__ void FoldBackgroundKernel(const __grid_constant__ Rows rows, const float* background,
                                     int samples, int positions, int length, bool cubic,
                                     float2* position) {
  const int j = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (j >= positions) return;
  const int64_t row = rows.at[blockIdx.y];
  background += row * samples;
  position += row * length;
  float2* const entry = position + EntryOf(j, length);
  const uint32_t bits = __float_as_uint(entry->x);
  const float t = math::PositionFraction(bits);
  const int i = static_cast<int>(math::PositionSample(bits));
  const auto at = [&](int k) { return background[min(max(k, 0), samples - 1)]; };
  float w[4] = {0, 1 - t, t, 0};
  if (cubic) math::CubicWeights(t, w);
  entry->y = -(w[0] * at(i - 1) + w[1] * at(i) + w[2] * at(i + 1) + w[3] * at(i + 2));
}

RawKind RawOf(const SpectralConfig& c) {
  if (c.packing == math::Packing::kLowFirst12) return RawKind::kLowFirst12;
  if (c.packing == math::Packing::kHighFirst12) return RawKind::kHighFirst12;
  return c.raw_type == DType::kU8    ? RawKind::kU8
         : c.raw_type == DType::kI16 ? RawKind::kI16
                                     : RawKind::kU16;
}

class FusedChainImpl final : public FusedChain {
 public:
  FusedChainImpl(const SpectralConfig& config, std::shared_ptr<DeviceHealth> health,
                 const float* background)
      : config_(config),
        length_(*LengthOf(config.fft_length)),
        health_(std::move(health)),
        background_(background) {}

  absl::Status Build(Device* device, cudaStream_t stream) {
    const SpectralConfig& c = config_;
    const auto length = static_cast<size_t>(c.fft_length),
               group = static_cast<size_t>(length_.group());
    const bool real = TransformsReal(c);
    const SpectralTables tables = MakeSpectralTables(c);
    const std::vector<uint32_t> positions = MakePositions(c);
    std::vector<float2> position(length, make_float2(0, 0)), h, twiddle;
    std::vector<float> parts((real ? 1 : 2) * length, 0.0f);  // of h
    for (size_t j = 0; j < positions.size(); ++j) {
      const auto entry = static_cast<size_t>(EntryOf(static_cast<int64_t>(j), c.fft_length));
      std::memcpy(&position[entry].x, &positions[j], sizeof positions[j]);
      const std::complex<double>& window = tables.window[j];
      if (real) {  // the sum of a bin and its conjugate is twice the spectrum
        parts[entry] = static_cast<float>(window.real() / 2);
      } else {
        parts[2 * entry] = static_cast<float>(window.real());
        parts[2 * entry + 1] = static_cast<float>(window.imag());
      }
    }
    for (size_t i = 0; i + 1 < parts.size(); i += 2)
      h.push_back(make_float2(parts[i], parts[i + 1]));
    const auto root = [&](double turns) {
      twiddle.push_back(make_float2(static_cast<float>(std::cos(2 * M_PI * turns)),
                                    static_cast<float>(std::sin(2 * M_PI * turns))));
    };
    // Twiddles of TransformFrom: for stage s those of the frequencies lane + G q with the first q.
    // The following ones are i times the same.
    const auto radix = static_cast<size_t>(length_.radix);
    for (size_t stage = 0; size_t{1} << stage < radix; ++stage) {
      for (size_t q = 0; q < std::max<size_t>(1, (size_t{1} << stage) / 2); ++q) {
        for (size_t lane = 0; lane < group; ++lane)
          root(static_cast<double>(lane + group * q) / static_cast<double>(group << (stage + 1)));
      }
    }
    for (size_t j = 1; j < static_cast<size_t>(length_.spread); ++j) {
      for (size_t lane = 0; lane < group; ++lane)
        root(static_cast<double>(j * lane % group) / static_cast<double>(group));
    }
    OCTAVO_ASSIGN_OR_RETURN(memory_, device->Allocate(DeviceBytes(c)));
    float2* at = memory_.as<float2>();
    const float2* begin[3] = {at};
    rows_ = RowsOf(c);
    for (int64_t row = 0; row + 1 < rows_; ++row) {
      OCTAVO_CUDA(health_.get(),
                  cudaMemcpyAsync(at, position.data(), position.size() * sizeof(float2),
                                  cudaMemcpyHostToDevice, stream));
      at += position.size();
    }
    for (int i = 0; const auto* table : {&position, &h, &twiddle}) {
      OCTAVO_CUDA(health_.get(), cudaMemcpyAsync(at, table->data(), table->size() * sizeof(float2),
                                                 cudaMemcpyHostToDevice, stream));
      if (i > 0) begin[i] = at;
      ++i;
      at += table->size();
    }
    OCTAVO_CUDA(health_.get(), cudaStreamSynchronize(stream));
    const double measure = c.value == math::Value::kDb ? 10 * std::log10(2.0) : 1.0;
    auto [scale, offset] = MakeLevelScale<double>(c);
    const double top = c.output == DType::kU8 ? 256 : c.output == DType::kU16 ? 65536 : 0;
    if (top > 0) scale /= top, offset = (offset + 0.5) / top;
    const bool whole = c.first_bin == 0 && c.depth == c.fft_length / 2 && c.slab_begin == 0 &&
                       c.slab_end == c.depth;
    // If the floor is stored as 0 or is clipped, a power below it gives the same voxel, so the
    // kernel need not distinguish the two.
    const bool floor =
        top > 0 &&
        (10 * std::log10(static_cast<double>(math::kPowerFloor)) * scale + offset) * top < 0.99;
    const bool cubic = c.interpolation == math::Interpolation::kCubic;
    const int64_t record_bytes = RecordBytes(c);
    t_ = {.raw = RawOf(c),
          .out = c.output == DType::kU8    ? OutKind::kU8
                 : c.output == DType::kU16 ? OutKind::kU16
                                           : OutKind::kF32,
          .real = real,
          .cubic = cubic,
          .pairs =
              c.samples_per_record % 2 == 0 && (c.raw_type == DType::kU8 || record_bytes % 4 == 0),
          .usual = cubic && whole && floor && c.value == math::Value::kDb &&
                   c.samples_per_record == c.fft_length,
          .value = c.value,
          .samples = static_cast<int>(c.samples_per_record),
          .record_bytes = record_bytes,
          .position = reinterpret_cast<const float4*>(begin[0]),
          .h = begin[1],
          .twiddle = begin[2],
          .first_bin = static_cast<int>(c.first_bin),
          .depth = static_cast<int>(c.depth),
          .value_scale = static_cast<float>(measure * scale),
          .value_offset = static_cast<float>(offset),
          .slab_begin = static_cast<int>(c.slab_begin),
          .slab_end = static_cast<int>(c.slab_end),
          .group_records = c.background == math::Background::kRolling
                               ? static_cast<int>(c.background_group_records)
                               : kNoGroups,
          .rows = static_cast<int>(rows_)};
    int device_index = 0;
    OCTAVO_CUDA(health_.get(), cudaGetDevice(&device_index));
    OCTAVO_CUDA(health_.get(),
                cudaDeviceGetAttribute(&sms_, cudaDevAttrMultiProcessorCount, device_index));
    if (background_ == nullptr) return absl::OkStatus();
    std::vector<MeanOfSums> all(static_cast<size_t>(std::min(rows_, kMostRollingStepGroups)));
    for (int64_t first = 0; first < rows_; first += std::ssize(all)) {
      for (int64_t i = 0; i < std::ssize(all); ++i)
        all[static_cast<size_t>(i)].row = static_cast<int32_t>(std::min(first + i, rows_ - 1));
      OCTAVO_RETURN_IF_ERROR(Refresh(stream, all));
    }
    return absl::OkStatus();
  }

  absl::Status Refresh(cudaStream_t stream, std::span<const MeanOfSums> rows) override {
    const auto n = static_cast<int>(config_.window.size());
    Rows of{};
    for (size_t i = 0; i < rows.size(); ++i) of.at[i] = rows[i].row;
    FoldBackgroundKernel<<<dim3(static_cast<unsigned>((n + 127) / 128),
                                static_cast<unsigned>(rows.size())),
                           128, 0, stream>>>(of, background_, t_.samples, n,
                                             static_cast<int>(config_.fft_length), t_.cubic,
                                             memory_.as<float2>());
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }

  absl::Status Process(cudaStream_t stream, const void* raw, int64_t records,
                       const RecordPlacement& placement, const SpectralTarget& target) override {
    // Two A-scans that share a transform are one at an even position (within its group, if the
    // chain has groups) and the next one, wherever a call begins.
    const int64_t place = t_.group_records == kNoGroups ? placement.first_record
                                                        : placement.first_record % t_.group_records;
    const int64_t alone = t_.real && place % 2 != 0 ? 1 : 0;
    if (alone > 0) Launch(stream, raw, alone, placement, target);
    if (records > alone) {
      RecordPlacement rest = placement;
      rest.first_record += alone;
      if (rest.table != nullptr) rest.table += alone;
      Launch(stream, static_cast<const uint8_t*>(raw) + alone * t_.record_bytes, records - alone,
             rest, target);
    }
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }

  static int64_t RowsOf(const SpectralConfig& c) { return std::max<int64_t>(1, RollingRows(c)); }

 private:
  const SpectralConfig config_;
  const FusedLength& length_;
  const std::shared_ptr<DeviceHealth> health_;
  const float* const background_;
  void Launch(cudaStream_t stream, const void* raw, int64_t records,
              const RecordPlacement& placement, const SpectralTarget& target) const {
    FusedTables tables = t_;
    tables.pairs = t_.pairs && reinterpret_cast<uintptr_t>(raw) % 4 == 0;
    length_.launch(stream, sms_, tables, raw, UnitsOf(records, placement.first_record), placement,
                   target);
  }
  FusedUnits UnitsOf(int64_t records, int64_t first_record) const {
    const bool grouped = t_.group_records != kNoGroups;
    const int64_t group = t_.group_records,
                  head = grouped ? std::min(records, group - first_record % group) : records,
                  rest = records - head, each = (group + 1) / 2, whole = rest / group;
    return {
        .records = static_cast<int>(records),
        .head = static_cast<int>(head),
        .head_units = static_cast<int>((head + 1) / 2),
        .group_units = static_cast<int>(each),
        .units = static_cast<int>((head + 1) / 2 + whole * each + (rest - whole * group + 1) / 2),
        .first_group = grouped ? static_cast<int>(first_record / group % rows_) : 0};
  }

  DeviceBuffer memory_;
  FusedTables t_{};
  int64_t rows_ = 1;
  int sms_ = 0;
};

}  // namespace

std::string FusedChain::WhyNot(const SpectralConfig& c) {
  if (LengthOf(c.fft_length) == nullptr)
    return "transforms of 512, 1024, 1536, 2048, 3072 and 4096 are fused";
  if (c.samples_per_record > c.fft_length) return "no more samples than the transform's are fused";
  if (c.first_bin + c.depth > c.fft_length / 2) return "the lower half of the bins is fused";
  if (c.raw_type != DType::kU8 && c.raw_type != DType::kU16 && c.raw_type != DType::kI16)
    return "u8, u16, i16 and 12-bit input is fused";
  if (c.channels != 1 || c.record_average != 1) return "plain records of one channel are fused";
  if (c.background == math::Background::kBscan || c.fixed_pattern != math::FixedPattern::kNone)
    return "what needs whole B-scans is not fused";
  if (c.interpolation == math::Interpolation::kLanczos)
    return "linear and cubic interpolation is fused";
  if (c.repeats != 1) return "repeats are not fused";
  if (c.value != math::Value::kDb && c.value != math::Value::kMagnitude &&
      c.value != math::Value::kPower)
    return "dB, magnitude and power are fused";
  if (c.output != DType::kU8 && c.output != DType::kU16 && c.output != DType::kF32)
    return "u8, u16 and f32 output is fused";
  return "";
}

std::string FusedChain::Describe(const SpectralConfig& c) {
  const FusedLength& length = *LengthOf(c.fft_length);
  std::string factors = std::to_string(length.radix) + " x " + std::to_string(length.radix);
  if (length.spread > 1) factors += " x " + std::to_string(length.spread);
  return "one launch, fused from raw samples to placed output and projections, transform of " +
         std::to_string(c.fft_length) + " = " + factors + " in registers" +
         (c.phase_rad.empty() ? ", two A-scans as one complex transform (no dispersion)" : "");
}

int64_t FusedChain::DeviceBytes(const SpectralConfig& c) {
  return (2 + FusedChainImpl::RowsOf(c)) * c.fft_length * static_cast<int64_t>(sizeof(float2));
}

absl::StatusOr<std::unique_ptr<FusedChain>> FusedChain::Create(const SpectralConfig& config,
                                                               Device* device,
                                                               std::shared_ptr<DeviceHealth> health,
                                                               const float* background,
                                                               cudaStream_t stream) {
  auto chain = std::make_unique<FusedChainImpl>(config, std::move(health), background);
  OCTAVO_RETURN_IF_ERROR(chain->Build(device, stream));
  return chain;
}

}  // namespace octavo::inline gpu::cuda

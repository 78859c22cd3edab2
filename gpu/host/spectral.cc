#include "gpu/spectral.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/host/host_device.h"
#include "gpu/host/host_stream.h"
#include "gpu/host/spectral_kernels.h"
#include "tbb/blocked_range.h"
#include "tbb/enumerable_thread_specific.h"
#include "tbb/parallel_for.h"

namespace octavo::host {
namespace {

struct Freer {
  void operator()(float* p) const { std::free(p); }
};
using Scratch = std::unique_ptr<float, Freer>;

constexpr int64_t kRollColumns = 256, kRollRecords = 64;

// sum[c] += sign · Σ rows in[row][c]. Integers are summed as integers first: 64 of 16 bits fit 32, and that vectorises.
template <typename T>
void AddRecords(const T* __restrict in, int64_t rows, int64_t columns, int64_t stride, double sign, double* __restrict sum) {
  using Partial = std::conditional_t<std::is_same_v<T, float>, double, int32_t>;
  Partial partial[kRollColumns] = {};
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) partial[c] += static_cast<Partial>(in[r * stride + c]);
  }
  for (int64_t c = 0; c < columns; ++c) sum[c] += sign * static_cast<double>(partial[c]);
}

class HostSpectralPlan final : public SpectralPlan {
 public:
  explicit HostSpectralPlan(const SpectralConfig& config)
      : config_(config), lanes_(TileLanes()), scratch_([this] {
          const size_t bytes = (static_cast<size_t>(TileScratchFloats(tables_)) * sizeof(float) + 4095) / 4096 * 4096;
          return Scratch(static_cast<float*>(std::aligned_alloc(4096, bytes)));
        }) {
    const auto samples = static_cast<size_t>(config.samples_per_record);
    tables_.samples = config.samples_per_record;
    tables_.raw_type = config.raw_type;
    tables_.interpolation = config.interpolation;
    tables_.n = static_cast<int64_t>(config.window.size());
    for (const float r : config.k_index) {
      const float left = std::floor(r);
      const float t = r - left;
      tables_.tap.push_back(static_cast<int32_t>(left));
      if (config.interpolation == math::Interpolation::kLinear) {
        tables_.weights.insert(tables_.weights.end(), {1.0f - t, t});
      } else {
        float w[4];
        math::CubicWeights(t, w);
        tables_.weights.insert(tables_.weights.end(), w, w + 4);
      }
    }
    const double scale = 1.0 / static_cast<double>(config.fft_length);
    for (size_t j = 0; j < config.window.size(); ++j) {
      const double phase = config.phase_rad.empty() ? 0.0 : static_cast<double>(config.phase_rad[j]);
      tables_.h_re.push_back(static_cast<float>(config.window[j] * std::cos(phase) * scale));
      if (!config.phase_rad.empty()) tables_.h_im.push_back(static_cast<float>(config.window[j] * std::sin(phase) * scale));
    }
    tables_.fft = MakeFftPlan(config.fft_length);
    tables_.first_bin = config.first_bin;
    tables_.depth = config.depth;
    tables_.value = config.value;
    tables_.output = config.output;
    tables_.top = config.output == DType::kU8 ? 255.0f : config.output == DType::kU16 ? 65535.0f : 0.0f;
    tables_.scaled = config.has_levels;
    if (config.has_levels) {
      tables_.scale = (tables_.top > 0 ? tables_.top : 1.0f) / (config.level_hi - config.level_lo);
      tables_.offset = -config.level_lo * tables_.scale;
    }
    tables_.slab_begin = config.slab_begin;
    tables_.slab_end = config.slab_end;
    if (config.background == math::Background::kStatic) background_ = config.background_spectrum;
    if (config.background == math::Background::kRolling) {
      background_.assign(samples, 0.0f);
      sums_.assign(samples, 0.0);
      history_.resize(static_cast<size_t>(config.background_window_records) * samples * static_cast<size_t>(SizeOf(config.raw_type)));
    }
    if (!background_.empty()) tables_.background = background_.data();
  }

  absl::Status UpdateBackground(StreamRef stream, const void* raw, int64_t records) override {
    Of(stream).Enqueue(Task([this, raw, records] {
      switch (config_.raw_type) {
        case DType::kU8: Roll(static_cast<const uint8_t*>(raw), records); break;
        case DType::kI16: Roll(static_cast<const int16_t*>(raw), records); break;
        case DType::kF32: Roll(static_cast<const float*>(raw), records); break;
        default: Roll(static_cast<const uint16_t*>(raw), records); break;
      }
      return absl::OkStatus();
    }));
    return absl::OkStatus();
  }

  absl::Status Process(StreamRef stream, const void* raw, int64_t records, const RecordPlacement& placement,
                       const SpectralTarget& target) override {
    Of(stream).Enqueue(Task([this, raw, records, placement, target] {
      const int64_t tiles = (records + lanes_ - 1) / lanes_;
      const auto* bytes = static_cast<const char*>(raw);
      const int64_t record_bytes = config_.samples_per_record * SizeOf(config_.raw_type);
      tbb::parallel_for(tbb::blocked_range<int64_t>(0, tiles, 4), [&](const tbb::blocked_range<int64_t>& range) {
        float* scratch = scratch_.local().get();
        for (int64_t tile = range.begin(); tile != range.end(); ++tile) {
          const int64_t first = tile * lanes_, count = std::min(lanes_, records - first);
          LaneTarget targets[64];
          for (int64_t lane = 0; lane < count; ++lane) targets[lane] = TargetOf(placement, target, first + lane);
          ProcessTile(tables_, bytes + first * record_bytes, count, targets, scratch);
        }
      });
      return absl::OkStatus();
    }));
    return absl::OkStatus();
  }

  int64_t device_bytes() const override { return static_cast<int64_t>(history_.size()); }
  std::string description() const override {
    return absl::StrCat("host, ", SimdTargetName(), ": tiles of ", lanes_, " records, one A-scan per lane, transform of ",
                        tables_.fft.n, " in ", tables_.fft.passes.size(), " passes");
  }

 private:
  LaneTarget TargetOf(const RecordPlacement& placement, const SpectralTarget& target, int64_t record) const {
    const int64_t ascan = placement.table != nullptr ? placement.table[record]
                                                     : math::RasterAscan(placement.raster, placement.first_record + record);
    const int64_t size = SizeOf(config_.output);
    // Pointers of lane 0 also say whether projections are wanted, so they are set for dropped records too.
    const bool placed = ascan >= 0 && ascan < target.volume_ascans;
    const int64_t at = placed ? ascan : 0;
    return {.volume = placed ? static_cast<char*>(target.volume) + at * config_.depth * size : nullptr,
            .mip = target.mip == nullptr ? nullptr : static_cast<char*>(target.mip) + at * size,
            .aip = target.aip == nullptr ? nullptr : target.aip + at};
  }

  // Mean of the last M records: their sum in double precision (exact for integers), those that leave subtracted.
  template <typename T>
  void Roll(const T* raw, int64_t records) {
    const int64_t samples = config_.samples_per_record, window = config_.background_window_records;
    auto* history = reinterpret_cast<T*>(history_.data());
    const int64_t fresh = std::min(records, window);  // older ones of the block fall out again at once
    const T* newest = raw + (records - fresh) * samples;
    const int64_t leaving = std::max<int64_t>(0, seen_ + fresh - window);
    const double count = static_cast<double>(std::min(seen_ + fresh, window));
    tbb::parallel_for(int64_t{0}, (samples + kRollColumns - 1) / kRollColumns, [&](int64_t part) {
      const int64_t first = part * kRollColumns, columns = std::min(kRollColumns, samples - first);
      double* sum = sums_.data() + first;
      if (fresh == window) std::fill(sum, sum + columns, 0.0);  // every old record leaves: nothing to subtract
      for (int64_t r = 0; r < fresh; r += kRollRecords) {
        const int64_t rows = std::min(kRollRecords, fresh - r);
        AddRecords(newest + r * samples + first, rows, columns, samples, +1.0, sum);
      }
      for (int64_t r = 0; r < fresh; ++r) {
        T* slot = history + (next_ + r) % window * samples + first;
        if (fresh < window && r >= fresh - leaving) AddRecords(slot, 1, columns, samples, -1.0, sum);
        std::memcpy(slot, newest + r * samples + first, static_cast<size_t>(columns) * sizeof(T));
      }
      for (int64_t c = 0; c < columns; ++c) background_[static_cast<size_t>(first + c)] = static_cast<float>(sum[c] / count);
    });
    next_ = (next_ + fresh) % window;
    seen_ = std::min(seen_ + fresh, window);
  }

  const SpectralConfig config_;
  const int64_t lanes_;
  TileTables tables_;
  std::vector<float> background_;
  // Rolling background; used by the stream's thread only.
  std::vector<double> sums_;
  std::vector<char> history_;
  int64_t next_ = 0, seen_ = 0;
  tbb::enumerable_thread_specific<Scratch> scratch_;
};

class HostSpectralOps final : public SpectralOps {
 public:
  absl::StatusOr<std::unique_ptr<SpectralPlan>> CreatePlan(const SpectralConfig& config) override {
    return std::make_unique<HostSpectralPlan>(config);
  }
  int64_t PlanBytes(const SpectralConfig& config) override {
    return config.background == math::Background::kRolling
               ? config.background_window_records * config.samples_per_record * SizeOf(config.raw_type)
               : 0;
  }
};

}  // namespace

std::unique_ptr<SpectralOps> MakeHostSpectralOps() { return std::make_unique<HostSpectralOps>(); }

}  // namespace octavo::host

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/cuda/fused_spectral.h"
#include "gpu/cuda/register_fft.cuh"

namespace octavo::cuda {
namespace {

// What bounds the kernel is the traffic of its tables and exchanges through the L1 and shared-memory pipe (128 bytes a clock and
// SM) and the issue slots, about equally; device memory is far from it. Hence: two A-scans at once share what is loaded of the
// tables up to the window; interpolation weights and most twiddles are computed instead of loaded; 168 registers hold a
// transform and the other A-scan's samples without spills; nothing but the raw samples and the results leaves the SM.
constexpr int kThreads = 128, kBlocksPerSm = 3;
constexpr float kMagic = 8388608.0f;  // 2^23: adding it rounding down leaves the integer part in the low bits

struct FusedTables {
  bool cubic;  // else linear, of which no interpolation is a case (r whole)
  bool whole;  // the lower half of the bins is kept, all of it in the slab
  math::Value value;
  int samples;             // S, even, at most F
  const float2* position;  // [F]: r, and less the background at r
  const float2* h;         // [F]: window × dispersion × 1/F, 0 past N
  const float2* twiddle;   // [32][F/32]: exp(2πi k n / F)
  int first_bin, depth;
  float value_scale, value_offset;  // from the value's measure (log2 of power, power, magnitude) to what is stored
  int slab_begin, slab_end;
};

// One step of the interpolation for both A-scans: taps p[-1 ... 2] around the position.
template <bool kCubic>
__device__ __forceinline__ float2 Interpolate(const float2* p, float t, float less) {
  if constexpr (kCubic) {
    // math::CubicWeights in ten operations: the executed code must fit the instruction cache (about 32 KiB).
    const float h1 = 0.5f * t, h2 = t * h1, h3 = h2 * t;  // halves of t, t^2, t^3
    const float w[4] = {fmaf(2.0f, h2, -h1) - h3, fmaf(3.0f, h3, fmaf(-5.0f, h2, 1.0f)), fmaf(-3.0f, h3, fmaf(4.0f, h2, h1)), h3 - h2};
    return make_float2(fmaf(w[0], p[-1].x, fmaf(w[1], p[0].x, fmaf(w[2], p[1].x, fmaf(w[3], p[2].x, less)))),
                       fmaf(w[0], p[-1].y, fmaf(w[1], p[0].y, fmaf(w[2], p[1].y, fmaf(w[3], p[2].y, less)))));
  } else {
    return make_float2(fmaf(1.0f - t, p[0].x, fmaf(t, p[1].x, less)), fmaf(1.0f - t, p[0].y, fmaf(t, p[1].y, less)));
  }
}

/// What levels are linear in: log2 of the power for dB, the power, the magnitude.
template <math::Value kValue, bool kFloor>
__device__ __forceinline__ float MeasureOf(float power) {
  if constexpr (kValue == math::Value::kDb) {
    return __log2f(kFloor ? fmaxf(power, math::kPowerFloor) : power);
  } else if constexpr (kValue == math::Value::kPower) {
    return power;
  } else {
    float root;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(power));
    return root;
  }
}

// Steps 6 and 7 of a thread's 16 bins k1 + 32 (k + 16 odd): stores them and joins them to the slab's maximum and sum. kWhole: all
// of the lower half of the bins is kept and lies in the slab.
template <typename Out, math::Value kValue, bool kWhole>
__device__ __forceinline__ void Finish(const FusedTables& t, const float2 (&x)[32], int first, Out* out, float* most, float* sum) {
  constexpr float kTop = std::is_same_v<Out, uint8_t> ? 256.0f : 65536.0f;
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    const float2 c = x[Place32(k)];
    const float v = MeasureOf<kValue, std::is_same_v<Out, float>>(fmaf(c.x, c.x, c.y * c.y));
    const int z = first + 32 * k;
    const bool kept = kWhole || static_cast<unsigned>(z) < static_cast<unsigned>(t.depth);
    float number;
    if constexpr (std::is_same_v<Out, float>) {
      number = fmaf(v, t.value_scale, t.value_offset);
      if (kept) out[z] = number;
    } else {
      // 0 ... 1 stands for -0.5 ... top + 0.5; saturation takes NaN to 0, and rounding down after that rounds half up.
      number = __fmaf_rd(__saturatef(fmaf(v, t.value_scale, t.value_offset)), kTop * 0.99999994f, kMagic);
      if (kept) out[z] = static_cast<Out>(__float_as_uint(number));
    }
    if (kWhole || (z >= t.slab_begin && z < t.slab_end)) {
      *most = fmaxf(*most, number);
      *sum += std::is_same_v<Out, float> ? number : number - kMagic;
    }
  }
}
template <typename Out, bool kWhole>
__device__ __forceinline__ void FinishAny(const FusedTables& t, const float2 (&x)[32], int first, Out* out, float* most, float* sum) {
  switch (t.value) {
    case math::Value::kMagnitude: Finish<Out, math::Value::kMagnitude, kWhole>(t, x, first, out, most, sum); break;
    case math::Value::kPower: Finish<Out, math::Value::kPower, kWhole>(t, x, first, out, most, sum); break;
    default: Finish<Out, math::Value::kDb, kWhole>(t, x, first, out, most, sum); break;
  }
}

template <int kGroup>
__device__ __forceinline__ void SyncGroup(int group) {
  if constexpr (kGroup == 32) {
    __syncwarp();
  } else {
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "r"(kGroup) : "memory");
  }
}

// math::RasterAscan without 64-bit divisions where the numbers allow it.
__device__ inline int64_t AscanOf(const RecordPlacement& placement, int64_t record) {
  if (placement.table != nullptr) return placement.table[record];
  const int64_t at = placement.first_record + record, line = placement.raster.ascans_per_bscan + placement.raster.flyback_records;
  if (at < 0 || at > INT32_MAX || line > INT32_MAX) return math::RasterAscan(placement.raster, at);
  const uint32_t y = static_cast<uint32_t>(at) / static_cast<uint32_t>(line), x = static_cast<uint32_t>(at) - y * static_cast<uint32_t>(line);
  if (y >= placement.raster.bscans_per_volume || x >= placement.raster.ascans_per_bscan) return -1;
  const int64_t across = (placement.raster.bidirectional && (y & 1)) ? placement.raster.ascans_per_bscan - 1 - x : x;
  return y * placement.raster.ascans_per_bscan + across;
}

// Two neighbouring samples as one word; the load does not push the tables out of the cache.
template <typename T>
using WordOf = std::conditional_t<sizeof(T) == 2, uint32_t, uint16_t>;
template <typename T>
__device__ __forceinline__ float2 TwoOf(WordOf<T> word) {
  constexpr int kBits = 8 * sizeof(T);
  return make_float2(static_cast<float>(static_cast<T>(word)), static_cast<float>(static_cast<T>(word >> kBits)));
}

// kUsual: cubic interpolation, dB, the whole lower half; known at compile time because code that is jumped over costs fetches.
template <typename T, typename Out, int kGroup, bool kUsual>
__global__ __launch_bounds__(kThreads, kBlocksPerSm) void FusedKernel(FusedTables t, const T* __restrict__ raw, int64_t records,
                                                                      RecordPlacement placement, SpectralTarget target) {
  constexpr int kLength = 32 * kGroup, kGroups = kThreads / kGroup;
  constexpr int kPitch = kGroup == 32 ? 33 : 66;  // complex numbers between rows of the exchange: no bank conflicts either way
  constexpr int kFloats = 2 * 32 * kPitch + 8;
  static_assert(kFloats >= 2 * (kLength + 4));
  __shared__ float4 memory[kGroups][kFloats / 4];
  __shared__ float2 joined[kGroups][kGroup / 32];
  const int lane = threadIdx.x % kGroup, group = threadIdx.x / kGroup;
  float2* const exchange = reinterpret_cast<float2*>(memory[group]);
  float2* const staged = exchange + 2;  // samples of both A-scans; one before, two after repeat the ends
  const int64_t step = static_cast<int64_t>(gridDim.x) * kGroups * 2;
  for (int64_t first = (static_cast<int64_t>(blockIdx.x) * kGroups + group) * 2; first < records; first += step) {
    const bool two = first + 1 < records;
    const auto* a = reinterpret_cast<const WordOf<T>*>(raw + first * t.samples);
    const auto* b = reinterpret_cast<const WordOf<T>*>(raw + (two ? first + 1 : first) * t.samples);
    const int pairs = t.samples / 2;
    // Eight loads of each at once: their latencies overlap, and the code stays small.
#pragma unroll 1
    for (int begin = lane; begin < pairs; begin += 8 * kGroup) {
      WordOf<T> words_a[8], words_b[8];
#pragma unroll
      for (int m = 0; m < 8; ++m) {
        const int i = min(begin + kGroup * m, pairs - 1);  // past the end: the last two again, which changes nothing
        words_a[m] = __ldcs(a + i);
        words_b[m] = __ldcs(b + i);
      }
#pragma unroll
      for (int m = 0; m < 8; ++m) {
        const float2 u = TwoOf<T>(words_a[m]), v = TwoOf<T>(words_b[m]);
        reinterpret_cast<float4*>(staged)[min(begin + kGroup * m, pairs - 1)] = make_float4(u.x, v.x, u.y, v.y);
      }
    }
    if (lane == 0) {  // the ends, repeated
      const float2 u = TwoOf<T>(a[0]), v = TwoOf<T>(b[0]);
      staged[-1] = make_float2(u.x, v.x);
    }
    if (lane == 1) {
      const float2 u = TwoOf<T>(a[pairs - 1]), v = TwoOf<T>(b[pairs - 1]);
      reinterpret_cast<float4*>(staged)[pairs] = make_float4(u.y, v.y, u.y, v.y);
    }
    if (first + step + 1 < records && lane * 128 < 2 * t.samples * static_cast<int>(sizeof(T))) {  // the next two, into the L2 cache
      asm volatile("prefetch.global.L2 [%0];" ::"l"(reinterpret_cast<const char*>(raw + (first + step) * t.samples) + lane * 128));
    }
    SyncGroup<kGroup>(group);
    float now[32], next[32];
    const auto interpolate = [&](auto cubic) {
#pragma unroll
      for (int m = 0; m < 32; ++m) {
        const float2 at = __ldg(t.position + lane + kGroup * m);
        const float floor_at = __fadd_rd(at.x, kMagic);
        const float2* p = staged + (__float_as_uint(floor_at) & 0x7FFFFFu);
        const float2 y = Interpolate<decltype(cubic)::value>(p, at.x - (floor_at - kMagic), at.y);
        now[m] = y.x;
        next[m] = y.y;
      }
    };
    if (kUsual || t.cubic) {
      interpolate(std::true_type{});
    } else {
      interpolate(std::false_type{});
    }
    // The places are known by lanes 0 and 1 and asked for below.
    int64_t place = lane % 2 == 0 || two ? AscanOf(placement, first + lane % 2) : -1;
    if (place >= target.volume_ascans) place = -1;
    SyncGroup<kGroup>(group);
#pragma unroll 1
    for (int s = 0; s < 2; ++s) {
      const int64_t ascan = __shfl_sync(0xFFFFFFFFu, place, s);
      float2 x[32];
#pragma unroll
      for (int m = 0; m < 32; ++m) {
        const float2 h = __ldg(t.h + lane + kGroup * m);
        x[m] = make_float2(now[m] * h.x, now[m] * h.y);
        now[m] = next[m];
      }
      // First half: over n1 of n = n2 + kGroup n1, n2 = lane; then the twiddles exp(2πi k1 n2 / F).
      Fft32(x);
      float2 few[4];
      exchange[lane] = x[0];
#pragma unroll
      for (int k = 1; k < 4; ++k) {
        few[k] = __ldg(t.twiddle + k * kGroup + lane);
        exchange[k * kPitch + lane] = Multiply(x[Place32(k)], few[k]);
      }
#pragma unroll
      for (int q = 4; q < 32; q += 4) {
        const float2 w = __ldg(t.twiddle + q * kGroup + lane);
        exchange[q * kPitch + lane] = Multiply(x[Place32(q)], w);
#pragma unroll
        for (int k = 1; k < 4; ++k) exchange[(q + k) * kPitch + lane] = Multiply(x[Place32(q + k)], Multiply(w, few[k]));
      }
      SyncGroup<kGroup>(group);
      // Second half: over n2 for k1; X[k1 + 32 k2].
      const int k1 = kGroup == 32 ? lane : lane / 2, odd = kGroup == 32 ? 0 : lane % 2;
#pragma unroll
      for (int n = 0; n < 32; ++n) x[n] = exchange[k1 * kPitch + (kGroup == 32 ? n : 2 * n + odd)];
      SyncGroup<kGroup>(group);
      Fft32(x);
      if constexpr (kGroup == 64) {
        // Two lanes hold the even and the odd n2 of a k1: E[k] + exp(2πi k / 64) O[k]. Each lane gets half of the k.
        if (odd) {
#pragma unroll
          for (int k = 1; k < 32; ++k) x[Place32(k)] = Multiply(x[Place32(k)], make_float2(CosOf64(k), SinOf64(k)));
        }
#pragma unroll
        for (int k = 0; k < 16; ++k) {
          float2 give = odd ? x[Place32(k)] : x[Place32(k + 16)];
          const float2 keep = odd ? x[Place32(k + 16)] : x[Place32(k)];
          give.x = __shfl_xor_sync(0xFFFFFFFFu, give.x, 1);
          give.y = __shfl_xor_sync(0xFFFFFFFFu, give.y, 1);
          x[Place32(k)] = Add(keep, give);
        }
      }
      if (ascan < 0) continue;  // the same for the whole group
      Out* out = static_cast<Out*>(target.volume) + ascan * t.depth;
      float most = std::is_same_v<Out, float> ? -INFINITY : kMagic, sum = 0;
      if constexpr (kUsual) {
        Finish<Out, math::Value::kDb, true>(t, x, k1 + 512 * odd, out, &most, &sum);
      } else if (t.whole) {
        FinishAny<Out, true>(t, x, k1 + 512 * odd, out, &most, &sum);
      } else {
        FinishAny<Out, false>(t, x, k1 + 512 * odd - t.first_bin, out, &most, &sum);
      }
      if (target.mip == nullptr && target.aip == nullptr) continue;
#pragma unroll
      for (int offset = 16; offset > 0; offset /= 2) {
        most = fmaxf(most, __shfl_down_sync(0xFFFFFFFFu, most, offset));
        if (target.aip != nullptr) sum += __shfl_down_sync(0xFFFFFFFFu, sum, offset);
      }
      if constexpr (kGroup > 32) {
        if (lane % 32 == 0) joined[group][lane / 32] = make_float2(most, sum);
        SyncGroup<kGroup>(group);
        const float2 other = joined[group][1];
        most = fmaxf(most, other.x);
        sum += other.y;
      }
      if (lane != 0) continue;
      if (target.mip != nullptr) static_cast<Out*>(target.mip)[ascan] = static_cast<Out>(std::is_same_v<Out, float> ? most : most - kMagic);
      if (target.aip != nullptr) target.aip[ascan] = sum / static_cast<float>(t.slab_end - t.slab_begin);
    }
    SyncGroup<kGroup>(group);
  }
}

// The background as it is after the interpolation, negative: one thread a position.
template <bool kCubic>
__global__ void FoldBackgroundKernel(const float* background, int samples, int positions, float2* position) {
  const int j = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (j >= positions) return;
  const float r = position[j].x, t = r - floorf(r);
  const int i = static_cast<int>(floorf(r));
  float2 taps[4];
  for (int k = 0; k < 4; ++k) taps[k].x = taps[k].y = background[min(max(i - 1 + k, 0), samples - 1)];
  position[j].y = -Interpolate<kCubic>(taps + 1, t, 0.0f).x;
}

class FusedChainImpl final : public FusedChain {
 public:
  FusedChainImpl(const SpectralConfig& config, std::shared_ptr<DeviceHealth> health, const float* background)
      : config_(config), health_(std::move(health)), background_(background) {}

  absl::Status Build(Device* device, cudaStream_t stream) {
    const SpectralConfig& c = config_;
    const auto length = static_cast<size_t>(c.fft_length), group = length / 32, n = c.window.size();
    std::vector<float2> position(length, make_float2(0, 0)), h(length, make_float2(0, 0)), twiddle;
    for (size_t j = 0; j < n; ++j) {
      position[j].x = c.interpolation == math::Interpolation::kNone ? static_cast<float>(j) : c.k_index[j];
      const double phase = c.phase_rad.empty() ? 0.0 : static_cast<double>(c.phase_rad[j]),
                   w = static_cast<double>(c.window[j]) / static_cast<double>(length);
      h[j] = make_float2(static_cast<float>(w * std::cos(phase)), static_cast<float>(w * std::sin(phase)));
    }
    for (size_t k = 0; k < 32; ++k) {
      for (size_t i = 0; i < group; ++i) {
        const double angle = 2 * M_PI * static_cast<double>(k * i) / static_cast<double>(length);
        twiddle.push_back(make_float2(static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))));
      }
    }
    OCTAVO_ASSIGN_OR_RETURN(memory_, device->Allocate(DeviceBytes(c)));
    float2* at = memory_.as<float2>();
    for (const auto* table : {&position, &h, &twiddle}) {
      OCTAVO_CUDA(health_.get(), cudaMemcpyAsync(at, table->data(), table->size() * sizeof(float2), cudaMemcpyHostToDevice, stream));
      at += length;
    }
    OCTAVO_CUDA(health_.get(), cudaStreamSynchronize(stream));
    const double range = c.has_levels ? static_cast<double>(c.level_hi) - static_cast<double>(c.level_lo) : 1.0;
    const double measure = c.value == math::Value::kDb ? 10 * std::log10(2.0) : 1.0;
    double scale = 1, offset = 0;  // value → stored
    if (c.has_levels) {
      scale = (c.output == DType::kU8 ? 255 : c.output == DType::kU16 ? 65535 : 1) / range;
      offset = -static_cast<double>(c.level_lo) * scale;
    }
    const double top = c.output == DType::kU8 ? 256 : c.output == DType::kU16 ? 65536 : 0;
    if (top > 0) scale /= top, offset = (offset + 0.5) / top;
    t_ = {.cubic = c.interpolation == math::Interpolation::kCubic,
          .whole = c.first_bin == 0 && c.depth == c.fft_length / 2 && c.slab_begin == 0 && c.slab_end == c.depth,
          .value = c.value,
          .samples = static_cast<int>(c.samples_per_record),
          .position = memory_.as<float2>(),
          .h = memory_.as<float2>() + length,
          .twiddle = memory_.as<float2>() + 2 * length,
          .first_bin = static_cast<int>(c.first_bin),
          .depth = static_cast<int>(c.depth),
          .value_scale = static_cast<float>(measure * scale),
          .value_offset = static_cast<float>(offset),
          .slab_begin = static_cast<int>(c.slab_begin),
          .slab_end = static_cast<int>(c.slab_end)};
    int device_index = 0;
    OCTAVO_CUDA(health_.get(), cudaGetDevice(&device_index));
    int sms = 0;
    OCTAVO_CUDA(health_.get(), cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device_index));
    blocks_ = sms * kBlocksPerSm;
    return background_ == nullptr ? absl::OkStatus() : Refresh(stream);
  }

  absl::Status Refresh(cudaStream_t stream) override {
    const auto n = static_cast<int>(config_.window.size());
    float2* position = memory_.as<float2>();
    const auto blocks = static_cast<unsigned>((n + 127) / 128);
    if (t_.cubic) {
      FoldBackgroundKernel<true><<<blocks, 128, 0, stream>>>(background_, t_.samples, n, position);
    } else {
      FoldBackgroundKernel<false><<<blocks, 128, 0, stream>>>(background_, t_.samples, n, position);
    }
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }

  absl::Status Process(cudaStream_t stream, const void* raw, int64_t records, const RecordPlacement& placement,
                       const SpectralTarget& target) override {
    switch (config_.raw_type) {
      case DType::kU8: ForOutput(stream, static_cast<const uint8_t*>(raw), records, placement, target); break;
      case DType::kI16: ForOutput(stream, static_cast<const int16_t*>(raw), records, placement, target); break;
      default: ForOutput(stream, static_cast<const uint16_t*>(raw), records, placement, target); break;
    }
    OCTAVO_CUDA(health_.get(), cudaGetLastError());
    return absl::OkStatus();
  }

 private:
  template <typename T>
  void ForOutput(cudaStream_t stream, const T* raw, int64_t records, const RecordPlacement& placement, const SpectralTarget& target) {
    switch (config_.output) {
      case DType::kU8: Launch<T, uint8_t>(stream, raw, records, placement, target); break;
      case DType::kU16: Launch<T, uint16_t>(stream, raw, records, placement, target); break;
      default: Launch<T, float>(stream, raw, records, placement, target); break;
    }
  }
  template <typename T, typename Out>
  void Launch(cudaStream_t stream, const T* raw, int64_t records, const RecordPlacement& placement, const SpectralTarget& target) {
    const int64_t each = 2 * kThreads * 32 / config_.fft_length;  // records of a block at once
    const auto blocks = static_cast<unsigned>(std::min<int64_t>(blocks_, (records + each - 1) / each));
    const bool usual = t_.cubic && t_.whole && t_.value == math::Value::kDb;
    const auto kernel = config_.fft_length == 1024 ? (usual ? FusedKernel<T, Out, 32, true> : FusedKernel<T, Out, 32, false>)
                                                   : (usual ? FusedKernel<T, Out, 64, true> : FusedKernel<T, Out, 64, false>);
    kernel<<<blocks, kThreads, 0, stream>>>(t_, raw, records, placement, target);
  }

  const SpectralConfig config_;
  const std::shared_ptr<DeviceHealth> health_;
  const float* const background_;
  DeviceBuffer memory_;
  FusedTables t_{};
  int blocks_ = 0;
};

}  // namespace

std::string FusedChain::WhyNot(const SpectralConfig& c) {
  if (c.fft_length != 1024 && c.fft_length != 2048) return "transforms of 1024 and 2048 are fused";
  if (c.samples_per_record > c.fft_length || c.samples_per_record % 2 != 0)
    return "an even number of samples, no more than the transform's, is fused";
  if (c.first_bin + c.depth > c.fft_length / 2) return "the lower half of the bins is fused";
  if (c.raw_type != DType::kU8 && c.raw_type != DType::kU16 && c.raw_type != DType::kI16) return "u8, u16 and i16 input is fused";
  if (c.packing != math::Packing::kNone || c.channels != 1 || c.record_average != 1) return "plain records of one channel are fused";
  if (c.background == math::Background::kBscan || c.fixed_pattern != math::FixedPattern::kNone) return "what needs whole B-scans is not fused";
  if (c.interpolation == math::Interpolation::kLanczos) return "linear and cubic interpolation is fused";
  if (c.repeats != 1) return "repeats are not fused";
  if (c.value != math::Value::kDb && c.value != math::Value::kMagnitude && c.value != math::Value::kPower) return "dB, magnitude and power are fused";
  if (c.output != DType::kU8 && c.output != DType::kU16 && c.output != DType::kF32) return "u8, u16 and f32 output is fused";
  return "";
}

int64_t FusedChain::DeviceBytes(const SpectralConfig& c) { return 3 * c.fft_length * static_cast<int64_t>(sizeof(float2)); }

absl::StatusOr<std::unique_ptr<FusedChain>> FusedChain::Create(const SpectralConfig& config, Device* device, std::shared_ptr<DeviceHealth> health,
                                                               const float* background, cudaStream_t stream) {
  auto chain = std::make_unique<FusedChainImpl>(config, std::move(health), background);
  OCTAVO_RETURN_IF_ERROR(chain->Build(device, stream));
  return chain;
}

}  // namespace octavo::cuda

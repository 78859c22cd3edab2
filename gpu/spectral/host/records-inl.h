// Reads raw records into lanes and subtracts the background; applies k-linearisation and window ×
// dispersion for the transform. Highway includes this file once per SIMD target, so it has no
// ordinary include guard.
#if defined(OCTAVO_GPU_HOST_RECORDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_GPU_HOST_RECORDS_INL_H_
#undef OCTAVO_GPU_HOST_RECORDS_INL_H_
#else
#define OCTAVO_GPU_HOST_RECORDS_INL_H_
#endif

#include <cstring>
#include <type_traits>

#include "gpu/device/host/fft-inl.h"
#include "gpu/device/host/vectors-inl.h"
#include "gpu/math/raw.h"
#include "gpu/spectral/host/spectral_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::inline gpu::host::HWY_NAMESPACE {

// Unpacks the samples of neighbouring words, which hold one to four samples each, and calls
// `store(j, values)` for each.
template <typename T, class F>
HWY_INLINE void UnpackWord(VI word, int64_t j, F store) {
  const D d;
  const DI di;
  if constexpr (sizeof(T) == 4) {
    store(j, hn::BitCast(d, word));
  } else if constexpr (std::is_same_v<T, int16_t>) {
    store(j, hn::ConvertTo(d, hn::ShiftRight<16>(hn::ShiftLeft<16>(word))));
    store(j + 1, hn::ConvertTo(d, hn::ShiftRight<16>(word)));
  } else if constexpr (sizeof(T) == 2) {
    store(j, hn::ConvertTo(d, hn::And(word, hn::Set(di, 0xFFFF))));
    store(j + 1, hn::ConvertTo(d, hn::And(hn::ShiftRight<16>(word), hn::Set(di, 0xFFFF))));
  } else {
    const auto mask = hn::Set(di, 0xFF);
    store(j, hn::ConvertTo(d, hn::And(word, mask)));
    store(j + 1, hn::ConvertTo(d, hn::And(hn::ShiftRight<8>(word), mask)));
    store(j + 2, hn::ConvertTo(d, hn::And(hn::ShiftRight<16>(word), mask)));
    store(j + 3, hn::ConvertTo(d, hn::And(hn::ShiftRight<24>(word), mask)));
  }
}

// Reads one raw record per lane, [lane][S][C] of a narrow type, as floats [S][lane]. Whole vectors
// of a record are transposed; interleaved, packed, short or remaining samples are gathered as
// 32-bit words. Calls `store(j, values)` for the samples.
template <typename T, class F>
HWY_INLINE void ReadSamples(const TileTables& t, const uint8_t* HWY_RESTRICT raw, int64_t records,
                            int64_t lane_bytes, F store) {
  const D d;
  const DI di;
  const int64_t lanes = Lanes(), samples = t.samples, channels = t.channels;
  constexpr int64_t kSize = static_cast<int64_t>(sizeof(T));
  const int64_t bytes = math::PackedBytes(t.packing, samples * channels, kSize);
  alignas(64) int32_t offsets[16] = {};
  for (int64_t lane = 0; lane < lanes;
       ++lane) {  // a short tile repeats its last record, and the copies are not stored
    offsets[lane] = static_cast<int32_t>((lane < records ? lane : records - 1) * lane_bytes);
  }
  const auto lane_offset = hn::Load(di, offsets);
  const auto gather = [&](int64_t at) HWY_ATTR {
    return hn::GatherOffset(di, reinterpret_cast<const int32_t*>(raw),
                            hn::Add(lane_offset, hn::Set(di, static_cast<int32_t>(at))));
  };
  int64_t j = 0;
  if (t.packing != math::Packing::kNone) {
    const auto mask = hn::Set(di, 0xFFF), byte = hn::Set(di, 0xFF0), nibble = hn::Set(di, 0xF);
    const bool low_first = t.packing == math::Packing::kLowFirst12;
    const auto even = [&](auto word) HWY_ATTR {  // math::Unpack12 on vectors
      return low_first ? hn::And(word, mask)
                       : hn::Or(hn::And(hn::ShiftLeft<4>(word), byte),
                                hn::And(hn::ShiftRight<8>(word), nibble));
    };
    for (; j < samples; ++j) {
      const int64_t i = j * channels + t.channel, at = i / 2 * 3;
      if (at + 4 > bytes) break;
      const auto word = gather(at);
      if (i & 1) {
        store(j, hn::ConvertTo(d, hn::And(hn::ShiftRight<12>(word), mask)));
        continue;
      }
      store(j, hn::ConvertTo(d, even(word)));
      if (channels == 1 && j + 1 < samples)
        store(++j, hn::ConvertTo(d, hn::And(hn::ShiftRight<12>(word), mask)));
    }
  } else if (channels > 1) {
    for (; j < samples; ++j) {
      const int64_t at = (j * channels + t.channel) * kSize;
      if (at + 4 > bytes) break;
      const auto word = gather(at);
      if constexpr (kSize == 4) {
        store(j, hn::BitCast(d, word));
      } else if constexpr (std::is_same_v<T, int16_t>) {
        store(j, hn::ConvertTo(d, hn::ShiftRight<16>(hn::ShiftLeft<16>(word))));
      } else {
        store(j, hn::ConvertTo(d, hn::And(word, hn::Set(di, kSize == 2 ? 0xFFFF : 0xFF))));
      }
    }
  } else {
    constexpr int64_t kPer = 4 / kSize;
    for (; records == kLanes && lanes == kLanes && j + kPer * kLanes <= samples;
         j += kPer * kLanes) {
      VI words[kLanes];
      for (int64_t lane = 0; lane < kLanes; ++lane)
        words[lane] =
            hn::LoadU(di, reinterpret_cast<const int32_t*>(raw + lane * lane_bytes + j * kSize));
      Transpose(words);
      for (int64_t i = 0; i < kLanes; ++i) UnpackWord<T>(words[i], j + i * kPer, store);
    }
    for (; j + kPer <= samples; j += kPer) UnpackWord<T>(gather(j * kSize), j, store);
  }
  alignas(64) float tail[16] = {};
  for (; j < samples; ++j) {  // here a word would reach beyond the record
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const uint8_t* record = raw + offsets[lane];
      const int64_t i = j * channels + t.channel;
      if (t.packing != math::Packing::kNone) {
        tail[lane] = static_cast<float>(math::ReadPacked12(t.packing, record, i));
      } else {
        T value;
        std::memcpy(&value, record + i * kSize, sizeof value);
        tail[lane] = static_cast<float>(value);
      }
    }
    store(j, hn::Load(d, tail));
  }
}

// Records → floats [S][lane]: the mean of t.average raw records minus the background.
template <typename T>
void LoadTransposed(const TileTables& t, const uint8_t* HWY_RESTRICT raw, int64_t records,
                    const TileBackground& of, float* HWY_RESTRICT x) {
  const D d;
  // Both cases apply the same operation to the same numbers, so that an A-scan does not depend on
  // its neighbours.
  const float* HWY_RESTRICT const background = of.all;
  const float* HWY_RESTRICT const own = of.lanes;
  const int64_t lanes = Lanes(), bytes = math::PackedBytes(t.packing, t.samples * t.channels,
                                                           static_cast<int64_t>(sizeof(T)));
  if (t.average == 1) {
    ReadSamples<T>(t, raw, records, bytes, [&](int64_t j, V v) HWY_ATTR {
      if (background != nullptr) v = hn::Sub(v, hn::Set(d, background[j]));
      if (own != nullptr) v = hn::Sub(v, hn::Load(d, own + j * lanes));
      hn::Store(v, d, x + j * lanes);
    });
    return;
  }
  const V share = hn::Set(d, 1.0f / static_cast<float>(t.average));
  for (int64_t r = 0; r < t.average; ++r) {
    ReadSamples<T>(t, raw + r * bytes, records, t.average * bytes, [&](int64_t j, V v) HWY_ATTR {
      if (r > 0) v = hn::Add(v, hn::Load(d, x + j * lanes));
      if (r == t.average - 1) {
        v = background != nullptr ? hn::MulSub(v, share, hn::Set(d, background[j]))
            : own != nullptr      ? hn::MulSub(v, share, hn::Load(d, own + j * lanes))
                                  : hn::Mul(v, share);
      }
      hn::Store(v, d, x + j * lanes);
    });
  }
}

// The samples of a tile, [S][lane], after k-linearisation. Has pointers of its own, because the
// compiler reads those of the tables anew after each store of a vector.
template <int kTaps>
class Resampled {
 public:
  HWY_INLINE Resampled(const TileTables& t, const float* HWY_RESTRICT x)
      : n(t.n), x_(x), tap_(t.tap.data()), weights_(t.weights.data()) {}
  HWY_INLINE V operator()(int64_t j) const {
    const D d;
    const int64_t lanes = Lanes();
    if constexpr (kTaps == 1) {
      return hn::Load(d, x_ + j * lanes);
    } else {
      constexpr int64_t kBefore = kTaps == 8 ? 3 : kTaps == 4 ? 1 : 0;
      const float* at = x_ + (tap_[j] - kBefore) * lanes;
      const float* w = weights_ + kTaps * j;
      if constexpr (kTaps % 4 == 0 && kLanes >= 4) {
        // A load of four weights, because the loads bound this loop.
        V v = hn::Zero(d);
        for (int i = 0; i < kTaps; i += 4, at += 4 * lanes) {
          const V four = hn::LoadDup128(d, w + i);
          v = hn::MulAdd(hn::Load(d, at), hn::Broadcast<0>(four), v);
          v = hn::MulAdd(hn::Load(d, at + lanes), hn::Broadcast<1>(four), v);
          v = hn::MulAdd(hn::Load(d, at + 2 * lanes), hn::Broadcast<2>(four), v);
          v = hn::MulAdd(hn::Load(d, at + 3 * lanes), hn::Broadcast<3>(four), v);
        }
        return v;
      }
      V v = hn::Mul(hn::Load(d, at), hn::Set(d, w[0]));
      for (int i = 1; i < kTaps; ++i)
        v = hn::MulAdd(hn::Load(d, at + i * lanes), hn::Set(d, w[i]), v);
      return v;
    }
  }

  const int64_t n;

 private:
  const float* HWY_RESTRICT x_;
  const int32_t* HWY_RESTRICT tap_;
  const float* HWY_RESTRICT weights_;
};

// Applies k-linearisation and window × dispersion in one pass and writes the zero-padded input of
// the transform.
template <int kTaps>
void Shape(const TileTables& t, const float* HWY_RESTRICT x, Rows out) {
  const D d;
  const Resampled<kTaps> resampled(t, x);
  const auto store = [&](int64_t row, V re, V im) HWY_ATTR {
    hn::Store(re, d, out.re + row * out.pitch);
    hn::Store(im, d, out.im + row * out.pitch);
  };
  const float *h_re = t.h_re.data(), *h_im = t.h_im.data();
  int64_t rows = t.n;
  if (t.half) {
    rows = (t.n + 1) / 2;
    for (int64_t r = 0; r < rows; ++r) {
      C z{hn::Mul(resampled(2 * r), hn::Set(d, h_re[2 * r])), hn::Zero(d)};
      if (2 * r + 1 < t.n) z.im = hn::Mul(resampled(2 * r + 1), hn::Set(d, h_re[2 * r + 1]));
      if (t.fft.convolution)
        z = Twiddle(z, hn::Set(d, t.fft.chirp_in_re[static_cast<size_t>(r)]),
                    hn::Set(d, t.fft.chirp_in_im[static_cast<size_t>(r)]));
      store(r, z.re, z.im);
    }
  } else if (t.h_im.empty()) {
    for (int64_t j = 0; j < t.n; ++j) {
      store(j, hn::Mul(resampled(j), hn::Set(d, h_re[j])), hn::Zero(d));
    }
  } else {
    for (int64_t j = 0; j < t.n; ++j) {
      const V v = resampled(j);
      store(j, hn::Mul(v, hn::Set(d, h_re[j])), hn::Mul(v, hn::Set(d, h_im[j])));
    }
  }
  for (; rows < t.fft.rows; ++rows) store(rows, hn::Zero(d), hn::Zero(d));
}

// Does the same row by row, when the first pass of the transform needs a row, so that the values
// stay in registers.
template <int kTaps, bool kHalf>
struct Shaped {
  const Resampled<kTaps> resampled;
  const float *HWY_RESTRICT h_re, *HWY_RESTRICT h_im;
  HWY_INLINE C operator()(int64_t row) const {
    const D d;
    if constexpr (kHalf) {
      const int64_t j = 2 * row;
      if (j >= resampled.n) return {hn::Zero(d), hn::Zero(d)};
      const V re = hn::Mul(resampled(j), hn::Set(d, h_re[j]));
      return {re, j + 1 < resampled.n ? hn::Mul(resampled(j + 1), hn::Set(d, h_re[j + 1]))
                                      : hn::Zero(d)};
    } else {
      if (row >= resampled.n) return {hn::Zero(d), hn::Zero(d)};
      const V v = resampled(row);
      return {hn::Mul(v, hn::Set(d, h_re[row])), hn::Mul(v, hn::Set(d, h_im[row]))};
    }
  }
};

// Whether the first pass can read its rows from Shaped.
HWY_INLINE bool StartsShaped(const TileTables& t) {
  return !t.fft.convolution && !t.fft.passes.empty() && t.fft.passes[0].radix >= 16 &&
         t.half == t.h_im.empty();
}

template <int kTaps>
void FirstPass(const TileTables& t, const float* HWY_RESTRICT x, Rows out) {
  const auto pass = [&](const auto& rows) HWY_ATTR {
    const FftPlan::Pass& first = t.fft.passes[0];
    const float* w = t.fft.twiddles.data();
    switch (first.radix) {
      case 16: Pass<16>(first, w, rows, out, 0, t.fft.rows); break;
      case 32: SplitPass<32>(first, w, rows, out, 0, t.fft.rows); break;
      default: SplitPass<64>(first, w, rows, out, 0, t.fft.rows); break;
    }
  };
  if (t.half) {
    pass(Shaped<kTaps, true>{{t, x}, t.h_re.data(), nullptr});
  } else {
    pass(Shaped<kTaps, false>{{t, x}, t.h_re.data(), t.h_im.data()});
  }
}

}  // namespace octavo::inline gpu::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

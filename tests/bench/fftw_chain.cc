#include "tests/bench/fftw_chain.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <fftw3.h>
#include <vector>

#include "tbb/blocked_range.h"
#include "tbb/enumerable_thread_specific.h"
#include "tbb/parallel_for.h"

namespace octavo::bench {
namespace {

constexpr int kTile = 16;

struct Scratch {
  explicit Scratch(int64_t samples, int64_t length)
      : x(fftwf_alloc_real(static_cast<size_t>(std::max(samples, length) + 8))),
        in(fftwf_alloc_complex(static_cast<size_t>(kTile * length))),
        out(fftwf_alloc_complex(static_cast<size_t>(kTile * length))) {
    std::fill(reinterpret_cast<float*>(in), reinterpret_cast<float*>(in + kTile * length), 0.0f);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    fftwf_free(x);
    fftwf_free(in);
    fftwf_free(out);
  }
  float* x;
  fftwf_complex *in, *out;
};

class Chain final : public FftwChain {
 public:
  explicit Chain(const SpectralConfig& c)
      : samples(c.samples_per_record),
        n(std::ssize(c.window)),
        length(c.fft_length),
        depth(c.depth),
        background(c.background_spectrum),
        scratch([this] { return std::make_unique<Scratch>(samples, length); }) {
    for (const double r : c.k_index) {
      const double left = std::floor(r);
      const auto t = static_cast<float>(r - left);
      tap.push_back(static_cast<int32_t>(left) + 2);  // two border samples stand before the record
      w[0].push_back(0.5f * (-t + 2 * t * t - t * t * t));
      w[1].push_back(0.5f * (2 - 5 * t * t + 3 * t * t * t));
      w[2].push_back(0.5f * (t + 4 * t * t - 3 * t * t * t));
      w[3].push_back(0.5f * (-t * t + t * t * t));
    }
    for (size_t j = 0; j < c.window.size(); ++j) {
      const auto h = std::polar(static_cast<double>(c.window[j]) / static_cast<double>(length),
                                static_cast<double>(c.phase_rad[j]));
      h_re.push_back(static_cast<float>(h.real()));
      h_im.push_back(static_cast<float>(h.imag()));
    }
    scale = 255.0f / (c.level_hi - c.level_lo);
    offset = -c.level_lo * scale;
    const int size = static_cast<int>(length);
    const Scratch s(samples, length);
    plan = fftwf_plan_many_dft(1, &size, kTile, s.in, nullptr, 1, size, s.out, nullptr, 1, size,
                               FFTW_BACKWARD, FFTW_PATIENT);
  }
  ~Chain() override { fftwf_destroy_plan(plan); }
  void Process(const uint16_t* records, int64_t count, uint8_t* volume, uint8_t* mip) override {
    tbb::parallel_for(tbb::blocked_range<int64_t>(0, (count + kTile - 1) / kTile, 4),
                      [&](const tbb::blocked_range<int64_t>& range) {
                        for (int64_t tile = range.begin(); tile != range.end(); ++tile) {
                          const int64_t first = tile * kTile;
                          Tile(records + first * samples, std::min<int64_t>(kTile, count - first),
                               volume + first * depth, mip + first);
                        }
                      });
  }

 private:
  void Tile(const uint16_t* records, int64_t count, uint8_t* volume, uint8_t* mip) {
    Scratch& s = *scratch.local();
    for (int64_t a = 0; a < count; ++a) {
      float* __restrict x = s.x;
      const uint16_t* __restrict raw = records + a * samples;
      for (int64_t j = 0; j < samples; ++j)
        x[j + 2] = static_cast<float>(raw[j]) - background[static_cast<size_t>(j)];
      x[0] = x[1] = x[2];
      for (int64_t j = samples + 2; j < samples + 6; ++j) x[j] = x[samples + 1];
      float* __restrict in = reinterpret_cast<float*>(s.in + a * length);
      const int32_t* __restrict t = tap.data();
      const float* __restrict w0 = w[0].data(), * __restrict w1 = w[1].data(), * __restrict w2 = w[2].data(), * __restrict w3 = w[3].data();
      const float* __restrict re = h_re.data(), * __restrict im = h_im.data();
      for (int64_t j = 0; j < n; ++j) {
        const float* at = x + t[j];
        const float v = w0[j] * at[-1] + w1[j] * at[0] + w2[j] * at[1] + w3[j] * at[2];
        in[2 * j] = v * re[j];
        in[2 * j + 1] = v * im[j];
      }
    }
    fftwf_execute_dft(plan, s.in, s.out);
    const float k = 4.342944819f * scale, shift = offset;
    for (int64_t a = 0; a < count; ++a) {
      const float* __restrict z = reinterpret_cast<const float*>(s.out + a * length);
      // Separate simple loops, so that the compiler vectorises all of them.
      float* __restrict v = s.x;
      uint8_t* __restrict out = volume + a * depth;
      for (int64_t i = 0; i < depth; ++i)
        v[i] = std::max(z[2 * i] * z[2 * i] + z[2 * i + 1] * z[2 * i + 1], 1e-37f);
      for (int64_t i = 0; i < depth; ++i) v[i] = k * logf(v[i]) + shift;
      float most = 0;
      for (int64_t i = 0; i < depth; ++i) {
        v[i] = std::min(std::max(v[i], 0.0f) + 0.5f, 255.0f);
        most = std::max(most, v[i]);
      }
      for (int64_t i = 0; i < depth; ++i) out[i] = static_cast<uint8_t>(static_cast<int32_t>(v[i]));
      mip[a] = static_cast<uint8_t>(static_cast<int32_t>(most));
    }
  }

  int64_t samples, n, length, depth;
  std::vector<float> background, w[4], h_re, h_im;
  std::vector<int32_t> tap;
  float scale, offset;
  tbb::enumerable_thread_specific<std::unique_ptr<Scratch>> scratch;
  fftwf_plan plan = nullptr;
};

}  // namespace

// The build compiles this file once per kind of vectors and gives each its name.
std::unique_ptr<FftwChain> OCTAVO_MAKE_FFTW_CHAIN(const SpectralConfig& config) {
  return std::make_unique<Chain>(config);
}

}  // namespace octavo::bench

#include "server/source/simulated_model.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

#include "tbb/parallel_for.h"

#include "server/pattern/plan.h"

#if defined(__x86_64__) && !defined(OCTAVO_SANITIZED)
#define OCTAVO_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define OCTAVO_VECTOR_CLONES  // run-time selection of function clones does not work with sanitizers
#endif

namespace octavo::source {
namespace {

using std::numbers::pi;
constexpr double kTurn = 2 * pi;

// cos(2π turns): even polynomial on [-1/2, 1/2], least squares at Chebyshev nodes, error < 3e-7;
// plain arithmetic that the compiler can vectorise.
inline float CosTurns(float turns) {
  const float r =
      turns - static_cast<float>(static_cast<int32_t>(turns + (turns < 0 ? -0.5f : 0.5f)));
  const float y = r * r;
  return 1.000000000f +
         y * (-19.739208743f +
              y * (64.939389075f +
                   y * (-85.456658291f +
                        y * (60.242131035f +
                             y * (-26.404666247f + y * (7.800125322f + y * (-1.453104789f)))))));
}

inline uint32_t Hash(uint32_t x) {  // lowbias32 (Wellons)
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

// signal += spectrum · 2 r cos(2 k z + ψ)
OCTAVO_VECTOR_CLONES
void AddReflector(const float* __restrict dk, const float* __restrict psi,
                  const float* __restrict spectrum, int64_t n, float depth, float phase,
                  float amplitude, float* __restrict signal) {
  for (int64_t j = 0; j < n; ++j)
    signal[j] += spectrum[j] * amplitude * CosTurns(dk[j] * depth + phase + psi[j]);
}

// re + i im += (a + i b) exp(i (2 k z + ψ)), dk in turns per µm.
OCTAVO_VECTOR_CLONES
void AddAnalytic(const float* __restrict dk, const float* __restrict psi, int64_t n, float depth,
                 float a, float b, float* __restrict re, float* __restrict im) {
  for (int64_t j = 0; j < n; ++j) {
    const float turns = dk[j] * depth + psi[j];
    const float c = CosTurns(turns), s = CosTurns(turns - 0.25f);
    re[j] += a * c - b * s;
    im[j] += a * s + b * c;
  }
}

// signal += spectrum · Re{ tissue · exp(i 2 k z) }: the tissue below a surface at depth z.
OCTAVO_VECTOR_CLONES
void AddTissue(const float* __restrict dk, const float* __restrict re, const float* __restrict im,
               const float* __restrict spectrum, int64_t n, float depth, float phase, float gain,
               float* __restrict signal) {
  for (int64_t j = 0; j < n; ++j) {
    const float turns = dk[j] * depth + phase;
    signal[j] += spectrum[j] * gain * (re[j] * CosTurns(turns) - im[j] * CosTurns(turns - 0.25f));
  }
}

// Shot noise (100 electrons a count) and read noise; the sum of four bytes of a hash approximates a
// normal deviate well enough.
OCTAVO_VECTOR_CLONES
void AddNoise(int64_t n, uint32_t key, float read_noise, float* __restrict signal) {
  const float read_variance = read_noise * read_noise;
  for (int64_t j = 0; j < n; ++j) {
    const uint32_t h = Hash(key + static_cast<uint32_t>(j) * 0x9E3779B9u);
    const auto sum =
        static_cast<int32_t>((h & 255) + ((h >> 8) & 255) + ((h >> 16) & 255) + (h >> 24));
    const float deviate = static_cast<float>(sum - 510) * (1.0f / 147.8f);
    signal[j] += deviate * std::sqrt(read_variance + std::max(signal[j], 0.0f) * 0.01f);
  }
}

}  // namespace

std::vector<double> SimulatedModel::WavelengthNm(const model::SimulatedSource& source,
                                                 int64_t samples) {
  std::vector<double> wavelength(static_cast<size_t>(samples));
  for (int64_t j = 0; j < samples; ++j) {
    const double u = static_cast<double>(j) / static_cast<double>(samples - 1);
    const double bent = u + 4 * source.nonlinearity * u * (1 - u);
    wavelength[static_cast<size_t>(j)] =
        source.centre_wavelength_nm + source.bandwidth_nm * (0.5 - bent);
  }
  return wavelength;
}

SimulatedModel::SimulatedModel(const model::SimulatedSource& source,
                               const pattern::Pattern& pattern, int64_t samples, DType raw_type,
                               int64_t average)
    : source_(source),
      pattern_(pattern),
      samples_(samples),
      raw_type_(raw_type),
      average_(average),
      tissue_(source.layers.empty()) {
  full_scale_ = std::exp2(static_cast<double>(source.adc_bits)) - 1;
  read_noise_ = static_cast<float>(std::max(source.noise_counts, 0.0));
  const auto wavelength = WavelengthNm(source, samples);
  const double k0 = kTurn / (wavelength.front() * 1e-3), k1 = kTurn / (wavelength.back() * 1e-3);
  k_centre_ = 0.5 * (k0 + k1);
  std::mt19937_64 random(source.seed);
  std::normal_distribution<double> normal;
  for (int64_t j = 0; j < samples; ++j) {
    const double k = kTurn / (wavelength[static_cast<size_t>(j)] * 1e-3),
                 u = (k - k_centre_) / (k1 - k0);
    const double d = (k - k0) / (k1 - k0) * static_cast<double>(samples - 1) -
                     0.5 * static_cast<double>(samples);
    dk_.push_back(static_cast<float>(2 * (k - k_centre_) / kTurn));
    // Subtract whole turns in double precision: strong dispersion makes the phase larger than a
    // float can resolve.
    psi_.push_back(static_cast<float>(std::remainder(
        (source.dispersion_a2 * d * d + source.dispersion_a3 * d * d * d) / kTurn, 1.0)));
    const double shape = 0.12 + 0.88 * std::exp(-8 * u * u);
    const double pattern_noise = 1 + std::max(source.fixed_pattern, 0.0) * normal(random);
    spectrum_.push_back(static_cast<float>(0.45 * full_scale_ * shape * pattern_noise));
  }
  noise_key_ = Hash(static_cast<uint32_t>(source.seed) ^
                    Hash(static_cast<uint32_t>(source.seed >> 32) + 0x68bc21ebu));
  // The phantom reaches 1.4 mm deep; the depth range of the spectrometer is π/2 over the k step.
  phantom_scale_ = std::min(1.0, 0.5 * pi * static_cast<double>(samples - 1) / (k1 - k0) / 1450);
  // Point scatterers: spread over the field, in the upper half millimetre of the tissue.
  std::uniform_real_distribution<double> uniform;
  for (uint32_t i = 0; i < source.scatterers.value_or(0); ++i) {
    scatterers_.push_back({.x_um = uniform(random) * pattern.extent_x_mm * 1e3,
                           .y_um = uniform(random) * pattern.extent_y_mm * 1e3,
                           .below_um = phantom_scale_ * (60 + 500 * uniform(random)),
                           .amplitude = static_cast<float>(0.02 + 0.04 * uniform(random))});
  }
  if (tissue_) BuildTissue(source.seed + 1);
}

// Interfaces and speckle between them, brighter and darker by layer, fading with depth; the surface
// lies at depth 0.
void SimulatedModel::BuildTissue(uint64_t seed) {
  struct Layer {
    double from_um, to_um, interface, scatter;
  };
  static constexpr Layer kLayers[] = {{0, 70, 0.030, 0.0030},    {70, 160, 0.006, 0.0085},
                                      {160, 215, 0.010, 0.0022}, {215, 330, 0.012, 0.0065},
                                      {330, 390, 0.008, 0.0025}, {390, 900, 0.014, 0.0055}};
  constexpr double kFadeUm = 420, kStepUm = 3;
  const size_t n = static_cast<size_t>(samples_);
  // With long records the speckle repeats sooner, so that the table stays small.
  speckle_ = std::clamp<size_t>((size_t{1} << 18) / n, 7, 61);
  tissue_re_.assign(speckle_ * n, 0.0f);
  tissue_im_.assign(speckle_ * n, 0.0f);
  tbb::parallel_for(size_t{0}, speckle_, [&](size_t m) {
    std::mt19937_64 random(seed + 0x9E3779B97F4A7C15u * m);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> within(0, kStepUm);
    const auto add = [&](double depth, double re, double im) {
      const double gain = 2 * std::exp(-depth / kFadeUm);
      AddAnalytic(dk_.data(), psi_.data(), samples_, static_cast<float>(phantom_scale_ * depth),
                  static_cast<float>(gain * re), static_cast<float>(gain * im),
                  tissue_re_.data() + m * n, tissue_im_.data() + m * n);
    };
    for (const Layer& layer : kLayers) {
      add(layer.from_um, layer.interface, 0);
      for (double z = layer.from_um; z < layer.to_um; z += kStepUm) {
        const double depth = z + within(random), re = layer.scatter * normal(random);
        add(depth, re, layer.scatter * normal(random));
      }
    }
  });
}

SimulatedModel::Place SimulatedModel::PlaceOf(int64_t record) const {
  if (pattern_.plan != nullptr) return PlanPlaceOf(record);
  const int64_t line = pattern_.ascans_per_bscan + pattern_.flyback_records;
  const int64_t volume_records =
      line * pattern_.bscans_per_volume + pattern_.volume_flyback_records;
  Place place{};
  place.volume = record / volume_records;
  const int64_t in_volume = record % volume_records;
  place.y = std::min(in_volume / line, pattern_.bscans_per_volume - 1);
  // During flyback the beam stays at the line's end.
  place.x = std::min(in_volume % line, pattern_.ascans_per_bscan - 1);
  if (pattern_.bidirectional && (place.y & 1)) place.x = pattern_.ascans_per_bscan - 1 - place.x;
  place.x_um = (static_cast<double>(place.x) + 0.5) * pattern_.extent_x_mm * 1e3 /
               static_cast<double>(pattern_.ascans_per_bscan);
  place.y_um = (static_cast<double>(place.y) + 0.5) * pattern_.extent_y_mm * 1e3 /
               static_cast<double>(pattern_.bscans_per_volume);
  return place;
}

// Patterns with a plan: the field is the square around the pattern, its origin in the middle.
// Repeats image the same place.
SimulatedModel::Place SimulatedModel::PlanPlaceOf(int64_t record) const {
  const pattern::PatternPlan& plan = *pattern_.plan;
  Place place{};
  const int64_t volume = record / plan.volume_records, in_volume = record % plan.volume_records;
  const auto& segments = plan.Of(volume).segments;
  const auto next = std::upper_bound(
      segments.begin(), segments.end(), in_volume,
      [](int64_t r, const pattern::PatternSegment& s) { return r < s.first_record; });
  const pattern::PatternSegment& segment = *std::prev(next);
  // During flyback the beam stays at the segment's end.
  const int64_t j = std::min(in_volume - segment.first_record, segment.ascans - 1),
                ascan = segment.reversed ? segment.ascans - 1 - j : j;
  place.volume = volume * pattern_.passes() + segment.repeat;
  place.x = ascan % pattern_.ascans_per_bscan;
  place.y = segment.bscan + ascan / pattern_.ascans_per_bscan;
  const pattern::Point at = pattern::PositionMm(pattern_, segment.bscan, ascan);
  place.x_um = 1e3 * (at.x + 0.5 * pattern_.extent_x_mm);
  place.y_um = 1e3 * (at.y + 0.5 * pattern_.extent_y_mm);
  return place;
}

double SimulatedModel::SurfaceUm(double x_um, double y_um) const {
  const double u = x_um / (pattern_.extent_x_mm * 1e3), v = y_um / (pattern_.extent_y_mm * 1e3);
  return phantom_scale_ *
         (330 + 70 * std::cos(kTurn * (0.9 * u + 0.1)) + 35 * std::cos(kTurn * (0.7 * v - 0.2)));
}

// Two vessel-like bands across the field.
float SimulatedModel::Texture(double x_um, double y_um) const {
  const double u = x_um / (pattern_.extent_x_mm * 1e3), v = y_um / (pattern_.extent_y_mm * 1e3);
  const double a = (u - 0.35 - 0.14 * std::sin(kTurn * v * 0.8)) / 0.035,
               b = (v - 0.62 - 0.12 * std::sin(kTurn * u)) / 0.045;
  return static_cast<float>(0.75 + 1.1 * std::exp(-a * a) + 0.8 * std::exp(-b * b));
}

std::vector<double> SimulatedModel::LayerDepthsUm(int64_t x, int64_t y) const {
  const double x_um = (static_cast<double>(x) + 0.5) * pattern_.extent_x_mm * 1e3 /
                      static_cast<double>(pattern_.ascans_per_bscan);
  const double y_um = (static_cast<double>(y) + 0.5) * pattern_.extent_y_mm * 1e3 /
                      static_cast<double>(pattern_.bscans_per_volume);
  return DepthsAtUm(x_um, y_um);
}

std::vector<double> SimulatedModel::DepthsAtUm(double x_um, double y_um) const {
  const double u = x_um / (pattern_.extent_x_mm * 1e3), v = y_um / (pattern_.extent_y_mm * 1e3);
  std::vector<double> depths;
  for (const model::SimulatedLayer& layer : source_.layers) {
    depths.push_back(layer.depth_um +
                     layer.tilt_um_per_mm * 1e-3 * (x_um - 500 * pattern_.extent_x_mm) +
                     layer.waviness_um * std::sin(kTurn * (u + 0.5 * v)));
  }
  return depths;
}

void SimulatedModel::Render(int64_t record, void* out) const {
  thread_local std::vector<float> signal;
  signal = spectrum_;
  const Place place = PlaceOf(record / average_);
  const double motion =
      std::max(source_.motion_um_per_volume, 0.0) * static_cast<double>(place.volume);
  const auto phase = [&](double depth_um) {
    return static_cast<float>(std::fmod(2 * k_centre_ * depth_um / kTurn, 1.0));
  };
  const auto add = [&](double depth_um, float amplitude) {
    AddReflector(dk_.data(), psi_.data(), spectrum_.data(), samples_, static_cast<float>(depth_um),
                 phase(depth_um), 2 * amplitude, signal.data());
  };
  if (tissue_) {
    const double surface = SurfaceUm(place.x_um, place.y_um);
    const uint32_t speckle = Hash(static_cast<uint32_t>(place.x) * 7919u +
                                  Hash(static_cast<uint32_t>(place.y) + noise_key_));
    const size_t m = speckle % speckle_;
    const auto n = static_cast<size_t>(samples_);
    AddTissue(dk_.data(), tissue_re_.data() + m * n, tissue_im_.data() + m * n, spectrum_.data(),
              samples_, static_cast<float>(surface), phase(surface),
              Texture(place.x_um, place.y_um), signal.data());
  } else {
    const auto depths = DepthsAtUm(place.x_um, place.y_um);
    for (size_t i = 0; i < depths.size(); ++i)
      add(depths[i], static_cast<float>(source_.layers[i].reflectivity));
  }
  // Scatterers are seen through a lateral Gaussian of about two A-scans and drift sideways from
  // volume to volume.
  const double field_x = pattern_.extent_x_mm * 1e3;
  const double pitch_x = field_x / static_cast<double>(pattern_.ascans_per_bscan);
  const double pitch_y =
      pattern_.extent_y_mm * 1e3 / static_cast<double>(pattern_.bscans_per_volume);
  for (const Scatterer& s : scatterers_) {
    const double dy = (place.y_um - s.y_um) / (2.2 * pitch_y);
    if (dy * dy >= 9) continue;
    const double dx = (place.x_um - std::fmod(s.x_um + motion, field_x)) / (2.2 * pitch_x),
                 far = dx * dx + dy * dy;
    if (far < 9)
      add(SurfaceUm(s.x_um, s.y_um) + s.below_um,
          s.amplitude * static_cast<float>(std::exp(-0.5 * far)));
  }
  AddNoise(
      samples_,
      Hash(static_cast<uint32_t>(record) ^ Hash(static_cast<uint32_t>(record >> 32) + noise_key_)),
      read_noise_, signal.data());
  switch (raw_type_) {
    case DType::kU8: Digitise(signal.data(), static_cast<uint8_t*>(out)); break;
    case DType::kI16: Digitise(signal.data(), static_cast<int16_t*>(out)); break;
    case DType::kF32: Digitise(signal.data(), static_cast<float*>(out)); break;
    default: Digitise(signal.data(), static_cast<uint16_t*>(out)); break;
  }
}

template <typename T>
void SimulatedModel::Digitise(const float* signal, T* out) const {
  const float top = static_cast<float>(full_scale_);
  const float less = std::is_same_v<T, int16_t> ? std::floor(0.5f * (top + 1)) : 0.0f;
  for (int64_t j = 0; j < samples_; ++j) {
    // Rounds non-negative values in a way that vectorises; lround does not.
    // NOLINTNEXTLINE(bugprone-incorrect-roundings)
    const float counts =
        static_cast<float>(static_cast<int32_t>(std::min(std::max(signal[j], 0.0f), top) + 0.5f));
    out[j] = static_cast<T>(std::min(counts, top) - less);
  }
}

}  // namespace octavo::source

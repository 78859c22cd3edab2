#pragma once

#include <cstdint>
#include <vector>

#include "server/model/scan_spec.h"

namespace octavo::source {

/// Physical forward model of a spectral-domain OCT instrument that images a phantom. For the sample
/// j of a record
///   I(j) = A S(j) [1 + Σ 2 r_i cos(2 k(j) z_i + ψ(j))] (1 + f(j)) + noise,
/// A: 45 % of the ADC range; S: source spectrum; k(j) = 2π/λ(j), λ falling along the record; ψ = a2
/// d² + a3 d³ with d the sample's position on the k-linear axis counted from the middle, so that
/// processing with the same a2, a3 compensates; f: fixed pattern; shot noise for 100 electrons a
/// count and read noise. Deterministic in (seed, record): independent of block size and threads;
/// between kinds of CPU a count may round the other way. Raw values: whole numbers 0 ... 2^bits-1
/// (U8, U16, F32), I16 less half the range. Depths beyond the spectrometer's range alias, as they
/// do in the instrument; the default phantom shrinks until it fits.
class SimulatedModel {
 public:
  /// `source` and geometry must have been checked (InspectSource). Each group of `average`
  /// successive records shows the same place.
  SimulatedModel(const model::SimulatedSource& source, const pattern::Pattern& pattern,
                 int64_t samples, DType raw_type, int64_t average = 1);

  /// Writes record `record` (counted from the start of the scan, flyback included) to `out` [S] of
  /// the raw type. Thread-safe.
  void Render(int64_t record, void* out) const;

  /// Wavelength of each sample in nm, descending.
  static std::vector<double> WavelengthNm(const model::SimulatedSource& source, int64_t samples);
  /// True optical depth of the explicit layers at B-scan y, A-scan x, in µm.
  std::vector<double> LayerDepthsUm(int64_t x, int64_t y) const;
  /// The same at a place of the field: 0 ... extent in µm along x and y.
  std::vector<double> DepthsAtUm(double x_um, double y_um) const;
  double full_scale() const { return full_scale_; }

 private:
  struct Scatterer {
    double x_um, y_um, below_um;
    float amplitude;
  };
  struct Place {
    double x_um, y_um;
    int64_t x, y, volume;
  };
  Place PlaceOf(int64_t record) const;
  Place PlanPlaceOf(int64_t record) const;
  double SurfaceUm(double x_um, double y_um) const;
  float Texture(double x_um, double y_um) const;
  void BuildTissue(uint64_t seed);
  template <typename T>
  void Digitise(const float* signal, T* out) const;

  const model::SimulatedSource source_;
  const pattern::Pattern pattern_;
  const int64_t samples_;
  const DType raw_type_;
  const int64_t average_;
  bool tissue_ = false;       // the default phantom, not explicit layers
  double phantom_scale_ = 1;  // of the phantom's depths, <= 1
  uint32_t noise_key_ = 0;
  double full_scale_ = 0, k_centre_ = 0;  // rad/µm
  float read_noise_ = 0;
  std::vector<float> dk_;        // [S] k(j) - k_centre, rad/µm, in turns: divided by 2π, times 2
  std::vector<float> psi_;       // [S] dispersion phase, turns, -1/2 ... 1/2
  std::vector<float> spectrum_;  // [S] A S(j) (1 + f(j)), counts
  std::vector<Scatterer> scatterers_;
  size_t speckle_ = 0;  // realisations of the tissue below the surface
  std::vector<float> tissue_re_,
      tissue_im_;  // [speckle_][S] analytic fringe with the surface at depth 0
};

}  // namespace octavo::source

#include "gpu/spectral/k_calibration.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"

namespace octavo::inline gpu {
namespace {

using std::numbers::pi;
using Complex = std::complex<double>;

// DFT by recursion over the prime factors of n, not scaled. Sign -1 is the forward transform, +1
// the backward transform.
void Transform(const Complex* in, int64_t n, int64_t stride, int sign, Complex* out) {
  if (n == 1) {
    out[0] = in[0];
    return;
  }
  int64_t p = 2;
  while (n % p != 0) p = p * p > n ? n : p + 1;
  const int64_t m = n / p;
  for (int64_t q = 0; q < p; ++q) Transform(in + q * stride, m, stride * p, sign, out + q * m);
  std::vector<Complex> parts(static_cast<size_t>(p));
  std::vector<Complex> turns(static_cast<size_t>(n));
  for (int64_t k = 0; k < n; ++k)
    turns[static_cast<size_t>(k)] =
        std::polar(1.0, sign * 2 * pi * static_cast<double>(k) / static_cast<double>(n));
  for (int64_t k = 0; k < m; ++k) {
    for (int64_t q = 0; q < p; ++q) parts[static_cast<size_t>(q)] = out[q * m + k];
    for (int64_t r = 0; r < p; ++r) {
      Complex sum = 0;
      for (int64_t q = 0; q < p; ++q)
        sum += parts[static_cast<size_t>(q)] * turns[static_cast<size_t>(q * (k + r * m) % n)];
      out[r * m + k] = sum;
    }
  }
}

std::vector<Complex> Dft(const std::vector<Complex>& in, int sign) {
  std::vector<Complex> out(in.size());
  Transform(in.data(), std::ssize(in), 1, sign, out.data());
  return out;
}

// Least squares: x that minimises Σ w (A x - b)², by Householder reflections (the normal equations
// would lose half the digits).
std::vector<double> LeastSquares(std::vector<std::vector<double>> columns, std::vector<double> b) {
  const size_t n = columns.size(), m = b.size();
  std::vector<double> diagonal(n);
  for (size_t k = 0; k < n; ++k) {
    auto& v = columns[k];
    double norm = 0;
    for (size_t i = k; i < m; ++i) norm += v[i] * v[i];
    norm = std::sqrt(norm);
    if (norm == 0) {
      diagonal[k] = 0;
      continue;
    }
    diagonal[k] = v[k] > 0 ? -norm : norm;
    v[k] -= diagonal[k];
    double square = 0;
    for (size_t i = k; i < m; ++i) square += v[i] * v[i];
    const auto reflect = [&](std::vector<double>& u) {
      double dot = 0;
      for (size_t i = k; i < m; ++i) dot += v[i] * u[i];
      for (size_t i = k; i < m; ++i) u[i] -= 2 * dot / square * v[i];
    };
    for (size_t c = k + 1; c < n; ++c) reflect(columns[c]);
    reflect(b);
  }
  std::vector<double> x(n, 0.0);
  for (size_t k = n; k-- > 0;) {
    double sum = b[k];
    for (size_t c = k + 1; c < n; ++c) sum -= columns[c][k] * x[c];
    x[k] = diagonal[k] == 0 ? 0 : sum / diagonal[k];
  }
  return x;
}

// Chebyshev polynomials T_0 ... T_degree at u in -1 ... 1, and their derivatives.
void Chebyshev(double u, size_t terms, double* t, double* dt) {
  t[0] = 1, dt[0] = 0;
  if (terms > 1) t[1] = u, dt[1] = 1;
  for (size_t i = 2; i < terms; ++i) {
    t[i] = 2 * u * t[i - 1] - t[i - 2];
    dt[i] = 2 * t[i - 1] + 2 * u * dt[i - 1] - dt[i - 2];
  }
}

}  // namespace

std::vector<double> FitIndexPolynomial(std::span<const double> index, int64_t degree) {
  // r = j + j (top - j) q(u) with u = j / top: the ends are exact whatever q is.
  const size_t samples = index.size();
  const double top = static_cast<double>(samples - 1);
  const size_t terms = static_cast<size_t>(std::max<int64_t>(1, degree - 1));
  std::vector<std::vector<double>> columns(terms, std::vector<double>(samples));
  std::vector<double> rest(samples);
  for (size_t j = 0; j < samples; ++j) {
    const double u = static_cast<double>(j) / top;
    double power = u * (1 - u);
    for (size_t i = 0; i < terms; ++i, power *= u) columns[i][j] = power;
    rest[j] = index[j] / top - u;
  }
  const std::vector<double> q = LeastSquares(std::move(columns), std::move(rest));
  // r / top = u + Σ q_i (u^(i+1) - u^(i+2)); in powers of j.
  std::vector<double> c(terms + 2, 0.0);
  c[1] = 1;
  for (size_t i = 0; i < terms; ++i) {
    c[i + 1] += q[i];
    c[i + 2] -= q[i];
  }
  for (size_t i = 0; i < c.size(); ++i) c[i] *= std::pow(top, 1 - static_cast<double>(i));
  return c;
}

absl::Status CheckOptions(int64_t samples, const KCalibrationOptions& options) {
  if (samples < 16 || samples > 65536) return FieldOutOfRange("samples", samples, 16, 65536);
  if (options.least_bin < 2 || options.least_bin >= samples / 2 - 1) {
    return FieldOutOfRange("least_bin", options.least_bin, 2, samples / 2 - 2);
  }
  if (options.polynomial_degree < 1 || options.polynomial_degree > 15) {
    return FieldOutOfRange("polynomial_degree", options.polynomial_degree, 1, 15);
  }
  if (!(options.edge >= 0 && options.edge < 0.4))
    return FieldNotAllowed("edge", options.edge, "0 to below 0.4");
  return absl::OkStatus();
}

absl::StatusOr<KCalibration> CalibrateK(std::span<const double> spectrum,
                                        const KCalibrationOptions& options) {
  const auto samples = std::ssize(spectrum);
  OCTAVO_RETURN_IF_ERROR(CheckOptions(samples, options));
  // The search for the peak applies a window, so that the ends of the record do not leak into the
  // peak.
  const double top = static_cast<double>(samples - 1);
  std::vector<Complex> record(spectrum.begin(), spectrum.end()), windowed(record);
  for (int64_t j = 0; j < samples; ++j)
    windowed[static_cast<size_t>(j)] *= 0.5 - 0.5 * std::cos(2 * pi * static_cast<double>(j) / top);
  const std::vector<Complex> seen = Dft(windowed, -1);
  int64_t peak = options.least_bin;
  double mean = 0;
  const int64_t bins = samples / 2 - options.least_bin;
  for (int64_t b = options.least_bin; b < options.least_bin + bins; ++b) {
    if (std::abs(seen[static_cast<size_t>(b)]) > std::abs(seen[static_cast<size_t>(peak)]))
      peak = b;
    mean += std::abs(seen[static_cast<size_t>(b)]);
  }
  mean /= static_cast<double>(bins);
  if (!(std::abs(seen[static_cast<size_t>(peak)]) > 4 * mean)) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(
                        "no reflector stands out of the record: the largest bin ", peak, " has ",
                        std::abs(seen[static_cast<size_t>(peak)]), ", the mean is ", mean)),
                    {.reason = Reason::kNoFringe, .field = "", .numbers = {}});
  }

  // The analytic signal: positive frequencies around the peak, in a band that excludes those near 0
  // and near twice the peak.
  const auto centre = static_cast<double>(peak), half = 0.5 * centre;
  std::vector<Complex> spectrum_of = Dft(record, -1);
  for (int64_t b = 0; b < samples; ++b) {
    const double away = std::abs(static_cast<double>(b) - centre) / half;
    const double gain = b == 0 || b >= (samples + 1) / 2 || away >= 1 ? 0
                        : away < 0.7                                  ? 1
                                     : 0.5 + 0.5 * std::cos(pi * (away - 0.7) / 0.3);
    spectrum_of[static_cast<size_t>(b)] *= gain;
  }
  const std::vector<Complex> analytic = Dft(spectrum_of, +1);

  // The unwrapped phase of the analytic signal, minus the linear phase of the peak.
  const auto first = static_cast<int64_t>(std::ceil(options.edge * top)),
             last = samples - 1 - first;
  const size_t terms = static_cast<size_t>(options.polynomial_degree) + 1;
  std::vector<double> phase(static_cast<size_t>(last - first + 1)), weight(phase.size());
  double previous = 0, power = 0;
  const double turn = 2 * pi * centre / static_cast<double>(samples);
  for (int64_t j = first; j <= last; ++j) {
    const Complex a =
        analytic[static_cast<size_t>(j)] * std::polar(1.0, -turn * static_cast<double>(j));
    const auto i = static_cast<size_t>(j - first);
    phase[i] = previous + std::remainder(std::arg(a) - previous, 2 * pi);
    previous = phase[i];
    weight[i] = std::abs(a);
    power += weight[i] * weight[i];
  }
  if (power == 0) return absl::InternalError("the fringe has no power");
  std::vector<std::vector<double>> columns(terms, std::vector<double>(phase.size()));
  std::vector<double> wanted(phase.size());
  std::vector<double> t(terms), dt(terms);
  const auto u_of = [&](double j) { return 2 * j / top - 1; };
  for (size_t i = 0; i < phase.size(); ++i) {
    Chebyshev(u_of(static_cast<double>(first) + static_cast<double>(i)), terms, t.data(),
              dt.data());
    for (size_t c = 0; c < terms; ++c) columns[c][i] = weight[i] * t[c];
    wanted[i] = weight[i] * phase[i];
  }
  const std::vector<double> fit = LeastSquares(columns, wanted);
  KCalibration result;
  for (size_t i = 0; i < phase.size(); ++i) {
    double rest = wanted[i];
    for (size_t c = 0; c < terms; ++c) rest -= columns[c][i] * fit[c];
    result.residual_rms_rad += rest * rest;
  }
  result.residual_rms_rad = std::sqrt(result.residual_rms_rad / power);
  result.fringe_power = power;

  // The smooth phase and its slope per sample at any position.
  const auto phase_at = [&](double j, double* slope) {
    Chebyshev(u_of(j), terms, t.data(), dt.data());
    double sum = turn * j, d = turn;
    for (size_t c = 0; c < terms; ++c) {
      sum += fit[c] * t[c];
      d += fit[c] * dt[c] * 2 / top;
    }
    *slope = d;
    return sum;
  };
  double slope = 0;
  for (int64_t j = 0; j < samples; ++j) {
    phase_at(static_cast<double>(j), &slope);
    if (!(slope > 0)) {
      return WithInfo(absl::FailedPreconditionError(absl::StrCat(
                          "the fitted phase turns back at sample ", j,
                          "; use a lower polynomial_degree, a larger edge or a deeper reflector")),
                      {.reason = Reason::kPhaseNotMonotonic,
                       .field = "",
                       .numbers = {{"sample", absl::StrCat(j)}}});
    }
  }
  const double begin = phase_at(0, &slope), end = phase_at(top, &slope);
  result.peak_bin = (end - begin) / (2 * pi) * static_cast<double>(samples) / top;
  result.index.resize(static_cast<size_t>(samples));
  double at = 0;
  for (int64_t j = 0; j < samples; ++j) {
    const double target = begin + (end - begin) * static_cast<double>(j) / top;
    // Newton's method from the previous position, kept within the bracket of the last steps.
    double lo = at, hi = top;
    for (int step = 0; step < 60; ++step) {
      const double error = phase_at(at, &slope) - target;
      (error > 0 ? hi : lo) = at;
      const double next = at - error / slope;
      const double inside = next > lo && next < hi ? next : 0.5 * (lo + hi);
      if (std::abs(inside - at) < 1e-12 * top) break;
      at = inside;
    }
    result.index[static_cast<size_t>(j)] = at;
  }
  result.index.front() = 0;
  result.index.back() = top;
  result.polynomial =
      FitIndexPolynomial(result.index, std::max<int64_t>(2, options.polynomial_degree + 1));
  return result;
}

}  // namespace octavo::inline gpu

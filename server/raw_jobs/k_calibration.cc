#include "gpu/spectral/k_calibration.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/base/errors.h"
#include "server/model/resolved_scan.h"
#include "server/processing/first_records.h"
#include "server/processing/raw_records.h"
#include "server/raw_jobs/raw_jobs.h"

namespace octavo::raw_jobs {
namespace {

class KCalibrationWork final : public job::JobWork {
 public:
  KCalibrationWork(volume::VolumeHold raw, const model::KCalibrationSpec& spec,
                   KCalibrationOptions options, std::vector<int64_t> places)
      : raw_(std::move(raw)), spec_(spec), options_(options), places_(std::move(places)) {}

  job::JobKind kind() const override { return job::JobKind::kKCalibration; }
  int home_device() const override { return raw_.device; }
  absl::StatusOr<job::JobPlan> Plan(Device&) const override {
    job::JobPlan plan;
    plan.text = absl::StrCat("phase of the analytic signal of ", places_.size(),
                             " records; a polynomial of degree ", options_.polynomial_degree, "\n");
    return plan;
  }
  std::string Parameters() const override {
    return nlohmann::json{{"volume", spec_.volume},
                          {"first_record", spec_.first_record},
                          {"records", places_.size()},
                          {"polynomial_degree", options_.polynomial_degree},
                          {"edge", options_.edge}}
        .dump();
  }

  absl::Status Run(job::JobRun& run, std::stop_token stop) override {
    const SpectralConfig& chain = raw_.status.origin->chain;
    const int64_t bytes = raw_.status.raw->record_bytes;
    OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer record, run.device().AllocatePinned(bytes));
    run.Stage(job::JobStage::kPhase, std::ssize(places_), 0, 1);
    std::vector<double> index(static_cast<size_t>(chain.samples_per_record), 0.0);
    double weights = 0, residual = 0, peak = 0;
    int64_t done = 0;
    for (const int64_t place : places_) {
      if (stop.stop_requested()) return absl::CancelledError("cancelled");
      OCTAVO_RETURN_IF_ERROR(run.device().CopyToHost(
          run.stream(), record.data(), raw_.slot->volume.as<uint8_t>() + place * bytes, bytes));
      OCTAVO_RETURN_IF_ERROR(run.stream().Synchronize());
      std::vector<double> samples = processing::SamplesOf(chain, record.as<uint8_t>());
      for (size_t j = 0; j < spec_.processing.background_spectrum.size(); ++j)
        samples[j] -= static_cast<double>(spec_.processing.background_spectrum[j]);
      OCTAVO_ASSIGN_OR_RETURN(const KCalibration found, CalibrateK(samples, options_));
      for (size_t j = 0; j < index.size(); ++j) index[j] += found.fringe_power * found.index[j];
      weights += found.fringe_power;
      residual += found.fringe_power * found.residual_rms_rad * found.residual_rms_rad;
      peak += found.fringe_power * found.peak_bin;
      run.Step(++done, found.residual_rms_rad);
    }
    model::KLinearisationEstimate estimate;
    for (size_t j = 0; j < index.size(); ++j) {
      index[j] /= weights;
      estimate.nonlinearity_samples =
          std::max(estimate.nonlinearity_samples, std::abs(index[j] - static_cast<double>(j)));
    }
    estimate.polynomial = FitIndexPolynomial(index, options_.polynomial_degree + 1);
    estimate.residual_rms_rad = std::sqrt(residual / weights);
    estimate.peak_bin = peak / weights;
    estimate.index = std::move(index);
    run.Log(absl::StrCat("largest |r[j] - j| ", estimate.nonlinearity_samples,
                         " samples, residual ", estimate.residual_rms_rad, " rad, peak at bin ",
                         estimate.peak_bin));
    run.Found(std::move(estimate));
    return absl::OkStatus();
  }

 private:
  const volume::VolumeHold raw_;
  const model::KCalibrationSpec spec_;
  const KCalibrationOptions options_;
  const std::vector<int64_t> places_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<job::JobWork>> MakeKCalibrationWork(
    const model::KCalibrationSpec& spec, const job::JobEnvironment& environment) {
  OCTAVO_ASSIGN_OR_RETURN(volume::VolumeHold raw,
                          PinRaw(*environment.volumes, "k_calibration", spec.volume));
  const int64_t samples = raw.status.origin->chain.samples_per_record;
  const auto field = [](const char* name) { return absl::StrCat("k_calibration.", name); };
  std::vector<int64_t> placed = PlacedRecords(*raw.status.raw);
  const auto count = std::ssize(placed);
  if (spec.first_record >= count) {
    return FieldOutOfRange(field("first_record"), spec.first_record, 0, count - 1);
  }
  const int64_t records = spec.records == 0 ? 1 : spec.records;
  if (records > std::min<int64_t>(4096, count - spec.first_record)) {
    return InvalidField(field("records"),
                        absl::StrCat("is ", records, "; allowed 1 to ",
                                     std::min<int64_t>(4096, count - spec.first_record)));
  }
  placed = {placed.begin() + spec.first_record, placed.begin() + spec.first_record + records};
  // Without a processing, use the spectrum that the scan itself subtracts.
  model::KCalibrationSpec taken = spec;
  if (const model::Processing& of_scan = raw.status.origin->spec.processing;
      !spec.processing_given && of_scan.background == model::BackgroundMode::kStatic) {
    taken.processing.background = of_scan.background;
    taken.processing.background_spectrum = of_scan.background_spectrum;
  }
  const model::Processing& p = taken.processing;
  if (p.background == model::BackgroundMode::kRolling ||
      p.background == model::BackgroundMode::kBscan) {
    return InvalidField(
        field("processing.background.mode"),
        "is ROLLING or BSCAN: the mean of records of a mirror is its fringe; allowed NONE, STATIC");
  }
  const bool given = p.background == model::BackgroundMode::kStatic;
  if (given != !p.background_spectrum.empty() ||
      (given && std::ssize(p.background_spectrum) != samples)) {
    return InvalidField(field("processing.background.spectrum"),
                        absl::StrCat("has ", p.background_spectrum.size(),
                                     " values; mode STATIC needs ", samples, ", others none"));
  }
  if (!std::all_of(p.background_spectrum.begin(), p.background_spectrum.end(),
                   [](float v) { return std::isfinite(v); })) {
    return InvalidField(field("processing.background.spectrum"), "is not finite");
  }
  KCalibrationOptions options;
  if (spec.least_bin != 0) options.least_bin = spec.least_bin;
  if (spec.polynomial_degree != 0) options.polynomial_degree = spec.polynomial_degree;
  if (spec.edge.has_value()) options.edge = *spec.edge;
  if (absl::Status status = CheckOptions(samples, options); !status.ok())
    return base::AtField("k_calibration.", status);
  return std::make_unique<KCalibrationWork>(std::move(raw), taken, options, std::move(placed));
}

}  // namespace octavo::raw_jobs

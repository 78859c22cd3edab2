#include <algorithm>
#include <cmath>
#include <memory>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

#include "gpu/array/project.h"
#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "gpu/device/alignment.h"
#include "gpu/spectral/spectral_design.h"
#include "server/base/errors.h"
#include "server/processing/raw_records.h"
#include "server/processing/replay_records.h"
#include "server/raw_jobs/raw_jobs.h"

namespace octavo::raw_jobs {
namespace {

// The search uses the phase at the ends of the band, in rad: u = a2 (N/2)², v = a3 (N/2)³. A window
// weighs the ends least, so that sharpness falls off over several rad of u or v.
constexpr double kCoarseU = 3, kCoarseV = 4, kFinest = 0.01;
constexpr double kDefaultU = 60, kDefaultV = 30;
constexpr int64_t kCoarseAscans = 64, kMostEvaluations = 16384, kMostFineSteps = 400;

struct Range {
  double begin = 0, end = 0;
  int64_t Points(double step) const {
    return static_cast<int64_t>(std::ceil((end - begin) / step)) + 1;
  }
  double At(int64_t i, int64_t points) const {
    return points == 1
               ? begin
               : begin + (end - begin) * static_cast<double>(i) / static_cast<double>(points - 1);
  }
};

/// The range of the search and its chain.
struct Search {
  model::ResolvedScan scan;  // of the result
  SpectralConfig chain;      // gives the power of the A-scans of the search; without a phase
  Range u, v;
  int64_t ascans = 0, first_bin = 0, bins = 0;
  double half() const { return 0.5 * static_cast<double>(chain.window.size()); }
  double A2(double u_rad) const { return u_rad / (half() * half()); }
  double A3(double v_rad) const { return v_rad / (half() * half() * half()); }
  int64_t evaluations() const { return u.Points(kCoarseU) * v.Points(kCoarseV); }
};

SpectralConfig WithAscans(const Search& search, int64_t ascans, double u, double v) {
  SpectralConfig chain = search.chain;
  chain.max_records_per_block = ascans;
  if (chain.background == math::Background::kRolling) {  // one group of them all
    chain.background_group_records = ascans;
    chain.background_window_records = 0;
    chain.volume_records = 0;
  }
  chain.phase_rad = MakeDispersionPhase(search.A2(u), search.A3(v), std::ssize(chain.window));
  return chain;
}

class AutofocusWork final : public job::JobWork {
 public:
  AutofocusWork(volume::VolumeHold raw, const model::DispersionAutofocusSpec& spec, Search search,
                std::vector<int64_t> places)
      : raw_(std::move(raw)), spec_(spec), search_(std::move(search)), places_(std::move(places)) {}

  job::JobKind kind() const override { return job::JobKind::kDispersionAutofocus; }
  int home_device() const override { return raw_.device; }

  absl::StatusOr<job::JobPlan> Plan(Device& device) const override {
    job::JobPlan plan;
    plan.workspace_bytes = SearchBytes(device);
    if (spec_.reprocess) {
      job::JobPlan again;
      AddReprocess(WithDispersion(1, 1), device, &again);
      again.workspace_bytes += plan.workspace_bytes;
      plan = std::move(again);
    }
    plan.text = absl::StrFormat(
        "sweep: a2 %g to %g rad/sample^2, a3 %g to %g rad/sample^3, %d pairs, then finer ones "
        "around the best\n"
        "sharpness: of %d A-scans, bins %d to %d\n",
        search_.A2(search_.u.begin), search_.A2(search_.u.end), search_.A3(search_.v.begin),
        search_.A3(search_.v.end), search_.evaluations(), std::ssize(places_), search_.first_bin,
        search_.first_bin + search_.bins - 1);
    if (spec_.reprocess)
      absl::StrAppend(&plan.text, "then the chain with the coefficients found\n");
    absl::StrAppend(
        &plan.text, "processing: ",
        spec_.processing_given ? "as the request says" : "as that of the scan, less its dispersion",
        "\n");
    plan.warnings = search_.scan.warnings;
    return plan;
  }

  std::string Parameters() const override {
    return nlohmann::json{{"volume", spec_.volume},
                          {"a2", {search_.A2(search_.u.begin), search_.A2(search_.u.end)}},
                          {"a3", {search_.A3(search_.v.begin), search_.A3(search_.v.end)}},
                          {"ascans", places_.size()},
                          {"first_bin", search_.first_bin},
                          {"bins", search_.bins}}
        .dump();
  }

  absl::Status Run(job::JobRun& run, std::stop_token stop) override {
    OCTAVO_RETURN_IF_ERROR(Prepare(run));
    const double whole = spec_.reprocess ? 0.9 : 1.0;
    model::DispersionEstimate estimate;
    const auto score = [&](int64_t ascans, double u, double v) -> absl::StatusOr<double> {
      if (stop.stop_requested()) return absl::CancelledError("cancelled");
      ++estimate.evaluations;
      return Sharpness(run, ascans, u, v);
    };

    // Coarse search: the whole plane with a few A-scans.
    const int64_t few = std::min<int64_t>(kCoarseAscans, std::ssize(places_)),
                  all = std::ssize(places_);
    const int64_t nu = search_.u.Points(kCoarseU), nv = search_.v.Points(kCoarseV);
    run.Stage(job::JobStage::kSweep, nu * nv, 0, 0.7 * whole);
    double best_u = 0, best_v = 0, best = -1;
    for (int64_t i = 0; i < nu; ++i) {
      for (int64_t j = 0; j < nv; ++j) {
        const double u = search_.u.At(i, nu), v = search_.v.At(j, nv);
        OCTAVO_ASSIGN_OR_RETURN(const double s, score(few, u, v));
        if (s > best) best = s, best_u = u, best_v = v;
        run.Step(i * nv + j + 1, best);
      }
    }
    run.Log(absl::StrFormat("sweep: a2 %g, a3 %g, sharpness %g", search_.A2(best_u),
                            search_.A3(best_v), best));

    // Fine search: the neighbours of the best, with shrinking steps.
    double step = 0.5;  // of the coarse ones
    const int64_t levels =
        static_cast<int64_t>(std::ceil(std::log2(std::max(kCoarseU, kCoarseV) * step / kFinest)));
    run.Stage(job::JobStage::kRefine, levels, 0.7 * whole, whole);
    OCTAVO_ASSIGN_OR_RETURN(best, score(all, best_u, best_v));
    int64_t level = 0;
    for (int64_t n = 0; n < kMostFineSteps && level < levels; ++n) {
      const double at_u = best_u, at_v = best_v;
      for (int i = -1; i <= 1; ++i) {
        for (int j = -1; j <= 1; ++j) {
          if ((i == 0 && j == 0) || (nv == 1 && j != 0)) continue;
          const double u = std::clamp(at_u + i * step * kCoarseU, search_.u.begin, search_.u.end);
          const double v = std::clamp(at_v + j * step * kCoarseV, search_.v.begin, search_.v.end);
          if (u == at_u && v == at_v) continue;
          OCTAVO_ASSIGN_OR_RETURN(const double s, score(all, u, v));
          if (s > best) best = s, best_u = u, best_v = v;
        }
      }
      if (best_u != at_u || best_v != at_v) continue;
      step /= 2;
      run.Step(++level, best);
    }
    estimate.a2 = search_.A2(best_u);
    estimate.a3 = search_.A3(best_v);
    estimate.sharpness = best;
    OCTAVO_ASSIGN_OR_RETURN(estimate.sharpness_before, score(all, 0, 0));
    run.Log(
        absl::StrFormat("found a2 %g rad/sample^2, a3 %g rad/sample^3: sharpness %g, without %g",
                        estimate.a2, estimate.a3, estimate.sharpness, estimate.sharpness_before));
    for (const auto& [name, best_at, range] :
         {std::tuple{"a2", best_u, search_.u}, std::tuple{"a3", best_v, search_.v}}) {
      // Sharper pairs may lie beyond.
      if (range.begin >= range.end ||
          (best_at > range.begin + kFinest && best_at < range.end - kFinest))
        continue;
      run.Warn(absl::StrCat(
          "The sharpest ", name,
          " lies at the end of the range that was searched: it may lie beyond. Give ", name,
          "_begin and ", name,
          "_end of a wider range, or a processing with the k-linearisation of the instrument."));
    }
    run.Found(estimate);
    if (!spec_.reprocess) return absl::OkStatus();
    auto scan =
        std::make_shared<const model::ResolvedScan>(WithDispersion(estimate.a2, estimate.a3));
    return RunReprocess(run, stop, raw_, scan, whole, 1);
  }

 private:
  // Device memory for spectra, their power, its sums, and one chain at a time.
  int64_t SearchBytes(Device& device) const {
    const auto ascans = std::ssize(places_);
    return AlignedBytes(ascans * raw_.status.raw->record_bytes) +
           AlignedBytes(ascans * search_.chain.depth * 4) + AlignedBytes(ascans * 8) +
           SpectralProcessor::DeviceBytes(WithAscans(search_, ascans, 1, 1), device);
  }

  // The processing was resolved without dispersion; the chain is also valid with one.
  model::ResolvedScan WithDispersion(double a2, double a3) const {
    model::ResolvedScan scan = search_.scan;
    scan.spec.processing.dispersion_a2 = a2;
    scan.spec.processing.dispersion_a3 = a3;
    scan.chain.phase_rad = MakeDispersionPhase(a2, a3, std::ssize(scan.chain.window));
    return scan;
  }

  // Gathers the spectra of the search; the first kCoarseAscans alone are also spread over the
  // volume.
  absl::Status Prepare(job::JobRun& run) {
    const auto ascans = std::ssize(places_);
    const int64_t bytes = raw_.status.raw->record_bytes;
    OCTAVO_RETURN_IF_ERROR(run.Charge(
        SpectralProcessor::DeviceBytes(WithAscans(search_, ascans, 1, 1), run.device())));
    OCTAVO_ASSIGN_OR_RETURN(void* const spectra, run.Allocate(ascans * bytes));
    OCTAVO_ASSIGN_OR_RETURN(void* const power, run.Allocate(ascans * search_.chain.depth * 4));
    OCTAVO_ASSIGN_OR_RETURN(void* const sums, run.Allocate(ascans * 8));
    OCTAVO_ASSIGN_OR_RETURN(host_sums_, run.device().AllocatePinned(ascans * 8));
    spectra_ = static_cast<uint8_t*>(spectra);
    power_ = static_cast<float*>(power);
    sums_ = static_cast<float*>(sums);
    for (int64_t i = 0; i < ascans; ++i) {
      const int64_t place = places_[static_cast<size_t>(i)];
      OCTAVO_RETURN_IF_ERROR(
          run.device().CopyOnDevice(run.stream(), spectra_ + i * bytes,
                                    raw_.slot->volume.as<uint8_t>() + place * bytes, bytes));
    }
    return run.stream().Synchronize();
  }

  // Σ p² / (Σ p)² over the first `ascans` A-scans with the phase u, v at the ends of the band.
  absl::StatusOr<double> Sharpness(job::JobRun& run, int64_t ascans, double u, double v) {
    Device& device = run.device();
    const StreamRef stream = run.stream();
    OCTAVO_ASSIGN_OR_RETURN(const auto chain,
                            SpectralProcessor::Create(WithAscans(search_, ascans, u, v), device));
    const absl::Status enqueued = [&]() -> absl::Status {
      OCTAVO_RETURN_IF_ERROR(chain->BeginVolume(stream));
      OCTAVO_RETURN_IF_ERROR(chain->Process(stream, spectra_, ascans,
                                            {.raster = {.ascans_per_bscan = ascans,
                                                        .bscans_per_volume = 1,
                                                        .flyback_records = 0,
                                                        .bidirectional = false}},
                                            {.volume = power_, .volume_ascans = ascans}));
      OCTAVO_RETURN_IF_ERROR(PowerSums(stream, device, {power_, ascans * search_.chain.depth},
                                       ascans, search_.chain.depth, 0, search_.chain.depth,
                                       {sums_, 2 * ascans}));
      return device.CopyToHost(stream, host_sums_.data(), sums_, ascans * 8);
    }();
    const absl::Status passed = stream.Synchronize();  // the chain ends here
    OCTAVO_RETURN_IF_ERROR(enqueued);
    OCTAVO_RETURN_IF_ERROR(passed);
    double sum = 0, squares = 0;
    for (int64_t a = 0; a < ascans; ++a) {
      sum += static_cast<double>(host_sums_.as<float>()[2 * a]);
      squares += static_cast<double>(host_sums_.as<float>()[2 * a + 1]);
    }
    if (!std::isfinite(squares) || !(sum > 0)) {
      return WithInfo(
          absl::FailedPreconditionError("the A-scans of the search hold no power, or no numbers"),
          {.reason = Reason::kNoSignal, .field = "", .numbers = {}});
    }
    return squares / (sum * sum);
  }

  const volume::VolumeHold raw_;
  const model::DispersionAutofocusSpec spec_;
  const Search search_;
  const std::vector<int64_t> places_;
  uint8_t* spectra_ = nullptr;
  float *power_ = nullptr, *sums_ = nullptr;
  PinnedBuffer host_sums_;
};

absl::StatusOr<Range> RangeOf(const char* name, double begin, double end, double unit,
                              double fallback) {
  if (begin == 0 && end == 0) return Range{.begin = -fallback, .end = fallback};
  if (begin >= end)
    return FieldNotAllowed(absl::StrCat(name, "_begin"),
                           absl::StrCat(begin, " and ", name, "_end ", end), "is a smaller begin");
  return Range{.begin = begin * unit, .end = end * unit};
}

absl::StatusOr<Search> MakeSearch(const volume::VolumeHold& raw,
                                  const model::DispersionAutofocusSpec& spec) {
  Search search;
  model::VolumeStatus origin = raw.status;
  // the search determines the dispersion, so it is not left out
  model::ResolvedScan before = *raw.status.origin;
  before.chain.phase_rad.clear();
  origin.origin = std::make_shared<const model::ResolvedScan>(before);
  model::Processing processing = spec.processing_given ? spec.processing : before.spec.processing;
  if (!spec.processing_given) {
    processing.dispersion_a2 = processing.dispersion_a3 = 0;
    processing.dispersion_phase.clear();
  }
  if (!processing.dispersion_phase.empty() || processing.dispersion_a2 != 0 ||
      processing.dispersion_a3 != 0) {
    return InvalidField("processing.dispersion", "is given, but the job searches for it");
  }
  OCTAVO_ASSIGN_OR_RETURN(search.scan, processing::ResolveReprocess(origin, processing));
  SpectralConfig& chain = search.chain = search.scan.chain;
  const auto n = std::ssize(chain.window);
  const double half = 0.5 * static_cast<double>(n);
  OCTAVO_ASSIGN_OR_RETURN(search.u,
                          RangeOf("a2", spec.a2_begin, spec.a2_end, half * half, kDefaultU));
  OCTAVO_ASSIGN_OR_RETURN(search.v,
                          RangeOf("a3", spec.a3_begin, spec.a3_end, half * half * half, kDefaultV));
  if (spec.only_a2) search.v = {};
  if (search.evaluations() > kMostEvaluations) {
    return InvalidField("a2_end", absl::StrCat("makes with a3 a sweep of ", search.evaluations(),
                                               " pairs; allowed ", kMostEvaluations));
  }
  search.first_bin = spec.first_bin.value_or(8);
  const int64_t most = chain.fft_length - search.first_bin;
  if (search.first_bin >= chain.fft_length / 2) {
    return InvalidField("first_bin", absl::StrCat("is ", search.first_bin, "; allowed 0 to ",
                                                  chain.fft_length / 2 - 1));
  }
  search.bins = spec.bins == 0 ? chain.fft_length / 2 - search.first_bin : spec.bins;
  if (search.bins < 2 || search.bins > most) return FieldOutOfRange("bins", search.bins, 2, most);
  // Between two bins a peak is lower than on a bin, and a3 moves peaks: bins half as wide keep this
  // from looking like a change of sharpness.
  const int64_t finer = chain.fft_length < 2 * n && chain.fft_length <= 65536 ? 2 : 1;
  chain.fft_length *= finer;
  chain.first_bin = search.first_bin * finer;
  chain.depth = search.bins * finer;
  chain.value = math::Value::kPower;
  chain.output = DType::kF32;
  chain.has_levels = false;
  chain.level_lo = chain.level_hi = 0;
  chain.fixed_pattern = math::FixedPattern::kNone;
  if (chain.background == math::Background::kBscan) chain.background = math::Background::kRolling;
  chain.bscan_records = 0;
  chain.repeats = 1;
  chain.repeat_ascans = 0;
  chain.slab_begin = chain.slab_end = 0;
  return search;
}

}  // namespace

absl::StatusOr<std::unique_ptr<job::JobWork>> MakeDispersionAutofocusWork(
    const model::DispersionAutofocusSpec& spec, const job::JobEnvironment& environment) {
  OCTAVO_ASSIGN_OR_RETURN(volume::VolumeHold raw,
                          PinRaw(*environment.volumes, "dispersion_autofocus", spec.volume));
  auto search = MakeSearch(raw, spec);
  if (!search.ok()) return base::AtField("dispersion_autofocus.", search.status());
  const std::vector<int64_t> placed = PlacedRecords(*raw.status.raw);
  const int64_t wanted = spec.ascans == 0 ? 256 : spec.ascans;
  if (wanted > 65536) return FieldOutOfRange("dispersion_autofocus.ascans", wanted, 1, 65536);
  if (placed.empty())
    return InvalidField("dispersion_autofocus.volume", "has no A-scans: none of its records came");
  const int64_t count = std::min<int64_t>(wanted, std::ssize(placed)),
                few = std::min(kCoarseAscans, count);
  // Spread over the volume, in an order that also spreads the first few.
  std::vector<int64_t> places;
  std::vector<bool> taken(static_cast<size_t>(count), false);
  const auto take = [&](int64_t i) {
    if (taken[static_cast<size_t>(i)]) return;
    taken[static_cast<size_t>(i)] = true;
    places.push_back(placed[static_cast<size_t>(i * std::ssize(placed) / count)]);
  };
  for (int64_t i = 0; i < few; ++i) take(i * count / few);
  for (int64_t i = 0; i < count; ++i) take(i);
  return std::make_unique<AutofocusWork>(std::move(raw), spec, *std::move(search),
                                         std::move(places));
}

}  // namespace octavo::raw_jobs

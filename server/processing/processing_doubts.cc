#include "server/processing/processing_doubts.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace octavo::processing {
namespace {

using std::numbers::pi;

constexpr int64_t kFewRecords = 8, kEnoughRecords = 64;  // of a background

// The mean of few records consists mostly of the sample.
void DoubtBackground(const SpectralConfig& c, std::vector<std::string>* doubts) {
  const bool rolling = c.background == math::Background::kRolling;
  if (!rolling && c.background != math::Background::kBscan) return;
  const int64_t records =
      rolling ? std::max(c.background_group_records, c.background_window_records) : c.bscan_records;
  if (records >= kFewRecords) return;
  const std::string cure =
      absl::StrCat(rolling ? "Give a larger processing.background.group_records, or" : "Give",
                   " processing.background NONE, or STATIC with a spectrum.");
  doubts->push_back(
      records == 1
          ? absl::StrCat(
                "processing.background: a group has 1 record, so the background of a record "
                "is the record itself. Nothing is left of the spectra. ",
                cure)
          : absl::StrCat(
                "processing.background: the background is the mean of only ", records,
                " records. Such a mean holds much of the sample, and the chain subtracts it. ",
                cure));
}

/// How a phase changes over the samples that the window lets through.
struct PhaseRun {
  double most = 0;  // largest absolute value, rad
  double jump = 0;  // largest step between two samples, rad
};

template <typename At>
PhaseRun RunOf(const std::vector<float>& window, const At& phase_at) {
  constexpr float kLetsThrough = 0.01f;
  float highest = 0;
  for (const float w : window) highest = std::max(highest, std::abs(w));
  PhaseRun run;
  for (size_t j = 0; j + 1 < window.size(); ++j) {
    if (std::abs(window[j]) < kLetsThrough * highest ||
        std::abs(window[j + 1]) < kLetsThrough * highest)
      continue;
    run.most = std::max({run.most, std::abs(phase_at(j)), std::abs(phase_at(j + 1))});
    run.jump = std::max(run.jump, std::abs(phase_at(j + 1) - phase_at(j)));
  }
  return run;
}

std::string TurnsTooFar(const PhaseRun& run) {
  return absl::StrFormat(
      "the phase turns by up to %.3g rad from one sample to the next. The chain cannot compensate "
      "turns of more than pi",
      run.jump);
}

void DoubtCoefficients(const model::ResolvedScan& scan, std::vector<std::string>* doubts) {
  const model::Processing& p = scan.spec.processing;
  const std::vector<float>& window = scan.chain.window;
  const double n = static_cast<double>(window.size());
  const auto run = [&](double a2, double a3) {
    return RunOf(window, [&, half = 0.5 * n](size_t j) {
      const double d = static_cast<double>(j) - half;
      return a2 * d * d + a3 * d * d * d;
    });
  };
  if (const PhaseRun both = run(p.dispersion_a2, p.dispersion_a3); !(both.jump > pi)) return;
  const PhaseRun of_a2 = run(p.dispersion_a2, 0), of_a3 = run(0, p.dispersion_a3);
  if (of_a2.jump > pi || of_a2.jump >= of_a3.jump) {
    doubts->push_back(absl::StrFormat(
        "processing.dispersion.a2 is %g rad per sample^2: with %d samples %s. With so "
        "many samples, a2 of real instruments is mostly below %.2g "
        "(60 rad at the ends of the band).",
        p.dispersion_a2, std::ssize(window), TurnsTooFar(of_a2), 240 / (n * n)));
  }
  if (of_a3.jump > pi || of_a3.jump > of_a2.jump) {
    doubts->push_back(absl::StrFormat(
        "processing.dispersion.a3 is %g rad per sample^3: with %d samples %s. With so many "
        "samples, a3 of real instruments is mostly below %.2g "
        "(30 rad at the ends of the band).",
        p.dispersion_a3, std::ssize(window), TurnsTooFar(of_a3), 240 / (n * n * n)));
  }
}

// A phase within one turn may be wrapped; its jumps then mean nothing.
void DoubtPhase(const model::ResolvedScan& scan, std::vector<std::string>* doubts) {
  const std::vector<float>& phase = scan.spec.processing.dispersion_phase;
  const auto [least, most] = std::minmax_element(phase.begin(), phase.end());
  if (static_cast<double>(*most) - static_cast<double>(*least) <= 2 * pi + 0.01) return;
  const PhaseRun run =
      RunOf(scan.chain.window, [&](size_t j) { return static_cast<double>(phase[j]); });
  if (!(run.jump > pi)) return;
  doubts->push_back(
      absl::StrFormat("processing.dispersion.phase goes up to %.3g rad: %s. Its unit is rad.",
                      run.most, TurnsTooFar(run)));
}

void DoubtDispersion(const model::ResolvedScan& scan, std::vector<std::string>* doubts) {
  if (scan.chain.phase_rad.empty()) return;
  scan.spec.processing.dispersion_phase.empty() ? DoubtCoefficients(scan, doubts)
                                                : DoubtPhase(scan, doubts);
}

// Flat-top windows have slightly negative values.
void DoubtWindow(const model::ResolvedScan& scan, std::vector<std::string>* doubts) {
  constexpr float kTold = 0.01f;
  const std::vector<float>& values = scan.spec.processing.window_values;
  if (values.empty()) return;
  float highest = 0;
  for (const float w : values) highest = std::max(highest, std::abs(w));
  const auto below =
      std::count_if(values.begin(), values.end(), [&](float w) { return w < -kTold * highest; });
  if (below == 0) return;
  doubts->push_back(absl::StrCat(
      "processing.window_values has ", below, " values below 0; the lowest is ",
      *std::min_element(values.begin(), values.end()), ". The values of most windows are 0 to 1."));
}

// The distance of the bins depends on the padding of the transform, so the check removes it.
void DoubtAxialSpacing(const model::ResolvedScan& scan, std::vector<std::string>* doubts) {
  constexpr double kLeastUm = 0.05;
  const model::Processing& p = scan.spec.processing;
  const double unpadded = p.axial_spacing_um * static_cast<double>(p.fft_length) /
                          static_cast<double>(std::max<size_t>(scan.chain.window.size(), 1));
  if (p.axial_spacing_um == 0 || unpadded >= kLeastUm) return;
  doubts->push_back(absl::StrCat(
      "processing.axial_spacing_um is ", p.axial_spacing_um,
      " um, finer than that of any instrument. If you mean millimetres, give ",
      p.axial_spacing_um * 1e3, "; if you mean metres, give ", p.axial_spacing_um * 1e6, "."));
}

// The samples are real numbers, so the upper half of the transform mirrors the lower one. A
// dispersion phase sharpens one half and blurs the other; both still show the same depths.
void DoubtDepth(const model::ResolvedScan& scan, std::vector<std::string>* doubts) {
  const model::Processing& p = scan.spec.processing;
  const int64_t half = p.fft_length / 2 + 1, end = p.first_bin + p.depth;  // 0 and F/2 included
  if (end <= half) return;
  doubts->push_back(absl::StrCat("processing.depth is ", p.depth,
                                 p.first_bin > 0 ? absl::StrCat(" from bin ", p.first_bin) : "",
                                 ", and fft_length is ", p.fft_length, ". The bins above ",
                                 p.fft_length / 2,
                                 " mirror the bins below it: ", std::min(end - half, p.depth),
                                 " samples of each A-scan show no new depth."));
}

const char* NameOf(math::Background background) {
  static constexpr const char* kNames[] = {"NONE", "STATIC", "ROLLING", "BSCAN"};
  return kNames[static_cast<int>(background)];
}

std::string WindowOf(const model::Processing& p) {
  static constexpr const char* kNames[] = {"HANN",  "RECT",     "HANN",    "HAMMING",
                                           "GAUSS", "BLACKMAN", "FLAT_TOP"};
  return p.window_values.empty() ? kNames[p.window] : "window_values";
}

}  // namespace

int64_t DefaultGroupRecords(int64_t bscan_records, int64_t volume_records) {
  if (bscan_records >= kFewRecords) return bscan_records;
  return std::min((kEnoughRecords + bscan_records - 1) / bscan_records * bscan_records,
                  volume_records);
}

std::vector<std::string> DoubtsOfProcessing(const model::ResolvedScan& scan) {
  std::vector<std::string> doubts;
  DoubtBackground(scan.chain, &doubts);
  DoubtDispersion(scan, &doubts);
  DoubtWindow(scan, &doubts);
  DoubtAxialSpacing(scan, &doubts);
  DoubtDepth(scan, &doubts);
  return doubts;
}

std::string DescribeLeftOut(const model::ResolvedScan& before, const model::Processing& asked,
                            const model::ResolvedScan& after) {
  const model::Processing& had = before.spec.processing;
  std::vector<std::string> left;
  const bool linear = before.chain.interpolation != math::Interpolation::kNone;
  if (linear && asked.k_mode == model::KMode::kDefault &&
      after.chain.interpolation == math::Interpolation::kNone)
    left.push_back("k-linearisation (now none)");
  if (!before.chain.phase_rad.empty() && after.chain.phase_rad.empty()) {
    left.push_back(had.dispersion_phase.empty()
                       ? absl::StrFormat("dispersion a2 = %g, a3 = %g (now none)",
                                         had.dispersion_a2, had.dispersion_a3)
                       : "a dispersion phase (now none)");
  }
  if (asked.window == 0 && asked.window_values.empty() &&
      WindowOf(had) != WindowOf(after.spec.processing)) {
    left.push_back(
        absl::StrCat("window ", WindowOf(had), " (now ", WindowOf(after.spec.processing), ")"));
  }
  if (asked.background == model::BackgroundMode::kDefault &&
      before.chain.background != after.chain.background) {
    left.push_back(absl::StrCat("background ", NameOf(before.chain.background), " (now ",
                                NameOf(after.chain.background), ")"));
  }
  const bool rolling = before.chain.background == math::Background::kRolling &&
                       after.chain.background == math::Background::kRolling;
  if (const bool said = asked.background_group_records != 0 || asked.background_window_records != 0;
      rolling && !said &&
      (before.chain.background_group_records != after.chain.background_group_records ||
       before.chain.background_window_records != 0)) {
    left.push_back(absl::StrCat("background ROLLING of groups of ",
                                before.chain.background_group_records, " records and a window of ",
                                before.chain.background_window_records, " (now groups of ",
                                after.chain.background_group_records, ")"));
  }
  if (asked.fixed_pattern_noise == model::FixedPatternNoise::kDefault &&
      before.chain.fixed_pattern != after.chain.fixed_pattern) {
    left.push_back("removal of fixed_pattern_noise (now KEEP)");
  }
  if (!before.spacing_assumed[2] && after.spacing_assumed[2]) {
    left.push_back(
        absl::StrFormat("an axial spacing of %.4g um (now not known)", before.spacing_um[2]));
  } else if (asked.refractive_index == 0 && had.refractive_index != 1 &&
             before.spacing_um[2] != after.spacing_um[2]) {
    left.push_back(absl::StrCat("refractive_index ", had.refractive_index, " (now 1)"));
  }
  if (left.empty()) return "";
  return absl::StrCat("This processing replaces the whole processing before it, and leaves out: ",
                      absl::StrJoin(left, ", "),
                      ". Give again what shall stay (Scan.spec.processing has it).");
}

}  // namespace octavo::processing

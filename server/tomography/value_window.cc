#include "server/tomography/value_window.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/str_format.h"

#include "gpu/base/status.h"
#include "server/tomography/trial_slice.h"

namespace octavo::tomography {
namespace {

constexpr int64_t kTrials = 5;
constexpr double kLowPart = 0.001, kHighPart = 0.999;  // of the pixels of all trials
constexpr double kMargin = 0.1;  // of the window, at both ends: other slices differ a little
constexpr int64_t kMostPixels = 1 << 22;  // of a trial: 5 of them are sorted in a third of a second
constexpr int64_t kPieceBytes = 8 << 20;  // copied to the host at a time

/// Trial slices of a run, and their pixels.
class Trials {
 public:
  Trials(const ScannedObject& object, job::JobRun& run, const std::stop_token& stop,
         RowPreparer& rows, float* image)
      : object_(object), run_(run), stop_(stop), rows_(rows), image_(image) {}

  /// Adds the pixels of slice `slice` of the result; of tried axes, `slice` is one of them.
  absl::Status Add(int64_t slice) {
    const TomographyLayout& layout = object_.layout;
    const int64_t row = layout.tried().empty() ? slice : layout.center_slice();
    OCTAVO_ASSIGN_OR_RETURN(const PreparedRows prepared,
                            rows_.Prepare(layout, object_.input, layout.RowsOf(row, 1), false));
    const absl::Status added = layout.makes_sinograms() ? Collect(prepared.data)
                                                        : Reconstruct(slice, prepared.sinograms());
    run_.Free(prepared.data);
    return added;
  }
  /// That are finite.
  std::vector<float>& pixels() { return pixels_; }

 private:
  absl::Status Reconstruct(int64_t slice, DeviceSpan<const float> sinogram) {
    const TomographyLayout& layout = object_.layout;
    OCTAVO_RETURN_IF_ERROR(
        AtReconstruction(MakeTrialSlice(run_, stop_, layout.TrialFor(slice, object_.centers),
                                        sinogram, {image_, layout.image_voxels()})));
    return Collect(image_);
  }
  // Of a large image every n-th pixel, n odd, so that they do not lie in a few columns.
  absl::Status Collect(const float* image) {
    const int64_t voxels = object_.layout.image_voxels(),
                  step = voxels <= kMostPixels ? 1 : (voxels / kMostPixels + 1) | 1,
                  piece = std::min<int64_t>(voxels, kPieceBytes / 4);
    OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer host, run_.device().AllocatePinned(piece * 4));
    pixels_.reserve(pixels_.size() + static_cast<size_t>(voxels / step + 1));
    for (int64_t begin = 0, next = 0; begin < voxels; begin += piece) {
      const int64_t count = std::min(piece, voxels - begin);
      const absl::Status copied =
          run_.device().CopyToHost(run_.stream(), host.data(), image + begin, count * 4);
      OCTAVO_RETURN_IF_ERROR(run_.stream().Synchronize());
      OCTAVO_RETURN_IF_ERROR(copied);
      for (; next < begin + count; next += step) {
        const float value = host.as<float>()[next - begin];
        if (std::isfinite(value)) pixels_.push_back(value);
      }
    }
    return absl::OkStatus();
  }

  const ScannedObject& object_;
  job::JobRun& run_;
  const std::stop_token& stop_;
  RowPreparer& rows_;
  float* const image_;
  std::vector<float> pixels_;
};

double Percentile(std::vector<float>& values, double part) {
  const auto nth = values.begin() + std::lround(part * static_cast<double>(std::ssize(values) - 1));
  std::nth_element(values.begin(), nth, values.end());
  return static_cast<double>(*nth);
}

// No pixel lies outside of the bounds; those outside of the circle are 0.
ValueWindow Within(const TomographyConfig& config, ValueWindow window) {
  if (config.algorithm == TomographyAlgorithm::kMlem) window.low = std::max(window.low, 0.0);
  if (config.has_min) window.low = std::max(window.low, std::min(config.min_value, 0.0));
  if (config.has_max) window.high = std::min(window.high, std::max(config.max_value, 0.0));
  return window;
}

// As Volume.levels tells them: f32, the lower one below the other.
ValueWindow AsLevels(const ValueWindow& window) {
  constexpr float kMost = std::numeric_limits<float>::max();
  const auto rounded = [](double value) {
    return static_cast<float>(
        std::clamp(value, -static_cast<double>(kMost), static_cast<double>(kMost)));
  };
  float low = rounded(window.low), high = rounded(window.high);
  if (!(low < high)) high = rounded(window.low + (low == 0 ? 1 : std::abs(window.low)));
  if (!(low < high)) low = std::nextafter(high, -kMost);
  return {.low = static_cast<double>(low), .high = static_cast<double>(high)};
}

}  // namespace

absl::StatusOr<ValueWindow> WindowFor(const model::TomographySpec& spec,
                                      const ScannedObject& object, job::JobRun& run,
                                      const std::stop_token& stop, RowPreparer& rows,
                                      float* image) {
  if (!spec.samples.found()) return ValueWindow{.low = spec.samples.low, .high = spec.samples.high};
  Trials trials(object, run, stop, rows, image);
  const int64_t slices = object.layout.slices(), count = std::min(slices, kTrials);
  for (int64_t i = 0; i < count; ++i)
    OCTAVO_RETURN_IF_ERROR(trials.Add((2 * i + 1) * slices / (2 * count)));
  ValueWindow window;
  if (!trials.pixels().empty()) {
    window = {.low = Percentile(trials.pixels(), kLowPart),
              .high = Percentile(trials.pixels(), kHighPart)};
    const double margin = kMargin * (window.high - window.low);
    window = {.low = window.low - margin, .high = window.high + margin};
  }
  window = AsLevels(Within(spec.reconstruction, window));
  run.Log(absl::StrFormat("window %g to %g, found in %d slices", window.low, window.high, count));
  return window;
}

}  // namespace octavo::tomography

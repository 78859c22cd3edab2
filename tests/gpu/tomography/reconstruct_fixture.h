#pragma once

#include <random>
#include <utility>
#include <vector>

#include "gpu/tomography/reconstruct.h"
#include "gpu/tomography/reconstruct_kernels.h"
#include "gpu/tomography/reconstruct_plan.h"
#include "tests/gpu/tomography/reconstruct_model.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/status_matchers.h"

namespace octavo::testing {

/// A configuration small enough for a dense matrix, with its axis off the middle.
inline TomographyConfig Small(TomographyAlgorithm algorithm, int64_t slices) {
  TomographyConfig c;
  c.algorithm = algorithm;
  c.angles_rad = HalfTurn(15);
  c.detectors = 33;
  c.slices = slices;
  c.centers = {16.4};
  c.image_size = 29;
  c.pixel_size = 0.5;
  c.iterations = 4;
  if (algorithm == TomographyAlgorithm::kTv) c.tv_weight = 0.02;
  return c;
}

class TomographyFixture : public BackendTest {
 protected:
  std::vector<float> Random(int64_t count, float lo, float hi) {
    std::uniform_real_distribution<float> uniform(lo, hi);
    std::vector<float> values(static_cast<size_t>(count));
    for (auto& v : values) v = uniform(random_);
    return values;
  }

  /// Runs `config` over sinograms [slice, angle, detector]. Returns the images [slice, n, n].
  absl::StatusOr<std::vector<float>> Reconstruct(const TomographyConfig& config,
                                                 const std::vector<float>& sinograms,
                                                 const std::vector<float>& initial = {},
                                                 const Reconstructor::Callback& callback = {},
                                                 TomographyResult* result = nullptr) {
    OCTAVO_ASSIGN_OR_RETURN(auto reconstructor, Reconstructor::Create(config, device_));
    const DeviceBuffer in = Upload(sinograms), start = Upload(initial);
    const int64_t n = config.image_size == 0 ? config.detectors : config.image_size;
    const auto slices =
        static_cast<int64_t>(sinograms.size() / config.angles_rad.size()) / config.detectors;
    const DeviceBuffer out = Poisoned(slices * n * n * 4);
    OCTAVO_ASSIGN_OR_RETURN(
        TomographyResult got,
        reconstructor->Run(
            stream_.ref(), {.data = in.span<float>(), .angle_first = false, .slices = slices},
            initial.empty() ? nullptr : start.span<float>(), out.span<float>(), callback));
    if (result != nullptr) *result = got;
    return Download<float>(out, static_cast<size_t>(slices * n * n));
  }

  std::mt19937 random_{11};
};

/// A view with its tables on the device, for tests of the operators themselves.
struct TestView {
  TomographyPlan plan;
  RayView view;
  DeviceBuffer forward, back, order, centers;
};

}  // namespace octavo::testing

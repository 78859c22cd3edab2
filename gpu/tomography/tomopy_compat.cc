#include "gpu/tomography/tomopy_compat.h"

#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "gpu/math/tomopy_rotation.h"
#include "gpu/tomography/reconstruct_kernels.h"

namespace octavo::inline gpu {
namespace {

// The inverse of the rotation by `radians` about the pixel that TomoPy passes to OpenCV as centre,
// computed as OpenCV computes it.
math::TurnMatrix TurnBy(double radians, int64_t n) {
  const double center = static_cast<double>(n % 2 == 0 ? n / 2 : (n - 1) / 2);
  const double angle = radians * (180.0 / std::numbers::pi) * (std::numbers::pi / 180.0);
  const double alpha = std::cos(angle), beta = std::sin(angle);
  const double m[6] = {alpha, beta,  (1 - alpha) * center - beta * center,
                       -beta, alpha, beta * center + (1 - alpha) * center};
  double det = m[0] * m[4] - m[1] * m[3];
  det = det != 0 ? 1 / det : 0;
  math::TurnMatrix t{{m[4] * det, -m[1] * det, 0, -m[3] * det, m[0] * det, 0}};
  t.m[2] = -t.m[0] * m[2] - t.m[1] * m[5];
  t.m[5] = -t.m[3] * m[2] - t.m[4] * m[5];
  return t;
}

class TomopyForm final : public Reconstructor {
 public:
  TomopyForm(const TomographyConfig& config, Device& device, TomographyOps& ops)
      : config_(config), device_(device), ops_(ops), n_(config.detectors) {
    for (const double theta : config.angles_rad) {
      // In f32, as in TomoPy.
      const float turned =
          std::fmod(static_cast<float>(theta) + static_cast<float>(std::numbers::pi / 2),
                    static_cast<float>(2 * std::numbers::pi));
      angles_.push_back(static_cast<double>(turned));
    }
  }

  absl::Status Init() {
    const int64_t image = n_ * n_ * 4, all = config_.slices * image;
    for (DeviceBuffer* buffer : {&image_, &turned_, &update_}) {
      OCTAVO_ASSIGN_OR_RETURN(*buffer, device_.Allocate(all));
    }
    OCTAVO_ASSIGN_OR_RETURN(cover_, device_.Allocate(image));
    OCTAVO_ASSIGN_OR_RETURN(sums_, device_.Allocate(SumBytes()));
    OCTAVO_ASSIGN_OR_RETURN(host_sums_, device_.AllocatePinned(SumBytes()));
    // The number of angles that see each pixel of the turned frame.
    OCTAVO_ASSIGN_OR_RETURN(Stream stream, device_.NewStream(StreamPriority::kNormal));
    OCTAVO_RETURN_IF_ERROR(device_.Fill(stream.ref(), turned_.data(), image, 0x3F800000u));
    OCTAVO_RETURN_IF_ERROR(device_.Fill(stream.ref(), cover_.data(), image, 0));
    for (const double angle : angles_) {
      const TurnedGrid grid{.slices = 1,
                            .n = n_,
                            .matrix = TurnBy(-angle, n_),
                            .interpolation = math::RayInterpolation::kNearest};
      OCTAVO_RETURN_IF_ERROR(
          ops_.Rotate(stream.ref(), grid, turned_.span<float>(), true, cover_.span<float>()));
    }
    return stream.ref().Synchronize();
  }

  absl::StatusOr<TomographyResult> Run(StreamRef stream, const TomographyInput& input,
                                       DeviceSpan<const float> initial, DeviceSpan<float> images,
                                       const Callback& callback) override {
    if (input.slices < 1 || input.slices > config_.slices) {
      return FieldOutOfRange("slices", input.slices, 1, config_.slices);
    }
    slices_ = input.slices;
    const auto angles = static_cast<int64_t>(angles_.size()), image = n_ * n_;
    const int64_t slice_stride = input.angle_first ? n_ : angles * n_,
                  angle_stride = input.angle_first ? slices_ * n_ : n_;
    const bool mlem = config_.algorithm == TomographyAlgorithm::kMlem;
    if (initial) {
      OCTAVO_RETURN_IF_ERROR(
          device_.CopyOnDevice(stream, image_.data(), initial.data(), slices_ * image * 4));
    } else {
      OCTAVO_RETURN_IF_ERROR(
          device_.Fill(stream, image_.data(), slices_ * image * 4, 0x358637BDu));  // 1e-6
    }
    TomographyResult result;
    const int64_t piece = config_.piece_samples > 0 ? config_.piece_samples : ops_.PieceSamples();
    int64_t samples = 0;
    for (int64_t i = 1; i <= config_.iterations; ++i) {
      OCTAVO_RETURN_IF_ERROR(device_.Fill(stream, update_.data(), slices_ * image * 4, 0));
      OCTAVO_RETURN_IF_ERROR(device_.Fill(stream, sums_.data(), SumBytes(), 0));
      for (int64_t a = 0; a < angles; ++a) {
        if (samples += 2 * slices_ * image; samples > piece) {
          samples = 0;
          OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
          if (callback && !callback({})) return absl::CancelledError("given up by the callback");
        }
        TurnedGrid grid{.slices = slices_,
                        .n = n_,
                        .matrix = TurnBy(-angles_[static_cast<size_t>(a)], n_),
                        .interpolation = config_.interpolation};
        OCTAVO_RETURN_IF_ERROR(
            ops_.Rotate(stream, grid, image_.span<float>(), false, turned_.span<float>()));
        OCTAVO_RETURN_IF_ERROR(
            ops_.SpreadResidual(stream, slices_, n_, input.data.From(a * angle_stride),
                                slice_stride, mlem, turned_.span<float>(), sums_.span<double>()));
        grid.matrix = TurnBy(angles_[static_cast<size_t>(a)], n_);
        OCTAVO_RETURN_IF_ERROR(
            ops_.Rotate(stream, grid, turned_.span<float>(), true, update_.span<float>()));
      }
      OCTAVO_RETURN_IF_ERROR(ops_.SpreadUpdate(stream, slices_, n_, update_.span<float>(),
                                               cover_.span<float>(), mlem, image_.span<float>()));
      OCTAVO_RETURN_IF_ERROR(
          device_.CopyToHost(stream, host_sums_.data(), sums_.data(), SumBytes()));
      OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
      result.last = {.iteration = i,
                     .iterations = config_.iterations,
                     .residual_norms = {},
                     .changes = {},
                     .variation_gaps = {},
                     .objectives = {}};
      for (int64_t s = 0; s < slices_; ++s) {
        double sum = 0;
        for (int64_t d = 0; d < n_; ++d) sum += host_sums_.as<double>()[s * n_ + d];
        result.last.residual_norms.push_back(std::sqrt(sum));
      }
      if (callback && !callback(result.last)) {
        result.stop = TomographyStop::kCallback;
        break;
      }
    }
    OCTAVO_RETURN_IF_ERROR(
        device_.CopyOnDevice(stream, images.data(), image_.data(), slices_ * image * 4));
    OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
    return result;
  }

  TomographyAlgorithm algorithm() const override { return config_.algorithm; }

  absl::Status CopyImage(StreamRef stream, int64_t slice, DeviceSpan<float> image) override {
    if (slice < 0 || slice >= slices_) return FieldOutOfRange("slice", slice, 0, slices_ - 1);
    return device_.CopyOnDevice(stream, image.data(), image_.as<float>() + slice * n_ * n_,
                                n_ * n_ * 4);
  }

 private:
  int64_t SumBytes() const { return config_.slices * n_ * 8; }

  const TomographyConfig config_;
  Device& device_;
  TomographyOps& ops_;
  const int64_t n_;
  std::vector<double> angles_;
  int64_t slices_ = 0;
  DeviceBuffer image_, turned_, update_, cover_, sums_;
  PinnedBuffer host_sums_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Reconstructor>> MakeTomopyForm(const TomographyConfig& config,
                                                              Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(TomographyOps* const ops, FindOperators<TomographyOps>(device));
  auto form = std::make_unique<TomopyForm>(config, device, *ops);
  OCTAVO_RETURN_IF_ERROR(form->Init());
  return form;
}

int64_t TomopyFormBytes(const TomographyConfig& config) {
  const int64_t n = config.detectors;
  return 4 * n * n * (3 * config.slices + 1) + 8 * config.slices * n;
}

}  // namespace octavo::inline gpu

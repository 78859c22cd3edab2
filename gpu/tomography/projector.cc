#include "gpu/tomography/projector.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "gpu/tomography/projection_matrix.h"
#include "gpu/tomography/reconstruct_kernels.h"
#include "gpu/tomography/reconstruct_plan.h"

namespace octavo::inline gpu {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kCountBytes = 2 * 8;  // TomographyOps::Inspect

// The iterations of SIRT without padding have this geometry.
TomographyConfig GeometryOf(const ProjectorConfig& c) {
  TomographyConfig out;
  out.algorithm = TomographyAlgorithm::kSirt;
  out.angles_rad = c.angles_rad;
  out.detectors = c.detectors;
  out.slices = c.slices;
  out.centers = c.centers;
  out.image_size = c.image_size;
  out.pixel_size = c.pixel_size;
  out.interpolation = c.interpolation;
  out.padding = 0;
  out.mask_ratio = c.mask_ratio;
  out.piece_samples = c.piece_samples;
  return out;
}

class MatrixProjector final : public Projector {
 public:
  MatrixProjector(TomographyConfig config, TomographyPlan plan, Device& device, TomographyOps& ops)
      : config_(std::move(config)),
        plan_(std::move(plan)),
        device_(device),
        ops_(ops),
        matrix_(config_, plan_, device_, ops_) {}

  static int64_t BytesOf(const RayLayout& layout) {
    return kFloat * (2 * layout.image() + layout.sinogram()) + layout.table_bytes + kCountBytes;
  }

  absl::Status Init() {
    OCTAVO_ASSIGN_OR_RETURN(Stream stream, device_.NewStream(StreamPriority::kNormal));
    OCTAVO_RETURN_IF_ERROR(matrix_.Init(stream.ref()));
    const RayLayout& layout = matrix_.layout();
    for (const auto& [buffer, elements] :
         {std::pair{&image_, layout.image()}, std::pair{&transposed_, layout.image()},
          std::pair{&sinogram_, layout.sinogram()}}) {
      OCTAVO_ASSIGN_OR_RETURN(*buffer, device_.Allocate(elements * kFloat));
      OCTAVO_RETURN_IF_ERROR(device_.Fill(stream.ref(), buffer->data(), buffer->bytes(), 0));
    }
    OCTAVO_ASSIGN_OR_RETURN(counts_, device_.Allocate(kCountBytes));
    OCTAVO_ASSIGN_OR_RETURN(host_counts_, device_.AllocatePinned(kCountBytes));
    return stream.ref().Synchronize();
  }

  absl::Status Project(StreamRef stream, int64_t slices, DeviceSpan<const float> images,
                       DeviceSpan<float> sinograms, const CancelCheck& goes_on) override {
    OCTAVO_RETURN_IF_ERROR(Begin(slices));
    const DeviceSpan<float> image = image_.span<float>(), transposed = transposed_.span<float>();
    OCTAVO_RETURN_IF_ERROR(CheckFinite(stream, "images", images, slices * image_pixels()));
    OCTAVO_RETURN_IF_ERROR(
        ops_.PackImages(stream, view_, images, 0, plan_.image_size, slices, image));
    for (const AngleRange& range : plan_.subsets) {
      if (range.split < range.end)
        OCTAVO_RETURN_IF_ERROR(ops_.Transpose(stream, view_, image, transposed));
      OCTAVO_RETURN_IF_ERROR(
          matrix_.Forward(stream, goes_on, range, image, transposed, sinogram_.span<float>()));
    }
    OCTAVO_RETURN_IF_ERROR(ops_.UnpackSinograms(stream, view_, sinogram_.span<float>(),
                                                matrix_.order(), slices, sinograms));
    return stream.Synchronize();
  }

  absl::Status BackProject(StreamRef stream, int64_t slices, DeviceSpan<const float> sinograms,
                           DeviceSpan<float> images, const CancelCheck& goes_on) override {
    OCTAVO_RETURN_IF_ERROR(Begin(slices));
    const int64_t row = config_.detectors, sinogram = view_.angles * row;
    OCTAVO_RETURN_IF_ERROR(CheckFinite(stream, "sinograms", sinograms, slices * sinogram));
    OCTAVO_RETURN_IF_ERROR(ops_.PackSinograms(
        stream, view_, {.data = sinograms.data(), .slice_stride = sinogram, .angle_stride = row},
        matrix_.order(), slices, sinogram_.span<float>()));
    for (const AngleRange& range : plan_.subsets)
      OCTAVO_RETURN_IF_ERROR(
          matrix_.Back(stream, goes_on, range, sinogram_.span<float>(), image_.span<float>()));
    OCTAVO_RETURN_IF_ERROR(ops_.UnpackImages(stream, view_, image_.span<float>(), plan_.image_size,
                                             0, slices, images));
    return stream.Synchronize();
  }

 private:
  int64_t image_pixels() const { return plan_.image_size * plan_.image_size; }

  absl::Status Begin(int64_t slices) {
    if (slices < 1 || slices > config_.slices)
      return FieldOutOfRange("slices", slices, 1, config_.slices);
    matrix_.BeginRun(slices);
    return absl::OkStatus();
  }

  absl::Status CheckFinite(StreamRef stream, const char* field, DeviceSpan<const float> values,
                           int64_t count) {
    OCTAVO_RETURN_IF_ERROR(ops_.Inspect(stream, values, count, counts_.span<int64_t>()));
    OCTAVO_RETURN_IF_ERROR(
        device_.CopyToHost(stream, host_counts_.data(), counts_.data(), kCountBytes));
    OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
    const int64_t not_finite = host_counts_.as<int64_t>()[0];
    if (not_finite == 0) return absl::OkStatus();
    return InvalidField(
        field, absl::StrCat(not_finite, " values are not finite; allowed are finite values"));
  }

  const TomographyConfig config_;
  const TomographyPlan plan_;  // of one subset: all angles
  Device& device_;
  TomographyOps& ops_;
  ProjectionMatrix matrix_;
  const RayView& view_ = matrix_.view();
  DeviceBuffer image_, transposed_, sinogram_, counts_;
  PinnedBuffer host_counts_;
};

}  // namespace

absl::StatusOr<int64_t> Projector::DeviceBytes(const ProjectorConfig& config, Device& device) {
  const TomographyConfig geometry = GeometryOf(config);
  OCTAVO_RETURN_IF_ERROR(CheckTomography(geometry));
  OCTAVO_ASSIGN_OR_RETURN(TomographyOps* const ops, FindOperators<TomographyOps>(device));
  return MatrixProjector::BytesOf(LayOutRays(geometry, PlanGrid(geometry), *ops));
}

absl::StatusOr<std::unique_ptr<Projector>> Projector::Create(const ProjectorConfig& config,
                                                             Device& device) {
  TomographyConfig geometry = GeometryOf(config);
  OCTAVO_RETURN_IF_ERROR(CheckTomography(geometry));
  OCTAVO_ASSIGN_OR_RETURN(TomographyOps* const ops, FindOperators<TomographyOps>(device));
  TomographyPlan plan = PlanTomography(geometry);
  auto projector =
      std::make_unique<MatrixProjector>(std::move(geometry), std::move(plan), device, *ops);
  OCTAVO_RETURN_IF_ERROR(projector->Init());
  return projector;
}

}  // namespace octavo::inline gpu

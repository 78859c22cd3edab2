#include "gpu/tomography/fourier.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "gpu/array/array_ops.h"
#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "gpu/tomography/gridding.h"

namespace octavo::inline gpu {
namespace {

constexpr int64_t kComplex = sizeof(ComplexF);

struct Families {
  ArrayOps& arrays;
  TomographyOps& tomography;
  GriddingOps& gridding;
};
absl::StatusOr<Families> FindFamilies(Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(ArrayOps* const arrays, FindOperators<ArrayOps>(device));
  OCTAVO_ASSIGN_OR_RETURN(TomographyOps* const tomography, FindOperators<TomographyOps>(device));
  OCTAVO_ASSIGN_OR_RETURN(GriddingOps* const gridding, FindOperators<GriddingOps>(device));
  return Families{.arrays = *arrays, .tomography = *tomography, .gridding = *gridding};
}

// Pairs of slices that are processed together: a power of two, and no more than there are.
int64_t LanesFor(int64_t slices, int64_t most) {
  int64_t lanes = 1;
  while (lanes < most && 2 * lanes < slices) lanes *= 2;
  return lanes;
}

/// The memory on the device, in bytes.
struct Sizes {
  int64_t lanes = 1;
  int64_t work = 0;  // the rows, later the columns of the image
  int64_t samples = 0;
  int64_t grid = 0;
  int64_t transforms = 0;  // workspace of the transforms
  int64_t tables = 0;
  int64_t counts = 2 * 8;
  int64_t bytes() const { return work + samples + grid + transforms + tables + counts; }
};

absl::StatusOr<Sizes> SizesOf(const TomographyConfig& c, const GriddingShape& g,
                              const Families& ops) {
  Sizes s;
  s.lanes = LanesFor(c.slices, ops.gridding.Lanes());
  s.work = s.lanes * kComplex * std::max(g.lines * g.length, g.image_size * g.grid_size);
  s.samples = s.lanes * kComplex * g.lines * (g.length + 1);
  s.grid = s.lanes * kComplex * g.grid_size * g.grid_size;
  for (int64_t lanes = 1; lanes <= s.lanes; lanes *= 2) {
    for (const FftSpec& fft : {FftSpec{.n = g.length, .rows = lanes * g.lines},
                               FftSpec{.n = g.grid_size, .rows = lanes * g.grid_size},
                               FftSpec{.n = g.grid_size, .rows = lanes * g.image_size}}) {
      OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, ops.arrays.PrepareFft(fft));
      s.transforms = std::max(s.transforms, bytes);
    }
  }
  // Lines, two factors a frequency, deapodisation, tiles, centres; padded to 256 bytes each.
  s.tables = g.lines * static_cast<int64_t>(sizeof(math::GridLine)) + 4 * (g.length + 2) +
             4 * g.image_size +
             CountTiles(g, ops.gridding.Tile()) * static_cast<int64_t>(sizeof(math::TileLines)) +
             8 * c.slices + 8 * 256;
  return s;
}

class FourierReconstructor final : public Reconstructor {
 public:
  FourierReconstructor(const TomographyConfig& config, TomographyPlan geometry, GriddingPlan plan,
                       const Sizes& sizes, Device& device, const Families& ops)
      : config_(config),
        geometry_(std::move(geometry)),
        plan_(std::move(plan)),
        sizes_(sizes),
        device_(device),
        ops_(ops) {}

  absl::Status Init() {
    OCTAVO_ASSIGN_OR_RETURN(Stream stream, device_.NewStream(StreamPriority::kNormal));
    OCTAVO_ASSIGN_OR_RETURN(work_, device_.Allocate(sizes_.work));
    OCTAVO_ASSIGN_OR_RETURN(samples_, device_.Allocate(sizes_.samples));
    OCTAVO_ASSIGN_OR_RETURN(grid_, device_.Allocate(sizes_.grid));
    if (sizes_.transforms > 0) {
      OCTAVO_ASSIGN_OR_RETURN(transforms_, device_.Allocate(sizes_.transforms));
    }
    OCTAVO_ASSIGN_OR_RETURN(counts_, device_.Allocate(sizes_.counts));
    OCTAVO_ASSIGN_OR_RETURN(host_counts_, device_.AllocatePinned(sizes_.counts));
    OCTAVO_RETURN_IF_ERROR(Upload(stream.ref(), plan_.lines, lines_));
    OCTAVO_RETURN_IF_ERROR(Upload(stream.ref(), plan_.response, response_));
    if (plan_.shape.cut) OCTAVO_RETURN_IF_ERROR(Upload(stream.ref(), plan_.filter, filter_));
    OCTAVO_RETURN_IF_ERROR(Upload(stream.ref(), plan_.deapodisation, deapodisation_));
    OCTAVO_RETURN_IF_ERROR(Upload(stream.ref(), plan_.tiles, tiles_));
    // Not those of the geometry, which are f32.
    std::vector<double> centers = config_.centers;
    if (centers.empty()) centers.push_back(0.5 * static_cast<double>(config_.detectors - 1));
    if (geometry_.shared_center) centers.resize(1);
    OCTAVO_RETURN_IF_ERROR(Upload(stream.ref(), centers, centers_));
    view_ = {.shape = plan_.shape,
             .tile = ops_.gridding.Tile(),
             .kernel = plan_.kernel,
             .lines = lines_.as<math::GridLine>(),
             .response = response_.as<float>(),
             .deapodisation = deapodisation_.as<float>(),
             .tiles = tiles_.as<math::TileLines>(),
             .busy = plan_.busy,
             .centers = centers_.as<double>(),
             .shared_center = geometry_.shared_center,
             .extend_edges = config_.extend_edges,
             .radius = geometry_.radius};
    plan_.tiles = {};
    return stream.ref().Synchronize();
  }

  absl::StatusOr<TomographyResult> Run(StreamRef stream, const TomographyInput& input,
                                       DeviceSpan<const float> /*initial*/,
                                       DeviceSpan<float> images,
                                       const Callback& callback) override {
    if (input.slices < 1 || input.slices > config_.slices) {
      return FieldOutOfRange("slices", input.slices, 1, config_.slices);
    }
    images_ = images;
    slices_ = input.slices;
    made_ = 0;
    work_done_ = 0;
    const int64_t lines = view_.shape.lines, d = config_.detectors;
    const SinogramView in{.data = input.data.data(),
                          .slice_stride = input.angle_first ? d : lines * d,
                          .angle_stride = input.angle_first ? slices_ * d : d};
    OCTAVO_RETURN_IF_ERROR(CheckData(stream, input.data, slices_ * lines * d));
    while (made_ < slices_) {
      view_.first = made_;
      view_.lanes = LanesFor(slices_ - made_, sizes_.lanes);
      view_.slices = std::min(2 * view_.lanes, slices_ - made_);
      OCTAVO_RETURN_IF_ERROR(MakeSamples(stream, in, callback));
      OCTAVO_RETURN_IF_ERROR(MakeImages(stream, callback));
      made_ += view_.slices;
    }
    OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
    return TomographyResult{};
  }

  // Slices that are not made yet are 0.
  absl::Status CopyImage(StreamRef stream, int64_t slice, DeviceSpan<float> image) override {
    if (slice < 0 || slice >= slices_) return FieldOutOfRange("slice", slice, 0, slices_ - 1);
    const int64_t pixels = view_.shape.image_size * view_.shape.image_size, bytes = pixels * 4;
    if (slice >= made_) return device_.Fill(stream, image.data(), bytes, 0);
    return device_.CopyOnDevice(stream, image.data(), images_.From(slice * pixels).data(), bytes);
  }

  TomographyAlgorithm algorithm() const override { return TomographyAlgorithm::kFourier; }

 private:
  template <class T>
  absl::Status Upload(StreamRef stream, const std::vector<T>& values, DeviceBuffer& buffer) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    OCTAVO_ASSIGN_OR_RETURN(buffer, device_.Allocate(bytes));
    OCTAVO_RETURN_IF_ERROR(device_.Upload(stream, buffer.span<T>(), values));
    return stream.Synchronize();  // after this the caller may free `values`
  }

  absl::Status CheckData(StreamRef stream, DeviceSpan<const float> data, int64_t count) {
    auto* counts = host_counts_.as<int64_t>();
    OCTAVO_RETURN_IF_ERROR(ops_.tomography.Inspect(stream, data, count, counts_.span<int64_t>()));
    OCTAVO_RETURN_IF_ERROR(device_.CopyToHost(stream, counts, counts_.data(), sizes_.counts));
    OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
    return CheckProjectionsFinite(counts[0]);
  }

  absl::Status Transform(StreamRef stream, int64_t n, int64_t rows, bool inverse,
                         const DeviceBuffer& data) {
    return ops_.arrays.Fft(stream, {.n = n, .rows = view_.lanes * rows, .inverse = inverse},
                           data.data(), transforms_.data());
  }

  // From the chunk's projections to its samples.
  absl::Status MakeSamples(StreamRef stream, const SinogramView& in, const Callback& callback) {
    const GriddingShape& g = view_.shape;
    const DeviceSpan<ComplexF> rows = work_.span<ComplexF>();
    const int64_t values = view_.lanes * g.lines * g.length;
    OCTAVO_RETURN_IF_ERROR(GoOn(stream, callback, values));
    OCTAVO_RETURN_IF_ERROR(ops_.gridding.PackPairs(stream, view_, in, rows));
    OCTAVO_RETURN_IF_ERROR(Transform(stream, g.length, g.lines, /*inverse=*/false, work_));
    if (g.cut) {
      OCTAVO_RETURN_IF_ERROR(ops_.gridding.FilterPairs(stream, view_, filter_.span<float>(), rows));
      OCTAVO_RETURN_IF_ERROR(Transform(stream, g.length, g.lines, /*inverse=*/true, work_));
      OCTAVO_RETURN_IF_ERROR(ops_.gridding.CutPairs(stream, view_, rows));
      OCTAVO_RETURN_IF_ERROR(Transform(stream, g.length, g.lines, /*inverse=*/false, work_));
    }
    return ops_.gridding.MakeSamples(stream, view_, rows, samples_.span<ComplexF>());
  }

  // From the samples to the images.
  absl::Status MakeImages(StreamRef stream, const Callback& callback) {
    const GriddingShape& g = view_.shape;
    const DeviceSpan<ComplexF> grid = grid_.span<ComplexF>(), columns = work_.span<ComplexF>();
    const int64_t points = view_.lanes * g.grid_size * g.grid_size, tile_rows = view_.tile_rows();
    // The gathering in as many parts as there are pieces of work in it.
    constexpr int64_t kMostParts = 8;
    const int64_t parts = std::clamp<int64_t>(points * kTaps / Piece(), 1, kMostParts),
                  step = (tile_rows + parts - 1) / parts;
    for (int64_t row = 0; row < tile_rows; row += step) {
      const int64_t end = std::min(row + step, tile_rows);
      OCTAVO_RETURN_IF_ERROR(GoOn(stream, callback, points * (end - row) / tile_rows));
      OCTAVO_RETURN_IF_ERROR(
          ops_.gridding.Gather(stream, view_, row, end, samples_.span<ComplexF>(), grid));
    }
    OCTAVO_RETURN_IF_ERROR(GoOn(stream, callback, points));
    OCTAVO_RETURN_IF_ERROR(Transform(stream, g.grid_size, g.grid_size, /*inverse=*/true, grid_));
    OCTAVO_RETURN_IF_ERROR(ops_.gridding.TakeColumns(stream, view_, grid, columns));
    OCTAVO_RETURN_IF_ERROR(GoOn(stream, callback, points / 2));
    OCTAVO_RETURN_IF_ERROR(Transform(stream, g.grid_size, g.image_size, /*inverse=*/true, work_));
    return ops_.gridding.FinishImages(stream, view_, columns,
                                      images_.From(view_.first * g.image_size * g.image_size));
  }

  // Interpolated values that take the time of one value here.
  static constexpr int64_t kTaps = 16;
  int64_t Piece() const {
    return config_.piece_samples > 0 ? config_.piece_samples : ops_.tomography.PieceSamples();
  }

  // Lets the callback end the run before the next `values` values, where those before it and these
  // are more than a piece of work.
  absl::Status GoOn(StreamRef stream, const Callback& callback, int64_t values) {
    if (work_done_ > 0 && work_done_ + values * kTaps > Piece()) {
      work_done_ = 0;
      OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
      if (callback && !callback({})) return absl::CancelledError("given up by the callback");
    }
    work_done_ += values * kTaps;
    return absl::OkStatus();
  }

  const TomographyConfig config_;
  const TomographyPlan geometry_;
  GriddingPlan plan_;
  const Sizes sizes_;
  Device& device_;
  const Families ops_;
  GriddingView view_;
  DeviceSpan<float> images_;
  int64_t slices_ = 0, made_ = 0;
  int64_t work_done_ = 0;  // since the last call of the callback
  DeviceBuffer work_, samples_, grid_, transforms_, counts_, lines_, response_, filter_,
      deapodisation_, tiles_, centers_;
  PinnedBuffer host_counts_;
};

}  // namespace

absl::StatusOr<int64_t> FourierBytes(const TomographyConfig& config, Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(const Families ops, FindFamilies(device));
  OCTAVO_ASSIGN_OR_RETURN(const Sizes sizes,
                          SizesOf(config, ShapeGridding(config, PlanTomography(config)), ops));
  return sizes.bytes();
}

absl::StatusOr<std::unique_ptr<Reconstructor>> MakeFourier(const TomographyConfig& config,
                                                           Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(const Families ops, FindFamilies(device));
  TomographyPlan geometry = PlanTomography(config);
  const GriddingShape shape = ShapeGridding(config, geometry);
  OCTAVO_ASSIGN_OR_RETURN(const Sizes sizes, SizesOf(config, shape, ops));
  auto made = std::make_unique<FourierReconstructor>(
      config, std::move(geometry), PlanGridding(config, shape, ops.gridding.Tile()), sizes, device,
      ops);
  OCTAVO_RETURN_IF_ERROR(made->Init());
  return made;
}

}  // namespace octavo::inline gpu

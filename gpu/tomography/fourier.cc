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

GriddingShape ShapeOf(const TomographyConfig& config, const TomographyGrid& plan,
                      const Families& ops) {
  return ShapeGridding(config, plan, ops.gridding.Choice());
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
  int64_t work = 0;  // of the rows' transforms, later of the grid's
  int64_t samples = 0;
  int64_t grid = 0;
  int64_t transforms = 0;  // workspace of the transforms
  int64_t tables = 0;
  int64_t counts = 2 * 8;
  int64_t bytes() const { return work + samples + grid + transforms + tables + counts; }
};

// Bytes of the lines of all tiles.
int64_t TableBytes(const GriddingShape& g, const Families& ops) {
  return TilesOf(g, ops.gridding.Choice()).count() * static_cast<int64_t>(sizeof(math::TileLines));
}

absl::StatusOr<Sizes> SizesOf(const TomographyConfig& c, const GriddingShape& g,
                              const Families& ops) {
  Sizes s;
  s.lanes = LanesFor(c.slices, ops.gridding.Lanes());
  const GriddingMemory memory = ops.gridding.Memory(g);
  s.work = s.lanes * kComplex * memory.work;
  s.samples = s.lanes * kComplex * memory.samples;
  s.grid = s.lanes * kComplex * g.grid_size * g.grid_size;
  OCTAVO_ASSIGN_OR_RETURN(s.transforms, ops.gridding.PrepareTransforms(g, s.lanes, ops.arrays));
  // Lines, two factors a frequency, deapodisation, tiles, centres; padded to 256 bytes each.
  s.tables = g.lines * static_cast<int64_t>(sizeof(math::GridLine)) +
             4 * (g.reach + g.length / 2 + 2) + 4 * g.image_size + TableBytes(g, ops) +
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

  absl::Status Init(SharedTables* shared) {
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
    OCTAVO_RETURN_IF_ERROR(TakeTable(stream.ref(), shared));
    // Not those of the geometry, which are f32.
    std::vector<double> centers = config_.centers;
    if (centers.empty()) centers.push_back(0.5 * static_cast<double>(config_.detectors - 1));
    if (geometry_.shared_center) centers.resize(1);
    OCTAVO_RETURN_IF_ERROR(Upload(stream.ref(), centers, centers_));
    view_ = {.shape = plan_.shape,
             .tiles = table_->geometry.tiles,
             .kernel = plan_.kernel,
             .lines = lines_.as<math::GridLine>(),
             .response = response_.as<float>(),
             .filter = filter_.as<float>(),
             .deapodisation = deapodisation_.as<float>(),
             .lines_of = table_->lines.as<math::TileLines>(),
             .busy = table_->busy,
             .centers = centers_.as<double>(),
             .shared_center = geometry_.shared_center,
             .extend_edges = config_.extend_edges,
             .radius = geometry_.radius};
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

  absl::Status TakeTable(StreamRef stream, SharedTables* shared) {
    if (shared != nullptr && shared->grid != nullptr && shared->grid->geometry == plan_.geometry) {
      table_ = shared->grid;
      return absl::OkStatus();
    }
    if (shared != nullptr) shared->grid.reset();  // its memory is counted once
    const GridLines found = FindLines(plan_.geometry);
    auto table = std::make_shared<GridTable>(
        GridTable{.geometry = plan_.geometry, .lines = {}, .busy = found.busy});
    OCTAVO_RETURN_IF_ERROR(Upload(stream, found.lines, table->lines));
    table_ = std::move(table);
    if (shared != nullptr) shared->grid = table_;
    return absl::OkStatus();
  }

  absl::Status CheckData(StreamRef stream, DeviceSpan<const float> data, int64_t count) {
    auto* counts = host_counts_.as<int64_t>();
    OCTAVO_RETURN_IF_ERROR(ops_.tomography.Inspect(stream, data, count, counts_.span<int64_t>()));
    OCTAVO_RETURN_IF_ERROR(device_.CopyToHost(stream, counts, counts_.data(), sizes_.counts));
    OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
    return CheckProjectionsFinite(counts[0]);
  }

  GridTransforms Transforms() const {
    return {.arrays = ops_.arrays, .workspace = transforms_.data()};
  }

  // From the chunk's projections to its samples.
  absl::Status MakeSamples(StreamRef stream, const SinogramView& in, const Callback& callback) {
    const GriddingShape& g = view_.shape;
    OCTAVO_RETURN_IF_ERROR(GoOn(stream, callback, view_.lanes * g.lines * g.length));
    return ops_.gridding.MakeSamples(stream, view_, in, Transforms(), work_.span<ComplexF>(),
                                     samples_.span<ComplexF>());
  }

  // From the samples to the images.
  absl::Status MakeImages(StreamRef stream, const Callback& callback) {
    const GriddingShape& g = view_.shape;
    const DeviceSpan<ComplexF> grid = grid_.span<ComplexF>(), work = work_.span<ComplexF>();
    const int64_t points = view_.lanes * g.grid_size * g.grid_size, tile_rows = view_.tiles.rows;
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
    OCTAVO_RETURN_IF_ERROR(ops_.gridding.TransformGrid(stream, view_, Transforms(), grid, work));
    OCTAVO_RETURN_IF_ERROR(GoOn(stream, callback, points / 2));
    return ops_.gridding.MakeImages(stream, view_, Transforms(), work,
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
      deapodisation_, centers_;
  std::shared_ptr<const GridTable> table_;
  PinnedBuffer host_counts_;
};

}  // namespace

absl::StatusOr<int64_t> FourierBytes(const TomographyConfig& config, Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(const Families ops, FindFamilies(device));
  OCTAVO_ASSIGN_OR_RETURN(const Sizes sizes,
                          SizesOf(config, ShapeOf(config, PlanGrid(config), ops), ops));
  return sizes.bytes();
}

absl::StatusOr<std::unique_ptr<Reconstructor>> MakeFourier(const TomographyConfig& config,
                                                           Device& device, SharedTables* shared) {
  OCTAVO_ASSIGN_OR_RETURN(const Families ops, FindFamilies(device));
  TomographyPlan geometry = PlanTomography(config);
  const GriddingShape shape = ShapeOf(config, geometry, ops);
  OCTAVO_ASSIGN_OR_RETURN(const Sizes sizes, SizesOf(config, shape, ops));
  auto made = std::make_unique<FourierReconstructor>(
      config, std::move(geometry), PlanGridding(config, shape, ops.gridding.Choice()), sizes,
      device, ops);
  OCTAVO_RETURN_IF_ERROR(made->Init(shared));
  return made;
}

}  // namespace octavo::inline gpu

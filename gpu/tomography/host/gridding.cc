#include "gpu/tomography/gridding.h"

#include <memory>

#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "gpu/device/host/fft.h"
#include "gpu/device/host/fft_plan.h"
#include "gpu/device/host/host_stream.h"
#include "gpu/tomography/host/gridding_kernels.h"
#include "gpu/tomography/host/strips.h"

namespace octavo::inline gpu::host {
namespace {

float* Floats(DeviceSpan<ComplexF> values) { return reinterpret_cast<float*>(values.data()); }

class HostGriddingOps final : public GriddingOps {
 public:
  int64_t Lanes() const override { return 1; }
  GridChoice Choice() const override {
    return {.tile_columns = kGridTile, .tile_rows = kGridTile, .oversampling = 5.0 / 3};
  }
  DirectCosts Costs() const override {
    return {.back = 8e-11, .filter_level = 4e-10, .sample = 2.5e-8, .transform = 3e-10};
  }
  GriddingMemory Memory(const GriddingShape& shape) const override {
    return {.samples = SampleValues(shape),
            .work = StripsOf(shape.image_size) * TileLanes() * shape.grid_size};
  }
  absl::StatusOr<int64_t> PrepareTransforms(const GriddingShape& shape, int64_t,
                                            ArrayOps&) override {
    (void)plans_.Of(shape.length);
    (void)plans_.Of(shape.grid_size);
    return int64_t{0};
  }

  absl::Status MakeSamples(StreamRef stream, const GriddingView& view, const SinogramView& in,
                           const GridTransforms&, DeviceSpan<ComplexF>,
                           DeviceSpan<ComplexF> samples) override {
    return Enqueue(stream, [this, in, v = view, samples = samples.data()] {
      const auto plan = plans_.Of(v.shape.length);
      return ForStrips(
          StripsOf(v.shape.lines), 2 * SampleScratch(v.shape),
          [&](int64_t i, float* scratch) { MakeStripSamples(v, in, *plan, i, samples, scratch); });
    });
  }

  absl::Status Gather(StreamRef stream, const GriddingView& view, int64_t begin, int64_t end,
                      DeviceSpan<const ComplexF> samples, DeviceSpan<ComplexF> grid) override {
    return Enqueue(stream, [=, v = view, samples = samples.data(), grid = Floats(grid)] {
      const int64_t columns = v.tiles.columns;
      tbb::parallel_for(begin * columns, end * columns,
                        [&](int64_t i) { GatherTile(v, i % columns, i / columns, samples, grid); });
    });
  }

  absl::Status TransformGrid(StreamRef stream, const GriddingView& view, const GridTransforms&,
                             DeviceSpan<ComplexF> grid, DeviceSpan<ComplexF> work) override {
    return Enqueue(stream, [this, v = view, grid = Floats(grid), rows = Floats(work)] {
      const auto plan = plans_.Of(v.shape.grid_size);
      return ForStrips(
          StripsOf(v.shape.grid_size), 2 * GridScratch(v.shape),
          [&](int64_t i, float* scratch) { TransformColumns(v, *plan, i, grid, rows, scratch); });
    });
  }

  absl::Status MakeImages(StreamRef stream, const GriddingView& view, const GridTransforms&,
                          DeviceSpan<ComplexF> work, DeviceSpan<float> images) override {
    return Enqueue(stream, [this, v = view, rows = Floats(work), images = images.data()] {
      const auto plan = plans_.Of(v.shape.grid_size);
      return ForStrips(
          StripsOf(v.shape.image_size), 2 * GridScratch(v.shape),
          [&](int64_t i, float* scratch) { MakeImageRows(v, *plan, i, rows, images, scratch); });
    });
  }

 private:
  FftPlans plans_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GriddingOps>> MakeGriddingOps(Device& device) {
  OCTAVO_RETURN_IF_ERROR(CheckBackend(device, "host", GriddingOps::kFamily));
  return std::make_unique<HostGriddingOps>();
}

}  // namespace octavo::inline gpu::host

#include "gpu/tomography/gridding.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "gpu/device/host/host_stream.h"
#include "gpu/tomography/host/gridding_kernels.h"

namespace octavo::inline gpu::host {
namespace {

// exp(2πi turns r) for r = first, first + 1 …: a multiplication each, in double precision, and
// kStrands of them at a time, so that no multiplication waits for the one before.
class PhaseWalk {
 public:
  static constexpr int64_t kStrands = 8;
  PhaseWalk(double turns, int64_t first) {
    for (int64_t i = 0; i < kStrands; ++i) {
      const double angle = Angle(turns * static_cast<double>(first + i));
      re_[i] = std::cos(angle);
      im_[i] = std::sin(angle);
    }
    const double angle = Angle(turns * kStrands);
    step_re_ = std::cos(angle);
    step_im_ = std::sin(angle);
  }
  void Next() {
    for (int64_t i = 0; i < kStrands; ++i) {
      const double re = re_[i] * step_re_ - im_[i] * step_im_;
      im_[i] = re_[i] * step_im_ + im_[i] * step_re_;
      re_[i] = re;
    }
  }
  float re(int64_t i) const { return static_cast<float>(re_[i]); }
  float im(int64_t i) const { return static_cast<float>(im_[i]); }

 private:
  static double Angle(double turns) { return 2 * std::numbers::pi * (turns - std::floor(turns)); }
  double re_[kStrands], im_[kStrands];
  double step_re_, step_im_;
};

class HostGriddingOps final : public GriddingOps {
 public:
  int64_t Lanes() const override { return 1; }
  GridTile Tile() const override { return {.columns = kGridTile, .rows = kGridTile}; }
  DirectCosts Costs() const override {
    return {.back = 8e-11, .filter = 5e-11, .sample = 5e-8, .transform = 8e-10};
  }

  absl::Status PackPairs(StreamRef stream, const GriddingView& view, const SinogramView& in,
                         DeviceSpan<ComplexF> rows) override {
    return Enqueue(stream, [=, v = view, rows = rows.data()] {
      tbb::parallel_for(int64_t{0}, v.lanes * v.shape.lines, [&](int64_t i) {
        const int64_t first = 2 * (i / v.shape.lines), d = v.shape.detectors, n = v.shape.length,
                      angle = v.lines[i % v.shape.lines].projection;
        ComplexF* to = rows + i * n;
        const float* re = first < v.slices ? in.Row(v.first + first, angle) : nullptr;
        const float* im = first + 1 < v.slices ? in.Row(v.first + first + 1, angle) : nullptr;
        for (int64_t k = 0; k < d; ++k)
          to[k] = {re == nullptr ? 0.0f : re[k], im == nullptr ? 0.0f : im[k]};
        const ComplexF left = v.extend_edges ? to[0] : ComplexF{0, 0},
                       right = v.extend_edges ? to[d - 1] : ComplexF{0, 0};
        const int64_t change = v.padding_middle();
        std::fill(to + d, to + change, right);
        std::fill(to + change, to + n, left);
      });
    });
  }

  absl::Status FilterPairs(StreamRef stream, const GriddingView& view,
                           DeviceSpan<const float> filter, DeviceSpan<ComplexF> rows) override {
    return Enqueue(stream, [=, v = view, filter = filter.data(), rows = rows.data()] {
      tbb::parallel_for(int64_t{0}, v.lanes * v.shape.lines, [&](int64_t i) {
        const int64_t n = v.shape.length;
        ComplexF* row = rows + i * n;
        for (int64_t k = 0; k < n; ++k) {
          const float factor = filter[std::min(k, n - k)];
          row[k] = {row[k].re * factor, row[k].im * factor};
        }
      });
    });
  }

  absl::Status CutPairs(StreamRef stream, const GriddingView& view,
                        DeviceSpan<ComplexF> rows) override {
    return Enqueue(stream, [=, v = view, rows = rows.data()] {
      tbb::parallel_for(int64_t{0}, v.lanes * v.shape.lines, [&](int64_t i) {
        ComplexF* row = rows + i * v.shape.length;
        std::fill(row + v.shape.detectors, row + v.shape.length, ComplexF{0, 0});
      });
    });
  }

  absl::Status MakeSamples(StreamRef stream, const GriddingView& view,
                           DeviceSpan<const ComplexF> rows, DeviceSpan<ComplexF> samples) override {
    return Enqueue(stream, [=, v = view, rows = rows.data(), samples = samples.data()] {
      tbb::parallel_for(int64_t{0}, v.shape.lines, [&](int64_t line) {
        for (int64_t lane = 0; lane < v.lanes; ++lane)
          LineSamples(v, line, lane, rows + (lane * v.shape.lines + line) * v.shape.length,
                      samples + line * v.samples() * v.lanes + lane);
      });
    });
  }

  absl::Status Gather(StreamRef stream, const GriddingView& view, int64_t begin, int64_t end,
                      DeviceSpan<const ComplexF> samples, DeviceSpan<ComplexF> grid) override {
    return Enqueue(stream, [=, v = view, samples = samples.data(), grid = grid.data()] {
      const int64_t columns = v.tile_columns();
      tbb::parallel_for(begin * columns, end * columns,
                        [&](int64_t i) { GatherTile(v, i % columns, i / columns, samples, grid); });
    });
  }

  absl::Status TakeColumns(StreamRef stream, const GriddingView& view,
                           DeviceSpan<const ComplexF> grid, DeviceSpan<ComplexF> columns) override {
    return Enqueue(stream, [=, v = view, grid = grid.data(), columns = columns.data()] {
      const int64_t n = v.shape.image_size, m = v.shape.grid_size, bands = Blocks(n);
      tbb::parallel_for(int64_t{0}, v.lanes * bands, [&](int64_t i) {
        const ComplexF* from = grid + i / bands * m * m + v.image_begin();
        ComplexF* to = columns + i / bands * n * m;
        const int64_t first = i % bands * kBand, last = std::min(first + kBand, n);
        for (int64_t y0 = 0; y0 < m; y0 += kBand) {
          for (int64_t x = first; x < last; ++x) {
            for (int64_t y = y0; y < std::min(y0 + kBand, m); ++y) to[x * m + y] = from[y * m + x];
          }
        }
      });
    });
  }

  absl::Status FinishImages(StreamRef stream, const GriddingView& view,
                            DeviceSpan<const ComplexF> columns, DeviceSpan<float> images) override {
    return Enqueue(stream, [=, v = view, columns = columns.data(), images = images.data()] {
      const int64_t n = v.shape.image_size, m = v.shape.grid_size, bands = Blocks(n);
      tbb::parallel_for(int64_t{0}, v.lanes * bands, [&](int64_t i) {
        const int64_t slice = 2 * (i / bands);
        if (slice >= v.slices) return;
        const ComplexF* from = columns + i / bands * n * m + v.image_begin();
        float* re = images + slice * n * n;
        float* im = slice + 1 < v.slices ? re + n * n : nullptr;
        const int64_t first = i % bands * kBand, last = std::min(first + kBand, n);
        for (int64_t x0 = 0; x0 < n; x0 += kBand) {
          for (int64_t y = first; y < last; ++y) {
            for (int64_t x = x0; x < std::min(x0 + kBand, n); ++x) {
              const float factor = v.Counts(y, x) ? v.deapodisation[x] * v.deapodisation[y] : 0.0f;
              const ComplexF value = from[x * m + y];
              re[y * n + x] = value.re * factor;
              if (im != nullptr) im[y * n + x] = value.im * factor;
            }
          }
        }
      });
    });
  }

 private:
  static constexpr int64_t kBand = 16;  // rows or columns that a transposition takes at a time
  static int64_t Blocks(int64_t count) { return (count + kBand - 1) / kBand; }

  static void LineSamples(const GriddingView& v, int64_t index, int64_t lane, const ComplexF* row,
                          ComplexF* out) {
    const math::GridLine& line = v.lines[index];
    const int64_t n = v.shape.length, half = n / 2, slice = v.first + 2 * lane;
    const auto turns = [&](int64_t of) {
      return (v.centers[v.shared_center ? 0 : of] + line.shift) / static_cast<double>(n);
    };
    const int64_t other = 2 * lane + 1 < v.slices ? slice + 1 : slice;
    PhaseWalk phase(turns(2 * lane < v.slices ? slice : v.first), -half);
    PhaseWalk second(turns(2 * lane < v.slices ? other : v.first), -half);
    for (int64_t r = -half; r <= half; r += PhaseWalk::kStrands) {
      for (int64_t i = 0; i < PhaseWalk::kStrands && r + i <= half; ++i) {
        const int64_t at = r + i;
        const ComplexF z = row[at < 0 ? at + n : at];
        const float factor = v.response[std::abs(at)] * line.weight;
        ComplexF s = Turned(z, {phase.re(i), phase.im(i)});
        if (!v.shared_center)
          s = TurnedApart(z, row[at > 0 ? n - at : -at], {phase.re(i), phase.im(i)},
                          {second.re(i), second.im(i)});
        out[(at + half) * v.lanes] = {s.re * factor, s.im * factor};
      }
      phase.Next();
      if (!v.shared_center) second.Next();
    }
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<GriddingOps>> MakeGriddingOps(Device& device) {
  OCTAVO_RETURN_IF_ERROR(CheckBackend(device, "host", GriddingOps::kFamily));
  return std::make_unique<HostGriddingOps>();
}

}  // namespace octavo::inline gpu::host

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "gpu/device/host/host_stream.h"
#include "gpu/math/total_variation.h"
#include "gpu/tomography/host/filter_kernels.h"
#include "gpu/tomography/host/reconstruct_kernels.h"
#include "gpu/tomography/host/strips.h"
#include "gpu/tomography/reconstruct_kernels.h"

namespace octavo::inline gpu::host {
namespace {

using math::kRayMargin;

int64_t Blocks(int64_t count, int64_t block) { return (count + block - 1) / block; }

/// Calls f(row, sums of its part) for all rows: the parts in parallel, the rows of a part in order.
/// A part has `width` sums.
template <class F>
void AddOverRows(int64_t rows, int64_t width, double* sums, F f) {
  tbb::parallel_for(int64_t{0}, kSumParts, [&](int64_t part) {
    for (int64_t row = part; row < rows; row += kSumParts) f(row, sums + part * width);
  });
}

/// Calls f with the number of lanes as a compile-time constant, for the loops over elements.
template <class F>
void ForLanes(int64_t lanes, F f) {
  lanes == 1 ? f.template operator()<1>() : f.template operator()<kHostLanes>();
}

class HostTomographyOps final : public TomographyOps {
 public:
  // A vector of slices costs about as much as five separate slices.
  int64_t Lanes(int64_t slices, bool shared_center) const override {
    return shared_center && slices >= 5 ? kHostLanes : 1;
  }
  int64_t PieceSamples() const override { return int64_t{1} << 29; }
  int64_t FilterSamples(int64_t detectors) const override { return 100 * detectors; }

  absl::Status Transpose(StreamRef stream, const RayView& view, DeviceSpan<const float> image,
                         DeviceSpan<float> transposed) override {
    return Enqueue(stream, [=, v = view, image = image.data(), transposed = transposed.data()] {
      const int64_t n = v.size, pitch = v.image_pitch(), tiles = Blocks(n, 16),
                    group_stride = n * pitch * v.lanes;
      tbb::parallel_for(int64_t{0}, v.groups * tiles, [&](int64_t i) {
        const float* in = image + i / tiles * group_stride + kRayMargin * v.lanes;
        float* out = transposed + i / tiles * group_stride + kRayMargin * v.lanes;
        const int64_t first = i % tiles * 16, last = std::min(first + 16, n);
        for (int64_t c0 = 0; c0 < n; c0 += 16) {
          for (int64_t r = first; r < last; ++r) {
            for (int64_t c = c0; c < std::min(c0 + 16, n); ++c) {
              if (v.lanes == 1) {
                out[c * pitch + r] = in[r * pitch + c];
              } else {
                std::memcpy(out + (c * pitch + r) * kHostLanes, in + (r * pitch + c) * kHostLanes,
                            kHostLanes * sizeof(float));
              }
            }
          }
        }
      });
    });
  }

  absl::Status Forward(StreamRef stream, const RayView& view, const AngleRange& range,
                       DeviceSpan<const float> image, DeviceSpan<const float> transposed,
                       DeviceSpan<float> sinogram) override {
    return Enqueue(stream, [=, v = view, image = image.data(), transposed = transposed.data(),
                            sinogram = sinogram.data()] {
      const int64_t rays = Blocks(v.detectors, kBlock);
      const int64_t by_rows = Blocks(range.split - range.begin, kBlockAngles),
                    blocks = by_rows + Blocks(range.end - range.split, kBlockAngles);
      tbb::parallel_for(int64_t{0}, v.groups * blocks * rays, [&](int64_t i) {
        const int64_t group = i / (blocks * rays), block = i / rays % blocks,
                      ray = i % rays * kBlock;
        const bool rows = block < by_rows;
        const int64_t begin = rows ? range.begin + block * kBlockAngles
                                   : range.split + (block - by_rows) * kBlockAngles;
        const int64_t end = std::min(begin + kBlockAngles, rows ? range.split : range.end);
        ForwardBlock(v, group, begin, end, ray,
                     (rows ? image : transposed) + group * v.size * v.image_pitch() * v.lanes,
                     sinogram + group * v.angles * v.sinogram_pitch() * v.lanes);
      });
    });
  }

  absl::Status Back(StreamRef stream, const RayView& view, const AngleRange& range,
                    DeviceSpan<const float> sinogram, DeviceSpan<float> image) override {
    return Enqueue(stream, [=, v = view, sinogram = sinogram.data(), image = image.data()] {
      const int64_t rows = Blocks(v.back_rows(), kBlockRows), columns = Blocks(v.size, kBlock);
      tbb::parallel_for(int64_t{0}, v.groups * rows * columns, [&](int64_t i) {
        const int64_t group = i / (rows * columns),
                      row = v.row_begin + i / columns % rows * kBlockRows,
                      column = i % columns * kBlock;
        BackBlock(v, group, range.begin, range.end, row, column,
                  sinogram + group * v.angles * v.sinogram_pitch() * v.lanes,
                  image + group * v.size * v.image_pitch() * v.lanes);
      });
    });
  }

  absl::Status AddPlane(StreamRef stream, const RayView& view, const math::VolumePlane& plane,
                        DeviceSpan<const float> sinogram, DeviceSpan<float> image) override {
    return Enqueue(stream, [=, v = view, sinogram = sinogram.data(), image = image.data()] {
      const int64_t rows = Blocks(plane.rows(), kBlockRows),
                    columns = Blocks(plane.columns(), kBlock);
      tbb::parallel_for(int64_t{0}, rows * columns, [&](int64_t i) {
        PlaneBlock(v, plane, i / columns * kBlockRows, i % columns * kBlock, sinogram, image);
      });
    });
  }

  absl::Status PackSinograms(StreamRef stream, const RayView& view, const SinogramView& in,
                             DeviceSpan<const int32_t> order, int64_t slices,
                             DeviceSpan<float> out) override {
    return Enqueue(stream, [=, v = view, order = order.data(), out = out.data()] {
      tbb::parallel_for(int64_t{0}, v.groups * v.angles, [&](int64_t i) {
        const int64_t group = i / v.angles, angle = order[i % v.angles];
        float* row = out + v.SinogramRow(i) * v.lanes;
        for (int64_t l = 0; l < v.lanes; ++l) {
          const int64_t slice = group * v.lanes + l;
          const float* from = in.Row(slice, angle);
          for (int64_t d = 0; d < v.detectors; ++d)
            row[d * v.lanes + l] = slice >= slices ? 0.0f : from == nullptr ? 1.0f : from[d];
        }
      });
    });
  }

  absl::Status UnpackSinograms(StreamRef stream, const RayView& view, DeviceSpan<const float> in,
                               DeviceSpan<const int32_t> order, int64_t slices,
                               DeviceSpan<float> out) override {
    return Enqueue(stream, [=, v = view, in = in.data(), order = order.data(), out = out.data()] {
      tbb::parallel_for(int64_t{0}, slices * v.angles, [&](int64_t i) {
        const int64_t slice = i / v.angles, a = i % v.angles, lane = slice % v.lanes;
        const float* row = in + v.SinogramRow(slice / v.lanes * v.angles + a) * v.lanes + lane;
        float* to = out + (slice * v.angles + order[a]) * v.detectors;
        for (int64_t d = 0; d < v.detectors; ++d) to[d] = row[d * v.lanes];
      });
    });
  }

  absl::Status PackImages(StreamRef stream, const RayView& view, DeviceSpan<const float> in,
                          float value, int64_t n, int64_t slices, DeviceSpan<float> out) override {
    return Enqueue(stream, [=, v = view, in = in.data(), out = out.data()] {
      const math::GridMiddle middle(v.size, n);
      tbb::parallel_for(int64_t{0}, v.groups * v.size, [&](int64_t i) {
        const int64_t group = i / v.size, r = i % v.size;
        float* row = out + v.ImageRow(i) * v.lanes;
        for (int64_t c = 0; c < v.size; ++c) {
          const bool counts = v.Counts(r, c), given = middle.Contains(r, c);
          for (int64_t l = 0; l < v.lanes; ++l) {
            const int64_t slice = group * v.lanes + l;
            float x = in == nullptr             ? value
                      : given && slice < slices ? in[middle.At(slice, r, c)]
                                                : 0.0f;
            row[c * v.lanes + l] = counts && slice < slices ? x : 0.0f;
          }
        }
      });
    });
  }

  absl::Status UnpackImages(StreamRef stream, const RayView& view, DeviceSpan<const float> in,
                            int64_t n, int64_t first, int64_t count,
                            DeviceSpan<float> out) override {
    return Enqueue(stream, [=, v = view, in = in.data(), out = out.data()] {
      const int64_t border = math::GridMiddle(v.size, n).border;
      tbb::parallel_for(int64_t{0}, count * n, [&](int64_t i) {
        const int64_t slice = first + i / n, group = slice / v.lanes, lane = slice % v.lanes,
                      r = i % n + border;
        const float* row = in + (v.ImageRow(group * v.size + r) + border) * v.lanes + lane;
        for (int64_t c = 0; c < n; ++c) out[i * n + c] = row[c * v.lanes];
      });
    });
  }

  absl::Status Inspect(StreamRef stream, DeviceSpan<const float> values, int64_t count,
                       DeviceSpan<int64_t> counts) override {
    return Enqueue(stream, [=, values = values.data(), counts = counts.data()] {
      std::array<double, 2 * kSumParts> sums{};
      constexpr int64_t kPart = 1 << 14;
      AddOverRows(Blocks(count, kPart), 2, sums.data(), [&](int64_t part, double* totals) {
        int64_t odd = 0, negative = 0;
        for (int64_t i = part * kPart; i < std::min((part + 1) * kPart, count); ++i) {
          odd += !(std::abs(values[i]) <= std::numeric_limits<float>::max());
          negative += values[i] < 0;
        }
        totals[0] += static_cast<double>(odd);
        totals[1] += static_cast<double>(negative);
      });
      counts[0] = counts[1] = 0;
      for (size_t i = 0; i < sums.size(); ++i) counts[i % 2] += static_cast<int64_t>(sums[i]);
    });
  }

  absl::Status DropNegative(StreamRef stream, DeviceSpan<float> values, int64_t count) override {
    return ForEach(stream, count, [=, values = values.data()](int64_t i) {
      values[i] = math::Larger(values[i], 0.0f);
    });
  }

  absl::Status Reciprocal(StreamRef stream, DeviceSpan<float> values, int64_t count,
                          float least) override {
    return ForEach(stream, count, [=, values = values.data()](int64_t i) {
      values[i] = values[i] > least ? 1.0f / values[i] : 0.0f;
    });
  }

  absl::Status Residual(StreamRef stream, const RayView& view, const AngleRange& range,
                        ResidualKind kind, DeviceSpan<const float> measured,
                        const SharedWeights& rows, float floor, DeviceSpan<float> projected,
                        DeviceSpan<double> sums) override {
    return Enqueue(stream, [=, v = view, measured = measured.data(), projected = projected.data(),
                            sums = sums.data()] {
      ForLanes(v.lanes, [&]<int64_t kLanes>() {
        tbb::parallel_for(int64_t{0}, kSumParts, [&](int64_t part) {
          for (int64_t i = part; i < v.groups * range.count(); i += kSumParts) {
            const int64_t group = i / range.count(), angle = range.begin + i % range.count();
            const int64_t start = v.SinogramRow(group * v.angles + angle) * kLanes;
            const float *b = measured + start,
                        *w = kind == ResidualKind::kWeighted
                                 ? rows.data + group * rows.group_stride + v.SinogramRow(angle)
                                 : nullptr;
            float* p = projected + start;
            double totals[kLanes] = {};
            for (int64_t d = 0; d < v.detectors; ++d) {
              for (int64_t l = 0; l < kLanes; ++l) {
                const int64_t e = d * kLanes + l;
                const float r = b[e] - p[e];
                totals[l] += static_cast<double>(r) * static_cast<double>(r);
                p[e] = kind == ResidualKind::kRatio ? math::MlemRatio(b[e], p[e], floor)
                       : w != nullptr               ? w[d] * r
                                                    : r;
              }
            }
            for (int64_t l = 0; sums != nullptr && l < kLanes; ++l)
              sums[(part * v.groups + group) * kLanes + l] += totals[l];
          }
        });
      });
    });
  }

  absl::Status Update(StreamRef stream, const RayView& view, const UpdateOptions& options,
                      DeviceSpan<const float> back, const SharedWeights& columns,
                      DeviceSpan<float> image, DeviceSpan<double> changes) override {
    return Enqueue(stream, [=, v = view, back = back.data(), image = image.data(),
                            changes = changes.data()] {
      ForLanes(v.lanes, [&]<int64_t kLanes>() {
        AddOverRows(
            v.groups * v.size, 2 * v.groups * kLanes, changes, [&](int64_t i, double* totals) {
              const int64_t group = i / v.size, r = i % v.size, start = v.ImageRow(i) * kLanes;
              const float* w = columns.data + group * columns.group_stride + v.ImageRow(r);
              totals += group * 2 * kLanes;
              for (int64_t c = 0; c < v.size; ++c) {
                if (w[c] == 0.0f) continue;
                for (int64_t l = 0; l < kLanes; ++l) {
                  float& x = image[start + c * kLanes + l];
                  const float before = x, a = back[start + c * kLanes + l];
                  const float after = options.kind == UpdateKind::kSirt
                                          ? math::SirtUpdate(x, a, w[c], options.relaxation)
                                          : math::MlemUpdate(x, a, w[c]);
                  x = math::Clamped(after, options.lo, options.hi);
                  const double change = static_cast<double>(x) - static_cast<double>(before);
                  totals[2 * l] += change * change;
                  totals[2 * l + 1] += static_cast<double>(before) * static_cast<double>(before);
                }
              }
            });
      });
    });
  }

  absl::Status DualRays(StreamRef stream, const RayView& view, const SharedWeights& rows,
                        const TvSteps& steps, bool first, DeviceSpan<const float> measured,
                        DeviceSpan<const float> bar, DeviceSpan<float> dual,
                        DeviceSpan<float> projected, DeviceSpan<double> sums) override {
    return Enqueue(stream, [=, v = view, measured = measured.data(), bar = bar.data(),
                            dual = dual.data(), projected = projected.data(), sums = sums.data()] {
      ForLanes(v.lanes, [&]<int64_t kLanes>() {
        AddOverRows(v.groups * v.angles, v.groups * kLanes, sums, [&](int64_t i, double* totals) {
          const int64_t group = i / v.angles, start = v.SinogramRow(i) * kLanes;
          const float* w = rows.data + group * rows.group_stride + v.SinogramRow(i % v.angles);
          totals += group * kLanes;
          for (int64_t d = 0; d < v.detectors; ++d) {
            for (int64_t l = 0; l < kLanes; ++l) {
              const int64_t e = start + d * kLanes + l;
              const float a = bar[e], before = first ? a : projected[e], now = 0.5f * (before + a),
                          r = measured[e] - now;
              projected[e] = now;
              dual[e] = math::DualOfRay(first ? 0.0f : dual[e], a, measured[e], steps.rays * w[d]);
              totals[l] += static_cast<double>(r) * static_cast<double>(r);
            }
          }
        });
      });
    });
  }

  absl::Status DualSlopes(StreamRef stream, const RayView& view, const SharedWeights& columns,
                          const TvSteps& steps, DeviceSpan<const float> bar,
                          DeviceSpan<float> right, DeviceSpan<float> down,
                          DeviceSpan<double> gaps) override {
    return Enqueue(stream, [=, v = view, bar = bar.data(), right = right.data(), down = down.data(),
                            gaps = gaps.data()] {
      ForLanes(v.lanes, [&]<int64_t kLanes>() {
        AddOverRows(v.groups * v.size, 2 * v.groups * kLanes, gaps, [&](int64_t i, double* totals) {
          const int64_t group = i / v.size, r = i % v.size, start = v.ImageRow(i) * kLanes,
                        below = v.image_pitch();
          const float* w = columns.data + group * columns.group_stride + v.ImageRow(r);
          totals += group * 2 * kLanes;
          for (int64_t c = 0; c < v.size; ++c) {
            const bool has_right = w[c] != 0.0f && c + 1 < v.size && w[c + 1] != 0.0f,
                       has_down = w[c] != 0.0f && r + 1 < v.size && w[c + below] != 0.0f;
            for (int64_t l = 0; l < kLanes; ++l) {
              const int64_t e = start + c * kLanes + l;
              const math::Slope slope{.right = has_right ? bar[e + kLanes] - bar[e] : 0.0f,
                                      .down = has_down ? bar[e + below * kLanes] - bar[e] : 0.0f};
              const math::Slope now =
                  math::DualOfSlope({right[e], down[e]}, slope, steps.slopes, steps.limit);
              right[e] = now.right;
              down[e] = now.down;
              totals[2 * l] += static_cast<double>(math::VariationGap(now, slope, steps.limit));
              totals[2 * l + 1] += static_cast<double>(steps.limit * math::LengthOf(slope));
            }
          }
        });
      });
    });
  }

  absl::Status PrimalStep(StreamRef stream, const RayView& view, const UpdateOptions& options,
                          const TvSteps& steps, DeviceSpan<const float> back,
                          const SharedWeights& columns, DeviceSpan<const float> right,
                          DeviceSpan<const float> down, DeviceSpan<float> image,
                          DeviceSpan<float> bar, DeviceSpan<double> changes) override {
    return Enqueue(
        stream, [=, v = view, back = back.data(), right = right.data(), down = down.data(),
                 image = image.data(), bar = bar.data(), changes = changes.data()] {
          ForLanes(v.lanes, [&]<int64_t kLanes>() {
            AddOverRows(
                v.groups * v.size, 2 * v.groups * kLanes, changes, [&](int64_t i, double* totals) {
                  const int64_t group = i / v.size, r = i % v.size, start = v.ImageRow(i) * kLanes,
                                above = r == 0 ? 0 : v.image_pitch() * kLanes;
                  const float* w = columns.data + group * columns.group_stride + v.ImageRow(r);
                  totals += group * 2 * kLanes;
                  for (int64_t c = 0; c < v.size; ++c) {
                    if (w[c] == 0.0f) continue;
                    for (int64_t l = 0; l < kLanes; ++l) {
                      const int64_t e = start + c * kLanes + l;
                      // The margin left of the first column is zero.
                      const float turned = (right[e - kLanes] - right[e]) +
                                           ((r == 0 ? 0.0f : down[e - above]) - down[e]);
                      const float x = image[e],
                                  now = math::Clamped(
                                      math::PrimalStep(x, back[e], turned, steps.columns * w[c],
                                                       steps.strength, steps.image),
                                      options.lo, options.hi);
                      image[e] = now;
                      bar[e] = 2.0f * now - x;
                      const double change = static_cast<double>(now) - static_cast<double>(x);
                      totals[2 * l] += change * change;
                      totals[2 * l + 1] += static_cast<double>(x) * static_cast<double>(x);
                    }
                  }
                });
          });
        });
  }

  absl::Status SquareSum(StreamRef stream, const RayView& view, DeviceSpan<const float> a,
                         int64_t elements, DeviceSpan<double> sums) override {
    return Enqueue(stream, [=, v = view, a = a.data(), sums = sums.data()] {
      ForLanes(v.lanes, [&]<int64_t kLanes>() {
        constexpr int64_t kPart = 1024 * kLanes;
        std::fill_n(sums, kSumParts * v.groups * kLanes, 0.0);
        for (int64_t group = 0; group < v.groups; ++group) {
          const float* in = a + group * elements;
          AddOverRows(Blocks(elements, kPart), v.groups * kLanes, sums + group * kLanes,
                      [&](int64_t part, double* totals) {
                        for (int64_t i = part * kPart; i < std::min((part + 1) * kPart, elements);
                             i += kLanes) {
                          for (int64_t l = 0; l < kLanes; ++l)
                            totals[l] +=
                                static_cast<double>(in[i + l]) * static_cast<double>(in[i + l]);
                        }
                      });
        }
      });
    });
  }

  absl::Status ScaledAdd(StreamRef stream, const RayView& view, DeviceSpan<const float> alpha,
                         DeviceSpan<const float> x, DeviceSpan<const float> beta,
                         DeviceSpan<float> y, int64_t elements) override {
    return Enqueue(stream, [=, v = view, alpha = alpha.data(), x = x.data(), beta = beta.data(),
                            y = y.data()] {
      ForLanes(v.lanes, [&]<int64_t kLanes>() {
        constexpr int64_t kPart = 4096 * kLanes;
        const int64_t parts = Blocks(elements, kPart);
        tbb::parallel_for(int64_t{0}, v.groups * parts, [&](int64_t task) {
          const int64_t group = task / parts, part = task % parts;
          for (int64_t i = part * kPart; i < std::min((part + 1) * kPart, elements); i += kLanes) {
            for (int64_t l = 0; l < kLanes; ++l) {
              float& out = y[group * elements + i + l];
              out = fmaf(alpha[group * kLanes + l], x[group * elements + i + l],
                         beta[group * kLanes + l] * out);
            }
          }
        });
      });
    });
  }

  absl::Status FilterRows(StreamRef stream, const RayView& view, const RowFilter& filter,
                          DeviceSpan<const float> in, DeviceSpan<float> out) override {
    return Enqueue(stream, [=, this, v = view, in = in.data(), out = out.data()] {
      const auto plan = filters_.Of(filter.taps, v.detectors);
      const int64_t rows = FilterStripRows(v), strips = Blocks(v.angles, rows);
      return ForStrips(v.groups * strips, FilterScratch(*plan), [&](int64_t i, float* scratch) {
        const int64_t slice = i / strips * v.angles, first = i % strips * rows;
        FilterStrip(v, filter, *plan, slice + first, slice + std::min(first + rows, v.angles), in,
                    out, scratch);
      });
    });
  }

  absl::Status Rotate(StreamRef stream, const TurnedGrid& grid, DeviceSpan<const float> in,
                      bool add, DeviceSpan<float> out) override {
    return Enqueue(stream, [=, in = in.data(), out = out.data()] {
      const auto n = static_cast<int32_t>(grid.n);
      tbb::parallel_for(int64_t{0}, grid.slices * grid.n, [&](int64_t i) {
        const float* image = in + i / grid.n * grid.n * grid.n;
        for (int32_t x = 0; x < n; ++x) {
          const float value = math::TurnedPixel(image, n, grid.matrix, grid.interpolation, x,
                                                static_cast<int32_t>(i % grid.n));
          out[i * grid.n + x] = add ? out[i * grid.n + x] + value : value;
        }
      });
    });
  }

  absl::Status SpreadResidual(StreamRef stream, int64_t slices, int64_t n,
                              DeviceSpan<const float> data, int64_t slice_stride, bool ratio,
                              DeviceSpan<float> turned, DeviceSpan<double> sums) override {
    return Enqueue(stream, [=, data = data.data(), turned = turned.data(), sums = sums.data()] {
      tbb::parallel_for(int64_t{0}, slices * n, [&](int64_t i) {
        float* row = turned + i * n;
        float sum = 0;
        for (int64_t x = 0; x < n; ++x) sum += row[x];
        const float measured = data[i / n * slice_stride + i % n],
                    term = math::SpreadTerm(measured, sum, ratio);
        const double r = static_cast<double>(measured) - static_cast<double>(sum);
        sums[i] += r * r;
        for (int64_t x = 0; x < n; ++x) row[x] += term;
      });
    });
  }

  absl::Status SpreadUpdate(StreamRef stream, int64_t slices, int64_t n,
                            DeviceSpan<const float> update, DeviceSpan<const float> cover,
                            bool ratio, DeviceSpan<float> image) override {
    const auto width = static_cast<float>(n);
    return ForEach(
        stream, slices * n * n,
        [=, update = update.data(), cover = cover.data(), image = image.data()](int64_t i) {
          image[i] = math::SpreadUpdated(image[i], update[i], cover[i % (n * n)], width, ratio);
        });
  }

 private:
  LatestFilterPlan filters_;

  template <class F>
  static absl::Status ForEach(StreamRef stream, int64_t count, F f) {
    return Enqueue(stream, [=] {
      constexpr int64_t kPart = 1 << 16;
      tbb::parallel_for(int64_t{0}, Blocks(count, kPart), [&](int64_t part) {
        for (int64_t i = part * kPart; i < std::min((part + 1) * kPart, count); ++i) f(i);
      });
    });
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<TomographyOps>> MakeTomographyOps(Device& device) {
  OCTAVO_RETURN_IF_ERROR(CheckBackend(device, "host", TomographyOps::kFamily));
  return std::make_unique<HostTomographyOps>();
}

}  // namespace octavo::inline gpu::host

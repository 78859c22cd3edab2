#include <algorithm>
#include <array>
#include <atomic>
#include <vector>

#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "gpu/device/dtype_dispatch.h"
#include "gpu/device/host/host_stream.h"
#include "gpu/tomography/preprocess_ops.h"

namespace octavo::inline gpu::host {
namespace {

constexpr int64_t kRun = 256;  // columns that a sliding window passes

/// f(row, column) of all.
template <class F>
void ForRows(int64_t rows, int64_t columns, F f) {
  tbb::parallel_for(int64_t{0}, rows, [&](int64_t row) {
    for (int64_t column = 0; column < columns; ++column) f(row, column);
  });
}

/// The same; f tells what it met as bits, which are counted.
template <class F>
void CountRows(int64_t rows, int64_t columns, int64_t* counts, F f) {
  std::array<std::atomic<int64_t>, math::kPrepareFlags> totals{};
  tbb::parallel_for(int64_t{0}, rows, [&](int64_t row) {
    int64_t mine[math::kPrepareFlags] = {};
    for (int64_t column = 0; column < columns; ++column) {
      const uint32_t flags = f(row, column);
      for (int bit = 0; flags != 0 && bit < math::kPrepareFlags; ++bit)
        mine[bit] += (flags >> bit) & 1;
    }
    for (size_t bit = 0; bit < totals.size(); ++bit) {
      if (mine[bit] != 0) totals[bit] += mine[bit];
    }
  });
  for (size_t bit = 0; bit < totals.size(); ++bit) counts[bit] += totals[bit];
}

class HostPrepareOps final : public PrepareOps {
 public:
  absl::Status Field(StreamRef stream, const FrameSpec& in, bool median, const void* frames,
                     DeviceSpan<float> out) override {
    return Enqueue(stream, [=, out = out.data()] {
      DispatchIntensityType(in.dtype, [&](auto type) {
        const auto* values = static_cast<const decltype(type)*>(frames);
        ForRows(in.rows, in.columns, [&](int64_t row, int64_t column) {
          out[row * in.columns + column] = math::FieldValue(in.frames, median, [&](int64_t i) {
            return static_cast<float>(values[i * in.frame_stride + row * in.row_stride + column]);
          });
        });
      });
    });
  }

  absl::Status Outliers(StreamRef stream, const OutlierSpec& spec, const void* frames,
                        DeviceSpan<float> out, DeviceSpan<int64_t> counts) override {
    return Enqueue(stream, [=, out = out.data(), counts = counts.data()] {
      DispatchIntensityType(spec.in.dtype, [&](auto type) {
        const FrameSpec& in = spec.in;
        const int64_t runs = (in.columns + kRun - 1) / kRun;
        std::atomic<int64_t> found{0};
        tbb::parallel_for(int64_t{0}, in.frames * in.rows * runs, [&](int64_t i) {
          const int64_t frame = i / (in.rows * runs), row = i / runs % in.rows,
                        begin = i % runs * kRun;
          const auto* values = static_cast<const decltype(type)*>(frames) + frame * in.frame_stride;
          const auto at = [&](int64_t r, int64_t c) {
            return static_cast<float>(
                values[math::Mirrored(r, in.rows) * in.row_stride + math::Mirrored(c, in.columns)]);
          };
          std::array<uint32_t, 225> memory;
          int64_t mine = 0;
          math::SlideMedian(
              math::SortedWindow<uint32_t>{.data = memory.data()}, spec.window, true, begin,
              std::min(begin + kRun, in.columns),
              [&](int64_t c, int64_t o) { return math::SortKey(at(row + o, c)); },
              [&](int64_t c, uint32_t key) {
                const float value = at(row, c), median = math::FromSortKey(key);
                const bool odd = math::IsOutlier(value, median, spec.difference, spec.dark_too);
                mine += odd;
                out[(frame * in.rows + row) * in.columns + c] = odd ? median : value;
              });
          if (mine != 0) found += mine;
        });
        counts[0] += found;
      });
    });
  }

  absl::Status Correct(StreamRef stream, const CorrectSpec& spec, const void* frames,
                       DeviceSpan<float> out, DeviceSpan<int64_t> counts) override {
    return Enqueue(stream, [=, out = out.data(), counts = counts.data()] {
      DispatchIntensityType(spec.in.dtype, [&](auto type) {
        const auto* values = static_cast<const decltype(type)*>(frames);
        CountRows(spec.angles * spec.rows, spec.columns, counts, [&](int64_t i, int64_t column) {
          const int64_t angle = i / spec.rows, row = i % spec.rows;
          uint32_t flags = 0;
          out[angle * spec.out_angle_stride + row * spec.out_row_stride + column] =
              Corrected(spec, values, angle, row, column, &flags);
          return flags;
        });
      });
    });
  }

  absl::Status AirLevels(StreamRef stream, const RowsSpec& in, int64_t left, int64_t right,
                         DeviceSpan<const float> values, DeviceSpan<float> air) override {
    return Enqueue(stream, [=, values = values.data(), air = air.data()] {
      ForRows(in.angles * in.rows, 1, [&](int64_t i, int64_t) {
        AirOfRow(values + i / in.rows * in.angle_stride + i % in.rows * in.row_stride, in.columns,
                 left, right, air + 2 * i);
      });
    });
  }

  absl::Status Finish(StreamRef stream, const FinishSpec& spec, DeviceSpan<const float> in,
                      DeviceSpan<float> out, DeviceSpan<int64_t> counts) override {
    return Enqueue(stream, [=, in = in.data(), out = out.data(), counts = counts.data()] {
      CountRows(
          spec.in.angles * spec.in.rows, spec.in.columns, counts, [&](int64_t i, int64_t column) {
            const int64_t angle = i / spec.in.rows, row = i % spec.in.rows;
            uint32_t flags = 0;
            out[angle * spec.out.angle_stride + row * spec.out.row_stride + column] = FinishedPixel(
                spec, in[angle * spec.in.angle_stride + row * spec.in.row_stride + column], i,
                column, &flags);
            return flags;
          });
    });
  }

  absl::Status Pad(StreamRef stream, const PaddedSpec& s, DeviceSpan<const float> in,
                   DeviceSpan<ComplexF> out) override {
    return Enqueue(stream, [=, in = in.data(), out = out.data()] {
      ForRows(s.frames * s.padded_rows, s.padded_columns, [&](int64_t row, int64_t c) {
        out[row * s.padded_columns + c] = PaddedPixel(s, in, row, c);
      });
    });
  }
  absl::Status Unpad(StreamRef stream, const PaddedSpec& s, DeviceSpan<const ComplexF> in,
                     DeviceSpan<float> out) override {
    return Enqueue(stream, [=, in = in.data(), out = out.data()] {
      ForRows(s.frames * s.rows, s.columns, [&](int64_t row, int64_t c) {
        out[row * s.columns + c] = UnpaddedPixel(s, in, row, c);
      });
    });
  }
  absl::Status FilterPhase(StreamRef stream, const PaddedSpec& s, float scale_rows,
                           float scale_columns, float scale, DeviceSpan<ComplexF> data) override {
    return Enqueue(stream, [=, data = data.data()] {
      ForRows(s.frames * s.padded_columns, s.padded_rows, [&](int64_t i, int64_t v) {
        const float factor = scale * math::PhaseFactor(v, s.padded_rows, i % s.padded_columns,
                                                       s.padded_columns, scale_rows, scale_columns);
        data[i * s.padded_rows + v].re *= factor;
        data[i * s.padded_rows + v].im *= factor;
      });
    });
  }

  absl::Status Stitch(StreamRef stream, const StitchSpec& s, DeviceSpan<const float> in,
                      DeviceSpan<float> out) override {
    return Enqueue(stream, [=, in = in.data(), out = out.data()] {
      ForRows(s.slices * s.half_turn, s.width, [&](int64_t i, int64_t y) {
        const float* near = in + (i / s.half_turn * s.angles + i % s.half_turn) * s.columns;
        out[i * s.width + y] = math::StitchedPixel(near, near + s.half_turn * s.columns, s.columns,
                                                   s.width, s.overlap, s.right, y);
      });
    });
  }
};

class HostSinogramOps final : public SinogramOps {
 public:
  absl::Status Transpose(StreamRef stream, int64_t batch, int64_t rows, int64_t columns,
                         DeviceSpan<const float> in, DeviceSpan<float> out) override {
    return TransposeRows(stream, batch, rows, columns, in.data(), out.data());
  }
  absl::Status Transpose(StreamRef stream, int64_t batch, int64_t rows, int64_t columns,
                         DeviceSpan<const ComplexF> in, DeviceSpan<ComplexF> out) override {
    return TransposeRows(stream, batch, rows, columns, in.data(), out.data());
  }

  absl::Status SortColumns(StreamRef stream, const ColumnsSpec& s, DeviceSpan<const float> in,
                           DeviceSpan<float> sorted, DeviceSpan<int32_t> order) override {
    return Enqueue(stream, [=, in = in.data(), sorted = sorted.data(), order = order.data()] {
      tbb::parallel_for(int64_t{0}, s.columns(), [&](int64_t column) {
        std::vector<uint64_t> keys(static_cast<size_t>(s.angles));
        for (int64_t a = 0; a < s.angles; ++a)
          keys[static_cast<size_t>(a)] =
              uint64_t{math::SortKey(in[column * s.angles + a])} << 32 | static_cast<uint64_t>(a);
        std::sort(keys.begin(), keys.end());
        for (int64_t a = 0; a < s.angles; ++a) {
          sorted[column * s.angles + a] =
              math::FromSortKey(static_cast<uint32_t>(keys[static_cast<size_t>(a)] >> 32));
          order[column * s.angles + a] =
              static_cast<int32_t>(keys[static_cast<size_t>(a)] & 0xFFFFFFFFu);
        }
      });
    });
  }

  absl::Status MedianOverDetectors(StreamRef stream, const ColumnsSpec& s, int64_t window,
                                   DeviceSpan<const float> in, DeviceSpan<float> out) override {
    return Enqueue(stream, [=, in = in.data(), out = out.data()] {
      // Some angles together, so that a cache line of theirs serves all.
      constexpr int64_t kTogether = 16;
      const int64_t runs = (s.detectors + kRun - 1) / kRun,
                    groups = (s.angles + kTogether - 1) / kTogether;
      tbb::parallel_for(int64_t{0}, s.slices * groups * runs, [&](int64_t i) {
        const int64_t slice = i / (groups * runs), first = i / runs % groups * kTogether,
                      begin = i % runs * kRun;
        const int64_t end = std::min(begin + kRun, s.detectors), half = window / 2,
                      width = end - begin + 2 * half;
        std::vector<float> memory(static_cast<size_t>(window)),
            values(static_cast<size_t>(width * kTogether));
        const int64_t count = std::min(kTogether, s.angles - first);
        for (int64_t d = 0; d < width; ++d) {
          const float* from =
              in +
              (slice * s.detectors + math::Mirrored(begin - half + d, s.detectors)) * s.angles +
              first;
          for (int64_t a = 0; a < count; ++a) values[static_cast<size_t>(a * width + d)] = from[a];
        }
        for (int64_t a = 0; a < count; ++a) {
          math::SlideMedian(
              math::SortedWindow<float>{.data = memory.data()}, window, false, begin, end,
              [&](int64_t d, int64_t) {
                return values[static_cast<size_t>(a * width + d - begin + half)];
              },
              [&](int64_t d, float median) {
                out[(slice * s.detectors + d) * s.angles + first + a] = median;
              });
        }
      });
    });
  }

  absl::Status MeanRatios(StreamRef stream, const ColumnsSpec& s, int64_t drop,
                          DeviceSpan<const float> sorted, DeviceSpan<const float> smooth,
                          DeviceSpan<double> factors) override {
    return Enqueue(stream,
                   [=, sorted = sorted.data(), smooth = smooth.data(), factors = factors.data()] {
                     tbb::parallel_for(int64_t{0}, s.columns(), [&](int64_t column) {
                       const auto sum = [&](const float* values) {
                         return LaneSum(s.angles - 2 * drop, [&](int64_t a) {
                           return static_cast<double>(values[column * s.angles + drop + a]);
                         });
                       };
                       factors[column] = RatioOrOne(sum(sorted), sum(smooth));
                     });
                   });
  }

  absl::Status RoughnessRatios(StreamRef stream, const ColumnsSpec& s, int64_t window,
                               DeviceSpan<const float> in, DeviceSpan<double> sums,
                               DeviceSpan<double> factors) override {
    return Enqueue(stream, [=, in = in.data(), sums = sums.data(), factors = factors.data()] {
      tbb::parallel_for(int64_t{0}, s.columns(), [&](int64_t column) {
        const float* row = in + column * s.angles;
        sums[column] = LaneSum(s.angles, [&](int64_t a) {
          return std::abs(static_cast<double>(row[a]) - math::MeanOfTen(row, s.angles, a));
        });
      });
      ForRows(s.slices, s.detectors, [&](int64_t slice, int64_t d) {
        const double* list = sums + slice * s.detectors;
        factors[slice * s.detectors + d] =
            RatioOrOne(list[d], math::MedianAround(list, s.detectors, d, window));
      });
    });
  }

  absl::Status MarkStripes(StreamRef stream, const ColumnsSpec& s, double snr, bool keep_ends,
                           DeviceSpan<const double> factors, DeviceSpan<uint8_t> mask) override {
    return Enqueue(stream, [=, factors = factors.data(), mask = mask.data()] {
      tbb::parallel_for(int64_t{0}, s.slices, [&](int64_t slice) {
        const double* list = factors + slice * s.detectors;
        std::vector<double> falling(list, list + s.detectors);
        std::sort(falling.begin(), falling.end(),
                  [](double a, double b) { return math::SortKey(a) > math::SortKey(b); });
        const math::StripeLimits limits = math::FindStripes(
            s.detectors, snr, [&](int64_t i) { return falling[static_cast<size_t>(i)]; });
        for (int64_t d = 0; d < s.detectors; ++d)
          mask[slice * s.detectors + d] = MarkedColumn(limits, list, s.detectors, keep_ends, d);
      });
    });
  }

  absl::Status Unsort(StreamRef stream, const ColumnsSpec& s, DeviceSpan<const float> smooth,
                      DeviceSpan<const int32_t> order, DeviceSpan<const uint8_t> mask,
                      DeviceSpan<const double> factors, DeviceSpan<float> out) override {
    return Enqueue(stream, [=, smooth = smooth.data(), order = order.data(), mask = mask.data(),
                            factors = factors.data(), out = out.data()] {
      ForRows(s.columns(), s.angles, [&](int64_t column, int64_t a) {
        if (mask == nullptr || mask[column] != 0) {
          out[column * s.angles + order[column * s.angles + a]] = smooth[column * s.angles + a];
        } else if (factors != nullptr && factors[column] > 0) {
          out[column * s.angles + a] /= static_cast<float>(factors[column]);
        }
      });
    });
  }

  absl::Status FillColumns(StreamRef stream, const ColumnsSpec& s, DeviceSpan<const uint8_t> mask,
                           DeviceSpan<float> data) override {
    return Enqueue(stream, [=, mask = mask.data(), data = data.data()] {
      ForRows(s.columns(), s.angles,
              [&](int64_t column, int64_t a) { FillPixel(s, mask, column, a, data); });
    });
  }

  absl::Status Analyze(StreamRef stream, const WaveletSpec& s, bool high,
                       DeviceSpan<const float> in, DeviceSpan<float> out) override {
    return Enqueue(stream, [=, in = in.data(), out = out.data()] {
      ForRows(s.outer * s.m, s.inner, [&](int64_t i, int64_t q) {
        out[i * s.inner + q] = math::WaveletAnalysis(
            s.low, s.taps, high, in + i / s.m * s.n * s.inner + q, s.n, s.inner, i % s.m);
      });
    });
  }
  absl::Status Synthesize(StreamRef stream, const WaveletSpec& s, DeviceSpan<const float> low,
                          DeviceSpan<const float> high, DeviceSpan<float> out) override {
    return Enqueue(stream, [=, low = low.data(), high = high.data(), out = out.data()] {
      ForRows(s.outer * s.n, s.inner, [&](int64_t i, int64_t q) {
        const int64_t start = i / s.n * s.m * s.inner + q;
        out[i * s.inner + q] =
            math::WaveletSynthesis(s.low, s.taps, low == nullptr ? nullptr : low + start,
                                   high == nullptr ? nullptr : high + start, s.m, s.inner, i % s.n);
      });
    });
  }
  absl::Status PadRows(StreamRef stream, int64_t rows, int64_t n, int64_t padded, int64_t before,
                       DeviceSpan<const float> in, DeviceSpan<float> out) override {
    return Enqueue(stream, [=, in = in.data(), out = out.data()] {
      ForRows(rows, padded, [&](int64_t row, int64_t i) {
        out[row * padded + i] = i < before || i >= before + n ? 0.0f : in[row * n + i - before];
      });
    });
  }
  absl::Status SubtractRows(StreamRef stream, int64_t rows, int64_t n, int64_t padded,
                            int64_t before, DeviceSpan<const float> in,
                            DeviceSpan<float> data) override {
    return Enqueue(stream, [=, in = in.data(), data = data.data()] {
      ForRows(rows, n,
              [&](int64_t row, int64_t i) { data[row * n + i] -= in[row * padded + before + i]; });
    });
  }
  absl::Status ToComplex(StreamRef stream, int64_t count, DeviceSpan<const float> in,
                         DeviceSpan<ComplexF> out) override {
    return Enqueue(stream, [=, in = in.data(), out = out.data()] {
      for (int64_t i = 0; i < count; ++i) out[i] = {in[i], 0.0f};
    });
  }
  absl::Status RealPart(StreamRef stream, int64_t count, DeviceSpan<const ComplexF> in,
                        DeviceSpan<float> out) override {
    return Enqueue(stream, [=, in = in.data(), out = out.data()] {
      for (int64_t i = 0; i < count; ++i) out[i] = in[i].re;
    });
  }
  absl::Status KeepStripes(StreamRef stream, int64_t rows, int64_t n, float sigma,
                           DeviceSpan<ComplexF> data) override {
    return Enqueue(stream, [=, data = data.data()] {
      ForRows(rows, n, [&](int64_t row, int64_t k) {
        const float factor = math::StripePart(k, n, sigma) / static_cast<float>(n);
        data[row * n + k].re *= factor;
        data[row * n + k].im *= factor;
      });
    });
  }

  absl::Status Join(StreamRef stream, const JoinSpec& s, DeviceSpan<const float> sinogram,
                    DeviceSpan<const float> mirror, DeviceSpan<ComplexF> out) override {
    return Enqueue(
        stream, [=, sinogram = sinogram.data(), mirror = mirror.data(), out = out.data()] {
          ForRows(s.count * 2 * s.angles, s.detectors, [&](int64_t i, int64_t column) {
            out[i * s.detectors + column] = {
                Merge(s, sinogram, mirror, i / (2 * s.angles), i % (2 * s.angles), column), 0.0f};
          });
        });
  }

  absl::Status WedgeSums(StreamRef stream, int64_t count, int64_t rows, int64_t columns,
                         double slope, int64_t drop, DeviceSpan<const ComplexF> data,
                         DeviceSpan<double> sums) override {
    return Enqueue(stream, [=, data = data.data(), sums = sums.data()] {
      tbb::parallel_for(int64_t{0}, count * kWedgeParts, [&](int64_t i) {
        double total = 0;
        for (int64_t u = i % kWedgeParts; u < columns; u += kWedgeParts) {
          const ComplexF* row = data + (i / kWedgeParts * columns + u) * rows;
          for (int64_t v = 0; v < rows; ++v) {
            if (!math::OutsideWedge(2 * v <= rows ? v : v - rows,
                                    2 * u <= columns ? u : u - columns, slope, drop))
              continue;
            total += static_cast<double>(std::sqrt(row[v].re * row[v].re + row[v].im * row[v].im));
          }
        }
        sums[i] = total;
      });
    });
  }

  absl::Status HalvesSums(StreamRef stream, const HalvesSpec& s, DeviceSpan<const float> data,
                          DeviceSpan<double> sums) override {
    return Enqueue(stream, [=, data = data.data(), sums = sums.data()] {
      tbb::parallel_for(int64_t{0}, s.overlaps * kHalvesParts, [&](int64_t i) {
        double* mine = sums + i * kHalvesSums;
        std::fill_n(mine, kHalvesSums, 0.0);
        for (int64_t row = i % kHalvesParts; row < s.slices * s.half_turn; row += kHalvesParts) {
          AddHalves(s, data, row / s.half_turn, row % s.half_turn,
                    s.first_overlap + i / kHalvesParts, 0, 1, mine);
        }
      });
    });
  }

 private:
  /// Thirty-two sums side by side and then their sum, as a warp makes it.
  template <class F>
  static double LaneSum(int64_t count, F f) {
    double lanes[32] = {};
    for (int64_t i = 0; i < count; ++i) lanes[i % 32] += f(i);
    double sum = 0;
    for (const double lane : lanes) sum += lane;
    return sum;
  }

  template <class T>
  static absl::Status TransposeRows(StreamRef stream, int64_t batch, int64_t rows, int64_t columns,
                                    const T* in, T* out) {
    return Enqueue(stream, [=] {
      constexpr int64_t kTile = 16;
      const int64_t tiles = (rows + kTile - 1) / kTile;
      tbb::parallel_for(int64_t{0}, batch * tiles, [&](int64_t i) {
        const T* from = in + i / tiles * rows * columns;
        T* to = out + i / tiles * rows * columns;
        const int64_t first = i % tiles * kTile, last = std::min(first + kTile, rows);
        for (int64_t c0 = 0; c0 < columns; c0 += kTile) {
          for (int64_t c = c0; c < std::min(c0 + kTile, columns); ++c) {
            for (int64_t r = first; r < last; ++r) to[c * rows + r] = from[r * columns + c];
          }
        }
      });
    });
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<PrepareOps>> MakePrepareOps(Device& device) {
  OCTAVO_RETURN_IF_ERROR(CheckBackend(device, "host", PrepareOps::kFamily));
  return std::make_unique<HostPrepareOps>();
}
absl::StatusOr<std::unique_ptr<SinogramOps>> MakeSinogramOps(Device& device) {
  OCTAVO_RETURN_IF_ERROR(CheckBackend(device, "host", SinogramOps::kFamily));
  return std::make_unique<HostSinogramOps>();
}

}  // namespace octavo::inline gpu::host

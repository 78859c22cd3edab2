#include <algorithm>
#include <array>
#include <atomic>
#include <vector>

#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "gpu/device/dtype_dispatch.h"
#include "gpu/device/host/host_stream.h"
#include "gpu/tomography/preprocess_ops.h"
#include "gpu/tomography/preprocess_pixels.h"

namespace octavo::inline gpu::host {
namespace {

constexpr int64_t kRun = 256;  // columns that a sliding window passes

/// Calls f(row, column) for all rows and columns.
template <class F>
void ForRows(int64_t rows, int64_t columns, F f) {
  tbb::parallel_for(int64_t{0}, rows, [&](int64_t row) {
    for (int64_t column = 0; column < columns; ++column) f(row, column);
  });
}

/// Does the same, and counts the bits that f returns.
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
  absl::Status Unpack(StreamRef stream, const UnpackSpec& spec, const void* frames,
                      DeviceSpan<uint16_t> out) override {
    return Enqueue(stream, [=, out = out.data()] {
      DispatchUnpack(spec, frames, out,
                     [&](auto pair) { ForRows(spec.frames * spec.rows, spec.pairs(), pair); });
    });
  }

  absl::Status Field(StreamRef stream, const FrameSpec& in, bool median, const void* frames,
                     DeviceSpan<float> out) override {
    return Enqueue(stream, [=, out = out.data()] {
      DispatchCountType(in.dtype, [&](auto type) {
        using T = decltype(type);
        ForRows(in.rows, in.columns, FieldPixel<T>{in, median, static_cast<const T*>(frames), out});
      });
    });
  }

  absl::Status MixField(StreamRef stream, const FrameSpec& in, const void* frames,
                        const double* mixture, int64_t stride, DeviceSpan<float> out) override {
    return Enqueue(stream, [=, out = out.data()] {
      DispatchCountType(in.dtype, [&](auto type) {
        using T = decltype(type);
        ForRows(in.rows, in.columns,
                MixPixel<T>{in, mixture, stride, static_cast<const T*>(frames), out});
      });
    });
  }

  absl::Status FlatWeights(StreamRef stream, const math::FlatSample& sample, int components,
                           int64_t frames, DeviceSpan<const float> counts,
                           DeviceSpan<double> weights) override {
    return Enqueue(stream, [=, counts = counts.data(), weights = weights.data()] {
      DispatchComponents(components, [&](auto number) {
        constexpr int kNumber = number();
        tbb::parallel_for(int64_t{0}, frames, [&](int64_t frame) {
          const auto sum = [&](const auto& add) {
            math::FlatSums<kNumber> sums;
            for (int64_t i = 0; i < sample.pixels(); ++i) add(i, sums.values);
            return sums;
          };
          double found[kNumber];
          math::FindFlatWeights<kNumber>(sample, counts + frame * sample.pixels(), sum, found);
          std::copy_n(found, kNumber, weights + frame * kNumber);
        });
      });
    });
  }

  absl::Status Outliers(StreamRef stream, const OutlierSpec& spec, const void* frames,
                        DeviceSpan<float> out, DeviceSpan<int64_t> counts) override {
    return Enqueue(stream, [=, out = out.data(), counts = counts.data()] {
      DispatchCountType(spec.in.dtype, [&](auto type) {
        using T = decltype(type);
        const FrameSpec& in = spec.in;
        const int64_t runs = (in.columns + kRun - 1) / kRun;
        std::atomic<int64_t> found{0};
        tbb::parallel_for(int64_t{0}, in.frames * in.rows * runs, [&](int64_t i) {
          const int64_t frame = i / (in.rows * runs), row = i / runs % in.rows,
                        begin = i % runs * kRun;
          const OutlierFrame<T> pixels(spec, static_cast<const T*>(frames), out, frame);
          std::array<uint32_t, 225> memory;
          int64_t mine = 0;
          math::SlideMedian(
              math::SortedWindow<uint32_t>{.data = memory.data()}, spec.window, true, begin,
              std::min(begin + kRun, in.columns),
              [&](int64_t c, int64_t o) { return pixels.KeyAt(row + o, c); },
              [&](int64_t c, uint32_t median) { mine += pixels.Write(row, c, median); });
          if (mine != 0) found += mine;
        });
        counts[0] += found;
      });
    });
  }

  absl::Status Correct(StreamRef stream, const CorrectSpec& spec, const void* frames,
                       DeviceSpan<float> out, DeviceSpan<int64_t> counts) override {
    return Enqueue(stream, [=, out = out.data(), counts = counts.data()] {
      DispatchCountType(spec.in.dtype, [&](auto type) {
        using T = decltype(type);
        CountRows(spec.angles * spec.rows, spec.columns, counts,
                  CorrectPixel<T>{spec, static_cast<const T*>(frames), out});
      });
    });
  }

  absl::Status Turn(StreamRef stream, const TurnSpec& s, DeviceSpan<const float> in,
                    DeviceSpan<float> out) override {
    return Enqueue(stream, [=, f = TurnPixel{s, in.data(), out.data()}] {
      ForRows(s.frames * s.rows, s.columns, f);
    });
  }

  absl::Status AirLevels(StreamRef stream, const RowsSpec& in, int64_t left, int64_t right,
                         DeviceSpan<const float> values, DeviceSpan<float> air) override {
    return Enqueue(stream, [=, f = AirRow{in, left, right, values.data(), air.data()}] {
      ForRows(in.angles * in.rows, 1, f);
    });
  }

  absl::Status Finish(StreamRef stream, const FinishSpec& spec, DeviceSpan<const float> in,
                      DeviceSpan<float> out, DeviceSpan<int64_t> counts) override {
    return Enqueue(stream,
                   [=, counts = counts.data(), f = FinishPixel{spec, in.data(), out.data()}] {
                     CountRows(spec.in.angles * spec.in.rows, spec.in.columns, counts, f);
                   });
  }

  absl::Status Pad(StreamRef stream, const PaddedSpec& s, DeviceSpan<const float> in,
                   DeviceSpan<ComplexF> out) override {
    return Enqueue(stream, [=, f = PadPixel{s, in.data(), out.data()}] {
      ForRows(s.frames * s.padded_rows, s.padded_columns, f);
    });
  }
  absl::Status Unpad(StreamRef stream, const PaddedSpec& s, DeviceSpan<const ComplexF> in,
                     DeviceSpan<float> out) override {
    return Enqueue(stream, [=, f = UnpadPixel{s, in.data(), out.data()}] {
      ForRows(s.frames * s.rows, s.columns, f);
    });
  }
  absl::Status FilterPhase(StreamRef stream, const PaddedSpec& s, const math::PhaseFilter& filter,
                           float scale, DeviceSpan<ComplexF> data) override {
    return Enqueue(stream, [=, f = FilterPhasePixel{s, filter, scale, data.data()}] {
      ForRows(s.frames * s.padded_columns, s.padded_rows, f);
    });
  }

  absl::Status Stitch(StreamRef stream, const StitchSpec& s, DeviceSpan<const float> in,
                      DeviceSpan<float> out) override {
    return Enqueue(stream, [=, f = StitchPixel{s, in.data(), out.data()}] {
      ForRows(s.slices * s.half_turn, s.width, f);
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
      // Several angles together, so that each cache line is read once for all of them.
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
      ForRows(s.slices, s.detectors, RoughnessRatio{s, window, sums, factors});
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
    return Enqueue(stream,
                   [=, f = UnsortPixel{s, smooth.data(), order.data(), mask.data(), factors.data(),
                                       out.data()}] { ForRows(s.columns(), s.angles, f); });
  }

  absl::Status FillColumns(StreamRef stream, const ColumnsSpec& s, DeviceSpan<const uint8_t> mask,
                           DeviceSpan<float> data) override {
    return Enqueue(stream, [=, f = FillPixel{s, mask.data(), data.data()}] {
      ForRows(s.columns(), s.angles, f);
    });
  }

  absl::Status Analyze(StreamRef stream, const WaveletSpec& s, bool high,
                       DeviceSpan<const float> in, DeviceSpan<float> out) override {
    return Enqueue(stream, [=, f = AnalyzePixel{s, high, in.data(), out.data()}] {
      ForRows(s.outer * s.m, s.inner, f);
    });
  }
  absl::Status Synthesize(StreamRef stream, const WaveletSpec& s, DeviceSpan<const float> low,
                          DeviceSpan<const float> high, DeviceSpan<float> out) override {
    return Enqueue(stream, [=, f = SynthesizePixel{s, low.data(), high.data(), out.data()}] {
      ForRows(s.outer * s.n, s.inner, f);
    });
  }
  absl::Status PadRows(StreamRef stream, int64_t rows, int64_t n, int64_t padded, int64_t before,
                       DeviceSpan<const float> in, DeviceSpan<float> out) override {
    return Enqueue(stream, [=, f = PadRowPixel{n, padded, before, in.data(), out.data()}] {
      ForRows(rows, padded, f);
    });
  }
  absl::Status SubtractRows(StreamRef stream, int64_t rows, int64_t n, int64_t padded,
                            int64_t before, DeviceSpan<const float> in,
                            DeviceSpan<float> data) override {
    return Enqueue(stream, [=, f = SubtractRowPixel{n, padded, before, in.data(), data.data()}] {
      ForRows(rows, n, f);
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
    return Enqueue(stream,
                   [=, f = KeepStripesPixel{n, sigma, data.data()}] { ForRows(rows, n, f); });
  }

  absl::Status Join(StreamRef stream, const JoinSpec& s, DeviceSpan<const float> sinogram,
                    DeviceSpan<const float> mirror, DeviceSpan<ComplexF> out) override {
    return Enqueue(stream, [=, f = JoinPixel{s, sinogram.data(), mirror.data(), out.data()}] {
      ForRows(s.count * 2 * s.angles, s.detectors, f);
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
            if (!math::OutsideWedge(math::SignedFrequency(v, rows),
                                    math::SignedFrequency(u, columns), slope, drop))
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
  /// Computes thirty-two partial sums and then their sum, as a warp does.
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

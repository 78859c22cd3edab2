#include "gpu/array/array_ops.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "tbb/blocked_range.h"
#include "tbb/parallel_for.h"

#include "gpu/array/warp_elements.h"
#include "gpu/base/status.h"
#include "gpu/device/host/fft.h"
#include "gpu/device/host/fft_plan.h"
#include "gpu/device/host/host_stream.h"

namespace octavo::inline gpu::host {
namespace {

using math::Accumulator;
using math::Number;

constexpr int64_t kGrain = 1 << 14;  // the least numbers that are worth a task
constexpr int64_t kTile = 64;        // results that a task accumulates together

template <int64_t kBytes>
struct Element {
  std::array<char, kBytes> bytes;
};
template <class F>
void ForElementBytes(int64_t bytes, F f) {
  switch (bytes) {
    case 1: f(Element<1>{}); break;
    case 2: f(Element<2>{}); break;
    case 4: f(Element<4>{}); break;
    case 8: f(Element<8>{}); break;
    default: f(Element<16>{}); break;
  }
}

class HostArrayOps final : public ArrayOps {
 public:
  absl::Status Gather(StreamRef stream, const GatherSpec& s, const void* in, void* out) override {
    return Enqueue(stream, [=] {
      ForElementBytes(s.bytes, [&](auto element) {
        using T = decltype(element);
        const int64_t row = s.out[3], rows = s.out[0] * s.out[1] * s.out[2];
        tbb::parallel_for(tbb::blocked_range<int64_t>(0, rows, std::max<int64_t>(1, kGrain / row)),
                          [&](const auto& range) {
                            for (int64_t r = range.begin(); r < range.end(); ++r) {
                              const int64_t i2 = r % s.out[2], i1 = r / s.out[2] % s.out[1],
                                            i0 = r / s.out[2] / s.out[1];
                              const int64_t there = s.offset + i0 * s.stride[0] + i1 * s.stride[1] +
                                                    i2 * s.stride[2],
                                            from_step = s.scatter ? 1 : s.stride[3],
                                            to_step = s.scatter ? s.stride[3] : 1;
                              const T* from =
                                  static_cast<const T*>(in) + (s.scatter ? r * row : there);
                              T* to = static_cast<T*>(out) + (s.scatter ? there : r * row);
                              if (s.stride[3] == 1) {
                                std::memcpy(to, from, static_cast<size_t>(row) * sizeof(T));
                              } else {
                                for (int64_t i = 0; i < row; ++i)
                                  to[i * to_step] = from[i * from_step];
                              }
                            }
                          });
      });
    });
  }

  absl::Status Map(StreamRef stream, const MapSpec& s, const void* in, const void* other,
                   void* out) override {
    return Enqueue(stream, [=] {
      tbb::parallel_for(tbb::blocked_range<int64_t>(0, s.count, kGrain), [&](const auto& range) {
        for (int64_t i = range.begin(); i < range.end(); ++i) MapOne(s, in, other, out, i);
      });
    });
  }

  absl::Status Reduce(StreamRef stream, const ReduceSpec& s, const void* in, const uint8_t* mask,
                      void* out, void* workspace) override {
    return Enqueue(stream, [=] {
      const AxesSpec& x = s.axes;
      const int64_t results = x.results(), tiles = (results + kTile - 1) / kTile;
      const int64_t part_length = (x.length() + s.parts - 1) / s.parts;
      auto* parts = static_cast<Accumulator*>(workspace);
      tbb::parallel_for(tbb::blocked_range<int64_t>(0, tiles * s.parts), [&](const auto& range) {
        for (int64_t task = range.begin(); task < range.end(); ++task) {
          const int64_t part = task / tiles, first = task % tiles * kTile,
                        count = std::min(kTile, results - first);
          Accumulator sums[kTile];
          int64_t starts[kTile];
          for (int64_t k = 0; k < count; ++k) starts[k] = x.First(first + k);
          const int64_t begin = part * part_length, end = std::min(x.length(), begin + part_length);
          const auto include = [&](int64_t k, int64_t r0, int64_t r1) {
            const int64_t at = starts[k] + r0 * x.run_stride[0] + r1 * x.run_stride[1];
            if (!Counts(s.mask, mask, at)) return;
            math::Include(s.kind, math::PartOf(s.part, math::Load(s.in, in, at)), &sums[k]);
          };
          // The contiguous axis is the inner loop.
          if (x.run_stride[1] == 1 || count == 1) {
            for (int64_t k = 0; k < count; ++k) {
              for (int64_t r = begin, r0 = begin / x.run[1], r1 = begin % x.run[1]; r < end; ++r) {
                include(k, r0, r1);
                if (++r1 == x.run[1]) r1 = 0, ++r0;
              }
            }
          } else {
            for (int64_t r = begin, r0 = begin / x.run[1], r1 = begin % x.run[1]; r < end; ++r) {
              for (int64_t k = 0; k < count; ++k) include(k, r0, r1);
              if (++r1 == x.run[1]) r1 = 0, ++r0;
            }
          }
          for (int64_t k = 0; k < count; ++k) {
            if (s.parts == 1) {
              math::Store(s.out, out, first + k, math::Finish(s.kind, s.skip_nan, sums[k]));
            } else {
              parts[(first + k) * s.parts + part] = sums[k];
            }
          }
        }
      });
      for (int64_t k = 0; s.parts > 1 && k < results; ++k) {
        Accumulator sum;
        for (int64_t p = 0; p < s.parts; ++p) math::Join(s.kind, parts[k * s.parts + p], &sum);
        math::Store(s.out, out, k, math::Finish(s.kind, s.skip_nan, sum));
      }
    });
  }

  absl::Status Select(StreamRef stream, const SelectSpec& s, const void* in, const uint8_t* mask,
                      void* out) override {
    return Enqueue(stream, [=] {
      const AxesSpec& x = s.axes;
      const int64_t results = x.results();
      tbb::parallel_for(
          tbb::blocked_range<int64_t>(0, results, std::max<int64_t>(1, kGrain / x.length())),
          [&](const auto& range) {
            std::vector<double> values;
            for (int64_t k = range.begin(); k < range.end(); ++k) {
              values.clear();
              const int64_t start = x.First(k);
              for (int64_t r0 = 0; r0 < x.run[0]; ++r0) {
                for (int64_t r1 = 0; r1 < x.run[1]; ++r1) {
                  const int64_t at = start + r0 * x.run_stride[0] + r1 * x.run_stride[1];
                  if (!Counts(s.mask, mask, at)) continue;
                  const double v = math::Load(s.in, in, at).re;
                  if (v == v) values.push_back(v);
                }
              }
              for (int p = 0; p < s.percentiles; ++p) {
                double result = NAN;
                if (!values.empty()) {
                  const double rank =
                      s.percentile[p] / 100 * static_cast<double>(values.size() - 1);
                  const auto below = static_cast<std::ptrdiff_t>(rank);
                  std::nth_element(values.begin(), values.begin() + below, values.end());
                  result = values[static_cast<size_t>(below)];
                  if (const double fraction = rank - static_cast<double>(below); fraction > 0) {
                    result = math::Between(
                        result, *std::min_element(values.begin() + below + 1, values.end()),
                        fraction);
                  }
                }
                math::Store(s.out, out, p * results + k, {result});
              }
            }
          });
    });
  }

  absl::Status Histogram(StreamRef stream, const HistogramSpec& s, const void* in,
                         const uint8_t* mask, DeviceSpan<uint64_t> counts) override {
    return Enqueue(stream, [=, counts = counts.data()] {
      std::fill(counts, counts + s.bins, 0);
      std::mutex mutex;
      tbb::parallel_for(
          tbb::blocked_range<int64_t>(0, s.count, kGrain * 16), [&](const auto& range) {
            std::vector<uint64_t> own(static_cast<size_t>(s.bins));
            for (int64_t i = range.begin(); i < range.end(); ++i) {
              if (!Counts(s.mask, mask, i)) continue;
              if (const int64_t bin = math::BinOf(math::Load(s.in, in, i).re, s.lo, s.hi, s.bins);
                  bin >= 0)
                ++own[static_cast<size_t>(bin)];
            }
            const std::lock_guard lock(mutex);
            for (size_t b = 0; b < own.size(); ++b) counts[b] += own[b];
          });
    });
  }

  absl::Status Taps(StreamRef stream, const TapsSpec& s, const void* in,
                    DeviceSpan<const int32_t> index, DeviceSpan<const double> weight,
                    void* out) override {
    const TapsSpec real = RealTaps(s);
    return Enqueue(stream, [=, index = index.data(), weight = weight.data()] {
      const int64_t count = real.outer * real.m * real.inner;
      ForNumbers(real.in, in, [&](const auto& numbers) {
        tbb::parallel_for(
            tbb::blocked_range<int64_t>(0, count, std::max<int64_t>(1, kGrain / real.taps)),
            [&](const auto& range) {
              for (int64_t at = range.begin(); at < range.end(); ++at)
                TapsOne(real, count < int64_t{1} << 31, numbers, index, weight, out, at);
            });
      });
    });
  }

  absl::StatusOr<int64_t> PrepareFft(const FftSpec& s) override {
    (void)plans_.Of(s.n);
    return int64_t{0};
  }

  // One row per SIMD lane. The forward transform of x is the conjugate of the inverse transform of
  // conj x.
  absl::Status Fft(StreamRef stream, const FftSpec& s, void* data, void*) override {
    return Enqueue(stream, [this, s, data] {
      const std::shared_ptr<const FftPlan> plan = plans_.Of(s.n);
      const int64_t lanes = TileLanes(), tiles = (s.rows + lanes - 1) / lanes;
      const float sign = s.inverse ? 1.0f : -1.0f;
      auto* all = static_cast<float*>(data);
      tbb::parallel_for(
          tbb::blocked_range<int64_t>(0, tiles, std::max<int64_t>(1, kGrain / (s.n * lanes))),
          [&](const auto& range) {
            const int64_t floats = (2 * s.n + FftScratchRows(*plan)) * lanes;
            const std::unique_ptr<float, decltype(&std::free)> memory(
                static_cast<float*>(
                    std::aligned_alloc(64, (static_cast<size_t>(floats) * 4 + 63) / 64 * 64)),
                &std::free);
            float *re = memory.get(), *im = re + s.n * lanes, *scratch = im + s.n * lanes;
            for (int64_t tile = range.begin(); tile < range.end(); ++tile) {
              const int64_t first = tile * lanes, count = std::min(lanes, s.rows - first);
              // A cache line of one row at a time: rows are often a power of two apart, so that
              // lines of all of them would displace each other.
              for (int64_t block = 0; block < s.n; block += kLine) {
                for (int64_t l = 0; l < lanes; ++l) {
                  const float* from = all + 2 * (first + std::min(l, count - 1)) * s.n;
                  for (int64_t j = block; j < std::min(block + kLine, s.n); ++j) {
                    re[j * lanes + l] = from[2 * j];
                    im[j * lanes + l] = sign * from[2 * j + 1];
                  }
                }
              }
              InverseFft(*plan, re, im, scratch);
              for (int64_t block = 0; block < s.n; block += kLine) {
                for (int64_t l = 0; l < count; ++l) {
                  float* to = all + 2 * (first + l) * s.n;
                  for (int64_t j = block; j < std::min(block + kLine, s.n); ++j) {
                    to[2 * j] = re[j * lanes + l];
                    to[2 * j + 1] = sign * im[j * lanes + l];
                  }
                }
              }
            }
          });
    });
  }

 private:
  static constexpr int64_t kLine = 8;  // complex numbers

  static void MapOne(const MapSpec& s, const void* in, const void* other, void* out, int64_t i) {
    math::Store(s.out, out, i, octavo::Mapped(s, in, other, i));
  }

  FftPlans plans_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ArrayOps>> MakeArrayOps(Device& device) {
  OCTAVO_RETURN_IF_ERROR(CheckBackend(device, "host", ArrayOps::kFamily));
  return std::make_unique<HostArrayOps>();
}

}  // namespace octavo::inline gpu::host

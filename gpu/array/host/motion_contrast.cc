#include "gpu/array/motion_contrast.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "gpu/device/dtype_dispatch.h"
#include "gpu/device/host/host_stream.h"

namespace octavo::inline gpu::host {
namespace {

class HostRepeatOps final : public RepeatOps {
 public:
  absl::Status SpeckleVariance(StreamRef stream, const RepeatView& v,
                               const math::StoredScale& scale, DeviceSpan<float> out) override {
    return OverRepeats(stream, v, scale, out, [](int64_t n, const auto& amplitude) {
      return math::SpeckleVariance(n, amplitude);
    });
  }
  absl::Status AmplitudeDecorrelation(StreamRef stream, const RepeatView& v,
                                      const math::StoredScale& scale,
                                      DeviceSpan<float> out) override {
    return OverRepeats(stream, v, scale, out, [](int64_t n, const auto& amplitude) {
      return math::AmplitudeDecorrelation(n, amplitude);
    });
  }

  absl::Status ContrastEnFace(StreamRef stream, bool decorrelation, const RepeatView& v,
                              const math::StoredScale& scale, int64_t z_begin, int64_t z_end,
                              DeviceSpan<float> out) override {
    return Enqueue(stream, [=, out = out.data()] {
      DispatchIntensityType(v.dtype, [&](auto type) {
        using T = decltype(type);
        tbb::parallel_for(int64_t{0}, v.bscans * v.columns, [&](int64_t ascan) {
          const int64_t b = ascan / v.columns, x = ascan % v.columns;
          float sum = 0;
          int64_t count = 0;
          for (int64_t z = z_begin; z < z_end; ++z) {
            const math::RepeatAmplitudes<T> amplitudes{
                static_cast<const T*>(v.data) + x * v.depth + z, v.order + b * v.repeats,
                v.columns * v.depth, scale};
            const float c = decorrelation ? math::AmplitudeDecorrelation(v.repeats, amplitudes)
                                          : math::SpeckleVariance(v.repeats, amplitudes);
            if (c == c) sum += c, ++count;
          }
          out[ascan] = count == 0 ? NAN : sum / static_cast<float>(count);
        });
      });
    });
  }

  absl::Status PhaseOverRepeats(StreamRef stream, const RepeatView& v, int64_t half_window,
                                DeviceSpan<float> out) override {
    return Enqueue(stream, [=, out = out.data()] {
      const auto* in = static_cast<const float*>(v.data);
      tbb::parallel_for(int64_t{0}, v.bscans * v.columns, [&](int64_t ascan) {
        const int64_t b = ascan / v.columns, x = ascan % v.columns;
        const int32_t* rows = v.order + b * v.repeats;
        for (int64_t z = 0; z < v.depth; ++z) {
          const int64_t begin = std::max<int64_t>(z - half_window, 0),
                        end = std::min(z + half_window + 1, v.depth);
          float re = 0, im = 0;
          for (int64_t r = 1; r < v.repeats; ++r) {
            math::AddProducts(in + 2 * ((rows[r - 1] * v.columns + x) * v.depth + begin),
                              in + 2 * ((rows[r] * v.columns + x) * v.depth + begin), end - begin,
                              &re, &im);
          }
          out[ascan * v.depth + z] = math::PhaseOf(re, im);
        }
      });
    });
  }

  absl::Status PhaseOverAscans(StreamRef stream, const RepeatView& v, int64_t half_window,
                               DeviceSpan<float> out) override {
    return Enqueue(stream, [=, out = out.data()] {
      const auto* in = static_cast<const float*>(v.data);
      tbb::parallel_for(int64_t{0}, v.rows * (v.columns - 1), [&](int64_t ascan) {
        const int64_t from = ascan / (v.columns - 1) * v.columns + ascan % (v.columns - 1);
        for (int64_t z = 0; z < v.depth; ++z) {
          const int64_t begin = std::max<int64_t>(z - half_window, 0),
                        end = std::min(z + half_window + 1, v.depth);
          float re = 0, im = 0;
          math::AddProducts(in + 2 * (from * v.depth + begin),
                            in + 2 * ((from + 1) * v.depth + begin), end - begin, &re, &im);
          out[ascan * v.depth + z] = math::PhaseOf(re, im);
        }
      });
    });
  }

 private:
  template <class F>
  static absl::Status OverRepeats(StreamRef stream, const RepeatView& v,
                                  const math::StoredScale& scale, DeviceSpan<float> out, F f) {
    return Enqueue(stream, [=, out = out.data()] {
      DispatchIntensityType(v.dtype, [&](auto type) {
        using T = decltype(type);
        const int64_t row_elements = v.columns * v.depth;
        tbb::parallel_for(int64_t{0}, v.bscans * v.columns, [&](int64_t ascan) {
          const int64_t b = ascan / v.columns, x = ascan % v.columns;
          for (int64_t z = 0; z < v.depth; ++z) {
            const math::RepeatAmplitudes<T> amplitudes{
                static_cast<const T*>(v.data) + x * v.depth + z, v.order + b * v.repeats,
                row_elements, scale};
            out[ascan * v.depth + z] = f(v.repeats, amplitudes);
          }
        });
      });
    });
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<RepeatOps>> MakeRepeatOps(Device& device) {
  OCTAVO_RETURN_IF_ERROR(CheckBackend(device, "host", RepeatOps::kFamily));
  return std::make_unique<HostRepeatOps>();
}

}  // namespace octavo::inline gpu::host

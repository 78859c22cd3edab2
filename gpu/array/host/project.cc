#include "gpu/array/project.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "gpu/device/dtype_dispatch.h"
#include "gpu/device/host/host_stream.h"
#include "gpu/math/projection.h"
#include "gpu/math/sharpness.h"

namespace octavo::inline gpu::host {
namespace {

using math::MaxOf;
using math::Projected;

class HostProjectOps final : public ProjectOps {
 public:
  absl::Status MaxOverX(StreamRef stream, const VolumeView& v, int64_t y_begin, int64_t y_end,
                        void* out) override {
    return Enqueue(stream, [=] {
      DispatchVolumeType(v.dtype, [&](auto type) {
        using T = decltype(type);
        const int64_t X = v.shape[1], Z = v.shape[2];
        tbb::parallel_for(y_begin, y_end, [&](int64_t y) {
          const T* in = static_cast<const T*>(v.data) + y * X * Z;
          auto* row = static_cast<decltype(Projected(T{}))*>(out) + y * Z;
          for (int64_t z = 0; z < Z; ++z) row[z] = Projected(in[z]);
          for (int64_t x = 1; x < X; ++x) {
            for (int64_t z = 0; z < Z; ++z) row[z] = MaxOf(row[z], Projected(in[x * Z + z]));
          }
        });
      });
    });
  }

  absl::Status MaxOverY(StreamRef stream, const VolumeView& v, int64_t y_begin, int64_t y_end,
                        bool accumulate, void* out) override {
    return Enqueue(stream, [=] {
      DispatchVolumeType(v.dtype, [&](auto type) {
        using T = decltype(type);
        const int64_t X = v.shape[1], Z = v.shape[2];
        tbb::parallel_for(int64_t{0}, X, [&](int64_t x) {
          const T* in = static_cast<const T*>(v.data) + x * Z;
          auto* row = static_cast<decltype(Projected(T{}))*>(out) + x * Z;
          int64_t y = y_begin;
          if (!accumulate) {
            for (int64_t z = 0; z < Z; ++z) row[z] = Projected(in[y * X * Z + z]);
            ++y;
          }
          for (; y < y_end; ++y) {
            for (int64_t z = 0; z < Z; ++z) row[z] = MaxOf(row[z], Projected(in[y * X * Z + z]));
          }
        });
      });
    });
  }

  absl::Status MaxOverZ(StreamRef stream, const VolumeView& v, int64_t y_begin, int64_t y_end,
                        int64_t z_begin, int64_t z_end, void* out) override {
    return Enqueue(stream, [=] {
      DispatchVolumeType(v.dtype, [&](auto type) {
        using T = decltype(type);
        const int64_t X = v.shape[1], Z = v.shape[2];
        tbb::parallel_for(y_begin, y_end, [&](int64_t y) {
          for (int64_t x = 0; x < X; ++x) {
            const T* in = static_cast<const T*>(v.data) + (y * X + x) * Z;
            auto most = Projected(in[z_begin]);
            for (int64_t z = z_begin + 1; z < z_end; ++z) most = MaxOf(most, Projected(in[z]));
            static_cast<decltype(most)*>(out)[y * X + x] = most;
          }
        });
      });
    });
  }

  absl::Status ExtractPlane(StreamRef stream, const VolumeView& v, Axis axis, int64_t index,
                            void* out) override {
    return Enqueue(stream, [=] {
      const int64_t Y = v.shape[0], X = v.shape[1], Z = v.shape[2], size = SizeOf(v.dtype);
      const auto* in = static_cast<const char*>(v.data);
      auto* to = static_cast<char*>(out);
      if (axis == Axis::kY) {
        std::memcpy(to, in + index * X * Z * size, static_cast<size_t>(X * Z * size));
      } else if (axis == Axis::kX) {
        for (int64_t y = 0; y < Y; ++y) {
          std::memcpy(to + y * Z * size, in + (y * X + index) * Z * size,
                      static_cast<size_t>(Z * size));
        }
      } else {
        DispatchVolumeType(v.dtype, [&](auto type) {
          using T = decltype(type);
          for (int64_t i = 0; i < Y * X; ++i)
            static_cast<T*>(out)[i] = static_cast<const T*>(v.data)[i * Z + index];
        });
      }
    });
  }

  absl::Status PowerSums(StreamRef stream, DeviceSpan<const float> power, int64_t ascans,
                         int64_t depth, int64_t z_begin, int64_t z_end,
                         DeviceSpan<float> out) override {
    return Enqueue(stream, [=, power = power.data(), out = out.data()] {
      tbb::parallel_for(int64_t{0}, ascans, [&](int64_t ascan) {
        math::PowerSums lanes[math::kSharpnessLanes];
        for (int lane = 0; lane < math::kSharpnessLanes; ++lane)
          lanes[lane] = math::LaneSums(power + ascan * depth, z_begin, z_end, lane);
        for (int half = math::kSharpnessLanes / 2; half > 0; half /= 2) {
          for (int lane = 0; lane < half; ++lane)
            lanes[lane] = math::Merge(lanes[lane], lanes[lane + half]);
        }
        out[2 * ascan] = lanes[0].sum;
        out[2 * ascan + 1] = lanes[0].squares;
      });
    });
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<ProjectOps>> MakeProjectOps(Device& device) {
  OCTAVO_RETURN_IF_ERROR(CheckBackend(device, "host", ProjectOps::kFamily));
  return std::make_unique<HostProjectOps>();
}

}  // namespace octavo::inline gpu::host

// Three orthogonal planes of a volume while its projections come (gpu/tomography/live_planes.h):
// milliseconds for each projection, and from the last projection in host memory to the three images
// in host memory. Both take everything that a job does: the copy to the device, the preparation
// with a flat and a dark field, the filter, and the planes. The planes are checked: pixels against
// a sum in double precision.
//   bench_live [--backend host|cuda] [--size N] [--slices N] [--angles N] [--batch N]
//   --size: columns of a projection, and rows and columns of a slice; --slices: rows of a
//   projection; --angles: projections that are timed, of each batch size; --batch: of a batch

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "gpu/backend/open_devices.h"
#include "gpu/tomography/live_planes.h"
#include "gpu/tomography/preprocess.h"
#include "gpu/tomography/reconstruct_plan.h"
#include "tests/bench/bench_basics.h"

namespace octavo {
namespace {

using bench::Clock;
using bench::Die;
using bench::Ok;
using bench::ReadOptions;
using bench::SecondsSince;
using bench::Take;

constexpr double kDark = 100, kFlat = 40000;

struct Options {
  std::string backend = "host";
  int64_t size = 512, slices = 0, angles = 32, batch = 4;
};

class LiveBench {
 public:
  LiveBench(const Options& options, Device& device)
      : o_(options),
        device_(device),
        stream_(Take(device.NewStream(StreamPriority::kNormal))),
        planes_{{PlaneAxis::kZ, o_.slices / 2}, {PlaneAxis::kY, o_.size / 3}, {PlaneAxis::kX, 0}} {
    planes_[2].index = o_.size / 2;
    std::mt19937 random(5);
    // A few different projections, used again and again.
    for (int64_t i = 0; i < kDifferent * o_.slices * o_.size; ++i)
      raw_.push_back(static_cast<uint16_t>(2000 + random() % 30000));
    fields_.assign(static_cast<size_t>(2 * o_.slices * o_.size), static_cast<float>(kFlat));
    std::fill_n(fields_.begin() + o_.slices * o_.size, o_.slices * o_.size,
                static_cast<float>(kDark));
    field_memory_ = Take(device_.Allocate(std::ssize(fields_) * 4));
    Ok(device_.Upload(stream_.ref(), field_memory_.span<float>(), fields_));
    Ok(stream_.ref().Synchronize());
    config_.back_projection.algorithm = TomographyAlgorithm::kFbp;
    config_.back_projection.detectors = o_.size;
    config_.back_projection.centers = {0.5 * static_cast<double>(o_.size) + 0.7};
    config_.slices = o_.slices;
  }

  void Run(int64_t batch, bool only_slice) {
    config_.batch = batch;
    const auto live = Take(LivePlanes::Create(config_, device_));
    PrepareConfig prepare{.angles = batch,
                          .rows = o_.slices,
                          .columns = o_.size,
                          .field_dtype = DType::kF32,
                          .flats = 1,
                          .darks = 1};
    const auto preparer = Take(Preparer::Create(prepare, device_));
    const int64_t frame = o_.slices * o_.size;
    const PinnedBuffer staging = Take(device_.AllocatePinned(batch * frame * 2));
    const DeviceBuffer raw = Take(device_.Allocate(batch * frame * 2)),
                       prepared = Take(device_.Allocate(batch * frame * 4)),
                       image = Take(device_.Allocate(o_.size * std::max(o_.size, o_.slices) * 4));
    const PinnedBuffer out =
        Take(device_.AllocatePinned(3 * o_.size * std::max(o_.size, o_.slices) * 4));
    std::vector<PlaneId> planes = planes_;
    if (only_slice) planes.resize(1);
    for (const PlaneId& plane : planes) Ok(live->Begin(stream_.ref(), plane));
    std::vector<double> angles;
    const auto add = [&](double* prepare_s) {
      const auto begin = Clock::now();
      LiveProjections in{.data = prepared.span<float>(), .room = batch, .angles_rad = {}};
      for (int64_t i = 0; i < batch; ++i) {
        const auto next = std::ssize(angles);
        std::copy_n(raw_.begin() + next % kDifferent * frame, frame,
                    staging.as<uint16_t>() + i * frame);
        angles.push_back(static_cast<double>(next) * std::numbers::pi * (std::sqrt(5.0) - 1) / 2);
        in.angles_rad.push_back(angles.back());
      }
      Ok(device_.CopyToDevice(stream_.ref(), raw.data(), staging.data(), batch * frame * 2));
      Ok(preparer->Run(stream_.ref(),
                       {.projections = raw.data(),
                        .flats = field_memory_.data(),
                        .darks = field_memory_.as<float>() + frame},
                       prepared.span<float>()));
      Ok(stream_.ref().Synchronize());
      *prepare_s += SecondsSince(begin);
      Ok(live->Add(stream_.ref(), in, planes));
    };
    const auto show = [&] {
      for (size_t p = 0; p < planes.size(); ++p) {
        const int64_t pixels = live->rows(planes[p].axis) * live->columns(planes[p].axis);
        Ok(live->Image(stream_.ref(), planes[p], image.span<float>()));
        Ok(device_.CopyToHost(stream_.ref(), out.as<float>() + Offset(p), image.data(),
                              pixels * 4));
      }
      Ok(stream_.ref().Synchronize());
    };
    double ignored = 0, prepare_s = 0;
    add(&ignored);
    show();
    const int64_t batches = std::max<int64_t>(1, o_.angles / batch);
    const auto begin = Clock::now();
    for (int64_t i = 0; i < batches; ++i) add(&prepare_s);
    const double all_s = SecondsSince(begin), count = static_cast<double>(batches * batch);
    const auto last = Clock::now();
    add(&ignored);
    show();
    const double last_s = SecondsSince(last);
    Check(angles, planes, out.as<float>());
    std::printf(
        "{\"bench\": \"live\", \"backend\": \"%s\", \"size\": %lld, \"slices\": %lld, \"batch\": "
        "%lld, \"planes\": \"%s\", \"ms_per_projection\": %.4g, \"ms_prepare\": %.4g, "
        "\"ms_planes\": %.4g, \"ms_last_projection_to_images\": %.4g}\n",
        o_.backend.c_str(), static_cast<long long>(o_.size), static_cast<long long>(o_.slices),
        static_cast<long long>(batch), only_slice ? "z" : "zyx", 1e3 * all_s / count,
        1e3 * prepare_s / count, 1e3 * (all_s - prepare_s) / count, 1e3 * last_s);
  }

 private:
  static constexpr int64_t kDifferent = 3;

  int64_t Offset(size_t plane) const {
    return static_cast<int64_t>(plane) * o_.size * std::max(o_.size, o_.slices);
  }

  // Some pixels of each plane.
  void Check(const std::vector<double>& angles, const std::vector<PlaneId>& planes,
             const float* images) const {
    const ProjectionFilterTaps filter = DesignProjectionFilter(config_.back_projection);
    const double middle = 0.5 * static_cast<double>(o_.size - 1),
                 center = config_.back_projection.centers[0];
    for (size_t p = 0; p < planes.size(); ++p) {
      const bool z = planes[p].axis == PlaneAxis::kZ, y = planes[p].axis == PlaneAxis::kY;
      for (const double part : {0.2, 0.5, 0.77}) {
        const auto row = static_cast<int64_t>(part * static_cast<double>(z ? o_.size : o_.slices)),
                   column = static_cast<int64_t>((0.9 - 0.6 * part) * static_cast<double>(o_.size));
        const int64_t slice = z ? planes[p].index : row;
        const double x = static_cast<double>(planes[p].axis == PlaneAxis::kX ? planes[p].index
                                                                             : column) -
                         middle,
                     down = static_cast<double>(z   ? row
                                                : y ? planes[p].index
                                                    : column) -
                            middle;
        double expected = 0, size = 0;
        for (size_t a = 0; a < angles.size(); ++a) {
          const uint16_t* values =
              raw_.data() + (static_cast<int64_t>(a) % kDifferent * o_.slices + slice) * o_.size;
          const double u = center + x * std::cos(angles[a]) - down * std::sin(angles[a]);
          for (const int64_t side : {0, 1}) {
            const auto bin = static_cast<int64_t>(std::floor(u)) + side;
            if (bin < 0 || bin >= o_.size) continue;
            double filtered = 0;
            for (int64_t d = 0; d < o_.size; ++d) {
              filtered +=
                  static_cast<double>(filter.taps[static_cast<size_t>(bin - d + o_.size - 1)]) *
                  -std::log((static_cast<double>(values[d]) - kDark) / (kFlat - kDark));
            }
            expected += filtered * (1 - std::abs(u - static_cast<double>(bin)));
            size += std::abs(filtered);
          }
        }
        const double scale = std::numbers::pi / static_cast<double>(angles.size()),
                     actual = static_cast<double>(images[Offset(p) + row * o_.size + column]);
        if (!(std::abs(actual - scale * expected) <= 1e-4 * scale * size))
          Die("plane " + std::to_string(p) + " has " + std::to_string(actual) + " where " +
              std::to_string(scale * expected) + " belongs");
      }
    }
  }

  const Options o_;
  Device& device_;
  const Stream stream_;
  std::vector<PlaneId> planes_;
  LivePlanesConfig config_;
  std::vector<uint16_t> raw_;
  std::vector<float> fields_;
  DeviceBuffer field_memory_;
};

int Main(int argc, char** argv) {
  Options o;
  ReadOptions(argc, argv,
              {{"--backend", &o.backend},
               {"--size", &o.size},
               {"--slices", &o.slices},
               {"--angles", &o.angles},
               {"--batch", &o.batch}});
  if (o.slices == 0) o.slices = o.size;
  if (o.size < 2 || o.slices < 1 || o.angles < 1 || o.batch < 1)
    Die("--size is at least 2, the other numbers at least 1");
  const auto opened = Take(OpenDevices(o.backend));
  LiveBench bench(o, *opened.devices[0]);
  bench.Run(1, false);
  bench.Run(o.batch, false);
  bench.Run(o.batch, true);
  return 0;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) { return octavo::Main(argc, argv); }

#include "gpu/tomography/dead_columns.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "gpu/device/buffer.h"

namespace octavo::inline gpu {
namespace {

constexpr int64_t kAngles = 64;  // angles that are inspected
constexpr double kSame = 1e-3;   // part of the usual change of a column; less is no change
constexpr double kApart = 0.1;   // part of the usual change of a column; a column of one value that
                                 // is closer than this to its neighbours does no harm
constexpr double kFar =
    1;  // part of the usual change of a column; stripes of real scans are half of it
constexpr int64_t kWidest =
    20;  // adjacent dead columns may be at most one part in 20 of the detector
constexpr double kMostAngles = 0.2;  // quantile: four fifths of the angles exceed it

/// The value below which the given part of the values lies. Reorders them.
float Quantile(std::vector<float>& values, double part) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(
                                       std::lround(part * static_cast<double>(values.size() - 1)));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

class Sinogram {
 public:
  Sinogram(const std::vector<float>& values, int64_t angles, int64_t detectors)
      : values_(values), angles_(angles), n_(detectors) {
    change_.resize(static_cast<size_t>(n_));
    tbb::parallel_for(int64_t{0}, n_, [&](int64_t x) {
      std::vector<float> column = Column(x);
      const float low = Quantile(column, 0.5 * kMostAngles),
                  high = Quantile(column, 1 - 0.5 * kMostAngles);
      change_[static_cast<size_t>(x)] = high - low;
    });
    std::vector<float> changes = change_;
    usual_ = Quantile(changes, 0.75);  // because most columns may see only air
  }

  std::vector<int64_t> Dead() const {
    std::vector<int64_t> dead;
    if (!(usual_ > 0)) return dead;
    std::vector<bool> is_dead = Outliers();
    for (int64_t first = 0, end = 0; first < n_; first = std::max(end, first + 1)) {
      for (end = first; end < n_ && Still(end); ++end) {
      }
      if (end == first || !TellsNothing(first, end)) continue;
      for (int64_t x = first; x < end; ++x) is_dead[static_cast<size_t>(x)] = true;
    }
    for (int64_t x = 0; x < n_; ++x) {
      if (is_dead[static_cast<size_t>(x)]) dead.push_back(x);
    }
    return std::ssize(dead) * 4 > n_ ? std::vector<int64_t>{}
                                     : dead;  // if so many columns qualify, they are not dead
  }

 private:
  float At(int64_t angle, int64_t x) const { return values_[static_cast<size_t>(angle * n_ + x)]; }
  double Change(int64_t x) const { return change_[static_cast<size_t>(x)]; }
  bool Still(int64_t x) const { return Change(x) <= kSame * usual_; }
  std::vector<float> Column(int64_t x) const {
    std::vector<float> column;
    for (int64_t a = 0; a < angles_; ++a) column.push_back(At(a, x));
    return column;
  }

  /// Whether the unchanging columns [first, end) are neither air nor a shadow. Beside air or a
  /// shadow, the neighbouring columns end at the same value.
  bool TellsNothing(int64_t first, int64_t end) const {
    if (end - first > std::max<int64_t>(3, n_ / kWidest)) return false;
    std::vector<float> own = Column(first);
    const double value = Quantile(own, 0.5);
    if (first == 0 || end == n_) {
      if (end - first > 3) return false;  // more likely air in a scan without noise
      const std::vector<float> beside = Column(first == 0 ? end : first - 1);
      const auto [low, high] = std::minmax_element(beside.begin(), beside.end());
      return value < *low - usual_ || value > *high + usual_;
    }
    const bool in_air = std::min(Change(first - 1), Change(end)) < kApart * usual_;
    int64_t apart = 0;
    for (int64_t a = 0; a < angles_; ++a) {
      const double beside =
          0.5 * (static_cast<double>(At(a, first - 1)) + static_cast<double>(At(a, end)));
      if (std::abs(value - beside) > (in_air ? kFar : kApart) * usual_) ++apart;
    }
    return 2 * apart >= angles_;
  }

  std::vector<bool> Outliers() const {
    const int64_t reach = std::clamp<int64_t>(n_ / 100, 2, 10);
    std::vector<float> offs(static_cast<size_t>(n_), 0.0F);  // of four fifths of the angles
    // At an end there are neighbours on one side only, and an object may fall off steeply there.
    tbb::parallel_for(reach, n_ - reach, [&](int64_t x) {
      std::vector<float> around, off;
      for (int64_t a = 0; a < angles_; ++a) {
        around.clear();
        for (int64_t k = x - reach; k <= x + reach; ++k) around.push_back(At(a, k));
        off.push_back(std::abs(At(a, x) - Quantile(around, 0.5)));
      }
      offs[static_cast<size_t>(x)] = Quantile(off, kMostAngles);
    });
    std::vector<bool> out;
    for (const float off : offs) out.push_back(static_cast<double>(off) > kFar * usual_);
    return out;
  }

  const std::vector<float>& values_;
  const int64_t angles_, n_;
  std::vector<float>
      change_;  // of each column: the distance from the first to the last decile of its values
  double usual_ = 0;
};

void Interpolate(const std::vector<int64_t>& dead, int64_t detectors, float* row) {
  for (size_t i = 0; i < dead.size();) {
    size_t j = i;
    while (j + 1 < dead.size() && dead[j + 1] == dead[j] + 1) ++j;
    const int64_t left = dead[i] - 1, right = dead[j] + 1;
    for (int64_t x = dead[i]; x <= dead[j]; ++x) {
      if (left < 0 || right >= detectors) {
        row[x] = row[left < 0 ? right : left];
      } else {
        const float part = static_cast<float>(x - left) / static_cast<float>(right - left);
        row[x] = row[left] + part * (row[right] - row[left]);
      }
    }
    i = j + 1;
  }
}

}  // namespace

std::vector<int64_t> FindDeadColumns(const std::vector<float>& sinogram, int64_t angles,
                                     int64_t detectors) {
  if (angles < 8 || detectors < 8 ||
      !std::all_of(sinogram.begin(), sinogram.end(), [](float v) { return std::isfinite(v); }))
    return {};
  return Sinogram(sinogram, angles, detectors).Dead();
}

absl::StatusOr<std::vector<int64_t>> MendDeadColumns(StreamRef stream, DeviceSpan<float> sinograms,
                                                     int64_t slices, int64_t angles,
                                                     int64_t detectors, Device& device,
                                                     const CancelCheck& goes_on) {
  const int64_t looked = std::min(angles, kAngles);
  OCTAVO_ASSIGN_OR_RETURN(
      const PinnedBuffer some,
      device.AllocatePinned(looked * detectors * static_cast<int64_t>(sizeof(float))));
  std::set<int64_t> all;
  for (int64_t slice = 0; slice < slices; ++slice) {
    const DeviceSpan<float> sinogram =
        sinograms.From(slice * angles * detectors).First(angles * detectors);
    for (int64_t i = 0; i < looked; ++i) {
      OCTAVO_RETURN_IF_ERROR(
          device.Download(stream, some.span<float>().From(i * detectors),
                          sinogram.From(i * angles / looked * detectors).First(detectors)));
    }
    OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
    const std::vector<int64_t> dead = FindDeadColumns(
        {some.as<float>(), some.as<float>() + looked * detectors}, looked, detectors);
    if (!dead.empty()) {
      all.insert(dead.begin(), dead.end());
      OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer whole, device.AllocatePinned(sinogram.bytes()));
      OCTAVO_RETURN_IF_ERROR(device.Download(stream, whole.span<float>(), sinogram));
      OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
      for (int64_t a = 0; a < angles; ++a)
        Interpolate(dead, detectors, whole.as<float>() + a * detectors);
      OCTAVO_RETURN_IF_ERROR(
          device.Upload(stream, sinogram, whole.span<float>().First(sinogram.count())));
      OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
    }
    OCTAVO_RETURN_IF_ERROR(CheckCancelled(stream, goes_on));
  }
  return std::vector<int64_t>(all.begin(), all.end());
}

}  // namespace octavo::inline gpu

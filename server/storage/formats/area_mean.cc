#include "server/storage/formats/area_mean.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tbb/enumerable_thread_specific.h"
#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "server/storage/io/element_type.h"

namespace octavo::storage {
namespace {

// Of a voxel: a factor from a division may be this far from the one that was meant.
constexpr double kSlack = 1e-9;

}  // namespace

int64_t AreaMean::Extent(int64_t extent, double factor) {
  return std::max<int64_t>(
      1, static_cast<int64_t>(std::floor(static_cast<double>(extent) / factor * (1 + kSlack))));
}

AreaMean::Axis::Axis(int64_t extent, double factor) {
  const int64_t count = Extent(extent, factor);
  const auto all = static_cast<double>(extent);
  for (int64_t j = 0; j < count; ++j) {
    const double begin = static_cast<double>(j) * factor,
                 end = std::min(begin + factor, all);  // an axis may be shorter than a box
    Cell cell{.first = static_cast<int64_t>(std::floor(begin + kSlack)), .weights = weights.size()};
    for (int64_t i = cell.first; i < extent; ++i) {
      const auto at = static_cast<double>(i);
      const double part = std::min(at + 1, end) - std::max(at, begin);
      if (part <= kSlack) break;
      weights.push_back(std::min(part, 1.0));
      ++cell.count;
    }
    cells.push_back(cell);
  }
}

AreaMean::AreaMean(DType dtype, const int64_t shape[3], const double factor[3])
    : dtype_(dtype),
      may_be_nan_(ElementTypeOf(dtype).kind == ElementType::Kind::kFloat),
      rows_(shape[1]),
      columns_(shape[2]),
      along_{{shape[0], factor[0]}, {shape[1], factor[1]}, {shape[2], factor[2]}} {
  const size_t plane = along_[1].cells.size() * along_[2].cells.size();
  plane_sum_.resize(plane);
  plane_weight_.resize(plane);
  sum_.resize(plane);
  weight_.resize(plane);
  done_.resize(plane * static_cast<size_t>(SizeOf(dtype)));
}

absl::Status AreaMean::Add(const void* planes, int64_t count,
                           const std::function<absl::Status(const char* plane)>& plane_done) {
  const int64_t bytes = rows_ * columns_ * SizeOf(dtype_);
  const std::vector<Axis::Cell>& cells = along_[0].cells;
  for (int64_t i = 0; i < count; ++i, ++next_) {
    if (cell_ == cells.size()) continue;  // what is left out at the end
    Reduce(static_cast<const char*>(planes) + i * bytes);
    // A plane may end one box and begin the next.
    while (cell_ < cells.size() && cells[cell_].first <= next_) {
      const Axis::Cell& cell = cells[cell_];
      const int64_t at = next_ - cell.first;
      if (at < cell.count) Accumulate(along_[0].weights[cell.weights + static_cast<size_t>(at)]);
      if (at < cell.count - 1) break;
      OCTAVO_RETURN_IF_ERROR(Complete(plane_done));
    }
  }
  return absl::OkStatus();
}

void AreaMean::Reduce(const char* plane) {
  const Axis &down = along_[1], &across = along_[2];
  const size_t wide = across.cells.size();
  const ElementType type = ElementTypeOf(dtype_);
  struct Scratch {
    std::vector<double> row, sum, weight;
  };
  tbb::enumerable_thread_specific<Scratch> scratches;
  tbb::parallel_for(size_t{0}, down.cells.size(), [&](size_t r) {
    Scratch& scratch = scratches.local();
    const auto columns = static_cast<size_t>(columns_);
    scratch.row.resize(columns);
    scratch.sum.assign(columns, 0);
    scratch.weight.assign(columns, 0);
    const Axis::Cell& rows = down.cells[r];
    for (int64_t i = 0; i < rows.count; ++i) {
      const double weight = down.weights[rows.weights + static_cast<size_t>(i)];
      ConvertElements(type, DType::kF64, 1, 0, columns_,
                      plane + (rows.first + i) * columns_ * type.bytes, scratch.row.data());
      if (!may_be_nan_) {
        for (size_t c = 0; c < columns; ++c) scratch.sum[c] += weight * scratch.row[c];
        for (size_t c = 0; c < columns; ++c) scratch.weight[c] += weight;
        continue;
      }
      for (size_t c = 0; c < columns; ++c) {
        const bool counts = !std::isnan(scratch.row[c]);
        scratch.sum[c] += counts ? weight * scratch.row[c] : 0;
        scratch.weight[c] += counts ? weight : 0;
      }
    }
    for (size_t k = 0; k < wide; ++k) {
      const Axis::Cell& cell = across.cells[k];
      double sum = 0, all = 0;
      for (int64_t i = 0; i < cell.count; ++i) {
        const double weight = across.weights[cell.weights + static_cast<size_t>(i)];
        const auto at = static_cast<size_t>(cell.first + i);
        sum += weight * scratch.sum[at];
        all += weight * scratch.weight[at];
      }
      plane_sum_[r * wide + k] = sum;
      plane_weight_[r * wide + k] = all;
    }
  });
}

void AreaMean::Accumulate(double weight) {
  for (size_t i = 0; i < sum_.size(); ++i) {
    sum_[i] += weight * plane_sum_[i];
    weight_[i] += weight * plane_weight_[i];
  }
}

absl::Status AreaMean::Complete(const std::function<absl::Status(const char* plane)>& plane_done) {
  for (size_t i = 0; i < sum_.size(); ++i)
    sum_[i] = weight_[i] > 0 ? sum_[i] / weight_[i] : std::numeric_limits<double>::quiet_NaN();
  ConvertElements({ElementType::Kind::kFloat, 8}, dtype_, 1, 0, std::ssize(sum_), sum_.data(),
                  done_.data());
  std::fill(sum_.begin(), sum_.end(), 0);
  std::fill(weight_.begin(), weight_.end(), 0);
  ++cell_;
  return plane_done(done_.data());
}

}  // namespace octavo::storage

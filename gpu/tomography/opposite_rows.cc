// Shared by the searches that compare opposite projections: rows of some projections, and their
// transforms.

#include <algorithm>
#include <cmath>

#include "gpu/base/status.h"
#include "gpu/tomography/internal.h"

namespace octavo::inline gpu {
namespace {

constexpr int64_t kPairs = 512;  // pairs of opposite views, over all slices

}  // namespace

int64_t OppositeSearch::PairsOf(int64_t slices) {
  return std::clamp<int64_t>(kPairs / slices, 16, 128);
}

int64_t OppositeSearch::PairLength(int64_t detectors) {
  int64_t length = 2;
  while (length < 2 * detectors) length *= 2;
  return length;
}

absl::Status OppositeSearch::Transform(int64_t length, bool inverse,
                                       std::vector<ComplexF>* rows) const {
  if (rows->empty()) return absl::OkStatus();
  const FftSpec fft{
      .n = length, .rows = static_cast<int64_t>(rows->size()) / length, .inverse = inverse};
  OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer data, Upload(*rows));
  OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, families_.arrays.PrepareFft(fft));
  OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer work, device_.Allocate(std::max<int64_t>(bytes, 256)));
  OCTAVO_RETURN_IF_ERROR(families_.arrays.Fft(stream_, fft, data.data(), work.data()));
  return Download(HostSpan<ComplexF>(rows->data(), std::ssize(*rows)),
                  data.span<ComplexF>().First(std::ssize(*rows)));
}

absl::StatusOr<OppositeSearch::SliceRows> OppositeSearch::RowsOf(
    int64_t slice, const std::vector<const OppositeViews*>& views) const {
  SliceRows out;
  for (const OppositeViews* view : views) {
    for (const WeightedRows* rows : {&view->front, &view->behind}) {
      for (const int64_t row : rows->rows) out.place.emplace(row, 0);
    }
  }
  int64_t count = 0;
  for (auto& [row, place] : out.place) place = count++;
  const int64_t n = config_.detectors;
  OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer values,
                          device_.AllocatePinned(std::max<int64_t>(count, 1) * n * kFloat));
  for (const auto& [row, place] : out.place) {
    const int64_t at = input_.angle_first ? row * config_.slices + slice : slice * angles() + row;
    OCTAVO_RETURN_IF_ERROR(device_.CopyToHost(stream_, values.as<float>() + place * n,
                                              input_.data.data() + at * n, n * kFloat));
  }
  OCTAVO_RETURN_IF_ERROR(stream_.Synchronize());
  out.values.assign(values.as<float>(), values.as<float>() + count * n);
  for (const double value : out.values) {
    if (!std::isfinite(value)) return NotFinite();
  }
  return out;
}

CenterSearch::Doubles OppositeSearch::SliceRows::Sum(const WeightedRows& rows, int64_t n) const {
  Doubles out(static_cast<size_t>(n), 0.0);
  for (size_t i = 0; i < rows.rows.size(); ++i) {
    const double* const from = values.data() + place.at(rows.rows[i]) * n;
    for (size_t x = 0; x < out.size(); ++x) out[x] += rows.weights[i] * from[x];
  }
  return out;
}

absl::StatusOr<int64_t> OppositeSearch::DeviceBytes(const CenterConfig& c, ArrayOps& arrays) {
  const int64_t length = PairLength(c.detectors), pairs = PairsOf(c.slices);
  OCTAVO_ASSIGN_OR_RETURN(const int64_t work, arrays.PrepareFft({.n = length, .rows = pairs}));
  return pairs * length * static_cast<int64_t>(sizeof(ComplexF)) + std::max<int64_t>(work, 256);
}

}  // namespace octavo::inline gpu

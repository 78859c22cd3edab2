#include "server/storage/zarr/box.h"

#include <algorithm>
#include <cstring>

namespace octavo::storage {
namespace {

constexpr int64_t kTile = 32;  // elements along both axes of a transposed tile

struct Axis {
  int64_t count, from, to;
};
using Axes = absl::InlinedVector<Axis, 6>;

/// The axes of a box, slowest at the destination first; those that continue each other on both
/// sides are one.
Axes MergedAxes(absl::Span<const int64_t> count, absl::Span<const int64_t> from,
                absl::Span<const int64_t> to) {
  Axes axes;
  for (size_t d = 0; d < count.size(); ++d) {
    if (count[d] != 1) axes.push_back({count[d], from[d], to[d]});
  }
  std::stable_sort(axes.begin(), axes.end(),
                   [](const Axis& a, const Axis& b) { return a.to > b.to; });
  Axes merged;
  for (const Axis& axis : axes) {
    if (!merged.empty() && merged.back().from == axis.count * axis.from &&
        merged.back().to == axis.count * axis.to)
      merged.back() = {merged.back().count * axis.count, axis.from, axis.to};
    else
      merged.push_back(axis);
  }
  return merged;
}

/// Calls use(offset at the source, offset at the destination) for all indices of the axes.
template <class Use>
void ForEach(absl::Span<const Axis> axes, const Use& use) {
  AxisValues index(axes.size(), 0);
  int64_t from = 0, to = 0;
  for (;;) {
    use(from, to);
    size_t d = axes.size();
    for (; d > 0; --d) {
      const Axis& axis = axes[d - 1];
      from += axis.from, to += axis.to;
      if (++index[d - 1] < axis.count) break;
      from -= axis.count * axis.from, to -= axis.count * axis.to;
      index[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

template <int64_t kBytes>
void CopyPlane(const Axis& a, const Axis& b, int64_t bytes, const char* from, char* to) {
  for (int64_t i0 = 0; i0 < a.count; i0 += kTile) {
    for (int64_t j0 = 0; j0 < b.count; j0 += kTile) {
      for (int64_t i = i0; i < std::min(a.count, i0 + kTile); ++i) {
        for (int64_t j = j0; j < std::min(b.count, j0 + kTile); ++j)
          std::memcpy(to + i * a.to + j * b.to, from + i * a.from + j * b.from,
                      static_cast<size_t>(kBytes > 0 ? kBytes : bytes));
      }
    }
  }
}

}  // namespace

AxisValues PackedStrides(absl::Span<const int64_t> count, int64_t element_bytes) {
  AxisValues strides(count.size());
  int64_t stride = element_bytes;
  for (size_t d = count.size(); d > 0; --d) {
    strides[d - 1] = stride;
    stride *= count[d - 1];
  }
  return strides;
}

int64_t OffsetOf(absl::Span<const int64_t> index, absl::Span<const int64_t> stride) {
  int64_t offset = 0;
  for (size_t d = 0; d < index.size(); ++d) offset += index[d] * stride[d];
  return offset;
}

bool IsOneRun(absl::Span<const int64_t> count, int64_t element_bytes,
              absl::Span<const int64_t> from_stride, absl::Span<const int64_t> to_stride) {
  const Axes axes = MergedAxes(count, from_stride, to_stride);
  return axes.empty() ||
         (axes.size() == 1 && axes[0].from == element_bytes && axes[0].to == element_bytes);
}

void CopyBox(absl::Span<const int64_t> count, int64_t element_bytes, const char* from,
             absl::Span<const int64_t> from_stride, char* to, absl::Span<const int64_t> to_stride) {
  if (std::find(count.begin(), count.end(), 0) != count.end()) return;
  Axes axes = MergedAxes(count, from_stride, to_stride);
  if (axes.empty()) {
    std::memcpy(to, from, static_cast<size_t>(element_bytes));
    return;
  }
  if (axes.back().from == element_bytes && axes.back().to == element_bytes) {
    const auto row = static_cast<size_t>(axes.back().count * element_bytes);
    axes.pop_back();
    ForEach(axes, [&](int64_t in, int64_t out) { std::memcpy(to + out, from + in, row); });
    return;
  }
  // The fastest axis of each side: together they form the tiles.
  const Axis fast_to = axes.back();
  axes.pop_back();
  Axis fast_from{1, 0, 0};
  if (const auto least = std::min_element(
          axes.begin(), axes.end(), [](const Axis& a, const Axis& b) { return a.from < b.from; });
      least != axes.end()) {
    fast_from = *least;
    axes.erase(least);
  }
  ForEach(axes, [&](int64_t in, int64_t out) {
    const auto plane = [&](auto copy) {
      copy(fast_from, fast_to, element_bytes, from + in, to + out);
    };
    switch (element_bytes) {
      case 1: plane(CopyPlane<1>); break;
      case 2: plane(CopyPlane<2>); break;
      case 4: plane(CopyPlane<4>); break;
      case 8: plane(CopyPlane<8>); break;
      case 16: plane(CopyPlane<16>); break;
      default: plane(CopyPlane<0>); break;
    }
  });
}

void FillBox(absl::Span<const int64_t> count, const std::string& element, char* to,
             absl::Span<const int64_t> to_stride) {
  if (std::find(count.begin(), count.end(), 0) != count.end()) return;
  const auto bytes = static_cast<int64_t>(element.size());
  Axes axes = MergedAxes(count, to_stride, to_stride);
  int64_t row = 1;
  if (!axes.empty() && axes.back().to == bytes) {
    row = axes.back().count;
    axes.pop_back();
  }
  const bool same =
      std::all_of(element.begin(), element.end(), [&](char c) { return c == element[0]; });
  ForEach(axes, [&](int64_t, int64_t out) {
    if (same) {
      std::memset(to + out, element[0], static_cast<size_t>(row * bytes));
      return;
    }
    for (int64_t i = 0; i < row; ++i)
      std::memcpy(to + out + i * bytes, element.data(), static_cast<size_t>(bytes));
  });
}

}  // namespace octavo::storage

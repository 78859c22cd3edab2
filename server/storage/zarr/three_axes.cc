#include "server/storage/zarr/three_axes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace octavo::storage {

absl::StatusOr<ZarrThreeAxes> ZarrThreeAxes::Of(std::shared_ptr<const ZarrArrayReader> array) {
  ZarrThreeAxes out(std::move(array));
  const int64_t rank = out.array_->rank();
  for (int64_t i = 0; i < rank; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t extent = out.array_->shape()[at], d = i + 3 - rank;
    if (d < 0 && extent != 1)
      return absl::UnimplementedError(
          absl::StrCat("shape[", i, "] is ", extent,
                       "; more than three axes are read where those before have extent 1"));
    if (d < 0) continue;
    out.shape_[d] = extent;
    out.file_[d] = out.array_->file_shape()[at];
  }
  return out;
}

absl::Status ZarrThreeAxes::Read(const int64_t start[3], const int64_t count[3], void* out) const {
  const auto rank = static_cast<size_t>(array_->rank()), used = std::min<size_t>(rank, 3);
  for (size_t d = 0; d < 3 - used; ++d) {
    if (start[d] != 0 || count[d] != 1)
      return absl::OutOfRangeError(absl::StrCat("the box of an axis of extent 1 has ", count[d],
                                                " elements from ", start[d]));
  }
  AxisValues from(rank, 0), size(rank, 1);
  std::copy(start + 3 - used, start + 3, from.end() - static_cast<std::ptrdiff_t>(used));
  std::copy(count + 3 - used, count + 3, size.end() - static_cast<std::ptrdiff_t>(used));
  return array_->Read(from, size, out);
}

}  // namespace octavo::storage

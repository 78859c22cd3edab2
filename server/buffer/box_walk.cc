#include "server/buffer/box_walk.h"

#include <algorithm>

#include "gpu/base/status.h"
#include "server/base/array_box.h"

namespace octavo::buffer {

absl::StatusOr<BoxWalk> BoxWalk::Of(const model::BufferReadSpec& spec, size_t sources,
                                    ArrayType* type) {
  BoxWalk walk{.element_bytes = SizeOf(type->scalar) * type->lanes, .sources = sources};
  const size_t rank = type->dims.size();
  OCTAVO_ASSIGN_OR_RETURN(const base::ArrayBox asked,
                          base::ResolveBox(spec.start, spec.count, type->dims));
  for (int d = 0; d < 3; ++d) walk.box.count[d] = 1;
  for (size_t d = 0; d < rank; ++d) {
    walk.shape[3 - rank + d] = type->dims[d];
    walk.box.start[3 - rank + d] = asked.start[d];
    walk.box.count[3 - rank + d] = type->dims[d] = asked.count[d];
  }
  return walk;
}

Box3 BoxWalk::Next(int64_t max_bytes) {
  const int64_t row = box.count[2] * element_bytes, plane = row * box.count[1];
  Box3 piece;
  for (int d = 0; d < 3; ++d) piece.start[d] = box.start[d] + at[d], piece.count[d] = 1;
  if (at[1] == 0 && at[2] == 0 && plane <= max_bytes) {
    piece.count[0] = std::min(box.count[0] - at[0], max_bytes / plane);
    piece.count[1] = box.count[1];
    piece.count[2] = box.count[2];
    at[0] += piece.count[0];
  } else if (at[2] == 0 && row <= max_bytes) {
    piece.count[1] = std::min(box.count[1] - at[1], max_bytes / row);
    piece.count[2] = box.count[2];
    at[1] += piece.count[1];
  } else {
    piece.count[2] =
        std::min(box.count[2] - at[2], std::max<int64_t>(1, max_bytes / element_bytes));
    at[2] += piece.count[2];
  }
  if (at[2] == box.count[2]) at[2] = 0, ++at[1];
  if (at[1] == box.count[1]) at[1] = 0, ++at[0];
  if (at[0] == box.count[0]) at[0] = 0, ++source;
  return piece;
}

}  // namespace octavo::buffer

#include "server/volume/spilled_volume.h"

#include "gpu/base/status.h"

namespace octavo::volume {

absl::Status ReadBox(storage::SpillCursor& cursor, const int64_t shape[3], int64_t element_bytes,
                     const Box3& box, void* out) {
  const int64_t row = shape[2] * element_bytes, plane = shape[1] * row;
  auto* to = static_cast<char*>(out);
  const bool whole_rows = box.count[2] == shape[2],
             whole_planes = whole_rows && box.count[1] == shape[1];
  const int64_t planes = whole_planes ? 1 : box.count[0], rows = whole_rows ? 1 : box.count[1];
  const int64_t piece = box.count[2] * element_bytes * (whole_rows ? box.count[1] : 1) *
                        (whole_planes ? box.count[0] : 1);
  for (int64_t y = 0; y < planes; ++y) {
    for (int64_t x = 0; x < rows; ++x, to += piece) {
      OCTAVO_RETURN_IF_ERROR(cursor.Read(
          (box.start[0] + y) * plane + (box.start[1] + x) * row + box.start[2] * element_bytes,
          piece, to));
    }
  }
  return absl::OkStatus();
}

}  // namespace octavo::volume

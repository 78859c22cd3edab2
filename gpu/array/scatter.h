#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "gpu/device/device.h"
#include "gpu/device/dtype.h"
#include "gpu/device/operators.h"
#include "gpu/math/scalar.h"

namespace octavo::inline gpu {

/// A box of stored elements in a slab, and its place in an array. All offsets and strides count
/// bytes. The last axis varies fastest in the array.
struct ScatterPiece {
  int64_t from = 0;                    // of the first element in the slab; need not be aligned
  int64_t to = 0;                      // of the first element in the array
  int64_t count[3] = {1, 1, 1};        // elements along each axis of the array
  int64_t from_stride[3] = {0, 0, 0};  // 0: the same element again, for example a fill value
  int64_t to_stride[3] = {0, 0, 0};
  // PrepareScatter sets the rest.
  int64_t first_block = 0;  // blocks of work before this piece
  int32_t unit = 0;         // bytes that are copied at once; 0: elements are converted
  int32_t number = 1;       // bytes of the numbers whose bytes are reversed; 1 = none
};

/// What becomes of each element: scale * value + shift, in double precision; complex numbers: both
/// parts are scaled, the real part is shifted. To integers: rounded to the nearest, ties to even,
/// clamped; NaN becomes 0. Without a change of type, scale 1 and shift 0, bits stay as they are.
struct ScatterSpec {
  Scalar from = Scalar::kU8;  // not kC32
  bool swap_bytes = false;    // numbers are stored in the other byte order
  DType to = DType::kU8;      // complex numbers become kC64 only
  double scale = 1, shift = 0;
};

/// Work of one block, elements or units.
inline constexpr int64_t kScatterBlock = 4096;

/// Checks the spec and completes the pieces: neighbours that are copied as they are become wider
/// units. Returns the number of blocks of all pieces. InvalidArgument: a type cannot become the
/// other; a piece has a count below 1 or 2^31 elements.
absl::StatusOr<int64_t> PrepareScatter(const ScatterSpec& spec, absl::Span<ScatterPiece> pieces);

/// Operator family that puts stored elements, as they come from files, to their places in an array:
/// byte order, order of axes, type and edges at once.
class ScatterOps : public Operators {
 public:
  static constexpr OperatorFamily kFamily{"scatter"};

  /// Whether slab and pieces may lie in host memory.
  virtual bool ReadsHostMemory() const = 0;
  /// Enqueues `count` prepared pieces of `blocks` blocks from `slab` into `out`. Slab and pieces
  /// lie in memory of the device, or in the host's if ReadsHostMemory; both must stay unchanged
  /// until the stream has passed. Pieces of one call must not overlap in `out`.
  virtual absl::Status Scatter(StreamRef stream, const ScatterSpec& spec, const void* slab,
                               const ScatterPiece* pieces, int64_t count, int64_t blocks,
                               void* out) = 0;
};
// The factories of the twins. gpu/backend makes one twin for each device that it opens.
// InvalidArgument if the device belongs to another backend.
namespace host {
absl::StatusOr<std::unique_ptr<ScatterOps>> MakeScatterOps(Device& device);
}
namespace cuda {
absl::StatusOr<std::unique_ptr<ScatterOps>> MakeScatterOps(Device& device);
}

}  // namespace octavo::inline gpu

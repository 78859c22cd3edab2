#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/array/array_ref.h"
#include "gpu/array/axes_spec.h"
#include "gpu/array/elements.h"
#include "gpu/array/extremes.h"
#include "gpu/array/filters.h"
#include "gpu/array/flat_field.h"
#include "gpu/array/surface.h"
#include "gpu/array/warp.h"
#include "gpu/device/device.h"
#include "gpu/device/device_span.h"
#include "gpu/device/operators.h"
#include "gpu/device/scalar.h"
#include "gpu/math/array_ops.h"

// Chains of operations on arrays of 1 to 3 dimensions of any element type, on one device, in stream
// order.
namespace octavo::inline gpu {

/// Type and shape of an array in C order. Lanes (1 ... 4) are the numbers of one element; they form
/// the fastest axis.
struct ArrayType {
  Scalar scalar = Scalar::kF32;
  int64_t lanes = 1;
  std::vector<int64_t> dims;  // slowest first
  int64_t numbers() const;    // all dims × lanes
  int64_t bytes() const { return numbers() * SizeOf(scalar); }
  int rank() const { return static_cast<int>(dims.size()); }
  std::string Text() const;  // "f32[50, 50] x 2"
  bool operator==(const ArrayType&) const = default;
};

// -- operations; more of them in elements.h, extremes.h, filters.h, flat_field.h,
// surface.h and, of those that sample at positions, in warp.h. Axes are counted from 0, or from the
// end if negative. A mask is a second array, u8 of the shape of the current array: only elements
// where it is not 0 count.

/// Copies the elements.
struct CopyOp {};
/// Sets every number to `value`.
struct FillOp {
  math::Number value;
};
/// Takes the box of `count` from `start` on; an empty list = from 0, to the end. count 0 = to the
/// end.
struct CropOp {
  std::vector<int64_t> start, count;
};
/// Computes part(x) × multiply + add, stored as `scalar` (0: the input's type; for a part, the real
/// type of its width).
struct ScaleOp {
  Scalar scalar{};
  math::Part part = math::Part::kAll;
  math::Number multiply{1, 0}, add{0, 0};
};
enum class Combination : uint8_t { kNone = 0, kAdd = 1, kSubtract = 2, kMultiply = 3, kDivide = 4 };
/// Computes x ∘ other, number by number. `other` has the shape of the input or of its last axes,
/// and is repeated along the first axes.
struct CombineOp {
  Combination kind = Combination::kAdd;
  size_t other = 0;  // index of the second array
};
/// Reduces over `axes` (empty = all). Unless `scalar` names the type of the result, min and max of
/// real numbers keep the input's type, sums of integers are f64, and all others are f32 (f64 of
/// f64; complex numbers likewise). `part` selects the part of each element that is reduced.
struct ReduceOp {
  math::Reduction kind = math::Reduction::kSum;
  std::vector<int64_t> axes;
  bool keep_dims = false, skip_nan = false;
  Scalar scalar{};
  math::Part part = math::Part::kAll;
  ArrayRef mask;
};
/// Projects the samples [begin, end) along `axis` (end 0 = to the end) and ignores NaN. kMax is the
/// MIP, kMean the AIP; complex numbers count with their magnitudes.
struct SlabOp {
  math::Reduction kind = math::Reduction::kMax;
  int64_t axis = -1, begin = 0, end = 0;
  bool keep_dims = false;
  const char* called = "slab";  // the requester's name for it, which errors name: also mip and aip
};
/// Computes 1 to 16 percentiles (0 ... 100) of real numbers over `axes` (empty = all), interpolated
/// linearly between order statistics; NaN is ignored. The result is f32 (f64 for f64 and for
/// integers of 32 bits or more). Several percentiles add a first axis.
struct PercentileOp {
  std::vector<double> percentiles;
  std::vector<int64_t> axes;
  bool keep_dims = false;  // with a single percentile
  ArrayRef mask;
};
/// Counts all numbers in `bins` equal bins of [lo, hi], the last of which contains hi; NaN and
/// values outside the range are not counted. hi <= lo means the whole range for 8- and 16-bit
/// integers and is an error for other types.
struct HistogramOp {
  int64_t bins = 256;
  double lo = 0, hi = 0;
  Scalar scalar = Scalar::kU64;
  ArrayRef mask;
};
/// Computes Σ x[j] exp(∓2πi jk/n) along `axis` in f32; the inverse is divided by n. The length is
/// at most 2^24. The result is c64.
struct FftOp {
  int64_t axis = -1;
  bool inverse = false;
};
/// Resizes to `shape` (0 = unchanged). It samples at pixel centres, x = (i + 1/2) in/out - 1/2, or
/// corner to corner, x = i (in - 1)/(out - 1). With anti_aliasing, it first smooths an axis that
/// shrinks by f with a Gaussian of σ = (f - 1)/2, truncated at 4σ. `edge` says how the array
/// continues beyond its ends: for the Gaussian, for pixel centres outside, and for the spline of
/// kCubic. Integers are rounded. Source: scipy.ndimage, gaussian_filter and zoom (grid_mode for
/// pixel centres) with these modes; scikit-image, transform.resize.
enum class ResizeEdge : uint8_t {  // as octavo.v1.ResizeEdge
  kDefault = 0,                    // kMirror at pixel centres, kReflect from corner to corner
  kMirror = 1,                     // d c b | a b c d | c b a
  kReflect = 2,                    // d c b a | a b c d | d c b a
};
struct ResizeOp {
  std::vector<int64_t> shape;
  math::Sampling sampling = math::Sampling::kDefault;
  bool corner_aligned = false, anti_aliasing = true;
  ResizeEdge edge = ResizeEdge::kDefault;
};
struct FlipOp {
  std::vector<int64_t> axes;  // empty = all
};
struct TransposeOp {
  std::vector<int64_t> axes;  // a permutation; empty = reversed
};
/// Replaces a box of the array, from `start` on (empty = 0), by a second array of the same type and
/// rank, which must lie inside. Source: NumPy, x[box] = other.
struct PasteOp {
  std::vector<int64_t> start;
  size_t other = 0;
};
/// Puts 1 to 8 second arrays behind the array along `axis`, in this order. They have its type, and
/// its shape but for that axis. Source: numpy.concatenate.
struct ConcatenateOp {
  int64_t axis = 0;
  std::vector<size_t> others;
};
using Op = std::variant<CopyOp, FillOp, CropOp, ScaleOp, CombineOp, ReduceOp, SlabOp, PercentileOp,
                        HistogramOp, FftOp, ResizeOp, FlipOp, TransposeOp, AffineOp,
                        MapCoordinatesOp, DisplaceOp, ShiftOp, GaussianOp, UniformOp, MedianOp,
                        FunctionOp, ThresholdOp, ChooseOp, ArgExtremeOp, PasteOp, ConcatenateOp,
                        SurfaceOp, FlatFieldOp, FlattenOp, FocalCurvatureOp>;
const char* NameOf(const Op& op);  // "crop"

// -- the work of one launch

/// out[i0, i1, i2, i3] = in[offset + Σ i stride], elements of `bytes` 1, 2, 4, 8, 16. With
/// `scatter`, the other way: out[offset + Σ i stride] = in[i0, i1, i2, i3].
struct GatherSpec {
  int64_t bytes = 0, out[4] = {1, 1, 1, 1}, stride[4] = {0, 0, 0, 0}, offset = 0;
  bool scatter = false;
};
/// Scatters several arrays into one, in this order.
struct PasteSpec {
  struct Piece {
    ArrayRef from;  // none: the current array
    GatherSpec place;
  };
  std::vector<Piece> pieces;
};
/// out[i] = part(in[i]) × multiply + add, or in[i] ∘ other[i mod other_count].
struct MapSpec {
  Scalar in{}, out{}, other{};
  math::Part part = math::Part::kAll;
  math::Number multiply{1, 0}, add{0, 0};
  bool fill = false;  // out[i] = add; nothing is read
  Combination combination = Combination::kNone;
  size_t other_index = 0;
  int64_t count = 0, other_count = 1;
};
OCTAVO_HOST_DEVICE inline math::Number Mapped(const MapSpec& s, const void* in, const void* other,
                                              int64_t i) {
  if (s.fill) return s.add;
  const math::Number v = math::Load(s.in, in, i);
  if (s.combination == Combination::kNone)
    return math::Add(math::Multiply(math::PartOf(s.part, v), s.multiply), s.add);
  const math::Number w = math::Load(s.other, other, i % s.other_count);
  switch (s.combination) {
    case Combination::kAdd: return math::Add(v, w);
    case Combination::kSubtract: return math::Subtract(v, w);
    case Combination::kMultiply: return math::Multiply(v, w);
    default: return math::Divide(v, w);
  }
}
/// The mask of a step, and how many numbers belong to each of its elements.
struct MaskSpec {
  ArrayRef array;
  int64_t lanes = 1;
};
OCTAVO_HOST_DEVICE inline bool Counts(const MaskSpec& s, const uint8_t* mask, int64_t at) {
  return mask == nullptr || mask[s.lanes == 1 ? at : at / s.lanes] != 0;
}
/// Accumulators of parts of each result, joined in order. parts > 1: [results, parts] accumulators
/// of workspace.
struct ReduceSpec {
  Scalar in{}, out{};
  math::Part part = math::Part::kAll;
  math::Reduction kind = math::Reduction::kSum;
  bool skip_nan = false;
  AxesSpec axes;
  int64_t parts = 1;
  MaskSpec mask;
};
/// out [percentiles, results].
struct SelectSpec {
  Scalar in{}, out{};
  AxesSpec axes;
  int percentiles = 0;
  double percentile[16] = {};
  int digits =
      8;  // bytes of a key (math::KeyOf) that numbers of this type can differ in, from the highest
  MaskSpec mask;
};
struct HistogramSpec {
  Scalar in{};
  int64_t count = 0, bins = 0;
  double lo = 0, hi = 0;
  MaskSpec mask;
};
/// out[o, i, q] = Σ_t weight[i, t] in[o, index[i, t], q]; tables [m, taps] in device memory.
struct TapsSpec {
  Scalar in{}, out{};
  int64_t outer = 1, n = 1, m = 1, inner = 1, taps = 1;
  int64_t index_offset = 0, weight_offset = 0;  // bytes within the chain's tables
};
/// Transforms of `rows` rows of n c64, in place; not scaled.
struct FftSpec {
  int64_t n = 1, rows = 1;
  bool inverse = false;
};

/// Operator family of chains. Enqueue only; memory must live until the stream has passed. A mask
/// may be null.
class ArrayOps : public Operators {
 public:
  static constexpr OperatorFamily kFamily{"operations on arrays"};

  virtual absl::Status Gather(StreamRef stream, const GatherSpec& spec, const void* in,
                              void* out) = 0;
  virtual absl::Status Map(StreamRef stream, const MapSpec& spec, const void* in, const void* other,
                           void* out) = 0;
  virtual absl::Status Reduce(StreamRef stream, const ReduceSpec& spec, const void* in,
                              const uint8_t* mask, void* out, void* workspace) = 0;
  virtual absl::Status Select(StreamRef stream, const SelectSpec& spec, const void* in,
                              const uint8_t* mask, void* out) = 0;
  virtual absl::Status Histogram(StreamRef stream, const HistogramSpec& spec, const void* in,
                                 const uint8_t* mask, DeviceSpan<uint64_t> counts) = 0;
  virtual absl::Status Taps(StreamRef stream, const TapsSpec& spec, const void* in,
                            DeviceSpan<const int32_t> index, DeviceSpan<const double> weight,
                            void* out) = 0;
  /// Bytes of workspace that Fft needs. The call makes and keeps the plan and may take
  /// milliseconds, so never make it on the block path.
  virtual absl::StatusOr<int64_t> PrepareFft(const FftSpec& spec) = 0;
  virtual absl::Status Fft(StreamRef stream, const FftSpec& spec, void* data, void* workspace) = 0;
};
// The factories of the twins. gpu/backend makes one twin for each device that it opens.
// InvalidArgument if the device belongs to another backend.
namespace host {
absl::StatusOr<std::unique_ptr<ArrayOps>> MakeArrayOps(Device& device);
}
namespace cuda {
absl::StatusOr<std::unique_ptr<ArrayOps>> MakeArrayOps(Device& device);
}

// -- chains

struct PlannedOp {
  std::variant<GatherSpec, MapSpec, ReduceSpec, SelectSpec, HistogramSpec, TapsSpec, FftSpec,
               SplineSpec, WarpSpec, ShiftSpec, CorrelateSpec, MedianSpec, FunctionSpec, AboveSpec,
               ChooseSpec, ArgExtremeSpec, PasteSpec, SampleWeightsSpec, SmoothSamplesSpec,
               SurfaceSpec, CompactSpec, SteepestSpec, CutTilesSpec, FromMedianSpec, BasicSpec,
               LevelFlatSpec, FlattenSpec, SpreadSpec>
      spec;
  int64_t out_bytes = 0;
};
/// The second arrays that a step reads, some of which may be none.
std::vector<ArrayRef> OthersOf(const PlannedOp& step);
/// The steps of valid operations, without device memory. Immutable.
struct ArrayChain {
  ArrayType in, out;
  std::vector<ArrayType> others;
  std::vector<ArrayType> after;  // the result of each operation
  std::vector<PlannedOp> steps;
  std::vector<char> tables;
};

/// Plans `ops` (1 ... 16), each applied to the result of the previous one. `others` are the second
/// arrays of the operations. `in_place` means that the output is the input's memory.
/// InvalidArgument names "operations[i].<operation>.<field>" below `field`; reason
/// TOO_MANY_ELEMENTS where a result has more than `most_numbers`.
absl::StatusOr<ArrayChain> PlanChain(const std::vector<Op>& ops, const ArrayType& in,
                                     const std::vector<ArrayType>& others, bool in_place,
                                     const std::string& field,
                                     int64_t most_numbers = int64_t{1} << 40);

/// The device memory that a chain needs beside input and output, and the page-locked memory for its
/// tables. The call may make FFT plans.
absl::StatusOr<int64_t> ScratchBytes(const ArrayChain& chain, Device& device);

/// A chain with its memory on one device. It must live until the streams on which it ran have
/// passed.
class ChainRun {
 public:
  /// Allocates, which takes milliseconds. ResourceExhausted if the device has too little memory
  /// left.
  static absl::StatusOr<std::unique_ptr<ChainRun>> Create(
      const std::shared_ptr<const ArrayChain>& chain, Device& device);
  /// Enqueues all steps. `out` may equal `in` if the plan is in place. Only one run at a time may
  /// be in progress.
  absl::Status Run(StreamRef stream, const void* in, const std::vector<const void*>& others,
                   void* out);
  int64_t scratch_bytes() const { return scratch_.bytes(); }

 private:
  /// The families of operators that steps need.
  struct Families {
    ArrayOps* arrays = nullptr;
    WarpOps* warps = nullptr;
    FilterOps* filters = nullptr;
    ElementOps* elements = nullptr;
    ExtremeOps* extremes = nullptr;
    SurfaceOps* surfaces = nullptr;
    FlatFieldOps* flats = nullptr;
  };
  ChainRun(std::shared_ptr<const ArrayChain> chain, Device& device, const Families& ops)
      : chain_(std::move(chain)), device_(device), ops_(ops) {}
  absl::Status RunStep(StreamRef stream, const PlannedOp& step, const void* from,
                       const std::vector<const void*>& others, void* to);

  const std::shared_ptr<const ArrayChain> chain_;
  Device& device_;
  const Families ops_;
  PinnedBuffer tables_;
  DeviceBuffer scratch_;
  int64_t between_bytes_ = 0, work_offset_ = 0, tables_offset_ = 0;
};

}  // namespace octavo::inline gpu

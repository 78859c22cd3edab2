#include "gpu/mosaic/z_overlap.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "gpu/device/operators.h"
#include "gpu/mosaic/tile_layout.h"

namespace octavo::inline gpu {
namespace {

constexpr double kLeastDeviation = 1e-8;  // what the definition adds to a standard deviation
constexpr int64_t kMostCandidates = 1 << 16;
constexpr double kMostProducts = 0x1p37;  // nothing stops the work once it has begun

absl::Status CheckSlab(const ArrayType& type, const std::string& field) {
  OCTAVO_RETURN_IF_ERROR(CheckReal(type, field));
  if (type.rank() == 3) return absl::OkStatus();
  return WithInfo(
      absl::InvalidArgumentError(absl::StrCat(field, ": is ", type.Text(), "; allowed [z, y, x]")),
      {.reason = Reason::kBadShape, .field = field, .numbers = {}});
}

class ZOverlapRun final : public ArrayProgramRun {
 public:
  ZOverlapRun(const SlabPair& slabs, MosaicOps* ops) : slabs_(slabs), ops_(ops) {}
  absl::Status Run(StreamRef stream, const std::vector<const void*>& inputs, void* out) override {
    return ops_->SlabSums(stream, slabs_, inputs[0], inputs[1],
                          {static_cast<double*>(out), slabs_.numbers()});
  }

 private:
  const SlabPair slabs_;
  MosaicOps* const ops_;
};

class ZOverlapProgram final : public ArrayProgram {
 public:
  explicit ZOverlapProgram(const SlabPair& slabs)
      : slabs_(slabs), out_{.scalar = Scalar::kF64, .dims = {slabs.numbers()}} {}
  const ArrayType& out() const override { return out_; }
  absl::StatusOr<int64_t> ScratchBytes(Device&) const override { return int64_t{0}; }
  absl::StatusOr<std::unique_ptr<ArrayProgramRun>> Prepare(Device& device) const override {
    OCTAVO_ASSIGN_OR_RETURN(MosaicOps* const ops, FindOperators<MosaicOps>(device));
    return std::make_unique<ZOverlapRun>(slabs_, ops);
  }

 private:
  const SlabPair slabs_;
  const ArrayType out_;
};

}  // namespace

absl::StatusOr<ZOverlap> ZOverlap::Plan(const ZOverlapSpec& spec, const ArrayType& fixed,
                                        const ArrayType& moving) {
  OCTAVO_RETURN_IF_ERROR(CheckSlab(fixed, "fixed"));
  OCTAVO_RETURN_IF_ERROR(CheckSlab(moving, "moving"));
  if (fixed.scalar != moving.scalar) {
    return WithInfo(
        absl::InvalidArgumentError(absl::StrCat("moving: is ", moving.Text(), "; allowed ",
                                                octavo::NameOf(fixed.scalar), ", as `fixed`")),
        {.reason = Reason::kTypeMismatch, .field = "moving", .numbers = {}});
  }
  OCTAVO_RETURN_IF_ERROR(InRange("spacing_z_um", spec.spacing_z_um, 1e-6, 1e9));
  OCTAVO_RETURN_IF_ERROR(
      InRange("slicing_interval_um", spec.slicing_interval_um, spec.spacing_z_um * 1e-3, 1e9));
  OCTAVO_RETURN_IF_ERROR(InRange("search_range_um", spec.search_range_um, 0, 1e9));
  OCTAVO_RETURN_IF_ERROR(
      InRange("moving_first_plane", spec.moving_first_plane, 0, moving.dims[0] - 1));
  OCTAVO_RETURN_IF_ERROR(InRange("min_correlation", spec.min_correlation, -1, 1));
  const int64_t offset[2] = {spec.offset_y, spec.offset_x};
  int64_t begin[2][2], length[2];  // of the middle, [slab][axis]
  for (size_t d = 0; d < 2; ++d) {
    const char* const field = d == 0 ? "offset_y" : "offset_x";
    OCTAVO_RETURN_IF_ERROR(InRange(field, offset[d], -(int64_t{1} << 40), int64_t{1} << 40));
    const int64_t first = std::max<int64_t>(0, offset[d]),
                  last = std::min(fixed.dims[d + 1], offset[d] + moving.dims[d + 1]);
    length[d] = last - first;
    if (length[d] < 1) {
      return WithInfo(absl::InvalidArgumentError(absl::StrCat(
                          field, ": is ", offset[d], ": nothing of `moving` lies below `fixed`")),
                      {.reason = Reason::kShapeMismatch, .field = field, .numbers = {}});
    }
    begin[0][d] = first;
    begin[1][d] = first - offset[d];
  }
  const int64_t margin = std::min(length[0], length[1]) / 4;
  ZOverlap out;
  SlabPair& s = out.slabs_;
  s.scalar = fixed.scalar;
  s.height = length[0] - 2 * margin;
  s.width = length[1] - 2 * margin;
  const ArrayType* const types[2] = {&fixed, &moving};
  for (int k = 0; k < 2; ++k) {
    s.row[k] = types[k]->dims[2];
    s.plane[k] = types[k]->dims[1] * s.row[k];
    s.offset[k] = (begin[k][0] + margin) * s.row[k] + begin[k][1] + margin;
  }
  const int64_t planes = std::min(fixed.dims[0], moving.dims[0] - spec.moving_first_plane);
  const auto in_planes = [&](double um) {
    return std::llround(std::min(um / spec.spacing_z_um, 1e12));
  };
  const int64_t expected = planes - in_planes(spec.slicing_interval_um),
                range = in_planes(spec.search_range_um);
  out.expected_ = std::max<int64_t>(0, expected);
  out.min_correlation_ = spec.min_correlation;
  const int64_t low = std::max<int64_t>(1, expected - range),
                high = std::min(planes, expected + range);
  s.first_overlap = low;
  s.candidates = std::max<int64_t>(0, high - low + 1);
  if (s.candidates > kMostCandidates) {
    return FieldNotAllowed("search_range_um", absl::StrCat(s.candidates, " overlaps"),
                           absl::StrCat("at most ", kMostCandidates));
  }
  const double products = static_cast<double>(s.candidates) * 0.5 *
                          static_cast<double>(low + high) * static_cast<double>(s.height * s.width);
  if (products > kMostProducts) {
    return FieldNotAllowed(
        "search_range_um",
        absl::StrCat(s.candidates, " overlaps of up to ", high, " planes of ", s.height, " x ",
                     s.width, " voxels: ", products, " products"),
        absl::StrCat("at most ", kMostProducts));
  }
  s.end = fixed.dims[0];
  s.first[0] = fixed.dims[0] - high;
  s.first[1] = spec.moving_first_plane;
  s.planes[0] = s.planes[1] = high;
  return out;
}

std::unique_ptr<const ArrayProgram> ZOverlap::Program() const {
  return slabs_.candidates == 0 ? nullptr : std::make_unique<ZOverlapProgram>(slabs_);
}

ZOverlapResult ZOverlap::Finish(const std::vector<double>& sums) const {
  const SlabPair& s = slabs_;
  ZOverlapResult out{.expected = expected_};
  // Of the last n planes of the fixed slab and of the first n of the moving one.
  struct Sums {
    double one = 0, square = 0;
  } fixed, moving;
  const auto add = [&](int64_t plane, Sums* to) {
    to->one += sums[static_cast<size_t>(2 * plane)];
    to->square += sums[static_cast<size_t>(2 * plane + 1)];
  };
  int64_t n = 0;
  for (int64_t k = 0; k < s.candidates; ++k) {
    for (; n < s.first_overlap + k; ++n) {
      add(s.planes[0] - 1 - n, &fixed);
      add(s.planes[0] + n, &moving);
    }
    double product = 0;
    for (int64_t part = 0; part < SlabPair::kParts; ++part) {
      product +=
          sums[static_cast<size_t>(2 * (s.planes[0] + s.planes[1]) + k * SlabPair::kParts + part)];
    }
    const double voxels = static_cast<double>(n * s.height * s.width);
    const auto deviation = [&](const Sums& of) {
      const double mean = of.one / voxels, variance = of.square / voxels - mean * mean;
      return std::isnan(variance) ? variance : std::sqrt(std::max(0.0, variance));
    };
    const double covariance = product / voxels - fixed.one / voxels * (moving.one / voxels);
    out.correlations.push_back(covariance / (deviation(fixed) + kLeastDeviation) /
                               (deviation(moving) + kLeastDeviation));
    const double here = out.correlations.back();
    if (!std::isnan(here) && (out.best == 0 || here > out.correlation)) {
      out.correlation = here;
      out.best = n;
    }
  }
  out.first = s.candidates > 0 ? s.first_overlap : 0;
  out.fallback = out.best == 0 || out.correlation < min_correlation_;
  out.overlap = out.fallback ? out.expected : out.best;
  return out;
}

}  // namespace octavo::inline gpu

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
constexpr double kMostProducts = 0x1p37;

absl::Status CheckSlab(const ArrayType& type, const std::string& field) {
  OCTAVO_RETURN_IF_ERROR(CheckReal(type, field));
  if (type.rank() == 3) return absl::OkStatus();
  return WithInfo(
      absl::InvalidArgumentError(absl::StrCat(field, ": is ", type.Text(), "; allowed [z, y, x]")),
      {.reason = Reason::kBadShape, .field = field, .numbers = {}});
}

class ZOverlapRun final : public SlicedRun {
 public:
  ZOverlapRun(const SlabPair& slabs, MosaicOps* ops, StopFlag stop)
      : slabs_(slabs), ops_(ops), stop_(stop) {}
  absl::Status Run(StreamRef stream, int64_t first, int64_t end,
                   const std::vector<const void*>& inputs, void* out) override {
    return ops_->SlabSums(stream, slabs_, {first, end}, inputs[0], inputs[1],
                          {static_cast<double*>(out), slabs_.numbers()}, stop_);
  }

 private:
  const SlabPair slabs_;
  MosaicOps* const ops_;
  const StopFlag stop_;
};

class ZOverlapProgram final : public SlicedProgram {
 public:
  explicit ZOverlapProgram(const SlabPair& slabs)
      : slabs_(slabs), out_{.scalar = Scalar::kF64, .dims = {slabs.numbers()}} {}
  const ArrayType& out() const override { return out_; }
  int64_t parts() const override { return slabs_.shares(); }
  absl::StatusOr<int64_t> ScratchBytes(Device&) const override { return int64_t{0}; }
  absl::StatusOr<std::unique_ptr<SlicedRun>> Prepare(Device& device, StopFlag stop) const override {
    OCTAVO_ASSIGN_OR_RETURN(MosaicOps* const ops, FindOperators<MosaicOps>(device));
    return std::make_unique<ZOverlapRun>(slabs_, ops, stop);
  }

 private:
  const SlabPair slabs_;
  const ArrayType out_;
};

int64_t InPlanes(double um, double spacing_z_um) {
  return std::llround(std::min(um / spacing_z_um, 1e12));
}

}  // namespace

int64_t ExpectedOverlap(int64_t planes, double slicing_interval_um, double spacing_z_um) {
  return std::max<int64_t>(0, planes - InPlanes(slicing_interval_um, spacing_z_um));
}

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
  const int64_t planes =
      std::min(fixed.dims[0] - spec.fixed_first_plane, moving.dims[0] - spec.moving_first_plane);
  const int64_t expected = planes - InPlanes(spec.slicing_interval_um, spec.spacing_z_um),
                range = InPlanes(spec.search_range_um, spec.spacing_z_um);
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
  return out;
}

std::unique_ptr<const SlicedProgram> ZOverlap::Program() const {
  return slabs_.candidates == 0 ? nullptr : std::make_unique<ZOverlapProgram>(slabs_);
}

ZOverlapResult ZOverlap::Finish(const std::vector<double>& sums) const {
  const SlabPair& s = slabs_;
  ZOverlapResult out{.expected = expected_};
  for (int64_t k = 0; k < s.candidates; ++k) {
    double total[SlabPair::kSums] = {};
    for (int64_t part = 0; part < SlabPair::kParts; ++part) {
      for (int64_t i = 0; i < SlabPair::kSums; ++i) {
        total[i] += sums[static_cast<size_t>((k * SlabPair::kParts + part) * SlabPair::kSums + i)];
      }
    }
    const double voxels = total[0];  // 0: all that follows is NaN
    const auto deviation = [&](double one, double square) {
      const double mean = one / voxels, variance = square / voxels - mean * mean;
      return std::isnan(variance) ? variance : std::sqrt(std::max(0.0, variance));
    };
    const double covariance = total[5] / voxels - total[1] / voxels * (total[2] / voxels);
    out.correlations.push_back(covariance / (deviation(total[1], total[3]) + kLeastDeviation) /
                               (deviation(total[2], total[4]) + kLeastDeviation));
    const double here = out.correlations.back();
    if (!std::isnan(here) && (out.best == 0 || here > out.correlation)) {
      out.correlation = here;
      out.best = s.first_overlap + k;
    }
  }
  out.first = s.candidates > 0 ? s.first_overlap : 0;
  out.fallback = out.best == 0 || out.correlation < min_correlation_;
  out.overlap = out.fallback ? out.expected : out.best;
  return out;
}

}  // namespace octavo::inline gpu

#include "gpu/mosaic/register_tiles.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "gpu/device/alignment.h"
#include "gpu/device/operators.h"

namespace octavo::inline gpu {
namespace {

constexpr int64_t kBatchBytes = int64_t{64} << 20;  // of both arrays that transforms work in
constexpr int64_t kMeanReads = 1 << 22;             // voxels that a part of the means reads
constexpr int64_t kMostJoints = 1 << 15;  // an answer with more is too long for gRPC's usual limit
constexpr double kMostOverlap = 0x1p33;   // voxels of all joints
constexpr int64_t kLimit = 32;            // voxels
constexpr int64_t kMostLength = 1 << 20;

/// The least of the lengths 4, 5, 6, 8, 10, 12, 16, ... that is n or more: overlaps of all sizes
/// share a few lengths, so that there are few batches and few plans of transforms.
int64_t SharedLength(int64_t n) {
  int64_t step = 1;
  while (8 * step <= n) step *= 2;
  for (const int64_t length : {4 * step, 5 * step, 6 * step}) {
    if (length >= n) return length;
  }
  return 8 * step;
}

}  // namespace

absl::StatusOr<Registration> Registration::Plan(const RegistrationSpec& asked,
                                                const ArrayType& type) {
  Registration out;
  out.spec_ = asked;
  out.type_ = type;
  RegistrationSpec& spec = out.spec_;
  OCTAVO_ASSIGN_OR_RETURN(out.layout_, LayOutTiles(spec.layout, type, "tiles"));
  const size_t n = out.layout_.tiles.size();
  if (n < 2) return FieldNotAllowed("tiles", absl::StrCat(n, " tile"), "2 or more");
  OCTAVO_RETURN_IF_ERROR(CheckPositions(spec.stage_um, n, "stage_um"));
  OCTAVO_RETURN_IF_ERROR(InRange("max_shift_um", spec.max_shift_um, 0, 1e9));
  OCTAVO_RETURN_IF_ERROR(InRange("min_confidence", spec.min_confidence, -1, 1));
  if (spec.min_overlap == 0) spec.min_overlap = 8;
  OCTAVO_RETURN_IF_ERROR(InRange("min_overlap", spec.min_overlap, 4, 65536));
  OCTAVO_RETURN_IF_ERROR(InRange("outlier_um", spec.outlier_um, 0, 1e9));
  const Vector3& spacing = spec.layout.spacing_um;
  if (spec.outlier_um == 0) spec.outlier_um = 1.5 * std::max(spacing[1], spacing[2]);
  out.flatten_ = !spec.in_depth && out.layout_.tiles[0].extent[0] > 1;
  if (out.flatten_) {
    out.means_ = MeansOf(spec.layout, out.layout_, type);
    out.layout_ = FlatLayout(out.layout_, spec.layout);
  }

  struct Found {
    TilePair pair;
    std::pair<int64_t, int64_t> tiles;
  };
  std::map<std::array<int64_t, 3>, std::vector<Found>> groups;
  double overlapping = 0;
  int64_t joints = 0;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = i + 1; j < n; ++j) {
      Found found{.tiles = {static_cast<int64_t>(i), static_cast<int64_t>(j)}};
      TilePair& pair = found.pair;
      pair.tile[0] = out.layout_.tiles[i];
      pair.tile[1] = out.layout_.tiles[j];
      std::array<int64_t, 3> length = {1, 1, 1};
      bool overlaps = true, broad = false;
      for (int d = 0; d < 3 && overlaps; ++d) {
        const double apart = (spec.stage_um[j][d] - spec.stage_um[i][d]) / spacing[d];
        if (d == 0 && !spec.in_depth) continue;
        if (std::abs(apart) > 1e9) overlaps = false;
        pair.shift[d] = overlaps ? std::llround(apart) : 0;
        const int64_t common =
            std::min(pair.tile[0].extent[d], pair.shift[d] + pair.tile[1].extent[d]) -
            std::max<int64_t>(0, pair.shift[d]);
        overlaps = overlaps && common >= (d == 0 ? 1 : spec.min_overlap);
        if (!overlaps) break;
        if (d > 0)
          broad = broad || 2 * common >= std::min(pair.tile[0].extent[d], pair.tile[1].extent[d]);
        pair.limit[d] =
            spec.max_shift_um > 0
                ? static_cast<int64_t>(std::ceil(std::min(spec.max_shift_um / spacing[d], 1e9)))
                : std::min(kLimit, common / 4);
        pair.limit[d] = std::min(pair.limit[d], (common - 1) / 2);
        length[static_cast<size_t>(d)] = SharedLength(common);
        if (length[static_cast<size_t>(d)] > kMostLength) {
          return FieldNotAllowed("tiles", absl::StrCat("an overlap of ", common, " voxels"),
                                 absl::StrCat("at most ", kMostLength, " along an axis"));
        }
      }
      if (!overlaps || !broad) continue;
      if (++joints > kMostJoints)
        return FieldNotAllowed("stage_um", "more joints", absl::StrCat(kMostJoints));
      double voxels = 1;
      for (const int64_t extent : length) voxels *= static_cast<double>(extent);
      overlapping += voxels;
      if (overlapping > kMostOverlap) {
        return FieldNotAllowed("stage_um",
                               absl::StrCat(overlapping, " voxels in overlaps, or more"),
                               absl::StrCat("at most ", kMostOverlap));
      }
      groups[length].push_back(found);
    }
  }
  for (const auto& [length, group] : groups) {
    PairBatch batch{.array = out.layout_.array};
    std::copy(length.begin(), length.end(), batch.length);
    const int64_t each = 4 * batch.elements() * static_cast<int64_t>(sizeof(math::Complex64));
    const auto most = static_cast<size_t>(std::max<int64_t>(1, kBatchBytes / each));
    for (size_t first = 0; first < group.size(); first += most) {
      batch.pairs = static_cast<int64_t>(std::min(most, group.size() - first));
      out.batches_.push_back({.first = out.pairs_.size() + first, .spec = batch});
    }
    for (const Found& one : group) {
      out.pairs_.push_back(one.pair);
      out.tiles_of_.push_back(one.tiles);
    }
  }
  return out;
}

namespace {

/// A transform of all rows, then the axes in another order.
struct TransformStep {
  FftSpec fft;
  GatherSpec turn;
  bool turns = false;
};

/// Forward: x, y, z. Each transform works on rows, so that the axis has to be the last one.
/// [boxes, z, y, x] becomes [boxes, z, x, y], and with depth [boxes, x, y, z].
std::vector<TransformStep> Forward(const PairBatch& b, int64_t boxes) {
  const int64_t z = b.length[0], y = b.length[1], x = b.length[2], n = b.elements();
  const auto turn = [&](int64_t e1, int64_t s1, int64_t e2, int64_t s2, int64_t e3, int64_t s3) {
    return GatherSpec{
        .bytes = sizeof(math::Complex64), .out = {boxes, e1, e2, e3}, .stride = {n, s1, s2, s3}};
  };
  std::vector<TransformStep> steps;
  steps.push_back(
      {.fft = {.n = x, .rows = boxes * n / x}, .turn = turn(z, y * x, x, 1, y, x), .turns = true});
  steps.push_back({.fft = {.n = y, .rows = boxes * n / y}});
  if (z == 1) return steps;
  steps.back().turn = turn(x, y, y, 1, z, x * y);
  steps.back().turns = true;
  steps.push_back({.fft = {.n = z, .rows = boxes * n / z}});
  return steps;
}
/// Backward: the same in reverse.
std::vector<TransformStep> Backward(const PairBatch& b, int64_t boxes) {
  const int64_t z = b.length[0], y = b.length[1], x = b.length[2], n = b.elements();
  const auto turn = [&](int64_t e1, int64_t s1, int64_t e2, int64_t s2, int64_t e3, int64_t s3) {
    return GatherSpec{
        .bytes = sizeof(math::Complex64), .out = {boxes, e1, e2, e3}, .stride = {n, s1, s2, s3}};
  };
  std::vector<TransformStep> steps;
  if (z > 1) {
    steps.push_back({.fft = {.n = z, .rows = boxes * n / z, .inverse = true},
                     .turn = turn(z, 1, x, y * z, y, z),
                     .turns = true});
  }
  steps.push_back({.fft = {.n = y, .rows = boxes * n / y, .inverse = true},
                   .turn = turn(z, x * y, y, 1, x, y),
                   .turns = true});
  steps.push_back({.fft = {.n = x, .rows = boxes * n / x, .inverse = true}});
  return steps;
}

}  // namespace

class RegistrationRun final : public SlicedRun {
 public:
  /// Where things are in the scratch memory.
  struct Room {
    int64_t flat = 0, pairs = 0, boxes[2] = {0, 0}, work = 0, end = 0;
  };
  static absl::StatusOr<Room> RoomOf(const Registration& plan, ArrayOps& arrays) {
    int64_t boxes = 0, work = 0;
    for (const Registration::Batch& batch : plan.batches_) {
      boxes = std::max(boxes, 2 * batch.spec.pairs * batch.spec.elements());
      for (const auto& steps :
           {Forward(batch.spec, 2 * batch.spec.pairs), Backward(batch.spec, batch.spec.pairs)}) {
        for (const TransformStep& step : steps) {
          if (step.fft.n == 1) continue;
          OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, arrays.PrepareFft(step.fft));
          work = std::max(work, bytes);
        }
      }
    }
    Room room;
    room.pairs = AlignedBytes(plan.flatten_ ? plan.means_.elements() * int64_t{sizeof(float)} : 0);
    room.boxes[0] = room.pairs + AlignedBytes(PairBytes(plan));
    const int64_t each = AlignedBytes(boxes * static_cast<int64_t>(sizeof(math::Complex64)));
    room.boxes[1] = room.boxes[0] + each;
    room.work = room.boxes[1] + each;
    room.end = room.work + AlignedBytes(work);
    return room;
  }
  static int64_t PairBytes(const Registration& plan) {
    return static_cast<int64_t>(plan.pairs_.size() * sizeof(TilePair));
  }

  /// The first parts make the means, each of the others is a batch.
  static int64_t MeansOfPart(const Registration& plan) {
    return std::max<int64_t>(1, kMeanReads / plan.means_.depth);
  }
  static int64_t MeanParts(const Registration& plan) {
    const int64_t each = MeansOfPart(plan);
    return plan.flatten_ ? (plan.means_.elements() + each - 1) / each : 0;
  }

  static absl::StatusOr<std::unique_ptr<SlicedRun>> Create(const Registration& plan, Device& device,
                                                           StopFlag stop) {
    std::unique_ptr<RegistrationRun> run(new RegistrationRun(plan, device, stop));
    OCTAVO_ASSIGN_OR_RETURN(run->arrays_, FindOperators<ArrayOps>(device));
    OCTAVO_ASSIGN_OR_RETURN(run->mosaics_, FindOperators<MosaicOps>(device));
    OCTAVO_ASSIGN_OR_RETURN(run->room_, RoomOf(plan, *run->arrays_));
    OCTAVO_ASSIGN_OR_RETURN(run->scratch_, device.Allocate(run->room_.end));
    OCTAVO_ASSIGN_OR_RETURN(run->table_, device.AllocatePinned(PairBytes(plan)));
    std::memcpy(run->table_.data(), plan.pairs_.data(), static_cast<size_t>(PairBytes(plan)));
    return run;
  }

  absl::Status Run(StreamRef stream, int64_t first_part, int64_t end_part,
                   const std::vector<const void*>& inputs, void* out) override {
    char* const scratch = scratch_.as<char>();
    const void* const tiles = plan_.flatten_ ? scratch + room_.flat : inputs[0];
    if (first_part == 0) {
      OCTAVO_RETURN_IF_ERROR(
          device_.CopyToDevice(stream, scratch + room_.pairs, table_.data(), table_.bytes()));
    }
    const int64_t means = MeanParts(plan_), each = MeansOfPart(plan_);
    if (first_part < means) {
      const LaunchRange range{first_part * each,
                              std::min(std::min(end_part, means) * each, plan_.means_.elements())};
      OCTAVO_RETURN_IF_ERROR(mosaics_->Means(
          stream, plan_.means_, range, inputs[0],
          {reinterpret_cast<float*>(scratch + room_.flat), plan_.means_.elements()}));
    }
    const DeviceSpan<const TilePair> pairs(reinterpret_cast<const TilePair*>(scratch + room_.pairs),
                                           static_cast<int64_t>(plan_.pairs_.size()));
    const DeviceSpan<TileAlignment> results(static_cast<TileAlignment*>(out), pairs.count());
    for (int64_t part = std::max(first_part, means); part < end_part; ++part) {
      const Registration::Batch& batch = plan_.batches_[static_cast<size_t>(part - means)];
      const auto first = static_cast<int64_t>(batch.first);
      OCTAVO_RETURN_IF_ERROR(RunBatch(stream, batch.spec, tiles,
                                      pairs.From(first).First(batch.spec.pairs),
                                      results.From(first).First(batch.spec.pairs)));
    }
    return absl::OkStatus();
  }

 private:
  RegistrationRun(Registration plan, Device& device, StopFlag stop)
      : plan_(std::move(plan)), device_(device), stop_(stop) {}

  /// Box memory `which`, as `count` numbers.
  DeviceSpan<math::Complex64> Boxes(int which, int64_t count) {
    return {reinterpret_cast<math::Complex64*>(scratch_.as<char>() + room_.boxes[which]), count};
  }
  /// The steps on box memory `*which`, which is another one afterwards.
  absl::Status Transform(StreamRef stream, const std::vector<TransformStep>& steps, int* which) {
    for (const TransformStep& step : steps) {
      const int64_t count = step.fft.n * step.fft.rows;
      if (step.fft.n > 1) {
        OCTAVO_RETURN_IF_ERROR(arrays_->Fft(stream, step.fft, Boxes(*which, count).data(),
                                            scratch_.as<char>() + room_.work));
      }
      if (!step.turns) continue;
      OCTAVO_RETURN_IF_ERROR(arrays_->Gather(stream, step.turn, Boxes(*which, count).data(),
                                             Boxes(1 - *which, count).data()));
      *which = 1 - *which;
    }
    return absl::OkStatus();
  }
  absl::Status RunBatch(StreamRef stream, const PairBatch& batch, const void* tiles,
                        DeviceSpan<const TilePair> pairs, DeviceSpan<TileAlignment> out) {
    const int64_t one = batch.pairs * batch.elements();
    int which = 0;
    OCTAVO_RETURN_IF_ERROR(
        mosaics_->WindowOverlaps(stream, batch, tiles, pairs, Boxes(which, 2 * one)));
    OCTAVO_RETURN_IF_ERROR(Transform(stream, Forward(batch, 2 * batch.pairs), &which));
    OCTAVO_RETURN_IF_ERROR(
        mosaics_->CrossPhase(stream, batch, Boxes(which, 2 * one), Boxes(1 - which, one)));
    which = 1 - which;
    OCTAVO_RETURN_IF_ERROR(Transform(stream, Backward(batch, batch.pairs), &which));
    return mosaics_->Align(stream, batch, tiles, pairs, Boxes(which, one), out, stop_);
  }

  const Registration plan_;
  Device& device_;
  const StopFlag stop_;
  ArrayOps* arrays_ = nullptr;
  MosaicOps* mosaics_ = nullptr;
  Room room_;
  DeviceBuffer scratch_;
  PinnedBuffer table_;
};

class RegistrationProgram final : public SlicedProgram {
 public:
  explicit RegistrationProgram(Registration plan) : plan_(std::move(plan)) {
    static_assert(sizeof(TileAlignment) == 5 * sizeof(double));
    out_ = {.scalar = Scalar::kF64, .dims = {static_cast<int64_t>(plan_.pairs_.size()), 5}};
  }
  const ArrayType& out() const override { return out_; }
  int64_t parts() const override {
    return RegistrationRun::MeanParts(plan_) + static_cast<int64_t>(plan_.batches_.size());
  }
  absl::StatusOr<int64_t> ScratchBytes(Device& device) const override {
    OCTAVO_ASSIGN_OR_RETURN(ArrayOps* const arrays, FindOperators<ArrayOps>(device));
    OCTAVO_ASSIGN_OR_RETURN(const auto room, RegistrationRun::RoomOf(plan_, *arrays));
    return room.end;
  }
  absl::StatusOr<std::unique_ptr<SlicedRun>> Prepare(Device& device, StopFlag stop) const override {
    return RegistrationRun::Create(plan_, device, stop);
  }

 private:
  const Registration plan_;
  ArrayType out_;
};

std::unique_ptr<const SlicedProgram> Registration::Program() const {
  if (pairs_.empty()) return nullptr;
  return std::make_unique<RegistrationProgram>(*this);
}

TilePositions Registration::Solve(const std::vector<TileAlignment>& measured) const {
  std::vector<TileJoint> joints;
  for (size_t k = 0; k < pairs_.size(); ++k) {
    const TileAlignment& one = measured[k];
    const auto [first, second] = tiles_of_[k];
    TileJoint joint{.first = first, .second = second};
    joint.confidence = one.correlation;
    joint.voxels = std::llround(one.voxels);
    for (int d = 0; d < 3; ++d) {
      const double stage = spec_.stage_um[static_cast<size_t>(second)][d] -
                           spec_.stage_um[static_cast<size_t>(first)][d];
      joint.difference_um[d] =
          d == 0 && !spec_.in_depth ? stage : one.shift[d] * spec_.layout.spacing_um[d];
    }
    joints.push_back(joint);
  }
  std::sort(joints.begin(), joints.end(), [](const TileJoint& a, const TileJoint& b) {
    return std::pair(a.first, a.second) < std::pair(b.first, b.second);
  });
  return SolveTilePositions(spec_.stage_um, std::move(joints), spec_.min_confidence,
                            spec_.outlier_um);
}

}  // namespace octavo::inline gpu

#include "gpu/mosaic/stitch_tiles.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "gpu/device/alignment.h"
#include "gpu/device/operators.h"

namespace octavo::inline gpu {
namespace {

constexpr int64_t kPart = 1 << 16;  // voxels

/// The tables of a launch, in one piece of memory.
struct StitchPlan {
  BlendSpec spec;
  int64_t tiles = 0, cells = 0, entries = 0;
  std::vector<char> tables;  // PlacedTile [tiles], starts i32 [cells + 1], lists i32 [entries]
  int64_t starts_offset() const {
    return AlignedBytes(tiles * static_cast<int64_t>(sizeof(PlacedTile)));
  }
  int64_t lists_offset() const {
    return starts_offset() + AlignedBytes((cells + 1) * static_cast<int64_t>(sizeof(int32_t)));
  }
  int64_t bytes() const {
    return lists_offset() + AlignedBytes(entries * static_cast<int64_t>(sizeof(int32_t)));
  }
};

void FillTables(const std::vector<PlacedTile>& placed, StitchPlan* plan) {
  const BlendSpec& s = plan->spec;
  std::vector<std::vector<int32_t>> lists(static_cast<size_t>(s.rows() * s.columns()));
  for (size_t k = 0; k < placed.size(); ++k) {
    int64_t begin[3], end[3];
    for (int d = 1; d < 3; ++d) {
      const double at = placed[k].position[d];
      const auto last =
          static_cast<int64_t>(std::floor(at + static_cast<double>(placed[k].place.extent[d] - 1)));
      begin[d] = static_cast<int64_t>(std::ceil(at)) / BlendSpec::kCell;
      end[d] = std::min(last, s.extent[d] - 1) / BlendSpec::kCell;
    }
    for (int64_t r = begin[1]; r <= end[1]; ++r) {
      for (int64_t c = begin[2]; c <= end[2]; ++c)
        lists[static_cast<size_t>(r * s.columns() + c)].push_back(static_cast<int32_t>(k));
    }
  }
  plan->tiles = static_cast<int64_t>(placed.size());
  plan->cells = static_cast<int64_t>(lists.size());
  for (const auto& list : lists) plan->entries += static_cast<int64_t>(list.size());
  plan->tables.resize(static_cast<size_t>(plan->bytes()));
  std::memcpy(plan->tables.data(), placed.data(), placed.size() * sizeof(PlacedTile));
  auto* starts = reinterpret_cast<int32_t*>(plan->tables.data() + plan->starts_offset());
  auto* entries = reinterpret_cast<int32_t*>(plan->tables.data() + plan->lists_offset());
  int32_t at = 0;
  for (const auto& list : lists) {
    *starts++ = at;
    for (const int32_t tile : list) entries[at++] = tile;
  }
  *starts = at;
}

class StitchRun final : public SlicedRun {
 public:
  StitchRun(std::shared_ptr<const StitchPlan> plan, Device& device, MosaicOps* ops,
            DeviceBuffer memory, PinnedBuffer tables)
      : plan_(std::move(plan)),
        device_(device),
        ops_(ops),
        memory_(std::move(memory)),
        tables_(std::move(tables)) {}
  absl::Status Run(StreamRef stream, int64_t first, int64_t end,
                   const std::vector<const void*>& inputs, void* out) override {
    char* const memory = memory_.as<char>();
    if (first == 0)
      OCTAVO_RETURN_IF_ERROR(device_.CopyToDevice(stream, memory, tables_.data(), plan_->bytes()));
    return ops_->Stitch(
        stream, plan_->spec, {first * kPart, std::min(end * kPart, plan_->spec.voxels())},
        inputs[0],
        {.tiles = {reinterpret_cast<const PlacedTile*>(memory), plan_->tiles},
         .starts = {reinterpret_cast<const int32_t*>(memory + plan_->starts_offset()),
                    plan_->cells + 1},
         .lists = {reinterpret_cast<const int32_t*>(memory + plan_->lists_offset()),
                   plan_->entries}},
        out);
  }

 private:
  const std::shared_ptr<const StitchPlan> plan_;
  Device& device_;
  MosaicOps* const ops_;
  const DeviceBuffer memory_;
  const PinnedBuffer tables_;
};

class StitchProgram final : public SlicedProgram {
 public:
  explicit StitchProgram(StitchPlan plan)
      : plan_(std::make_shared<const StitchPlan>(std::move(plan))),
        out_{.scalar = plan_->spec.out, .dims = {plan_->spec.extent, plan_->spec.extent + 3}} {}
  const ArrayType& out() const override { return out_; }
  int64_t parts() const override { return (plan_->spec.voxels() + kPart - 1) / kPart; }
  absl::StatusOr<int64_t> ScratchBytes(Device&) const override { return plan_->bytes(); }
  absl::StatusOr<std::unique_ptr<SlicedRun>> Prepare(Device& device, StopFlag) const override {
    OCTAVO_ASSIGN_OR_RETURN(MosaicOps* const ops, FindOperators<MosaicOps>(device));
    OCTAVO_ASSIGN_OR_RETURN(DeviceBuffer memory, device.Allocate(plan_->bytes()));
    OCTAVO_ASSIGN_OR_RETURN(PinnedBuffer tables, device.AllocatePinned(plan_->bytes()));
    std::memcpy(tables.data(), plan_->tables.data(), plan_->tables.size());
    return std::make_unique<StitchRun>(plan_, device, ops, std::move(memory), std::move(tables));
  }

 private:
  const std::shared_ptr<const StitchPlan> plan_;
  const ArrayType out_;
};

}  // namespace

Vector3 StitchOrigin(const StitchTilesSpec& spec) {
  Vector3 origin = spec.position_um.front();
  for (const Vector3& one : spec.position_um) {
    for (int d = 0; d < 3; ++d) origin[d] = std::min(origin[d], one[d]);
  }
  return origin;
}

absl::StatusOr<std::unique_ptr<const SlicedProgram>> PlanStitch(const StitchTilesSpec& spec,
                                                                const ArrayType& type) {
  OCTAVO_ASSIGN_OR_RETURN(const TileLayout layout, LayOutTiles(spec.layout, type, "tiles"));
  OCTAVO_RETURN_IF_ERROR(CheckPositions(spec.position_um, layout.tiles.size(), "position_um"));
  StitchPlan plan;
  plan.spec.array = layout.array;
  plan.spec.blend = spec.blend == TileBlend::kDefault ? TileBlend::kLinear : spec.blend;
  plan.spec.out = spec.scalar == Scalar{} ? type.scalar : spec.scalar;
  if (IsComplex(plan.spec.out))
    return FieldNotAllowed("type", NameOf(plan.spec.out), "a real type");
  OCTAVO_ASSIGN_OR_RETURN(plan.spec.gap, GapOf(spec.gap, plan.spec.out));
  const Vector3 origin = StitchOrigin(spec);
  std::vector<PlacedTile> placed;
  for (size_t i = 0; i < layout.tiles.size(); ++i) {
    PlacedTile tile{.place = layout.tiles[i]};
    for (int d = 0; d < 3; ++d) {
      const double at =
          SnappedVoxels((spec.position_um[i][d] - origin[d]) / spec.layout.spacing_um[d]);
      tile.position[d] = at;
      const double end = std::floor(at + static_cast<double>(tile.place.extent[d] - 1)) + 1;
      if (!(end < 2147483647.0)) {
        return FieldNotAllowed(absl::StrCat("position_um[", i, "]"),
                               absl::StrCat(end, " voxels from the first position"),
                               "less than 2^31 voxels");
      }
      plan.spec.extent[d] = std::max(plan.spec.extent[d], static_cast<int64_t>(end));
    }
    placed.push_back(tile);
  }
  // What is far too large for any array is refused before its tables are made.
  if (!FitsAnArray(plan.spec.extent)) {
    return WithInfo(
        absl::InvalidArgumentError(absl::StrCat(
            "position_um: the result would have ", plan.spec.extent[0], " x ", plan.spec.extent[1],
            " x ", plan.spec.extent[2], " voxels; it may have 2^30")),
        {.reason = Reason::kTooManyElements, .field = "position_um", .numbers = {}});
  }
  FillTables(placed, &plan);
  // Each voxel looks at all tiles of its cell.
  constexpr double kMostLooks = 256;  // of a voxel, on average, where there are many voxels
  double voxels = 1;
  for (const int64_t n : plan.spec.extent) voxels *= static_cast<double>(n);
  const double looks = static_cast<double>(plan.entries) * BlendSpec::kCell * BlendSpec::kCell *
                       static_cast<double>(plan.spec.extent[0]);
  if (looks > std::max(0x1p33, kMostLooks * voxels)) {
    return FieldNotAllowed("position_um",
                           absl::StrCat(std::round(looks / voxels), " tiles within ",
                                        BlendSpec::kCell, " voxels of a place, on average"),
                           absl::StrCat("at most ", kMostLooks, " in an array of that size"));
  }
  return std::make_unique<StitchProgram>(std::move(plan));
}

}  // namespace octavo::inline gpu

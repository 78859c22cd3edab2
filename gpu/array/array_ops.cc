#include "gpu/array/array_ops.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/array/internal.h"
#include "gpu/base/status.h"
#include "gpu/device/alignment.h"
#include "gpu/device/operators.h"

namespace octavo::inline gpu {

int64_t ArrayType::numbers() const {
  int64_t n = lanes;
  for (const int64_t d : dims) n *= d;
  return n;
}

std::string ArrayType::Text() const {
  return absl::StrCat(octavo::NameOf(scalar), "[", absl::StrJoin(dims, ", "), "]",
                      lanes == 1 ? "" : absl::StrCat(" x ", lanes));
}

const char* NameOf(const Op& op) {
  constexpr const char* kNames[] = {
      "copy",     "fill", "crop",       "scale",     "combine",
      "reduce",   "slab", "percentile", "histogram", "fft",
      "resize",   "flip", "transpose",  "affine",    "map_coordinates",
      "displace", "shift"};
  static_assert(std::size(kNames) == std::variant_size_v<Op>);
  if (const auto* slab = std::get_if<SlabOp>(&op)) return slab->called;
  return kNames[op.index()];
}

std::optional<size_t> OtherOf(const PlannedOp& step) {
  if (const auto* map = std::get_if<MapSpec>(&step.spec);
      map != nullptr && map->combination != Combination::kNone)
    return map->other_index;
  if (const auto* warp = std::get_if<WarpSpec>(&step.spec);
      warp != nullptr && warp->positions != WarpPositions::kMatrix)
    return warp->other_index;
  if (const auto* shift = std::get_if<ShiftSpec>(&step.spec)) return shift->other_index;
  return std::nullopt;
}

namespace {

struct Room {
  int64_t between = 0, work = 0;
};

absl::StatusOr<Room> RoomOf(const ArrayChain& chain, ArrayOps& ops) {
  Room room;
  size_t last = 0;  // the last step that does not work in place, which writes the output
  for (size_t i = 0; i < chain.steps.size(); ++i) {
    if (!std::holds_alternative<FftSpec>(chain.steps[i].spec)) last = i;
  }
  for (size_t i = 0; i < chain.steps.size(); ++i) {
    if (i < last) room.between = std::max(room.between, chain.steps[i].out_bytes);
    if (const auto* reduce = std::get_if<ReduceSpec>(&chain.steps[i].spec);
        reduce != nullptr && reduce->parts > 1) {
      room.work = std::max(room.work, reduce->parts * reduce->axes.results() *
                                          static_cast<int64_t>(sizeof(math::Accumulator)));
    }
    if (const auto* fft = std::get_if<FftSpec>(&chain.steps[i].spec)) {
      OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, ops.PrepareFft(*fft));
      room.work = std::max(room.work, bytes);
    }
  }
  return room;
}

}  // namespace

absl::StatusOr<int64_t> ScratchBytes(const ArrayChain& chain, Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(ArrayOps* const ops, FindOperators<ArrayOps>(device));
  OCTAVO_ASSIGN_OR_RETURN(const Room room, RoomOf(chain, *ops));
  return 2 * AlignedBytes(room.between) + AlignedBytes(room.work) +
         AlignedBytes(static_cast<int64_t>(chain.tables.size()));
}

absl::StatusOr<std::unique_ptr<ChainRun>> ChainRun::Create(
    const std::shared_ptr<const ArrayChain>& chain, Device& device) {
  OCTAVO_ASSIGN_OR_RETURN(ArrayOps* const ops, FindOperators<ArrayOps>(device));
  OCTAVO_ASSIGN_OR_RETURN(WarpOps* const warps, FindOperators<WarpOps>(device));
  std::unique_ptr<ChainRun> run(new ChainRun(chain, device, *ops, *warps));
  OCTAVO_ASSIGN_OR_RETURN(const Room room, RoomOf(*chain, *ops));
  run->between_bytes_ = AlignedBytes(room.between);
  run->work_offset_ = 2 * run->between_bytes_;
  run->tables_offset_ = run->work_offset_ + AlignedBytes(room.work);
  const auto tables = static_cast<int64_t>(chain->tables.size());
  if (const int64_t bytes = run->tables_offset_ + AlignedBytes(tables); bytes > 0) {
    OCTAVO_ASSIGN_OR_RETURN(run->scratch_, device.Allocate(bytes));
  }
  if (tables > 0) {
    OCTAVO_ASSIGN_OR_RETURN(run->tables_, device.AllocatePinned(tables));
    std::memcpy(run->tables_.data(), chain->tables.data(), chain->tables.size());
  }
  return run;
}

absl::Status ChainRun::Run(StreamRef stream, const void* in, const std::vector<const void*>& others,
                           void* out) {
  char* const scratch = scratch_.as<char>();
  char* const tables = scratch + tables_offset_;
  if (tables_)
    OCTAVO_RETURN_IF_ERROR(device_.CopyToDevice(stream, tables, tables_.data(), tables_.bytes()));
  size_t last = 0;
  for (size_t i = 0; i < chain_->steps.size(); ++i) {
    if (!std::holds_alternative<FftSpec>(chain_->steps[i].spec)) last = i;
  }
  const void* from = in;
  void* to = nullptr;
  int turn = 0;
  for (size_t i = 0; i < chain_->steps.size(); ++i) {
    const auto& spec = chain_->steps[i].spec;
    void* const work = scratch + work_offset_;
    if (const auto* fft = std::get_if<FftSpec>(&spec)) {
      OCTAVO_RETURN_IF_ERROR(ops_.Fft(stream, *fft, to, work));
      continue;
    }
    to = i == last ? out : scratch + (turn++ % 2) * between_bytes_;
    const std::optional<size_t> other_index = OtherOf(chain_->steps[i]);
    const void* const other = other_index.has_value() ? others[*other_index] : nullptr;
    absl::Status status;
    if (const auto* gather = std::get_if<GatherSpec>(&spec)) {
      status = ops_.Gather(stream, *gather, from, to);
    } else if (const auto* map = std::get_if<MapSpec>(&spec)) {
      status = ops_.Map(stream, *map, from, other, to);
    } else if (const auto* reduce = std::get_if<ReduceSpec>(&spec)) {
      status = ops_.Reduce(stream, *reduce, from, to, work);
    } else if (const auto* select = std::get_if<SelectSpec>(&spec)) {
      status = ops_.Select(stream, *select, from, to);
    } else if (const auto* histogram = std::get_if<HistogramSpec>(&spec)) {
      status =
          ops_.Histogram(stream, *histogram, from, {static_cast<uint64_t*>(to), histogram->bins});
    } else if (const auto* spline = std::get_if<SplineSpec>(&spec)) {
      status = warps_.Spline(stream, *spline, from, to);
    } else if (const auto* warp = std::get_if<WarpSpec>(&spec)) {
      status = warps_.Warp(stream, *warp, from, other, to);
    } else if (const auto* shift = std::get_if<ShiftSpec>(&spec)) {
      status = warps_.Shift(stream, *shift, from, other, to);
    } else {
      const auto& taps = std::get<TapsSpec>(spec);
      const int64_t count = taps.m * taps.taps;
      status = ops_.Taps(stream, taps, from,
                         {reinterpret_cast<const int32_t*>(tables + taps.index_offset), count},
                         {reinterpret_cast<const double*>(tables + taps.weight_offset), count}, to);
    }
    OCTAVO_RETURN_IF_ERROR(status);
    from = to;
  }
  return absl::OkStatus();
}

}  // namespace octavo::inline gpu

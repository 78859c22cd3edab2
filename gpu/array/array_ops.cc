#include "gpu/array/array_ops.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

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
      "copy",        "fill",      "crop",       "scale",     "combine",
      "reduce",      "slab",      "percentile", "histogram", "fft",
      "resize",      "flip",      "transpose",  "affine",    "map_coordinates",
      "displace",    "shift",     "gaussian",   "uniform",   "median",
      "logarithm",   "threshold", "select",     "argmax",    "paste",
      "concatenate", "surface",   "flat_field", "flatten",   "focal_curvature"};
  static_assert(std::size(kNames) == std::variant_size_v<Op>);
  if (const auto* slab = std::get_if<SlabOp>(&op)) return slab->called;
  if (const auto* function = std::get_if<FunctionOp>(&op);
      function != nullptr && function->function >= math::Function::kExp)
    return "exponential";
  if (const auto* place = std::get_if<ArgExtremeOp>(&op);
      place != nullptr && place->extreme == math::Extreme::kMin)
    return "argmin";
  return kNames[op.index()];
}

namespace {
template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;  // clang needs it until version 17
}  // namespace

std::vector<ArrayRef> OthersOf(const PlannedOp& step) {
  return std::visit(
      Overloaded{[](const MapSpec& s) -> std::vector<ArrayRef> {
                   if (s.combination == Combination::kNone) return {};
                   return {{s.other_index}};
                 },
                 [](const WarpSpec& s) -> std::vector<ArrayRef> {
                   if (s.positions == WarpPositions::kMatrix) return {};
                   return {{s.other_index}};
                 },
                 [](const ShiftSpec& s) { return std::vector{ArrayRef{s.other_index}}; },
                 [](const ReduceSpec& s) { return std::vector{s.mask.array}; },
                 [](const SelectSpec& s) { return std::vector{s.mask.array}; },
                 [](const HistogramSpec& s) { return std::vector{s.mask.array}; },
                 [](const ArgExtremeSpec& s) { return std::vector{s.mask}; },
                 [](const SampleWeightsSpec& s) { return std::vector{s.mask.array}; },
                 [](const CompactSpec& s) { return std::vector{s.mask.array}; },
                 [](const SteepestSpec& s) { return std::vector{s.mask.array}; },
                 [](const FlattenSpec& s) { return std::vector{ArrayRef{s.other_index}}; },
                 [](const ChooseSpec& s) {
                   return std::vector{s.mask, s.other};
                 },
                 [](const PasteSpec& s) {
                   std::vector<ArrayRef> from;
                   for (const PasteSpec::Piece& piece : s.pieces) from.push_back(piece.from);
                   return from;
                 },
                 [](const auto&) { return std::vector<ArrayRef>(); }},
      step.spec);
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
    if (const auto* above = std::get_if<AboveSpec>(&chain.steps[i].spec))
      room.work = std::max(room.work, OtsuWorkBytes(*above));
    if (const auto* choose = std::get_if<ChooseSpec>(&chain.steps[i].spec))
      room.work = std::max(room.work, OtsuWorkBytes(choose->above));
    if (const auto* surface = std::get_if<SurfaceSpec>(&chain.steps[i].spec))
      room.work = std::max(room.work, SurfaceWorkBytes(*surface));
    if (const auto* median = std::get_if<FromMedianSpec>(&chain.steps[i].spec))
      room.work = std::max(room.work, FromMedianWorkBytes(*median));
    if (const auto* basic = std::get_if<BasicSpec>(&chain.steps[i].spec))
      room.work = std::max(room.work, BasicWorkBytes(*basic));
    if (std::holds_alternative<LevelFlatSpec>(chain.steps[i].spec))
      room.work = std::max(room.work, kLevelFlatWorkBytes);
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
  Families ops;
  OCTAVO_ASSIGN_OR_RETURN(ops.arrays, FindOperators<ArrayOps>(device));
  OCTAVO_ASSIGN_OR_RETURN(ops.warps, FindOperators<WarpOps>(device));
  OCTAVO_ASSIGN_OR_RETURN(ops.filters, FindOperators<FilterOps>(device));
  OCTAVO_ASSIGN_OR_RETURN(ops.elements, FindOperators<ElementOps>(device));
  OCTAVO_ASSIGN_OR_RETURN(ops.extremes, FindOperators<ExtremeOps>(device));
  OCTAVO_ASSIGN_OR_RETURN(ops.surfaces, FindOperators<SurfaceOps>(device));
  OCTAVO_ASSIGN_OR_RETURN(ops.flats, FindOperators<FlatFieldOps>(device));
  std::unique_ptr<ChainRun> run(new ChainRun(chain, device, ops));
  OCTAVO_ASSIGN_OR_RETURN(const Room room, RoomOf(*chain, *ops.arrays));
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
  if (tables_) {
    OCTAVO_RETURN_IF_ERROR(
        device_.CopyToDevice(stream, scratch + tables_offset_, tables_.data(), tables_.bytes()));
  }
  size_t last = 0;
  for (size_t i = 0; i < chain_->steps.size(); ++i) {
    if (!std::holds_alternative<FftSpec>(chain_->steps[i].spec)) last = i;
  }
  const void* from = in;
  void* to = nullptr;
  int turn = 0;
  for (size_t i = 0; i < chain_->steps.size(); ++i) {
    const PlannedOp& step = chain_->steps[i];
    // A transform works in place.
    if (!std::holds_alternative<FftSpec>(step.spec))
      to = i == last ? out : scratch + (turn++ % 2) * between_bytes_;
    OCTAVO_RETURN_IF_ERROR(RunStep(stream, step, from, others, to));
    from = to;
  }
  return absl::OkStatus();
}

absl::Status ChainRun::RunStep(StreamRef stream, const PlannedOp& step, const void* from,
                               const std::vector<const void*>& others, void* to) {
  char* const scratch = scratch_.as<char>();
  char* const tables = scratch + tables_offset_;
  void* const work = scratch + work_offset_;
  const auto other = [&](ArrayRef array) { return array.given() ? others[array.index] : nullptr; };
  const auto mask = [&](ArrayRef array) { return static_cast<const uint8_t*>(other(array)); };
  const auto weights = [&](int64_t offset, int64_t count) {
    return DeviceSpan<const double>(reinterpret_cast<const double*>(tables + offset), count);
  };
  // Otsu's threshold on the device; null if the specification has one.
  const auto threshold = [&](const AboveSpec& s) -> absl::StatusOr<const double*> {
    if (s.bins == 0) return nullptr;
    OCTAVO_RETURN_IF_ERROR(ops_.elements->Otsu(stream, s, from, work));
    return static_cast<const double*>(work);
  };
  return std::visit(
      Overloaded{
          [&](const GatherSpec& s) { return ops_.arrays->Gather(stream, s, from, to); },
          [&](const MapSpec& s) {
            const bool two = s.combination != Combination::kNone;
            return ops_.arrays->Map(stream, s, from, two ? others[s.other_index] : nullptr, to);
          },
          [&](const ReduceSpec& s) {
            return ops_.arrays->Reduce(stream, s, from, mask(s.mask.array), to, work);
          },
          [&](const SelectSpec& s) {
            return ops_.arrays->Select(stream, s, from, mask(s.mask.array), to);
          },
          [&](const HistogramSpec& s) {
            return ops_.arrays->Histogram(stream, s, from, mask(s.mask.array),
                                          {static_cast<uint64_t*>(to), s.bins});
          },
          [&](const TapsSpec& s) {
            const int64_t count = s.m * s.taps;
            return ops_.arrays->Taps(
                stream, s, from, {reinterpret_cast<const int32_t*>(tables + s.index_offset), count},
                weights(s.weight_offset, count), to);
          },
          [&](const FftSpec& s) { return ops_.arrays->Fft(stream, s, to, work); },
          [&](const SplineSpec& s) { return ops_.warps->Spline(stream, s, from, to); },
          [&](const WarpSpec& s) {
            const bool two = s.positions != WarpPositions::kMatrix;
            return ops_.warps->Warp(stream, s, from, two ? others[s.other_index] : nullptr, to);
          },
          [&](const ShiftSpec& s) {
            return ops_.warps->Shift(stream, s, from, others[s.other_index], to);
          },
          [&](const CorrelateSpec& s) {
            return ops_.filters->Correlate(stream, s, from, weights(s.weight_offset, s.taps), to);
          },
          [&](const MedianSpec& s) { return ops_.filters->Median(stream, s, from, to); },
          [&](const FunctionSpec& s) { return ops_.elements->Apply(stream, s, from, to); },
          [&](const AboveSpec& s) -> absl::Status {
            OCTAVO_ASSIGN_OR_RETURN(const double* const value, threshold(s));
            return ops_.elements->Above(stream, s, from, value, to);
          },
          [&](const ChooseSpec& s) -> absl::Status {
            OCTAVO_ASSIGN_OR_RETURN(const double* const value, threshold(s.above));
            return ops_.elements->Choose(stream, s, from, mask(s.mask), value, other(s.other), to);
          },
          [&](const ArgExtremeSpec& s) {
            return ops_.extremes->ArgExtreme(stream, s, from, mask(s.mask), to);
          },
          [&](const SampleWeightsSpec& s) {
            return ops_.surfaces->SampleWeights(stream, s, from, mask(s.mask.array), to);
          },
          [&](const SmoothSamplesSpec& s) {
            const auto* const weight = reinterpret_cast<const float*>(tables + s.weight_offset);
            return ops_.surfaces->SmoothSamples(stream, s, from, {weight, 2 * s.radius + 1}, to);
          },
          [&](const SurfaceSpec& s) { return ops_.surfaces->Surface(stream, s, from, to, work); },
          [&](const CompactSpec& s) {
            return ops_.surfaces->Compact(stream, s, from, mask(s.mask.array), to);
          },
          [&](const SteepestSpec& s) {
            const int64_t count = 2 * s.radius + 1;
            return ops_.surfaces->Steepest(
                stream, s, from, mask(s.mask.array), weights(s.rise_offset, count).data(),
                s.smooth_offset < 0 ? nullptr : weights(s.smooth_offset, count).data(), to);
          },
          [&](const CutTilesSpec& s) { return ops_.flats->CutTiles(stream, s, from, to); },
          [&](const FromMedianSpec& s) -> absl::Status {
            SelectSpec median{
                .in = s.in, .out = Scalar::kF64, .percentiles = 1, .percentile = {50}};
            median.axes.keep[1] = s.tiles;
            median.axes.keep_stride[1] = s.pixels;
            median.axes.run[1] = s.pixels;
            median.axes.run_stride[1] = 1;
            OCTAVO_RETURN_IF_ERROR(ops_.arrays->Select(stream, median, from, nullptr, work));
            return ops_.flats->FromMedian(stream, s, from, static_cast<const double*>(work), to);
          },
          [&](const BasicSpec& s) { return ops_.flats->Basic(stream, s, from, to, work); },
          [&](const LevelFlatSpec& s) { return ops_.flats->LevelFlat(stream, s, from, to, work); },
          [&](const FlattenSpec& s) {
            return ops_.flats->Flatten(stream, s, from, others[s.other_index], to);
          },
          [&](const SpreadSpec& s) { return ops_.flats->Spread(stream, s, from, to); },
          [&](const PasteSpec& s) -> absl::Status {
            for (const PasteSpec::Piece& piece : s.pieces) {
              const void* const source = piece.from.given() ? other(piece.from) : from;
              OCTAVO_RETURN_IF_ERROR(ops_.arrays->Gather(stream, piece.place, source, to));
            }
            return absl::OkStatus();
          }},
      step.spec);
}

}  // namespace octavo::inline gpu

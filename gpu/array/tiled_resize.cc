#include "gpu/array/tiled_resize.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/array/chain_builder.h"
#include "gpu/array/internal.h"
#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"

namespace octavo::inline gpu {
namespace {

constexpr int64_t kMostWeights = 1 << 24;  // of an axis: 128 MiB
constexpr int64_t kMostRadius = 1 << 16;

/// The tables of all tiles along an axis: those of each, moved to where it lies.
struct AxisTables {
  AxisTaps taps;
  int64_t count = 0, from = 0, to = 0;  // taps of a result; samples, results
};

absl::StatusOr<AxisTables> TablesOf(const std::vector<TileLength>& tiles, const ResizeOp& how,
                                    const std::string& field) {
  AxisTables out;
  for (const TileLength& tile : tiles) {
    const int64_t radius = ResizeRadius(how, tile.from, tile.to);
    if (radius > kMostRadius) {
      return FieldNotAllowed(field, absl::StrCat(tile.to, " of ", tile.from, " samples"),
                             absl::StrCat("smoothing over at most ", 2 * kMostRadius, " samples"));
    }
    out.count = std::max(out.count, ResizeTaps(how, radius));
    out.from += tile.from;
    out.to += tile.to;
  }
  if (out.to > kMostWeights / out.count) {
    return FieldNotAllowed(field, absl::StrCat(out.to, " x ", out.count, " weights"),
                           absl::StrCat("at most ", kMostWeights));
  }
  std::map<std::pair<int64_t, int64_t>, AxisTaps> known;
  int64_t begin = 0;
  for (const TileLength& tile : tiles) {
    auto [at, fresh] = known.try_emplace({tile.from, tile.to});
    if (fresh) at->second = TapsOfResize(how, tile.from, tile.to);
    const AxisTaps& own = at->second;
    const auto count = static_cast<int64_t>(own.index.size()) / tile.to;
    for (int64_t i = 0; i < tile.to; ++i) {
      for (int64_t t = 0; t < out.count; ++t) {
        // Weights of 0 are not read, wherever they point to.
        const auto k = static_cast<size_t>(i * count + std::min(t, count - 1));
        out.taps.index.push_back(static_cast<int32_t>(begin + own.index[k]));
        out.taps.weight.push_back(t < count ? own.weight[k] : 0);
      }
    }
    begin += tile.from;
  }
  return out;
}

}  // namespace

absl::StatusOr<ArrayChain> PlanTiledResize(const ArrayType& in,
                                           const std::vector<std::vector<TileLength>>& tiles,
                                           const ResizeOp& how, Scalar scalar,
                                           const std::string& field) {
  ChainBuilder chain(in, {}, int64_t{1} << 40);
  chain.BeginOp(field);
  struct Axis {
    size_t number;
    double ratio;
  };
  std::vector<Axis> axes;
  for (size_t d = 0; d < tiles.size(); ++d) {
    int64_t from = 0, to = 0;
    bool same = true;
    for (const TileLength& tile : tiles[d]) {
      from += tile.from;
      to += tile.to;
      same = same && tile.from == tile.to;
    }
    if (!same) axes.push_back({d, static_cast<double>(to) / static_cast<double>(from)});
  }
  // Axes that shrink come first, so that the steps after them have less to read.
  std::stable_sort(axes.begin(), axes.end(),
                   [](const Axis& a, const Axis& b) { return a.ratio < b.ratio; });
  for (const Axis& axis : axes) {
    const ArrayType type = chain.type();
    OCTAVO_ASSIGN_OR_RETURN(const AxisTables tables, TablesOf(tiles[axis.number], how, field));
    TapsSpec spec{.in = type.scalar,
                  .out = axis.number == axes.back().number ? scalar : BetweenOf(in.scalar),
                  .n = tables.from,
                  .m = tables.to,
                  .inner = type.lanes,
                  .taps = tables.count};
    for (size_t d = 0; d < type.dims.size(); ++d)
      (d < axis.number ? spec.outer : spec.inner) *= d == axis.number ? 1 : type.dims[d];
    spec.index_offset = chain.AddTable(tables.taps.index);
    spec.weight_offset = chain.AddTable(tables.taps.weight);
    ArrayType out = type;
    out.scalar = spec.out;
    out.dims[axis.number] = tables.to;
    OCTAVO_RETURN_IF_ERROR(chain.Add(spec, std::move(out)));
  }
  if (axes.empty())
    OCTAVO_RETURN_IF_ERROR(chain.Map(MapSpec{.in = in.scalar, .out = scalar}, scalar));
  chain.EndOp();
  return std::move(chain).Build();
}

}  // namespace octavo::inline gpu

#include "server/tomography/mosaic_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/status.h"
#include "server/tomography/tile_correlation.h"
#include "server/tomography/tile_links.h"
#include "server/tomography/tile_pairs.h"
#include "server/tomography/tile_pictures.h"

namespace octavo::tomography {
namespace {

using storage::ProjectionInput;

constexpr int64_t kProjections = 9, kFewProjections = 5;  // that are read of a tile
constexpr int64_t kManyPairs = 12, kWideSearch = 64;  // from which on fewer projections are read
constexpr int64_t kLeastShared = 4;                   // columns and rows of an overlap
constexpr double kMostResidual = 1;                   // pixels, of a pair, from what all pairs say
constexpr double kStepsOfPixel = 1 << 20;
constexpr float kMostIntegral = 12;

struct Pair : TilePair {
  FoundLag found = {};
};

/// Why the place of a pair is not known, and what helps.
std::string WhyNotFound(const Pair& pair, int64_t search) {
  const FoundLag& found = pair.found;
  switch (found.doubt) {
    case LagDoubt::kTooSmall:
      return absl::StrFormat(
          "is too small for a sure position (correlation %.3f, and over so few pixels it takes "
          "%.3f): tiles that share more columns and rows are found; else give their positions to a "
          "pixel.",
          found.correlation, found.needed);
    case LagDoubt::kAtEnd:
      return absl::StrFormat(
          "fits best at the end of what was searched (correlation %.2f, %d pixels away): the given "
          "positions are wrong by more than tomography.mosaic.search (--tile-search), or the tiles "
          "are not in the order of their positions.",
          found.correlation, search);
    case LagDoubt::kManyFit:
      return absl::StrFormat(
          "fits as well a few pixels further on (correlation %.2f): what both show does not tell "
          "where they lie. Give their positions to a pixel.",
          found.correlation);
    default:
      return absl::StrFormat(
          "shows too little that is common to both (correlation %.2f within %d pixels): air, "
          "noise, "
          "or positions that are wrong by more than tomography.mosaic.search (--tile-search).",
          found.correlation, search);
  }
}

/// Whether pairs whose place is found connect the two tiles in another way.
bool IsConnected(const std::vector<Pair>& pairs, size_t tiles, const Pair& of) {
  std::vector<bool> reached(tiles, false);
  reached[of.first] = true;
  for (size_t round = 0; round < tiles; ++round) {
    for (const Pair& pair : pairs) {
      if (!pair.found.column_known && !pair.found.row_known) continue;
      if (reached[pair.first] || reached[pair.second])
        reached[pair.first] = reached[pair.second] = true;
    }
  }
  return reached[of.second];
}

TilePart Widened(const TilePart& part, int64_t columns, int64_t rows, const TilePlace& tile) {
  TilePart wide;
  wide.column = std::max<int64_t>(0, part.column - columns);
  wide.columns = std::min(tile.columns, part.column + part.columns + columns) - wide.column;
  wide.row = std::max<int64_t>(0, part.row - rows);
  wide.rows = std::min(tile.rows, part.row + part.rows + rows) - wide.row;
  return wide;
}

absl::StatusOr<std::vector<Picture>> IntegralsOf(ProjectionInput& input, const TilePart& part,
                                                 int64_t projections, bool divide) {
  OCTAVO_ASSIGN_OR_RETURN(
      std::vector<Picture> pictures,
      TransmissionsOf(input, part, EvenlySpaced(input.info().projections, projections), divide));
  for (Picture& picture : pictures) TakeLogarithm(picture, kMostIntegral);
  return pictures;
}

/// Looks for the lag of a pair.
class PairSearch {
 public:
  PairSearch(const std::vector<std::shared_ptr<ProjectionInput>>& tiles,
             const std::vector<TilePlace>& places, int64_t search, int64_t projections, bool divide)
      : tiles_(tiles),
        places_(places),
        search_(search),
        projections_(projections),
        divide_(divide) {}

  absl::Status Look(Pair& pair) const {
    // A detector of a few rows tells nothing of them.
    const int64_t columns = pair.columns < kLeastShared ? 0 : search_,
                  rows = pair.rows < kLeastShared ? 0 : search_;
    const TilePart part = pair.Middle(),
                   of_first = Widened(part, columns, rows, places_[pair.first]),
                   of_second = Widened(pair.OfSecond(part), columns, rows, places_[pair.second]);
    OCTAVO_ASSIGN_OR_RETURN(std::vector<Picture> first,
                            IntegralsOf(*tiles_[pair.first], of_first, projections_, divide_));
    OCTAVO_ASSIGN_OR_RETURN(std::vector<Picture> second,
                            IntegralsOf(*tiles_[pair.second], of_second, projections_, divide_));
    const LagRange range = {.row = of_second.row + pair.row - of_first.row,
                            .column = of_second.column + pair.column - of_first.column,
                            .most_rows = rows,
                            .most_columns = columns};
    pair.found = FindLag(std::move(first), std::move(second), range);
    // From here on the difference of the two places, as `column` and `row` are.
    pair.found.column += static_cast<double>(of_first.column - of_second.column);
    pair.found.row += static_cast<double>(of_first.row - of_second.row);
    return absl::OkStatus();
  }

 private:
  const std::vector<std::shared_ptr<ProjectionInput>>& tiles_;
  const std::vector<TilePlace>& places_;
  const int64_t search_, projections_;
  const bool divide_;
};

/// One axis of all tiles.
class AxisOfTiles {
 public:
  AxisOfTiles(const std::vector<TilePlace>& places, double TilePlace::*place)
      : places_(places), place_(place) {}

  void Add(size_t pair, const Pair& of, double difference) {
    index_.push_back(pair);
    links_.push_back(
        {.first = of.first,
         .second = of.second,
         .difference = difference - (places_[of.second].*place_ - places_[of.first].*place_),
         .weight = of.found.correlation * of.found.correlation});
  }
  /// The pair tells nothing of this axis.
  void AddAsGiven(size_t pair, const Pair& of) {
    index_.push_back(pair);
    links_.push_back({.first = of.first, .second = of.second, .as_given = true});
  }
  /// Corrects the places. Returns the pairs that contradict the others.
  std::vector<size_t> Correct(std::vector<TilePlace>* places, std::vector<bool>* found) const {
    const LinkedTiles linked = CorrectionsOf(places->size(), links_, kMostResidual);
    for (size_t i = 0; i < places->size(); ++i) {
      // In steps that add up exactly: tiles that are as given to each other stay so to the bit.
      (*places)[i].*place_ += std::round(linked.corrections[i] * kStepsOfPixel) / kStepsOfPixel;
      if (linked.linked[i]) (*found)[i] = true;
    }
    std::vector<size_t> wrong;
    for (const size_t link : linked.left_out) wrong.push_back(index_[link]);
    return wrong;
  }

 private:
  const std::vector<TilePlace>& places_;
  double TilePlace::*const place_;
  std::vector<size_t> index_;
  std::vector<TileLink> links_;
};

}  // namespace

absl::StatusOr<FoundPlaces> FindPlaces(const std::vector<std::shared_ptr<ProjectionInput>>& tiles,
                                       const std::vector<TilePlace>& given, int64_t search,
                                       bool divide) {
  std::vector<Pair> pairs;
  for (const TilePair& pair : PairsOf(given, kLeastShared)) pairs.push_back({pair, {}});
  const int64_t projections =
      std::ssize(pairs) > kManyPairs || search > kWideSearch ? kFewProjections : kProjections;
  const PairSearch finder(tiles, given, search, projections, divide);
  OCTAVO_RETURN_IF_ERROR(
      ForPairs(pairs.size(), [&](size_t index) { return finder.Look(pairs[index]); }));
  FoundPlaces out = {.places = given, .tiles = {}, .log = {}, .warnings = {}};
  out.tiles.resize(given.size());
  AxisOfTiles columns(given, &TilePlace::first_column), rows(given, &TilePlace::first_row);
  std::vector<size_t> overlaps(given.size(), 0);
  for (size_t i = 0; i < pairs.size(); ++i) {
    const Pair& pair = pairs[i];
    const FoundLag& found = pair.found;
    for (const size_t tile : {pair.first, pair.second}) {
      ++overlaps[tile];
      double& least = out.tiles[tile].correlation;
      least = std::isnan(least) ? found.correlation : std::min(least, found.correlation);
    }
    if (found.column_known) {
      columns.Add(i, pair, found.column);
    } else {
      columns.AddAsGiven(i, pair);
    }
    if (found.row_known) {
      rows.Add(i, pair, found.row);
    } else {
      rows.AddAsGiven(i, pair);
    }
    const TilePlace &a = given[pair.first], &b = given[pair.second];
    const auto text = [](const char* axis, bool known, double value, double was) {
      return known ? absl::StrFormat("%s %.2f (given %.2f)", axis, value, was)
                   : absl::StrFormat("%s %.2f as given", axis, was);
    };
    out.log.push_back(absl::StrFormat(
        "tile %d lies from tile %d: %s, %s; correlation %.3f over %d x %d pixels", pair.second,
        pair.first,
        text("columns", found.column_known, found.column, b.first_column - a.first_column),
        text("rows", found.row_known, found.row, b.first_row - a.first_row), found.correlation,
        pair.rows, pair.columns));
    if (!found.column_known && !found.row_known && !IsConnected(pairs, given.size(), pair)) {
      out.warnings.push_back(absl::StrFormat(
          "Tiles %d and %d of the mosaic: their overlap (%d rows, %d columns) %s Their "
          "positions to each other are taken as given.",
          pair.first, pair.second, pair.rows, pair.columns, WhyNotFound(pair, search)));
    }
  }
  std::vector<bool> found(given.size(), false);
  for (const AxisOfTiles* axis : {&columns, &rows}) {
    for (const size_t wrong : axis->Correct(&out.places, &found)) {
      out.warnings.push_back(absl::StrFormat(
          "Tiles %d and %d of the mosaic: what their overlap says of the %s contradicts the other "
          "overlaps by more than %g pixel, and does not count.",
          pairs[wrong].first, pairs[wrong].second, axis == &columns ? "columns" : "rows",
          kMostResidual));
    }
  }
  for (size_t i = 0; i < given.size(); ++i) {
    out.tiles[i].found = found[i];
    if (overlaps[i] == 0)
      out.warnings.push_back(absl::StrFormat(
          "Tile %d of the mosaic overlaps no other one by %d columns and rows: its position is "
          "taken as given.",
          i, kLeastShared));
  }
  return out;
}

}  // namespace octavo::tomography

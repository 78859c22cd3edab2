#include "server/tomography/joined_detector.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"

namespace octavo::tomography {
namespace {

/// Pixels [begin, end) along one axis.
struct Span {
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
};
Span Common(const Span& a, const Span& b) {
  return {.begin = std::max(a.begin, b.begin), .end = std::min(a.end, b.end)};
}
struct Rectangle {
  Span columns, rows;
};

int64_t Rounded(double place) { return static_cast<int64_t>(std::floor(place + 0.5)); }

Rectangle PixelsOf(const TilePlace& place) {
  const int64_t column = Rounded(place.first_column), row = Rounded(place.first_row);
  return {.columns = {.begin = column, .end = column + place.columns},
          .rows = {.begin = row, .end = row + place.rows}};
}

/// The plane cut along all ends of tiles: each cell is covered as a whole, or not at all.
class Cells {
 public:
  explicit Cells(const std::vector<Rectangle>& tiles) {
    for (const Rectangle& tile : tiles) {
      for (const int64_t at : {tile.columns.begin, tile.columns.end}) columns_.push_back(at);
      for (const int64_t at : {tile.rows.begin, tile.rows.end}) rows_.push_back(at);
    }
    for (std::vector<int64_t>* ends : {&columns_, &rows_}) {
      std::sort(ends->begin(), ends->end());
      ends->erase(std::unique(ends->begin(), ends->end()), ends->end());
    }
    covered_.assign(across() * down(), false);
    for (const Rectangle& tile : tiles) {
      for (size_t r = IndexOf(rows_, tile.rows.begin); rows_[r] < tile.rows.end; ++r) {
        for (size_t c = IndexOf(columns_, tile.columns.begin); columns_[c] < tile.columns.end; ++c)
          covered_[r * across() + c] = true;
      }
    }
  }

  /// The largest rectangle of covered cells; of several, the one that begins first.
  Rectangle Largest() const {
    Rectangle best;
    int64_t most = 0;
    for (size_t top = 0; top < down(); ++top) {
      std::vector<bool> all(across(), true);  // whether the column is covered from `top` on
      for (size_t bottom = top; bottom < down(); ++bottom) {
        for (size_t c = 0; c < across(); ++c) all[c] = all[c] && covered_[bottom * across() + c];
        const Span rows = {.begin = rows_[top], .end = rows_[bottom + 1]};
        for (size_t c = 0; c < across();) {
          if (!all[c]) {
            ++c;
            continue;
          }
          const size_t first = c;
          while (c < across() && all[c]) ++c;
          const Span columns = {.begin = columns_[first], .end = columns_[c]};
          if (columns.count() * rows.count() <= most) continue;
          most = columns.count() * rows.count();
          best = {.columns = columns, .rows = rows};
        }
      }
    }
    return best;
  }

  /// The largest cell within all tiles' bounds that none covers.
  std::optional<Rectangle> Hole() const {
    std::optional<Rectangle> hole;
    for (size_t r = 0; r < down(); ++r) {
      for (size_t c = 0; c < across(); ++c) {
        const Rectangle cell = {.columns = {.begin = columns_[c], .end = columns_[c + 1]},
                                .rows = {.begin = rows_[r], .end = rows_[r + 1]}};
        if (!covered_[r * across() + c] &&
            (!hole.has_value() ||
             cell.columns.count() * cell.rows.count() > hole->columns.count() * hole->rows.count()))
          hole = cell;
      }
    }
    return hole;
  }

 private:
  static size_t IndexOf(const std::vector<int64_t>& ends, int64_t at) {
    return static_cast<size_t>(std::lower_bound(ends.begin(), ends.end(), at) - ends.begin());
  }
  size_t across() const { return columns_.size() - 1; }
  size_t down() const { return rows_.size() - 1; }
  std::vector<int64_t> columns_, rows_;
  std::vector<bool> covered_;  // [row, column]
};

/// How far the weight of a tile along one axis rises from its first pixel and falls to its last
/// one; 0 or less = it does not.
struct Ramps {
  double rise = 0, fall = 0;
};

/// What the tile [first, first + count) shares with another one along an axis.
void AddNeighbour(double first, int64_t count, double other_first, int64_t other_count,
                  Ramps* ramps) {
  const double last = first + static_cast<double>(count - 1),
               other_last = other_first + static_cast<double>(other_count - 1);
  const bool before = other_first < first && other_last >= first,
             after = other_last > last && other_first <= last;
  const double half = static_cast<double>(count) / 2;
  if (before && after) {  // the other one reaches beyond both ends
    ramps->rise = std::max(ramps->rise, half);
    ramps->fall = std::max(ramps->fall, half);
  } else if (before) {
    ramps->rise = std::max(ramps->rise, other_last - first);
  } else if (after) {
    ramps->fall = std::max(ramps->fall, last - other_first);
  }
}

/// Of each pixel that sees the tile. Two neighbours together have 1 everywhere.
std::vector<float> WeightsOf(const Ramps& ramps, double first, int64_t count) {
  std::vector<float> weights;
  for (int64_t i = 0; i < count; ++i) {
    const double from_first = static_cast<double>(Rounded(first) + i) - first,
                 to_last = static_cast<double>(count - 1) - from_first;
    double weight = 1;
    if (ramps.rise > 0) weight = std::min(weight, (from_first + 1) / (ramps.rise + 2));
    if (ramps.fall > 0) weight = std::min(weight, (to_last + 1) / (ramps.fall + 2));
    weights.push_back(static_cast<float>(weight));
  }
  return weights;
}

absl::Status CheckUse(const std::vector<Rectangle>& tiles, const Rectangle& used,
                      const Cells& cells) {
  for (size_t i = 0; i < tiles.size(); ++i) {
    const Span columns = Common(tiles[i].columns, used.columns),
               rows = Common(tiles[i].rows, used.rows);
    if (2 * columns.count() >= tiles[i].columns.count() &&
        2 * rows.count() >= tiles[i].rows.count())
      continue;
    const Rectangle hole = cells.Hole().value_or(Rectangle());
    return InvalidField(
        absl::StrCat("tomography.mosaic.tiles[", i, "]"),
        absl::StrCat(
            "lies at columns ", tiles[i].columns.begin, " to ", tiles[i].columns.end - 1,
            " and rows ", tiles[i].rows.begin, " to ", tiles[i].rows.end - 1,
            ", and less than half of it could be used: no tile covers columns ", hole.columns.begin,
            " to ", hole.columns.end - 1, " of rows ", hole.rows.begin, " to ", hole.rows.end - 1,
            " (the leftmost and the topmost tile are at 0); allowed are positions at which "
            "tiles overlap or touch"));
  }
  return absl::OkStatus();
}

}  // namespace

SharedPart SharedPartOf(const TilePlace& one, const TilePlace& other) {
  const Rectangle a = PixelsOf(one), b = PixelsOf(other);
  SharedPart part = {.columns = Common(a.columns, b.columns).count(),
                     .rows = Common(a.rows, b.rows).count()};
  const auto fraction = [](int64_t shared, int64_t count, int64_t other_count) {
    return static_cast<double>(shared) / static_cast<double>(std::min(count, other_count));
  };
  part.side_by_side = fraction(part.columns, one.columns, other.columns) <=
                      fraction(part.rows, one.rows, other.rows);
  return part;
}

absl::StatusOr<JoinedDetector> JoinTiles(const std::vector<TilePlace>& places) {
  if (places.empty()) return absl::InternalError("a mosaic without tiles");
  TilePlace least = places.front();
  for (const TilePlace& place : places) {
    least.first_column = std::min(least.first_column, place.first_column);
    least.first_row = std::min(least.first_row, place.first_row);
  }
  std::vector<TilePlace> from_zero = places;
  std::vector<Rectangle> pixels;
  for (TilePlace& place : from_zero) {
    place.first_column -= least.first_column;
    place.first_row -= least.first_row;
    pixels.push_back(PixelsOf(place));
  }
  const Cells cells(pixels);
  const Rectangle used = cells.Largest();
  OCTAVO_RETURN_IF_ERROR(CheckUse(pixels, used, cells));

  JoinedDetector joined = {.columns = used.columns.count(), .rows = used.rows.count(), .tiles = {}};
  for (size_t i = 0; i < from_zero.size(); ++i) {
    const TilePlace& place = from_zero[i];
    Ramps columns, rows;
    for (size_t j = 0; j < from_zero.size(); ++j) {
      const TilePlace& other = from_zero[j];
      const SharedPart shared = SharedPartOf(place, other);
      if (j == i || !shared.any()) continue;
      if (shared.side_by_side) {
        AddNeighbour(place.first_column, place.columns, other.first_column, other.columns,
                     &columns);
      } else {
        AddNeighbour(place.first_row, place.rows, other.first_row, other.rows, &rows);
      }
    }
    joined.tiles.push_back(
        {.first_column = place.first_column - static_cast<double>(used.columns.begin),
         .first_row = place.first_row - static_cast<double>(used.rows.begin),
         .column = pixels[i].columns.begin - used.columns.begin,
         .row = pixels[i].rows.begin - used.rows.begin,
         .columns = place.columns,
         .rows = place.rows,
         .column_weights = WeightsOf(columns, place.first_column, place.columns),
         .row_weights = WeightsOf(rows, place.first_row, place.rows)});
  }
  return joined;
}

}  // namespace octavo::tomography

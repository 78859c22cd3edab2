#include "server/tomography/mosaic_search.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <pthread.h>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/tomography/tile_correlation.h"
#include "server/tomography/tile_links.h"

namespace octavo::tomography {
namespace {

using storage::FrameKind;
using storage::ProjectionBox;
using storage::ProjectionInput;

constexpr int64_t kProjections = 9, kFewProjections = 5, kFields = 8;  // that are read of a tile
constexpr int64_t kManyPairs = 12, kWideSearch = 64;  // from which on fewer projections are read
constexpr int64_t kLeastShared = 4;                   // columns and rows of an overlap
constexpr double kSmallPart = 0.5;  // of a tile's largest overlap: those of corners are left out
constexpr int64_t kMostExtent = 512, kMostPixels = 256 << 10;  // of an overlap that are compared
constexpr int64_t kMostThreads = 4;
constexpr double kMostResidual = 1;  // pixels, of a pair, from what all pairs say
constexpr float kMostIntegral = 12;

/// Two tiles that overlap by their given places, to whole pixels.
struct Pair {
  size_t first = 0, second = 0;
  int64_t column = 0, row = 0;    // of the second one, in pixels of the first
  int64_t columns = 0, rows = 0;  // that they share
  FoundLag found = {};
};

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

int64_t Rounded(double value) { return static_cast<int64_t>(std::floor(value + 0.5)); }

std::vector<Pair> PairsOf(const std::vector<TilePlace>& places) {
  std::vector<Pair> pairs;
  std::vector<int64_t> largest(places.size(), 0);
  for (size_t i = 0; i < places.size(); ++i) {
    for (size_t j = i + 1; j < places.size(); ++j) {
      const TilePlace &a = places[i], &b = places[j];
      Pair pair = {.first = i,
                   .second = j,
                   .column = Rounded(b.first_column - a.first_column),
                   .row = Rounded(b.first_row - a.first_row)};
      pair.columns =
          std::min(a.columns, b.columns + pair.column) - std::max<int64_t>(0, pair.column);
      pair.rows = std::min(a.rows, b.rows + pair.row) - std::max<int64_t>(0, pair.row);
      if (pair.columns < std::min({kLeastShared, a.columns, b.columns}) ||
          pair.rows < std::min({kLeastShared, a.rows, b.rows}))
        continue;
      for (const size_t tile : {i, j})
        largest[tile] = std::max(largest[tile], pair.columns * pair.rows);
      pairs.push_back(pair);
    }
  }
  std::erase_if(pairs, [&](const Pair& pair) {
    const auto small = [&](size_t tile) {
      return static_cast<double>(pair.columns * pair.rows) <
             kSmallPart * static_cast<double>(largest[tile]);
    };
    return small(pair.first) && small(pair.second);
  });
  return pairs;
}

/// A part of a tile, in its own pixels.
struct Part {
  int64_t column = 0, row = 0, columns = 0, rows = 0;
};

/// The middle `most` of `count`.
void Limit(int64_t most, int64_t* first, int64_t* count) {
  if (*count <= most) return;
  *first += (*count - most) / 2;
  *count = most;
}

Part Widened(const Part& part, int64_t columns, int64_t rows, const TilePlace& tile) {
  Part wide;
  wide.column = std::max<int64_t>(0, part.column - columns);
  wide.columns = std::min(tile.columns, part.column + part.columns + columns) - wide.column;
  wide.row = std::max<int64_t>(0, part.row - rows);
  wide.rows = std::min(tile.rows, part.row + part.rows + rows) - wide.row;
  return wide;
}

absl::StatusOr<Picture> ReadFrame(ProjectionInput& input, FrameKind kind, int64_t frame,
                                  const Part& part) {
  const ProjectionBox box = {.kind = kind,
                             .first_frame = frame,
                             .frames = 1,
                             .first_row = part.row,
                             .rows = part.rows,
                             .first_column = part.column,
                             .columns = part.columns};
  const DType dtype = input.info().dtype;
  std::vector<char> raw(static_cast<size_t>(box.elements() * SizeOf(dtype)));
  OCTAVO_RETURN_IF_ERROR(input.Read(box, raw.data()));
  Picture picture{.rows = part.rows, .columns = part.columns, .pixels = {}};
  picture.pixels.resize(static_cast<size_t>(box.elements()));
  const auto convert = [&]<typename T>(T) {
    T value{};
    for (size_t i = 0; i < picture.pixels.size(); ++i) {
      std::memcpy(&value, raw.data() + i * sizeof value, sizeof value);
      picture.pixels[i] = static_cast<float>(value);
    }
  };
  switch (dtype) {
    case DType::kU8: convert(uint8_t{}); break;
    case DType::kU16: convert(uint16_t{}); break;
    case DType::kI16: convert(int16_t{}); break;
    default: convert(float{}); break;
  }
  return picture;
}

/// The mean of some frames of a kind, evenly spaced; zeros without any.
absl::StatusOr<Picture> MeanOf(ProjectionInput& input, FrameKind kind, const Part& part) {
  Picture mean{.rows = part.rows, .columns = part.columns, .pixels = {}};
  mean.pixels.assign(static_cast<size_t>(part.rows * part.columns), 0.0F);
  const int64_t frames = input.info().frames(kind), count = std::min(frames, kFields);
  for (int64_t i = 0; i < count; ++i) {
    OCTAVO_ASSIGN_OR_RETURN(const Picture frame, ReadFrame(input, kind, i * frames / count, part));
    for (size_t p = 0; p < mean.pixels.size(); ++p)
      mean.pixels[p] += frame.pixels[p] / static_cast<float>(count);
  }
  return mean;
}

/// Line integrals, up to a constant. What tells nothing gets the value before it in its row: a step
/// there would stand out more than all that is true.
void TakeLogarithm(Picture& picture) {
  for (int64_t r = 0; r < picture.rows; ++r) {
    float* const row = picture.row(r);
    const auto good = [](float value) { return value > 0 && value - value == 0.0F; };
    const float* const first = std::find_if(row, row + picture.columns, good);
    float last = first == row + picture.columns ? 0.0F : std::min(-std::log(*first), kMostIntegral);
    for (int64_t c = 0; c < picture.columns; ++c) {
      if (good(row[c])) last = std::min(-std::log(row[c]), kMostIntegral);
      row[c] = last;
    }
  }
}

absl::StatusOr<std::vector<Picture>> IntegralsOf(ProjectionInput& input, const Part& part,
                                                 int64_t projections, bool divide) {
  Picture dark, light;
  divide = divide && input.info().flats > 0;
  if (divide) {
    OCTAVO_ASSIGN_OR_RETURN(dark, MeanOf(input, FrameKind::kDark, part));
    OCTAVO_ASSIGN_OR_RETURN(light, MeanOf(input, FrameKind::kFlat, part));
  }
  std::vector<Picture> out;
  const int64_t frames = input.info().projections, count = std::min(frames, projections);
  for (int64_t i = 0; i < count; ++i) {
    OCTAVO_ASSIGN_OR_RETURN(Picture picture, ReadFrame(input, FrameKind::kProjection,
                                                       (2 * i + 1) * frames / (2 * count), part));
    for (size_t p = 0; divide && p < picture.pixels.size(); ++p) {
      const float open = light.pixels[p] - dark.pixels[p];
      picture.pixels[p] = open > 0 ? (picture.pixels[p] - dark.pixels[p]) / open
                                   : std::numeric_limits<float>::quiet_NaN();
    }
    TakeLogarithm(picture);
    out.push_back(std::move(picture));
  }
  return out;
}

/// Looks for the lag of each pair, several at a time.
class PairSearch {
 public:
  PairSearch(const std::vector<std::shared_ptr<ProjectionInput>>& tiles,
             const std::vector<TilePlace>& places, int64_t search, bool divide,
             std::vector<Pair>* pairs)
      : tiles_(tiles), places_(places), search_(search), divide_(divide), pairs_(*pairs) {}

  absl::Status Run() {
    const int64_t processors = static_cast<int64_t>(std::thread::hardware_concurrency());
    const int64_t threads = std::clamp<int64_t>(
        processors / 2, 1,
        std::min<int64_t>(kMostThreads, std::max<int64_t>(1, std::ssize(pairs_))));
    std::vector<std::jthread> workers;
    for (int64_t i = 0; i < threads; ++i) {
      workers.emplace_back([this] {
        pthread_setname_np(pthread_self(), "oct-tiles");
        Work();
      });
    }
    workers.clear();  // joins
    MutexLock lock(mutex_);
    return status_;
  }

 private:
  void Work() {
    for (;;) {
      const size_t at = next_++;
      if (at >= pairs_.size()) return;
      const absl::Status status = base::ExceptionToStatus([&] { return Look(pairs_[at]); });
      if (status.ok()) continue;
      MutexLock lock(mutex_);
      if (status_.ok()) status_ = status;
      next_ = pairs_.size();
      return;
    }
  }

  absl::Status Look(Pair& pair) const {
    const TilePlace &a = places_[pair.first], &b = places_[pair.second];
    // A detector of a few rows tells nothing of them.
    const int64_t columns = pair.columns < kLeastShared ? 0 : search_,
                  rows = pair.rows < kLeastShared ? 0 : search_;
    Part part = {.column = std::max<int64_t>(0, pair.column),
                 .row = std::max<int64_t>(0, pair.row),
                 .columns = pair.columns,
                 .rows = pair.rows};
    Limit(kMostExtent, &part.column, &part.columns);
    Limit(std::max<int64_t>(1, kMostPixels / part.columns), &part.row, &part.rows);
    const Part of_first = Widened(part, columns, rows, a),
               of_second = Widened({.column = part.column - pair.column,
                                    .row = part.row - pair.row,
                                    .columns = part.columns,
                                    .rows = part.rows},
                                   columns, rows, b);
    const int64_t projections =
        std::ssize(pairs_) > kManyPairs || search_ > kWideSearch ? kFewProjections : kProjections;
    OCTAVO_ASSIGN_OR_RETURN(std::vector<Picture> first,
                            IntegralsOf(*tiles_[pair.first], of_first, projections, divide_));
    OCTAVO_ASSIGN_OR_RETURN(std::vector<Picture> second,
                            IntegralsOf(*tiles_[pair.second], of_second, projections, divide_));
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

  const std::vector<std::shared_ptr<ProjectionInput>>& tiles_;
  const std::vector<TilePlace>& places_;
  const int64_t search_;
  const bool divide_;
  std::vector<Pair>& pairs_;
  std::atomic<size_t> next_ = 0;
  Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
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
  /// Corrects the places. Returns the pairs that contradict the others.
  std::vector<size_t> Correct(std::vector<TilePlace>* places, std::vector<bool>* found) const {
    const LinkedTiles linked = CorrectionsOf(places->size(), links_, kMostResidual);
    for (size_t i = 0; i < places->size(); ++i) {
      (*places)[i].*place_ += linked.corrections[i];
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
  std::vector<Pair> pairs = PairsOf(given);
  OCTAVO_RETURN_IF_ERROR(PairSearch(tiles, given, search, divide, &pairs).Run());
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
    if (found.column_known) columns.Add(i, pair, found.column);
    if (found.row_known) rows.Add(i, pair, found.row);
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
          "Tiles %d and %d of the mosaic: their overlap (%d rows, %d columns) shows too little "
          "that "
          "is common to both (correlation %.2f within %d pixels): their positions are taken as "
          "given.",
          pair.first, pair.second, pair.rows, pair.columns, found.correlation, search));
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

#include "server/tomography/mosaic_input.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gpu/base/status.h"

namespace octavo::tomography {
namespace {

using storage::ProjectionBox;

constexpr int64_t kPieceBytes = 4 << 20;  // of the result, made at a time

/// Two neighbouring pixels of a tile along one axis and the part of the second one, by which a
/// pixel of the joined detector is interpolated.
struct Between {
  int64_t first = 0, second = 0;
  float part = 0;
};

/// For pixel `at` of those that see a tile, which begins at `first`, rounded to `rounded`. Beyond
/// its ends, by at most half a pixel, the outermost one goes on.
Between PlaceIn(double first, int64_t rounded, int64_t count, int64_t at) {
  const double place =
      std::clamp(static_cast<double>(rounded + at) - first, 0.0, static_cast<double>(count - 1));
  Between between;
  between.first = static_cast<int64_t>(place);
  between.part = static_cast<float>(place - static_cast<double>(between.first));
  between.second = between.part > 0 ? between.first + 1 : between.first;
  return between;
}

/// Pixels [begin, end) that a read wants of those that see a tile.
struct Wanted {
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
};
Wanted WantedOf(int64_t first, int64_t count, int64_t tile_first, int64_t tile_count) {
  return {.begin = std::max<int64_t>(0, first - tile_first),
          .end = std::min(tile_count, first + count - tile_first)};
}

/// What a tile shows in a row of the joined detector, before it is blended.
class RowOfTile {
 public:
  RowOfTile(const JoinedTile& tile, const Wanted& columns) {
    for (int64_t i = columns.begin; i < columns.end; ++i)
      places_.push_back(PlaceIn(tile.first_column, tile.column, tile.columns, i));
    first_ = places_.front().first;
    columns_ = places_.back().second + 1 - first_;
    for (const Between& place : places_) whole_ = whole_ && place.part == 0;
    row_.resize(static_cast<size_t>(columns_));
    values_.resize(places_.size());
    usable_.resize(places_.size());
  }
  int64_t first_column() const { return first_; }  // of the tile, that is needed
  int64_t columns() const { return columns_; }

  /// `a` and `b`: rows of the tile from first_column() on.
  const float* Values(const float* a, const float* b, float part) {
    const float* row = a;
    if (part > 0) {
      for (int64_t c = 0; c < columns_; ++c)
        row_[static_cast<size_t>(c)] = a[c] + (b[c] - a[c]) * part;
      row = row_.data();
    }
    if (whole_) return row;  // one after the other
    for (size_t i = 0; i < places_.size(); ++i) {
      const Between& place = places_[i];
      const float value = row[place.first - first_];
      values_[i] = value + (row[place.second - first_] - value) * place.part;
    }
    return values_.data();
  }

  /// Which of the values rest on lit pixels alone; null: all. `a` and `b`: unlit ones, from column
  /// 0 on.
  const uint8_t* Usable(const uint8_t* a, const uint8_t* b, float part) {
    if (part == 0) b = nullptr;
    if (a == nullptr && b == nullptr) return nullptr;
    const auto unlit = [&](int64_t column) {
      return (a != nullptr && a[column] != 0) || (b != nullptr && b[column] != 0);
    };
    for (size_t i = 0; i < places_.size(); ++i)
      usable_[i] = unlit(places_[i].first) || unlit(places_[i].second) ? 0 : 1;
    return usable_.data();
  }

 private:
  std::vector<Between> places_;
  int64_t first_ = 0, columns_ = 0;
  bool whole_ = true;
  std::vector<float> row_, values_;
  std::vector<uint8_t> usable_;
};

/// Adds the values of one more tile to the weighted mean of those before it. Equal values stay
/// exactly what they are.
void Blend(const float* values, const uint8_t* usable, const float* column_weights,
           float row_weight, int64_t count, float* mean, float* weights) {
  const auto blend = [&](int64_t i, bool counts) {
    const float value = values[i], before = weights[i], weight = column_weights[i] * row_weight,
                after = before + weight;
    const float blended = mean[i] + (value - mean[i]) * (weight / after);
    const bool good = counts && value - value == 0.0F;  // finite
    mean[i] = before == 0.0F ? value : good ? blended : mean[i];
    weights[i] = good ? after : before;
  };
  if (usable == nullptr) {
    for (int64_t i = 0; i < count; ++i) blend(i, true);
  } else {
    for (int64_t i = 0; i < count; ++i) blend(i, usable[i] != 0);
  }
}

}  // namespace

int64_t MosaicInput::unlit() const {
  int64_t sum = 0;
  for (const auto& tile : tiles_) sum += tile->unlit();
  return sum;
}

absl::Status MosaicInput::ReadInside(const ProjectionBox& box, void* out) {
  const int64_t of_frame = box.rows * box.columns,
                most = std::clamp<int64_t>(
                    kPieceBytes / (of_frame * static_cast<int64_t>(sizeof(float))), 1, box.frames);
  for (int64_t frame = 0; frame < box.frames; frame += most) {
    ProjectionBox piece = box;
    piece.first_frame += frame;
    piece.frames = std::min(most, box.frames - frame);
    OCTAVO_RETURN_IF_ERROR(ReadFrames(piece, static_cast<float*>(out) + frame * of_frame));
  }
  return absl::OkStatus();
}

absl::Status MosaicInput::ReadFrames(const ProjectionBox& box, float* out) {
  std::vector<float> weights(static_cast<size_t>(box.elements()), 0.0F);
  for (size_t i = 0; i < tiles_.size(); ++i)
    OCTAVO_RETURN_IF_ERROR(AddTile(i, box, out, weights.data()));
  return absl::OkStatus();
}

absl::Status MosaicInput::AddTile(size_t index, const ProjectionBox& box, float* out,
                                  float* weights) {
  const JoinedTile& tile = joined_.tiles[index];
  const Wanted columns = WantedOf(box.first_column, box.columns, tile.column, tile.columns),
               rows = WantedOf(box.first_row, box.rows, tile.row, tile.rows);
  if (columns.count() <= 0 || rows.count() <= 0) return absl::OkStatus();
  RowOfTile row_of(tile, columns);
  const int64_t first_row = PlaceIn(tile.first_row, tile.row, tile.rows, rows.begin).first,
                last_row = PlaceIn(tile.first_row, tile.row, tile.rows, rows.end - 1).second,
                tile_rows = last_row + 1 - first_row, tile_columns = row_of.columns();
  const ProjectionBox needed = {.kind = storage::FrameKind::kProjection,
                                .first_frame = box.first_frame,
                                .frames = box.frames,
                                .first_row = first_row,
                                .rows = tile_rows,
                                .first_column = row_of.first_column(),
                                .columns = tile_columns};
  std::vector<float> values(static_cast<size_t>(needed.elements()));
  OCTAVO_RETURN_IF_ERROR(tiles_[index]->Read(needed, values.data()));
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const Between place = PlaceIn(tile.first_row, tile.row, tile.rows, r);
    const uint8_t* const usable = row_of.Usable(tiles_[index]->Unlit(place.first),
                                                tiles_[index]->Unlit(place.second), place.part);
    for (int64_t f = 0; f < box.frames; ++f) {
      const float* const frame = values.data() + f * tile_rows * tile_columns;
      const float* const row =
          row_of.Values(frame + (place.first - first_row) * tile_columns,
                        frame + (place.second - first_row) * tile_columns, place.part);
      const int64_t at = (f * box.rows + tile.row + r - box.first_row) * box.columns + tile.column +
                         columns.begin - box.first_column;
      Blend(row, usable, tile.column_weights.data() + columns.begin,
            tile.row_weights[static_cast<size_t>(r)], columns.count(), out + at, weights + at);
    }
  }
  return absl::OkStatus();
}

}  // namespace octavo::tomography
